"""The operator's own metrics, for Prometheus."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

__all__ = ["Metrics", "ReconcileResult"]

_BUCKETS = (0.001, 0.005, 0.02, 0.1, 0.5, 2, 10, 60, 120)


@dataclass(slots=True)
class ReconcileResult:
    """How the reconcile of one resource ended."""

    result: str = "done"
    """Label `result` of the metric: done, waiting, error, overdue or bug."""


class Metrics:
    """All metrics of the operator."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.listed = Gauge(
            "penstock_operator_list_timestamp_seconds", "When all resources were listed last.", registry=self.registry
        )
        self.queued = Gauge(
            "penstock_operator_queue_keys", "Resources that wait in the work queue.", registry=self.registry
        )
        self.leading = Gauge(
            "penstock_operator_leading", "1 if this operator leads, 0 if it waits.", registry=self.registry
        )
        self.left_to_others = Gauge(
            "penstock_operator_brokers_of_others",
            "Brokers that this operator sees and leaves alone because another operator manages them.",
            registry=self.registry,
        )
        self._passes = Counter(
            "penstock_operator_passes",
            "Number of reconciles of single resources.",
            ("kind", "result"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "penstock_operator_pass_seconds",
            "How long a reconcile took.",
            ("kind",),
            buckets=_BUCKETS,
            registry=self.registry,
        )

    @contextmanager
    def measured(self, kind: str) -> Generator[ReconcileResult]:
        """Measure one reconcile; the caller sets the result."""
        result, began = ReconcileResult(), time.monotonic()
        try:
            yield result
        finally:
            self._seconds.labels(kind).observe(time.monotonic() - began)
            self._passes.labels(kind, result.result).inc()

    def expose(self) -> bytes:
        """All metrics in the text format of Prometheus."""
        return generate_latest(self.registry)
