"""Works through what happened on a connection: each event to the module that knows what to do.

Written for speed: messages and accepts come in batches and go straight on. Must not decide anything.
"""

from __future__ import annotations

from typing import assert_never

from penstock_amqp.endpoint.events import (
    FLAGS,
    Accepted,
    Acquires,
    AmqpError,
    Attached,
    Closed,
    Detached,
    Ended,
    Enlisted,
    Event,
    EventKind,
    Flowed,
    Missed,
    Opened,
    Other,
    Outcome,
    Settled,
    TooLarge,
    Unstored,
)
from penstock_amqp.endpoint.links import OutLink
from penstock_amqp.endpoint.transactional_states import is_transactional
from penstock_amqp.frames.performatives import Source, Target
from penstock_api.management import NODE
from penstock_broker.access.connection import Connection, Phase
from penstock_broker.attach import attach, close, detach, open, target, temporary
from penstock_broker.errors import amqp_error
from penstock_broker.messages import publish, settle
from penstock_broker.queue.queue import LOGGED
from penstock_broker.settings.settings import Role
from penstock_broker.state.broker import Broker
from penstock_broker.state.links import Browser, Consumer, Producer, SubscriptionLookup
from penstock_broker.state.open_transactions import Coordinator
from penstock_broker.transactions import commit, coordinator, work
from penstock_core.reason import REASON_KEY, Reason, Refuse

__all__ = ["handle"]


def handle(broker: Broker, connection: Connection, events: list[Event]) -> None:
    """Work through `events` in order."""
    for at, event in enumerate(events):
        if event[0] is EventKind.MESSAGES:
            producer = event[1].context
            if isinstance(producer, Producer):
                if not event[1].is_open:
                    continue
                # The second half: a client that names a transaction without having asked for one.
                if connection.transactions is not None or is_transactional(event[2][0][0]):
                    work.publish(broker, producer, event[2])
                else:
                    publish.publish(broker, producer, event[2])
                if producer.broken is not None:
                    _close_broken(broker, producer, producer.broken, events[at + 1 :])
            elif isinstance(producer, Coordinator):
                coordinator.requested(broker, producer, event[2])
        elif event[0] is EventKind.ACCEPTED:
            consumer = event[1].context
            if isinstance(consumer, Consumer):
                settle.accepted(broker, consumer, event[2])
        else:
            _other(broker, connection, event[2], events[at + 1 :])
    broker.work.touch(connection)


def _other(broker: Broker, connection: Connection, event: Other, behind: list[Event]) -> None:
    """`behind`: what the same read brought after it."""
    match event:
        case Flowed():
            _flowed(broker, connection, event.link)
        case Acquires():
            _acquires(broker, event.link)
        case Settled():
            consumer = event.held[0].context
            if isinstance(consumer, Consumer):
                settle.settled(broker, consumer, event)
            if event.delivery is not None:
                _confirm_later(broker, connection, event, is_kept=_changes_what_is_kept(event))
        case Enlisted():
            _enlisted(broker, connection, event)
        case Accepted():
            _accepted(broker, connection, event)
        case Attached():
            _attached(broker, connection, event)
        case Detached():
            if event.link.is_open:
                detach.detached(broker, connection, event)
        case Opened():
            open.opened(broker, connection, event)
        case Ended():
            detach.session_ended(broker, connection, event)
        case TooLarge():
            _too_large(broker, connection, event, behind)
        case Unstored():
            _unstored(broker, connection, event, behind)
        case Missed():
            commit.doom(connection, event.txn_id)
        case Closed():
            _closed(broker, connection, event)
        case _:
            assert_never(event)


def _enlisted(broker: Broker, connection: Connection, event: Enlisted) -> None:
    consumer = event.link.context
    if isinstance(consumer, Consumer):
        refused = work.enlist(broker, connection, consumer, event)
        if refused is not None:
            close.close_consumer(broker, consumer, amqp_error(refused))


def _accepted(broker: Broker, connection: Connection, event: Accepted) -> None:
    """The peer keeps the delivery until we settle it: not before that the message is gone is synced."""
    link, entry, _ = event.held
    is_kept = isinstance(link.context, Consumer) and bool(entry[FLAGS] & LOGGED)
    if isinstance(link.context, Consumer):
        settle.accepted(broker, link.context, [event.held])
    _confirm_later(broker, connection, event, is_kept=is_kept)


def _changes_what_is_kept(event: Settled) -> bool:
    """Whether an outcome other than accepted leaves something in the log: a dead letter, an end, a count."""
    ends = event.outcome is Outcome.REJECTED or (event.outcome is Outcome.MODIFIED and event.failed)
    return ends and bool(event.held[1][FLAGS] & LOGGED)


def _confirm_later(broker: Broker, connection: Connection, event: Accepted | Settled, *, is_kept: bool) -> None:
    if is_kept:
        broker.sync.after_sync(connection, lambda: _confirm(broker, connection, event))
    else:
        _confirm(broker, connection, event)


def _confirm(broker: Broker, connection: Connection, event: Accepted | Settled) -> None:
    connection.endpoint.confirm(event)
    broker.work.touch(connection)


def _attached(broker: Broker, connection: Connection, event: Attached) -> None:
    if not event.link.is_open:
        return  # its session ended within the same bytes
    most = connection.port.max_links
    if len(connection.endpoint.all_links()) > most:
        told = f"The connection has {most} links, which is the limit: close some, or open another connection."
        connection.endpoint.refuse_attach(event.link, amqp_error(Refuse(Reason.LIMIT_EXCEEDED, told)))
        return
    if connection.port.role is Role.OBSERVER and not _is_management(event):
        told = "The observer's socket is for $management; publish and consume on a listener for clients."
        connection.endpoint.refuse_attach(event.link, amqp_error(Refuse(Reason.NOT_PERMITTED, told)))
        return
    if isinstance(event.link, OutLink):
        attach.attach_consumer(broker, connection, event.link, event.attach)
    else:
        target.attach_producer(broker, connection, event.link, event.attach)


def _is_management(event: Attached) -> bool:
    terminus = event.attach.source if isinstance(event.link, OutLink) else event.attach.target
    return isinstance(terminus, Source | Target) and not terminus.dynamic and terminus.address == NODE


def _flowed(broker: Broker, connection: Connection, link: OutLink) -> None:
    context = link.context
    if isinstance(context, Consumer):
        queue = context.queue
        if link.drain and context.is_active:
            broker.work.draining.append(context)
        if link.credit > 0:
            broker.work.schedule(queue)
    elif isinstance(context, Browser):
        broker.work.browsing.append(context)
    elif isinstance(context, SubscriptionLookup):
        if not context.is_active:
            context.after_reply.append(lambda: _flowed(broker, connection, link))
        elif link.credit > 0:
            # Decision 8: a link that only looked a subscription up never receives a message.
            told = Refuse(Reason.NOT_ALLOWED, "The link has a null source: it gets no messages; attach with a source.")
            close.close_finder(connection, context, amqp_error(told))
    else:
        broker.management.flowed(link)


def _acquires(broker: Broker, link: OutLink) -> None:
    """Transactional acquisition (AMQP 1.0 part 4, 4.4.3), which nobody here offers."""
    if isinstance(link.context, Consumer) and link.is_open:
        told = "Messages can't be taken within a transaction; take them, and settle them within one."
        close.close_consumer(broker, link.context, amqp_error(Refuse(Reason.NOT_IMPLEMENTED, told)))


def _too_large(broker: Broker, connection: Connection, event: TooLarge, behind: list[Event]) -> None:
    link = event.link
    context = link.context
    asks = isinstance(context, Coordinator)
    most = coordinator.MAX_REQUEST_BYTES if asks else connection.port.max_message_bytes
    told = AmqpError(
        "amqp:link:message-size-exceeded",
        f"The link takes messages of at most {most} bytes; send smaller ones.",
        {REASON_KEY: Reason.LIMIT_EXCEEDED.value},
    )
    commit.doom(connection, event.txn_id, commit.fault_of(told))
    if not link.is_open:
        return
    if isinstance(context, Producer):
        _close_broken(broker, context, told, behind)
    elif asks:
        close.leave(broker, link, [])
        connection.endpoint.detach(link, closed=True, error=told)


def _unstored(broker: Broker, connection: Connection, event: Unstored, behind: list[Event]) -> None:
    producer = event.link.context
    if not isinstance(producer, Producer) or not event.link.is_open:
        commit.doom(connection, event.txn_id, commit.fault_of(event.error))
        return
    if event.txn_id is not None and connection.transactions is not None:
        work.unstored(producer, event)
    elif event.error.condition == publish.UNREADABLE:
        publish.refuse_unreadable(producer, event.delivery, event.is_settled, event.error)
    else:
        publish.refuse(producer, event.delivery, event.is_settled, event.error)
    if producer.broken is not None:
        _close_broken(broker, producer, producer.broken, behind)


def _close_broken(broker: Broker, producer: Producer, told: AmqpError, behind: list[Event]) -> None:
    if producer.connection.transactions is not None:
        for event in behind:  # their deliveries go with the link
            if event[0] is EventKind.MESSAGES and event[1] is producer.link:
                work.forsake(producer, event[2], told)
    close.close_producer(broker, producer, told)
    temporary.left(broker, (producer,))


def _closed(broker: Broker, connection: Connection, event: Closed) -> None:
    """The peer closed or broke the connection: answer, and drop it once the answer is out."""
    if event.error is None:
        connection.flush()  # what was answered before: the engine says nothing of it behind a Close
    detach.connection_gone(broker, connection, orderly=event.error is None)
    connection.endpoint.close(None)
    connection.phase = Phase.CLOSING
