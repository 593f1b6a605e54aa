"""Draw the pictures of docs/concepts.md, step by step, from one simulated domain."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot as plt

import unnoise as un
from unnoise.estimators.linear import linear

OUT = Path(__file__).resolve().parent.parent / "docs" / "img"
EPSILON, CELLS, TOP = 0.5, 20_000, 25


def main() -> None:
    rng = np.random.default_rng(5)
    counts = np.where(rng.random(CELLS) < 0.4, rng.negative_binomial(3, 0.3, CELLS), 0)
    noise = rng.geometric(1 - np.exp(-EPSILON), (2, CELLS))
    noisy = counts + noise[0] - noise[1]
    truth = np.bincount(counts, minlength=TOP + 1)[: TOP + 1] / CELLS
    t = np.arange(TOP + 1)
    profile = un.NoisyProfile.from_counts(noisy, epsilon=EPSILON)

    def picture(name: str, title: str, *lines: tuple[object, object, str, str]) -> None:
        figure, ax = plt.subplots(figsize=(7, 3), layout="constrained")
        shown = (noisy >= -10) & (noisy <= TOP)
        values, number = np.unique(noisy[shown], return_counts=True)
        ax.bar(values, number / CELLS, width=0.9, color="0.8", label="noisy counts")
        ax.plot(t, truth, "o", color="0.1", markersize=4, label="truth")
        for x, y, colour, label in lines:
            ax.plot(x, y, color=colour, linewidth=2, label=label)
        ax.set(xlabel="count", ylabel="share of the cells", title=title, xlim=(-10, TOP))
        ax.legend(frameon=False)
        ax.spines[["top", "right"]].set_visible(False)
        figure.savefig(OUT / f"concept-{name}.png", dpi=110)
        plt.close(figure)

    clamped = np.bincount(np.maximum(noisy, 0), minlength=TOP + 1)[: TOP + 1] / CELLS
    raw = linear(profile)
    inverse = np.zeros(TOP + 1)
    inside = (raw.support >= 0) & (raw.support <= TOP)
    inverse[raw.support[inside]] = raw.mass[inside]
    recovered = un.reconstruct(profile).fractions[: TOP + 1]
    teal, orange = "#0f766e", "#d97706"
    picture("noise", f"{CELLS:,} cells, ε = {EPSILON}: the noise blurs the profile")
    picture("clamp", "clamping at zero is not the truth", (t, clamped, orange, "clamped"))
    picture("inverse", "the inverse: right on average, and rough", (t, inverse, teal, "unbiased inverse"))
    picture("average", "models averaged by their evidence", (t[: recovered.size], recovered, teal, "auto"))


if __name__ == "__main__":
    main()
