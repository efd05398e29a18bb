"""The rows of a page of a QUERY: which entities are on it, and what makes the row of each.

A page of exchanges, subscriptions or queues costs by its rows, and one of those that changed by what changed: nothing
is put in order for it (`topology.entity_list`), only deliveries of its own queues are looked at, and of a subscription
what its declaration says is encoded once (`encoded_states`). Source: docs/reference/management.md.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final, TypeAlias, TypeVar

from penstock_api.management import EntityType
from penstock_broker.access.connection import Connection, Phase
from penstock_broker.management import encoded_states, entity_states
from penstock_broker.management.entity_states import StateDocument
from penstock_broker.management.in_flight import InFlight, InFlightSearch, add_waiting, connections_of
from penstock_broker.queue.queue import Queue
from penstock_broker.settings.settings import Role
from penstock_broker.state.broker import Broker
from penstock_broker.topology.entity_list import EntityList, Revised
from penstock_broker.topology.records import Exchange, PointToPointQueue, Subscription
from penstock_core.permissions import TargetKind

__all__ = [
    "NAMED_PER_STEP",
    "WAITING_PER_STEP",
    "ListedRow",
    "Query",
    "Row",
    "Rows",
    "Steps",
    "alone",
    "connection_state",
    "held_by",
    "removed_after",
    "rows",
    "visible",
]

NAMED_PER_STEP: Final = 500
"""Connections, or names of entities, that are looked at in one step: less than a millisecond."""

WAITING_PER_STEP: Final = 200
"""Queues that are asked in one step for their oldest message: less than a millisecond."""

T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]
"""Work that is done in slices: a step ends with each `yield`, and the last one returns the result."""
Row: TypeAlias = Callable[[InFlight], StateDocument | None]
"""Makes the state document of one entity; None if it has ended meanwhile."""
ListedRow: TypeAlias = Callable[[InFlight], StateDocument | bytes | None]
"""The same, or the row as it is sent."""
R = TypeVar("R", bound=Revised)


@dataclass(frozen=True, slots=True)
class Query:
    """A QUERY."""

    broker: Broker
    connection: Connection
    kind: EntityType
    attributes: list[str]
    since: int
    """The revision after which entities have to have changed; 0: all."""
    page: slice
    after: str
    """The page is one of the entities whose names come behind this one; empty: of all."""
    only_declared: bool
    """No figures are asked for."""


Rows: TypeAlias = tuple[list[ListedRow], int, list[Queue]]
"""Those of a page, how many entities there are in all, and the queues of which the rows tell figures."""


def rows(query: Query) -> Steps[Rows]:
    """Find what is on the page."""
    broker, topology = query.broker, query.broker.topology
    match query.kind:
        case EntityType.SUBSCRIPTION:
            subscriptions = yield from _listed(topology.subscription_list, query)
            queues = [each.queue for each in subscriptions]
            return list(map(_subscription_row(query), subscriptions)), len(topology.subscription_list), queues
        case EntityType.QUEUE:
            nodes = yield from _listed(topology.queue_list, query)
            row = _declared_queue_row if query.only_declared else _queue_row
            return list(map(row, nodes)), len(topology.queue_list), [each.queue for each in nodes]
        case EntityType.EXCHANGE:
            exchanges = yield from _listed(topology.exchange_list, query)
            return list(map(_exchange_row, exchanges)), len(topology.exchange_list), []
        case EntityType.BROKER:
            made: list[ListedRow] = [alone(partial(entity_states.broker_state, broker))]
        case EntityType.CONNECTION:
            made = yield from _connection_rows(visible(broker, query.connection))
        case EntityType.LINK:
            made = yield from _link_rows(visible(broker, query.connection))
    return made[query.page], len(made), []


def _listed(entities: EntityList[R], query: Query) -> Steps[list[R]]:
    """The entities of a page. It is short only at the end of the list, because readers take a short one for the last:
    what ends while the answer is made stays on it.
    """
    if not query.since:
        return entities.page(query.page.start, query.page.stop, query.after)
    changed = entities.changed_after(query.since, query.after)
    if changed is None:
        changed = yield from _changed_of_many(entities, query)
    return changed[query.page]


def _changed_of_many(entities: EntityList[R], query: Query) -> Steps[list[R]]:
    """The entities that changed, which are a good part of all: these are in order already."""
    names, changed = entities.names(query.after), list[R]()
    for begin in range(0, len(names), NAMED_PER_STEP):
        found = map(entities.get, names[begin : begin + NAMED_PER_STEP])
        changed += [each for each in found if each is not None and each.revision > query.since]
        yield
    return changed


def _subscription_row(query: Query) -> Callable[[Subscription], ListedRow]:
    """What makes the row of a subscription: of what is kept encoded, as far as that is asked for."""
    if query.attributes == encoded_states.ATTRIBUTES:
        return lambda subscription: partial(encoded_states.encoded_state, subscription)
    if query.only_declared:
        places = encoded_states.places_of(query.attributes)
        return lambda subscription: lambda _: encoded_states.encoded_declaration(subscription, places)
    return lambda subscription: partial(entity_states.subscription_state, subscription)


def _queue_row(node: PointToPointQueue) -> Row:
    return partial(entity_states.queue_state, node)


def _declared_queue_row(node: PointToPointQueue) -> Row:
    return alone(partial(entity_states.declared_queue, node))


def _exchange_row(exchange: Exchange) -> Row:
    return alone(partial(entity_states.exchange_state, exchange))


def connection_state(connection: Connection) -> StateDocument | None:
    """A `penstock.connection`; None if it has ended."""
    return None if connection.phase is Phase.GONE else entity_states.connection_state(connection)


def _connection_rows(connections: list[Connection]) -> Steps[list[ListedRow]]:
    left = iter(connections)
    rows: list[ListedRow] = []
    while part := [alone(partial(connection_state, each)) for each in islice(left, NAMED_PER_STEP)]:
        rows += part
        yield
    return rows


def _link_rows(connections: list[Connection]) -> Steps[list[ListedRow]]:
    rows: list[ListedRow] = []
    for count, each in enumerate(connections, 1):
        rows += [
            alone(partial(entity_states.link_state, each, number, link))
            for number, link in enumerate(each.endpoint.all_links())
            if entity_states.is_told(link)
        ]
        if count % NAMED_PER_STEP == 0:
            yield
    return rows


def held_by(broker: Broker, queues: list[Queue]) -> Steps[InFlight]:
    """How old what the queues hold is: their oldest messages now, and the oldest of their deliveries in flight."""
    held: InFlight = {}
    if not queues:
        return held
    for begin in range(0, len(queues), WAITING_PER_STEP):
        if begin:
            yield
        add_waiting(held, queues[begin : begin + WAITING_PER_STEP], broker.clock.now_us)
    search = InFlightSearch(connections_of(broker, [each for each in queues if each.in_flight]), held)
    while not search.step():
        yield
    return held


def removed_after(broker: Broker, kind: EntityType, since: int) -> list[str] | None:
    """The names of the entities that were removed after a revision; None if everything has to be told: because no
    revision is asked for, because it is of another life of the broker, or too long ago.
    """
    topology = broker.topology
    if since < 1 or since > topology.revision:
        return None
    match kind:
        case EntityType.SUBSCRIPTION:
            return topology.subscription_list.removed_after(since)
        case EntityType.QUEUE:
            return topology.queue_list.removed_after(since)
        case EntityType.EXCHANGE:
            return topology.exchange_list.removed_after(since)
        case EntityType.BROKER | EntityType.CONNECTION | EntityType.LINK:
            return None


def alone(make: Callable[[], StateDocument | None]) -> Row:
    """A row that says nothing of deliveries in flight."""
    return lambda _: make()


def visible(broker: Broker, connection: Connection) -> list[Connection]:
    """The connections that this one may see."""
    sees_all = connection.listener.role is Role.OBSERVER or broker.permissions.may_manage(
        connection, TargetKind.MANAGEMENT, ""
    )
    return list(broker.clients.connections.values()) if sees_all else [connection]
