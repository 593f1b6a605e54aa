"""Sums of the two servers: talking to both, which sums were asked for, and asking for another, which costs ε.

A sum is one release. Its sealed sketch (power 2) is kept like a report, under the sites that are in it; answers from it
cost nothing more.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from ..errors import FormatError, InputError
from ..guard import new_identity
from . import schema
from .client import Client, RefusedError
from .guard import Problem
from .store import Store, now
from .tasks import Task

if TYPE_CHECKING:
    from ..protocols.shares import Task as ShareTask

__all__ = ["HttpAdder", "ask_servers", "held", "read_servers", "sums_of"]

TRIES_BEHIND = 2
"""How often a collector asks a server: who asked the collector waits, and asks again."""


def read_servers(path: Path) -> tuple[Client, Client]:
    """Return the clients of the two servers that a JSON file names: {"servers": [{"url": …, "token": …}, …]}."""
    try:
        first, second = ((str(one["url"]), str(one["token"])) for one in json.loads(path.read_text())["servers"])
    except (ValueError, TypeError, KeyError):
        raise FormatError(f'{path}: must be {{"servers": [{{"url": …, "token": …}}, two of them]}}') from None
    if httpx.URL(first[0]) == httpx.URL(second[0]):
        raise InputError(f"the two servers must be two, got {first[0]} twice")
    return Client(*first, tries=TRIES_BEHIND), Client(*second, tries=TRIES_BEHIND)


class HttpAdder:
    """A share server at an address, as the collector sees it."""

    def __init__(self, client: Client, task: ShareTask, *, tell: bool = True) -> None:
        self._client, self._task = client, task
        if tell:
            client.call("POST", "/shares", content=task.to_bytes())

    def sites(self) -> dict[str, str]:
        """Return the site of every report, by report id."""
        return dict(self._client.call("GET", f"/shares/{self._task.id}/sites")["sites"])

    def given(self) -> list[dict[str, str]]:
        """Return the sums that it has given: of each, the report ids by site."""
        return list(self._client.call("GET", f"/shares/{self._task.id}/sums")["sums"])

    def offer(self) -> bytes:
        """Return which reports it holds."""
        return self._client.raw("GET", f"/shares/{self._task.id}/offer")

    def agree(self, reports: Iterable[str]) -> bytes:
        """Return its word on a set."""
        return self._client.raw("POST", f"/shares/{self._task.id}/agree", json={"reports": sorted(reports)})

    def answer(self, agreement: bytes) -> bytes:
        """Return its noised sum."""
        return self._client.raw("POST", f"/shares/{self._task.id}/answer", content=agreement)


def sums_of(store: Store, task: str) -> list[dict[str, Any]]:
    """The sums of a task that were asked for and came, oldest first."""
    table = schema.sums
    with store.reading.connect() as connection:
        rows = connection.execute(
            sa.select(table).where(table.c.task == task, table.c.digest != "").order_by(table.c.asked, table.c.digest)
        )
        return [_plain(row) for row in rows]


def held(servers: tuple[Client, Client], task: Task, period: str, *, tell: bool = True) -> dict[str, str]:
    """Return report ids by site, of the reports that both servers hold.

    tell : make the period known to both servers; otherwise none are held in one that they have not heard of
    """
    try:
        first, second = (HttpAdder(client, task.for_servers(period), tell=tell).sites() for client in servers)
    except RefusedError as error:
        if tell or error.status != 404:
            raise
        return {}
    return {site: report for report, site in first.items() if second.get(report) == site}


def ask_servers(
    store: Store, servers: tuple[Client, Client], task: Task, period: str, sites: Sequence[str], who: object
) -> dict[str, Any]:
    """Ask both servers for the sum of these sites (all where none are named) and keep it; asked again, the same.

    Which reports are in it is written down before anybody is asked, so that a collector that was killed asks for the
    very same sum again, which the servers remember.
    """
    begun = _begin(store, servers, task, period, sites, who)
    if begun["digest"]:
        return begun
    from ..protocols.shares import add_up

    first, second = (HttpAdder(client, task.for_servers(period)) for client in servers)
    sketch = add_up(task.for_servers(period), first, second, begun["reports"])
    upload = store.incoming / new_identity().hex()
    try:
        sketch.save(upload)
        with open(upload, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        store.take_file(upload, digest)
    finally:
        upload.unlink(missing_ok=True)
    table = schema.sums
    with store.engine.begin() as connection:
        connection.execute(table.update().where(table.c.id == begun["id"], table.c.digest == "").values(digest=digest))
    return _sum(store, begun["id"]) or begun


def _begin(
    store: Store, servers: tuple[Client, Client], task: Task, period: str, sites: Sequence[str], who: object
) -> dict[str, Any]:
    """Return the row of a sum, written down now or when it was asked for first.

    A collector that has forgotten a sum, set back to a back-up, learns from the servers which reports were in it.
    """
    there = held(servers, task, period)
    spent: list[str] = max(
        (one["sites"] for one in sums_of(store, task.id) if one["period"] == period), key=len, default=[]
    )
    chosen = sorted(set(sites or there or spent))
    key = _name(task, period, chosen)
    known = _sum(store, key)
    if known is not None and (known["digest"] or not _replaced(known, there)):
        return known
    if not chosen or not set(chosen) <= set(there):
        there = _forgotten(servers, task, period, chosen, there)
        chosen = sorted(there)
        key = _name(task, period, chosen)
    row = {
        "id": key, "task": task.id, "period": period, "sites": json.dumps(chosen), "digest": "", "asked": now(),
        "reports": json.dumps(sorted(there[site] for site in chosen)),
    }  # fmt: skip
    table = schema.sums
    anew = table.update().where(table.c.id == key, table.c.digest == "") if known else table.insert()
    try:
        with store.engine.begin() as connection:
            connection.execute(anew.values(**row))
        store.note(who, "asked for a sum", f"{task.id} {period} {', '.join(chosen)}"[:2000])
    except IntegrityError:
        pass  # another request asked the same just now
    found = _sum(store, key)
    assert found is not None
    return found


def _name(task: Task, period: str, sites: list[str]) -> str:
    """The name of a sum: what was asked for."""
    return hashlib.sha256(json.dumps([task.id, period, sites]).encode()).hexdigest()


def _forgotten(
    servers: tuple[Client, Client], task: Task, period: str, sites: list[str], there: dict[str, str]
) -> dict[str, str]:
    """Return report ids by site of a sum that a server has given: of these sites, the largest where none are named."""
    given = [one for client in servers for one in HttpAdder(client, task.for_servers(period)).given()]
    fitting = [one for one in given if not sites or sorted(one) == sites]
    if not fitting:
        missing = ", ".join(sorted(set(sites) - set(there))) or "any"
        raise Problem(
            409, "missing",
            f"both servers must hold a report of every site whose sums are not spent, got none of {missing}",
        )  # fmt: skip
    return max(fitting, key=len)


def _replaced(begun: dict[str, Any], there: dict[str, str]) -> bool:
    """Whether a site gave both servers another report since the sum was begun.

    They take one only while no sum contains the former, so neither has answered: the sum may begin anew.
    """
    return any(there.get(site, begun["reports"][0]) not in begun["reports"] for site in begun["sites"])


def _sum(store: Store, key: str) -> dict[str, Any] | None:
    with store.reading.connect() as connection:
        row = connection.execute(sa.select(schema.sums).where(schema.sums.c.id == key)).first()
    return None if row is None else _plain(row)


def _plain(row: Any) -> dict[str, Any]:
    return {**row._mapping, "sites": json.loads(row.sites), "reports": json.loads(row.reports)}
