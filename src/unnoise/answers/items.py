"""The profile of the items beneath a hashed sketch, with every answer of a :class:`~unnoise.answers.profile.Profile`.

The domain of a hashed sketch has no end, so shares are shares of the N items that occur: ``counts[0] = 0``,
``counts[t]`` is the number of items seen exactly t times and ``fractions[t] = counts[t]/N``.
``cell_profile`` is the law of the cells beneath, where several items may share a cell.

Where answers come from (:mod:`unnoise.estimators.collisions` has the mathematics):

* numbers of items up to the dense end of the grid: the unpenalised one-step estimate θ̂ with covariance J⁻¹ from
  the likelihood of all levels used, less Σ b_t²·N_t because the items of this data set are fixed (delta method);
* numbers of items above: the plain power-series logarithm and its own delta method;
* ``total``: the sum of all cells, exactly unbiased whatever collides. The profile is calibrated to it, so that
  ``total`` is Σ t·counts[t]: N_t becomes N_t·(1 + c·t), the least change in units of N_t's own Poisson variance that
  reaches that sum [1]_; it falls on the few large items, whose number is what the sum knows better;
* Σ g(h): the fitted blocks for counts up to the grid's top, and sampling plus noise for the items above it.

Limits come from Feldman and Cousins' construction for a number that cannot be negative. Where only a share P of
the items was seen, the variance is never below that of a few unseen items: 3.6·(1/P)(1/P − 1).

.. [1] J.-C. Deville, C.-E. Särndal, "Calibration estimators in survey sampling", JASA 87 (1992) 376.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtri

from ..arrays import Floats, Int64
from ..errors import InputError
from ..estimators.collisions import ItemLaw, collisions, decompound
from ..estimators.linear import Function, functional
from ..estimators.methods import METHODS, estimate_law
from ..noisy import NoisyProfile
from .bands import NO_END, Limits, bounded_normal
from .estimate import Estimate
from .profile import Answers, Profile
from .sums import sum_limits, xlogx

__all__ = ["ItemProfile", "item_profile"]


WITHOUT_END = 1e300
"""Largest number of items that a limit could be, for limits that only know they are ≥ 0."""

UNSEEN = 3.6
"""(1.9)²: a limit of 1.96·1.9 ≈ 3.7 items seen covers what 95 % of Poisson variables of mean 3.7 do."""

LEAST = 0.5
"""Fewer items than this are none."""

SURER = 0.05
"""Share of the error budget that the limit by all occurrences may spend."""

KEPT = 0.5
"""Share of its items that calibration leaves to every count."""

HIGH_LOAD = 2.0
"""Load above which the diagnostics carry a warning."""


@dataclass(frozen=True, eq=False, repr=False)
class ItemProfile(Profile):
    """How many items occur exactly t times, beneath the cells of a hashed sketch.

    number : estimated number of distinct items, which ``mass`` is a share of
    """

    number: float = 0.0
    given_law: ItemLaw | None = field(default=None, repr=False)

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
        """The likelihood fit that the intervals are made from."""
        return self.given_law or collisions(self.noisy)

    # ---------------------------------------------------------------- numbers of items

    def _answers(self, lo: Int64, hi: Int64, level: float, unit: float) -> Answers:
        """Bands with their values; as shares of the items they stay between 0 and 1."""
        if unit == 1:
            return super()._answers(lo, hi, level, unit)
        if self.number == 0:
            nothing = np.zeros(lo.size)
            return Answers(nothing, nothing + 0.5, nothing, np.where(hi < 1, 0.0, nothing + 1))
        value, stderr, low, high = super()._answers(lo, hi, level, unit)
        return Answers(value, stderr, low.clip(max=1), high.clip(max=1))

    @cached_property
    def _head(self) -> tuple[Floats, Floats, Floats]:
        """Return at_least(k) for k = 1..dense + 1: unbiased estimates, fitted numbers, Poisson covariance."""
        fit = self.law.fit
        rows = (fit.grid.starts[None, :] >= np.arange(1, fit.grid.dense + 2)[:, None]).astype(float)
        rows[:, -1] = 1.0
        return rows @ fit.centre, rows @ fit.items, rows @ fit.covariance @ rows.T

    def _bands(self, lo: Int64, hi: Int64, level: float) -> Limits:
        lo, hi = np.maximum(lo, 1), np.asarray(hi)
        dense = self.law.fit.grid.dense
        estimate, variance, unseen = np.zeros(lo.size), np.zeros(lo.size), np.zeros(lo.size)
        inside = (lo <= dense) & ((hi <= dense) | (hi >= NO_END))
        for where, answer in (
            (inside, self._head_bands), ((lo <= dense) & ~inside, self._crossing_bands),
            (lo > dense, self._tail_bands),
        ):
            if where.any():
                estimate[where], variance[where], unseen[where] = answer(lo[where], hi[where])
        stderr = np.sqrt(variance.clip(0) + unseen)
        low, high = bounded_normal(estimate, stderr, WITHOUT_END, level)
        high = np.minimum(high, self._most(level) / lo)
        low = np.minimum(low, high)
        empty = hi < lo
        return Limits(*(np.where(empty, 0.0, column) for column in (estimate, stderr, low, high)))

    def _most(self, level: float) -> float:
        """Upper limit of all occurrences, surer than ``level``: no more than a k-th as many items occur k times."""
        if level not in self._known_most:
            surer = 1 - (1 - level) * SURER
            limit = sum_limits(self.noisy, _identity, surer, items=self.cells)[3]
            self._known_most[level] = max(0.0, float(limit))
        return self._known_most[level]

    @cached_property
    def _known_most(self) -> dict[float, float]:
        """What :meth:`_most` has found, by level: a quantile asks for it dozens of times."""
        return {}

    def _head_bands(self, lo: Int64, hi: Int64) -> tuple[Floats, Floats, Floats]:
        """Bands within the dense head, or open above."""
        centre, fitted, covariance = self._head
        first = lo - 1
        closed = hi < NO_END
        last = np.where(closed, np.minimum(hi, lo.max(initial=1) + centre.size), 0)
        last = np.minimum(last, centre.size - 1)
        estimate = centre[first] - np.where(closed, centre[last], 0.0)
        number = fitted[first] - np.where(closed, fitted[last], 0.0)
        both = covariance[last, last] - 2 * covariance[first, last]
        variance = covariance[first, first] + np.where(closed, both, 0.0)
        return estimate, variance - number, np.full(lo.size, self._unseen(self.law.share))

    def _crossing_bands(self, lo: Int64, hi: Int64) -> tuple[Floats, Floats, Floats]:
        """Bands from the head into the tail: a difference, whose two errors are taken as independent."""
        upper = self._head_bands(lo, np.full_like(lo, NO_END))
        lower = self._tail_bands(hi + 1, np.full_like(lo, NO_END))
        return upper[0] - lower[0], upper[1] + lower[1], upper[2] + lower[2]

    def _tail_bands(self, lo: Int64, hi: Int64) -> tuple[Floats, Floats, Floats]:
        tail = self.law.tail
        estimate, variance, share = tail.at_least(lo)
        unseen = self._unseen(share)
        closed = hi < NO_END
        if closed.any():
            minus, more, _ = tail.at_least(np.where(closed, hi + 1, NO_END - 1))
            estimate = estimate - np.where(closed, minus, 0.0)
            variance = variance + np.where(closed, more, 0.0)
        single = hi == lo
        if single.any():
            entry, spread, share = tail.entries(lo)
            estimate = np.where(single, entry, estimate)
            variance = np.where(single, spread, variance)
            unseen = np.where(single, self._unseen(share) + tail.per_item, unseen)
        return estimate, variance, unseen

    @staticmethod
    def _unseen(share: Any) -> Any:
        """Variance of a few items that none of the cells used may have seen."""
        return UNSEEN * (1 / share) * (1 / share - 1)

    # ---------------------------------------------------------------- sums over items

    def _sum(self, g: Function, level: float) -> tuple[float, float, float, float]:
        estimate, variance = self._sum_parts(g)
        stderr = float(np.sqrt(max(variance, 0.0)))
        margin = float(ndtri((1 + level) / 2)) * stderr
        return estimate, stderr, estimate - margin, estimate + margin

    def _sum_parts(self, g: Function) -> tuple[float, float]:
        """Estimate Σ g(h) and its variance: fitted blocks up to the last row, the items above it one by one."""
        law = self.law
        fit, last = law.fit, int(law.fit.grid.ends[-1])
        items = self.mass * self.number
        edge = float(np.asarray(g(np.array([last])), dtype=float).reshape(-1)[0])
        values = np.broadcast_to(np.asarray(g(self.support), dtype=float), self.support.shape)
        near = self.support <= last
        # Counts above the last row cannot be told apart by the fit: it gives them g(last), the tail the rest.
        mean, spread = self._block_means(g, self.support[near], items[near], values[near])
        mean[fit.grid.starts > last], spread[fit.grid.starts > last] = edge, 0.0
        variance = float(mean @ fit.covariance @ mean - fit.items @ mean**2)
        variance += float(fit.items @ spread) / law.share
        far, number = values[~near], items[~near]
        step = np.asarray(g(self.support[~near] + 1), dtype=float) - far
        scale = 1 / law.tail.far_share
        blur = self.noisy.noise.variance + self._shared_variance
        variance += float(number @ ((scale - 1) * far**2 + step**2 * blur * scale))
        return float(mean @ fit.centre + number @ (far - edge)), variance

    @cached_property
    def _shared_variance(self) -> float:
        """Variance of what smaller items add to the cell of a large one: Σ λ_t·t² up to the top of the grid."""
        fit = self.law.fit
        square = float(fit.grid.spread(fit.items) @ np.arange(fit.grid.top + 1.0) ** 2)
        return square * max(part.share / part.noisy.cells for part in self.law.used)

    def _block_means(self, g: Function, counts: Int64, items: Floats, values: Floats) -> tuple[Floats, Floats]:
        """Return mean and variance of g over the items of each block."""
        grid = self.law.fit.grid
        block = np.searchsorted(grid.starts, counts, side="right") - 1
        size = grid.size
        weight = np.bincount(block, weights=items, minlength=size)
        middle = np.append((grid.starts[:-1] + grid.starts[1:] - 1) // 2, 0)
        plain = np.broadcast_to(np.asarray(g(middle), dtype=float), middle.shape)
        some = weight > 0
        safe = np.where(some, weight, 1.0)
        mean = np.where(some, np.bincount(block, weights=items * values, minlength=size) / safe, plain)
        square = np.bincount(block, weights=items * values**2, minlength=size) / safe
        spread = np.where(some, np.maximum(square - mean**2, 0), 0.0)
        return mean, spread

    @property
    def total(self) -> Estimate:
        """Σ h, the number of occurrences, with the interval of the sum over all cells."""
        return self._total(0.95)

    def _total(self, level: float) -> Estimate:
        _, stderr, low, high = sum_limits(self.noisy, _identity, level, items=self.cells)
        value = self._sum_value(_identity)
        return Estimate(value, stderr, min(max(low, 0.0), value), max(high, value), level, self._total)

    def _entropy(self, level: float) -> tuple[float, float, float, float]:
        most = float(np.log(max(self.distinct.at(level).high, 1.0)))
        total, weighted = self._sum_value(lambda t: t), self._sum_value(xlogx)
        if total <= 0:
            return 0.0, most / 2, 0.0, most

        def change(t: NDArray[Any]) -> Floats:
            return np.asarray(t * (1 / total + weighted / total**2) - xlogx(t) / total)

        moved, variance = self._sum_parts(change)  # of the profile itself it is 1
        value, stderr = float(np.log(total) - weighted / total + moved - 1), float(np.sqrt(max(variance, 0.0)))
        margin = float(ndtri((1 + level) / 2)) * stderr
        return value, stderr, max(value - margin, 0.0), min(value + margin, most)

    # ---------------------------------------------------------------- shares of the items

    def _quantile_limits(self, q: float, level: float) -> tuple[float, float]:
        """Invert the band of at_least(t + 1), searched by halving: it falls with t."""
        if self.number <= 0:
            return 0.0, 0.0
        last = int(self.noisy.values[-1]) + 1
        return float(self._first(q, level, 2, last)), float(self._first(q, level, 3, last))

    def _first(self, q: float, level: float, column: int, last: int) -> int:
        """Return the first t at which 1 − limit/N reaches q, ``column`` 2 for the lower limit and 3 for the upper."""
        low, high = 0, max(last, 1)
        while high - low > 1:
            middle = (low + high) // 2
            limit = self._bands(np.array([middle + 1]), np.array([NO_END]), level)[column][0]
            if 1 - limit / self.number >= q - 1e-12:
                high = middle
            else:
                low = middle
        return high


def item_profile(
    noisy: NoisyProfile, *, method: str = "auto", norm: float = 2, max_count: int | None = None,
    diagnostics: Mapping[str, Any] | None = None,
) -> ItemProfile:
    """Reconstruct the item profile of a hashed sketch.

    ``"auto"``, ``"smooth"`` and ``"likelihood"`` all stand for the penalised likelihood of the items themselves. Any
    other method reconstructs the law of the cells and takes its power-series logarithm: faster, less accurate,
    without levels and up to a load of 2.
    """
    if noisy.layout.kind != "hashed":
        raise InputError(f"layout must be hashed for an item profile, got {noisy.layout.kind!r}")
    if max_count is not None:
        raise InputError(f"max_count must be None for a hashed sketch, whose cells add up items, got {max_count}")
    if METHODS[method].items == "fitted":
        law = collisions(noisy)
        notes = {**law.diagnostics, "intervals": "delta method on the likelihood of the items"}
        return _wrap(law.support, law.items, "items", noisy, {**notes, **(diagnostics or {})}, law)
    if noisy.layout.levels > 1:
        raise InputError(f"method must be 'auto' for a sketch with levels, got {method!r}")
    fit = estimate_law(noisy, method, norm)
    support, items = decompound(fit, noisy)
    notes = {**fit.diagnostics, "load": float(items.sum()) / noisy.cells,
             "intervals": "delta method on the likelihood of the items"}
    return _wrap(support, items, method, noisy, {**notes, **(diagnostics or {})}, None)


def _identity(t: Int64) -> Floats:
    return np.asarray(t, dtype=float)


def _calibrated(support: Int64, items: Floats, total: float) -> Floats:
    """Return N_t·max(1 + c·t, KEPT) with Σ t·N_t equal to ``total``; the numbers as they are where that cannot be."""
    counts = support.astype(float)
    if items.sum() < LEAST or total <= KEPT * float(counts @ items):
        return items

    def excess(c: float) -> float:
        return float(counts @ (items * np.maximum(1 + c * counts, KEPT))) - total

    step = -excess(0.0) / float(counts**2 @ items)
    far = 1.0
    while excess(far * step) * step < 0:
        far *= 2
    root = brentq(excess, 0.0, far * step, xtol=1e-300, rtol=1e-14) if step else 0.0
    return np.asarray(items * np.maximum(1 + root * counts, KEPT))


def _wrap(
    support: Int64, items: Floats, method: str, noisy: NoisyProfile, notes: dict[str, Any], law: ItemLaw | None
) -> ItemProfile:
    """Turn item numbers into shares; an empty sketch has all its (no) items at count 1."""
    items = _calibrated(support, items, functional(noisy, _identity)[0])
    number = float(items.sum())
    if number < LEAST:
        support, items, number = np.ones(1, dtype=np.int64), np.ones(1), 0.0
    if notes["load"] > HIGH_LOAD:
        notes["warning"] = (
            f"about {notes['load']:.1f} items share each cell: shares of small counts are uncertain; "
            f"more cells would tell more"
        )
    return ItemProfile(support, items / items.sum(), method, noisy, notes, None, number, law)
