"""The law of the noise: discrete Laplace, and its powers.

Symbols: ε > 0 is the privacy parameter, a = e^(−ε), ρ > 0 the power.

The discrete Laplace law [1]_ is P(Z = z) = (1−a)/(1+a) · a^|z|, the difference of two geometric variables.
Its generating function is (1−a)² / ((1−a·z)(1−a/z)); both factors are infinitely divisible, so the ρ-th power
is again a law for every ρ > 0: the difference of two negative binomials NB(ρ, a). Adding independent noises of
equal a adds their powers, which is what merging sketches does.

ρ ≥ 1 keeps ε exactly; ρ < 1 does not (:attr:`DiscreteLaplace.actual_epsilon` says what it gives), so what
carries less than one noise is a secret share (:meth:`DiscreteLaplace.shares`).

.. [1] A. Ghosh, T. Roughgarden, M. Sundararajan, "Universally utility-maximizing privacy mechanisms", STOC 2009.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from numbers import Rational
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .arrays import Floats
from .errors import InputError

__all__ = ["DiscreteLaplace", "Exact", "exact_positive", "tidy"]

Exact = int | float | Fraction | Decimal | str
"""What may be given for ε and ρ: taken as the exact rational that it prints as."""


def exact_positive(name: str, value: Any) -> Fraction:
    """Return ``value`` as the exact positive rational it prints as.

    >>> exact_positive("epsilon", 0.1), exact_positive("epsilon", "1/3")
    (Fraction(1, 10), Fraction(1, 3))
    """
    if value is None:
        raise InputError(f"{name} is required: 1.0 is a common start; see unnoise plan")
    if isinstance(value, bool) or not isinstance(value, Rational | float | np.floating | Decimal | str):
        raise InputError(f"{name} must be a number, got {value!r}")
    try:
        if isinstance(value, Rational):  # NumPy's integers too, and fractions of them: 64 bits would not do later
            fraction = Fraction(int(value.numerator), int(value.denominator))
        else:
            text = str(value).replace(" ", "")
            mantissa, _, exponent = text.lower().partition("e")
            long = len(mantissa) > MOST_DIGITS or abs(int(exponent or 0)) > MOST_DIGITS  # would fill the memory
            if long or not text.isascii():  # digits of other scripts, which Python would take for these
                raise ValueError
            fraction = Fraction(text)
    except (ValueError, OverflowError, ZeroDivisionError):
        raise InputError(f"{name} must be a finite number, got {_short(repr(value))}") from None
    if fraction <= 0:
        raise InputError(f"{name} must be > 0, got {_short(value)}")
    return fraction


MOST_DIGITS = 400
SMALLEST_EPSILON, LARGEST_EPSILON = Fraction(1, 10**12), Fraction(500)
"""ε that noise of 64 bits can hold (its scale is 1/ε), and up to which anything is left of it (e^−500 ≈ 10^−217)."""

SMALLEST_DIVIDED = Fraction(1, 4096)
"""Least ε of a noise with a fraction in its power: its table of exact thresholds grows like 1/ε."""

MOST_POWER = 1 << 15
"""Most noises added up."""

LONGEST = 1 << 20
"""Farthest count up to which a power's law is tabulated exactly."""


@dataclass(frozen=True, init=False)
class DiscreteLaplace:
    """The discrete Laplace law of parameter ε, raised to a power ρ.

    Parameters
    ----------
    epsilon : int, float, Fraction, Decimal or str
        ε > 0, taken as the exact rational it prints as: ``0.1`` is one tenth.
    power : same, default 1
        ρ > 0, the number of independent noises added up.

    Examples
    --------
    >>> noise = DiscreteLaplace(1)
    >>> float(noise.pmf(0).round(6)), round(noise.variance, 6)
    (0.462117, 1.841347)
    >>> bool(abs(DiscreteLaplace("1/2", power=2.5).pmf(np.arange(-200, 201)).sum() - 1) < 1e-12)
    True
    """

    epsilon: Fraction
    power: Fraction
    a: float = field(init=False, compare=False)
    """a = e^(−ε)."""
    log_scale: float = field(init=False, compare=False)
    """log((1−a)/(1+a)) = log tanh(ε/2), accurate for small ε."""
    variance: float = field(init=False, compare=False)
    """2ρa/(1−a)²."""

    def __init__(self, epsilon: Exact, power: Exact = 1) -> None:
        object.__setattr__(self, "epsilon", exact_positive("epsilon", epsilon))
        object.__setattr__(self, "power", exact_positive("power", power))
        if not SMALLEST_EPSILON <= self.epsilon <= LARGEST_EPSILON:
            raise InputError(
                f"epsilon must be between 1e-12 and {LARGEST_EPSILON} per occurrence, got {_short(epsilon)}"
            )
        if self.power > MOST_POWER:
            raise InputError(f"power must be at most {MOST_POWER:,}, got {_short(power)}")
        if self.power.denominator > 1 and self.epsilon < SMALLEST_DIVIDED:
            raise InputError(
                f"epsilon must be at least 1/{SMALLEST_DIVIDED.denominator} per occurrence for a power that is not "
                f"whole, got {_short(epsilon)} and power {_short(power)}"
            )
        a = math.exp(-self.epsilon)
        object.__setattr__(self, "a", a)
        object.__setattr__(self, "log_scale", math.log(math.tanh(self.epsilon / 2)))
        object.__setattr__(self, "variance", float(self.power) * 2 * a / math.expm1(-self.epsilon) ** 2)

    @classmethod
    def from_scale(cls, scale: Exact, power: Exact = 1) -> DiscreteLaplace:
        """Return the law of scale b = 1/ε.

        >>> DiscreteLaplace.from_scale(2) == DiscreteLaplace(0.5)
        True
        """
        return cls(1 / exact_positive("scale", scale), power)

    def __repr__(self) -> str:
        power = "" if self.power == 1 else f", power={tidy(self.power)}"
        return f"DiscreteLaplace(epsilon={tidy(self.epsilon)}{power})"

    @property
    def actual_epsilon(self) -> float:
        """The ε that adding this noise to a count gives: sup over z of log P(Z=z)/P(Z=z+1).

        For ρ ≥ 1 that is ε; for ρ < 1 the worst case stands at z = 0.

        Examples
        --------
        >>> [round(DiscreteLaplace(1, rho).actual_epsilon, 2) for rho in (2, 1, 0.9, 0.5, 0.1)]
        [1.0, 1.0, 1.1, 1.68, 3.3]
        """
        if self.power >= 1:
            return float(self.epsilon)
        first, second = self.log_pmf(np.array([0, 1]))
        return float(first - second)

    def characteristic(self, theta: ArrayLike) -> Floats:
        """E e^(iθZ) = ((1−a)² / (1 − 2a·cos θ + a²))^ρ, real because Z is symmetric."""
        # 1 − 2a·cos θ + a² = (1−a)² + 4a·sin²(θ/2): no cancellation near θ = 0
        gap = math.expm1(-self.epsilon) ** 2
        ratio = gap / (gap + 4 * self.a * np.sin(np.asarray(theta, dtype=float) / 2) ** 2)
        return np.asarray(ratio ** float(self.power))

    def log_pmf(self, z: ArrayLike) -> Floats:
        """Return log P(Z = z) for integers z."""
        n = np.abs(np.asarray(z, dtype=float))
        if self.power == 1:
            return np.asarray(self.log_scale - float(self.epsilon) * n)
        if self.epsilon < SMALLEST_DIVIDED:
            return self._log_whole(n)
        farthest = min(LONGEST, int(n.max(initial=0)))
        table = _log_table(self.epsilon, self.power, max(10, farthest.bit_length()))
        end = table.size - 1
        # Past 2^20 the ratios are those of the limit: P(Z=n) ~ C·a^n·n^(ρ−1)
        beyond = (float(self.power) - 1) * (np.log(np.maximum(n, end)) - math.log(end))
        beyond -= float(self.epsilon) * np.maximum(n - end, 0)
        return np.asarray(table[np.minimum(n, end).astype(np.int64)] + beyond)

    def _log_whole(self, n: Floats) -> Floats:
        """Return log P(Z = n), n ≥ 0, for a whole power, without a table, which would grow like 1/ε.

        By partial fractions of (1−az)^(−ρ)·(1−a/z)^(−ρ), all terms positive:
        P(Z = n) = (1−a)^(2ρ)·a^n·Σ_{i<ρ} C(n+ρ−1, ρ−1−i)·C(ρ+i−1, i)·a^(2i)·(1−a²)^(−ρ−i).
        """
        rho, epsilon = int(self.power), float(self.epsilon)
        i = np.arange(1.0, rho)
        log_gap = math.log(-math.expm1(-2 * epsilon))  # log(1 − a²)
        log_own = np.append(0.0, np.cumsum(np.log((rho + i - 1) / i) - 2 * epsilon - log_gap)) - rho * log_gap
        log_chosen, log_sum = np.zeros(n.shape), np.full(n.shape, log_own[-1])
        for m in range(1, rho):  # C(n+ρ−1, m), from the one before
            log_chosen += np.log((n + (rho - m)) / m)
            log_sum = np.logaddexp(log_sum, log_chosen + log_own[rho - 1 - m])
        return np.asarray(log_sum - epsilon * n + 2 * rho * math.log(-math.expm1(-epsilon)))

    def pmf(self, z: ArrayLike) -> Floats:
        """Return P(Z = z) for integers z."""
        return np.asarray(np.exp(self.log_pmf(z)))

    def reach(self, tail: float) -> int:
        """Return the smallest b found with P(|Z| > b) ≤ tail (exact for ρ = 1, an upper bound otherwise)."""
        if not 0 < tail < 1:
            raise InputError(f"tail must be between 0 and 1, got {tail!r}")
        if self.power == 1:
            # P(|Z| > b) = 2·a^(b+1)/(1+a)
            return max(0, math.ceil(math.log(2 / (tail * (1 + self.a))) / self.epsilon) - 1)
        # Chernoff: P(Z ≥ b) ≤ E e^(sZ)·e^(−sb) for every 0 < s < ε; take the best of a few s.
        epsilon = float(self.epsilon)
        s = epsilon * np.linspace(0.05, 0.95, 19)
        log_moment = 2 * math.log(-math.expm1(-epsilon)) - np.log(np.expm1(s - epsilon) * np.expm1(-s - epsilon))
        best = float(((float(self.power) * log_moment + math.log(2 / tail)) / s).min())
        return math.ceil(best)

    def plus(self, other: DiscreteLaplace) -> DiscreteLaplace:
        """Return the law of the sum of two independent noises of equal ε: powers add."""
        if self.epsilon != other.epsilon:
            raise InputError(
                f"epsilon must be equal for noises to add up to one law, got "
                f"{tidy(self.epsilon)} and {tidy(other.epsilon)}"
            )
        return DiscreteLaplace(self.epsilon, self.power + other.power)

    def shares(self, parties: int, *, survivors: int | None = None) -> DiscreteLaplace:
        """Return the law each of ``parties`` parties adds so that any ``survivors`` of them reach this noise.

        >>> DiscreteLaplace(1).shares(5, survivors=3)
        DiscreteLaplace(epsilon=1, power=1/3)
        """
        survivors = parties if survivors is None else survivors
        if not 1 <= survivors <= parties:
            raise InputError(f"survivors must be between 1 and parties={parties}, got {survivors}")
        return DiscreteLaplace(self.epsilon, self.power / survivors)


@lru_cache(maxsize=64)
def _log_table(epsilon: Fraction, power: Fraction, bits: int) -> Floats:
    """Return log P(Z = n) for a power ρ ≠ 1 and n up to 2^bits at least, and until next to nothing is left.

    With H the generating function, z·H'(z)·(1−az)(1−a/z) = ρ·a·(z − 1/z)·H(z), so the law obeys the recurrence
    n(1+a²)·p[n] − a(n−1+ρ)·p[n−1] − a(n+1−ρ)·p[n+1] = 0, whose decaying solution is stable backwards (Miller):
    with r[n] = p[n+1]/p[n], r[n−1] = a(n−1+ρ) / (n(1+a²) − a(n+1−ρ)·r[n]), started far out with r = a.
    """
    noise = DiscreteLaplace(epsilon, power)
    a, rho = noise.a, float(power)
    end = max(noise.reach(1e-18) + 2, 1 << bits)
    start = end + math.ceil(40 / epsilon)
    ratio, ratios = a, []
    for n in range(start, 0, -1):
        ratio = a * (n - 1 + rho) / (n * (1 + a * a) - a * (n + 1 - rho) * ratio)
        if n <= end:
            ratios.append(ratio)
    logs = np.concatenate([[0.0], np.cumsum(np.log(ratios[::-1]))])
    return np.asarray(logs - math.log(1 + 2 * np.exp(logs[1:]).sum()))


def _short(value: object) -> str:
    """Write whatever was given, however long, in a few characters."""
    text = str(tidy(value)) if isinstance(value, Fraction) else str(value)
    return text if len(text) <= 40 else f"{text[:37]}…"


def tidy(value: Fraction) -> str:
    """Write a fraction as a short decimal where that is exact, else as p/q."""
    if value.denominator == 1:
        return str(value.numerator)
    as_float = value.numerator / value.denominator if abs(value) < 1 << 1000 else math.inf
    if math.isfinite(as_float) and Fraction(str(as_float)) == value:
        return str(as_float)
    return str(value)
