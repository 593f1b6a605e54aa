"""The collector: sites send sealed sketches, one page answers (extra ``serve``; docs/collector.md)."""

DATABASE = "collector.db"
"""The tables in a data folder, unless they are in Postgres."""
