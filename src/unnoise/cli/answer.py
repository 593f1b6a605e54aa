"""``unnoise profile``, ``sketch``, ``estimate`` and ``report``: from data, sketches or noisy counts to answers.

And what is behind them: what it costs is recorded, data are counted in a sketch or exactly, files opened and saved, all
reconstructed. In the direct model the rows are here, so the noise goes on the profile itself.
"""

from __future__ import annotations

import _imp
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from fractions import Fraction
from functools import partial, reduce
from importlib import import_module
from operator import add
from pathlib import Path
from threading import Thread, Timer, current_thread, main_thread
from typing import TYPE_CHECKING, Any

from ..errors import ConvergenceError, InputError, OverloadError, PrivacyError, UnnoiseError
from ..noise import DiscreteLaplace, tidy
from ..text import LONGEST_NAME, inert
from ._request import LISTS, Answering, Profiling, Reporting, Sketching, as_cells, as_names, as_rate, command, read_as

if TYPE_CHECKING:
    import polars as pl

    from ..answers.direct import DirectProfile
    from ..answers.profile import Profile
    from ..ledger import Ledger
    from ..reading.groups import GroupedSketch
    from ..reading.source import Source, Wanted
    from ..sketches.inputs import Rows
    from ..sketches.sketch import Sketch
    from ._request import Counting, Recorded

__all__ = ["estimate", "load_sketches", "local_path", "profile", "report", "save_sketch", "sketch", "sketch_data"]

CELLS = "2^20"
"""Cells of a hashed sketch where nobody says how many."""

SWITCH = "UNNOISE_LEDGER"
"""The variable of the environment that names a ledger for all commands, or says off."""


@command(
    Profiling,
    epilog="""[bold]Examples[/bold]

unnoise profile visits.csv --column url --epsilon 1

unnoise profile 'logs/*.parquet' -c user -c page -e 0.5 -o report.html

zcat words.txt.gz | unnoise profile - --format lines -e 1 --json

unnoise profile sales.csv -c product -e 1 --by country --groups DE,FR,IT

unnoise profile visits.csv -c user --person user -e 1

unnoise profile huge.csv -c url -e 1 --sketch""",
)
def profile(request: Profiling) -> None:
    """From data to answers in one command: how many items occur exactly once, twice, at least ten times, …"""
    from ._output import check_answers, show_profiles

    asked = check_answers(request, [*request.inputs, request.domain])
    if request.method != "auto" or request.max_count is not None:  # refused before it costs ε
        from ..estimators.methods import check_max_count, check_method

        check_method(request.method)
        check_max_count(request.max_count, least=0 if request.domain else 1)
    if not request.wants_sketch:
        show_profiles(*direct_profiles(request), request, asked)
        return
    charge = open_charge(request, "profile", request.charged, request.unit)
    target = sketch_data(request, answers=True)
    charge.write(request.output, force=request.force)
    sketches = target.sketches if hasattr(target, "sketches") else {"": target}
    try:
        profiles = reconstruct_all(sketches, method=request.method, max_count=request.max_count)
    except (ConvergenceError, OverloadError) as error:
        raise type(error)(f"{error}; this try spent its ε, so plan the next one") from None
    show_profiles(profiles, target.guarantee + charge.remark, request, asked)


@command(
    Sketching,
    epilog="""[bold]Examples[/bold]

unnoise sketch day1.parquet --column url --epsilon 1 -o day1.sketch

unnoise sketch orders.csv -c product -e 1 --domain products.txt -o orders.sketch

unnoise sketch log.csv -c page -e 1 --person user --max-contributions 5 -o log.sketch

unnoise sketch sales.csv -c product -e 1 --by country --groups DE,FR,IT -o sales.sketches""",
)
def sketch(request: Sketching) -> None:
    """Keep a private sketch of the data: small, mergeable, and safe to pass on."""
    from ._output import check_output, note

    grouped = request.groups is not None
    if request.output == "-":
        check_stream(grouped=grouped)
    check_output(request.output, [*request.inputs, request.domain], force=request.force, folder=grouped)
    charge = open_charge(request, "sketch", request.charged, request.unit)
    target = sketch_data(request, {"label": request.label, "site": request.site, "period": request.period})
    charge.write(request.output, force=request.force, folder=grouped)
    save_sketch(target, request.output, new=not request.force)
    if request.output != "-":
        note(f"{request.output}: {target.guarantee}{charge.remark}", always=bool(charge.remark))  # no file says it


@command(
    Answering,
    epilog="""[bold]Examples[/bold]

unnoise estimate week.sketch

unnoise estimate released.csv --column noisy --epsilon 0.5 --json

unnoise estimate clamped.parquet -c n -e 1 --clipped

unnoise estimate week.sketch --noun user --at-least 1,2,3,5,10 -o reach.xlsx""",
)
def estimate(request: Answering) -> None:
    """Answer from a sketch, or from a noisy histogram that another library released."""
    from ._output import check_answers, show_profiles

    asked = check_answers(request, [request.file])
    show_profiles(*_answers(request), request, asked)


@command(
    Reporting,
    epilog="""[bold]Examples[/bold]

unnoise report week.sketch -o report.html

unnoise report released.csv -c noisy -e 1 -o report.html --title 'Degrees of the network'""",
)
def report(request: Reporting) -> None:
    """Write one HTML page with sentence, picture, answers and promise; it needs no network."""
    from ._output import check_answers, show_profiles

    asked = check_answers(request, [request.file])
    show_profiles(*_answers(request), request, asked, quiet=not request.as_json)


def _answers(request: Answering) -> tuple[dict[str, Profile], str]:
    """Open whatever the file is and reconstruct it."""
    from ..reading.released import is_sketch_file
    from ._output import saying

    file = request.file
    with local_path(file) as path:
        if path.is_dir() or is_sketch_file(path):
            if request.column or request.clipped or request.power != "1" or request.epsilon is not None:
                raise InputError(f"{file} is a sketch: leave out --column, --epsilon, --power and --clipped")
            with saying("reading and verifying"):
                sketches, guarantee = load_sketches(path)
            return reconstruct_all(sketches, method=request.method, max_count=request.max_count), guarantee
        return {"": _from_histogram(request, path)}, ""


def _from_histogram(request: Answering, path: Path) -> Profile:
    from ..answers.reconstruct import reconstruct
    from ..reading.released import read_noisy_counts
    from ._output import saying

    if request.epsilon is None:
        what = "standard input" if request.file == "-" else request.file
        raise InputError(f"--epsilon is required: {what} is not a sketch, so say which noise its counts carry")
    law = DiscreteLaplace(request.epsilon, request.power)
    kind = request.format or ("csv" if request.file == "-" else None)
    with saying("reading"):
        counts = read_noisy_counts(path, column=request.column, **read_as({**vars(request), "format": kind}))
    with saying("reconstructing"):
        return reconstruct(
            counts, noise=law, method=request.method, max_count=request.max_count, clipped=request.clipped
        )


# ── what is recorded ─────────────────────────────────────────────────────────────────────────────────────────────────


ROWS_OF_QUERY = (
    " The occurrence that has this ε is one row of the query's result: a row of the data that the query joins or "
    "copies counts as often."
)
PERSONS_OF_QUERY = (
    " The persons are those whom the rows of the query's result name: what the query puts into the rows of others is "
    "not limited."
)


@dataclass(frozen=True)
class Charge:
    """What a command is about to spend.

    ledgers : where it is recorded: one that was named, or one in every folder of the data; none for a stream
    asked : those that the user named or that hold a limit, so that not recording is an error and not a remark
    remark : what the promise has to say besides, where a row of the data may count several times
    """

    ledgers: tuple[Ledger, ...]
    what: str
    epsilon: Fraction
    unit: str
    asked: tuple[Ledger, ...]
    remark: str

    def write(self, output: str | None, *, force: bool, folder: bool = False) -> None:
        """Record it: to be called before anything leaves, into an output that nobody else has written meanwhile."""
        from ._output import check_output, note

        check_output(output, force=force, folder=folder)
        for ledger in self.ledgers:
            try:
                ledger.write(self.what, self.epsilon, self.unit)
            except OSError as error:
                why = f"{os.fspath(ledger.path)}: {error.strerror}"
                if ledger in self.asked:
                    raise PrivacyError(
                        f"a release must be recorded where a ledger or a limit is asked for, and cannot be ({why}); "
                        f"change who may write there, or name another with --ledger"
                    ) from None
                note(f"unnoise: not recorded in a ledger ({why}); --ledger names another place, or off", always=True)


def open_charge(request: Recorded, what: str, epsilon: Fraction, unit: str) -> Charge:
    """Return what the request is about to spend, after a look at the limit and before any look at the data.

    The ledger is the one named, or one in every folder of the data; there is none for a stream without a name. A file
    that is given twice is charged twice, whatever its names, but for persons, who are limited over all that is read.
    """
    from ..ledger import FILE, QUERIED, Ledger
    from ..reading.formats import expand

    unit = QUERIED if request.sql and unit == "occurrence" else unit
    where, name = request.ledger or os.environ.get(SWITCH) or "", request.dataset
    places = [] if "-" in request.inputs else [place for one in request.inputs for place in expand(one)]
    if "-" in request.inputs and where not in ("", "off") and name is None:
        raise InputError("standard input needs a name in the ledger: give --dataset NAME")
    found = {place: os.stat(place)[1:3] if isinstance(place, Path) else place for place in places}
    often = Counter({} if unit == "person" else (found[place] for place in places))
    paths = {str(place.resolve() if isinstance(place, Path) else place): often[found[place]] or 1 for place in places}
    times = max(paths.values(), default=1)
    data = tuple(Counter(paths if name is None else {name: times}).elements())
    beside = dict.fromkeys(place.resolve().parent / FILE for place in places if isinstance(place, Path))
    files = [] if where == "off" else [where] if where else list(beside)
    books = tuple(Ledger(file, data, request.limit) for file in files)
    asked = []
    for book in books:
        if book.check(epsilon, unit) or where:
            asked.append(book)
    if not books and (request.limit is not None or (name is not None and not where)):
        option = "--dataset" if request.limit is None else "--limit"
        raise InputError(f"{option} needs a ledger: give --ledger FILE, and --dataset NAME for standard input")
    remark = "" if not request.sql else ROWS_OF_QUERY if unit == QUERIED else PERSONS_OF_QUERY
    if times > 1:
        remark += f" A file that is given {times} times counts as often: ε = {tidy(times * epsilon)} for what is in it."
    return Charge(books, what, epsilon, unit, tuple(asked), remark)


# ── data that are counted, files that are opened ─────────────────────────────────────────────────────────────────────


def sketch_data(
    request: Counting, labels: Mapping[str, str | None] | None = None, *, answers: bool = False
) -> Sketch | GroupedSketch:
    """Make the sketch that was asked for and count all data in it; for ``answers``, prepare those meanwhile."""
    from ..reading.groups import GroupedSketch, check_names
    from ..sketches.sketch import Sketch
    from ._output import saying, with_progress

    source, wanted = _source(request)
    # a stream tells its types only with its first rows; groups need them before, so that empty ones look the same
    late = source.stream is not None and source.kind.typed and request.groups is None
    types = None if late else source.item_types(wanted)
    domain = None if request.domain is None else _domain(request.domain, request, source, wanted)
    said = {name: text for name, text in (labels or {}).items() if text is not None}
    named = wanted.columns if request.column or not source.first_line else ()  # a first line may be a row
    common: dict[str, Any] = {
        "epsilon": request.spent, "max_contributions": request.max_contributions, "pan_private": request.pan_private,
        "labels": {**said, "column": [inert(column)[:LONGEST_NAME] for column in named]},
    }  # fmt: skip
    groups = None if request.groups is None else check_names(as_names(request.groups))
    make: Callable[[], Sketch]
    if request.domain is None:
        cells = as_cells(request.cells or CELLS)
        make = partial(Sketch.hashed, cells, levels=request.levels, hash_seed=request.seed, item_types=types, **common)
    elif request.rate is None:
        make = partial(Sketch.known, domain, unknown=request.unknown, **common)
    else:
        rate, common["unknown"] = as_rate(request.rate), request.unknown
        make = partial(Sketch.sampled, domain, rate=rate, hash_seed=request.seed, **common)
    with saying("counting"), _answers_imported() if answers else nullcontext():
        target = make() if groups is None else GroupedSketch(groups, make, unknown=request.unknown)
        batches = with_progress(source, wanted)
        target.take_in(batches, persons=request.person is not None, as_items=wanted.person_is_item)
    return target


def _source(request: Counting) -> tuple[Source, Wanted]:
    from ..reading.formats import told
    from ..reading.source import Wanted, open_source

    source = open_source(request.inputs, twice=request.twice, **read_as(vars(request)))
    if source.kind.name == "freqcount" and request.names_columns:
        raise InputError(LISTS)
    columns = request.column or source.unnamed_item()
    if not columns:
        found = source.columns() if source.places and not source.headless else []
        raise InputError("--column is required" + (f": {told(found, first_line=source.first_line)}" if found else ""))
    if len(set(columns)) != len(columns):
        raise InputError(f"--column must name each column once, got {', '.join(columns)}")
    wanted = Wanted(
        columns=tuple(columns), integers=request.integers, counts=request.count_column or source.kind.counts,
        person=request.person, group=request.by,
    )  # fmt: skip
    return source, wanted


def _domain(declared: str, request: Counting, data: Source, wanted: Wanted) -> Any:
    """Return the declared items as columns, or how many there are where they are the integers 0…N−1."""
    digits = declared.replace("_", "").replace(",", "")
    if digits.isdecimal():
        if not request.integers and not data.kind.typed:
            raise InputError(f"--domain {declared[:40]} means the integers below it: add --int to read integers")
        return as_cells(declared, "domain")
    from ..reading.source import Wanted, open_source

    source = open_source([declared], header=not request.no_header)
    for place in (place for place in source.places if isinstance(place, Path)):
        if any(isinstance(other, Path) and place.samefile(other) for other in data.places):
            raise InputError(
                f"--domain must be declared beforehand, got {declared}, which is counted here: a domain taken from "
                f"the data tells which items are in them"
            )
    columns = (source.kind.item,) if source.kind.item else wanted.columns
    batches = list(source.batches(Wanted(columns=columns, integers=request.integers)))
    import polars as pl

    if not any(rows.size for rows in batches):
        raise InputError(f"{declared}: a domain must hold at least one item, got none")
    tables = [pl.DataFrame(dict(zip(columns, rows.columns))) for rows in batches]
    table = pl.concat(tables).unique(maintain_order=True)
    return table[columns[0]] if len(columns) == 1 else table


@contextmanager
def local_path(path: str) -> Iterator[Path]:
    """Give a file to read for a path, standard input (-) being copied to one first, and called so in errors."""
    if path != "-":
        if not os.path.exists(path):
            from ..reading.formats import expand

            path, *others = map(str, expand(path))  # says what comes close where there is none
            if others:
                raise InputError(f"one file must be given here, got {len(others) + 1} in quotes; leave the quotes out")
        yield Path(path)
        return
    from ..reading.formats import standard_input

    with tempfile.TemporaryDirectory(prefix="unnoise-") as folder:
        copy = Path(folder) / "standard-input"
        with open(copy, "wb") as file:
            shutil.copyfileobj(standard_input(), file)
        try:
            yield copy
        except UnnoiseError as error:
            raise type(error)(str(error).replace(str(copy), "standard input")) from None


def load_sketches(path: Path) -> tuple[dict[str, Sketch], str]:
    """Return the sketches in a file ("" as their only name) or in a set of groups, and their guarantee."""
    from ..reading.groups import GroupedSketch, is_group_set
    from ..sketches.sketch import Sketch

    if is_group_set(path):
        grouped = GroupedSketch.load(path)
        return grouped.sketches, grouped.guarantee
    if path.is_dir():
        raise InputError(f"{path} is a folder without groups.json; give a sketch file or a set written by --groups")
    sketch = Sketch.load(path)
    return {"": sketch}, sketch.guarantee


def check_stream(*, grouped: bool) -> None:
    """Refuse standard output for a folder, and a terminal for bytes."""
    if grouped:
        raise InputError("a set of groups is a folder and cannot go to standard output; give -o a name")
    if sys.stdout.isatty():
        raise InputError("a sketch is binary: send standard output to a file or a pipe")


def save_sketch(target: Sketch | GroupedSketch, path: str, *, new: bool) -> None:
    """Save a sketch to a file, ``new`` or over an old one, or to standard output, a set of groups to a folder."""
    from ..reading.groups import GroupedSketch
    from ._output import saying

    if path != "-":
        with saying(f"writing {path}"):
            target.save(path, new=new)
        return
    check_stream(grouped=isinstance(target, GroupedSketch))
    with tempfile.TemporaryDirectory(prefix="unnoise-") as folder:
        copy = Path(folder) / "sketch"
        target.save(copy)
        with open(copy, "rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)


@contextmanager
def _answers_imported() -> Iterator[None]:
    """Import in a thread what reconstruction needs, half a second of SciPy, while data are read."""

    def work() -> None:
        for name in ("reconstruct", "items", "render"):
            import_module(f"unnoise.answers.{name}")

    thread = Thread(target=work, daemon=True)
    with _interrupts_between_imports():
        thread.start()
        yield
        thread.join()


@contextmanager
def _interrupts_between_imports() -> Iterator[None]:
    """Put off Ctrl-C while Python's import lock is taken: raised there, both may be lost, and the process hangs."""

    def put_off(*_: Any) -> None:
        if not _imp.lock_held():
            raise KeyboardInterrupt
        again = Timer(0.01, os.kill, (os.getpid(), signal.SIGINT))
        again.daemon = True
        again.start()

    if current_thread() is not main_thread() or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, put_off)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def reconstruct_all(
    sketches: Mapping[str, Sketch], *, method: str = "auto", max_count: int | None = None
) -> dict[str, Profile]:
    """Release and reconstruct every sketch; several groups also added up, where nothing else has to be released."""
    from ..answers.reconstruct import reconstruct
    from ..curve import ALL_GROUPS
    from ._output import note, saying

    profiles: dict[str, Profile] = {}
    with saying("reconstructing", "groups") as step:
        released = {name: sketch.release() for name, sketch in sketches.items()}
        steps = len(released) + (len(released) > 1)
        if steps > 1 and ALL_GROUPS not in released:
            try:
                profiles[ALL_GROUPS] = reconstruct(reduce(add, released.values()), method=method)
            except (ConvergenceError, OverloadError, InputError) as error:
                note(f"unnoise: no row for {ALL_GROUPS}: {error}", always=True)
            step(1, steps)
        for index, (name, noisy) in enumerate(released.items(), 2):
            profiles[name] = reconstruct(noisy, method=method, max_count=max_count)
            if steps > 1:
                step(index, steps)
    return profiles


def _held_rows(batches: Iterable[Rows], *, persons_are_items: bool = False) -> Iterator[pl.DataFrame]:
    """Yield the tables of :mod:`unnoise.holding`; a person who is the item needs no column of its own."""
    import polars as pl

    for rows in batches:
        if rows.types is None:  # a column that is stated to hold nothing, of whatever type
            continue
        table = {str(i): column for i, column in enumerate(rows.columns)}
        table |= {} if rows.counts is None else {"times": rows.counts}
        table |= {} if rows.person is None or persons_are_items else {"person": rows.person[0]}
        yield pl.DataFrame(table | ({} if rows.group is None else {"group": rows.group[0]}))


def direct_profiles(request: Profiling) -> tuple[dict[str, DirectProfile], str]:
    """Count what was asked for, exactly and in memory, and return the profiles with their guarantee."""
    from ..holding import count_exactly, listed, share_of_all, unit_of
    from ..reading.groups import check_names
    from ._output import note, saying, with_progress

    charge = open_charge(request, "direct", request.charged, request.unit)
    groups = None if request.groups is None else check_names(as_names(request.groups))
    whole = share_of_all(request.all_groups, groups)
    unit = unit_of(True if request.persons_are_items else request.person, request.max_contributions)
    source, wanted = _source(request)
    with saying("counting"), _answers_imported():
        pairs = source.pairs()
        if pairs is not None:
            exact = {"": listed(pairs)}
        else:
            rows = _held_rows(with_progress(source, wanted), persons_are_items=request.persons_are_items)
            exact = count_exactly(rows, unit, groups, together=whole is not None, unknown=request.unknown)
    charge.write(request.output, force=request.force)
    from ..api import release_and_answer  # loads SciPy, which no error above has to wait for

    with saying("answering"):
        profiles = release_and_answer(exact, unit, request.spent, whole=whole, top=request.max_count)
    if groups is not None and whole is None:
        note("no row for all groups: their rows would be released a second time; --all-groups 1/2 gives it half of ε")
    return profiles, next(iter(profiles.values())).guarantee + charge.remark
