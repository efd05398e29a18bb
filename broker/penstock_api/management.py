"""Requests to a broker's ``$management`` and its replies, as the operator, the observer and ``penstock`` send them.

Source: AMQP Management 1.0 working draft 11 (CREATE, READ, UPDATE, DELETE, QUERY), with three additions that
docs/reference/management.md describes: CREATE is idempotent and reports what it did, a CREATE or DELETE may carry a
list, and QUERY takes ``changedSince`` and ``statesSince``. Both ends import this module; neither may assume more than
it says.

Bodies are AMQP maps (amqp-value) whose keys are the camelCase aliases of the models below. Times are integer
milliseconds since the epoch on the broker's clock, durations integer milliseconds, sizes integer bytes.

Both ends may be of different releases. Later ones only add keys with a default, never change a default, and never take
a key away. Replies are read by `ManagementDocument.read`, requests leave out values at their default (`Request`), and
`penstock_api.release_terms` lists what the other end knows. docs/reference/management.md, "Other releases".
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

NODE = "$management"

# Application properties of a request and of its reply.
OPERATION = "operation"
TYPE = "type"
NAME = "name"
ENTITY_TYPE = "entityType"  # QUERY only
OFFSET = "offset"
COUNT = "count"
AFTER = "after"  # QUERY of what has names only: the name in the last row of the page before
ATTRIBUTES = "attributeNames"  # CREATE and UPDATE: the only keys of the state that the reply is to have, by spaces
CHANGED_SINCE = "changedSince"  # QUERY only: the `revision` of an earlier reply
STATES_SINCE = "statesSince"  # QUERY of subscriptions: the `statesToken` of an earlier reply, or "" for all states
STATUS_CODE = "statusCode"
STATUS_DESCRIPTION = "statusDescription"
ERROR_CONDITION = "errorCondition"  # an AMQP error condition, on failures
REASON = "penstock:reason"  # a penstock_core.reason value, on failures
REVISION = "revision"  # QUERY replies: pass it back as `changedSince`
TOTAL = "totalCount"  # QUERY replies: entities that match, before offset and count
STATES_TOKEN = "statesToken"  # replies to `statesSince`: pass it back; it means nothing after a restart of the broker
IS_WHOLE = "isWhole"  # replies to `statesSince` and `changedSince`: true if all are told, false if only what changed
LEFT = "left"  # replies to `statesSince`: states that did not fit; ask for them with the token of this reply
NOW_MS = "nowMs"  # replies to `statesSince`: the time of the reply, on the broker's clock
DECLARATION = "declaration"  # key of replies to READ of an exchange or subscription: what it is declared as
REMOVED = "removed"  # key of the body of these replies: names (of subscriptions: queue names) of what is gone

MAX_DECLARED_USERS = 1024
"""Most users that a declaration names."""
MAX_USER = 512
"""Longest of their names. That of a pod, `system:serviceaccount:NAMESPACE:NAME`, has up to 339 characters."""

MAX_COUNT = 1000
"""Largest number of entities in one reply to QUERY; a request for more gets this many."""
MAX_REQUEST_BYTES = 16 * 1024 * 1024
"""Longest request on the listener for the management, whatever `maxMessageBytes` is; on the others at most as long."""


class Operation(StrEnum):
    """What a request asks for; the value is the `operation` application property."""

    CREATE = "CREATE"
    READ = "READ"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    QUERY = "QUERY"
    PEEK = "PEEK"
    PURGE = "PURGE"
    MOVE = "MOVE"
    REDRIVE = "REDRIVE"
    START_AUDIT = "START_AUDIT"
    STOP_AUDIT = "STOP_AUDIT"
    READ_AUDIT = "READ_AUDIT"


class EntityType(StrEnum):
    """What a request is about; the value is the `type` (QUERY: `entityType`) application property."""

    BROKER = "penstock.broker"
    EXCHANGE = "penstock.exchange"
    SUBSCRIPTION = "penstock.subscription"
    QUEUE = "penstock.queue"
    CONNECTION = "penstock.connection"
    LINK = "penstock.link"


LISTED_BY: Final = {EntityType.EXCHANGE: "name", EntityType.SUBSCRIPTION: "queueName", EntityType.QUEUE: "name"}
"""The attribute that has the name by which a list is in order; connections and links are in the order in which they
came."""


class StatusCode(IntEnum):
    """The status codes in use: those of AMQP Management, which are HTTP's."""

    OK = 200
    CREATED = 201
    DELETED = 204
    BAD_REQUEST = 400
    FORBIDDEN = 403
    NOT_FOUND = 404
    CONFLICT = 409
    INTERNAL_ERROR = 500
    NOT_IMPLEMENTED = 501
    UNAVAILABLE = 503


class ManagementDocument(BaseModel):
    """Base of every map that is sent: camelCase on the wire, immutable.

    `model_validate` refuses unknown keys: a broker must not ignore a part of a request. `read` ignores them: a reply
    may come from a later release.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        use_enum_values=False,
        defer_build=True,  # most kinds are never met by one process
    )

    def to_wire(self) -> dict[str, object]:
        """The map to send: aliases as keys, absent optionals left out, enums as strings."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    @classmethod
    def read(cls, found: object) -> Self:
        """The document in the reply of a broker of any release. Keys that this release doesn't know are ignored, also
        in nested documents. Raises ValidationError.
        """
        return cls.model_validate(found, extra="ignore")


class Request(ManagementDocument):
    """Base of the bodies of requests. A value at its default isn't sent, so that a broker of an earlier release, which
    doesn't know the key, accepts the request and does what the default says.
    """

    def to_wire(self) -> dict[str, object]:
        """The map to send: aliases as keys, values at their default left out, enums as strings."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)


Name = Annotated[str, Field(min_length=1, max_length=255)]


class Owner(ManagementDocument):
    """The owner mark: the resource that declared an entity. Clients can't rebind or end an entity that has one.

    An entity whose mark has the same namespace and name but another `uid` is adopted, never deleted (restores, `replace
    --force`).
    """

    cluster_id: Name  # uid of the kube-system namespace; "local" for `penstock up`
    kind: Literal["Exchange", "Subscription", "Queue"]
    namespace: Name
    name: Name
    uid: Name
    deletion_policy: Literal["Delete", "DeleteWhenEmpty", "DeleteWhenUnused", "Retain"] = "Delete"


UserPattern = Annotated[str, Field(min_length=1, max_length=MAX_USER)]
UserPatterns = Annotated[tuple[UserPattern, ...], Field(max_length=MAX_DECLARED_USERS)]
"""Users who may do something without a permission of the broker; in each `*` stands for any characters."""


class QueueLimits(ManagementDocument):
    """How much one subscription or queue may hold, and what happens at the limit."""

    max_bytes: int | None = Field(default=None, ge=1)
    max_messages: int | None = Field(default=None, ge=1)
    overflow: Literal["DropOldest", "DropNewest", "Reject"] = "DropOldest"


class DeliveryPolicy(ManagementDocument):
    """What happens to messages of a subscription or queue that no consumer accepts in time, or at all.

    A destination is an address: a queue's name, or `exchange/key`. A plain name that is neither a queue nor an exchange
    is made a durable queue by the declaration that names it.
    """

    max_deliveries: int | None = Field(default=None, ge=1, le=1_000_000)
    """Number of failed deliveries after which a message goes to `dead_letter`; without either of them: no limit."""
    dead_letter: Name | None = None
    """Destination of messages that were rejected, or whose delivery failed too often."""
    expiry: Name | None = None
    """Destination of messages whose time to live has passed; absent: they are dropped and counted."""
    max_ttl_ms: int | None = Field(default=None, ge=1)
    """The longest time to live in milliseconds; also that of messages without one."""
    exclusive_consumer: bool = False
    """Only one link at a time gets the messages; when it detaches, the one that attached next takes over."""


Adoption = Literal["OtherCluster", "Orphans"]
"""What a declaration with an owner mark may take over beside its own and what has no mark: that of the resource of the
same name in another cluster; that of any other resource, which the sender has seen to be gone.
"""


class ExchangeDeclaration(Request):
    """Body of CREATE and UPDATE of a `penstock.exchange`; the request's `name` is the exchange's name."""

    exchange_type: Literal["Topic", "Direct", "Fanout", "Headers"]
    durable: bool = True
    unroutable: Literal["Accept", "Reject", "Alternate"] = "Accept"
    alternate_exchange: Name | None = None
    publishers: UserPatterns = ()  # who may publish, beside those whom the broker's permissions allow it
    persistence: Literal["AsSent", "Always"] | None = None  # absent: Always when owned, else AsSent
    owner: Owner | None = None
    adoption: Adoption | None = None


class HeaderBindingDocument(ManagementDocument):
    """One binding to a Headers exchange: application properties of which all, or any, a message must have.

    A null value asks only that the property is present; a number equals the same number of any type.
    """

    match: Literal["All", "Any"] = "All"
    headers: dict[Name, bool | int | float | str | None] = Field(default={}, max_length=64)


class SubscriptionDeclaration(Request):
    """Body of CREATE and UPDATE of a `penstock.subscription`; the request's `name` is left out or the queue name.

    Identity = (scope, subscription_name, durable). Changing `exchange`, `binding_keys`, `header_bindings`, `selector`
    or `no_local` of an existing one is a rebind, done as `rebind_policy` allows.
    """

    subscription_name: Name
    scope: Literal["Global", "Container"] = "Global"
    client_id: Name | None = None  # the container-id; if and only if scope is Container
    sharing: Literal["Shared", "Exclusive"] = "Shared"
    durable: bool = True
    expiry_policy: Literal["Never", "LinkDetach", "SessionEnd", "ConnectionClose"] = "Never"
    exchange: Name
    binding_keys: tuple[str, ...] = ()  # empty: the default of the exchange's type
    header_bindings: tuple[HeaderBindingDocument, ...] = ()  # Headers exchanges only; empty: every message
    selector: str | None = Field(default=None, max_length=8192)
    no_local: bool = False
    rebind_policy: Literal["InPlace", "WhenIdle", "WhenIdleAndEmpty", "Never"] = "InPlace"
    client_overrides: Literal["Refuse", "Ignore"] = "Refuse"
    consumers: UserPatterns = ()  # who may consume, beside those whom the broker's permissions allow it
    persistence: Literal["AsSent", "Always"] | None = None
    limits: QueueLimits = QueueLimits()
    delivery: DeliveryPolicy = DeliveryPolicy()
    owner: Owner | None = None
    adoption: Adoption | None = None


class QueueDeclaration(Request):
    """Body of CREATE of a point-to-point `penstock.queue`; the request's `name` is the queue's name."""

    durable: bool = True
    persistence: Literal["AsSent", "Always"] | None = None  # absent: Always when owned, else AsSent
    limits: QueueLimits = QueueLimits()
    delivery: DeliveryPolicy = DeliveryPolicy()
    owner: Owner | None = None
    adoption: Adoption | None = None


class Deletion(Request):
    """Body of DELETE. Deleting what is absent succeeds (204). Refusals: 409 ConsumersActive or NotEmpty."""

    if_unused: bool = True  # refuse while a link consumes; info names the containers
    if_empty: bool = False  # refuse while messages wait
    owner_uid: Name | None = None  # refuse (409, Managed) if the mark's uid is another one
    rights_only: bool = False  # end the rights that the declaration gives, and keep the entity; no other refusal


class DeclarationOutcome(StrEnum):
    """What a CREATE or UPDATE did; key `outcome` in the body of the reply."""

    CREATED = "Created"
    UNCHANGED = "Unchanged"
    UPDATED = "Updated"  # attributes other than the binding changed
    REBOUND = "Rebound"
    ADOPTED = "Adopted"  # existed without this owner
    REBIND_BLOCKED = "RebindBlocked"  # all but the binding was applied; `blockedBy` says ConsumersActive or NotEmpty
