"""Convolution, and truncated power series: reciprocal, logarithm and exponential in O(T log T).

A series is the array of its first T coefficients. Newton's iteration [1]_ doubles the number of right coefficients
in every step, and products go through the FFT; the exponential of a non-negative series needs no iteration.

    1/g  :  x ← x·(2 − g·x)          log g  =  log g₀ + ∫ g′/g

The FFT loses about 10⁻¹⁶ times the norms of its factors. For the law g of a compound Poisson total of load λ,
‖g‖₁ = 1 and ‖1/g‖₁ ≤ e^(2λ), so the logarithm is good to about 10⁻¹⁵·e^(2λ): the same as the O(T²) recurrence.

``scipy.signal.fftconvolve`` convolves too; but importing ``scipy.signal`` takes 0.8 s, ``scipy.fft`` a hundredth of it.

.. [1] R. P. Brent, "Multiple-precision zero-finding methods and the complexity of elementary function
   evaluation", in Analytic Computational Complexity, 1976, section 13.
.. [2] P. Embrechts, M. Frei, "Panjer recursion versus FFT for compound distributions", Mathematical Methods of
   Operations Research 69, 2009.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft

from ..arrays import Floats
from ..errors import InputError

__all__ = ["cell_law", "convolve", "convolve_valid", "exponential", "logarithm", "product", "reciprocal"]


SHORT = 64
"""Up to this many terms a direct product is faster than the FFT."""


def convolve(left: Floats, right: Floats) -> Floats:
    """Return all sums of products, one per offset at which the sequences meet.

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


def product(left: Floats, right: Floats, terms: int) -> Floats:
    """Return the first ``terms`` coefficients of left·right.

    >>> product(np.array([1.0, 2.0]), np.array([3.0, 4.0]), 3)
    array([ 3., 10.,  8.])
    """
    left, right = left[:terms], right[:terms]
    short = min(left.size, right.size) <= SHORT
    full = np.convolve(left, right) if short else convolve(left, right)
    if full.size < terms:
        full = np.concatenate([full, np.zeros(terms - full.size)])
    return np.asarray(full[:terms])


def reciprocal(series: Floats) -> Floats:
    """Return 1/series to as many terms; the first coefficient must not be 0.

    >>> reciprocal(np.array([1.0, -0.5, 0.0, 0.0]))
    array([1.   , 0.5  , 0.25 , 0.125])
    """
    if series[0] == 0:
        raise InputError("the first coefficient must not be 0, got 0")
    inverse = np.array([1 / series[0]])
    while inverse.size < series.size:
        terms = min(2 * inverse.size, series.size)
        error = -product(series, inverse, terms)
        error[0] += 2
        inverse = product(inverse, error, terms)
    return inverse


def logarithm(series: Floats, inverse: Floats | None = None) -> Floats:
    """Return log(series) to as many terms; the first coefficient must be > 0. ``inverse`` is 1/series, if at hand.

    >>> logarithm(np.exp(-1) * np.array([1, 1, 1 / 2, 1 / 6])).round(12) + 0.0
    array([-1.,  1.,  0.,  0.])
    """
    if not series[0] > 0:
        raise InputError(f"the first coefficient must be > 0, got {series[0]}")
    degree = np.arange(series.size)
    result = product(degree * series, reciprocal(series) if inverse is None else inverse, series.size)
    result[1:] /= degree[1:]
    result[0] = np.log(series[0])
    return result


def exponential(series: Floats) -> Floats:
    """Return exp(series) to as many terms T; the coefficients from the second on must be ≥ 0.

    The series is evaluated at the points r·e^(2πik/L) of a circle, L ≥ 4T, and transformed back. What lies past L
    comes back multiplied by r^L = 10⁻⁸, and rounding grows by r^(−T) ≤ 100 [2]_.

    >>> exponential(np.array([0.0, 1.0, 0.0, 0.0])).round(4)
    array([1.    , 1.    , 0.5   , 0.1667])
    """
    length = next_fast_len(4 * series.size, real=True)
    radius = np.exp(np.arange(series.size) * (math.log(1e-8) / length))
    around = np.exp(rfft(series * radius, length))
    return np.asarray(irfft(around, length)[: series.size] / radius)


def cell_law(items: Floats, rate: float, above: float = 0.0) -> Floats:
    """Return P(total = s), s = 0..T, for ``items[t]`` items of count t, each in a cell with probability ``rate``.

    ``above`` is the number of items with counts past the end. Rounding may leave −10⁻¹⁶: cut off at 0.

    >>> cell_law(np.array([0.0, 2.0, 0.0]), 0.5).round(4)      # Poisson(1)
    array([0.3679, 0.3679, 0.1839])
    """
    exponent = items * rate
    exponent[0] = -(items.sum() + above) * rate
    return np.maximum(exponential(exponent), 0.0)
