"""The noisy curve: what the holder of the rows releases, and what is promised about it.

Let S(t) be the number of items with count ≥ t and f[t] those with count exactly t. One occurrence more moves one item
from t − 1 to t, so it changes S at one t by 1 and nothing else: **the whole curve has sensitivity 1**, and so have its
sums over disjoint blocks of t. One *item* more (the item being a person) changes one f[t] by 1: sensitivity 1 as well,
whatever the person's count. So a vector of numbers is released,

    numbers[j] = Σ_{first[j] ≤ t ≤ last[j]} S(t) + Z_j      ("at_least": unit one occurrence, or persons with a limit)
    numbers[j] = Σ_{first[j] ≤ t ≤ last[j]} f[t] + Z_j      ("exactly": the item is the person)

with independent discrete Laplace noises Z_j of parameter ε divided by what one unit can change. S(0) is not released.
The blocks depend on no data (:func:`blocks`): single counts first, then a fixed number to the octave, up to 2⁶².
Counts above that are taken as 2⁶² and sums saturate there: both maps never increase a distance, so nothing has to be
refused. The curve and its noise follow M. Hay, C. Li, G. Miklau, D. Jensen, "Accurate estimation of the degree
distribution of private networks", ICDM 2009, turned from sorted counts to the counts of counts (A. T. Suresh,
"Differentially private anonymized histograms", NeurIPS 2019).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from .arrays import Int64
from .errors import InputError
from .layout import Layout, in_words
from .noise import DiscreteLaplace, tidy

__all__ = ["TOP", "NoisyCurve", "Released", "block_sums", "blocks", "limited_blocks"]

Released = Literal["at_least", "exactly"]

TOP = 1 << 62
"""Largest count told apart, and largest sum."""

SINGLE = {"at_least": 1024, "exactly": 64}
"""Counts up to here are released one by one. A sum over f adds up one noise for every number, so f has fewer."""

PER_OCTAVE = {"at_least": 128, "exactly": 4}
"""Blocks to the octave beyond."""


def blocks(released: Released = "at_least") -> tuple[Int64, Int64]:
    """Return the first and last count of each block: 1, 2, …, then equal blocks of every octave up to 2⁶².

    >>> first, last = blocks()
    >>> first.size, first[1024:1026].tolist(), last[1024:1026].tolist(), int(last[-1]) == TOP
    (7680, [1025, 1033], [1032, 1040], True)
    >>> bool((first[1:] == last[:-1] + 1).all()), blocks("exactly")[0].size
    (True, 288)
    """
    single, per = SINGLE[released], PER_OCTAVE[released]
    ends = list(range(1, single + 1))
    while ends[-1] < TOP:
        octave = ends[-1]
        ends += [octave + octave // per * (i + 1) for i in range(per)]
    last = np.array(ends, dtype=np.int64)
    return np.concatenate([[1], last[:-1] + 1]), last


def limited_blocks(released: Released, most: int | None) -> tuple[Int64, Int64]:
    """Return the blocks up to the count ``most``, at which the last one ends.

    >>> limited_blocks("exactly", 3)[1].tolist()
    [1, 2, 3]
    """
    first, last = blocks(released)
    if most is None or most >= TOP:
        return first, last
    kept = int(np.searchsorted(last, most)) + 1
    return first[:kept], np.minimum(last[:kept], most)


HALF = 28
"""Bits of the lower half of a count's place in its block: sums of 2³³ halves still fit into 64 bits."""


def block_sums(counts: Int64, items: Int64, first: Int64, last: Int64, released: Released) -> list[int]:
    """Return Σ S(t) or Σ f[t] over each block, exactly, as whole numbers of at most 2⁶²; counts ascend from 1.

    A count above the last block is taken as its end. An item with count h adds min(h − first + 1, width) to the sum
    of S over a block that begins at or below h.

    >>> counts, items = np.array([2, 5]), np.array([10, 1])
    >>> block_sums(counts, items, np.array([1, 2, 3]), np.array([1, 2, 6]), "at_least")
    [11, 11, 3]
    >>> block_sums(counts, items, np.array([1, 2, 3]), np.array([1, 2, 3]), "exactly")
    [0, 10, 1]
    """
    counts = np.minimum(counts, last[-1])
    edge = np.concatenate([[0], np.searchsorted(counts, last, side="right")])
    running = np.concatenate([[0], np.cumsum(items)])
    inside = np.diff(running[edge])
    if released == "exactly":
        return [min(int(n), TOP) for n in inside]
    beyond = running[-1] - running[edge[1:]]
    place = counts - np.repeat(first, np.diff(edge)) + 1
    low = _sums(items * (place & ((1 << HALF) - 1)), edge)
    high = _sums(items * (place >> HALF), edge)
    width = last - first + 1
    return [
        min((int(h) << HALF) + int(lo) + int(n) * int(w), TOP) for h, lo, n, w in zip(high, low, beyond, width)
    ]


def _sums(values: Int64, edge: NDArray[np.intp]) -> Int64:
    """Add up the values between edges (differences of running sums are right even where these wrap around)."""
    return np.diff(np.concatenate([[0], np.cumsum(values)])[edge])


@dataclass(frozen=True, eq=False)
class NoisyCurve:
    """The released numbers with their public parameters: all that the answers of a direct profile are made from.

    first, last : counts of each block, ascending and without gaps
    numbers : sums of S ("at_least") or of f ("exactly") over each block, plus noise
    noise : law of the noise on every number
    released : "at_least" or "exactly"
    max_contributions : C, the occurrences one person may add over all groups together, or None
    changes : how many numbers of all groups together one unit can change by 1: what ε was divided by
    persons : "" (unit one occurrence), "limited" (by a person column), "promised" (by the caller) or "items"
    label : None for noise of the operating system's entropy; else what is wrong with it
    """

    first: Int64
    last: Int64
    numbers: Int64
    noise: DiscreteLaplace
    released: Released = "at_least"
    max_contributions: int | None = None
    changes: int = 1
    persons: Literal["", "limited", "promised", "items"] = ""
    label: str | None = None

    def __post_init__(self) -> None:
        if not self.first.size or not self.first.shape == self.last.shape == self.numbers.shape:
            raise InputError("first, last and numbers must be equally long and not empty")
        if self.first[0] != 1 or (self.last < self.first).any() or (self.first[1:] != self.last[:-1] + 1).any():
            raise InputError("blocks must begin at 1, be ascending and leave no gaps")
        if self.released not in SINGLE:
            raise InputError(f"released must be 'at_least' or 'exactly', got {self.released!r}")
        if self.noise.power != 1:
            raise InputError(f"noise must have power 1, got {self.noise.power}")
        for array in (self.first, self.last, self.numbers):
            array.flags.writeable = False

    @property
    def width(self) -> Int64:
        """Counts in each block."""
        return self.last - self.first + 1

    @property
    def cells(self) -> int:
        """How many numbers were released."""
        return int(self.numbers.size)

    @property
    def layout(self) -> Layout:
        """The public parameters in the form that sketches have them."""
        return Layout(kind="direct", cells=self.cells, max_contributions=self.max_contributions)

    @property
    def epsilon(self) -> Fraction:
        """ε of the unit: one occurrence or one person."""
        return self.noise.epsilon * self.changes

    @property
    def guarantee(self) -> str:
        """What is promised, in plain words.

        >>> first, last = limited_blocks("at_least", 2)
        >>> print(NoisyCurve(first, last, np.zeros(2, dtype=np.int64), DiscreteLaplace(1)).guarantee)
        ε = 1 for one occurrence: adding or removing one occurrence of one item changes the probability of anything released by a factor of at most e^1 ≈ 2.72. Replacing one by another: twice that ε. A person with k occurrences: k times that ε. The rows were counted exactly by whoever holds them; noise was added once, to the profile itself, and only this release is protected.
        """  # noqa: E501
        unit, change = _unit(self)
        parts = [in_words(self.epsilon, unit, change), "Replacing one by another: twice that ε."]
        if not self.persons:
            parts.append("A person with k occurrences: k times that ε.")
        if self.persons == "promised":
            most = self.max_contributions
            parts.append(f"No person column was given, so the limit of {most} is the caller's promise.")
        parts.append(
            "The rows were counted exactly by whoever holds them; noise was added once, to the profile itself, and "
            "only this release is protected."
        )
        if self.label is not None:
            parts.append(f"NOT PRIVATE: {self.label}.")
        return " ".join(parts)

    def __repr__(self) -> str:
        return f"NoisyCurve({self.cells:,} numbers of {self.released}, ε = {tidy(self.epsilon)})"


def _unit(curve: NoisyCurve) -> tuple[str, str]:
    """Return the unit and what is added or removed."""
    if not curve.persons:
        return "one occurrence", "one occurrence of one item"
    if curve.persons == "items" and curve.max_contributions is None:
        return "one person", "one person, who is one item, with any number of occurrences,"
    most = curve.max_contributions
    return "one person", f"one person, with at most {most:,} occurrence{'' if most == 1 else 's'} counted in all,"
