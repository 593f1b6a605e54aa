"""Oracles for the paper's parts, each written another way than the code it judges.

Dense matrices by definition, exact enumeration with fractions, mpmath, HiGHS and Clarabel with their duality gaps.
Where a must be rational, a = 1/2 stands for ε = ln 2: every lemma is a statement on a.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import clarabel
import mpmath
import numpy as np
from scipy import sparse
from scipy.optimize import linprog


def dense_channel(epsilon, reach, order):
    """A by its meaning: entry (t, s) is the law of |Z| ≤ B noise at the circular distance of t and s."""
    weights = [math.exp(-float(epsilon) * abs(z)) for z in range(-reach, reach + 1)]
    matrix = np.zeros((order, order))
    for s in range(order):
        for z, weight in zip(range(-reach, reach + 1), weights):
            matrix[(s + z) % order, s] += weight
    return matrix / math.fsum(weights)


def dense_modular(epsilon, modulus):
    """The channel of noise modulo m, entry by entry."""
    weights = [math.exp(-float(epsilon) * t / modulus) for t in range(modulus)]
    matrix = np.zeros((modulus, modulus))
    for s in range(modulus):
        for t, weight in enumerate(weights):
            matrix[(s + t) % modulus, s] = weight / math.fsum(weights)
    return matrix


def eigenvalue(epsilon, reach, order, k):
    """φ_k as the discrete Fourier sum of the first row, in 40 digits."""
    with mpmath.workdps(40):
        a = mpmath.exp(-mpmath.mpf(float(epsilon)))
        row = [mpmath.mpf(0)] * order
        for z in range(-reach, reach + 1):
            row[z % order] += a ** abs(z)
        w = mpmath.exp(-2j * mpmath.pi * k / order)
        return sum(c * w**j for j, c in enumerate(row)) / sum(row)


def expectation_by_enumeration(cells_at, a, reach):
    """E[Algorithm 1 | all noises within ±B], over every combination of noises, in fractions: {value: share}."""
    counts = [t for t, how_many in enumerate(cells_at) for _ in range(how_many)]
    law = {z: a ** abs(z) for z in range(-reach, reach + 1)}
    total = sum(law.values())
    expected = dict.fromkeys(range(-reach, len(cells_at) + reach), Fraction(0))
    for noises in itertools.product(law, repeat=len(counts)):
        probability = math.prod((law[z] for z in noises), start=Fraction(1)) / total ** len(counts)
        for count, z in zip(counts, noises):
            expected[count + z] += probability / len(counts)
    return expected


def laplace_law(a, z):
    """P(Z = z) as a fraction."""
    return (1 - a) / (1 + a) * a ** abs(z)


def least_distance(matrix, y, inside, norm):
    """The optimum of P3 (min ‖A r − y‖_p with the entries inside adding up to 1): (primal value, dual value)."""
    if norm == 2:
        return _least_distance_cone(matrix, y, inside)
    size = y.size
    row = np.zeros(size)
    row[inside] = 1
    eye, zero = np.eye(size), np.zeros((1, size))
    if norm == 1:  # variables r, e with −e ≤ A r − y ≤ e
        upper = np.block([[matrix, -eye], [-matrix, -eye]])
        cost, equal = np.r_[np.zeros(size), np.ones(size)], np.c_[row[None, :], zero]
        bounds = [(None, None)] * size + [(0, None)] * size
    else:
        upper = np.block([[matrix, -np.ones((size, 1))], [-matrix, -np.ones((size, 1))]])
        cost, equal = np.r_[np.zeros(size), 1.0], np.r_[row, 0.0][None, :]
        bounds = [(None, None)] * size + [(0, None)]
    b = np.r_[y, -y]
    options = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    # interior point with crossover: the simplex method gives up on these dense matrices at this precision
    solved = linprog(
        cost, A_ub=upper, b_ub=b, A_eq=equal, b_eq=[1.0], bounds=bounds, method="highs-ipm", options=options
    )
    assert solved.status == 0, solved.message
    dual = float(solved.ineqlin.marginals @ b + solved.eqlin.marginals @ [1.0])
    return float(solved.fun), dual


def _least_distance_cone(matrix, y, inside):
    """p = 2 as a second-order cone program: minimise t with (t, A r − y) in the cone and Σ r = 1.

    The solver now and then stalls at a scale; the duality gap tells, and another scale is tried.
    """
    size = y.size
    row = np.zeros(size + 1)
    row[:size][inside] = 1
    cone = np.zeros((size + 1, size + 1))
    cone[0, size] = -1
    cone[1:, :size] = -matrix
    left = sparse.csc_matrix(np.vstack([row, cone]))
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-11
    found = []
    for scale in (100.0, 1.0, 10.0, 1000.0, 30.0, 3.0):
        solver = clarabel.DefaultSolver(
            sparse.csc_matrix((size + 1, size + 1)), np.r_[np.zeros(size), 1.0], left, np.r_[scale, 0.0, -scale * y],
            [clarabel.ZeroConeT(1), clarabel.SecondOrderConeT(size + 1)], settings,
        )
        solved = solver.solve()
        found.append((abs(solved.obj_val - solved.obj_val_dual) / scale, solved.obj_val, solved.obj_val_dual, scale))
        if str(solved.status) == "Solved":
            break
    _, primal, dual, scale = min(found)
    return primal / scale, dual / scale


def iterated_adjustment(r):
    """Algorithm 3 with the paper's iterated adjustment (its Algorithm 5) in fractions: no sorting of thresholds."""
    x = [min(max(Fraction(value), Fraction(0)), Fraction(1)) for value in r]
    surplus = sum(x) - 1
    order = sorted(range(len(x)), key=lambda i: x[i])
    for done, smallest in enumerate(order):
        if surplus <= 0:
            break
        step = min(x[smallest], surplus / (len(x) - done))
        for i in order[done:]:
            x[i] -= step
        surplus -= step * (len(x) - done)
    return x
