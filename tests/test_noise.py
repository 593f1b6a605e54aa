"""The law of the noise against mpmath, and what may be given for ε."""

from __future__ import annotations

import time
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from oracles_noise import difference_log_pmf, difference_pmf
from unnoise import DiscreteLaplace, InputError, discrete_laplace
from unnoise.noise import _log_table

LAWS = [(e, r) for e in ("1/1000", "0.1", "1", "10") for r in ("1/10", "1/2", "1", "3/2", "2", "5")]


SUMS = [
    pytest.param(e, r, marks=pytest.mark.slow if e == "0.1" and "/" in r else ()) for e, r in LAWS if e != "1/1000"
]  # fmt: skip
"""The laws, those marked whose sums have very many terms."""


@pytest.mark.parametrize(("epsilon", "power"), SUMS)
def test_pmf_equals_the_sum_over_two_negative_binomials(epsilon: str, power: str) -> None:
    noise = DiscreteLaplace(epsilon, power)
    for z in (0, 1, -1, 2, 7, 40):
        exact = float(difference_pmf(noise.epsilon, noise.power, z))
        assert noise.pmf(z) == pytest.approx(exact, rel=1e-9), z


@pytest.mark.parametrize(
    ("epsilon", "power", "z"), [("10", "2", 8), ("10", "2", 60), ("1", "3", 900), ("0.1", "2", 700)]
)
def test_far_tails_keep_their_relative_precision(epsilon: str, power: str, z: int) -> None:
    noise = DiscreteLaplace(epsilon, power)
    exact = float(difference_log_pmf(noise.epsilon, int(noise.power), z))
    assert noise.log_pmf(z) == pytest.approx(exact, abs=1e-8)


@pytest.mark.parametrize("power", [2, 3, 7, 31])
def test_small_epsilon_needs_no_table(power: int) -> None:
    """Below 1/4096 the law is a sum of ``power`` terms; the table, by another recurrence, agrees."""
    noise = DiscreteLaplace("2.4e-4", power)
    z = np.arange(-noise.reach(1e-13), noise.reach(1e-13) + 1)
    pmf = noise.pmf(z)
    assert pmf.sum() == pytest.approx(1, abs=1e-12)
    assert pmf @ z.astype(float) ** 2 == pytest.approx(noise.variance, rel=1e-9)
    some = np.array([0, 1, 100, 5000, 100_000])
    assert noise.log_pmf(some) == pytest.approx(_log_table(noise.epsilon, noise.power, 17)[some], abs=1e-6)


@pytest.mark.parametrize(("epsilon", "power"), LAWS)
def test_pmf_sums_to_one_and_has_the_stated_variance(epsilon: str, power: str) -> None:
    noise = DiscreteLaplace(epsilon, power)
    z = np.arange(-(noise.reach(1e-13)), noise.reach(1e-13) + 1)
    p = noise.pmf(z)
    assert p.sum() == pytest.approx(1, abs=1e-9)
    assert (p * z.astype(float) ** 2).sum() == pytest.approx(noise.variance, rel=1e-6)


@pytest.mark.parametrize(("epsilon", "power"), LAWS)
def test_characteristic_function_is_the_transform_of_the_pmf(epsilon: str, power: str) -> None:
    noise = DiscreteLaplace(epsilon, power)
    z = np.arange(-(noise.reach(1e-13)), noise.reach(1e-13) + 1)
    for theta in (0.0, 0.01, 1.0, 3.0):
        assert noise.characteristic(theta) == pytest.approx((noise.pmf(z) * np.cos(theta * z)).sum(), abs=1e-9)


@pytest.mark.parametrize("power", ["1", "2", "7/2"])
def test_reach_bounds_the_tail(power: str) -> None:
    noise = DiscreteLaplace("0.3", power)
    for tail in (0.1, 1e-3, 1e-9):
        b = noise.reach(tail)
        beyond = 2 * noise.pmf(np.arange(b + 1, b + 400)).sum()
        assert beyond <= tail * (1 + 1e-9)
        if power == "1":
            assert 2 * noise.pmf(np.arange(b, b + 400)).sum() > tail or b == 0


def test_less_than_one_noise_gives_more_epsilon_than_it_says() -> None:
    for rho, real in ((0.9, 1.10), (0.5, 1.68), (0.1, 3.30)):
        noise = DiscreteLaplace(1, rho)
        z = np.arange(0, 60)
        steps = noise.log_pmf(z) - noise.log_pmf(z + 1)
        assert noise.actual_epsilon == pytest.approx(steps.max())
        assert noise.actual_epsilon == pytest.approx(real, abs=0.006)


@pytest.mark.parametrize("power", [1, 2, 3.5])
def test_one_noise_or_more_keeps_epsilon(power: float) -> None:
    noise = DiscreteLaplace(0.7, power)
    steps = noise.log_pmf(np.arange(0, 300)) - noise.log_pmf(np.arange(1, 301))
    assert (steps <= 0.7 + 1e-9).all()
    assert noise.actual_epsilon == pytest.approx(0.7)


@pytest.mark.parametrize(
    "given", [0.1, "0.1", "1/10", Fraction(1, 10), Decimal("0.1"), np.float64(0.1), np.float32(0.1)]
)
def test_epsilon_is_the_rational_it_prints_as(given: object) -> None:
    assert DiscreteLaplace(given).epsilon == Fraction(1, 10)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (0, "epsilon must be > 0, got 0"),
        (-1.0, "epsilon must be > 0, got -1.0"),
        (float("nan"), "epsilon must be a finite number"),
        (float("inf"), "epsilon must be a finite number"),
        ("one", "epsilon must be a finite number, got 'one'"),
        ("1/0", "epsilon must be a finite number"),
        (True, "epsilon must be a number, got True"),
        ([1], "epsilon must be a number"),
        (None, "epsilon is required: 1.0 is a common start; see unnoise plan"),
    ],
)
def test_what_is_no_epsilon_is_refused(given: object, message: str) -> None:
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        DiscreteLaplace(given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("epsilon", "power", "message"),
    [
        ("1e-19", 1, "epsilon must be between 1e-12 and 500 per occurrence, got 1e-19"),
        (10**4, 1, "epsilon must be between 1e-12 and 500"),
        ("1e400", 1, "epsilon must be between 1e-12 and 500"),
        ("1e-400", 1, "epsilon must be between 1e-12 and 500"),
        ("1e999999999", 1, "epsilon must be a finite number"),
        (Decimal("1e999999999"), 1, "epsilon must be a finite number"),
        ("9" * 10**6, 1, "epsilon must be a finite number"),
        (1, "1e6", "power must be at most 32,768"),
        ("1e-5", "3/2", "epsilon must be at least 1/4096 per occurrence for a power that is not whole"),
    ],
)
def test_what_noise_cannot_hold_is_refused(epsilon: object, power: object, message: str) -> None:
    """At once, in a few words: some of these wrapped around, ran for minutes or were errors of Python."""
    with pytest.raises(InputError, match=message) as caught:
        DiscreteLaplace(epsilon, power)  # type: ignore[arg-type]
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(("epsilon", "power"), [("1e-12", 1), ("1e-12", 5), (500, 1), ("1/4096", "3/2"), (500, "1/2")])
def test_what_noise_can_hold_is_drawn_quickly(epsilon: str, power: str) -> None:
    """The control: at the edges of what is accepted the noise has its scale, and no sample comes near 64 bits."""
    noise = DiscreteLaplace(epsilon, power)
    start = time.process_time()
    drawn = discrete_laplace(4000, epsilon, power=power)
    assert time.process_time() - start < 20
    assert np.abs(drawn).max() < 2**50
    deviation = np.sqrt(noise.variance)
    assert deviation * 0.8 - 0.1 <= drawn.std() <= deviation * 1.2 + 0.1


def test_noises_add_only_at_equal_epsilon() -> None:
    assert DiscreteLaplace(1).plus(DiscreteLaplace(1, 0.5)) == DiscreteLaplace(1, 1.5)
    with pytest.raises(InputError, match=r"epsilon must be equal .* got 1 and 2"):
        DiscreteLaplace(1).plus(DiscreteLaplace(2))


def test_shares_of_enough_survivors_reach_one_noise() -> None:
    share = DiscreteLaplace("1/3").shares(5, survivors=3)
    assert share.plus(share).plus(share) == DiscreteLaplace("1/3")
    with pytest.raises(InputError, match="survivors must be between 1 and parties=2, got 3"):
        DiscreteLaplace(1).shares(2, survivors=3)


@pytest.mark.parametrize("given", [np.int64(2), np.int8(2), np.uint8(2), Fraction(np.int64(4), 2)])
def test_integers_of_numpy_are_integers(given: object) -> None:
    """NumPy's integers count as rationals, but have no room for what is computed of ε."""
    noise = DiscreteLaplace(given)
    assert (type(noise.epsilon.numerator), noise) == (int, DiscreteLaplace(2))
    assert discrete_laplace(10, epsilon=given).size == 10
