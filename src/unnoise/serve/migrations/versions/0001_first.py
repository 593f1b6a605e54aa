"""The first tables: tasks, tokens, reports, noises, audit."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

__all__ = ["upgrade"]

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "tasks",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("created", sa.String(32), nullable=False),
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.String(16), primary_key=True),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("site", sa.String(64)),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.Column("created", sa.String(32), nullable=False),
        sa.Column("revoked", sa.String(32)),
    )
    op.create_table(
        "reports",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("task", sa.String(64), sa.ForeignKey("tasks.id"), nullable=False),
        sa.Column("site", sa.String(64), nullable=False),
        sa.Column("period", sa.String(16), nullable=False),
        sa.Column("power", sa.String(32), nullable=False),
        sa.Column("bytes", sa.Integer, nullable=False),
        sa.Column("received", sa.String(32), nullable=False),
        sa.UniqueConstraint("task", "site", "period", name="one_report_for_a_site_and_period"),
    )
    op.create_table(
        "noises",
        sa.Column("identity", sa.String(32), primary_key=True),
        sa.Column("report", sa.String(64), sa.ForeignKey("reports.digest"), nullable=False),
    )
    op.create_table(
        "audit",
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("at", sa.String(32), nullable=False),
        sa.Column("who", sa.String(128), nullable=False),
        sa.Column("did", sa.String(64), nullable=False),
        sa.Column("what", sa.Text, nullable=False),
    )
