"""The tables of a report: answers with their intervals, all numbers of the picture, public parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from ..noise import DiscreteLaplace, tidy
from .estimate import Estimate, number

if TYPE_CHECKING:
    from .profile import Profile

__all__ = ["answers", "answers_table", "numbers_table", "parameters", "sensible"]

ENTROPY = "Entropy"


def sensible(estimate: Estimate, *, whole: bool = True) -> tuple[str, str, str]:
    """Write value, low and high with as many digits as the interval deserves; ``whole`` for numbers of things.

    >>> sensible(Estimate(9171.4, 79, 9018.2, 9327.9))
    ('9,170', '9,020', '9,330')
    >>> sensible(Estimate(10.0281, 0.002, 10.0242, 10.0321), whole=False)
    ('10.0281', '10.0242', '10.0321')
    >>> sensible(Estimate(2.0, 0.0, 2.0, 2.0))
    ('2', '2', '2')
    """
    width = estimate.high - estimate.low
    digits = 1 - math.floor(math.log10(width)) if width > 0 else 3
    exact = all(x == round(x) for x in (estimate.value, estimate.low, estimate.high))
    if whole and (exact or round(abs(estimate.value)) >= 10):
        digits = min(digits, 0)
    value, low, high = (_written(x, digits) for x in (estimate.value, estimate.low, estimate.high))
    return value, low, high


def _written(x: float, digits: int) -> str:
    """Round to a number of decimals, negative for tens and hundreds."""
    rounded = round(x, digits) + 0.0
    return f"{rounded:,.{max(digits, 0)}f}" if digits <= 6 else f"{rounded:.3g}"


def answers(profile: Profile) -> list[tuple[str, str, Estimate]]:
    """Return label, explanation and estimate of the answers in the table."""
    found = [
        ("Distinct items", "different items that occurred at all", profile.distinct),
        ("Occurrences", "all of them together", profile.total),
        ("Exactly once", "", profile.exactly(1)),
        ("Exactly twice", "", profile.exactly(2)),
    ]
    found += [(f"At least {k:,} times", "", profile.at_least(k)) for k in (2, 3, 5, 10, 100, 1000)]
    found = [(label, what, e) for label, what, e in found if e.high >= 0.5]
    found.append(("Median count", "half of the items occur at most this often", profile.quantile(0.5)))
    found.append((ENTROPY, "Shannon, in nats: how evenly occurrences spread", profile.entropy))
    return found


def answers_table(named: Mapping[str, Profile]) -> str:
    """Write the answers: of one profile with their precision, of several side by side."""
    columns = {name: answers(profile) for name, profile in named.items()}
    labels = dict.fromkeys((label, what) for column in columns.values() for label, what, _ in column)
    order = sorted(labels, key=lambda pair: max(_position(pair[0], column) for column in columns.values()))
    head = '<th scope="col" class="number">Estimate</th><th scope="col" class="number">95 % interval</th>'
    head += '<th scope="col" class="number extra">Precision</th>'
    if len(named) > 1:
        head = "".join(f'<th scope="col" class="number">{escape(name)}</th>' for name in named)
    rows = []
    for label, what in order:
        small = f"<small>{escape(what)}</small>" if what else ""
        found = [next((e for other, _, e in column if other == label), None) for column in columns.values()]
        cells = _cells(label, found[0]) if len(named) == 1 else "".join(_group_cell(label, e) for e in found)
        rows.append(f'<tr><th scope="row">{escape(label)}{small}</th>{cells}</tr>')
    return (
        f'<div class="scroll"><table class="answers"><thead><tr><th scope="col">Question</th>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _position(label: str, column: list[tuple[str, str, Estimate]]) -> int:
    return next((i for i, (other, _, _) in enumerate(column) if other == label), -1)


def _cells(label: str, estimate: Estimate | None) -> str:
    if estimate is None:
        return '<td class="number" colspan="3">–</td>'
    value, low, high = sensible(estimate, whole=label != ENTROPY)
    half = (estimate.high - estimate.low) / 2
    relative = f"± {100 * half / abs(estimate.value):.2g} %" if estimate.value and half else ""
    return (
        f'<td class="number value">{value}</td><td class="number range">{low} – {high}</td>'
        f'<td class="number range extra">{relative}</td>'
    )


def _group_cell(label: str, estimate: Estimate | None) -> str:
    if estimate is None:
        return '<td class="number">–</td>'
    value, low, high = sensible(estimate, whole=label != ENTROPY)
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
    caption = escape(entry["name"] or "Items by number of occurrences")
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
        f"<div><dt>{escape(label)}</dt><dd>{escape(value)}<small>{escape(what)}</small></dd></div>"
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
