"""Intervals of kind "model": from the posterior of the averaged models, for any kind of sketch and any power.

A posterior (:mod:`unnoise.engine.posterior`) is the mean and the covariance C of the items that are there, given the
cells, by blocks of counts. An answer is a sum b over blocks, its variance bᵀ·C·b, and where b cuts a block the scatter
of the block's items over its counts. Narrower than intervals that assume nothing where the profile is as smooth as its
models, and finite where those say nothing; too narrow where the profile is not.

An interval reaches from the value as far as a normal and a log-normal variable of this variance would, whichever is
further: the same where the error is small, and honest about numbers that cannot be negative where it is not. At or
above k there are never more items than at or above k − 1, and never more than a k-th of all occurrences: limits obey
both. Quantiles are those of (items above t) − (1 − q)·(all items), since their number is uncertain too [1]_.

``data_share`` is the variance stated over that which the cells alone would give, without a walk to join the counts: 1
where the model adds nothing, near 0 where the answer is the model's. Where even the model leaves the number open
within a factor of four it is marked: too noisy to tell.

:class:`ModelledProfile` is a profile of a known or sampled domain whose intervals come from there; items beneath hashed
cells build on it (:mod:`unnoise.answers.items`). Sums over all cells (``total``) need no model, nor do counts
above the blocks, where each cell is seen by itself.

.. [1] E. C. Fieller, "Some problems in interval estimation", JRSS B 16 (1954) 175.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import ndtri

from ..arrays import Floats, Int64
from ..engine.channel import FAR
from ..engine.posterior import Posterior
from ..errors import ConvergenceError
from ..estimators.cells import KnownLaw, known_law
from ..estimators.linear import Function
from .bands import Limits
from .estimate import NO_END, Estimate
from .profile import Profile, identity
from .sums import bounded, xlogx

__all__ = ["LEAST", "ModelledProfile", "positive_limits"]

UNSEEN = 3.6
"""(1.9)²: a limit of 1.96·1.9 ≈ 3.7 items seen covers what 95 % of Poisson variables of mean 3.7 do."""

LEAST = 0.5
"""Fewer items than this are none."""

OPEN, A_FEW = 4.0, 8.0
"""An interval whose ends are the factor OPEN apart is marked, unless it speaks of no more than a few items."""

Four = tuple[float, float, float, float]


BELIEVED = 0.1**2
"""Least share of the variance that the cells alone would leave: no model is believed beyond that, an interval a tenth
as wide as one without a model. (On smooth profiles models are right down to 0.02–0.05 of that width, after three merges
and more. But combs that the noise hides are not smooth: with a twentieth, six of 2,450 random sketches missed the truth
by five to seven widths.)"""


HIDDEN, QUARTER = 3.0, 4.0
"""Nats that a rearrangement of items may cost and not be seen (e⁻³ = 1/20), and how far intervals reach towards it: a
quarter of the way, so that whatever the noise hides is within a few widths."""


def left_open(low: float, high: float) -> bool:
    """Return whether an interval of items leaves their number open.

    >>> left_open(10, 39), left_open(10, 41), left_open(0, 8)
    (False, True, False)
    """
    return high > OPEN * low and high > A_FEW


def _quadratic(weights: Floats, covariance: Floats) -> Floats:
    """bᵀCb for each row b, at least 0."""
    return np.asarray(np.maximum(np.einsum("ij,ij->i", weights @ covariance, weights), 0.0))


def positive_limits(value: Floats, stderr: Floats, level: float) -> tuple[Floats, Floats]:
    """Return limits for a number ≥ 0: those of a normal or of a log-normal variable, whichever is further.

    >>> low, high = positive_limits(np.array([100.0, 1.0]), np.array([1.0, 2.0]), 0.95)
    >>> low.round(1), high.round(1)
    (array([98.,  0.]), array([102.,  12.]))
    """
    z = float(ndtri((1 + level) / 2))
    safe = np.maximum(value, 1e-9)
    spread = z * np.sqrt(np.log1p(np.minimum(stderr / safe, 1e6) ** 2))
    low = np.minimum(value * np.exp(-spread), np.maximum(value - z * stderr, 0.0))
    return low, np.maximum(value * np.exp(np.minimum(spread, 700)), value + z * stderr)


@dataclass(frozen=True, eq=False, repr=False)
class ModelledProfile(Profile):
    """A profile whose intervals come from the posterior of the averaged models."""

    _known_curves: dict[float, tuple[Floats, Floats]] = field(default_factory=dict, init=False)
    _known_most: dict[float, float] = field(default_factory=dict, init=False)
    """What :meth:`_curve` and :meth:`_most` have found, by level: a table asks for them dozens of times."""

    @property
    def kind(self) -> str:
        """Where the intervals come from."""
        return "model"

    @cached_property
    def _law(self) -> KnownLaw:
        found = known_law(self.noisy, self.max_count)
        if found is None:
            raise ConvergenceError("a model must converge for intervals of kind 'model', got none: use kind='robust'")
        return found

    @property
    def _posterior(self) -> Posterior:
        return self._law.posterior

    @property
    def _top(self) -> int:
        """Last count of the blocks."""
        return self._law.top

    @property
    def _share(self) -> float:
        """Share of the items that were seen."""
        return self._law.share

    @property
    def _whole(self) -> float:
        """Number of all items, those that do not occur included; without end where it is not known."""
        return float(self.items)

    @property
    def _above(self) -> float:
        """Number of items above the blocks, where the posterior does not tell it."""
        return self._law.above

    @property
    def _least_count(self) -> int:
        """First count of the blocks."""
        return min(1, int(self._posterior.channel.blocks.first[0]))

    # ---------------------------------------------------------------- variances

    def _shares(self, lo: Int64, hi: Int64) -> Floats:
        """Share of each block (across) that lies in lo..hi (down); items above the last row only in open bands."""
        blocks = self._posterior.channel.blocks
        last = np.minimum(blocks.stop - 1, FAR)
        inside = np.minimum(hi[:, None], last) - np.maximum(lo[:, None], blocks.first) + 1
        share = np.maximum(inside, 0) / (blocks.stop - blocks.first)
        return np.asarray(np.where(blocks.first >= FAR, (hi >= NO_END)[:, None] * 1.0, share))

    def _variance(self, weights: Floats, covariance: Floats | None = None) -> Floats:
        """bᵀCb for each row b (or what is believed of it), and the scatter of items within the blocks that it cuts."""
        blocks = self._posterior.channel.blocks
        plain = self._believed(weights) if covariance is None else _quadratic(weights, covariance)
        cut = np.where(blocks.widths > 1, np.abs(weights) * (1 - np.abs(weights)), 0.0).clip(0)
        return np.asarray(plain + cut @ self._posterior.mean)

    def _believed(self, weights: Floats) -> Floats:
        """bᵀCb for each row b, at least the share BELIEVED of what the cells alone would leave."""
        found = self._posterior
        return np.maximum(_quadratic(weights, found.covariance), BELIEVED * _quadratic(weights, found.vague))

    def _correlation(self, lo: Int64, hi: Int64) -> Floats:
        weights = self._shares(np.maximum(lo, self._least_count), hi)
        covariance = weights @ self._posterior.covariance @ weights.T
        size = np.sqrt(np.maximum(self._variance(weights), 1e-300))
        together = covariance / np.outer(size, size)
        np.fill_diagonal(together, 1.0)
        return np.asarray(together)

    def _data_share(self, weights: Floats) -> float:
        """The variance stated over that of the cells alone."""
        stated = float(self._variance(weights[None])[0])
        alone = float(self._variance(weights[None], self._posterior.vague)[0])
        return min(1.0, stated / alone) if alone > 0 else 1.0

    @property
    def _unseen(self) -> float:
        """Variance of a few items that none of the cells used may have seen."""
        return UNSEEN * (1 / self._share) * (1 / self._share - 1)

    # ---------------------------------------------------------------- numbers of items

    def _bands(self, lo: Int64, hi: Int64, level: float) -> Limits:
        lo, hi = np.maximum(lo, self._least_count), np.asarray(hi)
        estimate = self._centres(lo, hi)[0]
        stderr = np.sqrt(self._band_variance(lo, hi))
        low, high = self._limits(lo, hi, stderr, level)
        low, high = self._within_curve(lo, hi, low, high, level)
        found = self._beyond(lo, hi, level, Limits(estimate, stderr, low, high))
        empty = (hi < lo) | (lo > (FAR if self.max_count is None else self.max_count))
        return Limits(*(np.where(empty, 0.0, column) for column in found))

    def _centres(self, lo: Int64, hi: Int64) -> tuple[Floats, ...]:
        """What the posterior expects in each band: the middle of its interval, which is then made to hold the value."""
        above = np.where(hi >= NO_END, self._above, 0.0)
        return (np.asarray(np.maximum(self._shares(lo, hi) @ self._posterior.mean, 0.0) + above),)

    def _limits(self, lo: Int64, hi: Int64, stderr: Floats, level: float) -> tuple[Floats, Floats]:
        """Limits around every centre, of which the outermost count."""
        centres = self._centres(lo, hi)
        stderr = np.hypot(stderr, self._drowned(lo, hi))
        ends = [positive_limits(centre, stderr, level) for centre in centres]
        ends += [self._from_the_rest(centre, stderr, level) for centre in centres if math.isfinite(self._whole)]
        return np.min([low for low, _ in ends], axis=0), np.max([high for _, high in ends], axis=0)

    def _from_the_rest(self, centre: Floats, stderr: Floats, level: float) -> tuple[Floats, Floats]:
        """Limits that the other items of the domain leave: nearly none at 0 may be a hundred times as many."""
        low, high = positive_limits(np.maximum(self._whole - centre, 0.0), stderr, level)
        return np.maximum(self._whole - high, 0.0), self._whole - low

    def _drowned(self, lo: Int64, hi: Int64) -> Floats:
        """How many items of the count ``lo`` the noise can hide; of no account where more than that are seen about it.

        About it: up to a deviation of the noise further. Items of 2,000 say nothing about those of 1.
        """
        blur = round(math.sqrt(self.noisy.noise.variance))
        mean = np.maximum(self._shares(lo, np.minimum(hi, lo + blur)) @ self._posterior.mean, 0.0)
        blocks, hidden = self._posterior.channel.blocks, np.sqrt(self._posterior.hidden)
        at = np.minimum(np.searchsorted(blocks.stop[: blocks.covered], lo, side="right"), blocks.covered - 1)
        noise = np.where(lo <= self._top, hidden[at], 0.0)
        many = np.minimum(mean / np.maximum(noise, 1e-9), 40.0)
        return np.asarray(noise * np.exp(-0.5 * many**2))

    def _band_variance(self, lo: Int64, hi: Int64) -> Floats:
        """Variance of the number of items in each band."""
        return self._variance(self._shares(lo, hi)) + self._unseen

    def _beyond(self, lo: Int64, hi: Int64, level: float, found: Limits) -> Limits:
        """Bands above the blocks, where every cell is seen by itself, and no band with more than all items."""
        far = (lo > self._top) & (hi < NO_END)
        if far.any():
            plain = super()._bands(lo[far], hi[far], level)
            least_low, least_high = self._above_blocks(lo[far], level)
            low, high = np.minimum(plain.low, least_low), np.minimum(plain.high, least_high)
            for column, better in zip(found, (plain.estimate, plain.stderr, low, high)):
                column[far] = better
        return Limits(found.estimate, found.stderr, found.low, np.minimum(found.high, self.items))

    def _within_curve(
        self, lo: Int64, hi: Int64, low: Floats, high: Floats, level: float
    ) -> tuple[Floats, Floats]:
        """Keep limits within those of "at or above": falling, and never more than a k-th of all occurrences."""
        curve_low, curve_high = self._curve(level)
        at = np.minimum(lo, self._least_count + curve_low.size - 1) - self._least_count
        open_above = (hi >= NO_END) & (lo < self._least_count + curve_low.size)
        high = np.where(open_above, curve_high[at], np.minimum(high, curve_high[at]))
        high = np.where(lo > 0, np.minimum(high, self._most(level) / np.maximum(lo, 1)), high)
        low = np.where(open_above, curve_low[at], np.minimum(low, curve_low[at]))
        beyond = (hi >= NO_END) & ~open_above
        if beyond.any():
            low[beyond], high[beyond] = self._above_blocks(lo[beyond], level)
        return np.minimum(low, high), high

    def _above_blocks(self, lo: Int64, level: float) -> tuple[Floats, Floats]:
        """Limits of the items at or above counts beyond the blocks: as far from the value as at the last block."""
        (curve_low, curve_high), total = self._curve(level), self._most(level)
        last = self._band_values(np.array([self._top]), np.array([NO_END]))[0]
        value = self._band_values(lo, np.full_like(lo, NO_END))
        edge = min(curve_high[-1], total / max(self._top, 1))
        high = np.minimum(value + max(edge - last, 0.0), total / np.maximum(lo, 1))
        return np.maximum(value - max(last - curve_low[-1], 0.0), 0.0), high

    def _curve(self, level: float) -> tuple[Floats, Floats]:
        """Limits of the number of items at or above each count of the blocks, non-increasing."""
        if level not in self._known_curves:
            k = np.arange(self._least_count, self._top + 1)
            ends = np.full_like(k, NO_END)
            value = self._centres(k, ends)[0]
            low, high = self._limits(k, ends, np.sqrt(self._variance(self._shares(k, ends)) + self._unseen), level)
            fewest, most = self._rearranged(k)
            low = np.minimum(low, value - (value - fewest) / QUARTER)
            high = np.maximum(high, value + (most - value) / QUARTER)
            low = np.maximum.accumulate(low[::-1])[::-1]
            self._known_curves[level] = low, np.maximum(np.minimum.accumulate(high), value)
        return self._known_curves[level]

    def _rearranged(self, k: Int64) -> tuple[Floats, Floats]:
        """Fewest and most items at or above each k if those about it lay elsewhere, as far as the noise would hide it.

        n items spread by ± s about their counts change the likelihood by about n·(s/σ)⁴/4 nats. Those between k − s and
        k + s, of the mean count μ, may be at k − 1 and k + s as well, or at k − s and k.
        """
        t = np.arange(self._least_count, self._top + 2)
        above = self._centres(t, np.full_like(t, NO_END))[0]
        mass = np.maximum(above[:-1] - above[1:], 0.0)
        number, moment = (np.concatenate([[0.0], np.cumsum(w)]) for w in (mass, mass * t[:-1]))
        sigma, first = math.sqrt(self.noisy.noise.variance), self._least_count
        s = np.full(k.size, sigma)
        for _ in range(3):
            lo, hi = (np.clip(k + sign * np.floor(s).astype(np.int64), first, self._top) for sign in (-1, 1))
            within = number[hi - first + 1] - number[lo - first]
            s = np.minimum(sigma * (4 * HIDDEN / np.maximum(within * self._share, HIDDEN)) ** 0.25, 2 * sigma)
        mean = (moment[hi - first + 1] - moment[lo - first]) / np.maximum(within, 1e-12)
        upper = above[np.minimum(hi - first + 1, t.size - 1)]
        share = np.clip((mean - (k - 1)) / np.maximum(hi - k + 1, 1), 0.0, 1.0)
        most = np.where(k > lo, np.clip((mean - lo) / np.maximum(k - lo, 1), 0.0, 1.0), 1.0)
        moves = (s >= 1) & (within > 0)
        here = above[k - first]
        return np.where(moves, np.minimum(upper + share * within, here), here), np.where(
            moves, np.maximum(upper + most * within, here), here)

    def _most(self, level: float) -> float:
        """Upper limit of all occurrences: no more than a k-th as many items occur k times."""
        if level not in self._known_most:
            self._known_most[level] = self._total(level).high
        return self._known_most[level]

    def _band(self, lo: int, hi: int, level: float, unit: float) -> Estimate:
        answer = self._answers(np.array([lo]), np.array([hi]), level, unit)
        value, stderr, low, high = (float(column[0]) for column in answer)
        weights = self._shares(np.array([max(lo, self._least_count)]), np.array([hi]))[0]
        return self._modelled(
            (value, stderr, low, high), level, lambda other: self._band(lo, hi, other, unit),
            self._data_share(weights) if lo <= self._top else 1.0,
        )

    @staticmethod
    def _modelled(four: Four, level: float, again: Callable[[float], Estimate], data_share: float) -> Estimate:
        """An answer by the model, marked where its interval leaves it open."""
        _, _, low, high = four
        return Estimate(*four, level, again, "model", data_share, left_open(low, high))

    # ---------------------------------------------------------------- sums over items

    def _sum(self, g: Function, level: float) -> Four:
        value = self._sum_centre(g)
        stderr = float(np.sqrt(max(self._sum_variance(g), 0.0)))
        margin = float(ndtri((1 + level) / 2)) * stderr
        return value, stderr, value - margin, value + margin

    def _sum_centre(self, g: Function) -> float:
        """What the posterior expects Σ g(h) to be, the items above the blocks one by one."""
        above = self.support > self._top
        far = float((self.mass * self.items)[above] @ np.asarray(g(self.support[above]), dtype=float))
        return float(self._block_means(g)[0] @ self._posterior.mean) + far

    def _sum_variance(self, g: Function) -> float:
        """Variance of Σ g(h): the blocks up to the last row, the items above it one by one."""
        mean, spread = self._block_means(g)
        near = self._posterior.channel.blocks.first < FAR
        variance = float(self._believed(mean[None])[0])
        variance += float(self._posterior.mean[near] @ spread[near]) / self._share
        return variance + self._far_variance(g)

    def _far_variance(self, g: Function) -> float:
        """Variance of Σ g(h) over the items above the blocks: their noise, and those not sampled."""
        above = self.support > self._top
        if not above.any():
            return 0.0
        far, number = np.asarray(g(self.support[above]), dtype=float), (self.mass * self.items)[above]
        step = np.asarray(g(self.support[above] + 1), dtype=float) - far
        scale = 1 / self._far_share
        return float(number @ ((scale - 1) * far**2 + step**2 * self._far_blur * scale))

    @property
    def _far_share(self) -> float:
        """Share of the items above the blocks that were seen."""
        return self._share

    @property
    def _far_blur(self) -> float:
        """Variance with which an item above the blocks is seen."""
        return self.noisy.noise.variance

    def _block_means(self, g: Function) -> tuple[Floats, Floats]:
        """Return mean and variance of g over the counts of each block; 0 for the items above the last row."""
        blocks, least = self._posterior.channel.blocks, self._least_count
        t = np.arange(least, self._top + 1)
        values = np.broadcast_to(np.asarray(g(t), dtype=float), t.shape)
        running = np.concatenate([[0.0], np.cumsum(values)])
        centre = values - values.mean()
        squares = np.concatenate([[0.0], np.cumsum(centre**2)])
        end = least + t.size
        first, stop = np.minimum(blocks.first, end - 1) - least, np.minimum(blocks.stop, end) - least
        mean = (running[stop] - running[first]) / np.maximum(stop - first, 1)
        spread = (squares[stop] - squares[first]) / np.maximum(stop - first, 1) - (mean - values.mean()) ** 2
        far = blocks.first >= FAR
        return np.where(far, 0.0, mean), np.where(far, 0.0, np.maximum(spread, 0.0))

    def _statistic(self, g: Function, level: float, floor: float = -np.inf) -> Estimate:
        four = self._limited(g, level, floor)
        again: Callable[[float], Estimate] = lambda other: self._statistic(g, other, floor)  # noqa: E731
        return self._modelled(four, level, again, self._data_share(self._block_means(g)[0]))

    @property
    def total(self) -> Estimate:
        """Σ h, the number of occurrences: no model tells it better than the sum of the cells."""
        return self._total(0.95)

    def _total(self, level: float) -> Estimate:
        value = self._sum_value(identity)
        found = Profile._sum(self, identity, level)
        return Estimate(value, found[1], *bounded(value, found, 0.0), level, self._total)

    def _entropy_estimate(self, level: float) -> Estimate:
        most = math.log(max(self.distinct.at(level).high, 1.0))
        total, weighted = self._sum_value(identity), self._sum_value(xlogx)
        if total <= 0:
            return Estimate(0.0, most / 2, 0.0, most, level, self._entropy_estimate, "model", 0.0, True)

        def change(t: Any) -> Floats:
            return np.asarray(t * (1 / total + weighted / total**2) - xlogx(t) / total)

        value = max(float(np.log(total) - weighted / total), 0.0)
        stderr = float(np.sqrt(max(self._sum_variance(change), 0.0)))
        margin = float(ndtri((1 + level) / 2)) * stderr
        least = 0.0 if self.distinct.at(level).low <= 1 else value - margin
        four = value, stderr, max(least, 0.0), max(min(value + margin, most), value)
        return self._modelled(four, level, self._entropy_estimate, self._data_share(self._block_means(change)[0]))

    # ---------------------------------------------------------------- shares of the items

    def _quantile_limits(self, q: float, level: float) -> tuple[float, float]:
        """Search by halving for where (items above t) − (1 − q)·(all items) is 0, give or take its error."""
        if self.items <= 0:  # a single item that the noise hides may have all occurrences
            return 0.0, float(math.floor(self._most(level)))
        z = float(ndtri((1 + level) / 2))
        return float(self._first(q, z)), float(self._first(q, -z))

    def _first(self, q: float, margin: float) -> int:
        """Return the first t at which the items above it are no more than a share 1 − q of all, ``margin`` allowed."""
        low, high = self._least_count - 1, max(int(self.support[-1]), int(self.noisy.values[-1]), 1) + 1
        whole = self._shares(np.array([self._least_count]), np.array([NO_END]))[0]
        while high - low > 1:
            middle = (low + high) // 2
            above = self._centres(np.array([middle + 1]), np.array([NO_END]))[0][0]
            weights = self._shares(np.array([middle + 1]), np.array([NO_END]))[0] - (1 - q) * whole
            error = math.sqrt(float(self._variance(weights[None])[0]) + self._unseen)
            if above - (1 - q) * self.items <= margin * error + 1e-9 * self.items:
                high = middle
            else:
                low = middle
        return high
