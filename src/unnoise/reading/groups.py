"""One sketch per group, in one pass over the data and one set of files.

The groups are declared before any data: groups taken from the data would tell that somebody is in them. Every group
has a sketch of the same make, whether or not anything falls into it.

*One occurrence* belongs to one group, so the groups are disjoint parts of the data and together keep the ε of each
(parallel composition). *One person* may be in every group, so with ``max_contributions`` the person's ε adds up over
the groups, and :attr:`GroupedSketch.guarantee` says so.

A set on the disk is a folder with one sketch file per group, and ``groups.json``, which names them.

**Whole or not at all.** A new set is written aside and renamed. A set that is there already is replaced by one rename
as well: the new sketches go beside the old ones under names of the next generation, then the new list of groups
replaces the old one, then the old sketches are removed. Whatever ends this early leaves the old set or the new one.
Readers and writers of one folder take turns (a lock on the folder).

**Names belong to files.** The list carries a digest over the names, the files and the digests of these files, so that
a file moved to another group, or left over from another set, is noticed::

    SHA-256( "unnoise groups 2\\n" ‖ JSON of [[name, file, digest of the file], …], no spaces, UTF-8 )

Version 1 had no digest and no generation, and is still read.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

from ..checks import UNKNOWN, check_choice
from ..curve import ALL_GROUPS
from ..errors import FormatError, IncompatibleError, InputError
from ..guard import exists_by_now, quiet, sync_folder, write_whole
from ..noise import tidy
from ..noisy import NoisyCounts
from ..sketches.format import stored_digest
from ..sketches.inputs import Rows, person_is_item, read_items
from ..sketches.intake import Intake
from ..sketches.sketch import Sketch
from ..text import inert

__all__ = ["MANIFEST", "MOST", "GroupedSketch", "check_names", "is_group_set", "load_set", "refuse_sum", "save_set"]

G = TypeVar("G", bound=Sequence[Any])

MANIFEST = "groups.json"
VERSION = 2
MOST = 10_000
"""Most groups in a set."""

LONGEST = 1 << 24
"""Bytes of a list of groups accepted."""

TAKEN = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR)
"""What systems call it when a folder is to take a name that something has."""

_FILE = re.compile(r"[0-9]{4,5}-[A-Za-z0-9-]{1,40}(\.[0-9]{1,9})?\.sketch|[A-Za-z0-9-]{1,60}\.sketch")


def is_group_set(path: str | os.PathLike[str]) -> bool:
    """Tell whether a path is a folder that holds a set of groups."""
    return (Path(path) / MANIFEST).is_file()


def check_names(groups: Sequence[str]) -> list[str]:
    """Return the names of groups: distinct, not empty, not too many, and none that of all of them together."""
    if isinstance(groups, str):
        raise InputError(f"groups must be a list of names, got the text {groups!r}")
    names = [str(name) for name in groups]
    if not 1 <= len(names) <= MOST:
        raise InputError(f"groups must be between 1 and {MOST:,} names, got {len(names)}")
    if "" in names or len(set(names)) != len(names):
        raise InputError(f"groups must be distinct and not empty, got {inert(', '.join(names))}")
    return refuse_sum(names)


def refuse_sum(groups: G) -> G:
    """Return groups, none of which has the name that all of them together go by."""
    if ALL_GROUPS in groups:
        raise InputError(f"groups must not hold {ALL_GROUPS!r}, which names all of them together: give it another name")
    return groups


def save_set(folder: str | os.PathLike[str], sketches: Mapping[str, Sketch], *, new: bool = False) -> None:
    """Write or replace a set; ``new``: refuse whatever is there."""
    target = Path(folder)
    if new and os.path.lexists(target):
        raise exists_by_now(target)
    if target.exists() and not is_group_set(target):
        raise InputError(f"{target} must be a new folder or a set of groups to replace, got something else")
    if target.exists():
        with _turn(target, shared=False):
            try:
                _write(target, sketches, int(_read_manifest(target / MANIFEST).get("generation", 0)) + 1)
            finally:
                _sweep(target)
        return
    aside = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.absolute().parent))
    try:
        _write(aside, sketches, 0)
        os.chmod(aside, 0o755)
        try:
            os.rename(aside, target)  # over no folder that holds something
        except OSError as error:
            raise (exists_by_now(target) if error.errno in TAKEN else error) from None
        sync_folder(target.absolute().parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def load_set(folder: str | os.PathLike[str]) -> dict[str, Sketch]:
    """Return the sealed sketches of a set, every file verified to be the one of its group."""
    path = Path(folder)
    if not is_group_set(path):
        raise FormatError(f"{path} is not a set of groups: no {MANIFEST} in it")
    with _turn(path, shared=True):
        values = _read_manifest(path / MANIFEST)
        groups, files = values["groups"], values["files"]
        if values["version"] > 1 and _digest(path, groups, files) != values.get("digest"):
            raise FormatError(f"{path / MANIFEST} is not the list of these files: its digest does not match")
        return {name: Sketch.load(path / file) for name, file in zip(groups, files)}


def _write(folder: Path, sketches: Mapping[str, Sketch], generation: int) -> None:
    """Put sketches of a generation into a folder, and then, by one rename, the list that makes them the set."""
    suffix = f".{generation}" if generation else ""
    files = [f"{i:04d}-{_slug(name)}{suffix}.sketch" for i, name in enumerate(sketches)]
    for sketch, file in zip(sketches.values(), files):
        sketch.save(folder / file)
    groups = list(sketches)
    values = {
        "unnoise": "groups", "version": VERSION, "generation": generation, "groups": groups, "files": files,
        "digest": _digest(folder, groups, files),
    }  # fmt: skip
    write_whole(folder / MANIFEST, json.dumps(values, ensure_ascii=False, indent=1) + "\n")


def _sweep(folder: Path) -> None:
    """Remove the sketches that are not in the list any more, and what killed writers left behind."""
    kept = {MANIFEST, *_read_manifest(folder / MANIFEST)["files"]}
    for path in folder.iterdir():
        left_over = re.fullmatch(r"\..*\.tmp", path.name) or _FILE.fullmatch(path.name)
        if path.name not in kept and left_over and path.is_file():
            path.unlink(missing_ok=True)


def _digest(folder: Path, groups: list[str], files: list[str]) -> str:
    rows = [[name, file, stored_digest(folder / file)] for name, file in zip(groups, files)]
    text = json.dumps(rows, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(b"unnoise groups 2\n" + text.encode()).hexdigest()


@contextmanager
def _turn(folder: Path, *, shared: bool) -> Iterator[None]:
    """Hold the folder's lock where the system has such; it ends with the process."""
    try:
        import fcntl
    except ImportError:  # pragma: no cover
        yield
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:40] or "group"


def _read_manifest(path: Path) -> dict[str, Any]:
    """Return the list of groups, every type checked and every file inside the folder."""
    try:
        if not path.is_file() or path.stat().st_size > LONGEST:
            raise ValueError("too large, or no file")
        values = json.loads(path.read_text(encoding="utf-8"))
        groups, files = values["groups"], values["files"]
        version, generation = values["version"], values.get("generation", 0)
        if values["unnoise"] != "groups" or type(version) is not int or version < 1:
            raise ValueError("another kind of file")
        if version > VERSION:
            raise ValueError(f"its version is {version}, this unnoise reads up to {VERSION}: upgrade unnoise")
        if type(generation) is not int or not 0 <= generation < 10**9:
            raise ValueError("its generation must be a whole number")
        if not isinstance(groups, list) or not isinstance(files, list) or len(groups) != len(files):
            raise ValueError("groups and files must be lists of one length")
        if not all(isinstance(f, str) and _FILE.fullmatch(f) for f in files) or len(set(files)) != len(files):
            raise ValueError("files must be different plain names in the same folder")
        if not all(isinstance(group, str) for group in groups):
            raise ValueError("groups must be texts")
        "".join(groups).encode()  # lone surrogates come in as escapes and cannot go out again
        check_names(groups)
        return {**values, "generation": generation}
    except (ValueError, KeyError, TypeError, RecursionError, UnicodeDecodeError) as error:
        raise FormatError(f"{path} is not a valid list of groups: {error}") from None


class GroupedSketch:
    """Sketches of declared groups.

    Parameters
    ----------
    groups : sequence of str
        The names, declared before any data.
    make : callable
        Returns a new sketch; called once per group.
    unknown : "error" or "drop"
        What to do with rows of a group that was not declared.

    Examples
    --------
    >>> g = GroupedSketch(["EWR", "JFK"], lambda: Sketch.hashed(2**10, epsilon=1, item_types=["str"]))
    >>> g.update({"plane": ["N1", "N2", "N1"], "origin": ["EWR", "JFK", "JFK"]}, group="origin")
    >>> list(g.release())
    ['EWR', 'JFK']
    """

    def __init__(self, groups: Sequence[str], make: Callable[[], Sketch], *, unknown: str = "drop") -> None:
        names = check_names(groups)
        self._sketches = {name: make() for name in names}
        check_choice("unknown", unknown, UNKNOWN)
        self._unknown = unknown
        self._require_alike()

    @classmethod
    def _of(cls, sketches: Mapping[str, Sketch]) -> GroupedSketch:
        both = cls.__new__(cls)
        both._sketches, both._unknown = dict(sketches), "drop"
        both._require_alike()
        return both

    def _require_alike(self) -> None:
        first, *others = self._sketches.values()
        for other in others:
            first.layout.require_equal(other.layout)
            if first.noise != other.noise:
                raise IncompatibleError("noise", first.noise, other.noise)

    @property
    def groups(self) -> tuple[str, ...]:
        """The declared names, in their order."""
        return tuple(self._sketches)

    @property
    def sketches(self) -> dict[str, Sketch]:
        """The sketch of each group."""
        return dict(self._sketches)

    @property
    def person_epsilon(self) -> Fraction | None:
        """ε of a person who is in every group and every ingestion call; None without ``max_contributions``."""
        spent = [sketch.person_epsilon for sketch in self._sketches.values()]
        return None if None in spent else sum((s for s in spent if s is not None), Fraction(0))

    @property
    def guarantee(self) -> str:
        """What is promised about the whole set, in plain words."""
        first, number = next(iter(self._sketches.values())), len(self._sketches)
        total = self.person_epsilon
        if total is None:
            return (
                f"{number} groups declared before any data. Each: {first.guarantee} "
                f"One occurrence belongs to one group only, so all {number} together keep the same ε."
            )
        return (
            f"{number} groups declared before any data. Each: {first.guarantee} One person may be in several groups, "
            f"so ε adds up over them: all {number} together give ε = {tidy(total)} for one person."
        )

    def __repr__(self) -> str:
        return f"GroupedSketch({inert(', '.join(self.groups))}: {next(iter(self._sketches.values()))!r} each)"

    # ── taking items in ───────────────────────────────────────────────────────────────────────────────────────

    @quiet
    def update(self, items: Any, group: Any, counts: Any = None, *, person: Any = None) -> None:
        """Count items in their groups: one ingestion call.

        ``group`` is the name of a column when items are a table, else one name per item.
        """
        as_items = person is not None and person_is_item(items, person)
        self.take_in(read_items(items, counts, person, group), persons=person is not None, as_items=as_items)

    @quiet
    def take_in(self, batches: Iterable[Rows], *, persons: bool = False, as_items: bool = False) -> None:
        """Count batches of clean rows in one ingestion call; ``persons``: all of them say who is behind each row."""
        sketches, drop = list(self._sketches.values()), self._unknown == "drop"
        Intake(sketches, persons=persons, as_items=as_items, groups=self.groups, drop=drop).take_in(batches)

    # ── leaving and coming back ───────────────────────────────────────────────────────────────────────────────

    def release(self) -> dict[str, NoisyCounts]:
        """Return the noisy counts of every group and seal them all."""
        return {name: sketch.release() for name, sketch in self._sketches.items()}

    def merge(self, other: GroupedSketch) -> None:
        """Add another set of the same groups into this one."""
        if set(self.groups) != set(other.groups):
            raise IncompatibleError("groups", ", ".join(self.groups), ", ".join(other.groups))
        for name, sketch in self._sketches.items():
            sketch.require_mergeable(other._sketches[name])
        for name, sketch in self._sketches.items():
            sketch.merge(other._sketches[name])

    def save(self, folder: str | os.PathLike[str], *, new: bool = False) -> None:
        """Write the set into a folder, which has the old set or the new one, whole, whatever happens.

        With ``new`` an old set is left alone, and FileExistsError raised.
        """
        save_set(folder, self._sketches, new=new)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> GroupedSketch:
        """Return the sealed sketches of a set of files."""
        return cls._of(load_set(folder))
