"""Whatever a caller may pass as items, from any library, turned into batches of clean rows.

A *clean column* is an int64 array, or a polars Series or Arrow array of strings, without nulls; a row with a null in
any of its columns, counts, person and group included, is dropped. Nothing is converted that could change an item:
floats, booleans and mixed types are refused. Messages name columns and types, never values or numbers of rows.

Three types become integers or strings by a rule that tells all values apart and that files follow too
(:mod:`unnoise.reading.formats`): UUIDs are their text, bytes their hexadecimal digits, and unsigned 64-bit integers are
taken modulo 2^64.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain, islice
from typing import TYPE_CHECKING, Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from ..arrays import Int64
from ..checks import is_integer
from ..errors import InputError
from .hashing import as_series

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "BATCH", "Raw", "Rows", "clean_rows", "columns_of", "from_any", "is_column", "person_is_item", "read_items",
    "validate", "with_occurrences", "within_64_bits",
]  # fmt: skip

BATCH = 1 << 16
"""Items taken from an iterator at a time."""

LIMIT = (1 << 63) - 1
"""A count beyond is taken as this (a sketch and the direct model bound it further)."""

ROLES = ("counts", "person", "group")


@dataclass(frozen=True, eq=False)
class Rows:
    """Some rows, clean.

    columns : the columns of the items
    types : "int" or "str" for each column, None when there is nothing to tell from
    size : number of rows
    stated : whether the columns have types of their own, so that the types say nothing about the rows
    counts : occurrences per row, None for one each
    person, group : the columns that say who is behind each row, and which group it is in, or None
    dropped : rows of a file that are not among them, because a column was empty
    """

    columns: tuple[Any, ...]
    types: tuple[str, ...] | None
    size: int
    stated: bool = True
    counts: Int64 | None = None
    person: tuple[Any, ...] | None = None
    group: tuple[Any, ...] | None = None
    dropped: int = 0


def read_items(items: Any, counts: Any = None, person: Any = None, group: Any = None) -> Iterator[Rows]:
    """Return the batches of whatever was passed to ``update``."""
    items, counts = with_occurrences(items, counts)
    beside = {role: given for role, given in zip(ROLES, (counts, person, group)) if given is not None}
    table = columns_of(items)
    if table is not None:
        return iter([clean_rows(table, **beside)])
    if hasattr(items, "__arrow_c_stream__") or _duckdb_reader(items) is not None:
        return _from_arrow_stream(items, beside)
    if isinstance(items, Iterable):
        return _from_iterator(items, beside)
    raise InputError(f"items must be a collection of integers, strings or tuples, got {type(items).__name__}")


def person_is_item(items: Any, person: Any) -> bool:
    """Whether a person given is the item: the same column, or the only one of a table; told by their form alone."""
    if isinstance(items, Mapping) and all(is_integer(value) for value in items.values()):
        return False
    if isinstance(person, str):
        return list(columns_of(items) or ()) == [person]
    return person is items and is_column(items)


def with_occurrences(items: Any, counts: Any) -> tuple[Any, Any]:
    """Return a collection and its counts, a ``Counter`` or another mapping to whole numbers being both in one."""
    if items is None or isinstance(items, str | bytes | int | float | os.PathLike):
        kind = type(items).__name__
        fix = "pass [item] for a single one, and of a file its rows: polars.read_csv(path)['column']"
        raise InputError(f"items must be a collection, got {kind}: {fix}")
    if counts is None and type(items).__name__ == "Series" and _is_numbers_by_label(items):
        raise InputError(
            "items must be occurrences, got a Series of their numbers, as of value_counts() and size(): pass "
            "series.to_dict(), or series.to_numpy() where the numbers are the items"
        )
    if type(items).__name__ == "LazyFrame":
        raise InputError("items must be data, got a LazyFrame: pass frame.collect()")
    if not isinstance(items, Mapping) or not all(is_integer(value) for value in items.values()):
        return items, counts
    if counts is not None:
        raise InputError("counts must be left out where items are a mapping from items to their occurrences")
    return list(items), list(items.values())


def _is_numbers_by_label(items: Any) -> bool:
    """Whether pandas made this of occurrences, told by its form alone: whole numbers without a name of their own."""
    if _library(items) != "pandas.Series" or items.dtype.kind not in "iu":
        return False
    if items.name is None:
        return any(name is not None for name in items.index.names)
    return items.name == "count" and _library(items.index) != "pandas.RangeIndex"


def columns_of(items: Any) -> dict[str, Any] | None:
    """Return the named columns of a table in memory, one column as ``items``, or None for what must be read first."""
    if is_column(items):
        return {"items": items}
    if isinstance(items, Mapping):
        if not all(is_column(column) for column in items.values()):
            raise InputError("a mapping must hold columns by name, or whole numbers of occurrences by item")
        return {str(name): column for name, column in items.items()}
    kind = _library(items)
    if kind == "polars.DataFrame":
        return {series.name: series for series in items.get_columns()}
    if kind in ("pyarrow.Table", "pyarrow.RecordBatch"):
        _require_distinct(items.schema.names)
        return dict(zip(items.schema.names, items.columns))
    if kind == "pandas.DataFrame":
        _require_distinct([str(name) for name in items.columns])
        return {str(name): items[name] for name in items.columns}
    if isinstance(items, np.ndarray) and items.ndim == 2:
        return {f"column {i}": items[:, i] for i in range(items.shape[1])}
    return None


def _require_distinct(names: list[str]) -> None:
    if len(set(names)) != len(names):
        raise InputError(f"column names must be distinct, got {', '.join(names)}")


def clean_rows(table: Mapping[str, Any], counts: Any = None, person: Any = None, group: Any = None) -> Rows:
    """Return the rows of a table, whose counts, person and group may be named columns of it."""
    columns, beside = dict(table), {}
    for role, given in zip(ROLES, (counts, person, group)):
        if isinstance(given, str):
            if given not in table:
                raise InputError(f"{role} must name a column of the items ({', '.join(table)}), got {given!r}")
            columns.pop(given, None)
            given = table[given]
        if given is not None:
            beside[role] = from_any(given, role)
    if not columns and isinstance(person, str):
        columns = {person: table[person]}  # the item is the person
    if not columns:
        raise InputError("items must have at least one column")
    return _clean([piece for name, column in columns.items() for piece in from_any(column, name)], beside)


def _duckdb_reader(items: Any) -> Callable[[], Any] | None:
    """Return what reads the result of ``connection.execute``, which has no Arrow C stream of its own."""
    fetch = getattr(items, "to_arrow_reader", None) or getattr(items, "fetch_record_batch", None)
    if fetch is None or hasattr(items, "__arrow_c_stream__"):
        return None

    def read() -> Any:
        try:
            reader = fetch()
        except Exception as error:
            if type(error).__name__ != "InvalidInputException":
                raise
            reader = None  # nothing was executed
        if reader is None:
            raise InputError("items must have a result to read, got a connection without one: execute the query again")
        return reader

    return read


def _from_arrow_stream(items: Any, beside: dict[str, Any]) -> Iterator[Rows]:
    """Read anything with the Arrow C stream, or a DuckDB result, record batch by record batch.

    pyarrow's own readers are used as they are: the C stream passes no lengths of buffers on, and without these nothing
    can be validated.
    """
    import pyarrow as pa

    fetch = _duckdb_reader(items)
    if fetch is not None:
        reader = fetch()
    elif isinstance(items, pa.RecordBatchReader):
        reader = items
    else:
        try:
            reader = pa.RecordBatchReader.from_stream(items)
        except pa.ArrowInvalid:  # one column, not a table
            return iter([clean_rows({"items": pa.chunked_array(items)}, **beside)])
        except (TypeError, ValueError):
            raise InputError(f"items must give an Arrow stream, got {type(items).__name__}, which does not") from None
    for role, wanted in beside.items():
        if not isinstance(wanted, str):
            raise InputError(f"{role} must name a column when items are a stream, got {type(wanted).__name__}")
    _require_distinct(reader.schema.names)

    def batches() -> Iterator[Rows]:
        for batch in chain([reader.schema.empty_table()], reader):  # first the types, which need no row
            yield clean_rows(dict(zip(batch.schema.names, batch.columns)), **beside)

    return batches()


def _from_iterator(items: Iterable[Any], beside: dict[str, Any]) -> Iterator[Rows]:
    """Cut an iterator into lists, with counts, persons and groups (any iterables) beside it."""
    main, others = iter(items), {}
    for role, extra in beside.items():
        if isinstance(extra, str) or not isinstance(extra, Iterable):
            raise InputError(f"{role} must be as long as items, got {type(extra).__name__}")
        if type(extra).__module__.startswith("pyarrow") and hasattr(extra, "validate"):
            validate(extra)
        others[role] = iter(extra)
    while True:
        chunk = list(islice(main, BATCH))
        extras = {role: list(islice(values, len(chunk))) for role, values in others.items()}
        for role, values in extras.items():
            if len(values) != len(chunk):
                raise InputError(f"{role} must be as long as items")
        if len(chunk) < BATCH and any(True for values in others.values() for _ in islice(values, 1)):
            raise InputError(f"{' and '.join(others)} must be as long as items")
        if not chunk:
            return
        yield clean_rows({"items": chunk}, **extras)


def _clean(raw: list[Raw], beside: dict[str, list[Raw]]) -> Rows:
    """Drop rows with nulls and return what is left."""
    counts = beside.get("counts", [])
    if len(counts) > 1 or (counts and counts[0].type not in ("int", None)):
        raise InputError(f"counts must be integers, got {counts[0].describe()}")
    everything = [*raw, *(column for columns in beside.values() for column in columns)]
    for role, columns in beside.items():
        if any(len(column.values) != len(raw[0].values) for column in columns):
            raise InputError(f"{role} must be as long as items")
    if any(len(column.values) != len(raw[0].values) for column in raw):
        raise InputError("the columns of the items must be equally long")
    types = None if any(c.type is None for c in raw) else tuple(str(c.type) for c in raw)
    stated = all(column.stated for column in raw)
    if any(column.type is None for column in everything):  # a column of nothing but nulls drops every row
        return Rows((), types, 0, stated)
    masks = [column.valid for column in everything if column.valid is not None]
    valid = reduce(np.logical_and, masks) if masks else None

    def whole(column: Raw) -> Any:
        """Return the values of the rows without nulls."""
        if valid is None:
            return column.values
        if isinstance(column.values, np.ndarray):
            return column.values[valid]
        return as_series(column.values).filter(valid)

    items, kept = tuple(map(whole, raw)), {role: tuple(map(whole, columns)) for role, columns in beside.items()}
    return Rows(
        items,
        types,
        len(items[0]),
        stated,
        counts=kept["counts"][0] if counts else None,
        person=kept.get("person"),
        group=kept.get("group"),
    )


# ── one column ──────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, eq=False)
class Raw:
    """A column before its nulls are dropped.

    values : int64 array, polars Series or (without nulls) Arrow array of strings, anything when type is None
    type : "int", "str", or None when all is null
    valid : which rows are not null; None when all are
    stated : whether the column itself has the type; else it was found in the values
    """

    values: Any
    type: str | None
    valid: NDArray[np.bool_] | None = None
    stated: bool = True

    def describe(self) -> str:
        """Name the type, for messages."""
        return {"int": "integers", "str": "strings", None: "nulls"}[self.type]


def _allowed(name: str) -> str:
    return f"{name} must be integers" if name == "counts" else f"{name} must be integers or strings"


def _library(values: Any) -> str:
    return f"{type(values).__module__.partition('.')[0]}.{type(values).__name__}"


def is_column(values: Any) -> bool:
    """Tell whether this is one column in memory, of a known kind."""
    if isinstance(values, np.ndarray):
        return values.ndim <= 1
    if isinstance(values, list | tuple | range):
        return True
    name = _library(values)
    if name in ("polars.Series", "pandas.Series", "pandas.Index", "pandas.RangeIndex", "pyarrow.ChunkedArray"):
        return True
    return hasattr(values, "__arrow_c_array__") and not hasattr(values, "schema")


def from_any(values: Any, name: str) -> list[Raw]:
    """Return a column (or, from a list of tuples, several), whatever library it comes from."""
    if isinstance(values, np.ndarray):
        return _from_numpy(values, name)
    if isinstance(values, range):
        return _from_numpy(np.arange(values.start, values.stop, values.step, dtype=np.int64), name)
    if isinstance(values, Sequence) and not isinstance(values, str | bytes):
        return _from_list(list(values), name)
    library = _library(values)
    if library == "polars.Series":
        return [_from_polars(values, name)]
    if library.startswith("pandas."):
        return [_from_pandas(values, name)]
    if library == "pyarrow.ChunkedArray" or hasattr(values, "__arrow_c_array__"):
        return [_from_arrow(values, name)]
    raise InputError(f"{_allowed(name)}, got {type(values).__name__}")


def _from_numpy(values: NDArray[Any], name: str) -> list[Raw]:
    if values.ndim != 1:
        raise InputError(f"{name} must be one-dimensional, got {values.ndim} dimensions")
    if isinstance(values, np.ma.MaskedArray) or values.dtype.kind in "OT":
        return _from_list(values.tolist(), name)
    if values.dtype.kind in "iu":
        if values.dtype == np.uint64 and name == "counts":
            values = np.minimum(values, np.uint64(LIMIT))
        return [Raw(np.ascontiguousarray(values).astype(np.int64), "int")]
    if values.dtype.kind == "S":
        return [Raw(_strings([value.hex() for value in values.tolist()], name), "str")]
    if values.dtype.kind == "U":
        return [Raw(_strings(values.tolist(), name), "str")]
    hint = ": cast to int64 first, if they are whole" if values.dtype.kind == "f" else ""
    raise InputError(f"{_allowed(name)}, got {values.dtype}{hint}")


def _from_list(values: list[Any], name: str) -> list[Raw]:
    """Go by the set of types that occur, so that nothing is converted silently."""
    kinds = set(map(type, values)) - {type(None)}
    valid = None
    if len(kinds) and any(value is None for value in values):
        valid = np.array([value is not None for value in values])
    if not kinds:
        return [Raw(values, None, stated=False)]
    if all(issubclass(kind, int | np.integer) and kind is not bool for kind in kinds):
        return [Raw(_integers(values, name), "int", valid, stated=False)]
    if all(issubclass(kind, str) for kind in kinds):
        return [Raw(_strings(values, name), "str", valid, stated=False)]
    if kinds == {UUID}:
        texts = [None if value is None else str(value) for value in values]
        return [Raw(_strings(texts, name), "str", valid, stated=False)]
    if kinds == {bytes}:
        texts = [None if value is None else value.hex() for value in values]
        return [Raw(_strings(texts, name), "str", valid, stated=False)]
    if kinds == {tuple}:
        return _from_tuples(values, name)
    found = ", ".join(sorted(kind.__name__ for kind in kinds))
    extra = ": mixed types" if len(kinds) > 1 else ""
    raise InputError(f"{_allowed(name)}, got {found}{extra}")


def _from_tuples(values: list[Any], name: str) -> list[Raw]:
    widths = {len(value) for value in values if value is not None}
    if len(widths) != 1 or widths == {0}:
        raise InputError(f"{name} must be tuples of one length ≥ 1, got lengths {sorted(widths)}")
    width = widths.pop()
    empty = (None,) * width
    columns = zip(*(empty if value is None else value for value in values))
    pieces = [from_any(list(column), f"{name}[{i}]") for i, column in enumerate(columns)]
    if any(len(piece) != 1 for piece in pieces):
        raise InputError(f"{name} must be flat tuples of integers and strings, got tuples inside tuples")
    return [piece[0] for piece in pieces]


def _integers(values: list[Any], name: str) -> Int64:
    try:
        return np.array([0 if value is None else value for value in values], dtype=np.int64)
    except OverflowError:
        if name != "counts":
            raise InputError(f"{name} must be integers of at most 64 bits") from None
        return np.array([min(max(value or 0, -LIMIT), LIMIT) for value in values], dtype=np.int64)


def within_64_bits(series: pl.Series) -> pl.Series:
    """Return integers of any width as Int64, those beyond made equal to the largest: to refuse them would tell of them.

    >>> import polars as pl
    >>> within_64_bits(pl.Series([2**64 - 1, 5, None], dtype=pl.UInt64)).to_list()
    [9223372036854775807, 5, None]
    """
    import polars as pl

    low, high = -LIMIT if series.dtype.is_signed_integer() else 0, LIMIT
    wide = series.dtype in (pl.UInt64, pl.Int128, pl.UInt128)
    return (series.clip(low, high) if wide else series).cast(pl.Int64)


def _strings(values: list[Any], name: str) -> Any:
    import polars as pl

    try:
        return pl.Series(name, values, dtype=pl.String)
    except UnicodeEncodeError:
        raise InputError(f"{name} must be valid text, got lone surrogates") from None


def _from_polars(series: Any, name: str) -> Raw:
    import polars as pl

    valid = series.is_not_null().to_numpy() if series.null_count() else None
    if series.dtype == pl.Null:
        return Raw(series, None)
    if series.dtype == pl.Int64 and valid is None:
        return Raw(np.ascontiguousarray(series.to_numpy()), "int")
    if series.dtype == pl.UInt64 and name != "counts":
        return Raw(np.ascontiguousarray(series.fill_null(0).reinterpret(signed=True).to_numpy()), "int", valid)
    if series.dtype == pl.Binary:
        return Raw(series.bin.encode("hex"), "str", valid)
    if series.dtype.is_integer() and (name == "counts" or series.dtype not in (pl.Int128, pl.UInt128)):
        return Raw(np.ascontiguousarray(within_64_bits(series.fill_null(0)).to_numpy()), "int", valid)
    if series.dtype == pl.String:
        return Raw(series, "str", valid)
    if series.dtype in (pl.Categorical, pl.Enum):
        return Raw(series.cast(pl.String), "str", valid)
    raise InputError(f"{_allowed(name)}, got {series.dtype}: cast first")


def _from_pandas(series: Any, name: str) -> Raw:
    """By way of Arrow, where None, NaN and NA in a column of objects are nulls."""
    import pyarrow as pa

    if series.dtype.kind in "fbcmM" and isinstance(series.dtype, np.dtype):
        raise InputError(f"{_allowed(name)}, got {series.dtype}: cast first (Int64 holds missing integers)")
    if series.dtype == object:
        kinds = {kind for kind in map(type, series) if not issubclass(kind, float | type(None))}
        if kinds <= {UUID, bytes} and len(kinds) == 1:
            return _from_list([None if value is None or value != value else value for value in series], name)[0]
        wrong = {k for k in kinds if k is bool or not (issubclass(k, str | int) or k.__name__ in ("NAType", "NaTType"))}
        if wrong:
            raise InputError(f"{_allowed(name)}, got {', '.join(sorted(k.__name__ for k in wrong))}")
    try:
        return replace(_from_arrow(pa.Array.from_pandas(series), name), stated=series.dtype != object)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):
        mixed = "a column of mixed types, or text that is none"
        found = mixed if series.dtype == object else f"{series.dtype}: cast first"
        raise InputError(f"{_allowed(name)}, got {found}") from None


def validate(data: Any) -> None:
    """Refuse Arrow data that are not what they say: an offset out of bounds would be followed out of memory.

    Data of another process or library are not to be trusted; a look at all offsets and texts costs less than a tenth
    of counting them.
    """
    import pyarrow as pa

    try:
        data.validate(full=True)
    except (pa.ArrowInvalid, pa.ArrowIndexError):
        raise InputError("Arrow data must be valid, got offsets, indices or text that are not") from None


def _from_arrow(array: Any, name: str) -> Raw:
    import polars as pl
    import pyarrow as pa

    try:
        if not isinstance(array, pa.Array | pa.ChunkedArray):
            array = pa.array(array)
        validate(array)
        kind = array.type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
            array = array.cast(kind)
    except InputError:
        raise
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InputError(f"{_allowed(name)}, got Arrow data that are neither ({type(error).__name__})") from None
    if pa.types.is_null(kind):
        return Raw(array, None)
    if str(kind).startswith("extension<arrow.uuid"):
        texts = [None if value is None else str(value) for value in array.to_pylist()]
        return _from_polars(pl.Series(name, texts, dtype=pl.String), name)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return _from_polars(pl.Series(name, pl.from_arrow(array)), name)
    text = pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    if not (text or pa.types.is_integer(kind)):
        raise InputError(f"{_allowed(name)}, got {kind}: cast first")
    if text and array.null_count == 0:
        return Raw(array, "str")  # strings change their layout on the way to polars: later, chunk by chunk
    return _from_polars(pl.Series(name, pl.from_arrow(array)), name)
