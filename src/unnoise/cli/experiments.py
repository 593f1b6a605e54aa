"""``unnoise plan``, ``unnoise compare`` and ``unnoise demo``: before there are data, and on data without secrets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import _options as opt
from ._app import app

if TYPE_CHECKING:
    from ..answers.compare import Comparison

__all__ = ["compare", "demo", "plan"]


@app.command(
    epilog="""[bold]Examples[/bold]

unnoise plan --epsilon 1 --cells 100000 --shape power:2.2

unnoise plan --cells 2^20 --shape poisson:5 --target 0.05

unnoise plan --epsilon 0.5 --target distinct=0.01 --json"""
)
def plan(
    epsilon: Annotated[
        str | None, typer.Option("--epsilon", "-e", metavar="E", help="ε, or leave it out with --target.")
    ] = None,
    cells: Annotated[str | None, typer.Option("--cells", metavar="D", help="Cells, or items of the domain.")] = None,
    shape: Annotated[
        str, typer.Option("--shape", metavar="SHAPE", help="Guess: power:2.2, poisson:5, geometric:20, uniform:200, …")
    ] = "power:2",
    target: Annotated[
        str | None,
        typer.Option("--target", metavar="[WHAT=]X", help="Error to reach: 0.05 (ℓ1), w1=0.1, distinct=0.01, …"),
    ] = None,
    method: opt.Method = "auto",
    repetitions: Annotated[int, typer.Option("--repetitions", metavar="N", help="Simulated releases per figure.")] = 5,
    as_json: opt.AsJson = False,
) -> None:
    """Say what errors and intervals to expect, or which ε or cells a target needs, before any budget is spent."""
    from ..answers.plan import plan as make_plan
    from ._show import print_json, stepping

    with stepping("simulating", "releases") as step:
        found = make_plan(
            epsilon=None if epsilon is None else opt.as_epsilon(epsilon),
            cells=None if cells is None else opt.as_cells(cells),
            shape=shape, target=_target(target), method=method, repetitions=repetitions, step=step,
        )  # fmt: skip
    if as_json:
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


@app.command(
    epilog="""[bold]Examples[/bold]

unnoise compare counts.csv --count-column n --epsilon 1

unnoise compare degrees.freqcount --freq-count -e 0.5 --plot compare.png

unnoise compare visits.csv -c url -e 1 --method auto --method paper"""
)
def compare(
    inputs: opt.Inputs,
    epsilon: opt.Epsilon = None,
    column: opt.Columns = None,
    count_column: opt.CountColumn = None,
    freq_count: opt.FreqCount = False,
    integers: opt.Integers = False,
    sql: opt.Sql = None,
    format: opt.Format = None,
    no_header: opt.NoHeader = False,
    domain: Annotated[
        str | None, typer.Option("--domain", metavar="N", help="Size of the domain: the rest has count 0.")
    ] = None,
    method: Annotated[
        list[str] | None, typer.Option("--method", metavar="NAME", help="Only these estimators; may be repeated.")
    ] = None,
    repetitions: Annotated[int, typer.Option("--repetitions", metavar="N", help="Noisy releases to average over.")] = 1,
    plot: Annotated[
        str | None, typer.Option("--plot", metavar="FILE", help="Write a picture (needs matplotlib).")
    ] = None,
    as_json: opt.AsJson = False,
) -> None:
    """Run every estimator on data whose truth is known, and set their errors side by side."""
    from ..answers.compare import compare as run
    from ._show import note, print_json, stepping
    from ._truth import true_counts

    law = opt.as_epsilon(epsilon)
    counts, how_many = true_counts(inputs, column, count_column, freq_count, integers, sql, format, no_header)
    size = None if domain is None else opt.as_cells(domain)
    with stepping("comparing estimators", "reconstructions") as step:
        found = run(
            counts, how_many=how_many, epsilon=law, domain=size, methods=method, repetitions=repetitions, step=step
        )
    if plot is not None:
        found.plot(plot)
        note(f"picture written to {plot}")
    if as_json:
        print_json(found.to_dict())
    else:
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
