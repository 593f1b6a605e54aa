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
from _neighbours import lower_bound
from _services import SERVICES

FALSE_ALARM = 1e-6
PATHS: dict[str, Path] = {**LIBRARY, **SERVICES}


def bound(view: View, trials: int, doubt: float) -> dict[str, Any]:
    """Return the lower bound on ε from so many trials on either side."""
    found = lower_bound(view(0, trials), view(1, trials), doubt)
    return {"lower": found.lower, "plain": found.plain, "hits": found.hits, "runs": found.runs}


def main() -> None:
    audit = Audit("privacy", __doc__, false_alarm=(FALSE_ALARM, FALSE_ALARM))
    sizes = {name: path.trials[audit.short] for name, path in PATHS.items()}
    doubt = FALSE_ALARM / len(PATHS)
    calls = {}
    for name, path in PATHS.items():
        for variant, view in ({"": path.view, **path.broken} if sizes[name] else {}).items():
            calls[f"{name}: {variant}" if variant else name] = partial(bound, view, sizes[name], doubt)
    results, failures, rows = audit.run(calls), [], []
    for name, path in ((name, path) for name, path in PATHS.items() if sizes[name]):
        lower = results[name]["lower"]
        if lower > path.claim:
            failures.append(f"{name}: ε ≥ {lower:.3f} where {path.claim:g} is claimed")
        broken = {variant: results[f"{name}: {variant}"]["lower"] for variant in path.broken}
        failures += [
            f"{name}: {variant} was not caught, ε ≥ {found:.3f}"
            for variant, found in broken.items() if found <= path.claim
        ]  # fmt: skip
        rows.append([
            name, path.unit, f"{2 * sizes[name]:,} ({path.each})", f"{path.claim:g}", f"{lower:.3f}",
            "; ".join(f"{variant} {found:.2f}" for variant, found in broken.items()),
        ])  # fmt: skip
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
