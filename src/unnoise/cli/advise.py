"""``unnoise advise``: which model to use, before there are data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from . import _options as opt
from ._request import command

__all__ = ["advise"]


@dataclass(frozen=True, kw_only=True)
class Advising:
    """``unnoise advise``."""

    epsilon: opt.Epsilon = None
    items: Annotated[str, typer.Option("--items", metavar="N", help="About how many different items occur.")] = "10000"
    shape: Annotated[
        str, typer.Option("--shape", metavar="SHAPE", help="Guess of the counts: power:2.2, poisson:5, ones, …")
    ] = "power:2"
    untrusted: Annotated[bool, typer.Option("--untrusted", help="Nobody may hold all rows.")] = False
    sites: Annotated[int, typer.Option("--sites", metavar="K", help="Places that count.")] = 1
    updates: Annotated[
        bool, typer.Option("--updates", help="The answer is wanted again as rows come in, or for parts and unions.")
    ] = False
    published: Annotated[bool, typer.Option("--published", help="A noisy histogram is out already.")] = False
    domain: Annotated[
        str | None, typer.Option("--domain", metavar="N", help="Items of a domain known beforehand.")
    ] = None
    two_servers: Annotated[
        bool, typer.Option("--two-servers", help="Two servers that do not collude are at hand.")
    ] = False
    cells: Annotated[str | None, typer.Option("--cells", metavar="M", help="Cells of a hashed sketch.")] = None
    repetitions: Annotated[int, typer.Option("--repetitions", metavar="N", help="Simulated releases per figure.")] = 3
    as_json: opt.AsJson = False


@command(
    Advising,
    epilog="""[bold]Examples[/bold]

unnoise advise --epsilon 1 --items 100000

unnoise advise -e 1 --items 40000 --untrusted --sites 20 --two-servers

unnoise advise -e 0.5 --items 5000 --updates --domain 8000 --json""",
)
def advise(request: Advising) -> None:
    """Say which model to use — direct, sketch, two servers — with the error to expect of each, and why."""
    from ..answers.advise import advise as find
    from ._show import print_json, stepping

    with stepping("simulating", "candidates") as step:
        found = find(
            epsilon=opt.as_epsilon(request.epsilon), items=opt.as_cells(request.items), shape=request.shape,
            trusted=not request.untrusted, sites=request.sites, updates=request.updates, published=request.published,
            domain=None if request.domain is None else opt.as_cells(request.domain), two_servers=request.two_servers,
            cells=None if request.cells is None else opt.as_cells(request.cells), repetitions=request.repetitions,
            step=step,
        )  # fmt: skip
    if request.as_json:
        print_json(found.to_dict())
    else:
        typer.echo(str(found))
