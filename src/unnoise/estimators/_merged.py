"""The cells of a known or sampled domain by the engine, whatever the power of the noise.

The body of the noisy profile is a few runs of counts around which cells lie close together (:mod:`._smooth_grid`),
and each run is a problem of its own: the cells seen in it, through the Fourier channel without collisions, counts
taken from the run's first. A run is covered by blocks, single counts at first and then as wide as half the noise,
or wider so that there are at most MOST_BLOCKS. After the average of the models comes one step of EM count by count,
as everywhere: the profile of these very cells. Cells outside every run stay at their noisy counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import Floats, Int64
from ..noise import DiscreteLaplace
from ..noisy import NoisyProfile
from ._convolve import convolve_valid
from ._engine import Posterior, Search, explore, posterior
from ._fourier import FINENESS, NEGLIGIBLE, Blocks, FourierChannel, Part
from ._smooth_grid import FEW, dense_runs

__all__ = ["CellLaw", "Run", "cell_law_of", "fit_run"]

HEAD, MOST_BLOCKS = 64, 256
"""Counts with a block of their own, and blocks at most above them."""

MOST_ROWS = 600
"""Rows of a run at most: two to a block."""

LONGEST = 1 << 18
"""Counts of all runs together at most: the length of a transform that takes a few milliseconds."""

MOST_RUNS = 6
"""Runs that are modelled, those with most cells; the cells of the others stay as they are."""

EM_STEPS = 20
"""Steps of EM from even masses to begin with."""


@dataclass(frozen=True, eq=False)
class Run:
    """One run of counts: ``origin`` is its first, ``top`` its last, counted from there; what the engine found."""

    origin: int
    top: int
    search: Search
    posterior: Posterior

    @property
    def cells(self) -> int:
        """Number of cells seen in it."""
        return self.posterior.channel.parts[0].cells


@dataclass(frozen=True, eq=False)
class CellLaw:
    """A noisy profile by runs, and the cells outside them at their noisy counts."""

    runs: tuple[Run, ...]
    far_values: Int64
    far_tally: Int64

    def profile(self, *, stepped: bool = True) -> tuple[Int64, Floats]:
        """Return counts and the number of cells at each: the averaged law of every run, one step of EM from it."""
        counts = [self.far_values, *(run.origin + np.arange(run.top + 1) for run in self.runs)]
        cells = [self.far_tally.astype(float), *(_per_count(run, stepped) for run in self.runs)]
        support, where = np.unique(np.concatenate(counts), return_inverse=True)
        numbers = np.bincount(where, weights=np.concatenate(cells), minlength=support.size)
        keep = numbers > 0
        return support[keep].astype(np.int64), np.asarray(numbers[keep])

    def describe(self) -> dict[str, Any]:
        """What the searches have to say."""
        found = max(self.runs, key=lambda run: run.cells, default=None)
        models = [] if found is None else found.posterior.weights
        return {
            "converged": True,
            "body_counts": sum(run.top + 1 for run in self.runs),
            "body_runs": len(self.runs),
            "far_cells": int(self.far_tally.sum()),
            "models": [(name, round(weight, 4)) for name, weight in models if weight >= 1e-3],
            "fits": sum(run.search.fits for run in self.runs),
            "not_converged": sum(run.search.not_converged for run in self.runs),
            "uncertified": sum(run.search.uncertified for run in self.runs),
        }


def cell_law_of(noisy: NoisyProfile, bound: int | None) -> CellLaw:
    """Fit the runs of a noisy profile; cells far from others, or without a model that converges, stay as they are."""
    values = np.clip(noisy.values, 0, bound)
    runs = _runs(values, noisy)
    fitted = [found for low, high in runs if (found := fit_run(noisy, low, high, bound)) is not None]
    inside = np.zeros(values.size, dtype=bool)
    for run in fitted:
        inside |= (values >= run.origin) & (values <= run.origin + run.top)
    return CellLaw(tuple(fitted), values[~inside], noisy.tally[~inside])


def _runs(values: Int64, noisy: NoisyProfile) -> list[tuple[int, int]]:
    """Return the runs to model, largest number of cells first."""
    window = max(2, math.ceil(4 * math.sqrt(noisy.noise.power) / noisy.noise.epsilon))
    folded, where = np.unique(values, return_inverse=True)
    tally = np.bincount(where, weights=noisy.tally).astype(np.int64)
    few = FEW
    runs = dense_runs(folded, tally, window, few)
    while sum(high - low + 1 for low, high in runs) > LONGEST:
        few *= 2
        runs = dense_runs(folded, tally, window, few)
    running = np.concatenate([[0], np.cumsum(tally)])

    def cells(run: tuple[int, int]) -> int:
        low, high = np.searchsorted(folded, [run[0], run[1] + 1])
        return int(running[high] - running[low])

    widened = [(0 if low <= window else low, high) for low, high in runs]
    return sorted(widened, key=cells, reverse=True)[:MOST_RUNS]


def fit_run(noisy: NoisyProfile, low: int, high: int, bound: int | None) -> Run | None:
    """Fit one run of counts, low..high; None where it holds no cell, or no model converges."""
    values = np.clip(noisy.values, 0, bound)
    inside = (values >= low) & (values <= high)
    if not inside.any():
        return None
    seen, tally = noisy.values[inside] - low, noisy.tally[inside]
    top = max(high, low + 3) - low
    top = top if bound is None else min(top, bound - low)
    ends = _rows(seen, noisy.noise, top, at_zero=low == 0)
    part = Part.of(seen, tally, ends, 1.0)
    channel = FourierChannel(_blocks(top, noisy.noise), (part,), noisy.noise, collide=False, origin=low)
    mass = channel.widths * (part.cells / (top + 1))
    for _ in range(EM_STEPS):
        mass = np.maximum(mass * channel.pull(channel.at(mass)), 1e-9 * part.cells / mass.size)
    counts = np.union1d(channel.blocks.first, np.rint(channel.blocks.centres).astype(np.int64))
    total = float(part.cells)
    single = Blocks(counts, counts + 1, counts.size)
    search = explore(channel, np.log(mass / channel.widths), total, single, bound=bound)
    return None if search.best is None else Run(low, top, search, posterior(search))


def _blocks(top: int, noise: DiscreteLaplace) -> Blocks:
    """Single counts up to HEAD, then blocks of equal width up to ``top``."""
    head = min(HEAD, top)
    width = max(1, round(math.sqrt(noise.variance) / 2), math.ceil((top - head) / MOST_BLOCKS))
    starts = np.concatenate([np.arange(head + 1), np.arange(head + 1, top + 1, width), [top + 1]])
    return Blocks.covering(np.unique(starts).astype(np.int64))


def _rows(seen: Int64, noise: DiscreteLaplace, top: int, *, at_zero: bool) -> Int64:
    """Rows of equal width; below 0 they go as far as noise is likely to, for one noise they begin at 0."""
    low = 0 if noise.power == 1 or not at_zero else -noise.reach(1e-4)
    high = max(top, int(seen[-1]))
    step = max(1, int(math.sqrt(noise.variance) / FINENESS), math.ceil((high - low) / MOST_ROWS))
    return np.unique(np.append(np.arange(low, high + 1, step), high)).astype(np.int64)


def _per_count(run: Run, stepped: bool) -> Floats:
    """Cells at each count of a run by the averaged law, or one step of EM from it, count by count."""
    found = run.posterior
    blocks, n = found.channel.blocks, found.channel.blocks.covered
    walked = found.law[:n]
    density = np.log(np.maximum(walked / blocks.widths[:n], 1e-300))
    t = np.arange(run.top + 1)
    law = np.exp(np.interp(t, blocks.centres[:n], density))
    block = np.searchsorted(blocks.stop[:n], t, side="right")
    law *= (walked / np.maximum(np.bincount(block, weights=law, minlength=n), 1e-300))[block]
    np.add.at(law, blocks.atoms, found.law[n:])
    if not stepped:
        return np.asarray(law * (run.cells / law.sum()))
    every = found.channel.with_blocks(Blocks.covering(np.arange(run.top + 2, dtype=np.int64)))
    part, reach = every.parts[0], every.noise.reach(NEGLIGIBLE)
    row = np.searchsorted(part.ends, np.arange(-reach, run.top + reach + 1))
    wanted = (part.tally / every.at(law).rows[0])[row]
    pulled = law * np.maximum(convolve_valid(wanted, every.noise.pmf(np.arange(-reach, reach + 1))), 0.0)
    law = pulled if pulled.sum() > 0 else law  # no noise can explain the cells
    return np.asarray(law * (run.cells / law.sum()))
