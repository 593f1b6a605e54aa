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
