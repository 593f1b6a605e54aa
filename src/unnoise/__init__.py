"""unnoise: frequency profiles from differentially private, updatable, mergeable sketches.

>>> import unnoise as un
>>> un.DiscreteLaplace(1.0)
DiscreteLaplace(epsilon=1)

Names are loaded on first use, so that ``import unnoise`` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import bounds as bounds
    from . import protocols as protocols
    from . import spark as spark
    from ._sampler import discrete_laplace as discrete_laplace
    from .errors import ClaimWarning as ClaimWarning
    from .errors import ConvergenceError as ConvergenceError
    from .errors import FormatError as FormatError
    from .errors import IncompatibleError as IncompatibleError
    from .errors import InputError as InputError
    from .errors import OverloadError as OverloadError
    from .errors import PrivacyError as PrivacyError
    from .errors import SealedError as SealedError
    from .errors import UnnoiseError as UnnoiseError
    from .errors import UnnoiseWarning as UnnoiseWarning
    from .noise import DiscreteLaplace as DiscreteLaplace
    from .noisy import NoisyCounts as NoisyCounts
    from .noisy import NoisyProfile as NoisyProfile

__version__ = "0.1.0"

_MODULES = ("bounds", "protocols", "spark")
_HOMES = {
    "ClaimWarning": "errors",
    "ConvergenceError": "errors",
    "DiscreteLaplace": "noise",
    "FormatError": "errors",
    "IncompatibleError": "errors",
    "InputError": "errors",
    "NoisyCounts": "noisy",
    "NoisyProfile": "noisy",
    "OverloadError": "errors",
    "PrivacyError": "errors",
    "SealedError": "errors",
    "UnnoiseError": "errors",
    "UnnoiseWarning": "errors",
    "discrete_laplace": "_sampler",
}

__all__ = sorted([*_HOMES, *_MODULES])  # pyright: ignore


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    elif name in _MODULES:
        value = import_module(f".{name}", __name__)
    else:
        raise AttributeError(f"module 'unnoise' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
