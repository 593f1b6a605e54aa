"""Neighbouring inputs through every path of the library, and through the same paths broken on purpose.

A *view* is everything that leaves, as rows of integers, for the input without (0) and with (1) one more unit. Noise is
independent from cell to cell, which the sampler's audit tests, and a unit touches cells of its own here, so the cells
of one sketch are as many trials: each is the marginal of one pair of inputs that differ in that cell's unit alone.
Some paths have one small sketch, or one call, for each trial instead, and see all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
from soak import digest

import unnoise as un
from unnoise import GroupedSketch, Sketch, testing
from unnoise.sketches.persons import PersonCodes

CELLS = 1 << 16
LEVELS = 4
ROWS = 10
"""Rows of one person, of which the limit keeps two."""

MOST = 16
"""Counts released by the direct model: sixteen columns and two rows."""

View = Callable[[int, int], np.ndarray]


@dataclass(frozen=True)
class Path:
    """One public path: its claim, what is seen of it and of its broken variants; trials of a full and a short run."""

    claim: float
    view: View
    broken: dict[str, View]
    trials: tuple[int, int] = (1_000_000, 20_000)
    unit: str = "occurrence"
    each: str = "cell"


def repeated(one: Callable[[int, int], np.ndarray], size: int) -> View:
    """Call ``one(which, cells)`` until there are enough trials."""

    def view(which: int, trials: int) -> np.ndarray:
        cells = min(size, trials)
        found = [one(which, cells) for _ in range(-(-trials // cells))]
        return np.concatenate([np.asarray(each).reshape(cells, -1) for each in found])

    return view


def counts(sketch: Sketch) -> np.ndarray:
    return sketch.release().counts


# ── plain sketches ────────────────────────────────────────────────────────────────────────────────────────────


def known(epsilon: Any = 1, base: int = 0) -> View:
    def one(which: int, cells: int) -> np.ndarray:
        sketch = Sketch.known(cells, epsilon=epsilon)
        sketch.update(np.repeat(np.arange(cells), base + which))
        return counts(sketch)

    return repeated(one, CELLS)


def occupied_only(which: int, trials: int) -> np.ndarray:
    """Noise goes on occupied cells alone, as a join that leaves out the empty ones would have it."""
    return known()(which, trials) * which


def floating(which: int, trials: int) -> np.ndarray:
    """Add a double of the Laplace law to the count; seen are the whole part and where the last bit of the double is."""
    released = np.random.default_rng(which).laplace(0, 1, trials) + which
    bits = np.abs(released * 2.0**56).astype(np.int64)
    return np.column_stack([np.rint(released).astype(np.int64), np.log2(np.maximum(bits & -bits, 1)).astype(np.int64)])


@cache
def apart(levels: int = 1) -> tuple[list[str], np.ndarray]:
    """Return items that have a cell each to themselves, and those cells."""
    found: dict[int, str] = {}
    size = CELLS // levels
    for number in range(2 * CELLS):
        h = digest(f"item {number}")
        found.setdefault(min(64 - h.bit_length(), levels - 1) * size + h % size, f"item {number}")
    return list(found.values()), np.array(list(found))


def hashed(epsilon: Any = 1, levels: int = 1) -> View:
    def one(which: int, cells: int) -> np.ndarray:
        items, where = apart(levels)
        sketch = Sketch.hashed(CELLS, epsilon=epsilon, levels=levels if levels > 1 else None)
        sketch.update(items)
        if which:
            sketch.update(items[:cells])
        return counts(sketch)[where[:cells]]

    return repeated(one, 1 << 15)


def sampled(epsilon: Any = 1) -> View:
    def one(which: int, cells: int) -> np.ndarray:
        sketch = Sketch.sampled(4 * cells, rate="1/2", epsilon=epsilon)
        sketch.update(np.repeat(np.arange(4 * cells), 2 + which))
        return counts(sketch)[:cells]

    return repeated(one, 1 << 14)


def whole(epsilon: Any = 1) -> View:
    """Small sketches, one for each trial: an item more among four cells."""

    def view(which: int, trials: int) -> np.ndarray:
        found = np.empty((trials, 4), dtype=np.int64)
        for row in found:
            sketch = Sketch.hashed(4, epsilon=epsilon)
            sketch.update(np.arange(20 + which))
            row[:] = counts(sketch)
        return found

    return view


# ── persons and groups ────────────────────────────────────────────────────────────────────────────────────────


def person(limit: int | None = 2) -> View:
    """A person with ten rows of one item; without the limit that the noise is made for, where that is broken."""

    def one(which: int, cells: int) -> np.ndarray:
        rows = np.repeat(np.arange(cells), ROWS * which)
        if limit is None:
            sketch = Sketch.known(cells, epsilon="1/2")
            sketch.update(rows)
        else:
            sketch = Sketch.known(cells, epsilon=1, max_contributions=limit)
            sketch.update(rows, person=rows)
        return counts(sketch)

    return repeated(one, 1 << 15)


def two_persons(which: int, trials: int) -> np.ndarray:
    """Beside a person with two rows of their own another one with ten; seen are both items."""

    def one(which: int, pairs: int) -> np.ndarray:
        first = np.repeat(2 * np.arange(pairs), 2)
        rows = np.concatenate([first, np.repeat(2 * np.arange(pairs) + 1, ROWS * which)])
        sketch = Sketch.known(2 * pairs, epsilon=1, max_contributions=2)
        sketch.update(rows, person=rows)
        return counts(sketch).reshape(pairs, 2)

    return repeated(one, 1 << 14)(which, trials)


def colliding(which: int, trials: int) -> np.ndarray:
    """Two ids share one code, as an unkeyed hash lets an attacker arrange."""
    codes = PersonCodes.of
    with patch.object(PersonCodes, "of", lambda self, columns: codes(self, [columns[0] // 2])):
        return two_persons(which, trials)


def groups(retried: bool = False) -> View:
    def one(which: int, cells: int) -> np.ndarray:
        grouped = GroupedSketch(["A", "B"], lambda: Sketch.known(cells, epsilon=1))
        rows = np.repeat(np.arange(cells), which)
        if retried:  # a call that failed in group B had already counted A
            grouped.sketches["A"].update(rows)
        grouped.update(rows, ["A"] * rows.size)
        return np.column_stack([noisy.counts for noisy in grouped.release().values()])

    return repeated(one, CELLS)


def person_in_groups(limit: bool = True) -> View:
    """A person with ten rows in each of two groups and a limit of one: ε for each group."""

    def one(which: int, cells: int) -> np.ndarray:
        options = {"max_contributions": 1} if limit else {}
        grouped = GroupedSketch(["A", "B"], lambda: Sketch.known(cells, epsilon=1, **options))
        rows = np.repeat(np.arange(cells), 2 * ROWS * which)
        names = np.tile(["A", "B"], rows.size // 2)
        grouped.update(rows, names, person=rows if limit else None)
        return np.column_stack([noisy.counts for noisy in grouped.release().values()])

    return repeated(one, 1 << 14)


# ── several releases ──────────────────────────────────────────────────────────────────────────────────────────


def epochs(when: int, reuse: bool = False) -> View:
    """Two snapshots; the unit comes in the first or in the second epoch."""

    def one(which: int, cells: int) -> np.ndarray:
        sketch = Sketch.known(cells, epsilon=1)
        seen = []
        for epoch in (0, 1):
            if epoch == when and which:
                sketch.update(np.arange(cells))
            seen.append(counts(sketch).copy())
            if reuse:
                sketch._held = type(sketch._held)((seen[0].copy(),))
                sketch._state, sketch._fresh = "open", sketch.noise.power
            elif epoch == 0:
                sketch.begin_epoch()
        return np.column_stack([*seen, seen[1] - seen[0]])

    return repeated(one, CELLS)


def merges(copied: bool = False) -> View:
    """Two sealed sketches and their sum, all public; the unit is in the first. A copy would have the same noise."""

    def one(which: int, cells: int) -> np.ndarray:
        if copied:
            with testing.seeded(int(np.random.default_rng().integers(1 << 40))):
                noise = un.discrete_laplace(cells, 1)
            first, second = noise + which, noise
            return np.column_stack([first, second, first + second, first - second])
        pair = [Sketch.known(cells, epsilon=1) for _ in range(2)]
        pair[0].update(np.repeat(np.arange(cells), which))
        first, second = map(counts, pair)
        return np.column_stack([first, second, counts(pair[0] + pair[1]), first - second])

    return repeated(one, CELLS)


def shares(alone: bool = False) -> View:
    """Three parties with a third of the noise each; what leaves is their sum, or where that is broken one of them."""

    def one(which: int, cells: int) -> np.ndarray:
        parties = [Sketch.known(cells, epsilon=1, power=un.noise_shares(3)) for _ in range(3)]
        parties[0].update(np.repeat(np.arange(cells), which))
        if alone:
            parties[0]._fresh = Fraction(1)  # taken for a whole noise
            return counts(parties[0])
        return counts(sum(parties[1:], parties[0]))

    return repeated(one, 1 << 15)


def look_and_release(when: int, pan_private: bool = True) -> View:
    """An intruder looks at the state once, then the sketch is released; the unit comes before or after the look."""

    def one(which: int, cells: int) -> np.ndarray:
        sketch = Sketch.known(cells, epsilon=1, pan_private=pan_private)
        if when == 0:
            sketch.update(np.repeat(np.arange(cells), which))
        look = sketch._held.array().copy()
        if when == 1:
            sketch.update(np.repeat(np.arange(cells), which))
        released = counts(sketch)
        return np.column_stack([look, released, released - look])

    return repeated(one, CELLS)


# ── the direct model ──────────────────────────────────────────────────────────────────────────────────────────


# Answers are computed from the released curve alone, which is what is looked at here; they are left out to save hours.
unanswered = patch("unnoise.answers.direct.direct_profile", lambda curve: SimpleNamespace(curve=curve))


def seen(profile: Any) -> np.ndarray:
    """All that the direct model releases: boxes of columns and of rows."""
    return np.concatenate([profile.curve.numbers, profile.curve.ranks])


def direct(epsilon: Any = 1, times: int = 1) -> View:
    """An item that occurs ``times`` times, or once more, in each of many groups: every group has its own curve."""

    def one(which: int, size: int) -> np.ndarray:
        names = [f"g{i}" for i in range(size)]
        rows = np.repeat(names, times + which).tolist()
        with unanswered:
            found = un.direct(["x"] * len(rows), epsilon=epsilon, by=rows, groups=names, max_count=MOST)
        return np.array([seen(found[name]) for name in names])

    return repeated(one, 2000)


def direct_person(limit: bool = True) -> View:
    """A person with ten rows of one item in one group, of which two count."""

    def one(which: int, size: int) -> np.ndarray:
        names = [f"g{i}" for i in range(size)]
        rows = np.repeat(names, ROWS * which).tolist()
        options = {"person": rows, "max_contributions": 2} if limit else {}
        with unanswered:
            found = un.direct(
                ["x"] * len(rows), epsilon=1 if limit else "1/2", by=rows, groups=names, max_count=MOST, **options
            )
        return np.array([seen(found[name]) for name in names])

    return repeated(one, 2000)


def direct_items(epsilon: Any = 1) -> View:
    """The item is the person, with seven rows or none; one call for each trial."""

    def view(which: int, trials: int) -> np.ndarray:
        items = [1] * 3 + [2] * 7 * which
        with unanswered:
            return np.array([seen(un.direct(items, epsilon=epsilon, person=True, max_count=8)) for _ in range(trials)])

    return view


def direct_all_groups(divided: bool = True) -> View:
    """One row more in one of two groups, which shows in its own release and in that of all groups; one call each."""

    def view(which: int, trials: int) -> np.ndarray:
        items, by = ["x"] * (2 + which), ["a", "b", "a"][: 2 + which]
        found = np.empty((trials, 2 * (MOST + 2)), dtype=np.int64)
        with unanswered:
            for row in found:
                if divided:
                    both = un.direct(items, epsilon=1, by=by, groups=["a", "b"], all_groups="1/2", max_count=MOST)
                    parts = [both["a"], both["all groups"]]
                else:
                    parts = [un.direct(items[1:], epsilon=1, max_count=MOST),
                             un.direct(items, epsilon=1, max_count=MOST)]  # fmt: skip
                row[:] = np.concatenate([seen(part) for part in parts])
        return found

    return view


def profile(epsilon: Any = 1) -> View:
    """un.profile as it is called, once for each trial: what it released of columns and rows that an item may reach."""

    def view(which: int, trials: int) -> np.ndarray:
        with unanswered:
            found = [un.profile([1] * (ROWS + which), epsilon=epsilon).curve for _ in range(trials)]
        return np.array([[*curve.numbers[:MOST], *curve.ranks[:2]] for curve in found])

    return view


def profile_by_sketch(epsilon: Any = 1) -> View:
    """un.profile through a sketch of 64 cells, once for each trial: its three largest noisy counts, or a refusal."""

    def view(which: int, trials: int) -> np.ndarray:
        found = np.full((trials, 3), -1, dtype=np.int64)
        for row in found:
            with suppress(un.UnnoiseError):  # a refusal is something seen as well
                noisy = un.profile([1] * (50 + which), epsilon=epsilon, cells=64, method="isotonic").noisy
                row[:] = np.repeat(noisy.values, noisy.tally)[-3:]
        return found

    return view


LIBRARY: dict[str, Path] = {
    "known": Path(1, known(), {
        "half the noise": known(2), "noise on occupied cells only": occupied_only, "floating-point noise": floating,
    }),
    "known, ε = 0.1": Path(0.1, known("0.1"), {"half the noise": known("0.2")}, (1_000_000, 200_000)),
    "known, ε = 3": Path(3, known(3), {"half the noise": known(6)}),
    "hashed": Path(1, hashed(), {"half the noise": hashed(2)}),
    "hashed, whole": Path(1, whole(), {"half the noise": whole(2)}, (10_000, 0), each="sketch"),
    "levels": Path(1, hashed(levels=LEVELS), {"half the noise": hashed(2, LEVELS)}),
    "sampled": Path(1, sampled(), {"half the noise": sampled(2)}),
    "person": Path(1, person(), {"no limit": person(None)}, unit="person"),
    "person beside another": Path(1, two_persons, {"colliding ids": colliding}, unit="person"),
    "groups": Path(1, groups(), {"a retried batch": groups(retried=True)}),
    "groups, person in both": Path(2, person_in_groups(), {"no limit": person_in_groups(False)}, unit="person"),
    "epochs, unit in the first": Path(1, epochs(0), {"reused noise": epochs(1, reuse=True)}),
    "epochs, unit in the second": Path(1, epochs(1), {"reused noise": epochs(1, reuse=True)}),
    "merges": Path(1, merges(), {"reused noise": merges(copied=True)}),
    "shares of noise": Path(1, shares(), {"a share alone": shares(alone=True)}),
    "pan-private, unit before the look": Path(1, look_and_release(0), {"a live look": look_and_release(1, False)}),
    "pan-private, unit after the look": Path(1, look_and_release(1), {"a live look": look_and_release(1, False)}),
    "un.direct, a column": Path(1, direct(), {"half the noise": direct(2)}, (10_000, 0), each="group"),
    "un.direct, a row": Path(
        1, direct(times=ROWS), {"half the noise": direct(2, times=ROWS)}, (10_000, 0), each="group"
    ),
    "un.direct, persons": Path(
        1, direct_person(), {"no limit": direct_person(False)}, (10_000, 0), "person", "group"
    ),
    "un.direct, items as persons": Path(
        1, direct_items(), {"half the noise": direct_items(2)}, (4_000, 0), "person", "call"
    ),
    "un.direct, all groups": Path(
        1, direct_all_groups(), {"ε not divided": direct_all_groups(False)}, (4_000, 0), each="call"
    ),
    "un.profile, a row": Path(1, profile(), {"a quarter of the noise": profile(4)}, (1_000, 0), each="call"),
    "un.profile, by a sketch": Path(
        1, profile_by_sketch(), {"half the noise": profile_by_sketch(2)}, (3_000, 0), each="call"
    ),
}  # fmt: skip
"""Every path of the library, by name."""
