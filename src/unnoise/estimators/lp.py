"""``lp``: the previous approach, a linear program — kept as a baseline.

Dwork, Naor, Pitassi, Rothblum and Yekhanin ("Pan-private streaming algorithms", ICS 2010) reconstruct a profile as a
feasible point of a linear program. In the form of Wu and Pagh (ICML 2024, problem P2), with A the circulant channel on
the window [−B..n+B] and y the noisy profile,

    minimise ‖A·r − y‖_p   subject to   r[0] + … + r[n] = 1,  0 ≤ r ≤ 1,  r = 0 outside [0..n],

a linear program for p = 1 (e⁺ − e⁻ = A·r − y, minimise Σ e⁺ + e⁻) and for p = ∞ (−z ≤ A·r − y ≤ z, minimise z).
HiGHS solves it to optimality. B, n and cells outside the window are as in :mod:`unnoise.estimators.paper`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from .._circulant import as_norm, p_norm
from ..arrays import Floats
from ..errors import ConvergenceError, InputError
from ..noisy import NoisyProfile
from .methods import Fit
from .paper import Window, diagnostics, frame

__all__ = ["LONGEST", "lp"]

LONGEST = 20_000
"""Longest window handed to HiGHS: beyond it a linear program takes minutes to hours."""

_highs: Any = linprog
"""The solver; SciPy's stubs do not know that it takes sparse matrices."""


def lp(noisy: NoisyProfile, *, norm: Any = math.inf, max_count: int | None = None, eta: float = 0.05) -> Fit:
    """Reconstruct the profile by linear programming.

    Parameters
    ----------
    noisy : NoisyProfile
        Noise of power 1.
    norm : 1 or inf
        p, the norm in which A·r is brought close to y.
    max_count, eta
        As in :func:`~unnoise.estimators.paper.paper`.

    Examples
    --------
    >>> fit = lp(NoisyProfile.from_counts([1, 1, 0, 2, 1, 1], epsilon=2), norm=1)
    >>> bool(fit.support[fit.mass.argmax()] == 1), round(float(fit.mass.sum()), 9)
    (True, 1.0)
    """
    p = as_norm(norm)
    if p == 2:
        raise InputError("norm must be 1 or inf for method 'lp', got 2; use method='paper' or 'exact' for norm 2")
    framed = frame(noisy, max_count, eta, LONGEST, "lp")
    solution = _solve(framed, p)
    if solution.status != 0:
        raise ConvergenceError(f"HiGHS must reach an optimum, got: {solution.message}")
    profile = np.clip(solution.x[: framed.n + 1], 0.0, 1.0)
    support = np.flatnonzero(profile)
    notes = {"objective": float(solution.fun), "iterations": int(solution.nit)}
    return Fit(
        support=support.astype(np.int64),
        mass=profile[support] / profile.sum(),
        method="lp",
        diagnostics=diagnostics(framed, noisy, p, eta, max_count) | notes,
    )


def band(framed: Window) -> Any:
    """Return the columns of A that belong to the counts 0..n, sparse: 2B+1 entries each."""
    kernel = np.exp(-float(framed.noise.epsilon) * np.abs(np.arange(-framed.reach, framed.reach + 1)))
    kernel /= p_norm(framed.noise.epsilon, framed.reach)
    columns = np.repeat(np.arange(framed.n + 1), kernel.size)
    rows = columns + np.tile(np.arange(kernel.size), framed.n + 1)
    values = np.tile(kernel, framed.n + 1)
    return sparse.csc_array((values, (rows, columns)), shape=(framed.order, framed.n + 1))


def _solve(framed: Window, p: float) -> Any:
    """Hand the program to HiGHS: variables r, then the slack."""
    matrix, y, size = band(framed), framed.observed, framed.n + 1
    if p == 1:
        identity = sparse.eye_array(framed.order, format="csc")
        slack = 2 * framed.order
        equal = sparse.vstack([
            sparse.hstack([matrix, -identity, identity]),
            sparse.csc_array(_sum_row(size, slack)),
        ])
        return _highs(
            np.concatenate([np.zeros(size), np.ones(slack)]),
            A_eq=sparse.csc_array(equal), b_eq=np.append(y, 1.0), bounds=_ranges(size, slack), method="highs",
        )
    column = sparse.csc_array(np.ones((framed.order, 1)))
    within = sparse.vstack([sparse.hstack([matrix, -column]), sparse.hstack([-matrix, -column])])
    return _highs(
        np.append(np.zeros(size), 1.0),
        A_ub=sparse.csc_array(within), b_ub=np.concatenate([y, -y]),
        A_eq=sparse.csc_array(_sum_row(size, 1)), b_eq=[1.0], bounds=_ranges(size, 1), method="highs",
    )


def _sum_row(size: int, slack: int) -> Floats:
    """Return the row of Σ r = 1."""
    return np.concatenate([np.ones(size), np.zeros(slack)])[None, :]


def _ranges(size: int, slack: int) -> Floats:
    """Return 0 ≤ r ≤ 1 and slack ≥ 0."""
    return np.array([(0.0, 1.0)] * size + [(0.0, np.inf)] * slack)
