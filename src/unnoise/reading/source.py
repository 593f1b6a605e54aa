"""Read items from files and standard input, in batches of bounded memory.

A :class:`Source` is one or several files (CSV, TSV, both also gzipped, NDJSON, lines of text, Parquet, Arrow IPC,
globs), the result of an SQL query over them, or standard input; a :class:`Wanted` says which columns make an item
and what else is needed. :meth:`Source.batches` then yields :class:`Batch` after :class:`Batch`.

Text formats hold strings: a column of them is read as text unless ``integers`` is set ("00123" must not become
123). Parquet, Arrow and the result of a query have types of their own: integers stay integers, text stays text and
anything else is refused. A null in any wanted column drops the row, as in every other engine.

Everything here is on the secret side of the border: rows, drops and values may be shown on the standard error
stream of the ingesting process and nowhere else.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ..errors import InputError
from ..guard import quiet
from .scan import FORMATS, LINE, collect_batches, expand, format_of, require_columns, rows_in, scan

if TYPE_CHECKING:
    import polars as pl

    from ..sketches.inputs import Rows
    from ..sketches.sketch import Sketch
    from .groups import GroupedSketch

__all__ = ["CHUNK", "FORMATS", "LINE", "Batch", "Source", "Wanted", "column_of_integers", "feed", "open_source"]

CHUNK = 1 << 20
"""Rows in a batch, half as many where columns are text: fewer would cost time, more would cost memory."""

TYPED = ("parquet", "arrow", "sql")

@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The columns to read.

    columns : what makes an item, one or several
    integers : read them as 64-bit integers where the format holds text
    counts : column of occurrences per row, or None for one per row
    person : column that names the person behind a row, or None
    group : column that names the group of a row, or None
    """

    columns: tuple[str, ...]
    integers: bool = False
    counts: str | None = None
    person: str | None = None
    group: str | None = None

    @property
    def names(self) -> list[str]:
        """Every column needed, each once."""
        extra = [name for name in (self.counts, self.person, self.group) if name is not None]
        return list(dict.fromkeys([*self.columns, *extra]))

    @property
    def integer_names(self) -> list[str]:
        """The columns that must hold integers."""
        return [*(self.columns if self.integers else ()), *([self.counts] if self.counts else [])]


@dataclass(frozen=True, eq=False)
class Batch:
    """Some rows, complete in every wanted column.

    items : one column per part of an item
    counts, person, group : equally long, or None where not asked for
    rows : rows read for this batch, the dropped ones included
    """

    items: pl.DataFrame
    counts: pl.Series | None
    person: pl.Series | None
    group: pl.Series | None
    rows: int

    @property
    def dropped(self) -> int:
        """Rows left out because a wanted column was null."""
        return self.rows - self.items.height

    def clean(self) -> Rows:
        """Return the rows as sketches take them."""
        from ..sketches.inputs import clean_rows

        columns = {column.name: column for column in self.items.get_columns()}
        return clean_rows(columns, self.counts, self.person, self.group)


@dataclass(frozen=True)
class Source:
    """Where rows come from; made by :func:`open_source`.

    name : for messages: a path, "standard input" or "the query"
    format : one of FORMATS, or "sql"
    paths : the files, none for standard input
    """

    name: str
    format: str
    paths: tuple[Path, ...] = ()
    header: bool = True
    sql: str | None = None
    stream: BinaryIO | None = field(default=None, compare=False)

    @property
    def typed(self) -> bool:
        """Whether columns have types of their own."""
        return self.format in TYPED

    def item_types(self, wanted: Wanted) -> tuple[str, ...]:
        """Return "int" or "str" for each column of an item, from the format and the schema alone."""
        if not self.typed or wanted.integers:
            return tuple("int" if wanted.integers else "str" for _ in wanted.columns)
        if self.stream is not None:
            raise InputError("the types of a stream are not known beforehand; write it to a file first")
        where = self.paths[0] if self.sql is None else None
        with _readable(self, where):
            schema = self._frame(where, wanted).collect_schema()
            require_columns(self._label(where), wanted.names, schema.names())
        return tuple("int" if schema[name].is_integer() else "str" for name in wanted.columns)

    def columns(self) -> list[str]:
        """Names of all columns (of the first file, where there are several)."""
        if self.format == "lines":
            return [LINE]
        where = self.paths[0] if self.paths and self.sql is None else None
        with _readable(self, where):
            return list(self._frame(where, None).collect_schema().names())

    def rows(self) -> int | None:
        """Return about how many rows there are, for progress bars; None where that is not cheap to say."""
        if self.sql is not None or not self.paths:
            return None
        guesses = [rows_in(path, self.format) for path in self.paths]
        return None if None in guesses else sum(g for g in guesses if g is not None)

    def batches(self, wanted: Wanted, chunk: int | None = None) -> Iterator[Batch]:
        """Yield the rows in batches of at most ``chunk``; no rows at all is an error."""
        seen, chunk = 0, chunk or self._chunk(wanted)
        wheres: Sequence[Path | None] = self.paths if self.paths and self.sql is None else (None,)
        for where in wheres:
            offset = 0
            for frame in self._frames(where, wanted, chunk):
                yield self._batch(frame, wanted, where, offset)
                offset += frame.height
            seen += offset
        if not seen:
            raise InputError(f"{self.name}: there must be at least one row, got none")

    def _chunk(self, wanted: Wanted) -> int:
        """Return how many rows to read at a time."""
        slim = self.typed and self.stream is None and set(self.item_types(wanted)) == {"int"}
        return CHUNK if slim and wanted.person is None and wanted.group is None else CHUNK // 2

    def _frames(self, where: Path | None, wanted: Wanted, chunk: int) -> Iterator[pl.DataFrame]:
        if self.stream is not None:
            yield from self._stream_frames(wanted, chunk)
            return
        with _readable(self, where):
            lazy = self._frame(where, wanted)
            require_columns(self._label(where), wanted.names, lazy.collect_schema().names())
            yield from collect_batches(lazy.select(wanted.names), chunk, whole_rows=not self.typed)

    def _stream_frames(self, wanted: Wanted, chunk: int) -> Iterator[pl.DataFrame]:
        from .streams import stream_frames

        assert self.stream is not None
        require: Callable[[list[str]], None] = lambda have: require_columns(self.name, wanted.names, have)  # noqa: E731
        with _readable(self, None):
            yield from stream_frames(self.stream, self.format, wanted.names, require, self.header, chunk)

    def _frame(self, where: Path | None, wanted: Wanted | None) -> pl.LazyFrame:
        """Return the lazy table of one file, or of the query over all of them."""
        import polars as pl

        if self.sql is None:
            assert where is not None
            return scan(where, self.format, self.header, wanted.names if wanted else None)
        tables = [scan(path, format_of(path, None), self.header, None) for path in self.paths]
        with pl.SQLContext({"data": pl.concat(tables)}) as context:
            return context.execute(self.sql, eager=False)

    def _label(self, where: Path | None) -> str:
        return self.name if where is None else str(where)

    def _batch(self, frame: pl.DataFrame, wanted: Wanted, where: Path | None, offset: int) -> Batch:
        """Give the columns their types and drop incomplete rows."""
        import polars as pl

        label = self._label(where)
        integers = wanted.integer_names
        columns = []
        for name in wanted.names:
            series = frame[name]
            if name in integers:
                series = column_of_integers(series, label, offset, text_hint=name != wanted.counts)
            elif name in wanted.columns:
                series = _item_column(series, label)
            else:
                series = series.cast(pl.String)
            columns.append(series)
        complete = pl.DataFrame(columns)
        if any(series.null_count() for series in columns):
            complete = complete.drop_nulls()
        counts, person, group = (
            None if name is None else complete[name] for name in (wanted.counts, wanted.person, wanted.group)
        )
        return Batch(complete.select(wanted.columns), counts, person, group, frame.height)


def open_source(
    inputs: Sequence[str | os.PathLike[str]],
    *,
    format: str | None = None,
    sql: str | None = None,
    header: bool = True,
    stream: BinaryIO | None = None,
) -> Source:
    """Return the source behind paths, globs or ``-`` (standard input, CSV unless ``format`` says otherwise).

    ``sql`` is a query over the table ``data``: all the files, one below the other.
    """
    if format is not None and format not in FORMATS:
        raise InputError(f"format must be one of {', '.join(FORMATS)}, got {format!r}")
    names = [os.fspath(name) for name in inputs]
    if not names:
        raise InputError("an input is required: a file, a glob such as 'logs/*.parquet', or - for standard input")
    if "-" in names:
        return _standard_input(names, format, sql, header, stream)
    paths = [path for name in names for path in expand(name)]
    formats = {format_of(path, format) for path in paths}
    if len(formats) > 1 and sql is None:
        raise InputError(f"all inputs must have one format, got {', '.join(sorted(formats))}")
    name = str(paths[0]) if len(paths) == 1 else f"{names[0]} ({len(paths)} files)"
    if sql is not None:
        return Source("the query", "sql", tuple(paths), header, sql)
    return Source(name, formats.pop(), tuple(paths), header)


@quiet
def feed(target: Sketch | GroupedSketch, batches: Iterable[Batch], *, persons: bool = False) -> None:
    """Count all batches in one ingestion call; with ``persons`` they are gathered first, to limit each person."""
    target.take_in((batch.clean() for batch in batches), persons=persons)


def column_of_integers(series: pl.Series, label: str, offset: int = 0, *, text_hint: bool = True) -> pl.Series:
    """Return the column as 64-bit integers, or say in which row there is something else."""
    import polars as pl

    if series.dtype == pl.Int64:
        return series
    if series.dtype.is_integer() or series.dtype == pl.String:
        whole = series.cast(pl.Int64, strict=False)
        bad = whole.is_null() & series.is_not_null()
        if not bad.any():
            return whole
        at = int(bad.arg_true()[0])
        fix = "leave out --int to count the values as text" if text_hint else "correct or remove the row"
        raise InputError(
            f"{label}, row {offset + at + 1}: {series.name} must be a 64-bit integer, got {series[at]!r}; {fix}"
        )
    raise InputError(
        f"{label}: column {series.name} must hold integers, got {series.dtype}; "
        f"cast it: --sql 'SELECT CAST({series.name} AS BIGINT) AS {series.name}, … FROM data'"
    )


def _item_column(series: pl.Series, label: str) -> pl.Series:
    """Return a column of an item as Int64 or String; other types are not hashed alike in every engine."""
    import polars as pl

    if series.dtype.is_integer():
        return column_of_integers(series, label)
    if series.dtype == pl.String:
        return series
    if series.dtype in (pl.Categorical, pl.Null) or isinstance(series.dtype, pl.Enum):
        return series.cast(pl.String)
    raise InputError(
        f"{label}: column {series.name} must hold text or integers, got {series.dtype}; "
        f"cast it: --sql 'SELECT CAST({series.name} AS VARCHAR) AS {series.name} FROM data'"
    )


def _standard_input(
    names: list[str], format: str | None, sql: str | None, header: bool, stream: BinaryIO | None
) -> Source:
    if len(names) > 1:
        raise InputError(f"standard input (-) must be the only input, got {' '.join(names)}")
    if sql is not None:
        raise InputError("--sql needs files, got standard input; write it to a file first")
    if format == "parquet":
        raise InputError("Parquet cannot be read from standard input; write it to a file first")
    return Source("standard input", format or "csv", (), header, None, stream or sys.stdin.buffer)


class _readable:
    """Turn what a reader raises into one line naming file, row and fix."""

    def __init__(self, source: Source, where: Path | None) -> None:
        self.source, self.where = source, where

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if error is None or isinstance(error, InputError | GeneratorExit | KeyboardInterrupt):
            return
        from .badrows import explain

        raise InputError(explain(self.source.format, self.where, self.source.name, error)) from None
