"""The continuation of least variance: unbiased whatever the counts, at the bound of dense least squares."""

from __future__ import annotations

import numpy as np
import pytest

from drawing_tools import noisy_profile
from oracles_estimators import least_variance
from unnoise.answers.reconstruct import reconstruct
from unnoise.estimators.linear import Continuation, functional, least_weights, weights
from unnoise.noise import DiscreteLaplace
from unnoise.noisy import NoisyProfile

FUNCTIONS = {
    "entry 0": lambda t: t == 0,
    "entry 1": lambda t: t == 1,
    "entry 4": lambda t: t == 4,
    "distinct": lambda t: t >= 1,
    "total": lambda t: t,
    "second moment": lambda t: t * t,
    "root": lambda t: np.sqrt(t),
}
DATA = {
    "Poisson 1": lambda rng: rng.poisson(1, 5000),
    "geometric 20": lambda rng: rng.geometric(1 / 21, 5000) - 1,
    "all zero": lambda rng: np.zeros(500, dtype=np.int64),
    "a giant": lambda rng: np.array([10**9, *([0, 0, 1] * 40)]),
}


def laid_out(counts, law):
    """Noisy values around 0, and the mean number of cells at each."""
    reach = law.reach(1e-13)
    values = np.arange(-reach, 60 + reach)
    distinct, cells = np.unique(counts[counts < 60], return_counts=True)
    return values, sum(n * law.pmf(values - h) for h, n in zip(distinct, cells))


def weights_everywhere(counts, law, g, seed=0):
    """The weights that one release of these counts gives, at every value: the release itself, and a few cells more."""
    rng = np.random.default_rng(seed)
    values, _ = laid_out(counts, law)
    noisy = noisy_profile(rng, counts, law)
    cells = np.bincount((noisy.values - values[0]).clip(0, values.size - 1), noisy.tally, values.size)
    many = 1000 if counts.size > 100 else 1  # the cells more would make few cells many
    full = NoisyProfile.from_tally(values, 1 + many * cells.astype(np.int64), noise=law)
    return least_weights(full, g)


@pytest.mark.parametrize("power", [2, 3, 5])
@pytest.mark.parametrize("epsilon", [0.05, 0.5, 2])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_means_are_right_for_every_count_and_so_are_those_of_the_variance(name, epsilon, power):
    law, g = DiscreteLaplace(epsilon, power), FUNCTIONS[name]
    counts = np.random.default_rng(1).poisson(2, 300)
    values, _ = laid_out(counts, law)
    w, spread = weights_everywhere(counts, law, g)
    for h in (0, 1, 2, 3, 7, 20):
        p, truth = law.pmf(values - h), float(g(np.array([h]))[0])
        size = float(np.sqrt(p @ w**2)) + 1
        assert p @ w == pytest.approx(truth, abs=1e-6 * size)
        assert p @ spread == pytest.approx(p @ w**2 - truth**2, abs=1e-5 * size**2)


@pytest.mark.parametrize("power", [2, 3])
@pytest.mark.parametrize("epsilon", [0.5, 1])
@pytest.mark.parametrize("shape", ["Poisson 1", "geometric 20"])
def test_standard_errors_are_within_two_percent_of_the_bound(shape, epsilon, power):
    """The bound: dense constrained least squares with the true means. Control: a straight line misses it."""
    law, counts = DiscreteLaplace(epsilon, power), DATA[shape](np.random.default_rng(2))
    values, cells = laid_out(counts, law)
    lost = []
    for name, g in FUNCTIONS.items():
        bound = least_variance(g, values, cells, law)
        w, _ = weights_everywhere(counts, law, g)
        plain = weights(g, values, law)
        print(name, np.sqrt(cells @ w**2 / bound), np.sqrt(cells @ plain**2 / bound))
        assert cells @ w**2 <= 1.02**2 * bound
        lost.append(cells @ plain**2 / bound)
    assert max(lost) > (1.1**2 if epsilon == 0.5 or power == 3 else 1.02**2)


@pytest.mark.parametrize("power", [2, 3, 4, 8, 20, 40])
@pytest.mark.parametrize("epsilon", [0.05, 0.5, 5])
@pytest.mark.parametrize("shape", DATA)
def test_the_total_is_never_worse_than_the_plain_sum(shape, epsilon, power):
    law, rng = DiscreteLaplace(epsilon, power), np.random.default_rng(3)
    counts = DATA[shape](rng)
    noisy = noisy_profile(rng, counts, law)
    value, variance = functional(noisy, lambda t: t)
    plain = law.variance * counts.size
    assert abs(value - counts.sum()) <= 8 * plain**0.5 + 1
    assert -0.5 * plain <= variance <= 1.6 * plain + 1  # an estimate from the same few cells
    _, cells = laid_out(counts, law)
    w, _ = weights_everywhere(counts, law, lambda t: t)
    near = counts[counts < 60]
    assert cells @ w**2 - near @ near <= 1.0001 * law.variance * near.size


def test_negative_control_a_constant_below_zero_is_worse_than_the_plain_sum():
    """What was done before: g(t) = g(0) for t < 0, whose kink at 0 is amplified by κ^ρ."""
    law, counts = DiscreteLaplace(0.5, 3), DATA["Poisson 1"](np.random.default_rng(4))
    values, cells = laid_out(counts, law)
    kappa = law.variance / 6
    filtered = np.maximum(np.arange(values[0] - 3, values[-1] + 4), 0).astype(float)
    for _ in range(3):
        filtered = filtered[1:-1] - kappa * np.diff(filtered, 2)
    assert cells @ filtered**2 - counts @ counts > 900 * law.variance * counts.size


@pytest.mark.parametrize("power", [2, 3])
def test_constants_stay_constant_and_values_far_below_do_no_harm(power):
    law = DiscreteLaplace(1, power)
    noisy = NoisyProfile.from_counts([-(10**6), *([-3, 0, 1, 5] * 20)], epsilon=1, power=power)
    w, spread = least_weights(noisy, lambda t: np.full(t.shape, 7.0))
    assert w == pytest.approx(np.full(w.size, 7.0), abs=1e-9)
    assert spread == pytest.approx(np.zeros(w.size), abs=1e-9)
    assert np.isfinite(least_weights(noisy, lambda t: t)[0]).all()

    def exists(noise, cells):
        return Continuation.of(NoisyProfile.from_tally([0], [cells], noise=noise)) is not None

    assert not exists(DiscreteLaplace(1), 1000)
    assert not exists(DiscreteLaplace(1, "3/2"), 1000)
    assert not exists(DiscreteLaplace("0.0001", 2), 1000)
    assert not exists(law, 10)
    assert exists(law, 1000)


@pytest.mark.parametrize(("epsilon", "power"), [("0.0001", 2), (1, 1.5), (0.05, "7/3"), (0.05, 40)])
def test_without_one_the_total_is_the_plain_sum(epsilon, power):
    noisy = NoisyProfile.from_counts([-7, 3, 0, 12, -1], epsilon=epsilon, power=power)
    value, variance = functional(noisy, lambda t: t)
    assert value == pytest.approx(7, abs=1e-6)
    assert variance == pytest.approx(5 * noisy.noise.variance, rel=1e-6)


@pytest.mark.parametrize(("epsilon", "power"), [(400, 2), (50, 60)])
def test_noise_that_is_never_seen_needs_none(epsilon, power):
    """e^(−ε·ρ) underflows: weights are the plain ones, and every answer is exact."""
    counts = np.repeat([0, 1, 2], 40)
    profile = reconstruct(counts, epsilon=epsilon, power=power)
    assert profile.total.value == pytest.approx(120)
    assert profile.at_least(2).value == pytest.approx(40)
