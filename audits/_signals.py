"""Signals at random moments: every call counts all, or nothing, or leaves its sketch broken.

For each kind of call a timer interrupts it somewhere between its beginning and a little after its usual end, as Ctrl-C
would. The sketches have no noise, so their cells tell what was counted. What may happen:

    nothing      interrupted, and nothing was counted
    told         interrupted when all had been counted: the error carries a note that says so
    broken       a stream too long to be held back: the sketch refuses everything from then on
    not reached  the call had returned before the signal

*In part*, and *untold* (all was counted, and the error does not say so: a second try would count twice), are faults.
"""

from __future__ import annotations

import os
import random
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from unnoise import guard, testing
from unnoise.reading.groups import GroupedSketch
from unnoise.sketches import intake
from unnoise.sketches.sketch import Sketch

TOLD = {intake.COUNTED, guard.ENDED}
KINDS = ("nothing", "told", "broken", "not reached", "in part", "untold")
FAULTS = ("in part", "untold")
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


def interrupted(call: Callable[[], Any], after: float) -> BaseException | None:
    """Return what the interrupted call raised, None where it came to its end; the timer is off afterwards."""
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, after)
            call()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except BaseException as error:  # polars makes other errors of it
        signal.setitimer(signal.ITIMER_REAL, 0)
        return error
    return None


def counted(case: Case, target: Any, before: bytes, after: bytes) -> str:
    """Return how much was counted: "nothing", "all", "in part", or that the sketch is broken."""
    deadline = time.monotonic() + 5
    while any(s._broken for s in case.sketches(target)) and time.monotonic() < deadline:
        now = case.cells(target)
        time.sleep(0.05)  # a commit that was interrupted twice is still being taken back
        if now == case.cells(target) and any(s._broken for s in case.sketches(target)):
            return "broken"
    now = case.cells(target)
    return "nothing" if now == before else "all" if now == after else "in part"


def outcome(case: Case, target: Any, error: BaseException | None, before: bytes, after: bytes) -> str:
    """Return which of KINDS has happened."""
    found = counted(case, target, before, after)
    if found != "all":
        return found
    if error is None or not _inside(error):
        return "not reached"
    merged = case.call is CASES["merge"].call  # says nothing about counting: a second try is refused
    return "told" if merged or not TOLD.isdisjoint(getattr(error, "__notes__", [])) else "untold"


def _inside(error: BaseException) -> bool:
    """Whether the signal came while unnoise was at work, not between its return and the end of the timer."""
    frames = traceback.extract_tb(error.__traceback__)
    return any(f"{os.sep}unnoise{os.sep}" in frame.filename for frame in frames)


def signals(name: str, number: int, seed: int) -> dict[str, int]:
    """Interrupt a kind of call so often; return what happened how often."""
    case, rng = CASES[name], random.Random(f"{seed} {name}")
    stage, intake.STAGE = intake.STAGE, case.stage
    handler = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
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
        for _ in range(number):
            with testing.noiseless():
                target = case.make()
            error = interrupted(lambda target=target: case.call(target), max(1e-6, rng.uniform(0, 1.1 * usual)))
            found[outcome(case, target, error, before, after)] += 1
        return dict(found)
    finally:
        signal.signal(signal.SIGALRM, handler)
        intake.STAGE = stage


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
