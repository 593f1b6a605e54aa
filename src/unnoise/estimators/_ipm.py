"""A primal-dual interior point for likelihoods under a channel with a banded inverse.

:func:`maximise` solves, for data y ≥ 0 with Σy = 1 and channel K,

    maximise  Σ y·log m − Σ f      over f ≥ 0, with m = K f.

Scaling f shows that the masses add up to 1 at the optimum by themselves. With u = Kᵀ(y/m), it is where z = 1 − u ≥ 0,
f ≥ 0 and f∘z = 0.

**Newton's system.** Linearising f∘z = t and eliminating Δz leaves (KᵀYK + Z/F) Δf = t/f − (1 − u) =: r, Y = y/m²,
dense in f. In x = E f (T = E⁻¹ banded, Δf = TΔx) it is banded, in one of two equivalent forms:

* *dual* (every row occupied): (F/Z + T·Y⁻¹·T) ω = (F/Z) r, then Δf = (F/Z)(r − ω). Pentadiagonal for
  power 1, and accurate where T is ill-conditioned (ε = 0.001): small entries of f come out of a product, not of a
  difference;
* *factored* (the fallback, and the one for ρ > 1 or empty rows): in the factor of T, unsquared, by banded LU with
  pivoting (below).

Steps are Mehrotra's predictor and corrector [1]_. f and z stay positive, m and u are recomputed from f by positive
sums, hence the certificate below is that of the f returned, whatever the accuracy of the steps.

**Certificate.** The objective is concave and Σf* = 1, so for f scaled to Σf = 1 the distance to the optimum is at most
max u − 1 [2]_.

**Newton's system in full**, in its dual form (Cholesky), and factored (LU) where that form does not exist or does not
suffice. With D = Z/F and curvature Y (banded, in x = E f) the unknowns ω (change of the gradient), Δx and Δf = T·Δx
solve

    ω + D·T·Δx = r,        T·ω − Y·Δx = g.

g is what the gradient changes by even if f stays: without it (0, the likelihood) T·ω = Y·Δx. Where there is one
(multipliers of slacks) it must not be moved into r as E g: ω would be a small number written as a difference of large
ones, and T·ω and Δx = Y⁻¹(T·ω − g) would lose as many digits.

**Dual form**, Y > 0 diagonal: (D⁻¹ + T·Y⁻¹·T) ω = D⁻¹r + T·Y⁻¹·g, Δf = D⁻¹(r − ω) = T·Y⁻¹·(T·ω − g).

**Factored form.** T has condition number ((1+a)/(1−a))^(2ρ), 10¹⁴ at ε = 0.01 and ρ = 3: a system written with T loses
all digits. Its factor B, T = BᵀB, has the square root of that. With v = Bω and w = BΔx, and Δf = Bᵀw,

    ω + D·Bᵀw = r,      Bω = v,      Bᵀv − YΔx = g,      BΔx = w.

Interleaved as ω_0, v_0, Δx_0, w_0, ω_1, … this is banded. Δx is measured in units of x (columns and third equations are
scaled by x) and the first equations are divided by D, so that all entries are of one order.

.. [1] S. Mehrotra, "On the implementation of a primal-dual interior point method", SIAM J. Optim. 2, 1992.
.. [2] B. G. Lindsay, "The geometry of mixture likelihoods: a general theory", Ann. Statist. 11, 1983.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_solve_banded, cholesky_banded
from scipy.linalg.lapack import dgbtrf, dgbtrs

from ..arrays import Floats
from ._operators import BLOCK, DiagonalSandwich, Operator, band_product, row_diagonals

__all__ = ["Optimum", "Solver", "dual_solver", "factored_solver", "longest_step", "maximise"]

Solver = Callable[..., tuple[Floats, Floats, Floats]]
"""(r, g or nothing) ↦ (Δf, ω, Δx)."""


BACK_OFF = 0.99
"""Share of the way to the boundary that a step may take."""


SHORT = 0.1
"""Steps shorter than this are tried again without the second-order term."""

PATIENCE = 8
"""Iterations without progress before another form of the system is tried."""


@dataclass(frozen=True, eq=False)
class Optimum:
    """Where :func:`maximise` stopped.

    f : masses > 0, Σf = 1
    z : multipliers of f ≥ 0
    m : K f
    gap : certified upper bound of (optimal objective − objective of f)
    iterations : Newton systems solved
    converged : gap ≤ tolerance
    form : the form of Newton's system last used
    """

    f: Floats
    z: Floats
    m: Floats
    gap: float
    iterations: int
    converged: bool
    form: str


def maximise(
    y: Floats,
    channel: Operator,
    *,
    tolerance: float = 1e-9,
    max_iterations: int = 100,
) -> Optimum:
    """Maximise Σ y·log(K f) − Σ f over f ≥ 0.

    Parameters
    ----------
    y : array
        Shares of cells, one for every row of the channel, Σy = 1. Zeros are allowed.
    channel : Operator
        K and the banded inverse of its square part; :class:`._operators.Chain` for power 1.
    tolerance : float
        Wanted bound of the certified gap, in units of log-likelihood per cell.
    max_iterations : int
        Newton systems at most.

    Returns
    -------
    Optimum
        The best iterate by its certificate, converged or not: the caller must look.

    Examples
    --------
    >>> from unnoise.noise import DiscreteLaplace
    >>> from unnoise.estimators._operators import Chain
    >>> best = maximise(np.array([0.25, 0.5, 0.25]), Chain(np.arange(3), DiscreteLaplace(1)))
    >>> best.converged, best.f.round(6).tolist(), round(float(best.f.sum()), 9)
    (True, [0.0, 1.0, 0.0], 1.0)
    """
    newton = _Newton(y, channel)
    size = channel.inverse_band.shape[1]
    f, z = np.full(size, 1 / size), np.ones(size)
    best: Optimum | None = None
    patience, least = PATIENCE, np.inf
    for iteration in range(max_iterations + 1):
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            m = channel.apply(f)
            u = channel.transpose(np.divide(y, m, out=np.zeros_like(y), where=y > 0))
            scale = 1 / float(f.sum())
            gap = float(u.max() * float(f.sum()) - 1)  # certified for f·scale
        product = float(f @ z)
        # Progress is a smaller gap or smaller products f·z: early on the gap alone goes up and down.
        better = best is None or gap < 0.9 * best.gap or product < 0.9 * least
        patience, least = PATIENCE if better else patience - 1, min(least, product)
        if best is None or gap < best.gap:
            best = Optimum(f * scale, z, m * scale, gap, iteration, gap <= tolerance, newton.form)
        if best.converged or iteration == max_iterations:
            break
        if patience == 0:
            if not newton.fall_back():
                break
            patience, least, f, z = PATIENCE, np.inf, best.f, best.z
            continue
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            step = _step(newton, f, z, m, 1 - u)
        if step is None:
            if not newton.fall_back():
                break
            continue
        f, z = step
    assert best is not None
    return Optimum(best.f, best.z, best.m, best.gap, iteration, best.converged, newton.form)


def _step(
    newton: _Newton, f: Floats, z: Floats, m: Floats, gradient: Floats
) -> tuple[Floats, Floats] | None:
    """One predictor–corrector step towards z = ``gradient``, or None where the system could not be solved."""
    solve = newton.factor(f, z, m)
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
    steepest = min(
        float((dv[start : start + BLOCK] / v[start : start + BLOCK]).min()) for start in range(0, v.size, BLOCK)
    )
    return limit if steepest >= 0 or -1 / steepest > limit else -1 / steepest


class _Newton:
    """Factors Newton's system in the cheapest form that works."""

    def __init__(self, y: Floats, channel: Operator) -> None:
        self.y, self.channel = y, channel
        self.band = channel.inverse_band
        square = channel.curvature(y).shape[0] == 1
        self.form = "dual" if square and (y > 0).all() else "factored"
        if self.form == "dual":
            self.around = DiagonalSandwich(self.band)

    def fall_back(self) -> bool:
        """Go over to the factored form; False where that is already in use."""
        if self.form == "factored":
            return False
        self.form = "factored"
        return True

    def factor(self, f: Floats, z: Floats, m: Floats) -> Solver | None:
        weight = np.divide(self.y, m * m, out=np.zeros_like(m), where=self.y > 0)
        try:
            if self.form == "dual":
                return dual_solver(self.around, self.band, weight, f / z)
            x = self.channel.points_of(m, f)
            return factored_solver(self.channel.inverse_factor, self.channel.curvature(weight), f / z, x)
        except (LinAlgError, ValueError):
            return None


def dual_solver(around: DiagonalSandwich, inverse_band: Floats, weight: Floats, slack: Floats) -> Solver:
    """Factor the dual form once. ``slack`` is F/Z, ``weight`` Y."""
    system = around(1 / weight)
    # Where F/Z is the larger term of the diagonal, T·Δx loses fewer digits than (F/Z)(r − ω).
    bound = slack <= system[0]
    system[0] += slack
    factor = cholesky_banded(system, overwrite_ab=True, lower=True, check_finite=False)

    def solve(r: Floats, g: Floats | None = None) -> tuple[Floats, Floats, Floats]:
        right = slack * r
        if g is not None:
            right += band_product(inverse_band, g / weight)
        change = cho_solve_banded((factor, True), right, overwrite_b=True, check_finite=False)
        dx = band_product(inverse_band, change)
        if g is not None:
            dx -= g
        dx /= weight
        df = band_product(inverse_band, dx)
        for begin in range(0, df.size, BLOCK):
            part = slice(begin, begin + BLOCK)
            np.copyto(df[part], slack[part] * (r[part] - change[part]), where=bound[part])
        return df, change, dx

    return solve


def factored_solver(factor: Floats, curvature: Floats, slack: Floats, x: Floats) -> Solver:
    """Factor the four equations once. ``factor`` is B, row k holding B[i, i−k] at column i; ``slack`` is F/Z."""
    size = x.size
    lower = {-k: values for k, values in enumerate(factor[:size])}
    upper = {k: np.append(values[k:], np.zeros(k)) for k, values in enumerate(factor[:size])}
    ones = {0: np.full(size, -1.0)}
    bent = _column_scaled(_row_scaled(row_diagonals(curvature[:size]), -x), x)
    solve_both = _interleaved(
        [
            [{0: slack}, None, None, upper],
            [lower, ones, None, None],
            [None, _row_scaled(upper, x), bent, None],
            [None, None, _column_scaled(lower, x), ones],
        ],
        size,
    )

    def solve(r: Floats, g: Floats | None = None) -> tuple[Floats, Floats, Floats]:
        nothing = np.zeros(size)
        change, _, dx, w = solve_both([slack * r, nothing, nothing if g is None else x * g, nothing])
        df = sum((_shifted(values, w, k) for k, values in upper.items()), nothing)
        # Δf = (F/Z)(r − ω) = Bᵀw: entry by entry, take the one whose terms are smaller
        df = np.where(slack * np.abs(r) < np.abs(factor[0] * w), slack * (r - change), df)
        return df, change, x * dx

    return solve


def _interleaved(
    blocks: list[list[dict[int, Floats] | None]], size: int
) -> Callable[[list[Floats]], list[Floats]]:
    """Factor a square array of banded blocks, given by row-indexed diagonals, as one banded matrix."""
    count = len(blocks)
    entries = [
        (row, column, p, values)
        for row, line in enumerate(blocks)
        for column, block in enumerate(line)
        for p, values in (block or {}).items()
    ]
    reach = max(abs(count * p + column - row) for row, column, p, _ in entries)
    band = np.zeros((3 * reach + 1, count * size), order="F")
    for row, column, p, values in entries:
        i = np.arange(max(0, -p), size - max(0, p))
        band[2 * reach + row - column - count * p, count * (i + p) + column] = values[i]
    lu, pivots, info = dgbtrf(band, reach, reach, overwrite_ab=True)
    if info != 0:
        raise LinAlgError(f"the factored system is singular at unknown {info}")

    def solve(right: list[Floats]) -> list[Floats]:
        solved, _ = dgbtrs(lu, reach, reach, np.column_stack(right).ravel(), pivots, overwrite_b=True)
        return [solved[k::count] for k in range(count)]

    return solve


def _shifted(diagonal: Floats, x: Floats, p: int) -> Floats:
    """One diagonal's share of a product: M[i, i+p]·x[i+p], p ≥ 0."""
    return np.append(diagonal[: x.size - p] * x[p:], np.zeros(p))


def _row_scaled(diagonals: dict[int, Floats], scale: Floats) -> dict[int, Floats]:
    return {p: values * scale for p, values in diagonals.items()}


def _column_scaled(diagonals: dict[int, Floats], scale: Floats) -> dict[int, Floats]:
    size = scale.size
    result = {}
    for p, values in diagonals.items():
        shifted = np.zeros(size)
        low, high = max(0, -p), size - max(0, p)
        shifted[low:high] = values[low:high] * scale[low + p : high + p]
        result[p] = shifted
    return result
