"""Messages of the share protocol: bytes of a fixed layout, checked whole before use, never pickled::

    4 bytes "UNSH" | 1 byte version | 1 byte kind | 4 bytes length of the head | head: canonical JSON
    | payload | 32 bytes SHA-256 of all before

Numbers are little-endian. Kinds: 1 task, 2 share of cells, 3 offer, 4 agreement, 5 answer. The digest finds damage, not
forgery: who sent a message is for the transport to prove (TLS), and nothing secret rests on it.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Mapping
from typing import Any, Literal, NoReturn

from ...errors import FormatError
from ...layout import Account

__all__ = ["Kind", "canonical", "digest_of", "pack", "read_account", "read_ids", "read_text", "unpack"]

Kind = Literal["task", "share", "offer", "agreement", "answer"]

MAGIC = b"UNSH"
VERSION = 1
KINDS: dict[Kind, int] = {"task": 1, "share": 2, "offer": 3, "agreement": 4, "answer": 5}
LONGEST_HEAD = 1 << 24
"""Bytes of a head: the ids of some 100,000 reports."""

ACCOUNT = {"calls", "promised", "as_items"}
ID = re.compile(r"[0-9a-f]{32}")
_START = struct.Struct("<4sBBI")


def canonical(values: Mapping[str, Any]) -> bytes:
    """Return JSON with sorted keys, no spaces, UTF-8."""
    return json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def digest_of(data: bytes) -> str:
    """Return SHA-256 as 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def pack(kind: Kind, head: Mapping[str, Any], payload: bytes | memoryview = b"") -> bytes:
    """Return a message."""
    text = canonical(head)
    body = b"".join([_START.pack(MAGIC, VERSION, KINDS[kind], len(text)), text, payload])
    return body + hashlib.sha256(body).digest()


def unpack(message: bytes, kind: Kind) -> tuple[dict[str, Any], memoryview]:
    """Return head and payload of a message of this kind, or raise :class:`FormatError`."""
    if not isinstance(message, bytes | bytearray | memoryview):
        raise FormatError(f"message must be bytes, got {type(message).__name__}")
    data = memoryview(message)
    if len(data) < _START.size + 32:
        raise FormatError(f"message must be at least {_START.size + 32} bytes long, got {len(data)}")
    magic, version, number, length = _START.unpack_from(data)
    if magic != MAGIC or version != VERSION:
        raise FormatError(f"message must begin with UNSH and version {VERSION}, got {bytes(data[:5])!r}")
    if number != KINDS[kind]:
        raise FormatError(f"message must be of kind {KINDS[kind]} ({kind}), got {number}")
    end = _START.size + length
    if length > LONGEST_HEAD or end + 32 > len(data):
        raise FormatError("message must hold its head whole: truncated")
    if hashlib.sha256(data[:-32]).digest() != data[-32:]:
        raise FormatError("message digest must match its content: damaged")
    return _read_head(bytes(data[_START.size : end])), data[end:-32]


def _read_head(text: bytes) -> dict[str, Any]:
    try:
        head = json.loads(text, parse_constant=_no_number)
        if isinstance(head, dict) and canonical(head) == text:
            return head
    except (ValueError, RecursionError) as error:  # lone surrogates come in as escapes and cannot go out again
        raise FormatError(f"head must be JSON: {error}") from None
    raise FormatError("head must be a JSON object with sorted keys and no spaces")


def _no_number(name: str) -> NoReturn:
    raise FormatError(f"head must be JSON, got {name}")


def read_text(head: Mapping[str, Any], name: str, form: re.Pattern[str] | None = None) -> str:
    """Return a text of the head, of the given form."""
    value = head.get(name)
    if not isinstance(value, str) or not (form.fullmatch(value) if form else 0 < len(value) <= 200):
        raise FormatError(f"{name} must be {'an id' if form else 'a text of 1 to 200 characters'}, got {value!r:.80}")
    return value


def read_ids(head: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return a list of report ids: sorted, distinct, not empty."""
    values = head.get(name)
    if not isinstance(values, list) or not all(isinstance(v, str) and ID.fullmatch(v) for v in values):
        raise FormatError(f"{name} must be a list of ids of 32 hexadecimal digits")
    if not values or sorted(set(values)) != values:
        raise FormatError(f"{name} must be sorted, distinct and at least one")
    return tuple(values)


def read_account(head: Mapping[str, Any]) -> Account:
    """Return what persons have spent."""
    spent = head.get("account")
    if not isinstance(spent, dict) or not {"calls", "promised"} <= set(spent) <= ACCOUNT:
        raise FormatError("account must hold calls and promised, and as_items or nothing else")
    try:
        return Account(**spent)
    except ValueError as error:
        raise FormatError(str(error)) from None
