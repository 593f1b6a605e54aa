"""How often the 95 % intervals hold the truth in every setting of KINDS, how wide they are, and too short ones beside.

Merged sketches (k = 1, 2, 3, 7, 20), hashed ones at loads from 0.05 to 4, levels and samples; both kinds of interval,
and bands that hold as a whole. Data *and* noise are drawn anew in every release: a model is right about the law of the
data, not about each data set by itself.

An answer fails where Clopper and Pearson's upper bound on its coverage, at confidence 1 − FALSE_ALARM over all rows
together, lies below LEAST. Entries of one release depend on each other, so a release counts once for them. The broken
variant is `total` with its interval shrunk to seven tenths of its width, which must be found in the sum of all rows.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from _audit import Audit, table
from scipy.stats import beta

from unnoise.answers.profile import Profile
from unnoise.answers.reconstruct import reconstruct
from unnoise.answers.simulate import Setting
from unnoise.errors import OverloadError

KINDS = {
    "merges": [
        Setting("known", 1, 10_000, 10_000, merges=k, shape=shape)
        for k in (1, 2, 3, 7, 20) for shape in ("geometric:20", "poisson:5", "uniform:50")
    ],
    "hashed": [Setting("hashed", 1, 1 << 14, round(load * (1 << 14)), shape=2.5) for load in (0.05, 0.25, 1, 2, 4)],
    "levels": [Setting("hashed", 1, 1 << 14, items, levels=8, shape=2.5) for items in (3_000, 30_000)],
    "sampled": [Setting("sampled", 1, 5_000, 50_000, shape=shape) for shape in ("geometric:20", "poisson:5", 2.5)],
}  # fmt: skip
"""Settings by kind of sketch."""

ENOUGH = 30
"""Items from which an entry counts as dense."""

TOGETHER = np.arange(1, 21)
"""Counts of the bands."""

PIECE = 50
LEAST, FALSE_ALARM = 0.93, 1e-3
ANSWERS = ("dense", "distinct", "total", "at_least(2)", "at_least(5)", "median", "quantile(0.9)", "band")


def kinds_of(setting: Any) -> tuple[str, ...]:
    return ("model",) if setting.kind == "hashed" else ("robust", "model")


def judge(p: Profile, release: Any, result: dict[str, Any]) -> None:
    """Add to each answer whether its interval holds, 1, and its width: dense entries, statistics, the whole band."""
    values, how_many = release.values, release.how_many
    truth = np.bincount(values[values <= TOGETHER[-1]], how_many[values <= TOGETHER[-1]], TOGETHER[-1] + 1)[1:]
    entries = p.entries(TOGETHER)
    low, high = entries.low * p.items, entries.high * p.items
    dense = truth >= ENOUGH
    result["dense"] += [((low <= truth + 1e-6) & (truth - 1e-6 <= high))[dense].sum(), dense.sum(),
                        (high - low)[dense].sum()]
    items = how_many.sum()
    ranked = values[np.searchsorted(np.cumsum(how_many), [np.ceil(q * items - 1e-9) for q in (0.5, 0.9)])]
    asks = [
        ("distinct", p.distinct, how_many[values > 0].sum()), ("total", p.total, values @ how_many),
        ("at_least(2)", p.at_least(2), how_many[values >= 2].sum()),
        ("at_least(5)", p.at_least(5), how_many[values >= 5].sum()),
        ("median", p.quantile(0.5), ranked[0]), ("quantile(0.9)", p.quantile(0.9), ranked[1]),
    ]
    for name, e, true in asks:
        result[name] += [e.low - 1e-6 <= true <= e.high + 1e-6, 1, e.high - e.low]
    result["band"] += [truth in p.band(TOGETHER), 1, 0]


def piece(setting: Any, seed: int, number: int, releases: int, shrunk: float) -> dict[str, dict[str, list[float]]]:
    """Return, by kind of interval and answer, how often it held and of how many; data and noise drawn anew."""
    found: dict[str, Any] = {kind: defaultdict(lambda: np.zeros(3)) for kind in kinds_of(setting)}
    rng = np.random.default_rng([seed, number])
    for _ in range(releases):
        release = setting.draw(rng)
        try:
            profile = reconstruct(release.noisy)
        except OverloadError:
            continue
        total = float(release.values @ release.how_many)
        for kind, held in found.items():
            judged = profile.with_intervals(kind)
            judge(judged, release, held)
            answer = judged.total
            middle, half = (answer.low + answer.high) / 2, shrunk * (answer.high - answer.low) / 2
            held["shrunk"] += [abs(total - middle) <= half + 1e-6, 1, 0]
    return {kind: {name: list(map(float, entry)) for name, entry in held.items()} for kind, held in found.items()}


def upper(share: float, releases: float, rows: int) -> float:
    """Return the most that the coverage may be, at confidence 1 − FALSE_ALARM over all rows."""
    hits = round(share * releases)
    return 1.0 if hits >= releases else float(beta.isf(FALSE_ALARM / rows, hits + 1, releases - hits))


def judged(results: dict[str, Any], chosen: list[tuple[str, Any]], pieces: range) -> Iterator[tuple[str, str, Any]]:
    """Yield a setting in words, the kind of interval and how often each answer held, over all pieces."""
    for name, setting in chosen:
        what = f"{name}, {setting.items:,} items in {setting.cells:,} cells, {setting.merges} merged, {setting.shape}"
        for kind in kinds_of(setting):
            got: dict[str, Any] = defaultdict(lambda: np.zeros(3))
            for i in pieces:
                for answer, entry in results.get(f"{name} {setting}, piece {i}", {kind: {}})[kind].items():
                    got[answer] += entry
            if got:
                yield what, kind, got


def main() -> None:
    warnings.simplefilter("ignore")
    audit = Audit("coverage", __doc__, releases=(1000, 2), settings=(100, 1), shrunk=(0.7, 0.01))
    chosen = [(name, setting) for name, settings in KINDS.items() for setting in settings[: audit["settings"]]]
    pieces, size = range(-(-audit["releases"] // PIECE)), min(PIECE, audit["releases"])
    calls = {
        f"{name} {setting}, piece {i}": partial(piece, setting, audit.seed, i, size, audit["shrunk"])
        for i in pieces for name, setting in chosen
    }  # fmt: skip
    results, rows, failures, short = audit.run(calls), [], [], np.zeros(2)
    tests = len(ANSWERS) * sum(len(kinds_of(setting)) for _, setting in chosen)
    for what, kind, got in judged(results, chosen, pieces):
        short += got["shrunk"][:2]
        releases = got["total"][1]
        shares = {answer: got[answer][0] / got[answer][1] for answer in ANSWERS if got[answer][1]}
        percent = [f"{100 * shares[answer]:.1f}" if answer in shares else "–" for answer in ANSWERS]
        rows.append([what, kind, int(releases), *percent, f"{got['dense'][2] / max(got['dense'][1], 1):,.0f}"])
        failures += [
            f"{what}, {kind}: {answer} holds in {100 * share:.1f} % of {releases:.0f} releases"
            for answer, share in shares.items() if upper(share, releases, tests) < LEAST
        ]  # fmt: skip
    low = len(failures)
    if upper(short[0] / short[1], short[1], 1) >= LEAST:
        failures.append(f"broken on purpose: intervals at {audit['shrunk']} of their width were not found out")
    text = table(["setting", "kind", "releases", *ANSWERS, "width of entries"], rows) + (
        f"\n\nPercent of releases in which the 95 % interval holds the truth; the last column is in items. "
        f"Broken on purpose: `total` at "
        f"{audit['shrunk']} of its width holds in {100 * short[0] / short[1]:.1f} %."
    )
    audit.close(f"{tests} answers in {len(rows)} settings, {low} below {LEAST:.0%}", text, failures, "scipy")


if __name__ == "__main__":
    main()
