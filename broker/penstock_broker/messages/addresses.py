"""What an address means to a connection: a node that is there, or one that is made now where auto-creation allows it.

`penstock_core.address` reads addresses; this module adds permissions, limits and the making. Source:
docs/decisions/018-addresses.md, docs/decisions/019-auto-creation.md.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeAlias

from penstock_broker.access.connection import Connection
from penstock_broker.state.broker import Broker
from penstock_broker.topology import auto_creation
from penstock_core import address
from penstock_core.auto_creation import check_limit
from penstock_core.permissions import Action
from penstock_core.reason import Refuse

__all__ = ["NamedNode", "source_named", "target_named"]

NamedNode: TypeAlias = (
    address.ExchangeAddress | address.QueueAddress | address.SubscriptionQueue | address.ManagementAddress | Refuse
)
"""A node that is there, or why there is none."""


def source_named(broker: Broker, connection: Connection, name: str | None, capabilities: Collection[str]) -> NamedNode:
    """The node of a source that is neither null nor dynamic."""
    found = address.parse_source(name, capabilities, broker.topology, auto_create=broker.creation)
    if isinstance(found, address.CreateNode):
        refused = _create(broker, connection, Action.CONSUME, found)
        found = refused or address.parse_source(name, capabilities, broker.topology)
        assert not isinstance(found, address.CreateNode), "it has just been made"
    return found


def target_named(
    broker: Broker, connection: Connection, name: str | None, capabilities: Collection[str]
) -> NamedNode | address.AnonymousRelay:
    """The node of a target that is neither null, dynamic nor a coordinator, or of the `to` of a message."""
    found = address.parse_target(name, capabilities, broker.topology, auto_create=broker.creation)
    if isinstance(found, address.CreateNode):
        refused = _create(broker, connection, Action.PUBLISH, found)
        found = refused or address.parse_target(name, capabilities, broker.topology)
        assert not isinstance(found, address.CreateNode), "it has just been made"
    return found


def _create(broker: Broker, connection: Connection, action: Action, wanted: address.CreateNode) -> Refuse | None:
    """Make a node by its name. None, or why the connection may not, in which case nothing is made."""
    if broker.log.failed is not None:
        return broker.storage_refuse()
    topology = broker.topology
    refused = broker.permissions.check_creation(connection, action, wanted) or check_limit(
        broker.creation, wanted.kind, wanted.name, len(topology.made_by_name[wanted.kind])
    )
    if refused is None:
        auto_creation.auto_create(topology, wanted, broker.clock.now_us)
    return refused
