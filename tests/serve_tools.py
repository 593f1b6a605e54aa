"""A real collector on loopback for the tests, and reports to send."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np

from unnoise import Sketch
from unnoise.serve.client import Client

CELLS = 2**12


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """A collector in a process of its own."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder, self.port, self.options = folder, free_port(), options
        self.address = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        return ["-m", "unnoise", "serve", "--data", str(self.folder), "--port", str(self.port)]

    def start(self) -> None:
        with open(self.folder.with_suffix(".log"), "ab") as log:
            self.process = subprocess.Popen([sys.executable, *self.command(), *self.options], stdout=log, stderr=log)
        end = time.monotonic() + 600
        while time.monotonic() < end:
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{self.address}/readyz", trust_env=False).status_code == 200:
                    return
            assert self.process.poll() is None, self.log()
            time.sleep(0.05)
        raise AssertionError(f"the server did not become ready: {self.log()}")

    def log(self) -> str:
        return self.folder.with_suffix(".log").read_text()

    def stop(self, how: int = signal.SIGTERM) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait(600)

    @property
    def token(self) -> str:
        return (self.folder / "administrator.token").read_text().strip()

    def client(self, token: str | None = None, **options: object) -> Client:
        return Client(self.address, token or self.token, **options)  # type: ignore[arg-type]


@contextlib.contextmanager
def running(folder: Path, *options: str) -> Iterator[Server]:
    server = Server(folder, *options)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def made_report(path: Path, *, seed: int = 0, epsilon: object = 1, cells: int = CELLS, rows: int = 3000) -> Path:
    """A sealed sketch of some integers."""
    sketch = Sketch.hashed(cells, epsilon=epsilon, item_types=["int"])
    sketch.update(np.random.default_rng(seed).integers(0, 2000, rows))
    sketch.save(path)
    return path


@contextlib.contextmanager
def postgres() -> Iterator[str]:
    """A fresh Postgres server on loopback; yields the address of an empty database."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    assert found, "the tests need Debian's postgresql: scripts/install_debian.sh installs it"
    place, port = Path(tempfile.mkdtemp(prefix="unnoise-pg-")), free_port()
    as_postgres = {}
    if os.getuid() == 0:  # Postgres refuses to run as root
        owner = pwd.getpwnam("postgres")
        os.chown(place, owner.pw_uid, owner.pw_gid)
        as_postgres = {"user": owner.pw_uid, "group": owner.pw_gid}
    run = {"check": True, "cwd": place, "stdout": subprocess.DEVNULL, **as_postgres}
    options = f"-p {port} -k {place} -c listen_addresses=127.0.0.1 -c fsync=off"
    try:
        subprocess.run([found[-1] / "initdb", "-N", "-D", place / "db", "-U", "unnoise", "-A", "trust"], **run)
        subprocess.run(
            [found[-1] / "pg_ctl", "-D", place / "db", "-o", options, "-w", "-l", place / "log", "start"], **run
        )
        try:
            yield f"postgresql://unnoise@127.0.0.1:{port}/postgres"
        finally:
            subprocess.run([found[-1] / "pg_ctl", "-D", place / "db", "-m", "immediate", "stop"], **run)
    finally:
        shutil.rmtree(place, ignore_errors=True)
