"""A number with its uncertainty: value, standard error and an interval.

An :class:`Estimate` is a float wherever a float is wanted (arithmetic gives plain floats: intervals do not
carry over to sums or ratios of dependent answers) and keeps the interval it was made with.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, SupportsFloat

import numpy as np
from numpy.typing import NDArray

from ..checks import check_level
from ..errors import InputError

__all__ = ["KINDS", "TOO_NOISY", "Columnar", "Estimate", "number"]

KINDS = ("robust", "model")
"""Kinds of interval."""

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


@dataclass(frozen=True, eq=False, slots=True)
class Estimate:
    """An answer: ``value``, its ``stderr``, and the interval ``low``..``high`` at ``level``.

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

    value: float
    stderr: float
    low: float
    high: float
    level: float = 0.95
    recompute: Callable[[float], Estimate] | None = field(default=None, repr=False)
    kind: str = "robust"
    data_share: float = 1.0
    marked: bool = False

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(f"kind must be one of {', '.join(KINDS)}, got {self.kind!r}")
        if not 0 <= self.data_share <= 1:
            raise InputError(f"data_share must be between 0 and 1, got {self.data_share}")

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

    def __float__(self) -> float:
        return self.value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self.value, dtype=dtype)

    def __int__(self) -> int:
        return int(self.value)

    def __round__(self, digits: int | None = None) -> float:
        return round(self.value, digits)

    def __bool__(self) -> bool:
        return self.value != 0

    def __hash__(self) -> int:
        return hash(self.value)

    def __neg__(self) -> float:
        return -self.value

    def __pos__(self) -> float:
        return self.value

    def __abs__(self) -> float:
        return abs(self.value)

    def __add__(self, other: Any) -> Any:
        return self.value + _plain(other)

    def __radd__(self, other: Any) -> Any:
        return other + self.value

    def __sub__(self, other: Any) -> Any:
        return self.value - _plain(other)

    def __rsub__(self, other: Any) -> Any:
        return other - self.value

    def __mul__(self, other: Any) -> Any:
        return self.value * _plain(other)

    def __rmul__(self, other: Any) -> Any:
        return other * self.value

    def __truediv__(self, other: Any) -> Any:
        return self.value / _plain(other)

    def __rtruediv__(self, other: Any) -> Any:
        return other / self.value

    def __floordiv__(self, other: Any) -> Any:
        return self.value // _plain(other)

    def __rfloordiv__(self, other: Any) -> Any:
        return other // self.value

    def __mod__(self, other: Any) -> Any:
        return self.value % _plain(other)

    def __pow__(self, other: Any) -> Any:
        return self.value ** _plain(other)

    def __rpow__(self, other: Any) -> Any:
        return other**self.value

    def __eq__(self, other: object) -> Any:
        return self.value == _plain(other)

    def __ne__(self, other: object) -> Any:
        return self.value != _plain(other)

    def __lt__(self, other: Any) -> Any:
        return self.value < _plain(other)

    def __le__(self, other: Any) -> Any:
        return self.value <= _plain(other)

    def __gt__(self, other: Any) -> Any:
        return self.value > _plain(other)

    def __ge__(self, other: Any) -> Any:
        return self.value >= _plain(other)

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


def _plain(other: Any) -> Any:
    return other.value if isinstance(other, Estimate) else other


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
