"""Hostile input: no crash, hang, traceback, or memory beyond a bound, and nothing accepted that must not be.

A million damaged sketch files, sets of groups, messages and requests to servers, with their digests made good again in
most of them (else the digest would hide all that lies behind it), and a hundred thousand hostile columns, files and
command lines. Each kind of input runs in child processes that may die of it (:mod:`_children`).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import _hostile_files
import _hostile_inputs
import _hostile_server
import _hostile_words
from _audit import Audit, table
from _children import MEMORY, SECONDS, attack, serve

TARGETS = {
    "sketch files": _hostile_files.sketches,
    "sets of groups": _hostile_files.group_sets,
    "messages of shares": _hostile_server.shares,
    "requests to servers": _hostile_server.requests,
    "columns for update": _hostile_inputs.updates,
    "files of rows": _hostile_inputs.files,
    "command lines": _hostile_words.command_lines,
}
SIZES = {
    "sketch files": 250_000, "sets of groups": 100_000, "messages of shares": 600_000, "requests to servers": 50_000,
    "columns for update": 50_000, "files of rows": 40_000, "command lines": 15_000,
}  # fmt: skip
SHORT = {name: max(40, size // 2000) for name, size in SIZES.items() if name != "requests to servers"}
SHORT_BROKEN = {
    "sketch files": ("memory", "unnoticed"), "columns for update": ("crash",), "command lines": ("traceback",),
}  # fmt: skip
PIECE = 25_000
TRIES = 3000
"""Inputs within which a broken variant must be found."""


def steps(sizes: dict[str, int], seed: int, short: bool) -> dict[str, Any]:
    """Return the steps: every target in pieces, then its broken variants."""
    calls: dict[str, Any] = {}
    for name, size in sizes.items():
        for start in range(0, size, PIECE):
            piece = range(start, min(start + PIECE, size))
            calls[f"{name} {piece.start}"] = partial(attack, __file__, name, piece, seed)
        for kind in SHORT_BROKEN.get(name, ()) if short else TARGETS[name]().broken:
            calls[f"{name}, broken: {kind}"] = partial(attack, __file__, name, range(TRIES), seed, kind)
    return calls


def main() -> None:
    """Run the audit."""
    audit = Audit("files", __doc__, inputs=(SIZES, SHORT), tries=(TRIES, TRIES))
    found = audit.run(steps(audit["inputs"], audit.seed, audit.short))
    rows, failures = [], []
    for name, size in audit["inputs"].items():
        pieces = [result for step, result in found.items() if step.startswith(name) and "broken" not in step]
        happened = {what: sum(piece["happened"].get(what, 0) for piece in pieces) for what in ("refused", "accepted")}
        faults = [fault for piece in pieces for fault in piece["faults"]]
        failures += [f"{name} {number}: {what}: {why[:200]}" for number, what, why in faults[:5]]
        if sum(happened.values()) + len(faults) != size:
            failures.append(f"{name}: {sum(happened.values()) + len(faults)} of {size} inputs were used")
        mark = f"{name}, broken: "
        caught = {step.removeprefix(mark): result for step, result in found.items() if step.startswith(mark)}
        for kind, result in caught.items():
            if kind not in [fault[1] for fault in result["faults"]]:
                failures.append(f"{name}: the broken variant of kind {kind} was not found in {TRIES} inputs")
        slowest, peak = max(p["slowest"] for p in pieces), max(p["peak"] for p in pieces)
        rows.append([name, f"{size:,}", f"{happened['refused']:,}", f"{happened['accepted']:,}", len(faults),
                     f"{slowest:.1f} s", f"{peak >> 20} MB", ", ".join(caught)])  # fmt: skip
    head = ("input", "number", "refused", "accepted", "faults", "slowest", "peak of memory", "broken variants found")
    total = sum(audit["inputs"].values())
    text = table(head, rows) + (
        f"\n\nLimits for one input: {SECONDS:g} s and {MEMORY >> 20} MB more. Input n of seed s comes from "
        '`random.Random("s/n")`.'
    )
    audit.close(f"{total:,} hostile inputs, {sum(row[4] for row in rows)} faults", text, failures, "pyarrow", "polars")


serve(TARGETS)
if __name__ == "__main__":
    main()
