"""Write sketch files, atomically (:mod:`unnoise.guard`) and in one pass over the cells.

The cells go out run by run on all processors, each run added up (where the cells are a sum), digested
and written while it is in the cache; nothing as long as the cells is held. The disk is told to begin with every run, so
that it works while others are digested. What Arrow puts around them is written last, because it holds the digest.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import numpy as np

from ...arrays import Int64
from ...errors import InputError
from ...guard import replacing
from ...layout import guarantee, usual_unit
from ..cells import PIECE, FileCells, add_up, each_run, one_pass, raw_bytes
from .flatbuffer import COLUMN, MOST_PARAMETERS, Frame, read_frame
from .read import VERSION, Stored, digest_of

__all__ = ["parameters_of", "write_sketch"]


def parameters_of(stored: Stored) -> bytes:
    """Return the parameters as canonical JSON (sorted keys, no spaces, UTF-8), if readers would accept them."""
    layout, account = stored.layout, stored.account
    values = {
        **stored.labels.to_dict(),
        "account": account.to_dict(),
        "cells": layout.cells,
        "domain": layout.domain,
        "epsilon": str(stored.noise.epsilon),
        "fingerprint": layout.fingerprint,
        "guarantee": guarantee(
            stored.noise, layout, account, len(stored.identities), len(stored.labels.report_ids)
        ),
        "hash_seed": layout.hash_seed,
        "identities": sorted(identity.hex() for identity in stored.identities),
        "item_types": layout.item_types,
        "kind": layout.kind,
        "levels": layout.levels,
        "max_contributions": layout.max_contributions,
        "pan_private": layout.pan_private,
        "power": str(stored.noise.power),
        "rate": None if layout.rate is None else str(layout.rate),
        "unit": stored.labels.unit or usual_unit(layout),
    }
    parameters = json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    if len(parameters) > MOST_PARAMETERS:
        raise InputError(
            f"parameters must be at most 1 MB, got {len(parameters):,} bytes: "
            f"{len(stored.identities):,} noises and their labels are too many for one file"
        )
    return parameters


def write_sketch(
    path: str | os.PathLike[str], stored: Stored, others: tuple[Int64 | FileCells, ...] = ()
) -> None:
    """Replace the file at ``path`` atomically; ``others`` are added to the cells on the way."""
    frame = _frame(parameters_of(stored), stored.cells.size)
    start, parts = len(frame.head), (stored.cells, *others)

    def write(run: slice) -> bytes:
        """Add up a run, in any thread, write it where it belongs and return its SHA-256."""
        digest, memory = hashlib.sha256(), np.empty((2, PIECE), dtype=np.int64)
        for first in range(run.start, run.stop, PIECE):
            raw = raw_bytes(add_up(parts, slice(first, min(first + PIECE, run.stop)), memory[0], memory[1]))
            digest.update(raw)
            _write_at(handle, raw, start + 8 * first)
        if hasattr(os, "posix_fadvise"):  # let the disk begin with it; fsync waits for what is left
            with suppress(OSError):
                length = 8 * (run.stop - run.start)
                os.posix_fadvise(handle, start + 8 * run.start, length, os.POSIX_FADV_DONTNEED)
        return digest.digest()

    with replacing(path) as handle:
        with one_pass(parts, again=False):
            digests = each_run(frame.rows, write)
        head, tail = frame.with_digest(digest_of(frame, digests))
        _write_at(handle, head, 0)
        _write_at(handle, tail, start + 8 * frame.rows)


def _write_at(handle: int, data: bytes | memoryview, position: int) -> None:
    """Write all of the data at a position."""
    rest = memoryview(data)
    while rest:
        written = os.pwrite(handle, rest, position)
        rest, position = rest[written:], position + written


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
