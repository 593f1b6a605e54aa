"""Results that go into files: what may be written where is settled before anything is read or any ε is spent.

An output that exists may have cost ε, so it is replaced only with ``--force``; a file that is read is never written to.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import InputError
from ..guard import require_writable, write_whole

if TYPE_CHECKING:
    from ..answers.export import Document
    from ..answers.profile import Profile
    from ._request import Showing

__all__ = ["check_answers", "check_output", "show_profiles", "write_document"]


def check_output(
    output: str | None, inputs: Iterable[str | None] = (), *, force: bool = False, folder: bool = False
) -> None:
    """Refuse an output that is an input, exists already, or cannot be written; a set of groups is a folder."""
    if output is None or output == "-":
        return
    path = Path(output)
    if any(_same(path, name) for name in inputs if name not in (None, "-")):
        raise InputError(f"{output} is read here and must not be written to; give --output another name")
    if not (folder and path.is_dir()):
        require_writable(path)
    if os.path.lexists(path) and not force:
        raise InputError(f"{output} exists already and may have cost ε; --force replaces it")


def _same(path: Path, name: str | None) -> bool:
    from ..reading.formats import expand

    if name is None or not path.exists():
        return False
    if os.path.exists(name):
        return os.path.samefile(path, name)
    if not any(sign in name for sign in "*?["):
        return False
    return any(isinstance(found, Path) and os.path.samefile(path, found) for found in expand(name))


def check_answers(showing: Showing, inputs: Iterable[str | None]) -> None:
    """Refuse an output for answers whose name does not say what to write, or that must not be written to."""
    showing.asked()
    if showing.output not in (None, "-"):
        from ..answers.export import check_suffix

        check_suffix(str(showing.output))
    check_output(showing.output, inputs, force=showing.force)


def show_profiles(profiles: Mapping[str, Profile], guarantee: str, showing: Showing, *, quiet: bool = False) -> None:
    """Write the profiles into the file asked for, if any, and print them unless that went to standard output."""
    from ..answers.export import profiles_document
    from ..answers.questions import sheets
    from ..answers.report import report_page, warnings_of
    from ._show import saying
    from ._tables import print_sheets

    with saying("answering"):
        named = sheets(profiles, showing.asked())
    title = showing.title or "Private frequency profile"
    if showing.output is not None:
        document = profiles_document(
            named, title=title, guarantee=guarantee, warnings=warnings_of(named),
            page=lambda: report_page(named, title=title, guarantee=guarantee),
        )  # fmt: skip
        write_document(document, showing.output)
    if showing.output != "-" and not quiet:
        print_sheets(named, guarantee, as_json=showing.as_json)


def write_document(document: Document, output: str) -> None:
    """Write a document as the end of the name says; - is the page, to standard output."""
    from ..answers.export import check_suffix, written_as
    from ._show import note, saying

    with saying(f"writing {'the page' if output == '-' else output}"):
        content = written_as(document, ".html" if output == "-" else check_suffix(output))
        if output != "-":
            write_whole(output, content)
    if output == "-":
        sys.stdout.write(content.decode())
        return
    note(f"written to {output}")
