"""Who is who, and what each person keeps."""

from __future__ import annotations

from itertools import combinations
from math import comb
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statistics_tools import chi_square
from unnoise import testing
from unnoise._sampler import open_stream
from unnoise.api import direct
from unnoise.errors import InputError
from unnoise.sketches.hashing import MASK, PRIMES, string_keys
from unnoise.sketches.persons import MOST, PersonCodes, _by_person, limit_contributions
from unnoise.sketches.sketch import Sketch


def one_round(state: int, word: int) -> int:
    """XXH64's step, from its specification."""
    mixed = (state + word * PRIMES[1]) & MASK
    return (mixed << 31 | mixed >> 33) * PRIMES[0] & MASK


def colliding_ids() -> tuple[str, str]:
    """Two texts of one unkeyed XXH64: the second word of a lane undoes what the first changed (some 10³ tries)."""
    rng, inverse = np.random.default_rng(1), pow(PRIMES[1], -1, 1 << 64)
    first, second = b"personal", b"identity"
    start = (PRIMES[0] + PRIMES[1]) & MASK  # seed 0
    reached = one_round(start, int.from_bytes(first, "little"))
    while True:
        other = bytes(rng.integers(97, 123, 8).tolist())
        gap = (reached - one_round(start, int.from_bytes(other, "little"))) * inverse
        undo = ((int.from_bytes(second, "little") + gap) & MASK).to_bytes(8, "little")
        if all(32 <= byte < 127 for byte in undo):
            rest = b"-" * 24
            return (first + rest + second + rest).decode(), (other + rest + undo + rest).decode()


def test_ids_that_collide_in_the_hash_are_two_persons() -> None:
    one, two = colliding_ids()
    assert one != two
    keys = string_keys(pl.Series([one, two]))
    assert keys[0] == keys[1]  # negative control: the hash of items takes them for one person
    left, _ = limit_contributions(np.array([0, 1]), None, keys, 1, open_stream())
    assert left.size == 1
    with testing.noiseless():
        sketch = Sketch.known(2, epsilon=1, max_contributions=1)
    sketch.update([0, 1], person=[one, two])
    assert sketch._held.array().tolist() == [1, 1]


PERSONS: list[list[Any]] = [
    ["", "a", "aa", "a" * 15, "a" * 16, "a" * 17, "a" * 16 + "b", "ä", "b" * 1000, "b" * 1001, "\0", "\0\0"],
    [0, 1, -1, 2**62, -(2**63), 97],
    [("a", "bc"), ("ab", "c"), ("", "abc"), ("abc", ""), ("a", "b")],
    [("a", 1), ("a", 2), ("b", 1), ("", 97)],
]


def columns_of(people: list[Any]) -> list[Any]:
    rows = [person if isinstance(person, tuple) else (person,) for person in people]
    return [
        np.array(column, dtype=np.int64) if isinstance(column[0], int) else pl.Series(column) for column in zip(*rows)
    ]


@pytest.mark.parametrize("people", PERSONS)
def test_codes_tell_persons_apart_and_no_others(people: list[Any]) -> None:
    codes = PersonCodes().of(columns_of([*people, *people]))
    assert codes.shape == (2 * len(people), 2)
    assert (codes[: len(people)] == codes[len(people) :]).all()
    assert len(np.unique(codes, axis=0)) == len(people)


def test_codes_are_of_the_call() -> None:
    words = [np.arange(5)]
    assert (PersonCodes().of(words) != PersonCodes().of(words)).any()
    assert (PersonCodes(bytes(32)).of(words) == PersonCodes(bytes(32)).of(words)).all()


@settings(deadline=None)
@given(st.lists(st.text(max_size=40), min_size=1, max_size=30), st.integers(0, 5))
def test_codes_do_not_depend_on_how_texts_are_stored(texts: list[str], skip: int) -> None:
    codes = PersonCodes(bytes(32))
    plain = codes.of([pl.Series(texts)])
    sliced = codes.of([pa.array(["x"] * skip + texts).slice(skip)])
    assert (plain == sliced).all()


def test_equal_first_words_are_told_apart_by_the_second() -> None:
    codes = np.array([[7, 2], [7, 1], [7, 2], [3, 9]], dtype=np.uint64)
    order, first = _by_person(codes)
    assert [codes[i].tolist() for i in order] == [[3, 9], [7, 1], [7, 2], [7, 2]]
    assert first.tolist() == [0, 1, 2]


def test_huge_counts_are_limited_without_being_told_apart() -> None:
    """They used to be refused where they added up to more than 2^28: a refusal that tells of one row."""
    given, who = np.array([2**53, -(2**53), 1, 5]), np.array([1, 1, 1, 2], dtype=np.uint64)
    cells, counts = limit_contributions(np.arange(4), given, who, 5, open_stream())
    assert counts is not None
    mine = cells != 3
    assert np.abs(counts[mine]).sum() == 5
    assert counts[~mine].tolist() == [5]
    assert (np.sign(counts[mine]) == np.where(cells[mine] == 1, -1, 1)).all()


def test_the_largest_removal_is_limited_as_well() -> None:
    """|−2⁶³| does not exist in 64 bits: it must not pass for less than the limit."""
    given, who = np.array([-(2**63), 2**63 - 1]), np.array([1, 2], dtype=np.uint64)
    _, counts = limit_contributions(np.arange(2), given, who, 3, open_stream())
    assert counts is not None
    assert sorted(counts.tolist()) == [-1] * 3 + [1] * 3
    table = {"i": ["x"] * 9 + ["x"], "who": [*map(str, range(9)), "9"], "n": [1] * 9 + [-(2**63)]}
    with testing.noiseless():
        found = testing.direct(table, epsilon=1, counts="n", person="who", max_contributions=3)
    assert found.curve.numbers[:8].tolist() == [1] * 6 + [0, 0], "nine occurrences but for the three of one person"


def test_limits_that_would_need_memory_for_one_row_are_refused_whatever_the_rows() -> None:
    for rows in ([], [1], [1] * 10):
        sketch = Sketch.known(5, epsilon=1, max_contributions=MOST + 1)
        with pytest.raises(InputError, match="must be an integer between 1 and 1048576, got 1048577"):
            sketch.update(rows, person=rows)
        with pytest.raises(InputError, match="max_contributions must be an integer between"):
            direct({"i": rows, "who": rows}, epsilon=1, person="who", max_contributions=MOST + 1)


@pytest.mark.statistical
def test_the_choice_is_uniform_over_occurrences() -> None:
    """Two of 1 + 2 + 5 occurrences: every pair equally likely. False-alarm rate 1e-9."""
    persons, weights = 30_000, np.array([1, 2, 5])
    cells = np.tile(np.arange(3), persons)
    who = np.repeat(np.arange(persons, dtype=np.uint64), 3)
    left, counts = limit_contributions(cells, np.tile(weights, persons), who, 2, open_stream())
    assert counts is not None
    assert left.size == 2 * persons
    pairs = np.sort(left.reshape(persons, 2), axis=1)  # the persons stand together
    found = 3 * pairs[:, 0] + pairs[:, 1]
    law = {3 * i + i: comb(int(weights[i]), 2) / 28 for i in range(3)}
    law |= {3 * i + j: int(weights[i] * weights[j]) / 28 for i, j in combinations(range(3), 2)}
    law = {pair: share for pair, share in law.items() if share}
    statistic, limit = chi_square(found, law)
    assert statistic < limit
    wrong = dict.fromkeys(law, 1 / len(law))  # negative control: uniform over rows
    assert chi_square(found, wrong)[0] > limit


def test_what_a_person_keeps_does_not_depend_on_others() -> None:
    """With the same random words, rows of other persons behind change nothing, whatever their counts."""
    cells, counts = np.arange(50), np.full(50, 3)
    who = np.repeat(np.arange(5, dtype=np.uint64), 10)
    kept = []
    for others in (0, 40):
        with testing.seeded(5):
            stream = open_stream()
        more = np.arange(others)
        left, _ = limit_contributions(
            np.concatenate([cells, 1000 + more]), np.concatenate([counts, np.full(others, 2**40)]),
            np.concatenate([who, np.full(others, 99, dtype=np.uint64)]), 4, stream,
        )  # fmt: skip
        kept.append(sorted(left[left < 1000].tolist()))
    assert kept[0] == kept[1]


def test_a_random_seed_is_drawn_and_shown(tmp_path: Any) -> None:
    one, two = (Sketch.hashed(64, epsilon=1, hash_seed="random") for _ in range(2))
    assert one.layout.hash_seed != two.layout.hash_seed
    one.save(tmp_path / "a")
    assert Sketch.load(tmp_path / "a").layout.hash_seed == one.layout.hash_seed
    assert Sketch.sampled(1000, rate="1/2", epsilon=1, hash_seed="random").layout.hash_seed not in (None, 0)
    assert Sketch.hashed(64, epsilon=1).layout.hash_seed == 0


def test_the_guarantee_of_a_sample_says_what_a_public_seed_means() -> None:
    words = Sketch.sampled(1000, rate="1/4", epsilon=1).guarantee
    assert "each of those counts 4 times in the answers" in words
    assert "in the sample" not in Sketch.sampled(1000, rate=1, epsilon=1).guarantee
