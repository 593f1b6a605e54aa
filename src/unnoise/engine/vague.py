"""What the cells alone leave open: the covariance of the items under a prior that joins no two counts.

It is Gaussian in log N, so it depends on where it is taken: at a law that has all its items at the count 1 it cannot
say that they might as well be at 0 or 2. So it is taken at the law of highest entropy among those found that the cells
do not exclude (within NATS of the best likelihood), the items of every atom spread as far as the noise would hide it.
n items spread by ± s about their count change the likelihood by about n·(s/σ)⁴/4 nats, σ the deviation of the noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arrays import Floats
from .blocks import FAR
from .fourier import FourierChannel
from .search import Model

__all__ = ["smoothest"]

NATS = 3.0
"""Laws this far behind the best likelihood are not excluded: e⁻³ = 1/20."""


def smoothest(channel: FourierChannel, models: Sequence[Model], law: Floats) -> Floats:
    """Return the masses of ``channel``'s blocks under the smoothest law that the cells do not exclude.

    models : walks and mixtures that converged, whatever their evidence
    law : the average of the models, which is taken where there is no walk
    """
    best = max((model.value for model in models), default=-math.inf)
    laws = []
    for model in models:
        own: Any = model.channel
        if own.blocks.covered == channel.blocks.covered and model.value > best - NATS:
            laws.append(_spread(channel, own, model.mass))
    return max([*laws, _spread_atoms(channel, law)], key=lambda mass: _entropy(channel, mass))


def _spread(channel: FourierChannel, walked: FourierChannel, mass: Floats) -> Floats:
    """A walk's masses over the blocks of ``channel``, its atoms spread."""
    n, own = channel.blocks.covered, walked.atoms
    masses = np.zeros(channel.blocks.size)
    masses[:n] = mass[:n]
    for atom, its in zip(own, mass[n:]):
        masses[n:][channel.blocks.atoms == atom] += its
    return _spread_atoms(channel, masses)


def _spread_atoms(channel: FourierChannel, mass: Floats) -> Floats:
    """Spread the mass of every atom over the blocks around it, as far as the noise would hide that."""
    blocks, n = channel.blocks, channel.blocks.covered
    masses = mass.copy()
    if n == 0:
        return masses
    for j in n + np.flatnonzero((mass[n:] > 0) & (blocks.atoms < FAR)):
        away = (4 * NATS / max(float(mass[j]), NATS)) ** 0.25 * math.sqrt(channel.noise.variance)
        weight = np.exp(-0.5 * ((blocks.centres[:n] - blocks.first[j]) / max(away, 0.5)) ** 2) * blocks.widths[:n]
        if weight.sum() > 0:
            masses[:n] += mass[j] * weight / weight.sum()
            masses[j] = 0.0
    return masses


def _entropy(channel: FourierChannel, mass: Floats) -> float:
    """Entropy of a law, evenly spread within blocks; items above the last row left out."""
    near = channel.blocks.first < FAR
    share = mass[near] / max(float(mass[near].sum()), 1e-300)
    return float(-(share * np.log(np.maximum(share / channel.widths[near], 1e-300))).sum())
