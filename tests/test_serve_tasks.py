"""Tasks: what a collector gathers."""

from __future__ import annotations

import pytest

from unnoise.errors import InputError
from unnoise.serve.tasks import Task, check_name


def test_a_task_goes_through_json_and_back():
    task = Task(id="t", epsilon="1/3", max_contributions=4, levels=16, item_types=("str", "int"), every="week")
    assert Task.from_dict(task.to_dict()) == task
    assert Task.from_dict(task.to_dict()).digest == task.digest
    assert task.noise.epsilon * 12 == 1
    assert Task(id="t", epsilon="1/2").digest != task.digest
    assert "occurrences" not in task.to_dict(), "tasks from before keep their digest"
    guess = Task(id="t", epsilon="1", cells=1024, way="two-servers", occurrences=100)
    assert Task.from_dict(guess.to_dict()) == guess
    assert guess.for_servers("once").layout_of(2).cells == 128  # 2·200/σ², σ² = 3.7 of two noises


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"id": "t"}, "epsilon"),
        ({"epsilon": "1"}, "id"),
        ({"id": "../t", "epsilon": "1"}, "id must be"),
        ({"id": "t", "epsilon": "-1"}, "epsilon must be"),
        ({"id": "t", "epsilon": "1", "cells": 3}, "power of two"),
        ({"id": "t", "epsilon": "1", "cells": 2**40}, "at most 2\\^28"),
        ({"id": "t", "epsilon": "1", "every": "hour"}, "every must be"),
        ({"id": "t", "epsilon": "1", "way": "trust me"}, "way must be"),
        ({"id": "t", "epsilon": "1", "min_sites": 0}, "min_sites must be"),
        ({"id": "t", "epsilon": "1", "min_sites": None}, "min_sites must be"),
        ({"id": "t", "epsilon": "1", "levels": None}, "levels must be"),
        ({"id": "t", "epsilon": "1", "levels": True}, "levels must be"),
        ({"id": "t", "epsilon": "1", "hash_seed": None}, "hash_seed must be"),
        ({"id": "t", "epsilon": "1", "way": "two-servers", "most_sums": None}, "most_sums must be"),
        ({"id": "t", "epsilon": "1", "colour": "red"}, "has no colour"),
        ({"id": "t", "epsilon": "1", "item_types": "str"}, "item_types must be"),
        ({"id": "t", "epsilon": "1", "title": "\x1b[2J"}, "printable"),
        ({"id": "t", "epsilon": "1", "max_contributions": True}, "max_contributions must be"),
        ({"id": "t", "epsilon": "1", "kind": "sampled"}, "kind must be"),
        ({"id": "t", "epsilon": "1", "occurrences": 100}, "unless the way is two-servers"),
        ({"id": "t", "epsilon": "1", "way": "two-servers", "kind": "known", "occurrences": 100}, "cells are hashed"),
        ({"id": "t", "epsilon": "1", "way": "two-servers", "occurrences": 0}, "occurrences must be"),
        ({"id": "t", "epsilon": "1", "way": "two-servers", "every": "day", "occurrences": 9}, "every is not once"),
        ({"id": "t", "epsilon": "1", "way": "two-servers", "most_sums": 1001}, "most_sums must be"),
    ],
)
def test_what_is_wrong_is_named(values, words):
    with pytest.raises(InputError, match=words):
        Task.from_dict(values)


@pytest.mark.parametrize(
    ("every", "good", "bad"),
    [
        ("once", "once", "2026"), ("day", "2026-02-28", "2026-02-30"), ("week", "2026-W53", "2025-W53"),
        ("month", "2026-12", "2026-13"),
    ],
)  # fmt: skip
def test_periods_are_of_the_calendar(every, good, bad):
    task = Task(id="t", epsilon="1", every=every)
    assert task.check_period(good) == good
    for wrong in (bad, "", good + "\n", good.replace("2", "２")):
        if wrong != good:
            with pytest.raises(InputError, match="period must be"):
                task.check_period(wrong)


def test_names_are_safe():
    assert check_name("site", "a.b-c_1") == "a.b-c_1"
    for wrong in ("", ".x", "a/b", "a b", "<b>", "x" * 65, None, "é"):
        with pytest.raises(InputError, match="site must be"):
            check_name("site", wrong)
