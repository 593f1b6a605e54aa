"""A lower bound on ε from outputs on two neighbouring inputs: an event chosen on one half, tested on the other.

What is given are *views*: one row of integers for each run of a mechanism, everything that was seen of it. On the first
half of the runs each column gets a score, log of how much more often its value came from one input than from the
other, and so does the row (the sum over columns); the event is the set of rows above (or below) some score that tells
the inputs apart best. On the second half k₁ of n₁ and k₀ of n₀ runs fall into it, and with Clopper and Pearson's exact
bounds [1]_ log(lower(k₁, n₁)/upper(k₀, n₀)) is below the true ε with the stated confidence, whatever the event: for
pure differential privacy every event obeys P₁ ≤ e^ε·P₀.

.. [1] C. Clopper, E. Pearson, "The use of confidence or fiducial limits illustrated in the case of the binomial",
   Biometrika 26 (1934) 404-413. Audits of this kind: Z. Ding et al., "Detecting violations of differential privacy",
   CCS 2018; M. Jagielski, J. Ullman, A. Oprea, "Auditing differentially private machine learning", NeurIPS 2020.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import beta, norm

__all__ = ["Bound", "lower_bound", "quotient"]

SMOOTH = 0.5
"""Added to every count before its logarithm is taken."""


@dataclass(frozen=True)
class Bound:
    """``lower`` ≤ ε at the stated confidence; ``plain`` is the quotient itself, for the eye."""

    lower: float
    plain: float
    hits: tuple[int, int]
    runs: tuple[int, int]


def lower_bound(without: np.ndarray, with_it: np.ndarray, doubt: float) -> Bound:
    """Return a lower bound on ε that is wrong with probability ``doubt`` at most.

    >>> rng = np.random.default_rng(1)
    >>> noise = lambda n: rng.geometric(0.632, n) - rng.geometric(0.632, n)  # ε = 1
    >>> found = lower_bound(noise(20_000)[:, None], 1 + noise(20_000)[:, None], 1e-6)
    >>> 0.8 < found.lower < 1
    True
    """
    views = [np.asarray(v).reshape(len(v), -1) for v in (without, with_it)]
    halves = [(v[: len(v) // 2], v[len(v) // 2 :]) for v in views]
    chosen, tested = zip(*halves)
    scores = _scores(chosen, [*chosen, *tested])
    best = max(
        ((_promise(first, second, sign, doubt), column, sign, first) for column in range(scores[0].shape[1])
         for sign in (1, -1) for first, second in [(sign * scores[0][:, column], sign * scores[1][:, column])]),
        key=lambda found: found[0][0],
    )  # fmt: skip
    (_, threshold), column, sign, _ = best
    k = [int((sign * score[:, column] >= threshold).sum()) for score in scores[2:]]
    n = [len(part) for part in tested]
    likely, rare = (1, 0) if sign > 0 else (0, 1)
    hits, runs = (k[rare], k[likely]), (n[rare], n[likely])
    plain = math.log((hits[1] + SMOOTH) / runs[1]) - math.log((hits[0] + SMOOTH) / runs[0])
    return Bound(quotient(hits, runs, doubt), plain, hits, runs)


def quotient(hits: Sequence[int], runs: Sequence[int], doubt: float) -> float:
    """Return a lower bound on log(p₁/p₀) from hits and runs on either side (Clopper and Pearson).

    >>> round(quotient((0, 500), (1000, 1000), 0.05), 2)
    4.85
    """
    low = float(beta.ppf(doubt / 2, hits[1], runs[1] - hits[1] + 1)) if hits[1] else 0.0
    high = float(beta.isf(doubt / 2, hits[0] + 1, runs[0] - hits[0])) if hits[0] < runs[0] else 1.0
    return math.log(low / high) if low else -math.inf


def _scores(chosen: tuple[np.ndarray, ...], parts: list[np.ndarray]) -> list[np.ndarray]:
    """Return, for every part, a score for each column and one for the whole row, learned on the chosen halves."""
    columns = []
    for j in range(chosen[0].shape[1]):
        values, code = np.unique(np.concatenate([part[:, j] for part in parts]), return_inverse=True)
        pieces = np.split(code, np.cumsum([len(part) for part in parts])[:-1])
        seen = [np.bincount(piece, minlength=values.size) + SMOOTH for piece in pieces[:2]]
        ratio = np.log(seen[1] / seen[1].sum()) - np.log(seen[0] / seen[0].sum())
        columns.append([ratio[piece] for piece in pieces])
    each = [np.stack(list(scores), axis=1) for scores in zip(*columns)]
    return [np.column_stack([score, score.sum(axis=1)]) for score in each]


def _promise(without: np.ndarray, with_it: np.ndarray, sign: int, doubt: float) -> tuple[float, float]:
    """Return the best bound that the chosen half promises, by normal approximation, and its threshold."""
    z = float(norm.isf(doubt / 2))
    likely, rare = (with_it, without) if sign > 0 else (without, with_it)
    thresholds = np.unique(np.concatenate([without, with_it]))
    thresholds = thresholds[:: max(1, thresholds.size // 2000)]
    k = [score.size - np.searchsorted(np.sort(score), thresholds, side="left") for score in (likely, rare)]
    low = np.maximum(k[0] - z * np.sqrt(k[0] * (1 - k[0] / likely.size) + 1), 1e-3) / likely.size
    high = (k[1] + z * np.sqrt(k[1] * (1 - k[1] / rare.size) + 1) + z * z / 2) / rare.size
    at = int(np.argmax(low / high))
    return float(np.log(low / high)[at]), float(thresholds[at])
