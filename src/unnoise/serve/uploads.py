"""Taking a report in: limited before it is read, hashed while it is written, whole on disk before it is looked at."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from anyio import to_thread

from ..guard import new_identity
from .problems import Problem

__all__ = ["ENCODINGS", "receive"]

PIECE = 1 << 18
"""Bytes of a body that are handled at a time, in a thread."""

UNPACKED = 1 << 20
"""Most bytes unpacked at a time."""


def _plain() -> tuple[Callable[[bytes, int], bytes], Callable[[], bytes]]:
    return (lambda data, most: data), (lambda: b"")


def _gzip() -> tuple[Callable[[bytes, int], bytes], Callable[[], bytes]]:
    """Return functions that unpack piece by piece, never more than asked for, and what is left over."""
    inflate = zlib.decompressobj(wbits=31)

    def unpack(data: bytes, most: int) -> bytes:
        return inflate.decompress(data, most)

    return unpack, lambda: inflate.unconsumed_tail


ENCODINGS: dict[str, Any] = {"identity": _plain, "gzip": _gzip}


async def receive(
    body: AsyncIterator[bytes], folder: Path, *, encoding: str, length: str | None, most: int, digest: str
) -> Path:
    """Write a body into a new file of the folder; refuse one that is too long or whose SHA-256 is another.

    encoding, length : the request's Content-Encoding and Content-Length; most : bytes that the file may have
    """
    if encoding not in ENCODINGS:
        raise Problem(
            415, "unknown encoding", f"Content-Encoding must be {' or '.join(ENCODINGS)}, got {encoding!r:.40}"
        )
    if length is not None and (not length.isdigit() or int(length) > most):
        raise Problem(413, "too long", f"a report of this task weighs at most {most:,} bytes, got {length:.20}")
    path = folder / new_identity().hex()
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        found = await _write(body, handle, encoding, most)
        await to_thread.run_sync(os.fsync, handle)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(handle)
    if found != digest:
        path.unlink(missing_ok=True)
        raise Problem(400, "another digest", f"the address names a file of SHA-256 {digest}, got one of {found}")
    return path


async def _write(body: AsyncIterator[bytes], handle: int, encoding: str, most: int) -> str:
    """Unpack and write, piece by piece and beside the event loop; return the SHA-256 of what was written."""
    sink, waiting = _Sink(handle, encoding, most), bytearray()
    async for data in body:
        waiting += data
        if len(waiting) >= PIECE:
            await to_thread.run_sync(sink.take, bytes(waiting))
            waiting.clear()
    await to_thread.run_sync(sink.take, bytes(waiting))
    return sink.digest.hexdigest()


class _Sink:
    """Unpacks, counts, hashes and writes what it is given."""

    def __init__(self, handle: int, encoding: str, most: int) -> None:
        self._unpack, self._rest = ENCODINGS[encoding]()
        self._handle, self._most, self._size = handle, most, 0
        self.digest = hashlib.sha256()

    def take(self, data: bytes) -> None:
        """Take packed bytes in; refuse what unpacks to more than may be."""
        while data:
            try:
                piece = self._unpack(data, UNPACKED)
            except zlib.error as error:
                raise Problem(400, "not gzip", f"the body must be gzip as its Content-Encoding says: {error}") from None
            data = self._rest()
            self._size += len(piece)
            if self._size > self._most:
                raise Problem(413, "too long", f"a report of this task weighs at most {self._most:,} bytes, got more")
            self.digest.update(piece)
            view = memoryview(piece)
            while view:
                view = view[os.write(self._handle, view) :]
