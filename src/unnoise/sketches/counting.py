"""From a batch of items to the cells they count in, and adding to them without holding the interpreter lock.

``np.add.at`` keeps the lock for as long as it adds, so that no other thread can hash meanwhile. SciPy's product of a
sparse matrix with a vector is the same loop, cells[where[i]] += counts[i]·x, and gives the lock up. Its compiled
function is not part of SciPy's public interface (the public product always starts from zeros), so it is looked up,
tried out, and ``np.add.at`` takes its place where it has changed.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from .._sampler import Keystream
from ..arrays import Int64
from ..errors import InputError
from ..layout import Layout
from .domain import OUTSIDE, SKIPPED, Finder
from .hashing import BLOCK, UInt64, cells_of, each_block, workers_of_this_process
from .inputs import Batch
from .persons import limit_contributions

__all__ = ["Ahead", "Located", "count_hashed", "join", "limited", "locate", "scatter_add"]

Product = Callable[..., Any]


@dataclass(frozen=True, eq=False)
class Located:
    """Occurrences by cell.

    types : item types, None when unknown
    cells : cell of each row; counts : occurrences, None for one each; persons : who, None when not given
    """

    types: tuple[str, ...] | None
    cells: Int64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    counts: Int64 | None = None
    persons: UInt64 | None = None


def locate(batch: Batch, finder: Finder | None, layout: Layout, *, drop: bool) -> Located:
    """Return the cells of a batch; items outside the domain are refused, or dropped."""
    if batch.size == 0 or finder is None:
        return Located(batch.types, counts=batch.counts, persons=batch.persons)
    cells, counts, persons = finder.find(batch.columns), batch.counts, batch.persons
    if layout.kind != "hashed" and cells.min() < 0:
        if not drop and (cells == OUTSIDE).any():
            known = f" 0…{layout.domain - 1}" if layout.domain and layout.fingerprint is None else ""
            raise InputError(
                f"items must be in the declared domain{known}, got one outside: nothing of this batch was counted "
                f"(unknown='drop' ignores such items)"
            )
        inside = (cells != OUTSIDE) & (cells != SKIPPED)
        cells = cells[inside]
        counts = None if counts is None else counts[inside]
        persons = None if persons is None else persons[inside]
    return Located(batch.types, cells, counts, persons)


def count_hashed(
    cells: Int64, batch: Batch, layout: Layout, lock: threading.Lock | None = None, most: int | None = None
) -> None:
    """Add a batch to the cells of a hashed sketch block by block, without ever holding all its hashes.

    The caller has checked all there is to check; an interruption in the middle is undone. Batches counted side by side
    share a ``lock``; ``most`` bounds the threads of this one.
    """
    done: set[int] = set()
    one_at_a_time = lock or threading.Lock()

    def adding(sign: int) -> Callable[[int, UInt64], None]:
        def add(start: int, hashes: UInt64) -> None:
            if sign < 0 and start not in done:
                return
            where = cells_of(hashes, layout, in_place=True)
            counts = _ones() if batch.counts is None else batch.counts[start : start + where.size]
            with one_at_a_time:
                scatter_add(cells, where, counts, sign)
                done.add(start)

        return add

    try:
        each_block(batch.columns, layout.hash_seed or 0, adding(1), most)
    except BaseException:
        each_block(batch.columns, layout.hash_seed or 0, adding(-1), most)
        raise


@lru_cache(maxsize=1)
def _ones() -> Int64:
    """Return as many ones as a block has items at most."""
    return np.ones(BLOCK, dtype=np.int64)


class Ahead:
    """Batches counted in the background, as many at a time as there are processors, while the next ones are read.

    Leaving the block waits for all of them, also after an error.
    """

    def __init__(self, cells: Int64, layout: Layout) -> None:
        self._cells, self._layout = cells, layout
        self._lock = threading.Lock()
        self._under_way: deque[Future[None]] = deque()

    def count(self, batch: Batch) -> None:
        """Begin to count a batch that has been checked; raise what went wrong with an earlier one."""
        if len(self._under_way) >= (os.cpu_count() or 1):
            self._under_way.popleft().result()
        workers = workers_of_this_process()
        self._under_way.append(workers.submit(count_hashed, self._cells, batch, self._layout, self._lock, 1))

    def settle(self) -> None:
        """Wait until all is counted; raise what went wrong."""
        wait(self._under_way)
        while self._under_way:
            self._under_way.popleft().result()

    def __enter__(self) -> Ahead:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if kind is None:
            self.settle()
        else:
            wait(self._under_way)


def join(pieces: Sequence[Located]) -> Located:
    """Return one piece of several, whose types must agree."""
    types = {piece.types for piece in pieces} - {None}
    if len(types) > 1:
        names = " and ".join(sorted(", ".join(kind or ()) for kind in types))
        raise InputError(f"items must be of the same types throughout, got {names}")
    if len(pieces) == 1:
        return pieces[0]
    pieces = [piece for piece in pieces if piece.cells.size] or list(pieces[:1])
    if not pieces:
        return Located(None)
    if len({piece.counts is None for piece in pieces}) > 1 or len({piece.persons is None for piece in pieces}) > 1:
        raise InputError("counts and person must be given for all batches of a call, or for none")
    counts = [piece.counts for piece in pieces if piece.counts is not None]
    persons = [piece.persons for piece in pieces if piece.persons is not None]
    return Located(
        types.pop() if types else None,
        np.concatenate([piece.cells for piece in pieces]),
        np.concatenate(counts) if counts else None,
        np.concatenate(persons) if persons else None,
    )


def limited(found: Located, most: int, stream: Keystream) -> Located:
    """Return what is left when every person keeps at most ``most`` occurrences."""
    assert found.persons is not None
    cells, counts = limit_contributions(found.cells, found.counts, found.persons, most, stream)
    return Located(found.types, cells, counts)


def scatter_add(cells: Int64, where: Int64, counts: Int64, sign: int = 1) -> None:
    """Add sign·counts to the cells ``where``, repeated cells included; every cell must exist: that is not checked.

    ``counts`` may be longer than ``where``. Two threads must not add to the same cells at once.

    >>> cells = np.zeros(3, dtype=np.int64)
    >>> scatter_add(cells, np.array([2, 0, 2]), np.array([1, 5, 1]), -1)
    >>> cells
    array([-5,  0, -2])
    """
    if where.size == 0:
        return
    if counts.size < where.size:
        raise ValueError(f"counts must be at least as many as cells, got {counts.size} for {where.size}")
    product = _product()
    if product is None or not cells.flags.c_contiguous:
        np.add.at(cells, where, sign * counts[: where.size])
    else:
        ends = np.array([0, where.size], dtype=np.int64)
        product(cells.size, 1, ends, where, counts, np.array([sign], dtype=np.int64), cells)


@lru_cache(maxsize=1)
def _product() -> Product | None:
    """Return SciPy's y += A·x for a matrix by columns, if it does what is wanted; None else."""
    try:
        from scipy.sparse import _sparsetools

        product: Product = _sparsetools.csc_matvec
        cells = np.array([1, 2, 3], dtype=np.int64)
        where, counts = np.array([2, 0, 2], dtype=np.int64), np.array([1, 5, 1, 7], dtype=np.int64)
        product(3, 1, np.array([0, 3], dtype=np.int64), where, counts, np.array([-1], dtype=np.int64), cells)
    except Exception:  # whatever a private function may do when it has changed
        return None
    return product if cells.tolist() == [-4, 2, 1] else None
