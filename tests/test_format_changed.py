"""Files that somebody changes after they were verified, and what is said about sketches when they are merged."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from unnoise.cli import main
from unnoise.errors import FormatError, IncompatibleError, InputError, PrivacyError
from unnoise.layout import Labels
from unnoise.sketches import format as writing
from unnoise.sketches.sketch import Sketch

CELLS = 2**18


def today() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    Sketch.known(CELLS, epsilon=1).save(tmp_path / "a")
    return tmp_path / "a"


def overwrite(path: Path) -> None:
    """Change one cell in place, as another process might."""
    with open(path, "r+b") as file:
        file.seek(path.stat().st_size // 2)
        file.write(b"\x55" * 8)


def truncate(path: Path) -> None:
    os.truncate(path, 1000)


USES: dict[str, Callable[[Sketch, Path], Any]] = {
    "release": lambda sketch, _: sketch.release(),
    "save": lambda sketch, folder: sketch.save(folder / "copy"),
    "begin_epoch": lambda sketch, _: sketch.begin_epoch(),
    "merge into a file": lambda sketch, folder: (sketch + loaded(folder / "b")).save(folder / "sum"),
    "merge in memory": lambda sketch, folder: (sketch + loaded(folder / "b")).release(),
    "merge with an open one": lambda sketch, _: sketch.merge(Sketch.known(CELLS, epsilon=1)),
}


def loaded(path: Path) -> Sketch:
    if not path.exists():
        Sketch.known(CELLS, epsilon=1).save(path)
    return Sketch.load(path)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("change", [overwrite, truncate])
def test_a_file_changed_after_it_was_verified_is_refused(use: str, change: Callable[[Path], None], path: Path) -> None:
    sketch = Sketch.load(path)
    change(path)
    with pytest.raises(FormatError, match="must stay as it was when it was verified"):
        USES[use](sketch, path.parent)
    assert sorted(p.name for p in path.parent.iterdir() if p.name != "b") == ["a"], "no half of a file is left"


@pytest.mark.parametrize("use", USES)
def test_an_unchanged_file_is_used(use: str, path: Path) -> None:
    """The negative control of the test above."""
    USES[use](Sketch.load(path), path.parent)


@pytest.mark.parametrize("change", [overwrite, truncate])
def test_what_was_released_does_not_change_any_more(change: Callable[[Path], None], path: Path) -> None:
    counts = Sketch.load(path).release().counts
    before = counts.copy()
    change(path)
    assert (counts == before).all()


def test_a_file_replaced_as_a_whole_leaves_the_loaded_sketch_alone(path: Path) -> None:
    sketch, other = Sketch.load(path), Sketch.known(CELLS, epsilon=1)
    expected = Sketch.load(path).release().counts
    other.save(path)
    assert (sketch.release().counts == expected).all()
    assert (Sketch.load(path).release().counts == other.release().counts).all()


WRITER = """
import os, random, sys
path, size = sys.argv[1], int(sys.argv[2])
print("ready", flush=True)
handle = os.open(path, os.O_RDWR)
whole = os.pread(handle, size, 0)
rng = random.Random(7)
while True:
    at = rng.randrange(size - 9)
    os.pwrite(handle, b"Z" * 9, at)
    if rng.random() < 0.3:
        os.ftruncate(handle, at)
    os.pwrite(handle, whole, 0)
"""


def test_a_busy_writer_makes_no_wrong_sketch_and_no_crash(path: Path) -> None:
    """Another process writes into the file and cuts it short all the time: the right cells or an error, no SIGBUS."""
    expected = Sketch.load(path).release().counts.copy()
    command = [sys.executable, "-c", WRITER, str(path), str(path.stat().st_size)]
    outcomes = {"right": 0, "refused": 0}
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        try:
            for _ in range(150):
                try:
                    counts = Sketch.load(path).release().counts
                except FormatError:
                    outcomes["refused"] += 1
                    continue
                assert (counts == expected).all()
                outcomes["right"] += 1
        finally:
            writer.kill()
    print(f"under a busy writer: {outcomes}")
    assert outcomes["refused"] > 10


def test_a_folder_that_cannot_be_written_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing.os, "access", lambda *_: False)
    sketch = Sketch.known(10, epsilon=1)
    with pytest.raises(PermissionError, match="can be written"):
        sketch.save(tmp_path / "a")
    assert not sketch.sealed


def test_parameters_too_long_for_a_file_are_refused_before_sealing(tmp_path: Path) -> None:
    sketch = Sketch.known(10, epsilon=1, labels={"site": [f"site {i} {'x' * 150}" for i in range(7000)]})
    with pytest.raises(InputError, match="parameters must be at most 1 MB"):
        sketch.save(tmp_path / "a")
    assert not sketch.sealed
    fewer = Sketch.known(10, epsilon=1, labels={"site": [f"site {i} {'x' * 150}" for i in range(5000)]})
    fewer.save(tmp_path / "a")
    assert len(Sketch.load(tmp_path / "a").labels.site) == 5000


# ── labels ────────────────────────────────────────────────────────────────────────────────────────────────────


def labelled(**labels: Any) -> Sketch:
    return Sketch.known(4, epsilon=1, labels=labels)


def test_labels_go_into_the_file_and_come_back(tmp_path: Path) -> None:
    given = {"label": "January", "site": "north", "period": ["2026-01"], "column": ["plane", "é"], "report_ids": ["7"]}
    sketch = labelled(**given)
    assert sketch.labels == Labels(
        label="January", site=("north",), period=("2026-01",), column=("plane", "é"), unit="occurrence",
        created=today(), report_ids=("7",),
    )  # fmt: skip
    sketch.save(tmp_path / "a")
    assert Sketch.load(tmp_path / "a").labels == sketch.labels


def test_merging_compares_column_and_unit_not_site_or_period() -> None:
    both = labelled(site="a", period="1", label="x") + labelled(site="b", period="2", label="y", column=["plane"])
    assert (both.labels.site, both.labels.period, both.labels.label) == (("a", "b"), ("1", "2"), "")
    assert both.labels.column == ("plane",)
    with pytest.raises(IncompatibleError, match="column must be equal to merge"):
        both.merge(labelled(column=["tail"]))
    persons = [Sketch.known(4, epsilon=1, max_contributions=1, labels={"unit": u}) for u in ("person", "household")]
    with pytest.raises(IncompatibleError, match="unit must be equal to merge, got 'person' and 'household'"):
        persons[0].merge(persons[1])


def test_a_refused_merge_names_the_sketches(tmp_path: Path) -> None:
    labelled(site="north", period="May").save(tmp_path / "a.sketch")
    Sketch.known(4, epsilon=2, labels={"site": "south"}).save(tmp_path / "b.sketch")
    one, two = (Sketch.load(tmp_path / name) for name in ("a.sketch", "b.sketch"))
    said = r"must be equal to merge, got '1' and '2'; in \S*a.sketch \(site north, period May\) and \S*b.sketch "
    for merge in (lambda: one.merge(two), lambda: one + two, lambda: sum([one, two])):
        with pytest.raises(IncompatibleError, match=said):
            merge()
    with pytest.raises(PrivacyError, match=r"noise identities must be disjoint.*; in \S*a.sketch .* and \S*a.sketch "):
        one.merge(Sketch.load(tmp_path / "a.sketch"))
    with pytest.raises(IncompatibleError, match="; in label x and a sketch without a name"):
        labelled(label="x").merge(Sketch.known(4, epsilon=2))
    with pytest.raises(IncompatibleError, match=r"got '1' and '2'$"):
        Sketch.known(4, epsilon=1).merge(Sketch.known(4, epsilon=2))


def test_a_report_is_in_one_sum_only() -> None:
    first, second = labelled(report_ids=["1", "2"]), labelled(report_ids=["2", "3"])
    with pytest.raises(PrivacyError, match="reports must be in one sum only to merge, both contain '2'"):
        first.merge(second)
    assert not first.sealed
    first.merge(labelled(report_ids=["3"]))
    assert first.labels.report_ids == ("1", "2", "3")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"label": "a\nb"}, "label must be a printable text"),
        ({"site": "\x1b[31m"}, "site must be a printable text"),
        ({"site": [""]}, "site must be a printable text"),
        ({"label": 7}, "label must be a printable text"),
        ({"label": "x" * 201}, "at most 200 characters"),
        ({"created": "2026-13-01"}, "created must be a day"),
        ({"colour": "red"}, "labels must be among column, created"),
        ({"unit": "person"}, "unit must be occurrence"),
    ],
)
def test_labels_that_are_refused(labels: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        labelled(**labels)


def test_labels_come_in_one_order() -> None:
    labels = labelled(site=["b", "a", "b"], column=["b", "a"]).labels
    assert (labels.site, labels.column) == (("a", "b"), ("b", "a"))


def test_the_command_line_labels_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*arguments: object) -> int:
        monkeypatch.setattr(sys, "argv", ["unnoise", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
        return int(left.value.code or 0)

    (tmp_path / "a.csv").write_text("url,page\nx,1\ny,2\n")
    asked = [tmp_path / "a.csv", "-e", "1", "--cells", "2^6"]
    for site, column in (("north", "url"), ("south", "url"), ("west", "page")):
        labels = ["--site", site, "--period", "2026-01", "--label", "January"]
        assert run("sketch", *asked, "-c", column, *labels, "-o", tmp_path / site) == 0
    assert Sketch.load(tmp_path / "north").labels == Labels(
        label="January", site=("north",), period=("2026-01",), column=("url",), unit="occurrence", created=today()
    )
    assert run("merge", tmp_path / "north", tmp_path / "south", "-o", tmp_path / "both") == 0
    assert Sketch.load(tmp_path / "both").labels.site == ("north", "south")
    capsys.readouterr()
    assert run("inspect", tmp_path / "both") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert all(text in shown for text in ("January", "north, south", "2026-01", "url", today()))
    assert run("merge", tmp_path / "north", tmp_path / "west", "-o", tmp_path / "wrong") == 2
    assert "column must be equal to merge, got 'url' and 'page'" in capsys.readouterr().err
