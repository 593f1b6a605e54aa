"""Every estimator on data whose truth is known.

True counts get noise (seeded: data whose truth is known have no secrets left), every estimator reconstructs the
profile, and the errors are set side by side: ℓ1 = Σ|f̂ − f|, the earth-mover distance W1 = Σ|F̂ − F|, and how far
the number of distinct items and the total are off.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..arrays import Int64
from ..baselines import BASELINES
from ..checks import check_choice, check_integer
from ..errors import InputError, UnnoiseError
from ..estimators.falling import falling
from ..estimators.methods import METHODS, Fit
from ..noise import DiscreteLaplace, Exact
from ..noisy import NoisyProfile, tally
from .advise import simulated_curve
from .profile import Profile
from .reconstruct import reconstruct
from .simulate import draw_noisy_profile, errors

__all__ = ["Comparison", "Result", "compare"]


OTHERS = ("direct", *(name for name in BASELINES if name not in METHODS))
"""Systems that look at the true counts themselves: only where they are named."""

MOST = 1 << 61
"""Largest true count: with its noise it must stay below 2⁶²."""

LP_RANGE = 1000
"""The linear program is dense: beyond this range of counts it is left out."""


@dataclass(frozen=True, eq=False)
class Result:
    """What one estimator did: mean errors over the repetitions, seconds, its last profile, or why there is none."""

    method: str
    l1: float = float("nan")
    w1: float = float("nan")
    distinct: float = float("nan")
    total: float = float("nan")
    seconds: float = float("nan")
    profile: Profile | None = None
    failure: str = ""


@dataclass(frozen=True, eq=False)
class Comparison:
    """The results of all estimators, with the truth they are measured against."""

    results: tuple[Result, ...]
    values: Int64
    how_many: Int64
    epsilon: float
    repetitions: int
    truth: Mapping[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the table as plain Python."""
        keys = ("method", "l1", "w1", "distinct", "total", "seconds", "failure")
        rows = [{key: getattr(result, key) for key in keys} for result in self.results]
        return {"epsilon": self.epsilon, "repetitions": self.repetitions, "truth": dict(self.truth), "results": rows}

    def plot(self, path: str, *, new: bool = False) -> None:
        """Draw the errors of every estimator, and the profiles of the first beside the truth; ``new``: over no file."""
        from .plots import plot_comparison

        plot_comparison(self, path, new=new)


def compare(
    counts: Any,
    *,
    epsilon: Exact | None,
    how_many: Any = None,
    domain: int | None = None,
    methods: Sequence[str] | None = None,
    repetitions: int = 1,
    seed: int = 0,
    step: Callable[[int, int], None] | None = None,
) -> Comparison:
    """Run estimators on true counts with noise of ε.

    Parameters
    ----------
    counts : integers ≥ 0, one per item; or distinct counts when ``how_many`` says how many items have each
    domain : size of the domain, where it is larger than the items given: the others have count 0
    methods : names of estimators, all by default; also "direct" and the systems of :mod:`unnoise.baselines`
    repetitions : noisy releases that the errors are means of
    step : told, after every reconstruction, how many are done and how many there are

    Examples
    --------
    >>> found = compare([1, 1, 2, 5, 0, 0, 3, 1], epsilon=1, methods=["isotonic", "linear"])
    >>> [result.method for result in found.results]
    ['isotonic', 'linear']
    """
    check_integer("repetitions", repetitions, 1)
    values, cells = _truth(counts, how_many, domain)
    law = DiscreteLaplace(epsilon)  # type: ignore[arg-type]
    chosen = list(methods) if methods else [m for m in METHODS if m != "lp" or values[-1] <= LP_RANGE]
    for method in chosen:
        check_choice("method", method, (*sorted(METHODS), *OTHERS))
    rng = np.random.default_rng(seed)
    releases = [draw_noisy_profile(values, cells, law, rng) for _ in range(repetitions)]
    results = []
    for index, method in enumerate(chosen):
        results.append(_run(method, _telling(releases, step, index, len(chosen)), values, cells, rng))
    truth = {"distinct": float(cells[values > 0].sum()), "total": float(values @ cells.astype(float))}
    return Comparison(tuple(results), values, cells, float(law.epsilon), repetitions, truth)


def _truth(counts: Any, how_many: Any, domain: int | None) -> tuple[Int64, Int64]:
    """Return distinct true counts, ascending, and how many items have each."""
    values = np.asarray(counts, dtype=np.int64)
    if values.size == 0 or values.min() < 0 or values.max() > MOST:
        raise InputError("true counts must be integers between 0 and 2^61, and at least one")
    if how_many is None:
        values, cells = tally(values)
    else:
        order = np.argsort(values, kind="stable")
        values, where = np.unique(values[order], return_inverse=True)
        cells = np.bincount(where, weights=np.asarray(how_many)[order]).astype(np.int64)
        values, cells = values[cells > 0], cells[cells > 0]
    missing = 0 if domain is None else domain - int(cells.sum())
    if missing < 0:
        raise InputError(f"domain must be at least the number of items {int(cells.sum()):,}, got {domain:,}")
    if missing and values[0] == 0:
        cells[0] += missing
    elif missing:
        values, cells = np.append(0, values), np.append(missing, cells)
    return values.astype(np.int64), cells.astype(np.int64)


def _telling(
    releases: Sequence[NoisyProfile], step: Callable[[int, int], None] | None, turn: int, turns: int
) -> Iterator[NoisyProfile]:
    """Yield the releases of one turn and tell when each is done with."""
    for index, noisy in enumerate(releases):
        yield noisy
        if step is not None:
            step(turn * len(releases) + index + 1, turns * len(releases))


def _answer(
    method: str, noisy: NoisyProfile, values: Int64, cells: Int64, rng: np.random.Generator
) -> Profile:
    """Reconstruct noisy cells, or let a system that needs a trusted holder look at the true counts."""
    if method in METHODS:
        return reconstruct(noisy, method=method, norm=METHODS[method].norm)
    law, whole = noisy.noise, int(cells.sum())
    if method == "direct":
        some = values > 0
        curve = simulated_curve(values[some], cells[some], float(law.epsilon), rng)
        support, items = falling(curve)
    else:
        released = BASELINES[method](np.repeat(values, cells), law.epsilon)
        support, items = released.support, released.items
    rest = max(whole - float(items.sum()), 0.0)
    mass = np.append(rest, items) / (rest + float(items.sum()))
    return Profile.from_fit(Fit(np.append(0, support), mass, method), noisy)


def _run(
    method: str, releases: Iterable[NoisyProfile], values: Int64, cells: Int64, rng: np.random.Generator
) -> Result:
    """Reconstruct every release with one estimator and average its errors."""
    found = []
    profile = None
    total = float(values @ cells.astype(float))
    distinct = float(cells[values > 0].sum())
    for noisy in releases:
        start = time.perf_counter()
        try:
            profile = _answer(method, noisy, values, cells, rng)
        except UnnoiseError as error:
            return Result(method, failure=" ".join(str(error).split()))
        seconds = time.perf_counter() - start
        off = errors(profile, values, cells)
        reached = float((profile.mass * profile.items)[profile.support > 0].sum())
        added = float((profile.mass * profile.items) @ profile.support)
        distinct_off, total_off = abs(reached - distinct) / max(distinct, 1), abs(added - total) / max(total, 1)
        found.append((off["l1"], off["w1"], distinct_off, total_off, seconds))
    l1, w1, distinct_off, total_off, seconds = (float(x) for x in np.mean(found, axis=0))
    return Result(method, l1, w1, distinct_off, total_off, seconds, profile)
