"""Circulant channels and the paper's Algorithms 2 and 3: inversion by FFT, then rounding to a profile.

Wu and Pagh, "Profile Reconstruction from Private Sketches", ICML 2024 [WP]; letters as there.

A histogram with d cells, counts in [0..n] and discrete Laplace noise is looked at through the window [−B..n+B].
Given that every noise stays within ±B (event E_B), the expected noisy profile is A·f with A a circulant matrix of
order N = n+2B+1, first row (1, a, …, a^B, 0, …, 0, a^B, …, a)/P_norm and P_norm = (1+a−2a^(B+1))/(1−a).
A is symmetric, so its eigenvalues are real; with θ_k = 2πk/N

    φ_k = (1 − a² − 2a^(B+1)·(cos (B+1)θ_k − a·cos Bθ_k)) / (P_norm·(1 − 2a·cos θ_k + a²)).

The noise modulo m of Dwork et al., P(Z=t) ∝ q^t with q = e^(−ε/m) and t in [0..m−1], is a circulant channel as well,
of order m and complex eigenvalues (1−q)/(1−q·e^(−iθ_k)).

**Algorithm 2** minimises ‖A·r − y‖_p subject to Σ_{t in 0..n} r[t] = 1. With c = A^(−T)·1_{0:n}, the constraint reads
⟨c, A·r⟩ = 1, so the optimum moves y by the smallest step that reaches this hyperplane:
r = A^(−1)·(y − (⟨c,y⟩ − 1)/‖c‖_q · v), where v maximises ⟨c,v⟩ over ‖v‖_p = 1 and ‖·‖_q is the dual norm.
That is the paper's r = u − …·A^(−1)a with u = A^(−1)y, in four transforms.

**Algorithm 3** clips to [0, 1] and lowers what is left by min(τ, r[t]), with τ such that the sum is 1.

Slips of the text put right here: the first row has B+1 leading and B trailing entries; the eigenvalues carry no
factor w_t^B; B is rounded up; P(|Z| > B) starts at B+1 (so that the paper's B is right, its proof is not); for
p = 1 the maximum of |c| always ties between t = 0 and t = n: the smallest index is taken.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arrays import Floats
from .checks import check_integer, check_share
from .errors import InputError
from .noise import Exact, exact_positive

__all__ = ["Circulant", "as_norm", "fast_inversion", "inverse_norm_bound", "p_norm", "round_profile", "window"]


TIE = 1e-13
"""Entries of c this close, relative to the largest, are equal up to the rounding of the FFT."""

SUM_TOLERANCE = 1e-8
"""How far from 1 the sum handed to Algorithm 3 may be before it is refused."""


def as_norm(norm: Any) -> float:
    """Return 1.0, 2.0 or inf, refusing every other norm.

    >>> as_norm(2), as_norm("inf")
    (2.0, inf)
    """
    if not isinstance(norm, bool):
        try:
            value = float(norm)
        except (TypeError, ValueError):
            value = math.nan
        if value in (1.0, 2.0, math.inf):
            return value
    raise InputError(f"norm must be 1, 2 or inf, got {norm!r}")


def window(d: int, epsilon: Exact, eta: float) -> int:
    """Return B = ⌈(1/ε)·ln max(2d/(η(e^ε+1)), 8e^ε/(e^(2ε)−1))⌉ of Theorem 1, rounded up, at least 0.

    The first term makes all d noises stay within ±B with probability ≥ 1 − η, since
    P(|Z| > B) = Σ_{|z| ≥ B+1} P(Z=z) = 2a^(B+1)/(1+a) ≤ η/d; the second keeps A well away from singular.

    >>> window(1000, 1.0, 0.05)
    10
    >>> 2 * math.exp(-11) / (1 + math.exp(-1)) <= 0.05 / 1000
    True
    """
    e = float(exact_positive("epsilon", epsilon))
    d, eta = check_integer("d", d, 1), check_share("eta", eta)
    reach = math.log(2 * d / eta) - float(np.logaddexp(e, 0.0))
    conditioning = math.log(8) - e - math.log(-math.expm1(-2 * e))
    return max(0, math.ceil(max(reach, conditioning) / e * (1 + 1e-13)))


def p_norm(epsilon: Exact, reach: int) -> float:
    """Return P_norm = 1 + 2·(a + … + a^B) = (1+a−2a^(B+1))/(1−a) for B = ``reach``.

    >>> a = math.exp(-0.5)
    >>> abs(p_norm(0.5, 3) - (1 + 2 * (a + a**2 + a**3))) < 1e-15
    True
    """
    e = float(exact_positive("epsilon", epsilon))
    return 1 + 2 * math.exp(-e) * math.expm1(-e * check_integer("reach", reach, 0)) / math.expm1(-e)


def inverse_norm_bound(epsilon: Exact, reach: int, norm: Any) -> float:
    """Return the lemma's bound on ‖A^(−1)‖_p for a window of reach B.

    p = 1, ∞:  P_norm·(2 + a + 1/a) / (1/a − a − 4a^B);   p = 2:  P_norm·(1+a) / (1 − a − 2a^(B+1)).
    Infinite where B is too small for the lemma to say anything.

    >>> round(inverse_norm_bound(1.0, 40, 2), 6), round(((math.e + 1) / (math.e - 1)) ** 2, 6)
    (4.682694, 4.682694)
    """
    e = float(exact_positive("epsilon", epsilon))
    a, b = math.exp(-e), check_integer("reach", reach, 0)
    if as_norm(norm) == 2:
        numerator, room = 1 + a, -math.expm1(-e) - 2 * math.exp(-e * (b + 1))
    else:
        # multiplied by a throughout, so that a large ε does not overflow
        numerator, room = (1 + a) ** 2, -math.expm1(-2 * e) - 4 * math.exp(-e * (b + 1))
    return p_norm(epsilon, b) * numerator / room if room > 0 else math.inf


@dataclass(frozen=True, eq=False)
class Circulant:
    """A circulant matrix known by its eigenvalues: those of the first N//2 + 1 frequencies, the rest being conjugate.

    order : N
    eigenvalues : φ_0 … φ_(N//2), real for a symmetric matrix

    Examples
    --------
    >>> channel = Circulant.laplace(1.0, reach=4, order=12)
    >>> x = np.arange(12.0)
    >>> bool(np.allclose(channel.solve(channel.apply(x)), x))
    True
    """

    order: int
    eigenvalues: NDArray[Any]

    @classmethod
    def laplace(cls, epsilon: Exact, *, reach: int, order: int) -> Circulant:
        """Return the channel A of discrete Laplace noise conditioned on |Z| ≤ reach."""
        e = float(exact_positive("epsilon", epsilon))
        if order < 2 * reach + 1:
            raise InputError(f"order must be ≥ 2·reach + 1 = {2 * reach + 1}, got {order}")
        a, gap = math.exp(-e), -math.expm1(-e)
        k = np.arange(order // 2 + 1)
        half = np.sin(np.pi / order * k)
        # cos (B+1)θ − a·cos Bθ, and its difference of cosines as a product: nothing cancels for small ε or θ.
        # Angles are reduced modulo 2π in integers, where the reduction is exact.
        far = np.cos(2 * np.pi / order * ((reach + 1) * k % order))
        middle = np.sin(np.pi / order * ((2 * reach + 1) * k % (2 * order)))
        cut = 2 * math.exp(-e * (reach + 1)) * (gap * far - 2 * a * middle * half)
        values = (-math.expm1(-2 * e) - cut) / (p_norm(epsilon, reach) * (gap**2 + 4 * a * half**2))
        return cls(order, values)

    @classmethod
    def modular(cls, epsilon: Exact, modulus: int) -> Circulant:
        """Return the channel of noise modulo m with P(Z=t) ∝ e^(−εt/m), 0 ≤ t < m."""
        e = float(exact_positive("epsilon", epsilon)) / check_integer("modulus", modulus, 2)
        theta = 2 * np.pi / modulus * np.arange(modulus // 2 + 1)
        # 1 − q·e^(−iθ) = (1−q) + q·(1 − e^(−iθ)), and 1 − e^(−iθ) = 2 sin²(θ/2) + i·sin θ
        gap, q = -math.expm1(-e), math.exp(-e)
        return cls(modulus, gap / (gap + q * (2 * np.sin(theta / 2) ** 2 + 1j * np.sin(theta))))

    def apply(self, x: Floats) -> Floats:
        """Return A·x."""
        return np.fft.irfft(np.fft.rfft(x) * self.eigenvalues, self.order)

    def solve(self, y: Floats) -> Floats:
        """Return A^(−1)·y."""
        return np.fft.irfft(np.fft.rfft(y) / self.eigenvalues, self.order)

    def solve_transpose(self, y: Floats) -> Floats:
        """Return A^(−T)·y."""
        return np.fft.irfft(np.fft.rfft(y) / np.conj(self.eigenvalues), self.order)

    def inverse_column(self) -> Floats:
        """Return the first column of A^(−1), which is circulant too."""
        return np.fft.irfft(1 / self.eigenvalues, self.order)


def fast_inversion(channel: Circulant, observed: Floats, inside: slice, norm: Any) -> Floats:
    """Algorithm 2: minimise ‖A·r − observed‖_p over all r whose entries ``inside`` add up to 1.

    >>> channel = Circulant.laplace(1.0, reach=4, order=12)
    >>> r = fast_inversion(channel, np.full(12, 1 / 12), slice(4, 8), norm=2)
    >>> round(float(r[4:8].sum()), 12)
    1.0
    """
    indicator = np.zeros(channel.order)
    indicator[inside] = 1
    c = channel.solve_transpose(indicator)
    direction, dual = steepest(c, norm)
    excess = float(c @ observed) - 1
    return channel.solve(observed - excess / dual * direction)


def steepest(c: Floats, norm: Any) -> tuple[Floats, float]:
    """Return the v of ‖v‖_p = 1 that maximises ⟨c,v⟩, and that maximum, the dual norm of c."""
    p = as_norm(norm)
    size = np.abs(c)
    largest = float(size.max())
    if p == 2:
        length = float(np.linalg.norm(c))
        return c / length, length
    if p == 1:
        first = int(np.argmax(size >= largest * (1 - TIE)))
        v = np.zeros(c.size)
        v[first] = np.sign(c[first])
        return v, float(size[first])
    v = np.where(size > TIE * largest, np.sign(c), 0.0)
    return v, float(c @ v)


def round_profile(r: Floats) -> tuple[Floats, float]:
    """Algorithm 3 on the entries 0..n: return a profile and the threshold τ that made it one.

    τ solves Σ min(τ, x[t]) = s, where x is r clipped to [0, 1] and s = Σ x − 1 ≥ 0 (equal to the paper's
    s_{>1} + s_{<0} because r adds up to 1). With x sorted and Σ_{i<t} x_i + (n+1−t)·x_t growing in t, the first t
    where it reaches s gives τ. Rounding of the last bits may leave s at −1e−15; then nothing is left to lower.

    >>> profile, threshold = round_profile(np.array([0.7, 0.6, -0.3]))
    >>> profile.round(12).tolist(), round(threshold, 12)
    ([0.55, 0.45, 0.0], 0.15)
    """
    r = np.asarray(r, dtype=float)
    total = float(r.sum())
    if not abs(total - 1) <= SUM_TOLERANCE * max(1.0, float(np.abs(r).sum())):
        raise InputError(f"r must add up to 1 before it is rounded, got {total!r}")
    x = np.clip(r, 0.0, 1.0)
    surplus = float(x.sum()) - 1
    if surplus <= 0:
        return x, 0.0
    ascending = np.sort(x[x > 0])
    below = np.concatenate([[0.0], np.cumsum(ascending)[:-1]])
    left = np.arange(ascending.size, 0, -1)
    t = min(int(np.searchsorted(below + left * ascending, surplus)), ascending.size - 1)
    threshold = float((surplus - below[t]) / left[t])
    return np.maximum(x - threshold, 0.0), threshold
