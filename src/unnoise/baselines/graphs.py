"""Karwa & Slavković 2012: degrees of a graph that are again degrees of a graph, and a graph that has them.

One edge more changes two degrees by 1: noise of parameter ε/2 on the sorted degrees, isotonic regression, then the
nearest sequence found that is graphical (their Algorithm 2 picks the highest remaining degree, connects it to the next
highest and so peels the sequence, as Havel and Hakimi do). Unit: one edge, that is two occurrences of nodes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import isotonic_regression

from ..arrays import Int64
from ..errors import InputError
from ..noise import Exact
from ._mechanism import Released, from_values, noise

__all__ = ["graphical", "karwa", "karwa_degrees", "synthetic_graph"]


MOST = 5000
"""Nodes above which released degrees are not made graphical: peeling takes the square of their number."""


def karwa_degrees(degrees: Int64, epsilon: Exact) -> Int64:
    """Return released degrees, descending, of a simple graph (up to MOST nodes); their number is public."""
    ordered = np.sort(degrees)[::-1]
    noisy = (ordered + noise(ordered.size, epsilon, 2)).astype(float)
    fitted = isotonic_regression(noisy, increasing=False).x if noisy.size else noisy
    whole = np.clip(np.rint(fitted), 0, max(ordered.size - 1, 0)).astype(np.int64)
    return graphical(whole) if whole.size <= MOST else whole


def karwa(counts: Int64, epsilon: Exact) -> Released:
    """The profile of the released degrees; ε is for one occurrence here, half an edge."""
    from ..noise import exact_positive

    return from_values(karwa_degrees(counts, 2 * exact_positive("epsilon", epsilon)))


def graphical(degrees: Int64) -> Int64:
    """Return degrees of a simple graph near these, descending: by peeling off the highest, stubs that fit nowhere left.

    >>> graphical(np.array([5, 1, 1, 1])).tolist()
    [3, 1, 1, 1]
    """
    left = np.sort(np.asarray(degrees, dtype=np.int64))[::-1].copy()
    kept = np.zeros_like(left)
    order = np.arange(left.size)
    for _ in range(left.size):
        ranked = np.argsort(-left[order], kind="stable")
        order = order[ranked]
        first, others = order[0], order[1:]
        wanted = int(left[first])
        if wanted <= 0:
            break
        partners = others[:wanted][left[others[:wanted]] > 0]
        kept[first] += partners.size
        kept[partners] += 1
        left[partners] -= 1
        left[first] = 0
        order = others
    return np.sort(kept)[::-1]


def synthetic_graph(degrees: Int64) -> Any:
    """Return a networkx graph with exactly these degrees (Havel–Hakimi)."""
    try:
        import networkx
    except ImportError as error:
        raise InputError("a synthetic graph needs networkx: pip install 'unnoise[graphs]'") from error
    return networkx.havel_hakimi_graph([int(d) for d in degrees])
