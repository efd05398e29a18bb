"""A broker in memory, as the operator's sessions see it: names, owners and bindings, and no messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from support.resources import broker_state

from penstock_api.management import EntityType, ExchangeDeclaration, Owner, QueueDeclaration, SubscriptionDeclaration
from penstock_api.state_documents import BrokerState
from penstock_core import identity
from penstock_operator.brokers.broker_contacts import BrokerContacts
from penstock_operator.brokers.management import EntityChanges, EntityVersion, ManagementAccess, Unreachable
from penstock_operator.brokers.session_change import SessionChange
from penstock_operator.manifest import Manifest
from penstock_operator.plans.decisions import BrokerReply, DeclareEntity, DeleteEntity, Reach
from penstock_operator.plans.orphans import MarkedEntity

__all__ = ["BrokerInMemory", "ManagementInMemory", "SessionInMemory", "SessionsInMemory"]


@dataclass(slots=True)
class BrokerInMemory:
    """The topology of one broker: who declared what."""

    exchanges: dict[str, ExchangeDeclaration] = field(default_factory=dict[str, ExchangeDeclaration])
    subscriptions: dict[str, SubscriptionDeclaration] = field(default_factory=dict[str, SubscriptionDeclaration])
    queues: dict[str, QueueDeclaration] = field(default_factory=dict[str, QueueDeclaration])
    is_up: bool = True

    def wipe(self) -> None:
        """The broker loses its volume."""
        self.exchanges.clear()
        self.subscriptions.clear()
        self.queues.clear()

    def create(self, entry: DeclareEntity) -> BrokerReply:
        body = entry.body
        if isinstance(body, ExchangeDeclaration):
            assert entry.name is not None
            kept = self.exchanges.get(entry.name)
            if kept is not None and _resource(kept) != _resource(body):
                return BrokerReply(status=409, reason="DuplicateSubscription", description="Another one has it.")
            self.exchanges[entry.name] = body
            return BrokerReply(status=200, body={"outcome": "Updated"})
        if isinstance(body, QueueDeclaration):
            return self._create_queue(entry.name or "", body)
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

    def _create_queue(self, name: str, body: QueueDeclaration) -> BrokerReply:
        there = self.queues.get(name)
        if there is not None and _resource(there) != _resource(body):
            return BrokerReply(status=409, reason="DuplicateSubscription", description="Another one has it.")
        self.queues[name] = body
        return BrokerReply(status=200, body={"outcome": "Updated", "name": name})

    def delete(self, entry: DeleteEntity) -> BrokerReply:
        if entry.rights_only:
            return self._end_rights(entry)
        if entry.entity is not EntityType.EXCHANGE:
            held = self.subscriptions if entry.entity is EntityType.SUBSCRIPTION else self.queues
            there = held.get(entry.name)
            if there is not None and there.owner is not None and there.owner.uid != entry.owner_uid:
                return BrokerReply(status=409, reason="Managed")
            held.pop(entry.name, None)
            return BrokerReply(status=204)
        bound = any(it.exchange == entry.name for it in self.subscriptions.values())
        if entry.if_unused and bound:
            return BrokerReply(status=409, reason="BindingsExist")
        self.exchanges.pop(entry.name, None)
        return BrokerReply(status=204)

    def _end_rights(self, entry: DeleteEntity) -> BrokerReply:
        if entry.entity is EntityType.EXCHANGE and entry.name in self.exchanges:
            self.exchanges[entry.name] = self.exchanges[entry.name].model_copy(update={"publishers": ()})
        elif entry.name in self.subscriptions:
            there = self.subscriptions[entry.name]
            if there.owner is not None and there.owner.uid != entry.owner_uid:
                return BrokerReply(status=409, reason="Managed")
            self.subscriptions[entry.name] = there.model_copy(update={"consumers": ()})
        return BrokerReply(status=204)


def _resource(declared: ExchangeDeclaration | SubscriptionDeclaration | QueueDeclaration) -> tuple[str, str]:
    assert declared.owner is not None, "everything here is declared by a resource"
    return declared.owner.namespace, declared.owner.name


@dataclass(slots=True)
class SessionInMemory:
    """A session that replies at once."""

    broker: BrokerInMemory
    state: BrokerState | None = None
    problem_sentence: str = "It is down."
    has_tried: bool = True
    """Whether an attempt to connect has ended."""
    hurried: int = 0
    """How often it was told to connect without waiting."""
    is_listed: bool = False
    """Whether the broker has told what it has."""

    @property
    def reach(self) -> Reach:
        if not self.has_tried:
            return Reach.NOT_ASKED
        return Reach.CONNECTED if self.broker.is_up else Reach.UNREACHABLE

    async def declare(self, entry: DeclareEntity) -> BrokerReply:
        self._check()
        return self.broker.create(entry)

    async def delete(self, entry: DeleteEntity) -> BrokerReply:
        self._check()
        return self.broker.delete(entry)

    @property
    def declared(self) -> SessionInMemory:
        """What the session knows of the broker: all that the broker has, once that has told it."""
        return self

    async def know_entities(self) -> None:
        self._check()
        self.is_listed = True

    def owner_of(self, entity: EntityType, name: str) -> Owner | None:
        assert entity is EntityType.EXCHANGE
        found = self.broker.exchanges.get(name) if self.is_listed else None
        return None if found is None else found.owner

    async def marked_entities(self) -> Sequence[MarkedEntity]:
        await self.know_entities()
        broker = self.broker
        declared: tuple[tuple[str, ExchangeDeclaration | SubscriptionDeclaration | QueueDeclaration], ...] = (
            *broker.exchanges.items(),
            *broker.subscriptions.items(),
            *broker.queues.items(),
        )
        return [MarkedEntity(name, it.owner) for name, it in declared if it.owner is not None]

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

    clock: Callable[[], datetime] = lambda: datetime(2026, 1, 1, tzinfo=UTC)
    contacts: BrokerContacts = field(init=False)

    def __post_init__(self) -> None:
        self.contacts = BrokerContacts(self.clock)

    def get(self, broker: str) -> SessionInMemory | None:
        session = self.open.get(broker)
        if session is not None:
            (self.contacts.answered if session.reach is Reach.CONNECTED else self.contacts.lost)(broker)
        return session

    def is_declaring(self) -> bool:
        return False

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
        if self.open.pop(broker, None) is not None:
            self.contacts.lost(broker)

    async def forget(self, broker: str) -> None:
        await self.drop(broker)
        self.contacts.forget(broker)


@dataclass(slots=True)
class ManagementInMemory:
    """A connection to the broker's management, for sessions as the operator has them."""

    broker: BrokerInMemory
    deleted: list[str] = field(default_factory=list[str])
    """Of all connections that share it: what was deleted on the broker."""

    async def state(self) -> BrokerState:
        self._check()
        return broker_state()

    async def declare(self, entries: Sequence[DeclareEntity]) -> Sequence[BrokerReply]:
        self._check()
        return [self.broker.create(entry) for entry in entries]

    async def delete(self, entries: Sequence[DeleteEntity]) -> Sequence[BrokerReply]:
        self._check()
        self.deleted += [entry.name for entry in entries]
        return [self.broker.delete(entry) for entry in entries]

    async def changes(self, since: int | None) -> EntityChanges:
        self._check()
        declared: list[tuple[EntityType, Mapping[str, ExchangeDeclaration | SubscriptionDeclaration]]] = [
            (EntityType.EXCHANGE, self.broker.exchanges),
            (EntityType.SUBSCRIPTION, self.broker.subscriptions),
        ]
        there = [EntityVersion(kind, name, it.owner, None) for kind, all_ in declared for name, it in all_.items()]
        return EntityChanges(None, True, there)

    async def bound_subscriptions(self) -> Mapping[str, int]:
        self._check()
        return Counter(it.exchange for it in self.broker.subscriptions.values())

    async def close(self) -> None:
        return

    def _check(self) -> None:
        if not self.broker.is_up:
            raise Unreachable("it is down")
