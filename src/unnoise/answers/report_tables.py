"""The tables of a report: answers with their intervals, all numbers of the picture, public parameters; and for programs
one long table with a row per answer and range, and everything as plain Python.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..noise import tidy
from ..text import inert_cell, inert_html
from .estimate import Estimate, number, percent
from .questions import Question, Sheet, mark
from .render import protected, sensible, sheet_dict

if TYPE_CHECKING:
    from .profile import Profile

__all__ = [
    "Columns", "answers_table", "as_columns", "csv_text", "long_table", "numbers_table", "parameters", "ranges_of",
    "span", "whole_dict",
]  # fmt: skip

Columns = Mapping[str, Sequence[Any]]


def answers_table(named: Mapping[str, Sheet]) -> str:
    """Write the answers: of one profile with their precision, of several side by side."""
    asked = next(iter(named.values())).asked
    columns = [dict(sheet.shown) for sheet in named.values()]
    interval = f"{100 * asked.level:g} % interval"
    heads = list(named) if len(named) > 1 else ["Estimate", interval, "Precision"]
    head = "".join(f'<th scope="col" class="number">{inert_html(name)}</th>' for name in heads)
    rows = []
    for question in asked.questions:
        found = [column.get(question) for column in columns]
        if not any(estimate is not None for estimate in found):
            continue
        what = question.explained(asked.noun)
        small = f"<small>{inert_html(what)}</small>" if what else ""
        if len(named) == 1:
            cells = _cells(question, found[0], interval)
        else:
            cells = "".join(_group_cell(question, e, name) for e, name in zip(found, named))
        rows.append(f'<tr><th scope="row">{inert_html(question.labelled(asked.noun))}{small}</th>{cells}</tr>')
    top = f'<thead><tr><th scope="col">Question</th>{head}</tr></thead>'
    return (
        f'<div class="scroll"><table class="answers" style="--groups:{len(named)}">{top}'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _tag(estimate: Estimate) -> str:
    note = mark(estimate)
    return f' <span class="tag">{inert_html(note)}</span>' if note else ""


def _cells(question: Question, estimate: Estimate | None, interval: str) -> str:
    if estimate is None:
        return '<td class="number" colspan="3">–</td>'
    value, low, high = sensible(estimate, whole=question.whole)
    half = (estimate.high - estimate.low) / 2
    relative = f"± {percent(half / abs(estimate.value))}" if estimate.value and half else ""
    tag = _tag(estimate)
    return (
        f'<td class="number value">{value}</td><td class="number range" data-label="{interval}">{low} – {high}</td>'
        f'<td class="number range precision">{tag or relative}</td>'
    )


def _group_cell(question: Question, estimate: Estimate | None, group: str) -> str:
    label = f'data-label="{inert_html(group)}"'
    if estimate is None:
        return f'<td class="number" {label}>–</td>'
    value, low, high = sensible(estimate, whole=question.whole)
    return f'<td class="number" {label}><b>{value}</b><small>{low} – {high}{_tag(estimate)}</small></td>'


def numbers_table(name: str, sheet: Sheet) -> str:
    """The numbers behind the picture as a table, for screen readers: whole items in each range of counts."""
    many = inert_html(sheet.asked.noun.many)
    heads = ("times", many, "from", "to", "at least so often", "from", "to")
    head = "".join(f'<th scope="col" class="number">{text}</th>' for text in heads)
    reach, rows = sheet.reach, []
    for i, (first, last, inside) in enumerate(ranges_of(sheet)):
        above = Estimate(reach.value[i], 0.0, reach.low[i], reach.high[i])
        body = "".join(f'<td class="number">{x}</td>' for x in (*sensible(inside), *sensible(above)))
        rows.append(f'<tr><th scope="row" class="number">{span(first, last)}</th>{body}</tr>')
    caption = inert_html(name) or f"{many.capitalize()} by number of occurrences"
    return (
        f'<p class="cue">Seven columns: swipe sideways to see all of them.</p><div class="scroll"><table class="all">'
        f"<caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def parameters(profile: Profile) -> str:
    """List the public parameters."""
    noise, layout = profile.noisy.noise, profile.noisy.layout
    kinds = {
        "hashed": "items fall into cells by their hash; collisions are taken out of the statistics",
        "known": "one cell for each item of a domain declared beforehand",
        "sampled": "one cell for each item of a hashed sample of the domain",
        "direct": "of the profile itself, on a grid that depends on no data",
    }
    epsilon, unit = protected(profile)
    times = "one noise in every cell" if noise.power == 1 else "noises of merged sketches and later epochs add up"
    spread = number(float(f"{math.sqrt(noise.variance):.2g}"))
    factor = number(float(f"{math.exp(min(float(epsilon), 700.0)):.3g}"))
    facts = [
        ("Privacy parameter ε", tidy(epsilon), f"{unit} changes the odds of any outcome at most {factor}-fold"),
        ("Noise power ρ", tidy(noise.power), f"{times}; standard deviation {spread}"),
        ("Numbers released" if layout.kind == "direct" else "Cells", f"{profile.cells:,}", kinds[layout.kind]),
    ]
    whole = getattr(profile.noisy, "whole", 0)
    if 0 < whole < 1:
        facts.append(("Of it, all groups together", tidy(whole * epsilon), "as a second release of the same rows"))
    if layout.domain is not None:
        facts.append(("Declared domain", f"{layout.domain:,}", "items, declared before any data"))
    if layout.rate is not None:
        facts.append(("Sampling rate", tidy(layout.rate), "of the domain"))
    load = profile.diagnostics.get("load")
    if load is not None:
        facts.append(("Load", number(float(load)), "items per cell, estimated"))
    if layout.levels > 1:
        facts.append(("Levels", str(layout.levels), "each with its own range of cells"))
    if layout.max_contributions:
        facts.append(("Occurrences per person", f"at most {layout.max_contributions:,}", "in one reading of the data"))
    if layout.pan_private:
        facts.append(("Pan-private", "yes", "fresh noise at release as well"))
    facts.append(("Reconstruction", profile.method, "from the noisy counts alone"))
    entries = "".join(
        f"<div><dt>{inert_html(label)}</dt><dd>{inert_html(value)}<small>{inert_html(what)}</small></dd></div>"
        for label, value, what in facts
    )
    return f'<dl class="facts">{entries}</dl>'


# ── for programs ──────────────────────────────────────────────────────────────────────────────────────────────────


def whole_dict(named: Mapping[str, Sheet], guarantee: str) -> dict[str, Any]:
    """Return everything as plain Python: what ``--json``, a .json file and the page's download hold."""
    found = {name: sheet_dict(sheet) for name, sheet in named.items()}
    body = found[""] if list(found) == [""] else {"groups": found}
    return {**body, "guarantee": guarantee} if guarantee else body


def as_columns(estimates: Sequence[Estimate]) -> dict[str, list[Any]]:
    """Return estimates as columns."""
    return {
        "estimate": [e.value for e in estimates], "low": [e.low for e in estimates],
        "high": [e.high for e in estimates], "level": [e.level for e in estimates],
        "interval": [e.kind for e in estimates], "data_share": [e.data_share for e in estimates],
        "note": [mark(e) for e in estimates],
    }  # fmt: skip


def span(first: int, last: int) -> str:
    """Write a range of counts.

    >>> span(7, 7), span(1000, 1299)
    ('7', '1,000–1,299')
    """
    return f"{first:,}" if first == last else f"{first:,}–{last:,}"


def ranges_of(sheet: Sheet) -> list[tuple[int, int, Estimate]]:
    """Return first, last and the items in each range of counts, an answer like all others."""
    ends = zip(sheet.exact.first.tolist(), sheet.exact.last.tolist())
    return [(first, last, sheet.profile._band(first, last, sheet.asked.level, 1)) for first, last in ends]


def long_table(named: Mapping[str, Sheet]) -> Columns:
    """One row per answer and range: group, question, the counts it is about, estimate and interval."""
    rows: list[tuple[str, str, int | None, int | None, Estimate]] = []
    for name, sheet in named.items():
        for question in sheet.questions:
            count = int(question.key.rpartition("_")[2]) if question.key[-1].isdigit() else None
            last = count if question.key.startswith("exactly") else None
            rows.append((name, question.key, count, last, sheet.answers[question.key]))
        rows += [(name, "range", first, last, estimate) for first, last, estimate in ranges_of(sheet)]
    columns: dict[str, list[Any]] = {} if list(named) == [""] else {"group": [row[0] for row in rows]}
    columns |= {"question": [r[1] for r in rows], "first": [r[2] for r in rows], "last": [r[3] for r in rows]}
    return columns | as_columns([row[4] for row in rows])


def csv_text(long: Columns) -> str:
    """Return the long table as CSV: what a .csv file and the page's download hold."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(long)
    for row in zip(*long.values()):
        writer.writerow([inert_cell(cell) if isinstance(cell, str) else cell for cell in row])
    return out.getvalue()
