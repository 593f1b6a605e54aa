"""Slow, different ways to what linear, isotonic and banded compute: fractions, dense matrices, Clarabel.

With a rational, everything here is exact: a^n·(polynomial in n) is summed to infinity by Newton's forward differences,
Σ_k r^k q(k) = Σ_j Δ^j q(0)·r^j/(1−r)^(j+1).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING

import clarabel
import numpy as np
from scipy import sparse

if TYPE_CHECKING:
    from unnoise import DiscreteLaplace

HALF = Fraction(1, 2)
Rational = Callable[[int], Fraction]


def endless_sum(q: Rational, ratio: Fraction, degree: int) -> Fraction:
    """Σ_{k≥0} ratio^k·q(k) for a polynomial q of at most this degree."""
    column = [q(k) for k in range(degree + 1)]
    total = Fraction(0)
    for j in range(degree + 1):
        total += column[0] * ratio**j / (1 - ratio) ** (j + 1)
        column = [b - a for a, b in itertools.pairwise(column)]
    return total


@cache
def law(n: int, power: int, a: Fraction = HALF) -> Fraction:
    """P(Z = n) of an integer power, exactly, one convolution with the discrete Laplace law at a time."""
    n = abs(n)
    scale = (1 - a) / (1 + a)
    if power == 1:
        return scale * a**n
    earlier = power - 1

    def stripped(j: int) -> Fraction:  # a polynomial in j ≥ 0 of degree power − 2
        return law(j, earlier, a) / a**j

    near = sum((law(j, earlier, a) * a ** (n - j) for j in range(n + 1)), Fraction(0))
    right = a ** (n + 2) * endless_sum(lambda k: stripped(n + 1 + k), a * a, power)
    left = a ** (n + 2) * endless_sum(lambda k: stripped(1 + k), a * a, power)
    return scale * (near + right + left)


def oracle_weight(g: Rational, v: int, power: int, bound: int | None = None, a: Fraction = HALF) -> Fraction:
    """w(v) of DESIGN 4.2, from its statement: folded for power 1, else the filter applied power times
    to g, which below 0 is the polynomial through its first values, of degree 4 at most, else a straight line."""
    kappa = a / (1 - a) ** 2
    if power == 1:
        t = max(v, 0) if bound is None else min(max(v, 0), bound)
        if bound == 0:
            return g(0)
        if t == 0:
            return (g(0) - a * g(1)) / (1 - a)
        if t == bound:
            return (g(t) - a * g(t - 1)) / (1 - a)
        return g(t) - kappa * (g(t - 1) - 2 * g(t) + g(t + 1))

    def once(function: Rational) -> Rational:
        return lambda t: function(t) - kappa * (function(t - 1) - 2 * function(t) + function(t + 1))

    def through(degree: int) -> Rational:  # Lagrange's polynomial
        nodes = range(degree + 1)
        return lambda t: sum(
            (g(i) * math.prod((Fraction(t - j, i - j) for j in nodes if j != i), start=Fraction(1)) for i in nodes),
            Fraction(0),
        )

    found = (one for one in map(through, range(5)) if all(one(t) == g(t) for t in range(7)))
    start = next(found, through(1))
    filtered: Rational = lambda t: g(t) if t >= 0 else start(t)  # noqa: E731
    for _ in range(power):
        filtered = once(filtered)
    return filtered(v)


def least_variance(g, values, cells, noise):
    """min Σ cells·w² subject to Σ_v P(v − h)·w(v) = g(h) for h ≥ 0: the dual of dense constrained least squares.

    Values above thrice the power are left to the filter, which nothing can improve there; below, all is free.
    """
    power = int(noise.power)
    kappa = noise.a / (1 - noise.a) ** 2
    w = np.asarray(g(np.maximum(np.arange(values[0] - power, values[-1] + power + 1), 0)), dtype=float)
    for _ in range(power):
        w = w[1:-1] - kappa * np.diff(w, 2)
    free = values < 3 * power + 4
    counts = np.arange(0, 3 * power + 4 + 12)
    rows = noise.pmf((values[free] - counts[:, None]).ravel()).reshape(counts.size, -1)
    root = np.sqrt(cells[free])
    scaled = np.linalg.lstsq((rows / root).T @ np.eye(counts.size), root * w[free], rcond=1e-12)[0]
    best = (rows / root).T @ scaled
    return float(best @ best + cells[~free] @ w[~free] ** 2)


def expectation(w: Rational, h: int, power: int, degree: int, settled: int, a: Fraction = HALF) -> Fraction:
    """E w(h + Z) exactly, for w a polynomial of this degree beyond ±settled (on either side, its own)."""
    edge = settled + h + 1
    inside = sum((law(v - h, power, a) * w(v) for v in range(-edge + 1, edge)), Fraction(0))

    def tail(sign: int) -> Fraction:
        first = abs(sign * edge - h)
        return a**first * endless_sum(
            lambda k: law(first + k, power, a) / a ** (first + k) * w(sign * (edge + k)), a, degree + power
        )

    return inside + tail(1) + tail(-1)


def dense_channel(rows: np.ndarray, points: np.ndarray, noise: DiscreteLaplace) -> np.ndarray:
    """K, entry by entry; for integer powers by a finite sum, right to rounding however far out."""
    n = np.abs(rows[:, None] - points[None, :]).astype(float)
    if noise.power.denominator != 1:
        return noise.pmf(n)
    # Euler's transformation of Σ_k C(n+k+ρ−1, n+k)·C(k+ρ−1, k)·a^(n+2k): ρ terms are left
    rho, a = int(noise.power), noise.a
    term, series, binomial = np.ones_like(n), np.ones_like(n), np.ones_like(n)
    for k in range(rho - 1):
        term = term * (n + 1 - rho + k) * (1 - rho + k) / ((n + 1 + k) * (k + 1)) * a * a
        series = series + term
        binomial = binomial * (n + k + 1) / (k + 1)
    gap = -math.expm1(-noise.epsilon)
    return gap ** (2 * rho) * (gap * (1 + a)) ** (1 - 2 * rho) * a**n * binomial * series


def _clarabel(p: sparse.csc_matrix, q: np.ndarray, a: np.ndarray, b: np.ndarray, cones: list) -> np.ndarray:
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_iter = 500
    for name in ("tol_gap_abs", "tol_gap_rel", "tol_feas", "tol_ktratio"):
        setattr(settings, name, 1e-12)  # the defaults stop at 1e-8, too early to compare with
    for name in ("reduced_tol_gap_abs", "reduced_tol_gap_rel", "reduced_tol_feas"):
        setattr(settings, name, 1e-9)
    solver = clarabel.DefaultSolver(sparse.csc_matrix(p), q, sparse.csc_matrix(a), b, cones, settings)
    return np.array(solver.solve().x)


def clarabel_projection(curve: np.ndarray) -> np.ndarray:
    """Nearest non-increasing curve in [0, 1] that starts at 1."""
    n = curve.size
    steps = np.eye(n, k=1)[:-1] - np.eye(n)[:-1]  # x[i+1] − x[i] ≤ 0
    last = np.zeros((1, n))
    last[0, -1] = -1
    a = np.vstack([np.eye(n)[:1], steps, last])
    b = np.r_[1.0, np.zeros(n)]
    cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(n)]
    return _polished(_clarabel(sparse.eye(n), -curve, a, b, cones), curve)


def _polished(near: np.ndarray, curve: np.ndarray) -> np.ndarray:
    """The means of the levels that a solver found, if allowed and nearer: it stops 1e-5 short of large curves."""
    levels = np.split(np.arange(curve.size), np.flatnonzero(np.diff(near) < -1e-4) + 1)
    exact = np.concatenate([np.full(level.size, np.clip(curve[level].mean(), 0, 1)) for level in levels])
    exact[levels[0]] = 1.0
    allowed = (np.diff(exact) <= 0).all()
    return exact if allowed and np.sum((exact - curve) ** 2) <= np.sum((near - curve) ** 2) + 1e-9 else near


def clarabel_likelihood(k: np.ndarray, y: np.ndarray) -> np.ndarray:
    """argmax Σ y·log(K f) over profiles, through exponential cones e^s ≤ (K f)."""
    rows, n = k.shape
    a, b, cones = [], [], []
    a.append(np.r_[np.ones(n), np.zeros(rows)][None])
    b.append([1.0])
    cones.append(clarabel.ZeroConeT(1))
    a.append(np.hstack([-np.eye(n), np.zeros((n, rows))]))
    b.append(np.zeros(n))
    cones.append(clarabel.NonnegativeConeT(n))
    for i in range(rows):
        block = np.zeros((3, n + rows))
        block[0, n + i] = -1.0
        block[2, :n] = -k[i]
        a.append(block)
        b.append([0.0, 1.0, 0.0])
        cones.append(clarabel.ExponentialConeT())
    size = n + rows
    x = _clarabel(
        sparse.csc_matrix((size, size)), np.r_[np.zeros(n), -y], np.vstack(a), np.concatenate(b), cones
    )
    f = np.maximum(x[:n], 0)
    return f / f.sum()


def clarabel_least_norm(k: np.ndarray, y: np.ndarray, p: float) -> float:
    """min ‖K f − y‖_p over profiles."""
    rows, n = k.shape
    equal = np.r_[np.ones(n), 0.0][None]
    positive = np.hstack([-np.eye(n), np.zeros((n, 1))])
    if p == 2:
        cone = np.vstack([np.r_[np.zeros(n), -1.0][None], np.hstack([-k, np.zeros((rows, 1))])])
        a = np.vstack([equal, positive, cone])
        b = np.concatenate([[1.0], np.zeros(n), [0.0], -y])
        cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(n), clarabel.SecondOrderConeT(rows + 1)]
        extra = 1
    else:
        extra = rows if p == 1 else 1
        slack = np.eye(rows) if p == 1 else np.ones((rows, 1))
        a = np.vstack(
            [
                np.r_[np.ones(n), np.zeros(extra)][None],
                np.hstack([-np.eye(n), np.zeros((n, extra))]),
                np.hstack([k, -slack]),
                np.hstack([-k, -slack]),
            ]
        )
        b = np.concatenate([[1.0], np.zeros(n), y, -y])
        cones = [clarabel.ZeroConeT(1), clarabel.NonnegativeConeT(n + 2 * rows)]
    size = n + extra
    cost = np.r_[np.zeros(n), np.ones(extra)]
    x = _clarabel(sparse.csc_matrix((size, size)), cost, a, b, cones)
    f = np.maximum(x[:n], 0)
    return float(np.linalg.norm(k @ (f / f.sum()) - y, p))
