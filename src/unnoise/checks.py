"""The checks of arguments: each returns what it was given, in one type, or says what must hold and what was given.

A boolean is never a number here, and NumPy's scalars are as good as Python's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Any, TypeGuard

import numpy as np

from .errors import InputError
from .text import inert

__all__ = [
    "UNKNOWN", "check_choice", "check_integer", "check_level", "check_number", "check_share", "is_integer",
    "undeclared",
]  # fmt: skip

UNKNOWN = ("error", "drop")
"""What to do with items and groups that were not declared."""

LEVELS = 0.01, 0.999999999
"""How often an interval may be asked to hold."""


def is_integer(value: object) -> TypeGuard[int]:
    """Whether this is an integer, of Python or NumPy, and no boolean."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool | np.bool_)


def check_integer(name: str, value: object, low: int | None = None, high: int | None = None) -> int:
    """Return an integer within ``low``..``high``, either of which may be open.

    >>> check_integer("cells", np.int64(8), 1)
    8
    """
    if is_integer(value) and (low is None or value >= low) and (high is None or value <= high):
        return int(value)
    if low is not None and high is not None:
        wanted = f"an integer between {low} and {high}"
    else:
        wanted = "an integer" if low is None else f"an integer ≥ {low}"
    raise InputError(f"{name} must be {wanted}, got {value!r}")


def check_number(name: str, value: object) -> float:
    """Return a finite number > 0.

    >>> check_number("target", 0.05)
    0.05
    """
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value) or value <= 0:
        raise InputError(f"{name} must be a number > 0, got {value!r}")
    return float(value)


def check_share(name: str, value: object, low: float = 0, high: float = 1) -> float:
    """Return a number between the ends, 0 and 1 themselves left out.

    >>> check_share("eta", 0.05)
    0.05
    """
    if isinstance(value, bool) or not isinstance(value, Real) or not low <= float(value) <= high or value in (0, 1):
        wanted = "above 0 and below 1" if (low, high) == (0, 1) else f"between {low} and {high}"
        raise InputError(f"{name} must be {wanted}, got {value!r}")
    return float(value)


def check_level(value: object) -> float:
    """Return how often an interval shall hold; beyond these ends neither noise nor floats tell anything.

    >>> check_level(0.95)
    0.95
    """
    return check_share("level", value, *LEVELS)


def check_choice(name: str, value: Any, choices: Iterable[Any]) -> None:
    """Refuse what is not among ``choices``."""
    allowed = list(choices)
    if value not in allowed:
        named = ", ".join(choice if isinstance(choice, str) else repr(choice) for choice in allowed)
        wanted = " or ".join(map(repr, allowed)) if len(allowed) == 2 else f"one of {named}"
        raise InputError(f"{name} must be {wanted}, got {value!r}")


def undeclared(groups: Sequence[str]) -> str:
    """Say that a row is of none of these groups.

    >>> undeclared(["DE", "FR"])
    "groups must be declared (DE, FR), got a row of another one: declare it or drop such rows with unknown='drop'"
    """
    return (
        f"groups must be declared ({inert(', '.join(groups[:12]))}), got a row of another one: declare it or drop such "
        f"rows with unknown='drop'"
    )
