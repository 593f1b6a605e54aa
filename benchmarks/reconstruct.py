"""Speed of the estimators, in one run: isotonic against paper, banded optima against HiGHS, growth, auto.

    python benchmarks/reconstruct.py [--quick] [--write]

Ratios come from interleaved repetitions (best of each), so that both sides see the same machine.
HiGHS solves the same program P2 as ``exact`` — same rows, same counts, same untruncated law — as a linear program;
presolve and choice of algorithm are its own. It ignores coefficients up to 1e-12, so K and y are scaled by 1000, and it
is given three programs:

* *banded*, ε = 0.5: entries of K below 1e-15 are left out before;
* *handed over dense*, ε = 0.5: all entries are there, and HiGHS leaves out the same ones itself while reading;
* *dense*, ε = 0.005 on noisy counts 0…range: all range² entries of K are above what it ignores. A run that reaches the
  limit counts as more than the limit.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from _report import machine, write_section

from unnoise.estimators.exact import exact
from unnoise.estimators.isotonic import isotonic
from unnoise.estimators.likelihood import likelihood
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


@dataclass(frozen=True)
class Answer:
    """What HiGHS made of a program: seconds to read and solve it, status, optimum, coefficients given."""

    seconds: float
    status: str
    optimum: float
    coefficients: int

    def against(self, ours: float, fit: Any, value: float | None) -> str:
        """Its time, the ratio, and how far ``value``, if it is of the same program, is from its optimum: two cells."""
        certificate = f"own certificate {fit.diagnostics['gap']:.0e}"
        if self.status == "Time limit reached":
            return f"> {self.seconds:.0f} s | **> {self.seconds / ours:.0f}×** faster; HiGHS not done, {certificate}"
        if self.status != "Optimal":
            return f"{self.seconds:.1f} s | no ratio: HiGHS ends with {self.status!r}; {certificate}"
        apart = "" if value is None else f"objectives {value - self.optimum:+.1e} apart, "
        return f"{self.seconds:.1f} s | **{self.seconds / ours:.0f}×** faster; {apart}{certificate}"


SCALE = 1000.0
"""HiGHS ignores coefficients up to 1e-12 of 1: scaled by this, entries of K down to 1e-15 stay."""


def highs(noisy: NoisyProfile, top: int, p: float, limit: float, least: float = 0.0) -> Answer:
    """P2 on counts 0…top as a linear program without entries of K up to ``least``.

    p = 1: K f − e⁺ + e⁻ = y on occupied rows, and one more row for all m on the others, o = 1 − Σm; minimise
    o + Σ(e⁺ + e⁻). For HiGHS that is about three times faster than a slack above ±(K f − y) on every row.
    p = ∞: −τ ≤ K f − y ≤ τ on all rows up to one beyond both ends, where m is largest.
    """
    from scipy import sparse

    low, high = min(int(noisy.values[0]), 0), max(int(noisy.values[-1]), top)
    rows = noisy.values if p == 1 else np.arange(low - 1, high + 2)
    y = np.zeros(rows.size)
    y[np.searchsorted(rows, noisy.values)] = SCALE * noisy.fractions
    law = noisy.noise.pmf(np.arange(high - low + top + 2))
    dense = SCALE * np.where(law > least, law, 0.0)[np.abs(rows[:, None] - np.arange(top + 1))]
    k = sparse.csr_matrix(dense)
    ones = sparse.csr_matrix(np.ones((1, top + 1)))
    inf = float("inf")
    if p == 1:
        others = sparse.csr_matrix(np.maximum(SCALE - dense.sum(axis=0), 0.0))
        slack, single = sparse.eye(rows.size), sparse.csr_matrix([[-1.0]])
        matrix = sparse.bmat(
            [[k, -slack, slack, None], [others, None, None, single], [ones, None, None, None]], format="csr"
        )
        cost = np.r_[np.zeros(top + 1), np.ones(2 * rows.size + 1)]
        lower = upper = np.r_[y, 0.0, 1.0]
    else:
        slack = sparse.csr_matrix(np.ones((rows.size, 1)))
        matrix = sparse.bmat([[k, -slack], [k, slack], [ones, None]], format="csr")
        cost = np.r_[np.zeros(top + 1), 1.0]
        lower, upper = np.r_[np.full(rows.size, -inf), y, 1.0], np.r_[y, np.full(rows.size, inf), 1.0]
    seconds, status, optimum = minimise(matrix, cost, lower, upper, limit)
    return Answer(seconds, status, optimum / SCALE, k.nnz)


def minimise(matrix: Any, cost: Any, lower: Any, upper: Any, limit: float) -> tuple[float, str, float]:
    """Minimise cost·v over v ≥ 0 with lower ≤ matrix·v ≤ upper by HiGHS: seconds, status, optimum."""
    import highspy

    lp = highspy.HighsLp()
    lp.num_row_, lp.num_col_ = matrix.shape
    lp.col_cost_, lp.row_lower_, lp.row_upper_ = cost, lower, upper
    lp.col_lower_, lp.col_upper_ = np.zeros(cost.size), np.full(cost.size, highspy.kHighsInf)
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
    return seconds, status, solver.getInfo().objective_function_value


def isotonic_against_paper(top: int, rng: np.random.Generator) -> list[str]:
    true = np.minimum(rng.zipf(1.7, 300_000), top)
    true[0] = top
    noisy = noisy_profile(true, 0.5, rng)
    best, _ = interleaved({"isotonic": lambda: isotonic(noisy), "paper": lambda: paper(noisy)}, 10)
    ratio = best["paper"] / best["isotonic"]
    return [
        f"| `isotonic`, range {top:,} ({noisy.values.size:,} occupied values) | `paper` (FFT) | "
        f"{best['isotonic'] * 1e3:.1f} ms | {best['paper'] * 1e3:.0f} ms | **{ratio:.0f}×** faster | ≥ 20× |"
    ]


def within(noisy: NoisyProfile, low: int, high: int) -> NoisyProfile:
    """The cells with noisy counts in [low, high]."""
    kept = (noisy.values >= low) & (noisy.values <= high)
    return NoisyProfile.from_tally(noisy.values[kept], noisy.tally[kept], noise=noisy.noise)


def banded_against_highs(top: int, limit: float, dense_limit: float, rng: np.random.Generator) -> list[str]:
    true = rng.integers(0, top - 30, 1_000_000)
    noisy = noisy_profile(true, 0.5, rng)
    noisy = within(noisy, int(noisy.values[0]), top)
    lines = against_highs(noisy, top, "ε = 0.5", {"banded": (1e-15, limit), "handed over dense": (0.0, limit)})
    if dense_limit > 0:
        noisy = within(noisy_profile(true, 0.005, rng), 0, top)
        lines += against_highs(noisy, top, "ε = 0.005", {"dense": (0.0, dense_limit)})
    return lines


def against_highs(
    noisy: NoisyProfile, top: int, label: str, programs: dict[str, tuple[float, float]]
) -> list[str]:
    """All estimators on one noisy profile against HiGHS on each program: entries left out, seconds at most."""
    tasks: dict[str, Callable[[], Any]] = {
        "`exact` p = 1": lambda: exact(noisy, norm=1, max_count=top),
        "`exact` p = ∞": lambda: exact(noisy, norm=math.inf, max_count=top),
        "`exact` p = 2": lambda: exact(noisy, max_count=top),
        "`likelihood`": lambda: likelihood(noisy, max_count=top),
    }
    best, fits = interleaved(tasks, 3)
    lines = []
    for program, (least, limit) in programs.items():
        answers = {p: highs(noisy, top, p, limit, least) for p in (1, math.inf)}
        again, _ = interleaved(tasks, 1)
        best = {name: min(best[name], again[name]) for name in tasks}
        for name, fit in fits.items():
            p = fit.diagnostics.get("norm")
            answer = answers[math.inf if p == math.inf else 1]
            value = fit.diagnostics["value"] if p in answers else None
            lines.append(
                f"| {name}, range {top:,}, {label} | HiGHS{'' if p in answers else ' on p = 1'}, {program} "
                f"({answer.coefficients / 1e6:.1f} M entries of K) | {best[name] * 1e3:.0f} ms | "
                f"{answer.against(best[name], fit, value)} | ≥ 100× |"
            )
    return lines


def growth_of_likelihood(small: int, rng: np.random.Generator) -> list[str]:
    """Time per size on noisy profiles in which every value is occupied, by Poisson numbers of cells."""
    def task(size: int) -> Callable[[], Any]:
        tally = 1 + rng.poisson(20, size)
        noisy = NoisyProfile.from_tally(np.arange(size), tally, noise=DiscreteLaplace(1))
        return lambda: likelihood(noisy)

    best, results = interleaved({"small": task(small), "large": task(10 * small)}, 4)
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
    best, _ = interleaved({"auto": lambda: auto(noisy), "paper": lambda: paper(noisy)}, 10)
    return [
        f"| `auto`, range 1,000 | `paper` | {best['auto']:.2f} s | {best['paper'] * 1e3:.1f} ms | "
        f"**{best['auto'] / best['paper']:.0f}×** the time | ≤ 100×, aim 2 s |"
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller sizes, under a minute")
    parser.add_argument("--write", action="store_true", help="put the table into docs/benchmarks.md")
    parser.add_argument("--limit", type=float, default=1200, help="seconds HiGHS may take per banded program")
    parser.add_argument("--dense-limit", type=float, default=270, help="seconds it may take per dense program, 0: none")
    options = parser.parse_args()
    rng = np.random.default_rng(SEED)
    quick = options.quick
    lines = ["| what | against | time | its time | ratio | target |", "|---|---|---|---|---|---|"]
    for part in (
        lambda: isotonic_against_paper(200_000 if quick else 2_000_000, rng),
        lambda: growth_of_likelihood(10_000 if quick else 100_000, rng),
        lambda: auto_against_paper(rng),
        lambda: banded_against_highs(
            500 if quick else 5000, options.limit, 0.0 if quick else options.dense_limit, rng
        ),
    ):
        found = part()
        lines += found
        print("\n".join(found), flush=True)
    text = "## Speed of reconstruction\n\n" + machine("numpy", "scipy", "highspy") + "\n\n" + "\n".join(lines)
    text += "\n\nInterleaved in one run, best of the repetitions; ε = 0.5 where not said (growth: ε = 1)."
    text += (
        "\n*banded*: entries of K below 1e-15 left out before; *handed over dense*: all entries given, those below "
        "1e-15 left\nout by HiGHS while reading; *dense*: none is small enough to be left out."
    )
    if options.write:
        write_section("reconstruct", text)


if __name__ == "__main__":
    main()
