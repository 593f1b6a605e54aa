"""The bridge between the secret and the public side: from items, sketch or file to a private profile in one call."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, overload

from .answers.reconstruct import reconstruct as from_noisy
from .checks import UNKNOWN, check_choice
from .errors import InputError
from .estimators.methods import check_max_count
from .noise import DiscreteLaplace, Exact, exact_positive
from .sketches.sketch import Sketch

if TYPE_CHECKING:
    from .answers.direct import DirectProfile
    from .answers.profile import Profile
    from .holding import Exactly, Unit
    from .ledger import Ledger
    from .reading.groups import GroupedSketch

__all__ = ["direct", "load", "profile", "reconstruct", "release_and_answer"]


def profile(
    items: Any, *, epsilon: Exact, counts: Any = None, person: Any = None, max_contributions: int | None = None,
    model: Literal["direct", "sketch"] | None = None, cells: int | None = None, method: str | None = None,
    ledger: Ledger | None = None,
) -> Profile:  # fmt: skip
    """Return the private profile of the items: how many of them occurred exactly t times.

    The rows are here and one answer leaves, so the noise goes on the profile itself (:func:`direct`). Through a hashed
    sketch, as for what must be kept, updated, merged or sent, with ``model="sketch"`` or an option only a sketch has.

    Parameters
    ----------
    items, epsilon, counts, person, max_contributions : as in :func:`direct`
    model : "direct" or "sketch"; direct unless ``cells`` or ``method`` are given
    cells : cells of the sketch, a power of two (2²⁰ unless given); about as many as there are distinct items
    method : estimator of the sketch, see :func:`reconstruct`
    ledger : where the release is recorded, before it leaves

    Examples
    --------
    >>> p = profile(["red", "blue", "red"] * 5_000, epsilon=1)
    >>> float(p.distinct) < 20, profile(["red", "blue"], epsilon=1, model="sketch").noisy.layout.kind
    (True, 'hashed')
    """
    only = {"cells": cells, "method": method}
    given = [name for name, value in only.items() if value is not None]
    chosen = model or ("sketch" if given else "direct")
    check_choice("model", chosen, ("direct", "sketch"))
    if chosen == "direct":
        if given:
            raise InputError(f"{' and '.join(given)} must be left out for model='direct'")
        return direct(
            items, epsilon=epsilon, counts=counts, person=person, max_contributions=max_contributions, ledger=ledger
        )
    unit = "occurrence" if person is None and max_contributions is None else "person"
    if ledger is not None:
        ledger.check(epsilon, unit)
    sketch = Sketch.hashed(2**20 if cells is None else cells, epsilon=epsilon, max_contributions=max_contributions)
    sketch.update(items, counts, person=person)
    if ledger is not None:
        ledger.write("profile", epsilon, unit)
    return from_noisy(sketch.release(), method=method or "auto")


@overload
def direct(
    items: Any, *, epsilon: Exact, counts: Any = None, person: Any = None, max_contributions: int | None = None,
    max_count: int | None = None, ledger: Ledger | None = None,
) -> DirectProfile: ...  # fmt: skip


@overload
def direct(
    items: Any, *, epsilon: Exact, counts: Any = None, person: Any = None, max_contributions: int | None = None,
    by: Any, groups: Sequence[str], all_groups: Exact | None = None, unknown: Literal["error", "drop"] = "drop",
    max_count: int | None = None, ledger: Ledger | None = None,
) -> dict[str, DirectProfile]: ...  # fmt: skip


def direct(
    items: Any, *, epsilon: Exact, counts: Any = None, person: Any = None, max_contributions: int | None = None,
    by: Any = None, groups: Sequence[str] | None = None, all_groups: Exact | None = None,
    unknown: Literal["error", "drop"] = "drop", max_count: int | None = None, ledger: Ledger | None = None,
) -> DirectProfile | dict[str, DirectProfile]:  # fmt: skip
    """Return the private profile of the items, the noise put on the profile itself by whoever holds the rows.

    The rows are counted exactly, in memory; how many items have at least t occurrences, and the counts of the largest
    items, are released on a fixed grid, each number with discrete Laplace noise, and nothing else leaves this call
    (:mod:`unnoise.curve`). That is far closer to the truth than a sketch at equal ε (docs/benchmarks.md), but cannot be
    updated or merged afterwards.

    Parameters
    ----------
    items : integers, strings or tuples of them, in any of the forms :meth:`Sketch.update` takes
    epsilon : ε > 0, for one occurrence of one item or, with ``person`` or ``max_contributions``, for one person
    counts : occurrences of each item; one each when not given. Below 0 they take occurrences away
    person : column (or its name) of the person behind each row; ``True`` where the items themselves are the persons
    max_contributions : most occurrences of one person that count, over all groups together, chosen at random. Not
        needed where the items are the persons; without ``person`` it is the caller's promise
    by, groups : column (or its name) of the group of each row, and the names of all groups, declared because groups
        taken from the data would leak
    unknown : "drop" leaves rows of other groups out; "error" refuses them, which tells that there is one
    all_groups : adds "all groups", the profile of the declared groups together. Its rows are released a second time, so
        it takes this share of ε, 1/2 for example, and the groups the rest
    max_count : bound on counts, known beforehand: fewer numbers carry noise; counts above it are taken as the bound,
        so answers beyond it are of no larger counts (``Profile.cap``)
    ledger : where the release is recorded, before it leaves

    Returns
    -------
    Profile, or with ``groups`` a dict of them
        ``.curve`` holds the released numbers, ``.guarantee`` the promise in words.

    Examples
    --------
    >>> p = direct(["red", "blue", "red"] * 5_000, epsilon=1)
    >>> 9_000 < float(p.total) < 21_000, p.curve
    (True, NoisyCurve(43,264 numbers of at_least, ε = 1))
    >>> visits = {"user": [1, 1, 2], "day": ["a", "b", "a"]}
    >>> sorted(direct(visits, epsilon=1, person="user", by="day", groups=["a", "b"]))
    ['a', 'b']
    >>> both = direct(visits, epsilon=1, by="day", groups=["a", "b"], all_groups="1/4")
    >>> {name: (p.curve.epsilon, p.curve.noise.epsilon) for name, p in both.items()}["all groups"]
    (Fraction(1, 1), Fraction(1, 4))
    """
    from .holding import count_exactly, rows_of, share_of_all
    from .reading.groups import check_names

    unit = "occurrence" if person is None and max_contributions is None else "person"
    if ledger is not None:
        ledger.check(epsilon, unit)
    top = check_max_count(max_count, least=1)
    check_choice("unknown", unknown, UNKNOWN)
    if (by is None) != (groups is None):
        raise InputError("by and groups go together: the groups are declared, not taken from the data")
    exact_positive("epsilon", epsilon)
    names = None if groups is None else check_names(groups)
    whole = share_of_all(all_groups, names)
    tables, protected = rows_of(items, counts, person, by, max_contributions)
    exact = count_exactly(tables, protected, names, together=whole is not None, unknown=unknown)
    profiles = release_and_answer(exact, protected, epsilon, whole=whole, top=top)
    if ledger is not None:
        ledger.write("direct", epsilon, unit)
    return profiles[""] if groups is None else profiles


def release_and_answer(
    exact: Mapping[str, Exactly], unit: Unit, epsilon: Exact, *, whole: Fraction | None = None, top: int | None = None
) -> dict[str, DirectProfile]:
    """Put noise on the exact profile of each group and answer from what is released."""
    from .answers.direct import direct_profile
    from .holding import release

    curves = release(exact, unit, epsilon, whole=whole, top=top)
    return {name: direct_profile(curve) for name, curve in curves.items()}


def load(path: str | os.PathLike[str]) -> Sketch | GroupedSketch:
    """Return the sealed sketch in a file, or the set of groups in a folder that ``GroupedSketch.save`` wrote."""
    from .reading.groups import GroupedSketch, is_group_set

    return GroupedSketch.load(path) if is_group_set(path) else Sketch.load(path)


def reconstruct(
    noisy: Any, *, epsilon: Exact | None = None, power: Exact | None = None, noise: DiscreteLaplace | None = None,
    method: str = "auto", max_count: int | None = None, norm: float | None = None, clipped: bool = False,
) -> Profile:  # fmt: skip
    """Reconstruct the profile: for every t, the share of items with count exactly t.

    Parameters
    ----------
    noisy : Sketch, path, NoisyCounts, NoisyProfile, NoisyCurve or integers
        A sketch (which is released), the file of one, what was released of it, or a histogram noised elsewhere, one
        signed integer per item of a known domain: as integers or as the path of a file with one column of them.
    epsilon, power : number or str, optional
        ε of the discrete Laplace noise and how many such noises were added up (1 unless given): ε is required where
        ``noisy`` does not know it, and must agree where it does.
    noise : DiscreteLaplace, optional
        The whole law, in place of both.
    method, max_count, norm, clipped
        As in :func:`unnoise.answers.reconstruct.reconstruct`.

    Examples
    --------
    >>> p = reconstruct([1, 1, 2, 0, 1, -1, 3, 0], epsilon=1, power=2, method="isotonic")
    >>> p.method, float(p.noisy.noise.power)
    ('isotonic', 2.0)
    """
    given = _opened(noisy) if isinstance(noisy, str | os.PathLike) else noisy
    if isinstance(given, Sketch):
        given = given.release()
    elif hasattr(given, "sketches"):
        raise InputError(
            "a set of groups must be reconstructed group by group: "
            "{name: un.reconstruct(noisy) for name, noisy in groups.release().items()}"
        )
    return from_noisy(
        given, epsilon=epsilon, power=power, noise=noise, method=method, max_count=max_count, norm=norm,
        clipped=clipped,
    )  # fmt: skip


def _opened(path: str | os.PathLike[str]) -> Any:
    """Open the file of a sketch or of noisy counts."""
    from .reading.groups import is_group_set
    from .reading.released import is_sketch_file, read_noisy_counts

    if is_group_set(path) or is_sketch_file(path):
        return load(path)
    return read_noisy_counts(path)
