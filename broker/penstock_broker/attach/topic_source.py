"""Answers attaches whose source is a topic, by the table of seed 000, and null sources, which look a subscription up.

A reply whose decision made a record waits until the record is synced. A refusal changes nothing. Source: design,
section 3.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from penstock_amqp.endpoint.links import OutLink
from penstock_amqp.frames.performatives import Attach, Source
from penstock_amqp.types.values import Symbol
from penstock_broker.access.connection import Connection
from penstock_broker.attach import binding_filters, close, detach, temporary
from penstock_broker.attach.reply import OUTCOMES, activate, add_consumer, live_link, request_of, session_of, target_of
from penstock_broker.attach.request import durability, filter_of, filter_to_wire
from penstock_broker.errors import amqp_error
from penstock_broker.state.broker import Broker
from penstock_broker.state.links import SubscriptionLookup
from penstock_broker.topology.records import Subscription
from penstock_core import address
from penstock_core.attach import (
    AskedSource,
    Create,
    FoundSubscription,
    Join,
    Rebind,
    decide,
    identities_to_look_up,
    look_up,
)
from penstock_core.binding import keys_asked
from penstock_core.permissions import Action, TargetKind, needs_to_subscribe
from penstock_core.reason import Refuse
from penstock_core.source_reply import SourceReply, source_reply
from penstock_core.subscription_lifetime import outlives_process
from penstock_core.terms import ExchangeType

__all__ = ["find", "subscribe"]


def subscribe(
    broker: Broker, connection: Connection, link: OutLink, attach: Attach, parsed: address.ExchangeAddress
) -> Refuse | None:
    """Answer an attach whose source is a topic, or say why not."""
    source = attach.source
    assert source is not None
    exchange = broker.topology.exchanges[parsed.exchange]
    refused = temporary.check(exchange, connection, durable=durability(source).is_durable)
    if refused is not None:
        return refused
    asked = _asked(source, parsed)
    if isinstance(asked, Refuse):
        return asked
    request = request_of(connection, attach, asked)
    (identity,) = identities_to_look_up(request)
    existing = broker.topology.existing(identity)
    if exchange.temporary is None:
        refused = broker.permissions.check_all(connection, needs_to_subscribe(identity, existing, parsed.exchange))
        if refused is not None:
            return refused
    request = replace(request, may_use_others=broker.permissions.may_use_others(connection, identity))
    live = live_link(broker.clients.live_links.get(request.link))
    decision = decide(request, existing, live)
    if isinstance(decision, Refuse):
        return decision
    if isinstance(decision, Rebind) and exchange.temporary is None:
        # Of what an administrator declared its consumers may have what is bound, not whatever they bind.
        refused = broker.permissions.check(connection, Action.CONSUME, TargetKind.EXCHANGE, parsed.exchange)
        if refused is not None:
            return refused
    if broker.log.failed is not None and _writes(decision):
        return broker.storage_refuse()
    reply = source_reply(request, decision)
    loser = broker.clients.live_links[request.link] if decision.steals else None
    if loser is not None:
        detach.steal(broker, loser, connection)
    subscription = _apply(broker, decision)
    consumer = add_consumer(broker, connection, link, attach, request, subscription.queue, subscription.identity)
    _remember_user(connection, link, subscription)
    if loser is not None and loser.identity is not None:
        close.end_if_over(broker, loser.identity)  # a not-shared volatile one lived as long as its link
    broker.routes.forget()
    source_told = topic_source(reply, source)
    broker.sync.when_durable(
        connection, lambda: activate(broker, consumer, attach, source_told, reply.offered_capabilities)
    )
    return None


def _asked(source: Source, parsed: address.ExchangeAddress) -> AskedSource | Refuse:
    """What of the exchange a source wants, or why that can't be read."""
    wanted = filter_of(source)
    if isinstance(wanted, Refuse):
        return wanted
    named = binding_filters.named_bindings(source)
    if isinstance(named, Refuse):
        return named
    return AskedSource(
        address=source.address or "",
        exchange=parsed.exchange,
        exchange_type=parsed.exchange_type,
        keys=keys_asked(parsed.exchange_type, parsed.key, named.exact, named.patterns),
        filter=wanted,
        headers=named.headers if parsed.exchange_type is ExchangeType.HEADERS else None,
    )


def _writes(decision: Create | Join | Rebind) -> bool:
    """True if the decision makes a record of the log."""
    if isinstance(decision, Create):
        return outlives_process(decision.identity.durable, decision.lifetime)
    return isinstance(decision, Rebind) or decision.claims is not None


def _apply(broker: Broker, decision: Create | Join | Rebind) -> Subscription:
    topology = broker.topology
    match decision:
        case Create():
            return topology.create(decision, broker.clock.now_us)
        case Join():
            subscription = topology.subscriptions[decision.existing.identity]
        case Rebind():
            subscription = topology.rebind(decision, broker.clock.now_us)
        case _:
            assert_never(decision)
    if decision.claims is not None:
        topology.claim(subscription, decision.claims)
    return subscription


def _remember_user(connection: Connection, link: OutLink, subscription: Subscription) -> None:
    subscription.users = subscription.users.attached(session_of(connection, link))
    connection.attached.add(subscription.identity)


def topic_source(reply: SourceReply, asked: Source | None) -> Source:
    return Source(
        address=reply.address,
        durable=reply.durability.value,
        expiry_policy=Symbol(reply.expiry.value),
        timeout=0,
        dynamic=asked.dynamic if asked is not None else None,
        dynamic_node_properties=asked.dynamic_node_properties if asked is not None and asked.dynamic else None,
        distribution_mode=Symbol(reply.distribution_mode.value),
        filter={**filter_to_wire(reply.filter, asked), **binding_filters.to_wire(reply, asked)},
        outcomes=OUTCOMES,
        capabilities=tuple(Symbol(name) for name in reply.capabilities),
    )


def find(broker: Broker, connection: Connection, link: OutLink, attach: Attach) -> None:
    """Answer an attach with a null source.

    Also what is not found is told only once that is synced: its end may be a record of this turn.
    """
    request = request_of(connection, attach, None)
    identities = identities_to_look_up(request)
    request = replace(request, may_use_others=broker.permissions.may_use_others(connection, *identities))
    there = {
        identity: existing for identity in identities if (existing := broker.topology.existing(identity)) is not None
    }
    found = look_up(request, there)
    if isinstance(found, FoundSubscription) and found.existing.user is None:
        needs = needs_to_subscribe(found.existing.identity, found.existing, "")
        found = broker.permissions.check_all(connection, needs) or found
    finder = SubscriptionLookup(connection, link, None if isinstance(found, Refuse) else found.existing.identity)
    link.context = finder
    reply = found if isinstance(found, Refuse) else source_reply(request, FoundSubscription(found.existing))
    broker.sync.when_durable(connection, lambda: _tell(broker, finder, attach, reply))


def _tell(broker: Broker, finder: SubscriptionLookup, attach: Attach, reply: SourceReply | Refuse) -> None:
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
            link, source=topic_source(reply, None), target=target_of(attach), offered=reply.offered_capabilities
        )
        finder.is_active = True
        waiting, finder.after_reply = finder.after_reply, []
        for action in waiting:
            if link.is_open:
                action()
    broker.work.touch(connection)
