"""Sums of two servers."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

__all__ = ["upgrade"]

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table of sums."""
    op.create_table(
        "sums",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("task", sa.String(64), sa.ForeignKey("tasks.id"), nullable=False),
        sa.Column("period", sa.String(16), nullable=False),
        sa.Column("sites", sa.Text, nullable=False),
        sa.Column("reports", sa.Text, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("asked", sa.String(32), nullable=False),
    )
