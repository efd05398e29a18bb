"""Accepts what producers sent: at once, or when it is synced and in all of its queues.

Written for speed: what many producers sent, a message or two each, is accepted in one walk. Source:
docs/decisions/037-answer-after-sync.md and 118-small-batches-together.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TypeAlias

from penstock_amqp.endpoint.buffers import Ptr
from penstock_broker.access.connection import Connection, Phase
from penstock_broker.messages.refuse import top_up, when_answered
from penstock_broker.state.broker import Broker
from penstock_broker.state.fan_outs import FanOut
from penstock_broker.state.links import Producer

__all__ = ["Unanswered", "accept_stored", "close_senders"]

Unanswered: TypeAlias = tuple[Producer, list[Ptr]]
"""Deliveries of one producer that are to be accepted."""


def accept_stored(broker: Broker, unsynced: Sequence[Unanswered], unlogged: Sequence[Unanswered]) -> None:
    """Accept what was just put into queues: `unsynced` once the log has it on disk, `unlogged` at once; both not before
    it is in all of its queues.
    """
    fan_outs = broker.work.fan_outs
    fan_out = fan_outs[-1] if fan_outs else None
    if unsynced:
        for producer, _ in unsynced:
            producer.stores = True
        connections = [producer.connection for producer, _ in unsynced]
        broker.sync.after_sync_of(connections, partial(_accept, broker, unsynced, fan_out))
    if unlogged:
        _accept(broker, unlogged, fan_out)


def _accept(broker: Broker, answered: Sequence[Unanswered], fan_out: FanOut | None) -> None:
    """Accept deliveries, once `fan_out` is over. What goes wrong with those of one producer costs its connection."""
    if fan_out is not None and not fan_out.is_over:
        fan_out.after.append(partial(_accept, broker, answered, fan_out))
        return
    if fan_out is not None and fan_out.failure is not None:
        close_senders(broker, [producer.connection for producer, _ in answered], fan_out.failure)
        return
    work = broker.work
    for producer, deliveries in answered:
        link = producer.link
        if not link.is_open:
            continue
        if not link.is_answered:  # its attach is answered first
            when_answered(producer, partial(_accept, broker, [(producer, deliveries)], None))
            continue
        connection = producer.connection
        try:
            connection.endpoint.accept(deliveries)
            producer.owed_credit = owed = producer.owed_credit + len(deliveries)
            if owed * 2 >= producer.window:
                top_up(producer)
        except Exception:
            broker.fail_connection(connection)
            continue
        if not connection.is_dirty:
            connection.is_dirty = True
            work.dirty.append(connection)


def close_senders(broker: Broker, connections: Iterable[Connection], failure: Exception) -> None:
    """Messages did not come into all of their queues, and nobody was told that they are accepted: it costs the
    connections that sent them, so that their clients send them again.
    """
    for connection in dict.fromkeys(connections):
        if connection.phase is Phase.GONE:
            continue  # because of another of these messages
        try:
            raise failure
        except Exception:
            broker.fail_connection(connection)
