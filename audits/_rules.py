"""Rules that every answer keeps, whatever comes in: random sketches, and what an answer about them breaks.

:func:`draw` takes a kind (known, hashed, hashed with levels, sampled), a power ρ from 1 to 40, ε from 0.05 to 5, 64 to
2¹⁷ cells and one of the SHAPES, or ρ to 1,000 and ε from 10⁻⁴ to 50, where no float holds what undoes the noise.
:func:`broken` checks: no answer beyond what the cells can hold, no contradiction among values or among intervals,
everything finite, and no interval that misses the truth by more than FARTHEST of its widths.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from unnoise.answers.profile import Profile
from unnoise.answers.reconstruct import reconstruct
from unnoise.errors import OverloadError
from unnoise.estimators.collisions import level_shares
from unnoise.layout import Layout
from unnoise.noise import DiscreteLaplace
from unnoise.noisy import NoisyCounts

SHAPES = ("smooth", "power law", "atoms", "cap", "two clusters", "periodic", "empty", "one giant")
KINDS = ("hashed", "hashed", "levels", "known", "sampled")
FARTHEST = 5.0
"""Widths of its interval by which an answer may miss the truth."""

SLACK = 1e-9
"""Relative rounding that a comparison of two answers may show."""


@dataclass(frozen=True)
class Case:
    """One random sketch: what was drawn, the true counts of the items that occur, and the released cells."""

    kind: str
    power: int
    epsilon: float
    cells: int
    shape: str
    truth: np.ndarray
    noisy: NoisyCounts

    def __str__(self) -> str:
        return f"{self.kind}, ρ = {self.power}, ε = {self.epsilon:.3g}, {self.cells} cells, {self.shape}"


def counts_of(shape: str, items: int, rng: np.random.Generator) -> np.ndarray:
    """Draw the counts of ``items`` items that occur."""
    made = {
        "smooth": lambda: rng.geometric(1 / rng.uniform(1.2, 30), items),
        "power law": lambda: np.minimum(rng.zipf(rng.uniform(1.6, 2.5), items), 10**9),
        "atoms": lambda: rng.choice(rng.integers(1, 200, 3), items),
        "cap": lambda: np.minimum(rng.zipf(1.7, items), int(rng.integers(2, 300))),
        "two clusters": lambda: np.where(rng.random(items) < 0.5, 1, int(rng.integers(5, 3000))),
        "periodic": lambda: int(rng.integers(2, 10)) * rng.geometric(0.3, items),
        "empty": lambda: np.zeros(0, dtype=np.int64),
        "one giant": lambda: np.array([10**12]),
    }[shape]()
    return np.asarray(made, dtype=np.int64)


def noise_of(noise: DiscreteLaplace, size: int, rng: np.random.Generator) -> np.ndarray:
    """Draw noise of a whole power."""
    p = -math.expm1(-float(noise.epsilon))
    power = int(noise.power)
    return rng.negative_binomial(power, p, size) - rng.negative_binomial(power, p, size)


def draw(rng: np.random.Generator, most: int = 17, *, beyond: bool = False) -> Case:
    """Draw a sketch of at most 2^most cells; ``beyond`` what anybody would make."""
    kind = KINDS[int(rng.integers(len(KINDS)))]
    if beyond:
        power, least, largest = int(np.exp(rng.uniform(0, math.log(1000)))), 1e-4, 50.0
    else:
        power, least, largest = 1 if rng.random() < 0.3 else int(rng.integers(1, 41)), 0.05, 5.0
    epsilon = round(float(np.exp(rng.uniform(math.log(least), math.log(largest)))), 4)
    cells = 1 << int(rng.integers(6, most + 1))
    shape = SHAPES[int(rng.integers(len(SHAPES)))]
    noise = DiscreteLaplace(epsilon, power)
    items = max(1, int(cells * np.exp(rng.uniform(math.log(0.02), math.log(3)))))
    if kind in ("known", "sampled"):
        items = min(items, cells)
        truth = counts_of(shape, items, rng)
        totals = np.zeros(cells, dtype=np.int64)
        totals[: truth.size] = truth
        domain = cells if kind == "known" else 3 * cells
        layout = Layout(kind=kind, cells=cells, domain=domain, **({} if kind == "known" else {"hash_seed": 0}))
        truth = truth if kind == "known" else np.repeat(truth, 3)
    else:
        levels = 4 if kind == "levels" else 1
        truth, size = counts_of(shape, items, rng), cells // levels
        level = rng.choice(levels, truth.size, p=level_shares(levels))
        totals = np.zeros(cells, dtype=np.int64)
        np.add.at(totals, level * size + rng.integers(0, size, truth.size), truth)
        layout = Layout(kind="hashed", cells=cells, levels=levels, hash_seed=0)
    noisy = NoisyCounts(totals + noise_of(noise, cells, rng), noise, layout)
    return Case(kind, power, epsilon, cells, shape, truth, noisy)


def broken(case: Case, profile: Profile) -> list[str]:
    """Return the rules that a profile breaks."""
    found: list[str] = []

    def rule(holds: bool, what: str) -> None:
        if not holds:
            found.append(what)

    total, distinct = profile.total, profile.distinct
    scale = abs(total.value) + 1
    if case.kind in ("hashed", "levels"):
        plain = max(0.0, float(case.noisy.counts.astype(float).sum()))
        rule(abs(total.value - plain) <= SLACK * (plain + 1), f"total {total.value:.6g} is not the sum {plain:.6g}")
    occurrences = float(profile.support.astype(float) @ profile.mass) * profile.items
    rule(abs(occurrences - total.value) <= SLACK * scale, f"Σ t·N_t = {occurrences:.6g} is not total {total.value:.6g}")
    rule(distinct.value <= total.value * (1 + SLACK) + SLACK, f"distinct {distinct.value} above total {total.value}")
    ks = [1, 2, 3, 5, 10, 100, 1000]
    above = [profile.at_least(k) for k in ks]
    for k, this, more in zip(ks, above, above[1:]):
        rule(more.value <= this.value * (1 + SLACK) + SLACK, f"at_least rises after {k}")
        for side in ("high", "low"):
            here, there = getattr(this, side), getattr(more, side)
            rule(there <= here * (1 + SLACK) + SLACK, f"{side} of at_least rises after {k}: {here:.6g} to {there:.6g}")
        one = profile.exactly(k)
        rule(one.value <= this.value * (1 + SLACK) + SLACK, f"exactly({k}) above at_least({k})")
    answers = {"total": total, "entropy": profile.entropy, "median": profile.quantile(0.5),
               **{f"at_least({k})": each for k, each in zip(ks, above)}}
    for name, answer in answers.items():
        finite = all(map(math.isfinite, (answer.value, answer.stderr, answer.low, answer.high)))
        rule(finite, f"{name} is not finite: {answer!r}")
        rule(answer.low <= answer.value <= answer.high, f"{name} lies outside its interval: {answer!r}")
        rule(0 <= answer.data_share <= 1, f"{name} has a share of data of {answer.data_share}")
    for k, answer in zip(ks, above):
        true = float((case.truth >= k).sum())
        width = max(answer.high - answer.low, 1.0)
        far = max(answer.low - true, true - answer.high) / width
        rule(far <= FARTHEST, f"at_least({k}) = {answer!r} misses {true:.0f} by {far:.1f} widths")
    return found


def check(case: Case) -> tuple[list[str], bool]:
    """Reconstruct one case; return what broke, and whether its number of items was marked."""
    try:
        profile = reconstruct(case.noisy)
    except OverloadError:
        return [], True
    return broken(case, profile), profile.distinct.marked
