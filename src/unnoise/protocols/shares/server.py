"""One of the two servers: keeps shares, adds them up, and enforces by itself what the promise rests on.

* a task and a side for ever: a server never takes shares of both sides;
* one report per site, under an id common to both shares; a site may replace its report until a sum contains it;
* a sum is identified by its sorted report ids: asked again it is the stored answer, the same bits, never new noise;
* no report is in more sums than the task allows, no sum has fewer sites than it demands;
* a sum is added only when the other server has said that it adds the very same set, in as many cells;
* what is stored of a sum is the *noised* answer, before anything is sent; the noise is wiped at once, a report's share
  when its sums are spent or the epoch is closed.

An answer on the disk is what counts against its reports, so there is no moment in which a killed server could have
sent something that it will not remember.

In its directory every fact is one file that is there, whole, or is not::

    server              the task and which side this server is
    reports/ID.head     a report has arrived (what both shares say of it)
    reports/ID.share    its share; gone when its sums are spent
    sums/ID.answer      a noised answer, which counts against the reports it names
    closed              the epoch has ended

A file is written under a temporary name, flushed to the disk and renamed, so whenever the process is killed the old
or the new state is there; what is unfinished was never sent and is removed at the next start. A share is overwritten
before it is removed (which on some file systems and disks does not erase it: docs/sites.md).
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..._sampler import fill, open_stream
from ...errors import FormatError, IncompatibleError, InputError, PrivacyError
from ...guard import SECRET, Guarded, new_identity, sync_folder, wipe, write_whole
from ...layout import Account, Layout
from .site import mask
from .task import ID, Task, canonical, digest_of, pack, read_account, read_ids, read_text, unpack

__all__ = ["SIDES", "Disk", "Report", "Server", "Side", "require_cells", "side_of", "sum_id"]

PARTS = ("reports", "sums")


class Disk:
    """Files of one server; one process at a time."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.root = Path(directory)
        for part in PARTS:
            (self.root / part).mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise InputError(f"directory must be used by one server at a time, got {self.root}, in use") from None
        for folder in (self.root, *(self.root / part for part in PARTS)):
            for unfinished in folder.glob("*.tmp"):
                unfinished.unlink()

    def release(self) -> None:
        """Let another process have the directory."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def has(self, name: str) -> bool:
        """Tell whether a file is there."""
        return (self.root / name).exists()

    def read(self, name: str) -> bytes:
        """Return what a file holds."""
        return (self.root / name).read_bytes()

    def names(self, part: str, ending: str) -> list[str]:
        """Return the ids of the files of a part with this ending."""
        return sorted(path.name[: -len(ending)] for path in (self.root / part).glob(f"*{ending}"))

    def write(self, name: str, data: bytes | memoryview) -> None:
        """Put a file there, whole."""
        write_whole(self.root / name, data, SECRET)

    def remove(self, name: str) -> None:
        """Take a file away."""
        (self.root / name).unlink(missing_ok=True)
        sync_folder((self.root / name).parent)

    def wipe(self, name: str) -> None:
        """Overwrite a file with zeros and take it away."""
        target = self.root / name
        if target.exists():
            handle = os.open(target, os.O_WRONLY | os.O_CLOEXEC)
            try:
                left = os.fstat(handle).st_size
                while left:
                    left -= os.write(handle, bytes(min(left, 1 << 20)))
                os.fsync(handle)
            finally:
                os.close(handle)
            self.remove(name)


Side = Literal["seed", "difference"]
SIDES: tuple[Side, Side] = ("seed", "difference")


def side_of(directory: str | os.PathLike[str]) -> Side | None:
    """Return the side of the server in a directory, None where there is none (yet)."""
    head = Path(directory, "server")
    return SIDES[head.read_bytes()[0]] if head.is_file() else None


def sum_id(task: Task, reports: Iterable[str]) -> str:
    """Return the name of a sum: 32 hexadecimal digits of SHA-256 over the task and the sorted report ids."""
    return hashlib.sha256(f"{task.id}\n{' '.join(sorted(reports))}".encode()).hexdigest()[:32]


def folded(cells: NDArray[np.uint64], layout: Layout) -> NDArray[np.uint64]:
    """Return hashed cells added up to the fewer ones of a layout, modulo 2⁶⁴: a hash falls into its lowest bits' cell.

    >>> folded(np.arange(8, dtype=np.uint64), Layout(kind="hashed", cells=4, levels=2, hash_seed=0)).tolist()
    [2, 4, 10, 12]
    """
    each = cells.reshape(layout.levels, -1, layout.cells // layout.levels)
    return np.asarray(each.sum(axis=1, dtype=np.uint64)).reshape(-1)


def require_cells(task: Task, agreement: Mapping[str, Any], cells: int) -> None:
    """Refuse an agreement on a sum in other cells: another version of unnoise may choose them by another rule.

    One that says nothing of cells is of a version that knew no such rule, or another one where the task asks for it.
    """
    told = agreement.get("cells", task.layout.cells if task.occurrences is None else None)
    if told != cells:
        raise IncompatibleError("cells of the sum", cells, told, "servers and collector must run the same version")


@dataclass(frozen=True)
class Report:
    """What both shares of a report say of it, and the reports of the same site that it replaced here."""

    id: str
    site: str
    account: Account
    replaced: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """SHA-256 of what both servers must have been told alike."""
        spent = self.account.to_dict()
        return digest_of(canonical({"report": self.id, "site": self.site, "account": spent}))


class Server(Guarded):
    """A server in a directory of its own: made by :meth:`create`, found again by :meth:`open`."""

    noun = "server"

    def __init__(self, store: Disk) -> None:
        super().__init__()
        self._store = store
        head = store.read("server")
        side, self.task = head[:1], Task.from_bytes(head[1:])
        self.side: Side = SIDES[side[0]]
        self._reports = {name: self._read_report(name) for name in store.names("reports", ".head")}
        self._sums = {
            name: read_ids(unpack(store.read(f"sums/{name}.answer"), "answer")[0], "reports")
            for name in store.names("sums", ".answer")
        }
        self._settle()

    @classmethod
    def create(cls, directory: str | os.PathLike[str], task: Task, side: Side) -> Server:
        """Make a server for a task; in a directory that has one, it must be the same."""
        if side not in SIDES:
            raise InputError(f"side must be 'seed' or 'difference', got {side!r}")
        store, head = Disk(directory), bytes([SIDES.index(side)]) + task.to_bytes()
        try:
            if not store.has("server"):
                store.write("server", head)
            elif store.read("server") != head:
                raise PrivacyError(f"directory must be empty or of the same task and side, got {directory}")
            return cls(store)
        except BaseException:
            store.release()
            raise

    @classmethod
    def open(cls, directory: str | os.PathLike[str]) -> Server:
        """Return the server in a directory, as it was when it was last heard of."""
        if not os.path.isfile(os.path.join(directory, "server")):
            raise InputError(f"directory must hold a server, got {os.fspath(directory)}")
        return cls(Disk(directory))

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.shut()

    def shut(self) -> None:
        """Let another process open the directory."""
        self._store.release()

    # ── reports ───────────────────────────────────────────────────────────────────────────────────────────────

    def receive(self, message: bytes) -> str:
        """Take a share in and return the id of its report; the same share again changes nothing."""
        return self.take(message)[0]

    def take(self, message: bytes) -> tuple[str, bool]:
        """Take a share in and return the id of its report, and whether it is new."""
        head, payload = unpack(message, "share")
        self._require_task(head)
        if read_text(head, "side") != self.side:
            raise PrivacyError(f"a share for the side {head['side']!r} must not come to the server of {self.side!r}")
        report = Report(read_text(head, "report", ID), read_text(head, "site"), read_account(head))
        expected = 32 if self.side == "seed" else 8 * self.task.layout.cells
        if len(payload) != expected:
            raise FormatError(f"a share must be {expected} bytes long, got {len(payload)}")
        self._require_here("receive")
        with self._lock:
            known = self._reports.get(report.id)
            if known is not None:
                self._require_same(known, report, payload)
            else:
                self._accept(report, payload)
        return report.id, known is None

    def _require_same(self, known: Report, report: Report, payload: memoryview) -> None:
        """Accept a repetition, refuse another content under a known id."""
        same = known.digest == report.digest
        if same and self._store.has(f"reports/{report.id}.share"):
            same = self._store.read(f"reports/{report.id}.share") == payload
        if not same:
            raise PrivacyError(f"report {report.id} is known with another content: an id must not be used again")

    def _accept(self, report: Report, payload: memoryview) -> None:
        """Store a new report, in place of the site's former one as long as no sum contains that."""
        if self._store.has("closed"):
            raise PrivacyError(f"the epoch {self.task.epoch!r} is closed and takes no more reports")
        if any(report.id in other.replaced for other in self._reports.values()):
            raise PrivacyError(f"report {report.id} was replaced by a later one of its site and must not come again")
        former = next((r for r in self._reports.values() if r.site == report.site), None)
        if former is not None:
            if self._used()[former.id]:
                raise PrivacyError(
                    f"a site must give one report for the epoch: {report.site!r} gave {former.id}, which a sum contains"
                )
            report = Report(report.id, report.site, report.account, (*former.replaced, former.id))
        self._store.write(f"reports/{report.id}.share", payload)
        self._store.write(f"reports/{report.id}.head", self._head_of(report))
        self._reports[report.id] = report
        self._settle()

    def _head_of(self, report: Report) -> bytes:
        spent = report.account.to_dict()
        values = {"report": report.id, "site": report.site, "account": spent, "replaced": list(report.replaced)}
        return pack("share", values)

    def _read_report(self, name: str) -> Report:
        head, _ = unpack(self._store.read(f"reports/{name}.head"), "share")
        return Report(name, read_text(head, "site"), read_account(head), tuple(head["replaced"]))

    def _settle(self) -> None:
        """Finish what a kill may have interrupted: remove replaced reports, wipe spent shares and stray ones."""
        for gone in {old for report in self._reports.values() for old in report.replaced} & self._reports.keys():
            self._store.wipe(f"reports/{gone}.share")
            self._store.remove(f"reports/{gone}.head")
            del self._reports[gone]
        used, closed = self._used(), self._store.has("closed")
        for name in self._store.names("reports", ".share"):
            if closed or name not in self._reports or used[name] >= self.task.sums:
                self._store.wipe(f"reports/{name}.share")

    def _used(self) -> Counter[str]:
        """Return in how many sums each report is."""
        return Counter(report for reports in self._sums.values() for report in reports)

    # ── sums ──────────────────────────────────────────────────────────────────────────────────────────────────

    def offer(self) -> bytes:
        """Return which reports this server holds and could add, with digests of what it was told of them."""
        held = {name: report.digest for name, report in self._held().items()}
        return pack("offer", {"task": self.task.id, "side": self.side, "reports": held})

    def sites(self) -> dict[str, str]:
        """Return the site of every report that could be added, by report id."""
        return {name: report.site for name, report in self._held().items()}

    def _held(self) -> dict[str, Report]:
        """Return the reports whose shares are here, none that is on its way in or out."""
        with self._lock:
            return {name: self._reports[name] for name in self._store.names("reports", ".share")}

    def given(self) -> list[dict[str, str]]:
        """Return the sums that were given: of each, the report ids by site."""
        with self._lock:
            return [{self._reports[name].site: name for name in ids} for ids in self._sums.values()]

    def agree(self, reports: Iterable[str]) -> bytes:
        """Return the word that this server will add exactly these reports, in how many cells; spends nothing."""
        ids = tuple(sorted(set(reports)))
        if not all(ID.fullmatch(name) for name in ids):
            raise InputError("a report must be named by 32 hexadecimal digits")
        with self._lock:
            if sum_id(self.task, ids) not in self._sums:
                self._require_allowed(ids)
            digests = {name: self._reports[name].digest for name in ids}
            word = {"task": self.task.id, "side": self.side, "reports": digests, "cells": self._cells_of(ids)}
        return pack("agreement", word)

    def _cells_of(self, ids: tuple[str, ...]) -> int:
        """Return in how many cells a sum is given; one that was given keeps its own, whatever the rule was then."""
        name = sum_id(self.task, ids)
        if name in self._sums:
            return len(unpack(self._store.read(f"sums/{name}.answer"), "answer")[1]) // 8
        return self.task.layout_of(len(ids)).cells

    def answer(self, agreement: bytes) -> bytes:
        """Return the noised sum of the reports on which the other server agrees; asked again, the same bits."""
        head, _ = unpack(agreement, "agreement")
        self._require_task(head)
        if head.get("side") == self.side or head.get("side") not in SIDES:
            raise PrivacyError(f"the agreement must come from the other side, got one of {head.get('side')!r}")
        self._require_here("answer")
        with self._lock:
            ids = self._require_agreed(head)
            require_cells(self.task, head, self._cells_of(ids))
            name = sum_id(self.task, ids)
            if name not in self._sums:
                self._require_allowed(ids)
                self._store.write(f"sums/{name}.answer", self._noised(ids))
                self._sums[name] = ids
                self._settle()
            return self._store.read(f"sums/{name}.answer")

    def _require_agreed(self, head: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the ids of an agreement whose reports are the ones that came here."""
        told = head.get("reports")
        if not isinstance(told, dict):
            raise FormatError("reports must be given with their digests")
        ids = read_ids({"reports": sorted(told)}, "reports")
        for name in ids:
            mine = self._reports.get(name)
            if mine is None or mine.digest != told[name]:
                raise IncompatibleError(f"report {name}", mine and mine.digest, told[name])
        return ids

    def _require_allowed(self, ids: tuple[str, ...]) -> None:
        """Refuse a sum that the rules of the task forbid."""
        used, most = self._used(), self.task.sums
        for name in ids:
            if name not in self._reports:
                raise InputError(f"a sum must be of reports that have arrived, {name} has not")
            if used[name] >= most:
                raise PrivacyError(f"a report must be in at most {most} sums, {name} is in {used[name]} already")
            if not self._store.has(f"reports/{name}.share"):
                raise PrivacyError(f"a sum must be of shares that are still kept, that of {name} was wiped")
        if len(ids) < self.task.least_sites:
            raise PrivacyError(f"a sum must be of at least {self.task.least_sites} sites, got {len(ids)}")

    def _noised(self, ids: tuple[str, ...]) -> bytes:
        """Return the answer: the shares added up modulo 2⁶⁴, in as many cells as the sum needs, and one whole noise.

        The noise lives nowhere else.
        """
        total = np.zeros(self.task.layout.cells, dtype=np.uint64)
        for name in ids:
            total += self._share(name)
        total = folded(total, self.task.layout_of(len(ids)))
        noise, stream = np.empty(total.size, dtype=np.int64), open_stream()
        if stream.label is not None:
            raise PrivacyError(f"a server's noise must come from the operating system, this one's is {stream.label}")
        fill(noise, self.task.noise, stream)
        total += noise.view(np.uint64)
        wipe(noise)
        account = Account()
        for name in ids:
            account = account.plus(self._reports[name].account)
        head = {
            "task": self.task.id, "side": self.side, "reports": list(ids), "epoch": self.task.epoch,
            "sites": sorted(self._reports[name].site for name in ids),
            "account": account.to_dict(),
            "identity": new_identity().hex(),
        }  # fmt: skip
        return pack("answer", head, total.astype("<u8").tobytes())

    def _share(self, name: str) -> NDArray[np.uint64]:
        data = self._store.read(f"reports/{name}.share")
        if self.side == "seed":
            return mask(data, self.task.layout.cells)
        return np.frombuffer(data, dtype="<u8").astype(np.uint64, copy=False)

    def close(self) -> None:
        """End the epoch: no more reports, no more new sums, all shares wiped; answers stay."""
        self._require_here("close")
        with self._lock:
            self._store.write("closed", b"")
            self._settle()

    def _require_task(self, head: Mapping[str, Any]) -> None:
        if head.get("task") != self.task.id:
            raise IncompatibleError("task", self.task.id, head.get("task"))
