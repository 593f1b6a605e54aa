"""Where the cells are in an Arrow IPC file, found without trusting a word of it.

An Arrow IPC file ends with a footer that lists its record batches; a record batch is a message (its metadata) and a
body (its values). Both kinds of metadata are flatbuffers. Reading the few numbers needed by hand, each checked, means
that a hostile file is never followed out of its bounds and never makes anybody allocate what it declares.
"""

from __future__ import annotations

import struct

from ...errors import FormatError

__all__ = ["locate_cells"]


def locate_cells(file: memoryview, cells: int) -> int:
    """Return where the cells start in the file: one record batch, not compressed, all of it inside the file.

    Reads the flatbuffers by hand (format/File.fbs and Message.fbs of Apache Arrow), because a decoder would follow and
    allocate whatever the file declares.
    """
    (length,) = struct.unpack_from("<i", file, len(file) - 10)
    end = len(file) - 10
    if not 0 < length <= end - 8:
        raise FormatError("its footer is malformed")
    blocks = _root(file[end - length : end]).structs(3, "<qi4xq")
    if len(blocks) != 1:
        raise FormatError(f"it must hold one record batch, got {len(blocks)}")
    start, head, body = blocks[0]
    if start < 8 or head < 16 or body < 0 or start + head + body > end:
        raise FormatError("it must hold its record batch whole: truncated")
    return start + head + _offset_in_body(file[start + 8 : start + head], cells, body)


def _offset_in_body(message: memoryview, cells: int, body: int) -> int:
    """Return where the values start in the body of a record batch of one int64 column without nulls."""
    batch = _root(message).table(2)
    if batch.at(3):
        raise FormatError("its cells must not be compressed")
    rows, nodes, buffers = batch.scalar(0, "<q"), batch.structs(1, "<qq"), batch.structs(2, "<qq")
    if len(nodes) != 1 or len(buffers) != 2 or rows != cells or nodes[0] != (cells, 0):
        raise FormatError(f"its record batch must hold cells={cells} values without nulls, got {rows}")
    offset, length = buffers[1]
    if offset < 0 or length < 8 * cells or offset + 8 * cells > body:
        raise FormatError(f"it must hold 8 bytes for each of cells={cells}: truncated")
    return int(offset)


def _root(data: memoryview) -> _Table:
    return _Table(data, struct.unpack_from("<I", data, 0)[0])


class _Table:
    """A table of a flatbuffer; reading outside the buffer is a struct.error."""

    def __init__(self, data: memoryview, position: int) -> None:
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

    def structs(self, field: int, code: str) -> list[tuple[int, ...]]:
        """A vector of structs, of which at most three are read."""
        start = self._follow(field)
        count = min(self._number("<I", start), 3)
        return [struct.unpack_from(code, self.data, start + 4 + struct.calcsize(code) * i) for i in range(count)]

    def _follow(self, field: int) -> int:
        at = self.at(field)
        if not at:
            raise FormatError("a table in it is malformed")
        return at + self._number("<I", at)

    def _number(self, code: str, position: int) -> int:
        return int(struct.unpack_from(code, self.data, position)[0])
