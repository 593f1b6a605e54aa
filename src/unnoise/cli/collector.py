"""``unnoise serve``, ``send``, ``collect``, ``task``, ``token``, ``backup``, ``restore``: a collector."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..text import inert, inert_markup
from . import _options as opt
from ._app import App, app
from ._request import as_cells, command

if TYPE_CHECKING:
    from ..serve.client import Client
    from ..serve.tasks import Task as Gathered

__all__ = ["backup", "collect", "restore", "send", "serve"]

HERE = "--to http://127.0.0.1:8400 --token-file"
"""How the examples say where the collector is."""

To = Annotated[str, typer.Option("--to", metavar="URL", envvar="UNNOISE_COLLECTOR", help="Address of the collector.")]
TokenFile = Annotated[
    Path, typer.Option("--token-file", metavar="FILE", envvar="UNNOISE_TOKEN_FILE", help="File with the token to show.")
]
Trust = Annotated[
    str | None, typer.Option("--trust", metavar="FILE", help="Certificate to trust, where no authority vouches for it.")
]
Task = Annotated[str, typer.Argument(help="Name of the task.")]

task_app = App(help="Tasks of a collector: create, list, show.")
token_app = App(help="Tokens of a collector: create, list, revoke.")
app.add_typer(task_app, name="task")
app.add_typer(token_app, name="token")


def _examples(*lines: str) -> str:
    return "\n\n".join(["[bold]Examples[/bold]", *lines])


def _require_extra() -> None:
    from importlib.util import find_spec

    from ..errors import InputError

    if find_spec("httpx") is None or find_spec("starlette") is None:
        raise InputError("the collector needs its extra: pip install 'unnoise[serve]'")


# ── a collector ───────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class Serving:
    """Where a collector keeps its data, and where it listens; as :func:`unnoise.serve.run.serve` takes it."""

    data: Annotated[
        Path, typer.Option("--data", metavar="FOLDER", help="Folder for reports and the embedded database.")
    ]
    host: Annotated[str, typer.Option("--host", help="Address to listen on; others than this machine need TLS.")] = (
        "127.0.0.1"
    )
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Port to listen on.")] = 8400
    database: Annotated[
        str | None,
        typer.Option("--database", metavar="URL", envvar="UNNOISE_DATABASE", help="Postgres in place of SQLite."),
    ] = None
    certificate: Annotated[str | None, typer.Option("--certificate", metavar="FILE", help="TLS certificate.")] = None
    key: Annotated[str | None, typer.Option("--key", metavar="FILE", help="Key of the certificate.")] = None
    behind_proxy: Annotated[bool, typer.Option("--behind-proxy", help="A proxy in front speaks TLS.")] = False
    side: Annotated[
        Literal["seed", "difference"] | None, typer.Option("--side", help="Be one of the two servers that hold shares.")
    ] = None
    servers: Annotated[
        Path | None, typer.Option("--servers", metavar="FILE", help="JSON: addresses and tokens of the two servers.")
    ] = None
    new_token: Annotated[bool, typer.Option("--new-token", help="Make another administrator's token.")] = False


@command(
    Serving,
    epilog=_examples(
        "unnoise serve --data collector-data",
        "unnoise serve --data /srv/unnoise --database postgresql://unnoise@localhost/unnoise --host 0.0.0.0 "
        "--behind-proxy",
    ),
)
def serve(request: Serving) -> None:
    """Run a collector: sites send sealed sketches, one page answers."""
    _require_extra()
    from ..serve.run import serve as run

    options = asdict(request)
    run(options.pop("data"), **options)


@app.command(epilog=_examples("unnoise backup collector-data -o monday.tar"))
def backup(
    data: Annotated[Path, typer.Argument(metavar="FOLDER", help="Data folder of a collector.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Tar file to write.")],
    force: opt.Force = False,
) -> None:
    """Back a collector's data folder up, also while it runs."""
    from ..serve.run import backup as run
    from ._output import check_output, note

    check_output(str(output), force=force)
    note(f"{output}: {run(data, output, new=not force):,} reports")


@app.command(epilog=_examples("unnoise restore monday.tar --data new-folder"))
def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A back-up.")],
    data: Annotated[Path, typer.Option("--data", metavar="FOLDER", help="New or empty data folder.")],
) -> None:
    """Restore a collector's back-up into a new folder."""
    from ..serve.run import restore as run
    from ._output import note

    note(f"{data}: {run(file, data):,} reports")


# ── its clients ───────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class Talking:
    """Which collector is meant, and who asks."""

    to: To
    token_file: TokenFile
    trust: Trust = None

    def client(self) -> Client:
        """Return a client of the collector."""
        _require_extra()
        from ..errors import InputError
        from ..serve.client import Client

        try:
            token = self.token_file.read_bytes().decode("ascii")
        except UnicodeDecodeError:
            raise InputError(f"{self.token_file}: must hold a token, got another kind of file") from None
        return Client(self.to, token, verify=self.trust or True)


@dataclass(frozen=True, kw_only=True)
class Sending(Talking):
    """Reports to send."""

    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Sealed sketch files.", show_default=False)]
    task: Annotated[str | None, typer.Option("--task", help="Task to report to; shares name it themselves.")] = None
    period: Annotated[
        list[str] | None,
        typer.Option("--period", help="Period of each file, in their order; not for tasks of one report."),
    ] = None

    def named(self) -> str:
        """Return the task that a sketch is for."""
        from ..errors import InputError

        if self.task is None:
            raise InputError("--task must be given for a sketch")
        return self.task


@command(
    Sending, epilog=_examples(
        "unnoise send monday.sketch --task campaign --period 2026-11-16 --to https://collector.example "
        "--token-file site.token"
    ),
)  # fmt: skip
def send(request: Sending) -> None:
    """Send sealed sketches to a collector; sending again changes nothing."""
    from ..errors import InputError
    from ._output import saying

    files = request.files
    periods = request.period or ["once"] * len(files)
    if len(periods) != len(files):
        raise InputError(f"--period must be given once for each file, got {len(periods)} for {len(files)}")
    done: list[str] = []
    try:
        with request.client() as client, saying("sending", "reports") as step:
            for number, (path, when) in enumerate(zip(files, periods)):
                step(number, len(files))
                sent = client.send_share(path) if _is_share(path) else client.send(request.named(), path, period=when)
                news = "sent" if sent["fresh"] else "was there already"
                done.append(f"{path}: {news}" + (f" ({when})" if request.period else ""))
    finally:  # also where a later one was refused
        for line in done:
            typer.echo(inert(line))


def _is_share(path: Path) -> bool:
    """Whether a file is a share for one of two servers, not a sketch."""
    from ..protocols.shares.task import MAGIC

    with open(path, "rb") as file:
        return file.read(len(MAGIC)) == MAGIC


@dataclass(frozen=True, kw_only=True)
class Collecting(Talking):
    """A question to a collector."""

    task: Task
    site: Annotated[list[str] | None, typer.Option("--site", help="Count this site only; may be repeated.")] = None
    period: Annotated[
        list[str] | None, typer.Option("--period", help="Count this period only; may be repeated.")
    ] = None
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Write the merged sketch here.")
    ] = None
    ask: Annotated[
        bool, typer.Option("--ask", help="Two servers: ask them for this sum first; every new sum costs ε.")
    ] = False
    force: opt.Force = False
    as_json: opt.AsJson = False

    def one_period(self) -> str:
        """Return the period of a sum."""
        from ..errors import InputError

        if len(self.period or ()) > 1:
            raise InputError(f"--period must be given once with --ask, got {len(self.period or ())}: a sum is of one")
        return self.period[0] if self.period else "once"


@command(
    Collecting,
    epilog=_examples(
        f"unnoise collect campaign {HERE} viewer.token",
        f"unnoise collect campaign --site berlin -o one.sketch {HERE} viewer.token",
        f"unnoise collect campaign --period 2026-11-16 --ask {HERE} admin.token",
    ),
)
def collect(request: Collecting) -> None:
    """Ask a collector for reach and frequency of all sites, or of some."""
    from ._output import check_output, note, print_json

    check_output(request.output, force=request.force)
    which = {"sites": request.site or (), "periods": request.period or ()}
    with request.client() as client:
        if request.ask:
            client.ask_for_sum(request.task, period=request.one_period(), sites=which["sites"])
        if request.output is not None:
            client.merged(request.task, request.output, **which, new=not request.force)
            note(f"{request.output}: the merged sketch; ask it with: unnoise estimate {request.output}")
            return
        answer = client.collect(request.task, **which)
        nouns = _made_of(client.task(request.task)).nouns
    if request.as_json:
        print_json(answer)
    else:
        _print_answer(answer, nouns)


def _made_of(told: dict[str, Any]) -> Gathered:
    """Return the task that a collector tells of."""
    from ..serve.tasks import Task as Gathered

    return Gathered.from_dict({name: value for name, value in told.items() if name != "digest"})


def _print_answer(answer: dict[str, Any], nouns: str) -> None:
    from ..answers.estimate import Estimate, sensible
    from ..answers.render import rich_table
    from ._output import screen

    console = screen()
    sites, periods = len(answer["sites"]), len(answer["periods"])
    console.print(f"{sites} site{'s' if sites > 1 else ''}, {periods} period{'s' if periods > 1 else ''}", style="dim")
    left = ("occurred", "95 % interval", "remark")
    table = rich_table("occurred", inert_markup(nouns), "95 % interval", "remark", left=left)
    for n in answer["at_least"]:
        words = "at least once" if n["count"] == 1 else f"{n['count']} times or more"
        end = math.inf if n["high"] is None else n["high"]
        value, low, high = ("?",) * 3 if n["value"] is None else sensible(Estimate(n["value"], 0.0, n["low"], end))
        value, span = "?" if n["marked"] else value, "unknown" if n["high"] is None else f"{low} – {high}"
        table.add_row(words, value, span, inert_markup(n["mark"]))
    console.print(table)
    for warning in answer["warnings"]:
        console.print(inert(warning), style="yellow", markup=False)


# ── tasks and tokens ──────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class MakingTask(Talking):
    """A task to be."""

    name: Annotated[str, typer.Argument(help="Name of the task in addresses.")]
    epsilon: Annotated[str, typer.Option("--epsilon", "-e", help="ε per occurrence, or per person and report.")]
    title: Annotated[str, typer.Option("--title", help="The task in words.")] = ""
    cells: Annotated[str, typer.Option("--cells", help="Number of cells of every report.")] = "2^20"
    levels: Annotated[int, typer.Option("--levels", help="Number of levels.")] = 1
    hash_seed: Annotated[int, typer.Option("--hash-seed", help="Seed of the hash.")] = 0
    item_types: Annotated[str, typer.Option("--item-types", help="int or str for each column, with commas.")] = "str"
    max_contributions: Annotated[
        int | None, typer.Option("--max-contributions", help="Most occurrences of one person in a report.")
    ] = None
    every: Annotated[str, typer.Option("--every", help="once, day, week or month.")] = "once"
    min_sites: Annotated[int, typer.Option("--min-sites", help="Fewer sites are not answered.")] = 1
    noun: Annotated[str, typer.Option("--noun", help="What an item is: user, mouse/mice.")] = "item"
    way: Annotated[Literal["sealed", "two-servers"], typer.Option("--way", help="What sites send.")] = "sealed"
    most_sums: Annotated[int, typer.Option("--most-sums", help="Two servers: sums that a report may be in.")] = 1
    occurrences: Annotated[
        int | None, typer.Option("--occurrences", help="Two servers: what a site expects; fewer cells for few sites.")
    ] = None

    def values(self) -> dict[str, Any]:
        """The task as :meth:`unnoise.serve.client.Client.make_task` takes it."""
        others = {"name", *Talking.__dataclass_fields__}
        told = {name: value for name, value in asdict(self).items() if name not in others}
        return {**told, "cells": as_cells(self.cells), "item_types": self.item_types.split(",")}


@command(
    MakingTask, group=task_app, name="create",
    epilog=_examples(f"unnoise task create campaign --epsilon 1 --every day {HERE} admin.token"),
)  # fmt: skip
def task_create(request: MakingTask) -> None:
    """Make a task; it never changes afterwards."""
    from ._output import note

    name = request.name
    with request.client() as client:
        client.make_task(name, **request.values())
        note(f"task {name}: sites make their sketches with: unnoise sketch … {_sketch_options(client.task(name))}")


def _sketch_options(task: dict[str, Any]) -> str:
    """The options that make a sketch for this task."""
    parts = [f"--epsilon {task['epsilon']}", f"--cells {task['cells']}"]
    parts += ["--int"] if set(task["item_types"]) == {"int"} else []
    parts += [f"--levels {task['levels']}"] if task["levels"] > 1 else []
    parts += [f"--hash-seed {task['hash_seed']}"] if task["hash_seed"] else []
    parts += [f"--max-contributions {task['max_contributions']}"] if task["max_contributions"] else []
    return " ".join(parts)


@dataclass(frozen=True, kw_only=True)
class ListingTasks(Talking):
    """All tasks."""

    as_json: opt.AsJson = False


@command(ListingTasks, group=task_app, name="list", epilog=_examples(f"unnoise task list {HERE} admin.token"))
def task_list(request: ListingTasks) -> None:
    """List the tasks."""
    from ..answers.render import rich_table
    from ._output import print_json, screen

    with request.client() as client:
        tasks = client.tasks()
    if request.as_json:
        print_json({"tasks": tasks})
        return
    fields = ("id", "title", "epsilon", "cells", "every", "min_sites")
    names = [field.replace("_", " ") for field in fields]
    table = rich_table(*names, left=names)
    for task in tasks:
        table.add_row(*(inert_markup(task[field]) for field in fields))
    screen().print(table)


@dataclass(frozen=True, kw_only=True)
class ShowingTask(Talking):
    """One task."""

    name: Task


@command(ShowingTask, group=task_app, name="show", epilog=_examples(f"unnoise task show campaign {HERE} admin.token"))
def task_show(request: ShowingTask) -> None:
    """Show a task and its reports as JSON."""
    from ._output import print_json

    with request.client() as client:
        print_json({**client.task(request.name), "reports": client.reports(request.name)})


@dataclass(frozen=True, kw_only=True)
class WritingShareTask(Talking):
    """A task of two servers, as sites need it."""

    name: Task
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="File to write.")]
    period: Annotated[str, typer.Option("--period", help="The period to count; not for tasks of one report.")] = "once"
    force: opt.Force = False


@command(
    WritingShareTask, group=task_app, name="shares",
    epilog=_examples(f"unnoise task shares campaign --period 2026-11-16 -o monday.task {HERE} admin.token"),
)  # fmt: skip
def task_shares(request: WritingShareTask) -> None:
    """Tell both servers of a task and a period, and write what sites need for their shares: share split --task FILE."""
    from ..errors import InputError
    from ..guard import write_whole
    from ._output import check_output

    check_output(str(request.output), force=request.force)
    with request.client() as client:
        task = _made_of(client.task(request.name))
        if task.way != "two-servers":
            raise InputError(f"task {task.id} must be one of two servers, got way {task.way}: sites send sketches")
        message = task.for_servers(request.period).to_bytes()
        client.reports(request.name, period=request.period)
    write_whole(request.output, message, new=not request.force)


@dataclass(frozen=True, kw_only=True)
class MakingToken(Talking):
    """A token to be."""

    role: Annotated[str, typer.Argument(help="site, viewer, administrator or collector.")]
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="File to write the new token to.")]
    site: Annotated[str | None, typer.Option("--site", help="Name of the site, for role site.")] = None


@command(
    MakingToken, group=token_app, name="create",
    epilog=_examples(f"unnoise token create site --site oslo -o oslo.token {HERE} admin.token"),
)  # fmt: skip
def token_create(request: MakingToken) -> None:
    """Make a token; it is written into a file that only you can read."""
    import os

    from ._output import note

    output = request.output
    handle = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(handle, "w") as file, request.client() as client:
            file.write(client.make_token(request.role, request.site) + "\n")
    except BaseException:
        output.unlink(missing_ok=True)
        raise
    note(f"{output}: a token of role {request.role}; only a hash of it is kept by the collector")


@command(Talking, group=token_app, name="list", epilog=_examples(f"unnoise token list {HERE} admin.token"))
def token_list(request: Talking) -> None:
    """List the tokens, without their secrets, as JSON."""
    from ._output import print_json

    with request.client() as client:
        print_json({"tokens": client.tokens()})


@dataclass(frozen=True, kw_only=True)
class Revoking(Talking):
    """A token that is to be worthless."""

    name: Annotated[str, typer.Argument(help="Name of the token: the 16 digits after un_.")]


@command(
    Revoking, group=token_app, name="revoke",
    epilog=_examples(f"unnoise token revoke 0123456789abcdef {HERE} admin.token"),
)  # fmt: skip
def token_revoke(request: Revoking) -> None:
    """Make a token worthless."""
    with request.client() as client:
        client.revoke(request.name)
