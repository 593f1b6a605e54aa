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
FEW, MANY = 0, 10**6
"""Counts of every cell. Arrays of them are made anew for every call: where an array lies in memory moves its time by
half a hundredth, which two that are kept would have told apart whatever they hold."""

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


def pan_private(count: int) -> Any:
    """Release of a pan-private sketch that holds these counts: the noise is drawn beside them."""
    sketch = Sketch.known(CELLS, epsilon=1, pan_private=True)
    sketch._held.array()[:] += count
    return sketch.release


def holding(count: int) -> np.ndarray:
    """Cells that all hold a count."""
    return np.full(CELLS, count, dtype=np.int64)


PATHS: dict[str, Callable[[int], Any]] = {
    "noise drawn and added to cells": lambda count: partial(honest, holding(count)),
    "release of a pan-private sketch": pan_private,
}
BROKEN: dict[str, Callable[[int], Any]] = {
    "noise on occupied cells only": lambda count: partial(only_occupied, holding(count)),
    "another draw where counts are large": lambda count: partial(a_draw_more, holding(count)),
}
"""Each returns, for a count, the call that is timed."""


def p_value(path: Callable[[int], Any], rounds: int, seed: int) -> tuple[float, float]:
    """Return the p-value of "time does not depend on counts", and the ratio of median times."""
    rng = random.Random(seed)
    labels = [0, 1] * rounds
    rng.shuffle(labels)
    for count in (FEW, MANY) * 3:
        path(count)()
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
