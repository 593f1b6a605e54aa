"""The noisy curve: what the holder of the rows releases, and what is promised about it.

Draw every item as a row of as many boxes as it has occurrences, the largest first: h_i boxes in row i. Column t then
has S(t) boxes, the number of items with count ≥ t. One occurrence more adds one box, so the numbers of boxes in *any*
regions that do not overlap and do not depend on the data have **sensitivity 1**. The regions here are parts of columns
and of rows: a box belongs to its column where its rank is above 1/8 of its count, else to its row. So common counts are
known by S(t) and rare large ones each by itself, whatever the size of the diagram. Released is

    numbers[j] = Σ_{first[j] ≤ t ≤ last[j]} (S(t) − above[j])⁺ + Z_j           columns, above[j] = ⌊last[j]/8⌋
    ranks[k]   = Σ_{rank_first[k] ≤ i ≤ rank_last[k]} (h_i − start[k] + 1)⁺ + Z_k      rows, from the count start[k] on

with independent discrete Laplace noises of parameter ε divided by what one unit can change ("at_least": unit one
occurrence, or persons with a limit). One *item* more (the item being a person) changes one f[t], the number of items
with count t, by 1, whatever the person's count; there ("exactly") the sums of f over blocks are released.

The blocks depend on no data (:func:`blocks`): single counts first, then a fixed number to the octave. Counts above 2⁶²
are taken as 2⁶² and sums saturate there: both maps never increase a distance, so nothing has to be refused. Noise on
sorted counts is due to M. Hay, C. Li, G. Miklau, D. Jensen ("Accurate estimation of the degree distribution of private
networks", ICDM 2009), on both ends of the diagram at once to A. T. Suresh ("Differentially private anonymized
histograms", NeurIPS 2019) and P. Manurangsi (SOSA 2022), who split it where the total says; here nothing is asked.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .arrays import Int64
from .errors import InputError
from .layout import Layout, in_words
from .noise import DiscreteLaplace, tidy

__all__ = ["ALL_GROUPS", "TOP", "NoisyCurve", "Released", "blocks", "exact_numbers", "limited_blocks", "rank_blocks"]

Released = Literal["at_least", "exactly"]

ALL_GROUPS = "all groups"
"""Name of the row for all groups together, where an item in several of them counts once."""

TOP = 1 << 62
"""Largest count told apart, and largest sum."""

SINGLE = {"at_least": 1 << 15, "exactly": 64}
"""Counts up to here are released one by one. A sum over f adds up one noise for every number, so f has fewer.

A block hides which of its counts an item has, so blocks begin where only data of more than 2³⁰/8 occurrences reach.
"""

PER_OCTAVE = {"at_least": 128, "exactly": 4}
"""Blocks to the octave beyond."""

END = {"at_least": 1 << 40, "exactly": TOP}
"""Where the columns end: beyond, only 2³⁷ items could have boxes that no row counts."""

STEEP = 8
"""Boxes whose rank is at most 1/STEEP of their count belong to rows."""


def blocks(released: Released = "at_least") -> tuple[Int64, Int64]:
    """Return the first and last count of each block: 1, 2, …, then equal blocks of every octave.

    >>> first, last = blocks()
    >>> first.size, first[32768:32770].tolist(), last[32768:32770].tolist(), int(last[-1]) == 2**40
    (35968, [32769, 33025], [33024, 33280], True)
    >>> bool((first[1:] == last[:-1] + 1).all()), blocks("exactly")[0].size
    (True, 288)
    """
    single, per = SINGLE[released], PER_OCTAVE[released]
    ends = list(range(1, single + 1))
    while ends[-1] < END[released]:
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
    if most is None or most >= last[-1]:
        return first, last
    kept = int(np.searchsorted(last, most)) + 1
    return first[:kept], np.minimum(last[:kept], most)


def rank_blocks(first: Int64, last: Int64) -> tuple[Int64, Int64, Int64]:
    """Return the first and last rank of each group of rows, and the count from which on its boxes are its own.

    >>> begin, end, start = rank_blocks(*blocks())
    >>> begin[:3].tolist(), end[:3].tolist(), start[:3].tolist(), int(end[-1]) == 2**37
    ([1, 2, 3], [1, 2, 3], [8, 16, 24], True)
    """
    above = last // STEEP
    rises = np.flatnonzero(np.diff(above, prepend=0) > 0)
    end = above[rises]
    return np.concatenate([[0], end[:-1]])[: end.size] + 1, end, first[rises]


def exact_numbers(
    counts: Int64, items: Int64, first: Int64, last: Int64, released: Released, top: int = TOP
) -> tuple[Int64, Int64]:
    """Return the boxes of every column block and of every group of rows, exactly, each at most 2⁶².

    ``items[i]`` items have count ``counts[i]``; counts ascend from 1, those above ``top`` are taken as that.

    >>> counts, items = np.array([2, 20]), np.array([10, 1])
    >>> first, last = limited_blocks("at_least", 24)
    >>> columns, rows = exact_numbers(counts, items, first, last, "at_least")
    >>> columns[:4].tolist(), int(columns[4:].sum()), rows.tolist()  # the row of 20 from the count 8 on
    ([11, 11, 1, 1], 3, [13, 0, 0])
    >>> exact_numbers(counts, items, np.array([1, 2, 3]), np.array([1, 2, 30]), "exactly")[0].tolist()
    [0, 10, 1]
    """
    counts = np.minimum(counts, top)
    running = np.concatenate([[0], np.cumsum(items)])
    if released == "exactly":
        edge = np.concatenate([[0], np.searchsorted(counts, last, side="right")])
        edge[-1] = counts.size  # counts beyond the grid are taken as its end
        return np.minimum(np.diff(running[edge]), TOP), np.zeros(0, dtype=np.int64)
    boxes = np.concatenate([[0], np.cumsum(counts.astype(object) * items.astype(object))])
    whole = np.int64 if int(boxes[-1]) <= TOP else object  # nothing that is kept is larger than all boxes
    diagram = _Diagram(counts, running, boxes.astype(whole))
    above = last // STEEP
    columns = diagram.columns(first, np.minimum(last, diagram.count_of(above + 1)), above)
    begin, end, start = rank_blocks(first, last)
    rows = diagram.rows(begin - 1, np.minimum(end, diagram.reached(start)), start)
    return np.minimum(columns, TOP).astype(np.int64), np.minimum(rows, TOP).astype(np.int64)


@dataclass(frozen=True, eq=False)
class _Diagram:
    """Boxes under running sums of items and of their counts, from the smallest count on."""

    counts: Int64
    running: Int64
    boxes: NDArray[Any]

    def reached(self, t: Int64) -> Int64:
        """S(t)."""
        return np.asarray(self.running[-1] - self.running[np.searchsorted(self.counts, t)])

    def count_of(self, rank: Int64) -> Int64:
        """h of the item of a rank, 0 where there are fewer."""
        smaller = np.maximum(self.running[-1] - rank, -1)  # items after it
        at = np.searchsorted(self.running, smaller, side="right") - 1
        return np.where(smaller >= 0, np.append(self.counts, 0)[np.maximum(at, 0)], 0)

    def columns(self, a: Int64, b: Int64, above: Int64) -> NDArray[Any]:
        """Σ (S(t) − above) over a ≤ t ≤ b, 0 where there is no such t."""
        low, high = np.searchsorted(self.counts, a), np.searchsorted(self.counts, b, side="right")
        beyond, here = (self._whole(self.running[-1] - self.running[at]) for at in (high, low))
        found = self.boxes[high] - self.boxes[low] + beyond * b - here * (a - 1) - self._whole(b - a + 1) * above
        return np.where(b >= a, found, 0)

    def rows(self, before: Int64, until: Int64, start: Int64) -> NDArray[Any]:
        """Σ (h_i − start + 1) over the ranks after ``before`` up to ``until``, 0 where there are none."""
        found = self._largest(until) - self._largest(before) - self._whole(until - before) * (start - 1)
        return np.where(until > before, found, 0)

    def _largest(self, rank: Int64) -> NDArray[Any]:
        """Boxes of so many of the largest items, of which there are as many."""
        rank = np.minimum(rank, self.running[-1])
        count = self.count_of(np.maximum(rank, 1))
        at = np.searchsorted(self.counts, count, side="right")
        larger = self.running[-1] - self.running[at]
        return np.asarray(self.boxes[-1] - self.boxes[at] + self._whole(rank - larger) * count)

    def _whole(self, numbers: Int64) -> NDArray[Any]:
        """In the whole numbers that boxes are counted in: without end where 64 bits would not do."""
        return numbers.astype(self.boxes.dtype)


@dataclass(frozen=True, eq=False)
class NoisyCurve:
    """The released numbers with their public parameters: all that the answers of a direct profile are made from.

    first, last : counts of each block, ascending and without gaps
    numbers : boxes of each block of columns ("at_least"), or items with a count in it ("exactly"), plus noise
    ranks : boxes of each group of rows, plus noise ("at_least" only)
    noise : law of the noise on every number
    released : "at_least" or "exactly"
    max_contributions : C, the occurrences one person may add over all groups together, or None
    changes : how many numbers of all groups together one unit can change by 1: what ε was divided by
    persons : "" (unit one occurrence), "limited" (by a person column), "promised" (by the caller) or "items"
    label : None for noise of the operating system's entropy; else what is wrong with it
    share : part of the release's ε that this noise takes, 1 unless groups and all groups together divide it
    together : whether it is the curve of all groups together
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
    ranks: Int64 = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    share: Fraction = Fraction(1)
    together: bool = False

    def __post_init__(self) -> None:
        if not self.first.size or not self.first.shape == self.last.shape == self.numbers.shape:
            raise InputError("first, last and numbers must be equally long and not empty")
        if self.first[0] != 1 or (self.last < self.first).any() or (self.first[1:] != self.last[:-1] + 1).any():
            raise InputError("blocks must begin at 1, be ascending and leave no gaps")
        if self.released not in SINGLE:
            raise InputError(f"released must be 'at_least' or 'exactly', got {self.released!r}")
        if not 0 < self.share <= 1:
            raise InputError(f"share must be above 0 and at most 1, got {self.share}")
        if self.noise.power != 1:
            raise InputError(f"noise must have power 1, got {self.noise.power}")
        if self.ranks.size != (self.start.size if self.released == "at_least" else 0):
            raise InputError(f"ranks must be one for each group of rows, got {self.ranks.size} for {self.start.size}")
        for array in (self.first, self.last, self.numbers, self.ranks):
            array.flags.writeable = False

    @property
    def width(self) -> Int64:
        """Counts in each block."""
        return self.last - self.first + 1

    @property
    def above(self) -> Int64:
        """Rank above which boxes belong to each block of columns."""
        return self.last // STEEP

    @cached_property
    def _rows(self) -> tuple[Int64, Int64, Int64]:
        return rank_blocks(self.first, self.last)

    @property
    def rank_last(self) -> Int64:
        """Last rank of each group of rows."""
        return self._rows[1]

    @property
    def rank_width(self) -> Int64:
        """Ranks in each group of rows."""
        return self._rows[1] - self._rows[0] + 1

    @property
    def start(self) -> Int64:
        """Count from which on boxes belong to each group of rows."""
        return self._rows[2]

    @property
    def cells(self) -> int:
        """How many numbers were released."""
        return int(self.numbers.size + self.ranks.size)

    @property
    def max_count(self) -> int | None:
        """The count that larger ones were taken as, where the blocks end before their time; else None."""
        end = int(self.last[-1])
        return end if end < END[self.released] else None

    @property
    def layout(self) -> Layout:
        """The public parameters in the form that sketches have them."""
        return Layout(kind="direct", cells=self.cells, max_contributions=self.max_contributions)

    @property
    def epsilon(self) -> Fraction:
        """ε of the unit, one occurrence or one person, for everything released together."""
        return self.noise.epsilon * self.changes / self.share

    @property
    def whole(self) -> Fraction:
        """Part of ε that all groups together take: 0 where nothing divides it."""
        return self.share if self.together else 1 - self.share

    @property
    def guarantee(self) -> str:
        """What is promised, in plain words.

        >>> first, last = limited_blocks("at_least", 2)
        >>> print(NoisyCurve(first, last, np.zeros(2, dtype=np.int64), DiscreteLaplace(1)).guarantee)
        ε = 1 for one occurrence: adding or removing one occurrence of one item changes the probability of anything released by a factor of at most e^1 ≈ 2.72. Replacing one by another: twice that ε. A person with k occurrences: k times that ε. Counts above 2 were taken as 2. The rows were counted exactly by whoever holds them; noise was added once, to the profile itself, and only this release is protected.
        """  # noqa: E501
        unit, change = _unit(self)
        parts = [in_words(self.epsilon, unit, change)]
        if self.share != 1:
            groups, whole = (tidy(part * self.epsilon) for part in (1 - self.whole, self.whole))
            said = f"{groups} to the groups and {whole} to {ALL_GROUPS}"
            parts.append(f"Of this ε, {said} together, each with the noise of its part alone.")
        parts.append("Replacing one by another: twice that ε.")
        if not self.persons:
            parts.append("A person with k occurrences: k times that ε.")
        if self.persons == "promised":
            most = self.max_contributions
            parts.append(f"No person column was given, so the limit of {most} is the caller's promise.")
        if self.max_count is not None:
            parts.append(f"Counts above {self.max_count:,} were taken as {self.max_count:,}.")
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
