"""Problem P2 of Wu & Pagh [1]_ by a primal-dual interior point: minimise ‖K f − y‖_p over f ≥ 0, Σf = 1, p = 1, 2, ∞.

K is neither truncated nor wrapped around, and y is the noisy profile on all integers: what the paper's Algorithms 2 and
3 approximate. Fractional powers are completed as in :mod:`.likelihood`.

m = K f is seen at rows; λ is the multiplier of Σf = 1 and z ≥ 0 that of f ≥ 0. Every p leads to the same system

    (KᵀWK + Z/F) Δf + Kᵀh·Δτ − 1·Δλ = r,      hᵀKΔf + S·Δτ = r_τ (p = ∞ only),      1ᵀΔf = 1 − Σf,

whose body is banded in x = E f (:mod:`.likelihood`) and whose border is one or two numbers.

* p = 2: half the square of the norm; W = 1.
* p = 1: rows with y = 0 cost m ≥ 0, and Σm = 1, so the objective is 1 + Σ_{y>0} (|m − y| − m): only occupied rows
  matter. Slacks τ ≥ ±(m − y) with multipliers α + β = 1 are eliminated row by row: with P = α/(τ−m+y) and
  Q = β/(τ+m−y), W = 4PQ/(P+Q).
* p = ∞: one τ for all rows, Σ(α + β) = 1, W = P + Q, h = Q − P. Rows with y = 0 need m ≤ τ only.

**Certificate.** For every s with ‖s‖_q ≤ 1 (1/p + 1/q = 1), min_t (Kᵀs)[t] − sᵀy is a lower bound of the optimum.
s = α − β (1 on the empty rows, p = 1), scaled to ‖s‖₁ = 1 (p = ∞), or the residual scaled to length 1 (p = 2). It is
evaluated from scratch for the f that is returned.

.. [1] H. Wu, R. Pagh, "Profile Reconstruction from Private Sketches", ICML 2024.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._circulant import as_norm
from ..arrays import Floats, Int64
from ..errors import ConvergenceError, InputError
from ..noisy import NoisyProfile
from ._comb import NEGLIGIBLE, Comb, Stretch, stretches_of
from .likelihood import BACK_OFF, SHORT, Chain, Line, Solver, completed, longest_step, newton_system, points_in
from .methods import Fit, check_input

__all__ = ["exact"]

Unfolded = Line | Comb
"""A channel seen at all integers."""

WHOLE = 200_000
"""Up to this largest count every count from 0 may have mass; beyond, those near occupied values."""

EVERYWHERE = 1e-5
"""Share of the starting mass that is spread over all points; the rest lies where the cells were seen."""

NEAR = 1e-8
"""Gap, relative to the norm, at which a search ends."""

PATIENCE = 20
"""Iterations without progress before the search ends."""

WORTH, FEWEST = 1e-6, 20
"""Relative gap above which a second run is worth it, and iterations below which none was wanted."""

SETTLED = 1e-6
"""Relative gap (and at most 1e-8) at which a stalled Cholesky form will do; above it the LU form takes over."""


def exact(
    noisy: NoisyProfile,
    *,
    norm: Any = 2,
    max_count: int | None = None,
    tolerance: float = 1e-7,
    max_iterations: int = 100,
) -> Fit:
    """The optimum of the paper's problem P2: minimise ‖K f − y‖_p over profiles f on 0…n, certified.

    norm : 1, 2 or inf; p
    max_count : n; the largest noisy count (or 0) where there is none. Where n is above 200,000, f is confined to counts
        near occupied values (for power 1 the optimum lies on them unless the noisy profile leans below 0)
    tolerance : largest accepted gap between the norm reached and its minimum
    max_iterations : Newton systems at most, 10 to 50 are usual

    ``diagnostics`` holds the ``norm``, its ``value``, the certified ``gap``, ``converged`` and ``iterations``.

    Raises ConvergenceError where the certified gap stays above both the tolerance and 1e-5 of the norm.

    >>> noisy = NoisyProfile.from_counts([1, 1, 2, 0, 1, 1, 10**12], epsilon=1)
    >>> [exact(noisy, norm=p).support.tolist() for p in (1, 2)]
    [[1, 1000000000000], [1, 1000000000000]]
    """
    bound = check_input(noisy, max_count)
    p = as_norm(norm)
    if not 0 < tolerance < 1:
        raise InputError(f"tolerance must be between 0 and 1, got {tolerance!r}")
    points, y, channel = _all_rows(noisy, bound, p)
    best = _least_norm(y, channel, p, max_iterations)
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


def _as_seen(y: Floats, channel: Unfolded, p: float) -> LeastNorm:
    """What was seen, taken for the profile: as good as optimal where there is next to no noise, for no norm is below 0.

    There an interior point stops short, as the square of the norm has vanished before the norm has.
    """
    f = channel.transpose(y)
    f /= f.sum()
    return LeastNorm(f, float(np.linalg.norm(channel.apply(f) - y, p)), 0.0)


def _all_rows(noisy: NoisyProfile, bound: int | None, p: float) -> tuple[Int64, Floats, Unfolded]:
    """Points, y on every row that matters for the norm (occupied ones, p = 1; all, p = 2 and ∞), and the channel."""
    top = max(int(noisy.values[-1]), 0) if bound is None else bound
    occupied, shares, whole = completed(noisy, top)
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
    points = points_in(stretches)
    if whole.power == 1 and len(stretches) == 1:
        return points, y, Line(points, rows, whole)
    return points, y, Comb(stretches, whole)


def _widened(s: Stretch, halo: int) -> Int64:
    """All integers up to ``halo`` beyond a stretch and its rows."""
    first, last = (int(s.rows[0]), int(s.rows[-1])) if s.rows.size else (s.low, s.high)
    return np.arange(min(first, s.low) - halo, max(last, s.high) + halo + 1)


def _dust_level(best: LeastNorm, y: Floats, channel: Unfolded, p: float) -> float:
    """The largest of a few levels below which masses can be dropped without moving the norm by more than the gap."""
    for level in (1e-8, 1e-9, 1e-10, 1e-11, 1e-12):
        kept = np.where(best.f > level, best.f, 0.0)
        residual = channel.apply(kept / kept.sum()) - y if kept.any() else -y
        change = np.linalg.norm(residual, p) - np.linalg.norm(channel.apply(best.f) - y, p)
        if kept.any() and change <= max(0.1 * best.gap, 1e-12):
            return level
    return 0.0


# ── the interior point ──────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, eq=False)
class LeastNorm:
    """The best iterate by its certificate: f, the norm reached, a certified lower bound of its minimum."""

    f: Floats
    value: float
    lower: float
    iterations: int = 0

    @property
    def gap(self) -> float:
        """Certified distance of the norm to its minimum."""
        return self.value - self.lower


def _least_norm(y: Floats, channel: Unfolded, p: float, max_iterations: int) -> LeastNorm:
    """Minimise ‖K f − y‖_p over profiles f, converged or not: the caller must look at the gap.

    ``y`` has one entry for every row of the channel: for p = 1 the rows with y > 0 suffice; for p = 2 and ∞ all rows
    that the noise reaches must be there. Where a first run with the bare predictor–corrector stalls, a second one
    shortens its second-order term, and the better is returned.
    """
    bold = _descend(y, channel, p, max_iterations, cautious=False)
    if bold.gap <= max(WORTH * bold.value, 1e-8) or max_iterations < FEWEST:
        return bold
    wary = _descend(y, channel, p, max_iterations, cautious=True)
    return bold if bold.gap <= wary.gap else wary


def _descend(y: Floats, channel: Unfolded, p: float, max_iterations: int, *, cautious: bool) -> LeastNorm:
    """One run of the interior point, from masses near the cells: Kᵀy, and a little everywhere."""
    size, f = channel.size, channel.transpose(y)
    f = (1 - EVERYWHERE) / f.sum() * f + EVERYWHERE / size
    m = channel.apply(f)
    part = Residual(y) if p == 2 else Pairs(y, m, shared=p == math.inf)
    gradient = channel.transpose(part.pull(m))
    # products f·z within a factor 2 of each other and no smaller than those of the slacks: off the centre it crawls
    others, count = part.products()
    spread = float(gradient.max() - gradient.min())
    lam = float(gradient.min()) - max(spread, size * others / max(count, 1), 1e-12)
    z = (gradient - lam) / (size * f)
    dual = isinstance(channel, Chain)
    best: LeastNorm | None = None
    patience, least = PATIENCE, math.inf
    for iteration in range(max_iterations + 1):
        total = f.sum()
        value, lower = part.bounds(m / total, channel)
        product = float(f @ z) + part.products()[0]
        gap = value - lower
        better = best is None or gap < 0.9 * best.gap or product < 0.9 * least
        full = 3 if dual else PATIENCE
        patience, least = full if better else patience - 1, min(least, product)
        if best is None or gap < best.gap:
            best = LeastNorm(f / total, value, lower)
        if best.gap <= max(NEAR * best.value, 1e-14) or iteration == max_iterations:
            break
        if patience == 0:
            if not dual or best.gap <= min(SETTLED * best.value, 1e-8):
                break
            dual, patience = False, PATIENCE
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            solve = newton_system(channel, dual, part.weight(m), f, z)
            step = None if solve is None else _step(solve, part, channel, f, z, m, lam, cautious)
        if step is None:
            if not dual:
                break
            dual = False
            continue
        f, z, lam, part = step
        m = channel.apply(f)
    assert best is not None
    return replace(best, iterations=iteration)


def _step(
    solve: Solver, part: Residual, channel: Unfolded, f: Floats, z: Floats, m: Floats, lam: float, cautious: bool
) -> tuple[Floats, Floats, float, Residual] | None:
    """One predictor–corrector step, or None where the system could not be solved."""
    target = channel.transpose(part.pull(m)) - lam
    ones = solve(np.ones_like(f))
    others, count = part.products()
    mu = (float(f @ z) + others) / (f.size + count)

    def direction(
        part: Residual, centre: float, second: Floats | float
    ) -> tuple[Floats, Floats, float, float, Residual] | None:
        fixed = part.right(centre, not isinstance(second, float))
        body = solve((centre - second) / f - target, channel.gather(fixed))
        (df, change, dx), dtau, dlam = _bordered(solve, body, ones, part.border(), channel, 1 - float(f.sum()))
        reach = part.aim(channel.rows_of(dx), dtau)
        dz = target + change - dlam - z
        if not (np.isfinite(df).all() and np.isfinite(dz).all() and reach > 0):
            return None
        length = min(reach, longest_step(f, df, np.inf), longest_step(z, dz, np.inf))
        return df, dz, dlam, length, part

    first = direction(part, 0.0, 0.0)
    if first is None:
        return None
    df, dz, dlam, length, _ = first
    length = min(1.0, length)
    ahead = (float((f + length * df) @ (z + length * dz)) + part.ahead(length)) / (f.size + count)
    apart = copy(part)
    best = direction(part, min(1.0, ahead / mu) ** 3 * mu, df * dz)
    if cautious and (best is None or best[3] < SHORT):
        # The second-order term leads astray far from the path: go without, if that goes further.
        plain = direction(apart, 0.5 * mu, 0.0)
        best = plain if plain is not None and (best is None or plain[3] > best[3]) else best
    if best is None:
        return None
    df, dz, dlam, length, part = best
    length = min(1.0, BACK_OFF * length)
    part.advance(length)
    return f + length * df, z + length * dz, lam + length * dlam, part


def _bordered(
    solve: Solver, body: Sequence[Floats], ones: Sequence[Floats], border: tuple[Floats, float, float] | None,
    channel: Unfolded, missing: float,
) -> tuple[Sequence[Floats], float, float]:  # fmt: skip
    """Solve the bordered system by its Schur complement of one or two unknowns: (Δf, ω, Δx), Δτ, Δλ."""
    if border is None:
        dlam = float((missing - body[0].sum()) / ones[0].sum())
        return [b + dlam * o for b, o in zip(body, ones)], 0.0, dlam
    h, scale, right = border
    pulled = channel.gather(h)
    side = solve(np.zeros_like(body[0]), pulled)
    matrix = np.array([[scale + pulled @ side[2], pulled @ ones[2]], [side[0].sum(), ones[0].sum()]])
    dtau, dlam = np.linalg.solve(matrix, [right - pulled @ body[2], missing - body[0].sum()])
    return [b + dtau * s + dlam * o for b, s, o in zip(body, side, ones)], float(dtau), float(dlam)


# ── what depends on p: residuals, slacks and their multipliers ──────────────────────────────────────────────────────


class Residual:
    """What depends on p, and for p = 2 is nothing but the residual itself. Arrays are over rows."""

    def __init__(self, y: Floats) -> None:
        self.y = y

    def pull(self, m: Floats) -> Floats:
        """q with Kᵀq the gradient of the Lagrangian in f, less λ and z."""
        return np.asarray(m - self.y)

    def products(self) -> tuple[float, int]:
        """Sum and number of slack·multiplier products."""
        return 0.0, 0

    def weight(self, m: Floats) -> Floats:
        """W, and what slacks and m are apart by, which the next direction makes good."""
        return np.ones_like(self.y)

    def right(self, centre: float, second_order: bool) -> Floats:
        """Constant part of the change of q."""
        return np.zeros_like(self.y)

    def border(self) -> tuple[Floats, float, float] | None:
        """h, S and r_τ of the bordering variable, if there is one; after :meth:`right`."""
        return None

    def aim(self, dm: Floats, dtau: float) -> float:
        """Fix the direction; the longest step in it."""
        return math.inf

    def ahead(self, step: float) -> float:
        """Sum of products after a step."""
        return 0.0

    def advance(self, step: float) -> None:
        """Take the step."""

    def bounds(self, m: Floats, channel: Unfolded) -> tuple[float, float]:
        """The norm at m, and a certified lower bound of its minimum."""
        residual = m - self.y
        value = float(np.linalg.norm(residual))
        if value == 0:
            return 0.0, 0.0
        s = residual / value
        return value, float(channel.transpose(s).min() - s @ self.y)


class Pairs(Residual):
    """p = 1 (a slack for every row) and p = ∞ (one ``shared`` by all): τ ≥ ±(m − y)."""

    def __init__(self, y: Floats, m: Floats, shared: bool) -> None:
        super().__init__(y)
        self.shared = shared
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

    def advance(self, step: float) -> None:
        """Take the step."""
        self.assumed = self.assumed + step * self.d_assumed
        self.upper = self.upper + step * self.d_upper
        self.lower = self.lower + step * self.d_lower
        self.alpha = self.alpha + step * self.d_alpha
        self.beta = self.beta + step * self.d_beta

    def bounds(self, m: Floats, channel: Unfolded) -> tuple[float, float]:
        """The norm at m, and a certified lower bound of its minimum."""
        residual = m - self.y
        s = self.alpha - self.beta
        if self.shared:
            s = s / float(np.abs(s).sum())
            return float(np.abs(residual).max()), float(channel.transpose(s).min() - s @ self.y)
        s = np.clip(s, -1.0, 1.0)
        value = 1 + float((np.abs(residual) - m).sum())
        return value, 1 - float(channel.transpose(1 - s).max()) - float(s @ self.y)
