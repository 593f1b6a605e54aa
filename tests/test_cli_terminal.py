"""The installed command in a real terminal, in a real bash, and in pipes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

pexpect = pytest.importorskip("pexpect")
pyte = pytest.importorskip("pyte")

UNNOISE = Path(sys.executable).with_name("unnoise")
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def environment(**extra: str) -> dict[str, str]:
    path = f"{UNNOISE.parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40", **extra}


def in_terminal(command: str, timeout: float = 600) -> tuple[str, str, int]:
    """Run a shell command on a pseudo-terminal; return what it drew, the same without colours, its exit code."""
    child = pexpect.spawn("bash", ["--norc", "-c", command], env=environment(), encoding="utf-8", timeout=timeout,
                          dimensions=(40, 120))  # fmt: skip
    child.expect(pexpect.EOF)
    child.close()
    raw = child.before
    return raw, ANSI.sub("", raw), child.exitstatus


def left_on_screen(raw: str) -> str:
    """What a terminal still shows in the end of all that was drawn."""
    screen = pyte.Screen(240, 40)
    pyte.Stream(screen).feed(raw)
    return "\n".join(line.rstrip() for line in screen.display).strip()


def pipe(command: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, env=environment(),
                          timeout=600)  # fmt: skip
    assert done.returncode == code, done.stderr
    return done


@pytest.fixture(scope="module")
def words(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("words")
    (folder / "words.csv").write_text("word\n" + "".join(f"w{i % (i // 9 + 1)}\n" for i in range(20_000)))
    return folder


def test_a_terminal_gets_colours_and_one_sentence(words):
    raw, text, code = in_terminal(f"unnoise profile {words}/words.csv -e 5 --cells 2^14")
    assert code == 0
    assert "occurred exactly once" in text  # of one item or of many
    assert "\x1b[1m" in raw  # bold


def test_a_terminal_is_told_what_was_promised(words):
    _, text, code = in_terminal(f"unnoise sketch {words}/words.csv -e 5 --cells 2^12 -o {words}/t.sketch")
    assert code == 0
    assert "t.sketch: ε = 5 for one occurrence" in text


def test_a_terminal_and_nothing_else_is_told_of_rows_left_out(words):
    """A misspelt key of NDJSON, which no header refuses, leaves all of them out."""
    (words / "some.ndjson").write_text('{"url": "a"}\n{"url": "b"}\n{"user": 1}\n')
    command = f"unnoise sketch {words}/some.ndjson -e 1 --cells 2^8 --force -o {words}/n.sketch -c"
    for column, told in (("url", "unnoise: 1 row was left out"), ("ulr", "unnoise: all 3 rows were left out")):
        text = " ".join(in_terminal(f"{command} {column}")[1].split())
        assert told in text
        assert ("are these the right columns, ulr?" in text) == (column == "ulr")
        assert (pipe(f"{command} {column}").stdout, pipe(f"{command} {column}").stderr) == ("", "")


def test_progress_with_rate_and_time_left(words):
    """A slow reader: the bar must appear, with rows, rate and time, and be gone at the end."""
    slow = f"(cat {words}/words.csv; for i in 1 2 3 4; do sleep 0.4; yes {'w' * 99} | head -n 90000; done)"  # 9 MB each
    raw, text, code = in_terminal(f"{slow} | unnoise sketch - -c word -e 1 --cells 2^14 -o {words}/p.sketch")
    assert code == 0
    assert re.search(r"reading .*[\d,]+ rows [\d,]+ rows/s \d+:\d\d", text), text[-2000:]
    assert raw.rstrip().endswith("\x1b[?25h") or "\x1b[?25h" in raw  # the cursor is back


def test_time_left_for_files(words):
    path = words / "long.parquet"
    pl.select(word=pl.int_range(20_000_000) % 1000).write_parquet(path)
    _, text, code = in_terminal(f"unnoise sketch {path} -c word -e 1 --cells 2^14 -o {words}/l.sketch")
    assert code == 0
    shown = re.findall(r"reading .*rows/s (\d+:\d\d:\d\d|-:--:--)", text)
    # a fast machine may be done before the bar appears: then there is nothing to see, and that is right
    assert shown or "reading" not in text


def test_pipes_are_quiet_and_plain(words):
    done = pipe(f"unnoise sketch {words}/words.csv -e 1 --cells 2^12 -o - 2>{words}/err | unnoise estimate - --json")
    assert json.loads(done.stdout)["cells"] == 4096
    assert (words / "err").read_text() == ""
    done = pipe(f"gzip -c {words}/words.csv | zcat | unnoise profile - -c word -e 5 --cells 2^12 | cat")
    assert "\x1b" not in done.stdout
    assert "exactly once" in done.stdout
    assert done.stderr == ""


def test_a_closed_pipe_is_no_error(words):
    done = pipe(f"unnoise profile {words}/words.csv -e 5 --cells 2^12 | head -n 1; exit ${{PIPESTATUS[0]}}")
    assert done.stderr == ""


@pytest.mark.parametrize(
    "command",
    ["profile words.csv -e 5", "profile words.csv -e 5 --json", "profile words.csv -e 5 -o -", "--help", "--version",
     "sketch words.csv -e 1 --cells 2^12 -o -", "plan --help", "advise -e 1 --items 10 --repetitions 1"],
)  # fmt: skip
def test_a_reader_that_never_was_is_no_error(words, command):
    """The pipe is closed before anything is written; whoever is interrupted by that did what was asked."""
    done = pipe(f"cd {words}; unnoise {command} | head -c 0; exit ${{PIPESTATUS[0]}}")
    assert done.stderr == ""


@pytest.mark.parametrize(("command", "code"), [("--version >&-", 0), ("nothing 2>&-", 2), ("nothing 2>&1 | true", 2)])
def test_closed_outputs_change_no_exit_code(words, command, code):
    pipe(f"unnoise {command}; exit ${{PIPESTATUS[0]}}", code)


def test_what_is_written_is_utf_8_whatever_the_locale(words):
    done = pipe(f"PYTHONIOENCODING=ascii unnoise profile {words}/words.csv -e 5")
    assert "ε = 5 for one occurrence" in done.stdout


def test_answers_and_pages_that_take_long_say_so(words):
    """Everything over a second has a line of its own, the direct model's answers and the writing of pages included."""
    slow = f"""import sys, time
import unnoise.cli._output as show
import unnoise.answers.questions as questions, unnoise.api as api
show.PATIENCE = 0.2
def late(module, name):
    found = getattr(module, name)
    setattr(module, name, lambda *a, **k: (time.sleep(1), found(*a, **k))[1])
late(questions, "sheets"), late(show, "write_whole"), late(api, "release_and_answer")
sys.argv = ["unnoise", "profile", "{words}/words.csv", "-e", "5", "-o", "{words}/slow.html"]
from unnoise.cli import run
run()"""
    (words / "slow.py").write_text(slow)
    raw, text, code = in_terminal(f"{sys.executable} {words}/slow.py")
    assert code == 0
    assert re.search(r"answering 0:00:0[1-9]", text)
    assert re.search(r"writing \S*slow.html 0:00:0[1-9]", text)
    assert raw.count("\x1b[?25l") == raw.count("\x1b[?25h"), "the cursor is back"


def test_a_dumb_terminal_gets_no_line_that_it_could_not_take_away(words):
    slow = f"(cat {words}/words.csv; sleep 1.5; echo w)"
    _, text, code = in_terminal(f"export TERM=dumb; {slow} | unnoise profile - -c word -e 5 | head -n 2")
    assert code == 0
    assert re.fullmatch(r"\r\n\w[^\r]*occurred exactly once[^\r]*\r\n", text), text


def test_errors_in_a_terminal_are_one_line(words):
    raw, _, code = in_terminal(f"unnoise profile {words}/words.csv -e 1 -c wort")
    assert code == 2
    assert left_on_screen(raw) == f"unnoise: {words}/words.csv: no column 'wort'; did you mean word?"


def test_interrupting(words):
    command = f"(cat {words}/words.csv; sleep 60) | unnoise sketch - -c word -e 1 -o x"
    child = pexpect.spawn("bash", ["--norc", "-c", command], env=environment(), encoding="utf-8", timeout=600,
                          cwd=str(words))  # fmt: skip
    child.expect_exact("reading ")  # it says so after a second
    child.sendintr()
    child.expect(pexpect.EOF)
    child.close()
    assert "Traceback" not in child.before
    assert not (words / "x").exists()


@pytest.fixture(scope="module")
def completion(tmp_path_factory) -> Path:
    """Bash's completion script, as the command installs it."""
    script = subprocess.run(
        [UNNOISE, "--show-completion", "bash"], capture_output=True, text=True, check=True,
        env=environment(_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1"),
    ).stdout  # fmt: skip
    path = tmp_path_factory.mktemp("completion") / "unnoise.sh"
    path.write_text(script)
    assert "complete" in script
    return path


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("unnoise ins", "pect "),
        ("unnoise profile --max-con", "tributions "),
        ("unnoise profile --method iso", "tonic "),
        ("unnoise sketch --format ndj", "son "),
    ],
)
def test_completion_in_a_real_bash(completion, typed, expected):
    if shutil.which("bash") is None:
        pytest.skip("no bash")
    child = pexpect.spawn("bash", ["--norc", "--noprofile", "-i"], env=environment(PS1="READY> "), encoding="utf-8",
                          timeout=600, dimensions=(40, 160))  # fmt: skip
    child.expect_exact("READY> ")
    child.sendline(f"source {completion}; PS1='GO''> '")
    child.expect_exact("GO> ")
    child.send(typed + "\t")
    child.expect_exact(typed + expected)
    child.sendcontrol("c")
    child.sendline("exit")
    child.close(force=True)


def test_help_is_quick():
    """Heavy imports stay inside the commands."""
    code = """
import sys
sys.argv = ["unnoise", "--help"]
from unnoise.cli import main
try:
    main()
except SystemExit:
    pass
print([m for m in ("scipy", "polars", "pyarrow", "matplotlib") if m in sys.modules], file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_the_table_of_frequencies_is_never_cut(words):
    """The last row is open where there are more than fit; bars leave a narrow terminal its columns."""
    (words / "far.freqcount").write_text("1 900\n3 50\n4000 2\n")
    text = pipe(f"unnoise profile {words}/far.freqcount -e 5 --ledger off").stdout
    rows = [line for line in text.splitlines() if re.match(r" *[\d,]+(–[\d,]+|\+)? +[\d,]+ +[\d,]+ – ", line)]
    assert re.match(r" *\d+\+ ", rows[-1]), rows
    command = f"stty cols 40; COLUMNS=40 unnoise profile {words}/far.freqcount -e 5 --ledger off"
    _, narrow, code = in_terminal(command)
    assert code == 0
    assert "…" not in narrow


def test_a_broken_pipe_does_not_hide_that_nothing_was_written(words):
    done = pipe(f"unnoise profile {words}/words.csv -e 5 --ledger off -o /proc/x.html | head -n 1", code=2)
    assert "/proc/x.html: No such file" in done.stderr


def test_standard_input_is_called_so(words):
    for command in ("estimate -", "inspect -"):
        done = pipe(f"(printf ARROW1unnoise; head -c 500 {words}/words.csv) | unnoise {command}", code=2)
        assert "unnoise: standard input is not a valid sketch file" in done.stderr
    done = pipe(f"head -c 500 {words}/words.csv | unnoise estimate -", code=2)
    assert "--epsilon is required: standard input is not a sketch" in done.stderr


def test_who_waits_for_a_long_list_is_told_what_does_not(words):
    """Refused it cannot be: that there is one item more would be seen without noise."""
    (words / "long.freqcount").write_text(f"1 {10**11}\n")
    command = f"unnoise sketch {words}/long.freqcount -e 1 --cells 2^8 --ledger off -o {words}/long.sketch"
    child = pexpect.spawn("bash", ["--norc", "-c", command], env=environment(), encoding="utf-8", timeout=60,
                          dimensions=(40, 160))  # fmt: skip
    child.expect_exact("item by item")
    child.close(force=True)
    assert not (words / "long.sketch").exists()
