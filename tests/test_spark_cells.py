"""Cells from Spark equal the embedded engine's, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unnoise
from oracles_spark import slow_cells
from spark_tools import session
from unnoise import InputError, testing
from unnoise.sketches.sketch import Sketch

pytestmark = pytest.mark.spark
FLIGHTS = Path(unnoise.__file__).parent / "data" / "flights.parquet"
WORDS = ["", "a", "A", "é", "e\u0301", "ünnoise", "日本語", "🙂", "x" * 31, "x" * 32, "x" * 33, "y" * 300, "a\0b", None]


@pytest.fixture(scope="module")
def spark() -> Any:
    return session()[0]


@pytest.fixture(scope="module")
def flights(spark: Any) -> Any:
    return spark.read.parquet(str(FLIGHTS)).cache()


def cells(df: Any, columns: Any, **options: Any) -> Any:
    """Exact cells out of Spark: noise switched off by the test hook."""
    with testing.noiseless():
        found = unnoise.spark.sketch(df, columns, epsilon=1, **options)
    return {g: s._held.array() for g, s in found.items()} if isinstance(found, dict) else found._held.array()


def embedded(sketch: Any, items: Any) -> np.ndarray:
    sketch.update(items)
    return np.asarray(sketch._held.array())


@pytest.mark.parametrize("columns", [["tailnum"], ["origin", "dest"], ["dest", "origin", "tailnum"]])
@pytest.mark.parametrize("options", [{}, {"levels": 8, "hash_seed": 2**64 - 3}], ids=["plain", "levels"])
def test_flights_fall_into_the_same_cells(flights: Any, columns: list[str], options: dict[str, int]) -> None:
    import polars as pl

    with testing.noiseless():
        sketch = Sketch.hashed(2**12, epsilon=1, **options)
    table = pl.read_parquet(FLIGHTS).select(columns)
    expected = embedded(sketch, table if len(columns) > 1 else table[columns[0]])
    np.testing.assert_array_equal(cells(flights, columns, cells=2**12, **options), expected)
    assert expected.sum() == table.drop_nulls().height > 0


@pytest.mark.parametrize("width", ["tinyint", "smallint", "int", "bigint"])
def test_integers_of_each_width(spark: Any, width: str) -> None:
    bits = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}[width]
    edge = 1 << (bits - 1)
    items = [-edge, edge - 1, -1, 0, 1, 1, 7, None]
    df = spark.createDataFrame([(i,) for i in items], f"i {width}")
    expected = slow_cells([(i,) for i in items], 64, levels=4, seed=11)
    np.testing.assert_array_equal(cells(df, "i", cells=64, levels=4, hash_seed=11), expected)


@pytest.mark.parametrize("collation", ["", " collate UTF8_LCASE", " collate UNICODE_CI"])
def test_unicode_and_nulls_and_collations(spark: Any, collation: str) -> None:
    rows = [(word, i % 3 if i % 5 else None) for i, word in enumerate(WORDS * 3)]
    df = spark.createDataFrame(rows, "t string, i int")
    from pyspark.sql import functions as F

    both = df.select(F.expr(f"t{collation}").alias("t"), "i")
    np.testing.assert_array_equal(cells(both, ["t", "i"], cells=256), slow_cells(rows, 256))
    expected = slow_cells([row[:1] for row in rows], 256, seed=5)
    np.testing.assert_array_equal(cells(both, F.col("t"), cells=256, hash_seed=5), expected)


def test_known_and_sampled_by_number(spark: Any) -> None:
    items = np.random.default_rng(1).integers(0, 3000, 5000)
    df = spark.createDataFrame([(int(i),) for i in items], "i int")
    with testing.noiseless():
        known = Sketch.known(3000, epsilon=1)
        sampled = Sketch.sampled(3000, rate="1/7", epsilon=1, hash_seed=3)
    np.testing.assert_array_equal(cells(df, "i", kind="known", domain=3000), embedded(known, items))
    got = cells(df, "i", kind="sampled", domain=3000, rate="1/7", hash_seed=3)
    np.testing.assert_array_equal(got, embedded(sampled, items))


def test_known_and_sampled_by_list(spark: Any, flights: Any) -> None:
    import polars as pl

    table = pl.read_parquet(FLIGHTS).select("origin", "dest").drop_nulls()
    domain = [*sorted(set(table.rows())), ("NONE", "NONE")]
    with testing.noiseless():
        known = Sketch.known(domain, epsilon=1)
        sampled = Sketch.sampled(domain, rate=0.4, epsilon=1)
    columns = ["origin", "dest"]
    np.testing.assert_array_equal(cells(flights, columns, kind="known", domain=domain), embedded(known, table))
    got = cells(flights, columns, kind="sampled", domain=domain, rate=0.4)
    np.testing.assert_array_equal(got, embedded(sampled, table))


@pytest.mark.parametrize("domain", [5, [0, 1, 2, 3, 4]])
def test_an_item_outside_the_domain_is_refused_or_dropped(spark: Any, domain: Any) -> None:
    df = spark.createDataFrame([(1,), (4,), (5,), (-1,)], "i int")
    with pytest.raises(InputError, match="declared domain"):
        cells(df, "i", kind="known", domain=domain, unknown="error")
    assert cells(df, "i", kind="known", domain=domain).tolist() == [0, 1, 0, 0, 1]


def test_groups_are_declared_and_kept_apart(spark: Any) -> None:
    rows = [("x", 1), ("x", 2), ("y", 1), ("other", 1), (None, 1), ("y", None), ("x", 1)]
    df = spark.createDataFrame(rows, "g string, i int")
    found = cells(df, "i", kind="known", domain=3, by="g", groups=["y", "x", "empty"])
    assert {g: c.tolist() for g, c in found.items()} == {"y": [0, 1, 0], "x": [0, 2, 1], "empty": [0, 0, 0]}
    hashed = cells(df, "i", cells=16, levels=2, by="g", groups=("x", "y"))
    np.testing.assert_array_equal(hashed["x"], slow_cells([(1,), (2,), (1,)], 16, levels=2))
    by_number = cells(df, "g", cells=16, by="i", groups=[2, 1])
    np.testing.assert_array_equal(by_number[2], slow_cells([("x",)], 16))


def test_sampled_groups_have_the_same_cells(spark: Any) -> None:
    df = spark.createDataFrame([(i % 2, i) for i in range(100)], "g int, i int")
    with testing.noiseless():
        even, odd = (Sketch.sampled(100, rate=0.5, epsilon=1) for _ in range(2))
    found = cells(df, "i", kind="sampled", domain=100, rate=0.5, by="g", groups=[0, 1])
    np.testing.assert_array_equal(found[0], embedded(even, np.arange(0, 100, 2)))
    np.testing.assert_array_equal(found[1], embedded(odd, np.arange(1, 100, 2)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": None}, "epsilon is required"),
        ({"cells": 1000}, "cells must be a power of two, got 1000"),
        ({"kind": "known"}, "domain is required"),
        ({"columns": "f"}, "column 'f' must hold integers or strings, got double"),
        ({"columns": []}, "columns must name at least one column"),
        ({"by": "i"}, "by and groups must be given together"),
        ({"by": "i", "groups": [1, 1]}, "groups must be distinct"),
        ({"by": "s", "groups": ["all groups"]}, "groups must not hold 'all groups'"),
        ({"by": "i", "groups": []}, "groups must be distinct and not empty"),
        ({"by": "i", "groups": "12"}, "groups must be a list of values, got the text '12'"),
        ({"by": "i", "groups": [[1]]}, "groups must be of the type of the column by"),
        ({"by": "i", "groups": [2**63]}, "groups must be integers of 64 bits"),
        ({"by": "i", "groups": ["1"]}, "groups must be of the type of the column by"),
        ({"person": "i"}, "person needs max_contributions"),
        ({"unknown": "keep"}, "unknown must be 'error' or 'drop', got 'keep'"),
        ({"kind": "known", "domain": ["a"]}, "the columns must have the types of the domain"),
        ({"kind": "sampled", "domain": 9, "rate": 2}, "rate must be above 0 and at most 1, got 2"),
        ({"hash_seed": -1}, "hash_seed must be an integer"),
        ({"levels": 0}, "levels must be an integer between 1 and 54, got 0"),
    ],
)
def test_bad_arguments_say_what_must_hold(spark: Any, options: dict[str, Any], message: str) -> None:
    df = spark.createDataFrame([(1, 1.0)], "i int, f double")
    given = {"columns": "i", "epsilon": 1, **options}
    with pytest.raises(InputError, match=message):
        unnoise.spark.noisy_profile(df, **given)
