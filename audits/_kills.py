"""Writers killed at random moments: whatever is there afterwards is whole, and nothing that was told is lost.

A child writes again and again and tells, over a pipe, after each time it is done; it is ended by SIGKILL at a random
moment, and then everything on the disk is looked at. ``KINDS`` are what is written; each has a broken variant that must
be found.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unnoise.ledger import Ledger, read_ledger
from unnoise.reading import groups
from unnoise.reading.groups import GroupedSketch
from unnoise.sketches import format as files
from unnoise.sketches.sketch import Sketch

CELLS = 1 << 15


@dataclass(frozen=True)
class Kind:
    """Something that is written.

    prepare : makes what must be there before
    act : writes once; look : raises where something is not whole, returns what tells one state from another
    told : whether what was told must be there: act appends
    """

    prepare: Callable[[Path], Any]
    act: Callable[[Path], Any]
    look: Callable[[Path], Any]
    told: bool = False


def _sketch() -> Sketch:
    return Sketch.hashed(CELLS, epsilon=1)


def _merge(folder: Path) -> None:
    first = Sketch.load(folder / "a")
    first.merge(Sketch.load(folder / "b"))
    first.save(folder / "m")


def _prepare_merge(folder: Path) -> None:
    for name in "ab":
        _sketch().save(folder / name)


def _look_merge(folder: Path) -> Any:
    parts = [Sketch.load(folder / name) for name in "ab"]
    if not (folder / "m").exists():
        return "none yet"
    merged = Sketch.load(folder / "m")
    assert merged._identities == parts[0]._identities | parts[1]._identities
    total = sum(part.release().counts for part in parts)
    assert (merged.release().counts == total).all()
    left = sorted(folder.glob(".*"))
    return os.stat(folder / "m").st_ino, len(left)


def _groups() -> GroupedSketch:
    return GroupedSketch(["A", "B", "C"], lambda: Sketch.known(2000, epsilon=1))


def _look_groups(folder: Path) -> Any:
    loaded = GroupedSketch.load(folder / "set")
    assert loaded.groups == ("A", "B", "C")
    return sorted(min(sketch._identities) for sketch in loaded.sketches.values())


def _spend(folder: Path) -> None:
    Ledger(folder / "ledger", "visits").write("sketch", 1, "occurrence")


KINDS: dict[str, Kind] = {
    "save": Kind(lambda f: _sketch().save(f / "s"), lambda f: _sketch().save(f / "s"),
                 lambda f: min(Sketch.load(f / "s")._identities)),
    "merge": Kind(_prepare_merge, _merge, _look_merge),
    "set of groups": Kind(lambda f: _groups().save(f / "set"), lambda f: _groups().save(f / "set"), _look_groups),
    "ledger": Kind(_spend, _spend, lambda f: len(read_ledger(f / "ledger")), told=True),
}  # fmt: skip


def kills(name: str, number: int, seed: int) -> dict[str, Any]:
    """Kill so many writers; return how often the state had changed, and what was wrong."""
    kind, rng = KINDS[name], random.Random(f"{seed} {name}")
    folder = Path(tempfile.mkdtemp(prefix="unnoise-kills-"))
    wrong: list[str] = []
    changed = 0
    try:
        kind.prepare(folder)
        begun = time.perf_counter()
        kind.act(folder)
        usual = time.perf_counter() - begun
        last = kind.look(folder)
        for _ in range(number):
            told = _kill(kind, folder, usual, rng)
            try:
                now = kind.look(folder)
            except Exception as error:
                wrong.append(f"{type(error).__name__}: {str(error)[:120]}")
                shutil.rmtree(folder)
                folder.mkdir()
                kind.prepare(folder)
                last = kind.look(folder)
                continue
            if kind.told and not last + told <= now <= last + told + 1:
                wrong.append(f"{last} entries, {told} told, {now} found")
            changed += now != last
            last = now
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {"kills": number, "changed": changed, "wrong": wrong}


def _kill(kind: Kind, folder: Path, usual: float, rng: random.Random) -> int:
    """Let a child write and kill it; return how often it told that it was done."""
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            while True:
                kind.act(folder)
                os.write(sink, b"x")
        finally:
            os._exit(1)
    os.close(sink)
    told = len(os.read(source, 1)) if rng.random() < 0.6 else 0  # let one end, however busy the machine
    time.sleep(1.2 * usual * rng.random())
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with os.fdopen(source, "rb") as rest:
        return told + len(rest.read())


# ── broken on purpose ─────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def in_place() -> Iterator[None]:
    """Write sketch files where they are to stand, without a rename."""

    @contextmanager
    def replacing(path: Any, **_: Any) -> Iterator[Any]:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            yield handle
        finally:
            os.close(handle)

    real, files.replacing = files.replacing, replacing
    try:
        yield
    finally:
        files.replacing = real


@contextmanager
def old_set_first() -> Iterator[None]:
    """Remove the old set before the new one is written."""
    real = groups.save_set

    def save(folder: Any, sketches: Any, *, new: bool = False) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        real(folder, sketches, new=new)

    groups.save_set = save
    try:
        yield
    finally:
        groups.save_set = real


@contextmanager
def told_and_forgotten() -> Iterator[None]:
    """Write the first entry alone, and tell of all: whoever waits for one to be told finds it missing."""
    real, calls = Ledger.write, []

    def forgetting(self: Ledger, *words: Any) -> None:
        calls.append(words)
        if len(calls) == 1:
            real(self, *words)

    Ledger.write = forgetting
    try:
        yield
    finally:
        Ledger.write = real


BROKEN: dict[str, tuple[str, Callable[[], Any]]] = {
    "files written in place": ("save", in_place), "merged files written in place": ("merge", in_place),
    "the old set removed first": ("set of groups", old_set_first),
    "told and not written": ("ledger", told_and_forgotten),
}  # fmt: skip


def broken(name: str, number: int, seed: int) -> dict[str, Any]:
    """Kill writers of a broken variant."""
    kind, how = BROKEN[name]
    with how():
        return kills(kind, number, seed)
