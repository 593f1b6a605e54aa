"""Accuracy of every method over the battery: ℓ1, ℓ2, ℓ∞ and W1, and the targets of `auto` against `paper`.

Errors are means over repetitions. A ratio is to the best p of `paper`, metric by metric; cases where `paper` is below
0.005 already are left aside, and ratios below 0.001 count as 0.001 in geometric means. `oracle` is Bayes' answer who
knows the law that the counts were drawn from: no method can be expected to do better. `lp` is left out (a dense
program of these lengths takes hours); `exact` (p = 2) is run where no noisy count exceeds 2,000.

    python benchmarks/accuracy.py [--quick] [--repetitions N] [--write]
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import math
import time
from multiprocessing import Pool

import numpy as np
from _battery import METRICS, SYNTHETIC, drawn, errors, law, noised, oracle, real, seeded
from _report import IMAGES, machine, write_section

from unnoise.errors import ConvergenceError, InputError
from unnoise.estimators.auto import auto, smooth
from unnoise.estimators.exact import exact
from unnoise.estimators.isotonic import isotonic
from unnoise.estimators.likelihood import likelihood
from unnoise.estimators.linear import linear
from unnoise.estimators.paper import paper

PAPER = {"paper p=1": 1, "paper p=2": 2, "paper p=∞": math.inf}
METHODS = {
    **{name: (lambda noisy, p=p: paper(noisy, norm=p)) for name, p in PAPER.items()},
    "linear": linear,
    "isotonic": isotonic,
    "likelihood": likelihood,
    "exact p=2": exact,
    "smooth": smooth,
    "auto": auto,
}
SMOOTH = ("Poisson 5", "Zipf 1.5", "Zipf 2.2", "geometric 20", "uniform 200", "bimodal")
SHOWN = ("isotonic", "likelihood", "smooth", "auto")
ASIDE, FLOOR = 0.005, 1e-3
EXACT_RANGE = 2000
SMALL, SMALL_TIMES = 10_000, 4
"""Where d is at most that, a case is repeated four times as often: ℓ∞ of Zipf 2.2 at ε = 1 came to 1.16 with 5
repetitions, to 0.83 with 20 others."""

Case = tuple[str, int, float]


def run(job: tuple[Case, int]) -> tuple[Case, dict[str, tuple[np.ndarray, float]]]:
    """One repetition of one case: errors and seconds of every method."""
    case, repetition = job
    name, d, epsilon = case
    rng = seeded(*case, repetition)
    values, tally = np.unique(drawn(name, d, rng), return_counts=True) if name in SYNTHETIC else REAL[name]
    noisy = noised(values, tally, epsilon, rng)
    results = {}
    for method, estimate in METHODS.items():
        if method == "exact p=2" and noisy.values[-1] > EXACT_RANGE:
            continue
        begin = time.perf_counter()
        try:
            fit = estimate(noisy)
        except (ConvergenceError, InputError) as error:
            print(f"  {name}, {d:,}, ε={epsilon}, {method}: {error}")
            continue
        seconds = time.perf_counter() - begin
        results[method] = errors(values, tally / tally.sum(), fit.support, fit.mass), seconds
    if name in SYNTHETIC:
        known = oracle(noisy, *law(name))
        results["oracle"] = errors(values, tally / tally.sum(), known.support, known.mass), 0.0
    return case, results


def means(outcomes: list) -> dict[Case, dict[str, np.ndarray]]:
    """Mean errors by case and method, and `paper` with its best p for each metric."""
    grouped: dict[Case, dict[str, list[np.ndarray]]] = {}
    for case, results in outcomes:
        for method, (error, _) in results.items():
            grouped.setdefault(case, {}).setdefault(method, []).append(error)
    table = {case: {m: np.mean(e, axis=0) for m, e in methods.items()} for case, methods in grouped.items()}
    for methods in table.values():
        methods["paper"] = np.min([methods[p] for p in PAPER if p in methods], axis=0)
    return table


def ratios(table: dict, method: str, against: str = "paper") -> dict[Case, np.ndarray]:
    """Ratio of every metric, nan where `paper` is below ASIDE."""
    return {
        case: np.where(m["paper"] < ASIDE, np.nan, m[method] / np.maximum(m[against], 1e-12))
        for case, m in table.items()
        if method in m and case[2] < 2
    }


def geometric(ratio: dict[Case, np.ndarray]) -> np.ndarray:
    return np.exp(np.nanmean(np.log(np.maximum(list(ratio.values()), FLOOR)), axis=0))


def label(case: Case) -> str:
    return f"{case[0]}, {case[1]:,}, ε={case[2]:g}"


def worst(ratio: dict[Case, np.ndarray], metric: int) -> str:
    case = max(ratio, key=lambda c: np.nan_to_num(ratio[c][metric]))
    return f"{ratio[case][metric]:.2f} ({label(case)})"


def targets(table: dict) -> list[tuple[str, str, str, bool]]:
    """The targets of the issue: what, wanted, measured, passed."""
    of_auto = ratios(table, "auto")
    mean = geometric(of_auto)
    rows = [
        ("`auto` ℓ1, geometric mean", "≤ 0.172", f"{mean[0]:.3f}", mean[0] <= 0.172),
        ("`auto` W1, geometric mean", "≤ 0.030", f"{mean[3]:.3f}", mean[3] <= 0.030),
    ]
    for k, metric in enumerate(METRICS):
        top = np.nanmax([r[k] for r in of_auto.values()])
        rows.append((f"`auto` {metric}, worst case", "≤ 1.05", worst(of_auto, k), top <= 1.05))
    to_oracle = {
        case: m["auto"] / np.maximum(m["oracle"], 1e-12)
        for case, m in table.items()
        if case[0] in SMOOTH and 0.5 <= case[2] < 2
    }
    top = np.max([r[0] for r in to_oracle.values()])
    rows.append(("`auto` ℓ1 against the oracle, smooth shapes, ε ≥ 0.5, worst", "≤ 2", worst(to_oracle, 0), top <= 2))
    to_isotonic = ratios(table, "auto", "isotonic")
    top = np.nanmax([r[3] for r in to_isotonic.values()])
    rows.append(("`auto` W1 against `isotonic`, worst case", "≤ 1.2", worst(to_isotonic, 3), top <= 1.2))
    for method in ("isotonic", "likelihood"):
        ratio = ratios(table, method)
        top = np.nanmax([r[3] for r in ratio.values()])
        rows.append((f"`{method}` W1, worst case", "≤ 1.05", worst(ratio, 3), top <= 1.05))
    return rows


def report(table: dict, seconds: dict[str, float], repetitions: str) -> str:
    lines = [
        "## Accuracy",
        "",
        f"Means over {repetitions} repetitions; `paper` stands for its best p, metric by metric.",
        f"{machine('numpy', 'scipy')}.",
        "",
        "Targets (ε = 0.1, 0.5, 1; cases where `paper` is below 0.005 aside):",
        "",
        "| target | wanted | measured | |",
        "|---|---|---|---|",
    ]
    for what, wanted, got, ok in targets(table):
        lines.append(f"| {what} | {wanted} | {got} | {'pass' if ok else '**FAIL**'} |")
    lines += ["", "Geometric mean of the ratio to `paper`, and worst case:", ""]
    lines += ["| method | " + " | ".join(METRICS) + " | worst ℓ1 | worst W1 | s per run |", "|---|" + "---|" * 7]
    for method in [m for m in METHODS if m not in PAPER]:
        ratio = ratios(table, method)
        if ratio:
            mean = " | ".join(f"{x:.3f}" for x in geometric(ratio))
            lines.append(f"| {method} | {mean} | {worst(ratio, 0)} | {worst(ratio, 3)} | {seconds[method]:.3f} |")
    lines += ["", "![ratios to the paper, case by case](img/accuracy.png)", "", "Errors, ℓ1 / W1:", ""]
    lines += ["| case | paper | " + " | ".join(SHOWN) + " | oracle |", "|---|" + "---|" * (len(SHOWN) + 2)]
    for case, methods in table.items():
        cells = [
            f"{methods[m][0]:.4f} / {methods[m][3]:.4f}" if m in methods else "–" for m in ("paper", *SHOWN, "oracle")
        ]
        lines.append(f"| {label(case)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def plot(table: dict) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(1, 2, figsize=(11, 5), sharey=True)
    colours = {"isotonic": "#999999", "likelihood": "#56b4e9", "smooth": "#e69f00", "auto": "#d55e00"}
    for ax, k in zip(axes, (0, 3)):
        for i, method in enumerate(SHOWN):
            ratio = np.array([max(r[k], FLOOR) for r in ratios(table, method).values() if np.isfinite(r[k])])
            spread = np.random.default_rng(0).uniform(-0.2, 0.2, ratio.size)
            ax.scatter(i + spread, ratio, s=18, color=colours[method], alpha=0.8)
            mean = np.exp(np.log(ratio).mean())
            ax.plot([i - 0.32, i + 0.32], [mean, mean], color="black", lw=2)
            ax.annotate(f"{mean:.2g}", (i + 0.34, mean), va="center", fontsize=9)
        ax.axhline(1, color="black", lw=0.8, ls="--")
        ax.set_yscale("log")
        ax.set_xticks(range(len(SHOWN)), SHOWN)
        ax.set_title(f"{METRICS[k]} error, ratio to the paper's best p")
        ax.set_xlim(-0.6, len(SHOWN) - 0.2)
    axes[0].set_ylabel("one dot per case; bar: geometric mean")
    fig.tight_layout()
    IMAGES.mkdir(exist_ok=True)
    fig.savefig(IMAGES / "accuracy.png", dpi=110)


def cases(quick: bool) -> list[Case]:
    sizes = (10_000,) if quick else (10_000, 1_000_000)
    epsilons = (0.1, 1.0) if quick else (0.1, 0.5, 1.0, 2.0)
    made = [(name, d, e) for name in SYNTHETIC for d in sizes for e in epsilons]
    names = [n for n, (_, tally) in REAL.items() if not quick or tally.sum() < 100_000]
    return made + [(name, int(REAL[name][1].sum()), e) for name in names for e in epsilons]


def repetitions(case: Case, usual: int) -> int:
    return SMALL_TIMES * usual if case[1] <= SMALL else usual


REAL = real()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="d = 10⁴, ε = 0.1 and 1, two repetitions")
    parser.add_argument("--repetitions", type=int, default=5, help="of a case")
    parser.add_argument("--write", action="store_true", help="put the result into docs/benchmarks.md")
    options = parser.parse_args()
    begin = time.perf_counter()
    usual = options.repetitions
    jobs = [(case, k) for case in cases(options.quick) for k in range(2 if options.quick else repetitions(case, usual))]
    # long jobs first, so that no process waits at the end
    jobs.sort(key=lambda job: -job[0][1])
    with Pool(2) as pool:
        outcomes = pool.map(run, jobs, chunksize=1)
    order = {case: i for i, case in enumerate(cases(options.quick))}
    outcomes.sort(key=lambda outcome: order[outcome[0]])
    seconds = {
        m: float(np.mean([r[m][1] for _, r in outcomes if m in r])) if any(m in r for _, r in outcomes) else math.nan
        for m in METHODS
    }
    table = means(outcomes)
    times = "2" if options.quick else f"{usual} ({SMALL_TIMES * usual} where d ≤ {SMALL:,})"
    text = report(table, seconds, times)
    print(text)
    print(f"\n{time.perf_counter() - begin:.0f} s")
    if options.write:
        plot(table)
        write_section("accuracy", text)


if __name__ == "__main__":
    main()
