"""Random-walk priors on the logarithm of a profile, and the mode of a posterior under one, with its evidence.

θ = log f at the counts of a run is a random walk of order r in a coordinate x(t): the r-th divided difference of θ is
Gaussian white noise in x with precision λ, Σ λ·(d^r θ/dx^r)²·Δx [1]_. Large λ leads to a polynomial of degree r − 1 in
x: with x = t geometric laws (r = 2) and discretised normal laws (r = 3), with x = log(1 + t) power laws and log-normal
laws. A walk starts from vague values, so that the prior is proper and models can be compared: θ at the first count has
standard deviation 10, its first differences 3 apiece (``JUMP``).

With a ``period`` p the step is θ[i] − θ[i−1] − θ[i−p] + θ[i−p−1], which large λ makes geometric laws times a pattern of
period p, and smaller λ lets both change slowly (the seasonal model of [2]_).

With a ``base`` θ − base is the walk: on base = −log t! large λ leads to Poisson laws (x = t, r = 2).

A *free* step is given that standard deviation of 3 in place of λ: a spike or an edge of the profile. ``rise`` lets
the precision grow along the counts, for profiles rough at small counts and smooth beyond.

D, with one row per count holding θ[i−r…i], is square and lower triangular, so log det(DᵀWD) = Σ log w + 2·Σ log|D_ii|.

**The mode.** For cells seen through a channel (:mod:`.channel`) and a walk with precision P on θ, the logarithm of the
mass per count, maximise log likelihood(θ) + log prior(θ) by Newton's method with the expected information and the
positive part of what it leaves out. At the mode θ̂ Laplace's approximation of the log evidence is [3]_

    log likelihood(θ̂) + log prior(θ̂) − ½·log det A,

where (2π)^(N/2) has cancelled with the prior's. A short last step is taken on trust: half of Newton's decrement is what
it gains. A search that stops short of the tolerance says so.

.. [1] H. Rue, L. Held, "Gaussian Markov Random Fields", 2005, chapter 3.
.. [2] G. E. P. Box, G. M. Jenkins, "Time series analysis", 1970, chapter 9.
.. [3] L. Tierney, J. B. Kadane, "Accurate approximations for posterior moments and marginal densities", JASA 81, 1986.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError

from ..arrays import Floats, Int64
from .channel import S, Seeing

__all__ = ["JUMP", "LEVEL", "MATTERS", "STIFFEST", "Mode", "Walk", "find_mode"]

LEVEL = 10.0
"""Standard deviation of θ at the start of a run."""

JUMP = 3.0
"""Standard deviation of a free change of θ: factors of e³ = 20 up or down are ordinary."""

STIFFEST = 1e10
"""Largest precision of a row in θ: beyond, rounding would rule."""

STARTS = ((1.0,), (-1.0, 1.0), (1.0, -2.0, 1.0))


class Walk:
    """The prior of order ``order`` in the coordinate ``x`` over runs whose counts have ``position`` 0, 1, … in them.

    ``base`` is what θ is a walk around; ``level`` the mean of θ at the start of a run: that of even shares of 1, unless
    given.
    """

    def __init__(
        self,
        x: Floats,
        position: Int64,
        order: int,
        rise: Floats | float = 1.0,
        base: Floats | None = None,
        level: float | None = None,
        period: int = 0,
    ) -> None:
        order = period + 1 if period else order
        self.order, self.size, self.rise = order, x.size, rise
        self.rows = _seasonal(x.size, period) if period else _differences(x, position, order)
        self.fixed = np.zeros(self.size)
        self.offset = np.zeros(self.size)
        for j in range(order):
            at = np.flatnonzero(position == j)
            self.rows[:, at] = 0.0
            start = STARTS[min(j, 1) if period else j]
            self.rows[order + 1 - len(start) :, at] = np.array(start)[:, None]
            self.fixed[at] = 1 / LEVEL**2 if j == 0 else 1 / (JUMP**2 * sum(c * c for c in start))
        if base is not None:
            self.offset = self.differences(base)
        self.offset[position == 0] = -np.log(self.size) if level is None else level
        self.steps = self.fixed == 0
        self.spread = np.square(self.rows).sum(axis=0)
        self.log_det = float(np.log(np.abs(self.rows[order])).sum())
        self.free = np.zeros(self.size, dtype=bool)

    def headed(self, head: int) -> Walk:
        """The same walk with the first steps free."""
        return self.freed(np.arange(self.order, min(self.order + head, self.size)))

    def freed(self, steps: Int64) -> Walk:
        """The same walk with just these steps free."""
        walk = copy(self)
        walk.free = np.zeros(self.size, dtype=bool)
        walk.free[steps] = self.steps[steps]
        return walk

    def precision(self, strength: float) -> Floats:
        """Precision of every row for λ = strength."""
        w = np.minimum(strength * self.rise, STIFFEST / self.spread)
        loose = self.free & self.steps
        w[loose] = np.minimum(w[loose], 1 / (JUMP**2 * self.spread[loose]))
        return np.where(self.steps, w, self.fixed)

    def differences(self, theta: Floats) -> Floats:
        """D θ, less the start's mean."""
        out = self.rows[self.order] * theta
        for j in range(self.order):
            lag = self.order - j
            out[lag:] += self.rows[j, lag:] * theta[:-lag]
        return np.asarray(out - self.offset)

    def transpose(self, r: Floats) -> Floats:
        """Dᵀ r."""
        out = self.rows[self.order] * r
        for j in range(self.order):
            lag = self.order - j
            out[:-lag] += (self.rows[j] * r)[lag:]
        return np.asarray(out)

    def bands(self, precision: Floats) -> list[Floats]:
        """Superdiagonals of Dᵀ·W·D, each as long as θ."""
        out = [np.zeros(self.size) for _ in range(self.order + 1)]
        for p in range(self.order + 1):
            for q in range(p, self.order + 1):
                product = precision * self.rows[p] * self.rows[q]
                out[q - p][: self.size - self.order + p] += product[self.order - p :]
        return out

    def log_peak(self, precision: Floats) -> float:
        """Log density where D θ is the start's mean, without the factor (2π)^(−N/2)."""
        return float(0.5 * np.log(precision).sum() + self.log_det)


def _differences(x: Floats, position: Int64, order: int) -> Floats:
    """Rows of the r-th derivative times √Δx: row i, column j is the coefficient of θ[i−r+j]."""
    gap = np.ones(x.size)
    gap[1:] = np.diff(x)
    gap[position == 0] = 1.0
    before = np.ones(x.size)
    before[1:] = gap[:-1]
    width = (gap + before) / 2
    second = np.array([1 / before / width, -(1 / before + 1 / gap) / width, 1 / gap / width])
    if order == 2:
        return np.asarray(second * np.sqrt(width))
    rows = np.zeros((4, x.size))
    rows[1:] += second
    rows[:3, 1:] -= second[:, :-1]
    return np.asarray(rows / np.sqrt(before))


def _seasonal(size: int, period: int) -> Floats:
    """Rows of the difference between neighbours, less that one period before."""
    rows = np.zeros((period + 2, size))
    rows[[0, -1]] += 1.0
    rows[[1, -2]] -= 1.0
    return rows


# ── the mode ────────────────────────────────────────────────────────────────────────────────────────────────────────

TOLERANCE = 1e-3
"""Newton decrement, in nats over all cells, at which a search ends."""

SHORTLY, SHORT = 0.03, 0.05
"""It ends sooner, at a decrement of 0.03, if that is a tenth of the last and no θ changes by more than 0.05 in the last
step: A hardly changes then. Where few cells are left to tell, Newton's method creeps, and the end is not so near."""

LONGEST = 8.0
"""Largest change in one step of any θ that matters, before it or after."""

MATTERS = -25.0
"""θ below this is mass that no cells would tell from none (e^−25 = 1e-11): how far it falls is of no account."""

HIGHEST = 60.0
"""θ stays below this, so that e^θ is not beyond bounds."""


@dataclass(frozen=True, eq=False)
class Mode:
    """Where a search ended: θ, log likelihood and evidence there, Newton systems, and how: converged, given up."""

    theta: Floats
    value: float
    log_evidence: float
    iterations: int
    converged: bool
    hopeless: bool = False


def find_mode(
    channel: Seeing[S],
    walk: Walk,
    precision: Floats,
    start: Floats,
    *,
    wanted: float = -np.inf,
    max_iterations: int = 60,
) -> Mode:
    """Return the mode of θ under the walk with the given precisions, starting from ``start``.

    The search is given up as hopeless where even twice the gain expected of a full step would leave the log evidence
    below what is ``wanted``.
    """
    held, widths = channel.hold(walk.bands(precision)), channel.widths
    peak = walk.log_peak(precision)
    theta, state, r = start, channel.at(widths * np.exp(start)), walk.differences(start)
    now = state.value + peak - 0.5 * float(precision @ (r * r))
    evidence, before = -np.inf, np.inf
    for iteration in range(1, max_iterations + 1):
        slope = channel.exposure * state.mass * (1 - channel.pull(state))
        gradient = slope + walk.transpose(precision * r)
        try:
            step, log_det = channel.newton(held, np.maximum(slope, 0), state, gradient)
        except LinAlgError:
            return Mode(theta, state.value, -np.inf, iteration, False)
        decrement = -float(gradient @ step)
        if not np.isfinite(decrement):
            return Mode(theta, state.value, -np.inf, iteration, False)
        evidence = now - 0.5 * log_det
        longest = float(np.abs(step).max())
        soon = decrement < min(SHORTLY, 0.1 * before) and longest < SHORT
        before = decrement
        if decrement < TOLERANCE or soon:
            last = theta + step if longest < SHORT else theta
            return Mode(last, state.value, evidence + 0.5 * decrement, iteration, decrement > -TOLERANCE)
        matters = np.maximum(theta, theta + step) > MATTERS
        length = min(1.0, LONGEST / float(np.abs(step[matters]).max(initial=LONGEST)))
        if length == 1 and evidence + decrement < wanted:
            return Mode(theta, state.value, evidence + decrement, iteration, False, hopeless=True)
        for _ in range(6):
            trial = np.minimum(theta + length * step, HIGHEST)
            seen, trial_r = channel.at(widths * np.exp(trial)), walk.differences(trial)
            then = seen.value + peak - 0.5 * float(precision @ (trial_r * trial_r))
            if then > now:
                break
            length /= 4
        else:
            return Mode(theta, state.value, evidence, iteration, decrement < 50 * TOLERANCE)
        gain = then - now
        theta, state, r, now = trial, seen, trial_r, then
        if gain < 0.1 * TOLERANCE:
            return Mode(theta, state.value, evidence, iteration, True)
    return Mode(theta, state.value, evidence, max_iterations, False)
