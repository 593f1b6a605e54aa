"""What an ε buys, before any of it is spent.

:func:`plan` draws a data set of the guessed shape and noise upon it, reconstructs it and answers, a few times over:
the errors and interval widths it reports are those of the real method on such data, not bounds. (The bounds that
hold for every data set are in :mod:`unnoise.bounds`.) Cells of equal count are drawn together, by a multinomial, so
the time of a plan follows the number of different counts rather than the number of cells.

Errors compare the reconstructed profile f̂ with the true f: ℓ1 = Σ|f̂ − f|, ℓ2, ℓ∞, and the earth-mover distance W1 =
Σ_t |F̂(t) − F(t)| (F the cumulative profile), the mean error of the sorted counts.

Given a ``target`` and without ε (or without cells), the smallest ε (number of cells) that reaches it is found by
bisection on the logarithm, at common random numbers, and rounded up to two digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np

from ..arrays import Int64
from ..checks import check_integer, check_number
from ..errors import InputError
from ..estimators.methods import check_method
from ..noise import DiscreteLaplace, Exact, exact_positive
from ..noisy import NoisyProfile, combine
from .estimate import number
from .profile import Profile
from .questions import DISTINCT, TOTAL, at_least, exactly
from .reconstruct import reconstruct
from .shapes import shape_text, shaped

__all__ = ["Plan", "draw_noisy_profile", "errors", "plan"]


METRICS = ("l1", "l2", "linf", "w1")
QUESTIONS = {q.name: q for q in (exactly(1), DISTINCT, at_least(2), at_least(5), at_least(10), TOTAL)}
"""What a plan tells the interval of, by name."""
EPSILONS = (0.01, 20.0)
CELLS = (10, 10**9)
CLOSE = 0.02
"""How closely ε or the number of cells is sought, in log."""
TAIL = 1e-13
"""Noise beyond the reach of this probability is left out of the drawing."""


@dataclass(frozen=True)
class Plan:
    """What to expect of an ε, a number of cells and a guessed shape.

    errors : mean error of the reconstructed profile, by metric: l1, l2, linf, w1
    widths : mean half-width of the 95 % interval in items, by answer
    truths : the true answers for the guessed shape, to set the widths against
    target : metric and the error it should not exceed, or None
    repetitions : number of simulated releases behind each figure
    """

    epsilon: float
    cells: int
    shape: str
    method: str
    errors: Mapping[str, float]
    widths: Mapping[str, float]
    truths: Mapping[str, float]
    target: tuple[str, float] | None
    repetitions: int

    @property
    def reached(self) -> bool:
        """Whether the target is met; True without one."""
        return self.target is None or self.errors_and_widths[self.target[0]] <= self.target[1]

    @property
    def errors_and_widths(self) -> dict[str, float]:
        """Everything a target may name: the errors, and the half-widths relative to their answers."""
        relative = {name: self.widths[name] / max(self.truths[name], 1.0) for name in self.widths}
        return {**self.errors, **relative}

    def __str__(self) -> str:
        names = {"l1": "ℓ1", "l2": "ℓ2", "linf": "ℓ∞", "w1": "earth mover W1"}
        lines = [
            f"Plan: ε = {self.epsilon:g}, {self.cells:,} cells, shape {self.shape}, method {self.method}",
            "expected error of the profile   " + ",  ".join(f"{names[m]} {self.errors[m]:.3g}" for m in METRICS),
            "expected 95 % intervals",
        ]
        for name in QUESTIONS:
            truth, width = self.truths[name], self.widths[name]
            share = f"  ({100 * width / truth:.2g} %)" if truth > 0 else ""
            lines.append(f"  {name:<12}{number(float(round(truth))):>15} ± {number(_short(width))}{share}")
        if self.target is not None:
            metric, value = self.target
            word = "reached" if self.reached else "NOT reached"
            lines.append(f"target {names.get(metric, metric)} ≤ {value:g}: {word}")
        return "\n".join(lines)

    __repr__ = __str__

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain Python."""
        return {
            "epsilon": self.epsilon, "cells": self.cells, "shape": self.shape, "method": self.method,
            "errors": dict(self.errors), "widths": dict(self.widths), "truths": dict(self.truths),
            "target": self.target, "reached": self.reached, "repetitions": self.repetitions,
        }


def _short(x: float) -> float:
    return float(round(x)) if x >= 10 else float(f"{x:.2g}")


def plan(
    *,
    epsilon: Exact | None = None,
    cells: int | None = None,
    shape: Any = 2.0,
    target: float | Mapping[str, float] | None = None,
    method: str = "auto",
    repetitions: int = 5,
    seed: int = 0,
    step: Callable[[int, int], None] | None = None,
) -> Plan:
    """Say what error and interval widths to expect, or which ε or number of cells a target needs.

    Parameters
    ----------
    epsilon : number or str, optional
        ε; left out, the smallest one that reaches ``target`` is sought.
    cells : int, optional
        Number of cells (items of the domain); left out, the smallest number that reaches ``target`` is sought.
    shape : number, str, mapping, array or Profile
        The guess: a power-law exponent such as 2.2, a name such as "poisson:5", "geometric:20", "uniform:200",
        "normal:30" (with 70 % zeros) or "ones", or a profile: ``{t: share}``, ``f[0], f[1], …`` or a Profile.
    target : float or mapping, optional
        The ℓ1 error to reach, or one of ``{"l1": …}``, "l2", "linf", "w1", or the half-width of an interval
        relative to its answer: "distinct", "total", "exactly 1", "at least 2", "at least 5", "at least 10".
    method : str
        The estimator, as for :func:`unnoise.answers.reconstruct`.
    repetitions : int
        Simulated releases behind each figure.
    seed : int
        Of the simulation only: a plan has no secrets.
    step : callable, optional
        Told, after every simulated release, how many are done and how many there will be.

    Examples
    --------
    >>> p = plan(epsilon=1, cells=10_000, shape="poisson:5", method="isotonic")
    >>> 0.05 < p.errors["l1"] < 0.5
    True
    >>> plan(cells=10_000, shape="ones", target=0.05, method="isotonic").reached
    True
    """
    check_method(method)
    check_integer("repetitions", repetitions, 1)
    goal = _check_target(target)
    fixed_cells = None if cells is None else check_integer("cells", cells, 1, 10**15)
    fixed_epsilon = None if epsilon is None else float(exact_positive("epsilon", epsilon))

    once = fixed_epsilon is not None and fixed_cells is not None
    ends = CELLS if fixed_cells is None else EPSILONS
    releases = repetitions * (1 if once else 1 + math.ceil(math.log2(math.log(ends[1] / ends[0]) / CLOSE)))
    done = count(1)

    def attempt(eps: float, d: int) -> Plan:
        tell = None if step is None else lambda: step(next(done), releases)
        return _simulate(eps, d, shape, method, goal, repetitions, seed, tell)

    if fixed_epsilon is not None and fixed_cells is not None:
        return attempt(fixed_epsilon, fixed_cells)
    if goal is None or (fixed_epsilon is None and fixed_cells is None):
        raise InputError(
            "plan must have epsilon and cells, or a target and one of them, got "
            f"epsilon={epsilon}, cells={cells}, target={target}"
        )
    if fixed_cells is not None:
        known = fixed_cells
        return _search(lambda eps: attempt(_two_digits(eps), known), EPSILONS, "epsilon", goal)
    given = fixed_epsilon
    assert given is not None
    return _search(lambda d: attempt(given, int(_two_digits(d))), CELLS, "cells", goal)


def _check_target(target: Any) -> tuple[str, float] | None:
    if target is None:
        return None
    pairs = list(target.items()) if isinstance(target, Mapping) else [("l1", target)]
    name, value = pairs[0] if len(pairs) == 1 else ("", None)
    name = {"seen once": "exactly 1"}.get(name, name)
    if name not in (*METRICS, *QUESTIONS):
        raise InputError(f"target must name one of {', '.join((*METRICS, *QUESTIONS))}, got {target!r}")
    return str(name), check_number("target", value)


def _two_digits(x: float) -> float:
    """Round up to two significant digits.

    >>> _two_digits(0.1234), _two_digits(1201)
    (0.13, 1300.0)
    """
    unit = 10.0 ** (math.floor(math.log10(x)) - 1)
    return float(f"{math.ceil(x / unit - 1e-9) * unit:.6g}")


def _search(
    attempt: Callable[[float], Plan], ends: tuple[float, float], name: str, goal: tuple[str, float]
) -> Plan:
    """Find the smallest x in ``ends`` whose plan reaches the goal, by bisection on log x until it is close."""
    low, high = math.log(ends[0]), math.log(ends[1])
    best = attempt(ends[1])
    if not best.reached:
        value = best.errors_and_widths[goal[0]]
        raise InputError(
            f"target must be reachable with {name} ≤ {ends[1]:g}: {goal[0]}={goal[1]:g} was asked, "
            f"{value:.3g} is what {name}={ends[1]:g} gives"
        )
    while high - low > CLOSE:
        middle = (low + high) / 2
        trial = attempt(math.exp(middle))
        if trial.reached:
            best, high = trial, middle
        else:
            low = middle
    return best


def _simulate(
    epsilon: float, cells: int, shape: Any, method: str, goal: tuple[str, float] | None, repetitions: int, seed: int,
    tell: Callable[[], None] | None,
) -> Plan:  # fmt: skip
    """Release and reconstruct a data set of the shape a few times; average errors and widths."""
    law = DiscreteLaplace(epsilon)
    rng = np.random.default_rng(seed)
    found: dict[str, list[float]] = {name: [] for name in (*METRICS, *QUESTIONS)}
    for _ in range(repetitions):
        values, how_many = shaped(shape, cells, rng)
        profile = reconstruct(draw_noisy_profile(values, how_many, law, rng), method=method)
        for name, error in errors(profile, values, how_many).items():
            found[name].append(error)
        for name, question in QUESTIONS.items():
            estimate = question.ask(profile)
            found[name].append((estimate.high - estimate.low) / 2)
        if tell is not None:
            tell()
    mean = {name: float(np.mean(numbers)) for name, numbers in found.items()}
    truth = shaped(shape, cells)
    return Plan(
        epsilon, cells, shape_text(shape), method,
        {name: mean[name] for name in METRICS}, {name: mean[name] for name in QUESTIONS},
        {name: question.truth(*truth) for name, question in QUESTIONS.items()}, goal, repetitions,
    )


def draw_noisy_profile(
    values: Int64, how_many: Int64, law: DiscreteLaplace, rng: np.random.Generator
) -> NoisyProfile:
    """Draw the noisy profile of cells with known counts: a simulation, neither secret nor private."""
    reach = law.reach(TAIL)
    common = how_many > 2 * reach
    grid = np.arange(-reach, reach + 1)
    pmf = law.pmf(grid)
    pmf = pmf / pmf.sum()
    rare = np.repeat(values[~common], how_many[~common])
    noise = grid[np.searchsorted(np.cumsum(pmf)[:-1], rng.random(rare.size), side="right")]
    pairs = [(rare + noise, np.ones(rare.size, dtype=np.int64))]
    for value, cells in zip(values[common].tolist(), how_many[common].tolist()):
        drawn = rng.multinomial(cells, pmf)
        pairs.append(((value + grid)[drawn > 0], drawn[drawn > 0]))
    points, tally = combine(pairs)
    return NoisyProfile.from_tally(points, tally, noise=law)


def errors(profile: Profile, values: Int64, how_many: Int64) -> dict[str, float]:
    """ℓ1, ℓ2, ℓ∞ and W1 between a reconstructed profile and the true one.

    >>> noisy = NoisyProfile.from_counts([0, 2], epsilon=1)
    >>> guess = Profile(np.array([0, 2]), np.array([0.5, 0.5]), "by hand", noisy)
    >>> errors(guess, np.array([0, 3]), np.array([1, 1]))
    {'l1': 1.0, 'l2': 0.7071067811865476, 'linf': 0.5, 'w1': 0.5}
    """
    support = np.union1d(profile.support, values)
    gap = np.zeros(support.size)
    gap[np.searchsorted(support, profile.support)] += profile.mass
    gap[np.searchsorted(support, values)] -= how_many / how_many.sum()
    w1 = float(np.abs(np.cumsum(gap)[:-1]) @ np.diff(support))
    size = np.abs(gap)
    return {"l1": float(size.sum()), "l2": float(np.sqrt(gap @ gap)), "linf": float(size.max()), "w1": w1}
