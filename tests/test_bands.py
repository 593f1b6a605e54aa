"""Bands, sums and their intervals: exact identities, brute-force oracles, and coverage with negative controls.

Coverage tests draw independent releases of one data set and judge one fixed question per release, so hits are
binomial; each fails a sound method with probability at most 1e-9 (``holds_between``).
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import unnoise as un
from drawing_tools import noisy_profile
from oracles_answers import binomial_limit, holds_between, unified_limits
from unnoise.answers.bands import Bands, binomial_upper, bounded_normal, poisson_quantile, step_error
from unnoise.answers.estimate import NO_END
from unnoise.answers.sums import check_growth, entropy_limits, sum_limits, xlogx
from unnoise.errors import InputError, UnnoiseWarning
from unnoise.estimators.linear import functional, inverse_taps, weights
from unnoise.noise import DiscreteLaplace
from unnoise.noisy import NoisyProfile

POWERS = [1, 2, 3, Fraction(3, 2)]


def indicator(lo, hi):
    return lambda t: ((t >= lo) & (t <= hi)).astype(float)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(-6, 25), min_size=1, max_size=40),
    st.sampled_from(POWERS),
    st.sampled_from(["0.1", "0.5", "1", "2", "5"]),
    st.sampled_from([0, 0, 0, 1, 1, 2, 3, 5, 12]),
    st.sampled_from([0, 0, 1, 2, 3, 9, 15]),
    st.booleans(),
)
def test_bands_are_the_linear_functional_of_their_indicator(noisy, power, epsilon, lo, width, endless):
    profile = NoisyProfile.from_counts(noisy, epsilon=epsilon, power=power)
    hi = NO_END if endless else lo + width
    bands = Bands(profile, profile.cells)
    estimate, _ = bands.linear(np.array([lo]), np.array([hi]))
    expected, _ = functional(profile, indicator(lo, hi))
    scale = np.abs(inverse_taps(profile.noise)).sum() * len(noisy)
    assert estimate[0] == pytest.approx(expected, abs=1e-9 * scale)


@pytest.mark.parametrize("power", POWERS)
def test_band_variances_are_the_unbiased_ones_where_many_cells_decide(power):
    rng = np.random.default_rng(1)
    law = DiscreteLaplace("0.5", power)
    counts = rng.poisson(6, 20_000) + rng.integers(-9, 10, 20_000)  # any integers will do
    profile = NoisyProfile.from_counts(counts, epsilon="0.5", power=power)
    for lo, hi in [(0, 0), (1, 1), (2, 2), (5, 5), (3, 8), (0, 4), (1, NO_END), (7, NO_END)]:
        _, variance = Bands(profile, profile.cells).linear(np.array([lo]), np.array([hi]))
        assert variance[0] == pytest.approx(functional(profile, indicator(lo, hi))[1], rel=1e-6), (lo, hi, law)


def test_vectorised_bands_equal_single_ones():
    rng = np.random.default_rng(2)
    profile = noisy_profile(rng, rng.poisson(3, 500), DiscreteLaplace(1))
    bands = Bands(profile, profile.cells)
    lo = np.arange(20)
    together = bands.limits(lo, lo + 2, 0.9)
    for t in lo:
        alone = bands.limits(np.array([t]), np.array([t + 2]), 0.9)
        assert [column[t] for column in together] == pytest.approx([column[0] for column in alone])


@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
def test_unified_limits_match_brute_force(level):
    for x in (-1.5, -0.5, 0.0, 0.7, 1.3, 1.9, 2.5, 4.0):
        low, high = bounded_normal(np.array([x]), np.ones(1), 1e9, level)
        slow = unified_limits(x, level)
        assert (low[0], high[0]) == pytest.approx(slow, abs=0.025)


@pytest.mark.parametrize("mu", [0.0, 0.3, 1.0, 1.9, 3.0, 96.0, 99.5, 100.0])
def test_bounded_normal_covers_exactly(mu):
    x = np.linspace(mu - 7, mu + 7, 40_001)
    low, high = bounded_normal(x, np.ones_like(x), 100.0, 0.95)
    weight = stats.norm.pdf(x - mu)
    inside = (low <= mu) & (mu <= high)
    assert weight[inside].sum() / weight.sum() == pytest.approx(0.95, abs=2e-3)


def test_bounded_normal_is_never_empty_and_stays_inside():
    x = np.linspace(-50, 150, 2001)
    low, high = bounded_normal(x, np.full_like(x, 3.0), 100.0, 0.95)
    assert ((low >= 0) & (high <= 100) & (low < high)).all()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 60), st.floats(0.02, 0.999), st.sampled_from([0.05, 0.01, 1e-3]))
def test_binomial_upper_against_counting_up(successes, q, alpha):
    assert binomial_upper(np.array([successes]), q, alpha)[0] == binomial_limit(successes, q, alpha)


def test_binomial_upper_for_large_numbers():
    limit = binomial_upper(np.array([10_000.0]), 0.3, 0.01)[0]
    assert stats.binom.cdf(10_000, int(limit), 0.3) == pytest.approx(0.01, rel=0.2)


@settings(max_examples=60, deadline=None)
@given(st.floats(0, 500), st.sampled_from([0.1, 1e-2, 1e-4]))
def test_poisson_quantile(mean, alpha):
    k = poisson_quantile(np.array([mean]), alpha)[0]
    assert stats.poisson.sf(k, mean) <= alpha * (1 + 1e-9) + 1e-15
    assert k == 0 or stats.poisson.sf(k - 1, mean) > alpha * (1 - 1e-9)


# ------------------------------------------------------------------------------------------------ coverage


def entry_hits(counts, law, t, repetitions, seed, claimed=None, items=None, draw=None):
    """How often the interval of entry t holds the truth; ``claimed`` is the law the interval is told."""
    rng = np.random.default_rng(seed)
    truth = (counts == t).sum()
    hits = 0
    for _ in range(repetitions):
        sample = counts if draw is None else counts[draw(rng)]
        profile = noisy_profile(rng, sample, law)
        told = profile if claimed is None else NoisyProfile.from_tally(profile.values, profile.tally, noise=claimed)
        limits = Bands(told, items or sample.size).limits(np.array([t]), np.array([t]), 0.95)
        hits += bool(limits.low[0] <= truth <= limits.high[0])
    return hits


@pytest.mark.statistical
@pytest.mark.parametrize(("epsilon", "power", "t"), [(0.5, 1, 0), (1, 1, 3), (2, 1, 0), (1, 2, 0), (2, 3, 3)])
def test_dense_entries_cover_93_to_97_percent(epsilon, power, t):
    counts = np.random.default_rng(3).poisson(3, 3000)
    hits = entry_hits(counts, DiscreteLaplace(epsilon, power), t, 250, seed=t)
    print("coverage", hits / 250)
    assert holds_between(hits, 250, 0.93, 0.97)


@pytest.mark.statistical
def test_negative_control_a_wrong_epsilon_is_noticed_by_the_coverage_test():
    counts = np.random.default_rng(3).poisson(3, 3000)
    hits = entry_hits(counts, DiscreteLaplace(1), 3, 500, seed=5, claimed=DiscreteLaplace(1.5))
    print("coverage", hits / 500)
    assert not holds_between(hits, 500, 0.93, 0.97)


@pytest.mark.statistical
@pytest.mark.parametrize(("epsilon", "copies"), [(0.1, 1), (0.1, 3), (0.5, 1), (2, 3)])
def test_isolated_cells_are_covered(epsilon, copies):
    """Few cells at 1000 far from everything: mostly no cell shows at 1000 ± 1, and the estimate is 0 ± 0."""
    counts = np.concatenate([np.zeros(200, dtype=np.int64), np.full(copies, 1000)])
    law = DiscreteLaplace(epsilon)
    hits = entry_hits(counts, law, 1000, 300, seed=7)
    nothing = entry_hits(counts, law, 1001, 300, seed=8)
    print("coverage", hits / 300, nothing / 300)
    assert holds_between(hits, 300, 0.93, 1.0)
    assert holds_between(nothing, 300, 0.93, 1.0)


@pytest.mark.statistical
def test_negative_control_the_plain_normal_interval_fails_on_isolated_cells():
    counts = np.concatenate([np.zeros(200, dtype=np.int64), [1000]])
    rng, law, hits = np.random.default_rng(9), DiscreteLaplace("0.1"), 0
    for _ in range(600):
        value, variance = functional(noisy_profile(rng, counts, law), indicator(1000, 1000))
        hits += abs(value - 1) <= 1.96 * variance**0.5
    print("coverage", hits / 600)
    assert not holds_between(hits, 600, 0.93, 1.0)


def test_upper_limit_is_zero_where_nothing_can_be():
    rng = np.random.default_rng(1)
    profile = noisy_profile(rng, np.zeros(1000, dtype=np.int64), DiscreteLaplace(1))
    limits = Bands(profile, 1000).limits(np.array([500]), np.array([500]), 0.95)
    assert limits.high[0] == 0


@pytest.mark.statistical
@pytest.mark.parametrize("k", [4, 30, 700])
def test_tails_of_few_cells_are_covered(k):
    """at_least(k) among scattered large counts, where the estimated variance is mostly 0."""
    rng = np.random.default_rng(11)
    counts = np.concatenate([rng.poisson(2, 2000), np.unique(rng.integers(20, 1500, 40))])
    law, hits, truth = DiscreteLaplace("0.2"), 0, (counts >= k).sum()
    for _ in range(400):
        limits = Bands(noisy_profile(rng, counts, law), counts.size).limits(np.array([k]), np.array([NO_END]), 0.95)
        hits += bool(limits.low[0] <= truth <= limits.high[0])
    print("coverage", hits / 400)
    assert holds_between(hits, 400, 0.93, 1.0)


@pytest.mark.statistical
@pytest.mark.parametrize("k", [2, 5])
def test_curves_that_end_are_covered_where_noise_is_strong(k):
    """Nothing at 2 and above: ends that 0 had cut, averaged with later ones, missed that in half of the releases."""
    rng, law, hits = np.random.default_rng(16), DiscreteLaplace("0.1"), 0
    counts = np.repeat([0, 1], [6_384, 10_000])
    for _ in range(150):
        bands = Bands(noisy_profile(rng, counts, law), counts.size)
        hits += bands.consistent(np.array([k]), np.array([NO_END]), 0.95).low[0] == 0
    print("coverage", hits / 150)
    assert holds_between(hits, 150, 0.93, 1.0)
    assert not holds_between(round(0.6 * 150), 150, 0.93, 1.0)  # what it was


STATISTICS = {
    "total": (lambda t: t, lambda h: h.sum()),
    "second moment": (lambda t: np.asarray(t, dtype=float) ** 2, lambda h: (h.astype(float) ** 2).sum()),
    "capped": (lambda t: np.minimum(t, 10), lambda h: np.minimum(h, 10).sum()),
}


@pytest.mark.statistical
@pytest.mark.parametrize("name", STATISTICS)
@pytest.mark.parametrize(("epsilon", "power"), [(1, 1), (0.5, 2)])
def test_sums_are_covered(name, epsilon, power):
    rng = np.random.default_rng(12)
    counts = np.minimum(np.floor((1 - rng.random(2000)) ** -1.25), 1e6).astype(np.int64)
    g, truth = STATISTICS[name]
    law, hits = DiscreteLaplace(epsilon, power), 0
    for _ in range(500):
        _, _, low, high = sum_limits(noisy_profile(rng, counts, law), g, 0.95, items=counts.size)
        hits += low <= truth(counts) <= high
    print("coverage", hits / 500)
    assert holds_between(hits, 500, 0.93, 0.985)


@pytest.mark.statistical
def test_a_single_giant_carries_the_second_moment_and_is_still_covered():
    rng, hits = np.random.default_rng(13), 0
    counts = np.array([10**6, *([1] * 50)])
    truth = float((counts.astype(float) ** 2).sum())
    for _ in range(1500):
        profile = noisy_profile(rng, counts, DiscreteLaplace(1))
        _, _, low, high = sum_limits(profile, lambda t: np.asarray(t, dtype=float) ** 2, 0.95, items=51)
        hits += low <= truth <= high
    print("coverage", hits / 1500)
    assert holds_between(hits, 1500, 0.93, 1.0)


@pytest.mark.statistical
@pytest.mark.parametrize("rate", [0.3, 1.0])
def test_entropy_is_covered_sampled_or_not(rate):
    rng, hits = np.random.default_rng(14), 0
    counts = rng.poisson(4, 4000)
    truth = np.log(counts.sum()) - xlogx(counts).sum() / counts.sum()
    for _ in range(500):
        sample = counts[rng.random(counts.size) < rate]
        _, _, low, high = entropy_limits(noisy_profile(rng, sample, DiscreteLaplace(1)), 0.95, items=counts.size)
        hits += low <= truth <= high
    print("coverage", hits / 500)
    assert holds_between(hits, 500, 0.93, 0.99)


@pytest.mark.statistical
@pytest.mark.parametrize("t", [3, 14])
def test_sampled_entries_are_covered(t):
    """At rate 0.2 the sample holds few or none of the items at t = 14."""
    counts = np.random.default_rng(15).poisson(4, 8000)
    hits = entry_hits(counts, DiscreteLaplace(1), t, 400, seed=16, items=8000, draw=lambda rng: rng.random(8000) < 0.2)
    print("coverage", hits / 400)
    assert holds_between(hits, 400, 0.93, 0.97 if t == 3 else 1.0)


@pytest.mark.parametrize("intervals", ["robust", "model"])
def test_what_a_sample_does_not_show_may_be_there(intervals):
    """One item of ten has a cell, and next to no noise: of counts that no cell has, some thirty items may be unseen."""
    sketch = un.Sketch.sampled(20_000, rate=0.1, epsilon=20)
    sketch.update(np.repeat(np.arange(20_000), 2))
    p = un.reconstruct(sketch.release()).with_intervals(intervals)
    for t in (1, 3, 7, 50):
        assert p.exactly(t).low == 0
        assert 30 <= p.exactly(t).high <= 80
        assert p.at_least(t).high - p.at_least(t).value >= (30 if t > 2 else 0)
    assert p.distinct.low <= 19_970
    every = un.Sketch.known(20_000, epsilon=20)  # where all items have cells, there is nothing else
    every.update(np.repeat(np.arange(20_000), 2))
    p = un.reconstruct(every.release()).with_intervals(intervals)
    assert p.exactly(50).high <= 5
    assert p.distinct.low >= 19_995


@pytest.mark.statistical
def test_negative_control_without_the_sampling_variance_coverage_fails():
    rng, hits = np.random.default_rng(17), 0
    counts = rng.poisson(4, 8000)
    for _ in range(500):
        sample = counts[rng.random(counts.size) < 0.2]
        profile = noisy_profile(rng, sample, DiscreteLaplace(1))
        _, _, low, high = sum_limits(profile, lambda t: t, 0.95, items=sample.size)
        scale = counts.size / sample.size
        hits += low * scale <= counts.sum() <= high * scale
    assert not holds_between(hits, 500, 0.93, 1.0)


@pytest.mark.parametrize("power", ["7/2", "31"])
def test_the_variance_of_a_sampled_total_is_that_of_the_noisy_counts_however_many_noises(power):
    """Σ v has the variance m·σ² + (1 − r)·m·s², s² that of the noisy counts less σ²: no filter is needed."""
    rng, noise, rate = np.random.default_rng(3), DiscreteLaplace("0.1", power), 0.1
    noisy = noisy_profile(rng, rng.geometric(1 / 300, 1000), noise)
    seen = float(noisy.fractions @ (noisy.values - noisy.values @ noisy.fractions) ** 2)
    expected = noisy.cells * (noise.variance + (1 - rate) * (seen - noise.variance))
    _, stderr, _, _ = sum_limits(noisy, lambda t: t, 0.95, items=round(noisy.cells / rate))
    assert stderr == pytest.approx(expected**0.5 / rate, rel=0.02)  # before: 10⁴⁵, or as if nothing were sampled


@pytest.mark.statistical
@pytest.mark.filterwarnings("ignore::unnoise.errors.UnnoiseWarning")
def test_a_skewed_sum_is_covered_although_only_a_tenth_was_sampled():
    """The second moment of a lognormal; control: of symmetric limits half as many more of the upper ones fail."""
    rng, hits, symmetric, ours = np.random.default_rng(18), 0, 0, 0
    counts = np.floor(np.exp(rng.normal(1, 1, 20_000))).astype(np.int64)
    truth = (counts.astype(float) ** 2).sum()
    for _ in range(400):
        profile = noisy_profile(rng, counts[rng.random(counts.size) < 0.1], DiscreteLaplace(1))
        estimate, _, low, high = sum_limits(profile, lambda t: np.asarray(t, dtype=float) ** 2, 0.95, items=20_000)
        hits += low <= truth <= high
        ours += truth > high
        symmetric += truth > 2 * estimate - low
    print("coverage", hits / 400, "upper limits passed", ours, "symmetric ones", symmetric)
    assert holds_between(hits, 400, 0.92, 0.98)
    assert symmetric > 1.5 * ours


@pytest.mark.statistical
@pytest.mark.filterwarnings("ignore::unnoise.errors.UnnoiseWarning")
def test_entropy_reaches_down_to_the_giants_that_a_sample_may_have_missed():
    """Ones beside a wide lognormal; control: of limits as far up as down a third fail."""
    rng, hits, symmetric = np.random.default_rng(20), 0, 0
    counts = np.where(rng.random(20_000) < 0.6, 1, np.floor(np.exp(rng.normal(4, 1.6, 20_000)))).astype(np.int64)
    truth = np.log(counts.sum()) - xlogx(counts).sum() / counts.sum()
    for _ in range(300):
        profile = noisy_profile(rng, counts[rng.random(counts.size) < 0.1], DiscreteLaplace(1))
        estimate, _, low, high = entropy_limits(profile, 0.95, items=counts.size)
        hits += low <= truth <= high
        symmetric += 2 * estimate - high <= truth <= high
    print("coverage", hits / 300, "symmetric", symmetric / 300)
    assert holds_between(hits, 300, 0.93, 1.0)
    assert not holds_between(symmetric, 300, 0.93, 1.0)


@pytest.mark.parametrize("mean", [0.3, 4])
def test_a_sampled_sum_of_many_small_items_does_not_warn(mean):
    rng = np.random.default_rng(19)
    for _ in range(30):
        profile = noisy_profile(rng, rng.poisson(mean, 2000), DiscreteLaplace(1))
        for degree in (1, 2):
            sum_limits(profile, lambda t, degree=degree: np.asarray(t, dtype=float) ** degree, 0.95, items=20_000)


def test_a_sampled_sum_that_rests_on_one_item_warns():
    counts = np.array([10**6, *([1] * 500)])
    profile = NoisyProfile.from_counts(counts, epsilon=1)
    with pytest.warns(UnnoiseWarning, match="rests on few"):
        sum_limits(profile, lambda t: t, 0.95, items=5000)
    with pytest.warns(UnnoiseWarning, match="rests on few"):  # a giant among many lowers entropy
        entropy_limits(NoisyProfile.from_counts([2000, *([1] * 5000)], epsilon=1), 0.95, items=50_000)


# ------------------------------------------------------------------------------------------------ growth


@pytest.mark.parametrize("rate", [0.1, 0.45])
def test_functions_that_grow_slowly_enough_pass(rate):
    check_growth(lambda t: np.exp(rate * np.asarray(t, dtype=float)), NoisyProfile.from_counts([0, 3], epsilon=1))


@pytest.mark.parametrize("rate", [0.5, 0.7, 3.0])
def test_functions_that_grow_too_fast_are_refused(rate):
    with pytest.raises(InputError, match="grow slower than"):
        check_growth(lambda t: np.exp(rate * np.asarray(t, dtype=float)), NoisyProfile.from_counts([0, 3], epsilon=1))


@pytest.mark.parametrize("epsilon", [5, 20, 30, 50])
def test_sums_under_next_to_no_noise_stay_within_a_step(epsilon):
    counts = np.repeat([0, 2, 4, 14], [400, 300, 200, 100])
    profile = NoisyProfile.from_counts(counts, epsilon=epsilon)
    for degree, step in ((1, 1), (2, 15**2 - 14**2)):
        truth = float((counts.astype(float) ** degree).sum())
        g = lambda t, degree=degree: np.asarray(t, dtype=float) ** degree  # noqa: E731
        _, stderr, low, high = sum_limits(profile, g, 0.95, items=1000)
        assert low <= truth <= high
        assert high - low <= 2 * step + 6 * stderr


def test_counts_near_a_trillion_keep_their_digits():
    counts = np.array([10**12, 10**12 + 5, 3, 2, 1, 0])
    profile = NoisyProfile.from_counts(counts, epsilon=1)
    _, stderr, low, high = sum_limits(profile, lambda t: t, 0.95, items=6)
    assert low < 2 * 10**12 + 11 < high
    assert 0.5 < stderr / (6 * DiscreteLaplace(1).variance) ** 0.5 < 1.2


def test_bands_without_any_noise_to_speak_of():
    """At ε = 31 the inverse of the noise has no taps beside the middle one."""
    noisy = NoisyProfile.from_counts([3] * 50, epsilon=31, power=Fraction(3, 2))
    limits = Bands(noisy, 50).limits(np.array([3, 4]), np.array([3, 4]), 0.95)
    assert limits.estimate == pytest.approx([50, 0], abs=1e-6)


@pytest.mark.parametrize("power", [1, 2, 3])
@pytest.mark.parametrize("epsilon", ["0.5", "1", "2"])
def test_the_error_of_a_step_is_that_of_the_unfolded_functional(epsilon, power):
    """Var w(h + Z) for g = 1[t ≥ 1000], noise and filter in full, at every h near the step, where nothing is folded."""
    noise, reach = DiscreteLaplace(epsilon, power), 400
    z = np.arange(-reach, reach + 1)
    chance = noise.pmf(z)
    spread = []
    for h in range(1000 - 10, 1000 + 10):
        w = weights(lambda t: (t >= 1000).astype(float), h + z, noise)
        spread.append(float(chance @ w**2 - (chance @ w) ** 2))
    assert step_error(noise) == pytest.approx(max(spread) ** 0.5, rel=1e-6)


def test_the_error_of_a_step_grows_with_the_noise_to_any_number_of_them():
    errors = [step_error(DiscreteLaplace(5, power)) for power in (1, Fraction(3, 2), 2, 40, 256, 2000, 2**15)]
    assert errors == sorted(errors)
    assert errors[-1] == np.inf
    assert step_error(DiscreteLaplace(5, 257)) == pytest.approx(step_error(DiscreteLaplace(5, 256)), rel=0.5)
