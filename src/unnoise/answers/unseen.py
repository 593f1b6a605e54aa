"""Beyond the data: how large is the population behind a profile, how even, and how much of it has been seen?

A profile tells of this data set; with n occurrences drawn independently from an unknown population, a few symmetric
functions of that population follow from it, the unseen items included. With N_t the items of count t, D all of them, n
their occurrences:

* **the population of rare items** is the measure μ on means λ = n·p that makes N_1, …, N_20 likeliest as independent
  Poisson numbers of means Σ_λ μ(λ)·e^−λ·λ^t/t!: approximate profile maximum likelihood (Acharya et al. 2017 [1]_) by a
  Poisson mixture, with reweighted least squares. λ ≥ 1/ln n, as nothing rarer can be told from n draws [2]_;
* **coverage** of the next draw, the chance that it is an item already seen: C = 1 − N_1/n (Good and Turing [3]_);
* **new items** in n further draws: Σ μ(λ)·e^−λ·(1 − e^−λ);
* **entropy**: Σ_t N_t·(t/n)·(ψ(n) − ψ(t)), ψ the digamma function, which is unbiased for the first n − 1 terms of H =
  Σ_k Σ_i p_i(1 − p_i)^k/k (Chao, Wang and Jost [4]_), and for the others Σ μ(λ)·(λ/n)·E₁(λ) (exponential integral);
* **support**: D + Σ μ(λ)·e^−λ, the items that are not rarer than 1/(n·ln n). Any number may be, and nothing in the data
  would tell, so the interval of the whole support has a lower end only: that of D + N_1(N_1 − 1)/(2(N_2 + 1)), which
  is below the support whatever the population (Chao [5]_).

Any private profile will do: these are functions of what was released, so they cost nothing.

**Intervals** are by parametric bootstrap: N_t and the items not seen are drawn as the fitted population would have
them, common items with the errors of Poisson counts; n and the items of count ≥ t get normal errors of the profile's
own standard errors, and are made to fall; how far the answers are then from what the population says is set about the
answer. They allow for sampling and for noise, not for items rarer than 1/(n·ln n): docs/benchmarks.md says how often
they hold.

.. [1] J. Acharya, H. Das, A. Orlitsky, A. T. Suresh, "A unified maximum likelihood approach …", ICML 2017.
.. [2] A. Orlitsky, A. T. Suresh, Y. Wu, "Optimal prediction of the number of unseen species", PNAS 2016.
.. [3] I. J. Good, "The population frequencies of species", Biometrika 1953.
.. [4] A. Chao, Y. T. Wang, L. Jost, "Entropy and the species accumulation curve", Methods Ecol. Evol. 2013.
.. [5] A. Chao, "Nonparametric estimation of the number of classes in a population", Scand. J. Statist. 1984.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import isotonic_regression, nnls
from scipy.special import digamma, exp1, gammaln

from ..arrays import Floats
from ..checks import check_integer, check_level
from .estimate import Estimate
from .profile import Profile

__all__ = ["Unseen", "unseen"]

RARE = 20
"""Counts up to here are of items that may be rare."""

MEANS = 60
"""Means λ among which the rare items are spread."""

ROUNDS = 4
"""Rounds of least squares with weights from the last."""

LEAST = 0.1
"""Variances below are taken as this."""


@dataclass(frozen=True)
class Unseen:
    """What the population behind a profile looks like.

    support : number of items in the population, seen and unseen: at least so many
    entropy : its Shannon entropy, in nats
    coverage : chance that one more draw is an item seen already
    new_items : items not seen yet among as many further draws as there were
    """

    support: Estimate
    entropy: Estimate
    coverage: Estimate
    new_items: Estimate

    def to_dict(self) -> dict[str, dict[str, object]]:
        """Return all answers as plain Python; an end that is not there is None."""
        found: dict[str, dict[str, object]] = {}
        for name in NAMES:
            answer: Estimate = getattr(self, name)
            found[name] = {**answer.to_dict(), "high": answer.high if math.isfinite(answer.high) else None}
        return found


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
    counts, items = profile.support[some].astype(float), (profile.mass * profile.items)[some]
    total, rng = float(counts @ items), np.random.default_rng(seed)
    if total < 1:
        return _nothing(level)
    errors = np.array([profile.at_least(t).stderr for t in range(1, RARE + 2)])
    rare = np.array([float(items[counts == t].sum()) for t in range(1, RARE + 1)])
    common = counts > RARE
    sample = _Sample(rare, counts[common], items[common], total, errors, min(profile.total.stderr, total))
    population = _Population.of(sample)
    answers, whole = sample.answers(population), population.expected(sample)
    off = []
    for _ in range(repetitions):
        again = sample.redrawn(population, rng)
        truth = population.drawn(whole, total, rng)
        off.append(again.answers(_Population.of(again)) - truth)
    most, least = np.quantile(off, [(1 - level) / 2, (1 + level) / 2], axis=0)
    low, high = answers - least, np.minimum(answers - most, [math.inf, math.inf, 1.0, total, math.inf])
    spread = np.std(off, axis=0)
    fewest = answers[4] - float(np.quantile(np.array(off)[:, 4], level))
    low[0], high[0] = max(fewest, profile.distinct.low), math.inf
    found = {}
    for i, name in enumerate(NAMES):
        ends = min(max(low[i], 0.0), answers[i]), max(high[i], answers[i])
        found[name] = Estimate(float(answers[i]), float(spread[i]), float(ends[0]), float(ends[1]), level)
    return Unseen(**found)


def _nothing(level: float) -> Unseen:
    """No occurrences: nothing is known."""
    support, coverage = Estimate(0.0, 0.0, 0.0, math.inf, level), Estimate(0.0, 0.0, 0.0, 1.0, level)
    return Unseen(support, support, coverage, support)


@dataclass(frozen=True, eq=False)
class _Population:
    """Rare items: ``items`` of them have the mean count ``means`` in as many draws as there were."""

    means: Floats
    items: Floats

    @classmethod
    def of(cls, sample: _Sample) -> _Population:
        """The likeliest one: the likelihood's quadratic, about the last fit, has the next one for its optimum."""
        means = np.geomspace(1 / max(math.log(max(sample.total, 2.0)), 1.0), RARE, MEANS)
        law, variance = _poisson(means), sample.rare + 1
        for _ in range(ROUNDS):
            scale = np.sqrt(variance)
            items, _ = nnls(law / scale[:, None], sample.rare / scale, maxiter=100 * MEANS)
            variance = np.maximum(law @ items, LEAST)
        return cls(means, np.asarray(items))

    def expected(self, sample: _Sample) -> Floats:
        """What the answers would be of samples of the expected numbers: support and entropy of the population."""
        numbers = _poisson(self.means) @ self.items
        return replace(sample, rare=numbers).answers(self)

    def drawn(self, whole: Floats, total: float, rng: np.random.Generator) -> Floats:
        """The same for one sample, of which coverage and new items depend on the items not seen."""
        hidden = rng.poisson(self.items * np.exp(-self.means))
        fresh = rng.binomial(hidden, -np.expm1(-self.means)).sum()
        return np.array([whole[0], whole[1], 1 - min(float(hidden @ self.means) / total, 1.0), fresh, whole[4]])


@dataclass(frozen=True, eq=False)
class _Sample:
    """Items of every count up to ``RARE``, the ``counts`` above with their ``items``, and the ``total`` of occurrences.

    errors : standard errors of the items of count ≥ 1, …, RARE + 1
    slip : standard error of the total
    """

    rare: Floats
    counts: Floats
    items: Floats
    total: float
    errors: Floats
    slip: float

    def answers(self, population: _Population) -> Floats:
        """Return support, entropy, coverage, new items, and Chao's lower bound of the support."""
        total = self.total
        counts, items = np.append(np.arange(1.0, RARE + 1), self.counts), np.append(self.rare, self.items)
        entropy = float(items @ (counts / total * np.maximum(digamma(total) - digamma(counts), 0.0)))
        means, hidden = population.means, population.items * np.exp(-population.means)
        entropy += float(population.items @ (means / total * exp1(means)))
        coverage = min(max(1 - float(self.rare[0]) / total, 0.0), 1.0)
        once, twice, seen = float(self.rare[0]), float(self.rare[1]), float(items.sum())
        fewest = seen + once * max(once - 1, 0.0) / (2 * (twice + 1))
        return np.array([seen + hidden.sum(), entropy, coverage, float(hidden @ -np.expm1(-means)), fewest])

    def redrawn(self, population: _Population, rng: np.random.Generator) -> _Sample:
        """Draw a sample like this one from the population, with the errors of this one."""
        rare = rng.poisson(_poisson(population.means) @ population.items)
        moved = np.sqrt(self.counts / np.maximum(self.items, 1)) * rng.normal(size=self.counts.size)
        counts = np.maximum(self.counts + moved, 1.0)
        reached = np.cumsum(np.append(rare, self.items.sum())[::-1])[::-1] + self.errors * rng.normal(size=RARE + 1)
        reached = np.maximum(isotonic_regression(reached, increasing=False).x, 0.0)
        total = float(np.arange(1, RARE + 1) @ rare + counts @ self.items) + self.slip * rng.normal()
        return replace(self, rare=-np.diff(reached), counts=counts, total=max(total, 1.0))


def _poisson(means: Floats) -> Floats:
    """e^−λ·λ^t/t! for t = 1, …, RARE and every λ."""
    t = np.arange(1.0, RARE + 1)[:, None]
    return np.asarray(np.exp(t * np.log(means) - means - gammaln(t + 1)))
