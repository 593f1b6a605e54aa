"""Intervals of kind "model": from the posterior of the averaged models, for any kind of sketch and any power.

A posterior (:mod:`unnoise.engine.posterior`) is the mean and the covariance C of the items that are there, given the
cells, by blocks of counts. An answer is a sum b over blocks, its variance bᵀ·C·b, and where b cuts a block the scatter
of the block's items over its counts. Narrower than intervals that assume nothing where the profile is as smooth as its
models, and finite where those say nothing; too narrow where the profile is not.

An interval reaches from the value as far as a normal and a log-normal variable of this variance would, whichever is
further: the same where the error is small, and honest about numbers that cannot be negative where it is not. At or
above k there are never more items than at or above k − 1, and never more than a k-th of all occurrences: limits obey
both. Quantiles are those of (items above t) − (1 − q)·(all items), since their number is uncertain too [1]_, and as
open as the noise leaves the arrangement of the items about them.

``data_share`` is the variance stated over that which the cells alone would give, without a walk to join the counts: 1
where the model adds nothing, near 0 where the answer is the model's. Where even the model leaves the number open
within a factor of four it is marked: too noisy to tell.

:class:`ModelledProfile` is a profile of a known or sampled domain whose intervals come from there; items beneath hashed
cells build on it (:mod:`unnoise.answers.items`). Each makes one record, :class:`Grounds`, and all answers rest on that:
a function g of the counts has a mean over each block, which is b, and a scatter within it; a number of items is the sum
of an indicator. Sums over all cells (``total``) need no model, nor do counts above the blocks, where each cell is seen
by itself.

.. [1] E. C. Fieller, "Some problems in interval estimation", JRSS B 16 (1954) 175.
.. [2] J. A. Hausman, "Specification tests in econometrics", Econometrica 46 (1978) 1251.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy.special import ndtri

from ..arrays import Floats, Int64
from ..engine.channel import FAR, counts_in_blocks
from ..engine.fourier import lattice
from ..engine.posterior import Arrangement, Posterior
from ..errors import ConvergenceError
from ..estimators.auto import SELDOM, known_law
from ..estimators.linear import Function
from .bands import Limits
from .estimate import NO_END, Estimate
from .profile import Profile, identity
from .sums import bounded, reaches, xlogx

if TYPE_CHECKING:
    from ..estimators._ladder import Tail

__all__ = ["LEAST", "Grounds", "ModelledProfile", "left_open", "positive_limits"]

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


APART = 2.0
"""Standard errors by which the cells alone may tell an answer otherwise than the models: 95 % of chance."""

CURVED = 64
"""Behind strong noise curves are computed at as many single counts, and then at as many to the octave."""

AT_ONCE = 1 << 13
"""Bands whose limits are computed together: each takes as many numbers as there are blocks, several times."""


def left_open(low: float, high: float) -> bool:
    """Return whether an interval of items leaves their number open.

    >>> left_open(10, 39), left_open(10, 41), left_open(0, 8)
    (False, True, False)
    """
    return high > OPEN * low and high > A_FEW


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


@dataclass(frozen=True, eq=False)
class Grounds:
    """What intervals by the model rest on, whatever the kind of the sketch.

    posterior : mean and covariance of the items, by blocks of counts
    first, top : first and last count that the blocks speak of
    share : share of the items that were seen
    whole : number of all items, those that do not occur included; without end where it is not known
    above : number of items above the blocks, where the posterior does not tell it
    far : share of the items above the blocks that were seen, and the variance with which each was; None: there are none
    tail : the same items by themselves, where they share cells
    full : whether no cell is left empty: how many items share one is then the model's
    uncalibrated : items at each count of the support before they were made to add up to the total, where they were
    """

    posterior: Posterior
    first: int
    top: int
    share: float
    whole: float
    above: float
    far: tuple[float, float] | None
    tail: Tail | None = None
    full: bool = False
    uncalibrated: Floats | None = None

    @cached_property
    def counts(self) -> Int64:
        """Counts at which curves are computed, and between which they are straight: all, or those that noise tells."""
        every, unit = np.arange(self.first, self.top + 1), lattice(self.posterior.channel.noise)
        if unit == 1:
            return every
        blocks = self.posterior.channel.blocks
        some = counts_in_blocks(self.first, self.top, CURVED, CURVED)[:-1]
        within = np.concatenate([blocks.first, blocks.stop])
        return np.unique(np.concatenate([some, every[::unit], every[-1:], within[within <= self.top]]))

    @property
    def unseen(self) -> float:
        """Variance of a few items that none of the cells used may have seen."""
        return UNSEEN * (1 / self.share) * (1 / self.share - 1)

    def shares(self, lo: Int64, hi: Int64) -> Floats:
        """Share of each block (across) that lies in lo..hi (down); items above the last row only in open bands."""
        blocks = self.posterior.channel.blocks
        last, stride = np.minimum(blocks.stop - 1, FAR), blocks.stride
        upto = (np.minimum(hi[:, None], last) - blocks.first) // stride  # of the block's counts, the last in the band
        inside = upto + 1 + (blocks.first - np.maximum(lo[:, None], blocks.first)) // stride
        share = np.maximum(inside, 0) / blocks.widths
        return np.asarray(np.where(blocks.first >= FAR, (hi >= NO_END)[:, None] * 1.0, share))

    def means(self, g: Function) -> tuple[Floats, Floats]:
        """Return mean and variance of g over the counts of each block; 0 for the items above the last row."""
        blocks, t = self.posterior.channel.blocks, np.append(self.counts, self.top + 1)
        values = np.broadcast_to(np.asarray(g((t[:-1] + t[1:] - 1) // 2), dtype=float), t[:-1].shape)
        running = np.concatenate([[0.0], np.cumsum(values * np.diff(t))])
        centre = values - values.mean()
        squares = np.concatenate([[0.0], np.cumsum(centre**2 * np.diff(t))])
        first, stop = np.searchsorted(t, [np.minimum(blocks.first, t[-1] - 1), np.minimum(blocks.stop, t[-1])])
        number = np.maximum(t[stop] - t[first], 1)
        mean = (running[stop] - running[first]) / number
        spread = (squares[stop] - squares[first]) / number - (mean - values.mean()) ** 2
        far = blocks.first >= FAR
        return np.where(far, 0.0, mean), np.where(far, 0.0, np.maximum(spread, 0.0))

    def variance(self, weights: Floats, scatter: Floats | None = None, *, alone: bool = False) -> Floats:
        """bᵀCb for each row b, at least the share BELIEVED of what the cells ``alone`` would leave, or all of that.

        If the models and the cells alone differ by more than chance, by so much more is left open [2]_.

        To it comes the scatter of the items within blocks, which unless it is given is that of a band that cuts them:
        of each item by itself, or for all that the cells alone tell of the items of a block, as far as the noise blurs
        them, all at one count.
        """

        def quadratic(covariance: Floats) -> Floats:
            return np.asarray(np.maximum(np.einsum("ij,ij->i", weights @ covariance, weights), 0.0))

        mean, widths = self.posterior.mean, self.posterior.channel.blocks.widths
        if scatter is None:
            scatter = np.where(widths > 1, np.abs(weights) * (1 - np.abs(weights)), 0.0).clip(0)
        blurred = mean * np.minimum(1.0, math.sqrt(self.posterior.channel.noise.variance) / widths)
        vague = quadratic(self.posterior.vague)
        apart = (weights @ (self.posterior.alone - mean)) ** 2 - APART**2 * vague
        found = vague + np.maximum(apart, 0.0) + scatter @ np.maximum(mean, blurred**2)
        if alone:
            return np.asarray(found)
        return np.maximum(quadratic(self.posterior.covariance) + scatter @ mean, BELIEVED * found)

    def data_share(self, weights: Floats) -> float:
        """The variance stated over that of the cells alone."""
        stated, alone = (float(self.variance(weights[None], alone=each)[0]) for each in (False, True))
        share = min(1.0, stated / alone) if alone > 0 else 1.0
        return min(share, BELIEVED) if self.full else share


@dataclass(frozen=True, eq=False, repr=False)
class ModelledProfile(Profile):
    """A profile whose intervals come from the posterior of the averaged models."""

    kind: ClassVar[str] = "model"
    _known_curves: dict[float, tuple[Floats, Floats, float]] = field(default_factory=dict, init=False)
    """What :meth:`_curve` has found, by level: a table asks for it dozens of times."""

    @cached_property
    def _grounds(self) -> Grounds:
        law = known_law(self.noisy, self.max_count)
        if law is None:
            raise ConvergenceError("a model must converge for intervals of kind 'model', got none: use kind='robust'")
        far = law.share, self.noisy.noise.variance
        return Grounds(law.posterior, 0, law.top, law.share, float(self.items), law.above, far)

    @property
    def tells(self) -> bool:
        """Is there a model, are its limits finite, and is at most one item of SELDOM above the blocks?"""
        try:
            return math.isfinite(self.distinct.high) and SELDOM * self._grounds.above <= self.items
        except ConvergenceError:
            return False

    def _correlation(self, lo: Int64, hi: Int64) -> Floats:
        grounds = self._grounds
        weights = grounds.shares(np.maximum(lo, grounds.first), hi)
        covariance = weights @ grounds.posterior.covariance @ weights.T
        size = np.sqrt(np.maximum(grounds.variance(weights), 1e-300))
        together = covariance / np.outer(size, size)
        np.fill_diagonal(together, 1.0)
        return np.asarray(together)

    # ---------------------------------------------------------------- numbers of items

    def _bands(self, lo: Int64, hi: Int64, level: float) -> Limits:
        """Limits within those of "at or above": falling, and never more than a k-th of all occurrences."""
        if lo.size > AT_ONCE:
            pieces = [self._bands(lo[i : i + AT_ONCE], hi[i : i + AT_ONCE], level) for i in range(0, lo.size, AT_ONCE)]
            return Limits(*map(np.concatenate, zip(*pieces)))
        grounds, (curve_low, curve_high, most) = self._grounds, self._curve(level)
        lo, hi = np.maximum(lo, grounds.first), np.asarray(hi)
        stderr, low, high = self._limits(lo, hi, level)
        narrow = hi <= grounds.top
        if narrow.any():
            value = self._centres(lo[narrow], hi[narrow])[0]
            high[narrow] = np.maximum(high[narrow], value + self._arrangement.within(lo[narrow], hi[narrow], value))
        above_low, above_high = (np.interp(lo, grounds.counts, curve) for curve in (curve_low, curve_high))
        open_above, beyond = (hi >= NO_END) & (lo <= grounds.top), lo > grounds.top
        high = np.where(open_above, above_high, np.minimum(high, above_high))
        high = np.where(lo > 0, np.minimum(high, most / np.maximum(lo, 1)), high)
        low = np.minimum(np.where(open_above, above_low, np.minimum(low, above_low)), high)
        found = Limits(self._centres(lo, hi)[0], stderr, low, high)
        if beyond.any():
            far = self._beyond(lo[beyond], hi[beyond], level, Limits(*(column[beyond] for column in found)))
            for column, better in zip(found, far):
                column[beyond] = better
        empty = (hi < lo) | (lo > (FAR if self.max_count is None else self.max_count))
        found = Limits(*found[:3], np.minimum(found.high, grounds.whole))
        return Limits(*(np.where(empty, 0.0, column) for column in found))

    def _centres(self, lo: Int64, hi: Int64) -> tuple[Floats, ...]:
        """The middles of the interval of each band: what the posterior expects and, as `auto` has it, the value.

        That is one step nearer to the cells; where they are shared it comes first, as calibration may have moved it.
        """
        grounds, value = self._grounds, self._band_values(lo, hi)
        expected = np.maximum(grounds.shares(lo, hi) @ grounds.posterior.mean, 0.0)
        expected = np.asarray(expected + np.where(hi >= NO_END, grounds.above, 0.0))
        if not math.isfinite(grounds.whole):
            return value, np.where(lo <= grounds.top, expected, value)
        return expected, value if self.method == "auto" else expected

    def _limits(self, lo: Int64, hi: Int64, level: float) -> tuple[Floats, Floats, Floats]:
        """Standard error of the number of items in each band, and limits around every centre: the outermost count.

        The error is told by the blocks up to the last row, by the tail above it, give or take one item. For the limits
        comes to it how many items of the count ``lo`` the noise can hide: of no account where more than that are seen
        about it, up to a deviation of the noise further (items of 2,000 say nothing about those of 1). In a domain the
        items that are left have limits, too: nearly none at 0 may be a hundred times as many.
        """
        grounds, posterior, tail = self._grounds, self._grounds.posterior, self._grounds.tail
        variance = grounds.variance(grounds.shares(lo, hi)) + grounds.unseen
        if tail is not None:
            for k in (lo, np.where(hi < NO_END, hi + 1, lo)):
                beyond = (k > grounds.top) & (hi >= lo)
                if beyond.any():
                    variance[beyond] += np.maximum(tail.curve_variance(k[beyond]), 0)
            single = (hi == lo) & (lo > grounds.top)
            if single.any():
                variance[single] = np.maximum(tail.entry_variance(lo[single]), 0) + 1 + grounds.unseen
        blocks, blur = posterior.channel.blocks, round(math.sqrt(self.noisy.noise.variance))
        about = np.maximum(grounds.shares(lo, np.minimum(hi, lo + blur)) @ posterior.mean, 0.0)
        at = np.minimum(np.searchsorted(blocks.stop[: blocks.covered], lo, side="right"), blocks.covered - 1)
        noise = np.where(lo <= grounds.top, np.sqrt(posterior.hidden)[at], 0.0)
        drowned = noise * np.exp(-0.5 * np.minimum(about / np.maximum(noise, 1e-9), 40.0) ** 2)
        stderr, ends = np.sqrt(variance), []
        reached = np.hypot(stderr, drowned)
        for centre in self._centres(lo, hi):
            ends.append(positive_limits(centre, reached, level))
            if math.isfinite(grounds.whole):
                low, high = positive_limits(np.maximum(grounds.whole - centre, 0.0), reached, level)
                ends.append((np.maximum(grounds.whole - high, 0.0), grounds.whole - low))
        return stderr, np.min([low for low, _ in ends], axis=0), np.max([high for _, high in ends], axis=0)

    def _beyond(self, lo: Int64, hi: Int64, level: float, found: Limits) -> Limits:
        """Bands above the blocks: of those without an end limits are as far from the value as at the last block.

        And as far as the noise moves the count of a single item. Every cell of a domain is seen by itself there. Where
        items share cells and none is seen above the last row, there may be what may lie there at all; a tail's variance
        is among that of the bands, none of which holds more than there may be at or above it.
        """
        grounds, (curve_low, curve_high, total) = self._grounds, self._curve(level)
        last = self._band_values(np.array([grounds.top]), np.array([NO_END]))[0]
        ends, blur, opened = np.full_like(lo, NO_END), self.noisy.noise.reach(1 - level), hi >= NO_END
        moved = np.maximum(lo - blur, grounds.top + 1), lo, np.minimum(lo, FAR - blur) + blur
        most, value, least = (self._band_values(k, ends) for k in moved)
        edge = min(curve_high[-1], total / max(grounds.top, 1))
        high = np.minimum(np.maximum(value + max(edge - last, 0.0), most), total / np.maximum(lo, 1))
        low = np.maximum(np.minimum(value - max(last - curve_low[-1], 0.0), least), 0.0)
        if math.isfinite(grounds.whole) and not opened.all():
            plain = super()._bands(lo, hi, level)
            closed = Limits(plain.estimate, plain.stderr, np.minimum(plain.low, low), np.minimum(plain.high, high))
        elif grounds.tail is None:
            closed = Limits(*found[:3], np.maximum(found.high, high))
        else:
            near, sure = (self._band_values(first, np.minimum(hi, FAR - blur) + by)
                          for first, by in ((moved[0], blur), (moved[2], -blur)))  # fmt: skip
            reached = np.minimum(np.maximum(found.high, near), high)
            closed = Limits(*found[:2], np.minimum(found.low, sure.clip(0)), reached)
        mine = Limits(found.estimate, found.stderr, np.minimum(low, high), high)
        better = Limits(*(np.where(opened, one, other) for one, other in zip(mine, closed)))
        within = np.maximum(better.high - better.low, 1.0)  # many noises, taken out of one cell, would be millions
        return Limits(better.estimate, np.minimum(better.stderr, within), better.low, better.high)

    def _curve(self, level: float) -> tuple[Floats, Floats, float]:
        """Limits of the number of items at or above each count of the blocks, non-increasing, and of all occurrences.

        Of these the upper one: no more than a k-th as many items occur k times.
        """
        if level not in self._known_curves:
            k = self._grounds.counts
            ends = np.full_like(k, NO_END)
            value, (fewer, more) = self._centres(k, ends)[0], self._arrangement.steps
            _, low, high = self._limits(k, ends, level)
            low, high = np.minimum(low, value - fewer), np.maximum(high, value - more)
            low, high = np.maximum.accumulate(low[::-1])[::-1], np.maximum(np.minimum.accumulate(high), value)
            self._known_curves[level] = low, high, self.total.at(level).high
        return self._known_curves[level]

    @cached_property
    def _arrangement(self) -> Arrangement:
        t = np.append(self._grounds.counts, self._grounds.top + 1)
        above = self._centres(t, np.full_like(t, NO_END))[0]
        return Arrangement(t, above, self.noisy.noise, self._grounds.share)

    def _band(self, lo: int, hi: int, level: float, unit: float) -> Estimate:
        answer = self._answers(np.array([lo]), np.array([hi]), level, unit)
        value, stderr, low, high = (float(column[0]) for column in answer)
        grounds, again = self._grounds, lambda other: self._band(lo, hi, other, unit)
        weights = grounds.shares(np.array([max(lo, grounds.first)]), np.array([hi]))[0]
        data_share = grounds.data_share(weights) if lo <= grounds.top else 1.0
        return Estimate(value, stderr, low, high, level, again, "model", data_share, left_open(low, high))

    # ---------------------------------------------------------------- sums over items

    def _sum(self, g: Function, level: float) -> Four:
        """Limits about Σ g(h) as valued and, in a domain, the posterior's mean; items above the blocks one by one."""
        grounds, value = self._grounds, self._sum_value(g)
        expected, stderr = value, self._sum_error(g)
        if math.isfinite(grounds.whole):
            above = self.support > grounds.top
            far = float((self.mass * self.items)[above] @ np.asarray(g(self.support[above]), dtype=float))
            expected = float(grounds.means(g)[0] @ grounds.posterior.mean) + far
        value = value if self.method == "auto" else expected
        down, up = self._margins(g, stderr, level)
        return expected, stderr, min(expected, value) - down, max(expected, value) + up

    def _margins(self, g: Function, stderr: float, level: float) -> tuple[float, float]:
        """How far limits of Σ g(h) reach down and up: in a sample further on the side of giants that are not in it."""
        share, number = self._grounds.share, self.mass * self.items
        margin = float(ndtri((1 + level) / 2)) * stderr
        if share >= 1 or stderr == 0 or not math.isfinite(self._grounds.whole):
            return margin, margin
        values, mean = np.asarray(g(self.support), dtype=float), self._sum_value(g) / self.items
        third = share * (1 - share) * float(number @ (values - mean) ** 3)
        down, up = reaches(self.noisy, g, third, (share * stderr) ** 2, level)
        return margin * down, margin * up

    def _sum_error(self, g: Function) -> float:
        """Standard error of Σ g(h): the blocks up to the last row, the items above it one by one.

        Those have their noise, and stand for others that were not seen. Beside what the posterior leaves open comes
        what calibration has moved: of giants a little is a lot of Σ h².
        """
        grounds, above = self._grounds, self.support > self._grounds.top
        mean, scatter = grounds.means(g)
        variance = float(grounds.variance(mean[None], scatter / grounds.share)[0])
        if grounds.far is not None and above.any():
            share, blur = grounds.far
            far, number = np.asarray(g(self.support[above]), dtype=float), (self.mass * self.items)[above]
            step = np.asarray(g(self.support[above] + 1), dtype=float) - far
            variance += float(number @ ((1 / share - 1) * far**2 + step**2 * blur * (1 / share)))
        before = grounds.uncalibrated
        moved = 0.0 if before is None else float(before @ np.asarray(g(self.support), dtype=float)) - self._sum_value(g)
        return math.hypot(math.sqrt(max(variance, 0.0)), moved)

    def _statistic(self, g: Function, level: float, floor: float = -np.inf) -> Estimate:
        value, stderr, low, high = self._limited(g, level, floor)
        again: Callable[[float], Estimate] = lambda other: self._statistic(g, other, floor)  # noqa: E731
        data_share = self._grounds.data_share(self._grounds.means(g)[0])
        return Estimate(value, stderr, low, high, level, again, "model", data_share, left_open(low, high))

    @property
    def total(self) -> Estimate:
        """Σ h, the number of occurrences: no model tells it better than the sum of the cells."""
        value = self._sum_value(identity)

        def at(level: float) -> Estimate:
            found = Profile._sum(self, identity, level)
            return Estimate(value, found[1], *bounded(value, found, 0.0), level, at)

        return at(0.95)

    @property
    def entropy(self) -> Estimate:
        """Shannon entropy of h/Σh, in nats."""
        total, weighted = self._sum_value(identity), self._sum_value(xlogx)

        def change(t: Any) -> Floats:
            return np.asarray(t * (1 / total + weighted / total**2) - xlogx(t) / total)

        def at(level: float) -> Estimate:
            items = self.distinct.at(level)
            most = math.log(max(items.high, 1.0))
            if total <= 0:
                return Estimate(0.0, most / 2, 0.0, most, level, at, "model", 0.0, True)
            value, stderr = max(float(np.log(total) - weighted / total), 0.0), self._sum_error(change)
            down, up = self._margins(change, stderr, level)
            low, high = max(0.0 if items.low <= 1 else value - down, 0.0), max(min(value + up, most), value)
            data_share = self._grounds.data_share(self._grounds.means(change)[0])
            return Estimate(value, stderr, low, high, level, at, "model", data_share, left_open(low, high))

        return at(0.95)

    # ---------------------------------------------------------------- shares of the items

    def _quantile_limits(self, q: float, level: float, value: float) -> tuple[float, float, float]:
        """Search by halving for where (items above t) − (1 − q)·(all items) is 0, give or take its error.

        Or, as for the numbers of items, a quarter of what the noise hides of how those about t are arranged. And all of
        these may lie elsewhere together: the mean count of n cells is known to σ/√n. The share of data compares the
        squares of how many counts are left to it, by the models and by the cells alone.
        """
        grounds, end = self._grounds, np.array([NO_END])

        def first(margin: float, hidden: Floats, alone: bool) -> float:
            low, high = grounds.first - 1, max(int(self.support[-1]), int(self.noisy.values[-1]), 1) + 1
            while high - low > 1:
                middle = (low + high) // 2
                above = self._centres(np.array([middle + 1]), end)[0][0]
                weights = grounds.shares(np.array([middle + 1]), end)[0] - (1 - q) * whole
                error = margin * math.sqrt(float(grounds.variance(weights[None], alone=alone)[0]) + grounds.unseen)
                if middle < grounds.top:
                    error = max(error, float(np.interp(middle + 1, grounds.counts, hidden)), key=abs)
                if above - (1 - q) * self.items <= error + 1e-9 * self.items:
                    high = middle
                else:
                    low = middle
            return float(high)

        if self.items <= 0:  # a single item that the noise hides may have all occurrences
            ends = [(0.0, float(math.floor(self.total.at(level).high)))] * 2
        else:
            whole, (fewest, most) = grounds.shares(np.array([grounds.first]), end)[0], self._arrangement.steps
            z, blur, top = float(ndtri((1 + level) / 2)), self.noisy.noise.reach(1 - level), grounds.top
            ends = [(first(z, fewest, alone), first(-z, most, alone)) for alone in (False, True)]
            deviation = math.sqrt(self.noisy.noise.variance)
            about = np.array([[max(value - deviation, grounds.first)], [value + deviation]]).round().astype(np.int64)
            cells = max(float(self._centres(*about)[0][0]) * grounds.share, 1.0)
            place = round(z * deviation / math.sqrt(cells)) if value <= top else 0
            # a single item above the blocks carries the noise of its cell
            ends = [(max(low - blur, top) if low > top else min(low, max(value - place, grounds.first)),
                     high + blur if high > top else max(high, value + place)) for low, high in ends]  # fmt: skip
        (low, high), (least, farthest) = ((min(low, value), max(high, value)) for low, high in ends)
        share = ((high - low + 1) / (max(farthest, high) - min(least, low) + 1)) ** 2
        return low, high, min(share, BELIEVED) if grounds.full else share
