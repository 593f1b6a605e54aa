"""A server in a process of its own, which exchanges nothing but bytes through its pipes.

A request is one frame (8 bytes of length, little-endian, then that many bytes): the name of what is asked, a newline,
and its argument. The reply is a frame that begins with "+" and the result, or with "-" and an error in one line.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from types import TracebackType

from ...errors import UnnoiseError
from ..two_party import _read as read_frame
from ..two_party import _write as write_frame
from .server import Server

__all__ = ["ServerProcess"]

REQUESTS: dict[str, Callable[[Server, bytes], bytes]] = {
    "receive": lambda server, message: server.receive(message).encode(),
    "offer": lambda server, _: server.offer(),
    "agree": lambda server, ids: server.agree(ids.decode("ascii").split()),
    "answer": lambda server, agreement: server.answer(agreement),
    "close": lambda server, _: _closed(server),
}


def _closed(server: Server) -> bytes:
    server.close()
    return b""


class ServerProcess:
    """The server in a directory, run by a process of its own; the same methods as :class:`Server`."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        code = "from unnoise.protocols.shares.pipes import serve; serve()"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, os.fspath(directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()

    def receive(self, message: bytes) -> str:
        """Let the server take a share in."""
        return self._ask("receive", message).decode()

    def offer(self) -> bytes:
        """Return which reports the server holds."""
        return self._ask("offer")

    def agree(self, reports: Iterable[str]) -> bytes:
        """Return the server's word on a set."""
        return self._ask("agree", " ".join(reports).encode())

    def answer(self, agreement: bytes) -> bytes:
        """Return the server's noised sum."""
        return self._ask("answer", agreement)

    def close(self) -> None:
        """Let the server end the epoch."""
        self._ask("close")

    def _ask(self, what: str, argument: bytes = b"") -> bytes:
        write_frame(self.process.stdin, f"{what}\n".encode() + argument)
        reply = read_frame(self.process.stdout, "the server's process")
        if reply[:1] != b"+":
            raise UnnoiseError(reply[1:].decode("utf-8", "replace"))
        return reply[1:]


def serve() -> None:
    """Answer requests on standard input until it ends."""
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    with Server.open(sys.argv[1]) as server:
        while request := read_frame(source, "standard input", may_end=True):
            what, _, argument = request.partition(b"\n")
            try:
                reply = b"+" + REQUESTS[what.decode("ascii", "replace")](server, argument)
            except (UnnoiseError, KeyError, UnicodeDecodeError) as error:
                reply = f"-{type(error).__name__}: {error}".encode()
            write_frame(sink, reply)
