"""Mixtures of few atoms as models: profiles of few different counts.

One atom is put where a single count would explain the cells best; more are added where the cells pull most, each set of
places improved by moving its atoms while that helps. Masses have vague priors (a walk of length one each), so that
evidence is Laplace's; a set of s places out of n costs log C(n, s) nats for naming it. The search goes on while twice
what the last atom gained could still bring the mixture within reach of the best model.

Places are uncertain too. With 1 + v_i the likelihood of atom i at all its places, relative to that at its best, a
mixture is worth about Π(1 + v_i) times what its best places are, and is averaged over sets of places drawn by
likelihood: so that cells which cannot be told to hold 0 or 1 are not taken for either.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import gammaln

from ..arrays import Floats, Int64
from ._fourier import FAR, Blocks, FourierChannel
from ._mode import find_mode
from ._smooth_walk import Walk

__all__ = ["Mixture", "mixtures", "neighbourhood"]

MOST_POINTS = 6
"""Atoms at most: with more a walk does as well."""

HOPELESS = 1000.0
"""Nats behind what is wanted at which an atom more is worth more than another move."""

NEAR = 8
"""Counts to either side of an atom to which it may be moved at once, in powers of two, or a deviation of the noise."""

FIRSTS = 4
"""Single atoms to begin with, of which the best is kept."""

UNLIKELY, DRAWS = 1e-3, 12
"""Places of less than this share of the best place's likelihood are left out; sets of places drawn."""


@dataclass(frozen=True, eq=False)
class Mixture:
    """Atoms alone: their channel, θ, the walk that stands for their prior, and the log evidence, naming included."""

    channel: FourierChannel
    theta: Floats
    walk: Walk
    precision: Floats
    log_evidence: float
    value: float
    converged: bool

    @property
    def places(self) -> Int64:
        """The counts of the atoms but FAR."""
        return self.channel.blocks.atoms[self.channel.blocks.atoms < FAR]

    @property
    def mass(self) -> Floats:
        """Their masses, FAR last."""
        return np.asarray(np.exp(self.theta))


def mixtures(
    channel: FourierChannel, counts: Int64, total: float, level: float, wanted: float
) -> list[Mixture]:
    """Return mixtures of 1, 2, … atoms among ``counts``; ``wanted`` is the evidence that would count."""
    far = channel.blocks.atoms[channel.blocks.atoms >= FAR]
    found: list[Mixture] = []
    firsts = [_fit(channel, *each, far, level, counts.size) for each in _first(channel, counts, total, far)]
    first = max(firsts, key=lambda one: one.value if one.converged else -math.inf)
    best = _settled(first, far, level, counts, wanted)
    while best.converged:
        found.append(best)
        size = best.places.size
        if size == min(MOST_POINTS, counts.size):
            break
        gain = best.value - found[-2].value if size > 1 else np.inf
        if best.log_evidence + 2 * gain < wanted:
            break
        best = _settled(_fit(channel, *_another(best, counts), far, level, counts.size), far, level, counts, wanted)
    return found


def _blocks(places: Int64, far: Int64) -> Blocks:
    return Blocks(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), 0).with_atoms(np.append(places, far))


def _fit(channel: FourierChannel, places: Int64, mass: Floats, far: Int64, level: float, choices: int) -> Mixture:
    """Find the masses of atoms at these places."""
    own = channel.with_blocks(_blocks(places, far))
    walk = Walk(np.zeros(mass.size), np.zeros(mass.size, dtype=np.int64), 2, level=level)
    precision = walk.precision(1.0)
    mode = find_mode(own, walk, precision, np.log(np.maximum(mass, 1e-3)))
    s = places.size
    cost = float(gammaln(choices + 1) - gammaln(s + 1) - gammaln(choices - s + 1))
    value = own.at(np.exp(mode.theta)).value
    return Mixture(own, mode.theta, walk, precision, mode.log_evidence - cost, value, mode.converged)


def _first(channel: FourierChannel, counts: Int64, total: float, far: Int64) -> list[tuple[Int64, Floats]]:
    """One atom, with all occurrences: the FIRSTS counts that explain the cells best.

    Not only the best of them: the mass is a guess as yet, and twice a count is nearly as good as that count.
    """
    even = np.unique(np.rint(np.append(np.geomspace(1, max(counts[-1], 1), 32), 0)).astype(np.int64))
    full = [part.ends[np.argsort(-part.tally[:-1])[:4]] for part in channel.parts]
    tried = np.unique(np.concatenate([even, channel.blocks.atoms, *full]))
    tried = tried[(tried >= counts[0]) & (tried <= counts[-1])]
    beyond = np.maximum([part.tally[-1] for part in channel.parts], 1.0).sum() * np.ones(far.size)
    each = total / tried if channel.collide else np.full(tried.size, total)
    values = [
        channel.with_blocks(_blocks(np.array([t]), far)).at(np.append(mass, beyond)).value
        for t, mass in zip(tried, each)
    ]
    best = np.argsort(values)[::-1][:FIRSTS]
    return [(tried[i : i + 1], np.append(each[i], beyond)) for i in best]


def _another(mixture: Mixture, counts: Int64) -> tuple[Int64, Floats]:
    """Add an atom where the cells pull most, with a tenth of the mass of the lightest."""
    state = mixture.channel.at(mixture.mass)
    spread = np.geomspace(1, max(counts[-1], 1), 200).astype(np.int64)
    some = np.intersect1d(np.concatenate([spread, counts[:64]]), counts)
    strain = mixture.channel.strain(state, Blocks(some, some + 1, some.size))
    strain[np.isin(some, mixture.places)] = -np.inf
    places = np.append(mixture.places, some[int(np.argmax(strain))])
    mass = np.insert(mixture.mass, mixture.places.size, 0.1 * mixture.mass[: mixture.places.size].min())
    return places, mass


def _settled(best: Mixture, far: Int64, level: float, counts: Int64, wanted: float) -> Mixture:
    """Move atoms one by one while that raises the likelihood; less often while far from what is wanted."""
    channel = best.channel
    for turn in range(2 * MOST_POINTS):
        if turn > 1 and best.log_evidence < wanted - HOPELESS:
            break
        moved = _moves(best, counts)
        values = [channel.with_blocks(_blocks(p, far)).at(m).value for p, m in moved]
        if not values:
            break
        places, mass = moved[int(np.argmax(values))]
        other = _fit(channel, places, mass, far, level, counts.size)
        if not other.converged or other.value <= best.value + 1e-3:
            break
        best = other
    return best


def neighbourhood(mixture: Mixture, counts: Int64) -> list[Mixture]:
    """Return mixtures that stand for the likely places of a mixture's atoms, and share its evidence over all places.

    The places of each atom are drawn by their likelihood, the others left where they are, in equal steps of chance
    (a Latin hypercube); what the draws are worth together is weighed by their own likelihood.
    """
    places, gains, worth = _elsewhere(mixture, counts)
    order = np.random.default_rng(0)
    far = mixture.channel.blocks.atoms[mixture.channel.blocks.atoms >= FAR]
    drawn: dict[tuple[int, ...], tuple[float, Mixture]] = {}
    for steps in zip(*(order.permutation(DRAWS) for _ in places)):
        chosen = [int(np.searchsorted(np.cumsum(w) / w.sum(), (u + 0.5) / DRAWS)) for u, w in zip(steps, worth)]
        at = np.array([where[c] for where, c in zip(places, chosen)], dtype=np.int64)
        if np.unique(at).size < at.size:
            continue
        mass = _moved_mass(mixture, at)
        own = mixture.channel.with_blocks(_blocks(at, far))
        value = own.at(mass).value
        alone = sum(gain[c] for gain, c in zip(gains, chosen))
        weight = math.exp(min(value - mixture.value - alone, 1.0))
        known = drawn[tuple(at)][0] if tuple(at) in drawn else 0.0
        drawn[tuple(at)] = (
            known + weight, replace(mixture, channel=own, theta=np.log(np.maximum(mass, 1e-3)), value=value)
        )
    whole = mixture.log_evidence + sum(math.log(w.sum()) for w in worth) - math.log(DRAWS)
    return [
        replace(each, log_evidence=whole + math.log(weight)) for weight, each in drawn.values() if weight > UNLIKELY
    ]


def _elsewhere(mixture: Mixture, counts: Int64) -> tuple[list[Int64], list[Floats], list[Floats]]:
    """For each atom its likely places, what each gains in nats, and its likelihood times the places it stands for."""
    far = mixture.channel.blocks.atoms[mixture.channel.blocks.atoms >= FAR]
    found: list[list[tuple[int, float, float]]] = [[(int(place), 0.0, 1.0)] for place in mixture.places]
    for places, mass in _moves(mixture, counts):
        (i,) = np.flatnonzero(places != mixture.places)
        gain = min(mixture.channel.with_blocks(_blocks(places, far)).at(mass).value - mixture.value, 1.0)
        # moved by ± 2^k it stands for the places from halfway to the one before, to halfway to the next
        stands_for = max(1.0, 0.75 * abs(int(places[i]) - int(mixture.places[i])))
        if stands_for * math.exp(gain) > UNLIKELY:
            found[i].append((int(places[i]), gain, stands_for * math.exp(gain)))
    columns = [np.array(sorted(each)).T for each in found]
    return [c[0].astype(np.int64) for c in columns], [c[1] for c in columns], [c[2] for c in columns]


def _moved_mass(mixture: Mixture, places: Int64) -> Floats:
    """The masses with the atoms at other places: occurrences are kept where items collide."""
    mass = mixture.mass.copy()
    if mixture.channel.collide:
        mass[: places.size] *= mixture.places / places
    return mass


def _moves(mixture: Mixture, counts: Int64) -> Sequence[tuple[Int64, Floats]]:
    """Every mixture with one atom moved a little, its occurrences kept."""
    reach = max(NEAR, math.sqrt(mixture.channel.noise.variance))
    steps = [sign * 2**k for k in range(int(math.log2(reach)) + 1) for sign in (1, -1)]
    found = []
    for i, place in enumerate(mixture.places):
        for step in steps:
            new = place + step
            if counts[0] <= new <= counts[-1] and new not in mixture.places:
                places = mixture.places.copy()
                places[i] = new
                found.append((places, _moved_mass(mixture, places)))
    return found
