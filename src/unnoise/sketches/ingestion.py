"""One ingestion call: batches of items into cells, all or nothing where that is possible, and what it costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from .._sampler import open_stream
from ..errors import InputError, UnnoiseError
from .cells import add_occurrences, bound_after, grown
from .counting import Ahead, Located, count_hashed, join, limited, locate
from .domain import finder_for
from .guards import Guarded
from .inputs import BATCH, Batch, Source, read_items

__all__ = ["Ingesting"]


class Ingesting(Guarded):
    """A guarded sketch that takes items in."""

    def _update_batches(self, batches: Iterable[tuple[Any, Any, Any]], *, enforced: bool = False) -> None:
        """Count batches of (items, counts, person) as *one* ingestion call: for engines that read in pieces.

        ``enforced`` says that every batch has persons, whose contributions are limited over all batches.
        """
        self._require_open("update")
        self._require_limit(enforced)
        pieces = (batch for triple in batches for batch in read_items(*triple).batches)
        if enforced or self._layout.kind != "hashed":
            self._ingest(Source(pieces, stream=True), enforced=enforced)
        else:
            self._ingest_ahead(pieces)

    def _require_limit(self, enforced: bool) -> None:
        if enforced and self._layout.max_contributions is None:
            raise InputError("person needs max_contributions to be set when the sketch is made")

    def _ingest(self, source: Source, *, enforced: bool) -> None:
        """Apply all batches of one ingestion call: at once where that is possible, else one by one."""
        if enforced or not source.stream:
            batches = list(source.batches)
            if enforced or not self._count_directly(batches, charge=True):
                self._apply(map(self._locate, batches), enforced=enforced, charge=True)
            return
        applied = 0
        with _told_how_far(lambda: applied):
            for batch in source.batches:
                if not self._count_directly([batch], charge=applied == 0):
                    self._apply([self._locate(batch)], enforced=False, charge=applied == 0)
                applied += 1
            if not applied:  # an empty call costs the same: the account must not depend on the data
                self._apply([], enforced=False, charge=True)

    def _ingest_ahead(self, batches: Iterable[Batch]) -> None:
        """Count batches of a hashed sketch in the background while the next ones are read, as one ingestion call.

        The sketch is locked meanwhile, the reading included: only for readers that know nothing of it.
        """
        applied = 0
        with self._lock, _told_how_far(lambda: applied), Ahead(self._cells, self._layout) as ahead:
            for batch in batches:
                self._require_types(batch.types)
                bound = grown(self._bound, batch.size, batch.counts)
                if bound is None or not batch.size:  # rare: look at the cells, with nobody at work on them
                    ahead.settle()
                    self._apply([self._locate(batch)], enforced=False, charge=applied == 0)
                else:
                    ahead.count(batch)
                    self._record(batch.types, bound, charge=applied == 0, enforced=False)
                applied += 1
            if not applied:
                self._apply([], enforced=False, charge=True)

    def _locate(self, batch: Batch) -> Located:
        """Return the cells of a batch; changes nothing."""
        self._require_types(batch.types)
        if self._finder is None and batch.size:
            self._finder = finder_for(self._layout, self._domain)
            if self._finder is None:
                raise InputError("this sketch needs its domain to take items: use Sketch.load(path, domain=...)")
        return locate(batch, self._finder, self._layout, drop=self._unknown == "drop")

    def _count_directly(self, batches: list[Batch], *, charge: bool) -> bool:
        """Count one batch into hashed cells, where nothing can fail on the way; False where that is not so."""
        if self._layout.kind != "hashed" or len(batches) != 1 or not batches[0].size:
            return False
        batch = batches[0]
        with self._lock:
            self._require_open("update")
            self._require_types(batch.types)
            bound = bound_after(self._cells, batch.size, batch.counts, self._bound)
            if bound is None:
                return False
            count_hashed(self._cells, batch, self._layout)
            self._record(batch.types, bound, charge=charge, enforced=False)
        return True

    def _record(self, types: tuple[str, ...] | None, bound: int, *, charge: bool, enforced: bool) -> None:
        """Note what has been counted."""
        self._bound = bound
        if self._layout.item_types is None:
            self._layout = replace(self._layout, item_types=types)
        if charge and self._layout.max_contributions is not None:
            self._account = self._account.after_call(enforced=enforced)

    def _apply(self, pieces: Iterable[Located], *, enforced: bool, charge: bool) -> None:
        """Add all pieces to the cells, all or nothing, and charge one ingestion call."""
        found, label = join(list(pieces)), None
        if found.persons is not None and self._layout.max_contributions is not None:
            stream = open_stream()
            label = stream.label
            found = limited(found, self._layout.max_contributions, stream)
        with self._lock:
            self._require_open("update")
            self._require_types(found.types)
            bound = add_occurrences(self._cells, found.cells, found.counts, self._bound)
            self._label = self._label or label
            self._record(found.types, bound, charge=charge, enforced=enforced)

    def _require_types(self, types: tuple[str, ...] | None) -> None:
        mine = self._layout.item_types
        if types is not None and mine is not None and types != mine:
            raise InputError(f"items must be of types {', '.join(mine)}, got {', '.join(types)}")


@contextmanager
def _told_how_far(applied: Callable[[], int]) -> Iterator[None]:
    """Let every error say how far a stream came, in batches: a number of rows would be data."""
    try:
        yield
    except UnnoiseError as error:
        raise type(error)(f"{error}; {_progress(applied())}") from None
    except Exception as error:
        error.add_note(_progress(applied()))
        raise


def _progress(applied: int) -> str:
    if not applied:
        return "nothing was applied"
    return f"batches applied before: {applied} (iterators: {BATCH} items each); they stay in the sketch"
