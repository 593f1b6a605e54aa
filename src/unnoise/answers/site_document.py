"""Answers of many sites as files: the documents behind ``-o`` of ``union``, ``overlap`` and ``table``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .consistent import SiteTable
from .estimate import Estimate
from .export import Document, _plain_page
from .questions import mark

__all__ = ["answers_document", "table_document"]

ABOUT = {
    "interval": "contains the truth in 95 % of the releases",
    "noise": "every site put its own on its sketch before it left; nothing here costs more ε",
}


def answers_document(found: Mapping[str, Estimate], files: Sequence[str]) -> Document:
    """Return what is to be written about named answers from sketches beside each other."""
    rows = list(found.values())
    table: dict[str, list[Any]] = {
        "answer": list(found), "estimate": [e.value for e in rows], "low": [e.low for e in rows],
        "high": [e.high for e in rows], "data_share": [e.data_share for e in rows], "note": [mark(e) for e in rows],
    }  # fmt: skip
    name, first = next(iter(found.items()))
    lead = f"{name.capitalize()} of {len(files)} sketches: {first.value:,.0f} ({first.low:,.0f} to {first.high:,.0f})."
    whole = {**{name: estimate.to_dict() for name, estimate in found.items()}, "sketches": list(files)}
    return _document("Sites beside each other", lead, table, whole)


def table_document(found: SiteTable) -> Document:
    """Return what is to be written about a consistent table."""
    last, reach = found.rows[-1], found.rows[-1].reach
    lead = f"{' + '.join(last.sites)} reached {reach.value:,.0f} ({reach.low:,.0f} to {reach.high:,.0f})."
    return _document("Reach of sites and periods", lead, found.columns(), {"rows": found.to_dict()})


def _document(title: str, lead: str, table: Mapping[str, Sequence[Any]], whole: Mapping[str, Any]) -> Document:
    shown = {"answers": table}
    return Document(title, lead, table, shown, ABOUT, whole, lambda: _plain_page(title, lead, shown, ABOUT))
