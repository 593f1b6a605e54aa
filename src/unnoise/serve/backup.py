"""Back-up and restore of a data folder with its embedded database.

A back-up is a tar file: a snapshot of the tables first (SQLite's VACUUM INTO, one transaction), then the files that its
rows name. Files never change and are there before their rows, so a back-up of a running server is whole. For Postgres
take the tables with pg_dump and the files with any copy of ``files/``, in this order.
"""

from __future__ import annotations

import os
import sqlite3
import tarfile
import tempfile
from contextlib import closing
from pathlib import Path

from ..errors import FormatError, InputError

__all__ = ["backup", "restore"]

DATABASE = "collector.db"


def backup(folder: str | os.PathLike[str], target: str | os.PathLike[str]) -> int:
    """Write a back-up of the folder; return how many reports it holds."""
    source = Path(folder)
    if not (source / DATABASE).is_file():
        raise InputError(f"the data folder must hold {DATABASE}, got {source}: with Postgres, use pg_dump")
    with tempfile.TemporaryDirectory(dir=source) as place:
        copy = Path(place) / DATABASE
        with closing(sqlite3.connect(source / DATABASE)) as connection:
            connection.execute("VACUUM INTO ?", [str(copy)])
        digests = _digests(copy)
        partly = Path(f"{os.fspath(target)}.part")
        with open(os.open(partly, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            with tarfile.open(fileobj=file, mode="w") as tar:
                tar.add(copy, DATABASE)
                for digest in digests:
                    name = f"files/{digest[:2]}/{digest}.sketch"
                    tar.add(source / name, name)
            file.flush()
            os.fsync(file.fileno())
    os.replace(partly, target)
    return len(digests)


def restore(source: str | os.PathLike[str], folder: str | os.PathLike[str]) -> int:
    """Unpack a back-up into a new or empty folder; return how many reports it holds."""
    target = Path(folder)
    if target.exists() and any(target.iterdir()):
        raise InputError(f"the data folder must be new or empty, got {target}")
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        with tarfile.open(source) as tar:
            tar.extractall(target, filter="data")
    except tarfile.TarError as error:
        raise FormatError(f"{os.fspath(source)}: not a back-up of a collector: {error}") from None
    if not (target / DATABASE).is_file():
        raise FormatError(f"{os.fspath(source)}: not a back-up of a collector: it holds no {DATABASE}")
    digests = _digests(target / DATABASE)
    missing = [digest for digest in digests if not (target / "files" / digest[:2] / f"{digest}.sketch").is_file()]
    if missing:
        raise FormatError(f"{os.fspath(source)}: {len(missing)} reports of its tables are missing")
    return len(digests)


def _digests(database: Path) -> list[str]:
    with closing(sqlite3.connect(database)) as connection:
        both = "select digest from reports union select digest from sums where digest <> '' order by digest"
        return [row[0] for row in connection.execute(both)]
