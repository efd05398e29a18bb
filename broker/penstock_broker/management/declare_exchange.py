"""CREATE and UPDATE of an exchange. Idempotent. Source: docs/reference/management.md."""

from __future__ import annotations

from penstock_api.management import DeclarationOutcome, ExchangeDeclaration, Owner
from penstock_broker.attach import permission_review
from penstock_broker.management import entity_states
from penstock_broker.management.declaration_replies import declaration_reply
from penstock_broker.management.declared_persistence import declared_persistence
from penstock_broker.management.owner_marks import other_owner, outcome_of_change
from penstock_broker.management.replies import ManagementReply, invalid_request, refusal
from penstock_broker.state.broker import Broker
from penstock_broker.topology.document_lengths import check_document
from penstock_broker.topology.records import Exchange, new_router
from penstock_core.declaration_rules import decide_exchange_declaration
from penstock_core.reason import Reason, Refuse
from penstock_core.terms import ExchangeType, Persistence, Unroutable

__all__ = ["declare_exchange"]


def declare_exchange(broker: Broker, name: str | None, wanted: ExchangeDeclaration, *, update: bool) -> ManagementReply:
    """CREATE or UPDATE an exchange; with ``update`` it has to be there."""
    if not name:
        return invalid_request("The request names no exchange.")
    topology = broker.topology
    existing = topology.exchanges.get(name)
    if existing is None and update:
        return refusal(Refuse(Reason.EXCHANGE_NOT_FOUND, f"There is no exchange {name!r}; create it."))
    kind = ExchangeType(wanted.exchange_type)
    refused = decide_exchange_declaration(name, kind, existing.type if existing is not None else None)
    if refused is None and existing is not None:
        refused = other_owner(existing.owner, wanted, f"exchange {name!r}")
    if refused is None and existing is None and not broker.log.takes_topology():
        refused = broker.storage_refuse()
    if refused is not None:
        return refusal(refused)
    draft = Exchange(
        name=name,
        type=kind,
        alternate=wanted.alternate_exchange,
        owner=wanted.owner,
        publishers=wanted.publishers,
        router=new_router(kind),
    )
    refused = check_document(broker.log, draft)
    if refused is not None:
        return refusal(refused)
    exchange = existing if existing is not None else Exchange(name=name, type=kind, router=new_router(kind))
    before = None if existing is None else _exchange_policies(existing)
    outcome = DeclarationOutcome.CREATED if existing is None else outcome_of_change(existing.owner, wanted.owner)
    exchange.unroutable = Unroutable(wanted.unroutable)
    exchange.alternate = wanted.alternate_exchange
    exchange.persistence = _persistence(wanted.persistence, wanted.owner)
    exchange.owner = wanted.owner
    if not set(exchange.publishers) <= set(wanted.publishers):
        permission_review.check_links_soon(broker)
    exchange.publishers = wanted.publishers
    exchange.made_by_name = False
    if before == _exchange_policies(exchange):
        return declaration_reply(DeclarationOutcome.UNCHANGED, entity_states.exchange_state(exchange))
    topology.put_exchange(exchange)
    broker.routes.forget()
    return declaration_reply(outcome, entity_states.exchange_state(exchange))


def _exchange_policies(exchange: Exchange) -> tuple[object, ...]:
    return (
        exchange.unroutable,
        exchange.alternate,
        exchange.persistence,
        exchange.owner,
        exchange.publishers,
        exchange.made_by_name,
    )


def _persistence(asked: str | None, owner: Owner | None) -> Persistence | None:
    return declared_persistence(asked) or (Persistence.ALWAYS if owner is not None else None)
