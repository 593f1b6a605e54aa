"""The parameters of a sketch file: JSON of bounded size, every value of the right type and in range.

All are public: none depends on the data. They are checked before anything is made of them: no number in a file, however
consistent with its digest, makes a later step run for hours or out of memory. docs/format.md lists them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NoReturn

from ...arrays import Int64
from ...errors import FormatError
from ...layout import Account, Labels, Layout, guarantee, usual_unit
from ...noise import DiscreteLaplace
from ..cells import FileCells
from .flatbuffer import MOST_PARAMETERS

__all__ = ["Stored", "parameters_of", "parse_parameters"]

_FRACTION = re.compile(r"[0-9]{1,60}(/[0-9]{1,60})?")
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")
_IDENTITY = re.compile(r"[0-9a-f]{32}")
NOTHING_SAID = Labels()
LISTS = ("site", "period", "column", "report_ids")


@dataclass(frozen=True, eq=False)
class Stored:
    """What a file holds.

    cells : the noisy counts
    noise, layout, account : the public parameters
    identities : the random identities (16 bytes each) of the noise vectors added up in the cells
    labels : what is said about it
    """

    cells: Int64 | FileCells
    noise: DiscreteLaplace
    layout: Layout
    account: Account
    identities: frozenset[bytes]
    labels: Labels = NOTHING_SAID


def parameters_of(stored: Stored) -> bytes:
    """Return the parameters as canonical JSON: sorted keys, no spaces, UTF-8."""
    layout, account = stored.layout, stored.account
    values = {
        **stored.labels.to_dict(),
        "account": account.to_dict(),
        "cells": layout.cells,
        "domain": layout.domain,
        "epsilon": str(stored.noise.epsilon),
        "fingerprint": layout.fingerprint,
        "guarantee": guarantee(
            stored.noise, layout, account, len(stored.identities), len(stored.labels.report_ids)
        ),
        "hash_seed": layout.hash_seed,
        "identities": sorted(identity.hex() for identity in stored.identities),
        "item_types": layout.item_types,
        "kind": layout.kind,
        "levels": layout.levels,
        "max_contributions": layout.max_contributions,
        "pan_private": layout.pan_private,
        "power": str(stored.noise.power),
        "rate": None if layout.rate is None else str(layout.rate),
        "unit": stored.labels.unit or usual_unit(layout),
    }
    return json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def parse_parameters(parameters: bytes, version: int) -> dict[str, Any]:
    """Return noise, layout, account, identities and labels out of the JSON, everything checked."""
    if len(parameters) > MOST_PARAMETERS:
        raise FormatError("its parameters are longer than 1 MB")
    values = json.loads(parameters, object_pairs_hook=_object, parse_constant=_no_number)
    if not isinstance(values, dict):
        raise FormatError("its parameters must be a JSON object")
    layout = _layout(values)
    noise = DiscreteLaplace(_fraction(values, "epsilon"), _fraction(values, "power"))
    if noise.power < 1:
        raise FormatError(f"its power must be ≥ 1, got {noise.power}")
    spent = _field(values, "account", dict)
    identities = _texts(values, "identities")
    if not identities or len(set(identities)) != len(identities) or not all(map(_IDENTITY.fullmatch, identities)):
        raise FormatError("its identities must be a list of 32 hexadecimal digits each, all different")
    return {
        "layout": layout,
        "noise": noise,
        "account": Account(
            calls=_field(spent, "calls", int), promised=_field(spent, "promised", int),
            as_items=_field(spent, "as_items", int, 0),
        ),
        "identities": frozenset(bytes.fromhex(identity) for identity in identities),
        "labels": _labels(values, layout) if version > 1 else Labels(unit=usual_unit(layout)),
    }


def _layout(values: dict[str, Any]) -> Layout:
    types = _field(values, "item_types", list, None)
    layout = Layout(
        kind=_field(values, "kind", str),
        cells=_field(values, "cells", int),
        domain=_field(values, "domain", int, None),
        rate=_fraction(values, "rate") if values.get("rate") is not None else None,
        levels=_field(values, "levels", int),
        hash_seed=_field(values, "hash_seed", int, None),
        item_types=None if types is None else tuple(_texts(values, "item_types")),
        fingerprint=_field(values, "fingerprint", str, None),
        max_contributions=_field(values, "max_contributions", int, None),
        pan_private=_field(values, "pan_private", bool),
    )
    _require_whole(layout)
    return layout


def _labels(values: dict[str, Any], layout: Layout) -> Labels:
    """Return the labels; the unit must fit the limit per person."""
    texts: dict[str, Any] = {name: _field(values, name, str) for name in ("label", "unit", "created")}
    if (texts["unit"] == "occurrence") != (layout.max_contributions is None) or not texts["unit"]:
        wanted = "occurrence" if layout.max_contributions is None else "a name other than occurrence"
        raise FormatError(f"its unit must be {wanted}, got {texts['unit']!r}")
    lists: dict[str, Any] = {name: tuple(_texts(values, name)) for name in LISTS}
    labels = Labels(**texts, **lists)
    if any(getattr(labels, name) != lists[name] for name in LISTS):
        raise FormatError("its sites, periods and report ids must be sorted, each once")
    return labels


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a key that stands twice: readers disagree about which one counts."""
    values = dict(pairs)
    if len(values) != len(pairs):
        raise FormatError("its parameters must hold each key once")
    return values


def _no_number(name: str) -> NoReturn:
    raise FormatError(f"its parameters must be JSON, got {name}")


def _field(values: dict[str, Any], name: str, kind: type, *default: Any) -> Any:
    value = values.get(name)
    if value is None and default:
        return default[0]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise FormatError(f"its parameter {name} must be of type {kind.__name__}, got {type(value).__name__}")
    return value


def _texts(values: dict[str, Any], name: str) -> list[str]:
    texts = _field(values, name, list)
    if not all(isinstance(text, str) for text in texts):
        raise FormatError(f"its {name} must be a list of texts")
    return list(texts)


def _fraction(values: dict[str, Any], name: str) -> Fraction:
    text = _field(values, name, str)
    if not _FRACTION.fullmatch(text):
        raise FormatError(f"its parameter {name} must be a fraction such as 1/3")
    try:
        return Fraction(text)
    except ZeroDivisionError:
        raise FormatError(f"its parameter {name} must be a fraction, got a zero denominator") from None


def _require_whole(layout: Layout) -> None:
    """Refuse parameters that contradict each other."""
    size, rest = divmod(layout.cells, layout.levels)
    if layout.kind == "direct":
        raise FormatError("its kind must be that of a sketch, got 'direct'")
    if layout.kind == "hashed" and (rest or size & (size - 1) or layout.hash_seed is None):
        raise FormatError(f"a hashed sketch must have levels of 2^k cells, got {layout.cells} in {layout.levels}")
    if layout.kind == "known" and layout.domain != layout.cells:
        raise FormatError(f"a known sketch must have one cell per item, got {layout.domain} and {layout.cells}")
    if layout.kind == "sampled" and (layout.domain is None or layout.rate is None or layout.hash_seed is None):
        raise FormatError("a sampled sketch must state domain, rate and hash_seed")
    if layout.kind == "sampled":
        _require_sample(layout)
    if layout.fingerprint is not None and not _FINGERPRINT.fullmatch(layout.fingerprint):
        raise FormatError("its fingerprint must be 64 hexadecimal digits")
    if layout.kind != "hashed" and layout.fingerprint is None and layout.item_types not in (None, ("int",)):
        raise FormatError(f"a domain 0…d−1 must have items of type int, got {layout.item_types}")


def _require_sample(layout: Layout) -> None:
    """Refuse a number of cells that no sample has: going on draws it anew, and must need no more memory than the file.

    The number of items whose hash is below the rate is binomial: eleven standard deviations off once in 10^27 files.
    """
    assert layout.domain is not None
    assert layout.rate is not None
    expected = layout.rate * layout.domain
    off = abs(layout.cells - expected) - 11
    if off > 0 and off * off > 121 * expected:
        raise FormatError(f"a sampled sketch must have about rate·domain = {float(expected):.6g} cells")
