"""One of the two servers over HTTP.

A server of this kind holds shares of cells (:mod:`unnoise.protocols.shares`): each alone is uniform bits. It enforces
the rules of the protocol by itself, whatever the collector asks; here is only the way in and out. The site that a
share names must be the site of the token that sends it.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from ..errors import InputError
from ..protocols.shares import Server, Task
from ..protocols.shares.server import SIDES, Side, side_of
from ..protocols.shares.task import unpack
from .app import DIGEST, service_of, visitor_of
from .guard import Problem

__all__ = ["Shelf", "share_routes"]

MESSAGE = "application/octet-stream"


class Shelf:
    """All tasks of one side, each a server in a directory of its own."""

    def __init__(self, folder: Path, side: Side) -> None:
        if side not in SIDES:
            raise InputError(f"side must be {' or '.join(SIDES)}, got {side!r:.80}")
        self.folder, self.side = folder / "shares", side
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(side_of(task) not in (side, None) for task in self.folder.iterdir()):
            raise InputError(f"the data folder must be of one side for ever, got --side {side} and shares of the other")
        self._lock, self._open = threading.Lock(), dict[str, Server]()

    def make(self, message: bytes) -> tuple[str, bool]:
        """Take a task in; return its id and whether it is new. The same again changes nothing."""
        task = Task.from_bytes(message)
        with self._lock:
            fresh = not (self.folder / task.id / "server").is_file()
            if task.id not in self._open:
                self._open[task.id] = Server.create(self.folder / task.id, task, self.side)
        return task.id, fresh

    def server(self, task: str) -> Server:
        """Return the server of a task, as it was when it was last heard of."""
        with self._lock:
            if task not in self._open:
                if not DIGEST.fullmatch(task) or not (self.folder / task / "server").is_file():
                    raise KeyError(
                        f"there is no task {task!r:.80} here: the collector's administrator makes a period known to "
                        f"both servers (unnoise task shares)"
                    )
                self._open[task] = Server.open(self.folder / task)
            return self._open[task]


def share_routes() -> list[BaseRoute]:
    """The addresses of a share server."""
    return [
        Route("/shares", _make, methods=["POST"]), Route("/shares/{task}", _told),
        Route("/shares/{task}/reports", _receive, methods=["POST"]),
        Route("/shares/{task}/sites", _sites), Route("/shares/{task}/sums", _sums),
        Route("/shares/{task}/offer", _offer),
        Route("/shares/{task}/agree", _agree, methods=["POST"]),
        Route("/shares/{task}/answer", _answer, methods=["POST"]),
    ]  # fmt: skip


async def _body(request: Request, most: int) -> bytes:
    """Read a body of limited length."""
    length = request.headers.get("content-length", "0")
    body = bytearray()
    if not length.isdigit() or int(length) > most:
        raise Problem(413, "too long", f"the body must be at most {most:,} bytes, got {length:.20}")
    async for piece in request.stream():
        body += piece
        if len(body) > most:
            raise Problem(413, "too long", f"the body must be at most {most:,} bytes, got more")
    return bytes(body)


def _shelf(request: Request) -> Shelf:
    shelf: Shelf = request.app.state.shelf
    return shelf


async def _server(request: Request) -> Server:
    return await to_thread.run_sync(_shelf(request).server, request.path_params["task"])


async def _make(request: Request) -> Response:
    visitor = await visitor_of(request, "add up")
    name, fresh = await to_thread.run_sync(_shelf(request).make, await _body(request, 1 << 16))
    if fresh:
        await to_thread.run_sync(service_of(request).store.note, visitor, "made share task", name)
    return JSONResponse({"task": name, "side": _shelf(request).side}, 201 if fresh else 200)


async def _told(request: Request) -> Response:
    """Say which side this is, so that a site need not send a share to find out."""
    await visitor_of(request, "send")
    return JSONResponse({"task": (await _server(request)).task.id, "side": _shelf(request).side})


async def _receive(request: Request) -> Response:
    visitor = await visitor_of(request, "send")
    server = await _server(request)
    message = await _body(request, 8 * server.task.layout.cells + (1 << 16))
    named = unpack(message, "share")[0].get("site")
    if named != visitor.site:
        raise Problem(403, "not yours", f"a share must name the site of its token, {visitor.site}, got {named!r:.80}")
    report, fresh = await to_thread.run_sync(server.take, message)
    if fresh:
        await to_thread.run_sync(service_of(request).store.note, visitor, "sent share", f"{server.task.epoch} {report}")
        await service_of(request).tell()
    return JSONResponse({"report": report, "fresh": fresh}, 201 if fresh else 200)


async def _sites(request: Request) -> Response:
    await visitor_of(request, "add up")
    return JSONResponse({"sites": await to_thread.run_sync((await _server(request)).sites)})


async def _sums(request: Request) -> Response:
    """Which sums were given: a collector that was set back to an older state asks for them again, at no cost."""
    await visitor_of(request, "add up")
    return JSONResponse({"sums": await to_thread.run_sync((await _server(request)).given)})


async def _offer(request: Request) -> Response:
    await visitor_of(request, "add up")
    return Response(await to_thread.run_sync((await _server(request)).offer), media_type=MESSAGE)


async def _agree(request: Request) -> Response:
    await visitor_of(request, "add up")
    server = await _server(request)
    try:
        wanted = json.loads(await _body(request, 1 << 22))
        reports = [str(one) for one in wanted["reports"]]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise Problem(400, "bad request", 'the body must be {"reports": [ids]}') from None
    return Response(await to_thread.run_sync(server.agree, reports), media_type=MESSAGE)


async def _answer(request: Request) -> Response:
    visitor = await visitor_of(request, "add up")
    server = await _server(request)
    answer = await to_thread.run_sync(server.answer, await _body(request, 1 << 24))
    await to_thread.run_sync(service_of(request).store.note, visitor, "answered a sum", server.task.epoch)
    return Response(answer, media_type=MESSAGE)
