"""Write sketch files, atomically (:mod:`unnoise.guard`) and in one pass over the cells.

The cells go out run by run on all processors, each run added up (where the cells are a sum), digested
and written while it is in the cache; nothing as long as the cells is held. The disk is told to begin with every run, so
that it works while others are digested. What Arrow puts around them is written last, because it holds the digest.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from typing import Any

import numpy as np

from ...arrays import Int64
from ...errors import InputError
from ...guard import replacing
from ..cells import PIECE, FileCells, add_up, one_pass, raw_bytes
from .flatbuffer import COLUMN, MOST_PARAMETERS, Frame, read_frame
from .parameters import Stored, parameters_of
from .read import VERSION, digest_of, each_run

__all__ = ["require_storable", "write_sketch"]


def require_storable(stored: Stored) -> bytes:
    """Return the parameters for the file, or refuse those that no reader would accept."""
    parameters = parameters_of(stored)
    if len(parameters) > MOST_PARAMETERS:
        raise InputError(
            f"parameters must be at most 1 MB, got {len(parameters):,} bytes: "
            f"{len(stored.identities):,} noises and their labels are too many for one file"
        )
    return parameters


def write_sketch(
    path: str | os.PathLike[str], stored: Stored, others: tuple[Int64 | FileCells, ...] = ()
) -> None:
    """Replace the file at ``path`` atomically; ``others`` are added to the cells on the way."""
    frame = _frame(require_storable(stored), stored.cells.size)
    start, parts = len(frame.head), (stored.cells, *others)

    def write(run: slice) -> bytes:
        """Add up a run, in any thread, write it where it belongs and return its SHA-256."""
        digest, memory = hashlib.sha256(), np.empty((2, PIECE), dtype=np.int64)
        for first in range(run.start, run.stop, PIECE):
            raw = raw_bytes(add_up(parts, slice(first, min(first + PIECE, run.stop)), memory[0], memory[1]))
            digest.update(raw)
            _write_at(handle, raw, start + 8 * first)
        if hasattr(os, "posix_fadvise"):  # let the disk begin with it; fsync waits for what is left
            with suppress(OSError):
                length = 8 * (run.stop - run.start)
                os.posix_fadvise(handle, start + 8 * run.start, length, os.POSIX_FADV_DONTNEED)
        return digest.digest()

    with replacing(path) as handle:
        with one_pass(parts, again=False):
            digests = each_run(frame.rows, write)
        head, tail = frame.with_digest(digest_of(frame, digests))
        _write_at(handle, head, 0)
        _write_at(handle, tail, start + 8 * frame.rows)


def _write_at(handle: int, data: bytes | memoryview, position: int) -> None:
    """Write all of the data at a position."""
    rest = memoryview(data)
    while rest:
        written = os.pwrite(handle, rest, position)
        rest, position = rest[written:], position + written


def _frame(parameters: bytes, count: int) -> Frame:
    """Return all that Arrow writes before and after so many cells, the digest still 64 zeros.

    Arrow is given memory that nobody has touched, which therefore takes none, and hands it on without looking at it.
    """
    import pyarrow as pa

    metadata = {
        b"unnoise": b"sketch",
        b"unnoise.version": str(VERSION).encode(),
        b"unnoise.parameters": parameters,
        b"unnoise.digest": b"0" * 64,
    }
    schema = pa.schema([pa.field(COLUMN, pa.int64(), nullable=False)], metadata=metadata)
    untouched = pa.py_buffer(np.empty(count, dtype="<i8"))
    column = pa.Array.from_buffers(pa.int64(), count, [None, untouched], null_count=0)
    sink = _Sink()
    with pa.PythonFile(sink, "w") as file, pa.ipc.new_file(file, schema) as writer:
        writer.write_batch(pa.record_batch([column], schema=schema))
    return read_frame(sink.read, sink.tell())


class _Sink:
    """A file that keeps what is written into it, except for the one buffer of values."""

    closed = False

    def __init__(self) -> None:
        self._sides: list[bytearray] = [bytearray(), bytearray()]
        self._values = 0

    def write(self, data: Any) -> int:
        """Take a piece; values come as an Arrow buffer, all else as bytes."""
        if isinstance(data, bytes):
            self._sides[self._values > 0] += data
        else:
            assert not self._values, "Arrow writes the values of a column as one buffer"
            self._values = len(data)
        return len(data)

    def read(self, position: int, length: int) -> bytes:
        """Return bytes that stand before or after the values."""
        head, tail = self._sides
        if position + length <= len(head):
            return bytes(head[position : position + length])
        start = position - len(head) - self._values
        return bytes(tail[start : start + length])

    def tell(self) -> int:
        """Return the position."""
        return len(self._sides[0]) + self._values + len(self._sides[1])

    def flush(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""
        self.closed = True
