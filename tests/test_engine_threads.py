"""Linear algebra has one thread where threads would only wait for each other."""

from __future__ import annotations

import sys

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from unnoise.engine.channel import one_thread


def threads() -> int:
    return max(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")


def test_one_thread_within_and_as_many_as_before_after():
    with threadpool_limits(2, user_api="blas"):
        assert threads() == 2
        assert one_thread(threads)() == 1
        assert threads() == 2


def test_errors_pass_and_threads_come_back():
    @one_thread
    def fail() -> None:
        raise ValueError("within")

    with threadpool_limits(2, user_api="blas"):
        with pytest.raises(ValueError, match="within"):
            fail()
        assert threads() == 2


def test_without_threadpoolctl_nothing_changes(monkeypatch):
    monkeypatch.setitem(sys.modules, "threadpoolctl", None)
    with threadpool_limits(2, user_api="blas"):
        assert one_thread(threads)() == 2
