"""The README: its first screen is the picture and the two commands, and what it shows can be run as it stands."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from unnoise.cli import main

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "README.md").read_text()


@pytest.fixture
def visits(tmp_path, monkeypatch) -> Path:
    """2,000 users of 1 to 6 visits each, 300 pages."""
    rng = np.random.default_rng(1)
    users = np.repeat(np.arange(2000), rng.integers(1, 7, 2000))
    pages = [f"/{page}" for page in rng.integers(0, 300, users.size)]
    pl.DataFrame({"user": users, "page": pages}).write_parquet(tmp_path / "visits.parquet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_first_screen_is_the_picture_and_two_commands() -> None:
    top = TEXT.split("\n")[:16]
    assert any(line.startswith("![") for line in top)
    assert any(line.startswith("make demo") for line in top)
    assert any(line.startswith("make test") for line in top)


def test_the_python_runs_and_protects_users(visits) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.S)
    names: dict = {}
    exec(code, names)
    assert 2000 in names["p"].distinct.at(1 - 1e-9)
    assert names["p"].distinct.at(1 - 1e-9).high < 2200
    assert "person" in names["p"].guarantee
    assert "one person" in names["sketch"].guarantee
    assert (visits / "monday.sketch").exists()


def test_the_commands_run(visits, monkeypatch, capfd) -> None:
    blocks = "".join(re.findall(r"```console\n(.*?)```", TEXT, re.S))
    commands = re.findall(r"^unnoise .*$", blocks, re.M)
    assert len(commands) >= 2
    for line in commands:
        monkeypatch.setattr(sys, "argv", shlex.split(line))
        with pytest.raises(SystemExit) as left:
            main()
        assert (left.value.code or 0) == 0, capfd.readouterr().err
    assert "users were seen" in (visits / "reach.html").read_text()
    out = capfd.readouterr().out
    assert "one person" in out or "a person" in out
