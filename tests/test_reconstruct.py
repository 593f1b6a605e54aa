"""reconstruct: what it takes, what it refuses and how it says so."""

from __future__ import annotations

import numpy as np
import pytest

from drawing_tools import noisy_profile, simulate
from unnoise.answers.reconstruct import reconstruct
from unnoise.errors import ClaimWarning, InputError, PrivacyError
from unnoise.estimators.methods import METHODS, MOST_SPREAD
from unnoise.layout import Layout
from unnoise.noise import DiscreteLaplace
from unnoise.noisy import NoisyCounts, NoisyProfile

COUNTS = np.random.default_rng(0).poisson(1, 3000)
NOISY = simulate(np.random.default_rng(1), COUNTS, DiscreteLaplace(1))


@pytest.mark.parametrize("kind", ["array", "list", "unsigned free", "NoisyCounts", "NoisyProfile", "polars", "pandas"])
def test_every_form_of_input_gives_the_same_profile(kind):
    import pandas
    import polars

    law = DiscreteLaplace(1)
    given = {
        "array": NOISY, "list": NOISY.tolist(), "unsigned free": NOISY.astype(np.int16),
        "NoisyCounts": NoisyCounts(NOISY, law, Layout(kind="known", cells=3000, domain=3000)),
        "NoisyProfile": NoisyProfile.from_counts(NOISY, epsilon=1),
        "polars": polars.Series(NOISY), "pandas": pandas.Series(NOISY),
    }[kind]
    p = reconstruct(given, epsilon=1, method="isotonic")
    assert p.total.value == pytest.approx(reconstruct(NOISY, noise=law, method="isotonic").total.value)


@pytest.mark.parametrize("method", ["paper", "linear", "isotonic", "likelihood", "exact"])
@pytest.mark.parametrize("norm", [2])
def test_every_method_runs_and_says_its_name(method, norm):
    p = reconstruct(NOISY, epsilon=1, method=method, norm=norm)
    assert p.method.startswith(method)
    assert p.mass.sum() == pytest.approx(1)
    assert np.abs(p.fractions[:3] - np.bincount(COUNTS)[:3] / 3000).max() < 0.15


@pytest.mark.parametrize("norm", [1, np.inf])
def test_the_linear_program_takes_its_two_norms(norm):
    p = reconstruct(NOISY[:300], epsilon=1, method="lp", norm=norm)
    assert p.mass.sum() == pytest.approx(1)
    with pytest.raises(InputError, match="norm must be 1 or inf for method 'lp', got 2"):
        reconstruct(NOISY, epsilon=1, method="lp", norm=2)


def test_a_method_takes_the_norm_that_it_has():
    """``lp`` has no 2, and neither the command line nor docs/paper.md names a norm for it."""
    chosen, first = (reconstruct(NOISY[:300], epsilon=1, method="lp", **norm) for norm in ({}, {"norm": 1}))
    assert np.array_equal(chosen.mass, first.mass)


def test_merged_noise_says_that_the_check_is_not_available():
    law = DiscreteLaplace(1, 2)
    p = reconstruct(noisy_profile(np.random.default_rng(2), COUNTS, law), method="isotonic")
    assert not p.diagnostics["claim"]["available"]
    assert "not available" in p.diagnostics["claim"]["verdict"]
    assert p.total.low < COUNTS.sum() < p.total.high


REFUSED = [
    ({}, "epsilon is required: 1.0 is a common start; see unnoise plan"),
    ({"epsilon": 1, "method": "magic"}, "method must be one of auto, exact, .* got 'magic'"),
    ({"epsilon": 1, "norm": 3}, "norm must be 1, 2 or inf, got 3"),
    ({"epsilon": -1}, "epsilon must be > 0, got -1"),
    ({"epsilon": 1, "noise": DiscreteLaplace(2)}, r"epsilon must agree with .*epsilon=2.*, got epsilon=1"),
    ({"noise": 3}, "noise must be a DiscreteLaplace, got int"),
    ({"epsilon": 1, "max_count": -1}, "max_count must be ≥ 0"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_what_is_refused_says_what_must_hold(options, message):
    with pytest.raises(InputError, match=message):
        reconstruct(NOISY, **{"method": "isotonic", **options})


def test_a_conflict_with_the_noisy_profile_names_both():
    noisy = NoisyProfile.from_counts(NOISY, epsilon=1)
    with pytest.raises(InputError, match=r"epsilon must agree with .*epsilon=1\), got epsilon=2"):
        reconstruct(noisy, epsilon=2)
    with pytest.raises(InputError, match=r"noise must agree"):
        reconstruct(noisy, noise=DiscreteLaplace(1, 2))


def test_less_than_one_noise_is_refused_with_the_epsilon_it_would_give():
    noisy = NoisyProfile.from_counts(NOISY, epsilon=1, power="1/2")
    with pytest.raises(PrivacyError, match=r"power must be ≥ 1 .* got 1/2.*epsilon=1\.68"):
        reconstruct(noisy)


@pytest.mark.parametrize(
    ("bad", "message"),
    [([0.5, 1.0], "got floats"), ([], "must not be empty"), (["a"], "must be integers"), ([[1, 2]], "one-dimensional")],
)
def test_what_is_not_signed_integers_is_refused(bad, message):
    with pytest.raises(InputError, match=message):
        reconstruct(bad, epsilon=1)


# ------------------------------------------------------------------------------------------------ clipped, thresholded


def test_clamped_input_warns_and_needs_clipped():
    with pytest.warns(ClaimWarning, match="pass clipped=True"):
        reconstruct(np.maximum(NOISY, 0), epsilon=1, method="isotonic")
    for method in ("paper", "exact"):
        with pytest.raises(InputError, match="clamped at 0 unless clipped=True"):
            reconstruct(np.maximum(NOISY, 0), epsilon=1, method=method)


@pytest.mark.parametrize("method", ["isotonic", "likelihood", "linear"])
def test_folding_methods_lose_nothing_by_clamping(method):
    whole = reconstruct(NOISY, epsilon=1, method=method)
    cut = reconstruct(np.maximum(NOISY, 0), epsilon=1, method=method, clipped=True)
    assert cut.fractions == pytest.approx(whole.fractions, abs=1e-9)
    assert cut.total.interval == pytest.approx(whole.total.interval)


@pytest.mark.parametrize("method", ["paper", "exact"])
def test_other_methods_unfold_clipped_input(method):
    p = reconstruct(np.clip(NOISY, 0, 8), epsilon=1, method=method, clipped=True, max_count=8)
    assert p.diagnostics["clipped"] == "unfolded by fresh geometric tails"
    assert np.abs(p.fractions[:3] - np.bincount(COUNTS)[:3] / 3000).max() < 0.15


def test_clipping_is_checked():
    with pytest.raises(InputError, match="clipped counts must be ≥ 0, got -"):
        reconstruct(NOISY, epsilon=1, clipped=True)
    with pytest.raises(InputError, match="clipped counts must be ≤ max_count=2, got"):
        reconstruct(np.maximum(NOISY, 0), epsilon=1, clipped=True, max_count=2)
    with pytest.raises(InputError, match=r"one noise \(power 1\), got power 2"):
        reconstruct(np.maximum(NOISY, 0), noise=DiscreteLaplace(1, 2), clipped=True)


@pytest.mark.parametrize("replacement", [None, 0])
def test_thresholded_input_is_refused(replacement):
    kept = NOISY[NOISY >= 2] if replacement is None else np.where(NOISY >= 2, NOISY, replacement)
    for clipped in (False, True):
        with pytest.raises(InputError, match="must not be thresholded"):
            reconstruct(kept, epsilon=1, method="isotonic", clipped=clipped)


def test_input_cut_from_above_is_refused():
    with pytest.raises(InputError, match="clipped from above unless clipped=True and max_count=1"):
        reconstruct(np.minimum(NOISY, 1), epsilon=1, method="isotonic")


def test_the_table_of_methods_is_the_contract():
    assert set(METHODS) == {"auto", "paper", "linear", "isotonic", "likelihood", "exact", "smooth", "lp"}


@pytest.mark.parametrize(("epsilon", "power", "cells", "kind"), [
    (1, 1, 64, "robust"), (1, 3, 4096, "robust"), (1, 5, 4096, "model"), (1, 5, 64, "model"),
    ("0.03", 1, 4096, "model"), ("0.1", 1, 10_000, "robust"), (3, 20, 4096, "robust"), (3, 200, 4096, "model"),
])  # fmt: skip
def test_intervals_are_robust_unless_unbiased_numbers_may_be_off_by_all_cells(epsilon, power, cells, kind):
    """By public parameters alone: the data have no say."""
    noise = DiscreteLaplace(epsilon, power)
    for counts in (np.zeros(cells, dtype=int), np.arange(cells) % 7):
        rng = np.random.default_rng(3)
        p = -np.expm1(-float(noise.epsilon))
        noisy = counts + rng.negative_binomial(power, p, cells) - rng.negative_binomial(power, p, cells)
        found = reconstruct(noisy, noise=noise)
        assert found.kind == found.at_least(2).kind == kind


@pytest.mark.parametrize(("epsilon", "power"), [("6e-7", 1), ("1e-5", 250), ("1e-12", 1)])
def test_noise_that_hides_everything_is_refused(epsilon, power):
    """It had taken all memory: cells are laid out as far as the noise reaches."""
    noise = DiscreteLaplace(epsilon, power)
    assert noise.variance > MOST_SPREAD**2
    for method in ("auto", "isotonic", "linear"):
        with pytest.raises(InputError, match=r"standard deviation of at most 2,097,152.*take a larger ε"):
            reconstruct([1, 2, 3], noise=noise, method=method)
    hashed = NoisyCounts(np.zeros(64, dtype=np.int64), noise, Layout(kind="hashed", cells=64, hash_seed=0))
    with pytest.raises(InputError, match="take a larger ε"):
        reconstruct(hashed)


def test_the_strongest_noise_of_persons_without_a_limit_is_answered():
    """The control: at most 10⁶ contributions of a person at ε = 1."""
    noise = DiscreteLaplace("1e-6")
    assert noise.variance < MOST_SPREAD**2
    found = reconstruct(np.array([5, -2_000_000, 900_000]), noise=noise)
    assert 0 <= found.distinct.low <= found.distinct.high <= 3
