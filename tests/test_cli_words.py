"""What the command line says: options in messages, help without types of flags, names completed, things said once."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from command_tools import run_in
from unnoise.cli import _app, app
from unnoise.cli._options import column_names
from unnoise.sketches.sketch import Sketch


def run(*arguments: object, code: int = 0, **environment: str) -> tuple[str, str]:
    done = run_in(".", *arguments, COLUMNS="80", **environment)
    assert done.returncode == code, done.stderr
    return done.stdout, done.stderr


@pytest.fixture
def visits(tmp_path) -> Path:
    path = tmp_path / "visits.csv"
    path.write_text("user,page\nu1,a\nu2,b\nu1,b\n")
    return path


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["-e", "-1"], "--epsilon must be > 0, got -1"),
        ([], "--epsilon is required"),
        (["-e", "1", "--cells", "1000"], "--cells must be a power of two, got 1000"),
        (["-e", "1", "--max-contributions", "0"], "--max-contributions must be an integer between 1 and"),
        (["-e", "1", "--hash-seed", "-4"], "--hash-seed must be an integer ≥ 0, got -4"),
        (["-e", "1", "--delimiter", ";;"], "--delimiter must be a single ASCII character"),
        (["-e", "1", "--method", "magic"], "--method must be one of"),
    ],
)
def test_messages_speak_of_options(visits, arguments, expected) -> None:
    _, err = run("profile", visits, "-c", "user", "--sketch", *arguments, code=2)
    assert expected in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        *(["profile", "FILE", "-e", "1", one] for one in ("--dataset", "-c", "--noun", "--title", "--by", "--sql")),
        ["profile", "FILE", "-c", "user", "-e", "1", "--by", "page", "--groups"],
        ["sketch", "FILE", "-c", "user", "-e", "1", "-o", "a.sketch", "--label"],
        ["ledger", "FILE", "--limit", "3", "--unit"],
        ["ledger", "FILE", "--limit", "3", "--dataset"],
        ["share", "task", "-e", "1", "-o", "a.task", "--epoch"],
        ["plan", "-e"],
    ],
    ids=lambda words: f"{words[0]} {words[-1]}",
)
def test_every_text_of_the_command_line_is_utf_8(words, visits) -> None:
    """Python makes surrogates of other bytes, which a ledger, a page or a sketch cannot hold."""
    _, error = run(*[visits if word == "FILE" else word for word in words], "K\udce4", code=2)
    option = {"-c": "--column", "-e": "--epsilon"}.get(words[-1], words[-1])
    assert error == f"unnoise: {option} must be UTF-8, got other bytes: 'K\\udce4'\n"


def test_files_may_have_names_of_any_bytes(visits, tmp_path) -> None:
    odd = tmp_path / "K\udce4.sketch"
    run("sketch", visits, "-c", "user", "-e", "1", "-o", odd)
    assert "ε = 1" in run("inspect", odd)[0]


def test_only_arguments_become_options() -> None:
    assert _app.in_options("use clipped=True and max_count=7, got x") == "use --clipped and --max-count 7, got x"
    for same in ("rate.csv: no such file", "the domain must hold items", "cells_of must be"):
        assert _app.in_options(same) == same


@pytest.mark.parametrize("name", ["profile", "sketch", "estimate", "compare", "merge", "inspect"])
def test_help_shows_no_types_of_flags(name) -> None:
    out, _ = run(name, "--help")
    assert "<bool>" not in out
    assert "<list" not in out
    assert max(map(len, out.split("\n"))) <= 80
    assert "--help" in out
    values = re.findall(r"--epsilon +-e +(\S+)", out)
    assert values in ([], ["E"]), "options with a value still say which"


def test_columns_are_completed_from_the_files(visits) -> None:
    context = typer.Context(typer.main.get_command(app))
    context.params = {"inputs": [str(visits)]}
    assert column_names(context, "") == ["user", "page"]
    assert column_names(context, "pa") == ["page"]
    context.params = {"inputs": ["nothing.csv"]}
    assert column_names(context, "") == []


def test_the_shell_completes_columns(visits) -> None:
    words = f"unnoise profile {visits} --column "
    done = subprocess.run(
        [str(Path(sys.executable).parent / "unnoise")], capture_output=True, text=True, check=False,
        env={**os.environ, "_UNNOISE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": "4"},
    )  # fmt: skip
    assert done.stdout.split() == ["user", "page"]


def test_inspect_says_each_thing_once(tmp_path) -> None:
    for name in "abc":
        Sketch.hashed(2**6, epsilon=1 if name != "c" else 2, item_types=["str"]).save(tmp_path / f"{name}.sketch")
    out, _ = run("inspect", *(tmp_path / f"{name}.sketch" for name in "abc"))
    assert out.count("hash seed") == 1
    assert out.count("kind hashed") == 1
    assert " ".join(out.split()).count("It holds for the state seen once") == 2, "one promise for a and b, one for c"
    assert "…" not in out
    alone, _ = run("inspect", tmp_path / "a.sketch")
    assert alone.count("ε = 1 for one occurrence") == 1
    assert "all together" not in alone


@pytest.mark.parametrize(
    "words",
    [
        "profile rows.csv -e ٣", "profile rows.csv -e 1e٣", "profile rows.csv -e 1 --cells ٦٤",
        "profile rows.csv -e 1 --cells 2^６", "profile rows.csv -e 1 --hash-seed ٣",
        "profile rows.csv -e 1 --levels ٣", "profile rows.csv -e 1 --max-count ٣",
        "profile rows.csv -e 1 --int --domain ٣", "profile rows.csv -e 1 --int --domain 9 --rate ٣/٤",
        "profile rows.csv -e 1 --ledger my.ledger --limit ٣", "profile rows.csv -e 1 --headline at-least-٣",
        "profile rows.csv -e 1 --at-least ٣", "plan --cells 64 --target ٣%", "plan --cells 64 -e 1 --shape poisson:٣",
        "plan -e 1 --kind hashed --items ٣",
    ],
)  # fmt: skip
def test_numbers_are_written_in_ascii(tmp_path, words):
    """Python reads digits of any script; a three that looks like something else is asked back."""
    (tmp_path / "rows.csv").write_text("n\n1\n2\n")
    done = run_in(tmp_path, *words.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert re.search(r"must be .*, got|Invalid value for", done.stderr), done.stderr
