"""From items to 64-bit hashes, and from hashes to cells.

An item has one or more columns, each an integer or a string. Every column gives a key,

    key_i = XXH64(UTF-8 bytes, or the integer as 8 little-endian bytes; seed 0),

and the keys are chained from h_0 = hash_seed by h_i = XXH64(key_i as 8 little-endian bytes; seed h_{i−1}); the last
one, h, is the item's hash. Both steps are what other engines have built in, so they can be done natively there.

With m cells, a power of two, the cell of an item is h mod m. With L levels of m/L cells each, the level ℓ is the number
of leading zero bits of h, at most L−1 (so ℓ has probability 2^−(ℓ+1), and the last level takes what remains), and the
cell is ℓ·(m/L) + h mod (m/L): top bits and bottom bits of one hash, which do not overlap.

XXH64 [1]_ of 8 bytes is a bijection for every seed, so a single integer column is hashed without collisions;
:func:`unhash_words` is its inverse. docs/format.md specifies all of this with test vectors.

.. [1] Y. Collet, "xxHash fast digest algorithm", specification, version 0.1.1.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Int64
from ..errors import InputError
from ..guard import all_of, wipe
from ..layout import Layout

__all__ = [
    "as_series",
    "cells_of",
    "each_block",
    "hash_columns",
    "hash_words",
    "level_of",
    "sample_limit",
    "string_keys",
    "unhash_words",
]

PRIMES = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
P1, P2, P3, P4, P5 = (np.uint64(p) for p in PRIMES)
MASK = (1 << 64) - 1

BLOCK = 1 << 17
"""Items hashed at a time. Smaller blocks would stay in the second-level cache, but two threads pass the interpreter
lock to and fro between the steps of every block, and that costs more (measured: 2^14 takes twice as long)."""

LEAST = 1 << 16
"""Fewest items worth a thread of their own."""

_kept = threading.local()
"""Four rows of memory that each thread uses again: fresh memory costs more than hashing in it."""

UInt64 = NDArray[np.uint64]
Column = Any
"""An int64 array, or strings without nulls: a polars Series or an Arrow array."""


def hash_words(words: NDArray[Any], seed: int | UInt64 = 0) -> UInt64:
    """Return XXH64 of each 8-byte word (int64 or uint64), under one seed or one seed per word.

    >>> [hex(h) for h in hash_words(np.array([0, 1, -1]))]
    ['0x34c96acdcadb1bbb', '0x9f29cb17a2a49995', '0x85d136adb773c6c9']
    """
    words = _as_words(words)
    out = np.empty(words.size, dtype=np.uint64)
    scratch = np.empty((2, min(BLOCK, words.size)), dtype=np.uint64)
    for start in range(0, words.size, BLOCK):
        stop = min(start + BLOCK, words.size)
        if isinstance(seed, np.ndarray):
            _hash_block(words[start:stop], seed[start:stop], out[start:stop], scratch)
        else:
            _hash_block(words[start:stop], np.uint64(seed & MASK), out[start:stop], scratch)
    return out


def _as_words(words: NDArray[Any]) -> UInt64:
    """View int64 or uint64 as uint64: two's complement, so −1 is eight bytes 0xFF."""
    if words.dtype == np.uint64:
        return words
    return np.ascontiguousarray(words, dtype=np.int64).view(np.uint64)


def _hash_block(words: UInt64, seed: UInt64 | np.uint64, out: UInt64, scratch: UInt64) -> None:
    """Write XXH64 of the words into ``out``; ``out`` may be the same memory as ``seed``, not as ``words``."""
    mixed, spare = scratch[0, : words.size], scratch[1, : words.size]

    def rotate(values: UInt64, by: int) -> None:
        """Rotate each word left in place."""
        np.right_shift(values, np.uint64(64 - by), out=spare)
        np.left_shift(values, np.uint64(by), out=values)
        np.bitwise_or(values, spare, out=values)

    np.multiply(words, P2, out=mixed)
    rotate(mixed, 31)
    np.multiply(mixed, P1, out=mixed)
    if isinstance(seed, np.ndarray):
        np.add(seed, np.uint64(PRIMES[4] + 8), out=out)
        np.bitwise_xor(out, mixed, out=out)
    else:
        np.bitwise_xor(mixed, np.uint64((int(seed) + PRIMES[4] + 8) & MASK), out=out)
    rotate(out, 27)
    np.multiply(out, P1, out=out)
    np.add(out, P4, out=out)
    for shift, factor in ((33, P2), (29, P3), (32, None)):
        np.right_shift(out, np.uint64(shift), out=spare)
        np.bitwise_xor(out, spare, out=out)
        if factor is not None:
            np.multiply(out, factor, out=out)


def unhash_words(hashes: Sequence[int] | UInt64, seed: int = 0) -> UInt64:
    """Return the words whose XXH64 under ``seed`` are the given hashes: the inverse of :func:`hash_words`.

    >>> unhash_words(hash_words(np.array([5, 7]), 42), 42)
    array([5, 7], dtype=uint64)
    """
    return np.array([_unhash(int(h), seed & MASK) for h in hashes], dtype=np.uint64)


def _unhash(value: int, seed: int) -> int:
    value ^= value >> 32
    value = value * pow(PRIMES[2], -1, 1 << 64) & MASK
    value ^= value >> 29 ^ value >> 58
    value = value * pow(PRIMES[1], -1, 1 << 64) & MASK
    value ^= value >> 33
    value = (value - PRIMES[3]) * pow(PRIMES[0], -1, 1 << 64) & MASK
    value = (value >> 27 | value << 37) & MASK
    value = (value ^ (seed + PRIMES[4] + 8)) & MASK
    value = value * pow(PRIMES[0], -1, 1 << 64) & MASK
    value = (value >> 31 | value << 33) & MASK
    return value * pow(PRIMES[1], -1, 1 << 64) & MASK


def string_keys(strings: Any) -> UInt64:
    """Return XXH64 (seed 0) of the UTF-8 bytes of each string of a polars Series or Arrow array without nulls.

    The one place that hashes strings: by polars-hash, or by a loop over the ``xxhash`` package where polars-hash
    is missing.

    >>> import polars as pl
    >>> [hex(h) for h in string_keys(pl.Series(["", "a", "ünnoise"]))]
    ['0xef46db3751d8e999', '0xd24ec4f1a98c6e5b', '0xc894bc9bb0d059ae']
    """
    strings = as_series(strings)
    try:
        import polars_hash
    except ImportError:
        return _string_keys_loop(strings)
    keys = strings.to_frame().select(polars_hash.col("items").nchash.xxhash64())
    return np.asarray(keys.to_series().to_numpy(), dtype=np.uint64)


def as_series(strings: Any) -> Any:
    """Return strings, from Arrow or polars, as a polars Series named items."""
    import polars as pl

    return (strings if isinstance(strings, pl.Series) else pl.Series(pl.from_arrow(strings))).alias("items")


def _string_keys_loop(strings: Any) -> UInt64:
    """The same, 10 to 20 times slower, by the ``xxhash`` package."""
    try:
        from xxhash import xxh64_intdigest
    except ImportError:
        raise InputError("hashing strings needs polars-hash or xxhash: pip install polars-hash") from None
    texts = (text.encode() for text in strings)
    return np.fromiter((xxh64_intdigest(text) for text in texts), dtype=np.uint64, count=len(strings))


def hash_columns(columns: Sequence[Column], hash_seed: int = 0) -> UInt64:
    """Return the hash h of each item, given the columns of the items.

    >>> import polars as pl
    >>> [hex(h) for h in hash_columns([np.array([1, 2]), pl.Series(["a", "b"])], hash_seed=7)]
    ['0x9d468f029327f122', '0xba506ed01292de4c']
    """
    hashes = np.empty(len(columns[0]), dtype=np.uint64)

    def keep(start: int, block: UInt64) -> None:
        hashes[start : start + block.size] = block

    each_block(columns, hash_seed, keep)
    return hashes


def each_block(
    columns: Sequence[Column],
    hash_seed: int,
    consume: Callable[[int, UInt64], None],
    most: int | None = None,
    stop: threading.Event | None = None,
) -> None:
    """Call ``consume(start, hashes)`` with the hashes of all items, in small blocks, in any order, from any thread.

    The block is overwritten after the call. Nothing as long as the items is ever allocated. ``most`` bounds the number
    of threads (default: as many as there are processors); 1 is the calling thread. No block begins after ``stop``.
    """
    size = len(columns[0])
    workers = max(1, min(most or os.cpu_count() or 1, size // LEAST))
    length = max(1, min(BLOCK, -(-size // workers)))
    stop = stop or threading.Event()

    def work(starts: range) -> None:
        """Hash the blocks that begin at ``starts``; the memory used is wiped afterwards."""
        memory: UInt64 | None = getattr(_kept, "memory", None)
        if memory is None or memory.shape[1] < length:
            memory = _kept.memory = np.empty((4, length), dtype=np.uint64)
        try:
            for start in starts:
                if stop.is_set():
                    return
                end = min(start + length, size)
                key, h = memory[2, : end - start], memory[3, : end - start]
                for i, column in enumerate(columns):
                    if isinstance(column, np.ndarray):
                        keys = key
                        _hash_block(_as_words(column[start:end]), np.uint64(0), keys, memory)
                    else:
                        keys = string_keys(column.slice(start, end - start))
                    _hash_block(keys, h if i else np.uint64(hash_seed & MASK), h, memory)
                consume(start, h)
        finally:
            wipe(memory[:, :length])

    shares = [range(i * length, size, workers * length) for i in range(workers)]
    if workers == 1:
        work(shares[0])
    else:
        all_of([partial(work, share) for share in shares], stop)


def level_of(hashes: UInt64, levels: int) -> Int64:
    """Return min(number of leading zero bits, levels − 1), for at most 54 levels.

    >>> level_of(np.array([1 << 63, 1 << 62, 5, 0], dtype=np.uint64), 16).tolist()
    [0, 1, 15, 15]
    """
    # the exponent of a whole number below 2^53 as a double is exact: 1022 + its number of bits
    top = hashes >> np.uint64(11)
    doubles = top.astype(np.float64)
    exponent = doubles.view(np.int64) >> 52
    wipe(top, doubles)
    return np.asarray(np.minimum(1075 - exponent, levels - 1))


def cells_of(hashes: UInt64, layout: Layout, *, in_place: bool = False) -> Int64:
    """Return the cell of each hash in a hashed sketch; ``in_place`` takes the memory of the hashes for it.

    >>> layout = Layout(kind="hashed", cells=8, levels=2, hash_seed=0)
    >>> cells_of(np.array([(1 << 63) + 6, 7], dtype=np.uint64), layout).tolist()
    [2, 7]
    """
    size = layout.cells // layout.levels
    if size & (size - 1):
        raise InputError(f"cells per level must be a power of two, got {size}")
    offset = level_of(hashes, layout.levels) * size if layout.levels > 1 else None
    cells = np.bitwise_and(hashes, np.uint64(size - 1), out=hashes if in_place else None).view(np.int64)
    if offset is not None:
        cells += offset
    return cells


def sample_limit(rate: Fraction) -> np.uint64:
    """Return the largest hash that belongs to the sample: h < rate·2^64, exactly.

    >>> hex(sample_limit(Fraction(1, 2))), hex(sample_limit(Fraction(1)))
    ('0x7fffffffffffffff', '0xffffffffffffffff')
    """
    return np.uint64(-(-rate.numerator * (1 << 64) // rate.denominator) - 1)
