"""Power series, compound Poisson likelihood, and the item profile beneath shared cells."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drawing_tools import sketch, zipf_numbers
from oracles_items import brute_law, log_series, throw_law
from unnoise import testing
from unnoise.answers.questions import mark
from unnoise.answers.reconstruct import reconstruct
from unnoise.engine import fourier, search
from unnoise.engine.fourier import FourierChannel
from unnoise.errors import InputError, OverloadError
from unnoise.estimators import collisions as module
from unnoise.estimators._ladder import cell_law, logarithm, reciprocal
from unnoise.estimators.collisions import collisions, decompound, level_shares, ranges
from unnoise.estimators.methods import Fit
from unnoise.layout import Layout
from unnoise.noise import DiscreteLaplace
from unnoise.noisy import NoisyCounts, NoisyProfile
from unnoise.sketches.sketch import Sketch

small = st.lists(st.integers(0, 9), min_size=1, max_size=12)


def hashed(cells: int, levels: int = 1) -> Layout:
    return Layout(kind="hashed", cells=cells, levels=levels, hash_seed=0)


# ---------------------------------------------------------------- series


@given(small, st.integers(1, 9))
def test_logarithm_equals_the_exact_recurrence(rest, first):
    scale = first + sum(rest)
    exact = [Fraction(first, scale), *(Fraction(x, scale) for x in rest)]
    fast = logarithm(np.array([float(x) for x in exact]))
    assert fast[0] == pytest.approx(math.log(first / scale))
    truth = np.array([float(x) for x in log_series(exact)[1:]])
    # 1/g may grow like (scale/first)^T, and rounding with it
    assert np.allclose(fast[1:], truth, rtol=1e-9, atol=1e-13 * max(1, np.abs(truth).max(initial=0)))


@pytest.mark.parametrize("load", [0.1, 1.0, 4.0])
def test_long_series_are_as_good_as_the_quadratic_recurrence(load):
    terms = 3000
    rates = load * np.arange(1, terms) ** -1.8 / (np.arange(1, terms) ** -1.8).sum()
    law = cell_law(np.append(0.0, rates), 1.0)
    slow = np.zeros(terms)
    slow[0] = math.exp(-load)
    for s in range(1, terms):  # Panjer's recurrence
        slow[s] = (np.arange(1, s + 1) * rates[:s]) @ slow[s - 1 :: -1][:s] / s
    assert np.abs(law - slow).max() < 1e-13
    assert np.abs(logarithm(law)[1:] - rates).max() < 1e-14 * math.exp(2 * load) * 10


@given(small, st.integers(1, 9))
def test_reciprocal(rest, first):
    series = np.array([first, *rest], dtype=float)
    unit = np.convolve(series, reciprocal(series))[: series.size]
    size = np.convolve(np.abs(series), np.abs(reciprocal(series)))[: series.size]
    assert np.allclose(unit, np.eye(series.size)[0], atol=1e-12 * size.max())


def test_series_refuse_what_has_no_logarithm():
    with pytest.raises(InputError, match="must be > 0, got 0"):
        logarithm(np.array([0.0, 1.0]))
    with pytest.raises(InputError, match="must not be 0"):
        reciprocal(np.array([0.0, 1.0]))


# ---------------------------------------------------------------- law of the cells


def test_cell_law_equals_enumeration():
    items = np.array([0.0, 3.0, 1.5, 0.0, 0.7] + [0.0] * 15)
    fast = cell_law(items, 0.5, above=0.6)
    slow = math.exp(-0.3) * brute_law({1: 1.5, 2: 0.75, 4: 0.35}, 20)
    assert np.allclose(fast, slow, atol=1e-14)


def test_cell_law_is_the_limit_of_throwing_items():
    counts, cells = [1, 1, 2, 5] * 50, 400
    exact = np.array([float(x) for x in throw_law(counts, cells, 12)])
    poisson = cell_law(np.bincount(counts, minlength=12).astype(float), 1 / cells)
    # Le Cam: total variation below Σ p² = 200/400²
    assert 0.5 * np.abs(exact - poisson).sum() < len(counts) / cells**2


# ---------------------------------------------------------------- levels and refusals


@pytest.mark.parametrize("levels", [1, 2, 3, 16])
def test_level_shares_add_up_to_one(levels):
    shares = level_shares(levels)
    assert shares.sum() == 1
    assert shares[-1] == (shares[-2] if levels > 1 else 1)


def test_levels_need_their_parts():
    noisy = NoisyProfile.from_tally([0], [64], noise=DiscreteLaplace(1), layout=hashed(64, 4))
    with pytest.raises(InputError, match="one noisy profile per level, got 0 for 4"):
        ranges(noisy)


@pytest.mark.parametrize("load", [0.3, 1.2])
@pytest.mark.parametrize("epsilon", [0.5, 3])
def test_item_numbers_are_never_negative(load, epsilon):
    rng = np.random.default_rng(3)
    counts, numbers = zipf_numbers(round(load * 4096), 1.8, rng)
    law = collisions(sketch(counts, numbers, hashed(4096), DiscreteLaplace(epsilon), rng))
    assert (law.items >= 0).all()
    assert (law.support >= 1).all()
    assert (np.diff(law.support) > 0).all()
    assert law.tail is None or (law.tail.items >= 0).all()


def test_no_two_masses_share_a_place():
    """Of three possible counts all are 3: two masses there, of which any share is either's, had made 0 to 98,000."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        cells = 3 * np.bincount(rng.integers(0, 1 << 15, 10_000), minlength=1 << 15)
        p = -math.expm1(-1.1)
        noisy = cells + rng.negative_binomial(3, p, cells.size) - rng.negative_binomial(3, p, cells.size)
        found = reconstruct(NoisyCounts(noisy, DiscreteLaplace("1.1", 3), hashed(1 << 15)), max_count=3).distinct
        assert 10_000 in found
        assert found.high - found.low < 2_000


def test_a_load_of_ten_is_answered_with_its_error():
    rng = np.random.default_rng(4)
    counts, numbers = zipf_numbers(40_000, 1.8, rng)
    law = collisions(sketch(counts, numbers, hashed(4096), DiscreteLaplace(1), rng))
    stated = math.sqrt(law.posterior.covariance.sum())
    assert stated < 0.1 * 40_000
    assert law.items.sum() == pytest.approx(40_000, abs=6 * stated)


def test_where_no_model_can_be_certified_all_of_them_count():
    """500 items in eight levels of eight cells, thirty noises: the best model alone was sure of itself, and wrong."""
    for seed in (3, 4, 9):
        with testing.seeded(seed):
            items, whole = np.random.default_rng(seed), Sketch.hashed(64, epsilon=1, levels=8)
            for _ in range(30):
                part = Sketch.hashed(64, epsilon=1, levels=8)
                part.update(items.integers(0, 500, 500))
                whole.merge(part)
            found = reconstruct(testing.release(whole)).distinct
        assert 500 in found
        assert mark(found)


def test_overload_is_refused_and_the_cells_named_would_do():
    rng = np.random.default_rng(4)
    counts, numbers = np.array([1, 20_000]), np.array([5_000, 5_000])
    with pytest.raises(OverloadError, match=r"in each of 256 cells: ([\d,]+) cells would do") as caught:
        collisions(sketch(counts, numbers, hashed(256), DiscreteLaplace(1), rng))
    cells = int(str(caught.value).split("cells: ")[1].split(" cells")[0].replace(",", ""))
    assert cells & (cells - 1) == 0
    assert cells >= 10_000


# ---------------------------------------------------------------- the plain logarithm and the far tail


def test_decompound_inverts_an_exact_law():
    items = np.zeros(200)
    items[[1, 2, 7, 50]] = [3000.0, 1000.0, 200.0, 40.0]
    law = cell_law(items.copy(), 1 / 8192)
    noisy = NoisyProfile.from_tally([0], [8192], noise=DiscreteLaplace(1), layout=hashed(8192))
    support, found = decompound(Fit(np.arange(200), law / law.sum(), "exact law"), noisy)
    dense = np.zeros(200)
    dense[support] = found
    assert np.abs(dense - items).max() < 1e-3 * items.max()


def test_decompound_refuses_a_high_load():
    noisy = NoisyProfile.from_tally([3], [64], noise=DiscreteLaplace(1), layout=hashed(64))
    with pytest.raises(OverloadError):
        decompound(Fit(np.array([0, 3]), np.array([0.05, 0.95]), "made up"), noisy)


def test_huge_counts_are_found_beneath_collisions():
    rng = np.random.default_rng(6)
    counts = np.array([1, 3, 10**6, 10**9, 10**12])
    numbers = np.array([2000, 500, 40, 10, 3])
    law = collisions(sketch(counts, numbers, hashed(4096), DiscreteLaplace(1), rng))
    for count, number in zip(counts[2:], numbers[2:]):
        near = (law.support > count * 0.999) & (law.support < count * 1.001)
        assert law.items[near].sum() == pytest.approx(number, abs=0.12 * number + 0.3)  # a collision hides two
    assert law.support @ law.items == pytest.approx(counts @ numbers, rel=1e-3)


def test_two_equal_large_items_in_one_cell_are_told_apart():
    # All items have count 5000 and half of the cells hold one or more: totals of 10,000 are pairs, not items.
    rng = np.random.default_rng(7)
    law = collisions(sketch(np.array([5000]), np.array([3000]), hashed(4096), DiscreteLaplace(1), rng))
    assert law.items.sum() == pytest.approx(3000, rel=0.05)
    assert law.items[law.support > 7500].sum() < 120


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 60), st.integers(1, 40), st.integers(0, 10**6))
def test_small_sketches_never_fail(items, count, seed):
    rng = np.random.default_rng(seed)
    law = collisions(sketch(np.array([count]), np.array([items]), hashed(64), DiscreteLaplace(1), rng))
    assert np.isfinite(law.items).all()


def test_a_plain_logarithm_without_an_empty_cell_is_an_overload():
    """One item of 51 in 64 cells: the roughness of `isotonic` added up to a load at which exp(−load) is 0."""
    with testing.seeded(21052):
        sketch = Sketch.hashed(64, epsilon=1)
        sketch.update([1] * 51)
        noisy = testing.release(sketch)
    with pytest.raises(OverloadError):
        reconstruct(noisy, method="isotonic")


@pytest.mark.parametrize(("load", "power"), [(0.6, 1), (2.0, 1), (0.6, 7)])
def test_items_of_thousands_of_occurrences_are_counted_across_the_last_row(load, power):
    """Many cells lie above 4,096: rows go on as far as there are cells, not only the few largest."""
    rng = np.random.default_rng(11)
    counts = np.maximum(rng.exponential(3333, round(load * 2**13)), 1).astype(np.int64)
    cells = np.bincount(rng.integers(0, 2**13, counts.size), weights=counts, minlength=2**13).astype(np.int64)
    noise = rng.negative_binomial(power, 1 - math.exp(-1), (2, cells.size))
    noisy = NoisyCounts(cells + noise[0] - noise[1], DiscreteLaplace(1, power), hashed(2**13)).profile()
    profile = reconstruct(noisy)
    for k in (1, 1000, 4000, 4500, 10_000):
        answer, true = profile.at_least(k), int((counts >= k).sum())
        assert abs(answer.value - true) < 5 * answer.stderr + 1, k


@pytest.mark.parametrize(("count", "load"), [(1, 8000), (500, 20), (200, 50)])
def test_sums_of_many_items_are_refused_however_large(count, load):
    """Rows that follow the cells would reach these; but they are sums of dozens, and nothing tells of how many."""
    rng = np.random.default_rng(3)
    cells = count * rng.poisson(load, 512) + rng.geometric(0.6, 512) - rng.geometric(0.6, 512)
    with pytest.raises(OverloadError, match="cells would do"):
        reconstruct(NoisyCounts(cells, DiscreteLaplace("11/12"), hashed(512)))


# ---------------------------------------------------------------- large counts close to each other


def thrown(counts: np.ndarray, cells: int, epsilon: float, power: int, seed: int) -> NoisyCounts:
    """Items of these counts in cells, under noise of a seed."""
    rng = np.random.default_rng(seed)
    exact = np.bincount(rng.integers(0, cells, counts.size), weights=counts, minlength=cells).astype(np.int64)
    ends = rng.geometric(-math.expm1(-epsilon), (2, power, cells)).sum(axis=1)
    return NoisyCounts(exact + ends[0] - ends[1], DiscreteLaplace(epsilon, power), hashed(cells))


@pytest.mark.parametrize(("epsilon", "power"), [(0.3, 1), (1, 1), (1, 4)])
def test_a_hill_narrower_than_a_block(epsilon, power):
    """Devices that report every five minutes: once 16,000 of them were told as one count and 2,000 items of 1."""
    rng = np.random.default_rng(3)
    counts = 1 + rng.binomial(288, np.where(rng.random(20_000) < 0.8, 0.99, rng.random(20_000)))
    found = reconstruct(thrown(counts, 2**15, epsilon, power, 4))
    for k in (1, 100, 280):
        answer, truth = found.at_least(k), (counts >= k).sum()
        print(answer, truth)
        assert abs(answer.value - truth) < 0.03 * truth
        assert max(answer.low - truth, truth - answer.high) < 0.5 * (answer.high - answer.low)
    top = found.at_least(288)
    assert max(top.low - (counts >= 288).sum(), (counts >= 288).sum() - top.high) < top.high - top.low


def test_a_hill_with_edges_far_up(monkeypatch):
    """900 to 1,100, evenly: 45 % of such answers missed when rows within were coarse. Control: by blocks."""
    counts = np.random.default_rng(21).integers(900, 1101, 2**13)
    noisy, ranked = thrown(counts, 2**13, 1, 1, 22), np.sort(counts)

    def missed() -> list[float]:
        """By how much each answer misses the truth, in its widths (and one count)."""
        found, away = reconstruct(noisy), []
        for q in (0.1, 0.25, 0.5, 0.75, 0.9):
            k = int(ranked[math.ceil(q * counts.size) - 1])
            for answer, truth in ((found.quantile(q), k), (found.at_least(k), (counts >= k).sum())):
                print(q, answer, truth)
                away.append(max(answer.low - truth, truth - answer.high, 0) / (answer.high - answer.low + 1))
        return away

    away = missed()
    assert np.count_nonzero(away) <= 1
    assert max(away) < 0.5
    monkeypatch.setattr(fourier, "BESIDE", 0)
    monkeypatch.setattr(FourierChannel, "finest_step", lambda self, state, cells: np.ones(self.law.down.size))
    assert np.count_nonzero(missed()) > np.count_nonzero(away)


def test_counts_that_are_sums_of_others():
    """249 + 50 = 299: once the items of 299 were told as more of 249, and both intervals excluded the truth."""
    prices = np.array([5, 9, 10, 19, 25, 29, 49, 50, 75, 99, 121, 149, 199, 249, 299, 499, 999])
    counts = np.random.default_rng(5).choice(prices, 20_000, p=prices**-0.7 / (prices**-0.7).sum())
    found = reconstruct(thrown(counts, 2**15, 1, 1, 6))
    for k in (75, 121, 199, 249, 299, 499):
        answer, truth = found.exactly(k), (counts == k).sum()
        print(k, answer, truth)
        assert max(answer.low - truth, truth - answer.high) < 0.5 * (answer.high - answer.low)


def test_what_a_block_hides_is_the_models():
    """Half of the items of a wide block at one of its counts, behind noise as wide as the block: told, or marked."""
    rng = np.random.default_rng(7)
    counts = np.where(rng.random(20_000) < 0.05, 131, np.exp(rng.normal(4.8, 0.8, 20_000)).astype(np.int64) + 1)
    answer, truth = reconstruct(thrown(counts, 2**15, 0.3, 1, 8)).exactly(131), (counts == 131).sum()
    print(answer, truth, answer.data_share)
    assert truth in answer or answer.data_share < 0.5


@pytest.mark.parametrize("shape", ["cap", "prices"])
def test_single_counts_tower_over_a_smooth_law(shape, monkeypatch):
    """A cap at 20, a few price points: walks loose enough for them spread them. Control: no masses of their own.

    (Price points are told without, too, since the rows beside uneven ones are fine.)
    """
    rng = np.random.default_rng(9)
    prices = rng.choice([5, 9, 10, 19, 20, 29, 49, 50], 30_000)
    counts = np.minimum(rng.geometric(0.08, 30_000), 20) if shape == "cap" else prices
    noisy, truth = thrown(counts, 2**15, 1, 1, 10), np.bincount(counts, minlength=100)

    def found() -> tuple[float, bool]:
        profile = reconstruct(noisy)
        numbers = np.zeros(100)
        numbers[: profile.counts.size] = profile.counts[:100]
        return float(np.abs(numbers - truth).sum()) / counts.size, truth[20] in profile.exactly(20)

    error, held = found()
    monkeypatch.setattr(search, "_sharper", lambda best, total, counts: best)
    without, _ = found()
    print(f"ℓ1 {error:.3f}, without {without:.3f}")
    assert held
    assert error < (0.5 * without if shape == "cap" else 0.02)


def test_a_hill_of_large_counts_is_told_to_its_foot(monkeypatch):
    """288 reports a day less those lost: the top stands out, the foot does not. Control: masses at the top alone."""
    rng = np.random.default_rng(1)
    counts = 288 - np.minimum(rng.geometric(0.3, 20_000) - 1, 200)
    sketches = [thrown(counts, 2**15, 1, 1, seed) for seed in range(4)]

    def error() -> float:
        """Mean distance of the curves of numbers at or above k from the true one, in shares of all items."""
        told = [[found.at_least(k).value - (counts >= k).sum() for k in range(1, 300)]
                for found in map(reconstruct, sketches)]  # fmt: skip
        return float(np.abs(told).mean()) / counts.size

    whole, channels = error(), module._channels
    monkeypatch.setattr(module, "_channels", lambda *given: channels(*given)[-1:])
    without = error()
    print(f"{whole:.4f}, without {without:.4f}")
    assert whole < 0.75 * without


def test_packs_beside_single_pieces_beneath_crowded_cells(monkeypatch):
    """Multiples of 6 and single pieces, four items to a cell: rough everywhere. Control: no count may stray."""
    rng = np.random.default_rng(4)
    counts = np.concatenate([6 * rng.geometric(0.3, 20_000), rng.geometric(0.6, 12_000)])
    sketches = [thrown(counts, 2**13, 1, 1, seed) for seed in range(2, 8)]

    def error() -> float:
        """Largest error of the numbers at or above k, in shares of all items: the mean over all sketches."""
        return float(np.mean([max(abs(found.at_least(k).value - (counts >= k).sum()) for k in range(1, 31))
                              for found in map(reconstruct, sketches)])) / counts.size  # fmt: skip

    told = error()
    monkeypatch.setattr(search.Search, "_set_astray", lambda self, found, blocks: None)
    without = error()
    print(f"{told:.4f}, without {without:.4f}")
    assert told < 0.85 * without


def test_what_strong_noise_hides_is_marked():
    """A body of small counts told as a few points: an interval that misses says that the answer is the model's."""
    rng = np.random.default_rng(11)
    body, round_numbers = rng.geometric(0.2, 20_000), rng.choice([10, 20, 50, 100], 8_000)
    counts = np.concatenate([body, round_numbers, rng.choice([500, 1000], 500)])
    found = reconstruct(thrown(counts, 2**15, 0.01, 1, 3))
    for k in (1, 2, 3, 5, 10, 30, 100, 300):
        answer, truth = found.at_least(k), (counts >= k).sum()
        print(k, answer, truth, mark(answer))
        assert truth in answer or mark(answer)
