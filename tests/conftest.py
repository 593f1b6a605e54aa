"""What all tests share."""

import hashlib
import os
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import settings

from browser_tools import complaints, open_browser
from unnoise import _sampler

# Scripts that tests run in processes of their own, not modules to collect.
collect_ignore_glob = ["spark_*.py"]

# Tests read data that belong to the project: no ledger beside them, unless a test asks for one.
os.environ.setdefault("UNNOISE_LEDGER", "off")

# The same examples and the same noise every time, so that a failure speaks of the change at hand; UNNOISE_EXPLORE=1
# looks for new ones.
REPEATABLE = not os.environ.get("UNNOISE_EXPLORE")
settings.register_profile("repeatable", derandomize=True, print_blob=True)
if REPEATABLE:
    settings.load_profile("repeatable")

SYSTEM = os.urandom


@contextmanager
def repeatable_noise(name):
    """Make the keys that the sampler takes from the system in this process a function of ``name`` and their number."""
    if not REPEATABLE:
        yield
        return
    process, number, before = os.getpid(), count(), _sampler.os

    def drawn(size):
        if os.getpid() != process or os.urandom is not SYSTEM:  # a child, or a test with entropy of its own
            return os.urandom(size)
        return hashlib.shake_256(f"{name} {next(number)}".encode()).digest(size)

    _sampler.os = SimpleNamespace(urandom=drawn)
    try:
        yield
    finally:
        _sampler.os = before


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    with repeatable_noise(item.nodeid):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_fixture_setup(fixturedef, request):
    """Whichever test asks first for what a file or a session shares, it is the same."""
    if request.scope == "function":
        return (yield)
    with repeatable_noise(f"{fixturedef.baseid} {fixturedef.argname} {getattr(request, 'param', '')}"):
        return (yield)


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    with open_browser(tmp_path_factory.mktemp("chromium")) as driver:
        yield driver


@pytest.fixture(scope="module")
def browser(chromium):
    """The one browser of this process, left as it was found: no page, nothing to complain about."""
    yield chromium
    chromium.get("about:blank")
    complaints(chromium)


LONGEST = (
    "test_invariants", "test_direct", "test_spark_cluster", "test_docs", "test_plan", "test_audits", "spark",
    "test_items", "test_collisions", "test_observable", "test_serve_http", "test_advise", "test_sites", "test_engine",
    "test_cli_terminal",
)  # fmt: skip
"""Groups of tests that take a minute or more: begun at the end, one of them would keep a process alone.

Longest first, but that the two groups of Spark are kept apart, and so seldom run beside each other.
"""

TOGETHER = {"tests/test_spark_job.py": "spark", "tests/test_spark_cells.py": "spark"}
"""Files that share a session of Spark, and so a process; every other file is a group by itself."""


def group_of(name: str) -> str:
    return TOGETHER.get(name, Path(name).stem)


def pytest_collection_modifyitems(items) -> None:
    """Begin with the LONGEST groups, then those that hold slow tests."""
    names = {item: group_of(item.nodeid.split("::")[0]) for item in items}
    rank = {name: place - len(LONGEST) for place, name in enumerate(LONGEST)}
    slow = {names[item] for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: rank.get(names[item], names[item] not in slow))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Give each group to one process (--dist loadfile; the marks of --dist loadgroup are lost on pytest 9.2)."""
    from xdist.scheduler import LoadFileScheduling

    class ByGroup(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(super()._split_scope(nodeid))

    return ByGroup(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_terminal_summary(terminalreporter) -> None:
    """Print the seconds of each test file, slowest first: where the next minute can be saved."""
    seconds: dict[str, float] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if hasattr(report, "duration") and hasattr(report, "nodeid"):
                name = report.nodeid.split("::")[0]
                seconds[name] = seconds.get(name, 0.0) + report.duration
    slow = sorted(((spent, name) for name, spent in seconds.items() if spent >= 1), reverse=True)
    if slow:
        terminalreporter.section("seconds by file")
        for spent, name in slow:
            terminalreporter.write_line(f"{spent:7.1f}  {name}")
