"""``unnoise plan``, ``advise``, ``compare`` and ``demo``: before there are data, and on data without secrets.

``compare`` takes true counts from a column of counts, from a frequency list, or by counting items.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import InputError
from ..noise import exact_positive
from . import _options as opt
from ._app import app
from ._request import Comparing, Data, Planning, as_cells, command, read_as

if TYPE_CHECKING:
    from ..answers.compare import Comparison
    from ..reading.source import Source

__all__ = ["advise", "compare", "demo", "plan", "true_counts"]


def true_counts(request: Data) -> tuple[Any, Any]:
    """Return counts and, for frequency lists, how many items have each."""
    from ..reading.formats import told
    from ..reading.source import Wanted, open_source

    source = open_source(request.inputs, twice=request.twice, **read_as(vars(request)))
    pairs = source.pairs()
    if pairs is not None:
        return _frequencies(source, pairs)
    columns, count_column = request.column or ([source.kind.item] if source.kind.item else None), request.count_column
    if columns is None and count_column is None:
        found = source.columns() if source.places else []
        if len(found) != 1:
            there = told(found, first_line=source.first_line)
            raise InputError(f"--count-column (counts) or --column (items) is required: {there}")
        count_column = found[0]
    if columns is None:
        assert count_column is not None
        return _column_of_counts(source, count_column), None
    wanted = Wanted(columns=tuple(columns), integers=request.integers, counts=count_column or source.kind.counts)
    return _counted(source, wanted), None


def _frequencies(source: Source, pairs: list[tuple[int, int]]) -> tuple[Any, Any]:
    """Return the pairs of a frequency list as two arrays."""
    import numpy as np

    _require_some(source, sum(count for _, count in pairs))
    frequencies, counts = (np.array(column, dtype=np.int64) for column in zip(*pairs))
    return frequencies, counts


def _require_some(source: Source, rows: int) -> None:
    """Refuse nothing at all: these data hold no secret, and errors relative to nothing do not exist."""
    if not rows:
        raise InputError(f"{source.name}: there must be at least one item, got none")


def _column_of_counts(source: Any, name: str) -> Any:
    import numpy as np

    from ..reading.source import Wanted

    parts = [rows.columns[0] for rows in source.batches(Wanted(columns=(name,), integers=True))]
    counts = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
    _require_some(source, counts.size)
    if counts.min() < 0:
        raise InputError(f"{source.name}: {name} must hold true counts ≥ 0, got {int(counts.min())}")
    return counts


def _counted(source: Any, wanted: Any) -> Any:
    """Count the items, exactly."""
    import polars as pl

    frames = []
    for rows in source.batches(wanted):
        times = pl.lit(1, pl.Int64) if rows.counts is None else pl.Series(rows.counts)
        frames.append(pl.DataFrame(dict(zip(wanted.columns, rows.columns))).with_columns(times.alias("\0times")))
    _require_some(source, sum(frame.height for frame in frames))
    items = list(wanted.columns)
    return pl.concat(frames).group_by(items).agg(pl.col("\0times").sum())["\0times"].to_numpy()


@command(
    Planning,
    epilog="""[bold]Examples[/bold]

unnoise plan --epsilon 1 --cells 100000 --shape power:2.2

unnoise plan --kind hashed --items 20000 --merges 8 -e 1   (which number of cells?)

unnoise plan --cells 2^20 --shape poisson:5 --target 0.05

unnoise plan --kind hashed --items 1000000 --cells 2^20 --merges 7 -e 1

unnoise plan --epsilon 0.5 --target distinct=0.01 --json""",
)
def plan(request: Planning) -> None:
    """Say what errors and intervals to expect, or which ε or cells a target needs, before any budget is spent."""
    from ..answers.plan import plan as make_plan
    from ._output import print_json, saying

    with saying("simulating", "releases") as step:
        found = make_plan(
            epsilon=None if request.epsilon is None else exact_positive("epsilon", request.epsilon),
            cells=None if request.cells is None else as_cells(request.cells),
            shape=request.shape, target=_target(request.target), kind=request.kind,
            items=None if request.items is None else as_cells(request.items, "items"), levels=request.levels,
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
        number = float(value.removesuffix("%").encode("ascii")) / (100 if value.endswith("%") else 1)
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
    from ..answers.export import comparison_document
    from ._output import check_output, note, print_json, saying, write_document

    law = exact_positive("epsilon", request.epsilon)
    for output in (request.output, request.plot):
        check_output(output, request.inputs, force=request.force, document=output is request.output)
    with saying("reading"):
        counts, how_many = true_counts(request)
    size = None if request.domain is None else as_cells(request.domain, "domain")
    with saying("comparing estimators", "reconstructions") as step:
        found = run(
            counts, how_many=how_many, epsilon=law, domain=size, methods=request.method,
            repetitions=request.repetitions, step=step,
        )  # fmt: skip
    if request.plot is not None:
        found.plot(request.plot, new=not request.force)
        note(f"picture written to {request.plot}")
    if request.output is not None:
        write_document(comparison_document(found), request.output, new=not request.force)
    if request.as_json:
        print_json(found.to_dict())
    elif request.output != "-":
        _print_comparison(found)


def _print_comparison(found: Comparison) -> None:
    from ..answers.render import rich_table
    from ._output import screen

    table = rich_table("estimator", "ℓ1 error", "W1 error", "distinct off", "total off", "seconds")
    done = [r for r in found.results if not r.failure]
    best = {key: min((getattr(r, key) for r in done), default=0.0) for key in ("l1", "w1")}
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
    from ._output import print_json, screen

    console = screen()
    result = run(output, say=(lambda _: None) if as_json else (lambda text: console.print(text)))
    if as_json:
        print_json(result)


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
    from ._output import print_json, saying

    with saying("simulating", "candidates") as step:
        found = find(
            epsilon=exact_positive("epsilon", request.epsilon), items=as_cells(request.items, "items"),
            shape=request.shape, two_servers=request.two_servers,
            trusted=not request.untrusted, sites=request.sites, updates=request.updates, published=request.published,
            domain=None if request.domain is None else as_cells(request.domain, "domain"),
            cells=None if request.cells is None else as_cells(request.cells), repetitions=request.repetitions,
            step=step,
        )  # fmt: skip
    if request.as_json:
        print_json(found.to_dict())
    else:
        typer.echo(str(found))
