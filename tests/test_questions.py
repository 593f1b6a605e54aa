"""The list of questions: words, truths, and that a page asks each of them once."""

from __future__ import annotations

import json
import math
import re
from collections import Counter

import numpy as np
import pytest

from unnoise.answers.estimate import TOO_NOISY, Estimate
from unnoise.answers.profile import Profile
from unnoise.answers.questions import (
    DISTINCT,
    ENTROPY,
    ITEM,
    MEDIAN,
    TOTAL,
    Asked,
    Sheet,
    at_least,
    exactly,
    mark,
    noun,
    question,
    sheets,
)  # fmt: skip
from unnoise.answers.reconstruct import reconstruct
from unnoise.answers.render import first_sentence
from unnoise.answers.report import numbers_table, report, report_page
from unnoise.errors import InputError

COUNTS = np.array([0, 1, 1, 1, 2, 2, 3, 7, 7, 40])


def without_noise() -> Profile:
    """A profile that is the truth: noise of ε = 60 is 0."""
    return reconstruct(COUNTS, epsilon=60, method="linear")


@pytest.mark.parametrize(
    ("asked", "truth"),
    [
        (exactly(1), 3), (exactly(7), 2), (at_least(1), 9), (at_least(3), 4), (DISTINCT, 9), (TOTAL, 64), (MEDIAN, 2),
        (ENTROPY, -sum(c / 64 * math.log(c / 64) for c in COUNTS.tolist() if c)),
    ],
    ids=lambda value: getattr(value, "key", ""),
)  # fmt: skip
def test_a_question_and_its_truth_agree(asked, truth) -> None:
    values, how_many = np.unique(COUNTS, return_counts=True)
    assert asked.truth(values, how_many) == pytest.approx(truth)
    assert asked.ask(without_noise()).value == pytest.approx(truth, abs=1e-6)
    assert asked.ask(reconstruct(COUNTS + 1, epsilon=60, method="linear")).value != pytest.approx(truth, abs=1e-6)


def test_keys_are_read_however_they_are_joined() -> None:
    assert question("at-least-3") == question("At least 3") == at_least(3) != at_least(4)
    assert question("seen once") == exactly(1)
    for wrong in ("at_least_0", "at_least_", "exactly_1.5", "most", ""):
        with pytest.raises(InputError, match="question must be"):
            question(wrong)


def test_words_follow_the_noun() -> None:
    users = noun("user")
    assert DISTINCT.label.format(**vars(users)) == "Distinct users"
    assert at_least(3).sentence.format(about="about 5", **vars(users)) == "about 5 users were seen at least 3 times."
    assert exactly(1).sentence.format(about="about 5", **vars(ITEM)) == "about 5 items occurred exactly once."
    assert [noun(word).many for word in ("person", "box", "city", "day")] == ["people", "boxes", "cities", "days"]
    for wrong in ("", " ", "mouse/"):
        with pytest.raises(InputError, match="noun must be a word"):
            noun(wrong)


def test_chosen_thresholds_are_all_shown_and_the_usual_ones_only_where_something_is() -> None:
    usual = [q.key for q, _ in Sheet.of(without_noise()).shown]
    assert "at_least_10" in usual
    assert "at_least_1000" not in usual
    chosen = Sheet.of(without_noise(), Asked(at_least=(1000, 1), headline="at_least_4"))
    assert [q.key for q, _ in chosen.shown] == [
        "at_least_4", "distinct", "total", "exactly_1", "at_least_1", "at_least_1000", "median", "entropy",
    ]  # fmt: skip
    assert chosen.answers[chosen.asked.head.key].value == pytest.approx(3)
    with pytest.raises(InputError, match="at_least must be an integer ≥ 1, got 0"):
        Asked(at_least=(0,))


def test_a_page_asks_each_question_once(monkeypatch) -> None:
    asked: Counter[tuple[str, object]] = Counter()

    def counted(name):
        whole = getattr(Profile, name)
        real = whole.fget if isinstance(whole, property) else whole

        def ask(self, *key):
            asked[name, key] += 1
            return real(self, *key)

        return property(ask) if isinstance(whole, property) else ask

    for name in ("at_least", "exactly", "quantile", "total", "entropy"):
        monkeypatch.setattr(Profile, name, counted(name))
    report(without_noise(), title="once")
    repeated = {key: times for key, times in asked.items() if times > 1}
    assert set(repeated) <= {("at_least", (1,))}, "distinct is at_least(1); nothing else is asked twice"
    assert asked["total", ()] == 1
    sheets({"a": without_noise(), "b": without_noise()})
    assert asked["total", ()] == 3


def test_marks_say_what_a_reader_must_know() -> None:
    good = Estimate(100.0, 5.0, 90.0, 110.0)
    assert mark(good) == ""
    assert mark(Estimate(3.0, 2.0, 0.0, 7.0)) == "unreliable"
    for value in (0.6, 0.955, 1.045):  # all written as 1
        assert mark(Estimate(value, 1.0, 0.0, 4.33)) == "unreliable"
    assert mark(Estimate(0.5, 1.0, 0.0, 4.33)) == mark(Estimate(0.0, 1.0, 0.0, 4.33)) == "", "written as 0"
    assert mark(Estimate(100.0, 5.0, 90.0, 110.0, marked=True)) == TOO_NOISY
    assert mark(Estimate(100.0, 5.0, 90.0, 110.0, kind="model", data_share=0.2)) == "mostly model"
    assert mark(Estimate(100.0, 5.0, 90.0, 110.0, kind="model", data_share=0.9)) == ""


NOTHING = Estimate(0.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("headline", "sentence"),
    [
        ("exactly-1", "No users were seen exactly once."),
        ("distinct", "No different users were seen."),
        ("total", "There were no occurrences in all."),
        ("median", "Half of the users have a count of at most about 0 (0–0)."),
    ],
)
def test_nothing_is_said_plainly(headline, sentence) -> None:
    """*At most 0* of anything, and *at most at most 0 times*, is what nobody says."""
    profile = reconstruct(np.zeros(50, dtype=np.int64), epsilon=20)
    sheet = Sheet.of(profile, Asked(headline=headline, noun=noun("user")))
    sheet = Sheet(profile, sheet.asked, dict.fromkeys(sheet.answers, NOTHING))
    assert first_sentence(sheet).text == sentence
    assert [q for q, _ in sheet.shown if q in (DISTINCT, TOTAL)] == [DISTINCT, TOTAL]
    assert sheet.asked.head in [q for q, _ in sheet.shown]
    page = report_page({"a": sheet, "b": sheet}, title="")
    said = json.loads(re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[0])
    pieces = said["profiles"][0]["said"]
    whole = f"In a, {sentence[0].lower()}{sentence[1:]}"
    assert " ".join(filter(None, (pieces["before"] + pieces["value"], pieces["between"]))) + pieces["after"] == whole


def test_frequencies_are_marked_like_answers() -> None:
    """Of seventy cells at ε = 0.1 nobody can tell how many hold exactly 3, and every table says so."""
    profile = reconstruct(np.arange(-30, 40), epsilon=0.1)
    sheet = Sheet.of(profile)
    marks = {mark(estimate) for _, _, estimate, _ in sheet.ranges} - {""}
    assert marks
    for note in marks:
        assert note in numbers_table("", sheet)
    own = {mark(profile._band(t, t, 0.95, 1.0)) for t in profile.shown().tolist()} - {""}
    below = str(profile).partition("count t")[2]
    assert own
    assert all(note in below and note in profile._repr_html_().partition("count t")[2] for note in own)


def test_the_line_below_the_sentence_has_intervals_where_tables_have_marks() -> None:
    profile = reconstruct(np.zeros(50, dtype=np.int64), epsilon=20)
    sheet = Sheet.of(profile)
    good, bad = Estimate(100.0, 1.0, 98.0, 102.0), Estimate(100.0, 90.0, 3.0, 400.0)
    answers = dict.fromkeys(sheet.answers, good)
    sure = Sheet(profile, sheet.asked, answers)
    assert "Among about 100 different items in about 100 occurrences," in report_page({"": sure}, title="")
    doubtful = Sheet(profile, sheet.asked, {**answers, "distinct": bad})
    assert "Among about 100 (3–400) different items in about 100 occurrences," in report_page({"": doubtful}, title="")
