"""Cells that stay in their file until they are needed, without ever trusting the file twice.

Another process may write into a file, or cut it short, after its digest was verified; a mapping of it would then show
other cells, or end this process (SIGBUS). So nothing is mapped. While the digest is computed, every piece of the file
gets a tag, GMAC under a key that never leaves this object (NIST SP 800-38D); whenever a piece is needed again it is
read into own memory and must have its tag. What is used is what was hashed, or nothing: two files are merged into a
third without either being held, and a file changed meanwhile is refused. A tag costs a tenth of a digest.

A file is verified when it is loaded, or (:func:`one_pass`) by the very pass that uses it, whose result must not leave
before the digest agrees: merging then reads every file once, without tags, and whoever wants more of it verifies anew.
"""

from __future__ import annotations

import hashlib
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import RLock
from typing import Any

import numpy as np

from ..._sampler import _system_stream as system_stream
from ...arrays import Int64
from ...errors import FormatError, InputError
from ..cells import LIMIT, largest, on_all_processors

__all__ = ["PIECE", "RUN", "FileCells", "add_up", "one_pass", "raw_bytes", "read_at", "sum_of"]

PIECE = 1 << 16
"""Cells in a piece: it stays in the cache of one processor while it is read, added up, digested and written."""


RUN = 1 << 20
"""Cells in a run: each run of the file has a digest of its own, so that all cores can work on it."""

MOST_OPEN = 128
"""Files kept open at a time; the cells of any more are held in memory."""

_passing = RLock()
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
    """The cells of a file, which stays open until forgotten.

    agrees : tells whether the SHA-256 of all runs are those that the digest in the file stands for
    verified : whether it did, in a pass that left tags for others to come
    """

    def __init__(self, handle: int, start: int, size: int, name: str, agrees: Callable[[list[bytes]], bool]) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self.size, self.name, self.verified = size, name, False
        self._agrees: Callable[[list[bytes]], bool] | None = agrees
        self._handle, self._start = os.dup(handle), start
        self._key = AESGCM(system_stream().words(4).tobytes())
        self._tags: dict[int, bytes] = {}
        self._bounds: dict[int, int] = {}
        self._runs: dict[int, Any] = {}
        self._again = True
        weakref.finalize(self, os.close, self._handle)

    @property
    def bound(self) -> int:
        """The largest |cell| of all pieces seen."""
        return max(self._bounds.values(), default=0)

    def read(self, piece: slice, out: Int64) -> Int64:
        """Return a piece (a whole one, from a multiple of ``PIECE``) in own memory, exactly as it was verified.

        Until then: as it is now, to be verified by :meth:`finish`; the pieces of a run must come in order.
        """
        if not self.verified:
            try:
                cells = self._fetch(piece, out)
            except FormatError as error:
                raise FormatError(f"{self.name} is not a valid sketch file: {error}") from None
            if self._again:
                self._tags[piece.start] = self._tag(piece.start, cells)
            self._bounds[piece.start] = largest(cells)
            self._runs.setdefault(piece.start // RUN, hashlib.sha256()).update(raw_bytes(cells))
            return cells
        try:
            cells = self._fetch(piece, out)
        except FormatError:
            raise self._changed() from None
        if self._tag(piece.start, cells) != self._tags.get(piece.start):
            raise self._changed()
        return cells

    def bound_of(self, piece: slice) -> int:
        """Return the largest |cell| of a piece that was read."""
        return self._bounds[piece.start]

    def begin(self, *, again: bool) -> None:
        """Forget what an unfinished pass has seen; ``again`` where the file may be read after this one."""
        self._again = again
        for seen in (self._tags, self._bounds, self._runs):
            seen.clear()

    def finish(self) -> None:
        """Refuse the file unless the digest of all that was read is the one it carries."""
        assert self._agrees is not None, "a file is verified once"
        assert len(self._bounds) == -(-self.size // PIECE), "a pass reads every piece"
        if not self._agrees([self._runs[run].digest() for run in range(-(-self.size // RUN))]):
            raise FormatError(f"{self.name} is not a valid sketch file: its digest does not match: corrupt")
        if self._again:
            self.verified, self._runs, self._agrees = True, {}, None

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


@contextmanager
def one_pass(parts: Sequence[Int64 | FileCells], *, again: bool = True) -> Iterator[None]:
    """Let one pass over all pieces verify the files among the parts; nothing may leave before it has ended well.

    ``again`` is False where nobody is expected to read them after it: tags are spared, another pass verifies anew.
    """
    pending = [part for part in parts if isinstance(part, FileCells) and not part.verified]
    if not pending:
        yield
        return
    with _passing:
        for part in pending:
            part.begin(again=again)
        yield
        for part in pending:
            part.finish()


def add_up(parts: Sequence[Int64 | FileCells], piece: slice, out: Int64, spare: Int64) -> Int64:
    """Return the sum of a piece of all parts, in ``out``; the only part there is as it stands.

    Where bounds were not known beforehand, because a file is read for the first time, they are looked at here.
    """
    total: Int64 | None = None
    late = len(parts) > 1 and any(isinstance(part, FileCells) and not part.verified for part in parts)
    bound = 0
    for part in parts:
        if isinstance(part, FileCells):
            cells = part.read(piece, out if total is None else spare)
            bound += part.bound_of(piece) if late else 0
        else:
            cells = part[piece]
            bound += largest(cells) if late else 0
        if bound > LIMIT:
            raise InputError("counts must stay within 64 bits: a cell would overflow, so nothing was changed")
        total = cells if total is None else np.add(total, cells, out=out[: cells.size])
    assert total is not None, "there is a part"
    return total


def sum_of(parts: Sequence[Int64 | FileCells]) -> Int64:
    """Return the sum of several cells, whose sums are known to fit, in own memory."""
    whole = np.empty(parts[0].size, dtype=np.int64)

    def work(first: int) -> None:
        spare = np.empty(PIECE if len(parts) > 1 else 0, dtype=np.int64)
        for start in range(first, min(first + RUN, whole.size), PIECE):
            piece = slice(start, min(start + PIECE, whole.size))
            total = add_up(parts, piece, whole[piece], spare)
            if total.base is not whole:
                whole[piece] = total

    with one_pass(parts):
        on_all_processors(work, range(0, whole.size, RUN))
    return whole
