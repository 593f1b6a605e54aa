"""Noise for tests: seeded, or switched off. Imported by no module of the package.

Inside these contexts every stream carries a label, and a sketch made with one says so and can be neither saved nor
released as private.

>>> from unnoise import discrete_laplace
>>> with seeded(7):
...     first = discrete_laplace(3, epsilon=1)
>>> with seeded(7):
...     second = discrete_laplace(3, epsilon=1)
>>> bool((first == second).all())
True
>>> with noiseless():
...     discrete_laplace(3, epsilon=1)
array([0, 0, 0])
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

from ._sampler import Keystream, source
from .guard import letting_out

if TYPE_CHECKING:
    from .noisy import NoisyCounts
    from .sketches.sketch import Sketch

__all__ = ["direct", "noiseless", "release", "seeded"]


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Make every stream opened inside repeatable: the n-th one is a function of (seed, n)."""
    key = hashlib.sha256(b"unnoise.testing" + str(int(seed)).encode()).digest()
    number = count()
    with _streams(lambda: Keystream(key, next(number), label="seeded for tests")):
        yield


@contextmanager
def noiseless() -> Iterator[None]:
    """Switch noise off for everything made inside."""
    with _streams(lambda: Keystream(bytes(32), label="noise off for tests", silent=True)):
        yield


def release(sketch: Sketch) -> NoisyCounts:
    """Return the counts of a sketch whose noise is not private, and seal it; ``sketch.release()`` refuses.

    >>> from unnoise.sketches.sketch import Sketch
    >>> with noiseless():
    ...     sketch = Sketch.known(3, epsilon=1)
    >>> sketch.update([2, 2, 0])
    >>> release(sketch).counts.tolist()
    [1, 0, 2]
    """
    return letting_out(sketch.release)


def direct(
    items: Any, *, epsilon: Any, counts: Any = None, person: Any = None, max_contributions: int | None = None,
    by: Any = None, groups: Any = None, all_groups: Any = None, max_count: int | None = None,
) -> Any:  # fmt: skip
    """Return :func:`unnoise.direct`'s answer from noise that is not private; ``un.direct`` refuses.

    >>> with noiseless():
    ...     direct([1, 1, 2], epsilon=1).curve.numbers[:3].tolist()
    [2, 1, 0]
    """
    from .api import direct

    return letting_out(
        direct, items, epsilon=epsilon, counts=counts, person=person, max_contributions=max_contributions, by=by,
        groups=groups, all_groups=all_groups, max_count=max_count,
    )  # fmt: skip


@contextmanager
def _streams(make: Callable[[], Keystream]) -> Iterator[None]:
    token = source.set(make)
    try:
        yield
    finally:
        source.reset(token)
