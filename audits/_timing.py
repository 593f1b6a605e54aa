"""Does the time that noise takes depend on the counts it is added to? A permutation test.

Two sets of counts as different as can be: no occurrence at all, and a million in every cell. For each of the paths
that draw noise when data are there already, both are timed again and again in random order, in processor time of the
thread. Under the hypothesis that time does not
depend on counts the labels can be exchanged, so the difference of the mean ranks is compared with its law over all
exchanges (normal to four digits at this size). The false-alarm rate is 1e-6 a path.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from unnoise._sampler import fill, open_stream
from unnoise.noise import DiscreteLaplace
from unnoise.sketches.sketch import Sketch

CELLS = 1 << 14
ALARM = 1e-6
FEW, MANY = np.zeros(CELLS, dtype=np.int64), np.full(CELLS, 10**6, dtype=np.int64)
LAW = DiscreteLaplace(1)


def honest(cells: np.ndarray) -> np.ndarray:
    """Noise for every cell, then added."""
    noise = np.empty(cells.size, dtype=np.int64)
    fill(noise, LAW, open_stream())
    return cells + noise


def only_occupied(cells: np.ndarray) -> np.ndarray:
    """Broken: noise where there is something."""
    noise = np.zeros(cells.size, dtype=np.int64)
    places = np.flatnonzero(cells)
    some = np.empty(places.size, dtype=np.int64)
    if some.size:
        fill(some, LAW, open_stream())
    noise[places] = some
    return cells + noise


def a_draw_more(cells: np.ndarray) -> np.ndarray:
    """Broken: one more, smaller draw where counts are large."""
    if cells[0]:
        extra = np.empty(CELLS // 20, dtype=np.int64)
        fill(extra, LAW, open_stream())
    return honest(cells)


def pan_private(cells: np.ndarray) -> Any:
    """Release of a pan-private sketch that holds these counts: the noise is drawn beside them."""
    sketch = Sketch.known(CELLS, epsilon=1, pan_private=True)
    sketch._held.array()[:] += cells
    return sketch.release


PATHS: dict[str, Callable[[np.ndarray], Any]] = {
    "noise drawn and added to cells": lambda cells: partial(honest, cells.copy()),
    "release of a pan-private sketch": pan_private,
}
BROKEN: dict[str, Callable[[np.ndarray], Any]] = {
    "noise on occupied cells only": lambda cells: partial(only_occupied, cells.copy()),
    "another draw where counts are large": lambda cells: partial(a_draw_more, cells.copy()),
}
"""Each returns, for some counts, the call that is timed; of a copy made in the same way, for where an array lies in
memory moves its time by a hundredth (zeros that nobody wrote are one page, again and again)."""


def p_value(path: Callable[[np.ndarray], Any], rounds: int, seed: int) -> tuple[float, float]:
    """Return the p-value of "time does not depend on counts", and the ratio of median times."""
    rng = random.Random(seed)
    labels = [0, 1] * rounds
    rng.shuffle(labels)
    for cells in (FEW, MANY) * 3:
        path(cells)()
    times = np.empty(len(labels))
    for i, label in enumerate(labels):
        call = path(MANY if label else FEW)
        begun = time.thread_time_ns()
        call()
        times[i] = time.thread_time_ns() - begun
    which = np.array(labels, dtype=bool)
    order = np.argsort(times, kind="stable")
    ranks = np.empty(times.size)
    ranks[order] = np.arange(times.size)
    mean = (times.size - 1) / 2
    sigma = math.sqrt(rounds * rounds * (2 * rounds + 1) / 12) / rounds
    z = (ranks[which].mean() - mean) / sigma
    return math.erfc(abs(z) / math.sqrt(2)), float(np.median(times[which]) / np.median(times[~which]))
