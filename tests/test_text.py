"""Text that came with data does nothing: not in a terminal, a page, a spreadsheet, JSON or an error."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from base64 import b64decode
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unnoise.answers.reconstruct import reconstruct
from unnoise.answers.report import report
from unnoise.cli import main
from unnoise.errors import InputError, UnnoiseError
from unnoise.layout import Labels
from unnoise.reading.groups import GroupedSketch
from unnoise.sketches.sketch import Sketch
from unnoise.text import LONGEST_NAME, inert, inert_cell, inert_html, inert_json, inert_markup

HOSTILE = "=x\x1b]0;owned\x07\x9b31m\u202e[red]<script>alert(1)</script>&\"'"
"""A formula, escapes of a terminal in seven and eight bits, a turned direction, markup of Rich and HTML."""


def dangers(text: str) -> list[str]:
    """What a terminal would act upon: every character that is not printable, lines apart."""
    return sorted({c for c in text if not c.isprintable() and c != "\n"})


def test_the_check_finds_what_it_looks_for() -> None:
    assert dangers(HOSTILE) == ["\x07", "\x1b", "\x9b", "\u202e"]


@given(st.text())
def test_nothing_unprintable_is_left(text: str) -> None:
    assert inert(text).isprintable()
    assert inert(inert(text)) == inert(text)
    assert not inert_cell(text).lstrip().startswith(("=", "+", "-", "@"))
    assert not set("<>\"'") & set(inert_html(text))
    if text.isprintable():
        assert inert(text) == text


@given(st.text(), st.text())
def test_json_means_the_same_afterwards(key: str, value: str) -> None:
    text = json.dumps({key: [value]}, indent=1, ensure_ascii=False)
    assert json.loads(inert_json(text)) == {key: [value]}
    assert dangers(inert_json(text)) == []


@given(st.text(alphabet="[]/abc#@ ="))
def test_rich_prints_what_was_given(text: str) -> None:
    from rich.text import Text

    assert Text.from_markup(inert_markup(text)).plain == text


def test_names_are_plain_or_refused() -> None:
    assert Labels(site=("Zürich 7 – 漢字 🦀",)).site
    for bad in ("", "  ", "a\nb", "\x1b[2J", "x" * (LONGEST_NAME + 1), "a\u202eb", "\ud800"):
        with pytest.raises(InputError, match="site must be a printable text"):
            Labels(site=(bad,))


def test_errors_are_inert_whatever_they_name() -> None:
    for error in (UnnoiseError(f"got {HOSTILE}"), InputError(HOSTILE, 7)):
        assert dangers(str(error)) == []
    assert str(InputError("must be ≥ 1, got 0")) == "must be ≥ 1, got 0"


@pytest.fixture
def hostile_csv(tmp_path: Path) -> str:
    path = tmp_path / "data.csv"
    rows = [[HOSTILE, "group"], *[["a", HOSTILE], ["b", "plain"]] * 50]
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return str(path)


def test_a_header_in_an_error(hostile_csv: str) -> None:
    """On a terminal the names of the columns are in the message, and no escape sequence among them."""
    there = "from unnoise.reading import formats; formats.on_terminal = lambda: True"
    program = f"{there}; from unnoise.cli import main; main()"
    command = [sys.executable, "-c", program, "sketch", hostile_csv, "-c", "nothing"]
    done = subprocess.run([*command, "-e", "1", "-o", "-"], capture_output=True, check=False)
    message = done.stderr.decode()
    assert done.returncode == 2
    assert "owned" in message
    assert dangers(message) == []


@pytest.fixture
def hostile_groups(tmp_path: Path) -> GroupedSketch:
    grouped = GroupedSketch([HOSTILE, "plain"], lambda: Sketch.hashed(2**10, epsilon=1, item_types=["str"]))
    grouped.update({"item": ["a", "b"] * 50, "group": [HOSTILE, "plain"] * 50}, group="group")
    grouped.save(tmp_path / "set")
    return GroupedSketch.load(tmp_path / "set")


@pytest.mark.parametrize("command", [["estimate"], ["estimate", "--json"], ["inspect"], ["inspect", "--json"]])
@pytest.mark.usefixtures("hostile_groups")
def test_groups_in_a_terminal(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.setattr(sys, "argv", ["unnoise", *command, str(tmp_path / "set")])
    with pytest.raises(SystemExit) as left:
        main()
    assert not left.value.code
    shown = capsys.readouterr().out
    assert dangers(shown) == []
    if command == ["inspect"]:
        return  # it names no group
    assert "owned" in shown
    if "--json" not in command:
        assert "[red]" in re.sub(r"\s", "", shown), "markup is shown, not obeyed"


def test_groups_in_a_report(hostile_groups: GroupedSketch) -> None:
    page = report({name: reconstruct(noisy) for name, noisy in hostile_groups.release().items()}, title=HOSTILE)
    assert dangers(page) == []
    assert "<script>alert" not in page
    assert "alert(1)" in page
    (encoded,) = re.findall(r"data:text/csv;base64,([A-Za-z0-9+/=]+)", page)
    rows = list(csv.reader(io.StringIO(b64decode(encoded).decode())))
    names = {row[0] for row in rows[1:]}
    assert names == {inert_cell(HOSTILE), "plain"}
    assert not any(name.startswith("=") for name in names)
