"""Algorithm 1, updates, and ``paper`` as a whole: Theorem 1, diagnostics, refusals."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

import oracles_paper as oracle
from unnoise import _sampler
from unnoise._circulant import p_norm, window
from unnoise.errors import InputError
from unnoise.estimators.paper import frame, paper, private_profile, unfold
from unnoise.noise import DiscreteLaplace
from unnoise.noisy import NoisyProfile
from unnoise.testing import seeded

NORMS = (1, 2, math.inf)


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
    y = frame(noisy, 3, 0.05, 1000, "paper").observed
    assert y.sum() == pytest.approx(1000 / 1007, rel=1e-14)  # left out, not scaled away: Algorithm 2 makes up for them
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
    with pytest.raises(InputError, match="eta must be above 0 and below 1, got 0"):
        paper(noisy, eta=0)
    with pytest.raises(InputError, match=r"max_count must be an integer ≥ 0, got 2\.5"):
        paper(noisy, max_count=2.5)
    with pytest.raises(InputError, match="max_count must be an integer ≥ 0, got -1"):
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
    with pytest.raises(InputError, match="max_count must be an integer ≥ 1, got 0"):
        unfold(NoisyProfile.from_counts([0], epsilon=1), max_count=0)
    with pytest.raises(InputError, match="unfolding of clipped counts needs noise of power 1"):
        unfold(NoisyProfile.from_counts([0], epsilon=1, power=2))
    with pytest.raises(InputError, match="cells_at must be ≥ 0 and hold at least one cell"):
        private_profile([0, 0], epsilon=1)
