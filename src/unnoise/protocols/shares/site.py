"""A site: counts items without noise, and lets nothing out but two shares, each uniform by itself.

Where cells come from is a :class:`~unnoise.sketches.sketch.Sketch` whose noise is switched off and which says so: by
its label it can be neither saved, released, copied nor used in a fork; only :meth:`Site.split` takes its cells, once,
and wipes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._sampler import Keystream, source
from ...errors import InputError, SealedError
from ...guard import Guarded, letting_out, new_identity, quiet
from ...sketches.domain import Domain, read_domain
from ...sketches.inputs import Rows
from ...sketches.sketch import Sketch
from .task import Task, pack

__all__ = ["Shares", "Site", "mask"]

LABEL = "none: these cells are for shares only"


def mask(seed: bytes, cells: int) -> NDArray[np.uint64]:
    """Return r: the AES-CTR stream of a seed as 64-bit words.

    >>> int(mask(bytes(32), 3)[2]) == int(mask(bytes(32), 8)[2])
    True
    """
    return np.asarray(Keystream(seed).words(cells))


class Shares(Guarded):
    """The two messages of a report: one for each server, never both for one, for together they are the cells.

    report : the id common to both
    """

    noun = "pair of shares"

    def __init__(self, report: str, seed: bytes, difference: bytes) -> None:
        super().__init__()
        self.report, self.seed, self.difference = report, seed, difference

    def __repr__(self) -> str:
        return f"Shares(report {self.report}, {len(self.seed):,} and {len(self.difference):,} bytes)"


class Site(Guarded):
    """One party that counts for a task, under a name of its own.

    >>> site = Site(Task.hashed(64, epsilon=1, epoch="2026-11"), "berlin")
    >>> site.update(["red", "blue", "red"])
    >>> shares = site.split()
    >>> len(shares.seed) < 400
    True
    """

    noun = "site"

    def __init__(self, task: Task, name: str, *, domain: Any = None, unknown: str = "drop") -> None:
        if not isinstance(name, str) or not 0 < len(name) <= 200:
            raise InputError(f"name must be a text of 1 to 200 characters, got {name!r}")
        super().__init__()
        self.task, self.name = task, name
        self._shares: Shares | None = None
        self._sketch: Sketch | None = _silent_sketch(task, _declared(task, domain), unknown)

    def update(self, items: Any, counts: Any = None, *, person: Any = None) -> None:
        """Count items, as :meth:`Sketch.update` does."""
        self._require_here("update")
        with self._lock:
            if self._sketch is None:
                raise SealedError("update needs a site that has not split its cells yet, this one has")
            self._sketch.update(items, counts, person=person)

    @quiet
    def take_in(self, batches: Iterable[Rows], *, persons: bool = False, as_items: bool = False) -> None:
        """Count batches of clean rows in one ingestion call, as :meth:`Sketch.take_in` does."""
        self._require_here("take_in")
        with self._lock:
            if self._sketch is None:
                raise SealedError("take_in needs a site that has not split its cells yet, this one has")
            self._sketch.take_in(batches, persons=persons, as_items=as_items)

    def split(self) -> Shares:
        """Return the two shares; from then on nothing more is counted, and every call returns the same bytes."""
        self._require_here("split")
        with self._lock:
            if self._sketch is not None:
                self._shares, self._sketch = self._made(self._sketch), None
            assert self._shares is not None
            return self._shares

    def _made(self, sketch: Sketch) -> Shares:
        """Take the cells of a sketch apart, and wipe them."""
        counts, account = letting_out(sketch.release).counts, sketch._account
        seed, report = Keystream().words(4).tobytes(), new_identity().hex()
        difference = counts.astype(np.uint64) - mask(seed, counts.size)
        sketch._held.wipe()
        head = {
            "task": self.task.id, "report": report, "site": self.name,
            "account": account.to_dict(),
        }  # fmt: skip
        payload = difference.astype("<u8").tobytes()
        first, second = {**head, "side": "seed"}, {**head, "side": "difference"}
        return Shares(report, pack("share", first, seed), pack("share", second, payload))


def _declared(task: Task, domain: Any) -> Domain | None:
    """Return the domain of a task over a list of items, which its layout knows by fingerprint only."""
    if task.layout.kind == "hashed":
        return None
    declared = read_domain(task.layout.domain if domain is None and task.layout.fingerprint is None else domain)
    if (declared.size, declared.fingerprint) != (task.layout.domain, task.layout.fingerprint):
        raise InputError(
            f"domain must be the one of the task (fingerprint {task.layout.fingerprint}), got {declared.fingerprint}"
        )
    return declared


def _silent_sketch(task: Task, domain: Domain | None, unknown: str) -> Sketch:
    """Return a sketch without noise, which its label keeps inside the process."""
    token = source.set(lambda: Keystream(bytes(32), label=LABEL, silent=True))
    try:
        epsilon = task.epsilon * (task.layout.max_contributions or 1)
        return Sketch._fresh_sketch(task.layout, epsilon, 1, domain, unknown)
    finally:
        source.reset(token)
