"""Separate executor processes that fail, and Spark Connect; each in a Python process of its own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from oracles_spark import require_java, spark_environment

pytestmark = [pytest.mark.spark, pytest.mark.slow]
HERE = Path(__file__).parent
TIMEOUT = 540


def environment() -> dict[str, str]:
    require_java()
    return {**os.environ, **spark_environment(), "PYTHONPATH": str(HERE)}


def run(script: str, *arguments: str) -> dict[str, Any]:
    command = [sys.executable, str(HERE / script), *arguments]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert done.returncode == 0, done.stderr[-8000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


class Attempts:
    """What each attempt of each task left behind."""

    def __init__(self, runs: dict[str, Any]) -> None:
        self.bits: dict[str, set[str]] = defaultdict(set)
        self.workers: dict[str, set[str]] = defaultdict(set)
        self.numbers: dict[tuple[str, str], dict[int, str]] = defaultdict(dict)
        for name, found in runs.items():
            print(f"{name}: {found['seconds']:.1f} s")
            for (task, attempt), (digest, worker) in found["attempts"]:
                self.bits[task].add(digest)
                self.workers[name].add(worker)
                self.numbers[name, task][int(attempt)] = worker

    def winner(self, name: str, task: str) -> str:
        """Return the executor of the last attempt at a task."""
        return max(self.numbers[name, task].items())[1]

    def require_equal_bits(self, tasks: int) -> None:
        assert len(self.bits) == tasks
        assert all(len(digests) == 1 for digests in self.bits.values()), "every attempt of a task has the same bits"
        assert len({next(iter(digests)) for digests in self.bits.values()}) == tasks, "different tasks, different bits"


def test_a_killed_executor_changes_no_bit(tmp_path: Path) -> None:
    """The shuffle files of the executor are lost with it: persons' choices and counts are computed again."""
    runs = run("spark_cluster.py", str(tmp_path), "local-cluster[2,1,1024]", "clean", "killed")
    attempts = Attempts(runs)
    attempts.require_equal_bits(4)
    assert runs["clean"]["digest"] == runs["killed"]["digest"]
    assert len(attempts.workers["clean"]) == 2, "two executor processes"
    victim = (tmp_path / "an executor was killed").read_text()
    assert victim in attempts.workers["clean"], "an executor with work of its own behind it"
    assert victim != attempts.winner("killed", "0"), "the survivor or a new executor took over"
    assert len(attempts.numbers["killed", "0"]) > 1


@contextmanager
def standalone(folder: Path) -> Iterator[str]:
    """A master and two workers. Spark never speculates on the host of the first attempt, so they have two names."""
    import pyspark

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"spark://127.0.0.1:{port}"
    home = Path(pyspark.__file__).parent
    daemons = [["master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]]
    for host in ("127.0.0.1", "localhost"):
        limits = ["--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", str(folder / host)]
        daemons.append(["worker.Worker", "--host", host, *limits, url])
    settings = {**environment(), "SPARK_HOME": str(home), "SPARK_DAEMON_MEMORY": "256m"}
    log = (folder / "daemons.log").open("w")
    processes = []
    try:
        for name, *options in daemons:
            command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *options]
            processes.append(subprocess.Popen(command, env=settings, stdout=log, stderr=subprocess.STDOUT))
            time.sleep(2)
        yield url
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait(600)
        log.close()


def test_speculation_changes_no_bit(tmp_path: Path) -> None:
    with standalone(tmp_path) as url:
        runs = run("spark_cluster.py", str(tmp_path), url, "clean", "slow")
    attempts = Attempts(runs)
    attempts.require_equal_bits(4)
    assert runs["clean"]["digest"] == runs["slow"]["digest"]
    assert len(attempts.numbers["slow", "1"]) == 2
    assert runs["slow"]["seconds"] < 590, "the second attempt won, while the first one sleeps for ten minutes"


def test_spark_connect(tmp_path: Path) -> None:
    found = run("spark_connect.py", str(tmp_path))
    assert "connect" in found["session"]
    assert found["equal"]
    assert found["listed"] == [1, 2]
    assert found["cells"] == [2**11, 2**11]
    assert (found["logged"], found["leaked"]) == (True, False)
