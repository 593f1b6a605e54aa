"""Sketches beside each other: how many items occur at exactly t of k sites.

Symbols: k sketches with one hash seed (or one domain) and independent noises; v_j the noisy count of a cell in sketch
j; N_t the number of items that occur at exactly t of the sites, t = 1 … k, so that the union has Σ N_t items; m cells.

**One unbiased weight.** w(v) with E w(h + Z) = 1[h = 0] (:func:`~unnoise.estimators.linear.weights`) says of a cell of
one sketch whether anything fell into it. The noises are independent, so for a set S of sites the mean over cells of
∏_{j∈S} w(v_j) is unbiased for the share P₀(S) of cells that no site of S touched. Its variance grows with |S|
(1.78-fold a site at ε = ln 3), so small sets are known well and the union of many is not: what is known is averaged
over *all* sets of s sites, s = 1 … k, by elementary symmetric polynomials, and N is fitted to these averages.

**Known domain.** An item of t sites is touched by S with the probability that a random S meets t of k, so

    mean over S of P₀(S) = 1 − Σ_t N_t/d · (1 − C(k−t, s)/C(k, s)).

**Hashed.** Items fall into cells by themselves, P₀(S) = e^(−|∪S|/m), and averages should be of logarithms. With
u_j = w(v_j)/P₀(j), E ∏_{j∈S} u_j = exp(o(S)/m) where o(S) = Σ_{j∈S} |A_j| − |∪S| counts what S has in common: 0 for
disjoint sites, whatever their sizes. The statistics are Σ_j −log P₀(j) = Σ_t t·N_t/m, and for s ≥ 2

    log mean over S of exp(o(S)/m) ≈ Σ_t N_t/m · E(H − 1)⁺ + half the variance of o(S)/m over S,    H ~ hypergeometric,

the variance taken from the overlaps of pairs. Levels are parts of their own, each with its share of the items.

**Counted once.** Where every site counts an item at most once, the weights of g(h) = z^h serve as well, z in (0, 1): an
item of H sites of S has z^H − 1 + H(1 − z) in place of (H − 1)⁺. As z → 1 these are the cross-moments of the cells.

**Fit.** y = X·N with the covariance of y over the cells (of a known domain, where the items are the cells, less what
these differ by themselves), N = e^θ. θ_t − c·log C(k, t) is a Gaussian random walk in t of order 1 to 3 and eight
strengths: where items visit each site by chance, c is 1 if all have the same odds, and less the more these differ.
Perhaps no item is at more than 1, 2, 4, … sites, or every item is at all of them. The models are averaged by Laplace
evidence. The posterior is of Poisson means: for the items of this data set Σ N is subtracted from its variance
(docs/items.md). ``gains`` says how the answer moves with the statistics, and ``blocks`` what these are in parts of the
cells: together the covariance of any two answers. At three sites the statistics alone, without any prior, are as good
as Fisher's bound for whole cells (``benchmarks/sites.py``): what is gained beyond it is the prior's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import gammaln

from ..arrays import Floats
from ..errors import OverloadError
from ._gaussian_fit import fit_positive
from ._products import Coded, Means
from .collisions import level_shares

__all__ = ["Coded", "Together", "covariance", "side_by_side"]

ROUGHEST = 0.25
"""Statistics whose relative standard error is larger are left out: their logarithm would be biased."""

FIXED = 0.9
"""Most of a variance that may be due to the items themselves."""

LEFT = 0.05
"""Least of a variance that is due to the noise."""

DRAWS = 1024
"""Random sets S whose overlaps tell how much o(S) varies."""

DOUBT = 0.3
"""Share of the term for that variation which may be wrong: it is of second order, and from pairs only."""

CHANCE = (0.0, 0.5, 1.0)
"""c: how much of log C(k, t) is in the shape of log N_t."""

PRECISION = 1e-3
"""Relative error allowed to every formula, so that no combination of statistics is believed beyond it."""


@dataclass(frozen=True, eq=False)
class Together:
    """What sketches beside each other say of the items they have in common.

    items : N_t for t = 1 … k
    covariance : of these, for the items of this data set
    plain_variance : of Σ N_t from the product of all sites' weights alone, without any prior; inf where it says nothing
    gains : derivative of N by the statistics
    blocks : influence of each block of cells on the statistics, summing to 0
    """

    items: Floats
    covariance: Floats
    plain_variance: float
    gains: Floats
    blocks: Floats

    @property
    def reach(self) -> float:
        """Number of items that occur anywhere."""
        return float(self.items.sum())

    @property
    def stderr(self) -> float:
        """Standard error of :attr:`reach`."""
        return math.sqrt(max(float(self.covariance.sum()), 0.0))

    @cached_property
    def influences(self) -> Floats:
        """How every block of cells moves N_t: k × blocks."""
        return np.asarray(self.gains @ self.blocks)


def covariance(left: Floats, right: Floats) -> Floats:
    """Return the covariance of answers out of their influences, answers × blocks each."""
    blocks = left.shape[-1]
    return np.asarray(left @ right.T * (blocks / max(blocks - 1, 1)), dtype=np.float64)


def side_by_side(sketches: Sequence[Coded]) -> Together:
    """Fit the number of items at exactly t of the sites."""
    layout, k = sketches[0].layout, len(sketches)
    hashed = layout.kind == "hashed"
    seen = level_shares(layout.levels) if hashed else np.array([float(layout.rate or 1)])
    size = layout.cells // layout.levels
    parts = []
    for level in range(layout.levels):
        means = Means(sketches, slice(level * size, (level + 1) * size), hashed)
        if not hashed or means.roughness < ROUGHEST:
            parts.append((_hashed_part if hashed else _known_part)(means, float(seen[level]) / size))
    if not parts:
        raise OverloadError(
            "items and noise must leave some cells of every sketch recognisably empty to be told apart beside each "
            "other: more cells or a larger epsilon would do"
        )
    return _together(parts, k, hashed, 1 / float(layout.rate or 1))


@dataclass(frozen=True, eq=False)
class _Part:
    """Statistics of a level: y ≈ X·N, their influences by block, the variance of Σ N by all sites' product alone, and
    how far the formulas themselves may be off."""

    y: Floats
    design: Floats
    blocks: Floats
    plain_variance: float
    errors: Floats
    cells: float

    @property
    def covariance(self) -> Floats:
        """Of the statistics."""
        return covariance(self.blocks, self.blocks) + np.diag(self.errors**2)


def _hashed_part(means: Means, scale: float) -> _Part:
    """Statistics of hashed cells: sums of −log P₀(j), and logarithms of the normalised products."""
    k, rows, design, blocks, errors = means.k, [], [], [], []
    t = np.arange(1, k + 1)
    plain = math.inf
    share = means.lengths / means.size
    for i, z in enumerate(means.points):
        added = means.first[i] - k
        rows.append(-float(np.log(np.maximum(means.single[i], 1 / means.size)).sum()))
        errors.append(PRECISION * rows[-1])
        design.append(t * (1 - z))
        blocks.append(-added * share)
        for r, s in enumerate(means.sizes[1:], start=1):
            values = means.symmetric[i, r]
            mean = float(values @ share)
            if mean <= 0:
                continue
            influence = (values - mean) * share / mean - s / k * added * share
            if math.sqrt(float(influence @ influence)) > ROUGHEST:
                continue
            excess = math.log(mean)
            spread = 0.5 * (excess * _variation(means.pairs, s)) ** 2
            rows.append(excess - spread)
            errors.append(math.hypot(DOUBT * spread, PRECISION * excess))
            design.append(_common(k, s, z))
            blocks.append(influence)
            if s == k and z == 0:
                whole = influence + added * share
                plain = float(whole @ whole)
    variance = plain / scale**2 if k > 1 else float(np.square(blocks[0]).sum()) / scale**2
    return _Part(np.array(rows), scale * np.array(design), np.array(blocks), variance, np.array(errors), 1 / scale)


def _known_part(means: Means, scale: float) -> _Part:
    """Statistics of a known domain: the averages of P₀(S) themselves."""
    k, share = means.k, means.lengths / means.size
    rows, design, blocks = [], [], []
    for r, s in enumerate(means.sizes):
        values = means.symmetric[0, r]
        mean = float(values @ share)
        rows.append(1 - mean)
        design.append([1 - math.comb(k - t, s) / math.comb(k, s) for t in range(1, k + 1)])
        blocks.append(-(values - mean) * share)
    last = np.array(blocks[-1])
    plain = float(last @ last) / scale**2 if means.sizes[-1] == k else math.inf
    return _Part(np.array(rows), scale * np.array(design), np.array(blocks), plain, np.zeros(len(rows)), 1 / scale)


def _common(k: int, s: int, z: float) -> Floats:
    """Return E[z^H − 1 + H(1 − z)] for H of t sites in a random set of s out of k, for t = 1 … k.

    >>> _common(2, 2, 0.0).tolist()
    [0.0, 1.0]
    """
    found = np.zeros(k)
    for t in range(1, k + 1):
        for h in range(max(0, s - (k - t)), min(t, s) + 1):
            chance = math.comb(t, h) * math.comb(k - t, s - h) / math.comb(k, s)
            found[t - 1] += chance * (z**h - 1 + h * (1 - z))
    return found


def _variation(pairs: Floats, s: int) -> float:
    """Return the coefficient of variation of what random sets of s sites have in common, pair by pair."""
    k = pairs.shape[0]
    if s >= k:
        return 0.0
    order = np.random.default_rng(s).random((DRAWS, k)).argsort(axis=1)[:, :s]
    inside = np.zeros((DRAWS, k))
    np.put_along_axis(inside, order, 1.0, axis=1)
    common = np.einsum("di,ij,dj->d", inside, pairs, inside)
    mean = float(common.mean())
    return float(common.std()) / mean if mean > 0 else 0.0


def _together(parts: list[_Part], k: int, hashed: bool, per_item: float) -> Together:
    """Fit all parts at once and put the answer together."""
    t = np.arange(1, k + 1)
    at = ((k + 0.5) / 1.5) ** ((t - 1) / max(k - 1, 1))  # equal steps between the logarithms of 1½ and k + ½
    by_chance = gammaln(k + 1) - gammaln(t + 1) - gammaln(k - t + 1)
    shapes = [share * (by_chance - by_chance.mean()) for share in (CHANCE if k > 1 else CHANCE[:1])]
    fitted = fit_positive([(part.y, part.design, part.covariance) for part in parts], at, shapes, _supports(k))
    if hashed:
        cov = fitted.covariance
        fixed = np.minimum(fitted.mean, FIXED * np.diag(cov))  # the items of this data set are what they are
        fixed *= min(1.0, FIXED * float(cov.sum()) / max(float(fixed.sum()), 1e-300))
        cov = cov - np.diag(fixed)
    else:
        (part,) = parts
        fitted = fit_positive([(part.y, part.design, _noise_alone(part, fitted.mean, k))], at, shapes, _supports(k))
        cov = fitted.covariance + (per_item - 1) * np.diag(fitted.mean)  # items that were never looked at
    width = max(part.blocks.shape[1] for part in parts)
    padded = [np.pad(part.blocks, ((0, 0), (0, width - part.blocks.shape[1]))) for part in parts]
    known = sum(1 / part.plain_variance for part in parts)
    plain = 1 / known if known else math.inf
    return Together(fitted.mean, cov, plain, fitted.gains, np.concatenate(padded))


def _supports(k: int) -> list[Floats]:
    """Return where N_t may be positive: anywhere; up to 1, 2, 4, … sites; at all of them only.

    >>> [support.tolist() for support in _supports(3)]
    [[1.0, 1.0, 1.0], [1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    t = np.arange(1, k + 1)
    fewer = [t <= 2**i for i in range(k.bit_length()) if 2**i < k]
    return [support.astype(np.float64) for support in [t > 0, *fewer, *([t == k] if k > 1 else [])]]


def _noise_alone(part: _Part, items: Floats, k: int) -> Floats:
    """Return the covariance of the statistics of a known domain without what the cells differ by themselves."""
    touched = np.pad(part.design * part.cells, ((0, 0), (1, 0)))  # share of the sets that touch an item of t sites
    share = items / part.cells
    share = np.concatenate([[max(0.0, 1 - share.sum())], share])
    mean = touched @ share
    cells = (touched * share) @ touched.T - np.outer(mean, mean)
    values, vectors = np.linalg.eigh(part.covariance - FIXED * cells / part.cells)
    least = LEFT * np.einsum("ij,ik,kj->j", vectors, part.covariance, vectors)
    return np.asarray((vectors * np.maximum(values, least)) @ vectors.T)
