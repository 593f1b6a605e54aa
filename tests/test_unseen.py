"""Functions of an unseen population: right on populations that are known, with intervals that cover."""

from __future__ import annotations

import math

import numpy as np
import pytest

import unnoise as un
from oracles_answers import holds_between
from unnoise.answers.unseen import _functionals, _missing
from unnoise.baselines.streaming import adaptive_sample, min_wise_sample
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


@pytest.mark.statistical
@pytest.mark.parametrize("take", [min_wise_sample, adaptive_sample])
def test_samples_err_like_their_size(take) -> None:
    """√(f(1−f)/k): the mean square of 200 errors within a factor 2 of it, and four times as large at a quarter."""
    counts = np.repeat([0, 1, 2, 7], [500, 6000, 3000, 1000])
    rng = np.random.default_rng(3)

    def mean_square(size: int) -> float:
        return float(np.mean([(take(counts, size, rng).fractions(3)[1] - 0.6) ** 2 for _ in range(200)]))

    expected = 0.6 * 0.4 / 800
    assert expected / 2 < mean_square(800) < expected * 2
    assert mean_square(200) > 2 * mean_square(800)
    found = take(counts, 800, rng)
    assert found.bytes == 16 * 800
    assert found.distinct == pytest.approx(10_000, rel=0.25)


def test_without_replacement_is_no_worse() -> None:
    counts = np.repeat([1, 2], [1500, 500])
    rng = np.random.default_rng(4)
    errors = [
        np.mean([(take(counts, 1500, rng).fractions(2)[1] - 0.75) ** 2 for _ in range(150)])
        for take in (adaptive_sample, min_wise_sample)
    ]
    assert errors[0] < errors[1] / 2
    assert adaptive_sample(counts, 5000, rng).distinct == 2000
    assert min_wise_sample([0, 0], 10, rng).counts.size == 0
