"""Files merged into a file: the sum is never held, and nothing that happens meanwhile may change it."""

from __future__ import annotations

import subprocess
import sys
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from statistics_tools import farthest
from unnoise.errors import FormatError, InputError, PrivacyError
from unnoise.layout import Account, Layout
from unnoise.noise import DiscreteLaplace
from unnoise.sketches import cells as _cells
from unnoise.sketches import format as saving
from unnoise.sketches.format import RUN, Stored, write_sketch
from unnoise.sketches.sketch import Sketch


def saved(folder: Path, number: int, cells: int = 1000) -> list[Path]:
    paths = [folder / f"{i}.sketch" for i in range(number)]
    for path in paths:
        sketch = Sketch.known(cells, epsilon=1)
        sketch.update([0, 1, 1])
        sketch.save(path)
    return paths


def total(paths: list[Path]) -> Any:
    return sum(pa.ipc.open_file(str(path)).read_all()["noisy_count"].to_numpy() for path in paths)


@pytest.mark.parametrize("number", [2, 3, 5])
@pytest.mark.parametrize("cells", [7, 1000, RUN + 3, 3 * RUN])
def test_the_file_holds_the_sum(tmp_path: Path, number: int, cells: int) -> None:
    paths = saved(tmp_path, number, cells)
    merged = reduce(add, map(Sketch.load, paths))
    assert len(merged._held.parts) > 1, "not added up yet"
    merged.save(tmp_path / "sum")
    assert (total([tmp_path / "sum"]) == total(paths)).all()
    again = Sketch.load(tmp_path / "sum")
    assert again.noise.power == number
    assert len(again._identities) == number
    assert (again.release().counts == merged.release().counts).all()


def test_the_file_is_the_same_as_of_cells_added_up_first(tmp_path: Path) -> None:
    one, two = saved(tmp_path, 2)
    merged = Sketch.load(one) + Sketch.load(two)
    merged.save(tmp_path / "late")
    merged.release()
    assert len(merged._held.parts) == 1, "added up"
    merged.save(tmp_path / "early")
    assert (tmp_path / "late").read_bytes() == (tmp_path / "early").read_bytes()


def test_merge_in_place_and_a_merge_of_merges(tmp_path: Path) -> None:
    paths = saved(tmp_path, 4)
    left, second, right, fourth = map(Sketch.load, paths)
    left.merge(second)
    right.merge(fourth)
    (left + right).save(tmp_path / "sum")
    assert (total([tmp_path / "sum"]) == total(paths)).all()


def test_an_epoch_begun_on_a_part_does_not_reach_the_sum(tmp_path: Path) -> None:
    parts = [Sketch.known(1000, epsilon=1) for _ in range(2)]
    for i, part in enumerate(parts):
        part.save(tmp_path / str(i))  # sealed, but the cells are its own: an epoch would write into them
    expected = total([tmp_path / "0", tmp_path / "1"])
    merged = parts[0] + parts[1]
    for part in parts:
        part.begin_epoch()
        part.update([3] * 1000)
    merged.save(tmp_path / "sum")
    assert (total([tmp_path / "sum"]) == expected).all()


def test_the_same_for_a_merge_in_place(tmp_path: Path) -> None:
    left, right = Sketch.known(1000, epsilon=1), Sketch.known(1000, epsilon=1)
    left.release()
    right.save(tmp_path / "right")
    expected = left.release().counts + total([tmp_path / "right"])
    left.merge(right)
    right.begin_epoch()
    right.update([3] * 1000)
    assert (left.release().counts == expected).all()


def test_an_epoch_begun_on_the_sum(tmp_path: Path) -> None:
    paths = saved(tmp_path, 2)
    merged = Sketch.load(paths[0]) + Sketch.load(paths[1])
    merged.begin_epoch()
    merged.update([5] * 10**6)
    counts = merged.release().counts
    fresh = counts - total(paths)
    assert abs(fresh[5] - 10**6) <= farthest(1, 1)
    assert merged.noise.power == 3
    assert abs(fresh.sum() - 10**6) <= farthest(1000, 1)


def test_a_part_cannot_come_in_twice(tmp_path: Path) -> None:
    paths = saved(tmp_path, 2)
    merged = Sketch.load(paths[0]) + Sketch.load(paths[1])
    with pytest.raises(PrivacyError, match="identities must be disjoint"):
        merged.merge(Sketch.load(paths[1]))


def stored_with(value: int, identity: int) -> Stored:
    cells = np.array([value, 5], dtype=np.int64)
    layout = Layout(kind="known", cells=2, domain=2)
    return Stored(cells, DiscreteLaplace(1), layout, Account(), frozenset([identity.to_bytes(16, "big")]))


def test_overflow_is_refused_at_the_merge_not_at_the_save(tmp_path: Path) -> None:
    for i, value in enumerate((_cells.LIMIT - 5, 6, 3)):
        write_sketch(tmp_path / str(i), stored_with(value, i))
    large, four, three = (Sketch.load(tmp_path / str(i)) for i in range(3))
    with pytest.raises(InputError, match="would overflow, so nothing was changed"):
        large.merge(four)
    assert large.release().counts.tolist() == [_cells.LIMIT - 5, 5]
    large = Sketch.load(tmp_path / "0")
    large.merge(three)
    large.save(tmp_path / "sum")
    assert total([tmp_path / "sum"]).tolist() == [_cells.LIMIT - 2, 10]


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = saved(tmp_path, 2, 3 * RUN)
    old = paths[0].read_bytes()
    merged = Sketch.load(paths[0]) + Sketch.load(paths[1])
    written: list[int] = []

    def pwrite(handle: int, data: Any, position: int) -> int:
        written.append(position)
        if len(written) > 4:
            raise OSError(28, "No space left on device")
        return real(handle, data[: 1 + len(data) // 2], position)  # short writes are allowed

    real = saving.os.pwrite
    monkeypatch.setattr(saving.os, "pwrite", pwrite)
    with pytest.raises(OSError, match="No space left"):
        merged.save(paths[0])
    assert paths[0].read_bytes() == old
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.sketch", "1.sketch"]


def test_short_writes_are_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = saving.os.pwrite
    monkeypatch.setattr(saving.os, "pwrite", lambda handle, data, at: real(handle, data[: 1 + len(data) // 3], at))
    paths = saved(tmp_path, 1)
    assert Sketch.load(paths[0]).layout.cells == 1000


MEMORY = """
import sys
from pathlib import Path
from unnoise.sketches.sketch import Sketch

def resident():
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))

a, b, out = sys.argv[1:]
Sketch.known(10, epsilon=1).save(out)
before = resident()
merged = Sketch.load(a) + Sketch.load(b)
merged.save(out)
late = resident() - before
merged.release()
print(late, resident() - before)
"""


def test_the_sum_is_not_held(tmp_path: Path) -> None:
    cells = 2**23
    one, two = saved(tmp_path, 2, cells)
    command = [sys.executable, "-c", MEMORY, str(one), str(two), str(tmp_path / "sum")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    late, added_up = map(int, done.stdout.split())
    assert late < 0.4 * 8 * cells
    assert added_up > 0.9 * 8 * cells, "a release holds it: the measurement can tell"


# ── verified by the pass that merges ──────────────────────────────────────────────────────────────────────────


def corrupt(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


@pytest.mark.parametrize("cells", [RUN // 4, RUN + 3])
def test_one_pass_gives_the_same_file(tmp_path: Path, cells: int) -> None:
    paths = saved(tmp_path, 3, cells)
    for name, later in (("later", True), ("now", False)):
        reduce(add, (Sketch.load(path, later=later) for path in paths)).save(tmp_path / name)
    assert (tmp_path / "later").read_bytes() == (tmp_path / "now").read_bytes()
    merged = reduce(add, (Sketch.load(path, later=True) for path in paths))
    merged.save(tmp_path / "once")
    merged.save(tmp_path / "twice")
    assert (tmp_path / "once").read_bytes() == (tmp_path / "twice").read_bytes() == (tmp_path / "now").read_bytes()
    assert (merged.release().counts == total(paths)).all()


@pytest.mark.parametrize("which", [0, 1])
def test_a_corrupt_part_is_noticed_by_the_pass_and_nothing_leaves(tmp_path: Path, which: int) -> None:
    paths = saved(tmp_path, 2, RUN // 4)
    corrupt(paths[which])
    uses: dict[str, Any] = {
        "save": lambda sketch: sketch.save(tmp_path / "sum"),
        "release": lambda sketch: sketch.release(),
        "begin_epoch": lambda sketch: sketch.begin_epoch(),
    }
    for name, use in uses.items():
        merged = Sketch.load(paths[0], later=True) + Sketch.load(paths[1], later=True)
        for _ in range(1 if name == "begin_epoch" else 2):  # again: an unfinished pass leaves nothing that would pass
            with pytest.raises(FormatError, match=f"{paths[which].name} is not a valid sketch file: its digest"):
                use(merged)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.sketch", "1.sketch"]
    with pytest.raises(FormatError, match="its digest does not match"):
        Sketch.load(paths[which])


@pytest.mark.parametrize("use", ["save", "release"])
def test_a_file_changed_after_the_pass_is_noticed_by_the_next(tmp_path: Path, use: str) -> None:
    """A pass that merges leaves no tags: the next one verifies again."""
    paths = saved(tmp_path, 2, RUN // 4)
    merged = Sketch.load(paths[0], later=True) + Sketch.load(paths[1], later=True)
    merged.save(tmp_path / "sum")
    corrupt(paths[1])
    with pytest.raises(FormatError, match=r"1\.sketch is not a valid sketch file: its digest"):
        merged.save(tmp_path / "again") if use == "save" else merged.release()
    assert not (tmp_path / "again").exists()


def test_a_failed_pass_can_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = saved(tmp_path, 2, RUN + 3)
    merged = Sketch.load(paths[0], later=True) + Sketch.load(paths[1], later=True)
    real, calls = saving.os.pwrite, []

    def pwrite(handle: int, data: Any, position: int) -> int:
        calls.append(position)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        return real(handle, data, position)

    with monkeypatch.context() as patch:
        patch.setattr(saving.os, "pwrite", pwrite)
        with pytest.raises(OSError, match="No space left"):
            merged.save(tmp_path / "sum")
    merged.save(tmp_path / "sum")
    assert (total([tmp_path / "sum"]) == total(paths)).all()


def test_an_overflow_is_noticed_by_the_pass(tmp_path: Path) -> None:
    layout = Layout(kind="known", cells=RUN // 4, domain=RUN // 4)
    for i, value in enumerate((_cells.LIMIT - 3, 4, 3)):
        cells = np.zeros(RUN // 4, dtype=np.int64)
        cells[7] = value
        identity = frozenset([i.to_bytes(16, "big")])
        write_sketch(tmp_path / str(i), Stored(cells, DiscreteLaplace(1), layout, Account(), identity))
    large, four, three = (Sketch.load(tmp_path / str(i), later=True) for i in range(3))
    with pytest.raises(InputError, match="would overflow"):
        (large + four).save(tmp_path / "sum")
    assert not (tmp_path / "sum").exists()
    (Sketch.load(tmp_path / "0", later=True) + three).save(tmp_path / "sum")
    assert total([tmp_path / "sum"])[7] == _cells.LIMIT


def test_what_a_pass_has_verified_is_bounded_for_later_merges(tmp_path: Path) -> None:
    paths = saved(tmp_path, 3, RUN // 4)
    merged = Sketch.load(paths[0], later=True) + Sketch.load(paths[1], later=True)
    merged.save(tmp_path / "sum")
    assert merged._held.largest() >= int(np.abs(total(paths[:2])).max())
    merged.merge(Sketch.load(paths[2], later=True))
    assert (merged.release().counts == total(paths)).all()
