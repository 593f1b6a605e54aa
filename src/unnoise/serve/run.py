"""Starting a server, one to a data folder, on loopback or behind TLS; back-up and restore of its folder.

A back-up is a tar file: a snapshot of the tables first (SQLite's VACUUM INTO, one transaction), then the files that its
rows name. Files never change and are there before their rows, so a back-up of a running server is whole. For Postgres
take the tables with pg_dump and the files with any copy of ``files/``, in this order.
"""

from __future__ import annotations

import fcntl
import ipaddress
import logging
import os
import resource
import shutil
import socket
import sqlite3
import ssl
import sys
import tarfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import FormatError, InputError
from ..guard import SECRET, clear_leftovers, replacing, temporary, write_whole
from . import DATABASE

if TYPE_CHECKING:
    from ..protocols.shares.server import Side
    from .store import Store

__all__ = ["backup", "restore", "serve"]


def serve(
    folder: str | os.PathLike[str],
    *,
    host: str = "127.0.0.1",
    port: int = 8400,
    database: str | None = None,
    certificate: str | None = None,
    key: str | None = None,
    behind_proxy: bool = False,
    side: Side | None = None,
    servers: str | os.PathLike[str] | None = None,
    new_token: bool = False,
) -> None:
    """Run a collector until it is told to stop; with ``side``, one of the two servers that hold shares."""
    _require_cover(host, certificate, key, behind_proxy)
    _require_free(host, port)
    import uvicorn

    from .app import make_app
    from .sums import read_servers

    _log_as_json()
    _allow_many_files()
    with _alone(Path(folder)):
        store = _with_tables(folder, database)
        first = _first_token(store, anew=new_token)
        secure = certificate is not None or behind_proxy
        two = None if servers is None else read_servers(Path(servers))
        config = uvicorn.Config(
            make_app(store, secure=secure, side=side, servers=two), host=host, port=port, ssl_certfile=certificate,
            ssl_keyfile=key,
            log_config=None, access_log=False, server_header=False, date_header=False, timeout_graceful_shutdown=5,
            proxy_headers=behind_proxy, lifespan="on", timeout_keep_alive=30,
        )  # fmt: skip
        what = "collector" if side is None else f"{side} server"
        scheme = "https" if certificate else "http"
        named = f"[{host}]" if ":" in host else host
        print(f"unnoise {what} at {scheme}://{named}:{port}", flush=True)
        if first is not None:
            print(f"administrator's token in {first} (make others with: unnoise token create)", flush=True)
        uvicorn.Server(config).run()


def _require_cover(host: str, certificate: str | None, key: str | None, behind_proxy: bool) -> None:
    """Refuse to listen to other machines in the clear."""
    if (certificate is None) != (key is None):
        raise InputError("--certificate and --key must be given together")
    if certificate is not None:
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key)
        except OSError as error:
            raise InputError(
                f"--certificate and --key must be a certificate and its key, got {certificate} and {key}: "
                f"{error.strerror or error}"
            ) from None
    try:
        local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = host == "localhost"
    if not local and certificate is None and not behind_proxy:
        raise InputError(
            f"a host other than this machine needs --certificate and --key, or --behind-proxy where a proxy in front "
            f"speaks TLS, got --host {host}"
        )


def _require_free(host: str, port: int) -> None:
    """Refuse an address that cannot be listened on, before a folder is made for it."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        raise InputError(f"the address must be free to listen on, got {host}:{port}: {error.strerror}") from None


def _with_tables(folder: str | os.PathLike[str], database: str | None) -> Store:
    """Open what the collector keeps; a database that is out of reach is no fault of ours."""
    from sqlalchemy.exc import OperationalError

    from .store import Store

    if database is not None and not (database.startswith("postgres") and "://" in database):
        raise InputError("--database must begin with postgresql://, got something else")
    try:
        return Store(folder, database)
    except OperationalError as error:
        raise InputError(f"the database must be reachable: {error.orig}") from None


def _first_token(store: Store, *, anew: bool = False) -> Path | None:
    """Make an administrator's token where none is valid, or another one (``anew``); return the file it is in.

    It is valid once the file is on the disk, so whoever is killed in between has no token that nobody knows.
    """
    if not anew and any(one["role"] == "administrator" and one["revoked"] is None for one in store.tokens()):
        return None
    path = store.folder / "administrator.token"
    store.make_token("administrator", None, "start", lambda token: write_whole(path, f"{token}\n", SECRET))
    return path


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the folder: a second server on it would sweep the first one's uploads away."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(folder / "lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(f"the data folder must not be in use, got {folder}: another server holds it") from None
        yield


def _allow_many_files() -> None:
    """Have as many files open as the system lets us: every period of a share server holds one, for years of days."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


class _Json(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        import json

        message = record.getMessage()
        values: dict[str, Any] = {"at": self.formatTime(record), "level": record.levelname, "from": record.name}
        values |= json.loads(message) if record.name == "unnoise.serve.access" else {"message": message}
        if record.exc_info:
            values["fault"] = self.formatException(record.exc_info)
        return json.dumps(values)


def _log_as_json() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json())
    for name in ("unnoise.serve", "uvicorn.error"):
        log = logging.getLogger(name)
        log.handlers, log.propagate = [handler], False
        log.setLevel(logging.INFO if name.startswith("unnoise") else logging.WARNING)


def backup(folder: str | os.PathLike[str], target: str | os.PathLike[str], *, new: bool = False) -> int:
    """Write a back-up of the folder, not over a file that is there if it is to be ``new``; return its reports."""
    source = Path(folder)
    if not (source / DATABASE).is_file():
        raise InputError(f"the data folder must hold {DATABASE}, got {source}: with Postgres, use pg_dump")
    if (source / "shares").exists():
        raise InputError(
            f"the data folder must be a collector's, got {source} of a server of shares: one that forgets its latest "
            f"answers would give a second noise for the same cells, so it is never backed up; sites send shares anew"
        )
    for place in (source / DATABASE, target):
        clear_leftovers(place)
    with temporary(source / DATABASE) as (copy, _):
        with closing(sqlite3.connect(source / DATABASE)) as connection:
            connection.execute("VACUUM INTO ?", [str(copy)])
        digests = _digests(copy)
        with replacing(target, SECRET, new=new) as handle, open(handle, "wb", closefd=False) as file:
            with tarfile.open(fileobj=file, mode="w") as tar:
                tar.add(copy, DATABASE)
                for digest in digests:
                    name = f"files/{digest[:2]}/{digest}.sketch"
                    tar.add(source / name, name)
            file.flush()
    return len(digests)


def restore(source: str | os.PathLike[str], folder: str | os.PathLike[str]) -> int:
    """Unpack a back-up into a new or empty folder; return how many reports it holds."""
    target = Path(folder)
    if target.exists() and any(target.iterdir()):
        raise InputError(f"the data folder must be new or empty, got {target}")
    made = not target.exists()
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        return _unpack(source, target)
    except BaseException:
        for left in target.iterdir():
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        if made:
            target.rmdir()
        raise


def _unpack(source: str | os.PathLike[str], target: Path) -> int:
    """Unpack a back-up into an empty folder and see that it is whole; return how many reports it holds."""
    try:
        with tarfile.open(source) as tar:
            tar.extractall(target, filter="data")
        if not (target / DATABASE).is_file():
            raise FormatError(f"{os.fspath(source)}: not a back-up of a collector: it holds no {DATABASE}")
        digests = _digests(target / DATABASE)
    except (tarfile.TarError, sqlite3.DatabaseError) as error:
        raise FormatError(f"{os.fspath(source)}: not a back-up of a collector: {error}") from None
    missing = [digest for digest in digests if not (target / "files" / digest[:2] / f"{digest}.sketch").is_file()]
    if missing:
        raise FormatError(f"{os.fspath(source)}: {len(missing)} reports of its tables are missing")
    return len(digests)


def _digests(database: Path) -> list[str]:
    with closing(sqlite3.connect(database)) as connection:
        both = "select digest from reports union select digest from sums where digest <> '' order by digest"
        return [row[0] for row in connection.execute(both)]
