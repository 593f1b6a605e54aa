"""The table of methods: which estimators there are, what each asks of its input before it starts, what it returns.

Adding an estimator takes its module, with a function of the method's name, and one row here: ``reconstruct``,
``compare``, ``plan``, the command line and the item profiles all read this table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal

from ..arrays import Floats, Int64
from ..checks import is_integer
from ..errors import InputError, PrivacyError
from ..noise import DiscreteLaplace
from ..noisy import NoisyProfile

__all__ = [
    "LARGEST", "METHODS", "Fit", "Items", "Method", "Notice", "capped", "check_input", "check_max_count",
    "check_method", "check_noise", "estimate_law",
]  # fmt: skip

Items = Literal["fitted", "decompounded"]

MOST_SPREAD = 1 << 21
"""Standard deviation of the noise up to which cells are answered: beyond, memory for all counts within its reach, some
kB for each 1, is more than a machine has, and nothing could be told."""


@dataclass(frozen=True)
class Method:
    """What is known of a method.

    module : the module of :mod:`unnoise.estimators` that holds its function
    norms : the ℓp norms that it minimises, none for most
    needs_negatives : noisy counts below 0 carry something for it, so clipped input is unfolded first
    items : how the items beneath a hashed sketch are found: "fitted" directly, or "decompounded" from its cells
    """

    module: str
    norms: tuple[float, ...] = ()
    needs_negatives: bool = False
    items: Items = "decompounded"

    @property
    def norm(self) -> float:
        """The norm where none is chosen: 2, or the first it has."""
        return self.norms[0] if self.norms and 2 not in self.norms else 2


NORMS = (1, 2, math.inf)

METHODS: dict[str, Method] = {
    "auto": Method("auto", items="fitted"),
    "smooth": Method("auto", items="fitted"),
    "likelihood": Method("likelihood", items="fitted"),
    "exact": Method("exact", norms=NORMS, needs_negatives=True),
    "isotonic": Method("isotonic"),
    "linear": Method("linear"),
    "paper": Method("paper", norms=NORMS, needs_negatives=True),
    "lp": Method("paper", norms=(1, math.inf), needs_negatives=True),
}
"""Every method, in the order in which they are shown."""


def check_method(method: Any, norm: Any = None) -> Method:
    """Return the row of a method; refuse a name that is not there, or a norm that does not go with it.

    >>> check_method("paper").norms
    (1, 2, inf)
    """
    if method not in METHODS:
        raise InputError(f"method must be one of {', '.join(sorted(METHODS))}, got {method!r}")
    row = METHODS[method]
    if norm is None:
        return row
    if isinstance(norm, bool) or norm not in NORMS:
        raise InputError(f"norm must be 1, 2 or inf, got {norm!r}")
    if row.norms and norm not in row.norms:
        raise InputError(f"norm must be 1 or inf for method {method!r}, got {norm!r}")
    return row


def estimate_law(noisy: NoisyProfile, method: str, norm: float = 2, max_count: int | None = None) -> Fit:
    """Call the estimator ``method`` on a noisy profile."""
    row = METHODS[method]
    function: Callable[..., Fit] = getattr(import_module(f".{row.module}", __package__), method)
    return function(noisy, max_count=max_count, **({"norm": norm} if row.norms else {}))


# ── what goes in and what comes out ─────────────────────────────────────────────────────────────────────────────────

LARGEST = 1 << 62
"""Noisy counts must stay below this, so that neighbours of a count never overflow 64 bits."""


@dataclass(frozen=True)
class Notice:
    """Something a reader of the answers must know.

    code : "overload", "too-noisy", "model", "misfit", "fallback", "few-items", "unbounded" or "capped", for programs
    text : a sentence, for people
    """

    code: str
    text: str

    def __str__(self) -> str:
        return self.text


def capped(cap: int) -> Notice:
    """Say that larger counts were taken as this one.

    >>> print(capped(3))
    counts above 3 were taken as 3, which means 3 or more: nothing here tells of larger counts
    """
    meant = f"which means {cap:,} or more: nothing here tells of larger counts"
    return Notice("capped", f"counts above {cap:,} were taken as {cap:,}, {meant}")


@dataclass(frozen=True, eq=False)
class Fit:
    """An estimated law of the cells, sparse: ``mass[i]`` is the share of cells with count ``support[i]``.

    support : ascending counts ≥ 0, int64
    mass : float64, equally long, adding up to 1; ≥ 0 for every method but ``linear``
    method : name of the estimator
    diagnostics : what the estimator has to say of its run
    notices : what a reader of the answers must know, in every surface
    """

    support: Int64
    mass: Floats
    method: str
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    notices: tuple[Notice, ...] = ()


def check_noise(noise: Any) -> DiscreteLaplace:
    """Refuse what is not discrete Laplace noise of power ≥ 1, or too strong."""
    if not isinstance(noise, DiscreteLaplace):
        raise InputError(f"noise must be a DiscreteLaplace, got {type(noise).__name__}")
    if noise.power < 1:
        raise PrivacyError(
            f"power must be ≥ 1 to reconstruct, got {noise.power}: less than one noise is a secret share, "
            f"it would give epsilon={noise.actual_epsilon:.3g} in place of {float(noise.epsilon):g}"
        )
    if noise.variance > MOST_SPREAD**2:
        times = "" if noise.power == 1 else f" added up {float(noise.power):g} times"
        raise InputError(
            f"noise on cells must have a standard deviation of at most {MOST_SPREAD:,}, or nothing can be told, "
            f"got {noise.variance**0.5:.2g} for ε = {float(noise.epsilon):g} per occurrence{times}: take a larger ε"
        )
    return noise


def check_max_count(max_count: Any, least: int = 0) -> int | None:
    """Return a declared upper bound of the counts as an int ≥ ``least``, 1 for items; None where there is none."""
    if max_count is None:
        return None
    if not is_integer(max_count):
        raise InputError(f"max_count must be an integer or None, got {max_count!r}")
    if not least <= max_count < LARGEST:
        raise InputError(f"max_count must be ≥ {least} and below 2^62, got {max_count}")
    return int(max_count)


def check_input(noisy: Any, max_count: Any, least: int = 0) -> int | None:
    """Check a noisy profile and a declared bound; return the bound."""
    if not isinstance(noisy, NoisyProfile):
        raise InputError(f"noisy must be a NoisyProfile, got {type(noisy).__name__}")
    check_noise(noisy.noise)
    if abs(int(noisy.values[0])) >= LARGEST or abs(int(noisy.values[-1])) >= LARGEST:
        raise InputError(f"noisy counts must be below 2^62, got {noisy.values[0]} to {noisy.values[-1]}")
    return check_max_count(max_count, least)
