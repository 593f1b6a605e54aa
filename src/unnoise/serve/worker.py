"""Work that must not hurt the server: a process of its own with limits on memory and time.

The worker reads one JSON request a line and writes one JSON reply a line. Whatever happens to it — a hostile file, no
memory, no end — the server kills it, answers with an error, and starts another.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from ..errors import UnnoiseError

__all__ = ["WorkerError", "Workers"]

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


def main() -> None:
    """Answer requests until the server is gone; what answers need is loaded first, so that nobody waits for it."""
    from ..answers import sites  # noqa: F401
    from .work import WORK

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
        replies.write(json.dumps(reply).encode() + b"\n")
        replies.flush()


if __name__ == "__main__":
    main()
