"""Exact counting: from rows to how many items have each count, for every group.

Rows are held as polars tables with the columns ``0, 1, …`` (the item) and, where asked for, ``times``, ``person`` and
``group``; a row with a null in any of them is dropped. Counting is polars' in-memory ``group_by``, which never spills
to disk: memory is that of the rows or of the distinct items, whichever a step holds (docs/direct.md); where that is
too much, a sketch does it in a few megabytes.

Nothing is refused because of what the rows hold: the count of an item is clamped to 0…2⁶² (removals may take it below
0, sums may pass 2⁶³), rows of undeclared groups are dropped, and no rows at all are counted like any others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._sampler import open_stream
from ..arrays import Int64
from ..curve import TOP
from ..errors import InputError
from ..sketches.columns import is_column
from ..sketches.hashing import as_series
from ..sketches.inputs import Rows, _duckdb_reader, _refuse_scalars, _table_of, clean_rows
from ..sketches.persons import limit_contributions
from .release import Exactly, Unit

if TYPE_CHECKING:
    import polars as pl

__all__ = ["count_exactly", "rows_of", "unit_of"]

GATHERED = 1 << 24
"""Rows gathered before they are counted: fewer would count the same items again and again, more would cost memory."""


def rows_of(
    items: Any, counts: Any = None, person: Any = None, group: Any = None, most: int | None = None
) -> tuple[list[pl.DataFrame], Unit]:
    """Return the rows of whatever was passed as items, and the unit that ``person`` and ``most`` make of it.

    ``person`` and ``group`` are columns or names of columns; person=True, or the name of the only column of the items,
    says that the items are the persons.
    """
    table = _whole_table(items)
    columns, beside = dict(table), {}
    for role, given in (("person", person), ("group", group)):
        if given is None or given is True:
            continue
        if isinstance(given, str):
            if given not in table:
                raise InputError(f"{role} must name a column of the items ({', '.join(table)}), got {given!r}")
            columns.pop(given, None)
            given = table[given]
        beside[role] = given
    if isinstance(counts, str):
        columns.pop(counts, None)
    if not columns and isinstance(person, str):
        columns, person = {person: beside.pop("person")}, True
    if not columns:
        raise InputError("items must have at least one column besides person, group and counts")
    unit = unit_of(person, most)
    times = table.get(counts) if isinstance(counts, str) and counts in table else counts
    batch = clean_rows({**columns, **{f"\0{role}": column for role, column in beside.items()}}, times)
    return [_frame(batch, list(beside))], unit


def unit_of(person: Any, most: int | None) -> Unit:
    """Return what ε protects: ``person`` is True where the items are the persons, None without persons."""
    if person is True:
        return Unit(persons="items", most=most)
    if person is not None:
        return Unit(persons="limited", most=most)
    return Unit(persons="promised" if most is not None else "", most=most)


def _whole_table(items: Any) -> dict[str, Any]:
    """Return items, streams and iterators read to their end, as named columns."""
    _refuse_scalars(items)
    table = _table_of(items)
    if table is not None:
        return table
    if is_column(items):
        return {"items": items}
    reader = _duckdb_reader(items)
    if reader is not None or hasattr(items, "__arrow_c_stream__"):
        import pyarrow as pa

        try:
            whole = (reader() if reader is not None else pa.RecordBatchReader.from_stream(items)).read_all()
        except pa.ArrowInvalid:  # one column, not a table
            return {"items": pa.chunked_array(items)}
        return _table_of(whole) or {}
    if isinstance(items, Iterable):
        return {"items": list(items)}
    raise InputError(f"items must be a collection of integers, strings or tuples, got {type(items).__name__}")


def _frame(batch: Rows, beside: Sequence[str]) -> pl.DataFrame:
    """Turn a batch into a table whose last columns are ``beside``."""
    import polars as pl

    if not batch.size:
        names = ["0", *(["times"] if batch.counts is not None else []), *beside]
        return pl.DataFrame({name: pl.Series([], dtype=pl.Int64 if name == "times" else pl.String) for name in names})
    series = [
        pl.Series(values=column) if isinstance(column, np.ndarray) else as_series(column) for column in batch.columns
    ]
    names = [*(str(i) for i in range(len(series) - len(beside))), *beside]
    frame = pl.DataFrame({name: column for name, column in zip(names, series)})
    return frame if batch.counts is None else frame.with_columns(times=pl.Series(batch.counts))


def count_exactly(
    tables: Iterable[pl.DataFrame], unit: Unit, groups: Sequence[str] | None = None
) -> dict[str, Exactly]:
    """Return the exact profile of every declared group ("" where there are none).

    Persons who are limited keep at most ``unit.most`` occurrences over all groups, chosen uniformly at random. Where
    the items are the persons and there are no groups, the limit is on the count itself, and the grid ends there.
    """
    if unit.persons == "limited" or (unit.persons == "items" and unit.most is not None and groups is not None):
        return _profiles([_counted(_limited(_gather(tables, groups), unit))], groups)
    return _profiles(list(_partly(tables, groups)), groups)


def _gather(tables: Iterable[pl.DataFrame], groups: Sequence[str] | None) -> pl.DataFrame:
    import polars as pl

    return pl.concat([_declared(table, groups) for table in tables], how="vertical_relaxed")


def _declared(table: pl.DataFrame, groups: Sequence[str] | None) -> pl.DataFrame:
    """Keep the rows of declared groups."""
    import polars as pl

    if groups is None:
        return table
    return table.filter(pl.col("group").cast(pl.String).is_in(list(groups)))


def _partly(tables: Iterable[pl.DataFrame], groups: Sequence[str] | None) -> Iterable[pl.DataFrame]:
    """Count tables as they come, many rows at a time."""
    import polars as pl

    waiting: list[pl.DataFrame] = []
    for table in tables:
        waiting.append(_declared(table, groups))
        if sum(part.height for part in waiting) >= GATHERED:
            yield _counted(pl.concat(waiting))
            waiting = []
    if waiting:
        yield _counted(pl.concat(waiting))


def _counted(frame: pl.DataFrame) -> pl.DataFrame:
    """Return each item (of each group) with its number of occurrences."""
    import polars as pl

    keys = [name for name in frame.columns if name not in ("times", "person")]
    times = pl.len().cast(pl.Int64) if "times" not in frame.columns else _whole_sum()
    return frame.lazy().group_by(keys).agg(times.alias("times")).collect(engine="in-memory")


def _whole_sum() -> pl.Expr:
    """Σ times in 128 bits, kept within ±2⁶²."""
    import polars as pl

    return pl.col("times").cast(pl.Int128).sum().clip(-TOP, TOP).cast(pl.Int64)


def _profiles(parts: list[pl.DataFrame], groups: Sequence[str] | None) -> dict[str, Exactly]:
    """Add partial counts up and say how many items have each count."""
    import polars as pl

    names = [""] if groups is None else list(groups)
    nobody = Exactly(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
    if not parts:
        return dict.fromkeys(names, nobody)
    whole = parts[0] if len(parts) == 1 else pl.concat(parts)
    lazy = whole.lazy()
    if len(parts) > 1:
        keys = [name for name in whole.columns if name != "times"]
        lazy = lazy.group_by(keys).agg(_whole_sum().alias("times"))
    by = ["times"] if groups is None else ["group", "times"]
    table = lazy.filter(pl.col("times") > 0).group_by(by).agg(pl.len().alias("items")).sort(by)
    found = table.collect(engine="in-memory")
    if groups is None:
        return {"": _exactly(found)}
    mine = found.with_columns(pl.col("group").cast(pl.String)).partition_by("group", as_dict=True)
    return {name: _exactly(mine[(name,)]) if (name,) in mine else nobody for name in names}


def _exactly(table: pl.DataFrame) -> Exactly:
    counts = np.minimum(table["times"].to_numpy().astype(np.int64), TOP)
    return Exactly(counts, table["items"].to_numpy().astype(np.int64))


def _limited(frame: pl.DataFrame, unit: Unit) -> pl.DataFrame:
    """Keep at most C occurrences of each person."""
    import polars as pl

    assert unit.most is not None
    keys = [name for name in frame.columns if name.isdecimal()] if unit.persons == "items" else ["person"]
    who = frame[keys[0]] if len(keys) == 1 else frame.select(pl.struct(keys)).to_series()
    ids = who.rank("dense").to_numpy().astype(np.uint64)
    counts: Int64 | None = frame["times"].to_numpy() if "times" in frame.columns else None
    rows, kept = limit_contributions(np.arange(frame.height), counts, ids, unit.most, open_stream())
    left = frame.drop("times", strict=False)[rows]
    return left if kept is None else left.with_columns(times=pl.Series(kept))
