"""The unbiased linear inverse of the noise: profile, functionals and their variances.

Symbols: ε, a = e^(−ε), ρ the power, κ = a/(1−a)², β = a/(1−a); h a true count, v = h + Z the noisy one.

Discrete Laplace noise has generating function (1−a)²/((1−az)(1−a/z)) = 1/(1 − κ(z − 2 + 1/z)), so its inverse
has three taps: with D g = g − κ·Δ²g and Δ²g(t) = g(t−1) − 2g(t) + g(t+1),

    E[(D g)(h + Z)] = g(h)        for every g with |g(t)| = o(a^(−|t|)).

**ρ = 1.** Given v ≤ 0 the excess −v is geometric whatever h is, so a noisy count below 0 is *folded* to t = 0,
where w(0) = g(0) − β(g(1) − g(0)) replaces the mean of D g; a declared bound n folds likewise above:

    w(t) = g(t) − κ·Δ²g(t)  (0 < t < n),   w(0) = (g(0) − a·g(1))/(1−a),   w(n) = (g(n) − a·g(n−1))/(1−a).

**ρ > 1.** No folding; g may go on below 0 in any way. Where it begins as a polynomial (of degree 4 at most) that is the
way, so that Σ h is the plain sum of the cells and no power has a kink, else a straight line; for integer ρ
:func:`functional` and :func:`linear`, which see the data, take the continuation of least variance instead (below).
Integer ρ: w = D^ρ g. Fractional ρ: D^ρ = D^r P with r = ⌈ρ⌉ and P the convolution by the noise law of power r − ρ < 1
(by FFT of its characteristic function): differences first, then an average with positive weights, hence no
cancellation.

**Variance.** Σ_cells w(v) is unbiased for Σ_cells g(h) and Σ_cells (w² − W[g²])(v) for its variance, W[g²] being
the weights of g². For ρ = 1 the bracket is a sum of squares, never negative and free of cancellation:
κ²(Δ²g)² + κ(g(t+1)−g(t))² + κ(g(t)−g(t−1))² inside, κ(g(1)−g(0))² at 0. For ρ > 1 it is evaluated after
subtracting a nearby value of g, which changes nothing (Σ taps = 1) and keeps the digits.

**Below 0** a count cannot be. For integer ρ > 1 (ρ = 1 folds, which does the same; a fractional ρ goes on as above)
the continuation of g is taken that gives its estimate the least variance.

w is unbiased for g if Σ_v p(v − h)·w(v) = g(h) for every count h ≥ 0, p the law of the noise. That leaves w free where
no count can be: w = D^ρ G is unbiased for *every* G that equals g at 0, 1, 2, …. Which G is taken decides the variance
Σ_v m(v)·w(v)², m(v) the mean number of cells at v: D^ρ amplifies a kink at 0 by κ^ρ.

The choice moves w at v ≤ ρ − 1 only. There the least variance among all unbiased weights is the Gauss–Markov solution:
√m·w lies in the span of the rows p(v − h)/√m(v), so from any unbiased w the best one is its projection onto that span.
Below 0 the rows are a^|v| times polynomials of degree < ρ, so ρ of them are all. Constants keep their weights, 1
everywhere.

m is not known, and only the variance depends on it: the folded noisy counts, blurred once more by p, stand in. Measured
(10,000 cells, ρ = 2…8, ε = 0.05…1): the standard error is at most 1.004 times that of the true m.

Numerically the projection is as good as w is small compared with what it makes of it; where rounding would show (high
powers of strong noise, whose intervals say nothing) w is kept as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from scipy.fft import irfft, next_fast_len

from ..arrays import Floats, Int64
from ..engine.channel import convolve, convolve_valid
from ..errors import InputError
from ..noise import DiscreteLaplace
from ..noisy import NoisyProfile, as_signed_integers
from .methods import LARGEST, Fit, check_input, check_max_count, check_noise

__all__ = [
    "Continuation", "Function", "functional", "inverse_taps", "least_weights", "linear", "repeated_taps",
    "second_difference_weight", "smoothed_tally", "step_response", "weights",
]  # fmt: skip

Function = Callable[[Int64], Any]
"""A function of a count, vectorised over int64 arrays of counts ≥ 0."""


LIMIT = 50_000_000
"""Most points a dense stretch may take (fractional power only): 400 MB."""

CHUNK = 1 << 18
"""Values handled at a time for integer powers above 1."""

DEGREES = (0, 1, 2, 3, 4)
"""Polynomials below 0 among which a start is chosen; sums of powers are exact with theirs."""

FEWEST = 30
"""Cells below which m is not known well enough: a straight line is then as good."""

WIDEST = 1 << 16
"""Longest reach below 0 that is laid out."""

POINTS = 256
"""Places at which the noisy counts are taken to stand when m is worked out."""

FAINTEST = 600.0
"""ε·ρ up to which noise of −ρ, e^(−ε·ρ), is a number a float can hold; beyond it no noise is ever seen."""

TAIL = 1e-12
"""Noise beyond the reach of this probability below 0 is counted at its end."""

ROUNDING = 1e-13
"""Directions smaller than this share of the largest are rounding."""

REPRESENTED = 340.0
"""ρ·log(1 + 4κ), the logarithm of what the filter's weights add up to, up to which their squares are below 10³⁰⁰."""

VISIBLE = 0.01
"""Share of a standard error that rounding may come to."""


def second_difference_weight(noise: DiscreteLaplace) -> float:
    """κ = a/(1−a)², half the variance of one noise.

    >>> noise = DiscreteLaplace(1)
    >>> round(second_difference_weight(noise), 6) == round(noise.variance / 2, 6)
    True
    """
    return noise.a / math.expm1(-noise.epsilon) ** 2


def weights(g: Function, values: Any, noise: DiscreteLaplace, *, max_count: int | None = None) -> Floats:
    """w at the given noisy values: E w(h + Z) = g(h) for every count h ≥ 0 (and ≤ max_count where declared).

    g : vectorised function of int64 counts ≥ 0; g² must grow slower than a^(−t)
    max_count : a bound that truly holds for every count; folds the values above it (power 1 only)

    >>> weights(lambda t: t == 0, [-3, 0, 1, 2], DiscreteLaplace(1)).round(4).tolist()
    [1.582, 1.582, -0.9207, 0.0]
    """
    values = as_signed_integers(values, "values")
    return _weights_and_spread(g, values, check_noise(noise), check_max_count(max_count))[0]


@np.errstate(over="ignore", invalid="ignore")
def functional(noisy: NoisyProfile, g: Function, *, max_count: int | None = None) -> tuple[float, float]:
    """Unbiased estimates of Σ_cells g(h) and of that estimate's variance.

    The variance estimate is never negative for power 1; for higher powers it may be, when it is small. Where so many
    noises are undone that no float holds it, it is infinite and the estimate 0.

    >>> noisy = NoisyProfile.from_counts([3, -1, 7], epsilon=1)
    >>> value, variance = functional(noisy, lambda t: t)   # −1 folds to 0, which counts for −a/(1−a)
    >>> round(value, 6), round(variance, 6)
    (9.418023, 4.603368)
    """
    bound = check_input(noisy, max_count)
    w, spread = least_weights(noisy, g, bound)
    found = float(noisy.tally @ w), float(noisy.tally @ spread)
    return found if all(map(math.isfinite, found)) else (0.0, math.inf)


def least_weights(noisy: NoisyProfile, g: Function, bound: int | None = None) -> tuple[Floats, Floats]:
    """w and w² − W[g²] at the values of a noisy profile, with the continuation of least variance for integer ρ > 1.

    >>> noisy = NoisyProfile.from_counts([3, -1, 7], epsilon=1, power=2)
    >>> bool(abs(noisy.tally @ least_weights(noisy, lambda t: t)[0] - 9) < 0.5)   # the plain sum has no kink at 0
    True
    """
    if noisy.noise.power == 1:  # folding leaves no choice
        return _folded_weights(g, noisy.values, noisy.noise, bound)
    w, spread = _weights_and_spread(g, noisy.values, noisy.noise, bound)
    continuation = Continuation.of(noisy)
    if continuation is None:
        return w, spread
    near = int(np.searchsorted(noisy.values, continuation.top, side="right"))
    where = np.maximum(noisy.values[:near] - continuation.low, 0)
    start = float(_evaluate(g, np.zeros(1, dtype=np.int64))[0])
    head = _head_weights(lambda t: _evaluate(g, t) - start, noisy.noise, continuation)
    square = _head_weights(lambda t: (_evaluate(g, t) - start) ** 2, noisy.noise, continuation)
    w[:near] = start + head[where]
    spread[:near] = (head**2 - square)[where]
    return w, spread


def _head_weights(g: Function, noise: DiscreteLaplace, continuation: Continuation) -> Floats:
    """w on low..top: the best of a few polynomials below 0, then projected."""
    values = np.arange(continuation.low, continuation.top + 1)
    times, kappa = int(noise.power), second_difference_weight(noise)
    x = np.arange(values[0] - times, values[-1] + times + 1)
    table, below = _evaluate(g, np.maximum(x, 0)), x < 0
    first, starts = _evaluate(g, np.arange(len(DEGREES))), []
    for degree in DEGREES:
        table[below] = continued(first, x[below], degree)
        starts.append(_filter(table, kappa, times))
    return continuation.least(min(starts, key=continuation.size))


def _missing(noise: DiscreteLaplace) -> Floats:
    """The law of the noise that a fractional power lacks to the next integer r, on −R…R; 1 for an integer.

    R is so large that D^r of what is cut stays below rounding.
    """
    times = math.ceil(noise.power)
    if times == noise.power:
        return np.ones(1)
    extra = DiscreteLaplace(noise.epsilon, times - noise.power)
    gain = (1 + 4 * second_difference_weight(extra)) ** times
    reach = extra.reach(max(1e-17 / gain, 1e-300))
    size = next_fast_len(4 * reach + 16, real=True)
    law = irfft(extra.characteristic(2 * np.pi * np.arange(size // 2 + 1) / size), size)
    one_sided = np.maximum(law[: reach + 1], 0)
    kernel = np.concatenate([one_sided[:0:-1], one_sided])
    return np.asarray(kernel / kernel.sum())


def linear(noisy: NoisyProfile, *, max_count: int | None = None) -> Fit:
    """The unbiased signed profile: sums to 1, may be negative, reaches past the largest occupied value.

    >>> fit = linear(NoisyProfile.from_counts([0, 2, -1, 0], epsilon=1))
    >>> fit.support.tolist(), bool(abs(fit.mass.sum() - 1) < 1e-12)
    ([0, 1, 2, 3], True)
    """
    bound = check_input(noisy, max_count)
    noise = noisy.noise
    if step_response(noise) is None:
        raise InputError(f"noise must be weaker to be undone without a model (take method='auto'), got {noise}")
    if noise.power == 1:
        support, mass = _folded_inverse(noisy, bound)
    else:
        support, mass = _unfolded_inverse(noisy)
    return Fit(support, mass, "linear", {"power": str(noise.power), "folded": noise.power == 1})


def smoothed_tally(noisy: NoisyProfile) -> tuple[Int64, Floats]:
    """Values and shares of cells, completed to the next integer power by the mean effect of the missing noise.

    For integer ρ these are the occupied values themselves. For fractional ρ every cell is spread by the law of
    power ⌈ρ⌉ − ρ, cut where what is left is below rounding.
    """
    kernel = _missing(noisy.noise)
    if kernel.size == 1:
        return noisy.values, noisy.fractions
    reach = kernel.size // 2
    stretches = list(_stretches(noisy.values, 2 * reach))
    length = sum(int(last - first) + 2 * reach + 1 for first, last, _ in stretches)
    _refuse_above_limit(length, noisy.noise)
    values, shares = [], []
    for first, last, inside in stretches:
        dense = np.zeros(int(last - first) + 1)
        dense[noisy.values[inside] - first] = noisy.fractions[inside]
        shares.append(np.maximum(convolve(dense, kernel), 0) if dense.size > 1 else dense[0] * kernel)
        values.append(np.arange(first - reach, last + reach + 1))
    return np.concatenate(values), np.concatenate(shares)


def _folded_inverse(noisy: NoisyProfile, bound: int | None) -> tuple[Int64, Floats]:
    """Power 1: three taps inside, two at a folded end."""
    if bound == 0:
        return np.zeros(1, dtype=np.int64), np.ones(1)
    kappa, beta = second_difference_weight(noisy.noise), 1 / math.expm1(noisy.noise.epsilon)
    values, tally = noisy.folded()
    share = tally / noisy.cells
    if bound is not None and values[-1] > bound:
        values, share = _collect(np.minimum(values, bound), share)
    left = np.where(values == 0, 0.0, kappa)
    right = np.where(values == 0, beta, kappa)
    if bound is not None:
        left = np.where(values == bound, beta, left)
        right = np.where(values == bound, 0.0, right)
    points = np.concatenate([values - 1, values, values + 1])
    mass = np.concatenate([-left * share, (1 + left + right) * share, -right * share])
    inside = points >= 0 if bound is None else (points >= 0) & (points <= bound)
    return _collect(points[inside], mass[inside])


def _unfolded_inverse(noisy: NoisyProfile) -> tuple[Int64, Floats]:
    """Power above 1: the taps, what falls below 0 on the straight line; then the first entries of least variance."""
    values, share = smoothed_tally(noisy)
    taps = repeated_taps(second_difference_weight(noisy.noise), math.ceil(noisy.noise.power))
    reach = taps.size // 2
    points = np.concatenate([values + j for j in range(-reach, reach + 1)])
    mass = np.concatenate([c * share for c in taps])
    below = np.minimum(points, 0) * mass
    support, mass = _collect(
        np.concatenate([np.maximum(points, 0), [0, 1]]), np.concatenate([mass, [-below.sum(), below.sum()]])
    )
    continuation = Continuation.of(noisy)
    if continuation is not None:
        first = _first_entries(noisy, continuation)
        later = support >= first.size
        support = np.concatenate([np.arange(first.size), support[later]])
        mass = np.concatenate([first, mass[later]])
    return support, mass


def _first_entries(noisy: NoisyProfile, continuation: Continuation) -> Floats:
    """f[t] for t < 2ρ, which are all the entries that values below ρ have a part in."""
    times = int(noisy.noise.power)
    x = np.arange(continuation.low - times, 4 * times + 1)
    table = np.stack([_continued(partial(np.equal, t), x) for t in range(2 * times)], axis=1)
    w = _filter(table, second_difference_weight(noisy.noise), times).T
    head = continuation.top - continuation.low + 1
    w[:, :head] = continuation.least(w[:, :head])
    near = int(np.searchsorted(noisy.values, 3 * times, side="right"))
    return np.asarray(w[:, np.maximum(noisy.values[:near] - continuation.low, 0)] @ noisy.fractions[:near])


def _collect(points: Int64, mass: Floats) -> tuple[Int64, Floats]:
    """Ascending distinct points with the masses of equal points added up."""
    support, where = np.unique(points, return_inverse=True)
    return support, np.bincount(where, weights=mass, minlength=support.size).astype(float)


def repeated_taps(kappa: float, times: int) -> Floats:
    """The ρ-fold filter: coefficients of (1 − κ(z − 2 + 1/z))^ρ."""
    taps = np.ones(1)
    for _ in range(times):
        taps = np.convolve(taps, [-kappa, 1 + 2 * kappa, -kappa])
    return taps


@lru_cache(maxsize=32)
def inverse_taps(noise: DiscreteLaplace) -> Floats:
    """Return the taps j = −J..J of the filter that undoes the noise: E Σ_j τ_j·1[h + Z = t + j] = 1[h = t].

    >>> np.convolve(inverse_taps(DiscreteLaplace(1)), DiscreteLaplace(1).pmf(range(-30, 31)))[29:34].round(9) + 0
    array([0., 0., 1., 0., 0.])
    """
    if noise.power.denominator == 1:
        return repeated_taps(second_difference_weight(noise), int(noise.power))
    size = 1 << int(np.ceil(np.log2(80 / float(noise.epsilon) + 64)))
    inverse = np.fft.irfft(1 / noise.characteristic(2 * np.pi * np.arange(size // 2 + 1) / size), size)
    keep = np.flatnonzero(np.abs(inverse[: size // 2]) > 1e-13 * inverse[0])[-1]
    half = inverse[: keep + 1]
    return np.concatenate([half[:0:-1], half])


@lru_cache(maxsize=32)
def step_response(noise: DiscreteLaplace) -> Floats | None:
    """Return C(j), j = −J..J − 1, what that filter makes of a step up at 0; None where no float holds its square.

    >>> step_response(DiscreteLaplace("0.1", power=50)).size, step_response(DiscreteLaplace("0.1", power=365))
    (100, None)
    """
    if math.ceil(noise.power) * math.log1p(4 * second_difference_weight(noise)) > REPRESENTED:
        return None
    return np.cumsum(inverse_taps(noise))[:-1]


def _weights_and_spread(
    g: Function, values: Int64, noise: DiscreteLaplace, bound: int | None
) -> tuple[Floats, Floats]:
    """w and w² − W[g²] at each value."""
    if int(values.max()) >= LARGEST or int(values.min()) <= -LARGEST:
        raise InputError(f"noisy counts must be below 2^62, got {values.min()} to {values.max()}")
    if noise.power == 1:
        return _folded_weights(g, values, noise, bound)
    if noise.power.denominator == 1:
        return _repeated_weights(g, values, noise)
    return _averaged_weights(g, values, noise)


def _folded_weights(
    g: Function, values: Int64, noise: DiscreteLaplace, bound: int | None
) -> tuple[Floats, Floats]:
    kappa, beta = second_difference_weight(noise), 1 / math.expm1(noise.epsilon)
    top = LARGEST if bound is None else bound
    t = np.clip(values, 0, top)
    here = _evaluate(g, t)
    down = here - _evaluate(g, np.maximum(t - 1, 0))
    up = _evaluate(g, np.minimum(t + 1, top)) - here
    bend = up - down
    end = (t == 0) | (t == top)
    # At a folded end only one of the two differences is not 0, and β takes the place of κ.
    w = here - np.where(end, beta, kappa) * bend
    spread = kappa * (up**2 + down**2) + np.where(end, 0.0, (kappa * bend) ** 2)
    return w, spread


def _repeated_weights(g: Function, values: Int64, noise: DiscreteLaplace) -> tuple[Floats, Floats]:
    kappa, times = second_difference_weight(noise), int(noise.power)
    w, spread = np.empty(values.size), np.empty(values.size)
    for start in range(0, values.size, CHUNK):
        part = slice(start, start + CHUNK)
        around = values[part] + np.arange(-times, times + 1)[:, None]
        table = _continued(g, around)
        middle = table[times].copy()
        table -= middle
        excess = _filter(table, kappa, times)[0]
        w[part] = middle + excess
        spread[part] = excess**2 - _filter(table**2, kappa, times)[0]
    return w, spread


def _averaged_weights(g: Function, values: Int64, noise: DiscreteLaplace) -> tuple[Floats, Floats]:
    kappa, times = second_difference_weight(noise), math.ceil(noise.power)
    kernel = _missing(noise)
    reach = kernel.size // 2
    order = np.argsort(values, kind="stable")
    ascending = values[order]
    w, spread = np.empty(values.size), np.empty(values.size)
    block = max(4 * reach, 4096)
    start = 0
    while start < ascending.size:
        first = int(ascending[start])
        stop = int(np.searchsorted(ascending, first + block))
        last = int(ascending[stop - 1])
        _refuse_above_limit(last - first + 2 * reach, noise)
        window = np.arange(first - reach - times, last + reach + times + 1)
        table = _continued(g, window)
        middle = table[table.size // 2]
        table -= middle
        at = ascending[start:stop] - first
        excess = convolve_valid(_filter(table, kappa, times), kernel)[at]
        square = convolve_valid(_filter(table**2, kappa, times), kernel)[at]
        w[order[start:stop]] = middle + excess
        spread[order[start:stop]] = excess**2 - square
        start = stop
    return w, spread


def _continued(g: Function, x: Int64) -> Floats:
    """g, continued below 0 as the polynomial that it begins as, else as a straight line."""
    table, below = _evaluate(g, np.maximum(x, 0)), x < 0
    head = _evaluate(g, np.arange(DEGREES[-1] + 3))
    degree = next((n for n in DEGREES if not np.diff(head, n=n + 1).any()), 1)
    table[below] = continued(head[: degree + 1], x[below], degree)
    return table


def _filter(table: Floats, kappa: float, times: int) -> Floats:
    """D applied ``times`` times along the first axis, which loses an entry at each end every time.

    D^ρ = Σ_k C(ρ, k)·(−κ)^k·Δ^2k: the differences of whole numbers are exact, and those of a polynomial end, where
    repeated subtraction would multiply its rounding by κ^ρ. What no float holds is not finite.
    """
    result = table[times : table.shape[0] - times].copy()
    factor = 1.0
    for k in range(1, times + 1):
        table = np.diff(table, n=2, axis=0)
        if not table.any():
            break
        inner = table[times - k : table.shape[0] - (times - k)]
        factor *= -kappa * (times - k + 1) / k
        result += factor * inner
    return result


def _stretches(values: Int64, gap: int) -> Iterator[tuple[int, int, slice]]:
    """Split ascending values wherever two neighbours are more than ``gap`` apart: first, last, which."""
    cuts = np.flatnonzero(np.diff(values) > gap) + 1
    starts, stops = np.r_[0, cuts], np.r_[cuts, values.size]
    for start, stop in zip(starts.tolist(), stops.tolist()):
        yield int(values[start]), int(values[stop - 1]), slice(start, stop)


def _refuse_above_limit(points: int, noise: DiscreteLaplace) -> None:
    if points > LIMIT:
        raise InputError(
            f"noisy counts under a fractional power ({noise.power}) must span at most {LIMIT:,} points within "
            f"reach of the noise, got {points:,}"
        )


def _evaluate(g: Function, counts: Int64) -> Floats:
    """g as finite floats, of the shape of its argument."""
    result = np.asarray(g(counts), dtype=float)
    if result.shape != counts.shape:
        result = np.broadcast_to(result, counts.shape)
    if not np.isfinite(result).all():
        worst = counts[~np.isfinite(result)].flat[0]
        raise InputError(f"g must be finite at every count, got {result[counts == worst].flat[0]} at {worst}")
    return np.array(result)


# ── below 0 ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, eq=False)
class Continuation:
    """The noisy values low..top, where weights may be chosen, and the directions that unbiasedness fixes.

    root : √m on low..top
    rows : orthonormal directions that a projection keeps
    exact : whether these are all there are
    cells : number of cells behind m
    """

    low: int
    top: int
    root: Floats
    rows: Floats
    exact: bool
    cells: int

    @classmethod
    def of(cls, noisy: NoisyProfile) -> Continuation | None:
        """The continuation for these cells: for integer powers above 1, cells enough, noise that can be laid out."""
        noise, times = noisy.noise, int(noisy.noise.power)
        if noise.power == 1 or noise.power.denominator > 1 or noisy.cells < FEWEST:
            return None
        if step_response(noise) is None or float(noise.epsilon) * times > FAINTEST or noise.reach(TAIL) > WIDEST:
            return None
        low, top = -max(noise.reach(TAIL), times), times - 1
        x = np.arange(low, top + 1)
        law = noise.pmf(np.arange(x.size + 2 * top - 2 * low + 2))
        root = np.sqrt(_blurred(x, noisy.values, noisy.tally, law))
        counts = np.arange(times) * min(max(1, round(1 / float(noise.epsilon))), 2 * (top - low) // times)
        rows = law[np.abs(x - counts[:, None])] / root
        _, size, directions = np.linalg.svd(rows / np.linalg.norm(rows, axis=1, keepdims=True), full_matrices=False)
        kept = size > ROUNDING * size[0]
        return cls(low, top, root, directions[kept], bool(kept.all()), noisy.cells)

    def least(self, weights: Floats) -> Floats:
        """Return the weights on low..top (last axis) of least variance with the same means."""
        scaled = weights * self.root
        found = (scaled @ self.rows.T) @ self.rows
        error = ROUNDING * np.abs(scaled).max(axis=-1) * math.sqrt(max(self.cells, 1))
        visible = error > VISIBLE * np.sqrt((found**2).sum(axis=-1))
        better = np.where(visible[..., None] | (not self.exact), scaled, found)
        return np.asarray(better / self.root)

    def size(self, weights: Floats) -> float:
        """√(Σ m·w²): what makes one continuation better than another."""
        return float(np.linalg.norm(weights * self.root))


def _blurred(x: Int64, values: Int64, tally: Int64, law: Floats) -> Floats:
    """Mean number of cells at x, were the counts the folded noisy counts (and one more cell at 0)."""
    reach = law.size - 1 - int(np.abs(x).max())
    near = values <= reach
    counts = np.append(np.maximum(values[near], 0), 0)
    cells = np.append(tally[near], 1).astype(float)
    edges = np.unique(np.linspace(0, reach + 1, POINTS + 1).astype(np.int64))
    group = np.searchsorted(edges, counts, side="right") - 1
    weight = np.bincount(group, weights=cells)
    some = np.flatnonzero(weight)
    places = np.rint(np.bincount(group, weights=cells * counts)[some] / weight[some]).astype(np.int64)
    return np.asarray(weight[some] @ law[np.abs(x - places[:, None])])


def continued(head: Floats, x: Int64, degree: int) -> Floats:
    """The polynomial of this degree through head = g(0), g(1), …, at negative x: Newton's forward differences.

    >>> continued(np.array([0.0, 1.0, 4.0, 9.0]), np.array([-3, -1]), 2)
    array([9., 1.])
    """
    result, binomial, step = np.zeros(x.size), np.ones(x.size), head
    for k in range(degree + 1):
        result += step[0] * binomial
        binomial = binomial * (x - k) / (k + 1)
        step = np.diff(step)
    return result
