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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from ..arrays import Int64
from ..checks import check_unknown
from ..errors import IncompatibleError, InputError
from ..noise import tidy
from ..noisy import NoisyCounts
from ..sketches.inputs import Batch, _from_table, _table_of
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

    def __init__(self, groups: Sequence[str], make: Callable[[], Sketch], *, unknown: str = "error") -> None:
        names = check_names(groups)
        self._sketches = {name: make() for name in names}
        self._unknown = check_unknown(unknown)
        self._require_alike()

    @classmethod
    def _of(cls, sketches: Mapping[str, Sketch]) -> GroupedSketch:
        both = cls.__new__(cls)
        both._sketches, both._unknown = dict(sketches), "error"
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

    def update(self, items: Any, group: Any, counts: Any = None, *, person: Any = None) -> None:
        """Count items in their groups: one ingestion call.

        ``group`` is the name of a column when items are a table, else one name per item.
        """
        table = _table_of(items)
        if table is None:
            table = {"items": items}
        if isinstance(group, str):
            if group not in table:
                raise InputError(f"group must name a column of the items ({', '.join(table)}), got {group!r}")
            table = {**{name: column for name, column in table.items() if name != group}, "group": table[group]}
        else:
            table = {**table, "group": group}
        self.feed([_from_table(table, counts, person)], persons=person is not None)

    def feed(self, batches: Iterable[Batch], *, persons: bool = False) -> None:
        """Count batches whose last column is the group: one ingestion call, streamed unless ``persons``."""
        for sketch in self._sketches.values():
            sketch._require_open("update")
            if persons and sketch.layout.max_contributions is None:
                raise InputError("person needs max_contributions to be set when the sketch is made")
        kept: dict[str, list[Any]] = {name: [] for name in self._sketches}
        if not persons:  # every group is charged, so that the account does not tell which ones have data
            for sketch in self._sketches.values():
                sketch._apply([], enforced=False, charge=True)
        for batch in batches:
            for name, part in self._split(batch):
                if persons:
                    kept[name].append(self._sketches[name]._locate(part))
                else:
                    self._count(self._sketches[name], part)
        if persons:
            for name, pieces in kept.items():
                self._sketches[name]._apply(pieces, enforced=True, charge=True)

    @staticmethod
    def _count(sketch: Sketch, batch: Batch) -> None:
        if not sketch._count_directly([batch], charge=False):
            sketch._apply([sketch._locate(batch)], enforced=False, charge=False)

    def _split(self, batch: Batch) -> Iterator[tuple[str, Batch]]:
        """Cut a batch into its groups."""
        if batch.size == 0:
            return
        assert batch.types is not None
        codes = self._codes(batch.columns[-1])
        if self._unknown == "error" and codes.min() < 0:
            raise InputError(
                f"groups must be declared ({', '.join(self.groups[:12])}), got a row of another one: declare it or "
                f"drop such rows with unknown='drop'"
            )
        order = np.argsort(codes, kind="stable")
        ends = np.searchsorted(codes[order], np.arange(len(self._sketches) + 1), side="left")
        for index, name in enumerate(self._sketches):
            rows = order[ends[index] : ends[index + 1]]
            if rows.size:
                yield name, Batch(
                    tuple(column[rows] for column in batch.columns[:-1]),
                    batch.types[:-1],
                    None if batch.counts is None else batch.counts[rows],
                    None if batch.persons is None else batch.persons[rows],
                )

    def _codes(self, column: Any) -> Int64:
        """Return the number of each row's group, −1 for one that was not declared."""
        import polars as pl

        text = pl.Series(column).cast(pl.String)
        numbers = {name: index for index, name in enumerate(self._sketches)}
        return text.replace_strict(numbers, default=-1, return_dtype=pl.Int64).to_numpy()

    # ── leaving and coming back ───────────────────────────────────────────────────────────────────────────────

    def release(self) -> dict[str, NoisyCounts]:
        """Return the noisy counts of every group and seal them all."""
        return {name: sketch.release() for name, sketch in self._sketches.items()}

    def merge(self, other: GroupedSketch) -> None:
        """Add another set of the same groups into this one."""
        if set(self.groups) != set(other.groups):
            raise IncompatibleError("groups", ", ".join(self.groups), ", ".join(other.groups))
        for name, sketch in self._sketches.items():
            sketch._require_mergeable(other._sketches[name])
        for name, sketch in self._sketches.items():
            sketch.merge(other._sketches[name])

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the set into a folder, which has the old set or the new one, whole, whatever happens."""
        save_set(folder, self._sketches)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> GroupedSketch:
        """Return the sealed sketches of a set of files."""
        return cls._of(load_set(folder))
