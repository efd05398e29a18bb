"""Decides attaches whose source is a topic, by the attach table, and null sources, which look a subscription up.

Gathers what exists, what is permitted and which link is live, and lets the rules decide. Changes nothing. Source:
the attach table, docs/decisions/005-decide-then-steal.md, docs/decisions/008-null-source.md,
docs/decisions/010-refusals-change-nothing.md.
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass, replace

from penstock_broker.access.connection import Connection
from penstock_broker.attach import steal, temporary_nodes
from penstock_broker.attach.node import SourceNode, TopicNode
from penstock_broker.attach.request import SourceRequest
from penstock_broker.state.broker import Broker
from penstock_broker.topology.document_lengths import check_document
from penstock_broker.topology.records import Exchange
from penstock_core.attach import (
    AskedSource,
    AttachRequest,
    Create,
    FoundSubscription,
    Join,
    Rebind,
    decide,
    identities_to_look_up,
    look_up,
)
from penstock_core.binding import NO_FILTER, Filter, keys_asked
from penstock_core.existing_subscription import LinkKind
from penstock_core.identity import Identity, LinkKey
from penstock_core.permissions import Action, TargetKind, needs_to_subscribe
from penstock_core.reason import Refuse
from penstock_core.source_reply import SourceReply, source_reply
from penstock_core.subscription_lifetime import outlives_process
from penstock_core.subscription_limits import check_subscriptions
from penstock_core.terms import ExchangeType, Lifetime

__all__ = ["LookUpPlan", "SubscribePlan", "decide_lookup", "decide_subscription"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribePlan:
    """The link consumes from a subscription, which is made, joined or rebound."""

    request: SourceRequest
    decision: Create | Join | Rebind
    reply: SourceReply
    key: LinkKey
    kind: LinkKind
    priority: int
    steals: bool
    """The live link of the same name is ended."""
    new_node: Exchange | None
    """The temporary topic that has to be made before."""


@dataclass(frozen=True, slots=True)
class LookUpPlan:
    """The link has a null source: its reply describes the subscription, and it never gets a message."""

    request: SourceRequest
    identity: Identity | None
    """The subscription; None if it was not found, or may not be used."""
    reply: SourceReply | Refuse


def decide_subscription(
    broker: Broker, connection: Connection, request: SourceRequest, found: SourceNode, topic: TopicNode
) -> SubscribePlan | Refuse:
    """Decide an attach whose source is the topic `topic`."""
    exchange = topic.exchange
    refused = temporary_nodes.check_use(broker, connection, exchange, durable=request.durability.is_durable)
    if refused is not None:
        return refused
    source = _asked_source(request, found.address, topic)
    if isinstance(source, Refuse):
        return source
    asked = _asked(connection, request, source)
    (identity,) = identities_to_look_up(asked)
    existing = broker.topology.existing(identity)
    if exchange.temporary is None:
        refused = broker.permissions.check_all(connection, needs_to_subscribe(identity, existing, exchange.name))
        if refused is not None:
            return refused
    asked = replace(asked, may_use_others=broker.permissions.may_use_others(connection, identity))
    decision = decide(asked, existing, steal.live_link(broker.clients, asked.link))
    if isinstance(decision, Refuse):
        return decision
    if isinstance(decision, Rebind) and exchange.temporary is None:
        # The right to consume from a declared subscription does not include the right to bind it to something else.
        refused = broker.permissions.check(connection, Action.CONSUME, TargetKind.EXCHANGE, exchange.name)
        if refused is not None:
            return refused
    if isinstance(decision, Create):
        refused = _check_number(broker, decision)
        if refused is not None:
            return refused
    if _writes(decision):
        if not (broker.log.takes_topology() if isinstance(decision, Create) else broker.log.failed is None):
            return broker.storage_refuse()
        refused = check_document(broker.log, broker.topology.draft(decision, broker.clock.now_us))
        if refused is not None:
            return refused
    return SubscribePlan(
        request=request,
        decision=decision,
        reply=source_reply(asked, decision),
        key=asked.link,
        kind=asked.kind,
        steals=decision.steals,
        priority=found.priority,
        new_node=exchange if topic.is_new else None,
    )


def decide_lookup(broker: Broker, connection: Connection, request: SourceRequest) -> LookUpPlan:
    """Decide an attach with a null source.

    A refusal is part of the decision: that nothing was found is answered only once it is synced, because the end of the
    subscription may be a record of this turn.
    """
    asked = _asked(connection, request, None)
    identities = identities_to_look_up(asked)
    asked = replace(asked, may_use_others=broker.permissions.may_use_others(connection, *identities))
    existing = {identity: found for identity in identities if (found := broker.topology.existing(identity)) is not None}
    result = look_up(asked, existing)
    if isinstance(result, FoundSubscription) and result.existing.user is None:
        needs = needs_to_subscribe(result.existing.identity, result.existing, "")
        result = broker.permissions.check_all(connection, needs) or result
    if isinstance(result, Refuse):
        return LookUpPlan(request, None, result)
    return LookUpPlan(request, result.existing.identity, source_reply(asked, result))


def _asked_source(request: SourceRequest, address: str, topic: TopicNode) -> AskedSource | Refuse:
    """What the source asks for on the exchange, or why that can't be read."""
    selector, filters = request.selector, request.binding_filters
    if isinstance(selector, Refuse):
        return selector
    if isinstance(filters, Refuse):
        return filters
    kind = topic.exchange.type
    return AskedSource(
        address=address,
        exchange=topic.exchange.name,
        exchange_type=kind,
        keys=keys_asked(kind, topic.key, filters.exact_keys, filters.pattern_keys),
        filter=Filter(selector.text if selector is not None else None, request.no_local)
        if selector or request.no_local
        else NO_FILTER,
        headers=filters.header_bindings if kind is ExchangeType.HEADERS else None,
    )


def _asked(connection: Connection, request: SourceRequest, source: AskedSource | None) -> AttachRequest:
    """The request in the words of the rules."""
    return AttachRequest(
        container_id=connection.client.container_id,
        link_name=request.link_name,
        user=connection.login.user,
        shared="shared" in request.capabilities,
        global_="global" in request.capabilities,
        durability=request.durability,
        expiry=request.expiry,
        source=source,
        nonce=uuid.uuid4().hex,
    )


def _check_number(broker: Broker, decision: Create) -> Refuse | None:
    """None unless it would be one permanent subscription too many. Who runs the broker is told."""
    if decision.lifetime is not Lifetime.PERMANENT:
        return None
    made, limits = broker.topology.client_subscriptions, broker.settings.limits
    refused = check_subscriptions(
        decision.identity,
        decision.user,
        made=len(made),
        limit=limits.subscriptions,
        made_by_user=made.made_by(decision.user),
        user_limit=limits.subscriptions_per_user,
    )
    if refused is not None and broker.warnings.may_warn(f"subscriptions of {decision.user}"):
        logger.warning("User %r can't subscribe: %s", decision.user[:100], refused.description)
    return refused


def _writes(decision: Create | Join | Rebind) -> bool:
    """True if the decision makes a record of the log."""
    if isinstance(decision, Create):
        return outlives_process(decision.identity.durable, decision.lifetime)
    return isinstance(decision, Rebind) or decision.claims is not None
