"""Random walks of the logarithm of a profile: the prior, a mode under it with its evidence, families of such models.

θ = log f at the counts of a run is a random walk of order r in a coordinate x(t): the r-th divided difference of θ is
Gaussian white noise in x with precision λ, Σ λ·(d^r θ/dx^r)²·Δx [1]_. Large λ leads to a polynomial of degree r − 1 in
x: with x = t geometric laws (r = 2) and discretised normal laws (r = 3), with x = log(1 + t) power laws and log-normal
laws. A walk starts from vague values, so that the prior is proper and models can be compared: θ at the first count has
standard deviation 10, its first differences 3 apiece (``JUMP``).

With a ``period`` p the step is θ[i] − θ[i−1] − θ[i−p] + θ[i−p−1], which large λ makes geometric laws times a pattern of
period p, and smaller λ lets both change slowly (the seasonal model of [2]_).

With a ``base`` θ − base is the walk: on base = −ν·log t! large λ leads to Poisson laws (x = t, r = 2, ν = 1), and to
laws spread more (ν < 1) or less (ν > 1) than chance, those of Conway and Maxwell [4]_.

A *free* step is given that standard deviation of 3 in place of λ: a spike or an edge of the profile. ``rise`` lets
the precision grow along the counts, for profiles rough at small counts and smooth beyond.

Counts may also stray from a walk, each by itself: packs of six beside single pieces, odd numbers, prices. θ is then the
walk plus independent variables, e^θ of a block of n counts the mean of n such factors.

D, with one row per count holding θ[i−r…i], is square and lower triangular, so log det(DᵀWD) = Σ log w + 2·Σ log|D_ii|.

**The mode.** For cells seen through a channel (:mod:`.channel`) and a walk with precision P on θ, the logarithm of the
mass per count, maximise log likelihood(θ) + log prior(θ) by Newton's method with the expected information and the
positive part of what it leaves out. At the mode θ̂ Laplace's approximation of the log evidence is [3]_

    log likelihood(θ̂) + log prior(θ̂) − ½·log det A,

where (2π)^(N/2) has cancelled with the prior's. A short last step is taken on trust: half of Newton's decrement is what
it gains. A search that stops short of the tolerance says so.

**Families**, their ladders and shares of the prior are in docs/estimators.md (*Walks*, *search*): order 2 or 3 in t,
log(1 + t) or log t, rising in precision, on the base 1/t! (C(n, t) where no count is above n), of some period. Where
counts begin at 0 or 1 the first step, the *head*, may be free, and a count 0 is then a run by itself: how many cells
are empty and how many hold one item are starting values both. Where counts reach their bound n, an item was counted at
some of n occasions, and binomial laws, what chance makes of that, weigh as much as all other families together; among
these is, with ν = ½ and 2, what comes of occasions that go together or avoid each other.

**Periods.** Counts may be heaped: even numbers only, multiples of 5, round numbers. Two signs of it are looked for at
the best smooth profile f, with law m = K f. *A pattern it has missed*: let c be the logarithms of factors on the
residue classes t mod p, ± JUMP in advance, and P the indicators of the classes. Then

    g = Pᵀ·d·F·(Kᵀ(y/m) − 1),       H = d·(K·F·P)ᵀ·M⁻¹·(K·F·P)

are the score and the information of the cells about c at c = 0. Without a pattern gᵀ(H + 1/JUMP²)⁻¹g is at most a χ² of
p degrees of freedom, nearly; where that is less likely than ``CHANCE`` for some p, the unlikeliest is worth a fit.
*A pattern it has taken over*, as a loose walk does: the steps of log f at lag p, θ[t] − θ[t−1] − θ[t−p] + θ[t−p−1], are
much smaller than its second differences, where there are cells.

.. [1] H. Rue, L. Held, "Gaussian Markov Random Fields", 2005, chapter 3.
.. [2] G. E. P. Box, G. M. Jenkins, "Time series analysis", 1970, chapter 9.
.. [3] L. Tierney, J. B. Kadane, "Accurate approximations for posterior moments and marginal densities", JASA 81, 1986.
.. [4] G. Shmueli et al., "A useful distribution for fitting discrete data: revival of the Conway–Maxwell–Poisson
   distribution", JRSS C 54, 2005.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, solve_triangular
from scipy.special import gammaln, hyperu

from ..arrays import Floats, Int64
from .channel import Channel, Grid, S, Seeing

__all__ = [
    "FAMILIES", "HEADS", "JUMP", "LEVEL", "PERIODS", "Family", "Ladder", "Mode", "Model", "Prior",
    "Strayed", "Walk", "find_mode", "likely_periods", "shares",
]  # fmt: skip

LEVEL = 10.0
"""Standard deviation of θ at the start of a run."""

JUMP = 3.0
"""Standard deviation of a free change of θ: factors of e³ = 20 up or down are ordinary."""

STIFFEST = 1e10
"""Largest precision of a row in θ: beyond, rounding would rule."""

STARTS = ((1.0,), (-1.0, 1.0), (1.0, -2.0, 1.0))


class Walk:
    """The prior of order ``order`` in the coordinate ``x`` over runs whose counts have ``position`` 0, 1, … in them.

    ``base`` is what θ is a walk around; ``level`` the mean of θ at the start of a run: that of even shares of 1, unless
    given. ``log_det`` is log det D. ``starts_twice`` says whether the first count stands apart from the others.
    """

    def __init__(
        self,
        x: Floats,
        position: Int64,
        order: int,
        rise: Floats | float = 1.0,
        base: Floats | None = None,
        level: Floats | float | None = None,
        period: int = 0,
    ) -> None:
        order = period + 1 if period else order
        self.order, self.size, self.rise = order, x.size, rise
        self.rows = _seasonal(x.size, period) if period else _differences(x, position, order)
        self.fixed = np.zeros(self.size)
        self.offset = np.zeros(self.size)
        for j in range(order):
            at = np.flatnonzero(position == j)
            self.rows[:, at] = 0.0
            start = STARTS[min(j, 1) if period else j]
            self.rows[order + 1 - len(start) :, at] = np.array(start)[:, None]
            self.fixed[at] = 1 / LEVEL**2 if j == 0 else 1 / (JUMP**2 * sum(c * c for c in start))
        if base is not None:
            self.offset = self.differences(base)
        self.offset[position == 0] = -np.log(self.size) if level is None else level
        self.steps = self.fixed == 0
        self.spread = np.square(self.rows).sum(axis=0)
        self.log_det = float(np.log(np.abs(self.rows[order])).sum())
        self.free = np.zeros(self.size, dtype=bool)
        self.starts_twice = bool((self.fixed[:2] == 1 / LEVEL**2).sum() == 2)

    def freed(self, steps: Int64) -> Walk:
        """The same walk with just these steps free."""
        walk = copy(self)
        walk.free = np.zeros(self.size, dtype=bool)
        walk.free[steps] = self.steps[steps]
        return walk

    def precision(self, strength: float) -> Floats:
        """Precision of every row for λ = strength."""
        w = np.minimum(strength * self.rise, STIFFEST / self.spread)
        w[self.free] = np.minimum(w[self.free], 1 / (JUMP**2 * self.spread[self.free]))
        return np.where(self.steps, w, self.fixed)

    def differences(self, theta: Floats) -> Floats:
        """D θ, less the start's mean."""
        out = self.rows[self.order] * theta
        for j in range(self.order):
            lag = self.order - j
            out[lag:] += self.rows[j, lag:] * theta[:-lag]
        return np.asarray(out - self.offset)


def _differences(x: Floats, position: Int64, order: int) -> Floats:
    """Rows of the r-th derivative times √Δx: row i, column j is the coefficient of θ[i−r+j]."""
    gap = np.ones(x.size)
    gap[1:] = np.diff(x)
    gap[position == 0] = 1.0
    before = np.ones(x.size)
    before[1:] = gap[:-1]
    width = (gap + before) / 2
    second = np.array([1 / before / width, -(1 / before + 1 / gap) / width, 1 / gap / width])
    if order == 2:
        return np.asarray(second * np.sqrt(width))
    rows = np.zeros((4, x.size))
    rows[1:] += second
    rows[:3, 1:] -= second[:, :-1]
    return np.asarray(rows / np.sqrt(before))


def _seasonal(size: int, period: int) -> Floats:
    """Rows of the difference between neighbours, less that one period before."""
    rows = np.zeros((period + 2, size))
    rows[[0, -1]] += 1.0
    rows[[1, -2]] -= 1.0
    return rows


class Prior:
    """The Gaussian law of θ by a walk with the precision of every row.

    bands : superdiagonals of the inverse covariance Dᵀ·W·D, each as long as θ
    peak : log density where D θ is the start's mean, (2π)^(−N/2) left out
    """

    def __init__(self, walk: Walk, precision: Floats) -> None:
        self.walk, self.precision = walk, precision
        self.peak = float(0.5 * np.log(precision).sum() + walk.log_det)
        self.bands = [np.zeros(walk.size) for _ in range(walk.order + 1)]
        for p in range(walk.order + 1):
            for q in range(p, walk.order + 1):
                product = precision * walk.rows[p] * walk.rows[q]
                self.bands[q - p][: walk.size - walk.order + p] += product[walk.order - p :]

    def tension(self, theta: Floats) -> tuple[Floats, float]:
        """Gradient Dᵀ·W·r and value of −log density, from its peak; r = D θ, less the start's mean."""
        walk, r = self.walk, self.walk.differences(theta)
        weighted = self.precision * r
        gradient = walk.rows[walk.order] * weighted
        for j in range(walk.order):
            lag = walk.order - j
            gradient[:-lag] += (walk.rows[j] * weighted)[lag:]
        return np.asarray(gradient), 0.5 * float(self.precision @ (r * r))


class Strayed(Prior):
    """The same with every θ astray by itself, by these variances: the covariance is (DᵀWD)⁻¹ + S, S diagonal.

    With G = W^½·D the inverse is Gᵀ·(1 + G·S·Gᵀ)⁻¹·G, for which no walk is too stiff or too loose.
    """

    def __init__(self, prior: Prior, variance: Floats) -> None:
        walk, n = prior.walk, prior.walk.size
        self.walk, self.precision = walk, prior.precision
        self.root, matrix = np.sqrt(prior.precision), np.zeros((n, n))
        for lag in range(min(walk.order + 1, n)):
            matrix[np.arange(lag, n), np.arange(n - lag)] = (self.root * walk.rows[walk.order - lag])[lag:]
        self.factor = np.linalg.cholesky(np.eye(n) + (matrix * variance) @ matrix.T)
        self.half = solve_triangular(self.factor, matrix, lower=True, check_finite=False)
        inverse = self.half.T @ self.half
        self.bands = [np.append(np.diag(inverse, k), np.zeros(k)) for k in range(n)]
        self.peak = prior.peak - float(np.log(np.diag(self.factor)).sum())

    def tension(self, theta: Floats) -> tuple[Floats, float]:
        """Gradient and value of −log density, from its peak."""
        r = solve_triangular(self.factor, self.root * self.walk.differences(theta), lower=True, check_finite=False)
        return self.half.T @ r, 0.5 * float(r @ r)


# ── the mode ────────────────────────────────────────────────────────────────────────────────────────────────────────

TOLERANCE = 1e-3
"""Newton decrement, in nats over all cells, at which a search ends."""

SHORTLY, SHORT = 0.03, 0.05
"""It ends sooner, at a decrement of 0.03, if that is a tenth of the last and no θ changes by more than 0.05 in the last
step: A hardly changes then. Where few cells are left to tell, Newton's method creeps, and the end is not so near."""

LONGEST = 8.0
"""Largest change in one step of any θ that matters, before it or after."""

MATTERS = -25.0
"""θ below this is mass that no cells would tell from none (e^−25 = 1e-11): how far it falls is of no account."""

HIGHEST = 60.0
"""θ stays below this, so that e^θ is not beyond bounds."""


@dataclass(frozen=True, eq=False)
class Mode:
    """Where a search ended: θ, log likelihood and evidence there, Newton systems, and how: converged, given up."""

    theta: Floats
    value: float
    log_evidence: float
    iterations: int
    converged: bool
    hopeless: bool = False


def find_mode(
    channel: Seeing[S],
    prior: Prior,
    start: Floats,
    *,
    wanted: float = -np.inf,
    max_iterations: int = 60,
) -> Mode:
    """Return the mode of θ under the prior, starting from ``start``.

    The search is given up as hopeless where even twice the gain expected of a full step would leave the log evidence
    below what is ``wanted``.
    """
    held, widths = channel.hold(prior.bands), channel.widths
    theta, state = start, channel.at(widths * np.exp(start))
    tension, cost = prior.tension(start)
    now = state.value + prior.peak - cost
    evidence, before = -np.inf, np.inf
    for iteration in range(1, max_iterations + 1):
        slope = channel.exposure * state.mass * (1 - channel.pull(state))
        gradient = slope + tension
        try:
            step, log_det = channel.newton(held, np.maximum(slope, 0), state, gradient)
        except LinAlgError:
            return Mode(theta, state.value, -np.inf, iteration, False)
        decrement = -float(gradient @ step)
        if not np.isfinite(decrement):
            return Mode(theta, state.value, -np.inf, iteration, False)
        evidence = now - 0.5 * log_det
        longest = float(np.abs(step).max())
        soon = decrement < min(SHORTLY, 0.1 * before) and longest < SHORT
        before = decrement
        if decrement < TOLERANCE or soon:
            last = theta + step if longest < SHORT else theta
            return Mode(last, state.value, evidence + 0.5 * decrement, iteration, decrement > -TOLERANCE)
        matters = np.maximum(theta, theta + step) > MATTERS
        length = min(1.0, LONGEST / float(np.abs(step[matters]).max(initial=LONGEST)))
        if length == 1 and evidence + decrement < wanted:
            return Mode(theta, state.value, evidence + decrement, iteration, False, hopeless=True)
        for _ in range(6):
            trial = np.minimum(theta + length * step, HIGHEST)
            seen, (tension, cost) = channel.at(widths * np.exp(trial)), prior.tension(trial)
            then = seen.value + prior.peak - cost
            if then > now:
                break
            length /= 4
        else:
            return Mode(theta, state.value, evidence, iteration, decrement < 50 * TOLERANCE)
        gain = then - now
        theta, state, now = trial, seen, then
        if gain < 0.1 * TOLERANCE:
            return Mode(theta, state.value, evidence, iteration, True)
    return Mode(theta, state.value, evidence, max_iterations, False)

# ── families ────────────────────────────────────────────────────────────────────────────────────────────────────────

HEADS = (0, 1)
"""How many steps after the start may be free; it sets the count 0 apart, where there is one."""

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
    """Walks of log f·(t!)^factorial of one order in t, log(1 + t) or log t; rising: in precision."""

    coordinate: str
    order: int
    rising: bool = False
    factorial: float = 0.0
    period: int = 0

    def heads(self, grid: Grid) -> tuple[int, ...]:
        """Heads to be tried: none where 1 is far; in log t the count 0 is always free, of a pattern it may be no part.

        A head must leave a step that is not free. A count 0 is apart at first: a family that fails so fails without.
        """
        first = int(grid.counts[0])
        if first == 0 and self.coordinate == "log t":
            return HEADS[1:]
        if first > 1 or grid.walked <= self.order + 1 or (first == 1 and self.period):
            return HEADS[:1]
        return HEADS if first else HEADS[::-1]

    def ladder(self, grid: Grid, level: float, head: int) -> Ladder:
        """The walk over a grid whose runs begin around ``level``, with strengths λ in decades; a head frees 0.

        From a walk as good as straight to one with a step as free as JUMP: a walk of precision λ strays by √(X³/3λ)
        over a length X (order 2), or by √(X⁵/20λ) (order 3). The first to be tried is the one that strays by JUMP.
        Where runs are too short for a step, λ says nothing, and one of them is tried.
        """
        t, position = grid.counts, grid.position
        if head and grid.counts[0] == 0:
            first_run = np.cumsum(position == 0) == 1
            position = np.where(first_run, np.maximum(position - 1, 0), position)
        rise = np.asarray(1 + t / grid.scale, dtype=float) ** 2 if self.rising else 1.0
        base = -self.factorial * gammaln(t + 1.0)  # Poisson laws are a line away from −log t!
        if grid.bound is not None:  # and binomial ones from log C(n, t)
            base -= self.factorial * gammaln(np.maximum(grid.bound - t, 0.0) + 1)
        x = {"t": t, "log": np.log1p(t), "log t": np.log(np.maximum(t, 0.5))}[self.coordinate]
        walk = Walk(x, position, self.order, rise, base, level, self.period)
        walk = walk.freed(np.arange(walk.order, min(walk.order + head, walk.size)))
        first = np.flatnonzero(grid.position[: grid.walked] == 0)
        length = float((x[np.append(first[1:], grid.walked) - 1] - x[first]).max())
        strays = length ** (2 * self.order - 1) / (3 if self.order == 2 else 20)
        steps = walk.steps[: grid.walked]
        rise = np.broadcast_to(rise, t.shape)[: grid.walked]
        spread = walk.spread[: grid.walked][steps] if steps.any() else np.ones(1)
        stiffest = min(strays / STRAIGHT**2 / float(np.median(rise)), STIFFEST / float(spread.min()))
        loosest = 1 / (JUMP**2 * float((rise[steps] * spread).min())) if steps.any() else stiffest
        rungs = max(1, math.ceil(math.log10(max(stiffest / loosest, 1.0))))
        strengths = stiffest * 10.0 ** -np.arange(rungs + 1)
        usual = int(np.abs(np.log(strengths * float(np.median(rise)) / max(strays / JUMP**2, 1e-300))).argmin())
        name = f"{self.coordinate} order {self.order}" + " rising" * self.rising
        name += f" on 1/t!^{self.factorial:g}" * (self.factorial > 0)
        name += f" of period {self.period}" * (self.period > 0) + f", head {head}" * (head > 0)
        name += f", multiples of {grid.stride}" * (grid.stride > 1)
        return Ladder(self, name, walk, np.asarray(strengths), usual)


@dataclass(frozen=True, eq=False)
class Ladder:
    """A walk of a family and the strengths λ that it is tried with, stiffest first, beginning with ``first``."""

    family: Family
    name: str
    walk: Walk
    strengths: Floats
    first: int


def shares(families: Sequence[Family], grid: Grid) -> dict[Family, float]:
    """Each family with its share of the prior, if the grid is long enough for a step, and for 1/t! short enough.

    Where counts reach their bound, binomial laws have half of it, and OCCASIONS are among the others.
    """
    last = grid.counts[: grid.walked].max(initial=0.0)
    reached = grid.bound is not None and last >= grid.bound
    suited = [
        family for family in (*families, *(OCCASIONS if reached else ()))
        if grid.walked > family.order + 2 * family.period + min(family.heads(grid))
        and not (family.factorial and last > SMALL)
    ]  # fmt: skip
    others = [family for family in suited if family.factorial != 1]
    if not reached or len(others) in {0, len(suited)}:
        return dict.fromkeys(suited, 1 / max(len(suited), 1))
    return {family: 0.5 if family.factorial == 1 else 0.5 / len(others) for family in suited}


FAMILIES = (
    Family("t", 2),
    Family("t", 3),
    Family("log", 2),
    Family("log", 3),
    Family("log", 2, rising=True),
    Family("log t", 2),
    Family("t", 2, factorial=1.0),
)
"""The rising one is for millions of items at strong noise, whose small counts are known far better than the others: of
57 million passwords at ε = 0.1 ℓ∞ is 1.6 of the paper's without it, 1.0 with it."""

OCCASIONS = (Family("t", 2, factorial=0.5), Family("t", 2, factorial=2.0))
"""Counts of some of n occasions spread more, or less, than chance makes them."""


ALIKE = 0.02
"""Nats, and share of all masses, by which walks a decade of strength apart are the same: the next would differ by a
tenth of that, and so on, so the stiffer ones are not fitted but weighed with the last."""


@dataclass(frozen=True, eq=False)
class Model:
    """A fitted model: its channel (blocks of its own), mode, evidence and share of the prior; points have no family.

    value : log likelihood about its mode; alike : logarithm of the number of walks it stands for
    places : of points: their counts, whose masses come first (and above every row, last, where the channel has that)
    score : log evidence plus log share of the prior; mass : that of each of its blocks
    """

    channel: Seeing[Any]
    name: str
    theta: Floats
    value: float
    log_evidence: float
    log_weight: float
    prior: Prior
    family: Family | None = None
    strength: float = 1.0
    places: Int64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    alike: float = 0.0
    converged: bool = True
    score: float = field(init=False)
    mass: Floats = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "score", self.log_evidence + self.log_weight + self.alike)
        object.__setattr__(self, "mass", np.asarray(self.channel.widths * np.exp(self.theta)))

    def told_by(self, theta: Floats, log_evidence: float) -> bool:
        """Whether a walk ten times as stiff says the same: then all stiffer ones do."""
        if abs(log_evidence - self.log_evidence) > ALIKE:
            return False
        change = np.abs(self.channel.widths * np.exp(theta) - self.mass).sum()
        return float(change) < ALIKE * float(self.mass.sum())


# ── periods ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def likely_periods(channel: Channel[Any], mass: Floats) -> list[int]:
    """Return the periods worth a fit beside these masses, with all that divide them.

    Periods of which the grid does not hold three are not looked at, nor those for which every run is too short to take
    a step, nor any where blocks are wider than a count. Beneath shared cells nothing tells what was missed.
    """
    grid = channel.grid
    longest = int(grid.position[: grid.walked].max(initial=0))
    periods = [p for p in PERIODS if grid.walked >= 3 * p + 3 and longest > p] if grid.single else []
    found = _taken_over(channel, mass, periods) | (set() if channel.collide else _missed(channel, mass, periods))
    return [p for p in periods if any(longest % p == 0 for longest in found)]


def _missed(channel: Channel[Any], mass: Floats, periods: list[int]) -> set[int]:
    """The period whose score is the least likely by chance, if unlikely enough."""
    state = channel.at(mass)
    slope = channel.exposure * mass * (channel.pull(state) - 1)
    log_chance = {}
    for p in periods:
        member = np.equal.outer(channel.grid.counts % p, np.arange(p)).astype(float)
        member[channel.grid.walked :] = 0.0
        score, information = slope @ member, channel.classes(state, member)
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
