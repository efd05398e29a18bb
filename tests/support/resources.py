"""Valid resources that tests change, the table of invalid ones, and values that tests of the operator need."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from penstock_api.resources import Broker, Exchange, Queue, Subscription, parse
from penstock_api.state_documents import BrokerState

TABLE = Path(__file__).parent.parent / "api" / "bad_manifests.yaml"
NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)

GOOD: dict[str, dict[str, Any]] = {
    "Broker": {
        "apiVersion": "penstock.dev/v1alpha1",
        "kind": "Broker",
        "metadata": {"name": "main", "namespace": "shop"},
        "spec": {"authentication": {"anonymous": True}},
    },
    "Exchange": {
        "apiVersion": "penstock.dev/v1alpha1",
        "kind": "Exchange",
        "metadata": {"name": "orders", "namespace": "shop"},
        "spec": {"brokerRef": {"name": "main"}},
    },
    "Subscription": {
        "apiVersion": "penstock.dev/v1alpha1",
        "kind": "Subscription",
        "metadata": {"name": "billing", "namespace": "shop"},
        "spec": {"brokerRef": {"name": "main"}, "exchangeRef": {"name": "orders"}},
    },
    "Queue": {
        "apiVersion": "penstock.dev/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": "invoices", "namespace": "shop"},
        "spec": {"brokerRef": {"name": "main"}},
    },
}


@dataclass(frozen=True, slots=True)
class Bad:
    """One row of the table of invalid manifests."""

    name: str
    manifest: dict[str, Any]
    says: str


def bad_manifests() -> list[Bad]:
    """All rows of the table, as whole manifests."""
    rows: list[Bad] = []
    for row in yaml.safe_load(TABLE.read_text()):
        manifest = copy.deepcopy(GOOD[row["kind"]])
        manifest["metadata"].update(row.get("metadata", {"name": f"bad-{len(rows)}"}))
        for field, value in row.get("spec", {}).items():
            if value is None:
                del manifest["spec"][field]
            else:
                manifest["spec"][field] = value
        for field in row.get("drop", []):
            del manifest[field]
        rows.append(Bad(row["name"], manifest, row.get("says", "")))
    return rows


def manifest_of(kind: str, spec: dict[str, Any], status: dict[str, Any] | None, metadata: dict[str, Any]) -> Any:
    """A valid manifest of a kind with changes, as the API server would return it."""
    made = copy.deepcopy(GOOD[kind])
    made["metadata"].update({"uid": f"uid-{made['metadata']['name']}", "generation": 3, "resourceVersion": "7"})
    made["metadata"].update(metadata)
    made["spec"].update(spec)
    if status is not None:
        made["status"] = status
    return made


def broker_state(**changes: Any) -> BrokerState:
    """What a broker reports that has just started and has no messages."""
    texts = {"instance_id": "i1", "version": "0.1.0", "durable_work": "Ok"}
    times = ("started_ms", "now_ms")
    counts = ("connections", "subscriptions", "exchanges", "queues", "log_bytes", "log_segments", "log_syncs", "turns")
    values: dict[str, Any] = {**texts, **dict.fromkeys((*times, *counts), 0), "epoch": 1}
    return BrokerState(**(values | changes))


def broker(status: dict[str, Any] | None = None, metadata: dict[str, Any] | None = None, **spec: Any) -> Broker:
    """A Broker with these fields of its spec."""
    made = parse(manifest_of("Broker", spec, status, metadata or {}))
    assert isinstance(made, Broker)
    return made


def exchange(status: dict[str, Any] | None = None, metadata: dict[str, Any] | None = None, **spec: Any) -> Exchange:
    """An Exchange with these fields of its spec."""
    made = parse(manifest_of("Exchange", spec, status, metadata or {}))
    assert isinstance(made, Exchange)
    return made


def subscription(
    status: dict[str, Any] | None = None, metadata: dict[str, Any] | None = None, **spec: Any
) -> Subscription:
    """A Subscription with these fields of its spec."""
    made = parse(manifest_of("Subscription", spec, status, metadata or {}))
    assert isinstance(made, Subscription)
    return made


def queue(status: dict[str, Any] | None = None, metadata: dict[str, Any] | None = None, **spec: Any) -> Queue:
    """A Queue with these fields of its spec."""
    made = parse(manifest_of("Queue", spec, status, metadata or {}))
    assert isinstance(made, Queue)
    return made
