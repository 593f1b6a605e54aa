"""What every baseline is: a mechanism with a name, a source, a trust model, a unit: true counts to profile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from .._sampler import discrete_laplace
from ..arrays import Floats, Int64
from ..errors import InputError
from ..noise import Exact

__all__ = ["Mechanism", "Released", "as_true_counts", "from_curve", "from_values", "noise", "public_bound"]

Model = Literal["central", "pan-private", "local noise"]


@dataclass(frozen=True, eq=False)
class Released:
    """What a mechanism says: ``items[i]`` items have count ``support[i]`` ≥ 1, ascending."""

    support: Int64
    items: Floats


@dataclass(frozen=True)
class Mechanism:
    """One system of the field.

    model : "central" (one trusted holder of the rows), "pan-private" (its state is protected too), "local noise" (noise
        before anything leaves a site)
    unit : what ε protects, added or removed
    citation : where it comes from
    chosen : what we chose where its source leaves it open, or asks for something that we do not have
    """

    name: str
    model: Model
    unit: str
    citation: str
    run: Callable[[Int64, Exact], Released]
    chosen: str = ""

    def __call__(self, counts: Any, epsilon: Exact) -> Released:
        return self.run(as_true_counts(counts), epsilon)


def as_true_counts(counts: Any) -> Int64:
    """Return the true counts of all items of the domain, zeros included."""
    array = np.asarray(counts)
    if array.ndim != 1 or array.dtype.kind not in "iu" or (array.size and int(array.min()) < 0):
        raise InputError("counts must be a one-dimensional array of integers ≥ 0")
    return array.astype(np.int64)


def noise(size: int, epsilon: Exact, changes: int = 1) -> Int64:
    """Discrete Laplace noise for numbers of which one unit moves ``changes`` in all."""
    from ..noise import exact_positive

    return discrete_laplace(size, exact_positive("epsilon", epsilon) / changes)


def public_bound(counts: Int64) -> int:
    """Return a bound on counts for mechanisms that need one: ten times the largest, at least 100, as if somebody knew.

    >>> public_bound(np.array([3, 25])), public_bound(np.array([1]))
    (250, 100)
    """
    return max(100, 10 * int(counts.max(initial=1)))


def from_values(values: Any) -> Released:
    """Return the profile of a list of (fractional) counts, each rounded to the nearest integer."""
    whole = np.rint(np.asarray(values, dtype=float)).astype(np.int64)
    support, items = np.unique(whole[whole > 0], return_counts=True)
    return Released(support, items.astype(float))


def from_curve(reached: Any) -> Released:
    """Return the profile whose items with count ≥ t are reached[t − 1], a falling curve ≥ 0.

    >>> released = from_curve([5, 5, 2])
    >>> released.support.tolist(), released.items.tolist()
    ([2, 3], [3.0, 2.0])
    """
    curve = np.append(np.asarray(reached, dtype=float), 0.0)
    step = curve[:-1] - curve[1:]
    at = np.flatnonzero(step > 0)
    return Released(at + 1, step[at])
