"""``unnoise merge`` and ``unnoise inspect``: sketch files put together and looked at."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..text import inert_markup
from . import _options as opt
from ._app import app

if TYPE_CHECKING:
    from ..sketches.sketch import Sketch

__all__ = ["inspect", "merge"]

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
    from ._output import check_output
    from ._show import note
    from ._sketches import save_sketch

    if len(files) < 2:
        raise InputError(f"merge needs at least two files, got {len(files)}")
    check_output(output, files, force=force)
    first, *others = [_load(name) for name in files]
    for name, other in zip(files[1:], others):
        if type(other) is not type(first):
            raise InputError(f"{files[0]} and {name} must both be sketch files or both be sets of groups")
        first.merge(other)
    save_sketch(first, output)
    if output != "-":
        note(f"{output}: {first.guarantee}")


def _load(name: str) -> Any:
    from ..reading.groups import GroupedSketch, is_group_set
    from ..sketches.sketch import Sketch
    from ._sketches import local_path

    with local_path(name) as path:
        return GroupedSketch.load(path) if is_group_set(path) else Sketch.load(path)


@app.command(
    epilog="""[bold]Examples[/bold]

unnoise inspect day1.sketch

unnoise inspect jan.sketch feb.sketch mar.sketch --json"""
)
def inspect(files: Files, as_json: opt.AsJson = False) -> None:
    """Show parameters and guarantee of sketch files, and the total ε over all files given."""
    from ..sketches.budget import total_budget
    from ._show import print_json, screen
    from ._sketches import load_sketches, local_path

    found: dict[str, Sketch] = {}
    promises: dict[str, str] = {}
    for name in files:
        with local_path(name) as path:
            sketches, promises[name] = load_sketches(Path(path))
        found.update({f"{name}: {group}" if group else name: sketch for group, sketch in sketches.items()})
    budget = total_budget(found)
    if as_json:
        facts = {name: _facts(sketch) for name, sketch in found.items()}
        print_json({"files": facts, "guarantees": promises, "total": budget.to_dict()})
        return
    console = screen()
    console.print(_table(found))
    for name, sketch in found.items():
        said = [f"{key} {', '.join(value) if isinstance(value, list) else value}"
                for key, value in sketch.labels.to_dict().items() if value]  # fmt: skip
        console.print(f"[bold]{inert_markup(name)}[/bold]: {inert_markup('; '.join(said))}")
    for name, promise in promises.items():
        console.print(f"\n[bold]{inert_markup(name)}[/bold]: ", end="")
        console.print(promise, markup=False)
    if len(found) > 1:
        console.print("\n[bold]all together[/bold]: ", end="")
        console.print(str(budget), markup=False)


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


def _table(found: dict[str, Sketch]) -> Any:
    from ..answers.render import rich_table

    words = ("file", "kind", "unit", "items", "hash seed")
    table = rich_table("file", "kind", "cells", "levels", "ε", "unit", "noise power", "items", "hash seed", left=words)
    for name, sketch in found.items():
        facts = _facts(sketch)
        most = facts["max_contributions"]
        unit = inert_markup(sketch.labels.unit) if most is None else f"{inert_markup(sketch.labels.unit)}, ≤ {most}"
        items = ", ".join(facts["item_types"] or ["?"])
        seed = "–" if facts["hash_seed"] is None else str(facts["hash_seed"])
        row = (facts["kind"], f"{facts['cells']:,}", str(facts["levels"]), facts["epsilon"], unit, facts["power"])
        table.add_row(inert_markup(name), *row, items, seed)
    return table
