"""Read streams of bytes in batches: standard input and compressed files, read once, whose end is not known.

The files of databases give rows in the same way: SQLite by Python's own module, DuckDB by its package (an extra). A
query runs in the database over its own tables; without one, a database with a single table is read whole. Types of
columns are those the database declares, so they do not depend on what is in a row. Files are opened for reading only,
and a query reaches no other file: what it read there would be past the ledger of that file, and its limit.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate, chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ..errors import InputError
from ..sketches.inputs import validate

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "LINE", "Queried", "Wants", "duckdb", "expected", "frequency_pairs", "read_arrow", "read_csv", "read_freq_count",
    "read_lines", "read_ndjson", "read_uniq", "sqlite",
]  # fmt: skip

LINE = "line"
"""Name of the one column of a file of lines."""

ROWS = 1 << 18
"""Rows made at a time of a frequency list."""

MOST = 1 << 62
"""Largest frequency, and number of items, that a frequency list tells apart: as everywhere else."""

HEADER = 1 << 16
"""Bytes in which the end of the first line is looked for."""

CR_ALONE = re.compile(rb"[^\n\0]*?\r(?!\n)")
"""Matches a first line that ends in CR alone: to readers all lines are the header then, and there are no rows."""

LINE_ENDS = r"lines must end in LF or CRLF, got CR alone; convert the file: tr '\r' '\n'"

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
    if wants.header and CR_ALONE.match(head):
        raise InputError(f"{wants.label}: {LINE_ENDS}")
    if not head.strip():
        if wants.header:
            raise InputError(f"{wants.label}: there is no first line to name the columns; --no-header does without")
        return
    width = head.count(wants.delimiter.encode()) + 1  # at most: quotes may hide some
    layout = {"delimiter": wants.delimiter, "quote_char": wants.quote or False}
    bad: list[str] = []

    def note(row: Any) -> str:
        where = f", row {row.number}" if row.number else ""
        bad.append(f"{wants.label}{where}: {expected(row.expected_columns)}, got {row.actual_columns}")
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
    """Read objects, one on each line; every column is text, and a key that a row does not have is empty."""
    import polars as pl

    done = 0
    for block in _whole_lines(wants.stream):
        try:
            frame = pl.read_ndjson(block, schema={name: pl.String for name in wants.names})
        except pl.exceptions.PolarsError:
            from .badrows import bad_json_row

            found = bad_json_row(wants.label, block.splitlines(), done)
            raise InputError(found or f"{wants.label}: not readable as ndjson") from None
        done += frame.height
        yield frame


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
    frequencies = np.array([frequency for frequency, _ in pairs], dtype=np.int64)
    ends = np.array([min(end, MOST) for end in accumulate(count for _, count in pairs)], dtype=np.int64)
    last = int(ends[-1]) if pairs else 0
    for start in range(0, last, ROWS):
        items = np.arange(start, min(start + ROWS, last), dtype=np.int64)
        which = np.searchsorted(ends, items, side="right")
        yield pl.DataFrame({"item": items, "frequency": frequencies[which]}).select(wants.names)


def frequency_pairs(stream: BinaryIO, label: str) -> list[tuple[int, int]]:
    """Return the pairs of a frequency list; what is above 2⁶² is taken as that."""
    pairs = []
    for number, line in enumerate(stream, 1):
        fields = line.removeprefix(BOM_UTF8).decode("utf-8", "replace").split("#")[0].replace(",", " ").split()
        if not fields:
            continue
        try:
            frequency, count = (int(field) for field in fields)
        except ValueError:
            raise InputError(f"{label}, row {number}: must be two integers 'frequency count'") from None
        if frequency < 0 or count < 0:
            raise InputError(f"{label}, row {number}: frequency and count must be ≥ 0, got one below; remove the row")
        pairs.append((min(frequency, MOST), min(count, MOST)))
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


def expected(fields: int) -> str:
    """Say how many fields a row must have."""
    return f"{fields} field{'s' * (fields != 1)} expected"


def _first_line(stream: BinaryIO) -> tuple[bytes, bytes]:
    """Return the first record's line and what was read past it (a header has no line break in its quotes)."""
    block = bytearray()
    while more := stream.read(HEADER):
        block += more
        if b"\n" in more or CR_ALONE.match(more):
            break
    end = block.find(b"\n") + 1 or len(block)
    return bytes(block[:end]), bytes(block[end:])


def _whole_lines(stream: BinaryIO) -> Iterator[bytes]:
    """Yield blocks that end where a line ends; the mark at the beginning of a text is no part of its first line."""
    rest = stream.read(len(BOM_UTF8)).removeprefix(BOM_UTF8)
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


# ── databases ───────────────────────────────────────────────────────────────────────────────────────────────────────

OWN_FILE: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false", "lock_configuration": "true",
}  # fmt: skip
"""Settings under which DuckDB reads its own file and no other, whatever a query says."""

SHAPE = "unnoise_shape"
FETCHED = 1 << 16


@dataclass(frozen=True, eq=False)
class Queried:
    """A query to be read.

    types : of each column, as polars has them
    frames : starts to read the columns of these names, with at most so many rows at a time
    """

    types: dict[str, Any]
    frames: Callable[[list[str], int], Iterator[pl.DataFrame]]


def _query(path: Path, sql: str | None, tables: list[str]) -> str:
    if sql is not None:
        return sql.strip().rstrip(";")
    if len(tables) != 1:
        found = f"there are {', '.join(tables[:12])}" if tables else "there are none"
        raise InputError(f"{path}: say what to read with --sql 'SELECT … FROM table'; {found}")
    return f'SELECT * FROM "{tables[0].replace(chr(34), chr(34) * 2)}"'


def sqlite(path: Path, sql: str | None) -> Queried:
    """Open an SQLite file; column types follow the affinity that SQLite derives from the declaration."""
    import sqlite3

    outside = (sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH)
    base = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    base.set_authorizer(lambda action, *_: sqlite3.SQLITE_DENY if action in outside else sqlite3.SQLITE_OK)
    listed = base.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%'")
    query = _query(path, sql, [name for (name,) in listed])
    base.execute(f"CREATE TEMP TABLE {SHAPE} AS SELECT * FROM ({query}) LIMIT 0")  # declares what it derives
    types = {row[1]: _affinity(row[2]) for row in base.execute(f"PRAGMA table_info({SHAPE})")}

    def frames(names: list[str], chunk: int) -> Iterator[pl.DataFrame]:
        import polars as pl

        quoted = ", ".join('"' + name.replace('"', '""') + '"' for name in names)
        rows = base.execute(f"SELECT {quoted} FROM ({query})")
        schema = {name: types[name] for name in names}
        while batch := rows.fetchmany(min(chunk, FETCHED)):
            columns = {name: [_as(row[i], schema[name], path, name) for row in batch] for i, name in enumerate(names)}
            yield pl.DataFrame(columns, schema=schema)

    return Queried(types, frames)


def _affinity(declared: str) -> Any:
    """Return the type for a declared one, by SQLite's rules (sqlite.org/datatype3.html, 3.1); text without one."""
    import polars as pl

    kind = declared.upper()
    if "INT" in kind:
        return pl.Int64
    return pl.Float64 if any(word in kind for word in ("REAL", "FLOA", "DOUB")) else pl.String


def _as(value: Any, kind: Any, path: Path, name: str) -> Any:
    """Give a value the type of its column; SQLite does not insist on it, items must."""
    import polars as pl

    if value is None or kind == pl.Float64:
        return value
    if kind == pl.Int64:
        if not isinstance(value, int):
            raise InputError(
                f"{path}: column {name} must hold integers, as it declares, got another value; "
                f'cast it in --sql: CAST("{name}" AS TEXT) AS "{name}"'
            )
        return value
    return value.hex() if isinstance(value, bytes) else str(value)


def duckdb(path: Path, sql: str | None) -> Queried:
    """Open a DuckDB file."""
    try:
        import duckdb as engine
    except ImportError:
        raise InputError(f"{path}: reading DuckDB files needs the package duckdb: pip install duckdb") from None
    base = engine.connect(str(path), read_only=True, config=OWN_FILE)
    listed = base.execute("SELECT table_name FROM information_schema.tables ORDER BY table_name").fetchall()
    query = _query(path, sql, [name for (name,) in listed])
    import polars as pl

    empty = base.sql(f"SELECT * FROM ({query}) LIMIT 0").to_arrow_table()
    types = {name: _imported(column) for name, column in zip(empty.column_names, empty.columns)}

    def frames(names: list[str], chunk: int) -> Iterator[pl.DataFrame]:
        quoted = ", ".join('"' + name.replace('"', '""') + '"' for name in names)
        for batch in base.sql(f"SELECT {quoted} FROM ({query})").to_arrow_reader(min(chunk, FETCHED)):
            frame = pl.from_arrow(batch)
            assert isinstance(frame, pl.DataFrame)
            yield frame

    return Queried(types, frames)


def _imported(column: Any) -> Any:
    """Return the type that polars gives a column of Arrow; intervals, which it cannot import, are durations."""
    import polars as pl
    import pyarrow as pa

    if pa.types.is_interval(column.type):
        return pl.Duration
    imported = pl.from_arrow(column)
    assert isinstance(imported, pl.Series)
    return imported.dtype
