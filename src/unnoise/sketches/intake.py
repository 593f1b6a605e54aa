"""The one way in: an ingestion call checks and holds back what it was given, then counts all of it.

A call goes into one sketch, or into several of one make that divide the rows among them by group. Its rows come in
batches. They are checked, and held back until the last has come; then they are added to the cells in one go, the
*commit*. An error before that changes nothing. From its beginning to its end the sketches count as broken
(:func:`unnoise.guard.changing`).

**Signals** are noticed by the main thread only, so there the commit runs in another one. When the main thread is
interrupted while it waits, the commit stops between two blocks, and what it has added is taken back. So a call that
does not return has counted nothing. A signal in its very last steps, when nothing is left to do but to return, finds
everything counted: what it raises carries a note that says so (``COUNTED``).

**Long streams.** What is longer than ``STAGE`` rows and comes in several batches is not held back (that would double
the memory): from there on batches are counted as they come, and if the stream ends early the sketches stay broken.
Calls that limit persons hold everything back, because the choice needs all rows.

**Pieces.** What is held back is some rows checked so far that adding them cannot fail: :class:`Located` knows the cell
of every row; :class:`Hashed` finds the cells of a hashed sketch while it adds, so that nothing as long as the rows is
ever held. Either stops between two blocks when it is told to, and takes back exactly what it has added.

Cells are int64 and add up modulo 2^64. Noise modulo 2^64 is a function of noise, so nothing is lost of the promise, and
no refusal tells what a cell holds; a sum is right as long as it stays within ±2^63.

``np.add.at`` keeps the interpreter lock for as long as it adds, so that no other thread can hash meanwhile. SciPy's
product of a sparse matrix with a vector is the same loop, cells[where[i]] += counts[i]·x, and gives the lock up. Its
compiled function is not part of SciPy's public interface (the public product always starts from zeros), so it is
looked up, tried out, and ``np.add.at`` takes its place where it has changed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from .._sampler import open_stream
from ..arrays import Int64
from ..checks import check_integer, undeclared
from ..errors import InputError
from ..guard import apart, changing, crew, wipe
from ..layout import Layout
from .domain import OUTSIDE, SKIPPED
from .hashing import BLOCK, UInt64, as_series, cells_of, each_block
from .inputs import Rows
from .persons import MOST, PersonCodes, bounded, limit_contributions

if TYPE_CHECKING:
    from .sketch import Sketch

__all__ = ["COUNTED", "STAGE", "Hashed", "Intake", "Located", "Piece", "count_ahead", "scatter_add"]

STAGE = 1 << 18
"""Rows of a stream that are held back; also how many are divided among groups at a time."""

COUNTED = "the call had counted everything by then: do not make it again"
"""Said by what is raised after the commit."""

Int16 = NDArray[np.int16]
Product = Callable[..., Any]


# ── pieces ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Piece(Protocol):
    """Some rows that can be added to cells, or taken back; ``own`` is memory that belongs to the piece."""

    @property
    def own(self) -> tuple[NDArray[Any] | None, ...]:
        """What is to be overwritten in the end."""

    def add(self, cells: Int64, stop: threading.Event) -> None:
        """Add the rows, up to where ``stop`` is noticed."""

    def take_back(self, cells: Int64) -> None:
        """Subtract what has been added."""


@dataclass(eq=False)
class Located:
    """Occurrences by cell.

    cells : cell of each row; counts : occurrences, None for one each
    persons : who is behind each row, two words, None when not given
    owned : whether the memory of the cells is ours, not the caller's
    """

    cells: Int64
    counts: Int64 | None = None
    persons: UInt64 | None = None
    owned: bool = True
    _added: int = field(default=0, init=False)

    def add(self, cells: Int64, stop: threading.Event) -> None:
        """Add the rows, up to where ``stop`` is noticed."""
        for start in range(0, self.cells.size, BLOCK):
            if stop.is_set():
                return
            self._scatter(cells, start, 1)
            self._added = start + BLOCK

    def take_back(self, cells: Int64) -> None:
        """Subtract what has been added."""
        for start in range(0, min(self._added, self.cells.size), BLOCK):
            self._scatter(cells, start, -1)
        self._added = 0

    def take_persons(self) -> UInt64:
        """Return the persons, which are kept no longer."""
        persons, self.persons = self.persons, None
        assert persons is not None, "a call that limits persons has them in every piece"
        return persons

    def _scatter(self, cells: Int64, start: int, sign: int) -> None:
        block = slice(start, start + BLOCK)
        scatter_add(cells, self.cells[block], _ones() if self.counts is None else self.counts[block], sign)

    @property
    def own(self) -> tuple[NDArray[Any] | None, ...]:
        """What is to be overwritten in the end."""
        return self.cells if self.owned else None, self.persons


@dataclass(eq=False)
class Hashed:
    """Rows of a hashed sketch, whose cells are found while they are added.

    Pieces added side by side share a ``lock``; ``most`` bounds the threads of this one. The rows are the caller's, and
    the hashes are wiped where they are made: nothing is its ``own``.
    """

    own: ClassVar[tuple[()]] = ()
    rows: Rows
    layout: Layout
    lock: threading.Lock = field(default_factory=threading.Lock)
    most: int | None = None
    _done: set[int] = field(default_factory=set, init=False)

    def add(self, cells: Int64, stop: threading.Event, sign: int = 1) -> None:
        """Add the rows, up to where ``stop`` is noticed; with sign −1 subtract those that were added."""

        def scatter(start: int, hashes: UInt64) -> None:
            if sign < 0 and start not in self._done:
                return
            where = cells_of(hashes, self.layout, in_place=True)
            counts = self.rows.counts
            amounts = _ones() if counts is None else counts[start : start + where.size]
            with self.lock:
                scatter_add(cells, where, amounts, sign)
                self._done.add(start)

        each_block(self.rows.columns, self.layout.hash_seed or 0, scatter, self.most, stop)

    def take_back(self, cells: Int64) -> None:
        """Subtract what has been added."""
        self.add(cells, threading.Event(), sign=-1)
        self._done.clear()


@lru_cache(maxsize=1)
def _ones() -> Int64:
    """Return as many ones as a block has items at most."""
    return np.ones(BLOCK, dtype=np.int64)


def count_ahead(cells: Int64, batches: Iterable[Rows], layout: Layout) -> None:
    """Count rows that have been checked in the background, a batch on each processor, while the next are read.

    An error or an interruption waits for nobody: what holds these cells must be broken then.
    """
    lock, stop = threading.Lock(), threading.Event()
    ended: SimpleQueue[BaseException | None] = SimpleQueue()
    under_way = 0

    def counting(rows: Rows) -> Callable[[], None]:
        def work() -> None:
            try:
                Hashed(rows, layout, lock, 1).add(cells, stop)
                ended.put(None)
            except BaseException as error:
                ended.put(error)

        return work

    def one_ended() -> None:
        error = ended.get()
        if error is not None:
            raise error

    try:
        for rows in batches:
            if under_way >= (os.cpu_count() or 1):
                one_ended()
                under_way -= 1
            crew().put(counting(rows))
            under_way += 1
        for _ in range(under_way):
            one_ended()
    finally:
        stop.set()


def scatter_add(cells: Int64, where: Int64, counts: Int64, sign: int = 1) -> None:
    """Add sign·counts to the cells ``where``, repeated cells included; every cell must exist: that is not checked.

    ``counts`` may be longer than ``where``. Two threads must not add to the same cells at once.

    >>> cells = np.zeros(3, dtype=np.int64)
    >>> scatter_add(cells, np.array([2, 0, 2]), np.array([1, 5, 1]), -1)
    >>> cells
    array([-5,  0, -2])
    """
    if where.size == 0:
        return
    if counts.size < where.size:
        raise ValueError(f"counts must be at least as many as cells, got {counts.size} for {where.size}")
    product = _product()
    if product is None or not cells.flags.c_contiguous:
        np.add.at(cells, where, sign * counts[: where.size])
    else:
        ends = np.array([0, where.size], dtype=np.int64)
        product(cells.size, 1, ends, where, counts, np.array([sign], dtype=np.int64), cells)


@lru_cache(maxsize=1)
def _product() -> Product | None:
    """Return SciPy's y += A·x for a matrix by columns, if it does what is wanted; None else."""
    try:
        from scipy.sparse import _sparsetools

        product: Product = _sparsetools.csc_matvec
        cells = np.array([1, 2, 3], dtype=np.int64)
        where, counts = np.array([2, 0, 2], dtype=np.int64), np.array([1, 5, 1, 7], dtype=np.int64)
        product(3, 1, np.array([0, 3], dtype=np.int64), where, counts, np.array([-1], dtype=np.int64), cells)
    except Exception:  # whatever a private function may do when it has changed
        return None
    return product if cells.tolist() == [-4, 2, 1] else None


# ── the call ────────────────────────────────────────────────────────────────────────────────────────────────────────

Parts = list[tuple[int, Piece]]
"""Pieces with the number of the sketch they belong to."""


class Intake:
    """One ingestion call.

    Parameters
    ----------
    sketches : one, or those of ``groups``, all of the same make
    persons : every batch says who is behind its rows, and what one person adds is limited over all of them
    as_items : the person is the item; said by the form of the call, never by its rows
    groups : the declared groups, in the order of the sketches
    drop : leave rows of other groups out instead of refusing them
    """

    def __init__(
        self,
        sketches: Sequence[Sketch],
        *,
        persons: bool = False,
        as_items: bool = False,
        groups: Sequence[str] | None = None,
        drop: bool = False,
    ) -> None:
        self.sketches, self.first, self.groups, self.drop = sketches, sketches[0], groups, drop
        self.layout, self.types, self.stated = self.first._layout, self.first._types, False
        self.codes, self.as_items = PersonCodes() if persons else None, as_items
        self.direct = self.layout.kind == "hashed" and not persons and groups is None
        self.label: str | None = None
        self.counted = False
        with self.open():
            pass
        if persons and self.layout.max_contributions is None:
            raise InputError("person needs max_contributions to be set when the sketch is made")
        if persons:
            check_integer("max_contributions", self.layout.max_contributions, 1, MOST)

    def take_in(self, batches: Iterable[Rows]) -> None:
        """Hold back all batches, clean rows with a group each where there are groups, and count them, all or nothing.

        Where that is too much, begin to count.
        """
        held: list[Rows] = []
        parts: Parts = []
        size = 0
        try:
            batches = self.checked(batches)
            for rows in batches:
                size += rows.size
                if self.direct:
                    held.append(rows)
                else:
                    parts += self.locate(rows)
                if size > STAGE and size > rows.size and self.codes is None:
                    self.run_long(chain(_emptying(held), batches), parts)
                    return
            if self.direct:
                parts = [(0, Hashed(rows, self.layout)) for rows in held if rows.size]
            self.commit(parts if self.codes is None else self.limited(parts))
        except BaseException as error:
            if self.counted:
                error.add_note(COUNTED)
            raise

    def checked(self, batches: Iterable[Rows]) -> Iterator[Rows]:
        """Yield batches of the same types as those before, with bounded counts."""
        for rows in batches:
            if rows.types is not None:
                if self.types is not None and rows.types != self.types:
                    raise InputError(f"items must be of types {', '.join(self.types)}, got {', '.join(rows.types)}")
                self.types, self.stated = rows.types, self.stated or rows.stated
            yield rows if rows.counts is None else replace(rows, counts=bounded(rows.counts))

    def commit(self, parts: Parts) -> None:
        """Add everything, or nothing."""
        stop, why = threading.Event(), "an update was interrupted"
        before = [(sketch._types, sketch._layout, sketch._account, sketch._label) for sketch in self.sketches]

        def add() -> None:
            with changing(self.sketches, why):
                for number, piece in parts:
                    piece.add(self.sketches[number]._held.array(), stop)
                if stop.is_set():
                    raise InterruptedError
                self.record()

        def take_back() -> None:
            with changing(self.sketches, why):
                for number, piece in parts:
                    piece.take_back(self.sketches[number]._held.array())
                for sketch, recorded in zip(self.sketches, before):
                    sketch._types, sketch._layout, sketch._account, sketch._label = recorded
                for _, piece in parts:
                    wipe(*piece.own)

        with self.open():
            try:
                apart(add, stop)
                self.counted = True
            except BaseException:
                self.counted = False
                apart(take_back, stop)
                raise
        for _, piece in parts:
            wipe(*piece.own)

    def run_long(self, batches: Iterable[Rows], parts: Parts) -> None:
        """Count batches as they come: whatever ends this early leaves the sketches broken."""
        why = "a stream too long to be held back ended early"
        with self.open(), changing(self.sketches, why):
            if self.direct:
                count_ahead(self.first._held.array(), (rows for rows in batches if rows.size), self.layout)
            else:
                for found in chain([parts], map(self.locate, batches)):
                    for number, piece in _emptying(found):
                        piece.add(self.sketches[number]._held.array(), threading.Event())
                        wipe(*piece.own)
            self.record()
            self.counted = True  # before the sketches count as whole again: a signal in between must be told

    @contextmanager
    def open(self) -> Iterator[None]:
        """Hold all locks, in one order for everybody, and look again that the sketches are open."""
        with ExitStack() as locks:
            for sketch in sorted(self.sketches, key=id):
                locks.enter_context(sketch._lock)
            for sketch in self.sketches:
                sketch._require_usable("update", open_=True)
            yield

    def record(self) -> None:
        """Note what has been counted, alike in all sketches: what is noted must not tell which groups have rows.

        Types that only the values tell are kept to refuse other ones, and do not show: that would tell of the rows.
        """
        for sketch in self.sketches:
            sketch._types, sketch._label = self.types, sketch._label or self.label
            if self.stated:
                sketch._layout = replace(sketch._layout, item_types=self.types)
            if self.layout.max_contributions is not None:
                enforced = self.codes is not None
                sketch._account = sketch._account.after_call(enforced=enforced, as_items=self.as_items)

    # ── from rows to cells ────────────────────────────────────────────────────────────────────────────────────

    def locate(self, rows: Rows) -> Parts:
        """Return the cells of some rows, divided among the sketches; changes nothing."""
        if (rows.person is None) != (self.codes is None) and rows.size:
            raise InputError("person must be given for all batches of a call, or for none")
        finder = self.first._finding()
        if rows.size == 0:
            return []
        numbers = None if self.groups is None else self.numbers(rows.group)
        cells = finder.find(rows.columns)
        owned = not any(cells is column for column in rows.columns)
        found = Located(cells, rows.counts, self.codes.of(rows.person) if self.codes and rows.person else None, owned)
        if self.layout.kind == "hashed" or cells.min() >= 0:
            return self.divided(found, numbers)
        if self.first._unknown == "error" and (cells == OUTSIDE).any():
            known = f" 0…{self.layout.domain - 1}" if self.layout.domain and self.layout.fingerprint is None else ""
            raise InputError(
                f"every item must be in the declared domain{known}, got one outside: nothing was counted "
                f"(unknown='drop' ignores such items)"
            )
        inside = (cells != OUTSIDE) & (cells != SKIPPED)
        return self.divided(_rows_of(found, inside), None if numbers is None else numbers[inside])

    def numbers(self, group: tuple[Any, ...] | None) -> Int16:
        """Return the number of each row's group, −1 for one that was not declared."""
        import polars as pl

        assert self.groups is not None
        if group is None or len(group) != 1:
            raise InputError("group must be one column")
        places = {name: place for place, name in enumerate(self.groups)}
        series = pl.Series(group[0]) if isinstance(group[0], np.ndarray) else as_series(group[0])
        numbers = series.cast(pl.String).replace_strict(places, default=-1, return_dtype=pl.Int16).to_numpy()
        if not self.drop and numbers.min() < 0:
            raise InputError(undeclared(self.groups))
        return numbers

    def divided(self, found: Located, numbers: Int16 | None) -> Parts:
        """Divide rows among the sketches."""
        if numbers is None:
            return [(0, found)]
        parts: Parts = []
        for start in range(0, numbers.size, STAGE):
            block = numbers[start : start + STAGE]
            order = np.argsort(block, kind="stable")
            ends = np.searchsorted(block[order], np.arange(len(self.sketches) + 1))
            for number in np.flatnonzero(np.diff(ends)).tolist():
                parts.append((number, _rows_of(found, start + order[ends[number] : ends[number + 1]])))
        wipe(*found.own)
        return parts

    def limited(self, parts: Parts) -> Parts:
        """Return what is left when every person keeps at most so many occurrences in each sketch."""
        stream, most = open_stream(), self.layout.max_contributions
        assert most is not None
        self.label = stream.label
        mine: dict[int, list[Located]] = {}
        for number, piece in _emptying(parts):
            assert isinstance(piece, Located)
            mine.setdefault(number, []).append(piece)
        kept: Parts = []
        for number, pieces in mine.items():
            joined = _join(pieces)
            cells, counts = limit_contributions(joined.cells, joined.counts, joined.take_persons(), most, stream)
            kept.append((number, Located(cells, counts, owned=cells is not joined.cells or joined.owned)))
            if cells is not joined.cells:
                wipe(*joined.own)
        return kept


def _emptying(values: list[Any]) -> Iterator[Any]:
    """Yield the values, none of which is kept."""
    values.reverse()
    while values:
        yield values.pop()


def _rows_of(found: Located, rows: NDArray[Any]) -> Located:
    """Return some of the rows, in memory of its own."""
    counts = None if found.counts is None else found.counts[rows]
    return Located(found.cells[rows], counts, None if found.persons is None else found.persons[rows])


def _join(pieces: list[Located]) -> Located:
    """Return one piece of several, which are wiped."""
    if len(pieces) == 1:
        return pieces[0]
    if len({piece.counts is None for piece in pieces}) > 1:
        raise InputError("counts must be given for all batches of a call, or for none")
    counts = [piece.counts for piece in pieces if piece.counts is not None]
    persons = [piece.persons for piece in pieces if piece.persons is not None]
    joined = Located(
        np.concatenate([piece.cells for piece in pieces]),
        np.concatenate(counts) if counts else None,
        np.concatenate(persons) if persons else None,
    )
    for piece in pieces:
        wipe(*piece.own)
    return joined
