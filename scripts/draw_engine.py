"""Draw docs/img/engine.png: from noisy cells to a profile, by walks, evidence, average and one step towards the cells.

    python scripts/draw_engine.py
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("agg")

import matplotlib.pyplot as plt
import numpy as np

from unnoise.engine.search import weights
from unnoise.estimators.auto import LawPiece, body_law
from unnoise.noisy import NoisyProfile

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "img" / "engine.png"
CELLS, EPSILON, LAST = 3000, 0.4, 40


def example() -> tuple[np.ndarray, NoisyProfile, LawPiece]:
    """Return negative binomial counts, half of them zeros, their noisy profile, and what the engine makes of it."""
    rng = np.random.default_rng(3)
    counts = np.where(rng.random(CELLS) < 0.4, 0, rng.negative_binomial(4, 0.25, CELLS))
    p = 1 - np.exp(-EPSILON)
    noisy = NoisyProfile.from_counts(counts + rng.geometric(p, CELLS) - rng.geometric(p, CELLS), epsilon=EPSILON)
    found = body_law(noisy, None)
    if found is None:
        raise SystemExit("the example must have a body")
    return np.bincount(counts, minlength=LAST + 1)[: LAST + 1], noisy, found.pieces[0]


def main() -> None:
    """Draw the four panels."""
    truth, noisy, found = example()
    walks = [model for model in found.search.models if model.family is not None]
    weight = weights(walks)
    best = np.argsort(-weight)[:8]
    fig, panels = plt.subplots(2, 2, figsize=(9, 6), layout="constrained")
    cells, walk, evidence, profile = panels.flat
    cells.bar(noisy.values, noisy.tally, width=1.0, color="#9db4c0")
    cells.set(title="1. cells: noisy counts", xlim=(-12, LAST), ylabel="cells")
    for i in np.linspace(0, len(walks) - 1, 25).astype(int):
        walk.plot(found.counts, CELLS * walks[i].mass, color="#9db4c0", lw=0.8)
    for i in best[:3]:
        walk.plot(found.counts, CELLS * walks[i].mass, color="#253237", lw=1.4)
    walk.set(title="2. walks: modes of log f, stiff to loose")
    names = [walks[i].name for i in best]
    evidence.barh(np.arange(best.size), weight[best], color="#5c8d89")
    evidence.set_yticks(np.arange(best.size), names, fontsize=8)
    evidence.invert_yaxis()
    evidence.set(title="3. evidence: the weight of each walk", xlabel="weight")
    profile.step(np.arange(LAST + 1), truth, where="mid", color="#c8553d", lw=1.0, label="true counts")
    profile.plot(found.counts, found.law, color="#9db4c0", lw=2.5, label="average of the models")
    profile.plot(found.counts, found.stepped, color="#253237", lw=1.2, label="one step towards the cells")
    profile.set(title="4. average, and these very cells")
    for axis in (walk, profile):
        axis.set(ylabel="cells", yscale="log", ylim=(0.5, 3000), xlim=(0, LAST))
    profile.legend(fontsize=8)
    for axis in (cells, walk, profile):
        axis.set_xlabel("count")
    for axis in panels.flat:
        axis.spines[["top", "right"]].set_visible(False)
    PICTURE.parent.mkdir(exist_ok=True)
    fig.savefig(PICTURE, dpi=110, metadata={"Software": None})
    print(PICTURE)


if __name__ == "__main__":
    main()
