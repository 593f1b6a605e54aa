"""10⁹ updates through merges, epochs, threads, groups and files, against an exact shadow, with the noise switched off.

In every round each kind of sketch takes its share of the updates: arrays, arrays with counts (removals too), iterators
and four threads at once, on sketches that are released, opened again by epochs, merged in both ways, saved, loaded and
merged from files. The shadow adds up the same rows by NumPy, in cells found by the xxhash package from docs/format.md.
Every snapshot, and every sketch at the end, must equal its shadow in every cell. Files refuse noise that is switched
off, so that label is taken away here; nothing else is changed.

Broken on purpose: a row left out, a batch counted twice (a retry), a row in the next cell, a merge left out.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import xxhash
from _audit import Audit, table

from unnoise import GroupedSketch, Sketch, testing

ITEMS = 1 << 16
CELLS = 1 << 12
LEVELS = 4
ROUND = 20_000_000
RATE = "1/3"
GROUPS = ("A", "B", "C")
BROKEN = ("a lost row", "a batch twice", "a row in the next cell", "a lost merge")


def digest(item: int | str) -> int:
    """Return the hash of an item under seed 0, as docs/format.md has it."""
    raw = item.encode() if isinstance(item, str) else item.to_bytes(8, "little", signed=True)
    return xxhash.xxh64_intdigest(xxhash.xxh64_intdigest(raw).to_bytes(8, "little"), 0)


def levelled(h: int) -> int:
    size = CELLS // LEVELS
    return min(64 - h.bit_length(), LEVELS - 1) * size + h % size


@dataclass(frozen=True)
class Kind:
    """A kind of sketch: how it is made, all items that occur, and the cell of each (−1: none)."""

    make: Callable[[], Sketch]
    items: Any
    cell: np.ndarray
    cells: int


@cache
def kinds() -> dict[str, Kind]:
    rng = np.random.default_rng(0)
    numbers = rng.integers(-(2**63), 2**63 - 1, ITEMS)
    texts = [f"/page/{i}" + "é" * int(rng.integers(0, 30)) for i in range(ITEMS)]
    hashes = [digest(i) for i in numbers.tolist()]
    strings = [digest(text) for text in texts]
    sampled = np.array([digest(i) * 3 < 1 << 64 for i in range(ITEMS)])
    place = np.where(sampled, np.cumsum(sampled) - 1, -1)
    return {
        "known, integers": Kind(lambda: Sketch.known(ITEMS, epsilon=1), np.arange(ITEMS), np.arange(ITEMS), ITEMS),
        "known, a list": Kind(lambda: Sketch.known(texts, epsilon=1), pl.Series(texts), np.arange(ITEMS), ITEMS),
        "hashed, integers": Kind(
            lambda: Sketch.hashed(CELLS, epsilon=1), numbers, np.array([h % CELLS for h in hashes]), CELLS
        ),
        "hashed, strings": Kind(
            lambda: Sketch.hashed(CELLS, epsilon=1), pl.Series(texts), np.array([h % CELLS for h in strings]), CELLS
        ),
        "levels": Kind(
            lambda: Sketch.hashed(CELLS, levels=LEVELS, epsilon=1), numbers, np.array([*map(levelled, hashes)]), CELLS
        ),
        "sampled": Kind(
            lambda: Sketch.sampled(ITEMS, rate=RATE, epsilon=1), np.arange(ITEMS), place, int(sampled.sum())
        ),
        "pan-private": Kind(
            lambda: Sketch.known(ITEMS, epsilon=1, pan_private=True), np.arange(ITEMS), np.arange(ITEMS), ITEMS
        ),
    }  # fmt: skip


@dataclass
class Pair:
    """A sketch and its shadow."""

    kind: Kind
    sketch: Sketch
    shadow: np.ndarray

    @classmethod
    def new(cls, kind: Kind) -> Pair:
        return cls(kind, kind.make(), np.zeros(kind.cells, dtype=np.int64))


@dataclass
class Run:
    """What was done, and what differed; ``fault`` is what to break, once."""

    rng: np.random.Generator
    folder: Path
    fault: str = ""
    updates: int = 0
    done: dict[str, int] = field(default_factory=dict)
    different: int = 0

    def count(self, what: str) -> None:
        self.done[what] = self.done.get(what, 0) + 1

    def broken(self, what: str) -> bool:
        """Tell whether to break this, which happens once."""
        here = self.fault == what
        self.fault = "" if here else self.fault
        return here

    def compare(self, pair: Pair) -> None:
        self.different += int((testing.release(pair.sketch).counts != pair.shadow).sum())
        self.count("snapshots")


def add(run: Run, pair: Pair, rows: np.ndarray, counts: np.ndarray | None = None) -> Callable[[], None]:
    """Let the shadow count rows, given by their numbers; return what lets the sketch count them."""
    cells, kind = pair.kind.cell[rows], pair.kind
    weights = np.ones(rows.size, dtype=np.int64) if counts is None else counts
    inside = cells >= 0
    np.add.at(pair.shadow, cells[inside], weights[inside])
    run.updates += rows.size
    if run.broken("a lost row"):
        rows, counts = rows[inside][1:], None if counts is None else counts[inside][1:]
    if run.broken("a row in the next cell"):
        at = np.flatnonzero(inside)[0]
        np.add.at(pair.shadow, [cells[at], (cells[at] + 1) % kind.cells], [-weights[at], weights[at]])
    items = kind.items[rows]
    times = 2 if run.broken("a batch twice") else 1
    return lambda: [pair.sketch.update(items, counts) for _ in range(times)] and None


def feed(run: Run, pair: Pair, size: int) -> None:
    """Add ``size`` rows in one of the ways there are."""
    rows, way = run.rng.integers(0, ITEMS, size), run.rng.integers(0, 8)
    if way == 0:
        run.count("calls with counts")
        add(run, pair, rows, run.rng.integers(-3, 1000, size))()
    elif way == 1:
        run.count("calls by an iterator")
        some = rows[: 1 + size // 50]
        pair.sketch.update(iter(pair.kind.items[some].to_list() if isinstance(pair.kind.items, pl.Series)
                                else pair.kind.items[some].tolist()))  # fmt: skip
        inside = pair.kind.cell[some]
        np.add.at(pair.shadow, inside[inside >= 0], 1)
        run.updates += some.size
        add(run, pair, rows[some.size :])()
    elif way < 5:
        run.count("calls by four threads at once")
        calls = [add(run, pair, part) for part in np.array_split(rows, 4)]
        with ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(call) for call in calls]:
                done.result()
    else:
        run.count("calls")
        add(run, pair, rows)()


def merged(run: Run, first: Pair, second: Pair) -> Pair:
    """Merge two sketches in one of the ways there are; open ones are used up."""
    shadow = first.shadow + second.shadow
    if run.broken("a lost merge"):
        return Pair(first.kind, first.sketch, shadow)
    way = run.rng.integers(0, 3)
    if way == 0:
        run.count("merges")
        first.sketch.merge(second.sketch)
        return Pair(first.kind, first.sketch, shadow)
    if way == 1:
        run.count("merges by +")
        return Pair(first.kind, first.sketch + second.sketch, shadow)
    run.count("merges of files")
    loaded = []
    for number, pair in enumerate((first, second)):
        run.compare(pair)
        pair.sketch._label = None  # noise that is switched off refuses to be saved
        path = run.folder / f"{number}.sketch"
        pair.sketch.save(path)
        domain = pair.kind.items if pair.sketch.layout.fingerprint else None
        loaded.append(Sketch.load(path, domain=domain, later=bool(number)))
    loaded[0].merge(loaded[1])
    return Pair(first.kind, loaded[0], shadow)


def soak(run: Run, kind: Kind, updates: int) -> None:
    """Add so many rows to sketches of one kind, with merges and epochs in between."""
    end = run.updates + updates
    pairs = [Pair.new(kind) for _ in range(3)]
    step = max(1, updates // 12)
    while run.updates < end:
        at = int(run.rng.integers(0, len(pairs)))
        feed(run, pairs[at], int(run.rng.integers(1, 2 * step)))
        what = run.rng.integers(0, 4)
        if what == 0 and len(pairs) > 1:
            pairs[0] = merged(run, pairs[0], pairs.pop())
        elif what == 1:
            run.compare(pairs[0])
        for pair in pairs:
            if pair.sketch.sealed:
                pair.sketch.begin_epoch()
                run.count("epochs")
        if len(pairs) < 2:
            pairs.append(Pair.new(kind))
    whole = pairs[0]
    for other in pairs[1:]:
        whole = merged(run, whole, other)
    run.compare(whole)


def soak_groups(run: Run, updates: int) -> None:
    """Add rows to a set of groups, in batches, and compare each group."""
    kind = kinds()["hashed, integers"]
    groups = GroupedSketch(GROUPS, kind.make)
    pairs = [Pair(kind, groups.sketches[name], np.zeros(CELLS, dtype=np.int64)) for name in GROUPS]
    for size in [updates // 4] * 4:
        rows, which = run.rng.integers(0, ITEMS, size), run.rng.integers(0, len(GROUPS), size)
        groups.update(kind.items[rows], np.array(GROUPS)[which])
        for number, pair in enumerate(pairs):
            pair.shadow += np.bincount(kind.cell[rows[which == number]], minlength=CELLS)
        run.updates += size
    run.count("sets of groups")
    for pair in pairs:
        run.compare(pair)


def one_round(seed: int, number: int, updates: int, fault: str = "") -> dict[str, Any]:
    """Return how many updates were made, what was done, and in how many cells something differed."""
    with tempfile.TemporaryDirectory() as folder, testing.noiseless():
        run = Run(np.random.default_rng([seed, number]), Path(folder), fault)
        share = updates // (len(kinds()) + 1)
        for kind in kinds().values():
            soak(run, kind, share)
        soak_groups(run, share)
    assert not run.fault, f"{fault} was to be broken and was not"
    return {"updates": run.updates, "done": run.done, "different": run.different}


def main() -> None:
    audit = Audit("soak", __doc__, updates=(10**9, 400_000), round=(ROUND, 400_000), broken=(20_000, 20_000))
    rounds = -(-audit["updates"] // audit["round"])
    found = audit.run({f"round {i}": partial(one_round, audit.seed, i, audit["round"]) for i in range(rounds)})
    wrong = audit.run({f: partial(one_round, audit.seed, i, audit["broken"], f) for i, f in enumerate(BROKEN)})
    updates, different = (sum(each[key] for each in found.values()) for key in ("updates", "different"))
    done: dict[str, int] = {}
    for each in found.values():
        for what, number in each["done"].items():
            done[what] = done.get(what, 0) + number
    failures = [f"{name}: {each['different']} cells differ" for name, each in found.items() if each["different"]]
    failures += [f"broken on purpose: {name} was not noticed" for name, each in wrong.items() if not each["different"]]
    if updates < audit["updates"]:
        failures.append(f"{updates:,} updates were made, {audit['updates']:,} were to be")
    rows = [
        *sorted(done.items()),
        *((f"broken on purpose: {n}, cells that differ", e["different"]) for n, e in wrong.items()),
    ]
    text = table(["", "number"], ((name, f"{number:,}") for name, number in rows))
    audit.close(
        f"{updates:,} updates, {different} differences in {done['snapshots']:,} snapshots", text, failures, "polars"
    )


if __name__ == "__main__":
    main()
