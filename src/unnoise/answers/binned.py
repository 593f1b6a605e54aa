"""The numbers behind a picture of a profile: two curves with their intervals, on few enough points to look at.

Far out single counts hold less than one item each, so counts are gathered in ranges first..last that widen
geometrically; a range is shown by the mean number of items for each t in it. The interval of the mean is that of
the range's total, divided by its width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..arrays import Floats, Int64
from .bands import NO_END

if TYPE_CHECKING:
    from .profile import Profile

__all__ = ["Curve", "at_least_curve", "count_ranges", "exact_curve", "true_curve"]


SINGLE = 16
"""Counts up to here are shown one by one."""
WIDEN = 1.3
"""How much farther the next range begins after that."""


@dataclass(frozen=True, eq=False)
class Curve:
    """A curve with its band: ``value[i]`` items for each count in ``first[i]``..``last[i]``."""

    first: Int64
    last: Int64
    value: Floats
    low: Floats
    high: Floats

    @property
    def x(self) -> Floats:
        """Where to draw each range: its geometric middle."""
        return np.asarray(np.sqrt(self.first.astype(float) * self.last))


def count_ranges(largest: int) -> tuple[Int64, Int64]:
    """Split 1..largest into single counts and then ever wider ranges.

    >>> first, last = count_ranges(30)
    >>> first[-4:].tolist(), last[-4:].tolist()
    ([16, 17, 23, 30], [16, 22, 29, 30])
    """
    starts = list(range(1, min(SINGLE, largest) + 1))
    while starts[-1] < largest:
        begin = starts[-1] + 1 if len(starts) == SINGLE else int(np.ceil(starts[-1] * WIDEN))
        if begin > largest:
            break
        starts.append(begin)
    first = np.array(starts, dtype=np.int64)
    return first, np.append(first[1:] - 1, max(largest, 1)).astype(np.int64)


def largest_shown(profile: Profile) -> int:
    """Return the largest count that at least half an item is expected to reach."""
    reached = np.cumsum((profile.mass * profile.items)[::-1])[::-1]
    support = profile.support[reached >= 0.5]
    return max(int(support[-1]) if support.size else 1, 2)


def exact_curve(profile: Profile, level: float = 0.95) -> Curve:
    """Return the number of items that occur exactly t times, averaged over ranges of t."""
    first, last = count_ranges(largest_shown(profile))
    value, _, low, high = profile._answers(first, last, level, 1.0)
    width = last - first + 1
    return Curve(first, last, value / width, low / width, high / width)


def at_least_curve(profile: Profile, level: float = 0.95) -> Curve:
    """Return the number of items that occur at least k times."""
    first, _ = count_ranges(largest_shown(profile))
    value, _, low, high = profile._answers(first, np.full_like(first, NO_END), level, 1.0)
    return Curve(first, first, value, low, high)


def true_curve(counts: Int64, curve: Curve, *, at_least: bool) -> Floats:
    """Return what a curve should show, from the true counts of the items."""
    ordered = np.sort(counts)
    from_first = counts.size - np.searchsorted(ordered, curve.first, side="left")
    if at_least:
        return np.asarray(from_first, dtype=float)
    beyond = counts.size - np.searchsorted(ordered, curve.last, side="right")
    return np.asarray((from_first - beyond) / (curve.last - curve.first + 1))
