"""Targets: what may be given to ``update``, and files in every format that is read."""

from __future__ import annotations

import contextlib
import io
import os
import random
import sqlite3
import tempfile
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from _children import Target, Unnoticed
from _mutations import VALUES, WORDS, damaged

from unnoise.reading.groups import GroupedSketch
from unnoise.sketches.sketch import Sketch

# ── update ────────────────────────────────────────────────────────────────────────────────────────────────────────

SCALARS: tuple[Any, ...] = (
    *VALUES, b"", b"\xff\x00", uuid.UUID(int=0), date(2026, 1, 1), Decimal("1e999"), np.int8(-1), np.uint64(2**64 - 1),
    np.float32("nan"), np.datetime64("NaT"), 1j, object(), type, ..., (), (1,), (1, "a"), (1, (2,)), ("\ud800",),
    frozenset(), range(3), memoryview(b"x"), np.void(b"xy"), np.ma.masked, slice(1), lambda: 1,
)  # fmt: skip


class Odd:
    """An object that lies about itself."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __len__(self) -> int:
        return {"short": 0, "long": 2**40}.get(self.what, 3)

    def __iter__(self) -> Iterator[Any]:
        if self.what == "raises":
            raise OSError("gone")
        return iter([1, 2, 3])

    def __getattr__(self, name: str) -> Any:
        protocols = ("__arrow_c_stream__", "__arrow_c_array__", "__array__", "__dataframe__")
        if name in protocols and self.what == "protocol":
            return lambda *_, **__: object()
        raise AttributeError(name)


def make_update(rng: random.Random) -> tuple[str, dict[str, Any]]:
    """Return which sketch to use, and the arguments of update."""
    given: dict[str, Any] = {"items": _column(rng)}
    for name in ("counts", "person"):
        if rng.random() < 0.35:
            given[name] = rng.choice((lambda: _column(rng), lambda: rng.choice(("x", "y", "", "items"))))()
    which = rng.choice(("hashed", "levels", "known", "list", "sampled", "persons", "groups"))
    if which == "groups":
        given["group"] = rng.choice((lambda: _column(rng), lambda: ["A", "B", None], lambda: "y", lambda: None))()
    return which, given


def _column(rng: random.Random) -> Any:
    """Return something that may be meant as a column or a table."""
    size = rng.choice((0, 1, 3, 3, 3, 17))
    few = [rng.choice(SCALARS) for _ in range(rng.choice((1, 1, 2)))]
    values = [rng.choice(few) for _ in range(size)]
    if rng.random() < 0.4:
        values = [rng.choice((1, 2**63 - 1, -1, 0)) for _ in range(size)]
    kind = rng.randrange(14)
    if kind == 0:
        return values
    if kind == 1:
        return iter(values)
    if kind == 2:
        return rng.choice(SCALARS)
    if kind == 3:
        return Odd(rng.choice(("short", "long", "raises", "protocol")))
    if kind == 4:
        return {rng.choice(("x", "y", "", "\x1b")): values, "y": values[: rng.choice((size, size, 1))]}
    if kind == 5:
        return [tuple(rng.choice(SCALARS) for _ in range(rng.choice((0, 1, 2, 2, 300)))) for _ in range(size)]
    return _array(rng, values, size, kind)


def _array(rng: random.Random, values: list[Any], size: int, kind: int) -> Any:
    """Return an array of some library, hostile inside."""
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    if kind in (6, 7):
        dtype = rng.choice(("i1", "u8", ">i8", "f8", "f2", "O", "U3", "S2", "M8[s]", "c16", "?", "V4", "m8[s]"))
        array = np.zeros((size, *rng.choice(((), (), (1,), (0,)))), dtype=dtype)
        return rng.choice((array, array[::-1], array[::2], np.ma.array(array, mask=True), np.asfortranarray(array)))
    with contextlib.suppress(Exception):  # a library may refuse to hold it: then something plainer
        if kind == 8:
            return pl.Series("x", values, strict=rng.random() < 0.5)
        if kind == 9:
            return pd.Series(values, dtype=rng.choice((None, object, "Int64", "string", "category")))
        if kind == 10:
            return pl.DataFrame({"x": values, "y": values}).select(rng.choice((["x"], ["x", "y"], [])))
        if kind == 11:
            return pa.array(values)
    return _arrow(rng, size)


def _arrow(rng: random.Random, size: int) -> Any:
    """Return Arrow data whose buffers are not what they must be."""
    import pyarrow as pa

    size = max(size, 1)
    bad = np.array([rng.choice(WORDS) if rng.random() < 0.7 else rng.randrange(9) for _ in range(2 * size + 2)])
    wide = rng.random() < 0.5
    memory = np.zeros(2 * size + 2, dtype=np.int64 if wide else np.int32)
    text = pa.py_buffer(rng.randbytes(rng.choice((1, 4, 64))))
    kind = rng.randrange(4)
    if kind == 0:
        index = pa.Array.from_buffers(pa.int64() if wide else pa.int32(), size, [None, pa.py_buffer(memory)])
        array = pa.DictionaryArray.from_arrays(index, pa.array(["a"]))
    elif kind == 1 and not wide:
        array = pa.Array.from_buffers(
            pa.list_(pa.int64()), size, [None, pa.py_buffer(memory)], children=[pa.array([1, 2])]
        )
    elif kind == 2:
        memory = np.zeros(2 * size + 2, dtype=np.int64)
        array = pa.Array.from_buffers(pa.string_view(), size, [None, pa.py_buffer(memory), text])
    else:
        types = (pa.large_string(), pa.large_binary()) if wide else (pa.string(), pa.binary())
        array = pa.Array.from_buffers(rng.choice(types), size, [None, pa.py_buffer(memory), text])
    table = pa.table({"x": array})
    held = rng.choice((array, array, pa.chunked_array([array]), table, table.to_reader()))
    memory[: size + 1] = bad[: size + 1].astype(memory.dtype)  # good when Arrow looked, bad from now on
    return held


@lru_cache(maxsize=1)
def _makers() -> dict[str, Callable[[], Any]]:
    def plain(**options: Any) -> Sketch:
        return Sketch.hashed(64, epsilon=1, **options)

    return {
        "hashed": plain, "levels": lambda: plain(levels=2), "known": lambda: Sketch.known(3, epsilon=1),
        "list": lambda: Sketch.known(["a", "b"], epsilon=1), "persons": lambda: plain(max_contributions=2),
        "sampled": lambda: Sketch.sampled(9, rate="1/2", epsilon=1),
        "groups": lambda: GroupedSketch(["A", "B"], plain),
    }  # fmt: skip


@lru_cache(maxsize=16)
def _kept(which: str) -> Any:
    return _makers()[which]()


def use_update(given: tuple[str, dict[str, Any]]) -> None:
    """Update a sketch; what failed must have changed nothing."""
    which, arguments = given
    target = _kept(which)
    sketches = list(target.sketches.values()) if which == "groups" else [target]
    before = [sketch._held.array().tobytes() for sketch in sketches]
    try:
        target.update(**arguments)
    except BaseException:
        if [sketch._held.array().tobytes() for sketch in sketches] != before:
            raise Unnoticed("counted in part") from None
        raise
    finally:
        if any(sketch._broken for sketch in sketches):
            _kept.cache_clear()


def updates() -> Target:
    """Arguments of update."""
    return Target(make_update, use_update, {"crash": _no_validation, "traceback": _no_text_check})


def _no_validation() -> None:
    from unnoise.sketches import inputs

    inputs.validate = lambda data: None


def _no_text_check() -> None:
    import polars as pl

    from unnoise.sketches import inputs

    inputs._strings = lambda values, name: pl.Series(name, values, dtype=pl.String)


# ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Read:
    """A file to read: its bytes, its ending, and whether it comes by standard input."""

    data: bytes
    format: str
    ending: str
    streamed: bool


@lru_cache(maxsize=1)
def good_files() -> dict[str, bytes]:
    """A good file of every format."""
    import duckdb
    import polars as pl

    frame = pl.DataFrame({"x": ["a", "b", None], "n": [1, 2, 3]})
    found = {
        "csv": frame.write_csv().encode(), "tsv": frame.write_csv(separator="\t").encode(),
        "ndjson": frame.write_ndjson().encode(), "lines": b"a\nb\n", "uniq": b"   3 a\n      1 b c\n",
        "freqcount": b"1 5\n2 3 # x\n",
    }  # fmt: skip
    for name, write in (("parquet", frame.write_parquet), ("arrow", frame.write_ipc)):
        sink = io.BytesIO()
        write(sink)
        found[name] = sink.getvalue()
    stream = io.BytesIO()
    frame.write_ipc_stream(stream)
    found["arrow stream"] = stream.getvalue()
    sink = io.BytesIO()
    np.save(sink, np.arange(5))
    found["npy"] = sink.getvalue()
    with tempfile.TemporaryDirectory() as place:
        with contextlib.closing(sqlite3.connect(f"{place}/a.sqlite")) as base:
            base.execute("CREATE TABLE t (x TEXT, n INTEGER)")
            base.execute("INSERT INTO t VALUES ('a', 1), ('b', 2)")
            base.commit()
        found["sqlite"] = Path(f"{place}/a.sqlite").read_bytes()
        with contextlib.closing(duckdb.connect(f"{place}/a.duckdb")) as base:
            base.execute("CREATE TABLE t (x TEXT, n BIGINT)")
        found["duckdb"] = Path(f"{place}/a.duckdb").read_bytes()
    return found


SHORT = ("csv", "tsv", "ndjson", "lines", "uniq", "freqcount")
FORMATS = (*SHORT, *SHORT, "parquet", "parquet", "arrow", "arrow", "arrow stream", "arrow stream", "npy", "sqlite")
TEXTS = (b"\xff", b"\x00", b'"', b'""', b",", b",,,,", b"\r\n", b"\n\n", b"\xef\xbb\xbf", b"9" * 40, b"-1", b"{",
         b"[1]", b'{"x":' + b"[" * 5000, b"\xed\xa0\x80", b"1e400", b"9" * 11 + b" 99\n", b"x" * 100_000)  # fmt: skip


def make_file(rng: random.Random) -> Read:
    """Damage a file of some format, or pack it in a hostile way."""
    import bz2
    import gzip

    kind = rng.choice(FORMATS) if rng.random() < 0.99 else "duckdb"
    good = good_files()
    data = damaged(rng, good[kind], list(good.values()))
    if kind in SHORT:
        for _ in range(rng.randrange(3)):
            at = rng.randrange(len(data) + 1)
            data = data[:at] + rng.choice(TEXTS) + data[at:]
    streamed = kind == "arrow stream" or (kind in (*SHORT, "arrow") and rng.random() < 0.3)
    format, ending = kind.split()[0], ""
    if kind in SHORT and not streamed and rng.random() < 0.15:
        packed = {".gz": gzip.compress(data, 1), ".bz2": bz2.compress(data, 1), ".zst": data}
        ending = rng.choice(sorted(packed))
        data = damaged(rng, packed[ending] or b"x", [data or b"x"]) if rng.random() < 0.5 else packed[ending]
    return Read(data, format, ending, streamed)


def use_file(read: Read) -> None:
    """Read it into a sketch, as the command line does."""
    from unnoise.reading.source import Wanted, open_source

    place = Path(tempfile.gettempdir()) / f"unnoise-{os.getpid()}.{read.format}{read.ending}"
    try:
        if not read.streamed:
            place.write_bytes(read.data)
        stream = io.BytesIO(read.data) if read.streamed else None
        source = open_source(["-" if read.streamed else place], format=read.format, stream=stream)
        columns = (source.kind.item,) if source.kind.item else ("x",)
        _kept("hashed").take_in(source.batches(Wanted(columns=columns, counts=source.kind.counts)))
    finally:
        place.unlink(missing_ok=True)
        if _kept("hashed")._broken or _kept("hashed")._types not in (None, ("str",)):
            _kept.cache_clear()


def files() -> Target:
    """Files in every format."""
    return Target(make_file, use_file, {"traceback": _unexplained})


def _unexplained() -> None:
    from contextlib import nullcontext

    from unnoise.reading import source

    source._readable = lambda *_: nullcontext()
