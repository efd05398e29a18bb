"""Brings a batch of messages from a producer into the queues that it reaches, and accepts it.

Written for speed: `publish` runs for every batch. Routing appends references. A message is accepted in the turn in
which it came, unless a record of it is in the log: then once that is synced. It may be delivered before it is accepted.
A crash then means at worst that a consumer saw a message which its sender sends again.

Source: docs/decisions/018-addresses.md, 030-messages-untouched.md and 037-answer-after-sync.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from penstock_amqp.endpoint.events import AmqpError, Arrival
from penstock_amqp.errors import DecodeError
from penstock_amqp.messages import message_head
from penstock_broker.access.connection import Connection
from penstock_broker.errors import amqp_error
from penstock_broker.messages import queue_limits, store
from penstock_broker.messages.addresses import destination_of
from penstock_broker.messages.publish_batches import learn_prefix, publish_batches
from penstock_broker.messages.refuse import break_link, refuse, refuse_unreadable, tagged, unreadable
from penstock_broker.state.broker import Broker
from penstock_broker.state.links import Producer
from penstock_broker.state.routes import ExchangeTarget, ManagementTarget, QueueTarget, RelayTarget, Route, reached
from penstock_core.reason import Reason, Refuse
from penstock_core.terms import Unroutable

__all__ = [
    "common_route",
    "prepare",
    "publish",
    "route_message",
    "store_routed",
]

_STORED: Final = (ExchangeTarget, QueueTarget)
"""A union is made anew each time that it is written in a function."""


def publish(broker: Broker, producer: Producer, batch: list[Arrival]) -> bool:
    """Route and store a batch; accept it, or see to it that it is accepted once synced.

    True if all of it waits for that, so that there is nothing to send now. Afterwards `producer.broken` may say why the
    caller has to close the link.
    """
    destination = producer.destination
    if isinstance(destination, _STORED):
        prepare(broker, destination, len(batch))
    elif isinstance(destination, ManagementTarget):
        broker.management.receive(producer, batch)
        return False
    else:
        _relay(broker, producer, destination, batch)
        return False
    producer.transfers += len(batch)
    route = destination.constant
    if route is not None and route.is_plain and route.queues:
        return _publish_together(broker, producer, route, batch)
    _publish_each(broker, producer, destination, batch)
    return False


def prepare(broker: Broker, destination: ExchangeTarget | QueueTarget, count: int) -> None:
    """Count `count` messages that are about to go there, and see that the destination knows the present bindings."""
    if isinstance(destination, ExchangeTarget):
        exchange = destination.exchange
        exchange.received += count
        if destination.version != exchange.version:
            destination.refresh(broker.log)
    elif destination.version != destination.node.revision:
        destination.refresh(broker.log)


def common_route(broker: Broker, producer: Producer, count: int) -> Route | None:
    """The route of whatever this producer sends, if nothing of a message has to be asked for it; else None.

    If there is one, `count` messages that are about to go there are counted.
    """
    destination, exchange = producer.destination, None
    if isinstance(destination, ExchangeTarget):
        exchange = destination.exchange
        if destination.version != exchange.version:
            destination.refresh(broker.log)
    elif not isinstance(destination, QueueTarget):
        return None
    elif destination.version != destination.node.revision:
        destination.refresh(broker.log)
    route = destination.constant
    if route is None or not route.is_plain or not route.queues:
        return None
    if exchange is not None:
        exchange.received += count
    producer.transfers += count
    return route


def _publish_together(broker: Broker, producer: Producer, route: Route, batch: list[Arrival]) -> bool:
    """Every message goes to every queue of `route`, which is not asked any more. True as for `publish`."""
    destination = producer.destination
    exchange = destination.exchange if isinstance(destination, ExchangeTarget) else None
    return not publish_batches(broker, route, [(producer, batch)], exchange, None)


def _publish_each(
    broker: Broker, producer: Producer, destination: ExchangeTarget | QueueTarget, batch: list[Arrival]
) -> None:
    """Messages whose key, filter or limit has to be looked at one by one; those in a row that reach the same queues go
    there together.
    """
    connection = producer.connection
    asked: Route | None = None
    route: Route | None = None
    run: list[Arrival] = []
    for delivery, data, settled in batch:
        try:
            beginning = producer.message_prefix
            if not data.startswith(beginning.prefix):
                data = learn_prefix(producer, data)
                beginning = producer.message_prefix
            found = _route(broker, destination, data, beginning.head)
        except DecodeError as error:
            refuse_unreadable(producer, delivery, settled, unreadable(error))
            if producer.broken is not None:
                break
            continue
        if found is not asked or found.rejecting:
            if run and route is not None:
                _publish_together(broker, producer, route, run)
                run = []
                if producer.broken is not None:
                    return
            asked = None
            refused = _refusal(broker, destination, found, len(data))
            if refused is not None:
                refuse(producer, delivery, settled, refused)
                if producer.broken is not None:
                    break
                continue
            asked = found
        if not found.queues:
            _count_unroutable(destination)
        admitted = found
        if found.picky:
            admitted = store.admitted_route(broker, found, data, beginning.head, connection)
            if not admitted.queues:
                _count_unselected(destination)
        if admitted is not route:
            if run and route is not None:
                _publish_together(broker, producer, route, run)
                run = []
                if producer.broken is not None:
                    return
            route = admitted
        run.append((delivery, data, settled))
    if run and route is not None:
        _publish_together(broker, producer, route, run)


def route_message(
    broker: Broker, destination: ExchangeTarget | QueueTarget, data: bytes, head: message_head.Head
) -> Route | AmqpError:
    """Where one message goes, or why it is not taken. Nothing changes but counters. Raises DecodeError.

    `prepare` has been called for the destination. Apart from `store`, because a commit asks for all its messages first.
    """
    route = _route(broker, destination, data, head)
    return _refusal(broker, destination, route, len(data)) or route


def _route(broker: Broker, destination: ExchangeTarget | QueueTarget, data: bytes, head: message_head.Head) -> Route:
    route = destination.constant
    if route is None:
        assert isinstance(destination, ExchangeTarget)
        route = destination.route(data, head.start, broker.log)
    if not route.queues and isinstance(destination, ExchangeTarget):
        route = _alternate(broker, destination, data, head, route)
    return route


def store_routed(
    broker: Broker,
    connection: Connection | None,
    destination: ExchangeTarget | QueueTarget,
    route: Route,
    messages: Sequence[bytes],
) -> bool:
    """Put messages that `route_message` let pass into the queues that take them; True if one is in the log.

    They are without delivery-annotations.
    """
    is_logged = False
    if not route.picky:
        is_logged = store.put(broker, route, messages)
    else:

        def admitted(data: bytes) -> Route:
            return store.admitted_route(broker, route, data, message_head.read_head(data), connection)

        for taking, run in groupby(messages, admitted):
            taken = list(run)
            if not taking.queues:
                _count_unselected(destination, len(taken))
            is_logged |= store.put(broker, taking, taken)
    if isinstance(destination, ExchangeTarget):
        destination.exchange.received_bytes += sum(map(len, messages))
    if not route.queues:
        _count_unroutable(destination, len(messages))
    return is_logged


def _count_unroutable(destination: ExchangeTarget | QueueTarget, count: int = 1) -> None:
    """Messages reached no queue and were taken all the same. What went to an alternate was counted there."""
    if isinstance(destination, ExchangeTarget) and destination.exchange.unroutable is not Unroutable.ALTERNATE:
        destination.exchange.unroutable_messages += count


def _count_unselected(destination: ExchangeTarget | QueueTarget, count: int = 1) -> None:
    """Messages reached queues, none of which takes them."""
    if isinstance(destination, ExchangeTarget):
        destination.exchange.unselected_messages += count


def _alternate(
    broker: Broker, destination: ExchangeTarget, data: bytes, head: message_head.Head, route: Route
) -> Route:
    """Where the exchange's alternate sends what matches nothing here; an alternate of the alternate is not asked."""
    exchange = destination.exchange
    other = broker.topology.exchanges.get(exchange.alternate or "")
    if exchange.unroutable is not Unroutable.ALTERNATE or other is None or other is exchange:
        return route
    exchange.unroutable_messages += 1
    return broker.routes.route_of(reached(other, destination.key, data, head.start))


def _refusal(broker: Broker, destination: ExchangeTarget | QueueTarget, route: Route, size: int) -> AmqpError | None:
    """Why this message is not taken; None if it is."""
    if route.logged_set and not broker.log.accepts_publishing():
        broker.storage.refused += 1
        return broker.storage_refusal()
    for queue in route.rejecting:
        if queue_limits.refuses(broker, queue, size):
            return amqp_error(
                Refuse(Reason.LIMIT_EXCEEDED, f"The queue {queue.name!r} is full and rejects; consume from it first.")
            )
    if not route.queues and isinstance(destination, ExchangeTarget):
        exchange = destination.exchange
        if exchange.unroutable is Unroutable.REJECT:
            exchange.unroutable_messages += 1
            return amqp_error(
                Refuse(Reason.ADDRESS_NOT_FOUND, f"No binding of exchange {exchange.name!r} matches this message.")
            )
    return None


def _relay(broker: Broker, producer: Producer, relay: RelayTarget, batch: list[Arrival]) -> None:
    """Send each message to the address in its `to`.

    A message with no valid address is rejected. If its sender has settled it already, the link is closed, because the
    sender would not learn of the error otherwise.
    """
    for arrival in batch:
        delivery, data, settled = arrival
        target = destination_of(broker, producer.connection, relay, data)
        if not isinstance(target, AmqpError):
            producer.destination = target
            publish(broker, producer, [arrival])
            producer.destination = relay
        elif settled:
            break_link(producer, delivery, target)
        else:
            refuse(producer, delivery, settled, tagged(producer, delivery, target))
        if producer.broken is not None:
            break
