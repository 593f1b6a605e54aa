"""The direct model against DuckDB's exact profile of the same Arrow table: seconds, side by side, and peak memory.

Target: `un.direct` (exact counts, noise, fit, answers) ≤ 1.3 × the time of DuckDB's exact, non-private profile.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from statistics import median

import duckdb

sys.path.insert(0, str(Path(__file__).parent))
from _report import machine, write_section
from sketch import EXACT, peak_memory, tables, timed

import unnoise as un


def speed(rows: int, distinct: int, rounds: int) -> list[str]:
    head = "| items | DuckDB, exact | `un.direct` | ratio (≤ 1.3) | peak memory above the table |"
    lines = [head, "|---|---|---|---|---|"]
    with duckdb.connect() as connection:
        for name, items in tables(rows, distinct).items():
            connection.register("items", items)
            pairs = []
            for _ in range(rounds + 1):
                exact = timed(lambda: connection.execute(EXACT).fetchall())
                pairs.append((exact, timed(lambda items=items: un.direct(items, epsilon=1).distinct)))
            exact, ours = (median(side) for side in zip(*pairs[1:]))
            ratio = median(p / e for e, p in pairs[1:])
            grown = child(rows, distinct, name)
            lines.append(
                f"| {rows:,} {name}, {distinct:,} distinct | {exact:.2f} s | {ours:.2f} s | {ratio:.2f} | {grown} MB |"
            )
    return lines


def child(rows: int, distinct: int, name: str) -> int:
    """Peak memory of one call in a process of its own, less what it had with the table in memory."""
    command = [sys.executable, __file__, "--child", name, "--rows", str(rows), "--distinct", str(distinct)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10**7)
    parser.add_argument("--distinct", type=int, default=10**6)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--child", metavar="NAME")
    parser.add_argument("--write", action="store_true", help="put the table into docs/benchmarks.md")
    options = parser.parse_args()
    if options.child:
        un.direct([1], epsilon=1).distinct  # noqa: B018  (imports)
        items = tables(options.rows, options.distinct)[options.child]
        before = peak_memory()
        un.direct(items, epsilon=1).distinct  # noqa: B018
        print((peak_memory() - before) >> 20)
        return
    lines = speed(options.rows, options.distinct, options.rounds)
    text = "\n".join(["## The direct model", "", machine("numpy", "polars", "duckdb"), "", *lines])
    print(text)
    if options.write:
        write_section("direct", text)


if __name__ == "__main__":
    main()
