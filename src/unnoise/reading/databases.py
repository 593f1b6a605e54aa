"""Rows from the file of a database: SQLite by Python's own module, DuckDB by its package (an extra).

A query runs in the database over its own tables; without one, a database with a single table is read whole. Types of
columns are those the database declares, so they do not depend on what is in a row. Files are opened for reading only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Queried", "duckdb", "sqlite"]

SHAPE = "unnoise_shape"
ROWS = 1 << 16


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

    base = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    listed = base.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%'")
    query = _query(path, sql, [name for (name,) in listed])
    base.execute(f"CREATE TEMP TABLE {SHAPE} AS SELECT * FROM ({query}) LIMIT 0")  # declares what it derives
    types = {row[1]: _affinity(row[2]) for row in base.execute(f"PRAGMA table_info({SHAPE})")}

    def frames(names: list[str], chunk: int) -> Iterator[pl.DataFrame]:
        import polars as pl

        quoted = ", ".join('"' + name.replace('"', '""') + '"' for name in names)
        rows = base.execute(f"SELECT {quoted} FROM ({query})")
        schema = {name: types[name] for name in names}
        while batch := rows.fetchmany(min(chunk, ROWS)):
            columns = {name: [_as(row[i], schema[name], name) for row in batch] for i, name in enumerate(names)}
            yield pl.DataFrame(columns, schema=schema)

    return Queried(types, frames)


def _affinity(declared: str) -> Any:
    """Return the type for a declared one, by SQLite's rules (sqlite.org/datatype3.html, 3.1); text without one."""
    import polars as pl

    kind = declared.upper()
    if "INT" in kind:
        return pl.Int64
    return pl.Float64 if any(word in kind for word in ("REAL", "FLOA", "DOUB")) else pl.String


def _as(value: Any, kind: Any, name: str) -> Any:
    """Give a value the type of its column; SQLite does not insist on it, items must."""
    import polars as pl

    if value is None or kind == pl.Float64:
        return value
    if kind == pl.Int64:
        if not isinstance(value, int):
            raise InputError(f"column {name} must hold integers, as it declares, got {type(value).__name__}")
        return value
    return value.hex() if isinstance(value, bytes) else str(value)


def duckdb(path: Path, sql: str | None) -> Queried:
    """Open a DuckDB file."""
    try:
        import duckdb as engine
    except ImportError:
        raise InputError(f"{path}: reading DuckDB files needs the package duckdb: pip install duckdb") from None
    base = engine.connect(str(path), read_only=True)
    listed = base.execute("SELECT table_name FROM information_schema.tables ORDER BY table_name").fetchall()
    query = _query(path, sql, [name for (name,) in listed])
    import polars as pl

    empty = pl.from_arrow(base.sql(f"SELECT * FROM ({query}) LIMIT 0").to_arrow_table())
    assert isinstance(empty, pl.DataFrame)

    def frames(names: list[str], chunk: int) -> Iterator[pl.DataFrame]:
        quoted = ", ".join('"' + name.replace('"', '""') + '"' for name in names)
        for batch in base.sql(f"SELECT {quoted} FROM ({query})").to_arrow_reader(min(chunk, ROWS)):
            frame = pl.from_arrow(batch)
            assert isinstance(frame, pl.DataFrame)
            yield frame

    return Queried(dict(empty.schema), frames)
