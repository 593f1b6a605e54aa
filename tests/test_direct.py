"""The direct model: counting, the grid, the noise, what one unit can change, and the answers."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from functools import cache, partial
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import unnoise as un
from oracles_answers import holds_between
from oracles_direct import boxes_by_hand, items_by_block, likeliest_descents, profile_of
from statistics_tools import chi_square
from unnoise import holding, testing
from unnoise.answers.direct import DirectProfile, direct_profile
from unnoise.answers.questions import Asked, Sheet, span
from unnoise.answers.render import first_sentence
from unnoise.answers.report import parameters, report_page
from unnoise.checks import LEVELS
from unnoise.curve import TOP, NoisyCurve, blocks, exact_numbers, limited_blocks, rank_blocks
from unnoise.errors import FormatError, InputError, PrivacyError
from unnoise.estimators import _descent
from unnoise.estimators.falling import CHAINED, corner, falling, largest_count, last_corner, upper_quantile
from unnoise.guard import letting_out
from unnoise.holding import Exactly, Unit, count_exactly, release, rows_of
from unnoise.ledger import FILE, read_ledger
from unnoise.noise import DiscreteLaplace

ALARM = 1e-9
COUNTS = st.one_of(st.integers(1, 40), st.integers(1, 5000), st.integers(1, TOP))
PROFILES = st.dictionaries(COUNTS, st.integers(1, 10**6), max_size=12)


def exactly(profile: dict[int, int]) -> Exactly:
    counts = np.array(sorted(profile), dtype=np.int64)
    return Exactly(counts, np.array([profile[int(h)] for h in counts], dtype=np.int64))


def boxes(profile: Exactly, first: np.ndarray, last: np.ndarray, released: str, top: int = TOP) -> list[int]:
    """All numbers before their noise: columns, then rows."""
    columns, rows = exact_numbers(profile.counts, profile.items, first, last, released, top)
    return [*columns, *rows]


def counted(items: object, **options: object) -> dict[int, int]:
    tables, unit = rows_of(items, **options)
    found = count_exactly(tables, unit)[""]
    return dict(zip(found.counts.tolist(), found.items.tolist()))


# ---------------------------------------------------------------- the grid and the sums


@pytest.mark.parametrize("released", ["at_least", "exactly"])
def test_the_grid_depends_on_no_data_and_covers_every_count(released: str) -> None:
    first, last = blocks(released)
    assert first[0] == 1
    assert last[-1] == (TOP if released == "exactly" else 2**40)
    assert (first[1:] == last[:-1] + 1).all()
    wide = last > first
    assert (np.diff(wide.astype(int)) >= 0).all()
    share = 128 if released == "at_least" else 4
    assert ((last - first + 1)[wide] * share <= first[wide]).all()


@given(PROFILES, st.sampled_from(["at_least", "exactly"]), st.sampled_from([None, 3, 40, 1500, 5000]))
@settings(max_examples=150, deadline=None)
def test_boxes_are_those_of_their_definition(profile: dict, released: str, most: int | None) -> None:
    first, last = limited_blocks(released, most)
    mine, grid = boxes(exactly(profile), first, last, released, most or TOP), (first.tolist(), last.tolist())
    by_hand = items_by_block(profile, *grid) if released == "exactly" else boxes_by_hand(profile, *grid, most or TOP)
    assert mine == by_hand


def test_every_box_belongs_to_one_number() -> None:
    """A diagram of 40 × 400 boxes holds as many, whatever regions they fall into; rows follow columns without a gap."""
    first, last = blocks()
    assert sum(boxes(exactly({400: 40}), first, last, "at_least")) == 40 * 400
    begin, end, start = rank_blocks(first, last)
    assert (begin[1:] == end[:-1] + 1).all()
    assert (np.diff(start) > 0).all()
    assert int(end[-1]) == 2**37


def moved(profile: dict[int, int], h: int) -> dict[int, int]:
    """One occurrence more: an item with count h gets count h + 1 (h = 0: a new item)."""
    after = dict(profile)
    if h:
        after[h] -= 1
    after[h + 1] = after.get(h + 1, 0) + 1
    return {count: n for count, n in after.items() if n}


def distance(one: list[int], two: list[int]) -> int:
    return sum(abs(a - b) for a, b in zip(one, two))


@given(PROFILES, st.data())
@settings(max_examples=150, deadline=None)
def test_one_occurrence_changes_one_number_by_one(profile: dict, data: st.DataObject) -> None:
    h = data.draw(st.sampled_from([0, *[h for h in profile if h < TOP]]))
    after = moved(profile, h)
    first, last = blocks()
    before_sums = boxes(exactly(profile), first, last, "at_least")
    assert distance(before_sums, boxes(exactly(after), first, last, "at_least")) <= 1
    # one item more, whatever its count: "exactly" has sensitivity 1, "at_least" would have its count
    more = {**profile, 9: profile.get(9, 0) + 1}
    fine = blocks("exactly")
    before_numbers = boxes(exactly(profile), *fine, "exactly")
    assert distance(before_numbers, boxes(exactly(more), *fine, "exactly")) == 1
    assert distance(before_sums, boxes(exactly(more), first, last, "at_least")) == 9
    # the negative control: noise of sensitivity 1 on f would not protect an occurrence
    if h:
        assert distance(before_numbers, boxes(exactly(after), *fine, "exactly")) in (0, 2)


# ---------------------------------------------------------------- counting

ROWS = st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["a", "b", "ü"])), max_size=40)


@given(ROWS, st.booleans())
@settings(max_examples=60, deadline=None)
def test_counting_is_exact(rows: list, with_times: bool) -> None:
    times = [7 * (i % 5) - 3 for i in range(len(rows))] if with_times else None
    assert counted(rows, counts=times) == profile_of(rows, times)
    assert counted([x for x, _ in rows], counts=times) == profile_of([x for x, _ in rows], times)
    assert counted([x for _, x in rows], counts=times) == profile_of([x for _, x in rows], times)


def test_counting_in_pieces_is_counting_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    items = rng.zipf(1.7, 3000)
    whole = pl.DataFrame({"0": items})
    pieces = [whole[i : i + 250] for i in range(0, 3000, 250)]
    monkeypatch.setattr(holding, "GATHERED", 700)
    found = count_exactly(pieces, Unit())[""]
    assert dict(zip(found.counts.tolist(), found.items.tolist())) == profile_of(items.tolist())


def test_every_form_of_items_is_counted_alike() -> None:
    import pyarrow as pa

    letters = ["x", "y", "x", None, "z", "x"]
    wanted = {1: 2, 3: 1}
    columns = (letters, pl.Series(letters), pa.chunked_array([letters]), iter(letters), (c for c in letters))
    for items in (*columns, {"c": letters}, pl.DataFrame({"c": letters}), pa.table({"c": letters}).to_reader()):
        assert counted(items) == wanted
    assert counted({"c": letters, "n": [2, 2, 2, 2, -9, None]}, counts="n") == {4: 1, 2: 1}
    with pytest.raises(InputError, match="person must name a column"):
        counted({"c": letters}, person="d")
    with pytest.raises(InputError, match="at least one column"):
        counted({"n": [1]}, counts="n")


def test_sums_past_64_bits_are_clamped_not_refused() -> None:
    assert counted([1, 1, 1, 2, 2], counts=[2**62, 2**62, 2**62, -(2**62), -(2**62)]) == {TOP: 1}
    with testing.noiseless():
        profile = testing.direct([1, 2, 3], counts=[2**62] * 3, epsilon=1)
    assert float(profile.distinct) == pytest.approx(3)
    assert float(profile.total) == pytest.approx(3 * 2.0**62)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=60), st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_a_person_moves_the_curve_by_no_more_than_the_limit(rows: list, most: int) -> None:
    """Leaving person 0 out changes S by at most C in all; without a limit it changes by more (the control)."""
    table = {"user": [u for u, _ in rows], "item": [i for _, i in rows]}
    rest = {"user": [u for u, _ in rows if u], "item": [i for u, i in rows if u]}
    first, last = blocks()
    with testing.noiseless():  # the same random choice for the others: everything by one stream of zeros

        def sums(given: dict, **options: object) -> list[int]:
            tables, unit = rows_of(given, person="user", most=most)
            return boxes(count_exactly(tables, unit)[""], first, last, "at_least")

        one = {"user": [0] * sum(u == 0 for u, _ in rows), "item": [i for u, i in rows if u == 0]}
        assert sum(sums(one)) <= most
        assert sum(sums(one)) == min(most, len(one["item"]))
        kept = sum(sums(table))
        assert kept == sum(min(most, sum(u == who for u, _ in rows)) for who in range(4))
        assert sum(sums(table)) - sum(sums(rest)) == min(most, len(one["item"]))
    if len(one["item"]) > most:
        unlimited = profile_of(one["item"])
        assert sum(h * n for h, n in unlimited.items()) > most


def test_groups_share_the_limit_of_a_person() -> None:
    table = {"user": [1] * 30, "item": list(range(30)), "day": ["a"] * 15 + ["b"] * 15}
    with testing.seeded(1):
        found = testing.direct(table, epsilon=2, person="user", max_contributions=5, by="day", groups=["a", "b", "c"])
    assert list(found) == ["a", "b", "c"]
    tables, unit = rows_of(table, person="user", group="day", most=5)
    exact = count_exactly(tables, unit, ["a", "b", "c"])
    assert sum(int(p.items.sum()) for p in exact.values()) == 5
    assert exact["c"].counts.size == 0
    assert all(p.curve.noise.epsilon == Fraction(2, 5) and p.curve.epsilon == 2 for p in found.values())


@pytest.mark.parametrize("most", [None, 1])
def test_rows_of_other_groups_are_refused_where_somebody_asks(most: int | None) -> None:
    table = {"user": [1, 2, 3], "item": [1, 1, 1], "day": ["a", "b", None]}  # a row without a group belongs to none
    persons = {"person": most and "user", "max_contributions": most}
    ask = partial(un.direct, table, epsilon=2, by="day", unknown="error", **persons)
    assert list(ask(groups=["a", "b"])) == ["a", "b"]
    with pytest.raises(InputError, match=r"groups must be declared \(a, c\), got a row of another one"):
        ask(groups=["a", "c"])
    with pytest.raises(InputError, match="unknown must be"):
        un.direct([1], epsilon=1, unknown="no")  # type: ignore[call-overload]


@pytest.mark.parametrize(("most", "changes"), [(None, 3), (2, 2), (10, 3)])
def test_a_person_who_is_the_item_may_be_in_every_group(most: int | None, changes: int) -> None:
    table = {"user": [1, 1, 1, 2], "day": ["a", "b", "c", "a"]}
    with testing.seeded(1):
        found = testing.direct(
            table, epsilon=3, person="user", max_contributions=most, by="day", groups=["a", "b", "c"]
        )
    assert {p.curve.noise.epsilon for p in found.values()} == {Fraction(3, changes)}
    assert found["a"].curve.released == "exactly"


# ---------------------------------------------------------------- the noise


def noises(epsilon: float, runs: int, *, believed: float | None = None) -> tuple[float, float]:
    empty = [release({"": exactly({})}, Unit(), epsilon)[""] for _ in range(runs)]
    found = [np.append(curve.numbers, curve.ranks) for curve in empty]
    law = DiscreteLaplace(believed or epsilon)
    return chi_square(np.concatenate(found), {z: float(law.pmf(z)) for z in range(-60, 61)})


@pytest.mark.statistical
@pytest.mark.parametrize("epsilon", [0.2, 1])
def test_every_number_carries_the_stated_noise(epsilon: float) -> None:
    """Flake 1e-9; noise 5 % off is rejected by the same test."""
    statistic, threshold = noises(epsilon, 60)
    print(f"chi-square {statistic:.1f}, threshold {threshold:.1f}")
    assert statistic < threshold
    for wrong in (0.95, 1.05):
        statistic, threshold = noises(epsilon * wrong, 60, believed=epsilon)
        assert statistic > threshold


@pytest.mark.statistical
def test_groups_and_all_groups_divide_epsilon() -> None:
    """Both parts carry noise of their share alone (chi-square at 1e-9); one that took the whole ε is rejected."""
    parts = {"all groups": Fraction(1, 4), "a": Fraction(3, 4)}
    found: dict[str, list[np.ndarray]] = {name: [] for name in parts}
    for seed in range(30):
        with testing.seeded(seed):
            empty = {name: exactly({}) for name in parts}
            curves = letting_out(release, empty, Unit(), 1, whole=Fraction(1, 4))
        for name, curve in curves.items():
            found[name].append(np.append(curve.numbers, curve.ranks))
            assert (curve.noise.epsilon, curve.epsilon) == (parts[name], 1)
    for name, share in parts.items():
        for law, fits in ((DiscreteLaplace(share), True), (DiscreteLaplace(1), False)):
            statistic, threshold = chi_square(
                np.concatenate(found[name]), {z: float(law.pmf(z)) for z in range(-60, 61)}
            )
            print(f"{name}, ε = {law.epsilon}: chi-square {statistic:.1f}, threshold {threshold:.1f}")
            assert (statistic < threshold) == fits


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from("abcx"), st.integers(-2, 3)), max_size=30), st.booleans())
@settings(max_examples=60, deadline=None)
def test_all_groups_count_an_item_of_several_groups_once(rows: list, with_times: bool) -> None:
    """Rows of declared groups alone, whatever group they are in; nothing but its share moves when a row is added."""
    table = {"item": [r[0] for r in rows], "group": [r[1] for r in rows]}
    times = [r[2] for r in rows] if with_times else None
    tables, unit = rows_of(table, times, group="group")
    exact = count_exactly(tables, unit, ["a", "b", "c"], together=True)
    assert list(exact) == ["all groups", "a", "b", "c"]
    declared = [(r[0], r[2] if with_times else 1) for r in rows if r[1] != "x"]
    by_hand = profile_of([item for item, _ in declared], [n for _, n in declared])
    whole = exact["all groups"]
    assert dict(zip(whole.counts.tolist(), whole.items.tolist())) == by_hand


@pytest.mark.parametrize(
    ("options", "in_groups", "in_all"),
    [
        ({}, Fraction(3, 4), Fraction(1, 4)),
        ({"person": "user", "max_contributions": 3}, Fraction(1, 4), Fraction(1, 12)),
        ({"person": True}, Fraction(3, 8), Fraction(1, 4)),  # in both groups, and once among all persons
        ({"person": True, "max_contributions": 1}, Fraction(3, 4), Fraction(1, 4)),
    ],
)
def test_all_groups_take_their_share(options: dict, in_groups: Fraction, in_all: Fraction) -> None:
    table = {"user": [1, 1, 1, 2], "day": ["a", "b", "b", "a"]}
    items = {**table, "page": [1, 1, 2, 2]} if options.get("person") == "user" else table
    with testing.seeded(1):
        found = testing.direct(items, epsilon=1, by="day", groups=["a", "b"], all_groups="1/4", **options)
    assert {name: p.curve.noise.epsilon for name, p in found.items()} == {
        "all groups": in_all, "a": in_groups, "b": in_groups,
    }  # fmt: skip
    assert {p.curve.epsilon for p in found.values()} == {1}
    assert len({p.guarantee for p in found.values()}) == 1
    assert "Of this ε, 0.75 to the groups and 0.25 to all groups together" in found["a"].guarantee


def release_of(items: list[int], epsilon: float, groups: int, runs: int, event: Callable[[NoisyCurve], bool]) -> int:
    """In how many of groups × runs releases of `un.direct` with these items in every group the event happens."""
    names = [f"g{i}" for i in range(groups)]
    table = {"item": items * groups, "group": [name for name in names for _ in items]}
    hits = 0
    for _ in range(runs):
        found = un.direct(table, epsilon=epsilon, by="group", groups=names, max_count=16)
        hits += sum(event(profile.curve) for profile in found.values())
    return hits


def told_apart(event: Callable[[NoisyCurve], bool], one: list[int], two: list[int], runs: int = 3) -> tuple[int, int]:
    """How often the worst event happens for data that differ by one occurrence, from rows to released numbers."""
    return release_of(one, 1.0, 400, runs, event), release_of(two, 1.0, 400, runs, event)


def breaks(hits: tuple[int, int], epsilon: float = 1.0) -> bool:
    """Whether hits[0] ≤ e^ε·hits[1] is refuted at 1e-9: given their sum, hits[0] is at most Bin(sum, e^ε/(1+e^ε))."""
    from scipy.stats import binom

    return bool(binom.sf(hits[0] - 1, sum(hits), math.exp(epsilon) / (1 + math.exp(epsilon))) < ALARM)


FIVE = [1] * 3 + [2] * 3 + [3] * 3 + [4] * 3 + [5] * 3
"""S(3) = 5; without the last occurrence 4."""


@pytest.mark.statistical
def test_neighbours_are_told_apart_no_better_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """`un.direct` from rows to released numbers; half the noise, and a box counted twice, are caught."""
    from unnoise.answers import direct as answering

    monkeypatch.setattr(answering, "falling", lambda curve: (np.ones(1, dtype=np.int64), np.ones(1)))  # not looked at

    def column(curve: NoisyCurve) -> bool:
        return bool(curve.numbers[2] >= 5)

    def row(curve: NoisyCurve) -> bool:
        return bool(curve.ranks[0] >= 5 and curve.numbers[11] >= 1)

    assert not breaks(told_apart(column, FIVE, FIVE[:-1]))
    assert not breaks(told_apart(row, [1] * 12, [1] * 11))
    exact, law = holding.exact_numbers, holding.exact_positive

    def twice(counts: np.ndarray, items: np.ndarray, *rest: object) -> tuple[list[int], list[int]]:
        _, rows = exact(counts, items, *rest)
        return [int(items[counts >= t].sum()) for t in range(1, 17)], rows  # S(t) whole beside the rows

    monkeypatch.setattr(holding, "exact_numbers", twice)
    assert breaks(told_apart(row, [1] * 12, [1] * 11))
    monkeypatch.setattr(holding, "exact_numbers", exact)
    monkeypatch.setattr(holding, "exact_positive", lambda name, epsilon: law(name, epsilon) * 2)
    assert breaks(told_apart(column, FIVE, FIVE[:-1]))


def test_where_there_are_no_items_there_are_no_occurrences() -> None:
    for seed in range(20):
        with testing.seeded(seed):
            p = testing.direct([], epsilon=0.3)
        if p.distinct.value == 0:
            assert p.total.value == 0
            assert p.total.low == 0
            return
    pytest.fail("none of 20 releases of no rows found no items")


def test_nothing_but_the_numbers_depends_on_the_data() -> None:
    some = {"": exactly({1: 10, 7: 3, 10**12: 1})}
    for unit in (Unit(), Unit(persons="limited", most=3), Unit(persons="items"), Unit(persons="items", most=5)):
        full, empty = release(some, unit, 1)[""], release({"": exactly({})}, unit, 1)[""]
        assert full.guarantee == empty.guarantee
        assert full.noise == empty.noise
        assert full.layout == empty.layout
        assert (full.first == empty.first).all()
        assert (full.last == empty.last).all()


def test_test_noise_cannot_leave() -> None:
    with testing.seeded(1):
        with pytest.raises(PrivacyError, match="operating system"):
            un.direct([1, 2], epsilon=1)
        assert "NOT PRIVATE" in testing.direct([1, 2], epsilon=1).guarantee


def test_a_released_curve_is_frozen_and_no_sketch() -> None:
    curve = un.direct([1, 2], epsilon=1).curve
    with pytest.raises(ValueError, match="read-only"):
        curve.numbers[0] = 3
    with pytest.raises(InputError, match="no gaps"):
        NoisyCurve(np.array([1, 3]), np.array([1, 3]), np.zeros(2, dtype=np.int64), DiscreteLaplace(1))
    from unnoise.sketches.format import read_layout

    with pytest.raises(FormatError, match="kind must be that of a sketch, got 'direct'"):
        read_layout(vars(curve.layout))


# ---------------------------------------------------------------- the fit


@given(
    st.lists(st.integers(-2, 8), min_size=1, max_size=3), st.lists(st.floats(-6, 3), min_size=4, max_size=4), st.data()
)
@settings(max_examples=30, deadline=None)
def test_the_chain_is_that_of_all_falling_sequences(noisy: list, ends: list, data: st.DataObject) -> None:
    """With steps of any length alike the law of every entry is that of listing all sequences that may end anywhere."""
    most, count = 12, len(noisy)
    floors = sorted(data.draw(st.lists(st.integers(0, 4), min_size=count, max_size=count)))
    low, weights = np.zeros(count, dtype=np.int64), np.array(ends[: count + 1])
    likely, scale = _descent._likelihood(np.array(noisy, dtype=float), low, most + 1, DiscreteLaplace(1).epsilon)
    likely[np.arange(most + 1) < np.array(floors)[:, None]] = 0
    chain = _descent._Chain(low, most + 1, likely, scale, np.append(floors, 0), weights)
    falls = np.arange(1 - chain.size, chain.size) >= 0
    for name, value in (
        ("laws", np.ones((count - 1, 1, 1)) * falls), ("flat", np.zeros((count, 1), dtype=bool)),
        ("falls", np.ones((count, 1, most + 1))),
    ):  # fmt: skip
        object.__setattr__(chain, name, value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_descent, "STOPS", 0.0)
        found, *_ = chain.smoothed(np.ones((3, 1)))
    assert np.allclose(found, likeliest_descents(noisy, 1.0, floors, weights, most), atol=1e-9)


def test_an_end_is_weighed_not_chosen() -> None:
    """Two items of four at count 6 remain where the likeliest corner would drop them; one spike ends at once."""
    tail, spike = exactly({1: 973, 2: 550, 3: 200, 4: 48, 5: 11, 6: 2}), exactly({1: 10_000})
    found = []
    for seed in range(30):
        with testing.seeded(seed):
            found.append([corner(letting_out(release, {"": p}, Unit(), 1)[""])[0] for p in (tail, spike)])
    columns = np.array(found)
    print(columns.mean(axis=0))
    assert np.mean(columns[:, 0] >= 6) > 0.5  # fixed seeds; 0.24 where the likeliest was taken
    assert np.mean(columns[:, 1] == 1) > 0.8


@pytest.mark.parametrize("epsilon", [0.02, 0.3, 2])
def test_a_falling_sequence_is_found_again(epsilon: float) -> None:
    """Nearer than isotonic regression in the mean, on steps of three kinds; and it falls, whole, above its floor."""
    from scipy.optimize import isotonic_regression

    rng, law, ratio = np.random.default_rng(4), DiscreteLaplace(epsilon), []
    for truth in (np.full(60, 500), 4000 - 50 * np.arange(60), np.repeat([900, 12, 3], 20)):
        errors = []
        for _ in range(12):
            noisy = truth + rng.geometric(1 - law.a, 60) - rng.geometric(1 - law.a, 60)
            found = _descent.descent(noisy.astype(float), law, 2)
            assert (np.diff(found) <= 0).all()
            assert found[-1] >= 2
            assert (found == np.rint(found)).all()
            plain = np.maximum(isotonic_regression(noisy.astype(float), increasing=False).x, 2)
            errors.append([np.abs(found - truth).sum(), np.abs(plain - truth).sum()])
        ratio.append(np.divide(*np.mean(errors, axis=0)))
    print(ratio)
    assert np.exp(np.mean(np.log(ratio))) < 0.95
    assert max(ratio) < 1.1


def test_the_corner_is_found_and_never_passed() -> None:
    """100 items of 100 occurrences: columns up to 100, the rows of the 12 largest; the last corner lies beyond."""
    for epsilon in (0.1, 1, 5):
        with testing.seeded(0):
            curve = letting_out(release, {"": exactly({100: 100})}, Unit(), epsilon)[""]
        columns, groups, _ = corner(curve)
        assert abs(columns - 100) <= 4
        assert abs(groups - 12) <= 1
        assert last_corner(curve)[0] >= 100
        assert largest_count(curve) >= 100
    with testing.seeded(0):
        empty = letting_out(release, {"": exactly({})}, Unit(), 1)[""]
    assert corner(empty)[0] <= 4
    assert last_corner(empty)[0] < 100


def test_a_lonely_giant_stands_where_it_is() -> None:
    with testing.noiseless():
        profile = testing.direct(["giant", "dwarf"], counts=[10**12, 3], epsilon=1)
    assert abs(profile.support[-1] - 10**12) <= 1
    assert float(profile.total) == pytest.approx(10**12 + 3, abs=1)


@pytest.mark.parametrize("epsilon", [0.5, 8])
def test_no_count_is_blurred(epsilon: float) -> None:
    """2,000 items of 5,000, or a comb up to it: nearly all stand at their very count, not all over a block."""
    for profile in ({5000: 2000}, {t: 60 for t in range(200, 5001, 200)}):
        with testing.seeded(5):
            curve = letting_out(release, {"": exactly(profile)}, Unit(), epsilon)[""]
        support, items = falling(curve)
        there = sum(float(np.minimum(items[support == t].sum(), n)) for t, n in profile.items())
        assert there > 0.9 * sum(profile.values()), there


def test_the_chain_ends_where_the_rest_begins() -> None:
    """5,000 columns of 2,000: no step where the chain is cut off, whatever the noise of its last entries."""
    with testing.seeded(6):
        curve = letting_out(release, {"": exactly({5000: 2000})}, Unit(), 0.1)[""]
    _, _, reached = corner(curve)
    assert np.abs(reached[CHAINED - 100 : CHAINED + 100] - 2000).max() < 2


def test_long_stretches_are_finer_than_the_states() -> None:
    """Noise of ε = 0.05 is seen in steps of 4; the mean of two thousand numbers is known to 1."""
    rng, law = np.random.default_rng(2), DiscreteLaplace(0.05)
    for level in (1001, 1002, 1003):
        noisy = level + rng.geometric(1 - law.a, 2000) - rng.geometric(1 - law.a, 2000)
        found = _descent.descent(noisy.astype(float), law, 0)
        assert np.median(np.abs(found - level)) <= 1.5


def test_no_place_lies_between_the_states_of_a_short_sequence() -> None:
    """Fifty numbers of 1,000 above a floor of 801, ε = 0.1: states two apart would stand at 999 or 1,001 alone."""
    assert (_descent.descent(np.full(50, 1000.0), DiscreteLaplace(0.1), 801) == 1000).all()
    assert _descent._unit(50, DiscreteLaplace(0.1)) == 1
    assert _descent._unit(2048, DiscreteLaplace(0.1)) == 2  # where it would be too much work


def test_equal_items_stay_together_and_single_ones_apart() -> None:
    """Learning begins twice: from one start alone, equal rows fall apart or a slope becomes a stair.

    Of ten equal rows at ε = 0.1 five or so stand apart from the others (eight with the first start alone); one item
    each of 400 counts at ε = 0.3 stays a slope (0.30; 0.75 with the second start alone).
    """
    rng, law = np.random.default_rng(8), DiscreteLaplace(0.1)
    apart = []
    for _ in range(30):
        noisy = 5000 + rng.geometric(1 - law.a, 10) - rng.geometric(1 - law.a, 10)
        found = _descent.descent(noisy.astype(float), law, 100)
        apart.append(10 - np.unique(found, return_counts=True)[1].max())
    slope, law = np.arange(400, 0, -1), DiscreteLaplace(0.3)
    noisy = slope + rng.geometric(1 - law.a, 400) - rng.geometric(1 - law.a, 400)
    off = np.abs(np.diff(_descent.descent(noisy.astype(float), law, 0)) + 1).mean()
    print(np.mean(apart), off)
    assert np.mean(apart) < 6
    assert off < 0.5


def test_rows_that_all_end_at_the_corner_do_not_move_it() -> None:
    """30 items of 100 at ε = 0.1, three releases: levels of rows above the corner hid that all of them end there."""
    for seed in (103, 110, 112):
        with testing.seeded(seed):
            curve = letting_out(release, {"": exactly({100: 30})}, Unit(), 0.1, top=1000)[""]
        support, items = falling(curve)
        assert abs(items[support == 100].sum() - 30) <= 4


def test_one_noisy_column_after_a_cliff_is_no_corner() -> None:
    """2,000 items of 5,000 at ε = 0.1, three of the releases in which the corner was one column too far."""
    for seed in (8, 17, 22):
        with testing.seeded(seed):
            curve = letting_out(release, {"": exactly({5000: 2000})}, Unit(), 0.1, top=50_000)[""]
        assert corner(curve)[0] == 5000


@pytest.mark.parametrize("epsilon", [0.3, 1])
def test_a_comb_is_nearer_than_isotonic_regression(epsilon: float) -> None:
    """Steps of 5 every 7 columns: a period has laws of its own (without, 1.25 of its errors at ε = 0.3)."""
    from scipy.optimize import isotonic_regression

    truth, rng, law = np.repeat(5 * np.arange(100, 0, -1), 7), np.random.default_rng(3), DiscreteLaplace(epsilon)
    off = np.zeros(2)
    for _ in range(3):
        noisy = (truth + rng.geometric(1 - law.a, truth.size) - rng.geometric(1 - law.a, truth.size)).astype(float)
        plain = isotonic_regression(noisy, increasing=False).x
        off += [np.abs(np.diff(found) - np.diff(truth)).sum() for found in (_descent.descent(noisy, law, 0), plain)]
        assert _descent._period(noisy) == 7
    print(off[0] / off[1])
    assert off[0] < 0.6 * off[1]
    assert _descent._period(np.arange(400.0, 0, -1)) == 0


@given(st.integers(1, 4), st.integers(2, 4), st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_no_sequence_has_less_loss(count: int, size: int, seed: int) -> None:
    """Against all places in the windows, for convex losses of levels and of steps."""
    rng = np.random.default_rng(seed)
    levels, steps = np.sort(rng.normal(size=(count, size))), np.sort(rng.normal(size=(count - 1, 2 * size - 1)))
    level, step = (np.pad(np.cumsum(x[:, :-1], axis=1), ((0, 0), (1, 0))) for x in (levels, steps))

    def loss(at: tuple[int, ...]) -> float:
        moved = sum(step[i, a - b + size - 1] for i, (a, b) in enumerate(pairwise(at)))
        return float(moved + sum(level[i, a] for i, a in enumerate(at)))

    found = tuple(_descent._least(levels, steps).tolist())
    assert loss(found) == pytest.approx(min(map(loss, product(range(size), repeat=count))), abs=1e-9)


@pytest.mark.parametrize("power", [1, 2, 5])
def test_quantiles_are_those_of_the_exact_law(power: int) -> None:
    law = DiscreteLaplace("1/2", power)
    pmf = law.pmf(np.arange(-400, 401))
    for tail in (0.2, 0.025, 1e-4):
        k = upper_quantile(DiscreteLaplace("1/2"), power, tail)
        assert pmf[401 + k :].sum() <= tail < pmf[400 + k :].sum()


@pytest.mark.parametrize("noises", [1, 2, 16, 31, 32, 64, 1024])
@pytest.mark.parametrize("epsilon", ["1/10", 1, 8])
def test_quantiles_rise_as_far_as_counts_ask(noises: int, epsilon: object) -> None:
    """A run of blocks that ends at 2⁶² may take 1/2⁶² of the error: no tail is too small."""
    found = [upper_quantile(DiscreteLaplace(epsilon), noises, 10.0**-k) for k in range(2, 31, 4)]
    assert found == sorted(found)
    assert found[0] < found[3] < found[-1]


# ---------------------------------------------------------------- answers

TRUTH = np.concatenate([np.full(400, 1), np.full(150, 2), np.arange(3, 63), [900, 1500, 1510, 4000, 70_000]])


def questions() -> dict:
    """Name → (truth, how to ask)."""
    share = TRUTH / TRUTH.sum()
    return {
        "distinct": (TRUTH.size, lambda p: p.distinct),
        "at least 30": ((TRUTH >= 30).sum(), lambda p: p.at_least(30)),
        "at least 63": ((TRUTH >= 63).sum(), lambda p: p.at_least(63)),
        "at least 1505": ((TRUTH >= 1505).sum(), lambda p: p.at_least(1505)),
        "exactly 1": ((TRUTH == 1).sum(), lambda p: p.exactly(1)),
        "exactly 40": ((TRUTH == 40).sum(), lambda p: p.exactly(40)),
        "share 2": ((TRUTH == 2).mean(), lambda p: p[2]),
        "total": (TRUTH.sum(), lambda p: p.total),
        "second moment": ((TRUTH.astype(float) ** 2).sum(), lambda p: p.moment(2)),
        "Σ log(1+h)": (np.log1p(TRUTH).sum(), lambda p: p.statistic(np.log1p)),
        "entropy": (-(share @ np.log(share)), lambda p: p.entropy),
        "median": (np.sort(TRUTH)[TRUTH.size // 2], lambda p: p.quantile(0.5)),
        "0.9": (np.sort(TRUTH)[math.ceil(0.9 * TRUTH.size) - 1], lambda p: p.quantile(0.9)),
    }


RUNS = 150


@cache
def profiles_of_truth(epsilon: float, unit: Unit) -> list[DirectProfile]:
    """RUNS profiles of as many releases of TRUTH: tests that ask about the same releases share them."""
    counts, items = np.unique(TRUTH, return_counts=True)
    return [direct_profile(release({"": Exactly(counts, items)}, unit, epsilon)[""]) for _ in range(RUNS)]


@pytest.mark.statistical
@pytest.mark.parametrize("epsilon", [0.3, 1])
def test_intervals_cover(epsilon: float) -> None:
    """At least 93 % for everything, at least 95 % for S(t); flake 1e-9 each."""
    runs, hits, narrow = RUNS, dict.fromkeys(questions(), 0), 0
    for profile in profiles_of_truth(epsilon, Unit()):
        for name, (truth, ask) in questions().items():
            hits[name] += truth in ask(profile)
        e = profile.distinct
        middle, half = float(profile.curve.numbers[0]), (e.high - e.low) / 8
        narrow += middle - half <= TRUTH.size <= middle + half
    print(hits)
    for name, hit in hits.items():
        assert holds_between(hit, runs, 0.95 if "at least" in name or name == "distinct" else 0.93, 1.0), name
    assert not holds_between(narrow, runs, 0.95, 1.0)  # the control: a quarter of the width


@pytest.mark.parametrize("place", [257, 262, 300, 320])
def test_a_quantile_of_persons_may_lie_anywhere_in_its_block(place: int) -> None:
    """Noise on f tells 257..320 together."""
    counts, items = np.array([1, place]), np.array([400, 600])
    with testing.noiseless():
        curve = letting_out(release, {"": Exactly(counts, items)}, Unit(persons="items"), 1)[""]
    found = direct_profile(curve).quantile(0.9)
    assert (found.low, found.high) == (257, 320)


@pytest.mark.statistical
@pytest.mark.parametrize(("unit", "at_least"), [(Unit(), False), (Unit(), True), (Unit(persons="items"), False)])
def test_a_band_holds_as_a_whole(unit: Unit, at_least: bool) -> None:
    """At least 93 % hold at all counts together. Control: a third as wide they do not."""
    t, runs, hits, narrow = np.array([*range(1, 30), 63, 1505]), 40, 0, 0
    truth = [((k <= TRUTH) if at_least else (k == TRUTH)).sum() for k in t]
    for profile in profiles_of_truth(1, unit)[:runs]:
        band = profile.band(t, at_least=at_least)
        hits += truth in band
        third = (band.high - band.low) / 6
        narrow += bool((abs(np.array(truth) - (band.high + band.low) / 2) <= third).all())
    assert holds_between(hits, runs, 0.93, 1.0)
    assert not holds_between(narrow, runs, 0.93, 1.0)


@pytest.mark.statistical
@pytest.mark.parametrize("most", [None, 100])
def test_intervals_cover_where_items_are_persons(most: int | None) -> None:
    runs, wanted = RUNS, ("distinct", "at least 30", "exactly 1", "share 2", "median")
    hits = dict.fromkeys(wanted, 0)
    for profile in profiles_of_truth(1, Unit(persons="items", most=most)):
        for name in wanted:
            truth, ask = questions()[name]
            hits[name] += truth in ask(profile)
    assert all(holds_between(hit, runs, 0.95, 1.0) for hit in hits.values()), hits


def test_reach_of_persons_is_not_taken_for_noise() -> None:
    """150 persons over some twelve counts, noise of ε = 1/4: the mean of 24 releases misses by less than five of the
    standard errors that the noise of fifteen numbers has; the octaves that one by one look like noise hold a third."""
    counts = np.random.default_rng(3).binomial(20, 1 / 3, 150)
    persons = exactly(dict(zip(*(column.tolist() for column in np.unique(counts, return_counts=True)))))
    found = []
    for seed in range(24):
        with testing.seeded(seed):
            curve = letting_out(release, {"": persons}, Unit(persons="items", most=30), "1/4")[""]
        found.append(direct_profile(curve).distinct.value)
    limit = 5 * math.sqrt(15 * DiscreteLaplace("1/4").variance / 24)
    print(f"mean {np.mean(found):.1f} of 150, within {limit:.1f}")
    assert abs(np.mean(found) - 150) < limit


def test_noise_on_f_beats_noise_on_s_for_reach() -> None:
    """C = 10: reach RMSE 4.3 against 15 (DESIGN 4), here by simulation. χ² of 60 runs: either passes 7 once in 10¹⁰."""
    rng = np.random.default_rng(3)
    counts, items = np.unique(rng.integers(1, 11, 2000), return_counts=True)
    errors = {}
    for unit in (Unit(persons="items", most=10), Unit(persons="limited", most=10)):
        reached = [direct_profile(c).distinct - 2000
                   for c in (release({"": Exactly(counts, items)}, unit, 1)[""] for _ in range(60))]  # fmt: skip
        errors[unit.persons] = float(np.sqrt(np.mean(np.square(reached))))
    print(errors)
    assert errors["items"] < 7 < errors["limited"]


@pytest.mark.parametrize(
    ("items", "counts", "epsilon"),
    [([], None, 1), ([5], None, 1), ([5], [10**12], 0.05), (list(range(3000)), None, 0.05), ([1, 1], [3, -9], 1)],
    ids=["no rows", "one row", "one item of 10^12", "all singletons", "below nothing"],
)  # fmt: skip
@pytest.mark.parametrize("person", [None, True])
def test_every_answer_exists_at_every_edge(items: list, counts: list | None, epsilon: float, person: object) -> None:
    p = un.direct(items, counts=counts, epsilon=epsilon, person=person)
    answers = [p[1], p[0], p.distinct, p.total, p.entropy, p.quantile(0.5), p.quantile(1), p.at_least(7), p.moment(0.5),
               p.exactly(2000), p.at_least(2**60), p.statistic(np.log1p)]  # fmt: skip
    for answer in answers:
        assert answer.low <= answer.value <= answer.high
        assert math.isfinite(answer.stderr)
        assert answer.at(0.5).high <= answer.high or answer.at(0.5).high == answer.value
        assert all(math.isfinite(end) for level in LEVELS for end in answer.at(level).interval)
    for at_least in (False, True):
        band = p.band(at_least=at_least)
        assert (band.low <= band.value).all()
        assert (band.value <= band.high).all()
    assert p.fractions.sum() == pytest.approx(1) if p.support[-1] < 10**8 else True
    for text in (str(p), p.to_json(), p._repr_html_(), str(p.table()), un.report(p)):
        assert text
    assert json.loads(p.to_json())["guarantee"] == p.guarantee
    assert p.to_polars().height == p.support.size


@pytest.mark.parametrize(
    "counts",
    [np.full(20_000, 5000), np.random.default_rng(5).integers(1, 20_001, 30_000), np.ones(1000, dtype=np.int64),
     np.minimum(np.random.default_rng(6).zipf(1.3, 30_000), 10**9)],
    ids=["equal, in wide blocks", "uniform, in wide blocks", "ones", "giants"],
)  # fmt: skip
def test_without_noise_the_answers_are_exact(counts: np.ndarray) -> None:
    """At ε = 40 all noise is 0 but for one number in 10^13: sums and limits hold to rounding, wide blocks included."""
    values, items = np.unique(counts, return_counts=True)
    p = direct_profile(release({"": Exactly(values, items)}, Unit(), 40)[""])
    assert float(p.total) == pytest.approx(int(counts.sum()), rel=1e-9)
    assert [float(p.distinct), *p.distinct.interval] == pytest.approx([counts.size] * 3, rel=1e-9)
    for t in (1, 2, 7, 100, 1024, 1030, 4990, 5000, 5001, 19_000, 10**6):
        assert int((counts >= t).sum()) in p.at_least(t), t
        assert int((counts == t).sum()) in p.exactly(t), t
    assert float((counts.astype(float) ** 2).sum()) in p.moment(2)
    share = counts / counts.sum()
    assert -float(share @ np.log(share)) in p.entropy


def test_answers_do_not_contradict_each_other() -> None:
    p = un.direct(np.random.default_rng(1).zipf(1.6, 4000), epsilon=0.5)
    reached = [p.at_least(k).value for k in range(1, 300)]
    assert (np.diff(reached) <= 1e-9).all()
    assert all(p.exactly(k) <= p.at_least(k) + 1e-9 for k in range(1, 300))
    for level in (0.5, 0.95):
        asked = [*range(1, 300), 500, 1000, 1025, 1030, 5000, 10**6]
        ends = np.array([p.at_least(k).at(level).interval for k in asked])
        assert (np.diff(ends, axis=0) <= 1e-9).all()  # intervals of neighbours do not cross
    assert sum(row.items.value for row in p.table()) == pytest.approx(p.distinct.value)
    assert p.entropy.value <= math.log(p.distinct.high)
    for few in ([], [1], [1, 1, 2]):
        for seed in range(20):
            with testing.seeded(seed):
                q = testing.direct(few, epsilon=1)
            assert all(q.exactly(k).high <= q.at_least(k).high for k in (1, 2, 3, 9))


def at_random(rng: np.random.Generator) -> np.ndarray:
    """Counts of a shape at random: Poisson, geometric, Zipf, all equal, one giant, spread over six decades."""
    d = int(10 ** rng.uniform(0, 3))
    shapes = (
        lambda: rng.poisson(10 ** rng.uniform(-1, 2), d), lambda: rng.geometric(10 ** rng.uniform(-2, -0.1), d),
        lambda: np.minimum(rng.zipf(rng.uniform(1.5, 3), d), 2**62), lambda: np.full(d, int(10 ** rng.uniform(0, 3))),
        lambda: np.append(rng.poisson(3, d), int(2 ** rng.uniform(10, 62))), lambda: 10 ** rng.uniform(0, 6, d),
    )  # fmt: skip
    return np.asarray(shapes[rng.integers(len(shapes))](), dtype=np.int64)


def test_shapes_at_random_are_covered_and_never_contradict() -> None:
    """Any shape, ε from 0.01 to 50; fixed seeds, so that what holds once holds always."""
    rng, held = np.random.default_rng(11), []
    for seed in range(40):
        counts, epsilon = at_random(rng), round(10 ** rng.uniform(-2, 1.7), 3)
        person = True if seed % 8 == 7 else None
        with testing.seeded(seed):
            p = testing.direct(np.arange(counts.size), counts=counts, epsilon=epsilon, person=person)
        falls = [p.at_least(t) for t in range(1, 25)]
        for one, next_one in pairwise(falls):
            assert next_one.low <= one.low
            assert next_one.value <= one.value
            assert next_one.high <= one.high
        assert p.distinct.interval == falls[0].interval
        assert p.distinct.value <= p.total.value
        assert p.distinct.low <= p.total.low
        assert p.distinct.high <= p.total.high
        assert all(0 <= e.low <= e.value <= e.high for e in [*falls, p.total])
        truths = [int((counts >= t).sum()) for t in (1, 2, 3, 5, 10)]
        held += [falls[t - 1].low <= truth <= falls[t - 1].high for t, truth in zip((1, 2, 3, 5, 10), truths)]
        held.append(p.total.low * (1 - 1e-12) <= float(counts.astype(float).sum()) <= p.total.high * (1 + 1e-12))
    print(np.mean(held))
    assert np.mean(held) >= 0.93


@pytest.mark.parametrize("kind", ["direct", "hashed", "known"])
def test_numbers_of_items_are_the_same_wherever_they_stand(kind: str) -> None:
    """The number of all items is uncertain too: intervals of shares are none of numbers."""
    items = np.random.default_rng(2).zipf(1.8, 300)
    with testing.seeded(5):
        if kind == "direct":
            p = testing.direct(items, epsilon=0.5)
        else:
            sketch = un.Sketch.hashed(2**8, epsilon=0.5) if kind == "hashed" else un.Sketch.known(300, epsilon=0.5)
            sketch.update(items % 300)
            p = un.reconstruct(testing.release(sketch), method="auto" if kind == "hashed" else "isotonic")
    columns, once = p.columns(), p.exactly(1)
    at = columns["count"].tolist().index(1)
    assert [columns[name][at] for name in ("items", "low", "high")] == pytest.approx([once.value, *once.interval])
    said = next(line.split() for line in str(p).split("\n") if line.split()[:2] == ["exactly", "once"])
    row = next(line.split() for line in str(p).split("\n") if line.split()[:1] == ["1"])
    assert row[1:5] == said[2:6]


def test_answers_can_be_recomputed_from_the_curve() -> None:
    p = un.direct([1, 1, 2, 3], epsilon=1)
    again = un.reconstruct(p.curve)
    assert (again.support == p.support).all()
    assert (again.mass == p.mass).all()
    assert again.guarantee == p.guarantee
    with pytest.raises(InputError, match="without method"):
        un.reconstruct(p.curve, method="paper")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "ε = 1 for one occurrence"),
        ({"person": True}, "one person, who is one item, with any number"),
        ({"person": True, "max_contributions": 4}, "at most 4 occurrences counted in all"),
        ({"max_contributions": 1}, "the caller's promise"),
    ],
)
def test_the_guarantee_names_the_unit(options: dict, words: str) -> None:
    promise = un.direct([1, 2, 3], epsilon=1, **options).guarantee
    assert words in promise
    assert "Replacing one by another: twice that ε." in promise


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 0}, "epsilon must be > 0"),
        ({"epsilon": 1, "person": [1, 2]}, "person needs max_contributions"),
        ({"epsilon": 1, "max_contributions": 0}, "max_contributions must be an integer"),
        ({"epsilon": 1, "by": ["a", "b"]}, "by and groups go together"),
        ({"epsilon": 1, "by": ["a", "b"], "groups": ["a", "a"]}, "groups must be distinct"),
        ({"epsilon": 1, "all_groups": 0.5}, "all_groups needs groups"),
        ({"epsilon": 1, "by": ["a", "b"], "groups": ["a", "b"], "all_groups": 1}, "all_groups must be a share of ε"),
        ({"epsilon": 1, "by": ["a", "b"], "groups": ["a", "b"], "all_groups": "0"}, "all_groups must be > 0"),
        ({"epsilon": 1, "by": ["a", "b"], "groups": ["all groups"], "all_groups": 0.5}, "groups must not hold"),
        ({"epsilon": 1, "by": ["a", "b"], "groups": ["all groups", "a"]}, "groups must not hold 'all groups'"),
    ],
)
def test_bad_requests_are_refused_by_what_was_asked_alone(options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        un.direct([1, 2], **options)


def test_a_function_must_be_finite_where_counts_may_lie() -> None:
    with pytest.raises(InputError, match="g must be finite"):
        un.direct([1, 2], epsilon=1, person=True).statistic(lambda t: np.exp(t.astype(float)))


@pytest.mark.parametrize("kind", ["direct", "hashed", "known"])
def test_a_function_gives_a_finite_sum_of_one_real_number_a_count(kind: str) -> None:
    rows = np.repeat(np.arange(40), 40)
    if kind == "direct":
        p = un.direct(rows, epsilon=1)
    else:
        sketch = un.Sketch.hashed(64, epsilon=1) if kind == "hashed" else un.Sketch.known(64, epsilon=1)
        sketch.update(rows)
        p = un.reconstruct(sketch.release())
    assert p.statistic(lambda t: 1 - (t == 0)).value == pytest.approx(p.distinct.value, rel=1e-6)
    for g in (lambda t: t * 1j, lambda t: np.ones(3), lambda t: "x"):
        with pytest.raises(InputError, match="g must return a real number for each count, got"):
            p.statistic(g)
    with pytest.raises(InputError, match=r"g must .*, got"):
        p.moment(110)  # 40^110 is a number, its square is none


def test_a_bound_known_beforehand_shortens_the_grid() -> None:
    items = np.repeat(np.arange(400), 1 + np.arange(400) % 5)
    with testing.seeded(1):
        p = testing.direct(items, epsilon=1, max_count=4)
    assert p.curve.last.tolist() == [1, 2, 3, 4]
    assert p.at_least(4).value == pytest.approx(160, abs=12)  # those with 5 are taken as 4
    assert p.at_least(5).high == 0, "of what counts are taken as"
    assert 160 in p.at_least(4)
    for bound in (0, 2**62, 2**64):
        with pytest.raises(InputError, match="max_count must be ≥ 1 and below 2"):
            un.direct(items, epsilon=1, max_count=bound)


TAKEN = "counts above 3 were taken as 3, which means 3 or more: nothing here tells of larger counts"


@pytest.mark.parametrize("persons", [False, True])
def test_counts_taken_as_a_bound_are_said_to_be_so(persons: bool) -> None:
    items = np.repeat(np.arange(400), 1 + np.arange(400) % 50)
    options = {"person": True, "max_contributions": 3} if persons else {"max_count": 3}
    with testing.seeded(1):
        p, whole = testing.direct(items, epsilon=1, **options), testing.direct(items, epsilon=1)
    assert "Counts above 3 were taken as 3." in p.guarantee
    assert [(n.code, n.text) for n in p.notices] == [("capped", TAKEN)]
    assert (p.cap, whole.cap, whole.notices) == (3, None, ())
    assert "were taken as" not in whole.guarantee
    assert [row.label for row in p.table()] == ["1", "2", "3+"]
    assert p.table([7]).rows == ()
    assert "3+ " in str(p).partition("count t")[2]
    sheet = Sheet.of(p, Asked(at_least=(2, 3, 4, 5, 10)))
    assert set(sheet.answers) == {"distinct", "total", "exactly_1", "at_least_2", "at_least_3", "median", "entropy"}
    for headline, words in (
        ("exactly-3", "items occurred 3 times or more."),
        ("at-least-3", "items occurred at least 3 times."),
        ("total", "occurrences in all, counts above 3 taken as 3."),
        ("median", "3 (3–3), counts above 3 taken as 3."),
    ):
        assert first_sentence(Sheet.of(p, Asked(headline=headline))).text.endswith(words)
    for headline in ("at-least-4", "exactly-4"):
        with pytest.raises(InputError, match="headline must ask of counts up to 3"):
            Sheet.of(p, Asked(headline=headline))
    page = report_page({"": Sheet.of(p)}, title="")
    assert TAKEN in page
    assert "occurrences, counts above 3 taken as 3, learned" in page
    assert '<th scope="row" class="number">3+</th>' in page


def test_of_persons_who_count_once_all_are_told_as_once_or_more() -> None:
    with testing.seeded(1):
        p = testing.direct([*range(300), 1, 1], epsilon=1, person=True, max_contributions=1)
    sheet = Sheet.of(p)
    assert first_sentence(sheet).text.endswith("items occurred once or more.")
    assert [span(*each[:2], p.cap) for each in sheet.ranges] == ["1+"]


# ---------------------------------------------------------------- the default of un.profile


def test_profile_is_direct_unless_a_sketch_is_asked_for() -> None:
    items = ["a", "b", "a"] * 100
    assert un.profile(items, epsilon=1).noisy.layout.kind == "direct"
    for options in ({"model": "sketch"}, {"cells": 2**10}, {"method": "isotonic"}):
        assert un.profile(items, epsilon=1, **options).noisy.layout.kind == "hashed"
    with pytest.raises(InputError, match="cells must be left out"):
        un.profile(items, epsilon=1, model="direct", cells=2**10)
    with pytest.raises(InputError, match="model must be"):
        un.profile(items, epsilon=1, model="magic")


def test_exact_counts_never_reach_the_disk(tmp_path: Path) -> None:
    """Under a budget of memory that makes polars' streaming group_by write what it counted, ours writes nothing."""
    code = """
import os, sys, threading, time
seen = set()
def watch():
    while True:
        seen.update(os.listdir(sys.argv[1]))
        time.sleep(0.005)
threading.Thread(target=watch, daemon=True).start()
import polars as pl
import unnoise as un
items = pl.select((pl.int_range(0, 1_500_000) % 1_000_000).cast(pl.String).alias("x"))
if sys.argv[2] == "ours":
    un.direct(items, epsilon=1)
else:
    items.lazy().group_by("x").len().collect(engine="streaming")
print(len(seen))
"""
    places = dict.fromkeys(("POLARS_OOC_SPILL_DIR", "POLARS_TEMP_DIR", "TMPDIR"), str(tmp_path))
    env = {**os.environ, **places, "POLARS_OOC_MEMORY_BUDGET_MB": "10"}
    found = {
        who: int(subprocess.run([sys.executable, "-c", code, str(tmp_path), who], env=env, capture_output=True,
                                text=True, check=True).stdout)
        for who in ("ours", "polars")
    }  # fmt: skip
    assert found["ours"] == 0
    assert found["polars"] > 0  # the control: the budget does bite


# ---------------------------------------------------------------- the command line


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> Callable[..., dict]:
    from unnoise.cli import main

    def run(*arguments: object, fails: bool = False) -> dict:
        monkeypatch.setattr(sys, "argv", ["unnoise", "profile", *map(str, arguments), "--json"])
        with pytest.raises(SystemExit) as left:
            main()
        out, err = capsys.readouterr()
        assert (left.value.code or 0) == (2 if fails else 0), err
        return {"error": err} if fails else json.loads(out)

    return run


def test_the_command_line_is_direct_unless_a_sketch_is_asked_for(shell: Callable, tmp_path: Path) -> None:
    path = tmp_path / "v.csv"
    path.write_text("who,url,day\n" + "".join(f"u{i % 40},p{i % 7},{'ab'[i % 2]}\n" for i in range(400)))
    plain = shell(path, "-c", "url", "-e", "20")
    assert plain["kind"] == "direct"
    assert plain["answers"]["total"]["value"] == pytest.approx(400, abs=4)
    for option in (("--sketch",), ("--cells", "2^10"), ("--levels", "4"), ("--method", "isotonic"), ("--hash-seed", 3)):
        assert shell(path, "-c", "url", "-e", "20", *option)["kind"] == "hashed"
    grouped = shell(path, "-c", "url", "-e", "20", "--by", "day", "--groups", "a,c")["groups"]
    assert list(grouped) == ["a", "c"]
    assert grouped["a"]["answers"]["total"]["value"] == pytest.approx(200, abs=4)
    assert grouped["c"]["answers"]["total"]["value"] == pytest.approx(0, abs=4)
    both = ("--by", "day", "--groups", "a,b", "--all-groups", "1/2")
    whole = shell(path, "-c", "url", "-e", "40", *both, "--ledger", tmp_path / FILE)
    assert list(whole["groups"]) == ["all groups", "a", "b"]
    assert [g["answers"]["distinct"]["value"] for g in whole["groups"].values()] == pytest.approx([7, 7, 7], abs=1)
    assert whole["groups"]["all groups"]["answers"]["total"]["value"] == pytest.approx(400, abs=4)
    assert {(g["epsilon"], g["noise_epsilon"], g["epsilon_share"]) for g in whole["groups"].values()} == {(40, 20, 0.5)}
    assert "Of this ε, 20 to the groups and 20 to all groups together" in whole["guarantee"]
    assert [entry.epsilon for entry in read_ledger(tmp_path / FILE)] == [40]
    assert "groups of a sketch add up" in shell(path, "-c", "url", "-e", 1, *both, "--sketch", fails=True)["error"]
    assert "--all-groups needs --by and --groups" in shell(path, "-c", "url", "-e", 1, *both[4:], fails=True)["error"]
    twice = ("--by", "day", "--groups", "a,a")
    assert "--groups must be distinct" in shell(path, "-c", "url", "-e", 1, *twice, fails=True)["error"]
    persons = shell(path, "-c", "who", "--person", "who", "-e", "20")
    assert "who is one item" in persons["guarantee"]
    assert persons["answers"]["distinct"]["value"] == pytest.approx(40, abs=2)
    limited = shell(path, "-c", "url", "--person", "who", "--max-contributions", 3, "-e", "60")
    assert limited["answers"]["total"]["value"] == pytest.approx(120, abs=4)
    assert "needs --max-contributions" in shell(path, "-c", "url", "--person", "who", "-e", 1, fails=True)["error"]
    pairs = tmp_path / "f.freqcount"
    pairs.write_text("1 100\n2 50\n5 50\n")
    assert shell(pairs, "--freq-count", "-e", "20")["answers"]["total"]["value"] == pytest.approx(450, abs=4)
    pairs.write_text(f"1 {10**11}\n{10**21} 1\n")  # one row for each item would take hours
    assert shell(pairs, "-e", "20")["answers"]["exactly_1"]["value"] == pytest.approx(10**11, abs=4)
    assert "have no columns" in shell(pairs, "-c", "item", "-e", 1, fails=True)["error"]


def test_the_page_of_one_group_says_what_all_groups_take():
    rows = {"group": ["a", "b", "b"], "item": ["x", "x", "y"]}
    found = un.direct(rows, epsilon=1, by="group", groups=["a", "b"], all_groups="1/4")
    assert {one.curve.whole for one in found.values()} == {Fraction(1, 4)}
    assert all("all groups together</dt><dd>0.25<" in parameters(one) for one in found.values())
    assert "all groups together" not in parameters(un.direct(rows["item"], epsilon=1))


@pytest.mark.parametrize("rows", [["a"] * 100 + ["b"] * 3, ["a"] * 1000, list("abcabcd") * 9, []])
@pytest.mark.parametrize("person", [None, True])
def test_a_quantile_is_a_count_that_an_item_may_have(rows: list, person: bool | None) -> None:
    with testing.seeded(6):
        p = testing.direct(rows, epsilon=1, person=person)
    for q in (0.01, 0.5, 0.9, 1):
        for level in (0.5, 0.95, 0.999):
            found = p.quantile(q).at(level)
            assert 1 <= found.low <= found.value <= found.high


def test_the_median_of_what_may_be_nothing_says_so() -> None:
    doubtful, sure = "There may be no items at all; if there are any, half of them have", "Half of the items have"
    for rows, expected in (([], doubtful), (["a", "b"] * 500, sure), (list(range(400)), sure)):
        with testing.seeded(3):
            p = testing.direct(rows, epsilon=0.5)
        said = first_sentence(Sheet.of(p, Asked(headline="median"))).text
        assert said.startswith(f"{expected} a count of at most about ")


def test_nobody_counts_beyond_the_limit() -> None:
    """Each person counts at most 5 times: that nobody does 6 times is no matter of noise."""
    with testing.seeded(5):
        p = testing.direct([1] * 9 + [2, 2, 3], epsilon=0.1, person=True, max_contributions=5)
    for answer in (p.at_least(6), p.at_least(1000), p.exactly(6), *(row.at_least for row in p.table([6, 7]))):
        assert (answer.value, answer.low, answer.high) == (0, 0, 0)
    assert p.at_least(5).high > 0
    with testing.seeded(5):
        free = testing.direct([1] * 9 + [2, 2, 3], epsilon=0.1, person=True)
    assert free.at_least(1000).high > 0, "the control: nothing bounds a person there"


def test_sums_beyond_the_largest_have_no_upper_end() -> None:
    """Counts above 2^62 are taken as that, so their sum is known from below alone."""
    with testing.seeded(1):
        p = testing.direct(["a", "b"], epsilon=1, counts=[2**63 - 1, 1])
        below = testing.direct(["a", "b"], epsilon=1, counts=[2**61, 1])
    assert p.total.low <= 2**62 <= p.total.value * (1 + 1e-9)
    assert 2**63 in p.total
    assert math.isfinite(below.total.high)
    assert 2**61 in below.total


def test_an_entropy_that_may_be_anything_is_marked() -> None:
    with testing.seeded(1):
        nothing, sharp = testing.direct([], epsilon=0.001), testing.direct(list(range(50)) * 40, epsilon=10)
        gone = testing.direct([], epsilon=40)
    assert nothing.entropy.high > 5
    assert nothing.entropy.marked
    assert not sharp.entropy.marked
    assert (gone.entropy.high, gone.entropy.marked) == (0, False)


def test_as_good_as_no_noise():
    """Up to the largest ε: once the square of a variance below 10⁻¹⁶⁰ was divided by."""
    found = un.direct(["a", "b", "b", "c"] * 3, epsilon=500)
    assert [float(found.at_least(k)) for k in (1, 4, 6, 7)] == [3, 1, 1, 0]
    assert found.distinct.low == found.distinct.high == 3


@pytest.mark.parametrize("person", [None, True])
def test_noise_far_below_0_does_not_tell_that_there_is_nothing(person):
    """At ε = 0.3 noises are ± 5: no count that may occur is told as "0 to 0", nor reaches further than at_least."""
    items = np.repeat(np.arange(900), np.repeat([1, 20, 60], 300))
    for seed in range(5):
        with testing.seeded(seed):
            profile = testing.direct(items, epsilon=0.3, person=person)
        for t in range(1, 60):
            asked = profile.exactly(t)
            assert 0 < asked.high <= profile.at_least(t).high, (seed, t)
            assert asked.stderr > 0


def test_columns_beside_the_items_have_names_in_errors():
    with pytest.raises(InputError, match=r"^person must be integers or strings, got float"):
        un.direct([1, 2], epsilon=1, person=[0.5, 1.5], max_contributions=1)
    rows = {"person": ["a", "b"], "_person": ["c", "d"], "who": [1, 2]}
    assert un.direct(rows, epsilon=20, person="who", max_contributions=1).distinct == pytest.approx(2, abs=2)


def test_a_group_holds_little_more_than_its_numbers() -> None:
    """Of a thousand groups each kept 1.1 MB, mostly the same grid; after its answers one holds half of that."""
    found = un.direct({"x": [1, 2, 2], "g": ["a", "b", "b"]}, epsilon=1, by="g", groups=["a", "b"])
    for p in found.values():
        str(p)
    one, other = (p.curve for p in found.values())
    assert one.first is other.first
    assert one.last is other.last
    own = {key: value for key, value in vars(one).items() if key not in ("first", "last")}
    arrays = [array for value in own.values() for array in (value if isinstance(value, tuple) else (value,))]
    assert 346_000 < sum(getattr(array, "nbytes", 0) for array in arrays) < 550_000
