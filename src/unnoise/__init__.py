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
    from . import baselines as baselines
    from . import bounds as bounds
    from . import protocols as protocols
    from . import spark as spark
    from ._sampler import discrete_laplace as discrete_laplace
    from .answers.advise import advise as advise
    from .answers.consistent import SiteTable as SiteTable
    from .answers.direct import DirectProfile as DirectProfile
    from .answers.estimate import Estimate as Estimate
    from .answers.items import ItemProfile as ItemProfile
    from .answers.plan import plan as plan
    from .answers.profile import Profile as Profile
    from .answers.report import report as report
    from .answers.unseen import unseen as unseen
    from .api import direct as direct
    from .api import load as load
    from .api import profile as profile
    from .api import reconstruct as reconstruct
    from .curve import NoisyCurve as NoisyCurve
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
    from .layout import Labels as Labels
    from .ledger import Ledger as Ledger
    from .noise import DiscreteLaplace as DiscreteLaplace
    from .noisy import NoisyCounts as NoisyCounts
    from .noisy import NoisyProfile as NoisyProfile
    from .reading.groups import GroupedSketch as GroupedSketch
    from .sites import consistent_table as consistent_table
    from .sites import overlap as overlap
    from .sites import retention as retention
    from .sites import union as union
    from .sites import unique_reach as unique_reach
    from .sketches.sketch import Sketch as Sketch
    from .sketches.sketch import noise_shares as noise_shares

__version__ = "0.1.0"

_MODULES = ("baselines", "bounds", "protocols", "spark")
_HOMES = {
    "ClaimWarning": "errors",
    "ConvergenceError": "errors",
    "DirectProfile": "answers.direct",
    "DiscreteLaplace": "noise",
    "Estimate": "answers.estimate",
    "FormatError": "errors",
    "GroupedSketch": "reading.groups",
    "IncompatibleError": "errors",
    "InputError": "errors",
    "ItemProfile": "answers.items",
    "Labels": "layout",
    "Ledger": "ledger",
    "NoisyCounts": "noisy",
    "NoisyCurve": "curve",
    "NoisyProfile": "noisy",
    "OverloadError": "errors",
    "PrivacyError": "errors",
    "Profile": "answers.profile",
    "SealedError": "errors",
    "SiteTable": "answers.consistent",
    "Sketch": "sketches.sketch",
    "UnnoiseError": "errors",
    "UnnoiseWarning": "errors",
    "advise": "answers.advise",
    "consistent_table": "sites",
    "direct": "api",
    "load": "api",
    "discrete_laplace": "_sampler",
    "noise_shares": "sketches.sketch",
    "overlap": "sites",
    "plan": "answers.plan",
    "profile": "api",
    "reconstruct": "api",
    "report": "answers.report",
    "retention": "sites",
    "union": "sites",
    "unique_reach": "sites",
    "unseen": "answers.unseen",
}

_RENAMED: dict[str, tuple[str, str]] = {}
"""Names that were: what each is called now, and since which version. They work, with a warning (CONTRIBUTING.md)."""

__all__ = sorted([*_HOMES, *_MODULES])


def __getattr__(name: str) -> Any:
    if name in _RENAMED:
        from .errors import warn_renamed

        warn_renamed(f"unnoise.{name}", f"unnoise.{_RENAMED[name][0]}", _RENAMED[name][1])
        return __getattr__(_RENAMED[name][0])
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
