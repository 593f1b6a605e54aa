"""Numbers for Prometheus; none depends on what a report holds."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

__all__ = ["Metrics"]


class Metrics:
    """Counters of one server, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        make = {"registry": self.registry, "namespace": "unnoise"}
        self.requests = Counter("requests", "Requests answered.", ["method", "status"], **make)  # type: ignore[arg-type]
        self.received = Counter("reports_received", "Reports taken in.", ["task"], **make)  # type: ignore[arg-type]
        self.refused = Counter("reports_refused", "Reports that did not pass verification.", **make)  # type: ignore[arg-type]
        self.verifying = Histogram("verifying_seconds", "Time to verify a report.", **make)  # type: ignore[arg-type]
        self.answering = Histogram("answering_seconds", "Time to answer a question.", **make)  # type: ignore[arg-type]

    def text(self) -> bytes:
        """The numbers in Prometheus' form."""
        return generate_latest(self.registry)
