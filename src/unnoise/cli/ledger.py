"""``unnoise ledger``: what was released from which data; and how commands that read data record theirs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InputError, PrivacyError
from ..noise import exact_positive
from ..text import inert_markup
from . import _options as opt
from ._app import app

if TYPE_CHECKING:
    from ..ledger import Entry, Ledger
    from ._request import Counting

__all__ = ["Charge", "ledger", "open_charge"]

SWITCH = "UNNOISE_LEDGER"
"""The variable of the environment that names a ledger for all commands, or says off."""


@dataclass(frozen=True)
class Charge:
    """What a command is about to spend; ``ledger`` is None where nothing is recorded.

    asked : whether the user named the ledger, so that not recording is an error and not a remark
    """

    ledger: Ledger | None
    what: str
    epsilon: Fraction
    unit: str
    asked: bool

    def write(self) -> None:
        """Record it: to be called before anything leaves."""
        from ._output import note

        if self.ledger is None:
            return
        try:
            self.ledger.write(self.what, self.epsilon, self.unit)
        except OSError as error:
            if self.asked:
                raise
            why = f"{os.fspath(self.ledger.path)}: {error.strerror}"
            note(f"unnoise: not recorded in a ledger ({why}); --ledger names another place, or off", always=True)


def open_charge(request: Counting, what: str) -> Charge:
    """Return what the request is about to spend, after a look at the limit and before any look at the data."""
    request.check()
    epsilon = exact_positive("epsilon", request.epsilon)
    unit = "occurrence" if request.max_contributions is None and request.person is None else "person"
    if unit == "person" and request.groups is not None and what != "direct":
        epsilon *= len(opt.as_names(request.groups))  # a person may be in every group
    where = request.ledger or os.environ.get(SWITCH) or ""
    book = None if where == "off" else _book(request, where)
    if book is not None:
        try:
            book.check(epsilon, unit)
        except PermissionError:
            if request.ledger is not None or request.limit is not None:
                raise
    elif request.limit is not None:
        raise InputError("--limit needs a ledger: give --ledger FILE, and --dataset NAME for standard input")
    return Charge(book, what, epsilon, unit, asked=bool(where) or request.limit is not None)


def _book(request: Counting, where: str) -> Ledger | None:
    """Return the ledger of the data: the one named, or the one beside them; none for a stream without a name."""
    from ..ledger import Ledger, ledger_beside
    from ..reading.formats import expand

    if "-" in request.inputs:
        if request.dataset is None and where:
            raise InputError("standard input needs a name in the ledger: give --dataset NAME")
        if not where:
            return None
        return Ledger(where, request.dataset or "", request.limit)
    places = [place for name in request.inputs for place in expand(name)]
    local = [place for place in places if isinstance(place, Path)]
    if not where and not local:
        return None
    names = request.dataset or [str(p.resolve()) if isinstance(p, Path) else str(p) for p in places]
    return Ledger(where or ledger_beside(local), names, request.limit)


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
