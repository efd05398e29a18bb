"""Checks who may send a request to `$management`, and gives it to the module that serves it.

QUERY, lists of changes and operations on messages are tasks, which are worked through in slices. Source:
docs/reference/management.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from penstock_amqp.messages.message_codec import Message
from penstock_amqp.types.encoder import encode
from penstock_amqp.types.values import Value
from penstock_api import management, state_documents
from penstock_api.management import EntityType, Operation, StatusCode
from penstock_broker.access.connection import Connection
from penstock_broker.management import audits, changed_states, declare, delete, entity_states, queue_messages
from penstock_broker.management.acts import Caller, caller_of
from penstock_broker.management.responses import ManagementResponse, invalid_request, query_body, refusal
from penstock_broker.settings.settings import Role
from penstock_broker.state.broker import Broker
from penstock_core.identity import parse_queue_name
from penstock_core.permissions import TargetKind
from penstock_core.reason import Reason, Refuse

__all__ = ["ChangesTask", "QueryTask", "Task", "respond"]

_OWN: Final = frozenset((EntityType.CONNECTION, EntityType.LINK))
_MODELS: Final[dict[EntityType, type[management.ManagementDocument]]] = {
    EntityType.SUBSCRIPTION: state_documents.SubscriptionState,
    EntityType.EXCHANGE: state_documents.ExchangeState,
    EntityType.BROKER: state_documents.BrokerState,
    EntityType.CONNECTION: state_documents.ConnectionState,
    EntityType.LINK: state_documents.LinkState,
}


@dataclass(slots=True)
class QueryTask:
    """A QUERY in progress: each `step` encodes some rows, until one returns the response."""

    rows: Iterator[entity_states.StateDocument]
    attributes: list[str]
    revision: int
    total: int
    encoded: list[bytes]

    def step(self, count: int) -> ManagementResponse | None:
        """Encode up to `count` rows more; the response once all rows are encoded."""
        for _ in range(count):
            row = next(self.rows, None)
            if row is None:
                return self._response()
            self.encoded.append(encode([row.get(name) for name in self.attributes]))
        return None

    def _response(self) -> ManagementResponse:
        return ManagementResponse(
            status=int(StatusCode.OK),
            description="OK",
            properties={management.REVISION: self.revision, management.TOTAL: self.total},
            encoded_body=query_body(self.attributes, self.encoded),
        )


@dataclass(slots=True)
class ChangesTask:
    """A list of CREATEs or DELETEs in progress: each `step` makes some changes, until one returns the response."""

    broker: Broker
    caller: Caller
    operation: Operation
    entries: Iterator[Value]
    items: list[Value]

    def step(self, count: int) -> ManagementResponse | None:
        """Make up to `count` changes more; the response once all are made."""
        for _ in range(count):
            try:
                entry = next(self.entries)
            except StopIteration:
                return ManagementResponse(status=int(StatusCode.OK), description="OK", body=self.items)
            self.items.append(_change_item(self.broker, self.caller, self.operation, entry).as_item())
        return None


Task: TypeAlias = (
    QueryTask
    | ChangesTask
    | changed_states.ChangedStatesTask
    | queue_messages.PeekTask
    | queue_messages.MessagesTask
    | audits.AuditTask
)
"""A request that is worked through in slices: `step` returns its response, or None if there is more to do."""


def respond(broker: Broker, connection: Connection, request: Message) -> ManagementResponse | Task:
    """Serve one request, or begin to."""
    asked = request.application_properties
    try:
        operation = Operation(str(asked.get(management.OPERATION)))
        kind = EntityType(str(_kind(operation, request)))
    except ValueError as error:
        return refusal(Refuse(Reason.NOT_IMPLEMENTED, f"The request can't be done: {error}."))
    refused = _check_role(broker, connection, operation, kind)
    if refused is not None:
        return refusal(refused)
    name = asked.get(management.NAME)
    named = name if isinstance(name, str) else None
    match operation:
        case Operation.READ:
            return _read(broker, connection, kind, named)
        case Operation.QUERY:
            return _query(broker, connection, kind, request)
        case Operation.CREATE | Operation.UPDATE | Operation.DELETE:
            if broker.log.failed is not None:
                return refusal(Refuse(Reason.STORAGE_FULL, broker.storage_refusal().description))
            return _change(broker, caller_of(connection), operation, kind, named, request.body)
        case Operation.PEEK | Operation.PURGE | Operation.MOVE | Operation.REDRIVE:
            return queue_messages.handle(broker, caller_of(connection), operation, kind, named, request.body)
        case Operation.START_AUDIT | Operation.STOP_AUDIT | Operation.READ_AUDIT:
            return audits.handle(broker, operation, kind, named, request.body)


def _kind(operation: Operation, request: Message) -> Value:
    asked = request.application_properties
    if operation is Operation.QUERY:
        return asked.get(management.ENTITY_TYPE, asked.get(management.TYPE))
    if isinstance(request.body, list):
        # Each entry has its own type; who may send the request does not depend on it.
        return asked.get(management.TYPE, EntityType.SUBSCRIPTION.value)
    return asked.get(management.TYPE)


def _check_role(broker: Broker, connection: Connection, operation: Operation, kind: EntityType) -> Refuse | None:
    role = connection.listener.role
    reads = operation in (Operation.READ, Operation.QUERY, Operation.READ_AUDIT)
    if broker.permissions.may_manage(connection, TargetKind.MANAGEMENT, ""):
        return None
    if (role is Role.OBSERVER and reads) or (reads and kind in _OWN):
        return None
    if role is Role.OBSERVER and operation is Operation.PEEK:
        if broker.settings.observer_peek:
            return None
        told = "The observer may not see messages; set observerPeek: true in the broker's configuration to allow it."
        return Refuse(Reason.NOT_PERMITTED, told)
    return Refuse(
        Reason.NOT_PERMITTED,
        f"{operation.value} of {kind.value} is not allowed on listener {connection.listener.name!r}; "
        "use the management listener, or ask those who run this broker to grant 'manage' on management to this user.",
    )


# -- reading --------------------------------------------------------------------------------------------------------


def _read(broker: Broker, connection: Connection, kind: EntityType, name: str | None) -> ManagementResponse:
    for state in _states(broker, connection, kind, only=name):
        if kind is EntityType.BROKER or name in (state.get("queueName"), state.get("name"), state.get("id")):
            body: entity_states.StateDocument = {key: value for key, value in state.items() if value is not None}
            return ManagementResponse(status=int(StatusCode.OK), description="OK", body=body)
    reason = {
        EntityType.EXCHANGE: Reason.EXCHANGE_NOT_FOUND,
        EntityType.SUBSCRIPTION: Reason.SUBSCRIPTION_NOT_FOUND,
        EntityType.QUEUE: Reason.QUEUE_NOT_FOUND,
    }.get(kind, Reason.ADDRESS_NOT_FOUND)
    return refusal(Refuse(reason, f"There is no {kind.value} {name!r}."))


def _states(
    broker: Broker, connection: Connection, kind: EntityType, *, only: str | None = None, since: int = 0
) -> Iterator[entity_states.StateDocument]:
    """The states of all entities of a kind, in name order; with `only`, at least that one."""
    topology = broker.topology
    match kind:
        case EntityType.SUBSCRIPTION:
            held = entity_states.in_flight(broker.clients.connections.values())
            identity = parse_queue_name(only) if only is not None else None
            chosen = [topology.subscriptions.get(identity)] if identity is not None else topology.subscriptions.values()
            changed = [each for each in chosen if each is not None and each.revision > since]
            return (
                entity_states.subscription_state(each, held) for each in sorted(changed, key=lambda each: each.name)
            )
        case EntityType.QUEUE:
            held = entity_states.in_flight(broker.clients.connections.values())
            nodes = [each for each in topology.queues.values() if each.revision > since]
            return (entity_states.queue_state(each, held) for each in sorted(nodes, key=lambda each: each.name))
        case EntityType.EXCHANGE:
            exchanges = [each for each in topology.exchanges.values() if each.revision >= since]
            return (entity_states.exchange_state(each) for each in sorted(exchanges, key=lambda each: each.name))
        case EntityType.BROKER:
            return iter((entity_states.broker_state(broker),))
        case EntityType.CONNECTION:
            return iter([entity_states.connection_state(each) for each in _visible(broker, connection)])
        case EntityType.LINK:
            return iter([state for each in _visible(broker, connection) for state in entity_states.link_states(each)])


def _visible(broker: Broker, connection: Connection) -> list[Connection]:
    sees_all = connection.listener.role is Role.OBSERVER or broker.permissions.may_manage(
        connection, TargetKind.MANAGEMENT, ""
    )
    return list(broker.clients.connections.values()) if sees_all else [connection]


def _query(
    broker: Broker, connection: Connection, kind: EntityType, request: Message
) -> ManagementResponse | QueryTask | changed_states.ChangedStatesTask:
    asked = request.application_properties
    offset, count = _number(asked.get(management.OFFSET), 0), _number(asked.get(management.COUNT), management.MAX_COUNT)
    since = _number(asked.get(management.CHANGED_SINCE), 0)
    if offset < 0 or count < 0:
        return invalid_request("offset and count must not be negative.")
    body = request.body if isinstance(request.body, dict) else {}
    names = body.get("attributeNames")
    attributes = [str(name) for name in names] if isinstance(names, list) and names else _attributes(kind)
    token = asked.get(management.STATES_SINCE)
    if kind is EntityType.SUBSCRIPTION and isinstance(token, str):
        return changed_states.begin(broker, token, attributes, min(count, management.MAX_COUNT))
    rows = list(_pending(broker, connection, kind, since))
    page = rows[offset : offset + min(count, management.MAX_COUNT)]
    total = len(rows) if since == 0 else sum(1 for _ in _pending(broker, connection, kind, 0))
    return QueryTask((make() for make in page), attributes, broker.topology.revision, total, [])


def _pending(
    broker: Broker, connection: Connection, kind: EntityType, since: int
) -> Iterator[Callable[[], entity_states.StateDocument]]:
    """One function per entity, which makes its state document when the row is encoded."""
    topology = broker.topology
    if kind is EntityType.SUBSCRIPTION:
        held = entity_states.in_flight(broker.clients.connections.values())
        changed = [each for each in topology.subscriptions.values() if each.revision > since]
        for subscription in sorted(changed, key=lambda each: each.name):
            yield partial(entity_states.subscription_state, subscription, held)
        return
    for state in _states(broker, connection, kind, since=since):
        yield partial(_given, state)


def _given(state: entity_states.StateDocument) -> entity_states.StateDocument:
    return state


def _number(value: Value, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def _attributes(kind: EntityType) -> list[str]:
    model = _MODELS.get(kind)
    if model is None:
        return ["name", "durable", "incarnation", "revision", *_counter_names()]
    return [field.alias or name for name, field in model.model_fields.items()]


def _counter_names() -> list[str]:
    names = _attributes(EntityType.SUBSCRIPTION)
    return names[names.index("depth") :]


# -- changes --------------------------------------------------------------------------------------------------------


def _change(
    broker: Broker, caller: Caller, operation: Operation, kind: EntityType, name: str | None, body: Value
) -> ManagementResponse | ChangesTask:
    if not isinstance(body, list):
        return _change_one(broker, caller, operation, kind, name, body)
    if len(body) > management.MAX_COUNT:
        return invalid_request(f"A list holds at most {management.MAX_COUNT} entries, not {len(body)}.")
    return ChangesTask(broker, caller, operation, iter(body), [])


def _change_item(broker: Broker, caller: Caller, operation: Operation, entry: Value) -> ManagementResponse:
    if not isinstance(entry, dict):
        return invalid_request("An entry of the list is not a map.")
    name = entry.get("name")
    try:
        kind = EntityType(str(entry.get("type")))
    except ValueError as error:
        return refusal(Refuse(Reason.NOT_IMPLEMENTED, f"The entry can't be done: {error}."))
    return _change_one(broker, caller, operation, kind, name if isinstance(name, str) else None, entry.get("body"))


def _change_one(
    broker: Broker, caller: Caller, operation: Operation, kind: EntityType, name: str | None, body: Value
) -> ManagementResponse:
    if operation is Operation.DELETE:
        return delete.delete(broker, caller, kind, name, body)
    return declare.declare(broker, kind, name, body, update=operation is Operation.UPDATE)
