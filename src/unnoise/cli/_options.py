"""The options that several commands share, each said once."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Annotated, Any

import typer

from ..errors import InputError
from ..estimators.methods import METHODS
from ..noise import exact_positive

__all__ = [
    "AllGroups", "AsJson", "AsSketch", "AtLeast", "By", "Cells", "Clipped", "Columns", "CountColumn", "Dataset",
    "Delimiter", "Domain", "Epsilon", "Force", "Format", "FreqCount", "Groups", "HashSeed", "Headline", "Inputs",
    "Integers", "LedgerFile", "Levels", "Limit", "MaxContributions", "MaxCount", "Method", "NoHeader", "Output",
    "PanPrivate", "Person", "Quote", "Rate", "Sql", "Title", "Twice", "Unknown", "Word", "as_cells", "as_dialect",
    "as_names", "as_rate", "as_thresholds", "column_names",
]  # fmt: skip

FORMAT_NAMES = (
    "csv", "tsv", "ndjson", "lines", "uniq", "freqcount", "parquet", "arrow", "npy", "sqlite", "duckdb",
)  # fmt: skip
"""The keys of reading.formats.FORMATS, which a test compares: help must not wait for readers to be imported."""


def as_rate(text: str) -> Fraction:
    """Return a sampling rate: 0.1, 1/8 or 5%."""
    share = exact_positive("rate", text.removesuffix("%"))
    return share / 100 if text.endswith("%") else share


def as_cells(text: str, name: str = "cells") -> int:
    """Return a number of cells, or of something else, written as 1048576, 2^20 or 2**20.

    >>> as_cells("2^20"), as_cells("65536"), as_cells("1,024")
    (1048576, 65536, 1024)
    """
    match = re.fullmatch(r"(\d+)(?:(?:\^|\*\*)(\d+))?", text.replace(",", "").replace("_", "").strip())
    if not match or int(match[2] or 1) > 64 or int(match[1]) > 2**64:
        raise InputError(f"{name} must be a number such as 2^20 or 1048576, got {text!r}")
    return int(int(match[1]) ** int(match[2] or 1))


def as_names(text: str) -> list[str]:
    """Return names separated by commas; a name with a comma is put in double quotes.

    >>> as_names('EWR, JFK,"a, b"')
    ['EWR', 'JFK', 'a, b']
    """
    import csv

    return [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [])]


def as_dialect(format: str | None, no_header: bool, delimiter: str | None, quote: str) -> dict[str, Any]:
    """Return how a file is written, in the words of :func:`unnoise.reading.source.open_source`.

    >>> as_dialect(None, False, "tab", "none")["delimiter"]
    '\\t'
    """
    signs = {"tab": "\t", "\\t": "\t", "space": " ", "comma": ",", "semicolon": ";", "pipe": "|"}
    sign = None if delimiter is None else signs.get(delimiter, delimiter)
    around = None if quote in ("none", "") else quote
    return {"format": format, "header": not no_header, "delimiter": sign, "quote": around}


def _formats(incomplete: str) -> list[str]:
    return [name for name in FORMAT_NAMES if name.startswith(incomplete)]


def column_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete the name of a column from the files named so far; a shell that waits is told nothing."""
    from ..reading.source import open_source

    given = ctx.params.get("inputs") or [ctx.params.get("file"), *ctx.args]  # left there by an option without a value
    places = [str(name) for name in given if name not in (None, "-") and not str(name).startswith("--")]
    try:
        dialect = as_dialect(
            ctx.params.get("format"), bool(ctx.params.get("no_header")), ctx.params.get("delimiter"),
            ctx.params.get("quote") or '"',
        )  # fmt: skip
        found = open_source(places[:1], sql=ctx.params.get("sql"), **dialect).columns()
    except Exception:
        return []
    return [name for name in found if name.startswith(incomplete) and name.isprintable()]


def _headlines(incomplete: str) -> list[str]:
    known = ("exactly-1", "exactly-2", "at-least-2", "at-least-3", "at-least-10", "distinct", "total", "median")
    return [name for name in known if name.startswith(incomplete)]


def as_thresholds(text: str | None) -> tuple[int, ...] | None:
    """Return the numbers of ``--at-least``.

    >>> as_thresholds("1, 2,10")
    (1, 2, 10)
    """
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and 0 < int(part) < 10**18 for part in parts):
        raise InputError(f"--at-least must be whole numbers ≥ 1 with commas between, got {text!r}")
    return tuple(int(part) for part in parts)


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
                 help="Through a sketch: little memory whatever the rows, but more noise. Options below imply it."),
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
def as_seed(value: str | int) -> int:
    """Return a seed of the hash, drawn now where ``random`` is asked for."""
    from .._sampler import _system_stream

    if value == "random":
        return _system_stream().bits(64)
    try:
        return int(value)
    except ValueError:
        raise typer.BadParameter(f"--hash-seed must be an integer or random, got {value!r}") from None


HashSeed = Annotated[
    int,
    typer.Option("--hash-seed", metavar="S", rich_help_panel=SKETCH, parser=as_seed,
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
