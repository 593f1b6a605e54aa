"""Neighbouring inputs through every public path: never told apart better than ε allows, and broken variants are caught.

For each path (``_library.py``, ``_services.py``) all that leaves is kept for inputs with and without one unit. An event
is chosen on half of the runs; on the other half Clopper and Pearson's bounds give a lower bound on ε
(``_neighbours.py``), wrong with probability FALSE_ALARM over all paths together. It must not exceed the claim. The same
procedure must find more than the claim in every broken variant: half the noise, reused noise, noise on occupied cells
only, a person without limit, a retried batch, colliding ids, a share alone, a live look, floating-point noise, a server
without noise.

A bound of 0.98 where 1 is claimed says that the claim is all but used up: the audit would have seen a little more.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from _audit import Audit, table
from _library import LIBRARY, Path, View
from _neighbours import lower_bound, quotient
from _services import SERVICES

FALSE_ALARM = 1e-6
PATHS: dict[str, Path] = {**LIBRARY, **SERVICES}


def tested(view: View, trials: int, doubt: float) -> dict[str, Any]:
    """Return hits and runs of the tested half, from so many trials on either side."""
    found = lower_bound(view(0, trials), view(1, trials), doubt)
    return {"plain": found.plain, "hits": found.hits, "runs": found.runs}


def judge(name: str, path: Path, results: dict[str, Any], doubt: float) -> tuple[list[str], list[str]]:
    """Return what failed on one path, and its row of the table."""
    lower = {key: quotient(found["hits"], found["runs"], doubt) for key, found in results.items()}
    failures = [f"{name}: ε ≥ {lower['']:.3f} where {path.claim:g} is claimed"] if lower[""] > path.claim else []
    failures += [
        f"{name}: {variant} was not caught, ε ≥ {lower[variant]:.3f}"
        for variant in path.broken if lower[variant] <= path.claim
    ]  # fmt: skip
    trials = 2 * sum(results[""]["runs"])
    return failures, [
        name, path.unit, f"{trials:,} ({path.each})", f"{path.claim:g}", f"{lower['']:.3f}",
        "; ".join(f"{variant} {lower[variant]:.2f}" for variant in path.broken),
    ]  # fmt: skip


def main() -> None:
    audit = Audit("privacy", __doc__, false_alarm=(FALSE_ALARM, FALSE_ALARM))
    chosen = [(name, path) for name, path in PATHS.items() if path.trials[audit.short]]
    doubt = FALSE_ALARM / len(PATHS)
    names = {name: {key: f"{name}: {key}" if key else name for key in ("", *path.broken)} for name, path in chosen}
    calls = {
        names[name][key]: partial(tested, view, path.trials[audit.short], doubt)
        for name, path in chosen for key, view in {"": path.view, **path.broken}.items()
    }  # fmt: skip
    results, failures, rows = audit.run(calls), [], []
    for name, path in chosen:
        failed, row = judge(name, path, {key: results[step] for key, step in names[name].items()}, doubt)
        failures += failed
        rows.append(row)
    text = table(["path", "unit", "trials (each a)", "ε claimed", "ε ≥", "broken on purpose: ε ≥"], rows)
    text += (
        f"\n\nAll lower bounds hold together with probability 1 − {FALSE_ALARM:g}; half of the trials chose the event, "
        "the other half tested it. Where a trial is a cell (or a group), one release gives many: units touch cells of "
        "their own, and noises are independent from cell to cell, which the audit of the sampler tests."
    )
    summary = f"{len(rows)} paths, {len(results) - len(rows)} broken variants"
    audit.close(summary, text, failures, "scipy")


if __name__ == "__main__":
    main()
