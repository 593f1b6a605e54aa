"""The mode of a posterior on θ = log f, and the evidence of the model.

For cells seen through a channel (:mod:`.channel`) and a prior walk with precision P on θ, the logarithm of the mass
per count, maximise log likelihood(θ) + log prior(θ) by Newton's method with the expected information and the positive
part of what it leaves out. At the mode θ̂ Laplace's approximation of the log evidence is [1]_

    log likelihood(θ̂) + log prior(θ̂) − ½·log det A,

where (2π)^(N/2) has cancelled with the prior's. A short last step is taken on trust: half of Newton's decrement is what
it gains. A search that stops short of the tolerance says so.

.. [1] L. Tierney, J. B. Kadane, "Accurate approximations for posterior moments and marginal densities", JASA 81, 1986.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError

from ..arrays import Floats
from .channel import S, Seeing
from .walk import Walk

__all__ = ["MATTERS", "Mode", "find_mode"]


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
