"""Talking to a collector: send reports, make tasks and tokens, ask for answers.

Sending is safe to repeat: a report is named by its SHA-256, and the collector takes the same one once. So every failure
of the network is answered by asking again, and a batch that broke off goes on where it stopped.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx

from ..errors import InputError, UnnoiseError
from ..guard import replacing
from ..protocols.shares.task import read_text, unpack
from ..sketches.sketch import Sketch
from .access import split
from .tasks import check_name

__all__ = ["Client", "RefusedError", "Sent", "UnreachableError"]

TRIES = 6
"""Tries of one request; the waits between them double from half a second."""

WORTH_TRYING = (408, 425, 429, 500, 502, 503, 504)

Sent = dict[str, Any]


class RefusedError(UnnoiseError):
    """The server said no, and why."""

    def __init__(self, address: str, status: int, detail: str) -> None:
        super().__init__(f"{address} refused ({status}): {detail}")
        self.status = status


class UnreachableError(UnnoiseError):
    """The server could not be asked."""


class Client:
    """A collector at an address, and the token to show there.

    >>> Client("http://127.0.0.1:8400", "un_0000000000000000_x").address
    'http://127.0.0.1:8400'
    """

    def __init__(
        self,
        address: str,
        token: str,
        *,
        tries: int = TRIES,
        verify: bool | str = True,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        try:
            host = httpx.URL(address).host if address.startswith(("http://", "https://")) else ""
        except httpx.InvalidURL:
            host = ""
        if not host or "%" in host:
            raise InputError(f"the address must be http:// or https:// and the name of a host, got {address!r:.200}")
        if address.startswith("http://") and host not in ("127.0.0.1", "localhost", "::1"):
            raise InputError(
                f"the address must be https:// unless it is this machine: a token would be read, got {address!r:.200}"
            )
        if not re.fullmatch(r"[!-~]+", token.strip()):
            raise InputError("the token must be one word as 'unnoise token create' writes it, got something else")
        self.address, self._tries = address.rstrip("/"), tries
        self._http = httpx.Client(
            base_url=self.address, headers={"Authorization": f"Bearer {token.strip()}"},
            timeout=httpx.Timeout(60, connect=10),
            verify=verify, transport=transport, trust_env=False,
        )  # fmt: skip

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def call(self, method: str, path: str, *, about: object = None, **request: Any) -> Any:
        """Send a request, again where that may help, and return the answer: what its JSON says, or bytes.

        ``about`` names the file that it is about, and stands before what is wrong.
        """
        wait, said = 0.5, self.address if about is None else f"{about}: {self.address}"
        for tried in range(1, self._tries + 1):
            try:
                content = request.get("content")
                body = content() if callable(content) else content
                answer = self._http.request(method, path, **{**request, "content": body})
                if answer.status_code not in WORTH_TRYING or tried == self._tries:
                    return _read(answer, said)
            except httpx.TransportError as error:
                if tried == self._tries:
                    raise _unreachable(said, error, tried) from None
            time.sleep(wait)
            wait *= 2
        raise AssertionError("unreachable")

    def raw(self, method: str, path: str, **request: Any) -> bytes:
        """Send a request and return the body of the answer as it is."""
        return bytes(self.call(method, path, **request))

    # ── sites ─────────────────────────────────────────────────────────────────────────────────────────────────

    def send(
        self,
        task: str,
        path: str | os.PathLike[str],
        *,
        period: str = "once",
        progress: Callable[[int], None] = lambda _: None,
    ) -> Sent:
        """Send a sealed sketch; return the collector's row. Sending the same again changes nothing.

        Any other file is refused here: the rows that were meant to stay, say.
        """
        Sketch.load(path, later=True)
        digest = _digest(Path(path))
        place = f"/tasks/{_part(task)}/reports"
        if any(row["digest"] == digest and row["period"] == period
               for row in self.call("GET", place, about=path)["reports"]):  # fmt: skip
            return {"digest": digest, "period": period, "fresh": False}
        row = self.call(
            "PUT", f"{place}/{digest}", about=path, params={"period": period},
            headers={"Content-Encoding": "gzip"}, content=lambda: _packed(Path(path), progress),
        )  # fmt: skip
        return {**row, "fresh": True}

    def send_share(self, path: str | os.PathLike[str]) -> Sent:
        """Send one of the two shares of a report to its server; the same again changes nothing.

        A server that says it is the other one is not given it: both shares together are the cells.
        """
        message = Path(path).read_bytes()
        head, _ = unpack(message, "share", str(path))
        place = f"/shares/{_part(read_text(head, 'task'))}"
        side = self.call("GET", place, about=path)["side"]
        if side != head.get("side"):
            told = f"{head.get('side')}, got {self.address} of side {side}"
            raise InputError(f"{path}: a share must go to the server of its side, {told}")
        row = self.call("POST", f"{place}/reports", about=path, content=message)
        return {"fresh": True, **row, "digest": row["report"]}

    def ask_for_sum(self, task: str, *, period: str = "once", sites: Sequence[str] = ()) -> dict[str, Any]:
        """Ask a collector for a sum of its two servers: one more release."""
        return dict(self.call("POST", f"/tasks/{_part(task)}/sums", json={"period": period, "sites": list(sites)}))

    def reports(self, task: str, *, period: str | None = None) -> list[dict[str, Any]]:
        """Reports of a task, all or those of a period; for a site, its own. Two servers thereby learn of the period."""
        chosen = {} if period is None else {"period": period}
        return list(self.call("GET", f"/tasks/{_part(task)}/reports", params=chosen)["reports"])

    # ── tasks and tokens ──────────────────────────────────────────────────────────────────────────────────────

    def make_task(self, task: str, **values: Any) -> dict[str, Any]:
        """Make a task; the same again changes nothing. A name that no server takes is refused here, in words."""
        return dict(self.call("PUT", f"/tasks/{_part(check_name('task', task))}", json={"id": task, **values}))

    def task(self, task: str) -> dict[str, Any]:
        """Return a task."""
        return dict(self.call("GET", f"/tasks/{_part(task)}"))

    def tasks(self) -> list[dict[str, Any]]:
        """All tasks."""
        return list(self.call("GET", "/tasks")["tasks"])

    def make_token(self, role: str, site: str | None = None) -> str:
        """Return a new token, which is shown this once."""
        return str(self.call("POST", "/tokens", json={"role": role, "site": site})["token"])

    def tokens(self) -> list[dict[str, Any]]:
        """Names and roles of tokens."""
        return list(self.call("GET", "/tokens")["tokens"])

    def revoke(self, token: str) -> None:
        """Make a token worthless, by its name or as a whole; its secret is not sent."""
        parts = split(token)
        self.call("DELETE", f"/tokens/{_part(parts[0] if parts else token)}")

    # ── answers ───────────────────────────────────────────────────────────────────────────────────────────────

    def collect(self, task: str, *, sites: Sequence[str] = (), periods: Sequence[str] = ()) -> dict[str, Any]:
        """Return reach and frequency of these sites and periods, all where none are named."""
        return self._wait(f"/tasks/{_part(task)}/answer", sites, periods)

    def overlap(self, task: str, *, sites: Sequence[str] = (), periods: Sequence[str] = ()) -> dict[str, Any]:
        """Return how many are at both of every two sites."""
        return self._wait(f"/tasks/{_part(task)}/overlap", sites, periods)

    def _wait(self, path: str, sites: Sequence[str], periods: Sequence[str]) -> dict[str, Any]:
        chosen = {"site": list(sites), "period": list(periods)}
        while (answer := self.call("GET", path, params=chosen)).get("state") in ("waiting", "running"):
            time.sleep(0.5)
        return dict(answer)

    def merged(
        self, task: str, target: str | os.PathLike[str], *, sites: Sequence[str] = (), periods: Sequence[str] = (),
        new: bool = False,
    ) -> None:  # fmt: skip
        """Download the merged sketch of these sites and periods; ``new``: not over a file that is there."""
        chosen = {"site": list(sites), "period": list(periods)}
        try:
            with self._http.stream("GET", f"/tasks/{_part(task)}/sketch", params=chosen) as answer:
                if answer.status_code != 200:
                    answer.read()
                    _read(answer, self.address)
                with replacing(target, new=new) as handle, open(handle, "wb", closefd=False) as file:
                    for piece in answer.iter_bytes():
                        file.write(piece)
        except httpx.TransportError as error:
            raise _unreachable(self.address, error, 1) from None


def _part(name: str) -> str:
    """A name as one part of a path, whatever is in it.

    >>> _part("2026-11"), _part("a/b")
    ('2026-11', 'a%2Fb')
    """
    if name in ("", ".", ".."):
        raise InputError(f"the name of a task or token must hold more than dots, got {name!r}")
    return quote(name, safe="")


def _unreachable(said: str, error: httpx.TransportError, tried: int) -> UnreachableError:
    times = "once" if tried == 1 else f"{tried} times"
    return UnreachableError(f"{said} must be reachable, got {type(error).__name__} {times}")


def _read(answer: httpx.Response, address: str) -> Any:
    """Return the JSON of an answer, or its bytes; raise what the server objects to."""
    if answer.status_code < 300:
        if not answer.headers.get("content-type", "application/json").startswith("application/json"):
            return answer.content
        return answer.json() if answer.content else None
    try:
        detail = str(answer.json()["detail"])
    except (ValueError, KeyError, TypeError):
        detail = f"an answer that no collector gives: {answer.text[:100]!r}"
    raise RefusedError(address, answer.status_code, detail)


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _packed(path: Path, progress: Callable[[int], None]) -> Iterator[bytes]:
    """The file, gzipped piece by piece; tells the bytes read so far."""
    out = _Pieces()
    with open(path, "rb") as file, gzip.GzipFile(fileobj=out, mode="wb", compresslevel=1, mtime=0) as packer:
        while piece := file.read(1 << 20):
            packer.write(piece)
            progress(file.tell())
            yield from out.take()
    yield from out.take()


class _Pieces:
    """A file that hands on what was written to it."""

    def __init__(self) -> None:
        self._waiting: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._waiting.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        """Nothing is held back."""

    def take(self) -> Iterator[bytes]:
        pieces, self._waiting = self._waiting, []
        yield from pieces
