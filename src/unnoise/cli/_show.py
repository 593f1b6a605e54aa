"""Printing: tables and JSON to standard output; progress, notes and spinners to standard error, on terminals only."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock, Timer
from typing import TYPE_CHECKING, Any, ClassVar

from ..text import inert, inert_json, inert_markup

if TYPE_CHECKING:
    from rich.console import Console

    from ..reading.source import Batch

__all__ = ["note", "print_json", "saying", "screen", "with_progress"]

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


class ProgressLine:
    """The one line on standard error that says what goes on, for how long or how far: it appears after a moment.

    What begins while it is there takes it over and gives it back, so a command has one line however deep it calls.
    """

    here: ClassVar[ProgressLine | None] = None

    def __init__(self) -> None:
        from rich.progress import Progress

        console = screen(stderr=True)
        self.shown = console.is_terminal and not console.is_dumb_terminal  # which could not take it away again
        self.bar = Progress(console=console, transient=True, disable=not self.shown, redirect_stdout=False)
        self.task = self.bar.add_task("")
        self.timer = Timer(PATIENCE, self._appear)
        self.timer.daemon = True
        self.lock = Lock()
        if self.shown:
            self.timer.start()

    def _appear(self) -> None:
        with self.lock:
            if self.shown:
                self.bar.start()

    def leave(self) -> None:
        """Go, and leave no trace."""
        self.timer.cancel()
        with self.lock:
            self.shown = False
            self.bar.stop()

    def now(self, text: str, columns: Sequence[Any], total: float | None = None) -> None:
        """Say something else from here on; the clock starts again."""
        self.bar.columns = tuple(columns)
        self.bar.reset(self.task, total=total, description=text, rate="")


@contextmanager
def _line(text: str, columns: Sequence[Any], total: int | None = None) -> Iterator[ProgressLine]:
    """Say something for as long as this lasts."""
    outer = ProgressLine.here
    line = outer or ProgressLine()
    before = line.bar.columns, line.bar.tasks[0].description, line.bar.tasks[0].total
    line.now(inert_markup(text), columns, total)
    ProgressLine.here = line
    try:
        yield line
    finally:
        ProgressLine.here = outer
        if outer is None:
            line.leave()
        else:
            line.now(before[1], before[0], before[2])


def with_progress(batches: Iterable[Batch], total: int | None, label: str) -> Iterator[Batch]:
    """Pass batches through; on a terminal show rows, rate and time left once it takes longer than a moment."""
    from rich.progress import BarColumn, ProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.text import Text

    class Rate(ProgressColumn):
        """Rows per second."""

        def render(self, task: Any) -> Text:
            return Text(f"{task.speed:,.0f} rows/s" if task.speed else "")

    left = TimeRemainingColumn() if total else TimeElapsedColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:,.0f} rows"), Rate(), left)
    dropped = 0
    with _line(label, columns, total) as line:
        for batch in batches:
            yield batch
            dropped += batch.rows - batch.items.height
            line.bar.advance(line.task, batch.rows)
    if dropped:
        note(f"unnoise: {dropped:,} rows were left out because a column was empty (shown here only, kept nowhere)")


@contextmanager
def saying(text: str, unit: str = "") -> Iterator[Callable[[int, int], None]]:
    """Show that something works, and for how long, on a terminal only.

    What is yielded may be told (steps done, steps in all), which are shown with rate and time left.
    """
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    counting = TextColumn("{task.completed:,.0f} of {task.total:,.0f} " + unit)
    known = (
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), counting,
        TextColumn("{task.fields[rate]}"), TimeRemainingColumn(),
    )  # fmt: skip
    started = time.monotonic()
    with _line(text, (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())) as line:

        def step(done: int, total: int) -> None:
            line.bar.columns = known
            rate = done / max(time.monotonic() - started, 1e-9)
            said = f"{rate:,.1f}/s" if rate >= 1 else f"{60 * rate:,.1f}/min"
            line.bar.update(line.task, completed=done, total=total, rate=said)

        yield step
