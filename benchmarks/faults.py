"""Signals at random moments: every call counts all, or nothing, or leaves its sketch broken.

For each kind of call a timer interrupts it somewhere between its beginning and a little after its usual end, as Ctrl-C
would. The sketches have no noise, so their cells tell what was counted. ``--careless`` takes the guards away and must
find calls that were counted in part; the exit code is 1 then.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from unnoise import testing
from unnoise.reading.groups import GroupedSketch
from unnoise.sketches import intake
from unnoise.sketches.sketch import Sketch

CELLS = 256
ROWS = 300_000
ITEMS = np.random.default_rng(1).integers(0, CELLS, ROWS)
NAMES = np.array(["A", "B", "C"])[ITEMS % 3]
SHORT = 100_000
FEW = ITEMS[:200].tolist()


class Case:
    """Sketches without noise, a call that changes them, and how many rows of a stream it holds back."""

    def __init__(self, make: Callable[[], Any], call: Callable[[Any], Any], stage: int = 1 << 20) -> None:
        self.make, self.call, self.stage = make, call, stage

    def sketches(self, target: Any) -> list[Sketch]:
        return list(target.sketches.values()) if isinstance(target, GroupedSketch) else [target]

    def cells(self, target: Any) -> bytes:
        return b"".join(sketch._held.array().tobytes() for sketch in self.sketches(target))


def hashed(**options: Any) -> Sketch:
    return Sketch.hashed(CELLS, epsilon=1, **options)


def known(**options: Any) -> Sketch:
    return Sketch.known(CELLS, epsilon=1, **options)


def grouped(make: Callable[..., Sketch], **options: Any) -> Callable[[], GroupedSketch]:
    return lambda: GroupedSketch(["A", "B", "C"], lambda: make(**options))


def sealed() -> Sketch:
    sketch = hashed()
    sketch.update(FEW)
    testing.release(sketch)
    return sketch


def other() -> Sketch:
    with testing.noiseless():
        sketch = hashed()
        sketch.update(FEW)
    return sketch


CASES: dict[str, Case] = {
    "small, hashed": Case(hashed, lambda s: s.update(FEW)),
    "small, known": Case(known, lambda s: s.update(FEW)),
    "large, hashed": Case(hashed, lambda s: s.update(ITEMS)),
    "large, counts": Case(hashed, lambda s: s.update(ITEMS, ITEMS)),
    "large, known": Case(known, lambda s: s.update(ITEMS)),
    "stream, hashed": Case(hashed, lambda s: s.update(iter(ITEMS.tolist()))),
    "stream, known": Case(known, lambda s: s.update(iter(ITEMS.tolist()))),
    "long stream, hashed": Case(hashed, lambda s: s.update(iter(ITEMS.tolist())), SHORT),
    "long stream, known": Case(known, lambda s: s.update(iter(ITEMS.tolist())), SHORT),
    "persons": Case(lambda: hashed(max_contributions=10**6), lambda s: s.update(ITEMS, person=ITEMS)),
    "groups, hashed": Case(grouped(hashed), lambda g: g.update(ITEMS, NAMES)),
    "groups, known": Case(grouped(known), lambda g: g.update(ITEMS, NAMES)),
    "groups, few": Case(grouped(known), lambda g: g.update(FEW, NAMES[:200])),
    "groups, stream": Case(grouped(known), lambda g: g.update(iter(ITEMS.tolist()), iter(NAMES.tolist()))),
    "groups, long stream": Case(
        grouped(known), lambda g: g.update(iter(ITEMS.tolist()), iter(NAMES.tolist())), SHORT
    ),
    "groups, persons": Case(
        grouped(known, max_contributions=10**6), lambda g: g.update(ITEMS, NAMES, person=ITEMS)
    ),
    "merge": Case(hashed, lambda s: s.merge(other())),
}  # fmt: skip


def interrupted(call: Callable[[], Any], after: float) -> bool:
    """Tell whether the call was interrupted; the timer is off afterwards, whatever happened."""
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, after)
            call()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except BaseException:  # polars makes other errors of it
        signal.setitimer(signal.ITIMER_REAL, 0)
        return True
    return False


def outcome(case: Case, target: Any, before: bytes, after: bytes) -> str:
    deadline = time.monotonic() + 5
    while any(s._broken for s in case.sketches(target)) and time.monotonic() < deadline:
        now = case.cells(target)
        time.sleep(0.05)  # a commit that was interrupted twice is still being taken back
        if now == case.cells(target) and any(s._broken for s in case.sketches(target)):
            return "broken"
    now = case.cells(target)
    return "nothing" if now == before else "all" if now == after else "in part"


def run(name: str, signals: int, rng: random.Random) -> Counter[str]:
    case = CASES[name]
    intake.STAGE = case.stage
    with testing.noiseless():
        whole, untouched = case.make(), case.make()
        for _ in range(2):  # the first call imports and starts threads
            target = case.make()
            start = time.perf_counter()
            case.call(target)
            usual = time.perf_counter() - start
    case.call(whole)
    before, after = case.cells(untouched), case.cells(whole)
    found: Counter[str] = Counter()
    for _ in range(signals):
        with testing.noiseless():
            target = case.make()
        hit = interrupted(lambda target=target: case.call(target), max(1e-6, rng.uniform(0, 1.1 * usual)))
        what = outcome(case, target, before, after)
        found[what if hit or what != "all" else "not reached"] += 1
    return found


@contextmanager
def careless() -> Iterator[None]:
    """Take the guards away: changes in the main thread, nothing marked as broken."""

    @contextmanager
    def unguarded(secrets: Any, why: str) -> Iterator[None]:
        yield

    whole, intake.changing = intake.changing, unguarded
    apart, intake.apart = intake.apart, lambda work, stop: work()
    try:
        yield
    finally:
        intake.changing, intake.apart = whole, apart


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--signals", type=int, default=100, help="for each kind of call")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--careless", action="store_true", help="negative control: without the guards")
    options = parser.parse_args()
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    rng, total = random.Random(options.seed), Counter[str]()
    print("| call | nothing | all | broken | in part | not reached |\n|---|---|---|---|---|---|")
    for name in CASES:
        if options.careless:
            with careless():
                found = run(name, options.signals, rng)
        else:
            found = run(name, options.signals, rng)
        total += found
        kinds = ("nothing", "all", "broken", "in part", "not reached")
        print(f"| {name} | {' | '.join(str(found[kind]) for kind in kinds)} |", flush=True)
    print(f"{total.total()} signals: {', '.join(f'{number} {kind}' for kind, number in total.items())}")
    sys.exit(1 if total["in part"] else 0)


if __name__ == "__main__":
    main()
