"""Families of walks: what a smooth profile may look like.

The logarithm of the mass per count is a random walk (:mod:`.walk`) of order 2 or 3 in t, log(1 + t) or log t, of order
2 in log(1 + t) with precision rising as (1 + t/s)², s the scale of the noise; or log f·t! is one of order 2 in t, whose
stiffest are Poisson laws (log f/C(n, t) and binomial laws where no count is above n); or it follows a pattern of some
period. Each has a ladder of strengths λ, a decade apart, and where counts begin at 0 or 1 its first
0, 1 or 4 steps may be free: small counts are often unlike the rest, and what the noise hides of them is then left open.
A count 0 is then a run by itself: how many cells are empty and how many hold one item are starting values both.

All families have the same share of the prior, and in a family all heads and strengths. Where counts reach their bound
n, an item was counted at some of n occasions, and binomial laws are what chance makes of that: their family weighs as
much as all others together. Points (:mod:`.points`) weigh as much as all walks, or as one family where walks may hold
atoms (:data:`.search.ONE_OF_MANY`).

**Periods.** Counts may be heaped: even numbers only, multiples of 5, round numbers. Two signs of it are looked for at
the best smooth profile f, with law m = K f.

**A pattern it has missed.** Let c be the logarithms of factors on the residue classes t mod p, ± JUMP in advance. With
P the indicators of the classes,

    g = Pᵀ·d·F·(Kᵀ(y/m) − 1),       H = d·(K·F·P)ᵀ·M⁻¹·(K·F·P)

are the score and the information of the cells about c at c = 0. Without a pattern gᵀ(H + 1/JUMP²)⁻¹g is at most a χ² of
p degrees of freedom, nearly; where that is less likely than ``CHANCE`` for some p, the unlikeliest is worth a fit.

**A pattern it has taken over**, as a loose walk does: the steps of log f at lag p, θ[t] − θ[t−1] − θ[t−p] + θ[t−p−1],
are much smaller than its second differences, where there are cells.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import gammaln, hyperu

from ..arrays import Floats
from .channel import Channel, Grid
from .walk import JUMP, STIFFEST, Walk

__all__ = ["APART_FIRST", "FAMILIES", "HEADS", "PERIODS", "Family", "likely_periods", "shares"]

HEADS = (0, 1, 4)
"""How many steps after the start may be free together; the first of them sets the count 0 apart, where there is one."""

APART_FIRST = (1, 0, 4)
"""The order in which they are tried then: a family that fails with 0 apart fails without."""

STRAIGHT = 0.1
"""How far the stiffest walk of a ladder strays from a polynomial over the whole grid, in standard deviations of θ."""

SMALL = 256
"""Largest count up to which 1/t! is tried: beyond, a Poisson law is a normal law to everybody."""

PERIODS = tuple(range(2, 13))
"""Periods tried; longer ones are few steps that stand out."""

CHANCE = 0.05
"""Chance at which a pattern is missed for nothing: in one sketch of twenty it is fitted in vain."""

MUCH_SMALLER = 0.5
"""Ratio of mean squares, both for θ that jumps at random 1, below which a pattern counts as taken over."""


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

    def suits(self, grid: Grid) -> bool:
        """Whether the grid is long enough for a step, and for 1/t! short enough to matter."""
        least = self.order + 2 * self.period + self.heads(grid)[0]
        return grid.walked > least and not (self.factorial and grid.counts[: grid.walked].max() > SMALL)

    def heads(self, grid: Grid) -> tuple[int, ...]:
        """Heads to be tried: none where 1 is far or the walk has a period; in log t the count 0 is always free.

        A longer one must leave a step that is not free.
        """
        if grid.counts[0] > 1 or self.period:
            return HEADS[:1]
        least, *longer = HEADS[1:] if self.coordinate == "log t" and grid.counts[0] == 0 else HEADS
        return least, *(head for head in longer if head < grid.walked - self.order)

    def walk(self, grid: Grid, level: float, head: int = 0) -> Walk:
        """The walk over a grid, whose runs begin around ``level``; with a head the count 0 is a run by itself."""
        position = grid.position
        if head and grid.counts[0] == 0:
            first_run = np.cumsum(position == 0) == 1
            position = np.where(first_run, np.maximum(position - 1, 0), position)
        rise = np.asarray(1 + grid.counts / grid.scale, dtype=float) ** 2 if self.rising else 1.0
        base = _by_chance(grid) if self.factorial else None
        return Walk(self._coordinate(grid), position, self.order, rise, base, level, self.period).headed(head)

    def strengths(self, grid: Grid, walk: Walk) -> tuple[Floats, int]:
        """Strengths λ in decades, stiffest first: from a walk as good as straight to one with a step as free as JUMP.

        A walk of precision λ strays by √(X³/3λ) over a length X (order 2), or by √(X⁵/20λ) (order 3).
        """
        x = self._coordinate(grid)[: grid.walked]
        first = np.flatnonzero(grid.position[: grid.walked] == 0)
        length = float((x[np.append(first[1:], x.size) - 1] - x[first]).max())
        strays = length ** (2 * self.order - 1) / (3 if self.order == 2 else 20)
        steps = walk.steps[: grid.walked]
        rise = np.broadcast_to(walk.rise, walk.steps.shape)[: grid.walked]
        spread = walk.spread[: grid.walked][steps]
        stiffest = min(strays / STRAIGHT**2 / float(np.median(rise)), STIFFEST / float(spread.min()))
        loosest = 1 / (JUMP**2 * float((rise[steps] * spread).min()))
        rungs = max(1, math.ceil(math.log10(max(stiffest / loosest, 1.0))))
        strengths = stiffest * 10.0 ** -np.arange(rungs + 1)
        usual = int(np.abs(np.log(strengths * float(np.median(rise)) / max(strays / JUMP**2, 1e-300))).argmin())
        return np.asarray(strengths), usual

    def _coordinate(self, grid: Grid) -> Floats:
        t = grid.counts
        return np.asarray({"t": t, "log": np.log1p(t), "log t": np.log(np.maximum(t, 0.5))}[self.coordinate])


def shares(families: Sequence[Family], grid: Grid) -> dict[Family, float]:
    """Each family that suits the grid, with its share of the prior."""
    suited = [family for family in families if family.suits(grid)]
    others = [family for family in suited if not family.factorial]
    last = grid.counts[: grid.walked].max(initial=0.0)
    if grid.bound is None or last < grid.bound or len(others) in {0, len(suited)}:
        return dict.fromkeys(suited, 1 / max(len(suited), 1))
    return {family: 0.5 if family.factorial else 0.5 / len(others) for family in suited}


def _by_chance(grid: Grid) -> Floats:
    """−log t!, of which Poisson laws are a line away; log C(n, t) where no count is above n: binomial laws."""
    base = -gammaln(grid.counts + 1.0)
    return np.asarray(base if grid.bound is None else base - gammaln(np.maximum(grid.bound - grid.counts, 0.0) + 1))


FAMILIES = (
    Family("t", 2),
    Family("t", 3),
    Family("log", 2),
    Family("log", 3),
    Family("log", 2, rising=True),
    Family("log t", 2),
    Family("t", 2, factorial=True),
)


def likely_periods(channel: Channel[Any], mass: Floats) -> list[int]:
    """Return the periods worth a fit beside these masses, with all that divide them.

    Periods of which the grid does not hold three are not looked at, nor those for which every run is too short to take
    a step, nor any where blocks are wider than a count.
    """
    grid = channel.grid
    longest = int(grid.position[: grid.walked].max(initial=0))
    periods = [p for p in PERIODS if grid.walked >= 3 * p + 3 and longest > p] if grid.single else []
    found = _missed(channel, mass, periods) | _taken_over(channel, mass, periods)
    return [p for p in periods if any(longest % p == 0 for longest in found)]


def _missed(channel: Channel[Any], mass: Floats, periods: list[int]) -> set[int]:
    """The period whose score is the least likely by chance, if unlikely enough."""
    state = channel.at(mass)
    slope = channel.exposure * mass * (channel.pull(state) - 1)
    log_chance = {}
    for p in periods:
        member = np.equal.outer(channel.grid.counts % p, np.arange(p)).astype(float)
        member[channel.grid.walked :] = 0.0
        information = channel.classes(state, member)
        if information is None:
            return set()
        score = slope @ member
        square = float(score @ np.linalg.solve(information + np.eye(p) / JUMP**2, score))
        log_chance[p] = _log_chance(square, p)
    least = min(periods, key=lambda p: log_chance[p], default=0)
    return {least} if least and log_chance[least] < math.log(CHANCE / len(PERIODS)) else set()


def _log_chance(square: float, p: int) -> float:
    """Logarithm of the chance that χ² of p degrees is larger, where the chance itself would be 0 as well.

    Γ(a, x) = exp(-x)·x^a·U(1, 1+a, x) with a = p/2, x = χ²/2 (DLMF 8.5.3).
    """
    a, x = p / 2, max(square / 2, 1e-9)
    return float(a * np.log(x) - x + np.log(hyperu(1.0, 1 + a, x)) - gammaln(a))


def _taken_over(channel: Channel[Any], mass: Floats, periods: list[int]) -> set[int]:
    """The period at whose lag the steps are smallest, if much smaller than second differences.

    Counts weigh as the root of their mass: a walk has taken over a pattern where there are cells, and not in its tail.
    The first count, which may stand apart, is left out.
    """
    walked = mass[1 : channel.grid.walked]
    theta, weight = np.log(np.maximum(walked, 0.1 / channel.exposure)), np.sqrt(walked)
    rough = float(np.average(np.square(np.diff(theta, 2)), weights=weight[1:-1])) / 6 if theta.size > 2 else 0.0
    steps = {
        p: float(np.average(np.square(np.diff(theta[p:] - theta[:-p])), weights=(weight[p:] + weight[:-p])[1:])) / 4
        for p in periods
    }
    least = min(periods, key=lambda p: steps[p], default=0)
    return {least} if least and steps[least] < MUCH_SMALLER * rough else set()
