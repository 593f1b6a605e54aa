"""Answers as files: the end of the name says what is written.

A :class:`~unnoise.answers.report.Document` holds what any of them may need: a sentence, tables of numbers, the promise
in words, everything as plain Python, and an HTML page. ``csv`` and ``parquet`` get one long table with a row per
answer; ``xlsx`` a sheet per table; ``md`` and ``html`` what a person reads; ``json`` what a program reads. Text from
data is inert in all of them. Documents of profiles are made beside the page; here are those of the answers of many
sites (``-o`` of ``union``, ``overlap`` and ``table``) and of estimators set side by side.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..text import inert, inert_html
from .estimate import HUGE, NO_LIMIT, Estimate, sensible
from .questions import mark, tidied, told
from .render import MEASURES, Columns, csv_text, plain
from .report import Document, page_style

if TYPE_CHECKING:
    from .compare import Comparison
    from .consistent import SiteTable

__all__ = ["SUFFIXES", "WRITERS", "answers_document", "comparison_document", "table_document"]


def comparison_document(found: Comparison) -> Document:
    """Return what is to be written about estimators set side by side."""
    keys = ("method", "l1", "w1", "distinct", "total", "seconds", "failure")
    table = {key: [getattr(result, key) for result in found.results] for key in keys}
    distinct, total = (f"{found.truth[key]:,.0f}" for key in ("distinct", "total"))
    lead = f"{distinct} distinct items, {total} occurrences, ε = {found.epsilon:g}."
    about = {
        "l1": "Σ|f̂ − f|", "w1": "Σ|F̂ − F|, the earth mover's distance",
        "distinct, total": "how far the answers are off, as shares of the truth",
        "repetitions": f"{found.repetitions} noisy releases",
    }  # fmt: skip
    title = "Estimators beside the truth"
    return _document(title, lead, {"estimators": table}, found.to_dict(), about)


# ── the writers ───────────────────────────────────────────────────────────────────────────────────────────────


def _shown_row(row: Sequence[Any]) -> list[str]:
    """Write the cells of a row; huge numbers after one that is not are ends of an interval that has none."""
    first = next((cell for cell in row if isinstance(cell, float)), 0.0)
    return ["no limit" if isinstance(cell, float) and first < NO_LIMIT <= cell else _shown(cell) for cell in row]


def _shown(value: Any) -> str:
    """Write a cell for a person: a number with as many digits as it deserves."""
    if value is None or value != value:  # NaN: an estimator that failed has no errors
        return ""
    if isinstance(value, float):
        if abs(value) >= HUGE:
            return f"{value:.3g}".replace("e+", "e")
        return f"{value:,.0f}" if abs(value) >= 100 or value == round(value) else f"{value:.3g}"
    return inert(value)


def _json(document: Document) -> bytes:
    return (json.dumps(plain(dict(document.whole())), indent=2, ensure_ascii=False) + "\n").encode()


def _parquet(document: Document) -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    table = pa.table({name: pa.array(list(column)) for name, column in document.long().items()})
    notes = {"title": document.title, "lead": document.lead, **document.about}
    out = io.BytesIO()
    parquet.write_table(table.replace_schema_metadata(notes), out)
    return out.getvalue()


def _xlsx(document: Document) -> bytes:
    try:
        import xlsxwriter
    except ImportError:
        raise InputError("writing .xlsx needs the package xlsxwriter: pip install 'unnoise[excel]'") from None
    out = io.BytesIO()
    inside = {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False, "nan_inf_to_errors": True}
    with xlsxwriter.Workbook(out, inside) as book:
        bold = book.add_format({"bold": True})
        whole, fine = (book.add_format({"num_format": pattern}) for pattern in ("#,##0", "0.000"))
        for name, columns in {**document.tables(), "long": document.long()}.items():
            sheet = book.add_worksheet(name)
            sheet.freeze_panes(1, 0)
            sheet.write_row(0, 0, list(columns), bold)
            for index, row in enumerate(zip(*columns.values()), 1):
                for column, cell in enumerate(row):
                    style = fine if isinstance(cell, float) and abs(cell) < 10 and cell != round(cell) else whole
                    sheet.write(index, column, inert(cell) if isinstance(cell, str) else cell, style)
            sheet.autofit()
        about = book.add_worksheet("about")
        for index, pair in enumerate({"title": document.title, "in short": document.lead, **document.about}.items()):
            about.write_row(index, 0, [inert(text) for text in pair])
    return out.getvalue()


def _markdown(document: Document) -> bytes:
    escape = str.maketrans({"|": "\\|", "<": "&lt;", "*": "\\*", "_": "\\_", "`": "\\`", "[": "\\["})
    lines = [f"# {inert(document.title).translate(escape)}", "", inert(document.lead).translate(escape)]
    for name, columns in document.tables().items():
        heads = " | ".join(inert(column).translate(escape) for column in columns)
        lines += ["", f"## {name.capitalize()}", "", f"| {heads} |"]
        kinds = ("---" if isinstance(column[0] if column else "", str) else "--:" for column in columns.values())
        lines.append(f"|{'|'.join(kinds)}|")
        rows = (_shown_row(row) for row in zip(*columns.values()))
        lines += [f"| {' | '.join(cell.translate(escape) for cell in row)} |" for row in rows]
    for name, text in document.about.items():
        lines += ["", f"**{name.capitalize()}.** {inert(text).translate(escape)}"]
    return ("\n".join(lines) + "\n").encode()


def _html_table(columns: Mapping[str, Sequence[Any]]) -> str:
    """Write a table; what must be known of a row stands in its first cell, which a phone shows as well."""
    shown = {name: column for name, column in columns.items() if name != "note"}
    kinds = ["" if isinstance(next(iter(column), ""), str) else " class='number'" for column in shown.values()]
    head = "".join(f"<th{kind}>{inert_html(name.replace('_', ' '))}</th>" for name, kind in zip(shown, kinds))
    rows = []
    for row, note in zip(zip(*shown.values()), columns.get("note") or repeat("")):
        cells = [f"<td{kind}>{inert_html(cell)}" for cell, kind in zip(_shown_row(row), kinds)]
        cells[0] += f" <span class='tag'>{inert_html(note)}</span>" if note else ""
        rows.append(f"<tr>{'</td>'.join(cells)}</td></tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _plain_page(title: str, lead: str, tables: Mapping[str, Columns], about: Mapping[str, str]) -> str:
    """Return a small page of tables, in the style of the report."""
    parts = [f"<h1 style='margin-top: 1em'>{inert_html(title)}</h1><p class='lede'>{inert_html(lead)}</p>"]
    parts += [f"<div class='card scroll'>{_html_table(columns)}</div>" for columns in tables.values()]
    parts += [f"<p><b>{inert_html(name)}</b>: {inert_html(text)}</p>" for name, text in about.items()]
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><meta name='viewport' "
        f"content='width=device-width, initial-scale=1'><title>{inert_html(title)}</title>"
        f"<style>{page_style()}</style></head><body><main>{''.join(parts)}</main></body></html>"
    )


WRITERS: dict[str, Callable[[Document], bytes]] = {
    ".html": lambda document: document.page().encode(), ".csv": lambda document: csv_text(document.long()).encode(),
    ".json": _json, ".parquet": _parquet, ".xlsx": _xlsx, ".md": _markdown,
}  # fmt: skip
"""What writes a document as a file of each kind."""

SUFFIXES = tuple(WRITERS)
"""The ends of names that say what is written."""


ABOUT = {
    "interval": "contains the truth in 95 % of the releases",
    "noise": "every site put its own on its sketch before it left; nothing here costs more ε",
}


def answers_document(found: Mapping[str, Estimate], files: Sequence[str]) -> Document:
    """Return what is to be written about named answers from sketches beside each other."""
    rows = list(found.values())
    table: dict[str, list[Any]] = {
        "answer": list(found), **{name: [tidied(getattr(e, key)) for e in rows] for name, key in MEASURES.items()},
        "data_share": [tidied(e.data_share) for e in rows], "note": [mark(e) for e in rows],
    }
    name, first = next(iter(found.items()))
    lead = f"{name.capitalize()} of {len(files)} sketches: {_in_words(first)}."
    whole = {**{name: told(estimate) for name, estimate in found.items()}, "sketches": list(files)}
    return _document("Sites beside each other", lead, {"answers": table}, whole, ABOUT)


def _in_words(estimate: Estimate) -> str:
    """A number with its interval, and what a reader must know before using it."""
    (value, low, high), said = sensible(estimate), mark(estimate)
    return f"{value} ({low} to {high}{f', {said}' if said else ''})"


def table_document(found: SiteTable) -> Document:
    """Return what is to be written about a consistent table."""
    last = found.rows[-1]
    lead = f"{' + '.join(last.sites)} reached {_in_words(last.reach)}."
    return _document("Reach of sites and periods", lead, {"answers": found.columns()}, {"rows": found.to_dict()}, ABOUT)


def _document(
    title: str, lead: str, tables: Mapping[str, Columns], whole: Mapping[str, Any], about: Mapping[str, str]
) -> Document:
    """Return a document of one table."""
    (long,) = tables.values()
    page = lambda: _plain_page(title, lead, tables, about)  # noqa: E731
    return Document(title, lead, about, lambda: long, lambda: tables, lambda: whole, page)
