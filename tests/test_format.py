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
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from unnoise.errors import FormatError, IncompatibleError, InputError
from unnoise.layout import Account, Labels, Layout
from unnoise.noise import DiscreteLaplace
from unnoise.sketches import cells
from unnoise.sketches import format as files
from unnoise.sketches.cells import FileCells
from unnoise.sketches.format import Stored, parameters_of, read_sketch, write_sketch
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


@pytest.mark.parametrize("cells", [2**16, 2**18])
def test_loaded_cells_stay_in_the_file_until_they_are_used(cells: int, tmp_path: Path) -> None:
    original = Sketch.hashed(cells, epsilon=1)
    original.save(tmp_path / "a")
    loaded = Sketch.load(tmp_path / "a")
    assert isinstance(loaded._held.parts[0], FileCells) == (cells > files.SMALL)
    counts = loaded.release().counts
    assert isinstance(loaded._held.parts[0], np.ndarray)
    assert (counts == original.release().counts).all()
    assert not counts.flags.writeable
    assert not counts.flags.owndata


def test_so_many_files_stay_open_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Sketch.hashed(64, epsilon=1).save(tmp_path / "a")
    monkeypatch.setattr(files, "SMALL", 0)
    monkeypatch.setattr(cells, "MOST_OPEN", 5)
    before = len(os.listdir("/proc/self/fd"))
    loaded = [Sketch.load(tmp_path / "a") for _ in range(20)]
    assert sum(isinstance(sketch._held.parts[0], FileCells) for sketch in loaded) == 5
    assert len(os.listdir("/proc/self/fd")) == before + 5
    del loaded
    assert len(os.listdir("/proc/self/fd")) == before


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
    monkeypatch.setattr(cells, "BLOCK", 7)
    monkeypatch.setattr(cells, "SPAN", 21)
    rng = np.random.default_rng(3)
    for size in (1, 6, 7, 20, 21, 22, 100):
        left, right = rng.integers(-(2**40), 2**40, (2, size))
        total, new = left + right, np.empty(size, dtype=np.int64)
        cells.add_cells(left, right, new)
        assert (new == total).all()
        cells.add_cells(left, right, left)
        assert (left == total).all()


def test_merging_never_changes_what_has_left(tmp_path: Path) -> None:
    one, two, three, four = (Sketch.hashed(64, epsilon=1) for _ in range(4))
    for sketch in (one, two):
        sketch.save(tmp_path / "x")  # sealed, and nobody else holds the cells
    before = one._held.array().copy()
    both = one + two
    assert (one.release().counts == before).all()
    assert (both._held.array() == before + two._held.array()).all()
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


def golden_labels() -> Labels:
    return Labels(**json.loads((GOLDEN / "sketch-v2.json").read_text())["labels"])


def test_golden_file_of_version_2() -> None:
    """Written once, as tests/golden/README.md tells, and never again."""
    stored, older = read_sketch(GOLDEN / "sketch-v2.arrow"), read_sketch(GOLDEN / "sketch-v1.arrow")
    assert (stored.cells == older.cells).all()
    assert (stored.noise, stored.layout, stored.account) == (older.noise, older.layout, older.account)
    assert stored.identities == older.identities
    assert older.labels == Labels(unit="person")
    assert stored.labels == golden_labels()
    page = (GOLDEN.parent.parent / "docs" / "format.md").read_text()
    for version in (1, 2):
        schema = pa.ipc.open_file(str(GOLDEN / f"sketch-v{version}.arrow")).schema
        assert schema.metadata[b"unnoise.digest"].decode() in page


def test_golden_file_is_still_written_to_the_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words for people may get better, so the guarantee is taken from the old file."""
    golden = (GOLDEN / "sketch-v2.arrow").read_bytes()
    old = json.loads(pa.ipc.open_file(pa.BufferReader(golden)).schema.metadata[b"unnoise.parameters"])
    monkeypatch.setattr("unnoise.sketches.format.guarantee", lambda *_: old["guarantee"])
    stored = replace(read_sketch(GOLDEN / "sketch-v1.arrow"), labels=golden_labels())
    write_sketch(tmp_path / "a", stored)
    assert (tmp_path / "a").read_bytes() == golden
    monkeypatch.setattr("unnoise.sketches.format.guarantee", lambda *_: "something else")
    write_sketch(tmp_path / "a", stored)
    assert (tmp_path / "a").read_bytes() != golden


def test_parameters_of_version_1_come_back_the_same() -> None:
    stored = read_sketch(GOLDEN / "sketch-v1.arrow")
    with pa.OSFile(str(GOLDEN / "sketch-v1.arrow")) as source:
        old = pa.ipc.open_file(source).schema.metadata
    then, now = json.loads(old[b"unnoise.parameters"]), json.loads(parameters_of(stored))
    assert then.pop("guarantee") and now.pop("guarantee")  # noqa: PT018
    assert {key: now[key] for key in then} == then
    assert {key for key in now if key not in then} == {"label", "site", "period", "column", "created", "report_ids"}


def digest_as_documented(raw: bytes, cells: bytes) -> str:
    """The digest of a file of version 2, straight from docs/format.md; the digest in it must still be 64 zeros."""
    at = raw.index(cells)
    head, tail = raw[:at], raw[at + len(cells) :]
    runs = [hashlib.sha256(cells[i : i + 8 * files.RUN]).digest() for i in range(0, len(cells), 8 * files.RUN)]
    return hashlib.sha256(
        b"unnoise sketch 2\n" + struct.pack("<Q", len(head)) + head + b"".join(runs) + tail
    ).hexdigest()


def test_digest_as_documented(tmp_path: Path) -> None:
    cells = np.arange(files.RUN + 5, dtype=np.int64) - 3
    layout = Layout(kind="known", cells=cells.size, domain=cells.size)
    write_sketch(tmp_path / "a", Stored(cells, DiscreteLaplace(1), layout, Account(), frozenset([b"x" * 16])))
    raw = (tmp_path / "a").read_bytes()
    digest = pa.ipc.open_file(pa.BufferReader(raw)).schema.metadata[b"unnoise.digest"]
    assert raw.count(digest) == 2
    assert digest_as_documented(raw.replace(digest, b"0" * 64), cells.tobytes()).encode() == digest


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_readers_of_files_and_of_streams_see_the_same(version: str) -> None:
    raw = (GOLDEN / f"sketch-{version}.arrow").read_bytes()
    file, stream = pa.ipc.open_file(pa.BufferReader(raw)), pa.ipc.open_stream(pa.BufferReader(raw[8:]))
    assert file.schema.equals(stream.schema, check_metadata=True)
    assert file.read_all().equals(stream.read_all())


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
    """Read a file that is in memory only."""
    handle = os.memfd_create("sketch")
    try:
        os.write(handle, raw)
        return read_sketch(f"/proc/self/fd/{handle}")
    finally:
        os.close(handle)


def test_every_truncation_is_noticed(good: bytes, tmp_path: Path) -> None:
    for size in range(64, len(good)):
        with pytest.raises(FormatError):
            load(good[:size])
    for size in (0, 1, 63, 64, len(good) - 1):
        (tmp_path / "bad").write_bytes(good[:size])
        with pytest.raises(FormatError, match="is not a valid sketch file"):
            Sketch.load(tmp_path / "bad")


@pytest.mark.parametrize("flip", [0x01, 0x41, 0x80, 0xFF])
def test_every_changed_byte_is_noticed(good: bytes, flip: int) -> None:
    """No byte of a file of version 2 can change unnoticed: not even padding."""
    accepted = []
    for at in range(len(good)):
        raw = bytearray(good)
        raw[at] ^= flip
        try:
            load(bytes(raw))
        except FormatError:
            continue
        accepted.append(at)
    assert accepted == []
    load(good)  # the unchanged one is fine


def test_no_changed_byte_of_version_1_changes_what_any_reader_sees() -> None:
    """Its digest covers parameters and cells only: what is accepted must mean the same to files and streams."""
    golden = (GOLDEN / "sketch-v1.arrow").read_bytes()
    expected, accepted = pa.ipc.open_file(pa.BufferReader(golden)).read_all(), 0
    for at in range(len(golden)):
        raw = bytearray(golden)
        raw[at] ^= 0x41
        try:
            load(bytes(raw))
        except FormatError:
            continue
        accepted += 1
        for reader in (pa.ipc.open_file, lambda source: pa.ipc.open_stream(source.read_buffer()[8:])):
            try:
                seen = reader(pa.BufferReader(bytes(raw))).read_all()
            except (pa.ArrowException, OSError):
                continue
            assert seen.equals(expected, check_metadata=True)
    print(f"version 1: {accepted} of {len(golden)} changed bytes accepted, none of them seen by a reader")
    assert accepted < 500


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


def forge(path: Path, column: Any = None, version: bytes = b"2", compression: Any = None, **changes: Any) -> Path:
    """Write a file that is consistent in itself (digest included) but says what it should not."""
    data = np.arange(1000, 1016) if column is None else column
    stored = Stored(
        np.zeros(16, dtype=np.int64), DiscreteLaplace(1), Layout(kind="hashed", cells=16, hash_seed=0), Account(),
        frozenset([bytes(16)]),
    )  # fmt: skip
    values = json.loads(parameters_of(stored))
    for name, value in changes.items():
        values.pop(name, None)
        if value is not ...:
            values[name] = value
    text = changes.get("_raw") or json.dumps(values).encode()
    column = pa.array(data)
    metadata = {
        b"unnoise": b"sketch", b"unnoise.version": version, b"unnoise.parameters": text,
        b"unnoise.digest": b"0" * 64,
    }  # fmt: skip
    schema = pa.schema([pa.field("noisy_count", column.type, nullable=False)], metadata=metadata)
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema, options=options) as writer:
        writer.write_batch(pa.record_batch([column], schema=schema))
    raw = path.read_bytes()
    if data.tobytes() in raw:
        path.write_bytes(raw.replace(b"0" * 64, digest_as_documented(raw, data.tobytes()).encode()))
    return path


def test_forged_file_without_lies_is_read(tmp_path: Path) -> None:
    assert read_sketch(forge(tmp_path / "a")).cells.tolist() == list(range(1000, 1016))


LIES: dict[str, tuple[dict[str, Any], str]] = {
    "newer version": ({"version": b"3"}, "its format version is 3, this unnoise reads up to 2: upgrade unnoise"),
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
    "kind": ({"kind": "magic"}, "kind must be .*, got 'magic'"),
    "no sketch": ({"kind": "direct"}, "its kind must be that of a sketch"),
    "kind type": ({"kind": ["hashed"]}, "kind must be of type str"),
    "known without domain": ({"kind": "known"}, "one cell per item"),
    "sampled without rate": ({"kind": "sampled"}, "must state domain, rate and hash_seed"),
    "known with text": ({"kind": "known", "domain": 16, "item_types": ["str"]}, "must have items of type int"),
    "levels": ({"levels": 3}, "levels of 2"),
    "no levels": ({"levels": 0}, "levels must be an integer between 1 and 54"),
    "many levels": ({"levels": 55}, "levels must be an integer between 1 and 54"),
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
    "calls": ({"account": {"calls": -1, "promised": 0}}, "calls must be an integer between 0"),
    "many calls": ({"account": {"calls": 2**40, "promised": 0}}, "calls must be an integer between 0"),
    "contributions": ({"max_contributions": 2**40}, "max_contributions must be an integer between 1"),
    "huge power": ({"power": "1000000"}, "power must be at most 32,768"),
    "huge domain": ({"kind": "sampled", "domain": 2**60, "rate": "1/2"}, "at most 4,294,967,296 items"),
    "sample of another size": ({"kind": "sampled", "domain": 2**32, "rate": "1"}, "about rate·domain = 4.29497e"),
    "power that hangs": ({"power": "3/2", "epsilon": "1/100000"}, "epsilon must be at least 1/4096"),
    "tiny epsilon": ({"epsilon": "1/" + "9" * 50}, "epsilon must be between 1e-12 and 500"),
    "huge epsilon": ({"epsilon": "9" * 50}, "epsilon must be between 1e-12 and 500"),
    "fingerprint": ({"fingerprint": "x"}, "64 hexadecimal digits"),
    "unit": ({"unit": "person"}, "its unit must be occurrence, got 'person'"),
    "no unit": ({"unit": ""}, "its unit must be occurrence"),
    "missing label": ({"label": ...}, "label must be of type str"),
    "escape in a label": ({"label": "\x1b[2J"}, "label must be a printable text"),
    "long label": ({"label": "x" * 201}, "at most 200 characters"),
    "site type": ({"site": "north"}, "site must be of type list"),
    "sites in disorder": ({"site": ["b", "a"]}, "must be sorted"),
    "a report twice": ({"report_ids": ["a", "a"]}, "must be sorted, each once"),
    "number as a report": ({"report_ids": [7]}, "must be a list of texts"),
    "day": ({"created": "yesterday"}, "created must be a day"),
    "a key twice": ({"_raw": b'{"epsilon":"1","epsilon":"9"}'}, "hold each key once"),
    "not a number": ({"_raw": b'{"cells": NaN}'}, "must be JSON, got NaN"),
    "an identity twice": ({"identities": ["00" * 16] * 2}, "all different"),
    "many columns": ({"item_types": ["int"] * 300}, "at most 256 columns"),
    "a megabyte": ({"extra": "x" * (1 << 20)}, "parameters are longer than 1 MB"),
    "127 megabytes": ({"extra": "x" * (127 << 20)}, "parameters are longer than 1 MB"),
    "promised": ({"account": {"calls": 0, "promised": 1}}, "promised must be at most calls=0"),
    "pan_private": ({"pan_private": 1}, "pan_private must be of type bool"),
    "not an object": ({"_raw": b"[1]"}, "must be a JSON object"),
    "not JSON": ({"_raw": b"{"}, "is not a valid sketch file"),
    "not UTF-8": ({"_raw": b"\xff\xfe{}"}, "is not a valid sketch file"),
    "deep": ({"_raw": b"[" * 1_000_000}, "is not a valid sketch file"),
    "long number": ({"_raw": b'{"cells": ' + b"9" * 10_000 + b"}"}, "is not a valid sketch file"),
    "compressed": ({"compression": "lz4"}, "must not be compressed"),
    "floats": ({"cells_array": np.zeros(16)}, "one column noisy_count of int64"),
    "more values": ({"cells_array": np.arange(32)}, "must hold cells=16"),
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
    path = forge(tmp_path / "a", kind="sampled", domain=31, rate="1/2", item_types=["int"])
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
    with pytest.raises(FileNotFoundError, match=r"must be a sketch file, got a folder.*give the file of one group"):
        Sketch.load(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileNotFoundError, match=r"must be a sketch file, got a folder, pipe or device$"):
        Sketch.load(tmp_path / "pipe")
    with pytest.raises(FileNotFoundError, match="folder, pipe or device"):
        Sketch.load("/dev/zero")


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
from unnoise.sketches.format import Stored, read_sketch, write_sketch
from unnoise.layout import Labels
from unnoise.layout import Account, Layout
from unnoise.noise import DiscreteLaplace

path, rounds = Path(sys.argv[1]), int(sys.argv[2])
size = 1 << 15

def version(number):
    cells = np.full(size, number, dtype=np.int64)
    return Stored(cells, DiscreteLaplace(1), Layout(kind="hashed", cells=size, hash_seed=0), Account(),
                  frozenset([number.to_bytes(16, "little")]))

write_sketch(path, version(0))
start = time.perf_counter()
write_sketch(path, version(0))
took = time.perf_counter() - start
rng, last, written, partial = random.Random(1), 0, 0, 0
for _ in range(rounds):
    done, tell = os.pipe()
    child = os.fork()
    if child == 0:
        number = last
        while True:
            number += 1
            write_sketch(path, version(number))
            os.write(tell, b"x")
    if rng.random() < 0.6:
        os.read(done, 1)  # let one be written, however busy the machine
    time.sleep(took * rng.random())
    os.close(done)
    os.close(tell)
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
        [sys.executable, "-c", WRITER, str(tmp_path / "a"), "200"], capture_output=True, text=True, timeout=600
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
