"""Errors as problem+json (RFC 9457): what must hold, what was given, how to fix it; never a traceback."""

from __future__ import annotations

import logging
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ..errors import UnnoiseError
from .store import ConflictError
from .worker import WorkerError

__all__ = ["HANDLERS", "Problem", "problem"]

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


async def _fault(request: Request, error: Exception) -> Response:
    LOG.error("fault %s in %s", type(error).__name__, request.scope.get("path", "")[:200], exc_info=error)
    return problem(500, "a fault of unnoise itself", "the log of the server has more")


HANDLERS: dict[Any, Any] = {
    Problem: _problem, HTTPException: _http, UnnoiseError: _ours, KeyError: _missing, Exception: _fault,
}  # fmt: skip
