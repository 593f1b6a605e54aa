"""Noisy histograms of other libraries: which mechanisms carry discrete Laplace noise, checked by sampling them.

Every mechanism that docs/other-libraries.md lets through is drawn from and compared with the law, by one chi-square
test with a false-alarm rate of 1e-9; those that it turns away must fail the same test, and noise of a scale that is
off by 5 % must fail it too. Libraries that are not installed are skipped; OpenDP is among the development packages.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from statistics_tools import chi_square
from unnoise import DiscreteLaplace
from unnoise.answers.reconstruct import reconstruct
from unnoise.errors import InputError
from unnoise.reading.released import read_noisy_counts

pytestmark = pytest.mark.statistical

LAW = DiscreteLaplace(1)
REACH = range(-40, 41)
DRAWS = 100_000
"""So many that noise off by 5 % passes with a chance of 10⁻¹¹ (of 50,000: 10⁻³, and it did)."""


def looks_right(draws, law: DiscreteLaplace = LAW) -> bool:
    draws = np.asarray(draws)
    if not np.array_equal(draws, np.round(draws)):
        return False
    probabilities = dict(zip(REACH, law.pmf(np.array(REACH)).tolist()))
    statistic, threshold = chi_square(draws.astype(np.int64), probabilities)
    print(f"χ² = {statistic:.1f}, threshold {threshold:.1f}")
    return statistic < threshold


@pytest.fixture(scope="module")
def opendp():
    prelude = pytest.importorskip("opendp.prelude")
    prelude.enable_features("contrib")
    return prelude


def opendp_draws(dp, counts, maker: str = "make_laplace", kind: str = "i64", **options):
    space = dp.vector_domain(dp.atom_domain(T=kind, **({"nan": False} if kind == "f64" else {})))
    return np.array(getattr(dp.m, maker)(space, dp.l1_distance(T=kind), scale=1.0, **options)(counts))


@pytest.mark.parametrize("maker", ["make_laplace", "make_geometric"])
def test_opendp_on_integers_qualifies(opendp, maker):
    draws = opendp_draws(opendp, [0] * DRAWS, maker)
    assert draws.dtype == np.int64
    assert looks_right(draws)
    assert not looks_right(draws, DiscreteLaplace(1.05))
    assert not looks_right(draws, DiscreteLaplace(0.95))


def test_opendp_on_floats_is_refused(opendp, tmp_path):
    draws = opendp_draws(opendp, [0.0] * DRAWS, kind="f64")
    assert not looks_right(np.round(draws))
    np.save(tmp_path / "f.npy", draws)
    with pytest.raises(InputError, match="continuous noise is another law"):
        read_noisy_counts(tmp_path / "f.npy")


def test_a_real_opendp_histogram_is_reconstructed(opendp, tmp_path):
    rng = np.random.default_rng(3)
    counts = rng.negative_binomial(1, 0.25, 20_000)
    noisy = opendp_draws(opendp, counts.tolist())
    (tmp_path / "h.csv").write_text("n\n" + "".join(f"{n}\n" for n in noisy))
    profile = reconstruct(read_noisy_counts(tmp_path / "h.csv"), epsilon=1)
    truth = np.bincount(counts, minlength=12)
    for t in range(6):
        answer = profile.exactly(t)
        slack = 2 * (answer.high - answer.low)  # far beyond 1e-9: the interval itself is tested elsewhere
        assert answer.low - slack <= truth[t] <= answer.high + slack
    assert profile.total.value == pytest.approx(counts.sum(), rel=0.02)


def test_opendp_with_bounds_needs_clipped(opendp):
    rng = np.random.default_rng(4)
    counts = rng.poisson(2, 20_000)
    clamped = opendp_draws(opendp, counts.tolist(), "make_geometric", bounds=(0, 100))
    assert clamped.min() == 0
    profile = reconstruct(clamped, epsilon=1, clipped=True)
    assert profile.exactly(0).value == pytest.approx((counts == 0).sum(), rel=0.2)
    with pytest.warns(UserWarning, match="clamped at 0"):
        reconstruct(clamped, epsilon=1, method="isotonic")


@pytest.fixture(scope="module")
def diffprivlib():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("diffprivlib")


def test_diffprivlib(diffprivlib):
    mechanisms = diffprivlib.mechanisms
    geometric = mechanisms.Geometric(epsilon=1, sensitivity=1)
    assert looks_right([geometric.randomise(0) for _ in range(DRAWS // 5)])
    truncated = mechanisms.GeometricTruncated(epsilon=1, sensitivity=1, lower=0, upper=1000)
    draws = np.array([truncated.randomise(1) for _ in range(DRAWS // 5)])
    below = float(LAW.pmf(np.arange(-60, 0)).sum())
    expected = {0: below} | {v: float(LAW.pmf(v - 1)) for v in range(1, 40)}
    statistic, threshold = chi_square(draws, expected)
    assert statistic < threshold  # clamped: qualifies with --clipped
    folded = mechanisms.GeometricFolded(epsilon=1, sensitivity=1, lower=0, upper=1000)
    statistic, threshold = chi_square(np.array([folded.randomise(1) for _ in range(DRAWS // 5)]), expected)
    assert statistic > threshold  # folded: does not qualify


def test_diffprivlib_histograms_are_clamped(diffprivlib):
    data = np.repeat(np.arange(3000), np.random.default_rng(0).poisson(2, 3000)) + 0.5
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        noisy, _ = diffprivlib.tools.histogram(data, epsilon=1, bins=3000, range=(0, 3000))
    assert noisy.min() == 0
    profile = reconstruct(noisy.astype(np.int64), epsilon=1, clipped=True)
    assert profile.total.value == pytest.approx(data.size, rel=0.1)


def test_pydp_rounds_continuous_noise():
    """PyDP's Count returns integers, but of another law: P(0) is 0.393 and not 0.462, so it does not qualify."""
    laplacian = pytest.importorskip("pydp.algorithms.laplacian")
    draws = np.array([laplacian.Count(epsilon=1, dtype="int").quick_result([1] * 50) - 50 for _ in range(DRAWS // 3)])
    assert not looks_right(draws)
    at = {0: 1 - np.exp(-0.5)} | {z: float(np.exp(-abs(z)) * np.sinh(0.5)) for z in range(-30, 31) if z}
    statistic, threshold = chi_square(draws, at)
    print(f"rounded Laplace: χ² = {statistic:.1f}, threshold {threshold:.1f}, P(0) = {(draws == 0).mean():.3f}")
    assert statistic < threshold
