"""The job: noise in every cell, the same bits in every attempt, nothing secret in plans and logs."""

from __future__ import annotations

import base64
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import unnoise
from command_tools import run_line
from oracles_spark import slow_cells
from spark_tools import NO_JAVA, require_java, session
from statistics_tools import FALSE_ALARM, chi_square
from unnoise import DiscreteLaplace, PrivacyError, UnnoiseError, testing
from unnoise._sampler import Keystream, fill, open_stream
from unnoise.noisy import tally
from unnoise.sketches.sketch import Sketch
from unnoise.spark import _call, _job, _noisy_profiles, _rows, _tasks

pytestmark = pytest.mark.spark
RANGE = _tasks.RANGE
DOCS = Path(__file__).resolve().parent.parent / "docs"
OPTIONS: dict[str, Any] = {
    "epsilon": 1, "kind": "hashed", "cells": 2**20, "levels": None, "domain": None, "rate": None, "hash_seed": 0,
    "by": None, "groups": None, "person": None, "max_contributions": None, "unknown": "error",
}  # fmt: skip


@pytest.fixture(scope="module")
def spark() -> Any:
    return session()[0]


@pytest.fixture(scope="module")
def numbers(spark: Any) -> Any:
    """A thousand items 0 … 9, a hundred times each."""
    return spark.range(1000).selectExpr("id % 10 as i", "id % 50 as who")


def prepared(df: Any, columns: Any, seed: int, **options: Any) -> _call.Call:
    with testing.seeded(seed):
        return _call.prepare(_call.Request(df, columns, **{**OPTIONS, **options}))


def key_of(seed: int) -> bytes:
    with testing.seeded(seed):
        return open_stream().words(32, 8).tobytes()


@pytest.mark.statistical
def test_every_cell_has_noise_of_the_stated_law(spark: Any, numbers: Any) -> None:
    """Three ranges, two of them without a single item. False-alarm rate 1e-9; a scale wrong by 5 % is rejected."""
    noisy = unnoise.spark.noisy_profile(numbers, "i", epsilon="1/2", kind="known", domain=2 * RANGE + 5)
    assert isinstance(noisy, unnoise.NoisyProfile)
    assert (noisy.cells, noisy.noise) == (2 * RANGE + 5, DiscreteLaplace("1/2"))
    samples = np.repeat(noisy.values, noisy.tally)
    low = samples[samples < 50]  # the ten items have 100 each
    for factor, passes in (("1/2", True), ("21/40", False), ("19/40", False)):
        law = DiscreteLaplace(factor)
        statistic, threshold = chi_square(low, {z: float(law.pmf(z)) for z in range(-60, 50)})
        print(f"epsilon {factor}: chi-square {statistic:.1f}, threshold {threshold:.1f}")
        assert (statistic < threshold) is passes


def test_noise_of_a_range_is_a_function_of_key_and_range(numbers: Any) -> None:
    domain = 2 * RANGE + 5
    call = prepared(numbers, "i", 7, kind="known", domain=domain)
    (counts,) = _job.collect_counts(call.rows, call.work, call.sizes)
    expected = np.empty(domain, dtype=np.int64)
    for number in range(3):
        fill(expected[number * RANGE : (number + 1) * RANGE], DiscreteLaplace(1), Keystream(key_of(7), number))
    expected[:10] += 100
    np.testing.assert_array_equal(counts, expected)
    assert (expected[:RANGE] != expected[RANGE : 2 * RANGE]).any()


def test_tally_and_counts_agree_level_by_level_and_group_by_group(numbers: Any) -> None:
    options = {"cells": 2**10, "levels": 4, "by": "who", "groups": [3, 4]}
    call, again = (prepared(numbers, "i", 8, **options) for _ in range(2))
    counts = _job.collect_counts(call.rows, call.work, call.sizes)
    for number, noisy in enumerate(_noisy_profiles(again)):
        assert [part.cells for part in noisy.parts] == [256] * 4
        for level, part in enumerate(noisy.parts):
            values, how_many = tally(counts[4 * number + level])
            np.testing.assert_array_equal(part.values, values)
            np.testing.assert_array_equal(part.tally, how_many)


def test_a_range_that_is_not_visited_is_an_error(numbers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_job, "place", lambda counts, work: counts.repartition(2))  # no marker rows
    with pytest.raises(UnnoiseError, match=f"part 0 must have {3 * RANGE} cells, got"):
        unnoise.spark.noisy_profile(numbers, "i", epsilon=1, kind="known", domain=3 * RANGE)


def test_noise_and_tally_are_the_last_stage(numbers: Any) -> None:
    call = prepared(numbers, "i", 9, person="who", max_contributions=5)
    job = _job.place(_job.count_cells(call.rows), call.work)
    plan = job.mapInArrow(_tasks.tally_function(call.work), _tasks.TALLY_SCHEMA)
    lines = plan._jdf.queryExecution().executedPlan().toString().splitlines()
    assert "AdaptiveSparkPlan" in lines[0]
    assert "MapInArrow noise_and_tally" in lines[1]


def test_a_task_that_fails_at_first_yields_the_same_bits(
    numbers: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    options = {"kind": "known", "domain": 2 * RANGE}
    clean = _noisy_profiles(prepared(numbers, "i", 10, **options))[0]
    whole, folder = _tasks.tally_function, str(tmp_path)

    def failing(work: _tasks.Work) -> Any:
        inner = whole(work)

        def noise_and_tally(batches: Any) -> Any:
            from pathlib import Path

            from pyspark import TaskContext

            context = TaskContext.get()
            out = list(inner(batches))
            name = f"{context.partitionId()}-{context.attemptNumber()}"
            Path(folder, name).write_bytes(b"".join(batch.serialize().to_pybytes() for batch in out))
            yield from out
            if context.attemptNumber() == 0:
                raise RuntimeError("on purpose, after the result has been handed over")

        return noise_and_tally

    monkeypatch.setattr(_tasks, "tally_function", failing)
    retried = _noisy_profiles(prepared(numbers, "i", 10, **options))[0]
    np.testing.assert_array_equal(retried.values, clean.values)
    np.testing.assert_array_equal(retried.tally, clean.tally)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0-0", "0-1", "1-0", "1-1"]
    for task in "01":
        assert (tmp_path / f"{task}-0").read_bytes() == (tmp_path / f"{task}-1").read_bytes()


def test_the_key_is_in_no_plan_and_no_event_log(numbers: Any) -> None:
    call = prepared(numbers, "i", 11)
    key = call.work.key
    assert key == key_of(11)
    assert repr(key) not in repr(call)
    _noisy_profiles(call)
    encoded = [base64.b64encode(bytes(shift) + key)[4 * (shift > 0) : -4] for shift in range(3)]
    for shift in range(3):  # wherever the key stands in base64, one of the three finds it
        assert any(spelling in base64.b64encode(b"ab" + bytes(shift) + key + b"and more") for spelling in encoded)
    spellings = [key, key.hex().encode(), key[::-1].hex().encode(), str(list(key)).encode(), *encoded]
    log = b"".join(path.read_bytes() for path in session()[1].rglob("*") if path.is_file())
    job = _job.place(_job.count_cells(call.rows), call.work)
    plan = job.mapInArrow(_tasks.tally_function(call.work), _tasks.TALLY_SCHEMA)
    text = log + plan._jdf.queryExecution().toString().encode()
    assert b"noise_and_tally" in log
    assert not [spelling for spelling in spellings if spelling in text]


def test_test_noise_is_not_released(numbers: Any, tmp_path: Path) -> None:
    with testing.noiseless():
        for release in (unnoise.spark.profile, unnoise.spark.noisy_profile):
            with pytest.raises(PrivacyError, match="noise off for tests"):
                release(numbers, "i", epsilon=1)
        sketch = unnoise.spark.sketch(numbers, "i", epsilon=1, cells=16)
    assert isinstance(sketch, Sketch)
    assert "NO GUARANTEE" in sketch.guarantee
    with pytest.raises(PrivacyError):
        sketch.save(tmp_path / "never.sketch")


def test_a_sketch_from_spark_is_sealed_and_merges_with_one_from_memory(numbers: Any, tmp_path: Path) -> None:
    options = {"epsilon": 1, "cells": 2**10, "max_contributions": 4}
    sketch = unnoise.spark.sketch(numbers, "i", person="who", **options)
    assert isinstance(sketch, Sketch)
    assert sketch.sealed
    assert "Ingestion calls: 1" in sketch.guarantee
    sketch.save(tmp_path / "a.sketch")
    other = Sketch.hashed(2**10, epsilon=1, max_contributions=4)
    other.update(np.arange(10), person=np.arange(10))
    both = Sketch.load(tmp_path / "a.sketch") + other
    assert (both.noise.power, both.person_epsilon) == (2, 2)


def test_a_ledger_records_before_the_result_and_refuses_before_the_job(numbers: Any, tmp_path: Path) -> None:
    ledger = unnoise.Ledger(tmp_path / "a.ledger", "numbers", limit=2)
    options: dict[str, Any] = {"epsilon": 1, "kind": "known", "domain": 10, "ledger": ledger}
    unnoise.spark.noisy_profile(numbers, "i", **options)
    unnoise.spark.sketch(numbers, "i", person="who", max_contributions=3, **options)
    unnoise.spark.sketch(numbers, "i", **options)
    assert (ledger.spent("numbers", "occurrence"), ledger.spent("numbers", "person")) == (2, 1)
    bad = numbers.selectExpr("cast(raise_error('nothing is read beyond the limit') as bigint) as i")
    with pytest.raises(PrivacyError, match="must stay within 2, got 2 spent"):
        unnoise.spark.noisy_profile(bad, "i", **{**options, "kind": "hashed", "domain": None})
    assert ledger.spent("numbers", "occurrence") == 2


def test_profile_in_one_call(spark: Any) -> None:
    """4,043 tail numbers or so, and the estimate within 6.2 standard errors (two-sided 6e-10)."""
    path = Path(unnoise.__file__).parent / "data" / "flights.parquet"
    flights = spark.read.parquet(str(path))
    truth = flights.select("tailnum").dropna().distinct().count()
    found = unnoise.spark.profile(flights, "tailnum", epsilon=1, cells=2**16)
    assert abs(found.distinct.value - truth) < 6.2 * found.distinct.stderr
    by = unnoise.spark.profile(
        flights, "dest", epsilon=1, kind="known", domain=["IAH", "MIA", "BOS"], by="origin", groups=["JFK", "EWR"],
        unknown="drop", method="isotonic",
    )  # fmt: skip
    assert list(by) == ["JFK", "EWR"]
    assert by["EWR"].cells == 3


def capped(df: Any, columns: Any, most: int, **options: Any) -> Any:
    with testing.noiseless():
        found = unnoise.spark.sketch(df, columns, epsilon=1, max_contributions=most, **options)
    return {g: s._held.array() for g, s in found.items()} if isinstance(found, dict) else found._held.array()


@pytest.mark.statistical
def test_a_person_keeps_a_uniform_choice(spark: Any) -> None:
    """Persons with items 0, 0, 0, 1, 2 keep two: each occurrence with probability 2/5. False-alarm rate 1e-9.

    Negative control: choosing among the three distinct items would keep item 1 with probability 2/3.
    """
    from scipy.stats import norm

    people = 20_000
    df = spark.range(people).selectExpr("id as who", "explode(array(0, 0, 0, 1, 2)) as i")
    found = capped(df, "i", 2, kind="known", domain=3, person="who")
    deviation = math.sqrt(people * 0.4 * 0.6) * norm.isf(FALSE_ALARM / 4)
    print(f"kept {found.tolist()} of {people} persons, allowed deviation {deviation:.0f}")
    assert found.sum() == 2 * people
    assert np.abs(found[1:] - 0.4 * people).max() < deviation
    assert abs(2 / 3 - 0.4) * people > deviation


def test_the_choice_does_not_depend_on_the_order_of_rows(spark: Any) -> None:
    df = spark.range(4000).selectExpr("id % 40 as who", "pow(id % 97, 2) % 31 as i").selectExpr("who", "int(i) as i")
    once = capped(df, "i", 7, cells=256, person="who")
    shuffled = df.repartition(5, "i").sortWithinPartitions("i", ascending=False)
    np.testing.assert_array_equal(capped(shuffled, "i", 7, cells=256, person="who"), once)
    assert once.sum() == 40 * 7


def test_the_bound_holds_over_groups_and_leaves_others_alone(spark: Any) -> None:
    rows = [("x", "ann", 1), ("y", "ann", 1), ("y", "ann", 2), ("x", "bob", 2), ("x", None, 1), ("z", "cat", 1)]
    df = spark.createDataFrame(rows, "g string, who string, i int")
    found = capped(df, "i", 1, kind="known", domain=3, person="who", by="g", groups=["x", "y"])
    assert sum(int(cells.sum()) for cells in found.values()) == 2
    assert found["x"][2] == 1  # bob
    everyone = slow_cells([(1,), (1,), (2,), (2,), (1,)], 64)
    np.testing.assert_array_equal(capped(df, "i", 3, cells=64, person="who"), everyone)


def test_executors_need_numpy_cryptography_and_pyarrow_only() -> None:
    code = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"scipy", "polars", "pandas", "pyspark", "typer", "rich", "matplotlib", "polars_hash"}:
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
import pyarrow as pa
from unnoise.noise import DiscreteLaplace
from unnoise.spark._tasks import Sample, Work, counts_function, tally_function
work = Work(cells=100, part=50, noise=DiscreteLaplace(1), key=bytes(32), chosen=Sample(0, 2**63))
batch = pa.RecordBatch.from_pydict({"cell": [0, 7, 0], "count": [0, 3, 2]})
rows = pa.Table.from_batches(tally_function(work)(iter([batch]))).to_pydict()
print(sum(rows["tally"]), len(list(counts_function(work)(iter([batch])))))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    cells = 2 * int(_tasks.Sample(0, 2**63)(0, 50).sum())
    assert done.stdout.split() == [str(cells), "2"]


def test_missing_java_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(RuntimeError, match="openjdk-17") as error:
        require_java()
    assert str(error.value) == NO_JAVA


def test_places_of_a_sample_are_those_of_its_domain() -> None:
    from unnoise.layout import Layout

    shared: dict[str, Any] = {"kind": "sampled", "cells": 3, "domain": 9, "hash_seed": 0}
    assert _rows.places(Layout(**shared)) == 9
    assert _rows.places(Layout(**shared, fingerprint="00")) == 3


# ---------------------------------------------------------------- the direct model


def test_the_direct_model_counts_exactly(spark: Any, numbers: Any) -> None:
    """At ε = 40 the noise is 0 but for one number in 10^17: what comes out is Spark's exact profile."""
    from pyspark.sql import functions as F

    profile = unnoise.spark.profile(numbers, "i", epsilon=40, model="direct")
    assert isinstance(profile, unnoise.DirectProfile)
    assert profile.curve.numbers[:102].tolist() == [max(0, 10 - t // 8) for t in range(1, 103)]
    assert profile.curve.ranks[:11].tolist() == [101 - 8 * i for i in range(1, 11)] + [0]
    groups = unnoise.spark.profile(numbers, "i", epsilon=40, model="direct", by="i", groups=[3, 77])
    assert isinstance(groups, dict)
    assert [round(groups[g].total.value) for g in (3, 77)] == [100, 0]
    asked: dict[str, Any] = {"by": "i", "groups": [3, 4, 77], "all_groups": "1/4"}
    whole = unnoise.spark.profile(numbers, "who", epsilon=160, model="direct", **asked)
    assert list(whole) == ["all groups", 3, 4, 77]
    # the persons 3, 13, … and 4, 14, …, each 20 times in one group
    assert [int(p.curve.numbers.sum() + p.curve.ranks.sum()) for p in whole.values()] == [200, 100, 100, 0]
    assert [(p.curve.noise.epsilon, p.curve.epsilon) for p in whole.values()] == [(40, 160)] + [(120, 160)] * 3
    with pytest.raises(UnnoiseError, match="all_groups must be left out"):
        unnoise.spark.profile(numbers, "who", epsilon=1, **asked)
    for who in ("who", F.col("who")):
        people = unnoise.spark.profile(numbers, [who], epsilon=40, model="direct", person=who)
        assert isinstance(people, unnoise.DirectProfile)
        assert people.curve.released == "exactly"
        assert people.curve.numbers[19] == 50
    for what in ("i", F.col("i")):
        capped = unnoise.spark.profile(numbers, what, epsilon=120, model="direct", person="who", max_contributions=3)
        assert isinstance(capped, unnoise.DirectProfile)
        # 50 persons with 20 occurrences each, three of which count
        assert int(capped.curve.numbers.sum() + capped.curve.ranks.sum()) == 150
    with pytest.raises(UnnoiseError, match="cells must be left out"):
        unnoise.spark.profile(numbers, "i", epsilon=1, model="direct", cells=8)


# ---------------------------------------------------------------- persons and neighbours


@pytest.mark.parametrize("collation", ["", " collate UTF8_LCASE", " collate UNICODE_CI"])
def test_persons_are_told_apart_by_value(spark: Any, collation: str) -> None:
    """'Ann' and 'ann' are two persons, whatever a collation says: what one keeps must not depend on the other."""
    from pyspark.sql import functions as F

    rows = [("Ann", 1), ("Ann", 2), ("ann", 1), ("ann", 2)]
    df = spark.createDataFrame(rows, "who string, i int").select(F.expr(f"who{collation}").alias("who"), "i")
    assert capped(df, "i", 2, kind="known", domain=3, person="who").tolist() == [0, 2, 2]
    direct = unnoise.spark.profile(df, "i", epsilon=80, model="direct", person="who", max_contributions=2)
    assert direct.curve.numbers[:3].tolist() == [2, 2, 0]
    themselves = unnoise.spark.profile(df, "who", epsilon=40, model="direct", person="who")
    assert themselves.curve.numbers[:3].tolist() == [0, 2, 0]


@pytest.mark.parametrize("model", ["sketch", "direct"])
def test_neighbours_look_alike(spark: Any, model: str, tmp_path: Path) -> None:
    """No rows, one person, one more: the same public parameters, promise and sizes; nothing fails."""
    schema = "who string, i string, g string"
    rows = [("ann", "x", "a"), ("ann", "y", "b"), ("bob", "x", "a")]
    seen = set()
    for part in ([], rows[:2], rows):
        df = spark.createDataFrame(part, schema)
        options: dict[str, Any] = {"epsilon": 1, "person": "who", "max_contributions": 2}
        grouped = {"by": "g", "groups": ["a", "b"]}
        if model == "sketch":
            one, several = (unnoise.spark.sketch(df, "i", cells=64, **options, **more) for more in ({}, grouped))
            one.save(tmp_path / "one")
            facts = [(s.layout, s.guarantee, s.labels.column) for s in (one, *several.values())]
            facts.append((tmp_path / "one").stat().st_size)
        else:
            one, several = (unnoise.spark.profile(df, "i", model=model, **options, **more) for more in ({}, grouped))
            facts = [(p.curve.cells, p.guarantee, p.curve.noise) for p in (one, *several.values())]
        seen.add(repr(facts))
    assert len(seen) == 1


@pytest.mark.slow
def test_code_and_commands_of_the_pages_run(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/spark.md and docs/scale.md as they stand, but for places and sizes."""
    pages = {name: (DOCS / name).read_text() for name in ("spark.md", "scale.md")}
    for day in ("01", "02"):
        rows = spark.range(900).selectExpr("id % 300 as user_id", "id % 97 as item")
        rows.write.parquet(str(tmp_path / f"views/day=2024-05-{day}"))
    moved = {"s3://lake": str(tmp_path), "/sketches": str(tmp_path), "2**24": "2**12", "10**10": "10**4"}
    for old, new in moved.items():
        pages = {name: text.replace(old, new) for name, text in pages.items()}
    names = {"un": unnoise, "spark": spark, "events": spark.read.parquet(str(tmp_path / "views/day=2024-05-01"))}
    for name, text in pages.items():
        for code in re.findall(r"```python\n(.*?)```", text, re.S):
            for day in ("2024-05-01", "2024-05-02") if "sys.argv" in code else ("",):
                monkeypatch.setattr(sys, "argv", ["daily.py", day])
                exec(compile(code, name, "exec"), names)
    lines = [line for block in re.findall(r"```sh\n(.*?)```", pages["spark.md"], re.S) for line in block.split("\n")]
    merged = [line for line in lines if line.startswith("unnoise ")]
    assert len(merged) == 3
    for line in merged:
        run_line(line, tmp_path)
