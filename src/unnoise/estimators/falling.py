"""From a noisy curve to a profile.

The diagram (:mod:`unnoise.curve`) is known by its columns up to a corner and by its rows beyond: (S(t) − ⌊t/8⌋)⁺ is
positive up to some count T and 0 from T + 1 on, and then only the rows of rank up to ⌊(T + 1)/8⌋ have boxes of their
own, because S falls and t/8 rises. Up to the corner the columns give S(t), and the rows give counts above T; beyond,
all numbers are noise and are left out.

**The corner** is not chosen but weighed. Roughly, columns up to T and rows up to their rank are the nearest falling
sequences (isotonic regression, blocks weighted by width² [1]_ [2]_), the rest is 0, and −log likelihood is ε times all
that is left over; every level above its floor that a sequence takes must gain ``LEVEL`` nats, as it would fit noise by
about that much. Corners within ``HOPELESS`` nats of the best go into the chain of the columns as possible ends, each
with the weight of what it leaves beyond; S(t) is shown as long as half of the chance is on a corner at t or later. (The
likeliest corner alone drops the last few items of a tail that fades out: the error at small counts was up to 1.2 times
that of isotonic regression.) Where the rough corner lies beyond ``CHAINED`` columns, it is taken.

**Within** it, the first ``CHAINED`` columns and rows are answered by a likely falling sequence of whole numbers
(:mod:`~unnoise.estimators._descent`), others by isotonic regression; the row after the last has the count T
itself, for S(T) is above its rank and S(T + 1) is not. Of a wide block of columns only the mean of
S is known. With e_j = S(last[j] + 1) the items beyond block j, the block holds e_{j−1} − e_j items whose mean place
(h − first + 1)/width is (S̄_j − e_j)/(e_{j−1} − e_j); e_j is a whole number between S̄_{j+1} and S̄_j, the one nearest
their middle (the middle, where there is none). In a wide group of rows counts are interpolated between the groups.

**No item has a count above M** = what the first row can hold, up to an error of ``DOUBT``. **No box lies beyond the
corner T̄**: were T ≥ τ, the columns before τ and the rows would hold at least a triangle of boxes; T̄ is the first τ of a
ladder for which the numbers there are too small for it, up to an error of ``DOUBT`` for each rung.

For "exactly" (noise on f) sums of the numbers from the top make the curve, each with one noise more. There is no such
M: a single item may hide at any count. The *value* (not the intervals) ends with the octave of the last run of blocks
that surely holds items: single blocks first, then runs of 2, 4, … beyond those found, with ``CHANCE`` for all together.

.. [1] R. E. Barlow et al., "Statistical Inference under Order Restrictions", 1972.
.. [2] M. Hay, V. Rastogi, G. Miklau, D. Suciu, "Boosting the accuracy of differentially private histograms through
   consistency", VLDB 2010.
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise

import numpy as np
from scipy.optimize import isotonic_regression
from scipy.special import ndtri

from ..arrays import Floats, Int64
from ..curve import SINGLE, NoisyCurve
from ..noise import DiscreteLaplace
from ._descent import descent

__all__ = ["corner", "falling", "largest_count", "last_corner", "spread", "upper_quantile"]


DOUBT = 1e-6
"""Probability with which a bound on the diagram is drawn too tight."""

CHANCE = 0.01
"""Probability with which any run of blocks without items is taken for one that holds some."""

POINTS = 16
"""Most counts among which the items of one block are spread."""

LONGEST = 1 << 12
"""Farthest reach of a noise whose law is added up; beyond, its quantile is that of Cornish and Fisher."""

MANY = 32
"""Of so many noises, of so much variance, four cumulants give the quantile, or the next whole number."""

LEVEL = 2.0
"""Nats by which the likelihood must gain for every level that a fitted sequence takes."""

HOPELESS = 16.0
"""Nats by which a corner may be worse than the likeliest to be thought of at all."""

RUNGS = 8
"""Corners to the octave that are tried."""

ZOOM = 33
"""Corners that are tried between the neighbours of the likeliest so far."""

CHAINED = 2048
"""Columns, or rows, that the chain answers; it looks at one after the other, so more would take long."""


def spread(weights: Floats, noise: DiscreteLaplace, tail: float) -> tuple[float, float]:
    """Return standard deviation and upper quantile, at ``tail``, of Σ weights·Z by four cumulants (Cornish–Fisher).

    No wider than where all noises together are within their own limits, which tells for noise that is nearly always 0.

    >>> deviation, half = spread(np.ones(1), DiscreteLaplace(0.01), 0.025)
    >>> 2.0 < half / deviation < 2.3  # 1.96 for a normal one
    True
    """
    variance = float(weights @ weights) * noise.variance
    if variance <= 0:
        return 0.0, 0.0
    shrunk = weights / np.abs(weights).max()
    # a discrete Laplace variable of variance v has fourth cumulant v + 3·v²: that of a difference of geometrics
    one = noise.variance
    excess = (1 / one + 3) * float((shrunk**4).sum()) / float(shrunk @ shrunk) ** 2
    z = -float(ndtri(tail))
    sure = float(np.abs(weights).sum()) * upper_quantile(noise, 1, tail / weights.size)
    return variance**0.5, min(variance**0.5 * (z + (z**3 - 3 * z) * excess / 24), sure)


@lru_cache(maxsize=4096)
def upper_quantile(noise: DiscreteLaplace, noises: int, tail: float) -> int:
    """Return the smallest k with P(Z₁ + … + Z_noises > k) ≤ tail, from the exact law (of many: by four cumulants).

    >>> upper_quantile(DiscreteLaplace(1), 1, 0.025), upper_quantile(DiscreteLaplace(1), 2, 0.025)
    (3, 4)
    """
    if noises == 0:
        return 0
    law = DiscreteLaplace(noise.epsilon, noises)
    if noises == 1:  # P(Z > k) = a^(k+1)/(1+a) for k ≥ 0
        return max(0, int(np.ceil(np.log(1 / (tail * (1 + noise.a))) / float(noise.epsilon) - 1e-12)) - 1)
    if noises >= MANY and law.variance >= MANY:
        return int(np.ceil(spread(np.ones(noises), noise, tail)[1]))
    reach = law.reach(tail / 4)
    if reach > LONGEST:
        return int(np.ceil(spread(np.ones(noises), noise, tail)[1]))
    pmf = law.pmf(np.arange(2 * reach + 2))
    beyond = np.cumsum(pmf[::-1])[::-1]  # P(Z ≥ k), short of what lies past 2·reach
    return int(np.argmax(beyond[1:] <= tail * (1 - 1e-9)))


def largest_count(curve: NoisyCurve) -> int:
    """Return M, beyond which no item has its count (the end of the last block for "exactly")."""
    if curve.released == "exactly" or not curve.ranks.size:
        return int(curve.last[-1])
    most = int(curve.start[0]) - 1 + max(0, int(curve.ranks[0]) + upper_quantile(curve.noise, 1, DOUBT))
    return min(most, 1 << 62)


def _ladder(size: int) -> list[int]:
    """All numbers up to 16, then RUNGS to the octave, below ``size``."""
    rungs = np.rint(16 * 2 ** (np.arange(1, RUNGS * 60) / RUNGS))
    return [i for i in [*range(16), *rungs[rungs < size].astype(int).tolist()] if i < size]


def last_corner(curve: NoisyCurve) -> tuple[int, int]:
    """Return how many blocks of columns and groups of rows may hold boxes."""
    width, above, start = curve.width.astype(float), curve.above.astype(float), curve.start.astype(float)
    held = np.concatenate([[0.0], np.cumsum(curve.numbers.astype(float))])
    rows = np.concatenate([[0.0], np.cumsum(curve.ranks.astype(float))])
    for j in _ladder(curve.numbers.size):
        groups = int(np.searchsorted(curve.rank_last, above[j], side="right"))
        for length in (8, 16, 32, 64, 128, 256, 512, 1024, 2048):
            begin, first = max(0, j + 1 - length), max(0, groups - length // 8)
            least = 1 + width[begin:j] @ (1 + above[j] - above[begin:j])  # one box of the last block would do
            least += curve.rank_width[first:groups] @ (curve.first[j] - start[first:groups] + 1)
            found = held[j + 1] - held[begin] + rows[groups] - rows[first]
            slack = upper_quantile(curve.noise, j + 1 - begin + groups - first, DOUBT)
            if found + slack < least:
                return j + 1, groups
            if least > 3 * slack or begin == 0:
                break
    return curve.numbers.size, curve.ranks.size


def falling(curve: NoisyCurve) -> tuple[Int64, Floats]:
    """Return the counts at which the fitted curve falls and by how many items it does."""
    if curve.released == "exactly":
        kept = _alive(curve)
        sums = np.cumsum(curve.numbers[:kept][::-1].astype(float))[::-1]
        fitted = np.clip(isotonic_regression(sums, increasing=False).x, 0, None)
        step = fitted - np.append(fitted[1:], 0.0)
        some = step > 0
        middle = curve.first + (curve.last - curve.first) // 2
        return middle[:kept][some], step[some]
    columns, groups, reached = corner(curve)
    if columns == 0:
        return np.zeros(0, dtype=np.int64), np.zeros(0)
    return _assembled(curve, columns, reached, _ranks(curve, columns, groups))


class _Costs:
    """−log likelihood of a corner, but for a constant: noise beyond it, nearest falling sequences up to it."""

    def __init__(self, curve: NoisyCurve) -> None:
        self.curve, self.epsilon = curve, float(curve.noise.epsilon)
        self.most, _ = last_corner(curve)
        self.groups = [_groups(curve, j) for j in range(self.most + 1)]
        self.rest = _remaining(curve.numbers[: self.most])
        self.left = _remaining(curve.ranks[: self.groups[-1]])

    def arm(self, y: Floats, w: Floats, offset: Floats, floor: int, *, columns: bool = False) -> float:
        """Of columns or rows up to the corner; a level at the floor is none of its own.

        Rows end at the corner, wherever that is, and may all be there. But if columns fall to one height, at their
        floor or above it, out of all the heights below the last, that is a chance.
        """
        fit = isotonic_regression(y / w + offset, weights=w**2, increasing=False)
        off = (np.maximum(fit.x, floor) - offset) * w - y
        levels = fit.x[fit.blocks[:-1]]
        above = levels[levels > floor]
        found = self.epsilon * float(np.abs(off).sum()) + LEVEL * above.size
        if not columns:
            found = min(found, self.epsilon * float(np.abs((floor - offset) * w - y).sum()))
        heights = np.append(above, [floor] * (above.size < levels.size))
        if columns and heights.size > 1:
            found += math.log1p(self.epsilon * float(heights[-2] - heights[-1]) * float(w[-1]))
        return found

    def beyond(self, j: int) -> float:
        """Of all but the columns up to the corner."""
        arms = _arms(self.curve, j, self.groups[j])[1:] if j else ()
        return self.epsilon * float(self.rest[j] + self.left[self.groups[j]]) + sum(self.arm(*arm) for arm in arms)

    def __call__(self, j: int) -> float:
        return self.beyond(j) + (self.arm(*_arms(self.curve, j, 0)[0], columns=True) if j else 0.0)


def _remaining(numbers: Int64) -> Floats:
    """Σ |numbers| from each entry on."""
    return np.append(np.cumsum(np.abs(numbers[::-1].astype(float)))[::-1], 0.0)


def corner(curve: NoisyCurve) -> tuple[int, int, Floats]:
    """Return the blocks of columns and groups of rows of the fitted diagram, and S by block of columns."""
    cost = _Costs(curve)
    tried = {j: cost(j) for j in [*_ladder(cost.most), cost.most]}
    best, nearer = min(tried, key=tried.__getitem__), [-1]
    while nearer:  # nearer and nearer to the likeliest
        rungs = sorted(tried)
        at = rungs.index(best)
        between = np.linspace(rungs[max(at - 1, 0)], rungs[min(at + 1, len(rungs) - 1)], ZOOM).astype(int).tolist()
        nearer = [j for j in {*between, *range(max(best - RUNGS, 0), min(best + RUNGS, cost.most))} if j not in tried]
        tried |= {j: cost(j) for j in nearer}
        best = min(tried, key=tried.__getitem__)
    chained = min(int(np.searchsorted(curve.width, 1.5)), CHAINED)
    if best > chained:
        return best, cost.groups[best], _fitted(curve, _arms(curve, best, 0)[0])
    far = [j for j in tried if tried[j] > tried[best] + HOPELESS]
    begin = max((j for j in far if j < best), default=0)
    end = min([j for j in far if j > best] + [chained, cost.most])
    if end == 0:
        return 0, 0, np.zeros(0)
    ends = np.array([-cost.beyond(j) if j >= begin else -np.inf for j in range(end + 1)])
    ends[0] += LEVEL - np.log(np.tanh(cost.epsilon / 2))
    floors = curve.above[: end + 1] + 1 if end < curve.above.size else np.append(curve.above, 1 << 60) + 1
    reached = descent(curve.numbers[:end].astype(float) + curve.above[:end], curve.noise, floors, ends)
    return reached.size, cost.groups[reached.size], reached


def _groups(curve: NoisyCurve, columns: int) -> int:
    """How many groups of rows have boxes where so many blocks of columns do."""
    if columns >= curve.numbers.size:
        return curve.ranks.size
    return int(np.searchsorted(curve.rank_last, int(curve.above[columns]), side="right"))


def _arms(curve: NoisyCurve, columns: int, groups: int) -> list[tuple[Floats, Floats, Floats, int]]:
    """Numbers, widths, what a mean has to be raised by and its least value: of the columns, and of the rows."""
    arms = [(curve.numbers[:columns].astype(float), curve.width[:columns].astype(float),
             curve.above[:columns].astype(float), int(curve.above[columns - 1]) + 1)]  # fmt: skip
    if groups:
        arms.append((curve.ranks[:groups].astype(float), curve.rank_width[:groups].astype(float),
                     curve.start[:groups] - 1.0, int(curve.last[columns - 1])))  # fmt: skip
    return arms


def _fitted(curve: NoisyCurve, arm: tuple[Floats, Floats, Floats, int], *, rows: bool = False) -> Floats:
    """Return S by block of columns, or counts by group of rows."""
    y, w, offset, floor = arm
    chained = min(int(np.searchsorted(w, 1.5)), CHAINED)
    rest = np.zeros(0)
    if chained < y.size:
        rest = np.maximum(isotonic_regression(y / w + offset, weights=w**2, increasing=False).x[chained:], floor)
        floor = int(rest[0])
    fitted = descent(y[:chained] + offset[:chained], curve.noise, floor, rows=rows, lands=rows and not rest.size)
    return np.append(np.maximum(fitted, rest[:1].max(initial=floor)), rest)


def _ranks(curve: NoisyCurve, columns: int, groups: int) -> Floats:
    """Return the counts by rank."""
    if not groups:
        return np.zeros(0)
    found = _fitted(curve, _arms(curve, columns, groups)[1], rows=True)
    middle = curve.rank_last[:groups] - (curve.rank_width[:groups] - 1) / 2
    return np.interp(np.arange(1, int(curve.rank_last[groups - 1]) + 1), middle, found)


def _assembled(curve: NoisyCurve, columns: int, reached: Floats, counts: Floats) -> tuple[Int64, Floats]:
    """Put columns and rows together: counts and numbers of items, the rows telling what lies beyond the columns."""
    end = int(curve.last[columns - 1])
    large = np.minimum(np.rint(counts), float(1 << 62)).astype(np.int64)
    large = large[large > end]
    support, items = _placed(curve, reached, float(large.size))
    at, number = np.unique(large, return_counts=True)
    some = items > 0
    return np.append(support[some], at), np.append(items[some], number.astype(float))


def _placed(curve: NoisyCurve, fitted: Floats, beyond: float) -> tuple[Int64, Floats]:
    """Return counts and numbers of items of a fitted curve of block means, ``beyond`` items being larger."""
    width = curve.width[: fitted.size]
    below = np.append(fitted[1:], min(beyond, float(fitted[-1])))
    middle = (fitted + below) / 2
    whole = np.clip(np.rint(middle), np.ceil(below - 1e-9), None)
    edge = np.where(whole <= fitted + 1e-9, np.minimum(whole, fitted), middle)  # S(last + 1)
    edge = np.where(np.append(width[1:] == 1, True), below, edge)
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


def octaves(curve: NoisyCurve) -> list[tuple[int, int]]:
    """Return the blocks of each octave [2^k, 2^(k+1)) as ranges of indices; the last may be cut."""
    starts, power = [], 1
    while power <= int(curve.last[-1]):
        starts.append(int(np.searchsorted(curve.first, power)))
        power *= 2
    edges = [*starts, curve.numbers.size]
    return [(a, b) for a, b in pairwise(edges) if b > a]


def _alive(curve: NoisyCurve) -> int:
    """Return how many blocks reach to the end of the last octave that holds more than noise.

    A run that ends at the count t may take a share 1/t of the error, so that no count beyond belief is ever shown.
    """
    held = np.concatenate([[0], np.cumsum(curve.numbers)])
    single, lengths = min(SINGLE["exactly"], curve.numbers.size), curve.numbers.size.bit_length()
    kept = 1
    for length in (1 << i for i in range(lengths)):
        found = held[length:] - held[:-length]
        likely = np.flatnonzero(found > upper_quantile(curve.noise, length, CHANCE / (lengths * single)))
        for begin in likely[likely >= kept][::-1].tolist():  # what is kept already tells nothing new
            end = begin + length
            chance = CHANCE / (lengths * max(single, int(curve.last[end - 1])))
            if found[begin] > upper_quantile(curve.noise, length, chance):
                kept = end
                break
    return next(end for _, end in octaves(curve) if end >= kept)
