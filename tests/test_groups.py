"""One sketch per declared group: the counts are those of separate sketches, and the promise says how ε adds up."""

from __future__ import annotations

import json
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from command_tools import run_in
from unnoise.errors import FormatError, IncompatibleError, InputError, SealedError
from unnoise.reading.groups import MANIFEST, GroupedSketch, is_group_set
from unnoise.reading.source import Wanted, open_source
from unnoise.sketches.hashing import cells_of, hash_columns
from unnoise.sketches.sketch import Sketch
from unnoise.testing import noiseless, release

CELLS = 2**8


def make(**options) -> Sketch:
    return Sketch.hashed(CELLS, epsilon=1, item_types=["int"], **options)


def true_cells(items) -> np.ndarray:
    """The histogram that one sketch without noise would hold."""
    with noiseless():
        sketch = make()
    sketch.update(np.array(list(items), dtype=np.int64))
    return release(sketch).counts


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(-50, 50), st.sampled_from("ABC")), min_size=1, max_size=60))
def test_groups_hold_what_separate_sketches_hold(rows):
    with noiseless():
        grouped = GroupedSketch(["C", "A", "B"], make)
    grouped.update({"x": [x for x, _ in rows], "g": [g for _, g in rows]}, group="g")
    for name, sketch in grouped.sketches.items():
        mine = [x for x, g in rows if g == name]
        expected = true_cells(mine) if mine else np.zeros(CELLS)
        np.testing.assert_array_equal(release(sketch).counts, expected)


def test_counts_and_plain_lists():
    with noiseless():
        grouped = GroupedSketch(["A", "B"], make)
    grouped.update([1, 2, 1], ["A", "B", "B"], counts=[5, 7, 1])
    totals = {name: int(release(sketch).counts.sum()) for name, sketch in grouped.sketches.items()}
    assert totals == {"A": 5, "B": 8}


def test_streams_from_files(tmp_path):
    path = tmp_path / "r.csv"
    rows = [(i % 7, "ABC"[i % 3]) for i in range(1000)]
    path.write_text("x,g\n" + "".join(f"{x},{g}\n" for x, g in rows))
    with noiseless():
        grouped = GroupedSketch(["A", "B"], make, unknown="drop")
    wanted = Wanted(columns=("x",), integers=True, group="g")
    grouped.take_in(open_source([path]).batches(wanted, chunk=100))
    for name, sketch in grouped.sketches.items():
        np.testing.assert_array_equal(release(sketch).counts, true_cells(x for x, g in rows if g == name))


def test_undeclared_groups_are_refused_or_dropped():
    grouped = GroupedSketch(["A"], make, unknown="error")
    with pytest.raises(InputError, match="groups must be declared"):
        grouped.update([1, 2], ["A", "B"])
    with noiseless():
        dropping = GroupedSketch(["A"], make)
    dropping.update([1, 2], ["A", "B"])
    assert release(dropping.sketches["A"]).counts.sum() == 1


def test_occurrences_are_parallel_and_persons_add_up():
    events = GroupedSketch(["A", "B", "C"], make)
    assert events.person_epsilon is None
    assert "all 3 together keep the same ε" in events.guarantee
    persons = GroupedSketch(["A", "B", "C"], lambda: make(max_contributions=2))
    persons.update({"x": [1, 2, 3], "g": ["A", "A", "B"], "who": ["p", "q", "p"]}, group="g", person="who")
    assert persons.person_epsilon == Fraction(3)  # every group is charged, also the empty one
    assert "all 3 together give ε = 3 for one person" in persons.guarantee
    persons.take_in([])
    assert persons.person_epsilon == Fraction(6)


def test_persons_are_limited_in_each_group():
    with noiseless():
        grouped = GroupedSketch(["A", "B"], lambda: make(max_contributions=2))
        grouped.update(
            {"x": [1] * 10 + [2], "g": ["A"] * 5 + ["B"] * 6, "who": ["p"] * 10 + ["q"]}, group="g", person="who"
        )
    totals = {name: int(release(sketch).counts.sum()) for name, sketch in grouped.sketches.items()}
    assert totals == {"A": 2, "B": 3}


def test_empty_groups_look_like_any_other(tmp_path):
    grouped = GroupedSketch(["full", "empty"], make)
    grouped.update([1, 2], ["full", "full"])
    assert grouped.sketches["full"].layout == grouped.sketches["empty"].layout
    grouped.save(tmp_path / "set")
    sizes = {path.stat().st_size for path in (tmp_path / "set").glob("*.sketch")}
    assert len(sizes) == 1


def test_save_load_merge(tmp_path):
    sets = []
    for i in range(2):
        grouped = GroupedSketch(["ä/b", "B"], make)
        grouped.update([i, i + 1], ["ä/b", "B"])
        grouped.save(tmp_path / f"s{i}")
        assert is_group_set(tmp_path / f"s{i}")
        with pytest.raises(SealedError):
            grouped.update([1], ["B"])
        sets.append(GroupedSketch.load(tmp_path / f"s{i}"))
    assert sets[0].groups == ("ä/b", "B")
    expected = {n: sets[0].release()[n].counts + sets[1].release()[n].counts for n in sets[0].groups}
    sets[0].merge(sets[1])
    for name, noisy in sets[0].release().items():
        np.testing.assert_array_equal(noisy.counts, expected[name])
        assert noisy.noise.power == 2
    with pytest.raises(IncompatibleError, match="groups must be equal"):
        GroupedSketch(["A"], make).merge(GroupedSketch(["B"], make))


def test_saving_replaces_a_set_and_nothing_else(tmp_path):
    GroupedSketch(["A", "B"], make).save(tmp_path / "set")
    GroupedSketch(["C"], make).save(tmp_path / "set")
    assert GroupedSketch.load(tmp_path / "set").groups == ("C",)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious").write_text("x")
    with pytest.raises(InputError, match="must be a new folder or a set of groups"):
        GroupedSketch(["A"], make).save(tmp_path / "mine")
    assert Counter(p.name for p in tmp_path.iterdir()) == {"set": 1, "mine": 1}


def test_hostile_and_broken_sets(tmp_path):
    GroupedSketch(["A"], make).save(tmp_path / "set")
    manifest = tmp_path / "set" / MANIFEST
    good = json.loads(manifest.read_text())
    for change, expected in (
        ({"files": ["../../etc/passwd"]}, "plain names"),
        ({"files": []}, "one length"),
        ({"version": 3}, "upgrade unnoise"),
        ({"unnoise": "sketch"}, "another kind"),
        ({"groups": ["A", "A"], "files": [*good["files"], "b.sketch"]}, "distinct"),
            ({"files": good["files"] * 2, "groups": ["A", "B"]}, "different plain names"),
            ({"generation": -1}, "generation must be a whole number"),
            ({"digest": "0" * 64}, "its digest does not match"),
            ({"groups": ["B"]}, "its digest does not match"),
            ({"groups": [7]}, "groups must be texts"),
    ):
        manifest.write_text(json.dumps({**good, **change}))
        with pytest.raises(FormatError, match=expected):
            GroupedSketch.load(tmp_path / "set")
    manifest.write_text("{")
    with pytest.raises(FormatError):
        GroupedSketch.load(tmp_path / "set")
    with pytest.raises(FormatError, match=r"no groups\.json"):
        GroupedSketch.load(tmp_path)


@pytest.mark.parametrize("groups", [[], ["A", "A"], [""], "AB", ["A", "all groups"]])
def test_bad_names(groups):
    with pytest.raises(InputError, match=r"groups must (be|not hold 'all groups')"):
        GroupedSketch(groups, make)


def test_a_frame_with_the_group_as_a_column():
    frame = pl.DataFrame({"x": [1, 1, 2], "g": ["A", "B", "A"]})
    with noiseless():
        grouped = GroupedSketch(["A", "B"], make)
    grouped.update(frame, group="g")
    assert release(grouped.sketches["A"]).counts.sum() == 2
    with pytest.raises(InputError, match="must name a column"):
        grouped.update(frame, group="h")


def test_cells_are_those_of_the_hash():
    """Guard against the group leaking into the hash: the cell of an item is the same in every group."""
    with noiseless():
        grouped = GroupedSketch(["A", "B"], make)
    grouped.update([12345, 12345], ["A", "B"])
    layout = grouped.sketches["A"].layout
    cell = int(cells_of(hash_columns([np.array([12345])], layout.hash_seed), layout)[0])
    for sketch in grouped.sketches.values():
        assert release(sketch).counts[cell] == 1


@pytest.mark.parametrize(
    "kind", ["list", "polars", "arrow", "large arrow", "view", "dictionary", "pandas", "numpy", "integers"]
)
def test_groups_come_as_any_column(kind):
    names = ["A", "B", "A"]
    columns = {
        "list": names, "polars": pl.Series(names), "arrow": pa.array(names),
        "large arrow": pa.array(names, pa.large_string()), "view": pa.array(names, pa.string_view()),
        "dictionary": pa.array(names).dictionary_encode(), "pandas": pd.Series(names), "numpy": np.array(names),
        "integers": [7, 8, 7],
    }  # fmt: skip
    groups = ["7", "8"] if kind == "integers" else ["A", "B"]
    with noiseless():
        grouped, streamed = GroupedSketch(groups, make), GroupedSketch(groups, make)
    grouped.update([1, 2, 3], columns[kind])
    assert [int(sketch._held.array().sum()) for sketch in grouped.sketches.values()] == [2, 1]
    if kind not in ("list", "numpy", "integers"):
        table = pa.table({"x": [1, 2, 3], "g": columns[kind]})
        streamed.update(table.to_reader(), group="g")
        assert [int(sketch._held.array().sum()) for sketch in streamed.sketches.values()] == [2, 1]


def test_a_column_named_group_is_a_column_like_any_other():
    """It used to be taken for the group, in silence, whatever column was asked for."""
    table = {"group": [1, 2, 3], "where": ["A", "B", "A"]}
    with noiseless():
        one, other = GroupedSketch(["A", "B"], make), GroupedSketch(["A", "B"], make)
    one.update(table, group="where")
    other.update({"x": [1, 2, 3], "group": ["A", "B", "A"]}, group="group")
    for name in "AB":
        np.testing.assert_array_equal(release(one.sketches[name]).counts, release(other.sketches[name]).counts)
    assert release(one.sketches["A"]).counts.sum() == 2


def test_a_file_with_a_column_named_group(tmp_path):
    (tmp_path / "r.csv").write_text("group,where\n1,A\n2,B\n3,A\n")
    with noiseless():
        grouped = GroupedSketch(["A", "B"], make)
    wanted = Wanted(columns=("group",), integers=True, group="where")
    grouped.take_in(open_source([tmp_path / "r.csv"]).batches(wanted))
    assert [int(sketch._held.array().sum()) for sketch in grouped.sketches.values()] == [2, 1]


@pytest.mark.parametrize("name", ["<b>bold</b>", "[red]x[/red]", "a,b", "=1+1", "é\u202e", "a/b", "..", "x" * 150])
def test_names_with_markup_count_and_come_back(name, tmp_path):
    with noiseless():
        grouped = GroupedSketch([name, "B"], make)
    grouped.update([1, 2, 3], [name, "B", name])
    assert [int(sketch._held.array().sum()) for sketch in grouped.sketches.values()] == [2, 1]
    saved = GroupedSketch([name, "B"], make)
    saved.save(tmp_path / "set")
    assert GroupedSketch.load(tmp_path / "set").groups == (name, "B")
    assert {p.parent for p in tmp_path.rglob("*.sketch")} == {tmp_path / "set"}
    assert "\u202e" not in repr(saved)


@pytest.mark.parametrize("name", ["a\x1b[2Jb", "a\nb", "a\0b", "\x07"])
def test_control_characters_in_names_are_inert(name, tmp_path):
    grouped = GroupedSketch([name, "B"], make, unknown="error")
    assert name not in repr(grouped)
    with pytest.raises(InputError, match="groups must be declared") as caught:
        grouped.update([1], ["C"])
    assert name not in str(caught.value)
    with pytest.raises(InputError, match="distinct") as caught:
        GroupedSketch([name, name], make)
    assert name not in str(caught.value)
    grouped.save(tmp_path / "set")
    assert GroupedSketch.load(tmp_path / "set").groups == (name, "B")


def test_names_of_groups_may_stand_on_lines(tmp_path: Path) -> None:
    """As from ``--groups "$(cat zips)"``, which was a fault; so was a name of a hundred thousand letters."""
    (tmp_path / "a.csv").write_text("x,g\n1,00123\n2,b\n")
    words = ("profile", "a.csv", "-c", "x", "-e", "1", "--by", "g", "--json", "--groups")
    done = run_in(tmp_path, *words, "00123\nb\n", UNNOISE_LEDGER="off")
    assert list(json.loads(done.stdout)["groups"]) == ["00123", "b"]
    done = run_in(tmp_path, *words, "b" * 200_000, UNNOISE_LEDGER="off")
    assert done.returncode == 2
    assert done.stderr.startswith("unnoise: --groups must be names between commas or on lines of their own: field")
