"""Sketches beside each other: how many items occur at exactly t of k sites.

Symbols: k sketches with one hash seed (or one domain) and independent noises; v_j the noisy count of a cell in sketch
j; N_t the number of items that occur at exactly t of the sites, t = 1 … k, so that the union has Σ N_t items; m cells.

**One unbiased weight.** w(v) with E w(h + Z) = 1[h = 0] (:func:`~unnoise.estimators.linear.weights`) says of a cell of
one sketch whether anything fell into it. The noises are independent, so for a set S of sites the mean over cells of
∏_{j∈S} w(v_j) is unbiased for the share P₀(S) of cells that no site of S touched. Its variance grows with |S|
(1.78-fold a site at ε = ln 3), so small sets are known well and the union of many is not: what is known is averaged
over *all* sets of s sites, s = 1 … k, by elementary symmetric polynomials, and N is fitted to these averages.

**In blocks of cells.** The weights of g(h) = z^h are a function of a noisy count that is constant far out on either
side, so a sketch is kept as an index into a short table: one byte a cell for z = 0. The sum over all sets S of s sites
of ∏_{j∈S} u_j is the elementary symmetric polynomial e_s, found by adding site after site.

**Known domain.** An item of t sites is touched by S with the probability that a random S meets t of k, so

    mean over S of P₀(S) = 1 − Σ_t N_t/d · (1 − C(k−t, s)/C(k, s)).

The cells are the items, and only the noise is random: its law gives the covariance of the averages for a cell of t
sites, as E w² is known for an item that is not there and read off the cells for those that are. From the sample it
could not be had of few cells: of the averages over many sets most is in a cell or two.

**Hashed.** Items fall into cells by themselves, P₀(S) = e^(−|∪S|/m), and averages should be of logarithms. With
u_j = w(v_j)/P₀(j), E ∏_{j∈S} u_j = exp(o(S)/m) where o(S) = Σ_{j∈S} |A_j| − |∪S| counts what S has in common: 0 for
disjoint sites, whatever their sizes. The statistics are Σ_j −log P₀(j) = Σ_t t·N_t/m, and for s ≥ 2

    log mean over S of exp(o(S)/m) ≈ Σ_t N_t/m · E(H − 1)⁺ + half the variance of o(S)/m over S,    H ~ hypergeometric,

the variance taken from the overlaps of pairs. Levels are parts of their own, each with its share of the items.

**Counted once.** Where every site counts an item at most once, the weights of g(h) = z^h serve as well, z in (0, 1): an
item of H sites of S has z^H − 1 + H(1 − z) in place of (H − 1)⁺. As z → 1 these are the cross-moments of the cells.

**Fit.** y = X·N with the covariance of y over the cells (of a known domain by the law of the noise), N = e^θ.
θ_t − c·log C(k, t) is a Gaussian random walk in t of order 1 to 3 and eight strengths: where items visit each site by
chance, c is 1 if all have the same odds, and less the more these differ. Perhaps no item is at more than 1, 2, 4, …
sites, or every item is at all of them. The models are averaged by Laplace evidence. The posterior is of Poisson means:
for the items of this data set Σ N is subtracted from its variance (docs/items.md). ``gains`` says how the answer moves
with the statistics, and ``blocks`` what these are in parts of the cells: together the covariance of any two answers. At
three sites the statistics alone, without any prior, are as good as Fisher's bound for whole cells
(``benchmarks/sites.py``): what is gained beyond it is the prior's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import gammaln

from ..arrays import Floats, Int64
from ..engine.channel import one_thread
from ..errors import OverloadError
from ..noise import DiscreteLaplace
from ..noisy import NoisyCounts
from ._gaussian_fit import fit_positive
from .collisions import level_shares
from .linear import weights

__all__ = ["Coded", "Means", "Together", "covariance", "side_by_side"]

BLOCKS = 1024
"""Parts of the cells whose statistics are kept: covariances of answers are known to 1/√BLOCKS of themselves."""

RUN = 1 << 15
"""Cells worked on at a time: the polynomials of a run stay in the cache."""

LARGEST_SET = 32
"""Most sites in a set S: beyond it the noise of the product hides everything."""

ONCE = (0.0, 0.3, 0.6, 0.8, 0.9, 0.95)
"""z of the weights where an item is counted at most once a site; the last are next to the cross-moments."""

NEGLIGIBLE = 1e-12

ROUGHEST = 0.25
"""Statistics whose relative standard error is larger are left out: their logarithm would be biased."""

FIXED = 0.9
"""Most of a variance that may be due to the items themselves."""

DRAWS = 1024
"""Random sets S whose overlaps tell how much o(S) varies."""

DOUBT = 0.3
"""Share of the term for that variation which may be wrong: it is of second order, and from pairs only."""

CHANCE = (0.0, 0.5, 1.0)
"""c: how much of log C(k, t) is in the shape of log N_t."""

PRECISION = 1e-3
"""Relative error allowed to every formula, so that no combination of statistics is believed beyond it."""

FINEST = 1e-2
"""Items that a statistic may always be off by: where noise is weak or cells are few, all of them may be alike."""


@dataclass(frozen=True, eq=False)
class Together:
    """What sketches beside each other say of the items they have in common.

    items : N_t for t = 1 … k
    covariance : of these, for the items of this data set
    plain_variance : of Σ N_t from the product of all sites' weights alone, without any prior; inf where it says nothing
    gains : derivative of N by the statistics
    blocks : influence of each block of cells on the statistics, summing to 0
    most : items that there are at all, where each has its cell
    """

    items: Floats
    covariance: Floats
    plain_variance: float
    gains: Floats
    blocks: Floats
    most: float = math.inf

    @property
    def reach(self) -> float:
        """Number of items that occur anywhere."""
        return float(self.items.sum())

    @property
    def stderr(self) -> float:
        """Standard error of :attr:`reach`."""
        return math.sqrt(max(float(self.covariance.sum()), 0.0))

    @property
    def data_share(self) -> float:
        """How much of :attr:`reach` is data: its variance over the plain one, 1 where that has nothing to tell."""
        return min(1.0, self.stderr**2 / self.plain_variance) if self.plain_variance > 0 else 1.0

    @cached_property
    def influences(self) -> Floats:
        """How every block of cells moves N_t: k × blocks."""
        return np.asarray(self.gains @ self.blocks)


def covariance(left: Floats, right: Floats) -> Floats:
    """Return the covariance of answers out of their influences, answers × blocks each."""
    blocks = left.shape[-1]
    return np.asarray(left @ right.T * (blocks / max(blocks - 1, 1)), dtype=np.float64)


@one_thread
def side_by_side(sketches: Sequence[Coded]) -> Together:
    """Fit the number of items at exactly t of the sites."""
    layout, k = sketches[0].layout, len(sketches)
    hashed = layout.kind == "hashed"
    seen = level_shares(layout.levels) if hashed else np.array([float(layout.rate or 1)])
    size = layout.cells // layout.levels
    if not hashed:
        return _known(sketches, Means(sketches, slice(0, size), hashed), float(seen[0]) / size)
    parts = []
    for level in range(layout.levels):
        means = Means(sketches, slice(level * size, (level + 1) * size), hashed)
        if means.roughness < ROUGHEST:
            parts.append(_hashed_part(means, float(seen[level]) / size))
    if not parts:
        raise OverloadError(
            "items and noise must leave some cells of every sketch recognisably empty to be told apart beside each "
            "other: more cells or a larger epsilon would do"
        )
    return _hashed(parts, k)


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
        """Of the statistics: of each no less than a small part of an item, where all cells are alike."""
        return _no_finer(covariance(self.blocks, self.blocks) + np.diag(self.errors**2), self.cells)


def _no_finer(found: Floats, cells: float) -> Floats:
    """Return a covariance of statistics in which each is off by a small part of an item at least."""
    return np.asarray(found + np.diag(np.maximum((FINEST / cells) ** 2 - np.diag(found), 0.0)))


def _hashed_part(means: Means, scale: float) -> _Part:
    """Statistics of hashed cells: sums of −log P₀(j), and logarithms of the normalised products."""
    k, rows, design, blocks, errors = means.k, [], [], [], []
    t = np.arange(1, k + 1)
    plain = math.inf
    share = means.lengths / means.size
    for i, z in enumerate(means.points):
        added = means.first[i] - k
        rows.append(-float(np.log(means.normal[i]).sum()))
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


def _known(sketches: Sequence[Coded], means: Means, scale: float) -> Together:
    """Fit the averages of P₀(S) of a known domain: to what the noise makes of items at random, then of those found."""
    k, cells, share = means.k, 1 / scale, means.lengths / means.size
    values = means.symmetric[0] @ share
    sets = np.array([[math.comb(k - t, s) / math.comb(k, s) for s in means.sizes] for t in range(k + 1)])
    noise = noise_moments(sets, *touched_and_not(sketches, means))
    y, design = 1 - values, scale * (1 - sets[1:].T)
    found = float(np.clip(1 - means.single[0].mean(), scale, 1))
    items = cells * np.array([math.comb(k, t) * found**t * (1 - found) ** (k - t) for t in range(1, k + 1)])
    for _ in range(2):
        parts = np.concatenate([[max(0.0, 1 - items.sum() * scale)], items * scale])
        cov = _no_finer(np.tensordot(parts, noise, 1) / means.size, cells)
        fitted = fit_positive([(y, design, cov)], *_walks(k))
        items = fitted.mean * min(1.0, cells / float(fitted.mean.sum()))
    blocks = -(means.symmetric[0] - values[:, None]) * share
    plain = float(cov[-1, -1]) / scale**2 if means.sizes[-1] == k else math.inf
    unseen = (cells / means.size - 1) * np.diag(items)  # items that were never looked at
    most = cells if cells == means.size else math.inf
    return Together(items, fitted.covariance + unseen, plain, fitted.gains, blocks, most)


def noise_moments(sets: Floats, absent: Floats, there: Floats) -> Floats:
    """Return the covariances of the averages over sets of s sites in one cell, by the number of sites that touch it.

    sets : shares of the sets of each size that miss a cell of t sites, for t = 0 … k
    absent, there : E w² of each site, in cells that it does not touch and in those that it does
    """
    k, sizes = sets.shape[0] - 1, sets.shape[1]
    # means over all sets of t touched sites and of s and s' chosen ones: site after site is in each by chance
    found = np.zeros((k + 1, sizes + 1, sizes + 1))
    found[0, 0, 0] = 1.0
    for n, (empty, touched) in enumerate(zip(absent, there), start=1):
        hit = (np.arange(n + 1) / n)[:, None, None]
        left = np.minimum(np.arange(sizes + 1) / n, 1.0)
        right, before = left[:, None], found[: n + 1]
        neither = (1 - right) * (1 - left) * before
        both = np.zeros_like(before)
        both[:, 1:, 1:] = (right * left)[1:, 1:] * before[:, :-1, :-1]
        missed = neither + empty * both
        missed[:, 1:] += (right * (1 - left))[1:] * before[:, :-1]
        missed[:, :, 1:] += ((1 - right) * left)[:, 1:] * before[:, :, :-1]
        found[: n + 1] = (1 - hit) * missed
        found[1 : n + 1] += hit[1:] * (neither + touched * both)[:-1]
    return np.asarray(found[:, 1:, 1:] - sets[:, :, None] * sets[:, None, :])


def touched_and_not(sketches: Sequence[Coded], means: Means) -> tuple[Floats, Floats]:
    """Return E w² of each site for cells that it does not touch, by law, and for those that it does.

    These are read off the cells, w² − E w²(Z)·w being 0 on average in all others, and made larger by a standard error;
    what a count of 1 has is the most.
    """
    absent, there = [], []
    for sketch, share in zip(sketches, means.single[0]):
        empty, most = sketch.square(0), sketch.square(1)
        weight = sketch.tables[0]
        tally = np.bincount(sketch.index, minlength=weight.size) / sketch.index.size
        excess = weight**2 - empty * weight
        mean = float(tally @ excess)
        error = math.sqrt(max(float(tally @ excess**2) - mean**2, 0.0) / sketch.index.size)
        touched = max(1 - float(share), 1 / sketch.index.size)
        absent.append(empty)
        there.append(min(max((mean + error) / touched, 0.0), most))
    return np.array(absent), np.array(there)


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


def _hashed(parts: list[_Part], k: int) -> Together:
    """Fit all levels at once and put the answer together."""
    fitted = fit_positive([(part.y, part.design, part.covariance) for part in parts], *_walks(k))
    cov = fitted.covariance
    fixed = np.minimum(fitted.mean, FIXED * np.diag(cov))  # the items of this data set are what they are
    fixed *= min(1.0, FIXED * float(cov.sum()) / max(float(fixed.sum()), 1e-300))
    width = max(part.blocks.shape[1] for part in parts)
    padded = [np.pad(part.blocks, ((0, 0), (0, width - part.blocks.shape[1]))) for part in parts]
    # no variance: a site without items whose weak noise left all cells at 0
    known = sum(1 / part.plain_variance if part.plain_variance else math.inf for part in parts)
    plain = 1 / known if known else math.inf
    return Together(fitted.mean, cov - np.diag(fixed), plain, fitted.gains, np.concatenate(padded))


def _walks(k: int) -> tuple[Floats, list[Floats], list[Floats]]:
    """Return where the walks of log N_t are, the shapes they are about, and the supports of N."""
    t = np.arange(1, k + 1)
    at = ((k + 0.5) / 1.5) ** ((t - 1) / max(k - 1, 1))  # equal steps between the logarithms of 1½ and k + ½
    by_chance = gammaln(k + 1) - gammaln(t + 1) - gammaln(k - t + 1)
    shapes = [share * (by_chance - by_chance.mean()) for share in (CHANCE if k > 1 else CHANCE[:1])]
    return at, shapes, _supports(k)


def _supports(k: int) -> list[Floats]:
    """Return where N_t may be positive: anywhere; up to 1, 2, 4, … sites; at all of them only.

    >>> [support.tolist() for support in _supports(3)]
    [[1.0, 1.0, 1.0], [1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    t = np.arange(1, k + 1)
    fewer = [t <= 2**i for i in range(k.bit_length()) if 2**i < k]
    return [support.astype(np.float64) for support in [t > 0, *fewer, *([t == k] if k > 1 else [])]]


# ── products of weights ─────────────────────────────────────────────────────────────────────────────────────────────


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
        self.lowest = int(values[0])
        self.index = (np.clip(counts, values[0], values[-1]) - values[0]).astype(kind)

    def square(self, count: int) -> float:
        """Return E w(count + Z)² of the first z, 0."""
        reach = self.noisy.noise.reach(NEGLIGIBLE)
        values = np.arange(count - reach, count + reach + 1)
        weight = self.tables[0][np.clip(values - self.lowest, 0, self.tables.shape[1] - 1)]
        return float(self.noisy.noise.pmf(values - count) @ weight**2)

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
        self.k, self.points = len(sketches), sketches[0].points
        self.sizes = list(range(1, min(self.k, LARGEST_SET) + 1))
        self.start, self.size = cells.start, cells.stop - cells.start
        self.single = np.array([sketch.shares(cells) for sketch in sketches]).T  # P₀(j), by z
        # what the weights of each site are divided by, never next to 0
        self.normal = np.maximum(self.single, 1 / self.size) if hashed else np.ones_like(self.single)
        edges = np.linspace(0, self.size, min(BLOCKS, self.size) + 1).astype(np.int64)
        self.lengths = np.diff(edges).astype(float)
        self.first, self.symmetric = self._accumulate(sketches, edges)
        self.pairs = self._pair_overlaps(sketches) if hashed else np.zeros((self.k, self.k))  # the items are the cells

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
            u = sketch.at(i, where) / self.normal[i, j]
            added += u
            for r in range(min(j + 1, s), 0, -1):
                polynomial[r] += u * polynomial[r - 1]
        return added, polynomial[1:]

    def _pair_overlaps(self, sketches: Sequence[Coded]) -> Floats:
        """Return log E u_i u_j for all pairs of sites."""
        total = np.zeros((self.k, self.k))
        for start in range(self.start, self.start + self.size, RUN):
            where = slice(start, min(start + RUN, self.start + self.size))
            u = np.array([sketch.at(0, where) for sketch in sketches]) / self.normal[0][:, None]
            total += u @ u.T
        mean = np.maximum(total / self.size, 1 / self.size)
        return np.asarray(np.log(mean) * (1 - np.eye(self.k)))
