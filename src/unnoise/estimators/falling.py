"""From a noisy curve to a profile: the nearest falling curve.

The numbers y_j = Σ_block S(t) + Z_j have one variance; as means over blocks of width w_j they are S̄_j + Z_j/w_j, so the
least-squares curve that never rises and stays ≥ 0 is the isotonic regression of y_j/w_j with weights w_j² [1]_, by
pool-adjacent-violators, clipped at 0 [2]_. S is whole, so a pool of n single counts, whose mean has the standard
deviation σ/√n, is rounded where that is below 0.35: over the battery at ε from 0.1 to 3, W1 is then 0.77 times that of
plain isotonic regression in geometric mean and ℓ1 0.98 times, and neither ever above it (benchmarks/field.py
--falling). The steps of the curve are the profile, where blocks are single counts.

**Within a wider block** only the mean of S is known. With e_j = S(last[j] + 1) the items beyond block j, the block
holds e_{j−1} − e_j items whose mean place (h − first + 1)/width is (S̄_j − e_j)/(e_{j−1} − e_j). Now e_j is a whole
number between S̄_{j+1} and S̄_j; the one nearest their middle is taken (the middle, where there is none). So a lonely
item stands where it is, and several are spread evenly about their mean place.

**No count beyond M.** S falls, so Σ S over a window of n counts is at least n·S(last of the window): once the
window's sum is below n, S is 0 at its end. Windows are octaves [2^k, 2^(k+1)), each judged with an error of ``DOUBT``;
M is the end of the first that is empty. Above it there is nothing, up to 62·DOUBT.

For "exactly" (noise on f) sums of the numbers from the top make the curve, each with one noise more. There is no such
M: a single item may hide at any count. Octaves past the last with a significant sum are left out of the *value* (not
of the intervals).

.. [1] R. E. Barlow et al., "Statistical Inference under Order Restrictions", 1972.
.. [2] M. Hay, V. Rastogi, G. Miklau, D. Suciu, "Boosting the accuracy of differentially private histograms through
   consistency", VLDB 2010.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression
from scipy.special import ndtri

from ..arrays import Floats, Int64
from ..curve import NoisyCurve
from ..noise import DiscreteLaplace

__all__ = ["falling", "largest_count", "spread", "upper_quantile"]


DOUBT = 1e-5
"""Probability with which an octave is called empty wrongly."""

SURE = 0.35
"""Pools of a smaller standard deviation are rounded to whole numbers of items."""

POINTS = 16
"""Most counts among which the items of one block are spread."""

LONGEST = 1 << 17
"""Farthest reach of a noise whose law is added up; beyond, its quantile is that of Cornish and Fisher."""


def spread(weights: Floats, noise: DiscreteLaplace, level: float) -> tuple[float, float]:
    """Return standard deviation and half-width of the interval of Σ weights·Z by four cumulants (Cornish–Fisher).

    >>> deviation, half = spread(np.ones(1), DiscreteLaplace(0.01), 0.95)
    >>> 2.0 < half / deviation < 2.3  # 1.96 for a normal one
    True
    """
    variance = float(weights @ weights) * noise.variance
    if variance <= 0:
        return 0.0, 0.0
    shrunk = weights / np.abs(weights).max()
    # a discrete Laplace variable of variance v has fourth cumulant v + 3·v²: that of a difference of geometrics
    one = noise.variance
    excess = (one + 3 * one**2) / one**2 * float((shrunk**4).sum()) / float(shrunk @ shrunk) ** 2
    z = float(ndtri((1 + level) / 2))
    return variance**0.5, variance**0.5 * (z + (z**3 - 3 * z) * excess / 24)


@lru_cache(maxsize=4096)
def upper_quantile(noise: DiscreteLaplace, noises: int, tail: float) -> int:
    """Return the smallest k with P(Z₁ + … + Z_noises > k) ≤ tail, from the exact law.

    >>> upper_quantile(DiscreteLaplace(1), 1, 0.025), upper_quantile(DiscreteLaplace(1), 2, 0.025)
    (3, 4)
    """
    if noises == 0:
        return 0
    law = DiscreteLaplace(noise.epsilon, noises)
    if noises == 1:  # P(Z > k) = a^(k+1)/(1+a) for k ≥ 0
        return max(0, int(np.ceil(np.log(1 / (tail * (1 + noise.a))) / float(noise.epsilon) - 1e-12)) - 1)
    reach = law.reach(tail / 4)
    if reach > LONGEST:
        return int(np.ceil(spread(np.ones(noises), noise, 1 - 2 * tail)[1]))
    pmf = law.pmf(np.arange(2 * reach + 2))
    beyond = np.cumsum(pmf[::-1])[::-1]  # P(Z ≥ k), short of what lies past 2·reach
    return int(np.argmax(beyond[1:] <= tail * (1 - 1e-9)))


def octaves(curve: NoisyCurve) -> list[tuple[int, int]]:
    """Return the blocks of each octave [2^k, 2^(k+1)) as ranges of indices; the last may be cut."""
    starts, power = [], 1
    while power <= int(curve.last[-1]):
        starts.append(int(np.searchsorted(curve.first, power)))
        power *= 2
    edges = [*starts, curve.cells]
    return [(a, b) for a, b in pairwise(edges) if b > a]


def largest_count(curve: NoisyCurve) -> int:
    """Return M, beyond which no item has its count (the end of the last block for "exactly")."""
    if curve.released == "exactly":
        return int(curve.last[-1])
    for begin, end in octaves(curve):
        room = int(curve.last[end - 1]) - int(curve.first[begin]) + 1
        noisy = sum(int(n) for n in curve.numbers[begin:end])
        if noisy + upper_quantile(curve.noise, end - begin, DOUBT) < room:
            return int(curve.last[end - 1])
    return int(curve.last[-1])


def falling(curve: NoisyCurve) -> tuple[Int64, Floats]:
    """Return the counts at which the fitted curve falls and by how many items it does."""
    if curve.released == "at_least":
        kept = int(np.searchsorted(curve.last, largest_count(curve))) + 1
        width = curve.width[:kept].astype(float)
        fit = isotonic_regression(curve.numbers[:kept] / width, weights=width**2, increasing=False)
        fitted = _whole_where_sure(fit.x, fit.blocks, width, curve.noise.variance**0.5)
    else:
        kept = _alive(curve)
        sums = np.cumsum(curve.numbers[:kept][::-1].astype(float))[::-1]
        fitted = isotonic_regression(sums, increasing=False).x
    fitted = np.clip(fitted, 0, None)
    if curve.released == "at_least":
        return _placed(curve, fitted)
    step = fitted - np.append(fitted[1:], 0.0)
    some = step > 0
    return _middles(curve)[:kept][some], step[some]


def _whole_where_sure(fitted: Floats, pools: NDArray[np.intp], width: Floats, deviation: float) -> Floats:
    """Round pools of single counts whose mean has a standard deviation below SURE, and let the curve fall again."""
    fitted = fitted.copy()
    for begin, end in pairwise(pools.tolist()):
        if width[end - 1] == 1 and deviation < SURE * (end - begin) ** 0.5:
            fitted[begin:end] = np.rint(fitted[begin])
    return np.minimum.accumulate(fitted)


def _middles(curve: NoisyCurve) -> Int64:
    """The middle of each block, at which "exactly" shows its items."""
    return curve.first + (curve.last - curve.first) // 2


def _placed(curve: NoisyCurve, fitted: Floats) -> tuple[Int64, Floats]:
    """Return counts and numbers of items of a fitted curve of block means."""
    width = curve.width[: fitted.size]
    below = np.append(fitted[1:], 0.0)
    middle = (fitted + below) / 2
    whole = np.clip(np.rint(middle), np.ceil(below - 1e-9), None)
    edge = np.where(whole <= fitted + 1e-9, np.minimum(whole, fitted), middle)  # S(last + 1)
    edge = np.where(np.append(width[1:] == 1, False), below, edge)
    edge[-1] = 0.0
    items = np.append(fitted[0], edge[:-1]) - edge
    single = (width == 1) & (items > 0)
    places = [curve.last[: fitted.size][single]]
    numbers = [items[single]]
    for j in np.flatnonzero((width > 1) & (items > 1e-9)):
        share = np.clip((fitted[j] - edge[j]) / items[j], 0.0, 1.0)
        points = min(POINTS, max(1, round(items[j])))
        reach = min(share, 1 - share)
        at = share + reach * (2 * np.arange(points) + 1 - points) / points
        counts = int(curve.first[j]) - 1 + np.maximum(np.rint(at * int(width[j])), 1).astype(np.int64)
        places.append(counts)
        numbers.append(np.full(points, items[j] / points))
    support, where = np.unique(np.concatenate(places), return_inverse=True)
    return support, np.bincount(where, weights=np.concatenate(numbers), minlength=support.size).astype(float)


def _alive(curve: NoisyCurve) -> int:
    """Return how many blocks reach to the end of the last octave that holds more than noise."""
    kept = 1
    for begin, end in octaves(curve):
        if int(curve.numbers[begin:end].sum()) > upper_quantile(curve.noise, end - begin, DOUBT):
            kept = end
    return kept
