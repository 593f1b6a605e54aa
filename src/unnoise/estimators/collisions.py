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
from ._compound import cell_law
from ._engine import Posterior, Search, explore, posterior
from ._fit import Fit
from ._fourier import FAR, Blocks, FourierChannel, Part, counts_in_blocks, rows_of
from ._ladder import LENGTH, CellLaw, Law, Tail, climb
from ._series import logarithm
from .linear import functional

__all__ = ["ItemLaw", "Range", "collisions", "decompound", "level_shares", "ranges"]


MOST_LOADED = 4.0
"""Levels with a higher load are left out, unless there is no other."""

LEAST_SHARE = 1 / 64
"""Levels with less than this times the share of the fullest one are left out: they add noise only."""

OVERLOAD = 2.0
"""Loads up to this are always answered."""

DENSE, PER_OCTAVE = 64, 12
"""Counts with a block of their own, and blocks to the octave above: 6 % of a count, over which a walk is straight."""

LONGEST = 4096
"""Last row at most; items above it are found one by one."""

EM_STEPS = 20
"""Steps of EM to begin with: towards the cells, not yet rough."""

MOST_STRAYED = 0.02
"""Largest share of cells with totals above the grid from small items alone, for a level to show its large items."""

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
    posterior : the averaged models of the counts up to ``top``
    tail : the counts above, by the power-series logarithm, if there are any
    used : the ranges of cells that were used; ``share`` of the items belongs to them
    load : items per cell in the fullest of them
    """

    support: Int64
    items: Floats
    posterior: Posterior
    top: int
    tail: Tail | None
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


def collisions(noisy: NoisyProfile, *, max_count: int | None = None) -> ItemLaw:
    """Reconstruct the item profile of a hashed sketch; no item has a count above ``max_count``.

    Raises
    ------
    OverloadError
        The cells hold more items than they can tell apart.
    ConvergenceError
        No model converged.
    """
    parts = ranges(noisy)
    used, guess = choose(parts)
    channel, top = _channel(used, max_count)
    total = float(noisy.values @ noisy.tally)
    start = _start(channel, max(total, 1.0), guess)
    level = math.log(max(total, 1.0) / channel.blocks.size)
    search = explore(channel, start, level, _every_count(top))
    if search.best is None:
        raise ConvergenceError(f"a model of the items must converge, got none in {search.fits} fits")
    return _assemble(parts, used, search, posterior(search), top)


def _channel(used: Sequence[Range], max_count: int | None) -> tuple[FourierChannel, int]:
    """Lay out blocks and rows for the ranges used; one block is for counts above the last, unless there are none."""
    noise = used[0].noisy.noise
    largest = max(1, max(int(part.noisy.values[-1]) for part in used))
    last = min(largest, max(LONGEST, noise.reach(1e-4)))
    parts = tuple(
        Part.of(part.noisy.values, part.noisy.tally,
                rows_of(part.noisy.values, part.noisy.tally, noise, min(last, max(1, int(part.noisy.values[-1])))),
                part.share)
        for part in used
    )
    top = last if max_count is None else min(last, max_count)
    blocks = Blocks.covering(counts_in_blocks(1, top, DENSE, PER_OCTAVE))
    if largest > last and (max_count is None or max_count > last):
        blocks = blocks.with_atoms(np.array([FAR], dtype=np.int64))
    return FourierChannel(blocks, parts, noise, collide=True), top


def _start(channel: FourierChannel, total: float, guess: float) -> Floats:
    """Return θ after some steps of EM from N_t ∝ 1/(t(t+1)), with as many occurrences as the cells."""
    blocks = channel.blocks
    near = blocks.first < FAR
    mass = np.where(near, 1 / blocks.first - 1 / blocks.stop, 0.0)
    mass *= total / float(mass @ np.where(near, blocks.centres, 0.0))
    mass[~near] = 1.0
    for _ in range(EM_STEPS):
        mass = np.maximum(mass * channel.pull(channel.at(mass)), 1e-9 * mass.sum() / mass.size)
    return np.log(mass / blocks.widths)


def overload(noisy: NoisyProfile, items: float, load: float) -> OverloadError:
    """Say how many cells would do: at most one item a cell, by the estimate or by the total, whichever is safer."""
    total, variance = functional(noisy, lambda t: np.asarray(t, dtype=float))
    most = max(min(max(items, 1.0) * 1.5, total + 2 * math.sqrt(max(variance, 0))), 1.0)
    cells = 2 ** math.ceil(math.log2(most)) * noisy.layout.levels
    return OverloadError(
        f"cells must hold about one item each to be told apart (up to {OVERLOAD:g}, or 4 with many cells), got about "
        f"{load:.1f} in each of {noisy.cells:,} cells: {cells:,} cells would do, or levels=16 for an unknown number"
    )


def _cell_law(part: Range, per_count: Floats, above: float) -> Law:
    """Return the law of the cells of a range: as fitted up to the last row, as they are beyond.

    So far up the noise moves a cell by next to nothing, and undoing it would only add to it.
    """
    extended = np.concatenate([per_count, np.zeros(per_count.size - 1)])
    head = cell_law(extended, part.share / part.noisy.cells, above)
    cells = Fit(part.noisy.values, part.noisy.fractions, "as they are")
    return CellLaw.of(cells, part.noisy, head, per_count.size - 1), part.share


def _assemble(
    parts: Sequence[Range], used: Sequence[Range], search: Search, found: Posterior, top: int
) -> ItemLaw:
    """Take one step towards the cells at every count, and join the tail above the last row."""
    channel = found.channel
    items = _per_count(found, top)
    far = channel.blocks.first >= FAR
    tail = None
    support, numbers = np.flatnonzero(items > 0).astype(np.int64), items[items > 0]
    if far.any():
        laws = [_cell_law(part, items, float(found.mean[far].sum())) for part in parts]
        near = [law for law, part in zip(laws, parts) if part in used]
        seen = [law for law in laws if law in near or law[0].strayed < MOST_STRAYED]
        tail = climb(near, seen, top, used[0].noisy.noise)
        support, numbers = np.append(support, tail.counts), np.append(numbers, tail.items)
    load = float(numbers.sum()) * max(part.share / part.noisy.cells for part in used)
    notes = {
        "load": load, "levels_used": len(used), "share_used": min(1.0, sum(part.share for part in used)),
        "blocks": channel.blocks.size, "rows": sum(part.tally.size for part in channel.parts),
        "models": [(name, round(weight, 4)) for name, weight in found.weights if weight >= 1e-3],
        "fits": search.fits, "not_converged": search.not_converged, "uncertified": search.uncertified,
        "atoms": sorted(int(count) for count in channel.blocks.atoms if count < FAR),
    }
    return ItemLaw(support, numbers, found, top, tail, tuple(used), load, notes)


def _per_count(found: Posterior, top: int) -> Floats:
    """Return the items at counts 0..top: one step of EM, count by count, from the averaged law.

    Within a block the law follows the line between the middles of its neighbours, in log–log.
    """
    blocks, n = found.channel.blocks, found.channel.blocks.covered
    walked = found.law[:n]
    density = np.log(np.maximum(walked / blocks.widths[:n], 1e-300))
    t = np.arange(1, top + 1)
    law = np.exp(np.interp(np.log(t), np.log(blocks.centres[:n]), density))
    block = np.searchsorted(blocks.stop[:n], t, side="right")
    law *= (walked / np.maximum(np.bincount(block, weights=law, minlength=n), 1e-300))[block]
    near = blocks.atoms < FAR
    np.add.at(law, blocks.atoms[near] - 1, found.law[n:][near])
    every = found.channel.with_blocks(_every_count(top).with_atoms(blocks.atoms[~near]))
    state = every.at(np.append(law, found.law[n:][~near]))
    stepped = state.mass * every.step(state)
    return np.concatenate([[0.0], stepped[:top]])


def _every_count(top: int) -> Blocks:
    """One block for each count 1..top."""
    return Blocks.covering(np.arange(1, top + 2, dtype=np.int64))


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
