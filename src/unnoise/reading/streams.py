"""Read streams of bytes in batches: standard input and compressed files, read once, whose end is not known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO

from ..errors import InputError
from ..sketches.columns import validate

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "LINE", "Wants", "frequency_pairs", "read_arrow", "read_csv", "read_freq_count", "read_lines", "read_ndjson",
    "read_uniq",
]  # fmt: skip

LINE = "line"
"""Name of the one column of a file of lines."""

ROWS = 1 << 18
"""Rows made at a time of a frequency list."""

BLOCK = 1 << 23
"""Bytes read at a time."""


@dataclass(frozen=True, eq=False)
class Wants:
    """What is read from a stream.

    stream : the bytes, decompressed
    names : the columns to give
    require : told the columns there are, once they are known; raises where one is missing
    label : for messages
    header, delimiter, quote : how text is laid out
    """

    stream: BinaryIO
    names: list[str]
    require: Callable[[list[str]], None]
    label: str = "standard input"
    header: bool = True
    delimiter: str = ","
    quote: str | None = '"'


def read_csv(wants: Wants) -> Iterator[pl.DataFrame]:
    """Read CSV through pyarrow, whose reader streams; every column is text."""
    import polars as pl
    import pyarrow as pa
    from pyarrow import csv

    head, rest = _first_line(wants.stream)
    if not head.strip():
        if wants.header:
            raise InputError(f"{wants.label}: there is no first line to name the columns; --no-header does without")
        return
    width = head.count(wants.delimiter.encode()) + 1  # at most: quotes may hide some
    layout = {"delimiter": wants.delimiter, "quote_char": wants.quote or False}
    bad: list[str] = []

    def note(row: Any) -> str:
        where = f", row {row.number}" if row.number else ""
        bad.append(f"{wants.label}{where}: {row.expected_columns} fields expected, got {row.actual_columns}")
        return "error"

    have = csv.read_csv(
        pa.BufferReader(head), parse_options=csv.ParseOptions(**layout),
        read_options=csv.ReadOptions(autogenerate_column_names=True),
        convert_options=csv.ConvertOptions(column_types={f"f{i}": pa.string() for i in range(width)}),
    ).to_pylist()[0]  # fmt: skip
    columns = [str(v) for v in have.values()] if wants.header else [f"column_{i + 1}" for i in range(len(have))]
    columns[0] = columns[0].removeprefix("\ufeff")
    wants.require(columns)
    rest = rest or wants.stream.read(1 << 16)
    if wants.header and not rest:
        return
    try:
        reader = csv.open_csv(
            pa.PythonFile(_Joined(b"" if wants.header else head, rest, wants.stream), mode="r"),
            read_options=csv.ReadOptions(column_names=columns, block_size=BLOCK, use_threads=False),
            parse_options=csv.ParseOptions(**layout, newlines_in_values=True, invalid_row_handler=note),
            convert_options=csv.ConvertOptions(
                column_types={name: pa.string() for name in columns}, include_columns=wants.names,
                strings_can_be_null=True, quoted_strings_can_be_null=False, null_values=[""],
            ),
        )  # fmt: skip
        for batch in reader:
            frame = pl.from_arrow(pa.Table.from_batches([batch]))
            assert isinstance(frame, pl.DataFrame)
            yield frame
    except pa.ArrowInvalid:
        if bad:
            raise InputError(f"{bad[0]}; put quotes around values that hold the delimiter") from None
        raise


def read_ndjson(wants: Wants) -> Iterator[pl.DataFrame]:
    """Read objects, one on each line; every column is text."""
    import polars as pl

    done = 0
    for block in _whole_lines(wants.stream):
        try:
            frame = pl.read_ndjson(block, schema_overrides={name: pl.String for name in wants.names})
        except pl.exceptions.PolarsError:
            from .badrows import bad_json_row

            raise InputError(bad_json_row(wants.label, block.splitlines(), done)) from None
        if not done:
            wants.require(frame.columns)
        done += frame.height
        yield frame.select(pl.col(name) if name in frame.columns else pl.lit(None).alias(name) for name in wants.names)


def read_lines(wants: Wants) -> Iterator[pl.DataFrame]:
    """Read lines of text, each an item."""
    import polars as pl

    wants.require([LINE])
    for block in _whole_lines(wants.stream):
        text = block.decode("utf-8").removesuffix("\n").replace("\r\n", "\n")
        yield pl.DataFrame({LINE: text.split("\n")})


def read_uniq(wants: Wants) -> Iterator[pl.DataFrame]:
    """Read what ``uniq -c`` writes: spaces, a number of occurrences, one space, and the line."""
    import polars as pl

    wants.require([LINE, "count"])
    done = 0
    for block in _whole_lines(wants.stream):
        lines = pl.Series(block.decode("utf-8").removesuffix("\n").replace("\r\n", "\n").split("\n"))
        parts = lines.str.extract_groups(r"^\s*(\d+)[ \t](.*)$").struct
        frame = pl.DataFrame({LINE: parts.field("2"), "count": parts.field("1")})
        if frame["count"].null_count():
            at = int(frame["count"].is_null().arg_true()[0])
            raise InputError(f"{wants.label}, row {done + at + 1}: must be a number and a line, as uniq -c writes them")
        done += frame.height
        yield frame.select(wants.names)


def read_freq_count(wants: Wants) -> Iterator[pl.DataFrame]:
    """Read pairs ``frequency count``: count items occur frequency times each, and are numbered as they come.

    ``#`` begins a comment; commas and tabs separate as spaces do.
    """
    import numpy as np
    import polars as pl

    wants.require(["item", "frequency"])
    pairs = frequency_pairs(wants.stream, wants.label)
    frequencies, counts = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    ends = np.append(np.cumsum(counts), 0) if not pairs else np.cumsum(counts)
    for start in range(0, int(ends[-1]), ROWS):
        items = np.arange(start, min(start + ROWS, int(ends[-1])), dtype=np.int64)
        which = np.searchsorted(ends, items, side="right")
        yield pl.DataFrame({"item": items, "frequency": frequencies[which]}).select(wants.names)


def frequency_pairs(stream: BinaryIO, label: str) -> list[tuple[int, int]]:
    """Return the pairs of a frequency list."""
    pairs = []
    for number, line in enumerate(stream, 1):
        fields = line.decode("utf-8", "replace").split("#")[0].replace(",", " ").split()
        if not fields:
            continue
        try:
            frequency, count = (int(field) for field in fields)
        except ValueError:
            raise InputError(f"{label}, row {number}: must be two integers 'frequency count'") from None
        if frequency < 0 or count < 0:
            raise InputError(f"{label}, row {number}: frequency and count must be ≥ 0, got {frequency} {count}")
        pairs.append((frequency, count))
    return pairs


def read_arrow(wants: Wants) -> Iterator[pl.DataFrame]:
    """Read an Arrow IPC stream, which knows its types."""
    import polars as pl
    import pyarrow as pa

    with pa.ipc.open_stream(wants.stream) as reader:
        wants.require(reader.schema.names)
        for batch in chain(_none_of(reader.schema), reader):
            chosen = batch.select(wants.names)
            validate(chosen)
            frame = pl.from_arrow(pa.Table.from_batches([chosen]))
            assert isinstance(frame, pl.DataFrame)
            yield frame


def _none_of(schema: Any) -> list[Any]:
    """Return a batch without rows: types must not tell whether there is one."""
    import pyarrow as pa

    return [pa.record_batch([pa.array([], type=field.type) for field in schema], schema=schema)]


def _first_line(stream: BinaryIO) -> tuple[bytes, bytes]:
    """Return the first record's line and what was read past it (a header has no line break in its quotes)."""
    block = b""
    while b"\n" not in block:
        more = stream.read(1 << 16)
        if not more:
            return block, b""
        block += more
    end = block.index(b"\n") + 1
    return block[:end], block[end:]


def _whole_lines(stream: BinaryIO) -> Iterator[bytes]:
    """Yield blocks that end where a line ends."""
    rest = b""
    while block := stream.read(BLOCK):
        end = block.rfind(b"\n") + 1
        if end:
            yield rest + block[:end]
            rest = block[end:]
        else:
            rest += block
    if rest:
        yield rest


class _Joined:
    """A readable file made of two pieces and the rest of a stream."""

    closed = False

    def __init__(self, head: bytes, rest: bytes, stream: BinaryIO) -> None:
        self.ahead, self.stream = head + rest, stream

    def read(self, size: int = -1) -> bytes:
        if self.ahead:
            cut = len(self.ahead) if size < 0 else size
            piece, self.ahead = self.ahead[:cut], self.ahead[cut:]
            return piece
        return self.stream.read(size)

    def close(self) -> None:
        """Leave the stream open: it belongs to the caller."""

    def flush(self) -> None:
        """Nothing is written."""

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False
