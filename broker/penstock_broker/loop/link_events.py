"""Events of one link: an attach, a flow, deliveries that the peer ends otherwise than by a plain accept, and messages
of a producer that the broker can't take because they are too large, were not stored or can't be read.

The rules are in the rooms below; this module calls the one that the link is for. It decides nothing itself.
"""

from __future__ import annotations

from penstock_amqp.endpoint.events import (
    FLAGS,
    AcceptedUnsettled,
    AcquisitionRequested,
    AmqpError,
    Attached,
    BeyondCredit,
    Enlisted,
    Event,
    EventKind,
    Held,
    Outcome,
    Settled,
    TooLarge,
    Unstored,
)
from penstock_amqp.endpoint.links import OutLink
from penstock_broker.access.connection import Connection
from penstock_broker.attach import attach, close, temporary_nodes
from penstock_broker.errors import amqp_error
from penstock_broker.messages import delivery_returns, settle
from penstock_broker.messages.refuse import UNREADABLE, refuse, refuse_unreadable
from penstock_broker.queue.queue import LOGGED
from penstock_broker.state.broker import Broker
from penstock_broker.state.leaving_links import LeavingLink
from penstock_broker.state.links import Browser, Consumer, Producer, SubscriptionLookup
from penstock_broker.state.open_transactions import Coordinator
from penstock_broker.transactions import coordinator, lost_messages, work
from penstock_core.reason import REASON_KEY, Reason, Refuse

__all__ = [
    "accepted",
    "acquisition_requested",
    "attached",
    "beyond_credit",
    "close_broken",
    "enlisted",
    "flowed",
    "settled",
    "too_large",
    "unstored",
]


def attached(broker: Broker, connection: Connection, event: Attached) -> None:
    """The peer attached a link."""
    if not event.link.is_open:
        return  # its session ended within the same bytes
    refused = attach.check_connection(connection, event)
    ahead = lost_messages.named_ahead(connection, event.link)
    if refused is not None:
        connection.endpoint.refuse_attach(event.link, amqp_error(refused))
    elif isinstance(event.link, OutLink):
        attach.attach_source(broker, connection, event.link, event.attach)
    else:
        attach.attach_target(broker, connection, event.link, event.attach)
    if not event.link.is_open:
        lost_messages.set_ahead_rollback_only(connection, ahead)


def flowed(broker: Broker, connection: Connection, link: OutLink) -> None:
    """The peer changed the credit of a link on which it receives, or asked to drain it."""
    context = link.context
    if isinstance(context, Consumer):
        queue = context.queue
        queue.note_change()
        if link.drain and context.is_active:
            broker.work.draining.append(context)
        if link.credit > 0:
            if queue.links.with_credit is not None:
                queue.links.note_credit(context)
            broker.work.schedule_for(queue, connection)
    elif isinstance(context, Browser):
        broker.work.browsing.append(context)
    elif isinstance(context, SubscriptionLookup):
        if not context.is_active:
            context.after_reply.append(lambda: flowed(broker, connection, link))
        elif link.credit > 0:
            # Source: docs/decisions/008-null-source.md: a link that only looks a subscription up gets no message.
            told = Refuse(Reason.NOT_ALLOWED, "The link has a null source: it gets no messages; attach with a source.")
            close.close_lookup(context, amqp_error(told))
    else:
        broker.management.flowed(link)


def acquisition_requested(broker: Broker, connection: Connection, event: AcquisitionRequested) -> None:
    """The peer says in which transaction a link is to acquire (AMQP 1.0 part 4, 4.4.3)."""
    link, context = event.link, event.link.context
    if not link.is_open:
        return
    refused = None
    if isinstance(context, Consumer):
        refused = work.acquire(broker, context, event.txn_id)
    elif event.txn_id is not None and isinstance(context, Browser):
        refused = Refuse(Reason.NOT_IMPLEMENTED, "A browser gets copies, it acquires nothing; leave txn-id out.")
    if refused is not None:
        close.close_link(broker, connection, link, amqp_error(refused))


def enlisted(broker: Broker, connection: Connection, event: Enlisted) -> None:
    """The peer settled a delivery within a transaction."""
    consumer = event.link.context
    if isinstance(consumer, Consumer):
        refused = work.enlist(broker, connection, consumer, event)
        if refused is not None:
            close.close_link(broker, connection, consumer.link, amqp_error(refused))
    elif event.is_settled:  # else they are found where they are
        _give_back(broker, consumer, [held for _, held in event.deliveries])


def accepted(broker: Broker, connection: Connection, event: AcceptedUnsettled) -> None:
    """The peer accepted a delivery and keeps it until we settle it: not before the log has synced that it is gone."""
    link, entry, _ = event.held
    consumer = link.context
    is_logged = isinstance(consumer, Consumer) and bool(entry[FLAGS] & LOGGED)
    if isinstance(consumer, Consumer):
        settle.accepted(broker, consumer, [event.held])
    else:
        _give_back(broker, consumer, [event.held])
    _confirm_later(broker, connection, event, is_logged=is_logged)


def settled(broker: Broker, connection: Connection, event: Settled) -> None:
    """The peer gave a delivery an outcome other than accepted."""
    consumer = event.held[0].context
    if isinstance(consumer, Consumer):
        settle.settled(broker, consumer, event)
    else:
        _give_back(broker, consumer, [event.held])
    if event.delivery is not None:
        _confirm_later(broker, connection, event, is_logged=_changes_the_log(event))


def _give_back(broker: Broker, context: object, batch: list[Held]) -> None:
    """What the peer says of deliveries behind the end of their link does not count; copies go nowhere."""
    if isinstance(context, LeavingLink):
        delivery_returns.give_back(broker, context, batch)
    elif context is None:
        delivery_returns.give_back_late(broker, batch)


def _changes_the_log(event: Settled) -> bool:
    """Whether an outcome other than accepted leaves something in the log: a dead letter, an end, a count."""
    ends = event.outcome is Outcome.REJECTED or (event.outcome is Outcome.MODIFIED and event.failed)
    return ends and bool(event.held[1][FLAGS] & LOGGED)


def _confirm_later(
    broker: Broker, connection: Connection, event: AcceptedUnsettled | Settled, *, is_logged: bool
) -> None:
    if is_logged:
        broker.sync.after_sync(connection, lambda: _confirm(broker, connection, event))
    else:
        _confirm(broker, connection, event)


def _confirm(broker: Broker, connection: Connection, event: AcceptedUnsettled | Settled) -> None:
    if event.held[0].is_open:  # else nobody hears of it, and the connection may be freed
        connection.endpoint.unsettled.confirm(event)
        broker.work.touch(connection)


def too_large(broker: Broker, connection: Connection, event: TooLarge, behind: list[Event]) -> None:
    """A message is longer than the link takes: close the link. `behind`: what the same read brought after it."""
    is_coordinator = isinstance(event.link.context, Coordinator)
    most = coordinator.MAX_REQUEST_BYTES if is_coordinator else connection.listener.max_message_bytes
    told = AmqpError(
        "amqp:link:message-size-exceeded",
        f"The link takes messages of at most {most} bytes; send smaller ones.",
        {REASON_KEY: Reason.LIMIT_EXCEEDED.value},
    )
    _end_sender(broker, connection, event, told, behind)


def beyond_credit(broker: Broker, connection: Connection, event: BeyondCredit, behind: list[Event]) -> None:
    """A message came for which its sender had no credit: close the link. What came before it is taken. `behind`: what
    the same read brought after it. Source: AMQP 1.0 part 2, 2.6.7 and 2.8.16.
    """
    told = AmqpError(
        "amqp:link:transfer-limit-exceeded",
        "You sent a message without link credit for it; wait for a flow that grants more.",
        {REASON_KEY: Reason.LIMIT_EXCEEDED.value},
    )
    _end_sender(broker, connection, event, told, behind)


def _end_sender(
    broker: Broker, connection: Connection, event: TooLarge | BeyondCredit, told: AmqpError, behind: list[Event]
) -> None:
    """Close a link on which the peer sends, because of a message that is not taken."""
    link, context = event.link, event.link.context
    lost_messages.set_rollback_only(connection, event.txn_id, lost_messages.refuse_of(told))
    if not link.is_open:
        return
    if isinstance(context, Producer):
        close_broken(broker, context, told, behind)
    elif isinstance(context, Coordinator):
        coordinator.close(broker, context, told)


def unstored(broker: Broker, connection: Connection, event: Unstored, behind: list[Event]) -> None:
    """A message can't be read, or, if it is long, could not be stored while it came: refuse it, within or outside of a
    transaction.
    """
    producer = event.link.context
    if isinstance(producer, Coordinator) and event.link.is_open:
        coordinator.refuse_unreadable(broker, producer, event)
        return
    if not isinstance(producer, Producer) or not event.link.is_open:
        lost_messages.set_rollback_only(connection, event.txn_id, lost_messages.refuse_of(event.error))
        return
    if lost_messages.refuse_of(event.error).reason is Reason.STORAGE_FULL:
        producer.stores = True
        broker.storage.refused += 1
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
    temporary_nodes.links_ended(broker, (producer,))
