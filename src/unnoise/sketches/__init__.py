"""Sketches: hashing, cells, guards, files (secret side)."""
