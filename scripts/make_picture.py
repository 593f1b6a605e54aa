"""Draw docs/img/readme.png: what a private sketch of the flights holds, what is recovered from it, and the truth."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot as plt

import unnoise as un
from unnoise.demo import flights

TARGET = Path(__file__).resolve().parent.parent / "docs" / "img" / "readme.png"


def main() -> None:
    data = flights()
    truth = np.bincount(data.group_by("tailnum", "dest").len()["len"].to_numpy())
    sketch = un.Sketch.hashed(2**16, epsilon=1.0)
    sketch.update(data.select("tailnum", "dest"))
    noisy = sketch.release().profile()
    profile = un.reconstruct(noisy)
    figure, axes = plt.subplots(figsize=(9.6, 5), layout="constrained")
    profile.plot(axes, truth=truth)
    seen = noisy.values >= 1
    label = "cells of the sketch, noise and all"
    axes.scatter(noisy.values[seen], noisy.tally[seen], s=9, color="#9aa5b1", zorder=1, label=label)
    axes.legend(frameon=False)
    figure.savefig(TARGET, dpi=130)
    print(TARGET)


if __name__ == "__main__":
    main()
