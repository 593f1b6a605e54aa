"""Exact optima by banded interior points: maximum likelihood, and the paper's problem P2.

``likelihood`` is the profile f that makes the noisy profile y most likely: maximise Σ y[v]·log m[v] with m = K f over
f ≥ 0, Σf = 1. For power 1 it lives on the occupied folded values (:mod:`._operators`), where the channel's inverse is
tridiagonal; for integer powers above 1 on all counts within reach of them. The interior point and its certificate are
in :mod:`._ipm`.

``exact`` is the optimum of problem P2 of [1]_, minimise ‖K f − y‖_p over the same f, p = 1, 2 or ∞, with the kernel
neither truncated nor wrapped around, which the paper's Algorithms 2 and 3 approximate (:mod:`._leastnorm`).

Fractional ρ > 1 has no banded inverse. There y is first completed to the power ⌈ρ⌉ by the mean effect of the missing
noise (``diagnostics["completed_power"]``): the estimating equations stay unbiased, but the optimum is that of the
completed problem, and a little less sharp.

.. [1] H. Wu, R. Pagh, "Profile Reconstruction from Private Sketches", ICML 2024.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .._circulant import as_norm
from ..arrays import Floats, Int64
from ..errors import ConvergenceError, InputError
from ..noise import DiscreteLaplace
from ..noisy import NoisyProfile, combine
from ._ipm import Optimum, maximise
from ._leastnorm import LeastNorm, least_norm
from ._operators import NEGLIGIBLE, Chain, Comb, Line, Operator, Stretch, clip_rows, stretches_of
from .linear import smoothed_tally
from .methods import Fit, check_input

__all__ = ["exact", "likelihood"]


ACCEPTED = 1e-6
"""A gap above the tolerance but below this is returned and reported; above it is an error."""

DUST = 1e-15
"""Shares of cells below this come from the completion's far tail and are dropped."""

WHOLE = 200_000
"""Up to this largest count ``exact`` gives mass to every count from 0; beyond, near occupied values."""


def likelihood(
    noisy: NoisyProfile,
    *,
    max_count: int | None = None,
    tolerance: float = 1e-9,
    max_iterations: int = 100,
) -> Fit:
    """The maximum-likelihood profile, certified.

    Parameters
    ----------
    noisy : NoisyProfile
        Noise of power ≥ 1.
    max_count : int, optional
        A bound that truly holds for every count; no mass is put above it.
    tolerance : float
        Wanted bound of the gap to the optimal log-likelihood per cell.
    max_iterations : int
        Newton systems at most, about 20 are usual.

    Returns
    -------
    Fit
        ``diagnostics`` holds the certified ``gap``, ``converged`` (gap ≤ tolerance), ``iterations``,
        ``log_likelihood`` per cell, the number of ``points`` and the ``form`` of Newton's system.

    Raises
    ------
    ConvergenceError
        Where the certified gap stays above 1e-6.

    Examples
    --------
    >>> fit = likelihood(NoisyProfile.from_counts([1, 1, 2, 0, 1, 1, 10**12], epsilon=1))
    >>> fit.support.tolist(), fit.mass.round(6).tolist()
    ([1, 1000000000000], [0.857143, 0.142857])
    """
    bound = check_input(noisy, max_count)
    if not 0 < tolerance < 1:
        raise InputError(f"tolerance must be between 0 and 1, got {tolerance!r}")
    points, y, channel, constant = _problem(noisy, bound)
    best = maximise(y, channel, tolerance=tolerance, max_iterations=max_iterations)
    if not best.gap <= ACCEPTED:
        raise ConvergenceError(
            f"likelihood must come within {tolerance:g} of the optimum, got {best.gap:.2g} after "
            f"{best.iterations} iterations at {noisy.noise}: use method='isotonic', or more iterations"
        )
    best = _without_dust(best, y, channel, tolerance)
    keep = best.f > 0
    diagnostics: dict[str, Any] = {
        "power": str(noisy.noise.power),
        "converged": bool(best.gap <= tolerance),
        "gap": best.gap,
        "iterations": best.iterations,
        "form": best.form,
        "points": int(points.size),
        "log_likelihood": float(y[y > 0] @ (np.log(best.m[y > 0]) + constant[y > 0])),
    }
    if noisy.noise.power.denominator != 1:
        diagnostics["completed_power"] = math.ceil(noisy.noise.power)
    return Fit(points[keep], best.f[keep] / best.f.sum(), "likelihood", diagnostics)


def exact(
    noisy: NoisyProfile,
    *,
    norm: Any = 2,
    max_count: int | None = None,
    tolerance: float = 1e-7,
    max_iterations: int = 100,
) -> Fit:
    """The optimum of the paper's problem P2: minimise ‖K f − y‖_p over profiles f on 0…n, certified.

    y is the noisy profile on all integers, negative ones too, and K the untruncated channel.

    Parameters
    ----------
    noisy : NoisyProfile
        Noise of power ≥ 1.
    norm : 1, 2 or inf
        p.
    max_count : int, optional
        n; the largest noisy count (or 0) where there is none. Where n is above 200,000, f is confined to counts
        near occupied values (for power 1 the optimum lies on them unless the noisy profile leans below 0).
    tolerance : float
        Largest accepted gap between the norm reached and its minimum.
    max_iterations : int
        Newton systems at most, 10 to 50 are usual.

    Returns
    -------
    Fit
        ``diagnostics`` holds the ``norm``, its ``value``, the certified ``gap``, ``converged`` and ``iterations``.

    Raises
    ------
    ConvergenceError
        Where the certified gap stays above both the tolerance and 1e-5 of the norm.

    Examples
    --------
    >>> noisy = NoisyProfile.from_counts([1, 1, 2, 0, 1, 1, 10**12], epsilon=1)
    >>> [exact(noisy, norm=p).support.tolist() for p in (1, 2)]
    [[1, 1000000000000], [1, 1000000000000]]
    """
    bound = check_input(noisy, max_count)
    p = as_norm(norm)
    if not 0 < tolerance < 1:
        raise InputError(f"tolerance must be between 0 and 1, got {tolerance!r}")
    points, y, channel = _all_rows(noisy, bound, p)
    best = least_norm(y, channel, p, max_iterations=max_iterations)
    if best.gap > tolerance and (seen := _as_seen(y, channel, p)).gap < best.gap:
        best = seen
    if not best.gap <= max(tolerance, 1e-5 * best.value):
        raise ConvergenceError(
            f"exact must come within {tolerance:g} of the optimum, got {best.gap:.2g} after {best.iterations} "
            f"iterations at {noisy.noise}: use method='isotonic', or more iterations"
        )
    keep = best.f > _dust_level(best, y, channel, p)
    diagnostics: dict[str, Any] = {
        "power": str(noisy.noise.power),
        "norm": p,
        "value": best.value,
        "gap": best.gap,
        "converged": bool(best.gap <= tolerance),
        "iterations": best.iterations,
        "points": int(points.size),
    }
    if noisy.noise.power.denominator != 1:
        diagnostics["completed_power"] = math.ceil(noisy.noise.power)
    mass = best.f[keep]
    return Fit(points[keep], mass / mass.sum(), "exact", diagnostics)


def _as_seen(y: Floats, channel: Operator, p: float) -> LeastNorm:
    """What was seen, taken for the profile: as good as optimal where there is next to no noise, for no norm is below 0.

    There an interior point stops short, as the square of the norm has vanished before the norm has.
    """
    f = channel.transpose(y)
    f /= f.sum()
    return LeastNorm(f, np.zeros_like(f), float(np.linalg.norm(channel.apply(f) - y, p)), 0.0, 0)


def _completed(noisy: NoisyProfile, bound: int | None) -> tuple[Int64, Floats, DiscreteLaplace]:
    """Occupied rows and shares under the next integer power, and that law."""
    whole = DiscreteLaplace(noisy.noise.epsilon, math.ceil(noisy.noise.power))
    rows, shares = smoothed_tally(noisy)
    visible = shares > DUST
    rows, where = np.unique(clip_rows(rows[visible], whole, bound), return_inverse=True)
    y = np.bincount(where, weights=shares[visible]).astype(float)
    return rows, y / y.sum(), whole


def _points(stretches: list[Stretch]) -> Int64:
    return np.concatenate([np.arange(s.low, s.high + 1) for s in stretches])


def _all_rows(noisy: NoisyProfile, bound: int | None, p: float) -> tuple[Int64, Floats, Operator]:
    """Points, y on every row that matters for the norm (occupied ones, p = 1; all, p = 2 and ∞), and the channel."""
    top = max(int(noisy.values[-1]), 0) if bound is None else bound
    occupied, shares, whole = _completed(noisy, top)
    anchors = np.unique(np.clip(noisy.values, 0, top))
    if p == 1 and whole.power == 1:
        return anchors, shares, Line(anchors, occupied, whole)
    halo = 0 if p == 1 else whole.reach(NEGLIGIBLE) if p == 2 else 1
    if top <= WHOLE:
        stretches = [Stretch(0, top, occupied)]
    else:
        margin = 0 if whole.power == 1 else whole.reach(0.05)
        stretches = stretches_of(occupied, anchors, whole, top, margin=margin, halo=halo)
    if halo > 0:
        stretches = [Stretch(s.low, s.high, _widened(s, halo)) for s in stretches]
    rows = np.concatenate([s.rows for s in stretches])
    y = np.zeros(rows.size)
    y[np.searchsorted(rows, occupied)] = shares
    points = _points(stretches)
    if whole.power == 1 and len(stretches) == 1:
        return points, y, Line(points, rows, whole)
    return points, y, Comb(stretches, whole)


def _widened(s: Stretch, halo: int) -> Int64:
    """All integers up to ``halo`` beyond a stretch and its rows."""
    first, last = (int(s.rows[0]), int(s.rows[-1])) if s.rows.size else (s.low, s.high)
    return np.arange(min(first, s.low) - halo, max(last, s.high) + halo + 1)


def _dust_level(best: LeastNorm, y: Floats, channel: Operator, p: float) -> float:
    """The largest of a few levels below which masses can be dropped without moving the norm by more than the gap."""
    for level in (1e-8, 1e-9, 1e-10, 1e-11, 1e-12):
        kept = np.where(best.f > level, best.f, 0.0)
        residual = channel.apply(kept / kept.sum()) - y if kept.any() else -y
        change = np.linalg.norm(residual, p) - np.linalg.norm(channel.apply(best.f) - y, p)
        if kept.any() and change <= max(0.1 * best.gap, 1e-12):
            return level
    return 0.0


def _problem(noisy: NoisyProfile, bound: int | None) -> tuple[Int64, Floats, Operator, Floats]:
    """Points, shares of rows, channel, and the logarithm of what the channel leaves out of each row's probability."""
    noise = noisy.noise
    if noise.power == 1:
        values, tally = combine([(np.clip(noisy.values, 0, bound), noisy.tally)])
        ends = (values == 0) | (values == (-1 if bound is None else bound))
        # a row inside has probability (1−a)/(1+a)·x, a folded one 1/(1+a)·x
        constant = np.where(ends, -math.log1p(noise.a), noise.log_scale)
        return values, tally / noisy.cells, Chain(values, noise), constant
    rows, y, whole = _completed(noisy, bound)
    anchors = np.unique(np.clip(noisy.values, 0, bound))
    stretches = stretches_of(rows, anchors, whole, bound)
    return _points(stretches), y, Comb(stretches, whole), np.zeros(rows.size)


def _without_dust(best: Optimum, y: Floats, channel: Operator, tolerance: float) -> Optimum:
    """Set to 0 the masses that an interior point leaves where the optimum has none, if the certificate allows it."""
    for ratio in (1.0, 1e-3, 1e-6):
        kept = np.where(best.f > ratio * best.z, best.f, 0.0)
        if not kept.any():
            continue
        kept /= kept.sum()
        m = channel.apply(kept)
        if (m[y > 0] <= 0).any():
            continue
        gap = float(channel.transpose(np.divide(y, m, out=np.zeros_like(y), where=y > 0)).max() - 1)
        if gap <= max(tolerance, best.gap):
            return Optimum(kept, best.z, m, gap, best.iterations, best.converged, best.form)
    return best
