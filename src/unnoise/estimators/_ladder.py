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
from ..engine.channel import SEVERAL, convolve
from ..errors import InputError
from ..noise import DiscreteLaplace
from ..noisy import NoisyProfile
from .linear import inverse_taps, step_response

__all__ = [
    "LENGTH", "CellLaw", "Rung", "Tail", "cell_law", "climb", "logarithm", "product", "reciprocal", "spikes",
]  # fmt: skip

SHORT = 64
"""Up to this many terms a direct product is faster than the FFT."""

LENGTH = 4096
"""Terms of the series at each far resolution."""

STANDS_OUT, AROUND = 6.0, 12
"""Standard errors by which a count stands out against the median of as many counts to either side."""

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


def cell_law(items: Floats, rate: float, above: float = 0.0) -> Floats:
    """Return P(total = s), s = 0..T, for ``items[t]`` items of count t, each in a cell with probability ``rate``.

    ``above`` is the number of items with counts past the end. The exponential of the series Σ_t items_t·rate·(z^t − 1)
    is evaluated at the points r·e^(2πik/L) of a circle, L ≥ 4T, and transformed back. What lies past L comes back
    multiplied by r^L = 10⁻⁸, and rounding grows by r^(−T) ≤ 100 [2]_. It may leave −10⁻¹⁶: cut off at 0.

    >>> cell_law(np.array([0.0, 2.0, 0.0]), 0.5).round(4)      # Poisson(1)
    array([0.3679, 0.3679, 0.1839])
    """
    exponent = items * rate
    exponent[0] = -(items.sum() + above) * rate
    length = next_fast_len(4 * exponent.size, real=True)
    radius = np.exp(np.arange(exponent.size) * (math.log(1e-8) / length))
    around = np.exp(rfft(exponent * radius, length))
    return np.asarray(np.maximum(irfft(around, length)[: exponent.size] / radius, 0.0))


# ── the tail ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, eq=False)
class CellLaw:
    """The cells of one range, and what they hold of items above ``top``.

    far, mass : law of the part of a total that comes from such items, 0 included; empty if there is none
    shift : mean of what smaller items add to it
    strayed : share of the cells above top, or too many to speak of their items
    """

    top: int
    far: Int64
    mass: Floats
    shift: int
    strayed: float
    noisy: NoisyProfile

    @classmethod
    def of(cls, support: Int64, mass: Floats, head: Floats, noisy: NoisyProfile) -> CellLaw:
        """From the law of the totals, and ``head``: P(total = s, no item above top) for s = 0..2·top."""
        top, nothing = head.size // 2, np.zeros(0)
        above = support > top
        small = float(head[: top + 1].sum())
        if not above.any() or small < 1e-3:
            return cls(top, nothing.astype(np.int64), nothing, 0, float(above.any()), noisy)
        shift = round(float(np.arange(top + 1) @ head[: top + 1] / small))
        totals = np.concatenate([support[above], np.arange(top + 1, head.size)])
        mass = np.concatenate([mass[above], -head[top + 1 :]])
        far = np.concatenate([[0], np.maximum(totals - shift, top + 1)])
        return cls(top, far, np.concatenate([[1 - mass.sum()], mass]), shift, 1 - small, noisy)


def _binned(points: Int64, weight: Floats, step: int, last: int) -> Floats:
    bins = (points + step // 2) // step
    near = bins <= last
    return np.bincount(bins[near], weights=weight[near], minlength=last + 1).astype(float)


@dataclass(frozen=True, eq=False)
class Rung:
    """One resolution: signed item numbers at the multiples first, first + 1, … of step, unprojected.

    place : mean of the totals seen in the bin (its middle where none is)
    entry_variance, curve_variance : of each number, and of that at or above it, for Poisson items; not where none asks
    """

    step: int
    first: int
    items: Floats
    place: Floats
    entry_variance: Floats | float = 0.0
    curve_variance: Floats | float = 0.0


@dataclass(frozen=True, eq=False)
class Tail:
    """Items above some count.

    counts, items : the projected tail, items ≥ 0
    rungs : what it was made of
    far_share : share of all items that belongs to the cells in which they are seen
    """

    counts: Int64
    items: Floats
    rungs: tuple[Rung, ...]
    far_share: float

    def curve_variance(self, k: Int64) -> Floats:
        """Variance of the unprojected number of items at or above each k."""
        variance, beyond = np.zeros(k.size), 0.0
        for rung in reversed(self.rungs):
            curve = np.cumsum(rung.items[::-1])[::-1] + beyond
            index = -(-(k - rung.step // 2) // rung.step) - rung.first
            here = (index >= 0) & (index < curve.size)
            variance[here] = (rung.curve_variance - np.maximum(curve, 0))[index[here]]
            beyond = float(curve[0]) if curve.size else beyond
        return variance

    def entry_variance(self, t: Int64) -> Floats:
        """Variance of the unprojected number of items at each t."""
        variance = np.zeros(t.size)
        for rung in self.rungs:
            index = (t + rung.step // 2) // rung.step - rung.first
            here = (index >= 0) & (index < rung.items.size)
            variance[here] = (rung.entry_variance - np.maximum(rung.items, 0))[index[here]]
        return variance


def climb(laws: Sequence[tuple[CellLaw, float]], noise: DiscreteLaplace, near: Rung | None = None) -> Tail:
    """Estimate the items above the laws' top, and those of ``near`` below it; each law with its share of the items.

    The curve of the numbers at or above k is made non-increasing; the counts that carry items are kept.
    """
    share, deep = min(1.0, sum(share for _, share in laws)), [law for law, _ in laws if law.far.size]
    rungs, step, reached = [near] if near else [], 1, laws[0][0].top
    least = near.first if near else reached + 1
    largest = max((int(law.far.max()) for law in deep), default=0)
    rise = step_response(noise)
    spread = float((rise**2 - rise).sum()) if rise is not None else math.inf
    while reached < largest:
        if step * LENGTH > reached:
            rungs.append(_far_rung(deep, share, step, reached // step + 1, spread))
            reached = step * LENGTH
        step *= 2
    if not rungs:
        return Tail(np.zeros(0, dtype=np.int64), np.zeros(0), (), share)
    numbers = np.concatenate([rung.items for rung in rungs])
    curve = np.maximum(np.cumsum(numbers[::-1])[::-1], 0)
    items = -np.diff(np.append(isotonic_regression(curve, increasing=False).x, 0.0))
    keep = items > 1e-9
    places = np.rint(np.concatenate([rung.place for rung in rungs])[keep]).astype(np.int64)
    counts, where = np.unique(np.maximum(places, least), return_inverse=True)
    found = np.bincount(where, weights=items[keep], minlength=counts.size).astype(float)
    return Tail(counts, found, tuple(rungs), share)


def spikes(parts: Sequence[tuple[NoisyProfile, float]], top: int, stride: int = 1) -> Int64:
    """Return the counts up to ``top`` at which more items are found than around, by STANDS_OUT errors, surest first.

    By the plain logarithm of what the cells are without their noise, which tells single counts where there is little:
    of levels, each with its share of the items, as each tells them. With a ``stride`` only its multiples are asked,
    and compared with each other.
    """
    noise = parts[0][0].noise
    if step_response(noise) is None:
        return np.zeros(0, dtype=np.int64)
    taps = inverse_taps(noise)
    half, found, told = taps.size // 2, np.zeros(top + 1), np.zeros(top + 1)
    if half > top // 2:
        return np.zeros(0, dtype=np.int64)
    for noisy, share in parts:
        near = noisy.values >= -half
        seen = _binned(noisy.values[near] + half, noisy.tally[near].astype(float), 1, top + 2 * half)
        law = np.convolve(seen, taps, "valid") / noisy.cells
        if law[0] > LEAST_EMPTY:
            with np.errstate(over="ignore", invalid="ignore"):  # of a law that is mostly noise
                inverse = reciprocal(law)
                filtered = np.convolve(inverse, taps)[: inverse.size]  # W(−half), W(1 − half), …
                spread = convolve(seen[half : half + top + 1], filtered**2)[half : half + top + 1]
                items, variance = noisy.cells * logarithm(law, inverse), np.maximum(spread, 0) + 1.0
            if np.isfinite(items).all() and np.isfinite(variance).all():
                found, told = found + share * items / variance, told + share**2 / variance
    items, told = (found / np.maximum(told, 1e-300))[::stride], told[::stride]
    around = np.median(sliding_window_view(np.pad(items, AROUND, mode="edge"), 2 * AROUND + 1), axis=1)
    out = (items - around) * np.sqrt(told)
    spiked = np.flatnonzero((out > STANDS_OUT) & (items > SEVERAL))
    return stride * spiked[np.argsort(-out[spiked], kind="stable")].astype(np.int64)


def _far_rung(laws: Sequence[CellLaw], share: float, step: int, first: int, spread: float) -> Rung:
    """Multiples of ``step`` by the logarithm of the far law.

    spread : Σ (C² − C) of the step response, ∞ where there is none
    """
    items, entry, curve, weight, places = np.zeros((5, LENGTH + 1))
    for law in laws:
        if law.far.max() < (first - 0.5) * step:
            continue  # nothing as large as this: what the series would say is of second order
        values = np.where(law.noisy.values > law.top, law.noisy.values - law.shift, 0)  # the far part of each count
        tally = _binned(values, law.noisy.tally.astype(float), step, LENGTH)
        rounded = _binned(law.far, law.mass, step, LENGTH)
        inverse = reciprocal(rounded)
        items += law.noisy.cells * logarithm(rounded, inverse)
        entry += np.maximum(convolve(tally, inverse**2)[: tally.size], 0)
        left = convolve(tally, (1 - np.cumsum(inverse)) ** 2)[: tally.size - 1]
        up = tally.sum() - np.cumsum(tally)[:-1]  # cells further up count 1 each
        curve[1:] += np.maximum(left, 0) + up + law.noisy.cells - tally.sum()
        seen = np.maximum(law.mass, 0)
        weight += _binned(law.far, seen, step, LENGTH)
        places += _binned(law.far, seen * law.far, step, LENGTH)
    middle = np.arange(LENGTH + 1) * float(step)
    place = np.where(weight > 0, places / np.maximum(weight, 1e-300), middle)
    # The noise only moves cells across the edge of a bin: (items per count)·Σ (C² − C), or as many as there are.
    found = np.maximum(items, 0)
    edge = spread * found / step if spread < math.inf else found**2
    here = slice(first, None)
    return Rung(step, first, items[here] / share, place[here], (entry + 2 * edge)[here] / share**2,
                (curve + edge)[here] / share**2)
