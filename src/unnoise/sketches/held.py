"""Where the cells of one sketch are: in memory, in a file, or in several of them, to be added up when needed.

Two sealed sketches merge without their sum being held: it is added up piece by piece on the way into a file
(:func:`unnoise.sketches.format.write.write_sketch`), or when somebody asks for the cells.
"""

from __future__ import annotations

import numpy as np

from .._sampler import Keystream
from ..arrays import Int64
from ..errors import InputError
from ..guard import frozen
from ..noise import DiscreteLaplace
from .cells import LIMIT, add_cells, add_noise, largest
from .format.filecells import FileCells, sum_of

__all__ = ["Held"]

OVERFLOW = "counts must stay within 64 bits: a cell would overflow, so nothing was changed"


class Held:
    """Cells whose sum is the state of a sketch.

    parts : arrays, or cells in files
    shared : whether somebody else sees the memory of the first part, so that it must not change
    bound : at least the largest |cell| where cells are public and somebody has looked, else None
    """

    def __init__(self, *parts: Int64 | FileCells, shared: bool = False, bound: int | None = None) -> None:
        self.parts, self.shared, self.bound = parts, shared, bound

    def array(self) -> Int64:
        """Return all cells in memory; read-only unless the sketch is open."""
        first = self.parts[0]
        if len(self.parts) > 1 or isinstance(first, FileCells):
            first = sum_of(self.parts)
            first.flags.writeable = False
            self.parts, self.shared = (first,), False
        return first

    def released(self) -> Int64:
        """Return all cells as they may be given away."""
        cells = self.array()
        self.shared = True
        return frozen(cells)

    def writeable(self) -> Int64:
        """Return where new cells may be written: the memory of the old ones, unless somebody else sees it."""
        cells = self.array()
        if self.shared:
            return np.empty_like(cells)
        cells.flags.writeable = True
        return cells

    def freeze(self) -> None:
        """Let the cells change no more."""
        self.array().flags.writeable = False

    def with_noise(self, noise: DiscreteLaplace, stream: Keystream, *, public: bool) -> Held:
        """Return the cells under fresh noise, in the old memory where that is possible.

        Whether the sums fit is looked at only where the cells are ``public``; else a refusal would tell about them.
        """
        cells = self.array()
        if public and largest(cells) > LIMIT // 2:
            raise InputError(OVERFLOW)
        out = self.writeable()
        add_noise(cells, out, noise, stream)
        return Held(out)

    def plus(self, other: Held, *, public: bool) -> Held:
        """Return the sum of both, later where both are ``public``, in the old memory where that is possible."""
        bound = self.largest() + other.largest() if public else None
        if bound is not None and bound > LIMIT:
            raise InputError(OVERFLOW)
        if bound is not None and self.shared:
            other.shared = True
            return Held(*self.parts, *other.parts, shared=True, bound=bound)
        left, right = self.array(), other.array()
        out = self.writeable()
        add_cells(left, right, out)
        return Held(out)

    def largest(self) -> int:
        """Return at least the largest |cell|; only for cells that are public."""
        if self.bound is None:
            self.bound = sum(part.bound if isinstance(part, FileCells) else largest(part) for part in self.parts)
        return self.bound
