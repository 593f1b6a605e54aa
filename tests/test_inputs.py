"""What is refused as items, changing nothing, and what the refusals do not say."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import unnoise as un
from sketch_tools import make, refused
from unnoise import testing
from unnoise.errors import InputError, UnnoiseError
from unnoise.sketches.sketch import Sketch

# ── bad items change nothing ──────────────────────────────────────────────────────────────────────────────────────────

BAD: dict[str, Any] = {
    "NaN": [1, float("nan")],
    "float": [1, 2.0],
    "float array": np.array([1.0]),
    "NaN array": np.array([np.nan]),
    "bool": [True],
    "bool and int": [1, True],
    "bool array": np.array([True]),
    "bytes and text": [b"a", "a"],
    "mixed": [1, "a"],
    "mixed object array": np.array([1, "a"], dtype=object),
    "NaN in object array": np.array(["a", np.nan], dtype=object),
    "nested": [[1]],
    "ragged tuples": [(1, 2), (1,)],
    "empty tuples": [()],
    "tuples in tuples": [((1, 2), 3)],
    "tuple with float": [(1, 2.5)],
    "tuple and int": [(1,), 1],
    "too large": [2**63],
    "too small": [-(2**63) - 1],
    "128 bits": pl.Series([1], dtype=pl.Int128),
    "three dimensions": np.zeros((2, 2, 2), dtype=int),
    "no dimension": np.array(5),
    "surrogate": ["\ud800"],
    "datetime array": np.array(["2020-01-01"], dtype="M8[D]"),
    "complex": np.array([1j]),
    "arrow float": pa.array([1.0]),
    "arrow bool": pa.array([True]),
    "arrow list": pa.array([[1]]),
    "arrow timestamp": pa.array([0], pa.timestamp("s")),
    "polars float": pl.Series([1.0]),
    "polars bool": pl.Series([True]),
    "polars date": pl.Series([0]).cast(pl.Date),
    "polars object column": pl.DataFrame({"a": [[1]]}),
    "pandas float": pd.Series([1.0]),
    "pandas int with NaN": pd.Series([1, None]),
    "pandas bool": pd.Series([True]),
    "pandas mixed": pd.Series([1, "a"]),
    "pandas object float": pd.Series(["a", 2.5], dtype=object),
    "pandas object bool": pd.Series([True, 1], dtype=object),
    "pandas datetime": pd.Series(pd.to_datetime(["2020-01-01"])),
    "table with a float column": pa.table({"a": [1], "b": [1.5]}),
    "empty table": pl.DataFrame(),
    "dictionary of floats": pa.array([1.5]).dictionary_encode(),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_items_are_refused_and_change_nothing(name: str) -> None:
    sketch = make()
    refused(InputError, "must (be|have)", lambda: sketch.update(BAD[name]), sketch)
    assert sketch.layout.item_types is None
    sketch.update(["still works"])


OUTSIDE: list[tuple[Callable[..., Sketch], Any]] = [
    (lambda **options: Sketch.known(10, epsilon=1, **options), [1, 2, 10]),
    (lambda **options: Sketch.known(10, epsilon=1, **options), np.array([-1, 1, 2])),
    (lambda **options: Sketch.known(["a", "b"], epsilon=1, **options), ["a", "c", "b"]),
    (lambda **options: Sketch.sampled(10, rate=1, epsilon=1, **options), [1, 2, 10]),
    (lambda **options: Sketch.sampled(["a", "b"], rate=1, epsilon=1, **options), ["a", "c", "b"]),
]


@pytest.mark.parametrize(("make_one", "items"), OUTSIDE)
def test_items_outside_a_known_domain_are_left_out_or_refused(make_one: Callable[..., Sketch], items: Any) -> None:
    strict = make_one(unknown="error")
    refused(InputError, "declared domain.*got one outside", lambda: strict.update(items), strict)
    with testing.noiseless():
        sketch = make_one()
    sketch.update(items)
    assert sketch._held.array().sum() == 2


@pytest.mark.parametrize("domain", [["a", "b", "a"], [1, 2, 1], [(1, "a"), (1, "a")], np.array([3, 3])])
def test_domain_with_duplicates_is_refused(domain: Any) -> None:
    with pytest.raises(InputError, match=r"domain must not hold an item twice, got equal ones at positions \d and \d"):
        Sketch.known(domain, epsilon=1)


# ── no item in an error text ──────────────────────────────────────────────────────────────────────────────────────────
SECRET = 987_654_321
"""A count that no noise reaches: if it shows anywhere, an exact value has leaked."""


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.update(["secret-item"], [2.0**63]),
        lambda s: s.update(["secret-item", "x"], [1]),
        lambda s: s.update(["secret-item", SECRET]),
        lambda s: s.update([SECRET, "secret-item"]),
        lambda s: s.update([SECRET * 10**12]),
        lambda s: s.update([f"secret-item{SECRET}\ud800"]),
        lambda s: s.update(pd.Series(["secret-item", SECRET])),
        lambda s: Sketch.known(["a"], epsilon=1, unknown="error").update(["secret-item"]),
        lambda s: Sketch.known(5, epsilon=1, unknown="error").update([SECRET]),
        lambda s: s.update([("secret-item", 1), ("secret-item",)]),
    ],
)
def test_no_item_in_error_text(call: Callable[[Sketch], None]) -> None:
    with pytest.raises(UnnoiseError) as caught:
        call(make())
    text = str(caught.value) + "".join(getattr(caught.value, "__notes__", []))
    assert "secret" not in text
    assert not any(str(n) in text for n in (SECRET, 2**63, 2**64 - 1 - SECRET))
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None




# ── types that become text or integers by one rule, in memory as in files ─────────────────────────────────────

ID = uuid.UUID(int=2**127 + 5)
ALIKE: dict[str, tuple[Any, Any]] = {
    "uuid": ([str(ID)], [ID]),
    "arrow uuid": ([str(ID)], pa.array([ID.bytes], pa.uuid())),
    "pandas uuid": ([str(ID)], pd.Series([ID, None])),
    "bytes": (["ff00"], [b"\xff\x00"]),
    "numpy bytes": (["6162"], np.array([b"ab"])),
    "arrow binary": (["ff00"], pa.array([b"\xff\x00"])),
    "polars binary": (["ff00"], pl.Series([b"\xff\x00"])),
    "uint64": ([5 - 2**63], np.array([2**63 + 5], dtype=np.uint64)),
    "arrow uint64": ([5 - 2**63], pa.array([2**63 + 5], pa.uint64())),
    "polars uint64": ([5 - 2**63], pl.Series([2**63 + 5], dtype=pl.UInt64)),
    "counter": (["a", "b", "a"], Counter("aba")),
    "dictionary": (["a", "b", "a"], {"a": 2, "b": 1}),
    "numpy occurrences": (["a", "a"], {"a": np.int64(2)}),
    "no occurrences": ([], Counter()),
}


@pytest.mark.parametrize("name", ALIKE)
def test_they_count_as_what_they_stand_for(name: str) -> None:
    plain, given = ALIKE[name]
    with testing.noiseless():
        first, second, other = (Sketch.hashed(2**12, epsilon=1) for _ in range(3))
    first.update(plain)
    second.update(given)
    other.update(["another"])
    wanted, found, else_ = (testing.release(sketch).counts for sketch in (first, second, other))
    assert (wanted == found).all()
    assert wanted.sum() == len(plain)
    assert (wanted != else_).any()


def test_occurrences_are_said_once() -> None:
    with pytest.raises(InputError, match="counts must be left out"):
        make().update(Counter("aba"), counts=[1, 2])


# ── what can be read once ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.filterwarnings("ignore:Arrow output")
@pytest.mark.parametrize("count", [lambda items: make().update(items), lambda items: un.profile(items, epsilon=1)])
def test_a_result_of_duckdb_that_has_been_read(count: Callable[[Any], Any]) -> None:
    """The second call found None in the place of rows, and one before any query an error of DuckDB's."""
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as base:
        with pytest.raises(InputError, match="got a connection without one: execute the query again"):
            count(base)
        result = base.execute("SELECT 1 AS x")
        count(result)
        with pytest.raises(InputError, match="got a connection without one: execute the query again"):
            count(result)


def test_a_sparse_column_is_called_so() -> None:
    with pytest.raises(InputError, match=r"got Sparse\[int64, 0\]: cast first"):
        make().update(pd.Series(pd.arrays.SparseArray([1, 0, 1])))


def test_numbers_of_occurrences_are_not_taken_for_items() -> None:
    """What value_counts and size return: counted as items, 3 would be "an item seen once" for what was seen 3 times."""
    pages = pd.Series(["a", "b", "a", "c", "a", "b"])
    for numbers in (pages.value_counts(), pages.groupby(pages.rename("page")).size()):
        with pytest.raises(InputError, match=r"items must be occurrences, got a Series of their numbers.*to_dict\(\)"):
            make().update(numbers)
    ids = pd.DataFrame({"user": [1, 2, 2], "count": [5, 6, 7]})
    for column in (ids["user"], ids["count"], ids.set_index("user")["count"].rename("n"), ids["user"][1:]):
        make().update(column)
    make().update(pages.value_counts().index, counts=pages.value_counts())
