"""Run by test_spark_cluster.py: jobs on separate executor processes that lose tasks and executors.

    spark_cluster.py FOLDER MASTER RUN…        (runs: clean, killed, slow; two executors of one core)

Prints one JSON object. Every run of the same seed must give the same tally, and every attempt of a task the same bits.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

from spark_tools import builder
from unnoise import testing
from unnoise.spark import _call, _noisy_profiles, _tasks

FOLDER = Path(sys.argv[1])
KILLED = "an executor was killed"  # the name of a file that holds its process id
OPTIONS: dict[str, Any] = {
    "epsilon": 1, "kind": "hashed", "cells": 2**22, "levels": None, "domain": None, "rate": None, "hash_seed": 0,
    "by": None, "groups": None, "person": "who", "max_contributions": 3, "unknown": "error",
}  # fmt: skip
WHOLE = _tasks.tally_function


def executor() -> int:
    """The process id of the executor: the parent of the daemon that forked this Python worker."""
    import os

    with open(f"/proc/{os.getppid()}/stat") as stat:
        return int(stat.read().rsplit(")", 1)[1].split()[1])


def first_time(what: str) -> bool:
    """Tell once, over all processes, that something has not been done yet (attempts are numbered anew per stage)."""
    try:
        with Path(FOLDER, what).open("x") as mark:
            mark.write(str(executor()))
    except FileExistsError:
        return False
    return True


def kill_executor(context: Any) -> None:
    """Kill the executor under the first attempt of task 0."""
    import os
    import signal

    if context.partitionId() == 0 and first_time(KILLED):
        victim = executor()
        with open(f"/proc/{victim}/comm") as name:
            assert name.read().strip() == "java"
        os.kill(victim, signal.SIGKILL)
        time.sleep(600)


def hang(context: Any) -> None:
    """Let the first attempt of task 1 hang, so that Spark starts a second one beside it."""
    if context.partitionId() == 1 and first_time("a task hangs"):
        time.sleep(600)


def nothing(context: Any) -> None:
    """Do no harm."""


HARMS = {"clean": nothing, "killed": kill_executor, "slow": hang}


def watched(run: str, harm: Callable[[Any], None]) -> Callable[[_tasks.Work], Any]:
    """Return the tally function with a record of every attempt's bits, and harm done before it returns."""
    folder = str(FOLDER)

    def wrap(work: _tasks.Work) -> Any:
        inner = WHOLE(work)

        def noise_and_tally(batches: Any) -> Any:
            from pyspark import TaskContext

            context = TaskContext.get()
            out = list(inner(batches))
            bits = sha256(b"".join(batch.serialize().to_pybytes() for batch in out)).hexdigest()
            name = f"{run}.{context.partitionId()}.{context.taskAttemptId()}"
            Path(folder, name).write_text(f"{bits} {executor()}")
            harm(context)
            yield from out

        return noise_and_tally

    return wrap


def release(name: str, df: Any) -> dict[str, Any]:
    """Make the same release (same seed) under some harm; return its digest, and bits by task and attempt."""
    _tasks.tally_function = watched(name, HARMS[name])  # type: ignore[assignment]
    # read for every stage: where all tasks must be done before one is tried again, none is
    df.sparkSession._jsc.sc().conf().set("spark.speculation.quantile", "0.5" if name == "slow" else "1.0")
    start = time.perf_counter()
    with testing.seeded(5):
        noisy = _noisy_profiles(_call.prepare(_call.Request(df, "i", **OPTIONS)))[0]
    digest = sha256(noisy.values.tobytes() + noisy.tally.tobytes()).hexdigest()
    attempts = [(path.name.split(".")[1:], path.read_text().split()) for path in sorted(FOLDER.glob(f"{name}.*.*"))]
    return {"digest": digest, "attempts": attempts, "seconds": time.perf_counter() - start}


def main() -> None:
    """Make the releases asked for and print what came out."""
    spark = (
        builder(sys.argv[2])
        .config("spark.executor.memory", "640m")
        .config("spark.executor.cores", "1")
        .config("spark.cores.max", "2")  # what to wait for before the first task: both executors
        .config("spark.locality.wait", "0")  # both take part, wherever the rows are
        .config("spark.task.maxFailures", "4")
        .config("spark.speculation", "true")
        .config("spark.speculation.interval", "200ms")
        .config("spark.speculation.multiplier", "1.5")
        .config("spark.speculation.minTaskRuntime", "2s")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.scheduler.minRegisteredResourcesRatio", "1.0")
        .config("spark.scheduler.maxRegisteredResourcesWaitingTime", "120s")
        .getOrCreate()
    )
    df = spark.range(0, 200_000, 1, 4).selectExpr("id % 9973 as who", "(id * id) % 7919 as i")
    print(json.dumps({name: release(name, df) for name in sys.argv[3:]}))
    spark.stop()


if __name__ == "__main__":
    main()
