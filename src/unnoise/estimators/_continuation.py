"""Below 0 a count cannot be: the continuation of g that gives its unbiased estimate the least variance.

For integer powers ρ > 1 (ρ = 1 folds, which does the same; a fractional ρ goes on as a straight line).

w is unbiased for g if Σ_v p(v − h)·w(v) = g(h) for every count h ≥ 0, p the law of the noise. That leaves w free where
no count can be: w = D^ρ G is unbiased for *every* G that equals g at 0, 1, 2, … (:mod:`unnoise.estimators.linear`).
Which G is taken decides the variance Σ_v m(v)·w(v)², m(v) the mean number of cells at v: D^ρ amplifies a kink at 0 by
κ^ρ, κ = a/(1−a)².

The choice moves w at v ≤ ρ − 1 only. There the least variance among all unbiased weights is the
Gauss–Markov solution: √m·w lies in the span of the rows p(v − h)/√m(v), so from any unbiased w the best one is its
projection onto that span. Below 0 the rows are a^|v| times polynomials of degree < ρ, so ρ of them are all.
Constants keep their weights, 1 everywhere.

m is not known, and only the variance depends on it: the folded noisy counts, blurred once more by p, stand in. Measured
(10,000 cells, ρ = 2…8, ε = 0.05…1): the standard error is at most 1.004 times that of the true m.

Numerically the projection is as good as w is small compared with what it makes of it; where rounding would show (high
powers of strong noise, whose intervals say nothing) w is kept as it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..arrays import Floats, Int64
from ..noise import DiscreteLaplace

__all__ = ["DEGREES", "Continuation", "continued"]

DEGREES = (0, 1, 2, 3, 4)
"""Polynomials below 0 among which a start is chosen; sums of powers are exact with theirs."""

FEWEST = 30
"""Cells below which m is not known well enough: a straight line is then as good."""

WIDEST = 1 << 16
"""Longest reach below 0 that is laid out."""

POINTS = 256
"""Places at which the noisy counts are taken to stand when m is worked out."""

FAINTEST = 600.0
"""ε·ρ up to which noise of −ρ, e^(−ε·ρ), is a number a float can hold; beyond it no noise is ever seen."""

TAIL = 1e-12
"""Noise beyond the reach of this probability below 0 is counted at its end."""

ROUNDING = 1e-13
"""Directions smaller than this share of the largest are rounding."""

VISIBLE = 0.01
"""Share of a standard error that rounding may come to."""


@dataclass(frozen=True, eq=False)
class Continuation:
    """The noisy values low..top, where weights may be chosen, and the directions that unbiasedness fixes.

    root : √m on low..top
    rows : orthonormal directions that a projection keeps
    exact : whether these are all there are
    cells : number of cells behind m
    """

    low: int
    top: int
    root: Floats
    rows: Floats
    exact: bool
    cells: int

    @staticmethod
    def exists(noise: DiscreteLaplace, cells: int) -> bool:
        """Whether there is one: for integer powers above 1, cells enough, and noise that can be laid out."""
        if noise.power == 1 or noise.power.denominator > 1 or cells < FEWEST:
            return False
        return float(noise.epsilon) * int(noise.power) <= FAINTEST and noise.reach(TAIL) <= WIDEST

    @classmethod
    def of(cls, values: Int64, tally: Int64, noise: DiscreteLaplace) -> Continuation:
        """Make the continuation for cells with these noisy counts."""
        times = int(noise.power)
        low, top = -max(noise.reach(TAIL), times), times - 1
        x = np.arange(low, top + 1)
        law = noise.pmf(np.arange(x.size + 2 * top - 2 * low + 2))
        root = np.sqrt(_blurred(x, values, tally, law))
        counts = np.arange(times) * min(max(1, round(1 / float(noise.epsilon))), 2 * (top - low) // times)
        rows = law[np.abs(x - counts[:, None])] / root
        _, size, directions = np.linalg.svd(rows / np.linalg.norm(rows, axis=1, keepdims=True), full_matrices=False)
        kept = size > ROUNDING * size[0]
        return cls(low, top, root, directions[kept], bool(kept.all()), int(tally.sum()))

    def least(self, weights: Floats) -> Floats:
        """Return the weights on low..top (last axis) of least variance with the same means."""
        scaled = weights * self.root
        found = (scaled @ self.rows.T) @ self.rows
        error = ROUNDING * np.abs(scaled).max(axis=-1) * math.sqrt(max(self.cells, 1))
        visible = error > VISIBLE * np.sqrt((found**2).sum(axis=-1))
        better = np.where(visible[..., None] | (not self.exact), scaled, found)
        return np.asarray(better / self.root)

    def size(self, weights: Floats) -> float:
        """√(Σ m·w²): what makes one continuation better than another."""
        return float(np.linalg.norm(weights * self.root))


def _blurred(x: Int64, values: Int64, tally: Int64, law: Floats) -> Floats:
    """Mean number of cells at x, were the counts the folded noisy counts (and one more cell at 0)."""
    reach = law.size - 1 - int(np.abs(x).max())
    near = values <= reach
    counts = np.append(np.maximum(values[near], 0), 0)
    cells = np.append(tally[near], 1).astype(float)
    edges = np.unique(np.linspace(0, reach + 1, POINTS + 1).astype(np.int64))
    group = np.searchsorted(edges, counts, side="right") - 1
    weight = np.bincount(group, weights=cells)
    some = np.flatnonzero(weight)
    places = np.rint(np.bincount(group, weights=cells * counts)[some] / weight[some]).astype(np.int64)
    return np.asarray(weight[some] @ law[np.abs(x - places[:, None])])


def continued(head: Floats, x: Int64, degree: int) -> Floats:
    """The polynomial of this degree through head = g(0), g(1), …, at negative x: Newton's forward differences.

    >>> continued(np.array([0.0, 1.0, 4.0, 9.0]), np.array([-3, -1]), 2)
    array([9., 1.])
    """
    result, binomial, step = np.zeros(x.size), np.ones(x.size), head
    for k in range(degree + 1):
        result += step[0] * binomial
        binomial = binomial * (x - k) / (k + 1)
        step = np.diff(step)
    return result
