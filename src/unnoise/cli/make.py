"""``unnoise profile`` and ``unnoise sketch``: from data to a profile, or to a sketch that keeps its promise."""

from __future__ import annotations

from typing import Annotated

import typer

from ..errors import ConvergenceError, OverloadError
from . import _options as opt
from ._app import app

__all__ = ["profile", "sketch"]

SKETCH_OUT = Annotated[
    str, typer.Option("--output", "-o", metavar="FILE", help="File to write, a folder with --groups, or - .")
]
REPORT_OUT = Annotated[
    str | None,
    typer.Option("--output", "-o", metavar="FILE", rich_help_panel=opt.OUT, help="Write the report, an HTML page."),
]


@app.command(
    epilog="""[bold]Examples[/bold]

unnoise profile visits.csv --column url --epsilon 1

unnoise profile 'logs/*.parquet' -c user -c page -e 0.5 -o report.html

zcat words.txt.gz | unnoise profile - --format lines -e 1 --json

unnoise profile sales.csv -c product -e 1 --by country --groups DE,FR,IT"""
)
def profile(
    inputs: opt.Inputs,
    column: opt.Columns = None,
    epsilon: opt.Epsilon = None,
    output: REPORT_OUT = None,
    as_json: opt.AsJson = False,
    integers: opt.Integers = False,
    count_column: opt.CountColumn = None,
    freq_count: opt.FreqCount = False,
    sql: opt.Sql = None,
    format: opt.Format = None,
    no_header: opt.NoHeader = False,
    by: opt.By = None,
    groups: opt.Groups = None,
    unknown: opt.Unknown = "error",
    person: opt.Person = None,
    max_contributions: opt.MaxContributions = None,
    pan_private: opt.PanPrivate = False,
    cells: opt.Cells = "2^20",
    levels: opt.Levels = None,
    domain: opt.Domain = None,
    rate: opt.Rate = None,
    hash_seed: opt.HashSeed = 0,
    method: opt.Method = "auto",
    max_count: opt.MaxCount = None,
    title: opt.Title = None,
) -> None:
    """From data to answers in one command: how many items occur exactly once, twice, at least ten times, …"""
    from ._request import Request, import_answers, reconstruct_all, sketch_data
    from ._show import print_profiles

    request = Request(
        inputs=inputs, columns=column, epsilon=epsilon, integers=integers, count_column=count_column,
        freq_count=freq_count, sql=sql, format=format, no_header=no_header, by=by, groups=groups, unknown=unknown,
        person=person, max_contributions=max_contributions, pan_private=pan_private, cells=cells, levels=levels,
        domain=domain, rate=rate, hash_seed=hash_seed,
    )  # fmt: skip
    target = sketch_data(request, meanwhile=import_answers)
    sketches = target.sketches if hasattr(target, "sketches") else {"": target}
    try:
        profiles = reconstruct_all(sketches, method=method, max_count=max_count)
    except (ConvergenceError, OverloadError) as error:
        raise type(error)(f"{error}; this try spent its ε, so plan the next one") from None
    if output is not None:
        _write_report(output, profiles, target.guarantee, title)
    if output != "-":
        print_profiles(profiles, target.guarantee, as_json=as_json)


def _write_report(output: str, profiles: object, guarantee: str, title: str | None) -> None:
    from ..answers.report import report
    from ._show import note, write_output

    text = report(profiles, title=title or "Private frequency profile", guarantee=guarantee)  # type: ignore[arg-type]
    write_output(text, output)
    if output != "-":
        note(f"report written to {output}")


@app.command(
    epilog="""[bold]Examples[/bold]

unnoise sketch day1.parquet --column url --epsilon 1 -o day1.sketch

unnoise sketch orders.csv -c product -e 1 --domain products.txt -o orders.sketch

unnoise sketch log.csv -c page -e 1 --person user --max-contributions 5 -o log.sketch

unnoise sketch sales.csv -c product -e 1 --by country --groups DE,FR,IT -o sales.sketches"""
)
def sketch(
    inputs: opt.Inputs,
    output: SKETCH_OUT,
    column: opt.Columns = None,
    epsilon: opt.Epsilon = None,
    integers: opt.Integers = False,
    count_column: opt.CountColumn = None,
    freq_count: opt.FreqCount = False,
    sql: opt.Sql = None,
    format: opt.Format = None,
    no_header: opt.NoHeader = False,
    by: opt.By = None,
    groups: opt.Groups = None,
    unknown: opt.Unknown = "error",
    person: opt.Person = None,
    max_contributions: opt.MaxContributions = None,
    pan_private: opt.PanPrivate = False,
    cells: opt.Cells = "2^20",
    levels: opt.Levels = None,
    domain: opt.Domain = None,
    rate: opt.Rate = None,
    hash_seed: opt.HashSeed = 0,
) -> None:
    """Keep a private sketch of the data: small, mergeable, and safe to pass on."""
    from ._request import Request, save_sketch, sketch_data
    from ._show import note

    request = Request(
        inputs=inputs, columns=column, epsilon=epsilon, integers=integers, count_column=count_column,
        freq_count=freq_count, sql=sql, format=format, no_header=no_header, by=by, groups=groups, unknown=unknown,
        person=person, max_contributions=max_contributions, pan_private=pan_private, cells=cells, levels=levels,
        domain=domain, rate=rate, hash_seed=hash_seed,
    )  # fmt: skip
    target = sketch_data(request)
    save_sketch(target, output)
    if output != "-":
        note(f"{output}: {target.guarantee}")
