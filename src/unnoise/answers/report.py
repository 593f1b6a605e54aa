"""One HTML file that a privacy officer and an analyst both understand.

The page holds everything it needs (styles, script, numbers) and asks nothing of the network; a content security policy
in its head makes sure. Tables are written here, so they are readable without scripts; the pictures are drawn by the
page from the numbers it carries.

All of it is computed from released, noisy data and public parameters: nothing here needs protecting again.

The page is one form of a :class:`Document`, which :mod:`unnoise.answers.export` writes in others.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from importlib import resources
from string import Template
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import __version__
from ..arrays import Int64
from ..curve import ALL_GROUPS
from ..layout import in_words
from ..noise import tidy
from ..text import inert, inert_html
from .estimate import Estimate, number, percent, sensible_rows
from .plots import DARK, LIGHT
from .questions import Asked, Sheet, mark, sheets, span, true_curve
from .render import Columns, csv_text, first_sentence, long_table, plain, protected, whole_dict

if TYPE_CHECKING:
    from .profile import Profile

__all__ = ["Document", "page_style", "profiles_document", "report", "report_page", "warnings_of"]


TEMPLATES = resources.files("unnoise.answers").joinpath("templates")

READING = """
<p>A <em>profile</em> says how many different $many $verb exactly once, exactly twice, and so on; it does not say
which ones.</p>
<ul>
<li>Every number has an interval. At $level, intervals made this way contain the true number of this data set $times
times in 100.</li>
<li><em>Unreliable</em>: half of the interval is more than half of the answer. <em>Too noisy to tell</em>: the noise
hides the answer. <em>Mostly model</em>: the answer rests on an assumed shape more than on the data.</li>
<li>Beyond the first counts the picture shows ranges: the mean number of $many for each t in the range.</li>
<li>Noise was added before anything was kept or shown. Reconstruction takes its effect out of the statistics, never off
a single count.</li>
</ul>
"""

WARNINGS = (
    '<section class="card warn" aria-labelledby="warnings-title">'
    '<h2 id="warnings-title">Please note</h2><ul>{notes}</ul></section>'
)


def report(
    profiles: Profile | Mapping[str, Profile],
    *,
    title: str = "Private frequency profile",
    guarantee: str = "",
    warnings: Sequence[str] = (),
    truth: Int64 | Mapping[str, Int64] | None = None,
    asked: Asked | None = None,
) -> str:
    """Return the report as HTML.

    Parameters
    ----------
    profiles : Profile, or a mapping from the name of a group to its Profile
    title : str
        Shown at the top and as the title of the page.
    guarantee : str
        What was promised, in words (``Sketch.guarantee``).
    warnings : sequence of str
        Shown in a box of their own, with those the profiles carry.
    truth : array of int, or a mapping of them, optional
        True counts of the items, for demonstrations on public data.
    asked : Asked, optional
        Thresholds, headline and noun, where they are not the usual ones.
    """
    return report_page(sheets(profiles, asked), title=title, guarantee=guarantee, warnings=warnings, truth=truth)


def report_page(
    named: Mapping[str, Sheet],
    *,
    title: str,
    guarantee: str = "",
    warnings: Sequence[str] = (),
    truth: Int64 | Mapping[str, Int64] | None = None,
) -> str:
    """Return the report of answers that are computed already; parameters as in :func:`report`."""
    truths = truth if isinstance(truth, Mapping) else ({} if truth is None else {"": truth})
    data = [_profile_data(name, sheet, truths.get(name), list(named)) for name, sheet in named.items()]
    first, said = next(iter(named.values())), data[0]["said"]
    noun, level, many = first.asked.noun, f"{100 * first.asked.level:g}", inert_html(first.asked.noun.many)
    notes = "".join(f"<li>{inert_html(note)}</li>" for note in dict.fromkeys([*warnings, *warnings_of(named)]))
    between = f' <span class="between">{said["between"]}</span>' if said["between"] else ""
    tag = f' <span class="tag">{inert_html(said["mark"])}</span>' if said["mark"] else ""
    whole = json.dumps(plain({"profiles": data, "noun": vars(noun)}), ensure_ascii=False, allow_nan=False)
    files = {
        "csv": ("text/csv", csv_text(long_table(named)).encode()),
        # in ASCII alone, whatever is not printable is written by its number
        "json": ("application/json", json.dumps(plain(whole_dict(named, guarantee)), indent=2).encode("ascii")),
    }
    return Template(TEMPLATES.joinpath("report.html").read_text("utf-8")).substitute(
        title=inert_html(title),
        style=page_style(),
        script=TEMPLATES.joinpath("report.js").read_text("utf-8"),
        version=__version__,
        made=date.today().isoformat(),
        file="profile",
        # the page writes the same sentence for the group that is chosen
        headline=f"{inert_html(said['before'])}<strong>{said['value']}</strong>{between}{inert_html(said['after'])}{tag}",
        lede=inert_html(said["lede"]),
        many=many,
        level=f"{level} %",
        hint="Point at the curve to read a value, or step along it with the arrow keys.",
        multiples=_multiples(named) if len(named) > 1 else "",
        intervals=f"Estimates with {level} % intervals, from what was released alone.",
        answers=answers_table(named),
        numbers="".join(numbers_table(name, sheet) for name, sheet in named.items()),
        **{name: f"data:{kind};base64,{base64.b64encode(text).decode()}" for name, (kind, text) in files.items()},
        guarantee=inert_html(guarantee) or _assumed(first.profile),
        parameters=parameters(first.profile),
        warnings=WARNINGS.format(notes=notes) if notes else "",
        reading=Template(READING).substitute(
            many=many, verb=inert_html(noun.verb), level=f"{level} %", times=level
        ),
        # nothing in it can end the script element it stands in
        data=whole.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"),
    )


@cache  # reads a file, and every page has the same
def page_style() -> str:
    """Return the style of every page: both palettes as variables, and the layout.

    The system decides between them, the button overrides, paper is light.
    """
    light, dark = (";".join(f"--{name}:{value}" for name, value in look.items()) for look in (LIGHT, DARK))
    return (
        f":root{{{light};color-scheme:light}}\n"
        f"@media screen and (prefers-color-scheme:dark)"
        f'{{:root:not([data-theme="light"]){{{dark};color-scheme:dark}}}}\n'
        f'@media screen{{:root[data-theme="dark"]{{{dark};color-scheme:dark}}}}\n'
        f"{TEMPLATES.joinpath('report.css').read_text('utf-8')}"
    )


def _profile_data(name: str, sheet: Sheet, truth: Int64 | None, names: Sequence[str]) -> dict[str, Any]:
    """Return what the page draws, and the first sentence in pieces, its mark and the line below, as plain text."""
    before, value, between, after, note, _ = first_sentence(sheet)
    group, several = inert(name) if len(names) > 1 else "", sum(one != ALL_GROUPS for one in names)
    where = "In all groups together" if group == ALL_GROUPS else f"In {group}"
    if group:
        before, value = f"{where}, {before[:1].lower()}{before[1:]}", value.lower()
    epsilon, unit = protected(sheet.profile)
    told = {}  # with the interval where tables mark the number
    for key in ("distinct", "total"):
        if key in sheet.answers:
            middle, low, high = sheet.written[key]
            told[key] = f"about {middle} ({low}–{high})" if mark(sheet.answers[key]) else f"about {middle}"
    cap = "" if sheet.profile.cap is None else f", counts above {sheet.profile.cap:,} taken as {sheet.profile.cap:,}"
    within = f" in {told['total']} occurrences{cap}" if "total" in told else ""
    among = f" {group} is one of {several} groups shown here." if group and several > 1 and group != ALL_GROUPS else ""
    lede = (
        f"Among {told['distinct']} different {sheet.asked.noun.many}{within}, learned from noisy numbers alone: "
        f"ε = {tidy(epsilon)} for {unit}, as explained below.{among}"
    )
    return {
        "name": inert(name),
        "said": {"before": before, "value": value, "between": between, "after": after, "mark": note, "lede": lede},
        "exactly": _curve_data(sheet, truth, at_least=False),
        "atleast": _curve_data(sheet, truth, at_least=True),
    }


def _curve_data(sheet: Sheet, truth: Int64 | None, *, at_least: bool) -> dict[str, Any]:
    """Return a curve of the picture: items at or above the first of each range, or in it for each of its counts."""
    first, last = np.array([each[:2] for each in sheet.ranges]).T
    last, answers = first if at_least else last, [each[3 if at_least else 2] for each in sheet.ranges]
    columns = {key: np.array([getattr(answer, key) for answer in answers]) for key in ("value", "low", "high")}
    columns = {key: np.maximum(column / (last - first + 1), 0) for key, column in columns.items()}
    rounded = {key: [float(f"{x:.6g}") for x in column] for key, column in columns.items()}
    middle = np.sqrt(first.astype(float) * last)  # where a range is drawn: its geometric middle
    ends = {"x": middle.tolist(), "from": first.tolist(), "to": last.tolist()}
    true = {} if truth is None else {"truth": true_curve(truth, first, last, at_least=at_least).tolist()}
    return {**ends, **rounded, **true, "cap": sheet.profile.cap}


def _multiples(named: Mapping[str, Sheet]) -> str:
    """Write one small picture per group; each chooses its group for the large one."""
    cells, asked = [], next(iter(named.values())).asked
    for index, (name, sheet) in enumerate(named.items()):
        value, low, high = sheet.written[asked.head.key]
        cells.append(
            f'<li><button type="button" aria-pressed="{"true" if index == 0 else "false"}"><b>{inert_html(name)}</b>'
            f"<i></i><span>{value} ({low}–{high})</span></button></li>"
        )
    caption = f'<p class="note">{inert_html(asked.head.label)}, by group; all pictures have the same scales.</p>'
    return f'{caption}<ul class="small" aria-label="Groups, all on the same scales">{"".join(cells)}</ul>'


def _assumed(profile: Profile) -> str:
    """Say what can be said of noisy counts that came without a guarantee in words."""
    return (
        f"The counts are said to carry discrete Laplace noise of ε = {tidy(profile.noisy.noise.epsilon)} each, added "
        "before they were released. That was taken as given. Reconstruction learns nothing beyond the noisy counts, so "
        "it keeps whatever promise came with them."
    )


def warnings_of(named: Mapping[str, Sheet]) -> list[str]:
    """Return what the profiles warn of, each said once, with the groups it is about unless it is all of them."""
    about: dict[str, list[str]] = {}
    for name, sheet in named.items():
        for note in dict.fromkeys(sheet.profile.warnings):
            about.setdefault(note, []).append(name)
    return [note if len(names) == len(named) else f"{', '.join(names)}: {note}" for note, names in about.items()]


# ── tables ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def answers_table(named: Mapping[str, Sheet]) -> str:
    """Write the answers: of one profile in three cells, the precision among them; of several side by side, one each."""
    asked, alone = next(iter(named.values())).asked, len(named) == 1
    columns = [dict(sheet.shown) for sheet in named.values()]
    interval = f"{100 * asked.level:g} % interval"
    heads, names = (["Estimate", interval, "Precision"], [interval]) if alone else (list(named), list(named))
    head = "".join(f'<th scope="col" class="number">{inert_html(name)}</th>' for name in heads)
    labels, rows = [f'data-label="{inert_html(name)}"' for name in names], []
    for question in asked.questions:
        found = [column.get(question) for column in columns]
        if not any(estimate is not None for estimate in found):
            continue
        cells = f"<small>{inert_html(question.meaning)}</small></th>" if question.meaning else "</th>"
        for estimate, label, sheet in zip(found, labels, named.values()):
            if estimate is None:
                cells += f'<td class="number" {label}>–</td>'
                continue
            value, low, high = sheet.written[question.key]
            note, half = mark(estimate), (estimate.high - estimate.low) / 2
            tag = f' <span class="tag">{inert_html(note)}</span>' if note else ""
            relative = f"± {percent(half / abs(estimate.value))}" if estimate.value and half else ""
            cells += (
                f'<td class="number value">{value}</td><td class="number range" {label}>{low} – {high}</td>'
                f'<td class="number range precision">{tag or relative}</td>'
                if alone
                else f'<td class="number" {label}><b>{value}</b><small>{low} – {high}{tag}</small></td>'
            )
        rows.append(f'<tr><th scope="row">{inert_html(question.label)}{cells}</tr>')
    top = f'<thead><tr><th scope="col">Question</th>{head}</tr></thead>'
    return (
        f'<div class="scroll"><table class="answers" style="--groups:{len(named)}">{top}'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def numbers_table(name: str, sheet: Sheet) -> str:
    """The numbers behind the picture as a table, for screen readers: whole items in each range of counts."""
    many = inert_html(sheet.asked.noun.many)
    heads = ("times", many, "from", "to", "at least so often", "from", "to", "")
    head = "".join(f'<th scope="col" class="number">{text}</th>' for text in heads)
    rows = []
    for (first, last, inside, above), (in_it, from_it) in zip(sheet.ranges, sensible_rows(sheet.ranges)):
        body = "".join(f'<td class="number">{x}</td>' for x in (*in_it, *from_it))
        note = mark(inside) or mark(above)
        body += f"<td>{f'<span class=tag>{note}</span>' if note else ''}</td>"
        rows.append(f'<tr><th scope="row" class="number">{span(first, last, sheet.profile.cap)}</th>{body}</tr>')
    caption = inert_html(name) or f"{many.capitalize()} by number of occurrences"
    return (
        f'<p class="cue">Eight columns: swipe sideways to see all of them.</p><div class="scroll"><table class="all">'
        f"<caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def parameters(profile: Profile) -> str:
    """List the public parameters."""
    noise, layout = profile.noisy.noise, profile.noisy.layout
    kinds = {
        "hashed": "items fall into cells by their hash; collisions are taken out of the statistics",
        "known": "one cell for each item of a domain declared beforehand",
        "sampled": "one cell for each item of a hashed sample of the domain",
        "direct": "of the profile itself, on a grid that depends on no data",
    }
    epsilon, unit = protected(profile)
    counter = "number" if layout.kind == "direct" else "cell"
    times = f"one noise in every {counter}" if noise.power == 1 else "noises of merged sketches and later epochs add up"
    spread = number(float(f"{math.sqrt(noise.variance):.2g}"))
    promise = in_words(epsilon, unit, unit).partition(": ")[2].removesuffix(".")
    facts = [
        ("Privacy parameter ε", tidy(epsilon), promise),
        ("Noise power ρ", tidy(noise.power), f"{times}; standard deviation {spread}"),
        ("Numbers released" if layout.kind == "direct" else "Cells", f"{profile.noisy.cells:,}", kinds[layout.kind]),
    ]
    whole = getattr(profile.noisy, "whole", 0)
    if 0 < whole < 1:
        facts.append(("Of it, all groups together", tidy(whole * epsilon), "as a second release of the same rows"))
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


# ── the same in any form ────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, eq=False)
class Document:
    """Something to be written.

    title, lead : what it is, and its first sentence
    about : the promise and public parameters, by name

    and, each made when a file needs it,

    long : the one table of csv and parquet
    tables : the tables that a person reads, by name
    whole : everything, as plain Python
    page : the HTML page
    """

    title: str
    lead: str
    about: Mapping[str, str]
    long: Callable[[], Columns]
    tables: Callable[[], Mapping[str, Columns]]
    whole: Callable[[], Mapping[str, Any]]
    page: Callable[[], str]


def profiles_document(named: Mapping[str, Sheet], *, title: str, guarantee: str) -> Document:
    """Return what is to be written about one profile or several groups."""
    first = next(iter(named.values()))
    groups = list(named) != [""]
    about = {"guarantee": guarantee} if guarantee else {}
    return Document(
        title=title,
        lead=(f"{next(iter(named))}: " if groups else "") + first_sentence(first).text,
        about=about | {f"note {i}": note for i, note in enumerate(warnings_of(named), 1)},
        long=lambda: long_table(named),
        tables=lambda: {"answers": _answers(named, groups), "frequencies": _frequencies(named, groups)},
        whole=lambda: whole_dict(named, guarantee),
        page=lambda: report_page(named, title=title, guarantee=guarantee),
    )


def _whole(estimate: Estimate) -> Estimate:
    """Round to whole things for a person, the interval outwards."""
    if not math.isfinite(estimate.high):
        return estimate
    low, high = math.floor(estimate.low + 1e-9), math.ceil(estimate.high - 1e-9)
    return Estimate(float(round(estimate.value)), estimate.stderr, float(low), float(high), estimate.level)


def _answers(named: Mapping[str, Sheet], groups: bool) -> Columns:
    rows = [(name, sheet, *pair) for name, sheet in named.items() for pair in sheet.shown]
    columns: dict[str, list[Any]] = {"group": [row[0] for row in rows]} if groups else {}
    columns["question"] = [question.label for _, _, question, _ in rows]
    shown = [_whole(estimate) if question.whole else estimate for _, _, question, estimate in rows]
    return columns | {
        "estimate": [e.value for e in shown], "low": [e.low for e in shown], "high": [e.high for e in shown],
        "note": [mark(row[3]) for row in rows],
    }  # fmt: skip


def _frequencies(named: Mapping[str, Sheet], groups: bool) -> Columns:
    rows = [(name, span(first, last, sheet.profile.cap), inside) for name, sheet in named.items()
            for first, last, inside, _ in sheet.ranges]  # fmt: skip
    columns: dict[str, list[Any]] = {"group": [row[0] for row in rows]} if groups else {}
    columns["times"] = [row[1] for row in rows]
    many = next(iter(named.values())).asked.noun.many
    estimates = [_whole(row[2]) for row in rows]
    beside: dict[str, list[Any]] = {
        "low": [e.low for e in estimates], "high": [e.high for e in estimates], "note": [mark(row[2]) for row in rows],
    }  # fmt: skip
    named_so = many in columns or many in beside  # the items may be called times, lows or notes
    return columns | {"items" if named_so else many: [e.value for e in estimates]} | beside
