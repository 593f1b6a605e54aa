"""Files and sets that are replaced as a whole, and Arrow data that are not what they say."""

from __future__ import annotations

import errno
import io
import json
import os
import random
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from small_disk import on_small_disk
from statistics_tools import farthest
from unnoise.errors import FormatError, InputError
from unnoise.guard import replacing, write_whole
from unnoise.reading.groups import MANIFEST, GroupedSketch
from unnoise.sketches.sketch import Sketch

# ── one file ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    write_whole(tmp_path / "a", "old")

    def interrupted() -> None:
        with replacing(tmp_path / "a") as handle:
            os.write(handle, b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert (tmp_path / "a").read_text() == "old"
    write_whole(tmp_path / "a", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "new"


def test_no_link_is_followed_and_no_name_is_guessed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "out").symlink_to(tmp_path / "victim")
    names = set()
    for _ in range(20):
        with replacing(tmp_path / "out") as handle:
            names |= {path.name for path in tmp_path.glob(".out.*")}
            os.write(handle, b"report")
    assert len(names) == 20, "a new name each time"
    assert (tmp_path / "victim").read_text() == "precious"
    assert not (tmp_path / "out").is_symlink()


@pytest.mark.parametrize("links", [True, False], ids=["links", "none"])
def test_of_many_new_files_of_one_name_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    """All are open when the first is named; where a file system has no links, one that is there is kept as well."""

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    lost = 0
    for index, one in enumerate([replacing(tmp_path / "out", new=True) for _ in range(5)]):
        handle = one.__enter__()
        if index == 0:
            first = (one, handle)
            continue
        os.write(handle, b"another")
        try:
            one.__exit__(None, None, None)
        except FileExistsError as error:
            lost += error.filename == str(tmp_path / "out")
    os.write(first[1], b"first")
    with pytest.raises(FileExistsError, match="another program wrote it meanwhile"):
        first[0].__exit__(None, None, None)
    assert (lost, (tmp_path / "out").read_text()) == (3, "another")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_sketch_or_set_saved_as_new_leaves_an_old_one_alone(tmp_path: Path) -> None:
    sketch = Sketch.hashed(2**6, epsilon=1, item_types=["str"])
    sketch.save(tmp_path / "a", new=True)
    grouped = GroupedSketch(["x", "y"], lambda: Sketch.hashed(2**6, epsilon=1, item_types=["str"]))
    grouped.save(tmp_path / "set", new=True)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for secret, name in ((sketch, "a"), (grouped, "set")):
        with pytest.raises(FileExistsError, match="exists by now"):
            secret.save(tmp_path / name, new=True)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_of_two_new_sets_of_one_name_the_first_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second looked before the first had its name."""
    sets = [GroupedSketch([name], lambda: Sketch.hashed(2**6, epsilon=1, item_types=["str"])) for name in "xy"]
    rename = os.rename

    def after_another(old: str, new: str) -> None:
        monkeypatch.setattr(os, "rename", rename)
        sets[0].save(tmp_path / "set", new=True)
        rename(old, new)

    monkeypatch.setattr(os, "rename", after_another)
    with pytest.raises(FileExistsError, match="exists by now"):
        sets[1].save(tmp_path / "set", new=True)
    assert GroupedSketch.load(tmp_path / "set").groups == ("x",)
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


def test_a_pipe_a_device_or_a_folder_is_never_replaced(tmp_path: Path) -> None:
    """Whoever may write to /dev would else turn /dev/null into a file."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(OSError, match="must be a file, got a folder, pipe or device"):
            write_whole(tmp_path / name, "x")
    assert (tmp_path / "pipe").is_fifo()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "pipe"]


def test_a_new_file_has_the_rights_that_are_usual(tmp_path: Path) -> None:
    write_whole(tmp_path / "a", b"x")
    (tmp_path / "b").write_bytes(b"x")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="needs a place in memory")
def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    """A limit on the size of files stands for a full disk: EFBIG instead of ENOSPC, at the same call."""
    code = """
import resource, signal, sys
from unnoise.guard import write_whole
from unnoise.sketches.sketch import Sketch
write_whole(sys.argv[1], "old")
sketch = Sketch.known(10**5, epsilon=1)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
for write in (lambda: write_whole(sys.argv[1], "x" * 10**5), lambda: sketch.save(sys.argv[1])):
    try:
        write()
    except OSError as error:
        print(error.errno)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a")], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["27", "27"]
    assert (tmp_path / "a").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_disk_that_is_full_or_read_only(tmp_path: Path) -> None:
    """A disk of 512 kB, in a namespace of its own: all files stay what they were, and nothing is half there."""
    found = on_small_disk(tmp_path, 512)
    if found is None:
        pytest.skip("mounting is not permitted here")
    assert found == "", found


# ── a set of groups ───────────────────────────────────────────────────────────────────────────────────────────

KILLED = """
import os, random, signal, sys, time
from pathlib import Path
from unnoise.reading.groups import GroupedSketch
from unnoise.sketches.sketch import Sketch

folder, rounds = Path(sys.argv[1]), int(sys.argv[2])
names = ["A", "B", "C", "D"]

def new():
    return GroupedSketch(names, lambda: Sketch.known(2000, epsilon=1))

new().save(folder)
start = time.perf_counter()
new().save(folder)
took = time.perf_counter() - start
rng, replaced, last = random.Random(3), 0, None
for _ in range(rounds):
    done, tell = os.pipe()
    child = os.fork()
    if child == 0:
        while True:
            new().save(folder)
            os.write(tell, b"x")
    if rng.random() < 0.6:
        os.read(done, 1)  # let one replacement end, however busy the machine
    time.sleep(took * rng.random())
    os.close(done)
    os.close(tell)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    loaded = GroupedSketch.load(folder)
    assert loaded.groups == tuple(names)
    now = sorted(min(sketch._identities) for sketch in loaded.sketches.values())
    replaced += now != last
    last = now
new().save(folder)
print(replaced, len(list(folder.iterdir())))
"""


def test_killed_writers_leave_a_whole_set(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "set"), "50"], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    replaced, files = map(int, done.stdout.split())
    print(f"50 kills: the set was whole each time, and another one {replaced} times")
    assert replaced > 10
    assert files == 5, "what killed writers left is swept away"


def test_a_set_can_be_written_by_several_at_once(tmp_path: Path) -> None:
    code = """
import sys
from unnoise.reading.groups import GroupedSketch
from unnoise.sketches.sketch import Sketch
for _ in range(10):
    GroupedSketch(["A", "B"], lambda: Sketch.known(50, epsilon=1)).save(sys.argv[1])
    GroupedSketch.load(sys.argv[1])
"""
    GroupedSketch(["A", "B"], lambda: Sketch.known(50, epsilon=1)).save(tmp_path / "set")
    command = [sys.executable, "-c", code, str(tmp_path / "set")]
    writers = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(3)]
    for writer in writers:
        _, errors = writer.communicate(timeout=600)
        assert writer.returncode == 0, errors
    assert GroupedSketch.load(tmp_path / "set").groups == ("A", "B")
    assert json.loads((tmp_path / "set" / MANIFEST).read_text())["generation"] == 30


def test_files_that_changed_places_are_noticed(tmp_path: Path) -> None:
    GroupedSketch(["A", "B"], lambda: Sketch.known(50, epsilon=1)).save(tmp_path / "set")
    one, two = sorted((tmp_path / "set").glob("*.sketch"))
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    with pytest.raises(FormatError, match="is not the list of these files"):
        GroupedSketch.load(tmp_path / "set")
    one.write_bytes(first)
    two.write_bytes(second)
    GroupedSketch.load(tmp_path / "set")


def test_a_set_of_version_1_is_read_and_replaced(tmp_path: Path) -> None:
    GroupedSketch(["A", "B"], lambda: Sketch.known(50, epsilon=1)).save(tmp_path / "set")
    manifest = tmp_path / "set" / MANIFEST
    values = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**{k: values[k] for k in ("unnoise", "groups", "files")}, "version": 1}))
    old = GroupedSketch.load(tmp_path / "set")
    old.save(tmp_path / "set")
    assert GroupedSketch.load(tmp_path / "set").groups == ("A", "B")
    assert len(list((tmp_path / "set").iterdir())) == 3


@pytest.mark.parametrize("content", [b"[" * 100_000, b"{", b"[]", b"\xff", b'{"unnoise": NaN}', b"x" * (1 << 25)])
def test_hostile_lists_of_groups(content: bytes, tmp_path: Path) -> None:
    GroupedSketch(["A"], lambda: Sketch.known(50, epsilon=1)).save(tmp_path / "set")
    (tmp_path / "set" / MANIFEST).write_bytes(content)
    with pytest.raises(FormatError, match="not a valid list of groups"):
        GroupedSketch.load(tmp_path / "set")


# ── Arrow data ────────────────────────────────────────────────────────────────────────────────────────────────


def stream_of(kind: Any = None) -> tuple[bytes, bytes]:
    """Return an Arrow stream of texts, and its offsets as they stand in it."""
    column = pa.array(["abc", "defg", "hi"] * 100, type=kind or pa.string())
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, pa.schema([("x", column.type)])) as writer:
        writer.write_batch(pa.record_batch([column], names=["x"]))
    return sink.getvalue(), column.buffers()[1].to_pybytes()


def with_bad_offset(value: int) -> bytes:
    raw, offsets = stream_of()
    at = raw.index(offsets[:64])
    return raw[: at + 400] + struct.pack("<i", value) + raw[at + 404 :]


@pytest.mark.parametrize("value", [2**30, 2**31 - 1, -5, -(2**31)])
def test_a_bad_offset_is_refused(value: int) -> None:
    """Followed without a check it is a SIGSEGV, or a panic of another library."""
    sketch = Sketch.hashed(64, epsilon=1)
    with pytest.raises(InputError, match="Arrow data must be valid"):
        sketch.update(pa.ipc.open_stream(with_bad_offset(value)))


def test_a_good_stream_is_counted() -> None:
    sketch = Sketch.hashed(64, epsilon=1)
    sketch.update(pa.ipc.open_stream(stream_of()[0]))
    assert abs(int(sketch.release().counts.sum()) - 300) <= farthest(64, 1) < 300


def test_bad_text_and_indices_are_refused() -> None:
    bad_text = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(struct.pack("<3i", 0, 2, 4)), pa.py_buffer(b"\xff\xfeab")]
    )
    bad_index = pa.DictionaryArray.from_arrays(pa.array([0, 7], pa.int32()), pa.array(["a"]), safe=False)
    for column in (bad_text, bad_index):
        with pytest.raises(InputError, match="Arrow data must be valid"):
            Sketch.hashed(64, epsilon=1).update(column)


@pytest.mark.parametrize("value", [2**30, -5])
def test_a_bad_offset_on_standard_input_is_one_line(value: int, tmp_path: Path) -> None:
    start = [sys.executable, "-c", "from unnoise.cli import main; main()"]
    command = [*start, "sketch", "-", "--format", "arrow", "--column", "x", "--epsilon", "1"]
    done = subprocess.run(
        [*command, "-o", str(tmp_path / "a")], input=with_bad_offset(value), capture_output=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.decode().count("\n") == 1
    assert b"Arrow data must be valid" in done.stderr
    assert not (tmp_path / "a").exists()


def test_mutated_streams_end_in_an_error_or_a_count() -> None:
    """No crash: the process that runs this is the proof."""
    raw, _ = stream_of()
    rng, outcomes = random.Random(11), {"counted": 0, "refused": 0}
    for _ in range(300):
        changed = bytearray(raw)
        for _ in range(rng.randrange(1, 4)):
            changed[rng.randrange(len(raw))] = rng.randrange(256)
        try:
            Sketch.hashed(64, epsilon=1).update(pa.ipc.open_stream(bytes(changed)))
            outcomes["counted"] += 1
        except (InputError, pa.ArrowException, OSError):
            outcomes["refused"] += 1
    print(outcomes)
    assert min(outcomes.values()) > 20
