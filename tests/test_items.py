"""Answers about the items beneath hashed cells: meanings, intervals, levels, merged noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom, chi2

from drawing_tools import sketch, zipf_numbers
from unnoise import testing
from unnoise.answers.items import ItemProfile, item_profile
from unnoise.answers.reconstruct import reconstruct
from unnoise.errors import InputError
from unnoise.estimators.collisions import collisions
from unnoise.layout import Layout
from unnoise.noise import DiscreteLaplace
from unnoise.noisy import NoisyCounts, NoisyProfile
from unnoise.sketches.hashing import cells_of, hash_columns
from unnoise.sketches.sketch import Sketch

FALSE_ALARM = 1e-9


def hashed(cells: int, levels: int = 1) -> Layout:
    return Layout(kind="hashed", cells=cells, levels=levels, hash_seed=0)


def simulate(items, cells=4096, levels=1, epsilon=1, power=1, seed=1, exponent=1.8):
    rng = np.random.default_rng(seed)
    counts, numbers = zipf_numbers(items, exponent, rng)
    return sketch(counts, numbers, hashed(cells, levels), DiscreteLaplace(epsilon, power), rng), counts, numbers


@pytest.fixture(scope="module")
def example():
    noisy, counts, numbers = simulate(3000)
    return item_profile(noisy), counts, numbers


# ---------------------------------------------------------------- what the answers mean


def test_fractions_are_shares_of_the_items_that_occur(example):
    profile, _, _ = example
    assert isinstance(profile, ItemProfile)
    assert profile.support[0] >= 1
    assert profile.mass.sum() == pytest.approx(1)
    assert (profile.mass >= 0).all()
    assert profile.items == pytest.approx(profile.distinct.value)
    assert profile[0].value == 0
    assert profile[0].high == 0
    assert profile[1].value == pytest.approx(profile.exactly(1).value / profile.items)
    assert profile.at_least(1).value == pytest.approx(profile.at_least(0).value)


def test_every_answer_contains_the_truth_of_an_ordinary_sketch(example):
    profile, counts, numbers = example
    total = int(counts @ numbers)
    level = 1 - 1e-9
    for k in (1, 2, 3, 10, 100, 256, 257, 300, 1000, 5000):
        assert numbers[counts >= k].sum() in profile.at_least(k).at(level), k
    for t in (1, 2, 5, 50, 256, 257, 1000):
        assert numbers[counts == t].sum() in profile.exactly(t).at(level), t
    assert total in profile.total.at(level)
    assert (np.sqrt(counts) @ numbers) in profile.moment(0.5).at(level)
    assert profile.quantile(0.5).low <= 1 <= profile.quantile(0.5).high
    assert "items" in str(profile)
    assert len(profile.table()) == 5
    assert profile.cell_profile.cells == 4096
    assert profile.load == pytest.approx(3000 / 4096, rel=0.2)


def test_bands_from_the_head_into_the_tail_are_differences(example):
    profile, _, _ = example
    row = profile.table([10, 1000])[0]
    inside = profile.at_least(10).value - profile.at_least(1000).value
    assert row.items.value == pytest.approx(inside)
    assert row.items.low <= inside <= row.items.high


def test_exports(example):
    profile, _, _ = example
    assert profile.to_arrow().num_rows == profile.support.size
    assert profile.to_dict()["method"] == "items"


def test_total_is_the_sum_of_the_cells(example):
    profile, _, _ = example
    dense = profile.support @ (profile.mass * profile.items)
    assert profile.total.value == pytest.approx(float(dense), rel=1e-9)
    assert profile.total.value == pytest.approx(float(profile.noisy.values @ profile.noisy.tally), rel=1e-9)


def test_total_is_near_the_truth(example):
    profile, counts, numbers = example
    assert profile.total.stderr < 1.6 * math.sqrt(4096 * DiscreteLaplace(1).variance)
    assert profile.total.value == pytest.approx(int(counts @ numbers), abs=6 * profile.total.stderr)


@pytest.mark.parametrize("levels", [1, 16])
def test_an_empty_sketch_has_no_items(levels):
    rng = np.random.default_rng(8)
    noisy = sketch(np.array([1]), np.array([0]), hashed(2**14, levels), DiscreteLaplace(1), rng)
    profile = item_profile(noisy)
    assert 0 in profile.distinct
    assert 0 in profile.total
    assert 0 in profile.at_least(10)
    assert profile.distinct.value < 6 * math.sqrt(2**14)
    assert profile.entropy.low == 0
    assert math.isfinite(profile.entropy.high)
    assert str(profile)


# ---------------------------------------------------------------- methods and refusals


def test_reconstruct_comes_here():
    noisy, _, _ = simulate(3000)
    assert isinstance(reconstruct(noisy, method="isotonic"), ItemProfile)


@pytest.mark.parametrize("method", ["isotonic", "linear"])
def test_plain_methods_take_the_logarithm_of_the_cells(method):
    noisy, counts, numbers = simulate(3000, epsilon=2)
    profile = item_profile(noisy, method=method)
    assert profile.method == method
    assert profile.items == pytest.approx(3000, rel=0.1)
    assert (profile.mass >= 0).all()
    assert numbers[counts >= 2].sum() in profile.at_least(2).at(1 - 1e-9)


def test_refusals():
    noisy, _, _ = simulate(3000, cells=2**12, levels=4)
    with pytest.raises(InputError, match="method must be 'auto' for a sketch with levels, got 'isotonic'"):
        item_profile(noisy, method="isotonic")
    with pytest.raises(InputError, match="layout must be hashed"):
        item_profile(NoisyProfile.from_counts([1, 2], epsilon=1))


def test_a_high_load_is_answered_with_a_notice():
    noisy, _, _ = simulate(3 * 2**14, cells=2**14)
    profile = item_profile(noisy)
    assert "overload" in [notice.code for notice in profile.notices]
    assert profile.items == pytest.approx(3 * 2**14, rel=0.1)
    assert "overload" not in [notice.code for notice in item_profile(simulate(2**12, cells=2**12)[0]).notices]


# ---------------------------------------------------------------- noise and variance


@pytest.mark.parametrize("power", [2, 3])
def test_merged_noise(power):
    noisy, counts, numbers = simulate(6000, cells=8192, power=power, seed=9)
    profile = item_profile(noisy)
    for k in (1, 2, 5, 50):
        assert numbers[counts >= k].sum() in profile.at_least(k).at(1 - 1e-9)
    alone = item_profile(simulate(6000, cells=8192, seed=9)[0])
    assert profile.distinct.stderr > alone.distinct.stderr


def test_fractional_power_of_merged_noise():
    rng = np.random.default_rng(10)
    counts, numbers = zipf_numbers(3000, 1.8, rng)
    noisy = sketch(counts, numbers, hashed(4096), DiscreteLaplace(1, 1), rng)
    noise = DiscreteLaplace(1, "3/2")
    p = 1 - math.exp(-1)
    extra = rng.negative_binomial(0.5, p, 4096) - rng.negative_binomial(0.5, p, 4096)
    cells = np.repeat(noisy.values, noisy.tally) + extra
    profile = item_profile(NoisyCounts(cells, noise, hashed(4096)).profile())
    assert 3000 in profile.distinct.at(1 - 1e-9)


def test_collision_variance_is_m_times_exp_load_minus_load_minus_one():
    # Hardly any noise: what is left is the collision part, here against theory and (below) against simulation.
    noisy, _, _ = simulate(4096, epsilon=12)
    found = collisions(noisy).posterior
    load = found.law.sum() / 4096
    expected = 4096 * (math.exp(load) - load - 1)
    # it is taken at the smoothest law that the cells allow, whose load may differ by three of its standard errors
    differs = 3 * math.sqrt(expected) / 4096
    assert found.vague.sum() == pytest.approx(expected, abs=4096 * (math.exp(load) - 1) * differs)
    assert found.covariance.sum() < 1.05 * found.vague.sum()


@pytest.mark.statistical
def test_collision_variance_by_simulation():
    """Sample variance of −m·log(empty share): χ² with n−1 degrees of freedom, false alarm 1e-9 on either side."""
    rng = np.random.default_rng(11)
    m, items, runs = 1024, 1024, 3000
    estimates = np.empty(runs)
    for i in range(runs):
        empty = m - np.unique(rng.integers(0, m, items)).size
        estimates[i] = -m * math.log(empty / m)
    ratio = estimates.var(ddof=1) / (m * (math.e - 2))
    low, high = chi2.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], runs - 1) / (runs - 1)
    print(f"variance ratio {ratio:.4f}, accepted {low:.4f} to {high:.4f}")
    assert low * 0.99 < ratio < high * 1.01  # 1 %: second-order terms at m = 1024
    assert not low < 1.25 * ratio < high


# ---------------------------------------------------------------- levels and hashing


def test_levels_combine():
    noisy, counts, numbers = simulate(50_000, cells=2**15, levels=8)
    profile = item_profile(noisy)
    assert profile.diagnostics["levels_used"] > 1
    assert profile.items == pytest.approx(50_000, rel=0.1)
    for k in (1, 2, 10, 300, 5000):
        assert numbers[counts >= k].sum() in profile.at_least(k).at(1 - 1e-9), k


def test_levels_answer_where_one_level_is_overloaded():
    noisy, _, _ = simulate(200_000, cells=2**14, levels=8, seed=12)
    assert 200_000 in item_profile(noisy).distinct.at(1 - 1e-9)


@pytest.mark.slow
@pytest.mark.statistical
def test_the_simulator_has_the_law_of_hashing():
    """Totals of 10⁶ hashed integers against simulated ones, level by level: χ², false alarm 1e-9 in all."""
    rng = np.random.default_rng(13)
    layout = hashed(2**16, 4)
    counts, numbers = zipf_numbers(10**6, 1.8, rng)
    each = rng.permutation(np.repeat(counts, numbers))
    cells = cells_of(hash_columns([np.arange(10**6)]), layout)
    real = np.bincount(cells, weights=each, minlength=2**16).astype(np.int64).reshape(4, -1)
    exact = DiscreteLaplace(60)  # no noise to speak of
    made = sketch(counts, numbers, layout, exact, rng)
    for level in range(4):
        edges = np.unique(np.quantile(real[level], np.linspace(0, 1, 30)))
        a = np.histogram(real[level], edges)[0]
        b = np.histogram(np.repeat(made.parts[level].values, made.parts[level].tally), edges)[0]
        statistic = ((a - b) ** 2 / np.maximum(a + b, 1)).sum()
        assert statistic < chi2.isf(FALSE_ALARM / 4, edges.size), level


# ---------------------------------------------------------------- coverage


def _misses(levels: int, runs: int) -> tuple[dict[str, int], dict[str, int]]:
    """Count the 95 % intervals that miss the truth, and (negative control) a truth five standard errors away."""
    missed, control = {}, {}
    for seed in range(runs):
        noisy, counts, numbers = simulate(3000, cells=4096, levels=levels, seed=100 + seed)
        profile = item_profile(noisy)
        questions = {f"at_least({k})": (profile.at_least(k), numbers[counts >= k].sum()) for k in (1, 2, 5, 20, 300)}
        questions |= {f"exactly({t})": (profile.exactly(t), numbers[counts == t].sum()) for t in (1, 2, 5, 20)}
        questions["total"] = (profile.total, int(counts @ numbers))
        for name, (answer, truth) in questions.items():
            missed[name] = missed.get(name, 0) + (truth not in answer)
            control[name] = control.get(name, 0) + (truth + 5 * answer.stderr not in answer)
    return missed, control


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("levels", [1, 4])
def test_coverage(levels):
    """Each question misses at most as often as a 7 % risk would with probability 1e-9."""
    runs = 24
    missed, control = _misses(levels, runs)
    limit = binom.isf(FALSE_ALARM, runs, 0.07)
    print(f"misses of {runs}: {missed}, limit {limit:.0f}")
    assert all(count <= limit for count in missed.values()), missed
    assert sum(missed.values()) <= binom.isf(FALSE_ALARM, runs * len(missed), 0.07)
    assert all(control[name] > limit for name in ("at_least(1)", "at_least(2)", "exactly(1)", "total")), control


def test_a_giant_that_counts_many_times_leaves_the_small_items_alone():
    """An item of 10⁹ in a level of a hundredth of the items stands for a hundred: the sum of the cells knows better."""
    from unnoise.answers.items import _calibrated

    support, items = np.array([1, 2, 10**9]), np.array([1000.0, 500.0, 100.0])
    for total in (3e9, 2001.0, 2000.0 + 1e6):
        found = _calibrated(support, items, total)
        assert support @ found == pytest.approx(total, rel=1e-9)
        assert found[:2] == pytest.approx(items[:2], rel=1e-3)


# ---------------------------------------------------------------- few items, and bad luck


def few_items(seed, cells=1 << 13, epsilon=0.7):
    rng = np.random.default_rng(seed)
    return sketch(np.array([1]), np.array([100]), hashed(cells), DiscreteLaplace(epsilon), rng)


def test_sketches_whose_sum_is_negative_by_noise_do_not_rule_their_items_out():
    """The lowest of 400: one sketch in forty lies so low that estimate plus margin is below the truth."""
    unlucky = sorted((few_items(seed) for seed in range(400)), key=lambda noisy: noisy.values @ noisy.tally)[:10]
    for noisy in unlucky:
        profile = item_profile(noisy)
        assert profile.total.value == profile.distinct.value == 0
        assert profile.total.high >= 100
        assert 100 <= profile.distinct.high <= profile.total.high
        assert profile.at_least(2).high <= profile.total.high / 2 + 1e-9


def test_intervals_of_few_items_hold_as_often_as_they_say():
    runs = [item_profile(few_items(seed, cells=1 << 11, epsilon=0.5)) for seed in range(30)]
    most = binom.isf(FALSE_ALARM, len(runs), 0.05)
    assert sum(not p.total.low <= 100 <= p.total.high for p in runs) <= most
    assert sum(not p.distinct.low <= 100 <= p.distinct.high for p in runs) <= most
    assert all(p.distinct.high <= p.total.high + 1e-9 for p in runs)


def test_nothing_seen_leaves_a_few_items_open():
    """One cell without occurrences: an item of 2 may be hidden, and then the median is 2."""
    noisy = NoisyCounts(np.array([0]), DiscreteLaplace(1), Layout(kind="hashed", cells=1, hash_seed=0))
    profile = item_profile(noisy.profile())
    assert profile.exactly(2).high == pytest.approx(profile.at_least(2).high) == pytest.approx(profile.total.high / 2)
    assert profile.quantile(0.5).high == max(1, math.floor(profile.total.high))
    wider = NoisyCounts(np.array([0, 0, 0, -1]), DiscreteLaplace(1), Layout(kind="hashed", cells=4, hash_seed=0))
    assert item_profile(wider.profile()).quantile(0.5).high >= 2


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_giant_in_a_level_that_is_left_out_is_one_item(seed):
    """Its cell stands out; spread over all other items it would be hundreds of thousands."""
    rng = np.random.default_rng(seed)
    counts = np.append(np.floor(rng.random(20_000) ** (-1 / 1.5)).astype(np.int64), 10**7)
    with testing.seeded(seed):
        kept = Sketch.hashed(2**12, levels=16, epsilon=1, item_types=["int"])
        kept.update(rng.integers(0, 2**62, counts.size), counts=counts)
    profile = reconstruct(testing.release(kept))
    assert counts.size in profile.distinct.at(1 - 1e-6)
    assert float(profile.at_least(10**6)) == pytest.approx(1, abs=0.1)
    assert float(profile.entropy) < 1
    assert float(profile.total) == pytest.approx(float(profile.statistic(lambda t: t)))


def _counted(counts: np.ndarray, cells: int, epsilon: float, seed: int) -> NoisyCounts:
    with testing.seeded(seed):
        sketch = Sketch.hashed(cells, epsilon=epsilon)
    sketch.update(np.arange(counts.size), counts=counts)
    return testing.release(sketch)


def test_sums_that_giants_carry_allow_for_calibration():
    """Calibrated to ``total`` the number of each giant moves by a thousandth, and Σ h² by five of its widths."""
    rng = np.random.default_rng(1)
    counts = np.concatenate([np.minimum(rng.geometric(0.12, 15_000), 10), rng.integers(5_000, 90_000, 12)])
    truth = float((counts.astype(float) ** 2).sum())
    missed = sum(truth not in reconstruct(_counted(counts, 2**14, 1, seed)).moment(2) for seed in range(6))
    assert missed <= 1  # six before


def test_quantiles_say_how_much_of_them_is_the_models():
    rng = np.random.default_rng(2)
    counts = rng.geometric(0.55, 9_000)
    sure = reconstruct(_counted(counts, 2**14, 3, 0)).quantile(0.5)
    days = [_counted(rng.binomial(counts, 1 / 3), 2**14, 0.5, seed) for seed in range(3)]
    merged = reconstruct(days[0] + days[1] + days[2])
    unsure = min((merged.quantile(q) for q in (0.5, 0.75, 0.9, 0.95)), key=lambda each: each.data_share)
    assert sure.data_share == 1
    assert unsure.data_share < 0.6  # two of three counts, or three of five
    assert unsure.at(0.8).at(0.95).interval == unsure.interval


def test_a_quantile_among_equal_counts_is_as_uncertain_as_their_place():
    """Devices that report 288 times a day, and some that drop out: σ/√n is half a count where n cells tell it."""
    rng = np.random.default_rng(2)
    counts = np.where(rng.random(4000) < 0.85, 288, rng.integers(1, 288, 4000))
    found = [reconstruct(_counted(counts, 2**13, 0.05, seed)).quantile(0.5) for seed in range(4)]
    print(found)
    assert all(each.high - each.low >= 2 for each in found)  # one count wide at most before, and beside 288
    assert sum(288 in each for each in found) >= 3
