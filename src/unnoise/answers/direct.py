"""Answers from a noisy curve: numbers of items and sums over them, with intervals that need no assumption.

**Items with count ≥ t** ("at_least"). For a block of its own, S(t) = y − Z exactly, so S̃ ± q with q the smallest whole
number that |Z| exceeds with probability ≤ 1 − level is a finite-sample interval; noise being whole, it covers more than
nominal (97.3 % at ε = 1). Within a wider block S lies between its neighbours: at most the mean of the last block that
ends at or before t, at least the mean of the first that begins at or after t. Differences S(lo) − S(hi + 1) carry two
noises, whose exact law is the noise of power 2; where a wider block is involved each side takes half the error.

**"exactly"** (noise on f): the sum of n numbers carries the noise of power n; blocks inside the range bound from below,
blocks that meet it from above.

**Σ g(h)** = Σ_t (g(t) − g(t−1))·S(t), g(0) = 0, is Σ_j c_j·y_j with c_j the slope of g's chord over block j, up to
M (:mod:`unnoise.estimators.falling`): unbiased but for what the chord misses, at most the largest distance of g from
its chord for every item in the block, which widens the interval. Four cumulants of the noise make the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Floats, Int64
from ..curve import TOP, NoisyCurve
from ..errors import InputError
from ..estimators._fit import Notice
from ..estimators.falling import falling, largest_count, spread, upper_quantile
from ..estimators.linear import Function
from .bands import NO_END, Limits
from .estimate import Estimate
from .profile import Answers, Profile
from .sums import xlogx

__all__ = ["DirectProfile", "direct_profile"]


SURER = 0.05
"""Share of the error budget that the number of distinct items may spend in an interval for a share."""

LEAST = 0.5
"""Fewer items than this are none."""

UNBOUNDED = (
    Notice(
        "unbounded",
        "one person may hold any number of occurrences, so sums over them (occurrences in all, entropy) cannot be "
        "both private and accurate, and are left out unless a limit on each person (max_contributions) bounds them",
    ),
)
"""Said where noise goes on f and nothing bounds a count."""

PROBES = 9
"""Points at which a function is compared with its chord over a block."""


@dataclass(frozen=True, eq=False, repr=False)
class DirectProfile(Profile):
    """How many items occur exactly t times, from a noisy curve (:func:`unnoise.direct`).

    noisy : the :class:`~unnoise.curve.NoisyCurve`, which every answer can be recomputed from
    number : estimated number of distinct items, which ``mass`` is a share of
    """

    noisy: Any
    number: float = 0.0

    @property
    def curve(self) -> NoisyCurve:
        """The released numbers."""
        curve: NoisyCurve = self.noisy
        return curve

    @property
    def items(self) -> float:
        """Number of distinct items, which the fractions are shares of."""
        return self.number

    @property
    def guarantee(self) -> str:
        """What is promised, in plain words."""
        return self.curve.guarantee

    @cached_property
    def largest(self) -> int:
        """A count that no item exceeds, as far as the noise lets one tell."""
        return largest_count(self.curve)

    # ---------------------------------------------------------------- numbers of items

    def _answers(self, lo: Int64, hi: Int64, level: float, unit: float) -> Answers:
        """Bands with their values; shares of the items allow for the error of their number, and stay within 0 and 1."""
        if unit == 1:
            return super()._answers(lo, hi, level, unit)
        surer = 1 - (1 - level) * SURER
        _, _, fewest, most = self._bands(np.array([1]), np.array([NO_END]), surer)
        value, stderr, low, high = super()._answers(lo, hi, 1 - (1 - level) * (1 - SURER), 1.0)
        value = value / max(self.number, LEAST)
        low, high = low / max(float(most[0]), 1.0), high / max(float(fewest[0]), LEAST)
        low, high = np.minimum(low, value).clip(0, 1), np.maximum(high, value).clip(0, 1)
        return Answers(value, stderr / max(self.number, 1.0), low, high)

    def _bands(self, lo: Int64, hi: Int64, level: float) -> Limits:
        lo, hi = np.maximum(lo, 1), np.asarray(hi)
        find = _between_at_least if self.curve.released == "at_least" else _between_exactly
        return find(self.curve, lo, hi, level)

    # ---------------------------------------------------------------- sums over items

    def _require_growth(self, g: Function) -> None:
        """Refuse a g that is not finite at the counts in question."""
        if not np.isfinite(self._chords(g)[0]).all():
            raise InputError(f"g must be finite for counts up to {self.largest}")

    def _chords(self, g: Function) -> tuple[Floats, Floats]:
        """Return weight c_j and the farthest distance of g from its chord, for the blocks up to M."""
        curve = self.curve
        kept = int(np.searchsorted(curve.last, self.largest)) + 1
        first, last = curve.first[:kept], curve.last[:kept]
        with np.errstate(over="ignore", invalid="ignore"):
            if curve.released == "exactly":
                ends = np.stack([_values(g, first), _values(g, last)])
                return ends.mean(axis=0), np.ptp(ends, axis=0) / 2
            before = np.where(first > 1, _values(g, first - 1), 0.0)
            rise = _values(g, last) - before
            missed = np.zeros(kept)
            for part in np.arange(1, PROBES) / PROBES:
                inner = first - 1 + np.floor((last - first + 1) * part).astype(np.int64)
                chord = before + rise * (inner - first + 1) / (last - first + 1)
                missed = np.maximum(missed, np.where(inner >= first, np.abs(_values(g, inner) - chord), 0.0))
        return rise / (last - first + 1), missed

    def _sum(self, g: Function, level: float) -> tuple[float, float, float, float]:
        weight, missed = self._chords(g)
        curve = self.curve
        estimate = float(weight @ curve.numbers[: weight.size].astype(float))
        stderr, half = spread(weight, curve.noise, level)
        inside = self._band_values(curve.first[: weight.size], curve.last[: weight.size])
        slack = float(missed @ (inside + np.where(missed > 0, 1, 0) * (inside > 0)))
        return estimate, stderr, estimate - half - slack, estimate + half + slack

    @property
    def total(self) -> Estimate:
        """Σ h, the number of occurrences: the sum of the released numbers ("at_least"), unbiased."""
        return self._total(0.95)

    def _total(self, level: float) -> Estimate:
        estimate, stderr, low, high = self._sum(_identity, level)
        value = max(estimate, 0.0) if self.curve.released == "at_least" else self._sum_value(_identity)
        low, high = max(low, 0.0), max(high, 0.0)
        return Estimate(value, stderr, min(low, value), max(high, value), level, self._total)

    def _entropy(self, level: float) -> tuple[float, float, float, float]:
        most = float(np.log(max(self.distinct.at(level).high, 1.0)))
        total, weighted = self._sum_value(_identity), self._sum_value(xlogx)
        if total <= 0:
            return 0.0, most / 2, 0.0, most

        def change(t: NDArray[Any]) -> Floats:
            return np.asarray(t * (1 / total + weighted / total**2) - xlogx(t) / total)

        moved, stderr, low, high = self._sum(change, level)
        value = max(float(np.log(total) - weighted / total), 0.0)
        low, high = value + low - 1, value + high - 1  # of the fitted profile itself the change is 1
        return value + moved - 1, stderr, min(max(low, 0.0), most), min(max(high, 0.0), most)

    # ---------------------------------------------------------------- shares of the items

    def _quantile_limits(self, q: float, level: float) -> tuple[float, float]:
        """Invert S(t + 1) ≤ (1 − q)·distinct, with the limits of both sides."""
        if self.number <= 0:
            return 0.0, float(self.largest)
        surer = 1 - (1 - level) * SURER
        _, _, fewest, most = (float(x[0]) for x in self._bands(np.array([1]), np.array([NO_END]), surer))
        t = np.append(self.curve.first[self.curve.first <= self.largest] - 1, self.largest)
        _, _, low, high = self._bands(t + 1, np.full_like(t, NO_END), 1 - (1 - level) * (1 - SURER))
        low[-1], high[-1] = 0.0, 0.0
        possible = np.flatnonzero(low <= (1 - q) * most + 1e-9)
        unsure = np.flatnonzero(high > (1 - q) * fewest + 1e-9)
        last = int(t[min(unsure[-1] + 1, t.size - 1)]) if unsure.size else int(t[0])
        return float(t[possible[0]]), float(last)

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        """Return everything as plain Python, the guarantee included."""
        return {**super().to_dict(level), "guarantee": self.guarantee}


def direct_profile(curve: NoisyCurve) -> DirectProfile:
    """Answer from a noisy curve: fit it, and wrap the fit."""
    support, items = falling(curve)
    support, where = np.unique(np.minimum(support, NO_END - 1), return_inverse=True)
    items = np.bincount(where, weights=items, minlength=support.size).astype(float)
    number = float(items.sum())
    if number < LEAST:
        support, items, number = np.ones(1, dtype=np.int64), np.ones(1), 0.0
    notes: dict[str, Any] = {
        "intervals": "finite-sample, from the noise alone", "released": curve.released, "numbers": curve.cells,
    }
    unbounded = curve.released == "exactly" and curve.max_contributions is None
    mass = items / items.sum()
    return DirectProfile(support, mass, "falling", curve, notes, None, number, notices=UNBOUNDED if unbounded else ())


def _identity(t: NDArray[Any]) -> Floats:
    return np.asarray(t, dtype=float)


def _values(g: Function, t: Int64) -> Floats:
    return np.broadcast_to(np.asarray(g(np.maximum(t, 1)), dtype=float), t.shape).astype(float)


def _between_exactly(curve: NoisyCurve, lo: Int64, hi: Int64, level: float) -> Limits:
    """Estimate, standard error and limits of the items with count in lo..hi, from noisy f."""
    empty, end = hi < lo, int(curve.last[-1])
    lo, hi = np.minimum(lo, end), np.minimum(np.maximum(lo, hi), end)
    running = np.concatenate([[0.0], np.cumsum(curve.numbers.astype(float))])
    met = np.searchsorted(curve.last, lo), np.searchsorted(curve.first, hi, side="right")
    within = np.searchsorted(curve.first, lo), np.searchsorted(curve.last, hi, side="right")
    within = within[0], np.maximum(within[1], within[0])
    tail, sums = (1 - level) / 2, [running[b] - running[a] for a, b in (met, within)]
    high = sums[0] + _quantiles(curve, met[1] - met[0], tail)
    low = sums[1] - _quantiles(curve, within[1] - within[0], tail)
    share = (hi - lo + 1.0) / (curve.last[met[1] - 1] - curve.first[met[0]] + 1.0)
    stderr = np.sqrt((met[1] - met[0]) * curve.noise.variance)
    columns = (sums[0] * share, stderr, low.clip(0), high.clip(0))
    return Limits(*(np.where(empty, 0.0, column) for column in columns))


def _quantiles(curve: NoisyCurve, noises: NDArray[Any], tail: float) -> Floats:
    """The upper quantile of the sum of so many noises, for each entry."""
    sizes, where = np.unique(noises, return_inverse=True)
    return np.array([float(upper_quantile(curve.noise, int(n), tail)) for n in sizes])[where]


def _between_at_least(curve: NoisyCurve, lo: Int64, hi: Int64, level: float) -> Limits:
    """The same from noisy S: S(lo) − S(hi + 1), where the second is 0 past the end of the grid."""
    end, tail = int(curve.last[-1]), (1 - level) / 2
    empty, opened = (hi < lo) | (lo > end), hi >= min(end, NO_END)
    upper, beyond = np.minimum(lo, end), np.minimum(hi, end - 1) + 1
    both = _single(curve, upper) & _single(curve, beyond)
    alone, first, second = (_curve_at(curve, *pair) for pair in ((upper, tail), (upper, tail / 2), (beyond, tail / 2)))
    value = first.estimate - second.estimate
    q = upper_quantile(curve.noise, 2, tail)
    stderr = np.where(both, (2 * curve.noise.variance) ** 0.5, np.hypot(first.stderr, second.stderr))
    low = np.where(both, value - q, first.low - second.high)
    high = np.where(both, value + q, first.high - second.low)
    columns = [np.where(opened, one, two) for one, two in zip(alone, (value, stderr, low.clip(0), high.clip(0)))]
    return Limits(*(np.where(empty, 0.0, column) for column in columns))


def _single(curve: NoisyCurve, t: Int64) -> NDArray[np.bool_]:
    """Tell which counts are blocks of their own."""
    at = np.searchsorted(curve.last, t)
    return np.asarray(curve.first[at] == curve.last[at])


def _curve_at(curve: NoisyCurve, t: Int64, tail: float) -> Limits:
    """S(t) with limits that each fail with probability ``tail``: last block up to t, first one from t on."""
    at = np.searchsorted(curve.last, t)
    before = np.where(curve.last[at] == t, at, np.maximum(at - 1, 0))
    after = np.where(curve.first[at] == t, at, at + 1)
    width, numbers = curve.width, np.clip(curve.numbers, -TOP, TOP)
    q = upper_quantile(curve.noise, 1, tail)
    high = (numbers[before] + q) // width[before]
    beyond = np.minimum(after, curve.cells - 1)
    low = np.where(after < curve.cells, -((q - numbers[beyond]) // width[beyond]), 0)
    stderr = curve.noise.variance**0.5 / width[at]
    high = high.clip(0)
    return Limits(numbers[at] / width[at], stderr, np.minimum(low, high).clip(0).astype(float), high.astype(float))
