"""Ways to make bytes and JSON hostile: small damage, and values chosen to hurt."""

from __future__ import annotations

import copy
import json
import random
import struct
from typing import Any

WORDS = (0, 1, -1, 7, 255, 256, 2**15, 2**16 - 1, 2**31 - 1, -(2**31), 2**32, 2**40, 2**62, 2**63 - 1, -(2**63))

DEEP = "[" * 3_000 + "]" * 3_000
VERY_DEEP = "[" * 200_000
VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2, 3, 16, 55, 64, 256, 2**16, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64, 2**200,
    10**4000, -(2**63), 0.5, -0.0, 1e308, 5e-324, float("nan"), float("inf"),
    "", " ", "1", "-1", "0", "1/0", "0/1", "1/3", "3/2", "1e5", "1e999999999", "1e-999999999", "9" * 60, "9" * 5000,
    "1/" + "9" * 60, "32768", "32767/3", "1/4097", "500", "501", "1e-12", "inf", "nan",
    "x" * 201, "x" * 100_000, "\x1b[2J", "\x00", "\ud800", "\u202e", "é" * 100, "漢字🦀", "=1+1", "<script>", "[red]",
    "../../../etc/passwd", "/dev/zero", "groups.json", "0" * 32, "0" * 64, "f" * 64, "g" * 64,
    "hashed", "known", "sampled", "direct", "int", "str", "occurrence", "person", "2026-11-16", "2026-02-30",
    "9999-99-99", [], {}, [None], [[]], [0] * 100_000, ["int"] * 257, ["int", "str"], ["a", "a"], ["b", "a"],
    {"calls": 0, "promised": 1}, {"calls": 2**40, "promised": 0}, {"": {}}, ["0" * 32, "0" * 32], ["\ud800"],
)  # fmt: skip


def damaged(rng: random.Random, data: bytes, others: list[bytes]) -> bytes:
    """Return the bytes with one to a few changes."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8, 30))):
        if not changed:
            return bytes(changed)
        changed = bytearray(_change(rng, changed, others))
    return bytes(changed)


def _change(rng: random.Random, data: bytearray, others: list[bytes]) -> bytes:
    at, end = rng.randrange(len(data)), rng.randrange(len(data) + 1)
    at, end = min(at, end), max(at, end)
    kind = rng.randrange(11)
    if kind < 3:
        data[at] ^= 1 << rng.randrange(8)
    elif kind == 3:
        data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    elif kind == 4:
        place = at // 4 * 4
        data[place : place + 4] = struct.pack("<i", _in(rng.choice(WORDS), 32))
    elif kind == 5:
        place = at // 8 * 8
        data[place : place + 8] = struct.pack("<q", _in(rng.choice(WORDS), 64))
    elif kind == 6:
        return bytes(data[:at])
    elif kind == 7:
        return bytes(data[:at] + data[end:])
    elif kind == 8:
        return bytes(data[:end] + data[at:end] * rng.choice((1, 1, 2, 9)) + data[end:])
    elif kind == 9:
        return bytes(data[:at] + rng.randbytes(rng.choice((1, 4, 8, 64))) + data[at:])
    else:
        other = rng.choice(others)
        cut = rng.randrange(len(other) + 1)
        return bytes(data[:at] + other[cut : cut + end - at] + data[end:])
    return bytes(data)


def _in(number: int, bits: int) -> int:
    return (number + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)


def hostile_json(rng: random.Random, values: Any) -> bytes:
    """Return the JSON of values of which one to three were replaced, left out, doubled or added."""
    changed = json.loads(json.dumps(values))
    for _ in range(rng.choice((1, 1, 2, 3))):
        changed = _replaced(rng, changed)
    text = json.dumps(changed, ensure_ascii=rng.random() < 0.8, sort_keys=rng.random() < 0.8,
                      separators=rng.choice(((",", ":"), (", ", ": "))))  # fmt: skip
    kind = rng.randrange(12)
    if kind == 0 and text.endswith("}") and text != "{}":
        text = text[:-1] + "," + text[1:]
    elif kind == 1:
        old, new = rng.choice(('""', "null", "1", "0", "[]")), rng.choice((DEEP, VERY_DEEP, "NaN", "1e400"))
        text = text.replace(old, new, 1)
    return text.encode("utf-8", "surrogatepass")


def _replaced(rng: random.Random, values: Any) -> Any:
    """Return the values with one change somewhere inside."""
    if isinstance(values, dict) and values and rng.random() < 0.93:
        name = rng.choice(sorted(values))
        kind = rng.randrange(10)
        if kind == 0:
            del values[name]
        elif kind == 1:
            values[str(rng.choice(VALUES))[:300]] = values[name]
        else:
            values[name] = _replaced(rng, values[name])
        return values
    if isinstance(values, list) and values and rng.random() < 0.7:
        at = rng.randrange(len(values))
        kind = rng.randrange(6)
        if kind == 0:
            del values[at]
        elif kind == 1:
            values.append(values[at])
        else:
            values[at] = _replaced(rng, values[at])
        return values
    if isinstance(values, int) and not isinstance(values, bool) and rng.random() < 0.4:
        return rng.choice((values + 1, values - 1, values * 2, -values))
    return copy.deepcopy(rng.choice(VALUES))  # it may be changed in turn
