"""exact: the optimum of P2 for p = 1, 2, ∞, against Clarabel on the dense program, and by its certificate."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles_estimators import clarabel_least_norm, dense_channel
from unnoise.errors import ConvergenceError, InputError
from unnoise.estimators.exact import exact
from unnoise.noise import DiscreteLaplace
from unnoise.noisy import NoisyProfile

COUNTS = st.lists(st.integers(-5, 12), min_size=1, max_size=40)
NORMS = st.sampled_from([1, 2, math.inf])


def dense_program(noisy, top):
    reach = noisy.noise.reach(1e-12)
    rows = np.arange(min(int(noisy.values[0]), 0) - reach, max(int(noisy.values[-1]), top) + reach + 1)
    y = np.zeros(rows.size)
    y[np.searchsorted(rows, noisy.values)] = noisy.fractions
    return dense_channel(rows, np.arange(top + 1), noisy.noise), y


def dense_mass(fit, top):
    result = np.zeros(top + 1)
    result[fit.support] = fit.mass
    return result


@settings(max_examples=60, deadline=None)
@given(COUNTS, NORMS, st.sampled_from([0.3, 1, 3]), st.sampled_from([1, 2, 3]), st.sampled_from([None, 0, 4, 15]))
def test_against_clarabel(counts, norm, epsilon, power, bound):
    noisy = NoisyProfile.from_counts(counts, epsilon=epsilon, power=power)
    fit = exact(noisy, norm=norm, max_count=bound)
    assert (fit.mass >= 0).all()
    assert fit.mass.sum() == pytest.approx(1, abs=1e-12)
    assert fit.diagnostics["gap"] >= -1e-12
    top = max(max(counts), 0) if bound is None else bound
    assert fit.support[-1] <= top
    k, y = dense_program(noisy, top)
    ours = np.linalg.norm(k @ dense_mass(fit, top) - y, norm)
    assert ours == pytest.approx(fit.diagnostics["value"], abs=1e-7)
    theirs = clarabel_least_norm(k, y, norm)
    assert ours == pytest.approx(theirs, abs=1e-7)


@settings(max_examples=60, deadline=None)
@given(COUNTS, st.sampled_from([0.05, 1, 10]), st.sampled_from([1, 2]))
def test_conditions_of_optimality_least_squares(counts, epsilon, power):
    """Kᵀ(K f − y) is smallest, and equal, where f has mass."""
    noisy = NoisyProfile.from_counts(counts, epsilon=epsilon, power=power)
    fit = exact(noisy, norm=2)
    top = max(max(counts), 0)
    k, y = dense_program(noisy, top)
    f = dense_mass(fit, top)
    gradient = k.T @ (k @ f - y)
    assert gradient @ f - gradient.min() < 2e-7


def sample(true, epsilon, power, seed):
    rng = np.random.default_rng(seed)
    a = math.exp(-epsilon)
    noise = rng.negative_binomial(power, 1 - a, true.size) - rng.negative_binomial(power, 1 - a, true.size)
    return NoisyProfile.from_counts(true + noise, epsilon=epsilon, power=power)


@pytest.mark.parametrize("norm", [1, 2, math.inf])
@pytest.mark.parametrize("epsilon", [0.05, 1, 10])
@pytest.mark.parametrize("power", [1, 2, 1.5])
def test_larger_problems_are_certified(norm, epsilon, power):
    noisy = sample(np.random.default_rng(1).geometric(0.05, 20_000), epsilon, power, 2)
    fit = exact(noisy, norm=norm)
    assert fit.diagnostics["gap"] <= 2e-7
    assert fit.mass.sum() == pytest.approx(1)


@pytest.mark.parametrize("norm", [1, 2, math.inf])
@pytest.mark.parametrize(("epsilon", "power"), [(0.01, 3), (0.003, 3), (0.1, 4)])
def test_ill_conditioned_powers_are_certified(norm, epsilon, power):
    """((1+a)/(1−a))^(2ρ) is 1e10 to 1e17 here."""
    noisy = sample(np.random.default_rng(1).geometric(0.05, 20_000), epsilon, power, 2)
    fit = exact(noisy, norm=norm)
    assert fit.diagnostics["gap"] <= 1e-8
    assert fit.diagnostics["iterations"] <= 60


@pytest.mark.parametrize("epsilon", [0.1, 0.5])
def test_a_long_empty_tail_does_not_slow_it_down(epsilon):
    """As with the passwords of LinkedIn: nearly all cells low, single ones up to 30,000."""
    true = np.minimum(np.random.default_rng(6).zipf(2.0, 200_000), 30_000)
    fit = exact(sample(true, epsilon, 2, 7), norm=1)
    assert fit.diagnostics["gap"] <= 1e-8
    assert fit.diagnostics["iterations"] <= 60


@pytest.mark.parametrize("norm", [1, 2, math.inf])
def test_few_cholesky_steps_at_power_1(norm):
    """p = 1 took 36 to 61 steps, most by LU, when slacks were eliminated through differences of large numbers."""
    noisy = sample(np.random.default_rng(1).integers(0, 970, 200_000), 0.5, 1, 2)
    fit = exact(noisy, norm=norm, max_count=1000 + int(noisy.values[-1]))
    assert fit.diagnostics["gap"] <= 1e-10
    assert fit.diagnostics["iterations"] <= 20


@pytest.mark.parametrize("norm", [1, 2, math.inf])
@pytest.mark.parametrize("power", [1, 2])
def test_counts_near_1e12(norm, power):
    true = np.concatenate([np.random.default_rng(3).geometric(0.3, 5000), [10**12, 10**12 + 9, 3 * 10**12]])
    noisy = sample(true, 1.0, power, 4)
    fit = exact(noisy, norm=norm)
    assert fit.diagnostics["points"] < 2000
    assert fit.mass.sum() == pytest.approx(1)
    assert fit.diagnostics["gap"] <= 1e-7


@pytest.mark.parametrize("norm", [2, math.inf])
def test_sparse_grid_finds_the_same_optimum(norm, monkeypatch):
    """Power 1: mass on and near occupied values only loses nothing against all counts."""
    true = np.concatenate([np.zeros(300, dtype=int), np.full(40, 150), np.full(30, 900)])
    noisy = sample(true, 0.5, 1, 5)
    whole = exact(noisy, norm=norm)
    monkeypatch.setattr("unnoise.estimators.exact.WHOLE", 0)
    sparse = exact(noisy, norm=norm)
    assert sparse.diagnostics["points"] < whole.diagnostics["points"]
    assert sparse.diagnostics["value"] == pytest.approx(whole.diagnostics["value"], abs=1e-8)


def test_expected_noisy_profile_gives_the_profile_back():
    noise = DiscreteLaplace(1)
    true = np.array([0.3, 0.0, 0.4, 0.1, 0.0, 0.2])
    values = np.arange(-35, 40)
    tally = np.rint(dense_channel(values, np.arange(6), noise) @ true * 1e15).astype(np.int64)
    for norm in (1, 2, math.inf):
        fit = exact(NoisyProfile.from_tally(values, tally, noise=noise), norm=norm, max_count=5)
        assert np.allclose(dense_mass(fit, 5), true, atol=1e-6)


def test_bad_input_and_no_convergence():
    noisy = NoisyProfile.from_counts(np.arange(200), epsilon=0.1)
    with pytest.raises(InputError, match="norm must be 1, 2 or inf"):
        exact(noisy, norm=3)
    with pytest.raises(InputError, match="tolerance must be"):
        exact(noisy, tolerance=2)
    with pytest.raises(ConvergenceError, match="must come within"):
        exact(noisy, norm=1, max_iterations=1)


@pytest.mark.parametrize("epsilon", [20, 30, 60])
@pytest.mark.parametrize("norm", [1, 2, math.inf])
def test_next_to_no_noise(norm, epsilon):
    """The square of the norm vanishes before the norm does; what was seen is the optimum then, and certified."""
    fit = exact(NoisyProfile.from_counts([1, 0, 0, 2, 0], epsilon=epsilon), norm=norm)
    assert np.allclose(dense_mass(fit, 2), [0.6, 0.2, 0.2], atol=1e-6)
    assert fit.diagnostics["gap"] < 1e-7
