"""The collector over HTTP: who may do what, what is refused and why, and what survives being killed."""

from __future__ import annotations

import gzip
import hashlib
import signal
import socket
import subprocess
import sys
import time

import httpx
import numpy as np
import pytest

import unnoise as un
from command_tools import run_in
from serve_tools import CELLS, Server, free_port, made_report, postgres, running
from unnoise.errors import InputError, UnnoiseError
from unnoise.serve.app import _common_routes, _routes
from unnoise.serve.client import Client, RefusedError
from unnoise.serve.openapi import document
from unnoise.serve.pages import page_routes
from unnoise.serve.run import _require_cover
from unnoise.serve.shares import share_routes
from unnoise.serve.tasks import Task

TASK = {"epsilon": "1", "cells": CELLS, "item_types": ["int"], "every": "day", "noun": "user"}
DAY = "2026-11-16"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with running(tmp_path_factory.mktemp("collector") / "data") as made:
        with made.client() as admin:
            admin.make_task("reach", **TASK)
            made.tokens = {
                "nobody": "un_" + "0" * 16 + "_x", "site": admin.make_token("site", "berlin"),
                "viewer": admin.make_token("viewer"), "administrator": made.token,
            }  # fmt: skip
        yield made


def site(server: Server, name: str) -> Client:
    with server.client() as admin:
        return server.client(admin.make_token("site", name))


def put(
    server: Server, token: str, data: bytes, *, task: str = "reach", period: str = DAY, digest: str = "", **headers
):
    digest = digest or hashlib.sha256(data).hexdigest()
    return httpx.put(
        f"{server.address}/tasks/{task}/reports/{digest}", params={"period": period}, content=data, trust_env=False,
        headers={"Authorization": f"Bearer {token}", **headers}, timeout=600,
    )  # fmt: skip


# ── who may do what ───────────────────────────────────────────────────────────────────────────────────────────────

MAY = {
    ("GET", "/tasks"): {"site", "viewer", "administrator"},
    ("GET", "/tasks/reach"): {"site", "viewer", "administrator"},
    ("PUT", "/tasks/reach"): {"administrator"},
    ("GET", "/tasks/reach/reports"): {"site", "viewer", "administrator"},
    ("PUT", "/tasks/reach/reports/" + "a" * 64): {"site"},
    ("GET", "/tasks/reach/reports/" + "a" * 64): {"viewer", "administrator"},
    ("GET", "/tasks/reach/answer"): {"viewer", "administrator"},
    ("GET", "/tasks/reach/over-time"): {"viewer", "administrator"},
    ("GET", "/tasks/reach/overlap"): {"viewer", "administrator"},
    ("GET", "/tasks/reach/sketch"): {"viewer", "administrator"},
    ("GET", "/tasks/reach/sums"): {"viewer", "administrator"},
    ("POST", "/tasks/reach/sums"): {"administrator"},
    ("GET", "/tasks/reach/answer.csv"): {"viewer", "administrator"},
    ("GET", "/tasks/reach/report.html"): {"viewer", "administrator"},
    ("GET", "/tokens"): {"administrator"},
    ("POST", "/tokens"): {"administrator"},
    ("DELETE", "/tokens/0000000000000000"): {"administrator"},
    ("GET", "/audit"): {"administrator"},
    ("GET", "/metrics"): {"viewer", "administrator"},
}


def test_every_address_asks_who_is_there(server):
    for (method, path), may in MAY.items():
        for role, token in server.tokens.items():
            answer = httpx.request(
                method, server.address + path, headers={"Authorization": f"Bearer {token}"}, trust_env=False,
                content=b"{}" if method in ("PUT", "POST") else None, timeout=600,
            )  # fmt: skip
            refused = answer.status_code in (401, 403)
            assert refused == (role not in may), (method, path, role, answer.status_code)
            assert answer.status_code != 500
        assert httpx.request(method, server.address + path, trust_env=False).status_code == 401, "no token at all"
    open_to_all = {"/healthz", "/readyz", "/openapi.json"}
    asked = {
        path.replace("reach", "{task}").replace("a" * 64, "{digest}").replace("0" * 16, "{token}") for _, path in MAY
    }
    routes = {route.path for route in _routes()}
    assert routes - asked - open_to_all == {"/events"}, "no address is forgotten"
    assert httpx.get(f"{server.address}/events", trust_env=False).status_code == 401


@pytest.mark.parametrize("shares", [False, True])
def test_the_document_names_every_address(shares):
    """Of a collector and of a server of shares: all that is not a page for people."""
    exports = [route for route in page_routes() if route.path.startswith("/tasks/")]
    routes = [*_common_routes(), *share_routes()] if shares else [*_routes(), *exports]
    paths = document(shares=shares)["paths"]
    for route in routes:
        for method in route.methods - {"HEAD"}:
            assert method.lower() in paths[route.path], (route.path, method)
    assert set(paths) == {route.path for route in routes}


def test_a_revoked_token_is_worthless(server):
    with server.client() as admin:
        token = admin.make_token("viewer")
        with server.client(token) as viewer:
            assert viewer.tasks()
            admin.revoke(token.split("_")[1])
            with pytest.raises(RefusedError, match="401"):
                viewer.tasks()


def test_browsers_are_kept_from_harm(server):
    answer = httpx.get(f"{server.address}/login", trust_env=False)
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    for name in ("x-content-type-options", "x-frame-options", "referrer-policy", "cache-control"):
        assert name in answer.headers
    login = {"token": server.tokens["viewer"]}
    for origin, status in (("http://evil.example", 403), (server.address, 303)):
        entered = httpx.post(f"{server.address}/login", data=login, headers={"Origin": origin}, trust_env=False)
        assert entered.status_code == status
    cookie = entered.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    wrong = httpx.post(f"{server.address}/login", data={"token": server.tokens["site"]}, trust_env=False)
    assert wrong.status_code == 401, "a site's token opens no page"


# ── reports ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_report_is_taken_once(server, tmp_path):
    path = made_report(tmp_path / "a.sketch")
    with site(server, "oslo") as client:
        first = client.send("reach", path, period=DAY)
        assert first["fresh"]
        assert first["site"] == "oslo"
        assert not client.send("reach", path, period=DAY)["fresh"]
        again = put(server, client._http.headers["Authorization"][7:], path.read_bytes())
        assert again.status_code == 200, "the same bytes to the same address: no change"
        assert [row["period"] for row in client.reports("reach")] == [DAY]
        with pytest.raises(RefusedError, match="one report for a site and period"):
            client.send("reach", made_report(tmp_path / "b.sketch"), period=DAY)
    with site(server, "roma") as client, pytest.raises(RefusedError, match="sent before"):
        client.send("reach", path, period="2026-11-17")


def test_of_several_files_the_refused_one_is_named_and_the_sent_ones_are_told(server, tmp_path):
    with server.client() as admin:
        (tmp_path / "token").write_text(admin.make_token("site", "graz"))
    first, second = (made_report(tmp_path / f"{name}.sketch", seed=seed) for seed, name in enumerate(("a", "b")))
    talk = ["--task", "reach", "--period", DAY, "--to", server.address, "--token-file", "token"]
    done = run_in(tmp_path, "send", first.name, second.name, "--period", DAY, *talk)
    assert done.returncode == 2
    assert done.stdout == f"a.sketch: sent ({DAY})\n"
    assert done.stderr.startswith(f"unnoise: b.sketch: {server.address} refused (409): ")
    done = run_in(tmp_path, "send", first.name, *talk)
    assert (done.returncode, done.stdout) == (0, f"a.sketch: was there already ({DAY})\n")


def test_what_is_no_sketch_does_not_leave(tmp_path):
    """Rows sent by mistake would have left, whatever the collector says to them."""
    asked: list[httpx.Request] = []
    transport = httpx.MockTransport(lambda request: (asked.append(request), httpx.Response(200, json={}))[1])
    (tmp_path / "visits.csv").write_text("user\n" + "1\n" * 1000)
    with Client("http://127.0.0.1:1", "un_x", transport=transport) as client:
        with pytest.raises(UnnoiseError, match=r"visits\.csv"):
            client.send("reach", tmp_path / "visits.csv")
        for content in (b"UNSH", b"UNSH\1\2" + bytes(100)):
            (tmp_path / "torn.seed").write_bytes(content)
            with pytest.raises(UnnoiseError, match=r"torn\.seed must"):
                client.send_share(tmp_path / "torn.seed")
    assert asked == []


def test_a_server_that_cannot_be_is_refused_in_one_line(tmp_path):
    (tmp_path / "text").write_text("no certificate")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for options, expected in (
            ([], f"must be free to listen on, got 127.0.0.1:{port}: Address already in use"),
            (["--host", "nowhere.invalid", "--behind-proxy"], "must be free to listen on, got nowhere.invalid:"),
            (["--certificate", "no", "--key", "text"], "a certificate and its key, got no and text: No such file"),
            (["--certificate", "text", "--key", "text"], "a certificate and its key, got text and text: "),
        ):
            refused = run_in(tmp_path, "serve", "--data", "data", "--port", port, *options)
            assert (refused.returncode, refused.stdout) == (2, ""), options
            assert expected in refused.stderr
    assert not (tmp_path / "data").exists()
    for database, expected in (
        ("mysql://a:secret@b/c", "must begin with postgresql://"),
        ("postgresql://a:secret@127.0.0.1:1/b", "the database must be reachable: "),
    ):
        refused = run_in(tmp_path, "serve", "--data", "data", "--port", free_port(), "--database", database)
        assert refused.returncode == 2
        assert expected in refused.stderr
        assert "secret" not in refused.stderr
        assert refused.stderr.count("\n") == 1


def test_nouns_have_the_plural_of_reports():
    known = {"user": "users", "company": "companies", "mouse/mice": "mice", "": "items", "/": "items", "a/": "as"}
    for noun, nouns in known.items():
        assert Task.from_dict({"id": "a", "epsilon": "1", "noun": noun}).nouns == nouns


def test_the_same_noise_never_comes_twice(server, tmp_path):
    """One noise with other data in it, in another file: their difference would be exact."""
    first = un.Sketch.load(made_report(tmp_path / "a.sketch"))
    second = un.Sketch.load(made_report(tmp_path / "b.sketch"))
    second.merge(un.Sketch.load(tmp_path / "a.sketch"))
    second.save(tmp_path / "both.sketch")
    with site(server, "bern") as client:
        client.send("reach", tmp_path / "a.sketch", period=DAY)
        with pytest.raises(RefusedError, match="noise of a report must never have been seen"):
            client.send("reach", tmp_path / "both.sketch", period="2026-11-17")
        assert client.send("reach", tmp_path / "b.sketch", period="2026-11-17")["fresh"], "its own noise is welcome"
    assert first.sealed


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda path: made_report(path, cells=2 * CELLS), "cells|weighs"),
        (lambda path: made_report(path, epsilon=2), "ε per occurrence"),
        (lambda path: path.write_bytes(b"ARROW1" + bytes(5000) + b"ARROW1"), ""),
        (lambda path: path.write_bytes(b""), ""),
        (lambda path: path.write_bytes(made_report(path).read_bytes()[:-100]), ""),
    ],
)
def test_what_is_not_a_report_of_the_task_is_refused(server, tmp_path, change, words):
    path = tmp_path / "x.sketch"
    change(path)
    answer = put(server, server.tokens["site"], path.read_bytes())
    assert answer.status_code in (413, 422)
    assert answer.headers["content-type"] == "application/problem+json"
    import re

    assert re.search(words, answer.json()["detail"])
    assert str(server.folder) not in answer.text, "no path of the server"
    assert not list((server.folder / "incoming").iterdir()), "nothing is left behind"


def test_a_lie_about_epsilon_is_noticed(server, tmp_path, monkeypatch):
    """Noise of ε = 2 in a file that says 1."""
    cells = un.discrete_laplace(CELLS, 2) + 0
    honest = un.discrete_laplace(CELLS, 1) + 0
    from unnoise.layout import Account, Layout
    from unnoise.sketches.format import Stored, write_sketch

    layout = Layout(kind="hashed", cells=CELLS, hash_seed=0, item_types=("int",))
    answers = []
    for number, noisy in enumerate((cells, honest)):
        stored = Stored(noisy, un.DiscreteLaplace(1), layout, Account(), frozenset([bytes([number] * 16)]))
        write_sketch(tmp_path / "lie.sketch", stored)
        with site(server, f"liar-{number}") as client:
            answers.append(
                put(server, client._http.headers["Authorization"][7:], (tmp_path / "lie.sketch").read_bytes())
            )
    assert answers[0].status_code == 422
    assert "do not look like it" in answers[0].json()["detail"]
    assert answers[1].status_code == 201, "an honest one passes the same check"


def test_bodies_are_limited_before_they_are_read(server):
    token = server.tokens["site"]
    too_long = put(server, token, b"x" * (8 * CELLS + 3 * 2**20))
    assert too_long.status_code == 413
    bomb = gzip.compress(bytes(200 * 2**20), 9)
    assert len(bomb) < 2**20
    began = time.monotonic()
    assert put(server, token, bomb, **{"Content-Encoding": "gzip"}).status_code == 413
    assert time.monotonic() - began < 20
    assert put(server, token, b"abc", **{"Content-Encoding": "br"}).status_code == 415
    assert put(server, token, b"abc", **{"Content-Encoding": "gzip"}).status_code == 400
    assert put(server, token, b"abc", digest="0" * 64).status_code == 400, "another digest"
    assert put(server, token, b"abc", digest="xyz").status_code == 400
    assert put(server, token, b"abc", period="yesterday").status_code == 400
    assert put(server, token, b"abc", task="nothing").status_code == 404


def test_answers_follow_the_sites_that_are_asked_for(server, tmp_path):
    with server.client() as admin:
        admin.make_task("answers", **TASK, min_sites=2)
        with site(server, "a") as one:
            one.send("answers", made_report(tmp_path / "1.sketch", seed=1), period=DAY)
        with pytest.raises(RefusedError, match="2 sites on, got 1"):
            admin.collect("answers")
        with site(server, "b") as two:
            two.send("answers", made_report(tmp_path / "2.sketch", seed=2), period=DAY)
        both = admin.collect("answers")
        assert both["sites"] == ["a", "b"]
        assert both["power"] == "2"
        truth = len(
            set(np.random.default_rng(1).integers(0, 2000, 3000))
            | set(np.random.default_rng(2).integers(0, 2000, 3000))
        )
        reach = both["reach"]
        assert abs(reach["value"] - truth) <= 1.53 * (reach["high"] - reach["low"]), "six standard errors"
        assert admin.collect("answers") == both, "the same question, the same answer"
        with pytest.raises(RefusedError, match="must have a report of nowhere, got none"):
            admin.collect("answers", sites=["a", "b", "nowhere"])
        admin.merged("answers", tmp_path / "both.sketch")
        assert un.Sketch.load(tmp_path / "both.sketch").noise.power == 2
        digest = admin.reports("answers")[0]["digest"]
        report = admin.raw("GET", f"/tasks/answers/reports/{digest}")
        assert hashlib.sha256(report).hexdigest() == digest
        for kind in ("answer.csv", "report.html"):
            answer = admin._http.get(f"/tasks/answers/{kind}", timeout=600)
            assert answer.status_code == 200
            assert "attachment" in answer.headers["content-disposition"]
        points = admin.call("GET", "/tasks/answers/over-time")["points"]
        assert [point["period"] for point in points] == [DAY]


def test_operations(server):
    assert httpx.get(f"{server.address}/healthz", trust_env=False).json() == {"status": "alive"}
    text = httpx.get(
        f"{server.address}/metrics", headers={"Authorization": f"Bearer {server.tokens['viewer']}"}, trust_env=False
    ).text
    assert "unnoise_requests_total" in text
    assert "un_" not in server.log().replace("unnoise", ""), "no token in the log"
    with pytest.raises(InputError, match=r"TLS|certificate"):
        _require_cover("0.0.0.0", None, None, False)
    _require_cover("0.0.0.0", None, None, True)
    _require_cover("127.0.0.1", None, None, False)
    second = subprocess.run(
        [sys.executable, "-m", "unnoise", "serve", "--data", str(server.folder)],
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert second.returncode == 2
    assert "another server holds it" in second.stderr


def test_tokens_are_not_sent_in_the_clear():
    with pytest.raises(InputError, match="https"):
        Client("http://collector.example", "un_x")


def test_names_and_tokens_are_looked_at_before_they_are_sent(tmp_path):
    """No task is the path of something else, and a broken download leaves nothing behind that stops the next one."""
    asked = []

    def answer(request):
        asked.append(request.url.raw_path.decode())
        if "sketch" in asked[-1]:
            raise httpx.ReadError("gone")
        return httpx.Response(404, json={"detail": "no"})

    for token in ("", "url,user\n/p/1,u2", "ε"):
        with pytest.raises(InputError, match="the token must be one word"):
            Client("http://127.0.0.1:8400", token)
    client = Client("http://127.0.0.1:8400", "un_x", transport=httpx.MockTransport(answer))
    for name in ("", "..", "."):
        with pytest.raises(InputError, match="must hold more than dots"):
            client.task(name)
    with pytest.raises(InputError, match="task must be 1 to 64 letters"):
        client.make_task("a b/c", epsilon="1")
    with pytest.raises(RefusedError):
        client.task("../tokens?x")
    assert asked == ["/tasks/..%2Ftokens%3Fx"]
    for _ in range(2):
        with pytest.raises(UnnoiseError, match="must be reachable, got ReadError once"):
            client.merged("a", tmp_path / "a.sketch")
    assert list(tmp_path.iterdir()) == []


def test_of_two_downloads_into_one_file_the_first_stays(tmp_path, monkeypatch):
    """The second looked before the first was there."""
    target = tmp_path / "all.sketch"
    (tmp_path / "token").write_text("un_x")

    def answer(_: httpx.Request) -> httpx.Response:
        target.write_text("the first")
        return httpx.Response(200, content=b"the second")

    made, transport = Client.__init__, httpx.MockTransport(answer)
    monkeypatch.setattr(Client, "__init__", lambda self, *words, **_: made(self, *words, transport=transport))
    words = ["collect", "reach", "--to", "http://127.0.0.1:1", "--token-file", "token", "-o", target]
    done = run_in(tmp_path, *words)
    assert (done.returncode, target.read_text()) == (2, "the first")
    assert "another program wrote it meanwhile" in done.stderr
    assert (run_in(tmp_path, *words, "--force").returncode, target.read_text()) == (0, "the second")



# ── killed ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_nothing_is_lost_or_taken_twice_when_the_server_is_killed(tmp_path):
    """Kill -9 in the middle of uploads; the client goes on when the server is back."""
    server = Server(tmp_path / "data")
    server.start()
    with server.client() as admin:
        admin.make_task("reach", **TASK)
        token = admin.make_token("site", "berlin")
    days = [f"2026-11-{day:02d}" for day in range(1, 13)]
    paths = [made_report(tmp_path / f"{day}.sketch", seed=number) for number, day in enumerate(days)]
    script = (
        "import sys\nfrom unnoise.serve.client import Client\n"
        "client = Client(sys.argv[1], sys.argv[2], tries=12)\n"
        "for day in sys.argv[4:]:\n    client.send('reach', f'{sys.argv[3]}/{day}.sketch', period=day)\n"
        "    print(day, flush=True)\n"
    )
    command = [sys.executable, "-c", script, server.address, token, str(tmp_path), *days]
    rng = np.random.default_rng(0)
    with subprocess.Popen(command, stdout=subprocess.PIPE) as sending:
        began = time.monotonic()
        for kill in range(4):
            assert sending.stdout.readline(), "one more was taken"
            took, began = (time.monotonic() - began) / (1 if kill else 5), time.monotonic()  # the first loads modules
            time.sleep(took * rng.random())
            server.stop(signal.SIGKILL)
            server.start()
        assert sending.wait(600) == 0
    server.stop(signal.SIGKILL)
    server.start()
    with server.client() as admin:
        rows = admin.reports("reach")
        answer = admin.collect("reach")
    assert [row["period"] for row in rows] == days
    assert {row["digest"] for row in rows} == {hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
    assert answer["reports"] == len(days)
    server.stop()


def test_the_same_on_postgres(tmp_path):
    with postgres() as url, running(tmp_path / "data", "--database", url) as server, server.client() as admin:
        admin.make_task("reach", **TASK)
        with server.client(admin.make_token("site", "berlin")) as client:
            client.send("reach", made_report(tmp_path / "a.sketch"), period=DAY)
        assert admin.collect("reach")["reports"] == 1
        assert not (tmp_path / "data" / "collector.db").exists()
        with pytest.raises(RefusedError, match=r"\(404\): a name must hold no zero byte"):
            admin.task("\0")  # which Postgres cannot even be asked for
