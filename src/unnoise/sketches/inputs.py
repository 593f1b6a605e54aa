"""Whatever a caller may pass as items, turned into batches of clean rows.

A *clean column* is an int64 array, or a polars Series or Arrow array of strings, without nulls; a row with a null in
any of its columns, counts, person and group included, is dropped. Nothing is converted that could change an item:
floats, booleans and mixed types are refused. Messages name columns and types, never values or numbers of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Int64
from ..checks import is_integer
from ..errors import InputError
from .columns import Raw, from_any, is_column, validate

__all__ = ["BATCH", "Rows", "clean_rows", "columns_of", "person_is_item", "read_items", "with_occurrences"]

BATCH = 1 << 16
"""Items taken from an iterator at a time."""

ROLES = ("counts", "person", "group")


@dataclass(frozen=True, eq=False)
class Rows:
    """Some rows, clean.

    columns : the columns of the items
    types : "int" or "str" for each column, None when there is nothing to tell from
    stated : whether the columns have types of their own, so that the types say nothing about the rows
    counts : occurrences per row, None for one each
    person, group : the columns that say who is behind each row, and which group it is in, or None
    """

    columns: tuple[Any, ...]
    types: tuple[str, ...] | None
    stated: bool = True
    counts: Int64 | None = None
    person: tuple[Any, ...] | None = None
    group: tuple[Any, ...] | None = None

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self.columns[0]) if self.columns else 0


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
    if items is None or isinstance(items, str | bytes | int | float):
        raise InputError(f"items must be a collection, got {type(items).__name__}: pass [item] for a single one")
    if type(items).__name__ == "LazyFrame":
        raise InputError("items must be data, got a LazyFrame: pass frame.collect()")
    if not isinstance(items, Mapping) or not all(is_integer(value) for value in items.values()):
        return items, counts
    if counts is not None:
        raise InputError("counts must be left out where items are a mapping from items to their occurrences")
    return list(items), list(items.values())


def columns_of(items: Any) -> dict[str, Any] | None:
    """Return the named columns of a table in memory, one column as ``items``, or None for what must be read first."""
    if is_column(items):
        return {"items": items}
    if isinstance(items, Mapping):
        if not all(is_column(column) for column in items.values()):
            raise InputError("a mapping must hold columns by name, or whole numbers of occurrences by item")
        return {str(name): column for name, column in items.items()}
    kind = f"{type(items).__module__.partition('.')[0]}.{type(items).__name__}"
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


def _duckdb_reader(items: Any) -> Any:
    """Return what reads the result of ``connection.execute``, which has no Arrow C stream of its own."""
    if hasattr(items, "__arrow_c_stream__"):
        return None
    return getattr(items, "to_arrow_reader", None) or getattr(items, "fetch_record_batch", None)


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
        return Rows((), types, stated)
    valid: NDArray[np.bool_] | None = None
    for column in everything:
        if column.valid is not None:
            valid = column.valid if valid is None else valid & column.valid
    kept = {role: tuple(column.keep(valid) for column in columns) for role, columns in beside.items()}
    return Rows(
        tuple(column.keep(valid) for column in raw),
        types,
        stated,
        counts=kept["counts"][0] if counts else None,
        person=kept.get("person"),
        group=kept.get("group"),
    )
