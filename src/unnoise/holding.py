"""The direct model's secret side: rows counted exactly, boxes of columns and rows, one noise on every number.

The exact curve exists in this module only, between its sums and their noise.

Rows are held as polars tables with the columns ``0, 1, …`` (the item) and, where asked for, ``times``, ``person`` and
``group``; a row with a null in any of them is dropped.

**Sorted keys.** One column of integers is sorted as it is. Anything else is told apart by 64 bits of polars' hash under
a seed drawn afresh for the call, so the rows themselves need not be held: 8 bytes each, and 16 for each distinct item
of every 2²⁴ rows. Of n items, n²/2⁶⁵ are expected to be taken for another (3·10⁻⁸ of a million). Privacy does not
rest on that: whatever the hash, an occurrence moves one key by one. Nothing is ever spilled to disk, as polars'
streaming ``group_by`` would do with exact counts when memory is short; where it is too short, a sketch does it in a
few megabytes.

Nothing is refused because of what the rows hold: the count of an item is clamped to 0…2⁶² (removals may take it below
0, sums may pass 2⁶³), rows of undeclared groups are dropped (unless somebody asked to be told of them), and no rows at
all are counted like any others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from ._sampler import fill, open_stream
from .arrays import Int64
from .checks import check_integer, undeclared
from .curve import ALL_GROUPS, TOP, NoisyCurve, Released, exact_numbers, limited_blocks, rank_blocks
from .errors import InputError, PrivacyError
from .guard import unprotected
from .noise import DiscreteLaplace, Exact, exact_positive
from .sketches.hashing import as_series
from .sketches.inputs import Rows, _duckdb_reader, clean_rows, columns_of, with_occurrences
from .sketches.persons import MOST, limit_contributions

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "Exactly", "Tally", "Unit", "count_exactly", "listed", "release", "rows_of", "share_of_all", "summed", "unit_of",
]  # fmt: skip


@dataclass(frozen=True, eq=False)
class Exactly:
    """The exact profile, secret: ``items[i]`` items have count ``counts[i]``; counts ascending, from 1 to 2⁶²."""

    counts: Int64
    items: Int64


@dataclass(frozen=True, kw_only=True)
class Unit:
    """What ε protects.

    persons : "" for one occurrence, "limited" or "promised" for persons with at most ``most`` occurrences over all
        groups together, "items" where each item is a person
    """

    persons: Literal["", "limited", "promised", "items"] = ""
    most: int | None = None

    def __post_init__(self) -> None:
        if self.most is not None:
            check_integer("max_contributions", self.most, 1)
        if self.persons in ("limited", "promised") and self.most is None:
            raise InputError("person needs max_contributions: how many occurrences of a person may count")

    @property
    def released(self) -> Released:
        """Noise goes on f where the item is the person, else on S."""
        return "exactly" if self.persons == "items" else "at_least"

    def changes(self, groups: int) -> int:
        """Return how far one unit moves all released numbers together.

        >>> Unit().changes(3), Unit(persons="limited", most=5).changes(3), Unit(persons="items", most=2).changes(3)
        (1, 5, 2)
        """
        if self.persons == "items":
            return groups if self.most is None else min(groups, self.most)
        return self.most or 1


def share_of_all(all_groups: Exact | None, groups: Sequence[Any] | None) -> Fraction | None:
    """Return the share of ε that all groups together take, None where they have no row of their own.

    >>> share_of_all("1/4", ["a", "b"])
    Fraction(1, 4)
    """
    if all_groups is None:
        return None
    if groups is None:
        raise InputError("all_groups needs groups: without them all rows are one profile")
    share = exact_positive("all_groups", all_groups)
    if share >= 1:
        raise InputError(f"all_groups must be a share of ε below 1, which leaves the rest to the groups, got {share}")
    return share


def release(
    profiles: Mapping[str, Exactly], unit: Unit, epsilon: Exact, *, whole: Fraction | None = None,
    top: int | None = None,
) -> dict[str, NoisyCurve]:  # fmt: skip
    """Put noise on the curve of every group; ε is for all of them together. Counts above ``top`` are taken as that.

    The same rows are in their group and in the profile named :data:`~unnoise.curve.ALL_GROUPS`, if there is one: two
    releases, of which that takes the share ``whole`` of ε and the groups the rest, so that they add up to ε.
    """
    groups = len(profiles) - (whole is not None)
    exact = exact_positive("epsilon", epsilon)
    group = _Part.of(exact, 1 - (whole or Fraction(0)), unit, groups)
    together = _Part.of(exact, whole or Fraction(1), unit, 1)
    stream = open_stream()
    if stream.label is not None and not unprotected.get():
        raise PrivacyError(f"noise must come from the operating system to be released, got noise {stream.label}")
    limits = [top, unit.most if unit.released == "exactly" else None]
    first, last = limited_blocks(unit.released, min((t for t in limits if t is not None), default=None))
    curves = {}
    ranks = rank_blocks(first, last)[0].size if unit.released == "at_least" else 0
    for name, profile in profiles.items():
        all_of_them = whole is not None and name == ALL_GROUPS
        part = together if all_of_them else group
        noises = np.empty(first.size + ranks, dtype=np.int64)
        fill(noises, part.noise, stream)
        columns, rows = exact_numbers(profile.counts, profile.items, first, last, unit.released, top or TOP)
        numbers = _saturated(np.concatenate([columns, rows]), noises)
        curves[name] = NoisyCurve(
            first, last, numbers[: first.size].copy(), part.noise, unit.released, unit.most,
            part.changes, unit.persons, stream.label, numbers[first.size :].copy(), part.share, all_of_them,
        )  # fmt: skip
    return curves


@dataclass(frozen=True)
class _Part:
    """One of the releases that divide ε: its share, how far a unit moves its numbers, and so their noise."""

    share: Fraction
    changes: int
    noise: DiscreteLaplace

    @classmethod
    def of(cls, epsilon: Fraction, share: Fraction, unit: Unit, groups: int) -> _Part:
        changes = unit.changes(groups)
        return cls(share, changes, DiscreteLaplace(epsilon * share / changes))


def _saturated(exact: Int64, noises: Int64) -> Int64:
    """Add noise to numbers ≥ 0 within 64 bits: a function of what would be released anyway."""
    room = np.iinfo(np.int64).max - exact
    return exact + np.minimum(noises, room)


GATHERED = 1 << 24
"""Rows gathered before they are counted: fewer would count the same items again and again, more would cost memory."""

HALF = 31
"""Sums are made of halves of so many bits, and so cannot pass 64."""


def rows_of(
    items: Any, counts: Any = None, person: Any = None, group: Any = None, most: int | None = None
) -> tuple[list[pl.DataFrame], Unit]:
    """Return the rows of whatever was passed as items, and the unit that ``person`` and ``most`` make of it.

    ``person`` and ``group`` are columns or names of columns; person=True, or the name of the only column of the items,
    says that the items are the persons.
    """
    items, counts = with_occurrences(items, counts)
    table = _whole_table(items)
    columns, beside = dict(table), {}
    for role, given in (("person", person), ("group", group)):
        if given is None or given is True:
            continue
        if isinstance(given, str):
            if given not in table:
                raise InputError(f"{role} must name a column of the items ({', '.join(table)}), got {given!r}")
            columns.pop(given, None)
            given = table[given]
        beside[role] = given
    if isinstance(counts, str):
        columns.pop(counts, None)
    if not columns and isinstance(person, str):
        columns, person = {person: beside.pop("person")}, True
    if not columns:
        raise InputError("items must have at least one column besides person, group and counts")
    unit = unit_of(person, most)
    times = table.get(counts) if isinstance(counts, str) and counts in table else counts
    for role, column in beside.items():
        name = role  # what errors call it
        while name in columns:
            name = f"_{name}"
        columns[name] = column
    batch = clean_rows(columns, times)
    return [_frame(batch, list(beside))], unit


def unit_of(person: Any, most: int | None) -> Unit:
    """Return what ε protects: ``person`` is True where the items are the persons, None without persons."""
    if person is True:
        return Unit(persons="items", most=most)
    if person is not None:
        return Unit(persons="limited", most=most)
    return Unit(persons="promised" if most is not None else "", most=most)


def _whole_table(items: Any) -> dict[str, Any]:
    """Return items, streams and iterators read to their end, as named columns."""
    table = columns_of(items)
    if table is not None:
        return table
    reader = _duckdb_reader(items)
    if reader is not None or hasattr(items, "__arrow_c_stream__"):
        import pyarrow as pa

        try:
            whole = (reader() if reader is not None else pa.RecordBatchReader.from_stream(items)).read_all()
        except pa.ArrowInvalid:  # one column, not a table
            return {"items": pa.chunked_array(items)}
        return columns_of(whole) or {}
    if isinstance(items, Iterable):
        return {"items": list(items)}
    raise InputError(f"items must be a collection of integers, strings or tuples, got {type(items).__name__}")


def _frame(batch: Rows, beside: Sequence[str]) -> pl.DataFrame:
    """Turn a batch into a table whose last columns are ``beside``."""
    import polars as pl

    if not batch.size:
        names = ["0", *(["times"] if batch.counts is not None else []), *beside]
        return pl.DataFrame({name: pl.Series([], dtype=pl.Int64 if name == "times" else pl.String) for name in names})
    series = [
        pl.Series(values=column) if isinstance(column, np.ndarray) else as_series(column) for column in batch.columns
    ]
    names = [*(str(i) for i in range(len(series) - len(beside))), *beside]
    frame = pl.DataFrame({name: column for name, column in zip(names, series)})
    return frame if batch.counts is None else frame.with_columns(times=pl.Series(batch.counts))


def count_exactly(
    tables: Iterable[pl.DataFrame], unit: Unit, groups: Sequence[str] | None = None, *, together: bool = False,
    unknown: str = "drop",
) -> dict[str, Exactly]:  # fmt: skip
    """Return the exact profile of every declared group ("" where there are none), and first of all ``together``.

    Rows of other groups are left out, or with ``unknown="error"`` refused. Persons who are limited keep at most
    ``unit.most`` occurrences over all groups, chosen uniformly at random. Where the items are the persons and there are
    no groups, the limit is on the count itself, and the grid ends there.
    """
    names = [""] if groups is None else list(groups)
    if groups is not None and unknown == "error":
        tables = _declared(tables, groups)
    if unit.persons == "limited" or (unit.persons == "items" and unit.most is not None and groups is not None):
        tables = _limited(tables, unit, groups)
    seed = int(open_stream().words(1)[0])
    tallies = [Tally() for _ in names]
    for table in tables:
        for index, part in _by_group(table, groups):
            times = part["times"].to_numpy() if "times" in part.columns else None
            tallies[index].add(_keys(part, seed), times)
    found = {name: _exactly(tally.counts()) for name, tally in zip(names, tallies)}
    return {ALL_GROUPS: _exactly(_added_up(tallies)), **found} if together else found


def _added_up(tallies: Sequence[Tally]) -> Int64:
    """Return the occurrences of every key over several tallies, which are settled."""
    whole = Tally()
    whole.sums = [pair for tally in tallies for pair in tally.sums]
    return whole.counts()


def _keys(table: pl.DataFrame, seed: int) -> NDArray[Any]:
    """Return what tells items apart: one column of integers as it is, anything else by 64 bits of a keyed hash."""
    items = table.select(name for name in table.columns if name.isdecimal())
    if items.width > 1:
        return items.hash_rows(seed).to_numpy()
    column = items.to_series()
    return column.to_numpy() if column.dtype.is_integer() else column.hash(seed).to_numpy()


def _by_group(table: pl.DataFrame, groups: Sequence[str] | None) -> list[tuple[int, pl.DataFrame]]:
    """Cut a table into its declared groups, each with its place in the list; other rows are left out."""
    import polars as pl

    if groups is None:
        return [(0, table)]
    place = {name: index for index, name in enumerate(groups)}
    named = table.with_columns(pl.col("group").cast(pl.String)).filter(pl.col("group").is_in(list(groups)))
    return [(place[str(key[0])], part) for key, part in named.partition_by("group", as_dict=True).items()]


def _declared(tables: Iterable[pl.DataFrame], groups: Sequence[str]) -> Iterator[pl.DataFrame]:
    """Yield tables whose rows are all of declared groups, and refuse any other."""
    import polars as pl

    for table in tables:
        if not table["group"].cast(pl.String).is_in(list(groups)).all():
            raise InputError(undeclared(groups))
        yield table


class Tally:
    """Counts keys, gathered and then sorted: NumPy sorts 64-bit numbers faster than any hash table takes them in."""

    def __init__(self) -> None:
        self.waiting: list[tuple[NDArray[Any], Int64 | None]] = []
        self.sums: list[tuple[NDArray[Any], Int64]] = []

    def add(self, keys: NDArray[Any], times: Int64 | None) -> None:
        """Take rows in; every so many of them are brought down to their distinct keys."""
        self.waiting.append((keys, times))
        if sum(k.size for k, _ in self.waiting) >= GATHERED:
            self._settle()

    def _settle(self) -> None:
        rows = sum(k.size for k, _ in self.waiting)
        if rows:
            keys = np.concatenate([k for k, _ in self.waiting])
            plain = all(t is None for _, t in self.waiting)
            times = None if plain else np.concatenate([t for _, t in self.waiting if t is not None])
            self.sums.append(summed(keys, times))
        self.waiting = []

    def counts(self) -> Int64:
        """Return the occurrences of every key."""
        self._settle()
        if len(self.sums) > 1:
            keys, times = (np.concatenate([pair[i] for pair in self.sums]) for i in (0, 1))
            self.sums = [summed(keys, times)]
        return self.sums[0][1] if self.sums else np.zeros(0, dtype=np.int64)


def summed(keys: NDArray[Any], times: Int64 | None) -> tuple[NDArray[Any], Int64]:
    """Return the distinct keys and Σ times of each (rows of each, without times), kept within ±2⁶².

    >>> summed(np.array([3, 1, 3]), np.array([TOP, 5, TOP]))[1].tolist() == [5, TOP]
    True
    """
    order = None if times is None else np.argsort(keys, kind="stable")
    ordered = np.sort(keys) if order is None else keys[order]
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    if times is None or order is None:
        return ordered[first], np.diff(np.append(first, keys.size))
    high, low = (np.add.reduceat(half[order], first) for half in (times >> HALF, times & ((1 << HALF) - 1)))
    high += low >> HALF
    whole = (high << HALF) + (low & ((1 << HALF) - 1))
    limit = TOP >> HALF
    return ordered[first], np.where(high >= limit, TOP, np.where(high < -limit, -TOP, whole))


def listed(pairs: Iterable[tuple[int, int]]) -> Exactly:
    """Return the exact profile that pairs of a frequency and its number of items say, without a row for each item.

    There are at most 2⁶² items of any count or more: S(t) saturates, which never increases a distance.

    >>> listed([(5, 2), (1, 3), (5, 1), (0, 9), (2, 2**70)]).items.tolist() == [0, 2**62 - 3, 3]
    True
    """
    found: Counter[int] = Counter()
    for frequency, number in pairs:
        found[min(frequency, TOP)] += number
    counts = sorted(count for count in found if count > 0)
    reached = [min(total, TOP) for total in accumulate(found[count] for count in reversed(counts))]
    items = [more - less for less, more in zip([0, *reached], reached)]
    return Exactly(np.array(counts, dtype=np.int64), np.array(items[::-1], dtype=np.int64))


def _exactly(counts: Int64) -> Exactly:
    return Exactly(*np.unique(np.minimum(counts[counts > 0], TOP), return_counts=True))


def _limited(
    tables: Iterable[pl.DataFrame], unit: Unit, groups: Sequence[str] | None
) -> list[pl.DataFrame]:
    """Keep at most C occurrences of each person, over all declared groups; rows are gathered for that."""
    import polars as pl

    most = check_integer("max_contributions", unit.most, 1, MOST)
    parts = [part for table in tables for _, part in _by_group(table, groups)]
    if not parts:
        return []
    frame = pl.concat(parts)
    keys = [name for name in frame.columns if name.isdecimal()] if unit.persons == "items" else ["person"]
    who = frame[keys[0]] if len(keys) == 1 else frame.select(pl.struct(keys)).to_series()
    ids = who.rank("dense").to_numpy().astype(np.uint64)
    counts: Int64 | None = frame["times"].to_numpy() if "times" in frame.columns else None
    rows, kept = limit_contributions(np.arange(frame.height), counts, ids, most, open_stream())
    left = frame.drop("times", strict=False)[rows]
    return [left if kept is None else left.with_columns(times=pl.Series(kept))]
