"""Every command of docs/collector.md, run as it stands there, in its order."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import pytest

from command_tools import run_in, shell_lines
from serve_tools import Server, running

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "collector.md").read_text()
COMMANDS = [line for block in re.findall(r"```console\n(.*?)```", PAGE, re.S) for line in shell_lines(block)]


def run(line: str, folder: Path, port: int) -> str:
    done = run_in(folder, *shlex.split(line.replace("8400", str(port)))[1:])
    assert done.returncode == 0, (line, done.stderr)
    return done.stdout + done.stderr


@pytest.mark.slow
def test_the_page_can_be_followed(tmp_path):
    serving = [line for line in COMMANDS if line.startswith("unnoise serve")]
    others = [line for line in COMMANDS if line.startswith("unnoise ") and line not in serving]
    assert len(serving) == 4
    assert len(others) == 6
    users = np.random.default_rng(0).zipf(1.7, 20_000) % 5000
    pl.DataFrame({"user_id": users}).write_parquet(tmp_path / "monday.parquet")
    with running(tmp_path / "collector-data") as server:
        for line in others:
            said = run(line, tmp_path, server.port)
        assert "at least once" in said
        assert "remark" in said, "what must be known of an answer stands beside it"
        backup = re.search(r"`(unnoise backup [^`]*)`", PAGE)
        restore = re.search(r"`(unnoise restore [^`]*)`", PAGE.replace("\n", " ").replace("  ", " "))
        run(backup[1], tmp_path, server.port)
        run(re.sub(r"\s+", " ", restore[1]), tmp_path, server.port)
        assert len(list((tmp_path / "new-folder" / "files").glob("*/*.sketch"))) == 1
        with server.client() as admin:
            name = admin.tokens()[-1]["id"]
        run(
            f"unnoise token revoke {name} --to http://127.0.0.1:8400 --token-file collector-data/administrator.token",
            tmp_path, server.port,
        )  # fmt: skip


class Three(NamedTuple):
    """Two servers of shares and their collector, in a folder with all tokens."""

    folder: Path
    seed: Server
    difference: Server
    collector: Server


@pytest.fixture(scope="module")
def three(tmp_path_factory) -> Iterator[Three]:
    """Started as the page says."""
    folder = tmp_path_factory.mktemp("three")
    seed, difference, collector = [shlex.split(line)[2:] for line in COMMANDS if line.startswith("unnoise serve")][1:]
    assert collector[-1] == "servers.json"
    with ExitStack() as stack:
        sides, servers = [], []
        for options, mark in ((seed, "a"), (difference, "b")):
            data = folder / options[options.index("--data") + 1]
            sides.append(stack.enter_context(running(data, *options[options.index("--side") :])))
            with sides[-1].client() as admin:
                servers.append({"url": sides[-1].address, "token": admin.make_token("collector")})
                for name in ("berlin", "oslo"):
                    (folder / f"{name}-{mark}.token").write_text(admin.make_token("site", name))
        (folder / "servers.json").write_text(json.dumps({"servers": servers}))
        gathering = running(folder / "collector-data", "--servers", str(folder / "servers.json"))
        yield Three(folder, *sides, stack.enter_context(gathering))


def test_the_servers_of_the_page_start_as_it_says(three):
    assert "unnoise collector at" in three.collector.log()


def test_two_servers_can_be_followed(three):
    """The block of files and shares, run as it stands there, with two sites."""
    block = re.search(r"Then, in files:\n\n```\n(.*?)```", PAGE, re.S)[1]
    lines = [re.sub(r" {2,}.*", "", line) for line in block.splitlines()]
    assert len(lines) == 6
    there = f"--to {three.collector.address} --token-file {three.collector.folder}/administrator.token"

    def follow(line: str) -> str:
        line = line.replace("--to … --token-file …", there)
        for port, server in (("8401", three.seed), ("8402", three.difference)):
            line = line.replace(port, str(server.port))
        return run(line, three.folder, three.collector.port)

    for line in lines[:2]:
        follow(line)
    for number, name in enumerate(("berlin", "oslo")):
        users = [f"u{i}" for i in range(500 * number, 1000 + 500 * number)]
        pl.DataFrame({"user": users}).write_csv(three.folder / "visits.csv")
        for line in lines[2:5]:
            follow(line.replace("berlin", name))
    assert "2 sites, 1 period" in follow(lines[5])
    assert "2 sites, 1 period" in follow(lines[5]), "asked again it is the same sum"
