"""What everything secret obeys, each rule with a variant that breaks it and is caught."""

from __future__ import annotations

import copy
import functools
import os
import pickle
import signal
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any

import numpy as np
import pytest

from fork_tools import run_forked
from unnoise.errors import PrivacyError
from unnoise.guard import ENDED, Guarded, changing, frozen, letting_out, new_identity, quiet, this_process, wipe


class Secret(Guarded):
    noun = "secret"


class ByNumber(Secret):
    """Negative control: told apart by the number of the process alone."""

    def _require_here(self, action: str) -> None:
        if self._home[0] != os.getpid():
            raise PrivacyError("this is a fork of it")


# ── copies and processes ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("copier", [copy.copy, copy.deepcopy, pickle.dumps, lambda s: copy.deepcopy([s])])
def test_no_copies(copier: Callable[[Any], Any]) -> None:
    with pytest.raises(PrivacyError, match="a secret must not be copied or pickled"):
        copier(Secret())


def refuses(secret: Guarded) -> bool:
    try:
        secret._require_here("release")
    except PrivacyError as error:
        return "this is a fork of it" in str(error)
    return False


def refused_in_the_child(secrets: tuple[Secret, ByNumber]) -> bool:
    Secret()._require_here("release")  # a child makes secrets of its own
    return tuple(map(refuses, secrets)) == (True, "namespace" not in sys.argv)


MADE_AND_FORKED = (
    lambda: (Secret(), ByNumber()), refused_in_the_child, lambda secrets: secrets[0]._require_here("release"),
)  # fmt: skip


@pytest.mark.parametrize("how", [[], ["raw"], ["namespace"], ["raw", "namespace"]], ids=" ".join)
def test_a_secret_is_dead_in_a_fork(how: list[str]) -> None:
    """Also where Python's hook did not run, and where the child has the number of its parent."""
    run_forked("test_guard", how)


def test_a_process_keeps_its_name() -> None:
    assert this_process() == this_process()
    assert new_identity() != new_identity()


# ── all or nothing ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, ValueError, GeneratorExit])
def test_whatever_ends_a_change_early_breaks_it(error: type[BaseException]) -> None:
    one, two = Secret(), Secret()
    with changing([one, two], "an update was interrupted"):
        pass
    one._require_here("release")

    def fail() -> None:
        with changing([one, two], "an update was interrupted"):
            raise error

    with pytest.raises(error):
        fail()
    for secret in (one, two):
        with pytest.raises(PrivacyError, match=r"release needs a whole secret.*an update was interrupted"):
            secret._require_here("release")


def test_test_noise_is_refused() -> None:
    Secret()._require_private()
    with pytest.raises(PrivacyError, match="this one's is seeded for tests"):
        Secret("seeded for tests")._require_private()
    letting_out(Secret("seeded for tests")._require_private)
    with pytest.raises(PrivacyError, match="this one's is seeded for tests"):
        Secret("seeded for tests")._require_private()


# ── what leaves ───────────────────────────────────────────────────────────────────────────────────────────────


def test_released_arrays_stay_frozen() -> None:
    array = np.arange(6).reshape(2, 3)
    released = frozen(array)
    assert (released == np.arange(6).reshape(2, 3)).all()
    loose = np.arange(6).view()
    loose.base.flags.writeable = True  # negative control: what a plain view allows
    part: Any = released
    while isinstance(part, np.ndarray):
        with pytest.raises(ValueError, match="WRITEABLE"):
            part.flags.writeable = True
        part = part.base
    with pytest.raises(ValueError, match="read-only"):
        array[0, 0] = 5


def test_wiping() -> None:
    one, two = np.arange(3), np.array([[1.5]])
    wipe(one, None, two)
    assert not one.any()
    assert not two.any()


def locals_of(trace: TracebackType | None) -> str:
    found = ""
    while trace is not None:
        if trace.tb_frame.f_code.co_filename != __file__ or trace.tb_frame.f_code.co_name != "caught":
            found += repr(trace.tb_frame.f_locals)
        trace = trace.tb_next
    return found


def careless(items: list[str]) -> None:
    copied = list(items)
    try:
        raise KeyError(str(len(copied)))
    except KeyError:
        raise ValueError("items must be something else") from None


def caught(call: Callable[[list[str]], None]) -> str:
    with pytest.raises(ValueError, match="something else") as info:
        call(["alice"])
    context = info.value.__context__
    assert context is not None
    return locals_of(info.value.__traceback__) + locals_of(context.__traceback__)


def test_no_secret_in_the_frames_of_an_error() -> None:
    assert "alice" in caught(careless)  # negative control
    assert "alice" not in caught(quiet(careless))


def test_quiet_returns_and_keeps_names() -> None:
    @quiet
    def twice(x: int) -> int:
        """Double it."""
        return 2 * x

    assert (twice(4), twice.__name__, twice.__doc__) == (8, "twice", "Double it.")


def test_a_signal_at_the_very_end_of_a_call_says_so() -> None:
    """What is raised in a call is its own; what is raised when it has returned came too late to change anything."""

    def fails() -> None:
        raise KeyboardInterrupt

    handler = signal.signal(signal.SIGUSR1, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt) as early:
            quiet(fails)()
        with pytest.raises(KeyboardInterrupt) as late:
            quiet(functools.partial(os.kill, os.getpid(), signal.SIGUSR1))()
    finally:
        signal.signal(signal.SIGUSR1, handler)
    assert not hasattr(early.value, "__notes__")
    assert late.value.__notes__ == [ENDED]
