"""Targets: sketch files and sets of groups, damaged as they are, and damaged with their digests made good again."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import _corpus
import numpy as np
from _children import Target, Unnoticed
from _mutations import WORDS, damaged, hostile_json

from unnoise.errors import FormatError
from unnoise.reading.groups import GroupedSketch
from unnoise.sketches import format as sketch_files
from unnoise.sketches.cells import each_run
from unnoise.sketches.flatbuffer import Frame, read_frame
from unnoise.sketches.format import digest_of, digest_of_runs
from unnoise.sketches.sketch import Sketch


@dataclass
class File:
    """A hostile file: its bytes, and whether its digest is that of an honest writer of such bytes."""

    data: bytes
    repaired: bool = False


# ── sketch files ──────────────────────────────────────────────────────────────────────────────────────────────────

GOOD = _corpus.sketch_files()
UNCHANGED = frozenset(GOOD)
ANSWERED, GOES_ON = 16, 1 << 20
"""One in so many accepted files is also answered from; sampled domains up to this size are hashed anew."""


def make_sketch(rng: random.Random) -> File:
    """Damage a sketch file, or forge one with hostile parameters or cells."""
    at = rng.randrange(len(GOOD))
    good = GOOD[at]
    if rng.random() < 0.45:
        data = damaged(rng, good, GOOD)
        return File(repaired(data), True) if rng.random() < 0.6 else File(data)
    frame = FRAMES[at]
    values = json.loads(frame.metadata[b"unnoise.parameters"])
    cells = np.frombuffer(good, "<i8", frame.rows, len(frame.head)).copy()
    text = frame.metadata[b"unnoise.parameters"]
    if rng.random() < 0.8:
        text = hostile_json(rng, values)
    else:
        for _ in range(rng.randrange(1, 5)):
            cells[rng.randrange(cells.size)] = rng.choice(WORDS)
    version = rng.choice((b"1", b"2", b"2", b"2", b"3", b"0", b"\xff"))
    return File(repaired(forged(text, cells, version)), True)


def frame_of(data: bytes) -> Frame:
    """Return what stands around the cells."""

    def take(position: int, length: int) -> bytes:
        if position < 0 or length < 0 or position + length > len(data):
            raise FormatError("truncated")
        return data[position : position + length]

    return read_frame(take, len(data))


FRAMES = [frame_of(good) for good in GOOD]


def forged(text: bytes, cells: np.ndarray, version: bytes) -> bytes:
    """Write a file with these parameters and cells through Arrow."""
    import pyarrow as pa

    metadata = {
        b"unnoise": b"sketch", b"unnoise.version": version, b"unnoise.parameters": text, b"unnoise.digest": b"0" * 64,
    }  # fmt: skip
    schema = pa.schema([pa.field("noisy_count", pa.int64(), nullable=False)], metadata=metadata)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(pa.record_batch([pa.array(cells)], schema=schema))
    return sink.getvalue().to_pybytes()


def repaired(data: bytes) -> bytes:
    """Return the file with the digest that belongs to it; where it has no place for one, as it is."""
    try:
        frame = frame_of(data)
    except Exception:  # what cannot be parsed is refused before its digest is looked at
        return data
    start = len(frame.head)
    raw = memoryview(data)[start : start + 8 * frame.rows]
    digests = each_run(frame.rows, lambda run: hashlib.sha256(raw[8 * run.start : 8 * run.stop]).digest())
    first = frame.metadata.get(b"unnoise.version") == b"1"
    text = frame.metadata.get(b"unnoise.parameters", b"")
    head, tail = frame.with_digest(digest_of_runs(text, digests) if first else digest_of(frame, digests))
    return head + bytes(raw) + tail


def use_sketch(file: File) -> None:
    """Load it, and do with it what anybody might do."""
    handle = os.memfd_create("sketch")
    try:
        os.write(handle, file.data)
        path = f"/proc/self/fd/{handle}"
        sketch = Sketch.load(path)
        if not file.repaired and file.data not in UNCHANGED:
            _require_same(sketch, file.data)
        handled(sketch, merged_with=path)
    finally:
        os.close(handle)


def _require_same(sketch: Sketch, data: bytes) -> None:
    """A file that was damaged and not repaired is version 1, in bytes that mean nothing to any reader."""
    frame = frame_of(data)
    text = frame.metadata[b"unnoise.parameters"]
    at = next((i for i, known in enumerate(FRAMES) if known.metadata[b"unnoise.parameters"] == text), None)
    if frame.metadata[b"unnoise.version"] != b"1" or at is None:
        raise Unnoticed(f"version {frame.metadata[b'unnoise.version']!r}")
    if sketch.release().counts.tobytes() != GOOD[at][len(FRAMES[at].head) :][: 8 * frame.rows]:
        raise Unnoticed("other cells")


def handled(sketch: Sketch, merged_with: str = "") -> None:
    """Print, release, go on, merge and, now and then, answer."""
    _ = repr(sketch), sketch.guarantee, sketch.labels, sketch.person_epsilon, sketch.epsilon
    noisy = sketch.release()
    profile = noisy.profile()
    if zlib.crc32(noisy.counts.tobytes() + repr(sketch.layout).encode()) % ANSWERED == 0:
        from unnoise.answers.reconstruct import reconstruct

        _ = reconstruct(profile, method="isotonic").total
    if merged_with:
        try:
            sketch.merge(Sketch.load(merged_with))  # the same noise twice
        except Exception as error:
            if "identit" not in str(error) and "twice" not in str(error):
                raise
        else:
            raise Unnoticed("merged with itself")
    if sketch.layout.fingerprint is None and (sketch.layout.domain or 0) <= GOES_ON:
        sketch.begin_epoch()
        kinds = sketch.layout.item_types or ("int",)
        sketch.update({f"c{i}": [1] if kind == "int" else ["a"] for i, kind in enumerate(kinds)})


def sketches() -> Target:
    """Sketch files."""
    return Target(
        make_sketch, use_sketch,
        {"traceback": _bare_errors, "hang": _waiting_for_more, "memory": _trusting_lengths, "unnoticed": _no_digest},
    )  # fmt: skip


def _bare_errors() -> None:
    """Let whatever parsing raises leave as it is."""

    @contextlib.contextmanager
    def opened(name: str) -> Iterator[int]:
        handle = os.open(name, os.O_RDONLY)
        try:
            yield handle
        finally:
            os.close(handle)

    sketch_files._opened = opened


def _waiting_for_more() -> None:
    """Wait for bytes that a file declares and does not have, as a reader of streams might."""
    real = sketch_files.read_frame

    def waiting(take: Any, size: int) -> Frame:
        while int.from_bytes(take(size - 10, 4), "little", signed=True) > size:
            pass
        return real(take, size)

    sketch_files.read_frame = waiting


def _trusting_lengths() -> None:
    """Make room for what the file declares before looking whether it is there."""
    real = sketch_files.read_frame

    def trusting(take: Any, size: int) -> Frame:
        length = int.from_bytes(take(size - 10, 4), "little", signed=True)
        _ = np.ones(min(max(length, 0), 2**29) // 8, dtype=np.int64)
        return real(take, size)

    sketch_files.read_frame = trusting


def _no_digest() -> None:
    real = sketch_files.FileCells

    def trusting(handle: int, start: int, rows: int, name: str, agrees: Any) -> Any:
        return real(handle, start, rows, name, lambda digests: True)

    sketch_files.FileCells = trusting


# ── sets of groups ────────────────────────────────────────────────────────────────────────────────────────────────

SET = _corpus.group_set()
LIST = json.loads(SET["groups.json"])
NAMES = [name for name in SET if name != "groups.json"]


@dataclass
class Folder:
    """A hostile set: files by name, what else is there, and whether the digests were made good again."""

    files: dict[str, bytes]
    special: dict[str, str]
    repaired: bool


def make_set(rng: random.Random) -> Folder:
    """Damage the list, a file, or what is in the folder."""
    files, special, good = dict(SET), {}, rng.random() < 0.7
    kind = rng.randrange(8)
    if kind < 5:
        files["groups.json"] = hostile_json(rng, LIST)
    elif kind == 5:
        files["groups.json"] = damaged(rng, SET["groups.json"], list(SET.values()))
    elif kind == 6:
        name = rng.choice(NAMES)
        files[name] = make_sketch(rng).data
    else:
        name = rng.choice(list(SET))
        special[name] = rng.choice(("missing", "folder", "pipe", "link to itself", "link to /dev/zero", "other group"))
    if good:
        files["groups.json"] = _good_list(files)
    return Folder(files, special, good)


def _good_list(files: dict[str, bytes]) -> bytes:
    """Return the list with the digest that belongs to it, where it is enough of a list for one."""
    try:
        values = json.loads(files["groups.json"])
        rows = [
            [group, file, frame_of(files[file]).metadata[b"unnoise.digest"].decode("ascii")]
            for group, file in zip(values["groups"], values["files"])
        ]
        text = json.dumps(rows, ensure_ascii=False, separators=(",", ":"))
        digest = hashlib.sha256(b"unnoise groups 2\n" + text.encode("utf-8", "surrogatepass")).hexdigest()
        return json.dumps({**values, "digest": digest}).encode()
    except Exception:
        return files["groups.json"]


def use_set(folder: Folder) -> None:
    """Write it, load it, use it."""
    place = Path(tempfile.mkdtemp(prefix="unnoise-set-"))
    try:
        for name, data in folder.files.items():
            _put(place / name, data, folder.special.get(name, ""))
        grouped = GroupedSketch.load(place)
        changed = json.loads(folder.files["groups.json"]) != LIST or any(folder.files[n] != SET[n] for n in NAMES)
        if changed and not folder.repaired and json.loads(folder.files["groups.json"])["version"] > 1:
            _require_equal_list(folder)
        _ = repr(grouped), grouped.guarantee
        for sketch in grouped.sketches.values():
            _ = sketch.release().profile()
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _require_equal_list(folder: Folder) -> None:
    """What may differ without a digest are keys that mean nothing: groups and files must be as they were."""
    values = json.loads(folder.files["groups.json"])
    if any(values[name] != LIST[name] for name in ("groups", "files", "digest")):
        raise Unnoticed("another list")
    if any(folder.files[name] != SET[name] for name in NAMES):
        raise Unnoticed("another file")


def _put(path: Path, data: bytes, special: str) -> None:
    if special == "missing":
        return
    if special == "folder":
        path.mkdir()
    elif special == "pipe":
        os.mkfifo(path)
    elif special.startswith("link"):
        path.symlink_to("/dev/zero" if "zero" in special else path.name)
    else:
        other = next((n for n in NAMES if n != path.name), "") if special == "other group" else ""
        path.write_bytes(SET[other] if other else data)


def group_sets() -> Target:
    """Sets of groups."""
    return Target(make_set, use_set, {"traceback": _any_list, "unnoticed": _no_list_digest})


def _any_list() -> None:
    """Take the list as it is."""
    from unnoise.reading import groups

    groups._read_manifest = lambda path: json.loads(path.read_text())


def _no_list_digest() -> None:
    """Compare the digest with itself."""
    from unnoise.reading import groups

    groups._digest = lambda path, groups, files: json.loads((path / "groups.json").read_text()).get("digest")
