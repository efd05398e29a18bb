"""Events of one link: attached, credit, and deliveries that the peer does not just accept and settle.

The rules stand in the rooms below; here each event is taken to what the link is for.
"""

from __future__ import annotations

from penstock_amqp.endpoint.events import FLAGS, AcceptedUnsettled, Attached, Enlisted, Outcome, Settled
from penstock_amqp.endpoint.links import OutLink
from penstock_broker.access.connection import Connection
from penstock_broker.attach import attach, close, link_checks
from penstock_broker.errors import amqp_error
from penstock_broker.messages import settle
from penstock_broker.queue.queue import LOGGED
from penstock_broker.state.broker import Broker
from penstock_broker.state.links import Browser, Consumer, SubscriptionLookup
from penstock_broker.transactions import work
from penstock_core.reason import Reason, Refuse

__all__ = ["accepted", "acquisition_requested", "attached", "enlisted", "flowed", "settled"]


def attached(broker: Broker, connection: Connection, event: Attached) -> None:
    """The peer attached a link."""
    if not event.link.is_open:
        return  # its session ended within the same bytes
    refused = link_checks.check(connection, event)
    if refused is not None:
        connection.endpoint.refuse_attach(event.link, amqp_error(refused))
    elif isinstance(event.link, OutLink):
        attach.attach_source(broker, connection, event.link, event.attach)
    else:
        attach.attach_target(broker, connection, event.link, event.attach)


def flowed(broker: Broker, connection: Connection, link: OutLink) -> None:
    """The peer changed the credit of a link on which it receives, or asked to drain it."""
    context = link.context
    if isinstance(context, Consumer):
        if link.drain and context.is_active:
            broker.work.draining.append(context)
        if link.credit > 0:
            broker.work.schedule(context.queue)
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


def acquisition_requested(broker: Broker, link: OutLink) -> None:
    """The peer asks for transactional acquisition (AMQP 1.0 part 4, 4.4.3), which the broker does not offer."""
    if isinstance(link.context, Consumer) and link.is_open:
        told = "Messages can't be taken within a transaction; take them, and settle them within one."
        close.close_link(broker, link.context.connection, link, amqp_error(Refuse(Reason.NOT_IMPLEMENTED, told)))


def enlisted(broker: Broker, connection: Connection, event: Enlisted) -> None:
    """The peer settled a delivery within a transaction."""
    consumer = event.link.context
    if isinstance(consumer, Consumer):
        refused = work.enlist(broker, connection, consumer, event)
        if refused is not None:
            close.close_link(broker, connection, consumer.link, amqp_error(refused))


def accepted(broker: Broker, connection: Connection, event: AcceptedUnsettled) -> None:
    """The peer accepted a delivery and keeps it until we settle it: not before the log has synced that it is gone."""
    link, entry, _ = event.held
    consumer = link.context
    is_logged = isinstance(consumer, Consumer) and bool(entry[FLAGS] & LOGGED)
    if isinstance(consumer, Consumer):
        settle.accepted(broker, consumer, [event.held])
    _confirm_later(broker, connection, event, is_logged=is_logged)


def settled(broker: Broker, connection: Connection, event: Settled) -> None:
    """The peer gave a delivery an outcome other than accepted."""
    consumer = event.held[0].context
    if isinstance(consumer, Consumer):
        settle.settled(broker, consumer, event)
    if event.delivery is not None:
        _confirm_later(broker, connection, event, is_logged=_changes_the_log(event))


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
    connection.endpoint.confirm(event)
    broker.work.touch(connection)
