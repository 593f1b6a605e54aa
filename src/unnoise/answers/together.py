"""Simultaneous bands: intervals for many counts that hold all together in 95 % of the releases.

Of 61 intervals that each hold at 95 %, all hold together in 5–30 % of the releases: independent errors would leave
0.95⁶¹ = 4 %. A band takes single intervals at a higher level, which the largest of the standardised errors exceeds as
seldom as wanted. With R the correlations of the errors (neighbours share cells: −0.6 and the like), c is the quantile
of max |z_t|, z ~ Normal(0, R), by ``DRAWS`` draws of a fixed seed, and each interval is taken at 2Φ(c) − 1 [1]_. What
the single intervals do for few cells and at the edges they do here as well.

.. [1] Y. Hochberg, A. C. Tamhane, "Multiple Comparison Procedures", 1987, chapter 2.
.. [2] Z. Šidák, "Rectangular confidence regions for the means of multivariate normal distributions", JASA 62
   (1967) 626.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtr

from ..arrays import Floats, Int64
from ..errors import InputError
from .bands import NO_END

if TYPE_CHECKING:
    from .profile import Profile

__all__ = ["FEWEST_COUNTS", "MOST_COUNTS", "Band", "critical_level", "simultaneous_band"]

DRAWS = 8000
"""Draws behind a quantile of the largest error: its level is right to 0.25 % at 95 %."""

FEWEST_DRAWS = 40
"""Draws beyond a quantile without which it is not taken from them."""

MOST_COUNTS, FEWEST_COUNTS = 600, 8
"""Most counts of a band, and how many it has at least where nobody chose."""


@dataclass(frozen=True, eq=False)
class Band:
    """Intervals for the number of items at each of ``counts`` (or at least so many), all holding together at ``level``.

    single : the level each interval was taken at
    """

    counts: Int64
    value: Floats
    low: Floats
    high: Floats
    level: float
    single: float
    kind: str
    at_least: bool

    def __contains__(self, truth: Any) -> bool:
        """Whether all these numbers of items, one for each of ``counts``, lie within."""
        truth = np.asarray(truth, dtype=float)
        if truth.shape != self.counts.shape:
            raise InputError(f"truth must be one number for each of {self.counts.size} counts, got {truth.shape}")
        slack = 1e-9 * np.maximum(1.0, np.abs(truth))
        return bool(((self.low - slack <= truth) & (truth <= self.high + slack)).all())

    def to_dict(self) -> dict[str, Any]:
        """Return the band as plain Python."""
        return {
            "counts": self.counts.tolist(), "value": self.value.tolist(), "low": self.low.tolist(),
            "high": self.high.tolist(), "level": self.level, "kind": self.kind, "at_least": self.at_least,
        }  # fmt: skip


def simultaneous_band(profile: Profile, counts: Int64, level: float, *, at_least: bool) -> Band:
    """Return the intervals of a profile's own kind for these counts, at a level at which they hold together."""
    if counts.size > MOST_COUNTS:
        raise InputError(f"counts must be at most {MOST_COUNTS} for a simultaneous band, got {counts.size}")
    hi = np.full_like(counts, NO_END) if at_least else counts
    single = critical_level(profile._correlation(counts, hi), level)
    value, _, low, high = profile._answers(counts, hi, single, 1.0)
    if at_least:
        low, high = np.maximum.accumulate(low[::-1])[::-1], np.minimum.accumulate(high)
        low, high = np.minimum(low, value), np.maximum(high, value)
    return Band(counts, value, low, high, level, single, profile.kind, at_least)


def critical_level(correlation: Floats, level: float) -> float:
    """The level of single intervals at which all hold together at ``level``, for errors of these correlations.

    >>> round(critical_level(np.eye(1), 0.95), 2), bool(abs(critical_level(np.eye(20), 0.95) - 0.95 ** (1 / 20)) < 1e-3)
    (0.95, True)
    """
    if DRAWS * (1 - level) < FEWEST_DRAWS:  # errors of any correlation hold together at least as independent ones [2]_
        return float(min(level ** (1 / len(correlation)), 1 - 1e-12))
    value, vectors = np.linalg.eigh(correlation)
    factor = vectors * np.sqrt(np.maximum(value, 0))
    z = np.random.default_rng(0).standard_normal((DRAWS, value.size)) @ factor.T
    size = np.sqrt(np.maximum((factor**2).sum(axis=1), 1e-300))
    largest = np.abs(z / size).max(axis=1)
    single = 2 * float(ndtr(np.quantile(largest, level))) - 1
    return min(max(single, level), 1 - 1e-9)
