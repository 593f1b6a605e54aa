"""What an estimator returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..arrays import Floats, Int64

__all__ = ["Fit", "Notice"]


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
