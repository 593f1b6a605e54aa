"""The types of columns: what a column that was read becomes as part of an item, as counts, a person or a group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from .formats import Location

if TYPE_CHECKING:
    import polars as pl

__all__ = ["as_text", "brief", "column_of_integers", "item_column", "uuid_columns", "uuid_text"]

SHOWN = 40
"""Most characters of a value in a message."""


def brief(value: Any) -> str:
    """Quote a value for a message: short, and inert in a terminal."""
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


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
            f"{label}, row {offset + at + 1}: {series.name} must be a 64-bit integer, got another text; {fix}"
        )
    raise InputError(
        f"{label}: column {series.name} must hold integers, got {series.dtype}; "
        f"cast it: --sql 'SELECT CAST({series.name} AS BIGINT) AS {series.name}, … FROM data'"
    )


def item_column(series: pl.Series, label: str) -> pl.Series:
    """Return a column of an item as Int64 or String; other types are not hashed alike in every engine.

    Unsigned integers are taken modulo 2^64, bytes as their hexadecimal digits: both tell all values apart.
    """
    import polars as pl

    if series.dtype == pl.UInt64:
        return series.reinterpret(signed=True)
    if series.dtype.is_integer():
        return column_of_integers(series, label)
    if series.dtype == pl.String:
        return series
    if series.dtype in (pl.Categorical, pl.Null, pl.Binary) or isinstance(series.dtype, pl.Enum):
        return as_text(series)
    raise InputError(
        f"{label}: column {series.name} must hold text or integers, got {series.dtype}; "
        f"cast it: --sql 'SELECT CAST({series.name} AS VARCHAR) AS {series.name} FROM data'"
    )


def as_text(series: pl.Series) -> pl.Series:
    """Return a column as text, bytes as their hexadecimal digits."""
    import polars as pl

    return series.bin.encode("hex") if series.dtype == pl.Binary else series.cast(pl.String)


def uuid_columns(where: Location | None, format: str, names: Sequence[str]) -> list[str]:
    """Return the columns that hold UUIDs, which polars reads as bytes."""
    import pyarrow as pa

    if where is None or isinstance(where, str) or format not in ("parquet", "arrow"):
        return []
    if format == "parquet":
        from pyarrow import parquet

        schema = parquet.read_schema(where)
    else:
        with pa.ipc.open_file(where) as file:
            schema = file.schema
    return [name for name in names if "uuid" in str(schema.field(name).type)]


def uuid_text(name: str) -> pl.Expr:
    """Write 16 bytes as 8-4-4-4-12 hexadecimal digits."""
    import polars as pl

    digits = pl.col(name).bin.encode("hex")
    parts = [digits.str.slice(start, length) for start, length in ((0, 8), (8, 4), (12, 4), (16, 4), (20, 12))]
    return pl.concat_str(parts, separator="-").alias(name)
