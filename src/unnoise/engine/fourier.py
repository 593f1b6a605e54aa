"""The Fourier channel: any power of the noise, with and without collisions, over one or several ranges of cells.

Noise and collisions are products in frequency. With φ(ω) the transform of one noise, ρ its power and r·N_t the mass of
count t per cell (r = 1/cells for a known domain, share/cells for the items of a hashed range),

    known, sampled:   m̂(ω) = φ(ω)^ρ · Σ_t r·N_t·e^(−iωt)                 one more:  ∂m/∂N_t = r·p_ρ shifted by t
    hashed:           m̂(ω) = φ(ω)^ρ · exp(Σ_t r·N_t·(e^(−iωt) − 1))        one more:  ∂m/∂N_t = r·(m shifted by t − m)

so the law takes one transform, and its derivatives are shifts. Masses belong to *blocks* of counts, over which they are
spread evenly, and noisy counts to *rows*; both through running sums: with M₂ the twice cumulated law, the share of
block [s, e) that shows at or below v is (M₂[v − s] − M₂[v − e])/(e − s). Blocks may overlap: a single count inside a
wide block is an *atom*.

Strong noise is smooth: where its deviation is at least 3·STEPS counts, the law is computed on a *lattice* of u counts,
u odd and at most 1/STEPS of the deviation, so that the length of the transform does not grow with 1/ε. The noise there
has the same variance (sinh ε'/2 = u·sinh ε/2), rows end halfway between points of the lattice, and a count between
points is told as masses at three of them with its mean and its square. The probabilities of rows are then off by χ² of
10⁻⁹ to a cell at most (tests/test_engine.py): of no account below 10⁸ cells. Weaker noise has u = 1, and is exact.

Where all counts are multiples of p (:func:`.channel.likely_strides`), blocks are made of its multiples, M₂ cumulates in
strides of p, Σ_i M₁[v − ip], and walks count in units of p. Atoms may be at any count.

The transform is taken on the circle |z| = r < 1 with r^L = 10⁻⁸, L its length [1]_: what lies past L comes back
multiplied by 10⁻⁸, and rounding grows by r^(−L/2) = 10⁴ at most. Items past every row only say "above": e^(−Λ) and one
open row. Every row is given BACKGROUND cells more, seen and expected alike, so that no cell is impossible.

.. [1] P. Embrechts, M. Frei, "Panjer recursion versus FFT for compound distributions", Mathematical Methods of
   Operations Research 69, 2009.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.fft import irfft, rfft
from numpy.typing import NDArray
from scipy import sparse
from scipy.fft import next_fast_len

from ..arrays import Floats, Int64
from ..noise import DiscreteLaplace
from .channel import FAR, SEVERAL, Blocks, Dense, Grid, State, begun, counts_in_blocks

__all__ = ["FourierChannel", "Part", "SeenRows", "lattice", "on_lattice", "row_ends", "rows_of", "told_apart"]

Complex = NDArray[np.complex128]

NEGLIGIBLE = 1e-13
"""Probability of noise that is left out."""

BACKGROUND = 0.01
"""Cells added to every row, seen and expected alike: far below one cell, far above rounding."""

LOST = math.log(1e8)
"""−log r^L: how strongly what lies past the transform's length is suppressed."""

INAUDIBLE = -44.0
"""log |φ^ρ| from which on a frequency is left out: e⁻⁴⁴ = 10⁻¹⁹ is a thousandth of what rounding adds."""

AT_ONCE = 1 << 20
"""Numbers of a transform, over all sets of points that are looked at together: some ten megabytes."""

PER_OCTAVE = 24
"""Rows to the octave far up: 3 % of a count."""

BESIDE = 1
"""Rows on either side of an uneven one that are as fine: where a hill ends within a block of counts, its other cells
are there. (Items of 900 to 1,100 at ε = 1: of 66 answers 13 were outside their interval without, 1 with it.)"""

FINENESS = 8
"""Rows to a standard deviation of the noise: what is told apart within one is (1/8)²/12 = 0.1 % of its information."""


STEPS = 128
"""Points of the lattice to a deviation of the noise, at least."""


def lattice(noise: DiscreteLaplace) -> int:
    """Counts from one point of the lattice to the next: an odd number.

    >>> lattice(DiscreteLaplace(1)), lattice(DiscreteLaplace("1e-3")), lattice(DiscreteLaplace("1e-3", 4))
    (1, 11, 21)
    """
    return max(1, (int(math.sqrt(noise.variance) / STEPS) - 1) // 2 * 2 + 1)


def told_apart(counts: Int64, noise: DiscreteLaplace) -> Int64:
    """Return the first of these counts past each point of the lattice, ascending: the noise hides what they differ by.

    >>> told_apart(np.array([1, 2, 3, 10, 11, 12, 30]), DiscreteLaplace("1e-3"))
    array([ 1, 11, 30])
    """
    counts = np.unique(counts)
    return counts[np.diff(counts // lattice(noise), prepend=-1) > 0]


def on_lattice(noise: DiscreteLaplace, unit: int) -> DiscreteLaplace:
    """The noise in steps of ``unit`` counts: of the same variance, 2ρ/(2·sinh ε/2)².

    >>> fine, coarse = DiscreteLaplace("1e-3", 2), on_lattice(DiscreteLaplace("1e-3", 2), 15)
    >>> round(15**2 * coarse.variance / fine.variance, 9)
    1.0
    """
    return noise if unit == 1 else DiscreteLaplace(2 * math.asinh(unit * math.sinh(noise.epsilon / 2)), noise.power)


def row_ends(ends: Int64, unit: int) -> Int64:
    """The next ends of rows halfway between points of a lattice.

    >>> row_ends(np.array([0, 1, 2, 7]), 5), row_ends(np.array([0, 1, 2, 7]), 1)
    (array([2, 7]), array([0, 1, 2, 7]))
    """
    half = unit // 2
    return np.unique(-(-(ends - half) // unit) * unit + half).astype(np.int64)


def rows_of(values: Int64, tally: Int64, noise: DiscreteLaplace, last: int) -> Int64:
    """Return the last noisy count of each row, up to ``last``; all above are one more row.

    Rows are an eighth of the noise wide, far up 1/PER_OCTAVE of an octave unless the cells there, or beside, are not
    spread evenly over windows as wide as the noise.
    For ρ = 1 what lies below 0 carries no information and is one row with 0; else rows reach down as far as noise is
    likely to go.
    """
    unit = lattice(noise)
    fine = max(1, int(math.sqrt(noise.variance) / FINENESS) // unit) * unit
    low = min(0 if noise.power == 1 else -max(noise.reach(1e-4), 1), last)
    flat = math.ceil(fine * PER_OCTAVE / math.log(2))
    wide = [np.arange(low, min(flat, last) + 1, fine, dtype=np.int64), np.array([last])]
    if last > flat:
        wide.append(counts_in_blocks(flat, last, 0, PER_OCTAVE)[1:] - 1)
    ends = row_ends(np.concatenate(wide), unit)
    running = np.concatenate([[0], np.cumsum(tally)])
    inner = [np.arange(end, start, -fine)[::-1] for start, end in pairwise(ends)]
    rough = np.zeros(len(inner), dtype=bool)
    blurred = max(1, round(math.sqrt(noise.variance) / fine))  # within a deviation the noise spreads cells evenly
    for i, (start, within) in enumerate(zip(ends, inner)):
        below = running[np.searchsorted(values, np.append(start, within), side="right")].astype(float)
        if _uneven(np.diff(below[::-blurred][::-1])):
            rough[max(0, i - BESIDE) : i + BESIDE + 1] = True
    rows = [within if finer else within[-1:] for within, finer in zip(inner, rough)]
    return np.concatenate([ends[:1], *rows]).astype(np.int64)


def _uneven(seen: Floats) -> bool:
    """Whether cells are not spread evenly over equal windows: Pearson's X² four standard deviations above chance.

    >>> _uneven(np.array([3.0, 1.0, 2.0, 2.0])), _uneven(np.array([0.0, 80.0, 1.0, 0.0]))
    (False, True)
    """
    mean = seen.mean() if seen.size > 1 else 0.0
    if mean == 0:
        return False
    excess = float(((seen - mean) ** 2).sum() / mean) - (seen.size - 1)
    return excess > 4 * math.sqrt((2 + 1 / mean) * seen.size)


@dataclass(frozen=True, eq=False)
class Part:
    """One range of cells: the last noisy count of each row, cells in each (one more row is open above), their share.

    share : of the items, those that belong to this range; rate = share/cells is an item's chance to be in a given cell
    """

    ends: Int64
    tally: Floats
    cells: int
    share: float

    @classmethod
    def of(cls, values: Int64, tally: Int64, ends: Int64, share: float) -> Part:
        """Tally noisy counts by rows."""
        row = np.searchsorted(ends, values, side="left")
        by_row = np.bincount(row, weights=tally, minlength=ends.size + 1).astype(float)
        return cls(ends, by_row, int(tally.sum()), share)

    @cached_property
    def rate(self) -> float:
        """Mass of one item in each cell."""
        return self.share / self.cells

    def rows_under(self, cumulated: Floats) -> Floats:
        """Probability of each row, background and all, under a law (or laws, down) cumulated up to the rows' ends."""
        return np.maximum(np.diff(cumulated, prepend=0.0, append=1.0), 0.0) + BACKGROUND / self.cells


@dataclass(frozen=True, eq=False)
class SeenRows(State):
    """Masses seen through the channel: for each part its rows and its cumulated law besides."""

    rows: tuple[Floats, ...]
    once: Floats
    shifts: list[Floats] = field(default_factory=list)


class FourierChannel(Dense):
    """Noisy cells of one or several ranges, of any power, known or hashed.

    blocks : the blocks of counts that masses belong to; widths : number of counts in each of them
    atoms : the single counts with a mass of their own beside the walk; above : FAR where items may lie above every row
    parts : the ranges of cells
    collide : whether items share cells (hashed)
    origin : what counts and noisy counts are counted from: the first count of a run
    bound : largest count that there can be, if known
    exposure : share of the items seen
    """

    def __init__(self, blocks: Blocks, parts: tuple[Part, ...], noise: DiscreteLaplace, *, collide: bool,
                 origin: int = 0, bound: int | None = None, law: _Law | None = None) -> None:
        self.blocks, self.parts, self.noise, self.collide, self.origin = blocks, parts, noise, collide, origin
        self.widths, self.atoms, self.bound = blocks.widths, blocks.atoms, bound
        self.above = self.atoms[self.atoms >= FAR]
        unit = lattice(noise) if blocks.stride == 1 else 1
        self.law = law or _Law(noise, max(int(part.ends[-1]) for part in parts), unit)
        self.exposure = sum(part.share for part in parts)
        self._rates = np.array([[part.rate] for part in parts])
        # where in a cumulated law the rows end: halfway between two points of the lattice
        self._at_ends = [part.ends // self.law.unit - self.law.low for part in parts]

    def with_blocks(self, blocks: Blocks) -> FourierChannel:
        """The same cells with other blocks."""
        return FourierChannel(
            blocks, self.parts, self.noise, collide=self.collide, origin=self.origin, bound=self.bound, law=self.law
        )

    def only(self, counts: Int64) -> FourierChannel:
        """The same cells seen from masses at these counts alone, and above every row if the channel has that."""
        atoms = np.append(counts, self.above)
        return self.with_blocks(Blocks(atoms, atoms + 1, 0))

    @cached_property
    def grid(self) -> Grid:
        """The blocks as walks see them: those side by side, then atoms."""
        blocks, n = self.blocks, self.blocks.covered
        position = np.concatenate([np.arange(n), np.zeros(blocks.size - n, dtype=np.int64)])
        single = bool((blocks.widths[:n] == 1).all())
        unit = blocks.stride
        scale = math.sqrt(self.noise.variance / 2) / unit
        bound = None if self.bound is None else self.bound // unit
        return Grid((blocks.centres + self.origin) / unit, position, n, scale, single, bound, unit)

    def at(self, mass: Floats) -> SeenRows:
        """See these masses through the channel."""
        if not self.collide:  # the law is linear in the masses
            rows = [part.rate * (shifted @ mass) + BACKGROUND / part.cells
                    for part, shifted in zip(self.parts, self._alone)]  # fmt: skip
            value = float(sum(self._told(rows))) - float(mass.sum()) * self.exposure
            return SeenRows(mass, value, tuple(rows), self._noise_once, self._alone)
        at_counts = self.blocks.spread(mass, self.law.last) if self.law.unit == 1 else self._spreading @ mass
        around = self.law.transform(at_counts) - float(mass.sum())
        once = self.law.cumulated(self._rates * around)
        rows = [part.rows_under(law[ends]) for part, ends, law in zip(self.parts, self._at_ends, once)]
        return SeenRows(mass, float(sum(self._told(rows))), tuple(rows), once)

    def values(self, sets: Sequence[tuple[Int64, Floats]]) -> Floats:
        """Log likelihood of masses at a few counts (and above every row, last), for many such sets at once.

        As many at once as AT_ONCE numbers hold.
        """
        most = max(1, AT_ONCE // self.law.length)
        if not 0 < len(sets) <= most:
            batches = (self.values(sets[i : i + most]) for i in range(0, len(sets), most))
            return np.concatenate([np.zeros(0), *batches])
        counts = np.unique(np.concatenate([places for places, _ in sets]))
        masses = np.zeros((len(sets), counts.size + self.above.size))
        for mass, (places, given) in zip(masses, sets):
            mass[np.searchsorted(counts, places)] = given[: places.size]
            mass[counts.size :] = given[places.size :]
        if not self.collide:
            rows = [part.rate * (masses @ shifted.T) + BACKGROUND / part.cells
                    for part, shifted in zip(self.parts, self.only(counts)._alone)]  # fmt: skip
            return np.asarray(np.sum(self._told(rows), axis=0) - masses.sum(axis=1) * self.exposure)
        at_counts = (self.only(counts)._spreading @ masses.T).T
        around = self.law.transform(at_counts) - masses.sum(axis=1)[:, None]
        rows = [part.rows_under(self.law.cumulated(part.rate * around)[:, ends])
                for part, ends in zip(self.parts, self._at_ends)]  # fmt: skip
        return np.asarray(np.sum(self._told(rows), axis=0))

    def _told(self, rows: Sequence[Floats]) -> list[Floats]:
        """Log likelihood of the cells of each part, under one law of its rows or under several (down)."""
        return [np.log(each) @ (part.tally + BACKGROUND) for part, each in zip(self.parts, rows)]

    @cached_property
    def _noise_once(self) -> Floats:
        """The law of the noise alone, cumulated, for every part."""
        return np.repeat(self.law.noise, len(self.parts), axis=0)

    @cached_property
    def _alone(self) -> list[Floats]:
        """For each part, the rows of one count of each block, no other items in the cell."""
        return [np.maximum(rows, 0.0) for rows in self._shifted(self._noise_once)]

    @cached_property
    def _spreading(self) -> sparse.csr_array:
        """Masses at the points of the lattice (down) for one item of each block (across); none above the last."""
        blocks, unit, points = self.blocks, self.law.unit, self.law.last // self.law.unit + 1
        near = np.flatnonzero(blocks.first <= self.law.last)
        begin, end = blocks.first[near] // unit, np.minimum((blocks.stop[near] - 1) // unit, points - 1)
        block = np.repeat(near, end - begin + 1)
        point = np.concatenate([np.arange(0), *(np.arange(low, high + 1) for low, high in zip(begin, end))])
        low, high = (np.clip(edge[block] - point * unit, 0, unit) for edge in (blocks.first, blocks.stop))
        share = (self.law.weights[:, high] - self.law.weights[:, low]) / blocks.widths[block]
        reached = np.add.outer(np.arange(3), point).ravel()
        kept = reached < points
        places = reached[kept], np.tile(block, 3)[kept]
        return sparse.csr_array((share.ravel()[kept], places), shape=(points, blocks.size))

    @cached_property
    def _edges(self) -> list[tuple[Int64, Int64]]:
        """For each part, where in a law each row's end lies above the first and above the last count of each block."""
        edges = self.blocks.first, self.blocks.stop - 1 + self.blocks.stride
        upper, lower = (edge // self.law.unit for edge in edges)
        return [(np.clip(back - upper, 0, self.law.size), np.clip(back - lower, 0, self.law.size))
                for back in (at[:, None] + 1 for at in self._at_ends)]  # fmt: skip

    def _shifted(self, laws: Floats) -> list[Floats]:
        """For each part and its cumulated law, the rows (down) of a cell with one more count of each block (across)."""
        found, unit, blocks = [], self.law.unit, self.blocks
        for law, twice, (upper, lower) in zip(laws, self.law.twice(laws, blocks.stride), self._edges):
            padded = np.concatenate([[0.0], twice])  # index 0: nothing shows there yet
            cumulated = padded.take(upper)
            cumulated -= padded.take(lower)
            if unit > 1:  # what lies between a point of the lattice and the edge of a block
                padded = np.concatenate([np.zeros(3), law])
                for back, weight in enumerate(self.law.weights):
                    cumulated -= weight[blocks.first % unit] * padded.take(upper + (2 - back))
                    cumulated += weight[blocks.stop % unit] * padded.take(lower + (2 - back))
            cumulated /= blocks.widths
            rows = np.empty((len(cumulated) + 1, blocks.size))
            rows[0] = cumulated[0]
            np.subtract(cumulated[1:], cumulated[:-1], out=rows[1:-1])
            np.subtract(1.0, cumulated[-1], out=rows[-1])
            found.append(rows)
        return found

    def pull(self, state: SeenRows) -> Floats:
        """Factor by which the cells pull each mass."""
        total = np.zeros(self.blocks.size)
        for part, rows, shifted in zip(self.parts, state.rows, self._shifts(state)):
            total += part.rate * (shifted.T @ (part.tally / rows))
            if self.collide:  # cells that only the background explains pull neither way
                total += part.rate * float(part.tally @ (BACKGROUND / part.cells / rows))
        return np.asarray(total / self.exposure)

    def step(self, state: SeenRows) -> Floats:
        """Factor of one step of EM for all items, those outside the ranges seen included."""
        seen = min(1.0, self.exposure)
        return np.asarray(1 - seen + seen * self.pull(state))

    def finest_step(self, state: SeenRows, cells: Sequence[tuple[Int64, Int64]]) -> Floats:
        """The same for an item of each point of the lattice, every noisy count of the ``cells`` seen by itself.

        Where items share cells. Σ_v told[v]·m[v − t] for all t is one correlation; rows share their background.
        """
        total = np.zeros(self.law.down.size)
        for part, once, ends, (values, tally) in zip(self.parts, state.once, self._at_ends, cells):
            size, background = int(ends[-1]) + 1, BACKGROUND / part.cells
            width = np.diff(ends, prepend=-1)
            shared = np.append(np.repeat(background / width, width), background)
            place = np.clip((values + self.law.unit // 2) // self.law.unit - self.law.low, 0, size)
            law = np.diff(once[:size], prepend=0.0, append=1.0)
            told = np.bincount(place, weights=tally, minlength=size + 1) / (law + shared)
            length = next_fast_len(2 * size, real=True)
            pulled = irfft(rfft(told[:-1], length) * rfft(law[:-1], length).conj(), length)[:size]
            above = 1 - np.concatenate([once[size - 1 :: -1], np.zeros(total.size)])
            pulled = np.maximum(np.pad(pulled, (0, total.size)), 0.0) + told[-1] * above
            total += part.rate * (pulled[: total.size] + float(told @ shared))
        seen = min(1.0, self.exposure)
        return np.asarray(1 - seen + seen * total / self.exposure)

    def _shifts(self, state: SeenRows) -> tuple[Floats, ...]:
        """For each part, the rows with one more count of each block; kept with the state, which is asked twice."""
        if not state.shifts:
            state.shifts.extend(self._shifted(state.once))
        return tuple(state.shifts)

    def information(self, state: SeenRows) -> Floats:
        """J, the expected information of the cells about θ = log N."""
        total = np.zeros((self.blocks.size, self.blocks.size))
        for part, rows, shifted in zip(self.parts, state.rows, self._shifts(state)):
            change = shifted - (rows - BACKGROUND / part.cells)[:, None] if self.collide else shifted.copy()
            change *= (part.rate * math.sqrt(part.cells) / np.sqrt(rows))[:, None]
            total += change.T @ change
        total *= state.mass
        total *= state.mass[:, None]
        return total

    def classes(self, state: SeenRows, member: Floats) -> Floats:
        """Information about factors on classes of blocks."""
        return np.asarray(member.T @ self.information(state) @ member)

    def alone(self, state: SeenRows) -> Floats:
        """Variance with which the cells tell the mass of each block if all others are known: what noise can hide."""
        total = np.zeros(self.blocks.size)
        for part, rows, shifted in zip(self.parts, state.rows, self._shifts(state)):
            change = shifted - (rows - BACKGROUND / part.cells)[:, None] if self.collide else shifted
            total += part.rate**2 * part.cells * (change**2 / rows[:, None]).sum(axis=0)
        return np.asarray(1 / np.maximum(total, 1e-300))

    def strain(self, state: SeenRows, counts: Int64) -> Floats:
        """Return how many standard errors the cells want more mass at each of ``counts``: ≤ 4 at a certified mode.

        The sum of r·y·(k/m − 1) over the cells, divided by the square root of its sum of squares (and one more): n
        concordant cells count √n. If 1 + q times as many are seen as expected, their likelihood makes that
        √(2·log(1 + q) − 2q/(1 + q)) times as much: three where none should be are enough, and a lone one is not.
        """
        wanted, squares, unit = np.zeros(counts.size), np.zeros(counts.size), self.law.unit
        most, weights = int(counts.max(initial=0)) // unit + 2, np.diff(self.law.weights)
        for part, rows, once, ends in zip(self.parts, state.rows, state.once, self._at_ends):
            told, cells = part.tally / rows, float(part.tally.sum())
            lower, seen = np.concatenate([np.zeros(most), once]), np.empty(rows.size)
            for i, count in enumerate(counts.tolist()):  # count by count: what fits into the cache is five times faster
                below = lower[most - count // unit :].take(ends)
                if unit > 1:
                    below *= weights[0, count % unit]
                    for back in (1, 2):
                        below += weights[back, count % unit] * lower[most - count // unit - back :].take(ends)
                seen[0], seen[-1] = below[0], 1 - below[-1]
                np.subtract(below[1:], below[:-1], out=seen[1:-1])
                seen += BACKGROUND / part.cells
                pulled = float(seen @ told)
                wanted[i] += part.rate * (pulled - cells)
                squares[i] += part.rate**2 * (1 + float((seen * seen) @ (told / rows)) - 2 * pulled + cells)
        more = np.maximum(wanted / self.exposure, 0.0)
        by_likelihood = np.sqrt(np.maximum(2 * (np.log1p(more) - more / (1 + more)), 1.0))
        return np.asarray(by_likelihood * wanted / np.sqrt(np.maximum(squares, 1e-300)))

    def widened(self, state: SeenRows, counts: Int64) -> tuple[FourierChannel, Floats]:
        """These counts with masses of their own, which begin with what their neighbourhoods show in excess."""
        part, mass = self.parts[0], np.full(counts.size, float(SEVERAL))
        beyond = part.tally - part.cells * state.rows[0]
        reach = max(1, round(math.sqrt(self.noise.variance)))
        for i, count in enumerate(counts):
            low, high = np.searchsorted(part.ends, [count - reach, count + reach])
            mass[i] = max(SEVERAL, float(beyond[low : high + 1].sum()) / part.share)
        return self.with_blocks(self.blocks.with_atoms(counts)), np.log(mass)

    def cut(self, state: SeenRows, counts: Int64, fine: int) -> tuple[FourierChannel, Floats]:
        """The blocks that hold these counts in pieces, none narrower than ``fine``, with a θ that follows the cells."""
        finer = self.with_blocks(self.blocks.cut(counts, fine))
        old, new, n = self.blocks, finer.blocks, self.blocks.covered
        kept = np.isin(old.atoms, new.atoms)
        beside = np.bincount(old.holding(old.atoms[~kept]), weights=state.mass[n:][~kept], minlength=n)
        density = ((state.mass[:n] + beside) / old.widths[:n])[old.holding(new.first[: new.covered])]
        mass = np.concatenate([density * new.widths[: new.covered], state.mass[n:][kept]])
        return finer, begun(finer, mass)

    def unexplained(self, state: SeenRows) -> float:
        """Share of the cells that only the background explains."""
        lost = [part.tally @ (BACKGROUND / part.cells / rows) for part, rows in zip(self.parts, state.rows)]
        return float(sum(lost)) / sum(part.cells for part in self.parts)


def _cumulated(laws: Floats, stride: int) -> Floats:
    """Σ_i law[v − i·stride] for each law (down).

    >>> _cumulated(np.array([[1.0, 2.0, 3.0, 4.0, 5.0]]), 2)
    array([[1., 2., 4., 6., 9.]])
    """
    whole = np.pad(laws, ((0, 0), (0, -laws.shape[1] % stride)))
    return np.cumsum(whole.reshape(len(laws), -1, stride), axis=1).reshape(whole.shape)[:, : laws.shape[1]]


class _Law:
    """Transforms between masses at counts 0..last and the cumulated law of noisy cells, up to there.

    unit : counts from one point of the lattice to the next; low : its first point
    """

    def __init__(self, noise: DiscreteLaplace, last: int, unit: int) -> None:
        noise = on_lattice(noise, unit)
        self.unit, reach = unit, noise.reach(NEGLIGIBLE)
        points = last // unit + reach  # counts that noise may bring down to the last row
        self.low, self.last = -reach, points * unit
        self.size = points + reach + 1
        self.length = next_fast_len(2 * (points + 1), real=True)
        slope = LOST / self.length
        self.down = np.exp(-slope * np.arange(points + 1))
        self.up = np.exp(slope * np.arange(-reach, points + 1))
        z = np.exp(-slope - 2j * np.pi * np.arange(self.length // 2 + 1) / self.length)
        log = 2 * math.log(-math.expm1(-noise.epsilon)) - np.log(1 - noise.a * z) - np.log(1 - noise.a / z)
        log *= float(noise.power)
        self.log_noise = log[: max(1, int((log.real > INAUDIBLE).sum()))]  # |φ| falls with the frequency
        # a count r past a point is told as masses there, at the next and at the one after: running sums over r
        x = np.arange(unit) / unit
        self.weights = np.zeros((3, unit + 1))
        self.weights[:, 1:] = np.cumsum([(1 - x) * (2 - x) / 2, x * (2 - x), -x * (1 - x) / 2], axis=1)

    def twice(self, laws: Floats, stride: int) -> Floats:
        """Each cumulated law (down) cumulated once more, over all counts or in strides: what shifts are made from."""
        if self.unit == 1:
            return _cumulated(laws, stride)
        before = np.pad(laws, ((0, 0), (2, 0)))
        every = self.weights[:, -1, None, None] * [before[:, 2 - back : before.shape[1] - back] for back in range(3)]
        return np.cumsum(every.sum(axis=0), axis=1)

    @cached_property
    def noise(self) -> Floats:
        """The law of the noise alone, cumulated."""
        return self.cumulated(np.zeros((1, 1), dtype=complex))

    def transform(self, masses: Floats) -> Complex:
        """Transform of the masses at the points of the lattice, at the frequencies that the noise lets through."""
        return np.asarray(rfft(masses * self.down, self.length)[..., : self.log_noise.size])

    def cumulated(self, around: Complex) -> Floats:
        """Return laws of noisy cells (down), cumulated from ``low`` on; ``around`` are logarithms of transforms."""
        wrapped = irfft(np.exp(around + self.log_noise), self.length)
        law = np.concatenate([wrapped[:, self.length + self.low :], wrapped[:, : self.down.size]], axis=1)
        law *= self.up
        return np.cumsum(np.maximum(law, 0.0, out=law), axis=1)
