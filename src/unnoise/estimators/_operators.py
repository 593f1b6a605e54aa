"""Channels with a banded inverse: one noise on any ascending points, several on stretches of consecutive counts.

**A chain** is one noise on any ascending set of points; its inverse is tridiagonal.

Symbols: points v_0 < v_1 < … , gaps L_i = v_{i+1} − v_i, q_i = e^(−ε·L_i), E_ij = a^|v_i − v_j|.

a^|s−t| is the covariance of a stationary Markov sequence, so on *every* set of points, however irregular, its
inverse T = E⁻¹ is tridiagonal:

    T_{i,i+1} = −q_i/(1−q_i²),     T_ii = 1 + q_{i−1}²/(1−q_{i−1}²) + q_i²/(1−q_i²)   (missing gaps: q = 0),

and E f takes two passes of positive numbers, each exact to rounding in every entry: the sequence predicts itself,
T = L·D·Lᵀ with L_ii = 1, L_{i+1,i} = −q_i and D_ii = 1/(1−q_i²) (1 at the end), hence x = E f from
F_i = f_i + q_{i−1}F_{i−1} and x_i = (1−q_i²)F_i + q_i·x_{i+1}. From the other end, T = BᵀB with B bidiagonal:
B_ii = 1/√(1−q_{i−1}²), B_{i,i−1} = −q_{i−1}·B_ii. Row sums b = T1 are
½tanh(ε·L_{i−1}/2) + ½tanh(ε·L_i/2), a missing gap counting as infinite.

**A comb** is an integer power ρ ≥ 1 on stretches of consecutive counts; its inverse has ρ diagonals to either side.

Symbols: p(n) the law of the noise, φ the coefficients of (1 − a·z)^ρ (φ_0 = 1), σ = (1−a)^ρ.

p is the covariance of an autoregressive sequence of order ρ: its spectrum is σ²/|φ|². Restricted to a stretch of
consecutive integers, the covariance matrix E has an inverse T = BᵀB of half-bandwidth ρ: row i of B holds the best
prediction of entry i from the ones before it, divided by its standard error (Siddiqui 1958). From entry ρ on that is
φ/σ; the predictions of lower order, φ^(ρ−1) to φ^(0), follow by Levinson's recursion backwards,

    φ^(k−1)_j = (φ^(k)_j − κ·φ^(k)_{k−j})/(1 − κ²),   variance^(k−1) = variance^(k)/(1 − κ²),   κ = φ^(k)_k.

1 − κ² is about ε, so this is done in as many decimals as it can lose.

A noisy count v outside the stretch is linear in the ρ nearest entries of x = E f, through the recursion
m(v) = −Σ_{k=1..ρ} φ_k·m(v ± k), because φ annihilates p on either side of 0. So nothing is truncated at 0, and no
constraint f[t<0] = 0 is needed: f lives on the stretch, the rows below it follow.

Stretches lie further apart than the noise reaches (p there is below rounding) and so do not interact.
E f is computed by ρ passes of a first-order filter in each direction: sums of positive numbers.

**Which counts may have mass**, and through which noisy counts they are seen.

*Power 1.* Fold the noisy counts into [0, n] (n the declared bound, if any). A maximum-likelihood profile has mass
on occupied folded values only: for t between neighbouring occupied values v and v', at distance s from v and L − s
from v', the column (a^|t−u|)_u is λ·column(v) + μ·column(v') with λ + μ = (a^s + a^(L−s))/(1 + a^L) ≤ 1, so moving
the mass of t to v and v' in the proportions λ : μ raises every m[u]. Beyond the last value a^(t−v)·column(v) is
smaller still. The same holds, with strictness, for the ℓ1 fit.

*Power ρ > 1.* p is unimodal, so mass beyond the first or last value of a group is dominated by mass at it. Inside a
group the optimum may lie between occupied values: all counts of the group are points. Groups further apart than the
noise reaches (tail 1e-18) do not interact, which is what keeps a few cells near 10¹² cheap. Noisy counts so far below
0 (or above the bound) that the square of their law underflows (1e-100) are moved to where it
does not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import Any, Protocol

import numpy as np
from scipy.linalg.lapack import dpttrs

from ..arrays import Floats, Int64
from ..errors import InputError
from ..noise import DiscreteLaplace

__all__ = [
    "BLOCK", "NEGLIGIBLE", "POINTS_LIMIT", "Chain", "Comb", "DiagonalSandwich", "Line", "Operator", "Stretch",
    "band_product", "clip_rows", "row_diagonals", "stretches_of",
]  # fmt: skip

BLOCK = 1 << 15
"""Entries handled at a time, so that intermediate results stay in the second-level cache."""

POINTS_LIMIT = 20_000_000
"""Most entries of the buffer that holds all stretches, with the noise's reach between them."""

NEGLIGIBLE = 1e-18
"""What is less likely than this is below rounding."""

IMPOSSIBLE = 1e-100
"""A noisy count less likely than this under every allowed profile is moved to where it is as likely."""


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

    transpose = apply
    """E is symmetric."""

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


@dataclass(frozen=True)
class Stretch:
    """Counts ``low``…``high`` that may have mass, seen through the noisy counts ``rows`` (ascending)."""

    low: int
    high: int
    rows: Int64

    @property
    def size(self) -> int:
        """Number of counts."""
        return self.high - self.low + 1


class Comb:
    """K f on stretches: rows are those of the stretches, one after the other.

    Examples
    --------
    >>> noise = DiscreteLaplace(1, 2)
    >>> comb = Comb([Stretch(0, 9, np.arange(-4, 14))], noise)
    >>> f = np.full(10, 0.1)
    >>> dense = noise.pmf(np.arange(-4, 14)[:, None] - np.arange(10))
    >>> bool(np.allclose(comb.apply(f), dense @ f, rtol=1e-13))
    True
    """

    def __init__(self, stretches: list[Stretch], noise: DiscreteLaplace) -> None:
        self.stretches, self.noise = stretches, noise
        self.order = int(noise.power)
        self.a = noise.a
        predictions = _predictions(noise)
        self.phi = predictions[-1][0]
        self.size = sum(s.size for s in stretches)
        self.starts = np.cumsum([0, *(s.size for s in stretches)])
        self._lay_out(noise.reach(1e-18))
        factors = [_factor_block(s.size, predictions) for s in stretches]
        self.inverse_factor = np.concatenate(factors, axis=1)
        self.inverse_band = np.concatenate([_squared(factor) for factor in factors], axis=1)
        self._outside = [self._outside_rows(k) for k in range(len(stretches))]
        widest = max((m.shape[1] for sides in self._outside for _, _, m in sides), default=1)
        self._curvature_rows = max(widest, 2)

    def _lay_out(self, pad: int) -> None:
        """Places of points and rows in one buffer, where stretches are kept ``pad`` apart."""
        offset, points, rows, row_points = 0, [], [], []
        for start, s in zip(self.starts, self.stretches):
            first = min(s.low, int(s.rows[0])) if s.rows.size else s.low
            last = max(s.high, int(s.rows[-1])) if s.rows.size else s.high
            points.append(np.arange(s.low, s.high + 1) - first + offset)
            rows.append(s.rows - first + offset)
            inside = (s.rows >= s.low) & (s.rows <= s.high)
            row_points.append(np.where(inside, s.rows - s.low + start, -1))
            offset += last - first + 1 + pad
        self._length = offset
        self._points, self._rows = np.concatenate(points), np.concatenate(rows)
        self._row_points = np.concatenate(row_points)
        self._inside = self._row_points >= 0

    def _filter(self, where: Int64, values: Floats, to: Int64) -> Floats:
        from scipy.signal import lfilter  # 0.8 s to import, for powers above 1 only

        buffer = np.zeros(self._length)
        buffer[where] = values
        gain, tail = [-math.expm1(-self.noise.epsilon)], [1.0, -self.a]
        for _ in range(self.order):
            buffer = lfilter(gain, tail, buffer)
        buffer = buffer[::-1]
        for _ in range(self.order):
            buffer = lfilter(gain, tail, buffer)
        return np.asarray(buffer[::-1][to])

    def apply(self, f: Floats) -> Floats:
        """K f at every row."""
        return self._filter(self._points, f, self._rows)

    def transpose(self, r: Floats) -> Floats:
        """Kᵀ r at every point."""
        return self._filter(self._rows, r, self._points)

    def points_of(self, m: Floats, f: Floats) -> Floats:
        """x = E f."""
        return self._filter(self._points, f, self._points)

    def rows_of(self, x: Floats) -> Floats:
        """m from x: rows inside are points, rows outside follow by the autoregression."""
        m = np.where(self._inside, x[self._row_points], 0.0)
        for sides in self._outside:
            for first, rows, matrix in sides:
                m[rows] = matrix @ x[first : first + matrix.shape[1]]
        return m

    def gather(self, r: Floats) -> Floats:
        """Cᵀ r, the transpose of :meth:`rows_of`."""
        pull = np.bincount(self._row_points[self._inside], weights=r[self._inside], minlength=self.size).astype(float)
        for sides in self._outside:
            for first, rows, matrix in sides:
                pull[first : first + matrix.shape[1]] += r[rows] @ matrix
        return pull

    def curvature(self, weight: Floats) -> Floats:
        """Second derivative in x of ½ Σ weight·m²: diagonal, plus a small block at the ends of a stretch."""
        band = np.zeros((self._curvature_rows, self.size))
        band[0] = np.bincount(
            self._row_points[self._inside], weights=weight[self._inside], minlength=self.size
        )
        for sides in self._outside:
            for first, rows, matrix in sides:
                block = matrix.T @ (weight[rows, None] * matrix)
                for k in range(block.shape[0]):
                    band[k, first : first + block.shape[0] - k] += np.diagonal(block, -k)
        return band

    def _outside_rows(self, k: int) -> list[tuple[int, Int64, Floats]]:
        """For rows left and right of a stretch: first point concerned, the rows, and their coefficients in x."""
        s, start = self.stretches[k], int(self.starts[k])
        row_start = sum(other.rows.size for other in self.stretches[:k])
        width = min(self.order, s.size)
        result = []
        for beyond, right in ((s.low - s.rows, False), (s.rows - s.high, True)):
            rows = np.flatnonzero(beyond > 0)
            if rows.size == 0:
                continue
            if s.size < self.order:
                law = self.noise.pmf(s.rows[rows, None] - np.arange(s.low, s.high + 1))
                law = law @ _dense(self.inverse_band[:, start : start + s.size])
                result.append((start, rows + row_start, law))
                continue
            table = _continuation(self.phi, int(beyond.max()))[beyond[rows] - 1]
            if right:
                result.append((start + s.size - width, rows + row_start, table[:, ::-1]))
            else:
                result.append((start, rows + row_start, table))
        return result


def _predictions(noise: DiscreteLaplace) -> list[tuple[Floats, float]]:
    """For k = 0…ρ: coefficients of x_i − (its best prediction from the k entries before), and the standard error."""
    order, epsilon = int(noise.power), noise.epsilon
    with localcontext() as context:
        context.prec = 40 + 4 * order * max(1, math.ceil(math.log10(10 / epsilon)))
        a = (-Decimal(epsilon.numerator) / epsilon.denominator).exp()
        phi = [math.comb(order, k) * (-a) ** k for k in range(order + 1)]
        variance = (1 - a) ** (2 * order)
        found = []
        for k in range(order, -1, -1):
            found.append((np.array(phi, dtype=float), float(variance.sqrt())))
            rest = 1 - phi[k] ** 2
            phi, variance = [(phi[j] - phi[k] * phi[k - j]) / rest for j in range(k)], variance / (rest if k else 1)
    return found[::-1]


def _factor_block(size: int, predictions: list[tuple[Floats, float]]) -> Floats:
    """B of one stretch, row k holding B[i, i−k] at column i."""
    order = len(predictions) - 1
    factor = np.zeros((order + 1, size))
    for i, (phi, error) in enumerate(predictions[:size]):
        factor[: i + 1, i] = phi / error
    phi, error = predictions[-1]
    factor[:, order:] = (phi / error)[:, None]
    return factor


def _squared(factor: Floats) -> Floats:
    """BᵀB in lower banded form. Signs alternate along rows of B, so nothing cancels."""
    height, size = factor.shape
    band = np.zeros((height, size))
    for k in range(height):
        # T[i+k, i] = Σ_j B[i+k+j, i+k]·B[i+k+j, i]
        for j in range(min(height - k, size - k)):
            band[k, : size - k - j] += factor[j, k + j :] * factor[k + j, k + j :]
    return band


def _continuation(phi: Floats, far: int) -> Floats:
    """Row j − 1: the coefficients of m(low − j) in m(low), m(low + 1), …, by the autoregression."""
    order = phi.size - 1
    table = np.zeros((far + order, order))
    table[far:] = np.eye(order)
    for j in range(far - 1, -1, -1):
        table[j] = -phi[1:] @ table[j + 1 : j + 1 + order]
    return np.asarray(table[:far][::-1])


def _dense(band: Floats) -> Floats:
    """A symmetric matrix from its lower banded form."""
    size = band.shape[1]
    matrix = np.diag(band[0])
    for k in range(1, min(band.shape[0], size)):
        matrix += np.diag(band[k, : size - k], -k) + np.diag(band[k, : size - k], k)
    return matrix


def stretches_of(
    rows: Int64, anchors: Int64, noise: DiscreteLaplace, bound: int | None, *, margin: int = 0, halo: int = 0
) -> list[Stretch]:
    """Group the anchors (counts, ascending) wherever the noise cannot reach across, and give each group its rows.

    ``margin`` widens every group on both sides, within [0, bound]; groups are kept 2·``halo`` apart at least, for
    callers that look at all rows up to that far from a group.
    """
    reach = max(noise.reach(NEGLIGIBLE), 2 * halo)
    top = np.iinfo(np.int64).max if bound is None else bound
    cuts = np.flatnonzero(np.diff(anchors) > reach + 2 * margin) + 1
    lows = np.maximum(anchors[np.r_[0, cuts]] - margin, 0)
    highs = np.minimum(anchors[np.r_[cuts, anchors.size] - 1] + margin, top)
    _refuse(int((highs - lows + 1).sum()) + reach * lows.size, noise)
    # a row belongs to the nearest group
    middle = highs[:-1] + (lows[1:] - highs[:-1]) // 2
    owner = np.searchsorted(middle, rows, side="left")
    ends = np.searchsorted(owner, np.arange(lows.size + 1))
    return [
        Stretch(int(low), int(high), rows[start:stop])
        for low, high, start, stop in zip(lows, highs, ends[:-1], ends[1:])
    ]


def clip_rows(rows: Int64, noise: DiscreteLaplace, bound: int | None) -> Int64:
    """Move rows that the noise cannot reach from [0, bound] to where the law is still a positive float."""
    reach = noise.reach(IMPOSSIBLE)
    return np.clip(rows, -reach, None if bound is None else bound + reach)


def _refuse(points: int, noise: DiscreteLaplace) -> None:
    if points > POINTS_LIMIT:
        raise InputError(
            f"counts within reach of the noise must number at most {POINTS_LIMIT:,} for this method at "
            f"{noise}, got {points:,}: use method='isotonic'"
        )


# ── banded matrices ───────────────────────────────────────────────────────────────────────────────────────────────────


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
        # entry (i + k, i) = Σ_j T[i+k, i+j]·d[i+j]·T[i+j, i], j from k − reach to reach, where both columns exist
        self._terms: list[list[tuple[int, Floats]]] = []
        for k in range(min(2 * reach, self.size - 1) + 1):
            rows = {j: np.arange(max(0, -j), self.size - max(k, j, 0)) for j in range(k - reach, reach + 1)}
            self._terms.append([(j, diagonals[j - k][i + k] * diagonals[j][i]) for j, i in rows.items()])

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
