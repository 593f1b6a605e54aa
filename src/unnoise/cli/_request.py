"""What a user may say, one dataclass per command: a field is an option, said once.

A command is a function of its request; :func:`command` makes the fields of the request its options. A request that
makes no sense cannot be made, and so nothing is read for it. Below the requests: what the words of an option stand for.
"""

from __future__ import annotations

import inspect
import os
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from ..checks import check_integer
from ..errors import InputError
from ..noise import exact_positive
from . import _options as opt
from ._app import app

__all__ = [
    "Answering", "Comparing", "Counting", "Data", "Planning", "Profiling", "Recorded", "Reporting", "Showing",
    "Sketching", "as_cells", "as_names", "as_rate", "as_seed", "command", "read_as",
]  # fmt: skip

R = TypeVar("R")

LISTS = "--freq-count files have no columns: leave out the options that name some, and --sql"
"""What is said where a frequency list is asked for columns."""


def command(
    request: type[R], *, epilog: str, group: typer.Typer = app, name: str | None = None
) -> Callable[[Callable[[R], None]], Callable[[R], None]]:
    """Register a function of ``request`` as a command, by its own name unless another is given."""

    def register(function: Callable[[R], None]) -> Callable[[R], None]:
        def call(**given: Any) -> None:
            function(request(**given))

        hints = get_type_hints(request, include_extras=True)
        fields = inspect.signature(request).parameters.values()
        call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [field.replace(annotation=hints[field.name]) for field in fields]
        )
        call.__name__, call.__doc__ = function.__name__, function.__doc__
        group.command(name, epilog=epilog)(call)
        return function

    return register


@dataclass(frozen=True, kw_only=True)
class Data:
    """Rows to read."""

    inputs: opt.Inputs
    column: opt.Columns = None
    integers: opt.Integers = False
    count_column: opt.CountColumn = None
    freq_count: opt.FreqCount = False
    sql: opt.Sql = None
    format: opt.Format = None
    no_header: opt.NoHeader = False
    delimiter: opt.Delimiter = None
    quote: opt.Quote = '"'
    twice: opt.Twice = False


@dataclass(frozen=True, kw_only=True)
class Showing:
    """How answers are shown, and where they are written."""

    output: opt.Output = None
    force: opt.Force = False
    as_json: opt.AsJson = False
    at_least: opt.AtLeast = None
    headline: opt.Headline = "exactly-1"
    noun: opt.Word = "item"
    title: opt.Title = None


@dataclass(frozen=True, kw_only=True)
class Recorded(Data):
    """Rows to count, and where it is recorded what that costs."""

    ledger: opt.LedgerFile = None
    dataset: opt.Dataset = None
    limit: opt.Limit = None


@dataclass(frozen=True, kw_only=True)
class Counting(Recorded):
    """Rows to count.

    spent : ε as the exact number it is
    unit, charged : whom it protects, and what is recorded: a person may be in every group of a set of sketches
    seed : of the hash
    wants_sketch : whether a sketch was asked for, by name or by an option that only a sketch has
    persons_are_items : whether the person is the item, and the model one in which that needs no limit
    """

    epsilon: opt.Epsilon = None
    by: opt.By = None
    groups: opt.Groups = None
    unknown: opt.Unknown = "drop"
    person: opt.Person = None
    max_contributions: opt.MaxContributions = None
    pan_private: opt.PanPrivate = False
    cells: opt.Cells = "2^20"
    levels: opt.Levels = None
    domain: opt.Domain = None
    rate: opt.Rate = None
    hash_seed: opt.HashSeed = "0"
    spent: Fraction = field(init=False)
    unit: str = field(init=False)
    charged: Fraction = field(init=False)
    seed: int = field(init=False)
    wants_sketch: bool = field(default=True, init=False)
    persons_are_items: bool = field(default=False, init=False)

    @property
    def names_columns(self) -> bool:
        """Whether any option names a column."""
        return any((self.column, self.by, self.person, self.count_column))

    def __post_init__(self) -> None:
        """Refuse combinations that make no sense, before anything is read."""
        object.__setattr__(self, "seed", as_seed(self.hash_seed))
        object.__setattr__(self, "spent", exact_positive("epsilon", self.epsilon))
        persons = self.max_contributions is not None or self.person is not None
        times = len(as_names(self.groups or "")) if persons and self.wants_sketch else 1
        object.__setattr__(self, "unit", "person" if persons else "occurrence")
        object.__setattr__(self, "charged", self.spent * max(times, 1))
        if self.unknown not in ("error", "drop"):
            raise InputError(f"--unknown must be error or drop, got {self.unknown!r}")
        if (self.by is None) != (self.groups is None):
            raise InputError("--by and --groups go together: the groups are declared, not taken from the data")
        if self.person is not None and self.max_contributions is None and not self.persons_are_items:
            raise InputError("--person needs --max-contributions: how many occurrences of a person may count")
        if self.rate is not None and self.domain is None:
            raise InputError("--rate needs --domain: the items that are sampled are declared beforehand")
        if self.domain is not None and self.levels is not None:
            raise InputError("--levels is for hashed sketches, got --domain as well")
        if self.freq_count and (self.names_columns or self.sql):
            raise InputError(LISTS)


@dataclass(frozen=True, kw_only=True)
class Sketching(Counting):
    """``unnoise sketch``."""

    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="File to write, a folder with --groups, or - .")
    ]
    force: opt.Force = False
    label: Annotated[
        str | None, typer.Option("--label", metavar="TEXT", rich_help_panel=opt.SKETCH, help="Title kept in the file.")
    ] = None
    site: Annotated[
        str | None, typer.Option("--site", metavar="NAME", rich_help_panel=opt.SKETCH, help="Who counted.")
    ] = None
    period: Annotated[
        str | None, typer.Option("--period", metavar="TEXT", rich_help_panel=opt.SKETCH, help="Which time it covers.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class Profiling(Showing, Counting):
    """``unnoise profile``."""

    all_groups: opt.AllGroups = None
    sketch: opt.AsSketch = False
    cells: opt.Cells = ""
    method: opt.Method = "auto"
    max_count: opt.MaxCount = None

    def __post_init__(self) -> None:
        """Refuse what makes no sense: a share of ε for what a sketch has already, a headline without an answer."""
        said = self.method != "auto" or self.hash_seed != "0" or self.sketch or self.pan_private or bool(self.cells)
        wants_sketch = said or any(option is not None for option in (self.levels, self.domain, self.rate))
        persons = not wants_sketch and self.person is not None and self.column == [self.person]
        object.__setattr__(self, "wants_sketch", wants_sketch)
        object.__setattr__(self, "persons_are_items", persons)
        super().__post_init__()
        if self.all_groups is not None and self.groups is None:
            raise InputError("--all-groups needs --by and --groups: without them all rows are one profile")
        if self.all_groups is not None and wants_sketch:
            raise InputError("--all-groups must be left out here: groups of a sketch add up, which costs no ε")
        if self.max_count is not None or self.max_contributions is not None:
            self._check_cap()
        if persons and self.max_contributions is None:
            from ..answers.questions import LEFT_OUT, question

            if question(self.headline, "headline") in LEFT_OUT["unbounded"]:
                raise InputError(f"--headline {self.headline} needs --max-contributions: nothing else bounds a person")

    def _check_cap(self) -> None:
        """Refuse a headline beyond the count that larger ones will be taken as: of that there will be no answer."""
        bound = None if self.wants_sketch else self.max_count  # of a sketch it is a promise that cuts nothing
        limit = self.max_contributions if self.person is not None and self.column == [self.person] else None
        caps = [cap for cap in (bound, limit) if cap is not None and cap > 0]
        if caps:
            from ..answers.questions import Asked

            Asked(headline=self.headline).up_to(min(caps))


@dataclass(frozen=True, kw_only=True)
class Answering(Showing):
    """``unnoise estimate``: a sketch, or noisy counts released by others."""

    file: Annotated[str, typer.Argument(metavar="FILE", help="Sketch, set of groups, noisy histogram, or - .")]
    column: Annotated[
        str | None,
        typer.Option("--column", "-c", metavar="NAME", autocompletion=opt.column_names,
                     help="Column of a noisy histogram of others."),
    ] = None  # fmt: skip
    epsilon: Annotated[
        str | None, typer.Option("--epsilon", "-e", metavar="E", help="ε of a noisy histogram of others.")
    ] = None
    power: Annotated[
        str,
        typer.Option("--power", metavar="R", rich_help_panel=opt.OUT, help="Noises added up in a histogram of others."),
    ] = "1"
    clipped: opt.Clipped = False
    sql: opt.Sql = None
    format: opt.Format = None
    no_header: opt.NoHeader = False
    delimiter: opt.Delimiter = None
    quote: opt.Quote = '"'
    method: opt.Method = "auto"
    max_count: opt.MaxCount = None


@dataclass(frozen=True, kw_only=True)
class Reporting(Answering):
    """``unnoise report``: the same, for the sake of the page."""

    output: Annotated[
        str,
        typer.Option("--output", "-o", metavar="FILE", rich_help_panel=opt.OUT,
                     help="Page to write (.html), or .csv, .json, .parquet, .xlsx, .md; - is the page."),
    ] = field()  # fmt: skip  (required, unlike the option it replaces)


@dataclass(frozen=True, kw_only=True)
class Comparing(Data):
    """``unnoise compare``."""

    epsilon: opt.Epsilon = None
    domain: Annotated[
        str | None, typer.Option("--domain", metavar="N", help="Size of the domain: the rest has count 0.")
    ] = None
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method", metavar="NAME",
            help="Only these; may be repeated. Estimators, direct, or systems of the field: hay, manurangsi, …",
        ),
    ] = None
    repetitions: Annotated[int, typer.Option("--repetitions", metavar="N", help="Noisy releases to average over.")] = 1
    plot: Annotated[
        str | None, typer.Option("--plot", metavar="FILE", help="Write a picture (needs matplotlib).")
    ] = None
    output: opt.Output = None
    force: opt.Force = False
    as_json: opt.AsJson = False

    def __post_init__(self) -> None:
        """Refuse what cannot be run or drawn, before anything is read."""
        check_integer("repetitions", self.repetitions, 1)
        if self.plot is not None:
            from ..answers.plots import check_picture

            check_picture(self.plot)


@dataclass(frozen=True, kw_only=True)
class Planning:
    """``unnoise plan``."""

    epsilon: Annotated[
        str | None, typer.Option("--epsilon", "-e", metavar="E", help="ε, or leave it out with --target.")
    ] = None
    cells: Annotated[str | None, typer.Option("--cells", metavar="D", help="Cells, or items of the domain.")] = None
    shape: Annotated[
        str, typer.Option("--shape", metavar="SHAPE", help="Guess: power:2.2, poisson:5, geometric:20, uniform:200, …")
    ] = "power:2"
    target: Annotated[
        str | None,
        typer.Option("--target", metavar="[WHAT=]X", help="Error to reach: 0.05 (ℓ1), w1=0.1, distinct=0.01, …"),
    ] = None
    kind: Annotated[
        str, typer.Option("--kind", metavar="KIND", help="known (a cell per item), hashed or sampled.")
    ] = "known"
    items: Annotated[
        str | None, typer.Option("--items", metavar="N", help="Distinct items (hashed), items of the domain (sampled).")
    ] = None
    levels: Annotated[int, typer.Option("--levels", metavar="L", help="Levels of a hashed sketch.")] = 1
    merges: Annotated[int, typer.Option("--merges", metavar="K", help="Sketches added up, each with its noise.")] = 1
    cap: Annotated[int | None, typer.Option("--max-count", metavar="N", help="No count is above N.")] = None
    method: opt.Method = "auto"
    repetitions: Annotated[int, typer.Option("--repetitions", metavar="N", help="Simulated releases per figure.")] = 10
    as_json: opt.AsJson = False


# ── what the words of an option stand for ───────────────────────────────────────────────────────────────────────────


def read_as(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return how inputs are written, as :func:`unnoise.reading.source.open_source` takes it, from options by name.

    >>> read_as({"delimiter": "tab", "quote": "none"})["delimiter"]
    '\\t'
    """
    signs = {"tab": "\t", "\\t": "\t", "space": " ", "comma": ",", "semicolon": ";", "pipe": "|"}
    delimiter, quote = said.get("delimiter"), said.get("quote")
    return {
        "format": "freqcount" if said.get("freq_count") else said.get("format"),
        "header": not said.get("no_header"),
        "delimiter": signs.get(delimiter or "", delimiter),
        "quote": '"' if quote is None else None if quote in ("none", "") else quote,
        "sql": said.get("sql"),
    }


def as_rate(text: str) -> Fraction:
    """Return a sampling rate: 0.1, 1/8 or 5%."""
    share = exact_positive("rate", text.removesuffix("%"))
    return share / 100 if text.endswith("%") else share


def as_cells(text: str, name: str = "cells") -> int:
    """Return a number of cells, or of something else, written as 1048576, 2^20 or 2**20.

    >>> as_cells("2^20"), as_cells("65536"), as_cells("1,024")
    (1048576, 65536, 1024)
    """
    match = re.fullmatch(r"([0-9]{1,20})(?:(?:\^|\*\*)([0-9]{1,2}))?", text.replace(",", "").replace("_", "").strip())
    if not match or int(match[2] or 1) > 64 or int(match[1]) > 2**64:
        raise InputError(f"{name} must be a number such as 2^20 or 1048576, got {text[:40]!r}")
    return int(int(match[1]) ** int(match[2] or 1))


def as_names(text: str) -> list[str]:
    """Return names separated by commas or on lines of their own; one with a comma is put in double quotes.

    >>> as_names('EWR, JFK,"a, b"'), as_names("EWR\\nJFK\\n")
    (['EWR', 'JFK', 'a, b'], ['EWR', 'JFK'])
    """
    import csv
    from io import StringIO

    if os.path.isfile(text):
        lines = f'"$(cat {shlex.quote(text)})"'
        raise InputError(f"--groups must be names, got a file, {text}; {lines} gives its lines")
    try:
        rows = list(csv.reader(StringIO(text, newline=""), skipinitialspace=True))
    except csv.Error as error:
        raise InputError(f"groups must be names between commas or on lines of their own: {error}") from None
    return [name.strip() for row in rows for name in row]


def as_seed(text: str) -> int:
    """Return a seed of the hash, drawn now where ``random`` is asked for."""
    from .._sampler import Keystream

    if text == "random":
        return Keystream().bits(64)
    try:
        return int(text.encode("ascii"))
    except ValueError:
        raise InputError(f"hash_seed must be an integer or random, got {text!r}") from None
