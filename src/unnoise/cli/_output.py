"""Where results go: into files, or as tables and JSON to a terminal or a pipe; progress and notes beside them.

What may be written where is settled before anything is read or any ε is spent. An output that exists may have cost ε,
so it is replaced only with ``--force``; a file that is read is never written to. A terminal shows one profile with its
entries, or a row for each group that is never cut. Progress, notes and spinners go to standard error, on terminals
only.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path, PurePath
from threading import Event, Lock, Timer
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..guard import require_writable, write_whole
from ..text import inert, inert_json, inert_markup
from ._app import in_options

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from ..answers.profile import Profile
    from ..answers.questions import Asked, Question, Sheet
    from ..answers.report import Document
    from ..reading.source import Source, Wanted
    from ..sketches.inputs import Rows
    from ._request import Showing

__all__ = [
    "check_answers", "check_output", "note", "print_json", "print_sheets", "saying", "screen", "show_profiles",
    "with_progress", "write_document",
]  # fmt: skip

# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def check_output(
    output: str | None,
    inputs: Iterable[str | None] = (),
    *,
    force: bool = False,
    folder: bool = False,
    document: bool = False,
) -> None:
    """Refuse an output that is an input, exists already, or cannot be written.

    A set of groups is a ``folder``; the name of a ``document`` says by its end what is written.
    """
    if output is None or output == "-":
        return
    from ..reading.formats import expand

    path = Path(output)
    if document:
        from ..answers.export import WRITERS

        if path.suffix.lower() not in WRITERS:
            raise InputError(f"{output}: the name must end in one of {', '.join(WRITERS)}, which says what is written")
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


def check_answers(showing: Showing, inputs: Iterable[str | None]) -> Asked:
    """Return what the page is about; refuse what cannot be asked, and an output that must not be written to."""
    from ..answers.questions import ITEM, Asked, noun

    parts = None if showing.at_least is None else [part.strip() for part in showing.at_least.split(",")]
    if parts and not all(part.isascii() and part.isdigit() and len(part) <= 18 and int(part) for part in parts):
        given = repr(showing.at_least)[:40]
        raise InputError(f"--at-least must be whole numbers ≥ 1 and < 10^18 with commas between, got {given}")
    what = ITEM if showing.noun == ITEM.one else noun(showing.noun)
    asked = Asked(None if parts is None else tuple(map(int, parts)), showing.headline, what)
    if showing.output == "-" and showing.as_json:
        raise InputError("--json and --output - must not both write to standard output; leave one of them out")
    check_output(showing.output, inputs, force=showing.force, document=True)
    return asked


def show_profiles(
    profiles: Mapping[str, Profile], guarantee: str, showing: Showing, asked: Asked, *, quiet: bool = False
) -> None:
    """Write the profiles into the file asked for, if any, and print them unless that went to standard output.

    What cannot be written (a full disk) is printed none the less: it has cost ε.
    """
    from ..answers.questions import Sheet
    from ..answers.report import profiles_document

    with saying("answering"):
        named = {name: Sheet.of(profile, asked) for name, profile in profiles.items()}
    if showing.output is not None:
        document = profiles_document(named, title=showing.title or "Private frequency profile", guarantee=guarantee)
        try:
            write_document(document, showing.output, new=not showing.force)
        except OSError as error:
            if showing.output == "-":
                raise
            with suppress(BrokenPipeError):  # nobody reads it, and yet it was not written
                print_sheets(named, guarantee, as_json=showing.as_json)
            raise OSError(error.errno, error.strerror, showing.output) from error
    if showing.output != "-" and not quiet:
        print_sheets(named, guarantee, as_json=showing.as_json)


def write_document(document: Document, output: str, *, new: bool) -> None:
    """Write a document as the end of its name says, ``new`` or over an old one; - is the page, to standard output."""
    from ..answers.export import WRITERS

    with saying(f"writing {'the page' if output == '-' else output}"):
        content = WRITERS[".html" if output == "-" else PurePath(output).suffix.lower()](document)
        if output != "-":
            write_whole(output, content, new=new)
    if output == "-":
        sys.stdout.write(content.decode())
        return
    note(f"written to {output}")


# ── answers on a terminal ────────────────────────────────────────────────────────────────────────────────────────────

ENTRIES = 24
"""Most rows of the table of frequencies, of which the last is then open."""

BAR, EIGHTHS = 28, ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")
"""The longest bar beside them, where there is room, and what a character is filled to."""


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


def _cell(sheet: Sheet, question: Question) -> tuple[str, str]:
    """Return the estimate in bold and its interval, with what must be known of it."""
    from ..answers.questions import mark

    value, low, high = sheet.written[question.key]
    note = mark(sheet.answers[question.key])
    return f"[bold]{value}[/bold]", f"{low} – {high}" + (f" [yellow]{note}[/yellow]" if note else "")


def _print_one(sheet: Sheet, console: Console) -> None:
    """Print sentence, answers and the table of frequencies."""
    from ..answers.questions import mark
    from ..answers.render import first_sentence, rich_table, subtitle

    before, value, between, after, note, _ = first_sentence(sheet)
    said = f"{inert_markup(before)}[bold]{value}[/bold]{' ' if between else ''}{between}{inert_markup(after)}"
    marked = f"{said.removesuffix('.')}: [yellow]{note}[/yellow]." if note else said
    console.print(f"\n{marked}\n")
    table = rich_table("question", "estimate", "95 % interval", "", left=("question", ""))
    for question, estimate in sheet.shown:
        value, low, high = sheet.written[question.key]
        label, note = inert_markup(question.label.lower()), mark(estimate)
        table.add_row(label, f"[bold]{value}[/bold]", f"{low} – {high}", f"[yellow]{note}[/yellow]")
    console.print(table)
    console.print()
    room = console.width - _width(_frequencies(sheet, 0), console)
    console.print(_frequencies(sheet, min(max(room, 0), BAR)))
    console.print(f"\n{subtitle(sheet.profile)}", style="dim", markup=False)


def _frequencies(sheet: Sheet, longest: int) -> Any:
    """Make the table of frequencies, with bars of up to ``longest`` characters, drawn in eighths of one."""
    from ..answers.estimate import sensible_rows
    from ..answers.questions import mark, span
    from ..answers.render import rich_table

    said, cap = sensible_rows(sheet.ranges), sheet.profile.cap
    rows = [(span(first, last, cap), each, text) for (first, last, each, _), (text, _) in zip(sheet.ranges, said)]
    if len(rows) > ENTRIES:
        first, _, _, above = sheet.ranges[ENTRIES - 1]
        rows[ENTRIES - 1 :] = [(f"{first:,}+", above, said[ENTRIES - 1][1])]
    table = rich_table("times", inert_markup(sheet.asked.noun.many), "95 % interval", "", "", left=("",))
    top = max(1.0, *(estimate.value for _, estimate, _ in rows))
    for times, estimate, (value, low, high) in rows:
        eighths = round(max(estimate.value / top, 0) * longest * 8)
        bar = "█" * (eighths // 8) + EIGHTHS[eighths % 8]
        note = f"[yellow]{mark(estimate)}[/yellow]"
        table.add_row(times, f"[bold]{value}[/bold]", f"{low} – {high}", note, f"[cyan]{bar}[/cyan]")
    return table


def _grouped(sheet: Sheet) -> list[Question]:
    """Return what the table of groups asks: the chosen thresholds, or the usual few."""
    from ..answers.questions import DISTINCT, TOTAL, at_least, exactly

    chosen = sheet.asked.at_least
    several = [exactly(1), at_least(2), at_least(10)] if chosen is None else [at_least(k) for k in sorted(set(chosen))]
    asked = {question.key: question for question in sheet.asked.questions}
    wanted = dict.fromkeys([sheet.asked.head, DISTINCT, TOTAL, *several])
    return [asked[question.key] for question in wanted if question.key in sheet.answers]


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
    table = rich_table("group", *(inert_markup(q.label.lower()) for q in questions))
    for column in table.columns:
        column.no_wrap = True
    for name, sheet in found.items():
        pairs = (_cell(sheet, question) for question in questions)
        table.add_row(inert_markup(name), *(f"{value} ({span})" for value, span in pairs))
    return table


def _question_table(found: Mapping[str, Sheet]) -> Any:
    """Make a row for each question and a column for each group, the intervals below the estimates."""
    from ..answers.questions import mark
    from ..answers.render import rich_table

    first = next(iter(found.values()))
    table = rich_table("", *(inert_markup(name) for name in found))
    for column in table.columns:
        column.no_wrap = True
    for question in _grouped(first):
        cells = []
        for sheet in found.values():
            value, low, high = sheet.written[question.key]
            note = mark(sheet.answers[question.key])
            cells.append(f"[bold]{value}[/bold]\n{low} – {high}" + (f"\n[yellow]{note}[/yellow]" if note else ""))
        table.add_row(inert_markup(question.label.lower()), *cells)
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
            value, span = _cell(sheet, question)
            table.add_row(f"  {inert_markup(question.label.lower())}", value, span)
        console.print(table)


# ── lines, notes and progress ────────────────────────────────────────────────────────────────────────────────────────

PATIENCE = 0.7
"""Seconds before anything is said about progress."""


def screen(*, stderr: bool = False, least: int = 0) -> Console:
    """Return a console; in pipes it is as wide as a table of ``least`` characters, which is never cut there."""
    from rich.console import Console

    class Screen(Console):
        """A console that leaves a closed pipe to the caller."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else max(shutil.get_terminal_size((110, 40)).columns, 110, least)
    return Screen(stderr=stderr, width=width, highlight=False, soft_wrap=False)


def note(text: str, *, always: bool = False) -> None:
    """Say something beside the result, to whoever sits in front of a terminal; there, words stay whole."""
    if sys.stderr.isatty():
        screen(stderr=True).print(inert(text), markup=False)
    elif always:
        print(inert(text), file=sys.stderr)


def print_json(value: Any) -> None:
    """Print plain Python as JSON."""
    from ..answers.render import plain

    sys.stdout.write(inert_json(json.dumps(plain(value), indent=2, ensure_ascii=False)) + "\n")


_line: Progress | None = None
"""The one line on standard error that says what goes on, for how long or how far, while it is there."""


@contextmanager
def _saying(console: Console, text: str, columns: tuple[Any, ...], total: int | None = None) -> Iterator[Progress]:
    """Say something for as long as this lasts, in one line that appears after a moment.

    What begins while it is there takes it over and gives it back, so a command has one line however deep it calls.
    """
    from rich.progress import Progress

    global _line
    if _line is not None:
        line, task = _line, _line.tasks[0]
        before, said, steps = line.columns, task.description, task.total
        line.columns = columns
        line.reset(task.id, total=total, description=inert_markup(text), rate="")
        try:
            yield line
        finally:
            line.columns = before
            line.reset(task.id, total=steps, description=said, rate="")
        return
    line = _line = Progress(*columns, console=console, transient=True, redirect_stdout=False)
    line.add_task(inert_markup(text), total=total, rate="")
    lock, gone = Lock(), Event()

    def appear() -> None:
        with lock:
            if not gone.is_set():
                line.start()

    timer = Timer(PATIENCE, appear)
    timer.daemon = True
    timer.start()
    try:
        yield line
    finally:  # go, and leave no trace
        _line = None
        timer.cancel()
        with lock:
            gone.set()
            line.stop()


def with_progress(source: Source, wanted: Wanted) -> Iterator[Rows]:
    """Yield what is wanted of a source; on a terminal show rows, rate and time left once it takes longer than a moment.

    Rows that are left out are told there as well, and nowhere else.
    """
    console, kept, dropped = screen(stderr=True), 0, 0
    shown = console.is_terminal and not console.is_dumb_terminal  # which could not take the line away again
    with _reading(console, source) if shown else nullcontext() as line:
        for rows in source.batches(wanted):
            yield rows
            kept, dropped = kept + rows.size, dropped + rows.dropped
            if line is not None:
                line.advance(line.tasks[0].id, rows.size + rows.dropped)
    if dropped:
        some = f"{'' if kept else 'all '}{dropped:,} row{' was' if dropped == 1 else 's were'}"
        right = "" if kept else f": are these the right columns, {', '.join(wanted.names)}?"
        note(f"unnoise: {some} left out because a column was empty (shown here only, kept nowhere){right}")


def _reading(console: Console, source: Source) -> AbstractContextManager[Progress]:
    """Say how many rows are read, of about how many; who waits for a list of 10¹¹ items is told what does not."""
    from rich.progress import BarColumn, ProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.text import Text

    class Rate(ProgressColumn):
        """Rows per second."""

        def render(self, task: Any) -> Text:
            return Text(f"{task.speed:,.0f} rows/s" if task.speed else "")

    total, listed = source.rows(), source.kind.name == "freqcount"
    left = TimeRemainingColumn() if total else TimeElapsedColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:,.0f} rows"), Rate(), left)
    text = "reading item by item (a list is taken as a whole without a sketch)" if listed else "reading"
    return _saying(console, text, columns, total)


@contextmanager
def saying(text: str, unit: str = "") -> Iterator[Callable[[int, int], None]]:
    """Show that something works, and for how long, on a terminal only.

    What is yielded may be told (steps done, steps in all), which are shown with rate and time left.
    """
    console = screen(stderr=True)
    if not console.is_terminal or console.is_dumb_terminal:
        yield lambda done, total: None
        return
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    counting = TextColumn("{task.completed:,.0f} of {task.total:,.0f} " + unit)
    known = (
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), counting,
        TextColumn("{task.fields[rate]}"), TimeRemainingColumn(),
    )  # fmt: skip
    started = time.monotonic()
    with _saying(console, text, (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())) as line:

        def step(done: int, total: int) -> None:
            line.columns = known
            rate = done / max(time.monotonic() - started, 1e-9)
            said = f"{rate:,.1f}/s" if rate >= 1 else f"{60 * rate:,.1f}/min"
            line.update(line.tasks[0].id, completed=done, total=total, rate=said)

        yield step
