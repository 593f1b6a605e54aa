"""Say which row of a file a reader stumbled over, and what to do about it.

The fast readers stop at a bad row without saying which; this slow second look runs only after they failed.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, cast

__all__ = ["bad_json_row", "explain"]


def explain(format: str, path: Path | None, name: str, error: BaseException) -> str:
    """Return one line for what a reader raised: file, row and fix where they can be found."""
    first = " ".join(str(error).strip().split("\n")[0].split())
    if path is None:
        return _explain_query(first) if format == "sql" else f"{name}: {first}"
    if path.stat().st_size == 0:
        return f"{path}: the file is empty"
    try:
        if format in ("csv", "tsv"):
            found = _bad_csv_row(path, "\t" if format == "tsv" else ",")
        elif format == "ndjson":
            with _open(path) as lines:
                found = bad_json_row(str(path), lines, 0)
        else:
            found = ""
    except (EOFError, OSError) as problem:
        return f"{path}: the compressed file is damaged or cut short ({problem}); compress it again"
    if found:
        return found
    return f"{path}: not readable as {format}: {first}; add --format if it is something else"


def _explain_query(first: str) -> str:
    hint = ""
    if "cannot compare string with numeric" in first or ("str" in first and "arithmetic" in first):
        hint = "; columns of CSV are text: write CAST(name AS BIGINT)"
    elif "not found" in first or "unable to find" in first:
        hint = "; the table is called data"
    return f"the query failed: {first}{hint}"


def _open(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path) if path.suffix.lower() == ".gz" else open(path, "rb"))


def _bad_csv_row(path: Path, separator: str) -> str:
    """Find the first row with too many fields, bytes that are no UTF-8, or a quote that never closes."""
    with _open(path) as file:
        for number, line in enumerate(file):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as problem:
                return (
                    f"{path}, row {number}: not UTF-8 (byte 0x{line[problem.start]:02x}); "
                    f"convert the file: iconv -f latin1 -t utf-8"
                )
    with _open(path) as file, io.TextIOWrapper(file, "utf-8", newline="") as text:
        reader = csv.reader(text, delimiter=separator)
        width, row, start = len(next(reader, [])), 0, reader.line_num
        for fields in reader:
            row += 1
            if len(fields) > width:
                return (
                    f"{path}, row {row}: {width} fields expected, got {len(fields)}; "
                    f"put quotes around values that hold a {'tab' if separator == chr(9) else 'comma'}"
                )
            last, start = start + 1, reader.line_num
    if row and start > last and _open_quote(path, last):
        return f"{path}, row {row} (line {last}): a quote is opened and never closed; close it or double it"
    return ""


def _open_quote(path: Path, line: int) -> bool:
    """Whether the record that starts at ``line`` has an odd number of quotes."""
    with _open(path) as file:
        return sum(text.count(b'"') for number, text in enumerate(file, 1) if number >= line) % 2 == 1


def bad_json_row(label: str, lines: Iterable[bytes], done: int) -> str:
    """Find the first line that is no JSON object."""
    for number, line in enumerate(lines, done + 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (json.JSONDecodeError, UnicodeDecodeError) as problem:
            return f"{label}, row {number}: not JSON ({problem}); correct or remove the row"
        if not isinstance(value, dict):
            return f"{label}, row {number}: must be a JSON object, got {type(value).__name__}"
    return ""
