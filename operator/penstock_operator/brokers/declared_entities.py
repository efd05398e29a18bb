"""What the operator has declared on one broker, and what the broker has: what is unchanged is not declared again.

Of each declaration a digest and the reply are kept, with the revision that the entity has since. The broker tells what
changed since a revision. As long as an entity has the revision of the reply, nobody has changed it, and the same
declaration would be answered in the same way. Revisions mean something only within one life of a broker, so all of this
is void if it restarts. Pure. Source: docs/decisions/099-unchanged-costs-nothing.md, docs/reference/management.md (QUERY
with `changedSince`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from penstock_api.management import DeclarationOutcome, EntityType, ExchangeDeclaration, Owner, QueueDeclaration
from penstock_core import identity
from penstock_core.reason import Reason as BrokerReason
from penstock_operator.brokers.management import EntityChanges
from penstock_operator.plans.decisions import BrokerReply, DeclareEntity, DeleteEntity
from penstock_operator.plans.orphans import MarkedEntity

__all__ = ["KEPT", "DeclaredEntities"]

_Key: TypeAlias = tuple[EntityType, str]

KEPT: Final = (
    "bindingKeys",
    "boundSubscriptions",
    "exchange",
    "expiryPolicy",
    "headerBindings",
    "selector",
    "sharing",
)
"""What the plans read from a reply."""


@dataclass(frozen=True, slots=True)
class _Declared:
    digest: bytes
    revision: int
    owner: Owner
    reply: BrokerReply
    destinations: frozenset[str]
    """Queues that the declaration makes, because it names them as destinations; an exchange may have that name, too."""


@dataclass(frozen=True, slots=True)
class _Withdrawn:
    """The rights of an entity were ended in the name of one resource, or it is another's."""

    owner_uid: str
    reply: BrokerReply
    revision: int | None
    """That of the entity, as it was told after the withdrawal; None: it was not told since."""


@dataclass(slots=True)
class DeclaredEntities:
    """The exchanges, subscriptions and queues of one life of one broker."""

    revision: int | None = None
    """Up to this revision of the broker's topology its changes are known; None: nothing is known."""
    is_listed: bool = False
    """Whether the broker has told all that it has, so that what is not known here is not there."""
    _declared: dict[_Key, _Declared] = field(default_factory=dict[_Key, _Declared])
    _marked: dict[_Key, MarkedEntity] = field(default_factory=dict[_Key, MarkedEntity])
    _withdrawn: dict[_Key, _Withdrawn] = field(default_factory=dict[_Key, _Withdrawn])
    _confirmed: dict[_Key, int] = field(default_factory=dict[_Key, int])
    """The revision of each entity that changed after its rights had ended; they are ended once more for it."""

    def clear(self) -> None:
        """The broker was restarted, or has lost its volume."""
        self.revision = None
        self.is_listed = False
        self._declared.clear()
        self._marked.clear()
        self._withdrawn.clear()
        self._confirmed.clear()

    def reply_to(self, entry: DeclareEntity) -> BrokerReply | None:
        """The reply that the broker would give again; None if the declaration must be sent."""
        known = self._declared.get(_key(entry))
        return None if known is None or known.digest != _digest(entry) else known.reply

    def note(self, entry: DeclareEntity, reply: BrokerReply) -> None:
        """The broker's reply to a declaration. Only a success that leaves nothing to be done is kept."""
        key, owner, revision = _key(entry), entry.body.owner, reply.body.get("revision")
        self._withdrawn.pop(key, None)
        self._confirmed.pop(key, None)
        is_done = reply.is_success and reply.body.get("outcome") != DeclarationOutcome.REBIND_BLOCKED.value
        if not is_done or owner is None or not isinstance(revision, int):
            self._declared.pop(key, None)
            return
        kept: dict[str, object] = {name: reply.body[name] for name in KEPT if name in reply.body}
        kept["outcome"] = DeclarationOutcome.UNCHANGED.value
        known = BrokerReply(status=200, body=kept)
        self._declared[key] = _Declared(_digest(entry), revision, owner, known, _destinations(entry))

    def forget(self, entity: EntityType, name: str) -> None:
        """The operator has deleted an entity."""
        self._declared.pop((entity, name), None)
        self._marked.pop((entity, name), None)
        self._withdrawn.pop((entity, name), None)

    def withdrawal_reply(self, entry: DeleteEntity) -> BrokerReply | None:
        """The reply that the broker would give again to the end of rights; None if the request must be sent."""
        known = self._withdrawn.get((entry.entity, entry.name))
        return known.reply if known is not None and known.owner_uid == entry.owner_uid else None

    def note_withdrawal(self, entry: DeleteEntity, reply: BrokerReply) -> None:
        """The broker's reply to the end of rights. If the entity had any, its declaration is sent anew when it is asked
        for. A success is kept, and that the entity is another resource's, until the entity changes.
        """
        key = (entry.entity, entry.name)
        if reply.is_success:
            self._declared.pop(key, None)
        if reply.is_success or reply.reason == BrokerReason.MANAGED.value:
            self._withdrawn[key] = _Withdrawn(entry.owner_uid, reply, self._confirmed.pop(key, None))

    def merge(self, changes: EntityChanges) -> list[Owner]:
        """Take over what the broker tells; the owners of entities that are not as they were declared, or are gone."""
        there = {(each.entity, each.name): each for each in changes.there}
        gone = set(changes.removed) - there.keys()
        if changes.is_whole:
            gone = (self._declared.keys() | self._marked.keys()) - there.keys() - self._since(changes.revision)
        drifted: list[Owner] = []
        for key in gone:
            self._withdrawn.pop(key, None)
            self._confirmed.pop(key, None)
            self._marked.pop(key, None)
            self._drop(key, drifted)
        for key, version in there.items():
            if version.owner is None:
                self._marked.pop(key, None)
            else:
                self._marked[key] = MarkedEntity(version.name, version.owner)
            declared, withdrawn = self._declared.get(key), self._withdrawn.get(key)
            if declared is not None and declared.revision != version.revision:
                self._drop(key, drifted)
            if withdrawn is not None and version.revision is not None and withdrawn.revision != version.revision:
                # It may have changed by the withdrawal itself; one more request makes that sure.
                del self._withdrawn[key]
                self._confirmed[key] = version.revision
        if changes.is_whole:
            nodes = {name for entity, name in there if entity is not EntityType.SUBSCRIPTION}
            self._drop_sending_to(lambda name: name not in nodes, drifted)
        elif nodes := {name for entity, name in gone if entity is not EntityType.SUBSCRIPTION}:
            self._drop_sending_to(lambda name: name in nodes, drifted)
        self.revision = changes.revision
        self.is_listed = self.is_listed or changes.is_whole
        return drifted

    def merge_bound(self, bound: Mapping[str, int]) -> list[Owner]:
        """Take over how many subscriptions each exchange has; the owners of those for which it is another number."""
        changed: list[Owner] = []
        for name, number in bound.items():
            key = (EntityType.EXCHANGE, name)
            declared = self._declared.get(key)
            if declared is not None and declared.reply.body.get("boundSubscriptions") != number:
                body = {**declared.reply.body, "boundSubscriptions": number}
                self._declared[key] = replace(declared, reply=replace(declared.reply, body=body))
                changed.append(declared.owner)
        return changed

    def owner_of(self, entity: EntityType, name: str) -> Owner | None:
        """The resource that declared an entity: this session was the last to do it, or the broker has told it. None if
        it is not known, or there is none.
        """
        declared, marked = self._declared.get((entity, name)), self._marked.get((entity, name))
        return declared.owner if declared is not None else None if marked is None else marked.owner

    def marked(self) -> list[MarkedEntity]:
        """All entities that have an owner mark, as of `revision`."""
        return list(self._marked.values())

    def _since(self, revision: int | None) -> set[_Key]:
        """What was declared after this revision, while the list that ends with it was on the way."""
        if revision is None:
            return set()
        return {key for key, declared in self._declared.items() if declared.revision > revision}

    def _drop_sending_to(self, is_gone: Callable[[str], bool], drifted: list[Owner]) -> None:
        for key, declared in tuple(self._declared.items()):
            if any(is_gone(name) for name in declared.destinations):
                self._drop(key, drifted)

    def _drop(self, key: _Key, drifted: list[Owner]) -> None:
        declared = self._declared.pop(key, None)
        if declared is not None:
            drifted.append(declared.owner)


def _key(entry: DeclareEntity) -> _Key:
    body = entry.body
    if isinstance(body, ExchangeDeclaration):
        return EntityType.EXCHANGE, entry.name or ""
    if isinstance(body, QueueDeclaration):
        return EntityType.QUEUE, entry.name or ""
    scope = identity.GLOBAL if body.client_id is None else identity.Scope(body.client_id)
    return EntityType.SUBSCRIPTION, identity.queue_name(identity.Identity(scope, body.subscription_name, body.durable))


def _destinations(entry: DeclareEntity) -> frozenset[str]:
    if isinstance(entry.body, ExchangeDeclaration):
        return frozenset()
    named = (entry.body.delivery.dead_letter, entry.body.delivery.expiry)
    return frozenset(name for name in named if name is not None and "/" not in name)


def _digest(entry: DeclareEntity) -> bytes:
    return hashlib.sha256(entry.body.model_dump_json().encode()).digest()
