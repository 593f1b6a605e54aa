"""The averaged models of a Fourier channel, and what is known of the items that are there.

**Posterior.** With θ̂ a mode, N = e^θ̂, D = diag N, J the information of the cells about θ and A = P + J its posterior
precision, the items that *are* there, given the cells, have mean M(θ̂), one EM step from N, and covariance

    C = (D − J) + (D − J)·A⁻¹·(D − J):

D − J is the missing information [1]_, the scatter of the items for given θ; dM/dθ = D − J carries the doubt about θ.
Without a prior A = J and C = D·J⁻¹·D − D: the variance of the unbiased estimate less the Poisson one of the items.

**A sample.** Where to each of n items with a cell there are q without one, these follow the law: M + q·N are expected
of all, and dM/dθ and the scatter for given θ both grow by q·(D − N·Nᵀ/n). Without prior and noise (J = D) the
covariance is then q·(1 + q)·(D − N·Nᵀ/n), that of drawing without replacement.

**What the cells alone leave open** is the same under a prior that joins no two counts: each θ by itself is ± JUMP about
where the search began (a few steps of EM: towards the cells, and not yet rough). It is taken at the mode under that
prior. A few points or a stiff walk are as certain as they are simple: where the noise would hide other laws as well,
this says so.

**What the noise hides.** n items spread by ± s about their counts change the likelihood by about n·(s/σ)⁴/4 nats, and
by n·(s/σ)²/2 if all are shifted by s, σ² the variance of the noise; gathered at every p-th count, with φ the transform
of the noise, by n·φ(2π/p)². No posterior knows whether the items are so arranged (:class:`Arrangement`).

.. [1] T. A. Louis, "Finding the observed information matrix when using the EM algorithm", JRSS B 44, 1982.
.. [2] B. van Leer, "Towards the ultimate conservative difference scheme IV", J. Computational Physics 23, 1977.
.. [3] D. V. Lindley, "A statistical paradox", Biometrika 44, 1957.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, solve_triangular
from scipy.linalg.lapack import dpotrf

from ..arrays import Floats, Int64
from ..noise import DiscreteLaplace
from .fourier import FourierChannel, SeenRows
from .search import Search, average, weights
from .walk import JUMP, Model, Prior, Walk, find_mode

__all__ = ["Arrangement", "Posterior", "covariance_of", "posterior"]

RIDGES = 1e-9, 1e-7, 1e-5, 1e-3
"""Added to a precision whose diagonal is scaled to 1: far below what a cell tells, far above rounding. The next one is
only for stiff walks and next to no cells, where rounding may leave more than that."""

HIDDEN, EIGHTH, QUARTER, HALF = 3.0, 8.0, 4.0, 2.0
"""Nats that a rearrangement of items may cost and not be seen (e⁻³ = 1/20), and how far intervals reach towards it: a
quarter of the way for curves, half of it for what may be at a few counts, and half as far towards combs, so that
whatever the noise hides is within a few widths. (10, 20, …, 60 behind noise of ± 14: of what is at one of them answers
missed by 10 widths without, by 7 with a quarter, by 3.5 with half; smooth laws pay at ε = 0.1 and after many merges,
where intervals are twice as wide, not at ε = 1.)"""

WINDOWS = 24
"""Half-widths of the windows about a count, from 1 to two deviations of the noise, whose items are rearranged."""


@dataclass(frozen=True, eq=False)
class Posterior:
    """The averaged models: masses by blocks, what the items there add up to given the cells, and its covariance.

    law : N, the average of the modes
    mean, covariance : of the items themselves, by blocks
    alone, vague : mean and covariance that the cells alone would leave, under a prior that joins no two counts
    hidden : variance of each block's mass if all others were known: numbers up to its root drown in the noise
    """

    channel: FourierChannel
    law: Floats
    mean: Floats
    covariance: Floats
    alone: Floats
    vague: Floats
    hidden: Floats
    weights: list[tuple[str, float]]

    def per_count(self, first: int, top: int, *, by_logarithm: bool = False) -> Floats:
        """The law at first..top: within a block its log is a line, as steep as from neighbour to neighbour.

        But at most twice as steep as towards either: a block beside the end of a hill is flat (:func:`limited_slopes`).
        ``by_logarithm``: as a line in log t.
        """
        blocks, n = self.channel.blocks, self.channel.blocks.covered
        walked = self.law[:n]
        density = np.log(np.maximum(walked / blocks.widths[:n], 1e-300))
        t = np.arange(-(-first // blocks.stride) * blocks.stride, top + 1, blocks.stride)
        x, middle = (np.log(t), np.log(blocks.centres[:n])) if by_logarithm else (t, blocks.centres[:n])
        block = np.searchsorted(blocks.stop[:n], t, side="right")
        within = np.exp(density[block] + limited_slopes(middle, density)[block] * (x - middle[block]))
        within *= (walked / np.maximum(np.bincount(block, weights=within, minlength=n), 1e-300))[block]
        law = np.zeros(top + 1 - first)
        law[t - first] = within
        near = blocks.atoms <= top
        np.add.at(law, blocks.atoms[near] - first, self.law[n:][near])
        return np.asarray(law)


@dataclass(frozen=True, eq=False)
class Arrangement:
    """How many items are said to be at or ``above`` the ascending counts t, and what the noise would hide of it.

    share : share of the items that were seen
    """

    t: Int64
    above: Floats
    noise: DiscreteLaplace
    share: float

    def _windows(self, lo: Int64, hi: Int64, comb: bool) -> Iterator[tuple[Int64, Int64, Floats, Floats, Floats]]:
        """For windows about each band: first count inside and above, items, their variance, and their farthest means.

        The items of a window, unless spread over more than ± s themselves, may have another mean count and the variance
        s². Where that would show, they may still be gathered at any count of it, all that are about being a ``comb``.
        """
        k, variance = self.t[:-1], self.noise.variance
        mass, middle = np.maximum(self.above[:-1] - self.above[1:], 0.0), (k + self.t[1:] - 1) / 2 - k[0]
        running = np.cumsum([np.append(0.0, mass * middle**power) for power in (0.0, 1.0, 2.0)], axis=1)
        widths = np.unique(np.geomspace(1, max(2 * math.sqrt(variance), 1), WINDOWS).round().astype(np.int64))
        first, stop = np.searchsorted(k, lo - widths[-1]), np.searchsorted(k, hi + widths[-1], side="right")
        about = (running[0, stop] - running[0, first]) * self.share
        teeth = np.square(self.noise.characteristic(2 * math.pi / (2 * widths + 1)))
        for w, told in zip(widths, teeth):
            first, stop = np.searchsorted(k, lo - w), np.searchsorted(k, hi + w, side="right")
            number, moment, square = running[:, stop] - running[:, first]
            if comb:
                spread, means = np.full(number.size, np.inf), np.outer([-np.inf, np.inf], np.ones(number.size))
                hidden = about * told <= HIDDEN
            else:
                mean, cells = moment / np.maximum(number, 1e-12), np.maximum(number * self.share, HIDDEN)
                spread, shift = 2 * variance * np.sqrt(HIDDEN / cells), np.sqrt(2 * variance * HIDDEN / cells)
                hidden = (number > 0) & (spread >= 1) & (square - mean * moment <= number * spread / 3)
                means = np.array([mean - shift, mean + shift]) + k[0]
            yield first, stop, np.where(hidden, number, 0.0), spread, means

    @cached_property
    def steps(self) -> tuple[Floats, Floats]:
        """How many items fewer (> 0) and more (< 0) than said may be at or above each count k but the last, unseen.

        That is a QUARTER of the way to the fewest and the most if those about k lay elsewhere: of items of mean μ and
        variance s², s²/(s² + (k − μ)²) at most are at or above a k > μ (Cantelli), and μ/k. Or an EIGHTH to all and to
        none of those that one tooth of a comb gathers, if there are items below it. Most and fewest fall with k.
        """
        k, value = self.t[:-1], self.above[:-1]
        fewer = more = np.zeros_like(value)
        for comb, part in ((False, QUARTER), (True, EIGHTH)):
            most = fewest = value
            for first, stop, number, spread, (least, farthest) in self._windows(k, k, comb):
                number = np.where(first > 0, number, 0.0) if comb else number
                up = 1 / (1 + np.maximum(k - farthest, 0.0) ** 2 / spread)
                up = np.minimum(up, farthest / np.maximum(k, 1))
                down = np.where(k > 0, 1 / (1 + np.maximum(least - (k - 1), 0.0) ** 2 / spread), 0.0)
                most = np.maximum(most, np.where(number > 0, self.above[stop] + up * number, 0.0))
                fewest = np.minimum(fewest, np.where(number > 0, self.above[stop] + (1 - down) * number, np.inf))
            fewest, most = np.minimum.accumulate(fewest), np.maximum.accumulate(most[::-1])[::-1]
            fewer, more = np.maximum(fewer, (value - fewest) / part), np.minimum(more, (value - most) / part)
        return fewer, more

    def within(self, lo: Int64, hi: Int64, value: Floats) -> Floats:
        """How many items more than the ``value`` may be in each band, unseen: HALF of the way to the most, as above.

        Or a QUARTER where all those about would have to be gathered into a comb.
        """
        reach = np.zeros_like(value)
        for comb, part in ((False, HALF), (True, QUARTER)):
            for _, _, number, spread, (least, farthest) in self._windows(lo, hi, comb):
                beside = np.maximum(np.maximum(lo - farthest, least - hi), 0.0)
                reach = np.maximum(reach, (number / (1 + beside**2 / spread) - value) / part)
        return reach


def limited_slopes(x: Floats, y: Floats) -> Floats:
    """Slopes within blocks from their middles: central, at most twice either one-sided slope, 0 at a peak [2]_.

    >>> limited_slopes(np.arange(5.0), np.array([0.0, 1.0, 2.0, 2.1, -9.0]))
    array([  1. ,   1. ,   0.2,   0. , -11.1])
    """
    if x.size < 2:
        return np.zeros(x.size)
    step, rise = np.diff(x), np.diff(y)
    to_left, to_right = (np.pad(rise / step, side, mode="edge") for side in ((1, 0), (0, 1)))
    central = (np.pad(rise, (1, 0)) + np.pad(rise, (0, 1))) / (np.pad(step, (1, 0)) + np.pad(step, (0, 1)))
    least = np.minimum(np.abs(central), 2 * np.minimum(np.abs(to_left), np.abs(to_right)))
    return np.where(to_left * to_right > 0, np.sign(central) * least, 0.0)


def posterior(search: Search, start: Callable[[FourierChannel], Floats], others: float = 0.0) -> Posterior:
    """Average the models of a Fourier channel by evidence; ``start`` returns θ where a search of a channel begins.

    others : items without a cell for each that has one; they follow the law
    """
    models = sorted(search.models, key=lambda model: -model.score)
    whole: Any = search.channel
    every: list[Any] = [model.channel for model in models]
    atoms = np.unique(np.concatenate([own.atoms for own in every]))  # every count at which some model has one
    channel: FourierChannel = whole.with_blocks(whole.blocks.with_atoms(np.setdiff1d(atoms, whole.atoms)))
    weight = weights(models)
    spoken = weight if channel.collide or channel.grid.counts[0] > 0 else _with_zero_apart(models, weight)
    size = channel.blocks.size
    laws, means, covariance = np.zeros((len(models), size)), np.zeros((len(models), size)), np.zeros((size, size))
    by_count = np.argsort(channel.atoms)
    for i, (model, own) in enumerate(zip(models, every)):  # blocks side by side come first, then atoms
        beside = by_count[np.searchsorted(channel.atoms, own.atoms, sorter=by_count)]
        place = np.concatenate([np.arange(own.blocks.covered), channel.blocks.covered + beside])
        state = own.at(model.mass)
        laws[i, place] = state.mass
        means[i, place] = state.mass * (own.step(state) + others)
        precision = own.hold(model.prior.bands)
        covariance[np.ix_(place, place)] += spoken[i] * covariance_of(own, state, precision, others)
    mean = np.asarray(weight @ means)
    covariance += (spoken[:, None] * (means - mean)).T @ (means - mean)
    order, law = np.argsort(channel.blocks.centres, kind="stable"), np.zeros(size)
    law[order] = weight @ laws[:, order] if channel.collide else average(
        laws[:, order], weight, [model.family is None for model in models]
    )
    state = channel.at(np.maximum(law, 1e-300))
    alone, vague = _alone(channel, start(channel), others)
    named = [(model.name, float(w)) for model, w in zip(models, weight)]
    return Posterior(channel, law, mean, covariance, alone, vague, channel.alone(state) * (1 + others) ** 2, named)


def _with_zero_apart(models: Sequence[Model], weight: Floats) -> Floats:
    """Weights for intervals: as far as the cells allow, all is for models in which the count 0 stands apart.

    How many cells of a domain are empty is a matter of how it was declared. Models that let it follow from the other
    counts win by a starting value less, some five nats whatever the cells say [3]_: that is no certainty.
    """
    apart = np.array([model.family is not None and model.prior.walk.starts_twice for model in models])
    if not apart.any() or apart.all():
        return weight
    value = np.array([model.value for model in models])
    behind = max(0.0, float(value[~apart][weight[~apart].argmax()] - value[apart][weight[apart].argmax()]))
    share = max(float(weight[apart].sum()), math.exp(-behind))
    spoken = np.where(apart, weight / weight[apart].sum() * share, weight / weight[~apart].sum() * (1 - share))
    return np.asarray(spoken)


def covariance_of(channel: FourierChannel, state: SeenRows, prior: Floats, others: float = 0.0) -> Floats:
    """Q + Q·A⁻¹·Q, Q = D − J + q·(D − N·Nᵀ/n) where to each of n items with a cell there are q without one."""
    information = channel.information(state)
    missing = -information
    np.einsum("ii->i", missing)[:] += (1 + others) * state.mass
    if others:
        missing -= np.outer(state.mass, state.mass) * (others / state.mass.sum())
    precision = prior + information
    scale = 1 / np.sqrt(np.diag(precision))
    precision *= np.outer(scale, scale)
    for ridge in RIDGES:
        np.einsum("ii->i", precision)[:] += ridge
        factor, info = dpotrf(precision, lower=1)
        if info == 0:
            break
    else:
        raise LinAlgError("the precision of a posterior must be positive definite")
    half = solve_triangular(factor, scale[:, None] * missing, lower=True, check_finite=False)
    return np.asarray(missing + half.T @ half)


def _alone(channel: FourierChannel, start: Floats, others: float) -> tuple[Floats, Floats]:
    """Return mean and covariance of the items by the cells alone: each θ is ± JUMP about its start, by itself."""
    walk = Walk(start, np.zeros(start.size, dtype=np.int64), 2, level=start)
    prior = Prior(walk, np.full(start.size, JUMP**-2))
    mode = find_mode(channel, prior, start)
    state = channel.at(channel.widths * np.exp(mode.theta))
    covariance = covariance_of(channel, state, np.diag(prior.precision), others)
    return state.mass * (channel.step(state) + others), covariance
