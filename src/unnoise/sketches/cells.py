"""Arithmetic on the cells of a sketch: checked int64, in blocks, in place.

Every function takes a bound on |cell| and returns the new one, so that the usual case needs no look at the cells at
all; only when the bound leaves int64 are the sums themselves examined, before anything is changed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from .._sampler import Keystream, fill
from ..arrays import Int64
from ..errors import InputError
from ..noise import DiscreteLaplace

__all__ = [
    "add_cells", "add_noise", "add_occurrences", "bound_after", "grown", "largest", "noisy_cells",
    "on_all_processors",
]  # fmt: skip

P = TypeVar("P")
R = TypeVar("R")

BLOCK = 1 << 16
SPAN = 1 << 22
"""Cells that one thread adds up at a time; a whole number of blocks."""

LIMIT = (1 << 63) - 1
OVERFLOW = "counts must stay within 64 bits: a cell would overflow, so nothing was changed"


def noisy_cells(size: int, noise: DiscreteLaplace, stream: Keystream) -> tuple[Int64, int]:
    """Return cells that hold noise and nothing else, and a bound on them."""
    cells = np.empty(size, dtype=np.int64)
    bound = 0
    for start in range(0, size, BLOCK):
        block = cells[start : start + BLOCK]
        fill(block, noise, stream)
        bound = max(bound, largest(block))
    return cells, bound


def add_noise(cells: Int64, out: Int64, noise: DiscreteLaplace, stream: Keystream) -> int:
    """Write cells + fresh noise into ``out`` (which may be the cells themselves) and return a bound on it."""
    if largest(cells) > LIMIT // 2:
        raise InputError(OVERFLOW)
    buffer = np.empty(min(BLOCK, cells.size), dtype=np.int64)
    bound = 0
    for start in range(0, cells.size, BLOCK):
        old = cells[start : start + BLOCK]
        fresh = buffer[: old.size]
        fill(fresh, noise, stream)
        if _overflows(old, fresh):
            raise InputError("noise must stay within 64 bits: epsilon is too small for it")
        new = np.add(old, fresh, out=out[start : start + BLOCK])
        bound = max(bound, largest(new))
    return bound


def on_all_processors(work: Callable[[P], R], pieces: Sequence[P]) -> list[R]:
    """Return what ``work`` makes of every piece, in order; a single one needs no threads."""
    if len(pieces) <= 1:
        return [work(piece) for piece in pieces]
    with ThreadPoolExecutor(min(os.cpu_count() or 1, len(pieces))) as pool:
        return list(pool.map(work, pieces))


def add_cells(left: Int64, right: Int64, out: Int64) -> int:
    """Write left + right into ``out`` (new, or left itself) and return a bound on it; left changes all or nothing."""
    if out is left:
        _require_room(left, right)

    def work(first: int) -> int:
        bound = 0
        for start in range(first, min(first + SPAN, left.size), BLOCK):
            stop = start + BLOCK
            if out is not left:
                _require_room(left[start:stop], right[start:stop])
            bound = max(bound, largest(np.add(left[start:stop], right[start:stop], out=out[start:stop])))
        return bound

    return max(on_all_processors(work, range(0, left.size, SPAN)))


def _require_room(left: Int64, right: Int64) -> None:
    """Refuse if any sum leaves int64."""
    if largest(left) + largest(right) <= LIMIT:
        return
    for start in range(0, left.size, BLOCK):
        if _overflows(left[start : start + BLOCK], right[start : start + BLOCK]):
            raise InputError(OVERFLOW)


def add_occurrences(cells: Int64, where: Int64, counts: Int64 | None, bound: int) -> int:
    """Add ``counts`` (1 each when None) to the cells ``where`` and return the new bound; all or nothing."""
    if where.size == 0:
        return bound
    new_bound = bound_after(cells, where.size, counts, bound)
    if new_bound is None:
        _require_sums(cells, where, counts)
    # unbuffered, so that repeated cells add up; wrapping in between does no harm where the sum fits
    np.add.at(cells, where, 1 if counts is None else counts)
    return LIMIT if new_bound is None else new_bound


def bound_after(cells: Int64, size: int, counts: Int64 | None, bound: int) -> int | None:
    """Return a bound on the cells after ``size`` occurrences or ``counts`` are added, None if it leaves int64."""
    found = grown(bound, size, counts)
    return grown(largest(cells), size, counts) if found is None else found


def grown(bound: int, size: int, counts: Int64 | None) -> int | None:
    """Return the bound after so many occurrences, without a look at the cells; None if it leaves int64."""
    bound += size if counts is None else _total(counts)
    return bound if bound <= LIMIT else None


def _total(counts: Int64) -> int:
    """Return Σ|count| exactly."""
    if counts.size == 0 or largest(counts) * counts.size <= LIMIT:
        return int(np.abs(counts).sum())
    return sum(abs(int(count)) for count in counts)


def _require_sums(cells: Int64, where: Int64, counts: Int64 | None) -> None:
    """Add up exactly, cell by cell, and refuse sums that do not fit."""
    sums: dict[int, int] = {}
    for i, cell in enumerate(where.tolist()):
        sums[cell] = sums.get(cell, int(cells[cell])) + (1 if counts is None else int(counts[i]))
    if any(abs(value) > LIMIT for value in sums.values()):
        raise InputError(OVERFLOW)


def _overflows(left: Int64, right: Int64) -> bool:
    """Tell whether any sum leaves int64: both terms then differ in sign from the wrapped sum."""
    with np.errstate(over="ignore"):
        total = left + right
    return bool((((left ^ total) & (right ^ total)) < 0).any())


def largest(cells: Int64) -> int:
    """Return max |cell|, in blocks, on all processors where it is worth it."""

    def work(first: int) -> int:
        bound = 0
        for start in range(first, min(first + SPAN, cells.size), BLOCK):
            block = cells[start : start + BLOCK]
            bound = max(bound, int(block.max()), -int(block.min()))
        return bound

    return max(on_all_processors(work, range(0, cells.size, SPAN)), default=0)
