"""Numbers for Prometheus; none depends on what a report holds."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

__all__ = ["Metrics"]


class Metrics:
    """Counters of one server, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        make: dict[str, Any] = {"registry": self.registry, "namespace": "unnoise"}
        self.requests = Counter("requests", "Requests answered.", ["method", "status"], **make)
        self.received = Counter("reports_received", "Reports taken in.", ["task"], **make)
        self.refused = Counter("reports_refused", "Reports that did not pass verification.", **make)
        self.verifying = Histogram("verifying_seconds", "Time to verify a report.", **make)
        self.answering = Histogram("answering_seconds", "Time to answer a question.", **make)

    def text(self) -> bytes:
        """The numbers in Prometheus' form."""
        return bytes(generate_latest(self.registry))
