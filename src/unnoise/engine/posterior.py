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

.. [1] T. A. Louis, "Finding the observed information matrix when using the EM algorithm", JRSS B 44, 1982.
.. [2] B. van Leer, "Towards the ultimate conservative difference scheme IV", J. Computational Physics 23, 1977.
.. [3] D. V. Lindley, "A statistical paradox", Biometrika 44, 1957.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, solve_triangular
from scipy.linalg.lapack import dpotrf

from ..arrays import Floats
from .fourier import FourierChannel, SeenRows
from .search import Search, average, weights
from .walk import JUMP, Model, Prior, Walk, find_mode

__all__ = ["Posterior", "covariance_of", "posterior"]

RIDGES = 1e-9, 1e-7, 1e-5, 1e-3
"""Added to a precision whose diagonal is scaled to 1: far below what a cell tells, far above rounding. The next one is
only for stiff walks and next to no cells, where rounding may leave more than that."""


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
