"""What all tests share."""

# Scripts that tests run in processes of their own, not modules to collect.
collect_ignore_glob = ["spark_*.py"]
