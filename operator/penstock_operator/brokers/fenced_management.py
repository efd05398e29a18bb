"""`BrokerManagement` for an operator that may change brokers only while it leads.

Source: docs/decisions/106-one-operator-leads.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from penstock_api.state_documents import BrokerState
from penstock_operator.brokers.management import (
    BrokerManagement,
    Connector,
    EntityChanges,
    ManagementAccess,
    Unreachable,
)
from penstock_operator.plans.decisions import BrokerReply, DeclareEntity, DeleteEntity

__all__ = ["FencedManagement", "fenced"]


def fenced(connect: Connector, leads: Callable[[], bool]) -> Connector:
    """A connector whose connections declare and delete only while `leads` says so."""

    async def connected(access: ManagementAccess) -> BrokerManagement:
        return FencedManagement(await connect(replace(access, before_change=partial(_check, leads))), leads)

    return connected


@dataclass(frozen=True, slots=True)
class FencedManagement:
    """Reads always; a change raises Unreachable while the operator does not lead."""

    management: BrokerManagement
    leads: Callable[[], bool]

    async def state(self) -> BrokerState:
        """What the broker reports about itself."""
        return await self.management.state()

    async def declare(self, entries: Sequence[DeclareEntity]) -> Sequence[BrokerReply]:
        """Create or update each entity."""
        _check(self.leads)
        return await self.management.declare(entries)

    async def delete(self, entries: Sequence[DeleteEntity]) -> Sequence[BrokerReply]:
        """Delete each entity."""
        _check(self.leads)
        return await self.management.delete(entries)

    async def changes(self, since: int | None) -> EntityChanges:
        """The entities whose declarations changed since a revision."""
        return await self.management.changes(since)

    async def bound_subscriptions(self) -> Mapping[str, int]:
        """How many subscriptions are bound to each exchange."""
        return await self.management.bound_subscriptions()

    async def close(self) -> None:
        """Close the connection."""
        await self.management.close()


def _check(leads: Callable[[], bool]) -> None:
    if not leads():
        raise Unreachable("this operator does not lead any more, so it changes nothing on brokers")
