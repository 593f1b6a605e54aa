"""The collector's page in a real browser: answers, subsets, fresh reports without reload, phone, dark, keyboard."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from pathlib import Path
from urllib.parse import urljoin

import httpx
import numpy as np
import pytest

import unnoise as un
from browser_tools import complaints, keep, set_screen
from serve_tools import CELLS, running
from unnoise import serve
from unnoise.answers.estimate import sensible
from unnoise.serve.run import DATABASE

TASK = {
    "epsilon": "2", "cells": CELLS, "item_types": ["int"], "every": "day", "noun": "user",
    "title": "Autumn & <b>winter</b>",
}  # fmt: skip
NAMES = ["berlin", "oslo", "roma"]


def send(server, admin, name: str, day: int, seed: int, folder) -> None:
    sketch = un.Sketch.hashed(CELLS, epsilon=2, item_types=["int"])
    sketch.update(np.random.default_rng(seed).integers(0, 1500, 1200))
    sketch.save(folder / f"{name}-{day}.sketch")
    with server.client(admin.make_token("site", name)) as client:
        client.send("campaign", folder / f"{name}-{day}.sketch", period=f"2026-11-{day:02d}")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    with running(tmp_path_factory.mktemp("collector") / "data") as made, made.client() as admin:
        admin.make_task("campaign", **TASK)
        for number, name in enumerate(NAMES):
            for day in (1, 2):
                if (name, day) != ("oslo", 2):
                    send(made, admin, name, day, 10 * number + day, folder)
        made.viewer, made.folder_of_reports = admin.make_token("viewer"), folder
        yield made


PATIENCE = 600
"""Seconds until something must show: some machines stand still for minutes."""


def until(browser, server, found):
    """Wait for what is found; where it never comes, say what page, console, jobs and log tell."""
    from selenium.common.exceptions import TimeoutException
    from selenium.webdriver.support.ui import WebDriverWait

    try:
        return WebDriverWait(browser, PATIENCE).until(found)
    except TimeoutException:
        page = browser.find_element("tag name", "body").text
        with contextlib.closing(sqlite3.connect(server.folder / DATABASE)) as tables:
            jobs = tables.execute("select id, state, tries, updated, substr(answer, 1, 300) from jobs").fetchall()
        told = [page, *map(str, complaints(browser)), *map(str, jobs), server.log()[-5000:]]
        pytest.fail("the page did not show it:\n" + "\n".join(told))


def enter(browser, server) -> str:
    browser.get(f"{server.address}/login#{server.viewer}")
    until(browser, server, lambda b: b.title.startswith("Tasks"))
    browser.get(f"{server.address}/view/campaign")

    def headline(b):
        text = b.find_element("id", "headline").text
        return text if re.search(r"\d users|too noisy", text, re.IGNORECASE) else None

    return str(until(browser, server, headline))


@pytest.mark.browser
def test_the_page_answers_and_follows_the_sites(browser, server):
    from selenium.webdriver.common.keys import Keys

    set_screen(browser)
    everyone = enter(browser, server)
    labels = [label.text for label in browser.find_elements("css selector", "#sites label")]
    assert [label.split()[0] for label in labels] == NAMES
    assert "1 missing" in labels[1], "the gap of a site is shown"
    assert len(browser.find_elements("css selector", "#frequency tbody tr")) == 5
    assert browser.find_element("tag name", "h1").text == TASK["title"], "text stays text"
    cells = until(browser, server, lambda b: b.find_elements("css selector", "#overlap tbody td[title]"))
    assert len(cells) == 9, "every two of three sites"
    shown = browser.execute_script("return document.querySelectorAll('#overlap tbody td[title]')[1].textContent")
    assert re.fullmatch(r"([~≈] )?[\d,]+|\?", shown), "with a sign where it is partly model"
    box = browser.find_element("css selector", "#sites input[value=oslo]")
    box.send_keys(Keys.SPACE)  # by the keyboard
    until(browser, server, lambda b: b.find_element("id", "headline").text != everyone)
    assert "1 site, 1 report" in browser.find_element("id", "headline-range").text
    assert "site=oslo" in browser.find_element("css selector", "[data-export=sketch]").get_attribute("href")
    browser.find_element("id", "everyone").click()
    until(browser, server, lambda b: b.find_element("id", "headline").text == everyone)
    asked = browser.execute_script("return performance.getEntriesByType('resource').map(e => e.name)")
    assert asked
    assert all(name.startswith(server.address) for name in asked), "no request leaves the server"
    assert complaints(browser) == []


@pytest.mark.browser
def test_fresh_reports_appear_without_reload(browser, server):
    set_screen(browser)
    enter(browser, server)
    browser.execute_script("window.stayed = true")
    with server.client() as admin:
        send(server, admin, "wien", 2, 77, server.folder_of_reports)
    until(browser, server, lambda b: "wien" in b.find_element("id", "sites").text)
    assert browser.execute_script("return window.stayed"), "no reload"


@pytest.mark.browser
@pytest.mark.parametrize("place", ["", "view/campaign"])
def test_a_page_whose_token_is_revoked_goes_to_the_door(browser, server, place):
    """It would show what was known at the end, as if it were news, for as long as it is open."""
    set_screen(browser)
    with server.client() as admin:
        token = admin.make_token("viewer")
        browser.get(f"{server.address}/login#{token}")
        until(browser, server, lambda b: b.title.startswith("Tasks"))
        browser.get(f"{server.address}/{place}")
        admin.revoke(token)
        admin.make_task("campaign", **TASK)  # news, so that it is noticed at once; it changes nothing
    until(browser, server, lambda b: b.current_url.endswith("/login"))
    browser.get(f"{server.address}/login#{server.viewer}")  # on the door that is open already: no page is loaded
    until(browser, server, lambda b: b.title.startswith("Tasks"))
    browser.delete_all_cookies()
    browser.get("about:blank")


@pytest.mark.browser
@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (390, "light"), (1200, "dark")])
def test_it_fits_every_screen(browser, server, width, scheme):
    set_screen(browser, width=width, scheme=scheme)
    enter(browser, server)
    wide = browser.execute_script("return document.documentElement.scrollWidth")
    assert wide <= width, "nothing is pushed off the screen"
    unnamed = browser.execute_script(
        "return [...document.querySelectorAll('input, button, a, figure, table')].filter("
        "e => !(e.labels?.length || e.textContent.trim() || e.getAttribute('aria-labelledby'))).length"
    )
    assert unnamed == 0, "everything has a name for screen readers"
    shown = browser.execute_script(
        "document.querySelector('#time-title').parentElement.hidden = true;"
        "return [...document.querySelectorAll('[hidden]')].filter(e => e.getClientRects().length).length"
    )
    assert shown == 0, "what is hidden does not show"
    browser.execute_script("document.querySelector('#time-title').parentElement.hidden = false")
    until(browser, server, lambda b: b.find_elements("css selector", "#overlap tbody td[title]"))
    keep(browser, f"collector-{width}-{scheme}")


# ── when something goes wrong ─────────────────────────────────────────────────────────────────────────────────────


def wrap_fetch(browser, body: str) -> None:
    """Put something between the page and its server: ``body`` sees ``address`` and ``real``, the true fetch."""
    browser.execute_script(
        f"const real = window.fetch.bind(window); window.fetch = async (address, options) => {{ {body} }};"
    )


def choose(browser, *names: str) -> None:
    for name in names:
        browser.execute_script(f"document.querySelector('#sites input[value={name}]').click()")


@pytest.mark.browser
def test_an_answer_that_comes_too_late_is_not_shown(browser, server):
    """One site is chosen and left again for another: its answer, slow on the way, must not stand under the other."""
    set_screen(browser)
    enter(browser, server)
    wrap_fetch(
        browser,
        "const answer = await real(address, options); if (address.includes('answer?site=berlin')) "
        "{ await new Promise((done) => { window.letGo = done; }); window.late = true; } return answer;",
    )
    choose(browser, "berlin", "berlin", "roma", "oslo")
    until(browser, server, lambda b: "2 sites, 3 reports" in b.find_element("id", "headline-range").text)
    until(browser, server, lambda b: b.execute_script("return !!window.letGo"))
    browser.execute_script("window.letGo()")
    until(browser, server, lambda b: b.execute_script("return window.late"))
    browser.execute_async_script("setTimeout(arguments[0], 200)")  # long enough to show what must not show
    until(browser, server, lambda b: b.execute_script("return !document.querySelector('[aria-busy]')"))
    assert "2 sites, 3 reports" in browser.find_element("id", "headline-range").text


@pytest.mark.browser
def test_a_server_that_stumbles_is_asked_again(browser, server):
    """An error of the server, an answer that breaks off, a network that is gone: the page asks until it is told."""
    set_screen(browser)
    enter(browser, server)
    wrap_fetch(
        browser,
        "window.asked = (window.asked ?? 0) + 1; if (window.asked === 1) throw new TypeError('gone'); "
        "if (window.asked === 2) return new Response('{\"detail\": \"fault\"}', { status: 503 }); "
        "if (window.asked === 3) return new Response('{\"rea', { status: 200 }); return real(address, options);",
    )
    choose(browser, "oslo")
    until(browser, server, lambda b: "1 site, 1 report" in b.find_element("id", "headline-range").text)
    assert browser.execute_script("return window.asked") > 3


@pytest.mark.browser
def test_a_refusal_takes_the_numbers_of_another_question_away(browser, server):
    set_screen(browser)
    enter(browser, server)
    wrap_fetch(browser, "return new Response('{\"detail\": \"three sites or none\"}', { status: 409 });")
    choose(browser, "oslo")
    until(browser, server, lambda b: b.find_element("id", "headline").text == "No answer")
    assert browser.find_element("id", "headline-range").text == "three sites or none"
    assert browser.find_elements("css selector", "#frequency tbody tr") == []


@pytest.mark.browser
def test_a_page_opened_before_anything_was_sent(browser, server):
    """It says so, and what is promised follows what is sent."""
    set_screen(browser)
    with server.client() as admin:
        admin.make_task("empty", **TASK)
        browser.get(f"{server.address}/login#{server.viewer}")
        until(browser, server, lambda b: b.title.startswith("Tasks"))
        browser.get(f"{server.address}/view/empty")
        until(browser, server, lambda b: b.find_element("id", "headline").text == "Nothing sent yet")
        assert "0 reports" in browser.find_element("id", "ledger").text
        sketch = un.Sketch.hashed(CELLS, epsilon=2, item_types=["int"])
        sketch.update(range(500))
        sketch.save(server.folder_of_reports / "first.sketch")
        with server.client(admin.make_token("site", "bern")) as client:
            client.send("empty", server.folder_of_reports / "first.sketch", period="2026-11-03")
    until(browser, server, lambda b: "users" in b.find_element("id", "headline").text)
    until(browser, server, lambda b: "1 report" in b.find_element("id", "ledger").text)


# ── wherever the collector is ─────────────────────────────────────────────────────────────────────────────────────


def test_a_proxy_may_put_it_under_a_prefix(server):
    """Every address of a page, its scripts and its redirects is relative, and so is where the cookie goes."""
    with server.client() as admin:
        http = admin._http
        pages = {path: http.get(path).text for path in ("/", "/view/campaign", "/login")}
        for path in ("/static/view.js", "/static/news.js", "/static/login.js", "/static/tasks.js"):
            assert not re.search(r"[\"'`]/(?![/ ])\w", http.get(path).text), path
    for path, page in pages.items():
        for link in re.findall(r'(?:href|src|action)="([^"#]+)"', page):
            assert urljoin(f"http://c/prefix{path}", link).startswith("http://c/prefix/"), (path, link)
    with httpx.Client(base_url=server.address, trust_env=False) as stranger:
        for path, target in (("/", "./login"), ("/view/campaign", "../login")):
            assert stranger.get(path).headers["location"] == target
        entered = stranger.post("/login", data={"token": server.viewer})
        assert entered.headers["location"] == "./"
        assert "path=" not in entered.headers["set-cookie"].lower(), "browsers take the folder of the address"
        assert stranger.get("/").status_code == 200
        assert stranger.post("/logout").headers["location"] == "./login"
        assert stranger.get("/").status_code == 303, "the cookie is gone"


def test_without_scripts_the_page_says_so_and_its_files_are_there(server):
    with server.client() as admin:
        page = admin._http.get("/view/campaign").text
        assert "need JavaScript" in re.search(r"<noscript>(.*?)</noscript>", page)[1]
        for name in ("answer.csv", "answer", "report.html", "sketch"):
            assert f'href="../tasks/campaign/{name}"' in page
        table = admin._http.get("/tasks/campaign/answer.csv").text
    numbers = [cell for line in table.splitlines()[1:] for cell in line.split(",")[2:5] if cell]
    assert numbers
    assert all(len(re.sub(r"e.*|[-.]", "", cell).lstrip("0")) <= 13 for cell in numbers), "no digits of rounding"


@pytest.mark.browser
def test_the_page_shows_what_collect_prints(browser, server, tmp_path):
    """The same digits, and intervals that are rounded outwards."""
    enter(browser, server)
    cells = "return [...document.querySelectorAll('#frequency tbody tr')].map(r => [...r.cells].map(c => c.innerText))"
    rows = until(browser, server, lambda b: b.execute_script(cells))
    with server.client() as admin:
        answer = admin.collect("campaign")
    assert len(rows) == len(answer["at_least"])
    for row, n in zip(rows, answer["at_least"]):
        value, low, high = sensible(un.Estimate(n["value"], 0.0, n["low"], n["high"]))
        assert row[1] == ("too noisy to tell" if n["marked"] else value)
        assert row[2].startswith(f"{low} – {high}")
    tried = [[0, 0.2, 0.1], [9018.2, 9327.9, 9171.4], [41.3, 2089.0, 62.0], [0, 21087.57, 5024.6], [3, 3, 3],
             [1595.39, 2284.36, 1939.88], [0.02, 0.4, 0.15], [180, 12345678, 400000]]  # fmt: skip
    source = (Path(serve.__file__).parent / "static" / "view.js").read_text()
    words = re.search(r"const coarse = .*?\nconst words = [^\n]*\n", source, re.DOTALL)[0]
    span = re.search(r"const range = [^\n]*\n", source)[0]
    for low, high, value in tried:
        asked = f"{words}{span}return [words(arguments[0]), range(arguments[0])]"
        shown = browser.execute_script(asked, {"value": value, "low": low, "high": high, "marked": False})
        expected = sensible(un.Estimate(value, 0.0, low, high))
        assert shown == [expected[0], f"{expected[1]} – {expected[2]}"]
