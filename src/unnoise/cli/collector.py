"""``unnoise serve``, ``send``, ``collect``, ``task``, ``token``, ``backup``, ``restore``: a collector."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..text import inert, inert_markup
from . import _options as opt
from ._app import app

if TYPE_CHECKING:
    from ..serve.client import Client

__all__ = ["backup", "collect", "restore", "send", "serve"]

To = Annotated[str, typer.Option("--to", metavar="URL", envvar="UNNOISE_COLLECTOR", help="Address of the collector.")]
TokenFile = Annotated[
    Path, typer.Option("--token-file", metavar="FILE", envvar="UNNOISE_TOKEN_FILE", help="File with the token to show.")
]
Trust = Annotated[
    str | None, typer.Option("--trust", metavar="FILE", help="Certificate to trust, where no authority vouches for it.")
]
Sites = Annotated[list[str] | None, typer.Option("--site", help="Count this site only; may be repeated.")]
Periods = Annotated[list[str] | None, typer.Option("--period", help="Count this period only; may be repeated.")]

task_app = typer.Typer(no_args_is_help=True, help="Tasks of a collector: create, list, show.")
token_app = typer.Typer(no_args_is_help=True, help="Tokens of a collector: create, list, revoke.")
app.add_typer(task_app, name="task")
app.add_typer(token_app, name="token")


def _client(to: str, token_file: Path, trust: str | None = None) -> Client:
    _require_extra()
    from ..errors import InputError
    from ..serve.client import Client

    try:
        token = token_file.read_bytes().decode("ascii")
    except UnicodeDecodeError:
        raise InputError(f"{token_file}: must hold a token, got another kind of file") from None
    return Client(to, token, verify=trust or True)


def _require_extra() -> None:
    from importlib.util import find_spec

    from ..errors import InputError

    if find_spec("httpx") is None or find_spec("starlette") is None:
        raise InputError("the collector needs its extra: pip install 'unnoise[serve]'")


@app.command(
    epilog="""[bold]Examples[/bold]

unnoise serve --data collector-data

unnoise serve --data /srv/unnoise --database postgresql://unnoise@localhost/unnoise --host 0.0.0.0 --behind-proxy"""
)
def serve(
    data: Annotated[
        Path, typer.Option("--data", metavar="FOLDER", help="Folder for reports and the embedded database.")
    ],
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; others than this machine need TLS.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Port to listen on.")] = 8400,
    database: Annotated[
        str | None,
        typer.Option("--database", metavar="URL", envvar="UNNOISE_DATABASE", help="Postgres in place of SQLite."),
    ] = None,
    certificate: Annotated[str | None, typer.Option("--certificate", metavar="FILE", help="TLS certificate.")] = None,
    key: Annotated[str | None, typer.Option("--key", metavar="FILE", help="Key of the certificate.")] = None,
    behind_proxy: Annotated[bool, typer.Option("--behind-proxy", help="A proxy in front speaks TLS.")] = False,
    side: Annotated[
        Literal["seed", "difference"] | None,
        typer.Option("--side", help="Be one of the two servers that hold shares."),
    ] = None,
    servers: Annotated[
        Path | None,
        typer.Option("--servers", metavar="FILE", help="JSON with addresses and tokens of the two servers."),
    ] = None,
) -> None:
    """Run a collector: sites send sealed sketches, one page answers."""
    _require_extra()
    from ..serve.run import serve as run

    run(
        data,
        host=host,
        port=port,
        database=database,
        certificate=certificate,
        key=key,
        behind_proxy=behind_proxy,
        side=side,
        servers=servers,
    )


@app.command(
    epilog="""[bold]Examples[/bold]

unnoise send monday.sketch --task campaign --period 2026-11-16 --to https://collector.example --token-file site.token"""
)
def send(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Sealed sketch files.", show_default=False)],
    to: To,
    token_file: TokenFile,
    task: Annotated[str | None, typer.Option("--task", help="Task to report to; shares name it themselves.")] = None,
    period: Annotated[
        list[str] | None,
        typer.Option("--period", help="Period of each file, in their order; not for tasks of one report."),
    ] = None,
    trust: Trust = None,
) -> None:
    """Send sealed sketches to a collector; sending again changes nothing."""
    from ..errors import InputError
    from ._show import note, stepping

    periods = period or ["once"] * len(files)
    if len(periods) != len(files):
        raise InputError(f"--period must be given once for each file, got {len(periods)} for {len(files)}")
    with _client(to, token_file, trust) as client, stepping("sending", "reports") as step:
        for number, (path, when) in enumerate(zip(files, periods)):
            step(number, len(files))
            sent = client.send_share(path) if _is_share(path) else client.send(_named(task), path, period=when)
            note(f"{path}: {'sent' if sent['fresh'] else 'was there already'} ({when}, {sent['digest'][:12]}…)")


def _is_share(path: Path) -> bool:
    """Whether a file is a share for one of two servers, not a sketch."""
    from ..errors import FormatError
    from ..protocols.shares.messages import unpack

    try:
        unpack(path.read_bytes(), "share")
    except FormatError:
        return False
    return True


def _named(task: str | None) -> str:
    from ..errors import InputError

    if task is None:
        raise InputError("--task must be given for a sketch")
    return task


@app.command(
    epilog="""[bold]Examples[/bold]

unnoise collect campaign --to http://127.0.0.1:8400 --token-file viewer.token

unnoise collect campaign --site berlin -o one.sketch --to http://127.0.0.1:8400 --token-file viewer.token"""
)
def collect(
    task: Annotated[str, typer.Argument(help="Name of the task.")],
    to: To,
    token_file: TokenFile,
    site: Sites = None,
    period: Periods = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Write the merged sketch here.")
    ] = None,
    as_json: opt.AsJson = False,
    trust: Trust = None,
) -> None:
    """Ask a collector for reach and frequency of all sites, or of some."""
    from ._show import note, print_json

    with _client(to, token_file, trust) as client:
        if output is not None:
            client.merged(task, output, sites=site or (), periods=period or ())
            note(f"{output}: the merged sketch; ask it with: unnoise estimate {output}")
            return
        answer = client.collect(task, sites=site or (), periods=period or ())
        noun = str(client.task(task)["noun"])
    if as_json:
        print_json(answer)
        return
    _print_answer(answer, noun)


def _print_answer(answer: dict[str, Any], noun: str) -> None:
    from rich.table import Table

    from ._show import screen

    console = screen()
    sites, periods = len(answer["sites"]), len(answer["periods"])
    console.print(f"{sites} site{'s' if sites > 1 else ''}, {periods} period{'s' if periods > 1 else ''}", style="dim")
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for name in ("occurred", f"{noun}s", "95 % interval"):
        table.add_column(name, justify="right" if name == f"{noun}s" else "left")
    for n in answer["at_least"]:
        words = "at least once" if n["count"] == 1 else f"{n['count']} times or more"
        value = "too noisy to tell" if n["marked"] else f"{n['value']:,.0f}"
        table.add_row(words, value, f"{n['low']:,.0f} – {n['high']:,.0f}" if n["high"] is not None else "unknown")
    console.print(table)
    for warning in answer["warnings"]:
        console.print(inert(warning), style="yellow", markup=False)


@task_app.command(
    "create",
    epilog="[bold]Examples[/bold]\n\n"
    "unnoise task create campaign --epsilon 1 --every day --to http://127.0.0.1:8400 --token-file admin.token",
)
def task_create(
    name: Annotated[str, typer.Argument(help="Name of the task in addresses.")],
    to: To,
    token_file: TokenFile,
    epsilon: Annotated[str, typer.Option("--epsilon", "-e", help="ε per occurrence, or per person and report.")],
    title: Annotated[str, typer.Option("--title", help="The task in words.")] = "",
    cells: Annotated[str, typer.Option("--cells", help="Number of cells of every report.")] = "2^20",
    levels: Annotated[int, typer.Option("--levels", help="Number of levels.")] = 1,
    hash_seed: Annotated[int, typer.Option("--hash-seed", help="Seed of the hash.")] = 0,
    item_types: Annotated[str, typer.Option("--item-types", help="int or str for each column, with commas.")] = "str",
    max_contributions: Annotated[
        int | None, typer.Option("--max-contributions", help="Most occurrences of one person in a report.")
    ] = None,
    every: Annotated[str, typer.Option("--every", help="once, day, week or month.")] = "once",
    min_sites: Annotated[int, typer.Option("--min-sites", help="Fewer sites are not answered.")] = 1,
    noun: Annotated[str, typer.Option("--noun", help="What an item is, in the singular.")] = "item",
    trust: Trust = None,
) -> None:
    """Make a task; it never changes afterwards."""
    from ._show import note

    with _client(to, token_file, trust) as client:
        client.make_task(
            name, epsilon=epsilon, title=title, cells=opt.as_cells(cells), levels=levels, hash_seed=hash_seed,
            item_types=item_types.split(","), max_contributions=max_contributions, every=every, min_sites=min_sites,
            noun=noun,
        )  # fmt: skip
        note(f"task {name}: sites make their sketches with: unnoise sketch … {_sketch_options(client.task(name))}")


def _sketch_options(task: dict[str, Any]) -> str:
    """The options that make a sketch for this task."""
    parts = [f"--epsilon {task['epsilon']}", f"--cells {task['cells']}"]
    parts += [f"--levels {task['levels']}"] if task["levels"] > 1 else []
    parts += [f"--hash-seed {task['hash_seed']}"] if task["hash_seed"] else []
    parts += [f"--max-contributions {task['max_contributions']}"] if task["max_contributions"] else []
    return " ".join(parts)


@task_app.command(
    "list",
    epilog="[bold]Examples[/bold]\n\nunnoise task list --to http://127.0.0.1:8400 --token-file admin.token",
)
def task_list(to: To, token_file: TokenFile, as_json: opt.AsJson = False, trust: Trust = None) -> None:
    """List the tasks."""
    from rich.table import Table

    from ._show import print_json, screen

    with _client(to, token_file, trust) as client:
        tasks = client.tasks()
    if as_json:
        print_json({"tasks": tasks})
        return
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    names = ("id", "title", "epsilon", "cells", "every", "min_sites")
    for name in names:
        table.add_column(name.replace("_", " "))
    for task in tasks:
        table.add_row(*(inert_markup(task[name]) for name in names))
    screen().print(table)


@task_app.command(
    "show",
    epilog="[bold]Examples[/bold]\n\nunnoise task show campaign --to http://127.0.0.1:8400 --token-file admin.token",
)
def task_show(
    name: Annotated[str, typer.Argument(help="Name of the task.")], to: To, token_file: TokenFile, trust: Trust = None
) -> None:
    """Show a task and its reports as JSON."""
    from ._show import print_json

    with _client(to, token_file, trust) as client:
        print_json({**client.task(name), "reports": client.reports(name)})


@token_app.command(
    "create",
    epilog="[bold]Examples[/bold]\n\n"
    "unnoise token create site --site oslo -o oslo.token --to http://127.0.0.1:8400 --token-file admin.token",
)
def token_create(
    role: Annotated[str, typer.Argument(help="site, viewer or administrator.")],
    to: To,
    token_file: TokenFile,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="File to write the new token to.")],
    site: Annotated[str | None, typer.Option("--site", help="Name of the site, for role site.")] = None,
    trust: Trust = None,
) -> None:
    """Make a token; it is written into a file that only you can read."""
    import os

    from ._show import note

    handle = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(handle, "w") as file, _client(to, token_file, trust) as client:
            file.write(client.make_token(role, site) + "\n")
    except BaseException:
        output.unlink(missing_ok=True)
        raise
    note(f"{output}: a token of role {role}; only a hash of it is kept by the collector")


@token_app.command(
    "list",
    epilog="[bold]Examples[/bold]\n\nunnoise token list --to http://127.0.0.1:8400 --token-file admin.token",
)
def token_list(to: To, token_file: TokenFile, trust: Trust = None) -> None:
    """List the tokens, without their secrets, as JSON."""
    from ._show import print_json

    with _client(to, token_file, trust) as client:
        print_json({"tokens": client.tokens()})


@token_app.command(
    "revoke",
    epilog="[bold]Examples[/bold]\n\n"
    "unnoise token revoke 0123456789abcdef --to http://127.0.0.1:8400 --token-file admin.token",
)
def token_revoke(
    name: Annotated[str, typer.Argument(help="Name of the token: the 16 digits after un_.")],
    to: To,
    token_file: TokenFile,
    trust: Trust = None,
) -> None:
    """Make a token worthless."""
    with _client(to, token_file, trust) as client:
        client.revoke(name)


@app.command(epilog="[bold]Examples[/bold]\n\nunnoise backup collector-data -o monday.tar")
def backup(
    data: Annotated[Path, typer.Argument(metavar="FOLDER", help="Data folder of a collector.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Tar file to write.")],
) -> None:
    """Back a collector's data folder up, also while it runs."""
    from ..serve.backup import backup as run
    from ._show import note

    note(f"{output}: {run(data, output):,} reports")


@app.command(epilog="[bold]Examples[/bold]\n\nunnoise restore monday.tar --data new-folder")
def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A back-up.")],
    data: Annotated[Path, typer.Option("--data", metavar="FOLDER", help="New or empty data folder.")],
) -> None:
    """Restore a collector's back-up into a new folder."""
    from ..serve.backup import restore as run
    from ._show import note

    note(f"{data}: {run(file, data):,} reports")
