"""The default: models weighed by evidence, then what the cells themselves say, in whole cells; and ``smooth``.

``likelihood`` explains the noisy counts best, but below the scale 1/ε of the noise it is free to be rough, and is. Here
the body of the profile is modelled by the engine (:mod:`unnoise.engine`).

1. Smooth profiles and mixtures of few point masses are joined by their evidence (:mod:`.cells`). Call the result g.
   ``smooth`` is the average of the smooth ones alone, and ends here.
2. The models are about a law from which counts might have been drawn; the answer is about these very cells. If g is
   the law of the counts, a cell with noisy count v has count t with probability g[t]·K[v,t]/(K g)[v], so the expected
   profile of the cells is f[t] = g[t]·Σ_v y[v]·K[v,t]/(K g)[v]: one step of EM. On scales coarser than the noise this
   restores what was observed, so that the cumulative curve stays faithful; on finer scales it leaves g's shape.
3. Cells outside the body stay at their noisy counts.
4. d times the cumulative curve is rounded to integers. A median of the number of cells below t is an integer, which
   lowers the expected earth-mover error where cells are sparse and changes nothing where they are dense.

Where one noise leaves no body, or no model converged, the answer is ``likelihood``'s, else ``isotonic``'s, and
``diagnostics["fallback"]`` says why; of several noises the cells are taken as they are.
"""

from __future__ import annotations

import numpy as np

from ..arrays import Floats
from ..errors import ConvergenceError
from ..noisy import NoisyProfile
from .banded import likelihood
from .cells import cell_law_of
from .isotonic import isotonic
from .methods import Fit, check_input

__all__ = ["auto", "smooth", "whole_cells"]


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
    law = cell_law_of(noisy, bound)
    if not law.pieces and noisy.noise.power == 1:
        return _fallback(
            noisy, bound, "the cells are too few, too far apart or spread over too long a range, or no model converged"
        )
    support, cells = law.profile()
    mass = whole_cells(cells / noisy.cells, noisy.cells)
    kept = mass > 0
    reason = None if law.pieces else "the cells are too few or too far apart: they are taken as they are"
    notes = {"power": str(noisy.noise.power), **law.describe(), "fallback": reason}
    return Fit(support[kept], mass[kept], "auto", notes)


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
    law = cell_law_of(noisy, bound, points=False)
    if not law.pieces:
        raise ConvergenceError(
            f"smooth must have at least 8 cells close together, half of such within 32,768 counts, and a model that "
            f"converges, got {noisy.cells} cells too far apart, spread too far or too rough: use method='isotonic'"
        )
    support, cells = law.profile(stepped=False)
    return Fit(support, cells / cells.sum(), "smooth", {"power": str(noisy.noise.power), **law.describe()})


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
