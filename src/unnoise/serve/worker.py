"""Work that must not hurt the server: a process of its own with limits on memory and time.

The worker reads one JSON request a line and writes one JSON reply a line. Whatever happens to it — a hostile file, no
memory, no end — the server kills it, answers with an error, and starts another.

Its work is to verify a report, and to answer from reports. Verifying: the file must load whole, have the layout of its
task and one noise of its ε at least, and its negative cells must look like that noise (the free check,
:mod:`unnoise.answers.check`).

Answering: the cells of the reports asked for are added up block by block out of their files, and the engine answers
from the sum; powers add.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import resource
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import FormatError, IncompatibleError, InputError, OverloadError, UnnoiseError
from ..noise import tidy
from .tasks import Task

if TYPE_CHECKING:
    from ..answers.estimate import Estimate
    from ..answers.profile import Profile
    from ..answers.sites import Gathered
    from ..arrays import Int64
    from ..estimators.side_by_side import Together
    from ..layout import Layout
    from ..noisy import NoisyCounts
    from ..sketches.cells import FileCells
    from ..sketches.format import Stored

__all__ = ["WORK", "WorkerError", "Workers", "answer", "verify"]

AT_LEAST = (1, 2, 3, 5, 10)
EXACTLY = tuple(range(1, 11))

OF_REACH = ("too-noisy", "model")
"""Notices about the reach: a sum's are none of a reach that was found otherwise, and is marked by itself."""

MOST_BESIDE = 31
"""Most reports that are looked at beside each other."""


MOST_COMMON = 16
"""Most reports of two sites from which their overlap is told: a fit for every pair, and all of them in minutes."""


def verify(path: str, task: dict[str, Any]) -> dict[str, Any]:
    """Return power and noises of a report that its task can take; raise what is wrong with it."""
    from ..answers.check import ALARM, check_claim
    from ..noisy import NoisyProfile
    from ..sketches.format import read_sketch

    wanted = Task.from_dict(task)
    stored = read_sketch(path, name="the report")
    _require_layout(wanted, stored)
    if stored.noise.epsilon != wanted.noise.epsilon:
        raise IncompatibleError("ε per occurrence", tidy(wanted.noise.epsilon), tidy(stored.noise.epsilon))
    check = check_claim(NoisyProfile(*_tallied(stored.cells), stored.noise, stored.layout))
    if check.available and check.p_value < ALARM:
        raise FormatError(f"its noise must be what it says, got cells that do not look like it: {check.verdict}")
    return {
        "power": str(stored.noise.power), "noises": sorted(one.hex() for one in stored.identities),
        "calls": stored.account.calls,
    }  # fmt: skip


def _tallied(cells: Int64 | FileCells) -> tuple[Int64, Int64]:
    """Tally cells piece by piece: the largest report of a task is verified in as little memory as a small one."""
    import numpy as np

    from ..noisy import combine, tally
    from ..sketches.cells import PIECE, add_up

    memory, found = np.empty(PIECE, dtype=np.int64), list[tuple["Int64", "Int64"]]()
    for start in range(0, cells.size, PIECE):
        found.append(tally(add_up([cells], slice(start, min(start + PIECE, cells.size)), memory, memory)))
        found = [combine(found)] if len(found) > 64 else found
    return combine(found)


def _require_layout(task: Task, stored: Stored) -> Layout:
    """Return the layout that a file of the task must have; item types may still be unknown in a report without rows."""
    layout, expected = stored.layout, task.layout_of(len(stored.labels.report_ids))
    if layout.item_types is None:
        layout = replace(layout, item_types=expected.item_types)
    expected.require_equal(layout)
    return expected


def answer(paths: Sequence[str], task: dict[str, Any], labels: Sequence[str] = ()) -> dict[str, Any]:
    """Return reach and frequency of the reports: reach from all beside each other where that is surer than the sum."""
    wanted = Task.from_dict(task)
    if not paths:
        raise InputError("there must be at least one report to answer from, got none")
    profile, surest = _answered(paths, wanted)
    reach = _number(surest)
    more = {k: _within(_number(profile.at_least(k)), reach) for k in range(2, EXACTLY[-1] + 2)}
    exactly = {t: _within(_number(profile.exactly(t)), more.get(t, reach)) for t in EXACTLY}
    exactly[1] = _around(exactly[1], reach["value"] - more[2]["value"])  # however the reach was found
    return {
        "reach": reach,
        "total": _number(profile.total),
        "at_least": [{"count": k, **more.get(k, reach)} for k in AT_LEAST],
        "exactly": [{"count": t, **exactly[t]} for t in EXACTLY],
        "reports": len(paths),
        "power": tidy(profile.noisy.noise.power),
        "method": profile.method,
        "warnings": [one.text for one in profile.notices if one.code not in OF_REACH or surest == profile.distinct],
    }


def _answered(paths: Sequence[str], task: Task) -> tuple[Profile, Estimate]:
    """Read every report once; return what their sum says, and the surest reach: the sum's, or that of all beside each
    other where they can stand so."""
    from ..answers import sites
    from ..answers.reconstruct import reconstruct

    if not 2 <= len(paths) <= MOST_BESIDE or task.kind != "hashed" or task.levels > 1:
        profile = reconstruct(merged(paths, task))
        return profile, profile.distinct
    gathered = sites.Gathered.read((path, merged([path], task)) for path in paths)
    both = gathered.summed.distinct, sites.union(gathered)
    return gathered.summed, min(both, key=lambda one: (one.marked, one.high - one.low))


def _within(number: dict[str, Any], reach: dict[str, Any]) -> dict[str, Any]:
    """A number of some of the items, at most all of them: answers of one page never contradict each other."""
    limits = {name: reach[name] for name in ("value", "low", "high")}
    return {
        **number,
        **{name: value if limits[name] is None or value is None else min(value, limits[name])
           for name, value in ((name, number[name]) for name in limits)},
    }  # fmt: skip


def _around(number: dict[str, Any], value: float) -> dict[str, Any]:
    """Another value, which the interval holds."""
    low, high = number["low"], number["high"]
    return {**number, "value": value, "low": min(low, value), "high": high if high is None else max(high, value)}


def overlap(paths: Sequence[str], task: dict[str, Any], labels: Sequence[str] = ()) -> dict[str, Any]:
    """Return how many items are at both of every two sites; on the diagonal, the reach of one, as ``answer`` has it."""
    from ..answers import sites

    wanted = Task.from_dict(task)
    names = sorted(set(labels))
    if len(names) > MOST_BESIDE:
        raise InputError(f"overlaps are for up to {MOST_BESIDE} sites at a time, got {len(names)}: choose some")
    sent = [tuple(i for i, label in enumerate(labels) if label == name) for name in names]
    gathered = sites.Gathered.read(((path, merged([path], wanted)) for path in paths), add=False)
    alone = [_number(_answered([paths[i] for i in own], wanted)[1]) for own in sent]
    matrix: list[list[dict[str, Any]]] = [[alone[i]] * len(names) for i in range(len(names))]
    fitted = lru_cache(maxsize=4 * MOST_BESIDE)(gathered.fitted)
    for i in range(len(names)):
        for j in range(i):
            common = _common(gathered, fitted, sent[j], sent[i])
            matrix[i][j] = matrix[j][i] = _within(_within(common, alone[i]), alone[j])
    return {"names": names, "matrix": matrix}


def _common(
    gathered: Gathered, fitted: Callable[[tuple[int, ...]], Together], left: tuple[int, ...], right: tuple[int, ...]
) -> dict[str, Any]:
    """Items at both of two sites, from all reports of both beside each other.

    Nothing is known of them where noise fills the cells, and of too many reports nothing is said: of two sums of them
    hardly more is known, and where it seems otherwise that is the luck of the noise.
    """
    from ..answers import sites
    from ..answers.estimate import TOO_NOISY

    with suppress(OverloadError):
        if len(left) == len(right) == 1:
            return _number(sites.overlap(gathered.only([*left, *right])))
        if len(left) + len(right) <= MOST_COMMON:
            return _number(sites.in_common(fitted(left), fitted(right), fitted(left + right)))
    return {"value": None, "low": 0.0, "high": None, "marked": True, "mark": TOO_NOISY}


def merged(paths: Sequence[str], task: Task) -> NoisyCounts:
    """Add reports up, block by block, into noisy counts."""
    from ..layout import Account
    from ..noise import DiscreteLaplace
    from ..noisy import NoisyCounts
    from ..sketches.cells import sum_of
    from ..sketches.format import read_sketch

    reports = [read_sketch(path, name=_called(path)) for path in paths]
    layout, *_ = (_require_layout(task, stored) for stored in reports)
    total = sum_of([stored.cells for stored in reports])
    power = sum((stored.noise.power for stored in reports), Fraction(0))
    account = reduce(Account.plus, (stored.account for stored in reports))
    return NoisyCounts(total, DiscreteLaplace(task.noise.epsilon, power), layout, account.max_count(layout))


def _called(path: str) -> str:
    """A report by its digest: where the server keeps it is nothing for viewers."""
    return f"report {Path(path).stem[:12]}…"


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
    from ..sketches.format import read_sketch
    from ..sketches.sketch import Sketch

    Task.from_dict(task)
    first, *others = [Sketch.from_public(read_sketch(path, name=_called(path))) for path in paths]
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


MEMORY = 1 << 30
"""Bytes of address space that a request may take beyond what the worker needs to stand."""

ROOM_FOR_LINES = 1 << 26
"""Longest line between server and worker."""


ATTEMPTS = 3
"""Workers that must die of a request before it is refused."""


class _Gone(Exception):
    """A worker died before it had answered."""


class WorkerError(UnnoiseError):
    """The worker did not live to answer."""


class Workers:
    """A few workers, each with one request at a time.

    seconds : how long a request may take; memory : bytes a request may take
    """

    def __init__(self, number: int, *, seconds: float, memory: int = MEMORY) -> None:
        self.seconds, self.memory = seconds, memory
        self._free: asyncio.Queue[asyncio.subprocess.Process | None] = asyncio.Queue()
        for _ in range(number):
            self._free.put_nowait(None)
        self._all: set[asyncio.subprocess.Process] = set()

    async def do(self, work: str, **request: Any) -> dict[str, Any]:
        """Send a request and return the reply; raise :class:`WorkerError` where there is none.

        A worker may be killed by somebody else: a request is to blame when ATTEMPTS workers have died of it.
        """
        line = json.dumps({"work": work, **request}).encode() + b"\n"
        for _ in range(ATTEMPTS):
            with suppress(_Gone):
                return await self._ask(line)
        raise WorkerError("it took more memory than it may have, or took its process down")

    async def _ask(self, line: bytes) -> dict[str, Any]:
        """Let one worker answer."""
        async with self._worker() as process:
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.write(line)
                await process.stdin.drain()
                reply = await asyncio.wait_for(process.stdout.readline(), self.seconds)
            except TimeoutError:
                raise WorkerError(f"it took more than {self.seconds:g} seconds") from None
            except (BrokenPipeError, ConnectionError, ValueError):
                raise _Gone from None
            if not reply.endswith(b"\n"):
                raise _Gone
            return dict(json.loads(reply))

    @asynccontextmanager
    async def _worker(self) -> AsyncIterator[asyncio.subprocess.Process]:
        """Lend a worker; one that failed is killed and replaced when the next request comes."""
        process = await self._free.get()
        try:
            if process is None or process.returncode is not None:
                process = await self._start()
            yield process
        except BaseException:
            if process is not None and process.returncode is None:
                process.kill()
                await process.wait()
            process = None
            raise
        finally:
            self._free.put_nowait(process)

    async def _start(self) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "unnoise.serve.worker", str(self.memory),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=ROOM_FOR_LINES,
            env={**os.environ, "OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"},
        )  # fmt: skip
        self._all.add(process)
        return process

    async def close(self) -> None:
        """End all workers."""
        for process in self._all:
            if process.returncode is None:
                process.kill()
                await process.wait()


def _limit_memory(extra: int) -> None:
    """Let the address space grow by no more than ``extra`` bytes from here."""
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + extra,) * 2)


FAULTS = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
"""What is raised by mistakes in unnoise, and never by a lack of memory: no other worker would fare better."""


def main() -> None:
    """Answer requests until the server is gone; what answers need is loaded first, so that nobody waits for it."""
    from ..answers import sites  # noqa: F401

    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever else prints must not stand between the replies
    if sys.platform == "linux":
        _limit_memory(int(sys.argv[1]))
    for line in sys.stdin.buffer:
        request = json.loads(line)
        try:
            reply = WORK[request.pop("work")](**request)
        except (UnnoiseError, OSError) as error:
            reply = {"error": " ".join(str(error).split())}
        except MemoryError:
            os._exit(1)
        except FAULTS as error:
            traceback.print_exc()
            reply = {"error": f"a fault of unnoise itself, {type(error).__name__}: the collector's log says where"}
        replies.write(json.dumps(reply).encode() + b"\n")
        replies.flush()


if __name__ == "__main__":
    main()
