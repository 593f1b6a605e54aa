"""Exact noise against OpenDP's exact sampler and NumPy's insecure geometric difference, interleaved in one run.

Targets (10⁷ samples, ε = 1 and 0.1): at least 1000 times as fast as OpenDP's ``make_laplace``, at most 0.3 times
the time of NumPy's. ε = 0.001 and ε = 10 fast as well; a table built in less than 50 ms. The tally of 10⁸ signed
counts: at most 2 ns a cell above ``np.bincount``'s own time, constant extra memory.
"""

from __future__ import annotations

import argparse
import statistics
import time
import tracemalloc
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from _report import machine, write_section

from unnoise import discrete_laplace
from unnoise._sampler import DrawTable
from unnoise._thresholds import Laplace
from unnoise.noisy import tally

SIZE = 10_000_000
OPENDP_SIZE = 20_000


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def numpy_difference(epsilon: float, size: int) -> np.ndarray:
    rng = np.random.default_rng()
    p = -np.expm1(-epsilon)
    return rng.geometric(p, size) - rng.geometric(p, size)


def opendp_sampler(epsilon: float) -> Callable[[], object]:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int)
    mechanism = dp.m.make_laplace(*space, scale=1 / epsilon)
    zeros = [0] * OPENDP_SIZE
    return lambda: mechanism(zeros)


def noise_rows(size: int, rounds: int) -> list[str]:
    """One row per ε: nanoseconds a sample (medians of interleaved rounds) and the two ratios."""
    rows = []
    for epsilon in (1.0, 0.1, 0.001, 10.0):
        build = min(seconds(lambda e=epsilon: DrawTable(Laplace(Fraction(str(e))))) for _ in range(rounds))
        discrete_laplace(1, epsilon)
        opendp = opendp_sampler(epsilon)
        times: dict[str, list[float]] = {"unnoise": [], "numpy": [], "opendp": []}
        for _ in range(rounds):
            times["unnoise"].append(seconds(lambda e=epsilon: discrete_laplace(size, e)) / size)
            times["numpy"].append(seconds(lambda e=epsilon: numpy_difference(e, size)) / size)
            times["opendp"].append(seconds(opendp) / OPENDP_SIZE)
        ours, theirs, exact = (1e9 * statistics.median(times[name]) for name in ("unnoise", "numpy", "opendp"))
        rows.append(
            f"| {epsilon:g} | {ours:.1f} | {theirs:.1f} | {exact:,.0f} | {exact / ours:,.0f}× "
            f"| {ours / theirs:.2f}× | {1e3 * build:.0f} |"
        )
        print(rows[-1])
    return rows


def tally_rows(cells: int, rounds: int) -> list[str]:
    """Tally in blocks beside np.bincount of the same, already shifted counts."""
    counts = discrete_laplace(cells, 0.1)
    low = counts.min()
    counts -= low
    shifted = counts  # bincount's own time: no shift to pay
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(seconds(lambda: tally(shifted)) / cells)
        theirs.append(seconds(lambda: np.bincount(shifted)) / cells)
    tracemalloc.start()
    tally(shifted)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    a, b = 1e9 * statistics.median(ours), 1e9 * statistics.median(theirs)
    row = f"| {cells:.0e} | {a:.2f} | {b:.2f} | {a - b:+.2f} | {peak / 2**20:.1f} |"
    print(row)
    return [row]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    size, rounds = (1_000_000, 3) if options.quick else (SIZE, 7)
    cells = 5_000_000 if options.quick else 100_000_000
    noise = noise_rows(size, rounds)
    tallies = tally_rows(cells, 3)
    if options.write:
        columns = "| ε | unnoise ns | NumPy ns | OpenDP ns | against OpenDP | against NumPy | table ms |"
        head = columns + "\n" + "|--:" * 7 + "|"
        second = "| cells | tally ns | bincount ns | difference ns | peak MiB |\n" + "|--:" * 5 + "|"
        write_section(
            "noise",
            "## Exact noise and the tally\n\n"
            f"`python benchmarks/noise.py`, {size:,} samples, medians of {rounds} interleaved rounds. Targets: ≥ 1000× "
            "OpenDP's speed and ≤ 0.3× NumPy's time at ε = 1 and 0.1, table < 50 ms, tally ≤ 2 ns above bincount.\n\n"
            + "\n".join([head, *noise])
            + "\n\n"
            + "\n".join([second, *tallies])
            + f"\n\n{machine('numpy', 'opendp', 'cryptography')}",
        )


if __name__ == "__main__":
    main()
