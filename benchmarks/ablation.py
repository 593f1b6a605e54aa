"""What each part of the engine's search is worth: the same sketches answered without it.

Run ``python benchmarks/ablation.py [--only NAME]… [--runs 1] [--write]``. Every variant answers the same cells, 18
shapes in five settings: hashed at ε = 1 and 0.3, hashed behind five noises, a known domain behind one noise and behind
three. ℓ1 and W1 are geometric means over sketches of the ratio to the whole engine's; *missed* are answers (numbers of
items and quantiles) outside their 95 % intervals, of those without a mark in brackets; time is processor time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
from _report import machine, write_section
from items import PRICES

from unnoise.answers.questions import mark
from unnoise.answers.reconstruct import reconstruct
from unnoise.engine import points, posterior, search, walk
from unnoise.estimators import auto, collisions
from unnoise.layout import Layout
from unnoise.noise import DiscreteLaplace
from unnoise.noisy import NoisyCounts

ITEMS, CELLS = 20_000, 1 << 15
SETTINGS = (("hashed", 1.0, 1), ("hashed", 0.3, 1), ("hashed", 1.0, 5), ("known", 0.5, 1), ("known", 1.0, 3))


def _packs(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.where(rng.random(n) < 0.5, 6 * rng.geometric(0.4, n), rng.integers(1, 4, n))


SHAPES: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "geometric 20": lambda rng, n: rng.geometric(1 / 20, n),
    "Zipf 1.8": lambda rng, n: np.minimum(rng.zipf(1.8, n), 10**6),
    "gamma–Poisson": lambda rng, n: 1 + rng.poisson(rng.gamma(1.0, 3.0, n)),
    "Poisson 3": lambda rng, n: 1 + rng.poisson(3, n),
    "log-normal": lambda rng, n: np.ceil(rng.lognormal(2.0, 1.2, n)).astype(np.int64),
    "all ones": lambda rng, n: np.ones(n, dtype=np.int64),
    "all twos": lambda rng, n: np.full(n, 2),
    "one or nine": lambda rng, n: np.where(rng.random(n) < 0.7, 1, 9),
    "two hills": lambda rng, n: np.where(rng.random(n) < 0.5, 1 + rng.poisson(3, n), rng.poisson(40, n)),
    "cap at 20": lambda rng, n: np.minimum(rng.zipf(1.7, n), 20),
    "prices": lambda rng, n: rng.choice(PRICES, n, p=(1 / PRICES) / (1 / PRICES).sum()),
    "half heaped": lambda rng, n: np.where(rng.random(n) < 0.5, 5 * rng.geometric(0.3, n), rng.geometric(0.1, n)),
    "packs of six": _packs,
    "odd": lambda rng, n: 2 * rng.geometric(0.25, n) - 1,
    "sevens": lambda rng, n: 7 * rng.geometric(0.3, n),
    "900 to 1,100": lambda rng, n: rng.integers(900, 1101, n),
    "288 a day": lambda rng, n: 288 - np.minimum(rng.geometric(0.3, n) - 1, 200),
    "thirty counts": lambda rng, n: rng.choice(np.random.default_rng(5).integers(1, 400, 30), n),
}


def case(shape: str, kind: str, epsilon: float, power: int, run: int) -> tuple[np.ndarray, NoisyCounts]:
    """Draw counts of items and the noisy cells that hold them."""
    rng = np.random.default_rng([run, list(SHAPES).index(shape), SETTINGS.index((kind, epsilon, power))])
    truth = np.asarray(SHAPES[shape](rng, ITEMS), dtype=np.int64)
    noise, totals = DiscreteLaplace(epsilon, power), np.zeros(CELLS, dtype=np.int64)
    np.add.at(totals, rng.integers(0, CELLS, ITEMS) if kind == "hashed" else np.arange(ITEMS), truth)
    for _ in range(power):
        totals += rng.geometric(1 - noise.a, CELLS) - rng.geometric(1 - noise.a, CELLS)
    layout = Layout(kind="hashed", cells=CELLS, hash_seed=0) if kind == "hashed" else Layout(kind="known", cells=CELLS)
    return truth, NoisyCounts(totals, noise, layout)


def measured(truth: np.ndarray, noisy: NoisyCounts, domain: int) -> dict[str, float]:
    """ℓ1 and W1 of the profile, answers missed (and of these unmarked), and seconds."""
    begin = time.process_time()
    profile = reconstruct(noisy)
    answers = {("at least", k): profile.at_least(k) for k in (1, 2, 3, 5, 10, 30, 100, 300)}
    answers |= {("exactly", k): profile.exactly(k) for k in (1, 2, 3, 5, 6, 9, 20)}
    if domain == 0:
        answers |= {("quantile", q): profile.quantile(q) for q in (0.25, 0.5, 0.9)}
    seconds = time.process_time() - begin
    empty = np.zeros(max(0, domain - truth.size), dtype=np.int64)
    counts, numbers = np.unique(np.append(truth, empty), return_counts=True)
    support = np.union1d(counts, profile.support)
    gap = np.zeros(support.size)
    gap[np.searchsorted(support, counts)] -= numbers
    gap[np.searchsorted(support, profile.support)] += profile.mass * profile.items
    curve = np.cumsum(gap[::-1])[::-1][1:]  # difference of the numbers at or above a count
    missed = unmarked = 0
    for (what, k), answer in answers.items():
        if what == "quantile":
            true = float(np.sort(truth)[max(0, int(np.ceil(k * truth.size)) - 1)])
        else:
            true = float((truth >= k).sum() if what == "at least" else (truth == k).sum())
        out = not answer.low <= true <= answer.high
        missed += out
        unmarked += out and not mark(answer)
    return {"l1": float(np.abs(gap).sum()) / truth.size, "w1": float(np.abs(curve) @ np.diff(support)) / truth.size,
            "asked": len(answers), "missed": missed, "unmarked": unmarked, "seconds": seconds}


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _none(*_: Any, **__: Any) -> list[Any]:
    return []


def _last_alone(*given: Any, channels: Callable[..., list[Any]] = collisions._channels) -> list[Any]:
    return channels(*given)[-1:]


def _families(*left_out: walk.Family) -> list[Any]:
    left = tuple(family for family in walk.FAMILIES if family not in left_out)
    return [patch.object(search, "FAMILIES", left)]


F = walk.Family
VARIANTS: dict[str, list[Any]] = {
    "the whole engine": [],
    "no free steps": [patch.object(search.Search, "_set_free", _nothing)],
    "no straying": [patch.object(search.Search, "_set_astray", _nothing)],
    "no towering counts": [patch.object(search, "_sharper", lambda found, *_: found)],
    "no spikes at the start": [patch.object(collisions, "spikes", lambda *_: collisions.NONE)],
    "no cutting of blocks": [patch.object(search, "FINE_BELOW", 0)],
    "no second layout of hills": [patch.object(collisions, "_channels", _last_alone)],
    "no periods": [patch.object(search, "likely_periods", _none)],
    "no multiples": [patch.object(collisions, "likely_strides", _none), patch.object(auto, "likely_strides", _none)],
    "no points": [patch.object(search, "pulled_points", _none), patch.object(auto, "likely_points", _none)],
    "points at their best places": [patch.object(points, "_neighbourhood", lambda _, mixture, __: [mixture])],
    "without t, order 2": _families(F("t", 2)),
    "without t, order 3": _families(F("t", 3)),
    "without log(1+t), order 2": _families(F("log", 2)),
    "without log(1+t), order 3": _families(F("log", 3)),
    "without rising": _families(F("log", 2, rising=True)),
    "without log t": _families(F("log t", 2)),
    "without 1/t!": _families(F("t", 2, factorial=1.0)),
    "four families": _families(F("t", 3), F("log", 2), F("log", 2, rising=True)),
    "intervals by evidence alone": [patch.object(posterior, "_with_zero_apart", lambda _, weight: weight)],
}


@contextmanager
def without(name: str) -> Iterator[None]:
    """Answer without a part of the search."""
    patches = VARIANTS[name]
    for each in patches:
        each.start()
    try:
        yield
    finally:
        for each in patches:
            each.stop()


def cases(runs: int) -> Iterator[tuple[str, int, tuple[np.ndarray, NoisyCounts], int]]:
    for number, (kind, epsilon, power) in enumerate(SETTINGS):
        for shape in SHAPES:
            for run in range(runs):
                yield shape, number, case(shape, kind, epsilon, power, run), CELLS if kind == "known" else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], help="a variant, by name; may be given several times")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--verbose", action="store_true", help="print every sketch that changes by a twentieth")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    names = [name for name in VARIANTS if not options.only or name in options.only]
    names = [*dict.fromkeys(["the whole engine", *names])]
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    labels = []
    for shape, number, (truth, noisy), domain in cases(options.runs):
        labels.append(f"{shape}, {SETTINGS[number]}")
        for name in names:
            with without(name):
                found[name].append(measured(truth, noisy, domain))
    lines = ["| | ℓ1 | largest | W1 | largest | missed (unmarked) | time |", "|---|--:|---|--:|---|--:|--:|"]
    whole = found["the whole engine"]
    for name in names:
        ratio = {key: np.array([(each[key] + 1e-4) / (base[key] + 1e-4) for each, base in zip(found[name], whole)])
                 for key in ("l1", "w1")}  # fmt: skip
        cells = []
        for key in ("l1", "w1"):
            worst = int(ratio[key].argmax())
            cells += [f"{np.exp(np.log(ratio[key]).mean()):.3f}", f"{ratio[key][worst]:.2f}, {labels[worst]}"]
        total = {key: sum(each[key] for each in found[name]) for key in ("asked", "missed", "unmarked", "seconds")}
        share = f"{100 * total['missed'] / total['asked']:.1f} % ({100 * total['unmarked'] / total['asked']:.1f} %)"
        fast = total["seconds"] / sum(each["seconds"] for each in whole)
        lines.append(f"| {name} | {cells[0]} | {cells[1]} | {cells[2]} | {cells[3]} | {share} | {fast:.2f} |")
        if options.verbose:
            for label, l1, w1, each, base in zip(labels, *ratio.values(), found[name], whole):
                if max(l1, w1, 1 / l1, 1 / w1) > 1.05:
                    changes = [f"{key} {base[key]:.3g} → {each[key]:.3g}" for key in ("l1", "w1", "missed", "seconds")]
                    print(f"{name}: {label}: {', '.join(changes)}")
    text = "\n".join(lines)
    print(text)
    if options.write:
        head = f"## What each part of the search is worth\n\n{machine('numpy', 'scipy')}; {options.runs} to a case"
        write_section("ablation", f"{head}. {__doc__.split('. ', 2)[2].strip()}\n\n{text}")


if __name__ == "__main__":
    main()
