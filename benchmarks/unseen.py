"""How often the intervals of `un.unseen` hold, on populations that are known.

A sample of n occurrences of a population, its private profile (`un.direct` at ε), and what `un.unseen` says of the
population: how often the 95 % interval holds (of the support: its lower end) and the mean of value / truth. New items
are compared with those of n further draws. Populations: 1,000 equal items; Zipf 1 on 5,000; 2,000 with weights drawn
from a Dirichlet law of 0.5.

    python benchmarks/unseen.py [--runs N] [--write]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from _battery import seeded
from _report import machine, write_section

import unnoise as un

SIZES = (300, 3000, 30_000)
EPSILONS = (0.1, 1, 10)
NAMES = ("support", "entropy", "coverage", "new_items")


def populations() -> dict[str, np.ndarray]:
    zipf = 1 / np.arange(1, 5001)
    return {
        "1,000 equal": np.full(1000, 1 / 1000), "Zipf 1, 5,000": zipf / zipf.sum(),
        "Dirichlet 0.5, 2,000": seeded("unseen").dirichlet(np.full(2000, 0.5)),
    }  # fmt: skip


def one(law: np.ndarray, size: int, epsilon: float, rng: np.random.Generator) -> np.ndarray:
    """Whether each interval holds, and value / truth."""
    counts, further = rng.multinomial(size, law), rng.multinomial(size, law)
    seen = counts > 0
    truths = (law.size, -float(law @ np.log(law)), law[seen].sum(), (further[~seen] > 0).sum())
    found = un.unseen(un.direct(np.arange(law.size), counts=counts, epsilon=epsilon), repetitions=60)
    answers = [getattr(found, name) for name in NAMES]
    held = [answer.low - 1e-9 <= truth <= answer.high + 1e-9 for answer, truth in zip(answers, truths)]
    return np.array([held, [a.value / t if t > 0 else np.nan for a, t in zip(answers, truths)]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--write", action="store_true", help="put the table into docs/benchmarks.md")
    options = parser.parse_args()
    head = ["## The population behind a profile", "", machine("numpy", "scipy"), ""]
    text = f"Each row {options.runs} runs: intervals of 95 % that hold, and in brackets the mean of value / truth."
    columns = "| population | n | ε | support (at least) | entropy | coverage | new items |"
    lines = [*head, text, "", columns, "|---" * 7 + "|"]
    for name, law in populations().items():
        for size in SIZES:
            for epsilon in EPSILONS:
                rng = seeded(name, size, epsilon)
                held, ratio = np.nanmean([one(law, size, epsilon, rng) for _ in range(options.runs)], axis=0)
                shown = " | ".join(f"{100 * h:.0f} % ({r:.2f})" for h, r in zip(held, ratio)).replace("nan", "–")
                lines.append(f"| {name} | {size:,} | {epsilon:g} | {shown} |")
                print(lines[-1], flush=True)
    if options.write:
        write_section("unseen", "\n".join(lines))


if __name__ == "__main__":
    main()
