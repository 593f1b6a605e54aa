"""Baselines of a trusted holder: noise on bins of the profile, on sorted counts, or on both ends of the curve.

Sorted counts x₁ ≥ x₂ ≥ … and the curve S(t) = #{x ≥ t} are the two sides of one Young diagram: one occurrence more adds
one box, so either has sensitivity 1, and so has the curve up to τ together with what of the sorted counts lies above τ.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import isotonic_regression

from ..arrays import Floats, Int64
from ..noise import Exact, exact_positive
from ._mechanism import Released, from_curve, from_values, noise, public_bound

__all__ = ["bins", "hay", "manurangsi", "suresh", "thresholded"]


def _curve(counts: Int64, top: int) -> Int64:
    """S(1), …, S(top)."""
    reached = np.bincount(np.minimum(counts, top), minlength=top + 1)
    return np.asarray(np.cumsum(reached[::-1])[::-1][1:])


def _falling(values: Floats) -> Floats:
    if values.size == 0:
        return values
    return np.asarray(np.clip(isotonic_regression(values, increasing=False).x, 0, None))


def bins(counts: Int64, epsilon: Exact) -> Released:
    """Noise on every bin of the profile up to a public bound; one occurrence leaves one bin and enters another."""
    top = public_bound(counts)
    profile = np.bincount(counts[counts > 0], minlength=top + 1)[1:]
    noisy = np.maximum(profile + noise(top, epsilon, 2), 0)
    at = np.flatnonzero(noisy)
    return Released(at + 1, noisy[at].astype(float))


def thresholded(counts: Int64, epsilon: Exact, delta: float = 1e-9) -> Released:
    """The same with bins below a threshold suppressed: ln(1/2δ)·2/ε above nothing, so that no bin appears by noise."""
    found = bins(counts, epsilon)
    least = math.log(1 / (2 * delta)) * 2 / float(exact_positive("epsilon", epsilon))
    kept = found.items >= least
    return Released(found.support[kept], found.items[kept])


def hay(counts: Int64, epsilon: Exact) -> Released:
    """Hay et al. 2009, 2010: noise on the sorted counts, then isotonic regression; the number of items is public."""
    ordered = np.sort(counts)[::-1]
    return from_values(_falling((ordered + noise(ordered.size, epsilon)).astype(float)))


def _two_ends(counts: Int64, epsilon: Exact, changes: int) -> Released:
    """Noise on S up to τ and on the sorted counts above τ; ``changes`` is 1 for both at once, 2 for ε split evenly."""
    total = int(counts.sum())
    split = max(1, math.ceil(math.sqrt(total / float(exact_positive("epsilon", epsilon)))))
    small = _falling((_curve(counts, split) + noise(split, epsilon, changes)).astype(float))
    places = min(counts.size, total // split + 1)
    above = np.sort(np.maximum(counts - split, 0))[::-1][:places]
    large = _falling((above + noise(places, epsilon, changes)).astype(float))
    giants = large[large >= 0.5]
    body = from_curve(small)
    if not giants.size or small[-1] <= 0:
        return body
    kept = min(giants.size, max(1, round(small[-1])))
    head = from_values(split + giants[:kept])
    at = body.support < split
    rest = max(float(small[-1]) - kept, 0.0)
    support, where = np.unique(np.concatenate([body.support[at], [split], head.support]), return_inverse=True)
    items = np.bincount(where, weights=np.concatenate([body.items[at], [rest], head.items]))
    return Released(support[items > 0], items[items > 0].astype(float))


def suresh(counts: Int64, epsilon: Exact) -> Released:
    """Suresh 2019: prevalences of small counts and sorted large counts, half of ε for each."""
    return _two_ends(counts, epsilon, 2)


def manurangsi(counts: Int64, epsilon: Exact) -> Released:
    """Manurangsi 2022: the same two ends, but as one vector of sensitivity 1, at the whole ε."""
    return _two_ends(counts, epsilon, 1)
