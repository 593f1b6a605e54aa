"""The two kinds of array that travel through the package, 64-bit numbers, real and whole."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Floats", "Int64"]

Floats = NDArray[np.float64]
Int64 = NDArray[np.int64]
