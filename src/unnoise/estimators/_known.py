"""The posterior of a known or sampled domain: the engine on the Fourier channel without collisions, for every power.

Counts up to ``DENSE`` have a block of their own, larger ones share ``PER_OCTAVE`` blocks to the octave, up to where
cells become so sparse that each is seen by itself (:func:`unnoise.estimators._smooth_grid.dense_runs`); those above are
one more block. A sampled sketch sees a share cells/domain of the items, and the posterior is that of the domain.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..arrays import Floats
from ..noisy import NoisyProfile
from ._engine import Posterior, explore, posterior
from ._fourier import FAR, Blocks, FourierChannel, Part, counts_in_blocks, rows_of
from ._smooth_grid import FEW, dense_runs

__all__ = ["KnownLaw", "known_law"]

DENSE, PER_OCTAVE = 64, 12
"""Counts with a block of their own, and blocks to the octave above."""

LONGEST = 4096
"""Last row at most, unless the noise reaches further."""

EM_STEPS = 20
"""Steps of EM to begin with."""


@dataclass(frozen=True, eq=False)
class KnownLaw:
    """The averaged models of the counts 0..top; ``share`` of the items has a cell."""

    posterior: Posterior
    top: int
    share: float


def known_law(noisy: NoisyProfile, max_count: int | None = None) -> KnownLaw | None:
    """Return the posterior of the items of a domain; None where no model converged."""
    items = noisy.layout.domain if noisy.layout.kind == "sampled" and noisy.layout.domain else noisy.cells
    share = noisy.cells / items
    values, tally = noisy.folded() if noisy.noise.power == 1 else (noisy.values, noisy.tally)
    last = _last(noisy)
    top = last if max_count is None else min(last, max_count)
    part = Part.of(values, tally, rows_of(values, tally, noisy.noise, last)[0], share)
    blocks = Blocks.covering(counts_in_blocks(0, top, DENSE, PER_OCTAVE))
    if values[-1] > last and (max_count is None or max_count > last):
        blocks = blocks.with_atoms(np.array([FAR], dtype=np.int64))
    channel = FourierChannel(blocks, (part,), noisy.noise, collide=False)
    near = (blocks.first < FAR) & (blocks.first > 0)  # points are placed by occurrences, of which 0 has none
    counts = np.union1d(blocks.first[near], np.rint(blocks.centres[near]).astype(np.int64))
    search = explore(channel, _start(channel, items), float(items), Blocks(counts, counts + 1, counts.size))
    return None if search.best is None else KnownLaw(posterior(search), top, share)


def _last(noisy: NoisyProfile) -> int:
    """Where the cells become sparse: the end of the last dense run, within LONGEST or the reach of the noise."""
    window = max(2, math.ceil(4 * math.sqrt(noisy.noise.power) / noisy.noise.epsilon))
    values = np.maximum(noisy.values, 0)
    runs = dense_runs(values, noisy.tally, window, FEW)
    longest = max(LONGEST, noisy.noise.reach(1e-4))
    return max([3, *(min(high, longest) for low, high in runs if low <= longest)])


def _start(channel: FourierChannel, items: float) -> Floats:
    """Return θ after some steps of EM from an even spread over the blocks."""
    mass = np.full(channel.blocks.size, items / channel.blocks.size)
    for _ in range(EM_STEPS):
        mass = np.maximum(mass * channel.pull(channel.at(mass)), 1e-9 * mass.sum() / mass.size)
    return np.asarray(np.log(mass / channel.widths))
