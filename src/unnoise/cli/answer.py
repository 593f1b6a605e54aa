"""``unnoise estimate`` and ``unnoise report``: answers from a sketch, or from noisy counts released by others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import _options as opt
from ._app import app

if TYPE_CHECKING:
    from ..answers.profile import Profile

__all__ = ["estimate", "report"]

File = Annotated[str, typer.Argument(metavar="FILE", help="Sketch, set of groups, noisy histogram, or - .")]
Power = Annotated[
    str, typer.Option("--power", metavar="R", rich_help_panel=opt.OUT, help="Noises added up in a histogram of others.")
]
CountsColumn = Annotated[
    str | None, typer.Option("--column", "-c", metavar="NAME", help="Column of a noisy histogram of others.")
]
Epsilon = Annotated[
    str | None, typer.Option("--epsilon", "-e", metavar="E", help="ε of a noisy histogram of others.")
]


@app.command(
    epilog="""[bold]Examples[/bold]

unnoise estimate week.sketch

unnoise estimate released.csv --column noisy --epsilon 0.5 --json

unnoise estimate clamped.parquet -c n -e 1 --clipped"""
)
def estimate(
    file: File,
    column: CountsColumn = None,
    epsilon: Epsilon = None,
    power: Power = "1",
    clipped: opt.Clipped = False,
    format: opt.Format = None,
    no_header: opt.NoHeader = False,
    method: opt.Method = "auto",
    max_count: opt.MaxCount = None,
    as_json: opt.AsJson = False,
) -> None:
    """Answer from a sketch, or from a noisy histogram that another library released."""
    from ._show import print_profiles

    profiles, guarantee = _answers(file, column, epsilon, power, clipped, format, no_header, method, max_count)
    print_profiles(profiles, guarantee, as_json=as_json)


@app.command(
    epilog="""[bold]Examples[/bold]

unnoise report week.sketch -o report.html

unnoise report released.csv -c noisy -e 1 -o report.html --title 'Degrees of the network'"""
)
def report(
    file: File,
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="HTML page to write, or - .")],
    column: CountsColumn = None,
    epsilon: Epsilon = None,
    power: Power = "1",
    clipped: opt.Clipped = False,
    format: opt.Format = None,
    no_header: opt.NoHeader = False,
    method: opt.Method = "auto",
    max_count: opt.MaxCount = None,
    title: opt.Title = None,
) -> None:
    """Write one HTML page with sentence, picture, answers and promise; it needs no network."""
    from ..answers.report import report as write_report
    from ._show import note, write_output

    profiles, guarantee = _answers(file, column, epsilon, power, clipped, format, no_header, method, max_count)
    heading = title or "Private frequency profile"
    write_output(write_report(profiles, title=heading, guarantee=guarantee), output)
    if output != "-":
        note(f"report written to {output}")


def _answers(
    file: str, column: str | None, epsilon: str | None, power: str, clipped: bool, format: str | None, no_header: bool,
    method: str, max_count: int | None,
) -> tuple[dict[str, Profile], str]:  # fmt: skip
    """Open whatever the file is and reconstruct it."""
    from ..errors import InputError
    from ._request import load_sketches, local_path, reconstruct_all

    with local_path(file) as path:
        if path.is_dir() or _is_arrow_sketch(path):
            if column or clipped or power != "1" or epsilon is not None:
                raise InputError(f"{file} is a sketch: leave out --column, --epsilon, --power and --clipped")
            sketches, guarantee = load_sketches(path)
            return reconstruct_all(sketches, method=method, max_count=max_count), guarantee
        try:
            profile = _from_histogram(file, path, column, epsilon, power, clipped, format, no_header, method, max_count)
        except InputError as error:
            raise InputError(str(error).replace(str(path), "standard input" if file == "-" else file)) from None
    return {"": profile}, ""


def _is_arrow_sketch(path: Path) -> bool:
    """Tell a sketch from any other file by its first bytes and metadata."""
    with open(path, "rb") as file:
        return file.read(6) == b"ARROW1" and b"unnoise" in file.read(1 << 16)


def _from_histogram(
    file: str, path: Path, column: str | None, epsilon: str | None, power: str, clipped: bool, format: str | None,
    no_header: bool, method: str, max_count: int | None,
) -> Profile:  # fmt: skip
    from ..answers.reconstruct import reconstruct
    from ..errors import InputError
    from ..noise import DiscreteLaplace, exact_positive
    from ..reading.released import read_noisy_counts
    from ._show import saying

    if epsilon is None:
        raise InputError(f"--epsilon is required: {file} is not a sketch, so say which noise its counts carry")
    law = DiscreteLaplace(opt.as_epsilon(epsilon), exact_positive("power", power))
    kind = format or ("csv" if file == "-" else None)
    counts = read_noisy_counts(path, column=column, format=kind, header=not no_header)
    with saying("reconstructing"):
        return reconstruct(counts, noise=law, method=method, max_count=max_count, clipped=clipped)
