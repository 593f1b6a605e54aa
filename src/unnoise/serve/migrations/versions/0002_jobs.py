"""Answers as jobs that survive a restart."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

__all__ = ["upgrade"]

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table of jobs."""
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("task", sa.String(64), sa.ForeignKey("tasks.id"), nullable=False),
        sa.Column("question", sa.Text, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("tries", sa.Integer, nullable=False),
        sa.Column("answer", sa.Text),
        sa.Column("updated", sa.String(32), nullable=False),
    )
