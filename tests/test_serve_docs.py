"""Every command of docs/collector.md, run as it stands there, in its order."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from serve_tools import Server, running

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "collector.md").read_text()
COMMANDS = [line for block in re.findall(r"```console\n(.*?)```", PAGE, re.S) for line in block.strip().split("\n")]


def run(line: str, folder: Path, port: int) -> str:
    words = shlex.split(line.replace("8400", str(port)))
    done = subprocess.run([sys.executable, "-m", *words], cwd=folder, capture_output=True, text=True, timeout=600)
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


def test_the_servers_of_the_page_start_as_it_says(tmp_path):
    seed, difference, collector = [shlex.split(line)[2:] for line in COMMANDS if line.startswith("unnoise serve")][1:]
    servers = []
    for options in (seed, difference):
        server = Server(tmp_path / options[options.index("--data") + 1], *options[options.index("--side") :])
        server.start()
        servers.append(server)
    try:
        tokens = []
        for server in servers:
            with server.client() as admin:
                tokens.append({"url": server.address, "token": admin.make_token("collector")})
        (tmp_path / "servers.json").write_text(json.dumps({"servers": tokens}))
        assert collector[-1] == "servers.json"
        with running(tmp_path / "collector-data", "--servers", str(tmp_path / "servers.json")) as server:
            assert "unnoise collector at" in server.log()
    finally:
        for server in servers:
            server.stop()


def test_two_servers_can_be_followed(tmp_path):
    """The block of files and shares, run as it stands there, with two sites."""
    block = re.search(r"Then, in files:\n\n```\n(.*?)```", PAGE, re.S)[1]
    lines = [re.sub(r" {2,}.*", "", line) for line in block.splitlines()]
    assert len(lines) == 6
    with (
        running(tmp_path / "A", "--side", "seed") as seed,
        running(tmp_path / "B", "--side", "difference") as difference,
    ):
        servers = []
        for server, mark in ((seed, "a"), (difference, "b")):
            with server.client() as admin:
                servers.append({"url": server.address, "token": admin.make_token("collector")})
                for name in ("berlin", "oslo"):
                    (tmp_path / f"{name}-{mark}.token").write_text(admin.make_token("site", name))
        (tmp_path / "servers.json").write_text(json.dumps({"servers": servers}))
        with running(tmp_path / "C", "--servers", str(tmp_path / "servers.json")) as collector:
            there = f"--to {collector.address} --token-file C/administrator.token"

            def follow(line: str) -> str:
                line = line.replace("--to … --token-file …", there)
                for port, server in (("8401", seed), ("8402", difference)):
                    line = line.replace(port, str(server.port))
                return run(line, tmp_path, collector.port)

            for line in lines[:2]:
                follow(line)
            for number, name in enumerate(("berlin", "oslo")):
                pl.DataFrame({"user": [f"u{i}" for i in range(500 * number, 1000 + 500 * number)]}).write_csv(
                    tmp_path / "visits.csv"
                )
                for line in lines[2:5]:
                    follow(line.replace("berlin", name))
            assert "2 sites, 1 period" in follow(lines[5])
            assert "2 sites, 1 period" in follow(lines[5]), "asked again it is the same sum"
