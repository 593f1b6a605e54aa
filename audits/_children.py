"""Hostile inputs, one after another, in a process that may die of them.

A *target* makes an input out of a random generator and uses it. What may happen to an input is that it is **refused**
(an error that unnoise raises on purpose, or one of the operating system) or **accepted**. All else is a fault:

    traceback   another kind of error
    crash       the process was ended by a signal
    hang        more than ``seconds`` for one input
    memory      the process grew by more than ``memory`` bytes for one input
    unnoticed   accepted although it must not be: the target raises :class:`Unnoticed`

Inputs are numbered, and input n of a seed is always the same, so a fault can be had again by its number. The child
writes the number it is at into shared memory; the parent ends it where it stands still, and starts another behind the
input that was fatal.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import random
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unnoise.errors import UnnoiseError

SECONDS = 10.0
MEMORY = 256 << 20
ROOM = 8 << 30
"""Bytes of address space that a child may take: a bomb must not take the machine down."""

KINDS = ("traceback", "crash", "hang", "memory", "unnoticed")
PLACE = struct.Struct("<q")
STARTING = -1
DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of Linux."""


class Unnoticed(Exception):
    """Something was accepted that must not be."""


@dataclass
class Target:
    """What is attacked.

    make : an input out of a random generator, the same for the same generator
    use : uses it; raises, or returns
    broken : variants that must be found, by the kind of fault they show; each is applied in the child before it begins
    """

    make: Callable[[random.Random], Any]
    use: Callable[[Any], Any]
    broken: dict[str, Callable[[], Any]] = field(default_factory=dict)


# ── in the child ──────────────────────────────────────────────────────────────────────────────────────────────────


def play(target: Target, numbers: range, seed: int, place: mmap.mmap, until: str = "") -> dict[str, Any]:
    """Use the inputs of these numbers, or until a kind of fault; return how often what happened, and the faults."""
    happened: Counter[str] = Counter()
    faults: list[list[Any]] = []
    slowest, peak = 0.0, _peak()
    for number in numbers:
        PLACE.pack_into(place, 0, number)
        given = target.make(random.Random(f"{seed}/{number}"))
        begun = time.perf_counter()
        what, why = outcome(target, given)
        slowest = max(slowest, time.perf_counter() - begun)
        grown, peak = _peak() - peak, _peak()
        if grown > MEMORY:
            what, why = "memory", f"{grown >> 20} MB"
        happened[what] += 1
        if what in KINDS:
            faults.append([number, what, why])
        if what == until:
            break
    return {"happened": happened, "faults": faults, "slowest": slowest, "peak": peak}


def outcome(target: Target, given: Any) -> tuple[str, str]:
    """Return what becomes of one input, and why."""
    try:
        target.use(given)
    except Unnoticed as error:
        return "unnoticed", str(error)
    except (UnnoiseError, OSError):
        return "refused", ""
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        return "traceback", f"{type(error).__name__}: {str(error)[:200]}"
    return "accepted", ""


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def serve(targets: dict[str, Callable[[], Target]]) -> None:
    """Be the child, where this process was started as one."""
    if len(sys.argv) < 2 or sys.argv[1] != "--child":
        return
    name, broken, seed, start, stop, shared = sys.argv[2:]
    ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)
    target = targets[name]()
    if broken:
        target.broken[broken]()
    resource.setrlimit(resource.RLIMIT_AS, (ROOM, ROOM))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with open(shared, "r+b") as file:
        place = mmap.mmap(file.fileno(), PLACE.size)
        out = os.fdopen(os.dup(1), "w")
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        result = play(target, range(int(start), int(stop)), int(seed), place, until=broken)
        PLACE.pack_into(place, 0, int(stop))
        out.write(json.dumps(result))
        out.flush()
    os._exit(0)


# ── in the parent ─────────────────────────────────────────────────────────────────────────────────────────────────


def attack(script: str, name: str, numbers: range, seed: int, broken: str = "") -> dict[str, Any]:
    """Use the inputs of these numbers in children; return counts, faults, the slowest input and the peak of memory.

    With ``broken`` the target is that broken variant, and the first fault of its kind is enough.
    """
    total: Counter[str] = Counter()
    faults: list[list[Any]] = []
    slowest, peak, start = 0.0, 0, numbers.start
    while start < numbers.stop:
        found, at, why = _child(script, name, range(start, numbers.stop), seed, broken)
        if found is not None:
            total.update(found["happened"])
            faults += found["faults"]
            slowest, peak, start = max(slowest, found["slowest"]), max(peak, found["peak"]), numbers.stop
            continue
        if at == STARTING:
            raise RuntimeError(f"{name}: the child did not begin: {why}")
        # what went before the fatal input was counted in the memory of the dead child: once more, without it
        if at > start and not broken:
            before = attack(script, name, range(start, at), seed, broken)
            total.update(before["happened"])
            faults += before["faults"]
            slowest, peak = max(slowest, before["slowest"]), max(peak, before["peak"])
        total[why.split(":")[0]] += 1
        faults.append([at, why.split(":")[0], why])
        start = numbers.stop if broken == why.split(":")[0] else at + 1
    return {"happened": dict(total), "faults": faults, "slowest": slowest, "peak": peak}


def _child(script: str, name: str, numbers: range, seed: int, broken: str) -> tuple[dict[str, Any] | None, int, str]:
    """Run one child; return its result, or else where it died and how."""
    with tempfile.NamedTemporaryFile(prefix="unnoise-audit-") as shared, tempfile.TemporaryFile() as said:
        shared.write(PLACE.pack(STARTING))
        shared.flush()
        place = mmap.mmap(shared.fileno(), PLACE.size)
        words = [sys.executable, script, "--child", name, broken, str(seed)]
        words += [str(numbers.start), str(numbers.stop), shared.name]
        child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=said, env=_environment())
        last, since, why = STARTING, time.monotonic(), ""
        while child.poll() is None:
            time.sleep(0.02)
            now = PLACE.unpack_from(place, 0)[0]
            if now != last:
                last, since = now, time.monotonic()
            patience = 120 if last == STARTING else 4 if broken else SECONDS
            if time.monotonic() - since > patience:
                why = f"hang: more than {patience:g} s"
                child.kill()
                child.wait()
        assert child.stdout is not None
        result = child.stdout.read()
        child.stdout.close()
        if child.returncode == 0:
            return json.loads(result), numbers.stop, ""
        said.seek(0)
        tail = said.read()[-300:].decode("utf-8", "replace")
        return None, PLACE.unpack_from(place, 0)[0], why or f"crash: exit {child.returncode} {tail}"


def _environment() -> dict[str, str]:
    """One thread, little address space for each, and a folder in memory for what is written."""
    shm = "/dev/shm" if Path("/dev/shm").is_dir() else tempfile.gettempdir()
    return {**os.environ, "OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1", "MALLOC_ARENA_MAX": "2", "TMPDIR": shm}
