"""A collector for the commands that talk to one: the same address on both sides of a pair."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from serve_tools import Server, free_port


@lru_cache(maxsize=1)
def port() -> int:
    """The port of this process."""
    return free_port()


@contextlib.contextmanager
def collector(folder: Path) -> Iterator[Callable[[str], list[str]]]:
    """Run an empty collector; yields a function that fills addresses and tokens into a command."""
    shutil.rmtree(folder, ignore_errors=True)
    server = Server(folder)
    server.port, server.address = port(), f"http://127.0.0.1:{port()}"
    server.start()
    try:
        with server.client() as client:
            (folder / "site.token").write_text(client.make_token("site", "a"))
        to = f"--to {server.address} --token-file {folder}"
        yield lambda words: words.format(to=f"{to}/administrator.token", site=f"{to}/site.token").split()
    finally:
        server.stop()
