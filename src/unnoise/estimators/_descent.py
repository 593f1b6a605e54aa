"""A whole sequence that never rises, seen through discrete Laplace noise: the median of what it may be.

x_1 ≥ x_2 ≥ … ≥ x_n ≥ floor are whole numbers, y_i = x_i + Z_i. The steps x_{i−1} − x_i are drawn from a law of their
own in every octave of i: 0, or geometric with a mean of 1, 4, 16, …, with weights that are learnt from y by expectation
and maximisation. So a stretch without steps, one of rare small steps and one of many large steps are each seen as what
they are, and a jump anywhere remains possible. Given the weights this is a hidden Markov chain: forward and backward
sums (L. Baum et al., Ann. Math. Statist. 1970) give the law of every x_i exactly, in a window about the nearest falling
sequence, beyond which the noise lies with probability e^−10. The medians of these laws fall, as the x_i do, and have
the least expected absolute error. For strong noise x is taken in steps of an eighth of its standard deviation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from ..arrays import Floats, Int64
from ..noise import DiscreteLaplace

__all__ = ["descent"]

REACH = 10.0
"""Half of the window, in units of 1/ε."""

ROUNDS = 5
"""Rounds of expectation and maximisation."""

PRIOR = 0.1
"""Steps that every octave is thought to have seen beforehand, spread over all means."""

FINE = 8
"""Points to a standard deviation of the noise."""

GROWTH = 4.0
"""Ratio of neighbouring means."""


def descent(noisy: Floats, noise: DiscreteLaplace, floor: int) -> Floats:
    """Return the medians of x_i ≥ ``floor`` given noisy whole numbers.

    >>> descent(np.array([103.0, 99.0, 101.0, 100.0, 98.0, 102.0, 4.0, -2.0, 1.0]), DiscreteLaplace(1), 0).tolist()
    [102.0, 101.0, 101.0, 100.0, 100.0, 100.0, 3.0, 1.0, 1.0]
    """
    if noisy.size == 0:
        return noisy
    unit = max(1, round(noise.variance**0.5 / FINE))
    near = np.maximum(isotonic_regression(noisy, increasing=False).x - floor, 0)
    half = int(np.ceil(REACH / float(noise.epsilon) / unit)) + 2
    low = np.maximum(np.rint(near / unit).astype(np.int64) - half, 0)
    chain = _Chain(low, 2 * half + 1, _likelihood((noisy - floor) / unit, low, 2 * half + 1, unit * noise.epsilon))
    weights = np.full((int(chain.octave.max(initial=0)) + 1, chain.laws.shape[1]), 1 / chain.laws.shape[1])
    for _ in range(ROUNDS):
        law, steps = chain.smoothed(weights)
        weights = steps + PRIOR / steps.shape[1]
        weights /= weights.sum(axis=1, keepdims=True)
    median = low + np.argmax(np.cumsum(law, axis=1) >= 0.5, axis=1)
    return np.asarray(floor + unit * np.minimum.accumulate(median), dtype=float)


def _likelihood(noisy: Floats, low: Int64, size: int, epsilon: float) -> Floats:
    """e^(−ε|y − x|) at every point of the windows, scaled to 1 at the largest."""
    away = np.abs(noisy[:, None] - (low[:, None] + np.arange(size)))
    return np.asarray(np.exp(-float(epsilon) * (away - away.min(axis=1, keepdims=True))))


@dataclass(frozen=True, eq=False)
class _Chain:
    """Windows of ``size`` states that begin at ``low``, and how likely each state makes what was seen."""

    low: Int64
    size: int
    likely: Floats

    @cached_property
    def octave(self) -> NDArray[np.intp]:
        """To which octave every step belongs."""
        return np.log2(np.arange(2, max(self.low.size, 2) + 1)).astype(np.intp)[: self.low.size - 1]

    @cached_property
    def laws(self) -> Floats:
        """Chance of a step from one state to another under each law, by their distance: steps × laws × (2·size − 1)."""
        shift = (self.low[:-1] - self.low[1:])[:, None] + np.arange(1 - self.size, self.size)
        longest = int(self.low[0]) + self.size
        means = GROWTH ** np.arange(1, 1 + np.ceil(np.log(max(longest, 2)) / np.log(GROWTH)))
        beyond = [np.where(shift >= 1, np.exp(np.maximum(shift - 1, 0) * np.log1p(-1 / m)) / m, 0.0) for m in means]
        return np.stack([(shift == 0).astype(float), (shift == 1).astype(float), *beyond], axis=1)

    def smoothed(self, weights: Floats) -> tuple[Floats, Floats]:
        """Return the law of every state, and the expected number of steps of each octave under each law."""
        count, size = self.likely.shape
        kernels = np.einsum("sl,slk->sk", weights[self.octave], self.laws)
        forward, scale = np.empty_like(self.likely), np.empty(count)
        state = self.likely[0]
        for i in range(count):
            if i:
                state = np.correlate(kernels[i - 1], forward[i - 1], "valid")[::-1] * self.likely[i]
            scale[i] = state.sum()
            forward[i] = state / scale[i]
        law, met = np.empty_like(self.likely), np.empty((max(count - 1, 0), 2 * size - 1))
        law[-1], back = forward[-1], np.ones(size)
        for i in range(count - 1, 0, -1):
            ahead = self.likely[i] * back / scale[i]
            met[i - 1] = np.correlate(forward[i - 1], ahead, "full")
            back = np.convolve(kernels[i - 1], ahead, "valid")
            law[i - 1] = forward[i - 1] * back
        steps = np.zeros_like(weights)
        np.add.at(steps, self.octave, weights[self.octave] * np.einsum("slk,sk->sl", self.laws, met))
        return law / law.sum(axis=1, keepdims=True), steps
