"""Whether the exchange that an Exchange names is another namespace's on the broker, although no Exchange is seen there
that has declared it: it was kept by `deletionPolicy: Retain`, or its Exchange can't be parsed.

A session hears at its first poll, seconds after it has connected, what its broker has. Whoever asks here before that
has it told at once. Source: docs/decisions/052-namespaces-and-duplicates.md, docs/decisions/102-adoption.md.
"""

from __future__ import annotations

from penstock_api import declaration
from penstock_api.management import EntityType
from penstock_api.resources import Exchange
from penstock_operator.brokers.management import Unreachable
from penstock_operator.brokers.sessions import BrokerSessions

__all__ = ["is_held_elsewhere"]


async def is_held_elsewhere(
    sessions: BrokerSessions, exchange: Exchange | None, winner: Exchange | None, namespace: str
) -> bool:
    """Whether resources of `namespace` must not use the exchange, because a resource of another namespace has declared
    it. `winner`: the oldest Exchange that declares it; of one that is seen, its spec says who may use it.
    """
    if exchange is None or (winner is not None and winner.key != exchange.key):
        return False
    if any(it.type == "Ready" and it.status == "True" for it in exchange.status.conditions):
        return False
    session = sessions.get("/".join(declaration.broker_key(exchange)))
    if session is None:
        return False
    if not session.declared.is_listed:
        try:
            await session.know_entities()
        except Unreachable:
            return False  # Nothing is declared on a broker that does not answer.
    owner = session.declared.owner_of(EntityType.EXCHANGE, declaration.exchange_name(exchange))
    return owner is not None and owner.namespace not in (namespace, exchange.metadata.namespace)
