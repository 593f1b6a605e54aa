"""Speed of the estimators, in one run: isotonic against paper, banded optima against HiGHS, growth, auto.

    python benchmarks/reconstruct.py [--quick] [--write]

Ratios come from interleaved repetitions (best of each), so that both sides see the same machine.
HiGHS solves the same program P2 as ``exact`` — same rows, same counts, same untruncated law — as a linear program with
every coefficient it accepts (it drops what is below 1e-12 of 1); presolve and choice of algorithm are its own.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from _report import machine, write_section

from unnoise.estimators.banded import exact, likelihood
from unnoise.estimators.isotonic import isotonic
from unnoise.estimators.paper import paper
from unnoise.noise import DiscreteLaplace
from unnoise.noisy import NoisyProfile

SEED = 20241


def noisy_profile(true: np.ndarray, epsilon: float, rng: np.random.Generator) -> NoisyProfile:
    a = math.exp(-epsilon)
    noise = rng.geometric(1 - a, true.size) - rng.geometric(1 - a, true.size)
    return NoisyProfile.from_counts(true + noise, epsilon=epsilon)


def interleaved(tasks: dict[str, Callable[[], Any]], repetitions: int) -> tuple[dict[str, float], dict[str, Any]]:
    """Best time of each task over rounds that run all of them in turn, and the last results."""
    best = dict.fromkeys(tasks, math.inf)
    results: dict[str, Any] = {}
    for _ in range(repetitions):
        for name, task in tasks.items():
            start = time.perf_counter()
            results[name] = task()
            best[name] = min(best[name], time.perf_counter() - start)
    return best, results


def highs(noisy: NoisyProfile, top: int, p: float, limit: float) -> tuple[float, str, float]:
    """Seconds, status and optimum of P2 as a linear program on all rows that the noise reaches from 0…top."""
    import highspy
    from scipy import sparse

    reach = noisy.noise.reach(1e-18)
    rows = np.arange(min(int(noisy.values[0]), 0) - reach, max(int(noisy.values[-1]), top) + reach + 1)
    # y and K are scaled by 1000 so that coefficients down to 1e-15 are kept
    y = np.zeros(rows.size)
    y[np.searchsorted(rows, noisy.values)] = 1000 * noisy.fractions
    points = np.arange(top + 1)
    law = 1000 * noisy.noise.pmf(np.arange(rows[-1] - rows[0] + top + 1))
    k = sparse.csr_matrix(np.where(law > 1e-12, law, 0)[np.abs(rows[:, None] - points)])
    slack = sparse.eye(rows.size) if p == 1 else sparse.csr_matrix(np.ones((rows.size, 1)))
    matrix = sparse.bmat([[k, -slack], [k, slack], [np.ones((1, points.size)), None]], format="csr")
    inf = highspy.kHighsInf
    lp = highspy.HighsLp()
    lp.num_row_, lp.num_col_ = matrix.shape
    lp.col_cost_ = np.r_[np.zeros(points.size), np.ones(slack.shape[1])]
    lp.col_lower_, lp.col_upper_ = np.zeros(lp.num_col_), np.full(lp.num_col_, inf)
    lp.row_lower_ = np.r_[np.full(rows.size, -inf), y, 1]
    lp.row_upper_ = np.r_[y, np.full(rows.size, inf), 1]
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = matrix.indptr, matrix.indices, matrix.data
    solver = highspy.Highs()
    for option, value in {
        "output_flag": False,
        "time_limit": limit,
        "small_matrix_value": 1e-12,
        "primal_feasibility_tolerance": 1e-9,
        "dual_feasibility_tolerance": 1e-9,
    }.items():
        solver.setOptionValue(option, value)
    start = time.perf_counter()
    solver.passModel(lp)
    solver.run()
    seconds = time.perf_counter() - start
    status = solver.modelStatusToString(solver.getModelStatus())
    return seconds, status, solver.getInfo().objective_function_value / 1000


def isotonic_against_paper(top: int, rng: np.random.Generator) -> list[str]:
    true = np.minimum(rng.zipf(1.7, 300_000), top)
    true[0] = top
    noisy = noisy_profile(true, 0.5, rng)
    best, _ = interleaved({"isotonic": lambda: isotonic(noisy), "paper": lambda: paper(noisy)}, 3)
    ratio = best["paper"] / best["isotonic"]
    return [
        f"| `isotonic`, range {top:,} ({noisy.values.size:,} occupied values) | `paper` (FFT) | "
        f"{best['isotonic'] * 1e3:.1f} ms | {best['paper'] * 1e3:.0f} ms | **{ratio:.0f}×** faster | ≥ 20× |"
    ]


def banded_against_highs(top: int, limit: float, rng: np.random.Generator) -> list[str]:
    true = rng.integers(0, top - 30, 1_000_000)
    noisy = noisy_profile(true, 0.5, rng)
    noisy = NoisyProfile.from_tally(
        noisy.values[noisy.values <= top], noisy.tally[noisy.values <= top], noise=noisy.noise
    )
    lines, slowest = [], {}
    for p, label in ((1, "1"), (math.inf, "∞")):
        before = time.perf_counter()
        fit = exact(noisy, norm=p, max_count=top)
        first = time.perf_counter() - before
        seconds, status, optimum = highs(noisy, top, p, limit)
        before = time.perf_counter()
        exact(noisy, norm=p, max_count=top)
        ours = min(first, time.perf_counter() - before)
        slowest[p] = seconds
        apart = fit.diagnostics["value"] - optimum
        note = f"objectives {apart:+.1e} apart" if status == "Optimal" else f"HiGHS: {status}"
        lines.append(
            f"| `exact` p = {label}, range {top:,} | HiGHS | {ours * 1e3:.0f} ms | {seconds:.1f} s | "
            f"**{seconds / ours:.0f}×** faster; {note}, own certificate {fit.diagnostics['gap']:.0e} | ≥ 100× |"
        )
    best, results = interleaved(
        {"likelihood": lambda: likelihood(noisy, max_count=top), "2": lambda: exact(noisy, max_count=top)}, 3
    )
    lines.append(
        f"| `exact` p = 2, range {top:,} | HiGHS, p = 1 | {best['2'] * 1e3:.0f} ms | {slowest[1]:.1f} s | "
        f"**{slowest[1] / best['2']:.0f}×** faster; own certificate {results['2'].diagnostics['gap']:.0e} | ≥ 100× |"
    )
    lines.append(
        f"| `likelihood`, range {top:,} | HiGHS, p = 1 | {best['likelihood'] * 1e3:.0f} ms | {slowest[1]:.1f} s | "
        f"**{slowest[1] / best['likelihood']:.0f}×** faster; own certificate "
        f"{results['likelihood'].diagnostics['gap']:.0e} | ≥ 100× |"
    )
    return lines


def growth_of_likelihood(small: int, rng: np.random.Generator) -> list[str]:
    """Time per size on noisy profiles in which every value is occupied, by Poisson numbers of cells."""
    def task(size: int) -> Callable[[], Any]:
        tally = 1 + rng.poisson(20, size)
        noisy = NoisyProfile.from_tally(np.arange(size), tally, noise=DiscreteLaplace(1))
        return lambda: likelihood(noisy)

    best, results = interleaved({"small": task(small), "large": task(10 * small)}, 2)
    iterations = [results[name].diagnostics["iterations"] for name in ("small", "large")]
    return [
        f"| `likelihood`, {10 * small:,} occupied values | itself, {small:,} | {best['large']:.2f} s | "
        f"{best['small']:.3f} s | **{best['large'] / best['small']:.1f}×** the time "
        f"({iterations[1]} and {iterations[0]} iterations) | ≤ 12× |"
    ]


def auto_against_paper(rng: np.random.Generator) -> list[str]:
    try:
        from unnoise.estimators.auto import auto
    except ImportError:
        return ["| `auto`, range 1,000 | `paper` | not there yet | | | ≤ 100× |"]
    noisy = noisy_profile(np.minimum(rng.geometric(0.01, 100_000), 1000), 0.5, rng)
    best, _ = interleaved({"auto": lambda: auto(noisy), "paper": lambda: paper(noisy)}, 3)
    return [
        f"| `auto`, range 1,000 | `paper` | {best['auto']:.2f} s | {best['paper'] * 1e3:.1f} ms | "
        f"**{best['auto'] / best['paper']:.0f}×** the time | ≤ 100×, aim 2 s |"
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller sizes, under a minute")
    parser.add_argument("--write", action="store_true", help="put the table into docs/benchmarks.md")
    parser.add_argument("--limit", type=float, default=1200, help="seconds HiGHS may take per program")
    options = parser.parse_args()
    rng = np.random.default_rng(SEED)
    quick = options.quick
    lines = ["| what | against | time | its time | ratio | target |", "|---|---|---|---|---|---|"]
    for part in (
        lambda: isotonic_against_paper(200_000 if quick else 2_000_000, rng),
        lambda: growth_of_likelihood(10_000 if quick else 100_000, rng),
        lambda: auto_against_paper(rng),
        lambda: banded_against_highs(500 if quick else 5000, options.limit, rng),
    ):
        lines += part()
        print("\n".join(lines[-4:]), flush=True)
    text = "## Speed of reconstruction\n\n" + machine("numpy", "scipy", "highspy") + "\n\n" + "\n".join(lines)
    text += "\n\nInterleaved in one run, best of the repetitions; ε = 0.5 (growth: ε = 1)."
    if options.write:
        write_section("reconstruct", text)


if __name__ == "__main__":
    main()
