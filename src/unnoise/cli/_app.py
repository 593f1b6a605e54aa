"""The application: its commands, and what happens to errors.

Exit codes: 0 done, 2 bad input (one line on standard error), 1 a fault of unnoise itself, 130 interrupted.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import warnings
from collections.abc import Callable
from typing import Annotated, Any, NoReturn, TypeVar

import typer
import typer.core

from ..errors import InputError, UnnoiseError, UnnoiseWarning
from ..text import inert

__all__ = ["App", "Command", "Group", "app", "in_options", "main", "run"]

ShownError: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
"""What the parser raises; Typer carries its own copy of Click or uses the installed one, depending on its version."""

Function = TypeVar("Function", bound=Callable[..., Any])

ORDER = (
    "demo", "profile", "sketch", "merge", "inspect", "estimate", "report", "union", "overlap", "table", "ledger",
    "advise", "plan", "compare", "serve", "send", "collect", "task", "token", "backup", "restore", "share", "combine",
)  # fmt: skip


INTERRUPTED = 130
"""Exit code after Ctrl-C."""

FILES = ("FILE", "INPUT", "FOLDER", "LEDGER")
"""What help calls a value that names files, whose names may be any bytes."""

SHOWN = 40
"""Most characters of a text in a message."""


class _NamedAlone:  # beside a class of Typer
    """Lets help show flags and arguments by their names: a type belongs where there is a value to give."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        for parameter in self.get_params(ctx):  # type: ignore[attr-defined]
            if getattr(parameter, "is_flag", False) or parameter.param_type_name == "argument":
                parameter.display_type_rich = lambda ctx: None
        super().format_help(ctx, formatter)  # type: ignore[misc]


class Group(_NamedAlone, typer.core.TyperGroup):
    """Commands under one name."""


class _InOrder(Group):
    """Lists the commands in the order in which they are used."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for name in ORDER if name in self.commands]


class Command(_NamedAlone, typer.core.TyperCommand):
    """One command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse what was given; refuse a text that is not UTF-8, which no ledger or page could hold, but for files."""
        left: list[str] = super().parse_args(ctx, args)
        for parameter in self.get_params(ctx):
            value, shown = ctx.params.get(parameter.name), str(parameter.metavar)
            for text in value if isinstance(value, list | tuple) else (value,):
                odd = isinstance(text, str) and any("\ud800" <= sign <= "\udfff" for sign in text)
                if odd and not any(word in shown for word in FILES):
                    option = max(parameter.opts, key=len) if parameter.param_type_name == "option" else shown
                    raise InputError(f"{option} must be UTF-8, got other bytes: {text[:SHOWN]!r}")
        return left


class App(typer.Typer):
    """An application all of whose commands are a :class:`Command`, and which is a :class:`Group` within another."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"cls": Group, "no_args_is_help": True, **options})

    def command(self, *names: Any, **options: Any) -> Callable[[Function], Function]:
        """Register a command."""
        return super().command(*names, **{"cls": Command, **options})


app = App(
    cls=_InOrder,
    name="unnoise",
    help="How many things happened exactly t times? Private sketches of sensitive data, and answers from them.",
    epilog="Start with: unnoise demo",
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


@app.callback(invoke_without_command=True)
def _root(
    ctx: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and leave.")] = False,
) -> None:
    """Do what the options of the program itself say."""
    if version:
        from .. import __version__

        typer.echo(f"unnoise {__version__}")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        ctx.fail("Missing command.")


def run() -> NoReturn:
    """Run the command line as a process: once all is written, leave without taking the interpreter apart (0.2 s)."""
    code: Any = 0
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller (>&-): nobody wants to read
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
        # UTF-8 as in files, whatever the locale: an answer that cost ε must not fail for an ε
        getattr(sys, name).reconfigure(encoding="utf-8", errors="backslashreplace")
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
    _plain_warnings()
    try:
        from . import answer, collector, experiments, files, sites  # noqa: F401  (registers the commands)

        result: Any = app(standalone_mode=False)
        if result == INTERRUPTED:  # Typer has caught it, and says nothing
            _say("interrupted")
        sys.stdout.flush()
    except UnnoiseError as error:
        _leave(in_options(str(error)))
    except ShownError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # the help is printed already
            raise SystemExit(2) from None
        _leave(_usage(error))
    except (typer.Abort, KeyboardInterrupt):
        _say("interrupted")
        raise SystemExit(INTERRUPTED) from None
    except (BrokenPipeError, SystemExit) as error:
        if not _reader_has_left(error):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
    except OSError as error:
        _leave(": ".join(str(part) for part in (error.filename, error.strerror or error) if part))
    except MemoryError:  # whose words tell how many rows there were
        _leave("not enough memory; profile needs less with --sketch, and a sketch with fewer --cells")
    except Exception as error:
        if os.environ.get("UNNOISE_DEBUG"):
            raise
        # what it says may be a value of the data
        _say(f"a fault of unnoise itself: {type(error).__name__} (UNNOISE_DEBUG=1 shows what and where)")
        raise SystemExit(1) from None
    raise SystemExit(result if isinstance(result, int) else 0)


def _usage(error: Exception) -> str:
    """Say what was wrong with the command line, and where to look."""
    message = str(getattr(error, "format_message", lambda: error)()).strip().rstrip(".")
    fix = r"\1 must be an integer, got another text"
    message = re.sub(r"^Invalid value for '([^']+)': .*valid integer.*$", fix, message)
    context = getattr(error, "ctx", None)
    unknown = re.match(r"No such option: (--[a-z]+)", message)
    meant = MEANT.get(unknown[1]) if unknown else None
    if unknown and meant and context and any(meant in one.opts for one in context.command.params):
        message = f"{unknown[0]}; did you mean {meant}?"
    return f"{message} (see {context.command_path if context else 'unnoise'} --help)"


MEANT = {
    "--item": "--column", "--items": "--column", "--key": "--column", "--id": "--column", "--user": "--person",
    "--users": "--person", "--persons": "--person", "--cap": "--max-contributions",
}  # fmt: skip
"""Words that people try, which are spelled like no option of that meaning."""


OPTIONS = {
    "max_contributions": "--max-contributions", "max_count": "--max-count", "hash_seed": "--hash-seed",
    "pan_private": "--pan-private", "epsilon": "--epsilon", "cells": "--cells", "levels": "--levels",
    "rate": "--rate", "domain": "--domain", "power": "--power", "method": "--method", "repetitions": "--repetitions",
    "unknown": "--unknown", "clipped": "--clipped", "target": "--target", "shape": "--shape", "person": "--person",
    "groups": "--groups", "noun": "--noun", "at_least": "--at-least", "delimiter": "--delimiter", "quote": "--quote",
    "format": "--format", "merges": "--merges", "items": "--items", "kind": "--kind", "headline": "--headline",
    "cap": "--max-count", "all_groups": "--all-groups", "twice": "--twice", "limit": "--limit",
    "unit": "--unit", "data": "--dataset",
}  # fmt: skip
"""What the library calls an argument, and the command line an option."""


def in_options(message: str) -> str:
    """Let a message of the library speak of options: its first word, and whatever it says as name=value.

    >>> in_options("epsilon must be > 0, got -1"), in_options("drop them with unknown='drop'")
    ('--epsilon must be > 0, got -1', 'drop them with --unknown drop')
    >>> in_options("domain.csv: no column 'x'"), in_options("items must be of types str, got int")
    ("domain.csv: no column 'x'", 'items must be of types str, got int')
    """
    names = "|".join(OPTIONS)
    data = r"(?!items (?:must be of types|and noise)\b)"  # not the option of plan and advise
    message = re.sub(rf"^{data}({names})(?= (?:must|is|needs|and)\b)", lambda m: OPTIONS[m[1]], message)
    message = re.sub(rf"\b({names})=True\b", lambda m: OPTIONS[m[1]], message)
    plain = "all_groups|max_contributions|max_count|hash_seed"  # words that nobody would use for anything else
    message = re.sub(rf"(?<![-\w])({plain})(?![\w=])", lambda m: OPTIONS[m[1]], message)
    told = "unknown|clipped|max_count|max_contributions|method|hash_seed"  # ε = 1 may be a law and not an option
    return re.sub(rf"\b({told})=(?:'([^']*)'|([^\s,;:()]+))", lambda m: f"{OPTIONS[m[1]]} {m[2] or m[3]}", message)


def _say(message: str) -> None:
    """Say one line on standard error, if anybody listens there."""
    with contextlib.suppress(OSError, ValueError):
        print(f"unnoise: {inert(' '.join(message.split()))}", file=sys.stderr)


def _leave(message: str) -> None:
    _say(message)
    raise SystemExit(2) from None


def _reader_has_left(error: BaseException | None) -> bool:
    """Tell whether a pipe without a reader is behind an error: Typer and Rich leave with 1 on their own then."""
    return error is not None and (isinstance(error, BrokenPipeError) or _reader_has_left(error.__context__))


def _plain_warnings() -> None:
    """Show our own warnings in one line and keep the rest quiet."""

    def show(message: Warning | str, category: type[Warning], *_: Any) -> None:
        if issubclass(category, UnnoiseWarning):
            _say(f"warning: {in_options(str(message))}")

    warnings.showwarning = show  # type: ignore[assignment]
    warnings.simplefilter("default", UnnoiseWarning)
