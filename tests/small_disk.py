"""What happens on a disk that is full, and then read-only: every file stays what it was, and nothing is half there.

Run as ``python small_disk.py FOLDER [in-place]``, where FOLDER is a small file system of its own, as
:func:`on_small_disk` mounts one; prints "fine", or ends with what was wrong. ``in-place`` writes without a rename,
which must be found.
"""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any


def on_small_disk(folder: Path, kilobytes: int, *words: str) -> str | None:
    """Run this script on a disk of that size in a namespace of its own; return what was wrong, None where none may be
    mounted."""
    (folder / "disk").mkdir(exist_ok=True)
    mount = f"mount -t tmpfs -o size={kilobytes}k tmpfs {folder}/disk || exit 77"
    command = f"{mount}; exec {sys.executable} {__file__} {folder}/disk {' '.join(words)}"
    done = subprocess.run(["unshare", "-m", "sh", "-c", command], capture_output=True, text=True, timeout=600)
    if done.returncode == 77 or "unshare" in done.stderr:
        return None
    return "" if done.stdout == "fine\n" else done.stderr.strip()[-300:] or f"exit {done.returncode}"


def fails(write: Callable[[], Any]) -> int:
    """Return the number of the system's error, 0 where there was none."""
    try:
        write()
    except OSError as error:
        return error.errno or -1
    return 0


def files_in(disk: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in disk.rglob("*") if path.is_file() and not path.name.startswith(".")}


def fill(disk: Path) -> None:
    with open(disk / "filler", "wb", buffering=0) as filler, contextlib.suppress(OSError):
        while True:
            filler.write(b"x" * 4096)


def main() -> None:
    from unnoise.guard import write_whole
    from unnoise.ledger import Ledger, read_ledger
    from unnoise.reading.groups import GroupedSketch
    from unnoise.sketches import format as files
    from unnoise.sketches.sketch import Sketch

    @contextlib.contextmanager
    def replacing_in_place(path: Any, **_: Any) -> Iterator[int]:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        try:
            yield handle
        finally:
            os.close(handle)

    if "in-place" in sys.argv:
        files.replacing = replacing_in_place  # type: ignore[assignment]
    disk = Path(sys.argv[1])
    small, large = (lambda: Sketch.known(500, epsilon=1)), (lambda: Sketch.known(150_000, epsilon=1))
    write_whole(disk / "text", "old")
    small().save(disk / "sketch")
    GroupedSketch(["A", "B"], small).save(disk / "set")
    ledger = Ledger(disk / "ledger", "visits")
    ledger.write("sketch", 1, "occurrence")
    before = files_in(disk)
    writes = [
        lambda: write_whole(disk / "text", "x" * 2 * 10**6), lambda: large().save(disk / "sketch"),
        lambda: GroupedSketch(["A", "B"], large).save(disk / "set"),
        lambda: GroupedSketch(["A", "B"], large).save(disk / "new"),
    ]  # fmt: skip
    assert [fails(write) for write in writes] == [errno.ENOSPC] * 4
    fill(disk)
    long = Ledger(disk / "ledger", ["a name that needs another page " * 300])
    assert fails(lambda: long.write("sketch", 1, "occurrence")) == errno.ENOSPC
    assert len(read_ledger(disk / "ledger")) == 1
    (disk / "filler").unlink()
    left = files_in(disk)
    assert left == before, sorted(str(path) for path in left if left[path] != before.get(path))
    GroupedSketch.load(disk / "set")

    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    sketch = small()
    assert fails(lambda: sketch.save(disk / "sketch")) != 0
    assert not sketch.sealed, "a folder that cannot be written costs nothing"
    assert fails(lambda: write_whole(disk / "text", "new")) == errno.EROFS
    assert fails(lambda: ledger.write("sketch", 1, "occurrence")) == errno.EROFS
    assert Sketch.load(disk / "sketch").sealed
    print("fine")


if __name__ == "__main__":
    main()
