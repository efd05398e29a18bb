"""Connections that end: all of their links, and what lives no longer than they do.

A connection may have thousands of links, and its end thousands of subscriptions and temporary nodes that go with it. So
an end is a row of steps: few of them are done at once, many over turns of the loop. Meanwhile the connection is
`Phase.LEAVING`: it is not read, and nothing is sent on it. Source: docs/decisions/087-departures.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from penstock_amqp.endpoint.events import AmqpError, Held
from penstock_amqp.endpoint.links import InLink, OutLink
from penstock_broker.access.connection import Connection, Phase
from penstock_broker.attach import close, failed_connection, temporary_nodes
from penstock_broker.messages import delivery_returns
from penstock_broker.state.broker import Broker
from penstock_broker.state.links import Consumer
from penstock_broker.transactions import rollback

__all__ = ["close_connection", "connection_ended", "held_by_link", "held_of", "leave"]

logger = logging.getLogger(__name__)

LINKS_PER_STEP: Final = 25
"""Or as many as one queue has, if these are more. Each takes 4 to 6 us, and more if deliveries go back."""


def leave(broker: Broker, connection: Connection, then: Callable[[], None], *, orderly: bool) -> None:
    """The connection is closed (`orderly`: by its client) or lost, and has nothing more to say: end it, and do `then`
    behind the last step.
    """
    if broker.is_stopping:  # who is left then is dropped in slices as it is
        connection_ended(broker, connection, orderly=orderly)
        then()
    else:
        connection.ending = _steps(broker, connection, orderly=orderly)
        _go_on(broker, connection, then)


def _go_on(broker: Broker, connection: Connection, then: Callable[[], None]) -> None:
    """Do the steps of this turn."""
    steps = connection.ending
    if steps is None:
        return  # it was closed meanwhile, and is at its end
    is_over = broker.clock.stint()
    try:
        for _ in steps:
            if is_over():
                connection.phase, connection.is_blocked = Phase.LEAVING, True
                broker.clock.after(
                    0,
                    partial(_go_on, broker, connection, then),
                    failed=lambda: broker.fail_connection(connection),
                )
                return
    except Exception:
        _take_apart(broker, connection)
    connection.ending = None
    then()


def connection_ended(broker: Broker, connection: Connection, *, orderly: bool = False) -> None:
    """End a connection, or what is left of it, in this turn.

    Raises nothing: if a step fails, the connection is taken apart without looking at what the steps have done.
    """
    steps = connection.ending or _steps(broker, connection, orderly=orderly)
    try:
        for _ in steps:
            pass
    except Exception:
        _take_apart(broker, connection)
    connection.ending = None


def close_connection(broker: Broker, connection: Connection, error: AmqpError) -> None:
    """Close a connection on the broker's own account, with the reason; the socket is closed once that is sent."""
    if connection.phase is Phase.GONE:
        return
    connection_ended(broker, connection)
    phase, connection.phase = connection.phase, Phase.CLOSING
    try:
        if phase is Phase.OPENING:
            connection.endpoint.refuse_open(broker.instance.container_id, error)
        elif phase in (Phase.OPEN, Phase.LEAVING):
            connection.endpoint.close(error)
    except Exception:
        logger.exception("Connection %d can't be told why it is closed: %s", connection.number, error.description)
    broker.work.touch(connection)


def _take_apart(broker: Broker, connection: Connection) -> None:
    """A step has failed: its exception is being handled."""
    logger.exception(
        "Connection %d of %s did not end in order; it is taken apart", connection.number, connection.transport.peer
    )
    failed_connection.remove(broker, connection)


def _steps(broker: Broker, connection: Connection, *, orderly: bool) -> Iterator[None]:
    """What there is to do; it may be interrupted where it yields, which it does not if there is little to do."""
    links = [link for link in connection.endpoint.all_links() if link.context is not None]
    logger.debug(
        "Connection %d of %s has ended, orderly=%s: %d links",
        connection.number, connection.transport.peer, orderly, len(links),
    )  # fmt: skip
    broker.clients.counts.leave(connection)
    failed_connection.leave_container(broker, connection)  # its successor need not wait, and takes its links over
    rollback.roll_back_connection(broker, connection)
    held = held_by_link(connection)
    for number, part in enumerate(_parts(links)):
        if number:
            yield
        for link in part:
            close.remove_link(broker, link, held_of(held, link), orderly=orderly)
    while connection.subscriptions:
        identity = connection.subscriptions.pop()
        subscription = broker.topology.subscriptions.get(identity)
        if subscription is not None:
            subscription.users = subscription.users.connection_closed(connection.number)
            close.end_if_over(broker, identity)
        if connection.subscriptions:
            yield
    while connection.temporary:
        temporary_nodes.end_one_of(broker, connection)
        if connection.temporary:
            yield
    temporary_nodes.links_ended(broker, ())


def _parts(links: Sequence[InLink | OutLink]) -> Iterator[Sequence[InLink | OutLink]]:
    """The links, in parts. Those that consume from one queue are in one part: what they hold goes back together, so
    that nobody gets a later message of theirs before an earlier one.
    """
    by_queue: dict[object, list[InLink | OutLink]] = {}
    for link in links:
        context = link.context
        by_queue.setdefault(context.queue if isinstance(context, Consumer) else link, []).append(link)
    part: list[InLink | OutLink] = []
    for together in by_queue.values():
        part += together
        if len(part) >= LINKS_PER_STEP:
            yield part
            part = []
    yield part


def held_by_link(connection: Connection) -> dict[OutLink, list[Held]] | None:
    """The deliveries that the client has not settled; None if they are too many for one turn."""
    if delivery_returns.holds_many(connection):
        return None
    by_link: dict[OutLink, list[Held]] = {}
    for held in connection.endpoint.unsettled.all_held():
        by_link.setdefault(held[0], []).append(held)
    return by_link


def held_of(held: dict[OutLink, list[Held]] | None, link: InLink | OutLink) -> list[Held] | None:
    """Those of one link, for `close.remove_link`."""
    if not isinstance(link, OutLink):
        return []
    return None if held is None else held.get(link, [])
