"""What every part of the audit shares: options, steps that are kept when a run is interrupted, and a verdict.

A part is a script. It opens an :class:`Audit`, runs its steps and closes it:

    audit = Audit("soak", __doc__, updates=(10**9, 10**6))      # (full size, short size)
    found = audit.run({f"piece {i}": partial(piece, i) for i in range(audit["updates"] // PIECE)})
    audit.close("10⁹ updates", table, failures)

The result of a step is anything JSON holds; it is kept under ``out/audit`` as soon as the step ends, so that the same
command goes on where it was interrupted. ``close`` prints the verdict, writes it into docs/trust.md between the markers
of the part, and ends the process with code 0, or 1 where something failed: a claim, *or a broken variant that was not
caught*. ``--short`` is a run of seconds for the tests: nothing is kept and nothing written. ``--share 1/2`` runs every
second step and keeps it for the run without the option, so that two processes can share the work. ``--so-far`` gives
the verdict of the steps that are kept, says that it is one, and leaves them to be gone on with.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))
from _report import machine, write_section

from unnoise.guard import write_whole

PAGE = ROOT / "docs" / "trust.md"
KEPT = ROOT / "out" / "audit"
PARTS = ("sampler", "privacy", "observables", "files", "faults", "soak", "coverage", "invariants")
"""The parts in the order of ``make audit``; each is a script of this folder and a section of docs/trust.md."""


def commit() -> str:
    """Return the commit at hand, with a + where files differ from it."""

    def git(*words: str) -> str:
        return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True).stdout.strip()

    return git("rev-parse", "--short=8", "HEAD") + ("+" if git("status", "--porcelain", "-uno") else "")


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def summary_of(page: str) -> str:
    """Return one row for each section of the page that a part writes: its heading, the last verdict, the command."""
    rows = []
    for section in page.split("\n## ")[1:]:
        if found := re.search(r"<!-- (\w+):begin -->\n(.*)\n", section):
            rows.append([section.split("\n")[0], found[2], f"`make audit-{found[1]}`"])
    return table(["claim", "last result", "run it"], rows)


def summarise(page: Path = PAGE) -> None:
    """Write the table on top of the page anew; so does ``python audits/_audit.py``, after a change by hand."""
    write_section("summary", summary_of(page.read_text()), page=page)


class Audit:
    """One run of one part; ``sizes`` are pairs (full, short), and ``audit[name]`` is the one that applies."""

    def __init__(
        self, part: str, about: str | None, *, words: Sequence[str] | None = None, kept: Path = KEPT, page: Path = PAGE,
        **sizes: tuple[Any, Any],
    ) -> None:  # fmt: skip
        parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--short", action="store_true", help="a run of seconds: nothing is kept, nothing written")
        parser.add_argument("--seed", type=int, default=1, help="of everything but the noise that leaves")
        parser.add_argument("--again", action="store_true", help="forget what an interrupted run has kept")
        parser.add_argument("--share", metavar="I/N", default="1/1", help="run the I-th of every N steps, and no more")
        parser.add_argument("--so-far", action="store_true", help="judge what an interrupted run has kept")
        options = parser.parse_args(words)
        self._so_far = options.so_far
        self._share, self._shares = map(int, options.share.split("/"))
        self.part, self.page, self.short, self.seed = part, page, options.short, options.seed
        self._sizes = {name: pair[options.short] for name, pair in sizes.items()}
        mine = "" if self._shares == 1 else f".{self._share}of{self._shares}"
        self._path = None if options.short else kept / f"{part}{mine}.json"
        self._settings = {"seed": self.seed, **self._sizes}
        self._steps: dict[str, Any] = {}
        self._asked: list[str] = []
        self._files = [path for path in kept.glob(f"{part}.*json") if ".last." not in path.name and not options.short]
        for path in [] if options.again else self._files:
            found = json.loads(path.read_text())
            if found["settings"] == json.loads(json.dumps(self._settings)):
                self._steps |= found["steps"]

    def __getitem__(self, name: str) -> Any:
        """Return the size that applies."""
        return self._sizes[name]

    def run(self, calls: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
        """Return the results of the calls by name: those kept, then the rest, each kept when it ends."""
        if self._so_far:
            calls = {name: call for name, call in calls.items() if name in self._steps}
        self._asked += calls
        mine = list(enumerate(calls.items(), 1))[self._share - 1 :: self._shares]
        for number, (name, call) in mine:
            if name not in self._steps:
                begun = time.process_time(), time.time()
                result = call()
                used, passed = time.process_time() - begun[0], time.time() - begun[1]
                self._steps[name] = {
                    "result": json.loads(json.dumps(result)), "seconds": max(used, passed),
                    "day": time.strftime("%Y-%m-%d"), "commit": commit(),
                }  # fmt: skip
                self._keep()
            print(f"{self.part} [{number}/{len(calls)}] {name}: {self._steps[name]['seconds']:.1f} s", flush=True)
        if self._shares > 1:
            print(f"share {self._share} of {self._shares} is done: run the others, then once without --share")
            sys.exit(0)
        return {name: self._steps[name]["result"] for name in calls}

    def _keep(self) -> None:
        """Write all steps so far, whole or not at all."""
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._path, json.dumps({"settings": self._settings, "steps": self._steps}))

    def close(self, summary: str, text: str, failures: Sequence[str], *packages: str) -> None:
        """Give the verdict: print it, write it into the page, put the steps aside, and end the process."""
        verdict = f"**Failed**: {len(failures)} of its checks, listed below" if failures else "**Passed**"
        verdict += " (so far: the run was not carried to its end)" if self._so_far else ""
        steps = [self._steps[name] for name in self._asked]
        commits = list(dict.fromkeys(step["commit"] for step in steps))
        seconds = sum(step["seconds"] for step in steps)
        day = max((step["day"] for step in steps), default=time.strftime("%Y-%m-%d"))
        parts = [
            f"{verdict}, {day}: {summary}.",
            "\n".join(f"- FAILED: {failure}" for failure in failures),
            text,
            f"`make audit-{self.part}`, seed {self.seed}, {seconds / 60:.1f} minutes, commit {', '.join(commits)}; "
            f"{machine('numpy', *packages)}",
        ]
        section = "\n\n".join(filter(None, parts))
        print(section)
        if self._path is not None:
            write_section(self.part, section, page=self.page)
            summarise(self.page)
            for path in set() if self._so_far else {self._path, *self._files}:
                if path.exists():
                    path.replace(path.with_suffix(".last.json"))
        sys.exit(1 if failures else 0)


if __name__ == "__main__":
    summarise()
