"""Tables over subsets and periods that contradict neither themselves nor arithmetic.

For every row (a set R of sketches) there are estimates of x = (N_t: items at exactly t of the sketches of R), and for
every sketch its occurrences; y with covariance C. Reach of R is Σ_t N_t by definition. The table is the x nearest to
the estimates, (x − y)ᵀC⁻¹(x − y), under the rules

    N_t ≥ 0          a union is at least each part: Σ N(R) ≤ Σ N(R') for R ⊂ R', so cumulative reach never falls
    occurrences(R) ≥ Σ_t t·N_t(R)          Σ_t t·N_t(R) = Σ_{j∈R} reach(j), where each j has a row

Equalities are eliminated first (y and C conditioned on them); with C = L·Lᵀ and x = y + L·u the rest is the least
distance min |u|, G·(y + L·u) ≥ 0, solved by non-negative least squares [1]_ (``scipy.optimize.nnls``).

**C.** What all rows share is what the cells did to them: the covariance of influences. What a row owes to its prior,
posterior covariance less that, is its own.

**Intervals widen where rules and data clash**: the variance of an answer is that of the estimate plus the square of
what the rules moved it by, never the (smaller, perhaps zero) variance on the face of the rules. What three standard
errors leave no doubt of in a part bounds the whole, and the other way round; then the ends are made as consistent as
the values, by widening only.

.. [1] C. Lawson, R. Hanson, "Solving Least Squares Problems", 1974, chapter 23 (problem LDP).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np

from ..arrays import Floats
from ..errors import ConvergenceError, InputError
from ..estimators.side_by_side import Together, covariance, side_by_side
from .estimate import Columnar, Estimate, number
from .modelled import left_open
from .questions import mark, tidied, told
from .sites import SURE, Gathered, as_estimate, beside, occurrences_of, reach_of

__all__ = ["Rules", "SiteRow", "SiteTable", "project", "table_of"]

MOST_SITES = 8
"""Sites up to which "all" subsets are made."""

ROUNDING = 1e-9
"""Rules hold to this share of the largest number."""

REFINED = 8
"""Most projections of one table: where estimates are far out, the first loses digits and the next finds them."""

SUREST = 0.5
"""Least standard error of one sketch's reach, as a share of what its empty cells alone would give."""

Key = tuple[str, str]
Subsets = str | Iterable[Iterable[str]] | None


@dataclass(frozen=True, eq=False)
class SiteRow:
    """One row: which sites, up to which period, and the answers.

    exactly : items at exactly 1, 2, … of the sketches of the row
    """

    sites: tuple[str, ...]
    periods: tuple[str, ...]
    reach: Estimate
    exactly: tuple[Estimate, ...]
    occurrences: Estimate

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain Python."""
        return {
            "sites": list(self.sites), "periods": list(self.periods), "reach": told(self.reach),
            "exactly": [told(e) for e in self.exactly], "occurrences": told(self.occurrences),
        }  # fmt: skip


@dataclass(frozen=True, eq=False)
class SiteTable(Columnar):
    """Rows that keep the rules; prints as a table."""

    rows: tuple[SiteRow, ...]

    def __getitem__(self, sites: str | Iterable[str]) -> SiteRow:
        """Return the last row (all periods) of a subset."""
        wanted = {sites} if isinstance(sites, str) else set(sites)
        found = [row for row in self.rows if set(row.sites) == wanted]
        if not found:
            raise InputError(f"sites must be a subset of the table, got {sorted(wanted)}")
        return found[-1]

    def __iter__(self) -> Iterator[SiteRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def to_dict(self) -> list[dict[str, Any]]:
        """Return all rows as plain Python."""
        return [row.to_dict() for row in self.rows]

    def to_json(self, *, indent: int | None = None) -> str:
        """Return :meth:`to_dict` as JSON."""
        return json.dumps(self.to_dict(), indent=indent, ensure_ascii=False)

    def columns(self) -> dict[str, list[Any]]:
        """Return sites, periods and the answers as columns of equal length."""
        found: dict[str, list[Any]] = {
            "sites": [" + ".join(row.sites) for row in self.rows],
            "periods": [_span(row.periods) for row in self.rows],
        }
        for name in ("reach", "occurrences"):
            answers = [getattr(row, name) for row in self.rows]
            found |= {name: [tidied(e.value) for e in answers], f"{name}_low": [tidied(e.low) for e in answers],
                      f"{name}_high": [tidied(e.high) for e in answers]}
        return {**found, "note": [mark(row.reach) for row in self.rows]}

    def __str__(self) -> str:
        lines = [("sites", "periods", "reach", "95 % interval", "occurrences", "remark")]
        for row in self.rows:
            span = f"{number(round(row.reach.low))} to {number(round(row.reach.high))}"
            lines.append((" + ".join(row.sites), _span(row.periods), number(round(row.reach.value)), span,
                          number(round(row.occurrences.value)), mark(row.reach)))
        kept = [i for i in range(6) if i not in (1, 5) or any(line[i] for line in lines[1:])]
        widths = [max(len(line[i]) for line in lines) for i in kept]
        left = (0, 1, 5)
        return "\n".join(
            "  ".join(line[i].ljust(w) if i in left else line[i].rjust(w) for i, w in zip(kept, widths)).rstrip()
            for line in lines
        )

    __repr__ = __str__


def _span(periods: tuple[str, ...]) -> str:
    return periods[0] if len(periods) == 1 else f"{periods[0]} … {periods[-1]}" if periods else ""


@dataclass(frozen=True, eq=False)
class Rules:
    """Linear rules on x: ``equal @ x = 0`` and ``least @ x ≥ 0``."""

    equal: Floats
    least: Floats

    def broken(self, x: Floats) -> float:
        """Return by how much the worst rule is broken, as a share of the largest number."""
        scale = max(1.0, float(np.abs(x).max(initial=0.0)))
        off = np.abs(self.equal @ x).max(initial=0.0), (-(self.least @ x)).max(initial=0.0)
        return float(max(*off, 0.0)) / scale


def rules_for(sets: Sequence[Sequence[int]], sketches: int) -> Rules:
    """Return the rules of rows (each a set of sketches); x is N_t row by row, then occurrences by sketch."""
    starts = np.concatenate([[0], np.cumsum([len(row) for row in sets])]).astype(int)
    size = int(starts[-1]) + sketches
    rows = [frozenset(row) for row in sets]
    single = {next(iter(row)): i for i, row in enumerate(rows) if len(row) == 1}

    def reach(i: int) -> Floats:
        line = np.zeros(size)
        line[starts[i] : starts[i + 1]] = 1
        return line

    equal, least = [], [*np.eye(size)]
    for i, row in enumerate(rows):
        weight = np.zeros(size)
        weight[starts[i] : starts[i + 1]] = np.arange(1, len(row) + 1)
        occurrences = np.zeros(size)
        occurrences[[int(starts[-1]) + j for j in row]] = 1
        least.append(occurrences - weight)
        if len(row) > 1 and all(j in single for j in row):
            equal.append(weight - sum(reach(single[j]) for j in row))
        larger = [j for j, other in enumerate(rows) if row < other]
        nearest = [j for j in larger if not any(row < rows[n] < rows[j] for n in larger)]
        least += [reach(j) - reach(i) for j in nearest]
    return Rules(np.array(equal).reshape(-1, size), np.array(least))


def project(y: Floats, cov: Floats, rules: Rules) -> Floats:
    """Return the x nearest to y that keeps the rules.

    >>> both = Rules(np.zeros((0, 2)), np.array([[-1.0, 1.0], [1.0, 0.0]]))      # 0 ≤ first ≤ second
    >>> project(np.array([12.0, 10.0]), np.eye(2), both).round(6).tolist()
    [11.0, 11.0]
    """
    centre, root = y, _root(cov)
    if rules.equal.size:
        across = rules.equal @ root
        gain = root @ np.linalg.pinv(across, rcond=1e-10)
        centre = y - gain @ (rules.equal @ y)
        root = root - gain @ across
    for _ in range(REFINED):
        centre = np.asarray(centre + root @ _least_distance(rules.least @ root, rules.least @ centre))
        if rules.broken(centre) <= ROUNDING:
            return centre
    raise ConvergenceError(f"a consistent table must keep its rules, and breaks one by {rules.broken(centre):.1e}")


def _root(cov: Floats) -> Floats:
    """Return L with L·Lᵀ = C, whose directions are all a little open."""
    sd = np.sqrt(np.maximum(np.diag(cov), 1e-12))
    values, vectors = np.linalg.eigh(cov / np.outer(sd, sd))
    return np.asarray(sd[:, None] * vectors * np.sqrt(np.maximum(values, 1e-6)))


def _least_distance(slope: Floats, at: Floats) -> Floats:
    """Return the shortest u with slope·u + at ≥ 0."""
    from scipy.optimize import nnls

    if (at >= 0).all():
        return np.zeros(slope.shape[1])
    scale = np.maximum(np.linalg.norm(slope, axis=1), 1e-300)
    slope, at = slope / scale[:, None], at / scale
    size = max(1.0, float(np.abs(at).max()))
    matrix = np.vstack([slope.T, -at / size])
    dual, _ = nnls(matrix, np.append(np.zeros(slope.shape[1]), 1.0), maxiter=30 * max(slope.shape))
    residual = matrix @ dual
    residual[-1] -= 1
    if residual[-1] > -1e-14:
        raise ConvergenceError("the rules of the table must leave room for some answer, and seem not to")
    return np.asarray(-size * residual[:-1] / residual[-1])


def table_of(
    gathered: Gathered, keys: Sequence[Key], subsets: Subsets = None, periods: Sequence[str] | None = None
) -> SiteTable:
    """Estimate every row, make the rows consistent, and say how sure they are."""
    order = list(dict.fromkeys(period for _, period in keys)) if periods is None else list(periods)
    unknown = set(order) - {period for _, period in keys}
    if unknown:
        raise InputError(f"periods must be those of the sketches, got {sorted(unknown)}")
    names = list(dict.fromkeys(site for site, _ in keys))
    asked = [(group, tuple(order[: p + 1])) for group in _subsets(names, subsets) for p in range(len(order))]
    sets = [[i for i, (s, p) in enumerate(keys) if s in group and p in until] for group, until in asked]
    asked, sets = [a for a, row in zip(asked, sets) if row], [row for row in sets if row]
    extra = sorted({j for row in sets for j in row} - {row[0] for row in sets if len(row) == 1})
    solved = _solve(gathered, [*sets, *([j] for j in extra)])
    return SiteTable(tuple(solved.row(i, *asked[i], sets[i]) for i in range(len(sets))))


def _subsets(names: list[str], subsets: Subsets) -> list[tuple[str, ...]]:
    if subsets == "all":
        if len(names) > MOST_SITES:
            raise InputError(f"subsets must be listed for more than {MOST_SITES} sites, got 'all' of {len(names)}")
        return [group for size in range(1, len(names) + 1) for group in combinations(names, size)]
    if subsets is None:
        singles: list[tuple[str, ...]] = [(name,) for name in names]
        return singles if len(names) == 1 else [*singles, tuple(names)]
    if isinstance(subsets, str):
        raise InputError(f"subsets must be 'all' or lists of sites, got {subsets!r}")
    found: list[tuple[str, ...]] = []
    for group in subsets:
        wanted = (group,) if isinstance(group, str) else tuple(group)
        missing = [name for name in wanted if name not in names]
        if missing or not wanted:
            raise InputError(f"subsets must be of the sites {', '.join(names)}, got {wanted}")
        found.append(tuple(name for name in names if name in wanted))
    return list(dict.fromkeys(found))


@dataclass(frozen=True, eq=False)
class _Solved:
    """Consistent numbers with what they were before: an answer is a linear function of x.

    own : the reach of every row by itself; where that says next to nothing, or is a model's, so is the row's
    """

    sets: list[list[int]]
    x: Floats
    y: Floats
    cov: Floats
    own: list[Estimate]

    def _part(self, i: int) -> slice:
        start = sum(len(row) for row in self.sets[:i])
        return slice(start, start + len(self.sets[i]))

    def _answer(self, entries: Sequence[int]) -> tuple[float, float]:
        """Return a sum of entries, and its standard error with what the rules moved it by."""
        at = list(entries)
        moved = float((self.x - self.y)[at].sum())
        return float(self.x[at].sum()), float(np.sqrt(max(self.cov[np.ix_(at, at)].sum(), 0.0) + moved**2))

    @cached_property
    def _reach(self) -> list[Estimate]:
        """Reach of every row; of a part neither end lies above that of the whole.

        What is next to certain of a part bounds the whole, and the other way round; then ends only move outwards.
        """
        rows = [frozenset(row) for row in self.sets]
        plain = [as_estimate(*self._answer(range(*self._part(i).indices(self.x.size)))) for i in range(len(rows))]
        floors = [max(e.value - SURE * e.stderr for o, e in zip(rows, plain) if o <= row) for row in rows]
        ceilings = [min(e.value + SURE * e.stderr for o, e in zip(rows, plain) if row <= o) for row in rows]
        lows = [max(e.low, floor) for e, floor in zip(plain, floors)]
        highs = [min(e.high, ceiling) for e, ceiling in zip(plain, ceilings)]
        found = []
        for row, estimate, own in zip(rows, plain, self.own):
            low = min(low for other, low in zip(rows, lows) if row <= other)
            high = max(high for other, high in zip(rows, highs) if other <= row)
            marked = left_open(low, high) or own.marked
            found.append(estimate.replace(low=low, high=high, marked=marked, data_share=own.data_share))
        return found

    def row(self, i: int, sites: tuple[str, ...], periods: tuple[str, ...], held: list[int]) -> SiteRow:
        """Return a row of the table."""
        part, base = self._part(i), sum(len(row) for row in self.sets)
        reach = self._reach[i]
        exactly = tuple(
            as_estimate(*self._answer([n]), most=reach.high, data_share=reach.data_share, marked=reach.marked)
            for n in range(part.start, part.stop)
        )
        occurrences = as_estimate(*self._answer([base + j for j in held]))
        return SiteRow(sites, tuple(p for p in periods if p), reach, exactly, occurrences)


def _solve(gathered: Gathered, sets: list[list[int]]) -> _Solved:
    """Estimate the rows and the occurrences of all sketches, and make them consistent."""
    y, shared, owed, own = [], [], [], []
    for row in sets:
        found = side_by_side([gathered.coded[i] for i in row])
        items, cov, reach = found.items, found.covariance, beside(found)
        if len(row) == 1:
            reach = reach_of(gathered.only(row), found)
            items, cov = np.array([reach.value]), np.array([[max(reach.stderr, SUREST * found.stderr, 1.0) ** 2]])
        own.append(reach)
        y.append(items)
        shared.append(_no_wider(found, cov))
        owed.append(cov - covariance(shared[-1], shared[-1]))
    spent = [occurrences_of(coded) for coded in gathered.coded]
    y.append(np.array([value for value, _ in spent]))
    owed.append(np.diag([variance for _, variance in spent]))
    cov, all_y = _joined(shared, owed), np.concatenate(y)
    return _Solved(sets, project(all_y, cov, rules_for(sets, len(spent))), all_y, cov, own)


def _no_wider(found: Together, cov: Floats) -> Floats:
    """Return the influences, shrunk where they would make an answer less sure than it says it is."""
    influences = found.influences
    sampled = np.diag(covariance(influences, influences))
    factor = np.sqrt(np.minimum(1.0, np.diag(cov) / np.maximum(sampled, 1e-300)))
    return np.asarray(factor[:, None] * influences)


def _joined(shared: list[Floats], owed: list[Floats]) -> Floats:
    """Return the covariance of everything: the shared part, and every row's own, made non-negative."""
    from scipy.linalg import block_diag

    together = np.concatenate(shared)
    own = []
    for matrix in owed:
        values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
        own.append((vectors * np.maximum(values, 1e-9 * max(1.0, float(values[-1])))) @ vectors.T)
    whole = np.asarray(block_diag(*own))
    whole[: together.shape[0], : together.shape[0]] += covariance(together, together)
    return whole
