"""Labels: what people and protocols say about a sketch, public and chosen without a look at the data.

A sketch that is kept, sent and merged must say what it is: a title, which site counted, over which period, which
columns, for which unit its ε holds, on which day its noise was drawn, and, for a sum of shares, which reports are in
it. Merging compares what decides whether a sum makes sense (column, unit), and unites what tells where it came from
(site, period, report ids):

    label    kept where equal, else empty          site, period   united
    column   equal, or empty on one side           report_ids     united, and must have been disjoint
    unit     equal, or empty on one side           created        the later day
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any

from .errors import IncompatibleError, InputError, PrivacyError, UnnoiseError
from .text import LONGEST_NAME, inert, is_plain

__all__ = ["MOST_NAMES", "Labels", "about", "as_labels", "today"]

MOST_NAMES = 20_000
"""Most sites, periods, columns or report ids."""

_DAY = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])")


def today() -> str:
    """Return the day, in UTC: the same for every site that works at the same moment."""
    return datetime.now(UTC).strftime("%Y-%m-%d")


@dataclass(frozen=True, kw_only=True)
class Labels:
    """What is said about a sketch; whatever is empty is not said.

    label : a title
    site, period : who counted, and over which time; sorted, several after merging
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
            value = getattr(self, field.name)
            if isinstance(field.default, str):
                _require_text(field.name, value)
            else:
                object.__setattr__(self, field.name, _names(field.name, value))
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


def as_labels(given: Labels | Mapping[str, Any] | None) -> Labels:
    """Return labels out of what a caller gives: labels, a mapping of them (one text may stand for a list), or none.

    >>> as_labels({"site": "north", "label": "January"})
    Labels(label='January', site=('north',), period=(), column=(), unit='', created='', report_ids=())
    """
    if isinstance(given, Labels):
        return given
    known = {field.name for field in fields(Labels)}
    values = dict(given or {})
    if set(values) - known:
        raise InputError(f"labels must be among {', '.join(sorted(known))}, got {min(set(values) - known)!r}")
    return Labels(**values)


def _require_text(name: str, value: object) -> None:
    if not isinstance(value, str) or (value and not is_plain(value)):
        shown = inert(repr(value)[:50])
        raise InputError(f"{name} must be a printable text of at most {LONGEST_NAME} characters, got {shown}")


def _names(name: str, value: Any) -> tuple[str, ...]:
    """Return names as a tuple: columns in their order, the others sorted and each once."""
    names = (value,) if isinstance(value, str) else tuple(value)
    if len(names) > MOST_NAMES:
        raise InputError(f"{name} must be at most {MOST_NAMES:,} names, got {len(names):,}")
    for each in names:
        _require_text(name, each or None)
    return names if name == "column" else tuple(sorted(set(names)))
