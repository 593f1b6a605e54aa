"""Every baseline keeps a figure or bound of its own paper; and the direct model is beside them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chi2, t

from command_tools import run_in
from oracles_answers import holds_between
from statistics_tools import differ
from unnoise import testing
from unnoise.baselines import (
    BASELINES,
    SUMMARIES,
    Released,
    graphical,
    karwa_degrees,
    mechanisms,
    synthetic_graph,
    vector_of_counts,
)
from unnoise.baselines.mechanisms import _draw, thresholded
from unnoise.errors import IncompatibleError, InputError
from unnoise.noise import DiscreteLaplace

ALARM = 1e-9


def zipf(items: int, seed: int = 1) -> np.ndarray:
    return np.minimum(np.random.default_rng(seed).zipf(1.8, items), 2000)


def boxes(released: Released, counts: np.ndarray) -> float:
    """‖sorted counts − sorted counts‖₁ = Σ |S − Ŝ|, the error of this literature."""
    top = int(max(counts.max(initial=1), released.support.max(initial=1)))
    true = np.cumsum(np.bincount(counts, minlength=top + 1)[::-1])[::-1][1:]
    mine = np.zeros(top + 1)
    mine[released.support] = released.items
    return float(np.abs(np.cumsum(mine[::-1])[::-1][1:] - true).sum())


def mean_error(name: str, counts: np.ndarray, epsilon: float, runs: int = 8) -> float:
    """The mean over releases of a fixed seed: what is compared here has no law to compute a threshold from."""
    with testing.seeded(7):
        return float(np.mean([boxes(BASELINES[name](counts, epsilon), counts) for _ in range(runs)]))


@pytest.mark.parametrize("name", sorted(BASELINES))
def test_without_noise_every_mechanism_is_right(name: str) -> None:
    """But for what a mechanism leaves out by design; each says who trusts whom, and for what ε is."""
    mechanism = BASELINES[name]
    assert mechanism.citation
    assert mechanism.model in ("central", "pan-private", "local noise")
    counts = np.concatenate([np.zeros(20, dtype=int), np.full(60, 1), np.full(40, 2), [3, 3, 10]])
    if name == "blocki":  # draws by itself: a large ε instead
        found = mechanism(counts, 60)
    else:
        with testing.noiseless():
            found = mechanism(counts, 30)
    wanted = {1: 60, 2: 40, 3: 2, 10: 1}
    if name in ("thresholded",):
        wanted = {1: 60, 2: 40, 3: 2}
    assert {int(t): round(float(n)) for t, n in zip(found.support, found.items) if round(float(n))} == wanted


def test_bad_counts_are_refused() -> None:
    for counts in ([-1], [1.5], [[1]]):
        with pytest.raises(InputError, match="counts must be"):
            BASELINES["hay"](counts, 1)


@pytest.mark.statistical
def test_naive_fills_the_expected_share_of_empty_cells() -> None:
    a, cells = math.exp(-1), 20_000
    found = BASELINES["naive"](np.zeros(cells, dtype=int), 1)
    assert holds_between(int(found.items.sum()), cells, a / (1 + a), a / (1 + a))
    assert not holds_between(int(found.items.sum()), cells, 0.3, 0.4)


@pytest.mark.statistical
def test_bins_carry_noise_for_sensitivity_two() -> None:
    """Laplace mechanism: as many bins are off by at most one as noise at ε/2 leaves; at ε (the control) it is more."""
    counts = np.repeat(np.arange(1, 401), 300)
    found = BASELINES["bins"](counts, 1)
    near = int((np.abs(found.items[found.support <= 400] - 300) <= 1).sum())
    half, whole = (float(DiscreteLaplace(e).pmf([-1, 0, 1]).sum()) for e in ("1/2", 1))
    assert holds_between(near, 400, half, half)
    assert not holds_between(near, 400, whole, whole)


@pytest.mark.statistical
def test_thresholds_let_a_bin_appear_by_noise_as_rarely_as_they_say() -> None:
    """An empty bin is shown with probability P(Z ≥ threshold) ≤ δ; at half the threshold (the control) more often."""
    delta, empty = 0.02, 9 * 2000
    counts = np.repeat(np.arange(1, 2001), 200)  # bins up to ten times the largest count: the rest are empty
    shown = int((thresholded(counts, 1, delta).support > 2000).sum())
    least = math.ceil(math.log(1 / (2 * delta)) * 2)
    chance = float(DiscreteLaplace("1/2").pmf(np.arange(least, 400)).sum())
    assert chance <= delta
    assert holds_between(shown, empty, chance, chance)
    looser = float(DiscreteLaplace("1/2").pmf(np.arange(least // 2, 400)).sum())
    assert not holds_between(shown, empty, looser, looser)


def test_the_linear_program_errs_as_little_as_the_tally_of_its_noise() -> None:
    """What its profile looks like through the noise is within 2·√(ln(2V/β)/2d) of the truth's, V values, β = 1e-9.

    The truth is feasible, and by Hoeffding no share of the tally is farther from it than half of that; the program
    finds what is nearest. Clamped noisy counts, the control, are farther away.
    """
    counts = np.repeat([0, 1, 2, 7], [180_000, 120_000, 60_000, 40_000])
    law, values = DiscreteLaplace(1), np.arange(-30, 60)

    def through(support: np.ndarray, items: np.ndarray) -> np.ndarray:
        share = np.append(items, counts.size - items.sum()) / counts.size
        return np.array([law.pmf(values - t) for t in np.append(support, 0)]).T @ share

    truth = through(np.array([1, 2, 7]), np.array([12e4, 6e4, 4e4]))
    bound = 2 * math.sqrt(math.log(2 * values.size / ALARM) / (2 * counts.size))
    off = {}
    for name in ("lp", "naive"):
        found = BASELINES[name](counts, 1)
        off[name] = float(np.abs(through(found.support, found.items) - truth).max())
    print(off, bound)
    assert off["lp"] < bound < off["naive"]


def test_hay_has_the_error_of_its_theorem() -> None:
    """VLDB 2010, Theorem 2: where sorted counts have few distinct values, O(log³ n/ε²) in all instead of 2n/ε²."""
    counts, epsilon = np.full(4000, 50), 1.0
    squares = []
    for seed in range(6):
        with testing.seeded(seed):
            found = BASELINES["hay"](counts, epsilon)
        squares.append(float(((found.support - 50) ** 2) @ found.items))
    plain = counts.size * DiscreteLaplace(epsilon).variance
    print(f"{np.mean(squares):.1f} against {plain:.0f}, log³ n = {math.log(4000) ** 3:.0f}")
    assert np.mean(squares) < math.log(counts.size) ** 3 / epsilon**2 < plain / 10


@pytest.mark.parametrize("name", ["suresh", "manurangsi", "blocki", "ghazi"])
def test_sorted_counts_err_like_the_root_of_their_sum(name: str) -> None:
    """ℓ1 of sorted counts O(√N/ε) (Blocki et al.; √(N/ε) up to logarithms for the others): 16 times N, 4 times that.

    naive, the control, errs like N. Of all of them suresh scatters most (by 0.33 and 0.44 of its mean; their ratio is
    5.7): over 60 runs 8 is more than five standard errors away. blocki is slow, and scatters by 0.12.
    """
    items, runs = (300, 2) if name == "blocki" else (1500, 60)
    small, large, epsilon = zipf(items), np.tile(zipf(items), 16), 1.0
    errors = [mean_error(name, counts, epsilon, runs) for counts in (small, large)]
    bound = 4 * math.sqrt(large.sum()) / epsilon
    print(name, errors, bound)
    assert errors[1] < (bound if name != "ghazi" else 4 * bound)
    assert errors[1] / errors[0] < 8
    clamped = [mean_error("naive", counts, epsilon, 2) for counts in (small, large)]
    assert clamped[1] / clamped[0] > 10


def test_one_vector_beats_a_split_budget() -> None:
    counts = zipf(20_000)
    assert mean_error("manurangsi", counts, 0.5, 12) < mean_error("suresh", counts, 0.5, 12)


@pytest.mark.statistical
def test_partitions_are_drawn_by_the_exponential_mechanism() -> None:
    """All falling curves within the band of a tiny one, against their weights; a wrong ε is rejected."""
    curve, half, scale, runs = np.array([2, 1]), 2, 0.5, 6000
    seen: dict[tuple[int, ...], int] = {}
    for _ in range(runs):
        drawn = tuple(int(v) for v in _draw(curve, half, scale))
        seen[drawn] = seen.get(drawn, 0) + 1

    def statistic(power: float) -> tuple[float, float]:
        weights = {
            (u, v): math.exp(-power * (abs(u - 2) + abs(v - 1))) for u in range(5) for v in range(4) if v <= u
        }
        whole = sum(weights.values())
        rest = [(seen.get(k, 0), runs * w / whole) for k, w in weights.items()]
        assert sum(n for n, _ in rest) == runs
        return sum((n - e) ** 2 / e for n, e in rest), float(chi2.isf(1e-9, len(rest) - 1))

    found, threshold = statistic(scale)
    assert found < threshold
    found, threshold = statistic(scale * 1.4)
    assert found > threshold


def test_karwa_releases_degrees_of_a_graph() -> None:
    import networkx

    degrees = np.array([d for _, d in networkx.barabasi_albert_graph(300, 3, seed=1).degree()])
    released = karwa_degrees(degrees, 1)
    assert networkx.is_graphical(released.tolist())
    graph = synthetic_graph(released)
    assert sorted((d for _, d in graph.degree()), reverse=True) == released.tolist()
    noisy = np.sort(degrees)[::-1] + 5
    noisy[0] = 400
    assert not networkx.is_graphical(noisy.tolist())
    assert networkx.is_graphical(graphical(noisy).tolist())
    assert graphical(np.sort(degrees)).tolist() == np.sort(degrees)[::-1].tolist()


@pytest.mark.statistical
def test_karwa_errs_as_its_definition_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise of ε/2 on every degree, the nearest falling curve (by its minimax formula), rounded: of one law in ℓ1.

    Control: noise of ε is not. And a graph is found no further from that curve than the true one is.
    """
    import networkx

    true = np.sort([d for _, d in networkx.barabasi_albert_graph(300, 3, seed=1).degree()])[::-1]
    rng, n = np.random.default_rng(1), true.size
    before = np.triu(np.ones((n, n), dtype=bool))

    def defined(epsilon: float) -> float:
        noisy = true + rng.geometric(1 - math.exp(-epsilon), n) - rng.geometric(1 - math.exp(-epsilon), n)
        upto = np.append(0, np.cumsum(noisy))
        means = (upto[None, 1:] - upto[:-1, None]) / np.maximum(np.arange(1, n + 1) - np.arange(n)[:, None], 1)
        rows = np.where(before, means, -np.inf)  # of the degrees from the j-th to the k-th
        most = np.maximum.accumulate(rows[:, ::-1], axis=1)[:, ::-1]
        fitted = np.where(before, most, np.inf).min(axis=0)
        return float(np.abs(np.clip(np.rint(fitted), 0, n - 1) - true).sum())

    monkeypatch.setattr(mechanisms, "MOST", 0)  # degrees as they are before a graph is sought
    found = [karwa_degrees(true, 1) for _ in range(40)]
    errors = [float(np.abs(degrees - true).sum()) for degrees in found]
    assert not differ(errors, [defined(0.5) for _ in range(40)])
    assert differ(errors, [defined(1) for _ in range(40)])
    for degrees, error in zip(found, errors):
        assert np.abs(graphical(degrees) - degrees).sum() <= error


@pytest.mark.statistical
def test_vector_of_counts_is_unbiased() -> None:
    """Reach has the standard deviation √(m·Var Z), overlap √(|A||B|/m) with the noise in both.

    Each is a sum over a thousand buckets, so nearly normal: the mean of the runs is Student's, their variance χ².
    """
    rng = np.random.default_rng(5)
    m, errors, overlaps = 1024, [], []
    for _ in range(60):
        both, left, right = (rng.integers(0, 2**63, n).astype(np.uint64) for n in (1000, 2000, 3000))
        one = vector_of_counts(np.concatenate([both, left]), 1, buckets=m)
        two = vector_of_counts(np.concatenate([both, right, right]), 1, buckets=m)
        errors.append(one.reach - 3000)
        overlaps.append(one.overlap(two) - 1000)
    deviation = math.sqrt(m * DiscreteLaplace(1).variance)
    one_noise = DiscreteLaplace(1).variance
    expected = math.sqrt((3000 + m * one_noise) * (4000 + m * one_noise) / m)
    for found, spread in ((errors, deviation), (overlaps, expected)):
        n = len(found)
        low, high = (math.sqrt(chi2.isf(tail, n - 1) / (n - 1)) for tail in (1 - ALARM / 2, ALARM / 2))
        print(f"mean {np.mean(found):.1f}, deviation {np.std(found, ddof=1) / spread:.2f} of what it should be")
        assert low < np.std(found, ddof=1) / spread < high
        assert abs(np.mean(found)) < t.isf(ALARM / 2, n - 1) * np.std(found, ddof=1) / math.sqrt(n)
    with pytest.raises(IncompatibleError, match="buckets"):
        one.overlap(vector_of_counts(both, 1, buckets=64))


def test_compare_sets_the_field_beside_the_estimators() -> None:
    from unnoise.answers.compare import compare

    counts = np.concatenate([np.zeros(500, dtype=int), zipf(3000)])
    found = compare(counts, epsilon=1, methods=["isotonic", "direct", "hay", "manurangsi", "naive"], repetitions=2)
    errors = {result.method: result.w1 for result in found.results}
    assert errors["direct"] < errors["isotonic"] < errors["naive"]
    assert not any(result.failure for result in found.results)
    with pytest.raises(InputError, match="method must be"):
        compare(counts, epsilon=1, methods=["magic"])


def test_the_docs_name_every_system_with_its_source() -> None:
    page = (Path(__file__).parent.parent / "docs/direct.md").read_text(encoding="utf-8")
    for one in (*BASELINES.values(), *SUMMARIES.values()):
        row = f"| `{one.name}` | {one.model} | {one.unit or '–'} | {one.citation} | {one.chosen} |"
        assert row in page.splitlines()
    assert {one.run.__name__ for one in SUMMARIES.values()} == set(SUMMARIES)


def test_the_command_names_the_systems_it_can_run(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n\n1\n2\n")
    done = run_in(tmp_path, "compare", "a.csv", "--count-column", "n", "-e", "1", "--method", "magic")
    assert done.returncode == 2
    for name in ("auto", "direct", *BASELINES):
        assert f"{name}," in done.stderr
