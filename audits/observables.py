"""Nothing observable depends on the data but through the noise: every command, on random neighbours.

Neighbours differ by one row (one person where persons are limited); what is seen of a command is compared as
:mod:`_observe` says. Commands that read data run in random forms and formats (:mod:`_commands`); all others run one
after another on what came of them, with the same random bits on both sides. A sample runs in processes of its own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import _timing
from _audit import Audit, table
from _commands import CHAIN, FORMS, SERVED, chain_pair, counted, pair
from _hostile_words import commands
from _observe import FORMATS, difference

PIECES = {"pairs": 50, "apart": 10, "chains": 10, "served": 3}
PLACE = Path(tempfile.gettempdir()) / "unnoise-observables"
if Path("/dev/shm").is_dir():
    PLACE = Path("/dev/shm/unnoise-observables")


def pairs(numbers: range, seed: int, apart: bool = False) -> dict[str, Any]:
    """Compare random pairs; return the differences, and how many pairs had a side without rows."""
    commands()
    found = [pair(f"{seed}/{n}/{apart}", PLACE / "one", list(FORMS), FORMATS, apart=apart) for n in numbers]
    return {
        "pairs": len(found), "without rows": sum(rows == 0 for _, _, rows in found),
        "forms": sorted({form for form, _, _ in found}),
        "wrong": [wrong for _, wrong, _ in found if wrong],
    }  # fmt: skip


def chains(numbers: range, seed: int, served: bool = False) -> dict[str, Any]:
    """Compare all commands on random pairs."""
    commands()
    found = [chain_pair(1000 * seed + n, PLACE / "chain", served=served) for n in numbers]
    return {"pairs": len(found), "commands": sum(n for n, _ in found), "wrong": [wrong for _, wrong in found if wrong]}


# ── broken on purpose ─────────────────────────────────────────────────────────────────────────────────────────────


def telling_how_many() -> Iterator[None]:
    """Tell on standard error how many rows were left out, as an earlier version did."""
    from unnoise.cli import _output

    real, _output.note = _output.note, lambda text, always=False: real(text, always=True)
    yield
    _output.note = real


def refusing_huge_counts() -> Iterator[None]:
    """Refuse a count that is too large, as an earlier version did."""
    from unnoise.errors import InputError
    from unnoise.sketches import intake

    name = "_bounded" if hasattr(intake, "_bounded") else "bounded"
    real = getattr(intake, name)

    def strict(counts: Any) -> Any:
        if counts.size and abs(counts).max() > 1 << 40:
            raise InputError("counts must be smaller")
        return real(counts)

    setattr(intake, name, strict)
    yield
    setattr(intake, name, real)


def refusing_no_rows() -> Iterator[None]:
    """Refuse data without rows, as an earlier version did."""
    from unnoise.errors import InputError
    from unnoise.sketches import intake

    real = intake.Intake.commit

    def strict(self: Any, parts: Any) -> None:
        if not parts:
            raise InputError("there must be rows")
        real(self, parts)

    intake.Intake.commit = strict
    yield
    intake.Intake.commit = real


def only_groups_with_rows() -> Iterator[None]:
    """Label sketches by what was counted: the types only where there was a row."""
    from dataclasses import replace

    from unnoise.sketches import intake

    real = intake.Intake.record

    def telling(self: Any) -> None:
        real(self)
        for sketch in self.sketches:
            if not self.stated:
                sketch._layout = replace(sketch._layout, item_types=None)
            if int(abs(sketch._held.array()).sum()) % 2:
                sketch._labels = replace(sketch._labels, label="odd")

    intake.Intake.record = telling
    yield
    intake.Intake.record = real


BROKEN: dict[str, tuple[Callable[[], Iterator[None]], tuple[str, ...]]] = {
    "the number of rows left out is told": (telling_how_many, ("hashed", "profile")),
    "a huge count is refused": (refusing_huge_counts, ("counts",)),
    "data without rows are refused": (refusing_no_rows, ("hashed", "groups")),
    "a label that depends on the cells": (only_groups_with_rows, ("groups", "known")),
}
TRIES = 60


def broken(name: str, seed: int) -> dict[str, Any]:
    """Return what is found of a broken variant, and after how many pairs."""
    commands()
    how, forms = BROKEN[name]
    with contextmanager(how)():
        for n in range(TRIES):
            _, wrong, _ = pair(f"{seed}/{n}", PLACE / "broken", forms, ("csv",))
            if wrong and "both failed" not in wrong:
                return {"after": n + 1, "found": wrong}
    return {"after": TRIES, "found": ""}


def a_choice_that_tells(seed: int) -> dict[str, Any]:
    """``--unknown error`` is the user's choice, and the comparison sees what it tells."""
    rows = [("a", "A", "p", "1")]
    seen = [
        counted("known", given, "csv", PLACE / "broken", extra=("--unknown", "error"))
        for given in (rows, [*rows, ("zz", "A", "p", "1")])
    ]
    return {"after": 1, "found": difference(*seen)}


def timed(name: str, rounds: int, seed: int) -> list[float]:
    """Return the p-value and the ratio of times of a path."""
    path = {**_timing.PATHS, **_timing.BROKEN}[name]
    return list(_timing.p_value(path, rounds, seed))


# ── the audit ─────────────────────────────────────────────────────────────────────────────────────────────────────


def steps(audit: Audit) -> dict[str, Any]:
    """Return all steps."""
    seed, calls = audit.seed, {}
    for kind, call in (("pairs", pairs), ("apart", partial(pairs, apart=True)), ("chains", chains),
                       ("served", partial(chains, served=True))):  # fmt: skip
        for start in range(0, audit[kind], PIECES[kind]):
            calls[f"{kind} {start}"] = partial(call, range(start, min(start + PIECES[kind], audit[kind])), seed)
    for name in BROKEN if not audit.short else list(BROKEN)[:2]:
        calls[f"broken: {name}"] = partial(broken, name, seed)
    calls["broken: --unknown error"] = partial(a_choice_that_tells, seed)
    for name in (*_timing.PATHS, *_timing.BROKEN):
        calls[f"timing: {name}"] = partial(timed, name, audit["rounds"], seed)
    return calls


def failed(found: dict[str, Any]) -> list[str]:
    """Return what went wrong: differences, broken variants not found, times that tell."""
    failures = []
    for step, result in found.items():
        kind, _, name = step.partition(": ")
        if kind == "broken" and not result["found"]:
            failures.append(f"the broken variant was not found: {name}")
        elif kind == "timing" and (result[0] < _timing.ALARM) != (name in _timing.BROKEN):
            failures.append(f"{name}: p = {result[0]:.1e}, ratio of times {result[1]:.3f}")
        elif kind not in ("broken", "timing"):
            failures += result["wrong"][:5]
    return failures


def main() -> None:
    """Run the audit."""
    audit = Audit(
        "observables", __doc__, pairs=(1200, 12), apart=(10, 1), chains=(30, 1), served=(3, 0), rounds=(2000, 300)
    )
    found = audit.run(steps(audit))

    def sum_of(kind: str, what: str) -> int:
        return sum(int(result[what]) for step, result in found.items() if step.startswith(f"{kind} "))

    def wrong(kind: str) -> int:
        return sum(len(result["wrong"]) for step, result in found.items() if step.startswith(f"{kind} "))

    forms = {form for step, result in found.items() if step.startswith("pairs ") for form in result["forms"]}
    many: Sequence[Sequence[object]] = [
        (f"`sketch`, `profile`, `share split` in {len(FORMS)} forms, {len(forms)} with their formats",
         f"{sum_of('pairs', 'pairs'):,} ({sum_of('pairs', 'without rows'):,} with no row on a side)", wrong("pairs")),
        ("the same in processes of their own", f"{sum_of('apart', 'pairs'):,}", wrong("apart")),
        (f"{len({words.split()[0] for words, _ in CHAIN})} commands in a row of {len(CHAIN)}",
         f"{sum_of('chains', 'pairs'):,}", wrong("chains")),
        (f"the same, and {', '.join(sorted({words.split()[0] for words, _ in SERVED}))} with a collector",
         f"{sum_of('served', 'pairs'):,}", wrong("served")),
    ]  # fmt: skip
    caught = [(s.removeprefix("broken: "), r["after"], r["found"][:90].replace("|", "/")) for s, r in found.items()
              if s.startswith("broken")]  # fmt: skip
    times = [(s.removeprefix("timing: "), f"{r[0]:.2g}", f"{r[1]:.3f}", "found" if r[0] < _timing.ALARM else "alike")
             for s, r in found.items() if s.startswith("timing")]  # fmt: skip
    text = "\n\n".join([
        table(("commands", "pairs of neighbours", "differences"), many),
        table(("broken on purpose", "found after pairs", "by"), caught),
        f"Time of noise against counts, {audit['rounds']:,} calls each, false-alarm rate {_timing.ALARM:g}:",
        table(("path", "p", "time for 10⁶ in every cell / time for 0", ""), times),
    ])  # fmt: skip
    total = sum(sum_of(kind, "pairs") for kind in ("pairs", "apart", "chains", "served"))
    differences = sum(wrong(kind) for kind in ("pairs", "apart", "chains", "served"))
    audit.close(f"{total:,} random pairs, {differences} differences", text, failed(found), "polars", "pyarrow")


if __name__ == "__main__":
    main()
