"""The free check of the claimed ε: silent on honest noise, loud on a wrong ε, another law, or clamping.

The check alarms at p < 1e-6. Honest releases are judged in bulk by the uniformity of their p-values; power is shown
by false claims that must be found every time at the sizes stated.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import stats

from drawing_tools import simulate
from unnoise.answers.check import ALARM, check_claim, find_cliffs, warn_of
from unnoise.answers.reconstruct import reconstruct
from unnoise.errors import ClaimWarning
from unnoise.noise import DiscreteLaplace
from unnoise.noisy import NoisyProfile

DATA = {
    "zeros": lambda rng, n: np.zeros(n, dtype=np.int64),
    "Poisson 2": lambda rng, n: rng.poisson(2, n),
    "sparse": lambda rng, n: np.where(rng.random(n) < 0.7, 0, rng.integers(0, 60, n)),
}


def profile(noisy, epsilon, power=1):
    return NoisyProfile.from_counts(noisy, epsilon=epsilon, power=power)


@pytest.mark.statistical
@pytest.mark.parametrize("epsilon", [0.1, 1, 3])
def test_p_values_of_honest_noise_are_uniform_whatever_the_data(epsilon):
    """Both tests, three kinds of data: Kolmogorov–Smirnov against uniform, false alarm 1e-9."""
    rng = np.random.default_rng(1)
    shape, smallest = [], 1.0
    for make in DATA.values():
        for _ in range(100):
            check = check_claim(profile(simulate(rng, make(rng, 5000), DiscreteLaplace(epsilon)), epsilon))
            shape.append(check.shape)
            smallest = min(smallest, check.p_value)
    # the discreteness of χ² on pooled cells leaves p-values only nearly uniform
    result = stats.kstest(shape, "uniform")
    print("KS", result.pvalue, "smallest of 300", smallest)
    assert result.pvalue > 1e-9
    assert smallest > ALARM


@pytest.mark.statistical
def test_the_rate_p_value_is_exact():
    """P(p ≤ α) ≤ α: 4000 releases, α = 0.01, binomial bound at 1e-9."""
    rng = np.random.default_rng(2)
    a = np.exp(-0.5)
    below = 0
    for _ in range(4000):
        depth = rng.geometric(1 - a, 60) - 1
        below += check_claim(profile(-depth, 0.5)).rate <= 0.01
    assert stats.binom.sf(below - 1, 4000, 0.01) > 1e-9


@pytest.mark.statistical
@pytest.mark.parametrize("factor", [0.95, 1.05])
@pytest.mark.parametrize("data", DATA)
def test_an_epsilon_wrong_by_five_percent_is_found(factor, data):
    rng = np.random.default_rng(3)
    for _ in range(5):
        noisy = simulate(rng, DATA[data](rng, 200_000), DiscreteLaplace(1))
        check = check_claim(profile(noisy, str(factor)))
        assert check.verdict == "wrong rate"
        assert check.apparent == pytest.approx(1, abs=0.03)


@pytest.mark.statistical
@pytest.mark.parametrize("epsilon", [0.5, 1, 2])
def test_rounded_continuous_laplace_is_found_where_zeros_abound(epsilon):
    rng = np.random.default_rng(4)
    for _ in range(5):
        noisy = np.rint(rng.laplace(0, 1 / epsilon, 100_000)).astype(np.int64)
        assert check_claim(profile(noisy, str(epsilon))).verdict in ("wrong law", "wrong rate")


@pytest.mark.statistical
def test_gaussian_noise_is_found():
    rng = np.random.default_rng(5)
    noisy = np.rint(rng.normal(0, 1.357, 20_000)).astype(np.int64)
    assert check_claim(profile(noisy, 1)).verdict in ("wrong law", "wrong rate")


def test_clamped_input_is_found_and_named():
    rng = np.random.default_rng(6)
    noisy = np.maximum(simulate(rng, np.zeros(100, dtype=np.int64), DiscreteLaplace(1)), 0)
    check = check_claim(profile(noisy, 1))
    assert check.verdict == "clamped"
    with pytest.warns(ClaimWarning, match=r"clamped at 0: pass clipped=True"):
        warn_of(check)


def test_the_warning_names_the_apparent_epsilon():
    rng = np.random.default_rng(7)
    check = check_claim(profile(simulate(rng, np.zeros(5000, dtype=np.int64), DiscreteLaplace("0.5")), 1))
    with pytest.warns(ClaimWarning, match=r"epsilon=1: they decay like epsilon=0\.[45]"):
        warn_of(check)


def test_honest_noise_does_not_warn():
    rng = np.random.default_rng(8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        reconstruct(profile(simulate(rng, rng.poisson(1, 5000), DiscreteLaplace(1)), 1), method="isotonic")


def test_where_it_is_not_available_it_says_so():
    merged = check_claim(profile([0, -1, 2], 1, power=2))
    assert not merged.available
    assert "power" in merged.verdict
    far = check_claim(profile([100, 120, 99], 1))
    assert far.verdict == "no cell at or below 0 to judge by"
    assert far.p_value == 1


@pytest.mark.statistical
@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("epsilon", [0.1, 1, 3])
def test_honest_noise_has_no_cliffs(epsilon, power):
    rng = np.random.default_rng(9)
    law = DiscreteLaplace(epsilon, power)
    for make in DATA.values():
        for _ in range(30):
            assert not find_cliffs(profile(simulate(rng, make(rng, 3000), law), epsilon, power))


def test_a_cliff_is_found_with_its_side():
    noisy = np.concatenate([np.full(200, 5), np.full(100, 6), [7, 8]])
    cliffs = find_cliffs(profile(noisy, 1))
    assert [(c.value, c.side, c.cells) for c in cliffs] == [(5, -1, 200)]
