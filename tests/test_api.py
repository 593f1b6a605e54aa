"""The public surface, word for word: what changes here changes for users, and stands in the CHANGELOG.

``UNNOISE_SNAPSHOT=1 pytest tests/test_api.py`` writes tests/golden/api.txt anew after a change that was meant.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
from pathlib import Path

import unnoise as un

SNAPSHOT = Path(__file__).parent / "golden" / "api.txt"


def described() -> str:
    """Every exported name with its signature; of classes also the public methods and properties."""
    lines = []
    for name in un.__all__:
        value = getattr(un, name)
        if inspect.isclass(value):
            lines.append(f"class {name}({', '.join(base.__name__ for base in value.__bases__)})")
            lines += [f"  {line}" for line in members(value)]
        elif callable(value):
            lines.append(f"{name}{signature(value)}")
        else:
            lines.append(f"module {name}: {', '.join(sorted(getattr(value, '__all__', [])))}")
    return "\n".join(lines) + "\n"


def members(kind: type) -> list[str]:
    found, derived = [], computed(kind)
    for name in sorted({*vars(kind), *derived}):
        if name.startswith("_"):
            continue
        value = inspect.getattr_static(kind, name, None)
        if isinstance(value, classmethod | staticmethod):
            found.append(f"{type(value).__name__} {name}{signature(value.__func__)}")
        elif inspect.isfunction(value):
            found.append(f"{name}{signature(value)}")
        elif isinstance(value, property) or hasattr(value, "func") or name in {*classwide(kind), *derived}:
            found.append(name)
    return found


def computed(kind: type) -> list[str]:
    """Fields that no caller gives: made from the others when the object is."""
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    return [field.name for field in fields if not field.init and field.name in vars(kind).get("__annotations__", {})]


def classwide(kind: type) -> list[str]:
    return [name for name, what in vars(kind).get("__annotations__", {}).items() if str(what).startswith("ClassVar")]


def signature(value: object) -> str:
    shown = inspect.signature(value)  # type: ignore[arg-type]
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in shown.parameters.values()]
    return str(shown.replace(parameters=bare, return_annotation=inspect.Signature.empty))


def test_the_public_surface_is_as_written_down():
    now = described()
    if os.environ.get("UNNOISE_SNAPSHOT"):
        SNAPSHOT.write_text(now)
    assert now == SNAPSHOT.read_text(), "a public name or signature changed: see the module's first lines"
