"""Kinds of interval, simultaneous bands, and answers that never contradict each other.

Coverage tests draw data and noise afresh in every run; each fails a sound method with probability at most 1e-9.
"""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from drawing_tools import noisy_profile
from oracles_answers import holds_between
from test_engine_smooth import noised
from unnoise import testing
from unnoise.answers.bands import Bands
from unnoise.answers.estimate import NO_END, critical_level
from unnoise.answers.modelled import Grounds
from unnoise.answers.reconstruct import reconstruct
from unnoise.answers.simulate import Setting
from unnoise.engine.channel import FAR, Blocks
from unnoise.engine.posterior import QUARTER, Arrangement
from unnoise.errors import InputError
from unnoise.layout import Layout
from unnoise.noise import DiscreteLaplace
from unnoise.noisy import NoisyProfile
from unnoise.sketches.sketch import Sketch


def geometric(rng, epsilon=0.5, power=1, cells=3000):
    counts = rng.geometric(1 / 11, cells) - 1
    return counts, noisy_profile(rng, counts, DiscreteLaplace(epsilon, power))


@pytest.fixture(scope="module")
def both():
    """The same release with either kind of interval."""
    _, noisy = geometric(np.random.default_rng(1))
    robust = reconstruct(noisy)
    return robust, robust.with_intervals("model")


def test_a_profile_says_of_which_kind_it_is_and_changes_it(both):
    robust, model = both
    assert (robust.kind, model.kind, robust[1].kind, model[1].kind) == ("robust", "model", "robust", "model")
    assert model.with_intervals("robust").kind == "robust"
    assert model.with_intervals("model") is model
    assert robust.interval(1, 0.9, "model") == pytest.approx(model[1].at(0.9).interval)
    assert {model.quantile(0.5).kind, model.moment(2).kind, model.entropy.kind} == {"model"}
    assert model.total.kind == "robust"  # no model tells it better than the sum of the cells
    assert model.total.interval == pytest.approx(robust.total.interval)
    with pytest.raises(InputError, match="kind must be 'robust' or 'model'"):
        robust.with_intervals("magic")


def test_items_have_intervals_by_the_model_only():
    release = Setting("hashed", 1, 1024, 500, shape="poisson:2").draw(np.random.default_rng(2))
    p = reconstruct(release.noisy)
    assert p.kind == "model"
    assert p.quantile(0.5).kind == "model"
    with pytest.raises(InputError, match="kind must be 'model' for a hashed release"):
        p.with_intervals("robust")


def test_the_number_of_all_items_is_certain_and_blocks_partition_the_counts(both):
    _, model = both
    grounds = model._grounds
    everything = grounds.shares(np.array([0]), np.array([NO_END]))
    assert everything == pytest.approx(np.ones_like(everything))
    some = grounds.shares(np.array([1]), np.array([NO_END]))
    assert grounds.variance(everything)[0] < 1e-2 * grounds.variance(some)[0]
    parts = grounds.shares(np.array([0, 3, 9]), np.array([2, 8, NO_END]))
    assert parts.sum(axis=0) == pytest.approx(np.ones(parts.shape[1]))
    assert float(model._centres(np.array([0]), np.array([NO_END]))[0][0]) == pytest.approx(model.items, rel=1e-3)


def test_means_over_blocks_against_a_loop(both):
    _, model = both
    blocks = model._grounds.posterior.channel.blocks
    mean, spread = model._grounds.means(lambda t: np.asarray(t, dtype=float) ** 1.5)
    for j in (0, 5, blocks.covered - 1):
        values = np.arange(blocks.first[j], min(blocks.stop[j], model._grounds.top + 1)) ** 1.5
        assert mean[j] == pytest.approx(values.mean())
        assert spread[j] == pytest.approx(values.var(), abs=1e-6 * values.mean() ** 2 + 1e-9)


@pytest.mark.statistical
def test_model_intervals_hold_and_are_narrow_on_smooth_profiles():
    """Entry 3, a new data set every time. Control: intervals a tenth as wide do not hold."""
    rng, hits, halved, width, wide, runs = np.random.default_rng(3), 0, 0, 0.0, 0.0, 20
    for _ in range(runs):
        counts, noisy = geometric(rng)
        p = reconstruct(noisy, method="isotonic")
        truth, model = (counts == 3).sum(), p.with_intervals("model")
        lo, _, low, high = (float(column[0]) for column in model._bands(np.array([3]), np.array([3]), 0.95))
        hits += low <= truth <= high
        halved += abs(truth - lo) <= 0.1 * (high - low) / 2
        width, wide = width + high - low, wide + float(np.ptp(p.exactly(3).interval))
    print("coverage", hits / runs, "a tenth as wide", halved / runs, "width against robust", width / wide)
    assert holds_between(hits, runs, 0.93, 1.0)
    assert not holds_between(halved, runs, 0.93, 1.0)
    assert width < 0.3 * wide


@pytest.mark.statistical
def test_how_many_cells_are_empty_is_not_taken_from_the_other_counts(monkeypatch):
    """A quarter of a domain never occurs, behind five noises. Control: weights by evidence alone do not hold."""
    from unnoise.engine import posterior as averaged

    def held(runs):
        hits, width = 0, 0.0
        for run in range(runs):
            rng = np.random.default_rng([4, run])
            counts = np.append(1 + rng.poisson(rng.gamma(1.5, 2.0, 100_000)), np.zeros(31_072, dtype=int))
            answer = reconstruct(noised(counts, 1, run, power=5)).with_intervals("model").distinct
            hits += answer.low <= 100_000 <= answer.high
            width += (answer.high - answer.low) / 100_000 / runs
        return hits, width

    hits, width = held(40)
    monkeypatch.setattr(averaged, "_with_zero_apart", lambda _, weight: weight)
    without, narrow = held(40)
    print(f"coverage {hits / 40}, width {width:.3f}; by evidence alone {without / 40}, {narrow:.3f}")
    assert holds_between(hits, 40, 0.93, 1.0)
    assert not holds_between(without, 40, 0.93, 1.0)


# ------------------------------------------------------------------------------------------------ simultaneous


@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
@pytest.mark.parametrize("n", [1, 2, 30])
def test_critical_levels_of_independent_and_of_equal_errors(level, n):
    doubt = 5 * (level * (1 - level) / 8000) ** 0.5
    assert critical_level(np.eye(n), level) ** n == pytest.approx(level, abs=doubt + 1e-9)
    assert critical_level(np.ones((n, n)), level) == pytest.approx(level, abs=doubt)


def test_correlations_against_simulation():
    rng, law = np.random.default_rng(4), DiscreteLaplace(1)
    counts = rng.poisson(4, 4000)
    t, found = np.arange(9), []
    for _ in range(400):
        found.append(Bands(noisy_profile(rng, counts, law), 4000).linear(t, t)[0])
    stated = Bands(noisy_profile(rng, counts, law), 4000).correlation(t, t)
    assert stated == pytest.approx(np.corrcoef(np.transpose(found)), abs=0.3)
    curve = 4000 - np.cumsum(found, axis=1)[:, :-1]
    ends = np.full(8, NO_END)
    assert Bands(noisy_profile(rng, counts, law), 4000).correlation(t[1:], ends) == pytest.approx(
        np.corrcoef(np.transpose(curve)), abs=0.3
    )


@pytest.mark.statistical
@pytest.mark.parametrize("at_least", [False, True])
def test_a_band_holds_as_a_whole(at_least):
    """Control: the same counts asked one by one at 95 % do not hold together."""
    rng, hits, single, runs = np.random.default_rng(5), 0, 0, 60
    t = np.arange(25)
    for _ in range(runs):
        counts = rng.poisson(8, 3000)
        p = reconstruct(noisy_profile(rng, counts, DiscreteLaplace(1)), method="isotonic")
        truth = (counts[:, None] >= t).sum(axis=0) if at_least else np.bincount(counts, minlength=25)[:25]
        hits += truth in p.band(t, at_least=at_least)
        answers = p._answers(t, np.full_like(t, NO_END) if at_least else t, 0.95, 1.0)
        single += bool(((answers.low <= truth + 1e-6) & (truth - 1e-6 <= answers.high)).all())
    print("band", hits / runs, "one by one", single / runs)
    assert holds_between(hits, runs, 0.93, 1.0)
    assert single < hits


def test_a_band_of_a_high_level_does_not_rest_on_a_few_draws():
    for level in (0.9999, 0.999999):
        single = critical_level(np.eye(100), level)
        assert single**100 == pytest.approx(level, abs=(1 - level) / 100)


def test_a_model_band_is_smooth(both):
    """Neighbouring ends differ by little: no spikes. Control: those of the robust one do not."""
    robust, model = both

    def roughness(p):
        band = p.band(np.arange(40))
        return np.abs(np.diff(band.high, 2)).max() / band.high.max()

    print(roughness(model), roughness(robust))
    assert roughness(model) < 0.3 * roughness(robust)


def test_bands_of_next_to_nothing():
    for counts in ([0], [5], [0] * 20, [10**9, 0, 1]):
        for power in (1, 2):
            p = reconstruct(NoisyProfile.from_counts(counts, epsilon=1, power=power), method="isotonic")
            band = p.band(np.arange(40))
            assert (band.low <= band.value).all()
            assert (band.value <= band.high).all()
            assert np.isfinite(band.high).all()
    with pytest.raises(InputError, match="one number for each of"):
        assert [1, 2] in band
    with pytest.raises(InputError, match="counts must be at most 600"):
        p.band(np.arange(601))


# ------------------------------------------------------------------------------------------------ no contradictions

SHAPES = {
    "geometric": lambda rng: rng.geometric(0.1, 800) - 1,
    "all zero": lambda rng: np.zeros(50, dtype=np.int64),
    "one cell": lambda rng: np.array([3]),
    "a giant": lambda rng: np.concatenate([rng.poisson(2, 300), [10**9]]),
    "two clusters": lambda rng: np.repeat([1, 40], 200),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("epsilon", "power"), [(1, 1), (0.05, 1), (1, 3), (0.5, 40)])
@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
def test_robust_answers_never_contradict_each_other(shape, epsilon, power, level):
    rng = np.random.default_rng(6)
    p = reconstruct(noisy_profile(rng, SHAPES[shape](rng), DiscreteLaplace(epsilon, power)), method="isotonic")
    _never_contradicts(p, level)


@pytest.mark.parametrize("shape", ["geometric", "a giant"])
@pytest.mark.parametrize("power", [1, 3])
def test_model_answers_never_contradict_each_other(shape, power):
    rng = np.random.default_rng(7)
    p = reconstruct(noisy_profile(rng, SHAPES[shape](rng), DiscreteLaplace(1, power)), method="isotonic")
    for level in (0.5, 0.95, 0.999):
        _never_contradicts(p.with_intervals("model"), level)


def _never_contradicts(p, level):
    k = np.arange(60)
    least, exact = p._answers(k, np.full_like(k, NO_END), level, 1.0), p._answers(k, k, level, 1.0)
    slack = 1e-9 * p.items
    for one, many in zip(exact[2:], least[2:]):
        assert (one <= many + slack).all()
    for column in (least.value, least.low, least.high):
        assert (np.diff(column) <= slack).all()
    for answers in (least, exact):
        assert (answers.low <= answers.value + slack).all()
        assert (answers.value <= answers.high + slack).all()
        assert np.isfinite(answers.high).all()
        assert (answers.high <= p.items + slack).all()
    wider = p._answers(k, k, 0.5 + level / 2, 1.0)
    assert (wider.high - wider.low >= exact.high - exact.low - 0.01 * p.items).all()  # windows are whole
    assert 0 <= stats.norm.cdf(p.total.low) <= 1


def test_ones_that_the_noise_takes_for_zeros_are_allowed_for():
    """Where the noise leaves the mean of 16,000 cells open by more than 1, all of them may hold 1, or none."""
    rng = np.random.default_rng(1)
    counts = np.repeat([1, 2000], 16_000)
    p = reconstruct(noisy_profile(rng, counts, DiscreteLaplace("0.08", 19)))
    asked = p.at_least(1)
    assert p.kind == "model"
    assert asked.high >= 16_000 + 16_000 / 4 - 10
    assert p.at_least(0).interval == pytest.approx((32_000, 32_000), abs=10)  # but no cell holds less than 0
    assert p.at_least(1000).high - p.at_least(1000).low < 1000


def test_limits_open_towards_counts_that_an_atom_may_hold_too():
    """Two thousand items at 94 and 101 look like one atom between: the farther from it, the fewer, without a gap."""
    rng = np.random.default_rng(3)
    counts = np.concatenate([np.repeat([94, 101], 1000), np.zeros(2000, dtype=np.int64)])
    p = reconstruct(noisy_profile(rng, counts, DiscreteLaplace("0.21", 2))).with_intervals("model")
    k = np.arange(80, 115)
    here = p._centres(k, np.full_like(k, NO_END))[0]
    fewest, most = (here - QUARTER * step[k] for step in p._arrangement.steps)
    assert (fewest <= here).all()
    assert (here <= most).all()
    assert (np.diff([fewest, most]) <= 0).all()
    open_ = most - fewest > 100
    assert open_[(k >= 95) & (k <= 101)].all()
    for t in range(94, 102):
        asked, true = p.at_least(t), float((counts >= t).sum())
        assert max(asked.low - true, true - asked.high) < 3 * (asked.high - asked.low)


def test_little_noise_hides_no_rearrangement():
    _, noisy = geometric(np.random.default_rng(1), epsilon=3, cells=20_000)
    p = reconstruct(noisy).with_intervals("model")
    k = np.arange(1, 20)
    here = p._centres(k, np.full_like(k, NO_END))[0]
    fewest, most = (here - QUARTER * step[k] for step in p._arrangement.steps)
    assert fewest == pytest.approx(most)
    assert p._arrangement.within(k, k, p._centres(k, k)[0]).max() == 0


@pytest.mark.parametrize(("epsilon", "power", "tooth"), [("0.1", 1, 10), ("1/2", 8, 10), ("1", 8, 6)])
def test_what_is_at_one_count_is_open_to_a_comb_that_the_noise_hides(epsilon, power, tooth, monkeypatch):
    """All items at multiples that look like a smooth law: within four widths. Control: the variance alone."""
    counts = np.random.default_rng(3).choice(np.append(np.zeros(5), np.arange(tooth, 6 * tooth, tooth)), 16_000)
    noisy = [noisy_profile(np.random.default_rng(seed), counts.astype(np.int64), DiscreteLaplace(epsilon, power))
             for seed in range(3)]  # fmt: skip

    def farthest():
        found = [reconstruct(each).with_intervals("model") for each in noisy]
        asked = [(p.exactly(t), float((counts == t).sum())) for p in found for t in range(tooth, 6 * tooth, tooth)]
        return max(max(one.low - true, true - one.high) / (one.high - one.low) for one, true in asked)

    told = farthest()
    assert told < 4
    monkeypatch.setattr(Arrangement, "within", lambda self, lo, hi, value: np.zeros_like(value))
    assert farthest() > 1.5 * told


@pytest.mark.parametrize("stride", [1, 2, 10])
def test_a_band_holds_the_counts_of_a_block_that_lie_in_it(stride):
    """Blocks of multiples have those counts and no others: at 21 there is nothing of the block 20, 30."""
    blocks = Blocks.covering(np.array([1, 2, 4, 7, 12]), stride).with_atoms(np.array([35, FAR]))
    grounds = Grounds(SimpleNamespace(channel=SimpleNamespace(blocks=blocks)), 1, 120, 1.0, math.inf, 0.0, None)
    bands = [(lo, hi) for lo in range(1, 130, 3) for hi in (lo - 1, lo, lo + 1, lo + 8, lo + 40)]
    found = grounds.shares(*(np.array(ends) for ends in zip(*bands)))
    for j, (first, stop) in enumerate(zip(blocks.first[:-1], blocks.stop[:-1])):
        counts = np.arange(first, stop, stride)
        expected = [np.mean((counts >= lo) & (counts <= hi)) for lo, hi in bands]
        assert np.allclose(found[:, j], expected)
    assert grounds.shares(np.array([7]), np.array([NO_END]))[0, -1] == 1


def test_single_items_above_the_last_row_carry_the_noise_of_their_cell():
    """One item of 10⁹: how often it occurred is known to within the noise, in every question about it."""
    for seed in range(6):
        with testing.seeded(seed):
            sketch = Sketch.hashed(128, epsilon=1, item_types=["int"])
            sketch.update([7], counts=[10**9])
        profile = reconstruct(testing.release(sketch))
        for k in range(10**9 - 3, 10**9 + 4):
            asked = profile.at_least(k)
            assert asked.low - 1e-6 <= float(k <= 10**9) <= asked.high + 1e-6, (seed, k)
        assert 10**9 in profile.quantile(0.999)


def test_exactly_never_exceeds_at_least_above_the_last_row():
    for seed in range(4):
        with testing.seeded(seed):
            parts = [Sketch.hashed(128, epsilon=1, item_types=["int"]) for _ in range(1 + 11 * (seed % 2))]
            parts[0].update(np.arange(18), counts=[3] * 5 + [40] * 3 + [1] * 10)
        profile = reconstruct(testing.release(sum(parts[1:], parts[0])))
        for k in (38, 39, 40, 41, 50, 100):
            one, all_above = profile.exactly(k), profile.at_least(k)
            assert one.low <= all_above.low + 1e-9, (seed, k)
            assert one.high <= all_above.high + 1e-9, (seed, k)
            assert all_above.stderr <= max(all_above.high - all_above.low, 1), (seed, k)


def test_intervals_of_merged_domains_do_not_end_at_the_value():
    """Heartbeats, 1,440 a day with gaps: the posterior loses ten items that the value has (4 of 9 missed before)."""
    rng = np.random.default_rng(7)
    gaps = 1440 - np.minimum(rng.geometric(0.05, 2000), 1439)
    counts = np.concatenate([np.full(3000, 1440), gaps, rng.integers(1, 1440, 800), np.zeros(2900, dtype=np.int64)])
    missed = 0
    for seed in range(3):
        profile = reconstruct(noised(counts, 0.3, seed, power=7))
        missed += sum(int((counts >= k).sum()) not in profile.at_least(k) for k in (100, 300, 1000))
    assert missed <= 2


@pytest.mark.statistical
def test_model_intervals_of_bodies_wider_than_the_usual_rows():
    """0..10⁴ at ε = 0.01, most of it above 4,096: medians reached from 4,997 to 11,012, numbers ± 3,000 of 50,000."""
    rng = np.random.default_rng(5)
    counts = rng.integers(0, 10_001, 30_000)
    p = reconstruct(noisy_profile(rng, counts, DiscreteLaplace("0.01")))
    assert p.kind == "model"
    for k in (2_000, 5_000, 9_000):
        answer, truth = p.at_least(k), (counts >= k).sum()
        print(k, answer, truth)
        assert abs(truth - answer.value) <= 6 * answer.stderr  # 2·10⁻⁹ each
        assert answer.high - answer.low < 0.05 * counts.size
    middle = p.quantile(0.5)
    assert 4_000 < middle.low <= middle.high < 6_000


def test_intervals_stay_robust_where_most_cells_lie_above_every_block():
    """0..10⁶ at ε = 0.01: cells far apart tell their counts one by one, and no law of them is needed."""
    rng = np.random.default_rng(6)
    counts = rng.integers(0, 10**6, 20_000)
    p = reconstruct(noisy_profile(rng, counts, DiscreteLaplace("0.01")))
    assert p.kind == "robust"
    middle = p.quantile(0.5)
    assert np.median(counts) in middle
    assert middle.high - middle.low < 0.05 * 10**6


@pytest.mark.filterwarnings("ignore::unnoise.errors.UnnoiseWarning")
def test_sums_by_the_model_reach_up_to_giants_that_a_sample_may_have_missed():
    """As those without a model do: of 30 releases 8 missed Σ h² of log-normal counts behind six noises, now 1."""
    rng = np.random.default_rng(4)
    layout = Layout(kind="sampled", cells=4000, domain=40_000)
    skewness = {"citations": rng.lognormal(1.3, 1.4, 4000), "small": rng.poisson(5, 4000)}
    reached = {}
    for name, counts in skewness.items():
        tally = noisy_profile(rng, counts.astype(np.int64), DiscreteLaplace("0.5", 6))
        p = reconstruct(NoisyProfile.from_tally(tally.values, tally.tally, noise=tally.noise, layout=layout))
        assert p.kind == "model"
        reached[name] = [(e.high - e.value) / (e.value - e.low) for e in (p.moment(2), p.entropy)]
    assert reached["citations"][0] > 2  # 7.67/1.96 at most
    assert reached["citations"][1] < 1  # giants take entropy away
    assert reached["small"] == pytest.approx([1, 1], rel=0.3)
