"""The two kinds of array that travel through the package, 64-bit numbers, real and whole; and one thread for them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["Floats", "Int64", "one_thread"]

Floats = NDArray[np.float64]
Int64 = NDArray[np.int64]

P = ParamSpec("P")
R = TypeVar("R")


def one_thread(function: Callable[P, R]) -> Callable[P, R]:
    """Let linear algebra have one thread while this function runs, where threadpoolctl is installed.

    Hundreds of small systems: threads only wait for each other, and on a busy machine, or in a container with fewer
    cores than its host, they wait up to ninety times as long as the work takes.
    """

    @wraps(function)
    def alone(*args: P.args, **named: P.kwargs) -> R:
        try:
            from threadpoolctl import threadpool_limits
        except ImportError:
            return function(*args, **named)
        with threadpool_limits(1, user_api="blas"):
            return function(*args, **named)

    return alone
