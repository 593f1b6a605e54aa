"""The engine: models of a profile, weighed by evidence, through any channel."""
