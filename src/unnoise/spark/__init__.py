"""Profiles of data in a Spark cluster: rows and cells bounded by no single machine.

Items are hashed and counted by Spark itself; noise is added to every cell, empty ones too, range by range in the last
stage of the job; only tallies of noisy counts reach the driver. The cells are, bit for bit, those of the embedded
engine, so a sketch from Spark merges with one made from files. See docs/spark.md and docs/scale.md.

>>> import unnoise as un                                                      # doctest: +SKIP
>>> flights = spark.read.parquet("flights.parquet")                           # doctest: +SKIP
>>> un.spark.profile(flights, "tailnum", epsilon=1.0)                         # doctest: +SKIP

Every call runs at once, with a key of its own, and is a release of its own: two calls over the same rows cost ε twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ..checks import check_choice
from ..errors import InputError, PrivacyError
from ..noisy import NoisyProfile, combine
from ._call import Call, ProfileRequest, Request, asked_as, prepare

if TYPE_CHECKING:
    from ..answers.profile import Profile
    from ..sketches.sketch import Sketch

__all__ = ["noisy_profile", "profile", "sketch"]

Result = TypeVar("Result")


@asked_as(ProfileRequest)
def profile(request: ProfileRequest) -> Profile | dict[Any, Profile]:
    """Return the profile of the items in a DataFrame: how many of them occur exactly t times, for every t.

    Parameters
    ----------
    df : pyspark.sql.DataFrame
        Classic or Connect. It must be deterministic (files, tables; not ``sample`` or ``limit`` without an order):
        Spark computes lost partitions again.
    columns : str, Column or a sequence of them
        What makes an item: integers of any width, or strings. A row with a null in any of them is dropped.
    epsilon : number or str
        ε of this release; required.
    kind : "hashed", "known" or "sampled"
        Cells by hash (domain unknown), one per item of ``domain``, or one per sampled item of it.
    cells, levels : int
        For "hashed": number of cells, and of levels they are divided into (then ``cells`` counts all of them).
    domain : int or list of items
        For "known" and "sampled": d for the items 0 … d−1, or the items.
    rate : number or str
        For "sampled": the share of the domain that gets cells.
    hash_seed : int
        Seed of the hash, a public parameter; equal in sketches that are to be merged.
    by, groups : column, sequence of values
        One profile for each declared group; rows of other groups are dropped. Returns a dict.
    person, max_contributions : column, int
        At most ``max_contributions`` occurrences of a person count, over all groups together, chosen uniformly at
        random, and ε protects a person. Without ``person`` the bound is the caller's promise.
    unknown : "error" or "drop"
        What to do with an item outside the domain: leave it out (the default), or fail, which tells of it.
    ledger : Ledger
        Where the release is recorded: the limit is looked at before anything is read, the line written before the
        result is returned.
    method : str
        The estimator, as in :func:`unnoise.answers.reconstruct`.
    model : "sketch" or "direct"
        "direct" runs Spark's exact profile query and puts noise on the profile itself, once, on the driver
        (:func:`unnoise.direct`): closer to the truth, but counted exactly on the way, and nothing that merges. It
        takes none of the options above that only a sketch has; ``person`` may be the item, without a limit.
    all_groups : number or str
        For "direct": adds "all groups", the declared groups together, which takes this share of ε (1/2, for example)
        and leaves the groups the rest.

    Returns
    -------
    Profile, or a dict of them by group
    """
    check_choice("model", request.model, ("sketch", "direct"))
    if request.model == "direct":
        from ._direct import direct_profiles

        answered: Profile | dict[Any, Any] = _recorded(request, lambda: direct_profiles(request))
        return answered
    if request.all_groups is not None:
        raise InputError("all_groups must be left out for model='sketch': it divides the ε of a direct release")
    from ..answers.reconstruct import reconstruct

    call = prepare(request)
    _require_private(call)
    noisy_profiles = _recorded(request, lambda: _noisy_profiles(call))
    return _by_group(call, [reconstruct(noisy, method=request.method) for noisy in noisy_profiles])


@asked_as(Request)
def noisy_profile(request: Request) -> NoisyProfile | dict[Any, NoisyProfile]:
    """Return the noisy profile, which is all that leaves the executors; parameters as in :func:`profile`."""
    call = prepare(request)
    _require_private(call)
    return _by_group(call, _recorded(request, lambda: _noisy_profiles(call)))


@asked_as(Request)
def sketch(request: Request) -> Sketch | dict[Any, Sketch]:
    """Return a sealed sketch, to be saved and merged with others; its cells must fit the driver.

    Parameters as in :func:`profile`. The 8 bytes a cell also count against ``spark.driver.maxResultSize``.
    """
    call = prepare(request)
    return _by_group(call, _recorded(request, lambda: _sketches(call)))


def _recorded(request: Request, run: Callable[[], Result]) -> Result:
    """Run a job between a look at the limit and a line in the ledger."""
    epsilon, unit = request.spending
    if request.ledger is None or epsilon is None:
        return run()
    request.ledger.check(epsilon, unit)
    results = run()
    request.ledger.write("spark", epsilon, unit)
    return results


def _sketches(call: Call) -> list[Sketch]:
    """Run the job and return the sketch of each group: every noise vector new, so with an identity of its own."""
    from ..guard import new_identity
    from ..layout import Account, fresh_labels
    from ..sketches.format import Stored
    from ..sketches.sketch import Sketch
    from ._job import collect_counts

    account = Account()
    if call.layout.max_contributions is not None:
        account = account.after_call(enforced=call.enforced)
    parts = collect_counts(call.rows, call.work, call.sizes)
    sketches = []
    for i in range(0, len(parts), call.layout.levels):
        cells = np.concatenate(parts[i : i + call.layout.levels]) if call.layout.levels > 1 else parts[i]
        identities, labels = frozenset([new_identity()]), fresh_labels(None, call.layout)
        stored = Stored(cells, call.work.noise, call.layout, account, identities, labels)
        sketches.append(Sketch.from_public(stored, label=call.label))
    return sketches


def _noisy_profiles(call: Call) -> list[NoisyProfile]:
    """Run the job and return the noisy profile of each group."""
    from ._job import collect_tallies

    parts = collect_tallies(call.rows, call.work, call.sizes)
    levels = call.layout.levels
    return [_assemble(parts[i : i + levels], call) for i in range(0, len(parts), levels)]


def _require_private(call: Call) -> None:
    """Refuse to release what test noise protects."""
    if call.label is not None:
        raise PrivacyError(f"a release needs noise from the operating system, got noise that is {call.label}")


def _assemble(parts: list[tuple[Any, Any]], call: Call) -> NoisyProfile:
    """Put the levels of one group together."""
    layout, noise = call.layout, call.work.noise
    if layout.levels == 1:
        return NoisyProfile(*parts[0], noise, layout)
    part = replace(layout, cells=layout.cells // layout.levels, levels=1)
    levels = tuple(NoisyProfile(*pair, noise, part) for pair in parts)
    return NoisyProfile(*combine(parts), noise, layout, levels)


def _by_group(call: Call, results: list[Result]) -> Result | dict[Any, Result]:
    return results[0] if call.groups is None else dict(zip(call.groups, results, strict=True))
