"""Power series, and the tail of the item profile by their logarithms at several resolutions.

**Series.** A series is the array of its first T coefficients. Newton's iteration [1]_ doubles the number of right
coefficients in every step, and products go through the FFT; the exponential of a series ≥ 0 needs no iteration.

    1/g  :  x ← x·(2 − g·x)          log g  =  log g₀ + ∫ g′/g

The FFT loses about 10⁻¹⁶ times the norms of its factors. For the law g of a compound Poisson total of load λ,
‖g‖₁ = 1 and ‖1/g‖₁ ≤ e^(2λ), so the logarithm is good to about 10⁻¹⁵·e^(2λ): the same as the O(T²) recurrence.

**The tail.** Near: with G a law of the cells, N_t = m·[z^t] log G(z) needs the coefficients up to t only.

Far: counts up to 10¹² do not fit into one series. Above a count ``top`` we look at the part of a cell's total that
comes from items above ``top``: cells with totals up to ``top`` have none; the totals above it are moved down by the
mean of what the smaller items add, and the cells that got there by smaller items alone are subtracted (their law is
known from the head). That part is compound Poisson with the small load of the large items, and stays so, up to
rounding, when rounded to multiples of a step Δ = 1, 2, 4, …; a series of LENGTH terms then answers for the counts in
(LENGTH·Δ/2, LENGTH·Δ].

Over several ranges of cells that together hold a share P of the items the numbers are pooled and divided by P.
The number of items at or above k, cumulated from the far end, is made non-increasing by isotonic regression, so the
tail is non-negative and keeps its mass.

Variances. To first order the estimate of the items at t is Σ_cells W(t − x) over noisy counts x, W the coefficients
of 1/G filtered by the inverse of the noise; at or above k it is Σ_cells (1 − Ω(k − 1 − x)), Ω the running sum of
W. So the variances for all t and k are convolutions of the tally with W² and (1 − Ω)². They hold for Poisson item
numbers; for the items of this data set the number itself is subtracted (see :mod:`.collisions`).

.. [1] R. P. Brent, "Multiple-precision zero-finding methods and the complexity of elementary function
   evaluation", in Analytic Computational Complexity, 1976, section 13.
.. [2] P. Embrechts, M. Frei, "Panjer recursion versus FFT for compound distributions", Mathematical Methods of
   Operations Research 69, 2009.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy.fft import irfft, next_fast_len, rfft
from scipy.optimize import isotonic_regression

from ..arrays import Floats, Int64
from ..errors import InputError
from ..noise import DiscreteLaplace
from ..noisy import NoisyProfile
from .linear import convolve, weights
from .methods import Fit

__all__ = [
    "LENGTH", "CellLaw", "Law", "Rung", "Tail", "cell_law", "climb", "exponential", "logarithm", "product",
    "reciprocal", "spikes",
]  # fmt: skip

SHORT = 64
"""Up to this many terms a direct product is faster than the FFT."""

LENGTH = 4096
"""Terms of the series at each far resolution."""

STANDS_OUT, AROUND, FEWEST = 6.0, 12, 8.0
"""Standard errors by which a count stands out against the median of the counts to either side; items that it takes."""

LEAST_EMPTY = 1e-2
"""Share of empty cells below which a logarithm is all noise."""


def product(left: Floats, right: Floats, terms: int) -> Floats:
    """Return the first ``terms`` coefficients of left·right.

    >>> product(np.array([1.0, 2.0]), np.array([3.0, 4.0]), 3)
    array([ 3., 10.,  8.])
    """
    left, right = left[:terms], right[:terms]
    short = min(left.size, right.size) <= SHORT
    full = np.convolve(left, right) if short else convolve(left, right)
    if full.size < terms:
        full = np.concatenate([full, np.zeros(terms - full.size)])
    return np.asarray(full[:terms])


def reciprocal(series: Floats) -> Floats:
    """Return 1/series to as many terms; the first coefficient must not be 0.

    >>> reciprocal(np.array([1.0, -0.5, 0.0, 0.0]))
    array([1.   , 0.5  , 0.25 , 0.125])
    """
    if series[0] == 0:
        raise InputError("the first coefficient must not be 0, got 0")
    inverse = np.array([1 / series[0]])
    while inverse.size < series.size:
        terms = min(2 * inverse.size, series.size)
        error = -product(series, inverse, terms)
        error[0] += 2
        inverse = product(inverse, error, terms)
    return inverse


def logarithm(series: Floats, inverse: Floats | None = None) -> Floats:
    """Return log(series) to as many terms; the first coefficient must be > 0. ``inverse`` is 1/series, if at hand.

    >>> logarithm(np.exp(-1) * np.array([1, 1, 1 / 2, 1 / 6])).round(12) + 0.0
    array([-1.,  1.,  0.,  0.])
    """
    if not series[0] > 0:
        raise InputError(f"the first coefficient must be > 0, got {series[0]}")
    degree = np.arange(series.size)
    result = product(degree * series, reciprocal(series) if inverse is None else inverse, series.size)
    result[1:] /= degree[1:]
    result[0] = np.log(series[0])
    return result


def exponential(series: Floats) -> Floats:
    """Return exp(series) to as many terms T; the coefficients from the second on must be ≥ 0.

    The series is evaluated at the points r·e^(2πik/L) of a circle, L ≥ 4T, and transformed back. What lies past L
    comes back multiplied by r^L = 10⁻⁸, and rounding grows by r^(−T) ≤ 100 [2]_.

    >>> exponential(np.array([0.0, 1.0, 0.0, 0.0])).round(4)
    array([1.    , 1.    , 0.5   , 0.1667])
    """
    length = next_fast_len(4 * series.size, real=True)
    radius = np.exp(np.arange(series.size) * (math.log(1e-8) / length))
    around = np.exp(rfft(series * radius, length))
    return np.asarray(irfft(around, length)[: series.size] / radius)


def cell_law(items: Floats, rate: float, above: float = 0.0) -> Floats:
    """Return P(total = s), s = 0..T, for ``items[t]`` items of count t, each in a cell with probability ``rate``.

    ``above`` is the number of items with counts past the end. Rounding may leave −10⁻¹⁶: cut off at 0.

    >>> cell_law(np.array([0.0, 2.0, 0.0]), 0.5).round(4)      # Poisson(1)
    array([0.3679, 0.3679, 0.1839])
    """
    exponent = items * rate
    exponent[0] = -(items.sum() + above) * rate
    return np.maximum(exponential(exponent), 0.0)


# ── the tail ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, eq=False)
class CellLaw:
    """Law of the cells of one range, near and far, and its noisy cells.

    near : P(total = s) for s = 0..top
    far, mass : law of the part of a total that comes from items above top, 0 included; empty if there is none
    shift : mean of what smaller items add to it
    strayed : share of the cells above top, or too many to speak of their items
    """

    near: Floats
    far: Int64
    mass: Floats
    shift: int
    strayed: float
    noisy: NoisyProfile

    @classmethod
    def of(cls, law: Fit, noisy: NoisyProfile, head: Floats, trusted: int) -> CellLaw:
        """Join ``law`` with ``head``: P(total = s, no item above top) for s = 0..2·top.

        Up to the total ``trusted`` the head itself is taken for the law, above it ``law``.
        """
        top = head.size // 2
        near = head[: top + 1].copy()
        here = (law.support > trusted) & (law.support <= top)
        near[trusted + 1 :] = 0.0
        near[law.support[here]] = law.mass[here]
        above = law.support > top
        if not above.any():
            return cls(near, np.zeros(0, dtype=np.int64), np.zeros(0), 0, 0.0, noisy)
        small = float(head[: top + 1].sum())
        if small < 1e-3:
            return cls(near, np.zeros(0, dtype=np.int64), np.zeros(0), 0, 1.0, noisy)
        shift = round(float(np.arange(top + 1) @ head[: top + 1] / small))
        totals = np.concatenate([law.support[above], np.arange(top + 1, head.size)])
        mass = np.concatenate([law.mass[above], -head[top + 1 :]])
        far = np.concatenate([[0], np.maximum(totals - shift, top + 1)])
        return cls(near, far, np.concatenate([[1 - mass.sum()], mass]), shift, 1 - small, noisy)

    @property
    def top(self) -> int:
        """Where near ends."""
        return self.near.size - 1

    @property
    def largest(self) -> int:
        """Largest count that can be found."""
        return int(self.far.max()) if self.far.size else self.top


Law = tuple[CellLaw, float]
"""A law of cells with the share of all items that belongs to them."""


def _binned(points: Int64, weight: Floats, step: int, last: int) -> Floats:
    bins = (points + step // 2) // step
    near = bins <= last
    return np.bincount(bins[near], weights=weight[near], minlength=last + 1).astype(float)


@dataclass(frozen=True, eq=False)
class Rung:
    """One resolution: signed item numbers at the multiples first, first + 1, … of step; variances for Poisson items.

    items : estimate of the items at each multiple of step, unprojected
    entry_variance, curve_variance : of that, and of the number at or above it
    place : mean of the totals seen in the bin (its middle where none is)
    share : share of all items that belongs to the cells used
    """

    step: int
    first: int
    items: Floats
    place: Floats
    entry_variance: Floats
    curve_variance: Floats
    share: float


@dataclass(frozen=True, eq=False)
class Tail:
    """Items with counts above ``above``.

    counts, items : the projected tail, items ≥ 0
    rungs : what it was made of
    far_share : share of all items that belongs to the cells in which the largest counts are seen
    """

    above: int
    counts: Int64
    items: Floats
    rungs: tuple[Rung, ...]
    far_share: float

    def at_least(self, k: Int64) -> tuple[Floats, Floats, Floats]:
        """Return the unprojected number of items at or above each k > above, its variance, and the share used."""
        estimate, variance, share = np.zeros(k.size), np.zeros(k.size), np.full(k.size, self.far_share)
        beyond = 0.0
        for rung in reversed(self.rungs):
            curve = np.cumsum(rung.items[::-1])[::-1] + beyond
            index = -(-(k - rung.step // 2) // rung.step) - rung.first
            here = (index >= 0) & (index < curve.size)
            estimate[here] = curve[index[here]]
            variance[here] = (rung.curve_variance - np.maximum(curve, 0))[index[here]]
            share[here] = rung.share
            beyond = float(curve[0]) if curve.size else beyond
        return estimate, variance, share

    def entries(self, t: Int64) -> tuple[Floats, Floats, Floats]:
        """Return the unprojected number of items at each t > above (per count), its variance, and the share used."""
        estimate, variance, share = np.zeros(t.size), np.zeros(t.size), np.full(t.size, self.far_share)
        for rung in self.rungs:
            index = (t + rung.step // 2) // rung.step - rung.first
            here = (index >= 0) & (index < rung.items.size)
            estimate[here] = rung.items[index[here]] / rung.step
            variance[here] = (rung.entry_variance - np.maximum(rung.items, 0))[index[here]]
            share[here] = rung.share
        return estimate, variance, share


def climb(near: Sequence[Law], far: Sequence[Law], above: int, noise: DiscreteLaplace) -> Tail:
    """Estimate the items with counts above ``above``, from the ranges ``near`` up to top and ``far`` beyond."""
    taps = _taps(noise)
    top = near[0][0].top
    far_share = min(1.0, sum(share for _, share in far))
    rungs = [_near_rung(near, above + 1, taps)] if above < top else []
    largest, step, reached = max(law.largest for law, _ in far), 1, max(above, top)
    deep = [law for law, _ in far if law.far.size]
    while reached < largest:
        if step * LENGTH > reached:
            rungs.append(_far_rung(deep, far_share, step, reached // step + 1, taps))
            reached = step * LENGTH
        step *= 2
    counts, items = _project(rungs, above)
    return Tail(above, counts, items, tuple(rungs), far_share)


def _taps(noise: DiscreteLaplace) -> Floats:
    """Return the filter that undoes the noise: Σ_j taps[j]·P(h + Z = t + j) = 1[h = t]."""
    whole = noise.power.denominator == 1
    half = int(noise.power) if whole else min(noise.reach(1e-9), 512)
    middle = np.int64(4 * half + 8)
    return weights(lambda t: np.asarray(t == middle, dtype=float), middle + np.arange(-half, half + 1), noise)


def spikes(parts: Sequence[NoisyProfile], top: int, stride: int = 1) -> Int64:
    """Return the counts up to ``top`` at which more items are found than around, by STANDS_OUT errors, surest first.

    By the plain logarithm of what the cells are without their noise, which tells single counts where there is little.
    With a ``stride`` only its multiples are asked, and compared with each other.
    """
    taps = _taps(parts[0].noise)
    half, items, variance = taps.size // 2, np.zeros(top + 1), np.zeros(top + 1)
    for noisy in parts:
        near = noisy.values >= -half
        seen = _binned(noisy.values[near] + half, noisy.tally[near].astype(float), 1, top + 2 * half)
        law = np.convolve(seen, taps, "valid") / noisy.cells
        if law[0] > LEAST_EMPTY and half <= top // 2:
            with np.errstate(over="ignore", invalid="ignore"):  # of a law that is mostly noise
                inverse = reciprocal(law)
                found = np.array([noisy.cells * logarithm(law, inverse),
                                  _variances(seen[half : half + top + 1], inverse, taps)[0]])  # fmt: skip
            if np.isfinite(found).all():
                items, variance = items + found[0], variance + found[1]
    items, variance = items[::stride], variance[::stride]
    around = np.median(sliding_window_view(np.pad(items, AROUND, mode="edge"), 2 * AROUND + 1), axis=1)
    out = (items - around) / np.sqrt(variance + 1.0)
    spiked = np.flatnonzero((out > STANDS_OUT) & (items > FEWEST))
    return stride * spiked[np.argsort(-out[spiked], kind="stable")].astype(np.int64)


def _near_rung(laws: Sequence[Law], first: int, taps: Floats) -> Rung:
    """Every count from ``first`` to top, by the logarithm of the near law."""
    top = laws[0][0].top
    share = min(1.0, sum(part for _, part in laws))
    items, entry, curve = np.zeros((3, top + 1))
    for law, _ in laws:
        inverse = reciprocal(law.near)
        items += law.noisy.cells * logarithm(law.near, inverse)
        values = np.clip(law.noisy.values, 0, law.top + 1)
        tally = _binned(values, law.noisy.tally.astype(float), 1, law.top + 1)
        spread, cumulated = _variances(tally[:-1], inverse, taps)
        entry, curve = entry + spread, curve + cumulated + tally[-1]
    here = slice(first, None)
    return Rung(1, first, items[here] / share, np.arange(first, top + 1.0), entry[here] / share**2,
                curve[here] / share**2, share)


def _far_rung(laws: Sequence[CellLaw], share: float, step: int, first: int, taps: Floats) -> Rung:
    """Multiples of ``step`` by the logarithm of the far law."""
    items, entry, curve = np.zeros(LENGTH + 1), np.zeros(LENGTH + 1), np.zeros(LENGTH + 1)
    weight, places = np.zeros(LENGTH + 1), np.zeros(LENGTH + 1)
    for law in laws:
        if law.largest < (first - 0.5) * step:
            continue  # nothing as large as this: what the series would say is of second order
        values = np.where(law.noisy.values > law.top, law.noisy.values - law.shift, 0)  # the far part of each count
        tally = _binned(values, law.noisy.tally.astype(float), step, LENGTH)
        rounded = _binned(law.far, law.mass, step, LENGTH)
        inverse = reciprocal(rounded)
        items += law.noisy.cells * logarithm(rounded, inverse)
        spread, cumulated = _variances(tally, inverse, np.ones(1))
        entry += spread
        curve += cumulated + law.noisy.cells - tally.sum()
        seen = np.maximum(law.mass, 0)
        weight += _binned(law.far, seen, step, LENGTH)
        places += _binned(law.far, seen * law.far, step, LENGTH)
    middle = np.arange(LENGTH + 1) * float(step)
    place = np.where(weight > 0, places / np.maximum(weight, 1e-300), middle)
    # The noise only moves cells across the edge of a bin: (items per count)·Σ (C² − C), C its step response.
    rise = np.cumsum(taps)[:-1]
    edge = float((rise**2 - rise).sum()) * np.maximum(items, 0) / step
    here = slice(first, None)
    return Rung(step, first, items[here] / share, place[here], (entry + 2 * edge)[here] / share**2,
                (curve + edge)[here] / share**2, share)


def _variances(tally: Floats, inverse: Floats, taps: Floats) -> tuple[Floats, Floats]:
    """Return Σ tally·W² for every entry and Σ tally·(1 − Ω)² for every "at or above", Poisson item numbers."""
    half = taps.size // 2
    weight = np.convolve(inverse, taps)[: inverse.size] if taps.size > 1 else inverse  # W(−half), W(1 − half), …
    spread = convolve(tally, weight**2)[half : half + tally.size]
    left = (1 - np.cumsum(weight)) ** 2
    # at or above k: offsets k − 1 − x from −half on; cells further up count with weight 1
    low = convolve(tally, left)
    cumulated = np.zeros(tally.size)
    stop = np.arange(tally.size) - 1 + half
    cumulated[1:] = low[stop[1:]]
    total = np.cumsum(tally)
    above = total[-1] - total[np.minimum(stop, tally.size - 1)]
    return np.maximum(spread, 0), np.maximum(cumulated, 0) + above


def _project(rungs: list[Rung], above: int) -> tuple[Int64, Floats]:
    """Make the curve of the numbers at or above k non-increasing, and keep the counts that carry items."""
    if not rungs:
        return np.zeros(0, dtype=np.int64), np.zeros(0)
    places = np.concatenate([rung.place for rung in rungs])
    numbers = np.concatenate([rung.items for rung in rungs])
    curve = np.maximum(np.cumsum(numbers[::-1])[::-1], 0)
    smooth = isotonic_regression(curve, increasing=False).x
    items = -np.diff(np.append(smooth, 0.0))
    keep = items > 1e-9
    counts = np.maximum(np.rint(places[keep]).astype(np.int64), above + 1)
    distinct, where = np.unique(counts, return_inverse=True)
    return distinct, np.bincount(where, weights=items[keep], minlength=distinct.size).astype(float)
