"""Between which diagrams the truth lies: limits of S(t) from noisy columns and rows, without any assumption.

With q the smallest whole number that a noise exceeds with probability ≤ tail, and the letters of :mod:`unnoise.curve`:

* a column says S(t) ≤ above + (y + q)⁺, and S(t) ≥ above + y − q where y > q (else it may hold no box);
* a row says h_i ≤ start − 1 + (y + q)⁺ and h_i ≥ start − 1 + y − q likewise, and S(t) ≥ i is the same as h_i ≥ t.

Which of the two tells S(t) depends on the corner T of the diagram, between T̲ (some column is above all doubt) and T̄
(:func:`~unnoise.estimators.falling.last_corner`). Up to T̲ columns give both limits; beyond T̄ rows do, those of rank up
to ⌊T̄/8⌋; between the two the upper limit is the column's, and the lower one the larger of both, each with half the
tail. Of a wide block the mean is known, which bounds its ends on one side each.

**Limits fall as S does**: where columns or rows surely hold boxes the nearest falling sequence to the limits is taken,
elsewhere the least limit so far. In a stretch where S is flat the nearest sequence is their mean; where it is steep,
they stay as they are. (A limit of t then fails only if the mean of the noises of some stretch that ends at t does, so
coverage hardly changes; tests/test_direct.py measures it.)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.optimize import isotonic_regression

from ..arrays import Floats, Int64
from ..curve import NoisyCurve
from ..estimators.falling import DOUBT, last_corner, upper_quantile

__all__ = ["Diagram", "Limited"]


@dataclass(frozen=True, eq=False)
class Limited:
    """Limits of S as two falling step functions: ``values[i]`` up to the count ``ends[i]``, 0 beyond the last."""

    ends: Floats
    low: Floats
    high: Floats

    def at(self, t: Int64) -> tuple[Floats, Floats]:
        """Return lower and upper limit of S(t)."""
        at = np.searchsorted(self.ends, t.astype(float))
        return np.append(self.low, 0.0)[at], np.append(self.high, 0.0)[at]


@dataclass(frozen=True, eq=False)
class Diagram:
    """A noisy curve with what is beyond doubt about its corner."""

    curve: NoisyCurve
    made: dict[float, Limited] = field(default_factory=dict)

    @cached_property
    def last(self) -> tuple[int, int]:
        """Blocks of columns and groups of rows that may hold boxes."""
        return last_corner(self.curve)

    @cached_property
    def sure(self) -> int:
        """Blocks of columns, from the first, that hold boxes beyond doubt."""
        columns, _ = self.last
        clear = np.flatnonzero(self.curve.numbers[:columns] > upper_quantile(self.curve.noise, 1, DOUBT))
        return int(clear[-1]) + 1 if clear.size else 0

    def limits(self, tail: float) -> Limited:
        """Return limits of S(t), each of which fails with probability about ``tail``."""
        if tail not in self.made:
            self.made[tail] = self._limits(tail)
        return self.made[tail]

    def _limits(self, tail: float) -> Limited:
        columns, _ = self.last
        curve, rows = self.curve, self._rows(tail / 2)
        lows, highs = self._columns(tail, tail / 2)
        first, last = curve.first[:columns], curve.last[:columns]
        beside, _ = rows.at(last)
        lows = np.ceil(np.append(_falls(lows[: self.sure]), np.maximum(lows, beside)[self.sure :]) - 1e-9)
        highs = np.floor(_falls(highs) + 1e-9)
        # a wide block: its own mean bounds S at its first count from below, that of the block before it from above
        wide = last > first
        highs = np.where(wide, np.append(highs[:1], highs[:-1]), highs)
        lows = np.where(wide, np.append(lows[1:], rows.at(last[-1:])[0] if columns else []), lows)
        end = float(last[-1]) if columns else 0.0
        after = rows.ends > end
        ends = np.concatenate([last.astype(float), rows.ends[after]])
        low, high = np.concatenate([lows, rows.low[after]]), np.concatenate([highs, rows.high[after]])
        return Limited(ends, np.minimum.accumulate(low) + 0.0, np.minimum.accumulate(high) + 0.0)  # no −0

    def _columns(self, tail: float, doubtful: float) -> tuple[Floats, Floats]:
        """Limits of the mean of S over each block; beyond the sure corner the lower one has the other tail."""
        curve, columns = self.curve, self.last[0]
        y, width = curve.numbers[:columns].astype(float), curve.width[:columns].astype(float)
        above = curve.above[:columns].astype(float)
        q, surer = upper_quantile(curve.noise, 1, tail), upper_quantile(curve.noise, 1, doubtful)
        margin = np.where(np.arange(columns) < self.sure, q, surer)
        high = above + np.maximum(y + q, 0) / width
        low = np.where(y > margin, above + (y - margin) / width, 0.0)
        sure = np.arange(columns) < self.sure - 1  # boxes up to the corner: more than its rank
        return np.where(sure, np.maximum(low, above[self.sure - 1] + 1 if self.sure else 0.0), low), high

    def _rows(self, tail: float) -> Limited:
        """Limits of S(t) by rows alone, for counts beyond the columns."""
        curve, groups = self.curve, self.last[1]
        if not groups:
            return Limited(np.zeros(0), np.zeros(0), np.zeros(0))
        y, width = curve.ranks[:groups].astype(float), curve.rank_width[:groups].astype(float)
        before, q = curve.start[:groups] - 1.0, upper_quantile(curve.noise, 1, tail)
        high = np.floor(_falls(before + np.maximum(y + q, 0) / width) + 1e-9)
        speaks = int(np.argmin(np.append(y > q, False)))  # up to the first row that may hold no box
        low = np.append(np.ceil(_falls((before + (y - q) / width)[:speaks]) - 1e-9), np.zeros(groups - speaks))
        wide = width > 1
        high = np.where(wide, np.append(high[:1], high[:-1]), high)  # of the first rank of its group
        low = np.where(wide, np.append(low[1:], 0.0), low)  # of the last
        ends = np.unique(np.concatenate([high, low]))
        ends = ends[ends > 0]
        rank = np.append(0, curve.rank_last[:groups]).astype(float)
        reaches = [rank[np.searchsorted(-limit, -ends, side="right")] for limit in (low, high)]
        return Limited(ends, reaches[0], reaches[1])


def _falls(limits: Floats) -> Floats:
    """Return the nearest sequence that never rises."""
    return np.asarray(isotonic_regression(limits, increasing=False).x) if limits.size else limits
