"""A smooth profile: random walks of log f, weighed by their evidence.

``likelihood`` explains the noisy counts best, but below the scale 1/ε of the noise it is free to be rough, and is.
``smooth`` puts a prior on the body of the profile (:mod:`._smooth_grid`): log f is a random walk of second or third
order in the count or its logarithm (:mod:`._smooth_walk`). How stiff, in which coordinate and with which free steps is
left to the evidence of each model (:mod:`._mode`, :mod:`._smooth_models`), by which the modes are averaged.
No cells need be held out for the choice. Cells outside the body stay at their noisy counts.

That is for one noise, in time linear in the body; merged noise goes through the Fourier channel (:mod:`._merged`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import Floats, Int64
from ..errors import ConvergenceError
from ..noisy import NoisyProfile
from ._fit import Fit
from ._input import check_input
from ._merged import cell_law_of
from ._smooth_channel import BandedChannel
from ._smooth_grid import Body, body_of
from ._smooth_models import FAMILIES, Data, Family, Search, average
from ._smooth_search import smooth_models
from .banded import likelihood

__all__ = ["Prepared", "assemble", "prepare", "smooth"]


@dataclass(frozen=True, eq=False)
class Prepared:
    """A body with its channel, ready for models, and what there is to say of it."""

    body: Body
    data: Data
    families: tuple[Family, ...]
    diagnostics: dict[str, Any]


def smooth(noisy: NoisyProfile, *, max_count: int | None = None) -> Fit:
    """Return the average of smooth profiles, weighed by evidence.

    Parameters
    ----------
    noisy : NoisyProfile
        Noise of power ≥ 1.
    max_count : int, optional
        A bound that truly holds for every count; no mass is put above it.

    Returns
    -------
    Fit
        ``diagnostics`` holds the ``models`` averaged with their weights, the numbers of ``fits`` and of fits
        ``not_converged`` (left out), and the extent of the body.

    Raises
    ------
    ConvergenceError
        Where the cells are too few for a body, or no model converged.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> counts = rng.poisson(5, 10_000) + rng.geometric(0.5, 10_000) - rng.geometric(0.5, 10_000)
    >>> fit = smooth(NoisyProfile.from_counts(counts, epsilon=np.log(2)))
    >>> round(float(fit.support @ fit.mass), 1), round(float(fit.mass.sum()), 9)
    (5.0, 1.0)
    """
    bound = check_input(noisy, max_count)
    if noisy.noise.power != 1:
        return _merged(noisy, bound)
    prepared = prepare(noisy, bound)
    if prepared is None:
        raise ConvergenceError(
            f"smooth must have at least 8 cells close together, and half of such within 32,768 counts, got "
            f"{noisy.cells} cells too far apart or spread too far: use method='isotonic'"
        )
    search = smooth_models(prepared.data, prepared.families)
    if not search.models:
        raise ConvergenceError(
            f"smooth must have a model that converges, got none in {search.fits} fits: use method='likelihood'"
        )
    masses, models = average(search.models, [])
    support, mass = assemble(prepared.body, masses)
    return Fit(support, mass, "smooth", {**prepared.diagnostics, **describe(search, models)})


def _merged(noisy: NoisyProfile, bound: int | None) -> Fit:
    """Several noises: the average of the engine's models, as it stands before the step towards the cells."""
    law = cell_law_of(noisy, bound)
    if not law.runs:
        raise ConvergenceError(
            f"smooth must have at least 8 cells close together, got {noisy.cells} cells too far apart: "
            f"use method='isotonic'"
        )
    support, cells = law.profile(stepped=False)
    return Fit(support, cells / cells.sum(), "smooth", {"power": str(noisy.noise.power), **law.describe()})


def prepare(noisy: NoisyProfile, bound: int | None) -> Prepared | None:
    """Find the body, its channel and a start; None where there is no body."""
    body = body_of(noisy, bound)
    if body is None:
        return None
    channel = BandedChannel(body, noisy.noise)
    counts = body.counts
    y = body.tally / body.cells
    likely, note = _likely(noisy, bound, counts)
    local = _local_mean(counts, body, noisy)
    start = 0.5 * local + 0.5 * likely if likely.any() else local
    data = Data(
        channel=channel,
        y=y,
        rows=body.rows,
        counts=counts,
        position=np.concatenate([np.arange(high - low + 1) for low, high in body.runs]),
        cells=float(body.cells),
        epsilon=float(noisy.noise.epsilon),
        likely=likely,
        start=np.log(np.maximum(start, 1e-12)),
    )
    diagnostics = {
        "power": str(noisy.noise.power),
        "body_counts": int(counts.size),
        "body_runs": len(body.runs),
        "far_cells": int(body.far_tally.sum()),
        **note,
    }
    return Prepared(body, data, FAMILIES, diagnostics)


def _likely(noisy: NoisyProfile, bound: int | None, counts: Int64) -> tuple[Floats, dict[str, Any]]:
    """Maximum-likelihood masses at the body's counts, adding up to 1; zeros, and a note, where it did not converge."""
    masses = np.zeros(counts.size)
    try:
        fit = likelihood(noisy, max_count=bound, tolerance=1e-7)
    except ConvergenceError as error:
        return masses, {"likelihood": str(error)}
    inside = np.isin(fit.support, counts)
    masses[np.searchsorted(counts, fit.support[inside])] = fit.mass[inside]
    return masses / masses.sum() if masses.any() else masses, {}


def _local_mean(counts: Int64, body: Body, noisy: NoisyProfile) -> Floats:
    """Share of cells at each count, averaged over one noise scale to either side: a rough first guess."""
    width = max(1, round(1 / float(noisy.noise.epsilon)))
    values = np.clip(body.rows, counts[0], counts[-1])
    before = np.concatenate([[0], np.cumsum(body.tally)])
    near = before[np.searchsorted(values, counts + width, "right")] - before[np.searchsorted(values, counts - width)]
    local = near / (2 * width + 1) + 1e-3
    return np.asarray(local / local.sum())


def assemble(body: Body, masses: Floats) -> tuple[Int64, Floats]:
    """Join the body's masses with the far cells."""
    cells = body.cells + int(body.far_tally.sum())
    support = np.concatenate([body.counts, body.far_values])
    mass = np.concatenate([masses / masses.sum() * (body.cells / cells), body.far_tally / cells])
    order = np.argsort(support)
    support, mass = support[order], mass[order]
    kept = mass > 0
    return support[kept], mass[kept] / mass.sum()


def describe(search: Search, models: list[tuple[str, float]]) -> dict[str, Any]:
    """What a search and the average of its models have to say."""
    return {
        "converged": True,
        "models": [(name, round(weight, 4)) for name, weight in models if weight >= 1e-3],
        "fits": search.fits,
        "not_converged": search.not_converged,
        "iterations": search.iterations,
    }
