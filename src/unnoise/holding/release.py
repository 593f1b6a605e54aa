"""From exact counts to the noisy curve: the boxes of columns and rows, then one noise on every number.

Secret side: the exact curve exists in this module only, between its sums and their noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from .._sampler import fill, open_stream
from ..arrays import Int64
from ..checks import check_integer
from ..curve import TOP, NoisyCurve, Released, exact_numbers, limited_blocks, rank_blocks
from ..errors import InputError, PrivacyError
from ..noise import DiscreteLaplace, Exact, exact_positive

__all__ = ["Exactly", "Unit", "release"]


@dataclass(frozen=True, eq=False)
class Exactly:
    """The exact profile, secret: ``items[i]`` items have count ``counts[i]``; counts ascending, from 1 to 2⁶²."""

    counts: Int64
    items: Int64


@dataclass(frozen=True, kw_only=True)
class Unit:
    """What ε protects.

    persons : "" for one occurrence, "limited" or "promised" for persons with at most ``most`` occurrences over all
        groups together, "items" where each item is a person
    """

    persons: Literal["", "limited", "promised", "items"] = ""
    most: int | None = None

    def __post_init__(self) -> None:
        if self.most is not None:
            check_integer("max_contributions", self.most, 1)
        if self.persons in ("limited", "promised") and self.most is None:
            raise InputError("person needs max_contributions: how many occurrences of a person may count")

    @property
    def released(self) -> Released:
        """Noise goes on f where the item is the person, else on S."""
        return "exactly" if self.persons == "items" else "at_least"

    def changes(self, groups: int) -> int:
        """Return how far one unit moves all released numbers together.

        >>> Unit().changes(3), Unit(persons="limited", most=5).changes(3), Unit(persons="items", most=2).changes(3)
        (1, 5, 2)
        """
        if self.persons == "items":
            return groups if self.most is None else min(groups, self.most)
        return self.most or 1


def release(
    profiles: Mapping[str, Exactly], unit: Unit, epsilon: Exact, *, top: int | None = None, for_tests: bool = False
) -> dict[str, NoisyCurve]:
    """Put noise on the curve of every group; ε is for all of them together. Counts above ``top`` are taken as that."""
    changes = unit.changes(len(profiles))
    noise = DiscreteLaplace(exact_positive("epsilon", epsilon) / changes)
    stream = open_stream()
    if stream.label is not None and not for_tests:
        raise PrivacyError(f"noise must come from the operating system to be released, got noise {stream.label}")
    limits = [top, unit.most if unit.released == "exactly" else None]
    first, last = limited_blocks(unit.released, min((t for t in limits if t is not None), default=None))
    curves = {}
    groups = rank_blocks(first, last)[0].size if unit.released == "at_least" else 0
    for name, profile in profiles.items():
        noises = np.empty(first.size + groups, dtype=np.int64)
        fill(noises, noise, stream)
        columns, rows = exact_numbers(profile.counts, profile.items, first, last, unit.released, top or TOP)
        numbers = np.array([_saturated(e + int(z)) for e, z in zip([*columns, *rows], noises)], dtype=np.int64)
        curves[name] = NoisyCurve(
            first.copy(), last.copy(), numbers[: first.size].copy(), noise, unit.released, unit.most, changes,
            unit.persons, stream.label, numbers[first.size :].copy(),
        )  # fmt: skip
    return curves


def _saturated(number: int) -> int:
    """Bring a sum into 64 bits, noise included: a function of what would be released anyway."""
    return max(-(1 << 63), min(number, (1 << 63) - 1))
