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
from pathlib import Path
from typing import Any

from ..errors import FormatError, IncompatibleError, InputError
from ..noise import tidy
from .tasks import Task

__all__ = ["WORK", "answer", "verify"]

AT_LEAST = (1, 2, 3, 5, 10)
EXACTLY = tuple(range(1, 11))


def verify(path: str, task: dict[str, Any]) -> dict[str, Any]:
    """Return power and noises of a report that its task can take; raise what is wrong with it."""
    from ..answers.check import ALARM, check_claim
    from ..noisy import NoisyCounts
    from ..sketches.format.filecells import sum_of
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
    """Return reach and frequency of the reports' sum."""
    from ..answers.reconstruct import reconstruct

    wanted = Task.from_dict(task)
    if not paths:
        raise InputError("there must be at least one report to answer from, got none")
    profile = reconstruct(merged(paths, wanted))
    return {
        "reach": _number(profile.distinct),
        "total": _number(profile.total),
        "at_least": [{"count": k, **_number(profile.at_least(k))} for k in AT_LEAST],
        "exactly": [{"count": t, **_number(profile.exactly(t))} for t in EXACTLY],
        "reports": len(paths),
        "power": tidy(profile.noisy.noise.power),
        "method": profile.method,
        "warnings": [str(one) for one in _warnings(profile)],
    }


def merged(paths: Sequence[str], task: Task) -> Any:
    """Add reports up, block by block, into noisy counts."""
    from ..noise import DiscreteLaplace
    from ..noisy import NoisyCounts
    from ..sketches.format.filecells import sum_of
    from ..sketches.format.read import read_sketch

    reports = [read_sketch(path) for path in paths]
    for stored in reports:
        _require_layout(task, stored.layout)
    total = sum_of([stored.cells for stored in reports])
    power = sum((stored.noise.power for stored in reports), Fraction(0))
    return NoisyCounts(total, DiscreteLaplace(task.noise.epsilon, power), task.layout)


def _number(estimate: Any) -> dict[str, Any]:
    """An estimate as plain values, with how far it may be trusted."""
    values = {"value": estimate.value, "low": estimate.low, "high": estimate.high}
    plain: dict[str, Any] = {name: float(v) if math.isfinite(v) else None for name, v in values.items()}
    plain["marked"] = bool(getattr(estimate, "marked", False))
    return plain


def _warnings(profile: Any) -> list[Any]:
    return list(getattr(profile, "warnings", ()))


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


WORK: dict[str, Callable[..., dict[str, Any]]] = {"answer": answer, "report": report, "save": save, "verify": verify}
