"""Noisy counts, the tally and the noisy profile."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unnoise import DiscreteLaplace, IncompatibleError, InputError, NoisyCounts, NoisyProfile
from unnoise import noisy as noisy_module
from unnoise.layout import Layout
from unnoise.noisy import as_signed_integers, tally

INT64 = st.one_of(st.integers(-30, 30), st.integers(-(2**63), 2**63 - 1), st.integers(10**12, 10**12 + 5))


@given(st.lists(INT64, min_size=1, max_size=80), st.integers(1, 20), st.integers(1, 100))
def test_tally_equals_a_dictionary(counts: list[int], block: int, window: int) -> None:
    expected: dict[int, int] = {}
    for value in counts:
        expected[value] = expected.get(value, 0) + 1
    before = noisy_module.BLOCK, noisy_module.WINDOW
    noisy_module.BLOCK, noisy_module.WINDOW = block, window
    try:
        values, how_many = tally(np.array(counts, dtype=np.int64))
    finally:
        noisy_module.BLOCK, noisy_module.WINDOW = before
    assert dict(zip(values.tolist(), how_many.tolist())) == expected
    assert (values[1:] > values[:-1]).all()


def test_tally_of_extremes_does_not_overflow() -> None:
    counts = np.array([2**63 - 1, -(2**63), 0, 2**63 - 1], dtype=np.int64)
    values, how_many = tally(counts)
    assert values.tolist() == [-(2**63), 0, 2**63 - 1]
    assert how_many.tolist() == [1, 1, 2]


@given(st.lists(INT64, min_size=1, max_size=50), st.lists(INT64, min_size=1, max_size=50))
def test_merging_disjoint_cells_equals_tallying_them_together(left: list[int], right: list[int]) -> None:
    a, b, both = (NoisyProfile.from_counts(c, epsilon=1) for c in (left, right, left + right))
    merged = a + b
    assert (merged.values == both.values).all()
    assert (merged.tally == both.tally).all()
    assert merged.cells == both.cells == len(left) + len(right)


def test_profiles_of_different_noise_do_not_merge() -> None:
    with pytest.raises(IncompatibleError, match=r"noise must be equal to merge, got .*=1\) and .*=2\)"):
        NoisyProfile.from_counts([1], epsilon=1).merge(NoisyProfile.from_counts([1], epsilon=2))


def test_profiles_of_different_kind_do_not_merge() -> None:
    hashed = NoisyCounts(np.array([1]), DiscreteLaplace(1), Layout(kind="hashed", cells=1, hash_seed=0)).profile()
    with pytest.raises(IncompatibleError, match="kind must be equal to merge, got 'hashed' and 'known'"):
        hashed.merge(NoisyProfile.from_counts([1], epsilon=1))


@given(st.lists(st.integers(-20, 20), min_size=1, max_size=50), st.none() | st.integers(0, 25))
def test_folding_moves_everything_below_zero_to_zero_and_above_the_bound_to_it(
    counts: list[int], bound: int | None
) -> None:
    folded = NoisyProfile.from_counts(counts, epsilon=1).folded(bound)
    inside = [max(v, 0) if bound is None else min(max(v, 0), bound) for v in counts]
    expected = np.unique(inside, return_counts=True)
    assert folded[0].tolist() == expected[0].tolist()
    assert folded[1].tolist() == expected[1].tolist()


def test_levels_are_tallied_apart() -> None:
    layout = Layout(kind="hashed", cells=6, levels=3, hash_seed=0)
    profile = NoisyCounts(np.array([1, 1, 2, 2, 3, 4]), DiscreteLaplace(1), layout).profile()
    assert [p.values.tolist() for p in profile.parts] == [[1], [2], [3, 4]]
    assert profile.tally.tolist() == [2, 2, 1, 1]
    assert profile.parts[0].layout.levels == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "noisy counts must not be empty"),
        ([1.0, 2.0], "signed integers with discrete Laplace noise, got floats"),
        ([float("nan")], "got floats"),
        ([True, False], "must be integers, got booleans"),
        (np.array([True]), "must be integers, got dtype bool"),
        ([[1, 2]], "one-dimensional, got 2 dimensions"),
        (["a"], "must be integers, got dtype"),
        ([2**63], "must fit into 64 bits, got 9223372036854775808"),
        ([-(2**63) - 1], "must fit into 64 bits"),
        ([1, None], "must be integers"),
        (5, "one-dimensional, got 0 dimensions"),
    ],
)
def test_what_are_no_noisy_counts_is_refused(given: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        as_signed_integers(given)


def test_tally_pairs_in_any_order_with_duplicates() -> None:
    profile = NoisyProfile.from_tally([3, -1, 3], [1, 2, 5], noise=DiscreteLaplace(1))
    assert profile.values.tolist() == [-1, 3]
    assert profile.tally.tolist() == [2, 6]
    with pytest.raises(InputError, match="tally must be ≥ 0, got -1"):
        NoisyProfile.from_tally([1], [-1], noise=DiscreteLaplace(1))
    with pytest.raises(InputError, match="at least one cell"):
        NoisyProfile.from_tally([1], [0], noise=DiscreteLaplace(1))


def test_a_profile_must_account_for_every_cell() -> None:
    with pytest.raises(InputError, match="the tally must add up to cells=3, got 2"):
        NoisyProfile(np.array([1]), np.array([2]), DiscreteLaplace(1), Layout(kind="known", cells=3, domain=3))


def test_releases_add_up_cell_by_cell():
    layout = Layout(kind="known", cells=3, domain=3)
    one = NoisyCounts(np.array([1, -2, 5]), DiscreteLaplace(1), layout)
    two = NoisyCounts(np.array([4, 4, 4]), DiscreteLaplace(1, 2), layout)
    both = one + two
    assert both.counts.tolist() == [5, 2, 9]
    assert both.noise == DiscreteLaplace(1, 3)
    with pytest.raises(IncompatibleError, match="epsilon"):
        one + NoisyCounts(np.array([1, 1, 1]), DiscreteLaplace(2), layout)
    with pytest.raises(IncompatibleError, match="cells"):
        one + NoisyCounts(np.array([1]), DiscreteLaplace(1), Layout(kind="known", cells=1, domain=3))
