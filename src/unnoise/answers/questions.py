"""The questions a profile is asked: one list behind table, report, JSON, command line, plan and demo.

A :class:`Question` knows its key (in JSON, for ``--headline`` and as the target of a plan), its words, how to ask a
:class:`~unnoise.answers.profile.Profile`, and what the true answer is where counts are public. :class:`Asked` says
which of them a page is about and what the items are called; a :class:`Sheet` holds one profile's answers, each
computed once, for everything on that page, those of the ranges in its picture and its tables among them.

The two curves of a picture have few enough points to look at. Far out single counts hold less than one item each, so
counts are gathered in ranges first..last that widen geometrically; a range is shown by the mean number of items for
each t in it. The interval of the mean is that of the range's total, divided by its width.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import Floats, Int64
from ..checks import check_integer, check_level
from ..errors import InputError
from .estimate import NO_END, TOO_NOISY, Estimate, sensible, sensible_parts

if TYPE_CHECKING:
    from .profile import Profile

__all__ = [
    "DISTINCT", "ENTROPY", "IF_ANY", "ITEM", "MEDIAN", "TOTAL", "Asked", "Noun", "Question", "Sheet", "at_least",
    "count_ranges", "exactly", "mark", "noun", "question", "sheets", "span", "tidied", "told", "true_curve",
]  # fmt: skip

REACHES = (2, 3, 5, 10, 100, 1000)
"""Asked where nobody chose: at least so many times."""

WIDE = 0.5
"""An answer is unreliable where half of its interval is more than this share of it."""

NONE = 0.5
"""An answer up to here is written as 0."""

FEW = 5
"""That there is next to nothing is known well enough where half of the interval is no more than this."""

HOPELESS = 100
"""An interval so many times the answer says nothing."""

TIMES = {1: "once", 2: "twice"}
"""How often, in words; all others are so many times."""

ONE_BY_ONE = 16
"""Counts up to here are shown one by one."""

WIDEN = 1.3
"""How much farther the next range begins after that."""


@dataclass(frozen=True)
class Noun:
    """What the items are called, and what they did."""

    one: str
    many: str
    verb: str = "were seen"

    @property
    def alone(self) -> Noun:
        """The same of one of them.

        >>> at_least(2).sentence.format(about="about 1", **vars(noun("user").alone))
        'about 1 user was seen at least twice.'
        """
        return Noun(self.one, self.one, self.verb.replace("were ", "was "))


ITEM = Noun("item", "items", "occurred")
PLURALS = {"person": "people", "man": "men", "woman": "women", "child": "children"}


def noun(text: str) -> Noun:
    """Return a noun with its plural, which may be given after a slash where the rule of English fails.

    >>> noun("user").many, noun("query").many, noun("mouse/mice").many
    ('users', 'queries', 'mice')
    """
    one, slash, many = (part.strip() for part in text.partition("/"))
    if not one or (slash and not many) or "/" in many:
        raise InputError(f"noun must be a word such as user, or two as in mouse/mice, got {text!r}")
    if many:
        return Noun(one, many)
    if one in PLURALS:
        return Noun(one, PLURALS[one])
    if re.search(r"(s|x|z|ch|sh)$", one):
        return Noun(one, one + "es")
    return Noun(one, one[:-1] + "ies" if re.search(r"[^aeiou]y$", one) else one + "s")


@dataclass(frozen=True)
class Question:
    """Something to ask a profile; two of the same key are the same.

    key : its name in JSON
    label, meaning, sentence : words, in which {many} and {verb} stand for the items, {about} for the answer
    ask : how to ask a profile
    truth : the answer, of true counts and how many items have each
    whole : whether the answer is a number of things
    counts : the counts, first to last, of the items that it numbers; of occurrences all, as items are at most as many
    """

    key: str
    label: str = field(compare=False)
    meaning: str = field(compare=False)
    sentence: str = field(compare=False)
    ask: Callable[[Profile], Estimate] = field(compare=False, repr=False)
    truth: Callable[[Int64, Int64], float] = field(compare=False, repr=False)
    whole: bool = field(default=True, compare=False)
    counts: tuple[int, int] | None = field(default=None, compare=False)

    def up_to(self, cap: int) -> Question | None:
        """The same where counts above ``cap`` were taken as that: of exactly so many or more, none of more alone.

        >>> exactly(3).up_to(3).label, exactly(4).up_to(3), at_least(3).up_to(3) == at_least(3), at_least(4).up_to(3)
        ('3 times or more', None, True, None)
        >>> TOTAL.up_to(3).sentence
        'There were {about} occurrences in all, counts above 3 taken as 3.'
        """
        first, last = self.counts or (0, NO_END)
        if first > cap:
            return None
        if first == last == cap:
            times = f"{TIMES.get(cap, f'{cap:,} times')} or more"
            label = f"{times[:1].upper()}{times[1:]}"
            return replace(self, label=label, sentence=f"{{about}} {{many}} {{verb}} {times}.", counts=(cap, NO_END))
        whole = self.sentence if first else f"{self.sentence.removesuffix('.')}, counts above {cap:,} taken as {cap:,}."
        return replace(self, sentence=whole)

    @property
    def name(self) -> str:
        """The key in words: how a plan calls it."""
        return self.key.replace("_", " ")


def exactly(k: int) -> Question:
    """How many items were seen exactly k times?"""
    times = TIMES.get(k, f"{k:,} times")
    return Question(
        f"exactly_{k}", f"Exactly {times}", "", f"{{about}} {{many}} {{verb}} exactly {times}.",
        lambda p: p.exactly(k), lambda values, items: float(items[values == k].sum()), counts=(k, k),
    )  # fmt: skip


def at_least(k: int) -> Question:
    """How many items were seen at least k times?"""
    written, times = f"{k:,} {'time' if k == 1 else 'times'}", TIMES.get(k, f"{k:,} times")
    return Question(
        f"at_least_{k}", f"At least {written}", "", f"{{about}} {{many}} {{verb}} at least {times}.",
        lambda p: p.at_least(k), lambda values, items: float(items[values >= k].sum()), counts=(k, NO_END),
    )  # fmt: skip


def _true_entropy(values: Int64, items: Int64) -> float:
    seen = values > 0
    share = values[seen] / float(values @ items)
    return float(-(share * np.log(share)) @ items[seen])


def _true_median(values: Int64, items: Int64) -> float:
    order = np.argsort(values)
    half = np.searchsorted(np.cumsum(items[order]), items.sum() / 2)
    return float(values[order][half])


DISTINCT = Question(
    "distinct", "Distinct {many}", "different {many} that {verb} at all", "{about} different {many} {verb}.",
    lambda p: p.distinct, lambda values, items: float(items[values >= 1].sum()), counts=(1, NO_END),
)  # fmt: skip
TOTAL = Question(
    "total", "Occurrences", "all of them together", "There were {about} occurrences in all.",
    lambda p: p.total, lambda values, items: float(values @ items.astype(float)), counts=(0, NO_END),
)  # fmt: skip
MEDIAN = Question(
    "median", "Median count", "half of the {many} occur at most this often",
    "Half of the {many} have a count of at most {about}.", lambda p: p.quantile(0.5), _true_median,
)  # fmt: skip
ENTROPY = Question(
    "entropy", "Entropy", "Shannon, in nats: how evenly occurrences spread", "The entropy is {about} nats.",
    lambda p: p.entropy, _true_entropy, whole=False,
)  # fmt: skip

IF_ANY = "There may be no {many} at all; if there are any, half of them have a count of at most {about}."
"""The sentence of the median where nobody can tell whether there are items."""

SINGLE = {q.key: q for q in (DISTINCT, TOTAL, MEDIAN, ENTROPY)}

LEFT_OUT = {"unbounded": (TOTAL, ENTROPY)}
"""Questions that a notice of the profile leaves out: no interval for them would say anything."""


def question(key: str, name: str = "question") -> Question:
    """Return the question of a key, however its words are joined; ``name`` is what the key was given for.

    >>> question("at-least-3").key, question("seen once").key, question("distinct") is DISTINCT
    ('at_least_3', 'exactly_1', True)
    """
    words = re.sub(r"[\s_-]+", "_", str(key).strip().lower())
    other = {"seen_once": "exactly_1", "once": "exactly_1", "reach": "distinct", "twice": "exactly_2"}
    words = other.get(words, words)
    match = re.fullmatch(r"(exactly|at_least)_([1-9][0-9]{0,17})", words)
    if match:
        return (exactly if match[1] == "exactly" else at_least)(int(match[2]))
    if words not in SINGLE:
        raise InputError(f"{name} must be exactly-K, at-least-K, distinct, total, median or entropy, got {key!r}")
    return SINGLE[words]


@dataclass(frozen=True)
class Asked:
    """What a page is about.

    at_least : thresholds K of "at least K times"; None for the usual ones, as far as there is anything
    headline : key of the question that is answered in the first sentence
    noun : what the items are called
    level : confidence level of the intervals
    head : the question of the headline
    questions : all questions, in the order of the page; label and meaning speak of the noun
    """

    at_least: tuple[int, ...] | None = None
    headline: str = "exactly_1"
    noun: Noun = ITEM
    level: float = 0.95
    head: Question = field(init=False, repr=False)
    questions: list[Question] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        head, words = question(self.headline, "headline"), vars(self.noun)
        check_level(self.level)
        for k in self.at_least or ():
            check_integer("at_least", k, 1)
        reaches = REACHES if self.at_least is None else tuple(sorted(set(self.at_least)))
        several = [exactly(1), exactly(2)] if self.at_least is None else [exactly(1)]
        found = [DISTINCT, TOTAL, *several, *(at_least(k) for k in reaches), MEDIAN, ENTROPY]
        found = found if head in found else [head, *found]
        told = [replace(q, label=q.label.format(**words), meaning=q.meaning.format(**words)) for q in found]
        object.__setattr__(self, "questions", told)
        object.__setattr__(self, "head", told[found.index(head)])

    def up_to(self, cap: int) -> Asked:
        """The same of counts of which larger ones than ``cap`` were taken as that; what asks of larger is left out.

        *At least cap times* tells of that entry, so only as the head it is asked by itself.
        """
        head, same = self.head.up_to(cap), copy(self)
        others = [each.up_to(cap) for each in self.questions if each == self.head or each != exactly(cap)]
        if head is None:
            raise InputError(
                f"headline must ask of counts up to {cap:,}, which larger ones are taken as, got {self.headline!r}"
            )
        object.__setattr__(same, "head", head)
        object.__setattr__(same, "questions", [each for each in others if each is not None])
        return same


def count_ranges(largest: int) -> tuple[Int64, Int64]:
    """Split 1..largest into single counts and then ever wider ranges.

    >>> first, last = count_ranges(30)
    >>> first[-4:].tolist(), last[-4:].tolist()
    ([16, 17, 23, 30], [16, 22, 29, 30])
    """
    starts = list(range(1, min(ONE_BY_ONE, largest) + 1))
    while starts[-1] < largest:
        begin = starts[-1] + 1 if len(starts) == ONE_BY_ONE else int(np.ceil(starts[-1] * WIDEN))
        if begin > largest:
            break
        starts.append(begin)
    first = np.array(starts, dtype=np.int64)
    return first, np.append(first[1:] - 1, max(largest, 1)).astype(np.int64)


def span(first: int, last: int, cap: int | None = None) -> str:
    """Write a range of counts, which has no end where larger counts were taken as its last.

    >>> span(7, 7), span(1000, 1299), span(17, 20, cap=20)
    ('7', '1,000–1,299', '17+')
    """
    if last == cap:
        return f"{first:,}+"
    return f"{first:,}" if first == last else f"{first:,}–{last:,}"


def true_curve(counts: Int64, first: Int64, last: Int64, *, at_least: bool) -> Floats:
    """Return what a curve should show, from the true counts of the items: at or above first, or each of first..last."""
    ordered = np.sort(counts)
    from_first = counts.size - np.searchsorted(ordered, first, side="left")
    if at_least:
        return np.asarray(from_first, dtype=float)
    beyond = counts.size - np.searchsorted(ordered, last, side="right")
    return np.asarray((from_first - beyond) / (last - first + 1))


@dataclass(frozen=True, eq=False)
class Sheet:
    """The answers of one profile, each computed once."""

    profile: Profile
    asked: Asked
    answers: Mapping[str, Estimate]

    @classmethod
    def of(cls, profile: Profile, asked: Asked | None = None) -> Sheet:
        """Ask a profile everything that ``asked`` lists."""
        asked = asked or Asked()
        asked = asked if profile.cap is None else asked.up_to(profile.cap)
        left_out = [q for notice in profile.notices for q in LEFT_OUT.get(notice.code, ())]
        if asked.head in left_out:
            raise InputError(f"headline must be a question that has an answer here, got {asked.headline!r}")
        questions = [q for q in asked.questions if q not in left_out]
        return cls(profile, asked, {q.key: q.ask(profile).at(asked.level) for q in questions})

    @property
    def shown(self) -> list[tuple[Question, Estimate]]:
        """What a table lists: where nobody chose the thresholds, only those that half an item may have reached."""
        always = (DISTINCT, TOTAL, MEDIAN, ENTROPY, self.asked.head)
        chosen = self.asked.at_least is not None
        found = [(q, self.answers[q.key]) for q in self.asked.questions if q.key in self.answers]
        return [(q, e) for q, e in found if chosen or q in always or e.high >= 0.5]

    @cached_property
    def written(self) -> dict[str, tuple[str, str, str]]:
        """Value, low and high of each answer as a person reads them, none above what it is part of."""
        asked = [(q, self.answers[q.key]) for q in self.asked.questions if q.key in self.answers]
        parts = {q.key: (*q.counts, answer) for q, answer in asked if q.counts}
        alone = {q.key: sensible(answer, whole=q.whole) for q, answer in asked if not q.counts}
        return {**dict(zip(parts, sensible_parts([*parts.values()]))), **alone}

    @cached_property
    def ranges(self) -> list[tuple[int, int, Estimate, Estimate]]:
        """First, last, the items in each range of counts and those at or above its first, answers like all others.

        Up to the largest count that half an item may reach.
        """
        reached = np.cumsum((self.profile.mass * self.profile.items)[::-1])[::-1]
        support = self.profile.support[reached >= 0.5]
        ends = count_ranges(max(int(support[-1]) if support.size else 1, min(2, self.profile.cap or 2)))
        band, level = self.profile._band, self.asked.level
        return [(first, last, band(first, last, level, 1), band(first, NO_END, level, 1))
                for first, last in zip(*(each.tolist() for each in ends))]  # fmt: skip


def sheets(profiles: Profile | Mapping[str, Profile], asked: Asked | None = None) -> dict[str, Sheet]:
    """Return the sheet of each profile, "" naming a single one."""
    named: Mapping[str, Any] = profiles if isinstance(profiles, Mapping) else {"": profiles}
    return {name: Sheet.of(profile, asked) for name, profile in named.items()}


def mark(estimate: Estimate) -> str:
    """Say in two words what a reader must know before using an answer; nothing where it is good.

    >>> mark(Estimate(100.0, 5.0, 90.0, 110.0)), mark(Estimate(3.0, 2.0, 0.0, 7.0)), mark(Estimate(0.0, 1.0, 0.0, 2.0))
    ('', 'unreliable', '')
    """
    half = (estimate.high - estimate.low) / 2
    if estimate.marked or half > HOPELESS * max(abs(estimate.value), 1.0):
        return TOO_NOISY
    if half > WIDE * abs(estimate.value) and (abs(estimate.value) > NONE or half > FEW):
        return "unreliable"
    return "mostly model" if estimate.kind == "model" and estimate.data_share < WIDE else ""


def told(estimate: Estimate) -> dict[str, Any]:
    """Return an answer as programs get it: plain Python, with the words that tables have for it."""
    said = {name: tidied(x) if isinstance(x, float) else x for name, x in estimate.to_dict().items()}
    return {**said, "note": mark(estimate)}


def tidied(x: float) -> float:
    """Return a number without the digits that are rounding alone.

    >>> tidied(38.99999999999999), tidied(0.1 + 0.2), tidied(float("inf"))
    (39.0, 0.3, inf)
    """
    return float(f"{x:.12g}")
