"""One sketch per group, in one pass over the data and one set of files.

The groups are declared before any data: groups taken from the data would tell that somebody is in them. Every group
has a sketch of the same make, whether or not anything falls into it.

*One occurrence* belongs to one group, so the groups are disjoint parts of the data and together keep the ε of each
(parallel composition). *One person* may be in every group, so with ``max_contributions`` the person's ε adds up over
the groups, and :attr:`GroupedSketch.guarantee` says so.

:mod:`unnoise.reading.groupfiles` keeps a set on the disk.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from ..checks import check_unknown
from ..errors import IncompatibleError
from ..guard import quiet
from ..noise import tidy
from ..noisy import NoisyCounts
from ..sketches.inputs import Rows, person_is_item, read_items
from ..sketches.intake import take_in
from ..sketches.sketch import Sketch
from ..text import inert
from .groupfiles import check_names, is_group_set, load_set, save_set

__all__ = ["GroupedSketch", "is_group_set"]



class GroupedSketch:
    """Sketches of declared groups.

    Parameters
    ----------
    groups : sequence of str
        The names, declared before any data.
    make : callable
        Returns a new sketch; called once per group.
    unknown : "error" or "drop"
        What to do with rows of a group that was not declared.

    Examples
    --------
    >>> g = GroupedSketch(["EWR", "JFK"], lambda: Sketch.hashed(2**10, epsilon=1, item_types=["str"]))
    >>> g.update({"plane": ["N1", "N2", "N1"], "origin": ["EWR", "JFK", "JFK"]}, group="origin")
    >>> list(g.release())
    ['EWR', 'JFK']
    """

    def __init__(self, groups: Sequence[str], make: Callable[[], Sketch], *, unknown: str = "drop") -> None:
        names = check_names(groups)
        self._sketches = {name: make() for name in names}
        self._unknown = check_unknown(unknown)
        self._require_alike()

    @classmethod
    def _of(cls, sketches: Mapping[str, Sketch]) -> GroupedSketch:
        both = cls.__new__(cls)
        both._sketches, both._unknown = dict(sketches), "drop"
        both._require_alike()
        return both

    def _require_alike(self) -> None:
        first, *others = self._sketches.values()
        for other in others:
            first.layout.require_equal(other.layout)
            if first.noise != other.noise:
                raise IncompatibleError("noise", first.noise, other.noise)

    @property
    def groups(self) -> tuple[str, ...]:
        """The declared names, in their order."""
        return tuple(self._sketches)

    @property
    def sketches(self) -> dict[str, Sketch]:
        """The sketch of each group."""
        return dict(self._sketches)

    @property
    def person_epsilon(self) -> Fraction | None:
        """ε of a person who is in every group and every ingestion call; None without ``max_contributions``."""
        spent = [sketch.person_epsilon for sketch in self._sketches.values()]
        return None if None in spent else sum((s for s in spent if s is not None), Fraction(0))

    @property
    def guarantee(self) -> str:
        """What is promised about the whole set, in plain words."""
        first, number = next(iter(self._sketches.values())), len(self._sketches)
        total = self.person_epsilon
        if total is None:
            return (
                f"{number} groups declared before any data. Each: {first.guarantee} "
                f"One occurrence belongs to one group only, so all {number} together keep the same ε."
            )
        return (
            f"{number} groups declared before any data. Each: {first.guarantee} One person may be in several groups, "
            f"so ε adds up over them: all {number} together give ε = {tidy(total)} for one person."
        )

    def __repr__(self) -> str:
        return f"GroupedSketch({inert(', '.join(self.groups))}: {next(iter(self._sketches.values()))!r} each)"

    # ── taking items in ───────────────────────────────────────────────────────────────────────────────────────

    @quiet
    def update(self, items: Any, group: Any, counts: Any = None, *, person: Any = None) -> None:
        """Count items in their groups: one ingestion call.

        ``group`` is the name of a column when items are a table, else one name per item.
        """
        batches = read_items(items, counts, person, group)
        self.take_in(batches, persons=person is not None, as_items=person_is_item(items, person))

    def take_in(self, batches: Iterable[Rows], *, persons: bool = False, as_items: bool = False) -> None:
        """Count batches of clean rows in one ingestion call; ``persons``: all of them say who is behind each row."""
        take_in(
            list(self._sketches.values()), batches, persons=persons, as_items=as_items, groups=self.groups,
            drop=self._unknown == "drop",
        )  # fmt: skip

    # ── leaving and coming back ───────────────────────────────────────────────────────────────────────────────

    def release(self) -> dict[str, NoisyCounts]:
        """Return the noisy counts of every group and seal them all."""
        return {name: sketch.release() for name, sketch in self._sketches.items()}

    def merge(self, other: GroupedSketch) -> None:
        """Add another set of the same groups into this one."""
        if set(self.groups) != set(other.groups):
            raise IncompatibleError("groups", ", ".join(self.groups), ", ".join(other.groups))
        for name, sketch in self._sketches.items():
            sketch.require_mergeable(other._sketches[name])
        for name, sketch in self._sketches.items():
            sketch.merge(other._sketches[name])

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the set into a folder, which has the old set or the new one, whole, whatever happens."""
        save_set(folder, self._sketches)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> GroupedSketch:
        """Return the sealed sketches of a set of files."""
        return cls._of(load_set(folder))
