"""Rows of files and streams as the direct model counts them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

    from .source import Batch

__all__ = ["held_rows"]


def held_rows(batches: Iterable[Batch], *, persons_are_items: bool = False) -> Iterator[pl.DataFrame]:
    """Yield the tables of :mod:`unnoise.holding`; a person who is the item needs no column of its own."""
    for batch in batches:
        names = {name: str(i) for i, name in enumerate(batch.items.columns)}
        person = None if persons_are_items else batch.person
        beside = {"times": batch.counts, "person": person, "group": batch.group}
        yield batch.items.rename(names).with_columns(
            **{name: column for name, column in beside.items() if column is not None}
        )
