"""Sketch files: noisy cells and public parameters, nothing else.

A sketch file is an Arrow IPC file of one record batch with one column, ``noisy_count`` (int64, not null, not
compressed), whose schema metadata hold the parameters as JSON and a digest. docs/format.md specifies it to the byte.

Version 2 digests **every byte of the file** but the digest itself, so that no byte can change unnoticed; version 1
digested parameters and cells. In both, what a reader of streams and a reader of files would see must agree
(:mod:`unnoise.sketches.format.flatbuffer`), and only bytes that were read into own memory and hashed are ever used
(:mod:`unnoise.sketches.cells`). :mod:`unnoise.sketches.format.write` writes it.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import numpy as np

from ...arrays import Int64
from ...errors import FormatError
from ..cells import PIECE, RUN, FileCells, on_all_processors, one_pass, read_at, sum_of
from .flatbuffer import Frame, read_frame
from .parameters import Stored, parse_parameters

__all__ = ["RUN", "VERSION", "digest_of", "digest_of_runs", "each_run", "read_sketch", "stored_digest"]

VERSION = 2
SMALL = 1 << 17
"""Files of at most so many cells are read into memory at once, others stay on the disk until needed."""

R = TypeVar("R")


def digest_of(frame: Frame, digests: list[bytes]) -> str:
    """Return SHA-256 over all bytes of the file, the digest itself taken as 64 zeros and each run by its SHA-256."""
    head, tail = frame.with_digest("0" * 64)
    whole = hashlib.sha256(b"unnoise sketch 2\n" + len(head).to_bytes(8, "little") + head)
    whole.update(b"".join(digests))
    whole.update(tail)
    return whole.hexdigest()


def digest_of_runs(parameters: bytes, digests: list[bytes]) -> str:
    """Return the digest of version 1: SHA-256 over the parameters and the digests of all runs."""
    whole = hashlib.sha256(b"unnoise sketch 1\n" + len(parameters).to_bytes(8, "little") + parameters)
    whole.update(b"".join(digests))
    return whole.hexdigest()


def each_run(cells: int, work: Callable[[slice], R]) -> list[R]:
    """Return what ``work`` makes of every run of that many cells, in order, on all processors."""
    runs = [slice(start, min(start + RUN, cells)) for start in range(0, cells, RUN)]
    return on_all_processors(work, runs)


def read_sketch(path: str | os.PathLike[str], *, later: bool = False) -> Stored:
    """Check a sketch file whole and return what it holds (cells are read-only).

    ``later`` leaves the cells of a large file to the first pass over them, which verifies them.
    """
    name = os.fspath(path)
    handle = _open(name)
    try:
        with _errors_of_the_file(name):
            return _read(handle, name, later)
    finally:
        os.close(handle)


def stored_digest(path: str | os.PathLike[str]) -> str:
    """Return the digest that a sketch file carries, which tells its content; the cells are not read."""
    name = os.fspath(path)
    handle = _open(name)
    try:
        with _errors_of_the_file(name):
            return _read_around(handle).metadata[b"unnoise.digest"].decode("ascii")
    finally:
        os.close(handle)


def _open(name: str) -> int:
    """Open a regular file: nothing that blocks, like a pipe, and no device."""
    try:
        handle = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise FileNotFoundError(f"no such file: {name}") from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise FileNotFoundError(f"no such file: {name} is a folder, pipe or device")
    return handle


@contextmanager
def _errors_of_the_file(name: str) -> Iterator[None]:
    """Turn whatever parsing may raise into one kind of error that names the file."""
    try:
        yield
    except FormatError as error:
        text = str(error)
        raise FormatError(text if text.startswith(name) else f"{name} is not a valid sketch file: {text}") from None
    except (OSError, MemoryError, RecursionError, ValueError, struct.error) as error:
        raise FormatError(f"{name} is not a valid sketch file: {error}") from None


def _read_around(handle: int) -> Frame:
    """Return what stands around the cells."""

    def read(position: int, length: int) -> bytes:
        if position < 0 or length < 0 or position + length > size:
            raise FormatError("it must hold all its bytes: truncated")
        memory = bytearray(length)
        read_at(handle, position, memoryview(memory))
        return bytes(memory)

    size = os.fstat(handle).st_size
    return read_frame(read, size)


def _read(handle: int, name: str, later: bool) -> Stored:
    """Return what the file holds, verified."""
    frame = _read_around(handle)
    version, parameters = _version(frame), frame.metadata.get(b"unnoise.parameters", b"")
    public = parse_parameters(parameters, version)
    if public["layout"].cells != frame.rows:
        raise FormatError(f"its record batch must hold cells={public['layout'].cells}, got {frame.rows}")

    def agrees(digests: list[bytes]) -> bool:
        found = digest_of_runs(parameters, digests) if version == 1 else digest_of(frame, digests)
        return found.encode() == frame.metadata[b"unnoise.digest"]

    file = FileCells(handle, len(frame.head), frame.rows, name, agrees)
    return Stored(cells=_verify(file, later), **public)


def _version(frame: Frame) -> int:
    """Return a version that this unnoise can read."""
    version = frame.metadata.get(b"unnoise.version", b"")
    if not re.fullmatch(rb"[1-9][0-9]{0,8}", version):
        raise FormatError(f"its version must be a whole number, got {version[:20]!r}")
    if int(version) > VERSION:
        raise FormatError(f"its format version is {int(version)}, this unnoise reads up to {VERSION}: upgrade unnoise")
    return int(version)


def _verify(file: FileCells, later: bool) -> Int64 | FileCells:
    """Read all cells once and return them: in memory where they are few, else in the file."""
    if file.size <= SMALL or not file.keep():
        held = sum_of([file])
        held.flags.writeable = False
        return held
    if later:
        return file

    def work(run: slice) -> None:
        memory = np.empty(min(PIECE, run.stop - run.start), dtype="<i8")
        for start in range(run.start, run.stop, PIECE):
            file.read(slice(start, min(start + PIECE, run.stop)), memory)

    with one_pass([file]):
        each_run(file.size, work)
    return file
