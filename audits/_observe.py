"""What somebody sees of a command who sees neither the data nor the noisy numbers.

An *observation* is the exit code, what was said on standard output and standard error, and every file that was
written, with its size and all metadata. Of it is left out, and nothing else:

* what is random by design: identities of noises, ids of reports, digests, and seeds; days and times;
* the released numbers themselves. Cells of sketch files are not looked at, their number and place are. Of **answers**
  (they are computed from what was released) the keys of the JSON are compared, not the values, and the names of the
  pages written, not their sizes;
* numbers on standard output and standard error of commands that answer.

Both sides run in a folder of the same name, so that no path has to be left out.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa

Row = tuple[str, str, str, str]
HEADER = ("x", "g", "who", "n")
FORMATS = (
    "csv", "tsv", "ndjson", "parquet", "arrow", "csv from standard input", "ndjson from standard input",
    "arrow from standard input", "csv without header",
)  # fmt: skip
DATA = ("a.csv", "b.csv", *(f"rows.{format.split()[0]}" for format in FORMATS))
RANDOM = ("identities", "created", "report_ids")
NOISY = re.compile(r"[-+−]?\d[\d,. ]*(?:e[-+]?\d+)?")


# ── data ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def write_rows(rows: Sequence[Row], path: Path, format: str) -> None:
    """Write the rows; an empty text is a null."""
    frame = pl.DataFrame([[v or None for v in row] for row in rows], dict.fromkeys(HEADER, pl.String), orient="row")
    typed = frame.with_columns(pl.col("n").cast(pl.Int64, strict=False))
    kind = format.split()[0]
    if kind in ("csv", "tsv"):
        sign = "," if kind == "csv" else "\t"
        frame.write_csv(path, separator=sign, include_header="without" not in format)
    elif kind == "ndjson":
        frame.write_ndjson(path)
    elif kind == "parquet":
        typed.write_parquet(path)
    elif "input" in format:
        table = typed.to_arrow()
        with pa.ipc.new_stream(path, table.schema) as stream:
            for batch in table.to_batches() if rows else []:
                stream.write_batch(batch)
    else:
        typed.write_ipc(path)


# ── running ───────────────────────────────────────────────────────────────────────────────────────────────────────


@contextlib.contextmanager
def same_bits(seed: int) -> Iterator[None]:
    """Let everything random be a function of the seed: two neighbours then differ by their data alone."""
    number, real = count(), os.urandom

    def drawn(size: int) -> bytes:
        return hashlib.shake_256(f"{seed}/{next(number)}".encode()).digest(size)

    os.urandom = drawn
    try:
        yield
    finally:
        os.urandom = real


def run_here(words: Sequence[str], given: bytes = b"") -> tuple[int, str, str]:
    """Run a command in this process; return exit code, standard output and standard error."""
    from unnoise.cli import main

    out, err = _Captured(), io.StringIO()
    before = sys.argv, sys.stdin, sys.stdout, sys.stderr
    sys.argv, sys.stdin = ["unnoise", *words], io.TextIOWrapper(io.BytesIO(given))
    sys.stdout, sys.stderr = io.TextIOWrapper(out, write_through=True), err
    code: Any = 0
    try:
        main()
    except SystemExit as left:
        code = left.code
    finally:
        sys.argv, sys.stdin, sys.stdout, sys.stderr = before
    return int(code or 0), out.data.decode("utf-8", "replace"), err.getvalue()


def run_apart(words: Sequence[str], given: bytes = b"") -> tuple[int, str, str]:
    """Run a command in a process of its own."""
    done = subprocess.run([sys.executable, "-m", "unnoise", *words], input=given, capture_output=True, timeout=300)
    return done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")


class _Captured(io.RawIOBase):
    """Standard output as bytes."""

    def __init__(self) -> None:
        self.data = b""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.data += bytes(data)
        return len(data)


# ── seeing ────────────────────────────────────────────────────────────────────────────────────────────────────────


def said(text: str, *, answers: bool) -> Any:
    """Return what is compared of a text: of JSON that answers its keys, of other answers all but numbers."""
    if answers:
        with contextlib.suppress(ValueError):
            return keys_of(json.loads(text))
    text = re.sub(r"\b([0-9a-f]{64}|[0-9a-f]{32}|[0-9a-f]{16})\b", "<random>", text)
    text = re.sub(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?)?[Z+:\d]*", "<time>", text)
    return re.sub(r"\s+", " ", NOISY.sub("#", text)) if answers else text


def keys_of(value: Any) -> Any:
    """Return the keys of JSON, of lists the shape of what is in them."""
    if isinstance(value, dict):
        return {name: keys_of(inner) for name, inner in sorted(value.items())}
    if isinstance(value, list):
        shapes = {json.dumps(keys_of(inner), sort_keys=True) for inner in value}
        return sorted(shapes)
    return "value"


def files_in(folder: Path) -> dict[str, Any]:
    """Return every file below a folder but the data: size and metadata of sketches, text of ledgers, names of pages."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in DATA)
    return {str(path.relative_to(folder)): _file(path) for path in found}


def _file(path: Path) -> Any:
    data, size = path.read_bytes(), path.stat().st_size
    if data[:6] == b"ARROW1" and path.suffix in (".sketch", ""):
        with pa.ipc.open_file(pa.BufferReader(data)) as reader:
            metadata, rows = dict(reader.schema.metadata), [b.num_rows for b in map(reader.get_batch, range(1))]
        parameters = json.loads(metadata.pop(b"unnoise.parameters"))
        metadata.pop(b"unnoise.digest")
        return size, rows, {k: v for k, v in parameters.items() if k not in RANDOM}, sorted(metadata.items())
    if path.suffix == ".ledger" or path.name == "groups.json":
        return said(data.decode(), answers=False)
    if path.suffix in (".html", ".csv", ".json", ".md", ".xlsx"):
        return "a page"
    return size


def observation(
    words: Sequence[str], folder: Path, given: bytes = b"", *, answers: bool = False, apart: bool = False
) -> dict[str, Any]:
    """Run a command inside a folder and return what is seen of it."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        code, out, err = (run_apart if apart else run_here)(words, given)
    finally:
        os.chdir(before)
    binary = out.startswith("ARROW1")
    return {
        "command": " ".join(words), "exit": code, "output": "a file" if binary else said(out, answers=answers),
        "error": said(err, answers=answers), "files": files_in(folder),
    }  # fmt: skip


def fresh(folder: Path) -> Path:
    """Return an empty folder of that name."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def difference(left: Any, right: Any, where: str = "") -> str:
    """Say where two observations differ first; nothing where they agree."""
    if isinstance(left, dict) and isinstance(right, dict):
        for name in sorted({*left, *right}):
            if name not in left or name not in right:
                return f"{where}/{name} on one side only"
            if found := difference(left[name], right[name], f"{where}/{name}"):
                return found
        return ""
    return "" if left == right else f"{where}: {str(left)[:150]!r} against {str(right)[:150]!r}"
