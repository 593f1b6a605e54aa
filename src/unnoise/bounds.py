"""What the paper proves, as functions with explicit constants.

Wu and Pagh, "Profile Reconstruction from Private Sketches", ICML 2024. Symbols: d cells, counts in [0..n],
a = e^(−ε), window reach B, A the circulant channel, P_norm its normalisation, y the noisy profile, f the profile.

Theorem 1 follows from ‖r − f‖_p ≤ 2·‖A^(−1)‖_p·‖y − A·f‖_p (Algorithm 2 is optimal and f is feasible), a bound on
each factor, and the factor of the rounding (1, 1, 2 for p = 1, 2, ∞): final factors 2, 2 and 4. Points at which the
text is put right here:

- two events may fail, "all noises within ±B" and the concentration of y, so together the proof gives 1 − 2η;
  :func:`theorem1` gives each of them η/2
- p = ∞: the union bound runs over N = n+2B+1 two-sided events, so the logarithm is ln(2N/η), not ln(n/η), and
  Bernstein's second term is 2/(3d), not 1/(3d)
- p = 1: Σ_t √E y[t] is not known beforehand; by Cauchy and Schwarz it is at most √N
- p = 2: the deviation is √(1/d) + √(ln(1/η)/d); the theorem's O(·) hides the first term, which is needed for η near 1
- n ≥ B is needed for the running time only: every bound here holds for all n ≥ 0
- Theorem 2's universal constant c is not given in the paper: it is a parameter
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ._circulant import (
    Circulant,
    as_norm,
    inverse_norm_bound,
    p_norm,
    steepest,
    window,
)
from .arrays import Floats
from .checks import check_integer, check_number, check_share
from .errors import InputError
from .noise import Exact, exact_positive

__all__ = [
    "deviation",
    "inverse_norm",
    "inverse_norm_bound",
    "linear_sensitivity",
    "p_norm",
    "rounding_factor",
    "sensitivity_bound",
    "single_entry_bound",
    "theorem1",
    "theorem2",
    "theorem2_sensitivity",
    "window",
]


def theorem1(
    d: int, n: int, epsilon: Exact, eta: float, norm: Any, *, root_sum: float | None = None, rounded: bool = True
) -> float:
    """Return a bound that ‖r − f‖_p stays below with probability ≥ 1 − η.

    Parameters
    ----------
    d, n : int
        Number of cells, largest count.
    epsilon, eta : number
        ε of the noise, η the probability of failure, split evenly between window and concentration.
    norm : 1, 2 or inf
    root_sum : float, optional
        Σ_t √E y[t], for p = 1, where it is known; √(n+2B+1) otherwise.
    rounded : bool
        Whether r comes out of Algorithm 3 (the theorem) or straight out of Algorithm 2.

    Examples
    --------
    The bound falls like 1/√d:

    >>> round(theorem1(10**4, 50, 1, 0.05, 2) / theorem1(10**6, 50, 1, 0.05, 2), 2)
    10.0
    """
    reach = window(d, epsilon, check_share("eta", eta) / 2)
    spread = deviation(d, n, epsilon, eta / 2, norm, reach=reach, root_sum=root_sum)
    factor = 2 * (rounding_factor(norm) if rounded else 1.0)
    return factor * inverse_norm_bound(epsilon, reach, norm) * spread


def deviation(
    d: int,
    n: int,
    epsilon: Exact,
    eta: float,
    norm: Any,
    *,
    reach: int | None = None,
    root_sum: float | None = None,
) -> float:
    """Return the lemma's bound on ‖y − A·f‖_p, which holds with probability ≥ 1 − η given all noises within ±B.

    p = 1:  Σ_t √E y[t] / √d + √(2 ln(1/η)/d)      (McDiarmid, Lipschitz constant 2/d)
    p = 2:  √(1/d) + √(ln(1/η)/d)                   (McDiarmid, √2/d)
    p = ∞:  √(2L/(d·P_norm)) + 2L/(3d), L = ln(2(n+2B+1)/η)     (Bernstein and union bound)

    >>> round(deviation(10_000, 20, 1, 0.05, 2), 6)
    0.027308
    """
    d, n, eta, p = check_integer("d", d, 1), check_integer("n", n, 0), check_share("eta", eta), as_norm(norm)
    reach = window(d, epsilon, eta) if reach is None else check_integer("reach", reach, 0)
    if p == 2:
        return math.sqrt(1 / d) + math.sqrt(math.log(1 / eta) / d)
    size = n + 2 * reach + 1
    if p == 1:
        spread = math.sqrt(size) if root_sum is None else root_sum
        return spread / math.sqrt(d) + math.sqrt(2 * math.log(1 / eta) / d)
    log = math.log(2 * size / eta)
    return math.sqrt(2 * log / (d * p_norm(epsilon, reach))) + 2 * log / (3 * d)


def rounding_factor(norm: Any) -> float:
    """Return by how much Algorithm 3 may enlarge the error: 1 for p = 1, 2 and 2 for p = ∞.

    >>> [rounding_factor(p) for p in (1, 2, math.inf)]
    [1.0, 1.0, 2.0]
    """
    return 2.0 if as_norm(norm) == math.inf else 1.0


def inverse_norm(epsilon: Exact, reach: int, n: int, norm: Any) -> float:
    """Return ‖A^(−1)‖_p itself, up to rounding: the ℓ1 norm of one column for p = 1, ∞, else 1/min|φ|.

    >>> inverse_norm(1, 12, 30, 1) <= inverse_norm_bound(1, 12, 1)
    True
    """
    channel = _channel(epsilon, reach, n)
    if as_norm(norm) == 2:
        return float(1 / np.abs(channel.eigenvalues).min())
    return float(np.abs(channel.inverse_column()).sum())


def single_entry_bound(b: ArrayLike, x: ArrayLike, epsilon: Exact, reach: int) -> Floats:
    """Return, for every t, the lemma's bound on |x[t]| when |(A·x)[t]| ≤ b[t], indices taken modulo N.

    (a + 1/a)/(1/a − a) · (P_norm·(b_t + (b_{t−1} + b_{t+1})/(a + 1/a))
    + a^B/(a + 1/a)·(|x[t−B−1]| + |x[t+B+1]| + a·|x[t−B]| + a·|x[t+B]|))
    """
    e, reach = float(exact_positive("epsilon", epsilon)), check_integer("reach", reach, 0)
    bound, size = np.asarray(b, dtype=float), np.abs(np.asarray(x, dtype=float))
    if bound.shape != size.shape or bound.ndim != 1 or bound.size < 2 * reach + 1:
        raise InputError(
            f"b and x must be equally long, one-dimensional and at least 2·reach + 1 = {2 * reach + 1} long, "
            f"got shapes {bound.shape} and {size.shape}"
        )
    a = math.exp(-e)
    pair = a + 1 / a
    near = bound + (np.roll(bound, 1) + np.roll(bound, -1)) / pair
    far = np.roll(size, reach + 1) + np.roll(size, -reach - 1) + a * (np.roll(size, reach) + np.roll(size, -reach))
    scale = pair / (2 * math.sinh(e))
    return np.asarray(scale * (p_norm(epsilon, reach) * near + math.exp(-e * reach) / pair * far))


def sensitivity_bound(d: int, epsilon: Exact, eta: float = 0.05) -> float:
    """Return 6·‖A^(−1)‖_∞/d, an upper bound of the sensitivity Δ of the whole reconstruction.

    Moving one cell from one noisy count to another changes two entries of y by 1/d. Inversion enlarges that at most
    3·‖A^(−1)‖_∞ times (1 from A^(−1), 2 from the correction of the sum), rounding at most twice. The argument never
    uses that the count moved by 1: the bound holds for a change of one count by any amount, of one noise vector.

    >>> sensitivity_bound(10**6, 1.0) < 1e-4
    True
    """
    return 6 * inverse_norm_bound(epsilon, window(d, epsilon, check_share("eta", eta) / 2), math.inf) / d


def linear_sensitivity(d: int, n: int, epsilon: Exact, norm: Any, eta: float = 0.05, step: int | None = 1) -> float:
    """Return the exact sensitivity of Algorithm 2's output, in ℓ∞ over the counts 0..n.

    The output is affine in y, r = A^(−1)(y − (⟨c,y⟩−1)/‖c‖_q·v), so moving one cell of the window from value i to
    value j changes it by (G[:,i] − G[:,j])/d with G = A^(−1)(I − v·c^T/‖c‖_q), whatever the data; the sensitivity is
    the largest entry over all i, j at distance ``step`` (all distances for None). Cells that enter or leave the window
    are covered by the columns themselves. Dense: O(N²), N = n+2B+1 at most 4,000.

    >>> linear_sensitivity(10**4, 20, 1, 2) <= sensitivity_bound(10**4, 1) / 2
    True
    """
    d, n = check_integer("d", d, 1), check_integer("n", n, 0)
    reach = window(d, epsilon, check_share("eta", eta) / 2)
    channel = _channel(epsilon, reach, n)
    if channel.order > 4000:
        raise InputError(f"n + 2B + 1 must be ≤ 4000 for the exact sensitivity, got {channel.order}")
    indicator = np.zeros(channel.order)
    indicator[reach : reach + n + 1] = 1
    c = channel.solve_transpose(indicator)
    v, dual = steepest(c, norm)
    column = channel.inverse_column()
    inverse = np.stack([np.roll(column, j) for j in range(channel.order)], axis=1)
    rows = (inverse - np.outer(channel.solve(v), c / dual))[reach : reach + n + 1]
    if step is None:
        moved = max(float((rows.max(axis=1) - rows.min(axis=1)).max()), float(np.abs(rows).max()))
    else:
        size = check_integer("step", step, 1)
        pairs = rows[:, size:] - rows[:, :-size] if size < channel.order else np.zeros((1, 1))
        edge = np.abs(rows[:, [*range(min(size, channel.order)), *range(max(0, channel.order - size), channel.order)]])
        moved = max(float(np.abs(pairs).max()), float(edge.max()))
    return moved / d


def theorem2(d: int, epsilon: Exact, *, c: float, constant: float = 1.0) -> float:
    """Return constant/(√d·e^(c·ε)): no ε-private updatable sketch reconstructs with smaller expected ℓ∞ error.

    That is Theorem 2's Ω(·), for sketches whose sensitivity is of lower order than :func:`theorem2_sensitivity`. The
    universal constant c and the constant of the Ω are not given in the paper, so both are parameters.

    >>> round(theorem2(10**4, 1, c=1.0), 6)
    0.003679
    """
    e, d = float(exact_positive("epsilon", epsilon)), check_integer("d", d, 1)
    return check_number("constant", constant) / (math.sqrt(d) * math.exp(check_number("c", c) * e))


def theorem2_sensitivity(d: int, epsilon: Exact, *, c: float) -> float:
    """Return ε/(√d·e^(c·ε)), the order that Δ must stay below for Theorem 2 to apply."""
    return float(exact_positive("epsilon", epsilon)) * theorem2(d, epsilon, c=c)


def _channel(epsilon: Exact, reach: int, n: int) -> Circulant:
    """Return A for counts 0..n and the window of reach B."""
    n, reach = check_integer("n", n, 0), check_integer("reach", reach, 0)
    return Circulant.laplace(epsilon, reach=reach, order=n + 2 * reach + 1)
