"""What several sketches together reveal: ε added up over the noises in them.

Every sketch is a sum of noise vectors with the data counted under them, and carries the identities of those noises.
All files together are functions of the noisy vectors behind them, so an occurrence that was counted under one of them
has that ε, whatever was merged from it; counted anew under each of n noises (the same rows read again, say), it has n
times that. A person adds up over ingestion calls; a file whose noises are all in another of the files adds nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from ..noise import tidy

if TYPE_CHECKING:
    from .sketch import Sketch

__all__ = ["Budget", "total_budget"]


@dataclass(frozen=True)
class Budget:
    """The total over some sketches.

    once : ε of an occurrence that was counted once; again : of one counted anew under every noise
    person : ε of a person in every ingestion call, None where some sketch does not limit persons
    noises : number of different noises
    """

    once: Fraction
    again: Fraction
    person: Fraction | None
    noises: int

    def __str__(self) -> str:
        text = f"ε = {tidy(self.once)} for one occurrence counted in one place"
        if self.noises > 1:
            text += f"; ε = {tidy(self.again)} for one counted anew under each of the {self.noises} noises"
        if self.person is None:
            return f"{text}. A person with k occurrences: k times that."
        return f"{text}. A person who is in every ingestion call: ε = {tidy(self.person)}."

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain Python."""
        return {
            "epsilon_per_occurrence": tidy(self.once),
            "epsilon_per_occurrence_counted_everywhere": tidy(self.again),
            "epsilon_per_person": None if self.person is None else tidy(self.person),
            "noises": self.noises,
        }


def total_budget(sketches: Mapping[str, Sketch]) -> Budget:
    """Add up what all sketches together give away."""
    held: dict[bytes, Fraction] = {}
    for sketch in sketches.values():
        for identity in sketch._identities:
            held[identity] = max(held.get(identity, Fraction(0)), sketch.noise.epsilon)
    person: Fraction | None = Fraction(0)
    for sketch in _outermost(list(sketches.values())):
        spent = sketch.person_epsilon
        person = None if person is None or spent is None else person + spent
    return Budget(max(held.values()), sum(held.values(), Fraction(0)), person, len(held))


def _outermost(sketches: list[Sketch]) -> list[Sketch]:
    """Leave out sketches whose noises are all contained in another one (equal ones: keep the first)."""
    kept = []
    for i, sketch in enumerate(sketches):
        mine = sketch._identities
        inside = any(
            mine < other._identities or (mine == other._identities and j < i)
            for j, other in enumerate(sketches)
            if j != i
        )
        if not inside:
            kept.append(sketch)
    return kept
