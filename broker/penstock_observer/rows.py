"""Ledger rows from one poll of a broker.

Pure: no clock, no files, no Arrow. Source: penstock_api.ledger_format, which says what each column means.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from penstock_api.ledger_format import COLUMNS, RowKind
from penstock_api.management import BrokerState, DurationHistogram, RepeatedMessage, SubscriptionState

__all__ = ["Poll", "Row", "RowOrigin", "estimated_bytes", "rows_of"]

Row = Mapping[str, object]

ROW_BYTES: Final = 480
BUCKET_BYTES: Final = 16
_EMPTY: Final[Row] = {column.name: None for column in COLUMNS}


@dataclass(frozen=True, slots=True)
class Poll:
    """What a broker reported at one time: its own state and those of all its subscriptions."""

    broker: BrokerState
    subscriptions: tuple[SubscriptionState, ...]
    complete: bool = True
    """False if subscriptions came or went while they were read: then the absence of one proves nothing."""


@dataclass(frozen=True, slots=True)
class RowOrigin:
    """From which broker the rows come: columns that are the same in all of them."""

    broker: str
    ordinal: int
    interval_ms: int


def rows_of(poll: Poll, writer: RowOrigin, first_seq: int) -> list[Row]:
    """The rows of one poll, seq ascending from ``first_seq``; the broker row is the last one."""
    last_seq = first_seq + len(poll.subscriptions)
    common: Row = {
        "poll": last_seq,
        "time_ms": poll.broker.now_ms,
        "broker": writer.broker,
        "ordinal": writer.ordinal,
        "instance": poll.broker.instance_id,
        "epoch": poll.broker.epoch,
    }
    rows: list[Row] = [
        {**_EMPTY, **common, "seq": seq, "kind": RowKind.SUBSCRIPTION.value, **_subscription(state)}
        for seq, state in enumerate(poll.subscriptions, first_seq)
    ]
    rows.append({**_EMPTY, **common, "seq": last_seq, "kind": RowKind.BROKER.value, **_broker(poll, writer)})
    return rows


def estimated_bytes(poll: Poll) -> int:
    """Estimated bytes of one poll's rows in memory; only used to decide when to seal a segment."""
    buckets = sum(len(s.sojourn.indexes) + len(s.wait.indexes) + len(s.hold.indexes) for s in poll.subscriptions)
    return (len(poll.subscriptions) + 1) * ROW_BYTES + buckets * BUCKET_BYTES


def _broker(poll: Poll, writer: RowOrigin) -> Row:
    return {
        "interval_ms": writer.interval_ms,
        "complete": poll.complete,
        "connections": poll.broker.connections,
        "subscriptions": len(poll.subscriptions),
        "durable_work": poll.broker.durable_work,
    }


_COPIED: Final = (
    "queue_name",
    "subscription_name",
    "scope",
    "client_id",
    "durable",
    "exchange",
    "incarnation",
    "depth",
    "depth_bytes",
    "ready",
    "in_flight",
    "scheduled",
    "oldest_available_ms",
    "oldest_hold_ms",
    "consumers",
    "credit",
    "unused_since_ms",
    "enqueued",
    "enqueued_bytes",
    "delivered",
    "redelivered",
    "acked",
    "returned",
    "expired",
    "dead_lettered",
    "dropped",
    "lost_at_restart",
    "max_delivery_count",
    "moved",
    "stranded",
)
"""Columns whose name and value are those of SubscriptionState."""


_SAID: Final = ("usable_credit", "usable_consumers")
"""Columns that are null if the broker's release does not know the key: its 0 would then say that no link is usable."""


def _subscription(state: SubscriptionState) -> Row:
    row: dict[str, object] = {name: getattr(state, name) for name in _COPIED}
    row |= {name: getattr(state, name) for name in _SAID if name in state.model_fields_set}
    row["repeated"] = _repeated(state.repeated)
    if state.owner is not None:
        row |= {
            "owner_namespace": state.owner.namespace,
            "owner_name": state.owner.name,
            "owner_uid": state.owner.uid,
        }
    return row | _buckets("sojourn", state.sojourn) | _buckets("wait", state.wait) | _buckets("hold", state.hold)


def _repeated(messages: Sequence[RepeatedMessage]) -> str | None:
    if not messages:
        return None
    fields = [
        {"id": message.id, "deliveryCount": message.delivery_count, "availableMs": message.available_ms}
        for message in messages
    ]
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def _buckets(name: str, histogram: DurationHistogram) -> dict[str, object]:
    return {
        f"{name}_indexes": histogram.indexes,
        f"{name}_counts": histogram.counts,
        f"{name}_sum_ms": histogram.sum_ms,
    }
