"""The state of a sketch and the rules about it: what may happen when, in which process, and to which noise."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from fractions import Fraction
from typing import Any, NoReturn, SupportsIndex

import numpy as np

from .._sampler import _system_stream as system_stream
from .._sampler import open_stream
from ..arrays import Int64
from ..errors import IncompatibleError, InputError, PrivacyError, SealedError
from ..labels import Labels
from ..layout import Account, Layout
from ..noise import DiscreteLaplace, tidy
from .cells import LIMIT, add_cells, add_noise, largest
from .domain import Domain, Finder
from .format.filecells import FileCells, sum_of

__all__ = ["Guarded", "new_identity"]


def new_identity() -> bytes:
    """Return the random name of a noise vector: from the operating system, in tests as well."""
    return system_stream().words(2).tobytes()


class Guarded:
    """The cells of a sketch with all that decides what may be done with them.

    state : "open" takes items; "sealed" has left the process; "merged" is part of another sketch and of no more use
    fresh : power of the noise that has never left the process, 0 when sealed
    bound : at least the largest |cell|, never shown
    label : None for noise of the operating system's entropy; else what is wrong with it
    shared : whether somebody else holds the cells (a release, a file), so that they must not change
    others : more cells, of sealed sketches merged into this sealed one, added when needed: two files are merged into
        a third without their sum ever being held
    """

    def __init__(
        self,
        *,
        layout: Layout,
        noise: DiscreteLaplace,
        account: Account,
        identities: frozenset[bytes],
        labels: Labels,
        cells: Int64 | FileCells,
        bound: int,
        fresh: Fraction,
        label: str | None,
        domain: Domain | None,
        finder: Finder | None,
        unknown: str,
        shared: bool = False,
        others: tuple[Int64 | FileCells, ...] = (),
    ) -> None:
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._layout, self._noise, self._account, self._identities = layout, noise, account, identities
        self._labels = labels
        self._held: Int64 | FileCells = cells
        self._bound, self._fresh, self._label = bound, fresh, label
        self._domain, self._finder, self._unknown = domain, finder, unknown
        self._state = "open" if fresh else "sealed"
        self._shared, self._others = shared, others

    def _as_state(self) -> dict[str, Any]:
        """Return what makes an equal sketch; only for one that replaces this one."""
        return {
            "layout": self._layout, "noise": self._noise, "account": self._account, "identities": self._identities,
            "labels": self._labels, "cells": self._held, "bound": self._bound, "fresh": self._fresh,
            "label": self._label,
            "domain": self._domain, "finder": self._finder, "unknown": self._unknown, "shared": self._shared,
            "others": self._others,
        }  # fmt: skip

    @property
    def _cells(self) -> Int64:
        """All cells, in memory and added up."""
        if self._others or isinstance(self._held, FileCells):
            self._cells, self._shared = sum_of((self._held, *self._others)), False
            self._cells.flags.writeable = False
        assert not isinstance(self._held, FileCells)
        return self._held

    @_cells.setter
    def _cells(self, cells: Int64) -> None:
        self._held, self._others = cells, ()

    # ── which state, which process ────────────────────────────────────────────────────────────────────────────

    def _require_usable(self, action: str) -> None:
        if self._state == "merged":
            raise PrivacyError(f"{action} needs a sketch of its own, this one was merged into another and is used up")
        if self._state == "open" and os.getpid() != self._pid:
            raise PrivacyError(
                f"{action} needs the process that made the sketch ({self._pid}), this is a fork of it ({os.getpid()}): "
                f"two processes must not go on from the same noise"
            )

    def _require_open(self, action: str) -> None:
        self._require_usable(action)
        if self._state != "open":
            raise SealedError(
                f"{action} needs an open sketch, this one is sealed (released, saved or loaded): call begin_epoch() "
                f"first, which draws fresh noise"
            )

    def _require_private(self) -> None:
        if self._label is not None:
            raise PrivacyError(
                f"a private sketch needs noise from the operating system, this one's is {self._label}: it can be "
                f"neither saved nor released (unnoise.testing.release gives its counts)"
            )

    def _seal(self, action: str, *, for_tests: bool = False) -> None:
        """Let the cells leave: from here on they do not change."""
        self._require_usable(action)
        if not for_tests:
            self._require_private()
        if self._state == "sealed":
            return
        if self._fresh < 1:
            share = DiscreteLaplace(self._noise.epsilon, self._fresh)
            raise PrivacyError(
                f"{action} needs power ≥ 1 of noise that has not left yet, got {tidy(self._fresh)}: it would give "
                f"ε = {share.actual_epsilon:.3g} per occurrence, not {tidy(share.epsilon)}; merge more shares first"
            )
        if self._layout.pan_private:
            self._add_noise()
            if not for_tests:
                self._require_private()
        self._cells.flags.writeable = False
        self._state, self._fresh = "sealed", Fraction(0)

    # ── noise ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _own_cells(self) -> Int64:
        """Return where new cells may be written: the old ones, unless somebody else holds them."""
        cells = self._cells
        if self._shared:
            return np.empty_like(cells)
        cells.flags.writeable = True
        return cells

    def _add_noise(self) -> None:
        """Add one fresh noise to the cells."""
        fresh, stream = DiscreteLaplace(self._noise.epsilon), open_stream()
        cells = self._own_cells()
        self._bound = add_noise(self._cells, cells, fresh, stream)
        self._cells, self._shared = cells, False
        self._noise = self._noise.plus(fresh)
        self._fresh += 1
        self._identities |= {new_identity()}
        self._label = self._label or stream.label

    def _open(self) -> None:
        self._cells.flags.writeable = True
        self._state, self._pid = "open", os.getpid()

    # ── merging ───────────────────────────────────────────────────────────────────────────────────────────────

    def _require_mergeable(self, other: Guarded) -> None:
        """Refuse unless both may become one, naming the field and both values."""
        if not isinstance(other, Guarded):
            raise InputError(f"merge needs another sketch, got {type(other).__name__}")
        self._require_usable("merge")
        other._require_usable("merge")
        common = self._identities & other._identities
        if common:
            raise PrivacyError(
                f"noise identities must be disjoint to merge, both sketches contain {min(common).hex()}: one is the "
                f"other, a copy of it, or contains it"
            )
        mine, its = self._layout, other._layout
        if mine.item_types is None or its.item_types is None:
            mine, its = replace(mine, item_types=None), replace(its, item_types=None)
        mine.require_equal(its)
        self._labels.merged(other._labels)
        if self._noise.epsilon != other._noise.epsilon:
            c = mine.max_contributions or 1
            raise IncompatibleError("epsilon", tidy(c * self._noise.epsilon), tidy(c * other._noise.epsilon))

    def _add_cells(self, other: Guarded) -> int:
        """Add other cells to these, all or nothing, and return a bound; later, if neither can change meanwhile."""
        if self._state == other._state == "sealed" and self._shared:
            bound = self._largest() + other._largest()
            if bound <= LIMIT:
                self._others += (other._held, *other._others)
                other._shared = True
                return bound
        cells = self._own_cells()
        try:
            bound = add_cells(self._cells, other._cells, cells)
        finally:
            self._cells.flags.writeable = self._state == "open"
        self._cells, self._shared = cells, False
        return bound

    def _largest(self) -> int:
        """Return at least the largest |cell| of a sealed sketch."""
        if self._others:
            return self._bound
        return self._held.bound if isinstance(self._held, FileCells) else largest(self._held)

    def _take_over(self, other: Guarded) -> None:
        """Become both, now that the cells are the sum of both."""
        self._layout = replace(self._layout, item_types=self._layout.item_types or other._layout.item_types)
        self._noise = self._noise.plus(other._noise)
        self._fresh += other._fresh
        self._account = self._account.plus(other._account)
        self._labels = self._labels.merged(other._labels)
        self._identities |= other._identities
        self._label = self._label or other._label
        self._domain, self._finder = self._domain or other._domain, self._finder or other._finder
        other._retire()
        if self._fresh:
            self._open()
        elif not isinstance(self._held, FileCells):
            self._held.flags.writeable = False

    def _retire(self) -> None:
        """Make an open sketch useless: its noise lives on in another one."""
        if self._state == "open":
            self._state = "merged"
            self._cells, self._bound = np.zeros(0, dtype=np.int64), 0

    # ── no copies ─────────────────────────────────────────────────────────────────────────────────────────────

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Refuse copy, deepcopy and pickle, which all come here."""
        raise PrivacyError(
            "a sketch must not be copied or pickled: two copies of one noise would give away what differs between "
            "them; use save and load"
        )
