"""The application: its commands, and what happens to errors.

Exit codes: 0 done, 2 bad input (one line on standard error), 1 a fault of unnoise itself, 130 interrupted.
"""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from typing import Annotated, Any, NoReturn

import typer
import typer.core

from ..errors import UnnoiseError, UnnoiseWarning
from ..text import inert

__all__ = ["app", "main", "run"]

ShownError: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
"""What the parser raises; Typer carries its own copy of Click or uses the installed one, depending on its version."""

ORDER = (
    "demo", "profile", "sketch", "merge", "inspect", "estimate", "report", "union", "overlap", "table", "ledger",
    "plan", "compare", "serve", "send", "collect", "task", "token", "backup", "restore", "share", "combine",
)  # fmt: skip


class _InOrder(typer.core.TyperGroup):
    """Lists the commands in the order in which they are used."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for name in ORDER if name in self.commands]


app = typer.Typer(
    cls=_InOrder,
    name="unnoise",
    help="How many things happened exactly t times? Private sketches of sensitive data, and answers from them.",
    epilog="Start with: unnoise demo",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _version(wanted: bool) -> None:
    if wanted:
        from .. import __version__

        typer.echo(f"unnoise {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    """Reject nothing: options of the program itself."""


def run() -> NoReturn:
    """Run the command line as a process: once all is written, leave without taking the interpreter apart (0.2 s)."""
    code: Any = 0
    try:
        main()
    except SystemExit as left:
        code = left.code
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(0 if code is None else code if isinstance(code, int) else 1)


def main() -> None:
    """Run the command line; every error is one line."""
    from . import answer, collector, experiments, files, ledger, make, sites  # noqa: F401  (registers the commands)

    _plain_warnings()
    try:
        result: Any = app(standalone_mode=False)
        sys.stdout.flush()
    except UnnoiseError as error:
        _leave(str(error))
    except ShownError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # the help is printed already
            raise SystemExit(2) from None
        _leave(_usage(error))
    except (typer.Abort, KeyboardInterrupt):
        print("unnoise: interrupted", file=sys.stderr)
        raise SystemExit(130) from None
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has left: nothing to say
        raise SystemExit(0) from None
    except OSError as error:
        _leave(f"{error.filename}: {error.strerror}" if error.strerror and error.filename else str(error))
    except MemoryError as error:
        _leave(f"not enough memory: {error}; use fewer cells")
    except Exception as error:
        if os.environ.get("UNNOISE_DEBUG"):
            raise
        detail = inert(" ".join(f"{type(error).__name__}: {error}".split()))
        print(f"unnoise: a fault of unnoise itself: {detail} (UNNOISE_DEBUG=1 shows where)", file=sys.stderr)
        raise SystemExit(1) from None
    raise SystemExit(result if isinstance(result, int) else 0)


def _usage(error: Exception) -> str:
    """Say what was wrong with the command line, and where to look."""
    message = str(getattr(error, "format_message", lambda: error)()).strip().rstrip(".")
    context = getattr(error, "ctx", None)
    return f"{message} (see {context.command_path if context else 'unnoise'} --help)"


def _leave(message: str) -> None:
    print(f"unnoise: {inert(' '.join(message.split()))}", file=sys.stderr)
    raise SystemExit(2) from None


def _plain_warnings() -> None:
    """Show our own warnings in one line and keep the rest quiet."""

    def show(message: Warning | str, category: type[Warning], *_: Any) -> None:
        if issubclass(category, UnnoiseWarning):
            print(f"unnoise: warning: {inert(' '.join(str(message).split()))}", file=sys.stderr)

    warnings.showwarning = show  # type: ignore[assignment]
    warnings.simplefilter("default", UnnoiseWarning)
