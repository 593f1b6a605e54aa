"""The search among smooth models: which strengths λ, heads and free steps are worth a fit.

All models within reach of the best by evidence are wanted, and no others. Evidence as a function of log λ mostly rises
to one peak and falls, so each walk is climbed both ways from a strength at which it spreads over the body by ± 3, until
it is ``HOPELESS`` nats behind, has fallen twice or no longer changes. Every fit starts from its neighbour's mode,
every family from the best mode so far and the head that served it. A family that stays more than twice ``HOPELESS``
behind tries another head by one fit only, and sets no steps free. Others set free the steps that stand out, if the
evidence could gain by it at all: it never exceeds the likelihood of the maximum-likelihood profile, and naming the
steps has its cost.

The weight in advance is shared out among all strengths of every walk that was tried, whether fitted or not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import gammaln

from ..arrays import Floats
from ._smooth_mode import find_mode
from ._smooth_models import FAMILIES, HEADS, NEGLIGIBLE, STRENGTHS, Data, Model, Search
from ._smooth_walk import JUMP, Walk

__all__ = ["smooth_models"]


HOPELESS = 8.0
"""Nats behind the best at which a search turns back."""

LEVEL = 0.25
"""Nats from the best within which λ no longer matters, as where every step that counts is free: one rung tells all."""


@dataclass(frozen=True, eq=False)
class _Best:
    theta: Floats
    score: float
    rung: int
    head: int = 0


def smooth_models(data: Data, families: Iterable[tuple[str, int]] = FAMILIES) -> Search:
    """Fit the smooth models worth it; those that did not converge are counted and left out."""
    search = Search()
    best: _Best | None = None
    freest = -np.inf
    for coordinate, order in families:
        if data.counts.size <= order:
            continue
        family = _Family(data, search, coordinate, order)
        found = family.explore(best)
        if found is None:
            continue
        if best is None or found.score > best.score - 2 * HOPELESS:
            freest = max(freest, family.set_free(found, freest).score)
        if best is None or found.score > best.score:
            best = found
    search.share_out()
    return search


class _Family:
    """The models of one family: a walk, the ladder of its strengths and the rung to begin at."""

    def __init__(self, data: Data, search: Search, coordinate: str, order: int) -> None:
        self.data, self.search = data, search
        self.name = f"{coordinate} order {order}"
        self.strengths = STRENGTHS[coordinate]
        x = data.counts.astype(float) if coordinate == "t" else np.log1p(data.counts)
        rise = np.asarray(1 + data.epsilon * data.counts, dtype=float) ** 2 if coordinate == "rising" else 1.0
        self.walk = Walk(x, data.position, order, rise)
        # an integrated walk of precision λ spreads by X³/3λ (order 2) or X⁵/20λ over a length X
        first = np.flatnonzero(data.position == 0)
        length = float((x[np.append(first[1:], x.size) - 1] - x[first]).max())
        usual = length ** (2 * order - 1) / (3 if order == 2 else 20) / JUMP**2 / float(np.median(rise))
        self.first = int(np.abs(np.log(self.strengths / max(usual, 1e-9))).argmin())

    def explore(self, other: _Best | None) -> _Best | None:
        """Climb with one head after another, beginning with that of ``other``, the best of the families before."""
        heads = (0, *HEADS) if self.data.counts[0] == 0 else (0,)
        at = heads.index(other.head) if other is not None else 0
        start = other.theta if other is not None else self.data.start
        most = other.score if other is not None else -np.inf
        best = self.climb(heads[at], self.first, start)
        if best is None:
            return None
        for turn in (heads[at + 1 :], heads[:at][::-1]):
            fallen = 0
            for head in turn:
                if head < heads[at] and best.score < most - 2 * HOPELESS:
                    break
                # fewer free steps may want a looser walk, more of them only a stiffer one
                known = best.score if head > best.head else -np.inf
                probe = best.score < most - 2 * HOPELESS
                found = self.climb(head, best.rung, best.theta, known, probe)
                if found is None:
                    break
                gain = found.score - best.score
                if gain > 0:
                    best = found
                fallen = 0 if gain > 0 else fallen + 1
                needed = HOPELESS / 4 if probe else -HOPELESS / 2 if fallen > 1 else -HOPELESS
                if gain < needed:
                    break
        return best

    def climb(self, head: int, first: int, start: Floats, known: float = -np.inf, probe: bool = False) -> _Best | None:
        """Fit along the strengths with a free head."""
        walk = self.walk.freed(np.arange(self.walk.order, min(self.walk.order + head, self.walk.size)))
        name = f"{self.name}, head {head}" if head else self.name
        self.search.prior += self.strengths.size * math.exp(head)
        best = _climb(self.data, walk, self.strengths, first, start, self.search, name, float(head), known, probe)
        return None if best is None else replace(best, head=head)

    def set_free(self, best: _Best, freest: float, rounds: int = 4) -> _Best:
        """Free the steps that stand out by more than four robust deviations, while the evidence grows."""
        data, head = self.data, best.head
        walk = self.walk.freed(np.arange(self.walk.order, min(self.walk.order + head, self.walk.size)))
        strength = self.strengths[best.rung]
        n = int(walk.steps.sum())
        for _ in range(rounds):
            bound_steps = walk.steps & ~walk.free
            if not bound_steps.any():
                return best
            size = np.abs(walk.differences(best.theta))
            usual = 1.4826 * float(np.median(size[bound_steps])) + 1e-12
            loose = walk.free | (walk.steps & (size > 4 * usual))
            q = int(loose.sum())
            if q == walk.free.sum() or q > 0.4 * n:
                return best
            cost = float(gammaln(n + 1) - gammaln(q + 1) - gammaln(n - q + 1)) + math.log(n)
            if data.ceiling - cost < max(best.score, freest - NEGLIGIBLE):
                return best
            walk = walk.freed(np.flatnonzero(loose))
            decades = max(2, min(12, round(math.log10(max(usual**-2 / strength, 1.0))) + 2))
            strengths: Floats = strength * 10.0 ** np.arange(decades)
            name = f"{self.name}, {q} steps free"
            freer = _climb(data, walk, strengths, 0, best.theta, self.search, name, -cost, patience=1)
            if freer is None or freer.score <= best.score:
                return best
            best, strength = replace(freer, head=head), strengths[freer.rung]
        return best


def _climb(
    data: Data,
    walk: Walk,
    strengths: Floats,
    first: int,
    start: Floats,
    search: Search,
    name: str,
    log_weight: float,
    known: float = -np.inf,
    probe: bool = False,
    patience: int = 2,
) -> _Best | None:
    """Fit at rising strengths from ``first`` on, each from the last, then at falling ones from there.

    Either way ends once the evidence has fallen ``patience`` times, or HOPELESS nats behind the best (downwards also
    behind ``known``). A ``probe`` goes on from the first fit only if that surpasses what is known.
    """
    best: _Best | None = None
    origin, origin_score = start, np.inf
    for rungs in (range(first, len(strengths)), range(first - 1, -1, -1)):
        theta, fallen = origin, 0
        for rung in rungs:
            behind = -np.inf if best is None else best.score - HOPELESS
            if rung < first:
                behind = max(behind, known - HOPELESS)
            if rung == first - 1 and origin_score < behind + HOPELESS / 2:
                break
            mode = find_mode(
                data.channel,
                data.y,
                data.cells,
                walk,
                walk.precision(strengths[rung]),
                theta,
                wanted=behind - log_weight,
            )
            search.fits += 1
            search.iterations += mode.iterations
            if mode.hopeless:
                break
            theta = mode.theta
            if not mode.converged:
                search.not_converged += 1
                continue
            f = np.exp(mode.theta)
            model = Model(f"{name}, λ={strengths[rung]:.0e}", f / f.sum(), mode.log_evidence, log_weight)
            search.models.append(model)
            if rung == first:
                origin, origin_score = theta, model.score
                if probe and model.score < known + HOPELESS / 4:
                    return _Best(theta, model.score, rung)
            rise = np.inf if best is None else model.score - best.score
            if best is None or rise > 0:
                best = _Best(mode.theta, model.score, rung)
            fallen = 0 if rise > 0 else fallen + 1
            if abs(rise) < LEVEL:
                return best
            if fallen >= patience or rise < -HOPELESS:
                break
    return best
