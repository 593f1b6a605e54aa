"""The report: what it says, that it is one safe file, and how it behaves in a real browser.

Screenshots (light, dark, phone, print, groups) are kept under out/report/.
"""

from __future__ import annotations

import base64
import csv
import io
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from browser_tools import OUT, complaints, keep, set_screen
from unnoise.answers.estimate import Estimate
from unnoise.answers.plots import DARK, LIGHT
from unnoise.answers.questions import Asked, Sheet, count_ranges, noun, true_curve
from unnoise.answers.reconstruct import reconstruct
from unnoise.answers.report import answers_table, report
from unnoise.api import direct


def made(seed: int, cells: int = 30_000, epsilon: float = 1.0):
    """A profile of Zipf-like counts with noise, and the truth."""
    rng = np.random.default_rng(seed)
    counts = np.minimum(rng.zipf(1.9, cells), 5000) * (rng.random(cells) < 0.7)
    p = 1 - np.exp(-epsilon)
    noisy = counts + rng.geometric(p, cells) - rng.geometric(p, cells)
    return reconstruct(noisy, epsilon=epsilon, method="isotonic"), counts.astype(np.int64)


@pytest.fixture(scope="module")
def one():
    return made(0)


@pytest.fixture(scope="module")
def page(one, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("report") / "one.html"
    promise, notes = "ε = 1 for one occurrence.", ["Mind <this>."]
    text = report(one[0], title="Words & <b>worries</b>", guarantee=promise, warnings=notes)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def groups(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("report") / "groups.html"
    sizes = {"North": 9000, "South": 30_000, "East": 3000}
    profiles = {name: made(seed, cells)[0] for seed, (name, cells) in enumerate(sizes.items())}
    path.write_text(report(profiles, title="By region"), encoding="utf-8")
    return path


# ── the numbers ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("largest", [1, 2, 15, 16, 17, 18, 100, 2_000_000])
def test_ranges_cover_every_count_once(largest):
    first, last = count_ranges(largest)
    assert first[0] == 1
    assert last[-1] == largest
    np.testing.assert_array_equal(first[1:], last[:-1] + 1)
    assert (last >= first).all()
    assert first.size < 80


def test_ranges_agree_with_the_profile(one):
    profile, counts = one
    sheet = Sheet(profile, Asked(), {})
    first, last = np.array([each[:2] for each in sheet.ranges]).T
    exact, reach = zip(*(each[2:] for each in sheet.ranges))
    assert sum(inside.value for inside in exact) == pytest.approx(profile.distinct.value, rel=1e-3)
    assert reach[0].value == pytest.approx(profile.distinct.value)
    for i in (0, 3, first.size // 2):
        assert reach[i].value == pytest.approx(profile.at_least(int(first[i])).value)
    assert exact[2].value == pytest.approx(profile.exactly(3).value)
    assert all(inside.low <= inside.value <= inside.high for inside in exact)
    truth = true_curve(counts, first, last, at_least=False)
    spans = list(zip(first[:30], last[:30]))
    np.testing.assert_allclose(truth[:30], [np.mean([(counts == t).sum() for t in range(a, b + 1)]) for a, b in spans])
    above = true_curve(counts, first, last, at_least=True)
    np.testing.assert_array_equal(above[:5], [(counts >= k).sum() for k in first[:5]])


# ── the page as text ──────────────────────────────────────────────────────────────────────────────────────────


class Outline(HTMLParser):
    """Collects what the tests look at."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))


def outline(path: Path) -> list[tuple[str, dict[str, str | None]]]:
    reader = Outline()
    reader.feed(path.read_text(encoding="utf-8"))
    return reader.tags


def test_the_sentence_comes_first(page, one):
    text = page.read_text()
    once = one[0].exactly(1)
    sentence = re.search(r"<h1[^>]*>(.*?)</h1>", text, re.S)[1]
    value, low, high = (float(n.replace(",", "")) for n in re.findall(r"[\d,]+", re.sub(r"<[^>]*>", "", sentence)))
    assert (value, low, high) == pytest.approx((once.value, once.low, once.high), rel=0.05)
    assert "items occurred exactly once." in sentence


def test_a_direct_release_has_numbers_and_no_cells():
    text = report(direct(["a", "b", "a"], epsilon=1), guarantee="")
    assert "one noise in every number" in text
    assert "every cell" not in text


def test_one_file_and_no_network(page, groups):
    for path in (page, groups):
        for tag, attributes in outline(path):
            for name in ("src", "href", "action", "data"):
                target = attributes.get(name) or ""
                assert target.startswith(("data:", "#")) or not target, (tag, target)
        text = path.read_text()
        assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
        assert "https://" not in text
        assert "default-src 'none'" in text
        assert len(text) < 300_000


def test_user_text_is_escaped(page):
    text = page.read_text()
    assert "<b>worries" not in text
    assert "Words &amp; &lt;b&gt;worries" in text
    assert "Mind &lt;this&gt;." in text


def test_a_name_cannot_break_out_of_the_script(one):
    text = report({"</script><script>alert(1)</script>": one[0], "b": one[0]})
    assert text.count("<script") == 2
    assert "<script>alert" not in text


def test_downloads_hold_the_numbers(page, one):
    links = {a["download"]: a["href"] for tag, a in outline(page) if tag == "a" and "download" in a}
    whole = json.loads(base64.b64decode(links["profile.json"].split(",")[1]))
    assert whole["answers"]["distinct"]["value"] == pytest.approx(one[0].distinct.value)
    text = base64.b64decode(links["profile.csv"].split(",")[1]).decode()
    rows = {row["question"]: row for row in csv.DictReader(io.StringIO(text))}
    assert float(rows["exactly_1"]["estimate"]) == pytest.approx(one[0].exactly(1).value, rel=1e-4)
    assert float(rows["at_least_2"]["estimate"]) == pytest.approx(one[0].at_least(2).value, rel=1e-4)


def test_a_screen_reader_finds_its_way(page):
    tags = outline(page)
    assert ("html", {"lang": "en"}) in tags
    assert [tag for tag, _ in tags if tag in ("h1", "h2")].count("h1") == 1
    for tag, attributes in tags:
        if tag == "th":
            assert attributes.get("scope") in ("row", "col")
        if tag == "section":
            assert attributes.get("aria-labelledby")
        if tag == "button":
            assert attributes.get("type") == "button"
    assert any(a.get("aria-live") == "polite" for _, a in tags)


def luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("look", [LIGHT, DARK], ids=["light", "dark"])
def test_text_has_contrast(look):
    """WCAG 2.2: at least 4.5 for text, on the page as on a card."""
    for text in ("ink", "soft", "line", "alarm"):
        for ground in ("page", "card"):
            bright, dim = sorted((luminance(look[text]), luminance(look[ground])), reverse=True)
            assert (bright + 0.05) / (dim + 0.05) >= 4.5, (text, ground)


def test_nothing_below_half_an_item_is_claimed():
    flat = reconstruct(np.random.default_rng(0).geometric(0.6, 500) - np.random.default_rng(1).geometric(0.6, 500),
                       epsilon=1, method="isotonic")  # fmt: skip
    assert "occurred exactly once" in report(flat)


def test_a_wrong_claim_is_shown():
    rng = np.random.default_rng(5)
    noisy = rng.geometric(0.4, 20_000) - rng.geometric(0.4, 20_000)
    with pytest.warns(UserWarning, match="do not look like noise"):
        profile = reconstruct(noisy, epsilon=2, method="isotonic")
    assert "Please note" in report(profile)
    assert "check how they were made" in report(profile)


# ── the page in a browser ─────────────────────────────────────────────────────────────────────────────────────

def show(browser, path: Path, **screen) -> None:
    """Open a page, and wait until it has drawn itself on this screen: two frames."""
    set_screen(browser, **screen)
    browser.get(path.as_uri())
    browser.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")


def curve(browser) -> str:
    """What the curve of the plot is drawn as, found and read at once: a page may draw itself anew in between."""
    return str(browser.execute_script("return document.querySelector('#plot .curve').getAttribute('d')"))


@pytest.mark.browser
def test_long_words_stay_on_a_phone(browser, one, tmp_path):
    """A title or noun without a space is broken, not cut off, and leaves its button to be touched."""
    path = tmp_path / "long.html"
    text = report(one[0], title="Donaudampfschifffahrt" * 3, asked=Asked(noun=noun("Kapitän" * 7)))
    path.write_text(text, encoding="utf-8")
    show(browser, path, width=360, height=800)
    ends = "return [...document.querySelectorAll('.brand, h1, h2, .lede')].map(e => e.scrollWidth - e.clientWidth)"
    assert max(browser.execute_script(ends)) <= 0
    assert browser.execute_script("return document.getElementById('theme').getBoundingClientRect().right") <= 360
    end = browser.execute_script("return document.querySelector('#plot .what').getBoundingClientRect().right")
    assert end <= browser.execute_script("return document.querySelector('#plot svg').getBoundingClientRect().right")
    show(browser, path, width=1180, height=800)
    assert "Kapitän" in browser.execute_script("return document.querySelector('#plot .what').textContent")


@pytest.mark.browser
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("light", {}),
        ("dark", {"scheme": "dark"}),
        ("phone", {"width": 390, "height": 844}),
        ("print", {"width": 794, "height": 1123, "media": "print", "scheme": "dark"}),
    ],
)
def test_it_renders(browser, page, name, options):
    show(browser, page, **options)
    assert len(keep(browser, name)) > 20_000
    assert complaints(browser) == []
    assert browser.execute_script("return document.querySelectorAll('#plot .dot').length") > 15
    assert browser.execute_script("return document.documentElement.scrollWidth") <= options.get("width", 1180)
    ground = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    dark = tuple(int(DARK["page"][i : i + 2], 16) for i in (1, 3, 5))
    assert (ground == f"rgb{dark}") == (name == "dark")


@pytest.mark.browser
def test_pointing_reads_a_value(browser, page, one):
    from selenium.webdriver import ActionChains, Keys
    from selenium.webdriver.common.by import By

    show(browser, page)
    tip = browser.find_element(By.ID, "tip")
    assert not tip.is_displayed()
    dot = browser.find_elements(By.CSS_SELECTOR, "#plot .dot")[1]
    ActionChains(browser).move_to_element(dot).perform()
    assert tip.is_displayed()
    value = round(one[0].exactly(2).value)
    assert f"{value:,} items" in tip.text
    assert "exactly twice" in tip.text
    keep(browser, "hover", whole=False)
    drawing = browser.find_element(By.CSS_SELECTOR, "#plot svg")
    browser.execute_script("arguments[0].focus()", drawing)
    drawing.send_keys(Keys.HOME, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    spoken = browser.find_element(By.ID, "say").text
    assert f"{round(one[0].exactly(3).value):,} items seen exactly 3 times" in spoken
    drawing.send_keys(Keys.ESCAPE)
    assert not tip.is_displayed()
    assert complaints(browser) == []


@pytest.mark.browser
def test_buttons_work(browser, page, one):
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.by import By

    show(browser, page)
    exact = curve(browser)
    browser.find_element(By.CSS_SELECTOR, "[data-curve=atleast]").click()
    reach = curve(browser)
    assert reach != exact
    ActionChains(browser).move_to_element(browser.find_elements(By.CSS_SELECTOR, "#plot .dot")[0]).perform()
    text = browser.find_element(By.ID, "tip").text
    assert f"{round(one[0].distinct.value):,} items" in text
    assert "at least once" in text
    browser.find_element(By.CSS_SELECTOR, "[data-scale=linear]").click()
    assert curve(browser) != reach
    assert browser.find_elements(By.CSS_SELECTOR, "#plot .area")
    browser.find_element(By.ID, "band").click()
    assert not browser.find_elements(By.CSS_SELECTOR, "#plot .area")
    assert browser.find_element(By.ID, "band").get_attribute("aria-pressed") == "false"
    browser.find_element(By.ID, "theme").click()
    assert browser.execute_script("return document.documentElement.dataset.theme") == "dark"
    assert complaints(browser) == []


@pytest.mark.browser
def test_small_multiples_choose_the_group(browser, groups):
    from selenium.webdriver.common.by import By

    show(browser, groups)
    smalls = browser.find_elements(By.CSS_SELECTOR, ".small button")
    assert [b.find_element(By.TAG_NAME, "b").text for b in smalls] == ["North", "South", "East"]
    before = curve(browser)
    smalls[2].click()
    assert curve(browser) != before
    assert smalls[2].get_attribute("aria-pressed") == "true"
    keep(browser, "groups")
    assert complaints(browser) == []


def pages_of(browser, path: Path, name: str) -> list[str]:
    """Print a page on A4 and return the text of each sheet."""
    if shutil.which("pdftotext") is None:
        pytest.skip("needs poppler-utils")
    show(browser, path, media="")
    pdf = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})["data"])
    (OUT / f"{name}.pdf").write_bytes(pdf)
    found = subprocess.run(["pdftotext", "-layout", "-", "-"], input=pdf, capture_output=True, check=True)
    return found.stdout.decode().rstrip("\f").split("\f")


@pytest.mark.browser
@pytest.mark.parametrize("which", ["page", "groups"])
def test_it_prints_on_two_pages_with_the_promise_on_the_first(browser, request, which):
    sheets = pages_of(browser, request.getfixturevalue(which), f"print-{which}")
    assert len(sheets) == 2
    assert "What is promised" in sheets[0]
    assert "exactly once" in sheets[0]
    assert "Distinct items" in sheets[1]
    assert "All numbers behind the picture" not in "".join(sheets)
    assert complaints(browser) == []


@pytest.mark.browser
def test_the_sentence_follows_the_group(browser, groups):
    from selenium.webdriver.common.by import By

    show(browser, groups)
    sentence, line = browser.find_element(By.ID, "headline"), browser.find_element(By.ID, "lede")
    assert sentence.text.startswith("In North, about")
    before = line.text
    browser.find_elements(By.CSS_SELECTOR, ".small button")[1].click()
    assert sentence.text.startswith("In South, about")
    assert "items occurred exactly once." in sentence.text
    assert line.text != before


@pytest.mark.browser
def test_a_phone_stacks_the_answers(browser, groups):
    from selenium.webdriver.common.by import By

    show(browser, groups, width=390, height=844)
    table = browser.find_element(By.CSS_SELECTOR, "table.answers")
    assert table.rect["width"] <= 390
    cell = table.find_element(By.CSS_SELECTOR, "td[data-label=South]")
    assert cell.value_of_css_property("display") == "grid"
    assert browser.find_element(By.CSS_SELECTOR, ".cue").value_of_css_property("display") == "block"
    show(browser, groups)
    assert browser.find_element(By.CSS_SELECTOR, ".cue").value_of_css_property("display") == "none"


# ── words ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_words_come_from_the_noun(one):
    text = report(one[0], asked=Asked(noun=noun("user"), headline="at_least_3", at_least=(1, 3)))
    assert "users were seen at least 3 times." in text
    assert "Distinct users" in text
    assert "How often users were seen" in text
    shown = re.sub(r"<script.*?</script>|<style>.*?</style>|<dl.*?</dl>", "", text, flags=re.S)
    assert not re.search(r"\bitems\b", shown)


def test_no_part_of_an_item_is_shown(one):
    """Numbers of things are whole, in every table of the page."""
    text = report(one[0])
    for table in re.findall(r"<table.*?</table>", text, re.S):
        for row in re.findall(r"<tr>(.*?)</tr>", table, re.S):
            if "Entropy" not in row:
                cells = re.findall(r'<td class="number(?: value| range)?"[^>]*>(.*?)</td>', row, re.S)
                assert not any("." in re.sub(r"<[^>]*>|±.*", "", cell) for cell in cells), row


def test_unreliable_answers_are_tagged(one):
    sheet, good = Sheet.of(one[0]), Estimate(100.0, 1.0, 98.0, 102.0)
    assert "unreliable" not in answers_table({"": Sheet(one[0], sheet.asked, dict.fromkeys(sheet.answers, good))})
    marked = {**sheet.answers, "distinct": Estimate(100.0, 90.0, 0.0, 400.0)}
    assert '<span class="tag">unreliable</span>' in answers_table({"": Sheet(one[0], sheet.asked, marked)})


def test_what_epsilon_promises(one):
    """The probability of anything released changes by e^ε; the odds may by more."""
    promise = "one occurrence changes the probability of anything released by a factor of at most e^1 ≈ 2.72"
    assert promise in report(one[0])
    strict = reconstruct(np.arange(99), epsilon=0.001, method="isotonic")
    assert "by a factor of at most e^0.001 ≈ 1.001" in report(strict)
