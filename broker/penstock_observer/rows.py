"""Ledger columns from one poll of a broker.

Pure: no clock, no files, no Arrow. Source: penstock_api.ledger_format, which says what each column means.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from penstock_api.ledger_format import COLUMNS, HISTOGRAMS, RowKind
from penstock_api.state_documents import (
    BrokerState,
    ConsumerTotal,
    DurationHistogram,
    RepeatedMessage,
    SubscriptionState,
)

__all__ = [
    "BrokerRun",
    "Columns",
    "Histograms",
    "Poll",
    "Row",
    "RowOrigin",
    "columns_of",
    "consumer_column",
    "histogram_columns",
    "histograms_of",
    "rows_of",
]

Row = Mapping[str, object]
Columns = dict[str, list[object]]
"""Values of some columns, by name; all lists have the same length. A column that is not there is null."""
Histograms = tuple[DurationHistogram, DurationHistogram, DurationHistogram]
"""In the order of `HISTOGRAMS`."""
BrokerRun = tuple[str, int, int]
"""Data folder, epoch and start: a folder that was restored from a backup counts epochs again that it had before."""


@dataclass(frozen=True, slots=True)
class Poll:
    """What a broker reported at one time: its own state and those of all its subscriptions."""

    broker: BrokerState
    subscriptions: tuple[SubscriptionState, ...]
    complete: bool = True
    """False if subscriptions came or went while they were read: then the absence of one proves nothing."""
    clock_step_ms: int | None = None
    """By how much the broker's clock was set since the poll before, as `broker_clock.step_between`; None: not known."""

    @property
    def run(self) -> BrokerRun:
        """The run of the broker that answered: its totals, numbers and histograms go on as long as this is the same."""
        return self.broker.instance_id, self.broker.epoch, self.broker.started_ms


@dataclass(frozen=True, slots=True)
class RowOrigin:
    """From which broker the rows come: columns that are the same in all of them, and what the file says."""

    broker: str
    ordinal: int
    interval_ms: int
    namespace: str = ""
    """Of the Broker. Empty: files do not name it."""


def columns_of(poll: Poll, writer: RowOrigin, first_seq: int) -> Columns:
    """The rows of one poll without their histograms, seq ascending from ``first_seq``; the broker's is the last."""
    states, broker = poll.subscriptions, poll.broker
    last_seq = first_seq + len(states)
    rows = len(states) + 1
    columns: Columns = {
        "seq": [*range(first_seq, last_seq + 1)],
        "kind": [*[RowKind.SUBSCRIPTION.value] * len(states), RowKind.BROKER.value],
        "poll": [last_seq] * rows,
        "time_ms": [broker.now_ms] * rows,
        "broker": [writer.broker] * rows,
        "ordinal": [writer.ordinal] * rows,
        "instance": [broker.instance_id] * rows,
        "epoch": [broker.epoch] * rows,
        "started_ms": [broker.started_ms] * rows,
    }
    for name in _COPIED:
        columns[name] = [*map(attrgetter(name), states), None]
    for name in _SAID:
        columns[name] = [*(getattr(each, name) if name in each.model_fields_set else None for each in states), None]
    owners = [each.owner for each in states]
    columns["owner_namespace"] = [*(None if each is None else each.namespace for each in owners), None]
    columns["owner_name"] = [*(None if each is None else each.name for each in owners), None]
    columns["owner_uid"] = [*(None if each is None else each.uid for each in owners), None]
    columns["repeated"] = [*(_repeated(each.repeated) for each in states), None]
    for name, value in _broker(poll, writer).items():
        columns[name] = [*[None] * len(states), value]
    return columns


def histogram_columns(found: Mapping[int, Histograms], rows: int) -> Columns:
    """The histograms of the rows that have one, by the row's number among so many."""
    columns: Columns = {}
    for place, name in enumerate(HISTOGRAMS):
        for part in ("indexes", "counts", "sum_ms"):
            values: list[object] = [None] * rows
            for row, histograms in found.items():
                values[row] = getattr(histograms[place], part)
            columns[f"{name}_{part}"] = values
    return columns


def consumer_column(found: Mapping[int, Sequence[ConsumerTotal]], rows: int) -> Columns:
    """The consumers of the rows that have them, by the row's number among so many."""
    values: list[object] = [None] * rows
    for row, totals in found.items():
        values[row] = _consumers(totals)
    return {"consumer_totals": values}


def _consumers(totals: Sequence[ConsumerTotal]) -> str | None:
    if not totals:
        return None
    fields = [{"container": each.container, "delivered": each.delivered, "sinceMs": each.since_ms} for each in totals]
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def histograms_of(state: SubscriptionState) -> Histograms:
    """In the order of `HISTOGRAMS`."""
    return (state.sojourn, state.wait, state.hold)


def rows_of(poll: Poll, writer: RowOrigin, first_seq: int) -> list[Row]:
    """The rows of one poll, each with its histograms: what the ledger would hold if it repeated everything."""
    states = poll.subscriptions
    found = {row: histograms_of(state) for row, state in enumerate(states)}
    consumers = consumer_column({row: state.consumer_totals for row, state in enumerate(states)}, len(states) + 1)
    columns = columns_of(poll, writer, first_seq) | histogram_columns(found, len(states) + 1) | consumers
    ordered = [columns[column.name] for column in COLUMNS]
    return [dict(zip((column.name for column in COLUMNS), row, strict=True)) for row in zip(*ordered, strict=True)]


def _broker(poll: Poll, writer: RowOrigin) -> Row:
    return {
        "interval_ms": writer.interval_ms,
        "complete": poll.complete,
        "connections": poll.broker.connections,
        "subscriptions": len(poll.subscriptions),
        "durable_work": poll.broker.durable_work,
        "clock_step_ms": poll.clock_step_ms,
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
    "purged",
    "stranded",
    "first_expires_ms",
    "last_expires_ms",
)
"""Columns whose name and value are those of SubscriptionState."""


_SAID: Final = ("usable_credit", "usable_consumers")
"""Columns that are null if the broker's release does not know the key: its 0 would then say that no link is usable."""


def _repeated(messages: Sequence[RepeatedMessage]) -> str | None:
    if not messages:
        return None
    fields = [
        {"id": message.id, "deliveryCount": message.delivery_count, "availableMs": message.available_ms}
        for message in messages
    ]
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
