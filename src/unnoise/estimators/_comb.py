"""Several noises on stretches of consecutive counts: a channel with a banded inverse, beside the chain of one noise.

The inverse T of its square part E is known with a factor, T = BᵀB (docs/estimators.md, *likelihood*).

**A comb** is an integer power ρ ≥ 1 on stretches of consecutive counts. With φ the coefficients of (1 − a·z)^ρ
(φ_0 = 1) and σ = (1−a)^ρ, the law p of the noise is the covariance of an autoregressive sequence of spectrum σ²/|φ|².
On a stretch T has half-bandwidth ρ: row i of B holds the best prediction of entry i from the ones before it, divided by
its standard error (Siddiqui 1958). From entry ρ on that is φ/σ; the predictions of lower order, φ^(ρ−1) to φ^(0),
follow by Levinson's recursion backwards,

    φ^(k−1)_j = (φ^(k)_j − κ·φ^(k)_{k−j})/(1 − κ²),   variance^(k−1) = variance^(k)/(1 − κ²),   κ = φ^(k)_k.

1 − κ² is about ε, so this is done in as many decimals as it can lose. A noisy count v outside the stretch is linear in
the ρ nearest entries of x = E f, m(v) = −Σ_{k=1..ρ} φ_k·m(v ± k), because φ annihilates p on either side of 0. So
nothing is truncated at 0, and no constraint f[t<0] = 0 is needed. Stretches lie further apart than the noise reaches
and do not interact. E f is computed by ρ passes of a first-order filter in each direction: sums of positive numbers.

**Which counts may have mass.** p is unimodal, so mass beyond the first or last value of a group is dominated by mass at
it, but inside a group all counts are points. Groups further apart than the noise reaches (tail 1e-18) are stretches,
which is what keeps a few cells near 10¹² cheap. Noisy counts so far below 0 (or above the bound) that the square of
their law underflows (1e-100) are moved to where it does not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal, localcontext

import numpy as np

from ..arrays import Floats, Int64
from ..errors import InputError
from ..noise import DiscreteLaplace

__all__ = ["NEGLIGIBLE", "POINTS_LIMIT", "Comb", "Stretch", "clip_rows", "stretches_of"]

POINTS_LIMIT = 20_000_000
"""Most entries of the buffer that holds all stretches, with the noise's reach between them."""

NEGLIGIBLE = 1e-18
"""What is less likely than this is below rounding."""

IMPOSSIBLE = 1e-100
"""A noisy count less likely than this under every allowed profile is moved to where it is as likely."""


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
    """K f on stretches: rows are those of the stretches, one after the other. See :class:`.likelihood.Line`.

    >>> noise = DiscreteLaplace(1, 2)
    >>> comb = Comb([Stretch(0, 9, np.arange(-4, 14))], noise)
    >>> f = np.full(10, 0.1)
    >>> dense = noise.pmf(np.arange(-4, 14)[:, None] - np.arange(10))
    >>> bool(np.allclose(comb.apply(f), dense @ f, rtol=1e-13))
    True
    """

    def __init__(self, stretches: list[Stretch], noise: DiscreteLaplace) -> None:
        self.stretches, self.noise = stretches, noise
        self.order, self.size = int(noise.power), sum(s.size for s in stretches)
        self.starts = np.cumsum([0, *(s.size for s in stretches)])
        self._lay_out(noise.reach(NEGLIGIBLE))
        predictions = _predictions(noise)
        self.phi = predictions[-1][0]
        self.factor = np.concatenate([_factor_block(s.size, predictions) for s in stretches], axis=1)
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
        gain, tail = [-math.expm1(-self.noise.epsilon)], [1.0, -self.noise.a]
        for _ in range(2):  # forth and back
            for _ in range(self.order):
                buffer = lfilter(gain, tail, buffer)
            buffer = buffer[::-1]
        return np.asarray(buffer[to])

    def apply(self, f: Floats) -> Floats:
        """K f at every row."""
        return self._filter(self._points, f, self._rows)

    def transpose(self, r: Floats) -> Floats:
        """Kᵀ r at every point."""
        return self._filter(self._rows, r, self._points)

    def points_of(self, f: Floats) -> Floats:
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
                root = np.zeros((s.size, s.size))
                for k, b in enumerate(self.factor[: s.size]):
                    root += np.diag(b[start + k : start + s.size], -k)
                result.append((start, rows + row_start, law @ (root.T @ root)))
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


def _continuation(phi: Floats, far: int) -> Floats:
    """Row j − 1: the coefficients of m(low − j) in m(low), m(low + 1), …, by the autoregression."""
    order = phi.size - 1
    table = np.zeros((far + order, order))
    table[far:] = np.eye(order)
    for j in range(far - 1, -1, -1):
        table[j] = -phi[1:] @ table[j + 1 : j + 1 + order]
    return np.asarray(table[:far][::-1])


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
