"""From the caller's DataFrame to rows of one column, ``cell``: one row for each occurrence that counts.

A null in any column named drops the row. With groups, the cells of group g are numbered from g·m on, m being the
cells of one group; rows of a group that was not declared are dropped.

**One person, c occurrences.** Each person's occurrences are numbered and at most c of them stay, chosen uniformly at
random. The choice must not change when Spark computes a partition again (an executor lost, a task speculated): half of
the cells could otherwise see one choice and half another, and a person count for up to 2c. Rows have no identity in
Spark and their order varies, but occurrences of one person in one cell are interchangeable: number them 1, 2, … in any
order, and (person, cell, number) is the same set in every attempt. Ordering these by their hash under a random seed of
the call picks c of them uniformly, and always the same. Privacy needs only the cap, and that a person's choice does
not depend on other people's rows; so the seed need not be secret.

**Hashing** runs in the JVM, by Spark's own expressions. Spark's ``xxhash64(c_1, …, c_k)`` starts from seed 42 and
chains: x_0 = 42, x_i = XXH64(c_i; seed x_{i−1}), with an integer of 64 bits hashed as its 8 little-endian bytes and a
string as its UTF-8 bytes. XXH64 of 8 bytes is a bijection, so for every seed s there is one literal L(s) with
XXH64(L(s); 42) = s, and

    xxhash64(L(0), c)                       is  key = XXH64(c; seed 0)
    xxhash64(L(hash_seed), key_1, …, key_k)  is  the chain h of :mod:`unnoise.sketches.hashing`.

A null is skipped by ``xxhash64`` (it would hash like a missing column), so rows with nulls go first. Longs are signed
in Spark: h ≥ 2^63 reads h < 0 there, and unsigned order is signed order after flipping the top bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..layout import Layout
from ..sketches.hashing import sample_limit, unhash_words
from ._tasks import UNKNOWN

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = [
    "Columns", "cap", "cell_rows", "group_column", "hash_column", "hashed_cell", "in_sample", "item_type",
    "known_cell", "listed", "long", "places", "read_rows",
]  # fmt: skip

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


@dataclass(frozen=True)
class Columns:
    """The columns of a DataFrame that matter, under names of our own, without nulls.

    frame : columns item_0, item_1, … and perhaps ``group`` (a number) and ``person``
    types : Spark types of the item columns
    item_types : "int" or "str" for each of them
    person, grouped : whether those columns are there
    """

    frame: DataFrame
    types: tuple[Any, ...]
    item_types: tuple[str, ...]
    person: bool
    grouped: bool

    @property
    def items(self) -> list[Column]:
        """The item columns."""
        from pyspark.sql import functions as F

        return [F.col(f"item_{i}") for i in range(len(self.types))]


def listed(columns: str | Column | Sequence[str | Column]) -> list[str | Column]:
    """Return one column or several as a list."""
    return [columns] if isinstance(columns, str) or not isinstance(columns, Sequence) else list(columns)


def read_rows(
    df: DataFrame,
    columns: str | Column | Sequence[str | Column],
    *,
    by: str | Column | None,
    groups: Sequence[Any] | None,
    person: str | Column | None,
) -> Columns:
    """Select, name and check the columns, and drop rows with nulls or of groups that were not declared."""
    from pyspark.sql import functions as F

    given = listed(columns)
    if not given:
        raise InputError("columns must name at least one column, got none")
    chosen = {f"item_{i}": column for i, column in enumerate(given)}
    if person is not None:
        chosen["person"] = person
    if by is not None:
        chosen["group"] = by
    named = [(F.col(c) if isinstance(c, str) else c).alias(name) for name, c in chosen.items()]
    frame = _by_value(df.select(*named))
    fields = {field.name: field.dataType for field in frame.schema.fields}
    types = tuple(fields[f"item_{i}"] for i in range(len(given)))
    item_types = tuple(item_type(str(c), t) for c, t in zip(given, types))
    if by is not None and groups is not None:
        _check_groups(groups, item_type(str(by), fields["group"]))
        frame = frame.withColumn("group", group_column(F.col("group"), groups))
    for name in chosen:
        frame = frame.where(F.col(name).isNotNull())
    return Columns(frame, types, item_types, person is not None, by is not None)


def _by_value(frame: DataFrame) -> DataFrame:
    """Return the columns without collations: under UTF8_LCASE two persons, 'A' and 'a', would be taken for one."""
    from pyspark.sql import functions as F

    collated = [field.name for field in frame.schema.fields if "collate" in field.dataType.simpleString()]
    return frame.withColumns({name: F.collate(F.col(name), "UTF8_BINARY") for name in collated}) if collated else frame


def _check_groups(groups: Sequence[Any], kind: str) -> None:
    wanted = int if kind == "int" else str
    for group in groups:
        if not isinstance(group, wanted) or isinstance(group, bool):
            raise InputError(f"groups must be of the type of the column by ({kind}), got {group!r}")
        if isinstance(group, int) and not -TOP_BIT <= group < TOP_BIT:
            raise InputError(f"groups must be integers of 64 bits, got {group}")
    if not groups or len(set(groups)) != len(groups):
        raise InputError(f"groups must be distinct and not empty, got {list(groups)!r}")


def cell_rows(table: Columns, layout: Layout, *, domain: DataFrame | None, drop_unknown: bool) -> DataFrame:
    """Return one row per occurrence with its ``cell`` (and ``person``).

    ``domain`` holds the ``hash`` (seed 0) and ``listed``, the cell, of each item of a domain declared as a list.
    """
    from pyspark.sql import functions as F

    frame, cell = _located(table, layout, domain)
    if table.grouped:
        shifted = F.col("group") * long(places(layout)) + cell
        cell = F.when(cell >= 0, shifted).otherwise(cell)
    keep = [F.col("person")] if table.person else []
    rows = frame.select(*keep, cell.alias("cell"))
    return rows.where(F.col("cell") >= 0) if drop_unknown and layout.kind != "hashed" else rows


def _located(table: Columns, layout: Layout, domain: DataFrame | None) -> tuple[DataFrame, Column]:
    """Return the rows that have a cell, or lie outside the domain, and the column that tells which."""
    from pyspark.sql import functions as F

    hashes = hash_column(table.items, table.types, layout.hash_seed or 0)
    if layout.kind == "hashed":
        return table.frame, hashed_cell(hashes, layout)
    if domain is None:
        assert layout.domain is not None
        cell = known_cell(table.items[0], layout.domain)
        if layout.kind == "known":
            return table.frame, cell
        return table.frame.where(in_sample(hashes, layout) | (cell < 0)), cell
    frame = table.frame if layout.kind == "known" else table.frame.where(in_sample(hashes, layout))
    frame = frame.withColumn("hash", hash_column(table.items, table.types, 0))
    return frame.join(domain, on="hash", how="left"), F.coalesce(F.col("listed"), long(UNKNOWN))


def places(layout: Layout) -> int:
    """Return how many cell numbers one group takes.

    Those of a sample out of 0 … d−1 are numbered like all of 0 … d−1; the tasks know which of them exist.
    """
    whole = layout.kind == "sampled" and layout.fingerprint is None
    return layout.domain if whole and layout.domain is not None else layout.cells


def cap(rows: DataFrame, people: int, seed: int) -> DataFrame:
    """Keep at most ``people`` rows of each person (and all unknown items): a choice that every attempt repeats."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    copies = Window.partitionBy("person", "cell").orderBy("cell")
    numbered = rows.repartition("person").withColumn("number", F.row_number().over(copies))
    lot = F.xxhash64(long(seed), F.col("person"), F.col("cell"), F.col("number"))
    ranked = Window.partitionBy("person").orderBy("lot", "cell", "number")
    drawn = numbered.withColumn("lot", lot).withColumn("rank", F.row_number().over(ranked))
    return drawn.where((F.col("rank") <= people) | (F.col("cell") < 0)).select("cell")
