"""``unnoise plan``, ``unnoise compare`` and ``unnoise demo``: before there are data, and on data without secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import _options as opt
from ._app import app
from ._request import Comparing, Planning, command

if TYPE_CHECKING:
    from ..answers.compare import Comparison

__all__ = ["compare", "demo", "plan"]


@command(
    Planning,
    epilog="""[bold]Examples[/bold]

unnoise plan --epsilon 1 --cells 100000 --shape power:2.2

unnoise plan --cells 2^20 --shape poisson:5 --target 0.05

unnoise plan --kind hashed --items 1000000 --cells 2^20 --merges 7 -e 1

unnoise plan --epsilon 0.5 --target distinct=0.01 --json""",
)
def plan(request: Planning) -> None:
    """Say what errors and intervals to expect, or which ε or cells a target needs, before any budget is spent."""
    from ..answers.plan import plan as make_plan
    from ._show import print_json, stepping

    with stepping("simulating", "releases") as step:
        found = make_plan(
            epsilon=None if request.epsilon is None else opt.as_epsilon(request.epsilon),
            cells=None if request.cells is None else opt.as_cells(request.cells),
            shape=request.shape, target=_target(request.target), kind=request.kind,
            items=None if request.items is None else opt.as_cells(request.items), levels=request.levels,
            merges=request.merges, cap=request.cap, method=request.method, repetitions=request.repetitions, step=step,
        )  # fmt: skip
    if request.as_json:
        print_json(found.to_dict())
    else:
        typer.echo(str(found))


def _target(text: str | None) -> Any:
    """Return 0.05 or {"w1": 0.1} for 0.05 or w1=0.1."""
    from ..errors import InputError

    if text is None:
        return None
    name, equals, value = text.rpartition("=")
    try:
        number = float(value.removesuffix("%")) / (100 if value.endswith("%") else 1)
    except ValueError:
        raise InputError(f"--target must be a number or NAME=NUMBER, got {text!r}") from None
    return {name.strip().replace("_", " "): number} if equals else number


@command(
    Comparing,
    epilog="""[bold]Examples[/bold]

unnoise compare counts.csv --count-column n --epsilon 1

unnoise compare degrees.freqcount --freq-count -e 0.5 --plot compare.png

unnoise compare visits.csv -c url -e 1 --method auto --method paper""",
)
def compare(request: Comparing) -> None:
    """Run every estimator on data whose truth is known, and set their errors side by side."""
    from ..answers.compare import compare as run
    from ..answers.export import check_suffix, comparison_document
    from ._output import check_output, write_document
    from ._show import note, print_json, saying, stepping
    from ._truth import true_counts

    law = opt.as_epsilon(request.epsilon)
    if request.output not in (None, "-"):
        check_suffix(str(request.output))
    for output in (request.output, request.plot):
        check_output(output, request.inputs, force=request.force)
    with saying("reading"):
        counts, how_many = true_counts(request)
    size = None if request.domain is None else opt.as_cells(request.domain)
    with stepping("comparing estimators", "reconstructions") as step:
        found = run(
            counts, how_many=how_many, epsilon=law, domain=size, methods=request.method,
            repetitions=request.repetitions, step=step,
        )  # fmt: skip
    if request.plot is not None:
        found.plot(request.plot)
        note(f"picture written to {request.plot}")
    if request.output is not None:
        write_document(comparison_document(found), request.output)
    if request.as_json:
        print_json(found.to_dict())
    elif request.output != "-":
        _print_comparison(found)


def _print_comparison(found: Comparison) -> None:
    from ..answers.render import rich_table
    from ._show import screen

    table = rich_table("estimator", "ℓ1 error", "W1 error", "distinct off", "total off", "seconds")
    best = {key: min(getattr(r, key) for r in found.results if not r.failure) for key in ("l1", "w1")}
    for r in found.results:
        if r.failure:
            table.add_row(r.method, "–", "–", "–", "–", r.failure[:48])
            continue
        l1, w1 = (
            f"[bold green]{value:.4g}[/bold green]" if value <= best[key] else f"{value:.4g}"
            for key, value in (("l1", r.l1), ("w1", r.w1))
        )
        table.add_row(r.method, l1, w1, f"{100 * r.distinct:.3g} %", f"{100 * r.total:.3g} %", f"{r.seconds:.3f}")
    console = screen()
    distinct, total = (f"{found.truth[key]:,.0f}" for key in ("distinct", "total"))
    console.print(f"{distinct} distinct items, {total} occurrences, ε = {found.epsilon:g}\n")
    console.print(table)


@app.command(epilog="[bold]Examples[/bold]\n\nunnoise demo\n\nunnoise demo -o /tmp/demo --json")
def demo(
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FOLDER", help="Folder for sketches and report.")
    ] = "out/demo",
    as_json: opt.AsJson = False,
) -> None:
    """Show the whole story on bundled real data: flights out of New York in 2013."""
    from ..demo import run
    from ._show import print_json, screen

    console = screen()
    result = run(output, say=(lambda _: None) if as_json else (lambda text: console.print(text)))
    if as_json:
        print_json(result)
