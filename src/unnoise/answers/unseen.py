"""Beyond the data: how large is the population behind a profile, how even, and how much of it has been seen?

A profile tells of this data set; with n occurrences drawn independently from an unknown population, a few symmetric
functions of that population follow from it, the unseen items included. With N_t the items of count t, D all of them, n
their occurrences:

* **coverage** of the next draw, the chance that it is an item already seen: C = 1 − N_1/n (Good and Turing [1]_);
* **support**: D + N_0 with Chao's N_0 = (n−1)/n · N_1(N_1 − 1)/(2(N_2 + 1)) [2]_, a lower bound that is tight where
  rare items are about equally rare;
* **entropy**: Σ_t N_t·(t/n)·(ψ(n) − ψ(t)) + (N_1/n)·Σ_{k≥0} (1 − A)^(k+1)/(n + k), A = 2N_2/((n − 1)N_1 + 2N_2), ψ the
  digamma function: the slope of the curve of new items, continued (Chao, Wang and Jost [3]_);
* **new items** in m further draws: N_0·(1 − (1 − N_1/(n·N_0))^m).

Any private profile will do: these are functions of what was released, so they cost nothing. Profile maximum likelihood
(Acharya et al. 2017 [4]_) would answer all of them at once, at much more work; this is the family of Good and Turing.

**Intervals** are by parametric bootstrap: a population with the fitted frequencies, its unseen part spread over N_0
items, is drawn from n times; the numbers get normal errors of the profile's own standard errors; the spread of the
answers about their median (of coverage, which is each data set's own, about its truth) is set about the answer. They
allow for sampling and for noise, not for a wrong family.

.. [1] I. J. Good, "The population frequencies of species", Biometrika 1953.
.. [2] A. Chao, "Nonparametric estimation of the number of classes in a population", Scand. J. Statist. 1984.
.. [3] A. Chao, Y. T. Wang, L. Jost, "Entropy and the species accumulation curve", Methods Ecol. Evol. 2013.
.. [4] J. Acharya, H. Das, A. Orlitsky, A. T. Suresh, "A unified maximum likelihood approach …", ICML 2017.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import digamma

from ..arrays import Floats, Int64
from ..checks import check_integer, check_level
from .estimate import Estimate
from .profile import Profile

__all__ = ["Unseen", "unseen"]

MOST = 10**6
"""Items of a bootstrap population drawn from one by one; larger ones are thinned in proportion."""


@dataclass(frozen=True)
class Unseen:
    """What the population behind a profile looks like.

    support : number of items in the population, seen and unseen
    entropy : its Shannon entropy, in nats
    coverage : chance that one more draw is an item seen already
    new_items : items not seen yet among as many further draws as there were
    """

    support: Estimate
    entropy: Estimate
    coverage: Estimate
    new_items: Estimate

    def to_dict(self) -> dict[str, dict[str, object]]:
        """Return all answers as plain Python."""
        return {name: dict(getattr(self, name).to_dict()) for name in NAMES}


NAMES = ("support", "entropy", "coverage", "new_items")


def unseen(profile: Profile, *, repetitions: int = 100, seed: int = 0, level: float = 0.95) -> Unseen:
    """Estimate support size, entropy and coverage of the population that the data were drawn from.

    Parameters
    ----------
    profile : Profile
        Private or not; a domain's items of count 0 play no part.
    repetitions, seed : of the bootstrap

    Examples
    --------
    >>> import unnoise as un
    >>> p = un.direct(list(range(2000)) * 2, epsilon=1)
    >>> unseen(p, repetitions=20).coverage.value > 0.9
    True
    """
    check_integer("repetitions", repetitions, 10)
    check_level(level)
    some = profile.support > 0
    counts, items = profile.support[some], (profile.mass * profile.items)[some]
    answers = _functionals(counts, items)
    rng = np.random.default_rng(seed)
    errors = [profile.exactly(1).stderr, profile.exactly(2).stderr, profile.distinct.stderr, profile.entropy.stderr]
    drawn, covered = [], []
    for _ in range(repetitions):
        again, number, truth = _redrawn(counts, items, rng)
        drawn.append(_functionals(again, number, errors, rng))
        covered.append(truth)
    off = np.array(drawn) - np.median(drawn, axis=0)
    off[:, 2] = np.array(drawn)[:, 2] - covered
    most, least = np.quantile(off, [(1 - level) / 2, (1 + level) / 2], axis=0)
    lowest = (profile.distinct.low, 0.0, 0.0, 0.0)
    highest = (math.inf, math.inf, 1.0, math.inf)
    found = {}
    for i, name in enumerate(NAMES):
        low, high = answers[i] - least[i], answers[i] - most[i]
        low, high = min(max(low, lowest[i]), answers[i]), max(min(high, highest[i]), answers[i])
        found[name] = Estimate(float(answers[i]), float(np.std(off, axis=0)[i]), float(low), float(high), level)
    return Unseen(**found)


def _missing(once: float, twice: float, total: float) -> float:
    """Chao's number of unseen items."""
    return max(0.0, (total - 1) / max(total, 1.0) * once * max(once - 1, 0.0) / (2 * (max(twice, 0.0) + 1)))


def _continued(once: float, twice: float, total: float) -> float:
    """Σ_{k≥0} (1 − A)^(k+1)/(n + k): what the entropy gains from items not seen yet."""
    if once <= 0:
        return 0.0
    a = 2 * twice / ((total - 1) * once + 2 * twice) if twice > 0 else 2 / ((total - 1) * max(once - 1, 0) + 2)
    k = np.arange(min(MOST, math.ceil(40 / max(a, 1e-9)) + 1))
    return float(np.sum(np.exp((k + 1) * np.log1p(-min(a, 1 - 1e-15))) / (total + k)))


def _functionals(
    counts: Int64, items: Floats, errors: list[float] | None = None, rng: np.random.Generator | None = None
) -> Floats:
    """Return support, entropy, coverage, new items; with ``errors`` of N_1, N_2, D and the entropy added."""
    off = np.zeros(4) if errors is None or rng is None else rng.normal(size=4) * errors
    total = float(counts @ items)
    if total < 1:
        return np.zeros(4)
    once = max(float(items[counts == 1].sum()) + off[0], 0.0)
    twice = max(float(items[counts == 2].sum()) + off[1], 0.0)
    coverage = min(max(1 - once / total, 1 / total), 1.0)
    hidden = _missing(once, twice, total)
    entropy = float(items @ (counts / total * (digamma(max(total, 1.0)) - digamma(counts.astype(float)))))
    entropy += once / total * _continued(once, twice, total)
    fresh = hidden * -np.expm1(total * np.log1p(-min(once / (total * hidden), 1 - 1e-12))) if hidden > 0 else 0.0
    return np.array([max(float(items.sum()) + off[2], 0.0) + hidden, max(entropy + off[3], 0.0), coverage, fresh])


def _redrawn(counts: Int64, items: Floats, rng: np.random.Generator) -> tuple[Int64, Floats, float]:
    """Draw a data set of the same size from the fitted population; return its profile, and how much it covers."""
    total = float(counts @ items)
    once, twice = (float(items[counts == t].sum()) for t in (1, 2))
    hidden = math.ceil(_missing(once, twice, total))
    coverage = min(max(1 - once / max(total, 1.0), 0.0), 1.0)
    whole = np.maximum(np.rint(items), 0).astype(np.int64)
    thinned = max(1.0, (whole.sum() + hidden) / MOST)
    means = np.repeat(counts * coverage, np.rint(whole / thinned).astype(np.int64))
    rest = max(1, round(hidden / thinned))
    means = np.concatenate([means, np.full(rest, total * (1 - coverage) / (rest * thinned))])
    drawn = rng.poisson(means)
    values, number = np.unique(drawn[drawn > 0], return_counts=True)
    return values, number * thinned, float(means[drawn > 0].sum()) / max(float(means.sum()), 1e-300)
