"""Nothing observable depends on the data but through the noise."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "audits"))

from _commands import CHAIN, FORMS, NO_DATA, SERVED, chain, counted, readable
from _hostile_words import commands
from _observe import FORMATS, difference, observation, write_rows

from sketch_tools import make
from unnoise.cli._app import ORDER
from unnoise.reading.groups import GroupedSketch
from unnoise.sketches.sketch import Sketch

SECRET = 987_654_321
"""A count that no noise reaches: if it shows anywhere, an exact value has leaked."""


def exact_texts(sketch: Sketch, path: Path) -> list[str]:
    """Everything a sketch says about itself, except its noisy cells."""
    texts = [repr(sketch), str(sketch), sketch.guarantee, repr(sketch.layout), repr(sketch.release())]
    sketch.save(path)
    with pa.memory_map(str(path)) as source:
        metadata = pa.ipc.open_file(source).schema.metadata
    return texts + [value.decode() for value in metadata.values()]


def test_no_exact_value_in_file_repr_or_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    texts: list[list[str]] = []
    for rows in (1, 12_347):
        sketch = make(epsilon=2)
        sketch.update(["secret-item"] * rows, [SECRET] * rows)
        sketch._identities = frozenset([bytes(16)])
        texts.append([t for t in exact_texts(sketch, tmp_path / "a") if not is_digest(t)])
    assert texts[0] == texts[1]  # the same words whatever the data
    everything = "".join(texts[1]) + caplog.text
    assert "secret-item" not in everything
    for number in (SECRET, 12_347, SECRET * 12_347):
        assert str(number) not in everything
        assert f"{number:,}" not in everything


def is_digest(text: str) -> bool:
    return len(text) == 64 and all(c in "0123456789abcdef" for c in text)


def test_file_holds_noisy_cells_only(tmp_path: Path) -> None:
    sketch = Sketch.known(["secret-item", "other"], epsilon=1)
    sketch.update(["secret-item"] * 5)
    sketch.save(tmp_path / "a")
    raw = (tmp_path / "a").read_bytes()
    assert b"secret-item" not in raw
    assert json.loads(pa.ipc.open_file(str(tmp_path / "a")).schema.metadata[b"unnoise.parameters"])["cells"] == 2


# ── neighbours ────────────────────────────────────────────────────────────────────────────────────────────────

ROWS = [("a", "A", "p", "1"), ("b", "B", "q", "2")]
NEIGHBOURS = {
    "no row": (ROWS[:1], []),
    "one more": (ROWS, [*ROWS, ("b", "B", "r", "1")]),
    "outside the domain": (ROWS, [*ROWS, ("zz", "A", "p", "1")]),
    "another group": (ROWS, [*ROWS, ("a", "C", "p", "1")]),
    "an empty group": (ROWS, ROWS[:1]),
    "a null": (ROWS, [*ROWS, ("", "A", "p", "1")]),
    "a huge count": (ROWS, [*ROWS, ("a", "A", "p", str(2**62))]),
}


@pytest.mark.parametrize("pair", NEIGHBOURS)
@pytest.mark.parametrize("form", FORMS)
def test_neighbours_look_alike(form: str, pair: str, tmp_path: Path) -> None:
    left, right = (counted(form, rows, readable(form, "csv"), tmp_path / "here") for rows in NEIGHBOURS[pair])
    assert difference(left, right) == ""
    assert left["exit"] == 0, left["error"]
    assert set(left["files"]) >= {"domain.txt"}
    if FORMS[form][0] == "sketch":
        assert any(name.startswith("out") for name in left["files"])


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("form", ["hashed", "columns", "profile"])
def test_no_rows_in_any_format(form: str, format: str, tmp_path: Path) -> None:
    left, right = (counted(form, rows, format, tmp_path / "here") for rows in (ROWS[:1], []))
    assert difference(left, right) == ""
    assert left["exit"] == 0, left["error"]


@pytest.mark.slow
def test_every_other_command_looks_alike(tmp_path: Path) -> None:
    """All commands one after another on what came of neighbours, one of them without rows; a collector's at the end."""
    one, two = (chain(rows, tmp_path / "here", 1, served=True) for rows in (ROWS[:1], []))
    for left, right in zip(one, two):
        assert difference(left, right) == "", left["command"]
        assert left["exit"] == 0, (left["command"], left["error"])
    assert len(one) == len(two) == len(CHAIN) + len(SERVED)


def test_every_command_is_observed() -> None:
    observed = {words.split()[0] for words, _ in (*CHAIN, *SERVED)} | {words[0] for words in FORMS.values()}
    assert observed | set(NO_DATA) == set(ORDER)
    assert {" ".join(words[:2]) for words in commands() if words[0] == "share"} == {
        " ".join(words.split()[:2]) for words, _ in CHAIN if words.startswith("share")
    }


def test_the_comparison_finds_a_choice_that_tells(tmp_path: Path) -> None:
    """Negative control: --unknown error is the user's choice, and the comparison sees what it tells."""
    rows = NEIGHBOURS["outside the domain"]
    left, right = (counted("known", r, "csv", tmp_path / "here", extra=("--unknown", "error")) for r in rows)
    assert (left["exit"], right["exit"]) == (0, 2)
    assert "/error" in difference(left, right)
    assert left["files"] != right["files"]


def test_a_missing_file_or_column_still_fails(tmp_path: Path) -> None:
    write_rows([], tmp_path / "rows.csv", "csv")
    missing = ["sketch", "rows.csv", "-c", "y", "--cells", "64", "-e", "1", "-o", "out"]
    assert observation(missing, tmp_path)["exit"] == 2
    hashed = ["-c", "x", "--cells", "64", "-e", "1", "-o", "out"]
    assert observation(["sketch", "no.csv", *hashed], tmp_path)["exit"] == 2
    (tmp_path / "rows.csv").write_text("")
    assert observation(["sketch", "rows.csv", *hashed], tmp_path)["exit"] == 2


@pytest.mark.parametrize(
    ("none", "some"),
    [
        ([], ["a"]),
        ([None], [1]),
        (iter([]), iter(["a"])),
        (np.array([], dtype=np.int64), np.array([5])),
        (pl.Series([], dtype=pl.String), pl.Series(["a"])),
        (pa.table({"x": pa.array([], pa.int64())}), pa.table({"x": [1]})),
        (pa.table({"x": pa.array([], pa.string())}).to_reader(), pa.table({"x": ["a"]}).to_reader()),
        (pd.DataFrame({"x": []}, dtype=object), pd.DataFrame({"x": ["a"]}, dtype=object)),
    ],
)
def test_types_do_not_tell_whether_a_row_was_there(none: Any, some: Any) -> None:
    layouts = []
    for items in (none, some):
        sketch = make()
        sketch.update(items)
        layouts.append(sketch.release().layout)
    assert layouts[0] == layouts[1]


def test_a_set_with_empty_groups_looks_alike_and_loads_again(tmp_path: Path) -> None:
    """Item types found in the rows used to show in the groups that have some, and the set could not be loaded."""
    for items in (["a"], np.array([5])):
        grouped = GroupedSketch(["full", "empty"], make)
        grouped.update(items, ["full"])
        grouped.save(tmp_path / "set")
        again = GroupedSketch.load(tmp_path / "set")
        assert again.sketches["full"].layout == again.sketches["empty"].layout
