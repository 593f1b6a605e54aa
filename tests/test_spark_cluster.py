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
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from spark_tools import require_java, spark_environment

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


class Daemon:
    """A master or a worker of Spark, in a process of its own."""

    def __init__(self, name: str, *options: str, log: Path) -> None:
        import pyspark

        home = Path(pyspark.__file__).parent
        settings = {**environment(), "SPARK_HOME": str(home), "SPARK_DAEMON_MEMORY": "256m"}
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *options, "--webui-port", "0"]
        self.log = log
        with log.open("w") as out:
            self.process = subprocess.Popen(command, env=settings, stdout=out, stderr=subprocess.STDOUT)

    def wait_for(self, words: str) -> None:
        end = time.monotonic() + TIMEOUT
        while words not in self.log.read_text():
            assert self.process.poll() is None, self.log.read_text()[-8000:]
            assert time.monotonic() < end, self.log.read_text()[-8000:]
            time.sleep(0.05)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(600)


@contextmanager
def standalone(folder: Path) -> Iterator[str]:
    """A master and two workers. Spark never speculates on the host of the first attempt, so they have two names."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:

        def start(name: str, host: str, *options: str) -> Daemon:
            daemon = Daemon(name, *options, "--host", host, log=folder / f"{name}.{host}.log")
            stack.callback(daemon.stop)
            return daemon

        start("master.Master", "127.0.0.1", "--port", port).wait_for("I have been elected leader")
        limits = ["--cores", "1", "--memory", "1g", "--work-dir"]
        hosts = ("127.0.0.1", "localhost")
        for worker in [start("worker.Worker", host, url, *limits, str(folder / host)) for host in hosts]:
            worker.wait_for("Successfully registered with master")
        yield url


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def runs(folder: Path) -> dict[str, Any]:
    """The same release three times in one cluster: unharmed, with an executor killed, and with a task that hangs."""
    with standalone(folder) as url:
        return run("spark_cluster.py", str(folder), url, "clean", "killed", "slow")


@pytest.fixture(scope="module")
def attempts(runs: dict[str, Any]) -> Attempts:
    found = Attempts(runs)
    found.require_equal_bits(4)
    return found


def test_a_killed_executor_changes_no_bit(runs: dict[str, Any], attempts: Attempts, folder: Path) -> None:
    """The shuffle files of the executor are lost with it: persons' choices and counts are computed again."""
    assert runs["clean"]["digest"] == runs["killed"]["digest"]
    assert len(attempts.workers["clean"]) == 2, "two executor processes"
    victim = (folder / "an executor was killed").read_text()
    assert victim in attempts.workers["clean"], "an executor with work of its own behind it"
    assert victim != attempts.winner("killed", "0"), "the survivor or a new executor took over"
    assert len(attempts.numbers["killed", "0"]) > 1


def test_speculation_changes_no_bit(runs: dict[str, Any], attempts: Attempts) -> None:
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
