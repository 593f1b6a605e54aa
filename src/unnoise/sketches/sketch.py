"""Private sketches: cells that hold noise before the first item, and rules that keep the promise.

A sketch is ε-private as *one* snapshot: two snapshots of one noise vector would give away the exact increments between
them. So whatever leaves the process seals the sketch, and to go on, fresh noise is drawn. The states are

    open ──release, save──▶ sealed ──begin_epoch──▶ open        load ──▶ sealed
    open ──merged into another──▶ merged (of no further use)

*Fresh* is the power of the noise that has never left the process. Leaving needs fresh ≥ 1: a share, or a share merged
into a sketch that is already public, stays secret. Every noise vector has a random identity; a sketch carries the set
of those it contains, and sketches whose sets overlap never merge.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from .._sampler import Keystream, fill, open_stream
from ..checks import UNKNOWN, check_choice, check_integer
from ..errors import IncompatibleError, InputError, PrivacyError, SealedError, UnnoiseError
from ..guard import Guarded, changing, frozen, new_identity, quiet, require_writable, this_process
from ..layout import (
    MOST_CELLS,
    Account,
    Labels,
    Layout,
    about,
    check_sampled,
    fresh_labels,
    guarantee,
    hashed_layout,
)
from ..noise import DiscreteLaplace, Exact, exact_positive, tidy
from ..noisy import NoisyCounts
from .cells import Held
from .domain import Domain, Finder, finder_for, read_domain, sampled_cells
from .format import Stored, parameters_of, read_sketch, write_sketch
from .inputs import Rows, person_is_item, read_items
from .intake import Intake

__all__ = ["Sketch", "noise_shares"]

_MAKE = object()
NO_NOISE = Fraction(0)


def noise_shares(parties: int, *, survivors: int | None = None) -> Fraction:
    """Return the power of noise each of ``parties`` gives so that any ``survivors`` of them reach one whole noise.

    Make the sketch of each party with ``power=noise_shares(...)``; alone it is a secret and can be neither saved nor
    released, merged with enough others it can.

    >>> noise_shares(5, survivors=3)
    Fraction(1, 3)
    """
    return DiscreteLaplace(1).shares(parties, survivors=survivors).power


class Sketch(Guarded):
    """Counts of items with noise in every cell; made by :meth:`hashed`, :meth:`known`, :meth:`sampled`, :meth:`load`.

    Examples
    --------
    >>> s = Sketch.hashed(2**10, epsilon=1)
    >>> s.update(["red", "blue", "red"])
    >>> s
    Sketch.hashed(1,024 cells, ε = 1 for one occurrence, power 1, open)
    >>> s.release()
    NoisyCounts(1,024 cells, DiscreteLaplace(epsilon=1))
    >>> s.update(["green"])
    Traceback (most recent call last):
    ...
    unnoise.errors.SealedError: update needs an open sketch, this one is sealed (released, saved or loaded): call \
begin_epoch() first, which draws fresh noise
    """

    def __init__(
        self,
        make: object = None,
        stored: Stored | None = None,
        *,
        fresh: Fraction = NO_NOISE,
        label: str | None = None,
        domain: Domain | None = None,
        unknown: str = "drop",
    ) -> None:
        if make is not _MAKE or stored is None:
            raise TypeError("make a sketch with Sketch.hashed, Sketch.known, Sketch.sampled or Sketch.load")
        super().__init__(label)
        self._held = Held((stored.cells,), shared=not fresh)
        self._noise, self._layout, self._account = stored.noise, stored.layout, stored.account
        self._identities, self._labels = stored.identities, stored.labels
        self._state, self._fresh = "open" if fresh else "sealed", fresh
        check_choice("unknown", unknown, UNKNOWN)
        self._domain, self._unknown = domain, unknown
        self._finder: Finder | None = None
        self._types = self._layout.item_types
        self._file = ""

    # ── making ────────────────────────────────────────────────────────────────────────────────────────────────

    @classmethod
    def hashed(
        cls,
        cells: int = 2**20,
        *,
        epsilon: Exact | None = None,
        levels: int | bool | None = None,
        hash_seed: int | str = 0,
        max_contributions: int | None = None,
        pan_private: bool = False,
        power: Exact = 1,
        item_types: Iterable[str] | None = None,
        labels: Labels | Mapping[str, Any] | None = None,
    ) -> Sketch:
        """Return a sketch for items of any domain: each falls into one of ``cells`` cells by its hash.

        Parameters
        ----------
        cells : a power of two, the number of cells over all levels
        epsilon : ε for one occurrence, or for one person in one call when ``max_contributions`` is given
        levels : number of levels, for an unknown number of items (True: 16, the measured choice); each has the largest
            power of two ≤ cells/levels
        hash_seed : seed of the hash; sketches to be merged need the same. "random" draws one, which the layout and
            ``unnoise inspect`` show to those who must share it
        max_contributions : most occurrences of one person in one call of :meth:`update`
        pan_private : add fresh noise when the sketch leaves the process as well
        power : share of the noise, see :func:`noise_shares`
        item_types : "int" or "str" per column; taken from the first items when not given
        labels : what to say about it, see :class:`Labels`; they go into its files
        """
        layout = hashed_layout(
            cells, levels,
            hash_seed=Keystream().bits(64) if hash_seed == "random" else check_integer("hash_seed", hash_seed, 0),
            item_types=None if item_types is None else tuple(item_types),
            max_contributions=max_contributions,
            pan_private=pan_private,
        )
        return cls._fresh_sketch(layout, epsilon, power, labels=labels)

    @classmethod
    def known(
        cls,
        domain: Any,
        *,
        epsilon: Exact | None = None,
        max_contributions: int | None = None,
        pan_private: bool = False,
        power: Exact = 1,
        unknown: str = "drop",
        labels: Labels | Mapping[str, Any] | None = None,
    ) -> Sketch:
        """Return a sketch with one cell per item of a declared domain: an integer d (items 0…d−1) or a list of items.

        Items outside the domain are left out. ``unknown="error"`` refuses them: then whether a call fails may depend on
        a single row, which is for the caller to choose.
        """
        declared = read_domain(domain)
        layout = Layout(
            kind="known", cells=declared.size, domain=declared.size, item_types=declared.types,
            fingerprint=declared.fingerprint, max_contributions=max_contributions, pan_private=pan_private,
        )  # fmt: skip
        return cls._fresh_sketch(layout, epsilon, power, declared, unknown, labels)

    @classmethod
    def sampled(
        cls,
        domain: Any,
        *,
        rate: Exact,
        epsilon: Exact | None = None,
        hash_seed: int | str = 0,
        max_contributions: int | None = None,
        pan_private: bool = False,
        power: Exact = 1,
        unknown: str = "drop",
        labels: Labels | Mapping[str, Any] | None = None,
    ) -> Sketch:
        """Return a sketch with cells for those items of a declared domain whose hash falls below ``rate``.

        Each of them counts 1/rate times in the answers. The seed is public, so whoever may choose items can choose
        sampled ones and weigh that much; ``hash_seed="random"`` draws a seed that nobody knows before.
        """
        declared, share = read_domain(domain), exact_positive("rate", rate)
        seed = Keystream().bits(64) if hash_seed == "random" else check_integer("hash_seed", hash_seed, 0)
        if share > 1:
            raise InputError(f"rate must be at most 1, got {rate}")
        check_sampled(declared.size)
        sample = sampled_cells(declared, share, seed)
        if sample.size == 0:
            raise InputError(f"rate must be high enough to sample an item of {declared.size}, got {rate}")
        layout = Layout(
            kind="sampled", cells=int(sample.size), domain=declared.size, rate=share, hash_seed=seed,
            item_types=declared.types, fingerprint=declared.fingerprint,
            max_contributions=max_contributions, pan_private=pan_private,
        )  # fmt: skip
        return cls._fresh_sketch(layout, epsilon, power, declared, unknown, labels)

    @classmethod
    def _fresh_sketch(
        cls,
        layout: Layout,
        epsilon: Any,
        power: Exact,
        domain: Domain | None = None,
        unknown: str = "drop",
        labels: Labels | Mapping[str, Any] | None = None,
    ) -> Sketch:
        """Draw the noise: it goes in before the first item."""
        if not isinstance(layout.pan_private, bool):
            raise InputError(f"pan_private must be True or False, got {layout.pan_private!r}")
        check_integer("cells" if layout.kind == "hashed" else "domain", layout.cells, 1, MOST_CELLS)
        per_occurrence = exact_positive("epsilon", epsilon) / (layout.max_contributions or 1)
        noise = DiscreteLaplace(per_occurrence, power)
        said = fresh_labels(labels, layout)
        stream, cells = open_stream(), np.empty(layout.cells, dtype=np.int64)
        fill(cells, noise, stream)
        stored = Stored(cells, noise, layout, Account(), frozenset([new_identity()]), said)
        return cls(_MAKE, stored, fresh=noise.power, label=stream.label, domain=domain, unknown=unknown)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, domain: Any = None, unknown: str = "drop", later: bool = False
    ) -> Sketch:
        """Return the sealed sketch in a file, verified whole; its cells are read from there when they are needed.

        A sketch of a list of items needs the same list as ``domain`` to go on after :meth:`begin_epoch`, because the
        file holds only its fingerprint. With ``later`` the cells of a large file are verified by what uses them first
        (release, save, begin_epoch), which fails if they are corrupt: merging files then reads each once.
        """
        stored = read_sketch(path, later=later)
        declared = None if domain is None else read_domain(domain)
        if declared is not None and (declared.size, declared.fingerprint) != (
            stored.layout.domain, stored.layout.fingerprint,
        ):  # fmt: skip
            raise IncompatibleError("domain fingerprint", stored.layout.fingerprint, declared.fingerprint)
        loaded = cls(_MAKE, stored, domain=declared, unknown=unknown)
        loaded._file = os.fspath(path)
        return loaded

    @classmethod
    def from_public(cls, stored: Stored, *, label: str | None = None) -> Sketch:
        """Return the sealed sketch of cells that are public already, from engines that add the noise themselves."""
        return cls(_MAKE, stored, label=label)

    # ── what it is ────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def layout(self) -> Layout:
        """What the cells are."""
        return self._layout

    @property
    def labels(self) -> Labels:
        """What is said about it: title, site, period, columns, unit, day, reports."""
        return self._labels

    @property
    def noise(self) -> DiscreteLaplace:
        """The law of the noise in every cell; its ε is per occurrence."""
        return self._noise

    @property
    def epsilon(self) -> Fraction:
        """ε of the unit: one occurrence, or one person in one call where ``max_contributions`` is set."""
        return self._noise.epsilon * (self._layout.max_contributions or 1)

    @property
    def person_epsilon(self) -> Fraction | None:
        """ε of a person who is in every ingestion call, summed over epochs and merges; None without a limit."""
        return self._account.person_epsilon(self._noise, self._layout)

    @property
    def sealed(self) -> bool:
        """Whether it has left the process and takes no more items."""
        return self._state != "open"

    @property
    def guarantee(self) -> str:
        """What is promised about whatever leaves this sketch, in plain words."""
        text = guarantee(
            self._noise, self._layout, self._account, len(self._identities), len(self._labels.report_ids)
        )
        return text if self._label is None else f"NO GUARANTEE: the noise is {self._label}. {text}"

    def __repr__(self) -> str:
        layout = self._layout
        unit = "one occurrence" if layout.max_contributions is None else "one person in one call"
        levels = f" in {layout.levels} levels" if layout.levels > 1 else ""
        label = f", {self._label}" if self._label else ""
        return (
            f"Sketch.{layout.kind}({layout.cells:,} cells{levels}, ε = {tidy(self.epsilon)} for {unit}, "
            f"power {tidy(self._noise.power)}, {self._state}{label})"
        )

    # ── taking items in ───────────────────────────────────────────────────────────────────────────────────────

    @quiet
    def update(self, items: Any, counts: Any = None, *, person: Any = None) -> None:
        """Count items.

        Parameters
        ----------
        items : integers, strings, or tuples of them: NumPy array, list, iterator, Arrow array or table, anything with
            the Arrow C stream (DuckDB relations), pandas or polars Series or DataFrame, mapping of columns
        counts : occurrences of each item, negative for removals (which must not take a true count below 0); a column
            name when items are a table
        person : who is behind each item, where ``max_contributions`` is set; a column name when items are a table

        Notes
        -----
        A row with a null is dropped. A call counts all or nothing, also when it is interrupted; only an iterator or
        stream of more than 262,144 items is counted as it comes, and if it ends early the sketch is broken and
        refuses everything from then on. A count beyond ±2^53 counts as ±2^53.
        """
        as_items = person is not None and person_is_item(items, person)
        batches = read_items(items, counts, person)
        Intake([self], persons=person is not None, as_items=as_items).take_in(batches)

    @quiet
    def take_in(self, batches: Iterable[Rows], *, persons: bool = False, as_items: bool = False) -> None:
        """Count batches of clean rows in one ingestion call.

        persons : all of them say who is behind each row
        as_items : and that is the item itself, so that a limit per person is one of the item's count
        """
        Intake([self], persons=persons, as_items=as_items).take_in(batches)

    def _finding(self) -> Finder:
        """Return what finds the cells of items."""
        if self._finder is None:
            self._finder = finder_for(self._layout, self._domain)
        if self._finder is None:
            raise InputError("this sketch needs its domain to take items: use Sketch.load(path, domain=...)")
        return self._finder

    # ── what is allowed when ──────────────────────────────────────────────────────────────────────────────────

    def _require_usable(self, action: str, *, open_: bool = False) -> None:
        """Refuse what is used up, elsewhere, broken or, where ``open_`` is wanted, sealed."""
        if self._state == "merged":
            raise PrivacyError(f"{action} needs a sketch of its own, this one was merged into another and is used up")
        self._require_here(action, public=self._state == "sealed")
        if open_ and self._state != "open":
            raise SealedError(
                f"{action} needs an open sketch, this one is sealed (released, saved or loaded): call begin_epoch() "
                f"first, which draws fresh noise"
            )

    # ── leaving the process ───────────────────────────────────────────────────────────────────────────────────

    def release(self) -> NoisyCounts:
        """Return the noisy counts and seal the sketch; releasing again returns the same."""
        with self._lock:
            self._seal("release")
            most = self._account.max_count(self._layout)
            counts, self._held.shared = frozen(self._held.array()), True
            return NoisyCounts(counts, self._noise, self._layout, most)

    def save(self, path: str | os.PathLike[str], *, new: bool = False) -> None:
        """Write the noisy cells and public parameters into a file, atomically, and seal the sketch.

        A file that is there is replaced; with ``new`` it is left alone, and FileExistsError raised.
        """
        with self._lock:
            require_writable(path)  # before sealing: a mistyped path should cost nothing
            parameters_of(self._stored())  # no more than readers accept
            self._seal("save")
            write_sketch(path, self._stored(), self._held.parts[1:], new=new)

    def _stored(self) -> Stored:
        parts = self._held.parts
        return Stored(parts[0], self._noise, self._layout, self._account, self._identities, self._labels)

    def _seal(self, action: str) -> None:
        """Let the cells leave: from here on they do not change."""
        self._require_usable(action)
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
            self._add_noise(action)
            self._require_private()
        self._held.array().flags.writeable = False
        self._state, self._fresh = "sealed", NO_NOISE

    def begin_epoch(self) -> None:
        """Draw fresh noise on top (power + 1) and open the sketch for more items.

        All snapshots, before and after, together keep ε for every occurrence; one added in one epoch and removed in
        another has 2ε.
        """
        with self._lock:
            self._require_usable("begin_epoch")
            self._add_noise("begin_epoch")
            self._open()

    def _add_noise(self, action: str) -> None:
        """Add one fresh noise to the cells."""
        fresh, stream = DiscreteLaplace(self._noise.epsilon), open_stream()
        public = self._state == "sealed"
        if public:
            self._held.require_room()
        with changing([self], f"{action} was interrupted"):
            self._held = self._held.with_noise(fresh, stream)
            self._noise = self._noise.plus(fresh)
            self._fresh += 1
            self._identities |= {new_identity()}
            self._label = self._label or stream.label

    def _open(self) -> None:
        self._held.array().flags.writeable = True
        self._state, self._home = "open", this_process()

    # ── merging ───────────────────────────────────────────────────────────────────────────────────────────────

    def merge(self, other: Sketch) -> None:
        """Add the other sketch into this one; powers add. An open ``other`` is used up by it."""
        self.require_mergeable(other)
        first, second = sorted((self, other), key=id)
        with first._lock, second._lock:
            self.require_mergeable(other)
            public = self._state == other._state == "sealed"
            if public:
                self._held.require_room(other._held)
            with changing([self, other], "a merge was interrupted"):
                self._held = self._held.plus(other._held, later=public)
                self._labels, self._account = self._labels.merged(other._labels), self._account.plus(other._account)
                self._noise, self._fresh = self._noise.plus(other._noise), self._fresh + other._fresh
                self._identities |= other._identities
                types = self._layout.item_types or other._layout.item_types
                self._layout, self._types = replace(self._layout, item_types=types), self._types or other._types
                self._label = self._label or other._label
                self._domain, self._finder = self._domain or other._domain, self._finder or other._finder
                other._retire()
                if self._fresh:
                    self._open()

    def __add__(self, other: object) -> Sketch:
        """Return a sketch of both; open ones are used up by it."""
        if not isinstance(other, Sketch):
            return NotImplemented
        self.require_mergeable(other)
        first, second = sorted((self, other), key=id)
        with first._lock, second._lock:
            both = self._successor()
            both.merge(other)
            self._retire()
        return both

    def __radd__(self, other: object) -> Sketch:
        """Let ``sum(sketches)`` start from 0."""
        return self if other == 0 else NotImplemented

    def require_mergeable(self, other: Sketch) -> None:
        """Refuse unless both may become one, naming the field, both values and, as far as known, both sketches."""
        if not isinstance(other, Sketch):
            raise InputError(f"merge needs another sketch, got {type(other).__name__}")
        try:
            self._require_usable("merge")
            other._require_usable("merge")
            common = self._identities & other._identities
            if common:
                raise PrivacyError(
                    f"noise identities must be disjoint to merge, both sketches contain {min(common).hex()}: one is "
                    f"the other, a copy of it, or contains it"
                )
            either = None in (self._types, other._types)
            mine, its = (replace(s._layout, item_types=None if either else s._types) for s in (self, other))
            mine.require_equal(its)
            self._labels.merged(other._labels)
            if self._noise.epsilon != other._noise.epsilon:
                c = mine.max_contributions or 1
                raise IncompatibleError("epsilon", tidy(c * self._noise.epsilon), tidy(c * other._noise.epsilon))
        except UnnoiseError as error:
            raise about(error, (self._file, self._labels), (other._file, other._labels)) from None

    def _successor(self) -> Sketch:
        """Return an equal sketch, to replace this one; a sealed one stays as it is."""
        successor = Sketch.__new__(Sketch)
        successor.__dict__.update(self.__dict__)
        self._held.shared |= self._state == "sealed"
        Guarded.__init__(successor, self._label)
        successor._held = replace(self._held)
        return successor

    def _retire(self) -> None:
        """Make an open sketch useless: its noise lives on in another one."""
        if self._state == "open":
            self._state, self._held = "merged", Held((np.zeros(0, dtype=np.int64),))
