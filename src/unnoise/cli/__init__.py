"""The command line: ``unnoise demo``, ``profile``, ``sketch``, ``merge``, ``inspect``, ``estimate``, ``report``, …

Commands only open, call the library and print. Results go to standard output, progress and notes to standard error.
"""

from __future__ import annotations

import os

# The linear algebra here is many small systems: threads only wait for each other. Must be set before NumPy is loaded.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("POLARS_ROW_GROUP_PREFETCH_SIZE", "2")  # 50 MB less of memory, and no slower

from ._app import app, main, run

__all__ = ["app", "main", "run"]
