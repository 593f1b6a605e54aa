"""What all tests share."""

import os

from hypothesis import settings

# Scripts that tests run in processes of their own, not modules to collect.
collect_ignore_glob = ["spark_*.py"]

# Tests read data that belong to the project: no ledger beside them, unless a test asks for one.
os.environ.setdefault("UNNOISE_LEDGER", "off")

# The same examples every time, so that a failure speaks of the change at hand; UNNOISE_EXPLORE=1 looks for new ones.
settings.register_profile("repeatable", derandomize=True, print_blob=True)
if not os.environ.get("UNNOISE_EXPLORE"):
    settings.load_profile("repeatable")


def pytest_collection_modifyitems(items) -> None:
    """Begin with the files that hold slow tests, so that no process is left with one of them at the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


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
