"""What workers do: verify a report, and answer from reports.

Verifying: the file must load whole, have the layout of its task and one noise of its ε at least, and its negative cells
must look like that noise (the free check, :mod:`unnoise.answers.check`).

Answering: the cells of the reports asked for are added up block by block out of their files, and the engine answers
from the sum; powers add.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import FormatError, IncompatibleError, InputError
from ..noise import tidy
from .tasks import Task

if TYPE_CHECKING:
    from ..answers.estimate import Estimate
    from ..answers.profile import Profile
    from ..noisy import NoisyCounts

__all__ = ["WORK", "answer", "verify"]

AT_LEAST = (1, 2, 3, 5, 10)
EXACTLY = tuple(range(1, 11))

MOST_BESIDE = 31
"""Most reports that are looked at beside each other."""


def verify(path: str, task: dict[str, Any]) -> dict[str, Any]:
    """Return power and noises of a report that its task can take; raise what is wrong with it."""
    from ..answers.check import ALARM, check_claim
    from ..noisy import NoisyCounts
    from ..sketches.cells import sum_of
    from ..sketches.format.read import read_sketch

    wanted = Task.from_dict(task)
    stored = read_sketch(path)
    _require_layout(wanted, stored.layout)
    if stored.noise.epsilon != wanted.noise.epsilon:
        raise IncompatibleError("ε per occurrence", tidy(wanted.noise.epsilon), tidy(stored.noise.epsilon))
    check = check_claim(NoisyCounts(sum_of([stored.cells]), stored.noise, stored.layout).profile())
    if check.available and check.p_value < ALARM:
        raise FormatError(f"its noise must be what it says, got cells that do not look like it: {check.verdict}")
    return {
        "power": str(stored.noise.power), "noises": sorted(one.hex() for one in stored.identities),
        "calls": stored.account.calls,
    }  # fmt: skip


def _require_layout(task: Task, layout: Any) -> None:
    """Item types may still be unknown in a report without rows."""
    if layout.item_types is None:
        layout = replace(layout, item_types=task.layout.item_types)
    task.layout.require_equal(layout)


def answer(paths: Sequence[str], task: dict[str, Any], labels: Sequence[str] = ()) -> dict[str, Any]:
    """Return reach and frequency of the reports: reach from all beside each other where that is surer than the sum."""
    wanted = Task.from_dict(task)
    if not paths:
        raise InputError("there must be at least one report to answer from, got none")
    profile, beside = _answered(paths, wanted)
    surest = min((profile.distinct, *beside), key=lambda one: (one.marked, one.high - one.low))
    reach = _number(surest)
    return {
        "reach": reach,
        "total": _number(profile.total),
        "at_least": [
            {"count": k, **(reach if k == 1 else _within(_number(profile.at_least(k)), reach))} for k in AT_LEAST
        ],
        "exactly": [{"count": t, **_number(profile.exactly(t))} for t in EXACTLY],
        "reports": len(paths),
        "power": tidy(profile.noisy.noise.power),
        "method": profile.method,
        "warnings": [notice.text for notice in profile.notices],
    }


def _answered(paths: Sequence[str], task: Task) -> tuple[Profile, list[Estimate]]:
    """Read every report once; return what their sum says, and the reach they show beside each other where they can."""
    from ..answers import sites
    from ..answers.reconstruct import reconstruct

    if not 2 <= len(paths) <= MOST_BESIDE or task.kind != "hashed" or task.levels > 1:
        return reconstruct(merged(paths, task)), []
    gathered = sites.Gathered.read((path, merged([path], task)) for path in paths)
    return gathered.summed, [sites.union(gathered)]


def _within(number: dict[str, Any], reach: dict[str, Any]) -> dict[str, Any]:
    """A number of items that occur more often, at most the reach: answers of one page never contradict each other."""
    limits = {name: reach[name] for name in ("value", "low", "high")}
    return {
        **number,
        **{name: value if limits[name] is None or value is None else min(value, limits[name])
           for name, value in ((name, number[name]) for name in limits)},
    }  # fmt: skip


def overlap(paths: Sequence[str], task: dict[str, Any], labels: Sequence[str] = ()) -> dict[str, Any]:
    """Return how many items are at both of every two sites; on the diagonal, the reach of one."""
    from ..answers import sites
    from ..answers.reconstruct import reconstruct

    wanted = Task.from_dict(task)
    names = sorted(set(labels))
    if len(names) > MOST_BESIDE:
        raise InputError(f"overlaps are for up to {MOST_BESIDE} sites at a time, got {len(names)}: choose some")
    whole = {name: merged([p for p, label in zip(paths, labels) if label == name], wanted) for name in names}
    gathered = sites.Gathered.read(whole.items(), add=False)
    alone = [_number(reconstruct(noisy).distinct) for noisy in whole.values()]
    matrix: list[list[dict[str, Any]]] = [[alone[i]] * len(names) for i in range(len(names))]
    for i in range(len(names)):
        for j in range(i):
            matrix[i][j] = matrix[j][i] = _number(sites.overlap(gathered.only([j, i])))
    return {"names": names, "matrix": matrix}


def merged(paths: Sequence[str], task: Task) -> NoisyCounts:
    """Add reports up, block by block, into noisy counts."""
    from ..layout import Account
    from ..noise import DiscreteLaplace
    from ..noisy import NoisyCounts
    from ..sketches.cells import sum_of
    from ..sketches.format.read import read_sketch

    reports = [read_sketch(path) for path in paths]
    for stored in reports:
        _require_layout(task, stored.layout)
    total = sum_of([stored.cells for stored in reports])
    power = sum((stored.noise.power for stored in reports), Fraction(0))
    account = reduce(Account.plus, (stored.account for stored in reports))
    return NoisyCounts(total, DiscreteLaplace(task.noise.epsilon, power), task.layout, account.max_count(task.layout))


def _number(estimate: Any) -> dict[str, Any]:
    """An estimate as plain values, with how far it may be trusted: marked where it says nothing, and in words."""
    from ..answers.estimate import TOO_NOISY
    from ..answers.questions import mark

    values = {"value": estimate.value, "low": estimate.low, "high": estimate.high}
    plain: dict[str, Any] = {name: float(v) if math.isfinite(v) else None for name, v in values.items()}
    said = mark(estimate)
    return {**plain, "marked": said == TOO_NOISY, "mark": said}


def report(paths: Sequence[str], task: dict[str, Any], labels: Sequence[str] = ()) -> dict[str, Any]:
    """Return the page of the reports' sum, for people."""
    from ..answers.reconstruct import reconstruct
    from ..answers.report import report as page
    from ..layout import Account, guarantee

    wanted = Task.from_dict(task)
    noisy = merged(paths, wanted)
    account = Account(calls=len(paths) if wanted.max_contributions else 0)
    words = guarantee(noisy.noise, wanted.layout, account, len(paths))
    return {"html": page(reconstruct(noisy), title=wanted.title or wanted.id, guarantee=words)}


def save(paths: Sequence[str], task: dict[str, Any], target: str) -> dict[str, Any]:
    """Write the merged sketch of the reports into a file."""
    from ..sketches.sketch import Sketch

    Task.from_dict(task)
    first, *others = [Sketch.load(path) for path in paths]
    for other in others:
        first.merge(other)
    first.save(target)
    return {"path": target, "bytes": os.stat(target).st_size, "name": Path(target).name}


def ready() -> dict[str, Any]:
    """Import what answering needs, so that the first answer comes as soon as the others."""
    from ..answers import reconstruct, sites  # noqa: F401

    return {}


WORK: dict[str, Callable[..., dict[str, Any]]] = {
    "answer": answer, "overlap": overlap, "ready": ready, "report": report, "save": save, "verify": verify,
}  # fmt: skip
