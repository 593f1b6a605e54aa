"""Positive numbers behind a few Gaussian statistics: random walks of their logarithms, averaged by evidence.

Statistics y with covariance C and mean X·N, N = e^θ > 0. θ less a given shape is a Gaussian random walk in log x of
order 1 to 3: its divided differences of that order have standard deviation τ, and it stays within ± WIDE of a level
taken from the data, so that the prior is proper. For every shape, order and strength τ the mode is found by damped
Gauss–Newton steps; with H the Hessian there and P the precision of the prior,
log evidence = −objective + ½ log|P| − ½ log|H| (Laplace).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from ..arrays import Floats

__all__ = ["Fitted", "fit_positive"]

ORDERS = (1, 2, 3)
STRENGTHS = tuple(np.exp(np.linspace(math.log(300), math.log(0.03), 8)))
"""τ from loose to stiff: a decade below and above what any profile tried had."""

WIDE = 6.0
"""Standard deviation of θ around its level: e^±12 covers from a single item to all."""

KEPT = 1e-8
"""Directions of the statistics with a smaller share of the variance are numerical noise."""

STEPS = 60


@dataclass(frozen=True, eq=False)
class Fitted:
    """Posterior mean and covariance of N, and the derivative of the mean by y."""

    mean: Floats
    covariance: Floats
    gains: Floats


@dataclass(frozen=True, eq=False)
class _Mode:
    theta: Floats
    evidence: float
    inverse: Floats


def fit_positive(
    parts: Sequence[tuple[Floats, Floats, Floats]], at: Floats, shapes: Sequence[Floats] | None = None
) -> Fitted:
    """Fit N to independent parts (y, X, C); ``at`` are the places x of the walk, about one of the shapes (0 if none).

    >>> y, X = np.array([30.0, 70.0]), np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> fit_positive([(y, X, np.eye(2))], np.array([1.5, 2.5])).mean.round(1).tolist()
    [30.0, 70.0]
    """
    whitened = [_whiten(*part) for part in parts]
    y, design = np.concatenate([w[0] for w in whitened]), np.concatenate([w[1] for w in whitened])
    back = _block_diagonal([w[2] for w in whitened])
    start = _level(y, design)
    modes: list[_Mode] = []
    for shape, order in product(shapes or [np.zeros(at.size)], ORDERS):
        if order < max(at.size, 2):
            level = theta = start + shape
            for strength in reversed(STRENGTHS):
                modes.append(_find_mode(y, design, _precision(at, order, strength), level, theta))
                theta = modes[-1].theta
    return _average(modes, design, back)


def _whiten(y: Floats, design: Floats, cov: Floats) -> tuple[Floats, Floats, Floats]:
    """Return statistics of unit covariance, their design, and the matrix that makes them."""
    sd = np.sqrt(np.maximum(np.diag(cov), 1e-300))
    values, vectors = np.linalg.eigh(cov / np.outer(sd, sd))
    keep = values > KEPT * values[-1]
    matrix = (vectors[:, keep] / np.sqrt(values[keep])).T / sd
    return matrix @ y, matrix @ design, matrix


def _block_diagonal(matrices: list[Floats]) -> Floats:
    from scipy.linalg import block_diag

    return np.asarray(block_diag(*matrices))


def _level(y: Floats, design: Floats) -> float:
    """Log of the equal numbers that fit best, and never fewer than the noise would hide."""
    column = design.sum(axis=1)
    norm = float(column @ column)
    return math.log(max(float(column @ y) / norm, 1 / math.sqrt(norm)))


def _precision(at: Floats, order: int, strength: float) -> Floats:
    """Precision of a walk: divided differences in log x of standard deviation τ per unit of log x, and a level."""
    x, difference = np.log(at), np.eye(at.size)
    if at.size > order:
        for o in range(order):
            difference = np.diff(difference, axis=0) / (x[o + 1 :] - x[: -o - 1])[: difference.shape[0] - 1, None]
        spacing = np.convolve(np.gradient(x), np.full(order + 1, 1 / (order + 1)), "valid")
        difference = difference * np.sqrt(spacing)[:, None] / strength
        return np.asarray(difference.T @ difference + np.eye(at.size) / WIDE**2)
    return np.eye(at.size) / WIDE**2


def _find_mode(y: Floats, design: Floats, precision: Floats, level: Floats, theta: Floats) -> _Mode:
    """Descend by Levenberg–Marquardt steps from ``theta``."""

    def look(theta: Floats) -> tuple[float, Floats, Floats]:
        columns = design * np.exp(theta)
        residual = y - columns.sum(axis=1)
        away = theta - level
        return 0.5 * float(residual @ residual + away @ precision @ away), residual, columns

    value, residual, columns = look(theta)
    damping = 1e-3
    for _ in range(STEPS):
        hessian = columns.T @ columns + precision
        gradient = precision @ (theta - level) - columns.T @ residual
        while damping < 1e8:
            step = np.linalg.solve(hessian + damping * np.diag(np.diag(hessian)), -gradient)
            new = np.clip(theta + np.clip(step, -3, 3), level - 8 * WIDE, level + 8 * WIDE)
            found = look(new)
            if found[0] <= value:
                break
            damping *= 4
        else:
            break
        gained, theta = value - found[0], new
        value, residual, columns = found
        damping = max(damping / 5, 1e-9)
        if gained < 1e-7:
            break
    hessian = columns.T @ columns + precision
    evidence = -value + 0.5 * (np.linalg.slogdet(precision)[1] - np.linalg.slogdet(hessian)[1])
    return _Mode(theta, float(evidence), np.asarray(np.linalg.inv(hessian), dtype=np.float64))


def _average(modes: list[_Mode], design: Floats, back: Floats) -> Fitted:
    """Weigh the models by their evidence."""
    evidence = np.array([mode.evidence for mode in modes])
    share = np.exp(evidence - evidence.max())
    share /= share.sum()
    numbers = np.array([np.exp(mode.theta) for mode in modes])
    mean = share @ numbers
    covariance, gains = np.zeros((mean.size, mean.size)), np.zeros((mean.size, back.shape[1]))
    for weight, mode, number in zip(share, modes, numbers):
        away = number - mean
        covariance += weight * (number[:, None] * mode.inverse * number + np.outer(away, away))
        gains += weight * (number[:, None] * mode.inverse * number) @ design.T @ back
    return Fitted(mean, covariance, gains)
