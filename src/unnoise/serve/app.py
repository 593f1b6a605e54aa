"""The collector over HTTP: addresses, who may ask, and what they get (``/openapi.json`` says it in full)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anyio import to_thread
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from .access import Visitor, allowed, split
from .guard import COOKIE, HANDLERS, Guard, Problem
from .openapi import document
from .service import PATIENCE, Service, sites_in
from .store import Store
from .sums import sums_of
from .tasks import Task

if TYPE_CHECKING:
    from ..protocols.shares.server import Side
    from .client import Client

__all__ = ["DIGEST", "make_app", "service_of", "task_of", "visitor_of"]

DIGEST = re.compile(r"[0-9a-f]{64}")


def make_app(
    store: Store, *, secure: bool = False, side: Side | None = None, servers: tuple[Client, Client] | None = None
) -> Starlette:
    """Return the application of a collector; of a server of shares where ``side`` is given.

    secure : browsers reach it by https; servers : the two servers that a collector may ask for sums
    """
    from .pages import page_routes
    from .shares import Shelf, share_routes

    service = Service(store, servers)
    static = Mount("/static", StaticFiles(packages=[("unnoise.serve", "static")]))
    routes = [*_routes(), *page_routes(), static] if side is None else [*_common_routes(), *share_routes()]

    @asynccontextmanager
    async def life(_: Starlette) -> AsyncIterator[None]:
        await service.start()
        try:
            yield
        finally:
            await service.stop()

    app = Starlette(
        routes=routes, exception_handlers=HANDLERS, lifespan=life,
        middleware=[Middleware(Guard, metrics=service.metrics, secure=secure)],
    )  # fmt: skip
    app.state.service, app.state.secure = service, secure
    if side is not None:
        app.state.shelf = Shelf(store.folder, side)
    return app


def _common_routes() -> list[BaseRoute]:
    return [
        Route("/healthz", _health), Route("/readyz", _ready), Route("/metrics", _metrics),
        Route("/openapi.json", _openapi), Route("/tokens", _tokens), Route("/tokens", _make_token, methods=["POST"]),
        Route("/tokens/{token}", _revoke, methods=["DELETE"]), Route("/audit", _audit),
    ]  # fmt: skip


def _routes() -> list[BaseRoute]:
    return [
        *_common_routes(),
        Route("/tasks", _tasks), Route("/tasks/{task}", _task), Route("/tasks/{task}", _make_task, methods=["PUT"]),
        Route("/tasks/{task}/reports", _reports),
        Route("/tasks/{task}/reports/{digest}", _take, methods=["PUT"]),
        Route("/tasks/{task}/reports/{digest}", _download),
        Route("/tasks/{task}/answer", _answer), Route("/tasks/{task}/over-time", _over_time),
        Route("/tasks/{task}/overlap", _overlap),
        Route("/tasks/{task}/sketch", _sketch),
        Route("/tasks/{task}/sums", _sums), Route("/tasks/{task}/sums", _ask_for_sum, methods=["POST"]),
        Route("/events", _events),
    ]  # fmt: skip


def service_of(request: Request) -> Service:
    """The service behind the application."""
    service: Service = request.app.state.service
    return service


async def visitor_of(request: Request, act: str) -> Visitor:
    """Return who is asking, if they may; a token in the header, or the page's cookie."""
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "bearer":
        token = request.cookies.get(COOKIE, "")
    visitor = await to_thread.run_sync(service_of(request).store.visitor, token.strip()) if token else None
    if visitor is None:
        raise Problem(
            401, "who are you?", "a valid token must be sent: Authorization: Bearer …", WWW_Authenticate="Bearer"
        )
    if not allowed(visitor, act):
        raise Problem(403, "not yours", f"a token of role {visitor.role} may not {act}")
    return visitor


async def task_of(request: Request) -> Task:
    """The task that the address names."""
    return await to_thread.run_sync(service_of(request).store.task, request.path_params["task"])


async def _json(request: Request, most: int = 1 << 16) -> dict[str, Any]:
    """Read a small JSON object."""
    import json

    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > most:
            raise Problem(413, "too long", f"the body must be at most {most:,} bytes")
    try:
        values = json.loads(body)
    except (ValueError, RecursionError):
        raise Problem(400, "not JSON", "the body must be JSON") from None
    if not isinstance(values, dict):
        raise Problem(400, "not an object", f"the body must be a JSON object, got {type(values).__name__}")
    return values


# ── for machines that watch ───────────────────────────────────────────────────────────────────────────────────────


async def _health(_: Request) -> Response:
    return JSONResponse({"status": "alive"})


async def _ready(request: Request) -> Response:
    if await to_thread.run_sync(service_of(request).store.ready):
        return JSONResponse({"status": "ready"})
    raise Problem(503, "not ready", "the database or the data folder cannot be reached")


async def _metrics(request: Request) -> Response:
    await visitor_of(request, "see answers")
    return Response(service_of(request).metrics.text(), media_type="text/plain; version=0.0.4")


async def _openapi(request: Request) -> Response:
    return JSONResponse(document(shares=hasattr(request.app.state, "shelf")))


# ── tasks ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _tasks(request: Request) -> Response:
    await visitor_of(request, "see tasks")
    found = await to_thread.run_sync(service_of(request).store.tasks)
    return JSONResponse({"tasks": [_described(task) for task in found]})


async def _task(request: Request) -> Response:
    await visitor_of(request, "see tasks")
    return JSONResponse(_described(await task_of(request)))


def _described(task: Task) -> dict[str, Any]:
    return {**task.to_dict(), "digest": task.digest}


async def _make_task(request: Request) -> Response:
    visitor = await visitor_of(request, "make tasks")
    values = await _json(request)
    name = request.path_params["task"]
    if values.setdefault("id", name) != name:
        raise Problem(400, "two names", f"the address says {name!r:.80}, the body {values['id']!r:.80}")
    try:
        task = Task.from_dict(values)
    except TypeError as error:
        raise Problem(400, "bad request", f"a task must have values of the right type: {error}") from None
    fresh = await to_thread.run_sync(service_of(request).store.make_task, task, visitor)
    await service_of(request).tell()
    return JSONResponse(_described(task), 201 if fresh else 200)


# ── reports ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def _reports(request: Request) -> Response:
    visitor = await visitor_of(request, "see tasks")
    task = await task_of(request)
    rows = await service_of(request).reports(task, request.query_params.getlist("period"), visitor)
    mine = [row for row in rows if visitor.role != "site" or row["site"] == visitor.site]
    return JSONResponse({"reports": mine})


async def _take(request: Request) -> Response:
    visitor = await visitor_of(request, "send")
    task = await task_of(request)
    digest = request.path_params["digest"]
    if not DIGEST.fullmatch(digest):
        raise Problem(400, "no digest", "the address must end in the SHA-256 of the file, 64 hexadecimal digits")
    period = task.check_period(request.query_params.get("period", "once"))
    fresh, row = await service_of(request).take(
        visitor, task, period, digest, request.stream(),
        encoding=request.headers.get("content-encoding", "identity"), length=request.headers.get("content-length"),
    )  # fmt: skip
    return JSONResponse(row, 201 if fresh else 200)


async def _download(request: Request) -> Response:
    await visitor_of(request, "see answers")
    store = service_of(request).store
    row = await to_thread.run_sync(store.report, request.path_params["digest"])
    if row is None or row["task"] != request.path_params["task"] or not store.path(row["digest"]).is_file():
        raise KeyError("there is no such report")
    return FileResponse(store.path(row["digest"]), media_type="application/vnd.apache.arrow.file")


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def _answer(request: Request) -> Response:
    await visitor_of(request, "see answers")
    task, service = await task_of(request), service_of(request)
    rows = await service.choose(task, request.query_params.getlist("site"), request.query_params.getlist("period"))
    job = await service.answer("answer", task, rows)
    return _job(job, rows)


def _job(job: dict[str, Any], rows: list[dict[str, Any]]) -> Response:
    """Answer with the result of a job, or say that it is under way."""
    about = {
        "state": job["state"], "sites": sorted(sites_in(rows)),
        "periods": sorted({row["period"] for row in rows}),
    }  # fmt: skip
    if job["state"] == "done":
        return JSONResponse({**about, **job["answer"]})
    if job["state"] == "failed":
        raise Problem(422, "no answer", str(job["answer"]["error"]))
    return JSONResponse(about, 202, {"Retry-After": "1"})


async def _over_time(request: Request) -> Response:
    """Every period, and all periods up to it; where an answer is missing, why. 202 until all are there."""
    await visitor_of(request, "see answers")
    task, service = await task_of(request), service_of(request)
    rows = await service.choose(task, request.query_params.getlist("site"), [])
    end = asyncio.get_running_loop().time() + PATIENCE
    points = []
    for period in sorted({row["period"] for row in rows}):
        alone = [row for row in rows if row["period"] == period]
        so_far = [row for row in rows if row["period"] <= period]
        point: dict[str, Any] = {"period": period, "sites": len(sites_in(alone)), "missing": {}}
        for name, chosen in (("alone", alone), ("so_far", so_far)):
            point[name] = None
            if len(sites_in(chosen)) < task.min_sites:
                point["missing"][name] = "too few sites"
                continue
            job = await service.answer("answer", task, chosen, end - asyncio.get_running_loop().time())
            if job["state"] == "failed":
                point["missing"][name] = str(job["answer"]["error"])
            elif job["state"] != "done":
                return _job(job, rows)
            else:
                point[name] = job["answer"]
        points.append(point)
    return JSONResponse({"points": points})


async def _overlap(request: Request) -> Response:
    """How many are at both of two sites, for every two of them, in one period or all."""
    await visitor_of(request, "see answers")
    task, service = await task_of(request), service_of(request)
    rows = await service.choose(task, request.query_params.getlist("site"), request.query_params.getlist("period"))
    return _job(await service.answer("overlap", task, rows), rows)


async def _sketch(request: Request) -> Response:
    """The merged sketch as a file: a function of what was sent, so it costs nothing."""
    await visitor_of(request, "see answers")
    task, service = await task_of(request), service_of(request)
    rows = await service.choose(task, request.query_params.getlist("site"), request.query_params.getlist("period"))
    path = await service.merged_file(task, rows)
    return _Once(path, media_type="application/vnd.apache.arrow.file", filename=f"{task.id}.sketch")


async def _sums(request: Request) -> Response:
    await visitor_of(request, "see answers")
    task = await task_of(request)
    return JSONResponse({"sums": await to_thread.run_sync(sums_of, service_of(request).store, task.id)})


async def _ask_for_sum(request: Request) -> Response:
    """Ask the two servers for one more sum: one more release."""
    visitor = await visitor_of(request, "make tasks")
    task, values = await task_of(request), await _json(request)
    sites, period = values.get("sites", []), values.get("period", "once")
    if not isinstance(sites, list) or not isinstance(period, str):
        raise Problem(400, "bad request", 'the body must be {"period": …, "sites": [names]}')
    row = await service_of(request).ask_for_sum(task, task.check_period(period), [str(site) for site in sites], visitor)
    return JSONResponse(row, 201)


class _Once(FileResponse):
    """A file that is sent once and removed, though nobody should be there any more to read it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            Path(self.path).unlink(missing_ok=True)


# ── tokens, audit, news ───────────────────────────────────────────────────────────────────────────────────────────


async def _tokens(request: Request) -> Response:
    await visitor_of(request, "make tokens")
    return JSONResponse({"tokens": await to_thread.run_sync(service_of(request).store.tokens)})


async def _make_token(request: Request) -> Response:
    visitor = await visitor_of(request, "make tokens")
    values = await _json(request)
    token = await to_thread.run_sync(
        service_of(request).store.make_token, str(values.get("role")), values.get("site"), visitor
    )
    return JSONResponse({"token": token, "note": "shown once: only a hash of it is kept"}, 201)


async def _revoke(request: Request) -> Response:
    visitor, name = await visitor_of(request, "make tokens"), request.path_params["token"]
    parts = split(name)
    await to_thread.run_sync(service_of(request).store.revoke_token, parts[0] if parts else name, visitor)
    return Response(status_code=204)


async def _audit(request: Request) -> Response:
    await visitor_of(request, "see audit")
    return JSONResponse({"entries": await to_thread.run_sync(service_of(request).store.audit)})


async def _events(request: Request) -> Response:
    """News as they come (server-sent events): a number that grows."""
    visitor = await visitor_of(request, "see answers")
    service = service_of(request)

    async def stream() -> AsyncIterator[bytes]:
        last = -1
        while not await request.is_disconnected():
            version = await service.wait(15.0, last)
            if not await to_thread.run_sync(service.store.token_is_valid, visitor.token):
                return
            yield b": still here\n\n" if version == last else f"data: {version}\n\n".encode()
            last = version

    return StreamingResponse(stream(), media_type="text/event-stream")
