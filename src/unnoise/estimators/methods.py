"""The table of methods: the one place that says which estimators there are and what each of them is like.

Adding an estimator takes its module, with a function of the method's name, and one row here: ``reconstruct``,
``compare``, ``plan``, the command line and the item profiles all read this table.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from ..errors import InputError

if TYPE_CHECKING:
    from ..noisy import NoisyProfile
    from ._fit import Fit

__all__ = ["METHODS", "Items", "Method", "check_method", "estimate_law"]

Items = Literal["fitted", "decompounded"]


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
    "likelihood": Method("banded", items="fitted"),
    "exact": Method("banded", norms=NORMS, needs_negatives=True),
    "isotonic": Method("isotonic"),
    "linear": Method("linear"),
    "paper": Method("paper", norms=NORMS, needs_negatives=True),
    "lp": Method("lp", norms=(1, math.inf), needs_negatives=True),
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
