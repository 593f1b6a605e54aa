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
from fractions import Fraction
from typing import Any

from .._sampler import open_stream
from ..checks import check_integer, check_unknown
from ..errors import IncompatibleError, InputError
from ..labels import Labels
from ..layout import Account, Layout, guarantee, hashed_layout
from ..noise import DiscreteLaplace, Exact, exact_positive, tidy
from ..noisy import NoisyCounts
from .cells import noisy_cells
from .domain import Domain, finder_for, read_domain, sampled_cells
from .format.parameters import Stored, fresh_labels
from .format.read import read_sketch
from .format.write import require_storable, require_writable, write_sketch
from .guards import new_identity
from .ingestion import Ingesting
from .inputs import read_items

__all__ = ["Sketch", "noise_shares"]

_MAKE = object()


def noise_shares(parties: int, *, survivors: int | None = None) -> Fraction:
    """Return the power of noise each of ``parties`` gives so that any ``survivors`` of them reach one whole noise.

    Make the sketch of each party with ``power=noise_shares(...)``; alone it is a secret and can be neither saved nor
    released, merged with enough others it can.

    >>> noise_shares(5, survivors=3)
    Fraction(1, 3)
    """
    return DiscreteLaplace(1).shares(parties, survivors=survivors).power


class Sketch(Ingesting):
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

    def __init__(self, make: object = None, **state: Any) -> None:
        if make is not _MAKE:
            raise TypeError("make a sketch with Sketch.hashed, Sketch.known, Sketch.sampled or Sketch.load")
        super().__init__(**state)

    # ── making ────────────────────────────────────────────────────────────────────────────────────────────────

    @classmethod
    def hashed(
        cls,
        cells: int = 2**20,
        *,
        epsilon: Exact | None = None,
        levels: int | bool | None = None,
        hash_seed: int = 0,
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
        hash_seed : seed of the hash; sketches to be merged need the same
        max_contributions : most occurrences of one person in one call of :meth:`update`
        pan_private : add fresh noise when the sketch leaves the process as well
        power : share of the noise, see :func:`noise_shares`
        item_types : "int" or "str" per column; taken from the first items when not given
        labels : what to say about it, see :class:`Labels`; they go into its files
        """
        layout = hashed_layout(
            cells, levels,
            hash_seed=check_integer("hash_seed", hash_seed),
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
        unknown: str = "error",
        labels: Labels | Mapping[str, Any] | None = None,
    ) -> Sketch:
        """Return a sketch with one cell per item of a declared domain: an integer d (items 0…d−1) or a list of items.

        ``unknown="drop"`` ignores items outside the domain instead of refusing them.
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
        hash_seed: int = 0,
        max_contributions: int | None = None,
        pan_private: bool = False,
        power: Exact = 1,
        unknown: str = "error",
        labels: Labels | Mapping[str, Any] | None = None,
    ) -> Sketch:
        """Return a sketch with cells for those items of a declared domain whose hash falls below ``rate``."""
        declared, share = read_domain(domain), exact_positive("rate", rate)
        hash_seed = check_integer("hash_seed", hash_seed)
        if share > 1:
            raise InputError(f"rate must be at most 1, got {rate}")
        sample = sampled_cells(declared, share, hash_seed)
        if sample.size == 0:
            raise InputError(f"rate must be high enough to sample an item of {declared.size}, got {rate}")
        layout = Layout(
            kind="sampled", cells=int(sample.size), domain=declared.size, rate=share, hash_seed=hash_seed,
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
        unknown: str = "error",
        labels: Labels | Mapping[str, Any] | None = None,
    ) -> Sketch:
        """Draw the noise: it goes in before the first item."""
        check_unknown(unknown)
        if not isinstance(layout.pan_private, bool):
            raise InputError(f"pan_private must be True or False, got {layout.pan_private!r}")
        per_occurrence = exact_positive("epsilon", epsilon) / (layout.max_contributions or 1)
        noise = DiscreteLaplace(per_occurrence, power)
        said = fresh_labels(labels, layout)
        stream = open_stream()
        cells, bound = noisy_cells(layout.cells, noise, stream)
        return cls(
            _MAKE, layout=layout, noise=noise, account=Account(), identities=frozenset([new_identity()]), labels=said,
            cells=cells, bound=bound, fresh=noise.power, label=stream.label, domain=domain,
            finder=finder_for(layout, domain), unknown=unknown,
        )  # fmt: skip

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, domain: Any = None, unknown: str = "error") -> Sketch:
        """Return the sealed sketch in a file, verified whole; its cells are read from there when they are needed.

        A sketch of a list of items needs the same list as ``domain`` to go on after :meth:`begin_epoch`, because the
        file holds only its fingerprint.
        """
        stored = read_sketch(path)
        declared = None if domain is None else read_domain(domain)
        if declared is not None and (declared.size, declared.fingerprint) != (
            stored.layout.domain, stored.layout.fingerprint,
        ):  # fmt: skip
            raise IncompatibleError("domain fingerprint", stored.layout.fingerprint, declared.fingerprint)
        return cls._from_stored(stored, declared, unknown)

    @classmethod
    def _from_stored(cls, stored: Stored, domain: Domain | None = None, unknown: str = "error") -> Sketch:
        """Return the sealed sketch of cells that are public already (files, engines that add the noise themselves)."""
        return cls(
            _MAKE, layout=stored.layout, noise=stored.noise, account=stored.account, identities=stored.identities,
            labels=stored.labels, cells=stored.cells, bound=0, fresh=Fraction(0), label=None, domain=domain,
            finder=None, unknown=unknown, shared=True,
        )  # fmt: skip

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
        text = guarantee(self._noise, self._layout, self._account, len(self._identities))
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
        A row with a null is dropped. A failed call changes nothing, except that iterators and streams are applied batch
        by batch (unless ``person`` is given), and the error then says how far it came.
        """
        self._require_open("update")
        self._require_limit(person is not None)
        self._ingest(read_items(items, counts, person), enforced=person is not None)

    # ── leaving the process ───────────────────────────────────────────────────────────────────────────────────

    def release(self) -> NoisyCounts:
        """Return the noisy counts and seal the sketch; releasing again returns the same."""
        return self._release()

    def _release(self, *, for_tests: bool = False) -> NoisyCounts:
        """Release; ``for_tests`` whatever the label of the noise (for :mod:`unnoise.testing`)."""
        with self._lock:
            self._seal("release", for_tests=for_tests)
            cells, self._shared = self._cells, True
            return NoisyCounts(cells.view(), self._noise, self._layout)  # a view cannot be made writeable again

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the noisy cells and public parameters into a file, atomically, and seal the sketch."""
        with self._lock:
            require_writable(path)  # before sealing: a mistyped path should cost nothing
            require_storable(self._stored())
            self._seal("save")
            write_sketch(path, self._stored(), self._others)

    def _stored(self) -> Stored:
        return Stored(self._held, self._noise, self._layout, self._account, self._identities, self._labels)

    def begin_epoch(self) -> None:
        """Draw fresh noise on top (power + 1) and open the sketch for more items.

        All snapshots, before and after, together keep ε for every occurrence; one added in one epoch and removed in
        another has 2ε.
        """
        with self._lock:
            self._require_usable("begin_epoch")
            self._add_noise()
            self._open()

    # ── merging ───────────────────────────────────────────────────────────────────────────────────────────────

    def merge(self, other: Sketch) -> None:
        """Add the other sketch into this one; powers add. An open ``other`` is used up by it."""
        self._require_mergeable(other)
        first, second = sorted((self, other), key=id)
        with first._lock, second._lock:
            self._require_mergeable(other)
            self._bound = self._add_cells(other)
            self._take_over(other)

    def __add__(self, other: object) -> Sketch:
        """Return a sketch of both; open ones are used up by it."""
        if not isinstance(other, Sketch):
            return NotImplemented
        self._require_mergeable(other)
        first, second = sorted((self, other), key=id)
        with first._lock, second._lock:
            both = type(self)(_MAKE, **self._as_state())
            both._shared = self._shared = self._shared or self._state == "sealed"
            both.merge(other)
            self._retire()
        return both

    def __radd__(self, other: object) -> Sketch:
        """Let ``sum(sketches)`` start from 0."""
        return self if other == 0 else NotImplemented
