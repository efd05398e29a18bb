"""The operator's own metrics, with units in their names."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

__all__ = ["Metrics", "ReconcileResult"]

_BUCKETS = (0.001, 0.005, 0.02, 0.1, 0.5, 2, 10, 60)


@dataclass(slots=True)
class ReconcileResult:
    """How a pass over one resource ended."""

    result: str = "done"


class Metrics:
    """What is measured."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.listed = Gauge(
            "penstock_operator_list_timestamp_seconds", "When all resources were listed last.", registry=self.registry
        )
        self.queued = Gauge("penstock_operator_queue_keys", "Resources that wait.", registry=self.registry)
        self._passes = Counter(
            "penstock_operator_passes", "Passes over one resource.", ("kind", "result"), registry=self.registry
        )
        self._seconds = Histogram(
            "penstock_operator_pass_seconds",
            "How long they took.",
            ("kind",),
            buckets=_BUCKETS,
            registry=self.registry,
        )

    @contextmanager
    def measured(self, kind: str) -> Generator[ReconcileResult]:
        """Measure one pass; whoever makes it sets the result."""
        outcome, began = ReconcileResult(), time.monotonic()
        try:
            yield outcome
        finally:
            self._seconds.labels(kind).observe(time.monotonic() - began)
            self._passes.labels(kind, outcome.result).inc()

    def expose(self) -> bytes:
        """The text format."""
        return generate_latest(self.registry)
