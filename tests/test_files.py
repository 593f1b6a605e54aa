"""Sketch files: round trips, golden file, hostile files, killed writers."""

from __future__ import annotations

import hashlib
import json
import os
import random
import resource
import struct
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from unnoise.errors import FormatError, IncompatibleError, InputError
from unnoise.layout import Account, Layout
from unnoise.noise import DiscreteLaplace
from unnoise.sketches import cells as _cells
from unnoise.sketches.format import read as files
from unnoise.sketches.format.read import Stored, digest_of, read_sketch
from unnoise.sketches.format.write import write_sketch
from unnoise.sketches.sketch import Sketch

GOLDEN = Path(__file__).parent / "golden"

MAKE = {
    "hashed": lambda: Sketch.hashed(2**10, epsilon=0.3, hash_seed=2**64 - 1),
    "levels": lambda: Sketch.hashed(2**10, epsilon=1, levels=5, item_types=["int", "str"]),
    "known": lambda: Sketch.known(100, epsilon="1/3", pan_private=True),
    "list": lambda: Sketch.known(["a", "b", "é"], epsilon=2, max_contributions=3),
    "sampled": lambda: Sketch.sampled(1000, rate=0.1, epsilon=1, hash_seed=9),
}


@pytest.mark.parametrize("kind", MAKE)
def test_round_trip(kind: str, tmp_path: Path) -> None:
    sketch = MAKE[kind]()
    sketch.save(tmp_path / "a")
    loaded = Sketch.load(tmp_path / "a")
    assert loaded.layout == sketch.layout
    assert loaded.noise == sketch.noise
    assert loaded.guarantee == sketch.guarantee
    assert repr(loaded) == repr(sketch)
    assert loaded._identities == sketch._identities
    assert (loaded.release().counts == sketch.release().counts).all()
    loaded.save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_loaded_cells_are_mapped_not_read(tmp_path: Path) -> None:
    Sketch.hashed(2**16, epsilon=1).save(tmp_path / "a")
    before = pa.total_allocated_bytes()
    cells = Sketch.load(tmp_path / "a").release().counts
    assert pa.total_allocated_bytes() - before < 2**16
    assert not cells.flags.writeable
    assert not cells.flags.owndata


def test_going_on_after_load(tmp_path: Path) -> None:
    first = Sketch.hashed(64, epsilon=1, max_contributions=1)
    first.update(["a"], person=["x"])
    first.save(tmp_path / "a")
    second = Sketch.load(tmp_path / "a")
    second.begin_epoch()
    second.update(["b"], person=["x"])
    second.save(tmp_path / "a")
    third = Sketch.load(tmp_path / "a")
    assert third.noise.power == 2
    assert third.person_epsilon == 2
    assert (Sketch.load(tmp_path / "a").release().counts == second.release().counts).all()


def test_a_list_is_needed_again_to_go_on(tmp_path: Path) -> None:
    Sketch.known(["a", "b"], epsilon=1).save(tmp_path / "a")
    lost = Sketch.load(tmp_path / "a")
    lost.begin_epoch()
    with pytest.raises(InputError, match="needs its domain to take items"):
        lost.update(["a"])
    with pytest.raises(IncompatibleError, match="fingerprint"):
        Sketch.load(tmp_path / "a", domain=["b", "a"])
    found = Sketch.load(tmp_path / "a", domain=["a", "b"])
    found.begin_epoch()
    found.update(["a", "b"])
    Sketch.known(7, epsilon=1).save(tmp_path / "b")
    by_number = Sketch.load(tmp_path / "b")
    by_number.begin_epoch()
    by_number.update([6])


def test_merging_files(tmp_path: Path) -> None:
    sketches = [Sketch.hashed(2**10, epsilon=1) for _ in range(3)]
    for i, sketch in enumerate(sketches):
        sketch.save(tmp_path / str(i))
    loaded = [Sketch.load(tmp_path / str(i)) for i in range(3)]
    total = sum(sketch.release().counts for sketch in sketches)
    both = loaded[0] + loaded[1]
    both.merge(loaded[2])
    assert (both.release().counts == total).all()
    assert both.noise.power == 3
    assert all((a.release().counts == b.release().counts).all() for a, b in zip(loaded, sketches))
    both.save(tmp_path / "all")
    assert (Sketch.load(tmp_path / "all").release().counts == total).all()


def test_merging_in_several_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_cells, "BLOCK", 7)
    monkeypatch.setattr(_cells, "SPAN", 21)
    rng = np.random.default_rng(3)
    for size in (1, 6, 7, 20, 21, 22, 100):
        left, right = rng.integers(-(2**40), 2**40, (2, size))
        total, new = left + right, np.empty(size, dtype=np.int64)
        assert _cells.add_cells(left, right, new) == np.abs(total).max()
        assert (new == total).all()
        _cells.add_cells(left, right, left)
        assert (left == total).all()
    left, right = np.zeros((2, 50), dtype=np.int64)
    left[43], right[43] = 2**62, 2**62
    for out in (left, np.empty(50, dtype=np.int64)):
        with pytest.raises(InputError, match="overflow"):
            _cells.add_cells(left, right, out)
        assert left.sum() == 2**62


def test_merging_never_changes_what_has_left(tmp_path: Path) -> None:
    one, two, three, four = (Sketch.hashed(64, epsilon=1) for _ in range(4))
    for sketch in (one, two):
        sketch.save(tmp_path / "x")  # sealed, and nobody else holds the cells
    before = one._cells.copy()
    both = one + two
    assert (one.release().counts == before).all()
    assert (both._cells == before + two._cells).all()
    released = both.release().counts
    kept = released.copy()
    both.merge(three)
    assert (released == kept).all()
    assert not both.sealed
    both.update([1])
    both.release()
    again = both.release().counts.copy()
    four.release()
    both.merge(four)
    assert both.sealed
    assert (both.release().counts == again + four.release().counts).all()
    with pytest.raises(ValueError, match="read-only"):
        both.release().counts[0] = 1


# ── golden file ───────────────────────────────────────────────────────────────────────────────────────────────


def test_golden_file_of_version_1() -> None:
    """Written once, as tests/golden/README.md tells, and never again."""
    sketch = Sketch.load(GOLDEN / "sketch-v1.arrow")
    expected = json.loads((GOLDEN / "sketch-v1.json").read_text())
    assert sketch.release().counts.tolist() == expected["cells"]
    assert sketch.noise == DiscreteLaplace(expected["epsilon"], expected["power"])
    assert sketch.layout == Layout(
        kind="hashed", cells=16, levels=2, hash_seed=7, item_types=("int", "str"), max_contributions=2
    )
    assert sketch._account == Account(calls=3, promised=1)
    assert sorted(identity.hex() for identity in sketch._identities) == expected["identities"]


def test_golden_file_is_still_written_to_the_byte(tmp_path: Path) -> None:
    stored = read_sketch(GOLDEN / "sketch-v1.arrow")
    with pa.memory_map(str(GOLDEN / "sketch-v1.arrow")) as source:
        old = pa.ipc.open_file(source).schema.metadata
    assert digest_of(old[b"unnoise.parameters"], stored.cells).encode() == old[b"unnoise.digest"]
    then, now = json.loads(old[b"unnoise.parameters"]), json.loads(files.parameters_of(stored))
    assert then.pop("guarantee")  # words for people, which may get better
    assert now.pop("guarantee")
    assert now == then


def test_digest_as_documented() -> None:
    cells = np.arange(files.RUN + 5, dtype=np.int64) - 3
    raw = struct.pack(f"<{cells.size}q", *cells.tolist())
    runs = hashlib.sha256(raw[: 8 * files.RUN]).digest() + hashlib.sha256(raw[8 * files.RUN :]).digest()
    expected = hashlib.sha256(b"unnoise sketch 1\n" + struct.pack("<Q", 2) + b"{}" + runs).hexdigest()
    assert digest_of(b"{}", cells) == expected


def test_other_arrow_readers_can_read_it(tmp_path: Path) -> None:
    sketch = Sketch.hashed(256, epsilon=1)
    sketch.save(tmp_path / "a.arrow")
    import polars as pl

    frame = pl.read_ipc(tmp_path / "a.arrow")
    assert frame["noisy_count"].to_list() == sketch.release().counts.tolist()


# ── hostile files ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def good(tmp_path: Path) -> bytes:
    sketch = Sketch.hashed(64, epsilon=1, levels=2, max_contributions=2)
    sketch.update(["a"], person=["x"])
    sketch.save(tmp_path / "good")
    return (tmp_path / "good").read_bytes()


def load(raw: bytes) -> Stored:
    """Read a file that is in memory, by the same code."""
    with files._errors_of_the_file():
        return files._read(pa.BufferReader(raw), len(raw))


def test_every_truncation_is_noticed(good: bytes, tmp_path: Path) -> None:
    for size in range(64, len(good)):
        with pytest.raises(FormatError):
            load(good[:size])
    for size in (0, 1, 63, 64, len(good) - 1):
        (tmp_path / "bad").write_bytes(good[:size])
        with pytest.raises(FormatError, match="is not a valid sketch file"):
            Sketch.load(tmp_path / "bad")


def test_every_changed_byte_of_the_data_is_noticed(good: bytes) -> None:
    """Flip each byte: refused, or (padding, footer) the very same sketch."""
    expected = load(good)
    noticed = 0
    for at in range(len(good)):
        raw = bytearray(good)
        raw[at] ^= 0x41
        try:
            got = load(bytes(raw))
        except FormatError:
            noticed += 1
            continue
        assert got.layout == expected.layout
        assert got.noise == expected.noise
        assert got.identities == expected.identities
        assert (got.cells == expected.cells).all()
    body = 8 * 64
    metadata = len(files.parameters_of(expected))
    assert noticed > body + metadata


def test_random_garbage_is_refused(good: bytes) -> None:
    rng = random.Random(5)
    for _ in range(500):
        raw = bytearray(good)
        for _ in range(rng.randrange(1, 30)):
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        try:
            load(bytes(raw))
        except FormatError:
            continue
    for size in (64, 100, 1000):
        with pytest.raises(FormatError):
            load(rng.randbytes(size))
        with pytest.raises(FormatError):
            load(b"ARROW1\0\0" + rng.randbytes(size) + b"ARROW1")


def forge(path: Path, column: Any = None, version: bytes = b"1", compression: Any = None, **changes: Any) -> Path:
    """Write a file that is consistent in itself (digest included) but says what it should not."""
    data = np.zeros(16, dtype=np.int64) if column is None else column
    stored = Stored(
        np.zeros(16, dtype=np.int64), DiscreteLaplace(1), Layout(kind="hashed", cells=16, hash_seed=0), Account(),
        frozenset([bytes(16)]),
    )  # fmt: skip
    values = json.loads(files.parameters_of(stored))
    for name, value in changes.items():
        values.pop(name, None)
        if value is not ...:
            values[name] = value
    parameters = changes.get("_raw") or json.dumps(values).encode()
    column = pa.array(data)
    digest = digest_of(parameters, data) if data.dtype == np.int64 else "0" * 64
    metadata = {
        b"unnoise": b"sketch", b"unnoise.version": version, b"unnoise.parameters": parameters,
        b"unnoise.digest": digest.encode(),
    }  # fmt: skip
    schema = pa.schema([pa.field("noisy_count", column.type, nullable=False)], metadata=metadata)
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema, options=options) as writer:
        writer.write_batch(pa.record_batch([column], schema=schema))
    return path


def test_forged_file_without_lies_is_read(tmp_path: Path) -> None:
    assert read_sketch(forge(tmp_path / "a")).cells.tolist() == [0] * 16


LIES: dict[str, tuple[dict[str, Any], str]] = {
    "newer version": ({"version": b"2"}, "its format version is 2, this unnoise reads up to 1: upgrade unnoise"),
    "odd version": ({"version": b"one"}, "its version must be a whole number"),
    "huge version": ({"version": b"9" * 5000}, "its version must be a whole number"),
    "huge cells": ({"cells": 2**62}, "its record batch must hold cells=4611686018427387904"),
    "beyond 64 bits": ({"cells": 2**200}, "must hold cells="),
    "fewer cells": ({"cells": 8}, "must hold cells=8"),
    "negative cells": ({"cells": -1}, "cells must be an integer ≥ 1, got -1"),
    "float cells": ({"cells": 16.0}, "cells must be of type int, got float"),
    "bool cells": ({"cells": True}, "cells must be of type int, got bool"),
    "missing cells": ({"cells": ...}, "cells must be of type int, got NoneType"),
    "text cells": ({"cells": "16"}, "cells must be of type int, got str"),
    "kind": ({"kind": "magic"}, "kind must be 'known', 'hashed' or 'sampled', got 'magic'"),
    "kind type": ({"kind": ["hashed"]}, "kind must be of type str"),
    "known without domain": ({"kind": "known"}, "one cell per item"),
    "sampled without rate": ({"kind": "sampled"}, "must state domain, rate and hash_seed"),
    "known with text": ({"kind": "known", "domain": 16, "item_types": ["str"]}, "must have items of type int"),
    "levels": ({"levels": 3}, "levels of 2"),
    "no levels": ({"levels": 0}, "levels must be an integer ≥ 1"),
    "no seed": ({"hash_seed": None}, "levels of 2"),
    "seed": ({"hash_seed": 2**64}, "hash_seed must be below"),
    "epsilon": ({"epsilon": "0"}, "epsilon must be > 0"),
    "epsilon number": ({"epsilon": 1.0}, "epsilon must be of type str"),
    "epsilon bomb": ({"epsilon": "1e999999999"}, "epsilon must be a fraction"),
    "epsilon long": ({"epsilon": "9" * 1000}, "epsilon must be a fraction"),
    "epsilon zero division": ({"epsilon": "1/0"}, "zero denominator"),
    "power": ({"power": "1/2"}, "its power must be ≥ 1, got 1/2"),
    "rate": ({"rate": "3/2"}, "rate must be above 0 and at most 1"),
    "item types": ({"item_types": ["float"]}, "item_types must each be"),
    "item types type": ({"item_types": "int"}, "item_types must be of type list"),
    "no identity": ({"identities": []}, "identities must be a list"),
    "identity": ({"identities": ["xyz"]}, "identities must be a list"),
    "identity type": ({"identities": [5]}, "identities must be a list"),
    "account": ({"account": 5}, "account must be of type dict"),
    "calls": ({"account": {"calls": -1, "promised": 0}}, "calls must be an integer ≥ 0"),
    "promised": ({"account": {"calls": 0, "promised": 1}}, "promised must be at most calls=0"),
    "pan_private": ({"pan_private": 1}, "pan_private must be of type bool"),
    "not an object": ({"_raw": b"[1]"}, "must be a JSON object"),
    "not JSON": ({"_raw": b"{"}, "is not a valid sketch file"),
    "not UTF-8": ({"_raw": b"\xff\xfe{}"}, "is not a valid sketch file"),
    "deep": ({"_raw": b"[" * 100_000}, "is not a valid sketch file"),
    "long number": ({"_raw": b'{"cells": ' + b"9" * 10_000 + b"}"}, "is not a valid sketch file"),
    "compressed": ({"compression": "lz4"}, "must not be compressed"),
    "floats": ({"cells_array": np.zeros(16)}, "one column noisy_count of int64"),
    "more values": ({"cells_array": np.zeros(32, dtype=np.int64)}, "must hold cells=16"),
}


@pytest.mark.parametrize("lie", LIES)
def test_lies_are_refused(lie: str, tmp_path: Path) -> None:
    changes, message = LIES[lie]
    changes = dict(changes)
    cells = changes.pop("cells_array", None)
    path = forge(tmp_path / "a", cells, **changes)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(FormatError, match=message):
        Sketch.load(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kilobytes


def test_a_sample_that_is_none_is_noticed(tmp_path: Path) -> None:
    path = forge(tmp_path / "a", kind="sampled", domain=1000, rate="1/2", item_types=["int"])
    sketch = Sketch.load(path)
    sketch.begin_epoch()
    with pytest.raises(InputError, match=r"cells must be the \d+ items that rate and hash_seed sample, got 16"):
        sketch.update([1])


def test_nulls_and_other_arrow_files_are_refused(tmp_path: Path) -> None:
    import polars as pl

    pl.DataFrame({"noisy_count": [1, 2, 3]}).write_ipc(tmp_path / "a")
    with pytest.raises(FormatError, match="an Arrow file, but not one of unnoise"):
        Sketch.load(tmp_path / "a")
    (tmp_path / "b").write_text("x" * 1000)
    with pytest.raises(FormatError, match="another kind of file"):
        Sketch.load(tmp_path / "b")
    with pytest.raises(FileNotFoundError):
        Sketch.load(tmp_path / "none")
    with pytest.raises(FileNotFoundError):
        Sketch.load(tmp_path)


def test_declared_lengths_inside_the_record_batch_are_checked(good: bytes) -> None:
    """Overwrite every 8-byte word of the file with huge and negative numbers."""
    for at in range(0, len(good) - 8, 8):
        for value in (2**62, -1, 2**31 - 1):
            raw = bytearray(good)
            raw[at : at + 8] = struct.pack("<q", value)
            try:
                load(bytes(raw))
            except FormatError:
                continue


# ── interrupted writers ───────────────────────────────────────────────────────────────────────────────────────

WRITER = """
import os, random, signal, sys, time
from pathlib import Path
import numpy as np
import pyarrow
from fractions import Fraction
from unnoise.sketches.format.read import Stored, read_sketch
from unnoise.sketches.format.write import write_sketch
from unnoise.layout import Account, Layout
from unnoise.noise import DiscreteLaplace

path, rounds = Path(sys.argv[1]), int(sys.argv[2])
size = 1 << 15

def version(number):
    cells = np.full(size, number, dtype=np.int64)
    return Stored(cells, DiscreteLaplace(1), Layout(kind="hashed", cells=size, hash_seed=0), Account(),
                  frozenset([number.to_bytes(16, "little")]))

write_sketch(path, version(0))
rng, last, written, partial = random.Random(1), 0, 0, 0
for _ in range(rounds):
    child = os.fork()
    if child == 0:
        number = last
        while True:
            number += 1
            write_sketch(path, version(number))
    time.sleep(rng.random() * 0.03)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    stored = read_sketch(path)          # whole, and with its digest
    now = int(stored.cells[0])
    assert (stored.cells == now).all() and now >= last
    assert stored.identities == frozenset([now.to_bytes(16, "little")])
    written += now - last
    last = now
    for leftover in path.parent.glob(".*.tmp"):
        partial += 1
        leftover.unlink()
print(written, partial)
"""


def test_killed_writers_leave_a_whole_file(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WRITER, str(tmp_path / "a"), "200"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    written, partial = map(int, done.stdout.split())
    print(f"200 kills: {written} whole files written, {partial} kills in the middle of a file")
    assert written > 5
    assert partial > 5


def test_failing_writer_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    Sketch.hashed(64, epsilon=1).save(path)
    old = path.read_bytes()

    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    other = Sketch.hashed(64, epsilon=1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            other.save(path)
    assert path.read_bytes() == old
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
    assert other.sealed  # some of it may have reached the disk
    other.save(path)
    assert path.read_bytes() != old


def test_fractions_survive(tmp_path: Path) -> None:
    stored = Stored(
        np.arange(8), DiscreteLaplace(Fraction(1, 3), Fraction(7, 5)),
        Layout(kind="sampled", cells=8, domain=100, rate=Fraction(2, 7), hash_seed=0),
        Account(calls=2), frozenset([b"x" * 16]),
    )  # fmt: skip
    write_sketch(tmp_path / "a", stored)
    back = read_sketch(tmp_path / "a")
    assert (back.noise, back.layout, back.account) == (stored.noise, stored.layout, stored.account)
