"""Rows on their way into cells: checked, held back, added, and taken back if need be.

A *piece* is some rows that have been checked so far that adding them cannot fail: :class:`Located` knows the cell of
every row; :class:`Hashed` finds the cells of a hashed sketch while it adds, so that nothing as long as the rows is ever
held. Either stops between two blocks when it is told to, and takes back exactly what it has added.

Cells are int64 and add up modulo 2^64. Noise modulo 2^64 is a function of noise, so nothing is lost of the promise, and
no refusal tells what a cell holds; a sum is right as long as it stays within ±2^63.

``np.add.at`` keeps the interpreter lock for as long as it adds, so that no other thread can hash meanwhile. SciPy's
product of a sparse matrix with a vector is the same loop, cells[where[i]] += counts[i]·x, and gives the lock up. Its
compiled function is not part of SciPy's public interface (the public product always starts from zeros), so it is
looked up, tried out, and ``np.add.at`` takes its place where it has changed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from queue import SimpleQueue
from typing import Any, Protocol

import numpy as np

from ..arrays import Int64
from ..guard import crew, wipe
from ..layout import Layout
from .hashing import BLOCK, UInt64, cells_of, each_block
from .inputs import Rows

__all__ = ["Hashed", "Located", "Piece", "count_ahead", "scatter_add"]

Product = Callable[..., Any]


class Piece(Protocol):
    """Some rows that can be added to cells, or taken back."""

    def add(self, cells: Int64, stop: threading.Event) -> None:
        """Add the rows, up to where ``stop`` is noticed."""

    def take_back(self, cells: Int64) -> None:
        """Subtract what has been added."""

    def wipe(self) -> None:
        """Overwrite the memory that belongs to the piece."""


@dataclass(eq=False)
class Located:
    """Occurrences by cell.

    cells : cell of each row; counts : occurrences, None for one each
    persons : who is behind each row, two words, None when not given
    owned : whether the memory of the cells is ours, not the caller's
    """

    cells: Int64
    counts: Int64 | None = None
    persons: UInt64 | None = None
    owned: bool = True
    _added: int = field(default=0, init=False)

    def add(self, cells: Int64, stop: threading.Event) -> None:
        """Add the rows, up to where ``stop`` is noticed."""
        for start in range(0, self.cells.size, BLOCK):
            if stop.is_set():
                return
            self._scatter(cells, start, 1)
            self._added = start + BLOCK

    def take_back(self, cells: Int64) -> None:
        """Subtract what has been added."""
        for start in range(0, min(self._added, self.cells.size), BLOCK):
            self._scatter(cells, start, -1)
        self._added = 0

    def take_persons(self) -> UInt64:
        """Return the persons, which are kept no longer."""
        persons, self.persons = self.persons, None
        assert persons is not None, "a call that limits persons has them in every piece"
        return persons

    def _scatter(self, cells: Int64, start: int, sign: int) -> None:
        block = slice(start, start + BLOCK)
        scatter_add(cells, self.cells[block], _ones() if self.counts is None else self.counts[block], sign)

    def wipe(self) -> None:
        """Overwrite the memory that belongs to the piece."""
        wipe(self.cells if self.owned else None, self.persons)


@dataclass(eq=False)
class Hashed:
    """Rows of a hashed sketch, whose cells are found while they are added.

    Pieces added side by side share a ``lock``; ``most`` bounds the threads of this one.
    """

    rows: Rows
    layout: Layout
    lock: threading.Lock = field(default_factory=threading.Lock)
    most: int | None = None
    _done: set[int] = field(default_factory=set, init=False)

    def add(self, cells: Int64, stop: threading.Event, sign: int = 1) -> None:
        """Add the rows, up to where ``stop`` is noticed; with sign −1 subtract those that were added."""

        def scatter(start: int, hashes: UInt64) -> None:
            if sign < 0 and start not in self._done:
                return
            where = cells_of(hashes, self.layout, in_place=True)
            counts = self.rows.counts
            amounts = _ones() if counts is None else counts[start : start + where.size]
            with self.lock:
                scatter_add(cells, where, amounts, sign)
                self._done.add(start)

        each_block(self.rows.columns, self.layout.hash_seed or 0, scatter, self.most, stop)

    def take_back(self, cells: Int64) -> None:
        """Subtract what has been added."""
        self.add(cells, threading.Event(), sign=-1)
        self._done.clear()

    def wipe(self) -> None:
        """Nothing to overwrite: the rows are the caller's, and the hashes are wiped where they are made."""


@lru_cache(maxsize=1)
def _ones() -> Int64:
    """Return as many ones as a block has items at most."""
    return np.ones(BLOCK, dtype=np.int64)


def count_ahead(cells: Int64, batches: Iterable[Rows], layout: Layout) -> None:
    """Count rows that have been checked in the background, a batch on each processor, while the next are read.

    An error or an interruption waits for nobody: what holds these cells must be broken then.
    """
    lock, stop = threading.Lock(), threading.Event()
    ended: SimpleQueue[BaseException | None] = SimpleQueue()
    under_way = 0

    def counting(rows: Rows) -> Callable[[], None]:
        def work() -> None:
            try:
                Hashed(rows, layout, lock, 1).add(cells, stop)
                ended.put(None)
            except BaseException as error:
                ended.put(error)

        return work

    def one_ended() -> None:
        error = ended.get()
        if error is not None:
            raise error

    try:
        for rows in batches:
            if under_way >= (os.cpu_count() or 1):
                one_ended()
                under_way -= 1
            crew().put(counting(rows))
            under_way += 1
        for _ in range(under_way):
            one_ended()
    finally:
        stop.set()


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
