"""Add occurrences to cells chosen at random, without holding the interpreter lock.

``np.add.at`` keeps the lock for as long as it adds, so that no other thread can hash meanwhile. SciPy's product of a
sparse matrix with a vector is the same loop, cells[where[i]] += counts[i]·x, and gives the lock up. Its compiled
function is not part of SciPy's public interface (the public product always starts from zeros), so it is looked up,
tried out, and ``np.add.at`` takes its place where it has changed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["scatter_add"]

Int64 = NDArray[np.int64]
Product = Callable[..., Any]


def scatter_add(cells: Int64, where: Int64, counts: Int64, sign: int = 1) -> None:
    """Add sign·counts to the cells ``where``, repeated cells included; every cell must exist: that is not checked.

    ``counts`` may be longer than ``where``. Two threads must not add to the same cells at once.

    >>> cells = np.zeros(3, dtype=np.int64)
    >>> scatter_add(cells, np.array([2, 0, 2]), np.array([1, 5, 1]), -1)
    >>> cells
    array([-5,  0, -2])
    """
    if where.size == 0:
        return
    if counts.size < where.size:
        raise ValueError(f"counts must be at least as many as cells, got {counts.size} for {where.size}")
    product = _product()
    if product is None or not cells.flags.c_contiguous:
        np.add.at(cells, where, sign * counts[: where.size])
    else:
        ends = np.array([0, where.size], dtype=np.int64)
        product(cells.size, 1, ends, where, counts, np.array([sign], dtype=np.int64), cells)


@lru_cache(maxsize=1)
def _product() -> Product | None:
    """Return SciPy's y += A·x for a matrix by columns, if it does what is wanted; None else."""
    try:
        from scipy.sparse import _sparsetools

        product: Product = _sparsetools.csc_matvec
        cells = np.array([1, 2, 3], dtype=np.int64)
        where, counts = np.array([2, 0, 2], dtype=np.int64), np.array([1, 5, 1, 7], dtype=np.int64)
        product(3, 1, np.array([0, 3], dtype=np.int64), where, counts, np.array([-1], dtype=np.int64), cells)
    except Exception:  # whatever a private function may do when it has changed
        return None
    return product if cells.tolist() == [-4, 2, 1] else None
