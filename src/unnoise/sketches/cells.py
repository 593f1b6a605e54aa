"""Arithmetic on the cells of a sketch: int64 modulo 2^64, in blocks, in place.

No function here looks at a cell to decide whether to go on: a refusal would tell what the cell holds. (Noise modulo
2^64 is a function of noise, so a sum that wraps is as private as any.) Where cells are public already,
:mod:`unnoise.sketches.held` looks first and refuses what would wrap.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from .._sampler import Keystream, fill
from ..arrays import Int64
from ..guard import wipe
from ..noise import DiscreteLaplace

__all__ = ["LIMIT", "add_cells", "add_noise", "largest", "noisy_cells", "on_all_processors"]

P = TypeVar("P")
R = TypeVar("R")

BLOCK = 1 << 16
SPAN = 1 << 22
"""Cells that one thread adds up at a time; a whole number of blocks."""

LIMIT = (1 << 63) - 1


def noisy_cells(size: int, noise: DiscreteLaplace, stream: Keystream) -> Int64:
    """Return cells that hold noise and nothing else."""
    cells = np.empty(size, dtype=np.int64)
    for start in range(0, size, BLOCK):
        fill(cells[start : start + BLOCK], noise, stream)
    return cells


def add_noise(cells: Int64, out: Int64, noise: DiscreteLaplace, stream: Keystream) -> None:
    """Write cells + fresh noise into ``out``, which may be the cells themselves."""
    buffer = np.empty(min(BLOCK, cells.size), dtype=np.int64)
    for start in range(0, cells.size, BLOCK):
        old = cells[start : start + BLOCK]
        fresh = buffer[: old.size]
        fill(fresh, noise, stream)
        np.add(old, fresh, out=out[start : start + BLOCK])
    wipe(buffer)


def add_cells(left: Int64, right: Int64, out: Int64) -> None:
    """Write left + right into ``out``, which may be new or left itself."""

    def work(first: int) -> None:
        for start in range(first, min(first + SPAN, left.size), BLOCK):
            stop = start + BLOCK
            np.add(left[start:stop], right[start:stop], out=out[start:stop])

    on_all_processors(work, range(0, left.size, SPAN))


def on_all_processors(work: Callable[[P], R], pieces: Sequence[P]) -> list[R]:
    """Return what ``work`` makes of every piece, in order; a single one needs no threads."""
    if len(pieces) <= 1:
        return [work(piece) for piece in pieces]
    with ThreadPoolExecutor(min(os.cpu_count() or 1, len(pieces))) as pool:
        return list(pool.map(work, pieces))


def largest(cells: Int64) -> int:
    """Return max |cell|, in blocks, on all processors where it is worth it."""

    def work(first: int) -> int:
        bound = 0
        for start in range(first, min(first + SPAN, cells.size), BLOCK):
            block = cells[start : start + BLOCK]
            bound = max(bound, int(block.max()), -int(block.min()))
        return bound

    return max(on_all_processors(work, range(0, cells.size, SPAN)), default=0)
