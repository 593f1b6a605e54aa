"""The posterior of a known or sampled domain, for intervals by the model: one run of counts from 0 upwards.

The run (:mod:`._merged`) ends where cells become so sparse that each is seen by itself; the cells above it are only
numbered. A sampled sketch sees a share s of the items: what it says of its cells is scaled up by 1/s, and the variance
of sampling without replacement, (1 − s)/s²·(diag N − N·Nᵀ/m) for N of m cells, is added.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ..noisy import NoisyProfile
from ._engine import Posterior
from ._merged import fit_run
from ._smooth_grid import FEW, dense_runs

__all__ = ["KnownLaw", "known_law"]

LONGEST = 4096
"""Last count at most, unless the noise reaches further."""


@dataclass(frozen=True, eq=False)
class KnownLaw:
    """The averaged models of the counts 0..top; ``share`` of the items has a cell, ``above`` items lie higher."""

    posterior: Posterior
    top: int
    share: float
    above: float


def known_law(noisy: NoisyProfile, max_count: int | None = None) -> KnownLaw | None:
    """Return the posterior of the items of a domain; None where no model converged."""
    items = noisy.layout.domain if noisy.layout.kind == "sampled" and noisy.layout.domain else noisy.cells
    last = _last(noisy) if max_count is None else min(_last(noisy), max_count)
    run = fit_run(noisy, 0, last, max_count)
    if run is None:
        return None
    share = noisy.cells / items
    above = float(noisy.cells - run.cells) / share
    return KnownLaw(_scaled_up(run.posterior, share, run.cells), run.top, share, above)


def _last(noisy: NoisyProfile) -> int:
    """Where the cells become sparse: the end of the last dense run, within LONGEST or the reach of the noise."""
    window = max(2, math.ceil(4 * math.sqrt(noisy.noise.power) / noisy.noise.epsilon))
    runs = dense_runs(np.maximum(noisy.values, 0), noisy.tally, window, FEW)
    longest = max(LONGEST, noisy.noise.reach(1e-4))
    return max([3, *(min(high, longest) for low, high in runs if low <= longest)])


def _scaled_up(found: Posterior, share: float, cells: int) -> Posterior:
    """From the cells to the items of the domain."""
    if share == 1:
        return found
    sampling = (1 - share) / share**2 * (np.diag(found.mean) - np.outer(found.mean, found.mean) / cells)
    return replace(
        found, mean=found.mean / share, covariance=found.covariance / share**2 + sampling,
        vague=found.vague / share**2 + sampling, hidden=found.hidden / share**2,
    )  # fmt: skip
