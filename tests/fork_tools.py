"""Secrets in a fork: made here, asked in the child (which must refuse) and in the parent (which goes on)."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest

SCRIPT = """
import sys
sys.path.insert(0, {here!r})
from fork_tools import forked
from {module} import MADE_AND_FORKED
forked(*MADE_AND_FORKED)
"""


def run_forked(module: str, how: Sequence[str] = ()) -> None:
    """Run ``forked`` on a test module's MADE_AND_FORKED (make, in the child, in the parent) in a process of its own.

    how : "raw" forks where Python's hook does not run; "namespace" lets the child have the number of its parent
    """
    code = SCRIPT.format(here=os.path.dirname(__file__), module=module)
    done = subprocess.run([sys.executable, "-c", code, *how], capture_output=True, text=True, timeout=600)
    if done.returncode == 77:
        pytest.skip("namespaces are not permitted here")
    assert done.returncode == 0, done.stderr


def forked(make: Callable[[], Any], in_child: Callable[[Any], bool], in_parent: Callable[[Any], object]) -> None:
    """Make secrets and fork; leave with 0 if the child says that all is as it must be."""
    if "namespace" in sys.argv:  # from process 1 of a namespace to process 1 of one below
        if not _unshare():
            sys.exit(77)
        child = os.fork()
        if child:
            sys.exit(_status_of(child))
    secrets = make()
    if "namespace" in sys.argv and not _unshare():
        os._exit(77)
    child = ctypes.CDLL(None).fork() if "raw" in sys.argv else os.fork()
    if child == 0:
        os._exit(0 if in_child(secrets) else 1)
    code = _status_of(child)
    in_parent(secrets)
    os._exit(code)


def _unshare() -> bool:
    libc = ctypes.CDLL(None)
    return libc.unshare(0x20000000) == 0 or libc.unshare(0x30000000) == 0  # PID namespace, or user and PID


def _status_of(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
