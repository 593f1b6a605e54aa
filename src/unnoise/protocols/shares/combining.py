"""The collector: brings two servers to one set of reports, and adds their answers to a sealed sketch of power 2."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np

from ...errors import FormatError, IncompatibleError
from ...noise import DiscreteLaplace
from ...sketches.format.parameters import Stored, fresh_labels
from ...sketches.sketch import Sketch
from .messages import ID, read_account, read_ids, read_text, unpack
from .task import Task

__all__ = ["Adder", "add_up", "combine", "common_reports"]

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

    A report that only one of them has, or that they were told differently, is left out.
    """
    ids = common_reports(first.offer(), second.offer()) if reports is None else set(reports)
    words = first.agree(ids), second.agree(ids)
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
        raise IncompatibleError("sides", heads[0].get("side"), heads[1].get("side"), "they must be the two sides")
    identities = frozenset(bytes.fromhex(read_text(head, "identity", ID)) for head in heads)
    if len(identities) != 2:
        raise FormatError("two answers must carry two noises, got one identity twice")
    total = (cells[0] + cells[1]).view(np.int64)
    if int(total.max()) > LARGEST or int(total.min()) < -LARGEST:
        raise FormatError("the answers do not fit each other: one server did not add the shares of the agreed reports")
    said = {"report_ids": read_ids(heads[0], "reports"), "site": _sites(heads[0]), "period": (task.epoch,)}
    labels = fresh_labels(said, task.layout)
    noise, account = DiscreteLaplace(task.epsilon, 2), read_account(heads[0])
    return Sketch.from_public(Stored(total, noise, task.layout, account, identities, labels))


def _sites(head: dict[str, Any]) -> tuple[str, ...]:
    sites = head.get("sites")
    if not isinstance(sites, list) or not all(isinstance(site, str) and site for site in sites):
        raise FormatError("sites must be a list of names")
    return tuple(sorted(sites))


def _read(task: Task, answer: bytes) -> tuple[dict[str, Any], Any]:
    head, payload = unpack(answer, "answer")
    if head.get("task") != task.id:
        raise IncompatibleError("task", task.id, head.get("task"))
    if len(payload) != 8 * task.layout.cells:
        raise FormatError(f"an answer must hold {task.layout.cells} cells, got {len(payload)} bytes")
    return head, np.frombuffer(payload, dtype="<u8").astype(np.uint64)
