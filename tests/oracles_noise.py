"""Slow oracles for the noise, written with mpmath and fractions instead of integers and tables."""

from __future__ import annotations

from fractions import Fraction

import mpmath as mp


def laplace_cdf(epsilon: Fraction, k: int, bits: int) -> mp.mpf:
    """P(Z ≤ k) of the discrete Laplace law, by its density summed in closed form."""
    with mp.workprec(bits + 200):
        a = mp.exp(-mp.mpf(epsilon.numerator) / epsilon.denominator)
        if k < 0:
            return +(a**-k / (1 + a))
        return +(1 - a ** (k + 1) / (1 + a))


def negative_binomial_cdf(epsilon: Fraction, power: Fraction, k: int, bits: int) -> mp.mpf:
    """P(X ≤ k) of NB(ρ, a), through the regularised incomplete beta function rather than a sum."""
    with mp.workprec(bits + 200):
        a = mp.exp(-mp.mpf(epsilon.numerator) / epsilon.denominator)
        rho = mp.mpf(power.numerator) / power.denominator
        return +mp.betainc(rho, k + 1, 0, 1 - a, regularized=True)


def difference_pmf(epsilon: Fraction, power: Fraction, z: int) -> mp.mpf:
    """P(Z = z) of power ρ: the sum over k of P(X = z + k)·P(X = k)."""
    with mp.workprec(200):
        a = mp.exp(-mp.mpf(epsilon.numerator) / epsilon.denominator)
        rho = mp.mpf(power.numerator) / power.denominator

        def nb(k: mp.mpf) -> mp.mpf:
            return (1 - a) ** rho * mp.rf(rho, k) / mp.factorial(k) * a**k

        return +mp.nsum(lambda k: nb(k + abs(z)) * nb(k), [0, mp.inf])


def difference_log_pmf(epsilon: Fraction, power: int, z: int) -> mp.mpf:
    """log P(Z = z) for an integer power, by summing the series term by term until it stops growing."""
    with mp.workprec(200):
        a = mp.exp(-mp.mpf(epsilon.numerator) / epsilon.denominator)
        total, k = mp.mpf(0), 0
        while True:
            term = mp.binomial(z + k + power - 1, power - 1) * mp.binomial(k + power - 1, power - 1) * a ** (2 * k)
            total += term
            if k > 10 and term < total * mp.mpf(10) ** -40:
                return +(2 * power * mp.log(1 - a) + z * mp.log(a) + mp.log(total))
            k += 1


def floor_scaled(value: mp.mpf, bits: int) -> int:
    """floor(value·2^bits), exactly for the mpf given."""
    with mp.workprec(bits + 400):
        return int(mp.floor(mp.ldexp(value, bits)))
