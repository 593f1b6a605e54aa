"""Text that came with data, made inert before anybody sees it.

A header of a CSV file, a group, an item type or a file name may hold whatever its author liked: escape sequences that
move the cursor or retitle a terminal, marks that turn the direction of what follows, HTML, a formula for whoever opens
the table in a spreadsheet. One rule for all surfaces: **a character that is not printable is shown by its number**,
as Python would (``\\x1b``, ``\\u202e``), and then each surface quotes what has a meaning there. Printable is what
:meth:`str.isprintable` calls so: no controls, no formatting or separating characters but the space, no surrogates.
"""

from __future__ import annotations

import html
import json

__all__ = ["LONGEST_NAME", "inert", "inert_cell", "inert_html", "inert_json", "inert_markup"]

LONGEST_NAME = 200
"""Most characters of a name that people give: a label, a site, a period, a column."""

_FORMULA = ("=", "+", "-", "@")


def inert(text: object) -> str:
    """Return a text for a terminal or an error: what cannot be printed is shown by its number.

    >>> inert("name\\x1b]0;owned\\x07"), inert("left\\u202etfel"), inert("Zürich 🦀")
    ('name\\\\x1b]0;owned\\\\x07', 'left\\\\u202etfel', 'Zürich 🦀')
    """
    value = str(text)
    return value if value.isprintable() else "".join(c if c.isprintable() else _number(c) for c in value)


def inert_cell(text: object) -> str:
    """Return a text for a cell of a CSV file: a leading apostrophe where a spreadsheet would see a formula.

    Numbers are written as numbers and do not come here. See OWASP, "CSV Injection".

    >>> inert_cell("=1+1"), inert_cell(" @x"), inert_cell("JFK")
    ("'=1+1", "' @x", 'JFK')
    """
    value = inert(text)
    return f"'{value}" if value.lstrip().startswith(_FORMULA) else value


def inert_html(text: object) -> str:
    """Return a text for an element or an attribute of an HTML page.

    >>> inert_html('<b onload="x">')
    '&lt;b onload=&quot;x&quot;&gt;'
    """
    return html.escape(inert(text), quote=True)


def inert_markup(text: object) -> str:
    """Return a text for Rich, which gives words in brackets a meaning.

    >>> inert_markup("[red]x")
    '\\\\[red]x'
    """
    from rich.markup import escape

    return escape(inert(text))


def inert_json(text: str) -> str:
    """Return JSON with all that is not printable inside its texts written as numbers; lines stay.

    >>> print(inert_json('{\\n "a": "\\u202e\\x9b"\\n}'))
    {
     "a": "\\u202e\\u009b"
    }
    """
    return "".join(c if c == "\n" or c.isprintable() else json.dumps(c)[1:-1] for c in text)


def _number(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
