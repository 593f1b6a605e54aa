"""Sketch files: noisy cells and public parameters, nothing else.

A sketch file is an Arrow IPC file of one record batch with one column, ``noisy_count`` (int64, not null, not
compressed), whose schema metadata hold the parameters as JSON and a digest over parameters and cells. docs/format.md
specifies it to the byte.

Reading maps the file into memory and decodes nothing but a few bounded integers itself, each checked against the size
of the file, so a hostile file allocates nothing. :mod:`unnoise.sketches.format.write` writes it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from ...arrays import Int64
from ...errors import FormatError
from ...layout import Account, Layout, guarantee
from ...noise import DiscreteLaplace
from ..cells import on_all_processors
from .flatbuffer import locate_cells

__all__ = [
    "COLUMN", "VERSION", "Stored", "digest_of", "digest_of_runs", "each_run", "parameters_of", "raw_bytes",
    "read_sketch",
]  # fmt: skip

VERSION = 1
COLUMN = "noisy_count"
RUN = 1 << 20
"""Cells in a run: each run of the file has a digest of its own, so that all cores can work on it."""

MAGIC = b"ARROW1"
MOST_PARAMETERS = 1 << 26
"""Bytes of parameters accepted: a million noise identities fit."""

_FRACTION = re.compile(r"[0-9]{1,60}(/[0-9]{1,60})?")
_IDENTITY = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, eq=False)
class Stored:
    """What a file holds.

    cells : the noisy counts
    noise, layout, account : the public parameters
    identities : the random identities (16 bytes each) of the noise vectors added up in the cells
    """

    cells: Int64
    noise: DiscreteLaplace
    layout: Layout
    account: Account
    identities: frozenset[bytes]

def parameters_of(stored: Stored) -> bytes:
    """Return the parameters as canonical JSON: sorted keys, no spaces, UTF-8."""
    layout, account = stored.layout, stored.account
    values = {
        "account": {"calls": account.calls, "promised": account.promised},
        "cells": layout.cells,
        "domain": layout.domain,
        "epsilon": str(stored.noise.epsilon),
        "fingerprint": layout.fingerprint,
        "guarantee": guarantee(stored.noise, layout, account, len(stored.identities)),
        "hash_seed": layout.hash_seed,
        "identities": sorted(identity.hex() for identity in stored.identities),
        "item_types": layout.item_types,
        "kind": layout.kind,
        "levels": layout.levels,
        "max_contributions": layout.max_contributions,
        "pan_private": layout.pan_private,
        "power": str(stored.noise.power),
        "rate": None if layout.rate is None else str(layout.rate),
        "unit": "occurrence" if layout.max_contributions is None else "person",
    }
    return json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def digest_of(parameters: bytes, cells: Int64) -> str:
    """Return SHA-256 over the parameters and the SHA-256 of every run of cells (little-endian int64)."""
    return digest_of_runs(parameters, each_run(cells.size, lambda run: hashlib.sha256(raw_bytes(cells[run])).digest()))


def digest_of_runs(parameters: bytes, digests: list[bytes]) -> str:
    """Return SHA-256 over the parameters and the digests of all runs."""
    whole = hashlib.sha256(b"unnoise sketch 1\n" + len(parameters).to_bytes(8, "little") + parameters)
    whole.update(b"".join(digests))
    return whole.hexdigest()


def each_run(cells: int, work: Callable[[slice], bytes]) -> list[bytes]:
    """Return what ``work`` makes of every run of that many cells, in order, on all processors."""
    runs = [slice(start, min(start + RUN, cells)) for start in range(0, cells, RUN)]
    return on_all_processors(work, runs)


def raw_bytes(cells: Int64) -> memoryview:
    """Return the cells as little-endian bytes."""
    return np.ascontiguousarray(cells, dtype="<i8").view(np.uint8).data


def read_sketch(path: str | os.PathLike[str]) -> Stored:
    """Map a sketch file into memory, check it whole, and return what it holds (cells are read-only)."""
    import pyarrow as pa

    name = os.fspath(path)
    if not os.path.isfile(name):
        raise FileNotFoundError(f"no such file: {name}")
    size = os.path.getsize(name)
    try:
        if size < 64:
            raise FormatError(f"it must be at least 64 bytes long, got {size}")
        with _errors_of_the_file():
            return _read(pa.memory_map(name, "r"), size)
    except FormatError as error:
        raise FormatError(f"{name} is not a valid sketch file: {error}") from None


@contextmanager
def _errors_of_the_file() -> Iterator[None]:
    """Turn whatever parsing may raise (pyarrow reports malformed messages as OSError) into FormatError."""
    import pyarrow as pa

    try:
        yield
    except (FormatError, PermissionError, FileNotFoundError):
        raise
    except (pa.ArrowException, OSError, EOFError, MemoryError, RecursionError, ValueError, struct.error) as error:
        raise FormatError(str(error)) from None


def _read(source: Any, size: int) -> Stored:
    import pyarrow as pa

    if source.read_at(6, 0) != MAGIC or source.read_at(6, size - 6) != MAGIC:
        raise FormatError("it must begin and end with ARROW1: truncated, or another kind of file")
    parameters, digest = _metadata(pa.ipc.open_file(source).schema)
    public = _parse(parameters)
    count, whole = public["layout"].cells, _whole(source, size)
    cells = np.frombuffer(whole, dtype="<i8", count=count, offset=locate_cells(memoryview(whole), count))
    if digest_of(parameters, cells) != digest:
        raise FormatError("its digest does not match: corrupt")
    return Stored(cells=cells, **public)


def _whole(source: Any, size: int) -> Any:
    """Return the mapped file as one buffer, nothing read yet."""
    source.seek(0)
    return source.read_buffer(size)


def _metadata(schema: Any) -> tuple[bytes, str]:
    """Return parameters and digest out of the schema of a file that this version can read."""
    import pyarrow as pa

    metadata: Mapping[bytes, bytes] = schema.metadata or {}
    if metadata.get(b"unnoise") != b"sketch":
        raise FormatError("an Arrow file, but not one of unnoise")
    version = metadata.get(b"unnoise.version", b"")
    if not re.fullmatch(rb"[1-9][0-9]{0,8}", version):
        raise FormatError(f"its version must be a whole number, got {version[:20]!r}")
    if int(version) > VERSION:
        raise FormatError(f"its format version is {int(version)}, this unnoise reads up to {VERSION}: upgrade unnoise")
    if schema.names != [COLUMN] or schema.field(0).type != pa.int64():
        raise FormatError(f"it must have one column {COLUMN} of int64")
    parameters, digest = metadata.get(b"unnoise.parameters"), metadata.get(b"unnoise.digest")
    if parameters is None or digest is None or len(parameters) > MOST_PARAMETERS:
        raise FormatError("it must hold parameters and a digest in its metadata")
    return parameters, digest.decode("ascii", "replace")


def _parse(parameters: bytes) -> dict[str, Any]:
    """Return noise, layout, account and identities out of the JSON, every type checked."""
    values = json.loads(parameters)
    if not isinstance(values, dict):
        raise FormatError("its parameters must be a JSON object")
    types = _field(values, "item_types", list, None)
    layout = Layout(
        kind=_field(values, "kind", str),
        cells=_field(values, "cells", int),
        domain=_field(values, "domain", int, None),
        rate=_fraction(values, "rate") if values.get("rate") is not None else None,
        levels=_field(values, "levels", int),
        hash_seed=_field(values, "hash_seed", int, None),
        item_types=None if types is None else tuple(str(kind) for kind in types),
        fingerprint=_field(values, "fingerprint", str, None),
        max_contributions=_field(values, "max_contributions", int, None),
        pan_private=_field(values, "pan_private", bool),
    )
    _require_whole(layout)
    noise = DiscreteLaplace(_fraction(values, "epsilon"), _fraction(values, "power"))
    if noise.power < 1:
        raise FormatError(f"its power must be ≥ 1, got {noise.power}")
    spent = _field(values, "account", dict)
    account = Account(calls=_field(spent, "calls", int), promised=_field(spent, "promised", int))
    identities = _field(values, "identities", list)
    if not identities or not all(isinstance(i, str) and _IDENTITY.fullmatch(i) for i in identities):
        raise FormatError("its identities must be a list of 32 hexadecimal digits each")
    return {
        "layout": layout, "noise": noise, "account": account,
        "identities": frozenset(bytes.fromhex(identity) for identity in identities),
    }  # fmt: skip


def _field(values: dict[str, Any], name: str, kind: type, *default: Any) -> Any:
    value = values.get(name)
    if value is None and default:
        return default[0]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise FormatError(f"its parameter {name} must be of type {kind.__name__}, got {type(value).__name__}")
    return value


def _fraction(values: dict[str, Any], name: str) -> Fraction:
    text = _field(values, name, str)
    if not _FRACTION.fullmatch(text):
        raise FormatError(f"its parameter {name} must be a fraction such as 1/3")
    try:
        return Fraction(text)
    except ZeroDivisionError:
        raise FormatError(f"its parameter {name} must be a fraction, got a zero denominator") from None


def _require_whole(layout: Layout) -> None:
    """Refuse parameters that contradict each other."""
    size, rest = divmod(layout.cells, layout.levels)
    if layout.kind == "direct":
        raise FormatError("its kind must be that of a sketch, got 'direct'")
    if layout.kind == "hashed" and (rest or size & (size - 1) or layout.hash_seed is None):
        raise FormatError(f"a hashed sketch must have levels of 2^k cells, got {layout.cells} in {layout.levels}")
    if layout.kind == "known" and layout.domain != layout.cells:
        raise FormatError(f"a known sketch must have one cell per item, got {layout.domain} and {layout.cells}")
    if layout.kind == "sampled" and (layout.domain is None or layout.rate is None or layout.hash_seed is None):
        raise FormatError("a sampled sketch must state domain, rate and hash_seed")
    if layout.kind != "hashed" and layout.fingerprint is None and layout.item_types not in (None, ("int",)):
        raise FormatError(f"a domain 0…d−1 must have items of type int, got {layout.item_types}")
