"""The one way in: all or nothing, whatever fails, and from many threads."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "audits"))

import _signals

from sketch_tools import empty, make, refused
from unnoise import testing
from unnoise.errors import InputError, PrivacyError, SealedError
from unnoise.reading.groups import GroupedSketch
from unnoise.sketches import inputs, intake
from unnoise.sketches.hashing import cells_of
from unnoise.sketches.sketch import Sketch

# ── threads ───────────────────────────────────────────────────────────────────────────────────────────────────────────


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
        thread.join(timeout=600)
        assert not thread.is_alive(), "deadlock"
    if failures:
        raise failures[0]


def test_updates_from_many_threads_all_count() -> None:
    sketch = empty(1000)
    items = np.arange(1000).repeat(20)
    run(*[lambda: [sketch.update(items) for _ in range(20)] for _ in range(8)])  # type: ignore[list-item, misc]
    assert testing.release(sketch).counts.tolist() == [8 * 20 * 20] * 1000


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
            counts = testing.release(sketch).counts
            snapshots.append(counts.tobytes())
            assert len(set(counts.tolist())) == 1  # whole updates only

        run(feed, feed, leave)
        assert snapshots == [sketch._held.array().tobytes()]


class SlowLock:
    """A lock that lingers once taken, so that locks taken in a bad order meet."""

    def __init__(self) -> None:
        self.lock = threading.RLock()

    def __enter__(self) -> None:
        assert self.lock.acquire(timeout=600), "deadlock"
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


# ── interrupted and failing calls ─────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("after", [0, 1, 7, 20])
def test_an_interrupted_update_is_undone(after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sketch, calls = make(), []
    items = np.arange(400_000)

    def interrupted(hashes: Any, layout: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == after + 1:
            raise KeyboardInterrupt
        return cells_of(hashes, layout, **options)

    monkeypatch.setattr("unnoise.sketches.hashing.BLOCK", 1 << 14)
    monkeypatch.setattr("unnoise.sketches.intake.cells_of", interrupted)
    for counts in (None, items):
        calls.clear()
        refused(KeyboardInterrupt, None, lambda c=counts: sketch.update(items, c), sketch)


GOOD = list(range(10))


def failing(kind: str, at: int, size: int) -> Iterator[int]:
    """Items of a stream that goes wrong at one of them."""
    for i in range(size):
        if i == at:
            if kind == "error":
                raise OSError("gone")
            yield {"outside": 999, "float": 2.5}[kind]  # type: ignore[misc]
        yield i % 10


@pytest.mark.parametrize("kind", ["error", "outside", "float"])
@pytest.mark.parametrize("at", [0, 1, 5, 9, 10, 15, 19, 29])
def test_a_failing_row_in_any_place_changes_nothing(kind: str, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "BATCH", 10)
    sketch = empty(10, unknown="error")
    sketch.update(GOOD)
    expected = OSError if kind == "error" else InputError
    refused(expected, None, lambda: sketch.update(failing(kind, at, 30)), sketch)
    sketch.update(iter(GOOD))
    assert sketch._held.array().tolist() == [2] * 10


@pytest.mark.parametrize("kind", ["error", "outside", "float"])
@pytest.mark.parametrize("at", [0, 9, 20, 29, 30, 45, 59])
def test_a_long_stream_that_fails_breaks_the_sketch(
    kind: str, at: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Rows beyond what is held back cannot be taken back, so what holds a part of them never leaves."""
    monkeypatch.setattr(inputs, "BATCH", 10)
    monkeypatch.setattr(intake, "STAGE", 25)
    sketch = empty(10, unknown="error")
    with pytest.raises(OSError if kind == "error" else InputError):
        sketch.update(failing(kind, at, 60))
    if at < 30:
        assert not sketch._held.array().any()
        sketch.update(GOOD)
        return
    assert sketch._held.array().any(), "negative control: a part has been counted"
    for leave in (
        lambda: testing.release(sketch), sketch.release, lambda: sketch.save(tmp_path / "a"), sketch.begin_epoch,
        lambda: sketch.update(GOOD), lambda: empty(10).merge(sketch), lambda: sketch + empty(10),
    ):  # fmt: skip
        refused(PrivacyError, "this one is broken: a stream too long to be held back ended early", leave, sketch)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("limit", [None, 5])
@pytest.mark.parametrize("hashed", [True, False])
def test_long_streams_count_like_short_ones(limit: int | None, hashed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "BATCH", 1000)
    results = []
    for stage in (10**6, 2500):
        monkeypatch.setattr(intake, "STAGE", stage)
        with testing.noiseless():
            options: dict[str, Any] = {"epsilon": 1, "max_contributions": limit}
            sketch = Sketch.hashed(64, **options) if hashed else Sketch.known(64, **options)
        sketch.update(i % 64 for i in range(20_000))
        results.append(sketch._held.array().tolist())
        assert sketch._account.calls == (limit is not None)
    assert results[0] == results[1]
    assert sum(results[0]) == 20_000


def test_a_failed_stream_with_persons_changes_nothing() -> None:
    sketch = empty(10, max_contributions=1, unknown="error")
    many = [*[3] * 70_000, 99]
    refused(InputError, "got one outside", lambda: sketch.update(iter(many), person=iter(many)), sketch)


def test_a_stream_that_is_sealed_halfway_counts_nothing() -> None:
    sketch = make()

    def items() -> Iterator[int]:
        yield from range(70_000)
        sketch.release()
        yield from range(70_000)

    with pytest.raises(SealedError, match="this one is sealed"):
        sketch.update(items())
    assert sketch.release().counts.max() < 1000


def test_a_long_stream_cannot_seal_its_sketch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "STAGE", 1000)
    sketch = make()

    def items() -> Iterator[int]:
        yield from range(140_000)
        sketch.release()

    with pytest.raises(PrivacyError, match="needs a whole sketch"):
        sketch.update(items())


def groups_of(**options: Any) -> GroupedSketch:
    with testing.noiseless():
        return GroupedSketch(["A", "B", "C"], lambda: Sketch.known(10, epsilon=1, unknown="error"), **options)


@pytest.mark.parametrize("at", range(6))
@pytest.mark.parametrize("wrong", [{"x": 99}, {"g": "D"}])
def test_a_failing_row_changes_no_group(at: int, wrong: dict[str, Any]) -> None:
    """Earlier groups used to be counted while the message said that nothing was: a retry counted them twice."""
    grouped = groups_of(unknown="error")
    rows = [{"x": i, "g": "ABC"[i % 3]} for i in range(6)]
    rows[at] = {**rows[at], **wrong}
    table = pl.DataFrame(rows)
    sketches = tuple(grouped.sketches.values())
    refused(InputError, "must be", lambda: grouped.update(table, group="g"), *sketches)
    grouped.update(pl.DataFrame({"x": [1], "g": ["A"]}), group="g")
    assert [int(sketch._held.array().sum()) for sketch in sketches] == [1, 0, 0]


def test_a_stream_of_groups_that_fails_changes_no_group_or_breaks_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "BATCH", 10)
    for stage, broken in ((100, False), (15, True)):
        monkeypatch.setattr(intake, "STAGE", stage)
        grouped = groups_of(unknown="drop")
        names = ("ABC"[i % 3] for i in range(60))
        with pytest.raises(OSError, match="gone"):
            grouped.update(failing("error", 45, 60), names)
        for sketch in grouped.sketches.values():
            assert (sketch._broken is not None) == broken
            assert bool(sketch._held.array().any()) == broken
        if broken:
            with pytest.raises(PrivacyError, match="broken"):
                grouped.update([1], ["A"])


def test_what_is_raised_after_the_commit_says_that_all_was_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal in the last steps of a call: to make it again would count everything twice."""

    def interrupted(_: Any) -> None:
        raise KeyboardInterrupt

    with testing.noiseless():
        sketch, late = Sketch.known(5, epsilon=1), Sketch.known(5, epsilon=1)
    monkeypatch.setattr(intake.Located, "own", property(interrupted))
    with pytest.raises(KeyboardInterrupt) as error:
        sketch.update([1, 2])
    assert error.value.__notes__ == [intake.COUNTED]
    assert sketch._held.array().tolist() == [0, 1, 1, 0, 0]
    monkeypatch.undo()
    monkeypatch.setattr(intake, "apart", lambda work, stop: interrupted(None) if work.__name__ == "add" else work())
    with pytest.raises(KeyboardInterrupt) as error:
        late.update([1, 2])
    assert not hasattr(error.value, "__notes__"), "taken back: nothing was counted"


# ── signals ───────────────────────────────────────────────────────────────────────────────────────────────────

# Python itself swallows what is raised in a finaliser or a callback of the garbage collector (here: hypothesis's own).
swallowed = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

@swallowed
@pytest.mark.parametrize("name", _signals.CASES)
def test_signals_at_random_moments(name: str) -> None:
    """A short run of ``make audit-faults``."""
    found = _signals.signals(name, 5, seed=1)
    assert not any(found.get(fault) for fault in _signals.FAULTS), found


@swallowed
def test_without_its_guards_a_call_is_counted_in_part() -> None:
    """The negative control."""
    with _signals.careless():
        for seed in range(30):
            found = [_signals.signals(name, 5, seed) for name in ("large, hashed", "stream, known", "groups, hashed")]
            if any(one.get("in part") for one in found):
                return
    raise AssertionError("not found in 450 signals")
