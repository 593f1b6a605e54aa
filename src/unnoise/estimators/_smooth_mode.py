"""The mode of a posterior on θ = log f, and the evidence of the model.

For cells y (shares of d cells) seen through the channel K and a prior walk with precision P on θ, maximise

    d·(Σ y·log m − Σ f) + log prior(θ),    m = K f, f = e^θ,

(the total is Poisson, so Σf = 1 need not be imposed) by Newton's method with the expected information and the positive
part of what it leaves out. At the mode θ̂ Laplace's approximation of the log evidence is [1]_

    d·(Σ y·log m − Σ f) + log prior(θ̂) − ½·log det A,

where (2π)^(N/2) has cancelled with the prior's. A search that stops short of the tolerance says so.

.. [1] L. Tierney, J. B. Kadane, "Accurate approximations for posterior moments and marginal densities", JASA 81, 1986.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError

from ._smooth_channel import BodyChannel
from ._smooth_walk import Walk

__all__ = ["Mode", "find_mode"]

Floats = NDArray[np.float64]

TOLERANCE = 1e-3
"""Newton decrement, in nats over all cells, at which a search ends."""

LONGEST = 8.0
"""Largest change of any θ in one step."""

LOWEST = -600.0
"""θ stays above this, so that e^θ is not 0."""


@dataclass(frozen=True, eq=False)
class Mode:
    """Where a search ended: θ, the log evidence there, the Newton systems solved and whether it converged."""

    theta: Floats
    log_evidence: float
    iterations: int
    converged: bool


def find_mode(
    channel: BodyChannel,
    y: Floats,
    cells: float,
    walk: Walk,
    precision: Floats,
    start: Floats,
    max_iterations: int = 60,
) -> Mode:
    """Return the mode of θ under the walk with the given precisions, starting from ``start``."""
    bands = walk.bands(precision)
    occupied = y > 0
    counts = y[occupied]

    def value(theta: Floats, f: Floats, m: Floats) -> float:
        return cells * float(counts @ np.log(m[occupied]) - f.sum()) + walk.log_density(theta, precision)

    theta = start
    f = np.exp(theta)
    m = channel.forward(f)
    now = value(theta, f, m)
    evidence = -np.inf
    for iteration in range(1, max_iterations + 1):
        slope = cells * f * (1 - channel.backward(y / m))
        gradient = slope + walk.transpose(precision * walk.differences(theta))
        curved = [bands[0] + np.maximum(slope, 0), *bands[1:]]
        try:
            step, log_det = channel.newton(curved, f, m, gradient, cells)
        except LinAlgError:
            return Mode(theta, -np.inf, iteration, False)
        decrement = -float(gradient @ step)
        if not np.isfinite(decrement):
            return Mode(theta, -np.inf, iteration, False)
        evidence = now - 0.5 * log_det
        if decrement < TOLERANCE:
            return Mode(theta, evidence, iteration, decrement > -TOLERANCE)
        length = min(1.0, LONGEST / float(np.abs(step).max()))
        for _ in range(6):
            trial = np.clip(theta + length * step, LOWEST, 5.0)
            trial_f = np.exp(trial)
            trial_m = channel.forward(trial_f)
            then = value(trial, trial_f, trial_m)
            if then > now:
                break
            length /= 4
        else:
            return Mode(theta, evidence, iteration, decrement < 50 * TOLERANCE)
        gain = then - now
        theta, f, m, now = trial, trial_f, trial_m, then
        if gain < 0.1 * TOLERANCE:
            return Mode(theta, evidence, iteration, True)
    return Mode(theta, evidence, max_iterations, False)
