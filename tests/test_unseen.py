"""Functions of an unseen population: right on populations that are known, with intervals that cover."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy.stats import norm, t

import unnoise as un
from oracles_answers import holds_between
from statistics_tools import FALSE_ALARM
from unnoise import testing
from unnoise.answers.unseen import RARE, _Limits, _poisson, _Population, _Sample
from unnoise.baselines import bucketed_profile, min_wise_sample
from unnoise.errors import InputError


def sample(rng: np.random.Generator, kinds: int, draws: int) -> np.ndarray:
    return np.bincount(rng.integers(0, kinds, draws), minlength=kinds)


def sampled(rare: list[float], total: float) -> _Sample:
    numbers = np.zeros(RARE)
    numbers[: len(rare)] = rare
    return _Sample(numbers, np.zeros(0), np.zeros(0), total, np.zeros(RARE + 1), 0.0)


def test_formulas_on_a_profile_by_hand() -> None:
    """Ten items once, four twice, two thrice; a population of 20 items of mean 0.5."""
    total, means, items = 24, np.array([0.5]), np.array([20.0])
    support, entropy, coverage, fresh, fewest = sampled([10, 4, 2], total).answers(_Population(means, items))
    assert coverage == pytest.approx(1 - 10 / total)
    assert fewest == pytest.approx(16 + 10 * 9 / (2 * 5))
    assert support == pytest.approx(16 + 20 * math.exp(-0.5))
    assert fresh == pytest.approx(20 * math.exp(-0.5) * (1 - math.exp(-0.5)))
    seen = sum(n * t / total * sum(1 / k for k in range(t, total)) for t, n in ((1, 10), (2, 4), (3, 2)))
    u = np.linspace(1, 60, 400_001)
    rest = 20 * 0.5 / total * np.trapezoid(np.exp(-0.5 * u) / u, u)  # Σ over k ≥ n of p(1 − p)^k/k, as an integral
    assert entropy == pytest.approx(seen + rest, rel=1e-6)


def test_the_fitted_population_is_the_likeliest() -> None:
    """Expected numbers of a known mixture give it back in what they tell; no neighbour is likelier."""
    truth = _Population(np.array([0.7, 4.0]), np.array([3000.0, 500.0]))
    numbers = _poisson(truth.means) @ truth.items
    sample = sampled(numbers.tolist(), 1e4)
    found = _Population.of(sample)
    assert found.items @ np.exp(-found.means) == pytest.approx(3000 * math.exp(-0.7) + 500 * math.exp(-4), rel=0.02)

    def likelihood(items: np.ndarray) -> float:
        mean = _poisson(found.means) @ items
        return float(numbers @ np.log(mean) - mean.sum())

    rng = np.random.default_rng(0)
    others = [likelihood(found.items * np.exp(0.2 * rng.normal(size=found.items.size))) for _ in range(50)]
    assert likelihood(found.items) > max(others)


@pytest.mark.statistical
def test_intervals_cover_a_population_of_equal_items() -> None:
    """5,000 items, 6,000 draws: a third unseen. Private profile at ε = 1; at least 88 %, flake 1e-9."""
    rng, runs = np.random.default_rng(1), 30
    hits = dict.fromkeys(("support", "entropy", "coverage"), 0)
    plain = 0
    for i in range(runs):
        counts = sample(rng, 5000, 6000)
        p = un.direct(np.arange(5000), counts=counts, epsilon=1)
        found = un.unseen(p, repetitions=60, seed=i)
        seen = counts > 0
        truths = {"support": 5000, "entropy": math.log(5000), "coverage": seen.mean()}
        for name in hits:
            hits[name] += truths[name] in getattr(found, name)
        plain += 5000 in p.distinct
    print(hits)
    assert all(holds_between(hit, runs, 0.88, 1.0) for hit in hits.values()), hits
    assert plain == 0  # the control: the items seen are not the population


@pytest.mark.statistical
@pytest.mark.parametrize(("law", "draws"), [(1 / np.arange(1, 5001), 300), (np.ones(1000), 30_000)])
def test_entropy_is_covered_where_most_is_unseen_and_where_all_is_seen(law: np.ndarray, draws: int) -> None:
    """A long tail, of which the likeliest population shows too little, and equal items. At least 88 %, flake 1e-9."""
    rng, runs, law = np.random.default_rng(2), 30, law / law.sum()
    truth, hits, wide = -float(law @ np.log(law)), 0, []
    for i in range(runs):
        with testing.seeded(i):
            p = testing.direct(np.arange(law.size), counts=rng.multinomial(draws, law), epsilon=10)
        entropy = un.unseen(p, repetitions=40, seed=i).entropy
        hits += truth in entropy
        wide.append(entropy.high - entropy.low)
    print(hits, np.mean(wide))
    assert holds_between(hits, runs, 0.88, 1.0)
    assert np.mean(wide) < math.log(draws)  # an interval that says something


def test_limits_of_a_population_hold_the_truth_and_only_what_fits() -> None:
    """Expected numbers of a mixture: what is true of it is between the limits; their ends fit, nothing beyond does."""
    truth = _Population(np.array([0.1, 5.0]), np.array([4000.0, 600.0]))
    limits = _Limits(sampled(truth.numbers.tolist(), 3400.0), truth, 0.95)
    for weights, value in (
        (np.exp(-limits.means) * limits.means, truth.items @ (truth.means * np.exp(-truth.means))),
        (limits.means * np.log(limits.means / 3400), truth.items @ (truth.means * np.log(truth.means / 3400))),
    ):
        low, high = limits.between(weights)
        assert low < value < high
        slack = 0.01 * (high - low)
        assert limits._fits(weights, low + slack)
        assert limits._fits(weights, high - slack)
        assert not limits._fits(weights, low - slack)
        assert not limits._fits(weights, high + slack)


def test_everything_seen_and_nothing_seen() -> None:
    with testing.seeded(1):
        full = un.unseen(testing.direct(np.repeat(np.arange(300), 50), epsilon=1), repetitions=20)
    assert full.coverage.value > 0.99
    assert 290 < full.support.value < 320
    empty = un.unseen(un.direct([], epsilon=1), repetitions=20)
    assert empty.support.low < 1
    json.dumps(empty.to_dict(), allow_nan=False)
    assert empty.to_dict()["support"]["high"] is None
    assert set(empty.to_dict()) == {"support", "entropy", "coverage", "new_items"}
    with pytest.raises(InputError, match="repetitions"):
        un.unseen(un.direct([1], epsilon=1), repetitions=1)


@pytest.mark.parametrize("counts", [[1], [1] * 50, [2**62], [2**62, 1, 1], [3] * 4000])
@pytest.mark.parametrize("epsilon", [0.05, 40])
def test_every_profile_has_a_population(counts: list, epsilon: float) -> None:
    found = un.unseen(un.direct(np.arange(len(counts)), counts=counts, epsilon=epsilon), repetitions=10)
    for name in ("support", "entropy", "coverage", "new_items"):
        answer = getattr(found, name)
        assert math.isfinite(answer.value)
        assert 0 <= answer.low <= answer.value <= answer.high
    assert found.coverage.high <= 1
    assert found.support.high == math.inf


def test_sketches_answer_too() -> None:
    sketch = un.Sketch.hashed(2**13, epsilon=2)
    sketch.update(np.random.default_rng(2).integers(0, 4000, 9000))
    found = un.unseen(un.reconstruct(sketch.release()), repetitions=30)
    assert found.support.low <= 4000 <= found.support.high or abs(found.support.value / 4000 - 1) < 0.3


# ---------------------------------------------------------------- streaming comparators


COUNTS = np.repeat([0, 1, 2, 7, 40], [500, 6000, 3000, 900, 100])


def l1(found, size: int = 10_000) -> float:
    """Σ_{t ≤ 14} |N̂_t − N_t| / D, the error that Chen, Indyk and Woodruff bound."""
    truth = np.bincount(COUNTS[(COUNTS > 0) & (COUNTS <= 14)], minlength=15)[1:15]
    return float(np.abs(found.items[1:15] - truth).sum()) / size


def mean_error(take, size: int, rng: np.random.Generator, runs: int = 120) -> tuple[float, float]:
    """Return the mean of some errors, and the relative error of that mean."""
    found = np.array([l1(take(COUNTS, size, rng)) for _ in range(runs)])
    return float(found.mean()), float(found.std(ddof=1) / found.mean() / math.sqrt(runs))


@pytest.mark.statistical
@pytest.mark.parametrize(("take", "size"), [(min_wise_sample, 200), (bucketed_profile, 400)])
def test_errors_fall_with_the_root_of_the_memory(take, size: int) -> None:
    """Both papers: ε ∝ 1/√bits; four times the memory halves the error.

    The logarithm of a ratio of two means is nearly normal: a false alarm in 10⁹. Control: equal memory, equal error.
    """
    rng = np.random.default_rng(3)
    (less, first), (more, second), (same, third) = (mean_error(take, n, rng, 500) for n in (4 * size, size, size))
    limit = norm.isf(FALSE_ALARM / 2) * math.hypot(max(first, third), second)
    print(f"{less / more:.3f}, {same / more:.3f}, within a factor {math.exp(limit):.2f}")
    assert abs(math.log(2 * less / more)) < limit
    assert abs(math.log(same / more)) < limit < math.log(2) / 2


@pytest.mark.statistical
def test_bits_do_better_than_words() -> None:
    """The gap between the papers: a constant number of bits to a sample instead of two words."""
    rng = np.random.default_rng(4)
    words, _ = mean_error(min_wise_sample, 100, rng)
    assert min_wise_sample(COUNTS, 100, rng).bytes == 1600
    assert mean_error(bucketed_profile, 1600, rng)[0] < words / 2
    assert bucketed_profile(COUNTS, 1600, rng).distinct == pytest.approx(10_000, rel=0.25)
    assert min_wise_sample(COUNTS, 800, rng).distinct == pytest.approx(10_000, rel=0.25)


def test_collisions_are_undone() -> None:
    """With room for everything the profile is exact in the mean, also where a third of the buckets are shared."""
    rng = np.random.default_rng(5)
    runs = np.array([bucketed_profile(COUNTS, 10_000, rng).items for _ in range(60)])
    found, limit = runs.mean(axis=0), t.isf(FALSE_ALARM / 2, 59) * runs.std(axis=0, ddof=1) / math.sqrt(60)
    for count, true in ((1, 6000), (2, 3000), (7, 900), (15, 100), (3, 0), (4, 0), (5, 0), (6, 0)):
        print(f"{count}: {found[count]:.1f} ± {limit[count]:.1f} where {true} are")
        assert abs(found[count] - true) < limit[count] < 0.05 * true + 60
    for take in (min_wise_sample, bucketed_profile):
        assert take([0, 0], 10, rng).distinct == 0
        assert take([5], 10, rng).distinct > 0


@pytest.mark.parametrize("given", [None, [1, 2], np.arange(3)])
def test_only_a_profile_has_a_population(given: object) -> None:
    with pytest.raises(InputError, match=r"profile must be a Profile, as un\.profile gives it, got"):
        un.unseen(given)
