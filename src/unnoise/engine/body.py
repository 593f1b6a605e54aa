"""The body of a noisy profile: runs of counts dense enough to be smoothed, and the rest.

Around an occupied value v the *local number* is the number of cells within ±w of it, w = 4·√ρ/ε (four noise scales).
Where it reaches ``few`` (8) the value belongs to the body; the body is the union of [v − w, v + w] over such v, cut
to occupied values: a few *runs* of consecutive counts. Cells outside are isolated, and what is known of such a cell
is its noisy count. If the runs hold more than ``limit`` counts, ``few`` is doubled until they do not, so the cost is
bounded whatever the largest count. If that leaves less than half of the body's cells, as with counts spread evenly over
a long range, the runs may hold ``widest`` counts; if that is not enough either, there is no body.

A cell outside a run is left out of the run's likelihood, and its noise of reaching in is neglected: runs end where
cells are sparse, so that is a matter of single cells.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..arrays import Int64
from ..noise import DiscreteLaplace
from ..noisy import NoisyProfile

__all__ = ["FEW", "Body", "body_of", "cells_in", "dense_runs", "runs_within", "window_of"]


FEW = 8
"""Local number of cells from which on a value belongs to the body."""

LIMIT, WIDEST = 4096, 32_768
"""Most counts in the body, and where that would leave half of its cells outside."""


@dataclass(frozen=True, eq=False)
class Body:
    """A noisy profile split at its body.

    runs : ascending (low, high), both ends included
    rows : noisy counts of the body's cells, consecutive within a run; tally : cells at each of them
    far_values, far_tally : the cells outside, at their noisy counts
    few : local number used
    """

    runs: list[tuple[int, int]]
    rows: Int64
    tally: Int64
    far_values: Int64
    far_tally: Int64
    few: int

    @property
    def counts(self) -> Int64:
        """All counts of the runs, ascending."""
        return np.concatenate([np.arange(low, high + 1) for low, high in self.runs])

    @property
    def cells(self) -> int:
        """Number of cells in the body."""
        return int(self.tally.sum())


def window_of(noise: DiscreteLaplace) -> int:
    """Counts to either side among which cells are close: four scales of the noise."""
    return max(2, math.ceil(4 * math.sqrt(noise.power) / noise.epsilon))


def dense_runs(values: Int64, tally: Int64, window: int, few: int) -> list[tuple[int, int]]:
    """Return the runs of counts where at least ``few`` cells lie within ±window.

    >>> dense_runs(np.array([0, 1, 3, 500]), np.array([6, 6, 1, 1]), 4, 8)
    [(0, 3)]
    """
    before = np.concatenate([[0], np.cumsum(tally)])
    near = before[np.searchsorted(values, values + window, "right")] - before[np.searchsorted(values, values - window)]
    dense = values[near >= few]
    if dense.size == 0:
        return []
    low, high = dense - window, dense + window
    apart = np.flatnonzero(low[1:] > high[:-1] + 1)
    first = values[np.searchsorted(values, low[np.concatenate([[0], apart + 1])])]
    last = values[np.searchsorted(values, high[np.concatenate([apart, [dense.size - 1]])], "right") - 1]
    return [(int(a), int(b)) for a, b in zip(first, last)]


def body_of(noisy: NoisyProfile, bound: int | None, limit: int = LIMIT, widest: int = WIDEST) -> Body | None:
    """Split a noisy profile at its body; None where there is none.

    The noise is one: noisy counts are folded into [0, bound], and rows are counts.
    """
    window = window_of(noisy.noise)
    values = np.clip(noisy.values, 0, bound)
    values, where = np.unique(values, return_inverse=True)
    tally = np.bincount(where, weights=noisy.tally).astype(np.int64)
    split = _dense(values, tally, window, limit) or _dense(values, tally, window, widest)
    if split is None:
        return None
    runs, few = split
    runs = _widened(runs, window, bound)
    inside = np.zeros(values.size, dtype=bool)
    for low, high in runs:
        inside |= (values >= low) & (values <= high)
    rows = np.concatenate([np.arange(low, high + 1) for low, high in runs])
    of_row = np.zeros(rows.size, dtype=np.int64)
    of_row[np.searchsorted(rows, values[inside])] = tally[inside]
    return Body(runs, rows, of_row, values[~inside], tally[~inside], few)


def _dense(values: Int64, tally: Int64, window: int, limit: int) -> tuple[list[tuple[int, int]], int] | None:
    """Runs of at most ``limit`` counts and their local number; None if they leave half of the dense cells outside."""
    at_first = cells_in(dense_runs(values, tally, window, FEW), values, tally).sum()
    runs, few = runs_within(values, tally, window, limit)
    return (runs, few) if runs and 2 * cells_in(runs, values, tally).sum() >= at_first else None


def runs_within(values: Int64, tally: Int64, window: int, limit: int) -> tuple[list[tuple[int, int]], int]:
    """Runs of at most ``limit`` counts together, and the local number that this takes."""
    runs, few = dense_runs(values, tally, window, FEW), FEW
    while sum(high - low + 1 for low, high in runs) > limit:
        few *= 2
        runs = dense_runs(values, tally, window, few)
    return runs, few


def cells_in(runs: list[tuple[int, int]], values: Int64, tally: Int64) -> Int64:
    """Number of cells in each run."""
    before = np.concatenate([[0], np.cumsum(tally)])
    ends = np.searchsorted(values, [high for _, high in runs], "right")
    return np.asarray(before[ends] - before[np.searchsorted(values, [low for low, _ in runs])])


def _widened(runs: list[tuple[int, int]], window: int, bound: int | None) -> list[tuple[int, int]]:
    """Start the first run at 0 where 0 is near, and give every run a few counts, so that a walk can start on it."""
    wide: list[tuple[int, int]] = []
    for low, high in runs:
        low = 0 if low <= min(window, 8) else low
        high = max(high, low + 3)
        high = high if bound is None else min(high, bound)
        if wide and low <= wide[-1][1] + 1:
            wide[-1] = (wide[-1][0], max(high, wide[-1][1]))
        else:
            wide.append((low, high))
    return wide
