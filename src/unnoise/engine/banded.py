"""The body of a noisy profile of a known domain, and one noise seen from the logarithm of the profile there.

**The body** is runs of counts dense enough to be smoothed. Around an occupied value v the *local number* is the number
of cells within ±w of it, w = 4·√ρ/ε (four noise scales). Where it reaches ``few`` (8) the value belongs to the body;
the body is the union of [v − w, v + w] over such v, cut to occupied values: a few *runs* of consecutive counts. Cells
outside are isolated, and what is known of such a cell is its noisy count. If the runs hold more than USUAL counts,
``few`` is doubled until they do not, so the cost is bounded whatever the largest count. If that leaves less than half
of the body's cells, as with counts spread evenly over a long range, the runs may hold FARTHEST counts; if that is not
enough either, there is no body.

A cell outside a run is left out of the run's likelihood, and its noise of reaching in is neglected: runs end where
cells are sparse, so that is a matter of single cells.

**The channel** goes forward, backward, and solves Newton's system. On the runs of a body let m = K f be the law of the
noisy counts. With θ = log f, F = diag f, M = diag m and d cells, the expected information of the cells about θ is
d·F·Kᵀ·M⁻¹·K·F. The mode of a posterior with Gaussian prior precision P, and its Laplace approximation, need
A = P + G + d·F·Kᵀ·M⁻¹·K·F (G ≥ 0 diagonal): solves with A, and log det A.

**One noise** (:class:`BandedChannel`). Folding each run at both its ends, T = K⁻¹ is tridiagonal: inside
f[t] = m[t] − a/(1−a)²·(m[t−1] − 2m[t] + m[t+1]). As Kᵀ·M⁻¹·K = (T·M·Tᵀ)⁻¹, A is the Schur complement of

    [ P + G    d·F     ]
    [ d·F    −d·T·M·Tᵀ ],

which interleaved is banded, needs no division by a vanishing f, and yields det A = |det| / det(d·T·M·Tᵀ).

Merged noise has no such inverse: :mod:`.fourier`.

.. [1] R. J. Vanderbei, "Symmetric quasidefinite matrices", SIAM J. Optim. 5, 1995.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError
from scipy.linalg.lapack import dgbtrf, dgbtrs, dpttrf, dpttrs

from ..arrays import Floats, Int64
from ..noise import DiscreteLaplace
from ..noisy import NoisyProfile, cells_between
from .channel import FARTHEST, SEVERAL, USUAL, Bands, Dense, Grid, State

__all__ = [
    "BandedChannel", "Body", "Few", "SeenLaw", "body_of", "dense_runs", "sandwich", "window_of",
]  # fmt: skip

Int32 = NDArray[np.int32]

TINY = 1e-300

STEEP = 2.0**36
"""Entry (i, j) of an interleaved system is multiplied by STEEP^(j−i), a similarity without rounding.

The system is quasi-definite: it can be eliminated in the order it has [1]_, and measured against 80 digits that is as
accurate as with row exchanges. LAPACK has no such banded routine, but with what is below the diagonal made this small
it finds nothing to exchange. That halves the time, as exchanges fill as many diagonals again.
"""


# ── the body ────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, eq=False)
class Body:
    """A noisy profile split at its body.

    runs : ascending, first and last count of each
    counts : all counts of the runs, ascending; tally : cells at each of them
    far_values, far_tally : the cells outside, at their noisy counts
    """

    runs: Int64
    counts: Int64
    tally: Int64
    far_values: Int64
    far_tally: Int64


def window_of(noise: DiscreteLaplace) -> int:
    """Counts to either side among which cells are close: four scales of the noise."""
    return max(2, math.ceil(4 * math.sqrt(noise.power) / noise.epsilon))


def dense_runs(values: Int64, tally: Int64, window: int, few: int = SEVERAL, limit: float = math.inf) -> Int64:
    """Return the runs of counts where at least ``few`` cells lie within ±window: first and last of each.

    few : doubled while the runs hold more than ``limit`` counts together

    >>> dense_runs(np.array([0, 1, 3, 500]), np.array([6, 6, 1, 1]), 4)
    array([[0, 3]])
    """
    near = cells_between(values, np.append(0, np.cumsum(tally)), values - window, values + window)
    while True:
        dense = values[near >= few]
        low, high = _joined(dense - window, dense + window)
        first, last = values[np.searchsorted(values, low)], values[np.searchsorted(values, high, "right") - 1]
        if (last - first + 1).sum() <= limit:
            return np.stack([first, last], axis=1)
        few *= 2


def _joined(low: Int64, high: Int64) -> tuple[Int64, Int64]:
    """Join ascending intervals, both ends included, that overlap or touch."""
    apart = low[1:] > high[:-1] + 1
    return low[np.append(True, apart)[: low.size]], high[np.append(apart, True)[: high.size]]


def body_of(noisy: NoisyProfile, bound: int | None) -> Body | None:
    """Split a noisy profile at its body; None where there is none.

    The noise is one: noisy counts are folded into [0, bound], and rows are counts.
    """
    window = window_of(noisy.noise)
    values, tally = noisy.folded(bound)
    before = np.append(0, np.cumsum(tally))
    at_first = cells_between(values, before, *dense_runs(values, tally, window).T).sum()
    for most in (USUAL, FARTHEST):
        dense = dense_runs(values, tally, window, limit=most)
        if dense.size and 2 * cells_between(values, before, *dense.T).sum() >= at_first:
            break
    else:
        return None
    low, high = dense.T
    low = np.where(low <= min(window, 8), 0, low)  # the first run begins at 0 where 0 is near,
    high = np.maximum(high, low + 3)  # and every run has a few counts, so that a walk can start on it
    runs = np.stack(_joined(low, high if bound is None else np.minimum(high, bound)), axis=1)
    counts = np.concatenate([np.arange(low, high + 1) for low, high in runs])
    inside, cells = np.isin(values, counts), np.zeros(counts.size, dtype=np.int64)
    cells[np.searchsorted(counts, values[inside])] = tally[inside]
    return Body(runs, counts, cells, values[~inside], tally[~inside])


# ── the channel ─────────────────────────────────────────────────────────────────────────────────────────────────────


def sandwich(left: Floats, middle: Floats, right: Floats, d: Floats) -> list[Floats]:
    """T·diag(d)·Tᵀ for a tridiagonal T: its diagonal and the two above it.

    left, middle, right : T[i, i−1], T[i, i] and T[i, i+1]

    >>> sandwich(np.array([0.0, -1, -1]), np.full(3, 2.0), np.array([-1.0, -1, 0]), np.ones(3))
    [array([5., 6., 5.]), array([-4., -4.]), array([1.])]
    """
    diagonal = middle**2 * d
    diagonal[1:] += left[1:] ** 2 * d[:-1]
    diagonal[:-1] += right[:-1] ** 2 * d[1:]
    beside = middle[:-1] * left[1:] * d[:-1] + right[:-1] * middle[1:] * d[1:]
    return [diagonal, beside, right[:-2] * left[2:] * d[1:-1]]


@dataclass(frozen=True, eq=False)
class SeenLaw(State):
    """A profile seen through a banded channel: the law m = K f besides."""

    law: Floats


class BandedChannel:
    """Power 1: every run folded at both its ends. A :class:`.channel.Channel`; y are the shares of the d cells."""

    widths, collide = 1.0, False

    def __init__(self, body: Body, noise: DiscreteLaplace) -> None:
        self.counts, self.exposure = body.counts, float(body.tally.sum())
        self.y = body.tally / self.exposure
        size = np.diff(body.runs)[:, 0] + 1
        position = np.concatenate([np.arange(each) for each in size])
        self.grid = Grid(body.counts.astype(float), position, body.counts.size, 1 / float(noise.epsilon), True)
        a, gap = noise.a, -math.expm1(-noise.epsilon)
        last = np.cumsum(size) - 1
        first = last - size + 1
        c = a / gap**2
        left, right, middle = np.full(size.sum(), -c), np.full(size.sum(), -c), np.full(size.sum(), 1 + 2 * c)
        long = size > 1
        middle[first] = middle[last] = np.where(long, 1 / gap, 1.0)
        left[first[long] + 1] = right[last[long] - 1] = -a / gap
        left[first] = right[last] = 0.0
        # the first and last row of a run, times 1 − a, make T symmetric, and it is positive definite
        self.ends = np.ones(size.sum())
        self.ends[first] = self.ends[last] = np.where(long, gap, 1.0)
        beside = (self.ends * right)[:-1] if size.sum() > 1 else np.zeros(1)
        self.diagonal, self.beside, _ = dpttrf(self.ends * middle, beside)
        self.log_det_inverse = float(np.log(self.diagonal).sum() - np.log(self.ends).sum())
        self.inverse = left, middle, right

    def at(self, mass: Floats) -> SeenLaw:
        """See masses; the total is Poisson, so they need not add up to 1: value = d·(Σ y·log m − Σ f)."""
        m = self.forward(mass)
        return SeenLaw(mass, self.exposure * float(self.y @ np.log(m) - mass.sum()), m)

    def pull(self, state: SeenLaw) -> Floats:
        """Kᵀ(y/m): one step of EM multiplies by it."""
        return np.asarray(self.ends * dpttrs(self.diagonal, self.beside, self.y / state.law)[0])

    def forward(self, f: Floats) -> Floats:
        """M = K f, kept positive."""
        m, _ = dpttrs(self.diagonal, self.beside, (f.T * self.ends).T)
        return np.asarray(np.maximum(m, TINY))

    def classes(self, state: SeenLaw, member: Floats) -> Floats:
        """Information about factors on classes of counts: d·(K·F·P)ᵀ·M⁻¹·(K·F·P)."""
        seen = self.forward(state.mass[:, None] * member)
        return np.asarray(self.exposure * seen.T @ (seen / state.law[:, None]))

    def only(self, counts: Int64) -> Few:
        """See masses at these counts alone."""
        unit, seen = np.zeros((self.counts.size, counts.size)), self.y > 0
        unit[np.searchsorted(self.counts, counts), np.arange(counts.size)] = 1.0
        return Few(self.forward(unit)[seen], self.y[seen], self.exposure)

    def hold(self, prior: Bands) -> Floats:
        """Put the prior into an interleaved system, steepened."""
        n, half = self.counts.size, max(2 * (len(prior) - 1), 4)
        middle = 2 * half
        system = np.zeros((3 * half + 1, 2 * n), order="F")
        for k, band in enumerate(prior):
            system[middle - 2 * k, 2 * k :: 2] = band[: n - k] * STEEP ** (2 * k)
            system[middle + 2 * k, 0 : 2 * (n - k) : 2] = band[: n - k] * STEEP ** (-2 * k)
        system[middle, 1::2] = -1.0
        return system

    def newton(self, held: Floats, curvature: Floats, state: SeenLaw, gradient: Floats) -> tuple[Floats, float]:
        """Return −A⁻¹·gradient and log det A, by banded elimination of the interleaved system.

        The second unknown of each count is scaled so that the diagonal of −d·T·M·Tᵀ is −1.
        """
        f, m = state.mass, state.law
        n, half = f.size, held.shape[0] // 3
        middle = 2 * half
        system = held.copy(order="F")
        system[middle, 0::2] += curvature
        outer = sandwich(*self.inverse, m)
        scale = 1 / np.sqrt(outer[0])
        for k in range(1, min(3, n)):
            band = outer[k] * scale[:-k] * scale[k:]
            system[middle - 2 * k, 2 * k + 1 :: 2] = band * -(STEEP ** (2 * k))
            system[middle + 2 * k, 1 : 2 * (n - k) : 2] = band * -(STEEP ** (-2 * k))
        beside = math.sqrt(self.exposure) * f * scale
        system[middle - 1, 1::2] = beside * STEEP
        system[middle + 1, 0::2] = beside / STEEP
        right = np.zeros(2 * n)
        right[0::2] = -gradient
        back, order = _flattened(half, 2 * n)
        factor, swaps, info = dgbtrf(system, half, half, overwrite_ab=1)
        if info != 0 or (swaps != order).any():
            raise LinAlgError("singular Newton system")
        factor *= back
        step, _ = dgbtrs(factor, half, half, right, swaps)
        pivots = factor[middle]
        log_det = float(np.log(np.abs(pivots[0::2] * pivots[1::2]) * (outer[0] / m)).sum())
        return step[0::2], log_det - 2 * self.log_det_inverse


@dataclass(frozen=True, eq=False)
class Few(Dense):
    """Masses at a few counts, through the noisy law of each (a column) at the occupied rows."""

    columns: Floats
    y: Floats
    exposure: float
    widths: float = 1.0

    def at(self, mass: Floats) -> SeenLaw:
        """See masses."""
        law = np.maximum(self.columns @ mass, TINY)
        return SeenLaw(mass, self.exposure * float(self.y @ np.log(law) - mass.sum()), law)

    def pull(self, state: SeenLaw) -> Floats:
        """Kᵀ(y/m)."""
        return np.asarray(self.columns.T @ (self.y / state.law))

    def information(self, state: SeenLaw) -> Floats:
        """d·F·Kᵀ·(Y/M²)·K·F, of the cells observed: rows without cells are not held."""
        half = self.columns * state.mass * (np.sqrt(self.y) / state.law)[:, None]
        return np.asarray(self.exposure * half.T @ half)


@lru_cache(maxsize=4)
def _flattened(half: int, size: int) -> tuple[Floats, Int32]:
    """STEEP^(i−j) at each entry of a banded matrix, and the order of its rows."""
    below = np.arange(3 * half + 1) - 2.0 * half
    back = np.asfortranarray(np.broadcast_to(STEEP ** below[:, None], (below.size, size)))
    return back, np.arange(size, dtype=np.int32)
