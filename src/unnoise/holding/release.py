"""From exact counts to the noisy curve: the boxes of columns and rows, then one noise on every number.

Secret side: the exact curve exists in this module only, between its sums and their noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from .._sampler import fill, open_stream
from ..arrays import Int64
from ..checks import check_integer
from ..curve import ALL_GROUPS, TOP, NoisyCurve, Released, exact_numbers, limited_blocks, rank_blocks
from ..errors import InputError, PrivacyError
from ..noise import DiscreteLaplace, Exact, exact_positive

__all__ = ["Exactly", "Unit", "release", "share_of_all"]


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


def share_of_all(all_groups: Exact | None, groups: Sequence[Any] | None) -> Fraction | None:
    """Return the share of ε that all groups together take, None where they have no row of their own.

    >>> share_of_all("1/4", ["a", "b"])
    Fraction(1, 4)
    """
    if all_groups is None:
        return None
    if groups is None:
        raise InputError("all_groups needs groups: without them all rows are one profile")
    share = exact_positive("all_groups", all_groups)
    if share >= 1:
        raise InputError(f"all_groups must be a share of ε below 1, which leaves the rest to the groups, got {share}")
    if ALL_GROUPS in groups:
        raise InputError(f"groups must not hold {ALL_GROUPS!r} where all_groups adds a row of that name")
    return share


def release(
    profiles: Mapping[str, Exactly], unit: Unit, epsilon: Exact, *, whole: Fraction | None = None,
    top: int | None = None, for_tests: bool = False,
) -> dict[str, NoisyCurve]:  # fmt: skip
    """Put noise on the curve of every group; ε is for all of them together. Counts above ``top`` are taken as that.

    The same rows are in their group and in the profile named :data:`~unnoise.curve.ALL_GROUPS`, if there is one: two
    releases, of which that takes the share ``whole`` of ε and the groups the rest, so that they add up to ε.
    """
    groups = len(profiles) - (whole is not None)
    exact = exact_positive("epsilon", epsilon)
    group = _Part.of(exact, 1 - (whole or Fraction(0)), unit, groups)
    together = _Part.of(exact, whole or Fraction(1), unit, 1)
    stream = open_stream()
    if stream.label is not None and not for_tests:
        raise PrivacyError(f"noise must come from the operating system to be released, got noise {stream.label}")
    limits = [top, unit.most if unit.released == "exactly" else None]
    first, last = limited_blocks(unit.released, min((t for t in limits if t is not None), default=None))
    curves = {}
    ranks = rank_blocks(first, last)[0].size if unit.released == "at_least" else 0
    for name, profile in profiles.items():
        all_of_them = whole is not None and name == ALL_GROUPS
        part = together if all_of_them else group
        noises = np.empty(first.size + ranks, dtype=np.int64)
        fill(noises, part.noise, stream)
        columns, rows = exact_numbers(profile.counts, profile.items, first, last, unit.released, top or TOP)
        numbers = np.array([_saturated(e + int(z)) for e, z in zip([*columns, *rows], noises)], dtype=np.int64)
        curves[name] = NoisyCurve(
            first.copy(), last.copy(), numbers[: first.size].copy(), part.noise, unit.released, unit.most,
            part.changes, unit.persons, stream.label, numbers[first.size :].copy(), part.share, all_of_them,
        )  # fmt: skip
    return curves


@dataclass(frozen=True)
class _Part:
    """One of the releases that divide ε: its share, how far a unit moves its numbers, and so their noise."""

    share: Fraction
    changes: int
    noise: DiscreteLaplace

    @classmethod
    def of(cls, epsilon: Fraction, share: Fraction, unit: Unit, groups: int) -> _Part:
        changes = unit.changes(groups)
        return cls(share, changes, DiscreteLaplace(epsilon * share / changes))


def _saturated(number: int) -> int:
    """Bring a sum into 64 bits, noise included: a function of what would be released anyway."""
    return max(-(1 << 63), min(number, (1 << 63) - 1))
