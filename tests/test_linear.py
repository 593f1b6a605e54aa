"""linear: unbiased exactly, variances too, for every power; signed profile; sparse and bad input."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from oracles_estimators import HALF, endless_sum, expectation, law, oracle_weight
from unnoise.errors import InputError, PrivacyError
from unnoise.estimators.linear import functional, linear, step_response, weights
from unnoise.noise import DiscreteLaplace
from unnoise.noisy import NoisyProfile

FUNCTIONS = [
    ("indicator of 0", lambda t: Fraction(int(t == 0)), 0),
    ("indicator of 3", lambda t: Fraction(int(t == 3)), 0),
    ("at least 2", lambda t: Fraction(int(t >= 2)), 0),
    ("count", lambda t: Fraction(t), 1),
    ("square", lambda t: Fraction(t * t), 2),
]
COUNTS = [0, 1, 2, 3, 7]


def vectorised(g):
    return lambda counts: np.vectorize(lambda t: float(g(int(t))), otypes=[float])(counts)


def log2(power):
    """Noise with a = 1/2 up to one rounding: what the code computes for it, fractions compute exactly."""
    return DiscreteLaplace(math.log(2), power)


def spread_oracle(g, v, power, bound=None):
    w = oracle_weight(g, v, power, bound)
    return w * w - oracle_weight(lambda t: g(t) ** 2, v, power, bound)


def test_oracle_law_is_a_law():
    for power in (1, 2, 3):
        total = law(0, power) + 2 * HALF * endless_sum(
            lambda k, power=power: law(1 + k, power) / HALF ** (1 + k), HALF, power
        )
        assert total == 1
        ours = log2(power).pmf(np.arange(9))
        assert np.allclose(ours, [float(law(n, power)) for n in range(9)], rtol=1e-13)


@pytest.mark.parametrize("power", [1, 2, 3])
@pytest.mark.parametrize(("name", "g", "degree"), FUNCTIONS)
def test_unbiased_exactly_and_variance_too(name, g, degree, power):
    """Fractions: E w(h+Z) = g(h) and E[w² − W[g²]] = Var w, with infinite tails in closed form."""
    degree = degree if power == 1 else max(degree, 1)  # at least a straight line below 0
    for h in COUNTS:
        mean = expectation(lambda v: oracle_weight(g, v, power), h, power, degree, 8)
        assert mean == g(h)
        square = expectation(lambda v: oracle_weight(g, v, power) ** 2, h, power, 2 * degree, 8)
        spread = expectation(lambda v: spread_oracle(g, v, power), h, power, 2 * degree, 8)
        assert spread == square - g(h) ** 2


@pytest.mark.parametrize("power", [1, 2, 3])
@pytest.mark.parametrize(("name", "g", "degree"), FUNCTIONS)
def test_code_computes_what_fractions_compute(name, g, degree, power):
    values = np.arange(-9, 12)
    ours = weights(vectorised(g), values, log2(power))
    exact = np.array([float(oracle_weight(g, int(v), power)) for v in values])
    assert np.allclose(ours, exact, rtol=1e-12, atol=1e-11)
    for v in values.tolist() if power == 1 else ():  # higher powers: test_linear_continuation.py
        noisy = NoisyProfile.from_tally([v], [1], noise=log2(power))
        value, variance = functional(noisy, vectorised(g))
        assert value == pytest.approx(float(oracle_weight(g, v, power)), rel=1e-12, abs=1e-11)
        assert variance == pytest.approx(float(spread_oracle(g, v, power)), rel=1e-11, abs=1e-10)


@pytest.mark.parametrize("bound", [0, 1, 2, 5])
@pytest.mark.parametrize(("name", "g", "degree"), FUNCTIONS)
def test_declared_bound_folds_above(name, g, degree, bound):
    for h in range(bound + 1):
        mean = expectation(lambda v: oracle_weight(g, v, 1, bound), h, 1, 0, 8)
        assert mean == g(h)
    values = np.arange(-4, 12)
    ours = weights(vectorised(g), values, log2(1), max_count=bound)
    assert np.allclose(ours, [float(oracle_weight(g, int(v), 1, bound)) for v in values], rtol=1e-12)


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 2, 10])
@pytest.mark.parametrize("power", [1.5, 2.25, "4/3"])
def test_fractional_power_unbiased(power, epsilon):
    """Against the law by FFT of its characteristic function on a long circle."""
    noise = DiscreteLaplace(epsilon, power)
    reach = noise.reach(1e-17)
    size = 4 * reach + 100
    law_on_circle = np.fft.irfft(noise.characteristic(2 * np.pi * np.arange(size // 2 + 1) / size), size)
    values = np.arange(-reach, reach + 12)
    for g in (lambda t: t == 0, lambda t: t == 3, lambda t: t >= 2, lambda t: t, lambda t: np.sqrt(t)):
        w = weights(g, values, noise)
        for h in (0, 1, 3, 10):
            truth = float(np.asarray(g(np.array([h])))[0])
            size_of_terms = float(law_on_circle[np.abs(values - h)] @ np.abs(w)) + 1
            assert law_on_circle[np.abs(values - h)] @ w == pytest.approx(truth, abs=1e-9 * size_of_terms)
    noisy = NoisyProfile.from_tally(values, np.ones(values.size, dtype=int), noise=noise)
    assert functional(noisy, lambda t: t == 3)[0] == pytest.approx(weights(lambda t: t == 3, values, noise).sum())


def test_fractional_variance_estimate_is_unbiased():
    noise = DiscreteLaplace(1, 1.5)
    values = np.arange(-60, 80)
    for g in (lambda t: t == 0, lambda t: t, lambda t: t >= 2):
        w = weights(g, values, noise)
        spread = np.array([functional(NoisyProfile.from_tally([v], [1], noise=noise), g)[1] for v in values])
        for h in (0, 2, 9):
            p = noise.pmf(values - h)
            truth = float(np.asarray(g(np.array([h])))[0])
            assert p @ spread == pytest.approx(p @ w**2 - truth**2, rel=1e-8)


@pytest.mark.parametrize("power", [1, 2, 3, 1.5])
def test_profile_agrees_with_the_functionals(power):
    rng = np.random.default_rng(5)
    noisy = NoisyProfile.from_counts(rng.integers(-6, 12, 200), epsilon=1, power=power)
    fit = linear(noisy)
    assert fit.mass.sum() == pytest.approx(1, abs=1e-12)
    assert fit.support.min() == 0
    for t in (0, 1, 2, 5, 12):
        value, _ = functional(noisy, lambda c, t=t: c == t)
        ours = fit.mass[fit.support == t].sum()
        assert ours == pytest.approx(value / noisy.cells, abs=1e-11)


def test_profile_reaches_one_past_the_largest_value_and_folds_at_a_bound():
    noisy = NoisyProfile.from_counts([-3, 0, 4, 9], epsilon=1)
    assert linear(noisy).support[-1] == 10
    bounded = linear(noisy, max_count=5)
    assert bounded.support[-1] == 5
    assert bounded.mass.sum() == pytest.approx(1)
    assert linear(noisy, max_count=0).mass.tolist() == [1.0]


@pytest.mark.parametrize("power", [1, 2, 1.5])
def test_counts_near_1e12_cost_nothing(power):
    noisy = NoisyProfile.from_counts([0, 1, 10**12, 10**12 + 7, 4 * 10**12], epsilon=0.5, power=power)
    fit = linear(noisy)
    assert fit.support.size < 3000
    assert fit.mass.sum() == pytest.approx(1)
    value, variance = functional(noisy, lambda t: t)
    assert value == pytest.approx(6 * 10**12, rel=1e-9)
    # five cells away from 0 would each give 2ρκ; a sum of squares of 1e12 must not swallow that
    kappa = noisy.noise.variance / float(noisy.noise.power) / 2
    assert 0 < variance < 1e4 * kappa


def test_variance_of_a_far_count_keeps_its_digits():
    noise = DiscreteLaplace(1)
    noisy = NoisyProfile.from_tally([10**12], [1], noise=noise)
    assert functional(noisy, lambda t: t)[1] == pytest.approx(noise.variance, rel=1e-12)


@pytest.mark.parametrize("epsilon", [0.001, 10, 50])
def test_extreme_epsilon_stays_exact(epsilon):
    noise = DiscreteLaplace(epsilon)
    kappa = 1 / (4 * math.sinh(epsilon / 2) ** 2)
    w = weights(lambda t: t == 2, np.array([0, 1, 2, 3]), noise)
    assert np.allclose(w, [0, -kappa, 1 + 2 * kappa, -kappa], rtol=1e-12)
    assert weights(lambda t: t, np.array([5, 10**9]), noise).tolist() == [5.0, 1e9]


def test_bad_input_is_named():
    noisy = NoisyProfile.from_counts([1, 2], epsilon=1)
    with pytest.raises(InputError, match="max_count must be ≥ 0"):
        linear(noisy, max_count=-1)
    with pytest.raises(InputError, match="max_count must be an integer"):
        linear(noisy, max_count=2.5)
    with pytest.raises(InputError, match="noisy must be a NoisyProfile"):
        linear([1, 2])
    with pytest.raises(InputError, match="g must be finite"), np.errstate(divide="ignore"):
        functional(noisy, lambda t: 1 / np.maximum(t - 1, 0))
    with pytest.raises(InputError, match="below 2\\^62"):
        weights(lambda t: t, np.array([2**62]), noisy.noise)
    with pytest.raises(PrivacyError, match="power must be ≥ 1"):
        linear(NoisyProfile.from_counts([1, 2], epsilon=1, power="1/2"))


def test_what_no_float_can_undo_says_so_and_sums_of_occurrences_hold():
    """365 days at ε = 0.1: κ^ρ is 10⁷³⁰. Differences of a polynomial end, and all else has an infinite variance."""
    noise = DiscreteLaplace("0.1", power=365)
    assert step_response(noise) is None
    assert step_response(DiscreteLaplace("0.1", power=50)) is not None
    counts = np.random.default_rng(1).integers(-300, 400, 1000)
    noisy = NoisyProfile.from_counts(counts, epsilon="0.1", power=365)
    total, variance = functional(noisy, lambda t: t)
    assert total == pytest.approx(counts.sum(), rel=1e-12)
    assert variance == pytest.approx(1000 * noise.variance, rel=1e-9)
    assert functional(noisy, lambda t: t == 1) == (0.0, math.inf)
    with pytest.raises(InputError, match=r"take method='auto'.*power=365"):
        linear(noisy)
