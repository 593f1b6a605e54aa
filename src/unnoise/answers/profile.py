"""The result: how many items occur exactly t times, and every answer that follows from it.

A :class:`Profile` holds the reconstructed law of the counts and the noisy profile it came from. Each answer is an
:class:`~unnoise.answers.estimate.Estimate`: its ``value`` is the functional of the reconstructed profile (so that
``p.total == Σ t·counts[t]``), its interval comes from the unbiased linear functional of the noisy profile
(:mod:`unnoise.answers.bands`, :mod:`unnoise.answers.sums`), extended where needed to contain ``value``. The truth an
interval speaks of is that of this data set, not of a population it may be drawn from.

Two methods give all numbers, and a subclass that means something else by its cells overrides these:
``_bands`` (items with a count in lo..hi) and ``_sum`` (Σ g(h)), with ``_entropy`` beside them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays import Floats, Int64
from ..checks import check_choice, check_integer, check_level, check_number, check_share
from ..errors import InputError
from ..estimators.linear import Function
from ..estimators.methods import Fit, Notice
from ..noisy import NoisyProfile
from . import render as _render
from .bands import Bands, Limits
from .estimate import KINDS, NO_END, Columnar, Estimate
from .questions import Asked, Sheet, span
from .sums import bounded, check_growth, entropy_limits, sum_limits, vectorised, xlogx

if TYPE_CHECKING:
    from .estimate import Band

__all__ = ["Answers", "Profile", "Row", "Table", "identity"]


DENSE_LIMIT = 10**8
"""Longest dense array that ``fractions`` and ``counts`` will build."""

ROUNDING = 1e-11
"""Relative error that a sum of some thousand shares may have from rounding alone."""

DENSE_SEARCH = 10**5
"""Longest range of counts that ``quantile`` searches one by one."""


class Answers(NamedTuple):
    """Many estimates at once, as arrays."""

    value: Floats
    stderr: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True)
class Row:
    """One line of a table: the items whose count lies in ``first``..``last`` (None: no end)."""

    first: int
    last: int | None
    items: Estimate
    share: Estimate
    at_least: Estimate

    @property
    def label(self) -> str:
        """``"3"``, ``"3–4"`` or ``"5+"``."""
        if self.last is None:
            return f"{self.first:,}+"
        return span(self.first, self.last)


@dataclass(frozen=True)
class Table(Columnar):
    """A frequency table: how many items fall in each range of counts, and how many reach it."""

    rows: tuple[Row, ...]
    level: float

    def __iter__(self) -> Any:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Row:
        return self.rows[index]

    def __str__(self) -> str:
        return _render.table_text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return _render.table_html(self)

    def columns(self) -> dict[str, list[Any]]:
        """Return the rows as columns: numbers of items, shares in columns that say so, and how many reach the range."""
        found: dict[str, list[Any]] = {"first": [r.first for r in self.rows], "last": [r.last for r in self.rows]}
        for name in ("items", "share", "at_least"):
            answers = [getattr(row, name) for row in self.rows]
            found |= {name: [e.value for e in answers], f"{name}_low": [e.low for e in answers],
                      f"{name}_high": [e.high for e in answers]}  # fmt: skip
        return found

    def to_dict(self) -> list[dict[str, Any]]:
        """Return the rows as plain dicts."""
        return [
            {"first": r.first, "last": r.last, "items": r.items.to_dict(), "share": r.share.to_dict(),
             "at_least": r.at_least.to_dict()}
            for r in self.rows
        ]


@dataclass(frozen=True, eq=False, repr=False)
class Profile:
    """How many items occur exactly t times, reconstructed from noisy counts.

    support : ascending counts that carry mass
    mass : share of the items at each of them
    method : name of the estimator
    noisy : the noisy profile everything was made from
    diagnostics : what the estimator and the free check of ε have to say
    max_count : declared bound of the counts, if any
    cap : the count that larger ones were taken as, if any: its entry means so many or more
    notices : what a reader of the answers must know: too noisy, mostly model, too many items to a cell

    Examples
    --------
    >>> from unnoise import NoisyProfile
    >>> from unnoise.estimators.isotonic import isotonic
    >>> p = Profile.from_fit(isotonic(NoisyProfile.from_counts([1, 1, 2, 0, 1], epsilon=1)),
    ...                      NoisyProfile.from_counts([1, 1, 2, 0, 1], epsilon=1))
    >>> bool(abs(p.total - (np.arange(p.counts.size) * p.counts).sum()) < 1e-9)
    True
    """

    support: Int64
    mass: Floats
    method: str
    noisy: NoisyProfile
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    max_count: int | None = None
    cap: int | None = field(default=None, kw_only=True)
    notices: tuple[Notice, ...] = field(default=(), kw_only=True)
    kind: ClassVar[str] = "robust"
    """Where the intervals come from: "robust" or "model"."""

    @classmethod
    def from_fit(
        cls, fit: Fit, noisy: NoisyProfile, *, max_count: int | None = None,
        diagnostics: Mapping[str, Any] | None = None,
    ) -> Profile:
        """Wrap what an estimator returned."""
        notes = {**fit.diagnostics, **(diagnostics or {})}
        return cls(fit.support, fit.mass, fit.method, noisy, notes, max_count, notices=fit.notices)

    # ---------------------------------------------------------------- what the profile is

    @property
    def cells(self) -> int:
        """Number of cells of the sketch or histogram."""
        return self.noisy.cells

    @property
    def items(self) -> float:
        """Number of items the fractions are shares of: the domain (known, sampled)."""
        return self.noisy.items

    @property
    def fractions(self) -> Floats:
        """f[t] for t = 0, 1, …: the share of items with count exactly t."""
        longest = int(self.support[-1]) + 1 if self.support.size else 1
        if longest > DENSE_LIMIT:
            raise InputError(
                f"a dense profile must have at most {DENSE_LIMIT:,} entries, got {longest:,}: use support and mass"
            )
        dense = np.zeros(longest)
        dense[self.support] = self.mass
        return dense

    @property
    def counts(self) -> Floats:
        """Number of items with count exactly t, for t = 0, 1, …"""
        return _whole(self.fractions * self.items)

    # ---------------------------------------------------------------- the numbers behind every answer

    @cached_property
    def _band_estimator(self) -> Bands:
        return Bands(self.noisy, int(self.items))

    def _bands(self, lo: Int64, hi: Int64, level: float) -> Limits:
        """Estimate the number of items with count in lo..hi (``NO_END``: without end), interval included."""
        limits = self._band_estimator.consistent(lo, hi, level)
        if self.max_count is None:
            return limits
        beyond = lo > self.max_count
        return Limits(*(np.where(beyond, 0.0, column) for column in limits))

    def _band_values(self, lo: Int64, hi: Int64) -> Floats:
        """Number of items with count in lo..hi according to the reconstructed profile."""
        first = np.searchsorted(self.support, lo, side="left")
        last = np.searchsorted(self.support, hi, side="right")
        upto = np.append(0.0, np.cumsum(self.mass))
        return _whole(self.items * (upto[last] - upto[first]))

    def _sum(self, g: Function, level: float) -> tuple[float, float, float, float]:
        """Estimate Σ g(h) over the items: estimate, standard error, low, high."""
        return sum_limits(self.noisy, g, level, items=int(self.items), max_count=self.max_count)

    def _sum_value(self, g: Function) -> float:
        return float(_whole(self.items * (self.mass @ np.asarray(g(self.support), dtype=float))))

    def _entropy(self, level: float) -> tuple[float, float, float, float]:
        return entropy_limits(self.noisy, level, items=int(self.items), max_count=self.max_count)

    # ---------------------------------------------------------------- entries

    def entries(self, t: Any, level: float = 0.95) -> Answers:
        """Return value, stderr, low, high of f[t] for an array of counts t, as arrays of fractions."""
        t = _as_counts(t)
        return self._answers(t, t, check_level(level), self.items)

    def _answers(self, lo: Int64, hi: Int64, level: float, unit: float) -> Answers:
        """Bands with their values, extended to contain them, as numbers (``unit`` 1) or as shares of all items."""
        value = self._band_values(lo, hi)
        if unit == 0:  # a share of no items may be anything
            return Answers(value, value + 0.5, value, np.where(hi < 1, 0.0, 1.0))
        _, stderr, low, high = self._bands(lo, hi, level)
        most = math.inf if unit == 1 else unit
        low, high = np.minimum(np.minimum(low, most), value), np.maximum(np.minimum(high, most), value)
        return Answers(value / unit, stderr / unit, low / unit, high / unit)

    def _band(self, lo: int, hi: int, level: float, unit: float) -> Estimate:
        answer = self._answers(np.array([lo]), np.array([hi]), level, unit)
        value, stderr, low, high = (float(column[0]) for column in answer)
        return Estimate(value, stderr, low, high, level, lambda other: self._band(lo, hi, other, unit), self.kind)

    __iter__ = None
    """There is no last count, so a loop over all of them would never end."""

    def __getitem__(self, t: int) -> Estimate:
        t = check_integer("count", t, 0, NO_END - 1)
        return self._band(t, t, 0.95, self.items)

    def interval(self, t: int, level: float = 0.95, kind: str | None = None) -> tuple[float, float]:
        """Return the ends of the interval for f[t], of the profile's own kind or of another."""
        return self.with_intervals(kind or self.kind)[t].at(level).interval

    def band(
        self, counts: Any = None, level: float = 0.95, kind: str | None = None, *, at_least: bool = False
    ) -> Band:
        """Return intervals for many counts that hold all together in ``level`` of the releases.

        Of the items with count exactly t, or at least t, for every t in ``counts`` (0, 1, … if left out); see
        :mod:`unnoise.answers.estimate`.
        """
        from .estimate import FEWEST_COUNTS, MOST_COUNTS, simultaneous_band

        last = min(max(int(self.support[-1]), FEWEST_COUNTS), MOST_COUNTS - 1)
        t = np.arange(last + 1) if counts is None else np.unique(_as_counts(counts))
        profile = self.with_intervals(kind or self.kind)
        return simultaneous_band(profile, t, check_level(level), at_least=at_least)

    def with_intervals(self, kind: str) -> Profile:
        """Return the same profile with intervals of this kind: "robust" assumes nothing, "model" that it is smooth."""
        from .modelled import ModelledProfile

        check_choice("kind", kind, KINDS)
        if kind == self.kind:
            return self
        other = {"robust": Profile, "model": ModelledProfile}
        if type(self) not in other.values():
            raise InputError(f"kind must be {self.kind!r} for a {self.noisy.layout.kind} release, got {kind!r}")
        given = {f.name: getattr(self, f.name) for f in fields(self) if f.init}
        return other[kind](**given)

    def _correlation(self, lo: Int64, hi: Int64) -> Floats:
        """Correlations of the errors of several bands."""
        return self._band_estimator.correlation(lo, hi)

    # ---------------------------------------------------------------- statistics

    def exactly(self, t: int) -> Estimate:
        """Number of items with count exactly t."""
        t = check_integer("count", t, 0, NO_END - 1)
        return self._band(t, t, 0.95, 1)

    def at_least(self, k: int) -> Estimate:
        """Number of items with count ≥ k."""
        return self._band(check_integer("count", k, 0, NO_END - 1), NO_END, 0.95, 1)

    @property
    def distinct(self) -> Estimate:
        """Number of items that occur: ``at_least(1)``."""
        return self.at_least(1)

    @property
    def total(self) -> Estimate:
        """Σ h, the number of occurrences."""
        return self._statistic(identity, 0.95, floor=0.0)

    def moment(self, q: float) -> Estimate:
        """Σ h^q; q = 0 counts the items that occur."""
        if q == 0:
            return self.distinct
        q = check_number("q", q)
        g: Function = lambda t: np.asarray(t, dtype=float) ** q  # noqa: E731
        self._require_growth(g)
        return self._statistic(g, 0.95, floor=0.0)

    def statistic(self, g: Function) -> Estimate:
        """Σ g(h) for a vectorised function g of int64 counts ≥ 0; g² must grow slower than e^(ε·t)."""
        if not callable(g):
            raise InputError(f"g must be a function of an array of counts, got {type(g).__name__}")
        g = vectorised(g)
        self._require_growth(g)
        return self._statistic(g, 0.95)

    def _require_growth(self, g: Function) -> None:
        """Refuse a g whose sum has no interval."""
        check_growth(g, self.noisy)

    def _statistic(self, g: Function, level: float, floor: float = -np.inf) -> Estimate:
        return Estimate(*self._limited(g, level, floor), level, lambda other: self._statistic(g, other, floor))

    def _limited(self, g: Function, level: float, floor: float) -> tuple[float, float, float, float]:
        """Value, standard error and interval of Σ g(h), all finite."""
        with np.errstate(over="ignore", invalid="ignore"):
            value, found = self._sum_value(g), self._sum(g, level)
            four = value, found[1], *bounded(value, found, floor)
        if not np.isfinite(four).all():
            raise InputError(f"g must have a sum and a variance below 10^308, got {value:.3g} ± {found[1]:.3g}")
        return four

    @property
    def entropy(self) -> Estimate:
        """Shannon entropy of h/Σh, in nats."""
        total, weighted = self._sum_value(identity), self._sum_value(xlogx)
        value = max(float(np.log(total) - weighted / total), 0.0) if total > 0 else 0.0

        def at(level: float) -> Estimate:
            _, stderr, low, high = self._entropy(level)
            low, high = min(low, value), max(high, value)
            anything = low <= 0 < high and high >= math.log(max(self.distinct.at(level).high, 1.0)) - 1e-9
            return Estimate(value, stderr, low, high, level, at, marked=anything)

        return at(0.95)

    def quantile(self, q: float) -> Estimate:
        """Return the smallest t such that a share of at least q of the items has count ≤ t."""
        from scipy.special import ndtri

        q = 1.0 if q == 1 else check_share("q", q)
        reached = np.cumsum(self.mass) >= q - 1e-12
        value = float(self.support[int(np.argmax(reached))] if reached.any() else self.support[-1])

        def at(level: float) -> Estimate:
            low, high, share = self._quantile_limits(q, level, value)
            stderr = (high - low) / (2 * float(ndtri((1 + level) / 2)))
            return Estimate(value, stderr, low, high, level, at, self.kind, share)

        return at(0.95)

    def _quantile_limits(self, q: float, level: float, value: float) -> tuple[float, float, float]:
        """Invert the band of the cumulative curve: first near occupied values, then at every count in question.

        Returns limits that hold the value, and their share of data, here all of it.
        """
        rough = np.unique(np.concatenate([self.noisy.values, self.noisy.values + 1, self.support, [0]]))
        low, high = self._invert(rough[rough >= 0], q, level)
        offsets = self._band_estimator.breakpoints(level)
        low, high = max(0, low + 2 * int(offsets[0])), high + 2 * int(offsets[-1])
        if high - low <= DENSE_SEARCH:
            fine = np.arange(low, high + 1)
        else:
            near = self.noisy.values[np.searchsorted(self.noisy.values, low) :]
            near = near[: np.searchsorted(near, high, side="right")]
            fine = np.unique((near[:, None] + offsets).clip(low, high))
        low, high = self._invert(fine, q, level)
        return min(low, value), max(high, value), 1.0

    def _invert(self, t: Int64, q: float, level: float) -> tuple[int, int]:
        """Return the first and last t for which C(t) ≥ q and C(t − 1) < q are both possible."""
        _, _, low, high = self._bands(t + 1, np.full_like(t, NO_END), level)
        possible = np.flatnonzero(1 - low / self.items >= q - 1e-12)
        unsure = np.flatnonzero(1 - high / self.items < q - 1e-12)
        first = int(t[possible[0]]) if possible.size else int(t[-1])
        last = int(t[min(unsure[-1] + 1, t.size - 1)]) if unsure.size else int(t[0])
        return first, last

    # ---------------------------------------------------------------- showing and exporting

    def table(self, counts: Sequence[int] = (1, 2, 3, 5, 10), level: float = 0.95) -> Table:
        """Return how many items fall in each range of counts that starts at one of ``counts``, the last open.

        Where the counts are bounded, no range begins above the bound, and the last ends there; it is open where larger
        counts were taken as the bound.
        """
        most = NO_END if self.max_count is None else self.max_count
        starts = np.unique(_as_counts(counts))
        starts = starts[starts <= (most if self.cap is None else self.cap)]
        most = most if self.cap is None else NO_END
        ends = np.append(starts[1:] - 1, most)[: starts.size]
        level = check_level(level)
        rows = tuple(
            Row(
                int(lo), None if hi == NO_END else int(hi),
                self._band(int(lo), int(hi), level, 1),
                self._band(int(lo), int(hi), level, float(self.items)),
                self._band(int(lo), NO_END, level, 1),
            )
            for lo, hi in zip(starts, ends)
        )
        return Table(rows, level)

    def shown(self, longest: int = 12) -> Int64:
        """Return the counts worth listing: the first ones, then ever wider apart, up to ``longest``."""
        return _render.chosen_counts(self, check_integer("longest", longest, 2))

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader of the answers must know: the notices of the estimator, and a claimed ε that looks wrong."""
        texts, claim = [notice.text for notice in self.notices], self.diagnostics.get("claim") or {}
        if claim.get("verdict") in ("wrong rate", "wrong law", "clamped"):
            texts.append(
                f"The noisy counts at or below 0 do not look like noise of ε = {claim['epsilon']:g} "
                f"({claim['verdict']}, p = {claim['p_value']:.1e}): check how they were made before trusting any "
                f"number here."
            )
        return tuple(texts)

    def __str__(self) -> str:
        return _render.profile_text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return _render.profile_html(self)

    def plot(self, ax: Any = None, *, truth: Any = None, level: float = 0.95) -> Any:
        """Draw the profile on log–log axes with its band, and the truth if given; returns the axes."""
        from .plots import plot_profile

        return plot_profile(self, ax, truth=truth, level=level)

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        """Return everything as plain Python: parameters, headline answers, entries with intervals."""
        return _render.whole_dict({"": Sheet.of(self, Asked(level=level))}, "")

    def to_json(self, *, indent: int | None = None, level: float = 0.95) -> str:
        """Return :meth:`to_dict` as JSON."""
        return json.dumps(self.to_dict(level), indent=indent, ensure_ascii=False)

    def columns(self, level: float = 0.95) -> dict[str, NDArray[Any]]:
        """Return each count of the support with its number of items, and the same as shares of all items.

        ``items``, ``low``, ``high`` and ``stderr`` are numbers of items; ``share``, ``share_low`` and ``share_high``
        are shares.
        """
        level = check_level(level)
        items, all_items = self._answers(self.support, self.support, level, 1.0), self.items
        most = np.maximum(np.minimum(items.high, all_items), items.value)
        share = Answers(items.value, items.stderr, np.minimum(items.low, all_items), most)
        if all_items == 0:
            share = self._answers(self.support, self.support, level, all_items)
        else:
            share = Answers(*(column / all_items for column in share))
        return {
            "count": self.support, "items": items.value, "low": items.low, "high": items.high, "stderr": items.stderr,
            "share": share.value, "share_low": share.low, "share_high": share.high,
        }  # fmt: skip

    def to_arrow(self, level: float = 0.95) -> Any:
        """Return the columns as a pyarrow Table."""
        import pyarrow

        return pyarrow.table(self.columns(level))

    def to_polars(self, level: float = 0.95) -> Any:
        """Return the columns as a polars DataFrame."""
        import polars

        return polars.DataFrame(self.columns(level))

    def to_pandas(self, level: float = 0.95) -> Any:
        """Return the columns as a pandas DataFrame."""
        import pandas

        return pandas.DataFrame(self.columns(level))


def identity(t: Any) -> Floats:
    """The count itself, as a float: Σ h is ``total``."""
    return np.asarray(t, dtype=float)


def _whole(numbers: Floats) -> Floats:
    """Numbers of cells, whole where only rounding keeps them from it: 39, not 38.99999999999999."""
    nearest = np.rint(numbers)
    return np.asarray(np.where(np.abs(numbers - nearest) <= ROUNDING * np.abs(nearest), nearest, numbers))


def _as_counts(t: Any) -> Int64:
    """Return counts ≥ 0 as a one-dimensional int64 array."""
    array = np.atleast_1d(np.asarray(t))
    whole = array.dtype.kind in "iu" and array.ndim == 1 and array.size > 0
    if not whole or (array < 0).any() or (array >= NO_END).any():
        raise InputError(f"counts must be integers between 0 and {NO_END - 1}, got {t!r}")
    return array.astype(np.int64)
