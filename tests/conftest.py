"""What all tests share."""

import os

from hypothesis import settings

# Scripts that tests run in processes of their own, not modules to collect.
collect_ignore_glob = ["spark_*.py"]

# Continuous integration tries the same examples every time; at the desk hypothesis looks for new ones.
settings.register_profile("ci", derandomize=True, print_blob=True)
if os.environ.get("CI"):
    settings.load_profile("ci")
