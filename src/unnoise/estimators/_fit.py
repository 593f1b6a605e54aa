"""What every estimator asks of its input before it starts, and what it returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..arrays import Floats, Int64
from ..checks import is_integer
from ..errors import InputError, PrivacyError
from ..noise import DiscreteLaplace
from ..noisy import NoisyProfile

__all__ = ["LARGEST", "Fit", "Notice", "check_input", "check_max_count", "check_noise"]

LARGEST = 1 << 62
"""Noisy counts must stay below this, so that neighbours of a count never overflow 64 bits."""


@dataclass(frozen=True)
class Notice:
    """Something a reader of the answers must know.

    code : "overload", "too-noisy", "model", "misfit", "fallback" or "few-items", for programs
    text : a sentence, for people
    """

    code: str
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, eq=False)
class Fit:
    """An estimated law of the cells, sparse: ``mass[i]`` is the share of cells with count ``support[i]``.

    support : ascending counts ≥ 0, int64
    mass : float64, equally long, adding up to 1; ≥ 0 for every method but ``linear``
    method : name of the estimator
    diagnostics : what the estimator has to say of its run
    notices : what a reader of the answers must know, in every surface
    """

    support: Int64
    mass: Floats
    method: str
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    notices: tuple[Notice, ...] = ()


def check_noise(noise: Any) -> DiscreteLaplace:
    """Refuse what is not discrete Laplace noise of power ≥ 1."""
    if not isinstance(noise, DiscreteLaplace):
        raise InputError(f"noise must be a DiscreteLaplace, got {type(noise).__name__}")
    if noise.power < 1:
        raise PrivacyError(
            f"power must be ≥ 1 to reconstruct, got {noise.power}: less than one noise is a secret share, "
            f"it would give epsilon={noise.actual_epsilon:.3g} in place of {float(noise.epsilon):g}"
        )
    return noise


def check_max_count(max_count: Any) -> int | None:
    """Return a declared upper bound of the counts as an int ≥ 0, or None where there is none."""
    if max_count is None:
        return None
    if not is_integer(max_count):
        raise InputError(f"max_count must be an integer or None, got {max_count!r}")
    if not 0 <= max_count < LARGEST:
        raise InputError(f"max_count must be ≥ 0 and below 2^62, got {max_count}")
    return int(max_count)


def check_input(noisy: Any, max_count: Any) -> int | None:
    """Check a noisy profile and a declared bound; return the bound."""
    if not isinstance(noisy, NoisyProfile):
        raise InputError(f"noisy must be a NoisyProfile, got {type(noisy).__name__}")
    check_noise(noisy.noise)
    if abs(int(noisy.values[0])) >= LARGEST or abs(int(noisy.values[-1])) >= LARGEST:
        raise InputError(f"noisy counts must be below 2^62, got {noisy.values[0]} to {noisy.values[-1]}")
    return check_max_count(max_count)
