"""Convolution of two real sequences by Fourier transform.

``scipy.signal.fftconvolve`` does the same; but importing ``scipy.signal`` takes 0.8 s, ``scipy.fft`` a hundredth of it.
"""

from __future__ import annotations

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft

from ..arrays import Floats

__all__ = ["convolve", "convolve_valid"]


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
