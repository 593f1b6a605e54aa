"""docs/privacy.md: every claim names tests, and every test it names exists."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "privacy.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/\w+\.py)::(\w+)`", PAGE)))


@cache
def functions(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_every_test_that_is_named_exists(path: str, name: str) -> None:
    assert name in functions(path)
    assert f"{name}_and_more" not in functions(path)


def test_every_claim_names_a_test() -> None:
    claims = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| claim")]
    assert len(claims) > 30
    assert [line for line in claims if "`tests/" not in line.split("|")[2]] == []


def test_what_is_not_protected_is_said() -> None:
    for word in ("Timing", "Private attributes", "executors", "Repeated intrusions", "Forgery"):
        assert word in PAGE.split("What is *not* protected")[1]
