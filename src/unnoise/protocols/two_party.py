"""Protocol P: two parties learn an inner product of ±1 vectors, each private towards the other.

Wu and Pagh (ICML 2024), Section 5: Alice holds x, Bob holds y, both in {−1, 1}^d. With h = (x+1) + (y+1), a cell has
count 0 or 4 where x and y agree and 2 where they differ, so ⟨x,y⟩ = d·(f[0] + f[4] − f[2]), f the profile of h.

1. Alice sends m_A = x + 1 + noise.
2. Bob adds y + 1 (the sketch is updatable), reconstructs r by Algorithms 2 and 3, and publishes
   d·(r[0] + r[4] − r[2]) plus noise.

**What ε means.** Neighbours differ in the sign of one entry, which changes a count by 2, not by 1 as the text has it:

- Alice's noise is discrete Laplace with parameter ε/2, so that her message is ε-private in x;
- Bob's statistic is a sum of three entries of r, each of sensitivity at most 2Δ for a flip (two unit steps of Δ each),
  hence S = 3·d·2Δ with Δ = 6·‖A^(−1)‖_∞/d. (The text's proof says Δ where it needs 3Δ.) He rounds the statistic to
  a multiple of ``GRID``, which may move two neighbours up to one more step apart, and adds discrete Laplace
  noise with parameter ε/K per step, K = ⌊S/GRID⌋ + 2: one step for the rounding, one for the rounding errors of
  floating point, which are far below a step. No noise is ever drawn from a continuous law. (The bound on Δ used
  here covers a change of a count by any amount, so half of S would do; S is what the definition of Δ alone gives.)

Δ bounds the change for every realisation of the noise, so Bob's privacy holds whatever bytes Alice sends. Either
message is sent once: a second one would cost another ε.

**Messages** are bytes of a fixed layout, little-endian, checked in full before use, never pickled::

    4 bytes magic | 1 byte version | 8 bytes d | 4+4 bytes lengths of ε's numerator and denominator, as decimal ASCII
    | these two texts | payload: d int64 noisy counts (Alice) or 8 bytes int64 answer (Bob) | 32 bytes SHA-256 of it all
"""

from __future__ import annotations

import hashlib
import math
import struct
import subprocess
import sys
from fractions import Fraction
from typing import Any, Self

import numpy as np

from .. import _sampler
from .._circulant import Circulant, as_norm, fast_inversion, inverse_norm_bound, round_profile, window
from ..arrays import Floats, Int64
from ..errors import FormatError, InputError, SealedError
from ..guard import Guarded, quiet
from ..noise import DiscreteLaplace, Exact, exact_positive
from ..noisy import as_signed_integers, tally

__all__ = [
    "GRID", "Alice", "Bob", "FramedProcess", "answer_noise", "read_frame", "two_party_inner_product", "write_frame",
]  # fmt: skip

GRID = 1
"""Bob's answer is a multiple of this: inner products are integers, so nothing finer is of use."""

ETA = 1e-6
"""Probability that Alice's noise leaves the window of Bob's reconstruction; no part of the privacy argument."""

VERSION = 1
LARGEST = 1 << 62
"""Noisy counts beyond ±2^62 are refused, so that adding y + 1 never overflows."""


class _Speaker(Guarded):
    """A party: it holds a vector and says one thing about it, once."""

    noun = "party"

    def __init__(self, vector: Int64, epsilon: Exact) -> None:
        super().__init__()
        self._vector = vector
        self.epsilon = exact_positive("epsilon", epsilon)
        self._sent = False

    def _speak(self, what: str) -> _sampler.Keystream:
        """Return the bits for the noise of the one message, or refuse a second one."""
        with self._lock:
            self._require_here(what)
            if self._sent:
                raise SealedError(f"{what} must be sent once: a second one would cost another epsilon")
            stream = _sampler.open_stream()
            self._label = stream.label
            self._require_private()
            self._sent = True
            return stream


class Alice(_Speaker):
    """The party that holds x and speaks first.

    >>> alice, bob = Alice([1, -1] * 500, epsilon=2), Bob([1, 1] * 500, epsilon=2)
    >>> answer = alice.read(bob.reply(alice.message()))
    >>> isinstance(answer, int)
    True
    """

    def __init__(self, x: Any, *, epsilon: Exact) -> None:
        super().__init__(_signs(x, "x"), epsilon)

    @quiet
    def message(self) -> bytes:
        """Return x + 1 with discrete Laplace noise of ε/2, once."""
        stream = self._speak("message")
        noisy = np.empty(self._vector.size, dtype=np.int64)
        _sampler.fill(noisy, DiscreteLaplace(self.epsilon / 2), stream)
        noisy += self._vector + 1
        return _pack(b"UNPA", self._vector.size, self.epsilon, noisy.astype("<i8").tobytes())

    def read(self, reply: bytes) -> int:
        """Return Bob's estimate of ⟨x,y⟩ from his reply."""
        payload = _unpack(reply, b"UNPB", self._vector.size, self.epsilon, 8)
        return int(struct.unpack("<q", payload)[0])


class Bob(_Speaker):
    """The party that holds y and answers.

    norm : 1, 2 or inf, the norm of the reconstruction
    """

    def __init__(self, y: Any, *, epsilon: Exact, norm: Any = 2) -> None:
        super().__init__(_signs(y, "y"), epsilon)
        self.norm = as_norm(norm)

    @quiet
    def statistic(self, message: bytes) -> float:
        """Return d·(r[0] + r[4] − r[2]) without Bob's noise: private towards Alice's x, for Bob's eyes only."""
        self._require_here("statistic")
        d = self._vector.size
        noisy = np.frombuffer(_unpack(message, b"UNPA", d, self.epsilon, 8 * d), dtype="<i8").astype(np.int64)
        if int(noisy.max()) > LARGEST or int(noisy.min()) < -LARGEST:
            raise FormatError("noisy counts must lie within ±2^62, got a larger one")
        r = _reconstruct(noisy + self._vector + 1, self.epsilon / 2, self.norm)
        return d * float(r[0] + r[4] - r[2])

    @quiet
    def reply(self, message: bytes) -> bytes:
        """Return the answer with Bob's noise, once."""
        d = self._vector.size
        steps = round(self.statistic(message) / GRID)
        stream = self._speak("reply")
        noise = np.empty(1, dtype=np.int64)
        _sampler.fill(noise, answer_noise(d, self.epsilon), stream)
        return _pack(b"UNPB", d, self.epsilon, struct.pack("<q", GRID * (steps + int(noise[0]))))


def answer_noise(d: int, epsilon: Exact) -> DiscreteLaplace:
    """Return the law of Bob's noise, in steps of ``GRID``: discrete Laplace with parameter ε/K.

    K = ⌊3·d·2Δ/GRID⌋ + 2 with Δ = 6·‖A^(−1)‖_∞/d for Alice's noise of parameter ε/2.

    >>> answer_noise(1000, 2)
    DiscreteLaplace(epsilon=1/85)
    """
    exact = exact_positive("epsilon", epsilon)
    inverse = inverse_norm_bound(exact / 2, window(d, exact / 2, ETA), math.inf)
    return DiscreteLaplace(exact / (math.floor(3 * 2 * 6 * inverse / GRID) + 2))


def two_party_inner_product(x: Any, y: Any, *, epsilon: Exact, norm: Any = 2) -> int:
    """Estimate ⟨x,y⟩ with Alice and Bob in two processes that exchange nothing but their messages.

    Parameters
    ----------
    x, y : ±1 vectors of equal length
    epsilon : ε of either party's view, for the flip of one sign
    norm : 1, 2 or inf

    Returns
    -------
    int
        The published estimate.
    """
    exact, p = exact_positive("epsilon", epsilon), as_norm(norm)
    left, right = _signs(x, "x"), _signs(y, "y")
    if left.size != right.size:
        raise InputError(f"x and y must be equally long, got {left.size} and {right.size}")
    with _Party("alice", left, exact, p) as alice, _Party("bob", right, exact, p) as bob:
        bob._send(alice._heard())
        alice._send(bob._heard())
        return int(alice._heard().decode())


class FramedProcess:
    """A process of its own that runs a function of this package; frames of bytes go in and out through its pipes."""

    def __init__(self, whose: str, function: str, *words: str) -> None:
        module, name = function.rsplit(".", 1)
        code = f"from unnoise.protocols.{module} import {name}; {name}()"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._whose = whose

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()

    def _send(self, frame: bytes) -> None:
        write_frame(self.process.stdin, frame)

    def _heard(self) -> bytes:
        return read_frame(self.process.stdout, self._whose)


class _Party(FramedProcess):
    """One party, who is told its vector first."""

    def __init__(self, role: str, vector: Int64, epsilon: Fraction, norm: float) -> None:
        super().__init__(f"the process of {role}", "two_party._serve", role, str(epsilon), str(norm))
        self._send(vector.astype(np.int8).tobytes())


def _serve() -> None:
    """Run one party: own vector from standard input, then the protocol's messages."""
    role, epsilon, norm = sys.argv[1:4]
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    vector = np.frombuffer(read_frame(source, "standard input"), dtype=np.int8).astype(np.int64)
    if role == "bob":
        bob = Bob(vector, epsilon=epsilon, norm=norm)
        write_frame(sink, bob.reply(read_frame(source, "Alice")))
        return
    alice = Alice(vector, epsilon=epsilon)
    write_frame(sink, alice.message())
    write_frame(sink, str(alice.read(read_frame(source, "Bob"))).encode())


def _reconstruct(noisy: Int64, epsilon: Fraction, norm: float) -> Floats:
    """Algorithms 2 and 3 for counts 0..4; never refuses, since a refusal would say something about y."""
    reach = window(noisy.size, epsilon, ETA)
    order = 4 + 2 * reach + 1
    values, how_many = tally(noisy)
    kept = (values >= -reach) & (values <= 4 + reach)
    observed = np.zeros(order)
    observed[values[kept] + reach] = how_many[kept] / noisy.size
    inside = slice(reach, reach + 5)
    r = fast_inversion(Circulant.laplace(epsilon, reach=reach, order=order), observed, inside, norm)
    return round_profile(r[inside])[0]


def _signs(vector: Any, name: str) -> Int64:
    """Return a ±1 vector as int64, refusing anything else."""
    signs = as_signed_integers(vector, name, secret=True)
    if (np.abs(signs) != 1).any():
        raise InputError(f"{name} must hold only 1 and -1, got something else")
    return signs


def _pack(magic: bytes, d: int, epsilon: Fraction, payload: bytes) -> bytes:
    """Write a message."""
    top, bottom = str(epsilon.numerator).encode(), str(epsilon.denominator).encode()
    body = magic + struct.pack("<BQII", VERSION, d, len(top), len(bottom)) + top + bottom + payload
    return body + hashlib.sha256(body).digest()


def _unpack(message: bytes, magic: bytes, d: int, epsilon: Fraction, payload: int) -> bytes:
    """Check a message against what this party expects and return its payload.

    What is expected depends on public values only (d, ε), so a whole message is the one of this very head.
    """
    head = _pack(magic, d, epsilon, b"")[:-32]
    if not isinstance(message, bytes | bytearray | memoryview):
        raise FormatError(f"message must be bytes, got {type(message).__name__}")
    data = bytes(message)
    if data[:4] != magic:
        raise FormatError(f"message must begin with {magic!r}, got {data[:4]!r}")
    if data[4:5] != head[4:5]:
        raise FormatError(f"message version must be {VERSION}, got {data[4:5].hex() or 'nothing'}")
    if data[: len(head)] != head:
        raise FormatError(f"message must be for d={d} and epsilon={epsilon}, which its head does not say")
    if len(data) != len(head) + payload + 32:
        raise FormatError(f"message must be {len(head) + payload + 32} bytes long, got {len(data)}")
    if hashlib.sha256(data[:-32]).digest() != data[-32:]:
        raise FormatError("message digest must match its content; the message was damaged")
    return data[len(head) : -32]


def write_frame(sink: Any, frame: bytes) -> None:
    """Write one frame: its length in 8 bytes, then its bytes."""
    sink.write(struct.pack("<Q", len(frame)) + frame)
    sink.flush()


def read_frame(source: Any, whose: str, *, may_end: bool = False) -> bytes:
    """Read one frame, which is empty where the source may end and does."""
    head = source.read(8)
    if may_end and not head:
        return b""
    if len(head) != 8:
        raise FormatError(f"{whose} ended before its message")
    (size,) = struct.unpack("<Q", head)
    if size > 1 << 36:
        raise FormatError(f"a message must be at most 2^36 bytes long, got {size}")
    frame = bytearray()
    while len(frame) < size:  # piece by piece: a length that is only claimed allocates nothing
        piece = source.read(min(1 << 24, size - len(frame)))
        if not piece:
            raise FormatError(f"{whose} must send {size} bytes, got {len(frame)}")
        frame += piece
    return bytes(frame)
