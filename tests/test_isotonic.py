"""isotonic: a true projection, a true profile."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drawing_tools import noisy_profile
from oracles_estimators import clarabel_projection
from unnoise.errors import InputError
from unnoise.estimators.isotonic import _projected, isotonic
from unnoise.estimators.linear import functional, linear
from unnoise.noise import DiscreteLaplace
from unnoise.noisy import NoisyProfile

PROFILES = st.lists(st.integers(-6, 14), min_size=1, max_size=40)


def dense(fit, size):
    result = np.zeros(size)
    result[fit.support] = fit.mass
    return result


def brute_force(noisy, top, max_count=None):
    """Ŝ(t) one functional at a time, then the projection as a quadratic program."""
    curve = [
        functional(noisy, lambda c, t=t: c >= t, max_count=max_count)[0] / noisy.cells for t in range(top + 1)
    ]
    projected = clarabel_projection(np.array(curve))
    return projected - np.append(projected[1:], 0)


@settings(max_examples=60, deadline=None)
@given(PROFILES, st.sampled_from([0.3, 1, 4]))
def test_projection_is_the_nearest_curve(counts, epsilon):
    noisy = NoisyProfile.from_counts(counts, epsilon=epsilon)
    top = max(max(counts), 0) + 3
    assert np.allclose(dense(isotonic(noisy), top + 1), brute_force(noisy, top), atol=2e-6)


@settings(max_examples=30, deadline=None)
@given(PROFILES, st.integers(0, 10))
def test_projection_with_a_declared_bound(counts, bound):
    noisy = NoisyProfile.from_counts(counts, epsilon=1)
    fit = isotonic(noisy, max_count=bound)
    assert fit.support[-1] <= bound
    expected = brute_force(noisy, bound, bound)
    assert np.allclose(dense(fit, bound + 1), expected, atol=2e-6)


@settings(max_examples=60, deadline=None)
@given(PROFILES, st.sampled_from([0.3, 1, 4]), st.sampled_from([2, 3, 8, 1.5]))
def test_merged_curves_keep_the_unbiased_total(counts, epsilon, power):
    noisy = NoisyProfile.from_counts(counts, epsilon=epsilon, power=power)
    fit = isotonic(noisy)
    expected = max(functional(noisy, lambda t: t)[0] / noisy.cells, 0)
    within = min(expected, max(float(noisy.values[-1]), 0) + 2 * power)
    assert float(fit.support @ fit.mass) == pytest.approx(within, abs=1e-9) or within < expected


@pytest.mark.parametrize(("power", "epsilon"), [(2, 0.5), (3, 1), (20, 0.5)])
def test_the_total_of_merged_sketches_is_within_3_of_the_plain_sum(power, epsilon):
    """Root mean square over 12 releases; control: the curve projected without its total misses it."""
    rng, law = np.random.default_rng(6), DiscreteLaplace(epsilon, power)
    counts = rng.poisson(1, 3000)
    plain, missed, before = (law.variance * counts.size) ** 0.5, [], []
    for _ in range(12):
        noisy = noisy_profile(rng, counts, law)
        fit, signed = isotonic(noisy), linear(noisy)
        missed.append(fit.support @ fit.mass * counts.size - counts.sum())
        curve, _ = _projected(np.cumsum(signed.mass[::-1])[::-1], np.diff(signed.support, prepend=-1).astype(float))
        before.append((np.diff(signed.support, prepend=-1) @ curve - 1) * counts.size - counts.sum())
    print("isotonic", np.std(missed) / plain, "without its total", np.sqrt(np.mean(np.square(before))) / plain)
    assert np.sqrt(np.mean(np.square(missed))) <= 3 * plain
    assert np.sqrt(np.mean(np.square(before))) > (3 if power != 3 else 1) * plain


@settings(max_examples=60, deadline=None)
@given(PROFILES, st.sampled_from([0.001, 0.1, 10]), st.sampled_from([1, 2, 1.5]))
def test_in_the_simplex(counts, epsilon, power):
    fit = isotonic(NoisyProfile.from_counts(counts, epsilon=epsilon, power=power))
    assert (fit.mass > 0).all()
    assert fit.mass.sum() == pytest.approx(1, abs=1e-12)
    assert (fit.support >= 0).all()
    assert (np.diff(fit.support) > 0).all()


def test_counts_near_1e12():
    rng = np.random.default_rng(1)
    true = np.concatenate([rng.geometric(0.3, 10_000), [10**12, 2 * 10**12]])
    a = np.exp(-1.0)
    noise = rng.geometric(1 - a, true.size) - rng.geometric(1 - a, true.size)
    fit = isotonic(NoisyProfile.from_counts(true + noise, epsilon=1))
    assert fit.support @ fit.mass * true.size == pytest.approx(true.sum(), rel=1e-9)


def test_tail_mass_is_kept():
    """Σ t·f equals the unbiased total wherever nothing is clipped: the projection preserves sums."""
    rng = np.random.default_rng(2)
    true = rng.geometric(0.02, 50_000)
    a = np.exp(-0.5)
    noise = rng.geometric(1 - a, true.size) - rng.geometric(1 - a, true.size)
    noisy = NoisyProfile.from_counts(true + noise, epsilon=0.5)
    fit = isotonic(noisy)
    assert fit.support @ fit.mass == pytest.approx(functional(noisy, lambda t: t)[0] / noisy.cells, rel=1e-3)


def test_bad_input():
    with pytest.raises(InputError, match="noisy must be a NoisyProfile"):
        isotonic(np.array([1, 2]))
