"""What every consuming link needs: its request read, its record made, its reply sent, after which messages flow.

Must not know what kind of source it is. Source: design, section 3.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Final

from penstock_amqp.endpoint.links import InLink, OutLink
from penstock_amqp.frames.performatives import Attach, Source, Target
from penstock_amqp.types.values import Symbol
from penstock_broker.access.connection import Connection
from penstock_broker.attach.request import attach_request, default_outcome
from penstock_broker.queue.queue import Queue
from penstock_broker.state.broker import Broker
from penstock_broker.state.links import Browser, Consumer
from penstock_core import dispatch_order
from penstock_core.attach import AskedSource, AttachRequest
from penstock_core.existing_subscription import LiveLink
from penstock_core.identity import Identity
from penstock_core.subscription_lifetime import SessionKey

__all__ = ["OUTCOMES", "activate", "add_consumer", "live_link", "request_of", "session_of", "target_of"]

OUTCOMES: Final = tuple(Symbol(f"amqp:{name}:list") for name in ("accepted", "rejected", "released", "modified"))


ROOM_BYTES: Final = 1024 * 1024
"""What the broker writes into the longest message, at most: a limit beyond that never holds."""


def request_of(connection: Connection, attach: Attach, source: AskedSource | None) -> AttachRequest:
    """What the attach asks for; `source` is its topic source as parsed, None for every other kind."""
    return attach_request(
        attach,
        container_id=connection.container_id,
        user=connection.user,
        source=source,
        nonce=uuid.uuid4().hex,
    )


def live_link(consumer: Consumer | None) -> LiveLink | None:
    """What the rules need to know of the link that is live under a name."""
    if consumer is None:
        return None
    return LiveLink(kind=consumer.kind, identity=consumer.identity, user=consumer.connection.user)


def add_consumer(
    broker: Broker,
    connection: Connection,
    link: OutLink,
    attach: Attach,
    request: AttachRequest,
    queue: Queue,
    identity: Identity | None,
) -> Consumer:
    """Record a link that consumes from now on; it gets messages once its attach is answered."""
    consumer = Consumer(
        connection,
        link,
        queue,
        identity=identity,
        kind=request.kind,
        key=request.link,
        durability=request.durability,
    )
    if link.max_bytes > broker.settings.largest_message_bytes + ROOM_BYTES:
        link.max_bytes = 0
    consumer.priority = dispatch_order.consumer_priority((attach.properties or {}).items())
    link.context = consumer
    queue.join(consumer)
    broker.clients.live_links[request.link] = consumer
    return consumer


def activate(
    broker: Broker, consumer: Consumer | Browser, attach: Attach, source: Source, offered: tuple[str, ...]
) -> None:
    """Send the reply; from here on messages flow."""
    connection, link = consumer.connection, consumer.link
    if not link.is_open:
        return
    connection.flush()  # the reply has to begin on a frame boundary to be rewritten
    connection.endpoint.attach_reply(
        link,
        source=replace(source, default_outcome=default_outcome(attach)),
        target=target_of(attach),
        offered=offered,
        answers_unsettled=attach.unsettled is not None,
        sends_settled=attach.snd_settle_mode == 1,
        settles_second=attach.rcv_settle_mode == 1,
    )
    consumer.is_active = True
    broker.work.touch(connection)
    for action in consumer.after_reply:
        action()
    consumer.after_reply = []
    if isinstance(consumer, Consumer):
        broker.work.schedule(consumer.queue)
    else:
        broker.work.browsing.append(consumer)


def target_of(attach: Attach) -> Target:
    """The target to reply with: a consumer's own."""
    target = attach.target
    if not isinstance(target, Target):
        return Target()
    return Target(address=target.address, capabilities=target.capabilities)


def session_of(connection: Connection, link: InLink | OutLink) -> SessionKey:
    """The session of a link, as the rules know it."""
    session = link.session
    if not isinstance(session.context, int):
        connection.sessions += 1
        session.context = connection.sessions
    return SessionKey(connection.number, session.context)
