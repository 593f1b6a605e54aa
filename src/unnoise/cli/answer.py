"""``unnoise profile``, ``sketch``, ``estimate`` and ``report``: from data, sketches or noisy counts to answers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ConvergenceError, OverloadError
from . import _options as opt
from ._request import Answering, Profiling, Reporting, Sketching, command
from .ledger import open_charge

if TYPE_CHECKING:
    from ..answers.profile import Profile

__all__ = ["estimate", "profile", "report", "sketch"]


@command(
    Profiling,
    epilog="""[bold]Examples[/bold]

unnoise profile visits.csv --column url --epsilon 1

unnoise profile 'logs/*.parquet' -c user -c page -e 0.5 -o report.html

zcat words.txt.gz | unnoise profile - --format lines -e 1 --json

unnoise profile sales.csv -c product -e 1 --by country --groups DE,FR,IT

unnoise profile visits.csv -c user --person user -e 1

unnoise profile huge.csv -c url -e 1 --sketch""",
)
def profile(request: Profiling) -> None:
    """From data to answers in one command: how many items occur exactly once, twice, at least ten times, …"""
    from ._output import check_answers, show_profiles
    from ._sketches import direct_profiles

    check_answers(request, [*request.inputs, request.domain])
    profiles: Mapping[str, Profile]
    profiles, guarantee = _sketched(request) if request.wants_sketch else direct_profiles(request)
    show_profiles(profiles, guarantee, request)


def _sketched(request: Profiling) -> tuple[Mapping[str, Profile], str]:
    """Answer through a sketch."""
    from ._sketches import reconstruct_all, sketch_data

    charge = open_charge(request, "profile")
    target = sketch_data(request, answers=True)
    charge.write()
    sketches = target.sketches if hasattr(target, "sketches") else {"": target}
    try:
        return reconstruct_all(sketches, method=request.method, max_count=request.max_count), target.guarantee
    except (ConvergenceError, OverloadError) as error:
        raise type(error)(f"{error}; this try spent its ε, so plan the next one") from None


@command(
    Sketching,
    epilog="""[bold]Examples[/bold]

unnoise sketch day1.parquet --column url --epsilon 1 -o day1.sketch

unnoise sketch orders.csv -c product -e 1 --domain products.txt -o orders.sketch

unnoise sketch log.csv -c page -e 1 --person user --max-contributions 5 -o log.sketch

unnoise sketch sales.csv -c product -e 1 --by country --groups DE,FR,IT -o sales.sketches""",
)
def sketch(request: Sketching) -> None:
    """Keep a private sketch of the data: small, mergeable, and safe to pass on."""
    from ._output import check_output
    from ._show import note
    from ._sketches import check_stream, save_sketch, sketch_data

    grouped = request.groups is not None
    if request.output == "-":
        check_stream(grouped=grouped)
    check_output(request.output, [*request.inputs, request.domain], force=request.force, folder=grouped)
    charge = open_charge(request, "sketch")
    target = sketch_data(request, {"label": request.label, "site": request.site, "period": request.period})
    charge.write()
    save_sketch(target, request.output)
    if request.output != "-":
        note(f"{request.output}: {target.guarantee}")


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
    law = DiscreteLaplace(exact_positive("epsilon", request.epsilon), exact_positive("power", request.power))
    kind = request.format or ("csv" if request.file == "-" else None)
    dialect = opt.as_dialect(kind, request.no_header, request.delimiter, request.quote)
    with saying("reading"):
        counts = read_noisy_counts(path, column=request.column, sql=request.sql, **dialect)
    with saying("reconstructing"):
        return reconstruct(
            counts, noise=law, method=request.method, max_count=request.max_count, clipped=request.clipped
        )
