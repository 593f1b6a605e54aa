"""Guessed shapes: how the counts of d cells might be spread, before any data are seen.

A shape is a law of the counts. :func:`shaped` turns it into a tally of true counts (``values``, ``cells``) that adds up
to d: by a random draw, as data would come, or without chance, the cumulative shares rounded to whole cells. The draw
matters for a plan: real data are rough, and an estimator that smooths cannot find the roughness of a given data
set, only its law.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..arrays import Floats, Int64
from ..errors import InputError
from ..noisy import combine

__all__ = ["NAMED", "shape_text", "shaped"]


NAMED = {
    "geometric": "P(h) ∝ (m/(m+1))^h, mean m",
    "normal": "70 % zeros, the rest normal(m, m/7)",
    "ones": "every item once",
    "poisson": "Poisson with mean m",
    "power": "P(h ≥ t) = t^(1−s), a power law of exponent s",
    "uniform": "uniform on 0..m",
}
"""Shapes by name, written ``name:parameter``."""

DENSE = 10_000
"""A power law is laid out one count at a time up to here, beyond by rank."""

RANKS = 100_000
"""Most far-tail values of a power law that are told apart."""


def shape_text(shape: Any) -> str:
    """Say in a few words what shape was given.

    >>> shape_text(2.2), shape_text("poisson:5"), shape_text({1: 3, 2: 1})
    ('power:2.2', 'poisson:5', 'profile of 2 counts')
    """
    if isinstance(shape, str):
        return shape
    if isinstance(shape, int | float) and not isinstance(shape, bool):
        return f"power:{shape:g}"
    return f"profile of {_law(shape)[0].size:,} counts"


def shaped(shape: Any, cells: int, rng: np.random.Generator | None = None) -> tuple[Int64, Int64]:
    """Return true counts and how many of ``cells`` cells hold each, drawn with ``rng`` or rounded without one.

    >>> values, cells = shaped("geometric:1", 8)
    >>> values.tolist(), cells.tolist()
    ([0, 1, 2, 3], [4, 2, 1, 1])
    """
    if isinstance(shape, int | float) and not isinstance(shape, bool):
        return _power_law(float(shape), cells, rng)
    if isinstance(shape, str):
        name, _, parameter = shape.partition(":")
        if name not in NAMED:
            raise InputError(
                f"shape must be a power-law exponent, a profile, or one of {', '.join(NAMED)} "
                f"as name:parameter, got {shape!r}"
            )
        if name == "power":
            return _power_law(_number(shape, parameter), cells, rng)
        return _spread(*_named(name, shape, parameter, cells), cells, rng)
    return _spread(*_law(shape), cells, rng)


def _number(shape: str, parameter: str) -> float:
    try:
        value = float(parameter)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"the shape's parameter must be a number > 0, as in 'poisson:5', got {shape!r}")
    return value


def _named(name: str, shape: str, parameter: str, cells: int) -> tuple[Int64, Floats]:
    from scipy import stats

    if name == "ones":
        return np.array([1], dtype=np.int64), np.ones(1)
    m = _number(shape, parameter)
    if m > 1e6:
        raise InputError(f"the shape's parameter must be at most 1,000,000, got {shape!r}")
    laws: dict[str, Any] = {
        "geometric": lambda: stats.geom(1 / (m + 1), loc=-1),
        "poisson": lambda: stats.poisson(m),
        "uniform": lambda: stats.randint(0, round(m) + 1),
    }
    if name == "normal":
        t = np.arange(math.ceil(2 * m) + 1, dtype=np.int64)
        edges = stats.norm(m, max(m / 7, 0.3)).cdf(np.append(t - 0.5, t[-1] + 0.5))
        law = 0.3 * np.diff(edges) / (edges[-1] - edges[0])
        law[0] += 0.7
        return t, law
    chosen = laws[name]()
    t = np.arange(int(chosen.ppf(1 - 0.1 / cells)) + 1, dtype=np.int64)
    return t, np.asarray(chosen.pmf(t), dtype=float)


def _law(shape: Any) -> tuple[Int64, Floats]:
    """Return support and mass of a profile given as a Profile, a mapping t → share or number, or f[0], f[1], …"""
    if hasattr(shape, "support") and hasattr(shape, "mass"):
        support, mass = np.asarray(shape.support), np.asarray(shape.mass, dtype=float)
    elif isinstance(shape, Mapping):
        support = np.array(sorted(shape))
        mass = np.array([shape[t] for t in sorted(shape)], dtype=float)
    else:
        try:
            mass = np.asarray(shape, dtype=float)
        except (TypeError, ValueError):
            raise InputError(f"shape must be a number, a name or a profile, got {shape!r}") from None
        support = np.arange(mass.size)
    if mass.ndim != 1 or mass.size == 0 or support.dtype.kind not in "iu" or (support < 0).any():
        raise InputError("a shape given as a profile must map counts ≥ 0 to shares")
    mass = mass.clip(0) if hasattr(shape, "method") else mass
    if not np.isfinite(mass).all() or (mass < 0).any() or mass.sum() <= 0:
        raise InputError("the shares of a shape must be ≥ 0 and not all 0")
    return support.astype(np.int64), mass / mass.sum()


def _spread(
    values: Int64, law: Floats, cells: int, rng: np.random.Generator | None
) -> tuple[Int64, Int64]:
    """Draw the cells from the law, or round its cumulative shares to whole cells."""
    if rng is None:
        how_many = np.diff(np.rint(np.cumsum(law) / law.sum() * cells).astype(np.int64), prepend=0)
    else:
        how_many = rng.multinomial(cells, law / law.sum()).astype(np.int64)
    keep = how_many > 0
    return values[keep], how_many[keep]


def _power_law(exponent: float, cells: int, rng: np.random.Generator | None) -> tuple[Int64, Int64]:
    """P(h ≥ t) = t^(1−s) for t = 1, 2, …: count by count up to DENSE, beyond by rank or one by one."""
    if not (math.isfinite(exponent) and exponent > 1):
        raise InputError(f"the exponent of a power law must be > 1, got {exponent}")
    at_least = np.arange(1, DENSE + 2, dtype=float) ** (1 - exponent)
    law = np.append(-np.diff(at_least), at_least[-1])
    values, how_many = _spread(np.arange(1, DENSE + 2, dtype=np.int64), law, cells, rng)
    if values[-1] <= DENSE:
        return values, how_many
    beyond = int(how_many[-1])
    far, number = _far_tail(exponent, cells, beyond, rng)
    return combine([(values[:-1], how_many[:-1]), (far, number)])


def _far_tail(
    exponent: float, cells: int, beyond: int, rng: np.random.Generator | None
) -> tuple[Int64, Int64]:
    """Return the counts above DENSE of ``beyond`` cells, at most RANKS of them told apart."""
    edges = np.unique(np.rint(np.linspace(0, beyond, min(beyond, RANKS) + 1)).astype(np.int64))
    share = (edges[:-1] + edges[1:]) / (2 * beyond) if rng is None else 1 - rng.random(edges.size - 1)
    far = np.minimum((DENSE + 1) * share ** (-1 / (exponent - 1)), 1e15).astype(np.int64)
    return far, np.diff(edges)
