"""Pan-private histograms: counts kept modulo m under noise that hides a change by any amount.

Dwork, Naor, Pitassi, Rothblum and Yekhanin, "Pan-private streaming algorithms", ICS 2010, in the form of Wu and Pagh
(ICML 2024, Section 4.6). A cell holds (h + Z) mod m with m = n+1 and P(Z=t) ∝ q^t, q = e^(−ε/m), 0 ≤ t < m. No two
residues differ in probability by more than q^(1−m) ≤ e^ε whatever h is, so the state hides how often one item
occurred altogether, not just one occurrence.

**One modulus** (counts at most n): the residue is the count. **Several primes** p_1, …, p_k (counts without a
useful bound): a cell keeps its count modulo each prime, with noise at ε/k each, ε together. Every residue profile
bounds the profile from above, f[t] ≤ g_i[t mod p_i], with equality unless some count s ≠ t has s ≡ t (mod p_i). A
number |s−t| ≤ M has fewer than log₂M prime divisors, so most primes tell s and t apart: the smallest of the k bounds
is the estimate.

**Reconstruction** is post-processing. The channel is circulant, with eigenvalues (1−q)/(1−q·e^(−iθ)), and goes
through the paper's Algorithms 2 and 3 with window [0..m−1]. Its inverse has ‖·‖_∞ = (1+q)/(1−q) ≈ 2m/ε, so errors
grow with m: that is the price of hiding more than one occurrence.

**What is promised.** Noise goes in before the first item. One look at the state is ε-private, and so is
:meth:`PanPrivateModular.release`, which is such a look: either, not both, because two looks at one noise vector
give away what happened between them. :meth:`PanPrivateModular.release_profile` puts fresh noise on the tally of the
residues (one item moves two tallies by 1 for each modulus), so one unnoticed look and it together are 2ε-private.
Both seal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from .. import _sampler
from .._circulant import Circulant, as_norm, fast_inversion, round_profile
from .._thresholds import GeometricDigit
from ..arrays import Floats, Int64
from ..checks import check_integer
from ..errors import InputError, SealedError
from ..guard import Guarded, changing, frozen, quiet, wipe
from ..noise import DiscreteLaplace, Exact, exact_positive
from ..noisy import as_signed_integers

__all__ = ["NoisyResidueProfile", "NoisyResidues", "PanPrivateModular", "modular_noise"]

LARGEST_MODULUS = 1 << 18
"""Moduli beyond this are refused: their noise would drown every profile long before."""


@lru_cache(maxsize=64)
def _noise_table(epsilon: Fraction, modulus: int) -> _sampler.DrawTable:
    # P(Z ≤ k) = (1 − q^(k+1))/(1 − q^m): the lowest digit in base m of a geometric variable of parameter q
    return _sampler.DrawTable(GeometricDigit(epsilon / modulus, modulus))


def modular_noise(size: int, epsilon: Exact, modulus: int, stream: _sampler.Keystream | None = None) -> Int64:
    """Return independent samples of P(Z=t) ∝ e^(−εt/m), 0 ≤ t < m: exact, by inversion with lazily extended bits.

    >>> z = modular_noise(1000, epsilon=1, modulus=5)
    >>> bool(z.min() >= 0 and z.max() <= 4)
    True
    """
    exact = exact_positive("epsilon", epsilon)
    modulus = _modulus(modulus)
    out = np.empty(check_integer("size", size, 0), dtype=np.int64)
    stream = stream or _sampler.open_stream()
    if stream.silent:
        out[:] = 0
        return out
    table = _noise_table(exact, modulus)
    for start in range(0, out.size, _sampler.BLOCK):
        table.sample(out[start : start + _sampler.BLOCK], stream)
    return out


@dataclass(frozen=True, eq=False)
class NoisyResidueProfile:
    """How many cells hold each noisy residue, for every modulus.

    cells : number of cells d
    moduli : m, or the primes p_1, …, p_k
    tallies : for each modulus, the number of cells at residues 0..m−1 (with fresh noise, not exactly d in all)
    epsilon : ε of the noise in each modulus
    fresh : whether fresh noise was put on the tallies
    """

    cells: int
    moduli: tuple[int, ...]
    tallies: tuple[Int64, ...]
    epsilon: Fraction
    fresh: bool

    def residue_profile(self, index: int = 0, *, norm: Any = 2) -> Floats:
        """Return the reconstructed profile of the counts modulo the ``index``-th modulus."""
        modulus = self.moduli[index]
        channel = Circulant.modular(self.epsilon, modulus)
        r = fast_inversion(channel, self.tallies[index] / self.cells, slice(0, modulus), as_norm(norm))
        return round_profile(r)[0]

    def profile(self, max_count: int | None = None, *, norm: Any = 2) -> Floats:
        """Return an estimate of f[0..n]: the smallest of the residue profiles at t mod p_i.

        With one modulus that is its residue profile. With several, every entry is an upper bound up to the noise and
        the entries need not add up to 1.
        """
        shares = [self.residue_profile(i, norm=norm) for i in range(len(self.moduli))]
        if max_count is None:
            if len(shares) > 1:
                raise InputError("max_count is required with several primes: the residues do not bound the counts")
            return shares[0]
        n = check_integer("max_count", max_count, 0)
        if len(shares) == 1 and n >= self.moduli[0]:
            raise InputError(f"max_count must be ≤ {self.moduli[0] - 1}, the largest residue, got {n}")
        t = np.arange(n + 1)
        return np.asarray(np.min([share[t % m] for share, m in zip(shares, self.moduli)], axis=0))


@dataclass(frozen=True, eq=False)
class NoisyResidues:
    """The released state: noisy residues of every cell, one array per modulus."""

    residues: tuple[Int64, ...]
    moduli: tuple[int, ...]
    epsilon: Fraction

    def tally(self) -> NoisyResidueProfile:
        """Tally the residues; the reconstruction starts from there."""
        tallies = tuple(np.bincount(r, minlength=m) for r, m in zip(self.residues, self.moduli))
        return NoisyResidueProfile(self.residues[0].size, self.moduli, tallies, self.epsilon, fresh=False)

    def profile(self, max_count: int | None = None, *, norm: Any = 2) -> Floats:
        """Return an estimate of the profile; see :meth:`NoisyResidueProfile.profile`."""
        return self.tally().profile(max_count, norm=norm)


class PanPrivateModular(Guarded):
    """A histogram of a known domain whose every state hides how often any one item occurred.

    Parameters
    ----------
    cells : int
        d, the size of the domain; items are 0 … d−1.
    max_count : int, optional
        n; one modulus m = n+1. Counts beyond n wrap around.
    primes : sequence of int, optional
        Distinct primes instead of ``max_count``, for counts without a useful bound.
    epsilon : number
        ε for a change of one item's count by any amount.

    Examples
    --------
    >>> state = PanPrivateModular(4, max_count=6, epsilon=1)
    >>> state.update([0, 0, 3])
    >>> state.release().profile().shape
    (7,)
    """

    noun = "state"

    def __init__(
        self, cells: int, *, epsilon: Exact, max_count: int | None = None, primes: Sequence[int] | None = None
    ) -> None:
        self.cells = check_integer("cells", cells, 1)
        if (max_count is None) == (primes is None):
            raise InputError("exactly one of max_count and primes must be given")
        if primes is None:
            self.moduli: tuple[int, ...] = (_modulus(check_integer("max_count", max_count, 1) + 1),)
        else:
            self.moduli = _primes(primes)
        self.epsilon = exact_positive("epsilon", epsilon)
        self._each = self.epsilon / len(self.moduli)
        stream = _sampler.open_stream()
        super().__init__(stream.label)
        self._state = [modular_noise(self.cells, self._each, m, stream) for m in self.moduli]
        self._sealed = False

    @property
    def guarantee(self) -> str:
        """What is promised, in plain words."""
        if self._label is not None:
            return f"none: the noise is {self._label}"
        e = float(self.epsilon)
        return (
            f"one look at the state, or the released residues, is {e:g}-differentially private for a change of one "
            f"item's count by any amount; one look at the state and the released residue profile together: {2 * e:g}"
        )

    @quiet
    def update(self, items: Any, counts: Any = None) -> None:
        """Add occurrences: items are cell numbers, counts (default 1) any integers; no items are welcome as well.

        A refused call changes nothing. What is outside 0 … d−1 is refused, and the error tells that there was such an
        item: check before, or drop.
        """
        where = as_signed_integers(items, "items", secret=True, may_be_empty=True)
        if ((where < 0) | (where >= self.cells)).any():
            raise InputError(f"items must be between 0 and {self.cells - 1}, got one that is not")
        amounts = np.ones(1, dtype=np.int64)
        if counts is not None:
            amounts = as_signed_integers(counts, "counts", secret=True, may_be_empty=True)
        if counts is not None and amounts.shape != where.shape:
            raise InputError(f"counts must be as long as items, got {amounts.size} and {where.size}")
        with self._lock:
            self._require_live("update")
            with changing([self], "an update was interrupted"):
                for state, m in zip(self._state, self.moduli):
                    np.add.at(state, where, np.broadcast_to(amounts % m, where.shape))
                    state %= m

    def release(self) -> NoisyResidues:
        """Return the noisy residues and seal: ε in all, if nobody looked at the state before."""
        residues = tuple(frozen(state) for state in self._take("release"))
        return NoisyResidues(residues, self.moduli, self._each)

    def release_profile(self) -> NoisyResidueProfile:
        """Return the tally of the residues under fresh noise and seal: private even if the state was seen once.

        Per modulus one item moves two tallies by 1, so discrete Laplace noise of parameter ε/(2k) on each tally gives
        ε for all k moduli.
        """
        stream, fresh = _sampler.open_stream(), DiscreteLaplace(self._each / 2)
        with self._lock:
            self._label = self._label or stream.label
            states = self._take("release_profile")
        tallies = []
        for state, m in zip(states, self.moduli):
            noise = np.empty(m, dtype=np.int64)
            _sampler.fill(noise, fresh, stream)
            noise += np.bincount(state, minlength=m)
            tallies.append(frozen(noise))
            wipe(state)
        return NoisyResidueProfile(self.cells, self.moduli, tuple(tallies), self._each, fresh=True)

    def _take(self, action: str) -> list[Int64]:
        """Give the state away, once: nothing of it stays here."""
        with self._lock:
            self._require_live(action)
            self._require_private()
            self._sealed = True
            state, self._state = self._state, []
            return state

    def _require_live(self, action: str) -> None:
        self._require_here(action)
        if self._sealed:
            raise SealedError("the state must not be used after its release: a second look would undo the noise")

    def __repr__(self) -> str:
        return f"PanPrivateModular({self.cells:,} cells, moduli={self.moduli}, epsilon={float(self.epsilon):g})"


def _modulus(value: Any) -> int:
    """Return a modulus between 2 and the largest allowed."""
    m = check_integer("modulus", value, 2)
    if m > LARGEST_MODULUS:
        raise InputError(f"modulus must be ≤ {LARGEST_MODULUS:,}, got {m:,}; use several small primes instead")
    return m


def _primes(values: Sequence[int]) -> tuple[int, ...]:
    """Return distinct primes in ascending order."""
    numbers = sorted(_modulus(value) for value in values)
    if not numbers or len(set(numbers)) != len(numbers):
        raise InputError(f"primes must be distinct and at least one, got {list(values)!r}")
    for p in numbers:
        if any(p % q == 0 for q in range(2, int(p**0.5) + 1)):
            raise InputError(f"primes must be prime, got {p}")
    return tuple(numbers)
