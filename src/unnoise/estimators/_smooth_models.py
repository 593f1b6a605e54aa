"""Models of a body, and their evidence.

Smooth models: random walks of log f (:mod:`._smooth_walk`) of five families — order 2 and 3 in t, order 2 and 3 in
log(1 + t), and order 2 in log(1 + t) with precision rising as (1 + εt)² — each for a ladder of strengths λ, with the
first 0, 1, 2, 4 or 6 steps after the start free, and with those steps free that stand out from the others (spikes and
edges). Small counts are often unlike the rest and unlike each other, and strong noise hardly shows it, so each free
step of the head is given e to 1 in advance; other steps cost what it takes to name them: log C(n, q) + log n nats for
q of n.

Point models: a mixture of s ≤ 12 point masses, found by EM (the place of a mass is that of a maximum-likelihood mass,
or the median of its share of the cells), with BIC as evidence: −½·s·log d − s·log N for weights and places [1]_.

Every model gets a log evidence in nats. Smooth and point models have prior probability ½ together, shared out among the
smooth ones as said, among the point models equally.

.. [1] G. Schwarz, "Estimating the dimension of a model", Ann. Statist. 6, 1978.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp

from ._smooth_channel import BodyChannel
from ._smooth_mode import find_mode
from ._smooth_walk import Walk

__all__ = ["FAMILIES", "Data", "Model", "Search", "average", "point_models", "smooth_models"]

Floats = NDArray[np.float64]
Int64 = NDArray[np.int64]

FAMILIES = (("t", 2), ("t", 3), ("log", 2), ("log", 3), ("rising", 2))
"""Coordinate and order of the walk."""

STRENGTHS = {
    "t": 10.0 ** np.arange(-2, 10),
    "log": 10.0 ** np.arange(-3, 7),
    "rising": 10.0 ** np.arange(-3, 6),
}

HEADS = (1, 2, 4, 6)
"""How many steps after the start may be free together, each e to 1 in advance."""

HOPELESS = 8.0
"""Nats behind the best of a family at which freeing yet more of the head is not tried."""

NEGLIGIBLE = 12.0
"""Models this many nats behind the best are left out of the average."""

MOST_POINTS = 12


@dataclass(frozen=True, eq=False)
class Data:
    """What the models of a body share.

    y : shares of the body's cells at the rows; rows : noisy counts; counts : those that may have mass
    position : place of each count in its run; cells : d; epsilon : ε
    likely : maximum-likelihood masses at the counts; start : θ to begin with
    """

    channel: BodyChannel
    y: Floats
    rows: Int64
    counts: Int64
    position: Int64
    cells: float
    epsilon: float
    likely: Floats
    start: Floats


@dataclass(frozen=True, eq=False)
class Model:
    """A fitted model: name, masses at the counts (adding up to 1), log evidence, log prior weight."""

    name: str
    masses: Floats
    log_evidence: float
    log_weight: float = 0.0

    @property
    def score(self) -> float:
        """Log evidence plus log prior weight."""
        return self.log_evidence + self.log_weight


@dataclass
class Search:
    """Tally of the fits tried."""

    fits: int = 0
    iterations: int = 0
    not_converged: int = 0
    models: list[Model] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class _Best:
    theta: Floats
    score: float
    strength: float


def _walk(data: Data, family: tuple[str, int], head: int) -> Walk:
    coordinate, order = family
    x = data.counts.astype(float) if coordinate == "t" else np.log1p(data.counts)
    rise = np.asarray(1 + data.epsilon * data.counts, dtype=float) ** 2 if coordinate == "rising" else 1.0
    walk = Walk(x, data.position, order, rise)
    walk.free[order : order + head] = True
    return walk


def _climb(
    data: Data,
    walk: Walk,
    strengths: Iterable[float],
    start: Floats,
    search: Search,
    name: str,
    log_weight: float,
    patience: int,
) -> _Best | None:
    """Fit along rising strengths, each from the last, until the evidence has fallen ``patience`` times."""
    best: _Best | None = None
    theta, fallen = start, 0
    for strength in strengths:
        mode = find_mode(data.channel, data.y, data.cells, walk, walk.precision(strength), theta)
        search.fits += 1
        search.iterations += mode.iterations
        theta = mode.theta
        if not mode.converged:
            search.not_converged += 1
            continue
        f = np.exp(mode.theta)
        model = Model(f"{name}, λ={strength:.0e}", f / f.sum(), mode.log_evidence, log_weight)
        search.models.append(model)
        if best is None or model.score > best.score:
            best, fallen = _Best(mode.theta, model.score, strength), 0
        else:
            fallen += 1
            if fallen >= patience:
                break
    return best


def _set_free(data: Data, walk: Walk, best: _Best, search: Search, name: str, rounds: int = 4) -> None:
    """Free the steps that stand out by more than four robust deviations, while the evidence grows."""
    n = int(walk.steps.sum())
    for _ in range(rounds):
        bound_steps = walk.steps & ~walk.free
        if not bound_steps.any():
            return
        size = np.abs(walk.differences(best.theta))
        usual = 1.4826 * float(np.median(size[bound_steps])) + 1e-12
        loose = walk.free | (walk.steps & (size > 4 * usual))
        q = int(loose.sum())
        if q == walk.free.sum() or q > 0.4 * n:
            return
        cost = float(gammaln(n + 1) - gammaln(q + 1) - gammaln(n - q + 1)) + math.log(n)
        walk.free = loose
        decades = max(2, min(12, round(math.log10(max(usual**-2 / best.strength, 1.0))) + 2))
        strengths = best.strength * 10.0 ** np.arange(decades)
        freer = _climb(data, walk, strengths, best.theta, search, f"{name}, {q} steps free", -cost, patience=1)
        if freer is None or freer.score <= best.score:
            return
        best = freer


def smooth_models(data: Data, families: Iterable[tuple[str, int]] = FAMILIES) -> Search:
    """Fit the smooth models; those that did not converge are counted and left out."""
    search = Search()
    for family in families:
        coordinate, order = family
        if data.counts.size <= order:
            continue
        strengths = STRENGTHS[coordinate]
        name = f"{coordinate} order {order}"
        best = _climb(data, _walk(data, family, 0), strengths, data.start, search, name, 0.0, patience=2)
        if best is None:
            continue
        head = 0
        if data.counts[0] == 0:
            stiffer = strengths[strengths >= 0.99 * best.strength]
            base = best
            for k in HEADS:
                walk = _walk(data, family, k)
                other = _climb(data, walk, stiffer, base.theta, search, f"{name}, head {k}", float(k), patience=2)
                if other is None or other.score < best.score - HOPELESS:
                    break
                if other.score > best.score:
                    best, head = other, k
        _set_free(data, _walk(data, family, head), best, search, name)
    return search


def point_models(data: Data) -> list[Model]:
    """Fit mixtures of few point masses, starting from the maximum-likelihood profile's masses and drop by drop fewer.

    Twice: from the masses as they stand, which stay in place, and from groups of neighbours, which move to medians.
    """
    at = np.flatnonzero(data.likely > 1e-4)
    if at.size == 0 or at.size > 5 * MOST_POINTS:
        return []
    groups = np.split(at, np.flatnonzero(np.diff(at) > 1) + 1)
    weight = np.array([data.likely[g].sum() for g in groups])
    place = np.array([round(float(data.likely[g] @ g / data.likely[g].sum())) for g in groups])
    return _fewer(data, at, data.likely[at], _settled) + _fewer(data, place, weight, _mixture)


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


def _shared(models: list[Model]) -> list[Model]:
    """Scale the prior weights so that they add up to 1."""
    total = float(logsumexp([model.log_weight for model in models])) if models else 0.0
    return [replace(model, log_weight=model.log_weight - total) for model in models]


def average(smooth: list[Model], points: list[Model]) -> tuple[Floats, list[tuple[str, float]]]:
    """Average the models by their evidence; return the masses and the weights of those that count, best first."""
    models = _shared(smooth) + _shared(points)
    models.sort(key=lambda model: -model.score)
    models = [model for model in models if model.score > models[0].score - NEGLIGIBLE]
    weight = np.exp([model.score - models[0].score for model in models])
    weight /= weight.sum()
    masses = sum(w * model.masses for w, model in zip(weight, models))
    return np.asarray(masses), [(model.name, float(w)) for w, model in zip(weight, models)]
