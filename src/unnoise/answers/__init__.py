"""Answers: profile, intervals, plan, plots, report (public side)."""
