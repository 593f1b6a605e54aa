"""The checks of arguments: what passes comes back as Python's own type, what does not is named with its value."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from unnoise.checks import (
    LEVELS,
    UNKNOWN,
    check_choice,
    check_integer,
    check_level,
    check_number,
    check_share,
    is_integer,
)
from unnoise.errors import InputError


@pytest.mark.parametrize("value", [0, 7, -3, np.int64(5), np.uint8(2)])
def test_integers_of_python_and_numpy_are_integers(value: object) -> None:
    assert is_integer(value)
    assert type(check_integer("n", value)) is int


@pytest.mark.parametrize("value", [True, np.True_, 1.0, "1", None, Fraction(1)])
def test_nothing_else_is(value: object) -> None:
    assert not is_integer(value)
    with pytest.raises(InputError, match=r"^n must be an integer ≥ 1, got "):
        check_integer("n", value, 1)


def test_ends_are_part_of_the_range_and_named() -> None:
    assert [check_integer("n", k, 1, 3) for k in (1, 3)] == [1, 3]
    for outside in (0, 4):
        with pytest.raises(InputError, match=f"n must be an integer between 1 and 3, got {outside}"):
            check_integer("n", outside, 1, 3)


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, "0.5", True, None])
def test_a_number_is_finite_and_positive(value: object) -> None:
    assert check_number("target", np.float32(0.5)) == 0.5
    with pytest.raises(InputError, match="target must be a number > 0, got"):
        check_number("target", value)


@pytest.mark.parametrize("value", [0, 1, -0.1, math.nan, "0.5", True, None])
def test_a_share_lies_strictly_between_0_and_1(value: object) -> None:
    assert check_share("eta", Fraction(19, 20)) == 0.95
    with pytest.raises(InputError, match="eta must be above 0 and below 1, got"):
        check_share("eta", value)


@pytest.mark.parametrize("value", [0, 1, 1e-300, 1 - 2**-53, -0.1, math.nan, "0.5", True, None])
def test_a_level_leaves_room_at_both_ends(value: object) -> None:
    assert [check_level(level) for level in LEVELS] == list(LEVELS)
    with pytest.raises(InputError, match=r"level must be between 0\.01 and 0\.999999999, got"):
        check_level(value)


def test_choices_are_listed() -> None:
    check_choice("kind", "a", ("a", "b", "c"))
    with pytest.raises(InputError, match="kind must be one of a, b, c, got 'd'"):
        check_choice("kind", "d", ("a", "b", "c"))
    check_choice("unknown", "drop", UNKNOWN)
    with pytest.raises(InputError, match="unknown must be 'error' or 'drop', got 'skip'"):
        check_choice("unknown", "skip", UNKNOWN)
