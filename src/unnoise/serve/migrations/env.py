"""Alembic's entry: runs the migrations over the connection that :func:`unnoise.serve.store.migrate` hands over."""

from __future__ import annotations

from alembic import context

from unnoise.serve.schema import metadata

__all__ = []

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
