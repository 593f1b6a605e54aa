"""Other summaries: WFA's vector of counts for reach and overlap; profiles of a stream in little memory, not private.

**Vector of counts** (cardinality evaluation of the World Federation of Advertisers, 2020). Each site counts its
distinct items by a common hash into m buckets and adds discrete Laplace noise of parameter ε to each: an item more
moves one bucket by one. The sum is its reach. For two sites, items in both meet in the same bucket, so with x, y the
vectors less their means

    overlap = Σ_j x_j·y_j · m/(m − 1)

has no bias: independent items cancel. The standard deviation is about √(|A|·|B|/m) plus noise, which is what bounds how
many sites can be united.

**Streams**, without privacy: comparators at equal memory.

* **Datar & Muthukrishnan** (ESA 2002, rarity and similarity over windows): k hash functions; for each the item of least
  hash is kept with its count, which makes k independent uniform draws, with replacement, from the distinct items. A
  word of hash and a word of count each: 16·k bytes. The share of items with count t has the standard deviation
  √(f(1 − f)/k).
* **Chen, Indyk & Woodruff** (ITCS 2024, space-optimal profile estimation): Σ_{t≤τ} |N̂_t − N_t| ≤ ε·D with
  O(1/ε² + log n) bits, so a constant number of bits to a sample, where words are needed above. Their bounds could be
  read, not their constants; what is run here has the same bound: items sampled at a rate adapted to their number fall
  into buckets whose counters stop at τ + 1, and collisions are undone.

**Undoing collisions.** With λ_t the sampled items of count t to a bucket, the counts of buckets are compound Poisson,
and their law q obeys v·q_v = Σ_t t·λ_t·q_{v−t} (Panjer), which gives λ_1, λ_2, … from q one after the other
(B. Buchmann, R. Grübel, "Decompounding", Ann. Statist. 2003). Of counts above τ only the number is known, from q_0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Floats, Int64
from ..checks import check_integer
from ..errors import IncompatibleError
from ..noise import DiscreteLaplace, Exact
from .mechanisms import as_true_counts, noise

__all__ = ["SampledProfile", "Summary", "VectorOfCounts", "bucketed_profile", "min_wise_sample", "vector_of_counts"]


@dataclass(frozen=True, eq=False)
class VectorOfCounts:
    """Noisy numbers of distinct items in each bucket."""

    buckets: Int64
    law: DiscreteLaplace

    @property
    def reach(self) -> float:
        """Estimated number of distinct items; standard deviation √(m·Var Z)."""
        return float(self.buckets.sum())

    def overlap(self, other: VectorOfCounts) -> float:
        """Estimated number of items in both."""
        m = self.buckets.size
        if other.buckets.size != m:
            raise IncompatibleError("buckets", m, other.buckets.size)
        return float((self.buckets - self.buckets.mean()) @ (other.buckets - other.buckets.mean())) * m / (m - 1)


def vector_of_counts(hashes: NDArray[np.uint64], epsilon: Exact, *, buckets: int = 4096) -> VectorOfCounts:
    """Count the distinct items of one site, given by 64-bit hashes that all sites share."""
    places = (np.unique(hashes) % np.uint64(buckets)).astype(np.int64)
    counted = np.bincount(places, minlength=buckets)
    return VectorOfCounts(counted + noise(buckets, epsilon), DiscreteLaplace(epsilon))


@dataclass(frozen=True)
class Summary:
    """One summary of the field: who is trusted, what ε protects ("" without ε), its source, and what we chose."""

    name: str
    model: str
    unit: str
    citation: str
    run: Callable[..., Any]
    chosen: str = ""


WORD = 16
"""Bytes of a sample that is kept whole: its hash and its count."""

LOAD = 0.5
"""Sampled items to a bucket."""


@dataclass(frozen=True, eq=False)
class SampledProfile:
    """What a sample says: ``items[t]`` items of count t, the last entry those beyond; and its memory."""

    items: Floats
    bytes: int

    @property
    def distinct(self) -> float:
        """Number of items that occur."""
        return float(self.items.sum())


def min_wise_sample(counts: Any, size: int, rng: np.random.Generator, most: int = 14) -> SampledProfile:
    """Datar & Muthukrishnan with ``size`` independent draws from the items that occur, hashes as random as can be."""
    check_integer("size", size, 2)
    occurring = _occurring(counts)
    if not occurring.size:
        return SampledProfile(np.zeros(most + 2), WORD * size)
    chosen = rng.integers(0, occurring.size, size)  # the least of D uniform hashes is each item's equally often
    distinct = 1 / float(rng.beta(1, occurring.size, size).mean()) - 1
    found = np.bincount(np.minimum(occurring[chosen], most + 1), minlength=most + 2)
    return SampledProfile(distinct * found / size, WORD * size)


def bucketed_profile(counts: Any, memory: int, rng: np.random.Generator, most: int = 14) -> SampledProfile:
    """Chen, Indyk & Woodruff's bound: buckets of ⌈log2(most + 2)⌉ bits, ``memory`` bytes of them in all."""
    check_integer("memory", memory, 2)
    occurring = _occurring(counts)
    buckets = 8 * memory // math.ceil(math.log2(most + 2))
    rate = min(1.0, LOAD * buckets / max(occurring.size, 1))
    kept = occurring[rng.random(occurring.size) < rate]
    added = np.bincount(rng.integers(0, buckets, kept.size), weights=kept, minlength=buckets)
    seen = np.bincount(np.minimum(added, most + 1).astype(np.int64), minlength=most + 2) / buckets
    empty = max(float(seen[0]), 1 / buckets)
    rates = np.zeros(most + 2)
    for t in range(1, most + 1):
        before = float(np.arange(1, t) * rates[1:t] @ seen[t - 1 : 0 : -1]) if t > 1 else 0.0
        rates[t] = (t * seen[t] - before) / (t * empty)
    rates[most + 1] = max(0.0, -math.log(empty) - float(rates.sum()))
    return SampledProfile(np.clip(rates, 0, None) * buckets / rate, memory)


def _occurring(counts: Any) -> Int64:
    array = as_true_counts(counts)
    return array[array > 0]
