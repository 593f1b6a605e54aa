"""The formats that can be read, in one table: by name, by the end of a file's name, and how each gives its rows.

Adding a format takes one row here. A format is read lazily by polars (``scan``), or as a stream of bytes
(``stream``), or as a database (``query``); one that is read in both of the first two ways comes from standard input
as well. ``item`` and ``counts`` name the columns of formats whose rows have a fixed meaning, such as lines of text.

Beside the table: files are found and queries run over them in batches, a name that is not there is answered by what
comes close, and columns get the types that items, counts, persons and groups may have.
"""

from __future__ import annotations

import difflib
import glob
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ..errors import InputError
from ..sketches.inputs import LIMIT, within_64_bits
from . import streams

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "FORMATS", "LINE", "QUERY", "Dialect", "Format", "Location", "as_text", "brief", "collect_batches",
    "column_of_counts", "column_of_integers", "compression_of", "expand", "format_of", "item_column", "no_rows",
    "on_terminal", "open_bytes", "require_columns", "require_once", "require_plain", "standard_input", "told",
    "uuid_columns", "uuid_text", "viewed_batches",
]  # fmt: skip

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

    name : what it is called, in options and messages
    suffixes : ends of file names that tell it
    typed : whether columns have types of their own
    lines : whether every line stands for itself, without a header before them
    delimiter : what stands between fields, for formats with a dialect
    item, counts : columns that hold the item and its occurrences, where the format says so
    """

    name: str
    suffixes: tuple[str, ...]
    typed: bool = False
    lines: bool = False
    delimiter: str = ""
    item: str | None = None
    counts: str | None = None
    scan: Callable[[Location, Dialect, Names], pl.LazyFrame] | None = None
    stream: Callable[[streams.Wants], Iterator[pl.DataFrame]] | None = None
    query: Callable[[Path, str | None], streams.Queried] | None = None


def _scan_parquet(where: Location, _: Dialect, names: Names) -> pl.LazyFrame:
    """Scan a Parquet file, whose footer Arrow has read: polars trusts the lengths there, and takes the process down."""
    import polars as pl

    schema = None if isinstance(where, str) else _arrow_schema(where, "parquet")
    if schema is not None:
        require_columns(str(where), schema.names, schema.names)  # polars reads none where two have one name
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
    """Scan the wanted keys as text; others, and types guessed from the first rows, would make late rows unreadable."""
    import polars as pl

    return pl.scan_ndjson(where, schema={name: pl.String for name in names} if names else None)


def _scan_csv(separator: str) -> Callable[[Location, Dialect, Names], pl.LazyFrame]:
    def scan(where: Location, dialect: Dialect, names: Names) -> pl.LazyFrame:
        import polars as pl

        if dialect.header and isinstance(where, Path):
            with open(where, "rb") if compression_of(where) is None else open_bytes(where) as stream:
                if streams.CR_ALONE.match(stream.read(streams.HEADER)):
                    raise InputError(f"{where}: {streams.LINE_ENDS}")

        def renamed(found: list[str]) -> list[str]:
            if not dialect.header:
                return [f"column_{i + 1}" for i in range(len(found))]
            quote = dialect.quote  # doubled within a field, which polars undoes in values and not in names
            return [name.replace(2 * quote, quote) for name in found] if quote else found

        return pl.scan_csv(
            where, separator=dialect.delimiter or separator, quote_char=dialect.quote, has_header=dialect.header,
            infer_schema=False, glob=False,
            with_column_names=renamed if isinstance(where, Path) or not dialect.header else None,  # no address takes it
        )  # fmt: skip

    return scan


FORMATS: dict[str, Format] = {format.name: format for format in (
    Format("csv", (".csv",), delimiter=",", scan=_scan_csv(","), stream=streams.read_csv),
    Format("tsv", (".tsv", ".tab"), delimiter="\t", scan=_scan_csv("\t"), stream=streams.read_csv),
    Format("ndjson", (".ndjson", ".jsonl"), lines=True, scan=_scan_ndjson, stream=streams.read_ndjson),
    Format("lines", (".txt",), lines=True, item=LINE, scan=_scan_lines, stream=streams.read_lines),
    Format("uniq", (".uniq",), item=LINE, counts="count", stream=streams.read_uniq),
    Format("freqcount", (".freqcount",), typed=True, item="item", counts="frequency", stream=streams.read_freq_count),
    Format("parquet", (".parquet", ".pq"), typed=True, scan=_scan_parquet),
    Format("arrow", (".arrow", ".feather", ".ipc"), typed=True, scan=_scan_arrow, stream=streams.read_arrow),
    Format("npy", (".npy",), typed=True, item="value", scan=_scan_npy),
    Format("sqlite", (".sqlite", ".sqlite3", ".db"), typed=True, query=streams.sqlite),
    Format("duckdb", (".duckdb", ".ddb"), typed=True, query=streams.duckdb),
)}  # fmt: skip
"""Every format, by its name."""

QUERY = Format("sql", (), typed=True)
"""The result of a query over files, which no file name tells."""

COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".zstd": "zstd"}
"""Ends of names of compressed files; polars opens gzip and zstd by itself."""


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


PACKED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"PK\x03\x04": "zip"}
"""How compressed files begin."""


def require_plain(label: str, head: bytes) -> None:
    """Refuse what begins as a compressed file does, and would be taken for text that is no UTF-8."""
    for begins, name in PACKED.items():
        if head.startswith(begins):
            raise InputError(
                f"{label}: must be text, got {name}; decompress it first, or let a file's name end in .gz, .zst or .bz2"
            )


def standard_input() -> BinaryIO:
    """Return the bytes of standard input."""
    if sys.stdin is None:
        raise InputError("standard input is closed; send the rows by a pipe (… | unnoise … -), or name a file")
    return sys.stdin.buffer


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


# ── files and what is in them ───────────────────────────────────────────────────────────────────────────────────────


def collect_batches(lazy: pl.LazyFrame, chunk: int, *, whole_rows: bool) -> Iterator[pl.DataFrame]:
    """Run a query and stream its result; the only caller of polars functions that are marked unstable.

    With ``whole_rows`` the reader looks at every column: told to skip some, it no longer sees that a row has a
    field too many, and an unquoted comma would shift the values in silence.
    """
    import warnings

    import polars as pl

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*unstable.*")
        options = pl.QueryOptFlags(projection_pushdown=not whole_rows)
        found = lazy.collect_batches(chunk_size=chunk, maintain_order=True, optimizations=options)
    yield from found


def viewed_batches(where: Location, names: Sequence[str]) -> Iterator[pl.DataFrame] | None:
    """Return batches of an Arrow file by Arrow itself where a column is a view: polars may lose all its rows."""
    import polars as pl
    import pyarrow as pa

    schema = _arrow_schema(where, "arrow") if isinstance(where, Path) else None
    if schema is None or not any(str(schema.field(name).type).endswith("_view") for name in names):
        return None
    options = pa.ipc.IpcReadOptions(included_fields=[schema.get_field_index(name) for name in names])

    def batches() -> Iterator[pl.DataFrame]:
        with pa.ipc.open_file(where, options=options) as file:
            for place in range(file.num_record_batches):
                yield pl.DataFrame(pl.from_arrow(file.get_batch(place))).select(names)

    return batches()


def expand(name: str) -> list[Location]:
    """Return the files behind a path or glob, in order of their names; an address stands for itself."""
    scheme, sign, _ = name.partition("://")
    if sign and scheme.isalnum() and len(scheme) > 1:  # s3://…, https://… and their like
        return [name]
    found = [name] if os.path.isfile(name) else []
    if os.path.isdir(name):
        raise InputError(f"{name} is a folder; give the files in it, for example '{name.rstrip('/')}/*.parquet'")
    if not found and any(sign in name for sign in "*?["):
        found = sorted(path for path in glob.glob(name, recursive=True) if os.path.isfile(path))
        if not found:
            raise InputError(f"{name}: no file matches")
    for path in found:
        if path.encode(errors="ignore").decode() != path:  # polars opens no other
            raise InputError(f"{path!r}: a file's name must be UTF-8, got other bytes; rename it, or send it by a pipe")
    if found:
        return [Path(path) for path in found]
    if os.path.exists(name):
        raise InputError(f"{name} is a pipe or device; send it to standard input and give - in its place")
    if os.path.islink(name):
        raise InputError(f"{name} is a link to a file that does not exist")
    folder = os.path.dirname(name) or "."
    near = difflib.get_close_matches(os.path.basename(name), os.listdir(folder), 1) if os.path.isdir(folder) else []
    hint = f"; did you mean {os.path.join(os.path.dirname(name), near[0])}?" if near else ""
    raise InputError(f"{name}: no such file{hint}")


def require_once(places: Sequence[Location]) -> None:
    """Refuse a file that stands behind two names: counted twice, an occurrence would have twice its ε."""
    seen: dict[tuple[int, int], Path] = {}
    for place in places:
        if isinstance(place, Path):
            found = os.stat(place)
            first = seen.setdefault((found.st_dev, found.st_ino), place)
            if first is not place:
                raise InputError(f"{first} and {place} are the same file; twice=True counts it twice")


def on_terminal() -> bool:
    """Whether errors go to somebody in front of a terminal, and into no log."""
    return sys.stderr is not None and sys.stderr.isatty()


def told(have: Sequence[str], *, first_line: bool) -> str:
    """Say which columns there are; a ``first_line`` that is to name them may be a row, which only a terminal is shown.

    >>> told(["url", "user"], first_line=False), told([], first_line=True)
    ('there is url, user', 'there is none')
    """
    if have and first_line and not on_terminal():
        if len(have) == 1:
            return "there is one column: is another delimiter needed? (its name is shown on a terminal only)"
        return f"there are {len(have)} columns, named on a terminal only: a first line that is a row needs --no-header"
    return f"there is {', '.join(list(have)[:12])}{', …' * (len(have) > 12)}" if have else "there is none"


def require_columns(label: str, wanted: Sequence[str], have: Sequence[str], *, first_line: bool = False) -> None:
    """Refuse a missing column, and one that is there twice (polars renames those).

    The columns that come close are named, those of a ``first_line`` as :func:`told` says.
    """
    for name in wanted:
        if list(have).count(name) > 1 or f"{name}_duplicated_0" in have:
            raise InputError(f"{label}: column {name!r} must be there once, got several of this name; rename one")
        if name not in have:
            near = difflib.get_close_matches(name, have, 3, 0.5) or [
                other for other in have if other.lower().strip() == name.lower().strip()
            ]
            hidden = first_line and not on_terminal()
            there = f"did you mean {' or '.join(near)}?" if near and not hidden else told(have, first_line=first_line)
            raise InputError(f"{label}: no column {name!r}; {_no_header(have, named=not hidden) or there}")


def _no_header(have: Sequence[str], *, named: bool = True) -> str:
    """Say so where a header that was read as one column seems to be several, a comment, or no UTF-8.

    >>> _no_header(["url;user"]), _no_header(["url;user"], named=False), _no_header(["url", "user"])
    ("there is one column, 'url;user': is another delimiter needed?", '', '')
    >>> _no_header(["# Nodes: 3"])
    "its first line begins with '#': leave comments out, grep -v '^#' FILE | unnoise … -"
    """
    if any("\0" in name for name in have):
        return "its header looks like UTF-16; convert the file: iconv -f utf-16 -t utf-8"
    if any("\ufffd" in name for name in have):
        return "its header is not UTF-8; convert the file: iconv -f latin1 -t utf-8"
    if have and have[0].startswith("# "):
        return "its first line begins with '#': leave comments out, grep -v '^#' FILE | unnoise … -"
    several = named and len(have) == 1 and any(sign in have[0] for sign in ";\t|, ")
    return f"there is one column, {have[0]!r}: is another delimiter needed?" if several else ""


# ── types of columns ────────────────────────────────────────────────────────────────────────────────────────────────

SHOWN = 40
"""Most characters of a value in a message."""


def brief(value: Any) -> str:
    """Quote a value for a message: short, and inert in a terminal."""
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def column_of_integers(series: pl.Series, label: str, offset: int = 0) -> pl.Series:
    """Return a column of an item as 64-bit integers, or say in which row of text there is something else."""
    import polars as pl

    if series.dtype.is_integer():
        return item_column(series, label)
    fix = "leave out --int to count the values as text"
    return _whole(_text_of_integers(series, label), series.cast(pl.Int64, strict=False), label, offset, fix)


def column_of_counts(series: pl.Series, label: str, offset: int = 0) -> pl.Series:
    """Return a column of occurrences; those beyond 64 bits are the largest there is: a refusal would tell of them."""
    import polars as pl

    if series.dtype.is_integer():
        return within_64_bits(series)
    whole = _text_of_integers(series, label).cast(pl.Int64, strict=False)
    if whole.null_count() > series.null_count():
        signs = series.str.extract(r"^([+-]?)[0-9]+$").replace_strict({"-": -1, "+": 1, "": 1}, return_dtype=pl.Int64)
        whole = pl.select(pl.coalesce(whole, signs * LIMIT)).to_series()
    return _whole(series, whole, label, offset, "correct or remove the row")


def _text_of_integers(series: pl.Series, label: str) -> pl.Series:
    import polars as pl

    if series.dtype != pl.String:
        fix = _cast(series, "BIGINT")
        raise InputError(f"{label}: column {series.name} must hold integers, got {series.dtype}; {fix}")
    return series


def _whole(series: pl.Series, whole: pl.Series, label: str, offset: int, fix: str) -> pl.Series:
    """Return the integers that a text was read as, or name the first row that was none."""
    bad = whole.is_null() & series.is_not_null()
    if not bad.any():
        return whole
    row = offset + int(bad.arg_true()[0]) + 1
    raise InputError(f"{label}, row {row}: {series.name} must be a 64-bit integer, got another text; {fix}")


def item_column(series: pl.Series, label: str) -> pl.Series:
    """Return a column of an item as Int64 or String; other types are not hashed alike in every engine.

    Unsigned integers are taken modulo 2^64, bytes as their hexadecimal digits: both tell all values apart.
    """
    import polars as pl

    if series.dtype == pl.UInt64:
        return series.reinterpret(signed=True)
    if series.dtype.is_integer() and series.dtype not in (pl.Int128, pl.UInt128):
        return series.cast(pl.Int64)
    if series.dtype == pl.String:
        return series
    if series.dtype in (pl.Categorical, pl.Null, pl.Binary) or isinstance(series.dtype, pl.Enum):
        return as_text(series, label)
    raise InputError(
        f"{label}: column {series.name} must hold text or integers, got {series.dtype}; {_cast(series, 'VARCHAR')}"
    )


def no_rows(name: str, kind: Any, label: str) -> pl.Series:
    """Return a column of a type without rows; some types can be stated and not held, as decimals of 60 digits."""
    import polars as pl

    try:
        return pl.Series(name, [], dtype=kind)
    except pl.exceptions.PolarsError:
        fix = "write it as text or integers first"
        raise InputError(f"{label}: column {name} must hold text or integers, got {kind}; {fix}") from None


def _cast(series: pl.Series, kind: str) -> str:
    """Say how to cast a column in a query over files: names in quotes, as SQL has words of its own.

    >>> import polars as pl
    >>> print(_cast(pl.Series("order", [0.5]), "VARCHAR"))
    cast it: --sql 'SELECT CAST("order" AS VARCHAR) AS "order", … FROM data'
    """
    if _has_no_text(series):
        return "write it as text or integers first"
    name = '"' + series.name.replace('"', '""') + '"'
    return f"cast it: --sql {shlex.quote(f'SELECT CAST({name} AS {kind}) AS {name}, … FROM data')}"


def _has_no_text(series: pl.Series) -> bool:
    import polars as pl

    return series.dtype in (pl.List, pl.Array, pl.Duration, pl.Object) or series.dtype.base_type().__name__ == "Map"


def as_text(series: pl.Series, label: str) -> pl.Series:
    """Return a column as text, bytes as their hexadecimal digits; lists and durations have none."""
    import polars as pl

    if _has_no_text(series):
        raise InputError(f"{label}: column {series.name} must hold text or numbers, got {series.dtype}; cast it first")
    return series.bin.encode("hex") if series.dtype == pl.Binary else series.cast(pl.String)


def uuid_columns(where: Location | None, format: str, names: Sequence[str]) -> list[str]:
    """Return the columns that hold UUIDs, which polars reads as bytes."""
    if where is None or isinstance(where, str) or format not in ("parquet", "arrow"):
        return []
    schema = _arrow_schema(where, format)
    if schema is None:
        return []
    require_columns(str(where), names, schema.names)
    return [name for name in names if "uuid" in str(schema.field(name).type)]


def _arrow_schema(where: Location, format: str) -> Any:
    """Return the columns as Arrow reads them, or None where one has a type that only polars has, as 128-bit integers.

    Arrow comes to the types after it has read the whole footer.
    """
    import pyarrow as pa
    from pyarrow import parquet

    try:
        if format == "parquet":
            return parquet.read_schema(where)
        with pa.ipc.open_file(where) as file:
            return file.schema
    except pa.ArrowNotImplementedError:
        return None


def uuid_text(name: str) -> pl.Expr:
    """Write 16 bytes as 8-4-4-4-12 hexadecimal digits."""
    import polars as pl

    digits = pl.col(name).bin.encode("hex")
    parts = [digits.str.slice(start, length) for start, length in ((0, 8), (8, 4), (12, 4), (16, 4), (20, 12))]
    return pl.concat_str(parts, separator="-").alias(name)
