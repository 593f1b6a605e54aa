"""What is gathered: public parameters that sites, servers and collector share, fixed before anybody counts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cached_property
from typing import Any

from ...checks import check_integer
from ...errors import FormatError, InputError
from ...layout import Layout, hashed_layout
from ...noise import DiscreteLaplace, Exact, exact_positive
from .messages import digest_of, pack, read_text, unpack

__all__ = ["Task"]

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

    >>> Task.hashed(1024, epsilon=1, epoch="2026-11").noise
    DiscreteLaplace(epsilon=1)
    """

    layout: Layout
    epsilon: Fraction
    epoch: str
    sums: int = 1
    least_sites: int = 2

    def __post_init__(self) -> None:
        if not isinstance(self.epoch, str) or not 0 < len(self.epoch) <= 200:
            raise InputError(f"epoch must be a text of 1 to 200 characters, got {self.epoch!r}")
        check_integer("sums", self.sums, 1, MOST_SUMS)
        check_integer("least_sites", self.least_sites, 1, 1 << 20)
        if self.layout.item_types is None:
            raise InputError("item_types must be declared for a task, got None")

    @classmethod
    def hashed(
        cls, cells: int = 2**20, *, epsilon: Exact, epoch: str, levels: int | bool | None = None, hash_seed: int = 0,
        item_types: Iterable[str] = ("str",), max_contributions: int | None = None, sums: int = 1, least_sites: int = 2,
    ) -> Task:  # fmt: skip
        """Return a task for items of any domain; arguments as for ``Sketch.hashed``.

        ``epsilon`` is for one occurrence, or for one person in one call when ``max_contributions`` is given.
        """
        layout = hashed_layout(
            cells, levels, hash_seed=hash_seed, item_types=tuple(item_types), max_contributions=max_contributions
        )
        return cls(layout, exact_positive("epsilon", epsilon) / (max_contributions or 1), epoch, sums, least_sites)

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
        return pack("task", values)

    @classmethod
    def from_bytes(cls, message: bytes) -> Task:
        """Return the task of a message, every value checked."""
        head, _ = unpack(message, "task")
        layout = head.get("layout")
        if not isinstance(layout, dict) or set(layout) != {field.name for field in fields(Layout)}:
            raise FormatError("layout must hold exactly the public parameters of a sketch")
        try:
            types, rate = layout["item_types"], layout["rate"]
            share = None if rate is None else exact_positive("rate", rate)
            public = {**layout, "item_types": tuple(types), "rate": share}
            epsilon = exact_positive("epsilon", read_text(head, "epsilon"))
            return cls(Layout(**public), epsilon, read_text(head, "epoch"), head["sums"], head["least_sites"])
        except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
            raise FormatError(f"task is not valid: {error}") from None
