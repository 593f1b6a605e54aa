"""Newton's system in its dual form (Cholesky), and unsquared (LU) where that form does not exist.

With D = Z/F, curvature Y (banded, in x = E f) and an optional banded penalty P, the unknowns ω (change of the
gradient), Δx and Δf = T·Δx solve

    ω + (D + P)·T·Δx = r,        T·ω − Y·Δx = g.

g is what the gradient changes by even if f stays: without it (0, the likelihood) T·ω = Y·Δx. Where there is one
(multipliers of slacks) it must not be moved into r as E g: ω would be a small number written as a difference of large
ones, and T·ω and Δx = Y⁻¹(T·ω − g) would lose as many digits.

**Dual form**, no penalty, Y > 0 diagonal: (D⁻¹ + T·Y⁻¹·T) ω = D⁻¹r + T·Y⁻¹·g, Δf = D⁻¹(r − ω) = T·Y⁻¹·(T·ω − g).

**Augmented form**, both equations at once, interleaved as ω_0, Δx_0, ω_1, Δx_1, …: banded. Δx is measured in units of x
(columns and second equations are scaled by x) and the first equations are divided by D, so that all entries are of one
order. Nothing is squared: the condition number is that of T, not of T².
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_solve_banded, cholesky_banded
from scipy.linalg.lapack import dgbtrf, dgbtrs

from ._chain import DiagonalSandwich, band_product, row_diagonals

__all__ = ["Solver", "augmented_solver", "dual_solver"]

Floats = NDArray[np.float64]
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
        np.copyto(df, slack * (r - change), where=bound)
        return df, change, dx

    return solve


def augmented_solver(
    inverse_band: Floats, curvature: Floats, penalty: Floats | None, slack: Floats, x: Floats
) -> Solver:
    """Factor both equations once. ``slack`` is F/Z."""
    size = x.size
    t = row_diagonals(inverse_band[:size])
    upper = t if penalty is None else _add(t, _row_scaled(_product(row_diagonals(penalty[:size]), t, size), slack))
    blocks = [
        (0, 0, {0: slack}),
        (0, 1, _column_scaled(upper, x)),
        (1, 0, _row_scaled(t, x)),
        (1, 1, {p: -v for p, v in _column_scaled(_row_scaled(row_diagonals(curvature[:size]), x), x).items()}),
    ]
    reach = max(abs(2 * p + column - row) for row, column, diagonals in blocks for p in diagonals)
    band = np.zeros((3 * reach + 1, 2 * size), order="F")
    for row, column, diagonals in blocks:
        for p, values in diagonals.items():
            i = np.arange(max(0, -p), size - max(0, p))
            band[2 * reach + row - column - 2 * p, 2 * (i + p) + column] = values[i]
    lu, pivots, info = dgbtrf(band, reach, reach)
    if info != 0:
        raise LinAlgError(f"the augmented system is singular at unknown {info}")

    def solve(r: Floats, g: Floats | None = None) -> tuple[Floats, Floats, Floats]:
        right = np.zeros(2 * size)
        right[0::2] = slack * r
        if g is not None:
            right[1::2] = x * g
        both, _ = dgbtrs(lu, reach, reach, right, pivots)
        change, dx = both[0::2], both[1::2] * x
        df = band_product(inverse_band, dx)
        if penalty is None:
            # Δf = (F/Z)(r − ω) = T·Δx: entry by entry, take the one whose terms are smaller
            df = np.where(slack * np.abs(r) < np.abs(inverse_band[0] * dx), slack * (r - change), df)
            return df, change, dx
        return df, change + band_product(penalty, df), dx

    return solve


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


def _product(first: dict[int, Floats], second: dict[int, Floats], size: int) -> dict[int, Floats]:
    """Row-indexed diagonals of the product of two banded matrices."""
    result: dict[int, Floats] = {}
    for p, left in first.items():
        for q, right in second.items():
            if abs(p + q) >= size:
                continue
            low, high = max(0, -p), size - max(0, p)
            total = result.setdefault(p + q, np.zeros(size))
            total[low:high] += left[low:high] * right[low + p : high + p]
    return result


def _add(first: dict[int, Floats], second: dict[int, Floats]) -> dict[int, Floats]:
    result = dict(second)
    for p, values in first.items():
        result[p] = result[p] + values if p in result else values
    return result
