"""Which cell an item belongs to, for each kind of sketch.

``known`` by an integer d: item i has cell i. ``known`` by a list: the cell is the position in the list, found by the
64-bit hash of :mod:`unnoise.sketches.hashing` (seed 0), so items count as equal when their hashes are; a list with two
equal hashes is refused. ``sampled``: the cells are the items of the domain whose hash, under the sketch's own
seed, is below rate·2^64, in the order of the domain.

The fingerprint of a list is SHA-256 over its types and items in order (docs/format.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np

from ..arrays import Int64
from ..checks import is_integer
from ..errors import InputError
from ..guard import wipe
from ..layout import Layout
from .hashing import Column, UInt64, as_series, cells_of, each_block, hash_columns, sample_limit
from .inputs import read_items

__all__ = ["OUTSIDE", "SKIPPED", "Domain", "Finder", "finder_for", "read_domain", "sampled_cells"]

OUTSIDE = -1
"""Stands for the cell of an item that is not in the domain."""

SKIPPED = -2
"""Stands for the cell of an item that is not in the sample."""

STEP = 1 << 20


class Finder(Protocol):
    """Finds the cells of items."""

    def find(self, columns: Sequence[Column]) -> Int64:
        """Return the cell of each item, or OUTSIDE, or SKIPPED."""


@dataclass(frozen=True, eq=False)
class Domain:
    """A declared domain: the integers 0…size−1, or a list of items.

    hashes : 64-bit hash (seed 0) of each item of a list, else None
    columns : the items of a list, else empty
    """

    size: int
    types: tuple[str, ...]
    fingerprint: str | None = None
    hashes: UInt64 | None = None
    columns: tuple[Column, ...] = ()


def read_domain(domain: Any) -> Domain:
    """Return a domain given as an integer d or as the list of its items."""
    if is_integer(domain):
        if domain < 1:
            raise InputError(f"domain must hold at least one item, got {domain}")
        return Domain(int(domain), ("int",))
    if isinstance(domain, bool | str | bytes | float) or domain is None:
        raise InputError(f"domain must be an integer or a list of items, got {type(domain).__name__}")
    given = list(domain) if isinstance(domain, set | frozenset) else domain
    batches = [batch for batch in read_items(given) if batch.size]
    types = {batch.types for batch in batches}
    if len(types) != 1 or None in types:
        raise InputError("domain must be a list of items of one type, without nulls, and not empty")
    columns = [_joined(parts) for parts in zip(*(batch.columns for batch in batches))]
    _require_no_nulls(domain, columns)
    hashes = hash_columns(columns)
    _require_distinct(hashes)
    item_types = types.pop()
    assert item_types is not None
    print_ = fingerprint(columns, item_types)
    return Domain(hashes.size, item_types, print_, hashes, tuple(columns))


def _joined(parts: Sequence[Column]) -> Column:
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    import polars as pl

    return pl.concat([as_series(part) for part in parts])


def _require_no_nulls(domain: Any, columns: Sequence[Column]) -> None:
    if isinstance(domain, Mapping):
        domain = next(iter(domain.values()))
    if hasattr(domain, "__len__") and len(domain) != len(columns[0]):  # a stream has none: its nulls are dropped
        raise InputError("domain must not hold nulls")


def _require_distinct(hashes: UInt64) -> None:
    order = np.argsort(hashes, kind="stable")
    same = np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]])
    if same.size:
        i, j = sorted((int(order[same[0]]), int(order[same[0] + 1])))
        raise InputError(f"domain must not hold an item twice, got equal ones at positions {i} and {j}")


def fingerprint(columns: Sequence[Column], types: Sequence[str]) -> str:
    """Return SHA-256 over the types, the number of items and the items, column by column.

    >>> fingerprint([np.array([1, 2])], ["int"])[:16]
    '7571c73b5e96db42'
    """
    digest = hashlib.sha256(b"unnoise domain 1\n")
    digest.update((",".join(types) + "\n").encode())
    digest.update(len(columns[0]).to_bytes(8, "little"))
    for column in columns:
        if isinstance(column, np.ndarray):
            digest.update(column.astype("<i8", copy=False).tobytes())
            continue
        strings = as_series(column)
        digest.update(strings.str.len_bytes().to_numpy().astype("<i8").tobytes())
        for start in range(0, len(strings), STEP):
            digest.update("".join(strings[start : start + STEP]).encode())
    return digest.hexdigest()


def sampled_cells(domain: Domain, rate: Fraction, hash_seed: int) -> Int64:
    """Return the positions in the domain of the items that are sampled, ascending."""
    limit = sample_limit(rate)
    if domain.columns:
        return np.flatnonzero(hash_columns(domain.columns, hash_seed) <= limit)
    found = []
    for start in range(0, domain.size, STEP):
        items = np.arange(start, min(start + STEP, domain.size), dtype=np.int64)
        found.append(items[hash_columns([items], hash_seed) <= limit])
    return np.concatenate(found)


@dataclass(frozen=True, eq=False)
class _HashedCells:
    layout: Layout

    def find(self, columns: Sequence[Column]) -> Int64:
        return cells_of(hash_columns(columns, self.layout.hash_seed or 0), self.layout, in_place=True)


@dataclass(frozen=True, eq=False)
class _RangeCells:
    size: int

    def find(self, columns: Sequence[Column]) -> Int64:
        items: Int64 = columns[0]
        if items.size == 0 or (items.min() >= 0 and items.max() < self.size):
            return items
        return np.where((items >= 0) & (items < self.size), items, OUTSIDE)


class _ListCells:
    """Positions of items in a list by their hashes: a guide on the top bits, then a step or two along the sorted ones.

    Hashes are uniform, so a guide of about twice as many entries as items leads to the right place at once.
    """

    def __init__(self, hashes: UInt64) -> None:
        order = np.argsort(hashes)
        end = np.array([np.iinfo(np.uint64).max], dtype=np.uint64)  # a step beyond the last item stops here
        self.sorted = np.concatenate([hashes[order], end])
        self.order = np.append(order, OUTSIDE)
        bits = hashes.size.bit_length()
        self.shift = np.uint64(64 - bits)
        self.guide = np.searchsorted(hashes[order], np.arange(1 << bits, dtype=np.uint64) << self.shift)

    def find(self, columns: Sequence[Column]) -> Int64:
        cells = np.empty(len(columns[0]), dtype=np.int64)

        def keep(start: int, hashes: UInt64) -> None:
            cells[start : start + hashes.size] = self.positions(hashes)

        each_block(columns, 0, keep)
        return cells

    def positions(self, hashes: UInt64) -> Int64:
        """Return the position of each hash, or OUTSIDE."""
        at = self.guide[hashes >> self.shift]
        behind = np.flatnonzero(self.sorted[at] < hashes)
        while behind.size:
            at[behind] += 1
            behind = behind[self.sorted[at[behind]] < hashes[behind]]
        return np.where(self.sorted[at] == hashes, self.order[at], OUTSIDE)


@dataclass(frozen=True, eq=False)
class _SampledCells:
    """Cells of the sampled items; an item outside a list is noticed only where its hash is in the sample."""

    limit: np.uint64
    hash_seed: int
    sample: Int64
    inner: _RangeCells | _ListCells

    def find(self, columns: Sequence[Column]) -> Int64:
        hashes = hash_columns(columns, self.hash_seed)
        inside = np.flatnonzero(hashes <= self.limit)
        wipe(hashes)
        if isinstance(self.inner, _ListCells):
            cells, hashes = np.full(len(columns[0]), SKIPPED, dtype=np.int64), hash_columns(columns)
            cells[inside] = self.inner.positions(hashes[inside])
            wipe(hashes)
            return cells
        items = self.inner.find(columns)
        cells = np.where(items == OUTSIDE, OUTSIDE, SKIPPED)
        inside = inside[items[inside] != OUTSIDE]
        cells[inside] = np.searchsorted(self.sample, items[inside])
        return cells


def finder_for(layout: Layout, domain: Domain | None) -> Finder | None:
    """Return the finder of a layout; None where the layout needs a list of items that is not at hand."""
    if layout.kind == "hashed":
        return _HashedCells(layout)
    if domain is None and layout.fingerprint is None and layout.domain is not None:
        domain = Domain(layout.domain, ("int",))
    if domain is None:
        return None
    if layout.kind == "known":
        return _RangeCells(domain.size) if domain.hashes is None else _ListCells(domain.hashes)
    assert layout.rate is not None
    assert layout.hash_seed is not None
    sample = sampled_cells(domain, layout.rate, layout.hash_seed)
    if sample.size != layout.cells:  # a file may say anything
        raise InputError(f"cells must be the {sample.size} items that rate and hash_seed sample, got {layout.cells}")
    inner = _RangeCells(domain.size) if domain.hashes is None else _ListCells(domain.hashes[sample])
    return _SampledCells(sample_limit(layout.rate), layout.hash_seed, sample, inner)
