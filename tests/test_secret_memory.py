"""What stays in memory, and in errors, after a call: scanned from outside, as an intruder would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from sketch_tools import make
from unnoise import testing
from unnoise.reading.groups import GroupedSketch
from unnoise.reading.source import Wanted, open_source
from unnoise.sketches.hashing import hash_words
from unnoise.sketches.sketch import Sketch

SEED = 20_261_116
ITEMS = 200_000

CHILD = """
import sys
import numpy as np
from unnoise.reading.groups import GroupedSketch
from unnoise.sketches import domain, hashing
from unnoise.sketches.sketch import Sketch

case, careless = sys.argv[1], "careless" in sys.argv
if careless:
    hashing.wipe = domain.wipe = lambda *memory: None
items = np.random.default_rng(int(sys.argv[2])).integers(0, 2**62, int(sys.argv[3]))
names = np.where(items % 2, "A", "B")
for few in (items[:100], items):
    if case == "hashed":
        Sketch.hashed(1024, epsilon=1).update(few)
    elif case == "levels":
        Sketch.hashed(1024, epsilon=1, levels=4).update(few)
    elif case == "stream":
        Sketch.hashed(1024, epsilon=1).update(iter(few.tolist()))
    elif case == "groups":
        GroupedSketch(["A", "B"], lambda: Sketch.hashed(1024, epsilon=1)).update(few, names[: few.size])
    elif case == "persons":
        Sketch.hashed(1024, epsilon=1, max_contributions=1).update(few, person=few)
print("done", flush=True)
sys.stdin.read()
"""


def keys() -> Any:
    """The hashes of the items on their way into cells: whoever finds one finds its item (they are bijections)."""
    items = np.random.default_rng(SEED).integers(0, 2**62, ITEMS)[::100]
    key = hash_words(items)
    return np.unique(np.concatenate([key, hash_words(key)]))


def found_in_memory(process: int, wanted: Any) -> int:
    """Count words of the writeable memory of another process that are among the wanted ones."""
    found, filter_bits = 0, np.zeros(1 << 20, dtype=bool)
    filter_bits[wanted >> np.uint64(44)] = True
    maps = Path(f"/proc/{process}/maps").read_text().splitlines()
    with open(f"/proc/{process}/mem", "rb", buffering=0) as memory:
        for line in maps:
            match = re.match(r"([0-9a-f]+)-([0-9a-f]+) rw", line)
            if not match or "[v" in line:
                continue
            start, end = (int(part, 16) for part in match.groups())
            for at in range(start, end, 1 << 24):
                try:
                    words = np.frombuffer(os.pread(memory.fileno(), min(end - at, 1 << 24), at), dtype=np.uint64)
                except OSError:
                    continue
                words = words[filter_bits[words >> np.uint64(44)]]
                found += int(np.isin(words, wanted).sum())
    return found


def scan(case: str, *options: str) -> int:
    command = [sys.executable, "-c", CHILD, case, str(SEED), str(ITEMS), *options]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "done\n"
        try:
            return found_in_memory(child.pid, keys())
        except PermissionError:
            pytest.skip("the memory of another process must not be read here")
        finally:
            child.kill()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("case", ["hashed", "levels", "stream", "groups", "persons"])
def test_no_hash_of_an_item_stays_in_memory(case: str) -> None:
    assert scan(case) == 0


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_the_scan_finds_what_is_not_wiped() -> None:
    """Negative control: three items used to be read from the last block of keys; here all of it is."""
    assert scan("hashed", "careless") > 100


# ── errors ────────────────────────────────────────────────────────────────────────────────────────────────────

ALICE = "alice@example.org"


def values_in(error: BaseException) -> str:
    """What a tool that collects errors would send: messages, notes and local variables of our frames."""
    texts, waiting = [], [error]
    while waiting:
        one = waiting.pop()
        texts += [str(one), *getattr(one, "__notes__", [])]
        for frame, _ in traceback.walk_tb(one.__traceback__):
            if frame.f_code.co_filename != __file__:
                texts.append(repr(frame.f_locals))
        waiting += [other for other in (one.__cause__, one.__context__) if other is not None]
    return " ".join(texts)


def strict(**options: Any) -> Sketch:
    return Sketch.known(["x", "y"], epsilon=1, unknown="error", **options)


def from_a_file(folder: Path) -> None:
    (folder / "rows.csv").write_text(f"x\n{ALICE}\n")
    strict().take_in(open_source([folder / "rows.csv"]).batches(Wanted(columns=("x",))))


CALLS: dict[str, Callable[[Path], Any]] = {
    "outside": lambda folder: strict().update(["x", ALICE]),
    "array": lambda folder: strict().update(np.array([ALICE])),
    "frame": lambda folder: strict().update(pl.DataFrame({"x": [ALICE]})),
    "stream": lambda folder: strict().update(iter([ALICE])),
    "person": lambda folder: strict(max_contributions=1).update(["x", ALICE], person=[ALICE, ALICE]),
    "counts": lambda folder: strict().update([ALICE, "x"], ["many", ALICE]),
    "mixed": lambda folder: make().update([ALICE, 5]),
    "groups": lambda folder: GroupedSketch(["A"], strict).update([ALICE], ["A"]),
    "group": lambda folder: GroupedSketch(["A"], make, unknown="error").update([1], [ALICE]),
    "file": from_a_file,
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_no_item_in_errors_or_their_frames(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must be") as caught:
        CALLS[name](tmp_path)
    assert ALICE not in values_in(caught.value)


def test_a_tool_would_find_items_without_the_guard() -> None:
    """Negative control: the same call past the guard."""
    with pytest.raises(ValueError, match="must be") as caught:
        Sketch.update.__wrapped__(strict(), ["x", ALICE])  # type: ignore[attr-defined]
    assert ALICE in values_in(caught.value)


# ── what is released ──────────────────────────────────────────────────────────────────────────────────────────


def test_released_cells_are_frozen_and_no_view_of_live_ones(tmp_path: Path) -> None:
    sketch = make()
    counts = sketch.release().counts
    before = counts.copy()
    part: Any = counts
    while isinstance(part, np.ndarray):
        with pytest.raises(ValueError, match="WRITEABLE"):
            part.flags.writeable = True
        part = part.base
    sketch.begin_epoch()
    sketch.update(np.arange(1000))
    assert not np.shares_memory(counts, sketch._held.array())
    assert (counts == before).all()
    saved = make()
    saved.save(tmp_path / "a")
    loaded = Sketch.load(tmp_path / "a")
    kept = loaded.release().counts
    loaded.begin_epoch()
    assert not np.shares_memory(kept, loaded._held.array())


def test_sealed_cells_refuse_to_change() -> None:
    with testing.noiseless():
        sketch = make()
    testing.release(sketch)
    with pytest.raises(ValueError, match="read-only"):
        sketch._held.array()[0] = 1
