"""Write the tables of docs/parameters.md: what ε, cap, merges and cells buy, computed by ``un.plan``."""

from __future__ import annotations

import re
from pathlib import Path

import unnoise as un
from unnoise.answers.plan import Plan

PAGE = Path(__file__).resolve().parent.parent / "docs" / "parameters.md"
CELLS = 2**14
REPETITIONS = 6


def width(plan: Plan, name: str) -> str:
    return f"± {100 * plan.widths[name] / max(plan.truths[name], 1):.1f} %"


def by_epsilon_and_cap() -> str:
    """A person counts at most C times: the noise is for ε/C."""
    lines = ["| ε for a person | C = 1 | C = 3 | C = 10 |", "|---|---|---|---|"]
    for epsilon in (0.3, 1, 3):
        row = []
        for cap in (1, 3, 10):
            plan = un.plan(
                epsilon=epsilon / cap, cells=CELLS, kind="hashed", items=CELLS // 2, shape=2.0, cap=cap,
                repetitions=REPETITIONS,
            )  # fmt: skip
            row.append(width(plan, "distinct"))
        lines.append(f"| {epsilon} | {' | '.join(row)} |")
    return "\n".join(lines)


def by_merges() -> str:
    """k sealed sketches added up."""
    lines = ["| sketches merged | distinct | at least 2 | total |", "|---|---|---|---|"]
    for merges in (1, 2, 5, 10):
        plan = un.plan(
            epsilon=1, cells=CELLS, kind="hashed", items=CELLS // 2, shape=2.0, merges=merges, repetitions=REPETITIONS
        )
        lines.append(f"| {merges} | {' | '.join(width(plan, name) for name in ('distinct', 'at least 2', 'total'))} |")
    return "\n".join(lines)


def by_cells() -> str:
    """Sizes that a plan tries for 20,000 items, and the one it takes."""
    plans = {
        f"{epsilon}, {merges}": un.plan(epsilon=epsilon, kind="hashed", items=20_000, merges=merges, repetitions=8)
        for epsilon, merges in ((1, 1), (1, 8), ("0.1", 1), ("0.1", 8))
    }
    sizes = sorted({cells for plan in plans.values() for cells in plan.tried})
    lines = ["| ε, sketches merged | " + " | ".join(f"{cells:,}" for cells in sizes) + " |"]
    lines.append("|---" * (len(sizes) + 1) + "|")
    for name, plan in plans.items():
        row = [f"± {100 * plan.tried[cells]:.0f} %" if cells in plan.tried else "" for cells in sizes]
        bold = (f"**{text}**" if cells == plan.cells else text for cells, text in zip(sizes, row))
        lines.append(f"| {name} | " + " | ".join(bold) + " |")
    return "\n".join(lines)


def main() -> None:
    page = PAGE.read_text()
    for name, table in (("cap", by_epsilon_and_cap()), ("merges", by_merges()), ("cells", by_cells())):
        begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
        page = re.sub(f"{begin}.*?{end}", lambda _, t=table, b=begin, e=end: f"{b}\n{t}\n{e}", page, flags=re.S)
        print(table)
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
