"""At most c occurrences of each person, chosen uniformly at random.

A row with count k stands for |k| occurrences. A person with more than c of them keeps c, every set of c of them being
equally likely, independently of other persons and of the noise. So adding or removing a person changes the sketch by
at most c, which is what a = e^(−ε/c) is calibrated for.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .._sampler import Keystream
from ..arrays import Int64
from ..errors import InputError
from .hashing import UInt64

__all__ = ["limit_contributions"]

MOST = 1 << 28
"""Occurrences of persons above the limit that are told apart in memory at once."""


def limit_contributions(
    cells: Int64, counts: Int64 | None, persons: UInt64, most: int, stream: Keystream
) -> tuple[Int64, Int64 | None]:
    """Return the cells and counts that are left when each person keeps at most ``most`` occurrences."""
    if cells.size == 0:
        return cells, counts
    weights = np.ones(cells.size, dtype=np.int64) if counts is None else np.abs(counts)
    over = _over_limit(weights, persons, most)
    if not over.any():
        return cells, counts
    rows = np.flatnonzero(over)
    total = sum(int(part.sum()) for part in np.array_split(np.minimum(weights[rows], MOST + 1), rows.size // MOST + 1))
    if total > MOST:
        raise InputError(f"counts of persons above max_contributions must add up to at most {MOST}")
    occurrences = np.repeat(rows, weights[rows])
    chosen = occurrences[_choose(persons[occurrences], most, stream)]
    signs = np.ones(chosen.size, dtype=np.int64) if counts is None else np.sign(counts[chosen])
    kept = ~over
    if counts is None:
        return np.concatenate([cells[kept], cells[chosen]]), None
    return np.concatenate([cells[kept], cells[chosen]]), np.concatenate([counts[kept], signs])


def _over_limit(weights: Int64, persons: UInt64, most: int) -> NDArray[np.bool_]:
    """Tell which rows belong to a person with more than ``most`` occurrences."""
    _, who = np.unique(persons, return_inverse=True)
    totals = np.zeros(int(who.max()) + 1, dtype=np.float64)
    np.add.at(totals, who, np.minimum(weights, most + 1).astype(np.float64))  # whole numbers: exact below 2^53
    return np.asarray((totals > most)[who])


def _choose(persons: UInt64, most: int, stream: Keystream) -> NDArray[np.intp]:
    """Return which occurrences to keep: of each person those with the ``most`` smallest of independent random words."""
    order = np.lexsort((stream.words(persons.size), persons))
    ordered = persons[order]
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    rank = np.arange(order.size) - np.repeat(first, np.diff(np.append(first, order.size)))
    return np.asarray(order[rank < most])
