"""What has been spent: the ledger of releases, written down before they leave, and ε over several sketches.

A ledger says what was released from which data, at which ε. ε adds up over releases from the same rows (basic
composition: ε₁ and ε₂ together are ε₁ + ε₂), and nobody remembers last month's. A ledger is a text file with one JSON
object a line, only ever appended to, under a lock, and on the disk before anything leaves. It is **advisory**: it adds
up what was recorded under a name for the data. It cannot know of copies of the data, of other names for them, or of
releases made without it, and whoever can write the file can forge it.

Lines are chained, so that one taken out or changed is noticed::

    chain₀ = SHA-256("unnoise ledger 1\\n"),  chain_i = SHA-256(chain_{i−1} ‖ line i as JSON without its chain)

in hexadecimal, keys sorted, no spaces, UTF-8. A line cut short at the end is one whose release never left, and goes.
A path within the ledger's folder is told from there, so that limits and sums stay when the folder is moved or renamed.
Sums are kept apart by unit: ε for one occurrence and ε for one person are different promises. A limit for occurrences
also binds releases for rows of a query's result.

Several sketches together reveal the ε added up over the noises in them (:func:`total_budget`). Every sketch is a sum of
noise vectors with the data counted under them, and carries the identities of those noises. All files together are
functions of the noisy vectors behind them, so an occurrence that was counted under one of them has that ε, whatever was
merged from it; counted anew under each of n noises (the same rows read again, say), it has n times that. A person adds
up over ingestion calls; a file whose noises are all in another of the files adds nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .checks import check_choice
from .errors import FormatError, InputError, PrivacyError
from .guard import sync_folder
from .noise import Exact, exact_positive, tidy

if TYPE_CHECKING:
    from .sketches.sketch import Sketch

__all__ = ["FILE", "Budget", "Entry", "Ledger", "is_ledger", "read_ledger", "sums", "total_budget"]

FILE = "unnoise.ledger"
"""Name of the ledger beside the data."""

LONGEST = 1 << 26
"""Bytes of a ledger accepted: hundreds of thousands of releases."""

RELEASES = ("profile", "sketch", "release", "direct", "spark", "shares")
UNITS = ("occurrence", "person")
"""Whom ε protects where nobody gives it another name."""

QUERIED = "row of the query's result"
"""The unit where a query gives the rows: it may join or copy a row of the data, which then counts as often."""

COUNTED = {QUERIED: "occurrence"}
"""Units that spend from the limit of another one."""

BEGIN = b'{"at": "'
"""How every line begins."""

START = hashlib.sha256(b"unnoise ledger 1\n").hexdigest()


@dataclass(frozen=True)
class Entry:
    """One line: a release, or (what = "limit") the most that may be released from now on.

    at : when, in UTC; data : names of the data sets, each of which it counts for
    epsilon, unit : what it cost, and whom: "occurrence", "person", …
    """

    at: str
    what: str
    data: tuple[str, ...]
    epsilon: Fraction
    unit: str

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain Python."""
        return {
            "at": self.at, "what": self.what, "data": list(self.data), "epsilon": str(self.epsilon), "unit": self.unit,
        }  # fmt: skip


@dataclass(frozen=True)
class Ledger:
    """A ledger and the data that are to be charged in it.

    path : the file, made with its first line
    data : the name of the data set, or several
    limit : most ε per unit that this ledger may reach for the data, besides the limits written in it

    Examples
    --------
    >>> import tempfile
    >>> ledger = Ledger(tempfile.mkdtemp() + "/visits.ledger", "visits", limit=2)
    >>> ledger.write("direct", epsilon=1.5, unit="person")
    >>> ledger.spent("visits", "person")
    Fraction(3, 2)
    >>> ledger.check(epsilon=1, unit="person")
    Traceback (most recent call last):
    ...
    unnoise.errors.PrivacyError: ε for one person of visits must stay within 2, got 1.5 spent and 1 more
    """

    path: str | os.PathLike[str]
    data: str | Sequence[str]
    limit: Exact | None = None
    names: tuple[str, ...] = field(init=False, repr=False)
    """The names of the data."""
    _most: Fraction | None = field(init=False, repr=False)
    """The limit as the exact number it is."""

    def __post_init__(self) -> None:
        names = (self.data,) if isinstance(self.data, str) else tuple(self.data)
        if not names or not all(isinstance(name, str) and name.strip() for name in names):
            raise InputError(f"data must be named, got {', '.join(map(repr, names)) or 'none'}")
        folder = os.path.dirname(os.path.realpath(self.path))
        object.__setattr__(self, "names", tuple(told_from(folder, name) for name in names))
        object.__setattr__(self, "_most", None if self.limit is None else exact_positive("limit", self.limit))

    def check(self, epsilon: Exact, unit: str) -> bool:
        """Refuse a release that would pass the limit: before anything is read. Return whether there is a limit."""
        entries = read_ledger(self.path) if os.path.exists(self.path) else []
        return self._require(entries, exact_positive("epsilon", epsilon), unit)

    def write(self, what: str, epsilon: Exact, unit: str) -> None:
        """Record a release, or refuse it: before anything leaves."""
        check_choice("what", what, RELEASES)
        exact = exact_positive("epsilon", epsilon)
        with _opened(self.path, CHANGED) as (handle, entries, chain):
            self._require(entries, exact, unit)
            _append(handle, chain, what, self.names, exact, unit)

    def set_limit(self, epsilon: Exact, unit: str) -> None:
        """Write down the most that may be spent on the data from now on; the last limit counts.

        A unit of another name is one that was recorded here: a limit for a word that is mistyped would limit nothing.
        """
        exact = exact_positive("limit", epsilon)
        entries = read_ledger(self.path) if os.path.exists(self.path) else []
        recorded = (entry.unit for entry in entries if entry.what != "limit")
        check_choice("unit", unit, dict.fromkeys([*UNITS, *recorded]))
        with _opened(self.path, CHANGED) as (handle, _, chain):
            _append(handle, chain, "limit", self.names, exact, unit)

    def release(self, sketch: Any) -> Any:
        """Record what a sketch is about to release, and release it; one that has left already costs nothing again."""
        if not sketch.sealed:
            spent = sketch.person_epsilon or sketch.epsilon
            self.write("release", spent, sketch.labels.unit)
        return sketch.release()

    def spent(self, name: str, unit: str) -> Fraction:
        """Return what was recorded for a data set and unit."""
        entries = read_ledger(self.path) if os.path.exists(self.path) else []
        (told,) = Ledger(self.path, name).names
        return sums(entries).get((told, unit), Fraction(0))

    def _require(self, entries: Sequence[Entry], epsilon: Fraction, unit: str) -> bool:
        """Refuse what would pass a limit, this ledger's or the last one written for a data set and unit.

        Return whether any was there to pass. A name given twice is charged twice, here as in :func:`sums`.
        """
        kind = COUNTED.get(unit, unit)
        last = [entry for entry in entries if entry.what == "limit" and COUNTED.get(entry.unit, entry.unit) == kind]
        limits = {name: entry.epsilon for entry in last for name in entry.data if name in self.names}
        bound = bool(limits) or self._most is not None
        before = sums(entries) if bound else {}
        for name in self.names:
            units = [kind, *(one for one, whose in COUNTED.items() if whose == kind)]
            spent = sum((before.get((name, one), Fraction(0)) for one in units), Fraction(0))
            more = epsilon * self.names.count(name)
            for limit in (one for one in (limits.get(name), self._most) if one is not None):
                if spent + more > limit:
                    raise PrivacyError(
                        f"ε for one {unit} of {name} must stay within {tidy(limit)}, got {tidy(spent)} spent and "
                        f"{tidy(more)} more"
                    )
        return bound


def told_from(folder: str, name: str) -> str:
    """Name a file in this folder, or below it, by its way from there; all other names stay as they are.

    >>> [told_from("/data", name) for name in ("/data/2026/visits.csv", "/else/visits.csv", "visits")]
    ['2026/visits.csv', '/else/visits.csv', 'visits']
    """
    within = os.path.isabs(name) and os.path.commonpath([folder, name]) == folder
    return os.path.relpath(name, folder) if within else name


def sums(entries: Iterable[Entry]) -> dict[tuple[str, str], Fraction]:
    """Return the ε recorded so far, for each data set and unit."""
    total: dict[tuple[str, str], Fraction] = {}
    for entry in entries:
        for name in entry.data if entry.what != "limit" else ():
            total[name, entry.unit] = total.get((name, entry.unit), Fraction(0)) + entry.epsilon
    return total


def is_ledger(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a ledger, by the end of its name or its first line."""
    if Path(path).suffix == ".ledger":
        return True
    with open(path, "rb") as file:
        return file.read(len(BEGIN)) == BEGIN


def read_ledger(path: str | os.PathLike[str]) -> list[Entry]:
    """Return all entries, the chain verified."""
    with _opened(path, os.O_RDONLY) as (_, entries, _):
        return entries


CHANGED = os.O_RDWR | os.O_CREAT | os.O_APPEND


@contextmanager
def _opened(path: str | os.PathLike[str], flags: int) -> Iterator[tuple[int, list[Entry], str]]:
    """Open a regular file that is no link, and yield it with its entries and the last link of their chain.

    A ledger is never somewhere else than it seems. For one more line (``CHANGED``) everybody else is kept out. One that
    is closed to us is refused: what it forbids is not known.
    """
    import fcntl

    name, new = os.fspath(path), not os.path.exists(path)
    try:
        handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    except PermissionError as error:
        if flags == CHANGED:
            raise
        raise PrivacyError(
            f"{name} must be readable, as it may hold a limit, got: {error.strerror}; change who may read it, or keep "
            f"a ledger of your own (--ledger FILE)"
        ) from None
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise InputError(f"a ledger must be a file, got {name}")
        if flags == CHANGED:
            fcntl.flock(handle, fcntl.LOCK_EX)
        size = os.fstat(handle).st_size
        if size > LONGEST:
            raise FormatError(f"{name} must be at most {LONGEST >> 20} MB, got {size:,} bytes: begin a new one")
        *lines, rest = os.pread(handle, size, 0).split(b"\n")
        if not BEGIN.startswith(rest[: len(BEGIN)]):  # a line cut short goes with the next one that is written
            raise FormatError(f"{name} must be a ledger, got a file that ends in something else")
        entries, chain, folder = [], START, os.path.dirname(os.path.realpath(path))
        for number, line in enumerate(lines, 1):
            try:
                entry, found = _parse(line)
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise FormatError(f"line {number} of the ledger {name} is malformed: {error}") from None
            chain = _link(chain, entry)
            if chain != found:
                raise FormatError(f"line {number} of the ledger {name} does not follow from those before it")
            entries.append(replace(entry, data=tuple(told_from(folder, name) for name in entry.data)))
        yield handle, entries, chain
        if new:
            sync_folder(Path(path).absolute().parent)
    finally:
        os.close(handle)


def _parse(line: bytes) -> tuple[Entry, str]:
    values = json.loads(line)
    data = values["data"]
    texts = (values["at"], values["what"], values["unit"], values["epsilon"], values["chain"])
    if not isinstance(data, list) or not all(isinstance(text, str) for text in (*data, *texts)):
        raise ValueError("its values must be texts")
    epsilon = exact_positive("epsilon", values["epsilon"])
    return Entry(values["at"], values["what"], tuple(data), epsilon, values["unit"]), values["chain"]


def _append(handle: int, chain: str, what: str, data: tuple[str, ...], epsilon: Fraction, unit: str) -> None:
    """Add a line of now, in the place of one that was cut short, and wait until it is on the disk."""
    entry = Entry(datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"), what, data, epsilon, unit)
    size = os.fstat(handle).st_size
    whole = os.pread(handle, size, 0).rfind(b"\n") + 1
    if whole < size:
        os.ftruncate(handle, whole)
    text = json.dumps({**entry.to_dict(), "chain": _link(chain, entry)}, sort_keys=True, ensure_ascii=False)
    rest = memoryview(text.encode() + b"\n")
    try:
        while rest:
            rest = rest[os.write(handle, rest) :]
        os.fsync(handle)
    except OSError:
        os.ftruncate(handle, whole)
        raise


def _link(chain: str, entry: Entry) -> str:
    text = json.dumps(entry.to_dict(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256((chain + text).encode()).hexdigest()


# ── ε over several sketches ─────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Budget:
    """The total over some sketches.

    once : ε of an occurrence that was counted once; again : of one counted anew under every noise
    person : ε of a person in every ingestion call, None where some sketch does not limit persons
    noises : number of different noises
    """

    once: Fraction
    again: Fraction
    person: Fraction | None
    noises: int

    def __str__(self) -> str:
        text = f"ε = {tidy(self.once)} for one occurrence counted in one place"
        if self.noises > 1:
            text += f"; ε = {tidy(self.again)} for one counted anew under each of the {self.noises} noises"
        if self.person is None:
            return f"{text}. A person with k occurrences: k times that."
        return f"{text}. A person who is in every ingestion call: ε = {tidy(self.person)}."

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain Python."""
        return {
            "epsilon_per_occurrence": tidy(self.once),
            "epsilon_per_occurrence_counted_everywhere": tidy(self.again),
            "epsilon_per_person": None if self.person is None else tidy(self.person),
            "noises": self.noises,
        }


def total_budget(sketches: Mapping[str, Sketch]) -> Budget:
    """Add up what all sketches together give away."""
    held: dict[bytes, Fraction] = {}
    for sketch in sketches.values():
        for identity in sketch._identities:
            held[identity] = max(held.get(identity, Fraction(0)), sketch.noise.epsilon)
    person: Fraction | None = Fraction(0)
    for sketch in _outermost(list(sketches.values())):
        spent = sketch.person_epsilon
        person = None if person is None or spent is None else person + spent
    return Budget(max(held.values()), sum(held.values(), Fraction(0)), person, len(held))


def _outermost(sketches: list[Sketch]) -> list[Sketch]:
    """Leave out sketches whose noises are all contained in another one (equal ones: keep the first)."""
    kept = []
    for i, sketch in enumerate(sketches):
        mine = sketch._identities
        inside = any(
            mine < other._identities or (mine == other._identities and j < i)
            for j, other in enumerate(sketches)
            if j != i
        )
        if not inside:
            kept.append(sketch)
    return kept
