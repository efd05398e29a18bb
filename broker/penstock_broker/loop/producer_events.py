"""Messages of a producer that the broker can't take: too large, not stored, or wrong. The link may be closed then."""

from __future__ import annotations

from penstock_amqp.endpoint.events import AmqpError, Event, EventKind, TooLarge, Unstored
from penstock_broker.access.connection import Connection
from penstock_broker.attach import close, temporary
from penstock_broker.messages.refuse import UNREADABLE, refuse, refuse_unreadable
from penstock_broker.state.broker import Broker
from penstock_broker.state.links import Producer
from penstock_broker.state.open_transactions import Coordinator
from penstock_broker.transactions import commit, coordinator, work
from penstock_core.reason import REASON_KEY, Reason

__all__ = ["close_broken", "too_large", "unstored"]


def too_large(broker: Broker, connection: Connection, event: TooLarge, behind: list[Event]) -> None:
    """A message is longer than the link takes: close the link. `behind`: what the same read brought after it."""
    link = event.link
    context = link.context
    is_coordinator = isinstance(context, Coordinator)
    most = coordinator.MAX_REQUEST_BYTES if is_coordinator else connection.listener.max_message_bytes
    told = AmqpError(
        "amqp:link:message-size-exceeded",
        f"The link takes messages of at most {most} bytes; send smaller ones.",
        {REASON_KEY: Reason.LIMIT_EXCEEDED.value},
    )
    commit.set_rollback_only(connection, event.txn_id, commit.refuse_of(told))
    if not link.is_open:
        return
    if isinstance(context, Producer):
        close_broken(broker, context, told, behind)
    elif is_coordinator:
        close.remove_link(broker, link, [])
        connection.endpoint.detach(link, closed=True, error=told)


def unstored(broker: Broker, connection: Connection, event: Unstored, behind: list[Event]) -> None:
    """A long message could not be stored while it came: refuse it, within or outside of a transaction."""
    producer = event.link.context
    if not isinstance(producer, Producer) or not event.link.is_open:
        commit.set_rollback_only(connection, event.txn_id, commit.refuse_of(event.error))
        return
    if event.txn_id is not None and connection.transactions is not None:
        work.refuse_unstored(producer, event)
    elif event.error.condition == UNREADABLE:
        refuse_unreadable(producer, event.delivery, event.is_settled, event.error)
    else:
        refuse(producer, event.delivery, event.is_settled, event.error)
    if producer.broken is not None:
        close_broken(broker, producer, producer.broken, behind)


def close_broken(broker: Broker, producer: Producer, told: AmqpError, behind: list[Event]) -> None:
    """Close the link of a producer whose message can't be taken; what it sent behind it is not taken either."""
    if producer.connection.transactions is not None:
        for event in behind:  # their deliveries go with the link
            if event[0] is EventKind.MESSAGES and event[1] is producer.link:
                work.discard(producer, event[2], told)
    close.close_link(broker, producer.connection, producer.link, told)
    temporary.links_ended(broker, (producer,))
