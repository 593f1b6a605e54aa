"""The paper's algorithm: error against d with Theorem 1's bound, and time against n and d.

Error: a fixed profile on 0..50 (half of the cells 0, the rest falling geometrically), ε = 1, η = 0.05, n declared; the
mean over independent runs of ‖r − f‖_p over the whole window, for Algorithm 2's output and after Algorithm 3. The slope
is that of the least-squares line through log error against log d, for Algorithm 2.

Time: best of several runs of tally, Algorithm 2 and Algorithm 3, p = 2, ε = 1.

    python benchmarks/paper.py [--quick] [--write]
"""

from __future__ import annotations

import argparse
import math
import time
from functools import partial

import numpy as np
from _report import IMAGES, machine, write_section

from unnoise import _sampler, bounds
from unnoise._circulant import fast_inversion, round_profile
from unnoise.estimators.paper import LONGEST, frame, paper, private_profile
from unnoise.noisy import NoisyProfile

EPSILON, ETA, N = 1, 0.05, 50
NORMS = {1: "ℓ1", 2: "ℓ2", math.inf: "ℓ∞"}


def cells_at(d: int) -> np.ndarray:
    """The profile times d, in whole cells (largest remainders)."""
    shares = np.append(0.5, 0.5 * 0.12 * 0.88 ** np.arange(N))
    shares /= shares.sum()
    cells = np.floor(shares * d).astype(np.int64)
    missing = d - int(cells.sum())
    cells[np.argsort(shares * d - cells)[-missing:]] += 1
    return cells


def errors(d: int, runs: int) -> dict[float, tuple[float, float]]:
    """Mean error of Algorithm 2 and after Algorithm 3, for each norm."""
    truth = cells_at(d) / d
    sums = {norm: np.zeros(2) for norm in NORMS}
    for _ in range(runs):
        noisy = private_profile(cells_at(d), epsilon=EPSILON)
        framed = frame(noisy, N, ETA, LONGEST, "paper")
        padded = np.zeros(framed.order)
        padded[framed.inside] = truth
        channel = framed.channel
        for norm in NORMS:
            r = fast_inversion(channel, framed.observed, framed.inside, norm)
            rounded = round_profile(r[framed.inside])[0]
            sums[norm] += np.linalg.norm(r - padded, norm), np.linalg.norm(rounded - truth, norm)
    return {norm: tuple(total / runs) for norm, total in sums.items()}


def best(function, runs: int) -> float:
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def time_against_n(sizes: list[int], d: int) -> list[tuple[int, float, float]]:
    """(n, seconds with n left to the algorithm, seconds with n declared so that N is prime)."""
    rng, rows = np.random.default_rng(0), []
    for n in sizes:
        counts = rng.integers(0, n + 1, d) + _sampler.discrete_laplace(d, EPSILON)
        noisy = NoisyProfile.from_counts(counts, epsilon=EPSILON)
        runs = 2 if n >= 10**7 else 7
        reach = bounds.window(d, EPSILON, ETA / 2)
        prime = next(m for m in range(n + 2 * reach + 1, 2 * n + 1000) if is_prime(m)) - 2 * reach - 1
        rows.append((n, best(partial(paper, noisy), runs), best(partial(paper, noisy, max_count=prime), runs)))
    return rows


def time_against_d(sizes: list[int], n: int) -> list[tuple[int, float, float]]:
    """(d, seconds of the tally, seconds of the rest)."""
    rng, rows = np.random.default_rng(0), []
    for d in sizes:
        counts = rng.integers(0, n + 1, d) + _sampler.discrete_laplace(d, EPSILON)
        runs = 3 if d >= 10**7 else 7
        make = partial(NoisyProfile.from_counts, counts, epsilon=EPSILON)
        rows.append((d, best(make, runs), best(partial(paper, make()), runs)))
    return rows


def is_prime(m: int) -> bool:
    return m > 1 and all(m % q for q in range(2, math.isqrt(m) + 1))


def slope(ds: list[int], values: list[float]) -> float:
    return float(np.polyfit(np.log(ds), np.log(values), 1)[0])


def plot_errors(ds, table, slopes) -> None:
    plt = pyplot()
    figure, axes = plt.subplots(1, 3, figsize=(12, 4.2), sharex=True)
    for axis, (norm, name) in zip(axes, NORMS.items()):
        bound = [bounds.theorem1(d, N, EPSILON, ETA, norm) for d in ds]
        axis.loglog(ds, bound, "--", color="#888888", label="Theorem 1's bound (95 %)")
        axis.loglog(ds, [row[norm][0] for row in table], "o-", color="#1f6fb4", label="Algorithm 2")
        axis.loglog(ds, [row[norm][1] for row in table], "s-", color="#d1662b", label="Algorithm 2 and rounding", ms=4)
        axis.set_title(f"{name} error, slope of Algorithm 2: {slopes[norm]:.3f}", fontsize=10)
        axis.set_xlabel("cells d")
        axis.grid(True, which="major", alpha=0.3)
    axes[0].set_ylabel("mean error of the profile")
    axes[0].legend(fontsize=8, loc="lower left")
    figure.suptitle("The paper's reconstruction: error falls like 1/√d (ε = 1, counts 0..50)", fontsize=12)
    figure.tight_layout()
    figure.savefig(IMAGES / "paper_error.png", dpi=130)


def plot_times(by_n, by_d, d_fixed, n_fixed) -> None:
    plt = pyplot()
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2))
    n = np.array([row[0] for row in by_n], dtype=float)
    good = np.array([row[1] for row in by_n])
    left.loglog(n, good, "o-", color="#1f6fb4", label="n left to the algorithm (good length)")
    left.loglog(n, [row[2] for row in by_n], "s:", color="#d1662b", label="n declared, N prime (worst length)")
    guide = n * np.log2(n)
    left.loglog(n, good[-1] * guide / guide[-1], "--", color="#888888", label="n log n")
    left.set(xlabel="largest count n", ylabel="seconds", title=f"Algorithms 2 and 3, d = {d_fixed:,}")
    d = np.array([row[0] for row in by_d], dtype=float)
    tally = np.array([row[1] for row in by_d])
    right.loglog(d, tally, "o-", color="#1f6fb4", label="tally of the noisy counts")
    right.loglog(d, [row[2] for row in by_d], "s-", color="#d1662b", label="Algorithms 2 and 3")
    right.loglog(d, tally[-1] * d / d[-1], "--", color="#888888", label="d")
    right.set(xlabel="cells d", title=f"n = {n_fixed:,}")
    for axis in (left, right):
        axis.grid(True, which="major", alpha=0.3)
        axis.legend(fontsize=8)
    figure.suptitle("The paper's reconstruction takes O(d + n log n)", fontsize=12)
    figure.tight_layout()
    figure.savefig(IMAGES / "paper_time.png", dpi=130)


def pyplot():
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    IMAGES.mkdir(parents=True, exist_ok=True)
    return plt


def report(ds, table, slopes, by_n, by_d, d_fixed, n_fixed) -> str:
    lines = [
        "## The paper: error and time", "",
        "![error against d](img/paper_error.png)", "",
        f"Mean ‖r − f‖ over runs, ε = {EPSILON}, counts 0..{N}, η = {ETA}: Algorithm 2 / after rounding / "
        "Theorem 1's bound.", "",
        "| d | " + " | ".join(NORMS.values()) + " |", "|---:|" + "---|" * len(NORMS),
    ]
    for d, row in zip(ds, table):
        limit = {norm: bounds.theorem1(d, N, EPSILON, ETA, norm) for norm in NORMS}
        entries = (f"{row[norm][0]:.2e} / {row[norm][1]:.2e} / {limit[norm]:.2e}" for norm in NORMS)
        lines.append(f"| {d:,} | " + " | ".join(entries) + " |")
    lines += [
        "| slope | " + " | ".join(f"**{slopes[norm]:.3f}** (target −0.5 ± 0.02)" for norm in NORMS) + " |", "",
        "![time against n and d](img/paper_time.png)", "",
        f"| n (d = {d_fixed:,}) | seconds | ns per N·log₂N | N prime: seconds |", "|---:|---:|---:|---:|",
    ]
    reach = bounds.window(d_fixed, EPSILON, ETA / 2)
    for n, seconds, prime in by_n:
        size = n + 3 * reach + 1
        lines.append(f"| {n:,} | {seconds:.4f} | {1e9 * seconds / (size * math.log2(size)):.2f} | {prime:.4f} |")
    lines += ["", f"| d (n = {n_fixed:,}) | tally: seconds | ns per cell | Algorithms 2, 3: seconds |",
              "|---:|---:|---:|---:|"]
    for d, tally, rest in by_d:
        lines.append(f"| {d:,} | {tally:.5f} | {1e9 * tally / d:.1f} | {rest:.4f} |")
    lines += ["", machine("numpy", "scipy")]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer and smaller sizes, fewer runs")
    parser.add_argument("--write", action="store_true", help="put the result into docs/benchmarks.md")
    options = parser.parse_args()
    top = 5 if options.quick else 7
    ds = [round(10 ** (k / 2)) for k in range(6, 2 * top + 1)]
    budget = 3e6 if options.quick else 1e8
    table = [errors(d, max(4 if options.quick else 40, min(400, int(budget / d / 4)))) for d in ds]
    slopes = {norm: slope(ds, [row[norm][0] for row in table]) for norm in NORMS}
    d_fixed, n_fixed = 100_000, 1000
    by_n = time_against_n([10**k for k in range(3, top + 1)], d_fixed)
    by_d = time_against_d([10**k for k in range(3, top + 1)], n_fixed)
    text = report(ds, table, slopes, by_n, by_d, d_fixed, n_fixed)
    print(text)
    if options.write:
        plot_errors(ds, table, slopes)
        plot_times(by_n, by_d, d_fixed, n_fixed)
        write_section("paper", text)


if __name__ == "__main__":
    main()
