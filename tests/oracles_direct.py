"""Slow, plain versions of the direct model: counting with Counter, boxes stair by stair, sequences by listing them."""

from __future__ import annotations

from collections import Counter

import numpy as np


def profile_of(items: list, times: list[int] | None = None) -> dict[int, int]:
    """{count: how many items have it}, one row at a time, in whole numbers without end."""
    counted: Counter = Counter()
    for item, k in zip(items, times or [1] * len(items)):
        counted[item] += k
    return dict(Counter(min(h, 1 << 62) for h in counted.values() if h > 0))


def boxes_by_hand(profile: dict[int, int], first: list[int], last: list[int], top: int) -> list[int]:
    """Boxes of columns and rows by their definition, one step of the staircase after the other."""
    items: Counter = Counter()
    for h, n in profile.items():
        items[min(h, top)] += n
    stairs, rank = [], 0  # (first rank, last rank, count), the largest count first
    for h in sorted(items, reverse=True):
        stairs.append((rank + 1, rank + items[h], h))
        rank += items[h]
    columns, rows, before = [], [], 0
    for a, b in zip(first, last):
        above = b // 8
        columns.append(sum((end - max(begin, above + 1) + 1) * (min(h, b) - a + 1)
                           for begin, end, h in stairs if end > above and h >= a))  # fmt: skip
        if above > before:  # ranks that begin to have boxes of their own here
            rows.append(sum((min(end, above) - max(begin, before + 1) + 1) * (h - a + 1)
                            for begin, end, h in stairs if begin <= above and end > before and h >= a))  # fmt: skip
        before = above
    return [min(n, 1 << 62) for n in [*columns, *rows]]


def items_by_block(profile: dict[int, int], first: list[int], last: list[int]) -> list[int]:
    """Items with a count in each block; what lies above the last block counts as its end."""
    items = [(min(h, last[-1]), n) for h, n in profile.items()]
    return [min(sum(n for h, n in items if a <= h <= b), 1 << 62) for a, b in zip(first, last)]


def likeliest_descents(noisy: list[int], epsilon: float, floors: list[int], ends: np.ndarray, most: int) -> np.ndarray:
    """Return the law of every x_i of a falling sequence floors[i] ≤ x_i ≤ most, under a flat prior, by listing all.

    A sequence of n entries has the weight e^ends[n] besides; the law of x_i sums to the chance that there is one.
    """
    from itertools import combinations_with_replacement

    law, whole = np.zeros((len(noisy), most + 1)), float(np.exp(ends[0]))
    for n in range(1, len(noisy) + 1):
        for x in combinations_with_replacement(range(most, -1, -1), n):
            if all(value >= least for value, least in zip(x, floors)):
                weight = np.exp(ends[n] - epsilon * sum(abs(a - b) for a, b in zip(x, noisy)))
                whole += weight
                for i, value in enumerate(x):
                    law[i, value] += weight
    return law / whole
