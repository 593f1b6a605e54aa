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
    near.set(xlabel="count t", ylabel="items that occur t times", xticks=counts)
    near.set_title("The first counts", loc="left", fontweight="bold")
    near.spines[["top", "right"]].set_visible(False)
    near.legend(frameon=False)
    profile.plot(whole, truth=truth)
    whole.set_title("The whole profile", loc="left", fontweight="bold")
    figure.savefig(TARGET, dpi=130)
    print(TARGET)


if __name__ == "__main__":
    main()
