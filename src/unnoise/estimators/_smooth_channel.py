"""The noise seen from the logarithm of a profile: forward, backward, and Newton's system.

On the runs of a body (:mod:`._smooth_grid`) let m = K f be the law of the noisy counts. With θ = log f, F = diag f,
M = diag m and d cells, the expected information of the cells about θ is d·F·Kᵀ·M⁻¹·K·F. The mode of a posterior with
Gaussian prior precision P, and its Laplace approximation, need A = P + G + d·F·Kᵀ·M⁻¹·K·F (G ≥ 0 diagonal): solves
with A, and log det A.

**Power 1** (:class:`BandedChannel`). Folding each run at both its ends, T = K⁻¹ is tridiagonal: inside
f[t] = m[t] − a/(1−a)²·(m[t−1] − 2m[t] + m[t+1]). As Kᵀ·M⁻¹·K = (T·M·Tᵀ)⁻¹, A is the Schur complement of

    [ P + G    d·F     ]
    [ d·F    −d·T·M·Tᵀ ],

which interleaved is banded, needs no division by a vanishing f, and yields det A = |det| / det(d·T·M·Tᵀ).

**Other powers** (:class:`DenseChannel`): the matrix of probabilities, and Cholesky's factor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve, solve_banded
from scipy.linalg.lapack import dgbtrf, dgbtrs

from ..noise import DiscreteLaplace
from ._smooth_grid import Body

__all__ = ["BandedChannel", "BodyChannel", "DenseChannel"]

Floats = NDArray[np.float64]
Bands = Sequence[Floats]
"""A symmetric banded matrix: entry k holds the k-th superdiagonal, N long, its last k entries unused."""

TINY = 1e-300


class BodyChannel(Protocol):
    """What a search for the mode asks of the channel of a body."""

    def forward(self, f: Floats) -> Floats:
        """M = K f, kept positive."""

    def backward(self, x: Floats) -> Floats:
        """Kᵀ x."""

    def newton(self, prior: Bands, f: Floats, m: Floats, gradient: Floats, cells: float) -> tuple[Floats, float]:
        """Return −A⁻¹·gradient and log det A, A = prior + d·F·Kᵀ·M⁻¹·K·F; raise LinAlgError where A is singular."""


class BandedChannel:
    """Power 1: every run folded at both its ends."""

    def __init__(self, body: Body, noise: DiscreteLaplace) -> None:
        a, gap = noise.a, -math.expm1(-noise.epsilon)
        size = np.array([high - low + 1 for low, high in body.runs])
        last = np.cumsum(size) - 1
        first = last - size + 1
        c = a / gap**2
        self.left = np.full(size.sum(), -c)
        self.right = np.full(size.sum(), -c)
        self.middle = np.full(size.sum(), 1 + 2 * c)
        long = size > 1
        self.middle[first] = self.middle[last] = np.where(long, 1 / gap, 1.0)
        self.left[first[long] + 1] = self.right[last[long] - 1] = -a / gap
        self.left[first] = self.right[last] = 0.0
        self.bands = self._banded(self.right, self.left)
        self.transposed = self._banded(self.left, self.right, shift=True)
        factor, _, _ = dgbtrf(np.vstack([np.zeros((1, self.left.size)), self.bands]), 1, 1)
        self.log_det_inverse = float(np.log(np.abs(factor[2])).sum())

    def _banded(self, upper: Floats, lower: Floats, shift: bool = False) -> Floats:
        bands = np.zeros((3, self.middle.size))
        bands[1] = self.middle
        # row t of T is (left[t], middle[t], right[t]); transposed, left[t+1] stands above the diagonal
        bands[0, 1:] = upper[1:] if shift else upper[:-1]
        bands[2, :-1] = lower[:-1] if shift else lower[1:]
        return bands

    def forward(self, f: Floats) -> Floats:
        """M = K f, kept positive."""
        return np.maximum(solve_banded((1, 1), self.bands, f, check_finite=False), TINY)

    def backward(self, x: Floats) -> Floats:
        """Kᵀ x."""
        return np.asarray(solve_banded((1, 1), self.transposed, x, check_finite=False))

    def newton(self, prior: Bands, f: Floats, m: Floats, gradient: Floats, cells: float) -> tuple[Floats, float]:
        """Return −A⁻¹·gradient and log det A, by banded LU of the interleaved system."""
        n, order = f.size, len(prior) - 1
        half = max(2 * order, 4)
        middle = 2 * half
        system = np.zeros((3 * half + 1, 2 * n))
        for k, band in enumerate(prior):
            system[middle - 2 * k, 2 * k :: 2] = band[: n - k]
            system[middle + 2 * k, 0 : 2 * (n - k) : 2] = band[: n - k]
        outer = self._outer(m)
        scale = 1 / np.sqrt(outer[0])
        for k in range(min(3, n)):
            band = -cells * outer[k][: n - k] * scale[: n - k] * scale[k:]
            system[middle - 2 * k, 2 * k + 1 :: 2] = band
            system[middle + 2 * k, 1 : 2 * (n - k) : 2] = band
        system[middle - 1, 1::2] = system[middle + 1, 0::2] = cells * f * scale
        factor, pivots, info = dgbtrf(system, half, half, overwrite_ab=1)
        if info != 0:
            raise LinAlgError("singular Newton system")
        right = np.zeros(2 * n)
        right[0::2] = -gradient
        step, _ = dgbtrs(factor, half, half, right, pivots)
        log_det = float(np.log(np.abs(factor[middle])).sum()) - n * math.log(cells) - 2 * float(np.log(scale).sum())
        return step[0::2], log_det - 2 * self.log_det_inverse - float(np.log(m).sum())

    def _outer(self, m: Floats) -> list[Floats]:
        """Superdiagonals of T·M·Tᵀ."""
        left, middle, right = self.left, self.middle, self.right
        zero = middle**2 * m
        zero[1:] += left[1:] ** 2 * m[:-1]
        zero[:-1] += right[:-1] ** 2 * m[1:]
        one = middle[:-1] * m[:-1] * left[1:] + right[:-1] * m[1:] * middle[1:]
        two = right[:-2] * m[1:-1] * left[2:]
        return [zero, one, two]


class DenseChannel:
    """Any power: the matrix P(noisy count = row | count)."""

    def __init__(self, body: Body, noise: DiscreteLaplace) -> None:
        counts, rows = body.counts, body.rows
        span = int(rows[-1] - rows[0]) + int(counts[-1] - counts[0]) + 1
        reach = min(noise.reach(1e-15), span)
        table = np.zeros(2 * reach + 3)
        table[1:-1] = noise.pmf(np.arange(-reach, reach + 1))
        self.matrix = table[np.clip(rows[:, None] - counts, -reach - 1, reach + 1) + reach + 1]

    def forward(self, f: Floats) -> Floats:
        """M = K f, kept positive."""
        return np.asarray(np.maximum(self.matrix @ f, TINY))

    def backward(self, x: Floats) -> Floats:
        """Kᵀ x."""
        return np.asarray(self.matrix.T @ x)

    def newton(self, prior: Bands, f: Floats, m: Floats, gradient: Floats, cells: float) -> tuple[Floats, float]:
        """Return −A⁻¹·gradient and log det A, by Cholesky's factor of A."""
        half = self.matrix * (f * math.sqrt(cells)) / np.sqrt(m)[:, None]
        a = half.T @ half
        n = f.size
        for k, band in enumerate(prior):
            at = np.arange(n - k)
            a[at, at + k] += band[: n - k]
            if k:
                a[at + k, at] += band[: n - k]
        factor = cho_factor(a, lower=True, overwrite_a=True, check_finite=False)
        log_det = 2 * float(np.log(np.diag(factor[0])).sum())
        return np.asarray(-cho_solve(factor, gradient, check_finite=False)), log_det
