"""The command line in the process of a test: for everything that a process of its own would prove no better."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import chdir
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "audits"))

from _observe import run_here

LISTED = r"""unnoise() { printf '%s\0' "$@"; printf '\n\0'; }; """
"""A shell with this says which commands a line would run, in place of running them."""


class Done(NamedTuple):
    """What a command has left behind."""

    returncode: int
    stdout: str
    stderr: str


def run_in(folder: str | os.PathLike[str], *words: object, **environment: str) -> Done:
    """Run a command in a folder, under these variables of the environment, and return what it has printed."""
    with chdir(folder), patch.dict(os.environ, environment):
        return Done(*run_here([str(word) for word in words]))


def shell_lines(block: str) -> list[str]:
    """Return the lines of a block of commands, those that end in a backslash joined with the next."""
    return re.sub(r"\\\n\s*", "", block).strip().split("\n")


def run_line(line: str, folder: str | os.PathLike[str] = ".") -> None:
    """Run a line as bash would: its commands in this process, unless they share pipes or files."""
    if re.search(r"[|<>]", line) or not re.match(r"unnoise |for .*; do unnoise [^;]*; done$", line):
        done = subprocess.run(["bash", "-e", "-c", line], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, (line, done.stderr)
        return
    shell = ["bash", "-e", "-c", LISTED + line]
    listed = subprocess.run(shell, cwd=folder, capture_output=True, text=True, check=True).stdout
    for words in listed.removesuffix("\0\n\0").split("\0\n\0"):
        here = run_in(folder, *words.split("\0"))
        assert here.returncode == 0, (words, here.stderr)
