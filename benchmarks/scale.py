"""The figures of docs/scale.md: a release of 10¹² rows in 10¹⁰ cells, worked out on one machine.

    python benchmarks/scale.py [--quick] [--shuffle]

``--shuffle`` runs a small release in Spark and prints the bytes that a shuffled row takes, from Spark's own event log.
Errors: a true profile of the guessed shape is laid out, the noise of all its cells is
drawn (count by count, not cell by cell), and the real estimator and the real intervals are applied.
"""

from __future__ import annotations

import argparse
import math

import numpy as np

from unnoise import DiscreteLaplace
from unnoise.answers.reconstruct import reconstruct
from unnoise.answers.simulate import draw_noisy_profile, errors, shaped
from unnoise.spark._job import task_count
from unnoise.spark._tasks import RANGE

ROWS = 10**12
CELLS = 10**10
HASHED = 1 << 33
EXPONENT = 1.9
"""P(count ≥ t) = t^−0.9: at 10¹⁰ items about 10¹² rows."""


def known(epsilon: float, cells: int, exponent: float, method: str) -> list[str]:
    """Return one line of the table for a declared domain: errors and half-widths of the 95 % intervals."""
    values, how_many = shaped(exponent, cells)
    print(f"{float(values @ how_many):.3g} rows, largest count {values[-1]:,}")
    noisy = draw_noisy_profile(values, how_many, DiscreteLaplace(epsilon), np.random.default_rng(1))
    found = reconstruct(noisy, method=method)
    off = errors(found, values, how_many)
    cells_of = []
    for estimate in (found.distinct, found.at_least(10), found.at_least(1000)):
        half = (estimate.high - estimate.low) / 2
        cells_of.append(f"{estimate.value:.6g} ± {half:.2g}")
    return [f"{epsilon:g}", f"{off['l1']:.1e}", f"{off['w1']:.1e}", *cells_of, f"{noisy.values.size:,}"]


def hashed_distinct(epsilon: float, items: float, cells: int, once: float) -> float:
    """Return the relative standard deviation of ``distinct`` for a hashed sketch, by formula (DESIGN 5).

    Var = m(e^λ − λ − 1) from collisions, plus the noise of the estimated number N₀ of empty cells times
    (d distinct / d N₀)² = (m / N₀)²; w(0) = 1/(1−a), w(1) = −a/(1−a)², w = 0 above, on max(noisy count, 0).
    ``once`` is the share of items that occur once.
    """
    a, load = math.exp(-epsilon), items / cells
    empty = math.exp(-load)
    single = load * once * empty
    w0, w1 = 1 / (1 - a), -a / (1 - a) ** 2
    variance = 0.0
    for h, share in ((0, empty), (1, single), (2, 1 - empty - single)):  # counts above 2 give less than 2 does
        p0 = a**h / (1 + a)  # P(h + Z ≤ 0)
        p1 = (1 - a) / (1 + a) * a ** abs(1 - h)
        mean = p0 * w0 + p1 * w1
        variance += cells * share * (p0 * w0**2 + p1 * w1**2 - mean**2)
    total = variance / empty**2 + cells * (math.exp(load) - load - 1)
    return math.sqrt(total) / items


def shuffled_bytes(rows: int) -> None:
    """Print records and bytes written by each shuffle of a release of ``rows`` rows, nearly all of them distinct."""
    import json
    import sys
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
    import unnoise
    from spark_tools import session

    spark, log = session()
    unnoise.spark.noisy_profile(spark.range(0, rows, 1, 4).selectExpr("id * id as id"), "id", epsilon=1, cells=2**26)
    spark.stop()
    stages: dict[int, list[int]] = {}
    for path in log.rglob("*"):
        lines = path.read_text(errors="ignore").splitlines() if path.is_file() else []
        for event in (json.loads(line) for line in lines if line.startswith('{"Event"')):
            if event["Event"] == "SparkListenerTaskEnd" and event.get("Task Metrics"):
                written = event["Task Metrics"]["Shuffle Write Metrics"]
                total = stages.setdefault(event["Stage ID"], [0, 0])
                total[0] += written["Shuffle Records Written"]
                total[1] += written["Shuffle Bytes Written"]
    for stage, (records, size) in sorted(stages.items()):
        if records:
            print(f"stage {stage}: {records:,} rows, {size:,} bytes, {size / records:.1f} bytes a row")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="10^8 cells instead of 10^10")
    parser.add_argument("--method", default="isotonic")
    parser.add_argument("--shuffle", action="store_true", help="measure the bytes of a shuffled row")
    given = parser.parse_args()
    if given.shuffle:
        shuffled_bytes(200_000 if given.quick else 2_000_000)
        return
    cells = 10**8 if given.quick else CELLS
    ranges = -(-cells // RANGE)
    print(f"ranges {ranges:,}, tasks of the last stage {task_count(ranges, 200):,}")
    per_task = shaped(EXPONENT, cells // task_count(ranges, 200))[0].size
    print(f"different counts in a task: {per_task:,}, in all tasks {per_task * task_count(ranges, 200):,}")
    values, how_many = shaped(EXPONENT, cells)
    total = float(values @ how_many.astype(float))
    files = total / 1e7
    left = files * float(how_many @ -np.expm1(-values / files))
    print(f"rows left by partial counts of 10^7 rows each, in random order: {left:.2g} of {total:.2g}")
    print(f"rows a task: {ROWS / task_count(ranges, 200):.2g}; rows to the driver at most "
          f"{math.sqrt(2 * ROWS * task_count(ranges, 200)):.2g}")  # fmt: skip
    print("| ε | ℓ1 | W1 | distinct | at least 10 | at least 1000 | distinct noisy counts |")
    for epsilon in (0.1, 1.0):
        print("| " + " | ".join(known(epsilon, cells, EXPONENT, given.method)) + " |", flush=True)
    for epsilon in (0.1, 1.0):
        spread = hashed_distinct(epsilon, 3e9, HASHED, 0.5)
        print(f"hashed, 2^33 cells, 3e9 items, ε = {epsilon}: relative standard deviation of distinct {spread:.1e}")


if __name__ == "__main__":
    main()
