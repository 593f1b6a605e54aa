"""Sketches against the tools they replace: speed of a private profile, memory, merging files.

Prints three tables: (1) sketch + release + isotonic profile against DuckDB's exact profile of the same Arrow table,
interleaved; (2) peak memory of a sketch of 10⁸ cells against its own bytes, in a process of its own; (3) merging two
files of 10⁸ cells against copying files, interleaved, both with fsync.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parent))
from _report import machine, write_section

from unnoise.estimators.isotonic import isotonic
from unnoise.sketches.sketch import Sketch

EXACT = "SELECT occurrences, count(*) FROM (SELECT item, count(*) AS occurrences FROM items GROUP BY item) GROUP BY 1"


def timed(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def tables(rows: int, distinct: int) -> dict[str, pa.Table]:
    keys = np.random.default_rng(1).integers(0, distinct, rows)
    names = pa.array([f"user-{i}" for i in range(distinct)])
    return {"integers": pa.table({"item": keys}), "strings": pa.table({"item": names.take(pa.array(keys))})}


def private_profile(items: pa.Table) -> None:
    sketch = Sketch.hashed(2**20, epsilon=1)
    sketch.update(items)
    isotonic(sketch.release().profile())


def speed(rows: int, distinct: int, rounds: int) -> list[str]:
    lines = ["| items | DuckDB, exact | unnoise, private | ratio |", "|---|---|---|---|"]
    with duckdb.connect() as connection:
        for name, items in tables(rows, distinct).items():
            connection.register("items", items)
            pairs = []
            for _ in range(rounds + 1):
                exact = timed(lambda: connection.execute(EXACT).fetchall())
                pairs.append((exact, timed(lambda items=items: private_profile(items))))
            exact, private = (median(side) for side in zip(*pairs[1:]))
            ratio = median(p / e for e, p in pairs[1:])
            lines.append(f"| {rows:,} {name}, {distinct:,} distinct | {exact:.3f} s | {private:.3f} s | {ratio:.2f} |")
    return lines


def memory_child(cells: int) -> None:
    """Make, fill, release and tally one sketch; print the growth of the peak in bytes and the seconds."""
    Sketch.known(10, epsilon=1).update([1])
    before = peak_memory()
    start = time.perf_counter()
    sketch = Sketch.known(cells, epsilon=1)
    sketch.update(np.random.default_rng(0).integers(0, cells, 10**6))
    sketch.release().profile()
    seconds = time.perf_counter() - start
    print(peak_memory() - before, seconds)


def peak_memory() -> int:
    """Peak resident bytes of this process (ru_maxrss would include its parent's before exec)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def memory(cells: int) -> list[str]:
    done = subprocess.run(
        [sys.executable, __file__, "--memory-child", str(cells)], capture_output=True, text=True, check=True
    )
    peak, seconds = map(float, done.stdout.split())
    return [
        "| cells | bytes of the sketch | peak memory above the start | ratio | time |",
        "|---|---|---|---|---|",
        f"| {cells:,} | {8 * cells / 2**20:.0f} MiB | {peak / 2**20:.0f} MiB | {peak / 8 / cells:.2f} "
        f"| {seconds:.1f} s |",
    ]


def copy(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)
    handle = os.open(target, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


def merge(one: Path, two: Path, target: Path) -> None:
    (Sketch.load(one, later=True) + Sketch.load(two, later=True)).save(target)


def merging(cells: int, rounds: int, directory: str | None) -> list[str]:
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        one, two, out = (Path(folder) / name for name in ("one", "two", "out"))
        for path in (one, two):
            Sketch.known(cells, epsilon=1).save(path)
        size = one.stat().st_size
        pairs = []
        for _ in range(rounds + 1):
            copying = timed(lambda: copy(one, out))
            out.unlink()
            pairs.append((2 * size / copying, 3 * size / timed(lambda: merge(one, two, out))))
            out.unlink()
    speeds = [median(side) / 2**20 for side in zip(*pairs[1:])]
    ratio = median(m / c for c, m in pairs[1:])
    return [
        "| cells | copying a file (read + written, fsync) | merging two (read + written, fsync) | ratio |",
        "|---|---|---|---|",
        f"| {cells:,} | {speeds[0]:.0f} MiB/s | {speeds[1]:.0f} MiB/s | {ratio:.2f} |",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of everything (fixed costs weigh more then)")
    parser.add_argument("--write", action="store_true", help="put the result into docs/benchmarks.md")
    parser.add_argument("--only", choices=["speed", "memory", "merging"], help="one table only")
    parser.add_argument("--directory", help="where the files to merge go (default: the temporary directory)")
    parser.add_argument("--memory-child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory_child:
        memory_child(options.memory_child)
        return
    scale, rounds = (10, 2) if options.quick else (1, 5)
    tables_wanted: dict[str, tuple[str, Callable[[], list[str]]]] = {
        "speed": (
            "Private profile of a table (sketch of 2²⁰ cells, release, `isotonic`) against DuckDB's exact profile "
            "(`GROUP BY` twice) of the same Arrow table; target ≤ 0.5.",
            lambda: speed(10**7 // scale, 10**6 // scale, rounds),
        ),
        "memory": (
            "Peak memory of making, filling, releasing and tallying one sketch; target ≤ 1.5.",
            lambda: memory(10**8 // scale),
        ),
        "merging": (
            "Merging two files, digests checked and written, against copying one; target ≥ 0.5.",
            lambda: merging(10**8 // scale, rounds, options.directory),
        ),
    }
    lines = ["## Sketches", ""]
    for name, (about, table) in tables_wanted.items():
        if options.only in (None, name):
            part = [about, "", *table(), ""]
            print("\n".join(part), flush=True)
            lines += part
    lines.append(machine("unnoise", "numpy", "polars", "duckdb", "pyarrow"))
    print(lines[-1])
    if options.write and options.only is None:
        write_section("sketch", "\n".join(lines))


if __name__ == "__main__":
    main()
