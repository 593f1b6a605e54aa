"""Small sketches for tests, and the check that a refused call changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from unnoise import testing
from unnoise.sketches.sketch import Sketch


def make(**kwargs: Any) -> Sketch:
    return Sketch.hashed(64, **{"epsilon": 1, **kwargs})


def empty(cells: int = 4, **kwargs: Any) -> Sketch:
    """A sketch without noise, one cell per item."""
    with testing.noiseless():
        return Sketch.known(cells, epsilon=1, **kwargs)


def state_of(sketch: Sketch) -> tuple[Any, ...]:
    return (
        sketch._held.array().tobytes(), sketch._noise, sketch._layout, sketch._account, sketch._identities,
        sketch._state, sketch._fresh, sketch._label, sketch._types, sketch._broken,
    )  # fmt: skip


def refused(error: type[BaseException], message: str | None, call: Callable[[], Any], *unchanged: Sketch) -> None:
    """Expect an error, and that the sketches are as they were."""
    before = [state_of(sketch) for sketch in unchanged]
    with pytest.raises(error, match=message):
        call()
    assert [state_of(sketch) for sketch in unchanged] == before
