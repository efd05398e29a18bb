"""The client of a broker's `$management` node, used by the operator, the observer and the `penstock` command.

The messages are those of `penstock_api.management`, described in docs/reference/management.md. Answers are plain Python
values or the models of that module. Errors are those of `client.errors`. The client does not reconnect.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar, cast

from penstock_amqp.client.address import Address
from penstock_amqp.client.client import Client
from penstock_amqp.client.errors import ManagementError, RequestTooLong, TransportError
from penstock_amqp.client.request_session import SessionSettings
from penstock_amqp.messages.message_codec import Message
from penstock_amqp.sasl.client import ClientMechanism, Credentials
from penstock_amqp.types.plain_values import to_plain, to_wire
from penstock_amqp.types.values import Value
from penstock_api import management, state_documents
from penstock_api.management import EntityType, ManagementDocument, Operation
from penstock_core.reason import Reason

__all__ = ["ChangedStates", "ListedEntity", "ManagementClient", "ManagementReply", "Page"]

_LIST_BYTES: Final = 1024 * 1024
"""A list of entities is sent in several requests if it is longer, so that each of them is answered in time."""

D = TypeVar("D", bound=ManagementDocument)

_STATES: dict[type[ManagementDocument], EntityType] = {
    state_documents.BrokerState: EntityType.BROKER,
    state_documents.ExchangeState: EntityType.EXCHANGE,
    state_documents.SubscriptionState: EntityType.SUBSCRIPTION,
    state_documents.ConnectionState: EntityType.CONNECTION,
    state_documents.LinkState: EntityType.LINK,
}
_DECLARED: dict[type[ManagementDocument], EntityType] = {
    management.ExchangeDeclaration: EntityType.EXCHANGE,
    management.SubscriptionDeclaration: EntityType.SUBSCRIPTION,
    management.QueueDeclaration: EntityType.QUEUE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagementReply:
    """What the broker answered, success or not; keys and values are plain Python."""

    status: int
    description: str
    condition: str | None = None
    """An AMQP error condition, on failures."""
    reason: str | None = None
    """A word of the closed list in docs/reference/rules.md, on failures."""
    body: object = None
    properties: Mapping[str, object] = field(default_factory=dict[str, object])

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    def check(self) -> ManagementReply:
        """Return this reply if it is a success, else raise `ManagementError`."""
        if self.is_success:
            return self
        raise ManagementError(
            self.status, self.description, condition=self.condition, reason=self.reason, body=self.body
        )

    @property
    def attributes(self) -> dict[str, object]:
        """The body as a map. Raises `TransportError` if it is none."""
        body = self.body
        if not isinstance(body, dict):
            raise TransportError(f"the broker answered {type(body).__name__} where a map was expected")
        return cast(dict[str, object], body)


@dataclass(frozen=True, slots=True)
class ListedEntity:
    """One entity in a CREATE or DELETE request for many entities."""

    type: EntityType
    name: str | None
    body: ManagementDocument


@dataclass(frozen=True, slots=True)
class Page:
    """One page of the result of a QUERY."""

    results: list[dict[str, object]]
    total_count: int
    revision: int | None
    is_whole: bool = True
    """All entities are told; False: only those that changed since the revision that was asked for."""
    removed: tuple[str, ...] = ()
    """Names of the entities that were removed since then (of subscriptions the queue names), unless all are told."""


@dataclass(frozen=True, slots=True)
class ChangedStates:
    """States of subscriptions that changed since an earlier reply, or the first part of all states."""

    page: Page
    token: str | None
    """For the next request; None: the broker is of a release that knows no tokens, and `page` is the first page of a
    plain QUERY.
    """
    is_whole: bool
    """What was known before is void."""
    removed: tuple[str, ...]
    """Queue names of subscriptions that are gone; `page` comes after them."""
    left: int
    """States that did not fit into this reply."""


class ManagementClient:
    """One connection to `$management`. Make it with `connect`; requests may be pipelined from several tasks."""

    def __init__(self, client: Client, timeout_seconds: float) -> None:
        self._client = client
        self._timeout_seconds = timeout_seconds
        self.before_change: Callable[[], None] = lambda: None
        """Called before each request with a list of changes; if it raises, neither that nor another one is sent."""

    @classmethod
    async def connect(
        cls,
        address: Address | str,
        *,
        login: ClientMechanism | Credentials | None = None,
        timeout_seconds: float = 10.0,
        container_id: str = "penstock-management",
    ) -> ManagementClient:
        """Connect to `address` (see `Address.parse`); `timeout_seconds` applies to the connecting and to each request.

        Raises `TransportError` (a `ConnectionError`), `NotAuthenticated`, `TimeoutError`.
        """
        where = Address.parse(address) if isinstance(address, str) else address
        suffix = uuid.uuid4().hex
        settings = SessionSettings(
            container_id=f"{container_id}-{suffix}",
            node=management.NODE,
            reply_to=f"answers-{suffix}",
            hostname=where.server_name or where.host or None,
        )
        client = await Client.connect(where, settings, login=login, timeout_seconds=timeout_seconds)
        return cls(client, timeout_seconds)

    async def close(self) -> None:
        """End the connection."""
        await self._client.close()

    @property
    def is_open(self) -> bool:
        """Whether requests can still be sent."""
        return self._client.error is None

    async def request(
        self,
        operation: Operation,
        type: EntityType,
        name: str | None = None,
        body: object = None,
        *,
        properties: Mapping[str, object] | None = None,
        timeout_seconds: float | None = None,
        most_bytes: int | None = None,
    ) -> ManagementReply:
        """Send one request; return the answer, whatever its status.

        `body`: a document, a list, a map or None. `properties` are added to the application properties. Raises
        `TransportError`, `RequestRefused`, `TimeoutError`; `RequestTooLong` if it has more than `most_bytes` or than
        the broker takes.
        """
        key = management.ENTITY_TYPE if operation is Operation.QUERY else management.TYPE
        sent: dict[str, Value] = {management.OPERATION: str(operation), key: str(type)}
        if name is not None:
            sent[management.NAME] = name
        sent.update((each, to_wire(value)) for each, value in (properties or {}).items())
        message = await self._client.request(
            sent,
            to_wire(body),
            timeout_seconds=self._timeout_seconds if timeout_seconds is None else timeout_seconds,
            most_bytes=most_bytes,
        )
        return _answer(message)

    async def read(self, type: EntityType, name: str | None = None) -> dict[str, object]:
        """The attributes of one entity. Raises `ManagementError` (404 if there is none)."""
        return (await self.request(Operation.READ, type, name)).check().attributes

    async def read_state(self, model: type[D], name: str | None = None) -> D:
        """The same as a model: `BrokerState`, `SubscriptionState` ..."""
        return model.read(await self.read(_STATES[model], name))

    async def create(self, declaration: ManagementDocument, name: str | None = None) -> ManagementReply:
        """Declare an exchange, subscription or queue. Raises `ManagementError`."""
        return (await self.request(Operation.CREATE, _declared(declaration), name, declaration)).check()

    async def update(self, declaration: ManagementDocument, name: str) -> ManagementReply:
        """Change what exists to match the declaration. Raises `ManagementError` (404 if it does not exist)."""
        return (await self.request(Operation.UPDATE, _declared(declaration), name, declaration)).check()

    async def delete(self, type: EntityType, name: str, deletion: management.Deletion | None = None) -> ManagementReply:
        """Delete an entity; success also if it does not exist. Raises `ManagementError` (409 if something uses it)."""
        return (await self.request(Operation.DELETE, type, name, deletion or management.Deletion())).check()

    async def create_all(
        self, entries: Sequence[ListedEntity], *, attributes: Sequence[str] = ()
    ) -> list[ManagementReply]:
        """Declare many entities, at most 1000 and 1 MiB in each request; the replies, errors included, are in the order
        of `entries`. One that is longer than the broker takes is answered with 413.

        `attributes`: the only ones of the states that are told, beside the outcome; none: all. A broker of an earlier
        release tells all of them.
        """
        properties = {management.ATTRIBUTES: " ".join(attributes)} if attributes else None
        return await self._for_all(Operation.CREATE, entries, properties)

    async def delete_all(self, entries: Sequence[ListedEntity]) -> list[ManagementReply]:
        """Delete many entities, as `create_all` declares them."""
        return await self._for_all(Operation.DELETE, entries)

    async def _for_all(
        self, operation: Operation, entries: Sequence[ListedEntity], properties: Mapping[str, object] | None = None
    ) -> list[ManagementReply]:
        answers: list[ManagementReply] = []
        for at in range(0, len(entries), management.MAX_COUNT):
            answers += await self._for_some(operation, entries[at : at + management.MAX_COUNT], properties)
        return answers

    async def _for_some(
        self, operation: Operation, entries: Sequence[ListedEntity], properties: Mapping[str, object] | None
    ) -> list[ManagementReply]:
        """The same in one request, or in several if it would be too long: an entity may have a megabyte of keys and
        users.
        """
        body, is_list = [_listed(entry) for entry in entries], len(entries) > 1
        most_bytes = _LIST_BYTES if is_list else None
        self.before_change()
        try:
            reply = await self.request(
                operation, entries[0].type, None, body, properties=properties, most_bytes=most_bytes
            )
        except RequestTooLong as error:
            if not is_list:
                return [_too_long(error)]
            half = len(entries) // 2
            first = await self._for_some(operation, entries[:half], properties)
            return first + await self._for_some(operation, entries[half:], properties)
        answered = reply.check().body
        items = cast(list[object], answered) if isinstance(answered, list) else []
        if len(items) != len(entries):
            raise TransportError(f"the broker answered {operation} of {len(entries)} entries with {len(items)}")
        return [_one_of_many(item) for item in items]

    async def query(
        self,
        type: EntityType,
        *,
        offset: int = 0,
        after: str = "",
        count: int = management.MAX_COUNT,
        attributes: Sequence[str] = (),
        changed_since: int | None = None,
    ) -> Page:
        """One page of the entities of a type, each as a map of its attributes; with `changed_since` (the revision of an
        earlier reply of the same life of the broker) only of those that changed. Raises `ManagementError`.

        `after`: the page is that of the entities whose names (`LISTED_BY`) come behind this one, and `offset` holds for
        connections and links only. Brokers of earlier releases know `offset` alone.
        """
        properties: dict[str, object] = {management.OFFSET: offset, management.COUNT: count}
        if after:
            properties[management.AFTER] = after
        if changed_since is not None:
            properties[management.CHANGED_SINCE] = changed_since
        body = {"attributeNames": list(attributes)}
        answer = (await self.request(Operation.QUERY, type, None, body, properties=properties)).check()
        return _page(answer)

    async def changed_states(self, token: str) -> ChangedStates:
        """States of subscriptions that changed since the reply with this token, or all of them if it is empty or too
        old, or if the broker was restarted since. Raises `ManagementError`.
        """
        properties = {management.STATES_SINCE: token}
        answer = await self.request(Operation.QUERY, EntityType.SUBSCRIPTION, properties=properties)
        return _changed_states(answer.check())

    async def query_all(
        self,
        type: EntityType,
        *,
        attributes: Sequence[str] = (),
        told: Callable[[int, int], None] = lambda _read, _total: None,
    ) -> list[dict[str, object]]:
        """All entities of a type, page after page; what is made or deleted meanwhile may be missing. So may
        connections and links whatever they do, while others go. After each page `told` is called with how many are
        read, and of how many.
        """
        key = management.LISTED_BY.get(type, "")
        asked = attributes if not attributes or not key or key in attributes else (*attributes, key)
        found: list[dict[str, object]] = []
        while True:
            last = found[-1].get(key) if found else None
            after = last if isinstance(last, str) else ""
            page = await self.query(type, offset=len(found), after=after, attributes=asked)
            found += page.results
            told(len(found), max(len(found), page.total_count))
            if len(page.results) < management.MAX_COUNT if key else not page.results or len(found) >= page.total_count:
                break
        return found if asked is attributes else [{name: row.get(name) for name in attributes} for row in found]

    async def states(self, model: type[D], *, told: Callable[[int, int], None] = lambda _read, _total: None) -> list[D]:
        """All entities of a type as models: `SubscriptionState`, `ExchangeState` ... `told`: as of `query_all`."""
        return [model.read(each) for each in await self.query_all(_STATES[model], told=told)]


def _declared(declaration: ManagementDocument) -> EntityType:
    try:
        return _DECLARED[type(declaration)]
    except KeyError:
        raise TypeError(f"{type(declaration).__name__} declares nothing") from None


def _listed(entry: ListedEntity) -> dict[str, object]:
    listed: dict[str, object] = {management.TYPE: str(entry.type), "body": entry.body}
    if entry.name is not None:
        listed[management.NAME] = entry.name
    return listed


def _answer(message: Message) -> ManagementReply:
    properties = {name: to_plain(value) for name, value in message.application_properties.items()}
    return _from_fields(properties, to_plain(message.body), properties)


def _too_long(error: RequestTooLong) -> ManagementReply:
    """The answer that stands for one which the broker can't give, since it does not take the request."""
    return ManagementReply(
        status=413,
        description=f"The request is too long: {error.description}.",
        condition=error.condition,
        reason=Reason.LIMIT_EXCEEDED.value,
    )


def _one_of_many(item: object) -> ManagementReply:
    if not isinstance(item, dict):
        raise TransportError("the broker answered a list with an entry that is no map")
    fields = cast(dict[str, object], item)
    return _from_fields(fields, fields.get("body"), {})


def _from_fields(fields: Mapping[str, object], body: object, properties: Mapping[str, object]) -> ManagementReply:
    status = fields.get(management.STATUS_CODE)
    if not isinstance(status, int):
        raise TransportError("the broker answered without a status")
    condition, reason = fields.get(management.ERROR_CONDITION), fields.get(management.REASON)
    return ManagementReply(
        status=status,
        description=str(fields.get(management.STATUS_DESCRIPTION, "")),
        condition=None if condition is None else str(condition),
        reason=None if reason is None else str(reason),
        body=body,
        properties=properties,
    )


def _changed_states(answer: ManagementReply) -> ChangedStates:
    told = answer.properties
    token, left = told.get(management.STATES_TOKEN), told.get(management.LEFT)
    return ChangedStates(
        page=_page(answer),
        token=token if isinstance(token, str) else None,
        is_whole=bool(told.get(management.IS_WHOLE, True)),
        removed=tuple(cast(list[str], answer.attributes.get(management.REMOVED, []))),
        left=left if isinstance(left, int) else 0,
    )


def _page(answer: ManagementReply) -> Page:
    body = answer.attributes
    names = cast(list[str], body.get("attributeNames", []))
    rows = cast(list[list[object]], body.get("results", []))
    total, revision = answer.properties.get(management.TOTAL), answer.properties.get(management.REVISION)
    return Page(
        results=[dict(zip(names, row, strict=True)) for row in rows],
        total_count=total if isinstance(total, int) else len(rows),
        revision=revision if isinstance(revision, int) else None,
        is_whole=answer.properties.get(management.IS_WHOLE) is not False,
        removed=tuple(str(name) for name in cast(list[object], body.get(management.REMOVED, []))),
    )
