"""What the collector's workers make of reports."""

from __future__ import annotations

import numpy as np
import pytest

import unnoise as un
from unnoise.answers.sites import Gathered
from unnoise.serve.tasks import Task
from unnoise.serve.worker import answer, merged

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
