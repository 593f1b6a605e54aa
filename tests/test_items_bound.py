"""Where items are persons of limited occurrences the sketch knows a bound of their counts, which answers keep."""

from __future__ import annotations

import json
import sys

import numpy as np
import polars as pl
import pytest

import unnoise as un
from unnoise.answers.reconstruct import reconstruct
from unnoise.cli import main
from unnoise.errors import FormatError, InputError
from unnoise.layout import Account, Layout
from unnoise.reading.groups import GroupedSketch
from unnoise.sketches.format import parameters_of, parse_parameters

USERS = np.arange(3000) % 1000


def site(**more):
    return un.Sketch.hashed(1 << 11, epsilon=3, max_contributions=1, hash_seed=1, item_types=("int",), **more)


def test_sites_that_count_everybody_once_bound_the_counts_by_their_number(tmp_path):
    total = None
    for i in range(3):
        sketch = site()
        sketch.update(USERS[: 1000 * (i + 1)], person=USERS[: 1000 * (i + 1)])  # equal, but not told to be the same
        assert sketch._account.as_items == 0
        sketch = site()
        sketch.update(USERS, person=USERS)
        sketch.save(tmp_path / f"{i}.sketch")
        loaded = un.Sketch.load(tmp_path / f"{i}.sketch")
        total = loaded if total is None else total + loaded
    noisy = total.release()
    assert noisy.max_count == noisy.profile().max_count == 3
    p = reconstruct(noisy)
    assert p.max_count == 3
    assert p.support[-1] <= 3
    assert p.at_least(4).high == 0
    assert all(row.first <= 3 for row in p.table())
    assert reconstruct(noisy, max_count=2).max_count == 2
    assert reconstruct(noisy, max_count=9).max_count == 3


def test_counts_that_one_call_cut_are_told_as_so_many_or_more():
    """A limit on the person who is the item cuts counts; a bound that is declared (and several sites' sum) does not."""
    sketch, other = site(), site()
    for each in (sketch, other):
        each.update(USERS, person=USERS)
    one = sketch.release()
    p = reconstruct(one)
    assert p.cap == p.max_count == 1
    assert [n.text for n in p.notices if n.code == "capped"] == [
        "counts above 1 were taken as 1, which means 1 or more: nothing here tells of larger counts"
    ]
    assert [row.label for row in p.table()] == ["1+"]
    summed = reconstruct(one + other.release())
    assert (summed.cap, summed.max_count) == (None, 2)
    assert [row.label for row in summed.table()] == ["1", "2"]
    plain = un.Sketch.hashed(1 << 11, epsilon=3)
    plain.update(USERS)
    declared = reconstruct(plain.release(), max_count=3)
    assert (declared.cap, declared.max_count, declared.at_least(4).high) == (None, 3, 0)
    assert not [n for n in declared.notices if n.code == "capped"]


@pytest.mark.parametrize(("items", "person", "same"), [
    (USERS, USERS, True),
    ([1, 1, 2], [1, 1, 2], False),
    (pl.DataFrame({"user": USERS}), "user", True),
    (pl.DataFrame({"user": USERS, "day": USERS}), "user", False),
    (iter(USERS.tolist()), iter(USERS.tolist()), False),
    (USERS, None, False),
])
def test_only_the_form_of_a_call_says_that_items_are_persons(items, person, same):
    sketch = site()
    sketch.update(items, person=person)
    assert sketch._account.as_items == int(same)
    assert (sketch.release().max_count == 1) == same


def test_a_call_without_rows_is_told_by_nothing():
    """Both accounts are equal, so that whether there were rows does not show."""
    some, none = site(), site()
    some.update(USERS, person=USERS)
    empty = USERS[:0]
    none.update(empty, person=empty)
    assert some._account == none._account == Account(calls=1, as_items=1)


def test_one_call_of_another_kind_and_nothing_is_known():
    layout = Layout(kind="hashed", cells=8, max_contributions=2)
    known, unknown = Account(calls=2, as_items=2), Account(calls=1, promised=1)
    assert known.max_count(layout) == 4
    assert known.plus(unknown).max_count(layout) is None
    assert Account().max_count(layout) is None
    assert Account(calls=1, as_items=1).max_count(Layout(kind="hashed", cells=8)) is None
    with pytest.raises(InputError, match="as_items must be at most 2 − 1 calls, got 2"):
        Account(calls=2, promised=1, as_items=2)


def test_files_keep_it_and_refuse_a_number_beyond_the_calls():
    sketch = site()
    sketch.update(USERS, person=USERS)
    sketch.release()
    written = parameters_of(sketch._stored())
    assert json.loads(written)["account"] == {"calls": 1, "promised": 0, "as_items": 1}
    assert parse_parameters(written, 2)["account"] == sketch._account
    with pytest.raises((FormatError, InputError)):
        parse_parameters(written.replace(b'"as_items":1', b'"as_items":2'), 2)
    other = site()
    other.update(USERS, person=USERS.copy())
    assert b"as_items" not in parameters_of(other._stored())


def test_sums_of_releases_add_the_bounds_and_groups_know_them_too():
    one, two, three = (site() for _ in range(3))
    for sketch in (one, two):
        sketch.update(USERS, person=USERS)
    three.update(USERS, person=USERS.copy())
    a, b, c = (sketch.release() for sketch in (one, two, three))
    assert (a + b).max_count == 2
    assert (a + c).max_count is None
    groups = GroupedSketch(["x", "y"], site)
    groups.update(USERS, np.where(USERS < 500, "x", "y"), person=USERS)
    assert {noisy.max_count for noisy in groups.release().values()} == {1}


def test_the_command_knows_it_from_its_columns(tmp_path, monkeypatch):
    source = tmp_path / "visits.csv"
    pl.DataFrame({"user": USERS, "page": USERS % 7}).write_csv(source)
    for column, known in (("user", 1), ("page", None)):
        out = tmp_path / f"{column}.sketch"
        words = ["unnoise", "sketch", source, "-c", column, "--person", "user", "--max-contributions", 1,
                 "-e", 2, "--cells", 1024, "-o", out]  # fmt: skip
        monkeypatch.setattr(sys, "argv", list(map(str, words)))
        with pytest.raises(SystemExit) as left:
            main()
        assert not left.value.code
        assert un.Sketch.load(out).release().max_count == known


def test_a_bound_below_the_least_count_of_an_item_is_refused():
    """An item of a hashed sketch occurs; with 0 the cells were told to hold nothing but ones."""
    with pytest.raises(InputError, match="max_count must be ≥ 1 and below 2\\^62, got 0"):
        reconstruct(site().release(), max_count=0)
    assert reconstruct([0, 1, -1, 0] * 50, epsilon=1, max_count=0).distinct.value == 0


@pytest.mark.parametrize("wrong", [("--max-count", "-1"), ("--max-count", "0"), ("--method", "nope")])
def test_what_no_estimator_takes_costs_nothing(tmp_path, wrong, capsys, monkeypatch):
    """It was refused after the release had been written into the ledger."""
    data, ledger = tmp_path / "x.csv", tmp_path / "x.ledger"
    data.write_text("url\na\n")
    given = ["profile", str(data), "-c", "url", "-e", "1", "--sketch", "--ledger", str(ledger), *wrong]
    monkeypatch.setattr(sys, "argv", ["unnoise", *given])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert wrong[0] in capsys.readouterr().err
    assert not ledger.exists() or "profile" not in ledger.read_text()
