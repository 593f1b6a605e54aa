"""The noise against its exact law, 10⁹ samples for each ε and ρ, and every threshold of its tables to the last bit.

Samples are compared with the law of ``_law.py``, which shares nothing with the package: χ² over all outcomes expected
at least five times (classes of outcomes where the law is wide), the most powerful test of the scale (its score), the
mean, both tails, symmetry, and independence of neighbours, of cells two and 65,536 apart and of the same cell in the
next call. Thresholds are computed once more with mpmath.

**Rule.** All p-values of the run, m of them, are held against FALSE_ALARM/m (Bonferroni): a right sampler passes the
whole run with probability at least 1 − FALSE_ALARM. The same tests must reject noise whose scale is off by 0.1 %,
whose mean is off by 0.1 % of σ, and of which one cell in a thousand repeats its neighbour. Where the law is so narrow
that 10⁹ samples cannot show 0.1 % of scale, the table says which error they do show with a probability of 99.9 %.
"""

from __future__ import annotations

import math
import sys
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from _audit import ROOT, Audit, table
from _law import FEWEST, Classes, classes, cut, density
from scipy.stats import binom, chi2, norm, poisson

sys.path.insert(0, str(Path(ROOT) / "tests"))
from oracles_noise import floor_scaled, laplace_cdf, negative_binomial_cdf
from unnoise import discrete_laplace
from unnoise._thresholds import Geometric, GeometricDigit, Laplace, Law, NegativeBinomial, floor_thresholds
from unnoise.testing import seeded

FALSE_ALARM = 1e-6
POWER = 0.999
ENOUGH = 30
"""Repeated cells expected outside the commonest outcome from which on the repeated variant must be noticed."""

SHORT = (1, 4, 6, 8, 11, 14)
"""The laws of a short run, by their places in CASES."""

CALL = 1 << 22
"""Samples of one call."""

LAGS = (1, 2, 1 << 16)
CASES = [
    *((epsilon, "1") for epsilon in ("1", "0.1", "10", "3", "0.001")),
    *((epsilon, "2") for epsilon in ("1", "0.1")),
    *((epsilon, "1/2") for epsilon in ("1", "0.01", "10")),
    *((epsilon, "1/10") for epsilon in ("1", "0.1", "10")),
    *((epsilon, "5/2") for epsilon in ("1", "0.1")),
    ("0.000001", "1"),
]  # fmt: skip


def two_sided(z: float) -> float:
    return float(2 * norm.sf(abs(z)))


def chi_square(found: np.ndarray, expected: np.ndarray) -> float:
    """Return the p-value of χ² over classes expected five times or more; the others together are a Poisson number."""
    few = expected < FEWEST
    statistic, free = ((found - expected)[~few] ** 2 / expected[~few]).sum(), (~few).sum() - 1
    parts = [float(chi2.sf(statistic, free))] if free > 0 else []
    if few.any():
        seen, mean = found[few].sum(), expected[few].sum()
        parts.append(float(2 * min(poisson.cdf(seen, mean), poisson.sf(seen - 1, mean))))
    return min(1.0, len(parts) * min(parts))


class Tally:
    """What is kept of the samples: how many fell into each class, their sum, and pairs of categories."""

    def __init__(self, law: Classes, cuts: list[int]) -> None:
        self.law, self.cuts = law, cuts
        self.number, self.sum = 0, 0
        self.found = np.zeros(law.probability.size, dtype=np.int64)
        kinds = len(cuts) + 1
        self.pairs = {name: np.zeros(kinds * kinds, dtype=np.int64) for name in (*LAGS, "next call")}
        self.before: np.ndarray | None = None

    def add(self, samples: np.ndarray) -> None:
        self.number += samples.size
        self.sum += int(samples.sum())
        self.found += np.bincount(self.law.of(samples), minlength=self.found.size)
        category = sum((samples >= cut).view(np.int8) for cut in self.cuts)
        for lag in LAGS:
            self._pair(lag, category[:-lag], category[lag:])
        if self.before is not None:
            self._pair("next call", self.before, category)
        self.before = category

    def _pair(self, name: Any, first: np.ndarray, second: np.ndarray) -> None:
        pair = first * np.int8(len(self.cuts) + 1)
        pair += second
        twice = np.bincount(pair[: pair.size // 2 * 2].view(np.uint16), minlength=1 << 16).reshape(256, 256)
        kinds = self.pairs[name].size
        self.pairs[name] += twice.sum(axis=0)[:kinds] + twice.sum(axis=1)[:kinds]  # two pairs to a 16-bit word


def score(epsilon: float, power: Fraction, law: Classes, farthest: int) -> np.ndarray:
    """Return d log P(class) / d log scale for every class."""
    h = 1e-4
    up, down = (cut(density(epsilon * f, power, farthest), law.width, law.half) for f in (1 - h, 1 + h))
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = (np.log(up.probability) - np.log(down.probability)) / (2 * h)
    return np.where(law.probability > 1e-15, slope, 0.0)


def p_values(tally: Tally, law: Classes, slope: np.ndarray, sd: float) -> dict[str, float]:
    """Return the p-values of a tally against a law with the same classes."""
    n, found, p = tally.number, tally.found, law.probability
    middle = law.half + 1
    mean, spread = p @ slope, math.sqrt(p @ slope**2 - (p @ slope) ** 2)
    above, below = found[middle + 1 :], found[:middle][::-1]
    both = (above + below).astype(float)
    enough = both >= 2 * FEWEST
    out = {
        "χ²": chi_square(found, n * p),
        "scale": two_sided((found @ slope / n - mean) / spread * math.sqrt(n)),
        "mean": two_sided(tally.sum / sd / math.sqrt(n)),
        "symmetry": float(chi2.sf(((above - below)[enough] ** 2 / both[enough]).sum(), enough.sum())),
    }
    beyond = np.cumsum(p)
    edge = int(np.searchsorted(n * beyond, 20))
    for name, seen in (("lower tail", found[: edge + 1].sum()), ("upper tail", found[::-1][: edge + 1].sum())):
        out[name] = float(min(1, 2 * min(binom.cdf(seen, n, beyond[edge]), binom.sf(seen - 1, n, beyond[edge]))))
    return out


def independence(pairs: np.ndarray, share: np.ndarray) -> float:
    """Return the p-value of pairs of categories against independent ones of the given shares."""
    return chi_square(pairs, pairs.sum() * np.outer(share, share).ravel())


def one_case(epsilon: str, power: str, size: int, off: float, seed: int) -> dict[str, Any]:
    """Draw the samples of one law; return p-values, those of the broken variants, and what can be seen at this size."""
    e, rho = float(Fraction(epsilon)), Fraction(power)
    calls = -(-size // CALL) if size > CALL else 1
    number = calls * min(size, CALL)
    law = classes(e, rho, number)
    farthest = law.reach + int(20 / e) + 20
    p = density(e, rho, farthest)
    upper = np.cumsum(p[::-1])[::-1]  # P(Z ≥ z), z ≥ 0
    quartile = int(np.searchsorted(-upper, -0.25))
    cuts = [-quartile, 0, quartile + 1] if quartile else [0, 1]
    at_least = [float(upper[c]) if c >= 0 else 1 - float(upper[1 - c]) for c in cuts]
    share = -np.diff([1.0, *at_least, 0.0])
    tally = Tally(law, cuts)
    with seeded(seed):
        for _ in range(calls):
            tally.add(discrete_laplace(min(size, CALL), epsilon, power=power))
    slope, sd = score(e, rho, law, farthest), math.sqrt(2 * rho * math.exp(-e)) / -math.expm1(-e)
    clean = p_values(tally, law, slope, sd)
    clean |= {f"pairs {name}": independence(pairs, share) for name, pairs in tally.pairs.items() if pairs.any()}
    information = float(law.probability @ slope**2 - (law.probability @ slope) ** 2)
    return {
        "samples": number, "classes": int(law.probability.size), "width": law.width, "clean": clean,
        "broken": broken(tally, e, rho, slope, sd, share, off, seed), "information": information,
        "repeats": off * number * float(1 - share.max()),
    }  # fmt: skip


def broken(
    tally: Tally, e: float, rho: Fraction, slope: np.ndarray, sd: float, share: np.ndarray, off: float, seed: int
) -> dict[str, float]:
    """Return the smallest p-value of each broken variant.

    A scale that is off: these samples against the law that is off. A mean that is off: adding 1 with some probability
    to each sample adds a binomial number to their sum, which is all that the mean's test sees. Repeats: of the pairs
    of neighbours a binomial number of each kind becomes a repetition of its first.
    """
    rng, found, law = np.random.default_rng(seed), {}, tally.law
    for name, factor in (("wide", 1 / (1 + off)), ("narrow", 1 / (1 - off))):
        other = cut(density(e * factor, rho, law.reach + int(20 / e) + 20), law.width, law.half)
        found[name] = min(p_values(tally, other, slope, sd).values())
    whole, rest = divmod(off * sd, 1)
    moved = tally.sum + tally.number * int(whole) + int(rng.binomial(tally.number, rest))
    found["shifted"] = two_sided(moved / sd / math.sqrt(tally.number))
    pairs = tally.pairs[1].reshape(share.size, share.size)
    gone = rng.binomial(pairs, off)
    found["repeated"] = independence((pairs - gone + np.diag(gone.sum(axis=1))).ravel(), share)
    return found


def thresholds(law: Law, most: int, seed: int) -> dict[str, int]:
    """Compare thresholds with mpmath: all of them, or ``most`` of them drawn at random, and those of doubles beside."""
    first, exact = floor_thresholds(law)
    places = np.arange(len(exact))
    if places.size > most:
        places = np.sort(np.random.default_rng(seed).choice(places, most, replace=False))
    wrong = rounded = 0
    for j in places.tolist():
        true = cumulative(law, first + j)
        wrong += exact[j] != floor_scaled(true, 64)
        rounded += exact[j] != int(float(true) * 2.0**64)
    return {"thresholds": len(exact), "compared": int(places.size), "wrong": int(wrong), "rounded": int(rounded)}


def cumulative(law: Law, k: int) -> Any:
    """Return P(Z ≤ k) to far more than 64 bits, with mpmath."""
    import mpmath as mp

    if isinstance(law, Laplace):
        return laplace_cdf(law.epsilon, k, 64 + math.ceil(3 * law.epsilon * (abs(k) + 2)))
    if isinstance(law, NegativeBinomial):
        return negative_binomial_cdf(law.epsilon, law.power, k, 64)
    with mp.workprec(400):
        log_a = -mp.mpf(law.epsilon.numerator) / law.epsilon.denominator  # type: ignore[attr-defined]
        below = -mp.expm1(log_a * (k + 1))
        return below / -mp.expm1(log_a * law.base) if isinstance(law, GeometricDigit) else below


TABLES: dict[str, Law] = {
    **{f"ε = {e}": Laplace(Fraction(e)) for e in ("0.001", "0.01", "0.1", "1/3", "1", "3", "10", "500")},
    "geometric, ε = 0.016384": Geometric(Fraction("0.016384")),
    "digits, ε = 0.000001": GeometricDigit(Fraction("0.000001"), 1 << 14),
    "digits, ε = 1e-12": GeometricDigit(Fraction(1, 10**12), 1 << 14),
    **{
        f"ρ' = {r}, ε = {e}": NegativeBinomial(Fraction(e), Fraction(r)) for e in ("0.01", "1") for r in ("1/2", "1/10")
    },
}


def seen_at(information: float, samples: int, level: float) -> float:
    """Return the relative error of scale that is rejected with probability POWER."""
    return float((norm.isf(level / 2) + norm.isf(1 - POWER)) / math.sqrt(samples * information))


def judge(name: str, found: dict[str, Any], level: float, off: float) -> tuple[list[str], list[str]]:
    """Return what failed in one case, and its row of the table."""
    clean, broken_ones = found["clean"], found["broken"]
    visible = seen_at(found["information"], found["samples"], level)
    failures = [f"{name}: {test} has p = {p:.2g}" for test, p in clean.items() if p < level]
    for variant, p in broken_ones.items():
        able = {"wide": visible <= off, "narrow": visible <= off, "repeated": found["repeats"] >= ENOUGH}
        if p >= level and able.get(variant, True):
            failures.append(f"{name}: the {variant} variant was not noticed, p = {p:.2g}")
    worst = min(clean, key=clean.get)
    caught = [variant for variant, p in broken_ones.items() if p < level]
    return failures, [
        name, f"{found['classes']:,} of {found['width']}", f"{clean[worst]:.2g} ({worst})",
        "all" if len(caught) == len(broken_ones) else ", ".join(caught) or "none", f"{100 * visible:.2g} %",
    ]  # fmt: skip


def main() -> None:
    audit = Audit("sampler", __doc__, samples=(10**9, 10**6), thresholds=(4000, 60), off=(1e-3, 0.05))
    off, chosen = audit["off"], [CASES[i] for i in SHORT] if audit.short else CASES
    calls = {f"ε = {e}, ρ = {r}": partial(one_case, e, r, audit["samples"], off, audit.seed) for e, r in chosen}
    results = audit.run(calls)
    bits = audit.run({n: partial(thresholds, law, audit["thresholds"], audit.seed) for n, law in TABLES.items()})
    tests = sum(len(found["clean"]) for found in results.values())
    failures, rows = [], []
    for name, found in results.items():
        failed, row = judge(name, found, FALSE_ALARM / tests, off)
        failures += failed
        rows.append(row)
    failures += [f"{name}: {f['wrong']} thresholds differ from mpmath's" for name, f in bits.items() if f["wrong"]]
    failures += [f"{name}: rounded thresholds were not noticed" for name, f in bits.items() if not f["rounded"]]
    compared, wrong, rounded = (sum(f[key] for f in bits.values()) for key in ("compared", "wrong", "rounded"))
    most = max(found["samples"] for found in results.values())
    text = "\n\n".join([
        table(["noise", "classes", "smallest p (of)", "broken variants noticed", "scale error noticed"], rows),
        f"{tests} tests, each at {FALSE_ALARM:g}/{tests}: a right sampler passes all of them with probability at least "
        f"1 − {FALSE_ALARM:g}. Broken on purpose: *wide* and *narrow* (scale {100 * off:g} % off), *shifted* (mean off "
        f"by {100 * off:g} % of σ), *repeated* (a share of {off:g} of the cells repeats its neighbour). The last "
        f"column is the error of scale that {most:,} samples of this law show with a probability of {POWER}, computed "
        f"from its Fisher information; above {100 * off:g} % the law is too narrow, and *wide* and *narrow* may pass. "
        f"So may *repeated* where fewer than {ENOUGH} of the repeated cells are expected not to be 0.",
        f"Thresholds: {compared:,} of {sum(f['thresholds'] for f in bits.values()):,} in {len(bits)} tables compared "
        f"with mpmath at 64 bits, {wrong} differ; of the same thresholds rounded to doubles {rounded:,} differ.",
    ])  # fmt: skip
    summary = f"{len(rows)} laws with {most:,} samples each, {len(failures)} failures in {tests} tests"
    audit.close(summary, text, failures, "scipy", "mpmath")


if __name__ == "__main__":
    main()
