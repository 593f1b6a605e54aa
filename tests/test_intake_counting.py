"""Adding to cells without the interpreter lock, and batches counted ahead in the background."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unnoise import testing
from unnoise.layout import hashed_layout
from unnoise.sketches import intake
from unnoise.sketches.hashing import hash_columns, hash_words
from unnoise.sketches.inputs import Rows, clean_rows
from unnoise.sketches.sketch import Sketch


@given(
    st.integers(1, 50).flatmap(lambda size: st.lists(st.tuples(st.integers(0, size - 1), st.integers(-9, 9)))),
    st.sampled_from([1, -1]),
    st.booleans(),
)
def test_as_numpy_adds(pairs: list[tuple[int, int]], sign: int, compiled: bool) -> None:
    where = np.array([cell for cell, _ in pairs], dtype=np.int64)
    counts = np.array([count for _, count in pairs] + [1000], dtype=np.int64)  # longer than where
    cells = np.arange(50, dtype=np.int64)
    expected = cells.copy()
    np.add.at(expected, where, sign * counts[: where.size])
    with pytest.MonkeyPatch.context() as patch:
        if not compiled:
            patch.setattr(intake, "_product", lambda: None)
        intake.scatter_add(cells, where, counts, sign)
    assert cells.tolist() == expected.tolist()


def test_the_compiled_loop_is_found_here() -> None:
    """Where SciPy changes it, the slow way is taken in silence; this tells us."""
    assert intake._product() is not None


def test_too_few_counts_are_refused() -> None:
    """The compiled loop would read on behind their end."""
    with pytest.raises(ValueError, match="counts must be at least as many as cells, got 2 for 3"):
        intake.scatter_add(np.zeros(3, dtype=np.int64), np.array([0, 1, 2]), np.array([1, 1]))


def test_a_changed_function_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    from scipy.sparse import _sparsetools

    def other(*arguments: Any) -> None:
        arguments[-1][:] = 7

    monkeypatch.setattr(_sparsetools, "csc_matvec", other)
    intake._product.cache_clear()
    try:
        assert intake._product() is None
    finally:
        intake._product.cache_clear()


def test_other_threads_run_meanwhile() -> None:
    """np.add.at would keep them waiting until it is done."""
    cells = np.zeros(1 << 20, dtype=np.int64)
    where = np.random.default_rng(0).integers(0, cells.size, 20_000_000)
    counts = np.ones(where.size, dtype=np.int64)
    ticks: list[float] = []
    stop = threading.Event()

    def tick() -> None:
        while not stop.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.001)

    thread = threading.Thread(target=tick)
    thread.start()
    start = time.perf_counter()
    intake.scatter_add(cells, where, counts)
    end = time.perf_counter()
    stop.set()
    thread.join()
    assert sum(start < t < end for t in ticks) >= 3
    assert cells.sum() == where.size


def counts_of(sketch: Sketch) -> Any:
    return testing.release(sketch).counts


def batches(number: int, size: int) -> Iterator[Rows]:
    rng = np.random.default_rng(4)
    for i in range(number):
        yield clean_rows({"items": rng.integers(0, 1000, size)}, rng.integers(1, 5, size) if i % 2 else None)


def test_batches_counted_ahead_are_all_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "STAGE", 100_000)
    with testing.seeded(1):
        ahead, plain = Sketch.hashed(2**10, epsilon=1), Sketch.hashed(2**10, epsilon=1)
    noise = plain._held.array() - ahead._held.array()
    ahead.take_in(batches(9, 70_000))
    for rows in batches(9, 70_000):
        plain.update(rows.columns[0], rows.counts)
    assert (counts_of(ahead) + noise == counts_of(plain)).all()


@pytest.mark.parametrize("stop", [0, 1, 3, 100])
@pytest.mark.parametrize("counted", [False, True])
def test_a_piece_takes_back_what_it_has_added(stop: int, counted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unnoise.sketches.hashing.BLOCK", 1 << 10)
    monkeypatch.setattr(intake, "BLOCK", 1 << 10)
    items = np.arange(300_000) % 64
    rows, layout = clean_rows({"items": items}, items if counted else None), hashed_layout(64, None, hash_seed=0)
    told, real = threading.Event(), intake.scatter_add
    calls: list[int] = []

    def counting_calls(cells: Any, where: Any, counts: Any, sign: int = 1) -> None:
        calls.append(sign)
        if len(calls) == stop:
            told.set()
        real(cells, where, counts, sign)

    monkeypatch.setattr(intake, "scatter_add", counting_calls)
    for piece in (intake.Hashed(rows, layout), intake.Located(items, rows.counts, owned=False)):
        told.clear()
        calls.clear()
        cells = np.zeros(64, dtype=np.int64)
        if stop == 0:
            told.set()
        piece.add(cells, told)
        assert bool(cells.any()) == (stop > 0)
        assert calls.count(1) < 290, "it stopped early"
        piece.take_back(cells)
        assert not cells.any()


def test_memory_that_fails_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    with testing.noiseless():
        sketch = Sketch.hashed(2**10, epsilon=1)
    calls: list[int] = []
    real = intake.scatter_add

    def failing(cells: Any, where: Any, counts: Any, sign: int = 1) -> None:
        calls.append(sign)
        if len(calls) == 3:
            raise MemoryError
        real(cells, where, counts, sign)

    monkeypatch.setattr("unnoise.sketches.hashing.BLOCK", 1 << 10)
    monkeypatch.setattr(intake, "scatter_add", failing)
    with pytest.raises(MemoryError):
        sketch.update(np.arange(5000))
    assert -1 in calls, "what was counted was taken back"
    assert not counts_of(sketch).any()


def test_a_fork_hashes_with_threads_of_its_own() -> None:
    words = np.arange(1 << 18)
    expected = hash_words(hash_words(words), 7)
    assert (hash_columns([words], 7) == expected).all()  # the parent's threads are there now
    child = os.fork()
    if child == 0:
        os._exit(0 if (hash_columns([words], 7) == expected).all() else 1)
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == 0
            return
        time.sleep(0.02)
    os.kill(child, 9)
    os.waitpid(child, 0)
    pytest.fail("the fork waits for threads that it does not have")
