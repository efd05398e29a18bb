"""READ and QUERY: the states of entities, found and encoded in slices.

Each slice of a turn looks at a bounded number of entities or deliveries, so that an answer about ten thousand
subscriptions, or about one that has a million deliveries in flight, holds nobody up. Rows are in name order (those of
connections and links in the order in which they came), and each says how its entity stands when the row is made.
Which rows are on a page says `pages`. Source: docs/reference/management.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final, cast

from penstock_amqp.messages.message_codec import Message
from penstock_amqp.types.encoder import encode
from penstock_amqp.types.values import Value
from penstock_api import management, state_documents
from penstock_api.management import EntityType, StatusCode
from penstock_broker.access.connection import Connection
from penstock_broker.management import changed_states, declared_as, entity_states, pages
from penstock_broker.management.entity_states import StateDocument
from penstock_broker.management.in_flight import InFlight, InFlightSearch, connections_of
from penstock_broker.management.pages import Row, Steps
from penstock_broker.management.replies import ManagementReply, invalid_request, query_body, refusal
from penstock_broker.queue.queue import Queue
from penstock_broker.state.broker import Broker
from penstock_broker.state.rollbacks import Rollback
from penstock_core.reason import Reason, Refuse

__all__ = ["DECLARED_ROWS_PER_STEP", "ROWS_PER_STEP", "QueryTask", "query", "read"]

ROWS_PER_STEP: Final = 10
"""Rows that are made in one step: about a millisecond."""

DECLARED_ROWS_PER_STEP: Final = 20
"""The same for rows that say only what is declared, if that has to be encoded first."""

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


@dataclass(slots=True)
class QueryTask:
    """A READ or QUERY in progress: each `step` does a slice of it, until one returns the reply."""

    steps: Steps[ManagementReply]

    def step(self, _count: int) -> ManagementReply | None:
        """Do the next slice."""
        try:
            next(self.steps)
        except StopIteration as done:
            return cast(ManagementReply, done.value)
        return None


# -- READ -----------------------------------------------------------------------------------------------------------


def read(broker: Broker, connection: Connection, kind: EntityType, name: str | None) -> QueryTask:
    """The state of one entity. Connections and links are those that the connection may see."""
    return QueryTask(_read(broker, connection, kind, name))


def _read(broker: Broker, connection: Connection, kind: EntityType, name: str | None) -> Steps[ManagementReply]:
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
    return ManagementReply(status=int(StatusCode.OK), description="OK", body=body)


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
            return pages.alone(partial(entity_states.exchange_state, exchange)) if exchange is not None else None
        case EntityType.BROKER:
            return pages.alone(partial(entity_states.broker_state, broker))
        case EntityType.CONNECTION:
            found = yield from _connection_named(pages.visible(broker, connection), name)
            return pages.alone(partial(pages.connection_state, found)) if found is not None else None
        case EntityType.LINK:
            return (yield from _link_named(pages.visible(broker, connection), name))


def _connection_named(connections: list[Connection], name: str | None) -> Steps[Connection | None]:
    for count, each in enumerate(connections, 1):
        if name in (None, str(each.number)):
            return each
        if count % pages.NAMED_PER_STEP == 0:
            yield
    return None


def _link_named(connections: list[Connection], name: str | None) -> Steps[Row | None]:
    for count, each in enumerate(connections, 1):
        for number, link in enumerate(each.endpoint.all_links()):
            known = (None, link.name, entity_states.link_id(each, number), entity_states.queue_name_of(link))
            if name in known and entity_states.is_told(link):
                return pages.alone(partial(entity_states.link_state, each, number, link))
        if count % pages.NAMED_PER_STEP == 0:
            yield
    return None


def _queue_of(broker: Broker, kind: EntityType, name: str) -> Queue | None:
    if kind is EntityType.QUEUE:
        node = broker.topology.queues.get(name)
        return node.queue if node is not None else None
    subscription = broker.topology.subscription_of_queue(name) if kind is EntityType.SUBSCRIPTION else None
    return subscription.queue if subscription is not None else None


# -- QUERY ----------------------------------------------------------------------------------------------------------


def query(
    broker: Broker, connection: Connection, kind: EntityType, request: Message
) -> ManagementReply | QueryTask | changed_states.ChangedStatesTask:
    """A page of the states of all entities of one kind, or of those that changed since a revision."""
    asked = request.application_properties
    offset, count = _number(asked.get(management.OFFSET), 0), _number(asked.get(management.COUNT), management.MAX_COUNT)
    since = _number(asked.get(management.CHANGED_SINCE), -1)
    if offset < 0 or count < 0:
        return invalid_request("offset and count must not be negative.")
    after = asked.get(management.AFTER, "")
    if not isinstance(after, str):
        return invalid_request("after must be a string: the name in the last row of the page before.")
    body = request.body if isinstance(request.body, dict) else {}
    names = body.get("attributeNames")
    attributes = [str(name) for name in names] if isinstance(names, list) and names else _attributes(kind)
    token = asked.get(management.STATES_SINCE)
    most = min(count, management.MAX_COUNT)
    if kind is EntityType.SUBSCRIPTION and isinstance(token, str):
        return changed_states.begin(broker, token, attributes, most)
    page = slice(0, most) if after and kind in management.LISTED_BY else slice(offset, offset + most)
    return QueryTask(_query(broker, connection, kind, attributes, since, page, after))


def _query(
    broker: Broker,
    connection: Connection,
    kind: EntityType,
    attributes: list[str],
    since: int,
    page: slice,
    after: str,
) -> Steps[ManagementReply]:
    revision = broker.topology.revision  # a change that comes meanwhile is told to who asks for what changed since
    removed = pages.removed_after(broker, kind, since)
    is_whole = removed is None
    only_declared = _DECLARED.get(kind, frozenset[str]()).issuperset(attributes)
    wanted = pages.Query(broker, connection, kind, attributes, 0 if is_whole else since, page, after, only_declared)
    rows, total, queues = yield from pages.rows(wanted)
    held: InFlight = {}
    if not only_declared:
        held = yield from pages.held_by(broker, queues)
    encoded: list[bytes] = []
    per_step = DECLARED_ROWS_PER_STEP if only_declared else ROWS_PER_STEP
    for count, row in enumerate(rows, 1):
        state = row(held)
        if isinstance(state, bytes):
            encoded.append(state)
        elif state is not None:
            encoded.append(encode([state.get(name) for name in attributes]))
        if count % per_step == 0:
            yield
    told: dict[str, Value] = {} if since < 0 else {management.IS_WHOLE: is_whole}
    gone: dict[str, Value] = {} if since < 0 else {management.REMOVED: list[Value](removed or ())}
    return ManagementReply(
        status=int(StatusCode.OK),
        description="OK",
        properties={management.REVISION: revision, management.TOTAL: total, **told},
        encoded_body=query_body(attributes, encoded, gone),
    )


# -- both -----------------------------------------------------------------------------------------------------------


def _search(connections: Iterable[Connection | Rollback]) -> Steps[InFlight]:
    search = InFlightSearch(connections)
    while not search.step():
        yield
    return search.found


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
