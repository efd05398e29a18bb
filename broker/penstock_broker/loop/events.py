"""Routes what happened on a connection to the module that handles it. Must not decide anything.

Messages and accepts come in batches and are handled here directly, everything else through the table in `_other`.

Written for speed: `handle` runs for every batch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any, Final, assert_never

from penstock_amqp.endpoint.events import (
    AcceptedUnsettled,
    AcquisitionRequested,
    Attached,
    BeyondCredit,
    ConnectionClosed,
    Detached,
    Enlisted,
    Event,
    EventKind,
    Flowed,
    Held,
    MessageAfterDetach,
    Opened,
    Other,
    SessionEnded,
    Settled,
    TooLarge,
    Unstored,
)
from penstock_amqp.endpoint.transactional_states import any_transactional, is_transactional
from penstock_broker.access.connection import Connection, Phase
from penstock_broker.attach import connection_end, detach, open
from penstock_broker.loop import link_events
from penstock_broker.messages import delivery_returns, publish, settle
from penstock_broker.messages.publish_batches import Batch, publish_batches
from penstock_broker.state.broker import Broker
from penstock_broker.state.leaving_links import LeavingLink, consumed_queue
from penstock_broker.state.links import Consumer, Producer
from penstock_broker.state.open_transactions import Coordinator, Outcomes, transactions_of
from penstock_broker.state.routes import ExchangeTarget, Route
from penstock_broker.transactions import coordinator, lost_messages, work

__all__ = ["accepted", "handle", "handle_messages", "rescue", "serve"]

logger = logging.getLogger(__name__)

_MESSAGES: Final = EventKind.MESSAGES
_ACCEPTED: Final = EventKind.ACCEPTED
"""An attribute of an enum's class takes long to find."""


def handle(broker: Broker, connection: Connection, events: list[Event]) -> None:
    """Handle `events` in order. If that raises an exception, those that were handled are gone from the list."""
    at = waiting = 0
    try:
        for at, event in enumerate(events):
            if event[0] is _MESSAGES:
                producer = event[1].context
                if isinstance(producer, Producer):
                    if not event[1].is_open:
                        continue
                    # The second condition finds a client that names a transaction without having declared one.
                    if connection.transactions is not None or is_transactional(event[2][0][0]):
                        work.publish(broker, producer, event[2])
                    else:
                        waiting += publish.publish(broker, producer, event[2])
                    if producer.broken is not None:
                        link_events.close_broken(broker, producer, producer.broken, events[at + 1 :])
                elif isinstance(producer, Coordinator):
                    coordinator.receive(broker, producer, event[2])
            elif event[0] is _ACCEPTED:
                accepted(broker, event[1].context, event[2])
                waiting += 1
            else:
                _other(broker, connection, event[2], events[at + 1 :])
    except Exception:
        del events[:at]
        raise
    # If nothing came but accepts, which nobody answers, and messages whose accepts wait for a sync, there is nothing to
    # send now, unless a Begin came with them: that makes no event. What else the engine may want to say goes with the
    # next output.
    endpoint = connection.endpoint
    if (
        waiting < len(events)
        or not events
        or connection.is_congested
        or endpoint.flows.owed
        or endpoint.changes.are_pending
    ):
        broker.work.touch(connection)


def accepted(broker: Broker, consumer: object, batch: list[Held]) -> None:
    """A peer accepted and settled these. `consumer`: the context of their link."""
    if isinstance(consumer, Consumer):
        settle.accepted(broker, consumer, batch)
    elif isinstance(consumer, LeavingLink):
        delivery_returns.give_back(broker, consumer, batch)
    elif consumer is None:
        delivery_returns.give_back_late(broker, batch)


def handle_messages(
    broker: Broker, came: list[tuple[Connection, list[Event]]], failed: Callable[[Connection], None]
) -> None:
    """Handle what several connections brought, each of them one run of messages or accepts, in their order. What
    follows each other on the same way is stored together, whatever is accepted in between.

    `failed` is called, while the exception is handled, for a connection whose messages could not be dealt with.
    """
    shared: list[Batch] = []
    shared_route: Route | None = None
    target: ExchangeTarget | None = None  # where all of `shared` sent to, if that is the same for all
    try:
        names_transaction = any_transactional(came)
    except Exception:
        logger.exception("It can't be told whether a message names a transaction: each is looked at by itself")
        names_transaction = True  # and what fails there fails for its own connection
    for connection, events in came:
        event: Any = events[0]  # checkers can't tell what it is by what is unpacked
        kind, link, batch = event
        if kind is _ACCEPTED:
            try:
                accepted(broker, link.context, batch)  # which nobody answers
            except Exception:
                rescue(broker, events)
                failed(connection)
            continue
        producer = link.context
        route = None
        try:
            if (
                isinstance(producer, Producer)
                and link.is_open
                and connection.transactions is None
                and not (names_transaction and is_transactional(batch[0][0]))
            ):
                # What `common_route` would find and count, without the call.
                if (
                    target is not None
                    and producer.destination is target
                    and target.constant is shared_route  # else it was made anew for a message outside of this run
                    and target.version == target.exchange.version
                ):
                    count = len(batch)
                    target.exchange.received += count
                    producer.transfers += count
                    shared.append((producer, batch))
                    continue
                route = publish.common_route(broker, producer, len(batch))
            if route is not shared_route and shared_route is not None and not _is_same(route, shared_route):
                _publish_shared(broker, shared_route, shared, target, failed)
                shared, shared_route, target = [], None, None
                if not link.is_open:
                    continue  # it went with a link that was just broken, whose temporary topic it sent to
            if route is not None and isinstance(producer, Producer):
                destination = producer.destination
                if not shared and isinstance(destination, ExchangeTarget):
                    target = destination
                elif destination is not target:
                    target = None
                shared.append((producer, batch))
                shared_route = route
            else:
                serve(broker, connection, events)
        except Exception:
            failed(connection)
    if shared_route is not None:
        _publish_shared(broker, shared_route, shared, target, failed)


def _is_same(route: Route | None, other: Route) -> bool:
    """Whether two routes reach the same queue. Each producer of a queue has its own; those of exchanges are shared."""
    return route is not None and len(route.queues) == 1 and route.queues == other.queues


def _publish_shared(
    broker: Broker,
    route: Route,
    sources: list[Batch],
    target: ExchangeTarget | None,
    failed: Callable[[Connection], None],
) -> None:
    """Batches of several connections that have the same `common_route`: stored together, which takes a fraction of the
    time where each is a message or two. `target`: where all of them were sent to, if that is the same for all.
    """
    exchange = None if target is None else target.exchange
    try:
        told = publish_batches(broker, route, sources, exchange, failed)
    except Exception:
        for producer, _ in sources:
            failed(producer.connection)
        return
    for producer in told:
        connection = producer.connection
        if connection.phase is Phase.GONE:
            continue
        try:
            if producer.broken is not None:
                link_events.close_broken(broker, producer, producer.broken, [])
            broker.work.touch(connection)
        except Exception:
            failed(connection)


def serve(broker: Broker, connection: Connection, events: list[Event]) -> None:
    """`handle`; if that raises an exception, nothing of the events is lost."""
    try:
        handle(broker, connection, events)
    except Exception:
        rescue(broker, events)
        raise


def rescue(broker: Broker, events: list[Event]) -> None:
    """These events are not handled any more: an exception came with the first of them, or before. What the peer has
    settled with them is in no list: what it accepted stays accepted, everything else goes back.
    """
    interrupted = broker.interrupted_work
    for event in events:
        if event[0] is EventKind.ACCEPTED:
            consumer = event[1].context
            if isinstance(consumer, Consumer):
                interrupted.leave(consumer.queue, [held[1] for held in event[2]])
            elif (queue := consumed_queue(consumer)) is not None:
                interrupted.take(queue, [held[1] for held in event[2]])
        elif event[0] is EventKind.OTHER:
            for held in _ended_by(event[2]):
                queue = consumed_queue(held[0].context)
                if queue is not None:
                    interrupted.take(queue, (held[1],))


def _ended_by(event: Other) -> list[Held]:
    match event:
        case AcceptedUnsettled() | Settled():
            return [event.held]
        case Enlisted():
            return [held for _, held in event.deliveries]
        case _:
            return []


def _other(broker: Broker, connection: Connection, event: Other, behind: list[Event]) -> None:
    """`behind`: what the same read brought after it."""
    if connection.phase is Phase.GONE:
        return  # it was closed after an internal error, while an event before this one was handled
    ledger = transactions_of(connection)
    if ledger is None:
        _handle_other(broker, connection, event, behind)
        return
    ledger.behind = behind
    try:
        _handle_other(broker, connection, event, behind)
    finally:
        ledger.behind = ()


def _handle_other(broker: Broker, connection: Connection, event: Other, behind: list[Event]) -> None:
    match event:
        case Opened():
            open.opened(broker, connection, event)
        case Attached():
            link_events.attached(broker, connection, event)
        case Flowed():
            link_events.flowed(broker, connection, event.link)
        case AcceptedUnsettled():
            link_events.accepted(broker, connection, event)
        case Settled():
            link_events.settled(broker, connection, event)
        case Enlisted():
            link_events.enlisted(broker, connection, event)
        case AcquisitionRequested():
            link_events.acquisition_requested(broker, connection, event)
        case TooLarge():
            link_events.too_large(broker, connection, event, behind)
        case BeyondCredit():
            link_events.beyond_credit(broker, connection, event, behind)
        case Unstored():
            link_events.unstored(broker, connection, event, behind)
        case MessageAfterDetach():
            lost_messages.set_rollback_only(connection, event.txn_id)
        case Detached():
            if event.link.is_open:
                detach.detached(broker, connection, event)
        case SessionEnded():
            detach.session_ended(broker, connection, event)
        case ConnectionClosed():
            _closed(broker, connection, event)
        case _:
            assert_never(event)


def _closed(broker: Broker, connection: Connection, event: ConnectionClosed) -> None:
    """The peer closed or broke the connection: answer, and drop it once the answer is sent."""
    answer = partial(_answer_close, broker, connection)
    ledger = transactions_of(connection)
    if event.error is None:
        connection.flush()  # what was answered before: the engine says nothing of it behind a Close
        if ledger is not None and ledger.outcomes.unsent:
            answer = partial(_close_behind, broker, connection, ledger.outcomes)
    connection_end.leave(broker, connection, answer, orderly=event.error is None)


def _close_behind(broker: Broker, connection: Connection, outcomes: Outcomes) -> None:
    """Answer the Close behind the outcomes of discharges. Until then the connection is served, with nothing on it."""
    connection.phase, connection.is_blocked = Phase.OPEN, bool(connection.transport.backlog)
    outcomes.when_sent(partial(_send_and_close, broker, connection))


def _send_and_close(broker: Broker, connection: Connection) -> None:
    connection.flush()
    _answer_close(broker, connection)


def _answer_close(broker: Broker, connection: Connection) -> None:
    connection.endpoint.close(None)
    connection.phase = Phase.CLOSING
    broker.work.touch(connection)
