"""Three ways to count together, on the World Federation of Advertisers' scenarios (ε = ln 3, 2¹⁷ cells).

Run ``python benchmarks/sites.py [--quick] [--runs N] [--k …] [--scenario …] [--way …] [--tables N] [--write]``.

*merged*: sealed sketches added up, k noises; *side by side*: the same sketches beside each other, ``un.union``;
*two servers*: shares of cells, two noises whatever k; *one place*: who is trusted adds one noise. A person is counted
at most once a site in the reach scenarios, three times in the others, and the estimators are told so (``max_count``).

Noise is simulated by its law (tests/test_shares.py and ``benchmarks/merge.py --check`` compare it with the real thing).
Sets that pass: the largest of the numbers tried up to which 95 % of the runs are within 5 % of the truth. Beside them
stand the published figures of vector-of-counts and Bloom filters. ``--tables N`` makes N random tables consistent and
counts broken rules (with ``--scenario`` and no name: nothing else).
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from _report import IMAGES, machine, write_section
from _wfa import (
    FREQUENCY,
    MOST_FREQUENT,
    PUBLISHED,
    REACH,
    SETS,
    Scenario,
    histogram,
    sets_that_pass,
    shuffle_distance,
)  # fmt: skip

import unnoise as un
from unnoise.layout import Layout

Row = dict[str, float]
CELLS = 1 << 17
LAYOUT = Layout(kind="hashed", cells=CELLS, hash_seed=0, item_types=("int",))
EPSILON = math.log(3)
WAYS = ("merged", "side by side", "two servers", "one place")
TRIED = (1, 2, 3, 5, 8, 13, 20)
BYTES = {"merged": 8 * CELLS, "side by side": 8 * CELLS, "two servers": 8 * CELLS + 32, "one place": 8 * CELLS}


def summed(cells: np.ndarray, power: int) -> un.NoisyCounts:
    """Cells with ``power`` noises."""
    noisy = cells + un.discrete_laplace(CELLS, EPSILON, power=power)
    return un.NoisyCounts(noisy, un.DiscreteLaplace(EPSILON, power), LAYOUT)


def profile_of(noisy: un.NoisyCounts, bound: int) -> un.Profile:
    """The engine's answer, with the bound on counts where it takes one."""
    return un.reconstruct(noisy, max_count=bound)


def frequencies_of(profile: un.Profile) -> np.ndarray:
    counts, seen = np.zeros(MOST_FREQUENT), profile.support > 0
    np.add.at(counts, np.minimum(profile.support[seen], MOST_FREQUENT) - 1, (profile.mass * profile.items)[seen])
    return counts


def measure(way: str, exact: np.ndarray, sealed: list[un.NoisyCounts], truth: np.ndarray, most: int) -> Row:
    """One answer of one way against the frequencies of the union."""
    k = len(sealed)
    start = time.perf_counter()
    shuffle = math.nan
    try:
        if way == "side by side":
            reach = un.union(*sealed, max_count=1 if most == 1 else None)
        else:
            if way == "merged":
                law = un.DiscreteLaplace(EPSILON, k)
                noisy = un.NoisyCounts(np.sum([s.counts for s in sealed], axis=0), law, LAYOUT)
            else:
                noisy = summed(exact, 2 if way == "two servers" else 1)
            found = profile_of(noisy, most * k)
            reach, shuffle = found.distinct, shuffle_distance(frequencies_of(found), histogram(truth))
    except (un.OverloadError, un.ConvergenceError):
        return {"refused": 1.0}
    return {
        "refused": 0.0, "error": reach.value / truth.size - 1, "covered": float(truth.size in reach),
        "shuffle": shuffle, "seconds": time.perf_counter() - start,
    }  # fmt: skip


def run_scenario(name: str, options: argparse.Namespace) -> dict[tuple[str, int], list[Row]]:
    """All runs of a scenario, by way and number of sites."""
    rng = np.random.default_rng([23, (*REACH, *FREQUENCY).index(name)])
    most = 3 if name in FREQUENCY else 1
    ks = [k for k in sorted({*options.k, SETS[name]}) if k <= SETS[name]]
    rows: dict[tuple[str, int], list[Row]] = {(way, k): [] for way in options.way for k in ks}
    for _ in range(options.runs):
        drawn = Scenario.draw(name, rng)
        cells = drawn.cells(CELLS, rng)
        sealed = [summed(c, 1) for c in cells]
        for k in ks:
            exact, truth = cells[:k].sum(axis=0), drawn.frequencies(k)
            for way in options.way:
                rows[way, k].append(measure(way, exact, sealed[:k], truth, most))
    return rows


def overlaps(options: argparse.Namespace) -> list[str]:
    """RMSE of the overlap of two sites, as a share of their union."""
    lines = ["| scenario | overlap of two: RMSE by the union | coverage | retention: RMSE |", "|---|---|---|---|"]
    for name in REACH:
        rng, errors, covered, kept = np.random.default_rng(29), [], [], []
        for _ in range(3 * options.runs):
            drawn = Scenario.draw(name, rng, 2)
            sealed = [summed(c, 1) for c in drawn.cells(CELLS, rng)]
            truth = drawn.frequencies(2)
            both = int((truth == 2).sum())
            found = un.overlap(*sealed, max_count=1)
            errors.append((found.value - both) / truth.size)
            covered.append(both in found)
            kept.append(un.retention(*sealed, max_count=1).value - both / drawn.items[0].size)
        rmse, other = (100 * float(np.sqrt(np.mean(np.square(e)))) for e in (errors, kept))
        lines.append(f"| {name} | {rmse:.2f} % | {100 * np.mean(covered):.0f} % | {other:.2f} points |")
        print(lines[-1], flush=True)
    return lines


def tables(number: int) -> str:
    """Make random tables consistent and count what is broken."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
    from test_sites import random_table
    from unnoise.answers.consistent import project

    rng, start = np.random.default_rng(31), time.perf_counter()
    before = after = 0
    for _ in range(number):
        rules, y, cov = random_table(rng)
        before += rules.broken(y) > 1e-9
        after += rules.broken(project(y, cov, rules)) > 1e-7
    seconds = time.perf_counter() - start
    return (
        f"{number:,} random tables: {before:,} broke a rule before, {after} after being made consistent "
        f"({1e3 * seconds / number:.2f} ms each)."
    )


def lines_of(name: str, rows: dict[tuple[str, int], list[Row]]) -> tuple[list[str], dict[str, int]]:
    lines, passed = [], {}
    ways = list(dict.fromkeys(way for way, _ in rows))
    ks = sorted({k for _, k in rows})
    for way in ways:
        within = np.array([[abs(r.get("error", 9)) <= 0.05 for r in rows[way, k]] for k in ks]).T
        index = sets_that_pass(within, 0.95)
        passed[way] = ks[index - 1] if index else 0
        for k in ks:
            answered = [r for r in rows[way, k] if not r["refused"]]
            if not answered:
                lines.append(f"| {name} | {way} | {k} | refused | | | |")
                continue
            column = {key: np.array([r[key] for r in answered]) for key in ("error", "covered", "shuffle", "seconds")}
            shuffle = "–" if np.isnan(column["shuffle"]).all() else f"{column['shuffle'].mean():.3f}"
            lines.append(
                f"| {name} | {way} | {k} | {100 * np.sqrt(np.mean(column['error'] ** 2)):.2f} % "
                f"| {100 * column['covered'].mean():.0f} % | {shuffle} | {column['seconds'].mean():.2f} |"
            )
            print(lines[-1], flush=True)
    return lines, passed


def passing(passed: dict[str, dict[str, int]], options: argparse.Namespace) -> list[str]:
    """The table of sets that pass, with the published figures."""
    names = [name for name in REACH if name in passed]
    lines = ["| sets that pass | bytes a site | " + " | ".join(names) + " |", "|---" * (len(names) + 2) + "|"]
    for way in options.way:
        figures = " | ".join(str(passed[name][way]) for name in names)
        lines.append(f"| {way} | {BYTES[way]:,} | {figures} |")
    for other, figures in PUBLISHED.items():
        lines.append(f"| {other} (published) | | {' | '.join(str(figures[REACH.index(n)]) for n in names)} |")
    return lines


def plot(results: dict[str, dict[tuple[str, int], list[Row]]], options: argparse.Namespace) -> None:
    """RMSE of reach against the number of sites, one panel a scenario."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    names = [name for name in REACH if name in results]
    figure, axes = plt.subplots(1, len(names), figsize=(2.6 * len(names), 3.1), sharey=True, layout="constrained")
    voc = dict(zip(REACH, PUBLISHED["vector of counts, 4096"]))
    for panel, name in zip(np.atleast_1d(axes), names):
        rows = results[name]
        for way in options.way:
            ks = sorted(k for w, k in rows if w == way)
            rmse = [100 * np.sqrt(np.mean([r["error"] ** 2 for r in rows[way, k] if not r["refused"]] or [np.nan]))
                    for k in ks]
            panel.plot(ks, rmse, marker="o", ms=3, label=way)
        panel.axhline(2.55, color="0.6", lw=0.8, ls=":")
        panel.plot([voc[name]], [2.55], marker="v", ms=8, color="0.4", ls="none", label="vector of counts stops")
        panel.set(xscale="log", yscale="log", title=name, xlabel="sites")
        panel.set_xticks([1, 2, 5, 10, 20], ["1", "2", "5", "10", "20"])
        panel.minorticks_off()
    first = np.atleast_1d(axes)[0]
    first.set_ylabel("RMSE of reach, %")
    first.legend(fontsize=7, frameon=False)
    figure.savefig(IMAGES / "sites.svg", metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="2 runs, k = 3 and all")
    parser.add_argument("--runs", type=int)
    parser.add_argument("--k", nargs="*", type=int)
    parser.add_argument("--scenario", nargs="*", choices=[*REACH, *FREQUENCY], default=[*REACH, *FREQUENCY])
    parser.add_argument("--way", nargs="*", choices=WAYS, default=list(WAYS))
    parser.add_argument("--tables", type=int, default=0)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    options.runs = options.runs or (2 if options.quick else 100)
    options.k = options.k or ([3] if options.quick else list(TRIED))
    warnings.simplefilter("ignore")
    head = "| scenario | way | sites | RMSE of reach | coverage | shuffle distance | seconds |\n" + "|---" * 7 + "|"
    if not options.scenario:
        print(tables(options.tables))
        return
    body, passed, results = [], {}, {}
    for name in options.scenario:
        results[name] = run_scenario(name, options)
        lines, passed[name] = lines_of(name, results[name])
        body += lines
    text = [
        "## Many sites", "", machine("numpy", "scipy"), "", f"ε = ln 3, 2¹⁷ cells, {options.runs} runs each.", "",
        *passing(passed, options), "", "![Error of reach against the number of sites](img/sites.svg)", "",
        *overlaps(options), "", head, *body, "",
    ]  # fmt: skip
    if options.tables:
        text += [tables(options.tables), ""]
        print(text[-2])
    print("\n".join(passing(passed, options)))
    if options.write:
        plot(results, options)
        write_section("sites", "\n".join(text))


if __name__ == "__main__":
    main()
