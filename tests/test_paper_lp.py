"""The linear program against another formulation, with its duality gap."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import linprog

import oracles_paper as oracle
from unnoise.errors import InputError
from unnoise.estimators.paper import lp, paper, private_profile
from unnoise.noisy import NoisyProfile
from unnoise.testing import seeded

CASES = [([40, 0, 60], 1.0, 2), ([0, 300, 0, 0, 100], 0.5, 6), ([10, 5, 3, 1], 2.0, None)]


def problem(noisy, diagnostics):
    """The dense channel on the window and y, from the diagnostics alone."""
    (low, high), reach = diagnostics["window"], diagnostics["B"]
    y = np.zeros(high - low + 1)
    y[noisy.values - low] = noisy.tally / noisy.cells
    return oracle.dense_channel(noisy.noise.epsilon, reach, y.size)[:, reach : reach + diagnostics["n"] + 1], y


def dense(fit):
    r = np.zeros(fit.diagnostics["n"] + 1)
    r[fit.support] = fit.mass
    return r


@pytest.mark.parametrize("norm", [1, math.inf])
@pytest.mark.parametrize(("cells_at", "epsilon", "max_count"), CASES)
def test_lp_is_optimal_by_its_dual(cells_at, epsilon, max_count, norm):
    with seeded(3):
        noisy = private_profile(cells_at, epsilon=epsilon)
    fit = lp(noisy, norm=norm, max_count=max_count)
    r = dense(fit)
    matrix, y = problem(noisy, fit.diagnostics)
    assert r.min() >= 0
    assert r.sum() == pytest.approx(1, abs=1e-12)
    value = np.linalg.norm(matrix @ r - y, norm)
    assert value == pytest.approx(fit.diagnostics["objective"], abs=1e-9)
    # The dual of min ‖A r − y‖_p over the simplex: max min_t (A^T w)_t − ⟨w,y⟩ over ‖w‖_q ≤ 1, solved on its own
    size = y.size
    if norm == math.inf:  # ‖w‖₁ ≤ 1 with w = w⁺ − w⁻
        cost = np.r_[y, -y, -1.0]
        rows = np.c_[-matrix.T, matrix.T, np.ones(r.size)]
        solved = linprog(
            cost, A_ub=np.vstack([rows, np.r_[np.ones(2 * size), 0.0]]), b_ub=np.r_[np.zeros(r.size), 1.0],
            bounds=[(0, None)] * (2 * size) + [(None, None)],
        )
    else:
        solved = linprog(
            np.r_[y, -1.0], A_ub=np.c_[-matrix.T, np.ones(r.size)], b_ub=np.zeros(r.size),
            bounds=[(-1, 1)] * size + [(None, None)],
        )
    assert solved.status == 0
    assert abs(value + solved.fun) <= max(1e-9, 1e-7 * value)


@pytest.mark.parametrize("norm", [1, math.inf])
def test_lp_is_at_least_as_close_as_the_papers_two_steps(norm):
    with seeded(4):
        noisy = private_profile([500, 300, 0, 200], epsilon=0.5)
    fits = lp(noisy, norm=norm, max_count=10), paper(noisy, norm=norm, max_count=10)
    matrix, y = problem(noisy, fits[0].diagnostics)
    distances = [np.linalg.norm(matrix @ dense(fit) - y, norm) for fit in fits]
    assert distances[0] <= distances[1] + 1e-9


def test_lp_refuses_by_name():
    noisy = NoisyProfile.from_counts([1, 2, 3], epsilon=1)
    with pytest.raises(InputError, match="norm must be 1 or inf for method 'lp', got 2; use method='paper' or 'exact'"):
        lp(noisy, norm=2)
    with pytest.raises(InputError, match="at most 20,000 entries long for method 'lp'"):
        lp(NoisyProfile.from_counts([1, 10**6], epsilon=1))
