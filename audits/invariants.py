"""Random sketches against the rules that every answer keeps (:mod:`_rules`), and two wrong answers beside.

No rule may ever be broken: no contradiction, and no interval that misses the truth by more than FARTHEST of its widths.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from _audit import Audit, table
from _rules import FARTHEST, broken, check, draw

from unnoise.answers.reconstruct import reconstruct

PIECE, SEVERAL = 50, 10
"""Runs to a piece, and items that a profile must have at least for fifty times as many to be beyond doubt."""

MOST_BEYOND = 12
"""Log₂ of the cells at most where ρ goes to 1,000 and ε from 10⁻⁴ to 50."""


def piece(seed: int, number: int, runs: int, most: int, beyond: bool) -> dict[str, Any]:
    """Return what broke in some runs, how many missed by far, and how many answers were marked or refused."""
    found: dict[bool, list[str]] = {False: [], True: []}  # by whether it is a miss by far
    marked = 0
    for run in range(runs):
        case = draw(np.random.default_rng([seed, number, run]), most, beyond=beyond)
        try:
            rules, mark = check(case)
        except Exception as error:  # every failure is a finding here
            rules, mark = [f"{type(error).__name__}: {error}"], False
        marked += mark
        for rule in rules:
            found["widths" in rule].append(f"{'beyond' if beyond else 'run'} {number}.{run}: {case}: {rule}")
    return {"runs": runs, "broken": found[False], "far": found[True], "marked": marked}


def controls(seed: int, wanted: int) -> dict[str, int]:
    """Return how many of ``wanted`` profiles with doubled items, and with fifty times the truth, were found out."""
    caught, number = {"doubled items": 0, "another truth": 0}, 0
    for _ in range(wanted):
        profile: Any = None
        while profile is None or profile.number < 1:  # twice nothing is nothing
            number += 1
            case = draw(np.random.default_rng([seed, number]), 10)
            suits = case.kind == "hashed" and case.shape == "smooth" and case.power <= 3 and case.epsilon >= 1
            suits = suits and case.truth.size >= SEVERAL
            profile = reconstruct(case.noisy) if suits else None
        doubled = broken(case, replace(profile, number=2 * profile.number))
        elsewhere = broken(replace(case, truth=np.repeat(case.truth, 50)), profile)
        caught["doubled items"] += any("is not total" in rule for rule in doubled)
        caught["another truth"] += any("widths" in rule for rule in elsewhere)
    return caught


def main() -> None:
    warnings.simplefilter("ignore")
    audit = Audit("invariants", __doc__, runs=(10_000, 8), most=(17, 8), controls=(100, 2), beyond=(500, 4))
    calls = {}
    for name, most, beyond in (("runs", audit["most"], False), ("beyond", min(audit["most"], MOST_BEYOND), True)):
        for at in range(0, audit[name], PIECE):
            runs = min(PIECE, audit[name] - at)
            calls[f"{name} {at}…"] = partial(piece, audit.seed + beyond, at // PIECE, runs, most, beyond)
    pieces = list(audit.run(calls).values())
    caught = audit.run({"wrong answers": partial(controls, audit.seed, audit["controls"])}).get("wrong answers", {})
    rules, far = ([rule for each in pieces for rule in each[name]] for name in ("broken", "far"))
    marked = sum(each["marked"] for each in pieces)
    failures = [*rules[:20], *far[:20]]
    failures += [f"{name}: {n} of {audit['controls']} found out" for name, n in caught.items() if n < audit["controls"]]
    rows = [["contradictions, infinities, answers beyond the cells", len(rules), "0"],
            [f"intervals that miss by more than {FARTHEST:g} widths", len(far), "0"],
            ["runs marked as too noisy, or refused", marked, "any"],
            *([f"broken on purpose: {name}, found out", f"{n} of {audit['controls']}", "all"]
              for name, n in caught.items())]  # fmt: skip
    done = sum(each["runs"] for each in pieces)
    summary = f"{done:,} random sketches of up to 2^{audit['most']} cells ({audit['beyond']:,} beyond any use)"
    summary += f", {len(rules)} broken rules"
    audit.close(summary, table(["", "found", "allowed"], rows), failures, "scipy")


if __name__ == "__main__":
    main()
