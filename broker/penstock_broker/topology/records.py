"""Exchanges, subscriptions and point-to-point queues as records. `store.Topology` changes them, others read them.

Must not know links' engines or the log.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

from penstock_api import management
from penstock_broker.queue.consumer import SendingLink
from penstock_broker.queue.queue import Queue
from penstock_core.binding import Binding, NoLocal, no_local_of
from penstock_core.existing_subscription import ExistingSubscription, OwnerMark
from penstock_core.header_routing import HeadersRouter
from penstock_core.identity import Identity, LinkKey, queue_name
from penstock_core.permissions import Action, TargetKind
from penstock_core.routing import Router
from penstock_core.subscription_lifetime import AttachedSessions, SessionKey, outlives_process
from penstock_core.temporary_nodes import LifetimePolicy
from penstock_core.terms import ExchangeType, Exclusivity, ExpiryPolicy, Lifetime, Persistence, Unroutable

__all__ = ["DetachedLink", "Exchange", "KeptEncoding", "PointToPointQueue", "Subscription", "Temporary", "new_router"]


def new_router(kind: ExchangeType) -> Router[Queue] | HeadersRouter[Queue]:
    """What routes for an exchange of this type."""
    return HeadersRouter() if kind is ExchangeType.HEADERS else Router(kind)


@dataclass(frozen=True, slots=True)
class DetachedLink:
    """A link that its client may attach again."""

    name: str
    receives: bool
    """The client receives on it."""
    session: SessionKey
    """The last one that it was attached in."""


@dataclass(slots=True, eq=False)
class Temporary:
    """What is known of a node that a dynamic source or target made. Such a node is never logged."""

    connection: int
    """The number of the connection that made it."""
    policy: LifetimePolicy
    is_exclusive: bool
    """That connection alone may consume."""
    has_creator: bool = True
    """The link whose attach made it is attached, or may come back."""
    expiry: ExpiryPolicy = ExpiryPolicy.SESSION_END
    """Of that link's terminus."""
    awaits: DetachedLink | None = None
    """That link, while it is detached and may come back."""


@dataclass(slots=True, kw_only=True, eq=False)
class Exchange:
    """Where messages are published. `version` grows with each change of its bindings."""

    name: str
    type: ExchangeType
    durable: bool = True
    unroutable: Unroutable = Unroutable.ACCEPT
    alternate: str | None = None
    persistence: Persistence | None = None
    owner: management.Owner | None = None
    publishers: tuple[str, ...] = ()
    """Patterns of users who may publish because its declaration says so."""
    revision: int = 0
    router: Router[Queue] | HeadersRouter[Queue]
    temporary: Temporary | None = None
    made_by_name: bool = False
    """A client named it and auto-creation made it; nobody declared it since."""
    producers: set[SendingLink] = field(default_factory=set[SendingLink])
    """Links that send here by their own target."""
    version: int = 0
    received: int = 0
    received_bytes: int = 0
    unroutable_messages: int = 0
    unselected_messages: int = 0
    """Accepted, routed to subscriptions, and taken by none: their selectors refused it."""

    @property
    def permission_kind(self) -> TargetKind:
        """What kind of thing it is for permissions."""
        return TargetKind.EXCHANGE

    def declared_users(self, action: Action) -> tuple[str, ...]:
        """Who may do it because the declaration says so."""
        return self.publishers if action is Action.PUBLISH else ()


@dataclass(frozen=True, slots=True)
class KeptEncoding:
    """A part of a document as management has told it, to be told again while it is made of the same values."""

    made_of: tuple[object, ...]
    data: bytes
    begins: array[int]
    """Where each value begins in it, and where the last one ends."""


@dataclass(slots=True, kw_only=True, eq=False)
class Subscription:
    """A named place in which messages of one exchange wait for one application."""

    identity: Identity
    exclusivity: Exclusivity
    lifetime: Lifetime
    binding: Binding
    exchange_type: ExchangeType
    queue: Queue
    owner_link: LinkKey | None = None
    user: str | None = None
    persistence: Persistence | None = None
    limits: management.QueueLimits = field(default_factory=management.QueueLimits)
    delivery: management.DeliveryPolicy | None = None
    """None: what the broker's settings say, because nobody declared it."""
    rebind_policy: str = "InPlace"
    client_overrides: str = "Refuse"
    owner: management.Owner | None = None
    managed: OwnerMark | None = None
    declared_consumers: tuple[str, ...] = ()
    """Patterns of users who may consume because its declaration says so."""
    users: AttachedSessions = field(default_factory=AttachedSessions)
    noted_unused_us: int = 0
    """Since when it is unused, as its document says; 0: it has a consumer."""
    is_recorded: bool = False
    """The log has a document of it."""
    revision: int = 0
    encoding: KeptEncoding | None = None
    """What it was declared with."""

    @property
    def name(self) -> str:
        """The name of its queue."""
        return queue_name(self.identity)

    @property
    def is_logged(self) -> bool:
        """It and its durable messages outlive the process."""
        return outlives_process(self.identity.durable, self.lifetime)

    @property
    def no_local(self) -> NoLocal | None:
        """Whose messages it leaves out."""
        return no_local_of(self.binding, self.identity, self.owner_link)

    def existing(self) -> ExistingSubscription:
        """What the rules need to know of it."""
        return ExistingSubscription(
            identity=self.identity,
            incarnation=self.queue.incarnation,
            exclusivity=self.exclusivity,
            lifetime=self.lifetime,
            binding=self.binding,
            exchange_type=self.exchange_type,
            consumers=len(self.queue.links.consumers),
            owner=self.owner_link,
            user=self.user,
            managed=self.managed,
            declared_consumers=self.declared_consumers,
        )


@dataclass(slots=True, kw_only=True, eq=False)
class PointToPointQueue:
    """A queue that is no subscription's: what is published to it waits there for its consumers."""

    name: str
    durable: bool
    queue: Queue
    persistence: Persistence | None = None
    limits: management.QueueLimits = field(default_factory=management.QueueLimits)
    delivery: management.DeliveryPolicy | None = None
    """None: what the broker's settings say, because nobody declared it."""
    temporary: Temporary | None = None
    made_by_name: bool = False
    """A client named it and auto-creation made it; nobody declared it since."""
    owner: management.Owner | None = None
    producers: set[SendingLink] = field(default_factory=set[SendingLink])
    """Links that send here by their own target."""
    idle_since_ms: int | None = None
    """When it was first found unused (monotonic, milliseconds); only for queues that auto-creation made."""
    revision: int = 0

    @property
    def permission_kind(self) -> TargetKind:
        """What kind of thing it is for permissions."""
        return TargetKind.QUEUE

    def declared_users(self, action: Action) -> tuple[str, ...]:
        """Who may do it because the declaration says so."""
        return ()
