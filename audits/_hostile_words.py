"""Target: whole command lines, right and wrong words with hostile values and files."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import shutil
import sys
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import _corpus
from _children import Target
from _hostile_files import make_sketch
from _hostile_inputs import good_files

WORDS_GIVEN = (
    "", "-", "--", "x", "\x1b[2J", "\ud800", "1", "0", "-1", "1e400", "1e-400", "1e999999999", "2^20", "2^999",
    "2^-1", "nan", "1/0", "1/3", "9" * 400, "a,b,,a", ",", "é", "[red]x[/red]", "../..", "/dev/null", "/",
    "no-such-file", "x" * 5000,
    "SELECT", "SELECT * FROM data", "; DROP TABLE data", "*", "[", "A,B", "random", "tab", "None",
)  # fmt: skip
GIVEN = ("rows.csv", "good.sketch", "bad.sketch", "rows.parquet", "empty", "set", "folder", "message")


TEMPLATES = tuple(
    line.split()
    for line in """\
inspect good.sketch
inspect set --json
merge good.sketch -o out
estimate good.sketch --json
estimate rows.csv -c n -e 1
estimate - --json
report good.sketch -o out.html
union good.sketch
table good.sketch --by site
sketch rows.csv -c x -e 1 --cells 64 -o out
sketch rows.csv -c x -e 1 --by g --groups A,B --cells 64 -o out
sketch rows.csv -c x -e 1 --person g --max-contributions 2 --cells 64 -o out
sketch rows.parquet -c n -e 1 --domain 9 -o out
sketch - -c x -e 1 --cells 64 -o out
profile rows.csv -c x -e 1 --json
share split rows.csv -c n --task message --site a -o out
ledger rows.csv""".splitlines()
)
LEFT_OUT = ("demo", "serve", "compare", "plan", "advise")
"""Commands that run for ever, or for seconds: experiments have no input but their options, tested elsewhere."""


@lru_cache(maxsize=1)
def commands() -> dict[tuple[str, ...], Any]:
    """Every command by its words; the application is built once and used from then on, which saves 0.07 s a call."""
    import typer.main

    from unnoise.cli import _app, answer, collector, experiments, files, sites  # noqa: F401

    whole: Any = typer.main.get_command(_app.app)
    _app.app = whole
    found: dict[tuple[str, ...], Any] = {}
    for name, command in whole.commands.items():
        inner = getattr(command, "commands", None)
        found.update({(name, n): c for n, c in inner.items()} if inner else {(name,): command})
    return {words: command for words, command in found.items() if words[0] not in LEFT_OUT}


def make_words(rng: random.Random) -> tuple[list[str], bytes]:
    """Return the words of a command line, and standard input."""
    if rng.random() < 0.4:
        words = list(rng.choice(TEMPLATES))
        if rng.random() < 0.8:
            words[rng.randrange(1, len(words))] = rng.choice((*WORDS_GIVEN, *GIVEN))
        return words, _standard_input(rng)
    chosen = rng.choice(sorted(commands()))
    words = list(chosen)
    if words[0] in ("sketch", "profile") and rng.random() < 0.7:
        words += ["rows.csv", "-c", "x", "-e", "1", "--cells", "64"]
    for parameter in commands()[chosen].params:
        argument = parameter.param_type_name == "argument"
        if not argument and rng.random() > (0.9 if parameter.required else 1.5 / len(commands()[chosen].params)):
            continue
        if not argument:
            words.append(rng.choice(parameter.opts))
        if argument or not getattr(parameter, "is_flag", False):
            words.append(_value(rng, parameter.name))
    for _ in range(rng.choice((0, 0, 0, 1))):
        words.insert(rng.randrange(1, len(words) + 1), rng.choice(WORDS_GIVEN))
    return words, _standard_input(rng)


def _standard_input(rng: random.Random) -> bytes:
    return rng.choice((b"", b"x\na\n", b"\xff\xfe", make_sketch(rng).data))


def _value(rng: random.Random, name: str) -> str:
    """Return a value for a parameter: often one that might do."""
    if name in ("to", "url"):
        return rng.choice(("", "x", "ftp://x", "http://example.org", "https://[", "http://127.0.0.1:x"))  # nobody's
    if name == "output" and rng.random() < 0.7:
        return rng.choice(("out", "out.html", "out.csv", "out.json", "-"))
    if name == "epsilon" and rng.random() < 0.7:
        return "1"
    return rng.choice((*GIVEN, *GIVEN, *WORDS_GIVEN))


@lru_cache(maxsize=1)
def _folder() -> Path:
    """A folder with good and bad files, in which commands run."""
    place = Path(tempfile.mkdtemp(prefix="unnoise-words-"))
    (place / "rows.csv").write_text("x,n,g\na,1,A\nb,2,B\n")
    (place / "rows.parquet").write_bytes(good_files()["parquet"])
    (place / "good.sketch").write_bytes(_corpus.sketch_files()[0])
    (place / "bad.sketch").write_bytes(_corpus.sketch_files()[0][:-3])
    (place / "empty").write_bytes(b"")
    (place / "folder").mkdir()
    (place / "message").write_bytes(_corpus.messages()["task"])
    shutil.copytree(_corpus.CORPUS / "groups", place / "set")
    (place / "task.json").write_text(json.dumps(_corpus.task_values()))
    return place


def use_words(given: tuple[list[str], bytes]) -> None:
    """Run a command; it ends with 0 or 2 and one line on standard error."""
    from unnoise.cli import main
    from unnoise.errors import UnnoiseError

    os.chdir(_folder())
    commands()
    out, err, words = io.StringIO(), io.StringIO(), [word.encode("utf-8", "replace").decode() for word in given[0]]
    before = sys.argv, sys.stdin
    sys.argv, sys.stdin = ["unnoise", *words], io.TextIOWrapper(io.BytesIO(given[1]))
    code: Any = 0
    try:
        with contextlib.redirect_stdout(io.TextIOWrapper(_Sink(), write_through=True)), contextlib.redirect_stderr(err):
            main()
    except SystemExit as left:
        code = left.code
    finally:
        sys.argv, sys.stdin = before
        for left_over in _folder().glob("out*"):
            shutil.rmtree(left_over) if left_over.is_dir() else left_over.unlink()
    text = out.getvalue() + err.getvalue()
    if code not in (0, 2, None) or "Traceback" in text or "fault of unnoise" in text:
        raise Ended(f"exit {code} of {' '.join(words)[:150]}: {text[-150:]}")
    if code == 2:
        raise UnnoiseError("refused")


class _Sink(io.RawIOBase):
    """Standard output that nobody reads."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return len(data)


class Ended(Exception):
    """A command that ended as none must."""


def command_lines() -> Target:
    """Whole command lines."""
    return Target(make_words, use_words, {"traceback": _unnamed_errors})


def _unnamed_errors() -> None:
    """Take errors of unnoise for faults of it."""
    from unnoise.cli import _app

    _app.UnnoiseError = ()
