"""Threads that hash and count, and that no signal can bring into disorder.

Python raises what a signal raises (Ctrl-C: KeyboardInterrupt) in the main thread, between any two of its steps. A pool
of ``concurrent.futures`` that is waited for there can be left with a lock held for ever. So the main thread only ever
waits in ``SimpleQueue.get``, which is one step, and work that must not be torn apart is done by another thread
(:func:`apart`), where nothing is raised.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from queue import SimpleQueue
from typing import TypeVar

__all__ = ["Crew", "all_of", "apart", "crew"]

R = TypeVar("R")


class Crew:
    """Some threads and one queue of work for them; made once, because a thread is slow to start while others work."""

    def __init__(self, size: int, name: str) -> None:
        self._work: SimpleQueue[Callable[[], None]] = SimpleQueue()
        for number in range(size):
            threading.Thread(target=self._go_on, name=f"unnoise-{name}-{number}", daemon=True).start()

    def submit(self, work: Callable[[], None]) -> None:
        """Have something done; it must not raise."""
        self._work.put(work)

    def _go_on(self) -> None:
        while True:
            self._work.get()()


@lru_cache(maxsize=1)
def crew() -> Crew:
    """Return the threads of this process, one for each processor."""
    return Crew(os.cpu_count() or 1, "count")


@lru_cache(maxsize=1)
def _one_apart() -> Crew:
    """Return the one thread that works for the main thread."""
    return Crew(1, "apart")


def _forget() -> None:
    crew.cache_clear()
    _one_apart.cache_clear()


if hasattr(os, "register_at_fork"):  # a fork has none of its parent's threads
    os.register_at_fork(after_in_child=_forget)


def all_of(calls: Sequence[Callable[[], None]], stop: threading.Event) -> None:
    """Make all calls, side by side, and return when all have ended; raise what one of them raised.

    An interruption sets ``stop``, which the calls must heed, and waits for nobody.
    """
    ended: SimpleQueue[BaseException | None] = SimpleQueue()

    def reporting(call: Callable[[], None]) -> Callable[[], None]:
        def work() -> None:
            try:
                call()
                ended.put(None)
            except BaseException as error:
                ended.put(error)

        return work

    try:
        for call in calls:
            crew().submit(reporting(call))
        errors = [ended.get() for _ in calls]
    except BaseException:
        stop.set()
        raise
    for error in errors:
        if error is not None:
            raise error


def apart(work: Callable[[], R], stop: threading.Event) -> R:
    """Return what ``work`` returns; called by the main thread, it is done in another one, to its end.

    An interruption sets ``stop``, which the work should heed, and is raised when the work has ended. (A second one is
    raised at once; the work goes on to its end by itself.)
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    results: list[R] = []
    errors: list[BaseException] = []
    ended: SimpleQueue[None] = SimpleQueue()
    once = iter([work])

    def reporting() -> None:
        for call in once:  # not again when it was submitted twice
            try:
                results.append(call())
            except BaseException as error:
                errors.append(error)
        ended.put(None)

    try:
        _one_apart().submit(reporting)
        ended.get()
    except BaseException:
        stop.set()
        _one_apart().submit(reporting)  # the interruption may have come before the first, or with its end
        ended.get()
        raise
    if errors:
        raise errors[0]
    return results[0]
