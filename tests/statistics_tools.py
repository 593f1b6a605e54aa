"""One chi-square test for all samplers, with a stated false-alarm rate and computed threshold; how far fits are off."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import chi2

FALSE_ALARM = 1e-9


def chi_square(samples: np.ndarray, probabilities: dict[int, float], least: float = 10.0) -> tuple[float, float]:
    """Return the statistic and the threshold that a right sampler passes with probability 1e-9.

    Outcomes expected fewer than ``least`` times are pooled, with everything outside, into one class.
    """
    size = samples.size
    values, counted = np.unique(samples, return_counts=True)
    seen = dict(zip(values.tolist(), counted.tolist()))
    statistic, classes, left, expected_left = 0.0, 0, size, float(size)
    for outcome, probability in probabilities.items():
        expected = size * probability
        if expected < least:
            continue
        observed = seen.get(outcome, 0)
        statistic += (observed - expected) ** 2 / expected
        classes, left, expected_left = classes + 1, left - observed, expected_left - expected
    if expected_left > least:
        statistic += (left - expected_left) ** 2 / expected_left
        classes += 1
    return statistic, float(chi2.isf(FALSE_ALARM, classes - 1))


def off(fit: Any, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return counts, and by how much the share that a fit gives each of them differs from the true one."""
    values, tally = np.unique(counts, return_counts=True)
    at = np.union1d(values, fit.support)
    gap = np.zeros(at.size)
    gap[np.searchsorted(at, fit.support)] += fit.mass
    gap[np.searchsorted(at, values)] -= tally / tally.sum()
    return at, gap
