"""The World Federation of Advertisers' evaluation scenarios, and its measure of a frequency histogram.

The scenarios are those of the "smoke test" configurations of its cardinality and frequency estimation evaluation
framework [1]_, run as it runs them: a universe is drawn, the first 1, 2, … sets are united, and every union is compared
with its truth. *Sets that pass*: as many sets as can be united while 95 % of the runs are within 5 % of the true reach
(reach), or 80 % within a shuffle distance of 0.2 (frequency).

Two readings of its text. *Remarketing* draws sets of 40,000 out of a list of 40,000, which is the full overlap under
another name; here its sets have 20,000, so that it says something of its own. *Homogeneous* frequencies are documented
as 1 + Poisson(1), at most 3; its code cuts one earlier; here they are what the documentation says.

An item falls into a cell by a table drawn afresh in every run, which is the law of a hash with a fresh seed.

.. [1] github.com/world-federation-of-advertisers/cardinality_estimation_evaluation_framework,
   src/evaluations/data/evaluation_configs.py (``_smoke_test`` and ``_frequency_smoke_test``), src/simulations.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

UNIVERSE = 200_000
REACH = ("independent", "remarketing", "fully overlapping", "sequential, all", "sequential, one")
FREQUENCY = ("homogeneous", "heterogeneous", "constant")
SETS = {**dict.fromkeys(REACH, 20), **dict.fromkeys(FREQUENCY, 10)}
EXPECTED = {name: 20_000 if name in ("remarketing", "sequential, all", "sequential, one") else 40_000 for name in SETS}
"""Occurrences that a site expects to report, its public guess: each item of its set once, in FREQUENCY twice."""
MOST_FREQUENT = 10
"""Frequencies from here on are one entry of the histogram."""

PUBLISHED = {
    "vector of counts, 4096": (13, 10, 5, 7, 2),
    "Bloom filter": (8, 5, 3, 3, 3),
    "log Bloom filter": (3, 1, 1, 0, 0),
}
"""Sets that pass with local noise of ε = ln 3, in the order of REACH, as the framework's reports state them."""


def _without_replacement(rng: np.random.Generator, universe: int, size: int) -> np.ndarray:
    return rng.choice(universe, size, replace=False, shuffle=False)


def _correlated_with_all(rng: np.random.Generator, sets: int, size: int) -> list[np.ndarray]:
    """Half of every set comes from the union so far, the rest is new."""
    fresh = rng.permutation(size + (sets - 1) * (size - size // 2))
    made = [fresh[:size]]
    for i in range(1, sets):
        known = size + (i - 1) * (size - size // 2)
        again = fresh[_without_replacement(rng, known, size // 2)]
        made.append(np.concatenate([again, fresh[known : known + size - size // 2]]))
    return made


def _correlated_with_one(rng: np.random.Generator, sets: int, size: int) -> list[np.ndarray]:
    """Half of every set comes from the set before, the rest is new."""
    step = size - size // 2
    fresh = rng.permutation(size + (sets - 1) * step)
    return [fresh[i * step : i * step + size] for i in range(sets)]


def _sets(name: str, sets: int, rng: np.random.Generator) -> list[np.ndarray]:
    match name:
        case "independent":
            return [_without_replacement(rng, UNIVERSE, 40_000) for _ in range(sets)]
        case "remarketing":
            return [_without_replacement(rng, 40_000, 20_000) for _ in range(sets)]
        case "fully overlapping":
            return [_without_replacement(rng, UNIVERSE, 40_000)] * sets
        case "sequential, all":
            return _correlated_with_all(rng, sets, 20_000)
        case "sequential, one":
            return _correlated_with_one(rng, sets, 20_000)
    return [_without_replacement(rng, UNIVERSE, 20_000) for _ in range(sets)]


def _frequencies(name: str, size: int, rng: np.random.Generator) -> np.ndarray:
    match name:
        case "homogeneous":
            return np.minimum(1 + rng.poisson(1.0, size), 3)
        case "heterogeneous":
            return np.minimum(1 + rng.poisson(rng.gamma(1.0, 1.0, size)), 3)
        case "constant":
            return np.full(size, 3)
    return np.ones(size, dtype=np.int64)


@dataclass(frozen=True)
class Scenario:
    """One run of a scenario: items and their frequencies, site by site."""

    name: str
    items: tuple[np.ndarray, ...]
    counts: tuple[np.ndarray, ...]

    @classmethod
    def draw(cls, name: str, rng: np.random.Generator, sets: int | None = None) -> Scenario:
        items = _sets(name, sets or SETS[name], rng)
        return cls(name, tuple(items), tuple(_frequencies(name, i.size, rng) for i in items))

    @cached_property
    def universe(self) -> int:
        return 1 + max(int(i.max()) for i in self.items)

    def frequencies(self, sets: int) -> np.ndarray:
        """How often each item of the union of the first sets occurs, all ≥ 1."""
        added = self.added(sets)
        return added[added > 0]

    def added(self, sets: int) -> np.ndarray:
        added = np.zeros(self.universe, dtype=np.int64)
        for items, counts in zip(self.items[:sets], self.counts[:sets]):
            added[items] += counts
        return added

    def cells(self, size: int, rng: np.random.Generator) -> np.ndarray:
        """Exact cells of every site under one hash, sites × cells."""
        hashed = rng.integers(0, size, self.universe)
        return np.array([
            np.bincount(hashed[items], weights=counts, minlength=size).astype(np.int64)
            for items, counts in zip(self.items, self.counts)
        ])


def histogram(frequencies: np.ndarray, top: int = MOST_FREQUENT) -> np.ndarray:
    """Items by frequency 1 … top, the last entry "top or more"."""
    return np.bincount(np.minimum(frequencies, top), minlength=top + 1)[1:]


def shuffle_distance(estimate: np.ndarray, truth: np.ndarray) -> float:
    """Half the ℓ1 distance of two histograms, each scaled to 1; 1 where the estimate holds nothing."""
    if estimate.sum() <= 0:
        return 1.0
    return 0.5 * float(np.abs(estimate / estimate.sum() - truth / truth.sum()).sum())
