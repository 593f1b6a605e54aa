"""Nothing observable depends on the data but through the noise."""

from __future__ import annotations

import contextlib
import io
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

from sketch_tools import make
from unnoise.cli import main
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
HEADER = ("x", "g", "who", "n")
HASHED = ("sketch", "-c", "x", "--cells", "64")
COMMANDS = {
    "hashed": HASHED,
    "levels": (*HASHED, "--levels", "4"),
    "columns": (*HASHED, "-c", "g"),
    "counts": (*HASHED, "--count-column", "n"),
    "persons": (*HASHED, "--person", "who", "--max-contributions", "2"),
    "pan-private": (*HASHED, "--pan-private"),
    "groups": (*HASHED, "--by", "g", "--groups", "A,B"),
    "groups of persons": (*HASHED, "--by", "g", "--groups", "A,B", "--person", "who", "--max-contributions", "2"),
    "known": ("sketch", "-c", "x", "--domain", "DOMAIN"),
    "known groups": ("sketch", "-c", "x", "--domain", "DOMAIN", "--by", "g", "--groups", "A,B"),
    "sampled": ("sketch", "-c", "x", "--domain", "DOMAIN", "--rate", "1"),
    "query": (*HASHED, "--sql", "SELECT x FROM data WHERE g = 'A'"),
    "profile": ("profile", "-c", "x"),
    "profile of groups": ("profile", "-c", "x", "--by", "g", "--groups", "A,B"),
    "profile by sketch": ("profile", "-c", "x", "--cells", "2^14", "--sketch", "--method", "isotonic"),
}
FORMATS = ("csv", "parquet", "arrow", "ndjson", "csv from standard input", "arrow from standard input")


def write_rows(rows: list[tuple[str, ...]], path: Path, format: str) -> None:
    """Write the rows; an empty text is a null."""
    frame = pl.DataFrame([[v or None for v in row] for row in rows], dict.fromkeys(HEADER, pl.String), orient="row")
    if format.startswith("csv"):
        frame.write_csv(path)
    elif format == "ndjson":
        frame.write_ndjson(path)
    elif format == "parquet":
        frame.cast({"n": pl.Int64}).write_parquet(path)
    elif format == "arrow":
        frame.cast({"n": pl.Int64}).write_ipc(path)
    else:
        table = frame.cast({"n": pl.Int64}).to_arrow()
        with pa.ipc.new_stream(path, table.schema) as stream:
            for batch in table.to_batches() if rows else []:
                stream.write_batch(batch)


def run_command(command: tuple[str, ...], source: Path, format: str, folder: Path) -> tuple[int, str]:
    """Run a command in this process; return its exit code and what it says, all numbers and names left out."""
    streamed = format.endswith("input")
    options = ["--format", format.split()[0]] if streamed else []
    written = ["-o", str(folder / "out")] if command[0] == "sketch" else ["--json"]
    words = [str(source.parent / "domain.txt") if word == "DOMAIN" else word for word in command]
    given = io.BytesIO(source.read_bytes() if streamed else b"")
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["unnoise", *words, "-" if streamed else str(source), "-e", "1", *written, *options])
        patch.setattr(sys, "stdin", io.TextIOWrapper(given))
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as left:
            main()
    code = int(left.value.code or 0)
    return code, err.getvalue().replace(str(folder), "").replace(str(source), "") if code else ""


def observed(folder: Path) -> dict[str, tuple[int, dict[str, Any]]]:
    """Return names, sizes and metadata of all files, without what is random or the day."""
    found = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        parameters: dict[str, Any] = {}
        if path.read_bytes()[:6] == b"ARROW1":
            with pa.memory_map(str(path)) as source:
                metadata = pa.ipc.open_file(source).schema.metadata
            parameters = json.loads(metadata[b"unnoise.parameters"])
            for random in ("identities", "created"):
                parameters.pop(random)
        found[str(path.relative_to(folder))] = (path.stat().st_size, parameters)
    return found


def seen_from_outside(command: str, format: str, rows: list[tuple[str, ...]], folder: Path) -> Any:
    """Everything that does not go through the noise."""
    folder.mkdir()
    (folder / "out").mkdir()
    (folder / "domain.txt").write_text("a\nb\nc\n")
    source = folder / f"rows.{format.split()[0]}"
    write_rows(rows, source, format)
    code, text = run_command(COMMANDS[command], source, format, folder / "out")
    return code, text, observed(folder / "out")


@pytest.mark.parametrize("pair", NEIGHBOURS)
@pytest.mark.parametrize("command", COMMANDS)
def test_neighbours_look_alike(command: str, pair: str, tmp_path: Path) -> None:
    left, right = (
        seen_from_outside(command, "csv", rows, tmp_path / name)
        for name, rows in zip(("left", "right"), NEIGHBOURS[pair])
    )
    assert left == right
    assert left[0] == 0, left[1]
    assert bool(left[2]) == (COMMANDS[command][0] == "sketch")


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("command", ["hashed", "columns"])
def test_no_rows_in_any_format(command: str, format: str, tmp_path: Path) -> None:
    left, right = (
        seen_from_outside(command, format, rows, tmp_path / name) for name, rows in (("one", ROWS[:1]), ("none", []))
    )
    assert left == right
    assert left[0] == 0, left[1]
    assert left[2]


def test_the_comparison_finds_a_choice_that_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: --unknown error is the user's choice, and the comparison sees what it tells."""
    monkeypatch.setitem(COMMANDS, "telling", (*COMMANDS["known"], "--unknown", "error"))
    rows = NEIGHBOURS["outside the domain"]
    left, right = (seen_from_outside("telling", "csv", r, tmp_path / n) for n, r in zip(("left", "right"), rows))
    assert (left[0], right[0]) == (0, 2)
    assert left[2] != right[2]


def test_a_missing_file_or_column_still_fails(tmp_path: Path) -> None:
    source = tmp_path / "rows.csv"
    write_rows([], source, "csv")
    assert run_command(("sketch", "-c", "y", "--cells", "64"), source, "csv", tmp_path)[0] == 2
    assert run_command(HASHED, tmp_path / "no.csv", "csv", tmp_path)[0] == 2
    source.write_text("")
    assert run_command(HASHED, source, "csv", tmp_path)[0] == 2


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
