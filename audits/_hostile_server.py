"""Targets: messages of the share protocol, and requests to the collector and to a server of shares."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import random
import shutil
import struct
import tempfile
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import _corpus
from _children import Target, Unnoticed
from _hostile_files import make_sketch, repaired
from _mutations import VALUES, damaged, hostile_json

from unnoise.protocols.shares import Server, Task, combine, task

GOOD = _corpus.messages()
GOOD_REPORT = (_corpus.CORPUS / "sketches" / "report.sketch").read_bytes()
TASK = Task.from_bytes(GOOD["task"])
START = struct.Struct("<4sBBI")
RENEWED = 300
"""Messages that one server takes before it is made anew: each may leave a report behind."""


# ── messages ──────────────────────────────────────────────────────────────────────────────────────────────────────


def make_message(rng: random.Random) -> tuple[str, bytes, bool]:
    """Return the kind of a message, its bytes, and whether its digest was made good again."""
    name = rng.choice(sorted(GOOD))
    data = GOOD[name]
    if rng.random() < 0.3:
        changed = damaged(rng, data, list(GOOD.values()))
        return (name, signed(changed[:-32]), True) if rng.random() < 0.6 else (name, changed, False)
    magic, version, kind, length = START.unpack_from(data)
    head, payload = data[START.size : START.size + length], data[START.size + length : -32]
    text = hostile_json(rng, json.loads(head))
    if rng.random() < 0.2:
        payload = damaged(rng, payload, [data]) if payload else rng.randbytes(8)
    said = rng.choice((len(text),) * 9 + (2**32 - 1,))
    return name, signed(START.pack(magic, version, kind, said) + text + payload), True


def signed(body: bytes) -> bytes:
    """Return the message of a body: with its digest."""
    return body + hashlib.sha256(body).digest()


class Place:
    """A server of each side in a folder, made anew now and then."""

    def __init__(self) -> None:
        self.used, self.folder, self.servers = RENEWED, "", {}  # type: ignore[var-annotated]

    def server(self, side: str) -> Server:
        """Return a server that holds both reports."""
        self.used += 1
        if self.used > RENEWED:
            for old in self.servers.values():
                old.shut()
            shutil.rmtree(self.folder, ignore_errors=True)
            self.used, self.folder = 0, tempfile.mkdtemp(prefix="unnoise-shares-")
            self.servers = {s: Server.create(Path(self.folder) / s, TASK, s) for s in ("seed", "difference")}
            for s, server in self.servers.items():
                for site in "ab":
                    server.receive(GOOD[f"share-{site}-{s}"])
        return self.servers[side]


PLACE = Place()


def use_message(given: tuple[str, bytes, bool]) -> None:
    """Give a message to whoever expects one of its kind."""
    name, data, good = given
    kind, _, side = name.partition("-")
    side = side.rpartition("-")[2]
    other = "difference" if side == "seed" else "seed"
    if kind == "task":
        _ = Task.from_bytes(data).id
    elif kind == "share":
        PLACE.server(side).receive(data)
    elif kind == "agreement":
        PLACE.server(other).answer(data)
    elif kind == "offer":
        from unnoise.protocols.shares.combining import common_reports

        common_reports(PLACE.server(other).offer(), data)
    else:
        answers = (data, GOOD["answer-difference"]) if side == "seed" else (GOOD["answer-seed"], data)
        _ = combine(TASK, *answers).release().profile()
    if not good and data != GOOD[name]:
        raise Unnoticed(kind)


def shares() -> Target:
    """Messages of the share protocol."""
    return Target(make_message, use_message, {"traceback": _bare_heads, "unnoticed": _no_digest})


def _bare_heads() -> None:
    task._read_head = json.loads


def _no_digest() -> None:
    """Find every digest equal to every other."""
    equal = type("Equal", (bytes,), {"__eq__": lambda *_: True, "__ne__": lambda *_: False, "__hash__": None})
    real = hashlib.sha256

    class Agreeing:
        """SHA-256 whose result agrees with anything."""

        def __init__(self, data: Any) -> None:
            self.digest, self.hexdigest = (lambda: equal(real(data).digest())), real(data).hexdigest

    task.hashlib = type("Hashes", (), {"sha256": Agreeing})


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Request:
    """A request to the collector ("") or to the server of one side."""

    where: str
    method: str
    path: str
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    who: str = "administrator"


ADDRESSES = (
    "/", "/healthz", "/readyz", "/metrics", "/openapi.json", "/tokens", "/tokens/x", "/audit", "/tasks", "/tasks/reach",
    "/tasks/reach/reports", "/tasks/reach/answer", "/tasks/reach/over-time", "/tasks/reach/overlap",
    "/tasks/reach/sketch", "/tasks/reach/sums", "/view/reach", "/login", "/logout", "/tasks/reach/answer.csv",
    "/tasks/reach/report.html", "/static/x", "/tasks/none", "/shares", "/shares/none/offer",
)  # fmt: skip
ODD = ("..", "%2e%2e%2f", "%00", "a" * 300, "reach", "é", "%ff", "x;y", "0" * 64, "'", '"', "<b>")
BODIES: tuple[Any, ...] = (
    {"role": "site", "site": "berlin"}, {"role": "viewer"}, {"period": "once", "sites": ["a"]}, {"reports": ["0" * 32]},
)  # fmt: skip
HEADERS = ("Authorization", "Cookie", "Origin", "Content-Length", "Host", "Range")
SAID = ("Bearer x", "Bearer", "unnoise_token=\x7f", "http://evil", "-1", "9" * 30, "null", "bytes=0-99999999999")


def make_request(rng: random.Random) -> Request:
    """Return a hostile request."""
    kind = rng.randrange(10)
    if kind < 3:
        return _report(rng)
    if kind < 5:
        name = f"t{rng.randrange(10**6)}"
        return Request("", "PUT", f"/tasks/{name}", hostile_json(rng, {**_corpus.task_values(), "id": name}))
    if kind == 5:
        path = rng.choice(("/tokens", "/tasks/reach/sums", "/login"))
        return Request("", "POST", path, hostile_json(rng, rng.choice(BODIES)))
    if kind < 8:
        side = rng.choice(("seed", "difference"))
        name, data, _ = make_message(rng)
        act = {"task": "", "share": f"/{TASK.id}/reports", "agreement": f"/{TASK.id}/answer"}.get(name.split("-")[0])
        if act is None:
            return Request(side, "POST", f"/shares/{TASK.id}/agree", hostile_json(rng, BODIES[3]))
        return Request(side, "POST", f"/shares{act}", data, who="site" if name.startswith("share") else "administrator")
    path = rng.choice(ADDRESSES)
    if rng.random() < 0.5:
        asked = rng.choice(("", "?site=" + rng.choice(ODD), "?period=x&period=y"))
        path = path.replace("reach", rng.choice(ODD)) + asked
    method = rng.choice(("GET", "GET", "POST", "PUT", "DELETE", "PATCH", "HEAD"))
    headers = {rng.choice(HEADERS): rng.choice(SAID)}
    return Request("", method, path, rng.randbytes(rng.choice((0, 0, 10, 5000))), headers if rng.random() < 0.5 else {})


def _report(rng: random.Random) -> Request:
    """Return a hostile report under its digest, packed in a hostile way."""
    fitting = GOOD_REPORT if rng.random() < 0.5 else repaired(damaged(rng, GOOD_REPORT, [GOOD_REPORT]))
    data = rng.choice((fitting, fitting, make_sketch(rng).data, rng.randbytes(100), bytes(rng.choice((0, 2**21)))))
    digest = hashlib.sha256(data).hexdigest() if rng.random() < 0.95 else rng.choice(("0" * 64, "x", "F" * 64))
    encoding = rng.choice(("identity", "gzip", "gzip", "br", "gzip, gzip", ""))
    body = gzip.compress(data, 1, mtime=0) if "gzip" in encoding else data
    if rng.random() < 0.3:
        body = damaged(rng, body or b"x", [data or b"x"])
    headers = {"Content-Encoding": encoding} if encoding else {}
    if rng.random() < 0.1:
        headers["Content-Length"] = rng.choice(("-1", "x", "9" * 30, "0", "10"))
    odd = str(rng.choice(VALUES))[:50].encode("utf-8", "replace").hex()
    period = rng.choice(("once", "once", "2026-01-01", "", odd))
    return Request("", "PUT", f"/tasks/reach/reports/{digest}?period={period}", body, headers, who="site")


class Collector:
    """A collector and two servers of shares in this process, spoken to without a network."""

    def __init__(self) -> None:
        from unnoise.serve.app import make_app
        from unnoise.serve.store import Store

        self.loop, self.apps, self.tokens = asyncio.new_event_loop(), {}, {}  # type: ignore[var-annotated]
        root = Path(tempfile.mkdtemp(prefix="unnoise-collector-"))
        for where in ("", "seed", "difference"):
            store = Store(root / (where or "collector"))
            app = make_app(store, side=where or None)
            self.tokens[where] = {
                "administrator": store.make_token("collector" if where else "administrator", None, "audit"),
                "site": store.make_token("site", "a", "audit"),
            }
            self.loop.run_until_complete(app.state.service.start())
            self.apps[where] = app
            good = json.dumps(_corpus.task_values()).encode() if not where else GOOD["task"]
            made = Request(where, "PUT", "/tasks/reach", good) if not where else Request(where, "POST", "/shares", good)
            status, _ = self.ask(made)
            assert status == 201, status

    def ask(self, request: Request) -> tuple[int, bytes]:
        """Return status and body of the answer."""
        return self.loop.run_until_complete(self._ask(request))

    async def _ask(self, request: Request) -> tuple[int, bytes]:
        path, _, query = request.path.partition("?")
        given = {"Authorization": f"Bearer {self.tokens[request.where][request.who]}", **request.headers}
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": request.method, "path": path,
            "raw_path": path.encode(), "query_string": query.encode("latin-1", "replace"), "root_path": "",
            "scheme": "http", "server": ("localhost", 80), "client": ("localhost", 1),
            "headers": [(k.lower().encode(), v.encode("latin-1", "replace")) for k, v in given.items()],
        }  # fmt: skip
        pieces = [request.body[:1000], request.body[1000:]]
        status, body = 0, b""

        async def receive() -> dict[str, Any]:
            if pieces:
                return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            nonlocal status, body
            status = message.get("status", status)
            body += message.get("body", b"")

        await self.apps[request.where](scope, receive, send)
        return status, body


@lru_cache(maxsize=1)
def collector() -> Collector:
    """The one collector of this process."""
    return Collector()


class Answered(Exception):
    """An answer that a server must not give."""


def use_request(request: Request) -> None:
    """Ask; an answer from 500 on is a fault, and so is one that shows a traceback."""
    from unnoise.errors import UnnoiseError

    try:
        status, body = collector().ask(request)
    except Exception as error:  # what a server does not answer, it has not handled
        raise Answered(f"{type(error).__name__} at {request.method} {request.path[:60]}: {str(error)[:100]}") from None
    if status >= 500 or status == 0 or b"Traceback" in body:
        raise Answered(f"{status} to {request.method} {request.path[:60]}: {body[:160]!r}")
    if status >= 400:
        raise UnnoiseError(str(status))


def requests() -> Target:
    """Requests to a collector and to servers of shares."""
    return Target(make_request, use_request, {"traceback": _unhandled, "memory": _unlimited})


def _unhandled() -> None:
    """Let the errors of workers and of the protocol through as they are."""
    from unnoise.errors import UnnoiseError
    from unnoise.serve import guard

    guard.HANDLERS.pop(UnnoiseError, None)


def _unlimited() -> None:
    """Unpack whatever comes, as long as it is."""
    from unnoise.serve import service

    service._gzip = lambda: (lambda data, most: b"x" * (600 << 20), lambda: b"")
    service.ENCODINGS["gzip"] = service._gzip
