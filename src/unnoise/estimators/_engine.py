"""One engine for every sketch: walks of the log profile, weighed by evidence, averaged, with a posterior.

A model says: the logarithm of the mass per count is a random walk (:mod:`._smooth_walk`) of order 2 or 3 in t, log(1
+ t) or log t, of unknown stiffness λ, beside a few *atoms* (single counts with a vague mass of their own). Each model
has a mode and an evidence (:mod:`._mode`). The search, in full:

1. Every family is climbed both ways over the decades of λ, from a strength at which its walk spreads by ± 3 and from
   the best mode so far, until PAST nats past its peak; after that it is given up if BEHIND nats behind the best.
2. The steps of the best model that stand out (4 robust deviations) are set free, at the cost of naming them, and its
   ladder climbed once more.
3. The best mode is asked at every count t whether the cells want more mass there than it gives (:meth:`strain`). Where
   that exceeds STRAIN standard errors an atom is put, and 1. to 3. are repeated with it, at most ROUNDS times.
4. Mixtures of at most MOST_POINTS atoms alone are tried as well (:mod:`._points`).
5. Models within NEGLIGIBLE nats of the best that pass the same certificate are averaged by evidence.

**Posterior.** With θ̂ the mode, N = e^θ̂, D = diag N, J the information of the cells about θ and A = P + J its posterior
precision, the items that *are* there, given the cells, have mean M(θ̂), one EM step from N, and covariance

    C = (D − J) + (D − J)·A⁻¹·(D − J):

D − J is the missing information [1]_, the scatter of the items for given θ; dM/dθ = D − J carries the doubt about θ.
Without a prior A = J and C = D·J⁻¹·D − D: the variance of the unbiased estimate less the Poisson one of the items.

.. [1] T. A. Louis, "Finding the observed information matrix when using the EM algorithm", JRSS B 44, 1982.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import gammaln

from ..arrays import Floats, Int64
from ._fourier import Blocks, FourierChannel, Seen
from ._mode import find_mode
from ._points import MOST_POINTS, mixtures, neighbourhood
from ._smooth_walk import JUMP, Walk
from ._vague import smoothest

__all__ = ["FAMILIES", "Model", "Posterior", "Search", "explore", "posterior"]

FAMILIES = (("log1p", 2), ("log", 2), ("t", 2), ("chance", 2), ("log1p", 3), ("log", 3), ("t", 3))
"""Coordinate and order of the walks; "chance" is t on the base of Poisson and binomial laws (:meth:`Search.base`)."""

STRENGTHS: Floats = np.logspace(-3, 12, 16)
"""λ: a decade is a third of a nat or so for a walk of a hundred steps, far below what the cells say of it."""

PAST, BEHIND, NEGLIGIBLE = 8.0, 12.0, 12.0
"""Nats: e⁻⁸ is a weight of 1/3000."""

LEVEL = 0.1
"""Nats within which λ no longer matters, as where a walk is as stiff as can be: one strength tells all."""

STRAIN = 4.0
"""Standard errors by which the cells may want more mass at a count: 3·10⁻⁵, times some hundred counts."""

UNEXPLAINED = 0.05
"""Share of the cells that the background alone may explain."""

ROUNDS, MOST_ATOMS = 5, 12
"""Rounds in which atoms are added, and how many in all."""

TRAPPED = 10.0
"""Nats to a block by which no sound mode is less likely than the start, which has followed every chance: about one."""

DEEPEST = 50.0
"""Nats below its peak at which a mode of another family may start: from further down Newton's method creeps."""

RIDGE = 1e-9
"""Added to a precision whose diagonal is scaled to 1: far below what a cell tells, far above rounding."""

FEWEST = 8.0
"""Cells that must speak for an atom: fewer are a few large items, which the walk may pass over."""


@dataclass(frozen=True, eq=False)
class Model:
    """A fitted model: its channel (blocks of its own), family, strength, mode and evidence."""

    channel: FourierChannel
    name: str
    theta: Floats
    log_evidence: float
    rung: int
    walk: Walk
    precision: Floats
    log_weight: float = 0.0

    @property
    def score(self) -> float:
        """Log evidence plus log weight in advance."""
        return self.log_evidence + self.log_weight


@dataclass
class Search:
    """What was tried on one set of blocks; ``best`` is the model with the highest evidence."""

    channel: FourierChannel
    level: float
    total: float
    bound: int | None = None
    models: list[Model] = field(default_factory=list)
    tried: list[Model] = field(default_factory=list)
    fits: int = 0
    not_converged: int = 0
    uncertified: int = 0

    @property
    def walked(self) -> int:
        """Number of blocks that the walks go over."""
        return self.channel.blocks.covered

    @property
    def best(self) -> Model | None:
        """The model of highest evidence."""
        return max(self.models, key=lambda model: model.score, default=None)

    def walk(self, coordinate: str, order: int) -> Walk:
        """The walk of a family over the first ``walked`` blocks; the atoms behind them stand alone."""
        blocks = self.channel.blocks
        centres = blocks.centres + self.channel.origin
        x = {"log1p": np.log1p(centres), "log": np.log(np.maximum(centres, 0.5))}.get(coordinate, centres)
        base = self.base(centres) if coordinate == "chance" else None
        position = np.concatenate([np.arange(self.walked), np.zeros(blocks.size - self.walked, dtype=np.int64)])
        return Walk(np.asarray(x, dtype=float), position.astype(np.int64), order, base=base, level=self.level)

    def base(self, centres: Floats) -> Floats:
        """−log t!, of which Poisson laws are a line away; log C(n, t) where no count is above n: binomial laws."""
        base = -gammaln(centres + 1)
        return np.asarray(base if self.bound is None else base - gammaln(np.maximum(self.bound - centres, 0.0) + 1))

    def likelihood(self, theta: Floats) -> float:
        """Log likelihood of the cells."""
        return self.channel.at(self.channel.widths * np.exp(theta)).value

    def fit(
        self, name: str, walk: Walk, rung: int, start: Floats, wanted: float, log_weight: float
    ) -> Model | None:
        """Fit one model; None where it did not converge or is not wanted."""
        precision = walk.precision(float(STRENGTHS[rung]))
        mode = find_mode(self.channel, walk, precision, start, wanted=wanted - log_weight)
        self.fits += 1
        if mode.hopeless or not mode.converged:
            self.not_converged += not mode.hopeless
            return None
        named = f"{name}, λ={STRENGTHS[rung]:.0e}"
        return Model(self.channel, named, mode.theta, mode.log_evidence, rung, walk, precision, log_weight)

    def climb(self, name: str, walk: Walk, first: int, start: Floats, log_weight: float = 0.0) -> Model | None:
        """Fit both ways from the strength ``first`` until PAST nats past the peak or no change; return the best."""
        peak: Model | None = None
        origin = start
        for rungs in (range(first, STRENGTHS.size), range(first - 1, -1, -1)):
            theta = origin
            for rung in rungs:
                wanted = -np.inf if peak is None else peak.score - PAST
                model = self.fit(name, walk, rung, theta, wanted, log_weight)
                if model is None:
                    if peak is None:
                        continue
                    break
                self.models.append(model)
                theta = model.theta
                if peak is None:
                    origin = theta
                rise = np.inf if peak is None else model.log_evidence - peak.log_evidence
                if peak is None or rise > 0:
                    peak = model
                best = self.best or peak
                if abs(rise) < LEVEL or rise < -PAST or (rise < 0 and peak.score < best.score - BEHIND):
                    break
        return peak

    def usual(self, walk: Walk, coordinate: str, order: int) -> int:
        """Rung at which an integrated walk spreads by ± 3: X³/3λ (order 2), X⁵/20λ (order 3) over a length X."""
        centres = self.channel.blocks.centres[: self.walked] + self.channel.origin
        low, high = float(centres[0]), float(centres[-1])
        ratio = {"log1p": math.log1p(high) - math.log1p(low), "log": math.log(max(high, 1.0) / max(low, 0.5))}
        length = ratio.get(coordinate, high - low)
        strength = max(length, 1.0) ** (2 * order - 1) / (3 if order == 2 else 20) / JUMP**2
        return int(np.abs(np.log(STRENGTHS / strength)).argmin())

    def set_free(self, best: Model) -> None:
        """Free the steps of the best model that stand out, and climb again."""
        walk = best.walk
        steps = walk.steps.copy()
        steps[self.walked :] = False
        size = np.abs(walk.differences(best.theta))
        usual = 1.4826 * float(np.median(size[steps])) + 1e-12 if steps.any() else np.inf
        loose = np.flatnonzero(steps & (size > 4 * usual))
        if loose.size == 0 or loose.size > 0.4 * steps.sum():
            return
        name = f"{best.name.split(', λ')[0]}, {loose.size} steps free"
        n, q = int(steps.sum()), loose.size
        cost = float(gammaln(n + 1) - gammaln(q + 1) - gammaln(n - q + 1)) + math.log(n)
        self.climb(name, walk.freed(loose), best.rung, best.theta, -cost)


def _round(search: Search, start: Floats, families: Sequence[tuple[str, int]]) -> None:
    """Climb every family, then free the outlying steps of the best; once more from loose walks where that was a trap.

    A rough start is so unlikely under a stiff walk that the way down from there may lead to where no cell is explained,
    and nothing leads back: more items than the cells can show.
    """
    for first in (None, 0):
        for coordinate, order in families:
            if search.walked <= order:
                continue
            walk = search.walk(coordinate, order)
            best = search.best
            theta = start if best is None else best.theta
            theta = np.maximum(theta, theta.max() - DEEPEST)
            rung = search.usual(walk, coordinate, order) if first is None else first
            search.climb(f"{coordinate} order {order}", walk, rung, theta)
        best = search.best
        if best is not None and search.likelihood(best.theta) > search.likelihood(start) - TRAPPED * start.size:
            break
        search.models.clear()
    if search.best is not None:
        search.set_free(search.best)


def explore(
    channel: FourierChannel, start: Floats, total: float, counts: Blocks,
    families: Sequence[tuple[str, int]] = FAMILIES, bound: int | None = None,
) -> Search:
    """Search for models of the channel's cells; ``counts`` are the single counts at which modes are certified.

    total : Σ t·N_t, roughly
    bound : largest count that there can be, if known
    """
    theta, level = start, math.log(total / channel.blocks.size)
    for turn in range(ROUNDS + 1):
        search = Search(channel, level, total, bound)
        _round(search, theta, families)
        theta = theta if search.best is None else search.best.theta
        more = _wanted(channel, theta, counts)
        if more.size == 0 or turn == ROUNDS:
            break
        theta = np.concatenate([theta, _atom_start(channel, theta, more)])
        channel = channel.with_blocks(channel.blocks.with_atoms(more))
    search.models += point_models(search, counts)
    _certify(search, counts)
    return search


def point_models(search: Search, counts: Blocks) -> list[Model]:
    """Mixtures of atoms as models; smooth ones and mixtures share the weight in advance equally."""
    best = search.best
    wanted = -np.inf if best is None else best.score - NEGLIGIBLE
    found = mixtures(search.channel, counts.first, search.total, search.level, wanted)
    weight = math.log(max(len(search.models), 1) / MOST_POINTS)
    return [
        Model(each.channel, f"{each.places.size} points", each.theta, each.log_evidence, 0, each.walk, each.precision,
              weight)
        for one in found for each in neighbourhood(one, counts.first) if each.log_evidence + weight > wanted
    ]


def _wanted(channel: FourierChannel, theta: Floats, counts: Blocks) -> Int64:
    """Return the counts at which the cells want more mass, the most wanted of each neighbourhood of the noise."""
    atoms = channel.blocks.atoms
    state = channel.at(channel.widths * np.exp(theta))
    strain = channel.strain(state, counts)
    apart = max(4, round(8 * math.sqrt(channel.noise.variance)))
    found: list[int] = []
    for j in np.argsort(-strain):
        if strain[j] <= STRAIN or len(found) == 4 or atoms.size + len(found) >= MOST_ATOMS:
            break
        count = int(counts.first[j])
        if all(abs(count - other) > apart for other in found) and count not in atoms:
            found.append(count)
    return np.array(found, dtype=np.int64)


def _atom_start(channel: FourierChannel, theta: Floats, counts: Int64) -> Floats:
    """Begin an atom with the mass that its neighbourhood shows in excess, or at least FEWEST."""
    mass = np.full(counts.size, FEWEST)
    part = channel.parts[0]
    state = channel.at(channel.widths * np.exp(theta))
    excess = part.tally - part.cells * state.rows[0]
    reach = max(1, round(math.sqrt(channel.noise.variance)))
    for i, count in enumerate(counts):
        low, high = np.searchsorted(part.ends, [count - reach, count + reach])
        mass[i] = max(FEWEST, float(excess[low : high + 1].sum()) / part.share)
    return np.asarray(np.log(mass))


def _certified(channel: FourierChannel, state: Seen, counts: Blocks) -> bool:
    """Whether no count wants more mass, and the law explains the cells."""
    return float(channel.strain(state, counts).max()) <= STRAIN and channel.unexplained(state) <= UNEXPLAINED


def _certify(search: Search, counts: Blocks) -> None:
    """Keep the models near the best that pass the certificate; all are still among those ``tried``."""
    best = search.best
    search.tried = search.models
    if best is None:
        return
    near = [model for model in search.models if model.score > best.score - NEGLIGIBLE]
    kept = []
    for model in near:
        state = model.channel.at(model.channel.widths * np.exp(model.theta))
        if _certified(model.channel, state, counts):
            kept.append(model)
    search.uncertified = len(near) - len(kept)
    search.models = kept or [best]


@dataclass(frozen=True, eq=False)
class Posterior:
    """The averaged models: masses by blocks, what the items there add up to given the cells, and its covariance.

    law : N, the average of the modes
    mean, covariance : of the items themselves, by blocks
    vague : the covariance that the cells alone would give, under a prior that joins no two counts (:mod:`._vague`)
    hidden : variance of each block's mass if all others were known: numbers up to its root drown in the noise
    """

    channel: FourierChannel
    law: Floats
    mean: Floats
    covariance: Floats
    vague: Floats
    hidden: Floats
    weights: list[tuple[str, float]]


def posterior(search: Search) -> Posterior:
    """Average the models by evidence."""
    models = sorted(search.models, key=lambda model: -model.score)
    channel = _joined(search.channel, models)
    weight = np.exp([model.score - models[0].score for model in models])
    weight /= weight.sum()
    size = channel.blocks.size
    laws, means, covariance = np.zeros((len(models), size)), np.zeros((len(models), size)), np.zeros((size, size))
    for i, model in enumerate(models):
        own, place = model.channel, _places(channel.blocks, model.channel.blocks)
        state = own.at(own.widths * np.exp(model.theta))
        laws[i, place] = state.mass
        means[i, place] = state.mass * own.step(state)
        precision = own.hold(model.walk.bands(model.precision))
        covariance[np.ix_(place, place)] += weight[i] * _covariance(own, state, precision)
    mean = np.asarray(weight @ means)
    covariance += (weight[:, None] * (means - mean)).T @ (means - mean)
    law = np.asarray(weight @ laws)
    state = channel.at(np.maximum(law, 1e-300))
    open_law = channel.at(np.maximum(smoothest(channel, search.tried, law), 1e-300))
    vague = _covariance(channel, open_law, np.eye(law.size) / JUMP**2)
    named = [(model.name, float(w)) for model, w in zip(models, weight)]
    return Posterior(channel, law, mean, covariance, vague, channel.alone(state), named)


def _joined(channel: FourierChannel, models: Sequence[Model]) -> FourierChannel:
    """The channel with an atom for every count at which some model has one."""
    atoms = np.unique(np.concatenate([model.channel.blocks.atoms for model in models]))
    return channel.with_blocks(channel.blocks.with_atoms(np.setdiff1d(atoms, channel.blocks.atoms)))


def _places(all_blocks: Blocks, own: Blocks) -> Int64:
    """Where each block of a model stands among all: those side by side first, then atoms by their count."""
    order = np.argsort(all_blocks.atoms)
    atoms = order[np.searchsorted(all_blocks.atoms, own.atoms, sorter=order)]
    return np.concatenate([np.arange(own.covered), all_blocks.covered + atoms])


def _covariance(channel: FourierChannel, state: Seen, prior: Floats) -> Floats:
    """(D − J) + (D − J)·A⁻¹·(D − J)."""
    information = channel.information(state)
    missing = -information
    missing[np.diag_indices_from(missing)] += state.mass
    precision = prior + information
    scale = 1 / np.sqrt(np.diag(precision))
    precision *= np.outer(scale, scale)
    precision[np.diag_indices_from(precision)] += RIDGE
    half = solve_triangular(np.linalg.cholesky(precision), scale[:, None] * missing, lower=True, check_finite=False)
    return np.asarray(missing + half.T @ half)
