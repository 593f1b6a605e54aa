"""Draw docs/img/readme.png: what a private sketch of the flights holds, what is recovered from it, and the truth."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot as plt

import unnoise as un
from unnoise.answers.plots import LIGHT
from unnoise.demo import flights

TARGET = Path(__file__).resolve().parent.parent / "docs" / "img" / "readme.png"


def main() -> None:
    data = flights()
    truth = np.bincount(data.group_by("tailnum", "dest").len()["len"].to_numpy())
    sketch = un.Sketch.hashed(2**16, epsilon=1.0)
    sketch.update(data.select("tailnum", "dest"))
    noisy = sketch.release().profile()
    profile = un.reconstruct(noisy)
    figure, (near, whole) = plt.subplots(1, 2, figsize=(12.5, 4.6), layout="constrained", width_ratios=[1, 1.25])
    counts = np.arange(1, 13)
    answers = [profile.exactly(int(t)) for t in counts]
    seen = np.array([noisy.tally[noisy.values == t].sum() for t in counts])
    near.bar(counts, seen, color="#cbd2d9", width=0.8, label="cells of the sketch, noise and all")
    near.errorbar(
        counts, [a.value for a in answers], yerr=np.array([(a.value - a.low, a.high - a.value) for a in answers]).T,
        fmt="o", color=LIGHT["line"], markersize=5, capsize=3, label="reconstructed, 95 % interval",
    )  # fmt: skip
    near.scatter(counts, truth[counts], marker="D", s=52, facecolor="none", edgecolor=LIGHT["truth"], label="truth")
    profile.plot(whole, truth=truth)
    near.set(xticks=counts)
    near.set_xlabel("count t", color=LIGHT["soft"], fontsize=9.5)
    near.set_ylabel("items that occur t times", color=LIGHT["soft"], fontsize=9.5)
    near.yaxis.set_major_formatter("{x:,.0f}")
    near.grid(True, axis="y", color=LIGHT["grid"], linewidth=0.9)
    near.set_axisbelow(True)
    near.spines[["top", "right", "left"]].set_visible(False)
    near.spines["bottom"].set_color(LIGHT["edge"])
    near.tick_params(colors=LIGHT["soft"], length=0, labelsize=9)
    near.legend(frameon=False, fontsize=9, labelcolor=LIGHT["ink"])
    for ax, title in ((near, "The first counts"), (whole, "The whole profile")):
        ax.set_title(title, loc="left", color=LIGHT["ink"], fontsize=11.5, fontweight="bold", pad=10)
    figure.savefig(TARGET, dpi=130, bbox_inches="tight", pad_inches=0.12)
    print(TARGET)


if __name__ == "__main__":
    main()
