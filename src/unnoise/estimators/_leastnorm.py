"""Problem P2 by a primal-dual interior point: minimise ‖K f − y‖_p over f ≥ 0, Σf = 1, for p = 1, 2, ∞.

m = K f is seen at rows; λ is the multiplier of Σf = 1 and z ≥ 0 that of f ≥ 0. Every p leads to the same system

    (KᵀWK + Z/F) Δf + Kᵀh·Δτ − 1·Δλ = r,      hᵀKΔf + S·Δτ = r_τ (p = ∞ only),      1ᵀΔf = 1 − Σf,

whose body is banded in x = E f (:mod:`._ipm`) and whose border is one or two numbers.

* p = 2: half the square of the norm; W = 1.
* p = 1: rows with y = 0 cost m ≥ 0, and Σm = 1, so the objective is 1 + Σ_{y>0} (|m − y| − m): only occupied rows
  matter. Slacks τ ≥ ±(m − y) with multipliers α + β = 1 are eliminated row by row: with P = α/(τ−m+y) and
  Q = β/(τ+m−y), W = 4PQ/(P+Q).
* p = ∞: one τ for all rows, Σ(α + β) = 1, W = P + Q, h = Q − P. Rows with y = 0 need m ≤ τ only.

**Certificate.** For every s with ‖s‖_q ≤ 1 (1/p + 1/q = 1), min_t (Kᵀs)[t] − sᵀy is a lower bound of the optimum.
s = α − β (1 on the empty rows, p = 1), scaled to ‖s‖₁ = 1 (p = ∞), or the residual scaled to length 1 (p = 2). It is
evaluated from scratch for the f that is returned.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError

from ..arrays import Floats
from ._chain import DiagonalSandwich, Operator
from ._ipm import BACK_OFF, SHORT, Solver, dual_solver, factored_solver, longest_step
from ._residual import Pairs, Residual, Square

__all__ = ["LeastNorm", "least_norm"]


EVERYWHERE = 1e-5
"""Share of the starting mass that is spread over all points; the rest lies where the cells were seen."""

PATIENCE = 20
"""Iterations without progress before the search ends."""

WORTH, FEWEST = 1e-6, 20
"""Relative gap above which a second run is worth it, and iterations below which none was wanted."""

SETTLED = 1e-6
"""Relative gap (and at most 1e-8) at which a stalled Cholesky form will do; above it the LU form takes over."""


@dataclass(frozen=True, eq=False)
class LeastNorm:
    """Where :func:`least_norm` stopped: f, multipliers z, the norm reached, a certified lower bound of its minimum."""

    f: Floats
    z: Floats
    value: float
    lower: float
    iterations: int

    @property
    def gap(self) -> float:
        """Certified distance of the norm to its minimum."""
        return self.value - self.lower


def least_norm(
    y: Floats, channel: Operator, p: float, *, tolerance: float = 1e-8, max_iterations: int = 100
) -> LeastNorm:
    """Minimise ‖K f − y‖_p over profiles f.

    ``y`` has one entry for every row of the channel: for p = 1 the rows with y > 0 suffice; for p = 2 and ∞ all rows
    that the noise reaches must be there. ``tolerance`` is relative to the norm.

    Returns the best iterate by its certificate, converged or not: the caller must look at the gap. Where a first run
    with the bare predictor–corrector stalls, a second one shortens its second-order term, and the better is returned.
    """
    bold = _descend(y, channel, p, tolerance, max_iterations, cautious=False)
    if bold.gap <= max(WORTH * bold.value, 1e-8) or max_iterations < FEWEST:
        return bold
    wary = _descend(y, channel, p, tolerance, max_iterations, cautious=True)
    return bold if bold.gap <= wary.gap else wary


def _descend(
    y: Floats, channel: Operator, p: float, tolerance: float, max_iterations: int, *, cautious: bool
) -> LeastNorm:
    """One run of the interior point."""
    size = channel.inverse_band.shape[1]
    f = _begin(y, channel)
    m = channel.apply(f)
    part: Residual = Square(y) if p == 2 else Pairs(y, m, shared=p == math.inf)
    gradient = channel.transpose(part.pull(m))
    # products f·z within a factor 2 of each other and no smaller than those of the slacks: off the centre it crawls
    others, count = part.products()
    spread = float(gradient.max() - gradient.min())
    lam = float(gradient.min()) - max(spread, size * others / max(count, 1), 1e-12)
    z = (gradient - lam) / (size * f)
    around = DiagonalSandwich(channel.inverse_band) if channel.curvature(y).shape[0] == 1 else None
    best: LeastNorm | None = None
    patience, least = PATIENCE, math.inf
    for iteration in range(max_iterations + 1):
        total = f.sum()
        value, lower = part.bounds(m / total, channel)
        product = float(f @ z) + part.products()[0]
        gap = value - lower
        better = best is None or gap < 0.9 * best.gap or product < 0.9 * least
        full = PATIENCE if around is None else 3
        patience, least = full if better else patience - 1, min(least, product)
        if best is None or gap < best.gap:
            best = LeastNorm(f / total, z, value, lower, iteration)
        if best.gap <= max(tolerance * best.value, 1e-14) or iteration == max_iterations:
            break
        if patience == 0:
            if around is None or best.gap <= min(SETTLED * best.value, 1e-8):
                break
            around, patience = None, PATIENCE
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            step = _step(part, channel, around, f, z, m, lam, cautious)
            if step is None and around is not None:
                around = None
                continue
        if step is None:
            break
        f, z, lam = step
        m = channel.apply(f)
    assert best is not None
    return LeastNorm(best.f, best.z, best.value, best.lower, iteration)


def _begin(y: Floats, channel: Operator) -> Floats:
    """Masses near the cells: Kᵀy, and a little everywhere."""
    near = channel.transpose(y)
    return np.asarray((1 - EVERYWHERE) / near.sum() * near + EVERYWHERE / near.size)


def _solver(
    channel: Operator, around: DiagonalSandwich | None, curvature: Floats, f: Floats, z: Floats, m: Floats
) -> Solver:
    """Newton's system, ready to be solved: by its factor, or between two diagonals where ρ = 1."""
    if around is None:
        return factored_solver(channel.inverse_factor, curvature, f / z, channel.points_of(m, f))
    return dual_solver(around, channel.inverse_band, curvature[0], f / z)


def _step(
    part: Residual, channel: Operator, around: DiagonalSandwich | None,
    f: Floats, z: Floats, m: Floats, lam: float, cautious: bool,
) -> tuple[Floats, Floats, float] | None:  # fmt: skip
    """One predictor–corrector step, or None where the system could not be solved."""
    try:
        solve = _solver(channel, around, channel.curvature(part.weight(m)), f, z, m)
    except (LinAlgError, ValueError):
        return None

    target = channel.transpose(part.pull(m)) - lam
    ones = solve(np.ones_like(f))
    others, count = part.products()
    mu = (float(f @ z) + others) / (f.size + count)

    def direction(centre: float, second: Floats | float) -> tuple[Floats, Floats, float, float] | None:
        fixed = part.right(centre, not isinstance(second, float))
        body = solve((centre - second) / f - target, channel.gather(fixed))
        (df, change, dx), dtau, dlam = _bordered(solve, body, ones, part.border(), channel, 1 - float(f.sum()))
        reach = part.aim(channel.rows_of(dx), dtau)
        dz = target + change - dlam - z
        if not (np.isfinite(df).all() and np.isfinite(dz).all() and reach > 0):
            return None
        length = min(reach, longest_step(f, df, np.inf), longest_step(z, dz, np.inf))
        return df, dz, dlam, length

    first = direction(0.0, 0.0)
    if first is None:
        return None
    df, dz, dlam, length = first
    length = min(1.0, length)
    ahead = (float((f + length * df) @ (z + length * dz)) + part.ahead(length)) / (f.size + count)
    centre, crossed = min(1.0, ahead / mu) ** 3 * mu, df * dz
    kept = part.keep()
    second = direction(centre, crossed)
    if cautious and (second is None or second[3] < SHORT):
        # The second-order term leads astray far from the path: go without, if that goes further.
        plain = direction(0.5 * mu, 0.0)
        if plain is None or (second is not None and plain[3] <= second[3]):
            part.restore(kept)
            second = direction(centre, crossed)
        else:
            second = plain
    if second is None:
        return None
    df, dz, dlam, length = second
    length = min(1.0, BACK_OFF * length)
    part.advance(length)
    return f + length * df, z + length * dz, lam + length * dlam


def _sum(
    body: tuple[Floats, Floats, Floats], *more: tuple[float, tuple[Floats, Floats, Floats]]
) -> tuple[Floats, Floats, Floats]:
    for factor, part in more:
        body = (body[0] + factor * part[0], body[1] + factor * part[1], body[2] + factor * part[2])
    return body


def _bordered(
    solve: Solver,
    body: tuple[Floats, Floats, Floats],
    ones: tuple[Floats, Floats, Floats],
    border: tuple[Floats, float, float] | None,
    channel: Operator,
    missing: float,
) -> tuple[tuple[Floats, Floats, Floats], float, float]:
    """Solve the bordered system by its Schur complement of one or two unknowns: (Δf, ω, Δx), Δτ, Δλ."""
    if border is None:
        dlam = float((missing - body[0].sum()) / ones[0].sum())
        return _sum(body, (dlam, ones)), 0.0, dlam
    h, scale, right = border
    pulled = channel.gather(h)
    side = solve(np.zeros_like(body[0]), pulled)
    matrix = np.array([[scale + pulled @ side[2], pulled @ ones[2]], [side[0].sum(), ones[0].sum()]])
    dtau, dlam = np.linalg.solve(matrix, [right - pulled @ body[2], missing - body[0].sum()])
    return _sum(body, (dtau, side), (dlam, ones)), float(dtau), float(dlam)
