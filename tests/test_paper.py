"""The paper's Algorithms 1 to 3, the unfolding and ``paper`` against the oracles."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles_paper as oracle
from unnoise import _sampler
from unnoise._circulant import Circulant, fast_inversion, p_norm, round_profile, steepest, window
from unnoise.errors import InputError
from unnoise.estimators.paper import paper, private_profile, unfold
from unnoise.noise import DiscreteLaplace
from unnoise.noisy import NoisyProfile
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


# Algorithm 3

def unrounded(shape, weights):
    """A vector whose entries add up to 1 (bytes as multiples of 1/40), and a profile it may be an estimate of."""
    r = np.frombuffer(shape, dtype=np.int8) / 40
    r[shape[0] % r.size] += 1 - r.sum()
    f = np.frombuffer(weights[: r.size].ljust(r.size, b"\0"), dtype=np.uint8) // 16 + 0.0
    f[weights[0] % r.size] += 1
    return r, f / f.sum()


shapes = st.tuples(st.binary(min_size=1, max_size=12), st.binary(min_size=1, max_size=12))


@settings(max_examples=4000, deadline=None)
@given(shapes)
def test_rounding_is_feasible_and_keeps_the_lemma(case):
    r, f = unrounded(*case)
    x, threshold = round_profile(r)
    assert threshold >= 0
    assert x.min() >= 0
    assert x.max() <= 1 + 1e-12
    assert abs(x.sum() - 1) <= 1e-12
    slack = 1e-12 * (1 + np.abs(r).max())
    for norm, factor in ((1, 1), (2, 1), (math.inf, 2)):
        assert np.linalg.norm(x - f, norm) <= factor * np.linalg.norm(r - f, norm) + slack


@settings(max_examples=1000, deadline=None)
@given(shapes)
def test_rounding_equals_the_iterated_adjustment_in_fractions(case):
    r, _ = unrounded(*case)
    exact = oracle.iterated_adjustment(r)
    np.testing.assert_allclose(round_profile(r)[0], [float(v) for v in exact], atol=1e-12)


def test_rounding_allows_the_last_bits_and_refuses_more():
    almost = np.array([1 + 4e-16, -1e-16])
    assert round_profile(almost)[0].sum() == pytest.approx(1, abs=1e-15)
    assert round_profile(np.array([1 - 1e-16, 0.0]))[0].tolist() == [1 - 1e-16, 0.0]
    with pytest.raises(InputError, match=r"must add up to 1 before it is rounded, got 0\.5"):
        round_profile(np.array([0.5, 0.0]))
    with pytest.raises(InputError, match="must add up to 1"):
        round_profile(np.array([math.nan, 1.0]))


# unfolding

@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_unfolding_gives_the_unclipped_law_exactly(count, monkeypatch):
    """Push the exact law of a clipped count through ``unfold`` itself, one geometric outcome at a time."""
    a, n, far = Fraction(1, 2), 3, 12
    clipped = {v: oracle.laplace_law(a, v - count) for v in range(1, n)}
    clipped[0] = a**count / (1 + a)  # P(Z ≤ −h)
    clipped[n] = a ** (n - count) / (1 + a)
    assert sum(clipped.values()) == 1
    law = dict.fromkeys(range(-far, n + far + 1), Fraction(0))
    for outcome in range(far + 1):
        monkeypatch.setattr(_sampler, "geometric", lambda size, *_, k=outcome: np.full(size, k, dtype=np.int64))
        for value, probability in clipped.items():
            spread = unfold(NoisyProfile.from_counts([value], epsilon=HALF), max_count=n)
            (result,) = spread.values.tolist()
            law[result] += probability * (1 - a) * a**outcome
    for value in range(-far, n + far + 1):
        if 0 < value < n:  # reached for every outcome: undo the cut of the enumeration at ``far``
            law[value] /= 1 - a ** (far + 1)
        assert law[value] == oracle.laplace_law(a, value - count)


def test_unfolding_keeps_the_cells_between_and_the_total():
    noisy = NoisyProfile.from_tally([0, 1, 2, 5], [2_000_000, 7, 8, 90], noise=DiscreteLaplace(1))
    spread = unfold(noisy, max_count=5)
    assert spread.cells == noisy.cells
    inner = (spread.values >= 1) & (spread.values <= 4)
    assert dict(zip(spread.values[inner].tolist(), spread.tally[inner].tolist())) == {1: 7, 2: 8}
    only_below = unfold(noisy)
    assert only_below.tally[only_below.values == 5].tolist() == [90]
    assert only_below.values[0] < 0


def chi_square(observed, expected):
    """Pearson's statistic and the threshold it stays below with probability 1 − 1e−9, cells of ≥ 10 expected."""
    from scipy.stats import chi2

    keep = expected >= 10
    o, e = np.append(observed[keep], observed[~keep].sum()), np.append(expected[keep], expected[~keep].sum())
    o, e = o[e > 0], e[e > 0]
    return float(((o - e) ** 2 / e).sum()), float(chi2.isf(1e-9, o.size - 1))


@pytest.mark.statistical
def test_unfolded_noise_has_the_law_of_the_noise():
    """False-alarm rate 1e−9 (χ²); the same test must reject ε wrong by 5 % either way."""
    d, count, n, epsilon = 1_000_000, 1, 3, 0.5
    clipped = np.clip(count + _sampler.discrete_laplace(d, epsilon), 0, n)
    spread = unfold(NoisyProfile.from_counts(clipped, epsilon=epsilon), max_count=n)
    grid = np.arange(-200, 201)
    observed = np.zeros(grid.size)
    observed[spread.values + 200] = spread.tally
    for claimed, fits in ((0.5, True), (0.525, False), (0.475, False)):
        expected = d * DiscreteLaplace(claimed).pmf(grid - count)
        statistic, threshold = chi_square(observed, expected)
        print(f"claimed ε = {claimed}: χ² = {statistic:.1f}, threshold {threshold:.1f}")
        assert (statistic < threshold) == fits


# Algorithm 1 and updates

@pytest.mark.statistical
def test_private_profile_concentrates_around_its_expectation():
    """Each tally is a sum of d independent indicators: Bernstein at 1e−9/size per entry, two-sided."""
    cells_at = np.array([400_000, 0, 300_000, 0, 0, 300_000])
    noisy = private_profile(cells_at, epsilon=1)
    d, grid = int(cells_at.sum()), np.arange(-40, 46)
    expected = sum(how_many * DiscreteLaplace(1).pmf(grid - t) for t, how_many in enumerate(cells_at))
    observed = np.zeros(grid.size)
    observed[noisy.values + 40] = noisy.tally
    log = math.log(2 * grid.size / 1e-9)
    allowed = np.sqrt(2 * expected * log) + 2 * log / 3
    assert noisy.cells == d
    assert (np.abs(observed - expected) <= allowed).all()
    for claimed in (0.95, 1.05):
        wrong = sum(how_many * DiscreteLaplace(claimed).pmf(grid - t) for t, how_many in enumerate(cells_at))
        assert (np.abs(observed - wrong) > allowed).any()


def test_update_property_cell_by_cell():
    """U(A(h), h') = A(h) + h' is A(h + h') for every realisation of the noise."""
    h, more = np.array([0, 3, 1, 7]), np.array([2, 0, 5, 1])
    with seeded(5):
        updated = h + _sampler.discrete_laplace(4, 1) + more
    with seeded(5):
        fresh = (h + more) + _sampler.discrete_laplace(4, 1)
    assert (updated == fresh).all()


@pytest.mark.parametrize(("h", "more"), [(0, 1), (2, 5), (7, 0)])
def test_update_property_in_law(h, more):
    a = Fraction(1, 2)
    for value in range(-9, 20):
        assert oracle.laplace_law(a, (value - more) - h) == oracle.laplace_law(a, value - (h + more))


def test_profiles_are_permutation_free():
    """Algorithm 1 needs the profile only: equal seeds and equal profiles give equal noisy profiles."""
    with seeded(11):
        first = private_profile([2, 1], epsilon=1)
    with seeded(11):
        second = private_profile(np.array([2, 1, 0]), epsilon=1)
    assert first.values.tolist() == second.values.tolist()


# the estimator

@pytest.mark.parametrize("norm", NORMS)
def test_paper_returns_a_profile_close_to_the_truth(norm):
    with seeded(1):
        noisy = private_profile([0, 50_000, 0, 50_000], epsilon=1)
    fit = paper(noisy, norm=norm)
    assert fit.method == "paper"
    assert fit.mass.sum() == pytest.approx(1, abs=1e-12)
    assert (fit.mass > 0).all()
    f = np.zeros(int(fit.support.max()) + 1)
    f[fit.support] = fit.mass
    assert abs(f[1] - 0.5) < 0.05
    assert abs(f[3] - 0.5) < 0.05


def test_paper_says_what_it_did():
    with seeded(2):
        noisy = private_profile([500, 500], epsilon=1)
    diagnostics = paper(noisy, max_count=5, eta=0.1).diagnostics
    reach = window(1000, 1, 0.05)
    assert diagnostics["B"] == reach
    assert diagnostics["P_norm"] == p_norm(1, reach)
    assert diagnostics["n"] == 5
    assert diagnostics["n_declared"]
    assert diagnostics["window"] == (-reach, 5 + reach)
    assert (diagnostics["cells_below_window"], diagnostics["cells_above_window"]) == (0, 0)
    free = paper(noisy, eta=0.1).diagnostics
    assert free["n"] >= int(noisy.values[-1]) + reach
    assert not free["n_declared"]


@pytest.mark.parametrize("largest", [0, 90, 4993, 99_991])
def test_undeclared_n_gives_a_length_with_small_factors(largest):
    diagnostics = paper(NoisyProfile.from_counts([0, largest], epsilon=1)).diagnostics
    size = diagnostics["n"] + 2 * diagnostics["B"] + 1
    assert diagnostics["n"] >= largest + diagnostics["B"]
    assert size <= 1.2 * (largest + 3 * diagnostics["B"] + 1)
    for factor in (2, 3, 5, 7, 11):
        while size % factor == 0:
            size //= factor
    assert size == 1


def test_cells_outside_the_window_are_reported_not_lost():
    values, tally = [-60, 0, 1, 2, 70], [3, 500, 400, 100, 4]
    noisy = NoisyProfile.from_tally(values, tally, noise=DiscreteLaplace(1))
    fit = paper(noisy, max_count=3)
    assert fit.diagnostics["cells_below_window"] == 3
    assert fit.diagnostics["cells_above_window"] == 4
    assert fit.diagnostics["outside_window"].startswith("7 of 1007 cells hold noisy counts outside")
    assert fit.mass.sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("epsilon", ["1/1000", 0.05, 1, 30])
@pytest.mark.parametrize("counts", [[0], [-3, 0], [5], [0, 0, 0, 12]])
def test_paper_on_tiny_inputs(epsilon, counts):
    for norm in NORMS:
        fit = paper(NoisyProfile.from_counts(counts, epsilon=epsilon), norm=norm)
        assert fit.mass.sum() == pytest.approx(1, abs=1e-11)
        assert fit.support.min() >= 0


@pytest.mark.statistical
@pytest.mark.parametrize(("epsilon", "declared"), [(0.5, True), (2.0, False)])
def test_theorem_1_holds_in_simulated_runs(epsilon, declared):
    """2,000 runs for every p, n declared or not. 100 failures are allowed; a 40 times smaller bound must fail."""
    from unnoise.bounds import theorem1

    d, n, eta, runs = 1500, 20, 0.05, 2000
    rng = np.random.default_rng(20240711)
    h = rng.integers(0, n + 1, size=d) * rng.integers(0, 2, size=d)
    f = np.bincount(h, minlength=n + 1) / d
    noise = _sampler.discrete_laplace(d * runs, epsilon).reshape(runs, d)
    failures, tight = dict.fromkeys(NORMS, 0), dict.fromkeys(NORMS, 0)
    bounds = {norm: theorem1(d, n, epsilon, eta, norm) for norm in NORMS}
    for run in range(runs):
        noisy = NoisyProfile.from_counts(h + noise[run], epsilon=epsilon)
        for norm in NORMS:
            fit = paper(noisy, norm=norm, max_count=n if declared else None, eta=eta)
            r = np.zeros(fit.diagnostics["n"] + 1)
            r[fit.support] = fit.mass
            r[: n + 1] -= f
            error = np.linalg.norm(r, norm)
            failures[norm] += error > bounds[norm]
            tight[norm] += error > bounds[norm] / 40
    print(f"failures of {runs}: {failures}; of a 40 times smaller bound: {tight}")
    assert all(count <= eta * runs for count in failures.values())
    assert all(count > eta * runs for count in tight.values())


# bad input

def test_bad_input_says_what_must_hold():
    noisy = NoisyProfile.from_counts([1, 2, 3], epsilon=1)
    with pytest.raises(InputError, match="norm must be 1, 2 or inf, got 3"):
        paper(noisy, norm=3)
    with pytest.raises(InputError, match="norm must be 1, 2 or inf, got 'two'"):
        paper(noisy, norm="two")
    with pytest.raises(InputError, match="norm must be 1, 2 or inf, got True"):
        paper(noisy, norm=True)
    with pytest.raises(InputError, match="eta must be between 0 and 1, got 0"):
        paper(noisy, eta=0)
    with pytest.raises(InputError, match=r"max_count must be an integer, got 2\.5"):
        paper(noisy, max_count=2.5)
    with pytest.raises(InputError, match="max_count must be ≥ 0, got -1"):
        paper(noisy, max_count=-1)
    with pytest.raises(InputError, match="needs noise of power 1"):
        paper(NoisyProfile.from_counts([1, 2, 3], epsilon=1, power=2))
    with pytest.raises(InputError, match=r"some noisy count must lie in the window \[-\d+, \d+\], got .* 1000"):
        paper(NoisyProfile.from_counts([1000], epsilon=1), max_count=3)


def test_a_range_that_does_not_fit_is_refused_by_name():
    noisy = NoisyProfile.from_counts([1, 10**12], epsilon=1)
    with pytest.raises(InputError, match=r"at most 50,000,000 entries long for method 'paper'.*'isotonic' or 'auto'"):
        paper(noisy)
    assert paper(noisy, max_count=50).diagnostics["cells_above_window"] == 1


def test_bad_clipped_input():
    with pytest.raises(InputError, match="clipped counts must be ≥ 0, got -1"):
        unfold(NoisyProfile.from_counts([-1, 2], epsilon=1))
    with pytest.raises(InputError, match="clipped counts must be ≤ max_count=3, got 9"):
        unfold(NoisyProfile.from_counts([0, 9], epsilon=1), max_count=3)
    with pytest.raises(InputError, match="max_count must be ≥ 1, got 0"):
        unfold(NoisyProfile.from_counts([0], epsilon=1), max_count=0)
    with pytest.raises(InputError, match="unfolding of clipped counts needs noise of power 1"):
        unfold(NoisyProfile.from_counts([0], epsilon=1, power=2))
    with pytest.raises(InputError, match="cells_at must be ≥ 0 and hold at least one cell"):
        private_profile([0, 0], epsilon=1)
