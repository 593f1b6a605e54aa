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
from ..noisy import NoisyProfile
from .auto import cell_law_of, likely_masses
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

    noisy : of power 1
    draws : how often cells are drawn; the smallest p-value is 1/(1 + draws)
    seed : of the draws, which are a simulation and neither secret nor private

    Raises ConvergenceError where there is no body, or no model or maximum was found.

    >>> rng = np.random.default_rng(1)
    >>> counts = rng.poisson(5, 2000) + rng.geometric(0.5, 2000) - rng.geometric(0.5, 2000)
    >>> misfit(NoisyProfile.from_counts(counts, epsilon=np.log(2)), draws=9).p_value > 0.1
    True
    """
    bound = check_input(noisy, max_count)
    draws = check_integer("draws", draws, 1)
    if noisy.noise.power != 1:
        raise InputError(f"misfit must have noise of power 1, got {noisy.noise.power}")
    found = cell_law_of(noisy, bound)  # the law of `auto`, by multiples where it answers by them
    needs = f"misfit must have cells close together and models that converge, got {noisy!r}"
    if not found.pieces:
        raise ConvergenceError(needs)
    support, cells = found.profile(0.0)
    law = cells / cells.sum()
    gap = _gap(noisy, bound, support, law)
    if gap is None:
        raise ConvergenceError(needs)
    rng, noise = np.random.default_rng(seed), noisy.noise
    as_large = 0
    for _ in range(draws):
        counts = np.repeat(support, rng.multinomial(noisy.cells, law / law.sum()))
        shift = rng.geometric(1 - noise.a, noisy.cells) - rng.geometric(1 - noise.a, noisy.cells)
        drawn = NoisyProfile.from_counts(counts + shift, epsilon=noise.epsilon)
        as_large += (_gap(drawn, bound, support, law) or 0.0) >= gap
    return Misfit(gap, (1 + as_large) / (1 + draws), draws)


def _gap(noisy: NoisyProfile, bound: int | None, support: Int64, law: Floats) -> float | None:
    """Nats by which the maximum-likelihood masses beat a law, on the cells of the body; None without either."""
    body = body_of(noisy, bound)
    if body is None:
        return None
    channel = BandedChannel(body, noisy.noise)
    likely = likely_masses(noisy, bound, channel.counts)
    if not likely.any():
        return None
    masses = np.zeros(channel.counts.size)
    inside = np.isin(support, channel.counts)
    masses[np.searchsorted(channel.counts, support[inside])] = law[inside]
    return channel.at(likely).value - channel.at(masses / masses.sum()).value
