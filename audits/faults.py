"""Faults: signals, kills, full and read-only disks, too little memory, a clock that jumps, a lost Spark executor.

Whatever happens, and whenever: a call counts all or nothing or leaves its sketch broken (:mod:`_signals`); a file is
the old one or the new one, whole (:mod:`_kills`, :mod:`_limits`); what a collector has acknowledged is there, once
(:mod:`_collector_kills`); a server of shares never adds two noises to one sum (tests/shares_kills.py).
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Any

import _kills
import _limits
import _signals
from _audit import Audit, table

CARELESS = ("large, known", "long stream, known", "large, counts")
"""Calls that, without their guards, a signal finds half-done most often: in 24, 27 and 7 of 100 tries."""

MANY = 20
"""Kills between which something must have been written."""

TRIES = 150
"""Signals within which a call without guards must be counted in part."""


def careless(seed: int) -> dict[str, Any]:
    """Interrupt calls without their guards until one is counted in part; return after how many signals."""
    with _signals.careless():
        for number in range(TRIES // 10):
            found = _signals.signals(CARELESS[number % len(CARELESS)], 10, seed + number)
            if found.get("in part"):
                return {"signals": 10 * (number + 1), "wrong": ["a call was counted in part"]}
    return {"signals": TRIES, "wrong": []}


def collector_kills(number: int, seed: int, forgetful: bool = False) -> dict[str, Any]:
    """Kill a collector, its workers and clients; imported here, because it needs the extra of the collector."""
    from _collector_kills import collector_kills as kill

    return kill(number, seed, forgetful)


def steps(audit: Audit) -> dict[str, Any]:
    """Return all steps."""
    seed, calls = audit.seed, {}
    for name in _signals.CASES:
        calls[f"signals: {name}"] = partial(_signals.signals, name, audit["signals"], seed)
    for name in _kills.KINDS:
        calls[f"kills: {name}"] = partial(_kills.kills, name, audit["kills"], seed)
    for side in ("seed", "difference") if audit["shares"] else ():
        calls[f"kills: server of shares, {side}"] = partial(_limits.shares, side, audit["shares"], seed)
    for start in range(0, audit["collector"], 15):
        calls[f"kills: collector, worker or client {start}"] = partial(collector_kills, 15, seed + start)
    calls["limits: full, then read-only disk"] = partial(_limits.disks, audit["disks"], seed)
    calls["limits: clock that jumps"] = partial(_limits.clock, audit["jumps"], seed)
    if audit["memory"]:
        calls["limits: too little memory"] = partial(_limits.memory, audit["memory"], seed)
        calls["limits: Spark executor killed"] = _limits.spark
    return {**calls, **broken(audit)}


def broken(audit: Audit) -> dict[str, Any]:
    """Return the steps of the variants that are broken on purpose."""
    seed, calls = audit.seed, {}
    calls["broken: calls without guards, interrupted"] = partial(careless, seed)
    for name in _kills.BROKEN if not audit.short else ("the old set removed first", "told and not written"):
        calls[f"broken: {name}"] = partial(_kills.broken, name, 20, seed)
    calls["broken: full disk, written in place"] = partial(_limits.disks, 1, seed, in_place=True)
    calls["broken: ledger that goes by the time"] = partial(_limits.clock, 10, seed, by_time=True)
    if not audit.short:
        for mode in ("unstored", "torn"):
            calls[f"broken: server of shares, {mode}"] = partial(_limits.shares, "seed", 2, seed, mode)
        calls["broken: collector that forgets"] = partial(collector_kills, 8, seed, forgetful=True)
    return calls


def failed(found: dict[str, Any]) -> list[str]:
    """Return the faults, and the broken variants that were not found."""
    failures = []
    for step, result in found.items():
        kind = step.partition(":")[0]
        if kind == "signals":
            failures += [f"{step}: {result[what]} {what}" for what in _signals.FAULTS if result.get(what)]
        elif kind == "broken":
            if not result["wrong"] and "skipped" not in result:
                failures.append(f"not found, {step}")
        else:
            failures += [f"{step}: {wrong[:200]}" for wrong in result["wrong"][:5]]
            if kind == "kills" and result["kills"] >= MANY and result.get("changed", 1) == 0:
                failures.append(f"{step}: nothing was written between the kills")
    return failures


def main() -> None:
    """Run the audit."""
    audit = Audit(
        "faults", __doc__, signals=(60, 4), kills=(100, 4), shares=(20, 0), collector=(105, 0), disks=(20, 1),
        jumps=(100, 5), memory=(20, 0),
    )  # fmt: skip
    found = audit.run(steps(audit))
    of = {kind: {s: r for s, r in found.items() if s.startswith(f"{kind}:")} for kind in ("signals", "kills", "limits")}
    total: Counter[str] = Counter()
    for result in of["signals"].values():
        total.update(result)
    kills = sum(result["kills"] for result in of["kills"].values())
    rows = [(step.partition(": ")[2], result["kills"], _words(result), len(result["wrong"]))
            for step, result in of["kills"].items()]  # fmt: skip
    rows += [(step.partition(": ")[2], next(iter(result.values())), _words(result), len(result["wrong"]))
             for step, result in of["limits"].items()]  # fmt: skip
    caught = [(step.partition(": ")[2], " ".join(str(r.get("skipped") or (r["wrong"] or ["-"])[0]).split())[-90:])
              for step, r in found.items() if step.startswith("broken")]  # fmt: skip
    text = "\n\n".join([
        f"Signals during updates, in {len(of['signals'])} kinds of calls: "
        + ", ".join(f"{total[kind]:,} {kind}" for kind in _signals.KINDS) + ".",
        table(("killed or limited", "times", "", "lost, half-written or twice"), rows),
        table(("broken on purpose", "found by"), caught),
    ])  # fmt: skip
    failures = failed(found)
    audit.close(f"{total.total():,} signals, {kills:,} kills, {len(failures)} faults", text, failures, "polars")


def _words(result: dict[str, Any]) -> str:
    """Say what else is known of a step."""
    if "skipped" in result:
        return str(result["skipped"])
    if "acknowledged" in result:
        who = ", ".join(f"{name} {number}" for name, number in result["killed"].items())
        return f"{who}; {result['acknowledged']} reports acknowledged, {result['kept']} kept"
    if "ended" in result:
        return ", ".join(f"{what} {number}" for what, number in result["ended"].items())
    return f"another state {result['changed']} times" if "changed" in result else ""


if __name__ == "__main__":
    main()
