"""The one bridge between the secret and the public side: from items to a private profile in one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .answers.reconstruct import reconstruct
from .noise import Exact
from .sketches.sketch import Sketch

if TYPE_CHECKING:
    from .answers.profile import Profile

__all__ = ["profile"]


def profile(items: Any, *, epsilon: Exact, counts: Any = None, cells: int = 2**20, method: str = "auto") -> Profile:
    """Return the private profile of the items: how many of them occurred exactly t times.

    The items go into a hashed sketch, which is released and reconstructed; nothing else leaves this call. ε is for one
    occurrence of one item.

    Parameters
    ----------
    items : integers, strings or tuples of them, in any of the forms :meth:`Sketch.update` takes
    epsilon : ε > 0
    counts : occurrences of each item; one each when not given
    cells : number of cells, a power of two; about as many as there are distinct items is a good choice
    method : estimator, see :func:`reconstruct`

    Examples
    --------
    >>> p = profile(["red", "blue", "red"] * 5_000 + list(range(0)), epsilon=1, cells=2**12)
    >>> 0 <= float(p.distinct) < 200
    True
    """
    sketch = Sketch.hashed(cells, epsilon=epsilon)
    sketch.update(items, counts)
    return reconstruct(sketch.release(), method=method)
