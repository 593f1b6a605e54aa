"""The public parameters of a sketch or noisy histogram: its cells, what is promised of them, what is said about it.

Nothing here depends on the data, so everything here may be printed, stored and compared. (The number of ingestion
calls is public too, because the person-level guarantee needs it: call at moments that do not depend on the data.)

With ε per occurrence and at most c occurrences of one person in one ingestion call, a call costs that person c·ε; a
person who is in n calls, whatever the epochs and merges between them, n·c·ε (:meth:`Account.person_epsilon`).

Labels are what people and protocols say about a sketch, chosen without a look at the data. A sketch that is kept, sent
and merged must say what it is: a title, which site counted, over which period, which columns, for which unit its ε
holds, on which day its noise was drawn, and, for a sum of shares, which reports are in it. Merging compares what
decides whether a sum makes sense (column, unit), and unites what tells where it came from (site, period, report ids):

    label    kept where equal, else empty          site, period   united
    column   equal, or empty on one side           report_ids     united, and must have been disjoint
    unit     equal, or empty on one side           created        the later day
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any, Literal

from .checks import check_integer, is_integer
from .errors import IncompatibleError, InputError, PrivacyError, UnnoiseError
from .noise import DiscreteLaplace, tidy
from .text import LONGEST_NAME, inert

__all__ = [
    "ITEM_TYPES", "MEASURED_LEVELS", "MOST_CELLS", "MOST_LEVELS", "MOST_NAMES", "Account", "Kind", "Labels", "Layout",
    "about", "check_sampled", "enough_cells", "fresh_labels", "guarantee", "hashed_layout", "in_words", "usual_unit",
]  # fmt: skip

Kind = Literal["known", "hashed", "sampled", "direct"]
ITEM_TYPES = ("int", "str")

MOST_LEVELS = 54
"""Most levels: those told apart by the top 53 bits of the hash."""

ROOMIEST = 8
"""Most cells to an item: one in eight then shares its cell, which is undone, and more would be memory alone."""

MEASURED_LEVELS = 16
"""Number of levels for ``levels=True``: the measured choice when the number of items is unknown (docs/items.md)."""


MOST_CELLS = 1 << 48
"""Most cells: more than any memory has, and fewer than any array refuses."""

MOST_SAMPLED = 1 << 32
"""Most items of a domain that is sampled: each one is hashed."""

MOST_COUNTED = 1 << 32
"""Most contributions of a person, and most ingestion calls."""

MOST_COLUMNS = 256

NUMBERS = (
    ("cells", 1, None), ("levels", 1, MOST_LEVELS), ("domain", 1, None), ("hash_seed", 0, None),
    ("max_contributions", 1, MOST_COUNTED),
)  # fmt: skip
"""The numbers of a layout, with the least and the most that each may be; the last three may be missing."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What the cells of a sketch stand for.

    kind : "known" (one cell per item of a declared domain; also noisy histograms from elsewhere),
        "hashed" (items fall into cells by their hash), "sampled" (cells for a hashed sample of a domain);
        "direct" is no sketch: the numbers of a released curve (:mod:`unnoise.curve`)
    cells : number of cells, over all levels
    domain : size of the declared domain (known, sampled), else None
    rate : sampling rate of the domain (sampled), else None
    levels : number of levels (hashed), 1 when there is only one
    hash_seed : seed of the hash chain (hashed, sampled), else None
    item_types : "int" or "str" for each column of an item, None until known
    fingerprint : hex digest of the declared list of items (known by list), else None
    max_contributions : c, the occurrences one person may add in one ingestion call, or None
    pan_private : whether fresh noise is added at release as well
    """

    kind: Kind
    cells: int
    domain: int | None = None
    rate: Fraction | None = None
    levels: int = 1
    hash_seed: int | None = None
    item_types: tuple[str, ...] | None = None
    fingerprint: str | None = None
    max_contributions: int | None = None
    pan_private: bool = False

    def __post_init__(self) -> None:
        if self.kind not in ("known", "hashed", "sampled", "direct"):
            raise InputError(f"kind must be 'known', 'hashed', 'sampled' or 'direct', got {self.kind!r}")
        for name, low, high in NUMBERS:
            if getattr(self, name) is not None or name in ("cells", "levels"):
                object.__setattr__(self, name, check_integer(name, getattr(self, name), low, high))
        if self.hash_seed is not None and self.hash_seed >= 1 << 64:
            raise InputError(f"hash_seed must be below 2^64, got {self.hash_seed}")
        if self.kind == "sampled" and self.domain is not None:
            check_sampled(self.domain)
        if self.rate is not None and not 0 < self.rate <= 1:
            raise InputError(f"rate must be above 0 and at most 1, got {self.rate}")
        if self.item_types is not None and (not self.item_types or set(self.item_types) - set(ITEM_TYPES)):
            raise InputError(f"item_types must each be 'int' or 'str', got {self.item_types!r}")
        if self.item_types is not None and len(self.item_types) > MOST_COLUMNS:
            raise InputError(f"item_types must be of at most {MOST_COLUMNS} columns, got {len(self.item_types)}")

    def require_equal(self, other: Layout) -> None:
        """Raise :class:`IncompatibleError`, naming the field and both values, unless the layouts agree."""
        for field in fields(self):
            left, right = getattr(self, field.name), getattr(other, field.name)
            if left != right:
                raise IncompatibleError(field.name, left, right)


def check_sampled(domain: int) -> None:
    """Refuse a domain that is too large to be sampled, before the first of its items is hashed."""
    if domain > MOST_SAMPLED:
        raise InputError(f"a domain to be sampled must have at most {MOST_SAMPLED:,} items, got {domain}")


def hashed_layout(cells: int, levels: int | bool | None, **public: Any) -> Layout:
    """Return the layout of a hashed sketch: each level has the largest power of two ≤ cells/levels.

    >>> hashed_layout(2**20, True, hash_seed=0).levels, hashed_layout(2**10, 3, hash_seed=0).cells
    (16, 768)
    """
    if not is_integer(cells) or cells < 1 or cells & (cells - 1):
        bits = int(cells).bit_length() if is_integer(cells) and cells > 1 else 0
        near = f": {1 << (bits - 1)} and {1 << bits} are" if bits else ""
        raise InputError(f"cells must be a power of two, got {cells!r}{near}")
    most = min(cells, MOST_LEVELS)
    count = min(MEASURED_LEVELS, most) if levels is True else 1 if levels is None else levels
    cells, count = int(cells), check_integer("levels", count, 1, most)
    size = 1 << ((cells // count).bit_length() - 1)
    if count - 1 + size.bit_length() - 1 > 64:
        raise InputError(f"levels and cells must need at most 64 bits of hash, got {levels} and {cells}")
    return Layout(kind="hashed", cells=size * count, levels=count, **public)


def enough_cells(squares: float, items: float, noise: DiscreteLaplace) -> int:
    """Return how many cells tell items best behind a noise: the least power of two above Σ t²/σ².

    squares : Σ t², the counts of the items squared; items : how many there are, at most

    Fewer cells carry less noise, and more collisions. What tells counts apart is the cumulants of the m cells: the
    j-th has a standard error of about √(j!·m)·(σ² + Σ t²/m)^(j/2), σ² the variance of the noise, least at m =
    (j − 1)·Σ t²/σ². So let items that share cells be as loud as the noise. Where that is faint, ROOMIEST cells to an
    item are enough. Merging k sketches of alike sites multiplies Σ t² and σ² by k: the cells depend on no k.

    >>> [enough_cells(40_000, 20_000, DiscreteLaplace(epsilon)) for epsilon in ("0.1", 1, 5)]
    [256, 32768, 262144]
    >>> enough_cells(20 * 40_000, 20 * 20_000, DiscreteLaplace(1, 20))
    32768
    """
    most = ROOMIEST * items
    return 1 << max(math.ceil(math.log2(min(squares / noise.variance, most) if noise.variance > 0 else most)), 4)


@dataclass(frozen=True, kw_only=True)
class Account:
    """What persons have spent, where ``max_contributions`` bounds one call.

    calls : ingestion calls so far, over epochs and merged sketches
    promised : those of them without a person column, where the bound is the caller's promise
    as_items : those of them in which the item was the person, so that the bound is one of the item's count
    """

    calls: int = 0
    promised: int = 0
    as_items: int = 0

    def __post_init__(self) -> None:
        check_integer("calls", self.calls, 0, MOST_COUNTED)
        check_integer("promised", self.promised, 0, MOST_COUNTED)
        check_integer("as_items", self.as_items, 0, MOST_COUNTED)
        if self.promised > self.calls:
            raise InputError(f"promised must be at most calls={self.calls}, got {self.promised}")
        if self.as_items > self.calls - self.promised:
            raise InputError(f"as_items must be at most {self.calls} − {self.promised} calls, got {self.as_items}")

    def after_call(self, *, enforced: bool, as_items: bool = False) -> Account:
        """Return the account after one more ingestion call."""
        return self.plus(Account(calls=1, promised=int(not enforced), as_items=int(enforced and as_items)))

    def plus(self, other: Account) -> Account:
        """Return the account of two sketches merged: a person may be in both."""
        return Account(**{field.name: getattr(self, field.name) + getattr(other, field.name) for field in fields(self)})

    def to_dict(self) -> dict[str, int]:
        """Return it for a file or a message: calls in which the item was the person only where there are any."""
        spent = {"calls": self.calls, "promised": self.promised}
        return {**spent, "as_items": self.as_items} if self.as_items else spent

    def max_count(self, layout: Layout) -> int | None:
        """Return the most occurrences of one item, known where it was the person in every call; else None.

        >>> layout = Layout(kind="hashed", cells=8, max_contributions=4)
        >>> Account(calls=3, as_items=3).max_count(layout), Account(calls=3, as_items=2).max_count(layout)
        (12, None)
        """
        if layout.max_contributions is None or not self.calls or self.as_items < self.calls:
            return None
        return self.calls * layout.max_contributions

    def person_epsilon(self, noise: DiscreteLaplace, layout: Layout) -> Fraction | None:
        """Return the ε of a person who is in every call, or None where nothing bounds a person.

        >>> layout = Layout(kind="hashed", cells=8, max_contributions=4)
        >>> Account(calls=3).person_epsilon(DiscreteLaplace("1/4"), layout)
        Fraction(3, 1)
        """
        if layout.max_contributions is None:
            return None
        return self.calls * layout.max_contributions * noise.epsilon


def guarantee(
    noise: DiscreteLaplace, layout: Layout, account: Account | None = None, noises: int = 1, reports: int = 0
) -> str:
    """Return what is promised about whatever leaves a sketch, in plain words.

    noise : the law of the noise in every cell, ε per occurrence
    noises : how many noise vectors were added up, over epochs and merges
    reports : how many reports two servers added up (shares of cells); 0 where there were none

    >>> print(guarantee(DiscreteLaplace(1), Layout(kind="hashed", cells=8)))
    ε = 1 for one occurrence: adding or removing one occurrence of one item changes the probability of anything released by a factor of at most e^1 ≈ 2.72. Replacing one by another: twice that ε. A person with k occurrences: k times that ε. It holds for the state seen once or for what is released, not for both together.
    """  # noqa: E501
    c, spent = layout.max_contributions, account or Account()
    if c is None:
        promise = in_words(noise.epsilon, "one occurrence", "one occurrence of one item")
        parts = [promise, "Replacing one by another: twice that ε. A person with k occurrences: k times that ε."]
    else:
        change = f"one person, with at most {c} occurrence{'s' if c > 1 else ''} in the call,"
        promise = in_words(noise.epsilon * c, "one person in one ingestion call", change)
        parts = [promise, "Replacing one person by another: twice that ε."]
    if c and spent.calls:
        total = tidy(spent.calls * c * noise.epsilon)
        parts.append(f"Ingestion calls: {spent.calls}; a person who is in all of them: ε = {total}.")
    if c and spent.promised:
        parts.append(
            f"In {spent.promised} of them no person column was given, so the limit of {c} is the caller's promise "
            f"there."
        )
    if reports:
        parts.append(
            f"Two servers added up {reports} reports, each with a whole noise of its own: this ε holds for every "
            f"occurrence and every sum asked for, computationally (AES), against one server together with the "
            f"collector and all other sites; not against both servers together. A person counted at s sites: s times "
            f"that ε; a report in q sums: q times."
        )
    elif layout.pan_private:
        parts.append(
            "It holds for the cells, seen once by an intruder between two calls, and what is released, both together; "
            "not for the memory of a call under way, of the caller, or of the libraries that read the data."
        )
    else:
        parts.append("It holds for the state seen once or for what is released, not for both together.")
    if layout.rate is not None and layout.rate < 1:
        parts.append(
            f"The sample is drawn by a hash whose seed, {layout.hash_seed}, is public: whoever knows it can choose "
            f"items that are in the sample, and each of those counts {tidy(1 / layout.rate)} times in the answers."
        )
    if noises > 1 and not reports:
        parts.append(
            f"{noises} noises are added up here (epochs and merges): all snapshots together keep this ε for every "
            f"occurrence; an occurrence added in one epoch and removed in another: twice that; one counted in several "
            f"of the sketches merged: that ε for each."
        )
    if noise.power < 1:
        parts.append(
            f"NOT YET REACHED: this is a share that holds {tidy(noise.power)} of one noise and alone would give "
            f"ε = {noise.actual_epsilon:.3g} per occurrence; it must be merged with the other shares first."
        )
    return " ".join(parts)


def in_words(epsilon: Fraction, unit: str, change: str) -> str:
    """Say what ε promises to a unit when ``change`` is added or removed; e^ε in as many digits as tell it from 1.

    >>> [in_words(Fraction(e), "a row", "it").partition("most ")[2] for e in ("0.001", "1/20", "1", "20", "21")]
    ['e^0.001 ≈ 1.001.', 'e^0.05 ≈ 1.05.', 'e^1 ≈ 2.72.', 'e^20 ≈ 485,000,000.', 'e^21.']
    """
    exponent = tidy(epsilon)
    factor = f"e^({exponent})" if "/" in exponent else f"e^{exponent}"
    if epsilon <= 20:
        more = math.expm1(epsilon)
        digits = 2 - math.floor(math.log10(1 + more)) if more >= 1 else max(2, -math.floor(math.log10(more)))
        factor += f" ≈ {round(1 + more, digits):,.{max(digits, 0)}f}"
    return (
        f"ε = {tidy(epsilon)} for {unit}: adding or removing {change} changes the probability of "
        f"anything released by a factor of at most {factor}."
    )


# ── labels ──────────────────────────────────────────────────────────────────────────────────────────────────────────

MOST_NAMES = 20_000
"""Most sites, periods, columns or report ids."""

_DAY = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])")


@dataclass(frozen=True, kw_only=True)
class Labels:
    """What is said about a sketch; whatever is empty is not said.

    label : a title
    site, period : who counted, and over which time; sorted, several after merging (one text may stand for a list)
    column : the columns counted, in their order
    unit : whom ε protects: "occurrence", or the name of whom ``max_contributions`` limits ("person", "household")
    created : day on which the noise was drawn, YYYY-MM-DD in UTC
    report_ids : the reports in a sum of shares, sorted

    >>> a = Labels(site=("north",), period=("2026-01",), column=("plane",))
    >>> a.merged(Labels(site=("south",), period=("2026-01",), column=("plane",))).site
    ('north', 'south')
    """

    label: str = ""
    site: tuple[str, ...] = ()
    period: tuple[str, ...] = ()
    column: tuple[str, ...] = ()
    unit: str = ""
    created: str = ""
    report_ids: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for field in fields(self):
            value, single = getattr(self, field.name), isinstance(field.default, str)
            names = (value,) if single or isinstance(value, str) else tuple(value)
            if len(names) > MOST_NAMES:
                raise InputError(f"{field.name} must be at most {MOST_NAMES:,} names, got {len(names):,}")
            for name in names:
                text = name if single else name or None
                plain = isinstance(text, str) and text.isprintable() and len(text) <= LONGEST_NAME
                if not plain or (text and not text.strip()):
                    raise InputError(
                        f"{field.name} must be a printable text of at most {LONGEST_NAME} characters, "
                        f"got {inert(repr(text)[:50])}"
                    )
            if not single:
                object.__setattr__(self, field.name, names if field.name == "column" else tuple(sorted(set(names))))
        if self.created and not _DAY.fullmatch(self.created):
            raise InputError(f"created must be a day such as 2026-01-31, got {self.created!r}")

    def merged(self, other: Labels) -> Labels:
        """Return what is said about the sum of two sketches, or refuse it."""
        for name in ("column", "unit"):
            left, right = getattr(self, name), getattr(other, name)
            if left and right and left != right:
                texts = (side if isinstance(side, str) else ", ".join(side) for side in (left, right))
                raise IncompatibleError(name, *texts)
        common = set(self.report_ids) & set(other.report_ids)
        if common:
            raise PrivacyError(f"reports must be in one sum only to merge, both contain {min(common)!r}")
        return replace(
            self,
            label=self.label if self.label == other.label else "",
            site=(*self.site, *other.site),
            period=(*self.period, *other.period),
            column=self.column or other.column,
            unit=self.unit or other.unit,
            created=max(self.created, other.created),
            report_ids=(*self.report_ids, *other.report_ids),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain Python, lists for what may be several."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def about(error: UnnoiseError, *sketches: tuple[str, Labels]) -> UnnoiseError:
    """Return the error; it says which sketches it is about, as far as their files or labels give them names.

    >>> about(IncompatibleError("cells", 8, 16), ("a.sketch", Labels()), ("", Labels(site=("north",), period=("May",))))
    IncompatibleError('cells must be equal to merge, got 8 and 16; in a.sketch and site north, period May')
    """
    names = [_name(file, labels) for file, labels in sketches]
    if any(names):
        error.args = (f"{error}; in {' and '.join(inert(name) or 'a sketch without a name' for name in names)}",)
    return error


def _name(file: str, labels: Labels) -> str:
    parts = [f"site {', '.join(labels.site)}"] if labels.site else []
    parts += [f"period {', '.join(labels.period)}"] if labels.period else []
    said = ", ".join(parts) or (f"label {labels.label}" if labels.label else "")
    return f"{file} ({said})" if file and said else file or said


def usual_unit(layout: Layout) -> str:
    """Return whom ε protects where nobody has given it a name."""
    return "occurrence" if layout.max_contributions is None else "person"


def fresh_labels(given: Labels | Mapping[str, Any] | None, layout: Layout) -> Labels:
    """Return the labels of a new sketch: what was given, with its unit and the day, in UTC: the same for every site.

    >>> fresh_labels({"site": "north", "label": "January"}, Layout(kind="hashed", cells=8)).site
    ('north',)
    """
    if not isinstance(given, Labels):
        known, values = {field.name for field in fields(Labels)}, dict(given or {})
        if set(values) - known:
            raise InputError(f"labels must be among {', '.join(sorted(known))}, got {min(set(values) - known)!r}")
        given = Labels(**values)
    unit = given.unit or usual_unit(layout)
    if (unit == "occurrence") != (layout.max_contributions is None):
        raise InputError(f"unit must be occurrence, or a name where max_contributions is given, got {unit!r}")
    return replace(given, unit=unit, created=datetime.now(UTC).strftime("%Y-%m-%d"))
