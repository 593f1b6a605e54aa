"""What the caller asked for, checked and turned into a job.

The cells of all groups are numbered through: group g has the places g·m … (g+1)·m − 1, and every level of every group
is a *part* with a tally of its own. Since an occurrence lies in one group only, all groups together cost the ε of one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar

import numpy as np

from .._sampler import open_stream
from ..checks import UNKNOWN, check_choice
from ..errors import InputError
from ..layout import Kind, Layout, hashed_layout
from ..noise import DiscreteLaplace, Exact, exact_positive
from ..reading.groups import refuse_sum
from ..sketches.domain import Domain, read_domain, sampled_cells
from ..sketches.hashing import sample_limit
from . import _rows
from ._tasks import Sample, Work

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from ..ledger import Ledger

__all__ = ["Call", "ProfileRequest", "Request", "asked_as", "declared_groups", "prepare"]

BROADCAST = 1 << 20
"""Longest list of a domain that is sent to every executor; a longer one is joined by a shuffle."""


@dataclass(frozen=True)
class Call:
    """A job ready to run.

    rows : one row per occurrence, with its cell
    work : what the tasks need
    layout : public parameters of the sketch of one group
    groups : the declared groups, None when there are none
    enforced : whether a person column bounds what a person adds
    label : None, or what marks noise that protects nobody (tests)
    """

    rows: DataFrame
    work: Work
    layout: Layout
    groups: tuple[Any, ...] | None
    enforced: bool
    label: str | None

    @property
    def sizes(self) -> list[int]:
        """Cells of each part: of each level of each group."""
        levels = self.layout.levels
        return [self.layout.cells // levels] * (levels * (1 if self.groups is None else len(self.groups)))


P = ParamSpec("P")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Request:
    """What a caller asks of Spark; :func:`unnoise.spark.profile` says what each field means."""

    df: DataFrame
    columns: str | Column | Sequence[str | Column]
    _: KW_ONLY
    epsilon: Exact | None = None
    kind: Kind = "hashed"
    cells: int = 1 << 20
    levels: int | bool | None = None
    domain: Any = None
    rate: Exact | None = None
    hash_seed: int = 0
    by: str | Column | None = None
    groups: Sequence[Any] | None = None
    person: str | Column | None = None
    max_contributions: int | None = None
    unknown: str = "drop"
    ledger: Ledger | None = None

    @property
    def spending(self) -> tuple[Exact | None, str]:
        """ε of this release, and the unit it is for: all groups together keep the ε of one."""
        return self.epsilon, "occurrence" if self.max_contributions is None and self.person is None else "person"


@dataclass(frozen=True)
class ProfileRequest(Request):
    """The same, with the estimator that follows, or the model that needs none."""

    method: str = field(default="auto", kw_only=True)
    model: Literal["sketch", "direct"] = field(default="sketch", kw_only=True)
    all_groups: Exact | None = field(default=None, kw_only=True)


def asked_as(request: Callable[P, Request]) -> Callable[[Callable[[Any], Result]], Callable[P, Result]]:
    """Give a function of a request the fields of the request as its parameters."""

    def decorate(function: Callable[[Any], Result]) -> Callable[P, Result]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> Result:
            return function(request(*args, **kwargs))

        returned = function.__annotations__["return"]
        signature = inspect.signature(request).replace(return_annotation=returned)
        call.__signature__ = signature  # type: ignore[attr-defined]
        call.__annotations__ = {name: p.annotation for name, p in signature.parameters.items()} | {"return": returned}
        return call

    return decorate


def prepare(request: Request) -> Call:
    """Check everything, draw the key of the call, and return the job; nothing runs yet."""
    exact = exact_positive("epsilon", request.epsilon)
    check_choice("unknown", request.unknown, UNKNOWN)
    declared = declared_groups(request.by, request.groups)
    people = request.max_contributions
    if request.person is not None and people is None:
        raise InputError("person needs max_contributions: how many occurrences of one person count")
    table = _rows.read_rows(request.df, request.columns, by=request.by, groups=declared, person=request.person)
    items, layout = _layout(request, item_types=table.item_types, max_contributions=people)
    stream = open_stream()
    key = stream.words(32, 8).tobytes()
    listed, drop = _listed(request.df, items, layout), request.unknown == "drop"
    rows = _rows.cell_rows(table, layout, domain=listed, drop_unknown=drop)
    if request.person is not None:
        assert people is not None
        rows = _rows.cap(rows, people, int(stream.words(1).view(np.int64)[0]))
    places = _rows.places(layout)
    work = Work(
        cells=places * (1 if declared is None else len(declared)),
        part=places // layout.levels,
        noise=DiscreteLaplace(exact / (people or 1)),
        key=key,
        silent=stream.silent,
        chosen=_sample(layout),
    )
    return Call(rows, work, layout, declared, request.person is not None, stream.label)


def declared_groups(by: Any, groups: Sequence[Any] | None) -> tuple[Any, ...] | None:
    """Return the groups, which must have been declared; None where there are none."""
    if by is None and groups is None:
        return None
    if by is None or groups is None:
        raise InputError("by and groups must be given together: groups found in the data would give them away")
    if isinstance(groups, str):
        raise InputError(f"groups must be a list of values, got the text {groups!r}")
    return refuse_sum(tuple(groups))


def _layout(request: Request, **public: Any) -> tuple[Domain | None, Layout]:
    """Return the domain as declared, if any, and the layout."""
    kind, domain, rate, hash_seed = request.kind, request.domain, request.rate, request.hash_seed
    if kind == "hashed":
        if domain is not None or rate is not None:
            raise InputError("domain and rate must be left out for kind='hashed'")
        return None, hashed_layout(request.cells, request.levels, hash_seed=hash_seed, **public)
    if request.levels is not None:
        raise InputError(f"levels must be left out for kind={kind!r}, got {request.levels}")
    if domain is None:
        raise InputError(f"domain is required for kind={kind!r}: an integer d (items 0…d−1) or a list of items")
    items = read_domain(domain)
    if items.types != public["item_types"]:
        raise InputError(f"the columns must have the types of the domain {items.types}, got {public['item_types']}")
    shared = {"domain": items.size, "fingerprint": items.fingerprint, **public}
    if kind == "known":
        if rate is not None:
            raise InputError(f"rate must be left out for kind='known', got {rate}")
        return items, Layout(kind=kind, cells=items.size, **shared)
    share = exact_positive("rate", rate)
    whole = Layout(kind=kind, cells=1, rate=share, hash_seed=hash_seed, **shared)  # checks rate and seed
    count = int(sampled_cells(items, share, hash_seed).size)
    if count == 0:
        raise InputError(f"rate must be high enough to sample an item of {items.size}, got {rate}")
    return items, replace(whole, cells=count)


def _sample(layout: Layout) -> Sample | None:
    """Return what tells the tasks which places have cells, where not all do."""
    if layout.kind != "sampled" or layout.fingerprint is not None:
        return None
    assert layout.rate is not None
    assert layout.hash_seed is not None
    return Sample(layout.hash_seed, int(sample_limit(layout.rate)))


def _listed(df: DataFrame, items: Domain | None, layout: Layout) -> DataFrame | None:
    """Return a DataFrame of the hash and cell of each item of a listed domain that has a cell."""
    if items is None or items.hashes is None:
        return None
    import pyarrow as pa
    from pyspark.sql import functions as F

    hashes = items.hashes
    if layout.kind == "sampled":
        assert layout.rate is not None
        assert layout.hash_seed is not None
        hashes = hashes[sampled_cells(items, layout.rate, layout.hash_seed)]
    table = pa.table({"hash": hashes.view(np.int64), "listed": np.arange(hashes.size, dtype=np.int64)})
    frame = df.sparkSession.createDataFrame(table)
    return F.broadcast(frame) if hashes.size <= BROADCAST else frame
