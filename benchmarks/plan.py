"""Whether a plan tells what will be measured, and keeps its promises.

For six settings of each kind (known, merged, capped, sampled, hashed, levels) the planned means are set against those
of independent releases with seeds of their own; then ε is asked for a target, and releases at the ε found are counted
that meet it. Targets: every planned ℓ1, W1 and width within 20 % of the measured one, and at least 80 % of the releases
within a target that was promised.

    python benchmarks/plan.py [--runs 20] [--kind known …] [--write]
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from _report import machine, write_section

from unnoise.answers.plan import QUESTIONS, plan
from unnoise.answers.reconstruct import reconstruct
from unnoise.answers.simulate import errors
from unnoise.errors import InputError, OverloadError, UnnoiseWarning

SHAPES = ("poisson:5", "geometric:20", "uniform:50", "power:2.5", "normal:30", "poisson:0.5")

KINDS = {
    "known": {"cells": 10_000, "epsilon": 1},
    "merged": {"cells": 10_000, "epsilon": 1, "merges": 3},
    "capped": {"cells": 10_000, "epsilon": 0.5, "cap": 10},
    "sampled": {"cells": 5_000, "epsilon": 1, "kind": "sampled", "items": 50_000},
    "hashed": {"cells": 16_384, "epsilon": 1, "kind": "hashed", "items": 10_000},
    "levels": {"cells": 16_384, "epsilon": 1, "kind": "hashed", "items": 20_000, "levels": 4},
}
TOLD = ("l1", "w1", "distinct", "total")


def measure(setting, runs, rng):
    """Mean errors and half-widths of independent releases, by name; ℓ1 of each release."""
    found = {name: [] for name in TOLD}
    for _ in range(runs):
        release = setting.draw(rng)
        try:
            p = reconstruct(release.noisy, max_count=setting.cap)
        except OverloadError:
            found["l1"].append(np.inf)
            continue
        gap = errors(p, release.values, release.how_many)
        for name in TOLD:
            answer = QUESTIONS[name].ask(p) if name in QUESTIONS else None
            found[name].append(gap[name] if answer is None else (answer.high - answer.low) / 2)
    return {name: float(np.mean(numbers)) for name, numbers in found.items()}, np.array(found["l1"])


def rows_of(kind, runs, seed):
    for shape in SHAPES:
        options = {**KINDS[kind], "shape": shape}
        planned = plan(**options, repetitions=runs, seed=seed)
        rng = np.random.default_rng([seed, 99])
        measured, _ = measure(planned.setting, runs, rng)
        told = {**planned.errors, **planned.widths}
        ratio = {name: told[name] / measured[name] if measured[name] else np.nan for name in TOLD}
        goal = float(f"{planned.errors['l1']:.2g}")
        asked = {name: value for name, value in options.items() if name != "epsilon"}
        try:
            promised = plan(**asked, target=goal, seed=seed, repetitions=8)
        except InputError:  # not to be had at any ε, and so not promised: what is sampled stays a sample
            promise = ["none", "not promised"]
        else:
            _, each = measure(promised.setting, runs, rng)
            promise = [f"{promised.epsilon:g}", f"{100 * (each <= goal).mean():.0f} %"]
        yield [
            kind, shape, *(f"{ratio[name]:.2f}" for name in TOLD), f"{100 * max(planned.doubt[n] for n in TOLD):.1f} %",
            f"{goal:g}", *promise,
        ]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--kind", nargs="*", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    started, rows = time.perf_counter(), []
    warnings.simplefilter("ignore", UnnoiseWarning)  # of releases that are only simulated
    for kind in options.kind:
        for row in rows_of(kind, options.runs, options.seed):
            rows.append(row)
            print(" | ".join(row), flush=True)
    ratios = np.array([[float(x) for x in row[2:6]] for row in rows])
    held = [float(row[-1].split()[0]) for row in rows if row[-2] != "none"]
    header = ["kind", "shape", "ℓ1", "W1", "± distinct", "± total", "doubt", "target ℓ1", "ε found", "releases within"]
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    text = (
        f"## Plans against what was measured\n\n{machine('numpy', 'scipy')}; {options.runs} releases of each, "
        f"{time.perf_counter() - started:.0f} s. Planned / measured: {np.nanmin(ratios):.2f} to "
        f"{np.nanmax(ratios):.2f}, "
        f"{100 * np.mean(np.abs(ratios - 1) <= 0.2):.0f} % within 20 %; promised targets were met by "
        f"{np.mean(held):.0f} % of the releases on average (least {min(held):.0f} %).\n\n" + "\n".join(lines) + "\n"
    )
    print(text)
    if options.write:
        write_section("plan", text)


if __name__ == "__main__":
    main()
