"""The command line in the process of a test: for everything that a process of its own would prove no better."""

from __future__ import annotations

import os
import sys
from contextlib import chdir
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "audits"))

from _observe import run_here


class Done(NamedTuple):
    """What a command has left behind."""

    returncode: int
    stdout: str
    stderr: str


def run_in(folder: str | os.PathLike[str], *words: object, **environment: str) -> Done:
    """Run a command in a folder, under these variables of the environment, and return what it has printed."""
    with chdir(folder), patch.dict(os.environ, environment):
        return Done(*run_here([str(word) for word in words]))
