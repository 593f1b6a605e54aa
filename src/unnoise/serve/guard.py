"""What every answer over HTTP gets: headers that keep browsers from doing harm, a line in log and metrics, plain
errors.

Forms of the page are protected by a cookie that other sites cannot send (SameSite=Strict) and by the Origin header.

Numbers for Prometheus depend on nothing that a report holds. Errors are problem+json (RFC 9457): what must hold, what
was given, how to fix it; never a traceback.
"""

from __future__ import annotations

import errno
import json
import logging
import re
import time
from typing import Any
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as NoneFreeError
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import UnnoiseError
from .store import ConflictError
from .worker import WorkerError

__all__ = ["COOKIE", "HANDLERS", "Guard", "Metrics", "Problem", "problem"]


class Metrics:
    """Counters of one server, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        make: dict[str, Any] = {"registry": self.registry, "namespace": "unnoise"}
        self.requests = Counter("requests", "Requests answered.", ["method", "status"], **make)
        self.received = Counter("reports_received", "Reports taken in.", ["task"], **make)
        self.refused = Counter("reports_refused", "Reports that did not pass verification.", **make)
        self.verifying = Histogram("verifying_seconds", "Time to verify a report.", **make)
        self.answering = Histogram("answering_seconds", "Time to answer a question.", **make)

    def text(self) -> bytes:
        """The numbers in Prometheus' form."""
        return bytes(generate_latest(self.registry))


LOG = logging.getLogger("unnoise.serve")


class Problem(Exception):
    """An answer that is not the one asked for."""

    def __init__(self, status: int, title: str, detail: str, **headers: str) -> None:
        super().__init__(detail)
        self.status, self.title, self.detail = status, title, detail
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def problem(status: int, title: str, detail: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """Return a problem+json response."""
    body = {"type": "about:blank", "title": title, "status": status, "detail": " ".join(detail.split())[:2000]}
    return JSONResponse(body, status, headers, media_type="application/problem+json")


async def _problem(_: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return problem(error.status, error.title, error.detail, error.headers)


async def _http(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return problem(error.status_code, error.detail, error.detail, dict(error.headers or {}))


async def _ours(_: Request, error: Exception) -> Response:
    if isinstance(error, ConflictError):
        return problem(409, "conflict", str(error))
    if isinstance(error, WorkerError):
        return problem(422, "the file could not be verified", str(error))
    return problem(400, "bad request", str(error))


async def _missing(_: Request, error: Exception) -> Response:
    return problem(404, "not found", str(error.args[0]) if error.args else "not found")


async def _out_of_reach(request: Request, error: Exception) -> Response:
    """The tables are locked, or their server is gone, or all connections are in use: for a moment, one hopes."""
    LOG.error("tables out of reach in %s: %s", _place(request.scope), type(error).__name__)
    return problem(503, "not ready", "the tables cannot be reached just now: ask again", {"Retry-After": "5"})


async def _broken_off(_: Request, __: Exception) -> Response:
    """Nobody reads this any more; log and metrics should not call it a fault of ours."""
    return problem(400, "broken off", "the body must come whole, got a part of it")


async def _of_the_disk(request: Request, error: Exception) -> Response:
    """A full disk is for whoever runs the server to mend, and other requests need not wait for it."""
    assert isinstance(error, OSError)
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return await _fault(request, error)
    LOG.error("no room on the disk in %s", _place(request.scope))
    return problem(507, "no room", "the disk of the server must have room, got a full one: nothing was kept")


async def _fault(request: Request, error: Exception) -> Response:
    LOG.error("fault %s in %s", type(error).__name__, _place(request.scope), exc_info=error)
    return problem(500, "a fault of unnoise itself", "the log of the server has more")


HANDLERS: dict[Any, Any] = {
    Problem: _problem, HTTPException: _http, UnnoiseError: _ours, KeyError: _missing, OperationalError: _out_of_reach,
    NoneFreeError: _out_of_reach, ClientDisconnect: _broken_off, OSError: _of_the_disk, Exception: _fault,
}  # fmt: skip


COOKIE = "unnoise_token"
METHODS = ("DELETE", "GET", "HEAD", "POST", "PUT")
"""What is counted under its name: others are made up by whoever asks, without end."""

SECRET = re.compile(r"(un_[0-9a-f]{16})_[^/]*")
ACCESS = logging.getLogger("unnoise.serve.access")

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}


class Guard:
    """Middleware around everything."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics, secure: bool) -> None:
        self.app, self.metrics, self.secure = app, metrics, secure

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500

        async def marked(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if self.secure:
                    headers.setdefault("Strict-Transport-Security", "max-age=31536000")
            await send(message)

        try:
            if _from_elsewhere(scope):
                await problem(403, "another site", "forms are taken from this server's own pages only")(
                    scope, receive, marked
                )
            elif "\0" in scope["path"]:  # no table of Postgres can even be asked for it
                await problem(404, "not found", "a name must hold no zero byte")(scope, receive, marked)
            else:
                await self.app(scope, receive, marked)
        finally:
            method = scope["method"] if scope["method"] in METHODS else "other"
            self.metrics.requests.labels(method=method, status=str(status)).inc()
            ACCESS.info(_line(scope, status, time.perf_counter() - began))


def _from_elsewhere(scope: Scope) -> bool:
    """Whether a browser on another site's page sends this."""
    headers = Headers(scope=scope)
    origin = headers.get("origin")
    if scope["method"] in ("GET", "HEAD") or origin is None:
        return False
    return urlsplit(origin).netloc != headers.get("host")


def _place(scope: Scope) -> str:
    """The path of a request, for logs; a token that somebody put there without its secret."""
    return SECRET.sub(r"\1_…", scope.get("path", ""))[:200]


def _line(scope: Scope, status: int, seconds: float) -> str:
    """One JSON object a request: no header, no query, no body."""
    values: dict[str, Any] = {
        "method": scope["method"][:10], "path": _place(scope), "status": status, "ms": round(1000 * seconds, 1),
    }  # fmt: skip
    return json.dumps(values)
