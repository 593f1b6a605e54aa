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

**Intervals** allow for two kinds of doubt, and reach as far as the larger of them:

* *what a sample shows of its population*, by parametric bootstrap: N_t and the items not seen are drawn as the fitted
  population would have them, common items each as a Poisson number; their sum and the items of count ≥ t get normal
  errors of the profile's own standard errors, and are made to fall; how far the answers are then from what is true of
  the population is set about the answer;
* *which population it is*: many fit the same N_t. The answers are linear in μ, so the least and the largest of them
  among all μ whose misfit (of N_t, with the covariance of sampling and of noise) is above the least by no more than
  the quantile of χ² are limits by profile likelihood, whatever the shape. Here λ may be as small as 1/n: that **no item
  is rarer than one in n²** is the assumption under which the entropy has an upper end at all.

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
from scipy.special import chdtri, digamma, exp1, gammaln, ndtri

from ..arrays import Floats
from ..checks import check_integer, check_level
from ..errors import InputError
from .estimate import Estimate
from .profile import Profile

__all__ = ["Unseen", "unseen"]

RARE = 20
"""Counts up to here are of items that may be rare."""

MEANS = 60
"""Means λ among which the rare items are spread."""

RAREST = 80
"""Means among which they may be spread, down to one in n² draws, for the limits."""

FAR = 1e12
"""Means above are drawn as normal numbers."""

INDIVIDUALS = 20_000
"""Most common items that are drawn one by one; of more, so many stand for all."""

STIFF = 1e3
"""How much more than any number counts what a sum over the population is asked to be."""

HALVINGS = 12
"""Steps by which a limit is found."""

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
    if not isinstance(profile, Profile):
        raise InputError(f"profile must be a Profile, as un.profile gives it, got {type(profile).__name__}")
    check_integer("repetitions", repetitions, 10)
    check_level(level)
    some = profile.support > 0
    counts, items = profile.support[some].astype(float), (profile.mass * profile.items)[some]
    total, rng = float(counts @ items), np.random.default_rng(seed)
    if total < 1:
        return _nothing(level)
    errors = np.array([_error(profile.at_least(t)) for t in range(1, RARE + 2)])
    rare = np.array([float(items[counts == t].sum()) for t in range(1, RARE + 1)])
    common = counts > RARE
    sample = _Sample(rare, counts[common], items[common], total, errors, profile.total.stderr)
    population = _Population.of(sample)
    answers, whole = sample.answers(population), population.expected(sample)
    off = []
    for _ in range(repetitions):
        again = sample.redrawn(population, rng)
        truth = population.drawn(whole, total, rng)
        off.append(again.answers(_Population.of(again)) - truth)
    most, least = np.quantile(off, [(1 - level) / 2, (1 + level) / 2], axis=0, method="weibull")
    low, high = answers - least, answers - most
    limits = _Limits(sample, population, level)
    doubts = limits.entropy(answers[1], population), limits.coverage(answers[2]), limits.new_items(answers[3])
    for i, (fewer, more) in enumerate(doubts, start=1):
        low[i], high[i] = min(low[i], answers[i] - fewer), max(high[i], answers[i] + more)
    high = np.minimum(high, [math.inf, math.inf, 1.0, total, math.inf])
    spread = np.std(off, axis=0)
    fewest = answers[4] - float(np.quantile(np.array(off)[:, 4], level, method="weibull"))
    low[0], high[0] = max(fewest, profile.distinct.low), math.inf
    found = {}
    for i, name in enumerate(NAMES):
        ends = min(max(low[i], 0.0), answers[i]), max(high[i], answers[i])
        found[name] = Estimate(float(answers[i]), float(spread[i]), float(ends[0]), float(ends[1]), level)
    return Unseen(**found)


def _error(answer: Estimate) -> float:
    """Its standard error; where the interval ends at 0, that of its longer side."""
    side = max(answer.high - answer.value, answer.value - answer.low)
    return max(answer.stderr, side / float(ndtri((1 + answer.level) / 2)))


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

    @property
    def numbers(self) -> Floats:
        """N_1, …, N_20 in the mean."""
        return np.asarray(_poisson(self.means) @ self.items)

    def entropy(self, total: float) -> float:
        """What it adds to the entropy beyond what a sample shows."""
        return float(self.items @ (self.means / total * exp1(self.means)))

    def expected(self, sample: _Sample) -> Floats:
        """What is true of the population whose rare items are these and whose common ones are those of the sample."""
        found, share = replace(sample, rare=self.numbers).answers(self), sample.counts / sample.total
        estimated = digamma(sample.total) - digamma(sample.counts)
        found[1] += float(sample.items @ (share * (-np.log(share) - estimated)))  # of common items it is −p·ln p itself
        return found

    def drawn(self, whole: Floats, total: float, rng: np.random.Generator) -> Floats:
        """The same for one sample, of which coverage and new items depend on the items not seen."""
        hidden = rng.poisson(self.items * np.exp(-self.means))
        fresh = rng.binomial(hidden, -np.expm1(-self.means)).sum()
        return np.array([whole[0], whole[1], 1 - min(float(hidden @ self.means) / total, 1.0), fresh, whole[4]])


@dataclass(frozen=True, eq=False)
class _Sample:
    """Items of every count up to ``RARE``, the ``counts`` above with their ``items``, and the ``total`` of occurrences.

    errors : standard errors of the items of count ≥ 1, …, RARE + 1
    slip : standard error of the total, which beyond the rare items is that of the common ones
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
        entropy += population.entropy(total)
        coverage = min(max(1 - float(self.rare[0]) / total, 0.0), 1.0)
        once, twice, seen = float(self.rare[0]), float(self.rare[1]), float(items.sum())
        fewest = seen + once * max(once - 1, 0.0) / (2 * (twice + 1))
        return np.array([seen + hidden.sum(), entropy, coverage, float(hidden @ -np.expm1(-means)), fewest])

    def redrawn(self, population: _Population, rng: np.random.Generator) -> _Sample:
        """Draw a sample like this one from the population, with the errors of this one."""
        rare = rng.poisson(population.numbers)
        counts, items = self._common(rng)
        reached = np.cumsum(np.append(rare, items.sum())[::-1])[::-1] + self.errors * rng.normal(size=RARE + 1)
        reached = np.maximum(isotonic_regression(reached, increasing=False).x, 0.0)
        shown, common = -np.diff(reached), float(counts @ items)
        total = float(np.arange(1, RARE + 1) @ shown) + common + min(self.slip, common) * rng.normal()
        return replace(self, rare=shown, counts=counts, items=items, total=max(total, 1.0))

    def _common(self, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Draw the counts of the common items, each a Poisson number of its own (or standing for several)."""
        items = float(self.items.sum())
        each = max(1.0, items / INDIVIDUALS)
        copies = np.floor(self.items / each + rng.random(self.items.size)).astype(np.int64)
        means = np.repeat(self.counts, copies)
        normal = means + np.sqrt(means) * rng.normal(size=means.size)
        drawn = np.where(means > FAR, normal, rng.poisson(np.minimum(means, FAR)))
        return np.maximum(drawn, 1.0), np.full(means.size, each)


class _Limits:
    """Least and largest sums over the rare items among the populations that N_1, …, N_20 do not contradict."""

    def __init__(self, sample: _Sample, population: _Population, level: float) -> None:
        self.sample, self.quantile = sample, float(ndtri((1 + level) / 2))
        self.means = np.geomspace(1 / max(sample.total, 2.0), RARE, RAREST)
        law, noise = _poisson(self.means), np.append(sample.errors[:-1] ** 2, 0.0)  # what N_20 lacks, common items have
        self.expected = np.maximum(population.numbers, LEAST)
        covariance = np.diag(self.expected + noise[:-1] + noise[1:])
        covariance -= np.diag(noise[1:-1], 1) + np.diag(noise[1:-1], -1)  # N_t and N_{t+1} share the error of S(t + 1)
        root = np.linalg.cholesky(covariance)
        self.law, self.seen = np.linalg.solve(root, law), np.linalg.solve(root, sample.rare)
        self.likeliest, misfit = nnls(self.law, self.seen, maxiter=100 * RAREST)
        self.most = misfit**2 + float(chdtri(1, 1 - level))

    def entropy(self, value: float, population: _Population) -> tuple[float, float]:
        """How far it may be below and above its value, where the fitted population is this one.

        All shares add up to 1, so if those of rare items grow by x, the entropy loses (H − 1)·x in return.
        """
        total, t = self.sample.total, np.arange(1.0, RARE + 1)
        shown = t / total * (np.maximum(digamma(total) - digamma(t), 0.0) - value + 1)

        def weights(means: Floats) -> Floats:
            return np.asarray(means / total * (exp1(means) - (value - 1) * np.exp(-means)))

        low, high = self.between(shown @ _poisson(self.means) + weights(self.means))
        here = float(shown @ self.sample.rare + weights(population.means) @ population.items)
        return here - low, high - here

    def coverage(self, value: float) -> tuple[float, float]:
        """The same of the coverage: N_1/n is missed in the mean, by n·p for each item that is not seen."""
        total, t = self.sample.total, np.arange(1.0, RARE + 1)
        missed = ((t == 1) - (1 - value) * t) / total  # n itself moves with N_t
        low, high = self.between(missed @ _poisson(self.means))
        here = float(missed @ self.sample.rare)
        chance = self.quantile * math.sqrt(2 * float(self.expected[1])) / total
        return math.hypot(max(high - here, 0.0), chance), math.hypot(max(here - low, 0.0), chance)

    def new_items(self, value: float) -> tuple[float, float]:
        """The same of the new items, which are a Poisson number about what is expected."""
        low, high = self.between(np.exp(-self.means) * -np.expm1(-self.means))
        below, above = (self.quantile * math.sqrt(max(end, 0.0)) for end in (low, high))
        return math.hypot(max(value - low, 0.0), below), math.hypot(max(high - value, 0.0), above)

    def between(self, weights: Floats) -> tuple[float, float]:
        """Return the least and the largest Σ weights·μ: where the misfit has become too large, by halving."""
        begin = float(weights @ self.likeliest)
        return self._end(weights, begin, -1), self._end(weights, begin, 1)

    def _end(self, weights: Floats, begin: float, sign: int) -> float:
        step = 0.01 * max(abs(begin), float(np.abs(weights).max()))
        while self._fits(weights, begin + sign * step):
            step *= 2
        inside, outside = begin + sign * step / 2, begin + sign * step
        for _ in range(HALVINGS):
            middle = (inside + outside) / 2
            inside, outside = (middle, outside) if self._fits(weights, middle) else (inside, middle)
        return outside

    def _fits(self, weights: Floats, value: float) -> bool:
        """Whether a population with Σ weights·μ = value is among them."""
        scale = STIFF / float(np.abs(weights).max())
        law, seen = np.vstack([self.law, scale * weights]), np.append(self.seen, scale * value)
        _, misfit = nnls(law, seen, maxiter=100 * RAREST)
        return bool(misfit**2 <= self.most)


def _poisson(means: Floats) -> Floats:
    """e^−λ·λ^t/t! for t = 1, …, RARE and every λ."""
    t = np.arange(1.0, RARE + 1)[:, None]
    return np.asarray(np.exp(t * np.log(means) - means - gammaln(t + 1)))
