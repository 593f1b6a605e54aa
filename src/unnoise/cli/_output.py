"""Where results go: into files, or as tables and JSON to a terminal or a pipe.

What may be written where is settled before anything is read or any ε is spent. An output that exists may have cost ε,
so it is replaced only with ``--force``; a file that is read is never written to. A terminal shows one profile with its
entries, or a row for each group that is never cut.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..guard import require_writable, write_whole
from ..text import inert_markup
from ._app import in_options
from ._show import print_json, screen

if TYPE_CHECKING:
    from rich.console import Console

    from ..answers.estimate import Estimate
    from ..answers.export import Document
    from ..answers.profile import Profile
    from ..answers.questions import Question, Sheet
    from ._request import Showing

__all__ = ["check_answers", "check_output", "print_sheets", "show_profiles", "write_document"]

ENTRIES = 24
"""Most rows of the table of frequencies."""

BAR, EIGHTHS = 28, ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")
"""The longest bar beside them, and what a character is filled to."""


def print_sheets(found: Mapping[str, Sheet], guarantee: str = "", *, as_json: bool = False) -> None:
    """Print answers, entries and the promise."""
    from ..answers.render import whole_dict
    from ..answers.report import warnings_of

    if as_json:
        print_json(whole_dict(found, guarantee))
        return
    console = screen()
    if list(found) == [""]:
        _print_one(found[""], console)
    else:
        _print_groups(found, console)
    for note in warnings_of(found):
        console.print(f"\n[yellow]![/yellow] {inert_markup(in_options(note))}")
    if guarantee:
        console.print(f"\n{guarantee}", style="dim", markup=False)


def _cell(question: Question, estimate: Estimate) -> tuple[str, str]:
    """Return the estimate in bold and its interval, with what must be known of it."""
    from ..answers.questions import mark
    from ..answers.render import sensible

    value, low, high = sensible(estimate, whole=question.whole)
    note = mark(estimate)
    return f"[bold]{value}[/bold]", f"{low} – {high}" + (f" [yellow]{note}[/yellow]" if note else "")


def _print_one(sheet: Sheet, console: Console) -> None:
    """Print sentence, answers and the table of frequencies, whose bars are drawn in eighths of a character."""
    from ..answers.questions import mark
    from ..answers.render import first_sentence, ranges_of, rich_table, sensible, span, subtitle

    noun = sheet.asked.noun
    before, value, between, after, note = first_sentence(sheet)
    said = f"{inert_markup(before)}[bold]{value}[/bold]{' ' if between else ''}{between}{inert_markup(after)}"
    marked = f"{said.removesuffix('.')}: [yellow]{note}[/yellow]." if note else said
    console.print(f"\n{marked}\n")
    table = rich_table("question", "estimate", "95 % interval", "", left=("question", ""))
    for question, estimate in sheet.shown:
        value, low, high = sensible(estimate, whole=question.whole)
        label, note = question.labelled(noun).lower(), mark(estimate)
        table.add_row(inert_markup(label), f"[bold]{value}[/bold]", f"{low} – {high}", f"[yellow]{note}[/yellow]")
    console.print(table)
    console.print()
    table = rich_table("times", inert_markup(noun.many), "95 % interval", "", left=("",))
    ranges = ranges_of(sheet)
    top = max(1.0, *(estimate.value for _, _, estimate in ranges))
    for first, last, estimate in ranges[:ENTRIES]:
        value, low, high = sensible(estimate)
        eighths = round(max(estimate.value / top, 0) * BAR * 8)
        bar = "█" * (eighths // 8) + EIGHTHS[eighths % 8]
        table.add_row(span(first, last), f"[bold]{value}[/bold]", f"{low} – {high}", f"[cyan]{bar}[/cyan]")
    console.print(table)
    console.print(f"\n{subtitle(sheet.profile)}", style="dim", markup=False)


def _grouped(sheet: Sheet) -> list[Question]:
    """Return what the table of groups asks: the chosen thresholds, or the usual few."""
    from ..answers.questions import DISTINCT, TOTAL, at_least, exactly, question

    chosen = sheet.asked.at_least
    several = [exactly(1), at_least(2), at_least(10)] if chosen is None else [at_least(k) for k in sorted(set(chosen))]
    wanted = dict.fromkeys([question(sheet.asked.headline), DISTINCT, TOTAL, *several])
    return [question for question in wanted if question.key in sheet.answers]


def _print_groups(found: Mapping[str, Sheet], console: Console) -> None:
    """Print one row per group, where that is too wide one row per question, else one block per group."""
    for make in (_group_table, _question_table):
        table = make(found)
        least = _width(table, console)
        if least <= console.width or not console.is_terminal:
            screen(least=least).print(table)
            return
    _print_blocks(found, console)


def _width(table: Any, console: Console) -> int:
    """Return the characters that a table takes, whatever the console has."""
    from rich.measure import Measurement

    return Measurement.get(console, console.options.update(max_width=10_000, width=10_000), table).maximum


def _group_table(found: Mapping[str, Sheet]) -> Any:
    """Make a row for each group, the intervals beside the estimates."""
    from ..answers.render import rich_table

    first = next(iter(found.values()))
    questions = _grouped(first)
    table = rich_table("group", *(inert_markup(q.labelled(first.asked.noun).lower()) for q in questions))
    for column in table.columns:
        column.no_wrap = True
    for name, sheet in found.items():
        pairs = (_cell(question, sheet.answers[question.key]) for question in questions)
        table.add_row(inert_markup(name), *(f"{value} ({span})" for value, span in pairs))
    return table


def _question_table(found: Mapping[str, Sheet]) -> Any:
    """Make a row for each question and a column for each group, the intervals below the estimates."""
    from ..answers.questions import mark
    from ..answers.render import rich_table, sensible

    first = next(iter(found.values()))
    table = rich_table("", *(inert_markup(name) for name in found))
    for column in table.columns:
        column.no_wrap = True
    for question in _grouped(first):
        cells = []
        for sheet in found.values():
            estimate = sheet.answers[question.key]
            value, low, high = sensible(estimate, whole=question.whole)
            note = mark(estimate)
            cells.append(f"[bold]{value}[/bold]\n{low} – {high}" + (f"\n[yellow]{note}[/yellow]" if note else ""))
        table.add_row(inert_markup(question.labelled(first.asked.noun).lower()), *cells)
    return table


def _print_blocks(found: Mapping[str, Sheet], console: Console) -> None:
    from ..answers.render import rich_table

    for name, sheet in found.items():
        console.print(f"[bold]{inert_markup(name)}[/bold]")
        table = rich_table("question", "estimate", "interval", left=("question", "interval"))
        table.show_header = False
        for column in table.columns:
            column.overflow = "fold"
        for question in _grouped(sheet):
            value, span = _cell(question, sheet.answers[question.key])
            table.add_row(f"  {inert_markup(question.labelled(sheet.asked.noun).lower())}", value, span)
        console.print(table)


def check_output(
    output: str | None, inputs: Iterable[str | None] = (), *, force: bool = False, folder: bool = False
) -> None:
    """Refuse an output that is an input, exists already, or cannot be written; a set of groups is a folder."""
    if output is None or output == "-":
        return
    from ..reading.formats import expand

    path = Path(output)
    for name in inputs if path.exists() else ():
        if name is None or name == "-":
            continue
        wild = not os.path.exists(name) and any(sign in name for sign in "*?[")
        places = expand(name) if wild else [Path(name)]
        if any(os.path.exists(place) and os.path.samefile(path, place) for place in places):
            raise InputError(f"{output} is read here and must not be written to; give --output another name")
    if not (folder and path.is_dir()):
        require_writable(path)
    if os.path.lexists(path) and not force:
        raise InputError(f"{output} exists already and may have cost ε; --force replaces it")


def check_answers(showing: Showing, inputs: Iterable[str | None]) -> None:
    """Refuse an output for answers whose name does not say what to write, or that must not be written to."""
    showing.asked()
    if showing.output not in (None, "-"):
        from ..answers.export import check_suffix

        check_suffix(str(showing.output))
    check_output(showing.output, inputs, force=showing.force)


def show_profiles(profiles: Mapping[str, Profile], guarantee: str, showing: Showing, *, quiet: bool = False) -> None:
    """Write the profiles into the file asked for, if any, and print them unless that went to standard output."""
    from ..answers.export import profiles_document
    from ..answers.questions import sheets
    from ..answers.report import report_page, warnings_of
    from ._show import saying

    with saying("answering"):
        named = sheets(profiles, showing.asked())
    title = showing.title or "Private frequency profile"
    if showing.output is not None:
        document = profiles_document(
            named, title=title, guarantee=guarantee, warnings=warnings_of(named),
            page=lambda: report_page(named, title=title, guarantee=guarantee),
        )  # fmt: skip
        write_document(document, showing.output)
    if showing.output != "-" and not quiet:
        print_sheets(named, guarantee, as_json=showing.as_json)


def write_document(document: Document, output: str) -> None:
    """Write a document as the end of the name says; - is the page, to standard output."""
    from ..answers.export import check_suffix, written_as
    from ._show import note, saying

    with saying(f"writing {'the page' if output == '-' else output}"):
        content = written_as(document, ".html" if output == "-" else check_suffix(output))
        if output != "-":
            write_whole(output, content)
    if output == "-":
        sys.stdout.write(content.decode())
        return
    note(f"written to {output}")
