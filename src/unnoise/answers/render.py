"""Profiles and tables as text, HTML and plain Python; for programs one long table of all answers and ranges."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..arrays import Int64
from ..text import inert_cell, inert_html
from .estimate import NO_END, Estimate, sensible, sensible_rows
from .questions import DISTINCT, IF_ANY, MEDIAN, TOTAL, Asked, Sheet, mark, span, tidied, told

if TYPE_CHECKING:
    from .profile import Profile, Table

__all__ = [
    "Columns", "Said", "chosen_counts", "csv_text", "first_sentence", "long_table", "plain",
    "profile_html", "profile_text", "protected", "rich_table",
    "table_html", "table_text", "whole_dict",
]  # fmt: skip

Columns = Mapping[str, Sequence[Any]]

HEAD = ("distinct", "total", "exactly_1", "entropy")
"""The questions of a short table."""

MEASURES = {"estimate": "value", "low": "low", "high": "high"}
"""What tables for programs call the numbers of an answer."""

EXPORTED = 10_000
"""Most entries written by ``whole_dict``; the rest is in ``to_arrow`` and its kin."""


def chosen_counts(profile: Profile, longest: int) -> Int64:
    """Return 0, 1, 2, … then ever wider apart, as far as at least one item is expected."""
    expected = profile.mass * profile.items
    heavy = profile.support[expected >= 1]
    top = int(heavy[-1]) if heavy.size else int(profile.support[0])
    if top < longest:
        return np.arange(top + 1)
    head = np.arange(longest // 2)
    far = np.geomspace(head[-1] + 1, top, longest - head.size)
    nice = [_nice(x) for x in far[:-1]]
    return np.unique(np.concatenate([head, nice, [top]])).astype(np.int64)


def _nice(x: float) -> int:
    """Round to one significant digit, two below 20."""
    if x < 20:
        return round(x)
    unit: int = 10 ** int(np.floor(np.log10(x)))
    return round(x / unit) * unit


class Said(NamedTuple):
    """The answer that heads a page.

    before, value, between, after : its sentence in pieces, the interval (between) may be empty
    mark : what tables say of it; text : the whole sentence, mark included
    """

    before: str
    value: str
    between: str
    after: str
    mark: str
    text: str


def first_sentence(sheet: Sheet) -> Said:
    """Return the answer that heads a page, in pieces and whole."""
    question, estimate = sheet.asked.head, sheet.answers[sheet.asked.head.key]
    value, low, high = sheet.written[question.key]
    few = question.whole and estimate.value < 0.5 and question != MEDIAN
    none = few and high == "0"
    alone = (high if few else value) == "1" and question not in (MEDIAN, TOTAL)
    noun = sheet.asked.noun.alone if alone else sheet.asked.noun
    about = "\0" if none else "at most \0" if few else "about \0"
    # a median is one of items that occur, unless 0 is a count among others
    doubtful = question == MEDIAN and sheet.written[DISTINCT.key][1] == "0" and sheet.profile.support[0] > 0
    sentence = IF_ANY if doubtful else question.sentence
    before, _, after = sentence.format(about=about, **vars(noun)).partition("\0")
    value = ("no" if before else "No") if none else high if few else value
    before = before[:1].upper() + before[1:]
    between = "" if few else f"({low}–{high})"
    text, note = f"{before}{value}{' ' if between else ''}{between}{after}", mark(estimate)
    return Said(before, value, between, after, note, f"{text.removesuffix('.')}: {note}." if note else text)


def headline(profile: Profile) -> list[tuple[str, ...]]:
    """Return label, estimate, interval and mark of the answers that head every rendering."""
    rows: list[tuple[str, ...]] = []
    sheet = Sheet.of(profile, Asked(at_least=()))
    asked = {question.key: question for question in sheet.asked.questions}
    for question, estimate in ((asked[key], sheet.answers[key]) for key in HEAD if key in sheet.answers):
        value, low, high = sheet.written[question.key]
        label = question.label.lower() + ("" if question.whole else " (nats)")
        rows.append((label, value, f"{low} – {high}", mark(estimate)))
    return rows


def protected(profile: Profile) -> tuple[Fraction, str]:
    """Return the ε that is promised and to whom; that of one noisy number is less where a unit moves several."""
    noisy: Any = profile.noisy
    most = noisy.layout.max_contributions
    if noisy.layout.kind == "direct":
        return noisy.epsilon, "one person" if noisy.persons else "one occurrence"
    return noisy.noise.epsilon * (most or 1), "one occurrence" if most is None else "one person in one ingestion call"


def subtitle(profile: Profile) -> str:
    """Say where the profile comes from."""
    power, kind = profile.noisy.noise.power, profile.noisy.layout.kind
    what, (epsilon, unit) = "numbers" if kind == "direct" else "cells", protected(profile)
    to = "" if unit == "one occurrence" else f" for {unit}"
    added = "" if power == 1 else f", power {power}"
    return f"{kind}, {profile.noisy.cells:,} {what}, ε = {float(epsilon):g}{to}{added}, {profile.method}"


def _grid(rows: Sequence[Sequence[str]]) -> str:
    """Align columns to the right, with a rule under the first row."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    lines.insert(1, "  ".join("─" * width for width in widths).rstrip())
    return "\n".join(lines)


def rich_table(*columns: str, left: Sequence[str] | None = None) -> Any:
    """Return an empty table for the terminal; columns in ``left``, the first one unless said, begin at the left."""
    from rich.table import Table as RichTable

    table = RichTable(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for name in columns:
        table.add_column(name, justify="left" if name in (columns[:1] if left is None else left) else "right")
    return table


def _entry_rows(profile: Profile) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("count t", "items", "95 % interval", "")]
    for count in profile.shown().tolist():
        estimate = profile._band(count, count, 0.95, 1.0)
        value, low, high = sensible(estimate)
        rows.append((span(count, count, profile.cap), value, f"{low} – {high}", mark(estimate)))
    return rows


def profile_text(profile: Profile) -> str:
    """Return the profile as a short table with the headline answers."""
    return "\n".join([
        f"Profile ({subtitle(profile)})",
        _grid([("answer", "estimate", "95 % interval", ""), *headline(profile)]),
        "",
        _grid(_entry_rows(profile)),
        *(f"! {note}" for note in profile.warnings),
    ])


def profile_html(profile: Profile) -> str:
    """Return the profile as an HTML fragment for notebooks."""
    return (
        f"<div><p><b>Profile</b> ({inert_html(subtitle(profile))})</p>"
        + _html_table([("answer", "estimate", "95 % interval", ""), *headline(profile)])
        + _html_table(_entry_rows(profile))
        + "".join(f"<p>⚠ {inert_html(note)}</p>" for note in profile.warnings)
        + "</div>"
    )


def _html_table(rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{inert_html(cell)}</th>" for cell in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{inert_html(cell)}</td>" for cell in row) + "</tr>" for row in rows[1:])
    return f'<table style="text-align:right"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _table_rows(table: Table) -> Sequence[tuple[str, ...]]:
    interval = f"{100 * table.level:g} % interval"
    rows: list[tuple[str, ...]] = [("count", "items", interval, "share", "at least", interval, "")]
    parts = [(row.first, NO_END if row.last is None else row.last, row.items, row.at_least) for row in table.rows]
    for row, ((items, *ends), (reach, *limits)) in zip(table.rows, sensible_rows(parts)):
        note = mark(row.items) or mark(row.at_least)
        share = f"{100 * row.share.value:.2f} %"
        rows.append((row.label, items, " – ".join(ends), share, reach, " – ".join(limits), note))
    return rows


def table_text(table: Table) -> str:
    """Return a table as aligned text."""
    return _grid(_table_rows(table))


def table_html(table: Table) -> str:
    """Return a table as HTML."""
    return _html_table(_table_rows(table))


# ── for programs ────────────────────────────────────────────────────────────────────────────────────────────────────


def whole_dict(named: Mapping[str, Sheet], guarantee: str) -> dict[str, Any]:
    """Return everything as plain Python: what ``--json``, a .json file and the page's download hold."""
    found = {}
    for name, sheet in named.items():
        profile, level = sheet.profile, sheet.asked.level
        noise, layout = profile.noisy.noise, profile.noisy.layout
        said, (epsilon, unit) = first_sentence(sheet), protected(profile)
        found[name] = {
            "method": profile.method,
            "kind": layout.kind,
            "cells": profile.noisy.cells,
            "items": float(profile.items),
            "epsilon": float(epsilon),
            "unit": unit,
            "noise_epsilon": float(noise.epsilon),
            "epsilon_share": float(getattr(profile.noisy, "share", 1)),
            "power": float(noise.power),
            "level": level,
            "headline": {"question": sheet.asked.head.key, "sentence": said.text, "note": said.mark},
            "answers": {key: told(answer) for key, answer in sheet.answers.items()},
            "entries": {
                key: [x if isinstance(x, int) else tidied(x) for x in column[:EXPORTED].tolist()]
                for key, column in profile.columns(level).items()
            },
            "entries_left_out": max(0, int(profile.support.size) - EXPORTED),
            "notices": [{"code": notice.code, "text": notice.text} for notice in profile.notices],
            "warnings": list(profile.warnings),
            "diagnostics": plain(dict(profile.diagnostics)),
        }
    body = found[""] if list(found) == [""] else {"groups": found}
    return {**body, "guarantee": guarantee} if guarantee else body


def plain(value: Any) -> Any:
    """Turn numpy scalars, arrays and mappings into what JSON can write."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, str | bool | int) or value is None:
        return value
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return str(value)


def long_table(named: Mapping[str, Sheet]) -> Columns:
    """One row per answer and range: group, question, the counts it is about, estimate and interval."""
    rows: list[tuple[str, str, int | None, int | None, Estimate]] = []
    for name, sheet in named.items():
        for key, answer in sheet.answers.items():
            count = int(key.rpartition("_")[2]) if key[-1].isdigit() else None
            rows.append((name, key, count, count if key.startswith("exactly") else None, answer))
        rows += [(name, "range", first, last, estimate) for first, last, estimate, _ in sheet.ranges]
    columns: dict[str, list[Any]] = {} if list(named) == [""] else {"group": [row[0] for row in rows]}
    columns |= {"question": [r[1] for r in rows], "first": [r[2] for r in rows], "last": [r[3] for r in rows]}
    answers = [row[4] for row in rows]
    return columns | {
        **{name: [tidied(getattr(e, key)) for e in answers] for name, key in MEASURES.items()},
        "level": [e.level for e in answers], "interval": [e.kind for e in answers],
        "data_share": [tidied(e.data_share) for e in answers], "note": [mark(e) for e in answers],
    }  # fmt: skip


def csv_text(long: Columns) -> str:
    """Return the long table as CSV: what a .csv file and the page's download hold."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(long)
    for row in zip(*long.values()):
        writer.writerow([inert_cell(cell) if isinstance(cell, str) else cell for cell in row])
    return out.getvalue()
