"""The good inputs that the audit of files damages: ``python audits/_corpus.py`` writes them anew into tests/corpus.

What the audit has found stands in tests/test_hostile.py, one test a fault.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import numpy as np

from unnoise.protocols.shares import Server, Site, Task, combine
from unnoise.reading.groups import GroupedSketch
from unnoise.sketches.sketch import Sketch

CORPUS = Path(__file__).resolve().parent.parent / "tests" / "corpus"
GOLDEN = CORPUS.parent / "golden"


def sketch_files() -> list[bytes]:
    """Return sketch files of every kind and both versions."""
    kept = [*sorted((CORPUS / "sketches").glob("*.sketch")), *sorted(GOLDEN.glob("sketch-v*.arrow"))]
    return [path.read_bytes() for path in kept]


def group_set() -> dict[str, bytes]:
    """Return the files of a set of groups, by name."""
    return {path.name: path.read_bytes() for path in sorted((CORPUS / "groups").iterdir())}


def messages() -> dict[str, bytes]:
    """Return one message of every kind of the share protocol, by name."""
    return {path.name: path.read_bytes() for path in sorted((CORPUS / "messages").iterdir())}


def task_values() -> dict[str, object]:
    """Return a collector's task as JSON."""
    values: dict[str, object] = json.loads((CORPUS / "task.json").read_text())
    return values


def write() -> None:
    """Write the corpus."""
    for folder in ("sketches", "groups", "messages"):
        shutil.rmtree(CORPUS / folder, ignore_errors=True)
        (CORPUS / folder).mkdir(parents=True)
    _write_sketches(CORPUS / "sketches")
    (CORPUS / "groups").rmdir()
    groups = GroupedSketch(["A", "B é"], lambda: Sketch.hashed(16, epsilon=1, item_types=["str"]))
    groups.update(["a", "b"], ["A", "B é"])
    groups.save(CORPUS / "groups")
    _write_messages(CORPUS / "messages")
    task = {
        "id": "reach", "epsilon": "1", "title": "Reach", "kind": "hashed", "cells": 64, "levels": 1, "hash_seed": 0,
        "item_types": ["int"], "max_contributions": None, "every": "once", "min_sites": 1, "noun": "user",
        "way": "sealed", "most_sums": 1,
    }  # fmt: skip
    (CORPUS / "task.json").write_text(json.dumps(task, indent=1) + "\n")


def _write_sketches(folder: Path) -> None:
    hashed = Sketch.hashed(
        64, epsilon=1, levels=2, max_contributions=2, labels={"label": "L", "site": ["s"], "period": ["p"]}
    )
    hashed.update(["a"], person=["x"])
    hashed.save(folder / "hashed.sketch")
    known = Sketch.known(["a", "b", "c"], epsilon="1/3", pan_private=True)
    known.update(["a"])
    known.save(folder / "known.sketch")
    sampled = Sketch.sampled(100, rate="1/4", epsilon=2)
    sampled.update([1, 2, 3])
    sampled.save(folder / "sampled.sketch")
    report = Sketch.hashed(64, epsilon=1, item_types=["int"])
    report.update(np.arange(50))
    report.save(folder / "report.sketch")
    first, second = (Sketch.hashed(16, epsilon=1, item_types=["int"]) for _ in range(2))
    first.merge(second)
    first.save(folder / "merged.sketch")


def _write_messages(folder: Path) -> None:
    task = Task.known(4, epsilon=1, epoch="e", sums=3)
    (folder / "task").write_bytes(task.to_bytes())
    with tempfile.TemporaryDirectory() as place:
        servers = [Server.create(Path(place) / side, task, side) for side in ("seed", "difference")]
        reports = []
        for name in ("a", "b"):
            site = Site(task, name)
            site.update(np.arange(4))
            shares = site.split()
            reports.append(shares.report)
            for server in servers:
                message = getattr(shares, server.side)
                server.receive(message)
                (folder / f"share-{name}-{server.side}").write_bytes(message)
        answers = []
        for server, other in zip(servers, servers[::-1]):
            (folder / f"offer-{server.side}").write_bytes(server.offer())
            (folder / f"agreement-{server.side}").write_bytes(server.agree(reports))
            answers.append(server.answer(other.agree(reports)))
            (folder / f"answer-{server.side}").write_bytes(answers[-1])
        combine(task, *answers)


if __name__ == "__main__":
    write()
