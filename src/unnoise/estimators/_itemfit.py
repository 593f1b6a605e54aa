"""Penalised maximum likelihood for the item profile.

Near a point θ₀ the log-likelihood of the item numbers θ is −½(θ − θ̂)ᵀJ(θ − θ̂), with J the Fisher information and
θ̂ = θ₀ + J⁻¹·gradient. To that we add −½κ·θᵀSθ, the roughness

    θᵀSθ = Σ (Δ²f)²·(1 + ε·t)^α / f̄,        f the items per count, f̄ its local mean,

or, as a second kind, the same of t(t+1)·f over log t, which leaves power laws alone; with or without the first two
terms. κ, α, the kind and the exemption are chosen by Mallows' C_p [1]_, an unbiased estimate
of the risk in the metric J: (θ_κ − θ̂)ᵀJ(θ_κ − θ̂) + 2·trace((J + κS)⁻¹J). κ = 0 is among the choices. Then
θ ≥ 0 is imposed in the same metric (non-negative least squares), and all is repeated from the new point until it
stands still. The start is a few dozen steps of expectation-maximisation.

.. [1] C. L. Mallows, "Some comments on C_p", Technometrics 15, 1973.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import eigh
from scipy.optimize import nnls

from ..arrays import Floats
from ._compound import Grid, Likelihood

__all__ = ["ItemFit", "fit_items", "roughness"]


RIDGE = 1e-10
"""Added to the information, whose diagonal is scaled to 1: far below what any cell tells."""

FAMILIES = (0.0, 2.0, 4.0, -1.0)
"""Growth α of the roughness along the counts; −1 stands for the second kind."""

CHOICES = (0, 2)
"""Steps at which the penalty is chosen; then it is kept, so that the iteration can settle."""

EXEMPT = (0, 2)
"""How many of the first second differences go free."""

SLACK = 0.01
"""Loss of log-likelihood that a step may cost: far below what a parameter is worth."""

CIRCLING = 15
"""Steps after which the longest step is halved."""

SETTLED = 1e-4
"""Share of the items that may still move in the last step."""


@dataclass(frozen=True, eq=False)
class ItemFit:
    """Item numbers by blocks, and what their intervals need.

    items : θ ≥ 0
    centre : θ̂ = θ + J⁻¹·gradient, signed, free of the penalty's bias to first order
    covariance : J⁻¹, the covariance of θ̂ when the item numbers are Poisson
    """

    grid: Grid
    items: Floats
    centre: Floats
    covariance: Floats
    converged: bool
    diagnostics: dict[str, Any]

    def expected_error(self) -> float:
        """Expected ℓ1 error of the shares by octaves of counts, without any help from smoothness.

        It tells whether the load can be answered: smoothing only improves on it.
        """
        whole = octaves(self.grid)
        variance = np.einsum("ij,jk,ik->i", whole, self.covariance, whole) - whole @ self.items
        return float(np.sqrt(2 / np.pi * variance.clip(0)).sum() / (self.items.sum() + 1))


@dataclass(frozen=True)
class Penalty:
    """Choice of the roughness: strength κ, growth α along the counts, and how many counts are exempt."""

    kappa: float
    alpha: float
    exempt: int
    freedom: float


def roughness(grid: Grid, items: Floats, epsilon: float, alpha: float, exempt: int) -> Floats:
    """Return S, weighted by the local mean of ``items``; zero for the items above the grid.

    ``alpha`` ≥ 0 is the growth of the weight along the counts; ``alpha`` < 0 stands for the second kind.
    """
    centres = grid.starts[:-1] + (grid.widths - 1) / 2
    if centres.size < 3:
        return np.zeros((grid.size, grid.size))
    if alpha < 0:
        stretch, place, growth = centres * (centres + 1), np.log(centres), np.ones(centres.size)
    else:
        stretch, place, growth = np.ones(centres.size), centres, (1 + epsilon * centres) ** alpha
    per_count = stretch / grid.widths
    second = _second_differences(place) * per_count
    level = _local_mean(items[:-1] * per_count) + stretch
    weight = (growth / level)[1:-1] * (place[2:] - place[:-2]) / 2
    weight[:exempt] = 0.0
    rough = np.zeros((grid.size, grid.size))
    rough[:-1, :-1] = (second * weight[:, None]).T @ second
    return rough


def _second_differences(place: Floats) -> Floats:
    """Return the matrix of second divided differences at uneven places."""
    left, right = np.diff(place)[:-1], np.diff(place)[1:]
    middle, rows = (left + right) / 2, np.arange(place.size - 2)
    second = np.zeros((place.size - 2, place.size))
    second[rows, rows] = 1 / (left * middle)
    second[rows, rows + 1] = -(1 / left + 1 / right) / middle
    second[rows, rows + 2] = 1 / (right * middle)
    return second


def _local_mean(values: Floats, reach: int = 2) -> Floats:
    padded = np.concatenate([[0.0], np.cumsum(np.pad(values, reach, mode="edge"))])
    return np.asarray((padded[2 * reach + 1 :] - padded[: -2 * reach - 1]) / (2 * reach + 1))


def _scaled(information: Floats) -> tuple[Floats, Floats]:
    """Return d = 1/√diag J and d·J·d plus the ridge."""
    scale = 1 / np.sqrt(np.maximum(np.diag(information), 1e-300))
    return scale, information * np.outer(scale, scale) + RIDGE * np.eye(scale.size)


def _choose(grid: Grid, items: Floats, target: Floats, scale: Floats, scaled: Floats, epsilon: float) -> Penalty:
    """Choose the penalty by C_p; ``target`` = J·θ̂."""
    best, choice = np.inf, Penalty(0.0, 0.0, 0, float(grid.size))
    for alpha in FAMILIES:
        for exempt in EXEMPT:
            rough = roughness(grid, items, epsilon, alpha, exempt) * np.outer(scale, scale)
            ratio, basis = eigh(rough, scaled)
            ratio = np.maximum(ratio, 0.0)
            coordinates = basis.T @ (scale * target)
            top = ratio.max()
            if top <= 0:
                continue
            for kappa in np.concatenate([[0.0], np.geomspace(1e-2, 1e14, 49) / top]):
                kept = 1 / (1 + kappa * ratio)
                risk = float(((1 - kept) * coordinates) @ ((1 - kept) * coordinates) + 2 * kept.sum())
                if risk < best - 1e-9:
                    best, choice = risk, Penalty(float(kappa), alpha, exempt, float(kept.sum()))
    return choice


def octaves(grid: Grid) -> Floats:
    """Return one indicator row over the parameters for each octave of counts; the last takes all that is left.

    Counts near the end of the rows and above cannot be told apart, so they stay in one.
    """
    last = max(int(grid.ends[-1]) // 2, 1)
    octave = np.floor(np.log2(np.minimum(grid.starts, last) + 0.5)).astype(int)
    octave[-1] = octave[-2] if octave.size > 1 else 0
    return np.asarray(octave[None, :] == np.arange(octave[-1] + 1)[:, None], dtype=np.float64)


def _start(likelihood: Likelihood, items: float, steps: int) -> Floats:
    """Return item numbers after some steps of expectation-maximisation from N_t ∝ 1/(t(t+1))."""
    starts = likelihood.grid.starts.astype(float)
    theta = np.append(1 / starts[:-1] - 1 / starts[1:], 1 / starts[-1]) * max(items, 1.0)
    for _ in range(steps):
        theta = likelihood.em_step(theta)
    return theta


def _climb(
    likelihood: Likelihood, items: Floats, proposal: Floats, rough: Floats, first: float
) -> tuple[Floats, float]:
    """Go towards the proposal, from the step ``first`` halving it until the penalised likelihood does not fall."""

    def objective(theta: Floats) -> float:
        return likelihood.value(theta) - 0.5 * float(theta @ rough @ theta)

    before, step = objective(items), first
    for _ in range(12):
        new = np.maximum(items + step * (proposal - items), 1e-9 * proposal.sum() + 1e-9)
        after = objective(new)
        if after >= before - SLACK:
            return new, float(np.abs(new - items).sum() / (items.sum() + 1.0))
        step /= 2
    return items, 0.0


def fit_items(likelihood: Likelihood, epsilon: float, *, guess: float, pilot: int = 0, em_steps: int = 30,
              iterations: int = 100) -> ItemFit:
    """Maximise the penalised likelihood from about ``guess`` items; the first steps see the part ``pilot`` only."""
    grid = likelihood.grid
    items = _start(Likelihood(grid, likelihood.parts[pilot : pilot + 1]), guess, em_steps)
    moved, step = np.inf, 0
    while moved > SETTLED and step < iterations:
        _, gradient, information = likelihood.score(items)
        scale, scaled = _scaled(information)
        target = information @ items + gradient
        if step in CHOICES:
            penalty = _choose(grid, items, target, scale, scaled, epsilon)
            rough = penalty.kappa * roughness(grid, items, epsilon, penalty.alpha, penalty.exempt)
        try:
            factor = np.linalg.cholesky(scaled + rough * np.outer(scale, scale))
        except np.linalg.LinAlgError:  # the cells say next to nothing about the items: not converged
            moved = np.inf
            break
        solution, _ = nnls(factor.T, np.linalg.solve(factor, scale * target), maxiter=50 * grid.size)
        # Scoring may circle around the maximum of a small sketch; shorter steps end that.
        items, moved = _climb(likelihood, items, solution * scale, rough, 0.5 ** (step // CIRCLING))
        step += 1
        if step < 3:
            moved = np.inf
    value, gradient, information = likelihood.score(items)
    scale, scaled = _scaled(information)
    covariance = np.linalg.inv(scaled) * np.outer(scale, scale)
    notes = {"penalty": penalty, "iterations": step, "last_change": moved, "log_likelihood": value}
    return ItemFit(grid, items, items + covariance @ gradient, covariance, moved <= SETTLED, notes)
