"""The directory of a server: every fact is one file that is there, whole, or is not.

::

    server              the task and which side this server is
    reports/ID.head     a report has arrived (what both shares say of it)
    reports/ID.share    its share; gone when its sums are spent
    sums/ID.answer      a noised answer, which counts against the reports it names
    closed              the epoch has ended

A file is written under a temporary name, flushed to the disk and renamed, so whenever the process is killed the old
or the new state is there; what is unfinished was never sent and is removed at the next start. A share is overwritten
before it is removed (which on some file systems and disks does not erase it: docs/sites.md).
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from ...errors import InputError

__all__ = ["Disk"]

PARTS = ("reports", "sums")


class Disk:
    """Files of one server; one process at a time."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.root = Path(directory)
        for part in PARTS:
            (self.root / part).mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise InputError(f"directory must be used by one server at a time, got {self.root}, in use") from None
        for folder in (self.root, *(self.root / part for part in PARTS)):
            for unfinished in folder.glob("*.tmp"):
                unfinished.unlink()

    def release(self) -> None:
        """Let another process have the directory."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def has(self, name: str) -> bool:
        """Tell whether a file is there."""
        return (self.root / name).exists()

    def read(self, name: str) -> bytes:
        """Return what a file holds."""
        return (self.root / name).read_bytes()

    def names(self, part: str, ending: str) -> list[str]:
        """Return the ids of the files of a part with this ending."""
        return sorted(path.name[: -len(ending)] for path in (self.root / part).glob(f"*{ending}"))

    def write(self, name: str, data: bytes | memoryview) -> None:
        """Put a file there, whole."""
        target = self.root / name
        temporary = target.with_name(target.name + ".tmp")
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(handle, rest) :]
            os.fsync(handle)
        finally:
            os.close(handle)
        os.replace(temporary, target)
        self._flush(target.parent)

    def remove(self, name: str) -> None:
        """Take a file away."""
        (self.root / name).unlink(missing_ok=True)
        self._flush((self.root / name).parent)

    def wipe(self, name: str) -> None:
        """Overwrite a file with zeros and take it away."""
        target = self.root / name
        if target.exists():
            handle = os.open(target, os.O_WRONLY | os.O_CLOEXEC)
            try:
                left = os.fstat(handle).st_size
                while left:
                    left -= os.write(handle, bytes(min(left, 1 << 20)))
                os.fsync(handle)
            finally:
                os.close(handle)
            self.remove(name)

    @staticmethod
    def _flush(folder: Path) -> None:
        handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
