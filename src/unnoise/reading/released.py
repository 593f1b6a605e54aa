"""Noisy histograms that others have released: read them as signed integers, or say why they do not qualify.

Only integers qualify, and only integers that carry discrete Laplace (two-sided geometric) noise: a float betrays
continuous noise, whose rounding is another law (P(0) at ε = 1 is 0.393 against 0.462). Clamped input must be declared
as such; suppressed small counts cannot be made good. Both are checked by :func:`unnoise.answers.reconstruct`.
docs/other-libraries.md says which mechanism of which library qualifies.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from ..arrays import Int64
from ..errors import InputError
from ..noisy import as_signed_integers
from .source import Wanted, open_source

if TYPE_CHECKING:
    import polars as pl

__all__ = ["read_noisy_counts"]

FLOATS = (
    "must be signed integers with discrete Laplace noise, got numbers with a decimal point: continuous noise is "
    "another law, also when it is rounded; ask for integer (geometric) noise"
)


def read_noisy_counts(
    path: str | os.PathLike[str],
    *,
    column: str | None = None,
    format: str | None = None,
    header: bool = True,
    stream: BinaryIO | None = None,
) -> Int64:
    """Return the noisy counts in a file: ``.npy``, or a column of CSV, TSV, NDJSON, Parquet, Arrow or lines.

    ``column`` may be left out where only one column holds numbers.
    """
    name = os.fspath(path)
    if name.endswith(".npy"):
        return _from_npy(name)
    source = open_source([path], format=format, header=header, stream=stream)
    if column is None and name != "-":
        column = _only_column(source.columns(), source.paths[0], name)
    if column is None:
        raise InputError("standard input: say which column holds the noisy counts with --column")
    parts = []
    done = 0
    for batch in source.batches(Wanted(columns=(column,))) if not source.typed else _typed(source.paths, column):
        series = batch.items[column] if not isinstance(batch, _Column) else batch.series
        if getattr(batch, "dropped", 0):
            raise InputError(f"{name}: {column} must hold a number in every row, got an empty one")
        parts.append(_integers(series, name, column, done))
        done += len(series)
    return as_signed_integers(np.concatenate(parts))


class _Column:
    """A column with a type of its own."""

    def __init__(self, series: pl.Series) -> None:
        self.series = series
        self.dropped = series.null_count()


def _typed(paths: Any, column: str) -> list[_Column]:
    import polars as pl

    from .scan import format_of, require_columns, scan

    found = []
    for path in paths:
        lazy = scan(path, format_of(path, None), True, None)
        require_columns(str(path), [column], lazy.collect_schema().names())
        found.append(_Column(lazy.select(pl.col(column)).collect()[column]))
    return found


def _from_npy(name: str) -> Int64:
    try:
        array = np.load(name, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise InputError(f"{name}: not readable as npy: {error}") from None
    if array.dtype.kind == "f":
        raise InputError(f"{name}: noisy counts {FLOATS}")
    return as_signed_integers(array.reshape(-1) if array.ndim == 2 and 1 in array.shape else array)


def _only_column(columns: list[str], path: Any, name: str) -> str:
    """Return the column that must be meant: the only one, or the only one of numbers."""
    if len(columns) == 1:
        return columns[0]
    from .scan import format_of, scan

    head = scan(path, format_of(path, None), True, None).head(100).collect()
    numeric = [c for c in columns if c in head.columns and _looks_numeric(head[c])]
    if len(numeric) == 1:
        return numeric[0]
    raise InputError(f"{name}: say which column holds the noisy counts with --column: {', '.join(columns[:12])}")


def _looks_numeric(series: pl.Series) -> bool:
    import polars as pl

    if series.dtype.is_numeric():
        return True
    return series.dtype == pl.String and not series.cast(pl.Float64, strict=False).is_null().any()


def _integers(series: pl.Series, name: str, column: str, done: int) -> Int64:
    import polars as pl

    if series.dtype.is_float():
        raise InputError(f"{name}: {column} {FLOATS}")
    if not (series.dtype.is_integer() or series.dtype == pl.String):
        raise InputError(f"{name}: {column} must hold signed integers, got {series.dtype}")
    whole = series.cast(pl.Int64, strict=False)
    if whole.is_null().any():
        at = int(whole.is_null().arg_true()[0])
        if series.dtype == pl.String and series.cast(pl.Float64, strict=False)[at] is not None:
            raise InputError(f"{name}, row {done + at + 1}: {column} {FLOATS}")
        raise InputError(f"{name}, row {done + at + 1}: {column} must be a 64-bit integer, got {series[at]!r}")
    return whole.to_numpy()
