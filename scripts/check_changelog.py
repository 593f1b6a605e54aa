"""Refuse a state in which the code has changed since CHANGELOG.md last moved.

A commit that changes src/unnoise must change CHANGELOG.md too, or be followed by one that does on its own line of
history; uncommitted changes likewise. A shallow clone has no history to judge, so only what is not committed counts;
outside a git checkout nothing is said.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE, CODE = "CHANGELOG.md", "src/unnoise"


def git(*words: str, root: Path = ROOT) -> str | None:
    """What git prints, or None where it fails."""
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def unmentioned(root: Path = ROOT) -> list[str]:
    """Files of the code that changed since the changelog did."""
    if git("diff", "HEAD", "--", PAGE, root=root):
        return []
    changed = (git("diff", "--name-only", "HEAD", "--", CODE, root=root) or "").split()
    if git("rev-parse", "--is-shallow-repository", root=root) == "false":
        told = (git("rev-list", "-n", "300", "--full-history", "HEAD", "--", PAGE, root=root) or "").split()
        since = git("log", "--no-merges", "--format=", "--name-only", "HEAD", "--not", *told, "--", CODE, root=root)
        changed += (since or "").split()
    return sorted(set(changed))


def main() -> None:
    changed = unmentioned()
    if changed:
        names = ", ".join(changed[:5]) + (f" and {len(changed) - 5} more" if len(changed) > 5 else "")
        sys.exit(f"CHANGELOG.md must move with every change of the code: since it did, {names} changed; add a line")


if __name__ == "__main__":
    main()
