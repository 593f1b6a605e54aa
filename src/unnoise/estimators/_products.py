"""Products of weights over sketches beside each other, averaged over all sets of s sites, in blocks of cells.

The weights of g(h) = z^h (:func:`~unnoise.estimators.linear.weights`) are a function of a noisy count that is constant
far out on either side, so a sketch is kept as an index into a short table: one byte a cell for z = 0. The sum over all
sets S of s sites of ∏_{j∈S} u_j is the elementary symmetric polynomial e_s, found by adding site after site.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..arrays import Floats, Int64
from ..noise import DiscreteLaplace
from ..noisy import NoisyCounts
from .linear import weights

__all__ = ["Coded", "Means"]

BLOCKS = 1024
"""Parts of the cells whose statistics are kept: covariances of answers are known to 1/√BLOCKS of themselves."""

RUN = 1 << 15
"""Cells worked on at a time: the polynomials of a run stay in the cache."""

LARGEST_SET = 32
"""Most sites in a set S: beyond it the noise of the product hides everything."""

ONCE = (0.0, 0.3, 0.6, 0.8, 0.9, 0.95)
"""z of the weights where an item is counted at most once a site; the last are next to the cross-moments."""

NEGLIGIBLE = 1e-12


class Coded:
    """A sketch reduced to what its weights depend on: one or two bytes a cell.

    noisy : its noisy profile, small
    """

    def __init__(self, sketch: NoisyCounts, *, once: bool = False) -> None:
        self.noisy, self.layout, self.once = sketch.profile(), sketch.layout, once
        noise, counts = sketch.noise, sketch.counts
        self.points = ONCE if once and sketch.layout.kind == "hashed" else ONCE[:1]
        far = 1 if len(self.points) == 1 else math.ceil(math.log(NEGLIGIBLE) / math.log(self.points[-1]))
        high = far + math.ceil(noise.power) + 1
        low = 0 if noise.power == 1 else max(int(self.noisy.values[0]), -noise.reach(NEGLIGIBLE))
        values = np.arange(min(low, high), high + 1)
        self.tables = np.array([_table(z, values, noise) for z in self.points])
        kind = np.uint8 if values.size <= 1 << 8 else np.uint32
        self.index = (np.clip(counts, values[0], values[-1]) - values[0]).astype(kind)

    def at(self, i: int, where: slice) -> Floats:
        """Return the weights of the i-th z in some cells."""
        found: Floats = self.tables[i][self.index[where]]
        return found

    def shares(self, cells: slice) -> Floats:
        """Return the mean weight over the cells, for every z."""
        tally = np.bincount(self.index[cells], minlength=self.tables.shape[1])
        return np.asarray(self.tables @ tally / (cells.stop - cells.start), dtype=np.float64)


def _table(z: float, values: Int64, noise: DiscreteLaplace) -> Floats:
    """Weights of g(h) = z^h at the noisy values; 0 at the last, which stands for all beyond."""
    largest = 400.0 / -math.log(z) if z > 0 else 1.0
    table = weights(lambda t: np.where(t == 0, 1.0, z ** np.minimum(t, largest).astype(float)), values, noise)
    table[-1] = 0.0
    return table


class Means:
    """Block means of the symmetric polynomials e_s of the weights, for every z, and of what normalises them."""

    def __init__(self, sketches: Sequence[Coded], cells: slice, hashed: bool) -> None:
        self.k, self.points, self.hashed = len(sketches), sketches[0].points, hashed
        self.sizes = list(range(1, min(self.k, LARGEST_SET) + 1))
        self.start, self.size = cells.start, cells.stop - cells.start
        self.single = np.array([sketch.shares(cells) for sketch in sketches]).T  # P₀(j), by z
        edges = np.linspace(0, self.size, min(BLOCKS, self.size) + 1).astype(np.int64)
        self.lengths = np.diff(edges).astype(float)
        self.first, self.symmetric = self._accumulate(sketches, edges)
        self.pairs = self._pair_overlaps(sketches)

    @property
    def roughness(self) -> float:
        """Relative standard error of the worst P₀(j), roughly: 2/√(cells left empty)."""
        least = float(self.single[0].min())
        return 2 / math.sqrt(least * self.size) if least * self.size > 1 else math.inf

    def _accumulate(self, sketches: Sequence[Coded], edges: Int64) -> tuple[Floats, Floats]:
        """Return block means of Σ_j u_j and of e_s(u), by z (and s)."""
        n, s = edges.size - 1, len(self.sizes)
        first = np.zeros((len(self.points), n))
        symmetric = np.zeros((len(self.points), s, n))
        run = max(1, RUN // max(int(self.lengths.max()), 1))
        for start in range(0, n, run):
            stop = min(start + run, n)
            where = slice(self.start + int(edges[start]), self.start + int(edges[stop]))
            offsets = edges[start:stop] - edges[start]
            for i in range(len(self.points)):
                added, polynomial = self._symmetric(sketches, i, where)
                first[i, start:stop] = np.add.reduceat(added, offsets)
                symmetric[i, :, start:stop] = np.add.reduceat(polynomial, offsets, axis=1)
        scale = np.array([math.comb(self.k, r) for r in self.sizes], dtype=float)[:, None]
        return first / self.lengths, symmetric / scale / self.lengths

    def _symmetric(self, sketches: Sequence[Coded], i: int, where: slice) -> tuple[Floats, Floats]:
        """Return Σ_j u_j and e_1 … e_s of the u_j in some cells."""
        s = len(self.sizes)
        polynomial = np.zeros((s + 1, where.stop - where.start))
        polynomial[0] = 1.0
        added = np.zeros(where.stop - where.start)
        for j, sketch in enumerate(sketches):
            u = sketch.at(i, where) / self._normal(i, j)
            added += u
            for r in range(min(j + 1, s), 0, -1):
                polynomial[r] += u * polynomial[r - 1]
        return added, polynomial[1:]

    def _normal(self, i: int, j: int) -> float:
        """What the weight of site j is divided by, never next to 0."""
        return max(float(self.single[i, j]), 1 / self.size) if self.hashed else 1.0

    def _pair_overlaps(self, sketches: Sequence[Coded]) -> Floats:
        """Return log E u_i u_j for all pairs of sites."""
        total = np.zeros((self.k, self.k))
        for start in range(self.start, self.start + self.size, RUN):
            where = slice(start, min(start + RUN, self.start + self.size))
            u = np.array([sketch.at(0, where) / self._normal(0, j) for j, sketch in enumerate(sketches)])
            total += u @ u.T
        mean = np.maximum(total / self.size, 1 / self.size)
        return np.asarray(np.log(mean) * (1 - np.eye(self.k)))
