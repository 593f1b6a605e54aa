"""The search among smooth models.

**The rule.** With no free head, then with each of the heads, every walk is fitted from its stiffest strength to looser
ones, each fit from the last mode, until it is ``PAST`` nats past its peak; a family ``BEHIND`` nats behind the best
with the same head tries no further heads. Last, periods are tried if the best model shows any
(:mod:`._smooth_periods`), and the steps that stand out are set free in the best model of each family.

A fit that can no longer come within ``BEHIND`` nats of the best is not carried to its end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from ..arrays import Floats
from ._mode import MATTERS, find_mode
from ._smooth_models import BEHIND, FAMILIES, HEADS, Data, Family, Model, Search
from ._smooth_periods import PERIODS, likely_periods
from ._smooth_walk import Walk

__all__ = ["smooth_models"]

PAST = 8.0
"""Nats past its peak at which the ladder of a walk ends: e⁻⁸ is a weight of 1/3000."""

PATIENCE = 20
"""Newton systems to a fit; where that is too few, the next looser walk goes on from there."""

ROUNDS = 4
"""How often steps that stand out are looked for."""


@dataclass(frozen=True, eq=False)
class _Fitted:
    """A fitted model with what it takes to go on from it."""

    model: Model
    theta: Floats
    walk: Walk
    strength: float

    @property
    def score(self) -> float:
        return self.model.score


def smooth_models(data: Data, families: Iterable[Family] = FAMILIES) -> Search:
    """Fit the smooth models worth it; those that did not converge are counted and left out."""
    search = Search()
    leaders: dict[Family, _Fitted] = {}
    alive = [family for family in families if family.suits(data)]
    share = 1 / max(len(alive), 1)
    for head in HEADS:
        found = {family: _explored(data, search, family, head, share, leaders) for family in alive}
        most = max((fitted.score for fitted in found.values() if fitted is not None), default=-np.inf)
        alive = [f for f in alive if head not in f.heads(data) or _within(found[f], most)]
    best = max(leaders.values(), key=lambda leader: leader.score, default=None)
    for period in likely_periods(data, best.model.masses) if best is not None else []:
        _explored(data, search, Family("t", 2, period=period), 0, share / len(PERIODS), leaders)
    for leader in sorted(leaders.values(), key=lambda leader: -leader.score):
        best = _set_free(data, search, leader, best or leader)
    return search


def _within(fitted: _Fitted | None, most: float) -> bool:
    return fitted is not None and fitted.score > most - BEHIND


def _explored(
    data: Data, search: Search, family: Family, head: int, share: float, leaders: dict[Family, _Fitted]
) -> _Fitted | None:
    """Fit a family with one head, beginning at the best mode so far; return the best and keep it if it leads."""
    heads = family.heads(data)
    if head not in heads:
        return None
    walk = family.walk(data)
    strengths = family.strengths(data, walk)
    log_weight = math.log(share / len(heads) / len(strengths))
    best = max(leaders.values(), key=lambda leader: leader.score, default=None)
    found = _ladder(data, search, family.name(head), walk.headed(head), strengths, log_weight, best)
    if found is not None:
        leaders[family] = _better(leaders.get(family), found)
    return found


def _better(one: _Fitted | None, other: _Fitted) -> _Fitted:
    return other if one is None or other.score > one.score else one


def _ladder(
    data: Data, search: Search, name: str, walk: Walk, strengths: Floats, log_weight: float, best: _Fitted | None
) -> _Fitted | None:
    """Fit at each strength from the last mode on, until PAST nats past the peak; return the peak."""
    theta = data.start if best is None else np.maximum(best.theta, MATTERS)
    most = -np.inf if best is None else best.score
    peak: _Fitted | None = None
    for strength in strengths:
        wanted = max(most - BEHIND, -np.inf if peak is None else peak.score - PAST) - log_weight
        precision = walk.precision(float(strength))
        mode = find_mode(data.channel, walk, precision, theta, wanted=wanted, max_iterations=PATIENCE)
        search.fits += 1
        search.iterations += mode.iterations
        if mode.hopeless and peak is None:
            continue
        if mode.hopeless:
            break
        theta = mode.theta
        if not mode.converged:
            search.not_converged += 1
            continue
        f = np.exp(theta)
        model = Model(f"{name}, λ={strength:.0e}", f / f.sum(), mode.log_evidence, log_weight)
        search.models.append(model)
        peak = _better(peak, _Fitted(model, theta, walk, float(strength)))
        most = max(most, peak.score)
        if model.score < peak.score - PAST:
            break
    return peak


def _set_free(data: Data, search: Search, found: _Fitted, best: _Fitted) -> _Fitted:
    """Free the steps that stand out by more than four robust deviations, while the evidence grows; return the best.

    None are freed where the evidence could not reach the best by it: it never exceeds the likelihood of the
    maximum-likelihood profile, and naming the steps has its cost.
    """
    share = found.model.log_weight
    for _ in range(ROUNDS):
        walk = found.walk
        bound = walk.steps & ~walk.free
        if not bound.any():
            break
        size = np.abs(walk.differences(found.theta))
        usual = 1.4826 * float(np.median(size[bound])) + 1e-12
        loose = walk.free | (walk.steps & (size > 4 * usual))
        n, q = int(walk.steps.sum()), int(loose.sum())
        cost = float(gammaln(n + 1) - gammaln(q + 1) - gammaln(n - q + 1)) + math.log(n)
        if q == walk.free.sum() or q > 0.4 * n or data.ceiling - cost + share < best.score:
            break
        decades = max(2, min(12, round(math.log10(max(usual**-2 / found.strength, 1.0))) + 2))
        strengths = np.asarray(found.strength * 10.0 ** np.arange(decades))
        name = f"{found.model.name.split(',')[0]}, {q} steps free"
        freer = _ladder(data, search, name, walk.freed(np.flatnonzero(loose)), strengths, share - cost, found)
        if freer is None or freer.score <= found.score:
            break
        found, best = freer, _better(best, freer)
    return best
