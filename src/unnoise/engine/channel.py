"""What the engine asks of a channel: the law of the noisy cells, seen from the masses of a profile.

A *channel* holds noisy cells and knows how their law m moves with the masses N_j of a profile (items or cells in each
block of counts). Whatever the kind of sketch and its noise, with k_j the law of a noisy cell to which one more count of
block j has been added,

    ∂/∂N_j log likelihood = exposure·(pull_j − 1),      pull_j = Σ_v (y_v/m_v)·k_j[v],    y the cells' shares,

so pull ≤ 1 everywhere, with equality where N_j > 0, is what a maximum looks like, and N_j·pull_j is one step of EM.
Newton's system in θ = log N needs A = P + G + J, P a prior's precision, G ≥ 0 diagonal and J the information of the
cells about θ. How that is solved is the channel's own affair: banded (:mod:`.banded`) for a known domain and one noise,
dense (:mod:`.fourier`) for everything else. A few counts alone are a small dense channel of either.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, Protocol, TypeVar

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.linalg import LinAlgError
from scipy.linalg.lapack import dpotrf, dpotrs

from ..arrays import Floats, Int64
from ..noise import DiscreteLaplace

__all__ = [
    "FAR", "FARTHEST", "SEVERAL", "USUAL", "Bands", "Blocks", "Channel", "Dense", "Grid", "Seeing", "State", "begun",
    "blur_of", "convolve", "convolve_valid", "counts_in_blocks", "first_apart", "likely_strides", "one_thread",
    "resolved",
]  # fmt: skip

P = ParamSpec("P")
R = TypeVar("R")

FAR = 1 << 62
"""The count of all items above every row."""

USUAL, FARTHEST = 1 << 12, 1 << 15
"""Counts that are modelled, and how many are where these would leave out too many cells."""

SEVERAL = 8
"""Cells, or items, that must speak for a count: fewer are a few large items, of which the noisy counts are known."""

Bands = Sequence[Floats]
"""A symmetric banded matrix: entry k holds the k-th superdiagonal, N long, its last k entries unused."""

PIECES = 16
"""Pieces into which a block is cut at most, where cells show more than it can say."""

MOST_STRIDE, STRAY = 100, 4.0
"""Largest number that all counts may be multiples of; standard errors by which the cells may stray from that."""

EM_STEPS, LEAST = 20, 1e-9
"""Steps of EM to begin with, towards the cells and not yet rough; share of the mean mass that every block keeps."""

ANGLES = 1 << 15
"""Angles to a turn that are asked: eight to a count."""


def resolved(noise: DiscreteLaplace, stride: int = 1) -> int:
    """Half a deviation of the noise, in multiples of ``stride`` and at least one: no block need be narrower."""
    return max(1, round(math.sqrt(noise.variance) / stride / 2))


def blur_of(noise: DiscreteLaplace) -> int:
    """How far the noise blurs a count: counts that near are one neighbourhood."""
    return max(4, round(8 * math.sqrt(noise.variance)))


def first_apart(counts: Iterable[int], blur: int, most: int) -> Int64:
    """Return the first of these counts and those further than ``blur`` from all before, at most so many.

    >>> first_apart([20, 22, 40, 30, 60], 4, 3)
    array([20, 40, 30])
    """
    found: list[int] = []
    for count in counts:
        if len(found) < most and all(abs(count - other) > blur for other in found):
            found.append(count)
    return np.array(found, dtype=np.int64)


def convolve(left: Floats, right: Floats) -> Floats:
    """Return all sums of products, one per offset at which the sequences meet.

    ``scipy.signal.fftconvolve`` does too; but importing ``scipy.signal`` takes 0.8 s, ``scipy.fft`` a hundredth of it.

    >>> convolve(np.array([1.0, 2.0]), np.array([1.0, 0.0, 3.0])).round(12)
    array([1., 2., 3., 6.])
    """
    size = left.size + right.size - 1
    length = next_fast_len(size, real=True)
    return np.asarray(irfft(rfft(left, length) * rfft(right, length), length)[:size])


def convolve_valid(long: Floats, short: Floats) -> Floats:
    """Return the sums in which the whole of the short sequence takes part.

    >>> convolve_valid(np.array([1.0, 2.0, 4.0]), np.array([1.0, 1.0])).round(12)
    array([3., 6.])
    """
    return convolve(long, short)[short.size - 1 : long.size]


def counts_in_blocks(first: int, top: int, dense: int, per_octave: int) -> Int64:
    """Return the starts of blocks that cover first..top, and top + 1: single counts up to ``dense``, then wider ones.

    >>> counts_in_blocks(1, 12, 4, 2)
    array([ 1,  2,  3,  4,  5,  7, 10, 13])
    """
    starts = list(range(first, min(dense, top) + 1))
    start = max(first, min(dense, top) + 1)
    while start <= top:
        starts.append(start)
        start = max(start + 1, round(start * 2 ** (1 / per_octave)))
    return np.array([*starts, top + 1], dtype=np.int64)


def likely_strides(values: Int64, tally: Int64, noise: DiscreteLaplace) -> list[int]:
    """Return p if all counts may be multiples of p > 1 and the cells could show that they are not: the largest such.

    If they are, E cos(2πjv/p) = φ(2πj/p)^ρ for all j, and otherwise it is less. By how much it could be less? A single
    hill, and 0, are near to multiples of many numbers, and tell nothing: at some smaller angle they have turned round
    whole as well, and all but what lies elsewhere is as high there as noise leaves it.
    """
    near = values <= USUAL  # what lies above need not be asked: the others tell
    values, tally = values[near], tally[near]
    cells, strides = int(tally.sum()), np.arange(MOST_STRIDE, 1, -1)

    def heights(angle: Floats) -> tuple[Floats, Floats]:
        """Means of the cosine for noise alone, and how far from them the seen ones may be."""
        mean = noise.characteristic(angle)
        variance = (1 + noise.characteristic(2 * angle)) / 2 - mean**2
        return mean, STRAY * (np.sqrt(np.maximum(variance, 0.0) / max(cells, 1)) + 1 / max(cells, 1))

    def seen(angle: Floats) -> Floats:
        return np.asarray(np.cos(np.outer(angle, values)) @ tally / max(cells, 1))

    mean, error = heights(2 * np.pi / strides)
    may = (mean > error) & (mean - seen(2 * np.pi / strides) < error)
    if not may.any():
        return []
    angles = np.linspace(0, np.pi, ANGLES // 2 + 1)
    noisy = np.fft.rfft(np.bincount(values % ANGLES, weights=tally, minlength=ANGLES)).real / cells
    mean_there, error_there = heights(angles)
    surely = (noisy - error_there) / np.maximum(mean_there, 1e-300)
    for p, height, doubt in zip(strides[may].tolist(), mean[may], error[may]):
        elsewhere = 1 - max(0.0, surely[ANGLES // (4 * p) : 3 * ANGLES // (4 * p) + 1].max())
        every = 2 * np.pi * np.arange(1, p // 2 + 1) / p
        mean, error = heights(every)
        if height * elsewhere > 2 * doubt and (mean - seen(every) < error).all():
            return [p]
    return []


class Blocks:
    """Blocks of counts: block j holds first[j], first[j] + stride, … below stop[j], ``widths`` of them.

    The first ``covered`` of them stand side by side, the others (atoms) alone. FAR stands for "above every row".
    """

    def __init__(self, first: Int64, stop: Int64, covered: int, stride: int = 1) -> None:
        self.first, self.stop, self.covered, self.stride = first, stop, covered, stride
        self.size, self.atoms = int(first.size), first[covered:]
        self.widths: Floats = ((stop - first - 1) // stride + 1).astype(float)
        self.centres: Floats = first + (stop - first - 1) / 2

    @classmethod
    def covering(cls, starts: Int64, stride: int = 1) -> Blocks:
        """Blocks side by side, from their starts and one end, which are taken ``stride`` times."""
        return cls(stride * starts[:-1], stride * (starts[1:] - 1) + 1, starts.size - 1, stride)

    def with_atoms(self, counts: Int64) -> Blocks:
        """The same with a block of its own for each of these counts."""
        first, stop = np.concatenate([self.first, counts]), np.concatenate([self.stop, counts + 1])
        return Blocks(first, stop, self.covered, self.stride)

    def holding(self, counts: Int64) -> Int64:
        """Which of the blocks side by side holds each of these counts."""
        return np.searchsorted(self.stop[: self.covered], counts, side="right")

    def cut(self, counts: Int64, step: int) -> Blocks:
        """The same, with the blocks that hold any of these counts in pieces and without the atoms in them.

        step : least width of a piece; none is narrower than 1/PIECES of its block

        >>> blocks = Blocks.covering(np.array([1, 2, 5, 9])).with_atoms(np.array([4, 8])).cut(np.array([6]), 2)
        >>> blocks.first, blocks.stop
        (array([1, 2, 5, 7, 4]), array([2, 5, 7, 9, 5]))
        """
        n, held = self.covered, np.unique(self.holding(counts))
        length = self.widths[:n].astype(np.int64)
        pieces = np.ones(n, dtype=np.int64)
        length[held] = np.clip(-(-length[held] // PIECES), step, length[held])
        pieces[held] = -(-self.widths[held].astype(np.int64) // length[held])
        before = np.repeat(np.arange(n), pieces)
        inside = np.arange(before.size) - (np.cumsum(pieces) - pieces)[before]
        first = self.first[before] + self.stride * (length[before] * inside)
        stop = np.minimum(first + self.stride * (length[before] - 1) + 1, self.stop[before])
        kept = self.atoms[~np.isin(self.holding(self.atoms), held)]
        return Blocks(first, stop, before.size, self.stride).with_atoms(kept)

    def spread(self, mass: Floats, top: int) -> Floats:
        """Return the mass at each count 0..top, spread evenly over the blocks (what lies above is left out)."""
        n, masses = self.covered, np.zeros(top + 1)
        if n:
            body = np.repeat(mass[:n] / self.widths[:n], self.widths[:n].astype(np.int64))
            places = masses[int(self.first[0]) :: self.stride]
            places[: body.size] = body[: places.size]
        near = self.atoms <= top
        np.add.at(masses, self.atoms[near], mass[n:][near])
        return masses


@dataclass(frozen=True, eq=False)
class Grid:
    """The blocks of counts that masses belong to, as walks see them.

    counts : the middle of each block; position : its place in its run, 0 for a block that stands alone
    walked : blocks of runs, which come first; the others are atoms
    scale : of the noise, 1/ε for one; single : whether every block of a run is a single count
    bound : largest count that there can be, if known
    stride : what all of this is counted in, where counts are multiples of it
    """

    counts: Floats
    position: Int64
    walked: int
    scale: float
    single: bool
    bound: int | None = None
    stride: int = 1


@dataclass(frozen=True, eq=False)
class State:
    """A profile as a channel sees it: N_j, the mass of each block, and the log likelihood of the cells, in nats."""

    mass: Floats
    value: float


S = TypeVar("S", bound=State)


class Seeing(Protocol[S]):
    """Noisy cells, and the law that masses give them: what it takes to find a mode."""

    @property
    def exposure(self) -> float:
        """Cells (or the share of the items) that the masses are seen through: ∂value/∂N = exposure·(pull − 1)."""

    @property
    def widths(self) -> Floats | float:
        """Number of counts in each block."""

    def at(self, mass: Floats) -> S:
        """See these masses through the channel."""

    def pull(self, state: S) -> Floats:
        """Factor by which the cells pull each mass: one step of EM multiplies by it."""

    def hold(self, prior: Bands) -> Floats:
        """Prepare the precision of a prior for Newton's systems."""

    def newton(self, held: Floats, curvature: Floats, state: S, gradient: Floats) -> tuple[Floats, float]:
        """Return −A⁻¹·gradient and log det A, A = prior + diag(curvature) + J, or raise LinAlgError."""


def begun(channel: Seeing[Any], mass: Floats) -> Floats:
    """Return θ after some steps of EM for the items seen."""
    for _ in range(EM_STEPS):
        mass = np.maximum(mass * channel.pull(channel.at(mass)), LEAST * mass.mean())
    return np.asarray(np.log(mass / channel.widths))


class Channel(Seeing[S], Protocol[S]):
    """A channel whose blocks are walked over: what it takes to search for walks."""

    @property
    def grid(self) -> Grid:
        """Its blocks."""

    @property
    def collide(self) -> bool:
        """Whether items share cells; what these tell of classes of counts is then not known."""

    def classes(self, state: S, member: Floats) -> Floats:
        """Information of the cells about factors on classes of blocks, the columns of ``member``."""


class Dense(ABC):
    """A channel of few blocks, whose systems are solved in full: it can say how much the cells tell."""

    @abstractmethod
    def information(self, state: Any) -> Floats:
        """J, the information of the cells about θ = log N."""

    def hold(self, prior: Bands) -> Floats:
        """The prior's precision in full."""
        size = prior[0].size
        matrix = np.zeros((size, size))
        for k, band in enumerate(prior):
            at = np.arange(size - k)
            matrix[at, at + k] = matrix[at + k, at] = band[: size - k]
        return matrix

    def newton(self, held: Floats, curvature: Floats, state: Any, gradient: Floats) -> tuple[Floats, float]:
        """Return −A⁻¹·gradient and log det A, by Cholesky's factor of A."""
        system = self.information(state)
        system += held
        np.einsum("ii->i", system)[:] += curvature
        factor, info = dpotrf(system.T, lower=1, overwrite_a=1, clean=0)
        if info != 0:
            raise LinAlgError("Newton's system is not positive definite")
        log_det = 2 * float(np.log(factor.diagonal()).sum())
        return -dpotrs(factor, gradient, lower=1)[0], log_det


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
