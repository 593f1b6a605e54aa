"""A free check of the claimed noise: what any honest histogram must look like, whatever its data.

Two facts hold for every data set with counts h ≥ 0, so that testing them costs no privacy and needs no truth.

*Geometric below zero* (ρ = 1). A noisy count at or below 0 is there through the tail of the noise, and that tail is
memoryless: given h + Z ≤ 0, the depth k = −(h + Z) has P(k) = (1−a)·a^k for every h ≥ 0. Of n such cells the
total depth S is negative binomial NB(n, 1−a): an exact two-sided test of the *rate* (a wrong ε; S = 0 when the
input was clamped). Pearson's χ² on the depths, bins pooled to an expected 25, tests the *shape* (another law: rounded
continuous Laplace noise has too few zeros where true zeros abound, Gaussian noise decays too fast).

*No cliffs* (every ρ ≥ 1). The mean noisy profile m satisfies a ≤ m(v−1)/m(v) ≤ 1/a, since the noise does. If y cells
hold v and none holds its neighbour, the chance of that is at most (1+a)^−y. A cliff above a value ≥ 1 means that small
counts were suppressed (thresholding), at 0 that negative ones were clamped.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import numpy as np
from scipy import special

from ..arrays import Int64
from ..errors import ClaimWarning
from ..noisy import NoisyProfile

__all__ = ["ALARM", "Check", "Cliff", "check_claim", "find_cliffs", "warn_of"]

ALARM = 1e-6
"""The check warns when its p-value falls below this: one false alarm in a million honest releases."""

CLIFF_ALARM = 1e-9
"""A cliff less likely than this is taken as a fact."""

POOLED = 25
"""Expected number of cells per bin of the shape test."""


@dataclass(frozen=True)
class Check:
    """What the cells at or below zero say about the claimed ε.

    available : False for ρ > 1, where the tail is not memoryless
    cells : number of cells at or below 0
    epsilon : the claimed ε
    apparent : the ε these cells look like, log(1 + n/S); infinite when none is below 0
    rate, shape : the two p-values
    verdict : "as claimed", "wrong rate", "wrong law", "clamped" or why there is none
    p_value : the smaller p-value, doubled because there are two tests
    """

    available: bool
    cells: int
    epsilon: float
    apparent: float
    rate: float
    shape: float
    verdict: str
    p_value: float = 1.0


@dataclass(frozen=True)
class Cliff:
    """``cells`` cells hold ``value`` and none holds ``value + side``."""

    value: int
    side: int
    cells: int
    p_value: float


def check_claim(noisy: NoisyProfile) -> Check:
    """Test the cells at or below zero against geometric(a).

    >>> rng = np.random.default_rng(1)
    >>> honest = rng.geometric(1 - np.exp(-1), 10**5) - rng.geometric(1 - np.exp(-1), 10**5)
    >>> check_claim(NoisyProfile.from_counts(honest, epsilon=1)).verdict
    'as claimed'
    >>> check_claim(NoisyProfile.from_counts(honest, epsilon=0.9)).verdict
    'wrong rate'
    """
    epsilon = float(noisy.noise.epsilon)
    if noisy.noise.power != 1:
        return Check(False, 0, epsilon, math.nan, 1.0, 1.0, "not available for merged noise (power above 1)")
    upto = int(np.searchsorted(noisy.values, 0, side="right"))
    depth, tally = -noisy.values[:upto][::-1], noisy.tally[:upto][::-1]
    n = int(tally.sum())
    if n == 0:
        return Check(True, 0, epsilon, math.nan, 1.0, 1.0, "no cell at or below 0 to judge by")
    total = float(depth @ tally.astype(float))
    below = special.betainc(n, total + 1, 1 - noisy.noise.a)  # P(S ≤ total) for the total depth S of NB(n, 1−a)
    above = special.betainc(total, n, noisy.noise.a) if total > 0 else 1.0  # P(S ≥ total)
    rate, shape = float(min(1.0, 2 * min(below, above))), _shape(depth, tally, noisy.noise.a)
    apparent = math.log1p(n / total) if total > 0 else math.inf
    p_value = min(1.0, 2 * min(rate, shape))
    verdict = "clamped" if total == 0 else "wrong rate" if rate <= shape else "wrong law"
    return Check(True, n, epsilon, apparent, rate, shape, "as claimed" if p_value >= ALARM else verdict, p_value)


def _shape(depth: Int64, tally: Int64, a: float) -> float:
    """p-value of Pearson's χ² with the depths pooled into bins of at least POOLED expected cells."""
    n = float(tally.sum())
    edges = [0]
    while n * a ** edges[-1] >= 2 * POOLED:
        # the next bin ends where it holds POOLED cells: a^e − a^f ≥ POOLED/n
        left = a ** edges[-1] - POOLED / n
        edges.append(max(edges[-1] + 1, math.ceil(math.log(left) / math.log(a) - 1e-9)))
    if n * a ** edges[-1] < POOLED and len(edges) > 1:
        edges.pop()
    if len(edges) < 2:
        return 1.0
    tails = a ** np.array(edges, dtype=float)
    expected = n * (tails - np.append(tails[1:], 0))
    seen = np.bincount(np.searchsorted(edges, depth, side="right") - 1, weights=tally, minlength=len(edges))
    return float(special.chdtrc(len(edges) - 1, ((seen - expected) ** 2 / expected).sum()))


def find_cliffs(noisy: NoisyProfile) -> list[Cliff]:
    """Return the places where the noisy profile breaks off faster than its noise allows."""
    values, tally = noisy.values, noisy.tally
    gap = np.diff(values) > 1
    found = []
    for side, open_side in ((-1, np.append(True, gap)), (1, np.append(gap, True))):
        for i in np.flatnonzero(open_side):
            log_p = -float(tally[i]) * math.log1p(noisy.noise.a) + math.log(2 * values.size)
            if log_p < math.log(CLIFF_ALARM):
                found.append(Cliff(int(values[i]), side, int(tally[i]), math.exp(max(log_p, -700))))
    return found


def warn_of(check: Check) -> None:
    """Raise a :class:`ClaimWarning` that says what is wrong with a claim whose p-value is below ALARM."""
    head = f"the {check.cells:,} noisy counts at or below 0 do not look like noise of epsilon={check.epsilon:g}"
    tail = {
        "clamped": "none of them is negative, so the input was clamped at 0: pass clipped=True",
        "wrong rate": f"they decay like epsilon={check.apparent:.3g}",
        "wrong law": "their shape is not geometric: rounded continuous Laplace and Gaussian noise are other laws",
    }[check.verdict]
    warnings.warn(f"{head}: {tail} (p = {check.p_value:.1e})", ClaimWarning, stacklevel=3)
