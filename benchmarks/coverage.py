"""How often the 95 % intervals contain the truth, and how wide they are, over the battery of profiles.

For every profile, ε and number of cells one data set is fixed and its noise drawn again and again. Entries are
judged in three classes: *dense* (at least 10 cells expected at each of the noisy counts t − 1, t, t + 1; target
93–97 %), *sparse, truth not 0* and *sparse, truth 0* (target ≥ 93 %). Every statistic must reach 93 %.

    python benchmarks/coverage.py [--quick] [--method auto] [--power 1] [--beyond] [--write]

Merged, hashed and sampled sketches and both kinds of interval are the audit's (audits/coverage.py, docs/trust.md).

``--beyond`` adds rows for four profiles at ε = 0.5: a million cells, and power 2 (two merged sketches), with `isotonic`
and `auto`. Of so few runs only what they come to together says something about single statistics.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from _report import machine, write_section

from unnoise.answers.reconstruct import reconstruct
from unnoise.noise import DiscreteLaplace
from unnoise.noisy import NoisyProfile, tally

BEYOND = ("all ones", "Poisson 5", "Zipf 1.5", "uniform 0..200")
"""Profiles of the additional rows; (cells, power) and repetitions by method below."""
BEYOND_SIZES = ((10**6, 1), (10**4, 2), (10**6, 2))
BEYOND_REPETITIONS = {"isotonic": 100, "auto": 40}

QUANTILES = (0.25, 0.5, 0.9, 0.99)
CLASSES = ("dense", "sparse, truth not 0", "sparse, truth 0")


def zipf(rng, exponent, d):
    """P(h) ∝ h^−exponent for h ≥ 1, by inversion of the continuous law, capped at 10⁷."""
    return np.minimum(np.floor((1 - rng.random(d)) ** (-1 / (exponent - 1))), 1e7).astype(np.int64)


def bimodal(rng, d):
    """70 % zeros, the rest normal(30, 4)."""
    return np.where(rng.random(d) < 0.7, 0, np.rint(rng.normal(30, 4, d)).clip(0)).astype(np.int64)


BATTERY = {
    "all ones": lambda rng, d: np.ones(d, dtype=np.int64),
    "Poisson 5": lambda rng, d: rng.poisson(5, d),
    "Zipf 1.5": lambda rng, d: zipf(rng, 1.5, d),
    "Zipf 2.2": lambda rng, d: zipf(rng, 2.2, d),
    "geometric 20": lambda rng, d: rng.geometric(1 / 21, d) - 1,
    "uniform 0..200": lambda rng, d: rng.integers(0, 201, d),
    "bimodal": bimodal,
}


def draw(rng, law, size):
    """Noise of any integer power, by NumPy's geometric differences: a simulation needs no secrecy."""
    p = 1 - law.a
    return sum(rng.geometric(p, size) - rng.geometric(p, size) for _ in range(int(law.power)))


class Simulator:
    """Draws noisy profiles of one data set: common counts by a multinomial, rare ones cell by cell."""

    def __init__(self, counts, law):
        self.law = law
        values, cells = np.unique(counts, return_counts=True)
        reach = law.reach(1e-15)
        common = cells > 4 * reach
        self.common = list(zip(values[common].tolist(), cells[common].tolist()))
        self.rare = np.repeat(values[~common], cells[~common])
        self.grid = np.arange(-reach, reach + 1)
        self.pmf = law.pmf(self.grid) / law.pmf(self.grid).sum()

    def sample(self, rng, layout=None):
        pairs = [(h + self.grid, rng.multinomial(n, self.pmf)) for h, n in self.common]
        if self.rare.size:
            pairs.append(tally(self.rare + draw(rng, self.law, self.rare.size)))
        values = np.concatenate([v for v, _ in pairs])
        cells = np.concatenate([c for _, c in pairs])
        return NoisyProfile.from_tally(values, cells, noise=self.law, layout=layout)


def entry_grid(counts, law, rng):
    """All counts a person may ask about: densely as far as the noise reaches, and around rare ones."""
    top = np.quantile(counts, 0.999) + law.reach(1e-3)
    dense = np.arange(min(int(top), 2000) + 1)
    distinct = np.unique(counts)
    far = distinct[distinct > dense[-1]]
    far = rng.choice(far, min(far.size, 200), replace=False) if far.size else far
    return np.unique(np.concatenate([dense, far, far + 1, far + law.reach(0.3)]).astype(np.int64))


def expected_cells(counts, law, t):
    """Mean number of cells at each noisy count t."""
    values, cells = np.unique(counts, return_counts=True)
    reach = law.reach(1e-9)
    found = np.zeros(t.size)
    for i, v in enumerate(t):
        lo, hi = np.searchsorted(values, [v - reach, v + reach + 1])
        found[i] = (cells[lo:hi] * law.pmf(v - values[lo:hi])).sum()
    return found


def classes(counts, law, t, truth):
    dense = np.min([expected_cells(counts, law, t + s) for s in (-1, 0, 1)], axis=0) >= 10
    return np.where(dense, 0, np.where(truth > 0, 1, 2))


def xlogx(h):
    return np.where(h > 0, h * np.log(np.maximum(h, 1)), 0.0)


def statistics(counts):
    """Name, question and true answer of every statistic."""
    total = counts.sum()
    top = int(np.quantile(counts, 0.998))
    asks = [
        ("distinct", lambda p: p.distinct, (counts > 0).sum()),
        ("total", lambda p: p.total, total),
        ("entropy", lambda p: p.entropy, np.log(total) - xlogx(counts).sum() / total),
        ("moment(2)", lambda p: p.moment(2), (counts.astype(float) ** 2).sum()),
        ("moment(0.5)", lambda p: p.moment(0.5), (counts**0.5).sum()),
        ("statistic(min(h, 10))", lambda p: p.statistic(lambda t: np.minimum(t, 10)), np.minimum(counts, 10).sum()),
        ("statistic(1/(1+h))", lambda p: p.statistic(lambda t: 1 / (1 + t)), (1 / (1 + counts)).sum()),
    ]
    for k in sorted({2, 3, 5, 10, 30, max(top, 2), max(2 * top, 3), int(counts.max())}):
        name = f"at_least({k})" if k in (2, 3, 5, 10, 30) else "at_least(tail)"
        asks.append((name, lambda p, k=k: p.at_least(k), (counts >= k).sum()))
    ordered = np.sort(counts)
    for q in QUANTILES:
        rank = int(np.ceil(q * counts.size - 1e-9)) - 1
        asks.append((f"quantile({q:g})", lambda p, q=q: p.quantile(q), ordered[rank]))
    return asks


def run_case(counts, law, method, repetitions, rng):
    """Return per class and per statistic: hits, trials, width total."""
    simulator = Simulator(counts, law)
    t = entry_grid(counts, law, rng)
    values, cells = np.unique(counts, return_counts=True)
    where = np.searchsorted(values, t).clip(max=values.size - 1)
    truth = np.where(values[where] == t, cells[where], 0)
    group = classes(counts, law, t, truth)
    asks = statistics(counts)
    result = defaultdict(lambda: np.zeros(3))
    for _ in range(repetitions):
        p = reconstruct(simulator.sample(rng), method=method)
        got = p.entries(t)
        hit = (got.low * p.items <= truth + 1e-6) & (truth - 1e-6 <= got.high * p.items)
        width = (got.high - got.low) * p.items
        for i, name in enumerate(CLASSES):
            mine = group == i
            result[name] += [hit[mine].sum(), mine.sum(), width[mine].sum()]
        for name, ask, true in asks:
            e = ask(p)
            slack = 1e-9 * max(1.0, abs(true))
            result[name] += [e.low - slack <= true <= e.high + slack, 1, e.high - e.low]
    return result


def table(rows, header):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def cell(entry):
    return f"{100 * entry[0] / entry[1]:.1f}" if entry[1] else "–"


def wide(entry):
    return f"{entry[2] / entry[1]:,.1f}" if entry[1] else "–"


def row_of(result):
    """Cells of a table: coverage and width by class, and the statistic covered least."""
    worst = min((e[0] / e[1], k) for k, e in result.items() if k not in CLASSES and e[1])
    classes = [*(cell(result[c]) for c in CLASSES), *(wide(result[c]) for c in CLASSES)]
    return [*classes, f"{100 * worst[0]:.1f} {worst[1]}"]


def beyond(seed):
    """Rows for BEYOND: method, power, profile, d, and what ``row_of`` tells."""
    rows = []
    for method, repetitions in BEYOND_REPETITIONS.items():
        for d, power in BEYOND_SIZES:
            together = defaultdict(lambda: np.zeros(3))
            for name in (*BEYOND, "together"):
                rng = np.random.default_rng([seed, d, power])
                result = together
                if name in BATTERY:
                    result = run_case(BATTERY[name](rng, d), DiscreteLaplace(0.5, power), method, repetitions, rng)
                    for key, entry in result.items():
                        together[key] += entry
                rows.append([method, f"{power}", name, f"{d:,}", f"{repetitions}", *row_of(result)])
                print(" | ".join(rows[-1]), flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, d = 10⁴ only")
    parser.add_argument("--method", default="auto")
    parser.add_argument("--power", type=int, default=1)
    parser.add_argument("--cells", type=int, nargs="*")
    parser.add_argument("--epsilon", type=float, nargs="*", default=[0.1, 0.5, 1, 2])
    parser.add_argument("--profile", nargs="*", default=list(BATTERY))
    parser.add_argument("--repetitions", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--beyond", action="store_true", help="rows for a million cells and for power 2 as well")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    sizes = options.cells or ([10**4] if options.quick else [10**4, 10**6])
    repetitions = options.repetitions or (20 if options.quick else 200)
    rng = np.random.default_rng(options.seed)
    whole = defaultdict(lambda: np.zeros(3))
    rows, started = [], time.perf_counter()
    for name in options.profile:
        for d in sizes:
            counts = BATTERY[name](rng, d)
            for epsilon in options.epsilon:
                law = DiscreteLaplace(epsilon, options.power)
                result = run_case(counts, law, options.method, repetitions, rng)
                for key, entry in result.items():
                    whole[key] += entry
                rows.append([name, f"{d:,}", f"{epsilon:g}", *row_of(result)])
                print(" | ".join(rows[-1]), flush=True)
    told = ["dense", "sparse ≠ 0", "sparse 0", "width dense", "width sparse ≠ 0", "width sparse 0", "lowest statistic"]
    entries = table(rows, ["profile", "d", "ε", *told])
    over_all = table([[k, f"{int(e[1]):,}", cell(e), wide(e)] for k, e in whole.items()],
                     ["answer", "intervals", "coverage %", "mean width (items)"])
    text = (
        f"## Coverage of the 95 % intervals\n\n{machine('numpy', 'scipy')}; method `{options.method}`, power "
        f"{options.power}, {repetitions} repetitions of each case, {time.perf_counter() - started:.0f} s.\n\n"
        f"{over_all}\n\nBy case:\n\n{entries}\n"
    )
    if options.beyond:
        more = table(beyond(options.seed), ["method", "power", "profile", "d", "repetitions", *told])
        text += f"\nBeyond the battery, ε = 0.5:\n\n{more}\n"
    print(text)
    if options.write:
        power = "" if options.power == 1 else f"-power-{options.power}"
        method = "" if options.method == "auto" else f"-{options.method}"
        write_section(f"coverage{method}{power}", text)


if __name__ == "__main__":
    main()
