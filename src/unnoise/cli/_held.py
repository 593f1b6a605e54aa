"""From a request to a direct profile: the rows are here, so the noise goes on the profile itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._options import as_epsilon, as_names
from .ledger import open_charge

if TYPE_CHECKING:
    from ..answers.direct import DirectProfile
    from ._request import Profiling

__all__ = ["direct_profiles"]


def direct_profiles(request: Profiling) -> tuple[dict[str, DirectProfile], str]:
    """Count what was asked for, exactly and in memory, and return the profiles with their guarantee."""
    from ..holding.counting import count_exactly, unit_of
    from ..holding.release import share_of_all
    from ..reading.groups import check_names
    from ..reading.held import held_rows
    from ._show import note, saying, with_progress
    from ._sketches import _beside, _source, import_answers

    charge = open_charge(request, "direct")
    groups = None if request.groups is None else check_names(as_names(request.groups))
    whole = share_of_all(request.all_groups, groups)
    unit = unit_of(True if request.persons_are_items else request.person, request.max_contributions)
    source, wanted = _source(request)
    with saying("counting"), _beside(import_answers):
        batches = with_progress(source.batches(wanted), source.rows(), "reading")
        rows = held_rows(batches, persons_are_items=request.persons_are_items)
        exact = count_exactly(rows, unit, groups, together=whole is not None)
    charge.write()
    from ..api import release_and_answer  # loads SciPy, which no error above has to wait for

    with saying("answering"):
        profiles = release_and_answer(exact, unit, as_epsilon(request.epsilon), whole=whole)
    if groups is not None and whole is None:
        note("no row for all groups: their rows would be released a second time; --all-groups 1/2 gives it half of ε")
    return profiles, next(iter(profiles.values())).guarantee
