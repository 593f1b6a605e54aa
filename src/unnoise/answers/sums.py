"""Σ g(h) over the cells for any g: the unbiased estimate and its interval; entropy by the delta method.

:func:`unnoise.estimators.linear.functional` gives the unbiased estimate Ŝ of Σ_cells g(h) and of its variance V. The
interval is Ŝ ± (z*·√V + s/2), where two small corrections matter only when a handful of cells decide (the largest
words of a language carry the second moment):

* z* = z + (z³ − 3z)·γ/24, the Cornish–Fisher [1]_ quantile for the excess kurtosis γ ≈ κ₄·Σ s(x)⁴ / V², with κ₄ the
  fourth cumulant of the noise and s(x) the step of g at x: a single noise is heavier-tailed than a normal one;
* s/2, half the largest step of g at an occupied value: the noise is an integer (continuity correction).

For a sampled sketch (each item of the domain has a cell with probability r) the sum is scaled up by items/cells
and the variance of sampling m cells without replacement, (1 − m/items)·m·s²_g, is added, with s²_g the unbiased
estimate of the variance of g over the items. A sample without its largest items has too small a sum *and* too small a
variance, so limits for a skewed g reach further on the side of its large items, up for Σ h and down for entropy: those
of Hall's [2]_ cubic transformation, with γ the skewness (1 − r)·Σ(g − ḡ)³/V^1.5 that estimate and variance share, times
``UNSEEN`` for the items not sampled. No interval can allow for a giant that the sample missed, so a sum of skewness
above ``SKEWED``, of which one item carries a tenth, comes with a warning.

Entropy is H = log T − S/T with T = Σ h and S = Σ h·log h, so its error is, to first order, that of the functional
g(h) = h·(1/T + S/T²) − h·log h/T.

.. [1] E. A. Cornish, R. A. Fisher, "Moments and cumulants in the specification of distributions", 1938.
.. [2] P. Hall, "On the removal of skewness by transformation", J. R. Statist. Soc. B 54 (1992) 221.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from ..arrays import Floats
from ..errors import InputError, UnnoiseWarning
from ..estimators.linear import Function, functional
from ..noise import DiscreteLaplace
from ..noisy import NoisyProfile

__all__ = ["bounded", "check_growth", "entropy_limits", "reaches", "sum_limits", "vectorised", "xlogx"]

MOST_EXCESS = 6.0
"""Excess kurtosis up to which Cornish and Fisher's expansion is used: rarer noise is a step now and then, and half a
step is allowed for already."""

CARRIED = 0.1
"""Share of a sampled sum's variance in one item above which it is said to rest on few items..."""

SKEWED = 0.5
"""...if its skewness exceeds this, where the 95 % interval was seen to hold 92 % or less."""

UNSEEN = 1.5
"""A sample without its largest items is less skewed than the domain: of lognormal counts, squared, by about a third."""

Four = tuple[float, float, float, float]


def xlogx(t: NDArray[Any]) -> Floats:
    """t·log t, 0 at t = 0.

    >>> xlogx(np.array([0, 1, 2])).round(3)
    array([0.   , 0.   , 1.386])
    """
    t = np.asarray(t, dtype=float)
    return np.asarray(special.xlogy(t, t))


def vectorised(g: Function) -> Function:
    """The same function, held to one real number for each count.

    >>> vectorised(lambda t: 1)(np.array([0, 5]))
    array([1., 1.])
    """

    def checked(t: NDArray[Any]) -> Floats:
        found = np.asarray(g(t))
        if found.dtype.kind not in "biuf" or found.shape not in {(), np.shape(t)}:
            raise InputError(
                f"g must return a real number for each count, got {found.dtype} of shape {found.shape} "
                f"for counts of shape {np.shape(t)}"
            )
        return np.broadcast_to(found.astype(float), np.shape(t))

    return checked


def check_growth(g: Function, noisy: NoisyProfile) -> None:
    """Refuse a g for which the unbiased estimate has no variance: g² must grow slower than a^(−t)."""
    epsilon = float(noisy.noise.epsilon)
    largest = max(0, int(noisy.values[-1]))
    probe = largest + np.ceil(np.array([0, 300, 600]) / epsilon).astype(np.int64)
    with np.errstate(over="ignore", invalid="ignore"):
        size = np.abs(np.broadcast_to(np.asarray(g(probe), dtype=float), probe.shape))
    if not np.isfinite(size).all():
        bad = int(probe[~np.isfinite(size)][0])
        raise InputError(
            f"g must be finite and g² grow slower than e^(ε·t) with ε={epsilon:g}, got g({bad})={size[probe == bad][0]}"
        )
    if size[1] > 0 and size[2] > 0:
        rate = 2 * math.log(size[2] / size[1]) / float(probe[2] - probe[1])
        if rate >= epsilon * (1 - 1e-9):
            raise InputError(
                f"g² must grow slower than e^(ε·t) with ε={epsilon:g}, or the estimate of Σ g(h) has no variance; "
                f"got growth like e^({rate:.3g}·t)"
            )


def sum_limits(
    noisy: NoisyProfile, g: Function, level: float, *, items: int, max_count: int | None = None
) -> Four:
    """Return estimate, standard error, low and high for Σ g(h) over ``items`` items."""
    total, variance = functional(noisy, g, max_count=max_count)
    scale, whole, down, up = items / noisy.cells, max(variance, 0.0), 1.0, 1.0
    if items > noisy.cells:
        whole, down, up = _sampled(noisy, g, total, whole, level, items, max_count)
    t = np.maximum(noisy.values, 0)
    here, after = (np.broadcast_to(np.asarray(g(each), dtype=float), t.shape) for each in (t, t + 1))
    step = np.where((noisy.values > 0) | (noisy.noise.power != 1), np.abs(after - here), 0.0)
    margin = float(step.max(initial=0.0)) / 2
    if whole > 0:
        z, tails, square = float(special.ndtri((1 + level) / 2)), fourth_cumulant(noisy.noise), noisy.noise.variance**2
        # square may be 0: a noise that is never seen
        cap = tails / square if tails < MOST_EXCESS * square else MOST_EXCESS
        with np.errstate(over="ignore"):
            excess = min(cap, tails * float(noisy.tally @ (step / math.sqrt(whole)) ** 4))
        margin = (z + max(z**3 - 3 * z, 0.0) * excess / 24) * math.sqrt(whole) + margin
    margin *= scale
    return scale * total, scale * math.sqrt(whole), scale * total - margin * down, scale * total + margin * up


def bounded(value: float, found: Four, floor: float) -> tuple[float, float]:
    """Return limits that hold the value, for a sum never below ``floor``.

    An estimate below the floor is bad luck, not precision: the upper limit reaches as far above the floor as it does
    above the estimate. Otherwise one sketch in forty of few items would say "0 to 3 occurrences".

    >>> bounded(0.0, (-300.0, 150.0, -600.0, 0.0), 0.0), bounded(50.0, (50.0, 10.0, 30.0, 70.0), 0.0)
    ((0.0, 300.0), (30.0, 70.0))
    """
    estimate, _, low, high = found
    return min(max(low, floor), value), max(high, floor + (high - estimate), value)


def _sampled(
    noisy: NoisyProfile, g: Function, total: float, noise: float, level: float, items: int, max_count: int | None
) -> tuple[float, float, float]:
    """Variance of a sampled sum, noise and (1 − r)·m·s²_g, and how much further its limits reach down and up."""
    m, mean, left = noisy.cells, total / noisy.cells, 1 - noisy.cells / items
    centre = float(np.rint(mean))  # of whole numbers whole ones are left, whose differences are exact
    off = mean - centre

    def power(degree: int) -> float:
        found, _ = functional(noisy, lambda t: (np.asarray(g(t), dtype=float) - centre) ** degree, max_count=max_count)
        return found

    square = power(2)
    variance = noise + left * m * (max(square - m * off**2, 0.0) / max(m - 1, 1))
    third = left * (power(3) - 3 * off * square + 2 * m * off**3)
    return variance, *reaches(noisy, g, third, variance, level)


def reaches(noisy: NoisyProfile, g: Function, third: float, variance: float, level: float) -> tuple[float, float]:
    """How much further than a normal one's the limits of a sampled sum reach down and up, by its third moment.

    Third moment and variance are those of the sum over the cells. Warns where it is skewed because of a few items, and
    not because of the noise.
    """
    skewness = UNSEEN * abs(third) / variance**1.5 if third else 0.0
    if skewness > SKEWED:
        surely = max(0, int(noisy.values[-1]) - noisy.noise.reach(1 / (10 * noisy.cells)))
        largest = float(np.asarray(g(np.array([surely])), dtype=float).reshape(-1)[0])
        share = min(1.0, largest**2 / max(variance, 1e-300))
        if share > CARRIED:
            warnings.warn(
                f"one sampled item carries {share:.0%} of the variance: the sum rests on few items, and the interval "
                f"cannot allow for such items outside the sample",
                UnnoiseWarning, stacklevel=3,
            )
    z = float(special.ndtri((1 + level) / 2))
    # Beyond SKEWED the transformation turns back; and what was sampled is no reason to reach less far the other way.
    further = max(-unskewed(-z, min(skewness, SKEWED)) / z, 1.0)
    return (1.0, further) if third > 0 else (further, 1.0)


def unskewed(x: float, skewness: float) -> float:
    """Inverse of Hall's transformation T + γ·T²/3 + γ²·T³/27 + γ/6: the quantile of T where a normal one has x.

    >>> round(unskewed(1.96, 1e-9), 6), round(-unskewed(-1.96, 0.5), 2), round(unskewed(1.96, 0.5), 2)
    (1.96, 7.67, 1.48)
    """
    if skewness < 1e-6:
        return x
    return float(3 / skewness * (np.cbrt(1 + skewness * (x - skewness / 6)) - 1))


def fourth_cumulant(noise: DiscreteLaplace) -> float:
    """κ₄ of the noise: 2ρ·a(1 + 4a + a²)/(1−a)⁴.

    >>> z = np.arange(-200, 201); noise = DiscreteLaplace("1/2"); m4 = float(noise.pmf(z) @ z**4.0)
    >>> bool(abs(fourth_cumulant(noise) - (m4 - 3 * noise.variance**2)) < 1e-6)
    True
    """
    a = noise.a
    return float(noise.power) * 2 * a * (1 + 4 * a + a * a) / math.expm1(-noise.epsilon) ** 4


def entropy_limits(
    noisy: NoisyProfile, level: float, *, items: int, max_count: int | None = None
) -> Four:
    """Return estimate, standard error, low and high of the Shannon entropy of h/Σh, in nats."""
    scale = items / noisy.cells
    total, variance = functional(noisy, lambda t: t, max_count=max_count)
    entropy_sum, _ = functional(noisy, xlogx, max_count=max_count)
    most = math.log(items)
    if total <= 3 * math.sqrt(max(variance, 0.0)):
        # The total may be 0: the data say nothing of the entropy.
        return most / 2, most / 2, 0.0, most
    # of the whole domain, T and S are those of the cells times scale
    first, second = (1 / total + entropy_sum / total**2) / scale, 1 / total / scale
    centre = math.log(scale * total) - entropy_sum / total
    found, stderr, low, high = sum_limits(
        noisy, lambda t: first * t - second * xlogx(t), level, items=items, max_count=max_count
    )
    return centre, min(stderr, most), max(0.0, centre + low - found), min(most, centre + high - found)
