"""Polls with few words: what a broker says in the tests of the observer and of the lag job."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from penstock_api.lag_result import LagResult
from penstock_api.state_documents import BrokerState, SubscriptionState
from penstock_observer.parquet import SCHEMA
from penstock_observer.poller import BrokerAway
from penstock_observer.rows import Poll, Row

pa: Any = importlib.import_module("pyarrow")  # it ships no type information

START_MS = 1_700_000_400_000
"""2023-11-14T22:20:00Z, not on the hour."""
END = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
"""Where the window of a result ends unless told otherwise."""


def a_broker(now_ms: int = START_MS, **changes: Any) -> BrokerState:
    """A broker at one time."""
    values: dict[str, Any] = {
        "instance_id": "i-1",
        "epoch": 3,
        "version": "0.1.0",
        "started_ms": START_MS - 60_000,
        "now_ms": now_ms,
        "connections": 2,
        "subscriptions": 1,
        "exchanges": 1,
        "queues": 0,
        "durable_work": "Ok",
        "log_bytes": 4096,
        "log_segments": 1,
        "log_syncs": 7,
        "turns": 99,
    }
    return BrokerState(**(values | changes))


def a_subscription(name: str = "orders", **changes: Any) -> SubscriptionState:
    """A shared durable global subscription, empty and unused unless told otherwise."""
    values: dict[str, Any] = {
        "queue_name": f"psub:durable:global:{name}",
        "subscription_name": name,
        "scope": "Global",
        "sharing": "Shared",
        "durable": True,
        "expiry_policy": "Never",
        "exchange": "events",
        "binding_keys": ("#",),
        "incarnation": 11,
        "revision": 5,
        "depth": 0,
        "depth_bytes": 0,
        "ready": 0,
        "in_flight": 0,
        "consumers": 0,
        "credit": 0,
        "enqueued": 0,
        "enqueued_bytes": 0,
        "delivered": 0,
        "redelivered": 0,
        "acked": 0,
        "returned": 0,
    }
    return SubscriptionState(**(values | changes))


def a_poll(now_ms: int = START_MS, *states: SubscriptionState, complete: bool = True, **broker: Any) -> Poll:
    """One poll."""
    return Poll(a_broker(now_ms, subscriptions=len(states), **broker), states, complete=complete)


def table_of(rows: Sequence[Row]) -> Any:
    """An Arrow table of ledger rows, as they are."""
    return pa.table({name: [row[name] for row in rows] for name in SCHEMA.names}, schema=SCHEMA)


@dataclass(slots=True)
class ScriptedBroker:
    """A broker that gives prepared answers, the last one for ever; an exception in the list is raised."""

    answers: list[Poll | BrokerAway] = field(default_factory=list[Poll | BrokerAway])
    asked: int = 0
    closed: int = 0

    async def poll(self) -> Poll:
        """The next answer."""
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BrokerAway):
            raise answer
        return answer

    async def close(self) -> None:
        """Count."""
        self.closed += 1


def a_result(run_name: str = "run-1", end: datetime = END, **changes: Any) -> bytes:
    """A small valid document."""
    values: dict[str, Any] = {
        "broker": "main",
        "namespace": "shop",
        "run_name": run_name,
        "window_start": end - timedelta(minutes=5),
        "window_end": end,
        "expected_brokers": 1,
        "reporting_brokers": 1,
    }
    return LagResult(**(values | changes)).to_json().encode()
