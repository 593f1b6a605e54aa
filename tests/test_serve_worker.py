"""Workers of the collector: a request is answered though workers are killed, and refused when it kills them itself."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys

import pytest

import unnoise as un
from unnoise.serve.access import Visitor
from unnoise.serve.service import Service
from unnoise.serve.store import Store
from unnoise.serve.tasks import Task
from unnoise.serve.worker import WorkerError, Workers

pytestmark = pytest.mark.slow

CELLS = 2**18


@pytest.fixture
def request_of_a_report(tmp_path):
    sketch = un.Sketch.hashed(CELLS, epsilon=1, item_types=["int"])
    sketch.update(range(1000))
    sketch.save(tmp_path / "a.sketch")
    task = Task.from_dict({"id": "reach", "epsilon": "1", "cells": CELLS, "item_types": ["int"]})
    return {"path": str(tmp_path / "a.sketch"), "task": task.to_dict()}


def test_a_killed_worker_is_replaced(request_of_a_report):
    """Killed while idle, and killed at work: the request goes to another."""

    async def run() -> None:
        workers = Workers(1, seconds=600)
        try:
            for killed_after in (0.0, 0.001, 0.05):
                asking = asyncio.create_task(workers.do("verify", **request_of_a_report))
                if workers._all:
                    await asyncio.sleep(killed_after)
                    newest = max(workers._all, key=lambda process: process.pid)
                    if newest.returncode is None:
                        os.kill(newest.pid, signal.SIGKILL)
                reply = await asking
                assert reply["power"] == "1"
        finally:
            await workers.close()

    asyncio.run(run())


def test_a_request_that_kills_its_workers_is_refused(request_of_a_report):
    async def run() -> None:
        workers = Workers(1, seconds=600, memory=1 << 10)
        try:
            with pytest.raises(WorkerError, match="more memory"):
                await workers.do("verify", **request_of_a_report)
        finally:
            await workers.close()

    asyncio.run(run())


def test_a_fault_is_called_one_and_costs_no_worker(request_of_a_report):
    """It was taken for a lack of memory, and three workers died of it."""

    async def run() -> None:
        workers = Workers(1, seconds=600)
        try:
            reply = await workers.do("no such work")
            assert reply == {"error": "a fault of unnoise itself, KeyError: the collector's log says where"}
            assert (await workers.do("verify", **request_of_a_report))["power"] == "1"
            assert len(workers._all) == 1
        finally:
            await workers.close()

    asyncio.run(run())


def test_a_request_without_end_is_given_up(request_of_a_report):
    async def run() -> None:
        workers = Workers(1, seconds=0.01)
        try:
            with pytest.raises(WorkerError, match=r"more than 0\.01 seconds"):
                await workers.do("verify", **request_of_a_report)
        finally:
            await workers.close()

    asyncio.run(run())


def test_a_job_left_half_way_is_taken_up_again(request_of_a_report, tmp_path, monkeypatch):
    """The tables are out of reach when an answer is to be kept: the job is done again, not left running for ever."""
    store, task = Store(tmp_path / "data"), Task.from_dict(request_of_a_report["task"])
    store.make_task(task, "me")
    upload = store.incoming / "upload"
    shutil.copy(request_of_a_report["path"], upload)
    digest = hashlib.sha256(upload.read_bytes()).hexdigest()
    store.keep_report(task, "berlin", "once", digest, upload, power="1", noises=["00"], who=Visitor("t", "site", "x"))
    finish, missed = store.finish_job, []

    def out_of_reach(*parts) -> None:
        if not missed:
            missed.append(parts)
            raise OSError("the tables are out of reach")
        finish(*parts)

    monkeypatch.setattr(store, "finish_job", out_of_reach)

    async def run() -> dict[str, object]:
        service = Service(store)
        await service.start()
        try:
            return await service.answer("answer", task, await service.choose(task, [], []))
        finally:
            await service.stop()

    job = asyncio.run(run())
    assert missed, "the first answer was lost"
    assert job["state"] == "done"
    assert job["tries"] == 2


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are those of Linux")
def test_a_report_is_verified_in_less_memory_than_it_weighs(tmp_path):
    """Half of it here; the largest report that a task may have weighs 2 GiB, and a worker has one."""
    cells = 2**23
    sketch = un.Sketch.hashed(cells, epsilon=1, item_types=["int"])
    sketch.update(range(1000))
    sketch.save(tmp_path / "large.sketch")
    task = Task(id="large", epsilon="1", cells=cells, item_types=("int",)).to_dict()
    line = json.dumps({"work": "verify", "path": str(tmp_path / "large.sketch"), "task": task})
    made = subprocess.run(
        [sys.executable, "-m", "unnoise.serve.worker", str(4 * cells)], input=f"{line}\n", text=True,
        capture_output=True, check=False,
    )  # fmt: skip
    assert json.loads(made.stdout)["power"] == "1", made.stderr[-2000:]
