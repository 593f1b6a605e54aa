"""The direct model in a cluster: Spark's own exact profile query, and the noise once, on the driver.

    rows → (group, item, count) → (group, count, number of items) → driver → boxes of columns and rows + noise

Only the exact profile, one line for each count that occurs, reaches the driver, which is trusted like the rest of the
cluster. A person's occurrences are limited as :mod:`unnoise.spark._rows` explains, with the item in the place of the
cell, so that tasks that run again choose the same ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .._sampler import open_stream
from ..curve import ALL_GROUPS, TOP
from ..errors import InputError
from ..holding import Exactly, Unit, release, share_of_all, unit_of
from ..noise import exact_positive
from ._call import ProfileRequest, declared_groups
from ._rows import Columns, listed, long, read_rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from ..answers.direct import DirectProfile

__all__ = ["direct_profiles"]

SKETCH_ONLY = ("kind", "cells", "levels", "domain", "rate", "hash_seed", "method")


def direct_profiles(request: ProfileRequest) -> DirectProfile | dict[Any, DirectProfile]:
    """Run the query and answer for every group, or for all rows where there are none."""
    from ..answers.direct import direct_profile

    defaults = {field.name: field.default for field in fields(ProfileRequest)}
    given = [name for name in SKETCH_ONLY if getattr(request, name) != defaults[name]]
    if given:
        raise InputError(f"{' and '.join(given)} must be left out for model='direct'")
    exact_positive("epsilon", request.epsilon)
    groups = declared_groups(request.by, request.groups)
    whole = share_of_all(request.all_groups, groups)
    items = [_same(column, request.person) for column in listed(request.columns)] == [True]
    unit = unit_of(True if items else request.person, request.max_contributions)
    table = read_rows(
        request.df, request.columns, by=request.by, groups=groups, person=None if items else request.person
    )
    rows = _limited(table, unit)
    exact = _exact(rows, table, range(len(groups))) if groups is not None else _exact(rows, table)
    if whole is not None:
        exact = {ALL_GROUPS: _exact(rows, replace(table, grouped=False))[""], **exact}
    curves = release(exact, unit, request.epsilon or 0, whole=whole)
    if groups is None:
        return direct_profile(curves[""])
    return {name if name == ALL_GROUPS else groups[int(name)]: direct_profile(curve) for name, curve in curves.items()}


def _same(column: str | Column, person: str | Column | None) -> bool:
    """Tell whether two columns are one; Columns themselves answer == with another Column."""
    return column is person or (isinstance(column, str) and isinstance(person, str) and column == person)


def _exact(rows: DataFrame, table: Columns, groups: Iterable[int] = ()) -> dict[str, Exactly]:
    """Collect how many items of each group, by its place, have each count; of all rows where they are not grouped."""
    from pyspark.sql import functions as F

    group = ["group"] if table.grouped else []
    counted = rows.groupBy(*group, *table.items).agg(F.count(F.lit(1)).alias("times"))
    profile = counted.groupBy(*group, "times").agg(F.count(F.lit(1)).alias("items")).collect()
    found: dict[str, list[tuple[int, int]]] = {str(i): [] for i in groups} if table.grouped else {"": []}
    for row in profile:
        found[str(row["group"]) if table.grouped else ""].append((min(row["times"], TOP), row["items"]))
    exact = {}
    for name, pairs in found.items():
        ordered = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)
        exact[name] = Exactly(ordered[:, 0].copy(), ordered[:, 1].copy())
    return exact


def _limited(table: Columns, unit: Unit) -> DataFrame:
    """Keep at most C occurrences of each person: a choice that every attempt repeats."""
    alone = unit.persons == "items" and not table.grouped  # there the grid ends at C
    if unit.persons not in ("limited", "items") or unit.most is None or alone:
        return table.frame
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    person = ["person"] if table.person else [f"item_{i}" for i in range(len(table.types))]
    what = [name for name in table.frame.columns if name not in person]
    seed = int(open_stream().words(1).view(np.int64)[0])
    copies = Window.partitionBy(*person, *what).orderBy(*what)
    numbered = table.frame.repartition(*person).withColumn("\0number", F.row_number().over(copies))
    lot = F.xxhash64(long(seed), *(F.col(name) for name in (*person, *what, "\0number")))
    ranked = Window.partitionBy(*person).orderBy("\0lot", *what, "\0number")
    drawn = numbered.withColumn("\0lot", lot).withColumn("\0rank", F.row_number().over(ranked))
    return drawn.where(F.col("\0rank") <= unit.most)
