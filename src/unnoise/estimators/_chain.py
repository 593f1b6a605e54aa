"""The channel of power 1 on any ascending set of points, and its tridiagonal inverse.

Symbols: points v_0 < v_1 < … , gaps L_i = v_{i+1} − v_i, q_i = e^(−ε·L_i), E_ij = a^|v_i − v_j|.

a^|s−t| is the covariance of a stationary Markov sequence, so on *every* set of points, however irregular, its
inverse T = E⁻¹ is tridiagonal:

    T_{i,i+1} = −q_i/(1−q_i²),     T_ii = 1 + q_{i−1}²/(1−q_{i−1}²) + q_i²/(1−q_i²)   (missing gaps: q = 0),

and E f takes two passes of positive numbers, each exact to rounding in every entry: the sequence predicts itself,
T = L·D·Lᵀ with L_ii = 1, L_{i+1,i} = −q_i and D_ii = 1/(1−q_i²) (1 at the end), hence x = E f from
F_i = f_i + q_{i−1}F_{i−1} and x_i = (1−q_i²)F_i + q_i·x_{i+1}. From the other end, T = BᵀB with B bidiagonal:
B_ii = 1/√(1−q_{i−1}²), B_{i,i−1} = −q_{i−1}·B_ii. Row sums b = T1 are
½tanh(ε·L_{i−1}/2) + ½tanh(ε·L_i/2), a missing gap counting as infinite.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
from scipy.linalg.lapack import dpttrs

from ..arrays import Floats, Int64
from ..noise import DiscreteLaplace

__all__ = ["Chain", "DiagonalSandwich", "Line", "Operator", "band_product", "row_diagonals"]


BLOCK = 1 << 15
"""Entries handled at a time, so that intermediate results stay in the second-level cache."""


class Operator(Protocol):
    """A channel m = K f whose square part x = E f has a banded inverse T.

    Where there are rows beyond the points of f (noisy counts below 0 for ρ > 1) they are linear in a few entries
    of x, so that the second derivative in x of any sum over rows stays banded.

    inverse_band : T in LAPACK's lower banded form, row k holding T[i+k, i] at column i
    inverse_factor : B with T = BᵀB, lower triangular, row k holding B[i, i−k] at column i
    """

    inverse_band: Floats
    inverse_factor: Floats

    def apply(self, f: Floats) -> Floats:
        """K f, one entry for every row of the data."""
        ...

    def transpose(self, r: Floats) -> Floats:
        """Kᵀ r, one entry for every point of f."""
        ...

    def points_of(self, m: Floats, f: Floats) -> Floats:
        """x = E f, given m = K f."""
        ...

    def rows_of(self, x: Floats) -> Floats:
        """m as a function of x: C x, K = C E."""
        ...

    def gather(self, r: Floats) -> Floats:
        """Cᵀ r: what Σ r·m pulls at x."""
        ...

    def curvature(self, weight: Floats) -> Floats:
        """Second derivative in x of ½ Σ weight·m², in lower banded form."""
        ...


class Chain:
    """E_ij = a^|v_i − v_j| on ascending points.

    Examples
    --------
    >>> chain = Chain(np.array([0, 1, 5, 10**12]), DiscreteLaplace(0.5))
    >>> f = np.array([0.5, 0.2, 0.2, 0.1])
    >>> bool(np.allclose(band_product(chain.inverse_band, chain.apply(f)), f, atol=1e-15))
    True
    """

    def __init__(self, points: Int64, noise: DiscreteLaplace) -> None:
        epsilon = float(noise.epsilon)
        exponent = epsilon * np.diff(points).astype(float)
        q = np.exp(-exponent)
        loss = -np.expm1(-2 * exponent)
        size = points.size
        self.inverse_band = np.zeros((2, size))
        self.inverse_band[0] = 1.0
        self.inverse_band[0, :-1] += q * q / loss
        self.inverse_band[0, 1:] += q * q / loss
        self.inverse_band[1, :-1] = -q / loss
        self.inverse_factor = np.zeros((2, size))
        self.inverse_factor[0] = np.append(1.0, 1 / np.sqrt(loss))
        self.inverse_factor[1, 1:] = -q / np.sqrt(loss)
        half = 0.5 * np.tanh(exponent / 2)
        self.row_sums = np.zeros(size)
        self.row_sums[:-1] += half
        self.row_sums[1:] += half
        self.row_sums[[0, -1]] += 0.5
        if size == 1:
            self.row_sums[0] = 1.0
        self._predicted, self._precision = -q, np.append(1 / loss, 1.0)

    def apply(self, f: Floats) -> Floats:
        """E f, accurate in every entry for f ≥ 0."""
        if f.size == 1:
            return f.copy()
        solved: Any = dpttrs(self._precision, self._predicted, f)[0]
        return np.asarray(solved)

    def transpose(self, r: Floats) -> Floats:
        """E r: the channel is symmetric."""
        return self.apply(r)

    def points_of(self, m: Floats, f: Floats) -> Floats:
        """Rows and points are the same here."""
        return m

    def rows_of(self, x: Floats) -> Floats:
        """Every row is a point."""
        return x

    def gather(self, r: Floats) -> Floats:
        """Every row is a point."""
        return r

    def curvature(self, weight: Floats) -> Floats:
        """Diagonal: every row is a point."""
        return weight[None, :]


class Line(Chain):
    """Power 1, unfolded: K f on points and on rows outside their hull, m(v) = a^distance·m(nearest end).

    Every row must be a point or lie outside the hull of the points.

    Examples
    --------
    >>> line = Line(np.array([0, 1, 5]), np.array([-2, 0, 1, 5]), DiscreteLaplace(1))
    >>> f = np.array([0.5, 0.2, 0.3])
    >>> law = DiscreteLaplace(1).pmf(np.array([-2, 0, 1, 5])[:, None] - np.array([0, 1, 5]))
    >>> bool(np.allclose(line.apply(f), law @ f, rtol=1e-14))
    True
    """

    def __init__(self, points: Int64, rows: Int64, noise: DiscreteLaplace) -> None:
        super().__init__(points, noise)
        self._scale = float(np.exp(noise.log_scale))
        self.inverse_band /= self._scale
        self.inverse_factor /= math.sqrt(self._scale)
        inside = np.clip(rows, points[0], points[-1])
        self._at = np.searchsorted(points, inside)
        self._decay = np.exp(-float(noise.epsilon) * np.abs(rows - inside).astype(float))

    def apply(self, f: Floats) -> Floats:
        """K f at every row."""
        return np.asarray((self._scale * super().apply(f))[self._at] * self._decay)

    def transpose(self, r: Floats) -> Floats:
        """Kᵀ r at every point."""
        return np.asarray(self._scale * super().apply(self.gather(r)))

    def points_of(self, m: Floats, f: Floats) -> Floats:
        """x = E f."""
        return np.asarray(self._scale * super().apply(f))

    def curvature(self, weight: Floats) -> Floats:
        """Diagonal: a row outside is a multiple of one entry of x."""
        return self.gather(weight * self._decay)[None, :]

    def rows_of(self, x: Floats) -> Floats:
        """Rows are multiples of the point nearest to them."""
        return np.asarray(x[self._at] * self._decay)

    def gather(self, r: Floats) -> Floats:
        """Rows pull at the point nearest to them."""
        return np.bincount(self._at, weights=r * self._decay, minlength=self.row_sums.size).astype(float)


def band_product(band: Floats, x: Floats) -> Floats:
    """Product of a symmetric matrix in lower banded form with a vector.

    >>> band_product(np.array([[2.0, 2, 2], [-1, -1, 0]]), np.array([1.0, 2, 3])).tolist()
    [0.0, 0.0, 4.0]
    """
    size = x.size
    result = np.empty(size)
    for begin in range(0, size, BLOCK):
        end = min(begin + BLOCK, size)
        part = band[0, begin:end] * x[begin:end]
        for k in range(1, min(band.shape[0], size)):
            low, high = max(begin, k), min(end, size - k)
            if low < end:
                part[low - begin :] += band[k, low - k : end - k] * x[low - k : end - k]
            if begin < high:
                part[: high - begin] += band[k, begin:high] * x[begin + k : high + k]
        result[begin:end] = part
    return result


class DiagonalSandwich:
    """d ↦ T·diag(d)·T in lower banded form, with the products of T's entries taken once.

    >>> t = np.array([[2.0, 2, 2], [-1, -1, 0]])
    >>> DiagonalSandwich(t)(np.ones(3)).tolist()
    [[5.0, 6.0, 5.0], [-4.0, -4.0, 0.0], [1.0, 0.0, 0.0]]
    """

    def __init__(self, band: Floats) -> None:
        self.size = band.shape[1]
        diagonals = row_diagonals(band[: self.size])
        reach = (len(diagonals) - 1) // 2
        # entry (i + k, i) = Σ_j T[i+k, i+j]·d[i+j]·T[i+j, i], j from k − reach to reach
        self._terms = [
            [(j, self._coefficient(diagonals, k, j)) for j in range(k - reach, reach + 1)]
            for k in range(min(2 * reach, self.size - 1) + 1)
        ]

    def _coefficient(self, diagonals: dict[int, Floats], k: int, j: int) -> Floats:
        """T[i+k, i+j]·T[i+j, i] over the columns i where both exist."""
        rows = np.arange(max(0, -j), self.size - max(k, j, 0))
        return np.asarray(diagonals[j - k][rows + k] * diagonals[j][rows])

    def __call__(self, d: Floats) -> Floats:
        """The band for one diagonal d, block by block so that what is added up stays in the cache."""
        band = np.empty((len(self._terms), self.size), order="F")
        row = np.empty(min(BLOCK, self.size))
        for begin in range(0, self.size, BLOCK):
            end = min(begin + BLOCK, self.size)
            for k, terms in enumerate(self._terms):
                row[:] = 0.0
                for j, coefficient in terms:
                    start = max(0, -j)
                    first, last = max(begin, start), min(end, start + coefficient.size)
                    if first < last:
                        part = coefficient[first - start : last - start] * d[first + j : last + j]
                        row[first - begin : last - begin] += part
                band[k, begin:end] = row[: end - begin]
        return band


def row_diagonals(band: Floats) -> dict[int, Floats]:
    """Row-indexed diagonals: result[p][i] = M[i, i+p], 0 outside the matrix."""
    size = band.shape[1]
    bands = {0: band[0].copy()}
    for k in range(1, band.shape[0]):
        lower, upper = np.zeros(size), np.zeros(size)
        if k < size:
            upper[:-k] = band[k, :-k]
            lower[k:] = band[k, :-k]
        bands[k], bands[-k] = upper, lower
    return bands
