"""Read rows from files, databases and standard input, in batches of bounded memory.

A :class:`Source` is one or several files of a :class:`~unnoise.reading.formats.Format`, addresses that polars opens,
the result of an SQL query, or standard input; a :class:`Wanted` says which columns make an item and what else is
needed. :meth:`Source.batches` then yields batches of :class:`~unnoise.sketches.inputs.Rows`, as sketches take them in.

Text formats hold strings: a column of them is read as text unless ``integers`` is set ("00123" must not become
123). Parquet, Arrow and the result of a query have types of their own: integers stay integers, text stays text and
anything else is refused. A null in any wanted column drops the row, as in every other engine.

Everything here is on the secret side of the border: how many rows there are and how many were left out is shown on a
terminal and nowhere else; a row that cannot be read is named on standard error.
"""

from __future__ import annotations

import os
import re
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ..errors import InputError
from ..sketches.inputs import Rows
from .formats import (
    FORMATS,
    LINE,
    QUERY,
    Dialect,
    Format,
    Location,
    as_text,
    collect_batches,
    column_of_counts,
    column_of_integers,
    compression_of,
    expand,
    format_of,
    item_column,
    no_rows,
    on_terminal,
    open_bytes,
    require_columns,
    require_once,
    require_plain,
    standard_input,
    uuid_columns,
    uuid_text,
    viewed_batches,
)
from .streams import Wants, frequency_pairs

if TYPE_CHECKING:
    import polars as pl

__all__ = ["CHUNK", "FORMATS", "LINE", "Source", "Wanted", "open_source"]

NO_FLOATS = "must hold text or integers to name groups, got floats, whose texts are 1.0, 2.0, …; write it as integers"
"""Said of a column of groups."""

WORDS = {"int": "integers", "str": "text"}
"""What errors call the types of a column."""

FILES = re.compile(r"\b(?:read|scan)_(?:csv|ipc|json|ndjson|parquet|avro|delta|iceberg|lines)\b", re.IGNORECASE)
"""Functions of polars' SQL that read files: it has csv, ipc, json and parquet by now."""

TEXTS = re.compile(r"""(--|/\*|[$#\[]|'''|[\w&]['"`])|'[^']*'|"[^"]*"|`[^`]*`""")
"""Texts and quoted names of a query; first comments and other kinds of text, which dialects end in different places."""

CHUNK = 1 << 20
"""Rows in a batch, half as many where columns are text: fewer would cost time, more would cost memory."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The columns to read.

    columns : what makes an item, one or several
    integers : read them as 64-bit integers where the format holds text
    counts : column of occurrences per row, or None for one per row
    person : column that names the person behind a row, or None
    group : column that names the group of a row, or None

    names : every column needed, each once
    person_is_item : whether an item is a person: the only column of one is that of the person
    """

    columns: tuple[str, ...]
    integers: bool = False
    counts: str | None = None
    person: str | None = None
    group: str | None = None
    names: list[str] = field(init=False, compare=False)
    person_is_item: bool = field(init=False, compare=False)

    def __post_init__(self) -> None:
        extra = [name for name in (self.counts, self.person, self.group) if name is not None]
        object.__setattr__(self, "names", list(dict.fromkeys([*self.columns, *extra])))
        object.__setattr__(self, "person_is_item", self.columns == (self.person,))


@dataclass(frozen=True)
class Source:
    """Where rows come from; made by :func:`open_source`.

    name : for messages: a path, "standard input" or "the query"
    kind : what the format says of the rows: types, fixed columns; that of a query is the result's
    places : the files and addresses, none for standard input
    given : the format that somebody named for the files of a query, or None where their names tell

    wheres : what is read one after the other: each file, or once the stream or the query over all of them
    headless : whether the rows alone tell the columns, so that nothing is known of them where there are no rows
    first_line : whether a first line names the columns, so that errors name them on a terminal only: it may be a row
    """

    name: str
    kind: Format
    places: tuple[Location, ...] = ()
    dialect: Dialect = field(default_factory=Dialect)
    sql: str | None = None
    stream: BinaryIO | None = field(default=None, compare=False)
    given: str | None = None
    wheres: Sequence[Location | None] = field(init=False, compare=False)
    headless: bool = field(init=False, compare=False)
    first_line: bool = field(init=False, compare=False)

    def __post_init__(self) -> None:
        kind, over_all = self.kind, self.kind is QUERY or not self.places
        unnamed = not kind.typed and kind.item is None and not self.dialect.header
        object.__setattr__(self, "wheres", (None,) if over_all else self.places)
        object.__setattr__(self, "headless", unnamed or kind.name == "ndjson")
        kinds = [FORMATS[format_of(place, self.given)] for place in self.places] if kind is QUERY else [kind]
        lines = self.dialect.header and any(one.delimiter for one in kinds)
        object.__setattr__(self, "first_line", lines)

    def unnamed_item(self) -> tuple[str, ...]:
        """Return the column of the items where nobody names one, by the format and the first line, never by rows.

        The format's own, the first one of a file without a header, else the only one there is; none where that fails.
        """
        if self.kind.item is not None:
            return (self.kind.item,)
        if self.headless:
            return () if self.kind.name == "ndjson" else ("column_1",)
        found = self.columns() if self.places else []
        return tuple(found) if len(found) == 1 else ()

    def schema(self, wanted: Wanted | None = None) -> dict[str, Any]:
        """Return the columns and their types, from metadata or the first line alone."""
        if self.stream is not None:
            raise InputError("the columns of a stream are not known beforehand; write it to a file first")
        where = self.wheres[0]
        with _readable(self, where):
            return dict(self._schema(where, wanted))

    def _schema(self, where: Location | None, wanted: Wanted | None) -> dict[str, Any]:
        import polars as pl

        kind = self.kind
        if kind.query is not None:
            return kind.query(Path(str(where)), self.sql).types
        if kind.item is not None and kind.scan is None:
            both = {kind.item: pl.Int64 if kind.typed else pl.String}
            return both | ({kind.counts: pl.Int64} if kind.counts else {})
        return dict(self._lazy(where, wanted).collect_schema())

    def columns(self) -> list[str]:
        """Return the names of the columns."""
        return list(self.schema())

    def item_types(self, wanted: Wanted) -> tuple[str, ...]:
        """Return "int" or "str" for each column of an item, from the format and the schema alone."""
        if not self.kind.typed or wanted.integers:
            return tuple("int" if wanted.integers else "str" for _ in wanted.columns)
        if self.stream is not None:
            raise InputError("the types of a stream are not known beforehand; write it to a file first")
        return tuple(kind or "str" for kind in self._stated_types(wanted))

    def _stated_types(self, wanted: Wanted) -> list[str | None]:
        """Return the types of an item by what all files say of their columns: a row must not be what tells.

        None for a column that is stated to hold nothing. Columns of a wrong type are refused, as are files that differ.
        """
        found: list[str | None] = [None] * len(wanted.columns)
        told: list[str] = [""] * len(wanted.columns)
        for where in self.wheres:
            label = str(where or self.name)
            for i, kind in enumerate(self._types_in(where, wanted)):
                if kind is not None and found[i] not in (None, kind):
                    raise InputError(
                        f"{label}: column {wanted.columns[i]} must hold {WORDS[str(found[i])]}, as in {told[i]}, got "
                        f"{WORDS[kind]}; write it as in the other files, or count them apart"
                    )
                found[i], told[i] = found[i] or kind, told[i] or (label if kind else "")
        return found

    def _types_in(self, where: Location | None, wanted: Wanted) -> list[str | None]:
        import polars as pl

        with _readable(self, where):
            schema = self._schema(where, wanted)
        label = str(where or self.name)
        require_columns(label, wanted.names, list(schema), first_line=self.first_line)
        empty = pl.DataFrame([no_rows(name, schema[name], label) for name in wanted.names])
        self._clean(empty, wanted, where, 0)  # refuses columns of a wrong type
        items = [item_column(empty[name], label).dtype == pl.Int64 for name in wanted.columns]
        return [
            None if schema[name] == pl.Null else "int" if integers or wanted.integers else "str"
            for name, integers in zip(wanted.columns, items)
        ]

    def pairs(self) -> list[tuple[int, int]] | None:
        """Return each frequency with its number of items, where that is all the data say (a frequency list)."""
        if self.kind.name != "freqcount":
            return None
        (where,) = self.wheres
        with _readable(self, where), nullcontext(self.stream) if where is None else open_bytes(where) as stream:
            assert stream is not None
            return frequency_pairs(stream, str(where or self.name))

    def rows(self) -> int | None:
        """Return about how many rows there are, for progress bars; None where that is not cheap to say."""
        if self.places and self.kind.name == "freqcount":
            return sum(count for _, count in self.pairs() or ())
        counted = self.kind.scan if self.kind.name in ("parquet", "arrow") else None
        guessed = self.kind.name in ("csv", "tsv", "ndjson", "lines", "uniq")
        if not self.places or not (counted or guessed):
            return None
        total = 0
        for where in self.places:
            if isinstance(where, str) or compression_of(where) is not None:
                return None
            try:
                if counted:  # from metadata
                    import polars as pl

                    total += int(counted(where, Dialect(), None).select(pl.len()).collect().item())
                else:  # from the size and the length of the first lines
                    with open(where, "rb") as file:
                        head = file.read(1 << 20)
                    total += round(where.stat().st_size * head.count(b"\n") / max(len(head), 1))
            except Exception:
                return None
        return total

    def batches(self, wanted: Wanted, chunk: int | None = None) -> Iterator[Rows]:
        """Yield the rows in batches of at most ``chunk``: where nobody says so, fewer of text than of integers."""
        types = self._stated_types(wanted) if self.kind.typed and self.stream is None else []
        slim = set(types) == {"int"} and wanted.person is None and wanted.group is None
        most = chunk or (CHUNK if slim else CHUNK // 2)
        for where in self.wheres:
            offset = 0
            for frame in self.frames(where, wanted, most):
                yield self._clean(frame, wanted, where, offset)
                offset += frame.height

    def frames(self, where: Location | None, wanted: Wanted, chunk: int) -> Iterator[pl.DataFrame]:
        """Yield the wanted columns of one file as they are, at most ``chunk`` rows at a time."""
        label, names, kind = str(where or self.name), wanted.names, self.kind
        with _readable(self, where):
            if kind.query is not None:
                result = kind.query(Path(str(where)), self.sql)
                require_columns(label, names, list(result.types))
                found = result.frames(names, chunk)
            elif kind is not QUERY and (where is None or kind.scan is None or compression_of(where) == "bz2"):
                found = self._stream(where, wanted)  # bytes: what polars cannot scan
            elif kind.lines and isinstance(where, Path) and _begins(where).startswith(BOM_UTF8):
                found = self._stream(where, wanted)  # to polars the mark is part of the first line
            elif self.headless and isinstance(where, Path) and not _begins(where).strip():
                return  # nothing to read, and no mistake
            else:
                lazy = self._lazy(where, wanted)
                require_columns(label, names, lazy.collect_schema().names(), first_line=self.first_line)
                texts = uuid_columns(where, kind.name, names) if kind.typed else []
                viewed = viewed_batches(where, names) if where and kind.name == "arrow" and not texts else None
                found = viewed or collect_batches(lazy.select(names), chunk, whole_rows=not kind.typed)
                found = (frame.with_columns(map(uuid_text, texts)) for frame in found) if texts else found
        with _readable(self, where, rows=True):
            for frame in found:
                yield from frame.iter_slices(chunk) if frame.height > chunk else (frame,)

    def _stream(self, where: Location | None, wanted: Wanted) -> Iterator[pl.DataFrame]:
        kind, label = self.kind, str(where or self.name)
        if kind.stream is None:
            raise InputError(f"{label}: {kind.name} cannot be read as a stream; decompress it to a file first")
        dialect = self.dialect
        require = partial(require_columns, label, wanted.names, first_line=self.first_line)
        with nullcontext(self.stream) if where is None else open_bytes(where) as opened:
            assert opened is not None
            if where is None and not kind.typed and isinstance(opened, BufferedReader):
                require_plain(label, opened.peek(4))
            sign = dialect.delimiter or kind.delimiter
            yield from kind.stream(Wants(opened, wanted.names, require, label, dialect.header, sign, dialect.quote))

    def _lazy(self, where: Location | None, wanted: Wanted | None) -> pl.LazyFrame:
        """Return the lazy table of one file, or of the query over all of them."""
        import polars as pl

        tables = []
        for place in self.places if where is None else (where,):
            kind = self._queried(place) if where is None else self.kind
            scan = kind.scan
            if scan is None or compression_of(place) == "bz2":
                raise InputError(
                    f"{place}: a file of this kind cannot be queried; leave out --sql or decompress it first"
                )
            table = scan(place, self.dialect, None if wanted is None or where is None else wanted.names)
            if where is None and kind.name == "arrow":  # a query has them in memory where polars might lose them
                viewed = list(viewed_batches(place, table.collect_schema().names()) or ())
                table = pl.concat(viewed).lazy() if viewed else table
            tables.append(table)
        if where is not None:
            return tables[0]
        self._require_one_schema([table.collect_schema() for table in tables])
        assert self.sql is not None
        _require_own_table(self.sql)
        with pl.SQLContext({"data": pl.concat(tables)}) as context:
            return context.execute(self.sql, eager=False)

    def _require_one_schema(self, schemas: Sequence[pl.Schema]) -> None:
        """Refuse files that do not fit below each other, by what they say of their columns."""
        first = schemas[0]
        for place, schema in zip(self.places, schemas):
            if list(schema) != list(first):
                must, got = (", ".join(list(one)[:12]) for one in (first, schema))
                shown = not self.first_line or on_terminal()
                said = f", {must}, in order, got {got}" if shown else " in order, got others"
                raise InputError(f"{place}: a query needs the columns of {self.places[0]}{said}")
            for name, kind in schema.items():
                if kind != first[name]:
                    raise InputError(
                        f"{place}: a query needs column {name} to be {first[name]}, as in {self.places[0]}, got {kind}"
                    )

    def _queried(self, place: Location) -> Format:
        """Return the format of a file for a query; its columns must be known without a row, or a row would tell."""
        kind = FORMATS[format_of(place, self.given)]
        if kind.name == "ndjson" or (kind.delimiter and not self.dialect.header):
            raise InputError(
                f"{place}: --sql needs columns that are named without a row, got {kind.name} without a header; "
                f"write it as Parquet or CSV with a header first"
            )
        return kind

    def _clean(self, frame: pl.DataFrame, wanted: Wanted, where: Location | None, offset: int) -> Rows:
        """Give the columns their types and drop incomplete rows."""
        import polars as pl

        label = str(where or self.name)
        columns = []
        for name in wanted.names:
            series = frame[name]
            if name == wanted.counts:
                series = column_of_counts(series, label, offset)
            elif name in wanted.columns:
                series = column_of_integers(series, label, offset) if wanted.integers else item_column(series, label)
            else:
                series = as_text(series, label)
            if name == wanted.group and frame[name].dtype.is_float():
                raise InputError(f"{label}: column {name} {NO_FLOATS}")
            columns.append(series)
        complete = pl.DataFrame(columns)
        if any(series.null_count() for series in columns):
            complete = complete.drop_nulls()
        items = [complete[name] for name in wanted.columns]
        whole = [series.dtype == pl.Int64 for series in items]
        untold = not wanted.integers and any(frame[name].dtype == pl.Null for name in wanted.columns)
        person, group = (None if name is None else (complete[name],) for name in (wanted.person, wanted.group))
        return Rows(
            tuple(series.to_numpy() if integers else series for series, integers in zip(items, whole)),
            None if untold else tuple("int" if integers else "str" for integers in whole),
            complete.height,
            counts=None if wanted.counts is None else complete[wanted.counts].to_numpy(),
            person=person,
            group=group,
            dropped=frame.height - complete.height,
        )


def open_source(
    inputs: Sequence[str | os.PathLike[str]],
    *,
    format: str | None = None,
    sql: str | None = None,
    header: bool = True,
    delimiter: str | None = None,
    quote: str | None = '"',
    stream: BinaryIO | None = None,
    twice: bool = False,
) -> Source:
    """Return the source behind paths, globs, addresses or ``-`` (standard input, CSV unless ``format`` says otherwise).

    ``sql`` is a query over the table ``data``: all the files, one below the other; in the file of a database, over
    the tables that are there. A file that is given twice is refused unless ``twice``.
    """
    if format is not None and format not in FORMATS:
        raise InputError(f"format must be one of {', '.join(FORMATS)}, got {format!r}")
    dialect = Dialect(header, delimiter, quote)
    names = [os.fspath(name) for name in inputs]
    if not names:
        raise InputError("an input is required: a file, a glob such as 'logs/*.parquet', or - for standard input")
    if "-" in names:
        return _standard_input(names, format, sql, dialect, stream)
    places = [place for name in names for place in expand(name)]
    if not twice and len(places) > 1:
        require_once(places)
    formats = {format_of(place, format) for place in places}
    if len(formats) > 1 and sql is None:
        raise InputError(f"all inputs must have one format, got {', '.join(sorted(formats))}")
    kind = FORMATS[formats.pop()] if len(formats) == 1 else QUERY
    alone = "a database" if kind.query is not None else "a frequency list" if kind.name == "freqcount" else None
    if alone is not None and len(places) > 1:  # the items of two lists have no names, so which are the same?
        raise InputError(f"{alone} must be the only input, got {' '.join(names)}")
    if kind.query is not None:
        return Source(str(places[0]), kind, tuple(places), dialect, sql)
    if sql is not None:
        return Source("the query", QUERY, tuple(places), dialect, sql, given=format)
    name = str(places[0]) if len(places) == 1 else f"{names[0]} ({len(places)} files)"
    return Source(name, kind, tuple(places), dialect)


def _standard_input(
    names: list[str], format: str | None, sql: str | None, dialect: Dialect, stream: BinaryIO | None
) -> Source:
    if len(names) > 1:
        raise InputError(f"standard input (-) must be the only input, got {' '.join(names)}")
    if sql is not None:
        raise InputError("--sql needs files, got standard input; write it to a file first")
    kind = FORMATS[format or "csv"]
    if kind.stream is None:
        raise InputError(f"{kind.name} cannot be read from standard input; write it to a file first")
    return Source("standard input", kind, (), dialect, None, stream or standard_input())


def _require_own_table(sql: str) -> None:
    """Refuse a query over files that names a function which reads others, past their ledgers and limits.

    Names in a text are let pass, but where it is not plain where the text ends.
    """
    plain = "\\" not in sql and not any(found[1] for found in TEXTS.finditer(sql))
    code = TEXTS.sub(lambda found: "''" if found[0].startswith("'") else found[0], sql) if plain else sql
    named = FILES.search(code)
    if named:
        raise InputError(f"--sql reads the table data, which is all inputs, and no other file: leave out {named[0]}")


def _begins(where: Path) -> bytes:
    """Return how a file begins."""
    with open_bytes(where) as stream:
        return stream.read(1 << 16)


@contextmanager
def _readable(source: Source, where: Location | None, *, rows: bool = False) -> Iterator[None]:
    """Turn what a reader raises, of the file or of its ``rows``, into one line naming file, row and fix."""
    try:
        yield
    except (InputError, GeneratorExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        from .badrows import explain

        raise InputError(explain(source, where, error, rows=rows)) from None
