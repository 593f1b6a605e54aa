"""What the collector does, apart from HTTP: reports taken in, questions answered as jobs, news passed on."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from anyio import to_thread

from ..guard import new_identity
from .access import Visitor
from .metrics import Metrics
from .problems import Problem
from .store import Report, Store, now
from .tasks import Task
from .uploads import receive
from .worker import WorkerError, Workers

__all__ = ["Service"]

LOG = logging.getLogger("unnoise.serve")

VERIFYING_SECONDS = 60.0
"""A report of 2^28 cells is verified in about a second."""

ANSWERING_SECONDS = 600.0


class Service:
    """A collector at work."""

    def __init__(self, store: Store) -> None:
        self.store, self.metrics = store, Metrics()
        self._verifying = Workers(2, seconds=VERIFYING_SECONDS)
        self._answering = Workers(1, seconds=ANSWERING_SECONDS, memory=4 << 30)
        self._news = asyncio.Condition()
        self._version = 0
        self._asked = asyncio.Event()
        self._clerk: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Tidy up after a server that was killed, and begin with the jobs it left."""
        await to_thread.run_sync(self.store.sweep)
        await to_thread.run_sync(self.store.take_up_jobs)
        self._asked.set()
        self._clerk = asyncio.create_task(self._work())

    async def stop(self) -> None:
        """End the workers; jobs not done are taken up at the next start."""
        if self._clerk is not None:
            self._clerk.cancel()
        await self._verifying.close()
        await self._answering.close()
        self.store.close()

    # ── reports ───────────────────────────────────────────────────────────────────────────────────────────────

    async def take(
        self,
        visitor: Visitor,
        task: Task,
        period: str,
        digest: str,
        body: AsyncIterator[bytes],
        *,
        encoding: str,
        length: str | None,
    ) -> tuple[bool, Report]:
        """Take a report in; return whether it is new, and its row."""
        assert visitor.site is not None
        site = visitor.site
        if task.way != "sealed":
            raise Problem(
                409, "shares wanted", f"task {task.id} takes shares of cells at its two servers, not sketches"
            )
        if not await to_thread.run_sync(self.store.require_new, task, site, period, digest):
            return False, await self._row(digest)
        upload = await receive(
            body, self.store.incoming, encoding=encoding, length=length, most=task.largest, digest=digest
        )
        try:
            facts = await self._verify(upload, task)
            kept = await to_thread.run_sync(
                lambda: self.store.keep_report(
                    task, site, period, digest, upload, power=facts["power"], noises=facts["noises"], who=visitor
                )
            )
        finally:
            upload.unlink(missing_ok=True)
        self.metrics.received.labels(task=task.id).inc()
        await self.tell()
        return kept, await self._row(digest)

    async def _verify(self, upload: Path, task: Task) -> dict[str, Any]:
        try:
            with self.metrics.verifying.time():
                facts = await self._verifying.do("verify", path=str(upload), task=task.to_dict())
        except WorkerError as error:
            self.metrics.refused.inc()
            raise Problem(422, "the file could not be verified", str(error)) from None
        if "error" in facts:
            self.metrics.refused.inc()
            raise Problem(422, "refused", str(facts["error"]).replace(str(upload), "the report"))
        return facts

    async def _row(self, digest: str) -> Report:
        row = await to_thread.run_sync(self.store.report, digest)
        assert row is not None
        return row

    # ── answers ───────────────────────────────────────────────────────────────────────────────────────────────

    async def choose(self, task: Task, sites: Sequence[str], periods: Sequence[str]) -> list[Report]:
        """Return the reports of these sites and periods (all where none are named); too few sites are refused."""
        rows = await to_thread.run_sync(self.store.reports, task.id)
        rows = [
            row for row in rows if (not sites or row["site"] in sites) and (not periods or row["period"] in periods)
        ]
        found = {row["site"] for row in rows}
        if len(found) < task.min_sites:
            raise Problem(
                409, "too few sites", f"task {task.id} is answered from {task.min_sites} sites on, got {len(found)}"
            )
        return rows

    async def ask(self, work: str, task: Task, rows: Sequence[Report]) -> dict[str, Any]:
        """Return the job of a question about these reports: the same reports, the same job."""
        digests = sorted(row["digest"] for row in rows)
        key = hashlib.sha256(json.dumps([work, task.digest, digests]).encode()).hexdigest()
        question = {"work": work, "reports": digests}
        job = await to_thread.run_sync(self.store.ask, key, task.id, question)
        if job["state"] == "waiting":
            self._asked.set()
        return job

    async def answer(self, work: str, task: Task, rows: Sequence[Report], patience: float = 60.0) -> dict[str, Any]:
        """Wait for the job of a question."""
        job = await self.ask(work, task, rows)
        end = asyncio.get_running_loop().time() + patience
        while job["state"] not in ("done", "failed") and asyncio.get_running_loop().time() < end:
            await self.wait(0.5)
            found = await to_thread.run_sync(self.store.job, job["id"])
            job = found or job
        return job

    async def merged_file(self, task: Task, rows: Sequence[Report]) -> Path:
        """Write the merged sketch of these reports into a new file, which the caller removes."""
        target = self.store.incoming / new_identity().hex()
        paths = [str(self.store.path(row["digest"])) for row in rows]
        reply = await self._answering.do("save", paths=paths, task=task.to_dict(), target=str(target))
        if "error" in reply:
            raise Problem(422, "no sketch", str(reply["error"]))
        return target

    async def _work(self) -> None:
        """Do the waiting jobs one after another, for ever."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            try:
                while job := await to_thread.run_sync(self.store.next_job):
                    await self._do(job)
            except Exception as error:
                LOG.error("jobs stopped: %s", type(error).__name__, exc_info=error)
                await asyncio.sleep(1)
                self._asked.set()

    async def _do(self, job: dict[str, Any]) -> None:
        question = job["question"]
        task = await to_thread.run_sync(self.store.task, job["task"])
        rows = {row["digest"]: row for row in await to_thread.run_sync(self.store.reports, job["task"])}
        chosen = [rows[digest] for digest in question["reports"]]
        try:
            with self.metrics.answering.time():
                reply = await self._answering.do(
                    question["work"], paths=[str(self.store.path(row["digest"])) for row in chosen],
                    task=task.to_dict(), labels=[f"{row['site']} {row['period']}" for row in chosen],
                )  # fmt: skip
        except WorkerError as error:
            reply = {"error": str(error)}
        await to_thread.run_sync(self.store.finish_job, job["id"], {**reply, "at": now()})
        await self.tell()

    # ── news ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def tell(self) -> None:
        """Wake whoever waits for news."""
        async with self._news:
            self._version += 1
            self._news.notify_all()

    async def wait(self, seconds: float) -> int:
        """Wait for news, for so long at most; return a number that grows with every piece of news."""
        async with self._news:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), seconds)
            return self._version
