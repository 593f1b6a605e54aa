"""Exact sampling, and the one place where randomness enters.

**Randomness.** :func:`open_stream` takes a fresh 256-bit key from the operating system for every call and expands it
with AES in counter mode. Nothing is kept between calls, so there is nothing to duplicate at fork.

**Exact inversion with lazy precision.** With thresholds c_k = P(Z ≤ k) and a uniform real U, the outcome is the
smallest k with U < c_k. The first 16 bits of U decide it by one look into a guide table unless a threshold falls
into that 65,536th of [0, 1); then 48 more bits are drawn and compared with t_k = floor(2^64·c_k): different from
every t_k means decided, for good; equal means that still more bits are drawn and compared with the thresholds at
higher precision, until decided. No bit of the outcome ever depends on a rounded number (Mironov, CCS 2012, shows
what happens when it does), and nothing is truncated: beyond the table the search goes on.

**Powers.** The noise of power ρ is the sum of ⌊ρ⌋ discrete Laplace variables and, for the rest ρ' = ρ − ⌊ρ⌋, a
difference of two negative binomials NB(ρ', a). For ε < 2^−11 the discrete Laplace is a difference of two geometrics,
each assembled from digits (see :class:`~unnoise._thresholds.GeometricDigit`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextvars import ContextVar
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._thresholds import Geometric, GeometricDigit, Laplace, Law, NegativeBinomial, floor_thresholds
from .arrays import Int64
from .checks import check_integer
from .errors import InputError
from .noise import DiscreteLaplace, Exact, exact_positive

__all__ = ["Keystream", "discrete_laplace", "fill", "geometric", "open_stream"]

BLOCK = 1 << 16
"""Samples drawn at a time: bits, guide table and outcomes stay in the second-level cache."""

UNDECIDED = np.iinfo(np.int64).min
SMALLEST = Fraction(1, 2048)
"""Below this ε one table would be too long; geometric digits take over."""

BASE = 1 << 14
"""Base of the geometric digits."""

_ZEROS = bytes(8 * BLOCK)


class Keystream:
    """A stream of uniform bits: AES-256 in counter mode under ``key``, starting at block ``stream``·2^64.

    Unless a key is given it is a fresh one of the operating system. Streams of one key never overlap. A ``label`` marks
    bits that protect nobody (tests), and ``silent`` ones make :func:`fill` write zeros.

    >>> bool((Keystream(bytes(32), 1).words(4) == Keystream(bytes(32), 1).words(4)).all())
    True
    """

    def __init__(
        self, key: bytes | None = None, stream: int = 0, *, label: str | None = None, silent: bool = False
    ) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        key = os.urandom(32) if key is None else key
        if len(key) != 32:
            raise InputError(f"key must be 32 bytes long, got {len(key)}")
        if not 0 <= stream < 1 << 64:
            raise InputError(f"stream must be between 0 and 2^64 − 1, got {stream}")
        nonce = stream.to_bytes(8, "big") + bytes(8)
        self._encryptor = Cipher(algorithms.AES(key), modes.CTR(nonce)).encryptor()
        self.label = label
        self.silent = silent

    def words(self, size: int, bits: int = 64) -> NDArray[Any]:
        """Return ``size`` unsigned integers of 8, 16, 32 or 64 random bits, the next of the stream."""
        buffer = np.empty(size * (bits // 8), dtype=np.uint8)
        for start in range(0, buffer.size, len(_ZEROS)):
            piece = buffer.data[start : start + len(_ZEROS)]
            self._encryptor.update_into(_ZEROS[: len(piece)] if len(piece) < len(_ZEROS) else _ZEROS, piece)
        return buffer.view(f"<u{bits // 8}")

    def bits(self, how_many: int) -> int:
        """Return one integer of ``how_many`` random bits, a multiple of 8."""
        return int.from_bytes(self.words(how_many // 8, 8).tobytes(), "little")


source: ContextVar[Callable[[], Keystream]] = ContextVar("source", default=Keystream)
"""Where :func:`open_stream` takes its streams from; only ``unnoise.testing`` ever changes it."""


def open_stream() -> Keystream:
    """Return a stream of fresh random bits: the one entry of entropy."""
    return source.get()()


class DrawTable:
    """One law, ready to be sampled: guide table, 64-bit thresholds, and the exact search beyond them."""

    def __init__(self, law: Law) -> None:
        self.law = law
        self.first, exact = floor_thresholds(law)
        self.thresholds = np.array(exact, dtype=np.uint64)
        edges = np.arange(1 << 16, dtype=np.uint64) << np.uint64(48)
        self.start = np.searchsorted(self.thresholds, edges, side="left")  # thresholds passed at each bucket's edge
        self.inside = np.diff(np.append(self.start, self.thresholds.size))  # thresholds inside each bucket
        self.beyond = np.zeros(self.thresholds.size + 1, dtype=bool)  # numbers passed that leave the table
        self.beyond[0], self.beyond[-1] = law.open_below, law.open_above
        decided = (self.inside == 0) & ~self.beyond[self.start]
        self.guide = np.where(decided, self.first + self.start, UNDECIDED)

    def sample(self, out: Int64, stream: Keystream) -> None:
        """Overwrite ``out`` (at most a block) with independent samples.

        The guide decides most of them, 48 more bits the others, and those still undecided are searched one by one.
        """
        head = stream.words(out.size, 16)
        np.take(self.guide, head, out=out, mode="clip")
        undecided = np.flatnonzero(out == UNDECIDED)
        if not undecided.size:
            return
        head = head[undecided]
        rest = stream.words(head.size) >> np.uint64(16)
        uniform = (head.astype(np.uint64) << np.uint64(48)) | rest
        start = self.start[head]
        passed = start + (uniform >= self.thresholds[np.minimum(start, self.thresholds.size - 1)])
        several = np.flatnonzero(self.inside[head] != 1)
        passed[several] = np.searchsorted(self.thresholds, uniform[several], side="right")
        tied = (passed > 0) & (self.thresholds[passed - 1] == uniform)
        outcomes = (self.first + passed).astype(np.int64)
        for i in np.flatnonzero(tied | self.beyond[passed]):
            outcomes[i] = self.resolve(int(uniform[i]), 64, int(outcomes[i]), stream)
        out[undecided] = outcomes

    def resolve(self, uniform: int, bits: int, guess: int, stream: Keystream) -> int:
        """Return the smallest k with U < c_k, where U starts with the given bits and goes on as long as needed."""
        while True:
            outcome = self._search(uniform, bits, guess)
            if outcome is not None:
                return outcome
            uniform, bits = uniform << 64 | stream.bits(64), bits + 64

    def _search(self, uniform: int, bits: int, guess: int) -> int | None:
        """Bracket the outcome by doubling steps and bisect; None where these bits do not decide."""
        step, low, high = 1, guess, guess
        while (side := self._passed(uniform, bits, low - 1)) is not True:  # find low with U ≥ c_(low−1)
            if side is None:
                return None
            low, step = low - step, 2 * step
        step = 1
        while (side := self._passed(uniform, bits, high)) is not False:  # find high with U < c_high
            if side is None:
                return None
            high, step = high + step, 2 * step
        while low < high:
            middle = (low + high) // 2
            side = self._passed(uniform, bits, middle)
            if side is None:
                return None
            low, high = (middle + 1, high) if side else (low, middle)
        return low

    def _passed(self, uniform: int, bits: int, k: int) -> bool | None:
        """Tell whether U ≥ c_k, or None where the bits at hand do not decide."""
        low, high = self.law.bounds(k, bits)
        if uniform >= high:
            return True
        return False if uniform + 1 <= low else None


Draw = Callable[[Int64, Keystream], None]
"""Overwrites a block with independent samples of one law."""


@lru_cache(maxsize=64)
def _laplace_table(epsilon: Fraction) -> DrawTable:
    return DrawTable(Laplace(epsilon))


@lru_cache(maxsize=64)
def _geometric_table(epsilon: Fraction) -> DrawTable:
    return DrawTable(Geometric(epsilon))


@lru_cache(maxsize=64)
def _digit_table(epsilon: Fraction) -> DrawTable:
    return DrawTable(GeometricDigit(epsilon, BASE))


@lru_cache(maxsize=64)
def _binomial_table(epsilon: Fraction, power: Fraction) -> DrawTable:
    return DrawTable(NegativeBinomial(epsilon, power))


def _sample_geometric(out: Int64, epsilon: Fraction, stream: Keystream) -> None:
    """Overwrite ``out`` with P(G = k) = (1−a)a^k, by digits where ε is small."""
    if epsilon >= SMALLEST:
        _geometric_table(epsilon).sample(out, stream)
        return
    higher = np.empty_like(out)
    _digit_table(epsilon).sample(out, stream)
    _sample_geometric(higher, epsilon * BASE, stream)
    out += BASE * higher


def _sample_difference(draw: Draw, out: Int64, stream: Keystream) -> None:
    """Overwrite ``out`` with differences of two independent samples of a law."""
    other = np.empty_like(out)
    draw(out, stream)
    draw(other, stream)
    out -= other


def fill(out: Int64, noise: DiscreteLaplace, stream: Keystream) -> None:
    """Overwrite ``out`` with independent noise, block by block; equal streams give equal noise."""
    if stream.silent:
        out[:] = 0
        return
    epsilon, (whole, part) = noise.epsilon, divmod(noise.power, 1)
    draws: list[Draw] = []
    if whole and epsilon >= SMALLEST:
        draws = [_laplace_table(epsilon).sample] * int(whole)
    elif whole:
        by_digits = partial(_sample_difference, lambda block, stream: _sample_geometric(block, epsilon, stream))
        draws = [by_digits] * int(whole)
    if part:
        draws.append(partial(_sample_difference, _binomial_table(epsilon, Fraction(part)).sample))
    scratch = np.empty(min(BLOCK, out.size) if len(draws) > 1 else 0, dtype=np.int64)
    for start in range(0, out.size, BLOCK):
        block = out[start : start + BLOCK]
        draws[0](block, stream)
        for draw in draws[1:]:
            draw(scratch[: block.size], stream)
            block += scratch[: block.size]


def discrete_laplace(size: int, epsilon: Exact, *, power: Exact = 1) -> Int64:
    """Return ``size`` independent samples of discrete Laplace noise: exact, and from secure randomness.

    >>> discrete_laplace(5, epsilon=1.0).dtype
    dtype('int64')
    """
    out = np.empty(check_integer("size", size, 0), dtype=np.int64)
    fill(out, DiscreteLaplace(epsilon, power), open_stream())
    return out


def geometric(size: int, epsilon: Exact, stream: Keystream | None = None) -> Int64:
    """Return ``size`` independent samples of P(G = k) = (1−a)·a^k, k ≥ 0, exact as well."""
    out = np.empty(int(size), dtype=np.int64)
    stream = stream or open_stream()
    exact = exact_positive("epsilon", epsilon)
    if stream.silent:
        out[:] = 0
        return out
    for start in range(0, out.size, BLOCK):
        _sample_geometric(out[start : start + BLOCK], exact, stream)
    return out
