"""Algorithm 3 and the unfolding of clipped counts, against fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles_paper as oracle
from unnoise import _sampler
from unnoise._circulant import round_profile
from unnoise.errors import InputError
from unnoise.estimators.paper import unfold
from unnoise.noise import DiscreteLaplace
from unnoise.noisy import NoisyProfile

HALF = math.log(2)  # a = 1/2


# Algorithm 3

def unrounded(shape, weights):
    """A vector whose entries add up to 1 (bytes as multiples of 1/40), and a profile it may be an estimate of."""
    r = np.frombuffer(shape, dtype=np.int8) / 40
    r[shape[0] % r.size] += 1 - r.sum()
    f = np.frombuffer(weights[: r.size].ljust(r.size, b"\0"), dtype=np.uint8) // 16 + 0.0
    f[weights[0] % r.size] += 1
    return r, f / f.sum()


shapes = st.tuples(st.binary(min_size=1, max_size=12), st.binary(min_size=1, max_size=12))


@settings(max_examples=3000, deadline=None)
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
