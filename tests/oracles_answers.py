"""Slow oracles for the interval code, written differently: brute force, loops and direct sums."""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy import stats


@cache
def accepted_intervals(level: float) -> list[tuple[float, float, float]]:
    """μ and the interval of x accepted for it, by brute force: rank every x by likelihood ratio, for a grid of μ."""
    xs = np.linspace(-8, 14, 22_001)
    step, best = xs[1] - xs[0], np.exp(-((xs - np.maximum(xs, 0)) ** 2) / 2)
    accepted = []
    for mu in np.linspace(0, 9, 901):
        density = np.exp(-((xs - mu) ** 2) / 2) / np.sqrt(2 * np.pi)
        order = np.argsort(-density / best, kind="stable")
        kept = xs[order[: int(np.searchsorted(np.cumsum(density[order]) * step, level)) + 1]]
        accepted.append((float(mu), float(kept.min()), float(kept.max())))
    return accepted


def unified_limits(x: float, level: float) -> tuple[float, float]:
    """Feldman–Cousins limits for μ ≥ 0: the first and the last μ that accept x."""
    accepted = [mu for mu, first, last in accepted_intervals(level) if first <= x <= last]
    return min(accepted), max(accepted)


def binomial_limit(successes: int, q: float, alpha: float) -> int:
    """Largest n with P(Bin(n, q) ≤ successes) > alpha, by counting up."""
    n = successes
    while stats.binom.cdf(successes, n + 1, q) > alpha:
        n += 1
    return n


def holds_between(hits: int, trials: int, least: float, most: float, alarm: float = 1e-9) -> bool:
    """Whether hits out of independent trials are compatible with a coverage in least..most."""
    too_few = stats.binom.cdf(hits, trials, least) < alarm
    too_many = stats.binom.sf(hits - 1, trials, most) < alarm
    return not (too_few or too_many)
