"""The collector's tables and files: rules, jobs, migrations, back-up; on SQLite and on a real Postgres."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path

import pytest
import sqlalchemy as sa

from serve_tools import made_report, postgres
from unnoise.errors import FormatError, InputError
from unnoise.serve import schema
from unnoise.serve.access import Visitor
from unnoise.serve.run import DATABASE, backup, restore
from unnoise.serve.store import KEPT_DAYS, ConflictError, Store, migrate, now
from unnoise.serve.tasks import Task

TASK = Task(id="reach", epsilon="1", cells=2**12, item_types=("int",), every="day")
SITE = Visitor("t", "site", "berlin")


@pytest.fixture(scope="module")
def database():
    with postgres() as url:
        yield url


def emptied(url: str) -> str:
    """The same database without tables."""
    engine = psycopg_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text("drop schema public cascade; create schema public"))
    engine.dispose()
    return url


def psycopg_engine(url: str) -> sa.Engine:
    return sa.create_engine(url.replace("postgresql", "postgresql+psycopg"))


@pytest.fixture(params=["sqlite", "postgres"])
def store(request, tmp_path):
    kept = Store(tmp_path / "data", emptied(request.getfixturevalue("database")) if request.param != "sqlite" else None)
    yield kept
    kept.close()


def upload(store: Store, name: str = "upload") -> Path:
    path = store.incoming / name
    path.write_bytes(b"cells")
    return path


def keep(store: Store, *, digest: str, site: str = "berlin", period: str = "2026-11-16", noise: str = "00") -> bool:
    return store.keep_report(
        TASK, site, period, digest, upload(store, digest[:8]), power="1", noises=[noise * 16], who=SITE
    )


def test_a_task_never_changes(store):
    assert store.make_task(TASK, "me")
    assert not store.make_task(TASK, "me"), "the same again is no change"
    with pytest.raises(ConflictError, match="never change"):
        store.make_task(Task(id="reach", epsilon="2"), "me")
    assert store.task("reach") == TASK
    assert store.tasks() == [TASK]
    with pytest.raises(KeyError):
        store.task("nothing")


def test_tokens_are_hashed_and_revocable(store):
    token = store.make_token("site", "berlin", "me")
    name = token.split("_")[1]
    with store.reading.connect() as connection:
        kept = json.dumps([list(row) for row in connection.execute(sa.select(schema.tokens))])
    assert token.split("_", 2)[2] not in kept
    assert store.visitor(token) == Visitor(name, "site", "berlin")
    assert store.visitor(token[:-1] + ("A" if token[-1] != "A" else "B")) is None
    assert store.visitor("un_" + "0" * 16 + "_x") is None
    assert store.visitor("") is None
    store.revoke_token(name, "me")
    assert store.visitor(token) is None
    with pytest.raises(KeyError):
        store.revoke_token(name, "me")
    with pytest.raises(InputError, match="role"):
        store.make_token("king", None, "me")
    with pytest.raises(InputError, match="site"):
        store.make_token("viewer", "berlin", "me")


@pytest.mark.parametrize("site", [{}, [], "", 0, "a b"])
def test_a_token_names_its_site(store, site):
    with pytest.raises(InputError, match="site must be 1 to 64 letters"):
        store.make_token("site", site, "test")


def test_one_report_for_a_site_and_period_and_no_noise_twice(store):
    store.make_task(TASK, "me")
    first, second = "a" * 64, "b" * 64
    assert keep(store, digest=first)
    assert not store.require_new(TASK, "berlin", "2026-11-16", first), "the same again is welcome"
    assert not keep(store, digest=first), "and counted once"
    with pytest.raises(ConflictError, match="another report"):
        keep(store, digest=second, noise="11")
    with pytest.raises(ConflictError, match="noise"):
        keep(store, digest=second, site="paris", noise="00")
    assert not store.path(second).exists()
    with pytest.raises(ConflictError, match="sent before"):
        store.require_new(TASK, "paris", "2026-11-16", first)
    assert [row["digest"] for row in store.reports("reach")] == [first]
    assert store.path(first).read_bytes() == b"cells"
    assert keep(store, digest=second, site="paris", noise="22"), "an honest one is taken"


def test_a_refused_report_takes_no_file_from_another_request(store, monkeypatch):
    """The same file, sent for two days at once: the one day has a report already, and refusing it removed the file."""
    store.make_task(TASK, "me")
    digest, look, meanwhile = "b" * 64, store.report, []
    keep(store, digest="a" * 64)

    def interrupted(name):
        found = look(name)
        if not meanwhile:
            meanwhile.append(True)
            keep(store, digest=digest, noise="11", period="2026-11-17")
        return found

    monkeypatch.setattr(store, "report", interrupted)
    with pytest.raises(ConflictError):
        keep(store, digest=digest, noise="11")
    assert store.reports("reach")[-1]["digest"] == digest
    assert store.path(digest).read_bytes() == b"cells"


def test_the_largest_report_of_a_task_is_kept(store):
    """2^28 cells are 2^31 bytes and a head, beyond 32 bits; the file has a hole, so it takes no room."""
    store.make_task(TASK, "me")
    largest = Task(id="large", epsilon="1", cells=2**28).largest
    large = upload(store, "large")
    os.truncate(large, largest)
    assert store.keep_report(TASK, "berlin", "2026-11-16", "a" * 64, large, power="1", noises=["00"], who=SITE)
    assert store.report("a" * 64)["bytes"] == largest > 2**31


def test_the_sweep_removes_what_no_row_names(store):
    store.make_task(TASK, "me")
    keep(store, digest="a" * 64)
    orphan = store.path("c" * 64)
    orphan.parent.mkdir(exist_ok=True)
    orphan.write_bytes(b"x")
    upload(store, "broken off")
    store.sweep()
    assert not orphan.exists()
    assert not list(store.incoming.iterdir())
    assert store.path("a" * 64).exists()


def test_jobs_are_asked_once_and_survive(store):
    store.make_task(TASK, "me")
    question = {"work": "answer", "reports": ["a"]}
    assert store.ask("j", "reach", question)["state"] == "waiting"
    assert store.ask("j", "reach", question)["tries"] == 0
    for tries in (1, 2, 3):
        assert store.next_job()["tries"] == tries
        assert store.next_job() is None, "running"
        store.take_up_jobs()  # the server was killed and is back
    assert store.next_job() is None, "it took three servers down"
    assert store.job("j")["state"] == "failed"
    store.ask("k", "reach", question)
    store.next_job()
    store.finish_job("k", {"reach": 1})
    assert store.job("k")["state"] == "done"
    assert store.job("k")["answer"] == {"reach": 1}


def test_answers_are_forgotten_after_a_week(store):
    """A year of reports on a page that is watched would fill the tables; a job that has not been done stays."""
    store.make_task(TASK, "me")
    for name in ("old", "new", "waiting", "now"):
        store.ask(name, "reach", {"work": "answer", "reports": ["a"]})
    ages = {"old": ("done", KEPT_DAYS + 1), "new": ("done", KEPT_DAYS - 1), "waiting": ("waiting", 99)}
    for name, (state, days) in ages.items():
        with store.engine.begin() as connection:
            row = schema.jobs.update().where(schema.jobs.c.id == name)
            connection.execute(row.values(state=state, updated=now(days)))
    store.finish_job("now", {"reach": 1})
    assert [name for name in ("old", "new", "waiting", "now") if store.job(name)] == ["new", "waiting", "now"]
    assert store.ask("old", "reach", {"work": "answer", "reports": ["a"]})["state"] == "waiting", "and asked anew"


def test_what_was_done_is_written_down(store):
    store.make_task(TASK, "me")
    store.make_token("viewer", None, "me")
    assert [(entry["who"], entry["did"]) for entry in store.audit()] == [("me", "made token"), ("me", "made task")]


def test_migrations_keep_what_the_first_version_held(tmp_path):
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'collector.db'}")
    migrate(engine, "0001")
    assert "jobs" not in sa.inspect(engine).get_table_names()
    body = json.dumps(TASK.to_dict())
    with engine.begin() as connection:
        connection.execute(schema.tasks.insert().values(id="reach", body=body, created="2026-11-16T00:00:00Z"))
    engine.dispose()
    store = Store(tmp_path)
    assert store.task("reach") == TASK
    assert store.ask("j", "reach", {})["state"] == "waiting"
    store.close()


def test_a_postgres_of_an_earlier_version_keeps_its_reports_and_takes_larger_ones(database, tmp_path):
    engine = psycopg_engine(emptied(database))
    migrate(engine, "0003")
    with engine.begin() as connection:
        made = "2026-11-16T00:00:00Z"
        connection.execute(schema.tasks.insert().values(id="reach", body=json.dumps(TASK.to_dict()), created=made))
        row = {"task": "reach", "period": "2026-11-16", "power": "1", "received": made}
        connection.execute(schema.reports.insert().values(digest="a" * 64, site="berlin", bytes=2**31 - 1, **row))
    with pytest.raises(sa.exc.DataError, match="out of range"), engine.begin() as connection:
        connection.execute(schema.reports.insert().values(digest="b" * 64, site="paris", bytes=2**31, **row))
    migrate(engine)
    with engine.begin() as connection:
        connection.execute(schema.reports.insert().values(digest="b" * 64, site="paris", bytes=2**31, **row))
    engine.dispose()
    store = Store(tmp_path, database)
    assert [row["bytes"] for row in store.reports("reach")] == [2**31 - 1, 2**31]
    store.close()


def test_the_tables_are_those_of_the_schema(store):
    found = sa.inspect(store.engine)
    for table in schema.metadata.sorted_tables:
        columns = {column["name"]: column["nullable"] for column in found.get_columns(table.name)}
        assert columns == {column.name: column.nullable for column in table.columns}, table.name


def test_back_up_and_restore(tmp_path):
    store = Store(tmp_path / "data")
    store.make_task(TASK, "me")
    for number in range(3):
        digest = f"{number}" * 64
        keep(store, digest=digest, site=f"s{number}", noise=f"{number}{number}")
    assert backup(tmp_path / "data", tmp_path / "b.tar") == 3
    store.close()
    assert restore(tmp_path / "b.tar", tmp_path / "again") == 3
    again = Store(tmp_path / "again")
    again.sweep()
    assert [row["site"] for row in again.reports("reach")] == ["s0", "s1", "s2"]
    assert all(again.path(row["digest"]).read_bytes() == b"cells" for row in again.reports("reach"))
    again.close()
    with pytest.raises(InputError, match="empty"):
        restore(tmp_path / "b.tar", tmp_path / "again")
    with pytest.raises(FormatError, match="back-up"):
        restore(made_report(tmp_path / "x.sketch"), tmp_path / "new")
    assert not (tmp_path / "new").exists()
    (tmp_path / "broken.db").write_bytes(b"no table" * 200)
    with tarfile.open(tmp_path / "d.tar", "w") as tar:
        tar.add(tmp_path / "broken.db", DATABASE)
    (tmp_path / "mounted").mkdir()
    with pytest.raises(FormatError, match="not a back-up of a collector: file is not a database"):
        restore(tmp_path / "d.tar", tmp_path / "mounted")
    assert not any((tmp_path / "mounted").iterdir()), "so that it can be tried again"
    with pytest.raises(InputError, match="pg_dump"):
        backup(tmp_path / "nothing", tmp_path / "c.tar")
