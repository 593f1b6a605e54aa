"""From rows to cells in Spark's own expressions, so that hashing runs in the JVM.

Spark's ``xxhash64(c_1, …, c_k)`` starts from seed 42 and chains: x_0 = 42, x_i = XXH64(c_i; seed x_{i−1}), with an
integer of 64 bits hashed as its 8 little-endian bytes and a string as its UTF-8 bytes. XXH64 of 8 bytes is a
bijection, so for every seed s there is one literal L(s) with XXH64(L(s); 42) = s, and

    xxhash64(L(0), c)                       is  key = XXH64(c; seed 0)
    xxhash64(L(hash_seed), key_1, …, key_k)  is  the chain h of :mod:`unnoise.sketches.hashing`.

A null is skipped by ``xxhash64`` (it would hash like a missing column), so rows with nulls go first. Longs are signed
in Spark: h ≥ 2^63 reads h < 0 there, and unsigned order is signed order after flipping the top bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..layout import Layout
from ..sketches.hashing import sample_limit, unhash_words
from ._tasks import UNKNOWN

if TYPE_CHECKING:
    from pyspark.sql import Column

__all__ = ["group_column", "hash_column", "hashed_cell", "in_sample", "item_type", "known_cell", "long"]

SPARK_SEED = 42
TOP_BIT = 1 << 63
INTEGERS = ("tinyint", "smallint", "int", "bigint")


def signed(word: int) -> int:
    """Return the 64-bit word as Spark's long holds it.

    >>> signed(5), signed(2**64 - 1)
    (5, -1)
    """
    return word - (1 << 64) if word & TOP_BIT else word


def long(value: int) -> Column:
    """Return a literal of 64 bits; a bare small literal would be hashed as 4 bytes."""
    from pyspark.sql import functions as F

    return F.lit(value).cast("bigint")


def seed_literal(seed: int) -> Column:
    """Return L(seed): the literal after which ``xxhash64`` goes on as if it had begun with ``seed``."""
    return long(signed(int(unhash_words([seed], SPARK_SEED)[0])))


def item_type(name: str, data_type: Any) -> str:
    """Return "int" or "str" for a column's Spark type, or say how to convert it."""
    simple = data_type.simpleString()
    if simple in INTEGERS:
        return "int"
    if simple.split()[0].split("(")[0] in ("string", "char", "varchar"):
        return "str"
    raise InputError(
        f"column {name!r} must hold integers or strings, got {simple}; "
        f"convert it first, for example with cast('string') or cast('bigint')"
    )


def key_column(column: Column, data_type: Any) -> Column:
    """Return key = XXH64(value; seed 0) of one column."""
    from pyspark.sql import functions as F

    simple = data_type.simpleString()
    if simple in INTEGERS:
        column = column.cast("bigint")
    return F.xxhash64(seed_literal(0), column)


def hash_column(columns: Sequence[Column], types: Sequence[Any], hash_seed: int) -> Column:
    """Return the hash h of an item as a signed long; ``types`` are the columns' Spark types."""
    from pyspark.sql import functions as F

    keys = [key_column(column, data_type) for column, data_type in zip(columns, types, strict=True)]
    return F.xxhash64(seed_literal(hash_seed), *keys)


def level_column(hashes: Column, levels: int) -> Column:
    """Return min(leading zero bits of h, levels − 1)."""
    from pyspark.sql import functions as F

    level = F.when(hashes < 0, long(0))
    for number in range(1, levels - 1):
        level = level.when(hashes >= long(TOP_BIT >> number), long(number))
    return level.otherwise(long(levels - 1))


def hashed_cell(hashes: Column, layout: Layout) -> Column:
    """Return the cell of an item in a hashed sketch."""
    size = layout.cells // layout.levels
    cell = hashes.bitwiseAND(long(size - 1))
    return cell if layout.levels == 1 else cell + level_column(hashes, layout.levels) * long(size)


def in_sample(hashes: Column, layout: Layout) -> Column:
    """Tell whether an item's hash lies below rate·2^64, in unsigned order."""
    assert layout.rate is not None
    limit = signed(int(sample_limit(layout.rate)) ^ TOP_BIT)
    return hashes.bitwiseXOR(long(signed(TOP_BIT))) <= long(limit)


def known_cell(item: Column, domain: int) -> Column:
    """Return the item itself where it lies in 0 … domain−1, else :data:`~unnoise.spark._tasks.UNKNOWN`."""
    from pyspark.sql import functions as F

    item = item.cast("bigint")
    return F.when((item >= 0) & (item < long(domain)), item).otherwise(long(UNKNOWN))


def group_column(by: Column, groups: Sequence[Any]) -> Column:
    """Return the number of the row's group, or null where it was not declared."""
    from pyspark.sql import functions as F

    place = F.array_position(F.array(*(F.lit(group) for group in groups)), by)
    return F.when(place > 0, place - 1)
