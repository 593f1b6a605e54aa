"""The profile of the items beneath a hashed sketch, with every answer of a :class:`~unnoise.answers.profile.Profile`.

The domain of a hashed sketch has no end, so shares are shares of the N items that occur: ``counts[0] = 0``,
``counts[t]`` is the number of items seen exactly t times and ``fractions[t] = counts[t]/N``.
``cell_profile`` is the law of the cells beneath, where several items may share a cell.

Where answers come from (:mod:`unnoise.estimators.collisions` has the mathematics):

* numbers of items, and sums of g over them: the posterior of the averaged models. An answer b is a sum over blocks of
  counts with the variance bᵀ·C·b, C the covariance of the items that are there given the cells;
* quantiles: the same of the items above t less their share of all items, since their number is uncertain too [2]_;
* items above the last row: one by one, with the power-series logarithm for those that share a cell;
* ``total``: the sum of all cells, exactly unbiased whatever collides, but never below 0. The profile is calibrated to
  it, so that ``total`` is Σ t·counts[t]: N_t becomes N_t·(1 + c·t), the least change in units of N_t's own Poisson
  variance that reaches that sum [1]_; it falls on the few large items, whose number is what the sum knows better.

An interval reaches from the value as far as a normal and a log-normal variable of this variance would, whichever is
further: the same where the error is small, and honest about numbers that cannot be negative where it is not. At or
above k there are never more items than at or above k − 1, and never more than a k-th of all occurrences: limits obey
both. Where only a share P of the items was seen, the variance is never below that of a few unseen items:
3.6·(1/P)(1/P − 1).

``data_share`` is the variance stated over that which the cells alone would give, without a walk to join the counts: 1
where the model adds nothing, near 0 where the answer is the model's. Where even the model leaves the number open
within a factor of four it is marked: too noisy to tell.

.. [1] J.-C. Deville, C.-E. Särndal, "Calibration estimators in survey sampling", JASA 87 (1992) 376.
.. [2] E. C. Fieller, "Some problems in interval estimation", JRSS B 16 (1954) 175.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtri

from ..arrays import Floats, Int64
from ..errors import InputError
from ..estimators._fit import Notice
from ..estimators._fourier import FAR
from ..estimators.collisions import ItemLaw, collisions, decompound
from ..estimators.linear import Function
from ..estimators.methods import METHODS, estimate_law
from ..noisy import NoisyProfile
from .bands import NO_END, Limits
from .estimate import TOO_NOISY, Estimate, number
from .profile import Answers, Profile
from .sums import sum_limits, xlogx

__all__ = ["ItemProfile", "item_profile"]

UNSEEN = 3.6
"""(1.9)²: a limit of 1.96·1.9 ≈ 3.7 items seen covers what 95 % of Poisson variables of mean 3.7 do."""

LEAST = 0.5
"""Fewer items than this are none."""

KEPT = 0.5
"""Share of its items that calibration leaves to every count."""

HIGH_LOAD = 2.0
"""Load above which a notice is given."""

MOSTLY_MODEL = 0.25
"""Share of data below which a notice is given: the model has halved the error, or more."""

OPEN, A_FEW = 4.0, 8.0
"""An interval whose ends are the factor OPEN apart is marked, unless it speaks of no more than a few items."""


def positive_limits(value: Floats, stderr: Floats, level: float) -> tuple[Floats, Floats]:
    """Return limits for a number ≥ 0: those of a normal or of a log-normal variable, whichever is further.

    >>> low, high = positive_limits(np.array([100.0, 1.0]), np.array([1.0, 2.0]), 0.95)
    >>> low.round(1), high.round(1)
    (array([98.,  0.]), array([102.,  12.]))
    """
    z = float(ndtri((1 + level) / 2))
    safe = np.maximum(value, 1e-300)
    spread = z * np.sqrt(np.log1p(np.minimum(stderr / safe, 1e6) ** 2))
    low = np.minimum(value * np.exp(-spread), np.maximum(value - z * stderr, 0.0))
    return low, np.maximum(value * np.exp(np.minimum(spread, 700)), value + z * stderr)


@dataclass(frozen=True, eq=False, repr=False)
class ItemProfile(Profile):
    """How many items occur exactly t times, beneath the cells of a hashed sketch.

    number : estimated number of distinct items, which ``mass`` is a share of
    """

    number: float = 0.0
    given_law: ItemLaw | None = field(default=None, repr=False)

    @property
    def items(self) -> float:
        """Number of distinct items, which the fractions are shares of."""
        return self.number

    @property
    def load(self) -> float:
        """Items per cell, in the fullest level used."""
        return float(self.diagnostics["load"])

    @cached_property
    def cell_profile(self) -> Profile:
        """The law of the cells beneath: for every s, the share of cells whose items add up to s."""
        from ..estimators.isotonic import isotonic

        return Profile.from_fit(isotonic(self.noisy), self.noisy)

    @cached_property
    def law(self) -> ItemLaw:
        """The posterior that the intervals are made from."""
        return self.given_law or collisions(self.noisy, max_count=self.max_count)

    # ---------------------------------------------------------------- variances

    def _shares(self, lo: Int64, hi: Int64) -> Floats:
        """Share of each block (across) that lies in lo..hi (down); items above the last row only in open bands."""
        blocks = self.law.posterior.channel.blocks
        last = np.minimum(blocks.stop - 1, FAR)
        inside = np.minimum(hi[:, None], last) - np.maximum(lo[:, None], blocks.first) + 1
        share = np.maximum(inside, 0) / blocks.widths
        return np.asarray(np.where(blocks.first >= FAR, (hi >= NO_END)[:, None] * 1.0, share))

    def _variance(self, weights: Floats, covariance: Floats | None = None) -> Floats:
        """bᵀCb for each row b, and the scatter of items within the blocks that it cuts."""
        found = self.law.posterior
        covariance = found.covariance if covariance is None else covariance
        plain = np.einsum("ij,ij->i", weights @ covariance, weights)
        blocks = found.channel.blocks
        cut = np.where(blocks.widths > 1, np.abs(weights) * (1 - np.abs(weights)), 0.0).clip(0)
        return np.asarray(np.maximum(plain, 0) + cut @ found.mean)

    def _data_share(self, weights: Floats) -> float:
        """The variance stated over that of the cells alone."""
        stated = float(self._variance(weights[None])[0])
        alone = float(self._variance(weights[None], self.law.posterior.vague)[0])
        return min(1.0, stated / alone) if alone > 0 else 1.0

    @property
    def _unseen(self) -> float:
        """Variance of a few items that none of the cells used may have seen."""
        share = self.law.share
        return UNSEEN * (1 / share) * (1 / share - 1)

    # ---------------------------------------------------------------- numbers of items

    def _bands(self, lo: Int64, hi: Int64, level: float) -> Limits:
        lo, hi = np.maximum(lo, 1), np.asarray(hi)
        estimate = self._band_values(lo, hi)
        stderr = np.sqrt(self._band_variance(lo, hi))
        low, high = self._limits(estimate, lo, hi, stderr, level)
        low, high = self._within_curve(lo, hi, low, high, level)
        empty = (hi < lo) | (lo > (FAR if self.max_count is None else self.max_count))
        return Limits(*(np.where(empty, 0.0, column) for column in (estimate, stderr, low, high)))

    def _limits(self, value: Floats, lo: Int64, hi: Int64, stderr: Floats, level: float) -> tuple[Floats, Floats]:
        """Limits around the value, and around the posterior's mean, from which calibration may have moved it."""
        mean = np.maximum(self._shares(lo, hi) @ self.law.posterior.mean, 0.0)
        near = lo <= self.law.top
        mean = np.where(near, mean, value)
        stderr = np.hypot(stderr, self._drowned(lo, mean))
        low, high = positive_limits(value, stderr, level)
        other_low, other_high = positive_limits(mean, stderr, level)
        return np.minimum(low, other_low), np.maximum(high, other_high)

    def _drowned(self, lo: Int64, mean: Floats) -> Floats:
        """How many items of the count ``lo`` the noise can hide; of no account where more than that are seen."""
        blocks, hidden = self.law.posterior.channel.blocks, np.sqrt(self.law.posterior.hidden)
        at = np.minimum(np.searchsorted(blocks.stop[: blocks.covered], lo, side="right"), blocks.covered - 1)
        noise = np.where(lo <= self.law.top, hidden[at], 0.0)
        many = np.minimum(mean / np.maximum(noise, 1e-9), 40.0)
        return np.asarray(noise * np.exp(-0.5 * many**2))

    def _band_variance(self, lo: Int64, hi: Int64) -> Floats:
        """Variance of the number of items in each band: by the blocks up to the last row, by the tail above it."""
        variance = self._variance(self._shares(lo, hi)) + self._unseen
        tail, top = self.law.tail, self.law.top
        if tail is None:
            return variance
        for k in (lo, np.where(hi < NO_END, hi + 1, lo)):
            beyond = (k > top) & (hi >= lo)
            if beyond.any():
                variance[beyond] += np.maximum(tail.at_least(k[beyond])[1], 0)
        single = (hi == lo) & (lo > top)
        if single.any():
            variance[single] = np.maximum(tail.entries(lo[single])[1], 0) + 1 + self._unseen  # one item more or less
        return variance

    def _within_curve(
        self, lo: Int64, hi: Int64, low: Floats, high: Floats, level: float
    ) -> tuple[Floats, Floats]:
        """Keep limits within those of "at or above": falling, and never more than a k-th of all occurrences."""
        curve_low, curve_high = self._curve(level)
        at = np.minimum(lo, curve_low.size) - 1
        high = np.minimum(np.minimum(high, curve_high[at]), self._most(level) / lo)
        open_above = (hi >= NO_END) & (lo <= curve_low.size)
        low = np.where(open_above, curve_low[at], np.minimum(low, curve_low[at]))
        return np.minimum(low, high), high

    def _curve(self, level: float) -> tuple[Floats, Floats]:
        """Limits of the number of items at or above k = 1..top, non-increasing in k."""
        if level not in self._known_curves:
            k = np.arange(1, self.law.top + 1)
            value = self._band_values(k, np.full_like(k, NO_END))
            low, high = self._limits(value, k, np.full_like(k, NO_END), np.sqrt(self._curve_variance), level)
            low = np.maximum.accumulate(low[::-1])[::-1]
            self._known_curves[level] = low, np.maximum(np.minimum.accumulate(high), value)
        return self._known_curves[level]

    @cached_property
    def _curve_variance(self) -> Floats:
        k = np.arange(1, self.law.top + 1)
        return self._variance(self._shares(k, np.full_like(k, NO_END))) + self._unseen

    @cached_property
    def _known_curves(self) -> dict[float, tuple[Floats, Floats]]:
        """What :meth:`_curve` has found, by level."""
        return {}

    def _most(self, level: float) -> float:
        """Upper limit of all occurrences: no more than a k-th as many items occur k times."""
        if level not in self._known_most:
            self._known_most[level] = self._total(level).high
        return self._known_most[level]

    @cached_property
    def _known_most(self) -> dict[float, float]:
        """What :meth:`_most` has found, by level: a table asks for it dozens of times."""
        return {}

    def _answers(self, lo: Int64, hi: Int64, level: float, unit: float) -> Answers:
        """Bands with their values; as shares of the items they stay between 0 and 1."""
        if unit == 1:
            return super()._answers(lo, hi, level, unit)
        if self.number == 0:
            nothing = np.zeros(lo.size)
            return Answers(nothing, nothing + 0.5, nothing, np.where(hi < 1, 0.0, nothing + 1))
        value, stderr, low, high = super()._answers(lo, hi, level, unit)
        return Answers(value, stderr, low.clip(max=1), high.clip(max=1))

    def _band(self, lo: int, hi: int, level: float, unit: float) -> Estimate:
        answer = self._answers(np.array([lo]), np.array([hi]), level, unit)
        value, stderr, low, high = (float(column[0]) for column in answer)
        weights = self._shares(np.array([max(lo, 1)]), np.array([hi]))[0]
        return self._estimate(
            (value, stderr, low, high), level, lambda other: self._band(lo, hi, other, unit),
            self._data_share(weights) if lo <= self.law.top else 1.0,
        )

    @staticmethod
    def _estimate(four: tuple[float, float, float, float], level: float, again: Any, data_share: float) -> Estimate:
        """An answer by the model, marked where its interval leaves it open."""
        _, _, low, high = four
        marked = high > OPEN * low and high > A_FEW
        return Estimate(*four, level, again, "model", data_share, marked)

    # ---------------------------------------------------------------- sums over items

    def _sum(self, g: Function, level: float) -> tuple[float, float, float, float]:
        value = self._sum_value(g)
        stderr = float(np.sqrt(max(self._sum_variance(g), 0.0)))
        margin = float(ndtri((1 + level) / 2)) * stderr
        return value, stderr, value - margin, value + margin

    def _sum_variance(self, g: Function) -> float:
        """Variance of Σ g(h): the blocks up to the last row, the items above it one by one."""
        law = self.law
        mean, spread = self._block_means(g)
        near = law.posterior.channel.blocks.first < FAR
        variance = float(mean @ law.posterior.covariance @ mean)
        variance += float(law.posterior.mean[near] @ spread[near]) / law.share
        if law.tail is None:
            return variance
        above = self.support > law.top
        far, number = np.asarray(g(self.support[above]), dtype=float), (self.mass * self.number)[above]
        step = np.asarray(g(self.support[above] + 1), dtype=float) - far
        scale = 1 / law.tail.far_share
        blur = self.noisy.noise.variance + self._shared_variance
        return variance + float(number @ ((scale - 1) * far**2 + step**2 * blur * scale))

    @cached_property
    def _shared_variance(self) -> float:
        """Variance of what smaller items add to the cell of a large one: Σ λ_t·t² up to the last row."""
        near = self.support <= self.law.top
        square = float((self.mass * self.number)[near] @ self.support[near].astype(float) ** 2)
        return square * max(part.share / part.noisy.cells for part in self.law.used)

    def _block_means(self, g: Function) -> tuple[Floats, Floats]:
        """Return mean and variance of g over the counts of each block; 0 for the items above the last row."""
        blocks = self.law.posterior.channel.blocks
        t = np.arange(1, self.law.top + 1)
        values = np.broadcast_to(np.asarray(g(t), dtype=float), t.shape)
        running = np.concatenate([[0.0], np.cumsum(values)])
        centre = values - values.mean()
        squares = np.concatenate([[0.0], np.cumsum(centre**2)])
        first, stop = np.minimum(blocks.first, t.size) - 1, np.minimum(blocks.stop, t.size + 1) - 1
        mean = (running[stop] - running[first]) / np.maximum(stop - first, 1)
        spread = (squares[stop] - squares[first]) / np.maximum(stop - first, 1) - (mean - values.mean()) ** 2
        far = blocks.first >= FAR
        return np.where(far, 0.0, mean), np.where(far, 0.0, np.maximum(spread, 0.0))

    def _statistic(self, g: Function, level: float, floor: float = -np.inf) -> Estimate:
        value = self._sum_value(g)
        _, stderr, low, high = self._sum(g, level)
        low, high = min(max(low, floor), value), max(high, floor, value)
        again = lambda other: self._statistic(g, other, floor)  # noqa: E731
        return self._estimate((value, stderr, low, high), level, again, self._data_share(self._block_means(g)[0]))

    @property
    def total(self) -> Estimate:
        """Σ h, the number of occurrences, with the interval of the sum over all cells."""
        return self._total(0.95)

    def _total(self, level: float) -> Estimate:
        value = total_of(self.noisy)
        _, stderr, low, high = sum_limits(self.noisy, _identity, level, items=self.cells)
        if self.noisy.noise.power != 1:  # the plain sum: nothing is continued below 0, so nothing is amplified
            stderr = math.sqrt(self.cells * self.noisy.noise.variance)
            margin = float(ndtri((1 + level) / 2)) * stderr
            low, high = value - margin, value + margin
        return Estimate(value, stderr, min(max(low, 0.0), value), max(high, value), level, self._total)

    def _entropy_estimate(self, level: float) -> Estimate:
        most = math.log(max(self.distinct.at(level).high, 1.0))
        total, weighted = self._sum_value(_identity), self._sum_value(xlogx)
        if total <= 0:
            return Estimate(0.0, most / 2, 0.0, most, level, self._entropy_estimate, "model", 0.0, True)

        def change(t: NDArray[Any]) -> Floats:
            return np.asarray(t * (1 / total + weighted / total**2) - xlogx(t) / total)

        value = max(float(np.log(total) - weighted / total), 0.0)
        stderr = float(np.sqrt(max(self._sum_variance(change), 0.0)))
        margin = float(ndtri((1 + level) / 2)) * stderr
        least = 0.0 if self.distinct.at(level).low <= 1 else value - margin
        four = value, stderr, max(least, 0.0), max(min(value + margin, most), value)
        return self._estimate(four, level, self._entropy_estimate, self._data_share(self._block_means(change)[0]))

    # ---------------------------------------------------------------- shares of the items

    def _quantile_limits(self, q: float, level: float) -> tuple[float, float]:
        """Search by halving for where (items above t) − (1 − q)·(all items) is 0, give or take its error."""
        if self.number <= 0:
            return 0.0, 0.0
        z = float(ndtri((1 + level) / 2))
        return float(self._first(q, z)), float(self._first(q, -z))

    def _first(self, q: float, margin: float) -> int:
        """Return the first t at which the items above it are no more than a share 1 − q of all, ``margin`` allowed."""
        low, high = 0, max(int(self.support[-1]), int(self.noisy.values[-1]), 1) + 1
        whole = self._shares(np.array([1]), np.array([NO_END]))[0]
        while high - low > 1:
            middle = (low + high) // 2
            above = self._band_values(np.array([middle + 1]), np.array([NO_END]))[0]
            weights = self._shares(np.array([middle + 1]), np.array([NO_END]))[0] - (1 - q) * whole
            error = math.sqrt(float(self._variance(weights[None])[0]) + self._unseen)
            if above - (1 - q) * self.number <= margin * error + 1e-12:
                high = middle
            else:
                low = middle
        return high


def item_profile(
    noisy: NoisyProfile, *, method: str = "auto", norm: float = 2, max_count: int | None = None,
    diagnostics: Mapping[str, Any] | None = None,
) -> ItemProfile:
    """Reconstruct the item profile of a hashed sketch; no item has a count above ``max_count``.

    ``"auto"``, ``"smooth"`` and ``"likelihood"`` all stand for the engine on the items themselves. Any
    other method reconstructs the law of the cells and takes its power-series logarithm: less accurate,
    without levels and up to a load of 2.
    """
    if noisy.layout.kind != "hashed":
        raise InputError(f"layout must be hashed for an item profile, got {noisy.layout.kind!r}")
    if METHODS[method].items == "fitted":
        law = collisions(noisy, max_count=max_count)
        return _wrap(law.support, law.items, "items", noisy, {**law.diagnostics, **(diagnostics or {})}, law, max_count)
    if noisy.layout.levels > 1:
        raise InputError(f"method must be 'auto' for a sketch with levels, got {method!r}")
    fit = estimate_law(noisy, method, norm)
    support, items = decompound(fit, noisy)
    notes = {**fit.diagnostics, "load": float(items.sum()) / noisy.cells}
    return _wrap(support, items, method, noisy, {**notes, **(diagnostics or {})}, None, max_count)


def _identity(t: Int64) -> Floats:
    return np.asarray(t, dtype=float)


def total_of(noisy: NoisyProfile) -> float:
    """Return the sum of all cells, at least 0."""
    return max(0.0, float(noisy.values.astype(float) @ noisy.tally))


def _calibrated(support: Int64, items: Floats, total: float) -> Floats:
    """Return N_t·max(1 + c·t, KEPT) with Σ t·N_t equal to ``total``, or all scaled where that does not reach it."""
    counts = support.astype(float)
    have = float(counts @ items)
    if have <= 0:
        return items
    if total <= KEPT * have:
        return items * (total / have)

    def excess(c: float) -> float:
        return float(counts @ (items * np.maximum(1 + c * counts, KEPT))) - total

    step = -excess(0.0) / float(counts**2 @ items)
    far = 1.0
    while excess(far * step) * step < 0:
        far *= 2
    root = brentq(excess, 0.0, far * step, xtol=1e-300, rtol=1e-14) if step else 0.0
    return np.asarray(items * np.maximum(1 + root * counts, KEPT))


def _wrap(
    support: Int64, items: Floats, method: str, noisy: NoisyProfile, notes: dict[str, Any], law: ItemLaw | None,
    max_count: int | None,
) -> ItemProfile:
    """Turn item numbers into shares; an empty sketch has all its (no) items at count 1."""
    items = _calibrated(support, items, total_of(noisy))
    number = float(items.sum())
    if number < LEAST:
        support, items, number = np.ones(1, dtype=np.int64), np.ones(1), 0.0
    profile = ItemProfile(support, items / items.sum(), method, noisy, notes, max_count, number, law)
    return replace(profile, notices=_notices(profile)) if law is not None else profile


def _notices(profile: ItemProfile) -> tuple[Notice, ...]:
    """What a reader must know of these items."""
    found = []
    distinct = profile.distinct
    if profile.load > HIGH_LOAD:
        found.append(Notice("overload", f"about {profile.load:.1f} items share each cell: shares of small counts are "
                            f"uncertain; more cells would tell more"))
    if distinct.marked:
        found.append(Notice("too-noisy", f"{TOO_NOISY}: the noise leaves the number of items open between "
                            f"{number(distinct.low)} and {number(distinct.high)}"))
    elif distinct.data_share < MOSTLY_MODEL:
        found.append(Notice("model", f"the number of items is mostly the model's: the cells alone would leave it "
                            f"{1 / math.sqrt(max(distinct.data_share, 1e-12)):.0f} times as uncertain; it is right for "
                            f"profiles that are smooth in the logarithm of the count"))
    if profile.law.diagnostics["uncertified"]:
        found.append(Notice("misfit", "no model fits the cells everywhere: some counts want more items than any gives"))
    return tuple(found)
