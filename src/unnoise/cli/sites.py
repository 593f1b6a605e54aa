"""``unnoise union``, ``overlap``, ``table``: sketch files beside each other; ``share`` and ``combine``: two servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ..errors import FormatError, InputError, PrivacyError, UnnoiseError
from ..noise import exact_positive
from ..text import inert_markup
from . import _options as opt
from ._app import App, app
from ._request import Recorded, as_cells, as_seed, command, read_as

if TYPE_CHECKING:
    from ..answers.estimate import Estimate
    from ..protocols.shares import Server, Task

__all__ = ["combine", "overlap", "table", "union"]

Files = Annotated[list[str], typer.Argument(metavar="FILE…", help="Sketch files of one hash seed.", show_default=False)]
Once = Annotated[
    bool, typer.Option("--once", help="No site counts an item more than once: sharper answers, if it is true.")
]
TaskFile = Annotated[
    Path, typer.Option("--task", metavar="FILE", help="The task, as share task wrote it.", exists=True, dir_okay=False)
]
Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of this server.", show_default=False)]
Output = Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="File to write.")]

share_app = App(help="Shares of cells, passed around as files: sites and two servers.")
app.add_typer(share_app, name="share")


RETAINED = "retained"
"""The one answer that is a share, not a number of items."""


@app.command(
    epilog="""[bold]Examples[/bold]

unnoise union berlin.sketch paris.sketch rome.sketch

unnoise union *.sketch --once -o union.html"""
)
def union(
    files: Files, once: Once = False, output: opt.Output = None, force: opt.Force = False, as_json: opt.AsJson = False
) -> None:
    """How many different items occur in any of the files, from the sketches beside each other."""
    from ..sites import union as answer
    from ._output import saying

    _check(output, files, force)
    with saying("answering"):
        found = {"union": answer(*files, max_count=_bound(once))}
    _show(found, files, output, force, as_json)


@app.command(
    epilog="""[bold]Examples[/bold]

unnoise overlap october.sketch november.sketch

unnoise overlap tv.sketch web.sketch --once"""
)
def overlap(
    files: Files, once: Once = False, output: opt.Output = None, force: opt.Force = False, as_json: opt.AsJson = False
) -> None:
    """How many items occur in all of the files; of two also which share was retained, and what only the first has."""
    from .. import sites
    from ._output import saying

    _check(output, files, force)
    bound = _bound(once)
    with saying("answering"):
        found = {"overlap": sites.overlap(*files, max_count=bound)}
        if len(files) == 2:
            found["only in the first"] = sites.unique_reach(*files, max_count=bound)
            found[RETAINED] = sites.retention(*files, max_count=bound)
    _show(found, files, output, force, as_json)


@app.command(
    epilog="""[bold]Examples[/bold]

unnoise table *.sketch --by site

unnoise table north-*.sketch south-*.sketch --by period --once --json"""
)
def table(
    files: Files,
    by: Annotated[
        Literal["site", "period", "both"], typer.Option("--by", help="Rows: sites, growing periods, or both.")
    ] = "site",
    subsets: Annotated[bool, typer.Option("--subsets", help="Every subset of the sites, up to eight of them.")] = False,
    once: Once = False,
    output: opt.Output = None,
    force: opt.Force = False,
    as_json: opt.AsJson = False,
) -> None:
    """Reach of sites and periods without contradictions, each file by its labels, or else its name as the site."""
    from ..answers.consistent import SiteTable
    from ..answers.export import table_document
    from ..sites import consistent_table
    from ._output import print_json, saying, write_document

    _check(output, files, force)
    if subsets and by == "period":
        raise InputError("--subsets needs rows by site, got --by period")
    with saying("answering"):
        found = consistent_table(_keyed(files), "all" if subsets else None, max_count=_bound(once))
    rows = found.rows
    if by == "site":
        rows = tuple({row.sites: row for row in rows}.values())  # the last of each: all periods
    elif by == "period":
        every = max(len(row.sites) for row in rows)
        rows = tuple(row for row in rows if len(row.sites) == every)
    if output is not None:
        write_document(table_document(SiteTable(rows)), output, new=not force)
    if as_json:
        print_json(SiteTable(rows).to_dict())
    elif output != "-":
        typer.echo(str(SiteTable(rows)))


def _keyed(files: list[str]) -> dict[tuple[str, str], Path]:
    """Return the files by site and period: what their labels say, else the name of the file."""
    from ..sketches.sketch import Sketch

    found: dict[tuple[str, str], Path] = {}
    for file in files:
        labels = Sketch.load(file).labels
        key = (" + ".join(labels.site) or Path(file).stem, " + ".join(labels.period))
        if key in found:
            raise InputError(f"{found[key]} and {file} must not be of the same site and period, both say {key}")
        found[key] = Path(file)
    return dict(sorted(found.items(), key=lambda item: item[0][1]))


def _bound(once: bool) -> int | None:
    return 1 if once else None


def _check(output: str | None, files: list[str], force: bool) -> None:
    """Refuse an output whose name does not say what to write, or that must not be written to."""
    from ._output import check_output

    check_output(output, files, force=force, document=True)


def _show(found: dict[str, Estimate], files: list[str], output: str | None, force: bool, as_json: bool) -> None:
    """Write answers into the file asked for, if any, and print them as a table or as JSON."""
    from ..answers.estimate import sensible
    from ..answers.export import answers_document
    from ..answers.questions import mark
    from ..answers.render import rich_table
    from ._output import print_json, screen, write_document

    document = answers_document(found, files)
    if output is not None:
        write_document(document, output, new=not force)
    if as_json:
        print_json(document.whole())
        return
    if output == "-":
        return
    shown = rich_table("answer", "value", "95 % interval", "remark", left=("answer", "remark"))
    for name, estimate in found.items():
        value, low, high = sensible(estimate, whole=name != RETAINED)
        shown.add_row(inert_markup(name), value, f"{low} to {high}", mark(estimate))
    screen().print(shown)


# ── shares ────────────────────────────────────────────────────────────────────────────────────────────────────────


@share_app.command(
    "task",
    epilog="""[bold]Examples[/bold]

unnoise share task -e 1 --epoch 2026-11 --cells 2^17 -o november.task""",
)
def share_task(
    output: Output,
    epoch: Annotated[str, typer.Option("--epoch", help="Name of the period; a site gives one report for it.")],
    epsilon: opt.Epsilon = None,
    cells: opt.Cells = "2^20",
    levels: opt.Levels = None,
    hash_seed: opt.HashSeed = "0",
    integers: opt.Integers = False,
    max_contributions: opt.MaxContributions = None,
    sums: Annotated[int, typer.Option("--sums", min=1, help="Sums that a report may be in; each costs ε.")] = 1,
    least_sites: Annotated[int, typer.Option("--least-sites", min=1, help="Fewest sites in a sum.")] = 2,
    occurrences: Annotated[
        int | None, typer.Option("--occurrences", min=1, help="What a site expects; fewer cells for few sites.")
    ] = None,
    force: opt.Force = False,
) -> None:
    """Write a task: what all sites count, and the rules that both servers enforce."""
    from ..guard import write_whole
    from ..protocols.shares import Task
    from ._output import check_output

    check_output(str(output), force=force)
    made = Task.hashed(
        as_cells(cells or "2^20"), epsilon=exact_positive("epsilon", epsilon), epoch=epoch, levels=levels,
        hash_seed=as_seed(hash_seed),
        item_types=("int",) if integers else ("str",), max_contributions=max_contributions, sums=sums,
        least_sites=least_sites, occurrences=occurrences,
    )  # fmt: skip
    write_whole(output, made.to_bytes(), new=not force)


@dataclass(frozen=True, kw_only=True)
class Splitting(Recorded):
    """``unnoise share split``: rows to count for a task, in two shares."""

    task: TaskFile
    site: Annotated[str, typer.Option("--site", help="Name of this site.")]
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="NAME", help="Write NAME.seed and NAME.difference, one a server.")
    ]
    person: opt.Person = None
    force: opt.Force = False

    @property
    def outputs(self) -> tuple[str, str]:
        """The files that are written, for the two servers."""
        return f"{self.output}.seed", f"{self.output}.difference"


@command(
    Splitting,
    group=share_app,
    name="split",
    epilog="""[bold]Examples[/bold]

unnoise share split visits.csv -c user --task november.task --site berlin -o berlin""",
)
def share_split(request: Splitting) -> None:
    """Count data and write two shares; either file alone is random bits. Send each to its own server.

    The ledger is told what all sums that the task allows will cost: later nobody asks the site.
    """
    from ..guard import SECRET, replacing
    from ..protocols.shares import Site
    from ..reading.source import Wanted, open_source
    from ._output import check_output, saying, with_progress
    from .answer import open_charge

    for output in request.outputs:
        check_output(output, [*request.inputs, str(request.task)], force=request.force)
    task = _task(request.task)
    integers = "int" in (task.layout.item_types or ())
    if request.integers and not integers:
        raise InputError("--int must be left out: items of this task are text")
    most = task.layout.max_contributions
    unit = "occurrence" if most is None else "person"
    charge = open_charge(request, "shares", task.epsilon * (most or 1) * task.sums, unit)
    counting = Site(task, request.site)
    source = open_source(request.inputs, twice=request.twice, **read_as(vars(request)))
    columns = tuple(request.column or source.unnamed_item())
    if not columns:
        raise InputError("--column is required")
    counts = request.count_column or source.kind.counts
    wanted = Wanted(columns=columns, integers=integers, person=request.person, counts=counts)
    with saying("counting"):
        read = with_progress(source, wanted)
        counting.take_in(read, persons=request.person is not None, as_items=wanted.person_is_item)
        shares = counting.split()
        for output in request.outputs:  # again: reading takes its time
            check_output(output, force=request.force)
        charge.write(None, force=request.force)
        with ExitStack() as both:  # or neither
            for output, share in zip(request.outputs, (shares.seed, shares.difference)):
                handle = both.enter_context(replacing(output, SECRET, new=not request.force))
                with open(handle, "wb", closefd=False) as file:
                    file.write(share)


@share_app.command(
    "receive",
    epilog="""[bold]Examples[/bold]

unnoise share receive server-a berlin.seed paris.seed --task november.task --side seed""",
)
def share_receive(
    folder: Folder,
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Shares for this side.", show_default=False)],
    task: TaskFile,
    side: Annotated[Literal["seed", "difference"], typer.Option("--side", help="Which of the two servers this is.")],
) -> None:
    """Take shares in; the same share again changes nothing."""
    from ..protocols.shares import Server

    with Server.create(folder, _task(task), side) as server:
        for file in files:
            with _named(file, (FormatError, PrivacyError)):
                typer.echo(f"{file}: report {server.receive(file.read_bytes())}")


@share_app.command(
    "offer",
    epilog="""[bold]Examples[/bold]

unnoise share offer server-a -o a.offer""",
)
def share_offer(folder: Folder, output: Output, force: opt.Force = False) -> None:
    """Write which reports this server holds, for the other server."""
    _reply(folder, output, force, None, lambda server: server.offer())


@share_app.command(
    "agree",
    epilog="""[bold]Examples[/bold]

unnoise share agree server-a b.offer -o a.word""",
)
def share_agree(
    folder: Folder,
    offer: Annotated[Path, typer.Argument(metavar="OFFER", help="What the other server holds.", show_default=False)],
    output: Output,
    force: opt.Force = False,
) -> None:
    """Write this server's word to add exactly the reports that both hold; spends nothing."""
    from ..protocols.shares.combining import common_reports

    _reply(
        folder, output, force, offer, lambda server: server.agree(common_reports(server.offer(), offer.read_bytes()))
    )


@share_app.command(
    "answer",
    epilog="""[bold]Examples[/bold]

unnoise share answer server-a b.word -o a.answer""",
)
def share_answer(
    folder: Folder,
    word: Annotated[Path, typer.Argument(metavar="WORD", help="The other server's word.", show_default=False)],
    output: Output,
    force: opt.Force = False,
) -> None:
    """Write the noised sum of the agreed reports; asked again, the same bits."""
    _reply(folder, output, force, word, lambda server: server.answer(word.read_bytes()))


def _reply(folder: Path, output: Path, force: bool, read: Path | None, ask: Callable[[Server], bytes]) -> None:
    """Open a server, ask it one thing (in the light of what the other one wrote) and write what it says."""
    from ..guard import write_whole
    from ..protocols.shares import Server
    from ._output import check_output, saying

    check_output(str(output), [] if read is None else [str(read)], force=force)
    with saying(f"writing {output}"), Server.open(folder) as server, nullcontext() if read is None else _named(read):
        write_whole(output, ask(server), new=not force)


@app.command(
    epilog="""[bold]Examples[/bold]

unnoise combine a.answer b.answer --task november.task -o november.sketch"""
)
def combine(
    first: Annotated[Path, typer.Argument(metavar="ANSWER", help="Answer of one server.", show_default=False)],
    second: Annotated[Path, typer.Argument(metavar="ANSWER", help="Answer of the other.", show_default=False)],
    task: TaskFile,
    output: Output,
    force: opt.Force = False,
) -> None:
    """Add the answers of the two servers to a sealed sketch of all sites, with two noises."""
    from ..protocols.shares import combine as add
    from ._output import check_output, note, saying

    check_output(str(output), map(str, (first, second, task)), force=force)
    with saying(f"writing {output}"):
        sketch = add(_task(task), first.read_bytes(), second.read_bytes())
        sketch.save(output, new=not force)
    note(f"{output}: {sketch.guarantee}")


def _task(file: Path) -> Task:
    from ..protocols.shares import Task

    with _named(file):
        return Task.from_bytes(file.read_bytes())


@contextmanager
def _named(file: Path, kinds: type[UnnoiseError] | tuple[type[UnnoiseError], ...] = FormatError) -> Iterator[None]:
    """Put the name of a file before what is wrong with it."""
    try:
        yield
    except kinds as error:
        raise type(error)(f"{file}: {error}") from None
