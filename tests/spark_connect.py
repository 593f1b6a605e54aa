"""Run by test_spark_cluster.py: the same cells through Spark Connect. Prints one JSON object."""

from __future__ import annotations

import json
import os

import numpy as np

from oracles_spark import require_java, slow_cells, spark_environment
from unnoise import spark as un_spark
from unnoise import testing

WORDS = ["a", "é", "日本語", "x" * 40, None, "a"]


def main() -> None:
    """Compare cells, then release a noisy profile for real."""
    require_java()
    os.environ.update(spark_environment())
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.remote("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    rows = [(word, i % 2, i) for i, word in enumerate(WORDS)]
    df = spark.createDataFrame(rows, "t string, i int, who int")
    with testing.noiseless():
        sketch = un_spark.sketch(df, ["t", "i"], epsilon=1, cells=64, person="who", max_contributions=1)
        listed = un_spark.sketch(df, "t", epsilon=1, kind="known", domain=["é", "a"], unknown="drop")
    noisy = un_spark.noisy_profile(df, "t", epsilon=1, kind="hashed", cells=2**12, levels=2, by="i", groups=[1, 0])
    result = {
        "session": type(spark).__module__,
        "equal": bool((sketch._cells == slow_cells([row[:2] for row in rows], 64)).all()),
        "listed": np.asarray(listed._cells).tolist(),
        "cells": [part.cells for part in noisy[0].parts],
    }
    print(json.dumps(result))
    spark.stop()


if __name__ == "__main__":
    main()
