"""From exact counts to the noisy curve: block sums, then one noise on every number.

Secret side: the exact curve exists in this module only, between :func:`block_sums` and the noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from .._sampler import fill, open_stream
from ..arrays import Int64
from ..checks import check_integer
from ..curve import TOP, NoisyCurve, Released, limited_blocks
from ..errors import InputError, PrivacyError
from ..noise import DiscreteLaplace, Exact, exact_positive

__all__ = ["Exactly", "Unit", "block_sums", "release"]


HALF = 28
"""Bits of the lower half of a count's place in its block: sums of 2³³ halves still fit into 64 bits."""


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
    profiles: Mapping[str, Exactly], unit: Unit, epsilon: Exact, *, for_tests: bool = False
) -> dict[str, NoisyCurve]:
    """Put noise on the curve of every group; ε is for all of them together."""
    changes = unit.changes(len(profiles))
    noise = DiscreteLaplace(exact_positive("epsilon", epsilon) / changes)
    stream = open_stream()
    if stream.label is not None and not for_tests:
        raise PrivacyError(f"noise must come from the operating system to be released, got noise {stream.label}")
    first, last = limited_blocks(unit.released, unit.most if unit.released == "exactly" else None)
    curves = {}
    for name, profile in profiles.items():
        noises = np.empty(first.size, dtype=np.int64)
        fill(noises, noise, stream)
        sums = block_sums(profile, first, last, unit.released)
        numbers = np.array([_saturated(exact + int(z)) for exact, z in zip(sums, noises)], dtype=np.int64)
        curves[name] = NoisyCurve(
            first.copy(), last.copy(), numbers, noise, unit.released, unit.most, changes, unit.persons, stream.label
        )
    return curves


def _saturated(number: int) -> int:
    """Bring a sum into 64 bits, noise included: a function of what would be released anyway."""
    return max(-(1 << 63), min(number, (1 << 63) - 1))


def block_sums(profile: Exactly, first: Int64, last: Int64, released: Released) -> list[int]:
    """Return Σ S(t) or Σ f[t] over each block, exactly, as whole numbers of at most 2⁶².

    A count above the last block is taken as its end. An item with count h adds min(h − first + 1, width) to the sum
    of S over a block that begins at or below h.

    >>> profile = Exactly(np.array([2, 5]), np.array([10, 1]))
    >>> block_sums(profile, np.array([1, 2, 3]), np.array([1, 2, 6]), "at_least")
    [11, 11, 3]
    >>> block_sums(profile, np.array([1, 2, 3]), np.array([1, 2, 3]), "exactly")
    [0, 10, 1]
    """
    counts = np.minimum(profile.counts, last[-1])
    edge = np.concatenate([[0], np.searchsorted(counts, last, side="right")])
    running = np.concatenate([[0], np.cumsum(profile.items)])
    inside = np.diff(running[edge])
    if released == "exactly":
        return [min(int(n), TOP) for n in inside]
    beyond = running[-1] - running[edge[1:]]
    place = counts - np.repeat(first, np.diff(edge)) + 1
    low = _sums(profile.items * (place & ((1 << HALF) - 1)), edge)
    high = _sums(profile.items * (place >> HALF), edge)
    width = last - first + 1
    return [
        min((int(h) << HALF) + int(lo) + int(n) * int(w), TOP) for h, lo, n, w in zip(high, low, beyond, width)
    ]


def _sums(values: Int64, edge: NDArray[np.intp]) -> Int64:
    """Add up the values between edges (differences of running sums are right even where these wrap around)."""
    return np.diff(np.concatenate([[0], np.cumsum(values)])[edge])
