"""Cells computed one item at a time by the ``xxhash`` package."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import xxhash


def slow_hash(item: Iterable[int | str], hash_seed: int = 0) -> int:
    """The hash chain of DESIGN 6, by the xxhash package."""
    chain = hash_seed
    for value in item:
        data = value.encode() if isinstance(value, str) else value.to_bytes(8, "little", signed=True)
        key = xxhash.xxh64_intdigest(data, seed=0)
        chain = xxhash.xxh64_intdigest(key.to_bytes(8, "little"), seed=chain)
    return chain


def slow_cells(items: Iterable[tuple[int | str | None, ...]], cells: int, levels: int = 1, seed: int = 0) -> np.ndarray:
    """Exact counts of all cells, one item at a time; items with a None are left out."""
    counts = np.zeros(cells, dtype=np.int64)
    size = cells // levels
    for item in items:
        if None in item:
            continue
        h = slow_hash(item, seed)  # type: ignore[arg-type]
        level = min(64 - h.bit_length(), levels - 1)
        counts[level * size + h % size] += 1
    return counts
