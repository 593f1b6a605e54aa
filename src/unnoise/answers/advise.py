"""Which model to use: what is possible is a matter of trust and of what must happen later; the rest is computed.

Four ways lead to a private profile. Which of them a situation allows follows from what is said about it:

* **direct**: one trusted holder of all rows, one release. Noise on the profile itself (:mod:`unnoise.curve`);
* **sketch**: kept, updated, merged or sent; k sites that trust nobody add up k noises. Hashed, or one cell per item of
  a known domain;
* **two servers**: k sites that trust two servers not to collude: two noises, whatever k;
* **histogram**: noisy counts were released already. Making the best of them costs nothing.

For every candidate the errors are those of simulated releases of the guessed shape (:mod:`unnoise.answers.simulate`),
with the estimator that would answer: ℓ1 = Σ|N̂_t − N_t|/D and W1 = Σ|Ŝ(t) − S(t)|/D over the D items that occur, and the
relative error of D. Candidates are drawn with the same randomness, release by release, so the mean of their differences
in ℓ1 tells two of them apart: beyond luck where it exceeds its standard error times Student's quantile for that many
releases. Whoever can hold the rows is sent elsewhere only by more than luck.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import stdtrit

from ..arrays import Floats, Int64
from ..checks import check_integer
from ..curve import NoisyCurve, blocks, exact_numbers
from ..errors import OverloadError
from ..estimators.falling import falling
from ..noise import DiscreteLaplace, Exact, exact_positive, tidy
from .estimate import percent
from .reconstruct import reconstruct
from .simulate import Setting

__all__ = ["Advice", "Candidate", "advise", "simulated_curve"]

USELESS = 0.5
"""Relative error of the number of items from which an answer is no answer."""


SURE = 0.975
"""How often a candidate that is no better shall not be found to be so."""

ERRORS = ("l1", "w1", "distinct")
"""What is measured of a release."""

HASHED = ("sketch", "two servers")
"""Candidates that differ in their noises alone."""


@dataclass(frozen=True)
class Candidate:
    """One way, and what to expect of it.

    possible : whether the situation allows it; because : why, or why not
    errors : mean errors l1, w1 and distinct (relative); nan where a release would have been refused
    doubt : standard errors of these means; nan of a single release
    cells : cells of the sketch that the errors are of, None where there is none
    """

    name: str
    trusts: str
    possible: bool
    because: str
    errors: Mapping[str, float]
    cells: int | None = None
    doubt: Mapping[str, float] = field(default_factory=dict)

    def said(self, error: str) -> str:
        """Write a mean error, with its standard error where there is one."""
        doubt = self.doubt.get(error, math.nan)
        return f"{self.errors[error]:.2g}" + ("" if math.isnan(doubt) else f" ± {doubt:.1g}")


@dataclass(frozen=True)
class Advice:
    """Which model to use, a sentence why, and every candidate with its expected errors, means of so many releases."""

    model: str
    why: str
    candidates: tuple[Candidate, ...]
    repetitions: int

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain Python."""
        return asdict(self)

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = [("", "ℓ1", "W1", "distinct", "cells", "trusts", "")]
        for c in self.candidates:
            mark = "→" if c.name == self.model else " " if c.possible else "✗"
            figures = [c.said("l1"), c.said("w1"), f"{percent(c.errors['distinct'])} off"]
            rows.append((f"{mark} {c.name}", *figures, f"{c.cells:,}" if c.cells else "", c.trusts, c.because))
        widths = [max(len(row[i]) for row in rows) for i in range(6)]
        lines = ["  ".join([*(cell.ljust(w) for cell, w in zip(row, widths)), row[6]]).rstrip() for row in rows]
        many = f"means of {self.repetitions} simulated releases, ± their standard errors"
        of = "one simulated release" if self.repetitions == 1 else many
        lines += ["", f"Errors are {of}: more make them steadier."]
        return "\n".join([f"Use {self.model}. {self.why}", "", *lines])


def advise(
    *, epsilon: Exact, items: int, shape: Any = 2.0, trusted: bool = True, sites: int = 1, updates: bool = False,
    published: bool = False, domain: int | None = None, two_servers: bool = False, cells: int | None = None,
    repetitions: int = 3, seed: int = 0, step: Callable[[int, int], None] | None = None,
) -> Advice:  # fmt: skip
    """Say which model to use, and what error to expect of every candidate.

    Parameters
    ----------
    epsilon : ε for one occurrence, of each site
    items : about how many different items occur
    shape : guess of their counts, as in :func:`plan`
    trusted : whether one party that everybody trusts holds all rows
    sites : places that count
    updates : whether the answer is wanted again as rows come in, or later for parts and unions
    published : whether a noisy histogram is out already
    domain : number of items of a domain known beforehand, if there is one
    two_servers : whether two servers that do not collude are at hand
    cells : cells of a hashed sketch, as many as the items need behind the noise of each candidate unless given
    repetitions, seed : of the simulation

    Examples
    --------
    >>> found = advise(epsilon=1, items=2000, repetitions=1)
    >>> found.model, "wrong tool" in found.why
    ('direct', True)
    >>> advise(epsilon=1, items=2000, trusted=False, sites=3, repetitions=1).model
    'sketch'
    """
    check_integer("items", items, 1, 10**7)
    check_integer("sites", sites, 1, 10**4)
    check_integer("repetitions", repetitions, 1)
    law = exact_positive("epsilon", epsilon)
    whole = None if domain is None else max(check_integer("domain", domain, 1, 10**8), items)
    ways = _ways(trusted, sites, updates, published, whole, two_servers)
    found, runs = [], {}
    for index, (name, trusts, possible, because, noises) in enumerate(ways):
        setting = _setting(name, float(law), items, shape, cells, whole, noises)
        # of equals the figures are equal
        runs[name] = np.array([_errs(name, setting, np.random.default_rng((seed, i))) for i in range(repetitions)])
        size = None if name == "direct" else setting.cells
        means, doubt = (dict(zip(ERRORS, each.tolist())) for each in (runs[name].mean(axis=0), _stderr(runs[name])))
        found.append(Candidate(name, trusts, possible, because, means, size, doubt))
        if step is not None:
            step(index + 1, len(ways))
    fit = [c for c, way in zip(found, ways) if _eligible(way, ways)]
    best = min(fit, key=lambda c: (math.isnan(c.errors["l1"]), c.errors["l1"]))
    tells = best.errors["distinct"] <= USELESS and _surely_less(runs[best.name], runs[found[0].name])
    if found[0].possible and not tells:
        best = found[0]  # where nothing tells, errors do not choose: whoever can hold the rows needs no sketch
    return Advice(best.name, _why(best, found, runs, tidy(law)), tuple(found), repetitions)


Way = tuple[str, str, bool, str, int]


def _eligible(way: Way, ways: list[Way]) -> bool:
    """Whether a way is possible, and none of the same kind has fewer noises: that is not for a few releases to tell."""
    rivals = [w for w in ways if w[0] in HASHED and w[2]] if way[0] in HASHED else []
    return way[2] and way[4] <= min((w[4] for w in rivals), default=way[4])


def _ways(
    trusted: bool, sites: int, updates: bool, published: bool, domain: int | None, two_servers: bool
) -> list[Way]:
    """Return name, trust, whether it is possible, why, and the noises it adds up."""
    if published:
        return [("histogram", "nobody", True, "noisy counts are out: making the best of them costs nothing", 1)]
    here = trusted and not updates
    reason = "one holder, one release" if here else (
        "every release would cost ε anew" if trusted else "nobody may hold all rows"
    )
    noises = 1 if trusted else sites
    kept = "can be updated, merged and sent" if noises == 1 else f"sites trust nobody: {noises} noises add up"
    whom = "nobody" if noises == sites else "the holder"
    ways: list[Way] = [("direct", "the holder", here, reason, 1), ("sketch", whom, True, kept, noises)]
    if domain is not None:
        ways.append(("sketch, known domain", whom, True, f"{kept}; no collisions", noises))
    if sites > 1:
        why = "two noises, whatever the number of sites" if two_servers else "needs two servers that do not collude"
        ways.append(("two servers", "that two do not collude", two_servers, why, 2))
    return ways


def _setting(
    name: str, epsilon: float, items: int, shape: Any, cells: int | None, domain: int | None, noises: int
) -> Setting:  # fmt: skip
    """Return what is public of a candidate: cells of a known domain, or as many as the items need behind the noise."""
    hashed = Setting("hashed", epsilon, cells or 1, items, merges=noises, shape=shape)
    if name == "sketch, known domain" or (name == "histogram" and domain is not None):
        return _with_zeros(hashed, domain or items)
    return hashed if cells else replace(hashed, cells=hashed.likely_cells)


def _errs(name: str, setting: Setting, rng: np.random.Generator) -> list[float]:
    """Return the errors of one simulated release, nan where it would have been refused."""
    try:
        if name == "direct":
            counts, number = setting.counts(rng)
            found = falling(simulated_curve(counts, number, setting.epsilon, rng))
        else:
            release = setting.draw(rng)
            some = release.values > 0
            counts, number = release.values[some], release.how_many[some]
            profile = reconstruct(release.noisy)
            occur = profile.support > 0
            found = profile.support[occur], (profile.mass * profile.items)[occur]
    except OverloadError:
        return [math.nan] * len(ERRORS)
    return _errors(found, counts, number)


def _stderr(rows: Floats) -> Floats:
    """Return the standard error of the mean of each column; nan of a single row."""
    few = len(rows) < 2
    return np.full(rows.shape[1], math.nan) if few else rows.std(axis=0, ddof=1) / math.sqrt(len(rows))


def _surely_less(one: Floats, other: Floats) -> bool:
    """Whether the ℓ1 of one is less than that of the other beyond the luck of their common releases.

    >>> luck = np.array([[0.7], [0.8], [0.7]])
    >>> _surely_less(luck, np.array([[0.9], [0.8], [0.8]])), _surely_less(luck, np.array([[1.2], [1.4], [1.2]]))
    (False, True)
    """
    more = other[:, :1] - one[:, :1]
    return bool(more.mean() > stdtrit(max(len(more) - 1, 1), SURE) * _stderr(more)[0])


def _with_zeros(setting: Setting, domain: int) -> Setting:
    """The same items in a domain of which the rest has count 0."""
    counts, number = setting.counts(None)
    law = {0: domain - int(number.sum()), **dict(zip(counts.tolist(), number.tolist()))}
    return Setting("known", setting.epsilon, domain, domain, merges=setting.merges, shape=law)


def simulated_curve(counts: Int64, number: Int64, epsilon: float, rng: np.random.Generator) -> NoisyCurve:
    """A noisy curve of data that nobody has."""
    first, last = blocks()
    columns, rows = exact_numbers(counts, number, first, last, "at_least")
    a, exact = math.exp(-epsilon), np.concatenate([columns, rows])
    noisy = exact + rng.geometric(1 - a, exact.size) - rng.geometric(1 - a, exact.size)
    law, split = DiscreteLaplace(epsilon), first.size
    return NoisyCurve(first, last, noisy[:split].copy(), law, label="simulated", ranks=noisy[split:].copy())


def _errors(found: tuple[Int64, Floats], counts: Int64, number: Int64) -> list[float]:
    """ℓ1, W1 and the relative error of the number of items that occur."""
    at = np.union1d(counts, found[0])
    off = np.zeros(at.size)
    off[np.searchsorted(at, found[0])] += found[1]
    off[np.searchsorted(at, counts)] -= number
    reached = np.abs(np.cumsum(off[::-1])[::-1])
    whole = float(number.sum())
    earth = float(reached @ np.diff(at, prepend=0))
    return [float(np.abs(off).sum()) / whole, earth / whole, float(reached[0]) / whole]


def _why(best: Candidate, found: list[Candidate], runs: Mapping[str, Floats], epsilon: str) -> str:
    """One or two sentences."""
    because = f"{best.because[:1].upper()}{best.because[1:]}"
    words = [f"{because}: expected ℓ1 error {best.said('l1')} at ε = {epsilon}."]
    others = [c for c in found if c is not best and not math.isnan(c.errors["l1"])]
    if best.name == "direct" and others:
        nearest = min(others, key=lambda c: c.errors["l1"])
        times = nearest.errors["l1"] / max(best.errors["l1"], 1e-12)
        luck = "" if _surely_less(runs[best.name], runs[nearest.name]) else ", which may be the luck of so few releases"
        if times > 1:
            more = f"{times:.2g} times as much{luck}"
            words.append(f"A sketch is the wrong tool here: it would err {more}, for what nobody needs.")
        elif not _surely_less(runs[nearest.name], runs[best.name]):
            words.append(f"That a sketch errs {nearest.said('l1')} may be the luck of so few releases.")
    for c in others:
        if not c.possible and c.errors["l1"] < best.errors["l1"] / 1.5 and _surely_less(runs[c.name], runs[best.name]):
            times = best.errors["l1"] / max(c.errors["l1"], 1e-12)
            words.append(f"{c.name} would err {times:.2g} times less, but {c.because}.")
    if math.isnan(best.errors["l1"]):
        words.append("Too many items for these cells: releases would be refused.")
    elif best.errors["distinct"] > USELESS:
        words.append("Even so the number of items is hardly told: more ε, or fewer sites.")
    return " ".join(words)
