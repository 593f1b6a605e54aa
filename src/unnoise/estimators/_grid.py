"""Which counts may have mass, and through which noisy counts they are seen.

**Power 1.** Fold the noisy counts into [0, n] (n the declared bound, if any). A maximum-likelihood profile has mass
on occupied folded values only: for t between neighbouring occupied values v and v', at distance s from v and L − s
from v', the column (a^|t−u|)_u is λ·column(v) + μ·column(v') with λ + μ = (a^s + a^(L−s))/(1 + a^L) ≤ 1, so moving
the mass of t to v and v' in the proportions λ : μ raises every m[u]. Beyond the last value a^(t−v)·column(v) is
smaller still. The same holds, with strictness, for the ℓ1 fit.

**Power ρ > 1.** p is unimodal, so mass beyond the first or last value of a group is dominated by mass at it. Inside a
group the optimum may lie between occupied values: all counts of the group are points. Groups further apart than the
noise reaches (tail 1e-18) do not interact, which is what keeps a few cells near 10¹² cheap. Noisy counts so far below
0 (or above the bound) that the square of their law underflows (1e-100) are moved to where it
does not.
"""

from __future__ import annotations

import numpy as np

from ..arrays import Floats, Int64
from ..errors import InputError
from ..noise import DiscreteLaplace
from ..noisy import NoisyProfile
from ._comb import Stretch

__all__ = ["NEGLIGIBLE", "POINTS_LIMIT", "clip_rows", "fold", "stretches_of"]


POINTS_LIMIT = 20_000_000
"""Most entries of the buffer that holds all stretches, with the noise's reach between them."""

NEGLIGIBLE = 1e-18
"""What is less likely than this is below rounding."""

IMPOSSIBLE = 1e-100
"""A noisy count less likely than this under every allowed profile is moved to where it is as likely."""


def fold(noisy: NoisyProfile, bound: int | None) -> tuple[Int64, Floats]:
    """Values folded into [0, bound] and their shares of the cells."""
    values, tally = noisy.folded()
    if bound is None or values[-1] <= bound:
        return values, tally / noisy.cells
    kept = int(np.searchsorted(values, bound))
    folded = np.append(values[:kept], bound)
    return folded, np.append(tally[:kept], tally[kept:].sum()) / noisy.cells


def stretches_of(
    rows: Int64, anchors: Int64, noise: DiscreteLaplace, bound: int | None, *, margin: int = 0, halo: int = 0
) -> list[Stretch]:
    """Group the anchors (counts, ascending) wherever the noise cannot reach across, and give each group its rows.

    ``margin`` widens every group on both sides, within [0, bound]; groups are kept 2·``halo`` apart at least, for
    callers that look at all rows up to that far from a group.
    """
    reach = max(noise.reach(NEGLIGIBLE), 2 * halo)
    top = np.iinfo(np.int64).max if bound is None else bound
    cuts = np.flatnonzero(np.diff(anchors) > reach + 2 * margin) + 1
    lows = np.maximum(anchors[np.r_[0, cuts]] - margin, 0)
    highs = np.minimum(anchors[np.r_[cuts, anchors.size] - 1] + margin, top)
    _refuse(int((highs - lows + 1).sum()) + reach * lows.size, noise)
    # a row belongs to the nearest group
    middle = highs[:-1] + (lows[1:] - highs[:-1]) // 2
    owner = np.searchsorted(middle, rows, side="left")
    ends = np.searchsorted(owner, np.arange(lows.size + 1))
    return [
        Stretch(int(low), int(high), rows[start:stop])
        for low, high, start, stop in zip(lows, highs, ends[:-1], ends[1:])
    ]


def clip_rows(rows: Int64, noise: DiscreteLaplace, bound: int | None) -> Int64:
    """Move rows that the noise cannot reach from [0, bound] to where the law is still a positive float."""
    reach = noise.reach(IMPOSSIBLE)
    return np.clip(rows, -reach, None if bound is None else bound + reach)


def _refuse(points: int, noise: DiscreteLaplace) -> None:
    if points > POINTS_LIMIT:
        raise InputError(
            f"counts within reach of the noise must number at most {POINTS_LIMIT:,} for this method at "
            f"{noise}, got {points:,}: use method='isotonic'"
        )
