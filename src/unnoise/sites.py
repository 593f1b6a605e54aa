"""Many sites, one answer: sealed sketches, or their files, beside each other.

Each function takes sealed sketches, their files' paths, or released :class:`~unnoise.noisy.NoisyCounts`, of one hash
seed (or one domain); ε may differ. They are read one after the other, and a few bytes a cell are kept of each.

``max_count=1`` says that no site counts an item more than once (reach: who was there, not how often), which makes the
answers sharper; it must be true. Sketches of persons that count once know it themselves.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from .answers import sites as answers
from .answers.consistent import Key, SiteTable, Subsets, table_of
from .answers.estimate import Estimate
from .errors import InputError, SealedError, UnnoiseWarning
from .noisy import NoisyCounts
from .sketches.sketch import Sketch

__all__ = ["consistent_table", "overlap", "retention", "union", "unique_reach"]


def union(*sketches: Any, max_count: int | None = None) -> Estimate:
    """Return how many different items occur in any of the sketches.

    >>> a, b = Sketch.hashed(2**12, epsilon=2, item_types=["int"]), Sketch.hashed(2**12, epsilon=2, item_types=["int"])
    >>> a.update(range(1000)); b.update(range(500, 1500)); noisy = a.release(), b.release()
    >>> 1300 < union(a, b, max_count=1) < 1700
    True
    """
    return answers.union(_gathered(sketches, max_count))


def overlap(*sketches: Any, max_count: int | None = None) -> Estimate:
    """Return how many items occur in all of the sketches."""
    return answers.overlap(_gathered(sketches, max_count, add=False))


def unique_reach(sketch: Any, *others: Any, max_count: int | None = None) -> Estimate:
    """Return how many items of ``sketch`` are in none of the others."""
    return answers.unique_reach(_gathered((sketch, *others), max_count, add=False))


def retention(before: Any, after: Any, *, max_count: int | None = None) -> Estimate:
    """Return the share of the items of ``before`` that occur in ``after`` as well."""
    return answers.retention(_gathered((before, after), max_count, add=False))


def consistent_table(
    sketches: Mapping[Any, Any] | Iterable[Any], subsets: Subsets = None,
    periods: Sequence[str] | None = None, *, max_count: int | None = None,
) -> SiteTable:  # fmt: skip
    """Return reach, frequency by number of sites and occurrences of subsets and periods, without contradictions.

    Parameters
    ----------
    sketches : by site, or by (site, period); or sketches and files that say so by their labels
    subsets : subsets of the sites, "all" for every one of them; when not given each site and all together
    periods : the periods in their order; every subset is shown from the first of them up to each
    max_count : 1 where no sketch counts an item more than once

    Every union is at least each of its parts, cumulative reach never falls, reach is the sum of the items at exactly
    1, 2, … of the sketches, and these explain no more than the occurrences there are. Where the estimates clash with
    these rules the intervals widen.
    """
    keys, opened = _keyed(sketches)
    gathered = answers.Gathered.read(opened, once=_once(max_count), add=False)
    return table_of(gathered, keys, subsets, periods)


def _once(max_count: int | None) -> bool:
    if max_count not in (None, 1):
        raise InputError(f"max_count must be 1 (an item counts at most once a site) or None, got {max_count!r}")
    return max_count == 1


def _gathered(sketches: Sequence[Any], max_count: int | None, *, add: bool = True) -> answers.Gathered:
    named = ((_name_of(sketch, i), sketch) for i, sketch in enumerate(sketches, 1))
    return answers.Gathered.read(_opened(named), once=_once(max_count), add=add)


def _name_of(sketch: Any, number: int) -> str:
    if isinstance(sketch, str | os.PathLike):
        return os.fspath(sketch)
    site = sketch.labels.site if isinstance(sketch, Sketch) else ()
    return f"sketch {number}" + (f" ({', '.join(site)})" if site else "")


def _opened(named: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, NoisyCounts]]:
    """Yield what sketches released, by name, one after the other; refuse two that share a noise.

    All that is told of sketches beside each other rests on independent noises: a week and its Monday are not. Columns
    may well have another name elsewhere, so two names are no more than a warning.
    """
    owner: dict[bytes, str] = {}
    columns: dict[str, str] = {}
    for name, given in named:
        sketch = Sketch.load(given) if isinstance(given, str | os.PathLike) else given
        yield name, _released(sketch)
        if isinstance(sketch, Sketch) and sketch.labels.column:
            columns.setdefault(", ".join(sketch.labels.column), name)
        for identity in sketch._identities if isinstance(sketch, Sketch) else ():
            if identity in owner:
                raise InputError(
                    f"sketches beside each other must not share a noise, got {owner[identity]} and {name}: one is in "
                    f"the other, or a third in both"
                )
            owner[identity] = name
    if len(columns) > 1:
        where = "; ".join(f"{column} in {name}" for column, name in columns.items())
        said = f"columns have different names ({where}): items are compared by value"
        warnings.warn(said, UnnoiseWarning, stacklevel=5)


def _released(sketch: Any) -> NoisyCounts:
    if isinstance(sketch, NoisyCounts):
        return sketch
    if not isinstance(sketch, Sketch):
        fix = ": give them one by one, as in union(*sketches)" if isinstance(sketch, list | tuple) else ""
        raise InputError(f"sketches must be sealed sketches, files or noisy counts, got {type(sketch).__name__}{fix}")
    if not sketch.sealed:
        raise SealedError("sketches beside each other must be sealed, got an open one: release or save it first")
    return sketch.release()


def _keyed(sketches: Mapping[Any, Any] | Iterable[Any]) -> tuple[list[Key], Iterator[tuple[str, NoisyCounts]]]:
    """Return site and period of every sketch, and the sketches by name."""
    if isinstance(sketches, Mapping):
        keys = [key if isinstance(key, tuple) else (key, "") for key in sketches]
        if not all(len(key) == 2 and all(isinstance(part, str) for part in key) for key in keys):
            raise InputError("sketches must be by site or by (site, period), each a text")
        values = list(sketches.values())
    else:
        values = [Sketch.load(s) if isinstance(s, str | os.PathLike) else s for s in sketches]
        keys = [_labelled(sketch, i) for i, sketch in enumerate(values, 1)]
    if len(set(keys)) < len(keys):
        twice = next(key for key in keys if keys.count(key) > 1)
        raise InputError(f"sketches must each have a site and period of its own, got {twice} twice")
    named = ((" ".join(part for part in key if part), value) for key, value in zip(keys, values))
    return keys, _opened(named)


def _labelled(sketch: Any, number: int) -> tuple[str, str]:
    if not isinstance(sketch, Sketch) or len(sketch.labels.site) != 1 or len(sketch.labels.period) > 1:
        raise InputError(f"sketch {number} must say its site (and one period) by its labels; or give a mapping")
    return sketch.labels.site[0], sketch.labels.period[0] if sketch.labels.period else ""
