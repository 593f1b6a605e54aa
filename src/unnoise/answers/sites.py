"""Answers from sealed sketches beside each other: union, overlap, unique reach, retention, each with an interval.

All are of items: the union of k sketches has Σ N_t of them, N_t the number that occur at exactly t sites
(:mod:`unnoise.estimators.side_by_side`), and in all of them occur N_k. Differences (unique reach) and ratios
(retention) take their errors together, from what every block of cells did to both answers.

The sum of the cells, answered by the default estimator, is a second answer. It knows less of fresh sketches (of 2 to 20
sites in WFA's scenarios a mean of both was no better), and may be the surer one of sketches that hold several noises:
it is asked where the first is rough, and the surer answer is taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
from scipy.special import ndtri

from ..arrays import Int64
from ..errors import IncompatibleError, InputError, OverloadError
from ..estimators.side_by_side import Coded, Together, covariance, side_by_side
from ..layout import Layout
from ..noisy import NoisyCounts
from .estimate import Estimate
from .modelled import left_open
from .profile import Profile
from .reconstruct import reconstruct

__all__ = [
    "Gathered", "as_estimate", "beside", "in_common", "occurrences_of", "overlap", "reach_of", "retention", "union",
    "unique_reach",
]  # fmt: skip

COMPARED = ("kind", "cells", "domain", "rate", "levels", "hash_seed", "item_types", "fingerprint")
"""What must agree; ε and limits per person need not: every sketch is inverted by its own noise."""

ROUGH = 0.1
"""Relative standard error below which no answer is marked, nor the sum of the cells asked as well."""

SURE = 3.0
"""Standard errors beyond which nothing is expected: no part has more than the whole has at most."""

COPIED = 1e-9
"""Chance of equal cells, at most, below which they are a copy."""

VAGUE = 0.8
"""Share of the standard deviation between the trivial bounds at which an answer says next to nothing."""


@dataclass(frozen=True, eq=False)
class Gathered:
    """Sketches read one after the other: what they say by themselves, beside each other and added up."""

    names: tuple[str, ...]
    coded: tuple[Coded, ...]
    total: NoisyCounts | None

    @classmethod
    def read(cls, sketches: Iterable[tuple[str, NoisyCounts]], *, once: bool = False, add: bool = True) -> Gathered:
        """Take sketches in, refusing what does not belong together; ``add`` keeps their sum.

        once : no sketch counts an item more than once, though it may not know that itself
        """
        names: list[str] = []
        seen: dict[int, str] = {}
        coded: list[Coded] = []
        total: NoisyCounts | None = None
        for name, noisy in sketches:
            if coded:
                require_comparable(names[0], coded[0].layout, name, noisy.layout)
            digest = hash(noisy.counts.tobytes())
            if digest in seen and _is_copy(noisy):
                raise InputError(
                    f"sketches must be different ones, got {seen[digest]} and {name}: the same cells; give it once"
                )
            seen[digest] = name
            names.append(name)
            add = add and (total is None or total.noise.epsilon == noisy.noise.epsilon)
            total = _added(total, noisy) if add else None
            coded.append(Coded(noisy, once=once or noisy.max_count == 1))
        if not coded:
            raise InputError("sketches must be at least one, got none")
        return cls(tuple(names), tuple(coded), total)

    @cached_property
    def summed(self) -> Profile:
        """What the sum of the cells says by itself."""
        assert self.total is not None, "asked for where the sum was kept"
        return reconstruct(self.total, max_count=len(self.coded) if all(one.once for one in self.coded) else None)

    def fitted(self, which: Sequence[int]) -> Together:
        """Return what some of them say beside each other."""
        return side_by_side([self.coded[i] for i in which])

    def only(self, which: Sequence[int]) -> Gathered:
        """Return some of them, without their sum."""
        return Gathered(tuple(self.names[i] for i in which), tuple(self.coded[i] for i in which), None)


def _is_copy(noisy: NoisyCounts) -> bool:
    """Whether noise of its own would hardly give the cells of another sketch: no noise is likelier than 0 everywhere.

    Weak noise on few cells does, so empty sites may well look the same.
    """
    return noisy.counts.size * float(noisy.noise.log_pmf(0)) < math.log(COPIED)


def _added(total: NoisyCounts | None, noisy: NoisyCounts) -> NoisyCounts:
    if total is None:
        return noisy
    return replace(total, layout=noisy.layout) + noisy  # comparable layouts: what they do not share makes no difference


def require_comparable(left_name: str, left: Layout, right_name: str, right: Layout) -> None:
    """Raise :class:`IncompatibleError` with field, values and names unless cells mean the same in both."""
    if left.item_types is None or right.item_types is None:
        left, right = replace(left, item_types=None), replace(right, item_types=None)
    for field in fields(left):
        mine, its = getattr(left, field.name), getattr(right, field.name)
        if field.name in COMPARED and mine != its:
            raise IncompatibleError(field.name, mine, its, f"in {left_name} and {right_name}")


def as_estimate(
    value: float, stderr: float, *, least: float = 0.0, most: float = math.inf, data_share: float = 1.0,
    marked: bool = False, level: float = 0.95, whole: bool = True,
) -> Estimate:  # fmt: skip
    """Return a number between its logical bounds with a normal interval cut at them; marked where it is left open.

    ``whole`` for a number of things: its interval goes on to the next whole numbers.

    >>> as_estimate(1.1, 0.4)
    Estimate(1.1, stderr 0.4, 95 % model interval 0 to 2)
    """
    value = min(max(value, least), most)

    def at(level: float) -> Estimate:
        margin = float(ndtri((1 + level) / 2)) * stderr
        low, high = value - margin, value + margin
        if whole and stderr:
            low, high = float(np.floor(low)), float(np.ceil(high))
        low, high = min(max(low, least), value), max(min(high, most), value)
        return Estimate(value, stderr, low, high, level, at, "model", data_share, marked or left_open(low, high))

    return at(level)


def reach_of(gathered: Gathered, together: Together | None = None) -> Estimate:
    """Return the number of items that occur anywhere."""
    alone = len(gathered.coded) == 1
    if alone and not (gathered.coded[0].once and gathered.coded[0].layout.kind == "hashed"):
        return reconstruct(gathered.coded[0].noisy).distinct  # counted once, the weights alone are as good as can be
    try:
        found = together or side_by_side(gathered.coded)
    except OverloadError:
        if gathered.total is None:
            raise
        return gathered.summed.distinct
    answer = beside(found)
    if alone or gathered.total is None or answer.stderr <= ROUGH * answer.value:
        return answer
    return min(answer, gathered.summed.distinct, key=lambda answer: (answer.marked, answer.high - answer.low))


def beside(found: Together) -> Estimate:
    """Return the union with how much of it is data, marked where the trivial bounds say as much."""
    k, touched = found.items.size, float(np.arange(1, found.items.size + 1) @ found.items)
    free = (touched - touched / k) / math.sqrt(12)  # between the largest site and the sum of all
    vague = k > 1 and found.stderr > max(VAGUE * free, ROUGH * found.reach)
    return as_estimate(found.reach, found.stderr, most=found.most, data_share=found.data_share, marked=vague)


def union(gathered: Gathered) -> Estimate:
    """Return the number of items that occur in any of the sketches."""
    return reach_of(gathered)


def _at_most(coded: Coded) -> float:
    """Return what the reach of one sketch surely does not exceed."""
    alone = side_by_side([coded])
    return min(alone.reach + SURE * alone.stderr, alone.most)


def overlap(gathered: Gathered) -> Estimate:
    """Return the number of items that occur in all of the sketches."""
    _require_several(gathered, "overlap")
    found = side_by_side(gathered.coded)
    stderr = math.sqrt(max(float(found.covariance[-1, -1]), 0.0))
    most = min(_at_most(coded) for coded in gathered.coded)
    return as_estimate(float(found.items[-1]), stderr, most=most, data_share=found.data_share)


def unique_reach(gathered: Gathered) -> Estimate:
    """Return how many items of the first sketch are in none of the others."""
    _require_several(gathered, "unique_reach")
    every, others = side_by_side(gathered.coded), side_by_side(gathered.coded[1:])
    value, stderr = _sum_of((1, every), (-1, others))
    return as_estimate(value, stderr, most=_at_most(gathered.coded[0]))


def in_common(left: Together, right: Together, every: Together) -> Estimate:
    """Return how many items occur in some sketch of ``left`` and in some of ``right``: |A| + |B| − |A ∪ B|.

    Of sites that sent several sketches: these side by side tell far more than two sums of them would.
    """
    value, stderr = _sum_of((1, left), (1, right), (-1, every))
    most = min(side.reach + SURE * side.stderr for side in (left, right))
    return as_estimate(value, stderr, most=most, data_share=every.data_share)


def _sum_of(*signed: tuple[int, Together]) -> tuple[float, float]:
    """Return a signed sum of reaches and its error: what the cells do to all at once, what each owes to its prior."""
    reach = sum(sign * found.reach for sign, found in signed)
    influences = [found.influences.sum(axis=0)[None] for _, found in signed]
    together = sum(sign * influence for (sign, _), influence in zip(signed, influences))
    sampled = float(covariance(together, together)[0, 0])
    alone = [float(covariance(influence, influence)[0, 0]) for influence in influences]
    owed = sum(max(0.0, found.stderr**2 - variance) for (_, found), variance in zip(signed, alone))
    return reach, math.sqrt(sampled + owed)


def retention(gathered: Gathered) -> Estimate:
    """Return the share of the items of the first sketch that are in the second."""
    if len(gathered.coded) != 2:
        raise InputError(f"retention must be between two sketches, got {len(gathered.coded)}")
    both, before = side_by_side(gathered.coded), side_by_side(gathered.coded[:1])
    if before.reach <= before.stderr:
        return as_estimate(0.5, 0.5, most=1.0, data_share=0.0, marked=True, whole=False)
    value = float(both.items[1]) / before.reach
    change = (both.influences[1] - value * before.influences[0]) / before.reach
    sampled = float(covariance(change[None], change[None])[0, 0])
    mine = both.influences[1][None]
    owed = max(0.0, float(both.covariance[1, 1]) - float(covariance(mine, mine)[0, 0])) / before.reach**2
    stderr = math.sqrt(sampled + owed)
    return as_estimate(
        value, stderr, most=1.0, data_share=both.data_share, marked=stderr > VAGUE / math.sqrt(12), whole=False
    )


def occurrences_of(coded: Coded) -> tuple[float, float]:
    """Return all occurrences of a sketch and their variance: the sum of the cells."""
    noisy = coded.noisy
    total: Int64 = noisy.values @ noisy.tally
    return float(total), noisy.noise.variance * noisy.cells


def _require_several(gathered: Gathered, what: str) -> None:
    if len(gathered.coded) < 2:
        raise InputError(f"{what} must be of at least two sketches, got {len(gathered.coded)}")
