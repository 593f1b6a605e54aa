"""What the collector does, apart from HTTP: reports taken in, questions answered as jobs, news passed on.

A report is taken in under limits: before it is read, hashed while it is written, whole on disk before it is looked at.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from anyio import to_thread

from ..errors import FormatError, IncompatibleError
from ..guard import new_identity
from .access import Visitor, allowed
from .client import Client, RefusedError, UnreachableError
from .guard import Metrics, Problem
from .store import Report, Store, now
from .sums import ask_servers, held, sums_of
from .tasks import Task
from .worker import WorkerError, Workers

__all__ = ["ENCODINGS", "PATIENCE", "Service", "receive", "sites_in"]

Asked = TypeVar("Asked")

PIECE = 1 << 18
"""Bytes of a body that are handled at a time, in a thread."""

UNPACKED = 1 << 20
"""Most bytes unpacked at a time."""


def _plain() -> tuple[Callable[[bytes, int], bytes], Callable[[], bytes]]:
    return (lambda data, most: data), (lambda: b"")


def _gzip() -> tuple[Callable[[bytes, int], bytes], Callable[[], bytes]]:
    """Return functions that unpack piece by piece, never more than asked for, and what is left over."""
    inflate = zlib.decompressobj(wbits=31)

    def unpack(data: bytes, most: int) -> bytes:
        return inflate.decompress(data, most)

    return unpack, lambda: inflate.unconsumed_tail


ENCODINGS: dict[str, Any] = {"identity": _plain, "gzip": _gzip}


async def receive(
    body: AsyncIterator[bytes], folder: Path, *, encoding: str, length: str | None, most: int, digest: str
) -> Path:
    """Write a body into a new file of the folder; refuse one that is too long or whose SHA-256 is another.

    encoding, length : the request's Content-Encoding and Content-Length; most : bytes that the file may have
    """
    if encoding not in ENCODINGS:
        raise Problem(
            415, "unknown encoding", f"Content-Encoding must be {' or '.join(ENCODINGS)}, got {encoding!r:.40}"
        )
    if length is not None and (not length.isdigit() or int(length) > most):
        raise Problem(413, "too long", f"a report of this task weighs at most {most:,} bytes, got {length:.20}")
    path = folder / new_identity().hex()
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        found = await _write(body, handle, encoding, most)
        await to_thread.run_sync(os.fsync, handle)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(handle)
    if found != digest:
        path.unlink(missing_ok=True)
        raise Problem(400, "another digest", f"the address names a file of SHA-256 {digest}, got one of {found}")
    return path


def _too_long(most: int) -> Problem:
    return Problem(413, "too long", f"a report of this task weighs at most {most:,} bytes, got more")


async def _write(body: AsyncIterator[bytes], handle: int, encoding: str, most: int) -> str:
    """Unpack and write, piece by piece and beside the event loop; return the SHA-256 of what was written."""
    sink, waiting, packed = _Sink(handle, encoding, most), bytearray(), 0
    async for data in body:
        waiting += data
        packed += len(data)
        if packed > most:
            raise _too_long(most)
        if len(waiting) >= PIECE:
            await to_thread.run_sync(sink.take, bytes(waiting))
            waiting.clear()
    await to_thread.run_sync(sink.take, bytes(waiting))
    return sink.digest.hexdigest()


class _Sink:
    """Unpacks, counts, hashes and writes what it is given."""

    def __init__(self, handle: int, encoding: str, most: int) -> None:
        self._unpack, self._rest = ENCODINGS[encoding]()
        self._handle, self._most, self._size = handle, most, 0
        self.digest = hashlib.sha256()

    def take(self, data: bytes) -> None:
        """Take packed bytes in; refuse what unpacks to more than may be."""
        while data:
            try:
                piece = self._unpack(data, UNPACKED)
            except zlib.error as error:
                raise Problem(400, "not gzip", f"the body must be gzip as its Content-Encoding says: {error}") from None
            data = self._rest()
            self._size += len(piece)
            if self._size > self._most:
                raise _too_long(self._most)
            self.digest.update(piece)
            view = memoryview(piece)
            while view:
                view = view[os.write(self._handle, view) :]


LOG = logging.getLogger("unnoise.serve")

VERIFYING_SECONDS = 60.0
"""A report of 2^28 cells is verified in a quarter of it."""

ANSWERING_SECONDS = 600.0

PATIENCE = 20.0
"""Seconds that a request waits for its job, well below the minute after which clients and proxies hang up."""


class Service:
    """A collector at work."""

    def __init__(self, store: Store, servers: tuple[Client, Client] | None = None) -> None:
        self.store, self.servers, self.metrics = store, servers, Metrics()
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
        except WorkerError:
            self.metrics.refused.inc()
            raise
        if "error" in facts:
            self.metrics.refused.inc()
            raise Problem(422, "refused", str(facts["error"]))
        return facts

    async def _row(self, digest: str) -> Report:
        row = await to_thread.run_sync(self.store.report, digest)
        assert row is not None
        return row

    # ── answers ───────────────────────────────────────────────────────────────────────────────────────────────

    async def choose(self, task: Task, sites: Sequence[str], periods: Sequence[str]) -> list[Report]:
        """Return the reports of these sites and periods (all where none are named); too few sites are refused."""
        if task.way == "two-servers":
            rows = _fitting(await to_thread.run_sync(sums_of, self.store, task.id), sites, periods)
        else:
            rows = await to_thread.run_sync(self.store.reports, task.id)
            if strangers := sorted(set(sites) - set(sites_in(rows))):
                raise Problem(409, "missing", f"task {task.id} must have a report of {', '.join(strangers)}, got none")
            rows = [
                row for row in rows if (not sites or row["site"] in sites) and (not periods or row["period"] in periods)
            ]
        found = sites_in(rows)
        if len(found) < task.min_sites:
            least = f"{task.min_sites} site{'' if task.min_sites == 1 else 's'}"
            raise Problem(409, "too few sites", f"task {task.id} is answered from {least} on, got {len(found)}")
        return rows

    async def reports(self, task: Task, periods: Sequence[str], who: Visitor) -> list[Report]:
        """Return the reports of a task; with two servers, those that both hold in these periods.

        A period becomes known to the two servers when somebody who makes tasks looks at it.
        """
        if task.way == "sealed":
            rows = await to_thread.run_sync(self.store.reports, task.id)
            return [row for row in rows if not periods or row["period"] in periods]
        wanted = list(periods) or (["once"] if task.every == "once" else [])
        rows = []
        for period in wanted:
            there = await self._of_servers(
                partial(held, self._two_servers(), task, period, tell=allowed(who, "make tasks"))
            )
            rows += [
                {"site": site, "period": period, "digest": report, "received": ""} for site, report in there.items()
            ]
        return rows

    async def ask_for_sum(self, task: Task, period: str, sites: Sequence[str], who: Visitor) -> dict[str, Any]:
        """Ask the two servers for a sum, which is one more release."""
        if task.way != "two-servers":
            raise Problem(
                409, "no need", f"task {task.id} holds sealed sketches: any subset is answered without asking"
            )
        servers = self._two_servers()
        row = await self._of_servers(partial(ask_servers, self.store, servers, task, period, sites, who))
        await self.tell()
        return row

    async def _of_servers(self, ask: Callable[[], Asked]) -> Asked:
        """Ask the two servers in a thread; that one is gone, refuses or lies is no fault of whoever asks us."""
        try:
            return await to_thread.run_sync(ask)
        except UnreachableError as error:
            raise Problem(503, "a server is gone", str(error), Retry_After="5") from None
        except (RefusedError, FormatError, IncompatibleError) as error:
            raise Problem(409, "the servers do not answer", str(error)) from None

    def _two_servers(self) -> tuple[Client, Client]:
        if self.servers is None:
            raise Problem(409, "no servers", "this collector was started without --servers, so it cannot ask for sums")
        return self.servers

    async def ask(self, work: str, task: Task, rows: Sequence[Report]) -> dict[str, Any]:
        """Return the job of a question about these reports: the same reports, the same job."""
        digests = sorted(row["digest"] for row in rows)
        key = hashlib.sha256(json.dumps([work, task.digest, digests]).encode()).hexdigest()
        question = {"work": work, "reports": digests}
        job = await to_thread.run_sync(self.store.ask, key, task.id, question)
        if job["state"] == "waiting":
            self._asked.set()
        return job

    async def answer(self, work: str, task: Task, rows: Sequence[Report], patience: float = PATIENCE) -> dict[str, Any]:
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
        """Do the waiting jobs one after another, for ever; what a stumble left half-way is taken up again."""
        with contextlib.suppress(WorkerError):
            await self._answering.do("ready")
        stumbled = False
        while True:
            await self._asked.wait()
            self._asked.clear()
            try:
                if stumbled:
                    await to_thread.run_sync(self.store.take_up_jobs)
                while job := await to_thread.run_sync(self.store.next_job):
                    await self._do(job)
                stumbled = False
            except Exception as error:
                LOG.error("jobs stopped: %s", type(error).__name__, exc_info=error)
                stumbled = True
                await asyncio.sleep(1)
                self._asked.set()

    async def _do(self, job: dict[str, Any]) -> None:
        question = job["question"]
        task = await to_thread.run_sync(self.store.task, job["task"])
        rows = await to_thread.run_sync(
            lambda: sums_of(self.store, task.id) if task.way == "two-servers" else self.store.reports(task.id)
        )
        by_digest = {row["digest"]: row for row in rows}
        chosen = [by_digest[digest] for digest in question["reports"]]
        try:
            with self.metrics.answering.time():
                reply = await self._answering.do(
                    question["work"], paths=[str(self.store.path(row["digest"])) for row in chosen],
                    task=task.to_dict(), labels=["+".join(sites_in([row])) for row in chosen],
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

    async def wait(self, seconds: float, known: int | None = None) -> int:
        """Wait for news, for so long at most; return a number that grows with every piece of news.

        known : the number that the caller has; where it is out of date, nobody waits
        """
        async with self._news:
            if known in (None, self._version):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), seconds)
            return self._version


def sites_in(rows: Sequence[Report]) -> set[str]:
    """The sites that are counted in these reports or sums."""
    return {site for row in rows for site in (row["sites"] if "sites" in row else [row["site"]])}


def _fitting(sums: list[Report], sites: Sequence[str], periods: Sequence[str]) -> list[Report]:
    """The sums of just these sites, or the largest of every period where none are named: one sum a period."""
    chosen: dict[str, Report] = {}
    for one in sums:
        fits = set(one["sites"]) == set(sites) if sites else True
        best = chosen.get(one["period"])
        if fits and (not periods or one["period"] in periods) and (not best or len(one["sites"]) > len(best["sites"])):
            chosen[one["period"]] = one
    if sites and not chosen:
        raise Problem(
            409, "not asked for", "with two servers only sums that were asked for are answered, and this one was not"
        )
    return list(chosen.values())
