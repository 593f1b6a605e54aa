"""Rows as the direct model counts them: read from files and streams, or known only as a frequency list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from ..arrays import Int64
from ..curve import TOP
from ..holding.release import Exactly

if TYPE_CHECKING:
    import polars as pl

    from .source import Batch

__all__ = ["held_rows", "of_frequencies"]


def held_rows(batches: Iterable[Batch], *, persons_are_items: bool = False) -> Iterator[pl.DataFrame]:
    """Yield the tables of :mod:`unnoise.holding.counting`; a person who is the item needs no column of its own."""
    for batch in batches:
        names = {name: str(i) for i, name in enumerate(batch.items.columns)}
        person = None if persons_are_items else batch.person
        beside = {"times": batch.counts, "person": person, "group": batch.group}
        yield batch.items.rename(names).with_columns(
            **{name: column for name, column in beside.items() if column is not None}
        )


def of_frequencies(frequencies: Int64, items: Int64) -> Exactly:
    """Return the exact profile that a frequency list states.

    >>> of_frequencies(np.array([2, 0, 1, 2]), np.array([5, 9, 3, 1])).items.tolist()
    [3, 6]
    """
    counts, where = np.unique(np.minimum(frequencies, TOP), return_inverse=True)
    number = np.zeros(counts.size, dtype=np.int64)
    np.add.at(number, where, items)
    some = (counts > 0) & (number > 0)
    return Exactly(counts[some], number[some])
