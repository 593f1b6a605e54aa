"""Answers from a noisy curve: numbers of items and sums over them, with intervals that need no assumption.

**Items with count ≥ t** ("at_least"): limits of the whole diagram, which hold for finite samples and fall; noise being
whole, they cover more than nominal. Differences S(lo) − S(hi + 1) of single columns that surely hold boxes carry two
noises, whose exact law is the noise of power 2; elsewhere each side takes half the error. Such a difference below 0 is
noise, and more of it says nothing more: beyond one deviation it lowers no limit (else the items at a count would be
*0 to 0* in one case of forty where there are none).

**"exactly"** (noise on f): the sum of n numbers carries the noise of power n; blocks inside the range bound from below,
blocks that meet it from above.

**Σ g(h)** is a sum over boxes: Σ_t (g(t) − g(t−1)) over those of columns, linear in the numbers; a row adds
G(n) = g(start − 1 + n) − g(start − 1) for its n boxes, for which G(y) − a/(1−a)²·(G(y+1) − 2G(y) + G(y−1)) is unbiased
(the noise has an inverse of three taps). Wide blocks take the chord of g; what it misses widens the interval. Four
cumulants of the noise, with the slope of G at the fitted counts, make the rest.

**Between which diagrams the truth lies** (:class:`Diagram`): with q the smallest whole number that a noise exceeds with
probability ≤ tail, and the letters of :mod:`unnoise.curve`,

* a column says S(t) ≤ above + (y + q)⁺, and S(t) ≥ above + y − q where y > q (else it may hold no box);
* a row says h_i ≤ start − 1 + (y + q)⁺ and h_i ≥ start − 1 + y − q likewise, and S(t) ≥ i is the same as h_i ≥ t.

Which of the two tells S(t) depends on the corner T of the diagram, between T̲ (some column is above all doubt) and T̄
(:func:`~unnoise.estimators.falling.last_corner`). Up to T̲ columns give both limits; beyond T̄ rows do, those of rank up
to ⌊T̄/8⌋; between the two the upper limit is the column's, and the lower one the larger of both, each with half the
tail. Of a wide block the mean is known, which bounds its ends on one side each.

**Limits fall as S does**: where columns or rows surely hold boxes the nearest falling sequence to the limits is taken,
elsewhere the least limit so far. In a stretch where S is flat the nearest sequence is their mean; where it is steep,
they stay as they are. (A limit of t then fails only if the mean of the noises of some stretch that ends at t does, so
coverage hardly changes; tests/test_direct.py measures it.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression
from scipy.special import ndtri

from ..arrays import Floats, Int64
from ..curve import TOP, NoisyCurve
from ..errors import InputError
from ..estimators.falling import DOUBT, falling, largest_count, last_corner, spread, upper_quantile
from ..estimators.linear import Function
from ..estimators.methods import Notice, capped
from .bands import Limits
from .estimate import NO_END, Estimate
from .profile import Answers, Profile, identity
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

ROUNDING = 1e-12
"""Relative error of sums of floats."""

PROBES = 9
"""Points at which a function is compared with its chord over a block."""


# ── between which diagrams the truth lies ───────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, eq=False)
class Limited:
    """Limits of S as two falling step functions: ``values[i]`` up to the count ``ends[i]``, 0 beyond the last."""

    ends: Floats
    low: Floats
    high: Floats

    def at(self, t: Int64) -> tuple[Floats, Floats]:
        """Return lower and upper limit of S(t)."""
        at = np.searchsorted(self.ends, t.astype(float))
        return np.append(self.low, 0.0)[at], np.append(self.high, 0.0)[at]


@dataclass(frozen=True, eq=False)
class Diagram:
    """A noisy curve with what is beyond doubt about its corner."""

    curve: NoisyCurve
    made: dict[float, Limited] = field(default_factory=dict)

    @cached_property
    def last(self) -> tuple[int, int]:
        """Blocks of columns and groups of rows that may hold boxes."""
        return last_corner(self.curve)

    @cached_property
    def sure(self) -> int:
        """Blocks of columns, from the first, that hold boxes beyond doubt."""
        columns, _ = self.last
        clear = np.flatnonzero(self.curve.numbers[:columns] > upper_quantile(self.curve.noise, 1, DOUBT))
        return int(clear[-1]) + 1 if clear.size else 0

    def limits(self, tail: float) -> Limited:
        """Return limits of S(t), each of which fails with probability about ``tail``."""
        if tail not in self.made:
            self.made[tail] = self._limits(tail)
        return self.made[tail]

    def _limits(self, tail: float) -> Limited:
        columns, _ = self.last
        curve, rows = self.curve, self._rows(tail / 2)
        lows, highs = self._columns(tail, tail / 2)
        first, last = curve.first[:columns], curve.last[:columns]
        beside, _ = rows.at(last)
        lows = np.ceil(np.append(_falls(lows[: self.sure]), np.maximum(lows, beside)[self.sure :]) - 1e-9)
        highs = np.floor(_falls(highs) + 1e-9)
        # a wide block: its own mean bounds S at its first count from below, that of the block before it from above
        wide = last > first
        highs = np.where(wide, np.append(highs[:1], highs[:-1]), highs)
        lows = np.where(wide, np.append(lows[1:], rows.at(last[-1:])[0] if columns else []), lows)
        end = float(last[-1]) if columns else 0.0
        after = rows.ends > end
        ends = np.concatenate([last.astype(float), rows.ends[after]])
        low, high = np.concatenate([lows, rows.low[after]]), np.concatenate([highs, rows.high[after]])
        return Limited(ends, np.minimum.accumulate(low) + 0.0, np.minimum.accumulate(high) + 0.0)  # no −0

    def _columns(self, tail: float, doubtful: float) -> tuple[Floats, Floats]:
        """Limits of the mean of S over each block; beyond the sure corner the lower one has the other tail."""
        curve, columns = self.curve, self.last[0]
        y, width = curve.numbers[:columns].astype(float), curve.width[:columns].astype(float)
        above = curve.above[:columns].astype(float)
        q, surer = upper_quantile(curve.noise, 1, tail), upper_quantile(curve.noise, 1, doubtful)
        margin = np.where(np.arange(columns) < self.sure, q, surer)
        high = above + np.maximum(y + q, 0) / width
        low = np.where(y > margin, above + (y - margin) / width, 0.0)
        sure = np.arange(columns) < self.sure - 1  # boxes up to the corner: more than its rank
        return np.where(sure, np.maximum(low, above[self.sure - 1] + 1 if self.sure else 0.0), low), high

    def _rows(self, tail: float) -> Limited:
        """Limits of S(t) by rows alone, for counts beyond the columns."""
        curve, groups = self.curve, self.last[1]
        if not groups:
            return Limited(np.zeros(0), np.zeros(0), np.zeros(0))
        y, width = curve.ranks[:groups].astype(float), curve.rank_width[:groups].astype(float)
        before, q = curve.start[:groups] - 1.0, upper_quantile(curve.noise, 1, tail)
        high = np.floor(_falls(before + np.maximum(y + q, 0) / width) + 1e-9)
        speaks = int(np.argmin(np.append(y > q, False)))  # up to the first row that may hold no box
        low = np.append(np.ceil(_falls((before + (y - q) / width)[:speaks]) - 1e-9), np.zeros(groups - speaks))
        wide = width > 1
        high = np.where(wide, np.append(high[:1], high[:-1]), high)  # of the first rank of its group
        low = np.where(wide, np.append(low[1:], 0.0), low)  # of the last
        ends = np.unique(np.concatenate([high, low]))
        ends = ends[ends > 0]
        rank = np.append(0, curve.rank_last[:groups]).astype(float)
        reaches = [rank[np.searchsorted(-limit, -ends, side="right")] for limit in (low, high)]
        return Limited(ends, reaches[0], reaches[1])


def _falls(limits: Floats) -> Floats:
    """Return the nearest sequence that never rises."""
    return np.asarray(isotonic_regression(limits, increasing=False).x) if limits.size else limits


# ── the profile ─────────────────────────────────────────────────────────────────────────────────────────────────────


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
        if self.curve.released == "exactly":
            return self._falling(_between_exactly(self.curve, lo, hi, level), lo, hi, level)
        return self._between_at_least(lo, hi, (1 - level) / 2)

    def _correlation(self, lo: Int64, hi: Int64) -> Floats:
        """None: every released number has a noise of its own, and answers that share one are the safer for it."""
        return np.eye(lo.size)

    def _falling(self, found: Limits, lo: Int64, hi: Int64, level: float) -> Limits:
        """The same, where counts have no end with limits that fall, as S does: the least wide ones that hold these.

        No other band that begins at t holds more than S(t).
        """
        curve, opened = self.curve, hi >= min(int(self.curve.last[-1]), NO_END)
        _, _, low, high = _between_exactly(curve, curve.first, np.full_like(curve.first, NO_END), level)
        low, high = np.append(np.minimum.accumulate(low), 0.0), np.maximum.accumulate(high[::-1])[::-1]
        inside = np.minimum(lo, int(curve.last[-1]))
        low, high = low[np.searchsorted(curve.first, inside)], high[np.searchsorted(curve.last, inside)]
        some = (hi >= lo) & ((lo <= int(curve.last[-1])) | (int(curve.last[-1]) == TOP))
        high = np.where(some, np.where(opened, high, np.minimum(found.high, high)), found.high)
        return Limits(found.estimate, found.stderr, np.where(some & opened, low, np.minimum(found.low, high)), high)

    @cached_property
    def _diagram(self) -> Diagram:
        return Diagram(self.curve)

    def _between_at_least(self, lo: Int64, hi: Int64, tail: float) -> Limits:
        """S(lo) − S(hi + 1), where the second is 0 without an end."""
        curve, opened = self.curve, hi >= min(self.largest, NO_END)
        beyond = np.where(opened, lo, hi) + 1
        one, half = self._diagram.limits(tail).at(lo), self._diagram.limits(tail / 2)
        first, second = half.at(lo), half.at(beyond)
        low, high = np.maximum(first[0] - second[1], 0.0), first[1] - second[0]
        known = int(np.searchsorted(curve.width, 1.5))
        both = beyond <= min(self._diagram.sure, known)
        at, after = (np.minimum(t, max(known, 1)) - 1 for t in (lo, beyond))
        raw = (curve.numbers[at] - curve.numbers[after] + curve.above[at] - curve.above[after]).astype(float)
        q, far = upper_quantile(curve.noise, 2, tail), -math.floor(math.sqrt(2 * curve.noise.variance))
        low = np.where(both, (raw - q).clip(0), low)
        high = np.minimum(np.where(both, np.maximum(raw, far) + q, high), one[1])
        low, high = np.where(opened, one[0], low), np.where(opened, one[1], np.maximum(high, low))
        estimate = np.where(both & ~opened, raw, self._band_values(lo, hi))
        stderr = (high - low) / (2 * float(ndtri(1 - tail)))
        empty = (hi < lo) | (lo > self.largest)
        return Limits(*(np.where(empty, 0.0, column) for column in (estimate, stderr, low, high)))

    # ---------------------------------------------------------------- sums over items

    def _require_growth(self, g: Function) -> None:
        """Refuse a g that is not finite at the counts in question."""
        with np.errstate(over="ignore", invalid="ignore"):
            ends = np.append(_values(g, np.array([1])), _values(g, np.array([self.largest])))
        if not np.isfinite(ends).all():
            raise InputError(f"g must be finite for counts up to {self.largest}, got {ends[-1]}")

    def _chords(self, g: Function, kept: int) -> tuple[Floats, Floats]:
        """Return weight c_j and the farthest distance of g from its chord, for the first blocks."""
        curve = self.curve
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
        curve = self.curve
        columns, groups = self._diagram.last if curve.released == "at_least" else (curve.numbers.size, 0)
        weight, missed = self._chords(g, columns)
        estimate = float(weight @ curve.numbers[:columns].astype(float))
        inside = self._band_values(curve.first[:columns], curve.last[:columns])
        slack = float(missed @ (inside + np.where(missed > 0, 1, 0) * (inside > 0)))
        if groups:
            more, slopes, doubt = self._rows(g, groups)
            estimate, weight, slack = estimate + more, np.append(weight, slopes), slack + doubt
        stderr, half = spread(weight, curve.noise, (1 - level) / 2)
        slack += ROUNDING * abs(estimate)
        return estimate, stderr, estimate - half - slack, estimate + half + slack

    def _rows(self, g: Function, groups: int) -> tuple[float, Floats, float]:
        """Return what the rows add to Σ g(h), how it moves with each number, and what wide groups leave open."""
        curve, a = self.curve, self.curve.noise.a
        before, width = curve.start[:groups].astype(float) - 1, curve.rank_width[:groups].astype(float)

        def boxes(n: Floats) -> Floats:
            at = np.floor(np.maximum(n, 0)).astype(np.int64)
            lower, upper = (_values(g, np.minimum(curve.start[:groups] - 1 + at + up, TOP)) for up in (0, 1))
            start = _values(g, curve.start[:groups] - 1)
            slope = _values(g, curve.start[:groups]) - start
            return np.where(n >= 0, lower - start + (n - at) * (upper - lower), n * slope)

        y = curve.ranks[:groups] / width
        bent = boxes(y + 1) - 2 * boxes(y) + boxes(y - 1)
        found = width * (boxes(y) - np.where(width == 1, a / (1 - a) ** 2, 0.0) * bent)
        fitted = np.maximum(self._count_of(curve.rank_last[:groups]) - before, 0)
        reach = max(1.0, curve.noise.variance**0.5)
        slopes = (boxes(fitted + reach) - boxes(np.maximum(fitted - reach, -1))) / (
            reach + np.minimum(fitted + 1, reach)
        )
        apart = np.abs(np.diff(fitted, append=0.0))
        bend = np.abs(boxes(fitted + apart) - 2 * boxes(fitted) + boxes(np.maximum(fitted - apart, 0)))
        return float(found.sum()), slopes, float((width * bend)[width > 1].sum())

    def _count_of(self, rank: Int64) -> Floats:
        """The fitted count of the item of a rank, 0 where there are fewer."""
        larger = np.cumsum((self.mass * self.items)[::-1])
        at = np.searchsorted(larger, rank - 0.5)
        return np.append(self.support[::-1].astype(float), 0.0)[at]

    @property
    def total(self) -> Estimate:
        """Σ h, the number of occurrences: the sum of the released numbers ("at_least"), at least one for every item."""

        def at(level: float) -> Estimate:
            estimate, stderr, low, high = self._sum(identity, level)
            value = max(estimate, self.number) if self.curve.released == "at_least" else self._sum_value(identity)
            value = value if self.number else 0.0  # no items, no occurrences
            items = self.distinct.at(level)  # and no item without one
            low, high = max(low, items.low), math.inf if self._saturated else max(high, items.high)
            return Estimate(value, stderr, min(low, value), max(high, value), level, at)

        return at(0.95)

    @property
    def _saturated(self) -> bool:
        """Whether some number may have been cut at the largest that is released."""
        released = np.append(self.curve.numbers, self.curve.ranks)
        return int(released.max()) > TOP - upper_quantile(self.curve.noise, 1, DOUBT)

    def _entropy(self, level: float) -> tuple[float, float, float, float]:
        most = float(np.log(max(self.distinct.at(level).high, 1.0)))
        total, weighted = self._sum_value(identity), self._sum_value(xlogx)
        if total <= 0:
            return 0.0, most / 2, 0.0, most

        def change(t: NDArray[Any]) -> Floats:
            return np.asarray(t * (1 / total + weighted / total**2) - xlogx(t) / total)

        moved, stderr, low, high = self._sum(change, level)
        value = max(float(np.log(total) - weighted / total), 0.0)
        low, high = value + low - 1, value + high - 1  # of the fitted profile itself the change is 1
        return value + moved - 1, stderr, min(max(low, 0.0), most), min(max(high, 0.0), most)

    # ---------------------------------------------------------------- shares of the items

    def _quantile_limits(self, q: float, level: float, value: float) -> tuple[float, float, float]:
        """Invert S(t + 1) ≤ (1 − q)·distinct, with the limits of both sides."""
        if self.number <= 0:
            return min(1.0, value), max(float(self.largest), value), 1.0
        surer = 1 - (1 - level) * SURER
        _, _, fewest, most = (float(x[0]) for x in self._bands(np.array([1]), np.array([NO_END]), surer))
        t = self._turns(level)
        _, _, low, high = self._bands(t + 1, np.full_like(t, NO_END), 1 - (1 - level) * (1 - SURER))
        low[-1], high[-1] = 0.0, 0.0
        possible = np.flatnonzero(low <= (1 - q) * most + 1e-9)
        unsure = np.flatnonzero(high > (1 - q) * fewest + 1e-9)
        last = int(t[min(unsure[-1] + 1, t.size - 1)]) if unsure.size else int(t[0])
        return min(float(t[possible[0]]), value), max(float(last), value), 1.0

    def _turns(self, level: float) -> Int64:
        """Counts t from 1 on at which the limits of S(t + 1) may change, up to the largest: no item has the count 0.

        The items of a block of f may all have its first count, or all its last: the lower limit falls at its begin.
        """
        if self.curve.released == "exactly":
            ends = np.union1d(self.curve.first - 1, self.curve.first)
        else:
            ends = np.append(1.0, self._diagram.limits((1 - level) * (1 - SURER) / 2).ends)
        ends = np.unique(ends[(ends >= 1) & (ends < self.largest)])
        return np.append(ends, max(self.largest, 1)).astype(np.int64)

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
    cap, mass = curve.max_count, items / items.sum()
    notices = (UNBOUNDED if unbounded else ()) + (() if cap is None else (capped(cap),))
    return DirectProfile(support, mass, "falling", curve, notes, None, number, cap=cap, notices=notices)


def _values(g: Function, t: Int64) -> Floats:
    return np.broadcast_to(np.asarray(g(np.maximum(t, 1)), dtype=float), t.shape).astype(float)


def _between_exactly(curve: NoisyCurve, lo: Int64, hi: Int64, level: float) -> Limits:
    """Estimate, standard error and limits of the items with count in lo..hi, from noisy f; none beyond a limit."""
    end = int(curve.last[-1])
    empty = (hi < lo) | ((lo > end) & (end < TOP))
    lo, hi = np.minimum(lo, end), np.minimum(np.maximum(lo, hi), end)
    running = np.concatenate([[0.0], np.cumsum(curve.numbers.astype(float))])
    met = np.searchsorted(curve.last, lo), np.searchsorted(curve.first, hi, side="right")
    within = np.searchsorted(curve.first, lo), np.searchsorted(curve.last, hi, side="right")
    within = within[0], np.maximum(within[1], within[0])
    tail, sums = (1 - level) / 2, [running[b] - running[a] for a, b in (met, within)]
    stderr = np.sqrt((met[1] - met[0]) * curve.noise.variance)
    seen = np.where(hi < min(end, NO_END), np.maximum(sums[0], -np.floor(stderr)), sums[0])
    high = seen + _quantiles(curve, met[1] - met[0], tail)
    low = sums[1] - _quantiles(curve, within[1] - within[0], tail)
    share = (hi - lo + 1.0) / (curve.last[met[1] - 1] - curve.first[met[0]] + 1.0)
    columns = (sums[0] * share, stderr, low.clip(0), high.clip(0))
    return Limits(*(np.where(empty, 0.0, column) for column in columns))


def _quantiles(curve: NoisyCurve, noises: NDArray[Any], tail: float) -> Floats:
    """The upper quantile of the sum of so many noises, for each entry."""
    sizes, where = np.unique(noises, return_inverse=True)
    return np.array([float(upper_quantile(curve.noise, int(n), tail)) for n in sizes])[where]
