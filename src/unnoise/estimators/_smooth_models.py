"""Models of a body, and their evidence.

Smooth models: random walks of log f (:mod:`._smooth_walk`) of five families — order 2 and 3 in t, order 2 and 3 in
log(1 + t), and order 2 in log(1 + t) with precision rising as (1 + εt)² — each for a ladder of strengths λ, with the
first 0, 1, 2, 4 or 6 steps after the start free, and with those steps free that stand out from the others (spikes and
edges). Small counts are often unlike the rest and unlike each other, and strong noise hardly shows it, so each free
step of the head is given e to 1 in advance; other steps cost what it takes to name them: log C(n, q) + log n nats for
q of n.

Point models: mixtures of few point masses (:mod:`._smooth_points`).

Every model gets a log evidence in nats. Smooth and point models have prior probability ½ together, shared out among the
smooth ones as said (:mod:`._smooth_search`), among the point models equally.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from ..arrays import Floats, Int64
from ._smooth_channel import BodyChannel

__all__ = ["FAMILIES", "Data", "Model", "Search", "average"]


FAMILIES = (("t", 2), ("t", 3), ("log", 2), ("log", 3), ("rising", 2))
"""Coordinate and order of the walk."""

STRENGTHS: dict[str, Floats] = {
    "t": np.logspace(-2, 9, 12),
    "log": np.logspace(-3, 6, 10),
    "rising": np.logspace(-3, 5, 9),
}

HEADS = (1, 2, 4, 6)
"""How many steps after the start may be free together, each e to 1 in advance."""

NEGLIGIBLE = 12.0
"""Models this many nats behind the best are left out of the average."""


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

    @cached_property
    def ceiling(self) -> float:
        """Log likelihood of the maximum-likelihood profile, which no evidence exceeds (but for the ends of runs)."""
        seen = self.y > 0
        m = self.channel.forward(self.likely) if self.likely.any() else self.y
        return self.cells * float(self.y[seen] @ np.log(m[seen]) - 1)


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
    """Tally of the fits tried; ``prior`` is the weight in advance of all strengths of the walks tried."""

    fits: int = 0
    iterations: int = 0
    not_converged: int = 0
    prior: float = 0.0
    models: list[Model] = field(default_factory=list)

    def share_out(self) -> None:
        """Scale the models' prior weights by that of all."""
        total = math.log(self.prior) if self.prior else 0.0
        self.models = [replace(model, log_weight=model.log_weight - total) for model in self.models]


def average(smooth: list[Model], points: list[Model]) -> tuple[Floats, list[tuple[str, float]]]:
    """Average the models by their evidence; return the masses and the weights of those that count, best first."""
    models = sorted(smooth + points, key=lambda model: -model.score)
    models = [model for model in models if model.score > models[0].score - NEGLIGIBLE]
    weight = np.exp([model.score - models[0].score for model in models])
    weight /= weight.sum()
    masses = sum(w * model.masses for w, model in zip(weight, models))
    return np.asarray(masses), [(model.name, float(w)) for w, model in zip(weight, models)]
