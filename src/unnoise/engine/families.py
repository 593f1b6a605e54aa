"""Families of walks: what a smooth profile may look like.

The logarithm of the mass per count is a random walk (:mod:`.walk`) of order 2 or 3 in t, log(1 + t) or log t, of order
2 in log(1 + t) with precision rising as (1 + t/s)², s the scale of the noise; or log f·t! is one of order 2 in t, whose
stiffest are Poisson laws (log f/C(n, t) and binomial laws where no count is above n); or it follows a pattern of some
period (:mod:`.periods`). Each has a ladder of strengths λ, a decade apart, and where counts begin at 0 or 1 its first
0, 1 or 4 steps may be free: small counts are often unlike the rest, and what the noise hides of them is then left open.

All families have the same share of the prior, and in a family all heads and strengths. Where counts reach their bound
n, an item was counted at some of n occasions, and binomial laws are what chance makes of that: their family weighs as
much as all others together. Points (:mod:`.points`) weigh as much as all walks, or as one family where walks may hold
atoms (:data:`.search.ONE_OF_MANY`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from ..arrays import Floats
from .channel import Grid
from .walk import JUMP, STIFFEST, Walk

__all__ = ["FAMILIES", "HEADS", "Family", "shares"]

HEADS = (0, 1, 4)
"""How many steps after the start may be free together."""

STRAIGHT = 0.1
"""How far the stiffest walk of a ladder strays from a polynomial over the whole grid, in standard deviations of θ."""

SMALL = 256
"""Largest count up to which 1/t! is tried: beyond, a Poisson law is a normal law to everybody."""


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
        return grid.walked > self.order + 2 * self.period and not (self.factorial and grid.last > SMALL)

    def heads(self, grid: Grid) -> tuple[int, ...]:
        """Heads to be tried: none where 1 is far or the walk has a period; in log t the count 0 is always free.

        A longer one must leave a step that is not free.
        """
        if grid.counts[0] > 1 or self.period:
            return HEADS[:1]
        least, *longer = HEADS[1:] if self.coordinate == "log t" and grid.counts[0] == 0 else HEADS
        return least, *(head for head in longer if head < grid.walked - self.order)

    def walk(self, grid: Grid, level: float) -> Walk:
        """The walk over a grid, whose runs begin around ``level``."""
        rise = np.asarray(1 + grid.counts / grid.scale, dtype=float) ** 2 if self.rising else 1.0
        base = _by_chance(grid) if self.factorial else None
        return Walk(self._coordinate(grid), grid.position, self.order, rise, base, level, self.period)

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
    if grid.bound is None or grid.last < grid.bound or len(others) in {0, len(suited)}:
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
