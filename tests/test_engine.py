"""The engine: Fourier channel against dense sums, modes, certificate, posterior, and the cases it was made for."""

from __future__ import annotations

import math

import numpy as np
import pytest

from drawing_tools import sketch, zipf_numbers
from oracles_items import brute_law, dense_rows
from unnoise.answers.items import item_profile
from unnoise.answers.reconstruct import reconstruct
from unnoise.engine.channel import FAR, Blocks, counts_in_blocks, likely_strides
from unnoise.engine.fourier import FourierChannel, Part, _Law, lattice, rows_of
from unnoise.engine.posterior import covariance_of, posterior
from unnoise.engine.search import Search, certify, explore, find_models
from unnoise.engine.walk import FAMILIES, OCCASIONS, Family, Model, Prior, Walk, _log_chance, find_mode, shares
from unnoise.estimators._ladder import spikes
from unnoise.estimators.auto import auto, cell_law_of
from unnoise.estimators.collisions import collisions
from unnoise.estimators.isotonic import isotonic
from unnoise.layout import Layout
from unnoise.noise import DiscreteLaplace
from unnoise.noisy import NoisyCounts, NoisyProfile


def hashed(cells: int, levels: int = 1) -> Layout:
    return Layout(kind="hashed", cells=cells, levels=levels, hash_seed=0)


def channel_of(noise, *, collide, stride=1, shares=(0.5, 0.25), seed=1):
    """A channel with two ranges of made-up cells and one atom, and masses for it."""
    rng = np.random.default_rng(seed)
    ends = np.concatenate([np.arange(-6, 9), [11, 14, 18, 25]])
    tallies = [rng.integers(1, 50, ends.size + 1).astype(float) for _ in shares]
    parts = tuple(Part(ends, tally, int(tally.sum()), share) for tally, share in zip(tallies, shares))
    blocks = Blocks.covering(counts_in_blocks(1, 20 // stride, 6, 4), stride).with_atoms(np.array([9, FAR]))
    channel = FourierChannel(blocks, parts, noise, collide=collide)
    return channel, rng.uniform(3, 20, blocks.size)


def per_count(channel, mass):
    """Masses at every count, by plain loops."""
    found: dict[int, float] = {}
    for first, stop, each in zip(channel.blocks.first, channel.blocks.stop, mass):
        counts = range(int(first), int(stop), channel.blocks.stride)
        for t in counts:
            found[t] = found.get(t, 0.0) + each / len(counts)
    return found


@pytest.mark.parametrize(("power", "stride"), [(1, 1), (2, 1), ("5/2", 1), (6, 1), (1, 2), (2, 3)])
@pytest.mark.parametrize("collide", [True, False])
def test_rows_equal_dense_sums(power, stride, collide):
    noise = DiscreteLaplace("4/5", power)
    channel, mass = channel_of(noise, collide=collide, stride=stride)
    state = channel.at(mass)
    for part, rows in zip(channel.parts, state.rows):
        rates = {t: part.rate * each for t, each in per_count(channel, mass).items()}
        above = rates.pop(FAR)
        if collide:
            law = np.zeros(160)  # Panjer's recursion, slowly
            law[0] = math.exp(-sum(rates.values()) - above)
            for s in range(1, law.size):
                law[s] = sum(t * rate * law[s - t] for t, rate in rates.items() if t <= s) / s
        else:
            law = np.zeros(160)
            for t, rate in rates.items():
                law[t] += rate
        slow = dense_rows(law, noise.pmf, part.ends)[:-1]
        assert np.allclose(rows[:-1] - 0.01 / part.cells, slow, atol=1e-10)
        whole = 1.0 if collide else sum(rates.values()) + above
        assert rows[-1] - 0.01 / part.cells == pytest.approx(whole - slow.sum(), abs=1e-9)


def test_panjer_agrees_with_enumeration():
    rates = {1: 0.4, 3: 0.2}
    law = np.zeros(15)
    law[0] = math.exp(-0.6)
    for s in range(1, 15):
        law[s] = sum(t * rate * law[s - t] for t, rate in rates.items() if t <= s) / s
    assert np.allclose(law, brute_law(rates, 15), atol=1e-12)


@pytest.mark.parametrize(("power", "stride"), [(1, 1), (3, 1), (3, 2)])
@pytest.mark.parametrize("collide", [True, False])
def test_pull_is_the_gradient_and_information_its_expectation(power, stride, collide):
    channel, mass = channel_of(DiscreteLaplace(1, power), collide=collide, stride=stride)
    state = channel.at(mass)
    gradient = channel.exposure * (channel.pull(state) - 1)
    for j in range(mass.size):
        step = np.zeros(mass.size)
        step[j] = 1e-3
        slope = (channel.at(mass + step).value - channel.at(mass - step).value) / 2e-3
        assert slope == pytest.approx(gradient[j], rel=2e-3, abs=2e-3)  # the background is no part of the pull
    step = 1e-4 * np.arange(1, mass.size + 1)
    expected = np.zeros(mass.size)
    moved = channel.at(mass * np.exp(step))
    for i, part in enumerate(channel.parts):
        for sign, rows in ((1, moved.rows[i]), (-1, state.rows[i])):
            swapped = Part(part.ends, part.cells * rows, part.cells, part.share)
            alone = FourierChannel(channel.blocks, (swapped,), channel.noise, collide=collide)
            expected += sign * mass * swapped.share * alone.pull(alone.at(mass))
    assert np.allclose(channel.information(state) @ step, expected, rtol=1e-2, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("power", [1, 3])
def test_the_finest_step_is_that_of_rows_of_single_counts(power):
    """Whatever rows there are; control: the step by those rows is another."""
    rng, noise = np.random.default_rng(31), DiscreteLaplace(1, power)
    up, down = rng.geometric(0.6, (2, 2, power, 500)).sum(axis=2)
    cells = rng.poisson(4, (2, 500)) + up - down
    tallies = [np.unique(each, return_counts=True) for each in cells]
    blocks = Blocks(np.append(np.arange(1, 31), FAR), np.append(np.arange(2, 32), FAR + 1), 0)
    mass = np.append(rng.gamma(1.0, 20.0, 30), 2.0)

    def channel(ends: np.ndarray) -> FourierChannel:
        parts = tuple(Part.of(*tally, ends, share) for tally, share in zip(tallies, (0.5, 0.25)))
        return FourierChannel(blocks, parts, noise, collide=True)

    fine, coarse = channel(np.arange(-20, 13)), channel(np.append(np.arange(-20, 12, 4), 12))
    expected, by_rows = fine.step(fine.at(mass))[:-1], coarse.step(coarse.at(mass))[:-1]
    found = [each.finest_step(each.at(mass), tallies)[1:31] for each in (fine, coarse)]
    assert np.allclose(found[0], expected, rtol=1e-10)
    # not quite: the background is as wide as rows
    assert np.abs(found[1] - expected).max() < 0.1 * np.abs(by_rows - expected).max()


def test_rows_are_fine_where_cells_crowd():
    noise = DiscreteLaplace(1)
    values, tally = np.arange(2000), np.ones(2000, dtype=np.int64)
    smooth = rows_of(values, tally, noise, 1999)
    tally[1000] = 500
    crowded = rows_of(values, tally, noise, 1999)
    assert crowded.size > smooth.size
    assert {999, 1000} <= set(crowded.tolist())
    beside = smooth[np.searchsorted(smooth, 1000) + np.array([-2, 1])]  # the rows on either side are fine as well
    assert set(range(int(beside[0]), int(beside[1]) + 1)) <= set(crowded.tolist())
    assert smooth[-1] == crowded[-1] == 1999
    assert np.array_equal(rows_of(values, np.where(values < 1000, 3, 1), noise, 1999), smooth)  # an edge, few cells
    assert rows_of(values, np.where(values < 985, 30, 10), noise, 1999).size > smooth.size  # and as many as tell
    gentle = np.rint(100 * np.exp(-(((values - 1000) / 40) ** 2) / 2)).astype(np.int64)  # and the sides of a hill
    plain = rows_of(values, np.ones(2000, dtype=np.int64), DiscreteLaplace(0.2), 1999)
    assert rows_of(values, gentle, DiscreteLaplace(0.2), 1999).size > 1.5 * plain.size
    assert (np.diff(smooth) > 0).all()


@pytest.mark.parametrize("collide", [False, True])
@pytest.mark.parametrize(("epsilon", "power"), [("1e-3", 1), ("1e-3", 2), ("5e-3", 31), ("1e-4", 1)])
def test_strong_noise_is_computed_on_a_lattice_that_no_cells_tell_from_the_counts(epsilon, power, collide):
    noise = DiscreteLaplace(epsilon, power)
    last = 5 * round(math.sqrt(noise.variance))
    ends = rows_of(np.array([0]), np.array([1]), noise, last)
    part = Part(ends, np.full(ends.size + 1, 20.0), 20 * (ends.size + 1), 1.0)
    blocks = Blocks.covering(counts_in_blocks(1, last, 64, 12)).with_atoms(np.array([777, FAR]))
    coarse = FourierChannel(blocks, (part,), noise, collide=collide)
    fine = FourierChannel(blocks, (part,), noise, collide=collide, law=_Law(noise, int(ends[-1]), 1))
    assert coarse.law.unit == lattice(noise) > 10
    assert 10 * coarse.law.size < fine.law.size
    mass = np.append(1.5 * part.cells * (1 / blocks.first[:-1] - 1 / blocks.stop[:-1]), 3.0)
    mass *= 1.0 if collide else part.cells / mass.sum()
    rows, exact = coarse.at(mass).rows[0], fine.at(mass).rows[0]
    distance = float(((rows - exact) ** 2 / exact).sum())
    print(f"χ² to a cell: {distance:.1e}")
    assert distance < 1e-9
    step = 1e-3 * mass * (blocks.first > 100)  # the pull is the slope of the law on the lattice itself
    gain = coarse.at(mass + step).value - coarse.at(mass - step).value
    assert gain == pytest.approx(2 * float(step @ (coarse.pull(coarse.at(mass)) - 1)), rel=0.01)
    sets = [(np.array([5, 700]), np.array([200.0, 30.0, 2.0])), (np.array([900]), np.array([100.0, 2.0]))]
    one = coarse.only(sets[0][0])
    assert coarse.values(sets)[0] == pytest.approx(one.at(sets[0][1]).value, rel=1e-12)
    counts = np.array([1, 50, 777, 1000])
    strain = coarse.strain(coarse.at(mass), counts)
    assert strain == pytest.approx(fine.strain(fine.at(mass), counts), rel=1e-2, abs=1e-2)


@pytest.mark.parametrize(("kind", "power"), [("hashed", 1), ("known", 2)])
def test_an_answer_does_not_grow_with_the_noise(kind, power):
    """At ε = 10⁻⁵ noise reaches three million counts: 100 megabytes to a transform, if every count had its place."""
    rng = np.random.default_rng(5)
    layout = hashed(256) if kind == "hashed" else Layout(kind="known", cells=256, domain=256)
    noise = DiscreteLaplace("1e-5", power)
    cells = sum(rng.geometric(1e-5, 256) - rng.geometric(1e-5, 256) for _ in range(power)) + 10**5
    noisy = NoisyCounts(cells, noise, layout).profile()
    seen: list[int] = []
    whole = _Law.__init__

    def counted(self, *given):
        whole(self, *given)
        seen.append(self.length)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Law, "__init__", counted)
        profile = reconstruct(noisy)
        assert len(profile.columns()["count"]) == profile.support.size < 1 << 15
    assert 0 < max(seen) < 1 << 15
    assert 256 * 10**5 in profile.total


def test_the_mode_is_stationary_and_its_evidence_that_of_laplace():
    rng = np.random.default_rng(3)
    counts, numbers = np.arange(1, 13), np.array([400, 200, 120, 80, 50, 40, 30, 20, 15, 12, 10, 8])
    noisy = sketch(counts, numbers, hashed(1024), DiscreteLaplace(1, 2), rng)
    ends = rows_of(noisy.values, noisy.tally, noisy.noise, int(noisy.values[-1]))
    channel = FourierChannel(
        Blocks.covering(np.arange(1, 14)), (Part.of(noisy.values, noisy.tally, ends, 1.0),), noisy.noise, collide=True
    )
    walk = Walk(np.log(np.arange(1.0, 13.0)), np.arange(12), 2, level=4.0)
    precision = walk.precision(10.0)
    mode = find_mode(channel, Prior(walk, precision), np.full(12, 4.0))
    assert mode.converged

    def objective(theta):
        r = walk.differences(theta)
        log_prior = 0.5 * np.log(precision).sum() + walk.log_det - 0.5 * float(precision @ r**2)
        return channel.at(np.exp(theta)).value + log_prior

    top = objective(mode.theta)
    hessian = np.zeros((12, 12))
    unit = 1e-3 * np.eye(12)
    for i in range(12):
        assert objective(mode.theta + unit[i]) < top + 1e-4
        for j in range(12):
            pairs = [(s, t) for s in (1, -1) for t in (1, -1)]
            hessian[i, j] = sum(s * t * objective(mode.theta + s * unit[i] + t * unit[j]) for s, t in pairs) / 4e-6
    evidence = top - 0.5 * np.linalg.slogdet(-hessian)[1]
    assert mode.log_evidence == pytest.approx(evidence, abs=0.5)  # the expected information for the observed one


def test_covariance_without_a_prior_is_that_of_the_unbiased_estimate_less_the_items():
    channel, mass = channel_of(DiscreteLaplace(1), collide=True, shares=(1.0,))
    narrow = channel.with_blocks(Blocks.covering(np.arange(1, 9)))
    state = narrow.at(mass[:7])
    information = narrow.information(state)
    plain = np.diag(state.mass) @ np.linalg.inv(information) @ np.diag(state.mass) - np.diag(state.mass)
    found = covariance_of(narrow, state, np.zeros((7, 7)))
    assert np.allclose(found, plain, rtol=1e-4, atol=1e-4 * np.abs(plain).max())
    stiff = covariance_of(narrow, state, 1e9 * np.eye(7))
    assert np.linalg.eigvalsh(stiff).min() > -1e-6
    assert (np.diag(stiff) <= state.mass + 1e-6).all()  # with θ known, what is left is at most Poisson


def test_covariance_of_a_sample_without_noise_or_prior_is_that_of_drawing_without_replacement():
    share, mass = 0.2, np.array([40.0, 25.0, 20.0, 15.0])
    noise = DiscreteLaplace(40)  # next to none
    part = Part(np.arange(3), mass, 100, 1.0)
    channel = FourierChannel(Blocks.covering(np.arange(5)), (part,), noise, collide=False)
    found = covariance_of(channel, channel.at(mass), np.zeros((4, 4)), 1 / share - 1)
    drawn = (1 - share) / share**2 * (np.diag(mass) - np.outer(mass, mass) / 100)
    assert np.allclose(found, drawn, rtol=2e-3)  # all but the background of a hundredth of a cell
    whole = covariance_of(channel, channel.at(mass), np.zeros((4, 4)))
    assert np.abs(whole).max() < 2e-3 * drawn.max()  # every item has a cell: nothing is left open


def test_a_trap_is_not_certified():
    """A profile that explains 3,000 items of count 1,000 by a wide block is caught by its strain; the truth is not."""
    rng = np.random.default_rng(5)
    noisy = sketch(np.array([1000]), np.array([3000]), hashed(2**14), DiscreteLaplace(1), rng)
    ends = rows_of(noisy.values, noisy.tally, noisy.noise, 2100)
    part = Part.of(noisy.values, noisy.tally, ends, 1.0)
    blocks = Blocks.covering(counts_in_blocks(1, 2100, 64, 12))
    channel = FourierChannel(blocks, (part,), noisy.noise, collide=True)
    wide = np.full(blocks.size, 1e-3)
    wide[np.searchsorted(blocks.first, 1000, side="right") - 1] = 3000
    counts = np.arange(1, 2101)
    strain = channel.strain(channel.at(wide), counts)
    assert abs(int(counts[np.argmax(strain)]) - 1000) <= 1
    assert strain.max() > 4
    narrow = channel.with_blocks(blocks.with_atoms(np.array([1000])))
    assert narrow.strain(narrow.at(np.append(np.full(blocks.size, 1e-3), 3000.0)), counts).max() < 4


# ---------------------------------------------------------------- the cases it was made for


def merged(counts, numbers, power, epsilon, cells=2**15, seed=7):
    return sketch(counts, numbers, hashed(cells), DiscreteLaplace(epsilon, power), np.random.default_rng(seed))


@pytest.mark.parametrize(("power", "epsilon"), [(31, "1/2"), (7, "1/3"), (7, 1), (20, "1.0986")])
def test_merged_sketches_give_numbers_a_person_can_use(power, epsilon):
    rng = np.random.default_rng(6)
    counts, numbers = zipf_numbers(30_000, 1.8, rng)
    near = counts <= 1000
    counts, numbers = counts[near], numbers[near]
    profile = item_profile(merged(counts, numbers, power, epsilon))
    truth, total = int(numbers.sum()), int(counts @ numbers)
    print(f"{profile.distinct} for {truth}, {profile.total} for {total}")
    assert truth in profile.distinct.at(1 - 1e-9)
    assert profile.distinct.value == pytest.approx(truth, rel=0.6)
    assert total in profile.total.at(1 - 1e-9)
    assert profile.distinct.kind == "model"
    assert profile.distinct.data_share < 0.5
    assert profile.distinct.value <= profile.total.value


def test_one_noise_is_mostly_data():
    rng = np.random.default_rng(6)
    counts, numbers = zipf_numbers(30_000, 1.8, rng)
    profile = item_profile(merged(counts, numbers, 1, 1))
    assert profile.distinct.data_share > 0.2
    assert not profile.distinct.marked


@pytest.mark.parametrize("power", [1, 7])
@pytest.mark.parametrize("shape", [({1: 5000, 20: 5000}), ({2: 10_000}), ({300: 2000}), ({1: 1000, 90_000: 50})])
def test_atoms_and_clusters_are_found(shape, power):
    counts, numbers = np.array(list(shape)), np.array(list(shape.values()))
    profile = item_profile(merged(counts, numbers, power, 1, cells=2**14))
    assert int(numbers.sum()) in profile.distinct.at(1 - 1e-9)
    assert profile.distinct.value == pytest.approx(numbers.sum(), rel=0.6)


def test_models_are_averaged_and_named():
    noisy = merged(*zipf_numbers(5000, 1.8, np.random.default_rng(2)), 1, 1, cells=2**13)
    law = collisions(noisy)
    names = law.diagnostics["models"]
    assert sum(weight for _, weight in names) == pytest.approx(1, abs=0.05)
    assert law.diagnostics["uncertified"] == 0


def test_binomial_laws_weigh_half_where_counts_reach_their_bound():
    noise = DiscreteLaplace(1, 3)
    part = Part(np.arange(-5, 12), np.ones(18), 18, 1.0)

    def grid(bound, top):
        blocks = Blocks.covering(np.arange(1, top + 2))
        return FourierChannel(blocks, (part,), noise, collide=True, bound=bound).grid

    for bound, top, chance in [(3, 3, 0.5), (8, 8, 0.5), (30, 8, 1 / 7), (None, 8, 1 / 7)]:
        share = shares(FAMILIES, grid(bound, top))
        assert sum(share.values()) == pytest.approx(1)
        assert [each for family, each in share.items() if family.factorial == 1] == [pytest.approx(chance)]
        assert [family in share for family in OCCASIONS] == [bound == top] * 2
    line = next(family for family in FAMILIES if family.order == 2)
    assert [line.heads(grid(None, top)) for top in (3, 4, 6, 7)] == [(0,), (0, 1), (0, 1), (0, 1)]


@pytest.mark.parametrize("family", [Family("t", 2), *OCCASIONS, Family("t", 2, factorial=1.0)])
def test_the_stiffest_walks_about_occasions_are_laws_of_conway_and_maxwell(family):
    part, n = Part(np.arange(-5, 12), np.ones(18), 18, 1.0), 8
    blocks, noise = Blocks.covering(np.arange(1, n + 2)), DiscreteLaplace(1, n)
    channel = FourierChannel(blocks, (part,), noise, collide=True, bound=n)
    walk, ways = family.ladder(channel.grid, 0.0, 0).walk, [math.comb(n, t) for t in range(1, n + 1)]
    theta = family.factorial * np.log(ways) - 0.7 * np.arange(n)
    assert np.abs(walk.differences(theta)[walk.steps]).max() < 1e-12
    assert np.abs(walk.differences(theta + 0.1 * np.log(ways))[walk.steps]).max() > 0.01  # control


def test_law_and_intervals_come_from_one_fit(monkeypatch):
    found = []
    monkeypatch.setattr("unnoise.estimators.auto.find_models", lambda *given: found.append(1) or find_models(*given))
    counts = np.random.default_rng(5).poisson(2.0, 300)
    profile = reconstruct(known(counts, 1, 3))
    assert profile.with_intervals("model").distinct.value > 0
    assert len(found) == 1


def test_explore_returns_certified_models_and_a_posterior():
    noisy = merged(np.array([1, 2, 3]), np.array([900, 300, 100]), 2, 1, cells=2**12)
    last = int(noisy.values[-1])
    part = Part.of(noisy.values, noisy.tally, rows_of(noisy.values, noisy.tally, noisy.noise, last), 1.0)
    channel = FourierChannel(Blocks.covering(np.arange(1, last + 1)), (part,), noisy.noise, collide=True)
    start = np.full(last - 1, 2.0)
    search = explore(channel, start, 1800.0, np.arange(1, last))
    certify(search, np.arange(1, last))
    assert isinstance(search, Search)
    found = posterior(search, lambda each: np.full(each.blocks.size, 2.0))
    assert found.mean.sum() == pytest.approx(1300, rel=0.3)
    assert np.allclose(found.covariance, found.covariance.T)


@pytest.mark.parametrize(("value", "counts"), [(-90.0, ["walk"]), (-110.0, ["points"])])
def test_a_certified_model_counts_however_far_behind_if_it_explains_the_cells_better(value, counts):
    """Points 50 nats ahead that leave cells unexplained; a walk that explains them, or one that is merely loose."""

    class Seeing:
        widths = np.ones(1)

        def __init__(self, strain):
            self.most = strain

        def at(self, mass):
            return mass

        def strain(self, state, counts):
            return np.array([self.most])

        def unexplained(self, state):
            return 0.0

    def model(name, strain, value, score):
        return Model(Seeing(strain), name, np.zeros(1), value, score, 0.0, None)

    found = Search(None, np.zeros(1), 0.0)
    found.add(model("points", 5.0, -100.0, -200.0), model("walk", 1.0, value, -250.0))
    certify(found, np.array([1]))
    assert [one.name for one in found.models] == counts
    assert found.uncertified == 1


# ---------------------------------------------------------------- known domains, merged


def known(counts, epsilon, power, seed=3):
    rng = np.random.default_rng(seed)
    p = 1 - math.exp(-epsilon)
    noise = rng.negative_binomial(power, p, counts.size) - rng.negative_binomial(power, p, counts.size)
    return NoisyProfile.from_counts(counts + noise, epsilon=epsilon, power=power)


def distances(fit, counts):
    gap = np.zeros(max(int(counts.max()), int(fit.support[-1])) + 1)
    np.add.at(gap, counts, -1 / counts.size)
    np.add.at(gap, fit.support, fit.mass)
    return float(np.abs(gap).sum()), float(np.abs(np.cumsum(gap)).sum())


@pytest.mark.parametrize("power", [2, 2.5])
def test_wide_bodies_are_smoothed_at_every_power(power):
    counts = np.random.default_rng(1).integers(0, 1001, 50_000)
    noisy = known(counts, 1.0, power)
    smooth_error, plain = distances(auto(noisy), counts), distances(isotonic(noisy), counts)
    print(f"{smooth_error} against {plain}")
    assert smooth_error[0] < 0.15
    assert smooth_error[0] < 0.5 * plain[0]


def test_the_step_towards_the_cells_is_bayes_cell_by_cell():
    counts = np.random.default_rng(2).poisson(3, 600)
    noisy = known(counts, 1.0, 2)
    law = cell_law_of(noisy, None)
    run = law.pieces[0]
    support, plain = law.profile(0.0)
    g = np.zeros(run.counts.size)
    g[support] = plain
    expected = np.zeros(g.size)
    for value, cells in zip(noisy.values, noisy.tally):
        joint = g * noisy.noise.pmf(value - np.arange(g.size))
        expected += cells * joint / joint.sum()
    found = np.zeros(g.size)
    support, stepped = law.profile(1.0)
    found[support] = stepped
    moved = np.abs(found - g).sum()
    assert moved > 1
    assert np.abs(found - expected).sum() < 0.05 * moved  # the background of a hundredth of a cell


def test_cells_far_apart_stay_as_they_are_at_once():
    counts = np.concatenate([np.random.default_rng(3).integers(0, 10**6, 1000), [1, 2, 3, 4]])
    noisy = known(counts, 0.03, 2)
    fit = auto(noisy)
    assert np.isin(fit.support, np.maximum(noisy.values, 0)).all()
    assert "as they are" in fit.diagnostics["fallback"]


def test_clusters_far_from_zero_are_each_smoothed():
    rng = np.random.default_rng(4)
    counts = np.concatenate([rng.poisson(5, 4000), 10**9 + rng.poisson(50, 4000)])
    fit = auto(known(counts, 1.0, 3))
    assert fit.diagnostics["body_runs"] == 2
    assert fit.mass[fit.support > 10**8].sum() == pytest.approx(0.5, abs=0.001)


@pytest.mark.parametrize("cells", [1, 3, 64])
@pytest.mark.parametrize("power", [2, 40])
def test_few_cells_are_answered(cells, power):
    fit = auto(known(np.full(cells, 7), 0.5, power))
    assert fit.mass.sum() == pytest.approx(1)
    assert (fit.support >= 0).all()


def test_chances_of_patterns_are_told_apart_where_they_underflow():
    """The χ² tail in logarithms: as exact sums have it (p even: a Poisson sum), and falling for ever."""
    for p in (2, 6, 12):
        assert _log_chance(0.0, p) == pytest.approx(0.0, abs=1e-6)
        for square in (0.5, 7.0, 300.0, 2e5):
            terms = [k * math.log(square / 2) - math.lgamma(k + 1) for k in range(p // 2)]
            exact = float(np.logaddexp.reduce(terms)) - square / 2
            assert _log_chance(square, p) == pytest.approx(exact, rel=1e-9, abs=1e-6)
    assert _log_chance(4e4, 10) < _log_chance(3.9e4, 10) < _log_chance(3e4, 2) < -1e4


def test_points_are_found_from_the_peaks_of_the_best_walk():
    """Three counts at load 2: one by one they are never found; in more cells distinct was a fifth too large."""
    counts, numbers = np.array([33, 130, 189]), np.array([5300, 5300, 5300])
    noisy = sketch(counts, numbers, hashed(2**13), DiscreteLaplace(0.184), np.random.default_rng(3))
    found = item_profile(noisy)
    assert found.diagnostics["models"][0][0] == "3 points"
    assert found.distinct.value == pytest.approx(15_900, rel=0.02)


PRICES = np.array([1, 2, 3, 5, 9, 10, 15, 19, 20, 25, 29, 39, 49, 75, 99, 199, 999])


def test_more_prices_than_a_walk_shows_are_found():
    """Two items to the cell: of 102 answers walks and twelve points missed 60, the steepest points alone 29, now 20."""
    missed = 0
    for seed in range(3):
        rng = np.random.default_rng(seed)
        numbers = rng.multinomial(2**15, PRICES**-0.7 / (PRICES**-0.7).sum())
        found = item_profile(sketch(PRICES, numbers, hashed(2**14), DiscreteLaplace(1), rng))
        at_least = numbers[::-1].cumsum()[::-1]
        asked = [(found.exactly(int(t)), n) for t, n in zip(PRICES, numbers)]
        asked += [(found.at_least(int(t)), n) for t, n in zip(PRICES, at_least)]
        missed += sum(not answer.low <= n <= answer.high for answer, n in asked)
    assert missed <= 40  # other machines round otherwise, and take other paths


def test_runs_too_short_for_a_period_have_none():
    """Six far clusters at ε = 2.24: the grid holds many counts, but no run is long enough for a step of period 5 on."""
    rng, a = np.random.default_rng(0), math.exp(-2.24)
    counts = np.repeat([0, 40, 80, 120, 160, 200], 150)
    noisy = counts + rng.geometric(1 - a, counts.size) - rng.geometric(1 - a, counts.size)
    fit = auto(NoisyProfile.from_counts(noisy, epsilon=2.24))
    assert fit.diagnostics["fallback"] is None
    assert np.isin(fit.support[fit.mass > 0.1], counts).all()


def test_walks_alike_are_fitted_once_and_weigh_as_many(monkeypatch):
    """Leaving them out, and the unlikeliest thousandth, moves distinct by less than 1/50 of its standard error."""
    rng = np.random.default_rng(3)
    t = np.arange(1, 40)
    numbers = rng.poisson(600 * 0.7 ** (t - 1))
    noisy = sketch(t, numbers, hashed(1 << 11), DiscreteLaplace(1), rng)
    found = collisions(noisy)
    monkeypatch.setattr("unnoise.engine.walk.ALIKE", 0.0)
    monkeypatch.setattr("unnoise.engine.search.SLIGHT", 0.0)
    whole = collisions(noisy)
    assert found.diagnostics["fits"] < whole.diagnostics["fits"]
    b = np.ones(found.posterior.mean.size)
    stderr = math.sqrt(float(b @ whole.posterior.covariance[: b.size, : b.size] @ b))
    assert abs(found.items.sum() - whole.items.sum()) < 0.02 * stderr
    assert float(b @ found.posterior.covariance @ b) == pytest.approx(stderr**2, rel=0.02)


@pytest.mark.parametrize("collide", [True, False])
@pytest.mark.parametrize("at_once", [1, 1 << 20])
def test_many_sets_of_points_are_weighed_as_each_by_itself(collide, at_once, monkeypatch):
    monkeypatch.setattr("unnoise.engine.fourier.AT_ONCE", at_once)
    channel, _ = channel_of(DiscreteLaplace(1, 2), collide=collide)
    sets = [(np.array(places), np.array([*mass, 3.0])) for places, mass in
            [([1], [40.0]), ([2, 7], [30.0, 5.0]), ([7, 2, 19], [1.0, 20.0, 4.0]), ([1], [10.0])]]  # fmt: skip
    alone = [channel.only(places).at(mass).value for places, mass in sets]
    assert channel.values(sets) == pytest.approx(alone, rel=1e-12)
    assert channel.values([]).size == 0


# ---------------------------------------------------------------- multiples


def noisy_multiples(counts, epsilon, power, rng, layout):
    """The noisy cells that such counts give, shared by chance if they are hashed."""
    cells = counts
    if layout.kind == "hashed":
        cells = np.bincount(rng.integers(0, layout.cells, counts.size), weights=counts, minlength=layout.cells)
    p = -math.expm1(-epsilon)
    noise = rng.negative_binomial(power, p, (2, layout.cells))
    return NoisyCounts(cells.astype(np.int64) + noise[0] - noise[1], DiscreteLaplace(epsilon, power), layout).profile()


@pytest.mark.parametrize("times", [2, 7, 60])
@pytest.mark.parametrize("power", [1, 2])
def test_what_all_counts_are_multiples_of_shows(times, power):
    rng = np.random.default_rng([times, power])
    for shared in (False, True):
        layout = hashed(10_000) if shared else Layout(kind="known", cells=10_000)
        noisy = noisy_multiples(times * rng.geometric(0.2, 10_000), 1.5, power, rng, layout)
        assert likely_strides(noisy.values, noisy.tally, noisy.noise) == [times]


@pytest.mark.parametrize("law", ["smooth", "small", "few of them", "none", "one giant"])
def test_other_counts_are_multiples_of_nothing(law):
    rng = np.random.default_rng(5)
    counts = {
        "smooth": rng.geometric(0.05, 10_000), "small": rng.poisson(0.7, 10_000),
        "few of them": np.where(rng.random(10_000) < 0.2, rng.geometric(0.1, 10_000), 6 * rng.geometric(0.1, 10_000)),
        "none": np.zeros(10_000, dtype=np.int64), "one giant": np.append(np.zeros(9_999, dtype=np.int64), 10**12),
    }[law]  # fmt: skip
    for epsilon in (0.1, 1.0, 3.0):
        noisy = noisy_multiples(counts, epsilon, 1, rng, Layout(kind="known", cells=10_000))
        assert likely_strides(noisy.values, noisy.tally, noisy.noise) == []


@pytest.mark.parametrize(("epsilon", "power", "shared"), [(0.4, 5, False), (0.9, 8, False), (0.5, 3, True)])
def test_a_hill_and_zeros_are_no_multiples_of_what_lies_beneath_the_hill(epsilon, power, shared):
    """Sensors report 144 times a day, now and then 143 or 142, and some fail: taken for multiples of 11, 13, 16, 20."""
    for run in range(8):
        rng = np.random.default_rng([power, run])
        counts = np.where(rng.random(4096) < 0.85, 144 - rng.binomial(144, 0.01, 4096), rng.integers(0, 145, 4096))
        layout = hashed(10_000) if shared else Layout(kind="known", cells=4096)
        noisy = noisy_multiples(counts, epsilon, power, rng, layout)
        assert likely_strides(noisy.values, noisy.tally, noisy.noise) == []


@pytest.mark.parametrize(("times", "power", "epsilon"), [(2, 1, 1.0), (10, 1, 3.0), (5, 3, 1.0)])
def test_multiples_beneath_shared_cells_are_told_as_well_as_any(times, power, epsilon):
    rng = np.random.default_rng([times, power])
    counts = times * rng.geometric(0.1, 30_000)
    found = reconstruct(noisy_multiples(counts, epsilon, power, rng, hashed(2**15)))
    off = found.support % times != 0
    assert float(found.mass[off].sum()) < 1e-3
    for k in (1, times, 5 * times, 20 * times):
        true = int((counts >= k).sum())
        answer = found.at_least(k)
        assert abs(answer.value - true) < 5 * answer.stderr + 1
    beside = found.exactly(times + 1)  # nothing there, and nobody can be sure
    assert beside.value == 0
    assert beside.high > 0


@pytest.mark.parametrize("most", [300, 800])
def test_multiples_that_end_at_a_cap_are_multiples_still(most):
    """Twenty items or more at the cap are a point beside the walk, whatever it counts in."""
    rng = np.random.default_rng([2, most])
    counts = 2 * np.minimum(rng.zipf(1.6, 3000), most)
    assert (counts == 2 * most).sum() > 20
    found = reconstruct(noisy_multiples(counts, 1.0, 1, rng, hashed(2**12)))
    assert float(found.mass[found.support % 2 != 0].sum()) < 1e-3
    for k in (5, 6, 7, 2 * most):
        answer = found.exactly(k)
        assert answer.low <= (counts == k).sum() <= answer.high


def test_no_multiple_is_above_the_largest_count():
    """A lone cell of 63 among multiples of 5, where no count is above 63: once told as 65."""
    rng = np.random.default_rng(1)
    counts = np.append(5 * rng.binomial(4, 0.3, 3999), 63)
    ends = rng.geometric(-math.expm1(-2), (2, 4000))
    found = reconstruct(counts + ends[0] - ends[1], epsilon=2, max_count=63)
    assert found.support.max() <= 63


@pytest.mark.parametrize(("times", "power", "epsilon"), [(2, 1, 0.5), (5, 2, 0.5), (10, 3, 0.5)])
def test_multiples_of_a_known_domain_are_told_to_a_hundredth(times, power, epsilon):
    rng = np.random.default_rng([times, power])
    counts = times * (rng.geometric(0.1, 200_000) - 1)
    fit = auto(noisy_multiples(counts, epsilon, power, rng, Layout(kind="known", cells=counts.size)))
    truth = np.bincount(counts, minlength=int(fit.support[-1]) + 1) / counts.size
    told = np.bincount(fit.support, weights=fit.mass, minlength=truth.size)
    assert f"multiples of {times}" in fit.diagnostics["models"][0][0]
    assert np.abs(told - truth).sum() < 0.015
    assert float(fit.mass[fit.support % times != 0].sum()) < 1e-3


@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_many_single_counts_beneath_shared_cells_are_told(epsilon):
    """Forty counts up to 1,000, of no period: blocks of counts would smear them.

    Without `spikes` distinct is 5 % and 4 % too large, and 19 % and 17 % of the items stand where there are none.
    """
    rng = np.random.default_rng(4)
    places = np.sort(rng.choice(np.arange(1, 1000), 40, replace=False))
    counts = rng.choice(places, 15_000, p=rng.dirichlet(np.ones(40)))
    found = reconstruct(noisy_multiples(counts, epsilon, 1, rng, hashed(2**14)))
    assert found.distinct.value == pytest.approx(counts.size, rel=0.03)
    assert float(found.mass[~np.isin(found.support, places)].sum()) < 0.15


def test_a_series_beyond_every_number_shows_no_single_counts():
    """Of the law that is left of many noises the reciprocal may grow from count to count; the overflow was told."""
    rng = np.random.default_rng(0)
    noisy = noisy_multiples(100 * rng.geometric(0.3, 1500), 0.36, 31, rng, hashed(2**9))
    with np.errstate(over="raise", invalid="raise"):
        assert spikes([(noisy, 1.0)], 3000).size == 0
