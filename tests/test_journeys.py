"""The way through the code does not grow: hops of three journeys, and a list of all modules that is up to date."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MOST = {"file-to-page": (340, 38), "counts-to-answer": (114, 18), "update-to-release": (108, 13)}
"""Functions and modules passed now, and a few functions more for machines that compute otherwise in the last digits;
the aim (scripts/trace_journeys.py) is well below. Lower these when they fall."""


@pytest.mark.slow
@pytest.mark.parametrize("journey", MOST)
def test_hops(journey):
    done = subprocess.run(
        [sys.executable, "scripts/trace_journeys.py", journey], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found = re.search(r"(\d+) functions \(≤ \d+\) in (\d+) modules", done.stdout)
    assert found, done.stdout
    functions, modules = int(found[1]), int(found[2])
    print(f"{journey}: {functions} functions in {modules} modules")
    assert functions <= MOST[journey][0]
    assert modules <= MOST[journey][1]


def test_the_list_of_modules_is_up_to_date():
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        from list_modules import PAGE, written
    finally:
        sys.path.pop(0)
    assert written(PAGE.read_text()) == PAGE.read_text(), "run: python scripts/list_modules.py"
