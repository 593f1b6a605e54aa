"""The unbiased cumulative curve, projected onto curves that a profile can have.

S(t) = share of cells with count ≥ t. The unbiased estimate Ŝ(t) is the tail sum of ``linear``'s signed profile;
a true S starts at S(0) = 1, never rises and stays in [0, 1]. The least-squares projection onto such curves is
isotonic regression by pool-adjacent-violators [1]_ followed by clipping to [0, 1]; its steps are the profile.

Ŝ is constant between points of ``linear``'s sparse support, and a run of equal values acts in the projection as
one value weighted by its length, so the cost follows the occupied values. Beyond the last point Ŝ = 0 for ever,
which clipping at 0 takes into account. The idea, on unfolded counts, is that of [2]_.

**ρ > 1.** Clipping moves Σ t·f, and the more the noisier the curve (at ρ = 3, ε = 0.5 by 40 standard errors of the
plain sum). There the projection keeps the unbiased total T̂ as well, taking what it must from where the curve is least
certain: it is the projection of Ŝ(t) − μ·v(t), with v(t) the number of cells within a standard deviation of the noise
of t, which the variance of Ŝ(t) is proportional to, and μ such that the steps have the total max(T̂, 0).

.. [1] R. E. Barlow et al., "Statistical Inference under Order Restrictions", 1972.
.. [2] B. Ghazi, P. Kamath, R. Kumar, P. Manurangsi, "Anonymized Histograms in Intermediate Privacy Models",
   NeurIPS 2022.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq, isotonic_regression

from ..arrays import Floats
from ..noisy import NoisyProfile, cells_between
from .linear import functional, linear
from .methods import Fit, check_input

__all__ = ["isotonic"]

FARTHEST = 1e200
"""Largest shift of the curve tried in search of its total."""


def isotonic(noisy: NoisyProfile, *, max_count: int | None = None) -> Fit:
    """Project the unbiased cumulative curve and return its steps, a true profile; no mass is put above ``max_count``.

    >>> fit = isotonic(NoisyProfile.from_counts([1, 1, 2, 0, 1, 10**12], epsilon=1))
    >>> bool(fit.mass.min() > 0), round(float(fit.mass.sum()), 12), int(fit.support[-1])
    (True, 1.0, 1000000000000)
    """
    bound = check_input(noisy, max_count)
    signed = linear(noisy, max_count=bound)
    support, mass = signed.support, signed.mass
    curve = np.cumsum(mass[::-1])[::-1]
    if bound is not None and support[-1] > bound:
        # Everything is at most the bound: the curve above it is 0 and is left out of the projection.
        kept = int(np.searchsorted(support, bound, side="right"))
        above = curve[kept]
        support, curve = support[:kept], curve[:kept]
        if kept == 0 or support[-1] < bound:
            support, curve = np.append(support, bound), np.append(curve, above)
    run = np.diff(support, prepend=0).astype(float)
    run[0] += 1
    if noisy.noise.power == 1:
        projected, blocks = _projected(curve, run)
    else:
        total = max(functional(noisy, lambda t: t, max_count=bound)[0], 0.0) / noisy.cells
        # far outside [0, 1] the curve says nothing, and the shift would drown in its digits
        near, before = round(noisy.noise.variance**0.5), np.append(0, np.cumsum(noisy.tally))
        unsure = (cells_between(noisy.values, before, support - near, support + near) + 1) / noisy.cells
        projected, blocks = _with_total(np.clip(curve, -1.0, 2.0), run, np.asarray(unsure), total)
    step = projected - np.append(projected[1:], 0.0)
    notes = {**signed.diagnostics, "points": int(support.size), "blocks": blocks}
    return Fit(support[step > 0], step[step > 0], "isotonic", notes)


def _projected(curve: Floats, run: Floats) -> tuple[Floats, int]:
    """The nearest curve that starts at 1, falls, and stays between 0 and 1; in how many blocks."""
    fit = isotonic_regression(curve, weights=run, increasing=False)
    projected = np.clip(fit.x, 0.0, 1.0)
    projected[0] = 1.0
    return projected, int(fit.blocks.size - 1)


def _with_total(curve: Floats, run: Floats, unsure: Floats, total: float) -> tuple[Floats, int]:
    """The projection of curve − μ·unsure whose steps have this total per cell; the nearest there is if none has."""

    def excess(mu: float) -> float:
        return float(run @ _projected(curve - mu * unsure, run)[0]) - 1 - total

    over = excess(0.0)
    far = np.copysign(1.0, over)
    while excess(far) * over > 0 and abs(far) < FARTHEST:
        far *= 4
    mu = far if excess(far) * over > 0 else brentq(excess, 0.0, far, xtol=1e-300, rtol=1e-12)
    return _projected(curve - mu * unsure, run)
