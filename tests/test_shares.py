"""Two servers that see nothing: views, rules, files, kills, lies."""

from __future__ import annotations

import copy
import json
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from statistics_tools import chi_square
from unnoise import testing
from unnoise.errors import FormatError, IncompatibleError, InputError, PrivacyError, SealedError, UnnoiseError
from unnoise.protocols.shares import Server, ServerProcess, Site, Task, add_up, combine
from unnoise.protocols.shares import server as server_module
from unnoise.protocols.shares.site import mask
from unnoise.protocols.shares.task import pack, unpack
from unnoise.sketches.sketch import Sketch

EXACT = 40
"""An ε at which a noise is not 0 once in 10¹⁷ cells."""


def a_task(cells=64, epsilon=EXACT, **rules):
    return Task.known(cells, epsilon=epsilon, epoch="2026-11", **rules)


def a_report(task, name, counts):
    site = Site(task, name)
    site.update(np.arange(len(counts)), counts)
    return site.split()


@pytest.fixture
def servers(tmp_path):
    opened = []

    def make(task):
        pair = [Server.create(tmp_path / side, task, side) for side in ("seed", "difference")]
        opened.extend(pair)
        return pair

    yield make
    for server in opened:
        server.shut()


def deliver(pair, shares, *, to=(0, 1)):
    for i in to:
        pair[i].receive((shares.seed, shares.difference)[i])


# what comes out

def test_the_sum_is_exact_and_a_sealed_sketch_of_power_two(servers):
    task, rng = a_task(), np.random.default_rng(1)
    pair, counts = servers(task), rng.integers(0, 1000, (5, 64))
    for i in range(5):
        deliver(pair, a_report(task, f"site {i}", counts[i]))
    total = add_up(task, *pair)
    assert (total.release().counts == counts.sum(axis=0)).all()
    assert total.noise.power == 2
    assert len(total._identities) == 2
    with pytest.raises(SealedError, match="needs an open sketch"):
        total.update([1])


@pytest.mark.statistical
def test_what_is_added_is_two_whole_noises(servers):
    """χ² of the noise against power 2, false alarms 1e-9; power 1 is rejected (control)."""
    task = a_task(cells=200_000, epsilon=1)
    pair = servers(task)
    for name in "ab":
        deliver(pair, a_report(task, name, np.zeros(200_000, dtype=np.int64)))
    noise = add_up(task, *pair).release().counts
    from unnoise.noise import DiscreteLaplace

    found = {}
    for power in (1, 2):
        law = DiscreteLaplace(1, power)
        found[power] = chi_square(noise, {z: float(law.pmf(z)) for z in range(-40, 41)})
    print(found)
    assert found[2][0] < found[2][1]
    assert found[1][0] > found[1][1]


def test_hashed_cells_are_those_of_a_sketch(servers):
    task = Task.hashed(256, epsilon=EXACT, epoch="e", hash_seed=7, levels=2, max_contributions=3)
    pair = servers(task)
    with testing.noiseless():
        expected = Sketch.hashed(256, epsilon=1, hash_seed=7, levels=2)
    for name in "ab":
        site = Site(task, name)
        items = [f"{name}{i}" for i in range(100)]
        site.update(items, person=items)
        expected.update(items)
        deliver(pair, site.split())
    total = add_up(task, *pair)
    assert (total.release().counts == testing.release(expected).counts).all()
    assert total.person_epsilon == 2 * EXACT  # a person at both sites
    assert "ε = 80" in total.guarantee


@pytest.mark.parametrize("levels", [None, 2])
@pytest.mark.parametrize(("sites", "cells"), [(2, 2048), (3, 4096), (5, 4096)])
def test_a_sum_of_few_sites_comes_in_the_cells_it_needs(servers, levels, sites, cells):
    """It is the sketch that so few cells would have given, and its noise is drawn for those alone."""
    task = Task.hashed(4096 * (levels or 1), epsilon=EXACT, epoch="e", levels=levels, occurrences=100)
    assert Task.from_bytes(task.to_bytes()) == task
    pair = servers(task)
    with testing.noiseless():
        expected = Sketch.hashed(cells * (levels or 1), epsilon=1, levels=levels)
    for name in range(sites):
        site, items = Site(task, str(name)), [f"{name * 60 + i}" for i in range(100)]
        site.update(items)
        expected.update(items)
        deliver(pair, site.split())
    total = add_up(task, *pair)
    assert (total.release().counts == testing.release(expected).counts).all()
    assert total.release().layout.cells == cells * (levels or 1)


def test_a_guess_of_occurrences_is_for_hashed_cells_and_named_by_the_task():
    plain = Task.hashed(512, epsilon=1, epoch="e")
    assert "occurrences" not in unpack(plain.to_bytes(), "task")[0], "a task without it keeps its id"
    assert plain.layout_of(2) == plain.layout
    assert Task.hashed(512, epsilon=1, epoch="e", occurrences=9).id != plain.id
    for wrong in (0, True, 1.5):
        with pytest.raises(InputError, match="occurrences must be an integer"):
            Task.hashed(512, epsilon=1, epoch="e", occurrences=wrong)
    with pytest.raises(InputError, match="not hashed"):
        Task(a_task().layout, a_task().epsilon, "e", occurrences=9)


def test_a_list_of_items_needs_the_same_list():
    task = Task.known(["red", "blue"], epsilon=1, epoch="e")
    Site(task, "a", domain=["red", "blue"]).update(["red"])
    with pytest.raises(InputError, match="domain must be the one of the task"):
        Site(task, "a", domain=["red", "green"])


# what a server sees

def bytes_are_uniform(data):
    statistic, threshold = chi_square(np.frombuffer(data, dtype=np.uint8), dict.fromkeys(range(256), 1 / 256))
    return statistic < threshold


def payloads(task, reports):
    return [np.frombuffer(unpack(report.difference, "share")[1], dtype="<u8") for report in reports]


def views(task, mask_of=mask, seed=None):
    """Whatever the server of differences sees: its shares, and what they tell of each other."""
    shares = []
    for _ in "ab":
        cells = np.full(task.layout.cells, 5, dtype=np.uint64)
        secret = seed or os.urandom(32)
        shares.append(cells - mask_of(secret, cells.size))
    return [shares[0], shares[1], shares[0] - shares[1], shares[0] + shares[1]]


@pytest.mark.statistical
def test_the_view_of_either_server_is_uniform(servers):
    """χ² of all bytes, false alarms 1e-9 each; four broken masks are found by the same test."""
    task = a_task(cells=1 << 16, epsilon=1)
    pair = servers(task)
    reports = [a_report(task, name, np.full(1 << 16, 5)) for name in "ab"]
    for report in reports:
        deliver(pair, report)
    first, second = payloads(task, reports)
    seen = [first, second, first - second, first + second]
    assert all(bytes_are_uniform(view.tobytes()) for view in seen)
    assert all(bytes_are_uniform(view.tobytes()) for view in views(task))
    words = [server.agree([r.report for r in reports]) for server in pair]
    for server, word in zip(pair, reversed(words)):  # one answer alone says nothing either
        assert bytes_are_uniform(unpack(server.answer(word), "answer")[1])
    seeds = b"".join(unpack(a_report(task, "a", [0]).seed, "share")[1] for _ in range(300))
    assert bytes_are_uniform(seeds)
    broken = {
        "32 bits": lambda seed, n: mask(seed, n) >> np.uint64(32),
        "63 bits": lambda seed, n: mask(seed, n) >> np.uint64(1),
        "no mask": lambda seed, n: np.zeros(n, dtype=np.uint64),
    }
    for name, wrong in broken.items():
        assert not all(bytes_are_uniform(view.tobytes()) for view in views(task, wrong)), name
    assert not all(bytes_are_uniform(view.tobytes()) for view in views(task, seed=bytes(32))), "one seed for two"


def test_no_server_takes_the_other_sides_share(servers):
    task = a_task()
    pair, report = servers(task), a_report(task, "a", [1])
    with pytest.raises(PrivacyError, match="must not come to the server of 'seed'"):
        pair[0].receive(report.difference)
    deliver(pair, report)
    pair[0].shut()
    with pytest.raises(PrivacyError, match="must be empty or of the same task and side"):
        Server.create(pair[0]._store.root, task, "difference")


def test_a_site_lets_nothing_else_out():
    task = a_task()
    site = Site(task, "a")
    site.update([3, 3])
    with pytest.raises(PrivacyError):
        site._sketch.release()
    with pytest.raises(PrivacyError):
        site._sketch.save("/tmp/never.sketch")
    with pytest.raises(PrivacyError):
        pickle.dumps(site)
    cells = site._sketch._held.array()
    shares = site.split()
    assert not cells.any()  # wiped
    assert site.split() is shares
    with pytest.raises(SealedError, match="has not split"):
        site.update([1])
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(PrivacyError, match="must not be copied"):
            duplicate(shares)


def test_in_a_fork_everything_is_dead(servers):
    task = a_task()
    pair, site = servers(task), Site(task, "a")
    share = a_report(task, "b", [1]).seed
    pid = os.fork()
    if pid == 0:
        refused = 0
        for action in (lambda: site.update([1]), site.split, lambda: pair[0].receive(share), pair[0].close):
            try:
                action()
            except PrivacyError as error:
                refused += "is a fork of it" in str(error)
        os._exit(refused)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 4


def test_a_server_never_answers_with_noise_of_the_tests(servers):
    task = a_task()
    pair = servers(task)
    for name in "ab":
        deliver(pair, a_report(task, name, [1]))
    with testing.noiseless(), pytest.raises(PrivacyError, match="must come from the operating system"):
        add_up(task, *pair)
    assert not pair[0]._sums


# rules

def test_a_drop_out_costs_nothing_and_a_half_report_is_left_out(servers):
    task, pair = a_task(), None
    pair = servers(task)
    reports = [a_report(task, name, [10 ** i]) for i, name in enumerate("abcd")]
    deliver(pair, reports[0])
    deliver(pair, reports[1])
    deliver(pair, reports[2], to=(0,))
    deliver(pair, reports[3], to=(1,))
    assert add_up(task, *pair).release().counts[0] == 11


def test_repetition_changes_nothing_and_a_changed_repetition_is_refused(servers):
    task = a_task()
    pair = servers(task)
    reports = [a_report(task, name, [1]) for name in "ab"]
    for report in reports * 3:
        deliver(pair, report)
    head, payload = unpack(reports[0].difference, "share")
    with pytest.raises(PrivacyError, match="an id must not be used again"):
        pair[1].receive(pack("share", head, bytes(len(payload))))
    with pytest.raises(PrivacyError, match="an id must not be used again"):
        pair[1].receive(pack("share", {**head, "site": "c"}, payload))
    assert add_up(task, *pair).release().counts[0] == 2
    deliver(pair, reports[0])  # a replay after the sum: known, and its share stays wiped
    assert not pair[0]._store.names("reports", ".share")


def test_a_report_may_be_replaced_until_a_sum_contains_it(servers):
    task = a_task(sums=2)
    pair = servers(task)
    old, new, other = a_report(task, "a", [1]), a_report(task, "a", [7]), a_report(task, "b", [100])
    for report in (old, other, new):
        deliver(pair, report)
    with pytest.raises(PrivacyError, match="was replaced by a later one"):
        deliver(pair, old)
    assert add_up(task, *pair).release().counts[0] == 107
    with pytest.raises(PrivacyError, match=r"one report for the epoch: 'a' gave .*, which a sum contains"):
        deliver(pair, a_report(task, "a", [50]))


def test_a_sum_asked_again_is_the_same_bits_and_overlapping_sums_have_a_limit(servers):
    task = a_task(epsilon=1, sums=2)
    pair = servers(task)
    reports = [a_report(task, name, [1]) for name in "abcd"]
    for report in reports:
        deliver(pair, report)
    ids = [report.report for report in reports]

    def ask(*which):
        return add_up(task, *pair, reports=[ids[i] for i in which]).release().counts.tolist()

    first = ask(0, 1)
    assert ask(1, 0) == first
    ask(0, 2)
    with pytest.raises(PrivacyError, match="at most 2 sums"):
        ask(0, 3)
    assert ask(0, 1) == first  # known sums stay
    assert len(pair[0]._store.names("reports", ".share")) == 3  # a's is wiped
    ask(1, 2, 3)
    pair[0].close()
    assert pair[0]._store.names("reports", ".share") == []
    assert ask(0, 1) == first
    with pytest.raises(PrivacyError, match="is closed"):
        deliver(pair, a_report(task, "e", [1]))


@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("asked", ["offer", "sites"])
def test_who_asks_while_a_report_comes_in_sees_it_whole_or_not_at_all(servers, monkeypatch, asked, replaced):
    """Asked at every write and removal: a share that was on the disk and not yet in memory was a KeyError."""
    task, seen, threads = a_task(), [], []
    server = servers(task)[1]
    server.receive(a_report(task, "a", [1]).difference)

    def while_asked(done):
        def act(*values):
            done(*values)
            threads.append(threading.Thread(target=lambda: seen.append(getattr(server, asked)())))
            threads[-1].start()
            threads[-1].join(0.2)  # time to go wrong in

        return act

    for step in ("write", "wipe", "remove"):
        monkeypatch.setattr(server._store, step, while_asked(getattr(server._store, step)))
    server.receive(a_report(task, "a" if replaced else "b", [2]).difference)
    for thread in threads:
        thread.join()
    assert len(seen) == len(threads) > 1


def test_too_few_sites_are_refused(servers):
    task = a_task(least_sites=3)
    pair = servers(task)
    for name in "ab":
        deliver(pair, a_report(task, name, [1]))
    with pytest.raises(PrivacyError, match="at least 3 sites, got 2"):
        add_up(task, *pair)
    with pytest.raises(InputError, match="has not"):
        pair[0].agree(["0" * 32, "1" * 32, "2" * 32])


# lies

class Liar:
    """A server that agrees on one set and adds another."""

    def __init__(self, server, instead, *, confess):
        self.server, self.instead, self.confess = server, instead, confess

    def offer(self):
        return self.server.offer()

    def agree(self, reports):
        return self.server.agree(reports)

    def answer(self, agreement):
        head, _ = unpack(agreement, "agreement")
        agreed = self.server._require_agreed(head)
        lie, payload = unpack(self.server._noised(tuple(sorted(self.instead))), "answer")
        sites = sorted(self.server._reports[name].site for name in agreed)
        return pack("answer", lie if self.confess else {**lie, "reports": list(agreed), "sites": sites}, payload)


@pytest.mark.parametrize("confess", [True, False])
def test_a_server_that_adds_another_set_is_found(servers, confess):
    task = a_task()
    pair = servers(task)
    reports = [a_report(task, name, [1]) for name in "abc"]
    for report in reports:
        deliver(pair, report)
    liar = Liar(pair[1], [r.report for r in reports[:2]], confess=confess)
    error, text = (IncompatibleError, "reports must be equal") if confess else (FormatError, "do not fit each other")
    with pytest.raises(error, match=text):
        add_up(task, pair[0], liar)


def test_a_lie_in_the_agreement_buys_nothing(servers):
    """What the honest server adds is what it holds and was told alike, within its own limits."""
    task = a_task()
    pair = servers(task)
    for name in "abc":
        deliver(pair, a_report(task, name, [1]))
    digests = unpack(pair[1].offer(), "offer")[0]["reports"]
    ids = sorted(digests)
    says = {"task": task.id, "side": "difference"}
    with pytest.raises(IncompatibleError, match=f"report {ids[0]}"):
        pair[0].answer(pack("agreement", {**says, "reports": {**digests, ids[0]: "0" * 64}}))
    with pytest.raises(IncompatibleError, match="report ffff"):
        pair[0].answer(pack("agreement", {**says, "reports": {**digests, "f" * 32: "0" * 64}}))
    with pytest.raises(PrivacyError, match="at least 2 sites"):
        pair[0].answer(pack("agreement", {**says, "reports": {ids[0]: digests[ids[0]]}}))
    with pytest.raises(PrivacyError, match="must come from the other side"):
        pair[0].answer(pair[0].agree(ids))
    pair[0].answer(pack("agreement", {**says, "reports": {i: digests[i] for i in ids[:2]}}))
    with pytest.raises(PrivacyError, match="at most 1 sums"):  # the difference of two sums would be one site
        pair[0].answer(pack("agreement", {**says, "reports": digests}))


def few_expected(servers):
    """A task whose sums come in fewer cells than it has, two servers, and the reports that both hold of two sites."""
    task = Task.hashed(4096, epsilon=1, epoch="e", item_types=["int"], occurrences=100)
    pair = servers(task)
    for name in "ab":
        deliver(pair, a_report(task, name, [1]))
    ids = list(pair[0]._reports)
    return task, pair, ids


@pytest.mark.parametrize("rule", ["another", "none"])
def test_servers_of_different_versions_refuse_before_anything_is_added(servers, rule):
    """An older server comes to other cells, and may say nothing of them; whichever is asked first, nothing is spent."""
    task, pair, ids = few_expected(servers)
    head, _ = unpack(pair[1].agree(ids), "agreement")
    assert head.pop("cells") == task.layout_of(2).cells == 128
    pair[1].agree = lambda _: pack("agreement", {**head, **({"cells": 4096} if rule == "another" else {})})
    for first, second in (pair, pair[::-1]):
        with pytest.raises(IncompatibleError, match=r"cells of the sum must be equal .*, got 128 .*same version"):
            add_up(task, first, second)
    with pytest.raises(IncompatibleError, match="cells of the sum"):
        pair[0].answer(pair[1].agree(ids))
    assert not any(server._sums for server in pair)
    del pair[1].agree
    assert add_up(task, *pair).release().layout.cells == 128, "the control"


def test_a_sum_that_was_given_keeps_its_cells(servers, monkeypatch):
    """One server answered, then both were upgraded: the other does not answer in other cells."""
    _, pair, ids = few_expected(servers)
    with monkeypatch.context() as former:
        former.setattr(Task, "layout_of", lambda self, _: self.layout)
        pair[0].answer(pair[1].agree(ids))
    assert unpack(pair[0].agree(ids), "agreement")[0]["cells"] == 4096
    with pytest.raises(IncompatibleError, match="must be equal to merge, got 128 and 4096"):
        pair[1].answer(pair[0].agree(ids))


def test_a_server_that_knows_no_rule_of_cells_adds_tasks_that_have_none(servers):
    task = a_task()
    pair = servers(task)
    for name in "ab":
        deliver(pair, a_report(task, name, [1]))
    head, _ = unpack(pair[1].agree(list(pair[1]._reports)), "agreement")
    del head["cells"]
    pair[1].agree = lambda _: pack("agreement", head)
    add_up(task, *pair)


def test_answers_that_do_not_belong_together_are_refused(servers, tmp_path):
    task = a_task()
    pair = servers(task)
    for name in "ab":
        deliver(pair, a_report(task, name, [1]))
    ids = list(pair[0]._reports)
    one = pair[0].answer(pair[1].agree(ids))
    with pytest.raises(InputError, match="of both sides"):
        combine(task, one, one)
    with pytest.raises(IncompatibleError, match="task"):
        combine(a_task(epsilon=2), one, one)


def test_hostile_messages_are_format_errors(servers):
    """Any byte changed, any length cut: FormatError, and nothing is stored."""
    task = a_task(cells=4)
    pair = servers(task)
    message = a_report(task, "a", [1]).difference
    rng = np.random.default_rng(5)
    for _ in range(300):
        broken = bytearray(message)
        broken[rng.integers(len(broken))] ^= 1 + int(rng.integers(255))
        with pytest.raises(FormatError):
            pair[1].receive(bytes(broken))
        with pytest.raises(FormatError):
            pair[1].receive(message[: rng.integers(len(message))])
    head, payload = unpack(message, "share")
    for wrong in ({"site": ""}, {"site": 5}, {"report": "xyz"}, {"account": {"calls": -1, "promised": 0}},
                  {"account": None}):
        with pytest.raises(FormatError):
            pair[1].receive(pack("share", {**head, **wrong}, payload))
    with pytest.raises(FormatError, match="32 bytes long"):
        pair[1].receive(pack("share", head, payload[:-8]))
    assert not pair[1]._reports
    assert not pair[1]._store.names("reports", "")


def test_a_task_survives_its_bytes():
    for task in (Task.hashed(1024, epsilon="1/3", epoch="Oktober", levels=4, max_contributions=2, sums=3),
                 Task.known(["a", "b"], epsilon=1, epoch="x")):
        assert Task.from_bytes(task.to_bytes()) == task
    for wrong in ({"sums": 0}, {"sums": True}, {"epoch": ""}, {"least_sites": 0}):
        with pytest.raises(InputError):
            a_task(**wrong) if "epoch" not in wrong else Task.known(4, epsilon=1, **wrong)


# processes and kills

@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"cells": 3}, "levels of 2\\^k cells"), ({"hash_seed": None}, "levels of 2\\^k cells"),
        ({"kind": "direct"}, "'direct'"), ({"kind": "sampled"}, "rate and hash_seed"),
        ({"kind": "known"}, "one cell per item"),
        ({"pan_private": "yes"}, "type bool"), ({"fingerprint": 5}, "type str"), ({"levels": True}, "type int"),
    ],
)  # fmt: skip
def test_a_task_of_cells_that_no_sketch_has_is_refused(wrong, said):
    """Before anybody counts for it: as sketch files are."""
    head, _ = unpack(Task.hashed(64, epsilon=1, epoch="x").to_bytes(), "task")
    with pytest.raises(FormatError, match=said):
        Task.from_bytes(pack("task", {**head, "layout": {**head["layout"], **wrong}}))


def test_two_processes_exchange_bytes(tmp_path):
    task = a_task(epsilon=EXACT)
    for side in ("seed", "difference"):
        Server.create(tmp_path / side, task, side).shut()
    reports = [a_report(task, name, [3, 4]) for name in "ab"]
    with ServerProcess(tmp_path / "seed") as first, ServerProcess(tmp_path / "difference") as second:
        for report in reports:
            first.receive(report.seed)
            second.receive(report.difference)
        with pytest.raises(UnnoiseError, match="PrivacyError: a share for the side"):
            first.receive(reports[0].difference)
        with pytest.raises(InputError, match="used by one server at a time"):
            Server.open(tmp_path / "seed")
        total = add_up(task, first, second)
        first.close()
    assert total.release().counts[:3].tolist() == [6, 8, 0]
    with Server.open(tmp_path / "seed") as again:
        assert len(again._sums) == 1


def kills(mode, side, twice):
    script = Path(__file__).parent / "shares_kills.py"
    found = subprocess.run(
        [sys.executable, script, mode, side, "1", str(twice)], capture_output=True, text=True, check=True)
    return json.loads(found.stdout)


@pytest.mark.slow
def test_a_server_killed_at_every_step_counts_nothing_twice_and_loses_nothing():
    """At least 200 kills, some of them of the recovery; two broken servers are found by the same runs (control)."""
    both = [kills("honest", side, 30) for side in ("seed", "difference")]
    print([(run["kills"], run["steps"]) for run in both])
    assert sum(run["kills"] for run in both) >= 200
    assert [run["wrong"] for run in both] == [[], []]
    assert kills("unstored", "seed", 0)["wrong"]
    assert kills("torn", "seed", 0)["wrong"]


def test_a_sum_is_named_by_its_task_and_sorted_ids():
    task = a_task()
    assert server_module.sum_id(task, ["b", "a"]) == server_module.sum_id(task, ["a", "b"])
    assert server_module.sum_id(task, ["a"]) != server_module.sum_id(a_task(epsilon=1), ["a"])
