"""The picture of a profile: what is drawn agrees with the numbers."""

from __future__ import annotations

import numpy as np
import pytest

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("agg")

from matplotlib import pyplot  # noqa: E402

from drawing_tools import noisy_profile  # noqa: E402
from unnoise.answers.plots import ZERO_AT, bins  # noqa: E402
from unnoise.answers.reconstruct import reconstruct  # noqa: E402
from unnoise.api import direct  # noqa: E402
from unnoise.errors import InputError  # noqa: E402
from unnoise.noise import DiscreteLaplace  # noqa: E402


@pytest.fixture(scope="module")
def drawn():
    rng = np.random.default_rng(0)
    counts = np.minimum(np.floor((1 - rng.random(5000)) ** -0.9), 10**6).astype(np.int64) - 1
    return counts, reconstruct(noisy_profile(rng, counts, DiscreteLaplace(1)), method="isotonic")


def test_bins_cover_every_count_once():
    first, last = bins(10**6)
    assert first[0] == 0
    assert last[-1] >= 10**6
    assert (first[1:] == last[:-1] + 1).all()
    assert (first[:6] == last[:6]).all()


def test_points_are_items_per_count(drawn):
    _, p = drawn
    ax = p.plot()
    points = next(line for line in ax.lines if line.get_label() == "reconstructed")
    x, y = points.get_xdata(), points.get_ydata()
    assert y[np.argmin(np.abs(x - 1))] == pytest.approx(p.exactly(1).value)
    assert y[0] == pytest.approx(p.exactly(0).value)
    assert x[0] == ZERO_AT
    assert ax.get_xscale() == ax.get_yscale() == "log"
    pyplot.close(ax.figure)


@pytest.mark.parametrize("form", ["mapping", "array", "profile"])
def test_truth_is_drawn_from_any_form(drawn, form):
    counts, p = drawn
    values, cells = np.unique(counts, return_counts=True)
    dense = np.bincount(np.minimum(counts, 500))
    truth = {"mapping": dict(zip(values.tolist(), cells.tolist())), "array": dense / dense.sum(), "profile": p}[form]
    _, ax = pyplot.subplots()
    assert p.plot(ax, truth=truth) is ax
    assert "truth" in [line.get_label() for line in ax.lines]
    pyplot.close(ax.figure)


def test_a_bad_truth_is_refused(drawn):
    with pytest.raises(InputError, match="truth must be"):
        drawn[1].plot(truth=[])
    pyplot.close("all")


def test_extremes_can_be_drawn():
    for noisy in ([0, 0, -1], [10**9, 3, 1], [5]):
        ax = reconstruct(noisy, epsilon=1, method="isotonic").plot()
        ax.figure.canvas.draw()
        pyplot.close(ax.figure)


def test_no_rows_can_be_drawn():
    """At ε = 400 no noise says that there might be one."""
    for options in ({}, {"person": True}):
        ax = direct([], epsilon=400, **options).plot()
        ax.figure.canvas.draw()
        pyplot.close(ax.figure)
