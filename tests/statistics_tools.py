"""Tests of samples at one false alarm in 10⁹, how far sums of noises go, how far fits are off."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.stats import chi2, mannwhitneyu

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


def farthest(noises: int, epsilon: float) -> float:
    """Return what the sum of so many discrete Laplace noises exceeds, up or down, with probability 1e-9 at most.

    Chernoff: log P(|Z| ≥ z) ≤ log 2 − s·z + log E e^(sZ) for every s, so z = (log(2/1e-9) + log E e^(sZ))/s does.
    """
    a = np.exp(-epsilon)

    def limit(s: float) -> float:
        growth = 2 * np.log1p(-a) - np.log1p(-a * np.exp(s)) - np.log1p(-a * np.exp(-s))
        return float((np.log(2 / FALSE_ALARM) + noises * growth) / s)

    return float(minimize_scalar(limit, bounds=(1e-6 * epsilon, (1 - 1e-9) * epsilon), method="bounded").fun)


def differ(left: list[float], right: list[float]) -> bool:
    """Whether two samples cannot be of one law: Mann and Whitney's test, at one false alarm in 10⁹.

    It asks nothing of the law. Two samples of 40 that do not overlap have p = 10⁻¹⁴: there is room for a control.
    """
    p_value = float(mannwhitneyu(left, right, method="asymptotic").pvalue)
    print(f"means {np.mean(left):.4f} and {np.mean(right):.4f}, p = {p_value:.2g}")
    return p_value < FALSE_ALARM


def one_noise(samples: np.ndarray, epsilon: float) -> bool:
    """Whether samples are of the discrete Laplace law, by the χ² test above: tanh(ε/2)·e^(−ε·|z|)."""
    law = {z: float(np.tanh(epsilon / 2) * np.exp(-epsilon * abs(z))) for z in range(-200, 201)}
    statistic, threshold = chi_square(samples, law)
    print(f"χ² = {statistic:.0f} of {samples.size} samples, threshold {threshold:.0f}")
    return statistic < threshold


def off(fit: Any, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return counts, and by how much the share that a fit gives each of them differs from the true one."""
    values, tally = np.unique(counts, return_counts=True)
    at = np.union1d(values, fit.support)
    gap = np.zeros(at.size)
    gap[np.searchsorted(at, fit.support)] += fit.mass
    gap[np.searchsorted(at, values)] -= tally / tally.sum()
    return at, gap
