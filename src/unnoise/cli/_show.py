"""Printing: tables and JSON to standard output; progress, notes and spinners to standard error, on terminals only."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..text import inert, inert_json

if TYPE_CHECKING:
    from rich.console import Console

    from ..reading.source import Batch

__all__ = ["note", "print_json", "saying", "screen", "stepping", "with_progress"]

PATIENCE = 0.7
"""Seconds before a progress bar appears."""


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
            return Text(f"{task.speed:,.0f} rows/s" if task.speed else "")

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
