"""The default: models weighed by evidence, then what the cells themselves say, in whole cells.

1. The body of the profile (:mod:`._smooth_grid`) is modelled by smooth profiles and by mixtures of few point masses,
   joined by their evidence (:mod:`._smooth_models`). Call the result g.
2. The models are about a law from which counts might have been drawn; the answer is about these very cells. If g is
   the law of the counts, a cell with noisy count v has count t with probability g[t]·K[v,t]/(K g)[v], so the expected
   profile of the cells is f[t] = g[t]·Σ_v y[v]·K[v,t]/(K g)[v]: one step of EM. On scales coarser than the noise this
   restores what was observed, so that the cumulative curve stays faithful; on finer scales it leaves g's shape.
3. Cells outside the body stay at their noisy counts.
4. d times the cumulative curve is rounded to integers. A median of the number of cells below t is an integer, which
   lowers the expected earth-mover error where cells are sparse and changes nothing where they are dense.

Where there is no body, or no model converged, the answer is ``likelihood``'s, else ``isotonic``'s, and
``diagnostics["fallback"]`` says why.
"""

from __future__ import annotations

import numpy as np

from ..arrays import Floats
from ..errors import ConvergenceError
from ..noisy import NoisyProfile
from ._fit import Fit
from ._input import check_input
from ._merged import cell_law_of
from ._smooth_channel import BandedChannel
from ._smooth_models import average
from ._smooth_points import point_models
from ._smooth_search import smooth_models
from .banded import likelihood
from .isotonic import isotonic
from .smooth import assemble, describe, prepare

__all__ = ["auto", "posterior_profile", "whole_cells"]


def auto(noisy: NoisyProfile, *, max_count: int | None = None) -> Fit:
    """Return the profile of these cells: models weighed by evidence, then one step towards the cells.

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
        ``not_converged`` (left out), the extent of the body, and ``fallback``: None, or why another method was used.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> noise = rng.geometric(0.5, 10_000) - rng.geometric(0.5, 10_000)
    >>> fit = auto(NoisyProfile.from_counts(1 + noise, epsilon=np.log(2)))
    >>> bool(fit.mass[fit.support == 1] > 0.99), fit.diagnostics["fallback"]
    (True, None)
    """
    bound = check_input(noisy, max_count)
    if noisy.noise.power != 1:
        return _merged(noisy, bound)
    prepared = prepare(noisy, bound)
    if prepared is None:
        reason = "the cells are too few, too far apart or spread over too long a range to be smoothed"
        return _fallback(noisy, bound, reason)
    search = smooth_models(prepared.data, prepared.families)
    points = point_models(prepared.data)
    if not search.models and not points:
        return _fallback(noisy, bound, f"no model converged in {search.fits} fits")
    masses, models = average(search.models, points)
    masses = posterior_profile(prepared.data.channel, masses, prepared.data.y)
    support, mass = assemble(prepared.body, masses)
    mass = whole_cells(mass, noisy.cells)
    kept = mass > 0
    diagnostics = {**prepared.diagnostics, **describe(search, models), "fallback": None}
    return Fit(support[kept], mass[kept], "auto", diagnostics)


def _merged(noisy: NoisyProfile, bound: int | None) -> Fit:
    """Several noises: the same by the Fourier channel (:mod:`._merged`)."""
    law = cell_law_of(noisy, bound)
    support, cells = law.profile()
    mass = whole_cells(cells / noisy.cells, noisy.cells)
    kept = mass > 0
    notes = {"power": str(noisy.noise.power), **law.describe(),
             "fallback": None if law.runs else "the cells are too few or too far apart: they are taken as they are"}
    return Fit(support[kept], mass[kept], "auto", notes)


def posterior_profile(channel: BandedChannel, g: Floats, y: Floats) -> Floats:
    """Expected profile of cells with noisy profile y whose counts were drawn from g; g if no noise can explain y."""
    f = g * np.maximum(channel.backward(y / channel.forward(g)), 0.0)
    total = f.sum()
    return np.asarray(f / total) if 0 < total < np.inf else g


def whole_cells(mass: Floats, cells: int) -> Floats:
    """Round the cumulative curve to whole cells.

    >>> whole_cells(np.array([0.26, 0.5, 0.24]), 4).tolist()
    [0.25, 0.5, 0.25]
    """
    curve = np.rint(np.cumsum(mass) * cells)
    curve[-1] = cells
    return np.asarray(np.diff(np.minimum(curve, cells), prepend=0.0) / cells)


def _fallback(noisy: NoisyProfile, bound: int | None, reason: str) -> Fit:
    """Return ``likelihood``'s profile, or ``isotonic``'s, and say why."""
    try:
        fit = likelihood(noisy, max_count=bound)
    except ConvergenceError as error:
        fit = isotonic(noisy, max_count=bound)
        reason = f"{reason}; {error}"
    return Fit(fit.support, fit.mass, fit.method, {**fit.diagnostics, "fallback": reason})
