"""Blocki, Datta, Bonneau 2016: the exponential mechanism over integer partitions.

A partition y is drawn with probability ∝ e^(−ε·‖x − y‖₁/2). Sorted counts and the curve S are the two sides of one
Young diagram, so ‖x − y‖₁ = Σ_t |S_x(t) − S_y(t)|, and falling curves with these weights are a chain: with w_t(v) =
e^(−ε|S(t) − v|/2) and messages m_t(v) = w_t(v)·Σ_{u ≤ v} m_{t+1}(u), one pass backwards and one forwards sample it
exactly, within a band |v − S(t)| ≤ B (δ in the paper's sense) and up to a public bound on t. Floating point: for
comparison, not for release.
"""

from __future__ import annotations

import math

import numpy as np

from .._sampler import open_stream
from ..arrays import Floats, Int64
from ..noise import Exact, exact_positive
from ._mechanism import Released, from_curve, public_bound

__all__ = ["blocki"]

BAND = 48.0
"""Half-width of the band in units of 1/ε: e^(−24) is left outside."""


def blocki(counts: Int64, epsilon: Exact) -> Released:
    """Draw a partition by the exponential mechanism."""
    scale = float(exact_positive("epsilon", epsilon)) / 2
    top = public_bound(counts)
    reached = np.bincount(np.minimum(counts, top), minlength=top + 1)
    curve = np.cumsum(reached[::-1])[::-1][1:].astype(np.int64)
    half = math.ceil(BAND / (2 * scale))
    return from_curve(_draw(curve, half, scale))


def _draw(curve: Int64, half: int, scale: float) -> Int64:
    """Sample a falling curve within ``half`` of this one."""
    offsets = np.arange(-half, half + 1)
    weight = np.exp(-scale * np.abs(offsets))
    sums = np.empty((curve.size, offsets.size))
    below: Floats = np.ones(offsets.size)  # past the end there is one curve: 0
    for t in range(curve.size - 1, -1, -1):
        message = np.where(curve[t] + offsets >= 0, weight * below, 0.0)
        sums[t] = np.cumsum(message / message.sum())
        if t:
            at = np.clip(curve[t - 1] + offsets - curve[t] + half, -1, offsets.size - 1)
            below = np.where(at >= 0, sums[t][np.maximum(at, 0)], 0.0)
    uniform = open_stream().words(curve.size) / 2.0**64
    drawn = np.empty(curve.size, dtype=np.int64)
    limit = offsets.size - 1
    for t in range(curve.size):
        if t:
            limit = min(int(drawn[t - 1] - curve[t]) + half, offsets.size - 1)
        index = int(np.searchsorted(sums[t][: limit + 1], uniform[t] * sums[t][limit], side="right"))
        drawn[t] = curve[t] + offsets[min(index, limit)]
    return drawn
