"""The operations of a broker's `$management` that the operator needs, as a Protocol; `management_amqp` implements it.

Its methods take and return the operator's types. `penstock_api.management` describes the AMQP messages. Source:
docs/decisions/047-management-node.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from penstock_api.management import EntityType, Owner
from penstock_api.state_documents import BrokerState
from penstock_operator.plans.decisions import BrokerReply, DeclareEntity, DeleteEntity

__all__ = [
    "BrokerManagement",
    "Connector",
    "EntityChanges",
    "EntityVersion",
    "ManagementAccess",
    "NotUnderstood",
    "Unanswered",
    "Unreachable",
]


class Unreachable(Exception):
    """The broker does not answer: no connection, a broken one, or no reply in time. The text says which."""


class Unanswered(Unreachable):
    """The address neither accepts nor refuses a connection: it may be that of a pod that was deleted."""


class NotUnderstood(Unreachable):
    """The broker answers, but what it reports can't be parsed: it is of a later release than this operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagementAccess:
    """Address and credentials of a broker's management."""

    host: str
    """The address to connect to."""
    port: int
    server_name: str
    """The name that the server certificate must have."""
    ca: bytes = field(repr=False)
    """The certificate of the CA, PEM."""
    user: str
    password: str = field(repr=False)
    before_change: Callable[[], None] = field(default=lambda: None, repr=False, compare=False)
    """Called before each request that changes something: a list of changes that is long is sent in several requests. It
    raises Unreachable if no more may be sent.
    """


@dataclass(frozen=True, slots=True)
class EntityVersion:
    """An exchange, a subscription or a queue on the broker, and the revision of its declaration."""

    entity: EntityType
    name: str
    """Of a subscription the name of its queue."""
    owner: Owner | None
    """Its owner mark."""
    revision: int | None


@dataclass(frozen=True, slots=True)
class EntityChanges:
    """Exchanges, subscriptions and queues whose declarations changed since a revision, or all of them."""

    revision: int | None
    """Up to this revision all changes are told; ask for those since it next time. None: ask for everything."""
    is_whole: bool
    """All are told; what is not among them is not there."""
    there: Sequence[EntityVersion]
    removed: Sequence[tuple[EntityType, str]] = ()
    """Those that were removed, by type and name; one of them may be there again."""


class BrokerManagement(Protocol):
    """One connection to a broker's management. Every method raises Unreachable when the broker does not answer."""

    async def state(self) -> BrokerState:
        """What the broker reports about itself."""
        ...

    async def declare(self, entries: Sequence[DeclareEntity]) -> Sequence[BrokerReply]:
        """Create or update each entity, in order; one reply each. A refusal does not affect the others."""
        ...

    async def delete(self, entries: Sequence[DeleteEntity]) -> Sequence[BrokerReply]:
        """Delete each entity, in order; one reply each."""
        ...

    async def changes(self, since: int | None) -> EntityChanges:
        """The exchanges, subscriptions and queues whose declarations changed since a revision, or all of them."""
        ...

    async def bound_subscriptions(self) -> Mapping[str, int]:
        """How many subscriptions are bound to each exchange, by its name."""
        ...

    async def close(self) -> None:
        """Close the connection; never raises."""
        ...


Connector = Callable[[ManagementAccess], Awaitable[BrokerManagement]]
"""Connects to a broker's management; raises Unreachable."""
