"""Models of few point masses: profiles of few different counts.

**Prior.** The number s of masses is Poisson with mean 1, their places are drawn independently with probability
∝ 1/(1 + t) — a count is a scale, and no scale is preferred — and their weights are uniform. So the masses are a set
with prior probability Π p(t_j)/(e − 1). Their total is as vague as a walk's start: ± LEVEL in its logarithm.

**Evidence.** Laplace's: with I the information of the cells about s − 1 free weights and the logarithm of the total,

    log likelihood + ½·log det I₀ − ½·log det(I + I₀).

I₀ is diagonal, 1/LEVEL² for the total and 2π·((s−1)!)^(2/(s−1)) for a weight, so that the posterior's volume is the
prior's where the cells say nothing, and walks and points can be compared [1]_.

**Places.** Where the maximum-likelihood profile is at hand they are those of its masses, as they stand and grouped with
their neighbours, as many as could still count, the lightest left out one by one; and a single mass is tried at every
place near the median. Otherwise they are the peaks of the best walk, the lightest left out one by one. To these come
more where the cells pull most, or by cutting a mass in two, whichever is likeliest, as long as twice what the last one
gained could still bring the mixture within reach of the best model. Masses are moved while that helps, and the best
mixture of every size counts. There places are uncertain too, and together: behind strong noise all may be one lower if
there are more items. So sets of places are drawn from the Laplace posterior of places and log masses, and weighed by
what they are worth over their chance to be drawn (importance sampling [2]_). Their mean worth is the evidence of the
mixture wherever its masses are, and a few of the sets, as often as they weigh, stand for it.

.. [1] R. E. Kass, A. E. Raftery, "Bayes factors", JASA 90, 1995, section 4.1.
.. [2] J. Geweke, "Bayesian inference in econometric models using Monte Carlo integration", Econometrica 57, 1989.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.linalg import cho_solve
from scipy.special import gammaln

from ..arrays import Floats, Int64
from .banded import BandedChannel
from .channel import FAR, counts_in_blocks
from .fourier import FourierChannel, SeenRows, told_apart
from .walk import LEVEL, Model, Prior, Walk, find_mode

__all__ = ["Places", "likely_points", "pulled_points"]

MOST_POINTS, ENOUGH = 32, 6
"""Masses at most; where each has to be looked for, as many of them are tried even if the last one did not help."""

MANY = 60
"""Counts with a mass in the maximum-likelihood profile of what is no mixture."""

TRIED = 4
"""Places of a further mass that are tried, and masses that are cut in two: the steepest need not be the likeliest.
(Seventeen prices, two items to the cell: with the steepest alone the cells' own places stay ten nats likelier.)"""

MOVES = 6
"""How often masses are moved to their medians; one by one, twice as often."""

DOUBT = 6.0
"""Standard errors from the median within which a single mass is tried."""

HOPELESS = 1000.0
"""Nats behind what is wanted at which a mass more is worth more than another move."""

NEAR = 8
"""Counts to either side of a mass to which it may be moved at once, in powers of two, or a deviation of the noise."""

EVERY = 512
"""Counts at which every one is asked whether the cells want a mass there; above, 200 of them."""

UNSURE = 12.0
"""Nats that a mixture may be worth more than its best places are."""

DRAWN, DRAWS = 96, 12
"""Sets of places that are drawn, and that are kept."""

PER_DEVIATION, TAILS = 4, 3.0
"""Places to a deviation that are told apart where one is drawn; degrees of freedom of the law that it is drawn from."""

_STARTS = counts_in_blocks(1, 32 * PER_DEVIATION, 2 * PER_DEVIATION, 4)
_OVER, _MIDDLE = np.diff(_STARTS), (_STARTS[:-1] + _STARTS[1:] - 1) // 2
AWAY, STANDS_FOR = np.concatenate([-_MIDDLE[::-1], [0], _MIDDLE]), np.concatenate([_OVER[::-1], [1], _OVER])
"""Steps from the middle at which a place may be drawn, as far as 32 deviations, and how many each stands for."""

SLIGHT = 1e-4
"""Share of all masses below which one is no point."""

RIDGE = 1e-9
"""Part of the largest information about a place or mass that each has in addition, above rounding."""

LEAST = 1e-9
"""Share of the total that a mass begins with at least."""


@dataclass(frozen=True, eq=False)
class Places:
    """The counts at which masses may be, from ``origin``; what they add up to, roughly; the mean of θ in advance.

    Where masses are looked for one by one (Fourier channel) the counts are consecutive.
    """

    counts: Int64
    origin: int
    total: float
    level: float
    of_all: list[float] = field(default_factory=list, init=False)

    def log_share(self, places: Int64) -> float:
        """Log prior probability of a set of places."""
        if not self.of_all:  # once: there may be millions of counts
            self.of_all.append(math.log((1 / (1.0 + self.origin + self.counts)).sum()))
        log_chance = -np.log1p(self.origin + places) - self.of_all[0]
        return float(log_chance.sum()) - math.log(math.e - 1)


def _fit(whole: BandedChannel | FourierChannel, places: Int64, mass: Floats, among: Places) -> Model:
    """Find the masses at these places, and their evidence; the last masses may lie above every row.

    That is the likelihood times the posterior's volume over that of the prior.
    """
    channel: Any = whole.only(places)
    start = np.log(np.maximum(mass, LEAST * among.total))
    walk = Walk(np.zeros(mass.size), np.zeros(mass.size, dtype=np.int64), 2, level=among.level)
    prior = Prior(walk, walk.precision(1.0))
    mode = find_mode(channel, prior, start)
    state, size = channel.at(np.exp(mode.theta)), places.size
    volume = float(_log_volumes(channel.information(state)[None], state.mass[None], size, among)[0])
    return Model(channel, f"{size} points", mode.theta, state.value, state.value + volume, among.log_share(places),
                 prior, places=places, converged=mode.converged)  # fmt: skip


def _log_volumes(information: Floats, mass: Floats, size: int, among: Places) -> Floats:
    """Log volume of the posterior over that of the prior, for sets of masses (down) and J about their logarithms.

    The first ``size`` are points; others lie above every row.
    """
    sets, free = np.arange(len(mass)), np.arange(size - 1)
    total = mass[:, :size].sum(axis=1)
    weight = mass[:, :size] / total[:, None]
    order = np.argsort(-weight, axis=1)  # the heaviest is what the others leave
    heaviest, others = order[:, 0], order[:, 1:]
    basis = np.tile(np.eye(mass.shape[1]), (len(mass), 1, 1))  # log mass by log total, by weights, by what lies above
    basis[:, :size, 0] = 1.0
    basis[:, :size, 1:size] = 0.0
    basis[sets[:, None], others, 1 + free] = 1 / np.maximum(weight[sets[:, None], others], LEAST)
    basis[sets[:, None], heaviest[:, None], 1 + free] = -1 / weight[sets, heaviest][:, None]
    log_prior = np.full(mass.shape[1], -2 * math.log(LEVEL))
    log_prior[1:size] = math.log(2 * math.pi) + 2 / max(free.size, 1) * float(gammaln(size))
    told = basis.transpose(0, 2, 1) @ information @ basis
    np.einsum("sii->si", told)[:] += np.exp(log_prior)
    strayed = np.hstack([np.log(total / among.total)[:, None], np.log(mass[:, size:]) - among.level])
    return 0.5 * np.asarray(log_prior.sum() - np.linalg.slogdet(told)[1] - np.square(strayed / LEVEL).sum(axis=1))


# ---------------------------------------------------------------- from the maximum-likelihood profile


def likely_points(channel: BandedChannel, likely: Floats, among: Places, wanted: float) -> list[Model]:
    """Fit mixtures from the maximum-likelihood masses, drop by drop fewer; every set of places once.

    None is likelier than these masses, nor its places likelier in advance than the counts 0, 1, …: so many masses that
    this could not bring them to the score that is ``wanted`` are not tried.
    """
    at, highest = np.flatnonzero(likely > SLIGHT), float(channel.at(likely).value)
    most = max((n for n in range(MOST_POINTS + 1) if highest + among.log_share(np.arange(n)) > wanted), default=0)
    if most == 0 or not 0 < at.size <= MANY:
        return []
    groups = np.split(at, np.flatnonzero(np.diff(at) > 1) + 1)
    weight = np.array([likely[g].sum() for g in groups])
    middle = np.array([round(float(likely[g] @ g / likely[g].sum())) for g in groups])

    median = channel.counts[int(np.searchsorted(np.cumsum(channel.y), 0.5))]
    close = np.abs(channel.counts - median) <= 1 + DOUBT * channel.grid.scale / math.sqrt(channel.exposure)
    found = [_fit(channel, place, np.ones(1), among) for place in channel.counts[close, None]]
    found += _fewer(channel.counts[at], likely[at], lambda places, mass: _fit(channel, places, mass, among), most)
    found += _fewer(
        channel.counts[middle], weight, lambda places, mass: _to_medians(channel, places, mass, among), most
    )
    found.sort(key=lambda mixture: mixture.score)
    return list({mixture.places.tobytes(): mixture for mixture in found if mixture.converged}.values())


def _fewer(places: Int64, mass: Floats, fit: Callable[[Int64, Floats], Model], most: int = MOST_POINTS) -> list[Model]:
    """Fit at most so many masses, then without the lightest, and so on down to one."""
    found: list[Model] = []
    while places.size:
        heaviest = np.sort(np.argsort(-mass, kind="stable")[:most])
        mixture = fit(places[heaviest], mass[heaviest])
        found.append(mixture)
        rest = np.sort(np.argsort(mixture.mass[: mixture.places.size], kind="stable")[1:])
        places, mass = mixture.places[rest], mixture.mass[rest]
    return found


def _to_medians(channel: BandedChannel, places: Int64, mass: Floats, among: Places) -> Model:
    """Fit, and move every mass to the median of its share of the cells, until none moves."""
    occupied = channel.counts[channel.y > 0]
    for _ in range(MOVES):
        mixture = _fit(channel, places, mass, among)
        few: Any = mixture.channel
        share = np.cumsum((few.y / few.at(mixture.mass).law)[:, None] * few.columns * mixture.mass, axis=0)
        moved = occupied[[int(np.searchsorted(s, s[-1] / 2)) for s in share.T]]
        if (moved == places).all():
            return mixture
        places, where = np.unique(moved, return_inverse=True)
        mass = np.bincount(where, weights=mixture.mass).astype(float)
    return _fit(channel, places, mass, among)


# ---------------------------------------------------------------- one by one, where the cells pull


def pulled_points(channel: FourierChannel, mass: Floats, among: Places, wanted: float) -> list[Model]:
    """Fit mixtures from the peaks of these masses; ``wanted`` is the score that would count.

    A point for every peak, the lightest left out one by one; then the best of these with its masses moved, the lightest
    left out again, or with more of them.
    """
    law = channel.blocks.spread(mass, int(among.counts[-1]))
    far = mass[channel.blocks.first >= FAR]
    ways = np.sign(np.diff(law, prepend=0.0))
    way = ways[np.maximum.accumulate(np.where(ways != 0, np.arange(law.size), 0))]  # a plateau goes on as it began
    peak = np.append(0, np.cumsum((way[1:] > 0) & (way[:-1] < 0)))
    weight = np.bincount(peak, weights=law)
    middle = np.rint(np.bincount(peak, weights=law * np.arange(law.size)) / np.maximum(weight, LEAST))
    heavy = weight > SLIGHT * weight.sum()
    places, where = np.unique(middle[heavy].astype(np.int64).clip(among.counts[0]), return_inverse=True)
    heights = np.bincount(where, weights=weight[heavy]).astype(float)

    def fit(places: Int64, mass: Floats) -> Model:
        return _fit(channel, places, np.append(mass, far), among)

    fitted = [one for one in _fewer(places, heights, fit) if one.converged]
    if not fitted:
        return []
    best = _settled(channel, max(fitted, key=lambda one: one.score), among, wanted)
    found = [*_fewer(best.places, best.mass[: best.places.size], fit), *_grown(channel, best, among, wanted)]
    found = sorted((one for one in found if one.converged), key=lambda one: one.score)
    counting = {one.places.size: one for one in found if one.score > wanted - UNSURE}  # the last of a size is the best
    return [each for one in counting.values() for each in _neighbourhood(channel, one, among)]


def _grown(channel: FourierChannel, best: Model, among: Places, wanted: float) -> list[Model]:
    """Add masses to this mixture one by one while that may still help; return all.

    The likeliest of TRIED places where the cells pull most, with a tenth of the lightest to begin with, and of as many
    masses cut in two; far behind, the first of these alone.
    """
    counts, found = among.counts, [best]
    some = np.append(np.geomspace(1, max(counts[-1], 1), 200).astype(np.int64), counts[:EVERY])
    some = told_apart(some[(some >= counts[0]) & (some <= counts[-1])], channel.noise)
    while best.converged and best.places.size < min(MOST_POINTS, counts.size):
        own: Any = best.channel
        size, strain = best.places.size, own.strain(own.at(best.mass), some)
        strain[np.isin(some, best.places)] = -np.inf
        tried = TRIED if best.score > wanted - HOPELESS else 1
        mass = np.insert(best.mass, size, 0.1 * best.mass[:size].min())
        asked = np.argsort(-strain)[:tried]
        larger = [(np.append(best.places, place), mass) for place in some[asked[strain[asked] > -np.inf]]]
        if tried > 1:
            cut = _moves(channel, best, among, cut=True)
            larger += [cut[i] for i in np.argsort(-channel.values(cut))[:tried]]
        if not larger:
            break
        fitted = [_fit(channel, *each, among) for each in larger]
        likely = max(fitted, key=lambda one: one.score if one.converged else -math.inf)
        best = _settled(channel, likely, among, wanted)
        gain, helped = best.value - found[-1].value, best.score > found[-1].score
        found.append(best)
        if best.score + 2 * gain < wanted or not (helped or best.places.size <= ENOUGH):
            break
    return found


def _settled(channel: FourierChannel, best: Model, among: Places, wanted: float) -> Model:
    """Move masses one by one while that raises the likelihood; less often while far from what is wanted."""
    for turn in range(2 * MOVES):
        if turn > 1 and best.score < wanted - HOPELESS:
            break
        moved = _moves(channel, best, among)
        if not moved:
            break
        places, mass = moved[int(np.argmax(channel.values(moved)))]
        other = _fit(channel, places, mass, among)
        if not other.converged or other.value <= best.value + 1e-3:
            break
        best = other
    return best


def _moves(channel: FourierChannel, mixture: Model, among: Places, cut: bool = False) -> list[tuple[Int64, Floats]]:
    """Every mixture with one mass moved a little, or cut into halves of which one or both are; occurrences are kept."""
    found, size = [], mixture.places.size
    farthest = int(math.log2(max(NEAR, math.sqrt(channel.noise.variance))))
    for i, place in enumerate(mixture.places):
        halves = [i, size] if cut else [i]
        before = np.append(mixture.places, np.full(int(cut), place))
        mass = np.insert(mixture.mass, size, np.full(int(cut), mixture.mass[i]))
        mass[halves] /= len(halves)
        for step in 2 ** np.arange(farthest + 1):
            for by in ((-step, 0), (0, step), (-step, step)) if cut else ((step,), (-step,)):
                places, moved = before.copy(), mass.copy()
                places[halves] += by
                within = among.counts[0] <= places[halves[0]] and places[halves[-1]] <= among.counts[-1]
                if not within or np.unique(places).size < places.size:
                    continue
                if channel.collide:
                    moved[: places.size] *= before / places
                found.append((places, moved))
    return found


def _neighbourhood(channel: FourierChannel, mixture: Model, among: Places) -> list[Model]:
    """Return mixtures that stand for all the places that the masses may have, and share the evidence of all of them.

    Sets of places are drawn from the Laplace posterior of places and masses together, and weighed by what they are
    worth over their chance to be drawn; of these DRAWS are kept, each as often as it weighs. Where none is worth what
    the best places are, these stand alone.
    """
    order = np.append(np.argsort(mixture.places), np.arange(mixture.places.size, mixture.theta.size))
    ascending = replace(mixture, channel=channel.only(np.sort(mixture.places)), places=np.sort(mixture.places),
                        theta=mixture.theta[order])  # fmt: skip
    places, log_chance = _elsewhere(channel, ascending, among)
    masses, volumes = _followed(channel, ascending, places, among)
    values, share = channel.values(list(zip(places, masses))), np.array([among.log_share(each) for each in places])
    gain = values + volumes + share - log_chance - mixture.score
    worth = np.exp(gain - gain.max())
    gained = float(gain.max()) + math.log(worth.mean())
    if not gained >= 0:
        return [mixture]
    kept = np.searchsorted(np.cumsum(worth) / worth.sum(), (np.arange(DRAWS) + 0.5) / DRAWS)
    found = []
    for first, number in zip(*(part.tolist() for part in np.unique(kept, return_counts=True))):
        whole = mixture.log_evidence + gained + math.log(number / DRAWS)
        found.append(replace(mixture, channel=channel.only(places[first]), places=places[first],
                             theta=np.log(masses[first]), value=float(values[first]), log_evidence=whole))  # fmt: skip
    return found


def _elsewhere(channel: FourierChannel, mixture: Model, among: Places) -> tuple[Int64, Floats]:
    """Draw sets of ascending places (down), and the logarithm of each set's chance.

    With H = L·Lᵀ the information of the cells about log masses and then places, and g their slope, a set is about H⁻¹g
    away: the last place first, each is drawn given those after it from the whole numbers below them, by a t law of as
    many degrees as TAILS: of a few cells the likelihood is no normal law, and no set should weigh far more than others.
    """
    precision, slope = _about(channel, mixture, among)
    scale = 1 / np.sqrt(np.diag(precision))
    factor = np.linalg.cholesky(precision * np.outer(scale, scale) + RIDGE * np.eye(scale.size))
    size, (lowest, highest) = mixture.places.size, among.counts[[0, -1]].tolist()
    middle = mixture.places + (scale * cho_solve((factor, True), scale * slope))[-size:]
    factor, order, every = factor[-size:, -size:] / scale[-size:, None], np.random.default_rng(0), np.arange(DRAWN)
    places, strayed, log_chance = np.full((DRAWN, size + 1), highest + 1), np.zeros((DRAWN, size)), np.zeros(DRAWN)
    for j in range(size)[::-1]:
        firm, below = factor[j, j], places[:, j + 1, None]
        mean = middle[j] - strayed[:, j + 1 :] @ factor[j + 1 :, j, None] / firm
        step = max(1, int(1 / firm / PER_DEVIATION))
        at = np.clip(np.rint(mean), lowest + j, below - 1).astype(np.int64) + step * AWAY
        chance = STANDS_FOR * (1 + ((at - mean) * firm) ** 2 / TAILS) ** (-(TAILS + 1) / 2)
        chance[(at < lowest + j) | (at >= below)] = 0.0
        chance /= chance.sum(axis=1, keepdims=True)
        u = (order.permutation(DRAWN) + 0.5) / DRAWN
        chosen = (np.cumsum(chance[:, :-1], axis=1) < u[:, None]).sum(axis=1)
        places[:, j] = at[every, chosen]
        strayed[:, j] = places[:, j] - middle[j]
        log_chance += np.log(chance[every, chosen] / STANDS_FOR[chosen] / step)
    ascending = np.lexsort(places.T[::-1])
    return places[ascending, :-1], log_chance[ascending]


def _followed(channel: FourierChannel, mixture: Model, places: Int64, among: Places) -> tuple[Floats, Floats]:
    """Masses at other sets of places (down) that change the cells' law least, by least squares; and their log volumes.

    Both by what the cells tell of the number of items at each place, where the mixture stands.
    """
    every = np.union1d(places, mixture.places)
    seeing, state, at = _seen_beside(channel, mixture, every, among)
    joint = seeing.information(state) / np.outer(state.mass, state.mass)
    above = np.tile(np.arange(every.size, state.mass.size), (len(places), 1))
    own = np.hstack([np.searchsorted(every, places), above])
    told = joint[own[:, :, None], own[:, None, :]]
    firm = told.copy()
    np.einsum("sii->si", firm)[:] += RIDGE * np.diag(joint).max() + np.finfo(float).tiny
    masses = np.linalg.solve(firm, (joint[:, at] @ mixture.mass)[own][:, :, None])[:, :, 0]
    masses = np.maximum(masses, LEAST * among.total)
    told *= masses[:, :, None] * masses[:, None, :]
    return masses, _log_volumes(told, masses, places.shape[1], among)


def _about(channel: FourierChannel, mixture: Model, among: Places) -> tuple[Floats, Floats]:
    """Information of the cells about log masses and places, in this order, and the slope of their likelihood.

    It is flat in the masses, at their best; a count is a scale: places are ± themselves in advance.
    """
    places, size = mixture.places, mixture.places.size
    around = np.unique(np.concatenate([places - 1, places, places + 1]))
    seeing, state, at = _seen_beside(channel, mixture, around, among)
    masses, moving = at.size, at.size + np.arange(size)
    change = np.zeros((state.mass.size, masses + size))  # how masses change with their logarithms, and with places
    change[at, np.arange(masses)] = mixture.mass
    change[at[:size] + 1, moving] += mixture.mass[:size] / 2
    change[at[:size] - 1, moving] -= mixture.mass[:size] / 2
    slope = np.zeros(masses + size)
    slope[moving] = channel.exposure * (change.T @ (seeing.pull(state) - 1))[moving]
    change /= state.mass[:, None]
    told = change.T @ seeing.information(state) @ change
    np.einsum("ii->i", told)[:] += np.append(np.full(masses, LEVEL**-2), (1.0 + among.origin + places) ** -2.0)
    return told, slope


def _seen_beside(
    channel: FourierChannel, mixture: Model, counts: Int64, among: Places
) -> tuple[FourierChannel, SeenRows, Int64]:
    """The channel at these counts as the mixture shows it, next to nothing where it has no mass, and where it has."""
    seeing = channel.only(counts)
    mass = np.full(seeing.blocks.size, LEAST * among.total)
    at = np.append(np.searchsorted(counts, mixture.places), np.arange(counts.size, mass.size))
    mass[at] = mixture.mass
    return seeing, seeing.at(mass), at
