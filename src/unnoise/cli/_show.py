"""Printing: tables and JSON to standard output; progress, notes and spinners to standard error, on terminals only."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..replacing import write_whole
from ..text import inert, inert_json, inert_markup

if TYPE_CHECKING:
    from rich.console import Console

    from ..answers.profile import Profile
    from ..answers.questions import Sheet
    from ..reading.source import Batch

__all__ = ["note", "print_json", "print_profiles", "saying", "screen", "stepping", "with_progress", "write_output"]

PATIENCE = 0.7
"""Seconds before a progress bar appears."""


def screen(*, stderr: bool = False) -> Console:
    """Return a console; tables keep their width in pipes."""
    from rich.console import Console

    class Screen(Console):
        """A console that leaves a closed pipe to the caller."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else max(shutil.get_terminal_size((110, 40)).columns, 110)
    return Screen(stderr=stderr, width=width, highlight=False, soft_wrap=False)


def note(text: str, *, always: bool = False) -> None:
    """Say something beside the result, to whoever sits in front of a terminal."""
    if always or sys.stderr.isatty():
        print(inert(text), file=sys.stderr)


def print_json(value: Any) -> None:
    """Print plain Python as JSON."""
    from ..answers.render import plain

    sys.stdout.write(inert_json(json.dumps(plain(value), indent=2, ensure_ascii=False)) + "\n")


def with_progress(batches: Iterable[Batch], total: int | None, label: str) -> Iterator[Batch]:
    """Pass batches through; on a terminal show rows, rate and time left once it takes longer than a moment."""
    from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.text import Text

    class Rate(ProgressColumn):
        """Rows per second."""

        def render(self, task: Any) -> Text:
            return Text(f"{task.speed or 0:,.0f} rows/s")

    console = screen(stderr=True)
    left = TimeRemainingColumn() if total else TimeElapsedColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:,.0f} rows"), Rate(), left)
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    task = bar.add_task(label, total=total)
    started, dropped = time.monotonic(), 0
    try:
        for batch in batches:
            yield batch
            dropped += batch.dropped
            bar.advance(task, batch.rows)
            if time.monotonic() - started > PATIENCE:
                bar.start()
    finally:
        bar.stop()
    if dropped:
        text = f"unnoise: {dropped:,} rows were left out because a column was empty (shown here only, kept nowhere)"
        note(text, always=True)


@contextmanager
def saying(text: str) -> Iterator[None]:
    """Show that something works, and for how long, on a terminal only."""
    with stepping(text):
        yield


@contextmanager
def stepping(text: str, unit: str = "") -> Iterator[Callable[[int, int], None]]:
    """Yield what is told (steps done, steps in all); a terminal shows them, with rate and time left."""
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = screen(stderr=True)
    waiting = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    counting = TextColumn("{task.completed:,.0f} of {task.total:,.0f} " + unit)
    known = (
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), counting,
        TextColumn("{task.fields[rate]}"), TimeRemainingColumn(),
    )  # fmt: skip
    bar = Progress(*waiting, console=console, transient=True, disable=not console.is_terminal)
    task = bar.add_task(text, total=None, rate="")
    started = time.monotonic()

    def step(done: int, total: int) -> None:
        bar.columns = known
        rate = done / max(time.monotonic() - started, 1e-9)
        bar.update(task, completed=done, total=total, rate=f"{rate:,.1f}/s" if rate >= 1 else f"{60 * rate:,.1f}/min")

    with bar:
        yield step


def write_output(text: str, path: str) -> None:
    """Write a text to a file, whole or not at all, or to standard output (-)."""
    if path == "-":
        sys.stdout.write(text)
        return
    write_whole(path, text)


def print_profiles(profiles: Mapping[str, Profile], guarantee: str = "", *, as_json: bool = False) -> None:
    """Print profiles: answers, entries and the promise."""
    from ..answers.questions import sheets
    from ..answers.render import sheet_dict

    found = sheets(profiles)
    if as_json:
        whole = {name: sheet_dict(sheet) for name, sheet in found.items()}
        body = whole[""] if list(whole) == [""] else {"groups": whole}
        print_json({**body, "guarantee": guarantee} if guarantee else body)
        return
    console = screen()
    if list(found) == [""]:
        _print_one(found[""], console)
    else:
        _print_groups(found, console)
    if guarantee:
        console.print(f"\n{guarantee}", style="dim", markup=False)


def _print_one(sheet: Sheet, console: Console) -> None:
    from ..answers.render import rich_table, sensible, subtitle

    question, estimate = sheet.head
    value, low, high = sensible(estimate, whole=question.whole)
    said = question.said(f"about [bold]{value}[/bold] ({low}–{high})", sheet.asked.noun)
    console.print(f"\n{said[0].upper()}{said[1:]}\n")
    table = rich_table("question", "estimate", "95 % interval")
    for question, estimate in sheet.shown:
        value, low, high = sensible(estimate, whole=question.whole)
        table.add_row(question.labelled(sheet.asked.noun).lower(), f"[bold]{value}[/bold]", f"{low} – {high}")
    console.print(table)
    console.print()
    console.print(_entries(sheet))
    console.print(f"\n{subtitle(sheet.profile)}", style="dim", markup=False)


def _entries(sheet: Sheet) -> Any:
    from ..answers.estimate import Estimate
    from ..answers.render import rich_table, sensible

    table = rich_table("occurs", sheet.asked.noun.many, "95 % interval", "", left=("",))
    curve = sheet.exact
    width = curve.last - curve.first + 1
    top = max((curve.value * width).max(), 1.0)
    for i in range(min(curve.first.size, 24)):
        first, last, each = int(curve.first[i]), int(curve.last[i]), width[i]
        estimate = Estimate(curve.value[i] * each, 0.0, curve.low[i] * each, curve.high[i] * each)
        value, low, high = sensible(estimate)
        label = f"{first:,}" if first == last else f"{first:,}–{last:,}"
        table.add_row(label, f"[bold]{value}[/bold]", f"{low} – {high}", f"[cyan]{_bar(estimate.value / top)}[/cyan]")
    return table


def _bar(share: float, width: int = 28) -> str:
    """Draw a share as a bar of eighths of a character."""
    eighths = round(max(share, 0) * width * 8)
    return "█" * (eighths // 8) + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[eighths % 8]


GROUPED = ("distinct", "total", "exactly_1", "at_least_2", "at_least_10")
"""What the table of groups asks."""


def _print_groups(found: Mapping[str, Sheet], console: Console) -> None:
    """Print one row per group."""
    from ..answers.questions import question
    from ..answers.render import rich_table, sensible

    noun = next(iter(found.values())).asked.noun
    table = rich_table("group", *(question(key).labelled(noun).lower() for key in GROUPED))
    for name, sheet in found.items():
        cells = []
        for key in GROUPED:
            value, low, high = sensible(sheet.answers[key])
            cells.append(f"[bold]{value}[/bold] ({low}–{high})")
        table.add_row(inert_markup(name), *cells)
    console.print(table)
