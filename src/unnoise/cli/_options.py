"""The options that several commands share, each said once."""

from __future__ import annotations

from typing import Annotated

import typer

from ..estimators.methods import METHODS

__all__ = [
    "AllGroups", "AsJson", "AsSketch", "AtLeast", "By", "Cells", "Clipped", "Columns", "CountColumn", "Dataset",
    "Delimiter", "Domain", "Epsilon", "Force", "Format", "FreqCount", "Groups", "HashSeed", "Headline", "Inputs",
    "Integers", "LedgerFile", "Levels", "Limit", "MaxContributions", "MaxCount", "Method", "NoHeader", "Output",
    "PanPrivate", "Person", "Quote", "Rate", "Sql", "Title", "Twice", "Unknown", "Word", "column_names",
]  # fmt: skip

FORMAT_NAMES = (
    "csv", "tsv", "ndjson", "lines", "uniq", "freqcount", "parquet", "arrow", "npy", "sqlite", "duckdb",
)  # fmt: skip
"""The keys of reading.formats.FORMATS, which a test compares: help must not wait for readers to be imported."""


def _formats(incomplete: str) -> list[str]:
    return [name for name in FORMAT_NAMES if name.startswith(incomplete)]


def column_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of a column from the files named so far; a shell that waits is told nothing."""
    from ..reading.source import open_source
    from ._request import read_as

    given = ctx.params.get("inputs") or [ctx.params.get("file"), *ctx.args]  # left there by an option without a value
    places = [str(name) for name in given if name not in (None, "-") and not str(name).startswith("--")]
    try:
        found = open_source(places[:1], **read_as(ctx.params)).columns()
    except Exception:
        return []
    return [name for name in found if name.startswith(incomplete) and name.isprintable()]


def _headlines(incomplete: str) -> list[str]:
    known = ("exactly-1", "exactly-2", "at-least-2", "at-least-3", "at-least-10", "distinct", "total", "median")
    return [name for name in known if name.startswith(incomplete)]


def _methods(incomplete: str) -> list[str]:
    return [name for name in METHODS if name.startswith(incomplete)]


DATA, UNIT, SKETCH, OUT = "What to count", "What to protect", "How to keep it", "Result"

Inputs = Annotated[
    list[str],
    typer.Argument(metavar="INPUT…", help="Files, globs in quotes, or - for standard input.", show_default=False),
]
Columns = Annotated[
    list[str] | None,
    typer.Option("--column", "-c", metavar="NAME", rich_help_panel=DATA, autocompletion=column_names,
                 help="Column that holds the item; several make one item of each row."),
]  # fmt: skip
Integers = Annotated[
    bool, typer.Option("--int", rich_help_panel=DATA, help="Items in text files are integers, not text.")
]
CountColumn = Annotated[
    str | None,
    typer.Option("--count-column", metavar="NAME", rich_help_panel=DATA, autocompletion=column_names,
                 help="Column with occurrences per row."),
]  # fmt: skip
FreqCount = Annotated[
    bool,
    typer.Option("--freq-count", rich_help_panel=DATA,
                 help="The file holds pairs 'frequency count': count items occur frequency times each."),
]  # fmt: skip
Sql = Annotated[
    str | None,
    typer.Option("--sql", metavar="QUERY", rich_help_panel=DATA, help="Query over the table data: all files."),
]
Format = Annotated[
    str | None,
    typer.Option("--format", metavar="FORMAT", rich_help_panel=DATA, autocompletion=_formats,
                 help=f"{', '.join(FORMAT_NAMES)}; taken from the name unless given."),
]  # fmt: skip
NoHeader = Annotated[
    bool, typer.Option("--no-header", rich_help_panel=DATA, help="The first line is data; columns are column_1, …")
]
Delimiter = Annotated[
    str | None,
    typer.Option("--delimiter", metavar="C", rich_help_panel=DATA, help="Between two fields: ; or tab, for example."),
]
Quote = Annotated[
    str, typer.Option("--quote", metavar="C|none", rich_help_panel=DATA, help="Around fields that hold a delimiter.")
]
By = Annotated[
    str | None,
    typer.Option("--by", metavar="NAME", rich_help_panel=DATA, autocompletion=column_names,
                 help="Column of groups: one profile for each."),
]  # fmt: skip
Groups = Annotated[
    str | None,
    typer.Option("--groups", metavar="A,B,C", rich_help_panel=DATA,
                 help="The groups, declared here because groups taken from the data would leak."),
]  # fmt: skip
AllGroups = Annotated[
    str | None,
    typer.Option("--all-groups", metavar="R", rich_help_panel=DATA,
                 help="Add a row for all groups together, which takes this share of ε: 1/2. Sketches have it anyway."),
]  # fmt: skip
Unknown = Annotated[
    str,
    typer.Option("--unknown", metavar="error|drop", rich_help_panel=DATA,
                 help="Items outside --domain, rows outside --groups: left out, or refused, which tells of them."),
]  # fmt: skip
Epsilon = Annotated[
    str | None,
    typer.Option("--epsilon", "-e", metavar="E", rich_help_panel=UNIT,
                 help="Privacy parameter ε: 0.1, 1, 1/3. A decision, so there is no default."),
]  # fmt: skip
Person = Annotated[
    str | None,
    typer.Option("--person", metavar="NAME", rich_help_panel=UNIT, autocompletion=column_names,
                 help="Column that names the person behind a row."),
]  # fmt: skip
MaxContributions = Annotated[
    int | None,
    typer.Option("--max-contributions", metavar="C", rich_help_panel=UNIT,
                 help="Protect persons: at most C occurrences each count, chosen at random."),
]  # fmt: skip
PanPrivate = Annotated[
    bool, typer.Option("--pan-private", rich_help_panel=UNIT, help="Add fresh noise at release as well.")
]
Cells = Annotated[
    str, typer.Option("--cells", metavar="M", rich_help_panel=SKETCH, help="Cells of a hashed sketch, a power of two.")
]
AsSketch = Annotated[
    bool,
    typer.Option("--sketch", rich_help_panel=SKETCH,
                 help="Through a sketch: little memory whatever the rows, but more noise. The others here imply it, "
                      "as do --pan-private and --method."),
]  # fmt: skip
Levels = Annotated[
    int | None,
    typer.Option("--levels", metavar="L", rich_help_panel=SKETCH, help="Levels, for an unknown number of items."),
]
Domain = Annotated[
    str | None,
    typer.Option("--domain", metavar="N|FILE", rich_help_panel=SKETCH,
                 help="Declared domain: N for the integers 0…N−1, or a file with one item per line or row."),
]  # fmt: skip
Rate = Annotated[
    str | None,
    typer.Option("--rate", metavar="R", rich_help_panel=SKETCH, help="Keep cells for this share of the domain only."),
]
HashSeed = Annotated[
    str,
    typer.Option("--hash-seed", metavar="S", rich_help_panel=SKETCH,
                 help="Equal for sketches to be merged; random draws one, which inspect shows."),
]  # fmt: skip
Method = Annotated[
    str,
    typer.Option("--method", metavar="NAME", rich_help_panel=OUT, autocompletion=_methods,
                 help=f"Estimator: {', '.join(METHODS)}."),
]  # fmt: skip
MaxCount = Annotated[
    int | None,
    typer.Option("--max-count", metavar="N", rich_help_panel=OUT, help="A bound that truly holds for every count."),
]
Clipped = Annotated[
    bool, typer.Option("--clipped", rich_help_panel=OUT, help="The counts were clamped at 0 (and --max-count).")
]
LEDGER = "What to record"
LedgerFile = Annotated[
    str | None,
    typer.Option("--ledger", metavar="FILE|off", rich_help_panel=LEDGER,
                 help="Where this release is recorded; unnoise.ledger beside the data unless given."),
]  # fmt: skip
Dataset = Annotated[
    str | None,
    typer.Option("--dataset", metavar="NAME", rich_help_panel=LEDGER,
                 help="Name of the data in the ledger; their path unless given."),
]  # fmt: skip
Limit = Annotated[
    str | None,
    typer.Option("--limit", metavar="E", rich_help_panel=LEDGER,
                 help="Most ε in all for these data: beyond it nothing is read."),
]  # fmt: skip
Twice = Annotated[
    bool,
    typer.Option("--twice", rich_help_panel=DATA, help="Count a file twice that is given twice; refused otherwise."),
]
AsJson = Annotated[bool, typer.Option("--json", rich_help_panel=OUT, help="Print the result as JSON.")]
AtLeast = Annotated[
    str | None,
    typer.Option("--at-least", metavar="1,2,3", rich_help_panel=OUT, help="Ask how many occur at least so often."),
]
Headline = Annotated[
    str,
    typer.Option("--headline", metavar="WHAT", rich_help_panel=OUT, autocompletion=_headlines,
                 help="Answer of the first sentence: exactly-1, at-least-3, distinct, total, median."),
]  # fmt: skip
Word = Annotated[
    str, typer.Option("--noun", metavar="WORD", rich_help_panel=OUT, help="What the items are called: user, page, …")
]
Output = Annotated[
    str | None,
    typer.Option("--output", "-o", metavar="FILE", rich_help_panel=OUT,
                 help="Write .html, .csv, .json, .parquet, .xlsx or .md; - is the page."),
]  # fmt: skip
Force = Annotated[bool, typer.Option("--force", rich_help_panel=OUT, help="Replace an output that exists.")]
Title = Annotated[str | None, typer.Option("--title", metavar="TEXT", rich_help_panel=OUT, help="Title of the report.")]
