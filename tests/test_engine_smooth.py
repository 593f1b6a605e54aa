"""smooth: the prior, the mode and the evidence against dense algebra; smooth truths are recovered better."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from statistics_tools import off
from unnoise.engine.banded import BandedChannel, body_of, dense_runs
from unnoise.engine.walk import Prior, Strayed, Walk, find_mode
from unnoise.errors import ConvergenceError, InputError
from unnoise.estimators.auto import smooth
from unnoise.estimators.likelihood import likelihood
from unnoise.noise import DiscreteLaplace
from unnoise.noisy import NoisyProfile


def noised(counts, epsilon, seed=0, power=1):
    """Noisy counts from NumPy's generator."""
    rng = np.random.default_rng(seed)
    a = math.exp(-epsilon)
    noisy = np.array(counts, dtype=np.int64)
    for _ in range(power):
        noisy = noisy + rng.geometric(1 - a, noisy.size) - rng.geometric(1 - a, noisy.size)
    return NoisyProfile.from_counts(noisy, epsilon=epsilon, power=power)


def distance(fit, counts):
    """ℓ1 distance between a fit and the profile of counts."""
    return float(np.abs(off(fit, counts)[1]).sum())


def matrix_of(function, size):
    return np.column_stack([function(row) for row in np.eye(size)])


def log_density(walk, theta, precision):
    """Log density of θ under a walk, without the factor (2π)^(−N/2)."""
    r = walk.differences(theta)
    return 0.5 * np.log(precision).sum() + walk.log_det - 0.5 * float(precision @ (r * r))


def folded_matrix(low, high, epsilon):
    """P(noisy count, folded into [low, high] | count), entry by entry."""
    a = math.exp(-epsilon)
    size = high - low + 1
    k = np.array([[(1 - a) / (1 + a) * a ** abs(v - t) for t in range(size)] for v in range(size)])
    t = np.arange(size)
    k[0], k[-1] = a**t / (1 + a), a ** (size - 1 - t) / (1 + a)
    return k


@pytest.mark.parametrize("epsilon", [0.1, 1, 3])
def test_channel_is_the_folded_noise(epsilon):
    noisy = NoisyProfile.from_tally([0, 6, 5000, 5007], [50, 50, 50, 50], noise=DiscreteLaplace(epsilon))
    body = body_of(noisy, None)
    channel = BandedChannel(body, noisy.noise)
    expected = np.zeros((body.counts.size, body.counts.size))
    at = 0
    for low, high in body.runs:
        n = high - low + 1
        expected[at : at + n, at : at + n] = folded_matrix(low, high, epsilon)
        at += n
    eye = np.eye(body.counts.size)
    assert np.allclose(channel.forward(eye), expected, atol=1e-12)
    state = channel.at(np.linspace(1, 2, body.counts.size))
    assert np.allclose(channel.pull(state), expected.T @ (channel.y / state.law), atol=1e-12)
    assert channel.log_det_inverse == pytest.approx(-np.linalg.slogdet(expected)[1], rel=1e-9)


@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("coordinate", ["t", "log"])
def test_walk_is_a_proper_gaussian(order, coordinate):
    counts = np.concatenate([np.arange(9), np.arange(40, 47)])
    position = np.concatenate([np.arange(9), np.arange(7)])
    walk = Walk(counts.astype(float) if coordinate == "t" else np.log1p(counts), position, order)
    walk.free[order + 1] = True
    w = walk.precision(7.0)
    n = counts.size
    d = matrix_of(lambda e: walk.differences(e) + walk.offset, n)
    precision = d.T @ np.diag(w) @ d
    bands = Prior(walk, w).bands
    rebuilt = sum(np.diag(b[: n - k], k) + (np.diag(b[: n - k], -k) if k else 0) for k, b in enumerate(bands))
    assert np.allclose(rebuilt, precision)
    mean = np.linalg.solve(d, walk.offset)
    theta = np.random.default_rng(0).normal(size=n)
    expected = 0.5 * np.linalg.slogdet(precision)[1] - 0.5 * (theta - mean) @ precision @ (theta - mean)
    assert log_density(walk, theta, w) == pytest.approx(expected, rel=1e-9)
    assert Prior(walk, w).tension(theta)[0] == pytest.approx(precision @ (theta - mean), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("strength", [1e-4, 7.0, 1e9])
def test_counts_astray_are_a_walk_plus_independent_variables(strength):
    """Against the covariance itself, whatever the stiffness of the walk."""
    n, rng = 16, np.random.default_rng(1)
    walk = Walk(np.log1p(np.arange(n)), np.arange(n), 2, level=1.5)
    w, variance = walk.precision(strength), rng.uniform(0.1, 9.0, n)
    variance[-1] = 1e-6  # next to nothing
    d = matrix_of(lambda e: walk.differences(e) + walk.offset, n)
    root = np.linalg.solve(d, np.diag(w**-0.5))
    covariance = root @ root.T + np.diag(variance)
    prior = Strayed(Prior(walk, w), variance)
    away = rng.normal(size=n)
    gradient, cost = prior.tension(np.linalg.solve(d, walk.offset) + away)
    assert gradient == pytest.approx(np.linalg.solve(covariance, away), rel=1e-5, abs=1e-6)
    assert cost == pytest.approx(0.5 * away @ np.linalg.solve(covariance, away), rel=1e-6)
    assert prior.peak == pytest.approx(-0.5 * np.linalg.slogdet(covariance)[1], abs=1e-6)
    rebuilt = sum(np.diag(b[: n - k], k) + (np.diag(b[: n - k], -k) if k else 0) for k, b in enumerate(prior.bands))
    assert rebuilt @ away == pytest.approx(gradient)


@pytest.mark.parametrize(("order", "shape"), [(2, lambda x: 1 - 0.3 * x), (3, lambda x: 1 - 0.3 * x + 0.02 * x**2)])
def test_polynomials_cost_nothing(order, shape):
    x = np.log1p(np.arange(30))
    walk = Walk(x, np.arange(30), order)
    assert np.abs(walk.differences(shape(x))[order:]).max() < 1e-8


@pytest.mark.parametrize("epsilon", [0.3, 1])
@pytest.mark.parametrize("order", [2, 3])
def test_mode_and_evidence_by_dense_means(epsilon, order):
    """Banded against dense Newton systems, and the mode against a general-purpose optimiser."""
    noisy = noised(np.random.default_rng(3).poisson(4, 2000), epsilon)
    body = body_of(noisy, None)
    channel = BandedChannel(body, noisy.noise)
    n = body.counts.size
    walk = Walk(body.counts.astype(float), np.arange(n), order)
    w = walk.precision(10.0)
    y, cells = body.tally / body.tally.sum(), float(body.tally.sum())
    mode = find_mode(channel, Prior(walk, w), np.full(n, -math.log(n)))
    assert mode.converged
    k = folded_matrix(*body.runs[0], epsilon)

    def negative(theta):
        m = k @ np.exp(theta)
        return -cells * (y @ np.log(m) - np.exp(theta).sum()) - log_density(walk, theta, w)

    found = minimize(negative, mode.theta, method="BFGS", options={"gtol": 1e-4})
    assert negative(mode.theta) <= found.fun + 5e-3
    f, m = np.exp(mode.theta), k @ np.exp(mode.theta)
    information = cells * np.diag(f) @ k.T @ np.diag(1 / m) @ k @ np.diag(f)
    slope = np.maximum(cells * f * (1 - k.T @ (y / m)), 0)
    d = matrix_of(lambda e: walk.differences(e) + walk.offset, n)
    a = d.T @ np.diag(w) @ d + information + np.diag(slope)
    expected = -negative(mode.theta) - 0.5 * np.linalg.slogdet(a)[1]
    assert mode.log_evidence == pytest.approx(expected, abs=0.05)


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 3), st.floats(0.05, 3), st.floats(-2, 6), st.integers(0, 2**32 - 1))
def test_newton_system_by_dense_means(order, epsilon, log_strength, seed):
    """Elimination in the system's own order, against NumPy's with row exchanges, on two runs of counts."""
    rng = np.random.default_rng(seed)
    noisy = NoisyProfile.from_tally([0, 6, 5000, 5007], [50, 50, 50, 50], noise=DiscreteLaplace(epsilon))
    body = body_of(noisy, None)
    channel = BandedChannel(body, noisy.noise)
    position = np.concatenate([np.arange(high - low + 1) for low, high in body.runs])
    walk = Walk(body.counts.astype(float), position, order)
    w = walk.precision(10.0**log_strength)
    n, cells = body.counts.size, float(body.tally.sum())
    f = np.exp(rng.normal(-3, 2, n))
    m, curvature, gradient = channel.forward(f), rng.exponential(1, n), rng.normal(0, 30, n)
    step, log_det = channel.newton(channel.hold(Prior(walk, w).bands), curvature, channel.at(f), gradient)
    k, d = channel.forward(np.eye(n)), matrix_of(lambda e: walk.differences(e) + walk.offset, n)
    information = cells * np.diag(f) @ k.T @ np.diag(1 / m) @ k @ np.diag(f)
    a = d.T @ np.diag(w) @ d + np.diag(curvature) + information
    expected = -np.linalg.solve(a, gradient)
    assert np.allclose(step, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
    assert log_det == pytest.approx(np.linalg.slogdet(a)[1], abs=1e-4)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=60), st.integers(1, 50), st.integers(1, 10))
def test_runs_are_apart_and_hold_every_dense_value(values, window, few):
    values, tally = np.unique(values, return_counts=True)
    runs = dense_runs(values, tally, window, few)
    for (_, high), (low, _) in itertools.pairwise(runs):
        assert low > high
    for v in values:
        near = tally[(values >= v - window) & (values <= v + window)].sum()
        if near >= few:
            assert any(low <= v <= high for low, high in runs)


def test_body_keeps_every_cell():
    counts = np.concatenate([np.zeros(500), np.full(500, 3), [10**6, 10**12]])
    noisy = noised(counts, 0.5)
    body = body_of(noisy, None)
    assert body.tally.sum() + body.far_tally.sum() == noisy.cells
    assert body.far_values.min() > body.runs[-1][1]


@pytest.mark.parametrize("draw", ["geometric", "uniform", "normal"])
@pytest.mark.parametrize("epsilon", [0.1, 1])
def test_smooth_truths_are_recovered_better_than_by_likelihood(draw, epsilon):
    rng = np.random.default_rng(5)
    counts = {
        "geometric": rng.geometric(1 / 21, 10_000) - 1,
        "uniform": rng.integers(0, 201, 10_000),
        "normal": np.rint(rng.normal(60, 9, 10_000)).astype(int),
    }[draw]
    noisy = noised(counts, epsilon, seed=6)
    assert distance(smooth(noisy), counts) < 0.5 * distance(likelihood(noisy), counts)


@pytest.mark.parametrize("power", [1, 2, 3])
def test_smooth_is_a_profile_for_every_power(power):
    fit = smooth(noised(np.random.default_rng(2).poisson(6, 3000), 0.7, power=power))
    assert fit.mass.min() > 0
    assert fit.mass.sum() == pytest.approx(1, abs=1e-12)
    assert float(fit.support @ fit.mass) == pytest.approx(6, abs=0.3)
    assert fit.diagnostics["models"]


def test_bound_holds():
    fit = smooth(noised(np.full(1000, 5), 0.5), max_count=6)
    assert fit.support.max() <= 6


def test_refuses_what_it_cannot_smooth():
    with pytest.raises(ConvergenceError, match=r"at least 8 cells close together.* got 3 cells"):
        smooth(NoisyProfile.from_counts([0, 1000, 10**9], epsilon=1))
    with pytest.raises(InputError, match="must be a NoisyProfile"):
        smooth([1, 2, 3])


@pytest.mark.parametrize("period", [2, 5, 12])
def test_patterns_cost_a_seasonal_walk_nothing(period):
    """A geometric law times any pattern of the period; one of another period is not free."""
    t = np.arange(60)
    walk = Walk(t.astype(float), t, 2, period=period)
    pattern = np.random.default_rng(0).normal(size=period)
    assert np.abs(walk.differences(1 - 0.3 * t + pattern[t % period])[walk.steps]).max() < 1e-8
    assert np.abs(walk.differences(1 - 0.3 * t + (t % (period + 1)))[walk.steps]).max() > 0.5


def test_seasonal_walk_is_a_proper_gaussian():
    position = np.concatenate([np.arange(20), np.arange(11)])
    walk = Walk(position.astype(float), position, 2, period=3)
    w = walk.precision(7.0)
    d = matrix_of(lambda e: walk.differences(e) + walk.offset, position.size)
    precision = d.T @ np.diag(w) @ d
    rebuilt = sum(
        np.diag(b[: position.size - k], k) + (np.diag(b[: position.size - k], -k) if k else 0)
        for k, b in enumerate(Prior(walk, w).bands)
    )
    assert np.allclose(rebuilt, precision)
    assert 0.5 * np.log(w).sum() + walk.log_det == pytest.approx(0.5 * np.linalg.slogdet(precision)[1])


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda rng: np.append(2 * (rng.geometric(0.1, 18_000) - 1), rng.geometric(0.05, 2_000)), {2}),
        (lambda rng: np.append(5 * (rng.geometric(0.1, 18_000) - 1), rng.geometric(0.02, 2_000)), {5}),
        (lambda rng: rng.geometric(0.05, 20_000) - 1, set()),
        (lambda rng: rng.zipf(1.8, 20_000).clip(max=500), set()),
        (lambda rng: rng.poisson(9, 20_000), set()),
    ],
)
def test_periods_are_found_where_there_are_any(make, expected):
    """The model that wins is of the period of the counts; without one no period wins."""
    fit = smooth(noised(make(np.random.default_rng(1)), 1))
    names = [name for name, weight in fit.diagnostics["models"] if weight > 0.05]
    assert {int(name.split("period ")[1].split(",")[0]) for name in names if "period" in name} == expected
