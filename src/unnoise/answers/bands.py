"""How many cells have a count in lo..hi: the unbiased estimate and its interval, for many bands at once.

Every answer about a range of counts is a *band*: the entry t is lo = hi = t, ``at_least(k)`` is lo = k without
an upper end. With g the indicator of the band, the unbiased estimate is Σ_cells w(x) over the noisy counts x, where
w is the inverse filter of the noise applied to g: w(x) = C(x − lo) − C(x − hi − 1), C the running sum of the
filter's taps (for ρ = 1 these are −κ, 1 + 2κ, −κ with κ = a/(1−a)², and x is folded at 0). Because g² = g,
the unbiased estimate of its variance is Σ_cells w² − w. Bands with an edge near 0 have, for ρ > 1, the weights of least
variance (:func:`unnoise.estimators.linear.least_weights`).

Three ingredients make the interval:

*The normal part.* The estimate is asymptotically normal, and a number of cells lies between 0 and d. Feldman and
Cousins' [1]_ ordering gives the interval that covers exactly at the level for a normal estimate of a
bounded number: two-sided inside, one-sided at the boundary, never empty.

*Few cells.* Where few cells decide (an isolated cell mostly gives estimate 0 with estimated variance 0), the variance
estimate is raised to what the neighbourhood allows: if all Y cells seen in a window ±k came from one count, and one
more went unseen, the mean number at a single noisy value would be (Y + 1)·p₀/q_k, with p₀ = P(Z = 0) and
q_k = P(|Z| ≤ k); the largest over a few windows takes the place of what was seen.

*Domination.* Each of the N cells in the band is noisy within ±k of it with probability at least q_k = P(|Z| ≤ k),
independently, and every other cell only adds; so the number of noisy counts in lo − k..hi + k is stochastically
at least Binomial(N, q_k), and a Clopper–Pearson upper limit for N holds whatever the data. Likewise below: of the
cells under lo that show inside the band, a share of at most P(Z > b)/P(Z ≥ 1) shows at lo + b or above (the noise
has log-concave tails for ρ ≥ 1), so N is at least the number of cells that show well inside, less a few strays. A few
window widths share the error probability ``GUARD``.

With a sampled sketch each item of the domain has a cell with probability r, so q becomes r·q, and the normal part
adds the sampling variance of a finite population. What none of the cells show may be there all the same, so the limits
are also Wilson's [3]_: all numbers N of D items with (N − N̂)² ≤ z²·(V + N·(1 − N/D)·(1 − r)/r), V the variance of N̂ by
the noise.

.. [1] G. J. Feldman, R. D. Cousins, "Unified approach to the classical statistical analysis of small signals",
   Phys. Rev. D 57 (1998) 3873.
.. [2] V. Chernozhukov, I. Fernández-Val, A. Galichon, "Improving point and interval estimators of monotone functions by
   rearrangement", Biometrika 96 (2009) 559.
.. [3] E. B. Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22 (1927) 209.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy import special
from scipy.optimize import isotonic_regression

from ..arrays import Floats, Int64
from ..estimators.linear import least_weights, step_response
from ..noise import DiscreteLaplace
from ..noisy import NoisyProfile, cells_between
from .estimate import NO_END

__all__ = ["Bands", "Limits", "binomial_upper", "bounded_normal", "step_error"]

GUARD = 0.1
"""Error probability of the limits by domination, as a share of 1 − level; they only ever narrow the interval."""

ALLOWANCE = 1.15
"""Miss probability of the normal part for single entries, in units of 1 − level: a Profile
extends intervals to contain the reconstructed value, which takes back up to half of the misses when it is good."""

FEW = 15.0
"""Effective number of cells below which the estimated variance is not trusted by itself."""

HIGHEST_POWER = 12
"""Power up to which weights below 0 are chosen: beyond, no choice makes a band say anything."""

MANY = 256
"""Noises up to which a filter is made to see how far it is off."""

LONGEST_CURVE = 2048
"""Counts up to which "at least" is kept falling."""

LONGEST_SUM = 4096
"""Largest count up to which the errors of "at least" are added up from those of single counts."""

CHUNK = 1 << 22
"""Largest number of array entries gathered at a time."""


@lru_cache(maxsize=32)
def step_error(noise: DiscreteLaplace) -> float:
    """Return the largest standard deviation, to a cell, of the unbiased estimate of whether its count is at least t.

    With C the running sum of the taps its square is Σ_z p(z)·(C² − C)(h − t + z), at the h for which that is largest.
    A fraction of a noise is left out; of more than MANY noises, or stronger ones than can be undone, it is about
    φ(π)^(−ρ)/√ρ.

    >>> round(step_error(DiscreteLaplace(1)), 3), round(step_error(DiscreteLaplace(1, 2)), 3)
    (1.057, 3.297)
    """
    whole = DiscreteLaplace(noise.epsilon, math.floor(noise.power))
    rise = step_response(whole) if noise.power <= MANY else None
    if rise is None:
        shown = float(noise.characteristic(math.pi)) * math.sqrt(noise.power)
        return 1 / shown if shown > 0 else math.inf
    law = whole.pmf(np.arange(-rise.size, rise.size + 1))
    return math.sqrt(float(np.convolve(law, rise**2 - rise).max()))


class Limits(NamedTuple):
    """Estimates of several numbers at once: centre, standard error, interval."""

    estimate: Floats
    stderr: Floats
    low: Floats
    high: Floats


def bounded_normal(estimate: Floats, stderr: Floats, size: float, level: float) -> tuple[Floats, Floats]:
    """Return Feldman–Cousins limits for a normal estimate of a number between 0 and ``size``."""
    mirrored = estimate > size / 2
    near = np.where(mirrored, size - estimate, estimate)
    safe = np.where(stderr > 0, stderr, 1.0)
    x, z, one_sided = near / safe, float(special.ndtri((1 + level) / 2)), float(special.ndtri(level))
    mu, first, last = _acceptance(level)
    low = np.where(x > last[-1], x - z, np.interp(x, last, mu, left=0.0))
    high = np.where(x > first[-1], x + z, np.interp(x, first, mu))
    # x below the table: the acceptance edge x₁ ≈ −s²/(2μ) gives μ ≈ s²/(2|x|)
    high = np.where(x < first[0], one_sided**2 / (2 * np.maximum(-x, 1.0)), high)
    low, high = (np.where(stderr > 0, end * safe, near).clip(0, size) for end in (low, high))
    return np.where(mirrored, size - high, low), np.where(mirrored, size - low, high)


@lru_cache(maxsize=32)
def _acceptance(level: float) -> tuple[Floats, Floats, Floats]:
    """Return μ and the ends x₁, x₂ of the acceptance intervals for 0 < μ ≤ z.

    With s = x₂ − μ, equal likelihood ratios at both ends mean x₁ − μ = −μ/2 − s²/(2μ); s solves
    Φ(s) − Φ(−μ/2 − s²/(2μ)) = level.
    """
    z = float(special.ndtri((1 + level) / 2))
    mu = z * np.concatenate([np.geomspace(1e-3, 0.1, 60)[:-1], np.linspace(0.1, 1, 200)])
    low = np.full_like(mu, float(special.ndtri(level)))
    high = np.full_like(mu, z)
    for _ in range(60):
        s = (low + high) / 2
        below = special.ndtr(s) - special.ndtr(-mu / 2 - s * s / (2 * mu)) < level
        low, high = np.where(below, s, low), np.where(below, high, s)
    s = (low + high) / 2
    return mu, mu / 2 - s * s / (2 * mu), mu + s


def sampled_limits(estimate: Floats, variance: Floats, rate: float, items: int, level: float) -> tuple[Floats, Floats]:
    """Return Wilson's limits for the number of items in a band, of all of which a share ``rate`` has cells.

    >>> least, most = sampled_limits(np.array([0.0, 100.0]), np.zeros(2), 0.1, 1000, 0.95)
    >>> least.round().tolist(), most.round().tolist()
    ([0.0, 57.0], [33.0, 170.0])
    """
    squared, near, drawn = float(special.ndtri((1 + level) / 2)) ** 2, estimate.clip(0, items), 1 / rate - 1
    middle, scale = near + squared * drawn / 2, 1 + squared * drawn / items
    half = np.sqrt(middle**2 - scale * (near**2 - squared * variance))
    return ((middle - half) / scale).clip(0, items), ((middle + half) / scale).clip(0, items)


def binomial_upper(successes: Floats, q: float, alpha: float) -> Floats:
    """Return the largest n with P(Binomial(n, q) ≤ successes) > alpha.

    >>> binomial_upper(np.array([0.0, 1.0]), 0.5, 0.05)
    array([4., 7.])
    """
    distinct, where = np.unique(np.asarray(successes, dtype=float), return_inverse=True)
    z = -float(special.ndtri(alpha))
    # Start from Wilson's score limit for n, then walk to the exact one by bisection where the number is small.
    spread = z * np.sqrt(distinct * (1 - q) + z * z * (1 - q) ** 2 / 4)
    wide = (distinct + z * z * (1 - q) / 2 + spread) / q
    small = distinct < 2000
    low, high = distinct[small].copy(), 2 * wide[small] + 10 / q
    while low.size and (high - low).max() > 0.5:
        middle = np.floor((low + high) / 2)
        holds = special.bdtr(distinct[small], np.maximum(middle, distinct[small]).astype(np.int64), q) > alpha
        stuck = middle == low
        low, high = np.where(holds, middle, low), np.where(holds, high, np.where(stuck, low, middle))
        high = np.where(stuck & holds, low, high)
    limit = np.ceil(wide) + 1
    limit[small] = low
    return np.asarray(limit[where])


class Bands:
    """Interval estimates for numbers of items in bands of counts, from one noisy profile.

    noisy : the noisy profile
    items : number of items the answers are scaled to (the domain of a sampled sketch, else the cells)
    rate : share of the items that have a cell
    values, tally : the noisy profile as the filter sees it, folded at 0 for ρ = 1; ``shown`` for :func:`cells_between`
    steps : C(j) for j = −J..J − 1, what the filter makes of a step up at 0
    blind : whether no float holds them, and nothing is told but by domination
    """

    def __init__(self, noisy: NoisyProfile, items: int) -> None:
        self.noisy, self.items, self.rate = noisy, items, noisy.cells / items
        self.values, self.tally = noisy.folded() if noisy.noise.power == 1 else (noisy.values, noisy.tally)
        self.shown = self.values, np.append(0, np.cumsum(self.tally))
        steps = step_response(noisy.noise)
        self.blind, self.steps = steps is None, np.zeros(0) if steps is None else steps
        self._curves: dict[float, tuple[Floats, Floats]] = {}
        self._leasts: dict[tuple[int, int], tuple[float, float]] = {}  # every question asks for the same few

    def limits(self, lo: Int64, hi: Int64, level: float) -> Limits:
        """Return estimate, standard error and interval of the number of items with count in lo..hi."""
        if self.blind:
            half = np.full(lo.size, self.items / 2)
            ends = self._dominated(lo, hi, np.zeros(lo.size), 2 * half, GUARD * (1 - level) / 2)
            return Limits(half, half, *ends)
        with np.errstate(over="ignore", invalid="ignore"):  # after many merges: no limits but 0 and all items
            estimate, variance = self.linear(lo, hi)
            share = (estimate / self.noisy.cells).clip(0, 1)
            sampling = (1 - self.rate) * self.noisy.cells * share * (1 - share)
            estimate, stderr = estimate * (1 / self.rate), np.sqrt(variance + sampling) * (1 / self.rate)
            low, high = bounded_normal(estimate, stderr, self.items, level)
            if (entry := lo == hi).any():
                miss = min(ALLOWANCE * (1 - level), 1 - level / 2)
                low[entry], high[entry] = bounded_normal(estimate[entry], stderr[entry], self.items, 1 - miss)
            if self.rate < 1:
                least, most = sampled_limits(estimate, variance / self.rate**2, self.rate, self.items, level)
                low, high = np.minimum(low, least), np.maximum(high, most)
            return Limits(estimate, stderr, *self._dominated(lo, hi, low, high, GUARD * (1 - level) / 2))

    def consistent(self, lo: Int64, hi: Int64, level: float) -> Limits:
        """The same, with limits of "at least" that fall, and none of a band above those of its lower end.

        A curve that falls is nearer to a band whose ends are made to fall than to the band itself [2]_. They are made
        to fall as they were before 0 and all items cut them: what is cut has a mean above 0 even where nothing is.
        """
        if level not in self._curves:
            k = np.arange(min(max(int(self.noisy.values[-1]), 0) + 2, LONGEST_CURVE))
            found, z = self.limits(k, np.full_like(k, NO_END), level), float(special.ndtri((1 + level) / 2))
            low = np.where(found.low > 0, found.low, np.minimum(found.estimate - z * found.stderr, 0))
            high = np.where(found.high < self.items, found.high,
                            np.maximum(found.estimate + z * found.stderr, self.items))  # fmt: skip
            low, high = (np.asarray(isotonic_regression(end, increasing=False).x) for end in (low, high))
            self._curves[level] = low.clip(0, self.items), high.clip(0, self.items)
        found, (low, high) = self.limits(lo, hi, level), self._curves[level]
        at = np.minimum(lo, low.size - 1)
        # past the last noisy count the curve is as it is there, unless it was cut short of that
        whole = low.size > max(int(self.noisy.values[-1]), 0) + 1
        inside, open_above = (lo >= 0) & ((lo < low.size) | whole), hi >= NO_END
        low = np.where(inside & open_above, low[at], np.minimum(found.low, low[at]))
        high = np.where(inside & open_above, high[at], np.minimum(found.high, high[at]))
        return Limits(found.estimate, found.stderr, np.minimum(low, high), high)

    def linear(self, lo: Int64, hi: Int64) -> tuple[Floats, Floats]:
        """Return the unbiased estimate of the number of cells in each band, and its variance estimate.

        Σ w(x) over the cells, those beside an edge weighed one by one, and Σ (w² − w).
        """
        size = max(1, CHUNK // max(1, 2 * self.steps.size))
        if lo.size > size:
            parts = [self.linear(lo[i : i + size], hi[i : i + size]) for i in range(0, lo.size, size)]
            return np.concatenate([one for one, _ in parts]), np.concatenate([one for _, one in parts])
        half = self.steps.size // 2
        offsets = np.arange(-half, half, dtype=np.int64)
        left, right = lo[:, None] + offsets, hi[:, None] + 1 + offsets
        fresh = ((right > left[:, -1:]) | (lo[:, None] <= 0)) & (hi[:, None] < NO_END)
        left_on = np.broadcast_to(lo[:, None] > 0, left.shape)
        x = np.concatenate([left, np.where(fresh, right, 0)], axis=1)
        weight = self._rise(x, lo[:, None]) - self._rise(x, hi[:, None] + 1)
        inside = ((x >= lo[:, None]) | (lo[:, None] <= 0)) & (x <= hi[:, None])
        used = np.concatenate([left_on, fresh], axis=1)
        if self.noisy.noise.power == 1:
            used = used & (x >= 0)
        where = np.searchsorted(self.values, x).clip(max=self.values.size - 1)
        seen = np.where(used & (self.values[where] == x), self.tally[where], 0).astype(float)
        plain = cells_between(*self.shown, np.where(lo > 0, lo, -NO_END), np.minimum(hi, NO_END)).astype(float)
        spread = np.where(used, weight * weight - weight, 0)
        estimate = plain + (seen * (weight - inside)).sum(axis=1)
        variance = self._variance(seen, spread, lo, hi)
        power, edges = self.noisy.noise.power, np.stack([lo, hi + 1])
        chosen = (edges >= 1) & (edges < 2 * math.ceil(power)) & (1 < power <= HIGHEST_POWER)
        for i in np.flatnonzero(chosen.any(axis=0)):  # a choice of weights below 0 reaches an edge up to 2ρ − 1
            band = int(lo[i]), int(hi[i])
            if band not in self._leasts:
                self._leasts[band] = self._least(*band)
            estimate[i], variance[i] = self._leasts[band]
        return estimate, variance

    def _least(self, lo: int, hi: int) -> tuple[float, float]:
        """Estimate and variance with the weights of least variance; the variance is at least that of one cell more."""
        noisy = self.noisy
        w, spread = least_weights(noisy, lambda t: (t >= lo) & (t <= hi))
        variance = float(noisy.tally @ spread)
        near = np.abs(noisy.values) < 2 * math.ceil(noisy.noise.power) + round(noisy.noise.variance**0.5)
        return float(noisy.tally @ w), max(variance, float(spread[near].mean()) if near.any() else 0.0, 0.0)

    def _rise(self, x: Int64, edge: Int64) -> Floats:
        """C(x − edge), with everything above 0 for an edge at 0 or below, and the fold at 0 for ρ = 1."""
        half = self.steps.size // 2
        offset = (x - edge).clip(-half - 1, half)
        padded = np.concatenate([[0.0], self.steps, [1.0]])
        value = padded[offset + half + 1]
        if self.noisy.noise.power == 1:
            # at_least(1) on folded counts: w(0) = −a/(1−a), the mean of the unfolded weights −κ, 0, 0, …
            a = self.noisy.noise.a
            value = np.where((edge == 1) & (x == 0), -a / (1 - a), value)
        return np.asarray(np.where(edge <= 0, 1.0, np.where(edge >= NO_END, 0.0, value)))

    def _variance(self, seen: Floats, spread: Floats, lo: Int64, hi: Int64) -> Floats:
        """Σ (w² − w), raised to what the neighbourhood allows where few cells decide."""
        variance = (seen * spread).sum(axis=1)
        concentration = (seen * spread**2).sum(axis=1)
        few = np.flatnonzero(variance**2 < FEW * concentration + (variance <= 0))
        if not few.size:
            return np.asarray(variance.clip(0))
        # The cells at the edges decide, so the windows lie around the edges of the band.
        near = windows(self.noisy.noise, GUARD * 0.025)
        lo, hi, peak, bound = lo[few], hi[few], near[0][1], np.zeros(few.size)  # the narrowest is P(Z = 0)
        for width, q, _ in near:
            for edge in (lo, np.minimum(hi, NO_END)):
                real = (edge > 0) & (edge < NO_END)
                mean = (cells_between(*self.shown, edge - width, edge + width) + 1) * peak / q
                bound = np.maximum(bound, np.where(real | (hi == 0), mean, 0))
        variance[few] = np.maximum(variance[few], spread[few].sum(axis=1).clip(0) * bound)
        return np.asarray(variance.clip(0))

    def correlation(self, lo: Int64, hi: Int64) -> Floats:
        """Correlations of the errors of single entries (hi = lo), or of ascending "at least" (no end)."""
        if self.blind:
            return np.eye(lo.size)
        if (hi == lo).all():
            return _normed(self._entry_covariance(lo))
        entries = np.arange(int(lo[-1]))
        if entries.size > LONGEST_SUM:
            return np.eye(lo.size)
        below = np.cumsum(np.cumsum(self._entry_covariance(entries), axis=0), axis=1)
        at = np.maximum(lo - 1, 0)  # errors of "at least k" are those of 0..k − 1 together, and none at 0
        found = below[np.ix_(at, at)] if entries.size else np.zeros((lo.size, lo.size))
        found[lo == 0], found[:, lo == 0] = 0.0, 0.0
        return _normed(found)

    def _entry_covariance(self, t: Int64) -> Floats:
        """Σ_cells w_s·w_t, less the cells at t on the diagonal."""
        half = self.steps.size // 2
        near = np.unique(np.searchsorted(self.values, (t[:, None] + np.arange(-half - 1, half + 2)).ravel()))
        near = near[near < self.values.size]
        x = self.values[near][None, :]
        w = self._rise(x, t[:, None]) - self._rise(x, t[:, None] + 1)
        found = (w * self.tally[near]) @ w.T
        found[np.diag_indices_from(found)] -= (w @ self.tally[near]).clip(0)
        return np.asarray(found)

    def _dominated(
        self, lo: Int64, hi: Int64, low: Floats, high: Floats, alpha: float
    ) -> tuple[Floats, Floats]:
        """Narrow limits to those by domination, each at error ``alpha``: above by windows, below by what shows inside.

        Of the cells from below that show inside the band, a share of at most ``ratio`` shows at lo + shift or above, so
        at least 1 − ratio of them are among those at lo..lo + shift − 1; from above likewise: the strays.
        """
        high = high.copy()
        for width, q, spent in windows(self.noisy.noise, alpha):
            seen = cells_between(*self.shown, np.where(lo > 0, lo - width, -NO_END), hi + width).astype(float)
            # a limit lies above seen/q − 1, so it is worked out only where it may matter
            matters = np.flatnonzero(seen / (q * self.rate) - 1 < high)
            if matters.size:
                high[matters] = np.minimum(high[matters], binomial_upper(seen[matters], q * self.rate, spent))
        inner = shifts(self.noisy.noise)
        wide = np.flatnonzero((hi - lo > 2 * inner[0][0]) & (self.rate >= 1))
        if wide.size:
            lo, hi, mean, (nearest, share) = lo[wide], hi[wide], np.zeros(wide.size), inner[0]
            for real, start in ((lo > 0, lo), (hi < NO_END, hi - nearest + 1)):
                seen = cells_between(*self.shown, start, start + nearest - 1)
                mean += np.where(real, special.gammaincinv(seen + 1.0, 1 - alpha / 4) / (1 - share), 0.0)
            for shift, ratio in inner:
                first, last = np.where(lo > 0, lo + shift, -NO_END), np.where(hi < NO_END, hi - shift, hi)
                seen = cells_between(*self.shown, first, last)
                strays = poisson_quantile(mean * ratio, alpha / (2 * len(inner)))
                low[wide] = np.maximum(low[wide], seen - strays)
        return np.minimum(np.maximum(low, 0.0), high), high

    def breakpoints(self, level: float) -> Int64:
        """Return the offsets k − v, v a noisy value, at which the interval of at_least(k) can change."""
        half = self.steps.size // 2
        widths = [width for width, _, _ in windows(self.noisy.noise, GUARD * (1 - level) / 2)]
        inner = [-shift for shift, _ in shifts(self.noisy.noise)]
        spots = {0, 1, half, half + 1, -half, *widths, *(-w for w in widths), *inner}
        return np.array(sorted({s + e for s in spots for e in (-1, 0, 1)}), dtype=np.int64)


def _normed(covariance: Floats) -> Floats:
    """Correlations; what has no variance is correlated with nothing."""
    size = np.sqrt(np.diag(covariance).clip(0))
    safe = np.where(size > 0, size, 1.0)
    found = np.where(np.outer(size, size) > 0, covariance / np.outer(safe, safe), 0.0)
    np.fill_diagonal(found, 1.0)
    return np.asarray(found)


@lru_cache(maxsize=64)
def windows(noise: DiscreteLaplace, alpha: float) -> tuple[tuple[int, float, float], ...]:
    """Return a few half-widths k, first 0, with q_k = P(|Z| ≤ k) and the share of ``alpha`` each may spend.

    The widest has half the budget, and so large a q that no cell at all inside it means none in the band.
    """
    widest = noise.reach(alpha / 2)
    law = noise.pmf(np.arange(widest + 1))
    within = np.minimum(2 * np.cumsum(law) - law[0], 1.0)
    narrow = sorted({k for k in (0, *(round(c * noise.variance**0.5) for c in (0.25, 0.7, 1.5))) if k < widest})
    chosen = [(k, alpha / (2 * len(narrow))) for k in narrow] + [(widest, alpha / 2 if narrow else alpha)]
    return tuple((k, float(within[k]), spent) for k, spent in chosen)


@lru_cache(maxsize=64)
def shifts(noise: DiscreteLaplace) -> tuple[tuple[int, float], ...]:
    """Return a few shifts b with P(Z > b)/P(Z ≥ 1)."""
    tail = np.cumsum(noise.pmf(np.arange(noise.reach(1e-12) + 4, 0, -1)))[::-1]
    ratio = tail / tail[0] if tail[0] > 0 else np.zeros_like(tail)
    chosen = {int(np.searchsorted(-ratio, -r).clip(max=tail.size - 1)) for r in (0.1, 0.01, 1e-3, 1e-5, 1e-8)}
    return tuple((b, float(ratio[b])) for b in sorted(chosen))


def poisson_quantile(mean: Floats, alpha: float) -> Floats:
    """Return the smallest k with P(Poisson(mean) > k) ≤ alpha.

    >>> poisson_quantile(np.array([0.0, 1.0]), 0.05)
    array([0., 3.])
    """
    guess = np.ceil(special.pdtrik(1 - alpha, np.maximum(mean, 1e-300)).clip(0))
    lower = np.maximum(guess - 1, 0)
    return np.asarray(np.where(special.pdtr(lower, mean) >= 1 - alpha, lower, guess))
