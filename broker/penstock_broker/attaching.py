"""Answers attaches of links on which the peer receives: reads them, lets the rules decide, applies, replies.

Links that send to the peer follow the table of seed 000, or consume from a queue; for those that receive see
`producing`. A reply whose decision made a record waits until the record is synced. A refusal changes nothing. Source:
design, section 3.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, assert_never

from penstock_amqp.endpoint_links import InLink, OutLink
from penstock_amqp.performatives import Attach, Source, Target
from penstock_amqp.values import Symbol
from penstock_broker import asking, detaching, dispatching
from penstock_broker.connection import Connection
from penstock_broker.errors import amqp_error
from penstock_broker.links import Browser, Consumer, Finder
from penstock_broker.queue import Queue
from penstock_broker.settings import Role
from penstock_core import address, queues
from penstock_core.attach import (
    AskedSource,
    AttachRequest,
    Create,
    Found,
    Join,
    Rebind,
    decide,
    identities_to_look_up,
    look_up,
)
from penstock_core.existing import LiveLink, QueueLink
from penstock_core.identity import Identity
from penstock_core.lifetimes import Session, outlives_process
from penstock_core.reason import Reason, Refuse
from penstock_core.reply import SourceReply, source_reply
from penstock_core.stealing import Steal, decide_steal
from penstock_core.terms import DistributionMode

if TYPE_CHECKING:
    from penstock_broker.broker import Broker
    from penstock_broker.topology.records import Subscription

__all__ = ["attach_consumer", "session_of"]

OUTCOMES = tuple(Symbol(f"amqp:{name}:list") for name in ("accepted", "rejected", "released", "modified"))


def attach_consumer(broker: Broker, connection: Connection, link: OutLink, attach: Attach) -> None:
    """Answer an attach of a link on which the peer receives."""
    refused = _attach_consumer(broker, connection, link, attach)
    if refused is not None:
        connection.endpoint.refuse_attach(link, amqp_error(refused))


def _attach_consumer(broker: Broker, connection: Connection, link: OutLink, attach: Attach) -> Refuse | None:
    source = attach.source
    if source is None:
        _find(broker, connection, link, attach)
        return None
    if source.dynamic:
        return Refuse(Reason.NOT_IMPLEMENTED, "Dynamic sources are not implemented in this version; name an address.")
    parsed = _parse_source(broker, source, asking.capabilities(attach))
    match parsed:
        case address.ExchangeAddress():
            return _subscribe(broker, connection, link, attach, parsed)
        case address.QueueAddress() | address.SubscriptionQueue():
            return _consume(broker, connection, link, attach, parsed)
        case address.ManagementNode():
            broker.management.attach_answers(connection, link, attach)
            return None
        case address.AutoCreate():
            raise AssertionError("what was made is there")
        case Refuse():
            return parsed
        case _:
            assert_never(parsed)


def _parse_source(broker: Broker, source: Source, capabilities: frozenset[str]) -> address.SourceAddress:
    auto = broker.settings.auto_create
    parsed = address.parse_source(source.address, capabilities, broker.topology, auto_create=auto)
    if isinstance(parsed, address.AutoCreate):
        broker.auto_create(parsed)
        parsed = address.parse_source(source.address, capabilities, broker.topology)
    return parsed


# -- topic sources --------------------------------------------------------------------------------------------------


def _subscribe(
    broker: Broker, connection: Connection, link: OutLink, attach: Attach, parsed: address.ExchangeAddress
) -> Refuse | None:
    source = attach.source
    assert source is not None
    wanted = asking.filter_of(source)
    if isinstance(wanted, Refuse):
        return wanted
    asked = AskedSource(
        address=source.address or "",
        exchange=parsed.exchange,
        exchange_type=parsed.exchange_type,
        keys=parsed.keys,
        filter=wanted,
    )
    request = _request(connection, attach, asked)
    (identity,) = identities_to_look_up(request)
    live = _live_link(broker.live.get(request.link))
    decision = decide(request, broker.topology.existing(identity), live)
    if isinstance(decision, Refuse):
        return decision
    if broker.log.failed is not None and _writes(decision):
        return broker.storage_refuse()
    reply = source_reply(request, decision)
    loser = broker.live[request.link] if decision.steals else None
    if loser is not None:
        detaching.steal(broker, loser)
    subscription = _apply(broker, decision)
    consumer = _add_consumer(broker, connection, link, request, subscription.queue, subscription.identity)
    _remember_user(connection, link, subscription)
    if loser is not None and loser.identity is not None:
        detaching.end_if_over(broker, loser.identity)  # a not-shared volatile one lived as long as its link
    broker.forget_routes()
    source_told = _topic_source(reply, source)
    broker.when_durable(
        connection, lambda: _activate(broker, consumer, attach, source_told, reply.offered_capabilities)
    )
    return None


def _writes(decision: Create | Join | Rebind) -> bool:
    """True if the decision makes a record of the log."""
    if isinstance(decision, Create):
        return outlives_process(decision.identity.durable, decision.lifetime)
    return isinstance(decision, Rebind) or decision.claims is not None


def _apply(broker: Broker, decision: Create | Join | Rebind) -> Subscription:
    topology = broker.topology
    match decision:
        case Create():
            return topology.create(decision, broker.now_us)
        case Join():
            subscription = topology.subscriptions[decision.existing.identity]
            if decision.no_local is not None:
                subscription.no_local = decision.no_local
        case Rebind():
            subscription = topology.rebind(decision, broker.now_us)
        case _:
            assert_never(decision)
    if decision.claims is not None:
        topology.claim(subscription, decision.claims)
    return subscription


def _add_consumer(
    broker: Broker,
    connection: Connection,
    link: OutLink,
    request: AttachRequest,
    queue: Queue,
    identity: Identity | None,
) -> Consumer:
    consumer = Consumer(
        connection,
        link,
        queue,
        identity=identity,
        kind=request.kind,
        key=request.link,
        durability=request.durability,
    )
    link.context = consumer
    queue.consumers.append(consumer)
    queue.unused_since_us = 0
    broker.live[request.link] = consumer
    return consumer


def _remember_user(connection: Connection, link: OutLink, subscription: Subscription) -> None:
    subscription.users = subscription.users.attached(session_of(connection, link))
    connection.attached.add(subscription.identity)


def _topic_source(reply: SourceReply, asked: Source | None) -> Source:
    return Source(
        address=reply.address,
        durable=reply.durability.value,
        expiry_policy=Symbol(reply.expiry.value),
        timeout=0,
        distribution_mode=Symbol(reply.distribution_mode.value),
        filter=asking.filter_to_wire(reply.filter, asked),
        outcomes=OUTCOMES,
        capabilities=tuple(Symbol(name) for name in reply.capabilities),
    )


def _activate(
    broker: Broker, consumer: Consumer | Browser, attach: Attach, source: Source, offered: tuple[str, ...]
) -> None:
    """Send the reply; from here on messages flow."""
    connection, link = consumer.connection, consumer.link
    if not link.is_open:
        return
    connection.flush()  # the reply has to begin on a frame boundary to be rewritten
    connection.endpoint.attach_reply(
        link,
        source=source,
        target=_target(attach),
        offered=offered,
        answers_unsettled=attach.unsettled is not None,
        sends_settled=attach.snd_settle_mode == 1,
    )
    consumer.is_active = True
    broker.touch(connection)
    for action in consumer.after_reply:
        action()
    consumer.after_reply = []
    if isinstance(consumer, Consumer):
        dispatching.schedule(broker, consumer.queue)
    else:
        broker.browsing.append(consumer)


# -- null sources ---------------------------------------------------------------------------------------------------


def _find(broker: Broker, connection: Connection, link: OutLink, attach: Attach) -> None:
    """Also what is not found is told only once that is synced: its end may be a record of this turn."""
    request = _request(connection, attach, None)
    there = {
        identity: existing
        for identity in identities_to_look_up(request)
        if (existing := broker.topology.existing(identity)) is not None
    }
    found = look_up(request, there)
    finder = Finder(connection, link, None if isinstance(found, Refuse) else found.existing.identity)
    link.context = finder
    reply = found if isinstance(found, Refuse) else source_reply(request, Found(found.existing))
    broker.when_durable(connection, lambda: _tell(broker, finder, attach, reply))


def _tell(broker: Broker, finder: Finder, attach: Attach, reply: SourceReply | Refuse) -> None:
    connection, link = finder.connection, finder.link
    if not link.is_open:
        return
    if isinstance(reply, Refuse):
        link.context = None
        finder.after_reply = []
        connection.endpoint.refuse_attach(link, amqp_error(reply))
    else:
        connection.flush()  # the reply has to begin on a frame boundary to be rewritten
        connection.endpoint.attach_reply(
            link, source=_topic_source(reply, None), target=_target(attach), offered=reply.offered_capabilities
        )
        finder.is_active = True
        waiting, finder.after_reply = finder.after_reply, []
        for action in waiting:
            if link.is_open:
                action()
    broker.touch(connection)


# -- queue sources --------------------------------------------------------------------------------------------------


def _consume(
    broker: Broker,
    connection: Connection,
    link: OutLink,
    attach: Attach,
    parsed: address.QueueAddress | address.SubscriptionQueue,
) -> Refuse | None:
    source = attach.source
    assert source is not None
    may_manage = connection.port.role is Role.MANAGEMENT
    decision = queues.decide_queue_attach(parsed, asking.distribution_mode(source), may_manage=may_manage)
    match decision:
        case Refuse():
            return decision
        case queues.Browse():
            return _browse(broker, connection, link, attach, parsed)
        case queues.Consume():
            node = broker.topology.queues[decision.queue]
        case _:
            assert_never(decision)
    request = _request(connection, attach, None)
    kind = QueueLink(decision.queue)
    stealing = decide_steal(kind, _live_link(broker.live.get(request.link)), connection.user, False)
    if isinstance(stealing, Refuse):
        return stealing
    if isinstance(stealing, Steal):
        detaching.steal(broker, broker.live[request.link])
    consumer = _add_consumer(broker, connection, link, request, node.queue, None)
    consumer.kind = kind
    told = _queue_source(source, DistributionMode.MOVE)
    broker.when_durable(connection, lambda: _activate(broker, consumer, attach, told, ()))
    return None


def _browse(
    broker: Broker,
    connection: Connection,
    link: OutLink,
    attach: Attach,
    parsed: address.QueueAddress | address.SubscriptionQueue,
) -> Refuse | None:
    source = attach.source
    assert source is not None
    if isinstance(parsed, address.QueueAddress):
        queue = broker.topology.queues[parsed.queue].queue
    else:
        subscription = broker.topology.subscriptions.get(parsed.identity)
        if subscription is None:
            return Refuse(Reason.SUBSCRIPTION_NOT_FOUND, f"There is no {parsed.identity}; check the name.")
        queue = subscription.queue
    browser = Browser(connection, link, queue)
    link.context = browser
    queue.browsers.append(browser)
    _activate(broker, browser, attach, _queue_source(source, DistributionMode.COPY), ())
    return None


def _queue_source(asked: Source, mode: DistributionMode) -> Source:
    return Source(
        address=asked.address,
        durable=0,
        expiry_policy=asked.expiry_policy,
        distribution_mode=Symbol(mode.value),
        outcomes=OUTCOMES,
        capabilities=(Symbol("queue"),),
    )


# -- shared ---------------------------------------------------------------------------------------------------------


def _request(connection: Connection, attach: Attach, source: AskedSource | None) -> AttachRequest:
    return asking.attach_request(
        attach,
        container_id=connection.container_id,
        user=connection.user,
        source=source,
        nonce=uuid.uuid4().hex,
    )


def _live_link(consumer: Consumer | None) -> LiveLink | None:
    if consumer is None:
        return None
    return LiveLink(kind=consumer.kind, identity=consumer.identity, user=consumer.connection.user)


def _target(attach: Attach) -> Target:
    target = attach.target
    if not isinstance(target, Target):
        return Target()
    return Target(address=target.address, capabilities=target.capabilities)


def session_of(connection: Connection, link: InLink | OutLink) -> Session:
    """The session of a link, as the rules know it."""
    session = link.session
    if not isinstance(session.context, int):
        connection.sessions += 1
        session.context = connection.sessions
    return Session(connection.number, session.context)
