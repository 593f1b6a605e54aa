"""Open domains: the item profile beneath cells that many items share.

Symbols: m cells, N_t items with count t, N = Σ N_t distinct items, λ = N/m the load, G the law of a cell's total.

Items fall into cells independently, so totals are compound Poisson and, as power series [1]_,

    log G(z) = Σ_t (N_t/m)·(z^t − 1),        N = −m·log G(0),        N_t = m·[z^t] log G(z).

Entries up to T need G[0..T] only (:mod:`._ladder`, O(T log T)); the error grows like e^(2λ). Therefore the default asks
the engine for the items themselves, through collisions and noise at once (:mod:`unnoise.engine.fourier`), over all
levels together; the plain logarithm is left with counts above the last row, where collisions are a
small correction, and with the plain methods.

Blocks. Single counts at first, then 12 to the octave, of all counts or of the multiples of a number where the cells
show one; within wide blocks counts that stand out (:func:`._ladder.spikes`) have masses of their own.

Levels. A level that holds a share p of the items in m cells has λ_t = p·N_t/m, and the likelihood multiplies over
the levels: those with a load near 1 speak, the emptier ones are noise, the fuller ones (load > MOST_LOADED) are left
out.

Refusal. Where nearly all cells lie above USUAL, sums of many items each, no answer is given: the message names a
number of cells that would do. Everything else is answered, with its error.

.. [1] B. Buchmann, R. Grübel, "Decompounding: an estimation problem for Poisson random sums", Annals of Statistics
   31, 2003.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..arrays import Floats, Int64
from ..engine.channel import (
    FAR,
    FARTHEST,
    SEVERAL,
    USUAL,
    Blocks,
    begun,
    counts_in_blocks,
    likely_strides,
    one_thread,
    resolved,
)
from ..engine.fourier import FourierChannel, Part, lattice, on_lattice, rows_of, told_apart
from ..engine.posterior import Posterior, posterior
from ..engine.search import Search, find_models
from ..errors import ConvergenceError, InputError, OverloadError
from ..noisy import NoisyProfile, combine
from ._ladder import LENGTH, CellLaw, Rung, Tail, cell_law, climb, logarithm, spikes
from .methods import Fit

__all__ = ["ItemLaw", "Range", "collisions", "decompound", "level_shares", "ranges"]


MOST_LOADED = 4.0
"""Levels with a higher load are left out, unless there is no other."""

LEAST_SHARE = 1 / 64
"""Levels with less than this times the share of the fullest one are left out: they add noise only."""

HIDDEN = 0.95
"""Share of the cells above USUAL at which an overloaded sketch is refused: that few are empty, or nearly."""

DENSE, PER_OCTAVE = 64, 12
"""Counts with a block of their own, and blocks to the octave above: 6 % of a count, over which a walk is straight."""

CERTIFIED = 24
"""Counts to the octave at which a mode is certified, beyond twice DENSE."""

RARE = 100
"""Rows end at USUAL, at FARTHEST where more than one cell of RARE lies above it; items above are found one by one."""

MOST_SPIKES = 64
"""Atoms to begin with, within wide blocks: counts that stand out; certificates may ask for more."""

START_LOAD = 8.0
"""Items per cell at most to begin with: from a load that no cell can show, no step leads back."""

MOST_STRAYED = 0.02
"""Largest share of cells with totals above the grid from small items alone, for a level to show its large items."""

ENTRIES = 1 << 14
"""Counts that have entries of their own where noise of 1/ε > 3,000 leaves a longer profile; as many more are shared."""

NONE = np.zeros(0, dtype=np.int64)

MOST_CELLS = 1 << 30
"""Never name more cells than this."""

PLAIN_LOAD = 2.0
"""Largest load at which the plain power-series logarithm is trusted."""


@dataclass(frozen=True, eq=False)
class Range:
    """A range of cells that holds a share of the items: a level, or the whole sketch."""

    noisy: NoisyProfile
    share: float

    @cached_property
    def load(self) -> float:
        """Least number of items per cell: −log of the largest share of cells that may be empty (Kolmogorov's distance).

        Items only ever raise a cell, so F(noisy cells) ≥ P(empty)·F(noise) everywhere. Items that the noise hides are
        not seen, so the load may be several times this.
        """
        unit = lattice(self.noisy.noise)
        noise = on_lattice(self.noisy.noise, unit)
        reach = noise.reach(1e-3)
        law = noise.pmf(np.arange(-reach, reach + 1))
        below = np.cumsum(law) + (1 - law.sum()) / 2
        running = np.concatenate([[0], np.cumsum(self.noisy.tally)]) / self.noisy.cells
        ends = unit * np.arange(-reach, reach + 1) + unit // 2
        seen = running[np.searchsorted(self.noisy.values, ends, side="right")]
        slack = 1 / math.sqrt(self.noisy.cells)
        return -math.log(min(1.0, max(float((1 + seen - below).min()), slack)))


@dataclass(frozen=True, eq=False)
class ItemLaw:
    """The item profile, sparse, and what its intervals are made from.

    support, items : counts ≥ 1 and the number of items at each, ≥ 0
    posterior : the averaged models of the counts up to ``top``
    tail : the counts above, by the power-series logarithm, if there are any
    used, share : the ranges of cells that were used, and the share of all items that belongs to them
    load : items per cell in the fullest of them
    """

    support: Int64
    items: Floats
    posterior: Posterior
    top: int
    tail: Tail | None
    used: tuple[Range, ...]
    share: float
    load: float
    diagnostics: dict[str, Any]


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
    shares = level_shares(levels)
    return tuple(Range(part, float(share)) for part, share in zip(noisy.parts or (noisy,), shares))


def choose(parts: Sequence[Range]) -> list[Range]:
    """Return the ranges to use: those neither overloaded nor next to empty.

    The number of items is guessed from the levels whose load is near 1, where cells tell it best.
    """
    if len(parts) == 1:
        return list(parts)
    middle = min(parts, key=lambda part: abs(math.log(max(part.load, 1e-9))))
    guess = middle.load * middle.noisy.cells / middle.share
    light = [part for part in parts if guess * part.share / part.noisy.cells <= MOST_LOADED]
    light = light or [min(parts, key=lambda part: part.share)]
    most = max(part.share for part in light)
    return [part for part in light if part.share >= LEAST_SHARE * most]


@one_thread
def collisions(noisy: NoisyProfile, *, max_count: int | None = None) -> ItemLaw:
    """Reconstruct the item profile of a hashed sketch; no item has a count above ``max_count``.

    Raises OverloadError where the cells hold more items than they can tell apart, ConvergenceError without any model.
    """
    parts = ranges(noisy)
    used = choose(parts)
    usual = max(USUAL, noisy.noise.reach(1e-4))
    if min(part.noisy.tally[part.noisy.values > usual].sum() / part.noisy.cells for part in used) > HIDDEN:
        raise overload(noisy, used)
    values, tally = combine([(part.noisy.values, part.noisy.tally) for part in used])
    strides = (*likely_strides(values, tally, noisy.noise), 1)
    channels = [channel for stride in strides for channel in _channels(used, max_count, stride)]
    channel = channels[-1]
    top, last = int(channel.blocks.stop[channel.blocks.covered - 1]) - 1, channel.law.last
    near = sum(float(np.minimum(part.noisy.values, last) @ part.noisy.tally) / part.share for part in used) / len(used)
    near = max(near, 1.0)
    step = resolved(noisy.noise)  # modes are certified at CERTIFIED counts to the octave, and more where rows are finer
    ends = np.unique(np.concatenate([part.ends // step * step for part in channel.parts]))
    ends = ends[(ends > 0) & (ends <= top)]
    counts = told_apart(np.append(counts_in_blocks(1, top, 2 * DENSE, CERTIFIED)[:-1], ends), noisy.noise)
    search = find_models(channels, [_start(each, near) for each in channels], near, counts, np.arange(1, top + 1))
    if search.best is None:
        raise ConvergenceError(f"a model of the items must converge, got none in {search.fits} fits")
    return _assemble(parts, used, search, posterior(search, lambda each: _start(each, near)), top)


def _channels(used: Sequence[Range], max_count: int | None, stride: int) -> list[FourierChannel]:
    """Lay out blocks and rows for the ranges used; one block is for counts above the last, unless there are none.

    Single counts that stand out have masses of their own. Three in a row may be the top of a hill, whose sides do not
    stand out: then there are two ways to lay the blocks out, first with those about the hill cut into pieces.
    """
    noise = used[0].noisy.noise
    largest = max(1, max(int(part.noisy.values[-1]) for part in used))
    few = max(_from_above(part.noisy, SEVERAL) for part in used)
    reached = max(few, noise.reach(1e-3 / max(part.noisy.cells for part in used)))
    most = min(max(_from_above(part.noisy, part.noisy.cells // RARE) for part in used), FARTHEST)
    last = max(1, min(largest, reached, max(USUAL, most, noise.reach(1e-4))))
    parts: list[Part] = []
    for part in used:
        values, tally = part.noisy.values, part.noisy.tally
        ends = rows_of(values, tally, noise, min(last, max(1, int(values[-1]))))
        parts.append(Part.of(values, tally, ends, part.share))
    top = last if max_count is None else min(last, max_count)
    blocks = Blocks.covering(counts_in_blocks(1, max(1, top // stride), DENSE, PER_OCTAVE), stride)
    if largest > last and (max_count is None or max_count > last):
        blocks = blocks.with_atoms(np.array([FAR], dtype=np.int64))
    clear = spikes([(part.noisy, part.share) for part in used], top, stride) if lattice(noise) == 1 else NONE
    clear = clear[clear > DENSE * stride][:MOST_SPIKES]
    peaks = clear[np.isin(clear - stride, clear) & np.isin(clear + stride, clear)]
    hill = np.isin(clear, np.concatenate([peaks - stride, peaks, peaks + stride]))
    laid = [blocks.cut(clear[hill], resolved(noise, stride)).with_atoms(clear[~hill])] if peaks.size else []
    return [FourierChannel(each, tuple(parts), noise, collide=True, bound=max_count)
            for each in (*laid, blocks.with_atoms(clear))]  # fmt: skip


def _start(channel: FourierChannel, total: float) -> Floats:
    """Return θ after some steps of EM from N_t ∝ 1/(t(t+1)), with as many occurrences as the cells."""
    blocks = channel.blocks
    near = blocks.first < FAR
    mass = np.where(near, 1 / blocks.first - 1 / (blocks.stop - 1.0 + blocks.stride), 0.0)
    most = START_LOAD * min(part.cells / part.share for part in channel.parts)
    mass *= min(total / float(mass @ np.where(near, blocks.centres, 0.0)), most / float(mass.sum()))
    mass[~near] = 1.0
    mass[blocks.covered :] = np.maximum(mass[blocks.covered :], 1.0)
    return begun(channel, mass)


def overload(noisy: NoisyProfile, used: Sequence[Range]) -> OverloadError:
    """Say how many cells would do: as many as there could be items."""
    lightest = min(used, key=lambda part: part.share)
    most = max(1.0, float(noisy.values.astype(float) @ noisy.tally))
    cells = min(2 ** math.ceil(math.log2(most)), MOST_CELLS) * noisy.layout.levels
    return OverloadError(
        f"cells must hold about one item each to be told apart, got at least {lightest.load:.1f} in each of "
        f"{noisy.cells:,} cells: {cells:,} cells would do, or levels=16 for an unknown number"
    )


def _assemble(parts: Sequence[Range], used: Sequence[Range], search: Search, found: Posterior, top: int) -> ItemLaw:
    """Take one step towards the cells at every count, and join the tail above the last row."""
    channel = found.channel
    items = _per_count(found, used, top)
    far = channel.blocks.first >= FAR
    tail = None
    support, numbers = np.flatnonzero(items > 0).astype(np.int64), items[items > 0]
    if far.any():
        seen, extended, above = [], np.append(items, np.zeros(top)), float(found.mean[far].sum())
        for part in parts:  # cells as they are: so far up the noise moves them by next to nothing
            head = cell_law(extended, part.share / part.noisy.cells, above)
            law = CellLaw.of(part.noisy.values, part.noisy.fractions, head, part.noisy)
            if part in used or law.strayed < MOST_STRAYED:
                seen.append((law, part.share))
        tail = climb(seen, used[0].noisy.noise)
        support, numbers = np.append(support, tail.counts), np.append(numbers, tail.items)
    load = float(numbers.sum()) * max(part.share / part.noisy.cells for part in used)
    share = min(1.0, sum(part.share for part in used))
    notes = {
        "load": load, "levels_used": len(used), "share_used": share,
        "blocks": channel.blocks.size, "rows": sum(part.tally.size for part in channel.parts),
        "models": [(name, round(weight, 4)) for name, weight in found.weights if weight >= 1e-3],
        "fits": search.fits, "not_converged": search.not_converged, "uncertified": search.uncertified,
        "atoms": sorted(int(count) for count in channel.blocks.atoms if count < FAR),
    }
    return ItemLaw(support, numbers, found, top, tail, tuple(used), share, load, notes)


def _per_count(found: Posterior, used: Sequence[Range], top: int) -> Floats:
    """Return the items at counts 0..top: one step of EM from the averaged law, count by count or as far as noise tells.

    That is by the counts of a step of the lattice together, which have the same factor as good as.
    """
    law, unit = found.per_count(1, top, by_logarithm=True), found.channel.law.unit
    n, near = found.channel.blocks.covered, found.channel.atoms < FAR
    first = np.arange(1, top + 1, unit)
    blocks = Blocks(first, np.minimum(first + unit, top + 1), 0)
    every = found.channel.with_blocks(blocks.with_atoms(found.channel.above))
    state = every.at(np.append(np.add.reduceat(law, first - 1), found.law[n:][~near]))
    step = every.finest_step(state, [(part.noisy.values, part.noisy.tally) for part in used])
    items = law * np.interp(np.arange(1, top + 1), unit * np.arange(step.size), step)
    if top > 2 * ENTRIES:  # what is left of such noise are blocks far wider than this
        first = np.append(np.arange(1, ENTRIES + 1), np.arange(ENTRIES + 1, top + 1, -(-top // ENTRIES)))
        mass = np.add.reduceat(items, first - 1)
        items[:] = 0.0
        items[(first + np.append(first[1:] - 1, top)) // 2 - 1] = mass
    return np.append(0.0, items)


def _from_above(noisy: NoisyProfile, few: int) -> int:
    """Noisy count that all but the ``few`` largest cells stay below."""
    above = noisy.cells - np.cumsum(noisy.tally)
    return int(noisy.values[min(int(np.searchsorted(-above, -few)), noisy.values.size - 1)])


def decompound(fit: Fit, noisy: NoisyProfile) -> tuple[Int64, Floats]:
    """Return counts and item numbers from a reconstructed law of the cells by the plain logarithm (no levels).

    The number of items at or above each count is made non-increasing; total load up to PLAIN_LOAD.
    """
    empty = float(fit.mass[0]) if fit.support[0] == 0 else 0.0
    if empty < math.exp(-PLAIN_LOAD):
        raise overload(noisy, ranges(noisy))
    near = np.zeros(min(LENGTH, int(fit.support[-1])) + 1)
    here = fit.support < near.size
    near[fit.support[here]] = fit.mass[here]
    with np.errstate(over="ignore", invalid="ignore"):
        series = logarithm(near)
    if not np.isfinite(series).all():
        raise ConvergenceError(
            "the plain logarithm of these cells has no end: items cannot be told from collisions by this method; "
            "method='auto' does without it"
        )
    items_near = np.maximum(series, 0) * noisy.cells
    above = max(-math.log(empty) * noisy.cells - items_near.sum(), 0.0)
    head = cell_law(np.concatenate([items_near, np.zeros(near.size - 1)]), 1 / noisy.cells, above)
    if head[0] <= 0:  # roughness adds up to a load at which no cell would be empty
        raise overload(noisy, ranges(noisy))
    near[0] = head[0]
    plain = Rung(1, 1, noisy.cells * logarithm(near)[1:], np.arange(1.0, near.size))
    tail = climb([(CellLaw.of(fit.support, fit.mass, head, noisy), 1.0)], noisy.noise, plain)
    return tail.counts, tail.items
