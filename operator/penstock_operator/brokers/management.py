"""The operations of a broker's `$management` that the operator needs, as a Protocol; `management_amqp` implements it.

Its methods take and return the operator's types. `penstock_api.management` describes the AMQP messages. Source:
docs/decisions/047-management-node.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from penstock_api.state_documents import BrokerState
from penstock_operator.plans.decisions import BrokerReply, DeclareEntity, DeleteEntity
from penstock_operator.plans.orphans import MarkedEntity

__all__ = ["BrokerManagement", "Connector", "ManagementAccess", "NotUnderstood", "Unreachable"]


class Unreachable(Exception):
    """The broker does not answer: no connection, a broken one, or no reply in time. The text says which."""


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

    async def marked_entities(self) -> Sequence[MarkedEntity]:
        """All entities that have an owner mark."""
        ...

    async def close(self) -> None:
        """Close the connection; never raises."""
        ...


Connector = Callable[[ManagementAccess], Awaitable[BrokerManagement]]
"""Connects to a broker's management; raises Unreachable."""
