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

from ...errors import FormatError

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
INT, SCHEMA, BATCH = 2, 1, 3

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
    footer = _root(read(end, length))
    copy, metadata = _schema(footer.table(1))
    start, head, body = _block(footer, end)
    frame_head = read(0, start + head)
    first, original = _schema(_message(frame_head, 8, start, SCHEMA))
    if original != metadata:
        raise FormatError("its schema and the copy of it in its footer must agree: corrupt")
    rows, offset = _values(_message(frame_head, start, start + head, BATCH), body)
    at = start + head + offset
    if at != len(frame_head):
        frame_head = read(0, at)
    tail = read(at + 8 * rows, size - at - 8 * rows)
    if tail[-(length + 18) : -(length + 10)] != END:
        raise FormatError("it must end its stream before its footer")
    return Frame(frame_head, tail, rows, metadata, (16 + first, len(tail) - 10 - length + copy))


def _schema(schema: _Table) -> tuple[int, dict[bytes, bytes]]:
    """Return where the digest stands, and the metadata, of a schema of one column that is not null."""
    metadata, digest = {}, 0
    for pair in schema.tables(2):
        key, (at, value) = pair.text(0)[1], pair.text(1)
        if key in metadata:
            raise FormatError("its metadata must hold each key once")
        metadata[key] = value
        digest = at if key == DIGEST else digest
    if metadata.get(b"unnoise") != b"sketch":
        raise FormatError("an Arrow file, but not one of unnoise")
    fields = schema.tables(1)
    if len(fields) != 1 or not _is_column(fields[0]) or schema.scalar(0, "<h"):
        raise FormatError(f"it must have one column {COLUMN} of int64, little-endian and not null")
    if len(metadata.get(DIGEST, b"")) != 64 or len(metadata) != 4:
        raise FormatError("it must hold kind, version, parameters and digest in its metadata, and nothing else")
    return digest, metadata


def _is_column(field: _Table) -> bool:
    """Tell whether this is the column: its name, int64, not null, no dictionary, children or metadata."""
    if field.text(0)[1] != COLUMN.encode() or field.scalar(1, "<B") or field.scalar(2, "<B") != INT:
        return False
    kind = field.table(3)
    whole = kind.scalar(0, "<i") == 64 and kind.scalar(1, "<B") == 1
    return whole and not field.at(4) and not field.tables(5) and not field.tables(6)


def _block(footer: _Table, end: int) -> tuple[int, int, int]:
    """Return where the only record batch starts, and the lengths of its metadata and body, which fill the file."""
    blocks = footer.structs(3, "<qi4xq")
    if len(blocks) != 1 or footer.structs(2, "<qi4xq") or footer.tables(4):
        raise FormatError(f"it must hold one record batch and nothing else, got {len(blocks)}")
    start, head, body = blocks[0]
    if not (16 < start <= MOST_AROUND and 16 <= head <= MOST_AROUND and body >= 0) or start + head + body + 8 != end:
        raise FormatError("it must hold its record batch whole: truncated")
    return start, head, body


def _message(data: bytes, start: int, end: int, kind: int) -> _Table:
    """Return the header of the message that fills the bytes from start to end."""
    (length,) = struct.unpack_from("<i", data, start + 4)
    if data[start : start + 4] != CONTINUES or start + 8 + length != end:
        raise FormatError("its messages must follow each other without a gap")
    message = _root(data[start + 8 : end])
    if message.scalar(1, "<B") != kind or message.tables(4):
        raise FormatError("its messages must be a schema and a record batch")
    return message.table(2)


def _values(batch: _Table, body: int) -> tuple[int, int]:
    """Return number and place in the body of the values of a record batch: int64, no nulls, not compressed."""
    if batch.at(3):
        raise FormatError("its cells must not be compressed")
    rows, nodes, buffers = batch.scalar(0, "<q"), batch.structs(1, "<qq"), batch.structs(2, "<qq")
    if rows < 1 or nodes != [(rows, 0)] or len(buffers) != 2:
        raise FormatError(f"its record batch must hold one column without nulls, got {rows} rows")
    offset, length = buffers[1]
    if not (0 <= offset <= MOST_PADDING and length >= 8 * rows and 0 <= body - offset - 8 * rows <= MOST_PADDING):
        raise FormatError(f"it must hold 8 bytes for each of cells={rows} and no more: truncated")
    return rows, offset


def _root(data: bytes) -> _Table:
    return _Table(data, struct.unpack_from("<I", data, 0)[0])


class _Table:
    """A table of a flatbuffer; reading outside the buffer is a struct.error."""

    def __init__(self, data: bytes, position: int) -> None:
        self.data, self.position = data, position
        self.vtable = position - self._number("<i", position)
        if self.vtable < 0:
            raise FormatError("a table in it is malformed")

    def at(self, field: int) -> int:
        """Position of a field, 0 when absent."""
        if 4 + 2 * field + 2 > self._number("<H", self.vtable):
            return 0
        offset = self._number("<H", self.vtable + 4 + 2 * field)
        return self.position + offset if offset else 0

    def scalar(self, field: int, code: str) -> int:
        """A number, 0 when absent."""
        return self._number(code, self.at(field)) if self.at(field) else 0

    def table(self, field: int) -> _Table:
        """A table inside this one."""
        return _Table(self.data, self._follow(field))

    def tables(self, field: int) -> list[_Table]:
        """A vector of tables, none when absent, of which at most nine are read."""
        if not self.at(field):
            return []
        start = self._follow(field)
        places = [start + 4 + 4 * i for i in range(min(self._number("<I", start), 9))]
        return [_Table(self.data, place + self._number("<I", place)) for place in places]

    def structs(self, field: int, code: str) -> list[tuple[int, ...]]:
        """A vector of structs, none when absent, of which at most three are read."""
        if not self.at(field):
            return []
        start = self._follow(field)
        count = min(self._number("<I", start), 3)
        return [struct.unpack_from(code, self.data, start + 4 + struct.calcsize(code) * i) for i in range(count)]

    def text(self, field: int) -> tuple[int, bytes]:
        """Position and bytes of a text."""
        start = self._follow(field)
        length = self._number("<I", start)
        if start + 4 + length > len(self.data):
            raise FormatError("a text in it is malformed")
        return start + 4, self.data[start + 4 : start + 4 + length]

    def _follow(self, field: int) -> int:
        at = self.at(field)
        if not at:
            raise FormatError("a table in it is malformed")
        return at + self._number("<I", at)

    def _number(self, code: str, position: int) -> int:
        return int(struct.unpack_from(code, self.data, position)[0])
