"""``unnoise profile`` and ``unnoise sketch``: from data to a profile, or to a sketch that keeps its promise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..errors import ConvergenceError, OverloadError
from ._request import Profiling, Sketching, command
from .ledger import open_charge

if TYPE_CHECKING:
    from ..answers.profile import Profile

__all__ = ["profile", "sketch"]


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
    from ._held import direct_profiles
    from ._output import check_answers, show_profiles

    check_answers(request, [*request.inputs, request.domain])
    profiles: Mapping[str, Profile]
    profiles, guarantee = _sketched(request) if request.wants_sketch else direct_profiles(request)
    show_profiles(profiles, guarantee, request)


def _sketched(request: Profiling) -> tuple[Mapping[str, Profile], str]:
    """Answer through a sketch."""
    from ._sketches import import_answers, reconstruct_all, sketch_data

    charge = open_charge(request, "profile")
    target = sketch_data(request, meanwhile=import_answers)
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
    target = sketch_data(request)
    charge.write()
    save_sketch(target, request.output)
    if request.output != "-":
        note(f"{request.output}: {target.guarantee}")
