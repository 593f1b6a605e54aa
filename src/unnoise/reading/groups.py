"""One sketch per group, in one pass over the data and one set of files.

The groups are declared before any data: groups taken from the data would tell that somebody is in them. Every group
has a sketch of the same make, whether or not anything falls into it.

*One occurrence* belongs to one group, so the groups are disjoint parts of the data and together keep the ε of each
(parallel composition). *One person* may be in every group, so with ``max_contributions`` the person's ε adds up over
the groups, and :attr:`GroupedSketch.guarantee` says so.

A set of files is a folder with one sketch file per group and ``groups.json``, which names them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from ..checks import check_unknown
from ..errors import FormatError, IncompatibleError, InputError
from ..guard import quiet
from ..noise import tidy
from ..noisy import NoisyCounts
from ..sketches.inputs import Rows, read_items
from ..sketches.intake import take_in
from ..sketches.sketch import Sketch

__all__ = ["MANIFEST", "GroupedSketch", "is_group_set"]

MANIFEST = "groups.json"
VERSION = 1
MOST = 10_000
"""Most groups in a set."""


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

    def __init__(self, groups: Sequence[str], make: Callable[[], Sketch], *, unknown: str = "error") -> None:
        names = _checked_names(groups)
        self._sketches = {name: make() for name in names}
        self._unknown = check_unknown(unknown)
        self._require_alike()

    @classmethod
    def _of(cls, sketches: Mapping[str, Sketch]) -> GroupedSketch:
        both = cls.__new__(cls)
        both._sketches, both._unknown = dict(sketches), "error"
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
        return f"GroupedSketch({', '.join(self.groups)}: {next(iter(self._sketches.values()))!r} each)"

    # ── taking items in ───────────────────────────────────────────────────────────────────────────────────────

    @quiet
    def update(self, items: Any, group: Any, counts: Any = None, *, person: Any = None) -> None:
        """Count items in their groups: one ingestion call.

        ``group`` is the name of a column when items are a table, else one name per item.
        """
        self.take_in(read_items(items, counts, person, group), persons=person is not None)

    def take_in(self, batches: Iterable[Rows], *, persons: bool = False) -> None:
        """Count batches of clean rows in one ingestion call; ``persons``: all of them say who is behind each row."""
        take_in(
            list(self._sketches.values()), batches, persons=persons, groups=self.groups, drop=self._unknown == "drop"
        )

    # ── leaving and coming back ───────────────────────────────────────────────────────────────────────────────

    def release(self) -> dict[str, NoisyCounts]:
        """Return the noisy counts of every group and seal them all."""
        return {name: sketch.release() for name, sketch in self._sketches.items()}

    def merge(self, other: GroupedSketch) -> None:
        """Add another set of the same groups into this one."""
        if set(self.groups) != set(other.groups):
            raise IncompatibleError("groups", ", ".join(self.groups), ", ".join(other.groups))
        for name, sketch in self._sketches.items():
            sketch._require_mergeable(other._sketches[name])
        for name, sketch in self._sketches.items():
            sketch.merge(other._sketches[name])

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the set into a folder: written aside and moved into place, so it is there whole or not at all."""
        target = Path(folder)
        if target.exists() and not is_group_set(target):
            raise InputError(f"{target} must be a new folder or a set of groups to replace, got something else")
        aside = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        try:
            files = {name: f"{i:04d}-{_slug(name)}.sketch" for i, name in enumerate(self._sketches)}
            for name, sketch in self._sketches.items():
                sketch.save(aside / files[name])
            manifest = {"unnoise": "groups", "version": VERSION, "groups": list(files), "files": list(files.values())}
            (aside / MANIFEST).write_text(json.dumps(manifest, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
            os.chmod(aside, 0o755)
            if target.exists():
                shutil.rmtree(target)
            os.rename(aside, target)
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> GroupedSketch:
        """Return the sealed sketches of a set of files."""
        path = Path(folder)
        groups, files = _read_manifest(path / MANIFEST)
        return cls._of({name: Sketch.load(path / file) for name, file in zip(groups, files)})


def is_group_set(path: str | os.PathLike[str]) -> bool:
    """Tell whether a path is a folder written by :meth:`GroupedSketch.save`."""
    return (Path(path) / MANIFEST).is_file()


def _checked_names(groups: Sequence[str]) -> list[str]:
    if isinstance(groups, str):
        raise InputError(f"groups must be a list of names, got the text {groups!r}")
    names = [str(name) for name in groups]
    if not 1 <= len(names) <= MOST:
        raise InputError(f"groups must be between 1 and {MOST:,} names, got {len(names)}")
    if "" in names or len(set(names)) != len(names):
        raise InputError(f"groups must be distinct and not empty, got {', '.join(names)}")
    return names


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:40] or "group"


def _read_manifest(path: Path) -> tuple[list[str], list[str]]:
    """Return names and files, every type checked and every file inside the folder."""
    try:
        if path.stat().st_size > 1 << 24:
            raise ValueError("too large")
        values = json.loads(path.read_text(encoding="utf-8"))
        groups, files = values["groups"], values["files"]
        if values["unnoise"] != "groups" or not isinstance(values["version"], int):
            raise ValueError("another kind of file")
        if values["version"] > VERSION:
            raise ValueError(f"its version is {values['version']}, this unnoise reads up to {VERSION}: upgrade unnoise")
        if not isinstance(groups, list) or not isinstance(files, list) or len(groups) != len(files):
            raise ValueError("groups and files must be lists of one length")
        if not all(isinstance(f, str) and re.fullmatch(r"[A-Za-z0-9-]+\.sketch", f) for f in files):
            raise ValueError("files must be plain names in the same folder")
        return _checked_names(groups), files
    except FileNotFoundError:
        raise FormatError(f"{path.parent} is not a set of groups: no {MANIFEST} in it") from None
    except (ValueError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise FormatError(f"{path} is not a valid list of groups: {error}") from None
