"""Write sketch files, atomically and in one pass over the cells.

A temporary file beside the target, fsync, rename, fsync of the directory: whatever happens, the old or the new file is
there, whole. The cells go out run by run on all processors, each run added up (where the cells are a sum), digested
and written while it is in the cache; nothing as long as the cells is held. What Arrow puts around them is written
last, because it holds the digest.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np

from ..._sampler import _system_stream as system_stream
from ...arrays import Int64
from ..cells import add_up
from .read import COLUMN, VERSION, Stored, digest_of_runs, each_run, parameters_of, raw_bytes

__all__ = ["require_writable", "write_sketch"]

PIECE = 1 << 18
"""Cells added up, digested and written at a time: they stay in the cache of one processor."""


def require_writable(path: str | os.PathLike[str]) -> None:
    """Refuse a path that cannot be written, before anything is done for it."""
    target = Path(path)
    parent = target.absolute().parent
    if target.is_dir():
        raise IsADirectoryError(f"path must be a file, got the directory {target}")
    if not parent.is_dir():
        raise FileNotFoundError(f"path must be in a directory that exists, got {target}")
    if not os.access(parent, os.W_OK):
        raise PermissionError(f"path must be in a directory that can be written, got {target}")


def write_sketch(path: str | os.PathLike[str], stored: Stored, others: tuple[Int64, ...] = ()) -> None:
    """Replace the file at ``path`` atomically; ``others`` are added to the cells on the way."""
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{system_stream().bits(64):016x}.tmp")
    try:
        _write(temporary, stored, (stored.cells, *others))
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    handle = os.open(target.absolute().parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _write(path: Path, stored: Stored, parts: tuple[Int64, ...]) -> None:
    """Write a new file and wait until it is on the disk."""
    parameters, count = parameters_of(stored), stored.cells.size
    start, _ = _surroundings(parameters, "0" * 64, count)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o666)
    try:
        digests = each_run(count, _Writer(handle, start, parts).write)
        _, around = _surroundings(parameters, digest_of_runs(parameters, digests), count)
        for position, piece in around:
            _write_at(handle, piece, position)
        os.fsync(handle)
    finally:
        os.close(handle)


class _Writer:
    """Adds up, digests and writes runs of cells, in any thread."""

    def __init__(self, handle: int, start: int, parts: tuple[Int64, ...]) -> None:
        self._handle, self._start, self._parts = handle, start, parts

    def write(self, run: slice) -> bytes:
        """Write a run where it belongs and return its SHA-256."""
        digest, memory = hashlib.sha256(), np.empty(PIECE, dtype=np.int64)
        for first in range(run.start, run.stop, PIECE):
            piece = slice(first, min(first + PIECE, run.stop))
            raw = raw_bytes(add_up([part[piece] for part in self._parts], memory[: piece.stop - first]))
            digest.update(raw)
            _write_at(self._handle, raw, self._start + 8 * first)
        return digest.digest()


def _write_at(handle: int, data: bytes | memoryview, position: int) -> None:
    """Write all of the data at a position."""
    rest = memoryview(data)
    while rest:
        written = os.pwrite(handle, rest, position)
        rest, position = rest[written:], position + written


def _surroundings(parameters: bytes, digest: str, count: int) -> tuple[int, list[tuple[int, bytes]]]:
    """Return where the cells begin in the file, and all that Arrow writes before and after them, with its positions.

    Arrow is given memory that nobody has touched, which therefore takes none, and hands it on without looking at it.
    """
    import pyarrow as pa

    metadata = {
        b"unnoise": b"sketch",
        b"unnoise.version": str(VERSION).encode(),
        b"unnoise.parameters": parameters,
        b"unnoise.digest": digest.encode(),
    }
    schema = pa.schema([pa.field(COLUMN, pa.int64(), nullable=False)], metadata=metadata)
    untouched = pa.py_buffer(np.empty(count, dtype="<i8"))
    column = pa.Array.from_buffers(pa.int64(), count, [None, untouched], null_count=0)
    sink = _Sink()
    with pa.PythonFile(sink, "w") as file, pa.ipc.new_file(file, schema) as writer:
        writer.write_batch(pa.record_batch([column], schema=schema))
    assert sink.body is not None, "Arrow writes the values of a column as one buffer"
    return sink.body, sink.pieces


class _Sink:
    """A file that keeps what is written into it, except for the one buffer of values."""

    closed = False

    def __init__(self) -> None:
        self.body: int | None = None
        self.pieces: list[tuple[int, bytes]] = []
        self._size = 0

    def write(self, data: Any) -> int:
        """Take note of a piece; values come as an Arrow buffer, all else as bytes."""
        if isinstance(data, bytes):
            self.pieces.append((self._size, data))
        else:
            self.body = self._size
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        """Return the position."""
        return self._size

    def flush(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""
        self.closed = True
