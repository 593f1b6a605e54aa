"""The picture of a comparison, with matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .palette import LIGHT

if TYPE_CHECKING:
    from .compare import Comparison

__all__ = ["plot_comparison"]

COLOURS = ("#0b6e6e", "#c2571a", "#5b4a9c", "#2f7fc1", "#8a8f2a", "#a83a6c", "#6b7280", "#3f3f46")


def plot_comparison(comparison: Comparison, path: str) -> None:
    """Write bars of both errors, and the cumulative curves of all estimators beside the truth."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    done = [result for result in comparison.results if result.profile is not None]
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), width_ratios=(1, 1.25), layout="constrained")
    places = np.arange(len(done))[::-1]
    left.barh(places + 0.2, [r.l1 for r in done], 0.36, color=LIGHT["line"], label="ℓ1")
    left.barh(places - 0.2, [r.w1 for r in done], 0.36, color=LIGHT["truth"], label="W1")
    left.set_yticks(places, [r.method for r in done])
    left.set_xscale("log")
    left.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    left.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    left.xaxis.set_minor_formatter(NullFormatter())
    left.set_xlabel("error, smaller is better")
    left.legend(frameon=False)
    reach = np.cumsum(comparison.how_many[::-1])[::-1]
    shown = comparison.values > 0
    for colour, result in zip(COLOURS, done):
        profile = result.profile
        assert profile is not None
        above = np.cumsum((profile.mass * profile.items)[::-1])[::-1]
        keep = (profile.support > 0) & (above > 0.5)
        right.plot(profile.support[keep], above[keep], color=colour, lw=1.3, label=result.method)
    right.plot(comparison.values[shown], reach[shown], "k:", lw=1.6, label="truth")
    right.set_xscale("log")
    right.set_yscale("log")
    right.set_xlabel("k")
    right.set_ylabel("items that occur at least k times")
    right.legend(frameon=False, fontsize=8)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(colors=LIGHT["soft"])
    figure.suptitle(f"ε = {comparison.epsilon:g}")
    figure.savefig(path, dpi=150)
    plt.close(figure)
