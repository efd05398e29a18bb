"""What an address means to a connection: the node that exists, or one that is made now.

A node is made if its user may make it and the settings allow that names are made. `penstock_core.address` reads
addresses; this module adds permissions, limits and the creation. Source: docs/decisions/018-addresses.md and
docs/decisions/019-auto-creation.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeAlias, TypeVar

from penstock_broker.access.connection import Connection
from penstock_broker.state.broker import Broker
from penstock_broker.topology import auto_creation
from penstock_core import address
from penstock_core.auto_creation import NOTHING, AutoCreation, check_limit
from penstock_core.permissions import Action
from penstock_core.reason import Refuse

__all__ = ["Named", "source_named", "target_named"]

N = TypeVar("N")

Named: TypeAlias = (
    address.ExchangeAddress | address.QueueAddress | address.SubscriptionQueue | address.ManagementAddress | Refuse
)


def source_named(broker: Broker, connection: Connection, name: str | None, capabilities: Collection[str]) -> Named:
    """The node of a source that is neither null nor dynamic."""
    return _named(
        broker,
        connection,
        Action.CONSUME,
        lambda may_make: address.parse_source(name, capabilities, broker.topology, auto_create=may_make),
    )


def target_named(
    broker: Broker, connection: Connection, name: str | None, capabilities: Collection[str]
) -> Named | address.AnonymousRelay:
    """The node of a target that is neither null, dynamic nor a coordinator."""
    return _named(
        broker,
        connection,
        Action.PUBLISH,
        lambda may_make: address.parse_target(name, capabilities, broker.topology, auto_create=may_make),
    )


def _named(
    broker: Broker,
    connection: Connection,
    action: Action,
    parse: Callable[[AutoCreation], N | address.CreateNode],
) -> N | Refuse:
    """What `parse` finds; where that has to be made first, what it finds then."""
    found = parse(broker.creation)
    if not isinstance(found, address.CreateNode):
        return found
    again = _make(broker, connection, action, found) or parse(NOTHING)
    assert not isinstance(again, address.CreateNode), "what was made is there"
    return again


def _make(broker: Broker, connection: Connection, action: Action, wanted: address.CreateNode) -> Refuse | None:
    topology = broker.topology
    if broker.log.failed is not None:
        return broker.storage_refuse()
    refused = broker.permissions.check_creation(connection, action, wanted) or check_limit(
        broker.creation, wanted.kind, wanted.name, len(topology.made_by_name[wanted.kind])
    )
    if refused is None:
        auto_creation.auto_create(topology, wanted, broker.clock.now_us)
    return refused
