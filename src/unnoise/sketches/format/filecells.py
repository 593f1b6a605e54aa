"""Cells that were verified once and stay in their file until they are needed, without trusting the file again.

Another process may write into a file, or cut it short, after its digest was verified; a mapping of it would then show
other cells, or end this process (SIGBUS). So nothing is mapped. While the digest is computed, every piece of the file
gets a tag, GMAC under a key that never leaves this object (NIST SP 800-38D); whenever a piece is needed it is read into
own memory and must have its tag. What is used is what was hashed, or nothing: two files are merged into a third
without either being held, and a file changed meanwhile is refused. A tag costs a tenth of a digest.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence

import numpy as np

from ..._sampler import _system_stream as system_stream
from ...arrays import Int64
from ...errors import FormatError
from ..cells import largest, on_all_processors

__all__ = ["PIECE", "FileCells", "add_up", "raw_bytes", "read_at", "sum_of"]

PIECE = 1 << 16
"""Cells in a piece: it stays in the cache of one processor while it is read, added up, digested and written."""


MOST_OPEN = 128
"""Files kept open at a time; the cells of any more are held in memory."""

_kept: weakref.WeakSet[FileCells] = weakref.WeakSet()


def raw_bytes(cells: Int64) -> memoryview:
    """Return the cells as little-endian bytes."""
    return np.ascontiguousarray(cells, dtype="<i8").view(np.uint8).data


def read_at(handle: int, position: int, out: memoryview) -> None:
    """Fill the memory from a position of a file."""
    while out:
        got = os.preadv(handle, [out], position)
        if not got:
            raise FormatError("it must hold all its bytes: truncated")
        out, position = out[got:], position + got


class FileCells:
    """The cells of a file of which every piece has been seen by :meth:`first`; the file stays open until forgotten.

    """

    def __init__(self, handle: int, start: int, size: int, name: str) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self.size, self.name = size, name
        self._handle, self._start = os.dup(handle), start
        self._key = AESGCM(system_stream().words(4).tobytes())
        self._tags: dict[int, bytes] = {}
        self._bounds: dict[int, int] = {}
        weakref.finalize(self, os.close, self._handle)

    @property
    def bound(self) -> int:
        """The largest |cell| of all pieces seen."""
        return max(self._bounds.values(), default=0)

    def first(self, piece: slice, out: Int64) -> Int64:
        """Read a piece for the first time: whatever is there now is what it will have to be."""
        cells = self._fetch(piece, out)
        self._tags[piece.start] = self._tag(piece.start, cells)
        self._bounds[piece.start] = largest(cells)
        return cells

    def read(self, piece: slice, out: Int64) -> Int64:
        """Return a piece (a whole one, from a multiple of ``PIECE``) in own memory, exactly as it was verified."""
        try:
            cells = self._fetch(piece, out)
        except FormatError:
            raise self._changed() from None
        if self._tag(piece.start, cells) != self._tags.get(piece.start):
            raise self._changed()
        return cells

    def keep(self) -> bool:
        """Ask whether this file may stay open."""
        if len(_kept) >= MOST_OPEN:
            return False
        _kept.add(self)
        return True

    def _fetch(self, piece: slice, out: Int64) -> Int64:
        cells = out[: piece.stop - piece.start]
        read_at(self._handle, self._start + 8 * piece.start, cells.view(np.uint8).data)
        return cells

    def _tag(self, start: int, cells: Int64) -> bytes:
        return self._key.encrypt(start.to_bytes(12, "little"), b"", raw_bytes(cells))

    def _changed(self) -> FormatError:
        return FormatError(f"{self.name} must stay as it was when it was verified: somebody has changed it since")


def add_up(parts: Sequence[Int64 | FileCells], piece: slice, out: Int64, spare: Int64) -> Int64:
    """Return the sum of a piece of all parts, in ``out``; the only part there is as it stands."""
    total: Int64 | None = None
    for part in parts:
        if isinstance(part, FileCells):
            cells = part.read(piece, out if total is None else spare)
        else:
            cells = part[piece]
        total = cells if total is None else np.add(total, cells, out=out[: cells.size])
    assert total is not None, "there is a part"
    return total


def sum_of(parts: Sequence[Int64 | FileCells]) -> Int64:
    """Return the sum of several cells, whose sums are known to fit, in own memory."""
    whole = np.empty(parts[0].size, dtype=np.int64)

    def work(first: int) -> None:
        spare = np.empty(PIECE if len(parts) > 1 else 0, dtype=np.int64)
        for start in range(first, min(first + 16 * PIECE, whole.size), PIECE):
            piece = slice(start, min(start + PIECE, whole.size))
            total = add_up(parts, piece, whole[piece], spare)
            if total.base is not whole:
                whole[piece] = total

    on_all_processors(work, range(0, whole.size, 16 * PIECE))
    return whole
