"""Sketches: what goes in, whatever the library, is what comes out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from unnoise import testing
from unnoise.errors import InputError
from unnoise.noise import DiscreteLaplace
from unnoise.sketches.domain import OUTSIDE, _ListCells
from unnoise.sketches.hashing import cells_of, hash_columns
from unnoise.sketches.inputs import BATCH, Rows, clean_rows
from unnoise.sketches.sketch import Sketch

TEXTS = ["red", "blue", "red", "é漢🦀", "", "blue", "red"]
NUMBERS = [3, -1, 3, 2**62, 0, -1, 3]
PAIRS = list(zip(NUMBERS, TEXTS))


def exact(sketch: Sketch) -> list[int]:
    """The cells of a sketch made without noise."""
    return testing.release(sketch).counts.tolist()


def counted(items: Any, *args: Any, cells: int = 256, **kwargs: Any) -> list[int]:
    with testing.noiseless():
        sketch = Sketch.hashed(cells, epsilon=1)
    sketch.update(items, *args, **kwargs)
    return exact(sketch)


def oracle(rows: list[Any], cells: int = 256) -> list[int]:
    """Count one item at a time."""
    expected = [0] * cells
    for row, how_many in Counter(rows).items():
        parts = row if isinstance(row, tuple) else (row,)
        columns = [np.array([p]) if isinstance(p, int) else pl.Series([p]) for p in parts]
        expected[int(hash_columns(columns)[0]) % cells] += how_many
    return expected


def with_nulls(values: list[Any]) -> list[Any]:
    return [None, *values[:3], None, *values[3:]]


STRING_INPUTS: dict[str, Callable[[], Any]] = {
    "list": lambda: TEXTS,
    "tuple": lambda: tuple(TEXTS),
    "list with None": lambda: with_nulls(TEXTS),
    "generator": lambda: (text for text in TEXTS),
    "generator with None": lambda: iter(with_nulls(TEXTS)),
    "numpy U": lambda: np.array(TEXTS),
    "numpy object": lambda: np.array(with_nulls(TEXTS), dtype=object),
    "numpy StringDType": lambda: np.array(TEXTS, dtype=np.dtypes.StringDType()),
    "arrow string": lambda: pa.array(with_nulls(TEXTS)),
    "arrow large_string": lambda: pa.array(with_nulls(TEXTS), pa.large_string()),
    "arrow string_view": lambda: pa.array(with_nulls(TEXTS), pa.string_view()),
    "arrow dictionary": lambda: pa.array(with_nulls(TEXTS)).dictionary_encode(),
    "arrow chunked": lambda: pa.chunked_array([TEXTS[:2], [], with_nulls(TEXTS[2:])]),
    "arrow table": lambda: pa.table({"t": with_nulls(TEXTS)}),
    "arrow batch": lambda: pa.record_batch({"t": pa.array(with_nulls(TEXTS))}),
    "arrow reader": lambda: pa.table({"t": with_nulls(TEXTS)}).to_reader(max_chunksize=2),
    "polars series": lambda: pl.Series(with_nulls(TEXTS)),
    "polars categorical": lambda: pl.Series(with_nulls(TEXTS), dtype=pl.Categorical),
    "polars enum": lambda: pl.Series(with_nulls(TEXTS), dtype=pl.Enum(sorted(set(TEXTS)))),
    "polars frame": lambda: pl.DataFrame({"t": with_nulls(TEXTS)}),
    "pandas series": lambda: pd.Series(with_nulls(TEXTS)),
    "pandas series NaN": lambda: pd.Series([float("nan"), *TEXTS], dtype=object),
    "pandas string": lambda: pd.Series(with_nulls(TEXTS), dtype="string"),
    "pandas category": lambda: pd.Series(with_nulls(TEXTS), dtype="category"),
    "pandas frame": lambda: pd.DataFrame({"t": with_nulls(TEXTS)}, index=range(5, 14)),
    "duckdb relation": lambda: duckdb.sql(f"SELECT unnest({TEXTS!r}) AS t UNION ALL SELECT NULL"),
    "duckdb execute": lambda: duckdb.connect().execute(f"SELECT unnest({TEXTS!r}) AS t"),
    "mapping": lambda: {"t": TEXTS},
}


@pytest.mark.filterwarnings("ignore:Arrow output on a DB-API result")
@pytest.mark.parametrize("name", STRING_INPUTS)
def test_strings_from_every_library(name: str) -> None:
    assert counted(STRING_INPUTS[name]()) == oracle(TEXTS)


INTEGER_INPUTS: dict[str, Callable[[], Any]] = {
    "list": lambda: NUMBERS,
    "list with None": lambda: with_nulls(NUMBERS),
    "list of numpy": lambda: [np.int64(n) for n in NUMBERS],
    "generator": lambda: iter(NUMBERS),
    "numpy": lambda: np.array(NUMBERS),
    "numpy object": lambda: np.array(NUMBERS, dtype=object),
    "numpy strided": lambda: np.repeat(np.array(NUMBERS), 2)[::2],
    "numpy big-endian": lambda: np.array(NUMBERS, dtype=">i8"),
    "numpy masked": lambda: np.ma.masked_array([*NUMBERS, 7], mask=[False] * 7 + [True]),
    "numpy read-only": lambda: np.frombuffer(np.array(NUMBERS).tobytes(), dtype=np.int64),
    "arrow": lambda: pa.array(with_nulls(NUMBERS)),
    "arrow chunked": lambda: pa.chunked_array([NUMBERS[:2], with_nulls(NUMBERS[2:])]),
    "polars": lambda: pl.Series(with_nulls(NUMBERS)),
    "pandas": lambda: pd.Series(NUMBERS),
    "pandas Int64": lambda: pd.Series(with_nulls(NUMBERS), dtype="Int64"),
    "pandas index": lambda: pd.Index(NUMBERS),
    "duckdb": lambda: duckdb.sql(f"SELECT unnest({NUMBERS!r}) AS n"),
    "frame": lambda: pl.DataFrame({"n": with_nulls(NUMBERS)}),
}


@pytest.mark.parametrize("name", INTEGER_INPUTS)
def test_integers_from_every_library(name: str) -> None:
    assert counted(INTEGER_INPUTS[name]()) == oracle(NUMBERS)


@pytest.mark.parametrize("kind", "bhilqBHILQ")
def test_integers_of_every_width_are_the_same_items(kind: str) -> None:
    small = [0, 1, 1, 100]
    expected = oracle(small)
    assert counted(np.array(small, dtype=kind)) == expected
    assert counted(pl.Series(np.array(small, dtype=kind))) == expected
    assert counted(pa.array(np.array(small, dtype=kind))) == expected


PAIR_INPUTS: dict[str, Callable[[], Any]] = {
    "list of tuples": lambda: PAIRS,
    "list with None": lambda: [None, *PAIRS, (1, None), (None, "a")],
    "generator": lambda: iter(PAIRS),
    "mapping": lambda: {"n": np.array(NUMBERS), "t": TEXTS},
    "polars": lambda: pl.DataFrame({"n": [*NUMBERS, None], "t": [*TEXTS, "x"]}),
    "pandas": lambda: pd.DataFrame({"n": NUMBERS, "t": TEXTS}),
    "arrow": lambda: pa.table({"n": [*NUMBERS, 5], "t": [*TEXTS, None]}),
    "reader": lambda: pa.table({"n": NUMBERS, "t": TEXTS}).to_reader(max_chunksize=3),
    "duckdb": lambda: duckdb.sql(f"SELECT unnest({NUMBERS!r}) AS n, unnest({TEXTS!r}) AS t"),
    "polars struct": lambda: pl.DataFrame({"n": NUMBERS, "t": TEXTS}).to_struct("both").to_frame().unnest("both"),
}


@pytest.mark.parametrize("name", PAIR_INPUTS)
def test_several_columns(name: str) -> None:
    assert counted(PAIR_INPUTS[name]()) == oracle(PAIRS)


def test_two_dimensional_array_is_columns() -> None:
    assert counted(np.array([[1, 2], [3, 4], [1, 2]])) == oracle([(1, 2), (3, 4), (1, 2)])


COUNT_INPUTS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "lists": lambda: (["a", "b", "c"], [2, -1, 3]),
    "numpy": lambda: (np.array(["a", "b", "c"]), np.array([2, -1, 3], dtype=np.int8)),
    "iterators": lambda: (iter(["a", "b", "c"]), iter([2, -1, 3])),
    "null count": lambda: (["a", "b", "c", "d"], [2, -1, 3, None]),
    "column name": lambda: (pl.DataFrame({"x": ["a", "b", "c"], "n": [2, -1, 3]}), "n"),
    "stream": lambda: (pa.table({"x": ["a", "b", "c"], "n": [2, -1, 3]}).to_reader(), "n"),
    "pandas": lambda: (pd.Series(["a", "b", "c"]), pd.Series([2, -1, 3])),
}


@pytest.mark.parametrize("name", COUNT_INPUTS)
def test_counts_and_removals(name: str) -> None:
    items, counts = COUNT_INPUTS[name]()
    expected = np.array(oracle(["a"] * 2 + ["c"] * 3)) - np.array(oracle(["b"]))
    assert counted(items, counts) == expected.tolist()


def test_long_iterators_are_cut_into_batches() -> None:
    size = 2 * BATCH + 17
    assert counted(iter(range(size)), iter([2] * size)) == [2 * n for n in counted(np.arange(size))]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.one_of(st.none(), st.tuples(st.integers(-5, 5), st.text("ab", max_size=2))), max_size=60))
def test_any_split_into_updates_and_merges_counts_the_same(rows: list[Any]) -> None:
    with testing.noiseless():
        one, two, three = (Sketch.hashed(16, epsilon=1) for _ in range(3))
    one.update(rows)
    two.update(rows[: len(rows) // 3])
    two.update(iter(rows[len(rows) // 3 : len(rows) // 2]))
    three.update(rows[len(rows) // 2 :])
    kept = [row for row in rows if row is not None]
    assert exact(one) == exact(two + three) == oracle(kept, 16)


def test_empty_input_changes_nothing() -> None:
    for nothing in ([], iter([]), np.array([], dtype=int), pl.Series([], dtype=pl.String), [None], pl.Series([None])):
        assert sum(counted(nothing)) == 0


# ── kinds ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_levels_share_the_cells() -> None:
    with testing.noiseless():
        sketch = Sketch.hashed(2**10, epsilon=1, levels=5, hash_seed=3)
    assert (sketch.layout.cells, sketch.layout.levels) == (5 * 128, 5)
    items = np.arange(5000)
    sketch.update(items)
    expected = np.bincount(cells_of(hash_columns([items], 3), sketch.layout), minlength=640)
    assert exact(sketch) == expected.tolist()
    parts = testing.release(sketch).profile().parts
    assert [part.layout.cells for part in parts] == [128] * 5
    totals = [int((part.values * part.tally).sum()) for part in parts]
    assert totals == [int(expected[i * 128 : (i + 1) * 128].sum()) for i in range(5)]


def test_known_by_integer() -> None:
    with testing.noiseless():
        sketch = Sketch.known(4, epsilon=1)
    sketch.update([0, 3, 3, 1])
    assert exact(sketch) == [1, 1, 0, 2]


@pytest.mark.parametrize(
    "domain",
    [["x", "y", "é"], np.array(["x", "y", "é"]), pl.Series(["x", "y", "é"]), iter(["x", "y", "é"]), ("x", "y", "é")],
)
def test_known_by_list(domain: Any) -> None:
    with testing.noiseless():
        sketch = Sketch.known(domain, epsilon=1)
    sketch.update(["é", "x", "é"])
    assert exact(sketch) == [1, 0, 2]


def test_known_by_list_of_tuples_and_integers() -> None:
    with testing.noiseless():
        pairs = Sketch.known([(1, "a"), (2, "b")], epsilon=1)
        numbers = Sketch.known([10, -7, 5], epsilon=1)
    pairs.update({"n": [2, 2], "t": ["b", "b"]})
    numbers.update(np.array([5, -7, 5]))
    assert exact(pairs) == [0, 2]
    assert exact(numbers) == [0, 1, 2]


def test_fingerprint_depends_on_order_types_and_borders() -> None:
    domains = [["ab", "c"], ["a", "bc"], ["c", "ab"], [1, 2], ["1", "2"], [(1, 2)], [(1, "2")]]
    prints = [Sketch.known(domain, epsilon=1).layout.fingerprint for domain in domains]
    assert len(set(prints)) == len(domains)
    assert Sketch.known(np.array([1, 2]), epsilon=1).layout.fingerprint == prints[3]


def test_unknown_items_can_be_dropped() -> None:
    with testing.noiseless():
        sketch = Sketch.known(["x", "y"], epsilon=1, unknown="drop")
        numbers = Sketch.known(3, epsilon=1, unknown="drop")
    sketch.update(["x", "z", "x"], [1, 5, 2])
    numbers.update([0, -1, 3, 2, 2**60])
    assert exact(sketch) == [3, 0]
    assert exact(numbers) == [1, 0, 1]


def test_sampled_by_integer_and_by_list_agree() -> None:
    d, rate = 3000, Fraction(1, 5)
    with testing.noiseless():
        by_integer = Sketch.sampled(d, rate=rate, epsilon=1, hash_seed=5)
        by_list = Sketch.sampled(list(range(d)), rate=rate, epsilon=1, hash_seed=5)
    items = np.arange(d)
    chosen = [i for i in range(d) if int(hash_columns([np.array([i])], 5)[0]) < rate * 2**64]
    for sketch in (by_integer, by_list):
        assert (sketch.layout.domain, sketch.layout.cells, sketch.layout.rate) == (d, len(chosen), rate)
        sketch.update(items, items)
        assert exact(sketch) == chosen
    assert 450 < len(chosen) < 750


def test_sampled_at_rate_one_is_known() -> None:
    with testing.noiseless():
        sketch = Sketch.sampled(["x", "y"], rate=1, epsilon=1)
    sketch.update(["y"])
    assert exact(sketch) == [0, 1]


# ── noise ─────────────────────────────────────────────────────────────────────────────────────────────────────


def variance_of(sketch: Sketch, epsilon: float, power: int) -> tuple[float, float, float]:
    counts = sketch.release().counts
    law = DiscreteLaplace(epsilon, power)
    z = np.arange(-200, 201)
    fourth = float((law.pmf(z) * z.astype(float) ** 4).sum())
    # normal limit: 6.2 standard deviations are exceeded with probability 6e-10
    margin = 6.2 * ((fourth - law.variance**2) / counts.size) ** 0.5
    return float((counts.astype(float) ** 2).mean()), law.variance, margin


@pytest.mark.statistical
@pytest.mark.parametrize(("epochs", "pan_private", "power"), [(0, False, 1), (1, False, 2), (0, True, 2), (2, True, 4)])
def test_power_of_the_noise_is_what_it_says(epochs: int, pan_private: bool, power: int) -> None:
    sketch = Sketch.hashed(2**18, epsilon=1, pan_private=pan_private)
    for _ in range(epochs):
        sketch.begin_epoch()
    got, expected, margin = variance_of(sketch, 1, power)
    assert sketch.noise == DiscreteLaplace(1, power)
    assert abs(got - expected) < margin
    wrong = DiscreteLaplace(1.05, power).variance
    assert abs(wrong - expected) > margin  # a scale wrong by 5 % would have been noticed


@pytest.mark.statistical
def test_max_contributions_scales_the_noise() -> None:
    sketch = Sketch.hashed(2**18, epsilon=1, max_contributions=4)
    assert (sketch.noise.epsilon, sketch.epsilon) == (Fraction(1, 4), 1)
    got, expected, margin = variance_of(sketch, 0.25, 1)
    assert abs(got - expected) < margin


def test_merging_adds_powers_and_items() -> None:
    sketches = [Sketch.hashed(64, epsilon="1/3") for _ in range(3)]
    for i, sketch in enumerate(sketches):
        sketch.update(np.array([i]))
    both = sum(sketches)
    assert isinstance(both, Sketch)
    assert both.noise == DiscreteLaplace("1/3", 3)
    assert both.layout.item_types == ("int",)


# ── words ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_guarantee_and_repr_say_the_unit() -> None:
    sketch = Sketch.hashed(64, epsilon=0.5)
    assert repr(sketch) == "Sketch.hashed(64 cells, ε = 0.5 for one occurrence, power 1, open)"
    assert "ε = 0.5 for one occurrence" in sketch.guarantee
    assert "not for both together" in sketch.guarantee
    assert "both together" in Sketch.hashed(64, epsilon=1, pan_private=True).guarantee
    person = Sketch.hashed(64, epsilon=0.5, max_contributions=3, levels=2)
    assert "64 cells in 2 levels, ε = 0.5 for one person in one call" in repr(person)
    assert "at most 3 occurrences" in person.guarantee


def test_person_epsilon_adds_up_over_calls_epochs_and_merges() -> None:
    sketch = Sketch.hashed(64, epsilon=0.5, max_contributions=2)
    assert Sketch.hashed(64, epsilon=1).person_epsilon is None
    assert sketch.person_epsilon == 0
    sketch.update(["a"], person=["x"])
    sketch.release()
    sketch.begin_epoch()
    sketch.update(["a", "b"], person=["x", "y"])
    other = Sketch.hashed(64, epsilon=0.5, max_contributions=2)
    other.update(["a"])
    sketch.merge(other)
    assert sketch.person_epsilon == Fraction(3, 2)
    assert "Ingestion calls: 3; a person who is in all of them: ε = 1.5" in sketch.guarantee
    assert "In 1 of them no person column was given" in sketch.guarantee
    assert "3 noises are added up" in sketch.guarantee


EMPTY = [[], (), iter([]), np.zeros(0, dtype=int), pa.table({"x": [1]}).slice(1).to_reader()]


@pytest.mark.parametrize("nothing", EMPTY, ids=lambda value: type(value).__name__)
def test_a_call_costs_the_same_whether_or_not_it_holds_anything(nothing: Any) -> None:
    sketch = Sketch.hashed(64, epsilon=1, max_contributions=2)
    sketch.update(nothing)
    assert sketch.person_epsilon == 1
    with pytest.raises(InputError):
        sketch.update([1.5])
    assert sketch.person_epsilon == 1


def test_epsilon_is_a_decision() -> None:
    for make in (Sketch.hashed, lambda **k: Sketch.known(3, **k), lambda **k: Sketch.sampled(3, rate=1, **k)):
        with pytest.raises(InputError, match=r"epsilon is required: 1\.0 is a common start"):
            make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Sketch.hashed(1000, epsilon=1), "cells must be a power of two, got 1000"),
        (lambda: Sketch.hashed(0, epsilon=1), "cells must be a power of two, got 0"),
        (lambda: Sketch.hashed(True, epsilon=1), "cells must be a power of two, got True"),
        (lambda: Sketch.hashed(4, epsilon=1, levels=5), "levels must be an integer between 1 and 4, got 5"),
        (lambda: Sketch.hashed(4, epsilon=-1), "epsilon must be > 0, got -1"),
        (lambda: Sketch.hashed(4, epsilon=1, hash_seed=-1), "hash_seed must be an integer ≥ 0, got -1"),
        (lambda: Sketch.hashed(4, epsilon=1, hash_seed=2**64), "hash_seed must be below"),
        (lambda: Sketch.hashed(4, epsilon=1, hash_seed="x"), "hash_seed must be an integer ≥ 0, got 'x'"),
        (lambda: Sketch.hashed(4, epsilon=1, max_contributions=0), "max_contributions must be an integer between 1"),
        (lambda: Sketch.hashed(4, epsilon=1, item_types=["float"]), "item_types must each be 'int' or 'str'"),
        (lambda: Sketch.hashed(4, epsilon=1, pan_private=1), "pan_private must be True or False"),
        (lambda: Sketch.known(0, epsilon=1), "domain must hold at least one item, got 0"),
        (lambda: Sketch.known("abc", epsilon=1), "domain must be an integer or a list of items, got str"),
        (lambda: Sketch.known([], epsilon=1), "domain must be a list of items"),
        (lambda: Sketch.known(["a", None], epsilon=1), "domain must not hold nulls"),
        (lambda: Sketch.known([1.5], epsilon=1), "must be integers or strings, got float"),
        (lambda: Sketch.known(3, epsilon=1, unknown="x"), "unknown must be 'error' or 'drop', got 'x'"),
        (lambda: Sketch.sampled(9, rate=1.5, epsilon=1), r"rate must be at most 1, got 1\.5"),
        (lambda: Sketch.sampled(9, rate=0, epsilon=1), "rate must be > 0, got 0"),
        (lambda: Sketch.sampled(3, rate=1e-9, epsilon=1), "rate must be high enough"),
    ],
)
def test_parameters_are_checked(make: Callable[[], Sketch], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_constructor_is_not_a_way_in() -> None:
    with pytest.raises(TypeError, match=r"Sketch\.hashed"):
        Sketch()


# ── persons ───────────────────────────────────────────────────────────────────────────────────────────────────


def limited(items: Any, person: Any, most: int, counts: Any = None) -> list[int]:
    with testing.noiseless():
        sketch = Sketch.known(8, epsilon=1, max_contributions=most)
    sketch.update(items, counts, person=person)
    return exact(sketch)


def test_contributions_are_limited_per_person() -> None:
    items = [0] * 10 + [1] * 2 + [2]
    person = ["x"] * 10 + ["y"] * 2 + ["z"]
    assert limited(items, person, 3)[:3] == [3, 2, 1]
    assert limited(iter(items), iter(person), 3)[:3] == [3, 2, 1]
    assert limited(pl.DataFrame({"i": items, "who": person}), "who", 3)[:3] == [3, 2, 1]
    assert limited(pa.table({"i": items, "who": person}).to_reader(max_chunksize=4), "who", 3)[:3] == [3, 2, 1]


def test_limit_holds_across_batches_of_one_call() -> None:
    def rows() -> Iterator[Rows]:
        for _ in range(5):
            yield clean_rows({"items": [0, 1]}, person=["x", "x"])

    with testing.noiseless():
        sketch = Sketch.known(2, epsilon=1, max_contributions=4)
    sketch.take_in(rows(), persons=True)
    assert sum(exact(sketch)) == 4
    assert sketch.person_epsilon == 1


def test_counts_are_limited_as_occurrences() -> None:
    got = limited([0, 1, 2, 3], ["x", "x", "y", "y"], 5, [100, -100, 2, -1])
    assert got[0] - got[1] == 5
    assert got[0] >= 0 >= got[1]
    assert got[2:4] == [2, -1]


def test_item_that_is_the_person_is_capped() -> None:
    with testing.noiseless():
        sketch = Sketch.known(["x", "y"], epsilon=1, max_contributions=2)
    sketch.update(pl.DataFrame({"who": ["x"] * 9 + ["y"]}), person="who")
    assert exact(sketch) == [2, 1]


def test_rows_without_person_are_dropped() -> None:
    assert limited([0, 1, 2], ["x", None, "x"], 5)[:3] == [1, 0, 1]


@pytest.mark.statistical
def test_choice_of_contributions_is_uniform() -> None:
    """2 of 4 occurrences: every one of the 6 pairs alike; χ² with 5 degrees of freedom, false alarms 1e-9."""
    persons, most, limit = 200_000, 2, chi2.isf(1e-9, 5)
    with testing.noiseless():
        clean = Sketch.known(4 * persons, epsilon=1, max_contributions=most)
    clean.update(np.arange(4 * persons), person=np.repeat(np.arange(persons), 4))
    kept = np.array(exact(clean)).reshape(persons, 4)
    assert (kept.sum(axis=1) == 2).all()
    tally = np.unique(kept @ [1, 2, 4, 8], return_counts=True)[1]

    def distance(tally: Any) -> float:
        return float(((tally - persons / 6) ** 2 / (persons / 6)).sum())

    print("chi-square:", distance(tally), "limit:", limit)
    assert len(tally) == 6
    assert distance(tally) < limit
    assert distance(tally * np.array([1.05, 1, 1, 1, 1, 0.95])) > limit  # a choice off by 5 % would be noticed


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: s.update([1], person=["x"]), "person needs max_contributions"),
        (lambda s: s.update([1, 2], [1]), "counts must be as long as items"),
        (lambda s: s.update(iter([1, 2]), iter([1])), "counts must be as long as items"),
        (lambda s: s.update(iter([1]), iter([1, 2])), "counts must be as long as items"),
        (lambda s: s.update([1], ["a"]), "counts must be integers, got strings"),
        (lambda s: s.update([1], [1.0]), "counts must be integers, got float"),
        (lambda s: s.update({"a": [1]}, "b"), "counts must name a column of the items"),
        (lambda s: s.update("text"), r"pass \[item\]"),
        (lambda s: s.update(5), r"pass \[item\]"),
        (lambda s: s.update(None), "items must be a collection, got NoneType"),
        (lambda s: s.update({"a": 1.5}), "a mapping must hold columns"),
        (lambda s: s.update(pl.DataFrame({"a": [1]}).lazy()), "collect"),
        (lambda s: s.update(pa.table([[1], [2]], names=["a", "a"])), "column names must be distinct"),
        (lambda s: s.update({"a": [1], "b": [1, 2]}), "equally long"),
        (lambda s: s.update(object()), "items must be a collection"),
    ],
)
def test_calls_are_checked(call: Callable[[Sketch], None], message: str) -> None:
    sketch = Sketch.hashed(16, epsilon=1)
    before = sketch._held.array().copy()
    with pytest.raises(InputError, match=message):
        call(sketch)
    assert (sketch._held.array() == before).all()


@given(st.sets(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=200), st.data())
@settings(max_examples=50, deadline=None)
def test_positions_in_a_list_against_a_dictionary(domain: set[int], data: st.DataObject) -> None:
    items = sorted(domain, key=str)
    places = {item: i for i, item in enumerate(items)}
    asked = data.draw(st.lists(st.one_of(st.sampled_from(items), st.integers(-(2**63), 2**63 - 1)), min_size=1))
    hashes = hash_columns([np.array(items, dtype=np.int64)])
    got = _ListCells(hashes).find([np.array(asked, dtype=np.int64)])
    assert got.tolist() == [places.get(item, OUTSIDE) for item in asked]


def test_positions_at_the_ends_of_the_hashes() -> None:
    top = 2**64 - 1
    finder = _ListCells(np.array([top, 0, 5], dtype=np.uint64))
    assert finder.positions(np.array([0, top, 5, 4, 6, top - 1], dtype=np.uint64)).tolist() == [1, 0, 2, -1, -1, -1]
    without = _ListCells(np.array([0, 5], dtype=np.uint64))
    assert without.positions(np.array([top, 5], dtype=np.uint64)).tolist() == [-1, 1]
    crowded = _ListCells(np.arange(1000, dtype=np.uint64))
    assert crowded.positions(np.array([999, 0, 1000], dtype=np.uint64)).tolist() == [999, 0, -1]


@pytest.mark.parametrize("cells", [1 << 49, 1 << 60, 1 << 63])
def test_more_cells_than_any_memory_has(cells: int) -> None:
    for what, made in (("cells", Sketch.hashed), ("domain", Sketch.known)):
        with pytest.raises(InputError, match=f"{what} must be an integer between 1 and {1 << 48}, got {cells}"):
            made(cells, epsilon=1)


def test_a_domain_is_too_large_to_be_sampled_before_it_is_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unnoise.sketches.sketch.sampled_cells", lambda *_: pytest.fail("it is hashed"))
    with pytest.raises(InputError, match="a domain to be sampled must have at most"):
        Sketch.sampled(1 << 40, rate="1/2", epsilon=1)
