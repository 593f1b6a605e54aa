"""The maximum-likelihood profile, by a primal-dual interior point whose systems are banded.

f makes the noisy profile y most likely: maximise Σ y·log m − Σ f over f ≥ 0, with m = K f. Scaling f shows that the
masses add up to 1 at the optimum by themselves. For power 1 f lives on the occupied folded values, where the channel's
inverse is tridiagonal; for integer powers above 1 on all counts within reach of them (:mod:`._comb`). Fractional
ρ > 1 has no banded inverse: y is first completed to the power ⌈ρ⌉ by the mean effect of the missing noise
(``diagnostics["completed_power"]``), so the estimating equations stay unbiased, but the optimum is that of the
completed problem, and a little less sharp.

**A chain** is one noise on ascending points v_0 < v_1 < …, E_ij = a^|v_i − v_j|. a^|s−t| is the covariance of a
stationary Markov sequence, so T = E⁻¹ is tridiagonal on *every* set of points: with q_i = a^(v_{i+1} − v_i),

    T_{i,i+1} = −q_i/(1−q_i²),     T_ii = 1 + q_{i−1}²/(1−q_{i−1}²) + q_i²/(1−q_i²)   (missing gaps: q = 0).

E f takes two passes of positive numbers, each exact to rounding in every entry: the sequence predicts itself,
T = L·D·Lᵀ with L_ii = 1, L_{i+1,i} = −q_i and D_ii = 1/(1−q_i²) (1 at the end), hence x = E f from
F_i = f_i + q_{i−1}F_{i−1} and x_i = (1−q_i²)F_i + q_i·x_{i+1}. From the other end B is bidiagonal,
B_ii = 1/√(1−q_{i−1}²), B_{i,i−1} = −q_{i−1}·B_ii.

**Newton's system.** With u = Kᵀ(y/m) the optimum is where z = 1 − u ≥ 0, f ≥ 0 and f∘z = 0. Linearising f∘z = t and
eliminating Δz leaves (KᵀYK + D) Δf = t/f − (1 − u) =: r, D = Z/F, Y = y/m², dense in f. In x = E f (T = E⁻¹, Y the
curvature in x, banded) the unknowns ω (change of the gradient), Δx and Δf = T·Δx solve

    ω + D·T·Δx = r,        T·ω − Y·Δx = g.

g is what the gradient changes by even if f stays: 0 for the likelihood. Where there is one (multipliers of slacks, in
:mod:`.exact`) it must not be moved into r as E g: ω would be a small number written as a difference of large ones, and
T·ω and Δx = Y⁻¹(T·ω − g) would lose as many digits.

* *Dual form*, Y > 0 diagonal (power 1): (D⁻¹ + T·Y⁻¹·T) ω = D⁻¹r + T·Y⁻¹·g, Δf = D⁻¹(r − ω) = T·Y⁻¹·(T·ω − g), by
  Cholesky. Accurate where T is ill-conditioned (ε = 0.001): small entries of f come out of a product, not of a
  difference.
* *Factored form*, everywhere else and where the first does not suffice. T has condition number ((1+a)/(1−a))^(2ρ), 10¹⁴
  at ε = 0.01 and ρ = 3: a system written with T loses all digits. Its factor B, T = BᵀB, has the square root of that.
  With v = Bω and w = BΔx, and Δf = Bᵀw,

      ω + D·Bᵀw = r,      Bω = v,      Bᵀv − YΔx = g,      BΔx = w.

  Interleaved as ω_0, v_0, Δx_0, w_0, ω_1, … this is banded, and solved by LU with pivoting. Δx is measured in units of
  x (columns and third equations are scaled by x) and the first equations are divided by D, so that all entries are of
  one order.

Steps are Mehrotra's predictor and corrector [1]_. f and z stay positive, m and u are recomputed from f by positive
sums, hence the certificate is that of the f returned, whatever the accuracy of the steps: the objective is concave and
Σf* = 1, so for f scaled to Σf = 1 the distance to the optimum is at most max u − 1 [2]_.

.. [1] S. Mehrotra, "On the implementation of a primal-dual interior point method", SIAM J. Optim. 2, 1992.
.. [2] B. G. Lindsay, "The geometry of mixture likelihoods: a general theory", Ann. Statist. 11, 1983.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_solve_banded, cholesky_banded
from scipy.linalg.lapack import dgbtrf, dgbtrs, dpttrs

from ..arrays import Floats, Int64
from ..engine.banded import sandwich
from ..errors import ConvergenceError, InputError
from ..noise import DiscreteLaplace
from ..noisy import NoisyProfile
from ._comb import Comb, Stretch, clip_rows, stretches_of
from .linear import smoothed_tally
from .methods import Fit, check_input

__all__ = [
    "BACK_OFF", "SHORT", "Chain", "Line", "Operator", "Solver", "completed", "likelihood", "longest_step",
    "newton_system", "points_in",
]  # fmt: skip

Solver = Callable[..., tuple[Floats, Floats, Floats]]
"""(r, g or nothing) ↦ (Δf, ω, Δx)."""

ACCEPTED = 1e-6
"""A gap above the tolerance but below this is returned and reported; above it is an error."""

DUST = 1e-15
"""Shares of cells below this come from the completion's far tail and are dropped."""

BACK_OFF = 0.99
"""Share of the way to the boundary that a step may take."""

SHORT = 0.1
"""Steps shorter than this are tried again without the second-order term."""

PATIENCE = 8
"""Iterations without progress before another form of the system is tried."""


def likelihood(
    noisy: NoisyProfile, *, max_count: int | None = None, tolerance: float = 1e-9, max_iterations: int = 100
) -> Fit:
    """The maximum-likelihood profile, certified; no mass is put above ``max_count``.

    tolerance : wanted bound of the gap to the optimal log-likelihood per cell
    max_iterations : Newton systems at most, about 20 are usual

    ``diagnostics`` holds the certified ``gap``, ``converged`` (gap ≤ tolerance), ``iterations``, ``log_likelihood`` per
    cell, the number of ``points`` and the ``form`` of Newton's system.

    Raises ConvergenceError where the certified gap stays above 1e-6.

    >>> fit = likelihood(NoisyProfile.from_counts([1, 1, 2, 0, 1, 1, 10**12], epsilon=1))
    >>> fit.support.tolist(), fit.mass.round(6).tolist()
    ([1, 1000000000000], [0.857143, 0.142857])
    """
    bound = check_input(noisy, max_count)
    if not 0 < tolerance < 1:
        raise InputError(f"tolerance must be between 0 and 1, got {tolerance!r}")
    noise, constant = noisy.noise, np.zeros(1)  # logarithm of what the channel leaves out of each row's probability
    channel: Operator
    if noise.power == 1:
        points, tally = noisy.folded(bound)
        ends = (points == 0) | (points == (-1 if bound is None else bound))
        # a row inside has probability (1−a)/(1+a)·x, a folded one 1/(1+a)·x
        constant = np.where(ends, -math.log1p(noise.a), noise.log_scale)
        y, channel = tally / noisy.cells, Chain(points, noise)
    else:
        rows, y, whole = completed(noisy, bound)
        stretches = stretches_of(rows, np.unique(np.clip(noisy.values, 0, bound)), whole, bound)
        points, channel = points_in(stretches), Comb(stretches, whole)
    best = _maximise(y, channel, tolerance, max_iterations)
    if not best.gap <= ACCEPTED:
        raise ConvergenceError(
            f"likelihood must come within {tolerance:g} of the optimum, got {best.gap:.2g} after "
            f"{best.iterations} iterations at {noise}: use method='isotonic', or more iterations"
        )
    best = _without_dust(best, y, channel, tolerance)
    keep = best.f > 0
    diagnostics: dict[str, Any] = {
        "power": str(noise.power),
        "converged": bool(best.gap <= tolerance),
        "gap": best.gap,
        "iterations": best.iterations,
        "form": best.form,
        "points": int(points.size),
        "log_likelihood": float(y @ (np.log(best.m) + constant)),
    }
    if noise.power.denominator != 1:
        diagnostics["completed_power"] = math.ceil(noise.power)
    return Fit(points[keep], best.f[keep] / best.f.sum(), "likelihood", diagnostics)


def completed(noisy: NoisyProfile, bound: int | None) -> tuple[Int64, Floats, DiscreteLaplace]:
    """Occupied rows and their shares > 0 under the next integer power, and that law."""
    whole = DiscreteLaplace(noisy.noise.epsilon, math.ceil(noisy.noise.power))
    rows, shares = smoothed_tally(noisy)
    visible = shares > DUST
    rows, where = np.unique(clip_rows(rows[visible], whole, bound), return_inverse=True)
    y = np.bincount(where, weights=shares[visible]).astype(float)
    return rows, y / y.sum(), whole


def points_in(stretches: list[Stretch]) -> Int64:
    """All counts of the stretches."""
    return np.concatenate([np.arange(s.low, s.high + 1) for s in stretches])


def _without_dust(best: Optimum, y: Floats, channel: Operator, tolerance: float) -> Optimum:
    """Set to 0 the masses that an interior point leaves where the optimum has none, if the certificate allows it."""
    for ratio in (1.0, 1e-3, 1e-6):
        kept = np.where(best.f > ratio * best.z, best.f, 0.0)
        if not kept.any():
            continue
        kept /= kept.sum()
        m = channel.apply(kept)
        if (m <= 0).any():
            continue
        gap = float(channel.transpose(y / m).max() - 1)
        if gap <= max(tolerance, best.gap):
            return replace(best, f=kept, m=m, gap=gap)
    return best


# ── one noise ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Chain:
    """m = x = E f, E_ij = a^|v_i − v_j| on ascending points, each of them a row; E is multiplied by ``scale``.

    diagonal, beside : of T
    factor : B, lower triangular, row k holding B[i, i−k] at column i

    >>> chain = Chain(np.array([0, 1, 5, 10**12]), DiscreteLaplace(0.5))
    >>> f = np.array([0.5, 0.2, 0.2, 0.1])
    >>> bool(np.allclose(chain.inverse(chain.apply(f)), f, atol=1e-15))
    True
    """

    def __init__(self, points: Int64, noise: DiscreteLaplace, scale: float = 1.0) -> None:
        self.size, self.scale = points.size, scale
        exponent = float(noise.epsilon) * np.diff(points).astype(float)
        q, loss = np.exp(-exponent), -np.expm1(-2 * exponent)
        self.diagonal, self.beside = np.ones(self.size), -q / loss / scale
        self.diagonal[:-1] += q * q / loss
        self.diagonal[1:] += q * q / loss
        self.diagonal /= scale
        root = np.sqrt(loss)
        self.factor = np.array([np.append(1.0, 1 / root), np.append(0.0, -q / root)]) / math.sqrt(scale)
        self._predicted, self._precision = -q, np.append(1 / loss, 1.0)

    def points_of(self, f: Floats) -> Floats:
        """x = E f, accurate in every entry for f ≥ 0."""
        solved: Any = dpttrs(self._precision, self._predicted, f)[0] if self.size > 1 else f
        return np.asarray(self.scale * solved)

    apply = transpose = points_of
    """m and Kᵀ r: every row is a point, and E is symmetric."""

    def inverse(self, x: Floats) -> Floats:
        """T x."""
        f = self.diagonal * x
        f[1:] += self.beside * x[:-1]
        f[:-1] += self.beside * x[1:]
        return np.asarray(f)

    def curvature(self, weight: Floats) -> Floats:
        """Second derivative in x of ½ Σ weight·m², in lower banded form: diagonal."""
        return weight[None, :]


class Line(Chain):
    """Power 1, unfolded: K f on points and on rows outside their hull, m(v) = a^distance·m(nearest end).

    Every row must be a point or lie outside the hull of the points.

    >>> line = Line(np.array([0, 1, 5]), np.array([-2, 0, 1, 5]), DiscreteLaplace(1))
    >>> f = np.array([0.5, 0.2, 0.3])
    >>> law = DiscreteLaplace(1).pmf(np.array([-2, 0, 1, 5])[:, None] - np.array([0, 1, 5]))
    >>> bool(np.allclose(line.apply(f), law @ f, rtol=1e-14))
    True
    """

    def __init__(self, points: Int64, rows: Int64, noise: DiscreteLaplace) -> None:
        super().__init__(points, noise, float(np.exp(noise.log_scale)))
        inside = np.clip(rows, points[0], points[-1])
        self._at = np.searchsorted(points, inside)
        self._decay = np.exp(-float(noise.epsilon) * np.abs(rows - inside).astype(float))

    def apply(self, f: Floats) -> Floats:
        """K f at every row."""
        return self.rows_of(self.points_of(f))

    def transpose(self, r: Floats) -> Floats:
        """Kᵀ r at every point."""
        return self.points_of(self.gather(r))

    def curvature(self, weight: Floats) -> Floats:
        """Diagonal: a row outside is a multiple of one entry of x."""
        return self.gather(weight * self._decay)[None, :]

    def rows_of(self, x: Floats) -> Floats:
        """m as a function of x: rows are multiples of the point nearest to them."""
        return np.asarray(x[self._at] * self._decay)

    def gather(self, r: Floats) -> Floats:
        """What Σ r·m pulls at x: rows pull at the point nearest to them."""
        return np.bincount(self._at, weights=r * self._decay, minlength=self.size).astype(float)


Operator = Chain | Comb
"""A channel m = K f, K = C·E, whose rows are linear in a few entries of x = E f."""


# ── the interior point ──────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, eq=False)
class Optimum:
    """The best iterate by its certificate, converged or not: masses f > 0 with Σf = 1, their multipliers z, m = K f.

    gap : certified upper bound of (optimal objective − objective of f)
    iterations, form : Newton systems solved, and the form of the last
    """

    f: Floats
    z: Floats
    m: Floats
    gap: float
    iterations: int = 0
    form: str = ""


def _maximise(y: Floats, channel: Operator, tolerance: float, max_iterations: int) -> Optimum:
    """Maximise Σ y·log(K f) − Σ f over f ≥ 0, for shares y > 0 of the channel's rows, Σy = 1."""
    dual = isinstance(channel, Chain)
    f, z = np.full(channel.size, 1 / channel.size), np.ones(channel.size)
    best: Optimum | None = None
    patience, least = PATIENCE, np.inf
    for iteration in range(max_iterations + 1):
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            m = channel.apply(f)
            u = channel.transpose(y / m)
            scale = 1 / float(f.sum())
            gap = float(u.max() * float(f.sum()) - 1)  # certified for f·scale
        product = float(f @ z)
        # Progress is a smaller gap or smaller products f·z: early on the gap alone goes up and down.
        better = best is None or gap < 0.9 * best.gap or product < 0.9 * least
        patience, least = PATIENCE if better else patience - 1, min(least, product)
        if best is None or gap < best.gap:
            best = Optimum(f * scale, z, m * scale, gap)
        if best.gap <= tolerance or iteration == max_iterations:
            break
        if patience == 0:
            if not dual:
                break
            dual, patience, least, f, z = False, PATIENCE, np.inf, best.f, best.z
            continue
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            step = _step(newton_system(channel, dual, y / (m * m), f, z), f, z, 1 - u)
        if step is None:
            if not dual:
                break
            dual = False
            continue
        f, z = step
    assert best is not None
    return replace(best, iterations=iteration, form="dual" if dual else "factored")


def _step(solve: Solver | None, f: Floats, z: Floats, gradient: Floats) -> tuple[Floats, Floats] | None:
    """One predictor–corrector step towards z = ``gradient``, or None where the system could not be solved."""
    if solve is None:
        return None
    mu = float(f @ z) / f.size

    def direction(centre: float, second_order: Floats | float) -> tuple[Floats, Floats, float]:
        # in place: at a million points the time goes into moving memory
        r = (centre - second_order) / f
        r -= gradient
        df, dz, _ = solve(r)
        dz += gradient
        dz -= z
        if not (np.isfinite(df.sum()) and np.isfinite(dz.sum())):
            return f, z, 0.0
        length = BACK_OFF * min(longest_step(f, df, np.inf), longest_step(z, dz, np.inf))
        return df, dz, min(1.0, length)

    df, dz, _ = direction(0.0, 0.0)
    primal, dual = longest_step(f, df), longest_step(z, dz)
    # mean of (f + α·Δf)(z + β·Δz)
    ahead = mu + float(dual * (f @ dz) + primal * (df @ z) + primal * dual * (df @ dz)) / f.size
    df *= dz
    df, dz, length = direction(min(1.0, max(ahead, 0.0) / mu) ** 3 * mu, df)
    if length < SHORT:
        # The second-order term leads astray far from the path: go back towards it without.
        plain = direction(0.5 * mu, 0.0)
        df, dz, length = plain if plain[2] > length else (df, dz, length)
    if length == 0:
        return None
    df *= length
    df += f
    dz *= length
    dz += z
    return df, dz


def longest_step(v: Floats, dv: Floats, limit: float = 1.0) -> float:
    """The largest α ≤ limit with v + α·dv ≥ 0, for v > 0.

    >>> longest_step(np.array([1.0, 1.0]), np.array([-4.0, 2.0]))
    0.25
    """
    steepest = float((dv / v).min())
    return limit if steepest >= 0 or -1 / steepest > limit else -1 / steepest


# ── Newton's system ─────────────────────────────────────────────────────────────────────────────────────────────────


def newton_system(channel: Operator, dual: bool, weight: Floats, f: Floats, z: Floats) -> Solver | None:
    """Factor Newton's system for ½ Σ weight·m², in its dual form or by the factor of T; None where that fails."""
    curvature = channel.curvature(weight)
    try:
        if dual and isinstance(channel, Chain):
            return _dual_solver(channel, curvature[0], f / z)
        return _factored_solver(channel.factor, curvature, f / z, channel.points_of(f))
    except (LinAlgError, ValueError):
        return None


def _dual_solver(chain: Chain, weight: Floats, slack: Floats) -> Solver:
    """Factor the dual form once. ``slack`` is F/Z, ``weight`` Y."""
    diagonals = sandwich(np.append(0, chain.beside), chain.diagonal, np.append(chain.beside, 0), 1 / weight)
    # Where F/Z is the larger term of the diagonal, T·Δx loses fewer digits than (F/Z)(r − ω).
    bound = slack <= diagonals[0]
    diagonals[0] += slack
    system = np.zeros((min(3, slack.size), slack.size), order="F")
    for row, diagonal in zip(system, diagonals):
        row[: diagonal.size] = diagonal
    factor = cholesky_banded(system, overwrite_ab=True, lower=True, check_finite=False)

    def solve(r: Floats, g: Floats | None = None) -> tuple[Floats, Floats, Floats]:
        right = slack * r
        if g is not None:
            right += chain.inverse(g / weight)
        change = cho_solve_banded((factor, True), right, overwrite_b=True, check_finite=False)
        dx = chain.inverse(change)
        if g is not None:
            dx -= g
        dx /= weight
        df = chain.inverse(dx)
        np.copyto(df, slack * (r - change), where=bound)
        return df, change, dx

    return solve


def _factored_solver(factor: Floats, curvature: Floats, slack: Floats, x: Floats) -> Solver:
    """Factor the four equations once. ``factor`` is B, row k holding B[i, i−k] at column i; ``slack`` is F/Z."""
    size, factor, curvature = x.size, factor[: x.size], curvature[: x.size]
    entries = [(0, 0, 0, slack), (1, 1, 0, np.full(size, -1.0)), (3, 3, 0, np.full(size, -1.0))]
    for k, row in enumerate(factor):
        b, left = row[k:], x[: size - k]
        entries += [(0, 3, k, b), (1, 0, -k, b), (2, 1, k, b * left), (3, 2, -k, b * left)]
    for k, row in enumerate(curvature):
        y, left = row[: size - k], x[: size - k]
        entries += [(2, 2, k, -y * left * x[k:]), (2, 2, -k, -y * x[k:] * left)]
    reach = max(abs(4 * p + column - line) for line, column, p, _ in entries)
    band = np.zeros((3 * reach + 1, 4 * size), order="F")
    for line, column, p, values in entries:  # the p-th diagonal of a block of the four by four
        band[2 * reach + line - column - 4 * p, 4 * max(0, p) + column :: 4][: values.size] = values
    lu, pivots, info = dgbtrf(band, reach, reach, overwrite_ab=True)
    if info != 0:
        raise LinAlgError(f"the factored system is singular at unknown {info}")

    def solve(r: Floats, g: Floats | None = None) -> tuple[Floats, Floats, Floats]:
        right = np.zeros((size, 4))
        right[:, 0] = slack * r
        if g is not None:
            right[:, 2] = x * g
        solved, _ = dgbtrs(lu, reach, reach, right.ravel(), pivots, overwrite_b=True)
        change, _, dx, w = solved.reshape(size, 4).T
        df = np.zeros(size)
        for k, row in enumerate(factor):
            df[: size - k] += row[k:] * w[k:]
        # Δf = (F/Z)(r − ω) = Bᵀw: entry by entry, take the one whose terms are smaller
        df = np.where(slack * np.abs(r) < np.abs(factor[0] * w), slack * (r - change), df)
        return df, change, x * dx

    return solve
