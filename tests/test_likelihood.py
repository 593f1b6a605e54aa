"""likelihood: optimal by its own conditions and by Clarabel, a true profile, whatever the power."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles_estimators import clarabel_likelihood, dense_channel
from unnoise.engine.banded import sandwich
from unnoise.errors import ConvergenceError, InputError, PrivacyError
from unnoise.estimators._comb import Comb, Stretch
from unnoise.estimators.likelihood import Chain, likelihood
from unnoise.estimators.linear import smoothed_tally
from unnoise.noise import DiscreteLaplace
from unnoise.noisy import NoisyProfile

COUNTS = st.lists(st.integers(-6, 14), min_size=1, max_size=40)
EPSILONS = st.sampled_from([0.01, 0.1, 1, 3, 10])
POWERS = st.sampled_from([1, 2, 3])


def noisy_sample(true, epsilon, power, seed):
    rng = np.random.default_rng(seed)
    a = math.exp(-epsilon)
    noise = rng.negative_binomial(power, 1 - a, true.size) - rng.negative_binomial(power, 1 - a, true.size)
    return NoisyProfile.from_counts(true + noise, epsilon=epsilon, power=power)


def steepest(noisy, fit, bound=None):
    """max over counts t of Σ_v y·p(v−t)/m(v) − 1, on every count in sight and with the unfolded law."""
    top = max(int(noisy.values[-1]), 0) + 40 if bound is None else bound
    m = dense_channel(noisy.values, fit.support, noisy.noise) @ fit.mass
    slope = dense_channel(noisy.values, np.arange(top + 1), noisy.noise).T @ (noisy.fractions / m)
    return slope.max() - 1, np.abs(slope[fit.support] - 1) @ fit.mass


@settings(max_examples=80, deadline=None)
@given(COUNTS, EPSILONS, POWERS)
def test_conditions_of_optimality(counts, epsilon, power):
    """On all counts, not only on the points used: this tests the claims of the channels as well."""
    noisy = NoisyProfile.from_counts(counts, epsilon=epsilon, power=power)
    fit = likelihood(noisy)
    assert (fit.mass > 0).all()
    assert fit.mass.sum() == pytest.approx(1, abs=1e-12)
    excess, slack = steepest(noisy, fit)
    assert excess < 2e-9
    assert slack < 1e-8


@pytest.mark.parametrize("bound", [None, 9])
@pytest.mark.parametrize(
    ("counts", "epsilon", "power"),
    [
        ([0, 0, 3], 0.01, 3),
        ([0, 0, 0, 0, 3], 0.01, 3),
        ([-3, 4], 0.01, 3),
        ([1, 1, 1, 1, 1, 2, 2, 3, 4], 0.01, 4),
        ([0] * 7 + [1] * 10 + [2] * 11 + [3] * 10, 0.001, 3),
        ([2, 3, 7, 9], 0.001, 4),
        ([-2, -2] + [-1] * 5 + [0] * 7 + [1] * 3 + [3, 3] + [4] * 5 + [5] * 6 + [6] * 3, 0.001, 4),
        ([0, 0, 1, 1, 1, 2, 2, 2, 3, 4, 4, 5, 6, 6, 6], 0.1, 4),
    ],
)
def test_conditions_of_optimality_where_the_inverse_is_ill_conditioned(counts, epsilon, power, bound):
    """Found by exploring: ((1+a)/(1−a))^(2ρ) is 1e13 to 1e27 here."""
    noisy = NoisyProfile.from_counts(counts, epsilon=epsilon, power=power)
    fit = likelihood(noisy, max_count=bound)
    assert fit.diagnostics["converged"]
    excess, slack = steepest(noisy, fit, bound)
    assert excess < 2e-9
    assert slack < 1e-8


@settings(max_examples=60, deadline=None)
@given(COUNTS, st.integers(0, 9), EPSILONS, POWERS)
def test_conditions_of_optimality_under_a_bound(counts, bound, epsilon, power):
    noisy = NoisyProfile.from_counts(counts, epsilon=epsilon, power=power)
    fit = likelihood(noisy, max_count=bound)
    assert fit.support[-1] <= bound
    assert steepest(noisy, fit, bound)[0] < 2e-9


@settings(max_examples=40, deadline=None)
@given(COUNTS, st.sampled_from([0.3, 1, 3]), POWERS)
def test_against_clarabel(counts, epsilon, power):
    noisy = NoisyProfile.from_counts(counts, epsilon=epsilon, power=power)
    fit = likelihood(noisy)
    points = np.arange(max(max(counts), 0) + 3)
    k = dense_channel(noisy.values, points, noisy.noise)
    other = clarabel_likelihood(k, noisy.fractions)
    ours = noisy.fractions @ np.log(dense_channel(noisy.values, fit.support, noisy.noise) @ fit.mass)
    theirs = noisy.fractions @ np.log(k @ other)
    assert ours >= theirs - 1e-9
    assert ours == pytest.approx(theirs, abs=1e-7)
    assert noisy.noise.power > 1 or (
        # power 1 reports the likelihood of the folded counts: the law of the excess below 0 is left out
        fit.diagnostics["log_likelihood"] >= ours - 1e-12
    )


@pytest.mark.parametrize("power", [1, 2, 3, 1.5])
@pytest.mark.parametrize("epsilon", [0.5, 2])
def test_expected_noisy_profile_gives_the_profile_back(power, epsilon):
    """Consistency: without sampling error every estimator that fits K f = y must return f."""
    noise = DiscreteLaplace(epsilon, power)
    true = np.array([0.3, 0.0, 0.4, 0.1, 0.0, 0.2])
    reach = noise.reach(1e-13)
    values = np.arange(-reach, reach + 6)
    expected = dense_channel(values, np.arange(6), noise) @ true
    tally = np.rint(expected * 1e15).astype(np.int64)
    fit = likelihood(NoisyProfile.from_tally(values, tally, noise=noise), tolerance=1e-12)
    found = np.zeros(max(6, int(fit.support[-1]) + 1))
    found[fit.support] = fit.mass
    assert np.allclose(found[:6], true, atol=2e-4 if epsilon < 1 else 2e-5)


@pytest.mark.parametrize("epsilon", [0.001, 0.1, 10])
@pytest.mark.parametrize("power", [1, 2, 1.5])
def test_larger_problems_converge(epsilon, power):
    rng = np.random.default_rng(7)
    noisy = noisy_sample(rng.geometric(0.05, 20_000), epsilon, power, 8)
    fit = likelihood(noisy)
    assert fit.diagnostics["converged"]
    assert fit.diagnostics["iterations"] <= 60
    assert (fit.mass >= 0).all()
    assert fit.mass.sum() == pytest.approx(1)


@pytest.mark.parametrize("power", [1, 2, 3, 1.5])
def test_counts_near_1e12(power):
    rng = np.random.default_rng(3)
    true = np.concatenate([rng.geometric(0.3, 5000), [10**12, 10**12 + 50_000, 3 * 10**12]])
    fit = likelihood(noisy_sample(true, 1.0, power, 4))
    assert fit.diagnostics["points"] < 2000
    assert fit.support @ fit.mass * true.size == pytest.approx(true.sum(), rel=1e-6)


def test_one_cell_and_one_value():
    assert likelihood(NoisyProfile.from_counts([-5], epsilon=1)).support.tolist() == [0]
    fit = likelihood(NoisyProfile.from_counts([7, 7, 7], epsilon=1, power=2))
    assert (fit.support.tolist(), fit.mass.tolist()) == ([7], [1.0])


def test_no_convergence_is_an_error():
    noisy = noisy_sample(np.arange(500), 0.1, 1, 0)
    with pytest.raises(ConvergenceError, match="must come within"):
        likelihood(noisy, max_iterations=2)


def test_refuses_what_is_too_large_and_what_is_wrong():
    values, tally = np.arange(3000) * 60_000, np.ones(3000, dtype=int)
    far = NoisyProfile.from_tally(values, tally, noise=DiscreteLaplace("1/1000", 2))
    with pytest.raises(InputError, match="at most"):
        likelihood(far)
    noisy = NoisyProfile.from_counts([1, 2], epsilon=1)
    with pytest.raises(InputError, match="tolerance must be"):
        likelihood(noisy, tolerance=0)
    with pytest.raises(InputError, match="max_count must be"):
        likelihood(noisy, max_count=-2)
    with pytest.raises(PrivacyError, match="power must be"):
        likelihood(NoisyProfile.from_counts([1, 2], epsilon=1, power="1/3"))


def test_completion_of_a_fractional_power():
    """y spread by the law of power ⌈ρ⌉ − ρ has the expectation of a noisy profile of power ⌈ρ⌉."""
    noise, whole = DiscreteLaplace(1, 1.5), DiscreteLaplace(1, 2)
    values = np.arange(-60, 66)
    expected = noise.pmf(values - 3)
    tally = np.rint(expected * 1e15).astype(np.int64)
    rows, shares = smoothed_tally(NoisyProfile.from_tally(values, tally, noise=noise))
    assert np.allclose(shares, whole.pmf(rows - 3), atol=1e-12)
    assert shares.sum() == pytest.approx(1, abs=1e-12)


def banded_to_dense(band):
    size = band.shape[1]
    matrix = np.diag(band[0])
    for k in range(1, min(band.shape[0], size)):
        matrix += np.diag(band[k, : size - k], -k) + np.diag(band[k, : size - k], k)
    return matrix


def lower_to_dense(factor):
    return sum(np.diag(factor[k, k:], -k) for k in range(min(factor.shape)))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=12, unique=True), EPSILONS)
def test_chain_is_inverse_on_any_points(points, epsilon):
    points = np.array(sorted(points))
    chain = Chain(points, DiscreteLaplace(epsilon))
    e = np.exp(-epsilon * np.abs(points[:, None] - points).astype(float))
    t = np.diag(chain.diagonal) + np.diag(chain.beside, 1) + np.diag(chain.beside, -1)
    assert np.allclose(t @ e, np.eye(points.size), atol=1e-10)
    factor = lower_to_dense(chain.factor)
    assert np.allclose(factor.T @ factor, t, rtol=1e-12)
    f = np.random.default_rng(0).random(points.size)
    assert np.allclose(chain.apply(f), e @ f, rtol=1e-12)


@pytest.mark.parametrize("power", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 6, 30])
def test_comb_is_inverse_and_sees_rows_outside(size, power):
    noise = DiscreteLaplace(1, power)
    far = noise.reach(1e-18) + 100
    stretches = [Stretch(0, size - 1, np.arange(-6, size + 5)), Stretch(far, far + 2, np.array([far + 1, far + 4]))]
    comb = Comb(stretches, noise)
    points = np.concatenate([np.arange(s.low, s.high + 1) for s in stretches])
    rows = np.concatenate([s.rows for s in stretches])
    k, e = dense_channel(rows, points, noise), dense_channel(points, points, noise)
    rng = np.random.default_rng(size)
    f, r = rng.random(points.size), rng.random(rows.size)
    factor = lower_to_dense(comb.factor)
    assert np.allclose(factor.T @ factor @ e, np.eye(points.size), atol=1e-9)
    assert np.allclose(comb.apply(f), k @ f, rtol=1e-11)
    assert np.allclose(comb.transpose(r), k.T @ r, rtol=1e-11)
    c = np.linalg.solve(e, k.T).T
    assert np.allclose(banded_to_dense(comb.curvature(r)), c.T @ (r[:, None] * c), atol=1e-8)


@pytest.mark.parametrize(("epsilon", "power"), [("1/1000", 3), ("1/100", 4), (1, 2), (5, 6)])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8])
def test_inverse_and_its_factor_in_60_digits(size, epsilon, power):
    """Entry by entry, also where the covariance itself cannot be inverted in floats."""
    noise = DiscreteLaplace(epsilon, power)
    comb = Comb([Stretch(0, size - 1, np.arange(size))], noise)
    with mpmath.workdps(60):
        law = [_law(noise, n) for n in range(size)]
        t = mpmath.matrix([[law[abs(i - j)] for j in range(size)] for i in range(size)]) ** -1
        wanted = np.array(t.tolist(), dtype=float)
    factor = lower_to_dense(comb.factor)
    found = factor.T @ factor
    near = np.abs(np.subtract.outer(np.arange(size), np.arange(size))) <= power
    assert np.allclose(found[near], wanted[near], rtol=1e-13, atol=0)


def _law(noise, n):
    """P(Z = n) = Σ_j P(n + j failures)·P(j failures), both negative binomial of order ρ, in mpmath's precision."""
    a, rho = mpmath.exp(-mpmath.mpf(noise.epsilon.numerator) / noise.epsilon.denominator), int(noise.power)
    start = (1 - a) ** (2 * rho) * mpmath.binomial(n + rho - 1, n) * a**n
    return start * mpmath.hyp2f1(rho, n + rho, n + 1, a * a)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 9), st.integers(0, 100))
def test_tridiagonal_sandwich(size, seed):
    left, middle, right, x = np.random.default_rng(seed).normal(size=(4, size))
    t = np.diag(middle) + np.diag(left[1:], -1) + np.diag(right[:-1], 1)
    wanted = t @ np.diag(x) @ t.T
    for k, found in enumerate(sandwich(left, middle, right, x)):
        assert np.allclose(found, np.diagonal(wanted, k))
