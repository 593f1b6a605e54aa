"""Answers as files: the end of the name decides, nothing is lost, and nothing that cost ε is overwritten."""

from __future__ import annotations

import base64
import csv
import errno
import io
import json
import os
import re
import sys
import zipfile
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from command_tools import run_in
from unnoise.answers.compare import Comparison, compare
from unnoise.answers.estimate import TOO_NOISY, Estimate, sensible, sensible_rows
from unnoise.answers.export import SUFFIXES, WRITERS, answers_document, comparison_document
from unnoise.answers.questions import Asked, Sheet, noun, sheets
from unnoise.answers.reconstruct import reconstruct
from unnoise.answers.render import first_sentence
from unnoise.answers.report import profiles_document, report_page
from unnoise.api import direct
from unnoise.cli import _output, main
from unnoise.cli._output import check_output, print_sheets
from unnoise.errors import InputError
from unnoise.ledger import Ledger
from unnoise.sketches.sketch import Sketch

COUNTS = np.repeat([0, 1, 2, 7], [400, 300, 200, 100])
ASKED = Asked(at_least=(1, 3), headline="at_least_3", noun=noun("user"))


@pytest.fixture(scope="module")
def found() -> dict[str, Sheet]:
    groups = (("=North", 1), ("South|", 2))
    return sheets({name: reconstruct(COUNTS * k, epsilon=10, method="isotonic") for name, k in groups}, ASKED)


@pytest.fixture(scope="module")
def document(found):
    made = profiles_document(found, title="Reach <b>", guarantee="ε = 50 *here*.")
    return replace(made, about={**made.about, "note 1": "mind"}, page=lambda: "<html>page</html>")


# ── one document, six kinds of file ───────────────────────────────────────────────────────────────────────────


def test_csv_and_parquet_hold_the_same_long_table(document, tmp_path):
    rows = list(csv.DictReader(io.StringIO(WRITERS[".csv"](document).decode())))
    (tmp_path / "x.parquet").write_bytes(WRITERS[".parquet"](document))
    table = pl.read_parquet(tmp_path / "x.parquet")
    assert table.columns == list(rows[0])
    assert [float(row["estimate"]) for row in rows] == table["estimate"].to_list()
    once = table.filter((pl.col("group") == "=North") & (pl.col("question") == "exactly_1")).row(0, named=True)
    assert (once["first"], once["last"], round(once["estimate"])) == (1, 1, 300)
    reach = table.filter((pl.col("group") == "=North") & (pl.col("question") == "at_least_3")).row(0, named=True)
    assert (reach["first"], reach["last"], round(reach["estimate"])) == (3, None, 100)
    ranges = table.filter((pl.col("group") == "=North") & (pl.col("question") == "range"))
    assert ranges["estimate"].sum() == pytest.approx(600, rel=1e-4)
    assert rows[0]["group"] == "'=North", "a spreadsheet must not see a formula"


def test_json_holds_everything(document, found):
    whole = json.loads(WRITERS[".json"](document))
    assert whole["guarantee"] == "ε = 50 *here*."
    answers = whole["groups"]["=North"]["answers"]
    assert answers["at_least_3"]["value"] == pytest.approx(100, rel=1e-4)
    assert set(answers) == set(found["=North"].answers)
    assert {"kind", "data_share", "marked"} <= set(answers["distinct"])


def test_json_and_tables_hold_the_same_numbers_and_words_without_digits_of_rounding():
    """A program that counts 38.99999999999999 items has learnt nothing; one file and another must not differ either."""
    noise = np.subtract(*np.random.default_rng(1).geometric(1 - np.exp(-0.3), (2, COUNTS.size)))
    found = {name: reconstruct(COUNTS + noise, epsilon=0.3, method="isotonic") for name in ("=North", "South")}
    document = profiles_document(sheets(found, ASKED), title="", guarantee="")
    whole, long = json.loads(WRITERS[".json"](document)), document.long()
    rows = [dict(zip(long, row)) for row in zip(*long.values())]
    assert all(float(f"{row[key]:.12g}") == row[key] for row in rows for key in ("estimate", "low", "high"))
    for row in rows:
        answer = whole["groups"][row["group"]]["answers"].get(row["question"])
        if answer is not None:
            told = tuple(answer[key] for key in ("value", "low", "high", "data_share", "note"))
            assert told == tuple(row[key] for key in ("estimate", "low", "high", "data_share", "note"))
    ranges = [row["note"] for row in rows if row["question"] == "range"]
    assert document.tables()["frequencies"]["note"] == ranges
    assert any(ranges)
    items = whole["groups"]["=North"]["entries"]["items"]
    assert items == [float(f"{x:.12g}") for x in items]


@pytest.mark.parametrize("word", ["time", "note/note", "low/low"])
def test_items_may_be_called_what_a_column_is_called(found, word):
    asked = Asked(noun=noun(word))
    named = {name: Sheet.of(sheet.profile, asked) for name, sheet in found.items()}
    table = profiles_document(named, title="", guarantee="").tables()["frequencies"]
    assert list(table) == ["group", "times", "items", "low", "high", "note"]
    assert table["times"][0] == "1"
    assert all(low <= high for low, high in zip(table["low"], table["high"]))


def test_xlsx_has_a_sheet_per_table(document):
    with zipfile.ZipFile(io.BytesIO(WRITERS[".xlsx"](document))) as book:
        names = book.read("xl/workbook.xml").decode()
        texts = book.read("xl/sharedStrings.xml").decode()
        first = book.read("xl/worksheets/sheet1.xml").decode()
    assert all(f'name="{name}"' in names for name in ("answers", "frequencies", "long", "about"))
    assert "Distinct users" in texts
    assert "<f>" not in first, "no formula, whatever a group is called"
    assert "=North" in texts


def test_markdown_reads_as_a_page(document):
    text = WRITERS[".md"](document).decode()
    assert text.startswith("# Reach &lt;b>")
    assert "users were seen at least 3 times" in text
    assert "| South\\| | Distinct users | 600 |" in text
    assert "**Guarantee.** ε = 50 \\*here\\*." in text


def test_the_page_is_the_page(document):
    assert WRITERS[".html"](document) == b"<html>page</html>"


def test_a_comparison_in_all_kinds():
    document = comparison_document(compare(COUNTS, epsilon=1, methods=["isotonic", "linear"]))
    for suffix in SUFFIXES:
        data = WRITERS[suffix](document)
        assert b"isotonic" in data or suffix == ".xlsx", suffix
    assert b"<table" in WRITERS[".html"](document)


def test_a_page_of_answers_marks_them_where_a_phone_shows_it():
    """In the first cell of the row: the last column of a wide table is out of sight there."""
    answers = {"overlap": Estimate(1300, 900, 0, 5300, marked=True), "retained": Estimate(0.4, 0.05, 0.3, 0.5)}
    page = WRITERS[".html"](answers_document(answers, ["a", "b"])).decode()
    assert f"<td>overlap <span class='tag'>{TOO_NOISY}</span></td><td class='number'>1,300</td>" in page
    assert "<td>retained</td><td class='number'>0.4</td>" in page
    assert "data share" in page
    assert "<th>note" not in page


def test_other_ends_of_names_are_refused():
    check_output("A.MD", document=True)
    for wrong in ("out", "out.xls", "out.pdf", "out.html.gz"):
        with pytest.raises(InputError, match=r"must end in one of \.html, \.csv"):
            check_output(wrong, document=True)


# ── on a terminal and in a pipe ───────────────────────────────────────────────────────────────────────────────


def printed(found, monkeypatch, capsys, *, width: int, terminal: bool) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    print_sheets(found, "the promise")
    return capsys.readouterr().out


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
@pytest.mark.parametrize("terminal", [True, False])
def test_groups_are_never_cut(found, monkeypatch, capsys, width, terminal):
    text = printed(found, monkeypatch, capsys, width=width, terminal=terminal)
    assert "…" not in text
    for sheet in found.values():
        for key in ("distinct", "total", "at_least_1", "at_least_3"):
            assert f"{sheet.answers[key].value:,.0f}" in text
    if terminal:
        plain = [line for line in text.split("\n")]
        assert all(len(_without_style(line)) <= width for line in plain)
    else:
        assert sum("=North" in line for line in text.split("\n")) == 1
        assert next(line for line in text.split("\n") if "=North" in line).count("–") == 4, "one row holds it all"


def _without_style(line: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", line)


def test_marks_are_shown_everywhere(monkeypatch, capsys):
    profile = reconstruct(COUNTS, epsilon=10, method="isotonic")
    good = Sheet.of(profile)
    noisy = Estimate(500.0, 400.0, 0.0, 9000.0, marked=True)
    bad = Sheet(profile, good.asked, {**good.answers, "exactly_1": noisy})
    documents = [
        profiles_document({"": sheet}, title="t", guarantee="") for sheet in (good, bad)
    ]
    for suffix in (".csv", ".md"):
        clean, marked = (WRITERS[suffix](document).decode() for document in documents)
        assert TOO_NOISY not in clean
        assert TOO_NOISY in marked
    for document, sheet, shown in zip(documents, (good, bad), (False, True)):
        whole = json.loads(WRITERS[".json"](document))
        assert whole["answers"]["exactly_1"]["marked"] is shown
        note, told = TOO_NOISY if shown else "", "occurred exactly once" + (f": {TOO_NOISY}." if shown else ".")
        assert whole["headline"]["note"] == whole["answers"]["exactly_1"]["note"] == note
        assert whole["headline"]["sentence"].endswith(told)
        assert told in WRITERS[".md"](document).decode().split("\n")[2]
        print_sheets({"": sheet})
        printed = capsys.readouterr().out
        assert told in printed.strip().split("\n")[0]
        assert (TOO_NOISY in printed) is shown
        page = report_page({"": sheet}, title="t")
        first = page[page.index("<strong>") : page.index("</h1>")]
        assert (f'<span class="tag">{TOO_NOISY}</span>' in first) is shown, first


def test_one_shape_of_csv_and_of_json(found, shell, data):
    """What the page lets one download is what -o x.csv and -o x.json write."""
    page = report_page(found, title="t", guarantee="g")
    document = profiles_document(found, title="t", guarantee="g")
    kept = dict(re.findall(r'data:(\S+?);base64,([^"]+)"', page))
    assert base64.b64decode(kept["text/csv"]) == WRITERS[".csv"](document)
    assert json.loads(base64.b64decode(kept["application/json"])) == json.loads(WRITERS[".json"](document))


def test_intervals_are_rounded_outwards():
    for low, value, high in ((5.6, 6.0, 175.1), (0.2, 0.3, 0.4), (12_345.0, 12_346.0, 99_999.0), (2.0, 2.0, 2.0)):
        for whole in (True, False):
            shown = [float(text.replace(",", "")) for text in sensible(Estimate(value, 1.0, low, high), whole=whole)]
            assert shown[1] <= low <= high <= shown[2], (low, high, shown)
    assert sensible(Estimate(1.0, 1.0, 0.0, 2.0**61))[2] == "no limit"


def _numbers_read(rows) -> np.ndarray:
    """Value, low and high of "inside" and "at least" of each row, as somebody reads them."""
    said = np.array([[float(text.replace(",", "")) for text in (*inside, *above)] for inside, above in rows])
    return said.reshape(len(said), 2, 3)


def _contradictions(said) -> int:
    """Where a curve rises, or a part is more than the curve there."""
    return int((np.diff(said[:, 1], axis=0) > 0).sum() + (said[:, 0] > said[:, 1]).sum())


def test_nothing_is_written_larger_than_what_it_is_part_of():
    """Answers that agree are not rounded until they contradict each other; each by itself they are."""
    alone = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        first = np.arange(1, 12)
        above = np.sort(rng.pareto(0.5, first.size) * 10 + rng.integers(0, 500))[::-1]
        low, high = (np.sort(above * rng.uniform(*ends, first.size))[::-1] for ends in ((0.3, 1), (1, 3)))
        curve = [Estimate(v, 1.0, min(lo, v), max(hi, v)) for v, lo, hi in zip(above, low, high)]
        share = rng.uniform(0.2, 1, first.size)
        parts = [Estimate(e.value * s, 1.0, e.low * s * 0.5, e.high * s) for e, s in zip(curve, share)]
        rows = [(int(t), int(t), inside, at_least) for t, inside, at_least in zip(first, parts, curve)]
        said = _numbers_read(sensible_rows(rows))
        assert _contradictions(said) == 0, seed
        exact = np.array([[[e.low, e.high] for e in each[2:]] for each in rows])
        assert (said[:, :, 1] <= exact[:, :, 0]).all(), seed
        assert (said[:, :, 2] >= exact[:, :, 1] - 1e-9).all(), seed
        alone += _contradictions(_numbers_read([(sensible(inside), sensible(above)) for *_, inside, above in rows])) > 0
    assert alone


def test_what_nothing_bounds_is_left_out_and_said(shell, tmp_path):
    """Persons who are the items, without a limit: no interval for all occurrences would say anything."""
    (tmp_path / "x.csv").write_text("user\n" + "".join(f"{i % 90}\n" for i in range(300)))
    asked = ("profile", tmp_path / "x.csv", "-c", "user", "--person", "user", "-e", "1")
    for suffix in ("md", "html", "csv", "json"):
        text = shell(*asked, "-o", tmp_path / f"out.{suffix}")
        written = re.sub(r"base64,[^\"]+", "", (tmp_path / f"out.{suffix}").read_text())
        for shown in (text, written):
            assert "ntropy" not in shown.replace("occurrences in all, entropy", "")
            assert suffix in ("csv", "json") or not re.search(r"e1[6-9]|\d(,\d{3}){5}", shown)
        assert "left out unless a limit on each person (--max-contributions)" in " ".join(text.split())
    assert "total" not in json.loads(shell(*asked, "--json"))["answers"]
    assert "--headline total needs --max-contributions" in shell(*asked, "--headline", "total", code=2)
    bounded = json.loads(shell(*asked, "--max-contributions", "5", "--headline", "total", "--json"))["answers"]
    assert bounded["total"]["high"] < 1000
    assert "total" not in repr(direct([1, 2, 2], epsilon=1, person=True))


def test_a_note_on_all_groups_is_said_once(shell, tmp_path):
    (tmp_path / "x.csv").write_text("user,day\n" + "".join(f"{i % 90},{'ab'[i % 2]}\n" for i in range(300)))
    text = shell("profile", tmp_path / "x.csv", "-c", "user", "--person", "user", "-e", "1", "--by", "day",
                 "--groups", "a,b")  # fmt: skip
    assert text.count("!") == 1


# ── nothing is overwritten ────────────────────────────────────────────────────────────────────────────────────


class Shell:
    def __init__(self, monkeypatch, capfd):
        self.monkeypatch, self.capture = monkeypatch, capfd

    def __call__(self, *arguments, code: int = 0) -> str:
        self.monkeypatch.setattr(sys, "argv", ["unnoise", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
        out, err = self.capture.readouterr()
        assert (left.value.code or 0) == code, err
        return err if code else out


@pytest.fixture
def shell(monkeypatch, capfd):
    return Shell(monkeypatch, capfd)


@pytest.fixture
def data(tmp_path):
    (tmp_path / "n.csv").write_text("n\n" + "".join(f"{n}\n" for n in COUNTS))
    sketch = Sketch.known(50, epsilon=5)
    sketch.update([1, 1, 2])
    sketch.save(tmp_path / "a.sketch")
    return tmp_path


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_estimate_writes_what_the_name_says(shell, data, suffix):
    out = data / f"x{suffix}"
    shell("estimate", data / "a.sketch", "-o", out, "--noun", "user", "--at-least", "1,2", "--headline", "at-least-2")
    assert out.stat().st_size > 100
    before = out.read_bytes()
    assert "exists already" in shell("estimate", data / "a.sketch", "-o", out, code=2)
    assert out.read_bytes() == before
    shell("estimate", data / "a.sketch", "-o", out, "--force")
    assert out.read_bytes() != before


def test_nothing_is_read_before_the_output_is_settled(shell, data):
    """An ε must not be spent for an answer that cannot be kept."""
    profile = ("profile", data / "n.csv", "-c", "n", "-e", "1", "--force", "-o")
    (data / "folder.csv").mkdir()
    os.mkfifo(data / "pipe.csv")
    for output, expected in (("x.xls", "must end in one of"), ("no/such/x.csv", "there is no folder"),
                             ("folder.csv", "must be a file"), ("pipe.csv", "must be a file")):  # fmt: skip
        message = shell(*profile, data / output, code=2)
        assert expected in message
    grouped = ("--by", "n", "--groups", "1,2", "--cells", "64", "--ledger", data / "spent.ledger", "-o", "-")
    assert "cannot go to standard output" in shell("sketch", data / "n.csv", "-c", "n", "-e", "1", *grouped, code=2)
    assert not (data / "spent.ledger").exists()
    (data / "kept.sketch").write_bytes(b"precious")
    assert "exists already" in shell("sketch", data / "n.csv", "-c", "n", "-e", "1", "-o", data / "kept.sketch", code=2)
    assert (data / "kept.sketch").read_bytes() == b"precious"


def test_an_input_is_never_the_output(shell, data):
    link = data / "link.csv"
    os.symlink(data / "n.csv", link)
    for arguments in (
        ("profile", data / "n.csv", "-c", "n", "-e", "1", "-o", data / "n.csv"),
        ("profile", str(data / "*.csv"), "-c", "n", "-e", "1", "-o", data / "n.csv"),
        ("sketch", link, "-c", "n", "-e", "1", "-o", data / "n.csv"),
        ("merge", data / "a.sketch", data / "n.csv", "-o", data / "a.sketch"),
        ("compare", data / "n.csv", "--count-column", "n", "-e", "1", "-o", data / "n.csv"),
    ):
        before = (data / "n.csv").read_bytes(), (data / "a.sketch").read_bytes()
        assert "must not be written to" in shell(*arguments, "--force", code=2)
        assert before == ((data / "n.csv").read_bytes(), (data / "a.sketch").read_bytes())


def test_bad_words_speak_of_options(shell, data):
    base = ("estimate", data / "a.sketch")
    assert "--at-least must be whole numbers" in shell(*base, "--at-least", "1,x", code=2)
    assert "--headline must be exactly-K" in shell(*base, "--headline", "mode", code=2)


def test_groups_have_a_row_for_all_of_them(shell, tmp_path):
    """An item in both groups counts once there."""
    lines = [f"{item},{group}" for item in range(300) for group in "AB"] + [f"{item},A" for item in range(300, 400)]
    (tmp_path / "x.csv").write_text("item,group\n" + "\n".join(lines) + "\n")
    made = ("-c", "item", "--int", "-e", "20", "--domain", "1000", "--by", "group", "--groups", "A,B")
    shell("sketch", tmp_path / "x.csv", *made, "-o", tmp_path / "x.sketches")
    groups = json.loads(shell("estimate", tmp_path / "x.sketches", "--json", "--method", "isotonic"))["groups"]
    assert list(groups) == ["all groups", "A", "B"]
    assert {name: round(one["answers"]["distinct"]["value"]) for name, one in groups.items()} == {
        "all groups": 400, "A": 400, "B": 300,
    }  # fmt: skip
    assert round(groups["all groups"]["answers"]["at_least_2"]["value"]) == 300
    assert groups["all groups"]["power"] == 2


def test_the_promised_epsilon_is_told_and_not_that_of_one_number(shell, tmp_path):
    """Three groups, persons: every number carries noise of ε/3, and ε is for the person."""
    (tmp_path / "x.csv").write_text("user,day\n" + "".join(f"{i % 90},{'abc'[i % 3]}\n" for i in range(300)))
    who = ("-c", "user", "--person", "user")
    asked = ("profile", tmp_path / "x.csv", *who, "-e", "1", "--by", "day", "--groups", "a,b,c")
    shell(*asked, "-o", tmp_path / "x.html")
    page = (tmp_path / "x.html").read_text()
    assert "ε = 1 for one person, as explained below" in page
    assert "1/3" not in re.sub(r"base64,[^\"]+|<script.*?</script>", "", page, flags=re.S)
    found = json.loads(shell(*asked, "--json"))["groups"]["a"]
    assert (found["epsilon"], found["unit"], round(found["noise_epsilon"], 3)) == (1.0, "one person", 0.333)
    sketched = ("--max-contributions", "4", "--sketch", "--cells", "2^10", "--json")
    told = json.loads(shell("profile", tmp_path / "x.csv", "-c", "day", "--person", "user", "-e", "1", *sketched))
    assert (told["epsilon"], told["unit"]) == (1.0, "one person in one ingestion call")


def test_one_of_them_is_one(shell, tmp_path):
    sheet = Sheet.of(reconstruct([0] * 50 + [1], epsilon=20, method="isotonic"), Asked(noun=noun("user")))
    assert re.fullmatch(r"About 1 \([01]–1\) user was seen exactly once\.", first_sentence(sheet).text)
    (tmp_path / "x.csv").write_text("n\n")
    for how in (("--column", "n"), ("--count-column", "n")):
        assert "must be at least one item, got none" in shell("compare", tmp_path / "x.csv", *how, "-e", "1", code=2)
    made = ("sketch", tmp_path / "x.csv", "-e", "1", "-o", tmp_path / "y", "--cells")
    assert "got 100: 64 and 128 are" in shell(*made, "100", code=2)


def test_huge_counts_are_numbers_not_ends(shell, tmp_path):
    """Counts of 10^18 are data: only an end beyond a value that is not huge is called 'no limit'."""
    (tmp_path / "x.csv").write_text("item,n\na,1000000000000000000\nb,1000000000000000000\n")
    asked = ("profile", tmp_path / "x.csv", "-c", "item", "--count-column", "n", "-e", "40", "--ledger", "off")
    shell(*asked, "-o", tmp_path / "out.md")
    for text in (shell(*asked), (tmp_path / "out.md").read_text()):
        assert "no limit" not in text, text
        assert re.search(r"ccurrences.*2e18.*2e18.*2e18", text), text


def test_a_range_of_counts_is_an_answer_like_all_others():
    """Its kind of interval, share of data and mark are those of the same question, in every file."""
    sketch = Sketch.hashed(2**10, epsilon=1, item_types=["int"])
    sketch.update(np.arange(400) % 211)
    named = sheets(reconstruct(sketch.release()))
    document = profiles_document(named, title="x", guarantee="")
    rows = list(csv.DictReader(io.StringIO(WRITERS[".csv"](document).decode())))
    for k in ("1", "2"):
        found = [row for row in rows if row["first"] == k == row["last"]]
        asked, ranged = (next(r for r in found if r["question"] == q) for q in (f"exactly_{k}", "range"))
        assert ranged["interval"] == "model"
        assert {**ranged, "question": ""} == {**asked, "question": ""}


def test_markdown_holds_no_control_character():
    named = sheets({"\x1b[31mred": direct([1, 2, 2], epsilon=1)}, Asked(noun=noun("\x9buser")))
    document = profiles_document(named, title="\x1b", guarantee="")
    assert all(c == "\n" or c.isprintable() for c in WRITERS[".md"](document).decode())


def test_a_domain_without_items_is_refused(shell, tmp_path):
    (tmp_path / "x.csv").write_text("n\na\n")
    for name, text in (("none.txt", ""), ("none.csv", "n\n")):
        (tmp_path / name).write_text(text)
        asked = ("profile", tmp_path / "x.csv", "-c", "n", "-e", "1", "--domain", tmp_path / name)
        assert f"{name}: a domain must hold at least one item, got none" in shell(*asked, code=2)


def test_items_of_data_are_no_option(shell, tmp_path):
    (tmp_path / "x.csv").write_text("n\n7\n")
    asked = ("profile", tmp_path / "x.csv", "-c", "n", "--int", "-e", "1", "--domain", "5", "--unknown", "error")
    assert "unnoise: every item must be in the declared domain 0…4" in shell(*asked, code=2)


@pytest.mark.parametrize(
    "words",
    [
        ("profile", "-o", "out.html"),
        ("profile", "--sketch", "--cells", "128", "-o", "out.html"),
        ("sketch", "--cells", "128", "-o", "out.sketch"),
    ],
)
def test_an_output_that_appears_while_rows_are_read_is_kept(tmp_path, monkeypatch, words):
    """Two commands at once: the later one is refused before it costs ε, and what the first has paid for stays."""
    (tmp_path / "rows.csv").write_text("url\na\nb\na\n")
    out, checked = tmp_path / words[-1], _output.check_output

    def then_another_writes(output, *rest, **options):
        checked(output, *rest, **options)
        out.write_text("paid for")

    monkeypatch.setattr(_output, "check_output", then_another_writes)
    done = run_in(tmp_path, words[0], "rows.csv", "-c", "url", "-e", 1, "--ledger", "spent.ledger", *words[1:])
    assert (done.returncode, out.read_text()) == (2, "paid for")
    assert "exists already" in done.stderr
    assert not (tmp_path / "spent.ledger").exists()


@pytest.mark.parametrize("words", [("profile", "-o", "out.html"), ("sketch", "--cells", "128", "-o", "out.sketch")])
def test_an_output_that_appears_after_the_last_look_is_kept(tmp_path, monkeypatch, words):
    """Nothing but the name itself tells two commands apart that write at once; an answer is printed none the less."""
    (tmp_path / "rows.csv").write_text("url\na\nb\na\n")
    out, write = tmp_path / words[-1], Ledger.write

    def then_another_writes(*told):
        write(*told)
        out.write_text("paid for")

    monkeypatch.setattr(Ledger, "write", then_another_writes)
    done = run_in(tmp_path, words[0], "rows.csv", "-c", "url", "-e", 1, "--ledger", "my.ledger", *words[1:])
    assert (done.returncode, out.read_text()) == (2, "paid for")
    assert "another program wrote it meanwhile" in done.stderr
    assert ("distinct items" in done.stdout) == (words[0] == "profile")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["my.ledger", out.name, "rows.csv"]


def test_of_two_pictures_of_one_name_the_first_stays(tmp_path, monkeypatch):
    (tmp_path / "rows.csv").write_text("n\n1\n2\n1\n")
    out, draw = tmp_path / "a.svg", Comparison.plot

    def after_another(*words, **options):
        out.write_text("the first")
        draw(*words, **options)

    monkeypatch.setattr(Comparison, "plot", after_another)
    words = ["compare", "rows.csv", "--count-column", "n", "-e", 1, "--method", "isotonic", "--plot", out.name]
    done = run_in(tmp_path, *words)
    assert (done.returncode, out.read_text()) == (2, "the first")
    assert "another program wrote it meanwhile" in done.stderr
    assert run_in(tmp_path, *words, "--force").returncode == 0
    assert "<svg" in out.read_text()


def test_an_answer_that_the_disk_does_not_take_is_printed(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "rows.csv").write_text("url\na\nb\na\n")
    monkeypatch.setattr(_output, "write_whole", full)
    done = run_in(tmp_path, "profile", "rows.csv", "-c", "url", "-e", 1, "--ledger", "off", "-o", "out.html")
    assert done.returncode == 2
    assert "distinct items" in done.stdout
    assert done.stderr.strip().endswith("out.html: No space left on device")
