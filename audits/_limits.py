"""A full and a read-only disk, too little memory, a clock that jumps, a Spark executor that is killed."""

from __future__ import annotations

import datetime
import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from small_disk import on_small_disk
from unnoise import layout, ledger
from unnoise.ledger import Ledger, read_ledger
from unnoise.sketches.sketch import Sketch

MEGABYTE = 1 << 20
LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]),) * 2)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
sys.argv[:2] = ["unnoise"]
try:
    from unnoise.cli import run
    run()
except MemoryError:
    sys.exit(2)
"""


@contextmanager
def folder() -> Iterator[Path]:
    """A folder for a while."""
    place = Path(tempfile.mkdtemp(prefix="unnoise-faults-"))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def disks(number: int, seed: int, in_place: bool = False) -> dict[str, Any]:
    """Fill disks of random sizes, then make them read-only; "skipped" where mounting is not permitted."""
    rng, wrong = random.Random(f"{seed} disks"), []
    with folder() as place:
        for _ in range(number):
            found = on_small_disk(place, rng.randrange(64, 900) + 64, *(["in-place"] if in_place else []))
            if found is None:
                return {"skipped": "mounting is not permitted here", "disks": 0, "wrong": []}
            wrong += [found] if found else []
    return {"disks": number, "wrong": wrong}


def memory(number: int, seed: int) -> dict[str, Any]:
    """Run ``unnoise sketch`` with too little memory, a little more each time: the old file or the new one, whole."""
    rng, ended, wrong = random.Random(f"{seed} memory"), Counter[str](), []
    with folder() as place:
        (place / "rows.csv").write_text("x\n" + "a\nb\n" * 1000)
        target = place / "s.sketch"
        Sketch.hashed(2**21, epsilon=1, item_types=["str"]).save(target)
        for _ in range(number):
            old = min(Sketch.load(target)._identities)
            limit = int(MEGABYTE * rng.choice((rng.uniform(60, 400), rng.uniform(400, 1600), rng.uniform(1600, 6000))))
            words = ["sketch", "rows.csv", "-c", "x", "-e", "1", "--cells", "2^21", "-o", "s.sketch", "--force"]
            done = subprocess.run(
                [sys.executable, "-c", LIMITED, str(limit), *words], cwd=place, capture_output=True, timeout=300
            )
            new = min(Sketch.load(target)._identities) != old
            ended["replaced" if done.returncode == 0 else "refused" if done.returncode in (1, 2) else "ended"] += 1
            if new != (done.returncode == 0):
                wrong.append(f"exit {done.returncode}, {limit // MEGABYTE} MB: the file is {'new' if new else 'old'}")
            left = [path.name for path in place.iterdir() if path.name.startswith(".s.sketch")]
            if left and done.returncode in (0, 1, 2):
                wrong.append(f"left behind with exit {done.returncode}: {left}")
            for name in left:
                (place / name).unlink()
    return {"runs": number, "ended": dict(ended), "wrong": wrong}


@contextmanager
def jumping(rng: random.Random) -> Iterator[None]:
    """Let the clock say another time whenever it is asked: between 1970 and 2100, forwards and backwards."""

    class Jumping(datetime.datetime):
        """A clock that jumps."""

        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.datetime.fromtimestamp(rng.randrange(4_102_444_800), tz)

    layout.datetime, ledger.datetime = Jumping, Jumping  # type: ignore[attr-defined, misc]
    try:
        yield
    finally:
        layout.datetime, ledger.datetime = datetime.datetime, datetime.datetime  # type: ignore[attr-defined, misc]


def clock(number: int, seed: int, by_time: bool = False) -> dict[str, Any]:
    """Make, save, load, merge and record under a clock that jumps; ``by_time``: a ledger that goes by its times."""
    rng, wrong = random.Random(f"{seed} clock"), []
    with folder() as place, jumping(rng):
        days, last = set(), ""
        for n in range(number):
            parts = []
            for name in "ab":
                sketch = Sketch.known(8, epsilon=30)
                sketch.update(np.arange(8))
                sketch.save(place / name)
                parts.append(Sketch.load(place / name))
                days.add(parts[-1].labels.created)
            parts[0].merge(parts[1])
            if (parts[0].release().counts != 2).any():
                wrong.append("merged wrongly")
            Ledger(place / "ledger", "visits").write("sketch", 1, "occurrence")
            entries = read_ledger(place / "ledger")
            if by_time:
                entries = [entry for entry in entries if str(entry) >= last]
                last = max(map(str, entries), default=last)
            if len(entries) != n + 1:
                wrong.append(f"{len(entries)} entries of {n + 1}")
        if len(days) < number:
            wrong.append("the clock did not jump")
    return {"jumps": 3 * number, "wrong": wrong}


def spark() -> dict[str, Any]:
    """Kill a Spark executor in the middle of a job (tests/test_spark_cluster.py): other attempts, the same bits."""
    test = "tests/test_spark_cluster.py::test_a_killed_executor_changes_no_bit"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "0", test], cwd=ROOT, capture_output=True, text=True, timeout=900
    )
    wrong = [] if done.returncode == 0 and "1 passed" in done.stdout else [done.stdout[-300:]]
    return {"kills": 1, "wrong": wrong}


def shares(side: str, twice: int, seed: int, mode: str = "honest") -> dict[str, Any]:
    """Kill a server of shares at every system call that touches a file (tests/shares_kills.py)."""
    script = [sys.executable, str(ROOT / "tests" / "shares_kills.py"), mode, side, str(seed), str(twice)]
    done = subprocess.run(script, capture_output=True, text=True, timeout=1200)
    if done.returncode:
        return {"kills": 0, "wrong": [done.stderr[-300:]]}
    found: dict[str, Any] = json.loads(done.stdout)
    return found
