"""What the operator wants of a broker's `$management`, as a Protocol; `management_amqp` is it over AMQP.

Messages are those of penstock_api.management; here they are already answers, states and marks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from penstock_api.management import BrokerState
from penstock_operator.plans.decisions import BrokerReply, DeclareEntity, DeleteEntity
from penstock_operator.plans.orphans import MarkedEntity

__all__ = ["BrokerManagement", "Connector", "ManagementTarget", "NotUnderstood", "Unreachable"]


class Unreachable(Exception):
    """The broker does not answer: no connection, a broken one, or no answer in time. The text is a sentence."""


class NotUnderstood(Unreachable):
    """It answers, but what it says of itself can't be read: it is of a later release than this operator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagementTarget:
    """Where a broker's management is, and how to prove who we are."""

    host: str
    """Address to connect to."""
    port: int
    server_name: str
    """Name that the certificate must have."""
    ca: bytes = field(repr=False)
    """PEM."""
    user: str
    password: str = field(repr=False)


class BrokerManagement(Protocol):
    """One connection to a broker's management. Every method raises Unreachable when the broker does not answer."""

    async def state(self) -> BrokerState:
        """The broker itself."""
        ...

    async def declare(self, entries: Sequence[DeclareEntity]) -> Sequence[BrokerReply]:
        """CREATE of each, in order; one refusal changes nothing of the others."""
        ...

    async def delete(self, entries: Sequence[DeleteEntity]) -> Sequence[BrokerReply]:
        """DELETE of each, in order."""
        ...

    async def marked_entities(self) -> Sequence[MarkedEntity]:
        """Everything that bears an owner mark."""
        ...

    async def close(self) -> None:
        """Close the connection; never raises."""
        ...


Connector = Callable[[ManagementTarget], Awaitable[BrokerManagement]]
"""Connects; raises Unreachable."""
