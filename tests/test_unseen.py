"""Functions of an unseen population: right on populations that are known, with intervals that cover."""

from __future__ import annotations

import math

import numpy as np
import pytest

import unnoise as un
from oracles_answers import holds_between
from unnoise.answers.unseen import _functionals, _missing
from unnoise.baselines import bucketed_profile, min_wise_sample
from unnoise.errors import InputError


def sample(rng: np.random.Generator, kinds: int, draws: int) -> np.ndarray:
    return np.bincount(rng.integers(0, kinds, draws), minlength=kinds)


def test_formulas_on_a_profile_by_hand() -> None:
    counts, items = np.array([1, 2, 3]), np.array([10.0, 4.0, 2.0])
    total = 24
    support, entropy, coverage, fresh = _functionals(counts, items)
    hidden = 23 / 24 * 10 * 9 / (2 * 5)
    assert coverage == pytest.approx(1 - 10 / total)
    assert support == pytest.approx(16 + hidden)
    assert _missing(10, 4, total) == pytest.approx(hidden)
    a = 2 * 4 / (23 * 10 + 2 * 4)
    seen = sum(n * t / total * sum(1 / k for k in range(t, total)) for t, n in zip(counts, items))
    assert entropy == pytest.approx(seen + 10 / total * sum((1 - a) ** (k + 1) / (total + k) for k in range(3000)))
    assert fresh == pytest.approx(hidden * (1 - (1 - 10 / (total * hidden)) ** total))


@pytest.mark.statistical
def test_intervals_cover_a_population_of_equal_items() -> None:
    """5,000 items, 6,000 draws: a third unseen. Private profile at ε = 1; at least 88 %, flake 1e-9."""
    rng, runs = np.random.default_rng(1), 40
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


def test_everything_seen_and_nothing_seen() -> None:
    full = un.unseen(un.direct(np.repeat(np.arange(300), 50), epsilon=1), repetitions=20)
    assert full.coverage.value > 0.99
    assert 290 < full.support.value < 320
    empty = un.unseen(un.direct([], epsilon=1), repetitions=20)
    assert empty.support.low < 1
    assert set(empty.to_dict()) == {"support", "entropy", "coverage", "new_items"}
    with pytest.raises(InputError, match="repetitions"):
        un.unseen(un.direct([1], epsilon=1), repetitions=1)


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


def mean_error(take, size: int, rng: np.random.Generator, runs: int = 120) -> float:
    return float(np.mean([l1(take(COUNTS, size, rng)) for _ in range(runs)]))


@pytest.mark.statistical
@pytest.mark.parametrize(("take", "size"), [(min_wise_sample, 200), (bucketed_profile, 400)])
def test_errors_fall_with_the_root_of_the_memory(take, size: int) -> None:
    """Both papers: ε ∝ 1/√bits; four times the memory halves the error (within a fifth; flake far below 1e-9)."""
    rng = np.random.default_rng(3)
    ratio = mean_error(take, 4 * size, rng) / mean_error(take, size, rng)
    print(ratio)
    assert 0.4 < ratio < 0.6
    assert mean_error(take, size, rng) / mean_error(take, size, rng) > 0.6  # the control: equal memory, equal error


@pytest.mark.statistical
def test_bits_do_better_than_words() -> None:
    """The gap between the papers: a constant number of bits to a sample instead of two words."""
    rng = np.random.default_rng(4)
    words = mean_error(min_wise_sample, 100, rng)
    assert min_wise_sample(COUNTS, 100, rng).bytes == 1600
    assert mean_error(bucketed_profile, 1600, rng) < words / 2
    assert bucketed_profile(COUNTS, 1600, rng).distinct == pytest.approx(10_000, rel=0.25)
    assert min_wise_sample(COUNTS, 800, rng).distinct == pytest.approx(10_000, rel=0.25)


def test_collisions_are_undone() -> None:
    """With room for everything the profile is exact in the mean, also where a third of the buckets are shared."""
    rng = np.random.default_rng(5)
    found = np.mean([bucketed_profile(COUNTS, 10_000, rng).items for _ in range(60)], axis=0)
    assert found[[1, 2, 7, 15]] == pytest.approx([6000, 3000, 900, 100], rel=0.05, abs=40)
    assert np.abs(found[[3, 4, 5, 6]]).max() < 60
    for take in (min_wise_sample, bucketed_profile):
        assert take([0, 0], 10, rng).distinct == 0
        assert take([5], 10, rng).distinct > 0
