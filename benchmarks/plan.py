"""Whether a plan tells what will be measured, and keeps its promises.

For six settings of each kind (known, merged, capped, sampled, hashed, levels) the planned means are set against those
of as many independent releases with seeds of their own; then ε is asked for a target, and releases at the ε found are
counted that meet it. Targets: every planned ℓ1, W1 and width within 20 % of the measured one, and at least 80 % of the
releases within a target that was promised. Both means are random: releases are doubled until either is known to SURE,
and how far they are apart is told in their common standard error, too.

    python benchmarks/plan.py [--runs N] [--kind known …] [--processes 2] [--write]
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from _report import machine, write_section

from unnoise.answers.plan import PROMISED, QUESTIONS, plan
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
RUNS = {"known": 60, "merged": 40, "capped": 100, "sampled": 100, "hashed": 30, "levels": 20}
"""Releases on either side at first, as many as are cheap: errors of an exact profile vary by more than their mean."""
SURE, MOST, KEPT = 0.07, 1600, 100
"""Relative standard error of every planned figure, so that 20 % are two of a ratio; releases to which these double; and
releases by which a promise is judged (± 4 % at four in five), by four times as many new ones where it seems broken."""
TOLD = ("l1", "w1", "distinct", "total")


def measure(setting, runs, rng):
    """Errors and half-widths of independent releases, by name."""
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
    return {name: np.array(numbers) for name, numbers in found.items()}


def row_of(kind, shape, runs, seed):
    """Cells of the table for one shape; ratios, how far planned and measured are apart in standard errors, and kept."""
    options, kept = {**KINDS[kind], "shape": shape}, runs or KEPT
    runs = runs or RUNS[kind]
    planned = plan(**options, repetitions=runs, seed=seed)
    while max(planned.doubt[name] for name in TOLD) > SURE and 2 * runs <= MOST:
        runs *= 2
        planned = plan(**options, repetitions=runs, seed=seed)
    measured = measure(planned.setting, runs, np.random.default_rng([seed, 99]))
    told = {**planned.errors, **planned.widths}
    ratios = [told[name] / measured[name].mean() for name in TOLD]
    chance = [np.hypot(told[name] * planned.doubt[name], measured[name].std(ddof=1) / runs**0.5) for name in TOLD]
    apart = [abs(told[name] - measured[name].mean()) / (c + 1e-9 * told[name]) for name, c in zip(TOLD, chance)]
    goal = float(f"{planned.errors['l1']:.2g}")
    asked = {name: value for name, value in options.items() if name != "epsilon"}
    held, promise = None, ["none", "not promised"]
    with contextlib.suppress(InputError):  # not to be had at any ε: what is sampled stays a sample
        promised = plan(**asked, target=goal, seed=seed, repetitions=8)
        if promised.reached:
            for stream, times in ((98, kept), (97, 4 * kept)):
                found = measure(promised.setting, times, np.random.default_rng([seed, stream]))["l1"]
                held = float((found <= goal).mean())
                promise = [f"{promised.epsilon:g}", f"{100 * held:.0f} % of {times}"]
                if held >= PROMISED:
                    break
    row = [kind, shape, *(f"{ratio:.2f}" for ratio in ratios), f"{100 * max(planned.doubt[n] for n in TOLD):.1f} %",
           str(runs), f"{goal:g}", *promise]  # fmt: skip
    return row, ratios, apart, held


def report(found, seconds):
    """The section of the page: what the rows say together, and the rows."""
    ratios, apart = (np.array([numbers[i] for numbers in found]) for i in (1, 2))
    held = [100 * share for *_, share in found if share is not None]
    far = np.abs(ratios - 1) > 0.2
    header = ["kind", "shape", "ℓ1", "W1", "± distinct", "± total", "doubt", "releases", "target ℓ1", "ε found",
              "releases within"]  # fmt: skip
    which = ", ".join(f"{found[row][0][0]} {found[row][0][1]} {header[2 + name]}" for row, name in np.argwhere(far))
    beyond = f" (not {which}: at most {apart[far].max():.1f} common standard errors apart)" if which else ""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(row) + " |" for row, *_ in found]
    return (
        f"## Plans against what was measured\n\n{machine('numpy', 'scipy')}; {seconds:.0f} s. "
        f"Planned / measured: {ratios.min():.2f} to {ratios.max():.2f}, {far.size - far.sum()} of {far.size} figures "
        f"({100 * np.mean(~far):.1f} %) within 20 %{beyond}; all are at most {apart.max():.1f} common standard errors "
        f"apart. {len(held)} promised targets were met by {np.mean(held):.0f} % of the releases on average (least "
        f"{min(held):.0f} %).\n\n"
        "Planned and measured figures are of as many releases each as stand there, doubled until *doubt*, the largest "
        f"Monte-Carlo standard error that the plan states, is at most {100 * SURE:.0f} % (or there are {MOST:,} of "
        f"them); the measured mean has about the same. Promises are judged by {KEPT} other releases, or by four times "
        "as many new ones where fewer than four in five of these keep them. A target is "
        "the planned ℓ1; where collisions or sampling, not noise, make the error, no ε up to 20 promises it, and the "
        "plan says so (*not promised*).\n\n" + "\n".join(lines) + "\n"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, help="releases on either side, instead of the number for the kind")
    parser.add_argument("--kind", nargs="*", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    started, found = time.perf_counter(), []
    asked = [(kind, shape, options.runs, options.seed) for kind in options.kind for shape in SHAPES]
    quiet = partial(warnings.simplefilter, "ignore", UnnoiseWarning)  # of releases that are only simulated
    with ProcessPoolExecutor(options.processes, initializer=quiet) as pool:
        for row, *numbers in pool.map(row_of, *zip(*asked)):
            found.append((row, *numbers))
            print(" | ".join(row), " ".join(f"{x:.1f}" for x in numbers[1]), flush=True)
    text = report(found, time.perf_counter() - started)
    print(text)
    if options.write:
        write_section("plan", text)


if __name__ == "__main__":
    main()
