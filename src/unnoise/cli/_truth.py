"""True counts for ``unnoise compare``: from a column of counts, from a frequency list, or by counting items."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ._request import Data

if TYPE_CHECKING:
    from ..reading.source import Source

__all__ = ["true_counts"]


def true_counts(request: Data) -> tuple[Any, Any]:
    """Return counts and, for frequency lists, how many items have each."""
    from ..reading.source import Wanted, open_source

    source = open_source(request.inputs, **request.read_as)
    if source.format == "freqcount":
        return _frequencies(source)
    columns, count_column = request.column or ([source.item] if source.item else None), request.count_column
    if columns is None and count_column is None:
        found = source.columns() if source.places else []
        if len(found) != 1:
            raise InputError(f"--count-column (counts) or --column (items) is required: {', '.join(found[:12])}")
        count_column = found[0]
    if columns is None:
        assert count_column is not None
        return _column_of_counts(source, count_column), None
    wanted = Wanted(columns=tuple(columns), integers=request.integers, counts=count_column or source.counts)
    return _counted(source, wanted), None


def _frequencies(source: Source) -> tuple[Any, Any]:
    """Return the pairs of one frequency list."""
    import numpy as np

    from ..reading.formats import open_bytes
    from ..reading.streams import frequency_pairs

    if len(source.places) != 1:
        raise InputError(f"a frequency list must be the only input, and a file, got {source.name}")
    with open_bytes(source.places[0]) as stream:
        pairs = frequency_pairs(stream, source.name)
    _require_some(source, sum(count for _, count in pairs))
    frequencies, counts = (np.array(column, dtype=np.int64) for column in zip(*pairs))
    return frequencies, counts


def _require_some(source: Source, rows: int) -> None:
    """Refuse nothing at all: these data hold no secret, and errors relative to nothing do not exist."""
    if not rows:
        raise InputError(f"{source.name}: there must be at least one item, got none")


def _column_of_counts(source: Any, name: str) -> Any:
    import numpy as np

    from ..reading.source import Wanted

    parts = [batch.items[name].to_numpy() for batch in source.batches(Wanted(columns=(name,), integers=True))]
    counts = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
    _require_some(source, counts.size)
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
    _require_some(source, sum(frame.height for frame in frames))
    items = list(wanted.columns)
    return pl.concat(frames).group_by(items).agg(pl.col("\0times").sum())["\0times"].to_numpy()
