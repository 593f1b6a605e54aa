"""What all tests share."""

import os

from hypothesis import settings

# Scripts that tests run in processes of their own, not modules to collect.
collect_ignore_glob = ["spark_*.py"]

# The same examples every time, so that a failure speaks of the change at hand; UNNOISE_EXPLORE=1 looks for new ones.
settings.register_profile("repeatable", derandomize=True, print_blob=True)
if not os.environ.get("UNNOISE_EXPLORE"):
    settings.load_profile("repeatable")
