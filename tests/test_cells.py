"""64 bits: counts are bounded before any cell is looked at, so that no refusal tells what a cell holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from sketch_tools import empty, refused
from unnoise import testing
from unnoise.errors import InputError
from unnoise.sketches.cells import LIMIT, add_cells, largest
from unnoise.sketches.persons import LARGEST_COUNT
from unnoise.sketches.sketch import Sketch

SECRET = 3141


def read_a_cell(add: Callable[[int], bool]) -> int | None:
    """The attack on a refusal: bisect for the largest count that is accepted, taking it back each time."""
    low, high = 0, LIMIT
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if add(middle) else (low, middle - 1)
    return None if low == LIMIT else LIMIT - low


def test_no_refusal_reads_a_cell() -> None:
    sketch = empty()
    sketch.update([2], [SECRET])

    def add(count: int) -> bool:
        try:
            sketch.update([2], [count])
        except InputError:
            return False
        sketch.update([2], [-count])
        return True

    assert read_a_cell(add) is None
    assert sketch._held.array().tolist() == [0, 0, SECRET, 0]


def test_the_attack_reads_a_cell_that_is_checked() -> None:
    """Negative control: what a refusal by the sum gives away."""
    held = SECRET
    assert read_a_cell(lambda count: held + count <= LIMIT) == SECRET


def test_no_merge_reads_a_cell() -> None:
    for count in (1, LARGEST_COUNT):
        sketch, other = empty(), empty()
        sketch.update([0] * 1023, [LARGEST_COUNT] * 1023)
        other.update([0] * 1024, [count] * 1024)
        sketch.merge(other)


@pytest.mark.parametrize(
    ("given", "counted"),
    [(LIMIT, LARGEST_COUNT), (-LIMIT - 1, -LARGEST_COUNT), (LARGEST_COUNT + 1, LARGEST_COUNT), (5, 5)],
)
def test_counts_are_bounded(given: int, counted: int) -> None:
    sketch = empty()
    sketch.update([0, 1], [given, 1])
    assert sketch._held.array().tolist() == [counted, 1, 0, 0]


def test_sums_wrap_and_come_back() -> None:
    sketch = empty()
    for sign in (1, 1, -1, -1):
        sketch.update([0] * 1000, [sign * LARGEST_COUNT] * 1000)
    assert sketch._held.array().tolist() == [0, 0, 0, 0]


HUGE: dict[str, Any] = {
    "list": [2**63, -(2**70)],
    "numpy": np.array([2**64 - 1, 1], dtype=np.uint64),
    "polars": pl.Series([2**63, 1], dtype=pl.UInt64),
    "polars 128": pl.Series([2**100, -(2**100)], dtype=pl.Int128),
    "arrow": pa.array([2**63, 1], pa.uint64()),
    "pandas": pd.Series([2**63, 1], dtype="uint64"),
}


@pytest.mark.parametrize("name", HUGE)
def test_counts_beyond_64_bits_are_bounded_too(name: str) -> None:
    """A refusal would tell of one row: neither a sketch nor the direct model asks how wide the column is."""
    sketch, counts = empty(), HUGE[name]
    sketch.update([0, 1], counts)
    first, second = (min(max(int(count), -LARGEST_COUNT), LARGEST_COUNT) for count in list(counts))
    assert sketch._held.array().tolist() == [first, second, 0, 0]
    with testing.noiseless():
        assert testing.direct(["a"], epsilon=1, counts=[2**70]).total.value > 2**61


def test_public_cells_are_checked() -> None:
    left, right = empty(), empty()
    for sketch in (left, right):
        sketch.update([0] * 600, [LARGEST_COUNT] * 600)
        testing.release(sketch)
    refused(InputError, "a cell would overflow", lambda: left.merge(right), left, right)
    refused(InputError, "a cell would overflow", lambda: left + right, left, right)
    refused(InputError, "a cell would overflow", left.begin_epoch, left)


def test_adding_in_place_and_aside() -> None:
    left, right = np.arange(5), np.array([1, -2, 3, -4, 5])
    out = np.empty(5, dtype=np.int64)
    add_cells(left, right, out)
    add_cells(left, right, left)
    assert out.tolist() == left.tolist() == [1, -1, 5, -1, 9]
    assert largest(left) == 9
    assert largest(np.zeros(0, dtype=np.int64)) == 0


def test_a_new_sketch_holds_noise_only() -> None:
    assert Sketch.known(1000, epsilon=1)._held.array().any()
    assert not empty(1000)._held.array().any()
