"""One call, one job, one release: run the noise as the last stage and put the tallies together.

Counts and marker rows are sent to the task of their range; noise and tally follow with no shuffle, sort or cache after
them, and the result is collected at once. The driver adds the tallies up and checks that every part has all of its
cells: an empty range that nobody visited, or one visited twice, is an error and not a biased answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import Int64
from ..errors import InputError, UnnoiseError
from ..noisy import combine
from . import _tasks
from ._rows import long

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["collect_counts", "collect_tallies"]

RANGES_PER_TASK = 8
"""Ranges for one task, 8 MiB each, once there are ranges for more tasks than the cluster runs at a time.

Few large tasks keep the driver small: it holds one tally per task, and a task with R rows has at most √(2R) different
counts above its noise.
"""

MANY_TASKS = 512
"""As many tasks as this may have fewer ranges each, if the session has as many shuffle partitions."""


def count_cells(rows: DataFrame) -> DataFrame:
    """Return the occupied cells and their exact counts (secret: they stay inside the cluster)."""
    from pyspark.sql import functions as F

    return rows.groupBy("cell").agg(F.count(F.lit(1)).alias("count"))


def task_count(ranges: int, shuffle_partitions: int) -> int:
    """Return the number of tasks of the last stage.

    >>> [task_count(r, 200) for r in (1, 64, 256, 10_000)], task_count(10_000, 100_000)
    ([1, 64, 200, 1250], 1250)
    """
    return min(ranges, max(min(shuffle_partitions, MANY_TASKS), -(-ranges // RANGES_PER_TASK)))


def place(counts: DataFrame, work: _tasks.Work) -> DataFrame:
    """Add a marker row for every range and bring the rows of a range together."""
    from pyspark.sql import functions as F

    session = counts.sparkSession
    markers = session.range(0, work.ranges, 1, 1).select(
        F.shiftleft("id", _tasks.RANGE_BITS).alias("cell"), long(0).alias("count")
    )
    tasks = task_count(work.ranges, int(session.conf.get("spark.sql.shuffle.partitions") or 200))
    number = F.shiftright("cell", _tasks.RANGE_BITS)
    both = counts.union(markers)
    if hasattr(both, "repartitionById"):  # Spark ≥ 4.1: ranges spread evenly, not by their hash
        return both.repartitionById(tasks, F.pmod(number, long(tasks)).cast("int"))
    return both.repartition(tasks, number)


def collect_tallies(rows: DataFrame, work: _tasks.Work, sizes: list[int]) -> list[tuple[Int64, Int64]]:
    """Run the job and return the values and tally of each part; ``sizes`` are the cells each must have."""
    table = _run(rows, _tasks.tally_function(work), work, _tasks.TALLY_SCHEMA)
    parts, values, how_many = (table.column(name).to_numpy() for name in ("part", "value", "tally"))
    order = np.argsort(parts, kind="stable")
    edges = np.searchsorted(parts[order], np.arange(len(sizes) + 1))
    result = []
    for number, size in enumerate(sizes):
        mine = order[edges[number] : edges[number + 1]]
        found = combine([(values[mine], how_many[mine])])
        _check_size(number, int(found[1].sum()), size)
        result.append(found)
    return result


def collect_counts(rows: DataFrame, work: _tasks.Work, sizes: list[int]) -> list[Int64]:
    """Run the job and return the noisy counts of each part, in the order of its cells."""
    table = _run(rows, _tasks.counts_function(work), work, _tasks.COUNTS_SCHEMA)
    order = np.argsort(table.column("start").to_numpy())
    parts = table.column("part").to_numpy()
    chunks: list[list[Int64]] = [[] for _ in sizes]
    for row in order.tolist():
        chunks[parts[row]].append(np.frombuffer(table.column("counts")[row].as_buffer(), dtype="<i8"))
    result = [np.concatenate(pieces) if pieces else np.zeros(0, dtype=np.int64) for pieces in chunks]
    for number, (counts, size) in enumerate(zip(result, sizes, strict=True)):
        _check_size(number, counts.size, size)
    return result


def _run(rows: DataFrame, function: Callable[[Any], Any], work: _tasks.Work, schema: str) -> Any:
    """Run the whole job, eagerly and once, and return its Arrow table."""
    table = place(count_cells(rows), work).mapInArrow(function, schema).toArrow()
    if (table.column("part").to_numpy() == _tasks.UNKNOWN).any():
        raise InputError("every item must be in the declared domain, got one outside; unknown='drop' leaves them out")
    return table


def _check_size(part: int, found: int, size: int) -> None:
    if found != size:
        raise UnnoiseError(f"part {part} must have {size} cells, got {found}: nothing is released")
