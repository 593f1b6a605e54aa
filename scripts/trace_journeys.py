"""Trace three journeys through the code and draw them: every hop, in the order in which it is first taken.

    file to page            unnoise profile visits.csv --sketch -o page.html
    counts to an answer     un.reconstruct(noisy counts, epsilon=1).at_least(3)
    update to release       update, save, load, merge, release of a sketch

A hop is a function of unnoise that is called (comprehensions and lambdas belong to the function they stand in). The
noise is the same in every run, and so is the way. Run it to print the numbers, ``--draw`` to write the pictures into
docs/img; tests/test_journeys.py holds the numbers down.
"""

from __future__ import annotations

import argparse
import html
import os
import random
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "unnoise"


class Trace:
    """Functions of unnoise in the order of their first call."""

    def __init__(self) -> None:
        self.hops: dict[tuple[str, str], None] = {}
        self._seen: set[CodeType] = set()

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or frame.f_code in self._seen:
            return
        self._seen.add(frame.f_code)
        path = Path(frame.f_code.co_filename)
        if PACKAGE not in path.parents:
            return
        name = frame.f_code.co_qualname.split(".<locals>")[0]
        if "<" in name:
            return
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        self.hops.setdefault((module, name))

    def run(self, journey: Callable[[], object]) -> None:
        threading.setprofile(self.note)
        sys.setprofile(self.note)
        try:
            journey()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    @property
    def modules(self) -> list[str]:
        return list(dict.fromkeys(module for module, _ in self.hops))


def _visits(folder: Path) -> Path:
    path = folder / "visits.csv"
    path.write_text("user,day\n" + "".join(f"u{i % (1 + i // 7)},{i % 5}\n" for i in range(3000)))
    return path


def file_to_page(folder: Path) -> Callable[[], object]:
    import typer

    from unnoise.cli import app
    from unnoise.cli._app import ORDER

    os.environ.pop("UNNOISE_LEDGER", None)  # the tests do without a ledger, people do not
    path = _visits(folder)
    with_sketch = ["--sketch"] if "--sketch" in _options("profile") else []
    words = ["profile", str(path), "-c", "user", "-e", "1", "--cells", "2^12", *with_sketch]
    words += ["-o", str(folder / "page.html")]
    assert "profile" in ORDER
    command = typer.main.get_command(app)
    return lambda: command(words, standalone_mode=False)


def _options(name: str) -> set[str]:
    import typer

    from unnoise.cli import answer, app

    assert answer
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    return {option for parameter in command.params for option in parameter.opts}


def counts_to_answer(folder: Path) -> Callable[[], object]:
    import numpy as np

    import unnoise as un

    rng = np.random.default_rng(1)
    noisy = rng.poisson(2, 2000) + rng.geometric(0.63, 2000) - rng.geometric(0.63, 2000)
    return lambda: un.reconstruct(noisy, epsilon=1).at_least(3)


def update_to_release(folder: Path) -> Callable[[], object]:
    import unnoise as un

    def journey() -> object:
        for name in ("a", "b"):
            sketch = un.Sketch.hashed(2**10, epsilon=1)
            sketch.update(["red", "blue", "red"])
            sketch.save(folder / f"{name}.sketch")
        first, second = (un.Sketch.load(folder / f"{name}.sketch") for name in ("a", "b"))
        first.merge(second)
        return first.release()

    return journey


JOURNEYS = {
    "file-to-page": (file_to_page, 260, 35),
    "counts-to-answer": (counts_to_answer, 80, 15),
    "update-to-release": (update_to_release, 110, 14),
}
"""How to make each journey, and how many functions and modules it may pass."""


@contextmanager
def same_noise() -> Iterator[None]:
    """Let the operating system's entropy be that of a fixed seed: another noise may pass other functions."""
    real, os.urandom = os.urandom, random.Random(1).randbytes
    try:
        yield
    finally:
        os.urandom = real


def traced(name: str) -> Trace:
    """Trace a journey; once before, so that importing is not part of it, and with threads that are new each time:
    those that were there before would not be seen."""
    from unnoise.guard import crew

    make, _, _ = JOURNEYS[name]
    trace = Trace()
    for run in (lambda journey: journey(), trace.run):
        with tempfile.TemporaryDirectory() as folder, same_noise():
            crew.cache_clear()
            run(make(Path(folder)))
    return trace


def picture(name: str, trace: Trace) -> str:
    """Draw modules as columns of boxes in the order of the journey, functions below each other."""
    width, line, columns = 232, 14, 5
    groups = {module: [hop for where, hop in trace.hops if where == module] for module in trace.modules}
    heights = [0.0] * columns
    parts = []
    for number, (module, hops) in enumerate(groups.items()):
        column = heights.index(min(heights))
        x, y = 8 + column * (width + 8), 40 + heights[column]
        tall = line * (len(hops) + 1) + 14
        heights[column] += tall + 8
        parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{tall}" rx="5" fill="#fff" stroke="#0f766e"/>')
        title = html.escape(f"{number + 1}. {module}")
        parts.append(f'<text x="{x + 8}" y="{y + 16}" font-weight="700" fill="#0f766e">{title}</text>')
        for row, hop in enumerate(hops):
            short = hop if len(hop) <= 34 else hop[:33] + "…"
            down = y + 16 + line * (row + 1)
            parts.append(f'<text x="{x + 8}" y="{down}" fill="#17211f">{html.escape(short)}</text>')
    wide, high = 8 + columns * (width + 8), 48 + max(heights)
    head = f"{name.replace('-', ' ')}: {len(trace.hops)} functions in {len(groups)} modules, in the order of first call"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high:.0f}" font-family="sans-serif" '
        f'font-size="11"><rect width="{wide}" height="{high:.0f}" fill="#f7f8f7"/>'
        f'<text x="8" y="24" font-size="15" font-weight="700">{head}</text>{"".join(parts)}</svg>\n'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("journey", nargs="?", choices=JOURNEYS, help="only this one, in this process")
    parser.add_argument("--draw", action="store_true", help="write docs/img/journey-*.svg")
    options = parser.parse_args()
    if options.journey is None:
        for name in JOURNEYS:  # each in a process of its own, so that none warms the caches of another
            subprocess.run([sys.executable, __file__, name, *(["--draw"] if options.draw else [])], check=True)
        return
    trace = traced(options.journey)
    _, functions, modules = JOURNEYS[options.journey]
    found = f"{len(trace.hops)} functions (≤ {functions}) in {len(trace.modules)} modules (≤ {modules})"
    print(f"{options.journey}: {found}")
    if options.draw:
        (ROOT / "docs" / "img" / f"journey-{options.journey}.svg").write_text(picture(options.journey, trace))


if __name__ == "__main__":
    main()
