"""Find files and scan them with polars."""

from __future__ import annotations

import difflib
import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError

if TYPE_CHECKING:
    import polars as pl

__all__ = ["FORMATS", "LINE", "collect_batches", "expand", "format_of", "require_columns", "rows_in", "scan"]

FORMATS = ("csv", "tsv", "ndjson", "lines", "parquet", "arrow")
LINE = "line"
"""Name of the one column of a file of lines."""

_SUFFIXES = {
    ".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".ndjson": "ndjson", ".jsonl": "ndjson", ".txt": "lines",
    ".parquet": "parquet", ".pq": "parquet", ".arrow": "arrow", ".feather": "arrow", ".ipc": "arrow",
}  # fmt: skip


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


def scan(path: Path, format: str, header: bool, names: Sequence[str] | None) -> pl.LazyFrame:
    """Return the lazy table of one file, text columns as text."""
    import polars as pl

    if format == "parquet":
        return pl.scan_parquet(path, glob=False)
    if format == "arrow":
        return pl.scan_ipc(path, glob=False)
    if format == "ndjson":
        types = {name: pl.String for name in names} if names else None
        return pl.scan_ndjson(path, schema_overrides=types)
    if format == "lines":
        return pl.scan_lines(path, name=LINE)
    renamed = None if header else lambda found: [f"column_{i + 1}" for i in range(len(found))]
    return pl.scan_csv(
        path, separator="\t" if format == "tsv" else ",", has_header=header, infer_schema=False, glob=False,
        with_column_names=renamed,
    )  # fmt: skip


def format_of(path: Path, given: str | None) -> str:
    """The format given, or the one that the name of the file tells."""
    if given is not None:
        return given
    suffixes = [s.lower() for s in path.suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    found = _SUFFIXES.get(suffixes[-1] if suffixes else "")
    if found is None:
        raise InputError(
            f"{path}: the format is not clear from the name; add --format with one of {', '.join(FORMATS)}"
        )
    return found


def expand(name: str) -> list[Path]:
    """Return the files behind a path or glob, in order of their names."""
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


def require_columns(label: str, wanted: Sequence[str], have: Sequence[str]) -> None:
    """Refuse a missing column, naming the ones that come close."""
    for name in wanted:
        if name not in have:
            near = difflib.get_close_matches(name, have, 3, 0.5) or [
                other for other in have if other.lower().strip() == name.lower().strip()
            ]
            hint = f"did you mean {' or '.join(near)}?" if near else f"there is {', '.join(list(have)[:12])}"
            raise InputError(f"{label}: no column {name!r}; {hint}")


def rows_in(path: Path, format: str) -> int | None:
    """Return the number of rows: from metadata, else from the size and the length of the first lines."""
    try:
        if format in ("parquet", "arrow"):
            import polars as pl

            return int(scan(path, format, header=True, names=None).select(pl.len()).collect().item())
        if path.suffix.lower() == ".gz":
            return None
        with open(path, "rb") as file:
            head = file.read(1 << 20)
        return round(path.stat().st_size * head.count(b"\n") / max(len(head), 1))
    except Exception:
        return None
