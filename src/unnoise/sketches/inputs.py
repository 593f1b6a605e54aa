"""Whatever a caller may pass as items, turned into batches of clean columns.

A *clean column* is an int64 array, or a polars Series or Arrow array of strings, without nulls; a row with a null in
any of its columns, counts and person included, is dropped. Nothing is converted that could change an item: floats,
booleans, bytes and mixed types are refused. Messages name columns and types, never values or numbers of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Int64
from ..errors import InputError
from .columns import Raw, from_any, is_column
from .hashing import UInt64, hash_columns

__all__ = ["BATCH", "Batch", "Source", "read_items"]

BATCH = 1 << 16
"""Items taken from an iterator at a time."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Some items, clean.

    columns : the columns of the items; types : "int" or "str" for each, None when there is nothing to tell from
    counts : occurrences per row, None for one each
    persons : 64-bit hash of the person behind each row, or None
    """

    columns: tuple[Any, ...]
    types: tuple[str, ...] | None
    counts: Int64 | None = None
    persons: UInt64 | None = None

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self.columns[0]) if self.columns else 0


@dataclass(frozen=True, eq=False)
class Source:
    """Batches to come; ``stream`` tells that they are read while they are applied and cannot be taken back."""

    batches: Iterator[Batch]
    stream: bool


def read_items(items: Any, counts: Any = None, person: Any = None) -> Source:
    """Return the batches of whatever was passed to ``update``."""
    _refuse_scalars(items)
    table = _table_of(items)
    if table is not None:
        return Source(iter([_from_table(table, counts, person)]), stream=False)
    if is_column(items):
        return Source(iter([_from_table({"items": items}, counts, person)]), stream=False)
    if hasattr(items, "__arrow_c_stream__") or _duckdb_reader(items) is not None:
        return _from_arrow_stream(items, counts, person)
    if isinstance(items, Iterable):
        return Source(_from_iterator(items, counts, person), stream=True)
    raise InputError(f"items must be a collection of integers, strings or tuples, got {type(items).__name__}")


def _refuse_scalars(items: Any) -> None:
    if items is None or isinstance(items, str | bytes | int | float):
        raise InputError(f"items must be a collection, got {type(items).__name__}: pass [item] for a single one")
    if type(items).__name__ == "LazyFrame":
        raise InputError("items must be data, got a LazyFrame: pass frame.collect()")


def _table_of(items: Any) -> dict[str, Any] | None:
    """Return the named columns of a table in memory, or None for anything else."""
    if isinstance(items, Mapping):
        if not items or not all(is_column(column) for column in items.values()):
            raise InputError("a mapping must hold columns by name; for occurrences per item use counts=")
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


def _from_table(table: dict[str, Any], counts: Any, person: Any) -> Batch:
    """Return one batch of a table, whose counts and person may be named columns of it."""
    columns = dict(table)
    counts = _pick(table, columns, counts, "counts")
    person = _pick(table, columns, person, "person")
    if not columns and isinstance(person, _Picked):
        columns = {person.name: person.column}  # the item is the person
    if not columns:
        raise InputError("items must have at least one column")
    raw = [piece for name, column in columns.items() for piece in from_any(column, name)]
    return clean(
        raw,
        from_any(_unpick(counts), "counts") if counts is not None else [],
        from_any(_unpick(person), "person") if person is not None else [],
    )


@dataclass(frozen=True, eq=False)
class _Picked:
    """A column named by the caller and taken out of the table."""

    name: str
    column: Any


def _pick(table: dict[str, Any], columns: dict[str, Any], wanted: Any, role: str) -> Any:
    if not isinstance(wanted, str):
        return wanted
    if wanted not in table:
        raise InputError(f"{role} must name a column of the items ({', '.join(table)}), got {wanted!r}")
    columns.pop(wanted, None)
    return _Picked(wanted, table[wanted])


def _unpick(wanted: Any) -> Any:
    return wanted.column if isinstance(wanted, _Picked) else wanted


def _duckdb_reader(items: Any) -> Any:
    """Return what reads the result of ``connection.execute``, which has no Arrow C stream of its own."""
    if hasattr(items, "__arrow_c_stream__"):
        return None
    return getattr(items, "to_arrow_reader", None) or getattr(items, "fetch_record_batch", None)


def _from_arrow_stream(items: Any, counts: Any, person: Any) -> Source:
    """Read anything with the Arrow C stream, or a DuckDB result, record batch by record batch."""
    import pyarrow as pa

    fetch = _duckdb_reader(items)
    if fetch is not None:
        reader = fetch()
    else:
        try:
            reader = pa.RecordBatchReader.from_stream(items)
        except pa.ArrowInvalid:  # one column, not a table
            column = pa.chunked_array(items)
            return Source(iter([_from_table({"items": column}, counts, person)]), stream=False)
    for wanted, role in ((counts, "counts"), (person, "person")):
        if wanted is not None and not isinstance(wanted, str):
            raise InputError(f"{role} must name a column when items are a stream, got {type(wanted).__name__}")
    _require_distinct(reader.schema.names)

    def batches() -> Iterator[Batch]:
        for batch in reader:
            yield _from_table(dict(zip(batch.schema.names, batch.columns)), counts, person)

    return Source(batches(), stream=True)


def _from_iterator(items: Iterable[Any], counts: Any, person: Any) -> Iterator[Batch]:
    """Cut an iterator into lists, with counts and persons (any iterables) beside it."""
    main = iter(items)
    beside = {}
    for extra, role in ((counts, "counts"), (person, "person")):
        if isinstance(extra, str) or (extra is not None and not isinstance(extra, Iterable)):
            raise InputError(f"{role} must be as long as items, got {type(extra).__name__}")
        if extra is not None:
            beside[role] = iter(extra)
    while True:
        chunk = list(islice(main, BATCH))
        extras = {role: list(islice(values, len(chunk))) for role, values in beside.items()}
        for role, values in extras.items():
            if len(values) != len(chunk):
                raise InputError(f"{role} must be as long as items")
        if len(chunk) < BATCH and any(True for values in beside.values() for _ in islice(values, 1)):
            raise InputError("counts and person must be as long as items")
        if not chunk:
            return
        yield _from_table({"items": chunk}, extras.get("counts"), extras.get("person"))


def clean(raw: list[Raw], counts: list[Raw], person: list[Raw]) -> Batch:
    """Drop rows with nulls and return what is left as a batch."""
    if len(counts) > 1 or (counts and counts[0].type not in ("int", None)):
        raise InputError(f"counts must be integers, got {counts[0].describe()}")
    everything = [*raw, *counts, *person]
    for column, role in [(c, "counts") for c in counts] + [(p, "person") for p in person]:
        if len(column.values) != len(raw[0].values):
            raise InputError(f"{role} must be as long as items")
    if any(len(column.values) != len(raw[0].values) for column in raw):
        raise InputError("the columns of the items must be equally long")
    if any(column.type is None for column in everything):  # a column of nothing but nulls drops every row
        types = None if any(c.type is None for c in raw) else tuple(str(c.type) for c in raw)
        return Batch((), types)
    valid: NDArray[np.bool_] | None = None
    for column in everything:
        if column.valid is not None:
            valid = column.valid if valid is None else valid & column.valid
    kept = [column.keep(valid) for column in everything]
    items, rest = kept[: len(raw)], kept[len(raw) :]
    return Batch(
        tuple(items),
        tuple(str(column.type) for column in raw),
        counts=_checked_counts(rest[0]) if counts else None,
        persons=hash_columns(rest[len(counts) :]) if person else None,
    )


def _checked_counts(counts: Int64) -> Int64:
    if counts.size and counts.min() == np.iinfo(np.int64).min:
        raise InputError("counts must be above −2^63")
    return counts
