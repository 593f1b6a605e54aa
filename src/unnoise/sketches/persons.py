"""At most c occurrences of each person, chosen at random.

A row with count k stands for |k| occurrences. A person with more than c of them keeps c, every set of c of them being
equally likely (up to the rounding of a double), independently of other persons and of the noise. What a person keeps
depends on no other person's rows, so adding or removing a person changes the sketch by at most c, which is what
a = e^(−ε/c) is calibrated for.

**Who is who.** Two persons taken for one would break that: one would push out what the other keeps. So they are told
apart by a 128-bit code under a key that is drawn for the call and forgotten after it: AES-256 in CBC mode as a message
authentication code [1]_ over, for every column, one block of its type and its length (or value), then the text in
blocks of 16 bytes. No code is the beginning of another, so it is a pseudorandom function; integers, which need one
block, are told apart by a permutation, without exception.

**The choice.** Each occurrence gets an exponential time and the c first are kept. Of w occurrences in one row, only the
c first can matter, and their times are X_1/w, X_1/w + X_2/(w−1), … with X_i exponential (Rényi), so a count of 2^53
costs no more than c.

.. [1] M. Bellare, J. Kilian, P. Rogaway, "The security of the cipher block chaining message authentication code",
   J. Comput. Syst. Sci. 61 (2000) 362-399; prefix-free messages: E. Petrank, C. Rackoff, J. Cryptology 13 (2000).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._sampler import Keystream
from ..arrays import Floats, Int64
from .hashing import Column, UInt64, as_series

__all__ = ["LARGEST_COUNT", "MOST", "PersonCodes", "bounded", "limit_contributions"]

CHUNK = 1 << 16
"""Rows encoded at a time."""

MOST = 1 << 20
"""Most occurrences that a person may keep: the choice takes memory for each, however few rows they come from.

The limit is on what is declared and not on what is there, so that no memory runs out because of one row.
"""

LARGEST_COUNT = 1 << 53
"""A count beyond counts as this: to refuse it would tell that it is there."""

WIDTH = 16


class PersonCodes:
    """Codes of persons under a key of their own: equal for equal persons, and different for different ones."""

    def __init__(self, key: bytes | None = None) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        secret = key if key is not None else Keystream().words(32, 8).tobytes()
        self._cipher = Cipher(algorithms.AES(secret), modes.ECB()).encryptor()  # CBC's xor is done here, row by row

    def of(self, columns: Sequence[Column]) -> UInt64:
        """Return two words for each row.

        >>> codes = PersonCodes().of([np.array([5, 7, 5])])
        >>> bool((codes[0] == codes[2]).all() and (codes[0] != codes[1]).any())
        True
        """
        size = len(columns[0])
        codes = np.zeros((size, 2), dtype="<u8")
        for start in range(0, size, CHUNK):
            state = codes[start : start + CHUNK]
            for column in columns:
                if isinstance(column, np.ndarray):
                    self._mix(state, np.zeros(1, dtype="<u8"), column[start : start + CHUNK].view("<u8"))
                else:
                    self._mix_text(state, as_series(column.slice(start, CHUNK)))
        return codes

    def _mix(self, state: UInt64, kind: UInt64, value: UInt64) -> None:
        """Take one more block per row in: the kind, or first word, and the value, or second."""
        state[:, 0] ^= kind
        state[:, 1] ^= value
        flat = state.reshape(-1).view(np.uint8)
        flat[:] = np.frombuffer(self._cipher.update(flat.data), dtype=np.uint8)

    def _mix_text(self, state: UInt64, texts: Any) -> None:
        """Take the length of each text in, then its bytes."""
        text, starts = _bytes_of(texts)
        lengths = np.diff(starts)
        self._mix(state, np.ones(1, dtype="<u8"), lengths.view("<u8"))
        rows = np.flatnonzero(lengths > 0)
        at = 0
        while rows.size:
            left = lengths[rows] - at
            block = text[starts[rows, None] + at + np.arange(WIDTH)]  # the padding behind the text is long enough
            block[np.arange(WIDTH) >= left[:, None]] = 0
            words = block.view("<u8")
            part = state[rows]
            self._mix(part, words[:, 0], words[:, 1])
            state[rows] = part
            at += WIDTH
            rows = rows[left > WIDTH]


def _bytes_of(texts: Any) -> tuple[NDArray[np.uint8], Int64]:
    """Return the UTF-8 bytes of all texts and a block of zeros, and where each text begins and the last ends."""
    import pyarrow as pa

    array = texts.to_arrow().cast(pa.large_string())
    offset, size = array.offset, len(array)
    _, ends, data = array.buffers()
    starts = np.frombuffer(ends, dtype=np.int64)[offset : offset + size + 1]
    used = np.frombuffer(data, dtype=np.uint8) if data is not None else np.zeros(0, dtype=np.uint8)
    first, last = int(starts[0]), int(starts[-1])
    return np.concatenate([used[first:last], np.zeros(WIDTH, dtype=np.uint8)]), starts - first


def bounded(counts: Int64) -> Int64:
    """Return the counts, those beyond the largest made equal to it."""
    if counts.size and (counts.max() > LARGEST_COUNT or counts.min() < -LARGEST_COUNT):
        return np.clip(counts, -LARGEST_COUNT, LARGEST_COUNT)
    return counts


def limit_contributions(
    cells: Int64, counts: Int64 | None, persons: UInt64, most: int, stream: Keystream
) -> tuple[Int64, Int64 | None]:
    """Return the cells and counts that are left when each person keeps at most ``most`` occurrences.

    ``persons`` : who is behind each row, one word or two
    """
    if cells.size == 0:
        return cells, counts
    counts = None if counts is None else bounded(counts)
    order, starts = _by_person(persons)
    del persons  # the longest of all; whoever passed it may have let it go
    sizes = np.diff(np.append(starts, cells.size))
    totals = sizes if counts is None else np.add.reduceat(np.minimum(np.abs(counts), most + 1)[order], starts)
    if (totals <= most).all():
        return cells, counts
    over = np.empty(cells.size, dtype=bool)
    over[order] = np.repeat(totals > most, sizes)
    who = np.empty(cells.size, dtype=np.int64)
    who[order] = np.repeat(np.arange(sizes.size), sizes)
    rows = np.flatnonzero(over)
    order, who = order[:0], who[rows]
    chosen = _choose(rows, None if counts is None else np.abs(counts[rows]), who, most, stream)
    kept = ~over
    left = np.concatenate([cells[kept], cells[chosen]])
    if counts is None:
        return left, None
    return left, np.concatenate([counts[kept], np.sign(counts[chosen])])


def _by_person(persons: UInt64) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return an order of the rows in which each person's stand together, and where in it each person begins."""
    words = persons.reshape(len(persons), -1)
    order = np.argsort(words[:, 0])
    first = _changes(words[:, 0], order)
    if words.shape[1] > 1 and (_changes(words[:, 1], order) & ~first).any():  # once in 2^64 pairs of persons
        order = np.lexsort((words[:, 1], words[:, 0]))
        first = _changes(words[:, 0], order) | _changes(words[:, 1], order)
    return order, np.flatnonzero(first)


def _changes(values: NDArray[Any], order: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Tell where, in that order, a value differs from the one before; the first does."""
    changes = np.ones(order.size, dtype=bool)
    for start in range(1, order.size, CHUNK):
        near = values[order[start - 1 : start + CHUNK]]
        changes[start : start + CHUNK] = near[1:] != near[:-1]
    return changes


def _choose(
    rows: NDArray[np.intp], weights: Int64 | None, who: Int64, most: int, stream: Keystream
) -> NDArray[np.intp]:
    """Return a row for every occurrence that is kept: of each person the ``most`` with the first times."""
    times: NDArray[Any]
    if weights is None:
        times = stream.words(rows.size)
    else:
        at, times = _times(weights, most, stream)
        rows, who = rows[at], who[at]
    order = np.lexsort((times, who))
    starts = np.flatnonzero(_changes(who, order))
    rank = np.arange(order.size) - np.repeat(starts, np.diff(np.append(starts, order.size)))
    return np.asarray(rows[order[rank < most]])


def _times(weights: Int64, most: int, stream: Keystream) -> tuple[NDArray[np.intp], Floats]:
    """Return the ``most`` first times of the occurrences of each row, and whose row each is."""
    tries = np.minimum(weights, most)
    at = np.repeat(np.arange(weights.size), tries)
    begin = np.cumsum(tries) - tries
    number = np.arange(at.size) - begin[at]  # 0, 1, … within a row
    uniform = (stream.words(at.size) >> np.uint64(11)).astype(np.float64) + 0.5
    times = -np.log(uniform * 2.0**-53) / (weights[at] - number)
    more, k = np.flatnonzero(tries > 1), 1
    while more.size:  # added up within each row: a running sum over all would let persons round each other's times
        times[begin[more] + k] += times[begin[more] + k - 1]
        k += 1
        more = more[tries[more] > k]
    return at, times
