"""What stands around the cells in an Arrow IPC file, found without trusting a word of it.

An Arrow IPC file is ``ARROW1``, a stream of messages (the schema; one record batch: its metadata, then its values), an
end mark, a footer that repeats the schema and lists the batches, the footer's length and ``ARROW1``. Metadata are
flatbuffers (format/File.fbs, Message.fbs and Schema.fbs of Apache Arrow). A reader of files believes the footer, a
reader of streams the messages. So both are read here, by hand, each number checked: a hostile file is followed nowhere
out of its bounds, makes nobody allocate what it declares, and tells every reader the same.

    8 ARROW1‖0‖0 | schema message | batch message | cells, padding | end mark | footer | its length | ARROW1
    └──────────────── head ──────────────────────┘└ cells ┘└───────────────── tail ────────────────────────┘
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import FormatError

__all__ = ["COLUMN", "MOST_PARAMETERS", "Frame", "read_frame"]

COLUMN = "noisy_count"
MAGIC = b"ARROW1"
CONTINUES = b"\xff\xff\xff\xff"
END = CONTINUES + bytes(4)

MOST_PARAMETERS = 1 << 20
"""Bytes of parameters accepted: 25,000 noise identities fit."""

MOST_AROUND = MOST_PARAMETERS + (1 << 14)
"""Bytes of a message or footer accepted, checked before they are read."""

MOST_PADDING = 64
DIGEST = b"unnoise.digest"
ENTRIES = 9
"""Entries of a vector that are read: more than any that is accepted has."""

Shape = dict[str, tuple[int, Any]]
"""The fields of a table that matter, each with its number and its kind: a code of :mod:`struct` for a number, "?" for
whether it is there, "text" for bytes, "place" for where they stand as well, a shape for a table, [shape] or [code] for
a vector of tables or structs, (n, shape) for a union that is such a table where the field before it is n."""

INT, SCHEMAS, BATCHES = 2, 1, 3
INTEGER: Shape = {"bits": (0, "<i"), "signed": (1, "<B")}
FIELD: Shape = {
    "name": (0, "text"), "nullable": (1, "<B"), "kind": (2, "<B"), "type": (3, (INT, INTEGER)),
    "dictionary": (4, "?"), "children": (5, [{}]), "metadata": (6, [{}]),
}  # fmt: skip
SCHEMA: Shape = {
    "big-endian": (0, "<h"), "fields": (1, [FIELD]), "metadata": (2, [{"key": (0, "text"), "value": (1, "place")}]),
}  # fmt: skip
BATCH: Shape = {"rows": (0, "<q"), "nodes": (1, ["<qq"]), "buffers": (2, ["<qq"]), "compressed": (3, "?")}
FOOTER: Shape = {
    "schema": (1, SCHEMA), "dictionaries": (2, ["<qi4xq"]), "batches": (3, ["<qi4xq"]), "metadata": (4, [{}]),
}  # fmt: skip

INTEGERS = {
    "name": COLUMN.encode(), "nullable": 0, "kind": INT, "type": {"bits": 64, "signed": 1},
    "dictionary": False, "children": [], "metadata": [],
}  # fmt: skip
"""The one column, as it is found in a schema."""

Read = Callable[[int, int], bytes]
"""Returns so many bytes from a position of the file, or raises FormatError."""


@dataclass(frozen=True)
class Frame:
    """What stands around the cells.

    head, tail : all bytes before and after them
    rows : how many cells there are, 8 bytes each, between the two
    metadata : of the schema, in both copies
    digests : where the text of ``unnoise.digest`` stands in the head, and in the tail
    """

    head: bytes
    tail: bytes
    rows: int
    metadata: dict[bytes, bytes]
    digests: tuple[int, int]

    def with_digest(self, digest: str) -> tuple[bytes, bytes]:
        """Return head and tail with that digest in both copies of the metadata."""
        head, tail = (
            side[:at] + digest.encode() + side[at + 64 :] for side, at in zip((self.head, self.tail), self.digests)
        )
        return head, tail


def read_frame(read: Read, size: int) -> Frame:
    """Return what stands around the cells of a sketch file of that many bytes; cells are not read."""
    if size < 64:
        raise FormatError(f"it must be at least 64 bytes long, got {size}")
    if read(0, 8) != MAGIC + bytes(2) or read(size - 6, 6) != MAGIC:
        raise FormatError("it must begin and end with ARROW1: truncated, or another kind of file")
    (length,) = struct.unpack("<i", read(size - 10, 4))
    end = size - 10 - length
    if not (0 < length <= MOST_AROUND and end >= 64):
        raise FormatError("its footer is malformed, or its parameters are longer than 1 MB")
    raw = read(end, length)
    footer = _table(raw, _number(raw, "<I", 0), FOOTER)
    copy, metadata = _schema(footer["schema"])
    blocks = footer["batches"]
    if len(blocks) != 1 or footer["dictionaries"] or footer["metadata"]:
        raise FormatError(f"it must hold one record batch and nothing else, got {len(blocks)}")
    start, head, body = blocks[0]
    if not (16 < start <= MOST_AROUND and 16 <= head <= MOST_AROUND and body >= 0) or start + head + body + 8 != end:
        raise FormatError("it must hold its record batch whole: truncated")
    frame_head = read(0, start + head)
    first, original = _schema(_message(frame_head, 8, start, SCHEMAS, SCHEMA))
    if original != metadata:
        raise FormatError("its schema and the copy of it in its footer must agree: corrupt")
    rows, offset = _values(_message(frame_head, start, start + head, BATCHES, BATCH), body)
    at = start + head + offset
    if at != len(frame_head):
        frame_head = read(0, at)
    tail = read(at + 8 * rows, size - at - 8 * rows)
    if tail[-(length + 18) : -(length + 10)] != END:
        raise FormatError("it must end its stream before its footer")
    return Frame(frame_head, tail, rows, metadata, (16 + first, len(tail) - 10 - length + copy))


def _schema(schema: dict[str, Any]) -> tuple[int, dict[bytes, bytes]]:
    """Return where the digest stands, and the metadata, of a schema of the one column."""
    metadata = {pair["key"]: pair["value"][1] for pair in schema["metadata"]}
    if len(metadata) != len(schema["metadata"]):
        raise FormatError("its metadata must hold each key once")
    if metadata.get(b"unnoise") != b"sketch":
        raise FormatError("an Arrow file, but not one of unnoise")
    if schema["fields"] != [INTEGERS] or schema["big-endian"]:
        raise FormatError(f"it must have one column {COLUMN} of int64, little-endian and not null")
    if len(metadata.get(DIGEST, b"")) != 64 or len(metadata) != 4:
        raise FormatError("it must hold kind, version, parameters and digest in its metadata, and nothing else")
    return next(pair["value"][0] for pair in schema["metadata"] if pair["key"] == DIGEST), metadata


def _message(data: bytes, start: int, end: int, kind: int, shape: Shape) -> dict[str, Any]:
    """Return the header of the message that fills the bytes from start to end."""
    (length,) = struct.unpack_from("<i", data, start + 4)
    if data[start : start + 4] != CONTINUES or start + 8 + length != end:
        raise FormatError("its messages must follow each other without a gap")
    raw = data[start + 8 : end]
    wanted: Shape = {"kind": (1, "<B"), "header": (2, (kind, shape)), "metadata": (4, [{}])}
    message = _table(raw, _number(raw, "<I", 0), wanted)
    if message["kind"] != kind or message["metadata"]:
        raise FormatError("its messages must be a schema and a record batch")
    return dict(message["header"])


def _values(batch: dict[str, Any], body: int) -> tuple[int, int]:
    """Return number and place in the body of the values of a record batch: int64, no nulls, not compressed."""
    if batch["compressed"]:
        raise FormatError("its cells must not be compressed")
    rows, nodes, buffers = batch["rows"], batch["nodes"], batch["buffers"]
    if rows < 1 or nodes != [(rows, 0)] or len(buffers) != 2:
        raise FormatError(f"its record batch must hold one column without nulls, got {rows} rows")
    offset, length = buffers[1]
    if not (0 <= offset <= MOST_PADDING and length >= 8 * rows and 0 <= body - offset - 8 * rows <= MOST_PADDING):
        raise FormatError(f"it must hold 8 bytes for each of cells={rows} and no more: truncated")
    return rows, offset


def _table(data: bytes, position: int, shape: Shape) -> dict[str, Any]:
    """Return what a table holds of a shape; reading outside the buffer is a struct.error."""
    vtable = position - _number(data, "<i", position)
    if vtable < 0:
        raise FormatError("a table in it is malformed")
    size, last = _number(data, "<H", vtable), None
    found: dict[str, Any] = {}
    for name, (field, kind) in shape.items():
        if isinstance(kind, tuple):
            kind = kind[1] if last == kind[0] else "?"
        offset = _number(data, "<H", vtable + 4 + 2 * field) if 6 + 2 * field <= size else 0
        found[name] = last = _value(data, position + offset if offset else 0, kind)
    return found


def _value(data: bytes, at: int, kind: Any) -> Any:
    """Return a field that stands there; at 0 it is absent: 0, False or empty, but a table or a text must be there."""
    if isinstance(kind, str) and kind not in ("text", "place"):
        return at > 0 if kind == "?" else _number(data, kind, at) if at else 0
    if not at and isinstance(kind, list):
        return []
    if not at:
        raise FormatError("a table in it is malformed")
    start = at + _number(data, "<I", at)
    if isinstance(kind, dict):
        return _table(data, start, kind)
    length, start = _number(data, "<I", start), start + 4
    if isinstance(kind, list) and isinstance(kind[0], str):
        step = struct.calcsize(kind[0])
        return [struct.unpack_from(kind[0], data, start + step * i) for i in range(min(length, ENTRIES))]
    if isinstance(kind, list):
        places = [start + 4 * i for i in range(min(length, ENTRIES))]
        return [_table(data, place + _number(data, "<I", place), kind[0]) for place in places]
    if start + length > len(data):
        raise FormatError("a text in it is malformed")
    return data[start : start + length] if kind == "text" else (start, data[start : start + length])


def _number(data: bytes, code: str, position: int) -> int:
    return int(struct.unpack_from(code, data, position)[0])
