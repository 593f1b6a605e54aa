"""``paper``: the reconstruction of Wu and Pagh, whole and faithful; ``lp``: the linear program before it, a baseline.

"Profile Reconstruction from Private Sketches", ICML 2024; letters as there: d cells, counts in [0..n], a = e^(−ε),
noise within ±B with high probability. A noisy histogram is unfolded where it was clipped (Section 4.1,
:func:`unfold`), tallied on the window [−B..n+B] into y, inverted by Algorithm 2 and rounded by Algorithm 3
(:mod:`unnoise._circulant`), in O(d + n log n). :func:`private_profile` is Algorithm 1, the generator of the analysis.

Choices the text leaves open:

- B is that of :func:`~unnoise._circulant.window` at η/2: the window and the concentration of y may each fail, so
  Theorem 1's probability 1 − η needs η split between the two
- n is ``max_count`` where that is declared. Otherwise n = largest noisy count + B, an upper bound of every count
  whenever the noises stay within ±B, and then a little more so that N = n+2B+1 has small prime factors
- noisy counts outside the window have no place in y, so the cells that hold them are left out of y (as in the
  paper, whose y is restricted to the window); y then adds up to less than 1, and Algorithm 2 spreads their share over
  the profile along its direction of least cost. ``diagnostics`` says how many cells these are, on either side

**``lp``** is the approach before, kept as a baseline.
Dwork, Naor, Pitassi, Rothblum and Yekhanin ("Pan-private streaming algorithms", ICS 2010) reconstruct a profile as a
feasible point of a linear program. In the form of Wu and Pagh (ICML 2024, problem P2), with A the circulant channel on
the window [−B..n+B] and y the noisy profile,

    minimise ‖A·r − y‖_p   subject to   r[0] + … + r[n] = 1,  0 ≤ r ≤ 1,  r = 0 outside [0..n],

a linear program for p = 1 (e⁺ − e⁻ = A·r − y, minimise Σ e⁺ + e⁻) and for p = ∞ (−z ≤ A·r − y ≤ z, minimise z).
HiGHS solves it to optimality. B, n and cells outside the window are as above.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse
from scipy.fft import next_fast_len
from scipy.optimize import linprog

from .. import _sampler
from .._circulant import Circulant, as_norm, fast_inversion, p_norm, round_profile, window
from ..arrays import Floats
from ..checks import check_integer, check_share
from ..errors import ConvergenceError, InputError
from ..layout import Layout
from ..noise import DiscreteLaplace, Exact
from ..noisy import NoisyProfile, as_signed_integers, combine, tally
from .methods import Fit

__all__ = ["LONGEST", "LONGEST_PROGRAM", "Window", "frame", "lp", "paper", "private_profile", "unfold"]

LONGEST = 50_000_000
"""Largest window N = n+2B+1 that is inverted: 80 bytes an entry at the peak, so about 4 GB (measured)."""

BLOCK = 1 << 20
"""Cells whose noise is drawn at a time."""

LONGEST_PROGRAM = 20_000
"""Longest window handed to HiGHS: beyond it a linear program takes minutes to hours."""

_highs: Any = linprog
"""The solver; SciPy's stubs do not know that it takes sparse matrices."""


def unfold(noisy: NoisyProfile, *, max_count: int | None = None) -> NoisyProfile:
    """Undo clipping to [0, n]: spread the cells at 0 downwards, and those at n upwards, by a geometric variable.

    The result has exactly the law of the unclipped noisy profile (Section 4.1), because a geometric tail cut
    anywhere and continued by a fresh geometric variable is the same tail. That holds for one discrete Laplace noise
    (ρ = 1) only.

    noisy : tally of counts clipped to [0, max_count], or at 0 only where there is no max_count

    >>> clipped = NoisyProfile.from_counts([0, 0, 1, 3, 3], epsilon=1)
    >>> unfold(clipped, max_count=3).cells
    5
    """
    require_single_noise(noisy.noise, "unfolding of clipped counts")
    n = None if max_count is None else check_integer("max_count", max_count, 1)
    if noisy.values[0] < 0:
        raise InputError(f"clipped counts must be ≥ 0, got {int(noisy.values[0])}")
    if n is not None and noisy.values[-1] > n:
        raise InputError(f"clipped counts must be ≤ max_count={n}, got {int(noisy.values[-1])}")
    if noisy.parts:
        parts = tuple(unfold(part, max_count=max_count) for part in noisy.parts)
        values, how_many = combine([(part.values, part.tally) for part in parts])
        return replace(noisy, values=values, tally=how_many, parts=parts)
    edge = (noisy.values == 0) | (noisy.values == n)
    pieces = [(noisy.values[~edge], noisy.tally[~edge])]
    stream = _sampler.open_stream()
    for value, how_many in zip(noisy.values[edge].tolist(), noisy.tally[edge].tolist()):
        sign = -1 if value == 0 else 1
        for start in range(0, how_many, BLOCK):
            drawn = _sampler.geometric(min(BLOCK, how_many - start), noisy.noise.epsilon, stream)
            pieces.append(tally(value + sign * drawn))
    values, total = combine(pieces)
    return replace(noisy, values=values, tally=total)


def private_profile(cells_at: Any, *, epsilon: Exact) -> NoisyProfile:
    """Algorithm 1: generate the noisy profile of a histogram that has ``cells_at[t]`` cells of count t.

    Every cell draws its own exact noise.

    >>> private_profile([3, 0, 2], epsilon=1).cells
    5
    """
    cells = as_signed_integers(cells_at, "cells_at")
    if (cells < 0).any() or not cells.any():
        raise InputError("cells_at must be ≥ 0 and hold at least one cell")
    noise, stream = DiscreteLaplace(epsilon), _sampler.open_stream()
    pieces = []
    for t in np.flatnonzero(cells).tolist():
        for start in range(0, int(cells[t]), BLOCK):
            drawn = np.empty(min(BLOCK, int(cells[t]) - start), dtype=np.int64)
            _sampler.fill(drawn, noise, stream)
            pieces.append(tally(drawn + t))
    values, total = combine(pieces)
    d = int(cells.sum())
    return NoisyProfile(values, total, noise, Layout(kind="known", cells=d, domain=d))


def require_single_noise(noise: DiscreteLaplace, what: str) -> None:
    """Refuse noise of another power than 1, for which the paper's kernel does not hold."""
    if noise.power != 1:
        raise InputError(
            f"{what} needs noise of power 1, got {noise!r}; use method='linear', 'isotonic' or 'auto' for merged noise"
        )


class Window:
    """The window on a noisy profile: B, n, the circulant channel, and y on [−B..n+B].

    reach : B
    n : largest count allowed for
    observed : y, the share of all d cells at each value of the window
    below, above : number of cells outside the window
    """

    def __init__(self, noisy: NoisyProfile, reach: int, n: int) -> None:
        self.reach, self.n = reach, n
        self.order = n + 2 * reach + 1
        low = int(np.searchsorted(noisy.values, -reach, side="left"))
        high = int(np.searchsorted(noisy.values, n + reach, side="right"))
        self.below, self.above = int(noisy.tally[:low].sum()), int(noisy.tally[high:].sum())
        self.observed = np.zeros(self.order)
        self.observed[noisy.values[low:high] + reach] = noisy.tally[low:high] / noisy.cells
        self.noise = noisy.noise

    @property
    def inside(self) -> slice:
        """Where the counts 0..n stand in the window."""
        return slice(self.reach, self.reach + self.n + 1)

    @property
    def channel(self) -> Circulant:
        """The matrix A."""
        return Circulant.laplace(self.noise.epsilon, reach=self.reach, order=self.order)


def frame(noisy: NoisyProfile, max_count: int | None, eta: float, longest: int, method: str) -> Window:
    """Choose B and n, refuse what does not fit in memory, and lay the noisy profile into the window."""
    require_single_noise(noisy.noise, f"method {method!r}")
    reach = window(noisy.cells, noisy.noise.epsilon, check_share("eta", eta) / 2)
    if max_count is None:
        n = max(0, int(noisy.values[-1]) + reach)
        if n + 2 * reach + 1 <= longest:
            n = min(int(next_fast_len(n + 2 * reach + 1, real=True)), LONGEST) - 2 * reach - 1  # small prime factors
    else:
        n = check_integer("max_count", max_count, 0)
    if n + 2 * reach + 1 > longest:
        raise InputError(
            f"the window 0..n widened by B={reach} must be at most {longest:,} entries long for method {method!r}, "
            f"got n={n:,}; declare max_count, or use method='isotonic' or 'auto', "
            f"whose cost does not grow with the largest count"
        )
    framed = Window(noisy, reach, n)
    if framed.below + framed.above == noisy.cells:
        raise InputError(
            f"some noisy count must lie in the window [{-reach}, {n + reach}], got noisy counts from "
            f"{int(noisy.values[0])} to {int(noisy.values[-1])}; check epsilon={float(noisy.noise.epsilon):g} and "
            f"max_count={max_count}"
        )
    return framed


def paper(noisy: NoisyProfile, *, norm: Any = 2, max_count: int | None = None, eta: float = 0.05) -> Fit:
    """Reconstruct the profile as in the paper: window, Algorithm 2, Algorithm 3.

    noisy : of power 1; clipped counts go through :func:`unfold` first
    norm : p, the norm in which A·r is brought close to y: 1, 2 or inf
    max_count : n, a declared upper bound of every count
    eta : η, the probability with which Theorem 1's bound may fail; it sets the width of the window

    >>> fit = paper(private_profile([0, 100_000], epsilon=1))
    >>> bool(fit.support[fit.mass.argmax()] == 1)
    True
    """
    p = as_norm(norm)
    framed = frame(noisy, max_count, eta, LONGEST, "paper")
    r = fast_inversion(framed.channel, framed.observed, framed.inside, p)
    profile, threshold = round_profile(r[framed.inside])
    support = np.flatnonzero(profile)
    notes = diagnostics(framed, noisy, p, eta, max_count) | {"threshold": threshold}
    return Fit(support.astype(np.int64), profile[support], "paper", notes)


def diagnostics(framed: Window, noisy: NoisyProfile, p: float, eta: float, max_count: int | None) -> dict[str, Any]:
    """Say what window was used and what became of the cells outside it."""
    outside = framed.below + framed.above
    fate = (
        f"{outside} of {noisy.cells} cells hold noisy counts outside [{-framed.reach}, {framed.n + framed.reach}]; "
        f"they were left out and their share spread over the profile"
        if outside
        else "no cell lies outside the window"
    )
    return {
        "norm": p,
        "B": framed.reach,
        "P_norm": p_norm(noisy.noise.epsilon, framed.reach),
        "n": framed.n,
        "n_declared": max_count is not None,
        "eta": eta,
        "window": (-framed.reach, framed.n + framed.reach),
        "cells_below_window": framed.below,
        "cells_above_window": framed.above,
        "outside_window": fate,
    }


# ── the linear program ────────────────────────────────────────────────────────────────────────────────────────────────


def lp(noisy: NoisyProfile, *, norm: Any = math.inf, max_count: int | None = None, eta: float = 0.05) -> Fit:
    """Reconstruct the profile by linear programming, in the norm 1 or inf; otherwise as :func:`paper`.

    >>> fit = lp(NoisyProfile.from_counts([1, 1, 0, 2, 1, 1], epsilon=2), norm=1)
    >>> bool(fit.support[fit.mass.argmax()] == 1), round(float(fit.mass.sum()), 9)
    (True, 1.0)
    """
    p = as_norm(norm)
    if p == 2:
        raise InputError("norm must be 1 or inf for method 'lp', got 2; use method='paper' or 'exact' for norm 2")
    framed = frame(noisy, max_count, eta, LONGEST_PROGRAM, "lp")
    solution = _solve(framed, p)
    if solution.status != 0:
        raise ConvergenceError(f"HiGHS must reach an optimum, got: {solution.message}")
    profile = np.clip(solution.x[: framed.n + 1], 0.0, 1.0)
    support = np.flatnonzero(profile)
    notes = diagnostics(framed, noisy, p, eta, max_count)
    notes |= {"objective": float(solution.fun), "iterations": int(solution.nit)}
    return Fit(support.astype(np.int64), profile[support] / profile.sum(), "lp", notes)


def band(framed: Window) -> Any:
    """Return the columns of A that belong to the counts 0..n, sparse: 2B+1 entries each."""
    kernel = np.exp(-float(framed.noise.epsilon) * np.abs(np.arange(-framed.reach, framed.reach + 1)))
    kernel /= p_norm(framed.noise.epsilon, framed.reach)
    columns = np.repeat(np.arange(framed.n + 1), kernel.size)
    rows = columns + np.tile(np.arange(kernel.size), framed.n + 1)
    values = np.tile(kernel, framed.n + 1)
    return sparse.csc_array((values, (rows, columns)), shape=(framed.order, framed.n + 1))


def _solve(framed: Window, p: float) -> Any:
    """Hand the program to HiGHS: variables r, then the slack."""
    matrix, y, size = band(framed), framed.observed, framed.n + 1
    if p == 1:
        identity = sparse.eye_array(framed.order, format="csc")
        slack = 2 * framed.order
        equal = sparse.vstack([
            sparse.hstack([matrix, -identity, identity]),
            sparse.csc_array(_sum_row(size, slack)),
        ])
        return _highs(
            np.concatenate([np.zeros(size), np.ones(slack)]),
            A_eq=sparse.csc_array(equal), b_eq=np.append(y, 1.0), bounds=_ranges(size, slack), method="highs",
        )
    column = sparse.csc_array(np.ones((framed.order, 1)))
    within = sparse.vstack([sparse.hstack([matrix, -column]), sparse.hstack([-matrix, -column])])
    return _highs(
        np.append(np.zeros(size), 1.0),
        A_ub=sparse.csc_array(within), b_ub=np.concatenate([y, -y]),
        A_eq=sparse.csc_array(_sum_row(size, 1)), b_eq=[1.0], bounds=_ranges(size, 1), method="highs",
    )


def _sum_row(size: int, slack: int) -> Floats:
    """Return the row of Σ r = 1."""
    return np.concatenate([np.ones(size), np.zeros(slack)])[None, :]


def _ranges(size: int, slack: int) -> Floats:
    """Return 0 ≤ r ≤ 1 and slack ≥ 0."""
    return np.array([(0.0, 1.0)] * size + [(0.0, np.inf)] * slack)
