"""Files that are replaced as a whole: after a crash there is the old one or the new one.

A new file beside the target, under a name that nobody can guess and that must not exist yet (so no link that somebody
put there is followed), fsync, rename, fsync of the directory. Whatever fails removes it again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ._sampler import _system_stream as system_stream

__all__ = ["replacing", "sync_folder", "write_whole"]

NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[int]:
    """Yield the descriptor of a new file, which replaces the one at ``path`` when the block ends well."""
    target = Path(path)
    temporary = target.with_name(f".{target.name[:80]}.{system_stream().bits(64):016x}.tmp")
    handle = os.open(temporary, NEW, 0o666)
    try:
        try:
            yield handle
            os.fsync(handle)
        finally:
            os.close(handle)
        os.replace(temporary, target)
    except BaseException:
        with suppress(FileNotFoundError):
            temporary.unlink()
        raise
    sync_folder(target.absolute().parent)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_whole(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write a text or bytes into a file, whole or not at all."""
    rest = memoryview(content.encode() if isinstance(content, str) else content)
    with replacing(path) as handle:
        while rest:
            rest = rest[os.write(handle, rest) :]
