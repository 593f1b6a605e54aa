"""What depends on p in problem P2: residuals, slacks and their multipliers (formulas: :mod:`._leastnorm`)."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from ..arrays import Floats
from ._chain import Operator
from ._ipm import longest_step

__all__ = ["Pairs", "Residual", "Square"]


class Residual(Protocol):
    """What depends on p. Arrays are over rows."""

    def pull(self, m: Floats) -> Floats:
        """q with Kᵀq the gradient of the Lagrangian in f, less λ and z."""
        ...

    def products(self) -> tuple[float, int]:
        """Sum and number of slack·multiplier products."""
        ...

    def weight(self, m: Floats) -> Floats:
        """W, and what slacks and m are apart by, which the next direction makes good."""
        ...

    def right(self, centre: float, second_order: bool) -> Floats:
        """Constant part of the change of q."""
        ...

    def border(self) -> tuple[Floats, float, float] | None:
        """h, S and r_τ of the bordering variable, if there is one; after :meth:`right`."""
        ...

    def aim(self, dm: Floats, dtau: float) -> float:
        """Fix the direction; the longest step in it."""
        ...

    def ahead(self, step: float) -> float:
        """Sum of products after a step."""
        ...

    def keep(self) -> tuple[Floats, ...]:
        """The direction last fixed, from which second-order terms are taken."""
        ...

    def restore(self, kept: tuple[Floats, ...]) -> None:
        """Go back to a direction kept before."""
        ...

    def advance(self, step: float) -> None:
        """Take the step."""
        ...

    def bounds(self, m: Floats, channel: Operator) -> tuple[float, float]:
        """The norm at m, and a certified lower bound of its minimum."""
        ...


class Square:
    """p = 2: nothing but the residual itself."""

    def __init__(self, y: Floats) -> None:
        self.y = y
        self._none = np.zeros_like(y)

    def pull(self, m: Floats) -> Floats:
        """q with Kᵀq the gradient of the Lagrangian in f, less λ and z."""
        return np.asarray(m - self.y)

    def products(self) -> tuple[float, int]:
        """Sum and number of slack·multiplier products."""
        return 0.0, 0

    def weight(self, m: Floats) -> Floats:
        """W."""
        return np.ones_like(self.y)

    def right(self, centre: float, second_order: bool) -> Floats:
        """Constant part of the change of q."""
        return self._none

    def border(self) -> None:
        """h, S and r_τ of the bordering variable, if there is one."""
        return None

    def aim(self, dm: Floats, dtau: float) -> float:
        """Fix the direction; the longest step in it."""
        return math.inf

    def ahead(self, step: float) -> float:
        """Sum of products after a step."""
        return 0.0

    def keep(self) -> tuple[Floats, ...]:
        """Nothing to keep."""
        return ()

    def restore(self, kept: tuple[Floats, ...]) -> None:
        """Nothing to go back to."""

    def advance(self, step: float) -> None:
        """Nothing to move."""

    def bounds(self, m: Floats, channel: Operator) -> tuple[float, float]:
        """The norm at m, and a certified lower bound of its minimum."""
        residual = m - self.y
        value = float(np.linalg.norm(residual))
        if value == 0:
            return 0.0, 0.0
        s = residual / value
        return value, float(channel.transpose(s).min() - s @ self.y)


class Pairs:
    """p = 1 (a slack for every row) and p = ∞ (one ``shared`` by all): τ ≥ ±(m − y)."""

    def __init__(self, y: Floats, m: Floats, shared: bool) -> None:
        self.y, self.shared = y, shared
        self.two_sided = y > 0
        residual = m - y
        if shared:
            worst = float(np.abs(residual).max())
            tau: Floats | float = 1.5 * worst + 1e-12
            share = 1 / (y.size + int(self.two_sided.sum()))
        else:
            tau = np.abs(residual) + 0.5 * float(np.abs(residual).mean()) + 1e-12
            share = 0.5
        # what the slacks take m − y to be: m follows f, the slacks follow x = E f, and rounding keeps them apart
        self.assumed, self.off = residual, np.zeros_like(y)
        self.upper: Floats = tau - residual
        self.lower: Floats = tau + residual
        self.d_upper = self.d_lower = self.d_alpha = self.d_beta = np.zeros_like(y)
        self.alpha = np.full(y.size, share)
        self.beta = np.where(self.two_sided, share, 0.0)

    def pull(self, m: Floats) -> Floats:
        """q with Kᵀq the gradient of the Lagrangian in f, less λ and z."""
        return np.asarray(self.alpha - self.beta - (0.0 if self.shared else 1.0))

    def products(self) -> tuple[float, int]:
        """Sum and number of slack·multiplier products."""
        total = float(self.upper @ self.alpha + self.lower @ self.beta)
        return total, self.y.size + int(self.two_sided.sum())

    def weight(self, m: Floats) -> Floats:
        """W."""
        self.p, self.q = self.alpha / self.upper, self.beta / self.lower
        self.off = m - self.y - self.assumed
        total = self.p + self.q
        self.w: Floats = total if self.shared else 4 * self.p * self.q / total
        return self.w

    def right(self, centre: float, second_order: bool) -> Floats:
        """Constant part of the change of q."""
        up: Floats | float = centre
        down: Floats | float = centre
        if second_order:
            up, down = centre - self.d_upper * self.d_alpha, centre - self.d_lower * self.d_beta
        self.ra = up / self.upper - self.alpha
        self.rb = np.where(self.two_sided, down / self.lower - self.beta, 0.0)
        pull = self.ra - self.rb if self.shared else 2 * (self.q * self.ra - self.p * self.rb) / (self.p + self.q)
        return np.asarray(pull + self.w * self.off)

    def border(self) -> tuple[Floats, float, float] | None:
        """h, S and r_τ of the bordering variable, if there is one."""
        if not self.shared:
            return None
        missing = 1 - float(self.alpha.sum() + self.beta.sum())
        h = self.q - self.p
        return h, float(self.w.sum()), float((self.ra + self.rb).sum() - h @ self.off) - missing

    def aim(self, dm: Floats, dtau: float) -> float:
        """Fix the direction; the longest step in it."""
        dm = dm + self.off
        own: Floats = (self.ra + self.rb - (self.q - self.p) * dm) / (self.p + self.q)
        slack = dtau if self.shared else own
        self.d_assumed, self.d_upper, self.d_lower = dm, slack - dm, slack + dm
        self.d_alpha = self.ra - self.p * self.d_upper
        self.d_beta = self.rb - self.q * self.d_lower
        two = self.two_sided
        reach = min(
            longest_step(self.upper, self.d_upper, math.inf),
            longest_step(self.alpha, self.d_alpha, math.inf),
            longest_step(self.lower[two], self.d_lower[two], math.inf),
            longest_step(self.beta[two], self.d_beta[two], math.inf),
        )
        return reach if math.isfinite(float(np.sum(self.d_alpha))) else 0.0

    def ahead(self, step: float) -> float:
        """Sum of products after a step."""
        above = (self.upper + step * self.d_upper) @ (self.alpha + step * self.d_alpha)
        below = (self.lower + step * self.d_lower) @ (self.beta + step * self.d_beta)
        return float(above + below)

    def keep(self) -> tuple[Floats, ...]:
        """The direction last fixed."""
        return self.d_upper, self.d_lower, self.d_alpha, self.d_beta

    def restore(self, kept: tuple[Floats, ...]) -> None:
        """Go back to a direction kept before."""
        self.d_upper, self.d_lower, self.d_alpha, self.d_beta = kept

    def advance(self, step: float) -> None:
        """Take the step."""
        self.assumed = self.assumed + step * self.d_assumed
        self.upper = self.upper + step * self.d_upper
        self.lower = self.lower + step * self.d_lower
        self.alpha = self.alpha + step * self.d_alpha
        self.beta = self.beta + step * self.d_beta

    def bounds(self, m: Floats, channel: Operator) -> tuple[float, float]:
        """The norm at m, and a certified lower bound of its minimum."""
        residual = m - self.y
        s = self.alpha - self.beta
        if self.shared:
            s = s / float(np.abs(s).sum())
            return float(np.abs(residual).max()), float(channel.transpose(s).min() - s @ self.y)
        s = np.clip(s, -1.0, 1.0)
        value = 1 + float((np.abs(residual) - m).sum())
        return value, 1 - float(channel.transpose(1 - s).max()) - float(s @ self.y)
