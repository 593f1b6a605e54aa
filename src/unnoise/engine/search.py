"""The search: which models are fitted, which of them count, and their average by evidence.

**The rule.**

1. With the count 0 apart, where there is one, and without, or with the first step free, every family (:mod:`.walk`)
   is climbed over its strengths, from where its walk spreads by ± 3 to stiffer ones and then to looser ones, each fit
   from the last mode, while a straight line through the last two scores ends less than PAST nats below the peak. A
   family BEHIND nats behind the best with the same head tries no other.
2. Periods are fitted if the best model, or the leader that follows the cells least, shows any (:mod:`.walk`): a
   loose walk takes a pattern over and then misses nothing.
3. The steps that stand out (4 robust deviations) are set free in the best model of each family, at the cost of naming
   them, and its ladder is climbed to stiffer walks; again while that helps. And all of its counts may stray from a
   stiffer walk, each by itself, further and further while that helps (Fourier channel).
4. The best mode is asked whether the cells want more mass at some count than it gives (:meth:`strain`). Where that
   exceeds STRAIN standard errors the count gets a mass of its own; near a count that has one, no single count explains
   the cells, and the blocks of both are cut into pieces instead. Then 1. to 4. are repeated, at most ROUNDS times.
   A single count that towers over both sides of the best mode gets a mass of its own too, if that is likelier.
5. Mixtures of points are fitted (:mod:`.points`).
6. Models that pass the certificate of 4. count (:mod:`.posterior`), within BEHIND nats of the best of them, but SLIGHT;
   those further behind the best of all only if they explain the cells better.

A ladder ends early where ten times the strength changes nothing (ALIKE).

A fit that can no longer come within BEHIND nats of the best is not carried to its end. In log N the gradient is
proportional to N, so a fit can sit in a trap: hence 4., and modes are approached from both sides.

**Average.** Where items share cells, all models are averaged by weight: what is asked for is their number. In a domain
walks are averaged, and of the cumulative curves of that average and of the point models the median by weight is taken,
count by count: the curve of least expected earth-mover distance, and again that of a profile. So a spike that is
likelier than not stays a spike, and one that is not leaves no trace.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy.special import gammaln

from ..arrays import Floats, Int64
from .channel import FAR, SEVERAL, Blocks, Channel, blur_of, first_apart, resolved
from .fourier import FourierChannel
from .points import Places, pulled_points
from .walk import (
    FAMILIES,
    PERIODS,
    Family,
    Ladder,
    Model,
    Prior,
    Strayed,
    find_mode,
    likely_periods,
    shares,
)

__all__ = ["Search", "average", "certify", "explore", "find_models", "weights"]

PAST = 8.0
"""Nats past its peak at which the ladder of a walk ends: e⁻⁸ is a weight of 1/3000."""

BEHIND = 12.0
"""Models this many nats behind the best are left out of the average, and not looked for."""

PATIENCE = 20
"""Newton systems to a fit; where that is too few, the next walk goes on from there."""

FAIR = 50.0
"""Nats further behind that multiples may leave a search of all counts: its first fits, from a rough start, are poor."""

DEEPEST = 25.0
"""Nats below its peak at which a mode of another model may start: from further down Newton's method creeps."""

STRAIN = 4.0
"""Standard errors by which the cells may want more mass at a count: 3·10⁻⁵, times some hundred counts."""

SLIGHT = 1e-3
"""Weight of the unlikeliest models, all together, that are left out of an average: each costs a covariance."""

UNEXPLAINED = 0.05
"""Share of the cells that the background alone may explain."""

ROUNDS, FREEINGS, MOST_ATOMS = 5, 4, 12
"""How often atoms are added, how often steps are freed, and how many atoms may be added."""

FINE_BELOW = 160
"""Blocks from which on none is cut and no count looked for that towers over others: searches take long enough."""

STRAYING, STIFFER = (0.1, 1.0, 10.0), 6
"""Variances by which counts stray from a walk, each by itself: by a third, a factor of e and one of e³; decades by
which the walk may be stiffer then."""

SIDE, TOWERING = 3, math.log(2)
"""Counts to either side over whose medians a count towers, and by which factor. (By four, a cap that the walk has
spread already is not seen; the evidence decides, so looking in vain costs time alone.)"""

AT_ONCE = 4
"""Atoms added in one round."""

ONE_OF_MANY = 1 / len(FAMILIES)
"""What points weigh where walks may hold atoms, and walks from which counts stray: as much as one family of walks.
(With as much as all of them, two points are taken for a binomial law that eight noises hide in 3 of 10 runs, and reach
comes out a fifth too large; and what noise hides, straying, would make smooth laws rough.)"""


@dataclass
class Search:
    """What was tried on one channel.

    start : θ to begin with; level : its mean in advance
    most : the highest score so far, at first that of a model found elsewhere
    named : nats that it cost to name the atoms that towered over a walk without them
    models, best : those that count, and the one of highest score; leaders : the best of each family
    """

    channel: Channel[Any]
    start: Floats
    level: float
    most: float = -np.inf
    named: float = 0.0
    models: list[Model] = field(default_factory=list)
    best: Model | None = None
    leaders: dict[Family, Model] = field(default_factory=dict)
    fits: int = 0
    iterations: int = 0
    not_converged: int = 0
    uncertified: int = 0

    def add(self, *models: Model) -> None:
        """Take models in."""
        self.models.extend(models)
        for model in models:
            if self.best is None or model.score > self.best.score:
                self.best, self.most = model, max(self.most, model.score)

    def walks(self) -> None:
        """Every family with each of the heads, while it is near the best with the same; periods; free and stray counts.

        Where there is a count 0 it is apart at first: zeros are no sign of how the other counts are spread.
        """
        grid, share = self.channel.grid, shares(FAMILIES, self.channel.grid)
        alive = list(share)
        for head in dict.fromkeys(head for family in share for head in family.heads(grid)):
            found = {
                family: self._explored(family, head, share[family]) for family in alive if head in family.heads(grid)
            }
            scores = {family: -np.inf if model is None else model.score for family, model in found.items()}
            most = max(scores.values(), default=-np.inf)
            alive = [family for family in alive if scores.get(family, np.inf) > most - BEHIND]
        models = [self.best, min(self.leaders.values(), key=lambda leader: leader.value, default=None)]
        for period in sorted({p for model in models if model for p in likely_periods(self.channel, model.mass)}):
            family = Family("t", 2, period=period)
            for head in family.heads(grid):
                self._explored(family, head, 1 / len(share) / len(PERIODS))
        for leader in sorted(self.leaders.values(), key=lambda leader: -leader.score):
            self._set_free(leader)
            if isinstance(self.channel, FourierChannel) and leader.score > self.most - BEHIND:
                self._set_astray(leader, self.channel.blocks)

    def _explored(self, family: Family, head: int, share: float) -> Model | None:
        """Climb a family with one head, beginning at the best mode so far; keep the best if it leads."""
        grid, best = self.channel.grid, self.best
        ladder = family.ladder(grid, self.level, head)
        rungs = len(ladder.strengths)
        log_weight = math.log(share / len(family.heads(grid)) / rungs) - self.named
        found = self.ascend(ladder, self.start if best is None else best.theta, log_weight)
        if found is not None and (family not in self.leaders or found.score > self.leaders[family].score):
            self.leaders[family] = found
        return found

    def ascend(
        self, ladder: Ladder, start: Floats, log_weight: float, astray: Floats | None = None
    ) -> Model | None:
        """Fit from the first strength to stiffer and to looser ones while scores may matter; return the peak.

        astray : variance by which every θ strays from the walk by itself, if it does
        """
        family, walk, strengths, first = ladder.family, ladder.walk, ladder.strengths, ladder.first
        peak: Model | None = None
        origin = np.maximum(start, start.max() - DEEPEST)
        scores: list[float] = []
        for rungs in (range(first, -1, -1), range(first + 1, len(strengths))):
            theta, scores, last = origin, scores[:1], None
            for rung in rungs:
                wanted = max(self.most - BEHIND, -np.inf if peak is None else peak.score - PAST)
                if len(scores) > 1 and scores[-1] < scores[-2] and 2 * scores[-1] - scores[-2] < wanted:
                    break  # scores up a ladder are concave
                prior = Prior(walk, walk.precision(float(strengths[rung])))
                if astray is not None:
                    prior = Strayed(prior, astray)
                blind = (family.period > 0 or astray is not None) and not scores  # a first step shows little of a gain
                mode = find_mode(self.channel, prior, theta, max_iterations=PATIENCE,
                                 wanted=-np.inf if blind else wanted - log_weight)  # fmt: skip
                self.fits += 1
                self.iterations += mode.iterations
                if not mode.hopeless:
                    theta = mode.theta
                if not (mode.hopeless or mode.converged):
                    self.not_converged += 1
                    continue
                scores.append(mode.log_evidence + log_weight)
                if mode.hopeless:
                    continue
                straight = rung < first and last is not None and last.told_by(theta, mode.log_evidence)
                alike = math.log(1 + rung) if straight else 0.0
                model = Model(self.channel, f"{ladder.name}, λ={strengths[rung]:.0e}", theta, mode.value,
                              mode.log_evidence, log_weight, prior, family, float(strengths[rung]), alike=alike)
                self.add(model)
                last = model
                if peak is None:
                    origin = theta
                if peak is None or model.score > peak.score:
                    peak = model
                if straight:
                    break
        return peak

    def _set_free(self, found: Model) -> None:
        """Free the steps that stand out, while the evidence grows."""
        share = found.log_weight
        for _ in range(FREEINGS):
            walk = found.prior.walk
            bound = walk.steps & ~walk.free
            bound[self.channel.grid.walked :] = False
            if found.family is None or found.score < self.most - BEHIND or not bound.any():
                break
            size = np.abs(walk.differences(found.theta))
            usual = 1.4826 * float(np.median(size[bound])) + 1e-12
            loose = (walk.free | (size > 4 * usual)) & walk.steps
            n, q = int(walk.steps.sum()), int(loose.sum())
            if q == walk.free.sum() or q > 0.4 * n:
                break
            decades = max(2, min(12, round(math.log10(max(usual**-2 / found.strength, 1.0))) + 2))
            strengths = np.asarray(found.strength * 10.0 ** np.arange(decades))[::-1]
            name = f"{found.name.split(',')[0]}, {q} steps free"
            ladder = Ladder(found.family, name, walk.freed(np.flatnonzero(loose)), strengths, decades - 1)
            better = self.ascend(ladder, found.theta, share - naming_cost(n, q))
            if better is None or better.score <= found.score:
                break
            found = better

    def _set_astray(self, found: Model, blocks: Blocks) -> None:
        """Let every count stray from the walk by itself, further and further, while the evidence grows."""
        family, weight, best = found.family, found.log_weight + math.log(ONE_OF_MANY / len(STRAYING)), found
        assert family is not None
        for square in STRAYING:
            astray = np.zeros(blocks.size)  # counts of a block stray each by itself: their sum strays less
            astray[: blocks.covered] = np.log1p(np.expm1(square) / blocks.widths[: blocks.covered])
            strengths = np.asarray(best.strength * 10.0 ** np.arange(STIFFER))[::-1]
            name = f"{found.name.split(',')[0]}, counts astray by {square:g}"
            ladder = Ladder(family, name, found.prior.walk, strengths, STIFFER - 1)
            better = self.ascend(ladder, best.theta, weight, astray)
            if better is None or better.score <= best.score:
                break
            best = better


def explore(
    channel: FourierChannel, start: Floats, total: float, counts: Int64, floor: float = -np.inf, named: float = 0.0
) -> Search:
    """Search for walks that explain the channel's cells; ``counts`` are those at which modes are certified.

    total : what the masses add up to, roughly
    floor : score of a model found elsewhere: those far below are not looked for
    named : nats that it cost to name the channel's atoms
    """
    level = math.log(total / channel.grid.counts.size)
    theta, most = start, channel.atoms.size + MOST_ATOMS
    for turn in range(ROUNDS + 1):
        search = Search(channel, theta, level, floor, named)
        search.walks()
        theta = theta if search.best is None else search.best.theta
        if turn == ROUNDS or search.most == floor > -np.inf:
            break
        state = channel.at(channel.widths * np.exp(theta))
        strain = channel.strain(state, counts)
        asked = np.argsort(-strain)
        asked = asked[(strain[asked] > STRAIN) & ~np.isin(counts[asked], channel.atoms)]
        room = min(AT_ONCE, most - channel.atoms.size)
        more = first_apart(counts[asked].tolist(), blur_of(channel.noise), room)  # the most wanted of a neighbourhood
        if not more.size:
            break
        fine = resolved(channel.noise, channel.grid.stride)
        crowded = _crowded(channel, more, fine) if channel.blocks.size < FINE_BELOW else more[:0]
        if crowded.size:
            channel, theta = channel.cut(state, crowded, fine)
            state, more = channel.at(channel.widths * np.exp(theta)), np.setdiff1d(more, crowded)
        channel, beside = channel.widened(state, more)
        theta = np.concatenate([theta, beside])
    return search


def _sharper(search: Search, total: float, counts: Int64) -> Search:
    """Give the counts that tower over both sides masses of their own beside the walk, if that is likelier.

    A walk loose enough for a few single counts is loose everywhere, and spreads their items to either side. Naming q of
    n counts costs what freeing q of n steps does. Where counts stray, chance towers: the best other walk is asked.
    """
    channel: Any = search.channel
    blocks, walks = channel.blocks, [model for model in search.models if not isinstance(model.prior, Strayed)]
    best = max(walks, key=lambda model: model.score, default=None)
    if best is None or resolved(channel.noise) > 1 or blocks.size >= FINE_BELOW:
        return search
    theta = best.theta[: blocks.covered]
    sides = np.median(sliding_window_view(np.pad(theta, SIDE, constant_values=np.inf), SIDE), axis=1)
    level = np.maximum(sides[: theta.size], sides[-theta.size :])
    single = (blocks.widths[: theta.size] == 1) & ~np.isin(blocks.first[: theta.size], blocks.atoms)
    tower = np.flatnonzero(single & (theta > level + TOWERING) & (theta > math.log(SEVERAL)))
    if not tower.size:
        return search
    start, own = best.theta.copy(), np.log(np.exp(theta[tower]) - np.exp(level[tower]))
    start[tower] = level[tower]
    finer = channel.with_blocks(blocks.with_atoms(blocks.first[tower]))
    named = search.named + naming_cost(theta.size, tower.size)
    found = explore(finer, np.append(start, own), total, counts, best.score, named)
    new, old = (np.logaddexp.reduce([one.score for one in each.models], initial=-np.inf) for each in (found, search))
    return _sharper(found, total, counts) if new > old else search


def naming_cost(n: int, q: int) -> float:
    """Nats that it costs to name q of n.

    >>> round(math.exp(naming_cost(4, 2)))  # six pairs, and four numbers that there may be of them
    24
    """
    return float(gammaln(n + 1) - gammaln(q + 1) - gammaln(n - q + 1)) + math.log(n)


def _crowded(channel: FourierChannel, wanted: Int64, fine: int) -> Int64:
    """Return the wanted counts near an atom, and these atoms, if their blocks are wider than ``fine``."""
    blocks = channel.blocks
    atoms = blocks.atoms[blocks.atoms < FAR]
    near = np.abs(np.subtract.outer(wanted, atoms)) <= blur_of(channel.noise)
    both = np.union1d(wanted[near.any(axis=1)], atoms[near.any(axis=0)])
    return both[blocks.widths[blocks.holding(both)] > fine]


def find_models(
    channels: Sequence[FourierChannel], starts: Sequence[Floats], total: float, counts: Int64, places: Int64 | None
) -> Search:
    """Search for walks on each channel, and for points at any of ``places`` on the last; return the best, certified.

    channels : the same cells, counts being multiples of 7, say, and at last of 1
    starts : θ to begin with on each of them; total : what the masses add up to, roughly
    counts : those at which modes are certified
    """
    best: Search | None = None
    for channel, start in zip(channels, starts):
        floor = -np.inf if best is None else best.most - 2 * math.log(best.channel.grid.stride)
        least = floor - FAIR if channel.collide else -np.inf  # a pattern among all counts begins with poor walks
        search = _sharper(explore(channel, start, total, counts, least), total, counts)
        if channel is channels[-1] and places is not None:
            seeing: Any = search.channel
            mass = seeing.widths * np.exp(search.start if search.best is None else search.best.theta)
            among = Places(places, channel.origin, total, search.level)
            found = pulled_points(seeing, mass, among, search.most - BEHIND)
            search.add(*(replace(each, log_weight=each.log_weight + math.log(ONE_OF_MANY)) for each in found))
        if best is None or (search.best is not None and search.best.score > floor):
            best = search
    assert best is not None
    certify(best, counts)
    return best


def certify(search: Search, counts: Int64) -> None:
    """Keep the likeliest of the models that pass the certificate, but SLIGHT of the weight; all near ones if none does.

    However far behind, if they explain the cells better: points may be likelier by many nats than any walk, being so
    few, and too few for what the cells show. Of a handful of cells even the true law leaves more to the background than
    UNEXPLAINED: nothing is then told apart.
    """
    if search.best is None:
        return
    ranked = sorted(search.models, key=lambda one: -one.score)
    score = np.array([one.score for one in ranked])
    left = np.logaddexp.accumulate(score[::-1])[::-1]
    kept: list[Model] = []
    carried, search.uncertified = -math.inf, 0
    for model, rest in zip(ranked, left):
        if math.exp(min(rest - carried, 0.0)) < SLIGHT or (kept and model.score < kept[0].score - BEHIND):
            break
        if model.score < ranked[0].score - BEHIND and model.value < ranked[0].value:
            continue
        seeing: Any = model.channel
        state = seeing.at(model.mass)
        if seeing.unexplained(state) <= UNEXPLAINED and float(seeing.strain(state, counts).max()) <= STRAIN:
            kept.append(model)
            carried = float(np.logaddexp(carried, model.score))
        else:
            search.uncertified += 1
    search.models = kept or [one for one in ranked if math.exp(one.score - ranked[0].score) > SLIGHT]
    search.best = search.models[0]


def weights(models: Sequence[Model]) -> Floats:
    """Weights by evidence and prior, adding up to 1; models BEHIND the best have none."""
    score = np.array([model.score for model in models])
    weight = np.where(score > score.max() - BEHIND, np.exp(score - score.max()), 0.0)
    return np.asarray(weight / weight.sum())


def average(masses: Floats, weight: Floats, points: Sequence[bool]) -> Floats:
    """Join profiles (rows) over the same ascending counts: walks by the mean, points and that by the median curve.

    >>> average(np.array([[0.0, 1.0], [0.5, 0.5]]), np.array([0.6, 0.4]), [True, True]).tolist()
    [0.0, 1.0]
    """
    pointed = np.array(points, dtype=bool)
    curves, chance = list(masses[pointed]), weight[pointed]
    of_walks = float(weight[~pointed].sum())
    if of_walks > 0:
        curves.append(weight[~pointed] @ masses[~pointed] / of_walks)
        chance = np.append(chance, of_walks)
    heights = np.cumsum(curves, axis=1)
    order = np.argsort(heights, axis=0, kind="stable")
    below = (np.cumsum(chance[order], axis=0) < 0.5 * chance.sum()).sum(axis=0)
    curve = np.take_along_axis(heights, np.take_along_axis(order, below[None], 0), 0)[0]
    return np.asarray(np.maximum(np.diff(curve, prepend=0.0), 0))
