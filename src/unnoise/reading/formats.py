"""The formats that can be read, in one table: by name, by the end of a file's name, and how each gives its rows.

Adding a format takes one row here. A format is read lazily by polars (``scan``), or as a stream of bytes
(``stream``), or as a database (``query``); one that is read in both of the first two ways comes from standard input
as well. ``item`` and ``counts`` name the columns of formats whose rows have a fixed meaning, such as lines of text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ..errors import InputError
from . import databases, streams

if TYPE_CHECKING:
    import polars as pl

__all__ = ["FORMATS", "LINE", "Dialect", "Format", "Location", "compression_of", "format_of", "is_remote", "open_bytes"]

Location = Path | str
"""A file of this machine, or an address such as s3://… that polars opens."""

Names = Sequence[str] | None
LINE = streams.LINE


@dataclass(frozen=True)
class Dialect:
    """How text is laid out.

    header : whether the first line names the columns
    delimiter : what stands between two fields, None for the format's own
    quote : what may stand around a field, None for "nothing"
    """

    header: bool = True
    delimiter: str | None = None
    quote: str | None = '"'

    def __post_init__(self) -> None:
        for name in ("delimiter", "quote"):
            sign = getattr(self, name)
            if sign is not None and (len(sign) != 1 or not sign.isascii() or sign in "\r\n"):
                raise InputError(f"{name} must be a single ASCII character, got {sign!r}")
        if self.delimiter is not None and self.delimiter == self.quote:
            raise InputError(f"delimiter and quote must differ, got {self.quote!r} for both")


@dataclass(frozen=True)
class Format:
    """A way in which rows are written down.

    suffixes : ends of file names that tell it
    typed : whether columns have types of their own
    delimiter : what stands between fields, for formats with a dialect
    item, counts : columns that hold the item and its occurrences, where the format says so
    """

    suffixes: tuple[str, ...]
    typed: bool = False
    delimiter: str = ""
    item: str | None = None
    counts: str | None = None
    scan: Callable[[Location, Dialect, Names], pl.LazyFrame] | None = None
    stream: Callable[[streams.Wants], Iterator[pl.DataFrame]] | None = None
    query: Callable[[Path, str | None], databases.Queried] | None = None


def _scan_parquet(where: Location, _: Dialect, names: Names) -> pl.LazyFrame:
    """Scan a Parquet file, whose footer Arrow has read: polars trusts the lengths there, and takes the process down."""
    import polars as pl
    from pyarrow.parquet import read_metadata

    if not isinstance(where, str):
        read_metadata(where)
    return pl.scan_parquet(where, glob=False)


def _scan_arrow(where: Location, _: Dialect, names: Names) -> pl.LazyFrame:
    import polars as pl

    return pl.scan_ipc(where, glob=False)


def _scan_lines(where: Location, _: Dialect, names: Names) -> pl.LazyFrame:
    import polars as pl

    return pl.scan_lines(where, name=LINE)


def _scan_npy(where: Location, _: Dialect, names: Names) -> pl.LazyFrame:
    import numpy as np
    import polars as pl

    array = np.load(where, allow_pickle=False)
    if array.ndim > 2 or (array.ndim == 2 and 1 not in array.shape):
        raise InputError(f"{where}: must hold one column, got an array of shape {array.shape}")
    return pl.LazyFrame({"value": array.reshape(-1)})


def _scan_ndjson(where: Location, _: Dialect, names: Names) -> pl.LazyFrame:
    import polars as pl

    types = {name: pl.String for name in names} if names else None
    return pl.scan_ndjson(where, schema_overrides=types)


def _scan_csv(separator: str) -> Callable[[Location, Dialect, Names], pl.LazyFrame]:
    def scan(where: Location, dialect: Dialect, names: Names) -> pl.LazyFrame:
        import polars as pl

        renamed = None if dialect.header else lambda found: [f"column_{i + 1}" for i in range(len(found))]
        return pl.scan_csv(
            where, separator=dialect.delimiter or separator, quote_char=dialect.quote, has_header=dialect.header,
            infer_schema=False, glob=False, with_column_names=renamed,
        )  # fmt: skip

    return scan


FORMATS: dict[str, Format] = {
    "csv": Format((".csv",), delimiter=",", scan=_scan_csv(","), stream=streams.read_csv),
    "tsv": Format((".tsv", ".tab"), delimiter="\t", scan=_scan_csv("\t"), stream=streams.read_csv),
    "ndjson": Format((".ndjson", ".jsonl"), scan=_scan_ndjson, stream=streams.read_ndjson),
    "lines": Format((".txt",), item=LINE, scan=_scan_lines, stream=streams.read_lines),
    "uniq": Format((".uniq",), item=LINE, counts="count", stream=streams.read_uniq),
    "freqcount": Format((".freqcount",), typed=True, item="item", counts="frequency", stream=streams.read_freq_count),
    "parquet": Format((".parquet", ".pq"), typed=True, scan=_scan_parquet),
    "arrow": Format((".arrow", ".feather", ".ipc"), typed=True, scan=_scan_arrow, stream=streams.read_arrow),
    "npy": Format((".npy",), typed=True, item="value", scan=_scan_npy),
    "sqlite": Format((".sqlite", ".sqlite3", ".db"), typed=True, query=databases.sqlite),
    "duckdb": Format((".duckdb", ".ddb"), typed=True, query=databases.duckdb),
}
"""Every format, by its name."""

COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".zstd": "zstd"}
"""Ends of names of compressed files; polars opens gzip and zstd by itself."""


def is_remote(name: str) -> bool:
    """Whether a name is an address that polars opens: s3://…, https://… and their like."""
    scheme, sign, _ = name.partition("://")
    return bool(sign) and scheme.isalnum() and len(scheme) > 1


def compression_of(where: Location) -> str | None:
    """Return how a file is compressed, by its name."""
    return COMPRESSIONS.get(Path(str(where)).suffix.lower())


def format_of(where: Location, given: str | None) -> str:
    """The format given, or the one that the name of the file tells."""
    if given is not None:
        return given
    suffixes = [suffix.lower() for suffix in Path(str(where).partition("?")[0]).suffixes]
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes.pop()
    for name, format in FORMATS.items():
        if suffixes and suffixes[-1] in format.suffixes:
            return name
    raise InputError(f"{where}: the format is not clear from the name; add --format with one of {', '.join(FORMATS)}")


def open_bytes(where: Location) -> BinaryIO:
    """Open a file for reading, decompressed."""
    import bz2
    import gzip

    kind = compression_of(where)
    if kind == "gzip":
        return gzip.open(where)  # type: ignore[return-value]
    if kind == "bz2":
        return bz2.open(where)  # type: ignore[return-value]
    if kind == "zstd":
        import pyarrow as pa

        return pa.input_stream(str(where), compression="zstd")  # type: ignore[no-any-return]
    return open(where, "rb")
