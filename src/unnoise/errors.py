"""The exception tree.

::

    UnnoiseError
    ├── InputError (ValueError)      an argument or a datum is not what it must be
    ├── PrivacyError                 the step would break the guarantee, so it is refused
    │   └── SealedError              the sketch has left the process and takes no more data
    ├── IncompatibleError            two things that must agree before they merge do not
    ├── FormatError                  a file is truncated, corrupt, too new or hostile
    ├── OverloadError                more items than the cells can tell apart
    └── ConvergenceError             an iterative estimator did not reach its tolerance
    UnnoiseWarning (UserWarning)
    └── ClaimWarning                 the data do not look like the noise they are said to carry

Every message says what must hold and what was given: ``epsilon must be > 0, got -1.0``.
"""

import warnings

from .text import inert

__all__ = [
    "ClaimWarning",
    "ConvergenceError",
    "FormatError",
    "IncompatibleError",
    "InputError",
    "OverloadError",
    "PrivacyError",
    "SealedError",
    "UnnoiseError",
    "UnnoiseWarning",
    "warn_renamed",
]


class UnnoiseError(Exception):
    """Base of every error that unnoise raises on purpose; its text is inert, whatever came into it from data."""

    def __init__(self, *args: object) -> None:
        super().__init__(*(inert(arg) if isinstance(arg, str) else arg for arg in args))


class InputError(UnnoiseError, ValueError):
    """An argument or a datum is not what it must be."""


class PrivacyError(UnnoiseError):
    """The step would break the privacy guarantee, so it is refused."""


class SealedError(PrivacyError):
    """A sketch that has left the process takes no more data until a new epoch begins."""


class IncompatibleError(UnnoiseError):
    """Two things that must agree before they merge do not; names the field and both values."""

    def __init__(self, field: str, left: object, right: object, hint: str = "") -> None:
        self.field, self.left, self.right = field, left, right
        tail = f"; {hint}" if hint else ""
        super().__init__(f"{field} must be equal to merge, got {left!r} and {right!r}{tail}")


class FormatError(UnnoiseError):
    """A file is truncated, corrupt, of a newer version or hostile."""


class OverloadError(UnnoiseError):
    """More items than the cells can tell apart; the message says how many cells would do."""


class ConvergenceError(UnnoiseError):
    """An iterative estimator did not reach its tolerance."""


class UnnoiseWarning(UserWarning):
    """Base of every warning that unnoise raises."""


class ClaimWarning(UnnoiseWarning):
    """The data do not look like the noise they are said to carry."""


def warn_renamed(old: str, new: str, since: str, *, depth: int = 3) -> None:
    """Say that a public name, argument or option goes by another one: the old one works for a minor version more.

    ``depth`` : how far above this function whoever used the old name is

    >>> with warnings.catch_warnings(record=True) as said:
    ...     warnings.simplefilter("always")
    ...     warn_renamed("un.old", "un.new", "0.2")
    >>> print(said[0].message)
    un.old is un.new since 0.2; the old name goes with the minor version after that
    """
    text = f"{old} is {new} since {since}; the old name goes with the minor version after that"
    warnings.warn(text, DeprecationWarning, stacklevel=depth)
