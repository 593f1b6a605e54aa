"""What the audit of hostile input has found (audits/files.py): one test a fault, each once a traceback or worse."""

from __future__ import annotations

import gzip
import hashlib
import json
import random
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "audits"))

import _corpus
import _hostile_files
import _hostile_inputs

from sketch_tools import make, refused
from unnoise.answers.reconstruct import reconstruct
from unnoise.errors import ConvergenceError, FormatError, InputError
from unnoise.layout import Layout
from unnoise.noise import DiscreteLaplace
from unnoise.noisy import NoisyCounts, tally
from unnoise.protocols.shares import Server, Task, combine
from unnoise.protocols.shares.task import pack, unpack
from unnoise.reading.groups import GroupedSketch
from unnoise.reading.source import Wanted, open_source
from unnoise.serve.client import Client
from unnoise.sketches.sketch import Sketch

MESSAGES = _corpus.messages()


def message(kind: int, text: bytes, payload: bytes = b"") -> bytes:
    """A message with any bytes as its head, and the digest that belongs to them."""
    body = struct.pack("<4sBBI", b"UNSH", 1, kind, len(text)) + text + payload
    return body + hashlib.sha256(body).digest()


@pytest.mark.parametrize("text", [b'{"a":"\\ud800"}', b'{"a":NaN}', b'{"a":Infinity}', b"[" * 100_000])
def test_heads_of_messages(text: bytes) -> None:
    """Lone surrogates could not be written again, which was an error of Unicode; NaN is no JSON."""
    with pytest.raises(FormatError, match="head must be JSON"):
        unpack(message(1, text), "task")
    assert unpack(message(1, b'{"a":"b"}'), "task")[0] == {"a": "b"}


@pytest.mark.parametrize("rate", ["1e999999999", "inf", "1/0", []])
def test_a_rate_that_never_ends(rate: Any) -> None:
    """1e999999999 was computed digit by digit, which takes hours."""
    head = unpack(MESSAGES["task"], "task")[0]
    hostile = pack("task", {**head, "layout": {**head["layout"], "rate": rate}})
    with pytest.raises(FormatError, match="task is not valid"):
        Task.from_bytes(hostile)


@pytest.mark.parametrize("side", [[], {}, None, 7])
def test_answers_of_no_side(side: Any) -> None:
    head, payload = unpack(MESSAGES["answer-seed"], "answer")
    hostile = pack("answer", {**head, "side": side}, payload)
    with pytest.raises(InputError, match="of both sides"):
        combine(Task.from_bytes(MESSAGES["task"]), hostile, MESSAGES["answer-difference"])


@pytest.mark.parametrize("name", ["\ud800", "x", ""])
def test_reports_that_cannot_be(name: str, tmp_path: Path) -> None:
    with (
        Server.create(tmp_path / "server", Task.from_bytes(MESSAGES["task"]), "seed") as server,
        pytest.raises(InputError, match="32 hexadecimal digits"),
    ):
        server.agree([name])


def test_a_group_that_is_no_text(tmp_path: Path) -> None:
    for name, data in _corpus.group_set().items():
        (tmp_path / name).write_bytes(data)
    GroupedSketch.load(tmp_path)
    values = json.loads((tmp_path / "groups.json").read_text())
    (tmp_path / "groups.json").write_text(json.dumps({**values, "groups": ["A", "\ud800"]}))
    with pytest.raises(FormatError, match="not a valid list of groups"):
        GroupedSketch.load(tmp_path)


def test_a_damaged_gzip_is_said_in_one_line(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(b"x\n" + b"abc\n" * 50, mtime=0))
    packed[12:20] = b"\xff" * 8
    (tmp_path / "a.csv.gz").write_bytes(packed)
    with pytest.raises(InputError, match="damaged"):
        list(open_source([tmp_path / "a.csv.gz"]).batches(Wanted(columns=("x",))))


def test_json_that_is_too_deep_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_bytes(b'{"x":"a"}\n{"x":' + b"[" * 100_000 + b"\n")
    with pytest.raises(InputError, match="row 2: not JSON that can be read"):
        list(open_source([tmp_path / "a.ndjson"]).batches(Wanted(columns=("x",))))


# ── update ────────────────────────────────────────────────────────────────────────────────────────────────────


def with_bad_offsets(wrapped: Callable[[Any], Any] = lambda array: array) -> Any:
    """Arrow data whose offsets lead out of their memory; they were good when Arrow looked at them."""
    offsets = np.zeros(4, dtype=np.int32)
    array = pa.Array.from_buffers(pa.binary(), 3, [None, pa.py_buffer(offsets), pa.py_buffer(b"abcd")])
    given = wrapped(array)
    offsets[:] = [0, 1, 255, 2**31 - 1]
    return given


class Lying:
    """Something that says it gives Arrow data, and does not."""

    def __init__(self, name: str) -> None:
        setattr(self, name, lambda *_: object())


HOSTILE: dict[str, Callable[[], tuple[Any, ...]]] = {
    "a stream without lengths": lambda: (with_bad_offsets(lambda a: pa.table({"x": a}).to_reader()),),  # a crash
    "groups beside an iterator": lambda: (iter(["a", "b", "c"]), with_bad_offsets()),  # a crash
    "no stream": lambda: (Lying("__arrow_c_stream__"),),
    "no array": lambda: (Lying("__arrow_c_array__"),),
    "a dictionary of lists": lambda: (pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array([[1]])),),
    "surrogates of pandas": lambda: (pd.Series(["\ud800"], dtype=object),),
    "complex numbers of pandas": lambda: (pd.Series(pd.Categorical([1j])),),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_columns(what: str) -> None:
    given = HOSTILE[what]()
    if len(given) == 2:
        grouped = GroupedSketch(["A"], make)
        refused(InputError, None, lambda: grouped.update(given[0], given[1]), *grouped.sketches.values())
    else:
        sketch = make()
        refused(InputError, None, lambda: sketch.update(given[0]), sketch)


def test_cells_whose_logarithm_has_no_end() -> None:
    """Most cells hold one item, and one of them a giant: the coefficients grow beyond all numbers, and were NaN."""
    cells = np.array([0] * 5 + [1] * 10 + [2**32])
    counts = NoisyCounts(cells, DiscreteLaplace(5), Layout(kind="hashed", cells=16, hash_seed=0))
    with pytest.raises(ConvergenceError, match="method='auto'"):
        reconstruct(counts, method="isotonic")
    assert reconstruct(counts).total.value > 2**31


def test_a_number_of_cells_beyond_all_floats(tmp_path: Path) -> None:
    golden = next(raw for raw in _corpus.sketch_files() if b'"kind":"sampled"' in raw)
    values = json.loads(_hostile_files.frame_of(golden).metadata[b"unnoise.parameters"])
    text = json.dumps({**values, "cells": 10**400}).encode()
    (tmp_path / "a").write_bytes(_hostile_files.repaired(_hostile_files.forged(text, np.zeros(16, np.int64), b"2")))
    with pytest.raises(FormatError, match="about rate·domain = 25 cells"):
        Sketch.load(tmp_path / "a")


@pytest.mark.parametrize("address", ["https://[", "http://127.0.0.1:x", "http://", "https:// x", "ftp://a", ""])
def test_addresses_of_no_collector(address: str) -> None:
    with pytest.raises(InputError, match="the address must be"):
        Client(address, "un_x")


def test_counts_next_to_the_end_of_64_bits() -> None:
    """Their median as a float is no such number."""
    high = 2**63 - 1
    values, how_many = tally(np.array([high, -5, high, high - 3, high]))
    assert values.tolist() == [-5, high - 3, high]
    assert how_many.tolist() == [1, 1, 3]


def test_a_parquet_file_that_asks_for_more_memory_than_there_is(tmp_path: Path, monkeypatch: Any) -> None:
    """Polars takes the lengths in a footer for true and aborts the process (input 6126): Arrow is asked first."""
    import polars as pl

    monkeypatch.setattr(pl, "scan_parquet", lambda *_, **__: pytest.fail("polars has seen the file"))
    hostile = tmp_path / "rows.parquet"
    hostile.write_bytes(_hostile_inputs.make_file(random.Random("1/6126")).data)
    with pytest.raises(InputError, match=r"not readable as parquet.*size limit"):
        open_source([str(hostile)]).schema(Wanted(columns=("x",)))
