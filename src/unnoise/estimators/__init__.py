"""Estimators: noisy profile → profile."""
