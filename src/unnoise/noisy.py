"""Noisy counts and the noisy profile: what crosses the privacy border.

A *noisy count* is h + Z, a signed integer. The *noisy profile* says for each integer v how many cells hold v;
with the public parameters it is all that any estimator needs. Both are sparse-friendly: a few cells near 10¹²
cost nothing extra.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from .arrays import Floats, Int64
from .errors import IncompatibleError, InputError
from .layout import Layout
from .noise import DiscreteLaplace, Exact

__all__ = ["NoisyCounts", "NoisyProfile", "as_signed_integers", "cells_between", "combine", "tally"]

BLOCK = 1 << 16
"""Cells tallied at a time: a block of int64 and its bincount stay in the second-level cache."""

WINDOW = 1 << 17
"""Widest dense window of values counted by bincount; values outside go through np.unique."""


def as_signed_integers(
    counts: Any, name: str = "noisy counts", *, secret: bool = False, may_be_empty: bool = False
) -> Int64:
    """Return ``counts`` as a one-dimensional int64 array, refusing whatever is not signed integers.

    No value of ``secret`` ones is in the message.

    >>> as_signed_integers([3, -1])
    array([ 3, -1])
    """
    if isinstance(counts, Sequence) and not isinstance(counts, str | bytes) and any(
        isinstance(value, bool | np.bool_) for value in counts
    ):
        raise InputError(f"{name} must be integers, got booleans")
    try:
        array = np.asarray(counts)
    except (ValueError, OverflowError) as error:
        raise InputError(f"{name} must be a one-dimensional array of integers: {error}") from None
    if array.ndim != 1:
        raise InputError(f"{name} must be one-dimensional, got {array.ndim} dimensions")
    if array.size == 0 and not may_be_empty:
        raise InputError(f"{name} must not be empty")
    if array.dtype.kind == "i" or array.size == 0:
        return array.astype(np.int64, copy=False)
    if array.dtype.kind == "u" or (
        array.dtype == object and all(isinstance(v, int) and not isinstance(v, bool) for v in array)
    ):
        bounds = np.iinfo(np.int64)
        if array.max() > bounds.max or array.min() < bounds.min:
            worst = array.max() if array.max() > bounds.max else array.min()
            raise InputError(f"{name} must fit into 64 bits{'' if secret else f', got {worst}'}")
        return array.astype(np.int64)
    if array.dtype.kind == "f" and not secret:
        raise InputError(
            f"{name} must be signed integers with discrete Laplace noise, got floats "
            f"(rounded continuous Laplace is another law and would bias every answer)"
        )
    raise InputError(f"{name} must be integers, got {'floats' if array.dtype.kind == 'f' else f'dtype {array.dtype}'}")


def tally(counts: Int64) -> tuple[Int64, Int64]:
    """Return the distinct values and how many cells hold each, in blocks and constant extra memory.

    Those in a dense window of at most WINDOW values are counted by their place in it, the far ones by sorting.

    >>> values, how_many = tally(np.array([0, 5, 0, -2]))
    >>> values.tolist(), how_many.tolist()
    ([-2, 0, 5], [1, 2, 1])
    """
    low, top, far = int(counts.min()), int(counts.max()), list[tuple[Int64, Int64]]()
    wide = top - low >= WINDOW
    if wide:  # around the middle of the first values: near 2⁶³ a mean would lie outside of them
        first = counts[:BLOCK]
        middle = int(np.partition(first, first.size // 2)[first.size // 2])
        low = max(low, middle - WINDOW // 2)
        top = min(top, low + WINDOW - 1)
    dense = np.zeros(top - low + 1, dtype=np.int64)
    for start in range(0, counts.size, BLOCK):
        block = counts[start : start + BLOCK]
        if wide and (block.min() < low or block.max() > top):
            inside = (block >= low) & (block <= top)
            far.append(np.unique(block[~inside], return_counts=True))
            far, block = [combine(far)] if len(far) > 64 else far, block[inside]
        counted = np.bincount(block - low)
        dense[: counted.size] += counted
    occupied = np.flatnonzero(dense)
    near = occupied + low, dense[occupied]
    return combine([near, *far]) if far else near


def combine(tallies: Iterable[tuple[Int64, Int64]]) -> tuple[Int64, Int64]:
    """Add up tallies over disjoint cells: one ascending value each, duplicates summed."""
    pairs = list(tallies)
    values, where = np.unique(np.concatenate([p[0] for p in pairs]), return_inverse=True)
    total = np.zeros(values.size, dtype=np.int64)
    np.add.at(total, where, np.concatenate([p[1] for p in pairs]))
    return values, total


def cells_between(values: Int64, before: Int64, low: Int64, high: Int64) -> Int64:
    """Number of cells from each ``low`` to each ``high``, both ends included.

    before : number of cells before each of the ascending values, and of all

    >>> cells_between(np.array([0, 2, 5]), np.array([0, 3, 4, 9]), np.array([0, 1, 6]), np.array([2, 9, 5]))
    array([4, 6, 0])
    """
    upto = before[np.searchsorted(values, high, "right")]
    return np.asarray(np.maximum(upto - before[np.searchsorted(values, low)], 0))


@dataclass(frozen=True, eq=False)
class NoisyProfile:
    """How many cells hold each noisy count: small, mergeable over disjoint cells.

    values : distinct noisy counts, ascending
    tally : number of cells that hold each of them, all ≥ 1
    noise : the law of the noise in every cell
    layout : what the cells are
    parts : for a sketch with levels, the noisy profile of each level; else empty
    max_count : most occurrences of one item, where its makers know that: each item a person, of limited occurrences
    """

    values: Int64
    tally: Int64
    noise: DiscreteLaplace
    layout: Layout
    parts: tuple[NoisyProfile, ...] = ()
    max_count: int | None = None
    cells: int = field(init=False)
    """Number of cells d."""
    items: int = field(init=False)
    """Number of items that the cells tell of: the whole domain of a sample, else one to a cell."""

    def __post_init__(self) -> None:
        if self.values.shape != self.tally.shape or self.values.ndim != 1 or self.values.size == 0:
            raise InputError("values and tally must be equally long, one-dimensional and not empty")
        if (self.values[1:] <= self.values[:-1]).any() or (self.tally <= 0).any():
            raise InputError("values must be ascending and distinct, and every tally ≥ 1")
        object.__setattr__(self, "cells", int(self.tally.sum()))
        if self.cells != self.layout.cells:
            raise InputError(f"the tally must add up to cells={self.layout.cells}, got {self.cells}")
        sampled = self.layout.domain if self.layout.kind == "sampled" else None
        object.__setattr__(self, "items", sampled or self.cells)

    @property
    def fractions(self) -> Floats:
        """y: the share of cells at each of ``values``."""
        return np.asarray(self.tally / self.cells)

    @classmethod
    def from_counts(cls, noisy_counts: Any, *, epsilon: Exact, power: Exact = 1) -> NoisyProfile:
        """Tally noisy counts, one per item of a known domain.

        >>> NoisyProfile.from_counts([0, 2, -1, 0], epsilon=1)
        NoisyProfile(4 cells, 3 distinct values from -1 to 2, DiscreteLaplace(epsilon=1))
        """
        counts = as_signed_integers(noisy_counts)
        layout = Layout(kind="known", cells=counts.size, domain=counts.size)
        return cls(*tally(counts), DiscreteLaplace(epsilon, power), layout)

    @classmethod
    def from_tally(
        cls, values: Any, tally: Any, *, noise: DiscreteLaplace, layout: Layout | None = None
    ) -> NoisyProfile:
        """Build from value/number-of-cells pairs, in any order, duplicates added up."""
        values = as_signed_integers(values, "values")
        how_many = as_signed_integers(tally, "tally")
        if values.shape != how_many.shape:
            raise InputError(f"values and tally must be equally long, got {values.size} and {how_many.size}")
        if (how_many < 0).any():
            raise InputError(f"tally must be ≥ 0, got {int(how_many.min())}")
        keep = how_many > 0
        if not keep.any():
            raise InputError("tally must hold at least one cell")
        values, how_many = combine([(values[keep], how_many[keep])])
        cells = int(how_many.sum())
        return cls(values, how_many, noise, layout or Layout(kind="known", cells=cells, domain=cells))

    def merge(self, other: NoisyProfile) -> NoisyProfile:
        """Return the noisy profile of two disjoint sets of cells of the same sketch."""
        if self.noise != other.noise:
            raise IncompatibleError("noise", self.noise, other.noise)
        mine = replace(self.layout, cells=1, domain=None)
        mine.require_equal(replace(other.layout, cells=1, domain=None))
        if len(self.parts) != len(other.parts):
            raise IncompatibleError("parts", len(self.parts), len(other.parts))
        values, how_many = combine([(self.values, self.tally), (other.values, other.tally)])
        domains = (self.layout.domain, other.layout.domain)
        layout = replace(
            self.layout,
            cells=self.layout.cells + other.layout.cells,
            domain=None if None in domains else sum(d for d in domains if d is not None),
        )
        parts = tuple(a.merge(b) for a, b in zip(self.parts, other.parts))
        bounds = (self.max_count, other.max_count)
        most = None if None in bounds else max(b for b in bounds if b is not None)
        return NoisyProfile(values, how_many, self.noise, layout, parts, most)

    __add__ = merge

    def folded(self, bound: int | None = None) -> tuple[Int64, Int64]:
        """Return values and tally, moved into 0..bound: for ρ = 1 what lies outside carries no information."""
        return combine([(np.clip(self.values, 0, bound), self.tally)])

    def __repr__(self) -> str:
        return (
            f"NoisyProfile({self.cells:,} cells, {self.values.size:,} distinct values from "
            f"{self.values[0]} to {self.values[-1]}, {self.noise})"
        )


@dataclass(frozen=True, eq=False)
class NoisyCounts:
    """The released cells of a sketch: noisy counts with the public parameters.

    counts : h + Z for every cell, int64
    noise : the law of Z
    layout : what the cells are
    max_count : most occurrences of one item, where the sketch knows it
    """

    counts: Int64
    noise: DiscreteLaplace
    layout: Layout
    max_count: int | None = None

    def __post_init__(self) -> None:
        if self.counts.size != self.layout.cells:
            raise InputError(f"counts must be cells={self.layout.cells} long, got {self.counts.size}")

    def profile(self) -> NoisyProfile:
        """Tally the counts into a noisy profile, level by level where there are levels."""
        levels = self.layout.levels
        if levels == 1:
            return NoisyProfile(*tally(self.counts), self.noise, self.layout, max_count=self.max_count)
        size = self.layout.cells // levels
        part = replace(self.layout, cells=size, levels=1)
        parts = tuple(
            NoisyProfile(*tally(self.counts[i * size : (i + 1) * size]), self.noise, part) for i in range(levels)
        )
        values, how_many = combine([(p.values, p.tally) for p in parts])
        return NoisyProfile(values, how_many, self.noise, self.layout, parts, self.max_count)

    def __add__(self, other: NoisyCounts) -> NoisyCounts:
        """Return the sum of two releases of like sketches whose noises are independent, cell by cell: powers add up."""
        self.layout.require_equal(other.layout)
        if self.noise.epsilon != other.noise.epsilon:
            raise IncompatibleError("epsilon", self.noise.epsilon, other.noise.epsilon)
        noise = DiscreteLaplace(self.noise.epsilon, self.noise.power + other.noise.power)
        bounds = (self.max_count, other.max_count)
        most = None if None in bounds else sum(b for b in bounds if b is not None)
        return NoisyCounts(self.counts + other.counts, noise, self.layout, most)

    def __len__(self) -> int:
        return int(self.counts.size)

    def __repr__(self) -> str:
        return f"NoisyCounts({self.counts.size:,} cells, {self.noise})"
