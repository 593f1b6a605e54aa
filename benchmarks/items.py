"""Open domains: distinct items and item profile beneath hashed cells, without and with levels; rough profiles.

Run ``python benchmarks/items.py [--quick] [--write] [--only single,levels,choice,rough]``. *rough* has a section of its
own: multiples of a number, heaped counts, many single counts.

Items are thrown into cells count by count (multinomial where many items share a count, else one by one), which has
the law of hashing them; tests/test_items.py compares it with real hashing.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from _report import machine, write_section

from unnoise.answers.items import ItemProfile, item_profile
from unnoise.errors import OverloadError
from unnoise.estimators.collisions import level_shares
from unnoise.layout import Layout
from unnoise.noise import DiscreteLaplace
from unnoise.noisy import NoisyCounts, NoisyProfile

PRICES = np.array([5, 9, 10, 19, 25, 29, 49, 50, 75, 99, 121, 149, 199, 249, 299, 499, 999])

LIMIT = 1000
"""Counts up to this are drawn by their numbers, larger ones one by one."""


def zipf_numbers(items: int, exponent: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return counts and how many of ``items`` items have each, P(count = t) ∝ t^(−exponent)."""
    from scipy.special import zeta

    share = np.arange(1, LIMIT + 1) ** -exponent / zeta(exponent)
    numbers = rng.multinomial(items, np.append(share, max(0.0, 1 - share.sum())))
    # beyond LIMIT: the continuous Pareto law, rounded down, is within 1/LIMIT of the discrete one
    tail = np.minimum((LIMIT + 0.5) * rng.random(numbers[-1]) ** (-1 / (exponent - 1)), 1e12)
    counts, how_many = np.unique(np.rint(tail).astype(np.int64), return_counts=True)
    return np.concatenate([np.arange(1, LIMIT + 1), counts]), np.concatenate([numbers[:-1], how_many])


def throw(counts: np.ndarray, numbers: np.ndarray, cells: int, rng: np.random.Generator) -> np.ndarray:
    """Throw items into cells and add up their counts."""
    totals = np.zeros(cells, dtype=np.int64)
    many = numbers > 10 * cells
    for count, number in zip(counts[many], numbers[many]):
        totals += count * rng.multinomial(number, np.full(cells, 1 / cells))
    few = np.repeat(counts[~many], numbers[~many])
    np.add.at(totals, rng.integers(0, cells, few.size), few)
    return totals


def sketch(
    counts: np.ndarray, numbers: np.ndarray, layout: Layout, noise: DiscreteLaplace, rng: np.random.Generator
) -> NoisyProfile:
    """Return the noisy profile of a hashed sketch that holds ``numbers`` items of each of ``counts``."""
    size = layout.cells // layout.levels
    left, totals = numbers.copy(), []
    shares = level_shares(layout.levels)
    for level in range(layout.levels):
        rest = shares[level:].sum()
        here = rng.binomial(left, min(1.0, shares[level] / rest))
        totals.append(throw(counts, here, size, rng))
        left = left - here
    a = noise.a
    drawn = np.concatenate(totals)
    for _ in range(int(noise.power)):
        drawn += rng.geometric(1 - a, drawn.size) - rng.geometric(1 - a, drawn.size)
    return NoisyCounts(drawn, noise, layout).profile()


def errors(profile: ItemProfile, counts: np.ndarray, numbers: np.ndarray) -> dict[str, float]:
    """Compare a profile with the truth: relative errors, ℓ1, and whether intervals cover."""
    truth = {k: numbers[counts >= k].sum() for k in (1, 2, 3, 5, 10, 300)}
    items = numbers.sum()
    support = np.union1d(counts, profile.support)
    gap = np.zeros(support.size)
    gap[np.searchsorted(support, counts)] -= numbers
    gap[np.searchsorted(support, profile.support)] += profile.mass * profile.items
    row = {"l1": np.abs(gap).sum() / max(items, 1), "stderr": profile.distinct.stderr / max(items, 1)}
    for k, true in truth.items():
        answer = profile.at_least(k)
        row[f"error{k}"] = (answer.value - true) / max(true, 1)
        row[f"cover{k}"] = float(true in answer)
    for t in (1, 2, 5, 20):
        true = numbers[counts == t].sum()
        row[f"entry{t}"] = float(true in profile.exactly(t))
    row["total"] = float(int(counts @ numbers) in profile.total)
    return row


def runs(items: int, cells: int, levels: int, epsilon: float, times: int, seed: int, exponent: float = 1.8) -> dict:
    """Repeat; return RMSE, means and coverage over the runs, and how many were refused."""
    rng = np.random.default_rng([seed, items, cells, levels])
    layout = Layout(kind="hashed", cells=cells, levels=levels, hash_seed=0)
    rows, refused, seconds = [], 0, 0.0
    for _ in range(times):
        counts, numbers = zipf_numbers(items, exponent, rng)
        noisy = sketch(counts, numbers, layout, DiscreteLaplace(epsilon), rng)
        start = time.process_time()
        try:
            profile = item_profile(noisy)
        except OverloadError:
            refused += 1
            continue
        seconds += time.process_time() - start
        rows.append(errors(profile, counts, numbers))
    answered = len(rows)
    if not answered:
        return {"refused": refused, "answered": 0}
    column = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    rmse = {k: float(np.sqrt(np.mean(column[f"error{k}"] ** 2))) for k in (1, 2, 3, 5, 10, 300)}
    covered = [column[name].mean() for name in column if name.startswith(("cover", "entry", "total"))]
    return {
        "answered": answered, "refused": refused, "seconds": seconds / answered, "l1": column["l1"].mean(),
        "l1max": column["l1"].max(), "stderr": column["stderr"].mean(), "rmse": rmse,
        "worst": max(rmse[k] for k in (2, 3, 5, 10)),
        "cover": float(np.mean(covered)), "cover_distinct": column["cover1"].mean(),
    }


def line(items: int, result: dict, name: str) -> str:
    if not result["answered"]:
        return f"| {name} | {items:,} | refused {result['refused']} of {result['refused']} | | | | | |"
    relative = f"{100 * result['rmse'][1]:.3f} % | {100 * result['worst']:.2f} %"
    shares = f"{relative} | {result['l1']:.4f} | {result['l1max']:.3f}"
    errors = shares if items else "– | – | – | –"  # no item, so no share of them
    return (
        f"| {name} | {items:,} | {errors} | {100 * result['cover_distinct']:.0f} % / {100 * result['cover']:.1f} % "
        f"| {result['seconds']:.1f} s |"
    )


HEAD = (
    "| cells | items | distinct, rel. RMSE | worst at_least(2, 3, 5, 10) | mean ℓ1 | max ℓ1 "
    "| coverage distinct / all | processor time |\n"
    "|---|---|---|---|---|---|---|---|"
)


def single(quick: bool, times: int) -> list[str]:
    bits = 16 if quick else 20
    loads = [0.05, 0.25, 10**6 / 2**20, 2, 3, 4, 6, 10]
    lines = [f"Without levels, 2^{bits} cells, ε = 1, Zipf 1.8, {times} runs each (load 0.954: the target).", "", HEAD]
    for load in loads:
        items = round(load * 2**bits)
        lines.append(line(items, runs(items, 2**bits, 1, 1.0, times, 1), f"2^{bits}, load {load:.3g}"))
        print(lines[-1], flush=True)
    return lines


def levels(quick: bool, times: int) -> list[str]:
    bits = 16 if quick else 20
    sizes = [0, 10**3, 10**4, 10**5, 10**6] + ([] if quick else [10**7, 10**8])
    lines = [f"16 levels, 2^{bits} cells in total, ε = 1, Zipf 1.8, {times} runs each.", "", HEAD]
    for items in sizes:
        lines.append(line(items, runs(items, 2**bits, 16, 1.0, times, 2), f"2^{bits}"))
        print(lines[-1], flush=True)
    return lines


def choice(quick: bool, times: int) -> list[str]:
    bits = 16 if quick else 20
    sizes = [10**3, 10**4, 10**5, 10**6, 10**7] if quick else [10**4, 10**5, 10**6, 10**7, 10**8]
    numbers = [1, 4, 8, 16]
    lines = [
        f"Relative standard error of distinct by the number of levels, 2^{bits} cells in total, ε = 1 (mean of {times} "
        "runs; the stated error, which the tables above check against the truth).", "",
        "| items | " + " | ".join(f"{n} levels" for n in numbers) + " |", "|---" * (len(numbers) + 1) + "|",
    ]
    for items in sizes:
        results = [runs(items, 2**bits, n, 1.0, times, 3) for n in numbers]
        shown = [f"{100 * r['stderr']:.2f} %" if r["answered"] else "refused" for r in results]
        lines.append(f"| {items:,} | " + " | ".join(shown) + " |")
        print(lines[-1], flush=True)
    return lines


def single_counts(number: int, top: int, items: int) -> np.ndarray:
    """Counts of items that have one of ``number`` counts below ``top``, the same in every run."""
    rng = np.random.default_rng([number, top])
    places = rng.choice(np.arange(1, top), number, replace=False)
    return rng.choice(places, items, p=rng.dirichlet(np.ones(number)))


def heaped(mean: int, share: float, to: int, items: int) -> np.ndarray:
    """Geometric counts, a share of them rounded to multiples."""
    rng = np.random.default_rng([mean, to])
    counts = rng.geometric(1 / mean, items)
    return np.where(rng.random(items) < share, np.maximum(np.rint(counts / to).astype(np.int64) * to, 1), counts)


def rough_shapes(items: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    return {
        "geometric, mean 10": rng.geometric(0.1, items), "2 × Zipf 1.8": 2 * np.minimum(rng.zipf(1.8, items), 500),
        "2 × geometric, mean 10": 2 * rng.geometric(0.1, items), "7 × geometric, mean 3": 7 * rng.geometric(0.3, items),
        "10 × geometric, mean 20": 10 * rng.geometric(0.05, items),
        "100 × geometric, mean 3": 100 * rng.geometric(0.3, items),
        "half heaped at fives": heaped(20, 0.5, 5, items), "20 counts below 100": single_counts(20, 100, items),
        "40 counts below 400": single_counts(40, 400, items), "40 counts below 2,000": single_counts(40, 2000, items),
        "100 counts below 300": single_counts(100, 300, items),
        "reports of a day, at most 288": 288 - rng.binomial(288, np.where(rng.random(items) < 0.8, 0.01, 0.5)),
        "17 price points": rng.choice(PRICES, items, p=PRICES**-0.7 / (PRICES**-0.7).sum()),
        "900 to 1,100, evenly": rng.integers(900, 1101, items),
        "normal, 1,000 ± 40": np.rint(rng.normal(1000, 40, items)).astype(np.int64),
    }


def rough(quick: bool, times: int) -> list[str]:
    """Profiles that are smooth in no sense."""
    bits = 14 if quick else 17
    items = round(0.75 * 2**bits)
    layout = Layout(kind="hashed", cells=2**bits, hash_seed=0)
    lines = [
        f"{items:,} items in 2^{bits} cells, {times} runs each.", "",
        "| items' counts | ε | noises | distinct, rel. RMSE | bias | interval holds | ℓ1 | W1 | processor time |",
        "|---" * 9 + "|",
    ]
    for name, counts in rough_shapes(items).items():
        value, numbers = np.unique(counts, return_counts=True)
        for epsilon, power in ((0.5, 1), (1, 1), (3, 1), (1, 3)):
            rng, rows = np.random.default_rng([11, power, round(10 * epsilon)]), []
            for _ in range(times):
                noisy = sketch(value, numbers, layout, DiscreteLaplace(epsilon, power), rng)
                begin = time.process_time()
                profile = item_profile(noisy)
                seconds = time.process_time() - begin
                found = errors(profile, value, numbers)
                at = np.union1d(value, profile.support)
                gap = np.zeros(at.size)
                gap[np.searchsorted(at, value)] -= numbers
                gap[np.searchsorted(at, profile.support)] += profile.mass * profile.items
                above = np.abs(np.cumsum(gap[::-1])[::-1])
                moved = float(above @ np.diff(at, prepend=0)) / items
                rows.append([found["error1"], found["cover1"], found["l1"], moved, seconds])
            error, held, l1, w1, seconds = np.array(rows).T
            rmse = 100 * np.sqrt(np.mean(error**2))
            lines.append(
                f"| {name} | {epsilon:g} | {power} | {rmse:.2f} % | {100 * error.mean():+.2f} % "
                f"| {100 * held.mean():.0f} % | {l1.mean():.3f} | {w1.mean():.3f} | {seconds.mean():.2f} s |"
            )
            print(lines[-1], flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only", default="single,levels,choice,rough")
    parser.add_argument("--runs", type=int, default=None)
    options = parser.parse_args()
    times = options.runs or (5 if options.quick else 20)
    wanted = options.only.split(",")
    parts = {"single": (single, 1), "levels": (levels, 1), "choice": (choice, 0.1), "rough": (rough, 0.5)}
    sections: dict[str, list[str]] = {"items": ["## Open domains"], "rough": ["## Open domains: rough profiles"]}
    for name, (function, scale) in parts.items():
        if name in wanted:
            lines = ["", *function(options.quick, max(2, round(times * scale)))]
            sections["rough" if name == "rough" else "items"] += lines
    for name, lines in sections.items():
        if len(lines) > 1:
            text = "\n".join([lines[0], "", machine("numpy", "scipy"), *lines[1:], ""])
            print(text)
            if options.write:
                write_section(name, text)


if __name__ == "__main__":
    main()
