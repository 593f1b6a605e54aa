"""What a collector keeps: tables in SQLite or Postgres, files by digest in a folder.

A report is first a file, then a row: the file is whole and on disk before the row that names it is committed, so
whatever is killed in between leaves a file without a row (swept at the next start), never a row without a file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError

from ..errors import InputError, UnnoiseError
from ..guard import clear_leftovers, sync_folder
from . import DATABASE, access, schema
from .tasks import Task, check_name

__all__ = ["ConflictError", "Report", "Store", "migrate", "now"]

HEAD = "head"
MOST_TRIES = 3
"""How often a job that took its process down is tried."""


FORGOTTEN = 600.0
"""Seconds after which a job that failed begins anew when it is asked for: what stood in its way may be gone."""


KEPT_DAYS = 7
"""Days for which the answer of a job is kept: it names every report, and each report makes a new one of every question
that is watched. Asked for again, it is computed again."""


class ConflictError(UnnoiseError):
    """What is asked for contradicts what is kept."""


Report = dict[str, Any]


def now(days: int = 0) -> str:
    """The time, to the second, in UTC, or so many days ago."""
    return (datetime.now(UTC) - timedelta(days)).isoformat(timespec="seconds").replace("+00:00", "Z")


def _age(at: str) -> float:
    """Seconds between a time and now, whichever way the clock was set since."""
    return abs((datetime.now(UTC) - datetime.fromisoformat(at)).total_seconds())


def migrate(engine: sa.Engine, target: str = HEAD) -> None:
    """Bring the tables to the newest version; those of a newer unnoise are left alone."""
    from alembic import command
    from alembic.config import Config
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    known = {one.revision for one in ScriptDirectory.from_config(config).walk_revisions()}
    with engine.begin() as connection:
        if strange := set(MigrationContext.configure(connection).get_current_heads()) - known:
            raise InputError(
                f"the tables must be of this version of unnoise or an older one, got {', '.join(sorted(strange))}: "
                f"they were made by a newer one, so upgrade unnoise"
            )
        config.attributes["connection"] = connection
        command.upgrade(config, target)


class Store:
    """Tables and files of one collector."""

    def __init__(self, folder: str | os.PathLike[str], url: str | None = None) -> None:
        self.folder = Path(folder)
        self.files, self.incoming = self.folder / "files", self.folder / "incoming"
        for place in (self.folder, self.files, self.incoming):
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.engine = _engine(url or f"sqlite:///{(self.folder / DATABASE).absolute()}")
        self.reading = self.engine.execution_options(reading=True)
        migrate(self.engine)

    def close(self) -> None:
        """Let the connections go."""
        self.engine.dispose()

    def ready(self) -> bool:
        """Whether the database answers and the folder can be written."""
        try:
            with self.reading.connect() as connection:
                connection.execute(sa.text("select 1"))
        except sa.exc.SQLAlchemyError:
            return False
        return os.access(self.incoming, os.W_OK)

    # ── tasks ─────────────────────────────────────────────────────────────────────────────────────────────────

    def make_task(self, task: Task, who: object) -> bool:
        """Keep a task; False where it is there already, word for word."""
        body = json.dumps(task.to_dict(), sort_keys=True, ensure_ascii=False)
        try:
            with self.engine.begin() as connection:
                connection.execute(schema.tasks.insert().values(id=task.id, body=body, created=now()))
                _note(connection, who, "made task", task.id)
        except IntegrityError:
            if self.task(task.id).digest != task.digest:
                raise ConflictError(f"task {task.id} exists with other parameters, and tasks never change") from None
            return False
        return True

    def task(self, name: str) -> Task:
        """Return a task."""
        with self.reading.connect() as connection:
            body = connection.execute(sa.select(schema.tasks.c.body).where(schema.tasks.c.id == name)).scalar()
        if body is None:
            raise KeyError(f"there is no task {name!r:.80}")
        return Task.from_dict(json.loads(body))

    def tasks(self) -> list[Task]:
        """All tasks, oldest first."""
        with self.reading.connect() as connection:
            rows = connection.execute(sa.select(schema.tasks.c.body).order_by(schema.tasks.c.created)).scalars()
            return [Task.from_dict(json.loads(body)) for body in rows]

    # ── tokens ────────────────────────────────────────────────────────────────────────────────────────────────

    def make_token(
        self, role: str, site: str | None, who: object, hand_over: Callable[[str], None] = lambda _: None
    ) -> str:
        """Return a new token; only the hash of its secret is kept. It becomes valid once it has been handed over."""
        if (role == "site") != (site is not None):
            raise InputError(
                f"a site must be named for role 'site' and for no other, got {role!r:.80} and {site!r:.80}"
            )
        named = None if site is None else check_name("site", site)
        token, name, hashed = access.new_token(role)
        row = {"id": name, "role": role, "site": named, "hash": hashed, "created": now()}
        with self.engine.begin() as connection:
            connection.execute(schema.tokens.insert().values(**row))
            _note(connection, who, "made token", f"{name} ({role}{f' {site}' if site else ''})")
            hand_over(token)
        return token

    def revoke_token(self, name: str, who: object) -> None:
        """Make a token worthless from now on."""
        table = schema.tokens
        with self.engine.begin() as connection:
            done = connection.execute(
                table.update().where(table.c.id == name, table.c.revoked.is_(None)).values(revoked=now())
            )
            if done.rowcount == 0:
                raise KeyError(f"there is no valid token {name!r:.80}")
            _note(connection, who, "revoked token", name)

    def tokens(self) -> list[dict[str, Any]]:
        """Name, role, site, when made and when revoked; no secrets."""
        table = schema.tokens
        with self.reading.connect() as connection:
            rows = connection.execute(
                sa.select(table.c.id, table.c.role, table.c.site, table.c.created, table.c.revoked).order_by(
                    table.c.created
                )
            )
            return [dict(row._mapping) for row in rows]

    def token_is_valid(self, name: str) -> bool:
        """Whether a token of this name is there and was not revoked."""
        table = schema.tokens
        with self.reading.connect() as connection:
            asked = sa.select(table.c.id).where(table.c.id == name, table.c.revoked.is_(None))
            return connection.execute(asked).first() is not None

    def visitor(self, token: str) -> access.Visitor | None:
        """Return who holds this token, None if nobody does (any more)."""
        parts = access.split(token)
        if parts is None:
            return None
        table = schema.tokens
        with self.reading.connect() as connection:
            row = connection.execute(sa.select(table).where(table.c.id == parts[0])).first()
        stored = row.hash if row else access.hash_of("")
        if not access.matches(parts[1], stored) or row is None or row.revoked is not None:
            return None
        return access.Visitor(row.id, row.role, row.site)

    # ── reports ───────────────────────────────────────────────────────────────────────────────────────────────

    def path(self, digest: str) -> Path:
        """Where a report's file is."""
        return self.files / digest[:2] / f"{digest}.sketch"

    def report(self, digest: str) -> Report | None:
        """Return the row of a report."""
        with self.reading.connect() as connection:
            row = connection.execute(sa.select(schema.reports).where(schema.reports.c.digest == digest)).first()
            return dict(row._mapping) if row else None

    def reports(self, task: str) -> list[Report]:
        """All reports of a task, by period and site."""
        table = schema.reports
        with self.reading.connect() as connection:
            rows = connection.execute(
                sa.select(table).where(table.c.task == task).order_by(table.c.period, table.c.site)
            )
            return [dict(row._mapping) for row in rows]

    def require_new(self, task: Task, site: str, period: str, digest: str) -> bool:
        """Whether a report is new; raise where it contradicts one that is there."""
        known = self.report(digest)
        if known and (known["task"], known["site"], known["period"]) == (task.id, site, period):
            return False
        if known:
            raise ConflictError(
                f"report {digest[:12]}… must be new, got one that {known['site']} sent before, to task {known['task']} "
                f"for {known['period']}"
            )
        table = schema.reports
        with self.reading.connect() as connection:
            other = connection.execute(
                sa.select(table.c.digest).where(table.c.task == task.id, table.c.site == site, table.c.period == period)
            ).scalar()
        if other:
            raise ConflictError(
                f"site {site} has sent another report for {period} ({other[:12]}…): one report for a site and period, "
                f"and none is replaced"
            )
        return True

    def keep_report(
        self,
        task: Task,
        site: str,
        period: str,
        digest: str,
        upload: Path,
        *,
        power: str,
        noises: Iterable[str],
        who: object,
    ) -> bool:
        """Take a verified file over and commit its row; False where another request was quicker with the same.

        The file is taken once the tables have taken its row, and before that is committed.
        """
        row = {
            "digest": digest, "task": task.id, "site": site, "period": period, "power": power,
            "bytes": upload.stat().st_size, "received": now(),
        }  # fmt: skip
        try:
            with self.engine.begin() as connection:
                connection.execute(schema.reports.insert().values(**row))
                connection.execute(schema.noises.insert(), [{"identity": one, "report": digest} for one in noises])
                _note(connection, who, "sent report", f"{task.id} {period} {digest}")
                self.take_file(upload, digest)
        except IntegrityError:
            if not self.require_new(task, site, period, digest):
                return False
            raise ConflictError(
                "the noise of a report must never have been seen before, got one that is in another report: two "
                "reports with one noise would give their difference away"
            ) from None
        return True

    def take_file(self, upload: Path, digest: str) -> None:
        """Move a whole file to where its digest belongs, and see it on the disk."""
        target = self.path(digest)
        target.parent.mkdir(mode=0o700, exist_ok=True)
        os.replace(upload, target)
        for folder in (target.parent, self.files):  # where its folder is new, the name of that as well
            sync_folder(folder)

    def sweep(self) -> None:
        """Remove uploads and back-ups that were never finished, and files without a row; for the one server, before it
        begins."""
        clear_leftovers(self.folder / DATABASE)
        for upload in self.incoming.iterdir():
            upload.unlink(missing_ok=True)
        with self.reading.connect() as connection:
            kept = set(connection.execute(sa.select(schema.reports.c.digest)).scalars())
            kept |= set(connection.execute(sa.select(schema.sums.c.digest)).scalars())
        for found in self.files.glob("*/*.sketch"):
            if found.stem not in kept:
                found.unlink(missing_ok=True)

    # ── jobs ──────────────────────────────────────────────────────────────────────────────────────────────────

    def ask(self, job: str, task: str, question: dict[str, Any]) -> dict[str, Any]:
        """Return a job, made if it is not there: its state, and its answer once there is one."""
        found = self.job(job)
        if found is not None and found["state"] == "failed" and _age(found["updated"]) > FORGOTTEN:
            self._begin_anew(job)
            found = self.job(job)
        if found is None:
            text = json.dumps(question, sort_keys=True)
            row = {"id": job, "task": task, "question": text, "state": "waiting", "tries": 0, "updated": now()}
            try:
                with self.engine.begin() as connection:
                    connection.execute(schema.jobs.insert().values(**row))
            except IntegrityError:
                pass  # another request asked the same just now
            found = self.job(job)
        assert found is not None
        return found

    def _begin_anew(self, job: str) -> None:
        """Put a job that failed back into the line."""
        table = schema.jobs
        with self.engine.begin() as connection:
            connection.execute(
                table.update()
                .where(table.c.id == job, table.c.state == "failed")
                .values(state="waiting", tries=0, answer=None, updated=now())
            )

    def job(self, job: str) -> dict[str, Any] | None:
        """Return a job."""
        with self.reading.connect() as connection:
            row = connection.execute(sa.select(schema.jobs).where(schema.jobs.c.id == job)).first()
        if row is None:
            return None
        values = dict(row._mapping)
        values["question"] = json.loads(values["question"])
        values["answer"] = json.loads(values["answer"]) if values["answer"] else None
        return values

    def next_job(self) -> dict[str, Any] | None:
        """Take the oldest waiting job; one that has been tried too often fails."""
        table = schema.jobs
        with self.engine.begin() as connection:
            row = connection.execute(
                sa.select(table.c.id, table.c.tries)
                .where(table.c.state == "waiting")
                .order_by(table.c.updated)
                .limit(1)
            ).first()
            if row is None:
                return None
            worn = row.tries >= MOST_TRIES
            values: dict[str, Any] = {"state": "running", "tries": row.tries + 1, "updated": now()}
            if worn:
                sorry = {"error": f"it took its process down {MOST_TRIES} times"}
                values = {"state": "failed", "answer": json.dumps(sorry), "updated": now()}
            done = connection.execute(
                table.update().where(table.c.id == row.id, table.c.state == "waiting").values(**values)
            )
        return self.next_job() if worn or done.rowcount == 0 else self.job(row.id)

    def finish_job(self, job: str, answer: dict[str, Any]) -> None:
        """Keep the answer of a job, and no longer those of KEPT_DAYS ago."""
        state, table = "failed" if "error" in answer else "done", schema.jobs
        with self.engine.begin() as connection:
            old = table.c.state.in_(["done", "failed"]) & (table.c.updated < now(KEPT_DAYS))
            connection.execute(table.delete().where(old))
            connection.execute(
                table.update().where(table.c.id == job).values(state=state, answer=json.dumps(answer), updated=now())
            )

    def take_up_jobs(self) -> None:
        """Put jobs that a killed server left running back into the line."""
        with self.engine.begin() as connection:
            connection.execute(schema.jobs.update().where(schema.jobs.c.state == "running").values(state="waiting"))

    # ── the audit log ─────────────────────────────────────────────────────────────────────────────────────────

    def audit(self, most: int = 1000) -> list[dict[str, Any]]:
        """The newest entries of the audit log."""
        table = schema.audit
        with self.reading.connect() as connection:
            rows = connection.execute(sa.select(table).order_by(table.c.number.desc()).limit(most))
            return [dict(row._mapping) for row in rows]

    def note(self, who: object, did: str, what: str) -> None:
        """Write an entry into the audit log."""
        with self.engine.begin() as connection:
            _note(connection, who, did, what)


def _note(connection: sa.Connection, who: object, did: str, what: str) -> None:
    connection.execute(schema.audit.insert().values(at=now(), who=str(who)[:128], did=did, what=what))


def _engine(url: str) -> sa.Engine:
    """Return an engine; SQLite with a write-ahead log, written through, and transactions that begin at once."""
    if url.startswith("postgres"):
        url = "postgresql+psycopg://" + url.split("://", 1)[1]
    engine = sa.create_engine(url, pool_pre_ping=True)
    if engine.dialect.name == "sqlite":
        sa.event.listen(engine, "connect", _configure)
        sa.event.listen(engine, "begin", _begin)
    return engine


def _begin(connection: sa.Connection) -> None:
    """Writers wait for their turn at once, readers for nobody."""
    reading = connection.get_execution_options().get("reading")
    connection.exec_driver_sql("BEGIN" if reading else "BEGIN IMMEDIATE")


def _configure(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # transactions are begun by us
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "busy_timeout=30000"):
        connection.execute(f"PRAGMA {pragma}")
