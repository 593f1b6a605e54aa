"""A collector in trouble, in one process: tables out of reach, jobs that failed or take long, servers gone, bodies
without end."""

from __future__ import annotations

import asyncio
import gzip
import os
import signal
import struct
import subprocess
import sys
import tarfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from sqlalchemy import update
from sqlalchemy.exc import OperationalError

from serve_tools import made_report
from unnoise.errors import InputError
from unnoise.serve import app as app_module
from unnoise.serve import schema, sums
from unnoise.serve.access import Visitor
from unnoise.serve.app import make_app
from unnoise.serve.client import Client
from unnoise.serve.guard import Problem
from unnoise.serve.run import backup
from unnoise.serve.service import Service, receive
from unnoise.serve.store import Store
from unnoise.serve.tasks import Task

TASK = Task(id="reach", epsilon="1", cells=2**12, item_types=("int",), every="day")
TWO = Task(id="two", epsilon="1", cells=2**12, item_types=("int",), every="month", way="two-servers")
ADMIN, VIEWER = Visitor("a", "administrator"), Visitor("v", "viewer")


@pytest.fixture
def store(tmp_path):
    kept = Store(tmp_path / "data")
    kept.make_task(TASK, "me")
    kept.make_task(TWO, "me")
    for day in (1, 2):
        upload = made_report(kept.incoming / "upload", seed=day)
        noises, period = [f"{day:032d}"], f"2026-11-{day:02d}"
        kept.keep_report(TASK, "berlin", period, f"{day:064d}", upload, power="1", noises=noises, who="me")
    yield kept
    kept.close()


def asked(store: Store, path: str, **options: object) -> httpx.Response:
    """The answer to one request of an administrator, the clerk who does the jobs being away."""
    made = make_app(store)

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(made, raise_app_exceptions=False)
        token = store.make_token("administrator", None, "me")
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://c", headers=headers) as client:
            return await client.get(path, **options)

    return asyncio.run(ask())


# ── jobs ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_job_that_failed_begins_anew_after_a_while(store):
    """Whatever stood in its way, a machine that stood still or tables that were locked, is not there for ever."""
    job = "f" * 64
    store.ask(job, "reach", {})
    store.finish_job(job, {"error": "it took more than 600 seconds"})
    assert store.ask(job, "reach", {})["state"] == "failed", "not at once: the next in the line come first"
    with store.engine.begin() as connection:
        connection.execute(update(schema.jobs).values(updated="2026-11-01T00:00:00Z", tries=3))
    found = store.ask(job, "reach", {})
    assert (found["state"], found["tries"], found["answer"]) == ("waiting", 0, None)
    with store.engine.begin() as connection:
        connection.execute(update(schema.jobs).values(updated="2099-01-01T00:00:00Z", state="failed"))
    assert store.ask(job, "reach", {})["state"] == "waiting", "though the clock was set back"


def test_over_time_says_what_is_missing_and_why(store, monkeypatch):
    """A job under way is no lack of sites."""
    monkeypatch.setattr(app_module, "PATIENCE", 0.0)
    waiting = asked(store, "/tasks/reach/over-time")
    assert (waiting.status_code, waiting.json()["state"]) == (202, "waiting")
    while job := store.next_job():
        store.finish_job(job["id"], {"error": "no memory"})
        asked(store, "/tasks/reach/over-time")
    points = asked(store, "/tasks/reach/over-time").json()["points"]
    assert [point["missing"] for point in points] == [{"alone": "no memory", "so_far": "no memory"}] * 2


def test_a_request_hangs_up_before_its_client_does():
    """Clients and proxies wait for a minute: they must hear that a job is under way before."""
    from unnoise.serve.service import PATIENCE

    assert PATIENCE <= 30
    assert Client("http://127.0.0.1:8400", "un_x")._http.timeout.read == 60


def test_news_that_came_in_between_are_not_waited_for(store):
    async def run() -> None:
        service = Service(store)
        assert await asyncio.wait_for(service.wait(600, -1), 60) == 0, "whoever comes is told at once"
        await service.tell()
        assert await asyncio.wait_for(service.wait(600, 0), 60) == 1
        assert await service.wait(0.01, 1) == 1

    asyncio.run(run())


def test_tables_out_of_reach_are_no_fault(store, monkeypatch):
    """A database that is locked for a while is worth another try, and no traceback in the log."""

    def locked() -> None:
        raise OperationalError("select", {}, Exception("database is locked"))

    monkeypatch.setattr(store, "tasks", locked)
    answer = asked(store, "/tasks")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert "ask again" in answer.json()["detail"]


# ── bodies ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _endless(first: bytes, piece: bytes, sent: list[int]) -> AsyncIterator[bytes]:
    yield first
    while sum(sent) < 1 << 26:
        sent.append(len(piece))
        yield piece


@pytest.mark.parametrize("kind", ["empty blocks", "after its end"])
def test_a_packed_body_without_end_is_cut_off(tmp_path, kind):
    """Gzip that unpacks to nothing, or goes on behind its end, is weighed as it comes."""
    first, piece = {
        "empty blocks": (gzip.compress(b"")[:10], struct.pack("<BHH", 0, 0, 0xFFFF) * 10_000),
        "after its end": (gzip.compress(b"whole"), bytes(50_000)),
    }[kind]
    sent: list[int] = []
    with pytest.raises(Problem, match="at most 1,000,000 bytes, got more"):
        asyncio.run(
            receive(_endless(first, piece, sent), tmp_path, encoding="gzip", length=None, most=10**6, digest="0" * 64)
        )
    assert sum(sent) <= 2 * 10**6
    assert list(tmp_path.iterdir()) == []


def test_a_merged_sketch_nobody_waits_for_leaves_no_file(store):
    """The visitor is gone before the first byte."""
    made = make_app(store)
    token = store.make_token("viewer", None, "me")
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
        "path": "/tasks/reach/sketch", "raw_path": b"", "query_string": b"", "root_path": "",
        "headers": [(b"authorization", f"Bearer {token}".encode())], "server": ("c", 80), "client": ("v", 1),
    }  # fmt: skip

    async def gone() -> dict[str, object]:
        return {"type": "http.disconnect"}

    async def unheard(_: object) -> None:
        await asyncio.sleep(0)

    async def run() -> None:
        await made(scope, gone, unheard)
        await made.state.service._answering.close()

    asyncio.run(run())
    assert list(store.incoming.iterdir()) == []


# ── two servers ───────────────────────────────────────────────────────────────────────────────────────────────────


def two(*answers: object) -> tuple[tuple[Client, Client], list[str]]:
    """Two servers of which each gives one answer to everything, and what they were asked."""
    seen: list[str] = []

    def server(answer: object) -> Client:
        def handle(request: httpx.Request) -> httpx.Response:
            seen.append(f"{request.method} {request.url.path}")
            if answer is None:
                raise httpx.ConnectError("gone")
            return answer

        return Client("http://127.0.0.1:1", "un_x", tries=1, transport=httpx.MockTransport(handle))

    return (server(answers[0]), server(answers[1])), seen


def test_whoever_looks_makes_no_period_known(store):
    """A viewer asking for a thousand periods makes not one of them at the two servers; an administrator does."""
    unheard = httpx.Response(404, json={"detail": "there is no task"})
    servers, seen = two(unheard, unheard)
    assert asyncio.run(Service(store, servers).reports(TWO, ["2099-01"], VIEWER)) == []
    assert seen, "they were asked"
    assert not [one for one in seen if one.startswith("POST")]
    servers, seen = two(httpx.Response(200, json={"sites": {}}), httpx.Response(200, json={"sites": {}}))
    assert asyncio.run(Service(store, servers).reports(TWO, ["2026-11"], ADMIN)) == []
    assert [one for one in seen if one.startswith("POST")] == ["POST /shares"] * 2


@pytest.mark.parametrize(
    ("answer", "status", "said"),
    [
        (None, 503, "must be reachable"),
        (httpx.Response(401, json={"detail": "a valid token must be sent"}), 409, r"refused \(401\)"),
    ],
)
def test_a_server_that_is_gone_or_refuses_is_no_bad_request(store, answer, status, said):
    servers, _ = two(httpx.Response(200, json={"sites": {}}), answer)
    with pytest.raises(Problem, match=said) as caught:
        asyncio.run(Service(store, servers).ask_for_sum(TWO, "2026-11", [], ADMIN))
    assert caught.value.status == status


def test_a_sum_begins_anew_when_a_site_has_replaced_its_report(store, monkeypatch):
    """A sum was begun, a server was gone, the site sent better numbers to both: the sum is of what both hold now."""
    there = {"berlin": "1" * 32, "oslo": "2" * 32}
    monkeypatch.setattr(sums, "held", lambda *_: dict(there))
    begin = lambda: sums._begin(store, (None, None), TWO, "2026-11", ["berlin", "oslo"], "me")["reports"]  # noqa: E731
    assert begin() == ["1" * 32, "2" * 32]
    there["berlin"] = "3" * 32
    assert begin() == ["2" * 32, "3" * 32]
    del there["oslo"]
    there["berlin"] = "4" * 32
    with pytest.raises(Problem, match="got none of oslo"):
        begin()
    there.clear()
    assert begin() == ["2" * 32, "3" * 32], "spent, or answered by one of them: the very same sum is asked for again"
    with store.engine.begin() as connection:
        connection.execute(update(schema.sums).values(digest="d" * 64))
    there |= {"berlin": "5" * 32, "oslo": "2" * 32}
    assert begin() == ["2" * 32, "3" * 32], "a sum that came stays what it is"


def test_a_server_of_shares_is_not_backed_up(store, tmp_path):
    """Its back-up would hold no shares; and one that forgets its answers would noise the same cells twice."""
    (store.folder / "shares").mkdir()
    with pytest.raises(InputError, match="a server of shares"):
        backup(store.folder, tmp_path / "a.tar")
    assert not (tmp_path / "a.tar").exists()


def test_a_back_up_that_broke_off_does_not_stop_the_next(store, tmp_path, monkeypatch):
    add = tarfile.TarFile.add

    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(tarfile.TarFile, "add", full)
    with pytest.raises(OSError, match="no space"):
        backup(store.folder, tmp_path / "a.tar")
    monkeypatch.setattr(tarfile.TarFile, "add", add)
    assert [one for one in tmp_path.iterdir() if one != store.folder] == []
    assert backup(store.folder, tmp_path / "a.tar") == 2
    assert (tmp_path / "a.tar").stat().st_mode & 0o777 == 0o600


def test_a_token_is_revoked_without_its_secret():
    """Addresses are logged."""
    seen = []
    transport = httpx.MockTransport(lambda request: (seen.append(request.url.path), httpx.Response(204))[1])
    with Client("http://127.0.0.1:1", "un_x", transport=transport) as client:
        client.revoke("un_0123456789abcdef_secret")
        client.revoke("0123456789abcdef")
    assert seen == ["/tokens/0123456789abcdef"] * 2


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="asks Linux for the children of a process")
def test_the_demonstration_takes_its_servers_with_it(tmp_path):
    """SIGTERM while the first server starts: nothing of it stays behind, neither process nor folder."""
    script = Path(__file__).parent.parent / "scripts" / "demo_sites.py"
    with subprocess.Popen([sys.executable, str(script)], env={**os.environ, "TMPDIR": str(tmp_path)}) as demo:
        children, until = Path(f"/proc/{demo.pid}/task/{demo.pid}/children"), time.monotonic() + 60
        while not (started := children.read_text().split()) and time.monotonic() < until:
            time.sleep(0.1)
        demo.terminate()
        assert demo.wait(60) == 128 + signal.SIGTERM
    assert started
    assert not any(Path(f"/proc/{child}").exists() for child in started)
    assert list(tmp_path.iterdir()) == []
