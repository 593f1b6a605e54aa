"""Spark for the tests: what it needs, and one session per process."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

NO_JAVA = (
    "Spark needs Java 17 or 21, and there is no 'java' on PATH: on Debian 'apt-get install openjdk-17-jre-headless', "
    "elsewhere from adoptium.net, or set JAVA_HOME"
)


def require_java() -> None:
    """Say how to get Java where there is none."""
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java") is None and not (home and Path(home, "bin", "java").exists()):
        raise RuntimeError(NO_JAVA)


BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For Java that lives a minute: its better compiler would take more time than it saves."""


def spark_environment() -> dict[str, str]:
    """What Spark reads from the environment: this interpreter, and no other network than the loopback."""
    own = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    return {**own, "JAVA_TOOL_OPTIONS": BRIEF}


def builder(master: str) -> Any:
    """Return a session builder with little memory and no web page."""
    require_java()
    os.environ.update(spark_environment())
    from pyspark.sql import SparkSession

    return (
        SparkSession.builder.master(master)
        .appName("unnoise tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.sql.shuffle.partitions", "3")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
    )


@lru_cache(maxsize=1)
def session() -> tuple[Any, Path]:
    """Return the one session of this process, on two cores with retries, and the folder of its event log."""
    log = Path(tempfile.mkdtemp(prefix="unnoise-spark-"))
    spark = (
        builder("local[2,4]")
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.compress", "false")
        .config("spark.eventLog.dir", log.as_uri())
        .config("spark.sql.warehouse.dir", (log / "warehouse").as_uri())
        .getOrCreate()
    )
    atexit.register(shutil.rmtree, log, ignore_errors=True)
    atexit.register(spark.stop)
    return spark, log
