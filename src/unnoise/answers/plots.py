"""Pictures: a profile with its 95 % band, a comparison of estimators, and the look that they share with reports.

A profile is drawn as items against count, both on logarithmic axes. Small counts are drawn one by one. Further out,
counts are gathered in bins that widen by a seventh, and the picture shows items per count: the number in the bin over
its width, with the interval of that number. Count 0, which a logarithmic axis has no place for, stands to the left of
1. Whatever lies below the floor of the picture is cut there.

The look is one palette for light and one for dark:

page, card : backgrounds; ink, soft : text; edge, grid : lines around and behind
line, band : the estimate and its interval; truth : what is known to be true; tint : a chosen button; alarm : warnings
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import Floats, Int64
from ..errors import InputError
from ..guard import replacing

if TYPE_CHECKING:
    from .compare import Comparison
    from .profile import Profile

__all__ = ["DARK", "LIGHT", "bins", "check_picture", "plot_comparison", "plot_profile"]

LIGHT = {
    "page": "#f7f6f2", "card": "#ffffff", "ink": "#1b2230", "soft": "#5a6374", "edge": "#dddbd3", "grid": "#eeece6",
    "line": "#0b6e6e", "band": "#0b6e6e2b", "tint": "#e4f0ef", "truth": "#c2571a", "alarm": "#b3341f",
}  # fmt: skip
DARK = {
    "page": "#11141a", "card": "#191e27", "ink": "#e9ecf2", "soft": "#9ba6b8", "edge": "#2e3644", "grid": "#242b37",
    "line": "#55c8bc", "band": "#55c8bc33", "tint": "#1f3439", "truth": "#f2a65f", "alarm": "#ff7d68",
}  # fmt: skip


GROWTH = 1.15
"""Ratio of one bin's start to the next."""

ZERO_AT = 0.5
"""Where count 0 stands on the logarithmic axis."""

NO_PLOTS = "plotting needs matplotlib: pip install 'unnoise[plots]'"


def bins(top: int, growth: float = GROWTH) -> tuple[Int64, Int64]:
    """Return first and last count of each bin: single counts first, then ever wider, up to ``top`` at least.

    >>> first, last = bins(25, 1.1)
    >>> first[-3:].tolist(), last[-3:].tolist(), bool((first[1:] == last[:-1] + 1).all())
    ([20, 22, 24], [21, 23, 25], True)
    """
    first = [0]
    while first[-1] <= top:
        first.append(max(first[-1] + 1, int(first[-1] * growth)))
    edges = np.array(first, dtype=np.int64)
    return edges[:-1], edges[1:] - 1


def plot_profile(profile: Profile, ax: Any = None, *, truth: Any = None, level: float = 0.95) -> Any:
    """Draw a profile with its band; ``truth`` is a Profile, ``{t: items}`` or the array f[0], f[1], …

    Returns the matplotlib axes.
    """
    pyplot = _pyplot()
    if ax is None:
        _, ax = pyplot.subplots(figsize=(8.4, 4.8), layout="constrained")
    items = float(profile.items)
    known = None if truth is None else _as_law(truth)
    first, last = bins(_top(profile, known))
    answers = profile._answers(first, last, level, 1.0)
    width = (last - first + 1).astype(float)
    x = _centres(first, last)
    value, low, high = (column / width for column in (answers.value, answers.low, answers.high))
    shown = answers.high > 0
    floor = _floor(value, answers.value, width)
    _draw_band(ax, x, low, high, shown, floor)
    _draw_values(ax, x, value, answers.value, floor)
    if known is not None:
        _draw_truth(ax, known, first, last, x, width, items, floor)
    right = x[shown] if shown.any() else x  # nothing at all, and sure of it
    _dress(ax, profile, level, floor, float(max(high.max(), items if first.size == 1 else 1.0)), float(right[-1]))
    return ax


def _pyplot() -> Any:
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise InputError(NO_PLOTS) from error
    return pyplot


def check_picture(path: str) -> str:
    """Return the kind of picture that the end of a name asks for, of those that matplotlib writes; png without one."""
    try:
        from matplotlib.backend_bases import FigureCanvasBase
    except ImportError as error:
        raise InputError(NO_PLOTS) from error
    kinds = FigureCanvasBase.get_supported_filetypes()
    kind = PurePath(path).suffix[1:].lower() or "png"
    if kind not in kinds:
        raise InputError(f"{path}: the name of a picture must end in one of .{', .'.join(sorted(kinds))}, got .{kind}")
    return kind


def _as_law(truth: Any) -> tuple[Int64, Floats]:
    """Return support and shares of the truth."""
    if hasattr(truth, "support"):
        return truth.support, np.asarray(truth.mass, dtype=float)
    if isinstance(truth, Mapping):
        support = np.array(sorted(truth), dtype=np.int64)
        mass = np.array([truth[t] for t in sorted(truth)], dtype=float)
    else:
        mass = np.asarray(truth, dtype=float)
        support = np.arange(mass.size, dtype=np.int64)
    if mass.ndim != 1 or not mass.size or not mass.sum() > 0:
        raise InputError("truth must be a Profile, a mapping {t: items} or a one-dimensional array f[0], f[1], …")
    return support, mass / mass.sum()


def _top(profile: Profile, known: tuple[Int64, Floats] | None) -> int:
    """The largest count worth drawing."""
    heavy = profile.support[profile.mass * profile.items >= 0.5]
    top = int(heavy[-1]) if heavy.size else 10
    if known is not None:
        top = max(top, int(known[0][known[1] > 0][-1]))
    return max(top, 10)


def _centres(first: Int64, last: Int64) -> Floats:
    """Geometric middle of each bin; count 0 at its own place."""
    return np.where(first == 0, ZERO_AT, np.sqrt(np.maximum(first, 1).astype(float) * np.maximum(last, 1)))


def _floor(value: Floats, number: Floats, width: Floats) -> float:
    """The lowest power of ten under every bin that holds an item or more."""
    lively = value[(number >= 0.5) & (value > 0)]
    lowest = float(lively.min()) if lively.size else 0.5
    return float(10 ** np.floor(np.log10(min(lowest, 1.0)) - 0.15))


def _draw_band(ax: Any, x: Floats, low: Floats, high: Floats, shown: Any, floor: float) -> None:
    positive = shown & (x > ZERO_AT)
    ax.fill_between(
        x, np.maximum(low, floor), np.maximum(high, floor), where=positive, color=LIGHT["line"], alpha=0.16,
        linewidth=0, zorder=2, label="interval",
    )
    if shown[0]:
        ax.fill_between(
            [ZERO_AT / 1.12, ZERO_AT * 1.12], max(low[0], floor), max(high[0], floor), color=LIGHT["line"], alpha=0.16,
            linewidth=0, zorder=2,
        )


def _draw_values(ax: Any, x: Floats, value: Floats, number: Floats, floor: float) -> None:
    alive = (number >= 0.5) & (value >= floor)
    line = np.where(alive, value, np.nan)[1:]  # NaN breaks the line where nothing was found
    ax.plot(x[1:], line, color=LIGHT["line"], linewidth=1.3, alpha=0.55, zorder=3)
    ax.plot(
        x[alive], value[alive], "o", color=LIGHT["line"], markersize=4.2, markeredgecolor=LIGHT["card"],
        markeredgewidth=0.7, zorder=4, label="reconstructed",
    )


def _draw_truth(
    ax: Any, known: tuple[Int64, Floats], first: Int64, last: Int64, x: Floats, width: Floats,
    items: float, floor: float,
) -> None:  # fmt: skip
    running = np.concatenate([[0.0], np.cumsum(known[1])])
    inside = running[np.searchsorted(known[0], last, side="right")] - running[np.searchsorted(known[0], first)]
    y = items * inside / width
    alive = (items * inside >= 0.5) & (y >= floor)
    ax.plot(
        x[alive], y[alive], "D", markerfacecolor="none", markeredgecolor=LIGHT["truth"], markersize=6.4,
        markeredgewidth=1.1, zorder=5, label="truth",
    )


def _dress(ax: Any, profile: Profile, level: float, floor: float, top: float, right: float) -> None:
    """Axes, grid, title and legend in the project's look."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(ZERO_AT / 1.6, right * 1.6)
    ax.set_ylim(floor, 10 ** np.ceil(np.log10(top) + 0.05))
    ax.set_facecolor(LIGHT["card"])
    ax.figure.set_facecolor(LIGHT["card"])
    decades = 10 ** np.arange(0, int(np.ceil(np.log10(right))) + 1)
    ax.set_xticks([ZERO_AT, *decades.tolist()], ["0", *(_grouped(float(t)) for t in decades)])
    ax.xaxis.set_minor_locator(LogLocator(subs=(2, 5)))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda v, _: _grouped(v)))
    ax.yaxis.set_minor_locator(LogLocator(subs=()))
    ax.grid(True, which="major", color=LIGHT["grid"], linewidth=0.9)
    ax.set_axisbelow(True)
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    ax.spines["bottom"].set_color(LIGHT["edge"])
    ax.tick_params(which="both", colors=LIGHT["soft"], length=0, labelsize=9)
    ax.axvline(ZERO_AT**0.5, color=LIGHT["edge"], linewidth=0.8, linestyle=(0, (2, 3)), zorder=1)
    ax.set_xlabel("count t", color=LIGHT["soft"], fontsize=9.5)
    ax.set_ylabel("items per count", color=LIGHT["soft"], fontsize=9.5)
    ax.set_title(
        f"How many items occur t times  ·  {100 * level:g} % intervals", loc="left", color=LIGHT["ink"],
        fontsize=11.5, fontweight="bold", pad=12,
    )
    legend = ax.legend(loc="upper right", frameon=False, fontsize=9, labelcolor=LIGHT["ink"], handletextpad=0.4)
    legend.set_zorder(6)


def _grouped(v: float) -> str:
    """Write a tick: 1,000, 1 M, 0.01."""
    if v >= 1e6:
        return f"{v / 1e6:,.0f} M" if v < 1e9 else f"{v / 1e9:,.0f} G" if v < 1e12 else f"{v:.0e}"
    return f"{v:,.0f}" if v >= 1 else f"{v:g}"


COLOURS = ("#0b6e6e", "#c2571a", "#5b4a9c", "#2f7fc1", "#8a8f2a", "#a83a6c", "#6b7280", "#3f3f46")


def plot_comparison(comparison: Comparison, path: str, *, new: bool = False) -> None:
    """Write both errors on a line of ratios, and the cumulative curves of all estimators beside the truth.

    The end of the name says what is written; ``new``: not over a file that is there.
    """
    kind = check_picture(path)
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    done = [result for result in comparison.results if result.profile is not None]
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), width_ratios=(1, 1.25), layout="constrained")
    places = np.arange(len(done))[::-1]
    left.plot([r.l1 for r in done], places, "o", ms=8, color=LIGHT["line"], label="ℓ1")
    left.plot([r.w1 for r in done], places, "D", ms=7, mfc="none", mew=1.8, color=LIGHT["truth"], label="W1")
    left.grid(True, axis="y", color=LIGHT["grid"])
    left.set_yticks(places, [r.method for r in done])
    left.set_xscale("log")
    left.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    left.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    left.xaxis.set_minor_formatter(NullFormatter())
    left.set_xlabel("error, smaller is better")
    left.margins(x=0.1)
    left.legend(frameon=False, loc="upper left", bbox_to_anchor=(0, 1.1), ncols=2)
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
    with replacing(path, new=new) as handle, open(handle, "wb", closefd=False) as file:
        figure.savefig(file, dpi=150, format=kind)
    plt.close(figure)
