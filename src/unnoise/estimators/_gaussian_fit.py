"""Positive numbers behind a few Gaussian statistics: random walks of their logarithms, averaged by evidence.

Statistics y with covariance C and mean X·N, N = e^θ > 0. θ less a given shape is a Gaussian random walk in log x of
order 1 to 3: its divided differences of that order have standard deviation τ. What these leave free, a polynomial about
a level taken from the data, has a root mean square of WIDE, so that the prior is proper and a slope costs the same
however many numbers there are. Or some numbers are 0: of the supports given, the first is likely by one half, the
others share the rest, and beyond its support a walk goes on unseen, which integrates it out. For every support, shape,
order and strength τ the mode is found by damped Gauss–Newton steps; with H the Hessian there and P the precision of
the prior, log evidence = −objective + ½ log|P| − ½ log|H| (Laplace).

Around a mode N has standard deviations in proportion to itself, which is nothing where all of N is next to 0, however
much the noise would hide. Where |X·N| < 1, which is where the whole is less than one standard error of itself,
covariances are taken at N/|X·N|.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.linalg import block_diag

from ..arrays import Floats, Int64

__all__ = ["Fitted", "fit_positive"]

ORDERS = (1, 2, 3)
STRENGTHS = tuple(np.exp(np.linspace(math.log(300), math.log(0.03), 8)))
"""τ from loose to stiff: a decade below and above what any profile tried had."""

WIDE = 6.0
"""Root mean square of θ around its level: e^±12 covers from a single item to all."""

KEPT = 1e-8
"""Directions of the statistics with a smaller share of the variance are numerical noise."""

STEPS = 200
DAMPED = (1e-3, 1e8)
"""Damping of the first step, and that at which no step is left."""

GAINED = 1e-7
"""Nats below which a step is the last."""


@dataclass(frozen=True, eq=False)
class Fitted:
    """Posterior mean and covariance of N, and the derivative of the mean by y."""

    mean: Floats
    covariance: Floats
    gains: Floats


@dataclass(frozen=True, eq=False)
class _Modes:
    """Of several models: modes, evidences, covariances of the numbers, and inverse Hessians at the modes."""

    theta: Floats
    evidence: Floats
    covariance: Floats
    inverse: Floats


def fit_positive(
    parts: Sequence[tuple[Floats, Floats, Floats]], at: Floats,
    shapes: Sequence[Floats] = (), supports: Sequence[Floats] = (),
) -> Fitted:  # fmt: skip
    """Fit N to independent parts (y, X, C); ``at`` are the places x of the walk, about one of the shapes (0 if none).

    supports : each 1 where a number may be positive, else 0; everywhere if none are given

    >>> y, X = np.array([30.0, 70.0]), np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> fit_positive([(y, X, np.eye(2))], np.array([1.5, 2.5])).mean.round(1).tolist()
    [30.0, 70.0]
    """
    whitened = [_whiten(*part) for part in parts]
    y, design = np.concatenate([w[0] for w in whitened]), np.concatenate([w[1] for w in whitened])
    back = block_diag(*(w[2] for w in whitened))
    orders = [order for order in ORDERS if order < max(at.size, 2)]
    walks = list(product(supports or [np.ones(at.size)], shapes or [np.zeros(at.size)], orders))
    masks = np.array([support for support, _, _ in walks])
    prior = np.full(len(walks), 1 / max(len(supports) - 1, 1))
    prior[: len(walks) // max(len(supports), 1)] = 1.0
    levels = theta = _level(y, design) + np.array([shape for _, shape, _ in walks])
    found: list[_Modes] = []
    for strength in reversed(STRENGTHS):
        by_order = {order: _precision(at, order, strength) for order in orders}
        precisions = np.array([by_order[order] for _, _, order in walks])
        found.append(_find_modes(y, design, precisions, levels, theta, masks))
        theta = found[-1].theta
    return _average(found, prior, masks, design, back)


def _whiten(y: Floats, design: Floats, cov: Floats) -> tuple[Floats, Floats, Floats]:
    """Return statistics of unit covariance, their design, and the matrix that makes them."""
    sd = np.sqrt(np.maximum(np.diag(cov), 1e-300))
    values, vectors = np.linalg.eigh(cov / np.outer(sd, sd))
    keep = values > KEPT * values[-1]
    matrix = (vectors[:, keep] / np.sqrt(values[keep])).T / sd
    return matrix @ y, matrix @ design, matrix


def _level(y: Floats, design: Floats) -> float:
    """Log of the equal numbers that fit best, and never fewer than the noise would hide."""
    column = design.sum(axis=1)
    norm = float(column @ column)
    return math.log(max(float(column @ y) / norm, 1 / math.sqrt(norm)))


def _precision(at: Floats, order: int, strength: float) -> Floats:
    """Precision of a walk: divided differences in log x of standard deviation τ per unit of log x, and a level."""
    x, difference = np.log(at), np.eye(at.size)
    level = np.eye(at.size) / (at.size * WIDE**2)
    if at.size > order:
        for o in range(order):
            difference = np.diff(difference, axis=0) / (x[o + 1 :] - x[: -o - 1])[: difference.shape[0] - 1, None]
        spacing = np.convolve(np.gradient(x), np.full(order + 1, 1 / (order + 1)), "valid")
        difference = difference * np.sqrt(spacing)[:, None] / strength
        return np.asarray(difference.T @ difference + level)
    return level


def _find_modes(y: Floats, design: Floats, precisions: Floats, levels: Floats, theta: Floats, masks: Floats) -> _Modes:
    """Descend by Levenberg–Marquardt steps from ``theta``, all models at once, each with a damping of its own."""

    def look(which: Int64, theta: Floats) -> tuple[Floats, Floats, Floats]:
        columns = design * (np.exp(theta) * masks[which])[:, None, :]
        residual = y - columns.sum(axis=2)
        away = theta - levels[which]
        pull = (precisions[which] @ away[:, :, None])[:, :, 0]
        value = 0.5 * ((residual**2).sum(axis=1) + (pull * away).sum(axis=1))
        hessian = columns.transpose(0, 2, 1) @ columns + precisions[which]
        return value, pull - (residual[:, None, :] @ columns)[:, 0], hessian

    live, theta = np.arange(theta.shape[0]), theta.copy()
    value, gradient, hessian = look(live, theta)
    damping = np.full(live.size, DAMPED[0])
    for _ in range(STEPS):
        damped = hessian[live] * (1 + damping[live, None, None] * np.eye(theta.shape[1]))
        step = np.linalg.solve(damped, -gradient[live, :, None])[:, :, 0]
        new = np.clip(theta[live] + np.clip(step, -3, 3), levels[live] - 8 * WIDE, levels[live] + 8 * WIDE)
        tried = look(live, new)
        gained = value[live] - tried[0]
        better = gained >= 0
        moved = live[better]
        theta[moved] = new[better]
        value[moved], gradient[moved], hessian[moved] = (found[better] for found in tried)
        damping[live] = np.where(better, np.maximum(damping[live] / 5, 1e-9), damping[live] * 4)
        live = live[np.where(better, gained >= GAINED, damping[live] < DAMPED[1])]
        if not live.size:
            break
    evidence = 0.5 * (np.linalg.slogdet(precisions)[1] - np.linalg.slogdet(hessian)[1]) - value
    size = np.linalg.norm((masks * np.exp(theta)) @ design.T, axis=1)
    seen = theta - np.log(np.clip(size, 1e-300, 1.0))[:, None]
    spread = np.linalg.inv(look(np.arange(seen.shape[0]), seen)[2])
    numbers = masks * np.exp(seen)
    covariance = np.asarray(numbers[:, :, None] * spread * numbers[:, None, :], dtype=np.float64)
    return _Modes(theta, evidence, covariance, np.asarray(np.linalg.inv(hessian), dtype=np.float64))


def _average(found: list[_Modes], prior: Floats, masks: Floats, design: Floats, back: Floats) -> Fitted:
    """Weigh the models by prior and evidence."""
    evidence = np.concatenate([modes.evidence + np.log(prior) for modes in found])
    share = np.exp(evidence - evidence.max())
    share /= share.sum()
    numbers = np.concatenate([masks * np.exp(modes.theta) for modes in found])
    inverses = np.concatenate([modes.inverse for modes in found])
    mean = share @ numbers
    away = numbers - mean
    within = np.einsum("m,mij->ij", share, np.concatenate([modes.covariance for modes in found]))
    gains = np.einsum("m,mi,mij,mj->ij", share, numbers, inverses, numbers) @ design.T @ back
    return Fitted(mean, within + (share * away.T) @ away, gains)
