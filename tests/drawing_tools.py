"""Noisy counts drawn for the tests by NumPy: cells of a known domain, and those beneath hashed items."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

from items import sketch, zipf_numbers

from unnoise.noise import DiscreteLaplace
from unnoise.noisy import NoisyProfile

__all__ = ["noisy_profile", "simulate", "sketch", "zipf_numbers"]


def simulate(rng: np.random.Generator, counts: np.ndarray, law: DiscreteLaplace) -> np.ndarray:
    """Noisy counts by NumPy's geometric differences (integer powers)."""
    p = 1 - law.a
    noise = sum(rng.geometric(p, counts.size) - rng.geometric(p, counts.size) for _ in range(int(law.power)))
    return counts + noise


def noisy_profile(rng: np.random.Generator, counts: np.ndarray, law: DiscreteLaplace) -> NoisyProfile:
    return NoisyProfile.from_counts(simulate(rng, counts, law), epsilon=law.epsilon, power=law.power)
