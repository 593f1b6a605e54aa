"""Separate executor processes that fail, and Spark Connect; each in a Python process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from oracles_spark import require_java, spark_environment

pytestmark = [pytest.mark.spark, pytest.mark.slow]
HERE = Path(__file__).parent


def run(script: str, *arguments: str) -> dict[str, Any]:
    require_java()
    environment = {**os.environ, **spark_environment(), "PYTHONPATH": str(HERE)}
    command = [sys.executable, str(HERE / script), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr[-8000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_lost_executors_and_speculation_yield_the_same_bits(tmp_path: Path) -> None:
    runs = run("spark_cluster.py", str(tmp_path))
    assert len({r["digest"] for r in runs.values()}) == 1
    bits, workers, attempts = defaultdict(set), defaultdict(set), defaultdict(set)
    for name, found in runs.items():
        print(f"{name}: {found['seconds']:.1f} s")
        for (task, attempt), (digest, worker) in found["attempts"]:
            bits[task].add(digest)
            workers[name].add(worker)
            attempts[name, task].add(attempt)
    assert set(bits) == {"0", "1", "2", "3"}
    assert all(len(digests) == 1 for digests in bits.values()), "every attempt of a task has the same bits"
    assert len({next(iter(digests)) for digests in bits.values()}) == 4, "different tasks have different ones"
    assert len(workers["clean"]) == 2, "two executor processes"
    assert not workers["killed"] <= workers["clean"], "a new executor took over"
    assert len(attempts["killed", "0"]) > 1
    assert len(attempts["slow", "1"]) > 1
    assert runs["slow"]["seconds"] < 300, "the second attempt won, while the first one would sleep for ten minutes"


def test_spark_connect(tmp_path: Path) -> None:
    found = run("spark_connect.py")
    assert "connect" in found["session"]
    assert found["equal"]
    assert found["listed"] == [1, 2]
    assert found["cells"] == [2**11, 2**11]
