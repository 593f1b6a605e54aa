"""Find files, run queries over them in batches, and say what comes close to a name that is not there."""

from __future__ import annotations

import difflib
import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError
from .formats import FORMATS, Dialect, Location, compression_of, is_remote

if TYPE_CHECKING:
    import polars as pl

__all__ = ["collect_batches", "expand", "require_columns", "require_once", "rows_in"]


def collect_batches(lazy: pl.LazyFrame, chunk: int, *, whole_rows: bool) -> Iterator[pl.DataFrame]:
    """Run a query and stream its result; the only caller of polars functions that are marked unstable.

    With ``whole_rows`` the reader looks at every column: told to skip some, it no longer sees that a row has a
    field too many, and an unquoted comma would shift the values in silence.
    """
    import warnings

    import polars as pl

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*unstable.*")
        options = pl.QueryOptFlags(projection_pushdown=not whole_rows)
        found = lazy.collect_batches(chunk_size=chunk, maintain_order=True, optimizations=options)
    yield from found


def expand(name: str) -> list[Location]:
    """Return the files behind a path or glob, in order of their names; an address stands for itself."""
    if is_remote(name):
        return [name]
    if os.path.isfile(name):
        return [Path(name)]
    if os.path.isdir(name):
        raise InputError(f"{name} is a folder; give the files in it, for example '{name.rstrip('/')}/*.parquet'")
    if any(sign in name for sign in "*?["):
        found = sorted(path for path in glob.glob(name, recursive=True) if os.path.isfile(path))
        if not found:
            raise InputError(f"{name}: no file matches")
        return [Path(path) for path in found]
    folder = os.path.dirname(name) or "."
    near = difflib.get_close_matches(os.path.basename(name), os.listdir(folder), 1) if os.path.isdir(folder) else []
    hint = f"; did you mean {os.path.join(os.path.dirname(name), near[0])}?" if near else ""
    raise InputError(f"{name}: no such file{hint}")


def require_once(places: Sequence[Location]) -> None:
    """Refuse a file that stands behind two names: counted twice, an occurrence would have twice its ε."""
    seen: dict[tuple[int, int], Path] = {}
    for place in places:
        if isinstance(place, Path):
            found = os.stat(place)
            first = seen.setdefault((found.st_dev, found.st_ino), place)
            if first is not place:
                raise InputError(f"{first} and {place} are the same file; twice=True counts it twice")


def require_columns(label: str, wanted: Sequence[str], have: Sequence[str]) -> None:
    """Refuse a missing column, naming the ones that come close."""
    for name in wanted:
        if name not in have:
            near = difflib.get_close_matches(name, have, 3, 0.5) or [
                other for other in have if other.lower().strip() == name.lower().strip()
            ]
            hint = f"did you mean {' or '.join(near)}?" if near else f"there is {', '.join(list(have)[:12])}"
            raise InputError(f"{label}: no column {name!r}; {_other_delimiter(have) or hint}")


def _other_delimiter(have: Sequence[str]) -> str:
    """Say so where a header that was read as one column seems to be several.

    >>> _other_delimiter(["url;user"]), _other_delimiter(["url", "user"])
    ("there is one column, 'url;user': is another delimiter needed?", '')
    """
    several = len(have) == 1 and any(sign in have[0] for sign in ";\t|, ")
    return f"there is one column, {have[0]!r}: is another delimiter needed?" if several else ""


def rows_in(where: Location, format: str) -> int | None:
    """Return the number of rows: from metadata, else from the size and the length of the first lines."""
    if isinstance(where, str) or compression_of(where) is not None:
        return None
    try:
        if format in ("parquet", "arrow"):
            import polars as pl

            scan = FORMATS[format].scan
            assert scan is not None
            return int(scan(where, Dialect(), None).select(pl.len()).collect().item())
        if format not in ("csv", "tsv", "ndjson", "lines", "uniq"):
            return None
        with open(where, "rb") as file:
            head = file.read(1 << 20)
        return round(where.stat().st_size * head.count(b"\n") / max(len(head), 1))
    except Exception:
        return None
