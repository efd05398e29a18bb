"""Checks who may send a request to `$management`, and gives it to the module that serves it.

QUERY, lists of changes and operations on messages are tasks, which are worked through in slices. Source:
docs/reference/management.md.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final, TypeAlias

from penstock_amqp.errors import DecodeError
from penstock_amqp.messages.message_codec import Message
from penstock_amqp.types.decoder import EncodedList
from penstock_amqp.types.encoder import encode
from penstock_amqp.types.values import Value
from penstock_api import management
from penstock_api.management import EntityType, Operation, StatusCode
from penstock_broker.access.connection import Connection
from penstock_broker.management import audits, changed_states, declare, delete, queries, queue_messages
from penstock_broker.management.logged_operations import Caller, caller_of
from penstock_broker.management.replies import ManagementReply, encoded_list, invalid_request, refusal
from penstock_broker.settings.settings import Role
from penstock_broker.state.broker import Broker
from penstock_core.permissions import TargetKind
from penstock_core.reason import Reason, Refuse

__all__ = ["CHANGES_PER_STEP", "ChangesTask", "Task", "answer"]

CHANGES_PER_STEP: Final = 4
"""Entries of a list of CREATEs or DELETEs that are done in one turn: about a millisecond."""

DECODED_PER_STEP: Final = 50
"""Entries of a long list that are decoded in one turn: about a millisecond."""

_OWN: Final = frozenset((EntityType.CONNECTION, EntityType.LINK))


@dataclass(slots=True)
class ChangesTask:
    """A list of CREATEs or DELETEs in progress: each `step` makes some changes, until one returns the reply."""

    broker: Broker
    caller: Caller
    operation: Operation
    attributes: frozenset[str] | None
    """The only keys of a state that a reply is to have; None: all."""
    entries: deque[Value]
    """Those that are to be done. Each is freed when it is done: all together would take milliseconds at the end."""
    unread: EncodedList | None
    """Entries that are not decoded yet: the first steps do that, so that nothing is changed if it is not possible."""
    items: list[bytes]
    """The entries of the reply so far, encoded."""

    def step(self, _count: int) -> ManagementReply | None:
        """Make some changes more; the reply once all are made."""
        if self.unread is not None:
            return self._decode(self.unread)
        for _ in range(min(CHANGES_PER_STEP, len(self.entries))):
            entry = self.entries.popleft()
            done = _change_item(self.broker, self.caller, self.operation, entry, self.attributes)
            self.items.append(encode(done.as_item()))
        if self.entries:
            return None
        return ManagementReply(status=int(StatusCode.OK), description="OK", encoded_body=encoded_list(self.items))

    def _decode(self, unread: EncodedList) -> ManagementReply | None:
        try:
            self.entries += unread.take(DECODED_PER_STEP)
        except DecodeError as error:
            return invalid_request(f"The list can't be read: {error}. Nothing was changed.")
        if len(self.entries) == unread.count:
            self.unread = None
        return None


Task: TypeAlias = (
    queries.QueryTask
    | ChangesTask
    | changed_states.ChangedStatesTask
    | queue_messages.PeekTask
    | queue_messages.MessagesTask
    | audits.AuditTask
)
"""A request that is worked through in slices: `step` returns its reply, or None if there is more to do."""


def answer(broker: Broker, connection: Connection, request: Message) -> ManagementReply | Task:
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
            return queries.read(broker, connection, kind, named)
        case Operation.QUERY:
            return queries.query(broker, connection, kind, request)
        case Operation.CREATE | Operation.UPDATE | Operation.DELETE:
            if broker.log.failed is not None:
                return refusal(Refuse(Reason.STORAGE_FULL, broker.storage_refusal().description))
            return _change(broker, caller_of(connection), operation, kind, named, request)
        case Operation.PEEK | Operation.PURGE | Operation.MOVE | Operation.REDRIVE:
            return queue_messages.handle(broker, caller_of(connection), operation, kind, named, request.body)
        case Operation.START_AUDIT | Operation.STOP_AUDIT | Operation.READ_AUDIT:
            return audits.handle(broker, operation, kind, named, request.body)


def _kind(operation: Operation, request: Message) -> Value:
    asked = request.application_properties
    if operation is Operation.QUERY:
        return asked.get(management.ENTITY_TYPE, asked.get(management.TYPE))
    if isinstance(request.body, list) or request.entries is not None:
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


# -- changes --------------------------------------------------------------------------------------------------------


def _change(
    broker: Broker, caller: Caller, operation: Operation, kind: EntityType, name: str | None, request: Message
) -> ManagementReply | ChangesTask:
    entries = request.body if isinstance(request.body, list) else []
    asked = request.application_properties.get(management.ATTRIBUTES)
    attributes = frozenset(asked.split()) if isinstance(asked, str) else None
    count = request.entries.count if request.entries is not None else len(entries)
    if count > management.MAX_COUNT:
        return invalid_request(f"A list holds at most {management.MAX_COUNT} entries, not {count}.")
    if request.entries is not None or isinstance(request.body, list):
        return ChangesTask(broker, caller, operation, attributes, deque(entries), request.entries, [])
    return _change_one(broker, caller, operation, kind, name, request.body, attributes)


def _change_item(
    broker: Broker, caller: Caller, operation: Operation, entry: Value, attributes: frozenset[str] | None
) -> ManagementReply:
    if not isinstance(entry, dict):
        return invalid_request("An entry of the list is not a map.")
    name = entry.get("name")
    try:
        kind = EntityType(str(entry.get("type")))
    except ValueError as error:
        return refusal(Refuse(Reason.NOT_IMPLEMENTED, f"The entry can't be done: {error}."))
    named = name if isinstance(name, str) else None
    return _change_one(broker, caller, operation, kind, named, entry.get("body"), attributes)


def _change_one(
    broker: Broker,
    caller: Caller,
    operation: Operation,
    kind: EntityType,
    name: str | None,
    body: Value,
    attributes: frozenset[str] | None,
) -> ManagementReply:
    if operation is Operation.DELETE:
        return delete.delete(broker, caller, kind, name, body)
    update = operation is Operation.UPDATE
    return declare.declare(broker, kind, name, body, update=update, attributes=attributes)
