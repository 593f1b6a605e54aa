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
from typing import Protocol

import numpy as np
from scipy.linalg import LinAlgError

from ..arrays import Floats
from ._ipm import BACK_OFF, SHORT, Solver, dual_solver, factored_solver, longest_step
from ._operators import DiagonalSandwich, Operator

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


# ── what depends on p: residuals, slacks and their multipliers ──────────────────────────────────────────────────────


class Residual(Protocol):
    """What depends on p. Arrays are over rows."""

    def pull(self, m: Floats) -> Floats:
        """q with Kᵀq the gradient of the Lagrangian in f, less λ and z."""
        ...

    def products(self) -> tuple[float, int]:
        """Sum and number of slack·multiplier products."""
        ...

    def weight(self, m: Floats) -> Floats:
        """W, and what slacks and m are apart by, which the next direction makes good."""
        ...

    def right(self, centre: float, second_order: bool) -> Floats:
        """Constant part of the change of q."""
        ...

    def border(self) -> tuple[Floats, float, float] | None:
        """h, S and r_τ of the bordering variable, if there is one; after :meth:`right`."""
        ...

    def aim(self, dm: Floats, dtau: float) -> float:
        """Fix the direction; the longest step in it."""
        ...

    def ahead(self, step: float) -> float:
        """Sum of products after a step."""
        ...

    def keep(self) -> tuple[Floats, ...]:
        """The direction last fixed, from which second-order terms are taken."""
        ...

    def restore(self, kept: tuple[Floats, ...]) -> None:
        """Go back to a direction kept before."""
        ...

    def advance(self, step: float) -> None:
        """Take the step."""
        ...

    def bounds(self, m: Floats, channel: Operator) -> tuple[float, float]:
        """The norm at m, and a certified lower bound of its minimum."""
        ...


class Square:
    """p = 2: nothing but the residual itself."""

    def __init__(self, y: Floats) -> None:
        self.y = y
        self._none = np.zeros_like(y)

    def pull(self, m: Floats) -> Floats:
        """q with Kᵀq the gradient of the Lagrangian in f, less λ and z."""
        return np.asarray(m - self.y)

    def products(self) -> tuple[float, int]:
        """Sum and number of slack·multiplier products."""
        return 0.0, 0

    def weight(self, m: Floats) -> Floats:
        """W."""
        return np.ones_like(self.y)

    def right(self, centre: float, second_order: bool) -> Floats:
        """Constant part of the change of q."""
        return self._none

    def border(self) -> None:
        """h, S and r_τ of the bordering variable, if there is one."""
        return None

    def aim(self, dm: Floats, dtau: float) -> float:
        """Fix the direction; the longest step in it."""
        return math.inf

    def ahead(self, step: float) -> float:
        """Sum of products after a step."""
        return 0.0

    def keep(self) -> tuple[Floats, ...]:
        """Nothing to keep."""
        return ()

    def restore(self, kept: tuple[Floats, ...]) -> None:
        """Nothing to go back to."""

    def advance(self, step: float) -> None:
        """Nothing to move."""

    def bounds(self, m: Floats, channel: Operator) -> tuple[float, float]:
        """The norm at m, and a certified lower bound of its minimum."""
        residual = m - self.y
        value = float(np.linalg.norm(residual))
        if value == 0:
            return 0.0, 0.0
        s = residual / value
        return value, float(channel.transpose(s).min() - s @ self.y)


class Pairs:
    """p = 1 (a slack for every row) and p = ∞ (one ``shared`` by all): τ ≥ ±(m − y)."""

    def __init__(self, y: Floats, m: Floats, shared: bool) -> None:
        self.y, self.shared = y, shared
        self.two_sided = y > 0
        residual = m - y
        if shared:
            worst = float(np.abs(residual).max())
            tau: Floats | float = 1.5 * worst + 1e-12
            share = 1 / (y.size + int(self.two_sided.sum()))
        else:
            tau = np.abs(residual) + 0.5 * float(np.abs(residual).mean()) + 1e-12
            share = 0.5
        # what the slacks take m − y to be: m follows f, the slacks follow x = E f, and rounding keeps them apart
        self.assumed, self.off = residual, np.zeros_like(y)
        self.upper: Floats = tau - residual
        self.lower: Floats = tau + residual
        self.d_upper = self.d_lower = self.d_alpha = self.d_beta = np.zeros_like(y)
        self.alpha = np.full(y.size, share)
        self.beta = np.where(self.two_sided, share, 0.0)

    def pull(self, m: Floats) -> Floats:
        """q with Kᵀq the gradient of the Lagrangian in f, less λ and z."""
        return np.asarray(self.alpha - self.beta - (0.0 if self.shared else 1.0))

    def products(self) -> tuple[float, int]:
        """Sum and number of slack·multiplier products."""
        total = float(self.upper @ self.alpha + self.lower @ self.beta)
        return total, self.y.size + int(self.two_sided.sum())

    def weight(self, m: Floats) -> Floats:
        """W."""
        self.p, self.q = self.alpha / self.upper, self.beta / self.lower
        self.off = m - self.y - self.assumed
        total = self.p + self.q
        self.w: Floats = total if self.shared else 4 * self.p * self.q / total
        return self.w

    def right(self, centre: float, second_order: bool) -> Floats:
        """Constant part of the change of q."""
        up: Floats | float = centre
        down: Floats | float = centre
        if second_order:
            up, down = centre - self.d_upper * self.d_alpha, centre - self.d_lower * self.d_beta
        self.ra = up / self.upper - self.alpha
        self.rb = np.where(self.two_sided, down / self.lower - self.beta, 0.0)
        pull = self.ra - self.rb if self.shared else 2 * (self.q * self.ra - self.p * self.rb) / (self.p + self.q)
        return np.asarray(pull + self.w * self.off)

    def border(self) -> tuple[Floats, float, float] | None:
        """h, S and r_τ of the bordering variable, if there is one."""
        if not self.shared:
            return None
        missing = 1 - float(self.alpha.sum() + self.beta.sum())
        h = self.q - self.p
        return h, float(self.w.sum()), float((self.ra + self.rb).sum() - h @ self.off) - missing

    def aim(self, dm: Floats, dtau: float) -> float:
        """Fix the direction; the longest step in it."""
        dm = dm + self.off
        own: Floats = (self.ra + self.rb - (self.q - self.p) * dm) / (self.p + self.q)
        slack = dtau if self.shared else own
        self.d_assumed, self.d_upper, self.d_lower = dm, slack - dm, slack + dm
        self.d_alpha = self.ra - self.p * self.d_upper
        self.d_beta = self.rb - self.q * self.d_lower
        two = self.two_sided
        reach = min(
            longest_step(self.upper, self.d_upper, math.inf),
            longest_step(self.alpha, self.d_alpha, math.inf),
            longest_step(self.lower[two], self.d_lower[two], math.inf),
            longest_step(self.beta[two], self.d_beta[two], math.inf),
        )
        return reach if math.isfinite(float(np.sum(self.d_alpha))) else 0.0

    def ahead(self, step: float) -> float:
        """Sum of products after a step."""
        above = (self.upper + step * self.d_upper) @ (self.alpha + step * self.d_alpha)
        below = (self.lower + step * self.d_lower) @ (self.beta + step * self.d_beta)
        return float(above + below)

    def keep(self) -> tuple[Floats, ...]:
        """The direction last fixed."""
        return self.d_upper, self.d_lower, self.d_alpha, self.d_beta

    def restore(self, kept: tuple[Floats, ...]) -> None:
        """Go back to a direction kept before."""
        self.d_upper, self.d_lower, self.d_alpha, self.d_beta = kept

    def advance(self, step: float) -> None:
        """Take the step."""
        self.assumed = self.assumed + step * self.d_assumed
        self.upper = self.upper + step * self.d_upper
        self.lower = self.lower + step * self.d_lower
        self.alpha = self.alpha + step * self.d_alpha
        self.beta = self.beta + step * self.d_beta

    def bounds(self, m: Floats, channel: Operator) -> tuple[float, float]:
        """The norm at m, and a certified lower bound of its minimum."""
        residual = m - self.y
        s = self.alpha - self.beta
        if self.shared:
            s = s / float(np.abs(s).sum())
            return float(np.abs(residual).max()), float(channel.transpose(s).min() - s @ self.y)
        s = np.clip(s, -1.0, 1.0)
        value = 1 + float((np.abs(residual) - m).sum())
        return value, 1 - float(channel.transpose(1 - s).max()) - float(s @ self.y)
