"""``unnoise ledger``: what was released from which data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InputError, PrivacyError
from ..text import inert_markup
from . import _options as opt
from ._app import app

if TYPE_CHECKING:
    from ..ledger import Entry

__all__ = ["ledger"]


@app.command(
    epilog="""[bold]Examples[/bold]

unnoise ledger data/unnoise.ledger

unnoise ledger data/unnoise.ledger --limit 4 --dataset visits --unit person"""
)
def ledger(
    file: Annotated[str, typer.Argument(metavar="LEDGER", help="The ledger, or data it stands beside.")],
    limit: opt.Limit = None,
    dataset: opt.Dataset = None,
    unit: Annotated[str, typer.Option("--unit", metavar="UNIT", help="Unit of the limit: occurrence or person.")] = (
        "occurrence"
    ),
    as_json: opt.AsJson = False,
) -> None:
    """Show what was released from which data, and its sum; or set a limit that later releases must keep."""
    from ..ledger import Ledger, is_ledger, ledger_beside, read_ledger, sums
    from ._output import print_json

    path = Path(file)
    if path.is_file() and not is_ledger(path) and ledger_beside([path]).exists():
        path = ledger_beside([path])
    if limit is not None:
        if dataset is None:
            raise InputError("--limit needs --dataset: the name of the data it is for")
        Ledger(path, dataset).set_limit(limit, unit)
    if not path.exists():
        raise PrivacyError(f"{path}: no such ledger; profile and sketch write one beside the data")
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
