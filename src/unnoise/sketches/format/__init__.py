"""The file of a sealed sketch, to the byte: see docs/format.md."""
