"""A collector in trouble, in one process: tables out of reach, jobs that failed or take long, servers gone, bodies
without end."""

from __future__ import annotations

import asyncio
import errno
import gzip
import os
import signal
import struct
import subprocess
import sys
import tarfile
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from sqlalchemy import update
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as NoneFreeError
from starlette.requests import ClientDisconnect

from command_tools import run_in
from serve_tools import made_report
from unnoise.errors import InputError
from unnoise.guard import temporary
from unnoise.serve import app as app_module
from unnoise.serve import run, schema, sums, worker
from unnoise.serve import service as service_module
from unnoise.serve.access import Visitor
from unnoise.serve.app import make_app
from unnoise.serve.client import Client
from unnoise.serve.guard import Problem
from unnoise.serve.run import backup
from unnoise.serve.service import Service, receive
from unnoise.serve.store import ConflictError, Store
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
    servers, _ = two(*[httpx.Response(200, json={"sums": []})] * 2)  # they have given none
    begin = lambda *more: sums._begin(store, servers, TWO, "2026-11", ["berlin", "oslo", *more], "me")["reports"]  # noqa: E731
    assert begin() == ["1" * 32, "2" * 32]
    assert begin("oslo") == ["1" * 32, "2" * 32], "a site is named, however often"
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


def test_of_two_back_ups_into_one_file_the_first_stays(store, tmp_path, monkeypatch):
    """The second looked before the first was there."""
    add, target = tarfile.TarFile.add, tmp_path / "a.tar"

    def after_another(*words: object) -> None:
        target.write_text("the first")
        add(*words)

    monkeypatch.setattr(tarfile.TarFile, "add", after_another)
    done = run_in(tmp_path, "backup", store.folder, "-o", target)
    assert (done.returncode, target.read_text()) == (2, "the first")
    assert "another program wrote it meanwhile" in done.stderr
    assert run_in(tmp_path, "backup", store.folder, "-o", target, "--force").returncode == 0
    assert tarfile.is_tarfile(target)


KILLED = """
import os, signal, sys, tarfile
from unnoise.serve.run import backup
tarfile.TarFile.add = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
backup(sys.argv[1], sys.argv[2])
"""


@pytest.mark.parametrize("by", ["back-up", "server"])
def test_what_a_killed_back_up_left_goes_with_the_next_or_with_the_server(store, tmp_path, by):
    """A copy of the tables and half a tar file; what somebody is writing meanwhile stays."""
    target = tmp_path / "a.tar"

    def temporaries() -> set[Path]:
        return {path for folder in (tmp_path, store.folder) for path in folder.glob(".*.tmp*")}

    done = subprocess.run([sys.executable, "-c", KILLED, str(store.folder), str(target)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert {path.parent for path in temporaries()} == {tmp_path, store.folder}
    for path in temporaries():
        path.with_name(f"{path.name}-journal").touch()  # of SQLite, had it been killed sooner
    left = temporaries()
    with temporary(target), temporary(store.folder / run.DATABASE):
        living = temporaries() - left
        if by == "server":
            store.sweep()
            assert {path.parent for path in temporaries() - living} == {tmp_path}, "it does not know of the tar file"
        else:
            assert backup(store.folder, target) == 2
            assert temporaries() == living
        assert temporaries() >= living


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


# ── requests that go wrong ────────────────────────────────────────────────────────────────────────────────────────


def requested(store: Store, method: str, path: str, **options: object) -> httpx.Response:
    """The answer to one request of a site that may send, or of whom the headers say."""
    made = make_app(store)

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(made, raise_app_exceptions=False)
        headers = {"Authorization": f"Bearer {store.make_token('site', 'oslo', 'me')}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://c", headers=headers) as client:
            return await client.request(method, path, **options)

    return asyncio.run(ask())


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (ClientDisconnect(), 400, "must come whole"),
        (OSError(errno.ENOSPC, "No space left on device"), 507, "must have room"),
        (OSError(errno.EIO, "Input/output error"), 500, "log of the server"),
        (NoneFreeError("QueuePool limit"), 503, "ask again"),
    ],
)
def test_half_a_report_and_a_full_disk_are_no_faults(store, monkeypatch, caplog, error, status, said):
    async def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(service_module, "receive", fails)
    answer = requested(store, "PUT", f"/tasks/reach/reports/{'a' * 64}?period=2026-11-03", content=b"x")
    assert answer.status_code == status
    assert said in answer.json()["detail"]
    assert ("fault" in caplog.text) == (status == 500)
    assert list(store.incoming.iterdir()) == []


def test_the_same_file_for_another_task_says_where_it_went(store):
    store.make_task(replace(TASK, id="other"), "me")
    with pytest.raises(ConflictError, match="got one that berlin sent before, to task reach for 2026-11-01"):
        store.require_new(replace(TASK, id="other"), "berlin", "2026-11-01", f"{1:064d}")


def test_metrics_and_log_hold_no_more_than_they_should(store, caplog):
    """Methods that somebody makes up are one; a secret in an address stays out of log and answer."""
    made, secret = make_app(store), store.make_token("viewer", None, "me")
    admin = store.make_token("administrator", None, "me")

    async def ask() -> tuple[httpx.Response, httpx.Response]:
        headers = {"Authorization": f"Bearer {admin}"}
        transport = httpx.ASGITransport(made, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://c", headers=headers) as client:
            for i in range(20):
                await client.request(f"M{i}", "/healthz")
            gone = await client.delete(f"/tokens/{secret}")
            again = await client.delete(f"/tokens/{secret}")
            assert secret not in again.text
            return gone, await client.get("/metrics")

    with caplog.at_level("INFO", "unnoise.serve.access"):
        gone, metrics = asyncio.run(ask())
    assert gone.status_code == 204
    assert store.visitor(secret) is None, "a whole token is revoked by its name"
    assert 'unnoise_requests_total{method="other",status="405"} 20.0' in metrics.text
    lines = " ".join(one.getMessage() for one in caplog.records if one.name.startswith("unnoise"))
    assert "/tokens/un_" in lines
    assert secret.split("_", 2)[2] not in lines


def test_a_report_that_is_gone_from_the_disk_is_told_without_paths(store):
    store.path(f"{1:064d}").unlink()
    with pytest.raises(FileNotFoundError, match=r"^no such file: report 000000000000…$"):
        worker.merged([str(store.path(f"{1:064d}"))], TASK)
    with pytest.raises(FileNotFoundError, match=r"^no such file: report 000000000000…$"):
        worker.save([str(store.path(f"{1:064d}"))], TASK.to_dict(), "x")
    answer = asked(store, f"/tasks/reach/reports/{1:064d}")
    assert (answer.status_code, answer.json()["detail"]) == (404, "there is no such report")


def test_news_end_when_the_token_is_revoked(store):
    token = store.make_token("viewer", None, "me")
    made = make_app(store)
    heard: list[bytes] = []
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
        "path": "/events", "raw_path": b"", "query_string": b"", "root_path": "", "server": ("c", 80),
        "client": ("v", 1), "headers": [(b"authorization", f"Bearer {token}".encode())],
    }  # fmt: skip

    async def stays() -> dict[str, object]:
        await asyncio.sleep(60)
        return {"type": "http.disconnect"}

    async def hear(message: dict[str, object]) -> None:
        heard.append(message.get("body", b""))
        if heard[-1]:
            store.revoke_token(token.split("_")[1], "me")
            await made.state.service.tell()

    async def run() -> None:
        await asyncio.wait_for(made(scope, stays, hear), 20)

    asyncio.run(run())
    assert len([one for one in heard if one]) == 1


# ── who has lost what ─────────────────────────────────────────────────────────────────────────────────────────────


def test_no_token_is_valid_before_its_file_is_there(tmp_path, monkeypatch):
    """Killed between the two, a collector would have an administrator whom nobody is."""
    kept = Store(tmp_path / "data")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(run, "write_whole", killed)
        with pytest.raises(KeyboardInterrupt):
            run._first_token(kept)
    assert kept.tokens() == []
    path = run._first_token(kept)
    assert path == kept.folder / "administrator.token"
    assert path.stat().st_mode & 0o777 == 0o600
    assert kept.visitor(path.read_text().strip()).role == "administrator"
    assert run._first_token(kept) is None, "once"
    kept.close()


def test_whoever_has_lost_the_administrators_token_makes_another(tmp_path):
    kept = Store(tmp_path / "data")
    first = run._first_token(kept).read_text().strip()
    (kept.folder / "administrator.token").unlink()  # as after restoring a back-up, which holds no secret
    second = run._first_token(kept, anew=True).read_text().strip()
    assert first != second
    assert kept.visitor(first), "the former one is revoked by whoever wants it to be"
    for token in (first, second):
        kept.revoke_token(token.split("_")[1], "me")
    third = run._first_token(kept).read_text().strip()
    assert kept.visitor(third).role == "administrator", "nobody is locked out"
    kept.close()


def test_tables_of_a_newer_version_are_left_alone(store):
    with store.engine.begin() as connection:
        connection.exec_driver_sql("update alembic_version set version_num = 'f00d'")
    with pytest.raises(InputError, match="got f00d: they were made by a newer one, so upgrade unnoise"):
        Store(store.folder)
