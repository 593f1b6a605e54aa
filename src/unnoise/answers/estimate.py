"""A number with its uncertainty: value, standard error and an interval; and bands, whose intervals hold all together.

An :class:`Estimate` is a float wherever a float is wanted (arithmetic gives plain floats: intervals do not
carry over to sums or ratios of dependent answers) and keeps the interval it was made with.

A :class:`Band` has intervals for many counts that hold all together in 95 % of the releases. Of 61 intervals that each
hold at 95 %, all hold together in 5–30 % of the releases: independent errors would leave 0.95⁶¹ = 4 %. A band takes
single intervals at a higher level, which the largest of the standardised errors exceeds as seldom as wanted. With R the
correlations of the errors (neighbours share cells: −0.6 and the like), c is the quantile of max |z_t|, z ~ Normal(0,
R), by ``DRAWS`` draws of a fixed seed, and each interval is taken at 2Φ(c) − 1 [1]_. What the single intervals do for
few cells and at the edges they do here as well.

.. [1] Y. Hochberg, A. C. Tamhane, "Multiple Comparison Procedures", 1987, chapter 2.
.. [2] Z. Šidák, "Rectangular confidence regions for the means of multivariate normal distributions", JASA 62
   (1967) 626.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import FrozenInstanceError, dataclass
from typing import TYPE_CHECKING, Any, SupportsFloat

import numpy as np

from ..arrays import Floats, Int64
from ..checks import check_level
from ..errors import InputError

if TYPE_CHECKING:
    from .profile import Profile

__all__ = [
    "FEWEST_COUNTS", "HUGE", "KINDS", "MOST_COUNTS", "NO_END", "NO_LIMIT", "TOO_NOISY", "Band", "Columnar", "Estimate",
    "critical_level", "number", "percent", "sensible", "sensible_parts", "sensible_rows",
    "simultaneous_band",
]  # fmt: skip

KINDS = ("robust", "model")
"""Kinds of interval."""

NO_END = np.iinfo(np.int64).max // 4
"""Upper end of a band that has none."""

TOO_NOISY = "too noisy to tell"
"""What a marked answer says of itself, in every surface."""


class Columnar:
    """Something that can be had as columns of equal length, and so as a table of any library."""

    def columns(self) -> dict[str, list[Any]]:
        """Return the columns by name."""
        raise NotImplementedError

    def to_arrow(self) -> Any:
        """Return the columns as a pyarrow Table."""
        import pyarrow

        return pyarrow.table(self.columns())

    def to_polars(self) -> Any:
        """Return the columns as a polars DataFrame."""
        import polars

        return polars.DataFrame(self.columns())

    def to_pandas(self) -> Any:
        """Return the columns as a pandas DataFrame."""
        import pandas

        return pandas.DataFrame(self.columns())


class Estimate(float):
    """An answer: ``value``, its ``stderr``, and the interval ``low``..``high`` at ``level``; immutable.

    It is a float, and no dataclass: tables (polars among them) would take that for a row of columns.

    Parameters
    ----------
    value : float
        The answer read off the reconstructed profile.
    stderr : float
        Standard error of the unbiased linear estimate the interval is made from.
    low, high : float
        Ends of the interval; ``low <= value <= high``.
    level : float
        Share of repetitions in which such an interval contains the truth of this data set.
    kind : str
        Where the interval comes from: "robust" (unbiased functionals, no assumption on the profile) or "model"
        (posterior of the averaged models: narrower, right where the profile is as smooth as the models say).
    data_share : float
        How much of the answer is data and how much is model, from 1 (all data) to 0 (all prior).
    marked : bool
        Whether the data say next to nothing here: "too noisy to tell".

    Examples
    --------
    >>> e = Estimate(10.0, 2.0, 6.0, 14.0)
    >>> e + 1, 2 * e, e > 9, f"{e:.1f}", 12 in e
    (11.0, 20.0, True, '10.0', True)
    >>> e
    Estimate(10, stderr 2, 95 % robust interval 6 to 14)
    >>> Estimate(10.0, 9.0, 0.0, 30.0, kind="model", data_share=0.1, marked=True)
    Estimate(10, stderr 9, 95 % model interval 0 to 30, too noisy to tell)
    """

    stderr: float
    low: float
    high: float
    level: float
    recompute: Callable[[float], Estimate] | None
    kind: str
    data_share: float
    marked: bool
    __slots__ = ("stderr", "low", "high", "level", "recompute", "kind", "data_share", "marked")  # noqa: RUF023

    def __new__(
        cls, value: float, stderr: float, low: float, high: float, level: float = 0.95,
        recompute: Callable[[float], Estimate] | None = None, kind: str = "robust", data_share: float = 1.0,
        marked: bool = False,
    ) -> Estimate:  # fmt: skip
        """Make it of the answer and what is known about it."""
        if kind not in KINDS:
            raise InputError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
        if not 0 <= data_share <= 1:
            raise InputError(f"data_share must be between 0 and 1, got {data_share}")
        made, given = super().__new__(cls, value), (stderr, low, high, level, recompute, kind, data_share, marked)
        for name, each in zip(cls.__slots__, given):
            object.__setattr__(made, name, each)
        return made

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.value, *(getattr(self, name) for name in self.__slots__))

    def replace(self, **changes: Any) -> Estimate:
        """Return the same answer with other fields.

        >>> Estimate(10.0, 2.0, 6.0, 14.0).replace(low=5.0)
        Estimate(10, stderr 2, 95 % robust interval 5 to 14)
        """
        return type(self)(**{name: getattr(self, name) for name in ("value", *self.__slots__)} | changes)

    __replace__ = replace

    value: float = property(float, doc="The answer itself, a plain float.")  # type: ignore[assignment]

    def at(self, level: float) -> Estimate:
        """Return the same answer with its interval at another level."""
        level = check_level(level)
        if level == self.level:
            return self
        if self.recompute is None:
            raise InputError(f"level must be {self.level}: this Estimate was made without its data, got {level}")
        return self.recompute(level)

    @property
    def interval(self) -> tuple[float, float]:
        """``(low, high)``."""
        return self.low, self.high

    def __contains__(self, truth: SupportsFloat) -> bool:
        return self.low <= float(truth) <= self.high

    def __format__(self, spec: str) -> str:
        return format(self.value, spec) if spec else str(self)

    def __str__(self) -> str:
        return f"{number(self.value)} ({number(self.low)} to {number(self.high)})"

    def __repr__(self) -> str:
        percent = f"{100 * self.level:g}"
        return (
            f"Estimate({number(self.value)}, stderr {number(self.stderr)}, "
            f"{percent} % {self.kind} interval {number(self.low)} to {number(self.high)}"
            f"{', ' + TOO_NOISY if self.marked else ''})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the way to another level as plain Python."""
        names = ("value", "stderr", "low", "high", "level", "kind", "data_share", "marked")
        return {name: getattr(self, name) for name in names}


def number(x: float) -> str:
    """Write a number the way a person reads it: grouped thousands, four significant digits below.

    >>> number(1234567.8), number(0.012345), number(12.3456), number(3e15), number(0.0)
    ('1,234,568', '0.01235', '12.35', '3e+15', '0')
    """
    if not math.isfinite(x):
        return str(x)
    if x == 0 or (x == int(x) and abs(x) < 1e15):
        return f"{int(x):,}"
    if abs(x) >= 1e15 or abs(x) < 1e-4:
        return f"{x:.3g}"
    if abs(x) >= 1000:
        return f"{x:,.0f}"
    return f"{x:.4g}"


def percent(share: float) -> str:
    """Write a share as a person reads it: two digits, written out.

    >>> percent(0.0342), percent(1.0), percent(24.13), percent(7e-7)
    ('3.4 %', '100 %', '2,400 %', '< 0.01 %')
    """
    if 0 < share < 1e-4:
        return "< 0.01 %"
    return f"{number(float(f'{100 * share:.2g}'))} %"


HUGE = 1e12
"""Numbers from here on are written with a power of ten."""

NO_LIMIT = 2.0**53
"""Hardly any data have such counts: where an interval goes on to here and its value does not, nothing ended it."""

Digits = tuple[int, int, int]
"""How many decimals value, low and high are written with, negative for tens and hundreds."""

Step = Callable[[float], int] | None
STEPS: tuple[Step, ...] = (None, math.floor, math.ceil)
"""Where value, low and high are rounded to: an interval outwards, so that it never promises more than it does."""


def sensible(estimate: Estimate, *, whole: bool = True) -> tuple[str, str, str]:
    """Write value, low and high with as many digits as the interval deserves; ``whole`` for numbers of things.

    >>> sensible(Estimate(9171.4, 79, 9018.2, 9327.9))
    ('9,170', '9,010', '9,330')
    >>> sensible(Estimate(10.0281, 0.002, 10.0242, 10.0321), whole=False)
    ('10.0281', '10.0242', '10.0321')
    >>> sensible(Estimate(2.0, 0.0, 2.0, 2.0))
    ('2', '2', '2')
    >>> sensible(Estimate(0.15, 0.1, 0.02, 0.4))
    ('0', '0', '1')
    >>> sensible(Estimate(62.0, 500, 41.3, 2089.0))
    ('62', '41', '2,100')
    >>> sensible(Estimate(3.0, 1.0, 1.0, 2.0**61)), sensible(Estimate(5e18, 1.0, 5e18, 5e18))
    (('3', '1', 'no limit'), ('5e18', '5e18', '5e18'))
    """
    return _written(estimate, _digits(estimate, whole=whole))


def sensible_parts(numbers: Sequence[tuple[int, int, Estimate]]) -> list[tuple[str, str, str]]:
    """Write how many items have a count in each first..last: no part more than what it is part of.

    Each has the digits that its own interval deserves; where that would write a number below its part, both get
    the finer ones.

    >>> distinct, twice = Estimate(424.0, 50, 405.0, 590.0), Estimate(424.0, 20, 405.0, 499.0)
    >>> sensible(distinct), sensible(twice)
    (('420', '400', '590'), ('424', '405', '499'))
    >>> sensible_parts([(1, NO_END, distinct), (2, NO_END, twice)])
    [('424', '405', '590'), ('424', '405', '499')]
    """
    columns = [list(column) for column in zip(*(_digits(estimate) for _, _, estimate in numbers))]
    parts = [(i, j) for i, (first, last, _) in enumerate(numbers) for j, (begin, end, _) in enumerate(numbers)
             if i != j and first <= begin and end <= last]  # fmt: skip
    for name, digits, step in zip(("value", "low", "high"), columns, STEPS):
        exact = [getattr(estimate, name) for _, _, estimate in numbers]
        above = [(i, j) for i, j in parts if exact[i] >= exact[j]]
        while wrong := [(i, j) for i, j in above if digits[i] != digits[j]
                        and _rounded(exact[i], digits[i], step) < _rounded(exact[j], digits[j], step)]:  # fmt: skip
            for i, j in wrong:
                digits[i] = digits[j] = max(digits[i], digits[j])
    return [_written(estimate, (v, low, high)) for (_, _, estimate), v, low, high in zip(numbers, *columns)]


def sensible_rows(rows: Sequence[tuple[int, int, Estimate, Estimate]]) -> list[tuple[tuple[str, str, str], ...]]:
    """The same for rows of a table: the items with a count in first..last, and those with at least ``first``."""
    said = sensible_parts([part for first, last, inside, above in rows
                           for part in ((first, last, inside), (first, NO_END, above))])  # fmt: skip
    return list(zip(said[::2], said[1::2]))


def _digits(estimate: Estimate, *, whole: bool = True) -> Digits:
    """Two digits of the width of the interval; however wide it is, two of value and lower end are left."""
    low, high = estimate.low, estimate.high
    digits = 1 - math.floor(math.log10(high - low)) if 0 < high - low < math.inf else 3
    digits = min(digits, 0) if whole else digits
    two = (
        min(1 - math.floor(math.log10(abs(x))), 0) if x and math.isfinite(x) else 0 for x in (estimate.value, low)
    )
    of_value, of_low = (max(digits, each) for each in two)
    return of_value, of_low, digits


def _rounded(x: float, digits: int, step: Step) -> float:
    """Round to a number of decimals in the direction of ``step``; what is off by less than 1e-6 of them is there."""
    if abs(x) >= HUGE or not math.isfinite(x):
        return x
    if step is not None:
        unit = 10.0**-digits
        near = round(x / unit)
        x = unit * (near if abs(x / unit - near) < 1e-6 else step(x / unit))
    return round(x, digits) + 0.0


def _written(estimate: Estimate, digits: Digits) -> tuple[str, str, str]:
    said = []
    for x, decimals, step in zip((estimate.value, estimate.low, estimate.high), digits, STEPS):
        rounded = _rounded(x, decimals, step)
        if abs(rounded) >= HUGE or not math.isfinite(rounded):
            said.append(f"{rounded:.2g}".replace("e+", "e"))
        else:
            said.append(f"{rounded:,.{max(decimals, 0)}f}" if decimals <= 6 else f"{rounded:.3g}")
    value, low, high = said
    endless = estimate.value < NO_LIMIT <= estimate.high or estimate.high == math.inf
    return value, low, "no limit" if endless else high


DRAWS = 8000
"""Draws behind a quantile of the largest error: its level is right to 0.25 % at 95 %."""

FEWEST_DRAWS = 40
"""Draws beyond a quantile without which it is not taken from them."""

MOST_COUNTS, FEWEST_COUNTS = 600, 8
"""Most counts of a band, and how many it has at least where nobody chose."""


@dataclass(frozen=True, eq=False)
class Band:
    """Intervals for the number of items at each of ``counts`` (or at least so many), all holding together at ``level``.

    single : the level each interval was taken at
    """

    counts: Int64
    value: Floats
    low: Floats
    high: Floats
    level: float
    single: float
    kind: str
    at_least: bool

    def __contains__(self, truth: Any) -> bool:
        """Whether all these numbers of items, one for each of ``counts``, lie within."""
        truth = np.asarray(truth, dtype=float)
        if truth.shape != self.counts.shape:
            raise InputError(f"truth must be one number for each of {self.counts.size} counts, got {truth.shape}")
        slack = 1e-9 * np.maximum(1.0, np.abs(truth))
        return bool(((self.low - slack <= truth) & (truth <= self.high + slack)).all())

    def to_dict(self) -> dict[str, Any]:
        """Return the band as plain Python."""
        return {
            "counts": self.counts.tolist(), "value": self.value.tolist(), "low": self.low.tolist(),
            "high": self.high.tolist(), "level": self.level, "kind": self.kind, "at_least": self.at_least,
        }  # fmt: skip


def simultaneous_band(profile: Profile, counts: Int64, level: float, *, at_least: bool) -> Band:
    """Return the intervals of a profile's own kind for these counts, at a level at which they hold together."""
    if counts.size > MOST_COUNTS:
        raise InputError(f"counts must be at most {MOST_COUNTS} for a simultaneous band, got {counts.size}")
    hi = np.full_like(counts, NO_END) if at_least else counts
    single = critical_level(profile._correlation(counts, hi), level)
    value, _, low, high = profile._answers(counts, hi, single, 1.0)
    if at_least:
        low, high = np.maximum.accumulate(low[::-1])[::-1], np.minimum.accumulate(high)
        low, high = np.minimum(low, value), np.maximum(high, value)
    return Band(counts, value, low, high, level, single, profile.kind, at_least)


def critical_level(correlation: Floats, level: float) -> float:
    """The level of single intervals at which all hold together at ``level``, for errors of these correlations.

    >>> round(critical_level(np.eye(1), 0.95), 2), bool(abs(critical_level(np.eye(20), 0.95) - 0.95 ** (1 / 20)) < 1e-3)
    (0.95, True)
    """
    from scipy.special import ndtr

    if DRAWS * (1 - level) < FEWEST_DRAWS:  # errors of any correlation hold together at least as independent ones [2]_
        return float(min(level ** (1 / len(correlation)), 1 - 1e-12))
    value, vectors = np.linalg.eigh(correlation)
    factor = vectors * np.sqrt(np.maximum(value, 0))
    z = np.random.default_rng(0).standard_normal((DRAWS, value.size)) @ factor.T
    size = np.sqrt(np.maximum((factor**2).sum(axis=1), 1e-300))
    largest = np.abs(z / size).max(axis=1)
    single = 2 * float(ndtr(np.quantile(largest, level))) - 1
    return min(max(single, level), 1 - 1e-9)
