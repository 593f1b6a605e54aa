"""The paper's bounds: formulas against mpmath, lemmas against dense matrices and simulation."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles_paper as oracle
from unnoise import _sampler, bounds
from unnoise._circulant import Circulant, fast_inversion, round_profile
from unnoise.errors import InputError

NORMS = (1, 2, math.inf)
epsilons = st.sampled_from([0.02, 0.1, 0.5, 1.0, 2.0, 6.0, 40.0])


@settings(deadline=None)
@given(epsilons, st.integers(1, 10**9), st.floats(1e-9, 0.99))
def test_window_is_the_smallest_that_does_both_jobs(epsilon, d, eta):
    reach = bounds.window(d, epsilon, eta)
    with mpmath.workdps(60):
        e = mpmath.mpf(epsilon)
        a = mpmath.exp(-e)

        def good(b):
            tail = 2 * a ** (b + 1) / (1 + a)  # P(|Z| > b): the sum starts at b+1
            return tail <= mpmath.mpf(eta) / d and 8 * mpmath.exp(e) / (mpmath.exp(2 * e) - 1) <= mpmath.exp(e * b)

        assert good(reach)
        assert reach == 0 or not good(reach - 1)


def test_window_counts_its_tail_from_one_past_the_reach():
    a, reach = math.exp(-1), bounds.window(1000, 1, 0.05)
    by_hand = 2 * sum((1 - a) / (1 + a) * a**z for z in range(reach + 1, 400))
    assert by_hand == pytest.approx(2 * a ** (reach + 1) / (1 + a), rel=1e-12)
    assert by_hand <= 0.05 / 1000 < by_hand / a  # one less would not do


@settings(deadline=None)
@given(epsilons, st.integers(0, 300))
def test_p_norm_is_the_sum_of_the_row(epsilon, reach):
    with mpmath.workdps(40):
        exact = 1 + 2 * sum(mpmath.exp(-mpmath.mpf(epsilon) * j) for j in range(1, reach + 1))
    assert bounds.p_norm(epsilon, reach) == pytest.approx(float(exact), rel=1e-13)


@settings(deadline=None)
@given(st.sampled_from([0.1, 0.5, 1.0, 2.0, 6.0]), st.integers(0, 40), st.integers(1, 1000))
def test_matrix_norm_lemma(epsilon, n, d):
    reach = bounds.window(d, epsilon, 0.5)
    order = n + 2 * reach + 1
    inverse = np.linalg.inv(oracle.dense_channel(epsilon, reach, order))
    for norm in NORMS:
        exact = np.linalg.norm(inverse, norm)
        assert bounds.inverse_norm(epsilon, reach, n, norm) == pytest.approx(exact, rel=1e-9)
        assert exact <= bounds.inverse_norm_bound(epsilon, reach, norm) * (1 + 1e-12)
    assert np.linalg.norm(inverse, 1) == pytest.approx(np.linalg.norm(inverse, np.inf), rel=1e-9)


def test_matrix_norm_bound_formula_in_the_papers_letters():
    for epsilon, reach in ((0.5, 12), (1.0, 9), (3.0, 4)):
        up, down = math.exp(epsilon), math.exp(-epsilon)
        wide = (2 + down + up) / (up - down - 4 * math.exp(-epsilon * reach)) * bounds.p_norm(epsilon, reach)
        two = bounds.p_norm(epsilon, reach) * (1 + down) / (1 - down - 2 * math.exp(-epsilon * (reach + 1)))
        assert bounds.inverse_norm_bound(epsilon, reach, 1) == pytest.approx(wide, rel=1e-12)
        assert bounds.inverse_norm_bound(epsilon, reach, math.inf) == pytest.approx(wide, rel=1e-12)
        assert bounds.inverse_norm_bound(epsilon, reach, 2) == pytest.approx(two, rel=1e-12)
    assert bounds.inverse_norm_bound(0.1, 1, 2) == math.inf  # so small a window leaves the lemma empty


@settings(deadline=None)
@given(st.sampled_from([0.3, 1.0, 3.0]), st.integers(0, 15), st.integers(0, 2**32 - 1))
def test_single_entry_lemma(epsilon, n, seed):
    reach = bounds.window(10, epsilon, 0.5)
    order = n + 2 * reach + 1
    x = np.random.default_rng(seed).standard_cauchy(order)
    b = np.abs(oracle.dense_channel(epsilon, reach, order) @ x)
    assert (np.abs(x) <= bounds.single_entry_bound(b, x, epsilon, reach) * (1 + 1e-9) + 1e-9).all()


def test_single_entry_lemma_is_an_equality_for_a_unit_vector():
    """x = e_0 makes every triangle inequality of the proof tight at t = 0 except those of the signs."""
    epsilon, reach, order = 1.0, 6, 40
    x = np.zeros(order)
    x[0] = 1
    b = np.abs(oracle.dense_channel(epsilon, reach, order) @ x)
    bound = bounds.single_entry_bound(b, x, epsilon, reach)[0]
    a = math.exp(-epsilon)
    assert bound == pytest.approx((a + 1 / a + 2 * a) / (1 / a - a), rel=1e-12)


@pytest.mark.statistical
@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_deviation_lemma_in_simulation(epsilon):
    """2,000 draws of y; given the window, the lemma allows a share η of failures. A 12th must fail."""
    d, n, eta, runs = 800, 12, 0.05, 2000
    h = np.random.default_rng(8).integers(0, n + 1, size=d)
    reach = bounds.window(d, epsilon, eta / 2)
    order = n + 2 * reach + 1
    f = np.zeros(order)
    f[reach : reach + n + 1] = np.bincount(h, minlength=n + 1) / d
    expected = oracle.dense_channel(epsilon, reach, order) @ f
    noise = _sampler.discrete_laplace(d * runs, epsilon).reshape(runs, d)
    kept = noise[np.abs(noise).max(axis=1) <= reach]
    assert kept.shape[0] >= (1 - eta) * runs
    y = np.stack([np.bincount(h + z + reach, minlength=order) / d for z in kept])
    for norm in NORMS:
        sizes = np.linalg.norm(y - expected, norm, axis=1)
        allowed = bounds.deviation(d, n, epsilon, eta, norm, reach=reach)
        print(f"p = {norm}: largest {sizes.max():.4f}, allowed {allowed:.4f}")
        assert (sizes > allowed).mean() <= eta
        assert (sizes > allowed / 12).mean() > eta


def test_deviation_formulas():
    d, n, epsilon, eta, reach = 5000, 30, 0.7, 0.1, 20
    size = n + 2 * reach + 1
    log = math.log(2 * size / eta)
    want = {
        1: math.sqrt(size / d) + math.sqrt(2 * math.log(1 / eta) / d),
        2: math.sqrt(1 / d) + math.sqrt(math.log(1 / eta) / d),
        math.inf: math.sqrt(2 * log / (d * bounds.p_norm(epsilon, reach))) + 2 * log / (3 * d),
    }
    for norm, value in want.items():
        assert bounds.deviation(d, n, epsilon, eta, norm, reach=reach) == pytest.approx(value, rel=1e-14)
    known = bounds.deviation(d, n, epsilon, eta, 1, reach=reach, root_sum=2.0)
    assert known == pytest.approx(2 / math.sqrt(d) + math.sqrt(2 * math.log(1 / eta) / d), rel=1e-14)


@pytest.mark.parametrize(("norm", "factor"), [(1, 2), (2, 2), (math.inf, 4)])
def test_theorem_1_is_its_factors(norm, factor):
    d, n, epsilon, eta = 20_000, 40, 1.0, 0.05
    reach = bounds.window(d, epsilon, eta / 2)  # η split between the two events
    product = bounds.inverse_norm_bound(epsilon, reach, norm) * bounds.deviation(
        d, n, epsilon, eta / 2, norm, reach=reach
    )
    assert bounds.theorem1(d, n, epsilon, eta, norm) == pytest.approx(factor * product, rel=1e-14)
    assert bounds.theorem1(d, n, epsilon, eta, norm, rounded=False) == pytest.approx(2 * product, rel=1e-14)


def test_cauchy_schwarz_covers_every_profile():
    rng = np.random.default_rng(0)
    for size in (5, 40):
        expected = rng.dirichlet(np.full(size, 0.3))
        assert np.sqrt(expected).sum() <= math.sqrt(size) + 1e-12


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("step", [1, 2, None])
def test_exact_sensitivity_of_the_linear_estimate_by_brute_force(norm, step):
    d, n, epsilon = 10, 3, 1.0
    reach = bounds.window(d, epsilon, 0.025)
    order, inside = n + 2 * reach + 1, slice(reach, reach + n + 1)
    channel = Circulant.laplace(epsilon, reach=reach, order=order)
    rest = np.full(order, (1 - 1 / d) / order)
    outputs = {None: fast_inversion(channel, rest, inside, norm)[inside]}
    for i in range(order):
        outputs[i] = fast_inversion(channel, rest + np.eye(order)[i] / d, inside, norm)[inside]
    size = order if step is None else step
    inside_pairs = [(i, j) for i in range(order) for j in range(i) if step is None or i - j == size]
    leaving = [(i, None) for i in range(order) if i < size or i >= order - size]
    largest = max(np.abs(outputs[i] - outputs[j]).max() for i, j in inside_pairs + leaving)
    assert bounds.linear_sensitivity(d, n, epsilon, norm, step=step) == pytest.approx(largest, rel=1e-9)


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(NORMS), st.sampled_from([0.5, 1.0, 3.0]), st.integers(1, 8), st.integers(0, 2**32 - 1)
)
def test_sensitivity_lemma_for_moves_by_any_amount(norm, epsilon, n, seed):
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 60))
    reach = bounds.window(d, epsilon, 0.025)
    order, inside = n + 2 * reach + 1, slice(reach, reach + n + 1)
    channel = Circulant.laplace(epsilon, reach=reach, order=order)
    cells = rng.integers(0, order, size=d)
    moved = cells.copy()
    moved[0] = rng.integers(0, order)
    results = [
        round_profile(fast_inversion(channel, np.bincount(c, minlength=order) / d, inside, norm)[inside])[0]
        for c in (cells, moved)
    ]
    assert np.abs(results[0] - results[1]).max() <= bounds.sensitivity_bound(d, epsilon) + 1e-12


@pytest.mark.parametrize("norm", NORMS)
def test_lemma_bounds_the_exact_sensitivity(norm):
    for epsilon in (0.3, 1.0, 4.0):
        exact = bounds.linear_sensitivity(1000, 15, epsilon, norm, step=None)
        assert exact <= bounds.sensitivity_bound(1000, epsilon) / 2  # 3 from the inversion, 2 from the rounding


def test_sensitivity_bound_is_three_times_two_inverse_norms():
    d, epsilon, eta = 3000, 0.7, 0.1
    inverse = bounds.inverse_norm_bound(epsilon, bounds.window(d, epsilon, eta / 2), math.inf)
    assert bounds.sensitivity_bound(d, epsilon, eta) == pytest.approx(3 * 2 * inverse / d, rel=1e-14)


def test_theorem_2():
    assert bounds.theorem2(10_000, 2, c=0.5) == pytest.approx(0.01 / math.e)
    assert bounds.theorem2(10_000, 2, c=0.5, constant=3) == pytest.approx(0.03 / math.e)
    assert bounds.theorem2_sensitivity(10_000, 2, c=0.5) == pytest.approx(0.02 / math.e)
    # the discrete Laplace mechanism satisfies the theorem's condition once d is large
    assert bounds.sensitivity_bound(10**10, 1) < bounds.theorem2_sensitivity(10**10, 1, c=1)
    assert bounds.theorem2(10**6, 1, c=1) < bounds.theorem1(10**6, 50, 1, 0.05, math.inf)


def test_bad_input():
    with pytest.raises(InputError, match=r"epsilon must be > 0, got -1\.0"):
        bounds.window(10, -1.0, 0.1)
    with pytest.raises(InputError, match="d must be an integer ≥ 1, got 0"):
        bounds.theorem1(0, 10, 1, 0.1, 2)
    with pytest.raises(InputError, match="n must be an integer"):
        bounds.deviation(10, 1.5, 1, 0.1, 1)
    with pytest.raises(InputError, match="eta must be above 0 and below 1, got nan"):
        bounds.theorem1(10, 10, 1, math.nan, 2)
    with pytest.raises(InputError, match=r"norm must be 1, 2 or inf, got 1\.5"):
        bounds.rounding_factor(1.5)
    with pytest.raises(InputError, match="c must be a number > 0, got 0"):
        bounds.theorem2(10, 1, c=0)
    with pytest.raises(InputError, match="b and x must be equally long"):
        bounds.single_entry_bound([1.0], [1.0, 2.0], 1, 0)
    with pytest.raises(InputError, match="must be ≤ 4000"):
        bounds.linear_sensitivity(100, 10_000, 1, 2)
