"""The documentation: it builds strictly, its code and commands run, its notebooks run, its figure moves."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from browser_tools import complaints, keep, open_browser, set_screen

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
ELSEWHERE = {"cli.md", "collector.md", "sites.md", "spark.md", "other-libraries.md", "scale.md"}
"""Pages whose commands have tests of their own (test_cli_docs, test_serve_docs, …) or need a cluster."""

SEVERAL = {"sketches.md"}
"""Pages whose code shows calls beside each other, not one after the other."""

BEFORE = """
import numpy as np
import unnoise as un
urls = ['a', 'b', 'a'] * 50
users = [1, 2, 3] * 50
noisy_counts = np.random.default_rng(1).poisson(2, 2000) + un.discrete_laplace(2000, 1)
sketch = un.Sketch.hashed(2**10, epsilon=1)
sketch.update([f'{i % (1 + i // 5)}' for i in range(2000)])
"""
"""What the pages take for granted."""

PAGES = [page for page in sorted(DOCS.rglob("*.md")) if page.name not in ELSEWHERE]


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
    table = pl.DataFrame({"url": urls, "user": users, "user_id": users, "product": [f"p{i % 50}" for i in users]})
    for name in NAMES:
        table.write_csv(folder / f"{name}.csv")
        table.write_parquet(folder / f"{name}.parquet")
    (folder / "products.txt").write_text("\n".join(f"p{i}" for i in range(50)) + "\n")
    (folder / "passwords.freqcount").write_text("1 900\n2 200\n5 30\n40 2\n")
    return folder


def blocks(page: Path, kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", page.read_text(), re.S)


def commands(page: Path) -> list[str]:
    return [line for block in blocks(page, "console") for line in block.split("\n") if line.startswith("unnoise ")]


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in PAGES if commands(p)], ids=lambda p: p.name)
def test_commands_run(page, place):
    for line in commands(page):
        words = shlex.split(line, comments=True)
        if words[1] == "demo":
            continue  # make demo is a test of its own
        command = [sys.executable, "-m", *words, *_forced(words)]
        done = subprocess.run(command, cwd=place, capture_output=True, text=True)
        assert done.returncode == 0, (line, done.stderr)


def _forced(words: list[str]) -> list[str]:
    """Pages write the same names: outputs may be there already."""
    return ["--force"] if words[1] in ("sketch", "merge") else []


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [p for p in PAGES if blocks(p, "python") and p.name not in SEVERAL], ids=lambda p: p.name
)
def test_code_runs(page, place, monkeypatch):
    monkeypatch.chdir(place)
    names: dict = {}
    exec(BEFORE, names)
    for code in blocks(page, "python"):
        exec(compile(code, str(page), "exec"), names)


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
@pytest.mark.browser
@pytest.mark.parametrize("width", [390, 900, 1400])
def test_the_figure_moves(site, tmp_path, width):
    with open_browser(tmp_path) as browser:
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
        severe = [entry for entry in complaints(browser) if "file://" not in entry["message"]]
        assert severe == []


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted((DOCS / "notebooks").glob("*.ipynb")), ids=lambda p: p.stem)
def test_notebooks_run(path):
    nbformat = pytest.importorskip("nbformat")
    from nbclient import NotebookClient

    NotebookClient(nbformat.read(path, as_version=4), timeout=300, kernel_name="python3").execute()


def test_there_are_six_notebooks_and_a_page_for_every_reader():
    assert len(list((DOCS / "notebooks").glob("*.ipynb"))) == 6
    readers = {page.stem for page in (DOCS / "readers").glob("*.md")}
    assert readers == {"privacy-officer", "analyst", "engineer", "researcher"}
