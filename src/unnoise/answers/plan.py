"""What an ε buys, before any of it is spent.

:func:`plan` simulates what will be run (:mod:`unnoise.answers.simulate`: kind of sketch, load, levels, merges, cap),
reconstructs it and answers, a few times over: the errors and interval widths it reports are those of the real method
on such data, not bounds. (The bounds that hold for every data set are in :mod:`unnoise.bounds`.) Every figure is a mean
over simulated releases and comes with its Monte-Carlo standard error.

Errors compare the reconstructed profile f̂ with the true f: ℓ1 = Σ|f̂ − f|, ℓ2, ℓ∞, and the earth-mover distance W1 =
Σ_t |F̂(t) − F(t)| (F the cumulative profile), the mean error of the sorted counts.

**A target is a promise about releases**, not about the mean: at least ``PROMISED`` of those of the setting are within
it, and that is ``SURE``, whatever the law of their errors. It is put to Wald's sequential test [1]_ with fresh seeds:
every release within the target multiplies the evidence for it by h/p, every other one by (1−h)/(1−p), p = ``PROMISED``
and h = ``HOPED``. If fewer than p of the releases are within the target, the evidence never grows on average, and ever
exceeds c with probability at most 1/c; the target is promised where it exceeds 1/(1 − ``SURE``), and given up below
1/``DOUBTED``.

Given a target and without ε (or without cells), the smallest likely ε (number of cells) is found by bisection on the
logarithm, at common random numbers, and rounded up to two digits: likely is where the prediction limit for one more
release, e^(m + t·s·√(1 + 1/n)) with m and s mean and standard deviation of the n simulated logarithms and t Student's
quantile at ``LIKELY``, is within the target. What luck made look likely the test refuses; it is raised by ``RAISED``
and tested again. The j-th candidate must have 2^j times the evidence, so that all tests together err no more often
than one. The figures are those of the fresh seeds. Hashed sketches have powers of two, and more cells are not always
better (each has its noise): sizes are tried upwards, one after the other, until one passes the test or ``WORSE`` in a
row were worse than the best. Without target and cells, the size is sought that tells the number of items best: from
where items that share cells are as loud as the noise (:func:`unnoise.layout.enough_cells`) on to twice as many cells
while that makes its interval narrower by ``WORTH``, or to half while it does not.

.. [1] A. Wald, "Sequential tests of statistical hypotheses", Ann. Math. Statist. 16 (1945) 117–186.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

import numpy as np
from scipy.special import stdtrit

from ..arrays import Floats
from ..checks import check_choice, check_integer, check_number
from ..errors import InputError, OverloadError, UnnoiseWarning
from ..estimators.methods import check_method
from ..layout import hashed_layout
from ..noise import Exact, exact_positive
from .estimate import KINDS as INTERVALS
from .estimate import number, percent
from .questions import DISTINCT, TOTAL, at_least, exactly
from .reconstruct import reconstruct
from .simulate import KINDS, MOST_HASHED, Setting, errors, shape_text

__all__ = ["Plan", "plan"]

METRICS = ("l1", "l2", "linf", "w1")
NAMES = {"l1": "ℓ1", "l2": "ℓ2", "linf": "ℓ∞", "w1": "earth mover W1"}
QUESTIONS = {q.name: q for q in (exactly(1), DISTINCT, at_least(2), at_least(5), at_least(10), TOTAL)}
"""What a plan tells the interval of, by name."""
EPSILONS = (0.01, 20.0)
CELLS = (10, 10**9)
CLOSE = 0.05
"""How closely ε or the number of cells is sought, in log."""
PROMISED, SURE = 0.8, 0.95
"""Share of releases that a reached target is promised for, and how sure that is."""
HOPED, DOUBTED, MOST = 0.95, 5, 100
"""Share that a test for ``PROMISED`` hopes for, evidence against it that ends the test, and its longest run."""
LIKELY = 0.9
"""Level of the prediction limit by which a candidate is found."""
RAISED, CONFIRMATIONS = 1.2, 8
"""Factor by which a refused candidate is raised, and how many are tested."""
WORSE = 2
"""Sizes of a hashed sketch in a row that must be worse than the best before larger ones are given up."""
WORTH = 1.05
"""Times an interval must be wider to be worth twice the cells: about what a few simulated releases can tell."""
FEWEST = 4
"""Simulated releases from which a prediction can be made."""


@dataclass(frozen=True)
class Plan:
    """What to expect of a setting.

    errors : mean error of the reconstructed profile, by metric: l1, l2, linf, w1
    widths : mean half-width of the 95 % interval in items, by answer
    truths : the true answers for the guessed shape, to set the widths against
    doubt : Monte-Carlo standard error of every one of these means, as a share of it
    expected : for every name a target may have, what one more release will not exceed, LIKELY of the time
    target : metric and the error it should not exceed, or None
    within : share of the simulated releases within the target; 1 without one
    reached : whether the target is promised: SURE that at least PROMISED of the releases are within; true without one
    refused : share of the simulated releases that would have been refused as overloaded
    intervals : the kind of interval the widths are of
    repetitions : number of simulated releases behind each figure
    tried : where the number of cells was sought without a target: sizes tried, each with the half-width of the interval
        of distinct there, relative to it
    """

    setting: Setting
    method: str
    errors: Mapping[str, float]
    widths: Mapping[str, float]
    truths: Mapping[str, float]
    doubt: Mapping[str, float]
    expected: Mapping[str, float]
    target: tuple[str, float] | None
    within: float
    reached: bool
    refused: float
    intervals: str
    repetitions: int
    tried: Mapping[int, float] = field(default_factory=dict)

    @property
    def epsilon(self) -> float:
        """ε of each sketch."""
        return self.setting.epsilon

    @property
    def cells(self) -> int:
        """Number of cells."""
        return self.setting.cells

    @property
    def assumptions(self) -> list[str]:
        """What the figures rest on, in plain words."""
        doubt = max(self.doubt.values(), default=0.0)
        drawn = f"{self.repetitions} simulated releases: every mean is uncertain by up to {percent(doubt)}"
        return [*self.setting.assumptions(), f"95 % intervals of kind {self.intervals}", drawn]

    def __str__(self) -> str:
        s = self.setting
        lines = [
            f"Plan: ε = {s.epsilon:g}, {s.cells:,} cells, shape {shape_text(s.shape)}, method {self.method}",
            "expected error of the profile   " + ",  ".join(f"{NAMES[m]} {self.errors[m]:.3g}" for m in METRICS),
            "expected 95 % intervals",
        ]
        for name in QUESTIONS:
            truth, width = self.truths[name], self.widths[name]
            share = f"  ({percent(width / truth)})" if truth > 0 else ""
            lines.append(f"  {name:<12}{number(float(round(truth))):>15} ± {number(_short(width))}{share}")
        if self.refused:
            lines.append(f"{100 * self.refused:.0f} % of the releases would be refused as overloaded")
        if self.target is not None:
            metric, value = self.target
            held = f"{round(self.within * self.repetitions)} of {self.repetitions} simulated releases are within"
            word = "promised" if self.reached else "NOT promised"
            sure = f"for {100 * PROMISED:.0f} % of the releases, {100 * SURE:.0f} % sure"
            lines.append(f"target {NAMES.get(metric, metric)} ≤ {value:g}: {word} {sure} ({held})")
        if self.tried:
            widths = ", ".join(f"{number(cells)} ± {percent(width)}" for cells, width in sorted(self.tried.items()))
            lines.append(f"distinct by cells: {widths}")
        return "\n".join([*lines, "assuming", *(f"  {text}" for text in self.assumptions)])

    __repr__ = __str__

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain Python."""
        s = self.setting
        return {
            "kind": s.kind, "epsilon": s.epsilon, "cells": s.cells, "items": s.items, "levels": s.levels,
            "merges": s.merges, "cap": s.cap, "shape": shape_text(s.shape), "method": self.method,
            "intervals": self.intervals, "errors": dict(self.errors), "widths": dict(self.widths),
            "truths": dict(self.truths), "doubt": dict(self.doubt), "expected": dict(self.expected),
            "target": self.target, "reached": self.reached, "within": self.within, "refused": self.refused,
            "repetitions": self.repetitions, "tried": dict(self.tried), "assumptions": self.assumptions,
        }  # fmt: skip


def _short(x: float) -> float:
    return float(round(x)) if x >= 10 else float(f"{x:.2g}")


def plan(
    *,
    epsilon: Exact | None = None,
    cells: int | None = None,
    shape: Any = 2.0,
    target: float | Mapping[str, float] | None = None,
    kind: str = "known",
    items: int | None = None,
    levels: int = 1,
    merges: int = 1,
    cap: int | None = None,
    method: str = "auto",
    intervals: str | None = None,
    repetitions: int = 10,
    seed: int = 0,
    step: Callable[[int, int], None] | None = None,
) -> Plan:
    """Say what error and interval widths to expect, or which ε or number of cells a target needs.

    Parameters
    ----------
    epsilon : number or str, optional
        ε; left out, the smallest one that keeps to ``target`` is sought.
    cells : int, optional
        Number of cells, a power of two where hashed; left out, the smallest that keeps to ``target`` is sought, or,
        hashed and without a target, the one that tells the number of items best.
    shape : number, str, mapping, array or Profile
        The guess: a power-law exponent such as 2.2, a name such as "poisson:5", "geometric:20", "uniform:200",
        "normal:30" (with 70 % zeros) or "ones", or a profile: ``{t: share}``, ``f[0], f[1], …`` or a Profile.
    target : float or mapping, optional
        The ℓ1 error that four releases in five shall not exceed, or one of ``{"l1": …}``, "l2", "linf", "w1", or the
        half-width of an interval relative to its answer: "distinct", "total", "exactly 1", "at least 2", "at least 5",
        "at least 10".
    kind : str
        "known", "hashed" or "sampled".
    items : int, optional
        Hashed: distinct items (as many as cells if left out, a load of 1). Sampled: items of the domain.
    levels, merges : int
        Levels of a hashed sketch; how many sketches are added up, each with its own noise.
    cap : int, optional
        A bound that holds for every count, and that the estimator is told.
    method : str
        The estimator, as for :func:`unnoise.answers.reconstruct`.
    intervals : str, optional
        The kind of interval whose widths are told, "robust" or "model"; the profile's own if left out.
    repetitions : int
        Simulated releases behind each figure; a search takes half as many at every step, a promise as many as it needs
        (18 to 100).
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
    check_choice("kind", kind, KINDS)
    if intervals is not None:
        check_choice("intervals", intervals, INTERVALS)
    run = _Run(_check_target(target), method, intervals, check_integer("repetitions", repetitions, 1), seed, step)
    fixed_cells = _check_cells(cells, kind, levels)
    fixed_epsilon = None if epsilon is None else float(exact_positive("epsilon", epsilon))
    known = {
        "kind": kind, "shape": shape, "levels": check_integer("levels", levels, 1, 64 if kind == "hashed" else 1),
        "merges": check_integer("merges", merges, 1, 10**4),
        "cap": None if cap is None else check_integer("cap", cap, 1),
    }  # fmt: skip
    many = _check_items(items, kind)

    def setting(eps: float, d: int) -> Setting:
        return Setting(epsilon=eps, cells=d, items=many or d, **known)

    if fixed_epsilon is not None and fixed_cells is not None:
        run.releases = repetitions if run.goal is None else max(repetitions, _fewest(0))
        return run.simulate(setting(fixed_epsilon, fixed_cells), repetitions, fresh=True)
    if kind == "hashed" and fixed_epsilon is not None and run.goal is None and many is not None:
        return run.narrowest(setting(fixed_epsilon, levels), _sizes(levels, many))
    if run.goal is None or (fixed_epsilon is None and fixed_cells is None):
        raise _incomplete({"epsilon": epsilon, "cells": cells, "target": target})
    if fixed_cells is not None:
        given_cells = fixed_cells
        return run.search(lambda eps: setting(_two_digits(eps), given_cells), EPSILONS, "epsilon")
    given = fixed_epsilon
    assert given is not None
    if kind == "hashed":
        return run.climb([setting(given, size) for size in _sizes(levels, many)])
    ends = CELLS[0], min(CELLS[1], many or CELLS[1])
    return run.search(lambda d: setting(given, int(_two_digits(d))), ends, "cells")


def _incomplete(told: Mapping[str, object]) -> InputError:
    """Say what is missing, in view of what was told."""
    given = ", ".join(name for name, value in told.items() if value is not None) or "none of these"
    return InputError(
        "plan must have epsilon and cells, or a target and one of them, or epsilon and the items of a hashed sketch, "
        f"got {given}"
    )


def _check_items(items: Any, kind: str) -> int | None:
    """Return the number of items, where it is given and not that of the cells."""
    if items is None:
        return None
    if kind == "known":
        raise InputError("items must be left out for the kind known, a cell for each; the kind hashed takes them")
    return check_integer("items", items, 1, 10**15)


def _check_cells(cells: Any, kind: str, levels: int) -> int | None:
    """Return the cells of all levels, where their number is given; sketches that hash have powers of two."""
    if cells is None:
        return None
    given = check_integer("cells", cells, 1, 10**15)
    return hashed_layout(given, levels, hash_seed=0).cells if kind == "hashed" else given


def _sizes(levels: int, items: int | None) -> list[int]:
    """Return the numbers of cells among which a plan looks for a hashed sketch: loads of 20 to 1/10, or of 1.

    >>> _sizes(1, 1000)
    [64, 128, 256, 512, 1024, 2048, 4096, 8192]
    """
    most = 10 * min(items, MOST_HASHED) if items else MOST_HASHED
    fewest = max(CELLS[0] * levels, (items or 1) / 20)
    return [levels << bits for bits in range(64) if fewest <= levels << bits <= most] or [levels << 4]


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


@dataclass
class _Run:
    """One call of :func:`plan`: what is asked, and how far it has come."""

    goal: tuple[str, float] | None
    method: str
    intervals: str | None
    repetitions: int
    seed: int
    step: Callable[[int, int], None] | None
    releases: int = 0

    def __post_init__(self) -> None:
        self.done = count(1)

    def search(self, setting: Callable[[float], Setting], ends: tuple[float, float], name: str) -> Plan:
        """Find the smallest x in ``ends`` whose setting is likely to reach the goal, and test it with fresh seeds."""
        assert self.goal is not None
        few = max(self.repetitions // 2, FEWEST)
        low, high = math.log(ends[0]), math.log(ends[1])
        self.releases = few * (1 + math.ceil(math.log2((high - low) / CLOSE)))
        best = self.simulate(setting(ends[1]), few)
        if not self.likely(best):
            raise InputError(
                f"target must be reachable with {name} ≤ {ends[1]:g}: {self.goal[0]}={self.goal[1]:g} was asked, "
                f"{best.expected[self.goal[0]]:.3g} is what {name}={ends[1]:g} gives"
            )
        while high - low > CLOSE:
            middle = (low + high) / 2
            if self.likely(self.simulate(setting(math.exp(middle)), few)):
                high = middle
            else:
                low = middle
        for turn in range(1, CONFIRMATIONS + 1):
            x = min(math.exp(high) * RAISED ** (turn - 1), ends[1])
            found = self.confirm(setting(x), turn)
            if found.reached or x == ends[1]:
                break
        return found

    def climb(self, settings: Sequence[Setting]) -> Plan:
        """Return the first of some settings, ever larger, that is likely to reach the goal and keeps to it."""
        assert self.goal is not None
        goal, few = self.goal, max(self.repetitions // 2, FEWEST)
        self.releases = few * len(settings)
        best, cells, behind, turn = math.inf, 0, 0, 0
        for setting in settings:
            tried = self.simulate(setting, few)
            if self.likely(tried):
                turn += 1
                tried = self.confirm(setting, turn)
            if tried.reached:
                return tried
            expected = tried.expected[goal[0]]
            behind = behind + 1 if expected > best else 0
            if expected < best:
                best, cells = expected, setting.cells
            if behind == WORSE:
                break
        which = f"{best:.3g} is the best there is, with cells={cells}" if best < math.inf else "every size overflows"
        raise InputError(f"target must be reachable at this epsilon: {goal[0]}={goal[1]:g} was asked, {which}")

    def narrowest(self, setting: Setting, sizes: Sequence[int]) -> Plan:
        """Return the plan of the size, of some ever larger ones, whose interval of distinct is narrowest."""
        few, many = max(self.repetitions // 2, FEWEST), max(self.repetitions, FEWEST)
        self.releases = 4 * few + many
        tried: dict[int, float] = {}

        def width(at: int) -> float:
            if not 0 <= at < len(sizes):
                return math.inf
            found = self.simulate(replace(setting, cells=sizes[at]), few)
            tried[sizes[at]] = found.widths[DISTINCT.name] / found.truths[DISTINCT.name]
            return tried[sizes[at]]

        best = guess = int(np.searchsorted(sizes[1:], setting.likely_cells, side="left"))
        narrowest = width(best)
        while (wider := width(best + 1)) < narrowest / WORTH:
            best, narrowest = best + 1, wider
        while best <= guess and width(best - 1) < WORTH * min(tried.values()):
            best -= 1
        found = self.simulate(replace(setting, cells=sizes[best]), many, fresh=True)
        return replace(found, tried=dict(sorted(tried.items())))

    def likely(self, tried: Plan) -> bool:
        """Whether one more release is likely to reach the goal."""
        assert self.goal is not None
        name, value = self.goal
        return tried.expected[name] <= value

    def confirm(self, setting: Setting, turn: int) -> Plan:
        """Return the plan of a candidate, the ``turn``-th, put to the test with fresh seeds."""
        self.releases += max(self.repetitions, _fewest(turn))
        return self.simulate(setting, self.repetitions, fresh=True, turn=turn)

    def simulate(self, setting: Setting, repetitions: int, *, fresh: bool = False, turn: int = 0) -> Plan:
        """Release and reconstruct data of the shape a few times; with fresh seeds, until the goal is decided."""
        rng, found = np.random.default_rng([self.seed, 1 + turn] if fresh else [self.seed]), _Found(setting)
        while found.releases < repetitions or (fresh and self._kept(found, turn) is None):
            self._release(found, rng)
            if self.step is not None:
                done = next(self.done)
                self.step(done, max(done, self.releases))
        return self._plan(found, fresh and self._kept(found, turn) is True)

    def _release(self, found: _Found, rng: np.random.Generator) -> None:
        """Draw a release, reconstruct it and ask it everything."""
        release = found.setting.draw(rng)
        found.releases += 1
        try:
            profile = reconstruct(release.noisy, method=self.method, max_count=found.setting.cap)
            profile = profile if self.intervals is None else profile.with_intervals(self.intervals)
        except OverloadError:
            found.refused += 1
            return
        with warnings.catch_warnings():  # what the data of a simulation are like is no news to anybody
            warnings.simplefilter("ignore", UnnoiseWarning)
            estimates = {name: question.ask(profile) for name, question in QUESTIONS.items()}
        halves = {name: (estimate.high - estimate.low) / 2 for name, estimate in estimates.items()}
        for name, size in {**errors(profile, release.values, release.how_many), **halves}.items():
            found.numbers[name].append(size)
        found.kind = estimates[DISTINCT.name].kind

    def _kept(self, found: _Found, turn: int) -> bool | None:
        """Whether the goal can be promised, by the test of the ``turn``-th candidate; None while undecided."""
        if self.goal is None:
            return True
        evidence = _evidence(found.within(self.goal), found.releases)
        if evidence >= math.log(2**turn / (1 - SURE)):
            return True
        return False if evidence <= -math.log(DOUBTED) or found.releases >= MOST else None

    def _plan(self, found: _Found, reached: bool) -> Plan:
        mean = {name: float(np.mean(numbers)) if numbers else math.inf for name, numbers in found.numbers.items()}
        relative = {name: found.relative(name) for name in found.numbers}
        expected = {name: math.inf if found.refused else _predicted(numbers) for name, numbers in relative.items()}
        within = 1.0 if self.goal is None else found.within(self.goal) / found.releases
        return Plan(
            found.setting, self.method, {name: mean[name] for name in METRICS},
            {name: mean[name] for name in QUESTIONS}, found.truths,
            {name: _doubt(numbers) for name, numbers in relative.items()}, expected, self.goal, within, reached,
            found.refused / found.releases, found.kind, found.releases,
        )  # fmt: skip


@dataclass
class _Found:
    """Errors and half-widths of the simulated releases of a setting, by name; a refused release has none."""

    setting: Setting
    releases: int = 0
    refused: int = 0
    kind: str = "robust"

    def __post_init__(self) -> None:
        truth = self.setting.counts(None)
        self.truths = {name: question.truth(*truth) for name, question in QUESTIONS.items()}
        self.numbers: dict[str, list[float]] = {name: [] for name in (*METRICS, *QUESTIONS)}

    def relative(self, name: str) -> Floats:
        """The numbers as a target has them: half-widths relative to the answer."""
        return np.array(self.numbers[name]) / max(self.truths.get(name, 1.0), 1.0)

    def within(self, goal: tuple[str, float]) -> int:
        """Number of releases within a goal."""
        return int((self.relative(goal[0]) <= goal[1]).sum())


def _evidence(within: int, releases: int) -> float:
    """Log evidence that at least PROMISED of the releases are within the target, when so many of these are.

    Its exponential is 1 on average, or less, where fewer are: a martingale that never exceeds c but once in c times.

    >>> round(PROMISED * math.exp(_evidence(1, 1)) + (1 - PROMISED) * math.exp(_evidence(0, 1)), 12)
    1.0
    """
    missed = releases - within
    return within * math.log(HOPED / PROMISED) + missed * math.log((1 - HOPED) / (1 - PROMISED))


def _fewest(turn: int) -> int:
    """Releases after which the ``turn``-th candidate can be promised, all of them being within.

    >>> _fewest(0), _fewest(1)
    (18, 22)
    """
    return math.ceil(math.log(2**turn / (1 - SURE)) / math.log(HOPED / PROMISED))


def _doubt(numbers: Any) -> float:
    """Standard error of a mean, as a share of it; 1 where it cannot be told."""
    if len(numbers) < 2 or np.mean(numbers) <= 0:
        return 0.0 if len(numbers) and not np.any(numbers) else 1.0
    return float(np.std(numbers, ddof=1) / math.sqrt(len(numbers)) / np.mean(numbers))


def _predicted(numbers: Any) -> float:
    """What one more number like these will not exceed, LIKELY of the time.

    >>> round(_predicted(np.array([1.0, 1.0, 1.0, 1.0])), 9), bool(_predicted(np.array([1.0, 2.0, 1.5, 1.2])) > 2)
    (1.0, True)
    """
    n = len(numbers)
    if n < 2 or np.min(numbers) <= 0:
        return float(np.max(numbers, initial=0.0)) if n else math.inf
    logs = np.log(numbers)
    margin = float(stdtrit(n - 1, LIKELY)) * float(np.std(logs, ddof=1)) * math.sqrt(1 + 1 / n)
    return float(np.exp(np.mean(logs) + margin))
