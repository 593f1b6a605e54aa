"""Models of a body, and their evidence.

Smooth models: random walks (:mod:`._smooth_walk`) of seven families — of log f, order 2 and 3 in t, order 2 and 3 in
log(1 + t), order 2 in log t, and order 2 in log(1 + t) with precision rising as (1 + εt)²; and of log f·t!, order 2 in
t, whose stiffest are Poisson laws — each for a ladder of strengths λ, with the first 0, 1 or 4 steps after the start
free (small counts are often unlike the rest), and with those steps free that stand out from the others (spikes and
edges). Steps that stand out cost what it takes to name them: log C(n, q) + log n nats for q of n.

Point models: mixtures of few point masses (:mod:`._smooth_points`).

Every model gets a log evidence in nats and a share of the prior. Smooth and point models have ½ each; all families
have the same share, and in a family all heads and strengths.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.special import gammaln

from ..arrays import Floats, Int64
from ._smooth_channel import BandedChannel
from ._smooth_walk import JUMP, STIFFEST, Walk

__all__ = ["BEHIND", "FAMILIES", "HEADS", "Data", "Family", "Model", "Search", "average"]

HEADS = (0, 1, 4)
"""How many steps after the start may be free together."""

BEHIND = 12.0
"""Models this many nats behind the best are left out of the average, and not looked for."""

STRAIGHT = 0.1
"""How far the stiffest walk of a ladder strays from a polynomial over the whole body, in standard deviations of θ."""

SMALL = 256
"""Largest count up to which 1/t! is tried: beyond, a Poisson law is a normal law to everybody."""


@dataclass(frozen=True, eq=False)
class Data:
    """What the models of a body share.

    y : shares of the body's cells at the rows; rows : noisy counts; counts : those that may have mass
    position : place of each count in its run; cells : d; epsilon : ε
    likely : maximum-likelihood masses at the counts; start : θ to begin with
    """

    channel: BandedChannel
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


@dataclass(frozen=True)
class Family:
    """Walks of log f (log f·t! where ``factorial``) of one order in t, log(1 + t) or log t; rising: in precision."""

    coordinate: str
    order: int
    rising: bool = False
    factorial: bool = False
    period: int = 0

    def name(self, head: int) -> str:
        """What a walk of the family with a free head is called."""
        name = f"{self.coordinate} order {self.order}" + " rising" * self.rising + " on 1/t!" * self.factorial
        name += f" of period {self.period}" if self.period else ""
        return f"{name}, head {head}" if head else name

    def suits(self, data: Data) -> bool:
        """Whether the body is long enough for a step, and for 1/t! short enough to matter."""
        return data.counts.size > self.order + 2 * self.period and not (self.factorial and data.counts[-1] > SMALL)

    def heads(self, data: Data) -> tuple[int, ...]:
        """Heads to be tried: none where 0 is far or the walk has a period; in log t the count 0 is always free."""
        if data.counts[0] > 0 or self.period:
            return HEADS[:1]
        return HEADS[1:] if self.coordinate == "log t" else HEADS

    def walk(self, data: Data) -> Walk:
        """The walk over the counts of a body."""
        rise = np.asarray(1 + data.epsilon * data.counts, dtype=float) ** 2 if self.rising else 1.0
        base = -gammaln(data.counts + 1.0) if self.factorial else None
        return Walk(self._coordinate(data), data.position, self.order, rise, base, period=self.period)

    def strengths(self, data: Data, walk: Walk) -> Floats:
        """Strengths λ in decades, stiffest first: from a walk as good as straight to one whose every step is free.

        A walk of precision λ strays by √(X³/3λ) over a length X (order 2), or by √(X⁵/20λ) (order 3).
        """
        x = self._coordinate(data)
        first = np.flatnonzero(data.position == 0)
        length = float((x[np.append(first[1:], x.size) - 1] - x[first]).max())
        stiffest = length ** (2 * self.order - 1) / (3 if self.order == 2 else 20) / STRAIGHT**2
        stiffest = min(stiffest / float(np.median(walk.rise)), STIFFEST / float(walk.spread[walk.steps].min()))
        steps = max(1, math.ceil(math.log10(max(stiffest * JUMP**2, 1.0))))
        return np.asarray(stiffest * 10.0 ** -np.arange(steps + 1))

    def _coordinate(self, data: Data) -> Floats:
        t = data.counts.astype(float)
        scales = {"t": t, "log": np.log1p(t), "log t": np.log(np.maximum(t, 0.5))}
        return np.asarray(scales[self.coordinate])


FAMILIES = (
    Family("t", 2),
    Family("t", 3),
    Family("log", 2),
    Family("log", 3),
    Family("log", 2, rising=True),
    Family("log t", 2),
    Family("t", 2, factorial=True),
)


@dataclass(frozen=True, eq=False)
class Model:
    """A fitted model: name, masses at the counts (adding up to 1), log evidence, log share of the prior."""

    name: str
    masses: Floats
    log_evidence: float
    log_weight: float = 0.0

    @property
    def score(self) -> float:
        """Log evidence plus log share of the prior."""
        return self.log_evidence + self.log_weight


@dataclass
class Search:
    """Tally of the fits tried, and the models found."""

    fits: int = 0
    iterations: int = 0
    not_converged: int = 0
    models: list[Model] = field(default_factory=list)


def average(smooth: list[Model], points: list[Model]) -> tuple[Floats, list[tuple[str, float]]]:
    """Join the models by their evidence; return the masses and the weights of those that count, best first.

    Smooth models are averaged. Of the cumulative curves of that average and of the point models the median by weight
    is taken, count by count: the curve of least expected earth-mover distance, and again that of a profile. So a
    spike that is likelier than not stays a spike, and one that is not leaves no trace.
    """
    most = max(model.score for model in smooth + points)
    smooth, points = ([model for model in models if model.score > most - BEHIND] for models in (smooth, points))
    weight = np.exp([model.score - most for model in smooth + points])
    weight /= weight.sum()
    of_smooth, of_points = weight[: len(smooth)], weight[len(smooth) :]
    curves = [model.masses for model in points]
    if smooth:
        curves.append(of_smooth @ np.array([model.masses for model in smooth]) / of_smooth.sum())
        of_points = np.append(of_points, of_smooth.sum())
    named = sorted(zip([model.name for model in smooth + points], weight.tolist()), key=lambda each: -each[1])
    return _median(np.array(curves), of_points), named


def _median(masses: Floats, weight: Floats) -> Floats:
    """The profile whose cumulative curve is the median, by weight, of those of some profiles.

    >>> _median(np.array([[0.0, 1.0], [0.5, 0.5]]), np.array([0.6, 0.4])).tolist()
    [0.0, 1.0]
    """
    curves = np.cumsum(masses, axis=1)
    order = np.argsort(curves, axis=0, kind="stable")
    below = (np.cumsum(weight[order], axis=0) < 0.5 * weight.sum()).sum(axis=0)
    curve = np.take_along_axis(curves, np.take_along_axis(order, below[None], 0), 0)[0]
    median = np.maximum(np.diff(curve, prepend=0.0), 0)
    return np.asarray(median / median.sum())
