"""The audit: a short version of every part passes, interrupted runs go on, and docs/trust.md is whole."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "audits"))

from _audit import PARTS, ROOT, Audit, summary_of

from unnoise import DiscreteLaplace, discrete_laplace, testing

PAGE = (ROOT / "docs" / "trust.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_the_short_version_of_each_part_passes(part: str) -> None:
    """Exit 0 means that every claim held and every broken variant was caught."""
    before = (ROOT / "docs" / "trust.md").read_bytes()
    command = [sys.executable, str(ROOT / "audits" / f"{part}.py"), "--short"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "**Passed**" in done.stdout
    assert (ROOT / "docs" / "trust.md").read_bytes() == before, "a short run writes nothing"


def test_parts_scripts_and_make_agree() -> None:
    scripts = {path.stem for path in (ROOT / "audits").glob("*.py") if not path.stem.startswith("_")}
    assert set(PARTS) == scripts
    listed = re.search(r"^AUDITS := (.*)$", (ROOT / "Makefile").read_text(), re.M)
    assert listed
    assert tuple(listed[1].split()) == PARTS


# ── the framework ─────────────────────────────────────────────────────────────────────────────────────────────


class Toy:
    """A part of three steps, the second of which may be interrupted."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.done = folder, []
        self.page = folder / "trust.md"
        self.page.write_text(
            "# Trust\n\n<!-- summary:begin -->\n<!-- summary:end -->\n\n## All is well\n\n"
            "<!-- toy:begin -->\nold\n<!-- toy:end -->\n\nafter\n"
        )

    def step(self, name: str, stop: bool) -> int:
        if stop:
            raise KeyboardInterrupt
        self.done.append(name)
        return len(name)

    def run(self, *words: str, stop: bool = False, failures: tuple[str, ...] = (), size: int = 5) -> int:
        audit = Audit("toy", None, words=words, kept=self.folder / "out", page=self.page, size=(size, 2))
        calls = {name: partial(self.step, name, stop and name == "two") for name in ("one", "two", "three")}
        found = audit.run(calls)
        with pytest.raises(SystemExit) as ended:
            audit.close(f"{sum(found.values())} letters at size {audit['size']}", "| table |", failures)
        return int(ended.value.code or 0)


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    return Toy(tmp_path)


def test_an_interrupted_run_goes_on(toy: Toy) -> None:
    with pytest.raises(KeyboardInterrupt):
        toy.run(stop=True)
    assert toy.run() == 0
    assert toy.done == ["one", "two", "three"], "no step twice"
    assert "11 letters at size 5" in toy.page.read_text()
    toy.run()
    assert len(toy.done) == 6, "a finished run starts afresh"


def test_what_was_kept_can_be_judged_and_gone_on_with(toy: Toy) -> None:
    with pytest.raises(KeyboardInterrupt):
        toy.run(stop=True)
    assert toy.run("--so-far") == 0
    assert toy.done == ["one"]
    assert "**Passed** (so far: the run was not carried to its end)" in toy.page.read_text()
    assert "3 letters at size 5" in toy.page.read_text()
    assert toy.run() == 0
    assert toy.done == ["one", "two", "three"], "no step twice"
    assert "so far" not in toy.page.read_text()


def test_two_processes_share_the_steps(toy: Toy) -> None:
    for share, done in (("2/2", ["two"]), ("1/2", ["two", "one", "three"])):
        with pytest.raises(SystemExit) as ended:
            toy.run("--share", share)
        assert ended.value.code == 0
        assert toy.done == done
        assert "old" in toy.page.read_text(), "a share gives no verdict"
    assert toy.run() == 0
    assert len(toy.done) == 3, "no step twice"
    assert "11 letters at size 5" in toy.page.read_text()
    toy.run()
    assert len(toy.done) == 6, "a finished run starts afresh"


@pytest.mark.parametrize("words", [["--again"], ["--seed", "2"], ["--short"]])
def test_another_run_does_not_take_up_what_was_kept(toy: Toy, words: list[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        toy.run(stop=True)
    toy.run(*words)
    assert toy.done == ["one", "one", "two", "three"]
    assert ("old" in toy.page.read_text()) == (words == ["--short"])


def test_another_size_is_another_run(toy: Toy) -> None:
    with pytest.raises(KeyboardInterrupt):
        toy.run(stop=True)
    toy.run(size=6)
    assert toy.done == ["one", "one", "two", "three"]


def test_a_failure_is_written_down_and_ends_with_1(toy: Toy) -> None:
    assert toy.run(failures=("ε was 2",)) == 1
    text = toy.page.read_text()
    assert "**Failed**" in text
    assert "- FAILED: ε was 2" in text
    assert "| All is well | **Failed**: 1 of its checks" in text, "the table on top says so too"
    assert text.startswith("# Trust")
    assert text.endswith("after\n"), "the rest of the page stays"


# ── the page ──────────────────────────────────────────────────────────────────────────────────────────────────

SECTIONS = {
    match[1]: section
    for section in PAGE.split("\n## ")[1:]
    if (match := re.search(r"<!-- (\w+):begin -->", section))
}  # fmt: skip


def test_every_part_has_its_section() -> None:
    assert set(SECTIONS) == set(PARTS)


def missing(part: str, section: str) -> list[str]:
    """Return what a section should say or name and does not."""
    words = ("**Claim.**", "**How.**", "**A violation would look like**", f"`audits/{part}.py`")
    found = [word for word in words if word not in section]
    for path, name in re.findall(r"`((?:audits|tests|benchmarks)/[\w/]+\.py)(?:::(\w+))?`", section):
        text = (ROOT / path).read_text() if (ROOT / path).is_file() else ""
        if not text or (name and not re.search(rf"^def {name}\(", text, re.M)):
            found.append(f"{path}::{name}" if name else path)
    return found


@pytest.mark.parametrize("part", PARTS)
def test_every_claim_says_how_it_is_tested_and_names_what_exists(part: str) -> None:
    assert missing(part, SECTIONS[part]) == []


def test_the_table_on_top_says_what_the_sections_say() -> None:
    assert summary_of(PAGE) in PAGE
    assert len(summary_of(PAGE).splitlines()) == 2 + len(PARTS)


def test_a_page_without_a_claim_or_with_a_wrong_name_is_noticed() -> None:
    """The checks above can fail: on a section without its violation, and on a test that does not exist."""
    whole = SECTIONS["sampler"]
    assert missing("sampler", whole) == []
    assert missing("sampler", whole.replace("**Claim.**", "")) == ["**Claim.**"]
    for name in ("tests/test_sampler.py::test_nothing", "audits/nothing.py"):
        assert missing("sampler", f"{whole} `{name}`") == [name]


@pytest.mark.parametrize("page", ["README.md", "SECURITY.md", "docs/privacy.md"])
def test_the_page_is_linked(page: str) -> None:
    assert "trust.md)" in (ROOT / page).read_text()


# ── what the parts compute with ───────────────────────────────────────────────────────────────────────────────────


def test_the_bound_of_the_examples() -> None:
    import _neighbours

    found = doctest.testmod(_neighbours)
    assert found.attempted > 3
    assert found.failed == 0


@pytest.mark.parametrize("doubt", [0.05, 0.3])
def test_a_mechanism_that_keeps_its_epsilon_is_accused_as_rarely_as_stated(doubt: float) -> None:
    """400 audits of noise that is exactly right: more false alarms than 1e-9 allows would be a wrong bound."""
    from _neighbours import lower_bound
    from scipy.stats import binom

    with testing.seeded(4):
        noise = discrete_laplace(400 * 2 * 500, 1).reshape(400, 2, 500)
    accused = sum(lower_bound(pair[0], pair[1] + 1, doubt).lower > 1 for pair in noise)
    assert accused <= binom.isf(1e-9, 400, doubt)
    accused = sum(lower_bound(pair[0], pair[1] + 2, doubt).lower > 1 for pair in noise)
    assert accused > binom.isf(1e-9, 400, doubt), "the control: sensitivity 2"


@pytest.mark.parametrize(("epsilon", "power"), [("1", "1"), ("0.1", "2"), ("1", "1/2"), ("0.1", "5/2"), ("2", "1/10")])
def test_the_law_of_the_audit_is_the_law_of_the_package(epsilon: str, power: str) -> None:
    from _law import classes, density

    p = density(float(epsilon), Fraction(power), 60)
    np.testing.assert_allclose(p, DiscreteLaplace(epsilon, power).pmf(np.arange(61)), rtol=1e-6, atol=1e-15)
    cut = classes(float(epsilon), Fraction(power), 10**6)
    assert abs(cut.probability.sum() - 1) < 1e-9
    ends = np.array([-cut.reach - 1, -cut.reach, 0, cut.reach, cut.reach + 1, 10**9])
    last = cut.probability.size - 1
    assert cut.of(ends).tolist() == [0, 1, cut.half + 1, last - 1, last, last]
