"""Nothing observable depends on the data but through the noise."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pyarrow as pa
import pytest

from sketch_tools import make
from unnoise.sketches.sketch import Sketch

SECRET = 987_654_321
"""A count that no noise reaches: if it shows anywhere, an exact value has leaked."""


def exact_texts(sketch: Sketch, path: Path) -> list[str]:
    """Everything a sketch says about itself, except its noisy cells."""
    texts = [repr(sketch), str(sketch), sketch.guarantee, repr(sketch.layout), repr(sketch.release())]
    sketch.save(path)
    with pa.memory_map(str(path)) as source:
        metadata = pa.ipc.open_file(source).schema.metadata
    return texts + [value.decode() for value in metadata.values()]


def test_no_exact_value_in_file_repr_or_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    texts: list[list[str]] = []
    for rows in (1, 12_347):
        sketch = make(epsilon=2)
        sketch.update(["secret-item"] * rows, [SECRET] * rows)
        sketch._identities = frozenset([bytes(16)])
        texts.append([t for t in exact_texts(sketch, tmp_path / "a") if not is_digest(t)])
    assert texts[0] == texts[1]  # the same words whatever the data
    everything = "".join(texts[1]) + caplog.text
    assert "secret-item" not in everything
    for number in (SECRET, 12_347, SECRET * 12_347):
        assert str(number) not in everything
        assert f"{number:,}" not in everything


def is_digest(text: str) -> bool:
    return len(text) == 64 and all(c in "0123456789abcdef" for c in text)


def test_file_holds_noisy_cells_only(tmp_path: Path) -> None:
    sketch = Sketch.known(["secret-item", "other"], epsilon=1)
    sketch.update(["secret-item"] * 5)
    sketch.save(tmp_path / "a")
    raw = (tmp_path / "a").read_bytes()
    assert b"secret-item" not in raw
    assert json.loads(pa.ipc.open_file(str(tmp_path / "a")).schema.metadata[b"unnoise.parameters"])["cells"] == 2


