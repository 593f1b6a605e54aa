"""Reports of 2³¹ bytes and more."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

__all__ = ["upgrade"]

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Let the bytes of a report have 64 bits, as every integer of SQLite has already."""
    if op.get_bind().dialect.name != "sqlite":
        op.alter_column("reports", "bytes", type_=sa.BigInteger, existing_nullable=False)
