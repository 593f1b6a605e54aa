"""Two servers over HTTP: shares in, sums out, nothing but what was asked for."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import numpy as np
import pytest

from serve_tools import CELLS, running
from unnoise import Sketch
from unnoise.errors import InputError
from unnoise.protocols.shares import Site
from unnoise.serve.client import RefusedError
from unnoise.serve.run import backup, restore
from unnoise.serve.shares import Shelf
from unnoise.serve.tasks import Task

TASK = {"epsilon": "1", "cells": CELLS, "item_types": ["int"], "way": "two-servers", "min_sites": 2, "noun": "user"}
NAMES = ["berlin", "oslo", "roma"]


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """A seed server, a difference server and a collector that may ask both; every test has a task of its own."""
    folder = tmp_path_factory.mktemp("three")
    with (
        running(folder / "seed", "--side", "seed") as seed,
        running(folder / "difference", "--side", "difference") as difference,
    ):
        servers = []
        for server in (seed, difference):
            with server.client() as admin:
                servers.append({"url": server.address, "token": admin.make_token("collector")})
                server.sites = {name: admin.make_token("site", name) for name in NAMES}
        (folder / "servers.json").write_text(json.dumps({"servers": servers}))
        with running(folder / "data", "--servers", str(folder / "servers.json")) as collector:
            yield seed, difference, collector


def made(admin, name: str, **more: object) -> Task:
    """Make a task, known to both servers once somebody asks for its reports."""
    admin.make_task(name, **TASK, **more)
    assert admin.reports(name) == []
    return Task.from_dict({"id": name, **TASK, **more})


def items_of(name: str) -> np.ndarray:
    return np.random.default_rng(NAMES.index(name)).integers(0, 2000, 2500)


def report(task: Task, name: str, seed, difference, folder) -> None:
    site = Site(task.for_servers("once"), name)
    site.update(items_of(name))
    shares = site.split()
    for server, message in ((seed, shares.seed), (difference, shares.difference)):
        (folder / "share").write_bytes(message)
        with server.client(server.sites[name]) as client:
            assert client.send_share(folder / "share")["fresh"]
            assert not client.send_share(folder / "share")["fresh"], "again: no change, and told so"


def test_sums_are_answered_and_nothing_else(three, tmp_path):
    seed, difference, collector = three
    with collector.client() as admin:
        task = made(admin, "reach")
        for name in NAMES:
            report(task, name, seed, difference, tmp_path)
        assert sorted(row["site"] for row in admin.reports("reach")) == NAMES
        with pytest.raises(RefusedError, match="2 sites on, got 0"):
            admin.collect("reach")
        row = admin.ask_for_sum("reach")
        assert row["sites"] == NAMES
        answer = admin.collect("reach")
        truth = len(set(np.concatenate([items_of(name) for name in NAMES])))
        assert answer["power"] == "2", "two noises, whatever the number of sites"
        reach = answer["reach"]
        assert abs(reach["value"] - truth) <= 1.53 * (reach["high"] - reach["low"]), "six standard errors"
        page = admin._http.get("/view/reach").text
        assert f"1 sum of {len(NAMES)} reports released" in page
        assert f"Two servers added up {len(NAMES)} reports" in page
        assert admin.ask_for_sum("reach")["digest"] == row["digest"], "asked again: the same bits"
        with pytest.raises(RefusedError, match="sums"):
            admin.ask_for_sum("reach", sites=["berlin", "oslo"])  # the reports' one sum is spent
        with pytest.raises(RefusedError, match="was not"):
            admin.collect("reach", sites=["berlin", "oslo"])
    with seed.client() as keeper:
        assert "/shares/{task}/answer" in keeper.call("GET", "/openapi.json")["paths"]
        noted = [(entry["did"], entry["what"]) for entry in keeper.call("GET", "/audit")["entries"]]
    shared = task.for_servers("once").id
    assert noted.count(("made share task", shared)) == 1, "looking at a task is nothing for the audit log"
    limits = Path(f"/proc/{seed.process.pid}/limits").read_text()
    soft, hard = next(line for line in limits.splitlines() if line.startswith("Max open files")).split()[3:5]
    assert soft == hard, "every period keeps a file open"
    kept = seed.folder / "shares" / shared / "reports"
    assert kept.is_dir()
    assert list(kept.glob("*.share")) == [], "shares are gone when their sums are spent"


def test_a_share_names_the_site_that_sends_it(three, tmp_path):
    seed, _, collector = three
    with collector.client() as admin:
        task = made(admin, "named")
    site = Site(task.for_servers("once"), "berlin")
    (tmp_path / "share").write_bytes(site.split().seed)
    with seed.client(seed.sites["oslo"]) as thief, pytest.raises(RefusedError, match="must name the site"):
        thief.send_share(tmp_path / "share")
    with seed.client(seed.sites["berlin"]) as honest:
        for name in ("x" * 300, "é"):
            with pytest.raises(RefusedError, match=r"\(404\): there is no task"):
                honest.raw("GET", f"/shares/{name}")
        assert honest.send_share(tmp_path / "share")["fresh"]
        with pytest.raises(RefusedError, match="403"):
            honest.raw("GET", f"/shares/{task.for_servers('once').id}/offer")


def test_no_server_is_sent_both_shares(three, tmp_path):
    """A server that sees both has the cells, though it refuses one of them."""
    seed, difference, collector = three
    with collector.client() as admin:
        task = made(admin, "sides").for_servers("once")
    shares = Site(task, "berlin").split()
    (tmp_path / "a.seed").write_bytes(shares.seed)
    (tmp_path / "a.difference").write_bytes(shares.difference)
    for server, mine, other in ((seed, "seed", "difference"), (difference, "difference", "seed")):
        with server.client(server.sites["berlin"]) as client:
            methods: list[str] = []
            client._http.event_hooks = {"request": [lambda request, seen=methods: seen.append(request.method)]}
            with pytest.raises(InputError, match=rf"a\.{other}: a share must go to the server of its side, {other}"):
                client.send_share(tmp_path / f"a.{other}")
            assert methods == ["GET"], "it has not left"
            assert client.send_share(tmp_path / f"a.{mine}")["fresh"]
            assert methods == ["GET", "GET", "POST"], "the control"


def test_a_folder_of_one_side_never_serves_the_other(tmp_path):
    """It would ask sites for the other share of what it holds: both together are the cells."""
    Shelf(tmp_path, "seed").make(Task(id="t", **TASK).for_servers("once").to_bytes())
    Shelf(tmp_path, "seed")
    with pytest.raises(InputError, match="must be of one side for ever, got --side difference"):
        Shelf(tmp_path, "difference")


def test_a_killed_server_gives_the_same_sum(three, tmp_path):
    seed, difference, collector = three
    with collector.client() as admin:
        task = made(admin, "killed")
        for name in NAMES[:2]:
            report(task, name, seed, difference, tmp_path)
        first = admin.ask_for_sum("killed")["digest"]
        for server in (seed, difference, collector):
            server.stop(signal.SIGKILL)
            server.start()
        assert admin.ask_for_sum("killed", sites=NAMES[:2])["digest"] == first
        assert admin.collect("killed")["reports"] == 1


def test_a_sum_of_few_sites_in_fewer_cells_is_answered(three, tmp_path):
    """Every way out of the collector takes the cells that the sum came in."""
    seed, difference, collector = three
    with collector.client() as admin:
        task = made(admin, "few", occurrences=1000)
        for name in NAMES[:2]:
            report(task, name, seed, difference, tmp_path)
        admin.ask_for_sum("few")
        answer = admin.collect("few")
        admin.merged("few", tmp_path / "few.sketch")
        page = admin._http.get("/tasks/few/report.html").text
    assert Sketch.load(tmp_path / "few.sketch").release().layout.cells == 2048 < CELLS
    truth, reach = len(set(items_of("berlin")) | set(items_of("oslo"))), answer["reach"]
    assert abs(reach["value"] - truth) <= 1.53 * (reach["high"] - reach["low"]), "six standard errors"
    assert "2,048" in page
    assert "4,096" not in page


def test_a_collector_set_back_to_a_back_up_asks_for_its_sums_again(three, tmp_path):
    """What was paid for is not lost: both servers remember it, bit by bit. What was never sent is asked of nobody."""
    seed, difference, collector = three
    with collector.client() as admin:
        task = made(admin, "back")
        with pytest.raises(RefusedError, match="got none of any"):
            admin.ask_for_sum("back")
        for name in NAMES[:2]:
            report(task, name, seed, difference, tmp_path)
        backup(collector.folder, tmp_path / "back.tar")
        first = admin.ask_for_sum("back")
    restore(tmp_path / "back.tar", tmp_path / "data")
    token = collector.token
    with (
        running(tmp_path / "data", "--servers", str(collector.folder.parent / "servers.json")) as restored,
        restored.client(token) as admin,
    ):
        assert admin.call("GET", "/tasks/back/sums")["sums"] == []
        with pytest.raises(RefusedError, match="got none of berlin, oslo, roma"):
            admin.ask_for_sum("back", sites=NAMES)
        again = admin.ask_for_sum("back")
        assert (again["reports"], again["sites"]) == (first["reports"], NAMES[:2])
        assert admin.ask_for_sum("back", sites=NAMES[:2])["digest"] == again["digest"]
        admin.merged("back", tmp_path / "again.sketch")
        assert len(admin.call("GET", "/tasks/back/sums")["sums"]) == 1, "nothing half-begun is left"
    with collector.client() as admin:
        admin.merged("back", tmp_path / "first.sketch")
    first_cells, again_cells = (Sketch.load(tmp_path / f"{one}.sketch").release().counts for one in ("first", "again"))
    assert (first_cells == again_cells).all(), "the same noise"
