"""Vector of counts (cardinality evaluation of the World Federation of Advertisers, 2020): reach and overlap of sites.

Each site counts its distinct items by a common hash into m buckets and adds discrete Laplace noise of parameter ε to
each: an item more moves one bucket by one. The sum is its reach. For two sites, items in both meet in the same bucket,
so with x, y the vectors less their means

    overlap = Σ_j x_j·y_j · m/(m − 1)

has no bias: independent items cancel. The standard deviation is about √(|A|·|B|/m) plus noise, which is what bounds how
many sites can be united.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..arrays import Int64
from ..errors import IncompatibleError
from ..noise import DiscreteLaplace, Exact
from ._mechanism import noise

__all__ = ["VectorOfCounts", "vector_of_counts"]


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
