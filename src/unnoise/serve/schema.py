"""The tables of a collector, for SQLite and Postgres alike.

Reports are files in the data folder, named by their digest; the tables say which task, site and period each belongs to,
and which noises were ever seen. The unique keys are the rules: one report for a site and period, no noise twice.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, ForeignKey, Integer, MetaData, String, Table, Text, UniqueConstraint

__all__ = ["audit", "jobs", "metadata", "noises", "reports", "sums", "tasks", "tokens"]

metadata = MetaData()

tasks = Table(
    "tasks",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("body", Text, nullable=False),
    Column("created", String(32), nullable=False),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", String(16), primary_key=True),
    Column("role", String(16), nullable=False),
    Column("site", String(64)),
    Column("hash", String(64), nullable=False),
    Column("created", String(32), nullable=False),
    Column("revoked", String(32)),
)

reports = Table(
    "reports",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("task", String(64), ForeignKey("tasks.id"), nullable=False),
    Column("site", String(64), nullable=False),
    Column("period", String(16), nullable=False),
    Column("power", String(32), nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("received", String(32), nullable=False),
    UniqueConstraint("task", "site", "period", name="one_report_for_a_site_and_period"),
)

noises = Table(
    "noises",
    metadata,
    Column("identity", String(32), primary_key=True),
    Column("report", String(64), ForeignKey("reports.digest"), nullable=False),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("task", String(64), ForeignKey("tasks.id"), nullable=False),
    Column("question", Text, nullable=False),
    Column("state", String(16), nullable=False),
    Column("tries", Integer, nullable=False),
    Column("answer", Text),
    Column("updated", String(32), nullable=False),
)

sums = Table(
    "sums",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("task", String(64), ForeignKey("tasks.id"), nullable=False),
    Column("period", String(16), nullable=False),
    Column("sites", Text, nullable=False),
    Column("reports", Text, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("asked", String(32), nullable=False),
)

audit = Table(
    "audit",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=True),
    Column("at", String(32), nullable=False),
    Column("who", String(128), nullable=False),
    Column("did", String(64), nullable=False),
    Column("what", Text, nullable=False),
)
