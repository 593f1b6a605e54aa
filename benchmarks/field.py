"""Every system of the field on the same data, at the same ε for the same unit (one occurrence): errors, cost, trust.

Errors are over the items that occur: ℓ1 = Σ|N̂_t − N_t| / D, ℓ2, ℓ∞ likewise, W1 = Σ|Ŝ(t) − S(t)| / D (the error of the
sorted counts per item), with N_t items of count t, S(t) those of count ≥ t, and D all of them. Data: the battery at 10⁴
items, the bundled flights, and ../shared/data where present and of at most 10⁶ items. Sketches: one cell per item of
the known domain, and a hashed sketch of the next power of two above the number of items; both put noise on before the
first item, so they need no trusted holder. What takes a bound on counts, `direct` among them, gets ten times the
largest, at least 100; the number of items (hay, karwa) or their sum (suresh, manurangsi) come from the data, as if
public, which `direct` is not told. Two streaming algorithms without privacy have the memory of the hashed sketch.

`--falling` sets `direct` beside noise on S(t) with plain isotonic regression instead: on the battery, on odd shapes and
on shapes at random (benchmarks/shapes.py; of the last every third at four times its ε, every fifth with a fiftieth of
its cells). Both see the same noise on single counts, so a ratio is known to a few hundredths after a hundred runs; its
standard error is shown. Where both errors are below 10⁻³ of an item, a ratio says nothing and is left out.

`--equal` prints the least ℓ1 that anybody could have for n equal giants of which every box is counted with (1 − a)·ε in
its row and a·ε in its column, if told all but their count: the likeliest one is theirs or not (`direct` has a = 0); the
same beside isotonic regression for n = 1/ε²; and for groups of equal items, told all but the count of one at a time,
from this release and from columns alone.

Targets: `direct` best or within 5 % of the best central mechanism in every row (ℓ1 and W1); a sketch best among those
that need no trusted holder.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from scipy.optimize import isotonic_regression

sys.path.insert(0, str(Path(__file__).parent))
from _battery import SYNTHETIC, drawn, real, seeded
from _report import IMAGES, machine, write_section
from shapes import at_random, odd

from unnoise import Sketch, discrete_laplace, reconstruct
from unnoise.answers.direct import direct_profile
from unnoise.baselines import BASELINES, bucketed_profile, min_wise_sample
from unnoise.baselines.mechanisms import from_curve, public_bound
from unnoise.curve import STEEP, exact_numbers
from unnoise.errors import UnnoiseError
from unnoise.estimators.falling import falling
from unnoise.holding import Exactly, Unit, release
from unnoise.noisy import NoisyProfile

TRUST = {
    "central": "a holder of all rows", "pan-private": "a process, not its memory", "local noise": "nobody but the site",
    "no privacy": "everybody",
}
OURS = {
    "direct": "central", "sketch, known domain": "pan-private", "sketch, hashed": "pan-private",
}
STREAMS = {"min-wise sample": min_wise_sample, "bucketed sample": bucketed_profile}
"""Datar & Muthukrishnan 2002; Chen, Indyk & Woodruff 2024: no privacy, in the memory of the hashed sketch."""
LEAST = 1e-4
"""Errors below are drawn as this: some are 0."""
MOST = 10**6
LAST = 254
"""Count above which the samples tell counts apart no more (they are taken as the next one)."""
FEWEST, PATIENCE = 4, 30.0
"""Least runs of a row beside isotonic regression, and seconds after which it has no more."""
HARDLY = 1e-3
"""Errors of fewer items than this in all are none."""
WORST = 1.05
"""Largest ratio to isotonic regression that is aimed at."""
CHEAP = 15
"""So many times as many runs for what takes less than a second in all."""
SLOW = {"lp": 300, "blocki": 3000}
"""Largest count with which a mechanism that looks at every one is run."""

Found = tuple[np.ndarray, np.ndarray]
Result = tuple[np.ndarray, float, float, int]
"""Mean errors, seconds, peak memory in MB, runs."""


def truth_of(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.unique(counts[counts > 0], return_counts=True)


def run_ours(name: str, counts: np.ndarray, epsilon: float) -> Found:
    if name == "direct":
        return falling(release({"": Exactly(*truth_of(counts))}, Unit(), epsilon, top=public_bound(counts))[""])
    if name == "sketch, known domain":
        noisy = counts + discrete_laplace(counts.size, epsilon)
        profile = reconstruct(NoisyProfile.from_counts(noisy, epsilon=epsilon))
    else:
        sketch = Sketch.hashed(cells_for(counts), epsilon=epsilon)
        sketch.update(np.arange(counts.size), counts)
        profile = reconstruct(sketch.release())
    some = profile.support > 0
    return profile.support[some], (profile.mass * profile.items)[some]


def run_stream(name: str, counts: np.ndarray) -> Found:
    memory, rng = 8 * cells_for(counts), np.random.default_rng()
    found = STREAMS[name](counts, memory // 16 if name == "min-wise sample" else memory, rng, LAST)
    at = np.flatnonzero(found.items > 0)
    return at, found.items[at]


def cells_for(counts: np.ndarray) -> int:
    """Cells of the hashed sketch."""
    return 1 << max(10, int(np.ceil(np.log2(counts.size))))


def run(name: str, counts: np.ndarray, epsilon: float) -> Found:
    if name in OURS:
        return run_ours(name, counts, epsilon)
    if name in STREAMS:
        return run_stream(name, counts)
    released = BASELINES[name](counts, epsilon)
    return released.support, released.items


def errors(found: Found, counts: np.ndarray) -> np.ndarray:
    values, items = truth_of(counts)
    at = np.union1d(values, found[0])
    off = np.zeros(at.size)
    off[np.searchsorted(at, found[0])] += found[1]
    off[np.searchsorted(at, values)] -= items
    reached = np.cumsum(off[::-1])[::-1]
    earth = float(np.abs(reached) @ np.diff(at, prepend=0).astype(float))
    return np.array([np.abs(off).sum(), np.sqrt(off @ off), np.abs(off).max(initial=0), earth]) / items.sum()


def cases(size: int) -> dict[str, np.ndarray]:
    rng = seeded("field", size)
    found = {f"{name}, {size:,}": drawn(name, size, rng) for name in SYNTHETIC}
    for name, (values, tally) in real().items():
        found[name] = np.repeat(values, tally) if tally.sum() <= MOST else np.zeros(0, dtype=np.int64)
    return {name: counts for name, counts in found.items() if counts.size}


def measured(name: str, counts: np.ndarray, epsilon: float, runs: int) -> Result | None:
    if int(counts.max()) > SLOW.get(name, counts.max()):
        return None
    rows, seconds, before = [], [], highest()
    try:
        while len(rows) < runs or (len(rows) < CHEAP * runs and sum(seconds) < 1):
            begin = time.perf_counter()
            rows.append(errors(run(name, counts, epsilon), counts))
            seconds.append(time.perf_counter() - begin)
    except UnnoiseError:
        return None
    return np.mean(rows, axis=0), float(np.median(seconds)), highest() - before, len(rows)


class Kept:
    """Results in a file, one a line, so that the benchmark can be stopped and resumed."""

    def __init__(self, file: Path | None, minutes: float) -> None:
        self.file, self.end = file, time.monotonic() + 60 * minutes
        lines = file.read_text().splitlines() if file is not None and file.exists() else []
        self.rows = {tuple(key): row for key, row in map(json.loads, lines)}

    def found(self, case: str, name: str, counts: np.ndarray, epsilon: float, runs: int) -> Result | None:
        key = (case, name, epsilon)
        if key not in self.rows:
            if time.monotonic() > self.end:
                raise SystemExit("stopped: run again to go on")
            found = measured(name, counts, epsilon, runs)
            self.rows[key] = None if found is None else [found[0].tolist(), *found[1:]]
            if self.file is not None:
                with self.file.open("a") as out:
                    out.write(json.dumps([key, self.rows[key]]) + "\n")
        row = self.rows[key]
        return None if row is None else (np.array(row[0]), *row[1:])


def highest() -> float:
    """Peak memory of this process in MB: a column shows by how much a system raised it."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def models() -> dict[str, str]:
    return {**OURS, **{n: m.model for n, m in BASELINES.items()}, **dict.fromkeys(STREAMS, "no privacy")}


def table(case: str, epsilon: float, results: dict[str, Result]) -> list[str]:
    head = "| system | model | who is trusted | ℓ1 | ℓ2 | ℓ∞ | W1 | seconds | peak memory raised by MB | runs |"
    lines = [f"**{case}, ε = {epsilon:g}**", "", head, "|---" * 10 + "|"]
    of = models()
    order = sorted(results, key=lambda name: (list(TRUST).index(of[name]), results[name][0][0]))
    for name in order:
        error, seconds, peak, runs = results[name]
        numbers = " | ".join(f"{x:.4g}" for x in error)
        shown = f"**{name}**" if name in OURS else name
        lines.append(f"| {shown} | {of[name]} | {TRUST[of[name]]} | {numbers} | {seconds:.2f} | {peak:.0f} | {runs} |")
    return [*lines, ""]


def verdict(all_results: dict[tuple[str, float], dict[str, Result]]) -> list[str]:
    """How often the targets hold, and where they do not."""
    of, lines = models(), []
    for index, metric in ((0, "ℓ1"), (3, "W1")):
        behind, beaten = [], []
        for (case, epsilon), results in all_results.items():
            best = min(r[0][index] for name, r in results.items() if of[name] == "central")
            if results["direct"][0][index] > 1.05 * best:
                behind.append(f"{case} at {epsilon:g} ({results['direct'][0][index] / best:.2f})")
            free = {name: r[0][index] for name, r in results.items() if of[name] in ("pan-private", "local noise")}
            if min(free, key=free.__getitem__) not in OURS:
                beaten.append(f"{case} at {epsilon:g} ({min(free, key=free.__getitem__)})")
        rows = len(all_results)
        lines.append(
            f"- {metric}: `direct` best or within 5 % of the best central mechanism in {rows - len(behind)} of {rows}"
            + (f"; behind on {', '.join(behind)}" if behind else "")
            + f". A sketch best without a trusted holder in {rows - len(beaten)} of {rows}"
            + (f"; not on {', '.join(beaten)}" if beaten else "") + "."
        )
    return lines


def picture(all_results: dict[tuple[str, float], dict[str, Result]]) -> None:
    """Error against trust: geometric mean over the rows that all of a column ran."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    of = models()
    private = [n for n in of if of[n] != "no privacy"]
    names = [n for n in private if sum(n in r for r in all_results.values()) >= 0.7 * len(all_results)]
    figure, axes = pyplot.subplots(1, 2, figsize=(10.5, 4.6), layout="constrained", sharex=True)
    for axis, (index, metric) in zip(axes, ((0, "ℓ1 error"), (3, "W1 error"))):
        axis.set_yscale("log")
        means = {n: float(np.mean([np.log(max(r[n][0][index], LEAST)) for r in all_results.values() if n in r]))
                 for n in names}  # fmt: skip
        gap = (max(means.values()) - min(means.values())) / 26
        for model in list(TRUST)[:3]:
            column = sorted((n for n in names if of[n] == model), key=means.__getitem__)
            text = -math.inf
            for name in column:
                ours, x, text = name in OURS, list(TRUST).index(model), max(means[name], text + gap)
                colour = "#0b7a75" if ours else "#8a8f98"
                axis.plot(x, math.exp(means[name]), "D" if ours else "o", color=colour, markersize=8 if ours else 6)
                axis.plot([x, x + 0.11, x + 0.14], np.exp([means[name], text, text]), color="#b9bec6", lw=0.7, zorder=1)
                axis.annotate(name, (x + 0.16, math.exp(text)), va="center", fontsize=9,
                              color="#0b7a75" if ours else "#333", fontweight="bold" if ours else "normal")
        axis.set_xlim(-0.3, 2.8)
        who = ("a holder\nof all rows", "a process,\nnot its memory", "nobody\nbut the site")
        axis.set_xticks(range(3), [f"{m}: trusts\n{w}" for m, w in zip(TRUST, who)], fontsize=9)
        axis.set_title(f"{metric}, geometric mean over {len(all_results)} rows", loc="left", fontsize=10)
        axis.grid(True, axis="y", color="#e5e7eb")
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
    IMAGES.mkdir(exist_ok=True)
    figure.savefig(IMAGES / "field.png", dpi=130)
    pyplot.close(figure)


def beside(counts: np.ndarray, epsilon: float) -> np.ndarray:
    """ℓ1 and W1 of `direct`, and of isotonic regression of every S(t) up to the public bound and nothing else."""
    values, items = truth_of(counts)
    top = public_bound(counts)
    curve = release({"": Exactly(values, items)}, Unit(), epsilon, top=top)[""]
    noise, single = discrete_laplace(top, epsilon).astype(float), min(int((curve.width == 1).sum()), top)
    exact = exact_numbers(values, items, curve.first, curve.last, "at_least", top)[0]
    noise[:single] = (curve.numbers - exact)[:single]
    reached = np.cumsum(np.bincount(counts, minlength=top + 1)[::-1])[::-1][1:]
    plain = from_curve(np.clip(isotonic_regression(reached + noise, increasing=False).x, 0, None))
    return np.array([errors(found, counts)[[0, 3]] for found in (falling(curve), (plain.support, plain.items))])


def ratios(counts: np.ndarray, epsilon: float, runs: int) -> tuple[np.ndarray, np.ndarray]:
    """Ratios of the mean errors, and their standard errors; NaN where there is hardly an error."""
    found, end = [], time.monotonic() + PATIENCE
    while len(found) < FEWEST or (len(found) < runs and time.monotonic() < end):
        found.append(beside(counts, epsilon))
    rows = np.array(found)
    mine, theirs = rows.mean(axis=0)
    hardly = np.maximum(mine, theirs) * (counts > 0).sum() < HARDLY
    theirs = np.where(hardly, np.nan, np.maximum(theirs, 1e-12))
    return mine / theirs, (rows[:, 0] - mine / theirs * rows[:, 1]).std(axis=0) / theirs / math.sqrt(len(rows))


def held_out(number: int) -> tuple[np.ndarray, float]:
    """Counts and ε of a shape at random."""
    counts, epsilon = at_random(number)
    counts = counts[: max(20, counts.size // 50)] if number % 5 == 4 else counts
    return counts, epsilon * (4 if number % 3 == 2 else 1)


class Beside:
    """A table of ratios, and which of them are above the target by two standard errors."""

    def __init__(self, title: str, runs: int) -> None:
        taken = f"{FEWEST} to {runs}" if runs > FEWEST else f"{runs}"
        self.lines, self.found = [f"| {title}, {taken} runs each | ε | ℓ1 | W1 |", "|---|---|---|---|"], []
        self.behind, self.runs = [], runs

    def add(self, case: str, counts: np.ndarray, epsilon: float, *, shown: bool = True) -> None:
        ratio, doubt = ratios(counts, epsilon, self.runs)
        both = [f"{r:.2f} ± {d:.2f}".replace("nan ± nan", "–") for r, d in zip(ratio, doubt)]
        line = f"| {case} | {epsilon:g} | {' | '.join(both)} |"
        print(line, flush=True)
        self.found.append(ratio)
        self.behind += [f"{case} at ε = {epsilon:g} ({name} {r:.2f} ± {d:.2f})"
                        for name, r, d in zip(("ℓ1", "W1"), ratio, doubt) if r - 2 * d > WORST]  # fmt: skip
        self.lines += [line] if shown else []

    def summary(self) -> list[str]:
        clear = "; ".join(self.behind) or "none"
        mean = f"| {len(self.found)} rows: geometric mean (largest) | | {_summary(self.found)} |"
        return [*self.lines, mean, "", f"Above {WORST} by two standard errors or more: {clear}.", ""]


def beside_plain(runs: int, size: int, shapes: int) -> list[str]:
    """Ratios of the errors of `direct` to those of plain isotonic regression of the curve, at the same ε."""
    battery, odds = Beside("the battery", runs), Beside("odd shapes", runs)
    for case, counts in cases(size).items():
        for epsilon in (0.1, 0.5, 1.0, 3.0):
            battery.add(case, counts, epsilon)
    for case, (counts, epsilons) in odd().items():
        for epsilon in epsilons:
            odds.add(case, counts, epsilon)
    others = Beside("shapes at random", max(runs // 4, FEWEST))
    for number in range(shapes):
        counts, epsilon = held_out(number)
        if (counts > 0).any():
            others.add(f"number {number}", counts, epsilon, shown=False)
    return [*battery.summary(), *odds.summary(), *(others.summary() if others.found else [])]


def least_error(items: int, epsilon: float, share: float, runs: int) -> float:
    """ℓ1 of the likeliest count of so many equal giants, of which columns have a share of ε and rows the rest."""
    reach = int(12 / (epsilon * (1 - share) * math.sqrt(items))) + 6
    off, wrong = np.arange(-reach, reach + 1), 0.0
    for _ in range(runs):
        rows = discrete_laplace(items, epsilon * (1 - share))
        cost = (1 - share) * np.abs(rows[:, None] - off).sum(axis=0)
        if share > 0:  # column c has all items up to the count, none beyond
            columns = discrete_laplace(off.size, epsilon * share) + items * (off <= 0)
            gain = np.abs(columns) - np.abs(columns - items)
            cost = cost - share * np.cumsum(gain)
        best = cost <= cost.min() + 1e-9
        wrong += 1 - best[reach] / best.sum()
    return 2 * wrong / runs


def equal_giants(runs: int) -> list[str]:
    """The least ℓ1 by the share of ε that columns have where rows count."""
    shares = (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.9)
    head = "".join(f" a = {a:g} |" for a in shares)
    lines = [f"| equal giants, {runs} runs each | ε |{head}", "|---|---|" + "--:|" * len(shares)]
    for items, epsilon in ((10, 1.0), (20, 0.1), (50, 0.1), (100, 0.1)):
        found = "".join(f" {least_error(items, epsilon, a, runs):.2f} |" for a in shares)
        lines.append(f"| {items} | {epsilon:g} |{found}")
    return lines


def unbounded(runs: int) -> list[str]:
    """Of 1/ε² equal giants: the least ℓ1 of any reading of this release, and that of isotonic regression."""
    head = f"| 1/ε² equal giants, {runs} runs each | ε | any reading of this release | 4·Φ(−1/2) | isotonic | ratio |"
    lines = [head, "|---|---|" + "--:|" * 4]
    for items, epsilon in ((100, 0.1), (400, 0.05), (2500, 0.02)):
        counts = np.full(items, 2 * STEEP * items)
        reached = np.repeat([items, 0], [counts[0], public_bound(counts) - counts[0]])
        plain = []
        for _ in range(runs):
            fit = isotonic_regression(reached + discrete_laplace(reached.size, epsilon), increasing=False).x
            found = from_curve(np.clip(fit, 0, None))
            plain.append(errors((found.support, found.items), counts)[0])
        least, usual = least_error(items, epsilon, 0, runs), float(np.mean(plain))
        doubt = float(np.std(plain)) / math.sqrt(runs)
        limit = 2 * math.erfc(0.5 / math.sqrt(2))
        shown = f"{least:.2f} | {limit:.2f} | {usual:.3f} ± {doubt:.3f} | {least / usual:.1f}"
        lines.append(f"| {items} of {counts[0]:,} | {epsilon:g} | {shown} |")
    return lines


def told(counts: np.ndarray, epsilon: float, runs: int, steep: float = STEEP) -> float:
    """Least ℓ1 of one who is told all but where each group of equal items stands, and that from all the others."""
    values, items = truth_of(counts)
    ranks, wrong = np.cumsum(items[::-1])[::-1], 0.0
    for value, number, rank in zip(values.tolist(), items.tolist(), ranks.tolist()):
        low, reach = rank - number, int(14 / epsilon) + 6
        places = np.arange(max(1, value - reach), value + reach + 1)
        above = np.clip(places // steep, low, rank) - low  # boxes of the group that rows have
        rows = np.arange(low + 1, rank + 1) * steep
        for _ in range(runs):
            mine = number - above
            columns = discrete_laplace(places.size, epsilon) + mine * (places <= value)
            gain = np.cumsum(np.abs(columns) - np.abs(columns - mine))
            seen = discrete_laplace(number, epsilon) + np.maximum(value - rows + 1, 0)
            if steep < math.inf:
                gain = gain - np.abs(seen[:, None] - np.maximum(places - rows[:, None] + 1, 0)).sum(axis=0)
            best = gain >= gain.max() - 1e-9
            wrong += 2 * number * (1 - best[places == value][0] / best.sum()) / runs
    return wrong / counts.size


def atoms(runs: int) -> list[str]:
    """What those who are told could do with this release, and with columns alone."""
    lines = [f"| all but the places told, {runs} runs | ε | this release | columns alone |", "|---|---|--:|--:|"]
    for case, (counts, epsilons) in odd().items():
        if case.endswith(("5,000", "10, 100, 1,000", "8,192", "equal of 300")):
            found = (told(counts, epsilons[0], runs, steep) for steep in (STEEP, math.inf))
            lines.append(f"| {case} | {epsilons[0]:g} |" + "".join(f" {x:.2f} |" for x in found))
    return lines


def _summary(found: list[np.ndarray]) -> str:
    mean, most = np.exp(np.nanmean(np.log(np.maximum(found, 1e-3)), axis=0)), np.nanmax(found, axis=0)
    return " | ".join(f"{a:.3f} ({b:.2f})" for a, b in zip(mean, most))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--size", type=int, default=10_000)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.1, 1.0])
    parser.add_argument("--falling", action="store_true", help="direct beside plain isotonic regression")
    parser.add_argument("--equal", action="store_true", help="the least error of equal giants")
    parser.add_argument("--shapes", type=int, default=100, help="with --falling: shapes at random")
    parser.add_argument("--only", nargs="*", help="names of systems")
    parser.add_argument("--keep", type=Path, help="file of results: what is there is not run again")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after so long; run again to go on")
    parser.add_argument("--write", action="store_true", help="put tables and picture into docs")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.equal:
        parts = (equal_giants, unbounded, atoms)
        print("\n\n".join("\n".join(part(options.runs)) for part in parts))
        return
    if options.falling:
        words = beside_plain(options.runs, options.size, options.shapes)
        print("\n".join(words))
        if options.write:
            head = ["## The direct model beside plain isotonic regression", "", machine("numpy", "scipy"), ""]
            write_section("falling", "\n".join([*head, *words]))
        return
    direct_profile(release({"": Exactly(np.array([1]), np.array([1]))}, Unit(), 1)[""])  # imports
    all_results, lines, kept = {}, [], Kept(options.keep, options.minutes)
    for case, counts in cases(options.size).items():
        for epsilon in options.epsilon:
            results = {}
            for name in options.only or models():
                found = kept.found(case, name, counts, epsilon, options.runs)
                if found is not None:
                    results[name] = found
            all_results[case, epsilon] = results
            rows = table(case, epsilon, results)
            print("\n".join(rows), flush=True)
            lines += rows
    if options.only is None:
        words = verdict(all_results)
        print("\n".join(words))
        if options.write:
            picture(all_results)
            head = ["## The field", "", machine("numpy", "scipy"), "", "![Error against trust](img/field.png)", ""]
            write_section("field", "\n".join([*head, *words, "", *lines]))


if __name__ == "__main__":
    main()
