"""The collector: sites send sealed sketches, one page answers (extra ``serve``; docs/collector.md)."""
