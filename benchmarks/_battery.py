"""The accuracy battery: true profiles, noisy profiles drawn from them, and the four errors.

Profiles: all ones; Poisson 5; Zipf 1.5 and 2.2 (cut at 10⁵, or `paper`, which needs a dense window, could not run);
geometric with mean 20; uniform on 0..200; bimodal (70 % zeros, the rest normal 30 ± 4); d = 10⁴ and 10⁶. Real counts at
their own size: the bundled flights (plane and destination, 44,465 pairs in a domain of 60,000) and the lists of
../shared/data where present. Synthetic counts are drawn anew in every repetition; real ones are what they are.
"""

from __future__ import annotations

import math
import zlib
from pathlib import Path

import numpy as np
from scipy import stats
from scipy.signal import lfilter

from unnoise.demo import flights
from unnoise.estimators.auto import whole_cells
from unnoise.estimators.methods import Fit
from unnoise.noise import DiscreteLaplace
from unnoise.noisy import NoisyProfile

_ABOVE = [folder / "shared" / "data" for folder in Path(__file__).resolve().parents[2:]]
SHARED = next((folder for folder in _ABOVE if folder.is_dir()), _ABOVE[0])
"""Beside the repository, or beside what a working tree of it lies in."""
SYNTHETIC = ("all ones", "Poisson 5", "Zipf 1.5", "Zipf 2.2", "geometric 20", "uniform 200", "bimodal")
METRICS = ("ℓ1", "ℓ2", "ℓ∞", "W1")
LONGEST_ZIPF = 100_000
MANY = 2000
"""Tallies from here on get their noise as one multinomial draw."""


def _zipf(exponent: float, d: int, rng: np.random.Generator) -> np.ndarray:
    weights = np.arange(1, LONGEST_ZIPF + 1) ** -exponent
    return 1 + np.searchsorted(np.cumsum(weights / weights.sum()), rng.random(d))


def drawn(name: str, d: int, rng: np.random.Generator) -> np.ndarray:
    """Counts of d cells."""
    match name.split():
        case ["all", "ones"]:
            return np.ones(d, dtype=np.int64)
        case ["Poisson", mean]:
            return rng.poisson(float(mean), d)
        case ["Zipf", exponent]:
            return _zipf(float(exponent), d, rng)
        case ["geometric", mean]:
            return rng.geometric(1 / (float(mean) + 1), d) - 1
        case ["uniform", top]:
            return rng.integers(0, int(top) + 1, d)
        case ["bimodal"]:
            high = np.maximum(np.rint(rng.normal(30, 4, d)), 0).astype(np.int64)
            return np.where(rng.random(d) < 0.7, 0, high)
    raise KeyError(name)


def law(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Values and probabilities of the law that the counts of a synthetic profile are drawn from."""
    match name.split():
        case ["all", "ones"]:
            return np.array([1]), np.array([1.0])
        case ["Zipf", exponent]:
            values = np.arange(1, LONGEST_ZIPF + 1)
            weights = values ** -float(exponent)
            return values, weights / weights.sum()
        case ["uniform", top]:
            return np.arange(int(top) + 1), np.full(int(top) + 1, 1 / (int(top) + 1))
    values = np.arange(2000)
    match name.split():
        case ["Poisson", mean]:
            return values, stats.poisson.pmf(values, float(mean))
        case ["geometric", mean]:
            return values, stats.geom.pmf(values + 1, 1 / (float(mean) + 1))
        case ["bimodal"]:
            high = stats.norm.cdf(values + 0.5, 30, 4) - stats.norm.cdf(values - 0.5, 30, 4)
            return values, np.where(values == 0, 0.7, 0.0) + 0.3 * high
    raise KeyError(name)


def oracle(noisy: NoisyProfile, values: np.ndarray, law: np.ndarray) -> Fit:
    """What Bayes would answer who knows the law: the expected profile of these cells, in whole cells.

    The noise is applied by its recursion, so that a law over 10⁵ counts is no matter.
    """
    low, high = min(int(noisy.values[0]), 0), max(int(noisy.values[-1]), int(values[-1]))
    g = np.zeros(high - low + 1)
    g[values - low] = law
    y = np.zeros(g.size)
    y[noisy.values - low] = noisy.tally / noisy.cells
    m = _blurred(g, noisy.noise.a)
    f = g * _blurred(np.divide(y, m, out=np.zeros_like(y), where=m > 0), noisy.noise.a)
    kept = np.flatnonzero(f > 0)
    return Fit(kept + low, whole_cells(f[kept] / f.sum(), noisy.cells), "oracle")


def _blurred(x: np.ndarray, a: float) -> np.ndarray:
    """Σ_s (1−a)/(1+a)·a^|t−s|·x[s], forward and backward."""
    ahead = lfilter([1.0], [1.0, -a], x)
    back = lfilter([1.0], [1.0, -a], x[::-1])[::-1]
    return (1 - a) / (1 + a) * (ahead + back - x)


def real() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Values and tallies of the real profiles at hand."""
    pairs = flights().group_by("tailnum", "dest").len().drop_nulls()["len"].to_numpy()
    values, tally = np.unique(pairs, return_counts=True)
    profiles = {"flights": (np.append(0, values), np.append(60_000 - tally.sum(), tally))}
    for path in sorted(SHARED.glob("*.freqcount")):
        table = np.loadtxt(path, dtype=np.int64)
        table = table[np.argsort(table[:, 0])]
        profiles[path.stem.replace("_", " ")] = (table[:, 0], table[:, 1])
    return profiles


def noised(values: np.ndarray, tally: np.ndarray, epsilon: float, rng: np.random.Generator) -> NoisyProfile:
    """A noisy profile of cells with these counts, drawn with NumPy's generator: for benchmarks only."""
    noise = DiscreteLaplace(epsilon)
    few = tally < MANY
    cells = np.repeat(values[few], tally[few])
    noisy = cells + rng.geometric(1 - noise.a, cells.size) - rng.geometric(1 - noise.a, cells.size)
    at, how_many = [noisy], [np.ones(noisy.size, dtype=np.int64)]
    reach = noise.reach(1e-14)
    law = noise.pmf(np.arange(-reach, reach + 1))
    for value, number in zip(values[~few], tally[~few]):
        at.append(value + np.arange(-reach, reach + 1))
        how_many.append(rng.multinomial(number, law / law.sum()))
    return NoisyProfile.from_tally(np.concatenate(at), np.concatenate(how_many), noise=noise)


def seeded(*parts: object) -> np.random.Generator:
    """A generator for one repetition of one case."""
    return np.random.default_rng(zlib.crc32(repr(parts).encode()))


def errors(values: np.ndarray, share: np.ndarray, support: np.ndarray, mass: np.ndarray) -> np.ndarray:
    """ℓ1, ℓ2, ℓ∞ and W1 = Σ|difference of the cumulative curves| between truth and estimate."""
    at = np.union1d(values, support)
    e = np.zeros(at.size)
    e[np.searchsorted(at, support)] += mass
    e[np.searchsorted(at, values)] -= share
    moved = float(np.abs(np.cumsum(e))[:-1] @ np.diff(at).astype(float)) if at.size > 1 else 0.0
    return np.array([np.abs(e).sum(), math.sqrt(e @ e), np.abs(e).max(), moved])
