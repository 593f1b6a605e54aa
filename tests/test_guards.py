"""Every rule that keeps the promise, with an attempt to break it."""

from __future__ import annotations

import copy
import json
import logging
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from unnoise import testing
from unnoise.errors import IncompatibleError, InputError, PrivacyError, SealedError, UnnoiseError
from unnoise.noise import DiscreteLaplace
from unnoise.sketches.hashing import cells_of
from unnoise.sketches.sketch import Sketch, noise_shares


def make(**kwargs: Any) -> Sketch:
    return Sketch.hashed(64, **{"epsilon": 1, **kwargs})


def state_of(sketch: Sketch) -> tuple[Any, ...]:
    return (
        sketch._cells.tobytes(), sketch._noise, sketch._layout, sketch._account, sketch._identities, sketch._state,
        sketch._fresh, sketch._label,
    )  # fmt: skip


def refused(error: type[BaseException], message: str | None, call: Callable[[], Any], *unchanged: Sketch) -> None:
    before = [state_of(sketch) for sketch in unchanged]
    with pytest.raises(error, match=message):
        call()
    assert [state_of(sketch) for sketch in unchanged] == before


# ── merging ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_sketch_does_not_merge_with_itself() -> None:
    sketch = make()
    refused(PrivacyError, "noise identities must be disjoint", lambda: sketch.merge(sketch), sketch)
    refused(PrivacyError, "noise identities must be disjoint", lambda: sketch + sketch, sketch)


def test_the_same_file_does_not_merge_twice(tmp_path: Path) -> None:
    sketch, other = make(), make()
    sketch.save(tmp_path / "a")
    one, two = Sketch.load(tmp_path / "a"), Sketch.load(tmp_path / "a")
    refused(PrivacyError, "noise identities", lambda: one.merge(two), one, two)
    refused(PrivacyError, "noise identities", lambda: one.merge(sketch), one, sketch)
    other.merge(one)
    refused(PrivacyError, "noise identities", lambda: other.merge(two), other, two)


def test_epochs_of_one_file_do_not_merge(tmp_path: Path) -> None:
    make().save(tmp_path / "a")
    one, two = Sketch.load(tmp_path / "a"), Sketch.load(tmp_path / "a")
    one.begin_epoch()
    two.begin_epoch()
    refused(PrivacyError, "noise identities", lambda: one.merge(two), one, two)


def test_a_sketch_merged_into_two_others_does_not_come_together_again() -> None:
    shared, left, right = make(), make(), make()
    shared.release()
    left.merge(shared)
    right.merge(shared)
    refused(PrivacyError, "noise identities", lambda: left.merge(right), left, right)


DIFFERENT: list[tuple[str, Sketch, Sketch]] = [
    ("kind", Sketch.hashed(4, epsilon=1), Sketch.known(4, epsilon=1)),
    ("cells", Sketch.hashed(4, epsilon=1), Sketch.hashed(8, epsilon=1)),
    ("epsilon", make(), make(epsilon="1/2")),
    ("levels", make(), make(levels=4)),
    ("hash_seed", make(), make(hash_seed=1)),
    ("item_types", make(item_types=["int"]), make(item_types=["str"])),
    ("item_types", make(item_types=["int"]), make(item_types=["int", "int"])),
    ("max_contributions", make(epsilon=1, max_contributions=1), make(epsilon=2, max_contributions=2)),
    ("max_contributions", make(), make(max_contributions=1)),
    ("pan_private", make(), make(pan_private=True)),
    ("fingerprint", Sketch.known(["a", "b"], epsilon=1), Sketch.known(["b", "a"], epsilon=1)),
    ("item_types", Sketch.known(["a", "b"], epsilon=1), Sketch.known([1, 2], epsilon=1)),
    ("fingerprint", Sketch.known([0, 1], epsilon=1), Sketch.known(2, epsilon=1)),
    ("rate", Sketch.sampled(1, rate=1, epsilon=1), Sketch.sampled(1, rate="9999/10000", epsilon=1)),
]


@pytest.mark.parametrize(("field", "left", "right"), DIFFERENT, ids=[case[0] for case in DIFFERENT])
def test_different_parameters_do_not_merge(field: str, left: Sketch, right: Sketch) -> None:
    before = state_of(left), state_of(right)
    for one, two in ((left, right), (right, left)):
        with pytest.raises(IncompatibleError) as caught:
            one.merge(two)
        assert caught.value.field == field
        assert repr(caught.value.left) in str(caught.value)
        assert repr(caught.value.right) in str(caught.value)
    assert (state_of(left), state_of(right)) == before


def test_item_types_of_the_data_are_compared() -> None:
    numbers, texts = make(), make()
    numbers.update([123])
    texts.update(["123"])
    refused(IncompatibleError, "item_types must be equal to merge", lambda: numbers.merge(texts), numbers, texts)
    refused(InputError, "items must be of types int, got str", lambda: numbers.update(["123"]), numbers)


def test_only_sketches_merge() -> None:
    sketch = make()
    refused(InputError, "merge needs another sketch, got list", lambda: sketch.merge([1]), sketch)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        sketch + 5


def test_a_merged_sketch_is_used_up() -> None:
    one, two, three = make(), make(), make()
    one.merge(two)
    both = one + three
    for sketch in (one, two, three):
        merging, updating = lambda s=sketch: both.merge(s), lambda s=sketch: s.update([1])
        for call in (sketch.release, sketch.begin_epoch, merging, updating):
            refused(PrivacyError, "merged into another and is used up", call, sketch, both)
        assert sketch._cells.size == 0
    assert both.noise.power == 3


# ── sealing ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_no_update_after_release_save_or_load(tmp_path: Path) -> None:
    released, saved = make(), make()
    released.release()
    saved.save(tmp_path / "a")
    for sketch in (released, saved, Sketch.load(tmp_path / "a")):
        for items in ([1], iter([1]), pl.Series(["a"])):
            refused(SealedError, "call begin_epoch", lambda s=sketch, i=items: s.update(i), sketch)
        assert sketch.sealed


def test_released_cells_never_change() -> None:
    sketch = make()
    first = sketch.release()
    before = first.counts.copy()
    with pytest.raises(ValueError, match="read-only"):
        first.counts[0] = 5
    with pytest.raises(ValueError, match="WRITEABLE"):
        first.counts.flags.writeable = True
    assert (sketch.release().counts == before).all()
    sketch.begin_epoch()
    sketch.update([1, 2, 3])
    second = sketch.release().counts
    assert (first.counts == before).all()
    assert (second != before).any()


def test_every_snapshot_has_noise_of_its_own(tmp_path: Path) -> None:
    """The difference of two snapshots is data plus one whole fresh noise, never data alone."""
    sketch = Sketch.hashed(2**14, epsilon=1)
    first = sketch.release().counts
    sketch.begin_epoch()
    sketch.save(tmp_path / "a")
    second = Sketch.load(tmp_path / "a").release().counts
    difference = (second - first).astype(float)
    # 16384 cells, variance 1.84, fourth moment 22.0: 0.5 is 14 standard deviations away
    assert abs(difference.var() - DiscreteLaplace(1).variance) < 0.5


def test_pan_private_adds_noise_when_leaving(tmp_path: Path) -> None:
    for leave in (lambda s: s.release(), lambda s: s.save(tmp_path / "a")):
        sketch = Sketch.hashed(2**12, epsilon=1, pan_private=True)
        seen = sketch._cells.copy()
        leave(sketch)
        after = sketch.release()
        assert after.noise.power == 2
        assert (after.counts - seen).var() > 1
        assert len(sketch._identities) == 2


def test_failed_save_leaves_sketch_open_or_sealed(tmp_path: Path) -> None:
    sketch = make()
    for wrong in (tmp_path / "no" / "such" / "directory", tmp_path):
        with pytest.raises(OSError, match="path must be"):
            sketch.save(wrong)
        assert not sketch.sealed
    sketch.update([1])


# ── copies and processes ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("copier", [copy.copy, copy.deepcopy, pickle.dumps, lambda s: copy.deepcopy([s])])
def test_no_copies(copier: Callable[[Sketch], Any]) -> None:
    sketch = make()
    refused(PrivacyError, "must not be copied or pickled", lambda: copier(sketch), sketch)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        refused(PrivacyError, "must not be copied", lambda p=protocol: pickle.dumps(sketch, p), sketch)


FORK = """
import os, sys
from unnoise.sketches.sketch import Sketch
from unnoise.errors import PrivacyError
live, other, public = (Sketch.hashed(64, epsilon=1) for _ in range(3))
public.release()
child = os.fork()
if child == 0:
    calls = [lambda: live.update([1]), live.release, lambda: live.save(sys.argv[1]), live.begin_epoch,
             lambda: public.merge(live), lambda: live.merge(public), lambda: live + public]
    refused = 0
    for call in calls:
        try:
            call()
        except PrivacyError as error:
            refused += "this is a fork of it" in str(error)
    public.release()
    public.begin_epoch()
    public.update([1])
    os._exit(0 if refused == len(calls) and not os.path.exists(sys.argv[1]) else 1)
_, status = os.waitpid(child, 0)
live.update([1])
live.release()
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_a_live_sketch_is_dead_in_a_forked_child(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FORK, str(tmp_path / "x")], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


# ── noise that is none ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("context", [testing.noiseless, lambda: testing.seeded(1)])
def test_test_noise_is_never_private(context: Callable[[], Any], tmp_path: Path) -> None:
    path = tmp_path / "a"
    with context():
        sketch = make()
    assert "for tests" in repr(sketch)
    assert sketch.guarantee.startswith("NO GUARANTEE")
    for call in (sketch.release, lambda: sketch.save(path)):
        refused(PrivacyError, "needs noise from the operating system", call, sketch)
    honest = make()
    honest.merge(sketch)
    sketch = honest
    for call in (sketch.release, lambda: sketch.save(path)):
        refused(PrivacyError, "needs noise from the operating system", call, sketch)
    sketch.begin_epoch()
    refused(PrivacyError, "needs noise from the operating system", sketch.release, sketch)
    assert not path.exists()


def test_test_noise_in_an_epoch_or_at_release_is_noticed(tmp_path: Path) -> None:
    later, leaving, limited = make(), make(pan_private=True), make(max_contributions=1)
    with testing.noiseless():
        later.begin_epoch()
        limited.update([1], person=[1])
        with pytest.raises(PrivacyError, match="noise off for tests"):
            leaving.release()
    for sketch in (later, leaving, limited):
        with pytest.raises(PrivacyError, match="noise off for tests"):
            sketch.release()
        with pytest.raises(PrivacyError, match="noise off for tests"):
            sketch.save(tmp_path / "a")


# ── shares ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_shares_stay_secret_until_enough_are_merged(tmp_path: Path) -> None:
    power = noise_shares(5, survivors=3)
    assert power == Fraction(1, 3)
    shares = [make(power=power) for _ in range(5)]
    really = f"ε = {DiscreteLaplace(1, power).actual_epsilon:.3g} per occurrence, not 1"
    assert "NOT YET REACHED" in shares[0].guarantee
    for call in (shares[0].release, lambda: shares[0].save(tmp_path / "a")):
        refused(PrivacyError, really, call, shares[0])
    two = shares[0] + shares[1]
    refused(PrivacyError, "needs power ≥ 1 of noise that has not left yet, got 2/3", two.release, two)
    three = two + shares[2]
    assert three.release().noise == DiscreteLaplace(1)
    assert not (tmp_path / "a").exists()


def test_a_share_merged_into_something_public_is_still_secret() -> None:
    """Power 4/3 in all, but one whole noise of it is public: subtract it and the share stands alone."""
    public, share = make(), make(power=Fraction(1, 3))
    public.release()
    public.merge(share)
    assert public.noise.power == Fraction(4, 3)
    refused(PrivacyError, "got 1/3", public.release, public)
    public.merge(make(power=Fraction(2, 3)))
    assert public.release().noise.power == 2


def test_shares_must_be_possible() -> None:
    with pytest.raises(InputError, match="survivors must be between 1 and parties=3, got 4"):
        noise_shares(3, survivors=4)


# ── 64 bits ───────────────────────────────────────────────────────────────────────────────────────────────────

HUGE = 2**63 - 1


def empty(cells: int = 4) -> Sketch:
    with testing.noiseless():
        return Sketch.known(cells, epsilon=1)


def test_cells_do_not_overflow() -> None:
    sketch = empty()
    sketch.update([0, 1], [HUGE, -HUGE])
    refused(InputError, "a cell would overflow, so nothing was changed", lambda: sketch.update([2, 0]), sketch)
    refused(InputError, "a cell would overflow", lambda: sketch.update([1], [-5]), sketch)
    refused(InputError, "a cell would overflow", lambda: sketch.update([2, 2, 2], [HUGE, HUGE, HUGE]), sketch)
    sketch.update([0, 1, 2, 2], [-7, 7, HUGE, -HUGE])
    assert sketch._cells.tolist() == [HUGE - 7, 7 - HUGE, 0, 0]
    sketch.update([0, 0, 0], [HUGE, 7, -HUGE])  # fits in the end
    assert sketch._cells.tolist() == [HUGE, 7 - HUGE, 0, 0]


def test_merges_and_epochs_do_not_overflow() -> None:
    left, right = empty(), empty()
    left.update([0], [HUGE])
    right.update([0], [1])
    refused(InputError, "a cell would overflow", lambda: left.merge(right), left, right)
    refused(InputError, "a cell would overflow", lambda: left + right, left, right)
    left._release(for_tests=True)
    refused(InputError, "a cell would overflow", left.begin_epoch, left)


@pytest.mark.parametrize("counts", [[2**63], [-(2**63) - 1], [-(2**63)], np.array([2**63], dtype=np.uint64)])
def test_counts_must_fit(counts: Any) -> None:
    sketch = empty()
    refused(InputError, "counts must be", lambda: sketch.update([0], counts), sketch)


# ── different noise everywhere ────────────────────────────────────────────────────────────────────────────────


def test_no_two_stretches_of_cells_have_the_same_noise() -> None:
    size, window = 2**18, 64
    pieces = [make().release().counts for _ in range(2)]
    assert (pieces[0] != pieces[1]).any()
    sketch = Sketch.hashed(size, epsilon="1/10", levels=4)
    rows = sketch.release().counts.reshape(-1, window)
    assert len(np.unique(rows, axis=0)) == size // window  # 64 noises of 4 bits each: a repeat has chance 2^-200


def test_epoch_noise_differs_from_the_first() -> None:
    sketch = Sketch.hashed(2**12, epsilon="1/10")
    first = sketch.release().counts
    sketch.begin_epoch()
    assert (sketch.release().counts - first != first).any()


# ── threads ───────────────────────────────────────────────────────────────────────────────────────────────────


def run(*targets: Callable[[], None]) -> None:
    failures: list[BaseException] = []

    def guarded(target: Callable[[], None]) -> None:
        try:
            target()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(target,)) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive(), "deadlock"
    if failures:
        raise failures[0]


def test_updates_from_many_threads_all_count() -> None:
    sketch = empty(1000)
    items = np.arange(1000).repeat(20)
    run(*[lambda: [sketch.update(items) for _ in range(20)] for _ in range(8)])  # type: ignore[list-item, misc]
    assert sketch._release(for_tests=True).counts.tolist() == [8 * 20 * 20] * 1000


def test_release_racing_with_updates_never_changes_afterwards() -> None:
    for _ in range(20):
        sketch = empty(100)
        snapshots: list[bytes] = []

        def feed(sketch: Sketch = sketch) -> None:
            try:
                while True:
                    sketch.update(np.arange(100))
            except SealedError:
                pass

        def leave(sketch: Sketch = sketch, snapshots: list[bytes] = snapshots) -> None:
            counts = sketch._release(for_tests=True).counts
            snapshots.append(counts.tobytes())
            assert len(set(counts.tolist())) == 1  # whole updates only

        run(feed, feed, leave)
        assert snapshots == [sketch._cells.tobytes()]


class SlowLock:
    """A lock that lingers once taken, so that locks taken in a bad order meet."""

    def __init__(self) -> None:
        self.lock = threading.RLock()

    def __enter__(self) -> None:
        assert self.lock.acquire(timeout=5), "deadlock"
        time.sleep(0.05)

    def __exit__(self, *error: object) -> None:
        self.lock.release()


@pytest.mark.parametrize("join", [lambda a, b: a.merge(b), lambda a, b: a + b], ids=["merge", "+"])
def test_crossing_merges_do_not_deadlock(join: Callable[[Sketch, Sketch], Any]) -> None:
    one, two = make(), make()
    one._lock, two._lock = SlowLock(), SlowLock()  # type: ignore[assignment]
    done: list[str] = []

    def crossing(left: Sketch, right: Sketch) -> Callable[[], None]:
        def work() -> None:
            try:
                join(left, right)
                done.append("merged")
            except PrivacyError:
                done.append("refused")

        return work

    run(crossing(one, two), crossing(two, one))
    assert sorted(done) == ["merged", "refused"]


# ── bad items change nothing ──────────────────────────────────────────────────────────────────────────────────

BAD: dict[str, Any] = {
    "NaN": [1, float("nan")],
    "float": [1, 2.0],
    "float array": np.array([1.0]),
    "NaN array": np.array([np.nan]),
    "bool": [True],
    "bool and int": [1, True],
    "bool array": np.array([True]),
    "bytes": [b"a"],
    "bytes array": np.array([b"a"]),
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
    "uint64 too large": np.array([2**63], dtype=np.uint64),
    "three dimensions": np.zeros((2, 2, 2), dtype=int),
    "no dimension": np.array(5),
    "surrogate": ["\ud800"],
    "datetime array": np.array(["2020-01-01"], dtype="M8[D]"),
    "complex": np.array([1j]),
    "arrow float": pa.array([1.0]),
    "arrow bool": pa.array([True]),
    "arrow binary": pa.array([b"a"]),
    "arrow list": pa.array([[1]]),
    "arrow uint64": pa.array([2**63], pa.uint64()),
    "arrow timestamp": pa.array([0], pa.timestamp("s")),
    "polars float": pl.Series([1.0]),
    "polars bool": pl.Series([True]),
    "polars uint64": pl.Series([2**63], dtype=pl.UInt64),
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


def test_item_outside_a_known_domain_changes_nothing() -> None:
    for sketch, items in (
        (Sketch.known(10, epsilon=1), [1, 2, 10]),
        (Sketch.known(10, epsilon=1), np.array([-1])),
        (Sketch.known(["a", "b"], epsilon=1), ["a", "c"]),
        (Sketch.sampled(10, rate=1, epsilon=1), [1, 10]),
        (Sketch.sampled(["a", "b"], rate=1, epsilon=1), ["a", "c"]),
    ):
        refused(InputError, "declared domain.*got one outside", lambda s=sketch, i=items: s.update(i), sketch)


@pytest.mark.parametrize("domain", [["a", "b", "a"], [1, 2, 1], [(1, "a"), (1, "a")], np.array([3, 3])])
def test_domain_with_duplicates_is_refused(domain: Any) -> None:
    with pytest.raises(InputError, match=r"domain must not hold an item twice, got equal ones at positions \d and \d"):
        Sketch.known(domain, epsilon=1)


@pytest.mark.parametrize("after", [0, 1, 7, 20])
def test_an_interrupted_update_is_undone(after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from unnoise.sketches import counting as _counting

    sketch, calls = make(), []
    items = np.arange(400_000)

    def interrupted(hashes: Any, layout: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == after + 1:
            raise KeyboardInterrupt
        return cells_of(hashes, layout, **options)

    monkeypatch.setattr("unnoise.sketches.hashing.BLOCK", 1 << 14)
    monkeypatch.setattr(_counting, "cells_of", interrupted)
    for counts in (None, items):
        calls.clear()
        refused(KeyboardInterrupt, None, lambda c=counts: sketch.update(items, c), sketch)


def test_a_failed_stream_says_what_was_applied() -> None:
    def items(good: int) -> Iterator[Any]:
        yield from range(good)
        yield 2.5

    sketch = empty(200_000)
    refused(InputError, "got float, int: mixed types; nothing was applied", lambda: sketch.update(items(10)), sketch)
    with pytest.raises(InputError, match="batches applied before: 2"):
        sketch.update(items(150_000))
    assert int(sketch._cells.sum()) == 2 * 65536
    sketch = empty(10)

    def broken() -> Iterator[int]:
        yield 1
        raise OSError("gone")

    with pytest.raises(OSError, match="gone") as caught:
        sketch.update(broken())
    assert "nothing was applied" in str(caught.value.__notes__)
    reader = pa.RecordBatchReader.from_batches(
        pa.schema([("a", pa.int64())]), [pa.record_batch({"a": [1, 2]}), pa.record_batch({"a": [99]})]
    )
    with pytest.raises(InputError, match=r"got one outside.*batches applied before: 1"):
        sketch.update(reader)
    assert sketch._cells.tolist() == [0, 1, 1, 0, 0, 0, 0, 0, 0, 0]


def test_a_failed_stream_with_persons_changes_nothing() -> None:
    with testing.noiseless():
        sketch = Sketch.known(10, epsilon=1, max_contributions=1)
    many = [*[3] * 70_000, 99]
    refused(InputError, "got one outside", lambda: sketch.update(iter(many), person=iter(many)), sketch)


def test_a_stream_that_is_sealed_halfway_stops() -> None:
    sketch = make()

    def items() -> Iterator[int]:
        yield from range(70_000)
        sketch.release()
        yield from range(70_000)

    with pytest.raises(SealedError, match="batches applied before: 1"):
        sketch.update(items())


# ── nothing exact leaks ───────────────────────────────────────────────────────────────────────────────────────

SECRET = 987_654_321
"""A count that no noise reaches: if it shows anywhere, an exact value has leaked."""


def exact_texts(sketch: Sketch, path: Path) -> list[str]:
    """Everything a sketch says about itself, except its noisy cells."""
    texts = [repr(sketch), str(sketch), sketch.guarantee, repr(sketch.layout), repr(sketch.release())]
    sketch.save(path)
    with pa.memory_map(str(path)) as source:
        metadata = pa.ipc.open_file(source).schema.metadata
    return texts + [value.decode() for value in metadata.values()]


def test_no_exact_value_in_file_repr_or_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    texts: list[list[str]] = []
    for rows in (1, 12_347):
        sketch = make(epsilon=2)
        sketch.update(["secret-item"] * rows, [SECRET] * rows)
        sketch._identities = frozenset([bytes(16)])
        texts.append([t for t in exact_texts(sketch, tmp_path / "a") if not is_digest(t)])
    assert texts[0] == texts[1]  # the same words whatever the data
    everything = "".join(texts[1]) + caplog.text
    assert "secret-item" not in everything
    for number in (SECRET, 12_347, SECRET * 12_347):
        assert str(number) not in everything
        assert f"{number:,}" not in everything


def is_digest(text: str) -> bool:
    return len(text) == 64 and all(c in "0123456789abcdef" for c in text)


def test_file_holds_noisy_cells_only(tmp_path: Path) -> None:
    sketch = Sketch.known(["secret-item", "other"], epsilon=1)
    sketch.update(["secret-item"] * 5)
    sketch.save(tmp_path / "a")
    raw = (tmp_path / "a").read_bytes()
    assert b"secret-item" not in raw
    assert json.loads(pa.ipc.open_file(str(tmp_path / "a")).schema.metadata[b"unnoise.parameters"])["cells"] == 2


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.update(["secret-item"], [2**63]),
        lambda s: s.update(["secret-item", "x"], [1]),
        lambda s: s.update(["secret-item", SECRET]),
        lambda s: s.update([SECRET, "secret-item"]),
        lambda s: s.update([SECRET * 10**12]),
        lambda s: s.update([f"secret-item{SECRET}\ud800"]),
        lambda s: s.update(pd.Series(["secret-item", SECRET])),
        lambda s: s.update(pa.array([2**64 - 1 - SECRET], pa.uint64())),
        lambda s: s.update(pl.Series([2**64 - 1 - SECRET], dtype=pl.UInt64)),
        lambda s: Sketch.known(["a"], epsilon=1).update(["secret-item"]),
        lambda s: Sketch.known(5, epsilon=1).update([SECRET]),
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


def test_this_process_made_them() -> None:
    assert make()._pid == os.getpid()
