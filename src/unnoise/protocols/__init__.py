"""Protocols that speak the same noise."""
