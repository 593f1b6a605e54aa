"""Mixtures of few point masses as models of a body.

s ≤ 12 masses w at places t₁ … t_s are found by EM (the place of a mass is that of a maximum-likelihood mass, or the
median of its share of the cells); a single mass is tried at every place near the median. The prior: s is Poisson with
mean 1, the places are drawn independently with probability ∝ 1/(1 + t) — a count is a scale, and no scale is preferred
— and the weights are uniform. So the masses are a set with prior probability Π p(t_j)/(e − 1).

The evidence is Laplace's: with I the information of the cells about the s − 1 free weights,

    log likelihood + log (s−1)! + ½(s−1)·log 2π − ½·log det(I + I₀) − log(LEVEL·√d).

I₀ = ((s−1)!)^(2/(s−1))·2π·1 makes the volume that of the prior where the cells say nothing. The last term is what the
walks pay for not knowing the total (:mod:`._smooth_walk`), so that both can be compared [1]_.

.. [1] R. E. Kass, A. E. Raftery, "Bayes factors", JASA 90, 1995, section 4.1.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy.special import gammaln

from ..arrays import Floats, Int64
from ._smooth_models import Data, Model
from ._smooth_walk import LEVEL

__all__ = ["point_models"]

MOST_POINTS = 12

DOUBT = 6.0
"""Standard errors from the median within which a single mass is tried."""


def point_models(data: Data) -> list[Model]:
    """Fit mixtures of few point masses, starting from the maximum-likelihood profile's masses and drop by drop fewer.

    Twice: from the masses as they stand, which stay in place, and from groups of neighbours, which move to medians.
    Where both come to the same places, the likelier is kept.
    """
    at = np.flatnonzero(data.likely > 1e-4)
    if at.size == 0 or at.size > 5 * MOST_POINTS:
        return []
    groups = np.split(at, np.flatnonzero(np.diff(at) > 1) + 1)
    weight = np.array([data.likely[g].sum() for g in groups])
    place = np.array([round(float(data.likely[g] @ g / data.likely[g].sum())) for g in groups])
    models = _fewer(data, at, data.likely[at], _settled) + _fewer(data, place, weight, _mixture) + _single(data)
    models.sort(key=lambda model: model.score)
    return list({np.flatnonzero(model.masses).tobytes(): model for model in models}.values())


def _single(data: Data) -> list[Model]:
    """One mass, at each place within DOUBT standard errors of the median, 1/(ε√d)."""
    median = data.rows[int(np.searchsorted(np.cumsum(data.y), 0.5))]
    far = 1 + DOUBT / (data.epsilon * math.sqrt(data.cells))
    return [
        _model(data, *_settled(data, place, np.ones(1))) for place in np.argwhere(np.abs(data.counts - median) <= far)
    ]


def _model(data: Data, place: Int64, weight: Floats, log_likelihood: float) -> Model:
    """The model of settled masses, with its evidence and share."""
    chance = 1 / (1.0 + data.counts)
    share = float(np.log(chance[place] / chance.sum()).sum()) - math.log(math.e - 1)
    total = math.log(LEVEL) + 0.5 * math.log(data.cells)
    masses = np.zeros(data.counts.size)
    masses[place] = weight
    evidence = log_likelihood - data.cells + _volume(data, place, weight) - total
    return Model(f"{place.size} point masses", masses, evidence, share)


def _volume(data: Data, place: Int64, weight: Floats) -> float:
    """Log of the weights' posterior volume over that of their uniform prior."""
    free = place.size - 1
    if free == 0:
        return 0.0
    columns = _columns(data, place)
    heaviest = int(weight.argmax())
    apart = np.delete(columns, heaviest, axis=1) - columns[:, [heaviest]]
    information = data.cells * apart.T @ (apart / (columns @ weight)[:, None])
    least = math.log(2 * math.pi) + 2 / free * float(gammaln(free + 1))
    information[np.diag_indices(free)] += math.exp(least)
    return 0.5 * (free * least - float(np.linalg.slogdet(information)[1]))


def _fewer(
    data: Data,
    place: Int64,
    weight: Floats,
    fit: Callable[[Data, Int64, Floats], tuple[Int64, Floats, float]],
) -> list[Model]:
    """Fit at most MOST_POINTS masses, then without the lightest, and so on down to one."""
    models: list[Model] = []
    while place.size:
        heaviest = np.sort(np.argsort(-weight, kind="stable")[:MOST_POINTS])
        place, weight, log_likelihood = fit(data, place[heaviest], weight[heaviest])
        models.append(_model(data, place, weight, log_likelihood))
        rest = np.sort(np.argsort(weight, kind="stable")[1:])
        place, weight = place[rest], weight[rest]
    return models


def _mixture(data: Data, place: Int64, weight: Floats) -> tuple[Int64, Floats, float]:
    """EM for a mixture of point masses: weights by shares, places by medians of shares."""
    for _ in range(6):
        columns, weight = _weighed(data, place, weight, 60)
        mixed = columns @ weight
        share = np.cumsum((data.y / mixed)[:, None] * columns * weight, axis=0)
        median = data.rows[[int(np.searchsorted(s, s[-1] / 2)) for s in share.T]]
        moved = np.minimum(np.searchsorted(data.counts, median), data.counts.size - 1)
        if (moved == place).all():
            break
        place, where = np.unique(moved, return_inverse=True)
        weight = np.bincount(where, weights=weight).astype(float)
    log_likelihood = data.cells * float(data.y[data.y > 0] @ np.log(mixed[data.y > 0]))
    if weight.size != columns.shape[1] or (moved != place).any():
        return _settled(data, place, weight)
    return place, weight / weight.sum(), log_likelihood


def _settled(data: Data, place: Int64, weight: Floats) -> tuple[Int64, Floats, float]:
    """Weights and likelihood for places that are not moved any more."""
    columns, weight = _weighed(data, place, weight, 200 if place.size > 1 else 0)
    mixed = columns @ weight
    return place, weight / weight.sum(), data.cells * float(data.y[data.y > 0] @ np.log(mixed[data.y > 0]))


def _weighed(data: Data, place: Int64, weight: Floats, rounds: int) -> tuple[Floats, Floats]:
    """The noisy law of each point mass, and the weights after some rounds of EM from ``weight``."""
    columns = _columns(data, place)
    weight = weight / weight.sum()
    for _ in range(rounds):
        weight = weight * (columns.T @ (data.y / (columns @ weight)))
    return columns, weight


def _columns(data: Data, place: Int64) -> Floats:
    """The noisy law of a mass at each place."""
    unit = np.zeros((data.counts.size, place.size))
    unit[place, np.arange(place.size)] = 1.0
    return np.asarray(data.channel.forward(unit))
