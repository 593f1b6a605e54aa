"""Say which row of a file a reader stumbled over, and what to do about it.

The fast readers stop at a bad row without saying which; this slow second look runs only after they failed.
"""

from __future__ import annotations

import csv
import io
import json
import re
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterable
from typing import TYPE_CHECKING, NoReturn

from ..text import inert
from .formats import LINE, Dialect, Location, on_terminal, open_bytes
from .streams import expected

if TYPE_CHECKING:
    from .source import Source

__all__ = ["bad_json_row", "explain"]

LONGEST = 200
"""Most characters of a reader's own message."""

NO_UTF8 = "not UTF-8; convert it: iconv -f latin1 -t utf-8"

WITHOUT_VALUES = re.compile(
    r"conversion from `\w+` to `\w+` failed in column '[^']*'|cannot compare string with numeric type"
)
"""What polars says of a query that has come to the rows, as far as it names no values."""


WITHOUT_NAMES = re.compile(
    rf"{WITHOUT_VALUES.pattern}|unable to find column \"[^\"]*\"|no column named '[^']*' found in table '[^']*'"
    r"|relation '[^']*' was not found|unsupported function '\w+'|'\w+' is not a supported table function"
    r"|sql parser error: .*|`\w+` operation not supported for dtype `\w+`|a value cannot be read or converted \(\w+\)"
)
"""What polars says of a query before it has come to the rows, as far as it names no columns but those of the query."""


def explain(source: Source, where: Location | None, error: BaseException, *, rows: bool = False) -> str:
    """Return one line for what a reader raised: file, row and fix where they can be found, and never the data.

    Queries and databases speak of values once they have come to the ``rows``.
    """
    first = inert(" ".join(str(error).strip().split("\n")[0].split()))[:LONGEST]
    if rows and (source.sql is not None or source.kind.query is not None):
        known = WITHOUT_VALUES.match(first)
        first = known[0] if known else f"a value cannot be read or converted ({type(error).__name__})"
    if source.sql is not None:
        known = WITHOUT_NAMES.match(first)
        nameless = known[0] if known else f"it does not fit the columns ({type(error).__name__})"
        return _explain_query(nameless if source.first_line and not on_terminal() else first, source.sql)
    kind = source.kind
    reason = f": {first}" if kind.typed else ""  # what readers say of structure; of text they quote the text
    if where is None or isinstance(where, str):
        label = source.name if where is None else where
        said = first.lower().replace("-", "")  # Arrow, Python and polars each spell it their way
        if not kind.typed and ("utf8" in said or isinstance(error, UnicodeError)):
            return f"{label}: {NO_UTF8}"
        return f"{label}: not readable as {kind.name}{reason}"
    if where.stat().st_size == 0:
        return f"{where}: the file is empty"
    found = ""
    try:
        if kind.delimiter:
            found = _bad_csv_row(where, source.dialect.delimiter or kind.delimiter, source.dialect)
        elif kind.name == "ndjson":
            with open_bytes(where) as lines:
                found = bad_json_row(str(where), lines, 0)
        elif kind.item == LINE:
            found = _bad_text(where)
    except (EOFError, OSError, zlib.error) as problem:  # whose words may hold bytes or checksums of the data
        if isinstance(problem, OSError) and problem.strerror:
            return f"{where}: {problem.strerror}"
        return f"{where}: the compressed file is damaged or cut short, or not compressed at all; compress it again"
    if found:
        return found
    return f"{where}: not readable as {kind.name}{reason}; is it something else? say so with --format"


def _explain_query(first: str, sql: str) -> str:
    """Say what a reader said of a query, and the fix.

    >>> _explain_query("unsupported function 'user'", "SELECT user FROM data")
    'the query failed: SQL has a word user of its own; a column of this name needs quotes: "user"'
    """
    word = re.match(r"unsupported function '(\w+)'", first)
    if word and not re.search(rf"\b{word[1]}\s*\(", sql, re.IGNORECASE):
        return f'the query failed: SQL has a word {word[1]} of its own; a column of this name needs quotes: "{word[1]}"'
    hint = ""
    if "cannot compare string with numeric" in first or ("str" in first and "arithmetic" in first):
        hint = "; columns of CSV are text: write CAST(name AS BIGINT)"
    elif "relation" in first and "not found" in first:
        hint = "; the table is called data"
    elif first.startswith(("Permission Error", "not authorized")):
        hint = "; a query reads the tables of its own database, and no other file"
    return f"the query failed: {first}{hint}"


def _bad_text(path: Location) -> str:
    """Find the first row with bytes that are no UTF-8, and show none of them."""
    with open_bytes(path) as file:
        for number, line in enumerate(file):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                where = f"row {number}" if number else "first line"
                return f"{path}, {where}: {NO_UTF8}"
    return ""


def _bad_csv_row(path: Location, separator: str, dialect: Dialect) -> str:
    """Find the first row with too many fields, bytes that are no UTF-8, or a quote that never closes."""
    found = _bad_text(path)
    if found:
        return found
    quoting = {"quoting": csv.QUOTE_NONE} if dialect.quote is None else {"quotechar": dialect.quote}
    with open_bytes(path) as file, io.TextIOWrapper(file, "utf-8", newline="") as text:
        reader = csv.reader(text, delimiter=separator, **quoting)
        width, row, start = len(next(reader, [])), 0, reader.line_num
        last = start
        for fields in reader:
            row += 1
            if len(fields) > width:
                sign = {"\t": "tab", ",": "comma"}.get(separator, separator)
                return (
                    f"{path}, row {row}: {expected(width)}, got {len(fields)}; "
                    f"put quotes around values that hold a {sign}"
                )
            last, start = start + 1, reader.line_num
    if row and start > last and _open_quote(path, last):
        return f"{path}, row {row} (line {last}): a quote is opened and never closed; close it or double it"
    return ""


def _open_quote(path: Location, line: int) -> bool:
    """Whether the record that starts at ``line`` has an odd number of quotes."""
    with open_bytes(path) as file:
        return sum(text.count(b'"') for number, text in enumerate(file, 1) if number >= line) % 2 == 1


def _place(problem: json.JSONDecodeError | UnicodeDecodeError) -> str:
    return f"{problem.msg} at character {problem.pos + 1}" if isinstance(problem, json.JSONDecodeError) else "no UTF-8"


def _no_number(name: str) -> NoReturn:
    raise OverflowError(name)


def bad_json_row(label: str, lines: Iterable[bytes], done: int) -> str:
    """Find the first line that is no JSON object."""
    for number, line in enumerate(lines, done + 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line.removeprefix(BOM_UTF8), parse_constant=_no_number)
        except RecursionError:
            return f"{label}, row {number}: not JSON that can be read (too deep); correct or remove the row"
        except (json.JSONDecodeError, UnicodeDecodeError) as problem:
            return f"{label}, row {number}: not JSON ({_place(problem)}); correct or remove the row"
        except OverflowError:
            return f"{label}, row {number}: not JSON (NaN or Infinity); write null in its place"
        if not isinstance(value, dict):
            return f"{label}, row {number}: must be a JSON object, got {type(value).__name__}"
    return ""
