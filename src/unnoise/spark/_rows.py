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
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..layout import Layout
from . import _cells
from ._tasks import UNKNOWN

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["Columns", "cap", "cell_rows", "places", "read_rows"]

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

    given = [columns] if isinstance(columns, str) or not isinstance(columns, Sequence) else list(columns)
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
    item_types = tuple(_cells.item_type(str(c), t) for c, t in zip(given, types))
    if by is not None and groups is not None:
        _check_groups(groups, _cells.item_type(str(by), fields["group"]))
        frame = frame.withColumn("group", _cells.group_column(F.col("group"), groups))
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


def cell_rows(table: Columns, layout: Layout, *, domain: DataFrame | None, drop_unknown: bool) -> DataFrame:
    """Return one row per occurrence with its ``cell`` (and ``person``).

    ``domain`` holds the ``hash`` (seed 0) and ``listed``, the cell, of each item of a domain declared as a list.
    """
    from pyspark.sql import functions as F

    frame, cell = _located(table, layout, domain)
    if table.grouped:
        shifted = F.col("group") * _cells.long(places(layout)) + cell
        cell = F.when(cell >= 0, shifted).otherwise(cell)
    keep = [F.col("person")] if table.person else []
    rows = frame.select(*keep, cell.alias("cell"))
    return rows.where(F.col("cell") >= 0) if drop_unknown and layout.kind != "hashed" else rows


def _located(table: Columns, layout: Layout, domain: DataFrame | None) -> tuple[DataFrame, Column]:
    """Return the rows that have a cell, or lie outside the domain, and the column that tells which."""
    from pyspark.sql import functions as F

    hashes = _cells.hash_column(table.items, table.types, layout.hash_seed or 0)
    if layout.kind == "hashed":
        return table.frame, _cells.hashed_cell(hashes, layout)
    if domain is None:
        assert layout.domain is not None
        cell = _cells.known_cell(table.items[0], layout.domain)
        if layout.kind == "known":
            return table.frame, cell
        return table.frame.where(_cells.in_sample(hashes, layout) | (cell < 0)), cell
    frame = table.frame if layout.kind == "known" else table.frame.where(_cells.in_sample(hashes, layout))
    frame = frame.withColumn("hash", _cells.hash_column(table.items, table.types, 0))
    return frame.join(domain, on="hash", how="left"), F.coalesce(F.col("listed"), _cells.long(UNKNOWN))


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
    lot = F.xxhash64(_cells.long(seed), F.col("person"), F.col("cell"), F.col("number"))
    ranked = Window.partitionBy("person").orderBy("lot", "cell", "number")
    drawn = numbered.withColumn("lot", lot).withColumn("rank", F.row_number().over(ranked))
    return drawn.where((F.col("rank") <= people) | (F.col("cell") < 0)).select("cell")
