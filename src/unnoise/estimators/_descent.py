"""A whole sequence that never rises, seen through discrete Laplace noise: the likely steps of what it may be.

x_1 ≥ x_2 ≥ … are whole numbers, y_i = x_i + Z_i. The steps x_i − x_{i+1} are drawn from a law of their own in every
octave of i: 0, 1, …, 8, or geometric with a mean of 4, 16, 64, …, with weights learnt from y by expectation and
maximisation; where such a mean is above a third of x_i, the next entry is any number from 0 to x_i alike. So a stretch
without steps, one of rare small steps, one of many large steps and one that falls by a share of what is left are each
seen as what they are, and a jump anywhere remains possible. Under strong noise few large steps and many small ones look
alike, and learning ends near where it began: it begins twice, and both ends are weighed by their evidence. One
more start has laws of its own at the multiples of a period, where steps there stand out (prices, rounded numbers).

**The sequence may end**: by a step below a floor, which may depend on i, or by a stop at any height, with chance
``STOPS``/(i + 1) after entry i. What is seen beyond its end, and elsewhere, comes as a weight of every end, so all ends
are weighed by their evidence, none is chosen: an entry is shown as long as half of the chance is on going on.

Given the weights this is a hidden Markov chain: forward and backward sums (L. Baum et al., Ann. Math. Statist. 1970)
give the laws of every x_i and of every step exactly, in a window about the nearest falling sequence, beyond which the
noise lies with probability e^−10. The medians of the x_i fall, as the x_i do, and have the least expected absolute
error: they are the answer for rows. Of columns the *steps* are the profile, and a step of uncertain place is spread by
medians over several columns. So the answer is the sequence with the least expected absolute error of all steps among
those that stray no farther than to the ``STRAY`` quantiles of every x_i. Where x is long and the noise strong, it is
taken in states of up to an eighth of its standard deviation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from ..arrays import Floats, Int64
from ..noise import DiscreteLaplace

__all__ = ["descent"]

REACH = 10.0
"""Half of the window, in units of 1/ε."""

ROUNDS = 4
"""Rounds of expectation and maximisation."""

PRIOR = 0.1
"""Steps that every octave is thought to have seen beforehand, spread over all means."""

FLAT = (1.0, 100.0)
"""Weights of no step to begin with, that of a step of 1 being 1: what is learnt from either is weighed by evidence."""

PERIODS = 64
"""Periods that are looked for among the columns."""

CLEAR = 3.0
"""Standard deviations by which the steps at multiples must stand out for a period to be weighed."""

PRICE = 0.1
"""What an error of 1/ε in one level costs, that of one item at a wrong place being 1."""

STRAY = 1 / 3
"""Chance that a level lies below, or above, how far its answer may be."""

NEVER = 1e4
"""Price of what cannot be."""

FINE = 8
"""Least points to a standard deviation of the noise."""

WORK = 1 << 24
"""Pairs of points of a window, for all entries together, up to which every whole number is a point."""

TINY = 1e-250
"""Chances below are taken as this."""

ALWAYS = 1 << 62
"""A floor that whatever follows lies below."""

STOPS = 0.25
"""Chance of a stop at any height, to every e-fold of entries."""

LONG = 3.0
"""A mean of more than a LONG-th of what is left leaves all steps alike."""

STEPS = 9
"""Steps of 0, 1, … that have a weight of their own."""

GROWTH = 4.0
"""Ratio of neighbouring means."""


def descent(
    noisy: Floats, noise: DiscreteLaplace, floor: int | Int64, ends: Floats | None = None, *, rows: bool = False,
    lands: bool = False,
) -> Floats:  # fmt: skip
    """Return likely x_i ≥ ``floor`` given noisy whole numbers, up to the likely end of the sequence.

    noisy : y_1, …, y_n
    floor : least value of x_i while the sequence goes on, with ``ends`` for every entry and for what would follow
    ends : log weight of ending after 0, 1, …, n entries, by all that is seen besides; None: it has n entries
    rows : whether the levels are to be near, by their medians, rather than the steps
    lands : whether the entry after the last is ``floor`` itself

    >>> descent(np.array([103.0, 99.0, 101.0, 100.0, 98.0, 102.0, 4.0, -2.0, 1.0]), DiscreteLaplace(1), 0).tolist()
    [102.0, 100.0, 100.0, 100.0, 100.0, 100.0, 4.0, 1.0, 1.0]
    >>> seen, ends = np.array([9.0, 0.0, 1.0, -1.0]), np.array([-11.0, -2.0, -2.0, -1.0, 0.0])
    >>> descent(seen, DiscreteLaplace(1), np.ones(5), ends).tolist()
    [9.0]
    """
    if noisy.size == 0:
        return noisy
    floors = np.append(np.full(noisy.size, floor), ALWAYS) if ends is None else np.asarray(floor, dtype=np.int64)
    if ends is None:
        ends = np.append(np.full(noisy.size, -np.inf), 0.0)
    chain, base, unit = _chain(noisy, noise, floors, ends, lands)
    starts = [_learnt(chain, flat, joint=not rows) for flat in FLAT]
    period = 0 if rows else _period(noisy)
    if period:
        evidence, law, steps = _learnt(replace(chain, period=period), FLAT, joint=True)
        starts.append((evidence - math.log(PERIODS), law, steps))
    evidences, laws, falls = zip(*starts)
    chances = np.exp(np.array(evidences) - np.logaddexp.reduce(evidences))
    law, steps = np.tensordot(chances, laws, 1), np.tensordot(chances, falls, 1)
    law, low = law[: noisy.size], chain.low[: noisy.size]
    going = law.sum(axis=1)
    kept = int(np.argmin(np.append(going >= 0.5, False)))
    below = 1 - going[:, None] + np.cumsum(law, axis=1)
    if rows or not kept:
        found = np.minimum.accumulate(low + np.argmax(below >= 0.5, axis=1))[:kept]
    else:
        price = unit * PRICE * float(noise.epsilon)
        small = (chain.states[:kept] < chain.least[:kept, None]) | (below[:kept] < STRAY)
        levels = np.where(small, -NEVER, np.where(below[:kept] < 1 - STRAY, price * (2 * below[:kept] - 1), NEVER))
        fewer = 1 - going[: kept - 1, None] + np.cumsum(steps[: kept - 1], axis=1)
        found = low[:kept] + _least(levels, np.where(chain.shift[: kept - 1] < 0, -NEVER, 2 * fewer - 1))
    return base + _finer(unit * found, noisy[:kept] - base, unit)


def _learnt(chain: _Chain, flat: float | tuple[float, float], *, joint: bool) -> tuple[float, Floats, Floats]:
    """Return evidence, laws of states and, ``joint``, of steps, from a start at which so many steps in one are 0.

    With a period, ``flat`` is for its multiples and for what lies between.
    """
    prior = np.ones((int(chain.group.max()) + 1, STEPS + chain.means.size))
    prior[:, 2:STEPS] = 1 / (STEPS - 2)  # a size of its own is one guess among several
    prior[:, 0] = np.where(np.arange(prior.shape[0]) % 2, *flat) if isinstance(flat, tuple) else flat
    prior /= prior.sum(axis=1, keepdims=True)
    weights = prior
    for number in range(ROUNDS):
        law, steps, taken, evidence = chain.smoothed(weights, joint=joint and number == ROUNDS - 1)
        weights = taken + PRIOR * prior
        weights /= weights.sum(axis=1, keepdims=True)
    return evidence, law, steps


def _period(noisy: Floats) -> int:
    """Return the m at whose multiples steps stand out most from the slope about them, 0 where none does clearly."""
    best, found = CLEAR, 0
    for m in range(2, min(PERIODS, noisy.size // 6) + 1):
        at = np.arange(m, noisy.size - m, m) - 1
        out = noisy[at] - noisy[at + 1] - (noisy[at - m // 2] - noisy[at - m // 2 + m]) / m
        clear = float(out.sum() / max(np.sqrt(out @ out), 1.0))
        best, found = (clear, m) if clear > best else (best, found)
    return found


def _least(levels: Floats, steps: Floats) -> NDArray[np.intp]:
    """Return the places in their windows of the sequence with the least loss, given the slopes of what each costs.

    Losses of levels and of steps are convex, so the least over all steps to a level has the slopes of both, sorted.
    """
    count, size = levels.shape
    levels, loss = (np.pad(np.cumsum(x[:, :-1], axis=1), ((0, 0), (1, 0))) for x in (levels, steps))
    value = [levels[0]]
    for i in range(1, count):
        slopes = np.sort(np.concatenate([np.diff(value[-1]), -steps[i - 1, -2::-1]]), kind="stable")
        value.append(value[-1][0] + loss[i - 1, -1] + slopes.cumsum()[size - 2 : 2 * size - 2] + levels[i])
    found = np.empty(count, dtype=np.intp)
    found[-1] = np.argmin(value[-1])
    for i in range(count - 2, -1, -1):
        begin = size - 1 - found[i + 1]
        found[i] = np.argmin(value[i] + loss[i, begin : begin + size])
    return found


def _finer(median: Int64, noisy: Floats, unit: int) -> Floats:
    """Put a long stretch without a step at the mean of its noisy numbers, within half a ``unit`` of its median."""
    begin = np.flatnonzero(np.diff(median, prepend=-1))
    if unit == 1 or not begin.size:
        return median.astype(float)
    length = np.diff(np.append(begin, median.size))
    means = np.rint(np.add.reduceat(noisy, begin) / length)
    means = np.clip(means, median[begin] - unit // 2, median[begin] + unit // 2)
    sharp = (length >= FINE**2) & (median[begin] > 0)  # then the mean has the error of a state; the floor is no mean
    return np.repeat(np.where(sharp, means, median[begin]), length).astype(float)


def _chain(noisy: Floats, noise: DiscreteLaplace, floors: Int64, ends: Floats, lands: bool) -> tuple[_Chain, int, int]:
    """Return the chain, what its state 0 stands for, and how far its states are apart."""
    base, unit = int(floors[0]), _unit(noisy.size, noise)
    near = np.maximum(isotonic_regression(noisy, increasing=False).x, floors[:-1]) - base
    half = int(np.ceil(REACH / float(noise.epsilon) / unit)) + 2
    low = np.maximum(np.rint(near / unit).astype(np.int64) - half, 0)
    least = -((base - floors) // unit)
    likely, scale = _likelihood((noisy - base) / unit, low, 2 * half + 1, unit * float(noise.epsilon))
    scale[0] += np.log(unit)  # before anything is seen all whole numbers are alike
    likely = np.where(low[:, None] + np.arange(2 * half + 1) >= least[:-1, None], likely, 0.0)
    if lands:
        low, likely = np.append(low, 0), np.append(likely, np.eye(1, 2 * half + 1), axis=0)
        scale, least, ends = np.append(scale, 0.0), np.append(least[:-1], [0, least[-1]]), np.append(-np.inf, ends)
    return _Chain(low, 2 * half + 1, likely, scale, least, ends), base, unit


def _unit(entries: int, noise: DiscreteLaplace) -> int:
    """How far states are apart: 1 where that is not too much work, for what lies between two states is never found."""
    pairs = entries * (2 * REACH / float(noise.epsilon)) ** 2
    return max(1, min(round(math.sqrt(noise.variance) / FINE), math.ceil(math.sqrt(pairs / WORK))))


def _likelihood(noisy: Floats, low: Int64, size: int, epsilon: float) -> tuple[Floats, Floats]:
    """e^(−ε|y − x|) at every point of the windows, scaled to 1 at the largest; and the logarithms of the scales."""
    away = np.abs(noisy[:, None] - (low[:, None] + np.arange(size)))
    nearest = away.min(axis=1)
    return np.asarray(np.exp(-float(epsilon) * (away - nearest[:, None]))), -float(epsilon) * nearest


@dataclass(frozen=True, eq=False)
class _Chain:
    """Windows of ``size`` states that begin at ``low``, and how likely each state makes what was seen.

    scale : logarithms of what ``likely`` was divided by
    least : least state of each entry, and of what would follow the last
    ends : log weight of ending after 0, 1, … entries
    """

    low: Int64
    size: int
    likely: Floats
    scale: Floats
    least: Int64
    ends: Floats
    period: int = 0

    @cached_property
    def group(self) -> NDArray[np.intp]:
        """Which steps have a law in common: those of an octave, with a period at its multiples and elsewhere."""
        entry = np.arange(1, self.low.size + 1)
        octave = np.log2(entry + 1).astype(np.intp)
        return 2 * octave + (entry % self.period == 0) if self.period else octave

    @cached_property
    def shift(self) -> Int64:
        """Every step from one window to the next: steps × (2·size − 1)."""
        return (self.low[:-1] - self.low[1:])[:, None] + np.arange(1 - self.size, self.size)

    @cached_property
    def states(self) -> Int64:
        """Every state of the windows: entries × size."""
        return np.asarray(self.low[:, None] + np.arange(self.size))

    @cached_property
    def means(self) -> Floats:
        """Means of the geometric laws."""
        longest = int(self.low[0]) + self.size
        return np.asarray(GROWTH ** np.arange(1, 1 + np.ceil(np.log(max(longest, 2)) / np.log(GROWTH))))

    @cached_property
    def flat(self) -> NDArray[np.bool_]:
        """Whether a law takes all steps alike after an entry, its mean being too long for it: entries × laws."""
        middle = self.low + self.size // 2
        geometric = LONG * self.means > middle[:, None]
        return np.pad(geometric, ((0, 0), (STEPS, 0)))

    @cached_property
    def laws(self) -> Floats:
        """Chance of a step from one state to another under each law, by their distance: steps × laws × (2·size − 1)."""
        shift = self.shift
        beyond = [
            np.where(shift >= 1, np.exp(np.maximum(shift - 1, 0) * np.log1p(-1 / m)) / m, 0.0) for m in self.means
        ]
        found = np.stack([*(shift == step for step in range(STEPS)), *beyond], axis=1).astype(float)
        return np.where(self.flat[:-1, :, None], 0.0, found)

    @cached_property
    def falls(self) -> Floats:
        """Chance of a step below the least state that may follow, under each law: entries × laws × size."""
        short = self.states - self.least[1:, None] + 1
        beyond = [np.exp(np.maximum(short - 1, 0) * np.log1p(-1 / m)) for m in self.means]
        found = np.stack([*(short <= step for step in range(STEPS)), *beyond], axis=1).astype(float)
        alike = np.minimum((self.least[1:, None] + 1) / (self.states + 2.0), 1.0)
        return np.where(self.flat[:, :, None], alike[:, None, :], found)

    def smoothed(self, weights: Floats, *, joint: bool = False) -> tuple[Floats, Floats, Floats, float]:
        """Return laws of states (sums: the chance to get there) and, ``joint``, of steps; steps by kind; evidence."""
        stops = STOPS / np.arange(2, self.low.size + 2)[:, None]
        mine = weights[self.group] * (1 - stops)
        kernels = np.einsum("sl,slk->sk", mine[:-1], self.laws)
        falls = np.einsum("sl,slk->sk", mine, self.falls) + stops
        alike = (mine * self.flat).sum(axis=1)[:, None] / (self.states + 2.0)
        forward, scale = self._forward(kernels, alike)
        log = np.cumsum(np.log(scale) + self.scale)  # of the chance of what was seen up to an entry
        ended = log + self.ends[1:] + np.log(np.maximum((forward * falls).sum(axis=1), TINY))
        whole = np.logaddexp.reduce(np.append(ended, self.ends[0]))
        weight = np.exp(np.minimum(log + self.ends[1:] - whole, -np.log(TINY)))[:, None]
        law, met, evenly, even = self._backward(kernels, alike, forward, scale, weight * falls, joint=joint)
        steps = kernels * met + np.where(self.shift < 0, 0.0, even) if joint else np.zeros(0)
        taken = weight * np.einsum("slk,sk->sl", self.falls, forward) + self.flat * evenly[:, None]
        taken[:-1] += np.einsum("slk,sk->sl", self.laws, met)
        kinds = np.zeros_like(weights)
        np.add.at(kinds, self.group, mine * taken)
        return law, steps, kinds, float(whole)

    def _forward(self, kernels: Floats, alike: Floats) -> tuple[Floats, Floats]:
        """Return the law of every state given what was seen up to it, and the sums it was divided by."""
        count, size = self.likely.shape
        reached = np.clip(np.diff(self.low)[:, None] + np.arange(size), 0, size)
        forward, scale, sums = np.empty_like(self.likely), np.empty(count), np.zeros(size + 1)
        state = self.likely[0]
        for i in range(count):
            if i:
                sums[:-1] = (forward[i - 1] * alike[i - 1])[::-1].cumsum()[::-1]
                state = np.correlate(kernels[i - 1], forward[i - 1], "valid")[::-1] + sums[reached[i - 1]]
                state *= self.likely[i]
            scale[i] = max(float(state.sum()), TINY)  # none where a floor has passed all states
            forward[i] = state / scale[i]
        return forward, scale

    def _backward(
        self, kernels: Floats, alike: Floats, forward: Floats, scale: Floats, ending: Floats, *, joint: bool
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """Return the law of every state given everything, of every distance, of even steps, and ``joint`` of both."""
        count, size = self.likely.shape
        reached = np.clip(np.arange(size) + 1 - np.diff(self.low)[:, None], 0, size)
        law, met, evenly = np.empty_like(self.likely), np.empty((count - 1, 2 * size - 1)), np.zeros(count)
        back, sums, even = ending[-1], np.zeros(size + 1), np.zeros_like(met if joint else evenly)
        law[-1] = forward[-1] * back
        for i in range(count - 1, 0, -1):
            ahead = self.likely[i] * back / scale[i]
            ahead.cumsum(out=sums[1:])
            below = sums[reached[i - 1]]
            met[i - 1] = np.correlate(forward[i - 1], ahead, "full")
            evenly[i - 1] = forward[i - 1] @ (below / (self.states[i - 1] + 2.0))
            if joint:
                even[i - 1] = np.correlate(forward[i - 1] * alike[i - 1], ahead, "full")
            back = np.convolve(kernels[i - 1], ahead, "valid") + alike[i - 1] * below + ending[i - 1]
            law[i - 1] = forward[i - 1] * back
        return law, met, evenly, even
