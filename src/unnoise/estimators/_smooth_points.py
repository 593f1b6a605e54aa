"""Mixtures of few point masses as models of a body.

A mixture of s ≤ 12 point masses is found by EM (the place of a mass is that of a maximum-likelihood mass, or the median
of its share of the cells), with BIC as evidence: −½·s·log d − s·log N for weights and places [1]_.

.. [1] G. Schwarz, "Estimating the dimension of a model", Ann. Statist. 6, 1978.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ..arrays import Floats, Int64
from ._smooth_models import Data, Model

__all__ = ["point_models"]


MOST_POINTS = 12


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
    models = _fewer(data, at, data.likely[at], _settled) + _fewer(data, place, weight, _mixture)
    models.sort(key=lambda model: model.log_evidence)
    distinct = {np.flatnonzero(model.masses).tobytes(): model for model in models}
    return [replace(model, log_weight=-math.log(len(distinct))) for model in distinct.values()]


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
        cost = 0.5 * place.size * math.log(data.cells) + place.size * math.log(data.counts.size)
        masses = np.zeros(data.counts.size)
        masses[place] = weight
        models.append(Model(f"{place.size} point masses", masses, log_likelihood - data.cells - cost))
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
    columns, weight = _weighed(data, place, weight, 200)
    mixed = columns @ weight
    return place, weight / weight.sum(), data.cells * float(data.y[data.y > 0] @ np.log(mixed[data.y > 0]))


def _weighed(data: Data, place: Int64, weight: Floats, rounds: int) -> tuple[Floats, Floats]:
    """The noisy law of each point mass, and the weights after some rounds of EM from ``weight``."""
    unit = np.zeros((data.counts.size, place.size))
    unit[place, np.arange(place.size)] = 1.0
    columns = np.asarray(data.channel.forward(unit))
    weight = weight / weight.sum()
    for _ in range(rounds):
        weight = weight * (columns.T @ (data.y / (columns @ weight)))
    return columns, weight
