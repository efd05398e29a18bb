"""Link stealing: a link that is attached again under its name ends the one that is live (AMQP 1.0 part 2, 2.6.1).

Source: docs/decisions/005-decide-then-steal.md.
"""

from __future__ import annotations

from penstock_amqp.endpoint.links import InLink, OutLink
from penstock_broker.access.connection import Connection
from penstock_broker.attach import close, temporary_nodes
from penstock_broker.errors import amqp_error
from penstock_broker.state.broker import Broker, Clients
from penstock_broker.state.links import Browser, Consumer, Producer
from penstock_core.existing_subscription import LiveLink
from penstock_core.identity import LinkKey
from penstock_core.link_stealing import STOLEN

__all__ = ["live_link", "steal_consumer", "steal_within_session"]


def live_link(clients: Clients, key: LinkKey) -> LiveLink | None:
    """What the rules need to know of the link that consumes now under a name; None if there is none."""
    consumer = clients.live_links.get(key)
    if consumer is None:
        return None
    return LiveLink(kind=consumer.kind, identity=consumer.identity, user=consumer.connection.login.user)


def steal_consumer(broker: Broker, key: LinkKey, winner: Connection) -> Consumer:
    """The same link is attached again, on `winner`: end the live one, which is returned."""
    consumer = broker.clients.live_links[key]
    connection, link = consumer.connection, consumer.link
    if winner is not connection:
        broker.clients.contests.record(
            winner.client.container_id, winner.number, now_ms=broker.clock.now_ms, now_us=broker.clock.now_us
        )
    close.close_link(broker, connection, link, amqp_error(STOLEN))
    if consumer.creates is not None:
        # Later: what the winner attaches to was decided already.
        broker.clock.after(0, lambda: temporary_nodes.links_ended(broker, (consumer,)))
    return consumer


def steal_within_session(broker: Broker, connection: Connection, link: InLink | OutLink) -> None:
    """End the producer or the browser that has the name of `link` on the same session.

    A link of that name on another session stays: clients number their links per session, and there is nothing to take
    over. Links that consume are stolen by the rules of what they consume from.
    """
    for other in tuple(link.session.links):
        context = other.context
        is_rival = (
            other is not link and other.name == link.name and isinstance(other, InLink) is isinstance(link, InLink)
        )
        if is_rival and isinstance(context, Producer | Browser):
            close.close_link(broker, connection, other, amqp_error(STOLEN))
            temporary_nodes.links_ended(broker, (context,))
