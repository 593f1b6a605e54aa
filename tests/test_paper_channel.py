"""The circulant channel and Algorithm 2 against dense matrices, enumeration and certified optima."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles_paper as oracle
from unnoise._circulant import Circulant, fast_inversion, p_norm, steepest, window
from unnoise.estimators.paper import private_profile
from unnoise.testing import seeded

NORMS = (1, 2, math.inf)
HALF = math.log(2)  # a = 1/2

channels = st.tuples(st.sampled_from([0.05, 0.3, 1.0, 4.0]), st.integers(0, 12), st.integers(0, 30))


# the channel

@settings(deadline=None)
@given(channels)
def test_eigenvalues_are_the_fourier_sum_of_the_first_row(shape):
    epsilon, reach, n = shape
    order = n + 2 * reach + 1
    values = Circulant.laplace(epsilon, reach=reach, order=order).eigenvalues
    assert values.dtype == np.float64  # A is symmetric: no imaginary part, no factor w^B
    for k in range(order // 2 + 1):
        exact = oracle.eigenvalue(epsilon, reach, order, k)
        assert abs(complex(exact).imag) < 1e-15
        assert abs(values[k] - float(exact.real)) < 1e-13


def test_eigenvalues_keep_their_relative_precision_for_small_epsilon():
    epsilon, reach, order = 0.001, 60, 150
    values = Circulant.laplace(epsilon, reach=reach, order=order).eigenvalues
    for k in (0, 1, 37, 75):
        exact = float(oracle.eigenvalue(epsilon, reach, order, k).real)
        assert values[k] == pytest.approx(exact, rel=1e-10, abs=1e-15)


@settings(deadline=None)
@given(channels, st.integers(0, 2**32 - 1))
def test_apply_and_solve_are_the_dense_matrix_and_its_inverse(shape, seed):
    epsilon, _, n = shape
    reach = window(100, epsilon, 0.5)
    if reach > 200:
        reach = 150  # still well conditioned for ε = 0.05
    order = n + 2 * reach + 1
    channel, dense = Circulant.laplace(epsilon, reach=reach, order=order), oracle.dense_channel(epsilon, reach, order)
    x = np.random.default_rng(seed).normal(size=order)
    inverse = np.linalg.inv(dense)
    scale = np.abs(inverse).sum(axis=0).max()
    np.testing.assert_allclose(channel.apply(x), dense @ x, atol=1e-12)
    np.testing.assert_allclose(channel.solve(x), inverse @ x, atol=1e-11 * scale)
    np.testing.assert_allclose(channel.solve_transpose(x), inverse.T @ x, atol=1e-11 * scale)
    np.testing.assert_allclose(channel.inverse_column(), inverse[:, 0], atol=1e-11 * scale)


@pytest.mark.parametrize(("epsilon", "modulus"), [(1.0, 2), (1.0, 7), (0.3, 12), (5.0, 31)])
def test_modular_channel_is_the_dense_matrix(epsilon, modulus):
    channel, dense = Circulant.modular(epsilon, modulus), oracle.dense_modular(epsilon, modulus)
    x = np.random.default_rng(0).normal(size=modulus)
    np.testing.assert_allclose(channel.apply(x), dense @ x, atol=1e-13)
    np.testing.assert_allclose(channel.solve(x), np.linalg.solve(dense, x), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(channel.solve_transpose(x), np.linalg.solve(dense.T, x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("cells_at", "reach"), [([1, 0, 2], 2), ([0, 3], 3), ([2, 1, 0, 1], 1), ([1], 4)])
def test_expectation_lemma_by_exact_enumeration(cells_at, reach):
    expected = oracle.expectation_by_enumeration(cells_at, Fraction(1, 2), reach)
    assert sum(expected.values()) == 1
    f = np.zeros(len(cells_at) + 2 * reach)
    f[reach : reach + len(cells_at)] = np.array(cells_at) / sum(cells_at)
    got = Circulant.laplace(HALF, reach=reach, order=f.size).apply(f)
    np.testing.assert_allclose(got, [float(expected[t]) for t in sorted(expected)], atol=1e-14)


def test_p_norm_and_reach_zero():
    assert p_norm(1, 0) == 1
    assert p_norm(HALF, 3) == pytest.approx(1 + 2 * (1 / 2 + 1 / 4 + 1 / 8), rel=1e-14)
    y = np.array([0.25, 0.75])
    np.testing.assert_allclose(Circulant.laplace(50, reach=0, order=2).solve(y), y, atol=1e-15)


# Algorithm 2

@st.composite
def observations(draw):
    epsilon = draw(st.sampled_from([0.3, 1.0, 3.0]))
    n = draw(st.integers(0, 12))
    reach = window(10, epsilon, 0.5)
    order = n + 2 * reach + 1
    tally = np.array(draw(st.lists(st.integers(0, 9), min_size=order, max_size=order)), dtype=float)
    tally[draw(st.integers(0, order - 1))] += 1
    return epsilon, reach, n, tally / (tally.sum() + draw(st.integers(0, 3)))


@pytest.mark.parametrize("norm", NORMS)
@settings(max_examples=60, deadline=None)
@given(observations())
def test_algorithm_2_reaches_the_certified_optimum(norm, case):
    epsilon, reach, n, y = case
    dense = oracle.dense_channel(epsilon, reach, y.size)
    inside = slice(reach, reach + n + 1)
    r = fast_inversion(Circulant.laplace(epsilon, reach=reach, order=y.size), y, inside, norm)
    assert r[inside].sum() == pytest.approx(1, abs=1e-11)
    distance = np.linalg.norm(dense @ r - y, norm)
    primal, dual = oracle.least_distance(dense, y, inside, norm)
    assert abs(primal - dual) <= max(1e-10, 1e-7 * abs(primal))  # the oracle certifies itself …
    assert distance <= dual + max(1e-10, 1e-7 * abs(dual))  # … and nothing can be below its dual value


@pytest.mark.parametrize("norm", NORMS)
def test_algorithm_2_is_optimal_on_a_longer_window(norm):
    with seeded(6):
        noisy = private_profile(np.arange(60), epsilon=0.1)
    reach = window(noisy.cells, 0.1, 0.5)
    order, inside = 60 + 2 * reach, slice(reach, reach + 60)
    y = np.zeros(order)
    kept = (noisy.values >= -reach) & (noisy.values < 60 + reach)
    y[noisy.values[kept] + reach] = noisy.tally[kept] / noisy.cells
    dense = oracle.dense_channel(0.1, reach, order)
    r = fast_inversion(Circulant.laplace(0.1, reach=reach, order=order), y, inside, norm)
    primal, dual = oracle.least_distance(dense, y, inside, norm)
    assert abs(primal - dual) <= max(1e-10, 1e-7 * primal)
    assert np.linalg.norm(dense @ r - y, norm) <= dual + max(1e-10, 1e-7 * dual)


def test_algorithm_2_in_the_papers_own_form():
    """r = u − (⟨1,u⟩−1)/⟨1,A⁻¹a⟩·A⁻¹a with dense matrices, line by line."""
    epsilon, reach, n = 1.0, 8, 10
    y = np.random.default_rng(3).dirichlet(np.ones(n + 2 * reach + 1)) * 0.97
    inverse = np.linalg.inv(oracle.dense_channel(epsilon, reach, y.size))
    ones = np.zeros(y.size)
    ones[reach : reach + n + 1] = 1
    c, u = ones @ inverse, inverse @ y
    first = np.zeros(y.size)
    first[reach] = 1  # the smallest of the tied t = 0 and t = n
    for norm, a in ((1, first), (2, c / np.linalg.norm(c)), (math.inf, np.sign(c))):
        r = u - (ones @ u - 1) / (ones @ inverse @ a) * (inverse @ a)
        got = fast_inversion(
            Circulant.laplace(epsilon, reach=reach, order=y.size), y, slice(reach, reach + n + 1), norm
        )
        np.testing.assert_allclose(got, r, atol=1e-12)


@pytest.mark.parametrize("order", [64, 97, 2 * 3 * 5 * 7, 1009])
def test_p1_takes_the_smallest_of_the_tied_entries(order):
    reach = 12
    channel = Circulant.laplace(1.0, reach=reach, order=order)
    ones = np.zeros(order)
    ones[reach : order - reach] = 1
    c = channel.solve_transpose(ones)
    assert c[reach] == pytest.approx(c[order - reach - 1], rel=1e-13)  # t = 0 and t = n tie
    direction, dual = steepest(c, 1)
    assert np.flatnonzero(direction).tolist() == [reach]
    assert dual == pytest.approx(np.abs(c).max(), rel=1e-12)
