"""Exact sampling: thresholds to the last bit, the undecided path, the law, and that wrong noise is noticed.

Statistical tests pass a right sampler with probability 1 − 1e-9 each and reject noise whose scale is off by 5 %.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles_noise import floor_scaled, laplace_cdf, negative_binomial_cdf
from statistics_tools import chi_square
from unnoise import DiscreteLaplace, InputError, discrete_laplace
from unnoise._sampler import BASE, UNDECIDED, DrawTable, Keystream, fill, geometric, open_stream
from unnoise._thresholds import (
    Geometric,
    GeometricDigit,
    Laplace,
    NegativeBinomial,
    exp_bounds,
    floor_thresholds,
)
from unnoise.testing import noiseless, seeded

SAMPLES = 1_000_000


class Bits(Keystream):
    """A stream whose bits the test chooses: first the 16-bit heads, then 64-bit words, then the rest."""

    def __init__(self, head: int, word: int, more: list[int]) -> None:
        super().__init__(bytes(32))
        self.head, self.word, self.more = head, word, list(more)
        self.drawn = 0

    def words(self, size: int, bits: int = 64) -> np.ndarray:
        chosen = {16: self.head, 64: self.word << 16}[bits]
        return np.full(size, chosen, dtype=f"<u{bits // 8}")

    def bits(self, how_many: int) -> int:
        self.drawn += 1
        return self.more.pop(0)


@pytest.mark.parametrize("epsilon", ["1", "0.1", "10", "1/3", "0.01"])
def test_every_laplace_threshold_is_right_to_the_last_bit(epsilon: str) -> None:
    law = Laplace(Fraction(epsilon))
    first, exact = floor_thresholds(law)
    for j, threshold in enumerate(exact):
        assert threshold == floor_scaled(laplace_cdf(law.epsilon, first + j, 64), 64), first + j


@pytest.mark.parametrize(("epsilon", "power"), [("1", "1/3"), ("0.1", "1/2"), ("2", "9/10"), ("1/2", "1/100")])
def test_every_negative_binomial_threshold_is_right_to_the_last_bit(epsilon: str, power: str) -> None:
    law = NegativeBinomial(Fraction(epsilon), Fraction(power))
    first, exact = floor_thresholds(law)
    assert first == 0
    for k, threshold in enumerate(exact):
        assert threshold == floor_scaled(negative_binomial_cdf(law.epsilon, law.power, k, 64), 64), k


def test_the_long_table_of_a_small_epsilon_at_a_sample_of_places() -> None:
    law = Laplace(Fraction(1, 1000))
    first, exact = floor_thresholds(law)
    for j in range(0, len(exact), 997):
        assert exact[j] == floor_scaled(laplace_cdf(law.epsilon, first + j, 64), 64)


def test_the_digits_of_a_geometric_against_its_definition() -> None:
    import mpmath as mp

    law = GeometricDigit(Fraction(1, 100_000), 64)
    first, exact = floor_thresholds(law)
    assert (first, len(exact)) == (0, 63)
    with mp.workprec(400):
        a = mp.exp(mp.mpf(-1) / 100_000)
        whole = mp.fsum((1 - a) * a**j for j in range(64))
        for k, threshold in enumerate(exact):
            assert threshold == floor_scaled(mp.fsum((1 - a) * a**j for j in range(k + 1)) / whole, 64)


@given(
    numerator=st.integers(1, 10**6), denominator=st.integers(1, 10**6), k=st.integers(-50, 50), bits=st.integers(1, 300)
)
@settings(max_examples=200, deadline=None)
def test_brackets_hold_at_any_precision(numerator: int, denominator: int, k: int, bits: int) -> None:
    epsilon = Fraction(numerator, denominator)
    low, high = Laplace(epsilon).bounds(k, bits)
    true = floor_scaled(laplace_cdf(epsilon, k, bits + 50), bits)
    assert low <= true + 1
    assert high >= true
    assert high - low <= 6
    low, high = exp_bounds(epsilon, bits)
    assert high - low <= 2


def threshold_bits(law: Laplace, k: int, bits: int) -> int:
    return floor_scaled(laplace_cdf(law.epsilon, k, bits), bits)


@pytest.mark.parametrize("k", [-3, -1, 0, 2])
@pytest.mark.parametrize("side", [-1, +1])
def test_ties_at_64_bits_are_decided_by_further_bits_only(k: int, side: int) -> None:
    """U shares 64, 128 or 192 bits with a threshold; the bits after that put it on one side."""
    table = DrawTable(Laplace(Fraction(1)))
    for words in (1, 2, 3):
        exact = threshold_bits(table.law, k, 64 * (words + 1))  # type: ignore[arg-type]
        chosen = exact + side
        parts = [chosen >> 64 * (words - i) & (2**64 - 1) for i in range(words + 1)]
        assert parts[:-1] == [exact >> 64 * (words - i) & (2**64 - 1) for i in range(words)]
        stream = Bits(head=parts[0] >> 48, word=parts[0] & (2**48 - 1), more=parts[1:] + [0] * 4)
        out = np.empty(1, dtype=np.int64)
        table.sample(out, stream)
        assert stream.drawn >= words
        assert out[0] == (k + 1 if side > 0 else k)


@pytest.mark.parametrize("epsilon", ["1", "0.05", "20"])
def test_beyond_the_table_the_search_goes_on(epsilon: str) -> None:
    table = DrawTable(Laplace(Fraction(epsilon)))
    last = table.first + table.thresholds.size
    for k in (table.first - 5, table.first - 1, last + 1, last + 7):
        bits = 64 + 64 * 40
        middle = (threshold_bits(table.law, k - 1, bits) + threshold_bits(table.law, k, bits)) // 2  # type: ignore[arg-type]
        outcome = table.resolve(middle, bits, table.first if k < 0 else last, Bits(0, 0, []))
        assert outcome == k


def test_the_guide_table_agrees_with_the_thresholds_everywhere() -> None:
    table = DrawTable(Laplace(Fraction(1, 2)))
    for head in (0, 1, 2**15, 2**16 - 1):
        assert table.guide[0] == UNDECIDED  # the lower tail is open
        low, high = (head << 48), (head << 48) + 2**48 - 1
        passed = [int((table.thresholds <= edge).sum()) for edge in (low, high)]
        if table.guide[head] != UNDECIDED:
            assert table.guide[head] - table.first == passed[0] == passed[1]
    decided = table.guide[table.guide != UNDECIDED]
    assert (np.diff(decided) >= 0).all()
    assert decided.size > 65_000


def law(epsilon: str, power: str = "1") -> dict[int, float]:
    noise = DiscreteLaplace(epsilon, power)
    reach = noise.reach(1e-9)
    z = np.arange(-reach, reach + 1)
    return dict(zip(z.tolist(), noise.pmf(z).tolist()))


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("epsilon", "power"),
    [("1", "1"), ("0.1", "1"), ("10", "1"), ("1", "1/2"), ("1", "1/10"), ("0.5", "2"), ("0.5", "5/2"), ("0.02", "1")],
)
def test_samples_follow_the_law_and_noise_five_percent_off_is_noticed(epsilon: str, power: str) -> None:
    with seeded(20240715):
        samples = discrete_laplace(8 * SAMPLES if epsilon == "10" else SAMPLES, epsilon, power=power)
    statistic, threshold = chi_square(samples, law(epsilon, power))
    print(f"epsilon={epsilon} power={power}: chi-square {statistic:.1f} < {threshold:.1f}")
    assert statistic < threshold
    for wrong in (Fraction(95, 100), Fraction(105, 100)):
        statistic, threshold = chi_square(samples, law(str(Fraction(epsilon) * wrong), power))
        assert statistic > threshold, f"noise of {float(wrong)}·ε passed"


@pytest.mark.statistical
@pytest.mark.parametrize("epsilon", ["1/2000", "1/5000", "1/1000000"])
def test_digits_give_the_same_law_for_tiny_epsilon(epsilon: str) -> None:
    """Compare classes of width 1/(4ε); mean and variance follow from them."""
    width = int(1 / Fraction(epsilon) / 4)
    with seeded(3):
        samples = discrete_laplace(SAMPLES, epsilon)

    def classes(eps: Fraction) -> dict[int, float]:
        a = np.exp(-float(eps))
        edges = np.arange(-40, 41) * width
        upper = 1 - a ** np.maximum(edges, 0) / (1 + a)
        below = np.where(edges <= 0, a ** (1.0 - np.minimum(edges, 0)) / (1 + a), upper)
        return dict(zip(range(-40, 40), np.diff(below).tolist()))

    statistic, threshold = chi_square(samples // width, classes(Fraction(epsilon)))
    assert statistic < threshold
    for wrong in (Fraction(95, 100), Fraction(105, 100)):
        statistic, threshold = chi_square(samples // width, classes(Fraction(epsilon) * wrong))
        assert statistic > threshold


@pytest.mark.statistical
@pytest.mark.parametrize("epsilon", ["1", "1/4", "1/30000"])
def test_geometric_follows_its_law(epsilon: str) -> None:
    samples = geometric(SAMPLES, epsilon, Keystream(bytes(31) + b"\1"))
    width = max(1, int(1 / Fraction(epsilon) / 4))

    def classes(eps: float) -> dict[int, float]:
        return {k: float(np.exp(-eps * width * k) * -np.expm1(-eps * width)) for k in range(200)}

    statistic, threshold = chi_square(samples // width, classes(float(Fraction(epsilon))))
    assert statistic < threshold
    statistic, threshold = chi_square(samples // width, classes(float(Fraction(epsilon)) * 1.05))
    assert statistic > threshold
    assert samples.min() >= 0


@pytest.mark.statistical
def test_neighbouring_samples_are_independent() -> None:
    """Correlation of signs between neighbours, blocks included: |r| < 6.2/√n has false-alarm rate below 1e-9."""
    x = np.sign(discrete_laplace(3_000_000, 1)).astype(float)
    for lag in (1, 2, 1 << 16):
        r = float((x[:-lag] * x[lag:]).mean() / x.var())
        assert abs(r) < 6.2 / np.sqrt(x.size - lag)


def test_streams_of_one_key_differ_and_repeat() -> None:
    key = bytes(range(32))
    noise = DiscreteLaplace(1, 1.5)
    blocks = [np.empty(200_000, dtype=np.int64) for _ in range(3)]
    for block, stream in zip(blocks, (0, 0, 1)):
        fill(block, noise, Keystream(key, stream))
    assert (blocks[0] == blocks[1]).all()
    assert (blocks[0] != blocks[2]).any()


def test_fresh_streams_never_repeat() -> None:
    assert not (open_stream().words(1000) == open_stream().words(1000)).any()
    assert open_stream().label is None


def test_test_noise_is_labelled_and_ends_with_its_context() -> None:
    with seeded(1):
        assert open_stream().label == "seeded for tests"
        assert not (open_stream().words(100) == open_stream().words(100)).all()
    with noiseless():
        assert open_stream().label == "noise off for tests"
        assert not discrete_laplace(1000, 1).any()
    assert open_stream().label is None


@pytest.mark.parametrize("size", [-1, 1.5, "3", True, None])
def test_size_must_be_a_count(size: object) -> None:
    with pytest.raises(InputError, match="size must be an integer ≥ 0"):
        discrete_laplace(size, 1)  # type: ignore[arg-type]


def test_sizes_around_the_block() -> None:
    for size in (0, 1, (1 << 16) - 1, 1 << 16, (1 << 16) + 1):
        assert discrete_laplace(size, 1).shape == (size,)


def test_keys_and_streams_are_checked() -> None:
    with pytest.raises(InputError, match="key must be 32 bytes long, got 3"):
        Keystream(b"abc")
    with pytest.raises(InputError, match="stream must be between"):
        Keystream(bytes(32), -1)


def test_a_fractional_power_with_tiny_epsilon_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unnoise._thresholds.LONGEST", 1000)
    with pytest.raises(InputError, match="epsilon must be ≥ about 1e-5 for a fractional power"):
        discrete_laplace(1, "1/1000", power="1/2")


def test_base_is_a_power_of_two_and_geometric_closed_form_holds() -> None:
    assert BASE & (BASE - 1) == 0
    low, high = Geometric(Fraction(1)).bounds(3, 100)
    assert low <= (1 - np.exp(-4.0)) * 2**100 * (1 + 1e-12)
    assert high >= (1 - np.exp(-4.0)) * 2**100 * (1 - 1e-12)


def thresholds_in_threads(law: NegativeBinomial) -> bool:
    """Tell whether eight threads that extend one table of running sums at once find what one finds alone."""
    alone = [NegativeBinomial(law.epsilon, law.power).bounds(k, 64) for k in range(400)]
    found: list[list[tuple[int, int]]] = []
    start = threading.Barrier(8)

    def extend() -> None:
        start.wait()
        found.append([law.bounds(k, 64) for k in range(0, 400, 40)] + [law.bounds(k, 64) for k in range(400)])

    threads = [threading.Thread(target=extend) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = [alone[k] for k in range(0, 400, 40)] + alone
    return len(found) == 8 and all(one == expected for one in found)


def test_one_table_serves_many_threads() -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        assert all(thresholds_in_threads(NegativeBinomial(Fraction(1, 50), Fraction(1, 3))) for _ in range(10))
        unguarded = [NegativeBinomial(Fraction(1, 50), Fraction(1, 3)) for _ in range(20)]
        for law in unguarded:
            law._lock = contextlib.nullcontext()  # type: ignore[assignment]
        assert not all(thresholds_in_threads(law) for law in unguarded), "the control: without its lock it goes wrong"
    finally:
        sys.setswitchinterval(interval)
