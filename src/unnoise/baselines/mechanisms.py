"""Private baselines: mechanisms with a name, a source, a trust model and a unit, from true counts to a profile.

**Cells.** Some see one noisy count for every item of a known domain, and nothing else. Noise of parameter ε on every
cell protects one occurrence; it can be there before the first item (pan-private), and cells of several sites can be
added. What differs is what is made of them.

**A trusted holder** puts noise on bins of the profile, on sorted counts, or on both ends of the curve. Sorted counts x₁
≥ x₂ ≥ … and the curve S(t) = #{x ≥ t} are the two sides of one Young diagram: one occurrence more adds one box, so
either has sensitivity 1, and so has the curve up to τ together with what of the sorted counts lies above τ.

**Partitions** (Blocki, Datta, Bonneau 2016): the exponential mechanism over integer partitions. A partition y is drawn
with probability ∝ e^(−ε·‖x − y‖₁/2). Sorted counts and the curve S are the two sides of one Young diagram, so ‖x − y‖₁
= Σ_t |S_x(t) − S_y(t)|, and falling curves with these weights are a chain: with w_t(v) = e^(−ε|S(t) − v|/2) and
messages m_t(v) = w_t(v)·Σ_{u ≤ v} m_{t+1}(u), one pass backwards and one forwards sample it exactly, within a band |v −
S(t)| ≤ B (δ in the paper's sense) and up to a public bound on t. Floating point: for comparison, not for release.

**Graphs** (Karwa & Slavković 2012): degrees that are again degrees of a graph, and a graph that has them. One edge more
changes two degrees by 1: noise of parameter ε/2 on the sorted degrees, isotonic regression, then the nearest sequence
found that is graphical (their Algorithm 2 picks the highest remaining degree, connects it to the next highest and so
peels the sequence, as Havel and Hakimi do). Unit: one edge, that is two occurrences of nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.optimize import isotonic_regression

from .._sampler import discrete_laplace, open_stream
from ..arrays import Floats, Int64
from ..errors import InputError
from ..estimators.isotonic import isotonic
from ..estimators.methods import Fit
from ..estimators.paper import lp as linear_program
from ..noise import Exact, exact_positive
from ..noisy import NoisyProfile

__all__ = [
    "Mechanism", "Released", "as_true_counts", "bins", "blocki", "from_curve", "from_values", "ghazi", "graphical",
    "hay", "karwa", "karwa_degrees", "lp", "manurangsi", "naive", "noise", "public_bound", "suresh",
    "synthetic_graph", "thresholded",
]  # fmt: skip

Model = Literal["central", "pan-private", "local noise"]


@dataclass(frozen=True, eq=False)
class Released:
    """What a mechanism says: ``items[i]`` items have count ``support[i]`` ≥ 1, ascending."""

    support: Int64
    items: Floats


@dataclass(frozen=True)
class Mechanism:
    """One system of the field.

    model : "central" (one trusted holder of the rows), "pan-private" (its state is protected too), "local noise" (noise
        before anything leaves a site)
    unit : what ε protects, added or removed
    citation : where it comes from
    chosen : what we chose where its source leaves it open, or asks for something that we do not have
    """

    name: str
    model: Model
    unit: str
    citation: str
    run: Callable[[Int64, Exact], Released]
    chosen: str = ""

    def __call__(self, counts: Any, epsilon: Exact) -> Released:
        """Release a profile of true counts."""
        return self.run(as_true_counts(counts), epsilon)


def as_true_counts(counts: Any) -> Int64:
    """Return the true counts of all items of the domain, zeros included."""
    array = np.asarray(counts)
    if array.ndim != 1 or array.dtype.kind not in "iu" or (array.size and int(array.min()) < 0):
        raise InputError("counts must be a one-dimensional array of integers ≥ 0")
    return array.astype(np.int64)


def noise(size: int, epsilon: Exact, changes: int = 1) -> Int64:
    """Discrete Laplace noise for numbers of which one unit moves ``changes`` in all."""
    from ..noise import exact_positive

    return discrete_laplace(size, exact_positive("epsilon", epsilon) / changes)


def public_bound(counts: Int64) -> int:
    """Return a bound on counts for mechanisms that need one: ten times the largest, at least 100, as if somebody knew.

    >>> public_bound(np.array([3, 25])), public_bound(np.array([1]))
    (250, 100)
    """
    return max(100, 10 * int(counts.max(initial=1)))


def from_values(values: Any) -> Released:
    """Return the profile of a list of (fractional) counts, each rounded to the nearest integer."""
    whole = np.rint(np.asarray(values, dtype=float)).astype(np.int64)
    support, items = np.unique(whole[whole > 0], return_counts=True)
    return Released(support, items.astype(float))


def from_curve(reached: Any) -> Released:
    """Return the profile whose items with count ≥ t are reached[t − 1], a falling curve ≥ 0.

    >>> released = from_curve([5, 5, 2])
    >>> released.support.tolist(), released.items.tolist()
    ([2, 3], [3.0, 2.0])
    """
    curve = np.append(np.asarray(reached, dtype=float), 0.0)
    step = curve[:-1] - curve[1:]
    at = np.flatnonzero(step > 0)
    return Released(at + 1, step[at])


def naive(counts: Int64, epsilon: Exact) -> Released:
    """Clamp the noisy counts at 0 and count them: what people do. Every empty cell seems full with odds a/(1 + a)."""
    return from_values(np.maximum(counts + noise(counts.size, epsilon), 0))


def _as_items(fit: Fit, cells: int) -> Released:
    some = fit.support > 0
    return Released(fit.support[some], fit.mass[some] * cells)


def ghazi(counts: Int64, epsilon: Exact) -> Released:
    """Ghazi et al. 2022: the unbiased cumulative curve of the noisy counts, projected onto falling curves."""
    noisy = NoisyProfile.from_counts(counts + noise(counts.size, epsilon), epsilon=epsilon)
    return _as_items(isotonic(noisy), counts.size)


def lp(counts: Int64, epsilon: Exact) -> Released:
    """Dwork et al. 2010: the profile whose noised version is nearest in ℓ∞, by linear programming."""
    noisy = NoisyProfile.from_counts(counts + noise(counts.size, epsilon), epsilon=epsilon)
    return _as_items(linear_program(noisy, norm=np.inf), counts.size)


def _curve(counts: Int64, top: int) -> Int64:
    """S(1), …, S(top)."""
    reached = np.bincount(np.minimum(counts, top), minlength=top + 1)
    return np.asarray(np.cumsum(reached[::-1])[::-1][1:])


def _falling(values: Floats) -> Floats:
    if values.size == 0:
        return values
    return np.asarray(np.clip(isotonic_regression(values, increasing=False).x, 0, None))


def bins(counts: Int64, epsilon: Exact) -> Released:
    """Noise on every bin of the profile up to a public bound; one occurrence leaves one bin and enters another."""
    top = public_bound(counts)
    profile = np.bincount(counts[counts > 0], minlength=top + 1)[1:]
    noisy = np.maximum(profile + noise(top, epsilon, 2), 0)
    at = np.flatnonzero(noisy)
    return Released(at + 1, noisy[at].astype(float))


def thresholded(counts: Int64, epsilon: Exact, delta: float = 1e-9) -> Released:
    """The same with bins below a threshold suppressed: ln(1/2δ)·2/ε above nothing, so that no bin appears by noise."""
    found = bins(counts, epsilon)
    least = math.log(1 / (2 * delta)) * 2 / float(exact_positive("epsilon", epsilon))
    kept = found.items >= least
    return Released(found.support[kept], found.items[kept])


def hay(counts: Int64, epsilon: Exact) -> Released:
    """Hay et al. 2009, 2010: noise on the sorted counts, then isotonic regression; the number of items is public."""
    ordered = np.sort(counts)[::-1]
    return from_values(_falling((ordered + noise(ordered.size, epsilon)).astype(float)))


def _two_ends(counts: Int64, epsilon: Exact, changes: int) -> Released:
    """Noise on S up to τ and on the sorted counts above τ; ``changes`` is 1 for both at once, 2 for ε split evenly."""
    total = int(counts.sum())
    split = max(1, math.ceil(math.sqrt(total / float(exact_positive("epsilon", epsilon)))))
    small = _falling((_curve(counts, split) + noise(split, epsilon, changes)).astype(float))
    places = min(counts.size, total // split + 1)
    above = np.sort(np.maximum(counts - split, 0))[::-1][:places]
    large = _falling((above + noise(places, epsilon, changes)).astype(float))
    giants = large[large >= 0.5]
    body = from_curve(small)
    if not giants.size or small[-1] <= 0:
        return body
    kept = min(giants.size, max(1, round(small[-1])))
    head = from_values(split + giants[:kept])
    at = body.support < split
    rest = max(float(small[-1]) - kept, 0.0)
    support, where = np.unique(np.concatenate([body.support[at], [split], head.support]), return_inverse=True)
    items = np.bincount(where, weights=np.concatenate([body.items[at], [rest], head.items]))
    return Released(support[items > 0], items[items > 0].astype(float))


def suresh(counts: Int64, epsilon: Exact) -> Released:
    """Suresh 2019: prevalences of small counts and sorted large counts, half of ε for each."""
    return _two_ends(counts, epsilon, 2)


def manurangsi(counts: Int64, epsilon: Exact) -> Released:
    """Manurangsi 2022: the same two ends, but as one vector of sensitivity 1, at the whole ε."""
    return _two_ends(counts, epsilon, 1)


BAND = 48.0
"""Half-width of the band in units of 1/ε: e^(−24) is left outside."""


def blocki(counts: Int64, epsilon: Exact) -> Released:
    """Draw a partition by the exponential mechanism."""
    scale = float(exact_positive("epsilon", epsilon)) / 2
    top = public_bound(counts)
    reached = np.bincount(np.minimum(counts, top), minlength=top + 1)
    curve = np.cumsum(reached[::-1])[::-1][1:].astype(np.int64)
    half = math.ceil(BAND / (2 * scale))
    return from_curve(_draw(curve, half, scale))


def _draw(curve: Int64, half: int, scale: float) -> Int64:
    """Sample a falling curve within ``half`` of this one."""
    offsets = np.arange(-half, half + 1)
    weight = np.exp(-scale * np.abs(offsets))
    sums = np.empty((curve.size, offsets.size))
    below: Floats = np.ones(offsets.size)  # past the end there is one curve: 0
    for t in range(curve.size - 1, -1, -1):
        message = np.where(curve[t] + offsets >= 0, weight * below, 0.0)
        sums[t] = np.cumsum(message / message.sum())
        if t:
            at = np.clip(curve[t - 1] + offsets - curve[t] + half, -1, offsets.size - 1)
            below = np.where(at >= 0, sums[t][np.maximum(at, 0)], 0.0)
    uniform = open_stream().words(curve.size) / 2.0**64
    drawn = np.empty(curve.size, dtype=np.int64)
    limit = offsets.size - 1
    for t in range(curve.size):
        if t:
            limit = min(int(drawn[t - 1] - curve[t]) + half, offsets.size - 1)
        index = int(np.searchsorted(sums[t][: limit + 1], uniform[t] * sums[t][limit], side="right"))
        drawn[t] = curve[t] + offsets[min(index, limit)]
    return drawn


MOST = 5000
"""Nodes above which released degrees are not made graphical: peeling takes the square of their number."""


def karwa_degrees(degrees: Int64, epsilon: Exact) -> Int64:
    """Return released degrees, descending, of a simple graph (up to MOST nodes); their number is public."""
    ordered = np.sort(degrees)[::-1]
    noisy = (ordered + noise(ordered.size, epsilon, 2)).astype(float)
    fitted = isotonic_regression(noisy, increasing=False).x if noisy.size else noisy
    whole = np.clip(np.rint(fitted), 0, max(ordered.size - 1, 0)).astype(np.int64)
    return graphical(whole) if whole.size <= MOST else whole


def karwa(counts: Int64, epsilon: Exact) -> Released:
    """The profile of the released degrees; ε is for one occurrence here, half an edge."""
    from ..noise import exact_positive

    return from_values(karwa_degrees(counts, 2 * exact_positive("epsilon", epsilon)))


def graphical(degrees: Int64) -> Int64:
    """Return degrees of a simple graph near these, descending: by peeling off the highest, stubs that fit nowhere left.

    >>> graphical(np.array([5, 1, 1, 1])).tolist()
    [3, 1, 1, 1]
    """
    left = np.sort(np.asarray(degrees, dtype=np.int64))[::-1].copy()
    kept = np.zeros_like(left)
    order = np.arange(left.size)
    for _ in range(left.size):
        ranked = np.argsort(-left[order], kind="stable")
        order = order[ranked]
        first, others = order[0], order[1:]
        wanted = int(left[first])
        if wanted <= 0:
            break
        partners = others[:wanted][left[others[:wanted]] > 0]
        kept[first] += partners.size
        kept[partners] += 1
        left[partners] -= 1
        left[first] = 0
        order = others
    return np.sort(kept)[::-1]


def synthetic_graph(degrees: Int64) -> Any:
    """Return a networkx graph with exactly these degrees (Havel–Hakimi)."""
    try:
        import networkx
    except ImportError as error:
        raise InputError("a synthetic graph needs networkx: pip install 'unnoise[graphs]'") from error
    return networkx.havel_hakimi_graph([int(d) for d in degrees])
