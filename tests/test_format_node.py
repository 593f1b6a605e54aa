"""A reader in another language, written from docs/format.md alone, agrees: parameters, digest, cells, hashes.

Needs ``node``; the files also apache-arrow, which ``make node`` installs into the virtual environment.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from unnoise.layout import hashed_layout
from unnoise.sketches.domain import read_domain, sampled_cells
from unnoise.sketches.format import RUN
from unnoise.sketches.hashing import cells_of, hash_columns
from unnoise.sketches.sketch import Sketch

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "format.md"
MODULES = Path(sys.prefix) / "lib" / "node_modules"

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
arrow = pytest.mark.skipif(not (MODULES / "apache-arrow").is_dir(), reason="needs apache-arrow for node: make node")


def node(*arguments: object, given: Any = None) -> Any:
    done = subprocess.run(
        ["node", str(HERE / "node" / "read_sketch.js"), *map(str, arguments)],
        input=json.dumps(given), capture_output=True, text=True, check=True, timeout=600,
        env={**os.environ, "NODE_PATH": str(MODULES)},
    )  # fmt: skip
    return json.loads(done.stdout)


def test_every_vector_of_the_page(tmp_path: Path) -> None:
    assert node("page", PAGE) == {"vectors": 24, "prints": 3, "wrong": []}
    text = PAGE.read_text()
    for old, new in (("b234ec3bcaddaab8", "b234ec3bcaddaab9"), ("| 43704 |", "| 43705 |"), ("7571c73b", "7571c73c")):
        assert old in text
        (tmp_path / "page.md").write_text(text.replace(old, new))
        assert len(node("page", tmp_path / "page.md")["wrong"]) == 1


TEXTS = ["", "a", "unnoise", "é", "漢字🦀", "x" * 31, "x" * 32, "x" * 33, "y" * 1000, "00123"]


@pytest.mark.parametrize("levels", [1, 16, 40])
@pytest.mark.parametrize("seed", [0, 7, 2**53 - 1])
def test_cells_of_items(levels: int, seed: int) -> None:
    layout = hashed_layout(2**20, levels, hash_seed=seed)
    numbers = np.arange(len(TEXTS)) * 10**15 - 4
    numbers = numbers // 2**10  # whole in JSON
    expected = cells_of(hash_columns([numbers, pl.Series(TEXTS)], seed), layout)
    items = [[int(number), text] for number, text in zip(numbers, TEXTS)]
    public = {"kind": "hashed", "cells": layout.cells, "levels": levels, "hash_seed": seed}
    assert node("hash", given={"items": items, "layout": public}) == expected.tolist()
    public["hash_seed"] += 1
    assert node("hash", given={"items": items, "layout": public}) != expected.tolist()


@pytest.mark.parametrize("rate", ["1/4", "2/7", "1"])
def test_samples(rate: str) -> None:
    from fractions import Fraction

    expected = sampled_cells(read_domain(500), Fraction(rate), 3)
    public = {"kind": "sampled", "rate": rate, "hash_seed": 3}
    ranks = node("hash", given={"items": [[i] for i in range(500)], "layout": public})
    assert [i for i, rank in enumerate(ranks) if rank >= 0] == expected.tolist()
    assert [rank for rank in ranks if rank >= 0] == list(range(expected.size))


def stored_parameters(path: Path) -> dict[str, Any]:
    with pa.OSFile(str(path)) as source:
        values = json.loads(pa.ipc.open_file(source).schema.metadata[b"unnoise.parameters"])
    values["hash_seed"] = None if values["hash_seed"] is None else str(values["hash_seed"])
    return dict(values)


MAKE = {
    "hashed": lambda: Sketch.hashed(2**10, epsilon=0.3, hash_seed=2**64 - 1, labels={"site": "Zürich 🦀"}),
    "levels": lambda: Sketch.hashed(2**10, epsilon=1, levels=5, item_types=["int", "str"]),
    "list": lambda: Sketch.known(["a", "b", "é"], epsilon=2, max_contributions=3, labels={"unit": "household"}),
    "sampled": lambda: Sketch.sampled(1000, rate=0.1, epsilon=1, hash_seed=9),
    "more than a run": lambda: Sketch.known(RUN + 5, epsilon=1),
    "merged": lambda: reduce(add, (Sketch.known(99, epsilon=1) for _ in range(3))),
}


@arrow
def test_files_of_all_kinds(tmp_path: Path) -> None:
    paths = {kind: tmp_path / f"{i}.sketch" for i, kind in enumerate(MAKE)}
    sketches = {kind: make() for kind, make in MAKE.items()}
    for kind, sketch in sketches.items():
        sketch.save(paths[kind])
    golden = [HERE / "golden" / "sketch-v1.arrow", HERE / "golden" / "sketch-v2.arrow"]
    found = node("file", *paths.values(), *golden)
    for path, read in zip([*paths.values(), *golden], found):
        assert read["whole"], path
        assert read["parameters"] == stored_parameters(path)
        assert list(map(int, read["cells"])) == Sketch.load(path).release().counts.tolist()
    assert [read["version"] for read in found] == [2] * len(paths) + [1, 2]


@arrow
def test_it_tells_damage(tmp_path: Path) -> None:
    """The negative control: one byte changed in cells or parameters is not whole for the other reader either."""
    raw = (HERE / "golden" / "sketch-v2.arrow").read_bytes()
    cells = raw.index((-100).to_bytes(8, "little", signed=True))
    places = {"cell": cells, "label": raw.index(b"Golden"), "label in the footer": raw.rindex(b"Golden")}
    for name, at in places.items():
        changed = bytearray(raw)
        changed[at] ^= 1
        path = tmp_path / name
        path.write_bytes(changed)
        assert not node("file", path)[0]["whole"], name
