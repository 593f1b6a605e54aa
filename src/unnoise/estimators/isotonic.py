"""The unbiased cumulative curve, projected onto curves that a profile can have.

S(t) = share of cells with count ≥ t. The unbiased estimate Ŝ(t) is the tail sum of ``linear``'s signed profile;
a true S starts at S(0) = 1, never rises and stays in [0, 1]. The least-squares projection onto such curves is
isotonic regression by pool-adjacent-violators [1]_ followed by clipping to [0, 1]; its steps are the profile.

Ŝ is constant between points of ``linear``'s sparse support, and a run of equal values acts in the projection as
one value weighted by its length, so the cost follows the occupied values. Beyond the last point Ŝ = 0 for ever,
which clipping at 0 takes into account. The idea, on unfolded counts, is that of [2]_.

.. [1] R. E. Barlow et al., "Statistical Inference under Order Restrictions", 1972.
.. [2] B. Ghazi, P. Kamath, R. Kumar, P. Manurangsi, "Anonymized Histograms in Intermediate Privacy Models",
   NeurIPS 2022.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import isotonic_regression

from ..noisy import NoisyProfile
from ._fit import Fit
from ._input import check_input
from .linear import linear

__all__ = ["isotonic"]


def isotonic(noisy: NoisyProfile, *, max_count: int | None = None) -> Fit:
    """Project the unbiased cumulative curve and return its steps, a true profile.

    Parameters
    ----------
    noisy : NoisyProfile
        Noise of power ≥ 1.
    max_count : int, optional
        A bound that truly holds for every count; no mass is put above it.

    Examples
    --------
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
    fit = isotonic_regression(curve, weights=run, increasing=False)
    projected = np.clip(fit.x, 0.0, 1.0)
    projected[0] = 1.0
    step = projected - np.append(projected[1:], 0.0)
    kept_mass = step > 0
    return Fit(
        support[kept_mass],
        step[kept_mass],
        "isotonic",
        {**signed.diagnostics, "points": int(support.size), "blocks": int(fit.blocks.size - 1)},
    )
