"""What the store holds about one subscription, and which link is attached under one link name.

Decisions about attaching, detaching and declaring start from these facts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from penstock_core.binding import Binding
from penstock_core.identity import Identity, LinkKey
from penstock_core.terms import Adoption, ClientOverrides, ExchangeType, Exclusivity, Lifetime

__all__ = ["ExistingSubscription", "LinkKind", "LiveLink", "OwnerMark", "QueueLink", "TopicLink"]


@dataclass(frozen=True, slots=True)
class OwnerMark:
    """The owner mark: which resource declares a subscription (decision 14, docs/decisions/054-owner-mark.md)."""

    resource: str
    """The resource as a person names it: ``namespace/name``."""
    uid: str = ""
    """Kubernetes uid of the resource. Another uid under the same name is the same owner, restored or replaced."""
    cluster_id: str = ""
    client_overrides: ClientOverrides = ClientOverrides.REFUSE

    def is_same_resource(self, other: OwnerMark) -> bool:
        """True if both marks name one resource, whatever its uid."""
        return self.resource == other.resource and self.cluster_id == other.cluster_id

    def may_take_over(self, other: OwnerMark, adoption: Adoption) -> bool:
        """True if a declaration with this mark may replace `other`, that of another resource."""
        match adoption:
            case Adoption.UNMARKED:
                return False
            case Adoption.OTHER_CLUSTER:
                return self.resource == other.resource and self.cluster_id != other.cluster_id
            case Adoption.ORPHANS:
                return True
            case _:
                assert_never(adoption)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExistingSubscription:
    """A subscription that the broker has."""

    identity: Identity
    incarnation: int
    """Number of its queue, unique in the log; a rebind starts a new one."""
    exclusivity: Exclusivity
    lifetime: Lifetime
    binding: Binding
    exchange_type: ExchangeType
    """The type of the exchange in the binding."""
    consumers: int
    """Links that consume now; links of a null source never count (decision 8)."""
    owner: LinkKey | None = None
    """The link that owns a not-shared durable subscription; None if shared, or not attached yet (decision 4)."""
    user: str | None = None
    """The authenticated user that made it; None if a resource or an administrator did (decision 16)."""
    managed: OwnerMark | None = None
    declared_consumers: tuple[str, ...] = ()
    """Patterns of users who may consume because its declaration says so."""


@dataclass(frozen=True, slots=True)
class TopicLink:
    """A link that consumes from a subscription; the three words that must agree for the link to be the same (decision
    5).
    """

    shared: bool
    global_: bool
    durable: bool


@dataclass(frozen=True, slots=True)
class QueueLink:
    """A link that consumes from a queue of its own."""

    queue: str
    """Empty if the link's source is dynamic: the queue's name is another one each time."""


LinkKind = TopicLink | QueueLink


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveLink:
    """The link that is attached now under one (container, link name); one of a null source is never recorded."""

    kind: LinkKind
    identity: Identity | None
    """The subscription that it consumes from; None for a queue."""
    user: str
