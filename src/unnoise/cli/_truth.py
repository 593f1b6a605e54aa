"""True counts for ``unnoise compare``: from a column of counts, from a frequency list, or by counting items."""

from __future__ import annotations

from typing import Any

from ..errors import InputError
from ._request import Data

__all__ = ["true_counts"]


def true_counts(request: Data) -> tuple[Any, Any]:
    """Return counts and, for frequency lists, how many items have each."""
    if request.freq_count:
        from ..reading.freqcount import read_freq_count

        if len(request.inputs) != 1:
            raise InputError(f"--freq-count needs one file, got {' '.join(request.inputs)}")
        return read_freq_count(request.inputs[0])
    from ..reading.source import LINE, Wanted, open_source

    source = open_source(request.inputs, format=request.format, sql=request.sql, header=not request.no_header)
    columns, count_column = request.column, request.count_column
    if columns is None and count_column is None and source.format != "lines":
        found = source.columns() if source.paths else []
        if len(found) == 1:
            count_column = found[0]
        else:
            raise InputError(f"--count-column (counts) or --column (items) is required: {', '.join(found[:12])}")
    if columns is None and source.format != "lines":
        assert count_column is not None
        return _column_of_counts(source, count_column), None
    wanted = Wanted(columns=tuple(columns or [LINE]), integers=request.integers, counts=count_column)
    return _counted(source, wanted), None


def _column_of_counts(source: Any, name: str) -> Any:
    import numpy as np

    from ..reading.source import Wanted

    parts = [batch.items[name].to_numpy() for batch in source.batches(Wanted(columns=(name,), integers=True))]
    counts = np.concatenate(parts)
    if counts.min() < 0:
        raise InputError(f"{source.name}: {name} must hold true counts ≥ 0, got {int(counts.min())}")
    return counts


def _counted(source: Any, wanted: Any) -> Any:
    """Count the items, exactly."""
    import polars as pl

    frames = []
    for batch in source.batches(wanted):
        times = pl.lit(1, pl.Int64) if batch.counts is None else batch.counts
        frames.append(batch.items.with_columns(times.alias("\0times")))
    items = list(wanted.columns)
    return pl.concat(frames).group_by(items).agg(pl.col("\0times").sum())["\0times"].to_numpy()
