"""Read standard input in batches: a stream can be read once and its end is not known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, BinaryIO

from ..errors import InputError
from ..sketches.columns import validate

if TYPE_CHECKING:
    import polars as pl

__all__ = ["stream_frames"]

BLOCK = 1 << 23
"""Bytes read at a time."""


def stream_frames(
    stream: BinaryIO,
    format: str,
    names: list[str],
    require: Callable[[list[str]], None],
    header: bool,
    chunk: int,
) -> Iterator[pl.DataFrame]:
    """Yield the columns ``names`` of a stream; ``require`` is given the names there are, once they are known."""
    if format in ("csv", "tsv"):
        frames = _csv(stream, "\t" if format == "tsv" else ",", names, require, header)
    elif format == "ndjson":
        frames = _ndjson(stream, names, require)
    elif format == "lines":
        frames = _lines(stream, require)
    elif format == "arrow":
        frames = _arrow(stream, names, require)
    else:
        raise InputError(f"{format} cannot be read from standard input; write it to a file first")
    for frame in frames:
        yield from frame.iter_slices(chunk)


def _csv(
    stream: BinaryIO, separator: str, names: list[str], require: Callable[[list[str]], None], header: bool
) -> Iterator[pl.DataFrame]:
    """Read CSV through pyarrow, whose reader streams; every column is text."""
    import polars as pl
    import pyarrow as pa
    from pyarrow import csv

    head, rest = _first_line(stream)
    if not head.strip():
        return
    width = head.count(separator.encode()) + 1  # at most: quotes may hide some
    have = csv.read_csv(
        pa.BufferReader(head), parse_options=csv.ParseOptions(delimiter=separator),
        read_options=csv.ReadOptions(autogenerate_column_names=True),
        convert_options=csv.ConvertOptions(column_types={f"f{i}": pa.string() for i in range(width)}),
    ).to_pylist()[0]  # fmt: skip
    columns = [str(v) for v in have.values()] if header else [f"column_{i + 1}" for i in range(len(have))]
    columns[0] = columns[0].removeprefix("\ufeff")
    require(columns)
    reader = csv.open_csv(
        pa.PythonFile(_Joined(b"" if header else head, rest, stream), mode="r"),
        read_options=csv.ReadOptions(column_names=columns, block_size=BLOCK),
        parse_options=csv.ParseOptions(delimiter=separator, newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            column_types={name: pa.string() for name in columns}, include_columns=names,
            strings_can_be_null=True, quoted_strings_can_be_null=False, null_values=[""],
        ),
    )  # fmt: skip
    for batch in reader:
        frame = pl.from_arrow(pa.Table.from_batches([batch]))
        assert isinstance(frame, pl.DataFrame)
        yield frame


def _ndjson(stream: BinaryIO, names: list[str], require: Callable[[list[str]], None]) -> Iterator[pl.DataFrame]:
    import polars as pl

    done = 0
    for block in _whole_lines(stream):
        try:
            frame = pl.read_ndjson(block, schema_overrides={name: pl.String for name in names})
        except pl.exceptions.PolarsError:
            from .badrows import bad_json_row

            raise InputError(bad_json_row("standard input", block.splitlines(), done)) from None
        if not done:
            require(frame.columns)
        done += frame.height
        yield frame.select(pl.col(name) if name in frame.columns else pl.lit(None).alias(name) for name in names)


def _lines(stream: BinaryIO, require: Callable[[list[str]], None]) -> Iterator[pl.DataFrame]:
    import polars as pl

    require(["line"])
    for block in _whole_lines(stream):
        text = block.decode("utf-8").removesuffix("\n").replace("\r\n", "\n")
        yield pl.DataFrame({"line": text.split("\n")})


def _arrow(stream: BinaryIO, names: list[str], require: Callable[[list[str]], None]) -> Iterator[pl.DataFrame]:
    import polars as pl
    import pyarrow as pa

    with pa.ipc.open_stream(stream) as reader:
        require(reader.schema.names)
        for batch in reader:
            chosen = batch.select(names)
            validate(chosen)
            frame = pl.from_arrow(pa.Table.from_batches([chosen]))
            assert isinstance(frame, pl.DataFrame)
            yield frame


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
