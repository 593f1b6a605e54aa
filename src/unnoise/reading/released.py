"""Noisy histograms that others have released: read them as signed integers, or say why they do not qualify.

Only integers qualify, and only integers that carry discrete Laplace (two-sided geometric) noise: a float betrays
continuous noise, whose rounding is another law (P(0) at ε = 1 is 0.393 against 0.462). Clamped input must be declared
as such; suppressed small counts cannot be made good. Both are checked by :func:`unnoise.answers.reconstruct`.
docs/other-libraries.md says which mechanism of which library qualifies.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from ..arrays import Int64
from ..errors import InputError
from ..noisy import as_signed_integers
from .formats import brief
from .source import CHUNK, Source, Wanted, open_source

if TYPE_CHECKING:
    import polars as pl

__all__ = ["is_sketch_file", "read_noisy_counts"]

FLOATS = (
    "must be signed integers with discrete Laplace noise, got numbers with a decimal point: continuous noise is "
    "another law, also when it is rounded; ask for integer (geometric) noise"
)


def is_sketch_file(path: str | os.PathLike[str]) -> bool:
    """Tell a sketch from any other file by its first bytes and metadata."""
    if not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        return file.read(6) == b"ARROW1" and b"unnoise" in file.read(1 << 16)


def read_noisy_counts(
    path: str | os.PathLike[str],
    *,
    column: str | None = None,
    format: str | None = None,
    sql: str | None = None,
    header: bool = True,
    delimiter: str | None = None,
    quote: str | None = '"',
    stream: BinaryIO | None = None,
) -> Int64:
    """Return the noisy counts in whatever a :class:`~unnoise.reading.source.Source` reads: one column of integers.

    ``column`` may be left out where only one column holds numbers.
    """
    source = open_source([path], format=format, sql=sql, header=header, delimiter=delimiter, quote=quote, stream=stream)
    name = column or source.kind.item or _only_column(source)
    wanted = Wanted(columns=(name,))
    parts: list[Int64] = [np.zeros(0, dtype=np.int64)]
    done = 0
    for where in source.wheres:
        for frame in source.frames(where, wanted, CHUNK):
            parts.append(_integers(frame[name], source.name, done))
            done += frame.height
    return as_signed_integers(np.concatenate(parts))


def _only_column(source: Source) -> str:
    """Return the column that must be meant: the only one, or the only one of numbers."""
    if source.stream is not None:
        raise InputError("standard input: say which column holds the noisy counts with --column")
    columns = source.columns()
    if len(columns) == 1:
        return columns[0]
    head = next(source.frames(source.wheres[0], Wanted(columns=tuple(columns)), 100), None)
    numeric = [] if head is None else [c for c in columns if _looks_numeric(head[c])]
    if len(numeric) == 1:
        return numeric[0]
    raise InputError(f"{source.name}: say which column holds the noisy counts with --column: {', '.join(columns[:12])}")


def _looks_numeric(series: pl.Series) -> bool:
    import polars as pl

    if series.dtype.is_numeric():
        return True
    return series.dtype == pl.String and not series.cast(pl.Float64, strict=False).is_null().any()


def _integers(series: pl.Series, name: str, done: int) -> Int64:
    import polars as pl

    column = series.name
    if series.dtype.is_float():
        raise InputError(f"{name}: {column} {FLOATS}")
    if not (series.dtype.is_integer() or series.dtype == pl.String):
        raise InputError(f"{name}: {column} must hold signed integers, got {series.dtype}")
    if series.null_count():
        raise InputError(f"{name}: {column} must hold a number in every row, got an empty one")
    whole = series.cast(pl.Int64, strict=False)
    if whole.is_null().any():
        at = int(whole.is_null().arg_true()[0])
        if series.dtype == pl.String and series.cast(pl.Float64, strict=False)[at] is not None:
            raise InputError(f"{name}, row {done + at + 1}: {column} {FLOATS}")
        raise InputError(f"{name}, row {done + at + 1}: {column} must be a 64-bit integer, got {brief(series[at])}")
    return whole.to_numpy()
