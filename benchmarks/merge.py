"""Merged sketches: what k noises leave of reach and frequency.

Run ``python benchmarks/merge.py [--quick] [--only shapes,wfa] [--shape …] [--kind …] [--epsilon …] [--k …] [--runs N]
[--shape-runs N] [--no-bound] [--record FILE] [--minutes M] [--write]``.

Only ``un.reconstruct`` is measured, on the sum of k sketches, whose law is simulated directly: exact cells plus noise
of power k (``--check`` compares that with k sketches merged through the public API).

*Shapes*: 100,000 items of a given law of counts, in 2¹⁷ cells: hashed, or as a known domain of 2¹⁷ items of which
the others never occur. *wfa*: the scenarios of ``_wfa.py`` in 2¹⁷ hashed cells at ε = ln 3, sets united one after the
other. A site counts a person at most once (three times in the frequency scenarios), which the sketch of items that are
persons knows (``NoisyCounts.max_count``); ``--no-bound`` leaves that out.

Columns: relative RMSE of distinct; mean shuffle distance (half the ℓ1 distance of the frequency histograms 1 … 10+);
coverage of the 95 % interval of distinct; how many of its widths the worst miss was away; share of the runs marked as
more model than data, and refused; seconds of a processor for a fit. Beside them stands what the cells alone tell: the
least standard error of an unbiased answer that knows the bound on counts (Cramér and Rao, at the true profile; items
are given, not drawn). And what nobody is below everywhere, with whatever prior: profiles that rise to one peak and fall
from it are looked for, one with few items and one with many, both as near to the true one as the noise hides, and the
two are guessed between (Le Cam). ``--bounds`` prints these tables alone.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from _report import IMAGES, SERIES, machine, write_section
from _wfa import FREQUENCY, MOST_FREQUENT, PUBLISHED, REACH, SETS, Scenario, histogram, shuffle_distance
from numpy.polynomial.hermite_e import hermegauss
from scipy.optimize import minimize
from scipy.special import expit

import unnoise as un
from unnoise.engine.channel import Blocks
from unnoise.engine.fourier import FourierChannel, Part
from unnoise.engine.posterior import covariance_of
from unnoise.layout import Layout

CELLS = 1 << 17
ITEMS = 100_000
MERGED = (1, 2, 3, 5, 8, 13, 20, 31)
EPSILONS = {"1/3": "1/3", "1/2": "1/2", "1": "1", "ln 3": math.log(3)}
MERGED_QUICKLY = (1, 3, 8, 20)


def _zipf(size: int, rng: np.random.Generator) -> np.ndarray:
    weights = np.arange(1, 1001) ** -1.8
    return 1 + np.searchsorted(np.cumsum(weights / weights.sum()), rng.random(size))


SHAPES: dict[str, Callable[[int, np.random.Generator], np.ndarray]] = {
    "Zipf 1.8": _zipf,
    "gamma–Poisson": lambda size, rng: 1 + rng.poisson(rng.gamma(1.5, 2.0, size)),
    "all ones": lambda size, rng: np.ones(size, dtype=np.int64),
    "all twos": lambda size, rng: np.full(size, 2),
    "bimodal": lambda size, rng: np.where(
        rng.random(size) < 0.7, 1, np.rint(rng.normal(30, 4, size)).clip(1).astype(np.int64)),
    "U-shaped": lambda size, rng: 1 + np.rint(19 * rng.beta(0.4, 0.4, size)).astype(np.int64),
}


def hashed_cells(frequencies: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    at = rng.integers(0, CELLS, frequencies.size)
    return np.bincount(at, weights=frequencies, minlength=CELLS).astype(np.int64)


def known_cells(frequencies: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.concatenate([frequencies, np.zeros(CELLS - frequencies.size, dtype=np.int64)])


def layout(kind: str) -> Layout:
    if kind == "hashed":
        return Layout(kind="hashed", cells=CELLS, hash_seed=0, item_types=("int",))
    return Layout(kind="known", cells=CELLS, domain=CELLS)


def merged(cells: np.ndarray, kind: str, epsilon: str | float, power: int) -> un.NoisyCounts:
    """Cells with the noise of ``power`` merged sketches."""
    noisy = cells + un.discrete_laplace(cells.size, epsilon, power=power)
    return un.NoisyCounts(noisy, un.DiscreteLaplace(epsilon, power), layout(kind))


def measure(noisy: un.NoisyCounts, frequencies: np.ndarray, bound: int | None) -> dict[str, float]:
    """Compare one answer with the truth; a refusal is a row of its own."""
    start = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            profile = un.reconstruct(noisy, max_count=bound)
            distinct = profile.distinct
    except (un.OverloadError, un.ConvergenceError):
        return {"refused": 1.0}
    seconds = time.process_time() - start
    counts = np.zeros(MOST_FREQUENT)
    items = profile.mass * profile.items
    np.add.at(counts, np.minimum(profile.support[profile.support > 0], MOST_FREQUENT) - 1, items[profile.support > 0])
    truth, width = frequencies.size, max(distinct.high - distinct.low, 1e-9)
    return {
        "refused": 0.0, "error": distinct.value / truth - 1, "covered": float(truth in distinct),
        "miss": max(distinct.low - truth, truth - distinct.high, 0.0) / width, "width": width / truth,
        "shuffle": shuffle_distance(counts, histogram(frequencies)), "marked": float(distinct.marked),
        "seconds": seconds,
    }  # fmt: skip


def summary(rows: list[dict[str, float]]) -> dict[str, float]:
    answered = [row for row in rows if not row["refused"]]
    whole = {"runs": len(rows), "refused": 1 - len(answered) / len(rows)}
    if answered:
        column = {name: np.array([row[name] for row in answered]) for name in answered[0]}
        whole |= {name: float(column[name].mean()) for name in ("covered", "shuffle", "marked", "seconds", "width")}
        whole |= {"rmse": float(np.sqrt(np.mean(column["error"] ** 2))), "bias": float(column["error"].mean()),
                  "miss": float(column["miss"].max())}
    return whole


HEAD = (
    "| data | kind | ε | k | RMSE of distinct | bias | mean width | shuffle distance | coverage | worst miss, widths "
    "| marked / refused | seconds |\n|---|---|---|---|---|---|---|---|---|---|---|---|"
)


def line(name: str, kind: str, epsilon: str, k: int, found: dict[str, float]) -> str:
    start = f"| {name} | {kind} | {epsilon} | {k} "
    if "rmse" not in found:
        return start + "| | | | | | | – / 100 % | |"
    percent = {key: f"{100 * found[key]:.2f} %" for key in ("rmse", "bias", "width")}
    return start + (
        f"| {percent['rmse']} | {percent['bias']} | {percent['width']} | {found['shuffle']:.3f} "
        f"| {100 * found['covered']:.0f} % | {found['miss']:.1f} | {100 * found['marked']:.0f} % / "
        f"{100 * found['refused']:.0f} % | {found['seconds']:.2f} |"
    )


def shapes(options: argparse.Namespace) -> list[str]:
    """Shapes × kind × ε × k."""
    lines = [f"{ITEMS:,} items, 2¹⁷ cells, {options.shape_runs} runs each.", "", HEAD]
    for name in options.shape or SHAPES:
        for kind in options.kind:
            for epsilon in options.epsilon:
                for k in options.k:
                    rng = np.random.default_rng([17, k])
                    rows = []
                    for _ in range(options.shape_runs):
                        frequencies = SHAPES[name](ITEMS, rng)
                        cells = (hashed_cells if kind == "hashed" else known_cells)(frequencies, rng)
                        rows.append(measure(merged(cells, kind, EPSILONS[epsilon], k), frequencies, None))
                    lines.append(line(name, kind, epsilon, k, summary(rows)))
                    print(lines[-1], flush=True)
    return lines


def scenario_run(name: str, run: int, ks: Sequence[int], bound: bool) -> dict[str, dict[str, float]]:
    """One run of a scenario, by the number of sets united."""
    rng, rows = np.random.default_rng([19, (*REACH, *FREQUENCY).index(name), run]), {}
    drawn = Scenario.draw(name, rng)
    sites = drawn.cells(CELLS, rng)
    for k in ks:
        most = k * (3 if name in FREQUENCY else 1) if bound else None
        noisy = merged(sites[:k].sum(axis=0), "hashed", math.log(3), k)
        rows[str(k)] = measure(noisy, drawn.frequencies(k), most)
    return rows


def scenarios(options: argparse.Namespace) -> tuple[list[str], dict[str, dict[int, float]]]:
    """The public scenarios, and the RMSE of reach by scenario and k for the plot; goes on where the record ends."""
    kept: dict[str, dict[str, dict[str, float]]] = {}
    if options.record and options.record.exists():
        kept = dict(json.loads(line) for line in options.record.read_text().splitlines())
    names, started = options.scenario or (*REACH, *FREQUENCY), time.perf_counter()
    for run in range(options.runs):
        for name in names:
            ks = [k for k in sorted({*options.k, SETS[name]}) if k <= SETS[name]]
            if f"{name}, {run}" in kept or time.perf_counter() - started > 60 * options.minutes:
                continue
            kept[f"{name}, {run}"] = scenario_run(name, run, ks, not options.no_bound)
            if options.record:
                with options.record.open("a") as file:
                    file.write(json.dumps([f"{name}, {run}", kept[f"{name}, {run}"]], ensure_ascii=False) + "\n")
    lines, errors = [], {}
    for name in names:
        runs = [rows for key, rows in kept.items() if key.startswith(f"{name}, ")]
        for k in sorted({int(k) for rows in runs for k in rows}):
            found = summary([rows[str(k)] for rows in runs])
            errors.setdefault(name, {})[k] = found.get("rmse", math.nan)
            lines.append(line(name, "hashed", "ln 3", k, found))
            print(lines[-1], flush=True)
    fewest = min((sum(key.startswith(f"{name}, ") for key in kept) for name in names), default=0)
    told = "" if options.no_bound else "; the sites count everybody at most once (three times: frequency), and say so"
    return [f"WFA's scenarios, ε = ln 3, 2¹⁷ cells, {fewest} runs each{told}.", "", HEAD, *lines], errors


TOLD = (
    "*Everywhere*: near each scenario there are two profiles with one peak, one with fewer and one with more items, "
    "that differ so little in the cells that nobody, with whatever prior, errs by less than this at both (Le Cam). "
    "Who errs by less in the scenario itself, as the engine does where people meet the sites by chance, owes it to "
    "what was assumed, and errs by more at a profile that the cells do not tell from it. So 3 % at 3 sites and 6 % "
    "at 5, 8 and 20 in all five are within reach only of a prior that leans towards them. The counts of *constant* "
    "are multiples of 3: ten noises leave φ(2π/3)¹⁰ = 8·10⁻⁶ of the mean cosine that would say so, 250 times less "
    "than its standard error in 2¹⁷ cells, and in 36 of 40 runs (2¹⁶ cells) the best walk explained the cells "
    "better than the truth did, its histogram 0.68 away."
)


def bounds(names: Sequence[str], ks: Sequence[int]) -> list[str]:
    """Tables of the least errors of reach: without bias, and of anybody everywhere; one draw of each scenario."""
    lines = []
    for least, head in ((least_error, "least error without bias"), (least_anywhere, "least error everywhere")):
        lines += ["", f"| {head} | " + " | ".join(f"k = {k}" for k in ks) + " |", "|---" * (len(ks) + 1) + "|"]
        print("\n".join(lines[-3:]), flush=True)
        for name in names:
            drawn, cells = Scenario.draw(name, np.random.default_rng(19)), []
            for k in ks:
                error = least(drawn.frequencies(k), int(k * (3 if name in FREQUENCY else 1)), k)
                cells.append("over 100 %" if error > 1 else f"{100 * error:.1f} %")
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
            print(lines[-1], flush=True)
    return [*lines[1:], "", TOLD]


def channel_of(frequencies: np.ndarray, most: int, power: int) -> tuple[FourierChannel, np.ndarray]:
    """A channel of as many cells, and the profile, none of its masses 0."""
    noise = un.DiscreteLaplace(math.log(3), power)
    reach = noise.reach(1e-9)
    part = Part(np.arange(-reach, most + reach), np.ones(most + 2 * reach + 1), CELLS, 1.0)
    channel = FourierChannel(Blocks.covering(np.arange(1, most + 2)), (part,), noise, collide=True)
    return channel, np.maximum(np.bincount(frequencies, minlength=most + 1)[1:], 1).astype(float)


def least_error(frequencies: np.ndarray, most: int, power: int) -> float:
    """Cramér–Rao bound of the number of items, as a share of it, where counts are known to be at most ``most``."""
    channel, items = channel_of(frequencies, most, power)
    variance = covariance_of(channel, channel.at(items), np.zeros((most, most))).sum()
    return math.sqrt(max(float(variance), 0.0)) / frequencies.size


def least_anywhere(frequencies: np.ndarray, most: int, power: int) -> float:
    """Error of reach that nobody is below at both of two profiles with one peak, as a share of the items.

    The cells are some standard errors apart, by their laws (Hellinger); who guesses between the two, as likely in
    advance, errs by their difference times the root of E π(1 − π), π what the cells make of it.
    """
    channel, items = channel_of(frequencies, most, power)
    told = channel.information(channel.at(items)) / np.outer(items, items)
    node, weight = hermegauss(60)
    bound = 0.0
    for apart in (1.0, 2.0):
        few, many = (farthest(items, told, apart / 2, way) for way in (-1, 1))
        one, two = (rows / rows.sum() for rows in (channel.at(each).rows[0] for each in (few, many)))
        apart = math.sqrt(-8 * CELLS * math.log(float(np.sqrt(one) @ np.sqrt(two))))
        chance = expit(apart * (node + apart / 2))
        doubt = float(weight @ (chance * (1 - chance)) / weight.sum())
        bound = max(bound, float(many.sum() - few.sum()) / frequencies.size * math.sqrt(doubt))
    return bound


def farthest(items: np.ndarray, told: np.ndarray, apart: float, way: int) -> np.ndarray:
    """The profile with one peak of most (way = 1) or fewest items whose cells are so many standard errors away."""
    best, n, total = items, items.size, items.sum()
    for peak in range(n + 1):  # shares of the items are sums of rises up to there, and of falls beyond
        sums = np.zeros((n, n))
        sums[:peak, :peak], sums[peak:, peak:] = np.tri(peak), np.tri(n - peak).T
        metric, now = total**2 * sums.T @ told @ sums, np.linalg.solve(sums, items / total)
        near = {
            "type": "ineq",
            "fun": lambda x, metric=metric, now=now: apart**2 - float((x - now) @ metric @ (x - now)),
            "jac": lambda x, metric=metric, now=now: -2 * metric @ (x - now),
        }
        slope = -way * sums.sum(axis=0)
        found = minimize(lambda x, slope=slope: float(slope @ x), np.maximum(now, 0.0), method="SLSQP",
                         jac=lambda _, slope=slope: slope, bounds=[(0, None)] * n, constraints=near)  # fmt: skip
        shares = np.maximum(found.x, 0.0)
        if near["fun"](shares) > -1e-3 and way * (total * sums @ shares - best).sum() > 0:
            best = total * sums @ shares
    return best


def plot(errors: dict[str, dict[int, float]]) -> None:
    """Error of reach against k; a triangle on the 5 % line is where vector-of-counts stops."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7.5, 4.8), layout="constrained")
    voc = dict(zip(REACH, PUBLISHED["vector of counts, 4096"]))
    axes.axhline(2.55, color="0.5", lw=1, ls=":", label="95 % of runs within 5 %")
    for (colour, mark), name in zip(SERIES, (n for n in REACH if n in errors)):
        ks = sorted(errors[name])
        axes.plot(ks, [100 * errors[name][k] for k in ks], marker=mark, ms=5, color=colour, label=name)
        axes.plot([voc[name]], [2.55], marker="v", ms=10, color=colour, mec="white", ls="none", zorder=3)
    axes.plot([], [], marker="v", ms=8, color="0.4", ls="none", label="vector-of-counts stops (published)")
    axes.set(xscale="log", yscale="log", xlabel="sites merged (ε = ln 3 each, 2¹⁷ cells)", ylabel="RMSE of reach, %")
    axes.set_xticks([1, 2, 3, 5, 8, 13, 20], ["1", "2", "3", "5", "8", "13", "20"], minor=False)
    axes.set_yticks([0.5, 1, 2, 5, 10], ["0.5", "1", "2", "5", "10"], minor=False)
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside upper center", ncols=3, fontsize=9, frameon=False)
    figure.savefig(IMAGES / "merge.svg", metadata={"Date": None})


def check_law(runs: int) -> str:
    """Compare k merged sketches with exact cells plus noise of power k: χ² of the noisy profiles."""
    from scipy.stats import chi2_contingency

    k, items = 5, np.arange(3000)
    told = []
    for power in (k, k + 1):  # the second is the control: another power must be told apart
        one: list[np.ndarray] = []
        two: list[np.ndarray] = []
        for _ in range(runs):
            sketches = [un.Sketch.known(1 << 14, epsilon=1) for _ in range(k)]
            for sketch in sketches:
                sketch.update(items)
            one.append(sum(sketches[1:], sketches[0]).release().counts)
            exact = np.zeros(1 << 14, dtype=np.int64)
            exact[items] = k
            two.append(exact + un.discrete_laplace(exact.size, 1, power=power))
        values = [np.concatenate(part).clip(-8, 16) for part in (one, two)]
        table = [np.bincount(v + 8, minlength=25) for v in values]
        told.append(float(chi2_contingency(table).pvalue))
    return f"k merged sketches against power k: p = {told[0]:.3f}; against power k + 1: p = {told[1]:.1e}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="3 runs, k = 1, 3, 8, 20, ε = 1")
    parser.add_argument("--only", default="shapes,wfa")
    parser.add_argument("--shape", nargs="*", choices=list(SHAPES))
    parser.add_argument("--scenario", nargs="*", choices=[*REACH, *FREQUENCY])
    parser.add_argument("--kind", nargs="*", default=["hashed", "known"], choices=["hashed", "known"])
    parser.add_argument("--epsilon", nargs="*", choices=list(EPSILONS))
    parser.add_argument("--k", nargs="*", type=int)
    parser.add_argument("--runs", type=int)
    parser.add_argument("--shape-runs", type=int, help="runs of a shape, as many as of a scenario unless given")
    parser.add_argument("--no-bound", action="store_true", help="let the estimator not know the bound on counts")
    parser.add_argument("--record", type=Path, help="file of finished runs of the scenarios, continued where it ends")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no run of a scenario after so long")
    parser.add_argument("--bounds", action="store_true", help="nothing but the least errors that there can be")
    parser.add_argument("--check", action="store_true", help="compare the simulated law with merged sketches")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    options.runs = options.runs or (3 if options.quick else 100)
    options.shape_runs = options.shape_runs or options.runs
    options.k = options.k or list(MERGED_QUICKLY if options.quick else MERGED)
    options.epsilon = options.epsilon or (["1"] if options.quick else list(EPSILONS))
    if options.bounds:
        bounds(options.scenario or REACH, [k for k in options.k if k <= 20])
        return
    text = ["## Merged sketches", "", machine("numpy", "scipy"), ""]
    if options.check:
        text += [check_law(20), ""]
        print(text[-2], flush=True)
    if "wfa" in options.only:
        lines, errors = scenarios(options)
        told = bounds([name for name in REACH if name in errors], [k for k in options.k if k <= 20])
        text += [*lines, "", *told, "", "![Error of reach against the number of sites](img/merge.svg)", ""]
        if options.write:
            plot(errors)
            write_section("merge", "\n".join(text))
    if "shapes" in options.only:
        lines = shapes(options)
        if options.write:
            head = ["## Merged sketches: shapes", "", machine("numpy", "scipy"), ""]
            write_section("merge-shapes", "\n".join([*head, *lines]))


if __name__ == "__main__":
    main()
