"""READ and QUERY: the states of entities, found and encoded in slices.

Each slice of a turn looks at a bounded number of entities or deliveries, so that an answer about ten thousand
subscriptions, or about one that has a million deliveries in flight, holds nobody up. Rows are in name order (those of
connections and links in the order in which they came), and each says how its entity stands when the row is made.
Source: docs/reference/management.md.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import Final, TypeAlias, TypeVar, cast

from penstock_amqp.messages.message_codec import Message
from penstock_amqp.types.encoder import encode
from penstock_amqp.types.values import Value
from penstock_api import management, state_documents
from penstock_api.management import EntityType, StatusCode
from penstock_broker.access.connection import Connection, Phase
from penstock_broker.management import changed_states, declared_as, entity_states
from penstock_broker.management.entity_states import StateDocument
from penstock_broker.management.in_flight import InFlight, InFlightSearch, connections_of
from penstock_broker.management.responses import ManagementResponse, invalid_request, query_body, refusal
from penstock_broker.queue.queue import Queue
from penstock_broker.settings.settings import Role
from penstock_broker.state.broker import Broker
from penstock_broker.topology.records import PointToPointQueue, Subscription
from penstock_core.permissions import TargetKind
from penstock_core.reason import Reason, Refuse

__all__ = ["DECLARED_ROWS_PER_STEP", "NAMED_PER_STEP", "ROWS_PER_STEP", "QueryTask", "query", "read"]

NAMED_PER_STEP: Final = 500
"""Entities that are put in order in one step: about a millisecond."""

ROWS_PER_STEP: Final = 10
"""Rows that are made in one step: about a millisecond."""

DECLARED_ROWS_PER_STEP: Final = 50
"""The same for rows that say only what is declared."""

_MODELS: Final[dict[EntityType, type[management.ManagementDocument]]] = {
    EntityType.SUBSCRIPTION: state_documents.SubscriptionState,
    EntityType.EXCHANGE: state_documents.ExchangeState,
    EntityType.BROKER: state_documents.BrokerState,
    EntityType.CONNECTION: state_documents.ConnectionState,
    EntityType.LINK: state_documents.LinkState,
}
_DECLARED: Final = {
    EntityType.SUBSCRIPTION: entity_states.DECLARED,
    EntityType.QUEUE: entity_states.DECLARED_OF_QUEUE,
}
"""Keys that can be told without a look at messages and deliveries."""
_NOT_FOUND: Final = {
    EntityType.EXCHANGE: Reason.EXCHANGE_NOT_FOUND,
    EntityType.SUBSCRIPTION: Reason.SUBSCRIPTION_NOT_FOUND,
    EntityType.QUEUE: Reason.QUEUE_NOT_FOUND,
}

T = TypeVar("T")
Steps: TypeAlias = Generator[None, None, T]
"""Work that is done in slices: a step ends with each `yield`, and the last one returns the result."""
Row: TypeAlias = Callable[[InFlight], StateDocument | None]
"""Makes the state document of one entity; None if it has ended meanwhile."""


@dataclass(slots=True)
class QueryTask:
    """A READ or QUERY in progress: each `step` does a slice of it, until one returns the response."""

    steps: Steps[ManagementResponse]

    def step(self, _count: int) -> ManagementResponse | None:
        """Do the next slice."""
        try:
            next(self.steps)
        except StopIteration as done:
            return cast(ManagementResponse, done.value)
        return None


# -- READ -----------------------------------------------------------------------------------------------------------


def read(broker: Broker, connection: Connection, kind: EntityType, name: str | None) -> QueryTask:
    """The state of one entity. Connections and links are those that the connection may see."""
    return QueryTask(_read(broker, connection, kind, name))


def _read(broker: Broker, connection: Connection, kind: EntityType, name: str | None) -> Steps[ManagementResponse]:
    row = yield from _named(broker, connection, kind, name)
    state: StateDocument | None = None
    if row is not None:
        queue = _queue_of(broker, kind, name or "")
        held: InFlight = {}
        if queue is not None and queue.in_flight:
            held = yield from _search(connections_of(broker, (queue,)))
        state = row(held)
    if state is None:
        reason = _NOT_FOUND.get(kind, Reason.ADDRESS_NOT_FOUND)
        return refusal(Refuse(reason, f"There is no {kind.value} {name!r}."))
    body: StateDocument = {key: value for key, value in state.items() if value is not None}
    declaration = _declaration(broker, kind, name or "")
    if declaration is not None:
        body[management.DECLARATION] = cast(Value, declaration)
    return ManagementResponse(status=int(StatusCode.OK), description="OK", body=body)


def _declaration(broker: Broker, kind: EntityType, name: str) -> StateDocument | None:
    if kind is EntityType.SUBSCRIPTION:
        subscription = broker.topology.subscription_of_queue(name)
        if subscription is not None:
            return declared_as.subscription_declaration(subscription, broker.settings.delivery)
    node = broker.topology.queues.get(name) if kind is EntityType.QUEUE else None
    if node is not None and node.temporary is None:
        return declared_as.queue_declaration(node, broker.settings.delivery)
    exchange = broker.topology.exchanges.get(name) if kind is EntityType.EXCHANGE else None
    if exchange is None or exchange.temporary is not None:
        return None
    return declared_as.exchange_declaration(exchange)


def _named(broker: Broker, connection: Connection, kind: EntityType, name: str | None) -> Steps[Row | None]:
    topology = broker.topology
    match kind:
        case EntityType.SUBSCRIPTION:
            subscription = topology.subscription_of_queue(name or "")
            return partial(entity_states.subscription_state, subscription) if subscription is not None else None
        case EntityType.QUEUE:
            node = topology.queues.get(name or "")
            return partial(entity_states.queue_state, node) if node is not None else None
        case EntityType.EXCHANGE:
            exchange = topology.exchanges.get(name or "")
            return _alone(partial(entity_states.exchange_state, exchange)) if exchange is not None else None
        case EntityType.BROKER:
            return _alone(partial(entity_states.broker_state, broker))
        case EntityType.CONNECTION:
            found = yield from _connection_named(_visible(broker, connection), name)
            return _alone(partial(_connection_state, found)) if found is not None else None
        case EntityType.LINK:
            return (yield from _link_named(_visible(broker, connection), name))


def _connection_named(connections: list[Connection], name: str | None) -> Steps[Connection | None]:
    for count, each in enumerate(connections, 1):
        if name in (None, str(each.number)):
            return each
        if count % NAMED_PER_STEP == 0:
            yield
    return None


def _link_named(connections: list[Connection], name: str | None) -> Steps[Row | None]:
    for count, each in enumerate(connections, 1):
        for number, link in enumerate(each.endpoint.all_links()):
            known = (None, link.name, entity_states.link_id(each, number), entity_states.queue_name_of(link))
            if name in known and entity_states.is_told(link):
                return _alone(partial(entity_states.link_state, each, number, link))
        if count % NAMED_PER_STEP == 0:
            yield
    return None


def _queue_of(broker: Broker, kind: EntityType, name: str) -> Queue | None:
    if kind is EntityType.QUEUE:
        node = broker.topology.queues.get(name)
        return node.queue if node is not None else None
    subscription = broker.topology.subscription_of_queue(name) if kind is EntityType.SUBSCRIPTION else None
    return subscription.queue if subscription is not None else None


def _alone(make: Callable[[], StateDocument | None]) -> Row:
    """A row that says nothing of deliveries in flight."""
    return lambda _: make()


# -- QUERY ----------------------------------------------------------------------------------------------------------


def query(
    broker: Broker, connection: Connection, kind: EntityType, request: Message
) -> ManagementResponse | QueryTask | changed_states.ChangedStatesTask:
    """A page of the states of all entities of one kind, or of those that changed since a revision."""
    asked = request.application_properties
    offset, count = _number(asked.get(management.OFFSET), 0), _number(asked.get(management.COUNT), management.MAX_COUNT)
    since = _number(asked.get(management.CHANGED_SINCE), -1)
    if offset < 0 or count < 0:
        return invalid_request("offset and count must not be negative.")
    body = request.body if isinstance(request.body, dict) else {}
    names = body.get("attributeNames")
    attributes = [str(name) for name in names] if isinstance(names, list) and names else _attributes(kind)
    token = asked.get(management.STATES_SINCE)
    most = min(count, management.MAX_COUNT)
    if kind is EntityType.SUBSCRIPTION and isinstance(token, str):
        return changed_states.begin(broker, token, attributes, most)
    return QueryTask(_query(broker, connection, kind, attributes, since, slice(offset, offset + most)))


def _query(
    broker: Broker, connection: Connection, kind: EntityType, attributes: list[str], since: int, page: slice
) -> Steps[ManagementResponse]:
    revision = broker.topology.revision  # a change that comes meanwhile is told to who asks for what changed since
    removed = _removed(broker, kind, since)
    is_whole = removed is None
    only_declared = _DECLARED.get(kind, frozenset[str]()).issuperset(attributes)
    rows = yield from _rows(broker, connection, kind, 0 if is_whole else since, only_declared=only_declared)
    total = len(rows) if is_whole else _total(broker, connection, kind, len(rows))
    held: InFlight = {}
    if kind in (EntityType.SUBSCRIPTION, EntityType.QUEUE) and not only_declared:
        held = yield from _search(broker.clients.connections.values())
    encoded: list[bytes] = []
    per_step = DECLARED_ROWS_PER_STEP if only_declared else ROWS_PER_STEP
    for count, row in enumerate(rows[page], 1):
        state = row(held)
        if state is not None:
            encoded.append(encode([state.get(name) for name in attributes]))
        if count % per_step == 0:
            yield
    told: dict[str, Value] = {} if since < 0 else {management.IS_WHOLE: is_whole}
    gone: dict[str, Value] = {} if since < 0 else {management.REMOVED: list[Value](removed or ())}
    return ManagementResponse(
        status=int(StatusCode.OK),
        description="OK",
        properties={management.REVISION: revision, management.TOTAL: total, **told},
        encoded_body=query_body(attributes, encoded, gone),
    )


def _removed(broker: Broker, kind: EntityType, since: int) -> list[str] | None:
    """The names of the entities that were removed after a revision; None if everything has to be told: because no
    revision is asked for, because it is of another life of the broker, or too long ago.
    """
    topology = broker.topology
    if since < 1 or since > topology.revision:
        return None
    match kind:
        case EntityType.SUBSCRIPTION:
            return topology.removed_subscriptions.since(since)
        case EntityType.QUEUE:
            return topology.removed_queues.since(since)
        case EntityType.EXCHANGE:
            return topology.removed_exchanges.since(since)
        case EntityType.BROKER | EntityType.CONNECTION | EntityType.LINK:
            return None


def _total(broker: Broker, connection: Connection, kind: EntityType, rows: int) -> int:
    """How many entities of a kind there are, changed or not; only some kinds have revisions."""
    topology = broker.topology
    match kind:
        case EntityType.SUBSCRIPTION:
            return len(topology.subscriptions)
        case EntityType.QUEUE:
            return len(topology.queues)
        case EntityType.EXCHANGE:
            return len(topology.exchanges)
        case EntityType.BROKER | EntityType.CONNECTION | EntityType.LINK:
            return rows


def _rows(
    broker: Broker, connection: Connection, kind: EntityType, since: int, *, only_declared: bool
) -> Steps[list[Row]]:
    topology = broker.topology
    match kind:
        case EntityType.SUBSCRIPTION:
            make = _declared_row if only_declared else _state_row
            subscriptions = (each for each in list(topology.subscriptions.values()) if each.revision > since)
            return (yield from _in_order((each.name, make(each)) for each in subscriptions))
        case EntityType.QUEUE:
            queues = (each for each in list(topology.queues.values()) if each.revision > since)
            row = _declared_queue_row if only_declared else _queue_row
            return (yield from _in_order((each.name, row(each)) for each in queues))
        case EntityType.EXCHANGE:
            exchanges = (each for each in list(topology.exchanges.values()) if each.revision >= since)
            return (
                yield from _in_order(
                    (each.name, _alone(partial(entity_states.exchange_state, each))) for each in exchanges
                )
            )
        case EntityType.BROKER:
            return [_alone(partial(entity_states.broker_state, broker))]
        case EntityType.CONNECTION:
            return (yield from _connection_rows(_visible(broker, connection)))
        case EntityType.LINK:
            return (yield from _link_rows(_visible(broker, connection)))


def _state_row(subscription: Subscription) -> Row:
    return partial(entity_states.subscription_state, subscription)


def _declared_row(subscription: Subscription) -> Row:
    return _alone(partial(entity_states.declared, subscription))


def _queue_row(node: PointToPointQueue) -> Row:
    return partial(entity_states.queue_state, node)


def _declared_queue_row(node: PointToPointQueue) -> Row:
    return _alone(partial(entity_states.declared_queue, node))


def _connection_state(connection: Connection) -> StateDocument | None:
    return None if connection.phase is Phase.GONE else entity_states.connection_state(connection)


def _connection_rows(connections: list[Connection]) -> Steps[list[Row]]:
    left = iter(connections)
    rows: list[Row] = []
    while part := [_alone(partial(_connection_state, each)) for each in islice(left, NAMED_PER_STEP)]:
        rows += part
        yield
    return rows


def _link_rows(connections: list[Connection]) -> Steps[list[Row]]:
    rows: list[Row] = []
    for count, each in enumerate(connections, 1):
        rows += [
            _alone(partial(entity_states.link_state, each, number, link))
            for number, link in enumerate(each.endpoint.all_links())
            if entity_states.is_told(link)
        ]
        if count % NAMED_PER_STEP == 0:
            yield
    return rows


def _in_order(named: Iterable[tuple[str, Row]]) -> Steps[list[Row]]:
    """Sort in slices: short runs first, which are merged then."""
    left = iter(named)
    runs: list[list[tuple[str, Row]]] = []
    while run := list(islice(left, NAMED_PER_STEP)):
        runs.append(sorted(run, key=itemgetter(0)))
        yield
    merged: Iterator[tuple[str, Row]] = merge(*runs, key=itemgetter(0))
    rows: list[Row] = []
    while part := [row for _, row in islice(merged, NAMED_PER_STEP)]:
        rows += part
        yield
    return rows


# -- both -----------------------------------------------------------------------------------------------------------


def _search(connections: Iterable[Connection]) -> Steps[InFlight]:
    search = InFlightSearch(connections)
    while not search.step():
        yield
    return search.found


def _visible(broker: Broker, connection: Connection) -> list[Connection]:
    sees_all = connection.listener.role is Role.OBSERVER or broker.permissions.may_manage(
        connection, TargetKind.MANAGEMENT, ""
    )
    return list(broker.clients.connections.values()) if sees_all else [connection]


def _number(value: Value, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def _attributes(kind: EntityType) -> list[str]:
    model = _MODELS.get(kind)
    if model is None:
        return ["name", "durable", "owner", "incarnation", "revision", *_counter_names()]
    return [field.alias or name for name, field in model.model_fields.items()]


def _counter_names() -> list[str]:
    names = _attributes(EntityType.SUBSCRIPTION)
    return names[names.index("depth") :]
