"""Profiles of a stream in little memory, without privacy: comparators at equal memory.

* **Datar & Muthukrishnan** (ESA 2002, rarity and similarity over windows): k hash functions; for each the item of least
  hash is kept with its count, which makes k independent uniform draws, with replacement, from the distinct items.
* **Chen, Indyk & Woodruff** (ITCS 2024, space-optimal profile estimation): their algorithm and its constants were not
  at hand; what stands here is the idea it rests on, one hash function that samples items at a rate adapted to their
  number (the k of least hash, without replacement), each with its count.

A word of hash and a word of count for each sample: memory of k samples is 16·k bytes. The share of items with count t
so has the standard deviation √(f(1 − f)/k), the second times √(1 − k/D).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import Floats, Int64
from ..checks import check_integer
from ._mechanism import as_true_counts

__all__ = ["SampledProfile", "adaptive_sample", "min_wise_sample"]

WORD = 16
"""Bytes of a sample: its hash and its count."""


@dataclass(frozen=True, eq=False)
class SampledProfile:
    """The counts of sampled items, and what they say of all."""

    counts: Int64
    distinct: float

    @property
    def bytes(self) -> int:
        """Memory of the sample."""
        return WORD * int(self.counts.size)

    def fractions(self, top: int) -> Floats:
        """Estimated f[0..top] over the items that occur."""
        found = np.bincount(np.minimum(self.counts, top + 1), minlength=top + 2)
        return found[: top + 1] / max(self.counts.size, 1)


def min_wise_sample(counts: Any, size: int, rng: np.random.Generator) -> SampledProfile:
    """Datar & Muthukrishnan: ``size`` independent draws from the items that occur, from hashes as random as can be."""
    occurring = _occurring(counts, size)
    if not occurring.size:
        return SampledProfile(occurring, 0.0)
    chosen = rng.integers(0, occurring.size, size)  # the least of D uniform hashes is each item's equally often
    least = rng.beta(1, occurring.size, size)
    return SampledProfile(occurring[chosen], 1 / float(least.mean()) - 1)


def adaptive_sample(counts: Any, size: int, rng: np.random.Generator) -> SampledProfile:
    """The ``size`` items of least hash with their counts; D by the hash of the last (Bar-Yossef et al. 2002)."""
    occurring = _occurring(counts, size)
    hashes: Floats = rng.random(occurring.size)
    if occurring.size <= size:
        return SampledProfile(occurring, float(occurring.size))
    kept = np.argpartition(hashes, size - 1)[:size]
    return SampledProfile(occurring[kept], (size - 1) / float(hashes[kept].max()))


def _occurring(counts: Any, size: int) -> Int64:
    check_integer("size", size, 2)
    array = as_true_counts(counts)
    return array[array > 0]
