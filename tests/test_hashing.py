"""The hash: equal to the xxhash package, to golden values, and in all engines' terms."""

from __future__ import annotations

import builtins
import hashlib
import json
import struct
from fractions import Fraction
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from unnoise.errors import InputError
from unnoise.layout import Layout
from unnoise.sketches import hashing
from unnoise.sketches.domain import fingerprint
from unnoise.sketches.format import digest_of_runs
from unnoise.sketches.hashing import (
    cells_of,
    hash_columns,
    hash_words,
    level_of,
    sample_limit,
    string_keys,
    unhash_words,
)

GOLDEN = json.loads((Path(__file__).parent / "golden" / "hash-v1.json").read_text())
UINT64 = st.integers(0, 2**64 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


def oracle_key(item: int | str) -> int:
    raw = item.encode() if isinstance(item, str) else item.to_bytes(8, "little", signed=True)
    return xxhash.xxh64_intdigest(raw)


def oracle_hash(item: tuple[int | str, ...], seed: int) -> int:
    h = seed
    for part in item:
        h = xxhash.xxh64_intdigest(oracle_key(part).to_bytes(8, "little"), h)
    return h


def column(parts: list[int] | list[str]) -> object:
    return np.array(parts, dtype=np.int64) if isinstance(parts[0], int) else pl.Series(parts, dtype=pl.String)


@pytest.mark.parametrize("alphabet", ["a", "é", "漢", "🦀", "aé漢🦀", "\x00\n"])
def test_strings_of_every_length_equal_xxhash(alphabet: str) -> None:
    texts = [(alphabet * 300)[:n] for n in range(301)]
    assert string_keys(pl.Series(texts)).tolist() == [oracle_key(t) for t in texts]


def test_ascii_of_every_length_equals_xxhash() -> None:
    rng = np.random.default_rng(1)
    texts = ["".join(map(chr, rng.integers(32, 127, n))) for n in range(301)]
    assert string_keys(pl.Series(texts)).tolist() == [oracle_key(t) for t in texts]
    assert hashing._string_keys_loop(pl.Series(texts)).tolist() == [oracle_key(t) for t in texts]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=50))
def test_any_text_equals_xxhash(texts: list[str]) -> None:
    assert string_keys(pl.Series(texts, dtype=pl.String)).tolist() == [oracle_key(t) for t in texts]


@given(st.lists(INT64, min_size=1), UINT64)
def test_integers_equal_xxhash(items: list[int], seed: int) -> None:
    expected = [xxhash.xxh64_intdigest(i.to_bytes(8, "little", signed=True), seed) for i in items]
    assert hash_words(np.array(items, dtype=np.int64), seed).tolist() == expected


@given(st.lists(st.tuples(UINT64, UINT64), min_size=1))
def test_one_seed_per_word(pairs: list[tuple[int, int]]) -> None:
    words, seeds = (np.array(part, dtype=np.uint64) for part in zip(*pairs))
    expected = [xxhash.xxh64_intdigest(w.to_bytes(8, "little"), s) for w, s in pairs]
    assert hash_words(words, seeds).tolist() == expected


@given(st.lists(UINT64, min_size=1, max_size=20), UINT64)
def test_unhash_inverts(words: list[int], seed: int) -> None:
    array = np.array(words, dtype=np.uint64)
    assert (unhash_words(hash_words(array, seed), seed) == array).all()
    assert (hash_words(unhash_words(array, seed), seed) == array).all()


@given(st.lists(st.tuples(INT64, st.text(st.characters(exclude_categories=["Cs"])), INT64), min_size=1), UINT64)
def test_chain_over_columns(rows: list[tuple[int, str, int]], seed: int) -> None:
    columns = [column(list(part)) for part in zip(*rows)]
    assert hash_columns(columns, seed).tolist() == [oracle_hash(row, seed) for row in rows]


def test_order_of_columns_matters() -> None:
    one, two = np.array([1, 2]), np.array([2, 1])
    forward, backward = hash_columns([one, two]), hash_columns([two, one])
    assert (forward != backward).all()
    assert forward[0] == backward[1]


@pytest.mark.parametrize("size", [1, hashing.BLOCK - 1, hashing.BLOCK, hashing.BLOCK + 1, 2 * hashing.BLOCK + 12345])
def test_blocks_and_threads_change_nothing(size: int) -> None:
    numbers = np.arange(size, dtype=np.int64) * 7919
    texts = pl.Series(numbers).cast(pl.String)
    got = hash_columns([numbers, texts], 99)
    for i in {0, size // 2, size - 1, min(size - 1, hashing.BLOCK)}:
        assert int(got[i]) == oracle_hash((int(numbers[i]), str(numbers[i])), 99)


@pytest.mark.parametrize("case", GOLDEN["items"], ids=lambda case: repr(case["item"]))
def test_golden_values(case: dict[str, object]) -> None:
    item, seed = case["item"], int(str(case["hash_seed"]), 16)
    assert isinstance(item, list)
    h = hash_columns([column([part]) for part in item], seed)
    assert f"{int(h[0]):016x}" == case["hash"]
    assert int(cells_of(h, Layout(kind="hashed", cells=1 << 20, hash_seed=seed))[0]) == case["cell of 2^20"]
    layout = Layout(kind="hashed", cells=1 << 20, levels=16, hash_seed=seed)
    assert int(level_of(h, 16)[0]) == case["level of 16"]
    assert int(cells_of(h, layout)[0]) == case["cell of 2^20 in 16 levels"]
    assert f"{oracle_hash(tuple(item), seed):016x}" == case["hash"]


SMALL = st.builds(lambda value, shift: value >> shift, UINT64, st.integers(0, 64))


def test_documented_vectors_are_the_golden_ones() -> None:
    page = (Path(__file__).parent.parent / "docs" / "format.md").read_text()
    for case in GOLDEN["items"]:
        cells = f"{case['cell of 2^20']} | {case['level of 16']} | {case['cell of 2^20 in 16 levels']}"
        assert f"| {case['hash_seed']} | {' '.join(case['keys'])} | {case['hash']} | {cells} |" in page
    prints = [
        fingerprint([np.array([1, 2])], ["int"]),
        fingerprint([pl.Series(["a", "é"])], ["str"]),
        fingerprint([np.array([1, 2]), pl.Series(["a", "é"])], ["int", "str"]),
    ]
    assert all(f"| {text} |" in page for text in prints)
    by_hand = hashlib.sha256(b"unnoise domain 1\nint,str\n" + struct.pack("<3q2q", 2, 1, 2, 1, 2) + b"a\xc3\xa9")
    assert by_hand.hexdigest() == prints[2]
    assert digest_of_runs(b"{}", [hashlib.sha256(struct.pack("<16q", *range(16))).digest()]) in page
    sampled = hash_columns([np.arange(20)]) <= sample_limit(Fraction(1, 4))
    assert f"the sample of the domain 0 … 19 is {', '.join(map(str, np.flatnonzero(sampled)))}." in page


@given(st.lists(SMALL, min_size=1), st.integers(1, 54), st.integers(0, 10))
def test_levels_against_bit_strings(values: list[int], levels: int, bits: int) -> None:
    hashes = np.array(values, dtype=np.uint64)
    got = cells_of(hashes.copy(), Layout(kind="hashed", cells=levels << bits, levels=levels, hash_seed=0))
    for h, cell in zip(values, got.tolist()):
        text = f"{h:064b}"
        level = min(len(text) - len(text.lstrip("0")), levels - 1)
        assert cell == (level << bits) + h % (1 << bits)


def test_levels_have_their_probabilities() -> None:
    n, levels = 1 << 20, 8
    tally = np.bincount(level_of(hash_columns([np.arange(n)]), levels), minlength=levels)
    expected = n * np.append(0.5 ** np.arange(1, levels), 0.5 ** (levels - 1))
    # hash of consecutive integers, fixed: six standard deviations
    assert (np.abs(tally - expected) < 6 * np.sqrt(expected)).all()


def test_cells_need_a_power_of_two() -> None:
    with pytest.raises(InputError, match="power of two, got 12"):
        cells_of(np.zeros(1, dtype=np.uint64), Layout(kind="hashed", cells=12, hash_seed=0))


@given(st.fractions(Fraction(1, 10**6), 1), UINT64)
def test_sample_limit_is_exact(rate: Fraction, value: int) -> None:
    inside = np.uint64(value) <= sample_limit(rate)
    assert inside == (value < rate * 2**64)


def test_without_polars_hash_xxhash_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = pl.Series(["", "a", "é" * 40])
    expected = string_keys(texts).tolist()
    importing = builtins.__import__

    def hide(*names: str):  # type: ignore[no-untyped-def]
        def fake(name: str, *args: object, **kwargs: object) -> object:
            if name in names:
                raise ImportError(name)
            return importing(name, *args, **kwargs)  # type: ignore[arg-type]

        return fake

    monkeypatch.setattr(builtins, "__import__", hide("polars_hash"))
    assert string_keys(texts).tolist() == expected
    monkeypatch.setattr(builtins, "__import__", hide("polars_hash", "xxhash"))
    with pytest.raises(InputError, match="polars-hash"):
        string_keys(texts)
