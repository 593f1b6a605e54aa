"""Neighbouring inputs through processes: the command line, two servers, the collector, Spark.

As in ``_library.py``, the cells of one release are as many trials; each release is one run of the whole thing: files on
disk, commands in processes of their own, shares in two servers' stores, reports over HTTP, a Spark job.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path as Folder
from typing import Any

import numpy as np
import polars as pl
from _audit import ROOT
from _library import CELLS, Path, View, apart, repeated

sys.path.insert(0, str(ROOT / "tests"))
from unnoise import Sketch
from unnoise.protocols.shares import Server, Site, Task
from unnoise.protocols.shares.site import mask
from unnoise.protocols.shares.task import unpack

LARGE = 1 << 17


# ── the command line ──────────────────────────────────────────────────────────────────────────────────────────


def unnoise(folder: Folder, *words: str) -> str:
    environment = {**os.environ, "UNNOISE_LEDGER": "off"}
    command = [sys.executable, "-m", "unnoise", *words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return done.stdout


def read(path: Folder) -> np.ndarray:
    return Sketch.load(path).release().counts


def command_line(epsilon: str = "1") -> View:
    """Two files become two sketches and their sum; the unit is in the first file. All three sketches are public."""

    def one(which: int, cells: int) -> np.ndarray:
        with tempfile.TemporaryDirectory() as name:
            folder = Folder(name)
            for file, times in (("a", 1 + which), ("b", 1)):
                pl.DataFrame({"item": np.repeat(np.arange(cells), times)}).write_csv(folder / f"{file}.csv")
                unnoise(folder, "sketch", f"{file}.csv", "--column", "item", "--int", "--domain", str(cells),
                        "--epsilon", epsilon, "-o", f"{file}.sketch")  # fmt: skip
            unnoise(folder, "merge", "a.sketch", "b.sketch", "-o", "both.sketch")
            first, second, both = (read(folder / f"{file}.sketch") for file in ("a", "b", "both"))
        return np.column_stack([first, second, both, first - second])

    return repeated(one, LARGE)


def command_line_profile(epsilon: str = "1") -> View:
    """`unnoise profile` with many groups: what its JSON says of each, in tenths."""

    def one(which: int, size: int) -> np.ndarray:
        names = [f"g{i}" for i in range(size)]
        with tempfile.TemporaryDirectory() as name:
            rows = [group for group in names for _ in range(1 + which)]
            pl.DataFrame({"item": ["x"] * len(rows), "g": rows}).write_csv(Folder(name) / "a.csv")
            said = unnoise(Folder(name), "profile", "a.csv", "--column", "item", "--by", "g", "--groups",
                           ",".join(names), "--epsilon", epsilon, "--json")  # fmt: skip
        groups = json.loads(said)["groups"]
        asked = sorted(k for k, v in groups[names[0]]["answers"].items() if isinstance(v, dict) and "value" in v)
        return np.array([[round(10 * groups[g]["answers"][a]["value"]) for a in asked] for g in names])

    return repeated(one, 125)


# ── two servers ───────────────────────────────────────────────────────────────────────────────────────────────


def two_servers(side: int, noise: bool = True) -> View:
    """One server with the collector and every site but one: its own share, and what the other server answers.

    Both answers are public. The server knows its own addend of the sum, so the other's answer gives it the true sum
    plus the other's noise; ``noise=False`` is an other server that forgets it.
    """

    def one(which: int, cells: int) -> np.ndarray:
        task = Task.known(cells, epsilon=1, epoch="2026-11")
        with tempfile.TemporaryDirectory() as name:
            pair = [Server.create(Folder(name) / each, task, each) for each in ("seed", "difference")]
            reports = []
            for site, times in (("a", which), ("b", 1)):
                made = Site(task, site)
                made.update(np.repeat(np.arange(cells), times))
                reports.append(made.split())
            for report in reports:
                pair[0].receive(report.seed)
                pair[1].receive(report.difference)
            words = [server.agree([report.report for report in reports]) for server in pair]
            answers = [server.answer(word) for server, word in zip(pair, reversed(words))]
            for server in pair:
                server.shut()
        shares = [[mask(bytes(unpack(r.seed, "share")[1]), cells), _words(r.difference, "share")] for r in reports]
        mine, theirs = ([s[k] for s in shares] for k in (side, 1 - side))
        known = mine[0] + mine[1]
        other = _words(answers[1 - side], "answer") if noise else theirs[0] + theirs[1]
        seen = (known + other).view(np.int64)
        return np.column_stack([seen, mine[0] & np.uint64(7), mine[0] >> np.uint64(61)]).astype(np.int64)

    return repeated(one, 1 << 14)


def _words(message: bytes, kind: str) -> np.ndarray:
    return np.frombuffer(bytes(unpack(message, kind)[1]), dtype="<u8")


# ── the collector ─────────────────────────────────────────────────────────────────────────────────────────────


def collector(again: bool = False) -> View:
    """Two sites send, a viewer downloads reports and their sum. ``again``: both are sketches of the same rows."""

    def view(which: int, trials: int) -> np.ndarray:
        from serve_tools import running

        items, where = apart()
        found = []
        with tempfile.TemporaryDirectory() as name, running(Folder(name) / "data") as server:
            with server.client() as admin:
                admin.make_task("reach", epsilon="1", cells=CELLS, item_types=["str"], every="day", noun="item")
                clients = [server.client(admin.make_token("site", site)) for site in ("a", "b")]
                viewer = server.client(admin.make_token("viewer"))
            for number in range(-(-trials // len(items))):
                day = f"2026-11-{1 + number:02}"
                sent = []
                for client, times in zip(clients, (1 + which, 1 + which if again else 1)):
                    path = Folder(name) / f"{number}-{len(sent)}.sketch"
                    sketch = Sketch.hashed(CELLS, epsilon=1, item_types=["str"])
                    sketch.update(items * times)
                    sketch.save(path)
                    sent.append(client.send("reach", path, period=day)["digest"])
                reports = []
                for at, digest in enumerate(sent):
                    copy = Folder(name) / f"{number}-{at}.copy"
                    copy.write_bytes(viewer._http.get(f"/tasks/reach/reports/{digest}").content)
                    reports.append(read(copy)[where])
                viewer.merged("reach", Folder(name) / f"{number}.merged", periods=[day])
                merged = read(Folder(name) / f"{number}.merged")[where]
                found.append(np.column_stack([*reports, merged]))
        return np.concatenate(found)

    return view


# ── Spark ─────────────────────────────────────────────────────────────────────────────────────────────────────


@cache
def spark_session() -> Any:
    from spark_tools import session

    return session()[0]


def spark(epsilon: Any = 1, occupied: bool = False) -> View:
    """A sketch made by Spark: all of its items are there once, or none. ``occupied``: only their cells have noise."""

    def one(which: int, cells: int) -> np.ndarray:
        import unnoise.spark

        rows = spark_session().range(cells * which).selectExpr("id as i")
        made = unnoise.spark.sketch(rows, "i", epsilon=epsilon, kind="known", domain=cells)
        return made.release().counts * (which if occupied else 1)

    return repeated(one, LARGE)


SERVICES: dict[str, Path] = {
    "command line: sketch, merge": Path(1, command_line(), {"half the noise": command_line("2")}, (500_000, 0)),
    "command line: profile": Path(
        1, command_line_profile(), {"a quarter of the noise": command_line_profile("4")}, (250, 0), each="group"
    ),
    "two servers, view of the seeds": Path(
        1, two_servers(0), {"no noise at the other": two_servers(0, noise=False)}, (300_000, 20_000)
    ),
    "two servers, view of the differences": Path(
        1, two_servers(1), {"no noise at the other": two_servers(1, noise=False)}, (300_000, 20_000)
    ),
    "collector": Path(1, collector(), {"a retried report": collector(again=True)}, (300_000, 0)),
    "Spark": Path(
        1, spark(), {"noise on occupied cells only": spark(occupied=True), "half the noise": spark(2)}, (500_000, 0)
    ),
}  # fmt: skip
"""Every path through processes, by name."""
