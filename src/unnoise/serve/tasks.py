"""What a collector gathers: a task, immutable once made.

A task fixes whatever must be equal for sketches to be added up — kind, cells, levels, hash seed, item types, ε and its
unit — and how reports are dated (``every``) and how many sites there must be before anything is answered. Its *digest*
is SHA-256 over its canonical JSON, so that two parties can tell whether they speak of the same task.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ..checks import check_integer
from ..errors import InputError
from ..layout import MOST_COUNTED, MOST_LEVELS, Layout, hashed_layout
from ..noise import DiscreteLaplace, exact_positive

__all__ = ["EVERY", "WAYS", "Task", "check_name"]

EVERY = ("once", "day", "week", "month")
"""How reports are dated."""

WAYS = ("sealed", "two-servers")
"""Sealed sketches of every site, merged; or shares of cells, added up by two servers that do not collude."""

NUMBERS = (
    ("levels", 1, MOST_LEVELS), ("hash_seed", 0, (1 << 64) - 1), ("min_sites", 1, 10_000), ("most_sums", 1, 1_000),
    ("max_contributions", 1, MOST_COUNTED), ("occurrences", 1, 1 << 62),
)  # fmt: skip
"""Numbers of a task, with the least and the most that each may be."""

MAY_BE_MISSING = ("max_contributions", "occurrences")
"""Those that may be None."""

ROOM = 1 << 20
"""Bytes that a sketch file may hold beside its cells."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_PERIODS = {
    "once": re.compile(r"once"), "day": re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}"),
    "week": re.compile(r"[0-9]{4}-W[0-9]{2}"),
    "month": re.compile(r"[0-9]{4}-[0-9]{2}"),
}  # fmt: skip


def check_name(what: str, value: object) -> str:
    """Return a name of a task, site or period that is safe in an address, a file name and a page.

    >>> check_name("site", "berlin-1")
    'berlin-1'
    """
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise InputError(
            f"{what} must be 1 to 64 letters, digits, dots, dashes or underscores and begin with a letter or digit, "
            f"got {value!r:.80}"
        )
    return value


@dataclass(frozen=True, kw_only=True)
class Task:
    """The public parameters of what is gathered.

    id : name in addresses; title : in words
    epsilon : ε as text, for one occurrence, or for one person in one report where ``max_contributions`` is set
    kind, cells, levels, hash_seed, item_types, max_contributions : the layout of every report
    every : "once", "day", "week" or "month"; min_sites : fewer are not answered
    noun : what an item is, in the singular; or in both, as in mouse/mice
    way : "sealed" or "two-servers"; most_sums : how many sums one report may enter (two servers)
    occurrences : how many a site expects to report (two servers): sums of few sites then come in fewer cells
    """

    id: str
    epsilon: str
    title: str = ""
    kind: str = "hashed"
    cells: int = 2**20
    levels: int = 1
    hash_seed: int = 0
    item_types: tuple[str, ...] = ("str",)
    max_contributions: int | None = None
    every: str = "once"
    min_sites: int = 1
    noun: str = "item"
    way: str = "sealed"
    most_sums: int = 1
    occurrences: int | None = None

    def __post_init__(self) -> None:
        check_name("id", self.id)
        for name, most in (("title", 200), ("noun", 40)):
            text = getattr(self, name)
            if not isinstance(text, str) or len(text) > most or not text.isprintable():
                raise InputError(f"{name} must be printable text of at most {most} characters, got {text!r:.80}")
        for name, low, most in NUMBERS:
            if name not in MAY_BE_MISSING or getattr(self, name) is not None:
                check_integer(name, getattr(self, name), low, most)
        if isinstance(self.cells, int) and self.cells > 1 << 28:
            raise InputError(f"cells must be at most 2^28 for a collector, got {self.cells}")
        for name, choices in (("every", EVERY), ("way", WAYS)):
            if getattr(self, name) not in choices:
                raise InputError(f"{name} must be one of {', '.join(choices)}, got {getattr(self, name)!r:.80}")
        if self.occurrences is not None and (self.way != "two-servers" or self.kind != "hashed"):
            raise InputError("occurrences must be left out unless the way is two-servers and cells are hashed")
        if self.occurrences is not None and self.every != "once":
            raise InputError("occurrences must be left out where every is not once: sums to be merged need equal cells")
        _ = self.layout, self.noise

    @property
    def nouns(self) -> str:
        """Several of what an item is."""
        from ..answers.questions import noun

        return noun(self.noun.strip("/ ") or "item").many

    @property
    def layout(self) -> Layout:
        """The layout that every report must have."""
        if self.kind == "hashed":
            return hashed_layout(
                self.cells, self.levels, hash_seed=self.hash_seed, item_types=tuple(self.item_types),
                max_contributions=self.max_contributions,
            )  # fmt: skip
        if self.kind == "known":
            return Layout(
                kind="known", cells=self.cells, domain=self.cells, item_types=("int",),
                max_contributions=self.max_contributions,
            )  # fmt: skip
        raise InputError(f"kind must be 'hashed' or 'known' (a domain 0…cells−1), got {self.kind!r:.80}")

    @property
    def noise(self) -> DiscreteLaplace:
        """The law of one noise."""
        return DiscreteLaplace(exact_positive("epsilon", self.epsilon) / (self.max_contributions or 1))

    @property
    def largest(self) -> int:
        """Most bytes a report can weigh."""
        return 8 * self.layout.cells + ROOM

    def for_servers(self, period: str) -> Any:
        """The task of the two servers for one period (:mod:`unnoise.protocols.shares`)."""
        from ..protocols.shares import Task as ShareTask

        epoch, least = f"{self.id} {self.check_period(period)}", max(2, self.min_sites)
        return ShareTask(self.layout, self.noise.epsilon, epoch, self.most_sums, least, self.occurrences)

    def layout_of(self, reports: int) -> Layout:
        """The layout of a file with so many shares of sites in it: a sum of few may have fewer cells."""
        if self.occurrences is None:
            return self.layout
        layout: Layout = self.for_servers("once").layout_of(reports)
        return layout

    def check_period(self, period: str) -> str:
        """Return a period of this task.

        >>> Task(id="t", epsilon="1", every="day").check_period("2026-11-16")
        '2026-11-16'
        """
        if _PERIODS[self.every].fullmatch(period) and _exists(self.every, period):
            return period
        form = {"once": "'once'", "day": "2026-01-31", "week": "2026-W05", "month": "2026-01"}[self.every]
        raise InputError(f"period must be of the form {form} for a task of every={self.every}, got {period!r:.80}")

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as in JSON; a guess that nobody made is left out."""
        values = {**asdict(self), "item_types": list(self.item_types)}
        return {name: value for name, value in values.items() if name != "occurrences" or value is not None}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Task:
        """Return the task of plain values; unknown names are refused."""
        unknown = set(values) - set(cls.__dataclass_fields__)
        if unknown:
            raise InputError(f"a task has no {', '.join(sorted(map(str, unknown)))[:200]}")
        if "id" not in values or "epsilon" not in values:
            raise InputError("a task must have an id and an epsilon")
        types = values.get("item_types", ("str",))
        if not isinstance(types, list | tuple):
            raise InputError(f"item_types must be a list such as ['str'], got {types!r:.80}")
        return cls(**{**values, "item_types": tuple(types), "epsilon": str(values["epsilon"])})

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON, hexadecimal."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()


def _exists(every: str, period: str) -> bool:
    """Whether the calendar has this period."""
    try:
        if every == "week":
            year, week = period.split("-W")
            datetime.date.fromisocalendar(int(year), int(week), 1)
        elif every != "once":
            datetime.date.fromisoformat(period if every == "day" else f"{period}-01")
    except ValueError:
        return False
    return True
