"""The command line: ``unnoise demo``, ``profile``, ``sketch``, ``merge``, ``inspect``, ``estimate``, ``report``, …

Commands only open, call the library and print. Results go to standard output, progress and notes to standard error.
"""

from __future__ import annotations

from ._app import app, main

__all__ = ["app", "main"]
