"""Whether the models of `auto` are good enough for the cells at hand: a p-value.

No law explains the noisy cells better than the maximum-likelihood profile. By how many nats it beats the law g that
`auto` has come to, before the step towards the cells, is the *gap*. A gap is there even if g is the truth, as the
maximum follows every chance; how large, is found by drawing cells from g and adding noise anew [1]_:

    p = (1 + number of draws whose gap to g is at least the one observed) / (1 + draws).

g has been fitted to the cells observed and not to those drawn, which makes the observed gap somewhat smaller, and the
test cautious. A small p says that no family is good enough: then `likelihood` may be nearer to the truth. Power 1 only.

.. [1] B. G. Lindsay, "Mixture models: theory, geometry and applications", 1995, chapter 4.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import Floats, Int64
from ..checks import check_integer
from ..engine.banded import BandedChannel, body_of
from ..errors import ConvergenceError, InputError
from ..noise import DiscreteLaplace
from ..noisy import NoisyProfile
from .cells import KnownCells, body_law, likely_masses
from .methods import check_input

__all__ = ["Misfit", "misfit"]


@dataclass(frozen=True)
class Misfit:
    """By how many nats maximum likelihood beats the models, how often chance does as well, and in how many draws."""

    gap: float
    p_value: float
    draws: int


def misfit(noisy: NoisyProfile, *, max_count: int | None = None, draws: int = 39, seed: int = 0) -> Misfit:
    """Test the models of `auto` against the maximum-likelihood profile.

    Parameters
    ----------
    noisy : NoisyProfile
        Noise of power 1.
    max_count : int, optional
        A bound that truly holds for every count.
    draws : int
        How often cells are drawn; the smallest p-value is 1/(1 + draws).
    seed : int
        Of the draws, which are a simulation and neither secret nor private.

    Raises
    ------
    ConvergenceError
        Where there is no body, or no model or maximum was found.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> counts = rng.poisson(5, 2000) + rng.geometric(0.5, 2000) - rng.geometric(0.5, 2000)
    >>> misfit(NoisyProfile.from_counts(counts, epsilon=np.log(2)), draws=9).p_value > 0.1
    True
    """
    bound = check_input(noisy, max_count)
    draws = check_integer("draws", draws, 1)
    if noisy.noise.power != 1:
        raise InputError(f"misfit must have noise of power 1, got {noisy.noise.power}")
    found = body_law(noisy, bound)
    if found is None or not found.likely.any():
        raise ConvergenceError(f"misfit must have cells close together and models that converge, got {noisy!r}")
    support, cells = KnownCells((found,), found.body.far_values, found.body.far_tally).profile(stepped=False)
    law = cells / cells.sum()
    gap = _gap(found.channel, found.likely, support, law)
    rng = np.random.default_rng(seed)
    drawn = [_drawn_gap(support, law, noisy.cells, noisy.noise, bound, rng) for _ in range(draws)]
    return Misfit(gap, (1 + sum(other >= gap for other in drawn)) / (1 + draws), draws)


def _gap(channel: BandedChannel, likely: Floats, support: Int64, law: Floats) -> float:
    """Nats by which the maximum-likelihood masses beat a law, on the cells of a body."""
    masses = np.zeros(channel.counts.size)
    inside = np.isin(support, channel.counts)
    masses[np.searchsorted(channel.counts, support[inside])] = law[inside]
    return channel.at(likely).value - channel.at(masses / masses.sum()).value


def _drawn_gap(
    support: Int64, law: Floats, cells: int, noise: DiscreteLaplace, bound: int | None, rng: np.random.Generator
) -> float:
    """The gap of a law on cells drawn from it; none where they make no body or have no maximum."""
    counts = np.repeat(support, rng.multinomial(cells, law / law.sum()))
    shift = rng.geometric(1 - noise.a, cells) - rng.geometric(1 - noise.a, cells)
    drawn = NoisyProfile.from_counts(counts + shift, epsilon=noise.epsilon)
    body = body_of(drawn, bound)
    if body is None:
        return 0.0
    channel = BandedChannel(body, noise)
    likely = likely_masses(drawn, bound, channel.counts)
    return _gap(channel, likely, support, law) if likely.any() else 0.0
