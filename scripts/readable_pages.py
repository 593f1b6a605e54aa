"""A hook of MkDocs: what the site makes of docstrings and of long names, as people read it.

In docs/reference.md roles (:func:`direct`) become names, and what a docstring says of a parameter, of whose first line
mkdocstrings makes a type, stands in one column. Names of tests may be broken after an underscore, not within a word.
"""

from __future__ import annotations

import re
from typing import Any

ROLE = re.compile(r":(?:func|meth|class|mod|attr|data):")
QUOTED = re.compile(r"``?~?([^`]+)``?")
CELLS = re.compile(
    r"<td>\s*<code>((?:(?!</td>).)*)</code>\s*</td>\s*"
    r'<td>\s*<div class="doc-md-description">\s*(.*?)\s*</div>\s*</td>', re.S,
)  # fmt: skip
TESTS = re.compile(r"(?<=<code>)tests/[^<]+(?=</code>)")
HEADS = re.compile(r"<th>Type</th>\s*<th>Description</th>")


def on_page_content(html: str, *, page: Any, **_: Any) -> str:
    """Return a page as it is to be read.

    >>> class Page: file = type("File", (), {"src_uri": "reference.md"})
    >>> said = '<td><code>a</code></td><td><code>as in :func:`direct`,</code></td>'
    >>> on_page_content(said + '<td><div class="doc-md-description"><p>or one</p></div></td>', page=Page)
    '<td><code>a</code></td><td>as in <code>direct</code>, or one</td>'
    """
    if page.file.src_uri != "reference.md":
        return TESTS.sub(lambda name: re.sub("(_|::)", r"\1<wbr>", name[0]), html)
    html = CELLS.sub(_joined, HEADS.sub("<th>Meaning</th>", html))
    return ROLE.sub("", html).replace("<code>~", "<code>")


def _joined(cells: re.Match[str]) -> str:
    """One cell of two."""
    first = QUOTED.sub(r"<code>\1</code>", ROLE.sub("", cells[1]))
    return f"<td>{first} {re.sub('</?p>', '', cells[2])}".rstrip() + "</td>"
