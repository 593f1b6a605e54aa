"""Sketch files: noisy cells and public parameters, nothing else; read without trust, written as a whole.

A sketch file is an Arrow IPC file of one record batch with one column, ``noisy_count`` (int64, not null, not
compressed), whose schema metadata hold the parameters as JSON and a digest. docs/format.md specifies it to the byte.

Version 2 digests **every byte of the file** but the digest itself, so that no byte can change unnoticed; version 1
digested parameters and cells. In both, what a reader of streams and a reader of files would see must agree
(:mod:`unnoise.sketches.flatbuffer`), and only bytes that were read into own memory and hashed are ever used
(:mod:`unnoise.sketches.cells`).

**Parameters** are JSON of bounded size. All are public: none depends on the data. Each is checked, type and range,
before anything is made of it: no number in a file, however consistent with its digest, makes a later step run for hours
or out of memory.

**Writing** is atomic (:mod:`unnoise.guard`) and one pass over the cells. They go out run by run on all processors, each
run added up (where the cells are a sum), digested and written while it is in the cache; nothing as long as the cells is
held. The disk is told to begin with every run, so that it works while others are digested. What Arrow puts around them
is written last, because it holds the digest.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np

from ..arrays import Int64
from ..errors import FormatError, InputError
from ..guard import replacing
from ..layout import Account, Labels, Layout, guarantee, usual_unit
from ..noise import DiscreteLaplace
from .cells import PIECE, RUN, FileCells, add_up, each_run, one_pass, read_at, sum_of
from .flatbuffer import COLUMN, MOST_PARAMETERS, Frame, read_frame

__all__ = [
    "RUN", "VERSION", "Stored", "digest_of", "digest_of_runs", "parameters_of", "parse_parameters", "read_layout",
    "read_sketch", "stored_digest", "write_sketch",
]  # fmt: skip

VERSION = 2
SMALL = 1 << 17
"""Files of at most so many cells are read into memory at once, others stay on the disk until needed."""

_FRACTION = re.compile(r"[0-9]{1,60}(/[0-9]{1,60})?")
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")
_IDENTITY = re.compile(r"[0-9a-f]{32}")
NOTHING_SAID = Labels()
LAYOUT: dict[str, tuple[Any, ...]] = {
    "kind": (str,), "cells": (int,), "domain": (int, None), "rate": (Fraction, None), "levels": (int,),
    "hash_seed": (int, None), "item_types": (list, None), "fingerprint": (str, None),
    "max_contributions": (int, None), "pan_private": (bool,),
}  # fmt: skip
LABELS: dict[str, type] = {
    "label": str, "unit": str, "created": str, "site": list, "period": list, "column": list, "report_ids": list,
}  # fmt: skip
ACCOUNT: dict[str, tuple[Any, ...]] = {"calls": (int,), "promised": (int,), "as_items": (int, 0)}
"""The kind of each parameter as it is read, and what stands for it where it may be missing."""


@dataclass(frozen=True, eq=False)
class Stored:
    """What a file holds.

    cells : the noisy counts
    noise, layout, account : the public parameters
    identities : the random identities (16 bytes each) of the noise vectors added up in the cells
    labels : what is said about it
    """

    cells: Int64 | FileCells
    noise: DiscreteLaplace
    layout: Layout
    account: Account
    identities: frozenset[bytes]
    labels: Labels = NOTHING_SAID


def read_sketch(path: str | os.PathLike[str], *, later: bool = False, name: str | None = None) -> Stored:
    """Check a sketch file whole and return what it holds (cells are read-only).

    ``later`` leaves the cells of a large file to the first pass over them, which verifies them. Errors call the file by
    ``name`` where its path is nothing for whoever reads them.
    """
    name = os.fspath(path) if name is None else name
    with _opened(os.fspath(path), name) as (handle, frame):
        stated, parameters = (frame.metadata.get(b"unnoise." + key, b"") for key in (b"version", b"parameters"))
        if not re.fullmatch(rb"[1-9][0-9]{0,8}", stated):
            raise FormatError(f"its version must be a whole number, got {stated[:20]!r}")
        version = int(stated)
        if version > VERSION:
            raise FormatError(f"its format version is {version}, this unnoise reads up to {VERSION}: upgrade unnoise")
        public = parse_parameters(parameters, version)
        if public["layout"].cells != frame.rows:
            raise FormatError(f"its record batch must hold cells={public['layout'].cells}, got {frame.rows}")

        def agrees(digests: list[bytes]) -> bool:
            found = digest_of_runs(parameters, digests) if version == 1 else digest_of(frame, digests)
            return found.encode() == frame.metadata[b"unnoise.digest"]

        file = FileCells(handle, len(frame.head), frame.rows, name, agrees)
        if file.size <= SMALL or not file.keep():
            return Stored(cells=sum_of([file], again=False), **public)
        if not later:
            file.verify()
        return Stored(cells=file, **public)


def stored_digest(path: str | os.PathLike[str]) -> str:
    """Return the digest that a sketch file carries, which tells its content; the cells are not read."""
    with _opened(os.fspath(path), os.fspath(path)) as (_, frame):
        return frame.metadata[b"unnoise.digest"].decode("ascii")


@contextmanager
def _opened(path: str, name: str) -> Iterator[tuple[int, Frame]]:
    """Open a regular file, nothing that blocks, like a pipe, and no device, and read what stands around its cells.

    Whatever is wrong in it names the file.
    """

    def read(position: int, length: int) -> bytes:
        if position < 0 or length < 0 or position + length > size:
            raise FormatError("it must hold all its bytes: truncated")
        memory = bytearray(length)
        read_at(handle, position, memoryview(memory))
        return bytes(memory)

    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise FileNotFoundError(f"no such file: {name}") from None
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            fix = "; of a set of groups, give the file of one group" if stat.S_ISDIR(found.st_mode) else ""
            raise FileNotFoundError(f"{name} must be a sketch file, got a folder, pipe or device{fix}")
        size = found.st_size
        yield handle, read_frame(read, size)
    except FileNotFoundError:
        raise
    except FormatError as error:
        text = str(error)
        raise FormatError(text if text.startswith(name) else f"{name} is not a valid sketch file: {text}") from None
    except (OSError, MemoryError, RecursionError, ValueError, struct.error) as error:
        raise FormatError(f"{name} is not a valid sketch file: {error}") from None
    finally:
        os.close(handle)


def digest_of(frame: Frame, digests: list[bytes]) -> str:
    """Return SHA-256 over all bytes of the file, the digest itself taken as 64 zeros and each run by its SHA-256."""
    head, tail = frame.with_digest("0" * 64)
    whole = hashlib.sha256(b"unnoise sketch 2\n" + len(head).to_bytes(8, "little") + head)
    whole.update(b"".join(digests))
    whole.update(tail)
    return whole.hexdigest()


def digest_of_runs(parameters: bytes, digests: list[bytes]) -> str:
    """Return the digest of version 1: SHA-256 over the parameters and the digests of all runs."""
    whole = hashlib.sha256(b"unnoise sketch 1\n" + len(parameters).to_bytes(8, "little") + parameters)
    whole.update(b"".join(digests))
    return whole.hexdigest()


# ── parameters ──────────────────────────────────────────────────────────────────────────────────────────────────────


def parameters_of(stored: Stored) -> bytes:
    """Return the parameters as canonical JSON (sorted keys, no spaces, UTF-8), if readers would accept them."""
    layout, noise, labels = stored.layout, stored.noise, stored.labels
    values = {
        **{name: getattr(layout, name) for name in LAYOUT},
        **{name: getattr(labels, name) for name in LABELS},
        "account": stored.account.to_dict(),
        "epsilon": str(noise.epsilon),
        "guarantee": guarantee(noise, layout, stored.account, len(stored.identities), len(labels.report_ids)),
        "identities": sorted(identity.hex() for identity in stored.identities),
        "power": str(noise.power),
        "rate": None if layout.rate is None else str(layout.rate),
        "unit": labels.unit or usual_unit(layout),
    }
    parameters = json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    if len(parameters) > MOST_PARAMETERS:
        raise InputError(
            f"parameters must be at most 1 MB, got {len(parameters):,} bytes: "
            f"{len(stored.identities):,} noises and their labels are too many for one file"
        )
    return parameters


def parse_parameters(parameters: bytes, version: int) -> dict[str, Any]:
    """Return noise, layout, account, identities and labels out of the JSON, everything checked."""
    if len(parameters) > MOST_PARAMETERS:
        raise FormatError("its parameters are longer than 1 MB")
    values = json.loads(parameters, object_pairs_hook=_object, parse_constant=_no_number)
    if not isinstance(values, dict):
        raise FormatError("its parameters must be a JSON object")
    layout = read_layout(values)
    noise = DiscreteLaplace(_field(values, "epsilon", Fraction), _field(values, "power", Fraction))
    if noise.power < 1:
        raise FormatError(f"its power must be ≥ 1, got {noise.power}")
    labels = Labels(unit=usual_unit(layout))
    if version > 1:
        said: dict[str, Any] = {name: _field(values, name, kind) for name, kind in LABELS.items()}
        labels = Labels(**said)
        if (labels.unit == "occurrence") != (layout.max_contributions is None) or not labels.unit:
            wanted = "occurrence" if layout.max_contributions is None else "a name other than occurrence"
            raise FormatError(f"its unit must be {wanted}, got {labels.unit!r}")
        if any(getattr(labels, name) != value for name, value in said.items()):
            raise FormatError("its sites, periods and report ids must be sorted, each once")
    spent, identities = _field(values, "account", dict), _field(values, "identities", list)
    if not identities or len(set(identities)) != len(identities) or not all(map(_IDENTITY.fullmatch, identities)):
        raise FormatError("its identities must be a list of 32 hexadecimal digits each, all different")
    return {
        "layout": layout,
        "noise": noise,
        "account": Account(**{name: _field(spent, name, *kind) for name, kind in ACCOUNT.items()}),
        "identities": frozenset(bytes.fromhex(identity) for identity in identities),
        "labels": labels,
    }


def _field(values: dict[str, Any], name: str, kind: type, *default: Any) -> Any:
    """Return a value of a kind, or the default where it may be missing; a list is one of texts, a fraction exact."""
    value = values.get(name)
    if value is None and default:
        return default[0]
    wanted: type[Any] = str if kind is Fraction else kind
    if not isinstance(value, wanted) or (kind is int and isinstance(value, bool)):
        raise FormatError(f"its parameter {name} must be of type {wanted.__name__}, got {type(value).__name__}")
    if isinstance(value, list):
        if not all(isinstance(text, str) for text in value):
            raise FormatError(f"its {name} must be a list of texts")
        return tuple(value)
    if kind is not Fraction:
        return value
    if not _FRACTION.fullmatch(value):
        raise FormatError(f"its parameter {name} must be a fraction such as 1/3")
    try:
        return Fraction(value)
    except ZeroDivisionError:
        raise FormatError(f"its parameter {name} must be a fraction, got a zero denominator") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a key that stands twice: readers disagree about which one counts."""
    values = dict(pairs)
    if len(values) != len(pairs):
        raise FormatError("its parameters must hold each key once")
    return values


def _no_number(name: str) -> NoReturn:
    raise FormatError(f"its parameters must be JSON, got {name}")


def read_layout(values: dict[str, Any]) -> Layout:
    """Return the layout out of the JSON, every type checked; refuse values that contradict each other."""
    layout = Layout(**{name: _field(values, name, *kind) for name, kind in LAYOUT.items()})
    size, rest = divmod(layout.cells, layout.levels)
    if layout.kind == "direct":
        raise FormatError("its kind must be that of a sketch, got 'direct'")
    if layout.kind == "hashed" and (rest or size & (size - 1) or layout.hash_seed is None):
        raise FormatError(f"a hashed sketch must have levels of 2^k cells, got {layout.cells} in {layout.levels}")
    if layout.kind == "known" and layout.domain != layout.cells:
        raise FormatError(f"a known sketch must have one cell per item, got {layout.domain} and {layout.cells}")
    if layout.kind == "sampled" and (layout.domain is None or layout.rate is None or layout.hash_seed is None):
        raise FormatError("a sampled sketch must state domain, rate and hash_seed")
    if layout.kind == "sampled":
        _require_sample(layout)
    if layout.fingerprint is not None and not _FINGERPRINT.fullmatch(layout.fingerprint):
        raise FormatError("its fingerprint must be 64 hexadecimal digits")
    if layout.kind != "hashed" and layout.fingerprint is None and layout.item_types not in (None, ("int",)):
        raise FormatError(f"a domain 0…d−1 must have items of type int, got {layout.item_types}")
    return layout


def _require_sample(layout: Layout) -> None:
    """Refuse a number of cells that no sample has: going on draws it anew, and must need no more memory than the file.

    The number of items whose hash is below the rate is binomial: eleven standard deviations off once in 10^27 files.
    """
    assert layout.domain is not None
    assert layout.rate is not None
    expected = layout.rate * layout.domain
    off = abs(layout.cells - expected) - 11
    if off > 0 and off * off > 121 * expected:
        raise FormatError(f"a sampled sketch must have about rate·domain = {float(expected):.6g} cells")


# ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def write_sketch(
    path: str | os.PathLike[str], stored: Stored, others: tuple[Int64 | FileCells, ...] = (), *, new: bool = False
) -> None:
    """Replace the file at ``path`` atomically (``new``: refuse one); ``others`` are added to the cells on the way."""
    frame = _frame(parameters_of(stored), stored.cells.size)
    start, parts = len(frame.head), (stored.cells, *others)

    def put(data: bytes | memoryview, position: int) -> None:
        """Write all of the data at a position."""
        rest = memoryview(data)
        while rest:
            written = os.pwrite(handle, rest, position)
            rest, position = rest[written:], position + written

    def write(run: slice) -> bytes:
        """Add up a run, in any thread, write it where it belongs and return its SHA-256."""
        digest, memory = hashlib.sha256(), np.empty((2, PIECE), dtype=np.int64)
        for first in range(run.start, run.stop, PIECE):
            total = add_up(parts, slice(first, min(first + PIECE, run.stop)), memory[0], memory[1])
            raw = np.ascontiguousarray(total, dtype="<i8").view(np.uint8).data
            digest.update(raw)
            put(raw, start + 8 * first)
        if hasattr(os, "posix_fadvise"):  # let the disk begin with it; fsync waits for what is left
            with suppress(OSError):
                length = 8 * (run.stop - run.start)
                os.posix_fadvise(handle, start + 8 * run.start, length, os.POSIX_FADV_DONTNEED)
        return digest.digest()

    with replacing(path, new=new) as handle:
        with one_pass(parts, again=False):
            digests = each_run(frame.rows, write)
        head, tail = frame.with_digest(digest_of(frame, digests))
        put(head, 0)
        put(tail, start + 8 * frame.rows)


def _frame(parameters: bytes, count: int) -> Frame:
    """Return all that Arrow writes before and after so many cells, the digest still 64 zeros.

    Arrow is given memory that nobody has touched, which therefore takes none, and hands it on, as the one buffer among
    the bytes that it writes, without looking at it; the file that it writes into does not keep that.
    """
    import pyarrow as pa

    sides, values = (bytearray(), bytearray()), [0]

    def write(data: Any) -> int:
        if isinstance(data, bytes):
            sides[values[0] > 0].extend(data)
        else:
            assert not values[0], "Arrow writes the values of a column as one buffer"
            values[0] = len(data)
        return len(data)

    def size() -> int:
        return len(sides[0]) + values[0] + len(sides[1])

    def read(position: int, length: int) -> bytes:
        side, start = (sides[0], 0) if position + length <= len(sides[0]) else (sides[1], len(sides[0]) + values[0])
        return bytes(side[position - start : position - start + length])

    metadata = {
        b"unnoise": b"sketch",
        b"unnoise.version": str(VERSION).encode(),
        b"unnoise.parameters": parameters,
        b"unnoise.digest": b"0" * 64,
    }
    schema = pa.schema([pa.field(COLUMN, pa.int64(), nullable=False)], metadata=metadata)
    untouched = pa.py_buffer(np.empty(count, dtype="<i8"))
    column = pa.Array.from_buffers(pa.int64(), count, [None, untouched], null_count=0)
    sink = SimpleNamespace(write=write, tell=size, flush=lambda: None, close=lambda: None, closed=False)
    with pa.PythonFile(sink, "w") as file, pa.ipc.new_file(file, schema) as writer:
        writer.write_batch(pa.record_batch([column], schema=schema))
    return read_frame(read, size())
