"""Open domains: the item profile beneath cells that many items share.

Symbols: m cells, N_t items with count t, N = Σ N_t distinct items, λ = N/m the load, G the law of a cell's total.

Items fall into cells independently, so totals are compound Poisson and, as power series [1]_,

    log G(z) = Σ_t (N_t/m)·(z^t − 1),        N = −m·log G(0),        N_t = m·[z^t] log G(z).

Entries up to T need G[0..T] only (:mod:`._series`, O(T log T)); the error grows like e^(2λ). Therefore the default is
the penalised maximum likelihood of N_t ≥ 0 itself, through collisions and noise at once (:mod:`._compound`,
:mod:`._itemfit`), over all levels together; the plain logarithm (:mod:`._ladder`) is left with counts above the grid,
where collisions are a small correction, and with the fast methods.

Levels. A level that holds a share p of the items in m cells has λ_t = p·N_t/m, and the likelihood multiplies over
the levels: those with a load near 1 speak, the emptier ones are noise, the fuller ones (load > MOST_LOADED) are left
out.

Variances. With N_t Poisson, a first-order unbiased estimate of Σ b_t·N_t has a variance V that follows from the
independent cells; for the items of this data set, N_t fixed, it is V − Σ b_t²·N_t, because its covariance with each
N_t is b_t·N_t. For N and noiseless cells: m(e^λ − 1) − mλ = m(e^λ − λ − 1) [2]_. The same subtraction leaves
exactly the sampling error where only some of the levels are used.

Refusal. If the load is above OVERLOAD and the expected ℓ1 error by octaves of counts, before any smoothing, is above
LARGEST_ERROR, no answer is given: the message names a number of cells that would do.

.. [1] B. Buchmann, R. Grübel, "Decompounding: an estimation problem for Poisson random sums", Annals of Statistics
   31, 2003.
.. [2] K.-Y. Whang, B. T. Vander-Zanden, H. M. Taylor, "A linear-time probabilistic counting algorithm for database
   applications", ACM Transactions on Database Systems 15, 1990.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import Floats, Int64
from ..errors import ConvergenceError, InputError, OverloadError
from ..noisy import NoisyProfile
from ._compound import Grid, Likelihood, Part, cell_law
from ._fit import Fit
from ._itemfit import ItemFit, fit_items
from ._ladder import LENGTH, CellLaw, Law, Tail, climb
from ._series import logarithm
from .linear import functional, linear

__all__ = ["ItemLaw", "Range", "collisions", "decompound", "level_shares", "ranges"]


MOST_LOADED = 4.0
"""Levels with a higher load are left out, unless there is no other."""

LEAST_SHARE = 1 / 64
"""Levels with less than this times the share of the fullest one are left out: they add noise only."""

OVERLOAD = 2.0
"""Loads up to this are always answered."""

LARGEST_ERROR = 0.3
"""Largest expected ℓ1 error, by octaves, at which an overloaded sketch is answered."""

MOST_STRAYED = 0.02
"""Largest share of cells with totals above the grid from small items alone, for a level to show its large items."""

SMOOTHING_BIAS = 0.003
"""Relative error that smoothing may leave in the number of items (measured: 0.001 on Zipf 1.8 at 10⁶ items)."""

PLAIN_LOAD = 2.0
"""Largest load at which the plain power-series logarithm is trusted."""


@dataclass(frozen=True, eq=False)
class Range:
    """A range of cells that holds a share of the items: a level, or the whole sketch."""

    noisy: NoisyProfile
    share: float
    empty: float
    empty_error: float

    @property
    def load(self) -> float:
        """−log of the estimated share of empty cells, or a lower bound where hardly any cell is empty."""
        return -math.log(min(1.0, max(self.empty, 3 * self.empty_error)))

    @property
    def answered(self) -> bool:
        """Whether the share of empty cells is known well enough to start from."""
        return self.empty > 5 * self.empty_error


@dataclass(frozen=True, eq=False)
class ItemLaw:
    """The item profile, sparse, and what its intervals are made from.

    support, items : counts ≥ 1 and the number of items at each, ≥ 0
    fit : the likelihood fit of the head
    tail : the counts above the dense head, by the power-series logarithm
    used : the ranges of cells that were used; ``share`` of the items belongs to them
    load : items per cell in the fullest of them
    """

    support: Int64
    items: Floats
    fit: ItemFit
    tail: Tail
    used: tuple[Range, ...]
    load: float
    diagnostics: dict[str, Any]

    @property
    def share(self) -> float:
        """Share of all items that belongs to the cells used."""
        return min(1.0, sum(part.share for part in self.used))


def level_shares(levels: int) -> Floats:
    """Return the probability of each level: 1/2, 1/4, …, the last as large as the one before.

    >>> level_shares(4)
    array([0.5  , 0.25 , 0.125, 0.125])
    >>> level_shares(1)
    array([1.])
    """
    shares = 0.5 ** np.arange(1, levels + 1)
    shares[-1] *= 2
    return np.asarray(shares, dtype=np.float64)


def ranges(noisy: NoisyProfile) -> tuple[Range, ...]:
    """Split a noisy profile into its levels, each with its share of the items and of empty cells."""
    levels = noisy.layout.levels
    if levels > 1 and len(noisy.parts) != levels:
        raise InputError(f"parts must hold one noisy profile per level, got {len(noisy.parts)} for {levels} levels")
    return tuple(
        _range(part, float(share)) for part, share in zip(noisy.parts or (noisy,), level_shares(levels))
    )


def _range(noisy: NoisyProfile, share: float) -> Range:
    empty, variance = functional(noisy, lambda t: np.asarray(t == 0, dtype=float))
    floor = noisy.noise.variance / noisy.cells
    error = math.sqrt(max(variance, floor * 0.01, 1.0)) / noisy.cells
    return Range(noisy, share, empty / noisy.cells, error)


def choose(parts: Sequence[Range]) -> tuple[list[Range], float]:
    """Return the ranges to use, and a first guess of the number of items."""
    good = [part for part in parts if part.answered and part.load <= 1.5]
    good = good or [part for part in parts if part.answered][-1:]
    if not good:
        lightest = min(parts, key=lambda part: part.share)
        return [lightest], lightest.load * lightest.noisy.cells / lightest.share
    weight = sum(part.share**2 for part in good)
    guess = sum(part.share * part.load * part.noisy.cells for part in good) / weight
    light = [part for part in parts if guess * part.share / part.noisy.cells <= MOST_LOADED]
    light = light or [min(parts, key=lambda part: part.share)]
    most = max(part.share for part in light)
    return [part for part in light if part.share >= LEAST_SHARE * most], guess


def collisions(noisy: NoisyProfile) -> ItemLaw:
    """Reconstruct the item profile of a hashed sketch by penalised maximum likelihood.

    Raises
    ------
    OverloadError
        The cells hold more items than they can tell apart.
    ConvergenceError
        The iteration did not settle.
    """
    parts = ranges(noisy)
    used, guess = choose(parts)
    grid = Grid.make(noisy.noise, max(int(part.noisy.values[-1]) for part in used))
    likelihood = Likelihood(grid, tuple(Part.of(part.noisy, part.share, grid) for part in used),
                            tuple(part.noisy for part in used))
    loads = np.array([guess * part.share / part.noisy.cells for part in used])
    pilot = int(np.argmin(np.abs(np.log(np.maximum(loads, 1e-12)))))
    fit = fit_items(likelihood, float(noisy.noise.epsilon), guess=guess, pilot=pilot)
    expected = fit.expected_error()
    lightest = min(used, key=lambda part: part.share)
    load = float(fit.items.sum()) * lightest.share / lightest.noisy.cells
    if load > OVERLOAD and (expected > LARGEST_ERROR or not fit.converged):
        raise overload(noisy, float(fit.items.sum()), load)
    if not fit.converged:
        raise ConvergenceError(
            f"the item profile must settle to {1e-4:g} of the items, got {fit.diagnostics['last_change']:.2g} "
            f"after {fit.diagnostics['iterations']} steps"
        )
    return _assemble(parts, used, likelihood, fit, expected)


def overload(noisy: NoisyProfile, items: float, load: float) -> OverloadError:
    """Say how many cells would do: at most one item a cell, by the estimate or by the total, whichever is safer."""
    total, variance = functional(noisy, lambda t: np.asarray(t, dtype=float))
    most = max(min(max(items, 1.0) * 1.5, total + 2 * math.sqrt(max(variance, 0))), 1.0)
    cells = 2 ** math.ceil(math.log2(most)) * noisy.layout.levels
    return OverloadError(
        f"cells must hold about one item each to be told apart (up to {OVERLOAD:g}, or 4 with many cells), got about "
        f"{load:.1f} in each of {noisy.cells:,} cells: {cells:,} cells would do, or levels=16 for an unknown number"
    )


def _cell_law(part: Range, per_count: Floats, above: float, trusted: int) -> Law:
    """Return the law of the cells of a range: as fitted up to ``trusted``, unbiased beyond."""
    extended = np.concatenate([per_count, np.zeros(per_count.size - 1)])
    head = cell_law(extended, part.share / part.noisy.cells, above)
    return CellLaw.of(linear(part.noisy), part.noisy, head, trusted), part.share


def _assemble(
    parts: Sequence[Range], used: Sequence[Range], likelihood: Likelihood, fit: ItemFit, expected: float
) -> ItemLaw:
    """Join the fitted head and blocks with the tail above them."""
    grid = fit.grid
    per_count = grid.spread(fit.items)
    share = min(1.0, sum(part.share for part in used))
    fullest = float(fit.items.sum()) * max(part.share / part.noisy.cells for part in used)
    rough = _rough_octaves(likelihood, fit)
    trusted = grid.dense if rough and fullest <= PLAIN_LOAD else grid.top
    near = [_cell_law(part, per_count, float(fit.items[-1]), trusted) for part in used]
    far = [_cell_law(part, per_count, float(fit.items[-1]), trusted) for part in parts if part not in used]
    far = [(law, part) for law, part in far if law.strayed < MOST_STRAYED]
    tail = climb(near, near + far, grid.dense, used[0].noisy.noise)
    head, far_items = _join(grid.spread(_faithful(fit)), tail, grid, rough if trusted == grid.dense else [])
    support = np.concatenate([np.flatnonzero(head), far_items[0]]).astype(np.int64)
    items = np.concatenate([head[head > 0], far_items[1]])
    load = float(items.sum()) * max(part.share / part.noisy.cells for part in used)
    notes = {
        "load": load, "levels_used": len(used), "share_used": share, "expected_error": expected,
        "grid": grid.size, "rough_octaves": [int(start) for start, _ in rough],
        **{key: value for key, value in fit.diagnostics.items() if key != "penalty"},
        "smoothing": vars(fit.diagnostics["penalty"]),
    }
    return ItemLaw(support, items, fit, tail, tuple(used), load, notes)


def _faithful(fit: ItemFit) -> Floats:
    """Move the fitted numbers at or above 8, 16, 32, … towards the unbiased ones, and scale each octave to fit.

    A smooth profile does not follow the items that happen to be there: its error at ``at_least(k)`` is about that of a
    Poisson number, N_k, while the unbiased estimate has the variance V − N_k. The two are weighted accordingly. For the
    number of all items the smooth fit is feared to be off by SMOOTHING_BIAS.
    """
    grid, items = fit.grid, fit.items
    first = np.searchsorted(grid.starts[:-1], 2 ** np.arange(3, int(np.log2(max(grid.ends[-1] // 2, 8))) + 1))
    first = first[first < grid.size - 1]
    if first.size == 0:
        return items
    rows = (np.arange(grid.size)[None, :] >= first[:, None]).astype(float)
    fitted = rows @ items
    extra = np.einsum("ij,jk,ik->i", rows, fit.covariance, rows) - fitted
    curve = fitted + fitted / (fitted + np.maximum(extra, 0) + 1) * (rows @ fit.centre - fitted)
    fear = (SMOOTHING_BIAS * float(items.sum())) ** 2
    trust = fear / (fear + max(float(fit.covariance.sum() - items.sum()), 0.0) + 1)
    whole = max(float(items.sum() + trust * (fit.centre.sum() - items.sum())), 0.0)
    curve = np.concatenate([[whole], np.minimum.accumulate(curve.clip(0, whole)), [0.0]])
    wanted, had = -np.diff(curve), np.add.reduceat(items, np.concatenate([[0], first]))
    factor = np.where(had > 1e-6, wanted / np.maximum(had, 1e-6), 1.0)
    return np.asarray(items * np.repeat(factor, np.diff(np.concatenate([[0], first, [grid.size]]))))


def _join(
    per_count: Floats, tail: Tail, grid: Grid, rough: list[tuple[int, int]]
) -> tuple[Floats, tuple[Int64, Floats]]:
    """Take the tail's counts in the octaves where the blocks do not fit, and above the grid."""
    head = np.where(per_count > 1e-6, per_count, 0.0)
    inside = tail.counts <= grid.top
    for start, stop in rough:
        here = (tail.counts >= start) & (tail.counts < stop)
        head[start:stop] = 0.0
        head[tail.counts[here]] = tail.items[here]
    return head, (tail.counts[~inside], tail.items[~inside])


def _rough_octaves(likelihood: Likelihood, fit: ItemFit) -> list[tuple[int, int]]:
    """Return the octaves above the dense head where noisy cells are not spread as the blocks say (Pearson's X²)."""
    grid = fit.grid
    last = int(grid.ends[-1])
    found = []
    start = grid.dense + 1
    while start < last:
        stop = min(2 * start, last + 1)
        if _misfit(likelihood, fit, start, stop) > 4:
            found.append((start, min(2 * start, grid.top + 1)))
        start *= 2
    return found


def _misfit(likelihood: Likelihood, fit: ItemFit, start: int, stop: int) -> float:
    """Standardised X² over windows of a quarter block for noisy counts start..stop−1."""
    edges = np.arange(start, stop, max(1, start // 100))
    statistic = freedom = spread = 0.0
    for part, noisy in zip(likelihood.parts, likelihood.noisy):
        seen, expected = likelihood.windows(fit.items, part, noisy, edges, stop)
        keep = expected > 0.05
        statistic += float(((seen - expected)[keep] ** 2 / expected[keep]).sum())
        freedom += float(keep.sum())
        spread += float((2 + 1 / expected[keep]).sum())
    return (statistic - freedom) / math.sqrt(spread) if spread > 0 else 0.0


def decompound(fit: Fit, noisy: NoisyProfile) -> tuple[Int64, Floats]:
    """Return counts and item numbers from a reconstructed law of the cells by the plain logarithm (no levels).

    The number of items at or above each count is made non-increasing; total load up to PLAIN_LOAD.
    """
    empty = float(fit.mass[0]) if fit.support[0] == 0 else 0.0
    if empty < math.exp(-PLAIN_LOAD):
        items = -math.log(max(empty, 1e-9)) * noisy.cells
        raise overload(noisy, items, items / noisy.cells)
    near = np.zeros(min(LENGTH, int(fit.support[-1])) + 1)
    here = fit.support < near.size
    near[fit.support[here]] = fit.mass[here]
    items_near = np.maximum(logarithm(near), 0) * noisy.cells
    above = max(-math.log(empty) * noisy.cells - items_near.sum(), 0.0)
    head = cell_law(np.concatenate([items_near, np.zeros(near.size - 1)]), 1 / noisy.cells, above)
    law = (CellLaw.of(fit, noisy, head, 0), 1.0)
    tail = climb([law], [law], 0, noisy.noise)
    return tail.counts, tail.items
