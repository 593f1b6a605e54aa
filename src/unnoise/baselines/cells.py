"""Baselines that see one noisy count for every item of a known domain, and nothing else.

Noise of parameter ε on every cell protects one occurrence; it can be there before the first item (pan-private), and
cells of several sites can be added. What differs is what is made of them.
"""

from __future__ import annotations

import numpy as np

from ..arrays import Int64
from ..estimators._fit import Fit
from ..estimators.isotonic import isotonic
from ..estimators.lp import lp as linear_program
from ..noise import Exact
from ..noisy import NoisyProfile
from ._mechanism import Released, from_values, noise

__all__ = ["ghazi", "lp", "naive"]


def naive(counts: Int64, epsilon: Exact) -> Released:
    """Clamp the noisy counts at 0 and count them: what people do. Every empty cell seems full with odds a/(1 + a)."""
    return from_values(np.maximum(counts + noise(counts.size, epsilon), 0))


def _as_items(fit: Fit, cells: int) -> Released:
    some = fit.support > 0
    return Released(fit.support[some], fit.mass[some] * cells)


def ghazi(counts: Int64, epsilon: Exact) -> Released:
    """Ghazi et al. 2022: the unbiased cumulative curve of the noisy counts, projected onto falling curves."""
    noisy = NoisyProfile.from_counts(counts + noise(counts.size, epsilon), epsilon=epsilon)
    return _as_items(isotonic(noisy), counts.size)


def lp(counts: Int64, epsilon: Exact) -> Released:
    """Dwork et al. 2010: the profile whose noised version is nearest in ℓ∞, by linear programming."""
    noisy = NoisyProfile.from_counts(counts + noise(counts.size, epsilon), epsilon=epsilon)
    return _as_items(linear_program(noisy, norm=np.inf), counts.size)
