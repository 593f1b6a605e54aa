"""The public parameters of a sketch or noisy histogram: what its cells are.

Nothing here depends on the data, so everything here may be printed, stored and compared.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Literal

from .errors import IncompatibleError, InputError

__all__ = ["ITEM_TYPES", "Kind", "Layout"]

Kind = Literal["known", "hashed", "sampled"]
ITEM_TYPES = ("int", "str")


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What the cells of a sketch stand for.

    kind : "known" (one cell per item of a declared domain; also noisy histograms from elsewhere),
        "hashed" (items fall into cells by their hash), "sampled" (cells for a hashed sample of a domain)
    cells : number of cells, over all levels
    domain : size of the declared domain (known, sampled), else None
    rate : sampling rate of the domain (sampled), else None
    levels : number of levels (hashed), 1 when there is only one
    hash_seed : seed of the hash chain (hashed, sampled), else None
    item_types : "int" or "str" for each column of an item, None until known
    fingerprint : hex digest of the declared list of items (known by list), else None
    max_contributions : c, the occurrences one person may add in one ingestion call, or None
    pan_private : whether fresh noise is added at release as well
    """

    kind: Kind
    cells: int
    domain: int | None = None
    rate: Fraction | None = None
    levels: int = 1
    hash_seed: int | None = None
    item_types: tuple[str, ...] | None = None
    fingerprint: str | None = None
    max_contributions: int | None = None
    pan_private: bool = False

    def __post_init__(self) -> None:
        if self.kind not in ("known", "hashed", "sampled"):
            raise InputError(f"kind must be 'known', 'hashed' or 'sampled', got {self.kind!r}")
        if self.cells < 1:
            raise InputError(f"cells must be ≥ 1, got {self.cells}")

    def require_equal(self, other: Layout) -> None:
        """Raise :class:`IncompatibleError`, naming the field and both values, unless the layouts agree."""
        for field in fields(self):
            left, right = getattr(self, field.name), getattr(other, field.name)
            if left != right:
                raise IncompatibleError(field.name, left, right)
