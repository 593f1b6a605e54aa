"""What runs on the executors: noise for every cell of a range, and its tally.

The cells 0 … d−1 are cut into *ranges* of 2²⁰. A task receives the occupied cells of its ranges with their exact
counts, and for every range one marker row, a count of zero, so that a range in which nothing happened is visited as
well. It lays each range out as a dense array, adds noise to **all** of its cells and hands back the tally (or the
noisy counts).

Invariant: the noise of range r is a function of (key of the call, r) and of nothing else. A task that is retried,
speculated or recomputed after its executor was lost therefore yields the same bits, and no two attempts can be
subtracted from each other to give away a count.

This module needs numpy, cryptography and pyarrow and nothing else: an executor imports no more than that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._sampler import Keystream, fill
from ..arrays import Int64
from ..noise import DiscreteLaplace
from ..noisy import combine, tally
from ..sketches.hashing import hash_words

__all__ = ["COUNTS_SCHEMA", "RANGE", "TALLY_SCHEMA", "UNKNOWN", "Sample", "Work", "counts_function", "tally_function"]

RANGE_BITS = 20
RANGE = 1 << RANGE_BITS
"""Cells in a range: 8 MiB of int64, large enough for a task to be worth its start."""

UNKNOWN = -1
"""The cell of an item outside the declared domain, and the part reported for it."""

TALLY_SCHEMA = "part bigint, value bigint, tally bigint"
COUNTS_SCHEMA = "part bigint, start bigint, counts binary"

Batches = Iterator[Any]


@dataclass(frozen=True)
class Work:
    """What a task must know, the same for all tasks of a call.

    cells : number of cells d over all parts
    part : cells per part; a part is what gets a tally of its own (a level of a group)
    noise : law of the noise
    key : the secret of this call, never shown
    silent : True where a test has switched noise off
    chosen : tells which of the cells ``start … stop−1`` of a part exist (a sampled domain), None when all do
    """

    cells: int
    part: int
    noise: DiscreteLaplace
    key: bytes = field(repr=False)
    silent: bool = False
    chosen: Callable[[int, int], NDArray[np.bool_]] | None = None

    @property
    def ranges(self) -> int:
        """Number of ranges, the last one perhaps shorter."""
        return -(-self.cells // RANGE)

    def bounds(self, number: int) -> tuple[int, int]:
        """Return the first cell of a range and the one after its last."""
        return number * RANGE, min((number + 1) * RANGE, self.cells)


@dataclass(frozen=True)
class Sample:
    """Tells which items of the domain 0 … d−1 are sampled: hash under ``hash_seed`` at most ``limit``."""

    hash_seed: int
    limit: int

    def __call__(self, start: int, stop: int) -> NDArray[np.bool_]:
        """Return which of ``start … stop−1`` are sampled."""
        keys = hash_words(np.arange(start, stop, dtype=np.int64))
        return np.asarray(hash_words(keys, self.hash_seed) <= np.uint64(self.limit))


def gather(batches: Iterable[Any], work: Work) -> dict[int, Int64] | None:
    """Return the exact counts of every range seen, or None where an item lies outside the domain."""
    ranges: dict[int, Int64] = {}
    for batch in batches:
        cells, counts = (batch.column(i).to_numpy(zero_copy_only=False) for i in range(2))
        if cells.size and cells.min() < 0:
            return None
        numbers = cells >> RANGE_BITS
        present = np.unique(numbers).tolist()
        for number in present:
            start, stop = work.bounds(number)
            if number not in ranges:
                ranges[number] = np.zeros(stop - start, dtype=np.int64)
            mine = numbers == number if len(present) > 1 else slice(None)
            np.add.at(ranges[number], cells[mine] - start, counts[mine])
    return ranges


def noisy_pieces(exact: dict[int, Int64], work: Work) -> Iterator[tuple[int, int, Int64]]:
    """Yield (part, first cell, noisy counts), ranges cut where parts meet; every cell that exists has its noise."""
    for number in sorted(exact):
        stream = Keystream(work.key, number, silent=work.silent)
        for part, start, counts in pieces(work.bounds(number)[0], exact.pop(number), work.part):
            if work.chosen is not None:
                first = start - part * work.part
                counts = counts[work.chosen(first, first + counts.size)]
            noise = np.empty(counts.size, dtype=np.int64)
            fill(noise, work.noise, stream)
            yield part, start, np.add(counts, noise, out=noise)


def pieces(start: int, counts: Int64, part: int) -> Iterator[tuple[int, int, Int64]]:
    """Cut the counts of cells ``start``, ``start``+1, … where parts meet.

    >>> [(part, first, piece.tolist()) for part, first, piece in pieces(3, np.arange(5), 4)]
    [(0, 3, [0]), (1, 4, [1, 2, 3, 4])]
    """
    position, end = start, start + counts.size
    while position < end:
        stop = min((position // part + 1) * part, end)
        yield position // part, position, counts[position - start : stop - start]
        position = stop


def tally_function(work: Work) -> Callable[[Batches], Batches]:
    """Return the function for ``mapInArrow`` that gives rows of :data:`TALLY_SCHEMA`."""

    def noise_and_tally(batches: Batches) -> Batches:
        exact = gather(batches, work)
        if exact is None:
            yield _batch(part=[UNKNOWN], value=[0], tally=[0])
            return
        tallies: dict[int, list[tuple[Int64, Int64]]] = {}
        for part, _, counts in noisy_pieces(exact, work):
            if counts.size:
                tallies.setdefault(part, []).append(tally(counts))
        for part, pairs in tallies.items():  # one tally per task and part: that is what the driver holds
            values, how_many = combine(pairs)
            yield _batch(part=np.full(values.size, part), value=values, tally=how_many)

    return noise_and_tally


def counts_function(work: Work) -> Callable[[Batches], Batches]:
    """Return the function for ``mapInArrow`` that gives rows of :data:`COUNTS_SCHEMA`, one per piece of a range."""

    def noise_only(batches: Batches) -> Batches:
        exact = gather(batches, work)
        if exact is None:
            yield _batch(part=[UNKNOWN], start=[0], counts=[b""])
            return
        for part, start, counts in noisy_pieces(exact, work):
            yield _batch(part=[part], start=[start], counts=[counts.astype("<i8", copy=False).tobytes()])

    return noise_only


def _batch(**columns: Any) -> Any:
    import pyarrow as pa

    types = {"counts": pa.binary()}
    return pa.RecordBatch.from_pydict(
        {name: pa.array(values, types.get(name, pa.int64())) for name, values in columns.items()}
    )
