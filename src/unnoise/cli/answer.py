"""``unnoise estimate`` and ``unnoise report``: answers from a sketch, or from noisy counts released by others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from . import _options as opt
from ._request import Answering, Reporting, command

if TYPE_CHECKING:
    from ..answers.profile import Profile

__all__ = ["estimate", "report"]


@command(
    Answering,
    epilog="""[bold]Examples[/bold]

unnoise estimate week.sketch

unnoise estimate released.csv --column noisy --epsilon 0.5 --json

unnoise estimate clamped.parquet -c n -e 1 --clipped

unnoise estimate week.sketch --noun user --at-least 1,2,3,5,10 -o reach.xlsx""",
)
def estimate(request: Answering) -> None:
    """Answer from a sketch, or from a noisy histogram that another library released."""
    from ._output import check_answers, show_profiles

    check_answers(request, [request.file])
    show_profiles(*_answers(request), request)


@command(
    Reporting,
    epilog="""[bold]Examples[/bold]

unnoise report week.sketch -o report.html

unnoise report released.csv -c noisy -e 1 -o report.html --title 'Degrees of the network'""",
)
def report(request: Reporting) -> None:
    """Write one HTML page with sentence, picture, answers and promise; it needs no network."""
    from ._output import check_answers, show_profiles

    check_answers(request, [request.file])
    show_profiles(*_answers(request), request, quiet=not request.as_json)


def _answers(request: Answering) -> tuple[dict[str, Profile], str]:
    """Open whatever the file is and reconstruct it."""
    from ..errors import InputError
    from ..reading.released import is_sketch_file
    from ._show import saying
    from ._sketches import load_sketches, local_path, reconstruct_all

    file = request.file
    with local_path(file) as path:
        if path.is_dir() or is_sketch_file(path):
            if request.column or request.clipped or request.power != "1" or request.epsilon is not None:
                raise InputError(f"{file} is a sketch: leave out --column, --epsilon, --power and --clipped")
            with saying("reading and verifying"):
                sketches, guarantee = load_sketches(path)
            return reconstruct_all(sketches, method=request.method, max_count=request.max_count), guarantee
        try:
            profile = _from_histogram(request, path)
        except InputError as error:
            raise InputError(str(error).replace(str(path), "standard input" if file == "-" else file)) from None
    return {"": profile}, ""


def _from_histogram(request: Answering, path: Path) -> Profile:
    from ..answers.reconstruct import reconstruct
    from ..errors import InputError
    from ..noise import DiscreteLaplace, exact_positive
    from ..reading.released import read_noisy_counts
    from ._show import saying

    if request.epsilon is None:
        raise InputError(f"--epsilon is required: {request.file} is not a sketch, so say which noise its counts carry")
    law = DiscreteLaplace(opt.as_epsilon(request.epsilon), exact_positive("power", request.power))
    kind = request.format or ("csv" if request.file == "-" else None)
    dialect = opt.as_dialect(kind, request.no_header, request.delimiter, request.quote)
    with saying("reading"):
        counts = read_noisy_counts(path, column=request.column, sql=request.sql, **dialect)
    with saying("reconstructing"):
        return reconstruct(
            counts, noise=law, method=request.method, max_count=request.max_count, clipped=request.clipped
        )
