"""What is gathered: public parameters that sites, servers and collector share, fixed beforehand, and their messages.

With it the messages of the protocol: bytes of a fixed layout, checked whole before use, never pickled::

    4 bytes "UNSH" | 1 byte version | 1 byte kind | 4 bytes length of the head | head: canonical JSON
    | payload | 32 bytes SHA-256 of all before

Numbers are little-endian. Kinds: 1 task, 2 share of cells, 3 offer, 4 agreement, 5 answer. The digest finds damage, not
forgery: who sent a message is for the transport to prove (TLS), and nothing secret rests on it.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal, NoReturn

from ...checks import check_integer
from ...errors import FormatError, InputError
from ...layout import Account, Layout, enough_cells, hashed_layout
from ...noise import DiscreteLaplace, Exact, exact_positive
from ...sketches.format import read_layout

__all__ = ["Kind", "Task", "canonical", "digest_of", "pack", "read_account", "read_ids", "read_text", "unpack"]

Kind = Literal["task", "share", "offer", "agreement", "answer"]

MAGIC = b"UNSH"
VERSION = 1
KINDS: dict[Kind, int] = {"task": 1, "share": 2, "offer": 3, "agreement": 4, "answer": 5}
LONGEST_HEAD = 1 << 24
"""Bytes of a head: the ids of some 100,000 reports."""

ACCOUNT = {"calls", "promised", "as_items"}
ID = re.compile(r"[0-9a-f]{32}")
_START = struct.Struct("<4sBBI")


def canonical(values: Mapping[str, Any]) -> bytes:
    """Return JSON with sorted keys, no spaces, UTF-8."""
    return json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def digest_of(data: bytes) -> str:
    """Return SHA-256 as 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def pack(kind: Kind, head: Mapping[str, Any], payload: bytes | memoryview = b"") -> bytes:
    """Return a message."""
    text = canonical(head)
    body = b"".join([_START.pack(MAGIC, VERSION, KINDS[kind], len(text)), text, payload])
    return body + hashlib.sha256(body).digest()


def unpack(message: bytes, kind: Kind, name: str = "message") -> tuple[dict[str, Any], memoryview]:
    """Return head and payload of a message of this kind, or raise :class:`FormatError`, which calls it by ``name``."""
    if not isinstance(message, bytes | bytearray | memoryview):
        raise FormatError(f"{name} must be bytes, got {type(message).__name__}")
    data = memoryview(message)
    if len(data) < _START.size + 32:
        raise FormatError(f"{name} must be at least {_START.size + 32} bytes long, got {len(data)}")
    magic, version, number, length = _START.unpack_from(data)
    if magic != MAGIC or version != VERSION:
        raise FormatError(f"{name} must begin with UNSH and version {VERSION}, got {bytes(data[:5])!r}")
    if number != KINDS[kind]:
        raise FormatError(f"{name} must be of kind {KINDS[kind]} ({kind}), got {number}")
    end = _START.size + length
    if length > LONGEST_HEAD or end + 32 > len(data):
        raise FormatError(f"{name} must hold its head whole: truncated")
    if hashlib.sha256(data[:-32]).digest() != data[-32:]:
        raise FormatError(f"{name} must match its digest: damaged")
    return _read_head(bytes(data[_START.size : end])), data[end:-32]


def _read_head(text: bytes) -> dict[str, Any]:
    try:
        head = json.loads(text, parse_constant=_no_number)
        if isinstance(head, dict) and canonical(head) == text:
            return head
    except (ValueError, RecursionError) as error:  # lone surrogates come in as escapes and cannot go out again
        raise FormatError(f"head must be JSON: {error}") from None
    raise FormatError("head must be a JSON object with sorted keys and no spaces")


def _no_number(name: str) -> NoReturn:
    raise FormatError(f"head must be JSON, got {name}")


def read_text(head: Mapping[str, Any], name: str, form: re.Pattern[str] | None = None) -> str:
    """Return a text of the head, of the given form."""
    value = head.get(name)
    if not isinstance(value, str) or not (form.fullmatch(value) if form else 0 < len(value) <= 200):
        raise FormatError(f"{name} must be {'an id' if form else 'a text of 1 to 200 characters'}, got {value!r:.80}")
    return value


def read_ids(head: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return a list of report ids: sorted, distinct, not empty."""
    values = head.get(name)
    if not isinstance(values, list) or not all(isinstance(v, str) and ID.fullmatch(v) for v in values):
        raise FormatError(f"{name} must be a list of ids of 32 hexadecimal digits")
    if not values or sorted(set(values)) != values:
        raise FormatError(f"{name} must be sorted, distinct and at least one")
    return tuple(values)


def read_account(head: Mapping[str, Any]) -> Account:
    """Return what persons have spent."""
    spent = head.get("account")
    if not isinstance(spent, dict) or not {"calls", "promised"} <= set(spent) <= ACCOUNT:
        raise FormatError("account must hold calls and promised, and as_items or nothing else")
    try:
        return Account(**spent)
    except ValueError as error:
        raise FormatError(str(error)) from None


MOST_SUMS = 1000
"""Most sums that a report may be in: each costs ε."""


@dataclass(frozen=True)
class Task:
    """One epoch of counting together: what the cells are, ε, and the rules that both servers enforce.

    layout : what the cells are
    epsilon : ε for one occurrence in one asked sum
    epoch : the name of the period; a site gives one report for it
    sums : how many sums a report may be in; each costs its occurrences another ε
    least_sites : fewest sites in a sum
    occurrences : how many a site expects to report, a public guess; sums of few sites then come in fewer cells

    >>> Task.hashed(1024, epsilon=1, epoch="2026-11").noise
    DiscreteLaplace(epsilon=1)
    """

    layout: Layout
    epsilon: Fraction
    epoch: str
    sums: int = 1
    least_sites: int = 2
    occurrences: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.epoch, str) or not 0 < len(self.epoch) <= 200:
            raise InputError(f"epoch must be a text of 1 to 200 characters, got {self.epoch!r}")
        check_integer("sums", self.sums, 1, MOST_SUMS)
        check_integer("least_sites", self.least_sites, 1, 1 << 20)
        if self.layout.item_types is None:
            raise InputError("item_types must be declared for a task, got None")
        if self.occurrences is not None:
            check_integer("occurrences", self.occurrences, 1, 1 << 62)
            if self.layout.kind != "hashed":
                raise InputError(f"occurrences must be None for cells that are not hashed, got {self.occurrences}")

    @classmethod
    def hashed(
        cls, cells: int = 2**20, *, epsilon: Exact, epoch: str, levels: int | bool | None = None, hash_seed: int = 0,
        item_types: Iterable[str] = ("str",), max_contributions: int | None = None, sums: int = 1, least_sites: int = 2,
        occurrences: int | None = None,
    ) -> Task:  # fmt: skip
        """Return a task for items of any domain; arguments as for ``Sketch.hashed``.

        ``epsilon`` is for one occurrence, or for one person in one call when ``max_contributions`` is given.
        """
        layout = hashed_layout(
            cells, levels, hash_seed=hash_seed, item_types=tuple(item_types), max_contributions=max_contributions
        )
        one = exact_positive("epsilon", epsilon) / (max_contributions or 1)
        return cls(layout, one, epoch, sums, least_sites, occurrences)

    @classmethod
    def known(
        cls, domain: Any, *, epsilon: Exact, epoch: str, max_contributions: int | None = None, sums: int = 1,
        least_sites: int = 2,
    ) -> Task:  # fmt: skip
        """Return a task with one cell per item of a declared domain; arguments as for ``Sketch.known``."""
        from ...sketches.domain import read_domain

        declared = read_domain(domain)
        layout = Layout(
            kind="known", cells=declared.size, domain=declared.size, item_types=declared.types or ("int",),
            fingerprint=declared.fingerprint, max_contributions=max_contributions,
        )  # fmt: skip
        return cls(layout, exact_positive("epsilon", epsilon) / (max_contributions or 1), epoch, sums, least_sites)

    @property
    def noise(self) -> DiscreteLaplace:
        """The one whole noise that each server adds to a sum."""
        return DiscreteLaplace(self.epsilon)

    def layout_of(self, reports: int) -> Layout:
        """Return the layout of a sum of so many reports: as many cells as it needs, at most those of the task.

        Every cell of an answer costs two noises, so a sum of few sites is better told in fewer cells (a level): as many
        as the expected occurrences need behind them (:func:`~unnoise.layout.enough_cells`), most items occurring about
        twice. It depends on nothing but the task and the number of reports, so both servers come to the same.

        >>> task = Task.hashed(2**17, epsilon=1, epoch="2026-11", occurrences=20_000)
        >>> [task.layout_of(reports).cells for reports in (2, 3, 4, 20)]
        [32768, 32768, 65536, 131072]
        """
        size = self.layout.cells // self.layout.levels
        if self.occurrences is not None:
            expected = reports * self.occurrences
            size = min(size, enough_cells(2 * expected, expected, DiscreteLaplace(self.epsilon, 2)))
        return replace(self.layout, cells=size * self.layout.levels)

    @cached_property
    def id(self) -> str:
        """SHA-256 of the task as bytes: what every message names."""
        return digest_of(self.to_bytes())

    def to_bytes(self) -> bytes:
        """Return the task as a message."""
        layout = {field.name: getattr(self.layout, field.name) for field in fields(self.layout)}
        layout["rate"] = None if self.layout.rate is None else str(self.layout.rate)
        values = {
            "layout": layout, "epsilon": str(self.epsilon), "epoch": self.epoch, "sums": self.sums,
            "least_sites": self.least_sites,
        }  # fmt: skip
        if self.occurrences is not None:
            values["occurrences"] = self.occurrences
        return pack("task", values)

    @classmethod
    def from_bytes(cls, message: bytes) -> Task:
        """Return the task of a message, every value checked."""
        head, _ = unpack(message, "task")
        layout = head.get("layout")
        if not isinstance(layout, dict) or set(layout) != {field.name for field in fields(Layout)}:
            raise FormatError("layout must hold exactly the public parameters of a sketch")
        try:
            epsilon = exact_positive("epsilon", read_text(head, "epsilon"))
            rules = head["sums"], head["least_sites"], head.get("occurrences")
            return cls(read_layout(layout), epsilon, read_text(head, "epoch"), *rules)
        except (FormatError, KeyError, TypeError, ValueError, ZeroDivisionError) as error:
            raise FormatError(f"task is not valid: {error}") from None
