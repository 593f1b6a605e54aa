"""Slow, differently written counterparts of what collisions.py and items.py compute."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np


def log_series(series: list[Fraction]) -> list[Fraction]:
    """Coefficients 1, 2, … of log(series) by the recurrence k·g₀·l_k = k·g_k − Σ_{0<j<k} j·l_j·g_{k−j}, exactly."""
    result = [Fraction(0)]
    for k in range(1, len(series)):
        cross = sum((j * result[j] * series[k - j] for j in range(1, k)), Fraction(0))
        result.append((k * series[k] - cross) / (k * series[0]))
    return result


def brute_law(rates: dict[int, float], terms: int, most: int = 40) -> np.ndarray:
    """P(total = s) for independent Poisson(rates[t]) items of each count t, by enumeration."""
    law = np.zeros(terms)
    options = [[(t * n, math.exp(-r) * r**n / math.factorial(n)) for n in range(most)] for t, r in rates.items()]
    for combination in itertools.product(*options):
        total = sum(value for value, _ in combination)
        if total < terms:
            law[total] += math.prod(chance for _, chance in combination)
    return law


def throw_law(counts: list[int], cells: int, terms: int) -> list[Fraction]:
    """Exact law of one cell when each item falls into one of ``cells`` cells: Π (1 − 1/m + z^c/m)."""
    law = [Fraction(1)] + [Fraction(0)] * (terms - 1)
    for count in counts:
        moved = [law[s - count] if s >= count else Fraction(0) for s in range(terms)]
        law = [(1 - Fraction(1, cells)) * stay + Fraction(1, cells) * move for stay, move in zip(law, moved)]
    return law


def dense_rows(law: np.ndarray, pmf, ends: np.ndarray) -> np.ndarray:
    """Probability of each row of noisy counts, by a dense double sum; ``pmf`` is a function of the noise."""
    def chance(lo: int, hi: int) -> float:
        shift = np.arange(lo, hi + 1)[:, None] - np.arange(law.size)[None, :]
        return float((pmf(shift) * law[None, :]).sum())

    edges = [-400, *ends.tolist()]
    rows = [chance(lo + 1, hi) for lo, hi in itertools.pairwise(edges)]
    return np.array([*rows, 1 - sum(rows)])
