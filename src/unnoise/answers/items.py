"""The profile of the items beneath a hashed sketch, with every answer of a :class:`~unnoise.answers.profile.Profile`.

The domain of a hashed sketch has no end, so shares are shares of the N items that occur: ``counts[0] = 0``,
``counts[t]`` is the number of items seen exactly t times and ``fractions[t] = counts[t]/N``.
``cell_profile`` is the law of the cells beneath, where several items may share a cell.

Where answers come from (:mod:`unnoise.estimators.collisions` has the mathematics):

* numbers of items, and sums of g over them: the posterior of the averaged models. An answer b is a sum over blocks of
  counts with the variance bᵀ·C·b, C the covariance of the items that are there given the cells;
* quantiles: the same of the items above t less their share of all items, since their number is uncertain too [2]_;
* items above the last row: one by one, with the power-series logarithm for those that share a cell;
* ``total``: the sum of all cells, exactly unbiased whatever collides, but never below 0. The profile is calibrated to
  it, so that ``total`` is Σ t·counts[t]: N_t becomes N_t·(1 + c·t), the least change in units of N_t's own Poisson
  variance that reaches that sum [1]_; it falls on the few large items, whose number is what the sum knows better.

Intervals, ``data_share`` and marks are those of :mod:`unnoise.answers.modelled`. Where only a share P of the items was
seen, the variance is never below that of a few unseen items: 3.6·(1/P)(1/P − 1).

.. [1] J.-C. Deville, C.-E. Särndal, "Calibration estimators in survey sampling", JASA 87 (1992) 376.
.. [2] E. C. Fieller, "Some problems in interval estimation", JRSS B 16 (1954) 175.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.optimize import brentq

from ..arrays import Floats, Int64
from ..errors import InputError
from ..estimators.collisions import ItemLaw, collisions, decompound, ranges
from ..estimators.methods import METHODS, Notice, estimate_law
from ..noisy import NoisyProfile
from .estimate import TOO_NOISY, Estimate, sensible
from .modelled import Grounds, ModelledProfile
from .profile import Profile, identity
from .sums import bounded, sum_limits

__all__ = ["ItemProfile", "item_profile"]

KEPT = 0.5
"""Share of its items that calibration leaves to every count."""

HIGH_LOAD = 2.0
"""Load above which a notice is given."""

MOSTLY_MODEL = 0.25
"""Share of data below which a notice is given: the model has halved the error, or more."""

OUTSTANDING, SURELY = 10.0, 1e-6
"""A cell stands out above so many usual ones of its level, and above all noise but with this chance."""

MISSED, FEWER = 0.5, 16
"""Share of what is accounted for that must be missing for giants to be looked for, and how many make it up at most."""


@dataclass(frozen=True, eq=False, repr=False)
class ItemProfile(ModelledProfile):
    """How many items occur exactly t times, beneath the cells of a hashed sketch.

    number : estimated number of distinct items, which ``mass`` is a share of
    uncalibrated : items at each count of the support before they were made to add up to ``total``
    occurrences : the sum of all cells, at least 0
    """

    number: float = 0.0
    given_law: ItemLaw | None = field(default=None, repr=False)
    uncalibrated: Floats | None = field(default=None, repr=False)
    occurrences: float = 0.0

    @property
    def items(self) -> float:
        """Number of distinct items, which the fractions are shares of."""
        return self.number

    @property
    def load(self) -> float:
        """Items per cell, in the fullest level used."""
        return float(self.diagnostics["load"])

    @cached_property
    def cell_profile(self) -> Profile:
        """The law of the cells beneath: for every s, the share of cells whose items add up to s."""
        from ..estimators.isotonic import isotonic

        return Profile.from_fit(isotonic(self.noisy), self.noisy)

    @cached_property
    def law(self) -> ItemLaw:
        """The posterior that the intervals are made from."""
        return self.given_law or collisions(self.noisy, max_count=self.max_count)

    @cached_property
    def _grounds(self) -> Grounds:
        law, near = self.law, self.support <= self.law.top
        far = None  # what smaller items add to the cell of a large one has the variance Σ λ_t·t²
        if law.tail is not None or not near.all():
            square = float((self.mass * self.number)[near] @ self.support[near].astype(float) ** 2)
            shared = square * max(part.share / part.noisy.cells for part in law.used)
            far = 1.0 if law.tail is None else law.tail.far_share, self.noisy.noise.variance + shared
        empty = sum(part.noisy.cells * math.exp(-self.number * part.share / part.noisy.cells) for part in law.used)
        return Grounds(
            law.posterior, 1, law.top, law.share, math.inf, 0.0, far, law.tail, empty < 1, self.uncalibrated
        )

    @property
    def total(self) -> Estimate:
        """Σ h, the number of occurrences: the sum of all cells, whatever collides."""
        value = self.occurrences

        def at(level: float) -> Estimate:
            found = sum_limits(self.noisy, identity, level, items=self.noisy.cells)
            return Estimate(value, found[1], *bounded(value, found, 0.0), level, at)

        return at(0.95)


def item_profile(
    noisy: NoisyProfile, *, method: str = "auto", norm: float = 2, max_count: int | None = None,
    diagnostics: Mapping[str, Any] | None = None,
) -> ItemProfile:
    """Reconstruct the item profile of a hashed sketch; no item has a count above ``max_count``.

    ``"auto"``, ``"smooth"`` and ``"likelihood"`` all stand for the engine on the items themselves. Any
    other method reconstructs the law of the cells and takes its power-series logarithm: less accurate,
    without levels and up to a load of 2.
    """
    if noisy.layout.kind != "hashed":
        raise InputError(f"layout must be hashed for an item profile, got {noisy.layout.kind!r}")
    law = collisions(noisy, max_count=max_count) if METHODS[method].items == "fitted" else None
    if law is not None:
        support, items, method, notes = law.support, law.items, "items", dict(law.diagnostics)
    elif noisy.layout.levels > 1:
        raise InputError(f"method must be 'auto' for a sketch with levels, got {method!r}")
    else:
        fit = estimate_law(noisy, method, norm)
        support, items = decompound(fit, noisy)
        notes = {**fit.diagnostics, "load": float(items.sum()) / noisy.cells}
    notes |= diagnostics or {}
    total = max(0.0, float(noisy.values.astype(float) @ noisy.tally))
    if law is not None and max_count is None and len(law.used) < noisy.layout.levels:
        support, items = _with_giants(support, items, total, noisy, law)
    before, items = items, _calibrated(support, items, total)
    number = float(items.sum())
    if total == 0 or number == 0:  # an empty sketch has all its (no) items at count 1
        support, items, number, before = np.ones(1, dtype=np.int64), np.ones(1), 0.0, np.zeros(1)
    profile = ItemProfile(support, items / items.sum(), method, noisy, notes, max_count, number, law, before, total)
    if law is None:
        return profile
    found, distinct, load = [], profile.distinct, float(notes["load"])
    if load > HIGH_LOAD:
        found.append(Notice("overload", f"about {load:.1f} items share each cell: shares of small counts are "
                            f"uncertain; more cells would tell more"))
    if distinct.marked:
        _, low, high = sensible(distinct)
        found.append(Notice("too-noisy", f"{TOO_NOISY}: the noise leaves the number of items open between {low} and "
                            f"{high}"))
    elif distinct.data_share < MOSTLY_MODEL:
        found.append(Notice("model", f"the number of items is mostly the model's: the cells alone would leave it "
                            f"{1 / math.sqrt(max(distinct.data_share, 1e-12)):.0f} times as uncertain; it is right for "
                            f"profiles that are smooth in the logarithm of the count"))
    if law.diagnostics["uncertified"]:
        found.append(Notice("misfit", "no model fits the cells everywhere: some counts want more items than any gives"))
    return replace(profile, notices=tuple(found))


def _with_giants(
    support: Int64, items: Floats, total: float, noisy: NoisyProfile, law: ItemLaw
) -> tuple[Int64, Floats]:
    """Add the items that stand out in levels too full to be used, where the others do not account for the total.

    Such a cell counts as one item, less what the cells of its level usually hold; spread over all others by calibration
    it would be thousands.
    """
    have = float(support.astype(float) @ items)
    left = total - have
    if left < MISSED * have:
        return support, items
    giants: list[int] = []
    for part in (one.noisy for one in ranges(noisy) if all(one.noisy is not used.noisy for used in law.used)):
        usual = int(part.values[np.searchsorted(np.cumsum(part.tally), part.cells / 2)])
        clear = max(law.top, OUTSTANDING * usual, noisy.noise.reach(SURELY / part.cells), left / FEWER + usual)
        out = part.values > clear
        giants += np.repeat(part.values[out] - usual, part.tally[out]).tolist()
    if not giants or sum(giants) > 2 * left:
        return support, items
    counts, where = np.unique(np.append(support, giants), return_inverse=True)
    return counts, np.bincount(where, weights=np.append(items, np.ones(len(giants)))).astype(float)


def _calibrated(support: Int64, items: Floats, total: float) -> Floats:
    """Return N_t·max(1 + c·t, KEPT) with Σ t·N_t equal to ``total``, or N_t·e^(−c·t) where that does not reach it.

    The second falls on the largest counts too: a giant in a level that few items share stands for many that are not.
    """
    counts = support.astype(float)
    have = float(counts @ items)
    if have <= 0:
        return items
    if total <= KEPT * have:
        return _tilted(counts, items, total)

    def excess(c: float) -> float:
        return float(counts @ (items * np.maximum(1 + c * counts, KEPT))) - total

    step = -excess(0.0) / float(counts**2 @ items)
    far = 1.0
    while excess(far * step) * step < 0:
        far *= 2
    root = brentq(excess, 0.0, far * step, xtol=1e-300, rtol=1e-14) if step else 0.0
    return np.asarray(items * np.maximum(1 + root * counts, KEPT))


def _tilted(counts: Floats, items: Floats, total: float) -> Floats:
    """Return N_t·e^(−c·t), c > 0, with Σ t·N_t equal to ``total``."""
    if total <= 0:
        return np.zeros(items.size)

    def left(log_c: float) -> float:
        return float(counts @ (items * np.exp(-np.minimum(math.exp(log_c) * counts, 700.0)))) - total

    low, high = -math.log(counts[-1]) - 30.0, 7.0
    if left(high) >= 0:
        return items * (total / float(counts @ items))
    c = math.exp(brentq(left, low, high, xtol=1e-12, rtol=1e-14))
    tilted = items * np.exp(-np.minimum(c * counts, 700.0))
    return np.asarray(tilted * (total / float(counts @ tilted)))
