"""The tables of a report: answers with their intervals, all numbers of the picture, public parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..noise import DiscreteLaplace, tidy
from ..text import inert_html
from .estimate import Estimate, number
from .questions import Question, Sheet
from .render import sensible

if TYPE_CHECKING:
    from .profile import Profile

__all__ = ["answers_table", "numbers_table", "parameters"]


def answers_table(named: Mapping[str, Sheet]) -> str:
    """Write the answers: of one profile with their precision, of several side by side."""
    asked = next(iter(named.values())).asked
    columns = [dict(sheet.shown) for sheet in named.values()]
    head = '<th scope="col" class="number">Estimate</th><th scope="col" class="number">95 % interval</th>'
    head += '<th scope="col" class="number extra">Precision</th>'
    if len(named) > 1:
        head = "".join(f'<th scope="col" class="number">{inert_html(name)}</th>' for name in named)
    rows = []
    for question in asked.questions:
        found = [column.get(question) for column in columns]
        if not any(found):
            continue
        what = question.explained(asked.noun)
        small = f"<small>{inert_html(what)}</small>" if what else ""
        one = len(named) == 1
        cells = _cells(question, found[0]) if one else "".join(_group_cell(question, e) for e in found)
        rows.append(f'<tr><th scope="row">{inert_html(question.labelled(asked.noun))}{small}</th>{cells}</tr>')
    return (
        f'<div class="scroll"><table class="answers"><thead><tr><th scope="col">Question</th>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _cells(question: Question, estimate: Estimate | None) -> str:
    if estimate is None:
        return '<td class="number" colspan="3">–</td>'
    value, low, high = sensible(estimate, whole=question.whole)
    half = (estimate.high - estimate.low) / 2
    relative = f"± {100 * half / abs(estimate.value):.2g} %" if estimate.value and half else ""
    return (
        f'<td class="number value">{value}</td><td class="number range">{low} – {high}</td>'
        f'<td class="number range extra">{relative}</td>'
    )


def _group_cell(question: Question, estimate: Estimate | None) -> str:
    if estimate is None:
        return '<td class="number">–</td>'
    value, low, high = sensible(estimate, whole=question.whole)
    return f'<td class="number"><b>{value}</b><small>{low} – {high}</small></td>'


def numbers_table(entry: Mapping[str, Any]) -> str:
    """The numbers behind the picture as a table, for screen readers and paper."""
    head = "".join(f'<th scope="col" class="number">{h}</th>' for h in ("t", "items, each t", "from", "to"))
    more = "".join(f'<th scope="col" class="number">{h}</th>' for h in ("at least t", "from", "to"))
    exact, reach = entry["exactly"], entry["atleast"]
    rows = []
    for i, (first, last) in enumerate(zip(exact["from"], exact["to"])):
        label = f"{first:,}" if first == last else f"{first:,}–{last:,}"
        cells = [curve[key][i] for curve in (exact, reach) for key in ("value", "low", "high")]
        body = "".join(f'<td class="number">{_brief(x)}</td>' for x in cells)
        rows.append(f'<tr><th scope="row" class="number">{label}</th>{body}</tr>')
    caption = inert_html(entry["name"] or "Items by number of occurrences")
    return (
        f'<div class="scroll"><table class="all"><caption>{caption}</caption><thead><tr>{head}{more}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _brief(x: float) -> str:
    return number(float(round(x))) if abs(x) >= 100 else number(float(f"{x:.3g}"))


def parameters(profile: Profile) -> str:
    """List the public parameters."""
    noise, layout = profile.noisy.noise, profile.noisy.layout
    kinds = {
        "hashed": "items fall into cells by their hash; collisions are taken out of the statistics",
        "known": "one cell for each item of a domain declared beforehand",
        "sampled": "one cell for each item of a hashed sample of the domain",
        "direct": "of the profile itself, on a grid that depends on no data",
    }
    facts = [
        ("Privacy parameter ε", tidy(noise.epsilon), _in_words(noise)),
        ("Noise power ρ", tidy(noise.power), _power_in_words(noise)),
        ("Numbers released" if layout.kind == "direct" else "Cells", f"{profile.cells:,}", kinds[layout.kind]),
    ]
    if layout.domain is not None:
        facts.append(("Declared domain", f"{layout.domain:,}", "items, declared before any data"))
    if layout.rate is not None:
        facts.append(("Sampling rate", tidy(layout.rate), "of the domain"))
    load = profile.diagnostics.get("load")
    if load is not None:
        facts.append(("Load", number(float(load)), "items per cell, estimated"))
    if layout.levels > 1:
        facts.append(("Levels", str(layout.levels), "each with its own range of cells"))
    if layout.max_contributions:
        facts.append(("Occurrences per person", f"at most {layout.max_contributions:,}", "in one reading of the data"))
    if layout.pan_private:
        facts.append(("Pan-private", "yes", "fresh noise at release as well"))
    facts.append(("Reconstruction", profile.method, "from the noisy counts alone"))
    entries = "".join(
        f"<div><dt>{inert_html(label)}</dt><dd>{inert_html(value)}<small>{inert_html(what)}</small></dd></div>"
        for label, value, what in facts
    )
    return f'<dl class="facts">{entries}</dl>'


def _in_words(noise: DiscreteLaplace) -> str:
    factor = number(float(f"{math.exp(min(float(noise.epsilon), 700.0)):.3g}"))
    return f"one occurrence more or less changes the odds of any outcome by a factor of at most {factor}"


def _power_in_words(noise: DiscreteLaplace) -> str:
    spread = number(float(f"{math.sqrt(noise.variance):.2g}"))
    times = "one noise in every cell" if noise.power == 1 else "noises of merged sketches and later epochs add up"
    return f"{times}; standard deviation {spread}"
