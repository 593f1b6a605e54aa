"""Put a result into a page (docs/benchmarks.md unless told otherwise), between the markers of its name."""

from __future__ import annotations

import os
import platform
import re
import sys
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "benchmarks.md"
IMAGES = ROOT / "docs" / "img"

SERIES = (("#0072b2", "o"), ("#d55e00", "s"), ("#009e73", "D"), ("#cc79a7", "^"), ("#4b5563", "P"))
"""Colours that colour-blind people tell apart (Okabe and Ito, 2008), each with a marker of its own."""


def machine(*packages: str) -> str:
    """One line that says where a result comes from."""
    with open("/proc/cpuinfo") as lines:
        models = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    python = ".".join(map(str, sys.version_info[:3]))
    return f"{os.cpu_count()} × {models[0] if models else platform.machine()}, Python {python}, {versions}"


def write_section(name: str, text: str, *, page: Path = PAGE) -> None:
    """Replace the section ``name`` of a page, or append it where there is none."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    block = f"{begin}\n{text.strip()}\n{end}"
    whole = page.read_text() if page.exists() else "# Benchmarks\n"
    pattern = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
    if pattern.search(whole):
        whole = pattern.sub(lambda _: block, whole)
    else:
        whole = whole.rstrip() + "\n\n" + block + "\n"
    page.write_text(whole)
