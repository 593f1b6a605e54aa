"""What the collector's workers make of reports."""

from __future__ import annotations

import numpy as np
import pytest

import unnoise as un
from unnoise.answers.sites import Gathered
from unnoise.serve.tasks import Task
from unnoise.serve.worker import answer, merged, overlap

CELLS = 2**13
TASK = Task.from_dict({"id": "reach", "epsilon": "1", "cells": CELLS, "item_types": ["int"], "max_contributions": 1})
PERSONS = np.arange(6000)


def reported(folder, name, table):
    """A report in which every person counts once."""
    sketch = un.Sketch.hashed(CELLS, epsilon=1, item_types=["int"], max_contributions=1)
    sketch.update(table, person="person")
    sketch.save(folder / name)
    return str(folder / name)


def test_a_limit_of_persons_is_none_of_items(tmp_path):
    """Items are taken for counted once only where they were the persons."""
    paths = [reported(tmp_path, "items", {"item": PERSONS // 3, "person": PERSONS}),
             reported(tmp_path, "persons", {"person": PERSONS})]  # fmt: skip
    gathered = Gathered.read([(path, merged([path], TASK)) for path in paths])
    assert [one.once for one in gathered.coded] == [False, True]


@pytest.mark.statistical
def test_items_of_many_persons_are_reached_as_they_are(tmp_path):
    """Six sites, every item by three persons at each of them (six standard errors)."""
    tables = [{"item": PERSONS // 3 + 200 * site, "person": PERSONS} for site in range(6)]
    reach = answer([reported(tmp_path, str(i), table) for i, table in enumerate(tables)], TASK.to_dict())["reach"]
    assert abs(reach["value"] - 3000) <= 1.53 * (reach["high"] - reach["low"])


# ── answers of one page do not contradict each other ──────────────────────────────────────────────────────────────


PLAIN = Task.from_dict({"id": "days", "epsilon": "1", "cells": CELLS, "item_types": ["int"], "every": "day"}).to_dict()


@pytest.fixture
def days(tmp_path):
    """Paths and sites of three days of two sites."""
    paths, labels = [], []
    for number in range(6):
        sketch = un.Sketch.hashed(CELLS, epsilon=1, item_types=["int"])
        sketch.update(np.random.default_rng(number).integers(0, 1500, 1200))
        sketch.save(tmp_path / str(number))
        paths.append(str(tmp_path / str(number)))
        labels.append("ab"[number % 2])
    return paths, labels


def test_the_diagonal_is_the_reach_of_one_site(days):
    paths, labels = days
    found = overlap(paths, PLAIN, labels)
    for i, name in enumerate(found["names"]):
        own = [path for path, label in zip(paths, labels) if label == name]
        assert found["matrix"][i][i] == answer(own, PLAIN)["reach"]
    common, parts = found["matrix"][0][1], [found["matrix"][i][i] for i in (0, 1)]
    for end in ("value", "low", "high"):
        assert all(common[end] <= part[end] for part in parts), "no more at both than at one"


def test_counts_add_up_to_the_reach_however_it_was_found(days):
    found = answer(days[0], PLAIN)
    exactly = {n["count"]: n for n in found["exactly"]}
    more = {n["count"]: n for n in found["at_least"]}
    assert exactly[1]["value"] + more[2]["value"] == pytest.approx(found["reach"]["value"])
    for t, n in exactly.items():
        assert n["low"] <= n["value"] <= n["high"]
        assert n["high"] <= more.get(t, found["reach"])["high"] + 1e-9


def test_a_pair_that_nothing_is_known_of_leaves_the_others(days, monkeypatch):
    from unnoise.answers import sites
    from unnoise.errors import OverloadError

    def full(*_: object) -> None:
        raise OverloadError("items and noise must leave some cells empty")

    monkeypatch.setattr(sites, "in_common", full)
    found = overlap(*days[:1], PLAIN, days[1])
    assert found["matrix"][0][1] == found["matrix"][1][0]
    assert (found["matrix"][0][1]["value"], found["matrix"][0][1]["mark"]) == (None, "too noisy to tell")
    assert found["matrix"][0][0]["value"] > 0


@pytest.mark.statistical
def test_what_two_sites_have_in_common_of_three_reports_each(tmp_path):
    """Of two sums of three reports nothing was known but where the noise had misled it (six standard errors)."""
    rng, cells = np.random.default_rng(11), 2**17
    task = {**PLAIN, "cells": cells}
    paths, seen = [], {"a": set(), "b": set()}
    for number in range(6):
        rows = rng.integers(0, 200_000, 20_000)
        sketch = un.Sketch.hashed(cells, epsilon=1, item_types=["int"])
        sketch.update(rows)
        sketch.save(tmp_path / str(number))
        paths.append(str(tmp_path / str(number)))
        seen["ab"[number % 2]] |= set(rows.tolist())
    common = overlap(paths, task, list("ababab"))["matrix"][0][1]
    truth = len(seen["a"] & seen["b"])
    print(f"{truth} in common, got {common}")
    assert abs(common["value"] - truth) <= 1.53 * (common["high"] - common["low"])
    assert common["high"] - common["low"] < 2 * truth, "four times that from the sums"


def test_a_page_gives_no_range_of_a_reach_that_it_does_not_show(tmp_path):
    """Empty sites: the reach from all beside each other is surer than the sum's, whose range is not its own."""
    paths = []
    for number in range(3):
        un.Sketch.hashed(2**12, epsilon=1, item_types=["int"]).save(tmp_path / str(number))
        paths.append(str(tmp_path / str(number)))
    task = Task.from_dict({**PLAIN, "cells": 2**12})
    told, alone = answer(paths, task.to_dict()), un.reconstruct(merged(paths, task))
    assert alone.distinct.marked
    if told["reach"]["high"] == alone.distinct.high:
        assert told["warnings"] == [one.text for one in alone.notices]
    else:
        assert not any("too noisy" in text for text in told["warnings"])
    assert told["reach"]["mark"] == "too noisy to tell", "it is marked by itself"
    one = answer(paths[:1], task.to_dict())
    assert any("too noisy" in text for text in one["warnings"]), "the control: of one report there is no other reach"
