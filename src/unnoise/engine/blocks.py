"""Blocks of counts: single ones where counts are small, wider ones above, and atoms beside them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..arrays import Floats, Int64

__all__ = ["FAR", "Blocks", "counts_in_blocks"]

FAR = 1 << 62
"""The count of all items above every row."""


def counts_in_blocks(first: int, top: int, dense: int, per_octave: int) -> Int64:
    """Return the starts of blocks that cover first..top, and top + 1: single counts up to ``dense``, then wider ones.

    >>> counts_in_blocks(1, 12, 4, 2)
    array([ 1,  2,  3,  4,  5,  7, 10, 13])
    """
    starts = list(range(first, min(dense, top) + 1))
    start = max(first, min(dense, top) + 1)
    while start <= top:
        starts.append(start)
        start = max(start + 1, round(start * 2 ** (1 / per_octave)))
    return np.array([*starts, top + 1], dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Blocks:
    """Blocks of counts: block j holds the counts first[j]..stop[j] − 1.

    The first ``covered`` of them stand side by side, the others (atoms) alone. FAR stands for "above every row".
    """

    first: Int64
    stop: Int64
    covered: int

    @classmethod
    def covering(cls, starts: Int64) -> Blocks:
        """Blocks side by side, from their starts and one end."""
        return cls(starts[:-1], starts[1:], starts.size - 1)

    def with_atoms(self, counts: Int64) -> Blocks:
        """The same with a block of its own for each of these counts."""
        first, stop = np.concatenate([self.first, counts]), np.concatenate([self.stop, counts + 1])
        return Blocks(first, stop, self.covered)

    @property
    def atoms(self) -> Int64:
        """The single counts beside those covered, FAR among them."""
        return self.first[self.covered :]

    @property
    def size(self) -> int:
        """Number of blocks."""
        return int(self.first.size)

    @cached_property
    def widths(self) -> Floats:
        """Number of counts in each block."""
        return (self.stop - self.first).astype(float)

    @cached_property
    def centres(self) -> Floats:
        """Middle of each block."""
        return self.first + (self.widths - 1) / 2

    def spread(self, mass: Floats, top: int) -> Floats:
        """Return the mass at each count 0..top, spread evenly over the blocks (what lies above is left out)."""
        n, masses = self.covered, np.zeros(top + 1)
        if n:
            body = np.repeat(mass[:n] / self.widths[:n], self.stop[:n] - self.first[:n])
            low = int(self.first[0])
            stop = min(low + body.size, top + 1)
            masses[low:stop] = body[: stop - low]
        near = self.atoms <= top
        np.add.at(masses, self.atoms[near], mass[n:][near])
        return masses
