"""The cells of a sketch: int64 modulo 2^64, added up in blocks, in memory, in a file or in several of them.

**Arithmetic.** No function that adds looks at a cell to decide whether to go on: a refusal would tell what the cell
holds. (Noise modulo 2^64 is a function of noise, so a sum that wraps is as private as any.) Where cells are public
already, :class:`Held` looks first and refuses what would wrap.

**Files.** Cells stay in their file until they are needed, without ever trusting the file twice. Another process may
write into a file, or cut it short, after its digest was verified; a mapping of it would then show other cells, or end
this process (SIGBUS). So nothing is mapped. While the digest is computed, every piece of the file gets a tag, GMAC
under a key that never leaves this object (NIST SP 800-38D); whenever a piece is needed again it is read into own memory
and must have its tag. What is used is what was hashed, or nothing: two files are merged into a third without either
being held, and a file changed meanwhile is refused. A tag costs a tenth of a digest.

A file is verified when it is loaded, or (:func:`one_pass`) by the very pass that uses it, whose result must not leave
before the digest agrees: merging then reads every file once, without tags, and whoever wants more of it verifies anew.

**Sums.** Two sealed sketches merge without their sum being held: it is added up piece by piece on the way into a file
(:func:`unnoise.sketches.format.write_sketch`), or when somebody asks for the cells.
"""

from __future__ import annotations

import hashlib
import os
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import RLock
from typing import Any, TypeVar

import numpy as np

from .._sampler import Keystream, fill
from ..arrays import Int64
from ..errors import FormatError, InputError
from ..guard import wipe
from ..noise import DiscreteLaplace

__all__ = [
    "LIMIT", "PIECE", "RUN", "FileCells", "Held", "add_cells", "add_noise", "add_up", "each_run", "largest",
    "one_pass", "read_at", "sum_of",
]  # fmt: skip

R = TypeVar("R")

BLOCK = 1 << 16
SPAN = 1 << 22
"""Cells that one thread adds up at a time; a whole number of blocks."""

PIECE = 1 << 16
"""Cells in a piece: it stays in the cache of one processor while it is read, added up, digested and written."""

RUN = 1 << 20
"""Cells in a run: each run of the file has a digest of its own, so that all cores can work on it."""

LIMIT = (1 << 63) - 1


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

    def work(run: slice) -> None:
        for start in range(run.start, run.stop, BLOCK):
            stop = start + BLOCK
            np.add(left[start:stop], right[start:stop], out=out[start:stop])

    each_run(left.size, work, SPAN)


def each_run(cells: int, work: Callable[[slice], R], length: int = RUN) -> list[R]:
    """Return what ``work`` makes of every run of so many cells, in order, on all processors."""
    runs = [slice(start, min(start + length, cells)) for start in range(0, cells, length)]
    if len(runs) <= 1:  # needs no threads
        return [work(run) for run in runs]
    with ThreadPoolExecutor(min(os.cpu_count() or 1, len(runs))) as pool:
        return list(pool.map(work, runs))


def largest(cells: Int64) -> int:
    """Return max |cell|, in blocks, on all processors where it is worth it."""

    def work(run: slice) -> int:
        bound = 0
        for start in range(run.start, run.stop, BLOCK):
            block = cells[start : start + BLOCK]
            bound = max(bound, int(block.max()), -int(block.min()))
        return bound

    return max(each_run(cells.size, work, SPAN), default=0)


MOST_OPEN = 128
"""Files kept open at a time; the cells of any more are held in memory."""

_passing = RLock()
_kept: weakref.WeakSet[FileCells] = weakref.WeakSet()


def read_at(handle: int, position: int, out: memoryview) -> None:
    """Fill the memory from a position of a file."""
    while out:
        got = os.preadv(handle, [out], position)
        if not got:
            raise FormatError("it must hold all its bytes: truncated")
        out, position = out[got:], position + got


@dataclass(eq=False)
class Seen:
    """What a pass over a file has seen: tag and largest |cell| of every piece, and the digest of every run.

    again : whether the file may be read after this pass, so that tags are needed
    """

    again: bool = True
    tags: dict[int, bytes] = field(default_factory=dict)
    bounds: dict[int, int] = field(default_factory=dict)
    runs: dict[int, Any] = field(default_factory=dict)


class FileCells:
    """The cells of a file, which stays open until forgotten.

    agrees : tells whether the SHA-256 of all runs are those that the digest in the file stands for
    verified : whether it did, in a pass that left tags for others to come
    seen : what the last pass that verified, or is about to, has seen
    """

    def __init__(self, handle: int, start: int, size: int, name: str, agrees: Callable[[list[bytes]], bool]) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self.size, self.name, self.verified = size, name, False
        self.agrees: Callable[[list[bytes]], bool] | None = agrees
        self._handle, self._start = os.dup(handle), start
        self._key = AESGCM(Keystream().words(4).tobytes())
        self.seen = Seen()
        weakref.finalize(self, os.close, self._handle)

    @property
    def bound(self) -> int:
        """The largest |cell| of all pieces seen."""
        return max(self.seen.bounds.values(), default=0)

    def read(self, piece: slice, out: Int64) -> Int64:
        """Return a piece (a whole one, from a multiple of ``PIECE``) in own memory, exactly as it was verified.

        Until then: as it is now, to be verified at the end of :func:`one_pass`; the pieces of a run must come in order.
        """
        cells, seen = out[: piece.stop - piece.start], self.seen
        raw = cells.view(np.uint8).data
        try:
            read_at(self._handle, self._start + 8 * piece.start, raw)
        except FormatError as error:
            invalid = FormatError(f"{self.name} is not a valid sketch file: {error}")
            raise (self._changed() if self.verified else invalid) from None
        if not self.verified:
            if seen.again:
                seen.tags[piece.start] = self._tag(piece.start, raw)
            seen.bounds[piece.start] = largest(cells)
            seen.runs.setdefault(piece.start // RUN, hashlib.sha256()).update(raw)
        elif self._tag(piece.start, raw) != seen.tags.get(piece.start):
            raise self._changed()
        return cells

    def verify(self) -> None:
        """Read all cells once, for whoever needs them later."""

        def work(run: slice) -> None:
            memory = np.empty(min(PIECE, run.stop - run.start), dtype=np.int64)
            for start in range(run.start, run.stop, PIECE):
                self.read(slice(start, min(start + PIECE, run.stop)), memory)

        with one_pass([self]):
            each_run(self.size, work)

    def keep(self) -> bool:
        """Ask whether this file may stay open."""
        if len(_kept) >= MOST_OPEN:
            return False
        _kept.add(self)
        return True

    def _tag(self, start: int, raw: memoryview) -> bytes:
        return self._key.encrypt(start.to_bytes(12, "little"), b"", raw)

    def _changed(self) -> FormatError:
        return FormatError(f"{self.name} must stay as it was when it was verified: somebody has changed it since")


def _unverified(parts: Sequence[Int64 | FileCells]) -> list[FileCells]:
    """Return the files whose first pass, which looks at their bounds as well, is still to come."""
    return [part for part in parts if isinstance(part, FileCells) and not part.verified]


@contextmanager
def one_pass(parts: Sequence[Int64 | FileCells], *, again: bool = True) -> Iterator[None]:
    """Let one pass over all pieces verify the files among the parts; nothing may leave before it has ended well.

    ``again`` is False where nobody is expected to read them after it: tags are spared, another pass verifies anew.
    """
    pending = _unverified(parts)
    if not pending:
        yield
        return
    with _passing:
        for part in pending:
            part.seen = Seen(again)  # nothing of a pass that did not end
        yield
        for part in pending:
            assert part.agrees is not None, "a file is verified once"
            assert len(part.seen.bounds) == -(-part.size // PIECE), "a pass reads every piece"
            if not part.agrees([part.seen.runs[run].digest() for run in range(-(-part.size // RUN))]):
                raise FormatError(f"{part.name} is not a valid sketch file: its digest does not match: corrupt")
            if again:
                part.verified, part.seen.runs, part.agrees = True, {}, None


def add_up(parts: Sequence[Int64 | FileCells], piece: slice, out: Int64, spare: Int64) -> Int64:
    """Return the sum of a piece of all parts, in ``out``; the only part there is as it stands.

    Where bounds were not known beforehand, because a file is read for the first time, they are looked at here.
    """
    total: Int64 | None = None
    late = len(parts) > 1 and _unverified(parts)
    bound = 0
    for part in parts:
        if isinstance(part, FileCells):
            cells = part.read(piece, out if total is None else spare)
            bound += part.seen.bounds[piece.start] if late else 0
        else:
            cells = part[piece]
            bound += largest(cells) if late else 0
        if bound > LIMIT:
            raise InputError("counts must stay within 64 bits: a cell would overflow, so nothing was changed")
        total = cells if total is None else np.add(total, cells, out=out[: cells.size])
    assert total is not None, "there is a part"
    return total


def sum_of(parts: Sequence[Int64 | FileCells], *, again: bool = True) -> Int64:
    """Return the sum of several cells, whose sums are known to fit, in own memory that is read-only.

    ``again`` as in :func:`one_pass`.
    """
    whole = np.empty(parts[0].size, dtype=np.int64)

    def work(run: slice) -> None:
        spare = np.empty(PIECE if len(parts) > 1 else 0, dtype=np.int64)
        for start in range(run.start, run.stop, PIECE):
            piece = slice(start, min(start + PIECE, run.stop))
            total = add_up(parts, piece, whole[piece], spare)
            if total.base is not whole:
                whole[piece] = total

    with one_pass(parts, again=again):
        each_run(whole.size, work)
    whole.flags.writeable = False
    return whole


# ── where the cells of a sketch are ─────────────────────────────────────────────────────────────────────────────────


@dataclass(eq=False)
class Held:
    """Cells whose sum is the state of a sketch.

    parts : arrays, or cells in files
    shared : whether somebody else sees the memory of the first part, so that it must not change
    bound : at least the largest |cell| where cells are public and somebody has looked, else None
    """

    parts: tuple[Int64 | FileCells, ...]
    shared: bool = False
    bound: int | None = None

    def array(self) -> Int64:
        """Return all cells in memory; read-only unless the sketch is open."""
        first = self.parts[0]
        if len(self.parts) > 1 or isinstance(first, FileCells):
            first = sum_of(self.parts)
            self.parts, self.shared = (first,), False
        return first

    def writeable(self) -> Int64:
        """Return where new cells may be written: the memory of the old ones, unless somebody else sees it."""
        cells = self.array()
        if self.shared:
            return np.empty_like(cells)
        cells.flags.writeable = True
        return cells

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
        if not _unverified(self.parts):
            self.bound = bound
        return bound

    def with_noise(self, noise: DiscreteLaplace, stream: Keystream) -> Held:
        """Return the cells under fresh noise, in the old memory where that is possible."""
        cells = self.array()
        out = self.writeable()
        add_noise(cells, out, noise, stream)
        return Held((out,))

    def plus(self, other: Held, *, later: bool) -> Held:
        """Return the sum of both, in the old memory where that is possible; ``later`` where neither will change."""
        if later and self.shared:
            other.shared = True
            both = (*self.parts, *other.parts)
            bound = None if _unverified(both) else self.largest() + other.largest()
            return Held(both, shared=True, bound=bound)
        left, right = self.array(), other.array()
        out = self.writeable()
        add_cells(left, right, out)
        out.flags.writeable = not later
        return Held((out,))
