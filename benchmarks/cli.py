"""Memory and time of the command line on a large Parquet file, beside DuckDB's exact, non-private profile of it.

python benchmarks/cli.py [--quick] [--write] [--rows N]

Both run as processes of their own, start-up included, by turns; the peak is the kernel's (ru_maxrss). The file is
written by a process of its own too: a child starts with its parent's peak.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _report import machine, write_section

UNNOISE = Path(sys.executable).with_name("unnoise")
PIECE = 2_000_000
AS_INSTALLED = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""Whoever installs a package has its bytecode: written by the first run, if it is not forbidden."""

EXACT = """
import duckdb, sys
duckdb.sql("SET threads TO 2")
duckdb.sql("SET enable_progress_bar = false")
found = duckdb.sql(f"SELECT n, count(*) AS items FROM (SELECT {sys.argv[2]}, count(*) AS n FROM '{sys.argv[1]}' "
                   f"GROUP BY {sys.argv[2]}) GROUP BY n ORDER BY n").fetchall()
print(sum(items for _, items in found), dict(found).get(1, 0))
"""


def write_file(path: Path, rows: int, distinct: int) -> None:
    """Write integers and strings of a skewed law, piece by piece."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute
    import pyarrow.parquet as pq

    rng = np.random.default_rng(7)
    writer = None
    for start in range(0, rows, PIECE):
        # squares of uniforms: the density of items falls like 1/sqrt, so that counts spread from 1 to hundreds
        ids = (rng.random(min(PIECE, rows - start)) ** 2 * distinct).astype(np.int64)
        text = pa.array(ids).cast(pa.string())
        table = pa.table({"id": ids, "name": pa.compute.binary_join_element_wise("user", text, "-")})
        writer = writer or pq.ParquetWriter(path, table.schema, use_dictionary=False)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def timed(command: list[str]) -> tuple[float, float, int, str]:
    """Run a command; return seconds, seconds of all cores, peak resident bytes and what it printed."""
    start = time.perf_counter()
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE, env=AS_INSTALLED)
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - start
        if status:
            raise SystemExit(child.stderr.read().decode() if child.stderr else "failed")
        child.returncode = 0
        out.seek(0)
        return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, out.read().decode()


def measure(path: Path, column: str, cells: int, runs: int) -> dict[str, float]:
    """Run both by turns and keep the best of each."""
    ours = [str(UNNOISE), "profile", str(path), "-c", column, "-e", "1", "--cells", str(cells), "--json"]
    sketch = [*ours[:1], "sketch", *ours[2:-1], "-o", str(path) + ".sketch", "--force"]
    exact = [sys.executable, "-c", EXACT, str(path), column]
    found: dict[str, list[tuple[float, float, int, str]]] = {"profile": [], "sketch": [], "exact": []}
    for _ in range(runs):
        for name, command in (("profile", ours), ("sketch", sketch), ("exact", exact)):
            found[name].append(timed(command))
    best = {name: min(run[0] for run in results) for name, results in found.items()}
    work = {name: min(run[1] for run in results) for name, results in found.items()}
    peak = {name: max(run[2] for run in results) for name, results in found.items()}
    answers = json.loads(found["profile"][0][3])["answers"]
    distinct, _ = map(int, found["exact"][0][3].split())
    os.remove(str(path) + ".sketch")
    return {
        "profile_s": best["profile"], "sketch_s": best["sketch"], "exact_s": best["exact"],
        "ratio": best["profile"] / best["exact"], "work_ratio": work["profile"] / work["exact"],
        "profile_peak": peak["profile"], "sketch_peak": peak["sketch"], "exact_peak": peak["exact"],
        "sketch_bytes": 8 * cells,
        "distinct_error": abs(answers["distinct"]["value"] - distinct) / distinct,
    }  # fmt: skip


def table(results: dict[str, dict[str, float]], rows: int, distinct: int, cells: int) -> str:
    lines = [
        "### The command line on a large file\n",
        f"{rows:,} rows of Parquet, items drawn from {distinct:,}, ε = 1, {cells:,} cells, beside DuckDB's exact "
        "profile (`GROUP BY` twice). Whole processes, best of the runs.\n",
        "| column | `unnoise profile` | `unnoise sketch` | DuckDB exact | ratio (≤ 0.7) | ratio of processor time | "
        "peak of `sketch` beside its cells (≤ 500 MB) | peak of `profile` beside them | peak of DuckDB | distinct |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, r in results.items():
        beside, more = ((r[key] - r["sketch_bytes"]) / 1e6 for key in ("sketch_peak", "profile_peak"))
        lines.append(
            f"| {name} | {r['profile_s']:.2f} s | {r['sketch_s']:.2f} s | {r['exact_s']:.2f} s | {r['ratio']:.2f} | "
            f"{r['work_ratio']:.2f} | {beside:.0f} MB | {more:.0f} MB | {r['exact_peak'] / 1e6:.0f} MB | "
            f"{100 * r['distinct_error']:.2g} % |"
        )
    lines.append(f"\n{machine('unnoise', 'polars', 'duckdb', 'numpy')}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--rows", type=int, default=0)
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--make", help=argparse.SUPPRESS)
    options = parser.parse_args()
    rows = options.rows or (5_000_000 if options.quick else 100_000_000)
    distinct = rows // 10
    cells = 1 << (distinct - 1).bit_length()
    if options.make:
        write_file(Path(options.make), rows, distinct)
        return
    with tempfile.TemporaryDirectory(prefix="unnoise-bench-") as folder:
        path = Path(folder) / "rows.parquet"
        subprocess.run([sys.executable, __file__, "--make", str(path), "--rows", str(rows)], check=True)
        print(f"{path.stat().st_size / 1e6:,.0f} MB of Parquet", flush=True)
        results = {}
        for label, column in (("integers", "id"), ("strings", "name")):
            results[label] = measure(path, column, cells, options.runs)
            print(label, json.dumps({k: round(v, 3) for k, v in results[label].items()}), flush=True)
    text = table(results, rows, distinct, cells)
    print(text)
    if options.write:
        write_section("cli", text)


if __name__ == "__main__":
    main()
