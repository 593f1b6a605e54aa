"""Write the list of all modules, each with the first sentence of its docstring, into docs/architecture.md."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"
PACKAGE = ROOT / "src" / "unnoise"
BEGIN, END = "<!-- modules:begin -->", "<!-- modules:end -->"


def listed() -> str:
    """Every module of the package, folder by folder."""
    lines = ["| module | what it is |", "|---|---|"]
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        if name.endswith("__init__") or "migrations" in name:
            continue
        text = ast.get_docstring(ast.parse(path.read_text())) or ""
        first = re.sub(r":\w+:`~?([^`]*)`", r"`\1`", text.split("\n\n")[0].replace("\n", " "))
        lines.append(f"| `{name}` | {first.replace('|', chr(92) + '|')} |")
    return "\n".join(lines)


def written(page: str) -> str:
    """The page with the list as it is now."""
    return re.sub(f"{BEGIN}.*?{END}", lambda _: f"{BEGIN}\n{listed()}\n{END}", page, flags=re.S)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
