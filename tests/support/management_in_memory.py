"""A broker in memory, as the operator's sessions see it: names, owners and bindings, and no messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from penstock_api.management import EntityType, ExchangeDeclaration, Owner, SubscriptionDeclaration
from penstock_api.state_documents import BrokerState
from penstock_core import identity
from penstock_operator.brokers.management import ManagementAccess, Unreachable
from penstock_operator.brokers.sessions import SessionChange
from penstock_operator.manifest import Manifest
from penstock_operator.plans.decisions import BrokerReply, DeclareEntity, DeleteEntity, Reach
from penstock_operator.plans.orphans import MarkedEntity

__all__ = ["BrokerInMemory", "SessionInMemory", "SessionsInMemory"]


@dataclass(slots=True)
class BrokerInMemory:
    """The topology of one broker: who declared what."""

    exchanges: dict[str, ExchangeDeclaration] = field(default_factory=dict[str, ExchangeDeclaration])
    subscriptions: dict[str, SubscriptionDeclaration] = field(default_factory=dict[str, SubscriptionDeclaration])
    is_up: bool = True
    down_since: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    """While it is not up: since when."""

    def wipe(self) -> None:
        """The broker loses its volume."""
        self.exchanges.clear()
        self.subscriptions.clear()

    def create(self, entry: DeclareEntity) -> BrokerReply:
        body = entry.body
        if isinstance(body, ExchangeDeclaration):
            assert entry.name is not None
            self.exchanges[entry.name] = body
            return BrokerReply(status=200, body={"outcome": "Updated"})
        if body.exchange not in self.exchanges:
            return BrokerReply(status=404, reason="ExchangeNotFound", description="There is no such exchange.")
        scope = identity.GLOBAL if body.client_id is None else identity.Scope(body.client_id)
        name = identity.queue_name(identity.Identity(scope, body.subscription_name, body.durable))
        there = self.subscriptions.get(name)
        if there is not None and _resource(there) != _resource(body):
            return BrokerReply(status=409, reason="DuplicateSubscription", description="Another one has it.")
        self.subscriptions[name] = body
        state: Manifest = {"exchange": body.exchange, "expiryPolicy": "Never", "sharing": "Shared", "bindingKeys": []}
        return BrokerReply(status=200, body={"outcome": "Updated", **state})

    def delete(self, entry: DeleteEntity) -> BrokerReply:
        if entry.entity is EntityType.SUBSCRIPTION:
            there = self.subscriptions.get(entry.name)
            if there is not None and there.owner is not None and there.owner.uid != entry.owner_uid:
                return BrokerReply(status=409, reason="Managed")
            self.subscriptions.pop(entry.name, None)
            return BrokerReply(status=204)
        bound = any(it.exchange == entry.name for it in self.subscriptions.values())
        if entry.if_unused and bound:
            return BrokerReply(status=409, reason="BindingsExist")
        self.exchanges.pop(entry.name, None)
        return BrokerReply(status=204)


def _resource(declared: SubscriptionDeclaration) -> tuple[str, str]:
    assert declared.owner is not None, "everything here is declared by a resource"
    return declared.owner.namespace, declared.owner.name


@dataclass(slots=True)
class SessionInMemory:
    """A session that replies at once."""

    broker: BrokerInMemory
    state: BrokerState | None = None
    problem_sentence: str = "It is down."
    has_tried: bool = True
    hurried: int = 0
    """How often it was told to connect without waiting."""

    @property
    def reach(self) -> Reach:
        return Reach.CONNECTED if self.broker.is_up and self.has_tried else Reach.UNREACHABLE

    async def declare(self, entry: DeclareEntity) -> BrokerReply:
        self._check()
        return self.broker.create(entry)

    async def delete(self, entry: DeleteEntity) -> BrokerReply:
        self._check()
        return self.broker.delete(entry)

    async def marked_entities(self) -> Sequence[MarkedEntity]:
        self._check()
        declared: dict[str, ExchangeDeclaration | SubscriptionDeclaration] = {
            **self.broker.exchanges,
            **self.broker.subscriptions,
        }
        return [MarkedEntity(name, it.owner) for name, it in declared.items() if it.owner is not None]

    def try_soon(self) -> None:
        self.hurried += 1

    def _check(self) -> None:
        if self.reach is not Reach.CONNECTED:
            raise Unreachable("it is down")


@dataclass(slots=True)
class SessionsInMemory:
    """Sessions of all Brokers, all with the same broker."""

    broker: BrokerInMemory
    open: dict[str, SessionInMemory] = field(default_factory=dict[str, SessionInMemory])
    connects: bool = True
    """Whether a new session has connected at once; else it is still trying."""

    def get(self, broker: str) -> SessionInMemory | None:
        return self.open.get(broker)

    def unreachable_since(self, broker: str) -> datetime | None:
        return None if broker in self.open and self.broker.is_up else self.broker.down_since

    async def ensure(
        self,
        broker: str,
        access: ManagementAccess,
        changed: Callable[[SessionChange], None],
        drifted: Callable[[Owner], None] = lambda _: None,
    ) -> SessionInMemory:
        if broker not in self.open:
            self.open[broker] = SessionInMemory(self.broker, has_tried=self.connects)
            if self.connects:
                changed(SessionChange.REACH if self.broker.is_up else SessionChange.LOST)
        return self.open[broker]

    async def drop(self, broker: str) -> None:
        self.open.pop(broker, None)

    async def forget(self, broker: str) -> None:
        await self.drop(broker)
