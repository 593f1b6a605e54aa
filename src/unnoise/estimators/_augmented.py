"""Newton's system in its dual form (Cholesky), and factored (LU) where that form does not exist or does not suffice.

With D = Z/F and curvature Y (banded, in x = E f) the unknowns ω (change of the gradient), Δx and Δf = T·Δx solve

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
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import LinAlgError, cho_solve_banded, cholesky_banded
from scipy.linalg.lapack import dgbtrf, dgbtrs

from ..arrays import Floats
from ._chain import BLOCK, DiagonalSandwich, band_product, row_diagonals

__all__ = ["Solver", "dual_solver", "factored_solver"]

Solver = Callable[..., tuple[Floats, Floats, Floats]]
"""(r, g or nothing) ↦ (Δf, ω, Δx)."""


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
