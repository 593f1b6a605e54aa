"""The default: models weighed by evidence, then what the cells themselves say, in whole cells; and ``smooth``.

``likelihood`` explains the noisy counts best, but below the scale 1/ε of the noise it is free to be rough, and is. Here
the body of the profile is modelled by the engine (:mod:`unnoise.engine`).

1. Smooth profiles and mixtures of few point masses are joined by their evidence. Call the result g.
   ``smooth`` is the average of the smooth ones alone, and ends here.
2. g is a law from which counts might have been drawn; the answer is about these very cells. A cell with noisy count v
   then has count t with probability g[t]·K[v,t]/(K g)[v], so their expected profile is
   f[t] = g[t]·Σ_v y[v]·K[v,t]/(K g)[v]: one step of EM, which restores what was observed on scales coarser than the
   noise and leaves g's shape on finer ones.
3. Cells outside the body (:mod:`unnoise.engine.banded`) stay at their noisy counts.
4. d times the cumulative curve is rounded to integers: a median of the number of cells below t is one.

Where one noise leaves no body, or no model converged, the answer is ``likelihood``'s, else ``isotonic``'s, and
``diagnostics["fallback"]`` says why; of several noises the cells are taken as they are.

*One noise*: all runs together through the banded channel, every count by itself; points are looked for where the
maximum-likelihood profile has its masses. *Several*: each run by itself through the Fourier channel, counts taken from
the run's first, in blocks: single counts at first and then as wide as half the noise, or wider so that there are at
most MOST_BLOCKS. That channel also serves intervals by the model at any power: one run of counts from 0 upwards, which
ends where cells become so sparse that each is seen by itself; the cells above it are only numbered. Of a
sampled domain a share s of the items has a cell: only these take the step towards the cells, the others follow the law,
N/s − N of them for N cells, in profile and intervals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ..arrays import Floats, Int64
from ..engine.banded import BandedChannel, body_of, dense_runs, window_of
from ..engine.channel import (
    FARTHEST,
    USUAL,
    Blocks,
    begun,
    convolve,
    convolve_valid,
    likely_strides,
    one_thread,
    resolved,
)
from ..engine.fourier import FINENESS, NEGLIGIBLE, FourierChannel, Part, lattice, on_lattice, row_ends, told_apart
from ..engine.points import Places, likely_points
from ..engine.posterior import Posterior, posterior
from ..engine.search import BEHIND, Search, average, find_models, weights
from ..errors import ConvergenceError
from ..noise import DiscreteLaplace
from ..noisy import NoisyProfile, cells_between
from .isotonic import isotonic
from .likelihood import likelihood
from .methods import Fit, check_input

__all__ = [
    "KnownCells", "KnownLaw", "LawPiece", "auto", "body_law", "cell_law_of", "known_law", "likely_masses",
    "posterior_profile", "smooth", "whole_cells",
]  # fmt: skip

HEAD, MOST_BLOCKS = 64, 256
"""Counts with a block of their own, and blocks at most above them."""

MOST_ROWS = 600
"""Rows of a run at most: two to a block."""

LONGEST = 1 << 18
"""Counts of all runs together at most: the length of a transform that takes a few milliseconds."""

SELDOM = 10
"""A posterior ends at USUAL, at FARTHEST where more than one cell of SELDOM lies above it, or at the noise's reach."""

ROUNDING = 1e-8
"""Cells expected in a row beside those of the law: above what a transform rounds, far below what any cell is worth."""

LEAST = 3
"""Multiples that a run goes on for at least, so that a walk can start on it."""

MOST_RUNS = 6
"""Runs that are modelled, those with most cells; the cells of the others stay as they are."""

WITHIN_WALKS = 1 / 3
"""Share of a single mass at 0, one for any other: walks lead there, too, ever steeper or with 0 apart and next to
nothing beyond, so it is three times in the prior. (With a whole share no item is found in 500 cells where 25 hold one,
as long as the noise can hide them.)"""

_FITTED: WeakKeyDictionary[NoisyProfile, dict[tuple[object, ...], LawPiece | None]] = WeakKeyDictionary()
"""Runs fitted, while their noisy profile lives: a profile and its intervals ask for the same one."""


def auto(noisy: NoisyProfile, *, max_count: int | None = None) -> Fit:
    """Return the profile of these cells: models weighed by evidence, then one step towards the cells.

    No mass is put above ``max_count``, a bound that truly holds for every count. ``diagnostics`` holds the ``models``
    averaged with their weights, the numbers of ``fits`` and of fits ``not_converged`` (left out), the extent of the
    body, and ``fallback``: None, or why another method was used.

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
    support, cells = law.profile(noisy.cells / noisy.items)
    mass = whole_cells(cells / noisy.cells, noisy.items)
    kept = mass > 0
    reason = None if law.pieces else "the cells are too few or too far apart: they are taken as they are"
    notes = {"power": str(noisy.noise.power), **law.describe(), "fallback": reason}
    return Fit(support[kept], mass[kept], "auto", notes)


def smooth(noisy: NoisyProfile, *, max_count: int | None = None) -> Fit:
    """Return the average of smooth profiles, weighed by evidence; arguments and diagnostics as of :func:`auto`.

    Raises ConvergenceError where the cells are too few for a body, or no model converged.

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
    support, cells = law.profile(0.0)
    return Fit(support, cells / cells.sum(), "smooth", {"power": str(noisy.noise.power), **law.describe()})


def whole_cells(mass: Floats, items: int) -> Floats:
    """Round the cumulative curve to whole items, of which every one has a cell or, in a sample, might have.

    >>> whole_cells(np.array([0.26, 0.5, 0.24]), 4).tolist()
    [0.25, 0.5, 0.25]
    """
    curve = np.rint(np.cumsum(mass) * items)
    curve[-1] = items
    return np.asarray(np.diff(np.minimum(curve, items), prepend=0.0) / items)


def _fallback(noisy: NoisyProfile, bound: int | None, reason: str) -> Fit:
    """Return ``likelihood``'s profile, or ``isotonic``'s, and say why."""
    try:
        fit = likelihood(noisy, max_count=bound)
    except ConvergenceError as error:
        fit = isotonic(noisy, max_count=bound)
        reason = f"{reason}; {error}"
    return Fit(fit.support, fit.mass, fit.method, {**fit.diagnostics, "fallback": reason})


# ── the cells of a domain ───────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, eq=False)
class LawPiece:
    """Counts that were modelled together, and the number of cells among them.

    search, names : what was tried; the models averaged, and their weights
    law, stepped : cells at each count by the averaged models, and one step of EM from there
    posterior : what is known of the items beside, where a run went through the Fourier channel
    """

    counts: Int64
    cells: int
    search: Search
    names: Sequence[tuple[str, float]]
    law: Floats
    stepped: Floats
    posterior: Posterior | None = None


@dataclass(frozen=True, eq=False)
class KnownCells:
    """A noisy profile in pieces, and the cells outside them at their noisy counts."""

    pieces: tuple[LawPiece, ...]
    far_values: Int64
    far_tally: Int64

    def profile(self, share: float) -> tuple[Int64, Floats]:
        """Return counts and the number of cells at each, or of items for as many: ``share`` of the items has a cell.

        Of these the cells tell more than the averaged law of a piece, by one step of EM; all others follow the law.
        """
        counts = [self.far_values, *(piece.counts for piece in self.pieces)]
        told = [share * piece.stepped + (1 - share) * piece.law for piece in self.pieces]
        cells = [self.far_tally.astype(float), *told]
        support, where = np.unique(np.concatenate(counts), return_inverse=True)
        numbers = np.bincount(where, weights=np.concatenate(cells), minlength=support.size)
        keep = numbers > 0
        return support[keep].astype(np.int64), np.asarray(numbers[keep])

    def describe(self) -> dict[str, Any]:
        """What the searches have to say."""
        found = max(self.pieces, key=lambda piece: piece.cells, default=None)
        models = [] if found is None else found.names
        tally = {
            name: sum(getattr(piece.search, name) for piece in self.pieces)
            for name in ("fits", "iterations", "not_converged", "uncertified")
        }
        return {
            "converged": True,
            "body_counts": sum(piece.counts.size for piece in self.pieces),
            "body_runs": sum(int((np.diff(piece.counts) > 1).sum()) + 1 for piece in self.pieces),
            "far_cells": int(self.far_tally.sum()),
            "models": [(name, round(weight, 4)) for name, weight in models if weight >= 1e-3],
            **tally,
        }


def cell_law_of(noisy: NoisyProfile, bound: int | None, *, points: bool = True) -> KnownCells:
    """Fit the body of a noisy profile; cells far from others, or without a model that converges, stay as they are."""
    values = np.clip(noisy.values, 0, bound)
    fitted: list[LawPiece] = []
    strides = (*likely_strides(noisy.values, noisy.tally, noisy.noise), 1)
    for low, high in _runs(noisy, bound, strides[0]) if noisy.noise.power > 1 or len(strides) > 1 else ():
        run = fit_run(noisy, low, high, bound, strides, points=points)
        if run is not None:
            fitted.append(run)
            strides = (run.search.channel.grid.stride,)  # what the largest run is told by goes for the others
    stride = strides[-1]
    if noisy.noise.power == 1 and stride == 1:
        return body_law(noisy, bound, points=points) or KnownCells((), values, noisy.tally)
    inside = np.isin(values, np.concatenate([values[:0], *(run.counts for run in fitted)]))
    far = (values[~inside] + stride // 2) // stride * stride  # to the next multiple, and none above the bound
    far = far if bound is None else np.minimum(far, bound // stride * stride)
    return KnownCells(tuple(fitted), far, noisy.tally[~inside])


# ── one noise ───────────────────────────────────────────────────────────────────────────────────────────────────────


def body_law(noisy: NoisyProfile, bound: int | None, *, points: bool = True) -> KnownCells | None:
    """Fit the body of a noisy profile of one noise; None where there is none, or no model converges."""
    body = body_of(noisy, bound)
    if body is None:
        return None
    channel = BandedChannel(body, noisy.noise)
    even = np.full(channel.counts.size, 1 / channel.counts.size)
    search = Search(channel, begun(channel, even), math.log(even[0]))
    search.walks()
    if points:
        places = Places(channel.counts, 0, 1.0, search.level)
        likely = likely_masses(noisy, bound, channel.counts)
        found = likely_points(channel, likely, places, search.most - BEHIND)
        search.add(*(one if one.places.any() else replace(one, log_weight=one.log_weight + math.log(WITHIN_WALKS))
                     for one in found))  # fmt: skip
    if not search.models:
        return None
    weight = weights(search.models)
    laws = np.zeros((weight.size, channel.counts.size))
    for each, model in zip(laws, search.models):
        each[slice(None) if model.family else np.searchsorted(channel.counts, model.places)] = model.mass
    laws /= laws.sum(axis=1, keepdims=True)
    masses = average(laws, weight, [model.family is None for model in search.models])
    names = sorted(zip([model.name for model in search.models], weight.tolist()), key=lambda each: -each[1])
    law, cells = masses / masses.sum(), int(body.tally.sum())
    whole = LawPiece(body.counts, cells, search, names, cells * law, cells * posterior_profile(channel, law))
    return KnownCells((whole,), body.far_values, body.far_tally)


def posterior_profile(channel: BandedChannel, g: Floats) -> Floats:
    """Expected profile of the channel's cells if their counts were drawn from g; g if no noise can explain them."""
    f = g * np.maximum(channel.pull(channel.at(g)), 0.0)
    total = f.sum()
    return np.asarray(f / total) if 0 < total < np.inf else g


def likely_masses(noisy: NoisyProfile, bound: int | None, counts: Int64) -> Floats:
    """Maximum-likelihood masses at the body's counts, adding up to 1; zeros where it did not converge."""
    masses = np.zeros(counts.size)
    try:
        fit = likelihood(noisy, max_count=bound, tolerance=1e-7)
    except ConvergenceError:
        return masses
    inside = np.isin(fit.support, counts)
    masses[np.searchsorted(counts, fit.support[inside])] = fit.mass[inside]
    return masses / masses.sum() if masses.any() else masses


# ── any number of noises ────────────────────────────────────────────────────────────────────────────────────────────


def _runs(noisy: NoisyProfile, bound: int | None, stride: int) -> list[list[int]]:
    """Return the runs to model, largest number of cells first; no two are nearer than LEAST multiples and one."""
    window, (folded, tally) = max(window_of(noisy.noise), (LEAST + 1) * stride), noisy.folded(bound)
    runs = dense_runs(folded, tally, window, limit=LONGEST)
    runs[runs[:, 0] <= window, 0] = 0
    cells = cells_between(folded, np.append(0, np.cumsum(tally)), *runs.T)
    most = np.argsort(-cells, kind="stable")[:MOST_RUNS]
    chosen: list[list[int]] = runs[most].tolist()
    return chosen


def fit_run(
    noisy: NoisyProfile, low: int, high: int, bound: int | None, strides: tuple[int, ...], *, points: bool = True
) -> LawPiece | None:
    """Fit one run of counts, low..high, once for law and intervals; None if it holds no cell, or no model converges.

    strides : what all counts may be multiples of, the smallest last
    """
    known = _FITTED.setdefault(noisy, {})
    wanted = low, high, bound, strides, points
    if wanted not in known:
        known[wanted] = _fit_run(noisy, low, high, bound, strides, points=points)
    return known[wanted]


def _fit_run(
    noisy: NoisyProfile, low: int, high: int, bound: int | None, strides: tuple[int, ...], *, points: bool
) -> LawPiece | None:
    noise, values = noisy.noise, np.clip(noisy.values, 0, bound)
    low -= low % strides[0]
    top = max(high - low, LEAST * strides[0])
    top = top if bound is None else min(top, bound - low)
    inside = (values >= low) & (values <= low + top)
    if not inside.any():
        return None
    seen, tally = noisy.values[inside] - low, noisy.tally[inside]
    part = Part.of(seen, tally, _rows(seen, noise, top, strides[0], at_zero=low == 0), 1.0)
    channels = [FourierChannel(_blocks(top, noise, stride), (part,), noise, collide=False, origin=low, bound=bound)
                for stride in strides]  # fmt: skip
    cells, blocks = part.cells, channels[-1].blocks
    counts = told_apart(np.append(blocks.first, np.rint(blocks.centres).astype(np.int64)), noise)
    starts = [_start(each, cells) for each in channels]
    places = np.arange(top + 1) if points and strides[-1] == 1 else None
    search = find_models(channels, starts, float(cells), counts, places)
    if search.best is None:
        return None
    found = posterior(search, lambda each: _start(each, cells), noisy.items / noisy.cells - 1)
    law = found.per_count(0, top)
    stepped = _stepped(law, part, noise)
    law, stepped = law * (cells / law.sum()), stepped * (cells / stepped.sum())
    return LawPiece(low + np.arange(top + 1), cells, search, found.weights, law, stepped, found)


def _start(channel: FourierChannel, cells: int) -> Floats:
    """Return θ after some steps of EM from even masses."""
    return begun(channel, channel.widths * (cells / channel.widths.sum()))


def _stepped(law: Floats, part: Part, noise: DiscreteLaplace) -> Floats:
    """One step of EM count by count; the law itself if no noise can explain the cells."""
    unit, counts = lattice(noise), np.arange(law.size)
    noise = on_lattice(noise, unit)
    at_points: Floats = np.bincount((counts + unit // 2) // unit, weights=law).astype(float)
    reach = noise.reach(NEGLIGIBLE)
    pmf = noise.pmf(np.arange(-reach, reach + 1))
    row = np.searchsorted(part.ends // unit, np.arange(-reach, at_points.size + reach))
    seen = np.maximum(convolve(at_points, pmf), 0.0)
    rows = np.bincount(row, weights=seen, minlength=part.tally.size) + ROUNDING
    pull = np.maximum(convolve_valid((part.tally / rows)[row], pmf), 0.0)
    pulled = law * np.interp(counts / unit, np.arange(pull.size), pull)
    return pulled if pulled.sum() > 0 else law


def _blocks(top: int, noise: DiscreteLaplace, stride: int) -> Blocks:
    """Single counts up to HEAD, then blocks of equal width up to ``top``; all of them ``stride`` times."""
    top //= stride
    head = min(HEAD, top)
    width = max(resolved(noise, stride), math.ceil((top - head) / MOST_BLOCKS))
    starts = np.concatenate([np.arange(head + 1), np.arange(head + 1, top + 1, width), [top + 1]])
    return Blocks.covering(np.unique(starts).astype(np.int64), stride)


def _rows(seen: Int64, noise: DiscreteLaplace, top: int, stride: int, *, at_zero: bool) -> Int64:
    """Rows of equal width; below 0 they go as far as noise is likely to, for one noise they begin at 0."""
    low = 0 if noise.power == 1 or not at_zero else -noise.reach(1e-4)
    high = max(top, int(seen[-1]))
    step = max(1, int(math.sqrt(noise.variance) / FINENESS), math.ceil((high - low) / MOST_ROWS / stride))
    return row_ends(np.append(np.arange(low, high + 1, step), high), lattice(noise))


# ── the posterior of a domain, for intervals ────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, eq=False)
class KnownLaw:
    """The averaged models of the counts 0..top; ``share`` of the items has a cell, ``above`` items lie higher."""

    posterior: Posterior
    top: int
    share: float
    above: float


@one_thread
def known_law(noisy: NoisyProfile, max_count: int | None = None) -> KnownLaw | None:
    """Return the posterior of the items of a domain; None where no model converged."""
    last = _last(noisy) if max_count is None else min(_last(noisy), max_count)
    run = fit_run(noisy, 0, last, max_count, (*likely_strides(noisy.values, noisy.tally, noisy.noise), 1))
    if run is None or run.posterior is None:
        return None
    share = noisy.cells / noisy.items
    above = float(noisy.cells - run.cells) / share
    return KnownLaw(run.posterior, run.counts.size - 1, share, above)


def _last(noisy: NoisyProfile) -> int:
    """Where the cells become sparse: the end of the last dense run, within USUAL, FARTHEST or the noise's reach."""
    runs = dense_runs(*noisy.folded(), window_of(noisy.noise))
    many = noisy.tally[noisy.values > USUAL].sum() > noisy.cells / SELDOM
    longest = max(FARTHEST if many else USUAL, noisy.noise.reach(1e-4))
    return max(3, int(np.minimum(runs[runs[:, 0] <= longest, 1], longest).max(initial=0)))
