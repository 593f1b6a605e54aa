"""Run by test_spark_cluster.py: the same cells through Spark Connect. Prints one JSON object."""

from __future__ import annotations

import base64
import json
import os
import sys
import warnings
from pathlib import Path

import numpy as np

from oracles_spark import slow_cells
from spark_tools import require_java, spark_environment
from unnoise import spark as un_spark
from unnoise import testing
from unnoise._sampler import open_stream

WORDS = ["a", "é", "日本語", "x" * 40, None, "a"]


def search_logs(folder: Path, key: bytes) -> tuple[bool, bool]:
    """Tell whether the server's event log knows our job, and whether the key stands in it."""
    text = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    encoded = [base64.b64encode(bytes(shift) + key)[4 * (shift > 0) : -4] for shift in range(3)]
    spellings = [key.hex().encode(), *encoded]
    for start in range(len(key) - 7):  # eight bytes in a row give it away, raw or as protobuf prints them
        some = key[start : start + 8]
        octal = "".join(chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}" for byte in some).encode()
        spellings += [some, octal, octal.replace(b"\\", b"\\\\")]
    return b"noise_only" in text, any(spelling in text for spelling in spellings)


def main() -> None:
    """Compare cells, release a noisy profile for real, and look for the key in the log of the server."""
    require_java()
    os.environ.update(spark_environment())
    from pyspark.sql import SparkSession

    log = Path(sys.argv[1])
    warnings.filterwarnings("ignore", message="Failed to set")  # the server takes them when it starts, not later
    spark = (
        SparkSession.builder.remote("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.compress", "false")
        .config("spark.eventLog.dir", log.as_uri())
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    rows = [(word, i % 2, i) for i, word in enumerate(WORDS)]
    df = spark.createDataFrame(rows, "t string, i int, who int")
    with testing.noiseless():
        sketch = un_spark.sketch(df, ["t", "i"], epsilon=1, cells=64, person="who", max_contributions=1)
        listed = un_spark.sketch(df, "t", epsilon=1, kind="known", domain=["é", "a"], unknown="drop")
    with testing.seeded(3):
        key = open_stream().words(32, 8).tobytes()
    with testing.seeded(3):
        un_spark.sketch(df, "t", epsilon=1, cells=64)
    noisy = un_spark.noisy_profile(df, "t", epsilon=1, kind="hashed", cells=2**12, levels=2, by="i", groups=[1, 0])
    result = {
        "session": type(spark).__module__,
        "equal": bool((sketch._held.array() == slow_cells([row[:2] for row in rows], 64)).all()),
        "listed": np.asarray(listed._held.array()).tolist(),
        "cells": [part.cells for part in noisy[0].parts],
    }
    spark.stop()
    logged, leaked = search_logs(log, key)
    print(json.dumps({**result, "logged": logged, "leaked": leaked}))


if __name__ == "__main__":
    main()
