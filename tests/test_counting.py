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

import unnoise as un
from unnoise import testing
from unnoise.sketches import counting
from unnoise.sketches.hashing import hash_columns, hash_words
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
            patch.setattr(counting, "_product", lambda: None)
        counting.scatter_add(cells, where, counts, sign)
    assert cells.tolist() == expected.tolist()


def test_the_compiled_loop_is_found_here() -> None:
    """Where SciPy changes it, the slow way is taken in silence; this tells us."""
    assert counting._product() is not None


def test_too_few_counts_are_refused() -> None:
    """The compiled loop would read on behind their end."""
    with pytest.raises(ValueError, match="counts must be at least as many as cells, got 2 for 3"):
        counting.scatter_add(np.zeros(3, dtype=np.int64), np.array([0, 1, 2]), np.array([1, 1]))


def test_a_changed_function_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    from scipy.sparse import _sparsetools

    def other(*arguments: Any) -> None:
        arguments[-1][:] = 7

    monkeypatch.setattr(_sparsetools, "csc_matvec", other)
    counting._product.cache_clear()
    try:
        assert counting._product() is None
    finally:
        counting._product.cache_clear()


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
    counting.scatter_add(cells, where, counts)
    end = time.perf_counter()
    stop.set()
    thread.join()
    assert sum(start < t < end for t in ticks) >= 3
    assert cells.sum() == where.size


def counts_of(sketch: Sketch) -> Any:
    return testing.release(sketch).counts


def batches(number: int, size: int) -> Iterator[tuple[Any, Any, Any]]:
    rng = np.random.default_rng(4)
    for i in range(number):
        yield rng.integers(0, 1000, size), (rng.integers(1, 5, size) if i % 2 else None), None


def test_batches_counted_ahead_are_all_there() -> None:
    with testing.seeded(1):
        ahead = Sketch.hashed(2**10, epsilon=1)
    with testing.seeded(1):
        plain = Sketch.hashed(2**10, epsilon=1)
    ahead._update_batches(batches(9, 70_000))
    for items, counts, _ in batches(9, 70_000):
        plain.update(items, counts)
    assert (counts_of(ahead) == counts_of(plain)).all()


def test_an_error_of_the_reader_leaves_whole_batches() -> None:
    with testing.seeded(2):
        sketch = Sketch.hashed(2**10, epsilon=1)
    with testing.seeded(2):
        plain = Sketch.hashed(2**10, epsilon=1)

    def reader() -> Iterator[tuple[Any, Any, Any]]:
        yield from batches(4, 70_000)
        raise un.InputError("row 5 must be whole")

    with pytest.raises(un.InputError, match=r"row 5 must be whole; batches applied before: 4 "):
        sketch._update_batches(reader())
    for items, counts, _ in batches(4, 70_000):
        plain.update(items, counts)
    assert (counts_of(sketch) == counts_of(plain)).all()


def test_a_batch_that_fails_in_the_background_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    with testing.seeded(3):
        sketch = Sketch.hashed(2**10, epsilon=1)
    with testing.seeded(3):
        plain = Sketch.hashed(2**10, epsilon=1)
    calls: list[int] = []
    real = counting.scatter_add

    def failing(cells: Any, where: Any, counts: Any, sign: int = 1) -> None:
        calls.append(sign)
        if len(calls) == 3:
            raise MemoryError
        real(cells, where, counts, sign)

    monkeypatch.setattr("unnoise.sketches.hashing.BLOCK", 1 << 10)
    monkeypatch.setattr(counting, "scatter_add", failing)
    items = np.arange(5000)
    with pytest.raises(MemoryError):
        sketch._update_batches([(items, None, None)])
    assert -1 in calls, "what was counted was taken back"
    assert (counts_of(sketch) == counts_of(plain)).all()


def test_a_fork_hashes_with_threads_of_its_own() -> None:
    words = np.arange(1 << 18)
    expected = hash_words(hash_words(words), 7)
    assert (hash_columns([words], 7) == expected).all()  # the parent's threads are there now
    child = os.fork()
    if child == 0:
        os._exit(0 if (hash_columns([words], 7) == expected).all() else 1)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == 0
            return
        time.sleep(0.02)
    os.kill(child, 9)
    os.waitpid(child, 0)
    pytest.fail("the fork waits for threads that it does not have")
