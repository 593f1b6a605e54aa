"""The collector: brings two servers to one set of reports, and adds their answers to a sealed sketch of power 2.

A server may be a process of its own, which exchanges nothing but bytes through its pipes. A request is one frame (8
bytes of length, little-endian, then that many bytes): the name of what is asked, a newline, and its argument. The reply
is a frame that begins with "+" and the result, or with "-" and an error in one line.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np

from ...errors import FormatError, IncompatibleError, InputError, UnnoiseError
from ...layout import fresh_labels
from ...noise import DiscreteLaplace
from ...sketches.format import Stored
from ...sketches.sketch import Sketch
from ..two_party import FramedProcess, read_frame, write_frame
from .server import Server, require_cells
from .task import ID, Task, read_account, read_ids, read_text, unpack

__all__ = ["Adder", "ServerProcess", "add_up", "combine", "common_reports"]

LARGEST = 1 << 62
"""No honest sum has a cell beyond ±2⁶²; where masks do not cancel, half of all cells have."""


class Adder(Protocol):
    """What the collector needs of a server, here or in another process."""

    def offer(self) -> bytes:
        """Return which reports it holds."""

    def agree(self, reports: Iterable[str]) -> bytes:
        """Return its word on a set."""

    def answer(self, agreement: bytes) -> bytes:
        """Return its noised sum."""


def add_up(task: Task, first: Adder, second: Adder, reports: Iterable[str] | None = None) -> Sketch:
    """Return the sum over the reports that both servers hold (of those asked for), as a sealed sketch.

    A report that only one of them has, or that they were told differently, is left out. Neither is asked for an answer
    before both have said that they give as many cells as are expected here.
    """
    ids = common_reports(first.offer(), second.offer()) if reports is None else set(reports)
    words = first.agree(ids), second.agree(ids)
    for word in words:
        require_cells(task, unpack(word, "agreement")[0], task.layout_of(len(ids)).cells)
    return combine(task, first.answer(words[1]), second.answer(words[0]))


def common_reports(first: bytes, second: bytes) -> set[str]:
    """Return the ids of the reports that two offers hold alike."""
    one, two = (unpack(offer, "offer")[0].get("reports") for offer in (first, second))
    if not isinstance(one, dict) or not isinstance(two, dict):
        raise FormatError("reports must be given with their digests")
    return {name for name in one.keys() & two.keys() if one[name] == two[name]}


def combine(task: Task, first: bytes, second: bytes) -> Sketch:
    """Return the sealed sketch of two answers to one sum, which carries its report ids.

    Refuses answers of other tasks, of one side, of different sets, and answers that do not cancel each other's masks:
    a server that added another set than it says.
    """
    heads, cells = zip(*(_read(task, answer) for answer in (first, second)))
    for name in ("reports", "sites", "epoch", "account"):
        if heads[0].get(name) != heads[1].get(name):
            raise IncompatibleError(name, heads[0].get(name), heads[1].get(name))
    if sorted(str(head.get("side")) for head in heads) != ["difference", "seed"]:
        raise InputError(f"answers must be of both sides, got {heads[0].get('side')!r} and {heads[1].get('side')!r}")
    identities = frozenset(bytes.fromhex(read_text(head, "identity", ID)) for head in heads)
    if len(identities) != 2:
        raise FormatError("two answers must carry two noises, got one identity twice")
    total = (cells[0] + cells[1]).view(np.int64)
    if int(total.max()) > LARGEST or int(total.min()) < -LARGEST:
        raise FormatError("the answers do not fit each other: one server did not add the shares of the agreed reports")
    said = {"report_ids": read_ids(heads[0], "reports"), "site": _sites(heads[0]), "period": (task.epoch,)}
    layout, noise = task.layout_of(len(said["report_ids"])), DiscreteLaplace(task.epsilon, 2)
    labels, account = fresh_labels(said, layout), read_account(heads[0])
    return Sketch.from_public(Stored(total, noise, layout, account, identities, labels))


def _sites(head: dict[str, Any]) -> tuple[str, ...]:
    sites = head.get("sites")
    if not isinstance(sites, list) or not all(isinstance(site, str) and site for site in sites):
        raise FormatError("sites must be a list of names")
    return tuple(sorted(sites))


def _read(task: Task, answer: bytes) -> tuple[dict[str, Any], Any]:
    head, payload = unpack(answer, "answer")
    if head.get("task") != task.id:
        raise IncompatibleError("task", task.id, head.get("task"))
    expected = task.layout_of(len(read_ids(head, "reports"))).cells
    if len(payload) != 8 * expected:
        raise FormatError(f"an answer must hold {expected} cells, got {len(payload)} bytes")
    return head, np.frombuffer(payload, dtype="<u8").astype(np.uint64)


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


class ServerProcess(FramedProcess):
    """The server in a directory, run by a process of its own; the same methods as :class:`Server`."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        super().__init__("the server's process", "shares.combining.serve", os.fspath(directory))

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
        self._send(f"{what}\n".encode() + argument)
        reply = self._heard()
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
