"""Private profile through Spark against Spark's own exact profile query, and the driver's memory as cells grow.

    python benchmarks/spark.py [--quick] [--write] [--rows N]

1. The same Parquet files of N rows (10⁶ distinct items), as integers and as strings, on two cores: our noisy profile in
   2²⁰ cells, and ``groupBy(item).count().groupBy(count).count()``, in turns, on warm sessions; wall-clock time, the
   processor time of all processes, and the ratios of the medians. (The whole profile query: Catalyst would simplify a
   mere ``sum(count)`` to a count of rows.)
2. Cells from 2²⁰ to 2²⁸ with few rows, on a cluster of two separate executors, so that the memory of the driver (its
   JVM and its Python process) can be told from theirs: peak resident size of both.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from _report import machine, write_section

import unnoise
from spark_tools import builder

DISTINCT = 1_000_000
FILES = 4
TICKS = os.sysconf("SC_CLK_TCK")


def write_rows(folder: Path, rows: int) -> None:
    """Write integers and the same as strings; half uniform, half with a heavy tail, in random order."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(20240)
    for number in range(FILES):
        size = rows // FILES
        heavy = np.minimum(rng.zipf(1.3, size // 2), DISTINCT) - 1
        items = np.concatenate([rng.integers(0, DISTINCT, size - heavy.size), heavy])
        rng.shuffle(items)
        text = np.char.add("user-", np.char.zfill(items.astype(str), 9))
        pq.write_table(pa.table({"integers": items, "strings": pa.array(text)}), folder / f"{number}.parquet")


def descendants(pid: int) -> list[int]:
    """The process and all below it."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found, queue = [], [pid]
    while queue:
        found.append(queue.pop())
        queue.extend(children.get(found[-1], []))
    return found


def processor_time() -> float:
    """Seconds of processor time of this process and all below it."""
    total = 0
    for pid in descendants(os.getpid()):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        total += sum(int(field) for field in fields[11:15])
    return total / TICKS


def measure(call: Callable[[], Any]) -> tuple[float, float]:
    """Return wall-clock and processor seconds of one call."""
    start, used = time.perf_counter(), processor_time()
    call()
    return time.perf_counter() - start, processor_time() - used


def compare(rows: int, turns: int) -> list[str]:
    """Time both in turns and return the lines of the table."""
    from pyspark.sql import functions as F

    folder = Path(tempfile.mkdtemp(prefix="unnoise-bench-"))
    lines = []
    try:
        write_rows(folder, rows)
        spark = builder("local[2]").config("spark.driver.memory", "4g").getOrCreate()
        spark.conf.set("spark.sql.shuffle.partitions", "8")
        df = spark.read.parquet(str(folder))
        for column in ("integers", "strings"):
            ours = lambda c=column: unnoise.spark.noisy_profile(df, c, epsilon=1)  # noqa: E731
            exact = lambda c=column: (  # noqa: E731
                df.groupBy(c).agg(F.count(F.lit(1)).alias("t")).groupBy("t").agg(F.count(F.lit(1))).toArrow()
            )
            ours(), exact()
            times = np.array([[measure(ours), measure(exact)] for _ in range(turns)])
            (wall, used), (wall_exact, used_exact) = np.median(times, axis=0)
            ratios = statistics.median(times[:, 0, 0] / times[:, 1, 0])
            lines.append(
                f"| {column} | {wall:.2f} s | {wall_exact:.2f} s | {ratios:.2f} | {used:.1f} s | {used_exact:.1f} s "
                f"| {used / used_exact:.2f} |"
            )
            print(lines[-1], flush=True)
        spark.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return lines


def peak(pid: int | str) -> float:
    """Peak resident size of a process in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"no peak size for process {pid}")


def driver_memory(exponents: list[int]) -> None:
    """Run one release for each number of cells on a cluster; print a JSON line each (in a process of its own)."""
    spark = (
        builder("local-cluster[2,1,1024]")
        .config("spark.executor.memory", "1g")
        .config("spark.driver.memory", "512m")
        .config("spark.sql.shuffle.partitions", "8")
        .getOrCreate()
    )
    df = spark.range(0, 1_000_000, 1, 4)
    java = next(pid for pid in descendants(os.getpid())[1:] if "java" in Path(f"/proc/{pid}/comm").read_text())
    unnoise.spark.noisy_profile(df, "id", epsilon=1, cells=2**20)
    for exponent in exponents:
        start = time.perf_counter()
        noisy = unnoise.spark.noisy_profile(df, "id", epsilon=1, cells=1 << exponent)
        seconds = time.perf_counter() - start
        sizes = {"java": peak(java), "python": peak("self")}
        row = {"exponent": exponent, "seconds": seconds, "cells": noisy.cells, **sizes}
        print(json.dumps(row), flush=True)
    spark.stop()


def memory_table(exponents: list[int]) -> list[str]:
    """Return the lines of the table of the driver's memory."""
    command = [sys.executable, __file__, "--driver-memory", *map(str, exponents)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                row = json.loads(line)
                assert row["cells"] == 1 << row["exponent"]
                lines.append(
                    f"| 2^{row['exponent']} | {row['seconds']:.1f} s | {row['python']:.0f} MiB | {row['java']:.0f} MiB "
                    f"| {8 * 2.0 ** (row['exponent'] - 20):.0f} MiB |"
                )
                print(lines[-1], flush=True)
    if process.returncode:
        raise RuntimeError(f"the cluster run ended with {process.returncode}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two million rows, 2^20 to 2^24 cells")
    parser.add_argument("--write", action="store_true", help="put the result into docs/benchmarks.md")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--turns", type=int)
    parser.add_argument("--driver-memory", type=int, nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.driver_memory:
        driver_memory(given.driver_memory)
        return
    rows = given.rows or (2_000_000 if given.quick else 20_000_000)
    turns = given.turns or (3 if given.quick else 5)
    head = [
        f"## Spark: private profile against Spark's exact profile query, {rows:,} rows, 10^6 distinct, 2^20 cells",
        "",
        "| items | unnoise | exact query | ratio | unnoise, processor | exact, processor | ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    print("\n".join(head))
    first = compare(rows, turns)
    middle = [
        "", f"Medians of {turns} turns; target ≤ 1.3 in wall-clock time.", "",
        "Memory of the driver (peak so far, one session, ascending) while cells grow; two executors of 1 GiB:", "",
        "| cells | time | driver, Python | driver, JVM | all cells as int64 |", "|---|---|---|---|---|",
    ]  # fmt: skip
    print("\n".join(middle))
    second = memory_table([20, 22, 24] if given.quick else [20, 22, 24, 26, 28])
    foot = ["", f"Machine: {machine('unnoise', 'pyspark', 'numpy', 'pyarrow')}"]
    print("\n".join(foot))
    if given.write:
        write_section("spark", "\n".join([*head, *first, *middle, *second, *foot]))


if __name__ == "__main__":
    main()
