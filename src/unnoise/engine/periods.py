"""Which periods of the counts, if any, are worth a fit.

Counts may be heaped: even numbers only, multiples of 5, round numbers. Two signs of it are looked for at the best
smooth profile f, with law m = K f.

**A pattern it has missed.** Let c be the logarithms of factors on the residue classes t mod p, ± JUMP in advance. With
P the indicators of the classes,

    g = Pᵀ·d·F·(Kᵀ(y/m) − 1),       H = d·(K·F·P)ᵀ·M⁻¹·(K·F·P)

are the score and the information of the cells about c at c = 0. Without a pattern gᵀ(H + 1/JUMP²)⁻¹g is at most a χ² of
p degrees of freedom, nearly; where that is less likely than ``CHANCE`` for some p, the unlikeliest is worth a fit.

**A pattern it has taken over**, as a loose walk does: the steps of log f at lag p, θ[t] − θ[t−1] − θ[t−p] + θ[t−p−1],
are much smaller than its second differences.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import gammaln, hyperu

from ..arrays import Floats
from .channel import Channel
from .walk import JUMP

__all__ = ["PERIODS", "likely_periods"]

PERIODS = tuple(range(2, 13))
"""Periods tried; longer ones are few steps that stand out."""

CHANCE = 0.05
"""Chance at which a pattern is missed for nothing: in one sketch of twenty it is fitted in vain."""

MUCH_SMALLER = 0.5
"""Ratio of mean squares, both for θ that jumps at random 1, below which a pattern counts as taken over."""


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
    """The period at whose lag the steps are smallest, if much smaller than second differences."""
    walked = mass[: channel.grid.walked]
    theta = np.log(np.maximum(walked, 0.1 / channel.exposure))
    rough = float(np.square(np.diff(theta, 2)).mean()) / 6 if theta.size > 2 else 0.0
    steps = {p: float(np.square(np.diff(theta[p:] - theta[:-p])).mean()) / 4 for p in periods}
    least = min(periods, key=lambda p: steps[p], default=0)
    return {least} if least and steps[least] < MUCH_SMALLER * rough else set()
