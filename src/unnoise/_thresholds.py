"""Exact thresholds: distribution functions bracketed between integers, to any number of bits.

To sample a law by inversion one compares a uniform real U in [0, 1) with the thresholds c_k = P(Z ≤ k). No
floating point number holds a c_k, but integers can bracket it: :meth:`Law.bounds` returns lo ≤ 2^bits·c_k ≤ hi
for any number of bits. Each law takes ε as an exact rational, so "the law sampled" is "the law stated".

Intervals are carried through integer arithmetic, rounding outward at every step, so no error analysis is needed
beyond that of e^(−x), which comes correctly rounded from :mod:`decimal` (IEEE 854 / General Decimal Arithmetic).
"""

from __future__ import annotations

import math
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from threading import RLock
from typing import Protocol

from .errors import InputError

__all__ = ["Geometric", "GeometricDigit", "Laplace", "Law", "NegativeBinomial", "exp_bounds", "floor_thresholds"]

TAIL_BITS = 22
"""Tables stop where 2^−22 of the mass is left; what falls beyond is resolved one by one, exactly."""

GUARD = 64
"""Extra bits carried while a table is built."""

LONGEST = 1 << 21
"""Longest table of a fractional power: beyond it, ε is too small for one."""

Bounds = tuple[int, int]


class Law(Protocol):
    """A law on the integers, known through brackets of its distribution function."""

    open_below: bool
    open_above: bool

    def bounds(self, k: int, bits: int) -> Bounds:
        """Return lo ≤ 2^bits · P(Z ≤ k) ≤ hi, with hi − lo small."""

    def table(self) -> tuple[int, list[Bounds]]:
        """Return the first outcome k₀ and brackets of 2^(64+GUARD)·P(Z ≤ k) for k = k₀, k₀+1, …"""


def exp_bounds(x: Fraction, bits: int) -> Bounds:
    """Return lo ≤ 2^bits · e^(−x) ≤ hi for x ≥ 0, with hi − lo ≤ 2.

    >>> exp_bounds(Fraction(0), 8)
    (256, 256)
    >>> lo, hi = exp_bounds(Fraction(1), 200)
    >>> hi - lo <= 2 and str(Decimal(lo) / 2**200)[:12]
    '0.3678794411'
    """
    if x == 0:
        return 1 << bits, 1 << bits
    if x > bits:  # e^(−x) < 2^(−bits)
        return 0, 1
    # |error| ≤ e^(−x)·x·10^(1−digits) from the quotient and as much from exp: below 2^(−bits−3) with this margin
    digits = math.ceil(bits * 0.30103) + len(str(math.ceil(x))) + 6
    context = Context(prec=digits, Emax=MAX_EMAX, Emin=MIN_EMIN)
    quotient = context.divide(Decimal(-x.numerator), Decimal(x.denominator))
    scaled = _floor_scaled(context.exp(quotient), bits)
    return max(0, scaled - 1), scaled + 1


def _floor_scaled(value: Decimal, bits: int) -> int:
    """Return floor(value·2^bits) exactly."""
    numerator, denominator = value.as_integer_ratio()
    return (numerator << bits) // denominator


def _times(x: Bounds, y: Bounds, bits: int) -> Bounds:
    """Return a bracket of the product of two fixed-point numbers."""
    return (x[0] * y[0]) >> bits, -((-x[1] * y[1]) >> bits)


def _over(x: Bounds, y: Bounds, bits: int) -> Bounds:
    """Return a bracket of the quotient of two fixed-point numbers, y > 0."""
    return (x[0] << bits) // y[1], -((-x[1] << bits) // y[0])


def _complement(x: Bounds, bits: int) -> Bounds:
    """Return a bracket of 1 − x."""
    return (1 << bits) - x[1], (1 << bits) - x[0]


def floor_thresholds(law: Law) -> tuple[int, list[int]]:
    """Return the first outcome k₀ and t_k = floor(2^64 · P(Z ≤ k)) for k = k₀, k₀+1, …, each one certified.

    >>> first, exact = floor_thresholds(Laplace(Fraction(1)))
    >>> hex(exact[-1 - first])  # P(Z ≤ −1) = a/(1+a) at ε = 1
    '0x44d9585152ea1935'
    """
    first, brackets = law.table()
    exact = [low >> GUARD for low, _ in brackets]
    above = [high >> GUARD for _, high in brackets]
    for j, (low, high) in enumerate(zip(exact, above)):
        if low != high:
            exact[j] = _refine(law, first + j)
    return first, exact


def _refine(law: Law, k: int, bits: int = 64) -> int:
    """Return floor(2^bits · P(Z ≤ k)), with as many more bits as it takes: no threshold is a dyadic rational."""
    extra = GUARD
    while True:
        extra *= 2
        low, high = (side >> extra for side in law.bounds(k, bits + extra))
        if low == high:
            return low


class Laplace:
    """Discrete Laplace, ρ = 1: P(Z ≤ −k) = a^k/(1+a) for k ≥ 1, and P(Z ≤ k) = 1 − a^(k+1)/(1+a) for k ≥ 0."""

    open_below = open_above = True

    def __init__(self, epsilon: Fraction) -> None:
        self.epsilon = epsilon

    def bounds(self, k: int, bits: int) -> Bounds:
        """Bracket the distribution function at any k, from its closed form."""
        work = bits + 8
        one = 1 << work
        a = exp_bounds(self.epsilon, work)
        tail = exp_bounds(self.epsilon * (k + 1 if k >= 0 else -k), work)
        share = _over(tail, (one + a[0], one + a[1]), work)
        return _rescale(share if k < 0 else _complement(share, work), 8)

    def table(self) -> tuple[int, list[Bounds]]:
        """Bracket every threshold until 2^−22 of the mass is left on either side."""
        bits = 64 + GUARD
        reach = math.ceil(TAIL_BITS * math.log(2) / self.epsilon) + 1
        one, a = 1 << bits, exp_bounds(self.epsilon, bits)
        share = _over(a, (one + a[0], one + a[1]), bits)
        shares = [share]
        for _ in range(reach):
            share = _times(share, a, bits)
            shares.append(share)
        return -reach - 1, [*reversed(shares), *(_complement(share, bits) for share in shares)]


class Geometric:
    """Geometric on 0, 1, …: P(G ≤ k) = 1 − a^(k+1)."""

    open_below, open_above = False, True

    def __init__(self, epsilon: Fraction) -> None:
        self.epsilon = epsilon

    def bounds(self, k: int, bits: int) -> Bounds:
        """Bracket the distribution function at any k, from its closed form."""
        return (0, 0) if k < 0 else _complement(exp_bounds(self.epsilon * (k + 1), bits), bits)

    def table(self) -> tuple[int, list[Bounds]]:
        """Bracket every threshold until 2^−22 of the mass is left."""
        bits = 64 + GUARD
        powers = _powers(self.epsilon, math.ceil(TAIL_BITS * math.log(2) / self.epsilon) + 1, bits)
        return 0, [_complement(power, bits) for power in powers]


class GeometricDigit:
    """The lowest digit of a geometric variable in base M: P(R ≤ k) = (1 − a^(k+1)) / (1 − a^M), 0 ≤ k < M.

    A geometric variable is R + M·Q with R and Q independent, Q geometric of parameter a^M: that is how ε too small
    for one table is sampled with two.
    """

    open_below = open_above = False

    def __init__(self, epsilon: Fraction, base: int) -> None:
        self.epsilon, self.base = epsilon, base

    def bounds(self, k: int, bits: int) -> Bounds:
        """Bracket the distribution function at any k, from its closed form."""
        if k < 0:
            return 0, 0
        if k >= self.base - 1:
            return 1 << bits, 1 << bits
        # 1 − a^M may be small: carry as many more bits as it has leading zeros
        work = bits + 16 + max(0, -math.floor(math.log2(float(self.epsilon))))
        below = _complement(exp_bounds(self.epsilon * (k + 1), work), work)
        whole = _complement(exp_bounds(self.epsilon * self.base, work), work)
        return _rescale(_over(below, whole, work), work - bits)

    def table(self) -> tuple[int, list[Bounds]]:
        """Bracket all thresholds below the last."""
        bits = 64 + GUARD
        more = 16 + max(0, -math.floor(math.log2(float(self.epsilon))))
        work = bits + more
        whole = _complement(exp_bounds(self.epsilon * self.base, work), work)
        powers = _powers(self.epsilon, self.base - 1, work)
        shares = (_over(_complement(power, work), whole, work) for power in powers)
        return 0, [_rescale(share, more) for share in shares]


class NegativeBinomial:
    """Negative binomial, 0 < ρ < 1: P(X = k) = (1−a)^ρ · ρ(ρ+1)…(ρ+k−1)/k! · a^k."""

    open_below, open_above = False, True

    def __init__(self, epsilon: Fraction, power: Fraction) -> None:
        self.epsilon, self.power = epsilon, power
        self._known: dict[int, tuple[Bounds, list[Bounds]]] = {}
        self._lock = RLock()  # the running sums are shared by all threads that draw from this law

    def bounds(self, k: int, bits: int) -> Bounds:
        """Bracket the distribution function at k by adding up the law from 0."""
        if k < 0:
            return 0, 0
        guard = 64
        return _rescale(self._cumulative(k, bits + guard), guard)

    def table(self) -> tuple[int, list[Bounds]]:
        """Bracket every threshold until 2^−22 of the mass is left."""
        bits, k = 64 + GUARD, 0
        enough = (1 << bits) - (1 << (bits - TAIL_BITS))
        while self._cumulative(k, bits)[0] < enough:
            k += 1
            if k > LONGEST:
                raise InputError(
                    f"epsilon must be ≥ about 1e-5 for a fractional power, got epsilon={float(self.epsilon)!r} "
                    f"with power={self.power}"
                )
        return 0, self._known[bits][1][: k + 1]

    def _cumulative(self, k: int, bits: int) -> Bounds:
        """Return the bracket of P(X ≤ k) at ``bits`` bits, extending the running sums as far as needed."""
        with self._lock:
            if bits not in self._known:
                first = _power_bounds(self.epsilon, self.power, bits)
                self._known[bits] = first, [first]
            term, sums = self._known[bits]
            a = exp_bounds(self.epsilon, bits)
            top, bottom = self.power.numerator, self.power.denominator
            for j in range(len(sums), k + 1):
                factor, divisor = top + (j - 1) * bottom, j * bottom << bits
                term = term[0] * a[0] * factor // divisor, -(-term[1] * a[1] * factor // divisor)
                sums.append((sums[-1][0] + term[0], sums[-1][1] + term[1]))
            self._known[bits] = term, sums
            return sums[k]


def _powers(epsilon: Fraction, how_many: int, bits: int) -> list[Bounds]:
    """Return brackets of a, a², …, a^how_many."""
    a = power = exp_bounds(epsilon, bits)
    powers = [power]
    for _ in range(how_many - 1):
        power = _times(power, a, bits)
        powers.append(power)
    return powers


def _rescale(x: Bounds, extra: int) -> Bounds:
    """Drop ``extra`` bits, outward."""
    return x[0] >> extra, -(-x[1] >> extra)


@lru_cache(maxsize=64)
def _power_bounds(epsilon: Fraction, power: Fraction, bits: int) -> Bounds:
    """Return a bracket of 2^bits · (1 − e^(−ε))^ρ, 0 < ρ < 1."""
    zeros = max(0, -math.floor(math.log2(float(epsilon)))) + 2  # leading zeros of 1 − a
    work = bits + zeros + 16
    gap = _complement(exp_bounds(epsilon, work), work)
    digits = math.ceil((work + 16) * 0.30103) + 12
    context = Context(prec=digits, Emax=MAX_EMAX, Emin=MIN_EMIN)
    exponent = context.divide(Decimal(power.numerator), Decimal(power.denominator))
    # ln, product and exp are each correctly rounded: relative error below 10^(4−digits) since |ln| < 10³
    low, high = (
        context.exp(context.multiply(exponent, context.ln(context.divide(Decimal(side), Decimal(1 << work)))))
        for side in gap
    )
    return max(0, _floor_scaled(low, bits) - 1), _floor_scaled(high, bits) + 2
