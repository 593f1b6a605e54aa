"""The law of noisy cells that many items share, and its likelihood in the item profile.

Symbols: N_t is the number of items with count t, p the share of the items that belong to a range of m cells
(1 without levels), λ_t = p·N_t/m. Hashing throws the items into the cells independently, so a cell's total is
compound Poisson,

    G(z) = Σ_s P(total = s)·z^s = exp(Σ_t λ_t·(z^t − 1)),

and a noisy cell holds total + Z. Its law m = K·G moves with the parameters as ∂m/∂N_t = (p/m)·(shift_t(m) − m):
no further convolution, because shifting commutes with adding noise.

Counts are gathered in blocks (one count wide up to ``Grid.dense``, then a fixed number to the octave) over which
items are taken to be spread evenly, with one more parameter for all counts above ``Grid.top``; noisy counts are
gathered in rows in the same way. The derivative for a block is a difference of the twice cumulated law.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import Floats, Int64
from ..noise import DiscreteLaplace
from ..noisy import NoisyProfile
from ._convolve import convolve
from ._series import exponential

__all__ = ["Grid", "Likelihood", "Part", "blocks", "cell_law"]


NEGLIGIBLE = 1e-13
"""Probability of noise that the likelihood leaves out."""

BACKGROUND = 0.01
"""Cells added to every row, seen and expected alike: far below one cell, far above rounding."""


def blocks(dense: int, top: int, per_octave: int) -> Int64:
    """Return the first counts of blocks that cover 1..top, and top + 1 at the end.

    >>> blocks(4, 12, 2)
    array([ 1,  2,  3,  4,  5,  7, 10, 13])
    """
    starts = list(range(1, min(dense, top) + 1))
    start = len(starts) + 1
    while start <= top:
        starts.append(start)
        start = max(start + 1, round(start * 2 ** (1 / per_octave)))
    return np.array([*starts, top + 1], dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Grid:
    """Blocks of counts (parameters) and of noisy counts (rows).

    starts : first count of each block, and top + 1 at the end
    ends : last noisy count of each row; all below the first belong to it, all above the last to one more row
    pmf : the noise from −reach to reach
    """

    starts: Int64
    ends: Int64
    pmf: Floats
    dense: int

    @classmethod
    def make(cls, noise: DiscreteLaplace, largest: int, *, dense: int = 256, top: int = 4096,
             per_octave: int = 16) -> Grid:
        """Cover noisy counts up to ``largest``, or as many as a grid up to ``top`` counts allows."""
        reach = noise.reach(NEGLIGIBLE)
        top = min(max(largest, 1) + reach + 1, max(top, dense + 2 * reach))
        last = top - reach
        # For ρ = 1 what lies below 0 carries no information; else it does, as far as noise is likely to go.
        low = 0 if noise.power == 1 else -noise.reach(1e-4)
        rows = np.arange(low, 1, dtype=np.int64)
        above = blocks(dense, last, per_octave)[1:] - 1
        return cls(blocks(dense, top, per_octave), np.concatenate([rows, above]),
                   noise.pmf(np.arange(-reach, reach + 1)), min(dense, top))

    @property
    def reach(self) -> int:
        """Largest noise accounted for."""
        return self.pmf.size // 2

    @property
    def top(self) -> int:
        """Largest count with a block of its own."""
        return int(self.starts[-1]) - 1

    @property
    def widths(self) -> Int64:
        """Number of counts in each block."""
        return np.diff(self.starts)

    @property
    def size(self) -> int:
        """Number of parameters: the blocks, and one for the counts above top."""
        return int(self.starts.size)

    def spread(self, items: Floats) -> Floats:
        """Return the items at each count 0..top, spread evenly over the blocks."""
        return np.concatenate([[0.0], np.repeat(items[:-1] / self.widths, self.widths)])

    def gather(self, per_count: Floats, above: float = 0.0) -> Floats:
        """Add up values given for the counts 0..top over the blocks (the last one is for counts above top)."""
        return np.concatenate([np.add.reduceat(per_count[1:], self.starts[:-1] - 1), [above]])


def cell_law(items: Floats, rate: float, above: float = 0.0) -> Floats:
    """Return P(total = s), s = 0..T, for ``items[t]`` items of count t, each in a cell with probability ``rate``.

    ``above`` is the number of items with counts past the end. Rounding may leave −10⁻¹⁶: cut off at 0.

    >>> cell_law(np.array([0.0, 2.0, 0.0]), 0.5).round(4)      # Poisson(1)
    array([0.3679, 0.3679, 0.1839])
    """
    exponent = items * rate
    exponent[0] = -(items.sum() + above) * rate
    return np.maximum(exponential(exponent), 0.0)


@dataclass(frozen=True, eq=False)
class Part:
    """One range of cells: its noisy cells by rows of the grid, their number, and its share of the items."""

    tally: Floats
    cells: int
    share: float

    @classmethod
    def of(cls, noisy: NoisyProfile, share: float, grid: Grid) -> Part:
        """Tally a noisy profile by the rows of the grid."""
        row = np.searchsorted(grid.ends, noisy.values, side="left")
        cells = np.bincount(row, weights=noisy.tally, minlength=grid.ends.size + 1).astype(float)
        return cls(cells, noisy.cells, share)

    @property
    def rate(self) -> float:
        """Probability that an item falls into a given cell of this range."""
        return self.share / self.cells


@dataclass(frozen=True, eq=False)
class Likelihood:
    """Log-likelihood of the item numbers (by blocks of the grid) over independent ranges of cells."""

    grid: Grid
    parts: tuple[Part, ...]
    noisy: tuple[NoisyProfile, ...] = ()

    def windows(
        self, items: Floats, part: Part, noisy: NoisyProfile, edges: Int64, stop: int
    ) -> tuple[Floats, Floats]:
        """Return seen and expected noisy cells between successive ``edges``, the last window ending at ``stop``."""
        grid = self.grid
        law = cell_law(grid.spread(items), part.rate, float(items[-1]))
        chances = np.maximum(convolve(law, grid.pmf)[: grid.top + 1], 0.0)
        bounds = np.append(edges, stop)
        cumulated = np.concatenate([[0.0], np.cumsum(chances)])[bounds + grid.reach]
        which = np.searchsorted(bounds, noisy.values, side="right") - 1
        inside = (which >= 0) & (which < edges.size)
        seen = np.bincount(which[inside], weights=noisy.tally[inside], minlength=edges.size)
        return seen.astype(float), part.cells * np.diff(cumulated)

    def _rows(self, items: Floats, part: Part) -> tuple[Floats, Floats]:
        """Return the probability of each row, and the twice cumulated law from −reach on."""
        grid = self.grid
        law = cell_law(grid.spread(items), part.rate, float(items[-1]))
        noisy = np.maximum(convolve(law, grid.pmf)[: grid.top + 1], 0.0)
        cumulated = np.cumsum(noisy)
        at_ends = np.concatenate([[0.0], cumulated[grid.ends + grid.reach], [1.0]])
        return np.maximum(np.diff(at_ends), 0.0) + BACKGROUND / part.cells, np.cumsum(cumulated)

    def _shifted(self, twice: Floats) -> Floats:
        """Return, for each parameter, the probabilities of the rows with one such item added to every cell."""
        grid = self.grid
        back = grid.ends[:, None] + grid.reach - grid.starts[None, :]
        sums = np.where(back >= 0, twice[np.maximum(back, 0)], 0.0)
        cumulated = np.zeros((grid.ends.size + 2, grid.size))
        cumulated[1:-1, :-1] = (sums[:, :-1] - sums[:, 1:]) / grid.widths
        cumulated[-1] = 1.0
        return np.diff(cumulated, axis=0)

    def value(self, items: Floats) -> float:
        """Return the log-likelihood."""
        return float(sum((part.tally + BACKGROUND) @ np.log(self._rows(items, part)[0]) for part in self.parts))

    def em_step(self, items: Floats) -> Floats:
        """Return the expected item numbers given the noisy cells: never less likely (Dempster et al. 1977)."""
        total = np.zeros(self.grid.size)
        for part in self.parts:
            rows, twice = self._rows(items, part)
            total += part.rate * (self._shifted(twice).T @ (part.tally / rows))
        return np.asarray(items * total / sum(part.share for part in self.parts))

    def score(self, items: Floats) -> tuple[float, Floats, Floats]:
        """Return the log-likelihood, its gradient, and the Fisher information."""
        value, gradient = 0.0, np.zeros(self.grid.size)
        information = np.zeros((self.grid.size, self.grid.size))
        for part in self.parts:
            rows, twice = self._rows(items, part)
            change = part.rate * (self._shifted(twice) - (rows - BACKGROUND / part.cells)[:, None])
            seen = part.tally + BACKGROUND
            value += float(seen @ np.log(rows))
            gradient += change.T @ (seen / rows)
            information += part.cells * (change.T @ (change / rows[:, None]))
        return value, gradient, information
