"""The documentation: it builds strictly, its code and commands run, its notebooks run, its figure moves."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import unnoise as un
from browser_tools import complaints, keep, set_screen
from command_tools import run_in, run_line, shell_lines

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
ELSEWHERE = {"cli.md", "collector.md", "sites.md", "spark.md", "scale.md"}
"""Pages whose commands have tests of their own: test_cli_docs, test_serve_docs, test_sites, test_spark_job."""

BEFORE = """
import duckdb
import numpy as np
import pandas as pd
import unnoise as un
df = pd.DataFrame({'country': ['DE', 'FR'] * 9, 'product': ['x', 'y', 'z'] * 6, 'n': [1, 2] * 9, 'user': range(18)})
log = pd.DataFrame({'url': ['/', '/a', '/'] * 9})
tuesday = ['green', 'red']
counts = np.random.default_rng(3).poisson(1.5, 2000).tolist()
data, n = np.random.default_rng(4).integers(0, 500, 4000), 500
urls = ['a', 'b', 'a'] * 50
users = [1, 2, 3] * 50
noisy_counts = np.random.default_rng(1).poisson(2, 2000) + un.discrete_laplace(2000, 1)
sketch = un.Sketch.hashed(2**10, epsilon=1)
sketch.update([f'{i % (1 + i // 5)}' for i in range(2000)])
"""
"""What the pages take for granted."""

PROJECTS = [page for page in sorted(DOCS.rglob("*.md")) if page.read_text().startswith("<!-- project")]
"""Pages that tell a whole story, from raw data to the answer."""

PAGES = [page for page in sorted(DOCS.rglob("*.md")) if page.name not in ELSEWHERE and page not in PROJECTS]


NAMES = [
    "visits", "monday", "tuesday", "campaign", "shop-a", "shop-b", "day1", "day2", "day3", "sales", "events",
]  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with the files that the pages speak of."""
    folder = tmp_path_factory.mktemp("docs")
    rng = np.random.default_rng(0)
    urls = [f"/page/{i}" for i in rng.zipf(1.8, 3000) % 900]
    users = rng.integers(0, 400, 3000)
    columns = {"product": [f"p{i % 50}" for i in users], "country": [("DE", "FR", "IT")[i % 3] for i in users]}
    table = pl.DataFrame({"url": urls, "user": users, "user_id": users, **columns})
    for name in NAMES:
        table.write_csv(folder / f"{name}.csv")
        table.write_parquet(folder / f"{name}.parquet")
    (folder / "products.txt").write_text("\n".join(f"p{i}" for i in range(50)) + "\n")
    for city in ("berlin", "paris"):
        sketch = un.Sketch.hashed(2**10, epsilon=1, labels={"site": city})
        sketch.update(urls)
        sketch.save(folder / f"{city}.sketch")
    noisy = rng.poisson(2, 2000) + un.discrete_laplace(2000, 1)
    (folder / "released.csv").write_text("noisy\n" + "".join(f"{n}\n" for n in noisy))
    (folder / "passwords.freqcount").write_text("1 900\n2 200\n5 30\n40 2\n")
    return folder


def blocks(page: Path, kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", page.read_text(), re.S)


def commands(page: Path) -> list[str]:
    return [line for block in blocks(page, "console") for line in shell_lines(block) if line.startswith("unnoise ")]


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in PAGES if commands(p)], ids=lambda p: p.name)
@pytest.mark.filterwarnings("default")  # of what other libraries say
def test_commands_run(page, place):
    for line in commands(page):
        words = shlex.split(line, comments=True)
        if words[1] != "demo":  # make demo is a test of its own
            done = run_in(place, *words[1:], *_forced(words))
            assert done.returncode == 0, (line, done.stderr)


def _forced(words: list[str]) -> list[str]:
    """Pages write the same names: outputs may be there already."""
    return ["--force"] if words[1] in ("sketch", "merge") else []


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=lambda p: p.name)
@pytest.mark.filterwarnings("default")  # of what other libraries say
def test_code_runs(page, place, monkeypatch):
    """That it runs is the claim: plans are sought roughly, of four releases each (test_plan has their figures)."""
    monkeypatch.chdir(place)
    monkeypatch.setattr("unnoise.answers.plan.CLOSE", 1.0)
    monkeypatch.setitem(un.plan.__kwdefaults__, "repetitions", 4)
    names: dict = {}
    exec(BEFORE, names)
    for code in blocks(page, "python"):
        for part in beside(code):
            if part != code:
                names["s"] = un.Sketch.hashed(2**10, epsilon=1, max_contributions=5)
            exec(compile(part, str(page), "exec"), names)


def beside(code: str) -> list[str]:
    """Return the pieces of a block that are run alone: calls of one sketch show what it takes, beside each other."""
    lines = [line for line in code.split("\n") if line]
    return lines if len(lines) > 1 and all(line.startswith("s.update(") for line in lines) else [code]


ANSWERS = {
    "reach": [("campaign.html", ()), ("channels.json", ())],
    "degrees": [
        *((f"{name}.json", ("answers",)) for name in ("degrees", "text", "published")),
        ("degrees.html", ()),
    ],
    "daily": [("week.json", ("answers",)), ("month.json", ("answers",)), ("month.html", ())],
    "sites": [("union.json", ()), ("all.html", ())],
    "start": [],
}
"""What a project leaves behind, and where in it the answers are that its truth.json knows."""


@pytest.mark.slow
@pytest.mark.parametrize("page", PROJECTS, ids=lambda p: p.stem)
@pytest.mark.filterwarnings("default")  # of what other libraries say
def test_projects_run_from_top_to_bottom(page, tmp_path, monkeypatch):
    """Truth lies within 3.2 intervals of every answer: 6.2 standard deviations, a false alarm in 10⁹.

    What is said to rest on the model more than on the data must be right to a half.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    names: dict = {}
    for kind, code in re.findall(r"```(python|console)\n(.*?)```", page.read_text(), re.S):
        if kind == "python":
            exec(compile(code, str(page), "exec"), names)
            continue
        for line in shell_lines(code):
            run_line(line)
    truth = json.loads(Path("truth.json").read_text()) if ANSWERS[page.stem] else {}
    for name, where in ANSWERS[page.stem]:
        text = Path(name).read_text()
        assert len(text) > 100
        if not name.endswith(".json") or not (where or name == "union.json"):
            continue
        found = json.loads(text)
        for key in where:
            found = found[key]
        known = truth.get(Path(name).stem, truth)
        known = {"union": known} if isinstance(known, int) else known
        for question in set(known) & set(found):
            e, true = found[question], known[question]
            print(f"{name}: {question} {e['value']:,.0f} ({e['low']:,.0f} to {e['high']:,.0f}), truth {true:,}")
            reach = 3.2 * (max(e["high"] - e["value"], e["value"] - e["low"]) + 1)
            assert abs(e["value"] - true) < (true / 2 if e.get("note") == "mostly model" else reach)


def test_there_is_a_project_for_every_story():
    assert {page.stem for page in PROJECTS} == set(ANSWERS)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return folder


@pytest.mark.slow
def test_the_site_builds_and_asks_nobody_else(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 25
    outside = re.compile(r"""<(?:script|link|img|iframe)[^>]+(?:src|href)=["'](https?:)?//[^"']+""")
    for page in pages:
        found = [tag for tag in outside.findall(page.read_text())]
        assert not found, f"{page.name} would load from elsewhere"


@pytest.mark.slow
def test_the_reference_is_for_people(site):
    """No roles of Sphinx, and no sentence in the column of types (scripts/readable_pages.py)."""
    page = (site / "reference.html").read_text()
    assert not re.search(r":(?:func|meth|class|mod|attr):|<th>Type</th>", page)


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("width", [390, 900, 1400])
def test_the_figure_moves(site, browser, width):
    set_screen(browser, width=width)
    browser.get((site / "index.html").as_uri())
    figure = browser.find_element("id", "unnoise-figure")
    before = float(figure.get_attribute("data-recovered")), float(figure.get_attribute("data-clamped"))
    assert before[0] < before[1], "recovery beats clamping"
    browser.execute_script(
        "const bar = document.querySelector('#unnoise-figure input'); bar.value = 1;"
        "bar.dispatchEvent(new Event('input'))"
    )
    after = float(figure.get_attribute("data-clamped"))
    assert after < before[1], "less noise, less error"
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    keep(browser, f"docs-{width}", whole=False)
    assert complaints(browser) == []


@pytest.mark.slow
@pytest.mark.browser
def test_search_works_on_pages_opened_from_the_disk(site, browser):
    from selenium.webdriver.support.ui import WebDriverWait

    set_screen(browser)
    asked = (("index.html", "pan-private", "privacy.html"), ("howto/reach.html", "ledger", "cli.html"))
    for page, question, leads_to in asked:
        browser.get((site / page).as_uri())
        browser.execute_script(
            "document.getElementById('__search').click();"
            "const field = document.querySelector('.md-search__input'); field.focus(); field.value = arguments[0];"
            "field.dispatchEvent(new KeyboardEvent('keyup', {bubbles: true}))", question,
        )  # fmt: skip
        found = WebDriverWait(browser, 600).until(
            lambda b: [a.get_attribute("href") for a in b.find_elements("css selector", ".md-search-result__link")]
        )
        assert any(leads_to in link for link in found), found
    assert complaints(browser) == []


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted((DOCS / "notebooks").glob("*.ipynb")), ids=lambda p: p.stem)
def test_notebooks_run(path):
    nbformat = pytest.importorskip("nbformat")
    from nbclient import NotebookClient

    NotebookClient(nbformat.read(path, as_version=4), timeout=600, kernel_name="python3").execute()


def test_there_are_six_notebooks_and_a_page_for_every_reader():
    assert len(list((DOCS / "notebooks").glob("*.ipynb"))) == 6
    readers = {page.stem for page in (DOCS / "readers").glob("*.md")}
    assert readers == {"privacy-officer", "analyst", "engineer", "researcher"}


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda p: p.name)
def test_pages_can_be_read_as_they_are_shown(page):
    """Commands are not hidden past the right edge; a list within a list needs four spaces to be one."""
    for block in blocks(page, "console"):
        assert all(len(line) <= 130 for line in block.split("\n")), f"{page.name}: break this command with a backslash"
    bare = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    assert not re.search(r"^ {1,3}[*-] ", bare, re.M), f"{page.name}: indent this list by four spaces"


TOP = [ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY", "CODE_OF_CONDUCT", "CHANGELOG", "paper")]


@pytest.mark.parametrize("page", [*TOP, *sorted(DOCS.rglob("*.md"))], ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    """Files and headings of our own; what lies elsewhere is an https address."""
    bare = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)(?: \"[^\"]*\")?\)", bare):
        if re.match(r"[a-z]+:", target):
            assert target.startswith(("https://", "mailto:")), target
            continue
        name, _, heading = target.partition("#")
        other = (page.parent / name).resolve() if name else page
        assert other.exists(), f"{page.name}: {target}"
        if heading and other.suffix == ".md":
            assert heading in headings(other), f"{page.name}: {target}"


def headings(page: Path) -> set[str]:
    """Return the names of a page's headings, as the site makes them."""
    from markdown.extensions.toc import slugify

    found = re.findall(r"^#+ (.+?)\s*(?:\{#(\S+)\})?$", re.sub(r"```.*?```", "", page.read_text(), flags=re.S), re.M)
    return {given or slugify(re.sub(r"[`*]|\]\([^)]*\)|\[", "", text), "-") for text, given in found}


RESEARCHER = (DOCS / "readers" / "researcher.md").read_text()


def test_every_figure_has_its_command():
    """Every section that a script writes and every picture of numbers stands in the researcher's list."""
    rows = [line for line in RESEARCHER.split("\n") if line.startswith("|") and "python " in line]
    for page in ("benchmarks.md", "trust.md", "parameters.md", "architecture.md"):
        for name in re.findall(r"<!-- ([\w-]+):begin -->", (DOCS / page).read_text()):
            word = name.partition("-")[0] if name.startswith("collector") else name
            assert name == "summary" or any(re.search(rf"\b{word}\b", row.split("|")[1]) for row in rows), (page, name)
    drawn = {"chooser.svg", "flow.svg", "report.png"}  # by hand, and a photograph of the page
    for picture in {path.name for path in (DOCS / "img").iterdir()} - drawn:
        assert re.sub(r"journey-[\w-]+", "journey-*", picture) in RESEARCHER, picture
    for script in set(re.findall(r"python ((?:benchmarks|audits|scripts)/\w+\.py)", RESEARCHER)):
        assert (ROOT / script).exists(), script
    shown = {f"benchmarks/{path.name}" for path in (ROOT / "benchmarks").glob("[a-z]*.py")}
    assert shown <= set(re.findall(r"benchmarks/\w+\.py", RESEARCHER)), "a benchmark that nobody is told of"
