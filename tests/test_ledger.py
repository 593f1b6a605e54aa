"""The ledger: written before anything leaves, limits before anything is read, tampering noticed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import unnoise as un
from unnoise.cli import main
from unnoise.errors import FormatError, InputError, PrivacyError
from unnoise.ledger import FILE, QUERIED, Ledger, read_ledger, sums


def book(folder: Path, **options: Any) -> Ledger:
    return Ledger(folder / "a.ledger", "visits", **options)


def test_lines_add_up_by_data_and_unit(tmp_path: Path) -> None:
    ledger = book(tmp_path)
    ledger.write("sketch", "1/3", "occurrence")
    ledger.write("direct", 0.5, "person")
    Ledger(ledger.path, ["visits", "clicks"]).write("profile", 1, "occurrence")
    assert sums(read_ledger(ledger.path)) == {
        ("visits", "occurrence"): Fraction(4, 3), ("visits", "person"): Fraction(1, 2),
        ("clicks", "occurrence"): Fraction(1),
    }  # fmt: skip


def test_a_limit_refuses_and_writes_nothing(tmp_path: Path) -> None:
    ledger = book(tmp_path, limit=2)
    ledger.write("sketch", 1, "occurrence")
    ledger.write("sketch", 1, "occurrence")
    before = Path(ledger.path).read_bytes()
    for refused in (lambda: ledger.check("0.001", "occurrence"), lambda: ledger.write("sketch", 1, "occurrence")):
        with pytest.raises(PrivacyError, match="ε for one occurrence of visits must stay within 2, got 2 spent"):
            refused()
    assert Path(ledger.path).read_bytes() == before
    ledger.check(2, "person")
    Ledger(ledger.path, "clicks", limit=2).write("sketch", 2, "occurrence")


def test_a_limit_in_the_ledger_holds_for_all_and_the_last_one_counts(tmp_path: Path) -> None:
    ledger = book(tmp_path)
    ledger.set_limit(1, "occurrence")
    with pytest.raises(PrivacyError, match="must stay within 1, got 0 spent and 2 more"):
        ledger.write("sketch", 2, "occurrence")
    ledger.set_limit(3, "occurrence")
    ledger.write("sketch", 2, "occurrence")
    assert ledger.spent("visits", "occurrence") == 2


CHANGES = {
    "a line taken out": lambda lines: [lines[0], lines[2]],
    "lines changed places": lambda lines: [lines[1], lines[0], lines[2]],
    "a smaller epsilon": lambda lines: [lines[0].replace(b'"epsilon": "1"', b'"epsilon": "0.1"'), *lines[1:]],
    "another name": lambda lines: [lines[0].replace(b"visits", b"others"), *lines[1:]],
    "no JSON": lambda lines: [lines[0], b"nonsense", lines[2]],
    "deep JSON": lambda lines: [b"[" * 100_000],
    "not texts": lambda lines: [b'{"at":1,"what":"x","data":["a"],"epsilon":"1","unit":"x","chain":"y"}'],
    "a huge number": lambda lines: [lines[0].replace(b'"epsilon": "1"', b'"epsilon": "1e999999999"'), *lines[1:]],
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_ledger_is_noticed(change: str, tmp_path: Path) -> None:
    ledger = book(tmp_path)
    for _ in range(3):
        ledger.write("sketch", 1, "occurrence")
    path = Path(ledger.path)
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join(lines) + b"\n")
    assert len(read_ledger(path)) == 3, "the control: what was written is read"
    path.write_bytes(b"\n".join(CHANGES[change](lines)) + b"\n")
    for use in (lambda: read_ledger(path), lambda: ledger.check(1, "occurrence")):
        with pytest.raises(FormatError, match=r"line . of the ledger"):
            use()


def test_a_line_cut_short_by_a_crash_goes(tmp_path: Path) -> None:
    ledger = book(tmp_path)
    ledger.write("sketch", 1, "occurrence")
    whole = Path(ledger.path).read_bytes()
    ledger.write("sketch", 1, "occurrence")
    both = Path(ledger.path).read_bytes()
    for size in range(len(whole), len(both)):
        Path(ledger.path).write_bytes(both[:size])
        assert len(read_ledger(ledger.path)) == 1
    ledger.write("profile", 1, "occurrence")
    assert [entry.what for entry in read_ledger(ledger.path)] == ["sketch", "profile"]


def test_many_writers_lose_no_line_and_pass_no_limit(tmp_path: Path) -> None:
    code = """
import sys
from unnoise.errors import PrivacyError
from unnoise.ledger import Ledger
done = 0
for _ in range(40):
    try:
        Ledger(sys.argv[1], "visits", limit=50).write("sketch", 1, "occurrence")
        done += 1
    except PrivacyError:
        pass
print(done)
"""
    path = tmp_path / "a.ledger"
    writers = [subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE) for _ in range(3)]
    written = sum(int(writer.communicate(timeout=600)[0]) for writer in writers)
    assert written == 50
    assert len(read_ledger(path)) == 50


def test_hostile_places(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic links"):
        Ledger(tmp_path / "link", "x").write("sketch", 1, "occurrence")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="a ledger must be a file"):
        Ledger(tmp_path / "pipe", "x").check(1, "occurrence")
    with pytest.raises(IsADirectoryError):
        Ledger(tmp_path, "x").write("sketch", 1, "occurrence")
    with pytest.raises(InputError, match="data must be named"):
        Ledger(tmp_path / "a", "")


def test_a_full_disk_leaves_the_old_lines(tmp_path: Path) -> None:
    code = """
import resource, signal, sys
from unnoise.ledger import Ledger, read_ledger
ledger = Ledger(sys.argv[1], "visits")
ledger.write("sketch", 1, "occurrence")
size = len(open(sys.argv[1], "rb").read())
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, size + 20))
try:
    ledger.write("sketch", 1, "occurrence")
except OSError as error:
    print(error.errno, len(read_ledger(sys.argv[1])), len(open(sys.argv[1], "rb").read()) - size)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "a")], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["27", "1", "0"]


# ── in Python ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_python_records_what_it_releases(tmp_path: Path) -> None:
    ledger = book(tmp_path, limit=4)
    un.direct(["a", "b"], epsilon=1, ledger=ledger)
    un.direct(["a", "b"], epsilon=1, person=True, ledger=ledger)
    un.profile(["a", "b"] * 50, epsilon=1, cells=2**6, method="linear", ledger=ledger)
    sketch = un.Sketch.known(4, epsilon=1)
    noisy = ledger.release(sketch)
    assert (ledger.release(sketch).counts == noisy.counts).all(), "again, free of charge"
    found = [f"{entry.what} {entry.unit}" for entry in read_ledger(ledger.path)]
    assert found == ["direct occurrence", "direct person", "profile occurrence", "release occurrence"]

    class Unreadable:
        def __iter__(self) -> Any:
            raise AssertionError("nothing is read beyond the limit")

    for call in (lambda: un.direct(Unreadable(), epsilon=2, ledger=ledger),
                 lambda: un.profile(Unreadable(), epsilon=2, ledger=ledger)):  # fmt: skip
        with pytest.raises(PrivacyError, match="must stay within 4"):
            call()


# ── on the command line ───────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("UNNOISE_LEDGER", raising=False)
    (tmp_path / "data").mkdir()
    path = tmp_path / "data" / "visits.csv"
    path.write_text("url,user,day\n" + "a,1,x\nb,2,y\n" * 20)
    return path


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    force = ["--force"] if arguments[0] == "sketch" else []
    monkeypatch.setattr(sys, "argv", ["unnoise", *map(str, arguments), *force])
    with pytest.raises(SystemExit) as left:
        main()
    return int(left.value.code or 0)


def test_commands_record_beside_the_data(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [data, "-c", "url", "-e", "1"]
    assert run(monkeypatch, "sketch", *asked, "-o", data.parent / "a.sketch") == 0
    assert run(monkeypatch, "profile", *asked, "--max-contributions", "2", "--person", "user") == 0
    groups = ["--by", "day", "--groups", "x,y", "--max-contributions", "2", "--person", "user"]
    assert run(monkeypatch, "sketch", *asked, *groups, "-o", data.parent / "set") == 0
    found = sums(read_ledger(data.parent / FILE))
    name = data.name
    assert found == {(name, "occurrence"): Fraction(1), (name, "person"): Fraction(3)}
    capsys.readouterr()
    assert run(monkeypatch, "ledger", data, "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert {row["unit"]: row["epsilon"] for row in shown["sums"]} == {"occurrence": "1", "person": "3"}
    assert "Advisory" in shown["advisory"]
    assert run(monkeypatch, "ledger", data.parent / FILE) == 0
    assert "in all ε = 3 for one person" in capsys.readouterr().out


@pytest.mark.parametrize(("limit", "unit"), [([], "occurrence"), (["--max-contributions", "3"], "person")])
def test_shares_are_recorded_with_all_the_sums_that_they_may_be_in(
    limit: list[str], unit: str, data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    task = data.parent / "n.task"
    made = ["-e", "1/2", "--epoch", "x", "--cells", "64", "--sums", "3", *limit, "-o", task]
    assert run(monkeypatch, "share", "task", *made) == 0
    split = ["share", "split", data, "-c", "url", "--task", task, "--site", "tv", "-o", data.parent / "tv"]
    assert run(monkeypatch, *split, "--limit", "1.4") == 2
    assert "must stay within 1.4, got 0 spent and 1.5 more" in capsys.readouterr().err
    assert not (data.parent / "tv.seed").exists()
    assert run(monkeypatch, *split) == 0
    assert sums(read_ledger(data.parent / FILE)) == {(data.name, unit): Fraction(3, 2)}
    assert [entry.what for entry in read_ledger(data.parent / FILE)] == ["shares"]


def test_a_limit_stops_a_command_before_it_reads(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [data, "-c", "url", "-e", "1", "-o", data.parent / "a.sketch"]
    assert run(monkeypatch, "sketch", *asked, "--limit", "1") == 0
    data.write_text('nonsense that no reader likes "')
    capsys.readouterr()
    assert run(monkeypatch, "sketch", *asked, "--limit", "1") == 2
    assert "must stay within 1, got 1 spent and 1 more" in capsys.readouterr().err
    assert run(monkeypatch, "ledger", data.parent / FILE, "--limit", "1", "--dataset", data.resolve()) == 0
    assert run(monkeypatch, "sketch", *asked) == 2
    assert "must stay within 1" in capsys.readouterr().err
    assert run(monkeypatch, "sketch", *asked, "--ledger", "off") == 2
    assert "must stay within" not in capsys.readouterr().err, "the control: another error, from the reader"


def test_a_limit_may_be_the_first_line_of_a_ledger(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Data are named in place of the ledger that will stand beside them; they are no ledger themselves."""
    before = data.read_bytes()
    (data.parent / "none.csv").touch()
    for path in (data, data.parent / "none.csv"):
        assert run(monkeypatch, "ledger", path, "--limit", "1.5") == 0
        assert read_ledger(data.parent / FILE)[-1].data == (path.name,)
    assert (data.read_bytes(), (data.parent / "none.csv").read_bytes()) == (before, b"")
    asked = [data, "-c", "url", "-e", "1", "-o", data.parent / "a.sketch"]
    assert [run(monkeypatch, "sketch", *asked) for _ in range(2)] == [0, 2]
    assert "must stay within 1.5, got 1 spent and 1 more" in capsys.readouterr().err


def test_a_link_to_the_data_leads_to_their_ledger(data: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Another ledger beside the link would know of no limit, and of nothing spent."""
    (tmp_path / "else").mkdir()
    link = tmp_path / "else" / "link.csv"
    link.symlink_to(data)
    assert run(monkeypatch, "ledger", data, "--limit", "1") == 0
    asked = ["-c", "url", "-e", "1", "-o", tmp_path / "a.sketch"]
    assert [run(monkeypatch, "sketch", link, *asked) for _ in range(2)] == [0, 2]
    assert sums(read_ledger(data.parent / FILE)) == {(data.name, "occurrence"): Fraction(1)}
    assert run(monkeypatch, "ledger", link) == 0
    assert [path.name for path in link.parent.iterdir()] == ["link.csv"]


def test_what_was_spent_moves_with_the_folder(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By whole paths a renamed folder began anew. Control: other data in it have not been spent."""
    asked = ["-c", "url", "-e", "1"]
    assert run(monkeypatch, "ledger", data, "--limit", "2") == 0
    assert run(monkeypatch, "profile", data, *asked) == 0
    capsys.readouterr()
    moved = data.parent.rename(data.parent.parent / "archive") / data.name
    (moved.parent / "other.csv").write_bytes(moved.read_bytes())
    assert run(monkeypatch, "profile", moved, "-c", "url", "-e", "1.5") == 2
    assert "of visits.csv must stay within 2, got 1 spent and 1.5 more" in capsys.readouterr().err
    assert run(monkeypatch, "profile", moved, *asked) == 0
    assert run(monkeypatch, "profile", moved.parent / "other.csv", "-c", "url", "-e", "1.5") == 0
    book = moved.parent / FILE
    assert {name for entry in read_ledger(book) for name in entry.data} == {"visits.csv", "other.csv"}
    Ledger(book, str(moved.parent / "other.csv")).write("sketch", 1, "occurrence")
    assert Ledger(book, "x").spent(str(moved.parent / "other.csv"), "occurrence") == Fraction(5, 2), "the same name"


def test_data_of_several_folders_are_recorded_beside_each(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the folder of the first file alone, a limit beside the second would not have known."""
    other = data.parent.parent / "other" / "visits.csv"
    other.parent.mkdir()
    other.write_bytes(data.read_bytes())
    asked = ["-c", "url", "-e", "1"]
    assert run(monkeypatch, "profile", data, other, *asked) == 0
    for here, there in ((data, other), (other, data)):
        spent = dict.fromkeys([(here.name, "occurrence"), (str(there.resolve()), "occurrence")], Fraction(1))
        assert sums(read_ledger(here.parent / FILE)) == spent
    assert run(monkeypatch, "ledger", other, "--limit", "1") == 0
    capsys.readouterr()
    for inputs in ((other,), (data, other)):
        assert run(monkeypatch, "profile", *inputs, *asked) == 2
        assert "of visits.csv must stay within 1, got 1 spent" in capsys.readouterr().err
    assert run(monkeypatch, "profile", data, *asked) == 0


def test_a_failing_command_costs_nothing(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, "sketch", data, "-c", "nothing", "-e", "1", "-o", data.parent / "a") == 2
    assert not (data.parent / FILE).exists()


def test_names_and_places_of_the_ledger(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = data.parent.parent / "else.ledger"
    asked = [data, "-c", "url", "-e", "1", "-o", data.parent / "a.sketch"]
    assert run(monkeypatch, "sketch", *asked, "--ledger", other, "--dataset", "visits") == 0
    assert sums(read_ledger(other)) == {("visits", "occurrence"): Fraction(1)}
    monkeypatch.setenv("UNNOISE_LEDGER", "off")
    assert run(monkeypatch, "sketch", *asked) == 0
    assert run(monkeypatch, "sketch", *asked, "--limit", "9") == 2
    assert not (data.parent / FILE).exists()
    assert run(monkeypatch, "sketch", "-", *asked[1:], "--ledger", other) == 2
    assert "standard input needs a name in the ledger: give --dataset NAME" in capsys.readouterr().err


def test_a_ledger_that_cannot_be_written(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A remark where nobody asked for a ledger, an error where somebody did; then no sketch is written."""
    asked = [data, "-c", "url", "-e", "1"]
    (data.parent / FILE).mkdir()
    assert run(monkeypatch, "sketch", *asked, "-o", data.parent / "a.sketch") == 2
    (data.parent / FILE).rmdir()
    missing = data.parent / "no" / "such.ledger"
    assert run(monkeypatch, "sketch", *asked, "-o", data.parent / "b.sketch", "--ledger", missing) == 2
    assert not (data.parent / "b.sketch").exists()

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Ledger, "write", refuse)
    capsys.readouterr()
    assert run(monkeypatch, "sketch", *asked, "-o", data.parent / "c.sketch") == 0
    assert "not recorded in a ledger" in capsys.readouterr().err
    assert (data.parent / "c.sketch").exists()


def closed(monkeypatch: pytest.MonkeyPatch, path: Path, *, reading: bool) -> None:
    """Let nobody write to a file, nor read it where ``reading`` says so: tests may run as root, who always may."""
    before = os.open

    def refuse(name: Any, flags: int, *rest: Any, **options: Any) -> int:
        if os.fspath(name) == str(path) and (reading or flags & os.O_RDWR):
            raise PermissionError(13, "Permission denied", str(path))
        return before(name, flags, *rest, **options)

    monkeypatch.setattr(os, "open", refuse)


@pytest.mark.parametrize("reading", [False, True])
def test_a_limit_binds_whoever_cannot_write_or_read_it(
    reading: bool, data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where no limit is written, a ledger that cannot be written to is a remark; one that is closed may hold one."""
    asked = [data, "-c", "url", "-e", "1"]
    book, output = data.parent / FILE, data.parent / "a.sketch"
    assert run(monkeypatch, "sketch", *asked, "-o", output) == 0
    for commands in (("sketch", *asked, "-o", output), ("profile", *asked)):
        with monkeypatch.context() as patch:
            closed(patch, book, reading=reading)
            output.unlink(missing_ok=True)
            assert run(patch, *commands) == (2 if reading else 0), "no limit"
            said = capsys.readouterr().err
            assert ("may hold a limit" if reading else "not recorded in a ledger") in said
    assert run(monkeypatch, "ledger", data, "--limit", "9") == 0
    capsys.readouterr()
    for commands in (("sketch", *asked, "-o", output), ("profile", *asked)):
        with monkeypatch.context() as patch:
            closed(patch, book, reading=reading)
            output.unlink(missing_ok=True)
            assert run(patch, *commands) == 2
            said = capsys.readouterr()
            assert ("may hold a limit" if reading else "must be recorded where") in said.err
            assert (said.err.count("\n"), said.out) == (1, "")
            assert not output.exists()
    assert sums(read_ledger(book)) == {(data.name, "occurrence"): Fraction(1)}, "what was recorded at first"


def test_a_file_given_twice_spends_twice_under_a_limit(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    twice = ["profile", data, data, "-c", "url", "--twice"]
    assert run(monkeypatch, "ledger", data, "--limit", "1") == 0
    capsys.readouterr()
    assert run(monkeypatch, *twice, "-e", "1") == 2
    assert "must stay within 1, got 0 spent and 2 more" in capsys.readouterr().err
    assert run(monkeypatch, *twice, "-e", "1/2") == 0
    assert sums(read_ledger(data.parent / FILE)) == {(data.name, "occurrence"): Fraction(1)}


def test_a_file_given_twice_is_charged_twice_under_any_name(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """But for persons, who are limited over both copies; the promise says what the ledger says."""
    os.link(data, data.parent / "hard.csv")
    other = data.parent / "x.ledger"
    rest = ["-c", "url", "-e", "1", "--twice", "--ledger", other]
    for file, more, unit in (
        (data, ["--dataset", "visits"], "occurrence"), (data.parent / "hard.csv", [], "occurrence"),
        (data, ["--dataset", "visits", "--person", "user", "--max-contributions", "2"], "person"),
    ):  # fmt: skip
        for sketched in ([], ["--sketch", "--cells", "2^10"]):
            other.unlink(missing_ok=True)
            assert run(monkeypatch, "profile", data, file, *rest, *more, *sketched) == 0
            said = " ".join(capsys.readouterr().out.split())
            assert set(sums(read_ledger(other)).values()) == {Fraction(1 + (unit == "occurrence"))}
            assert ("given 2 times counts as often: ε = 2 for what is in it" in said) is (unit == "occurrence")


def test_a_sketch_is_made_with_words_for_what_its_file_cannot_say(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [data, "-c", "url", "-e", "1", "-o", data.parent / "a.sketch"]
    for more, said in (
        ([], ""), (["--sql", "SELECT url FROM data"], "one row of the query's result"),
        ([data, "--twice"], "A file that is given 2 times counts as often: ε = 2 for what is in it."),
    ):  # fmt: skip
        assert run(monkeypatch, "sketch", *asked, *more) == 0
        error = capsys.readouterr().err
        assert said in error
        assert bool(error) is bool(said)


def test_rows_of_a_query_are_called_so_and_spend_from_the_limit_of_occurrences(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A query may join or copy a row: the page and the ledger say that a row of its result is what has this ε."""
    query = ["--sql", 'SELECT a.url AS url, a."user" AS who FROM data a JOIN data b ON a.url = b.url', "-e", "1"]
    name = data.name
    for more in ([], ["--sketch", "--cells", "2^10"], ["--json"]):
        assert run(monkeypatch, "profile", data, *query, "-c", "url", *more) == 0
        assert "is one row of the query's result" in " ".join(capsys.readouterr().out.split())
    assert sums(read_ledger(data.parent / FILE)) == {(name, QUERIED): Fraction(3)}
    assert QUERIED == "row of the query's result"
    assert run(monkeypatch, "profile", data, "-c", "url", "-e", "1") == 0
    assert "query" not in capsys.readouterr().out, "the control"
    assert run(monkeypatch, "ledger", data, "--limit", "5") == 0
    assert run(monkeypatch, "profile", data, *query, "-c", "url") == 0
    for words in ([*query, "-c", "url"], ["-c", "url", "-e", "1"]):
        assert run(monkeypatch, "profile", data, *words) == 2
        assert "must stay within 5, got 5 spent and 1 more" in capsys.readouterr().err
    persons = ["--person", "who", "--max-contributions", "2"]
    assert run(monkeypatch, "profile", data, *query, "-c", "url", *persons) == 0
    assert "are those whom the rows of the query's result name" in " ".join(capsys.readouterr().out.split())
    assert sums(read_ledger(data.parent / FILE))[name, "person"] == 1


def test_the_same_file_twice_is_refused_unless_asked_for(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    os.link(data, data.parent / "hard.csv")
    (data.parent / "soft.csv").symlink_to(data)
    rest = ["-c", "url", "-e", "1", "-o", data.parent / "a.sketch"]
    for other in (data, data.parent / "hard.csv", data.parent / "soft.csv", f"{data.parent}/v*.csv"):
        assert run(monkeypatch, "sketch", data, other, *rest) == 2
        assert "are the same file; --twice counts it twice" in capsys.readouterr().err
        assert run(monkeypatch, "sketch", data, other, *rest, "--twice") == 0
    copy = data.parent / "copy.csv"
    copy.write_bytes(data.read_bytes())
    assert run(monkeypatch, "sketch", data, copy, *rest) == 0


def test_no_other_file_is_taken_for_a_ledger(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line cut short makes room for the next one; a text that never was one is somebody's own."""
    letter = data.parent / "letter"
    letter.write_text("a text without an end of line")
    asked = [data, "-c", "url", "-e", "1", "-o", data.parent / "a.sketch"]
    assert run(monkeypatch, "sketch", *asked, "--ledger", letter) == 2
    assert "letter must be a ledger" in capsys.readouterr().err
    assert letter.read_text() == "a text without an end of line"


def test_a_ledger_of_any_name_is_the_one_shown(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only data stand for the ledger beside them: neither another ledger does, nor a file that is not there."""
    asked = [data, "-c", "url", "-o", data.parent / "a.sketch"]
    assert run(monkeypatch, "sketch", *asked, "-e", "1") == 0
    assert run(monkeypatch, "sketch", *asked, "-e", "2", "--ledger", data.parent / "book") == 0
    for name, expected in (("book", "ε = 2"), (data.name, "ε = 1")):
        capsys.readouterr()
        assert run(monkeypatch, "ledger", data.parent / name) == 0
        assert f"in all {expected} for one occurrence" in capsys.readouterr().out
    assert run(monkeypatch, "ledger", data.parent / "missing") == 2
    assert run(monkeypatch, "ledger", data.parent / "new", "--limit", "3", "--dataset", "x") == 0
    assert [entry.what for entry in read_ledger(data.parent / "new")] == ["limit"]


def test_a_limit_that_would_limit_nothing_is_refused(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mistyped unit, a name without a text, options that nothing would be done with."""
    sketch = [data, "-c", "url", "-e", "1", "-o", data.parent / "a.sketch"]
    for command, said in (
        (["ledger", data, "--limit", "1", "--unit", "persn"], "--unit must be 'occurrence' or 'person', got 'persn'"),
        (["ledger", data, "--limit", "0"], "--limit must be > 0, got 0"),
        (["ledger", data, "--limit", "2", "--dataset", ""], "--dataset must be named, got ''"),
        (["ledger", data, "--unit", "person"], "give --limit E, or leave them out"),
        (["ledger", data, "--dataset", "visits"], "give --limit E, or leave them out"),
        (["sketch", *sketch, "--dataset", " "], "--dataset must be named, got ' '"),
        (["sketch", *sketch, "--limit", "0"], "--limit must be > 0, got 0"),
        (["sketch", "-", *sketch[1:], "--dataset", "visits"], "--dataset needs a ledger: give --ledger FILE"),
    ):
        assert run(monkeypatch, *command) == 2
        assert said in capsys.readouterr().err
    assert not (data.parent / FILE).exists()
    Ledger(data.parent / FILE, "visits").write("release", 1, "household")
    assert run(monkeypatch, "ledger", data, "--limit", "1", "--unit", "household") == 0, "one that was recorded"
