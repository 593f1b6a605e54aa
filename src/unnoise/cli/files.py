"""``unnoise merge``, ``inspect`` and ``ledger``: files of unnoise put together and looked at."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import InputError, PrivacyError
from ..text import inert_markup
from . import _options as opt
from ._app import app

if TYPE_CHECKING:
    from rich.console import Console

    from ..ledger import Entry
    from ..sketches.sketch import Sketch

__all__ = ["inspect", "ledger", "merge"]

Files = Annotated[
    list[str], typer.Argument(metavar="FILE…", help="Sketch files or sets of groups.", show_default=False)
]


@app.command(
    epilog="""[bold]Examples[/bold]

unnoise merge mon.sketch tue.sketch wed.sketch -o week.sketch

unnoise merge berlin.sketches paris.sketches -o both.sketches"""
)
def merge(
    files: Files,
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="File or folder to write, or - .")],
    force: opt.Force = False,
) -> None:
    """Add sketches up: one sketch of all their data. Noise adds up too, and the result says so."""
    from ..errors import InputError
    from ._output import check_output, note, saying
    from .answer import save_sketch

    if len(files) < 2:
        raise InputError(f"merge needs at least two files, got {len(files)}")
    check_output(output, files, force=force, folder=os.path.isdir(files[0]))
    with saying("merging", "files") as step:
        first = _load(files[0])
        for index, name in enumerate(files[1:], 2):
            other = _load(name)
            if type(other) is not type(first):
                raise InputError(f"{files[0]} and {name} must both be sketch files or both be sets of groups")
            first.merge(other)
            step(index, len(files))
        save_sketch(first, output, new=not force)
    if output != "-":
        note(f"{output}: {first.guarantee}")


def _load(name: str) -> Any:
    from ..reading.groups import GroupedSketch, is_group_set
    from ..sketches.sketch import Sketch
    from .answer import local_path

    with local_path(name) as path:
        if is_group_set(path):
            return GroupedSketch.load(path)
        sketch = Sketch.load(path, later=True)
        sketch._file = "standard input" if name == "-" else name
        return sketch


@app.command(
    epilog="""[bold]Examples[/bold]

unnoise inspect day1.sketch

unnoise inspect jan.sketch feb.sketch mar.sketch --json"""
)
def inspect(files: Files, as_json: opt.AsJson = False) -> None:
    """Show parameters and guarantee of sketch files, and the total ε over all files given."""
    from ..ledger import total_budget
    from ._output import print_json, saying, screen
    from .answer import load_sketches, local_path

    found: dict[str, Sketch] = {}
    promises: dict[str, str] = {}
    with saying("reading and verifying", "files") as step:
        for index, name in enumerate(files, 1):
            with local_path(name) as path:
                sketches, promises[name] = load_sketches(Path(path))
            found.update({f"{name}: {group}" if group else name: sketch for group, sketch in sketches.items()})
            step(index, len(files))
    budget = total_budget(found)
    if as_json:
        facts = {name: _facts(sketch) for name, sketch in found.items()}
        print_json({"files": facts, "guarantees": promises, "total": budget.to_dict()})
        return
    console = screen()
    _print_facts({name: _row(sketch) for name, sketch in found.items()}, console)
    for promise, names in _grouped(promises).items():
        several = f"{len(names)} files, each" if len(names) > 3 else ", ".join(names)
        console.print(f"\n[bold]{inert_markup(several)}[/bold]: {inert_markup(promise)}")
    if len(found) > 1:
        console.print(f"\n[bold]all together[/bold]: {inert_markup(budget)}")


def _grouped(promises: dict[str, str]) -> dict[str, list[str]]:
    """Return each promise once, with the files it is about."""
    found: dict[str, list[str]] = {}
    for name, promise in promises.items():
        found.setdefault(promise, []).append(name)
    return found


def _facts(sketch: Sketch) -> dict[str, Any]:
    """Return the public parameters of a sketch."""
    from dataclasses import asdict

    from ..noise import tidy

    layout = asdict(sketch.layout)
    layout["rate"] = None if sketch.layout.rate is None else tidy(sketch.layout.rate)
    person = sketch.person_epsilon
    return {
        **layout,
        "epsilon": tidy(sketch.epsilon),
        "epsilon_per_occurrence": tidy(sketch.noise.epsilon),
        "epsilon_per_person": None if person is None else tidy(person),
        "power": tidy(sketch.noise.power),
        "noises": len(sketch._identities),
        "labels": sketch.labels.to_dict(),
    }


def _row(sketch: Sketch) -> dict[str, str]:
    """Return what distinguishes a sketch, in words."""
    facts = _facts(sketch)
    labels = {
        key: _listed(value) if isinstance(value, list) else str(value)
        for key, value in sketch.labels.to_dict().items() if value and key != "unit"
    }  # fmt: skip
    most = facts["max_contributions"]
    unit = sketch.labels.unit if most is None else f"{sketch.labels.unit}, ≤ {most}"
    return {
        "kind": facts["kind"], "cells": f"{facts['cells']:,}", "levels": str(facts["levels"]), "ε": facts["epsilon"],
        "unit": unit, "noise power": facts["power"], "items": ", ".join(facts["item_types"] or ["?"]),
        "hash seed": "–" if facts["hash_seed"] is None else str(facts["hash_seed"]), **labels,
    }  # fmt: skip


def _listed(names: list[str]) -> str:
    """Write names in a row, of many the first and the last.

    >>> _listed(["a", "b"]), _listed(["01", "02", "03", "04", "05"])
    ('a, b', '01 … 05 (5)')
    """
    return ", ".join(names) if len(names) <= 4 else f"{names[0]} … {names[-1]} ({len(names)})"


def _print_facts(rows: dict[str, dict[str, str]], console: Console) -> None:
    """Print what all sketches share in one line, and a table of the rest."""
    from ..answers.render import rich_table

    first = next(iter(rows.values()))
    every = list(dict.fromkeys(name for row in rows.values() for name in row))
    shared = [name for name in every if len({row.get(name) for row in rows.values()}) == 1]
    names = [name for name in every if name not in shared]
    console.print(", ".join(f"[dim]{name}[/dim] {inert_markup(first[name])}" for name in shared))
    if not names:
        return
    console.print()
    table = rich_table("file", *names, left=("file", "kind", "unit", "items"))
    table.columns[0].overflow = "fold"
    for name, row in rows.items():
        table.add_row(inert_markup(name), *(inert_markup(row.get(key, "–")) for key in names))
    console.print(table)


@app.command(
    epilog="""[bold]Examples[/bold]

unnoise ledger data/unnoise.ledger

unnoise ledger data/unnoise.ledger --limit 4 --dataset visits --unit person"""
)
def ledger(
    file: Annotated[str, typer.Argument(metavar="LEDGER", help="The ledger, or data it stands beside.")],
    limit: opt.Limit = None,
    dataset: opt.Dataset = None,
    unit: Annotated[
        str | None,
        typer.Option("--unit", metavar="UNIT", help="Unit of the limit: person, or occurrence unless given."),
    ] = None,
    as_json: opt.AsJson = False,
) -> None:
    """Show what was released from which data, and its sum; or set a limit that later releases must keep."""
    from ..ledger import FILE, Ledger, is_ledger, read_ledger, sums
    from ._output import print_json

    path, data = Path(file), dataset
    if path.is_file() and not is_ledger(path):
        data = str(path.resolve()) if dataset is None else dataset
        path = path.resolve().parent / FILE
    if limit is not None:
        if data is None:
            raise InputError("--limit needs --dataset: the name of the data it is for")
        Ledger(path, data).set_limit(limit, "occurrence" if unit is None else unit)
    elif dataset is not None or unit is not None:
        raise InputError("--dataset and --unit say what a limit is for: give --limit E, or leave them out")
    if not path.exists():
        raise PrivacyError(f"{path}: no such ledger; profile, sketch and share split write one beside the data")
    entries = read_ledger(path)
    if not as_json:
        _print(entries)
        return
    total = [
        {"data": name, "unit": whom, "epsilon": str(spent)} for (name, whom), spent in sorted(sums(entries).items())
    ]
    print_json({"entries": [entry.to_dict() for entry in entries], "sums": total, "advisory": ADVISORY})


ADVISORY = (
    "Advisory: this adds up what was recorded. It does not know of copies of the data under other names, nor of "
    "releases made without it."
)


def _print(entries: list[Entry]) -> None:
    from ..answers.render import rich_table
    from ..ledger import sums
    from ..noise import tidy
    from ._output import screen

    console = screen()
    table = rich_table("when", "what", "ε", "unit", "data", left=("when", "what", "unit", "data"))
    for entry in entries:
        at, what, unit, data = map(inert_markup, (entry.at, entry.what, entry.unit, ", ".join(entry.data)))
        table.add_row(at, what, tidy(entry.epsilon), unit, data)
    console.print(table)
    console.print()
    for (name, unit), spent in sorted(sums(entries).items()):
        console.print(f"in all [bold]ε = {tidy(spent)}[/bold] for one {inert_markup(unit)} of {inert_markup(name)}")
    console.print(f"\n{ADVISORY}", style="dim", markup=False)
