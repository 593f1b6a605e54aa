"""Frequency lists: pairs ``frequency count``, one per line, saying that count items occur frequency times each.

The items have no names in such a list, so they are numbered 0, 1, 2, … in its order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..arrays import Int64
from ..errors import InputError
from .scan import expand

if TYPE_CHECKING:
    from .source import Batch

__all__ = ["freq_count_batches", "read_freq_count"]

CHUNK = 1 << 18


def read_freq_count(name: str) -> tuple[Int64, Int64]:
    """Return frequencies and counts of a file; ``#`` begins a comment, commas and tabs separate as spaces do."""
    (path,) = expand(name)
    frequencies, counts = [], []
    with open(path, encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            fields = line.split("#")[0].replace(",", " ").split()
            if not fields:
                continue
            try:
                frequency, count = (int(field) for field in fields)
            except ValueError:
                raise InputError(
                    f"{name}, row {number}: must be two integers 'frequency count', got {line.strip()[:40]!r}"
                ) from None
            if frequency < 0 or count < 0:
                raise InputError(f"{name}, row {number}: frequency and count must be ≥ 0, got {frequency} {count}")
            frequencies.append(frequency)
            counts.append(count)
    if not sum(counts):
        raise InputError(f"{name}: there must be at least one item, got none")
    return np.array(frequencies, dtype=np.int64), np.array(counts, dtype=np.int64)


def freq_count_batches(names: Sequence[str]) -> tuple[int, Iterator[Batch]]:
    """Return the number of items and the batches of them, each item with its frequency as its count."""
    if len(names) != 1 or names[0] == "-":
        raise InputError(f"--freq-count needs one file, got {' '.join(names)}")
    frequencies, counts = read_freq_count(names[0])
    return int(counts.sum()), _batches(frequencies, counts)


def _batches(frequencies: Int64, counts: Int64) -> Iterator[Batch]:
    import polars as pl

    from .source import Batch

    ends = np.cumsum(counts)
    for start in range(0, int(ends[-1]), CHUNK):
        items = np.arange(start, min(start + CHUNK, int(ends[-1])), dtype=np.int64)
        which = np.searchsorted(ends, items, side="right")
        column = pl.Series("items", items)
        yield Batch(column.to_frame(), pl.Series("counts", frequencies[which]), None, None, items.size)
