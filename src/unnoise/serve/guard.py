"""What every answer gets: headers that keep browsers from doing harm, and a line in the log and the metrics.

Forms of the page are protected by a cookie that other sites cannot send (SameSite=Strict) and by the Origin header.
"""

from __future__ import annotations

import json
import logging
import time
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .metrics import Metrics
from .problems import problem

__all__ = ["COOKIE", "Guard"]

COOKIE = "unnoise_token"
LOG = logging.getLogger("unnoise.serve.access")

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
            else:
                await self.app(scope, receive, marked)
        finally:
            self.metrics.requests.labels(method=scope["method"][:10], status=str(status)).inc()
            LOG.info(_line(scope, status, time.perf_counter() - began))


def _from_elsewhere(scope: Scope) -> bool:
    """Whether a browser on another site's page sends this."""
    headers = Headers(scope=scope)
    origin = headers.get("origin")
    if scope["method"] in ("GET", "HEAD") or origin is None:
        return False
    return urlsplit(origin).netloc != headers.get("host")


def _line(scope: Scope, status: int, seconds: float) -> str:
    """One JSON object a request: no header, no query, no body."""
    values: dict[str, Any] = {
        "method": scope["method"], "path": scope["path"][:200], "status": status, "ms": round(1000 * seconds, 1),
    }  # fmt: skip
    return json.dumps(values)
