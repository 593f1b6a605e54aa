"""Slow, plain versions of the direct model: counting with Counter, sums count by count, projection by NNLS."""

from __future__ import annotations

from collections import Counter

import numpy as np
from scipy.optimize import nnls


def profile_of(items: list, times: list[int] | None = None) -> dict[int, int]:
    """{count: how many items have it}, one row at a time, in whole numbers without end."""
    counted: Counter = Counter()
    for item, k in zip(items, times or [1] * len(items)):
        counted[item] += k
    return dict(Counter(min(h, 1 << 62) for h in counted.values() if h > 0))


def sums_by_count(profile: dict[int, int], first: list[int], last: list[int], released: str) -> list[int]:
    """Sums over blocks by their definition; what lies above the last block counts as its end."""
    items = [(min(h, last[-1]), n) for h, n in profile.items()]
    if released == "exactly":
        return [min(sum(n for h, n in items if a <= h <= b), 1 << 62) for a, b in zip(first, last)]
    return [min(sum(n * (min(h, b) - a + 1) for h, n in items if h >= a), 1 << 62) for a, b in zip(first, last)]


def falling_projection(means: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """argmin Σ weights·(x − means)² over x that never rise and stay ≥ 0: x = sums of steps ≥ 0, by active sets."""
    sums = np.triu(np.ones((means.size, means.size)))
    scale = np.sqrt(weights)
    return sums @ nnls(scale[:, None] * sums, scale * means)[0]
