"""What the engine asks of a channel: the law of the noisy cells, seen from the masses of a profile.

A *channel* holds noisy cells and knows how their law m moves with the masses N_j of a profile (items or cells in each
block of counts). Whatever the kind of sketch and its noise, with k_j the law of a noisy cell to which one more count of
block j has been added,

    ∂/∂N_j log likelihood = exposure·(pull_j − 1),      pull_j = Σ_v (y_v/m_v)·k_j[v],    y the cells' shares,

so pull ≤ 1 everywhere, with equality where N_j > 0, is what a maximum looks like, and N_j·pull_j is one step of EM.
Newton's system in θ = log N needs A = P + G + J, P a prior's precision, G ≥ 0 diagonal and J the information of the
cells about θ. How that is solved is the channel's own affair: banded (:mod:`._smooth_channel`) for a known domain and
one noise, dense (:mod:`._fourier`) for everything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from ..arrays import Floats

__all__ = ["Bands", "Channel", "State"]

Bands = Sequence[Floats]
"""A symmetric banded matrix: entry k holds the k-th superdiagonal, N long, its last k entries unused."""


class State(Protocol):
    """A profile as a channel sees it: its masses and the log likelihood of the cells, in nats."""

    @property
    def mass(self) -> Floats:
        """N_j, the mass of each block."""

    @property
    def value(self) -> float:
        """The log likelihood."""


S = TypeVar("S", bound=State)


class Channel(Protocol[S]):
    """Noisy cells, and the law that a profile gives them."""

    @property
    def exposure(self) -> float:
        """Cells (or the share of the items) that the masses are seen through: ∂value/∂N = exposure·(pull − 1)."""

    @property
    def widths(self) -> Floats | float:
        """Number of counts in each block."""

    def at(self, mass: Floats) -> S:
        """See these masses through the channel."""

    def pull(self, state: S) -> Floats:
        """Factor by which the cells pull each mass: one step of EM multiplies by it."""

    def hold(self, prior: Bands) -> Floats:
        """Prepare the precision of a prior for Newton's systems."""

    def newton(self, held: Floats, curvature: Floats, state: S, gradient: Floats) -> tuple[Floats, float]:
        """Return −A⁻¹·gradient and log det A, A = prior + diag(curvature) + J, or raise LinAlgError."""
