"""Where the cells of one sketch are: in memory, in a file, or in several of them, to be added up when needed.

Two sealed sketches merge without their sum being held: it is added up piece by piece on the way into a file
(:func:`unnoise.sketches.format.write.write_sketch`), or when somebody asks for the cells.
"""

from __future__ import annotations

import numpy as np

from .._sampler import Keystream
from ..arrays import Int64
from ..errors import InputError
from ..guard import frozen, wipe
from ..noise import DiscreteLaplace
from .cells import LIMIT, add_cells, add_noise, largest
from .format.filecells import FileCells, sum_of

__all__ = ["Held"]


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

    def wipe(self) -> None:
        """Overwrite the cells: whoever holds them has no more use for them."""
        cells = self.array()
        cells.flags.writeable = True
        wipe(cells)

    def require_room(self, other: Held | None = None) -> None:
        """Refuse where ``other``, or noise, cannot be added within 64 bits; only for cells that are public."""
        if self.largest() + (other.largest() if other else LIMIT // 2) > LIMIT:
            raise InputError("counts must stay within 64 bits: a cell would overflow, so nothing was changed")

    def largest(self) -> int:
        """Return at least the largest |cell|; only for cells that are public."""
        if self.bound is not None:
            return self.bound
        bound = sum(part.bound if isinstance(part, FileCells) else largest(part) for part in self.parts)
        if not self.pending:
            self.bound = bound
        return bound

    @property
    def pending(self) -> bool:
        """Whether the first pass over some file, which looks at its bound as well, is still to come."""
        return any(isinstance(part, FileCells) and not part.verified for part in self.parts)

    def with_noise(self, noise: DiscreteLaplace, stream: Keystream) -> Held:
        """Return the cells under fresh noise, in the old memory where that is possible."""
        cells = self.array()
        out = self.writeable()
        add_noise(cells, out, noise, stream)
        return Held(out)

    def plus(self, other: Held, *, later: bool) -> Held:
        """Return the sum of both, in the old memory where that is possible; ``later`` where neither will change."""
        if later and self.shared:
            other.shared = True
            bound = None if self.pending or other.pending else self.largest() + other.largest()
            return Held(*self.parts, *other.parts, shared=True, bound=bound)
        left, right = self.array(), other.array()
        out = self.writeable()
        add_cells(left, right, out)
        out.flags.writeable = not later
        return Held(out)
