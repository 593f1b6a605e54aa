"""Releases that might be: data of a guessed shape, counted as a sketch of any kind counts, with noise upon them.

A :class:`Setting` is everything public about a release. :meth:`Setting.draw` draws true counts from the shape, anew
for every release, puts them into cells and adds the noise:

* known: one cell per item of a domain, items of count 0 included;
* hashed: every item that occurs falls into one of the cells of its level by chance; the level is ℓ with probability
  2^−(ℓ+1), the last one taking what is left;
* sampled: every item of the domain has a cell with probability cells/items.

Merging k sketches adds up k noises; the shape is that of the merged data. Cells of equal count are drawn together, by a
multinomial, so that the time follows the number of different counts (hashed: the number of items).

A shape is a law of the counts, guessed before any data are seen. :func:`shaped` turns it into a tally of true counts
(``values``, ``cells``) that adds up to d: by a random draw, as data would come, or without chance, the cumulative
shares rounded to whole cells. The draw matters for a plan: real data are rough, and an estimator that smooths cannot
find the roughness of a given data set, only its law.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from ..arrays import Floats, Int64
from ..errors import InputError
from ..layout import Layout, enough_cells
from ..noise import DiscreteLaplace
from ..noisy import NoisyProfile, combine, tally
from .estimate import number
from .profile import Profile

__all__ = [
    "KINDS", "MOST_HASHED", "NAMED", "Release", "Setting", "draw_noisy_profile", "errors", "shape_text", "shaped",
]  # fmt: skip

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


def shaped(
    shape: Any, cells: int, rng: np.random.Generator | None = None, *, occurring: bool = False
) -> tuple[Int64, Int64]:
    """Return true counts and how many of ``cells`` cells hold each, drawn with ``rng`` or rounded without one.

    ``occurring``: of items that occur, the counts that the shape has above 0.

    >>> values, cells = shaped("geometric:1", 8)
    >>> values.tolist(), cells.tolist()
    ([0, 1, 2, 3], [4, 2, 1, 1])
    >>> shaped("geometric:1", 8, occurring=True)[1].tolist()
    [4, 2, 1, 1]
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
        values, law = _named(name, shape, parameter, cells)
    else:
        values, law = _law(shape)
    there = values > 0 if occurring and law[values > 0].any() else slice(None)
    return _spread(values[there], law[there], cells, rng)


def _number(shape: str, parameter: str) -> float:
    try:
        value = float(parameter.encode("ascii"))
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


KINDS = ("known", "hashed", "sampled")

MOST_HASHED = 10**8
"""Most items that are thrown into cells one by one."""

STANDS_OUT = 4.0
"""Deviations of the noise from which on an item stands out by itself: however much larger, it hides no others."""

TAIL = 1e-13
"""Noise beyond the reach of this probability is left out of the drawing."""


class Release(NamedTuple):
    """A simulated release and the truth behind it: which counts occur, and how many items have each."""

    noisy: NoisyProfile
    values: Int64
    how_many: Int64


@dataclass(frozen=True)
class Setting:
    """What is public about a release.

    kind : "known", "hashed" or "sampled"
    epsilon : ε of each sketch
    cells : number of cells
    items : items of the domain (known, sampled) or distinct items (hashed)
    levels : levels of a hashed sketch
    merges : sketches added up
    cap : largest count there can be, or None
    shape : law of the counts of the items
    """

    kind: str
    epsilon: float
    cells: int
    items: int
    levels: int = 1
    merges: int = 1
    cap: int | None = None
    shape: Any = 2.0

    def __post_init__(self) -> None:
        if self.kind == "sampled" and self.items < self.cells:
            raise InputError(f"items must be at least cells={self.cells} of a sampled sketch, got {self.items}")
        if self.kind == "hashed" and self.items > MOST_HASHED:
            raise InputError(f"items must be at most {MOST_HASHED:,} to be simulated, got {self.items:,}")

    @property
    def law(self) -> DiscreteLaplace:
        """The noise in a cell after merging."""
        return DiscreteLaplace(self.epsilon, self.merges)

    @property
    def likely_cells(self) -> int:
        """Cells that the guessed counts need (:func:`~unnoise.layout.enough_cells`), whatever ``cells`` is."""
        values, how_many = self.counts(None)
        loud = np.minimum(values, max(STANDS_OUT * math.sqrt(self.law.variance), 1.0))
        return enough_cells(float(loud**2 @ how_many), float(how_many.sum()), self.law)

    def counts(self, rng: np.random.Generator | None) -> tuple[Int64, Int64]:
        """Return the true counts that occur and how many items have each; without chance if there is no ``rng``."""
        values, how_many = shaped(self.shape, self.items, rng, occurring=self.kind == "hashed")
        if self.cap is not None:
            values, how_many = combine([(np.minimum(values, self.cap), how_many)])
        if self.kind == "hashed":
            values, how_many = values[values > 0], how_many[values > 0]
        return values, how_many

    def draw(self, rng: np.random.Generator) -> Release:
        """Draw a data set and its release."""
        values, how_many = self.counts(rng)
        if self.kind == "hashed":
            return Release(self._hashed(values, how_many, rng), values, how_many)
        if self.kind == "known":
            return Release(draw_noisy_profile(values, how_many, self.law, rng), values, how_many)
        seen = rng.binomial(how_many, self.cells / self.items)
        if seen.sum() == 0:
            seen[0] = 1
        noisy = draw_noisy_profile(values[seen > 0], seen[seen > 0], self.law, rng)
        rate = Fraction(self.cells, self.items)
        layout = Layout(kind="sampled", cells=int(seen.sum()), domain=self.items, rate=rate, hash_seed=0)
        return Release(NoisyProfile(noisy.values, noisy.tally, noisy.noise, layout), values, how_many)

    def _hashed(self, values: Int64, how_many: Int64, rng: np.random.Generator) -> NoisyProfile:
        size = max(1, self.cells // self.levels)
        item = np.repeat(values, how_many).astype(float)
        level = np.minimum(rng.geometric(0.5, item.size) - 1, self.levels - 1)
        cell = level * size + rng.integers(0, size, item.size)
        cells = np.bincount(cell, weights=item, minlength=size * self.levels).astype(np.int64)
        layout = Layout(kind="hashed", cells=size, hash_seed=0)
        parts = tuple(
            NoisyProfile(noisy.values, noisy.tally, self.law, layout)
            for noisy in (
                draw_noisy_profile(*tally(part), self.law, rng) for part in np.split(cells, self.levels)
            )
        )
        if self.levels == 1:
            return parts[0]
        whole = Layout(kind="hashed", cells=size * self.levels, levels=self.levels, hash_seed=0)
        return NoisyProfile(*combine([(p.values, p.tally) for p in parts]), self.law, whole, parts)

    def assumptions(self) -> list[str]:
        """What the figures rest on, in plain words."""
        some = f"{number(self.items)} distinct item{'' if self.items == 1 else 's'}"
        what = {
            "known": f"one cell for each of {number(self.items)} items",
            "hashed": f"{some} in {number(self.cells)} cells "
            f"({self.items / self.cells:.2g} items a cell{f', {self.levels} levels' if self.levels > 1 else ''})",
            "sampled": f"cells for {number(self.cells)} of {number(self.items)} items",
        }[self.kind]
        said = [
            f"a {self.kind} sketch: {what}",
            f"counts that follow {shape_text(self.shape)}, drawn anew for every release: other data, other errors",
            f"ε = {self.epsilon:g} for one occurrence; for persons with up to C of them divide ε by C first",
        ]
        if self.merges > 1:
            said.append(f"{self.merges} sketches merged, each with its noise; the counts are those of the merged data")
        if self.cap is not None:
            said.append(f"no count above {number(self.cap)}, and the estimator is told so")
        return said


def draw_noisy_profile(
    values: Int64, how_many: Int64, law: DiscreteLaplace, rng: np.random.Generator
) -> NoisyProfile:
    """Draw the noisy profile of cells with known counts: a simulation, neither secret nor private."""
    reach = law.reach(TAIL)
    common = how_many > 2 * reach
    grid = np.arange(-reach, reach + 1)
    pmf = law.pmf(grid)
    pmf = pmf / pmf.sum()
    rare = np.repeat(values[~common], how_many[~common])
    noise = grid[np.searchsorted(np.cumsum(pmf)[:-1], rng.random(rare.size), side="right")]
    pairs = [(rare + noise, np.ones(rare.size, dtype=np.int64))]
    for value, cells in zip(values[common].tolist(), how_many[common].tolist()):
        drawn = rng.multinomial(cells, pmf)
        pairs.append(((value + grid)[drawn > 0], drawn[drawn > 0]))
    points, counted = combine(pairs)
    return NoisyProfile.from_tally(points, counted, noise=law)


def errors(profile: Profile, values: Int64, how_many: Int64) -> dict[str, float]:
    """ℓ1, ℓ2, ℓ∞ and W1 between a reconstructed profile and the true one.

    >>> noisy = NoisyProfile.from_counts([0, 2], epsilon=1)
    >>> guess = Profile(np.array([0, 2]), np.array([0.5, 0.5]), "by hand", noisy)
    >>> errors(guess, np.array([0, 3]), np.array([1, 1]))
    {'l1': 1.0, 'l2': 0.7071067811865476, 'linf': 0.5, 'w1': 0.5}
    """
    support = np.union1d(profile.support, values)
    gap = np.zeros(support.size)
    gap[np.searchsorted(support, profile.support)] += profile.mass
    gap[np.searchsorted(support, values)] -= how_many / how_many.sum()
    w1 = float(np.abs(np.cumsum(gap)[:-1]) @ np.diff(support))
    size = np.abs(gap)
    return {"l1": float(size.sum()), "l2": float(np.sqrt(gap @ gap)), "linf": float(size.max()), "w1": w1}
