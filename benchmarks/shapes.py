"""Shapes outside the battery: heaped counts, wide bodies, small counts in few cells, few values, and shapes at random.

Errors are means over repetitions, as ratios to `paper` with its best p (ℓ1 and W1), to `likelihood` (ℓ1) and to
`isotonic` (W1). Shapes at random are mixtures of one to three of: Poisson, geometric, negative binomial, Zipf, capped
Zipf, normal, uniform somewhere, one spike; one in seven is heaped at multiples of 5; 500 to 10⁵ cells, ε = 0.05 to 2.5.
Ratios of small counts in few cells are near 1 and errors differ from draw to draw: 200 repetitions settle them. Every
shape at random has several draws of noise, so that means are compared there, too. Passwords are drawn from LinkedIn's
list (../shared/data) and left out where it is not at hand.

    python benchmarks/shapes.py [--runs N] [--small-runs N] [--shapes N] [--draws N] [--write]
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import math
import time

import numpy as np
from _battery import SHARED, drawn, errors, noised, seeded
from _report import machine, write_section

from unnoise.errors import ConvergenceError, InputError
from unnoise.estimators.auto import auto
from unnoise.estimators.isotonic import isotonic
from unnoise.estimators.likelihood import likelihood
from unnoise.estimators.paper import paper

METHODS = {
    "auto": auto,
    "likelihood": likelihood,
    "isotonic": isotonic,
    **{f"paper {p}": (lambda noisy, p=p: paper(noisy, norm=p)) for p in (1, 2, math.inf)},
}
WIDEST_FOR_PAPER = 2_000_000
"""`paper` transforms the whole range: beyond this it is left out."""

GROUPS = {
    "heaped counts": (("even", "fives", "tens", "heaped 5", "heaped 10", "heaped both", "weeks"), (5000, 200_000)),
    "small counts": (("Poisson 0.05", "Poisson 0.3", "Poisson 1", "binomial", "passwords"), (500, 5000)),
    "few values": (("equal 0", "equal 1", "equal 3", "equal 20", "two 0 1", "two 0 5", "two 1 2"), (500, 5000)),
}
PASSWORDS = SHARED / "linkedin_passwords.freqcount"
EPSILONS = {"heaped counts": (0.1, 0.5, 1), "small counts": (0.1, 0.5, 1, 2), "few values": (0.1, 0.5, 1)}


def geometric(mean: float, d: int, rng: np.random.Generator) -> np.ndarray:
    return rng.geometric(1 / (mean + 1), d) - 1


def heaped(counts: np.ndarray, share: float, to: int, rng: np.random.Generator) -> np.ndarray:
    """Round a share of the counts to multiples."""
    return np.where(rng.random(counts.size) < share, np.rint(counts / to).astype(np.int64) * to, counts)


def counts_of(name: str, d: int, rng: np.random.Generator) -> np.ndarray:
    """Counts of d cells."""
    match name.split():
        case ["even"]:
            return 2 * geometric(9, d, rng)
        case ["fives"]:
            return 5 * geometric(10, d, rng)
        case ["tens"]:
            return 10 * geometric(3, d, rng)
        case ["heaped", "both"]:
            return heaped(heaped(rng.negative_binomial(1.5, 0.04, d), 0.2, 5, rng), 0.3, 10, rng)
        case ["heaped", to]:
            return heaped(geometric(20, d, rng), 0.5, int(to), rng)
        case ["weeks"]:
            counts = geometric(30, d, rng)
            return np.where(rng.random(d) < 0.6, counts // 7 * 7, counts)
        case ["passwords"]:
            value, tally = np.loadtxt(PASSWORDS, dtype=np.int64).T
            return rng.choice(value, d, p=tally / tally.sum())
        case ["binomial"]:
            return rng.binomial(4, 0.3, d)
        case ["equal", value]:
            return np.full(d, int(value))
        case ["two", one, other]:
            return np.where(rng.random(d) < 0.6, int(one), int(other))
    return drawn(name, d, rng)


def part(rng: np.random.Generator, d: int) -> np.ndarray:
    """Counts of one component of a shape at random."""
    zipf = np.arange(1, 2001) ** -rng.uniform(1.3, 3)
    ranks = 1 + np.searchsorted(np.cumsum(zipf / zipf.sum()), rng.random(d))
    match rng.integers(8):
        case 0:
            return rng.poisson(10 ** rng.uniform(-1, 1.5), d)
        case 1:
            return geometric(10 ** rng.uniform(-0.5, 2), d, rng)
        case 2:
            return ranks
        case 3:
            return np.minimum(ranks, rng.integers(5, 60))
        case 4:
            return rng.integers(0, int(10 ** rng.uniform(0.5, 2.5)) + 1, d) + int(10 ** rng.uniform(0, 2) - 1)
        case 5:
            return np.full(d, int(10 ** rng.uniform(0, 2.3)))
        case 6:
            normal = rng.normal(10 ** rng.uniform(0.5, 2.3), 10 ** rng.uniform(0, 1.3), d)
            return np.maximum(np.rint(normal), 0).astype(np.int64)
    return rng.negative_binomial(rng.uniform(0.3, 4), rng.uniform(0.02, 0.5), d)


def at_random(number: int) -> tuple[np.ndarray, float]:
    """Counts and ε of one shape at random."""
    rng = seeded("at random", number)
    d, epsilon = int(10 ** rng.uniform(2.7, 5)), round(10 ** rng.uniform(-1.3, 0.4), 3)
    parts = np.array([part(rng, d) for _ in range(1 + rng.integers(3))])
    which = rng.choice(len(parts), d, p=rng.dirichlet(np.ones(len(parts))))
    counts = parts[which, np.arange(d)]
    return (heaped(counts, 0.4, 5, rng) if rng.random() < 1 / 7 else counts), epsilon


def odd() -> dict[str, tuple[np.ndarray, tuple[float, ...]]]:
    """Counts and ε of shapes that no part of the code was made for: giants, plateaus, combs, few items."""

    def some(*pairs: tuple[int, int]) -> np.ndarray:
        return np.repeat(*np.array(pairs).T)

    def rng(name: str) -> np.random.Generator:
        return seeded("odd", name)

    def rounded(values: np.ndarray) -> np.ndarray:
        return np.maximum(np.rint(values), 1).astype(np.int64)

    few, most, usual = (0.05, 1, 20), (0.1, 0.5, 1), (0.1, 1, 8)
    tiny = {f"geometric, {n} items": (rng(f"g{n}").geometric(0.3, n), (0.05, 1, 5)) for n in (2, 5, 20, 50)}
    tiny |= {f"log-normal, {n} items": (rounded(rng(f"l{n}").lognormal(2, 1.5, n)), usual) for n in (3, 10, 50)}
    return {
        **{f"{n} equal of {t:,}": (some((t, n)), usual) for n, t in ((3, 300), (10, 5000), (100, 5000), (2000, 5000))},
        "all 2": (some((2, 5000)), few), "one of 1": (some((1, 1)), few), "one of 50": (some((50, 1)), (0.3, 1, 5)),
        "one of 100,000": (some((100_000, 1)), (0.05, 1, 8)), "3 and 3,000": (some((3, 1), (3000, 1)), (0.3, 1, 8)),
        "1,000 ones, a giant": (some((1, 1000), (100_000, 1)), usual),
        "20 ones, a giant": (some((1, 20), (10_000, 1)), (0.3, 1, 8)),
        "50 each of 10, 100, 1,000": (some((10, 50), (100, 50), (1000, 50)), usual),
        "600 each of 1,000, 2,000, 4,000": (some((1000, 600), (2000, 600), (4000, 600)), usual),
        "500 of 1, 500 of 1,000": (some((1, 500), (1000, 500)), (0.05, 1, 8)),
        "20 each of 1, 2, 4, …, 8,192": (some(*((2**k, 20) for k in range(14))), usual),
        "comb: 5 every 7": (some(*((7 * k, 5) for k in range(1, 101))), (0.3, 1, 8)),
        "comb: 3 every 2 to 3,000": (some(*((2 * k, 3) for k in range(1, 1501))), (0.5, 2, 8)),
        "comb: 40 every 100 to 3,000": (some(*((100 * k, 40) for k in range(1, 31))), usual),
        "one each of 1 to 400": (np.arange(1, 401), (0.3, 1, 8)),
        "one each of 3,000 to 3,400": (np.arange(3000, 3401), (0.3, 1, 8)),
        "log-normal, median 20": (rounded(rng("20").lognormal(3, 2, 2000)), usual),
        "log-normal, median 400": (rounded(rng("400").lognormal(6, 1, 5000)), usual),
        "log-normal, median 1,100": (rounded(rng("1100").lognormal(7, 0.3, 3000)), usual),
        "U-shaped to 100": (1 + rounded(99 * rng("u").beta(0.3, 0.3, 3000)), most),
        "U-shaped to 3,000": (1 + rounded(2999 * rng("U").beta(0.3, 0.3, 3000)), usual),
        "uniform to 3,000": (rng("3").integers(1, 3001, 20_000), usual),
        "uniform to 10,000": (rng("10").integers(1, 10_001, 3000), usual),
        "Poisson 300": (rng("p").poisson(300, 1000), usual), "Poisson 3,000": (rng("P").poisson(3000, 1000), usual),
        "10⁶ / rank": (10**6 // np.arange(1, 3001), usual), **tiny,
    }  # fmt: skip


def measured(counts: np.ndarray, epsilon: float, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """ℓ1 and W1 of every method, and seconds of `auto`."""
    values, tally = np.unique(counts, return_counts=True)
    noisy = noised(values, tally, epsilon, rng)
    found = {}
    for name, method in METHODS.items():
        if name.startswith("paper") and noisy.values[-1] > WIDEST_FOR_PAPER:
            continue
        begin = time.process_time()
        try:
            fit = method(noisy)
        except (ConvergenceError, InputError):
            continue
        error = errors(values, tally / tally.sum(), fit.support, fit.mass)
        found[name] = np.array([error[0], error[3], time.process_time() - begin])
    return found


def mean(runs: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Means by method, and `paper` with its best p for either error."""
    table = {name: np.mean([run[name] for run in runs if name in run], axis=0) for name in runs[0]}
    papers = [table[name] for name in table if name.startswith("paper")]
    table["paper"] = np.min(papers, axis=0) if papers else np.full(3, np.nan)
    return table


def row(name: str, table: dict[str, np.ndarray]) -> str:
    ours = table["auto"]
    ratios = [ours[0] / table["paper"][0], ours[1] / table["paper"][1]]
    ratios += [ours[0] / table["likelihood"][0], ours[1] / table["isotonic"][1]]
    shown = " | ".join(f"{r:.2f}" if np.isfinite(r) else "–" for r in ratios)
    return f"| {name} | {ours[0]:.4f} | {ours[1]:.4f} | {shown} | {ours[2]:.2f} |"


HEAD = ["| case | ℓ1 | W1 | ℓ1 / paper | W1 / paper | ℓ1 / likelihood | W1 / isotonic | s |", "|---|" + "--:|" * 7]


def wide(runs: int) -> list[str]:
    """Counts spread evenly over a long range."""
    lines = []
    for top, d, epsilon in ((10_000, 1_000_000, 0.1), (10_000, 1_000_000, 1), (30_000, 300_000, 0.5)):
        made = []
        for k in range(runs):
            rng = seeded("wide", top, epsilon, k)
            made.append(measured(rng.integers(0, top + 1, d), epsilon, rng))
        lines.append(row(f"uniform 0..{top:,}, {d:,}, ε={epsilon:g}", mean(made)))
    return lines


def random_shapes(number: int, draws: int) -> list[str]:
    """Geometric means and quantiles of the ratios of mean errors over shapes at random."""
    ratios = []
    for k in range(number):
        counts, epsilon = at_random(k)
        table = mean([measured(counts, epsilon, seeded("noise", k, draw)) for draw in range(draws)])
        ratios.append([table["auto"][i] / np.maximum(table[other][i], 1e-9) for i in (0, 1) for other in OTHERS])
    names = [f"{metric} / {other}" for metric in ("ℓ1", "W1") for other in OTHERS]
    lines = ["| ratio | geometric mean | median | 95 % | worst |", "|---|--:|--:|--:|--:|"]
    for name, column in zip(names, np.array(ratios).T):
        column = np.maximum(column[np.isfinite(column)], 1e-3)
        figures = (np.exp(np.log(column).mean()), *np.quantile(column, [0.5, 0.95]), column.max())
        lines.append(f"| {name} | " + " | ".join(f"{x:.2f}" for x in figures) + " |")
    return lines


OTHERS = ("paper", "likelihood", "isotonic")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20, help="repetitions of a case")
    parser.add_argument("--small-runs", type=int, default=200, help="repetitions of small counts")
    parser.add_argument("--shapes", type=int, default=300, help="shapes at random")
    parser.add_argument("--draws", type=int, default=3, help="draws of noise for each of them")
    parser.add_argument("--write", action="store_true", help="put the result into docs/benchmarks.md")
    options = parser.parse_args()
    few, fewest = max(2, options.runs // 5), max(1, options.runs // 10)
    runs = (
        f"{options.runs} repetitions ({options.small_runs} of small counts, {few} where d = 200,000, {fewest} for wide "
        f"bodies, {options.draws} for each shape at random)"
    )
    lines = ["## Shapes outside the battery", "", f"Means over {runs}. {machine('numpy', 'scipy')}.", ""]
    for group, (names, sizes) in GROUPS.items():
        lines += [f"### {group.capitalize()}", "", *HEAD]
        usual = options.small_runs if group == "small counts" else options.runs
        for name in names if PASSWORDS.exists() else [name for name in names if name != "passwords"]:
            for d in sizes:
                for epsilon in EPSILONS[group]:
                    made = []
                    for k in range(usual if d <= 5000 else few):
                        rng = seeded(name, d, epsilon, k)
                        made.append(measured(counts_of(name, d, rng), epsilon, rng))
                    lines.append(row(f"{name}, {d:,}, ε={epsilon:g}", mean(made)))
        lines.append("")
    lines += ["### Wide bodies", "", *HEAD, *wide(fewest), ""]
    lines += [f"### {options.shapes} shapes at random", "", *random_shapes(options.shapes, options.draws)]
    text = "\n".join(lines)
    print(text)
    if options.write:
        write_section("shapes", text)


if __name__ == "__main__":
    main()
