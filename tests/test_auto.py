"""auto: a profile of whole cells, sharp on spikes, better than the rest on smooth data, honest when it falls back."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from statistics_tools import off
from test_engine_smooth import distance, noised
from unnoise.engine import points
from unnoise.engine.banded import BandedChannel, body_of
from unnoise.engine.channel import Blocks
from unnoise.engine.fourier import FourierChannel, Part
from unnoise.engine.points import Places, likely_points
from unnoise.engine.search import BEHIND, average
from unnoise.errors import ConvergenceError
from unnoise.estimators import auto as module
from unnoise.estimators.auto import auto, body_law, cell_law_of, likely_masses, posterior_profile, whole_cells
from unnoise.estimators.isotonic import isotonic
from unnoise.estimators.likelihood import likelihood
from unnoise.estimators.paper import paper
from unnoise.layout import Layout
from unnoise.noise import DiscreteLaplace
from unnoise.noisy import NoisyProfile


def moved(fit, counts):
    """W1 distance between a fit and the profile of counts."""
    at, gap = off(fit, counts)
    return float(np.abs(np.cumsum(gap))[:-1] @ np.diff(at).astype(float))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(-30, 60), min_size=1, max_size=200),
    st.sampled_from([0.1, 1, 5]),
    st.sampled_from([1, 2, 1.5]),
    st.sampled_from([None, 0, 7, 100]),
)
@example([9] * 8, 5, 1.5, 0)  # no noise that is kept could explain them
def test_always_a_profile_and_always_the_same(counts, epsilon, power, bound):
    noisy = NoisyProfile.from_counts(counts, epsilon=epsilon, power=power)
    fit, again = auto(noisy, max_count=bound), auto(noisy, max_count=bound)
    assert fit.support.tolist() == again.support.tolist()
    assert fit.mass.tolist() == again.mass.tolist()
    assert (np.diff(fit.support) > 0).all()
    assert fit.support[0] >= 0
    assert bound is None or fit.support[-1] <= bound
    assert fit.mass.min() > 0
    assert fit.mass.sum() == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize(("place", "epsilon"), [(1, 0.5), (1, 1), (50, 0.1), (0, 1), (10**9, 1)])
def test_one_spike_is_found_exactly(place, epsilon):
    fit = auto(noised(np.full(10_000, place), epsilon))
    assert fit.support[np.argmax(fit.mass)] == place
    assert fit.mass.max() > 0.98


def test_two_spikes():
    counts = np.repeat([7, 23], [4000, 6000])
    fit = auto(noised(counts, 0.5))
    assert distance(fit, counts) < 0.02


@pytest.mark.parametrize("bound", [None, 1])
def test_neighbouring_spikes(bound):
    counts = np.repeat([0, 1], [3000, 7000])
    assert distance(auto(noised(counts, 1), max_count=bound), counts) < 0.05


def test_evenly_spread_over_a_long_range_is_smoothed():
    counts = np.random.default_rng(0).integers(0, 8000, 100_000)
    noisy = noised(counts, 1)
    fit = auto(noisy)
    assert fit.method == "auto"
    assert distance(fit, counts) < 0.6 * distance(likelihood(noisy), counts)


def test_spread_over_too_long_a_range_falls_back():
    fit = auto(noised(np.random.default_rng(0).integers(0, 60_000, 500_000), 1))
    assert fit.method == "likelihood"
    assert "too long a range" in fit.diagnostics["fallback"]


def test_even_counts_are_even():
    """Against `likelihood`, which is not told either; a smooth law would give odd counts half of the mass."""
    counts = 2 * (np.random.default_rng(0).geometric(0.1, 50_000) - 1)
    noisy = noised(counts, 0.5)
    fit = auto(noisy)
    assert distance(fit, counts) < 0.5 * distance(likelihood(noisy), counts)
    assert fit.mass[fit.support % 2 == 1].sum() < 0.1


@pytest.mark.parametrize("seed", range(3))
def test_a_pattern_that_a_loose_walk_has_taken_over_is_seen(seed):
    """Tens, nearly: walks loose enough to follow them leave nothing to be missed, and their tails are smooth."""
    rng = np.random.default_rng(seed)
    counts = np.append(10 * (rng.geometric(0.25, 4500) - 1), rng.geometric(0.03, 500))
    noisy = noised(counts, 0.5, seed)
    fit = auto(noisy)
    assert "period 10" in fit.diagnostics["models"][0][0]
    assert distance(fit, counts) < 0.8 * distance(likelihood(noisy), counts)


def test_a_pattern_is_fitted_although_its_first_step_looks_hopeless():
    """Multiples of five that noise of twice that scale has blurred: only many cells show them, in half of all draws."""
    counts = 5 * (np.random.default_rng(0).geometric(1 / 11, 200_000) - 1)
    fit = auto(noised(counts, 0.1, seed=50))
    assert "period 5" in fit.diagnostics["models"][0][0]
    assert fit.mass[fit.support % 5 > 0].sum() < 0.2


@pytest.mark.parametrize("shape", ["odd", "packs"])
def test_zeros_are_no_part_of_a_pattern(shape):
    """Odd numbers, packs of six beside single pieces; a third of the cells is empty."""
    rng = np.random.default_rng(5)
    packs = np.where(rng.random(20_000) < 0.6, 6 * rng.geometric(0.3, 20_000), rng.geometric(0.6, 20_000))
    items = 2 * rng.geometric(0.25, 20_000) - 1 if shape == "odd" else packs
    counts = np.append(items, np.zeros(10_000, dtype=np.int64))
    noisy = noised(counts, 0.5)
    error, likely = distance(auto(noisy), counts), distance(likelihood(noisy), counts)
    print(f"ℓ1 {error:.3f}, maximum likelihood {likely:.3f}")
    assert error < likely


def test_zeros_say_nothing_of_their_neighbours():
    """70 % zeros and a hill at 30: next to 0 there is nothing, although the noise would hide some thousand cells."""
    rng = np.random.default_rng(0)
    counts = np.where(rng.random(1_000_000) < 0.7, 0, np.rint(rng.normal(30, 4, 1_000_000)).astype(int))
    fit = auto(noised(counts, 0.5, seed=50))
    assert fit.mass[(fit.support > 0) & (fit.support < 10)].sum() < 5e-4


def test_items_without_a_cell_follow_the_law():
    """Of a sample the cells tell their own roughness, that of the domain is nearer to the smooth law."""
    rng = np.random.default_rng(8)
    counts = rng.poisson(5, 40_000)
    shown = counts[rng.permutation(40_000)[:4_000]]
    layout = Layout(kind="sampled", cells=4_000, domain=40_000, rate=Fraction(1, 10), hash_seed=0)
    sample = NoisyProfile(*np.unique(shown, return_counts=True), DiscreteLaplace(20), layout)
    whole = NoisyProfile.from_counts(shown, epsilon=20)
    found, cells = auto(sample), auto(whole)
    assert np.abs(off(found, counts)[1]).sum() < 0.6 * np.abs(off(cells, counts)[1]).sum()
    assert np.abs(found.mass * 40_000 - np.rint(found.mass * 40_000)).max() < 1e-6
    law, step = cell_law_of(whole, None).profile(0.0)[1], cell_law_of(whole, None).profile(1.0)[1]
    mixed = cell_law_of(whole, None).profile(0.1)
    assert np.allclose(mixed[1][: step.size], (0.1 * step + 0.9 * law)[: mixed[1].size])


@pytest.mark.parametrize("places", [(0, 9), (0, 3, 17), (1, 12), (0, 1, 10)])
def test_runs_too_short_for_a_step_are_told(places):
    """Seven cells of ten at one count, the others at a cap, and next to no noise: no walk has a step there."""
    counts = np.repeat(places, [7_000, *[3_000 // (len(places) - 1)] * (len(places) - 1)])
    for epsilon in (5, 10, 20):
        noisy = noised(counts, epsilon, 1)
        for bound in (None, max(places)):
            gap = np.abs(off(auto(noisy, max_count=bound), counts)[1]).sum()
            assert gap < 0.02


def test_masses_are_whole_cells():
    fit = auto(noised(np.random.default_rng(0).poisson(5, 5000), 1))
    assert np.allclose(fit.mass * 5000, np.rint(fit.mass * 5000), atol=1e-6)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=30).filter(lambda m: sum(m) > 0.01), st.integers(1, 10**6))
def test_rounding_moves_the_curve_by_half_a_cell(mass, cells):
    mass = np.array(mass) / sum(mass)
    rounded = whole_cells(mass, cells)
    assert rounded.min() >= 0
    assert rounded.sum() == pytest.approx(1, abs=1e-9)
    assert np.abs(np.cumsum(rounded) - np.cumsum(mass)).max() <= 0.5 / cells + 1e-9


@pytest.mark.parametrize("places", [[1], [0, 7], [0, 1, 5, 12, 40]])
def test_no_point_model_counts_twice(places):
    (piece,) = body_law(noised(np.random.default_rng(0).choice(places, 10_000), 0.5), None).pieces
    models = [m for m in piece.search.models if m.family is None]
    found = [tuple(model.places) for model in models]
    assert len(set(found)) == len(found)
    assert sum(np.exp(model.log_weight) for model in models) < 1
    assert min(map(len, found)) == 1


@pytest.mark.parametrize("places", [[7], [0, 1, 5, 12, 40], list(range(0, 60, 3))])
def test_no_mixture_that_could_count_is_left_out(places):
    """Against all sizes: the bound on what so many masses can score keeps the best, and holds for all."""
    noisy = noised(np.random.default_rng(0).choice(places, 10_000), 0.5)
    (piece,) = body_law(noisy, None, points=False).pieces
    channel, wanted = piece.search.channel, piece.search.most - BEHIND
    among, likely = Places(channel.counts, 0, 1.0, piece.search.level), likely_masses(noisy, None, channel.counts)
    every, some = (likely_points(channel, likely, among, least) for least in (-np.inf, wanted))
    best = max(model.score for model in every)
    assert len(some) <= len(every)
    assert best <= wanted or max(model.score for model in some) == pytest.approx(best, abs=0.1)
    highest = float(channel.at(likely).value)
    for model in every:
        assert model.score <= highest + among.log_share(np.arange(model.places.size))


def test_a_likely_spike_stays_whole_and_an_unlikely_one_leaves_no_trace():
    """The median of cumulative curves, against the mean, which always has a trace of both."""
    spike, hill = np.array([0, 0, 1.0, 0, 0]), np.array([0.1, 0.2, 0.4, 0.2, 0.1])
    for chance, expected in ((0.55, spike), (0.45, hill)):
        found = average(np.array([hill, spike]), np.array([1 - chance, chance]), [False, True])
        assert np.allclose(found, expected)


@pytest.mark.parametrize("kind", ["banded", "fourier"])
def test_evidence_of_points_is_the_integral_over_their_weights(kind):
    """Two masses: against the sum of the likelihood over a fine grid of weights; the total's part in closed form."""
    noisy = noised(np.repeat([1, 6], [300, 500]), 1)
    cells, places = 800, np.array([1, 6])
    if kind == "banded":
        whole, total = BandedChannel(body_of(noisy, None), noisy.noise), 1.0
    else:
        ends = np.arange(int(noisy.values[-1]) + 1)
        part = Part.of(noisy.values, noisy.tally, ends, 1.0)
        whole, total = FourierChannel(Blocks.covering(np.arange(10)), (part,), noisy.noise, collide=False), 800.0
    among = Places(np.arange(20), 0, total, 0.0)
    found, channel = points._fit(whole, places, total * np.array([0.4, 0.6]), among), whole.only(places)
    share = (np.arange(2000) + 0.5) / 2000
    values = np.array([channel.at(total * np.array([s, 1 - s])).value for s in share])
    expected = values.max() + np.log(np.exp(values - values.max()).mean()) - np.log(10 * np.sqrt(cells))
    assert found.log_evidence == pytest.approx(expected, abs=0.1)
    assert among.log_share(places) == pytest.approx(
        np.log(1 / 2 / 7 / (1 / np.arange(1, 21)).sum() ** 2 / (np.e - 1)))


@pytest.mark.parametrize("collide", [False, True])
def test_evidence_of_points_is_the_sum_over_their_places(collide):
    """Two counts that noise of ± 8 hardly tells apart: against every pair of places, each with its own best masses.

    Control: what the best places alone are worth is far less.
    """
    counts = np.repeat([5, 14], [600, 400])
    if collide:
        counts = np.bincount(np.random.default_rng(2).integers(0, 1000, 1000), weights=counts, minlength=1000)
    noisy = noised(counts, 0.25, power=2)
    part = Part.of(noisy.values, noisy.tally, np.arange(-60, 101), 1.0)
    whole = FourierChannel(Blocks.covering(np.arange(1, 60)), (part,), noisy.noise, collide=collide)
    among = Places(np.arange(1, 60), 0, 1000.0, 0.0)
    every = [points._fit(whole, np.array(pair), np.full(2, 500.0), among) for pair in combinations(range(1, 45), 2)]
    every = [model for model in every if model.converged]
    best = max(every, key=lambda model: model.value)

    def told(models):
        score = np.array([model.score for model in models])
        weight, places = np.exp(score - score.max()), np.array([model.places for model in models])
        mean = weight @ places / weight.sum()
        spread = np.sqrt(weight @ (places - mean) ** 2 / weight.sum())
        return score.max() + np.log(weight.sum()), mean, spread

    evidence, mean, spread = told(every)
    found, found_mean, found_spread = told(points._neighbourhood(whole, best, among))
    assert found == pytest.approx(evidence, abs=0.5)
    assert best.score < evidence - 0.8
    assert (np.abs(found_mean - mean) < 0.7 * spread).all()
    assert (found_spread > 0.5 * spread).all()


@pytest.mark.parametrize("mean", [2, 5])
def test_poisson_counts_are_known_for_what_they_are(mean):
    """Walks on the base 1/t! beat the others by far, and the wrong base would not: on a geometric law they lose."""
    rng = np.random.default_rng(0)
    fit = auto(noised(rng.poisson(mean, 20_000), 0.5))
    on_base = sum(weight for name, weight in fit.diagnostics["models"] if "1/t!" in name)
    assert on_base > 0.5
    fit = auto(noised(rng.geometric(1 / (mean + 1), 20_000) - 1, 0.5))
    assert sum(weight for name, weight in fit.diagnostics["models"] if "1/t!" in name) < 0.1


def test_posterior_profile_is_bayes_cell_by_cell():
    """Against the sum over cells of P(count | noisy count), with explicit probabilities."""
    noisy = noised(np.random.default_rng(0).poisson(3, 400), 1)
    body = body_of(noisy, None)
    g = np.exp(-0.3 * body.counts)
    g /= g.sum()
    expected = np.zeros(g.size)
    for row, cells in zip(body.counts, body.tally):
        joint = g * noisy.noise.pmf(row - body.counts)
        expected += cells * joint / joint.sum()
    found = posterior_profile(BandedChannel(body, noisy.noise), g)
    assert np.allclose(found, expected / expected.sum(), atol=1e-9)


def test_long_range():
    rng = np.random.default_rng(4)
    counts = np.concatenate([rng.geometric(0.3, 20_000), 10 ** rng.integers(4, 12, 300)])
    noisy = noised(counts, 1, seed=5)
    fit = auto(noisy)
    assert fit.diagnostics["body_counts"] < 4096
    assert fit.support[-1] > 10**10
    assert moved(fit, counts) <= 1.2 * moved(isotonic(noisy), counts)


def test_two_islands_far_apart():
    rng = np.random.default_rng(4)
    counts = np.concatenate([rng.poisson(5, 5000), 10**9 + rng.poisson(50, 5000)])
    noisy = noised(counts, 0.5, seed=5)
    fit = auto(noisy)
    assert fit.diagnostics["body_runs"] == 2
    assert distance(fit, counts) < 0.5 * distance(isotonic(noisy), counts)


@pytest.mark.parametrize("power", [2, 3, 1.5])
def test_merged_powers(power):
    rng = np.random.default_rng(7)
    counts = rng.poisson(8, 5000)
    law = DiscreteLaplace(0.7, power)
    z = np.arange(-law.reach(1e-12), law.reach(1e-12) + 1)
    noise = rng.choice(z, size=counts.size, p=law.pmf(z) / law.pmf(z).sum())
    noisy = NoisyProfile.from_counts(counts + noise, epsilon=0.7, power=power)
    fit = auto(noisy)
    assert fit.diagnostics["fallback"] is None
    assert distance(fit, counts) < 0.6 * distance(isotonic(noisy), counts)


def test_few_cells_fall_back_and_say_so():
    fit = auto(NoisyProfile.from_counts([3, 90, 10**12], epsilon=1))
    assert fit.method == "likelihood"
    assert "too few" in fit.diagnostics["fallback"]


def test_no_convergence_is_reported(monkeypatch):
    noisy = noised(np.full(100, 3), 1)

    def refuse(*_, **__):
        raise ConvergenceError("refused")

    monkeypatch.setattr("unnoise.estimators.auto.body_law", lambda *_, **__: None)
    fit = auto(noisy)
    assert fit.method == "likelihood"
    assert "no model converged" in fit.diagnostics["fallback"]
    monkeypatch.setattr(module, "likelihood", refuse)
    fit = auto(noisy)
    assert fit.method == "isotonic"
    assert "refused" in fit.diagnostics["fallback"]


def test_a_few_ones_among_zeros_are_not_taken_for_none():
    """500 cells, one item in each of 25 of them, ε = 2: no worse than `likelihood` in the mean, where all may be 0."""
    ours = theirs = 0.0
    for seed in range(40):
        counts = np.random.default_rng(seed).poisson(0.05, 500)
        noisy = noised(counts, 2, seed=100 + seed)
        ours += distance(auto(noisy), counts)
        theirs += distance(likelihood(noisy), counts)
    print(f"ℓ1 ratio {ours / theirs:.3f}")
    assert ours < 1.15 * theirs


BATTERY = {
    "geometric": (lambda rng: rng.geometric(1 / 21, 10_000) - 1, 0.5, 0.35, 0.3),
    "bimodal": (
        lambda rng: np.where(rng.random(10_000) < 0.7, 0, np.rint(rng.normal(30, 4, 10_000)).astype(int)),
        0.5,
        0.5,
        0.4,
    ),
    "power law": (lambda rng: np.minimum(rng.zipf(1.8, 10_000), 3000), 1, 0.9, 0.3),
}


@pytest.mark.parametrize("name", BATTERY)
def test_battery_guard(name):
    """Ratios to the paper's best p, with room: benchmarks/accuracy.py has the whole battery."""
    draw, epsilon, most_l1, most_w1 = BATTERY[name]
    ours, theirs = np.zeros(2), np.zeros((3, 2))
    for seed in range(3):
        counts = draw(np.random.default_rng(seed))
        noisy = noised(counts, epsilon, seed=100 + seed)
        fit = auto(noisy)
        ours += distance(fit, counts), moved(fit, counts)
        for k, p in enumerate((1, 2, np.inf)):
            other = paper(noisy, norm=p)
            theirs[k] += distance(other, counts), moved(other, counts)
    ratio = ours / theirs.min(axis=0)
    print(f"{name}: ℓ1 ratio {ratio[0]:.3f}, W1 ratio {ratio[1]:.3f}")
    assert ratio[0] < most_l1
    assert ratio[1] < most_w1
