"""docs/cli.md names every command and every option there is, and no other."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from unnoise.cli import _app, answer, app, collector, experiments, files, sites

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "cli.md").read_text()
GROUP = typer.main.get_command(app)
assert {files, answer, collector, experiments, sites}  # importing them registers the commands


def flat(group, above: str = "") -> dict:
    """All commands by their full names: those of a group stand under it."""
    found = {}
    for name, command in group.commands.items():
        found |= flat(command, f"{name} ") if hasattr(command, "commands") else {above + name: command}
    return found


COMMANDS = flat(GROUP)


def options(command) -> set[str]:
    return {name for parameter in command.params for name in parameter.opts if name.startswith("-")}


def test_every_command_is_in_order_and_documented():
    assert {name.split()[0] for name in COMMANDS} == set(_app.ORDER)
    for name in COMMANDS:
        assert f"unnoise {name}" in PAGE


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_documented(name):
    for option in options(COMMANDS[name]):
        assert f"`{option}`" in PAGE or f"`{option} " in PAGE, f"{name} {option}"


def test_no_option_is_made_up():
    known = {"--help", "-h", "--install-completion", "--show-completion", *options(GROUP)}
    for command in COMMANDS.values():
        known |= options(command)
    mentioned = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", PAGE))
    assert mentioned <= known, mentioned - known


def test_every_option_has_help_and_every_command_examples():
    for name, command in COMMANDS.items():
        assert "Examples" in (command.epilog or ""), name
        for parameter in command.params:
            assert getattr(parameter, "help", "") or parameter.name == "help", (name, parameter.name)


def test_the_messages_quoted_are_the_real_ones(tmp_path):
    import polars as pl

    from unnoise.errors import InputError
    from unnoise.reading.source import Wanted, open_source

    (tmp_path / "visits.csv").write_text("url,a,b\n" + "x,1,2\n" * 16 + "x,1,2,3\n")
    pl.DataFrame({"url": ["x"]}).write_parquet(tmp_path / "visits.parquet")
    (tmp_path / "ids.csv").write_text("id\n1\n2\nx3\n")
    for file, wanted in (
        ("visits.parquet", Wanted(columns=("ulr",))),
        ("visits.csv", Wanted(columns=("url",))),
        ("ids.csv", Wanted(columns=("id",), integers=True)),
    ):
        with pytest.raises(InputError) as error:
            list(open_source([tmp_path / file]).batches(wanted))
        assert f"unnoise: {str(error.value).replace(f'{tmp_path}/', '')}" in PAGE


def test_the_python_of_the_page_runs(tmp_path, monkeypatch):
    import polars as pl

    monkeypatch.chdir(tmp_path)
    countries = ["DE", "FR", "IT"]
    products = [f"p{i % (i // 5 + 1)}" for i in range(3000)]
    pl.DataFrame({"product": products, "country": countries * 1000}).write_parquet("sales.parquet")
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
    names: dict = {}
    exec("import unnoise as un\n" + code, names)
    assert list(names["profiles"]) == countries
    assert "DE" in names["html"]


@pytest.mark.slow
def test_the_benchmark_of_the_command_line_runs():
    """On few rows, twice, so that nobody finds out after an hour that it does not."""
    root = Path(__file__).resolve().parent.parent
    script = root / "benchmarks" / "cli.py"
    done = subprocess.run(
        [sys.executable, str(script), "--rows", "20000", "--runs", "2"], capture_output=True, text=True, cwd=root
    )
    assert done.returncode == 0, done.stderr
    assert "| strings |" in done.stdout
